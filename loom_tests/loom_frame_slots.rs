//! Model: an unwinder's binary search races with allocation and removal of neighbouring code.
//!
//! Runs `src/memory/frame_slots.rs`. An unwinder finds the frames of live code, whatever happens to other slots. It
//! never follows a slot to frames that are freed.
//!
//! Seeded bugs: `slot_emptied_before_it_is_filled`, `slot_cleared_to_zero`.

#![cfg(loom)]

mod support;

use jittison::base::ExecutorAddr;
use jittison::memory::{Frame, FrameSlots, Slot};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use loom::thread;
use support::explore;

struct Word(AtomicU64);

impl Slot for Word {
    fn store(&self, entry: u64) {
        self.0.store(entry, Ordering::Relaxed);
    }
}

/// The frames of each granule. Loom reports a read that is not ordered with their release.
struct Records([UnsafeCell<bool>; 4]);

// SAFETY: loom checks that accesses are ordered. The models exist to check this.
unsafe impl Sync for Records {}
// SAFETY: as above.
unsafe impl Send for Records {}

/// A table of four slots. Granule `n` has FDE `n`.
struct Table {
    entries: FrameSlots,
    slots: [Word; 4],
    /// Whether the frames of a granule exist.
    records: Records,
    published: AtomicBool,
}

const HEADER: u64 = 0x1000;
const TEXT: u64 = 0x10000;
const FDES: u64 = 0x20000;
const GRANULE: u64 = 64;

impl Table {
    fn new() -> Arc<Table> {
        let table = Table {
            entries: FrameSlots { header_addr: ExecutorAddr::new(HEADER), text_start: ExecutorAddr::new(TEXT) },
            slots: std::array::from_fn(|_| Word(AtomicU64::new(0))),
            records: Records(std::array::from_fn(|_| UnsafeCell::new(false))),
            published: AtomicBool::new(false),
        };
        table.entries.open(&table.slots, 0);
        Arc::new(table)
    }

    fn write_record(&self, granule: usize, is_there: bool) {
        // SAFETY: loom checks that no other thread reads or writes meanwhile.
        self.records.0[granule].with_mut(|record| unsafe { *record = is_there });
    }

    /// Allocates granules, with one function in each.
    fn add(&self, granules: std::ops::Range<usize>) {
        granules.clone().for_each(|granule| self.write_record(granule, true));
        let frame = |granule: usize| Frame {
            start: ExecutorAddr::new(TEXT + granule as u64 * GRANULE),
            fde: ExecutorAddr::new(FDES + granule as u64),
        };
        let frames: Vec<_> = granules.clone().map(frame).collect();
        self.entries.fill(&self.slots[granules], &frames);
    }

    fn remove(&self, granules: std::ops::Range<usize>) {
        self.entries.clear(&self.slots[granules.clone()], granules.start as u64);
        granules.for_each(|granule| self.write_record(granule, false));
    }

    fn load(&self, slot: usize) -> (u64, u64) {
        let entry = self.slots[slot].0.load(Ordering::Relaxed);
        (HEADER.wrapping_add_signed(i64::from(entry as i32)), HEADER.wrapping_add_signed((entry as i64) >> 32))
    }

    /// The granule whose FDE an unwinder finds for an address in `granule`: the last slot whose start is not above the
    /// address. It reads the starts first, and the FDE of the slot with another load. `None` for the FDE of free slots.
    fn find(&self, granule: usize) -> Option<u64> {
        let address = TEXT + granule as u64 * GRANULE + 1;
        let (mut low, mut high) = (0, self.slots.len());
        while low < high {
            let middle = (low + high) / 2;
            if self.load(middle).0 <= address { low = middle + 1 } else { high = middle }
        }
        let fde = self.load(low.checked_sub(1)?).1;
        // An FDE below `FDES` belongs to free slots.
        let number = fde.checked_sub(FDES)? as usize;
        // SAFETY: loom checks that no thread writes meanwhile.
        assert!(
            self.records.0[number].with(|record| unsafe { *record }),
            "an unwinder followed a slot to freed frames"
        );
        Some(number as u64)
    }
}

#[test]
fn unwinding_versus_allocations_above_and_below() {
    explore("unwinding_versus_allocations_above_and_below", None, 5, [Some(1)], || {
        let table = Table::new();
        table.add(1..2);
        let other = table.clone();
        let linker = thread::spawn(move || {
            other.add(2..4);
            other.add(0..1);
        });
        let found = table.find(1);
        linker.join().unwrap();
        found
    });
}

#[test]
fn unwinding_versus_removal_of_neighbouring_code() {
    explore("unwinding_versus_removal_of_neighbouring_code", None, 5, [(Some(1), None)], || {
        let table = Table::new();
        table.add(0..1);
        table.add(1..2);
        table.add(2..4);
        let other = table.clone();
        let remover = thread::spawn(move || {
            other.remove(2..4);
            other.remove(0..1);
        });
        let found = table.find(1);
        remover.join().unwrap();
        (found, table.find(2))
    });
}

#[test]
fn unwinding_versus_reuse_of_neighbouring_memory() {
    explore("unwinding_versus_reuse_of_neighbouring_memory", Some(3), 5, [(Some(1), Some(2))], || {
        let table = Table::new();
        table.add(1..2);
        table.add(2..4);
        let other = table.clone();
        let linker = thread::spawn(move || {
            other.remove(2..4);
            other.add(2..3);
        });
        let found = table.find(1);
        linker.join().unwrap();
        (found, table.find(2))
    });
}

#[test]
fn unwinding_through_code_that_was_just_published() {
    // A thread that sees the code published finds its frames.
    let outcomes = [None, Some(Some(2))];
    explore("unwinding_through_code_that_was_just_published", None, 2, outcomes, || {
        let table = Table::new();
        let other = table.clone();
        let linker = thread::spawn(move || {
            other.add(2..3);
            other.published.store(true, Ordering::Release);
        });
        let found = table.published.load(Ordering::Acquire).then(|| table.find(2));
        linker.join().unwrap();
        found
    });
}
