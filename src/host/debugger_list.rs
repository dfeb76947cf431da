//! [`DebuggerEntry`]: one symbol file in the list that gdb and lldb read (gdb's JIT compilation interface).
//!
//! ```text
//!   __jit_debug_descriptor ─ first ─► entry ◄─► entry ◄─► entry     each entry points to a symbol file in memory
//!          │ also names the entry that changes, and the action
//!   __jit_debug_register_code()     does nothing; a debugger sets a breakpoint there and then reads the descriptor
//! ```
//!
//! Adding and removing an entry take constant time. If a debugger is attached, it stops the process and reads each symbol
//! file as it is added.
//!
//! # One list per link
//! Debuggers find both symbols by name, so a program or library can define each only once. LLVM and wasmtime define them
//! too. The definitions here are weak: if several are linked together, the linker takes one and all use it. Two copies of
//! this crate in one link therefore share the list, and they also share the lock, which is a weak word for that reason.
//!
//! - The symbols are protected as well. A library must not use the list of the program or of another library, even if that
//!   list is exported, because the library would use it without the lock of its owner.
//! - The locks of LLVM and wasmtime are private to them. An embedder that registers code with both must not do so at the same
//!   time as it links or removes code here.
//! - Weak symbols do not help against a definition in another Rust crate under `lto = "fat"`, which compiles both as one
//!   assembly text.
//!
//! # Process events
//! - **Fork**: the child inherits the list together with the code. The lock is the number of the process that holds it, so a
//!   lock that another thread of the parent held is free in the child. Forward links are
//!   written in an order that leaves the list readable after each store, and a child that takes over the lock writes the
//!   backward links again.
//! - **Unload**: the list is part of the library that contains this code and goes with it. Entries are on the heap and are
//!   then leaked. Running code keeps the library loaded (`exit_hook.rs`).
//! - **Exit**: entries that are in the list stay there.

use std::{fmt, ptr};

use crate::host::fork_lock::ForkLockGuard;
use crate::sync::MappedU32;

// Each symbol has its own section, so that the linker drops unused ones. The functions below refer to all three.
// `.ifndef`: link-time optimisation assembles two copies of this crate as one text, which must define each symbol once.
std::arch::global_asm!(
    ".ifndef __jit_debug_register_code",
    ".pushsection .text.__jit_debug_register_code,\"ax\",@progbits",
    ".weak __jit_debug_register_code",
    ".protected __jit_debug_register_code",
    ".type __jit_debug_register_code,@function",
    ".p2align 4",
    "__jit_debug_register_code:",
    "ret",
    ".size __jit_debug_register_code, . - __jit_debug_register_code",
    ".popsection",
    ".endif",
    ".ifndef __jit_debug_descriptor",
    ".pushsection .data.__jit_debug_descriptor,\"aw\",@progbits",
    ".weak __jit_debug_descriptor",
    ".protected __jit_debug_descriptor",
    ".type __jit_debug_descriptor,@object",
    ".p2align 3",
    "__jit_debug_descriptor:",
    ".long 1, 0", // version, action
    ".quad 0, 0", // relevant entry, first entry
    ".size __jit_debug_descriptor, . - __jit_debug_descriptor",
    ".popsection",
    ".endif",
    ".ifndef __jittison_jit_debug_lock_v1",
    ".pushsection .data.__jittison_jit_debug_lock_v1,\"aw\",@progbits",
    ".weak __jittison_jit_debug_lock_v1",
    ".protected __jittison_jit_debug_lock_v1",
    ".type __jittison_jit_debug_lock_v1,@object",
    ".p2align 2",
    "__jittison_jit_debug_lock_v1:",
    ".long 0",
    ".size __jittison_jit_debug_lock_v1, . - __jittison_jit_debug_lock_v1",
    ".popsection",
    ".endif",
);

unsafe extern "C" {
    static mut __jit_debug_descriptor: Descriptor;
    /// Number of the process that holds the lock. Zero: it is free.
    static __jittison_jit_debug_lock_v1: MappedU32;
    fn __jit_debug_register_code();
}

/// `struct jit_descriptor` of the interface, version 1.
#[repr(C)]
struct Descriptor {
    version: u32,
    action: u32,
    relevant: *mut Entry,
    first: *mut Entry,
}

/// `struct jit_code_entry`.
#[repr(C)]
struct Entry {
    next: *mut Entry,
    previous: *mut Entry,
    symbol_file: *const u8,
    size_bytes: u64,
}

const NO_ACTION: u32 = 0;
const REGISTER: u32 = 1;
const UNREGISTER: u32 = 2;

/// A symbol file in the debuggers' list. Dropping it removes the entry.
pub(super) struct DebuggerEntry {
    entry: *mut Entry,
    /// The bytes that the entry points to.
    _symbol_file: Box<[u8]>,
}

