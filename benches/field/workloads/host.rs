//! The host of the linked code: its functions that the objects call, and a session in which they are found.

use jittison::base::{ExecutorAddr, Name};
use jittison::session::SymbolFlags;
use jittison::{Jit, JitDylib, ResourceTracker};

use super::corpus::{ARGUMENT, Instance};
use crate::scenario::words;

/// What each of [`FUNCTIONS`] adds, after a turn to the left by one more than its number.
pub const ADDEND: u64 = 0x2545_f491_4f6c_dd1d;

/// What the entries are.
pub type Run = extern "C" fn(u64) -> u64;

/// What objects may call.
pub const FUNCTIONS: [Run; 16] = [
    turn::<0>, turn::<1>, turn::<2>, turn::<3>, turn::<4>, turn::<5>, turn::<6>, turn::<7>, turn::<8>, turn::<9>,
    turn::<10>, turn::<11>, turn::<12>, turn::<13>, turn::<14>, turn::<15>,
];

extern "C" fn turn<const BY: u32>(x: u64) -> u64 {
    x.rotate_left(BY + 1).wrapping_add(ADDEND)
}

/// By what name objects call a function of [`FUNCTIONS`].
pub fn name(which: usize) -> String {
    format!("host_{which:02}")
}

/// A session that knows the host's functions, and the dylib that everything is linked into.
pub struct House {
    pub jit: Jit,
    pub dylib: JitDylib,
}

impl House {
    pub fn new() -> Result<House, String> {
        let jit = Jit::new().map_err(words)?;
        let flags = SymbolFlags::EXPORTED | SymbolFlags::ABSOLUTE | SymbolFlags::CALLABLE;
        let define =
            |(which, run): (usize, &Run)| (Name::new(&name(which)), ExecutorAddr::new(*run as usize as u64), flags);
        jit.process_dylib().define_absolute(FUNCTIONS.iter().enumerate().map(define)).map_err(words)?;
        let dylib = jit.main_dylib().clone();
        Ok(House { jit, dylib })
    }

    /// Adds an object under a tracker of its own.
    pub fn add(&self, instance: &Instance) -> jittison::error::Result<ResourceTracker> {
        let tracker = self.dylib.create_tracker()?;
        self.jit.add_object(&tracker, &instance.entry, instance.bytes.clone())?;
        Ok(tracker)
    }

    /// Links an object under a tracker of its own.
    pub fn link(&self, instance: &Instance) -> jittison::error::Result<(ExecutorAddr, ResourceTracker)> {
        let tracker = self.dylib.create_tracker()?;
        self.jit.link_object(&tracker, &instance.entry, instance.bytes.clone())?;
        Ok((self.dylib.lookup_address(&instance.entry)?, tracker))
    }

    /// That nothing is left, once everything was removed.
    pub fn check_empty(&self) -> Result<(), String> {
        let (names, pending) = (self.dylib.symbol_count(), self.jit.session().pending_removals().len());
        let left = self.jit.memory_statistics();
        match (names, pending, left.allocations, left.live_bytes) {
            (0, 0, 0, 0) => Ok(()),
            _ => Err(format!("left behind: {names} names, {pending} removals, {left:?}")),
        }
    }
}

/// Calls the entry of an instance that is linked, and compares.
///
/// # Safety
/// The address is that of the instance's entry, whose code is not removed meanwhile.
pub unsafe fn call(address: ExecutorAddr, expected: u64) -> Result<(), String> {
    // SAFETY: the caller's word, and the entries' signature.
    let run: Run = unsafe { std::mem::transmute::<usize, Run>(address.value() as usize) };
    compare(run(ARGUMENT), expected)
}

pub fn compare(result: u64, expected: u64) -> Result<(), String> {
    (result == expected).then_some(()).ok_or_else(|| format!("a wrong result: {result:#x}, not {expected:#x}"))
}
