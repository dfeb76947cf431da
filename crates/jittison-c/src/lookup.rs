//! Lookups of several symbols at once, of their flags and states, and pins.

use std::ffi::c_void;

use jittison::session::{LookupResult, Pin, RequiredState, SymbolFlags, SymbolRequest, SymbolState, Visibility};
use jittison::{Error, JitDylib};

use crate::dylib::{DYLIBS, Dylib};
use crate::entry::{check_optional_out, check_out, put, put_if_wanted, run};
use crate::error::{ErrorObject, Failure};
use crate::generator::Request;
use crate::handle::{Kind, Table};
use crate::session::{Context, Handle, SESSIONS, Session, choice};
use crate::text::{Str, read_slice};
use crate::tracker::show_flags;

/// `jittison_pin`.
pub(crate) type PinHandle = Handle<Pin>;
static PINS: Table<Pin> = Table::new(Kind::Pin);

/// `jittison_found_symbol`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Found {
    address: u64,
    flags: u32,
    is_found: u32,
}

/// Called once, with the symbols that were found, or an error that the callee owns.
type OnFound = unsafe extern "C-unwind" fn(*mut ErrorObject, *const Found, usize, *mut c_void);

impl Found {
    fn of(result: &LookupResult) -> Found {
        let address = result.address.value();
        let is_found = address != 0 || result.symbol.is_some() || result.flags != SymbolFlags::NONE;
        Found { address, flags: show_flags(result.flags), is_found: u32::from(is_found) }
    }
}

/// # Safety
/// C1 for the requests, for as long as the result is used.
unsafe fn read_requests<'a>(requests: *const Request, count: usize) -> Result<Vec<SymbolRequest<'a>>, Failure> {
    // SAFETY: C1 - the caller promises it.
    let requests = unsafe { read_slice(requests, count, "requests")? };
    let read = |request: &Request| {
        // SAFETY: C1 - the caller promises it.
        let name = unsafe { request.name.read("the name of a symbol")? };
        Ok(SymbolRequest { name, required: request.is_required != 0 })
    };
    requests.iter().map(read).collect()
}

/// How far symbols must be: `JITTISON_STATE_READY` or `_RESOLVED`.
fn read_state(state: u32) -> Result<RequiredState, Failure> {
    choice("state", state, &[RequiredState::Ready, RequiredState::Resolved])
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_symbol_lookup(
    dylib: Dylib,
    requests: *const Request,
    count: usize,
    state: u32,
    out: *mut c_void,
) -> *mut ErrorObject {
    run(|| {
        let out = out.cast::<Found>();
        if count > 0 {
            check_out(out, "out")?;
        }
        let dylib = DYLIBS.get(dylib.bits)?;
        // SAFETY: C1 - the caller promises it.
        let requests = unsafe { read_requests(requests, count)? };
        let found = dylib.lookup(&requests, read_state(state)?)?;
        for (position, result) in found.iter().enumerate() {
            // SAFETY: C1 - the caller promises as many places as requests; there are as many results.
            unsafe { out.add(position).write(Found::of(result)) };
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_symbol_lookup_async(
    session: Session,
    dylib: Dylib,
    requests: *const Request,
    count: usize,
    state: u32,
    callback: Option<OnFound>,
    context: *mut c_void,
) -> *mut ErrorObject {
    run(|| {
        let callback = callback.ok_or_else(|| Failure::argument("the callback is null"))?;
        let (jit, dylib) = (SESSIONS.get(session.bits)?, DYLIBS.get(dylib.bits)?);
        let state = read_state(state)?;
        // SAFETY: C1 - the caller promises it.
        let requests = unsafe { read_requests(requests, count)? };
        let context = Context(context);
        let order = [&[((*dylib).clone(), Visibility::All)][..], &dylib.link_order()].concat();
        let tell = move |outcome: Result<Vec<LookupResult>, Error>| {
            let (error, found) = match outcome {
                Ok(results) => (std::ptr::null_mut(), results.iter().map(Found::of).collect()),
                Err(error) => (Failure::from(error).into_raw(), Vec::new()),
            };
            // SAFETY: C5 - the caller promises both until this call, which is the only one.
            unsafe { callback(error, found.as_ptr(), found.len(), context.get()) };
        };
        jit.session().lookup_then(&order, &requests, state, tell);
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_symbol_state(
    dylib: Dylib,
    name: Str,
    state: *mut u32,
    flags: *mut u32,
) -> *mut ErrorObject {
    run(|| {
        check_out(state, "state")?;
        check_optional_out(flags, "flags")?;
        let dylib = DYLIBS.get(dylib.bits)?;
        // SAFETY: C1 - the caller promises it.
        let name = unsafe { name.read("name")? };
        let number = match dylib.symbol_state(name) {
            None => 0,
            Some(SymbolState::NeverSearched) => 1,
            Some(SymbolState::Materializing) => 2,
            Some(SymbolState::Resolved) => 3,
            Some(SymbolState::Emitted) => 4,
            Some(SymbolState::Ready) => 5,
        };
        let found = dylib.symbol_flags(name).unwrap_or(SymbolFlags::NONE);
        // SAFETY: C1 - the caller promises both.
        unsafe {
            put_if_wanted(flags, show_flags(found));
            put(state, "state", || Ok(number))
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_symbol_remove(dylib: Dylib, names: *const Str, count: usize) -> *mut ErrorObject {
    run(|| {
        let dylib = DYLIBS.get(dylib.bits)?;
        // SAFETY: C1 - the caller promises it.
        let names = unsafe { read_slice(names, count, "names")? };
        // SAFETY: C1 - the caller promises it.
        let read = |name: &Str| unsafe { name.read("the name of a symbol") };
        let names = names.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        Ok(dylib.remove_symbols(&names)?)
    })
}

// ---- pins -------------------------------------------------------------------

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_pin_create(
    dylib: Dylib,
    name: Str,
    address: *mut u64,
    out: *mut PinHandle,
) -> *mut ErrorObject {
    let pin = || {
        check_optional_out(address, "address")?;
        let place = PINS.reserve()?;
        let dylib = DYLIBS.get(dylib.bits)?;
        // SAFETY: C1 - the caller promises it.
        let name = unsafe { name.read("name")? };
        let is_unready = || Failure::argument(format!("`{name}` is not ready in `{}`, or is absolute", dylib.name()));
        let (found, pin) = dylib.pin(name).ok_or_else(is_unready)?;
        // SAFETY: C1 - the caller promises it.
        unsafe { put_if_wanted(address, found.value()) };
        Ok(Handle::new(place.fill(pin)))
    };
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe { put(out, "out", pin) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_pin_add_dependency(pin: PinHandle, dylib: Dylib, name: Str) -> *mut ErrorObject {
    run(|| {
        let (pin, dylib) = (PINS.get(pin.bits)?, DYLIBS.get(dylib.bits)?);
        // SAFETY: C1 - the caller promises it.
        let name = unsafe { name.read("name")? };
        match find_symbol(&dylib, name)? {
            Some(symbol) => Ok(pin.add_dependency(&symbol)?),
            None => Ok(()),
        }
    })
}

/// The definition of a name. `None` if it is absolute.
pub(crate) fn find_symbol(dylib: &JitDylib, name: &str) -> Result<Option<jittison::session::SymbolRef>, Failure> {
    let found = dylib.lookup(&[SymbolRequest::required(name)], RequiredState::Ready)?;
    Ok(found.into_iter().next().and_then(|result| result.symbol))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_pin_release(pin: PinHandle) -> *mut ErrorObject {
    run(|| PINS.release(pin.bits))
}
