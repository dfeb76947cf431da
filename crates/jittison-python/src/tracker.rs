//! [`Tracker`]: owns what is added under it.

use std::ffi::CString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};

use jittison::base::{ExecutorAddr, Name};
use jittison::session::{Alias, SymbolFlags};
use jittison::{Error, ErrorKind, Program, ResourceTracker};
use pyo3::prelude::*;

use crate::archive;
use crate::dylib::Dylib;
use crate::error::raise;
use crate::interpreter::{Detached, detached};
use crate::memory::MemoryUsage;
use crate::reload::Reloader;
use crate::removal::Removal;
use crate::session::Session;
use crate::stub::{Stub, target};
use crate::supply::LazyObject;

/// A resource tracker: it owns what is added under it, and remove() takes all of that back.
///
/// In a `with` statement it is removed at the end of the block::
///
///     with jit.main.create_tracker() as tracker:
///         tracker.add_object("add.o")
///         add = jit.lookup("add", "int(int, int)")
///         add(2, 3)
///
/// A tracker that is dropped without remove() gives what it owns to the default tracker of its dylib.
#[pyclass(frozen, module = "jittison")]
pub(crate) struct Tracker {
    inner: Detached<(ResourceTracker, Arc<Session>)>,
    /// The ticket, once it was removed through this object.
    removal: OnceLock<Detached<jittison::Removal>>,
}

impl Tracker {
    pub(crate) fn new(session: &Arc<Session>, tracker: ResourceTracker) -> Tracker {
        Tracker { inner: Detached::new((tracker, session.clone())), removal: OnceLock::new() }
    }

    pub(crate) fn inner(&self) -> &ResourceTracker {
        &self.inner.get().0
    }

    fn run<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Session, &ResourceTracker) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        let (tracker, session) = self.inner.get();
        detached(py, || work(session, tracker)).map_err(|error| raise(py, &error))
    }

    fn ticket(&self, removal: jittison::Removal) -> Removal {
        self.keep(&removal);
        Removal::new(&self.inner.get().1, removal)
    }

    fn keep(&self, removal: &jittison::Removal) {
        self.removal.get_or_init(|| Detached::new(removal.clone()));
    }
}

#[pymethods]
impl Tracker {
    /// `data` is the object, or None for the file `name`. `now` links it at once.
    #[pyo3(signature = (name, data, now))]
    fn _add_object(&self, py: Python<'_>, name: &str, data: Option<&[u8]>, now: bool) -> PyResult<()> {
        self.run(py, |session, tracker| match (data, now) {
            (Some(data), false) => session.jit.add_object(tracker, name, data),
            (Some(data), true) => session.jit.link_object(tracker, name, data),
            (None, false) => session.jit.add_object_file(tracker, name),
            (None, true) => session.jit.link_object(tracker, name, read(name)?),
        })
    }

    /// `data` is the archive, or None for the file `name`.
    #[pyo3(signature = (name, data))]
    fn _add_archive(&self, py: Python<'_>, name: &str, data: Option<&[u8]>) -> PyResult<usize> {
        self.run(py, |session, tracker| match data {
            Some(data) => archive::add_whole(&session.jit, tracker, &archive::in_memory(name, data)?),
            None => session.jit.add_archive_whole(tracker, name),
        })
    }

    #[pyo3(signature = (name, address, *, callable))]
    fn _define_absolute(&self, py: Python<'_>, name: &str, address: u64, callable: bool) -> PyResult<()> {
        let flags = if callable { SymbolFlags::EXPORTED | SymbolFlags::CALLABLE } else { SymbolFlags::EXPORTED };
        self.run(py, |_, tracker| tracker.define_absolute([(Name::new(name), ExecutorAddr::new(address), flags)]))
    }

    #[pyo3(signature = (name, address, keep))]
    fn _create_stub(&self, py: Python<'_>, name: &str, address: u64, keep: &Bound<'_, PyAny>) -> PyResult<Stub> {
        let target = target(keep);
        let place = self.run(py, |session, tracker| {
            session.stubs.create(&session.jit, tracker, name, ExecutorAddr::new(address), target)
        })?;
        Ok(Stub::new(&self.inner.get().1, place, name))
    }

    /// `make` takes nothing, and returns the bytes of an object.
    fn _define_lazily(&self, py: Python<'_>, names: Vec<String>, make: Py<PyAny>, name: &str) -> PyResult<()> {
        let (tracker, session) = self.inner.get();
        let unit = LazyObject::new(session, name, &names, make);
        detached(py, || tracker.define(unit)).map_err(|error| raise(py, &error))
    }

    #[pyo3(signature = (source, names, lazy))]
    fn _reexport(&self, py: Python<'_>, source: &Dylib, names: Vec<(String, String)>, lazy: bool) -> PyResult<()> {
        let flags = SymbolFlags::EXPORTED | SymbolFlags::CALLABLE;
        let alias =
            |(name, aliasee): &(String, String)| Alias { name: Name::new(name), aliasee: Name::new(aliasee), flags };
        let aliases: Vec<_> = names.iter().map(alias).collect();
        let source = source.inner();
        self.run(py, |session, tracker| match lazy {
            true => session.jit.lazy_reexport(tracker, source, &aliases),
            false => tracker.reexport(source, &aliases),
        })
    }

