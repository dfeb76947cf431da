//! [`LanePage`]: the shared page of a lane, with a [`Mailbox`] for each direction.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use memmap2::{MmapOptions, MmapRaw};

use crate::os::{self, SharedFile};
use crate::sync::{AtomicU32, HintUsize, Ordering, processors};
use crate::wire::{Arrival, Mailbox};

/// The page as one side maps it.
#[derive(Debug)]
pub(super) struct LanePage {
    page: MmapRaw,
    /// The mailbox of messages to this side.
    incoming: usize,
    /// The greatest polling time, in nanoseconds.
    longest: usize,
    /// The polling time of the next message. It falls while messages come too late for it: a receiver that polls in vain takes
    /// the processor from other threads.
    polling: HintUsize,
}

impl LanePage {
    /// Creates a page. Returns the controller's side, and the file for the executor.
    pub(super) fn create() -> io::Result<(LanePage, File)> {
        let file = SharedFile::create_fixed(c"jittison lane", SIZE as u64)?;
        let page = file.map_writable()?;
        Ok((LanePage::new(page, 0), file.into_file()))
    }

    /// Maps a page that the controller created.
    pub(super) fn open(file: &File) -> io::Result<LanePage> {
        // Behind the end of the file, every access would fault.
        file.read_exact_at(&mut [0], SIZE as u64 - 1)?;
        Ok(LanePage::new(MmapOptions::new().len(SIZE).map_raw(file)?, 1))
    }

    fn new(page: MmapRaw, incoming: usize) -> LanePage {
        // With one processor, the sender could not run while the receiver polls.
        let longest = if processors() > 1 { WAKE_UP } else { 0 };
        LanePage { page, incoming, longest, polling: HintUsize::new(longest) }
    }

    /// Puts a message into the other side's mailbox. `None` stands for a message with descriptors. False: send it by the socket.
    pub(super) fn send(&self, message: Option<&[u8]>) -> bool {
        self.mailbox(1 - self.incoming).send(message, os::wake)
    }

    /// Waits for a message: polls for a while, waits for the page to change, then sleeps in `sleep`, which receives by the socket.
    /// What comes after the deadline comes by the socket, too.
    pub(super) fn receive<M>(&self, deadline: Option<Instant>, sleep: impl FnOnce() -> M) -> Received<M> {
        // Taken when polling goes on: reading the clock twice costs as much as a message that comes at once.
        let mut begin = None;
        let polling = Duration::from_nanos(self.polling.load(Ordering::Relaxed) as u64);
        let mailbox = self.mailbox(self.incoming);
        let goes_on = || begin.get_or_insert_with(Instant::now).elapsed() < polling;
        let mut end = None;
        let wait = |state: &AtomicU32, value| {
            let end = *end.get_or_insert_with(|| {
                let end = Instant::now() + WAITING;
                deadline.map_or(end, |deadline| deadline.min(end))
            });
            os::wait(state, value, end)
        };
        let received = match mailbox.receive(goes_on, wait) {
            Arrival::Here(bytes) => Received::Here(bytes),
            Arrival::Nonsense => Received::Nonsense,
            Arrival::BySocket => {
                let message = sleep();
                mailbox.received_by_socket();
                Received::BySocket(message)
            }
        };
        let took = begin.map_or(0, |begin| begin.elapsed().as_nanos() as usize);
        self.polling.store(next_polling_time(polling.as_nanos() as usize, took, self.longest), Ordering::Relaxed);
        received
    }

    fn mailbox(&self, index: usize) -> &Mailbox {
        assert!((index + 1) * size_of::<Mailbox>() <= SIZE);
        let mailbox = self.page.as_mut_ptr().cast::<Mailbox>().wrapping_add(index);
        // SAFETY: E4 - the page is mapped while `self` lives, and the mailbox is in it by the assertion. It consists of
        // atomics, for which every bit pattern is valid and which both sides may write at any time.
        unsafe { &*mailbox }
    }
}

/// How long a thread waits for the page to change. The end of the other process is seen after it.
const WAITING: Duration = Duration::from_millis(20);

/// Bytes of the file of a page.
const SIZE: usize = 4096;

/// How a message has come.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Received<M> {
    /// Its bytes.
    Here(Vec<u8>),
    /// What the socket gave.
    BySocket(M),
    /// The other side broke the protocol.
    Nonsense,
}

/// The polling time after a wait of `took`: longer if polling could have seen the message, shorter if not. In nanoseconds.
fn next_polling_time(polling: usize, took: usize, longest: usize) -> usize {
    match took <= WAKE_UP {
        true => (polling * 2 + 1000).min(longest),
        false => polling / 2,
    }
}

/// About what the wake-up of a sleeping thread costs, in nanoseconds.
const WAKE_UP: usize = 50_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_direction_has_a_mailbox_of_its_own() {
        let (controller, file) = LanePage::create().unwrap();
        let executor = LanePage::open(&file).unwrap();
        assert!(controller.send(Some(b"question")) && executor.send(Some(b"answer")));
        assert_eq!(executor.receive(None, || ()), Received::Here(b"question".to_vec()));
        assert_eq!(controller.receive(None, || ()), Received::Here(b"answer".to_vec()));
        assert_eq!(controller.receive(None, || ()), Received::BySocket(()));
        assert!(executor.send(Some(b"again")), "the receiver is awake again");
    }

    #[test]
    fn a_receiver_waits_for_the_page_before_it_sleeps() {
        let (controller, _file) = LanePage::create().unwrap();
        let begin = Instant::now();
        assert_eq!(controller.receive(None, || begin.elapsed() >= WAITING), Received::BySocket(true));
    }

    #[test]
    fn a_receiver_polls_less_while_messages_are_late_and_more_when_they_come_soon() {
        let mut polling = WAKE_UP;
        for _ in 0..20 {
            polling = next_polling_time(polling, WAKE_UP + 1, WAKE_UP);
        }
        assert_eq!(polling, 0);
        for _ in 0..20 {
            polling = next_polling_time(polling, WAKE_UP, WAKE_UP);
        }
        assert_eq!(polling, WAKE_UP);
        assert_eq!(next_polling_time(0, 10, 0), 0, "one processor");
    }

    #[test]
    fn neither_side_can_shorten_the_page_and_a_short_file_is_refused() {
        let (_controller, file) = LanePage::create().unwrap();
        assert!(file.set_len(100).is_err());
        assert!(LanePage::open(&SharedFile::create(c"short", 100).unwrap().into_file()).is_err());
    }
}
