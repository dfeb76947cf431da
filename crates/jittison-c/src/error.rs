//! [`Failure`]: why a call failed, and [`ErrorObject`], the `jittison_error` that the caller gets.

use std::any::Any;
use std::fmt;

use jittison::Error;

use crate::code::{self, Code};
use crate::handle::Kind;
use crate::text::{OwnedStr, Str, read_slice};

/// Why a call failed. One pointer wide, so that a result is returned in a register.
#[derive(Debug)]
pub(crate) struct Failure(Box<Reason>);

#[derive(Debug)]
enum Reason {
    /// The Rust crate refused it.
    Jit(Error),
    /// A handle names nothing, or a value of another kind.
    Handle(String),
    /// An argument is not as the header demands.
    Argument(String),
    /// A guard or a call was used by another thread.
    Thread(String),
    /// There are too many handles of one kind.
    Handles(String),
    /// A panic in this library.
    Panic(String),
}

impl Failure {
    /// An argument is not as the header demands.
    #[cold]
    pub(crate) fn argument(text: impl Into<String>) -> Failure {
        Failure::new(Reason::Argument(text.into()))
    }

    /// A handle names nothing, or a value of another kind.
    pub(crate) fn handle(text: String) -> Failure {
        Failure::new(Reason::Handle(text))
    }

    /// A guard or a call was used by another thread.
    pub(crate) fn thread(text: String) -> Failure {
        Failure::new(Reason::Thread(text))
    }

    pub(crate) fn panic(payload: &(dyn Any + Send)) -> Failure {
        let text = payload.downcast_ref::<&str>().map(|text| text.to_string());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        let text = text.unwrap_or_else(|| "without a text".to_string());
        Failure::new(Reason::Panic(format!("a panic in jittison: {text}")))
    }

    pub(crate) fn too_many_handles(kind: Kind) -> Failure {
        Failure::new(Reason::Handles(format!("there are too many {} handles; release some", kind.name())))
    }

    fn new(reason: Reason) -> Failure {
        Failure(Box::new(reason))
    }

    /// Makes the object that the caller owns (C2).
    pub(crate) fn into_raw(self) -> *mut ErrorObject {
        Box::into_raw(Box::new(ErrorObject::new(&self)))
    }

    /// The error, for the Rust crate.
    pub(crate) fn into_error(self) -> Error {
        match *self.0 {
            Reason::Jit(error) => error,
            other => Error::other(Failure::new(other)),
        }
    }

    fn code(&self) -> Code {
        match &*self.0 {
            Reason::Jit(error) => code::of(error.kind()),
            Reason::Handle(_) => code::INVALID_HANDLE,
            Reason::Argument(_) => code::INVALID_ARGUMENT,
            Reason::Thread(_) => code::WRONG_THREAD,
            Reason::Handles(_) => code::TOO_MANY_HANDLES,
            Reason::Panic(_) => code::PANIC,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Reason::Jit(error) => error.fmt(f),
            Reason::Handle(text)
            | Reason::Argument(text)
            | Reason::Thread(text)
            | Reason::Handles(text)
            | Reason::Panic(text) => f.write_str(text),
        }
    }
}

impl From<Error> for Failure {
    #[cold]
    fn from(error: Error) -> Failure {
        Failure::new(Reason::Jit(error))
    }
}

/// `jittison_error`: the code of a failure, its text and its place.
pub struct ErrorObject {
    code: Code,
    /// The code of the first failure, which led to this one.
    root_code: Code,
    is_retriable: bool,
    message: OwnedStr,
    object: Option<OwnedStr>,
    symbol: Option<OwnedStr>,
    /// What an embedder's callback passes on.
    error: Error,
}

impl ErrorObject {
    pub(crate) fn new(failure: &Failure) -> ErrorObject {
        let text = |text: Option<String>| text.map(|text| OwnedStr::new(&text));
        let (root_code, is_retriable, place) = match &*failure.0 {
            Reason::Jit(error) => (code::of(error.root_cause().kind()), error.is_retriable(), code::place(error)),
            _ => (failure.code(), false, code::Place::default()),
        };
        ErrorObject {
            code: failure.code(),
            root_code,
            is_retriable,
            message: OwnedStr::new(&failure.to_string()),
            object: text(place.object),
            symbol: text(place.symbol),
            error: match &*failure.0 {
                Reason::Jit(error) => error.clone(),
                _ => Error::other(failure),
            },
        }
    }
}

impl ErrorObject {
    #[cfg(test)]
    pub(crate) fn code(&self) -> Code {
        self.code
    }

    #[cfg(test)]
    pub(crate) fn message(&self) -> String {
        self.error.to_string()
    }

    /// The error, for the Rust crate.
    pub(crate) fn into_error(self) -> Error {
        self.error
    }
}

/// For callbacks. A message that is not UTF-8 is kept as far as it is.
#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_error_create(message: Str) -> *mut ErrorObject {
    // SAFETY: C1 - the caller promises it.
    match unsafe { read_slice(message.data.cast::<u8>(), message.length, "message") } {
        Ok(bytes) => Failure::from(Error::other(String::from_utf8_lossy(bytes))).into_raw(),
        Err(failure) => failure.into_raw(),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_error_code(error: *const ErrorObject) -> Code {
    // SAFETY: C1, C2 - null, or an error that is not freed.
    unsafe { error.as_ref() }.map_or(code::NONE, |error| error.code)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_error_root_code(error: *const ErrorObject) -> Code {
    // SAFETY: C1, C2 - null, or an error that is not freed.
    unsafe { error.as_ref() }.map_or(code::NONE, |error| error.root_code)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_error_is_retriable(error: *const ErrorObject) -> bool {
    // SAFETY: C1, C2 - null, or an error that is not freed.
    unsafe { error.as_ref() }.is_some_and(|error| error.is_retriable)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_error_message(error: *const ErrorObject) -> Str {
    // SAFETY: C1, C2 - null, or an error that is not freed.
    unsafe { error.as_ref() }.map_or(Str::EMPTY, |error| error.message.view())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_error_object(error: *const ErrorObject) -> Str {
    // SAFETY: C1, C2 - null, or an error that is not freed.
    unsafe { error.as_ref() }.and_then(|error| error.object.as_ref()).map_or(Str::EMPTY, OwnedStr::view)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_error_symbol(error: *const ErrorObject) -> Str {
    // SAFETY: C1, C2 - null, or an error that is not freed.
    unsafe { error.as_ref() }.and_then(|error| error.symbol.as_ref()).map_or(Str::EMPTY, OwnedStr::view)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_error_free(error: *mut ErrorObject) {
    if !error.is_null() {
        // SAFETY: C2 - it is freed once.
        drop(unsafe { Box::from_raw(error) });
    }
}
