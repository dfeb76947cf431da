//! Functions that are replaced while threads call them: [`Patchable`], [`Patch`], [`PreparedPatch`].

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jittison::Error;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::dylib::Dylib;
use crate::error::raise;
use crate::function::{AnyFunction, Function};
use crate::interpreter::{Detached, detached};
use crate::removal::{Removal, tickets};
use crate::session::Session;

/// Functions of a dylib that come in versions. A version is linked beside the running one, then committed as a whole while
/// threads call. It can be rolled back.
///
/// All calls by name, through function objects and from linked code, go to the current version. Variables keep their values.
/// A replaced version is freed when no call is inside it. Calls through a Function are counted; calls through a bare address
/// are not.
#[pyclass(frozen, module = "jittison")]
pub(crate) struct Patchable {
    inner: Detached<(jittison::Patchable, Arc<Session>)>,
}

impl Patchable {
    pub(crate) fn new(session: &Arc<Session>, patchable: jittison::Patchable) -> Patchable {
        Patchable { inner: Detached::new((patchable, session.clone())) }
    }

    fn session(&self) -> &Arc<Session> {
        &self.inner.get().1
    }

    fn run<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&jittison::Patchable) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        let (patchable, _) = self.inner.get();
        detached(py, || work(patchable)).map_err(|error| raise(py, &error))
    }
}

#[pymethods]
impl Patchable {
    /// Starts a new version. Add objects to it, link it, commit it.
    fn patch(&self) -> Patch {
        let (patchable, session) = self.inner.get();
        Patch { patch: Mutex::new(Some(Detached::new(patchable.patch()))), session: Detached::new(session.clone()) }
    }

    fn _replace(&self, py: Python<'_>, name: &str, data: &[u8]) -> PyResult<Commit> {
        // SAFETY: P1.
        let committed = self.run(py, |patchable| unsafe { patchable.replace(name, data) })?;
        Ok(Commit { version: committed.version, retired: Retired::new(self.session(), committed.retired) })
    }

    /// Undoes the last commit that was not undone.
    fn rollback(&self, py: Python<'_>) -> PyResult<Commit> {
        let undone = self.run(py, jittison::Patchable::rollback)?;
        Ok(Commit { version: undone.version, retired: Retired::new(self.session(), undone.retired) })
    }

    /// Removes the functions with all versions. Returns a ticket for each part.
    fn remove(&self, py: Python<'_>) -> PyResult<Vec<Removal>> {
        let removals = self.run(py, jittison::Patchable::remove)?;
        Ok(tickets(self.session(), removals))
    }

    /// The versions that are in memory, sorted by number.
    fn versions(&self, py: Python<'_>) -> Vec<PatchVersion> {
        let (patchable, _) = self.inner.get();
        detached(py, || patchable.versions()).into_iter().map(PatchVersion::from).collect()
    }

    /// The names of the functions, sorted.
    #[getter]
    fn functions(&self) -> Vec<String> {
        self.inner.get().0.functions()
    }

    /// The dylib of the functions.
    #[getter]
    fn dylib(&self) -> Dylib {
        let (patchable, session) = self.inner.get();
        Dylib::new(session, patchable.dylib().clone())
    }

    fn __repr__(&self) -> String {
        format!("<jittison.Patchable {}>", self.functions().join(", "))
    }
}

/// A new version: objects and requirements, to be linked.
#[pyclass(frozen, module = "jittison")]
pub(crate) struct Patch {
    /// `None` once it is linked.
    patch: Mutex<Option<Detached<jittison::Patch>>>,
    session: Detached<Arc<Session>>,
}

impl Patch {
    /// Takes the patch out, changes it without the GIL, and puts it back.
    fn change(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut jittison::Patch) -> Result<(), Error> + Send,
    ) -> PyResult<()> {
        let mut patch = self.take("was linked already, or another thread changes it")?;
        let outcome = detached(py, || work(patch.get_mut()));
        *self.lock() = Some(patch);
        outcome.map_err(|error| raise(py, &error))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Detached<jittison::Patch>>> {
        self.patch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, problem: &str) -> PyResult<Detached<jittison::Patch>> {
        self.lock().take().ok_or_else(|| PyRuntimeError::new_err(format!("the patch {problem}")))
    }
}

#[pymethods]
impl Patch {
    #[pyo3(signature = (name, data))]
    fn _add_object(&self, py: Python<'_>, name: &str, data: Option<&[u8]>) -> PyResult<()> {
        self.change(py, |patch| match data {
            Some(data) => patch.add_object(name, data).map(drop),
            None => patch.add_object_file(name).map(drop),
        })
    }

    /// Requires a function: the link fails if no object defines it.
    fn require(slf: PyRef<'_, Self>, function: &str) -> PyResult<Py<Patch>> {
        slf.change(slf.py(), |patch| {
            patch.require(function);
            Ok(())
        })?;
        Ok(slf.into())
    }