    fn _run_program(&self, py: Python<'_>, entry: &str, arguments: Vec<Vec<u8>>) -> PyResult<i32> {
        let arguments = arguments.into_iter().map(CString::new).collect::<Result<Vec<_>, _>>()?;
        self.run(py, |session, tracker| {
            let program = Program::new(&session.jit, tracker)?;
            // SAFETY: P1.
            unsafe { program.run(entry, &arguments, |_| {}) }
        })
    }

    /// A reloader for the objects of a program, which belong to this tracker.
    fn reloader(&self, py: Python<'_>) -> PyResult<Reloader> {
        let (tracker, session) = self.inner.get();
        Reloader::new(py, session, tracker)
    }

    /// Calls `function` without arguments when nothing uses the removed tracker any more, just before the finalisers of its code
    /// run and its memory is free. The thread that frees it calls it. A transfer passes it on to the destination. Of several,
    /// the newest is called first.
    ///
    /// The function must not wait for a removal.
    fn on_reclaim(&self, py: Python<'_>, function: Py<PyAny>) -> PyResult<()> {
        self.run(py, |session, tracker| session.stubs.on_reclaim(tracker, function))
    }

    /// Removes what the tracker owns. Its names are gone at once. Its memory is free when nothing uses it: the ticket tells.
    fn remove(&self, py: Python<'_>) -> PyResult<Removal> {
        self.run(py, |_, tracker| tracker.remove()).map(|removal| self.ticket(removal))
    }

    /// Removes what the tracker owns, unless something uses it: then InUseError names the holders, and nothing is done.
    fn try_remove(&self, py: Python<'_>) -> PyResult<Removal> {
        self.run(py, |_, tracker| tracker.try_remove()).map(|removal| self.ticket(removal))
    }

    /// As remove(), with the trackers whose code refers to it.
    fn remove_cascade(&self, py: Python<'_>) -> PyResult<Removal> {
        self.run(py, |_, tracker| tracker.remove_cascade()).map(|removal| self.ticket(removal))
    }

    /// Frees what the tracker owns at once, even if functions, guards, calls or other code still refer to it.
    ///
    /// The program promises that no thread is inside its code, calls it later, through whatever still refers to it, or uses its
    /// data. Otherwise the process crashes. remove() is the safe form, and equally fast if nothing uses the tracker.
    fn remove_now(&self, py: Python<'_>) -> PyResult<Removal> {
        // SAFETY: P1.
        self.run(py, |session, tracker| unsafe { session.jit.remove_now(tracker) }).map(|removal| self.ticket(removal))
    }

    /// Gives what the tracker owns to another tracker of the dylib. This one is defunct then.
    fn transfer_to(&self, py: Python<'_>, destination: &Tracker) -> PyResult<()> {
        let destination = destination.inner();
        self.run(py, |_, tracker| tracker.transfer_to(destination))
    }

    /// Whether the tracker was removed or transferred.
    #[getter]
    fn is_defunct(&self) -> bool {
        self.inner().is_defunct()
    }

    /// The dylib.
    #[getter]
    fn dylib(&self) -> Dylib {
        Dylib::new(&self.inner.get().1, self.inner().dylib())
    }

    /// The key that every resource of the tracker is recorded under, as text.
    #[getter]
    fn key(&self) -> String {
        self.inner().key().to_string()
    }

    /// Code memory that the tracker owns.
    #[getter]
    fn usage(&self, py: Python<'_>) -> MemoryUsage {
        let (tracker, session) = self.inner.get();
        detached(py, || session.jit.usage(tracker)).into()
    }

    /// The trackers whose code refers to this one.
    fn dependents(&self, py: Python<'_>) -> Vec<Tracker> {
        let (tracker, session) = self.inner.get();
        let found = detached(py, || tracker.dependents());
        found.into_iter().map(|tracker| Tracker::new(session, tracker)).collect()
    }

    /// The trackers that this one's code refers to. Those of stubs from Python are left out.
    fn dependencies(&self, py: Python<'_>) -> Vec<Tracker> {
        let (tracker, session) = self.inner.get();
        let found = detached(py, || tracker.dependencies());
        let others = found.into_iter().filter(|tracker| !session.stubs.is_own(&tracker.dylib()));
        others.map(|tracker| Tracker::new(session, tracker)).collect()
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    /// Removes the tracker, unless it is defunct.
    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        let removal = self.run(py, |_, tracker| match tracker.remove() {
            Err(error) if matches!(error.kind(), ErrorKind::TrackerDefunct { .. }) => Ok(None),
            outcome => outcome.map(Some),
        })?;
        if let Some(removal) = removal {
            self.keep(&removal);
        }
        Ok(())
    }

    /// The ticket of the removal. None if the tracker was not removed through this object.
    #[getter]
    fn removal(&self) -> Option<Removal> {
        let (_, session) = self.inner.get();
        self.removal.get().map(|removal| Removal::new(session, removal.get().clone()))
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Tracker>().is_ok_and(|other| other.get().inner().key() == self.inner().key())
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.inner().key().hash(&mut hasher);
        hasher.finish()
    }

    fn __repr__(&self) -> String {
        let state = if self.is_defunct() { " (defunct)" } else { "" };
        format!("<jittison.Tracker {} of {:?}{state}>", self.key(), self.inner().dylib().name())
    }
}

/// Reads an object file.
fn read(path: &str) -> Result<Vec<u8>, Error> {
    let failed = |problem: std::io::Error| ErrorKind::File { path: path.to_string(), problem: problem.to_string() };
    std::fs::read(path).map_err(|problem| failed(problem).into())
}
