//! Materialisation units of the embedder: symbols whose addresses a callback supplies when they are looked up.

use std::ffi::c_void;

use jittison::base::{ExecutorAddr, Name};
use jittison::session::{
    MaterializationResponsibility, MaterializationUnit, RequiredState, SymbolFlags, SymbolRef, SymbolRequest,
};
use jittison::{Error, JitDylib};
use parking_lot::Mutex;

use crate::callbacks::{Dropped, OwnedContext, outcome};
use crate::dylib::{DYLIBS, Dylib};
use crate::entry::{check_optional_out, check_out, put, put_if_wanted, run};
use crate::error::{ErrorObject, Failure};
use crate::handle::{Kind, Table};
use crate::session::{Handle, read_options};
use crate::text::{Str, Text, read_slice};
use crate::tracker::{TRACKERS, Tracker, read_flags};

/// `jittison_responsibility`.
pub(crate) type Responsibility = Handle<HeldResponsibility>;
/// `None` after it was emitted or failed, and while a function uses it.
pub(crate) type HeldResponsibility = Mutex<Option<MaterializationResponsibility>>;
static RESPONSIBILITIES: Table<HeldResponsibility> = Table::new(Kind::Responsibility);

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
        let Ok(bits) = RESPONSIBILITIES.insert(held(responsibility)) else { return };
        // SAFETY: C5 - the caller promises the callback and its context.
        unsafe { materialize(Handle::new(bits), self.context.get()) };
    }

    fn discard(&mut self, name: &str) {
        let Some(discard) = self.callbacks.discard else { return };
        let name = Str::of(name);
        // SAFETY: C5 - the caller promises the callback and its context.
        unsafe { discard(name, self.context.get()) };
    }
}

/// Reads symbols that a unit defines.
///
/// # Safety
/// C1 for the symbols and their names.
unsafe fn read_symbols(symbols: *const UnitSymbol, count: usize) -> Result<Vec<(Name, SymbolFlags)>, Failure> {
    // SAFETY: C1 - the caller promises it.
    let symbols = unsafe { read_slice(symbols, count, "symbols")? };
    let read = |symbol: &UnitSymbol| {
        // SAFETY: C1 - the caller promises it.
        let name = unsafe { symbol.name.read("the name of a symbol")? };
        Ok((Name::new(name), read_flags(symbol.flags)?))
    };
    symbols.iter().map(read).collect()
}

/// What both functions that take a unit read.
struct RawUnit {
    name: Str,
    symbols: *const UnitSymbol,
    count: usize,
    callbacks: *const c_void,
    context: *mut c_void,
}

