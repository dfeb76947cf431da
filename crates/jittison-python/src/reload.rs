//! Programs whose objects are replaced while they run: [`Reloader`], [`Reload`].

use std::sync::Arc;

use jittison::{Error, ResourceTracker};
use pyo3::prelude::*;

use crate::error::raise;
use crate::interpreter::{Detached, detached};
use crate::patch::Retired;
use crate::removal::Removal;
use crate::session::Session;

/// A program whose objects are replaced while it runs, each as often as its source is edited.
///
/// Functions are reached through stubs, so callers follow at their next call. Variables keep their addresses and values, also
/// `static` ones. A reload that fails changes nothing. The objects belong to the tracker that made this.
#[pyclass(frozen, module = "jittison")]
pub(crate) struct Reloader {
    inner: Detached<(jittison::Reloader, Arc<Session>)>,
}

impl Reloader {
    pub(crate) fn new(py: Python<'_>, session: &Arc<Session>, tracker: &ResourceTracker) -> PyResult<Reloader> {
        let made = detached(py, || jittison::Reloader::new(&session.jit, tracker));
        let reloader = made.map_err(|error| raise(py, &error))?;
        Ok(Reloader { inner: Detached::new((reloader, session.clone())) })
    }

    fn run<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&jittison::Reloader) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        let (reloader, _) = self.inner.get();
        detached(py, || work(reloader)).map_err(|error| raise(py, &error))
    }
}

#[pymethods]
impl Reloader {
    fn _add_object(&self, py: Python<'_>, name: &str, data: &[u8]) -> PyResult<()> {
        self.run(py, |reloader| reloader.add_object(name, data))
    }

    /// Links the objects that were added. Their initialisers run at the first lookup.
    fn link(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, jittison::Reloader::link)
    }

    fn _reload(&self, py: Python<'_>, name: &str, data: &[u8]) -> PyResult<Reload> {
        // SAFETY: P1.
        let done = self.run(py, |reloader| unsafe { reloader.reload(name, data) })?;
        let (_, session) = self.inner.get();
        Ok(Reload::new(done, session))
    }

    fn _reload_all(&self, py: Python<'_>, objects: Vec<(String, Vec<u8>)>) -> PyResult<Vec<Reload>> {
        let objects = objects.iter().map(|(name, data)| (name.as_str(), data.as_slice()));
        // SAFETY: P1.
        let done = self.run(py, |reloader| unsafe { reloader.reload_all(objects) })?;
        let (_, session) = self.inner.get();
        Ok(done.into_iter().map(|done| Reload::new(done, session)).collect())
    }

    /// The names of the objects, sorted.
    #[getter]
    fn objects(&self, py: Python<'_>) -> Vec<String> {
        let (reloader, _) = self.inner.get();
        detached(py, || reloader.objects())
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!("<jittison.Reloader {}>", self.objects(py).join(", "))
    }
}

/// What a reload did. Times are in seconds, sizes in bytes.
#[pyclass(frozen, module = "jittison")]
pub(crate) struct Reload {
    /// The name of the object.
    #[pyo3(get)]
    object: String,
    /// The number of the version that runs now. 0 is the object that was added.
    #[pyo3(get)]
    version: u64,
    /// Functions whose code changed, sorted.
    #[pyo3(get)]
    changed: Vec<String>,
    /// Functions that the version before did not have, sorted.
    #[pyo3(get)]
    added: Vec<String>,
    /// Functions that the new version does not have, sorted.
    #[pyo3(get)]
    removed: Vec<String>,
    /// Variables that are new, sorted.
    #[pyo3(get)]
    new_variables: Vec<String>,
    /// Variables that the new version does not have, sorted. They stay in memory.
    #[pyo3(get)]
    removed_variables: Vec<String>,
    /// Variables that got another place, to which a hook brought their values.
    #[pyo3(get)]
    moved_variables: Vec<String>,
    /// Whether read-only data changed.
    #[pyo3(get)]
    constants_changed: bool,
    /// The size of the functions of the replaced version.
    #[pyo3(get)]
    code_bytes_before: u64,
    /// The size of the functions of the new version.
    #[pyo3(get)]
    code_bytes: u64,
    /// Whether the version stays in memory until the reloader is gone.
    #[pyo3(get)]
    stays: bool,
    /// The number of replaced versions that are still in memory, because a call or a function object is in the way.
    #[pyo3(get)]
    retired_in_memory: usize,
    /// The time to read and compare the object.
    #[pyo3(get)]
    read_time: f64,
    /// The time to link it.
    #[pyo3(get)]
    link_time: f64,
    /// The time to redirect the callers.
    #[pyo3(get)]
    commit_time: f64,
    tickets: Retired,
}

impl Reload {
    fn new(done: jittison::Reload, session: &Arc<Session>) -> Reload {
        Reload {
            object: done.object,
            version: done.version,
            changed: done.diff.changed,
            added: done.diff.added,
            removed: done.diff.removed,
            new_variables: done.diff.new_variables,
            removed_variables: done.diff.removed_variables,
            moved_variables: done.diff.moved_variables,
            constants_changed: done.diff.constants_changed,
            code_bytes_before: done.code_bytes_before,
            code_bytes: done.code_bytes,
            stays: done.stays,
            retired_in_memory: done.retired_in_memory,
            read_time: done.read_time.as_secs_f64(),
            link_time: done.link_time.as_secs_f64(),
            commit_time: done.commit_time.as_secs_f64(),
            tickets: Retired::new(session, done.retired),
        }
    }
}

#[pymethods]
impl Reload {
    /// The tickets of the versions that no caller reaches any more.
    #[getter]
    fn retired(&self) -> Vec<Removal> {
        self.tickets.tickets()
    }

    fn __repr__(&self) -> String {
        format!("<jittison.Reload {} {}>", self.object, self.version)
    }
}