// SAFETY: H6 - `new` and `drop` touch the entry under the lock of the list, so any thread may drop it.
unsafe impl Send for DebuggerEntry {}
// SAFETY: H6 - no method takes `&self`, so a shared reference touches nothing.
unsafe impl Sync for DebuggerEntry {}

impl DebuggerEntry {
    /// Adds a symbol file to the list and notifies an attached debugger.
    pub(super) fn new(symbol_file: Vec<u8>) -> DebuggerEntry {
        let symbol_file = symbol_file.into_boxed_slice();
        let (address, size_bytes) = (symbol_file.as_ptr(), symbol_file.len() as u64);
        let new = Entry { next: ptr::null_mut(), previous: ptr::null_mut(), symbol_file: address, size_bytes };
        let entry = Box::into_raw(Box::new(new));
        let _lock = lock();
        // SAFETY: H6 - this thread holds the lock, `entry` is a new box, and `first` is null or an entry that is still in the
        // list. Forward links are written first, so that a forked child can follow them after each store.
        unsafe {
            let descriptor = &raw mut __jit_debug_descriptor;
            let first = (&raw mut (*descriptor).first).read();
            (&raw mut (*entry).next).write_volatile(first);
            (&raw mut (*descriptor).first).write_volatile(entry);
            if !first.is_null() {
                (&raw mut (*first).previous).write_volatile(entry);
            }
            notify_debugger(REGISTER, entry);
        }
        DebuggerEntry { entry, _symbol_file: symbol_file }
    }
}

impl fmt::Debug for DebuggerEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "debugger entry at {:p}", self.entry)
    }
}

impl Drop for DebuggerEntry {
    fn drop(&mut self) {
        let entry = self.entry;
        let _lock = lock();
        // SAFETY: H6 - this thread holds the lock, and `entry` is in the list since `new`, so its neighbours are null or alive.
        // Nobody refers to `entry` after `notify_debugger`, so its box is freed. Backward links are written first, so that a
        // forked child can still follow the forward links.
        unsafe {
            let descriptor = &raw mut __jit_debug_descriptor;
            let (next, previous) = ((*entry).next, (*entry).previous);
            if !next.is_null() {
                (&raw mut (*next).previous).write_volatile(previous);
            }
            if previous.is_null() {
                (&raw mut (*descriptor).first).write_volatile(next);
            } else {
                (&raw mut (*previous).next).write_volatile(next);
            }
            notify_debugger(UNREGISTER, entry);
            drop(Box::from_raw(entry));
        }
    }
}

/// Stops at the breakpoint of an attached debugger, which then reads the descriptor.
///
/// # Safety
/// - The calling thread holds the lock of the list.
/// - `entry` is allocated: it is in the list, or was just unlinked.
unsafe fn notify_debugger(action: u32, entry: *mut Entry) {
    // SAFETY: H6 - the caller holds the lock, which guards the words of the descriptor. `__jit_debug_register_code` returns at
    // once and touches no memory.
    unsafe {
        let descriptor = &raw mut __jit_debug_descriptor;
        (&raw mut (*descriptor).relevant).write_volatile(entry);
        (&raw mut (*descriptor).action).write_volatile(action);
        __jit_debug_register_code();
        // A debugger that attaches later reads the descriptor. It must not find an entry that is already freed.
        (&raw mut (*descriptor).action).write_volatile(NO_ACTION);
        (&raw mut (*descriptor).relevant).write_volatile(ptr::null_mut());
    }
}

/// Locks the list.
fn lock() -> ForkLockGuard<'static> {
    let lock = ForkLockGuard::lock(lock_word());
    if lock.was_taken_over {
        // SAFETY: H6 - this thread holds the lock.
        unsafe { restore_backward_links() };
    }
    lock
}

/// Writes the backward link of each entry again. A fork in the middle of a change leaves the forward links complete, and one
/// backward link that does not match them.
///
/// # Safety
/// The calling thread holds the lock of the list.
unsafe fn restore_backward_links() {
    // SAFETY: H6 - the caller holds the lock. The forward links lead through entries that are in the list, which are allocated:
    // an entry is freed only after the forward link to it is gone, by a thread of the process that removed it.
    unsafe {
        let mut previous = ptr::null_mut();
        let mut entry = (&raw const __jit_debug_descriptor.first).read();
        while !entry.is_null() {
            (&raw mut (*entry).previous).write_volatile(previous);
            (previous, entry) = (entry, (*entry).next);
        }
    }
}

fn lock_word() -> &'static MappedU32 {
    // SAFETY: H6 - the word is defined above, or by another copy of this crate: four aligned bytes that are never freed.
    // It is the lock itself, and all accesses to it are atomic.
    unsafe { &__jittison_jit_debug_lock_v1 }
}
