//! Sessions and their options.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;

use jittison::memory::{OnFull, Placement};
use jittison::platform::Profile;
use jittison::{Jit, JitBuilder, ReclaimPolicy};

use crate::entry::{put, run};
use crate::error::{ErrorObject, Failure};
use crate::handle::{Kind, Table};
use crate::text::{Str, read_slice};

/// `jittison_session`.
pub(crate) type Session = Handle<Jit>;
pub(crate) static SESSIONS: Table<Jit> = Table::new(Kind::Session);

/// A handle as C passes it: a struct of one number. `T` keeps the types apart, as the structs of the header do.
#[repr(C)]
pub struct Handle<T> {
    pub(crate) bits: u64,
    value: [*const T; 0],
}

impl<T> Handle<T> {
    pub(crate) fn new(bits: u64) -> Handle<T> {
        Handle { bits, value: [] }
    }
}

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Handle<T> {
        *self
    }
}

impl<T> Copy for Handle<T> {}

/// Called with an error that no caller receives. The callee owns the error.
type ReportError = unsafe extern "C-unwind" fn(*mut ErrorObject, *mut c_void);

/// `jittison_session_options`. All zeros are the defaults.
#[derive(Clone, Copy)]
#[repr(C)]
struct Options {
    size: usize,
    memory_budget: u64,
    window_size: u64,
    slab_size: u64,
    worker_threads: u32,
    reclaim: u32,
    on_full: u32,
    placement: u32,
    debugger: u32,
    profiler: u32,
    trap_freed_code: u32,
    reserved: u32,
    libraries: *const Str,
    library_count: usize,
    wrapped: *const Str,
    wrapped_count: usize,
    report_error: Option<ReportError>,
    report_error_context: *mut c_void,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_session_create(options: *const c_void, out: *mut Session) -> *mut ErrorObject {
    run(|| {
        let create = || {
            let builder = match options.is_null() {
                true => Jit::builder(),
                // SAFETY: C1 - the caller promises the options.
                false => unsafe { builder_of(&read_options(options.cast())?)? },
            };
            SESSIONS.insert(builder.build()?).map(Handle::new)
        };
        // SAFETY: C1 - the caller promises it.
        unsafe { put(out, "out", create) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_session_destroy(session: Session) -> *mut ErrorObject {
    run(|| Ok(SESSIONS.take(session.bits)?.session().end()?))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_session_reclaim(session: Session, count: *mut usize) -> *mut ErrorObject {
    run(|| {
        let reclaimed = SESSIONS.get(session.bits)?.session().reclaim();
        // SAFETY: C1 - the caller promises it.
        unsafe { crate::entry::put_if_wanted(count, reclaimed) };
        Ok(())
    })
}

/// Copies as many bytes of the options as the caller's version has. The others are zero.
///
/// # Safety
/// C1: as many bytes as the field `size` says. `T` starts with `size`, and its fields may all be zero.
pub(crate) unsafe fn read_options<T>(options: *const u8) -> Result<T, Failure> {
    // SAFETY: C1 - `size` is the first field of every version.
    let size = unsafe { options.cast::<usize>().read_unaligned() };
    if size < size_of::<usize>() || size > MAX_OPTIONS_SIZE {
        return Err(Failure::argument(format!(
            "the field `size` of the options is {size}; set it to the size of the struct"
        )));
    }
    let mut own = MaybeUninit::<T>::zeroed();
    let known = size.min(size_of::<T>());
    // SAFETY: C1 - both have `known` bytes, as computed above, and do not overlap.
    unsafe { ptr::copy_nonoverlapping(options, own.as_mut_ptr().cast::<u8>(), known) };
    // SAFETY: C1 - the bytes behind the known ones are within `size`.
    let newer = unsafe { read_slice(options.wrapping_add(known), size - known, "options")? };
    if newer.iter().any(|byte| *byte != 0) {
        return Err(Failure::argument("the options use fields that this version of the library does not know"));
    }
    // SAFETY: C1 - every field is valid if it is zero; the caller promises those that it has set.
    Ok(unsafe { own.assume_init() })
}

/// `jittison_switch`: the default, on, off.
const SWITCH: [Option<bool>; 3] = [None, Some(true), Some(false)];
/// Sizes above this are mistakes.
const MAX_OPTIONS_SIZE: usize = 4096;

/// # Safety
/// C1, C5 for what the options refer to.
unsafe fn builder_of(options: &Options) -> Result<JitBuilder, Failure> {
    let mut builder = Jit::builder();
    if options.memory_budget != 0 {
        builder = builder.memory_budget(options.memory_budget);
    }
    if options.window_size != 0 {
        builder = builder.window_size(options.window_size);
    }
    if options.slab_size != 0 {
        builder = builder.slab_size(options.slab_size);
    }
    builder = builder
        .worker_threads(options.worker_threads as usize)
        .reclaim_policy(choice(
            "reclaim",
            options.reclaim,
            &[ReclaimPolicy::OnDrop, ReclaimPolicy::Background, ReclaimPolicy::Explicit],
        )?)
        .on_full(choice("on_full", options.on_full, &[OnFull::Refuse, OnFull::OpenAnother])?);
    if let Some(is_on) = choice("trap_freed_code", options.trap_freed_code, &SWITCH)? {
        builder = builder.trap_freed_code(is_on);
    }
    if options.placement != 0 {
        const PLACEMENTS: [Placement; 4] =
            [Placement::NearLibraries, Placement::NearHost, Placement::Low2GiB, Placement::Anywhere];
        builder = builder.placement(choice("placement", options.placement - 1, &PLACEMENTS)?);
    }
    if let Some(is_on) = choice("debugger", options.debugger, &SWITCH)? {
        builder = builder.debugger(is_on);
    }
    const PROFILERS: [Option<Option<Profile>>; 4] =
        [None, Some(None), Some(Some(Profile::JitDump)), Some(Some(Profile::PerfMap))];
    if let Some(profiler) = choice("profiler", options.profiler, &PROFILERS)? {
        builder = builder.profiler(profiler);
    }
    // SAFETY: C1 - the caller promises both lists and their strings.
    let (libraries, wrapped) = unsafe {
        (
            read_slice(options.libraries, options.library_count, "libraries")?,
            read_slice(options.wrapped, options.wrapped_count, "wrapped")?,
        )
    };
    for library in libraries {
        // SAFETY: C1 - as above.
        builder = builder.library(unsafe { library.read("the name of a library")? });
    }
    for symbol in wrapped {
        // SAFETY: C1 - as above.
        builder = builder.wrap(unsafe { symbol.read("the name of a wrapped symbol")? });
    }
    if let Some(report) = options.report_error {
        let context = Context(options.report_error_context);
        builder = builder.error_reporter(Arc::new(move |error| {
            let error = Failure::Jit(error).into_raw();
            // SAFETY: C5 - the caller promises that both are valid as long as the session reports.
            unsafe { report(error, context.get()) };
        }));
    }
    Ok(builder)
}

/// The value of a field that is a choice.
fn choice<T: Clone>(field: &str, number: u32, values: &[T]) -> Result<T, Failure> {
    values
        .get(number as usize)
        .cloned()
        .ok_or_else(|| Failure::argument(format!("the option `{field}` is {number}, which is not one of its values")))
}

/// The context of a callback, which the caller lets every thread use.
pub(crate) struct Context(pub(crate) *mut c_void);

impl Context {
    pub(crate) fn get(&self) -> *mut c_void {
        self.0
    }
}

// SAFETY: C5 - the pointer is only passed to the callback; the caller promises that it is valid on every thread.
unsafe impl Send for Context {}
// SAFETY: C5 - as above.
unsafe impl Sync for Context {}
