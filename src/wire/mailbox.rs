//! [`Mailbox`]: one direction of a lane through shared memory, while the receiver polls.
//!
//! A wake-up of a thread on another processor costs more than the call that it is for. So a receiver polls for a short time
//! before it sleeps, and while it polls, messages need no system call. Then it waits for a change of the state, by a futex, which
//! costs half as much as a socket. It does so for a short time: only the socket says when the other process has ended. After it,
//! messages come by the socket.
//!
//! # States
//! One message is under way in a direction at a time (`src/wire/mod.rs`), so there is one sender and one receiver.
//!
//! | state | set by | means |
//! |---|---|---|
//! | `EMPTY` | the receiver, after each message | the receiver polls, or does something else and will poll |
//! | `FULL` | the sender, from `EMPTY` or `WAITING` | the words hold a message |
//! | `BY_SOCKET` | the sender, from `EMPTY` or `WAITING` | the message is too long, or has descriptors: it comes by the socket |
//! | `WAITING` | the receiver, from `EMPTY` | the receiver waits for a change of the state; the sender wakes it |
//! | `ASLEEP` | the receiver, from `WAITING` | the next message comes by the socket |
//!
//! Both sides leave `EMPTY` and `WAITING` by compare-and-exchange, so one of them sees what the other did. The words are written before
//! `FULL` is stored with release, and read after it was loaded with acquire. Model: `loom_tests/loom_mailbox.rs`.
//!
//! # The other side may write anything
//! Everything here is atomic. A length beyond the words, and a state that the table does not allow, are errors.

use crate::sync::{AtomicU32, AtomicU64, Ordering, seeded_bug};

/// One direction.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Mailbox {
    /// Each change of the sender is Release and pairs with the receiver's Acquire loads: who sees `FULL` sees the words. `EMPTY` is stored
    /// with Release and pairs with the sender's Acquire loads: who sees it overwrites words that were read.
    state: AtomicU32,
    /// In bytes.
    length: AtomicU32,
    words: [AtomicU64; WORDS],
}

const WORDS: usize = if cfg!(loom) { 1 } else { 63 };
const EMPTY: u32 = 0;
const FULL: u32 = 1;
const BY_SOCKET: u32 = 2;
const WAITING: u32 = 3;
const ASLEEP: u32 = 4;

/// How often the state is read before the receiver asks whether to go on.
const POLLS: u32 = if cfg!(loom) { 1 } else { 64 };

/// How a message comes.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Its bytes, without a length field.
    Here(Vec<u8>),
    /// By the socket. Receive it there, then call [`Mailbox::received_by_socket`].
    BySocket,
    /// The other side broke the protocol.
    Nonsense,
}

impl Mailbox {
    /// An empty mailbox. Memory of zeroes is one, too.
    #[cfg(any(test, loom))]
    #[allow(clippy::new_without_default)]
    pub fn new() -> Mailbox {
        let words = std::array::from_fn(|_| AtomicU64::new(0));
        Mailbox { state: AtomicU32::new(EMPTY), length: AtomicU32::new(0), words }
    }

    /// Puts a message in. `None` stands for a message with descriptors. `wake` wakes a thread that waits for a change of the word.
    /// False: send it by the socket.
    pub fn send(&self, message: Option<&[u8]>, wake: impl FnOnce(&AtomicU32)) -> bool {
        let before = self.state.load(Ordering::Acquire);
        // Another state: the receiver sleeps, or has just received by the socket. Then it will look at the socket.
        if before != EMPTY && before != WAITING {
            return false;
        }
        let message = message.filter(|bytes| bytes.len() <= WORDS * 8);
        let write = || message.into_iter().for_each(|bytes| self.write(bytes));
        if !seeded_bug!("mailbox_full_before_it_is_written") {
            write();
        }
        let before = self.deliver(before, if message.is_some() { FULL } else { BY_SOCKET });
        if seeded_bug!("mailbox_full_before_it_is_written") {
            write();
        }
        if before == Some(WAITING) && !seeded_bug!("sender_wakes_no_receiver") {
            wake(&self.state);
        }
        before.is_some() && message.is_some()
    }

