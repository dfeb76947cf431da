//! [`Dylib`]: a namespace of a session.

use std::sync::Arc;

use jittison::session::Visibility;
use jittison::{Error, JitDylib};
use pyo3::prelude::*;

use crate::archive;
use crate::error::raise;
use crate::interpreter::{Detached, detached};
use crate::memory::MemoryUsage;
use crate::removal::{Removal, tickets};
use crate::session::Session;
use crate::supply::Generator;
use crate::tracker::Tracker;

/// A dylib: a set of symbols, as a shared library has one. Trackers own what is added to it.
#[pyclass(frozen, module = "jittison")]
pub(crate) struct Dylib {
    /// The dylib is dropped before its session.
    inner: Detached<(JitDylib, Arc<Session>)>,
}

impl Dylib {
    pub(crate) fn new(session: &Arc<Session>, dylib: JitDylib) -> Dylib {
        Dylib { inner: Detached::new((dylib, session.clone())) }
    }

    pub(crate) fn inner(&self) -> &JitDylib {
        &self.inner.get().0
    }

    fn session(&self) -> &Arc<Session> {
        &self.inner.get().1
    }

    fn run<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Session, &JitDylib) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        let (dylib, session) = self.inner.get();
        detached(py, || work(session, dylib)).map_err(|error| raise(py, &error))
    }
}

#[pymethods]
impl Dylib {
    /// The name.
    #[getter]
    fn name(&self) -> &str {
        self.inner().name()
    }

    /// Creates a tracker: it owns what is added under it. In a `with` statement it is removed at the end of the block.
    fn create_tracker(&self, py: Python<'_>) -> PyResult<Tracker> {
        let tracker = self.run(py, |_, dylib| dylib.create_tracker())?;
        Ok(Tracker::new(self.session(), tracker))
    }

    /// The tracker that owns definitions added without a tracker, and those of trackers that were dropped.
    fn default_tracker(&self, py: Python<'_>) -> PyResult<Tracker> {
        let tracker = self.run(py, |_, dylib| dylib.default_tracker())?;
        Ok(Tracker::new(self.session(), tracker))
    }

    /// The number of defined symbols.
    fn __len__(&self, py: Python<'_>) -> usize {
        let dylib = self.inner();
        detached(py, || dylib.symbol_count())
    }

    /// Whether the dylib defines a name. What other dylibs define does not count.
    fn __contains__(&self, py: Python<'_>, name: &str) -> bool {
        let dylib = self.inner();
        detached(py, || dylib.symbol_flags(name).is_some())
    }

    /// A dylib is true, also without symbols.
    fn __bool__(&self) -> bool {
        true
    }

    /// The dylibs that its code finds symbols in, after itself.
    #[getter]
    fn link_order(&self, py: Python<'_>) -> Vec<Dylib> {
        let (dylib, session) = self.inner.get();
        let order = detached(py, || dylib.link_order());
        order.into_iter().map(|(dylib, _)| Dylib::new(session, dylib)).collect()
    }

    /// Sets the dylibs that its code finds symbols in, after itself. The process is not added.
    fn set_link_order(&self, py: Python<'_>, dylibs: Vec<PyRef<'_, Dylib>>) -> PyResult<()> {
        let order: Vec<_> = dylibs.iter().map(|dylib| (dylib.inner().clone(), Visibility::ExportedOnly)).collect();
        self.run(py, |_, dylib| dylib.set_link_order(&order))
    }

    /// `data` is the archive, or None for the file `name`.
    #[pyo3(signature = (name, data))]
    fn _link_static_library(&self, py: Python<'_>, name: &str, data: Option<&[u8]>) -> PyResult<()> {
        self.run(py, |session, dylib| match data {
            Some(data) => session.jit.static_libraries(dylib)?.add(vec![archive::in_memory(name, data)?]),
            None => session.jit.link_static_library(dylib, name),
        })
    }

    /// `find` takes a name, and returns None or an address and what keeps it.
    fn _add_generator(&self, py: Python<'_>, find: Py<PyAny>) -> Generator {
        Generator::add(py, self.session(), self.inner(), find)
    }

    /// Sets the tracker that members of static libraries go under from now on.
    fn set_library_tracker(&self, py: Python<'_>, tracker: &Tracker) -> PyResult<()> {
        let tracker = tracker.inner();
        self.run(py, |session, dylib| {
            session.jit.static_libraries(dylib).map(|libraries| libraries.set_tracker(tracker))
        })
    }

    /// Makes every global symbol of the running program available, also those that it does not export.
    fn add_program_symbols(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, |session, dylib| session.jit.add_program_symbols(dylib))
    }

    /// Code memory that the dylib owns, with that of removed trackers that are still in use.
    #[getter]
    fn usage(&self, py: Python<'_>) -> MemoryUsage {
        let (dylib, session) = self.inner.get();
        detached(py, || session.jit.usage_of_dylib(dylib)).into()
    }

    /// Removes everything from the dylib. Returns a ticket for each tracker.
    fn clear(&self, py: Python<'_>) -> PyResult<Vec<Removal>> {
        let removals = self.run(py, |_, dylib| dylib.clear())?;
        Ok(tickets(self.session(), removals))
    }

    /// Removes the dylib with everything in it. Returns a ticket for each tracker.
    fn remove(&self, py: Python<'_>) -> PyResult<Vec<Removal>> {
        let removals = self.run(py, |session, dylib| session.jit.session().remove_dylib(dylib))?;
        Ok(tickets(self.session(), removals))
    }

    /// Whether the dylib was removed, or its session has ended.
    #[getter]
    fn is_defunct(&self) -> bool {
        self.inner().is_defunct()
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Dylib>().is_ok_and(|other| other.get().inner() == self.inner())
    }

    fn __hash__(&self) -> u64 {
        self.inner().id()
    }

    fn __repr__(&self) -> String {
        format!("<jittison.Dylib {:?}>", self.name())
    }
}
