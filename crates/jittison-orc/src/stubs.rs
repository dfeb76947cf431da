//! Lazy re-exports, and the two managers that ORC makes them with. jittison has stubs of its own, so the managers carry only
//! what a program says to them.

use std::ffi::c_char;

use jittison::session::Alias;
use jittison::{Error, ResourceTracker};

use crate::dylib::Dylib;
use crate::entry::{dispose, give, run, slice};
use crate::flags;
use crate::layouts::AliasPair;
use crate::llvm::Opaque;
use crate::names::Interned;
use crate::session::Session;
use crate::unit::Unit;

/// `LLVMOrcIndirectStubsManagerRef` points to one.
pub(crate) struct IndirectStubsManager(());

/// `LLVMOrcLazyCallThroughManagerRef` points to one.
pub(crate) struct LazyCallThroughManager {
    /// Where a call continues whose function cannot be linked. Zero: the process aborts with a message.
    error_handler: u64,
}

/// Names that stand for functions of `source`, which are linked at their first calls.
pub(crate) struct LazyAliases {
    error_handler: u64,
    source: *const Dylib,
    aliases: Vec<Alias>,
}

impl LazyAliases {
    pub(crate) fn define(&self, tracker: &ResourceTracker) -> Result<(), Error> {
        // SAFETY: O1 - the program promised it with the unit.
        let source = unsafe { Dylib::of(self.source) }?;
        let session = source.session()?;
        session.jit()?.lazy_reexport(tracker, &source.dylib, &self.aliases)?;
        let dylib = tracker.dylib();
        for alias in &self.aliases {
            session.set_lazy_failure(dylib.name(), alias.name.as_str(), self.error_handler);
        }
        Ok(())
    }
}

/// Takes aliases of the program.
///
/// # Safety
/// O1 for the pairs, O2 for the names.
unsafe fn take_aliases(pairs: *const AliasPair, count: usize) -> Result<Vec<Alias>, Error> {
    let take = |pair: &AliasPair| {
        // SAFETY: O2 - the caller promises it. All names are taken before one can fail.
        unsafe { (Interned::from_raw(pair.name), Interned::from_raw(pair.aliasee), pair.flags) }
    };
    // SAFETY: O1 - the caller promises it.
    let taken: Vec<_> = unsafe { slice(pairs, count) }.iter().map(take).collect();
    let read = |(name, aliasee, flags): (Result<Interned, Error>, Result<Interned, Error>, _)| {
        Ok(Alias { name: name?.name()?, aliasee: aliasee?.name()?, flags: flags::read(flags) })
    };
    taken.into_iter().map(read).collect()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcLazyReexports(
    calls: *const LazyCallThroughManager,
    _stubs: *const IndirectStubsManager,
    source: *const Dylib,
    aliases: *const AliasPair,
    count: usize,
) -> *mut Unit {
    // SAFETY: O1, O2 - the program promises the pointers, and gives the names away.
    let (aliases, error_handler) = unsafe { (take_aliases(aliases, count), (*calls).error_handler) };
    let lazy = |aliases| Unit::Lazy(LazyAliases { error_handler, source, aliases });
    give(aliases.map_or_else(Unit::Invalid, lazy))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcCreateLocalIndirectStubsManager(_triple: *const c_char) -> *mut IndirectStubsManager {
    give(IndirectStubsManager(()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcDisposeIndirectStubsManager(stubs: *mut IndirectStubsManager) {
    // SAFETY: O2 - the program gives it away.
    unsafe { dispose(stubs) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcCreateLocalLazyCallThroughManager(
    _triple: *const c_char,
    _session: *const Session,
    error_handler: u64,
    result: *mut *mut LazyCallThroughManager,
) -> Opaque {
    run(|| {
        // SAFETY: O1 - the program promises it.
        unsafe { *result = give(LazyCallThroughManager { error_handler }) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcDisposeLazyCallThroughManager(calls: *mut LazyCallThroughManager) {
    // SAFETY: O2 - the program gives it away.
    unsafe { dispose(calls) };
}
