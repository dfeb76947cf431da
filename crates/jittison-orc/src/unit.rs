//! Materialisation units of the program: `LLVMOrcMaterializationUnitRef` points to a [`Unit`].

use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;

use jittison::base::{ExecutorAddr, Name};
use jittison::session::{MaterializationResponsibility, MaterializationUnit, SymbolFlags};
use jittison::{Error, ResourceTracker};
use parking_lot::Mutex;

use crate::dylib::Dylib;
use crate::entry::{dispose, give, run, slice, take_back};
use crate::flags;
use crate::layouts::{FlagsPair, SymbolPair};
use crate::llvm::Opaque;
use crate::names::{Entry, Interned};
use crate::responsibility::{Materialize, Responsibility};
use crate::stubs::LazyAliases;

/// A unit that no dylib has yet.
pub(crate) enum Unit {
    Absolute(Vec<(Name, ExecutorAddr, SymbolFlags)>),
    Custom(Arc<Custom>),
    Lazy(LazyAliases),
    /// What the program gave is not usable. Its definition fails.
    Invalid(Error),
}

/// `LLVMOrcMaterializationUnitDiscardFunction`.
type Discard = unsafe extern "C-unwind" fn(*mut c_void, *const Dylib, *const Entry);
/// `LLVMOrcMaterializationUnitDestroyFunction`.
type Destroy = unsafe extern "C-unwind" fn(*mut c_void);

/// A unit that a callback materialises. A failed definition leaves it to the program.
pub(crate) struct Custom {
    name: String,
    symbols: Vec<(Name, SymbolFlags)>,
    /// Its name, for the responsibility.
    initializer: Option<Interned>,
    /// `None` after the callback has it. A null context is not destroyed, as in ORC.
    context: Mutex<Option<usize>>,
    materialize: Materialize,
    discard: Option<Discard>,
    destroy: Option<Destroy>,
}

impl Drop for Custom {
    fn drop(&mut self) {
        if let Some(context) = self.context.get_mut().take()
            && context != 0
            && let Some(destroy) = self.destroy
        {
            // SAFETY: O3 - the program promises it; the callback that materialises was not called.
            unsafe { destroy(context as *mut c_void) };
        }
    }
}

/// A custom unit in a dylib.
struct Defined {
    unit: Arc<Custom>,
    dylib: *const Dylib,
}

// SAFETY: the session owns the dylib, which may be used by every thread; O3 for the callbacks.
unsafe impl Send for Defined {}

impl MaterializationUnit for Defined {
    fn name(&self) -> &str {
        &self.unit.name
    }

    fn symbols(&self) -> &[(Name, SymbolFlags)] {
        &self.unit.symbols
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        // SAFETY: the session owns the dylib, and has called this.
        let session = unsafe { Dylib::of(self.dylib) }.and_then(Dylib::session);
        let (session, context) = match (session, self.unit.context.lock().take()) {
            (Ok(session), Some(context)) => (session, context),
            (Err(error), _) => return responsibility.fail(error),
            (_, None) => return responsibility.fail(Error::other("the unit was materialised before")),
        };
        let initializer = self.unit.initializer.as_ref().and_then(|name| {
            let is_owed =
                responsibility.symbols().iter().any(|claimed| name.name().is_ok_and(|name| name == claimed.name));
            is_owed.then(|| Interned::of(name.name().ok()?.as_str()).ok()).flatten()
        });
        let given = give(Responsibility::new(session, responsibility, initializer));
        // SAFETY: O3 - the program promises the callback, which owns both arguments.
        unsafe { (self.unit.materialize)(context as *mut c_void, given) };
    }

    fn discard(&mut self, name: &str) {
        let (Some(discard), Ok(name)) = (self.unit.discard, Interned::of(name)) else { return };
        let context = self.unit.context.lock().unwrap_or(0);
        // SAFETY: O3 - the program promises the callback. The name stays until it returns.
        unsafe { discard(context as *mut c_void, self.dylib, name.as_raw()) };
    }
}

/// Absolute symbols that take the place of a unit.
struct Absolute {
    symbols: Vec<(Name, SymbolFlags)>,
    addresses: Vec<ExecutorAddr>,
}

impl MaterializationUnit for Absolute {
    fn name(&self) -> &str {
        "absolute symbols"
    }

    fn symbols(&self) -> &[(Name, SymbolFlags)] {
        &self.symbols
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        let address_of = |name: &Name| {
            let position = self.symbols.iter().position(|(own, _)| own == name)?;
            Some(self.addresses[position])
        };
        match responsibility.notify_resolved(|claimed| address_of(&claimed.name)) {
            // The lookups that wait get the outcome.
            Ok(()) => drop(responsibility.notify_emitted(Vec::new())),
            Err(error) => responsibility.fail(error),
        }
    }
}

