//! The list of generated code that debuggers read, as they read it; and gdb.

use crate::support::{rerun_below, skip};
use std::process::Command;
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

/// A list, with the lock of who edits it.
#[derive(Clone, Copy)]
pub struct DebuggerList {
    pub descriptor: *const Descriptor,
    pub lock: *const AtomicU32,
}

impl DebuggerList {
    /// The program's own.
    pub fn own() -> DebuggerList {
        DebuggerList { descriptor: &raw const __jit_debug_descriptor, lock: &raw const __jittison_jit_debug_lock_v1 }
    }

    /// Holds the lock, as a thread in the middle of an edit does.
    pub fn lock(&self) -> &AtomicU32 {
        // SAFETY: one word, which is atomic, and there as long as the list.
        let lock = unsafe { &*self.lock };
        while lock.compare_exchange(0, std::process::id(), Ordering::Acquire, Ordering::Relaxed).is_err() {
            std::thread::yield_now();
        }
        lock
    }

    /// All symbol files in the list, the newest first; having seen that it is whole in both directions.
    pub fn files(&self) -> Vec<Vec<u8>> {
        let lock = self.lock();
        // SAFETY: the list is only touched by who holds the lock, as this does.
        let files = unsafe { read(self.descriptor) };
        lock.store(0, Ordering::Release);
        files.unwrap()
    }

    /// How many listed files have that name among their symbols.
    pub fn count_with(&self, name: &str) -> usize {
        self.files().iter().filter(|file| has_symbol(file, name)).count()
    }
}

/// The symbol files, or what is wrong with the list: said once the lock is free, for what a failed test drops takes it.
///
/// # Safety
/// `descriptor` is one, whose list nobody edits meanwhile.
unsafe fn read(descriptor: *const Descriptor) -> Result<Vec<Vec<u8>>, String> {
    // SAFETY: by contract; entries stay while they are in the list.
    unsafe {
        let descriptor = descriptor.read_volatile();
        if (descriptor.version, descriptor.action) != (1, 0) || !descriptor.relevant.is_null() {
            return Err("the descriptor tells of a change, or is none".to_string());
        }
        let mut files = Vec::new();
        let (mut previous, mut at) = (std::ptr::null(), descriptor.first);
        while !at.is_null() {
            let entry = at.read_volatile();
            if entry.previous != previous {
                return Err(format!("entry {} is behind {previous:p} and says {:p}", files.len(), entry.previous));
            }
            files.push(std::slice::from_raw_parts(entry.symbol_file, entry.size_bytes as usize).to_vec());
            (previous, at) = (at, entry.next);
        }
        Ok(files)
    }
}

/// Whether a symbol file has that name among its symbols.
pub fn has_symbol(file: &[u8], name: &str) -> bool {
    let name = format!("\0{name}\0");
    file.windows(name.len()).any(|bytes| bytes == name.as_bytes())
}

/// Where gdb stops in the host.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn jittison_test_checkpoint(number: i64) -> i64 {
    std::hint::black_box(number)
}

/// What gdb says of this very test, run alone, when it is told `commands`; `None` where gdb is missing or may not trace.
pub fn gdb(test: &str, commands: &str) -> Option<String> {
    let preamble = "set pagination off\nset confirm off\nset breakpoint pending on\nset language c\n";
    // One by one: a file of commands ends at the first error.
    let mut gdb = Command::new("gdb");
    gdb.args(["-batch", "-nx"])
        .args(preamble.lines().chain(commands.lines()).flat_map(|command| ["-ex", command]))
        .arg("--args");
    let Ok(run) = rerun_below(gdb, test).output() else {
        skip("gdb");
        return None;
    };
    let told = String::from_utf8_lossy(&run.stdout).into_owned() + &String::from_utf8_lossy(&run.stderr);
    if told.contains("ptrace: Operation not permitted") || told.contains("Could not trace the inferior") {
        skip("the right to trace processes");
        return None;
    }
    Some(told)
}
