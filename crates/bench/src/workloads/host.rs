//! [`HostSession`]: the host of the linked code, a session that defines the functions that the objects call.

use jittison::base::{ExecutorAddr, Name};
use jittison::session::SymbolFlags;
use jittison::{Jit, JitDylib, ResourceTracker};

use super::corpus::{ARGUMENT, Instance};
use super::host_functions::{FUNCTIONS, Run, name};
use crate::measure::scenario::to_text;

/// A session that defines the host's functions, and the dylib for everything that is linked.
pub struct HostSession {
    pub jit: Jit,
    pub dylib: JitDylib,
}

impl HostSession {
    pub fn new() -> Result<HostSession, String> {
        let jit = Jit::new().map_err(to_text)?;
        let flags = SymbolFlags::EXPORTED | SymbolFlags::ABSOLUTE | SymbolFlags::CALLABLE;
        let define =
            |(which, run): (usize, &Run)| (Name::new(&name(which)), ExecutorAddr::new(*run as usize as u64), flags);
        jit.process_dylib().define_absolute(FUNCTIONS.iter().enumerate().map(define)).map_err(to_text)?;
        let dylib = jit.main_dylib().clone();
        Ok(HostSession { jit, dylib })
    }

    /// Adds an object under its own tracker.
    pub fn add(&self, instance: &Instance) -> jittison::error::Result<ResourceTracker> {
        let tracker = self.dylib.create_tracker()?;
        self.jit.add_object(&tracker, &instance.entry, instance.bytes.clone())?;
        Ok(tracker)
    }

    /// Links an object under its own tracker.
    pub fn link(&self, instance: &Instance) -> jittison::error::Result<(ExecutorAddr, ResourceTracker)> {
        let tracker = self.dylib.create_tracker()?;
        self.jit.link_object(&tracker, &instance.entry, instance.bytes.clone())?;
        Ok((self.dylib.lookup_address(&instance.entry)?, tracker))
    }

    /// Checks that nothing is left after everything was removed.
    pub fn check_empty(&self) -> Result<(), String> {
        let (names, pending) = (self.dylib.symbol_count(), self.jit.session().pending_removals().len());
        let remaining = self.jit.memory_statistics();
        match (names, pending, remaining.allocations, remaining.live_bytes) {
            (0, 0, 0, 0) => Ok(()),
            _ => Err(format!("left behind: {names} names, {pending} removals, {remaining:?}")),
        }
    }
}

/// Calls the entry of a linked instance, and checks the result.
///
/// # Safety
/// The address is that of the instance's entry, and its code is not removed during the call.
pub unsafe fn call(address: ExecutorAddr, expected: u64) -> Result<(), String> {
    // SAFETY: the caller promises it, and the entries have this signature.
    let run: Run = unsafe { std::mem::transmute::<usize, Run>(address.value() as usize) };
    compare(run(ARGUMENT), expected)
}

pub fn compare(result: u64, expected: u64) -> Result<(), String> {
    (result == expected).then_some(()).ok_or_else(|| format!("a wrong result: {result:#x} instead of {expected:#x}"))
}
