//! [`Mailbox`]: one direction of a lane through shared memory, while the receiver polls.
//!
//! A wake-up of a thread on another processor costs more than the call that it is for. So a receiver polls for a short time
//! before it sleeps, and while it polls, messages need no system call. While it sleeps they come by the socket, which also says
//! when the other process has ended.
//!
//! # States
//! One message is under way in a direction at a time (`src/wire/mod.rs`), so there is one sender and one receiver.
//!
//! | state | set by | means |
//! |---|---|---|
//! | `EMPTY` | the receiver, after each message | the receiver polls, or does something else and will poll |
//! | `FULL` | the sender, from `EMPTY` | the words hold a message |
//! | `BY_SOCKET` | the sender, from `EMPTY` | the message is too long, or has descriptors: it comes by the socket |
//! | `ASLEEP` | the receiver, from `EMPTY` | the next message comes by the socket |
//!
//! Sender and receiver leave `EMPTY` by compare-and-exchange, so one of them sees what the other did. The words are written before
//! `FULL` is stored with release, and read after it was loaded with acquire.
//!
//! # The other side may write anything
//! Everything here is atomic, and no reference to plain bytes of the shared page is formed. A length beyond the words, and a state
//! that the table does not allow, are errors.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use memmap2::{MmapOptions, MmapRaw};

use crate::os::SharedFile;
use crate::sync::{MappedU32, MappedU64, Ordering, processors};

/// The shared page of a lane, with a mailbox for each direction.
#[derive(Debug)]
pub(super) struct Mailboxes {
    page: MmapRaw,
    /// The mailbox of messages to this side.
    incoming: usize,
    polling_time: Duration,
}

/// One direction.
#[repr(C, align(64))]
struct Mailbox {
    state: MappedU32,
    /// In bytes.
    length: MappedU32,
    words: [MappedU64; WORDS],
}

const WORDS: usize = 63;
const EMPTY: u32 = 0;
const FULL: u32 = 1;
const BY_SOCKET: u32 = 2;
const ASLEEP: u32 = 3;
/// Bytes of the file of a page.
const SIZE: usize = 4096;

/// How a message comes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// Its bytes, without a length field.
    Here(Vec<u8>),
    /// By the socket.
    BySocket,
    /// The other side broke the protocol.
    Nonsense,
}

impl Mailboxes {
    fn new(page: MmapRaw, incoming: usize) -> Mailboxes {
        // With one processor, the sender could not run while the receiver polls.
        let polling_time = if processors() > 1 { POLLING_TIME } else { Duration::ZERO };
        Mailboxes { page, incoming, polling_time }
    }

    /// Creates a page. Returns the controller's mailboxes, and the file for the executor.
    pub(super) fn create() -> io::Result<(Mailboxes, File)> {
        let file = SharedFile::create_fixed(c"jittison lane", SIZE as u64)?;
        let page = file.map_writable()?;
        Ok((Mailboxes::new(page, 0), file.into_file()))
    }

    /// Maps a page that the controller created.
    pub(super) fn open(file: &File) -> io::Result<Mailboxes> {
        // Behind the end of the file, every access would fault.
        file.read_exact_at(&mut [0], SIZE as u64 - 1)?;
        let page = MmapOptions::new().len(SIZE).map_raw(file)?;
        Ok(Mailboxes::new(page, 1))
    }

    /// Puts a message into the other side's mailbox. False: send it by the socket.
    pub(super) fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> bool {
        let mailbox = self.mailbox(1 - self.incoming);
        // Another state: the receiver sleeps, or has just received by the socket. Then it will look at the socket.
        if mailbox.state.load(Ordering::Acquire) != EMPTY {
            return false;
        }
        let fits = bytes.len() <= WORDS * 8 && descriptors.is_empty();
        if fits {
            mailbox.write(bytes);
        }
        let next = if fits { FULL } else { BY_SOCKET };
        let exchanged = mailbox.state.compare_exchange(EMPTY, next, Ordering::AcqRel, Ordering::Relaxed);
        fits && exchanged.is_ok()
    }

    /// Waits for a message: polls for a while, then says that the receiver sleeps.
    pub(super) fn receive(&self) -> Arrival {
        let mailbox = self.mailbox(self.incoming);
        let arrival = match mailbox.poll(self.polling_time) {
            FULL => mailbox.read().map_or(Arrival::Nonsense, Arrival::Here),
            BY_SOCKET | ASLEEP => return Arrival::BySocket,
            _ => Arrival::Nonsense,
        };
        mailbox.state.store(EMPTY, Ordering::Release);
        arrival
    }

    /// Called after a message has come by the socket.
    pub(super) fn received_by_socket(&self) {
        self.mailbox(self.incoming).state.store(EMPTY, Ordering::Release);
    }

