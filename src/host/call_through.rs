//! [`CallThrough`]: code that is called before it exists. The first call finds the code, then goes on into it.
//!
//! An entry in linked memory puts its number into `r11` and jumps to [`call_through_address`]. There the argument
//! registers are saved (integer and 128-bit vector ones, as the psABI passes them; the upper halves of wider vectors are
//! not), the number's target is asked for an address, the registers are restored, and the call goes on as if it had
//! been made there. Where the target cannot be found there is nobody to return an error to: the embedder's handler says where the
//! call goes on (`lazy_failure.rs`), or ends the process.

use std::collections::HashMap;

use crate::base::{ExecutorAddr, catch};
use crate::error::{Error, Result};
use crate::host::lazy_failure::{LazyFailure, LazyFailureHandler, abort};
use crate::sync::{Arc, StaticMutex};

/// What an entry leads to, once it is found.
pub(crate) trait LazyTarget: Send + Sync {
    /// Finds the code, and sees to it that it stays as long as the caller may be in it. Called with no lock held.
    fn find(&self) -> Result<ExecutorAddr>;

    /// The failure of that, in words.
    fn failure<'a>(&'a self, error: &'a Error) -> LazyFailure<'a>;

    /// Who says where the call goes on then.
    fn handler(&self) -> &LazyFailureHandler;
}

/// A target and its number. Dropping it forgets the target: only when nobody can enter its code any more.
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

    /// The entry's code, which finds the address to jump to in the word `slot_distance` bytes behind its own end:
    /// `endbr64; movabs $number, %r11; jmp *slot(%rip)`.
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
        // Dropped outside the lock: it may be the last to hold a session.
        let target = TARGETS.lock().by_number.as_mut().and_then(|targets| targets.remove(&self.number));
        drop(target);
    }
}

/// Bytes of an entry.
pub(crate) const ENTRY_SIZE: usize = 20;

/// Where entries jump to.
pub(crate) fn call_through_address() -> ExecutorAddr {
    ExecutorAddr::new(call_through as *const () as u64)
}

/// Finds the code behind an entry, or another place for the call to go on.
extern "C" fn resolve(number: u64) -> u64 {
    let target = TARGETS.lock().by_number.as_ref().and_then(|targets| targets.get(&number).cloned());
    // Who enters an entry holds it, so its target is there.
    let Some(target) = target else { abort("a lazy function was called after its code was freed") };
    let found = catch(|| target.find());
    let found = found.unwrap_or_else(|panic| Err(Error::other(format!("looking it up panicked: {panic}"))));
    let address = found.unwrap_or_else(|error| target.handler().redirect(&target.failure(&error)));
    address.value()
}

/// For models, which cannot run the code of an entry: what it does, once its number is in its register.
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

// The return address stands at (%rsp) on entry, so %rsp is 8 below a multiple of 16; nine pushes and 128 bytes later it
// is a multiple of 16 again, as the psABI wants it at a call.
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
