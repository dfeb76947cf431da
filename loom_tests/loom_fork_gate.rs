//! Model: threads publish code, which passes the fork gate, while one or two threads fork.
//!
//! Runs `src/memory/fork_gate.rs` and `src/sync/barriers.rs`. If the private memory of a child refers to some code, the
//! code is in the child's copy of the code memory. For each thread the child has nothing, the code alone, or the code
//! and the reference.
//!
//! Seeded bugs: `heavy_barrier_without_the_others`, `settled_without_a_barrier`, `copied_before_the_fork_is_told`.

#![cfg(loom)]

mod support;

use jittison::memory::ForkGate;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use support::explore;

/// A process. The parent copies its code memory before a fork. The kernel copies its private memory at the fork.
struct Process {
    gate: ForkGate<()>,
    /// One word for each thread.
    code: [AtomicU32; 2],
    private: [AtomicU32; 2],
}

impl Process {
    fn new() -> Arc<Process> {
        let words = || std::array::from_fn(|_| AtomicU32::new(0));
        Arc::new(Process { gate: ForkGate::new(()), code: words(), private: words() })
    }

    /// Writes code, passes the gate, and publishes the code in private memory.
    fn publish(&self, thread: usize) {
        self.code[thread].store(1, Ordering::Relaxed);
        self.gate.pass(|| false);
        self.private[thread].store(1, Ordering::Relaxed);
    }

    /// `(code, private)` of the child, by thread. The kernel copies the newest value of private memory.
    fn fork(&self) -> [(u32, u32); 2] {
        let closed = self.gate.close();
        let copy = [0, 1].map(|thread| self.code[thread].load(Ordering::Relaxed));
        let private = [0, 1].map(|thread| self.private[thread].fetch_add(0, Ordering::Relaxed));
        self.gate.open(closed);
        [(copy[0], private[0]), (copy[1], private[1])]
    }
}

/// Nothing; the code, not published; the code and the reference to it.
const CONSISTENT: [(u32, u32); 3] = [(0, 0), (1, 0), (1, 1)];

#[test]
fn publication_versus_a_fork() {
    explore("publication_versus_a_fork", None, 3, CONSISTENT, || {
        let process = Process::new();
        let other = process.clone();
        let linker = thread::spawn(move || other.publish(0));
        let child = process.fork()[0];
        linker.join().unwrap();
        child
    });
}

#[test]
fn publication_versus_two_forks() {
    // The second child has at least what the first has.
    let pairs = CONSISTENT
        .into_iter()
        .enumerate()
        .flat_map(|(at, first)| CONSISTENT[at..].iter().map(move |then| (first, *then)));
    explore("publication_versus_two_forks", Some(3), 3, pairs, || {
        let process = Process::new();
        let other = process.clone();
        let linker = thread::spawn(move || other.publish(0));
        let children = [process.fork()[0], process.fork()[0]];
        linker.join().unwrap();
        (children[0], children[1])
    });
}

#[test]
fn publication_by_two_threads_versus_a_fork() {
    let pairs = CONSISTENT.into_iter().flat_map(|first| CONSISTENT.map(|second| (first, second)));
    explore("publication_by_two_threads_versus_a_fork", Some(2), 3, pairs, || {
        let process = Process::new();
        let linkers = [0, 1].map(|thread| {
            let other = process.clone();
            thread::spawn(move || other.publish(thread))
        });
        let child = process.fork();
        linkers.map(|linker| linker.join().unwrap());
        (child[0], child[1])
    });
}

#[test]
fn publication_versus_forks_of_two_threads() {
    // One opens the gate while the other closes it.
    let pairs = CONSISTENT
        .into_iter()
        .enumerate()
        .flat_map(|(at, first)| CONSISTENT[at..].iter().map(move |then| [first, *then]));
    explore("publication_versus_forks_of_two_threads", Some(2), 3, pairs, || {
        let process = Process::new();
        let other = process.clone();
        let linker = thread::spawn(move || other.publish(0));
        let other = process.clone();
        let forker = thread::spawn(move || other.fork()[0]);
        let child = process.fork()[0];
        linker.join().unwrap();
        let mut children = [child, forker.join().unwrap()];
        children.sort_unstable();
        children
    });
}