    fn _expect_signature(&self, py: Python<'_>, function: &str, signature: &str) -> PyResult<()> {
        self.change(py, |patch| {
            patch.expect_signature(function, signature);
            Ok(())
        })
    }

    /// Links the version where no caller reaches it, and runs its initialisers. If it fails, nothing is left.
    fn link(&self, py: Python<'_>) -> PyResult<PreparedPatch> {
        let patch = self.take("was linked already")?.into_inner();
        // SAFETY: P1.
        let prepared = detached(py, || unsafe { patch.link() }).map_err(|error| raise(py, &error))?;
        let session = self.session.get();
        let version = prepared.version();
        let prepared = Mutex::new(Some(Detached::new(prepared)));
        Ok(PreparedPatch { prepared, version, session: Detached::new(session.clone()) })
    }
}

/// A version that is linked, and that no caller reaches yet. In a `with` statement it is removed at the end of the block,
/// unless it was committed.
#[pyclass(frozen, module = "jittison")]
pub(crate) struct PreparedPatch {
    /// `None` once it is committed or discarded.
    prepared: Mutex<Option<Detached<jittison::PreparedPatch>>>,
    version: u64,
    session: Detached<Arc<Session>>,
}

impl PreparedPatch {
    fn lock(&self) -> MutexGuard<'_, Option<Detached<jittison::PreparedPatch>>> {
        self.prepared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> PyResult<Detached<jittison::PreparedPatch>> {
        let gone = || PyRuntimeError::new_err(format!("version {} was committed or discarded", self.version));
        self.lock().take().ok_or_else(gone)
    }
}

#[pymethods]
impl PreparedPatch {
    /// The number of the version.
    #[getter]
    fn version(&self) -> u64 {
        self.version
    }

    fn _lookup(&self, py: Python<'_>, name: &str) -> PyResult<Function> {
        let prepared = self.take()?;
        // SAFETY: P1.
        let found = detached(py, || unsafe { prepared.get().lookup::<AnyFunction>(name) });
        *self.lock() = Some(prepared);
        Ok(Function::new(self.session.get(), found.map_err(|error| raise(py, &error))?, name))
    }

    /// Redirects all callers to this version, and removes versions that are neither current nor in the history.
    fn commit(&self, py: Python<'_>) -> PyResult<Commit> {
        let prepared = self.take()?.into_inner();
        let committed = detached(py, || prepared.commit()).map_err(|error| raise(py, &error))?;
        Ok(Commit { version: committed.version, retired: Retired::new(self.session.get(), committed.retired) })
    }

    /// Removes the version, unless it was committed.
    fn discard(&self) {
        // Dropped after the lock is released.
        let prepared = self.lock().take();
        drop(prepared);
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyAny>) {
        self.discard();
    }

    fn __repr__(&self) -> String {
        format!("<jittison.PreparedPatch {}>", self.version)
    }
}

/// The result of a commit or a rollback: the number of the version, and the tickets of what was removed.
#[pyclass(frozen, module = "jittison")]
pub(crate) struct Commit {
    /// The version that was committed, or whose commit was undone.
    #[pyo3(get)]
    version: u64,
    retired: Retired,
}

/// Tickets, and their session.
pub(crate) struct Retired {
    inner: Detached<(Vec<jittison::Removal>, Arc<Session>)>,
}

impl Retired {
    pub(crate) fn new(session: &Arc<Session>, removals: Vec<jittison::Removal>) -> Retired {
        Retired { inner: Detached::new((removals, session.clone())) }
    }

    pub(crate) fn tickets(&self) -> Vec<Removal> {
        let (removals, session) = self.inner.get();
        tickets(session, removals.clone())
    }
}

#[pymethods]
impl Commit {
    /// The tickets of the versions that were removed.
    #[getter]
    fn retired(&self) -> Vec<Removal> {
        self.retired.tickets()
    }

    fn __repr__(&self) -> String {
        format!("<jittison.Commit {}>", self.version)
    }
}

/// One version of patched functions that is in memory.
#[pyclass(frozen, get_all, module = "jittison")]
pub(crate) struct PatchVersion {
    /// Its number.
    version: u64,
    /// The patchable functions that it defines.
    functions: Vec<String>,
    /// Those of its functions that callers reach.
    current: Vec<String>,
    /// Whether it was removed, and something still keeps it.
    is_retired: bool,
    /// What keeps a retired version, in words.
    held_by: Vec<String>,
}

impl From<jittison::PatchVersion> for PatchVersion {
    fn from(version: jittison::PatchVersion) -> PatchVersion {
        let jittison::PatchVersion { version, functions, current, is_retired, held_by } = version;
        PatchVersion { version, functions, current, is_retired, held_by }
    }
}

#[pymethods]
impl PatchVersion {
    fn __repr__(&self) -> String {
        let state = if self.is_retired { " retired" } else { "" };
        format!("<jittison.PatchVersion {}{state}: {}>", self.version, self.functions.join(", "))
    }
}
