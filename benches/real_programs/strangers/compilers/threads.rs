use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::mpsc;

thread_local!(static CALLS: Cell<u32> = const { Cell::new(0) });
thread_local!(static DROPPED: Witness = Witness);

struct Witness;
impl Drop for Witness {
    fn drop(&mut self) {
        std::hint::black_box(());
    }
}

fn main() {
    let (send, receive) = mpsc::channel();
    let threads: Vec<_> = (1..5u64)
        .map(|step| {
            let send = send.clone();
            std::thread::spawn(move || {
                DROPPED.with(|_| ());
                CALLS.with(|calls| calls.set(calls.get() + 1));
                send.send((0..1000).map(|n| n * step).sum::<u64>()).unwrap();
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    drop(send);
    println!("{} {}", receive.iter().sum::<u64>(), CALLS.with(Cell::get));
    std::panic::set_hook(Box::new(|_| ()));
    let caught = std::panic::catch_unwind(|| {
        let list: Vec<i32> = std::env::args().skip(9).map(|word| word.len() as i32).collect();
        list[3]
    });
    println!("{}", caught.is_err());
    let joined = std::thread::spawn(|| panic!("in a thread")).join();
    println!("{:?}", joined.unwrap_err().downcast_ref::<&str>());
    let mut counts = BTreeMap::new();
    "the cat and the dog".split(' ').for_each(|word| *counts.entry(word).or_insert(0) += 1);
    println!("{counts:?} {:?} {:.3}", "x".parse::<i32>(), std::f64::consts::PI);
    println!("{}", std::fs::read_to_string("/nonexistent").unwrap_err());
    std::process::exit(6);
}
