//! Materialisation units of the embedder: symbols whose addresses a callback supplies when they are looked up.

use std::ffi::c_void;

use jittison::Error;
use jittison::base::{ExecutorAddr, Name};
use jittison::session::{
    MaterializationResponsibility, MaterializationUnit, RequiredState, SymbolFlags, SymbolRef, SymbolRequest,
};
use parking_lot::Mutex;

use crate::callbacks::{Dropped, OwnedContext, outcome};
use crate::dylib::{DYLIBS, Dylib};
use crate::entry::{check_out, run};
use crate::error::{ErrorObject, Failure};
use crate::handle::{Kind, Table};
use crate::session::{Handle, read_options};
use crate::text::{Str, Text, read_slice};
use crate::tracker::{TRACKERS, Tracker, read_flags};

/// `jittison_responsibility`.
pub(crate) type Responsibility = Handle<Held>;
/// `None` after it was emitted or failed, and while a function uses it.
pub(crate) type Held = Mutex<Option<MaterializationResponsibility>>;
static RESPONSIBILITIES: Table<Held> = Table::new(Kind::Responsibility);

/// `jittison_unit_symbol`.
#[repr(C)]
struct UnitSymbol {
    name: Str,
    flags: u32,
    reserved: u32,
}

/// `jittison_unit_address`.
#[repr(C)]
struct UnitAddress {
    name: Str,
    address: u64,
}

/// `jittison_unit_dependency`.
#[repr(C)]
struct Dependency {
    dylib: Dylib,
    name: Str,
}

/// `jittison_unit_callbacks`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Callbacks {
    size: usize,
    materialize: Option<unsafe extern "C-unwind" fn(Responsibility, *mut c_void)>,
    discard: Option<unsafe extern "C-unwind" fn(Str, *mut c_void)>,
    dropped: Option<Dropped>,
}

struct Unit {
    name: String,
    symbols: Vec<(Name, SymbolFlags)>,
    callbacks: Callbacks,
    context: OwnedContext,
}

impl MaterializationUnit for Unit {
    fn name(&self) -> &str {
        &self.name
    }

    fn symbols(&self) -> &[(Name, SymbolFlags)] {
        &self.symbols
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        let Some(materialize) = self.callbacks.materialize else { return };
        // A table that is full drops the responsibility, which fails its symbols.
        let Ok(bits) = RESPONSIBILITIES.insert(Mutex::new(Some(responsibility))) else { return };
        // SAFETY: C5 - the caller promises the callback and its context.
        unsafe { materialize(Handle::new(bits), self.context.get()) };
    }