    /// The sender's change of the state. Returns the state before it. `None`: the receiver sleeps.
    fn deliver(&self, mut before: u32, next: u32) -> Option<u32> {
        // A receiver goes from `EMPTY` to `WAITING` and on to `ASLEEP`. One that goes elsewhere is not followed.
        for _ in 0..3 {
            if before != EMPTY && before != WAITING {
                break;
            }
            match self.state.compare_exchange(before, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(before) => return Some(before),
                Err(now) => before = now,
            }
        }
        None
    }

    /// Waits for a message: polls while `goes_on` says so, then waits for a change of the state. `wait` waits while the word has
    /// this value, and says whether to go on. In the end the receiver sleeps.
    pub fn receive(&self, goes_on: impl FnMut() -> bool, wait: impl FnMut(&AtomicU32, u32) -> bool) -> Arrival {
        let state = match self.poll(goes_on) {
            WAITING => self.wait(wait),
            state => state,
        };
        let arrival = match state {
            FULL => self.read().map_or(Arrival::Nonsense, Arrival::Here),
            BY_SOCKET | ASLEEP => return Arrival::BySocket,
            _ => Arrival::Nonsense,
        };
        self.state.store(EMPTY, Ordering::Release);
        arrival
    }

    /// Called after a message has come by the socket.
    pub fn received_by_socket(&self) {
        self.state.store(EMPTY, Ordering::Release);
    }

    fn write(&self, bytes: &[u8]) {
        self.length.store(bytes.len() as u32, Ordering::Relaxed);
        let (chunks, rest) = bytes.as_chunks();
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        let words = self.words.iter().zip(chunks.iter().chain([&last]));
        words.for_each(|(word, chunk)| word.store(u64::from_le_bytes(*chunk), Ordering::Relaxed));
    }