impl Unit {
    /// Defines the unit. On failure the program may use it again.
    fn define(&self, tracker: &ResourceTracker, dylib: *const Dylib) -> Result<(), Error> {
        match self {
            Unit::Absolute(symbols) => tracker.define_absolute(symbols.clone()),
            Unit::Custom(unit) => tracker.define(Defined { unit: unit.clone(), dylib }),
            Unit::Lazy(aliases) => aliases.define(tracker),
            Unit::Invalid(error) => Err(error.clone()),
        }
    }

    /// Gives symbols of a responsibility back to this unit.
    pub(crate) fn replace(
        self,
        responsibility: &mut MaterializationResponsibility,
        dylib: *const Dylib,
    ) -> Result<(), Error> {
        match self {
            Unit::Absolute(symbols) => {
                let (symbols, addresses) =
                    symbols.into_iter().map(|(name, address, flags)| ((name, flags), address)).unzip();
                responsibility.replace(Absolute { symbols, addresses })
            }
            Unit::Custom(unit) => responsibility.replace(Defined { unit, dylib }),
            Unit::Lazy(_) => Err(Error::other(
                "lazy re-exports cannot replace symbols of a responsibility; define them in a JITDylib",
            )),
            Unit::Invalid(error) => Err(error),
        }
    }
}

/// Takes symbols of the program, with their addresses.
///
/// # Safety
/// O1 for the pairs, O2 for the names.
pub(crate) unsafe fn take_symbols(
    pairs: *const SymbolPair,
    count: usize,
) -> Result<Vec<(Name, ExecutorAddr, SymbolFlags)>, Error> {
    // SAFETY: O1, O2 - the caller promises both. All names are taken before one can fail.
    let taken: Vec<_> =
        unsafe { slice(pairs, count).iter().map(|pair| (Interned::from_raw(pair.name), pair.symbol)).collect() };
    let read = |(name, symbol): (Result<Interned, Error>, crate::layouts::Evaluated)| {
        Ok((name?.name()?, ExecutorAddr::new(symbol.address), flags::read(symbol.flags)))
    };
    taken.into_iter().map(read).collect()
}

/// Takes symbols of the program.
///
/// # Safety
/// O1 for the pairs, O2 for the names.
pub(crate) unsafe fn take_flags(pairs: *const FlagsPair, count: usize) -> Result<Vec<(Name, SymbolFlags)>, Error> {
    // SAFETY: O1, O2 - the caller promises both. All names are taken before one can fail.
    let taken: Vec<_> =
        unsafe { slice(pairs, count).iter().map(|pair| (Interned::from_raw(pair.name), pair.flags)).collect() };
    taken.into_iter().map(|(name, flags)| Ok((name?.name()?, flags::read(flags)))).collect()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcAbsoluteSymbols(symbols: *const SymbolPair, count: usize) -> *mut Unit {
    // SAFETY: O1, O2 - the program promises the pairs, and gives the names away.
    let symbols = unsafe { take_symbols(symbols, count) };
    give(symbols.map_or_else(Unit::Invalid, Unit::Absolute))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcCreateCustomMaterializationUnit(
    name: *const c_char,
    context: *mut c_void,
    symbols: *const FlagsPair,
    count: usize,
    initializer: *const Entry,
    materialize: Materialize,
    discard: Option<Discard>,
    destroy: Option<Destroy>,
) -> *mut Unit {
    // SAFETY: O1, O2 - the program promises the pairs and the name, and gives the names of symbols away.
    let (name, symbols, initializer) = unsafe {
        let initializer = (!initializer.is_null()).then(|| Interned::from_raw(initializer).ok()).flatten();
        (CStr::from_ptr(name).to_string_lossy().into_owned(), take_flags(symbols, count), initializer)
    };
    let custom = |symbols| {
        let context = Mutex::new(Some(context as usize));
        Unit::Custom(Arc::new(Custom { name, symbols, initializer, context, materialize, discard, destroy }))
    };
    give(symbols.map_or_else(Unit::Invalid, custom))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcDisposeMaterializationUnit(unit: *mut Unit) {
    // SAFETY: O2 - the program gives it away.
    unsafe { dispose(unit) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcJITDylibDefine(dylib: *const Dylib, unit: *mut Unit) -> Opaque {
    run(|| {
        // SAFETY: O1 - the program promises both.
        let (of, given) = unsafe { (Dylib::of(dylib)?, &*unit) };
        given.define(&of.dylib.default_tracker()?, dylib)?;
        // SAFETY: O2 - the definition succeeded, so the program has given it away.
        unsafe { take_back(unit) };
        Ok(())
    })
}
