//! [`DebuggerList`]: reads the list of JIT symbol files as a debugger does. [`gdb`] runs a test under gdb.

use jittison_test_tools::{require, require_that, rerun_below};
use std::sync::atomic::{AtomicU32, Ordering};

/// `struct jit_descriptor` of gdb's interface.
#[repr(C)]
pub struct Descriptor {
    version: u32,
    action: u32,
    relevant: *const Entry,
    first: *const Entry,
}

#[repr(C)]
struct Entry {
    next: *const Entry,
    previous: *const Entry,
    symbol_file: *const u8,
    size_bytes: u64,
}

unsafe extern "C" {
    static __jit_debug_descriptor: Descriptor;
    static __jittison_jit_debug_lock_v1: AtomicU32;
}

/// A list of symbol files, and the lock of the code that edits it.
#[derive(Clone, Copy)]
pub struct DebuggerList {
    pub descriptor: *const Descriptor,
    pub lock: *const AtomicU32,
}

impl DebuggerList {
    /// The list of this program.
    pub fn own() -> DebuggerList {
        DebuggerList { descriptor: &raw const __jit_debug_descriptor, lock: &raw const __jittison_jit_debug_lock_v1 }
    }

    /// Takes the lock, as a thread does that edits the list. The caller unlocks by storing 0.
    pub fn lock(&self) -> &AtomicU32 {
        // SAFETY: an atomic word that lives as long as the list.
        let lock = unsafe { &*self.lock };
        while lock.compare_exchange(0, std::process::id(), Ordering::Acquire, Ordering::Relaxed).is_err() {
            std::thread::yield_now();
        }
        lock
    }

    /// All symbol files in the list, the newest first. Checks that the list is consistent in both directions.
    pub fn files(&self) -> Vec<Vec<u8>> {
        let lock = self.lock();
        // SAFETY: only the holder of the lock edits the list, and this thread holds it.
        let files = unsafe { read(self.descriptor) };
        lock.store(0, Ordering::Release);
        files.unwrap()
    }

    /// Leaves the list as in a child that was forked in the middle of the removal of its second entry: the backward link of the
    /// third entry passes over the second one.
    ///
    /// # Safety
    /// The list has three entries, and no other thread of this process edits it during the call.
    pub unsafe fn interrupt_removal_of_second(&self) {
        // SAFETY: by contract. Entries stay valid while they are in the list.
        unsafe {
            let first = (*self.descriptor).first;
            let third = (*(*first).next).next;
            (&raw mut (*third.cast_mut()).previous).write(first);
        }
    }

    /// The number of listed files that have a symbol of that name.
    pub fn count_with(&self, name: &str) -> usize {
        self.files().iter().filter(|file| has_symbol(file, name)).count()
    }
}

/// The symbol files, or a description of what is wrong with the list. The caller panics only after it has unlocked, because the
/// drops of a failed test take the lock.
///
/// # Safety
/// `descriptor` is valid, and nothing edits its list during the call.
unsafe fn read(descriptor: *const Descriptor) -> Result<Vec<Vec<u8>>, String> {
    // SAFETY: by contract. Entries stay valid while they are in the list.
    unsafe {
        let descriptor = descriptor.read_volatile();
        if (descriptor.version, descriptor.action) != (1, 0) || !descriptor.relevant.is_null() {
            return Err("the descriptor is invalid, or announces a change".to_string());
        }
        let mut files = Vec::new();
        let (mut previous, mut at) = (std::ptr::null(), descriptor.first);
        while !at.is_null() {
            let entry = at.read_volatile();
            if entry.previous != previous {
                return Err(format!(
                    "entry {} follows {previous:p}, but its previous entry is {:p}",
                    files.len(),
                    entry.previous
                ));
            }
            files.push(std::slice::from_raw_parts(entry.symbol_file, entry.size_bytes as usize).to_vec());
            (previous, at) = (at, entry.next);
        }
        Ok(files)
    }
}

/// Whether a symbol file has a symbol of that name.
pub fn has_symbol(file: &[u8], name: &str) -> bool {
    let name = format!("\0{name}\0");
    file.windows(name.len()).any(|bytes| bytes == name.as_bytes())
}

/// A function of the host at which gdb stops.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn jittison_test_checkpoint(number: i64) -> i64 {
    std::hint::black_box(number)
}

/// Runs the calling test under gdb with `commands` and returns gdb's output. `None` if gdb is missing or is not allowed to trace.
pub fn gdb(test: &str, commands: &str) -> Option<String> {
    let preamble = "set pagination off\nset confirm off\nset breakpoint pending on\nset language c\n";
    // Each command is its own argument: a command file ends at the first error.
    let mut gdb = require("gdb")?;
    gdb.args(["-batch", "-nx"])
        .args(preamble.lines().chain(commands.lines()).flat_map(|command| ["-ex", command]))
        .arg("--args");
    let run = rerun_below(gdb, test).output().unwrap();
    let output = String::from_utf8_lossy(&run.stdout).into_owned() + &String::from_utf8_lossy(&run.stderr);
    may_trace(&output).then_some(output)
}

/// Whether gdb, whose output this is, had the right to trace the program. If not, the calling test is skipped.
pub fn may_trace(output: &str) -> bool {
    let refusals = ["ptrace: Operation not permitted", "Could not trace the inferior"];
    require_that(!refusals.iter().any(|refusal| output.contains(refusal)), "the right to trace processes")
}
