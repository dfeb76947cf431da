//! [`flush_code`]: makes written code visible to instruction fetches.
//!
//! A processor may fetch instructions from a cache that stores do not reach. The Arm ARM (DDI 0487, "Ordering and completion of data
//! and instruction cache instructions", "Concurrent modification and execution of instructions") asks for these steps:
//!
//! | step | instruction | where | not needed if |
//! |---|---|---|---|
//! | write the data to the point of unification | `dc cvau` | any address of the bytes: data caches are physically tagged | `CTR_EL0.IDC` |
//! | wait for it | `dsb ish` | | |
//! | invalidate the instruction caches of all processors | `ic ivau` | the address where the code runs | `CTR_EL0.DIC` |
//! | wait for it | `dsb ish` | | |
//! | forget what was fetched before | `isb` | in each thread that runs the code | |
//!
//! `flush_code` does the first four, and the last one for its own thread. The other threads do it in
//! [`synchronize_processors`](crate::sync::synchronize_processors), a system call that follows when the code of a link is
//! complete. Code is written at another address than it runs, so the two addresses are arguments.
//!
//! New code needs this as much as reused memory: a processor may fetch from any executable address at any time.

use std::arch::asm;

/// Makes `size` bytes that were written at `working` visible to fetches at `running`.
///
/// # Safety
/// Both ranges are mapped and readable.
pub(crate) unsafe fn flush_code(working: *const u8, running: *const u8, size: usize) {
    if size == 0 {
        return;
    }
    let lines = CacheLines::of_processor();
    if let Some(line) = lines.data {
        for address in addresses(working, size, line) {
            // SAFETY: A2 - the line holds bytes of the range, which is mapped by contract.
            unsafe { asm!("dc cvau, {}", in(reg) address, options(nostack, preserves_flags)) };
        }
    }
    // SAFETY: A2 - a barrier has no operand.
    unsafe { asm!("dsb ish", options(nostack, preserves_flags)) };
    if let Some(line) = lines.instructions {
        for address in addresses(running, size, line) {
            // SAFETY: A2 - as above.
            unsafe { asm!("ic ivau, {}", in(reg) address, options(nostack, preserves_flags)) };
        }
        // SAFETY: A2 - as above.
        unsafe { asm!("dsb ish", options(nostack, preserves_flags)) };
    }
    // SAFETY: A2 - as above.
    unsafe { asm!("isb", options(nostack, preserves_flags)) };
}

/// Bytes of the smallest lines of the caches. `None` if a cache needs no maintenance.
#[derive(Debug, PartialEq)]
struct CacheLines {
    data: Option<usize>,
    instructions: Option<usize>,
}

impl CacheLines {
    fn of_processor() -> CacheLines {
        let register: u64;
        // SAFETY: A2 - the kernel lets programs read this register, or reads it for them.
        unsafe { asm!("mrs {}, ctr_el0", out(reg) register, options(nomem, nostack, preserves_flags)) };
        CacheLines::from_register(register)
    }

    /// `CTR_EL0`: the sizes are powers of two of words of four bytes.
    fn from_register(register: u64) -> CacheLines {
        let line = |shift: u32| 4usize << ((register >> shift) & 0xf);
        let is_coherent = |bit: u32| register >> bit & 1 == 1;
        CacheLines { data: (!is_coherent(28)).then(|| line(16)), instructions: (!is_coherent(29)).then(|| line(0)) }
    }
}

/// The first address of each line with bytes of a range.
fn addresses(start: *const u8, size: usize, line: usize) -> impl Iterator<Item = usize> {
    let start = start as usize;
    (start & !(line - 1)..start + size).step_by(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_a_range_is_maintained_once() {
        let of = |start: usize, size| addresses(start as *const u8, size, 64).collect::<Vec<_>>();
        assert_eq!(of(128, 64), [128]);
        assert_eq!(of(128, 65), [128, 192]);
        assert_eq!(of(191, 1), [128]);
        assert_eq!(of(191, 2), [128, 192]);
    }

    #[test]
    fn a_cache_that_is_coherent_needs_no_maintenance() {
        // Cortex-A53: lines of 64 bytes, neither bit.
        let lines = CacheLines { data: Some(64), instructions: Some(64) };
        assert_eq!(CacheLines::from_register(0x8444_8004), lines);
        // Neoverse N1: both bits.
        assert_eq!(CacheLines::from_register(0xb444_c004), CacheLines { data: None, instructions: None });
    }
}
