//! [`Responsibility`]: `LLVMOrcMaterializationResponsibilityRef` points to one.
//!
//! ORC resolves some of the symbols of a responsibility, and others later. jittison resolves all symbols of a responsibility at
//! once. So the symbols that are resolved move to a responsibility of their own, a *part*.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Arc;

use jittison::base::{ExecutorAddr, Name};
use jittison::session::{
    ClaimedSymbol, DependencyGroup, LookupResult, MaterializationResponsibility, RequiredState, SymbolFlags, SymbolRef,
    SymbolRequest, Visibility,
};
use jittison::{Error, JitDylib};
use parking_lot::Mutex;

use crate::dylib::Dylib;
use crate::entry::{dispose, give, run, run_or_report, slice};
use crate::flags;
use crate::layouts::{DependenceGroup, DependencePair, FlagsPair, SymbolPair, SymbolsList};
use crate::llvm::{self, Opaque};
use crate::names::{Entry, Interned};
use crate::session::Session;
use crate::unit::Unit;

/// A responsibility of the program.
pub(crate) struct Responsibility {
    session: Arc<Session>,
    dylib: *const Dylib,
    initializer: Option<Interned>,
    parts: Mutex<Parts>,
    /// Names that the program borrows until the responsibility goes.
    lent: Mutex<Vec<Interned>>,
}

// SAFETY: the dylib belongs to the session, and may be used by every thread.
unsafe impl Send for Responsibility {}

/// `None` and empty after the symbols were emitted or have failed.
struct Parts {
    unresolved: Option<MaterializationResponsibility>,
    resolved: Vec<MaterializationResponsibility>,
    /// What a program for LLVM 18 or older said before it emits.
    dependencies: Vec<Group>,
}

/// Symbols, and what they depend on. No symbols: all of the responsibility.
struct Group {
    symbols: Option<Vec<Name>>,
    dependencies: Vec<(JitDylib, Name)>,
}

impl Responsibility {
    pub(crate) fn new(
        session: Arc<Session>,
        responsibility: MaterializationResponsibility,
        initializer: Option<Interned>,
    ) -> Responsibility {
        let dylib = session.dylib(&responsibility.dylib());
        let parts = Parts { unresolved: Some(responsibility), resolved: Vec::new(), dependencies: Vec::new() };
        Responsibility { session, dylib, initializer, parts: Mutex::new(parts), lent: Mutex::default() }
    }

    /// # Safety
    /// O1 for the pointer.
    unsafe fn of<'a>(responsibility: *const Responsibility) -> Result<&'a Responsibility, Error> {
        // SAFETY: O1 - the caller promises it.
        unsafe { responsibility.as_ref() }.ok_or_else(|| Error::other("the materialization responsibility is null"))
    }

    /// Gives up the symbols, none of which is resolved.
    pub(crate) fn into_unresolved(self) -> Result<MaterializationResponsibility, Error> {
        let mut parts = self.parts.lock();
        if !parts.resolved.is_empty() {
            return Err(Error::other("an object is emitted for symbols of which some are resolved"));
        }
        parts.unresolved.take().ok_or_else(gone)
    }

    /// Fails all symbols.
    pub(crate) fn fail(&self, error: Error) {
        let (unresolved, resolved) = {
            let mut parts = self.parts.lock();
            (parts.unresolved.take(), std::mem::take(&mut parts.resolved))
        };
        for part in unresolved.into_iter().chain(resolved) {
            part.fail(error.clone());
        }
    }

    /// Uses the unresolved symbols without the lock, because lookups may complete and call the program.
    fn edit<R>(&self, act: impl FnOnce(&mut MaterializationResponsibility) -> Result<R, Error>) -> Result<R, Error> {
        let mut unresolved = self.parts.lock().unresolved.take().ok_or_else(gone)?;
        let outcome = act(&mut unresolved);
        self.parts.lock().unresolved = Some(unresolved);
        outcome
    }

