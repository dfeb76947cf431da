//! [`CrashPage`]: the shared page with the [`CrashRecord`] of an executor. An executor that is reached by a network sends a message instead.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use memmap2::{MmapOptions, MmapRaw};

use crate::executor::last_message::send_crash;
use crate::os::{CrashSite, SharedFile, report_crashes};
use crate::sync::StaticCell;
use crate::wire::{Crash, CrashRecord};

/// The page as one side maps it.
#[derive(Debug)]
pub(super) struct CrashPage(MmapRaw);

/// The page of this process, if it is an executor.
static PAGE: StaticCell<CrashPage> = StaticCell::new();

impl CrashPage {
    /// Creates the page. Returns the controller's side, and the file for the executor.
    pub(super) fn create() -> io::Result<(CrashPage, File)> {
        let file = SharedFile::create_fixed(c"jittison crash", SIZE as u64)?;
        Ok((CrashPage(file.map_writable()?), file.into_file()))
    }

    /// What the executor stored, if it crashed.
    pub(super) fn crash(&self) -> Option<Crash> {
        self.record().load()
    }

    fn record(&self) -> &CrashRecord {
        const { assert!(size_of::<CrashRecord>() <= SIZE) };
        // SAFETY: E4 - the page is mapped while `self` lives, and it is at least as large as the record. The record consists of
        // atomics, for which every bit pattern is valid and which both sides may write at any time.
        unsafe { &*self.0.as_mut_ptr().cast::<CrashRecord>() }
    }
}

/// Stores crashes of this process in the page of its controller.
pub(super) fn store_crashes(file: &File) -> io::Result<()> {
    // Behind the end of the file, every access would fault.
    file.read_exact_at(&mut [0], SIZE as u64 - 1)?;
    let page = CrashPage(MmapOptions::new().len(SIZE).map_raw(file)?);
    PAGE.get_or_init(|| page);
    set_actions()
}

/// Sets the actions of the signals, also again after something has set others.
pub(super) fn set_actions() -> io::Result<()> {
    report_crashes(|CrashSite { signal, address, frames }| {
        let signal = signal.unsigned_abs();
        if let Some(page) = PAGE.get() {
            page.record().store(signal, *address, frames);
        }
        send_crash(signal, *address, frames);
    })
}

/// Bytes of the file of the page.
const SIZE: usize = 4096;
