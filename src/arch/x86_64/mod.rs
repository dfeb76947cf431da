//! x86-64 (System V psABI 1.0).

#[cfg(target_arch = "x86_64")]
pub(crate) mod asm;
pub(crate) mod code;
pub(crate) mod crt_fragment;
#[cfg(feature = "reload")]
pub(crate) mod entry_hook;
#[cfg(target_arch = "x86_64")]
mod prefetch;
#[cfg(feature = "range-extension")]
mod range_extension;
pub(crate) mod relax;
pub(crate) mod relocations;
pub(crate) mod verify;

#[cfg(feature = "range-extension")]
pub(crate) use range_extension::extend_code;

/// Without the feature `range-extension` no instruction is decoded or moved.
#[cfg(not(feature = "range-extension"))]
pub(crate) fn extend_code(code: &super::FarCode<'_>, _: &mut [u8], _: &mut Vec<u8>) -> Result<(), super::FarCodeFault> {
    let problem = "jittison was built without its feature `range-extension`, which moves such instructions".to_string();
    let fault = super::FarCodeFault { reference: 0, instruction: 0..0, problem };
    if code.references.is_empty() { Ok(()) } else { Err(fault) }
}

/// The section type of unwind tables (psABI 4.2.1).
pub(crate) const SHT_X86_64_UNWIND: u32 = 0x7000_0001;

/// `GNU_PROPERTY_X86_FEATURE_1_AND`, and its bit `GNU_PROPERTY_X86_FEATURE_1_IBT` (psABI 1.0, 4.1.3): each function that
/// indirect branches may reach begins with `endbr64`.
pub(crate) const FEATURE_1_AND: u32 = 0xc000_0002;
pub(crate) const FEATURE_1_IBT: u32 = 1;

/// The most bytes that a thunk takes for each far operand: adjust the stack 13, save and load a register 14, add the base
/// 8, the instruction 15, jump back 5; rounded up.
pub(crate) const MAX_THUNK_SIZE: usize = 56;

/// The most bytes of a thunk that computes a distance of a thread-local variable: adjust the stack 13, save and restore
/// three registers 8, two descriptors 24, subtract 3, add the addend 8, add the base 9, the instruction 15, jump back 5;
/// rounded up.
pub(crate) const MAX_DISTANCE_THUNK_SIZE: usize = 96;

/// A CIE without its length and id: version 1, "zR", code alignment 1, data alignment −8, return address in r16, FDE
/// pointers pcrel sdata4; the CFA is rsp + 8, and the return address is at CFA − 8.
pub(crate) const FRAMELESS_CIE: [u8; 16] = [1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0];

/// What only code of this process uses.
#[cfg(target_arch = "x86_64")]
pub(crate) mod native {
    #[cfg(feature = "reload")]
    pub(crate) use super::asm::define_with_caller;
    pub(crate) use super::asm::{define_call_through, define_stack_end};
    #[cfg(feature = "executor")]
    pub(crate) use super::asm::{define_carrier, define_make_call};
    pub(crate) use super::prefetch::{prefetch_line, prefetch_line_to_write};

    /// Whether one atomic exchange is both a store and a fence, and cheaper than the two.
    pub(crate) const EXCHANGE_IS_FENCE: bool = true;
    /// Whether other threads may have fetched instructions before their bytes were written, and must forget them.
    pub(crate) const FETCHES_EARLY: bool = false;
    /// Whether the kernel chooses the size of pages.
    pub(crate) const PAGES_VARY: bool = false;
    /// Harmless system calls that newer architectures have not: `open`, `stat`, `lstat`, `poll`, `access`, `pipe`, `select`, `dup2`,
    /// `pause`, `alarm`, `getdents`, `rename`, `mkdir`, `rmdir`, `creat`, `link`, `unlink`, `symlink`, `readlink`, `getrlimit`,
    /// `getpgrp`, `arch_prctl`, `time`, `epoll_create`, `epoll_wait`, `eventfd`.
    #[cfg(feature = "executor")]
    pub(crate) const OLD_SYSTEM_CALLS: &[i64] =
        &[2, 4, 6, 7, 21, 22, 23, 33, 34, 37, 78, 82, 83, 84, 85, 86, 87, 88, 89, 97, 111, 158, 201, 213, 232, 284];
    /// `rip` and `rsp` in the `ucontext_t` of Linux. A call pushes the return address.
    #[cfg(feature = "executor")]
    pub(crate) const SIGNAL_CONTEXT: crate::arch::SignalContext =
        crate::arch::SignalContext { instruction: 168, stack: 160, link: None };
    /// Whether the place of a large result is the first argument.
    #[cfg(feature = "executor")]
    pub(crate) const RESULT_PLACE_IS_ARGUMENT: bool = true;
    /// Whether an argument of more than 16 bytes is passed as its address.
    #[cfg(feature = "executor")]
    pub(crate) const PASSES_LARGE_BY_ADDRESS: bool = false;
    /// Whether each member of a structure of up to four equal floating-point types has a register of its own, as an argument and as a
    /// result (AAPCS64, homogeneous floating-point aggregates).
    #[cfg(feature = "executor")]
    pub(crate) const FLOATS_HAVE_REGISTERS: bool = false;

    /// Code calls no function of the compiler's support library that every program needs.
    pub(crate) fn support_function(_name: &str) -> Option<*const std::ffi::c_void> {
        None
    }

    /// Does nothing: instruction fetches see stores (Intel SDM, volume 3, 13.6).
    ///
    /// # Safety
    /// As on other architectures: both ranges are mapped and readable.
    #[inline(always)]
    pub(crate) unsafe fn flush_code(_working: *const u8, _running: *const u8, _size: usize) {}
}