    fn resolve(&self, addresses: &HashMap<Name, ExecutorAddr>) -> Result<(), Error> {
        let mut unresolved = self.parts.lock().unresolved.take().ok_or_else(gone)?;
        let is_given = |claimed: &ClaimedSymbol| addresses.contains_key(&claimed.name);
        let has_none = |claimed: &ClaimedSymbol| claimed.flags.contains(SymbolFlags::SIDE_EFFECTS_ONLY);
        let is_all = unresolved.symbols().iter().all(|claimed| is_given(claimed) || has_none(claimed));
        let part = if is_all {
            Ok((unresolved, None))
        } else {
            let names: Vec<&str> = addresses.keys().map(Name::as_str).collect();
            match unresolved.delegate(&names) {
                Ok(part) => Ok((part, Some(unresolved))),
                Err(error) => Err((error, unresolved)),
            }
        };
        let (part, rest) = match part {
            Ok(split) => split,
            Err((error, unresolved)) => {
                self.parts.lock().unresolved = Some(unresolved);
                return Err(error);
            }
        };
        let outcome = part.notify_resolved(|claimed| addresses.get(&claimed.name).copied());
        let mut parts = self.parts.lock();
        parts.resolved.push(part);
        parts.unresolved = rest;
        outcome
    }

    /// Emits all symbols with what they depend on.
    fn emit(&self, mut groups: Vec<Group>) -> Result<(), Error> {
        let mut parts = self.parts.lock();
        groups.append(&mut parts.dependencies);
        let emitted: Vec<_> = parts.unresolved.take().into_iter().chain(std::mem::take(&mut parts.resolved)).collect();
        drop(parts);
        if emitted.is_empty() {
            return Err(gone());
        }
        Emission::begin(self, emitted, groups)
    }

    /// Lends names to the program.
    fn lend(&self, names: impl Iterator<Item = Name>) -> Result<Vec<*const Entry>, Error> {
        let names = names.map(|name| Interned::of(name.as_str())).collect::<Result<Vec<_>, _>>()?;
        let entries = names.iter().map(Interned::as_raw).collect();
        self.lent.lock().extend(names);
        Ok(entries)
    }

    /// The symbols that are not emitted, with their flags.
    fn symbols(&self) -> Vec<(Name, SymbolFlags)> {
        let parts = self.parts.lock();
        let of = |part: &MaterializationResponsibility| {
            part.symbols().iter().map(|claimed| (claimed.name.clone(), claimed.flags)).collect::<Vec<_>>()
        };
        parts.unresolved.iter().chain(&parts.resolved).flat_map(of).collect()
    }
}

#[cold]
fn gone() -> Error {
    Error::other(
        "the symbols of the materialization responsibility are emitted or have failed, or another thread uses it",
    )
}

/// Symbols that wait for the addresses of their dependencies. Nobody waits for it: the last lookup emits.
struct Emission {
    parts: Vec<MaterializationResponsibility>,
    groups: Vec<Group>,
    /// By dylib and name. Absolute symbols are not in it.
    found: HashMap<(u64, Name), SymbolRef>,
    failure: Option<Error>,
    pending: usize,
    outcome: Option<Result<(), Error>>,
}

impl Emission {
    fn begin(of: &Responsibility, parts: Vec<MaterializationResponsibility>, groups: Vec<Group>) -> Result<(), Error> {
        let mut wanted: HashMap<u64, (JitDylib, Vec<Name>)> = HashMap::new();
        for (dylib, name) in groups.iter().flat_map(|group| &group.dependencies) {
            if own_symbol(&parts, dylib, name).is_none() {
                let (_, names) = wanted.entry(dylib.id()).or_insert_with(|| (dylib.clone(), Vec::new()));
                if !names.contains(name) {
                    names.push(name.clone());
                }
            }
        }
        let (pending, found) = (wanted.len(), HashMap::new());
        let emission = Emission { parts, groups, found, failure: None, pending, outcome: None };
        if wanted.is_empty() {
            return emission.finish();
        }
        let emission = Arc::new(Mutex::new(emission));
        let session = of.session.jit()?.session().clone();
        for (dylib, names) in wanted.into_values() {
            let (shared, id) = (emission.clone(), dylib.id());
            let requests: Vec<_> = names.iter().map(|name| SymbolRequest::required(name)).collect();
            let kept = names.clone();
            let tell = move |outcome| Emission::arrived(&shared, id, kept, outcome);
            session.lookup_then(&[(dylib, Visibility::All)], &requests, RequiredState::Resolved, tell);
        }
        emission.lock().outcome.take().unwrap_or(Ok(()))
    }

