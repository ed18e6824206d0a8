//! Makes 1000 vectors with jemalloc, and prints how many bytes they have.

#[global_allocator]
static GLOBAL: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() {
    let blocks: Vec<Vec<u8>> = (0..1000).map(|i| vec![1; 100 + i]).collect();
    println!("{}", blocks.iter().map(Vec::len).sum::<usize>());
}
