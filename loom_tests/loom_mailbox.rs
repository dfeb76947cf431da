//! Model: a message is put into a mailbox while its receiver waits and goes to sleep.
//!
//! Runs `src/wire/mailbox.rs`. Each message arrives once, in order, with its bytes. A message that is lost is a deadlock, which
//! loom reports.
//!
//! Seeded bugs: `mailbox_full_before_it_is_written`, `sleeper_overwrites_a_message`, `sender_wakes_no_receiver`.

#![cfg(loom)]

mod support;

use std::collections::VecDeque;

use jittison::{Arrival, Mailbox};
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use support::explore;

/// One direction of a lane: a mailbox, and what stands for the socket.
struct Direction {
    mailbox: Mailbox,
    socket: Mutex<VecDeque<u8>>,
    arrived: Condvar,
    /// What stands for the futex of the mailbox. `None`: the time is over at once.
    futex: Option<(Mutex<()>, Condvar)>,
}

impl Direction {
    fn new(waits: bool) -> Direction {
        let futex = waits.then(|| (Mutex::new(()), Condvar::new()));
        Direction { mailbox: Mailbox::new(), socket: Mutex::new(VecDeque::new()), arrived: Condvar::new(), futex }
    }

    /// As the kernel does it: looks at the word and waits in one step.
    fn wait(&self, word: &AtomicU32, value: u32) -> bool {
        let Some((lock, woken)) = &self.futex else { return false };
        let guard = lock.lock().unwrap();
        if word.load(Ordering::Relaxed) == value {
            drop(woken.wait(guard).unwrap());
        }
        true
    }

    fn wake(&self) {
        if let Some((lock, woken)) = &self.futex {
            drop(lock.lock().unwrap());
            woken.notify_one();
        }
    }

    /// Sends a byte. Returns whether the mailbox took it.
    fn send(&self, byte: u8, is_short: bool) -> bool {
        let is_taken = self.mailbox.send(is_short.then_some(&[byte]), |_| self.wake());
        if !is_taken {
            self.socket.lock().unwrap().push_back(byte);
            self.arrived.notify_one();
        }
        is_taken
    }

    fn receive(&self) -> u8 {
        match self.mailbox.receive(|| false, |word, value| self.wait(word, value)) {
            Arrival::Here(bytes) => bytes[0],
            Arrival::BySocket => {
                let mut socket = self.socket.lock().unwrap();
                let byte = loop {
                    match socket.pop_front() {
                        Some(byte) => break byte,
                        None => socket = self.arrived.wait(socket).unwrap(),
                    }
                };
                drop(socket);
                self.mailbox.received_by_socket();
                byte
            }
            Arrival::Nonsense => panic!("nonsense"),
        }
    }
}

#[test]
fn a_question_and_its_answer_versus_receivers_that_go_to_sleep() {
    // Whether the mailbox took the question, and the answer.
    let outcomes = [(false, false), (false, true), (true, false), (true, true)];
    explore("a_question_and_its_answer_versus_receivers_that_go_to_sleep", Some(3), 10, outcomes, || {
        let (there, back) = (Arc::new(Direction::new(false)), Arc::new(Direction::new(false)));
        let other = (there.clone(), back.clone());
        let executor = thread::spawn(move || {
            assert_eq!(other.0.receive(), 1);
            other.1.send(2, true)
        });
        let question = there.send(1, true);
        assert_eq!(back.receive(), 2);
        (question, executor.join().unwrap())
    });
}

#[test]
fn a_long_message_and_then_a_short_one_versus_their_receiver() {
    // Whether the mailbox took the second one.
    explore("a_long_message_and_then_a_short_one_versus_their_receiver", Some(3), 10, [false, true], || {
        let (there, back) = (Arc::new(Direction::new(false)), Arc::new(Direction::new(false)));
        let other = (there.clone(), back.clone());
        let executor = thread::spawn(move || {
            assert_eq!(other.0.receive(), 1);
            other.1.send(2, false);
            assert_eq!(other.0.receive(), 3);
        });
        assert!(!there.send(1, false));
        assert_eq!(back.receive(), 2);
        let is_taken = there.send(3, true);
        executor.join().unwrap();
        is_taken
    });
}

#[test]
fn a_long_question_and_a_short_answer_versus_receivers_that_wait() {
    explore("a_long_question_and_a_short_answer_versus_receivers_that_wait", Some(3), 10, [true], || {
        let (there, back) = (Arc::new(Direction::new(true)), Arc::new(Direction::new(true)));
        let other = (there.clone(), back.clone());
        let executor = thread::spawn(move || {
            assert_eq!(other.0.receive(), 1);
            other.1.send(2, true)
        });
        assert!(!there.send(1, false));
        assert_eq!(back.receive(), 2);
        executor.join().unwrap()
    });
}