    /// The addresses of the dependencies in one dylib are known.
    fn arrived(shared: &Mutex<Emission>, dylib: u64, names: Vec<Name>, outcome: Result<Vec<LookupResult>, Error>) {
        let mut emission = shared.lock();
        match outcome {
            Ok(results) => {
                let symbols = results.into_iter().map(|result| result.symbol);
                let found = names.into_iter().zip(symbols).filter_map(|(name, symbol)| Some(((dylib, name), symbol?)));
                emission.found.extend(found);
            }
            Err(error) => emission.failure = Some(error),
        }
        emission.pending -= 1;
        if emission.pending > 0 {
            return;
        }
        let (parts, groups) = (std::mem::take(&mut emission.parts), std::mem::take(&mut emission.groups));
        let (found, failure) = (std::mem::take(&mut emission.found), emission.failure.take());
        drop(emission);
        let outcome = Emission { parts, groups, found, failure, pending: 0, outcome: None }.finish();
        shared.lock().outcome = Some(outcome);
    }

    fn finish(mut self) -> Result<(), Error> {
        let parts = std::mem::take(&mut self.parts);
        if let Some(error) = self.failure {
            parts.into_iter().for_each(|part| part.fail(error.clone()));
            return Err(error);
        }
        let groups: Vec<_> = parts.iter().map(|part| self.groups_of(part, &parts)).collect();
        let emitted: Vec<_> =
            parts.into_iter().zip(groups).map(|(part, groups)| part.notify_emitted_groups(groups)).collect();
        emitted.into_iter().collect()
    }

    /// The groups of one part. A symbol is in one group at most, so groups that share symbols are joined.
    fn groups_of(
        &self,
        part: &MaterializationResponsibility,
        parts: &[MaterializationResponsibility],
    ) -> Vec<DependencyGroup> {
        let dependencies_of = |name: &Name| {
            let is_of = |group: &&Group| group.symbols.as_ref().is_none_or(|symbols| symbols.contains(name));
            let named = self.groups.iter().filter(is_of).flat_map(|group| &group.dependencies);
            let find = |(dylib, name): &(JitDylib, Name)| {
                own_symbol(parts, dylib, name).or_else(|| self.found.get(&(dylib.id(), name.clone())).cloned())
            };
            named.filter_map(find).collect::<Vec<_>>()
        };
        let group = |claimed: &ClaimedSymbol| {
            let dependencies = dependencies_of(&claimed.name);
            (!dependencies.is_empty()).then(|| DependencyGroup { symbols: vec![claimed.name.clone()], dependencies })
        };
        part.symbols().iter().filter_map(group).collect()
    }
}

/// A symbol of the same responsibility.
fn own_symbol(parts: &[MaterializationResponsibility], dylib: &JitDylib, name: &Name) -> Option<SymbolRef> {
    parts.iter().filter(|part| part.dylib() == *dylib).find_map(|part| part.symbol(name.as_str()))
}

/// Takes names of the program.
///
/// # Safety
/// O1 for the list, O2 for the names.
unsafe fn take_names(list: SymbolsList) -> Result<Vec<Name>, Error> {
    // SAFETY: O1, O2 - the caller promises both. All are taken before one can fail.
    let taken: Vec<_> =
        unsafe { slice(list.symbols, list.length).iter().map(|name| Interned::from_raw(*name)).collect() };
    taken.into_iter().map(|name| name?.name()).collect()
}

