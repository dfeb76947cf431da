//! [`Guard`]: keeps in memory what its thread finds in the block of a `with` statement.
//!
//! A guard of the Rust crate stays on its thread. So it is in a thread-local list, by the number of the Python object. On another
//! thread the list has no such number: nothing can happen there.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jittison::Error;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::dylib::Dylib;
use crate::error::raise;
use crate::function::AnyFunction;
use crate::interpreter::{Detached, detached};
use crate::session::Session;

/// A guard, and the session that it is of. The guard is dropped first.
struct Entered {
    guard: RefCell<jittison::Guard<'static>>,
    jit: jittison::Jit,
}

thread_local! {
    static ENTERED: RefCell<HashMap<u64, Rc<Entered>>> = RefCell::default();
}

/// Keeps in memory what the thread finds in the block, whoever removes it meanwhile::
///
///     with jit.guard() as guard:
///         address = guard.address_of("kernel")
///         ...                                  # the code at the address stays
///
/// A guard is cheaper than a function object for each name. It delays every removal of the session that begins in the block, so
/// the block should be short: in a long one, call refresh() from time to time. A removal that the same thread waits for in the
/// block is not complete before its end. A guard belongs to the thread that entered it.
#[pyclass(frozen, module = "jittison")]
pub(crate) struct Guard {
    session: Detached<Arc<Session>>,
    number: u64,
}

impl Guard {
    pub(crate) fn new(session: &Arc<Session>) -> Guard {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Relaxed: the numbers only have to differ.
        Guard { session: Detached::new(session.clone()), number: NEXT.fetch_add(1, Ordering::Relaxed) }
    }

    /// Runs `work` with the guard and without the GIL.
    fn with<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&Entered) -> Result<T, Error> + Send) -> PyResult<T> {
        let number = self.number;
        // The list is not borrowed while `work` runs: that may run linked code, which may enter another guard.
        let found = detached(py, || ENTERED.with_borrow(|all| all.get(&number).cloned()).map(|entered| work(&entered)));
        let not_here = || PyRuntimeError::new_err("the guard is not entered by this thread");
        found.ok_or_else(not_here)?.map_err(|error| raise(py, &error))
    }
}

/// Takes a guard out of the list of this thread and drops it. False if it is not there.
fn leave(number: u64) -> bool {
    // While the thread ends there may be no list; it has dropped its guards then.
    let taken = ENTERED.try_with(|all| all.borrow_mut().remove(&number));
    taken.ok().flatten().is_some()
}

#[pymethods]
impl Guard {
    /// Enters the guard.
    fn __enter__(slf: PyRef<'_, Self>) -> PyResult<PyRef<'_, Self>> {
        if ENTERED.with_borrow(|all| all.contains_key(&slf.number)) {
            return Err(PyRuntimeError::new_err("the guard is entered already"));
        }
        let jit = slf.session.get().jit.clone();
        // SAFETY: P5 - the lifetime is that of the session, which `Entered` owns until after the guard is dropped.
        let guard = unsafe { std::mem::transmute::<jittison::Guard<'_>, jittison::Guard<'static>>(jit.guard()) };
        let entered = Rc::new(Entered { guard: RefCell::new(guard), jit });
        ENTERED.with_borrow_mut(|all| all.insert(slf.number, entered));
        Ok(slf)
    }

    /// Leaves the guard. What waited for it is freed.
    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        let number = self.number;
        match detached(py, || leave(number)) {
            true => Ok(()),
            false => Err(PyRuntimeError::new_err("the guard is not entered by this thread")),
        }
    }

    /// The address of a function, which stays in memory in the block. Links what it needs, and runs initialisers that wait.
    ///
    /// As with Jit.lookup, it is a promise of the program that all objects that were added so far may run. To call the address
    /// after the block is another one.
    #[pyo3(signature = (name, dylib=None))]
    fn address_of(&self, py: Python<'_>, name: &str, dylib: Option<&Dylib>) -> PyResult<u64> {
        let session = self.session.get();
        self.with(py, |entered| {
            let guard = entered.guard.try_borrow().map_err(|_| Error::other("the guard is being refreshed"))?;
            // SAFETY: P1.
            let symbol = unsafe { entered.jit.symbol::<AnyFunction>(&guard, session.dylib(dylib), name)? };
            Ok(symbol.address().value())
        })
    }

    /// Leaves the guard and enters it again: what was removed in the block is freed, and addresses found before are not kept.
    fn refresh(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |entered| {
            let mut guard = entered.guard.try_borrow_mut().map_err(|_| Error::other("a lookup uses the guard"))?;
            guard.refresh();
            Ok(())
        })
    }

    /// Whether this thread is in the block.
    #[getter]
    fn is_entered(&self) -> bool {
        ENTERED.with_borrow(|all| all.contains_key(&self.number))
    }

    fn __repr__(&self) -> String {
        let state = if self.is_entered() { "entered by this thread" } else { "not entered by this thread" };
        format!("<jittison.Guard: {state}>")
    }
}

impl Drop for Guard {
    /// A guard whose block was never left.
    fn drop(&mut self) {
        let number = self.number;
        Python::try_attach(|py| detached(py, || leave(number)));
    }
}
