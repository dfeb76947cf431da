//! Lookups of several symbols, whose outcome a callback receives.

use std::ffi::{c_int, c_void};
use std::ptr;

use jittison::base::Name;
use jittison::session::{LookupResult, RequiredState, SymbolFlags, SymbolRequest, Visibility};
use jittison::{Error, JitDylib};

use crate::dylib::Dylib;
use crate::entry::{run_or_report, slice};
use crate::flags;
use crate::layouts::{Evaluated, LookupElement, SearchElement, SymbolPair};
use crate::llvm::Opaque;
use crate::llvm_error::to_llvm;
use crate::names::Interned;
use crate::session::Session;

/// `LLVMOrcExecutionSessionLookupHandleResultFunction`.
type Handle = unsafe extern "C-unwind" fn(Opaque, *const SymbolPair, usize, *mut c_void);

/// The callback of a lookup, which is called once.
struct Callback(Handle, usize);

impl Callback {
    fn call(self, outcome: Result<Vec<(Interned, Evaluated)>, Error>) {
        let context = self.1 as *mut c_void;
        match outcome {
            // SAFETY: O3 - the program promises both. It owns the error.
            Err(error) => unsafe { (self.0)(to_llvm(&error), ptr::null(), 0, context) },
            Ok(found) => {
                let pair = |(name, symbol): &(Interned, Evaluated)| SymbolPair { name: name.as_raw(), symbol: *symbol };
                let pairs: Vec<_> = found.iter().map(pair).collect();
                // SAFETY: O3 - the program promises both. The pairs and their names stay until it returns.
                unsafe { (self.0)(ptr::null_mut(), pairs.as_ptr(), pairs.len(), context) };
            }
        }
    }
}

/// What a lookup asks for.
struct Request {
    order: Vec<(JitDylib, Visibility)>,
    /// Each name, and whether it is required.
    names: Vec<(Interned, Name, bool)>,
}

/// Reads a lookup, and takes all its names.
///
/// # Safety
/// O1 for both arrays, O2 for the names.
unsafe fn read(order: &[SearchElement], symbols: &[LookupElement]) -> Result<Request, Error> {
    // All names are taken before any of them can fail.
    // SAFETY: O2 - the caller promises it.
    let taken: Vec<_> =
        symbols.iter().map(|symbol| (unsafe { Interned::from_raw(symbol.name) }, symbol.flags)).collect();
    let name = |(interned, flags): (Result<Interned, Error>, c_int)| {
        let interned = interned?;
        let name = interned.name()?;
        Ok((interned, name, flags == 0))
    };
    let dylib = |element: &SearchElement| {
        let visibility = if element.flags == 0 { Visibility::ExportedOnly } else { Visibility::All };
        // SAFETY: O1 - the caller promises it.
        Ok((unsafe { Dylib::of(element.dylib) }?.dylib.clone(), visibility))
    };
    Ok(Request {
        names: taken.into_iter().map(name).collect::<Result<_, Error>>()?,
        order: order.iter().map(dylib).collect::<Result<_, Error>>()?,
    })
}

/// What the callback gets of what was found: a name that is missing, and may be, is left out.
fn show(names: Vec<(Interned, bool)>, results: Vec<LookupResult>) -> Result<Vec<(Interned, Evaluated)>, Error> {
    let mut shown = Vec::with_capacity(names.len());
    for ((name, is_required), result) in names.into_iter().zip(results) {
        let is_found = !result.address.is_null() || result.symbol.is_some() || result.flags != SymbolFlags::NONE;
        if !is_required && !is_found {
            continue;
        }
        if result.flags.contains(SymbolFlags::THREAD_LOCAL) {
            let name = name.name()?;
            return Err(Error::other(format!(
                "`{name}` is thread-local: its address differs by thread, and LLVMOrcLLJITLookup returns it"
            )));
        }
        shown.push((name, Evaluated { address: result.address.value(), flags: flags::show(result.flags) }));
    }
    Ok(shown)
}

/// `kind` tells a lookup by a linker from one by `dlsym`. jittison searches in the same way for both.
#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcExecutionSessionLookup(
    session: *const Session,
    _kind: c_int,
    order: *const SearchElement,
    order_size: usize,
    symbols: *const LookupElement,
    symbols_size: usize,
    handle: Handle,
    context: *mut c_void,
) {
    let callback = Callback(handle, context as usize);
    // SAFETY: O1, O2 - the program promises the arrays, and gives the names away.
    let request = unsafe { read(slice(order, order_size), slice(symbols, symbols_size)) };
    // SAFETY: O1 - the program promises it.
    let session = unsafe { Session::of(session) };
    let begin = || Ok((request?, session.as_ref().map_err(Clone::clone)?.jit()?));
    let (request, jit) = match begin() {
        Ok(begun) => begun,
        Err(error) => return callback.call(Err(error)),
    };
    run_or_report(session.as_deref().ok(), (), || {
        let Request { order, names } = request;
        let (names, wanted): (Vec<_>, Vec<_>) =
            names.into_iter().map(|(interned, name, required)| ((interned, required), (name, required))).unzip();
        let requests: Vec<_> =
            wanted.iter().map(|(name, required)| SymbolRequest { name, required: *required }).collect();
        let tell = move |outcome: Result<Vec<LookupResult>, Error>| {
            callback.call(outcome.and_then(|results| show(names, results)));
        };
        jit.session().lookup_then(&order, &requests, RequiredState::Ready, tell);
        Ok(())
    });
}
