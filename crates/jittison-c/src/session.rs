//! Sessions, and how structs of options are read.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;

use jittison::Jit;

use crate::entry::{check_optional_out, put, put_if_wanted, run};
use crate::error::{ErrorObject, Failure};
use crate::handle::{Kind, Table};
use crate::options::builder_of;
use crate::text::read_slice;

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

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_session_create(options: *const c_void, out: *mut Session) -> *mut ErrorObject {
    run(|| {
        let create = || {
            let builder = match options.is_null() {
                true => Jit::builder(),
                // SAFETY: C1 - the caller promises the options.
                false => unsafe { builder_of(&read_options(options.cast())?)? },
            };
            SESSIONS.insert_with(|| Ok(builder.build()?)).map(Handle::new)
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
        check_optional_out(count, "count")?;
        let reclaimed = SESSIONS.get(session.bits)?.session().reclaim();
        // SAFETY: C1 - the caller promises it.
        unsafe { put_if_wanted(count, reclaimed) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_session_dismiss_workers(session: Session) -> *mut ErrorObject {
    run(|| {
        SESSIONS.get(session.bits)?.session().dismiss_workers();
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
    // A size that is no multiple of a pointer's would cut a pointer in two.
    if size < size_of::<usize>() || size > MAX_OPTIONS_SIZE || size % size_of::<usize>() != 0 {
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

/// Sizes above this are mistakes.
const MAX_OPTIONS_SIZE: usize = 4096;

/// The value of a field that is a choice.
pub(crate) fn choice<T: Clone>(field: &str, number: u32, values: &[T]) -> Result<T, Failure> {
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
