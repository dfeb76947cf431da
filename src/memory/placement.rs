//! [`Placement::candidates`]: the addresses at which a window may be mapped, best first.
//!
//! This file only calculates. `loaded_window.rs` tries the candidates one after the other, and the kernel says which of
//! them are free. So no map of the process is needed. If another thread takes a candidate at the same time, the next
//! candidate is tried.

use std::ops::Range;

use crate::arch::REACH;
use crate::base::{SegmentKind, align_up};
use crate::memory::layout::{CHUNK, WindowLayout};
use crate::memory::mapper::Placement;

/// The parts of the process that a window may be placed near.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Host {
    /// The segments of the program itself.
    pub(super) program: Range<u64>,
    /// The end of the program's heap, which grows upwards (`brk`).
    pub(super) heap_end: u64,
    /// From the first to the last byte of the shared libraries. Empty if the loader does not report them.
    pub(super) libraries: Range<u64>,
}

impl Placement {
    /// The addresses to try, best first.
    pub(super) fn candidates(self, layout: &WindowLayout, host: &Host) -> Vec<u64> {
        match self {
            Placement::Anywhere => Vec::new(),
            Placement::NearHost => near_host(layout, host),
            Placement::NearLibraries => below_libraries(layout, host),
            Placement::Low2GiB => {
                let Some(highest) = REACH.checked_sub(layout.size()) else { return Vec::new() };
                // From the top down, because the heap of a program at fixed addresses grows up from the bottom.
                (1..=highest / CHUNK).rev().map(|chunk| chunk * CHUNK).collect()
            }
        }
    }

    /// Whether a window at `base` meets the placement.
    pub(super) fn accepts(self, layout: &WindowLayout, host: &Host, base: u64) -> bool {
        match self {
            Placement::Anywhere => true,
            Placement::NearHost => {
                let code = layout.pool(SegmentKind::Code);
                let start = base.saturating_add(code.offset);
                reach_each_other(&(start..start.saturating_add(code.size)), &host.program)
            }
            Placement::NearLibraries => {
                let window = base..base.saturating_add(layout.size());
                !host.libraries.is_empty() && reach_each_other(&window, &host.libraries)
            }
            Placement::Low2GiB => base.checked_add(layout.size()).is_some_and(|end| end <= REACH),
        }
    }
}

/// First below the program, where usually nothing is mapped, then above it, further away with each step. Addresses into
/// which the heap will grow are left out.
fn near_host(layout: &WindowLayout, host: &Host) -> Vec<u64> {
    if host.program.is_empty() {
        return Vec::new();
    }
    let below = host.program.start.checked_sub(layout.size() + CHUNK).map(|base| base & !(CHUNK - 1));
    let above = align_up(host.program.end.saturating_add(CHUNK), CHUNK);
    let growth = host.heap_end..host.heap_end.saturating_add(HEAP_RESERVE);
    let accepts = |base: &u64| *base >= CHUNK && Placement::NearHost.accepts(layout, host, *base);
    let down = (0..).map_while(|step: u64| below?.checked_sub(step * STEP)).take_while(accepts);
    let up = (0..).map_while(|step: u64| above?.checked_add(step * STEP)).take_while(accepts);
    // The entire window counts: one that begins below an empty heap would cover its growth, and the kernel allows it.
    let covers_growth = |base: &u64| *base < growth.end && base.saturating_add(layout.size()) > growth.start;
    down.chain(up).filter(|base| !covers_growth(base)).collect()
}

/// Below the libraries. The kernel maps later libraries below the present ones, so address space between is left free.
fn below_libraries(layout: &WindowLayout, host: &Host) -> Vec<u64> {
    let below = host.libraries.start.checked_sub(layout.size() + LIBRARY_RESERVE).map(|base| base & !(CHUNK - 1));
    let accepts = |base: &u64| *base >= CHUNK && Placement::NearLibraries.accepts(layout, host, *base);
    (0..).map_while(|step: u64| below?.checked_sub(step * STEP)).take_while(accepts).collect()
}

fn reach_each_other(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.end.max(b.end) - a.start.min(b.start) <= REACH
}

/// The distance between two candidates in bytes.
const STEP: u64 = 64 << 20;