    fn discard(&mut self, name: &str) {
        let Some(discard) = self.callbacks.discard else { return };
        let name = Str { data: name.as_ptr().cast(), length: name.len() };
        // SAFETY: C5 - the caller promises the callback and its context.
        unsafe { discard(name, self.context.get()) };
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_unit_define(
    tracker: Tracker,
    name: Str,
    symbols: *const UnitSymbol,
    count: usize,
    callbacks: *const c_void,
    context: *mut c_void,
) -> *mut ErrorObject {
    run(|| {
        check_out(callbacks.cast_mut().cast::<usize>(), "callbacks")?;
        // SAFETY: C1 - the caller promises the struct, in which null callbacks are values.
        let callbacks: Callbacks = unsafe { read_options(callbacks.cast())? };
        if callbacks.materialize.is_none() {
            return Err(Failure::argument("a unit needs the callback `materialize`"));
        }
        let tracker = TRACKERS.get(tracker.bits)?;
        // SAFETY: C1 - the caller promises both.
        let (name, symbols) = unsafe { (name.read("name")?.to_string(), read_slice(symbols, count, "symbols")?) };
        let read = |symbol: &UnitSymbol| {
            // SAFETY: C1 - the caller promises it.
            let name = unsafe { symbol.name.read("the name of a symbol")? };
            Ok((Name::new(name), read_flags(symbol.flags)?))
        };
        let symbols = symbols.iter().map(read).collect::<Result<Vec<_>, Failure>>()?;
        let context = OwnedContext::new(context, callbacks.dropped);
        Ok(tracker.define(Unit { name, symbols, callbacks, context })?)
    })
}

/// Takes a responsibility out of its handle for `act`, which gives it back if it is to be used again.
fn with(
    handle: Responsibility,
    act: impl FnOnce(MaterializationResponsibility) -> (Option<MaterializationResponsibility>, Result<(), Failure>),
) -> Result<(), Failure> {
    let held = RESPONSIBILITIES.get(handle.bits)?;
    let taken = held.lock().take();
    let is_gone = || Failure::argument("the responsibility was emitted or failed, or another call uses it");
    let (back, outcome) = act(taken.ok_or_else(is_gone)?);
    *held.lock() = back;
    outcome
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_responsibility_requested(
    responsibility: Responsibility,
    out: *mut *mut Text,
) -> *mut ErrorObject {
    run(|| {
        check_out(out, "out")?;
        with(responsibility, |responsibility| {
            let names: Vec<_> = responsibility.requested_symbols().iter().map(|name| name.to_string()).collect();
            // SAFETY: C1 - the caller promises it.
            let outcome = unsafe { Text::give(&names.join("\n"), out) };
            (Some(responsibility), outcome)
        })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_responsibility_resolve(
    responsibility: Responsibility,
    addresses: *const UnitAddress,
    count: usize,
) -> *mut ErrorObject {
    run(|| {
        // SAFETY: C1 - the caller promises it.
        let addresses = unsafe { read_slice(addresses, count, "addresses")? };
        let read = |address: &UnitAddress| {
            // SAFETY: C1 - the caller promises it.
            Ok((unsafe { address.name.read("the name of a symbol")? }, ExecutorAddr::new(address.address)))
        };
        let addresses = addresses.iter().map(read).collect::<Result<Vec<_>, Failure>>()?;
        with(responsibility, |responsibility| {
            let outcome = responsibility.notify_resolved(|claimed| {
                addresses.iter().find(|(name, _)| *name == claimed.name.as_str()).map(|(_, address)| *address)
            });
            (Some(responsibility), outcome.map_err(Failure::from))
        })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_responsibility_emit(
    responsibility: Responsibility,
    dependencies: *const Dependency,
    count: usize,
) -> *mut ErrorObject {
    run(|| {
        // SAFETY: C1 - the caller promises it.
        let dependencies = unsafe { read_slice(dependencies, count, "dependencies")? };
        with(responsibility, |responsibility| match find_all(&responsibility, dependencies) {
            Err(failure) => (Some(responsibility), Err(failure)),
            Ok(found) => (None, responsibility.notify_emitted(found).map_err(Failure::from)),
        })
    })
}

/// The definitions of dependencies, without those that are absolute. It waits for addresses only: two units may depend on each
/// other.
fn find_all(responsibility: &MaterializationResponsibility, names: &[Dependency]) -> Result<Vec<SymbolRef>, Failure> {
    let mut found = Vec::with_capacity(names.len());
    for Dependency { dylib, name } in names {
        let dylib = DYLIBS.get(dylib.bits)?;
        // SAFETY: C1 - the caller promises it.
        let name = unsafe { name.read("the name of a dependency")? };
        let own = (*dylib == responsibility.dylib()).then(|| responsibility.symbol(name)).flatten();
        if own.is_some() {
            found.extend(own);
            continue;
        }
        let results = dylib.lookup(&[SymbolRequest::required(name)], RequiredState::Resolved)?;
        found.extend(results.into_iter().filter_map(|result| result.symbol));
    }
    Ok(found)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_responsibility_fail(
    responsibility: Responsibility,
    error: *mut ErrorObject,
) -> *mut ErrorObject {
    run(|| {
        // SAFETY: C2 - the caller gives the error away.
        let cause = unsafe { outcome(error) };
        let cause = cause.err().unwrap_or_else(|| Error::other("the materialisation unit failed without an error"));
        with(responsibility, |responsibility| {
            responsibility.fail(cause);
            (None, Ok(()))
        })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_responsibility_release(responsibility: Responsibility) -> *mut ErrorObject {
    run(|| RESPONSIBILITIES.take(responsibility.bits).map(drop))
}
