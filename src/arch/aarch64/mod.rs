//! AArch64 (ELF for the Arm 64-bit Architecture, AAPCS64).

pub(crate) mod address_thunk;
#[cfg(target_arch = "aarch64")]
pub(crate) mod asm;
mod branch;
pub(crate) mod code;
pub(crate) mod crt_fragment;
pub(crate) mod distance_thunk;
pub(crate) mod far_code;
mod field;
#[cfg(target_arch = "aarch64")]
mod instruction_cache;
#[cfg(target_arch = "aarch64")]
mod prefetch;
pub(crate) mod relax;
pub(crate) mod relocation;
pub(crate) mod relocations;
#[cfg(target_arch = "aarch64")]
mod support_functions;
#[cfg(test)]
mod tests;
pub(crate) mod verify;

/// `GNU_PROPERTY_AARCH64_FEATURE_1_AND`, and its bit `GNU_PROPERTY_AARCH64_FEATURE_1_BTI` (AAELF64, "Program property"): each
/// entry that indirect branches may reach is a landing pad.
pub(crate) const FEATURE_1_AND: u32 = 0xc000_0000;
pub(crate) const FEATURE_1_BTI: u32 = 1;

/// Bytes that the thread pointer leads to, before the first block of thread-local storage (AAELF64, "Thread local storage").
pub(crate) const THREAD_CONTROL_BLOCK: u64 = 16;

/// Whether a symbol is a mapping symbol (AAELF64, "Mapping symbols"): `$x` or `$d`, or one of these with a suffix.
pub(crate) fn is_mapping_symbol(name: &str) -> bool {
    let suffix = name.strip_prefix("$x").or_else(|| name.strip_prefix("$d"));
    suffix.is_some_and(|suffix| suffix.is_empty() || suffix.starts_with('.'))
}

/// A CIE without its length and id: version 1, "zR", code alignment 4, data alignment −8, return address in x30, FDE pointers
/// pcrel sdata4; the CFA is sp.
pub(crate) const FRAMELESS_CIE: [u8; 16] = [1, b'z', b'R', 0, 4, 0x78, 30, 1, 0x1b, 0x0c, 31, 0, 0, 0, 0, 0];

/// What only code of this process uses.
#[cfg(target_arch = "aarch64")]
pub(crate) mod native {
    #[cfg(feature = "reload")]
    pub(crate) use super::asm::define_with_caller;
    pub(crate) use super::asm::{define_call_through, define_stack_end};
    #[cfg(feature = "executor")]
    pub(crate) use super::asm::{define_carrier, define_make_call};
    pub(crate) use super::instruction_cache::flush_code;
    pub(crate) use super::prefetch::{prefetch_line, prefetch_line_to_write};
    pub(crate) use super::support_functions::support_function;

    /// Whether one atomic exchange is both a store and a fence, and cheaper than the two.
    pub(crate) const EXCHANGE_IS_FENCE: bool = false;
    /// Whether other threads may have fetched instructions before their bytes were written, and must forget them.
    pub(crate) const FETCHES_EARLY: bool = true;
    /// Whether the kernel chooses the size of pages: 4, 16 or 64 KiB.
    pub(crate) const PAGES_VARY: bool = true;
    /// There are no old system calls.
    #[cfg(feature = "executor")]
    pub(crate) const OLD_SYSTEM_CALLS: &[i64] = &[];
    /// `pc`, `sp` and `x30` in the `ucontext` of Linux. A call leaves the return address in `x30`.
    #[cfg(feature = "executor")]
    pub(crate) const SIGNAL_CONTEXT: crate::arch::SignalContext =
        crate::arch::SignalContext { instruction: 440, stack: 432, link: Some(424) };
    /// Whether the place of a large result is the first argument.
    #[cfg(feature = "executor")]
    pub(crate) const RESULT_PLACE_IS_ARGUMENT: bool = false;
    /// Whether an argument of more than 16 bytes is passed as its address.
    #[cfg(feature = "executor")]
    pub(crate) const PASSES_LARGE_BY_ADDRESS: bool = true;
    /// Whether each member of a structure of up to four equal floating-point types has a register of its own, as an argument and as a
    /// result (AAPCS64, homogeneous floating-point aggregates).
    #[cfg(feature = "executor")]
    pub(crate) const FLOATS_HAVE_REGISTERS: bool = true;
}