/// Bytes left free for the growth of the heap. Beyond them, malloc takes memory elsewhere.
const HEAP_RESERVE: u64 = 256 << 20;

/// Bytes left free for libraries that are loaded later.
const LIBRARY_RESERVE: u64 = 128 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::layout::MAX_WINDOW;

    const GIB: u64 = 1 << 30;

    fn host(start: u64) -> Host {
        Host {
            program: start..start + (8 << 20),
            heap_end: start + (40 << 20),
            libraries: 0x7fff_f000_0000..0x7fff_f800_0000,
        }
    }

    /// A heap that is empty maps nothing, so the kernel would let a window cover the addresses into which it grows.
    #[test]
    fn no_candidate_covers_the_addresses_into_which_an_empty_heap_grows() {
        let layout = WindowLayout::divide(GIB).unwrap();
        let host = Host { heap_end: 3 * GIB + (12 << 20), ..host(3 * GIB) };
        let growth = host.heap_end..host.heap_end + HEAP_RESERVE;
        for base in Placement::NearHost.candidates(&layout, &host) {
            assert!(base + layout.size() <= growth.start || base >= growth.end, "{base:#x}");
        }
    }

    #[test]
    fn every_candidate_near_the_program_reaches_it_and_overlaps_neither_it_nor_its_heap() {
        for start in [0x40_0000, 3 * GIB, 0x5555_5555_4000] {
            for size in [32 << 20, GIB, MAX_WINDOW] {
                let (layout, host) = (WindowLayout::divide(size).unwrap(), host(start));
                let candidates = Placement::NearHost.candidates(&layout, &host);
                assert!(!candidates.is_empty(), "{start:#x} {size:#x}");
                for base in candidates {
                    assert!(
                        Placement::NearHost.accepts(&layout, &host, base) && base.is_multiple_of(CHUNK) && base > 0
                    );
                    assert!(base + layout.size() <= host.program.start || base >= host.program.end);
                    assert!(base + layout.size() <= host.heap_end || base >= host.heap_end + HEAP_RESERVE);
                }
            }
        }
    }

    #[test]
    fn the_entire_first_candidate_of_a_small_window_reaches_the_program() {
        let (layout, host) = (WindowLayout::divide(GIB).unwrap(), host(0x5555_5555_4000));
        let first = Placement::NearHost.candidates(&layout, &host)[0];
        assert!(host.program.end - first <= REACH);
    }

    #[test]
    fn low_candidates_end_below_2_gib_and_a_larger_window_has_none() {
        let host = host(0x5555_5555_4000);
        let layout = WindowLayout::divide(GIB).unwrap();
        let candidates = Placement::Low2GiB.candidates(&layout, &host);
        assert!(!candidates.is_empty() && candidates.is_sorted_by(|before, after| before > after));
        assert!(candidates.iter().all(|base| *base >= CHUNK && Placement::Low2GiB.accepts(&layout, &host, *base)));
        assert!(!Placement::Low2GiB.accepts(&layout, &host, candidates[0] + CHUNK));
        let full = layout.with_size(MAX_WINDOW);
        assert_eq!(Placement::Low2GiB.candidates(&full, &host), [0; 0]);
    }

    #[test]
    fn every_byte_of_a_candidate_near_the_libraries_reaches_them() {
        let host = host(0x5555_5555_4000);
        let layout = WindowLayout::divide(GIB).unwrap();
        let candidates = Placement::NearLibraries.candidates(&layout, &host);
        assert!(!candidates.is_empty());
        assert!(
            candidates
                .iter()
                .all(|base| base + layout.size() < host.libraries.start && host.libraries.end - base <= REACH)
        );
        let full = layout.with_size(MAX_WINDOW);
        assert_eq!(Placement::NearLibraries.candidates(&full, &host), [0; 0]);
    }

    #[test]
    fn without_the_address_of_the_program_there_are_no_candidates_near_it() {
        let layout = WindowLayout::divide(GIB).unwrap();
        assert_eq!(
            Placement::NearHost.candidates(&layout, &Host { program: 0..0, heap_end: 0, libraries: 0..0 }),
            [0; 0]
        );
    }
}