    fn mailbox(&self, index: usize) -> &Mailbox {
        assert!((index + 1) * size_of::<Mailbox>() <= SIZE);
        let mailbox = self.page.as_mut_ptr().cast::<Mailbox>().wrapping_add(index);
        // SAFETY: E4 - the page is mapped while `self` lives, and the mailbox is in it by the assertion. It consists of
        // atomics, for which every bit pattern is valid and which both sides may write at any time.
        unsafe { &*mailbox }
    }
}

impl Mailbox {
    fn write(&self, bytes: &[u8]) {
        self.length.store(bytes.len() as u32, Ordering::Relaxed);
        for (word, chunk) in self.words.iter().zip(bytes.chunks(8)) {
            let mut value = [0; 8];
            value[..chunk.len()].copy_from_slice(chunk);
            word.store(u64::from_le_bytes(value), Ordering::Relaxed);
        }
    }

    /// The message. `None` if its length is beyond the words.
    fn read(&self) -> Option<Vec<u8>> {
        let length = self.length.load(Ordering::Relaxed) as usize;
        let words = self.words.get(..length.div_ceil(8))?;
        let mut bytes = Vec::with_capacity(words.len() * 8);
        words.iter().for_each(|word| bytes.extend(word.load(Ordering::Relaxed).to_le_bytes()));
        bytes.truncate(length);
        Some(bytes)
    }

    /// Polls until the state is not `EMPTY`, for `time` at most. Then it is `ASLEEP`, unless a message has come meanwhile.
    fn poll(&self, time: Duration) -> u32 {
        let mut end = None;
        loop {
            for _ in 0..POLLS {
                let state = self.state.load(Ordering::Acquire);
                if state != EMPTY {
                    return state;
                }
                std::hint::spin_loop();
            }
            let now = Instant::now();
            if now >= *end.get_or_insert(now + time) {
                break;
            }
        }
        match self.state.compare_exchange(EMPTY, ASLEEP, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => ASLEEP,
            Err(state) => state,
        }
    }
}

/// How often the state is read before the clock is.
const POLLS: u32 = 64;

/// About what the wake-up of a sleeping thread costs.
const POLLING_TIME: Duration = Duration::from_micros(50);

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Mailboxes, Mailboxes) {
        let (controller, file) = Mailboxes::create().unwrap();
        (controller, Mailboxes::open(&file).unwrap())
    }

    #[test]
    fn a_message_arrives_once_and_each_direction_is_apart() {
        let (controller, executor) = pair();
        for length in [0, 1, 7, 8, 9, WORDS * 8] {
            let bytes: Vec<u8> = (0..length).map(|byte| byte as u8 | 1).collect();
            assert!(controller.send(&bytes, &[]));
            assert!(executor.send(b"answer", &[]));
            assert_eq!(executor.receive(), Arrival::Here(bytes));
            assert_eq!(controller.receive(), Arrival::Here(b"answer".to_vec()));
        }
    }

    #[test]
    fn a_message_that_does_not_fit_and_one_for_a_sleeper_come_by_the_socket() {
        let (controller, executor) = pair();
        assert!(!controller.send(&[0; WORDS * 8 + 1], &[]));
        assert_eq!(executor.receive(), Arrival::BySocket);
        executor.received_by_socket();
        assert_eq!(executor.receive(), Arrival::BySocket, "nothing came while it polled");
        assert!(!controller.send(b"wake", &[]));
        executor.received_by_socket();
        assert!(controller.send(b"awake", &[]));
        assert_eq!(executor.receive(), Arrival::Here(b"awake".to_vec()));
    }

    #[test]
    fn what_the_other_side_may_not_write_is_nonsense() {
        let (controller, executor) = pair();
        let mailbox = executor.mailbox(executor.incoming);
        mailbox.length.store(WORDS as u32 * 8 + 1, Ordering::Relaxed);
        mailbox.state.store(FULL, Ordering::Relaxed);
        assert_eq!(executor.receive(), Arrival::Nonsense);
        mailbox.state.store(17, Ordering::Relaxed);
        assert_eq!(executor.receive(), Arrival::Nonsense);
        drop(controller);
        assert!(Mailboxes::open(&SharedFile::create(c"short", 100).unwrap().into_file()).is_err());
    }

    #[test]
    fn many_messages_between_two_threads_arrive_in_order() {
        let (controller, executor) = pair();
        let echo = std::thread::spawn(move || {
            let mut received = Vec::new();
            while received.len() < 20_000 {
                match executor.receive() {
                    Arrival::Here(bytes) => received.push(u32::from_le_bytes(bytes.try_into().unwrap())),
                    // Here no socket wakes it.
                    Arrival::BySocket => executor.received_by_socket(),
                    Arrival::Nonsense => panic!("nonsense"),
                }
            }
            received
        });
        for number in 0..20_000_u32 {
            while !controller.send(&number.to_le_bytes(), &[]) {
                assert!(!echo.is_finished());
                std::hint::spin_loop();
            }
        }
        assert!(echo.join().unwrap().into_iter().eq(0..20_000));
    }
}
