//! [`Stub`]: a handle to a redirectable function.

use std::sync::Arc;

use jittison::base::ExecutorAddr;
use pyo3::prelude::*;

use crate::error::raise;
use crate::function::Function;
use crate::interpreter::{Detached, detached};
use crate::keep_alive::{StubPlace, Target};
use crate::session::Session;

/// A function that jumps to a target, which can be changed while threads call it.
///
/// The target is kept in memory as long as code may reach it through the stub. The handle keeps the stub.
#[pyclass(frozen, module = "jittison")]
pub(crate) struct Stub {
    inner: Detached<(StubPlace, Arc<Session>)>,
    name: String,
}

impl Stub {
    pub(crate) fn new(session: &Arc<Session>, place: StubPlace, name: &str) -> Stub {
        Stub { inner: Detached::new((place, session.clone())), name: name.to_string() }
    }
}

/// What keeps a target: a function, a callback, or nothing for an address.
pub(crate) fn target(keep: &Bound<'_, PyAny>) -> Target {
    match keep.cast::<Function>() {
        Ok(function) => Target::Function(function.get().code().clone()),
        Err(_) if keep.is_none() => Target::Address,
        Err(_) => Target::Object(keep.clone().unbind()),
    }
}

#[pymethods]
impl Stub {
    /// The name that the tracker defines.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    #[pyo3(signature = (address, keep))]
    fn _redirect(&self, py: Python<'_>, address: u64, keep: &Bound<'_, PyAny>) -> PyResult<()> {
        let target = target(keep);
        let (place, session) = self.inner.get();
        let redirect = || session.stubs.redirect(&session.jit, place, ExecutorAddr::new(address), target);
        detached(py, redirect).map_err(|error| raise(py, &error))
    }

    fn __repr__(&self) -> String {
        format!("<jittison.Stub {:?}>", self.name)
    }
}
