//! [`DataSegment`]: tells `dl_iterate_phdr` which part of a window's data pool is open.
//!
//! Garbage collectors such as Boehm's search the writable segments of all loaded libraries for pointers to their blocks. The
//! program header of the data pool says where the open slabs are, so a collector finds the variables of linked code there, and
//! reads no page that nothing uses.
//!
//! A pool opens from its end, so the open part is one range. The loader gives out the header in memory, and other threads read it
//! at any moment. Each field is one aligned word. The range stays inside the pool, and so readable, between two stores:
//!
//! | change | first | then |
//! |---|---|---|
//! | the open part grows | a lower start | a greater size |
//! | it shrinks | a smaller size | a higher start |
//!
//! The second store of a change is Release, so that the first one comes before it. A collector that stops the threads before it
//! reads, as Boehm's does, sees the words between two stores. The stop pairs with the stores. A reader that stops nobody may see a
//! start and a size of two moments, in whichever order it loads them.
//!
//! What is outside the window is not in the header: large sections, and thread-local blocks.

use crate::memory::mapper::MappedWindow;
use crate::memory::window_image::DATA_HEADER_OFFSET;
use crate::sync::{Arc, MappedU64, Ordering};

/// The program header of the data pool. Its owner changes it under the lock of the pool's growth.
pub(crate) struct DataSegment {
    /// Keeps the memory of `header` mapped (M4).
    window: Arc<dyn MappedWindow>,
    header: *const [MappedU64; WORDS],
    /// The end of the pool, as the header counts addresses.
    end: u64,
}

// SAFETY: M4 - `header` points into the window that `window` keeps mapped, on whichever thread. The words are atomics, so access
// from several threads is no data race.
unsafe impl Send for DataSegment {}
// SAFETY: M4 - as for `Send`.
unsafe impl Sync for DataSegment {}

impl DataSegment {
    /// Declares the data pool of `window` writable, and no part of it open. `None` if no loader knows the window.
    pub(crate) fn new(window: &Arc<dyn MappedWindow>, pool_size: u64) -> Option<DataSegment> {
        let header: *const [MappedU64; WORDS] = window.data_header()?.cast();
        let mut segment = DataSegment { window: window.clone(), header, end: 0 };
        segment.end = segment.word(ADDRESS).load(Ordering::Relaxed).wrapping_add(pool_size);
        let kind_and_flags = segment.word(KIND_AND_FLAGS).load(Ordering::Relaxed);
        segment.word(KIND_AND_FLAGS).store(kind_and_flags | WRITABLE << 32, Ordering::Relaxed);
        segment.shrink(0);
        Some(segment)
    }

    /// The last `open` bytes of the pool are open. Before, fewer were. Pairs with the stop of a collector.
    pub(crate) fn grow(&self, open: u64) {
        self.set_start(open);
        self.word(MEMORY_SIZE).store(open, Ordering::Release);
        self.changed();
    }

    /// The last `open` bytes of the pool are open. Before, more were.
    pub(crate) fn shrink(&self, open: u64) {
        self.word(MEMORY_SIZE).store(open, Ordering::Relaxed);
        self.set_start(open);
        self.changed();
    }

    fn changed(&self) {
        if self.window.is_copied() {
            self.window.changed(DATA_HEADER_OFFSET, (WORDS * size_of::<MappedU64>()) as u64);
        }
    }

    /// Pairs with the stop of a collector.
    fn set_start(&self, open: u64) {
        let start = self.end.wrapping_sub(open);
        self.word(ADDRESS).store(start, Ordering::Release);
        self.word(PHYSICAL_ADDRESS).store(start, Ordering::Relaxed);
    }

    fn word(&self, index: usize) -> &MappedU64 {
        // SAFETY: M4 - `window` keeps the header mapped while `self` is borrowed. M6 - `data_header` promises a program header,
        // which has this many words, aligned to 8. They are accessed as atomics only.
        unsafe { &(&*self.header)[index] }
    }
}

/// The words of an `Elf64_Phdr` (gABI, "Program Header").
const WORDS: usize = 7;
const KIND_AND_FLAGS: usize = 0;
const ADDRESS: usize = 2;
const PHYSICAL_ADDRESS: usize = 3;
const MEMORY_SIZE: usize = 5;

/// `PF_W`, in the upper half of the first word.
const WRITABLE: u64 = 2;
