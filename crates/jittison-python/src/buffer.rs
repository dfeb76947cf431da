//! [`Buffer`]: the memory of an object of Python, by the buffer protocol, without a copy.
//!
//! The functions and `Py_buffer` are in the stable ABI since Python 3.11. Before, they are the same, and every interpreter
//! exports them: `Py_buffer` has not changed since Python 3.0. `pyo3` declares them from 3.11 on, so they are declared here.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;

use pyo3::ffi::{Py_ssize_t, PyObject};
use pyo3::prelude::*;

/// `Py_buffer`.
#[repr(C)]
struct RawBuffer {
    buf: *mut c_void,
    obj: *mut PyObject,
    len: Py_ssize_t,
    itemsize: Py_ssize_t,
    readonly: c_int,
    ndim: c_int,
    format: *mut c_char,
    shape: *mut Py_ssize_t,
    strides: *mut Py_ssize_t,
    suboffsets: *mut Py_ssize_t,
    internal: *mut c_void,
}

const PY_BUF_FORMAT: c_int = 0x4;
const PY_BUF_C_CONTIGUOUS: c_int = 0x38;

unsafe extern "C" {
    fn PyObject_CheckBuffer(object: *mut PyObject) -> c_int;
    fn PyObject_GetBuffer(object: *mut PyObject, view: *mut RawBuffer, flags: c_int) -> c_int;
    fn PyBuffer_Release(view: *mut RawBuffer);
}

/// Memory of an object, which the object neither moves nor frees until this is dropped. The drop needs the GIL.
pub(crate) struct Buffer {
    /// In a box, because some objects let `shape` point into it.
    view: Box<RawBuffer>,
}

impl Buffer {
    /// Whether an object has a buffer.
    pub(crate) fn is_supported_by(object: &Bound<'_, PyAny>) -> bool {
        // SAFETY: P3 - `object` is a reference.
        unsafe { PyObject_CheckBuffer(object.as_ptr()) != 0 }
    }

    /// The buffer of an object: contiguous, the last index fastest.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Buffer> {
        let mut view = Box::new(RawBuffer {
            buf: null_mut(),
            obj: null_mut(),
            len: 0,
            itemsize: 0,
            readonly: 0,
            ndim: 0,
            format: null_mut(),
            shape: null_mut(),
            strides: null_mut(),
            suboffsets: null_mut(),
            internal: null_mut(),
        });
        // SAFETY: P3 - `object` is a reference, and `view` is memory of the right layout.
        let status = unsafe { PyObject_GetBuffer(object.as_ptr(), &mut *view, PY_BUF_C_CONTIGUOUS | PY_BUF_FORMAT) };
        if status != 0 {
            // The failed call has not filled the view.
            view.obj = null_mut();
            return Err(PyErr::fetch(object.py()));
        }
        Ok(Buffer { view })
    }

    pub(crate) fn address(&self) -> usize {
        self.view.buf as usize
    }

    pub(crate) fn item_size(&self) -> usize {
        self.view.itemsize.unsigned_abs()
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.view.readonly != 0
    }

    /// The type of an item, as the module `struct` writes it.
    pub(crate) fn format(&self) -> &str {
        if self.view.format.is_null() {
            return "B";
        }
        // SAFETY: P3 - the object keeps the text as long as the buffer.
        unsafe { CStr::from_ptr(self.view.format) }.to_str().unwrap_or("?")
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: P3 - `of` filled the view, and it is released once. The owner drops it with the GIL.
        unsafe { PyBuffer_Release(&mut *self.view) };
    }
}
