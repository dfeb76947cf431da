//! [`CallThrough`]: finds the code of a lazy function at its first call, and continues the call there.
//!
//! ```text
//!   entry (linked memory)         call_through (this file)             resolve
//!   r11 = number, jmp *slot ────► save argument registers ────────────► find the target by number
//!                                 restore them, jmp to the address ◄──── address of the function
//! ```
//!
//! The call then continues as if the caller had called the function directly. Saved are the integer and the 128-bit vector
//! argument registers of the psABI. The upper halves of wider vector registers are not saved.
//!
//! If the target cannot be found, there is no caller that could get an error. The embedder's handler supplies another
//! function or ends the process (`lazy_failure.rs`).

use std::collections::HashMap;

use crate::base::{ExecutorAddr, catch};
use crate::error::{Error, Result};
use crate::host::lazy_failure::{LazyFailure, LazyFailureHandler, abort};
use crate::sync::{Arc, StaticMutex};

/// The function behind an entry, which is found at the first call.
pub(crate) trait LazyTarget: Send + Sync {
    /// Finds the code, and keeps it in memory as long as the caller may be in it. Called without a lock.
    fn find(&self) -> Result<ExecutorAddr>;

    /// Describes a failure of [`find`](Self::find).
    fn failure<'a>(&'a self, error: &'a Error) -> LazyFailure<'a>;

    /// The handler that decides where the call continues after a failure.
    fn handler(&self) -> &LazyFailureHandler;
}

/// A registered target. Drop it only when no thread can run its entry any more: that deregisters the target.
pub(crate) struct CallThrough {
    number: u64,
}

struct Targets {
    next: u64,
    by_number: Option<HashMap<u64, Arc<dyn LazyTarget>>>,
}

static TARGETS: StaticMutex<Targets> = StaticMutex::new(Targets { next: 1, by_number: None });

impl CallThrough {
    pub(crate) fn new(target: Arc<dyn LazyTarget>) -> CallThrough {
        let mut targets = TARGETS.lock();
        let number = targets.next;
        targets.next += 1;
        targets.by_number.get_or_insert_default().insert(number, target);
        CallThrough { number }
    }

    /// The code of the entry: `endbr64; movabs $number, %r11; jmp *slot(%rip)`. `slot` holds [`call_through_address`], and is
    /// `slot_distance` bytes after the end of the entry.
    pub(crate) fn entry(&self, slot_distance: i32) -> [u8; ENTRY_SIZE] {
        let mut code = [0; ENTRY_SIZE];
        code[..6].copy_from_slice(&[0xf3, 0x0f, 0x1e, 0xfa, 0x49, 0xbb]);
        code[6..14].copy_from_slice(&self.number.to_le_bytes());
        code[14..16].copy_from_slice(&[0xff, 0x25]);
        code[16..].copy_from_slice(&slot_distance.to_le_bytes());
        code
    }
}

impl Drop for CallThrough {
    fn drop(&mut self) {
        // Dropped outside the lock: the target may own the last handle of a session.
        let target = TARGETS.lock().by_number.as_mut().and_then(|targets| targets.remove(&self.number));
        drop(target);
    }
}

/// Size of an entry in bytes.
pub(crate) const ENTRY_SIZE: usize = 20;

/// The address that entries jump to.
pub(crate) fn call_through_address() -> ExecutorAddr {
    ExecutorAddr::new(call_through as *const () as u64)
}

/// Returns the address at which the call of an entry continues.
extern "C" fn resolve(number: u64) -> u64 {
    let target = TARGETS.lock().by_number.as_ref().and_then(|targets| targets.get(&number).cloned());
    // A caller of an entry keeps it alive, and an entry lives as long as its `CallThrough`.
    let Some(target) = target else { abort("a lazy function was called after its code was freed") };
    let found = catch(|| target.find());
    let found = found.unwrap_or_else(|panic| Err(Error::other(format!("looking it up panicked: {panic}"))));
    let address = found.unwrap_or_else(|error| target.handler().redirect(&target.failure(&error)));
    address.value()
}

/// For models, which cannot run the code of an entry: what the entry with this number does.
#[cfg(loom)]
#[doc(hidden)]
pub fn enter_for_models(number: u64) -> ExecutorAddr {
    ExecutorAddr::new(resolve(number))
}

macro_rules! symbol {
    ($name:literal) => {
        concat!("jittison_", $name, "_", env!("CARGO_PKG_VERSION"))
    };
}

unsafe extern "C" {
    #[link_name = symbol!("call_through")]
    fn call_through();
}

// On entry, the return address is at (%rsp), and %rsp is 8 below a multiple of 16. After nine pushes and 128 bytes, %rsp is a
// multiple of 16, as the psABI demands at a call.
std::arch::global_asm!(
    ".pushsection .text.jittison_call_through,\"ax\",@progbits",
    concat!(".globl ", symbol!("call_through")),
    concat!(".hidden ", symbol!("call_through")),
    concat!(".type ", symbol!("call_through"), ",@function"),
    concat!(symbol!("call_through"), ":"),
    ".cfi_startproc",
    "endbr64",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "push rdi",
    "push rsi",
    "push rdx",
    "push rcx",
    "push r8",
    "push r9",
    "push rax",
    "push r10",
    "sub rsp, 128",
    "movups [rsp], xmm0",
    "movups [rsp + 16], xmm1",
    "movups [rsp + 32], xmm2",
    "movups [rsp + 48], xmm3",
    "movups [rsp + 64], xmm4",
    "movups [rsp + 80], xmm5",
    "movups [rsp + 96], xmm6",
    "movups [rsp + 112], xmm7",
    "mov rdi, r11",
    "call {resolve}",
    "mov r11, rax",
    "movups xmm0, [rsp]",
    "movups xmm1, [rsp + 16]",
    "movups xmm2, [rsp + 32]",
    "movups xmm3, [rsp + 48]",
    "movups xmm4, [rsp + 64]",
    "movups xmm5, [rsp + 80]",
    "movups xmm6, [rsp + 96]",
    "movups xmm7, [rsp + 112]",
    "add rsp, 128",
    "pop r10",
    "pop rax",
    "pop r9",
    "pop r8",
    "pop rcx",
    "pop rdx",
    "pop rsi",
    "pop rdi",
    "pop rbp",
    ".cfi_def_cfa rsp, 8",
    "jmp r11",
    ".cfi_endproc",
    ".popsection",
    resolve = sym resolve,
);
