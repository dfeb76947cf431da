//! One call of a [`Function`]: `Function.__call__`.
//!
//! 1. Enter a call of the session, so that versions and targets that are replaced meanwhile stay in memory.
//! 2. Convert the arguments, if some parameters take buffers.
//! 3. Call the function object of ctypes or cffi, which releases the GIL.
//! 4. Release the buffers, leave the call.
//!
//! A thread that comes back from step 3 while the interpreter is being finalized is ended there, before Python 3.14 with a
//! forced unwind. A method of pyo3 would catch that, and the process would abort. So the method here is a bare function of
//! C: between steps 2 and 4 it holds raw pointers only (P4). The steps around it are not inlined: a function that has a
//! table of landing pads must list every call that unwinds, and pyo3 declares `PyObject_Call` as one that does not.

use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{NonNull, null_mut};

use jittison::base::CallEntry;
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::argument::convert_all;
use crate::buffer::Buffer;
use crate::function::Function;
use crate::interpreter::detached;

/// A call between steps 2 and 4. Plain data: its owner calls [`finish`].
struct Frame {
    callable: *mut PyObject,
    arguments: *mut PyObject,
    /// What step 4 drops. A `Box`, as a pointer.
    held: *mut Held,
}

/// What a call holds. The arguments are dropped first: they may refer to memory of the buffers.
struct Held {
    _arguments: Py<PyTuple>,
    _buffers: Vec<Buffer>,
}

unsafe extern "C-unwind" {
    /// As `pyo3::ffi` has it, but it may unwind (P4).
    fn PyObject_Call(callable: *mut PyObject, arguments: *mut PyObject, keywords: *mut PyObject) -> *mut PyObject;
}

/// `Function.__call__`.
///
/// # Safety
/// Python calls it with the GIL: `function` is an object of the class [`Function`], `arguments` a tuple.
unsafe extern "C-unwind" fn call(function: *mut PyObject, arguments: *mut PyObject) -> *mut PyObject {
    let mut entry = MaybeUninit::uninit();
    // SAFETY: the caller's promises are the same.
    let Some(frame) = (unsafe { begin(function, arguments, &mut entry) }) else { return null_mut() };
    // SAFETY: P3 - the caller holds the function, which holds the callable. The caller or the frame holds the arguments.
    let result = unsafe { PyObject_Call(frame.callable, frame.arguments, null_mut()) };
    // SAFETY: `begin` made the frame and the entry, and both end here.
    unsafe { finish(function, frame, entry) };
    result
}

/// Steps 1 and 2. `None` if an exception is set.
///
/// # Safety
/// As [`call`].
#[inline(never)]
unsafe fn begin(
    function: *mut PyObject,
    arguments: *mut PyObject,
    entry: &mut MaybeUninit<CallEntry>,
) -> Option<Frame> {
    let mut prepare = |py: Python<'_>| -> PyResult<Frame> {
        // SAFETY: P3 - the caller of `call` holds both.
        let (function, arguments) =
            unsafe { (Bound::from_borrowed_ptr(py, function), Bound::from_borrowed_ptr(py, arguments)) };
        let function = function.cast::<Function>()?.get();
        let unbound = || PyTypeError::new_err(format!("`{}` has no signature", function.name()));
        let binding = function.binding().ok_or_else(unbound)?;
        let callable = binding.callable.as_ptr();
        let mut frame = Frame { callable, arguments: arguments.as_ptr(), held: null_mut() };
        if binding.parameters.iter().any(Option::is_some) {
            let mut buffers = Vec::new();
            let arguments = arguments.cast::<PyTuple>()?;
            let converted = convert_all(function.name(), &binding.parameters, arguments, &mut buffers)?;
            frame.arguments = converted.as_ptr();
            frame.held = Box::into_raw(Box::new(Held { _arguments: converted.unbind(), _buffers: buffers }));
        }
        entry.write(function.session().jit.session().enter_call());
        Ok(frame)
    };
    let prepared =
        catch_unwind(AssertUnwindSafe(|| Python::attach(|py| prepare(py).map_err(|error| error.restore(py)).ok())));
    prepared.unwrap_or_else(|_| {
        // The hook of panics has written its text.
        Python::attach(|py| PyRuntimeError::new_err("a panic in jittison before a call").restore(py));
        None
    })
}

