//! Errors of LLVM (`LLVMErrorRef`): made of errors of jittison, and taken from callbacks.

use std::ffi::{CStr, CString, c_char};

use jittison::Error;

use crate::llvm::{Opaque, llvm};

/// Makes an error of LLVM that the program owns.
///
/// Without LLVM in the process no error can be returned, and success would be a lie: the process aborts.
pub(crate) fn to_llvm(error: &Error) -> Opaque {
    let text = CString::new(error.to_string().replace('\0', " ")).unwrap_or_default();
    match llvm().and_then(|llvm| llvm.LLVMCreateStringError()) {
        // SAFETY: O4 - the function copies the string.
        Ok(create) => unsafe { create(text.as_ptr()) },
        Err(missing) => {
            eprintln!("jittison: {error}; and {missing}");
            std::process::abort()
        }
    }
}

/// Takes an error that a callback or a function of LLVM returned. Null is success.
///
/// # Safety
/// O2: the error is given away.
pub(crate) unsafe fn from_llvm(error: Opaque) -> Result<(), Error> {
    if error.is_null() {
        return Ok(());
    }
    let llvm = llvm()?;
    let (message, dispose) = (llvm.LLVMGetErrorMessage()?, llvm.LLVMDisposeErrorMessage()?);
    // SAFETY: O2, O4 - the message consumes the error, and is disposed of after it is copied.
    unsafe {
        let text = message(error);
        let owned = CStr::from_ptr(text).to_string_lossy().into_owned();
        dispose(text);
        Err(Error::other(owned))
    }
}

/// Takes a message of LLVM. Null is the empty text.
///
/// # Safety
/// O2: the message is given away.
pub(crate) unsafe fn take_message(message: *mut c_char) -> CString {
    if message.is_null() {
        return CString::default();
    }
    // SAFETY: O1 - LLVM made the string.
    let owned = unsafe { CStr::from_ptr(message) }.to_owned();
    if let Ok(dispose) = llvm().and_then(|llvm| llvm.LLVMDisposeMessage()) {
        // SAFETY: O2, O4 - it is disposed of once.
        unsafe { dispose(message) };
    }
    owned
}
