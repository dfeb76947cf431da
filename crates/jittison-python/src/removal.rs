//! [`Removal`]: the ticket of a removal.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::dylib::Dylib;
use crate::error::{exception_of, raise};
use crate::interpreter::{Detached, detached};
use crate::session::Session;

/// The ticket of a removal: whether the memory is free, and what keeps it.
#[pyclass(frozen, module = "jittison")]
pub(crate) struct Removal {
    inner: Detached<(jittison::Removal, Arc<Session>)>,
}

impl Removal {
    pub(crate) fn new(session: &Arc<Session>, removal: jittison::Removal) -> Removal {
        Removal { inner: Detached::new((removal, session.clone())) }
    }

    fn removal(&self) -> &jittison::Removal {
        &self.inner.get().0
    }
}

/// The tickets of several removals.
pub(crate) fn tickets(session: &Arc<Session>, removals: Vec<jittison::Removal>) -> Vec<Removal> {
    removals.into_iter().map(|removal| Removal::new(session, removal)).collect()
}

#[pymethods]
impl Removal {
    /// Whether all resources are released.
    #[getter]
    fn is_complete(&self) -> bool {
        self.removal().is_complete()
    }

    /// What keeps the resources, one text each. Empty once complete.
    fn obstacles(&self, py: Python<'_>) -> Vec<String> {
        let removal = self.removal();
        detached(py, || removal.obstacles())
    }

    /// The numbers of owned handles and of dependent trackers that keep the resources.
    fn blockers(&self, py: Python<'_>) -> (usize, usize) {
        let removal = self.removal();
        detached(py, || removal.blockers())
    }

    /// The bytes of code memory that are still held.
    #[getter]
    fn bytes(&self, py: Python<'_>) -> u64 {
        let removal = self.removal();
        detached(py, || removal.bytes())
    }

    /// Seconds since the removal. None once complete, or if nothing ever blocked it.
    #[getter]
    fn age(&self) -> Option<f64> {
        self.removal().age().map(|age| age.as_secs_f64())
    }

    /// The dylib of the removed tracker.
    #[getter]
    fn dylib(&self) -> Dylib {
        Dylib::new(&self.inner.get().1, self.removal().dylib())
    }

    /// The key of the removed tracker, as text.
    #[getter]
    fn key(&self) -> String {
        self.removal().key().to_string()
    }

    /// Waits until the removal is complete, at most `timeout` seconds. Returns whether it is. Ctrl-C interrupts the wait.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let end = match timeout {
            Some(seconds) => {
                let wait = Duration::try_from_secs_f64(seconds.max(0.0));
                let wait = wait.map_err(|_| PyValueError::new_err("timeout must be a number of seconds"))?;
                Instant::now().checked_add(wait)
            }
            None => None,
        };
        let removal = self.removal();
        loop {
            let slice = Instant::now() + SIGNAL_CHECK;
            let until = end.map_or(slice, |end| end.min(slice));
            let is_done = detached(py, || removal.wait_until(until)).map_err(|error| raise(py, &error))?;
            if is_done || end.is_some_and(|end| Instant::now() >= end) {
                return Ok(is_done);
            }
            py.check_signals()?;
        }
    }

    /// Calls `callback` when the removal is complete: with None, or with the error of a resource manager. The thread that
    /// completes the removal calls it, or this one if the removal is complete already.
    fn on_complete(&self, py: Python<'_>, callback: Py<PyAny>) {
        let removal = self.removal();
        let call = move |outcome: Result<(), jittison::Error>| {
            Python::try_attach(|py| {
                let error = outcome.err().map(|error| exception_of(py, &error).into_value(py));
                if let Err(raised) = callback.call1(py, (error,)) {
                    raised.write_unraisable(py, Some(callback.bind(py)));
                }
            });
        };
        detached(py, || removal.on_complete(call));
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        match self.is_complete() {
            true => format!("<jittison.Removal of {}: complete>", self.key()),
            false => format!("<jittison.Removal of {}: kept by {}>", self.key(), self.obstacles(py).join("; ")),
        }
    }
}

/// How often a wait looks for signals.
const SIGNAL_CHECK: Duration = Duration::from_millis(50);
