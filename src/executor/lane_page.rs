//! [`LanePage`]: the shared page of a lane, with a [`Mailbox`] for each direction.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use memmap2::{MmapOptions, MmapRaw};

use crate::os::SharedFile;
use crate::sync::processors;
use crate::wire::{Arrival, Mailbox};

/// The page as one side maps it.
#[derive(Debug)]
pub(super) struct LanePage {
    page: MmapRaw,
    /// The mailbox of messages to this side.
    incoming: usize,
    polling_time: Duration,
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
        let polling_time = if processors() > 1 { POLLING_TIME } else { Duration::ZERO };
        LanePage { page, incoming, polling_time }
    }

    /// Puts a message into the other side's mailbox. `None` stands for a message with descriptors. False: send it by the socket.
    pub(super) fn send(&self, message: Option<&[u8]>) -> bool {
        self.mailbox(1 - self.incoming).send(message)
    }

    /// Waits for a message: polls for a while, then sleeps.
    pub(super) fn receive(&self) -> Arrival {
        let mut end = None;
        self.mailbox(self.incoming).receive(|| {
            let now = Instant::now();
            now < *end.get_or_insert(now + self.polling_time)
        })
    }

    /// Called after a message has come by the socket.
    pub(super) fn received_by_socket(&self) {
        self.mailbox(self.incoming).received_by_socket();
    }

    fn mailbox(&self, index: usize) -> &Mailbox {
        assert!((index + 1) * size_of::<Mailbox>() <= SIZE);
        let mailbox = self.page.as_mut_ptr().cast::<Mailbox>().wrapping_add(index);
        // SAFETY: E4 - the page is mapped while `self` lives, and the mailbox is in it by the assertion. It consists of
        // atomics, for which every bit pattern is valid and which both sides may write at any time.
        unsafe { &*mailbox }
    }
}

/// Bytes of the file of a page.
const SIZE: usize = 4096;

/// About what the wake-up of a sleeping thread costs.
const POLLING_TIME: Duration = Duration::from_micros(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_direction_has_a_mailbox_of_its_own() {
        let (controller, file) = LanePage::create().unwrap();
        let executor = LanePage::open(&file).unwrap();
        assert!(controller.send(Some(b"question")) && executor.send(Some(b"answer")));
        assert_eq!(executor.receive(), Arrival::Here(b"question".to_vec()));
        assert_eq!(controller.receive(), Arrival::Here(b"answer".to_vec()));
    }

    #[test]
    fn neither_side_can_shorten_the_page_and_a_short_file_is_refused() {
        let (_controller, file) = LanePage::create().unwrap();
        assert!(file.set_len(100).is_err());
        assert!(LanePage::open(&SharedFile::create(c"short", 100).unwrap().into_file()).is_err());
    }
}
