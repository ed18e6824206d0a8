//! Many stacks of Rust code: maps, deep recursion, closures, and a panic that is caught.

use std::collections::BTreeMap;

fn fill(count: u32) -> BTreeMap<String, Vec<u8>> {
    (0..count).map(|i| (format!("key {i}"), vec![0u8; (i % 97) as usize + 1])).collect()
}

fn deep(depth: u32) -> Box<String> {
    if depth == 0 {
        return Box::new("x".to_owned());
    }
    let below = deep(depth - 1);
    Box::new(format!("{below}y"))
}

fn main() {
    let map = fill(5000);
    let text = deep(300);
    std::panic::set_hook(Box::new(|_| {}));
    let caught = std::panic::catch_unwind(|| {
        let words: Vec<String> = (0..100).map(|i| i.to_string()).collect();
        assert!(words.len() != 100, "on purpose");
    });
    println!("{} {} {}", map.len(), text.len(), caught.is_err());
}
