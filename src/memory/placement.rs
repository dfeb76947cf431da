//! Where in the address space windows are asked for. Arithmetic only.
//!
//! A window is asked for at one address after the other, nearest to the wish first. What is there already is the
//! kernel's to say (`loaded_window.rs` asks), so this file needs no map of the process, and a thread that maps something
//! meanwhile costs one more question.

use std::ops::Range;

use crate::base::{SegmentKind, align_up};
use crate::memory::layout::{CHUNK, WindowLayout};
use crate::memory::mapper::Placement;

/// What a window may want to be near to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Host {
    /// The program's own segments.
    pub(super) program: Range<u64>,
    /// Where the program's heap ends, which grows upwards.
    pub(super) heap_end: u64,
    /// From the first to the last byte of the shared libraries.
    pub(super) libraries: Range<u64>,
}

impl Placement {
    /// Addresses to ask for, best first.
    pub(super) fn candidates(self, layout: &WindowLayout, host: &Host) -> Vec<u64> {
        match self {
            Placement::Anywhere => Vec::new(),
            Placement::NearHost => near(layout, host),
            Placement::NearLibraries => below_libraries(layout, host),
            Placement::Low2GiB => {
                let Some(highest) = REACH.checked_sub(layout.size) else { return Vec::new() };
                // From the top down: the heap of a program at fixed addresses grows up from the bottom.
                (1..=highest / CHUNK).rev().map(|chunk| chunk * CHUNK).collect()
            }
        }
    }

    /// Whether a window at `base` is where it should be.
    pub(super) fn suits(self, layout: &WindowLayout, host: &Host, base: u64) -> bool {
        match self {
            Placement::Anywhere => true,
            Placement::NearHost => {
                let code = layout.pool(SegmentKind::Code);
                let start = base.saturating_add(code.offset);
                reach_each_other(&(start..start.saturating_add(code.size)), &host.program)
            }
            Placement::NearLibraries => {
                let window = base..base.saturating_add(layout.size);
                !host.libraries.is_empty() && reach_each_other(&window, &host.libraries)
            }
            Placement::Low2GiB => base.checked_add(layout.size).is_some_and(|end| end <= REACH),
        }
    }
}

/// Below the program, where usually nothing is, then above it, away from it by steps; but not where its heap will grow.
fn near(layout: &WindowLayout, host: &Host) -> Vec<u64> {
    if host.program.is_empty() {
        return Vec::new();
    }
    let below = host.program.start.checked_sub(layout.size + CHUNK).map(|base| base & !(CHUNK - 1));
    let above = align_up(host.program.end.saturating_add(CHUNK), CHUNK);
    let growth = host.heap_end..host.heap_end.saturating_add(HEAP_ROOM);
    let suits = |base: &u64| *base >= CHUNK && Placement::NearHost.suits(layout, host, *base);
    let down = (0..).map_while(|step: u64| below?.checked_sub(step * STEP)).take_while(suits);
    let up = (0..).map_while(|step: u64| above?.checked_add(step * STEP)).take_while(suits);
    down.chain(up.filter(|base| !growth.contains(base))).collect()
}

/// Below the libraries, with room for those that come later, which the kernel puts below as well.
fn below_libraries(layout: &WindowLayout, host: &Host) -> Vec<u64> {
    let below = host.libraries.start.checked_sub(layout.size + LIBRARY_ROOM).map(|base| base & !(CHUNK - 1));
    let suits = |base: &u64| *base >= CHUNK && Placement::NearLibraries.suits(layout, host, *base);
    (0..).map_while(|step: u64| below?.checked_sub(step * STEP)).take_while(suits).collect()
}

fn reach_each_other(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.end.max(b.end) - a.start.min(b.start) <= REACH
}

/// What a signed 32-bit displacement reaches, and where a signed 32-bit address ends.
const REACH: u64 = 1 << 31;

const STEP: u64 = 64 << 20;

/// Left for the heap to grow before it has to go elsewhere (which it does).
const HEAP_ROOM: u64 = 256 << 20;

/// Left for libraries that are loaded later.
const LIBRARY_ROOM: u64 = 128 << 20;

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

    #[test]
    fn whatever_is_asked_for_near_the_program_suits_and_hits_neither_program_nor_heap() {
        for start in [0x40_0000, 3 * GIB, 0x5555_5555_4000] {
            for size in [32 << 20, GIB, MAX_WINDOW] {
                let (layout, host) = (WindowLayout::divide(size).unwrap(), host(start));
                let candidates = Placement::NearHost.candidates(&layout, &host);
                assert!(!candidates.is_empty(), "{start:#x} {size:#x}");
                for base in candidates {
                    assert!(Placement::NearHost.suits(&layout, &host, base) && base.is_multiple_of(CHUNK) && base > 0);
                    assert!(base + layout.size <= host.program.start || base >= host.program.end);
                    assert!(base < host.heap_end || base >= host.heap_end + HEAP_ROOM);
                }
            }
        }
    }

    #[test]
    fn a_small_window_s_first_choice_reaches_the_program_as_a_whole() {
        let (layout, host) = (WindowLayout::divide(GIB).unwrap(), host(0x5555_5555_4000));
        let first = Placement::NearHost.candidates(&layout, &host)[0];
        assert!(host.program.end - first <= REACH);
    }

    #[test]
    fn what_is_asked_for_low_lies_low_and_a_window_too_large_for_it_is_not_asked_for() {
        let host = host(0x5555_5555_4000);
        let layout = WindowLayout::divide(GIB).unwrap();
        let candidates = Placement::Low2GiB.candidates(&layout, &host);
        assert!(!candidates.is_empty() && candidates.is_sorted_by(|before, after| before > after));
        assert!(candidates.iter().all(|base| *base >= CHUNK && Placement::Low2GiB.suits(&layout, &host, *base)));
        assert!(!Placement::Low2GiB.suits(&layout, &host, candidates[0] + CHUNK));
        let full = WindowLayout { size: MAX_WINDOW, ..layout };
        assert_eq!(Placement::Low2GiB.candidates(&full, &host), [0; 0]);
    }

    #[test]
    fn what_is_asked_for_near_the_libraries_reaches_them_from_every_byte() {
        let host = host(0x5555_5555_4000);
        let layout = WindowLayout::divide(GIB).unwrap();
        let candidates = Placement::NearLibraries.candidates(&layout, &host);
        assert!(!candidates.is_empty());
        assert!(
            candidates
                .iter()
                .all(|base| base + layout.size < host.libraries.start && host.libraries.end - base <= REACH)
        );
        let full = WindowLayout { size: MAX_WINDOW, ..layout };
        assert_eq!(Placement::NearLibraries.candidates(&full, &host), [0; 0]);
    }

    #[test]
    fn a_loader_that_does_not_tell_where_the_program_is_gets_no_wish() {
        let layout = WindowLayout::divide(GIB).unwrap();
        assert_eq!(
            Placement::NearHost.candidates(&layout, &Host { program: 0..0, heap_end: 0, libraries: 0..0 }),
            [0; 0]
        );
    }
}