/// Takes dependencies of the program.
///
/// # Safety
/// O1 for the pairs, O2 for the names.
unsafe fn take_dependencies(pairs: *const DependencePair, count: usize) -> Result<Vec<(JitDylib, Name)>, Error> {
    let mut taken = Vec::new();
    // SAFETY: O1, O2 - the caller promises them.
    for pair in unsafe { slice(pairs, count) } {
        // SAFETY: as above.
        let (names, dylib) = unsafe { (take_names(pair.names)?, Dylib::of(pair.dylib)?) };
        taken.extend(names.into_iter().map(|name| (dylib.dylib.clone(), name)));
    }
    Ok(taken)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcDisposeMaterializationResponsibility(responsibility: *mut Responsibility) {
    // SAFETY: O2 - the program gives it away. What it still owes fails.
    unsafe { dispose(responsibility) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcMaterializationResponsibilityGetTargetDylib(
    responsibility: *const Responsibility,
) -> *const Dylib {
    // SAFETY: O1 - the program promises it.
    unsafe { &*responsibility }.dylib
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcMaterializationResponsibilityGetExecutionSession(
    responsibility: *const Responsibility,
) -> *const Session {
    // SAFETY: O1 - the program promises it.
    Arc::as_ptr(&unsafe { &*responsibility }.session)
}

/// An array that the program frees with one of the two functions below.
fn give_array<T>(values: &[T]) -> *mut T {
    let bytes = std::mem::size_of_val(values).max(1);
    // SAFETY: the size is not zero; the array has room for the values.
    unsafe {
        let array = libc::malloc(bytes).cast::<T>();
        if array.is_null() {
            std::alloc::handle_alloc_error(std::alloc::Layout::for_value(values));
        }
        std::ptr::copy_nonoverlapping(values.as_ptr(), array, values.len());
        array
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcMaterializationResponsibilityGetSymbols(
    responsibility: *const Responsibility,
    count: *mut usize,
) -> *mut FlagsPair {
    // SAFETY: O1 - the program promises both.
    let (responsibility, count) = unsafe { (&*responsibility, &mut *count) };
    *count = 0;
    run_or_report(Some(&responsibility.session), give_array(&[]), || {
        let symbols = responsibility.symbols();
        let names = responsibility.lend(symbols.iter().map(|(name, _)| name.clone()))?;
        let pair =
            |(name, (_, flags)): (*const Entry, &(Name, SymbolFlags))| FlagsPair { name, flags: flags::show(*flags) };
        let pairs: Vec<_> = names.into_iter().zip(&symbols).map(pair).collect();
        *count = pairs.len();
        Ok(give_array(&pairs))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcDisposeCSymbolFlagsMap(pairs: *mut FlagsPair) {
    // SAFETY: O2 - `give_array` made it.
    unsafe { libc::free(pairs.cast()) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcMaterializationResponsibilityGetInitializerSymbol(
    responsibility: *const Responsibility,
) -> *const Entry {
    // SAFETY: O1 - the program promises it.
    unsafe { &*responsibility }.initializer.as_ref().map_or(std::ptr::null(), Interned::as_raw)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcMaterializationResponsibilityGetRequestedSymbols(
    responsibility: *const Responsibility,
    count: *mut usize,
) -> *mut *const Entry {
    // SAFETY: O1 - the program promises both.
    let (responsibility, count) = unsafe { (&*responsibility, &mut *count) };
    *count = 0;
    run_or_report(Some(&responsibility.session), give_array(&[]), || {
        let requested: Vec<Name> = {
            let parts = responsibility.parts.lock();
            parts.unresolved.iter().chain(&parts.resolved).flat_map(|part| part.requested_symbols()).collect()
        };
        let names = responsibility.lend(requested.into_iter())?;
        *count = names.len();
        Ok(give_array(&names))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcDisposeSymbols(symbols: *mut *const Entry) {
    // SAFETY: O2 - `give_array` made it.
    unsafe { libc::free(symbols.cast()) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcMaterializationResponsibilityNotifyResolved(
    responsibility: *const Responsibility,
    symbols: *const SymbolPair,
    count: usize,
) -> Opaque {
    run(|| {
        // SAFETY: O1, O2 - the program promises the pairs, and gives the names away.
        let (responsibility, symbols) =
            unsafe { (Responsibility::of(responsibility)?, crate::unit::take_symbols(symbols, count)?) };
        responsibility.resolve(&symbols.into_iter().map(|(name, address, _)| (name, address)).collect())
    })
}

/// LLVM 18 and older have the first argument only.
#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcMaterializationResponsibilityNotifyEmitted(
    responsibility: *const Responsibility,
    groups: *const DependenceGroup,
    count: usize,
) -> Opaque {
    run(|| {
        let count = if llvm::version() >= 19 { count } else { 0 };
        let mut taken = Vec::new();
        // SAFETY: O1 - the program promises them.
        for group in unsafe { slice(if count == 0 { std::ptr::null() } else { groups }, count) } {
            // SAFETY: O1, O2 - the program promises the arrays, and gives the names away.
            let (symbols, dependencies) =
                unsafe { (take_names(group.symbols)?, take_dependencies(group.dependencies, group.count)?) };
            taken.push(Group { symbols: Some(symbols), dependencies });
        }
        // SAFETY: O1 - the program promises it.
        unsafe { Responsibility::of(responsibility) }?.emit(taken)
    })
}

/// LLVM 18 and older.
#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcMaterializationResponsibilityAddDependencies(
    responsibility: *const Responsibility,
    name: *const Entry,
    dependencies: *const DependencePair,
    count: usize,
) {
    // SAFETY: O1 - the program promises it.
    let responsibility = unsafe { &*responsibility };
    run_or_report(Some(&responsibility.session), (), || {
        // SAFETY: O1, O2 - the program promises the pairs, and gives their names away. It keeps the first name.
        let (dependencies, symbols) =
            unsafe { (take_dependencies(dependencies, count)?, vec![crate::names::name_of(name)?]) };
        responsibility.parts.lock().dependencies.push(Group { symbols: Some(symbols), dependencies });
        Ok(())
    });
}

/// LLVM 18 and older.
#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcMaterializationResponsibilityAddDependenciesForAll(
    responsibility: *const Responsibility,
    dependencies: *const DependencePair,
    count: usize,
) {
    // SAFETY: O1 - the program promises it.
    let responsibility = unsafe { &*responsibility };
    run_or_report(Some(&responsibility.session), (), || {
        // SAFETY: O1, O2 - the program promises the pairs, and gives their names away.
        let dependencies = unsafe { take_dependencies(dependencies, count) }?;
        responsibility.parts.lock().dependencies.push(Group { symbols: None, dependencies });
        Ok(())
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcMaterializationResponsibilityDefineMaterializing(
    responsibility: *const Responsibility,
    symbols: *const FlagsPair,
    count: usize,
) -> Opaque {
    run(|| {
        // SAFETY: O1, O2 - the program promises the pairs, and gives the names away.
        let (responsibility, symbols) =
            unsafe { (Responsibility::of(responsibility)?, crate::unit::take_flags(symbols, count)?) };
        responsibility.edit(|unresolved| unresolved.define_materializing(&symbols).map(drop))
    })
}

/// Does nothing if the symbols have failed already.
#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcMaterializationResponsibilityFailMaterialization(responsibility: *const Responsibility) {
    // SAFETY: O1 - the program promises it.
    let responsibility = unsafe { &*responsibility };
    run_or_report(Some(&responsibility.session), (), || {
        responsibility.fail(Error::other("the materialization unit failed"));
        Ok(())
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcMaterializationResponsibilityReplace(
    responsibility: *const Responsibility,
    unit: *mut Unit,
) -> Opaque {
    run(|| {
        // SAFETY: O1, O2 - the program promises the one, and gives the other away.
        let (responsibility, unit) = unsafe { (Responsibility::of(responsibility)?, Box::from_raw(unit)) };
        let dylib = responsibility.dylib;
        responsibility.edit(|unresolved| unit.replace(unresolved, dylib))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcMaterializationResponsibilityDelegate(
    responsibility: *const Responsibility,
    symbols: *const *const Entry,
    count: usize,
    result: *mut *mut Responsibility,
) -> Opaque {
    run(|| {
        // SAFETY: O1, O2 - the program promises the pointers, and gives the names away.
        let (responsibility, names) =
            unsafe { (Responsibility::of(responsibility)?, take_names(SymbolsList { symbols, length: count })?) };
        let names: Vec<&str> = names.iter().map(Name::as_str).collect();
        let delegated = responsibility.edit(|unresolved| unresolved.delegate(&names))?;
        let made = Responsibility::new(responsibility.session.clone(), delegated, None);
        // SAFETY: O1 - the program promises it.
        unsafe { *result = give(made) };
        Ok(())
    })
}

/// `LLVMOrcMaterializationUnitMaterializeFunction`.
pub(crate) type Materialize = unsafe extern "C-unwind" fn(*mut c_void, *mut Responsibility);