/// Step 4. Keeps the exception that is set, if there is one.
///
/// # Safety
/// [`begin`] made `frame` and `entry` for `function` on this thread, and neither is used again.
#[inline(never)]
unsafe fn finish(function: *mut PyObject, frame: Frame, entry: MaybeUninit<CallEntry>) {
    // SAFETY: `begin` wrote the entry, as it returned a frame.
    let entry = unsafe { entry.assume_init() };
    // SAFETY: `begin` made the pointer from a box.
    let held = NonNull::new(frame.held).map(|held| unsafe { Box::from_raw(held.as_ptr()) });
    let leave = || {
        Python::attach(|py| {
            let raised = PyErr::take(py);
            drop(held);
            // SAFETY: P3 - the caller of `call` holds the function.
            let function = unsafe { Bound::from_borrowed_ptr(py, function) };
            if let Ok(function) = function.cast::<Function>() {
                leave(py, function.get(), entry);
            }
            if let Some(raised) = raised {
                raised.restore(py);
            }
        });
    };
    // A panic here is a defect. The result of the call stands.
    let _ = catch_unwind(AssertUnwindSafe(leave));
}

/// Leaves the call. If removals are pending, this may be what they wait for: then it runs finalisers, without the GIL (P2).
fn leave(py: Python<'_>, function: &Function, entry: CallEntry) {
    if function.session().jit.session().pending_removal_count() == 0 {
        return drop(entry);
    }
    let entry = ThisThread(entry);
    detached(py, || entry.leave());
}

/// The work of [`detached`] runs on the thread that calls it.
struct ThisThread(CallEntry);

// SAFETY: only `leave` uses it, which passes it to `detached`, and that sends nothing to another thread.
unsafe impl Send for ThisThread {}

impl ThisThread {
    fn leave(self) {
        drop(self.0);
    }
}

/// `PyMethodDef`, which the method refers to for ever.
struct Method(ffi::PyMethodDef);

// SAFETY: it is constant.
unsafe impl Sync for Method {}

type Bare = unsafe extern "C-unwind" fn(*mut PyObject, *mut PyObject) -> *mut PyObject;
type Declared = unsafe extern "C" fn(*mut PyObject, *mut PyObject) -> *mut PyObject;

static CALL: Method = Method(ffi::PyMethodDef {
    ml_name: c"__call__".as_ptr(),
    ml_meth: ffi::PyMethodDefPointer {
        // SAFETY: the two differ in what may unwind, and the caller is C.
        PyCFunction: unsafe { std::mem::transmute::<Bare, Declared>(call) },
    },
    ml_flags: ffi::METH_VARARGS as c_int,
    ml_doc: DOC.as_ptr() as *const c_char,
});

const DOC: &std::ffi::CStr = c"Calls the function. Arguments are those of its signature. A parameter that is a pointer also takes any object
with a buffer whose items have the declared type, such as an array of NumPy: the function gets the address of its memory.";

/// Gives the class `Function` its method `__call__`.
pub(crate) fn add_call_method(py: Python<'_>) -> PyResult<()> {
    let class = py.get_type::<Function>();
    let definition = (&raw const CALL.0).cast_mut();
    // SAFETY: P3 - the class is a reference, and the definition is never freed. Python checks that the first argument of each
    // call is an object of the class.
    let method = unsafe { ffi::PyDescr_NewMethod(class.as_type_ptr(), definition) };
    // SAFETY: it is a new reference, or an exception is set.
    let method = unsafe { Bound::from_owned_ptr_or_err(py, method)? };
    class.setattr("__call__", method)
}
