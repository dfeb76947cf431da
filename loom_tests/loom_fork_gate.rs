//! Every interleaving of settling an allocation, or giving pages back, with a fork.
//!
//! Checks `src/memory/fork_gate.rs` and `src/sync/barriers.rs`: what a child's private memory tells of is in its copy of the
//! code memory.

#![cfg(loom)]

mod support;

use jittison::memory::ForkGate;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use support::explore;

/// A process: code memory, which a fork copies ahead of it, and private memory, which it copies as it is.
struct Process {
    gate: ForkGate<()>,
    /// A word for each thread.
    code: [AtomicU32; 2],
    private: [AtomicU32; 2],
}

impl Process {
    fn new() -> Arc<Process> {
        let words = || std::array::from_fn(|_| AtomicU32::new(0));
        Arc::new(Process { gate: ForkGate::new(()), code: words(), private: words() })
    }

    fn settles(&self, thread: usize) {
        self.code[thread].store(1, Ordering::Relaxed);
        self.gate.pass(|| false);
        self.private[thread].store(1, Ordering::Relaxed);
    }

    /// What the child has, `(code, private)` by thread. The kernel copies private memory as every thread has written it.
    fn forks(&self) -> [(u32, u32); 2] {
        let closed = self.gate.close();
        let copy = [0, 1].map(|thread| self.code[thread].load(Ordering::Relaxed));
        let private = [0, 1].map(|thread| self.private[thread].fetch_add(0, Ordering::Relaxed));
        self.gate.open(closed);
        [(copy[0], private[0]), (copy[1], private[1])]
    }
}

/// Nothing; written, and not told of; all.
const SOUND: [(u32, u32); 3] = [(0, 0), (1, 0), (1, 1)];

#[test]
fn settling_versus_a_fork() {
    explore("settling_versus_a_fork", None, 3, SOUND, || {
        let process = Process::new();
        let other = process.clone();
        let linker = thread::spawn(move || other.settles(0));
        let child = process.forks()[0];
        linker.join().unwrap();
        child
    });
}

#[test]
fn settling_versus_two_forks() {
    // The second child has no less than the first.
    let both = SOUND.into_iter().enumerate().flat_map(|(at, first)| SOUND[at..].iter().map(move |then| (first, *then)));
    // What is written during the first fork is told of after it.
    let reached = both.filter(|pair| *pair != ((1, 0), (1, 0)) && *pair != ((0, 0), (0, 0)));
    let reached = reached.chain([((0, 0), (0, 0)), ((1, 0), (1, 0))]);
    explore("settling_versus_two_forks", Some(3), 3, reached, || {
        let process = Process::new();
        let other = process.clone();
        let linker = thread::spawn(move || other.settles(0));
        let children = [process.forks()[0], process.forks()[0]];
        linker.join().unwrap();
        (children[0], children[1])
    });
}

#[test]
fn two_threads_settling_versus_a_fork() {
    let pairs = SOUND.into_iter().flat_map(|first| SOUND.map(|second| (first, second)));
    explore("two_threads_settling_versus_a_fork", Some(2), 3, pairs, || {
        let process = Process::new();
        let linkers = [0, 1].map(|thread| {
            let other = process.clone();
            thread::spawn(move || other.settles(thread))
        });
        let child = process.forks();
        linkers.map(|linker| linker.join().unwrap());
        (child[0], child[1])
    });
}

#[test]
fn settling_versus_forks_of_two_threads() {
    // One opens the gate while the other closes it.
    let pairs =
        SOUND.into_iter().enumerate().flat_map(|(at, first)| SOUND[at..].iter().map(move |then| [first, *then]));
    explore("settling_versus_forks_of_two_threads", Some(2), 3, pairs, || {
        let process = Process::new();
        let other = process.clone();
        let linker = thread::spawn(move || other.settles(0));
        let other = process.clone();
        let forker = thread::spawn(move || other.forks()[0]);
        let child = process.forks()[0];
        linker.join().unwrap();
        let mut children = [child, forker.join().unwrap()];
        children.sort_unstable();
        children
    });
}
