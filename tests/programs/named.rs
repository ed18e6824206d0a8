// named: a block of a size that tells which function asked for it, in Rust.
mod shop {
    use std::hint::black_box;

    unsafe extern "C" {
        fn malloc(size: usize) -> *mut u8;
    }

    pub struct Shelf<T>(pub T);

    impl<T: Into<usize>> Shelf<T> {
        #[inline(never)]
        pub fn stock(self) {
            let block = unsafe { malloc(self.0.into()) };
            black_box(block);
        }
    }
}

fn main() {
    shop::Shelf(10009u16).stock();
}
