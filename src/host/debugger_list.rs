//! [`DebuggerEntry`]: a symbol file in the list that gdb and lldb read, by their JIT interface.
//!
//! ```text
//!   __jit_debug_descriptor ─ first ─► entry ◄─► entry ◄─► entry     each: a symbol file, in memory
//!          │ what changes, and how
//!   __jit_debug_register_code()     does nothing; a debugger has a breakpoint there, and reads the descriptor
//! ```
//!
//! Debuggers know both by these names, of which a program or library can have one each. LLVM and wasmtime define them,
//! too; so ours are weak: with either in the same link, whichever definition the linker takes is everybody's. Two copies
//! of this crate in one link share them likewise, and with them the lock, which is a weak word for that reason. LLVM's and
//! wasmtime's own locks are not ours to take: who has them register code in the same list must see that they do not do so
//! while code is linked or removed here. (What no weak symbol helps against is another crate's definition in Rust under
//! `lto = "fat"`, which compiles both as one text.)
//!
//! They are protected, too: a library never takes the list of the program, or of another library, for its own, be it
//! exported for debuggers to find. It would come without its lock.
//!
//! Adding and taking out cost the same whatever the list holds; with no debugger attached, well under a microsecond. A
//! debugger reads each symbol file as it comes, with the process stopped.
//!
//! - **Forks**: the child has the list, with the code. The lock says which process holds it, so one that another thread
//!   of the parent held at the fork is free in the child; and the words of the list are written in an order in which it
//!   can be read, and edited, after each of them.
//! - **Unloading**: the list goes with the library that this code is in, and so does what is in it: entries are on the heap,
//!   where nobody finds them then. Code that runs keeps the library loaded (`exit_hook.rs`).
//! - **Exit**: entries that are in the list stay there. Nobody looks again.

use std::ptr;

use crate::host::fork_lock::HeldWord;
use crate::sync::MappedU32;

// A section for each, so that only what is used is kept; and kept it is, as the functions below refer to it. Link-time
// optimisation assembles two copies of this crate as one text, in which the second must not define anything again.
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
    ".quad 0, 0", // the entry that changes, the first entry
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
    /// The process that holds the lock; zero: nobody does.
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

/// A symbol file that debuggers know of until this is dropped.
pub(crate) struct DebuggerEntry {
    entry: *mut Entry,
    /// What the entry points to.
    _symbol_file: Box<[u8]>,
}

// SAFETY: H6 - whoever touches an entry holds the list's lock.
unsafe impl Send for DebuggerEntry {}
// SAFETY: H6 - as above; a shared entry gives access to nothing.
unsafe impl Sync for DebuggerEntry {}

impl DebuggerEntry {
    /// Tells debuggers of a symbol file.
    pub(crate) fn new(symbol_file: Vec<u8>) -> DebuggerEntry {
        let symbol_file = symbol_file.into_boxed_slice();
        let (address, size_bytes) = (symbol_file.as_ptr(), symbol_file.len() as u64);
        let new = Entry { next: ptr::null_mut(), previous: ptr::null_mut(), symbol_file: address, size_bytes };
        let entry = Box::into_raw(Box::new(new));
        let _lock = lock();
        // SAFETY: H6 - the lock is held, and the entry is this value's own. Forward links first: whatever the child of a
        // fork has of this, it can follow and edit.
        unsafe {
            let descriptor = &raw mut __jit_debug_descriptor;
            let first = (&raw mut (*descriptor).first).read();
            (&raw mut (*entry).next).write_volatile(first);
            (&raw mut (*descriptor).first).write_volatile(entry);
            if !first.is_null() {
                (&raw mut (*first).previous).write_volatile(entry);
            }
            tell(REGISTER, entry);
        }
        DebuggerEntry { entry, _symbol_file: symbol_file }
    }
}

impl Drop for DebuggerEntry {
    fn drop(&mut self) {
        let entry = self.entry;
        let _lock = lock();
        // SAFETY: H6 - the lock is held, and the entry is in the list since `new`. Backward links first, as above.
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
            tell(UNREGISTER, entry);
            drop(Box::from_raw(entry));
        }
    }
}

/// Has a debugger that is attached look.
///
/// # Safety
/// The lock is held, and `entry` is there: in the list, or just taken out of it.
unsafe fn tell(action: u32, entry: *mut Entry) {
    // SAFETY: H6 - by contract; the function of the interface does nothing, and nobody else reads these words.
    unsafe {
        let descriptor = &raw mut __jit_debug_descriptor;
        (&raw mut (*descriptor).relevant).write_volatile(entry);
        (&raw mut (*descriptor).action).write_volatile(action);
        __jit_debug_register_code();
        // A debugger that attaches later reads the list, and must not find an entry here that is gone by then.
        (&raw mut (*descriptor).action).write_volatile(NO_ACTION);
        (&raw mut (*descriptor).relevant).write_volatile(ptr::null_mut());
    }
}

/// The right to edit the list.
fn lock() -> HeldWord<'static> {
    HeldWord::take(word())
}

fn word() -> &'static MappedU32 {
    // SAFETY: H6 - defined above, or by another copy of this crate: four bytes, aligned, which only this function hands out.
    unsafe { &__jittison_jit_debug_lock_v1 }
}
