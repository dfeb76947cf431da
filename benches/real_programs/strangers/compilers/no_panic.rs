use std::collections::HashMap;

fn main() {
    let mut counts: HashMap<String, usize> = HashMap::new();
    for word in "the cat and the dog".split(' ') {
        *counts.entry(word.to_owned()).or_default() += 1;
    }
    let mut words: Vec<_> = counts.iter().collect();
    words.sort();
    println!("{words:?}");
    let sum: u64 = (1..4).map(|n| std::thread::spawn(move || (0..n * 100).sum::<u64>()).join().unwrap()).sum();
    println!("{sum}");
}
