//! Strings of the caller ([`Str`]), and texts that the caller owns ([`Text`]).

use std::ffi::c_char;
use std::slice;

use crate::entry::{put, run};
use crate::error::{ErrorObject, Failure};

/// `jittison_str`: a string with its length, which somebody else owns.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Str {
    pub(crate) data: *const c_char,
    pub(crate) length: usize,
}

impl Str {
    pub(crate) const EMPTY: Str = Str { data: c"".as_ptr(), length: 0 };

    /// A view of a string of the library, which has no NUL behind it.
    pub(crate) fn of(text: &str) -> Str {
        Str { data: text.as_ptr().cast(), length: text.len() }
    }

    /// The string, which must be UTF-8. `what` names it in errors.
    ///
    /// # Safety
    /// C1, for as long as the result is used.
    #[inline]
    pub(crate) unsafe fn read<'a>(self, what: &str) -> Result<&'a str, Failure> {
        // SAFETY: C1 - the caller promises the same.
        let bytes = unsafe { read_slice(self.data.cast::<u8>(), self.length, what)? };
        if bytes.is_ascii() {
            // SAFETY: C1 - ASCII is UTF-8. Most names are, and this check is the cheaper one.
            return Ok(unsafe { std::str::from_utf8_unchecked(bytes) });
        }
        std::str::from_utf8(bytes)
            .map_err(|error| Failure::argument(format!("{what} is not UTF-8: byte {} is wrong", error.valid_up_to())))
    }
}

/// `count` values at `data`. A null pointer is no value, and then `count` must be 0.
///
/// # Safety
/// C1, for as long as the result is used.
#[inline]
pub(crate) unsafe fn read_slice<'a, T>(data: *const T, count: usize, what: &str) -> Result<&'a [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    if data.is_null() {
        return Err(Failure::argument(format!("{what} is null, but has the length {count}")));
    }
    if !data.is_aligned() {
        return Err(Failure::argument(format!("{what} at {data:p} is not aligned")));
    }
    if count > isize::MAX as usize / size_of::<T>().max(1) {
        return Err(Failure::argument(format!("{what} has the length {count}, which no memory has")));
    }
    // SAFETY: C1 - not null, aligned and of a possible length, as checked above; the caller promises the memory.
    Ok(unsafe { slice::from_raw_parts(data, count) })
}

/// Text with a NUL behind it, which its length does not count.
pub(crate) struct OwnedStr(Box<[u8]>);

impl OwnedStr {
    pub(crate) fn new(text: &str) -> OwnedStr {
        OwnedStr::from_bytes(text.as_bytes())
    }

    fn from_bytes(bytes: &[u8]) -> OwnedStr {
        OwnedStr([bytes, b"\0"].concat().into_boxed_slice())
    }

    pub(crate) fn view(&self) -> Str {
        Str { data: self.0.as_ptr().cast(), length: self.0.len() - 1 }
    }
}

/// `jittison_text`: a text that the caller owns.
pub struct Text(OwnedStr);

impl Text {
    /// Gives `text` to the caller.
    ///
    /// # Safety
    /// C1 for `out`.
    pub(crate) unsafe fn give(text: &str, out: *mut *mut Text) -> Result<(), Failure> {
        // SAFETY: C1 - the caller promises it.
        unsafe { Text::give_bytes(text.as_bytes(), out) }
    }

    /// As [`give`](Self::give), for bytes that need not be text.
    ///
    /// # Safety
    /// C1 for `out`.
    pub(crate) unsafe fn give_bytes(bytes: &[u8], out: *mut *mut Text) -> Result<(), Failure> {
        // SAFETY: C1 - the caller promises it. C2 - the object is a box.
        unsafe { put(out, "out", || Ok(Box::into_raw(Box::new(Text(OwnedStr::from_bytes(bytes)))))) }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_text_view(text: *const Text) -> Str {
    // SAFETY: C1, C2 - null, or a text that is not freed.
    unsafe { text.as_ref() }.map_or(Str::EMPTY, |text| text.0.view())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_text_free(text: *mut Text) {
    if !text.is_null() {
        // SAFETY: C2 - it is freed once.
        drop(unsafe { Box::from_raw(text) });
    }
}

/// The version of the library, as `major.minor.patch`.
#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_library_version(out: *mut Str) -> *mut ErrorObject {
    run(|| {
        const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
        let version = Str { data: VERSION.as_ptr().cast(), length: VERSION.len() - 1 };
        // SAFETY: C1 - the caller promises it.
        unsafe { put(out, "out", || Ok(version)) }
    })
}