impl RawUnit {
    /// # Safety
    /// C1 for all fields, C5 for the callbacks.
    unsafe fn read(self) -> Result<Unit, Failure> {
        check_out(self.callbacks.cast_mut().cast::<usize>(), "callbacks")?;
        // SAFETY: C1 - the caller promises the struct, in which null callbacks are values.
        let callbacks: Callbacks = unsafe { read_options(self.callbacks.cast())? };
        if callbacks.materialize.is_none() {
            return Err(Failure::argument("a unit needs the callback `materialize`"));
        }
        // SAFETY: C1 - the caller promises both.
        let (name, symbols) = unsafe { (self.name.read("name")?, read_symbols(self.symbols, self.count)?) };
        let context = OwnedContext::new(self.context, callbacks.dropped);
        Ok(Unit { name: name.to_string(), symbols, callbacks, context })
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
        let tracker = TRACKERS.get(tracker.bits)?;
        // SAFETY: C1, C5 - the caller promises them.
        let unit = unsafe { RawUnit { name, symbols, count, callbacks, context }.read()? };
        Ok(tracker.define(unit)?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_unit_begin(
    tracker: Tracker,
    name: Str,
    symbols: *const UnitSymbol,
    count: usize,
    out: *mut Responsibility,
) -> *mut ErrorObject {
    let begin = || {
        let tracker = TRACKERS.get(tracker.bits)?;
        // SAFETY: C1 - the caller promises both.
        let (name, symbols) = unsafe { (name.read("name")?, read_symbols(symbols, count)?) };
        RESPONSIBILITIES.insert_with(|| Ok(held(tracker.define_materializing(name, symbols)?))).map(Handle::new)
    };
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe { put(out, "out", begin) })
}

/// What a handle has of a responsibility that is neither emitted nor failed.
fn held(responsibility: MaterializationResponsibility) -> HeldResponsibility {
    Mutex::new(Some(responsibility))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_responsibility_replace(
    responsibility: Responsibility,
    name: Str,
    symbols: *const UnitSymbol,
    count: usize,
    callbacks: *const c_void,
    context: *mut c_void,
) -> *mut ErrorObject {
    run(|| {
        edit(responsibility, |responsibility| {
            // SAFETY: C1, C5 - the caller promises them.
            let unit = unsafe { RawUnit { name, symbols, count, callbacks, context }.read()? };
            Ok(responsibility.replace(unit)?)
        })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_responsibility_add_symbols(
    responsibility: Responsibility,
    symbols: *const UnitSymbol,
    count: usize,
    was_added: *mut bool,
) -> *mut ErrorObject {
    run(|| {
        check_optional_out(was_added, "was_added")?;
        // SAFETY: C1 - the caller promises it.
        let symbols = unsafe { read_symbols(symbols, count)? };
        edit(responsibility, |responsibility| {
            let added = responsibility.define_materializing(&symbols)?;
            for (position, added) in added.into_iter().enumerate() {
                // SAFETY: C1 - null, or a place for each symbol; there are as many answers.
                unsafe { put_if_wanted(was_added.wrapping_add(if was_added.is_null() { 0 } else { position }), added) };
            }
            Ok(())
        })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_responsibility_delegate(
    responsibility: Responsibility,
    names: *const Str,
    count: usize,
    out: *mut Responsibility,
) -> *mut ErrorObject {
    run(|| {
        check_out(out, "out")?;
        // SAFETY: C1 - the caller promises it.
        let names = unsafe { read_slice(names, count, "names")? };
        // SAFETY: C1 - the caller promises it.
        let read = |name: &Str| unsafe { name.read("the name of a symbol") };
        let names = names.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        edit(responsibility, |responsibility| {
            let delegated = RESPONSIBILITIES.insert_with(|| Ok(held(responsibility.delegate(&names)?)))?;
            // SAFETY: C1 - the caller promises it.
            unsafe { put(out, "out", || Ok(Handle::new(delegated))) }
        })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_responsibility_tracker(
    responsibility: Responsibility,
    out: *mut Tracker,
) -> *mut ErrorObject {
    run(|| {
        check_out(out, "out")?;
        edit(responsibility, |responsibility| {
            let tracker = responsibility.tracker();
            // SAFETY: C1 - the caller promises it.
            unsafe { put(out, "out", || TRACKERS.insert(tracker).map(Handle::new)) }
        })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_responsibility_symbols(
    responsibility: Responsibility,
    out: *mut *mut Text,
) -> *mut ErrorObject {
    run(|| {
        check_out(out, "out")?;
        edit(responsibility, |responsibility| {
            let names: Vec<_> = responsibility.symbols().iter().map(|symbol| symbol.name.as_str()).collect();
            // SAFETY: C1 - the caller promises it.
            unsafe { Text::give(&names.join("\n"), out) }
        })
    })
}

/// Uses a responsibility, which stays in its handle.
fn edit(
    handle: Responsibility,
    act: impl FnOnce(&mut MaterializationResponsibility) -> Result<(), Failure>,
) -> Result<(), Failure> {
    with_responsibility(handle, |mut responsibility| {
        let outcome = act(&mut responsibility);
        (Some(responsibility), outcome)
    })
}

/// Takes a responsibility out of its handle for `act`, which gives it back if it is to be used again.
pub(crate) fn with_responsibility(
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
        edit(responsibility, |responsibility| {
            let names: Vec<_> = responsibility.requested_symbols().iter().map(|name| name.to_string()).collect();
            // SAFETY: C1 - the caller promises it.
            unsafe { Text::give(&names.join("\n"), out) }
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
        with_responsibility(responsibility, |responsibility| {
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
        with_responsibility(responsibility, |responsibility| match find_all(&responsibility, dependencies) {
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
        let is_own = JitDylib::eq(&dylib, &responsibility.dylib());
        let own = is_own.then(|| responsibility.symbol(name)).flatten();
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
        with_responsibility(responsibility, |responsibility| {
            responsibility.fail(cause);
            (None, Ok(()))
        })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_responsibility_release(responsibility: Responsibility) -> *mut ErrorObject {
    run(|| RESPONSIBILITIES.release(responsibility.bits))
}