    /// The message. `None` if its length is beyond the words.
    fn read(&self) -> Option<Vec<u8>> {
        let length = self.length.load(Ordering::Relaxed) as usize;
        let words = self.words.get(..length.div_ceil(8))?;
        let mut bytes = vec![0; words.len() * 8];
        for (word, chunk) in words.iter().zip(bytes.chunks_exact_mut(8)) {
            chunk.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        bytes.truncate(length);
        Some(bytes)
    }

    /// Polls until the state is not `EMPTY`, or until it is to end. Then the state is `WAITING`, unless a message has come meanwhile.
    fn poll(&self, mut goes_on: impl FnMut() -> bool) -> u32 {
        loop {
            for _ in 0..POLLS {
                let state = self.state.load(Ordering::Acquire);
                if state != EMPTY {
                    return state;
                }
                std::hint::spin_loop();
            }
            if !goes_on() {
                break;
            }
        }
        self.go_on(EMPTY, WAITING)
    }

    /// Waits until the state is not `WAITING`, or until the time is over. Then the state is `ASLEEP`, unless a message has come
    /// meanwhile.
    fn wait(&self, mut wait: impl FnMut(&AtomicU32, u32) -> bool) -> u32 {
        loop {
            let state = self.state.load(Ordering::Acquire);
            if state != WAITING {
                return state;
            }
            if !wait(&self.state, WAITING) {
                return self.go_on(WAITING, ASLEEP);
            }
        }
    }

    /// The receiver's change from one state to the next. Returns the state after it.
    fn go_on(&self, from: u32, to: u32) -> u32 {
        if seeded_bug!("sleeper_overwrites_a_message") {
            self.state.store(to, Ordering::Release);
            return to;
        }
        match self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => to,
            Err(state) => state,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn never() -> bool {
        false
    }

    fn at_once(_: &AtomicU32, _: u32) -> bool {
        false
    }

    fn nobody_waits(_: &AtomicU32) {
        panic!("a receiver that does not wait is woken");
    }

    #[test]
    fn a_message_of_any_length_that_fits_arrives_once() {
        let mailbox = Mailbox::new();
        for length in [0, 1, 7, 8, 9, WORDS * 8] {
            let bytes: Vec<u8> = (0..length).map(|byte| byte as u8 | 1).collect();
            assert!(mailbox.send(Some(&bytes), nobody_waits));
            assert_eq!(mailbox.receive(never, at_once), Arrival::Here(bytes));
        }
        assert_eq!(mailbox.receive(never, at_once), Arrival::BySocket);
    }

    #[test]
    fn a_message_that_does_not_fit_and_one_for_a_sleeper_come_by_the_socket() {
        let mailbox = Mailbox::new();
        for message in [Some(&[0; WORDS * 8 + 1][..]), None] {
            assert!(!mailbox.send(message, nobody_waits));
            assert_eq!(
                mailbox.receive(|| panic!("it waits although the message has come"), at_once),
                Arrival::BySocket
            );
            mailbox.received_by_socket();
        }
        assert_eq!(mailbox.receive(never, at_once), Arrival::BySocket, "nothing came while it polled");
        assert!(!mailbox.send(Some(b"wake"), nobody_waits));
        mailbox.received_by_socket();
        assert!(mailbox.send(Some(b"awake"), nobody_waits));
        assert_eq!(mailbox.receive(never, at_once), Arrival::Here(b"awake".to_vec()));
    }

    #[test]
    fn a_receiver_that_waits_is_woken_by_a_message_of_either_kind() {
        let mailbox = Mailbox::new();
        for (message, arrival) in [(Some(&b"wake"[..]), Arrival::Here(b"wake".to_vec())), (None, Arrival::BySocket)] {
            let mut woken = 0;
            let mut wait = |word: &AtomicU32, value| {
                assert_eq!(word.load(Ordering::Relaxed), value);
                assert_eq!(mailbox.send(message, |_| woken += 1), message.is_some());
                true
            };
            assert_eq!(mailbox.receive(never, &mut wait), arrival);
            assert_eq!(woken, 1);
            mailbox.received_by_socket();
        }
    }

    #[test]
    fn a_receiver_waits_again_as_long_as_it_is_told_to_and_nothing_has_come() {
        let mailbox = Mailbox::new();
        let mut waits = 0;
        let wait = |_: &AtomicU32, _| {
            waits += 1;
            waits < 3
        };
        assert_eq!(mailbox.receive(never, wait), Arrival::BySocket);
        assert_eq!(waits, 3);
    }

    #[test]
    fn what_the_other_side_may_not_write_is_nonsense() {
        let mailbox = Mailbox::new();
        mailbox.length.store(WORDS as u32 * 8 + 1, Ordering::Relaxed);
        mailbox.state.store(FULL, Ordering::Relaxed);
        assert_eq!(mailbox.receive(never, at_once), Arrival::Nonsense);
        mailbox.state.store(17, Ordering::Relaxed);
        assert_eq!(mailbox.receive(never, at_once), Arrival::Nonsense);
        assert!(mailbox.send(Some(b"again"), nobody_waits), "it can be used again");
    }

    #[test]
    fn many_messages_between_two_threads_arrive_in_order() {
        let mailbox = Arc::new(Mailbox::new());
        let other = mailbox.clone();
        let receiver = std::thread::spawn(move || {
            let mut received = Vec::new();
            while received.len() < 20_000 {
                match other.receive(|| true, at_once) {
                    Arrival::Here(bytes) => received.push(u32::from_le_bytes(bytes.try_into().unwrap())),
                    arrival => panic!("{arrival:?}"),
                }
            }
            received
        });
        for number in 0..20_000_u32 {
            while !mailbox.send(Some(&number.to_le_bytes()), nobody_waits) {
                assert!(!receiver.is_finished());
                std::hint::spin_loop();
            }
        }
        assert!(receiver.join().unwrap().into_iter().eq(0..20_000));
    }
}
