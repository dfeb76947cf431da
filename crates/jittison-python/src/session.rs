//! [`Jit`]: a session, and [`Session`], which every object of the session holds.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use jittison::base::ExecutorAddr;
use jittison::platform::Profile;
use jittison::session::Visibility;
use jittison::{Error, JitBuilder, JitDylib, ReclaimPolicy};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::dylib::Dylib;
use crate::error::{exception_of, raise};
use crate::event;
use crate::function::{AnyFunction, Function, Pin};
use crate::guard::Guard;
use crate::interpreter::{Detached, begin_exit, detached, drain};
use crate::keep_alive::Stubs;
use crate::memory::{CodeLocation, MemoryMap, MemoryStatistics};
use crate::patch::Patchable;
use crate::removal::Removal;

/// A session, as its objects share it. It ends when the last of them is dropped, or earlier by [`end`](Self::end).
pub(crate) struct Session {
    pub(crate) jit: jittison::Jit,
    pub(crate) stubs: Stubs,
}

/// All sessions, for the exit handler of the package.
static SESSIONS: Mutex<Vec<Weak<Session>>> = Mutex::new(Vec::new());

impl Session {
    fn new(builder: JitBuilder) -> Result<Arc<Session>, Error> {
        let jit = builder.build()?;
        let stubs = Stubs::new(&jit)?;
        let session = Arc::new(Session { jit, stubs });
        let mut sessions = SESSIONS.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.retain(|session| session.strong_count() > 0);
        sessions.push(Arc::downgrade(&session));
        Ok(session)
    }

    /// Removes everything, the stubs last, because finalisers may call them.
    fn end(&self) -> Result<(), Error> {
        let dylibs = self.jit.session().dylibs();
        let cleared =
            dylibs.iter().rev().filter(|dylib| !self.stubs.is_own(dylib)).map(|dylib| dylib.clear().map(drop));
        // Each is cleared, whatever fails.
        let failures: Vec<_> = cleared.collect();
        let ended = self.jit.session().end();
        failures.into_iter().find(Result::is_err).unwrap_or(Ok(())).and(ended)
    }

    /// The dylib, or the main one.
    pub(crate) fn dylib<'a>(&'a self, dylib: Option<&'a Dylib>) -> &'a JitDylib {
        dylib.map_or_else(|| self.jit.main_dylib(), Dylib::inner)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            self.jit.session().report_error(error);
        }
    }
}

/// Gives back a session that a callback has borrowed. The end of a session may wait for the thread of the callback, so another
/// thread ends it if no object of Python holds it any more.
pub(crate) fn release(session: Arc<Session>) {
    if let Some(last) = Arc::into_inner(session) {
        std::thread::spawn(|| drop(last));
    }
}

/// What stubs of callbacks lead to when the interpreter has ended.
extern "C" fn no_interpreter() -> u64 {
    0
}

/// Ends all sessions of the process. The package calls it when the interpreter exits.
///
/// Code that a function object still holds stays in memory. Callbacks that such code calls from then on return 0: stubs lead
/// elsewhere, so that no thread wants the GIL of an interpreter that is being finalized (`interpreter.rs`).
#[pyfunction(name = "_end_all_sessions")]
pub(crate) fn end_all_sessions(py: Python<'_>) {
    begin_exit();
    let sessions = std::mem::take(&mut *SESSIONS.lock().unwrap_or_else(PoisonError::into_inner));
    detached(py, || {
        for session in sessions.iter().filter_map(Weak::upgrade) {
            if let Err(error) = session.end() {
                session.jit.session().report_error(error);
            }
            session
                .stubs
                .redirect_objects(&session.jit, ExecutorAddr::new(no_interpreter as *const () as usize as u64));
        }
    });
    drain(py);
}

/// A session: links objects and archives, looks up functions, and removes code again.
///
/// Every setting has a default::
///
///     jit = jittison.Jit()
///
/// memory_budget: upper limit of code memory in bytes; a link beyond it fails.
/// window_size: bytes of address space to reserve for code memory.
/// worker_threads: threads that link. Without any, the thread that looks up a symbol links what it needs.
/// libraries: shared libraries for symbols that the process does not have, such as "libm.so.6".
/// wrap: symbols to wrap, as `ld --wrap` does.
/// debugger: whether gdb and lldb see the linked objects. By default the environment decides (JITTISON_GDB).
/// profiler: "jitdump" or "map", for perf. By default the environment decides (JITTISON_PERF).
/// reclaim: "on_drop", "background" or "explicit": which thread frees removed code.
/// on_error: called with each error that no caller receives. By default sys.unraisablehook gets it.
/// on_event: called with an Event for each step: links, removals, redirects, refusals, changes of code memory.
///
/// The session ends when all its objects are gone, at the end of a `with` block, or by close().
#[pyclass(frozen, weakref, module = "jittison")]
pub(crate) struct Jit {
    session: Detached<Arc<Session>>,
}

impl Jit {
    pub(crate) fn session(&self) -> &Arc<Session> {
        self.session.get()
    }

    /// Runs `work` without the GIL.
    fn run<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&Arc<Session>) -> Result<T, Error> + Send) -> PyResult<T> {
        let session = self.session();
        detached(py, || work(session)).map_err(|error| raise(py, &error))
    }
}

#[pymethods]
impl Jit {
    #[new]
    #[pyo3(signature = (*, memory_budget=None, window_size=None, worker_threads=0, libraries=None, wrap=None,
        debugger=None, profiler=None, reclaim="on_drop", on_error=None, on_event=None))]
    #[expect(clippy::too_many_arguments, reason = "they are named in Python")]
    fn new(
        py: Python<'_>,
        memory_budget: Option<u64>,
        window_size: Option<u64>,
        worker_threads: usize,
        libraries: Option<Vec<String>>,
        wrap: Option<Vec<String>>,
        debugger: Option<bool>,
        profiler: Option<&str>,
        reclaim: &str,
        on_error: Option<Py<PyAny>>,
        on_event: Option<Py<PyAny>>,
    ) -> PyResult<Jit> {
        let mut builder = jittison::Jit::builder().worker_threads(worker_threads).reclaim_policy(policy(reclaim)?);
        builder = memory_budget.into_iter().fold(builder, JitBuilder::memory_budget);
        builder = window_size.into_iter().fold(builder, JitBuilder::window_size);
        builder = libraries.iter().flatten().fold(builder, |builder, name| builder.library(name));
        builder = wrap.iter().flatten().fold(builder, |builder, name| builder.wrap(name));
        builder = debugger.into_iter().fold(builder, JitBuilder::debugger);
        if let Some(profiler) = profiler {
            builder = builder.profiler(Some(profile(profiler)?));
        }
        builder = builder.error_reporter(Arc::new(move |error| report(on_error.as_ref(), &error)));
        builder = on_event.into_iter().map(event::observer).fold(builder, JitBuilder::observer);
        let session = detached(py, || Session::new(builder)).map_err(|error| raise(py, &error))?;
        Ok(Jit { session: Detached::new(session) })
    }

    /// The dylib "main", which every session has.
    #[getter]
    fn main(&self) -> Dylib {
        Dylib::new(self.session(), self.session().jit.main_dylib().clone())
    }

    /// The dylib of the symbols of this process. Every other dylib has it last in its link order.
    #[getter]
    fn process(&self) -> Dylib {
        Dylib::new(self.session(), self.session().jit.process_dylib().clone())
    }

    /// The dylibs of the session, oldest first.
    fn dylibs(&self, py: Python<'_>) -> Vec<Dylib> {
        let session = self.session();
        let all = detached(py, || session.jit.session().dylibs());
        all.into_iter().filter(|dylib| !session.stubs.is_own(dylib)).map(|dylib| Dylib::new(session, dylib)).collect()
    }

    /// Creates a dylib. Its code finds symbols in itself, then in the dylibs of `link_order`, then in the process.
    #[pyo3(signature = (name, link_order=None))]
    fn create_dylib(&self, py: Python<'_>, name: &str, link_order: Option<Vec<PyRef<'_, Dylib>>>) -> PyResult<Dylib> {
        let order: Vec<_> =
            link_order.iter().flatten().map(|dylib| (dylib.inner().clone(), Visibility::ExportedOnly)).collect();
        let dylib = self.run(py, |session| {
            let dylib = session.jit.create_dylib(name)?;
            if !order.is_empty() {
                let process = (session.jit.process_dylib().clone(), Visibility::ExportedOnly);
                dylib.set_link_order(&[&order[..], &[process]].concat())?;
            }
            Ok(dylib)
        })?;
        Ok(Dylib::new(self.session(), dylib))
    }

    /// Links what `name` needs, runs initialisers that wait, and returns the function without a signature.
    #[pyo3(signature = (name, dylib=None))]
    fn _lookup(&self, py: Python<'_>, name: &str, dylib: Option<&Dylib>) -> PyResult<Function> {
        let code = self.run(py, |session| {
            // SAFETY: P1.
            unsafe { session.jit.lookup_in::<AnyFunction>(session.dylib(dylib), name) }
        })?;
        Ok(Function::new(self.session(), code, name))
    }

    /// Links what a variable needs. Returns its address and what keeps it in memory.
    #[pyo3(signature = (name, dylib=None))]
    fn _pin_variable(&self, py: Python<'_>, name: &str, dylib: Option<&Dylib>) -> PyResult<(u64, Pin)> {
        let found = self.run(py, |session| Pin::find(session, session.dylib(dylib), name))?;
        let (address, pin) = found;
        Ok((address.value(), Pin::new(self.session(), pin)))
    }

    /// The address of a symbol, when its code is ready. Initialisers do not run.
    ///
    /// The address is a number: nothing keeps the code in memory. A thread-local variable has one address for each thread.
    #[pyo3(signature = (name, dylib=None))]
    fn address_of(&self, py: Python<'_>, name: &str, dylib: Option<&Dylib>) -> PyResult<u64> {
        self.run(py, |session| session.jit.address_of(session.dylib(dylib), name)).map(ExecutorAddr::value)
    }

    /// A guard, for a `with` statement: what this thread finds in the block stays in memory until its end.
    fn guard(&self) -> Guard {
        Guard::new(self.session())
    }

    /// What is at an address of linked code: function, object, dylib. None if no linked code is there.
    fn locate(&self, py: Python<'_>, address: u64) -> Option<CodeLocation> {
        let session = self.session();
        let found = detached(py, || session.jit.locate(&[ExecutorAddr::new(address)]));
        found.into_iter().flatten().next().map(CodeLocation::from)
    }

    /// Links every object of a dylib that has initialisers, and runs the initialisers that wait, as dlopen does. Returns the
    /// number of functions called.
    #[pyo3(signature = (dylib=None))]
    fn initialize(&self, py: Python<'_>, dylib: Option<&Dylib>) -> PyResult<usize> {
        // SAFETY: P1.
        self.run(py, |session| unsafe { session.jit.initialize(session.dylib(dylib)) })
    }

    /// Undoes one initialize(), as dlclose undoes dlopen: the last one runs exit handlers and finalisers. No code is removed.
    ///
    /// No thread may be in the code that is finalised, or call it before it is initialised again.
    #[pyo3(signature = (dylib=None))]
    fn deinitialize(&self, py: Python<'_>, dylib: Option<&Dylib>) -> PyResult<usize> {
        // SAFETY: P1.
        self.run(py, |session| unsafe { session.jit.deinitialize(session.dylib(dylib)) })
    }

    /// Declares functions of a dylib that come in versions. Nothing is defined before the first commit.
    ///
    /// history: the number of commits that can be rolled back.
    /// max_versions: how many replaced versions may still be in use before link() refuses another.
    #[pyo3(signature = (functions, *, dylib=None, history=1, max_versions=64))]
    fn patchable(
        &self,
        py: Python<'_>,
        functions: Vec<String>,
        dylib: Option<&Dylib>,
        history: usize,
        max_versions: usize,
    ) -> PyResult<Patchable> {
        let patchable = self.run(py, |session| {
            let names: Vec<_> = functions.iter().map(String::as_str).collect();
            let builder = session.jit.patchable_builder(session.dylib(dylib), &names);
            builder.history(history).max_versions(max_versions).build()
        })?;
        Ok(Patchable::new(self.session(), patchable))
    }

    #[pyo3(signature = (name, data, dylib=None))]
    fn _add_rebindable(&self, py: Python<'_>, name: &str, data: &[u8], dylib: Option<&Dylib>) -> PyResult<Patchable> {
        let patchable = self.run(py, |session| {
            // SAFETY: P1.
            unsafe { session.jit.add_rebindable(session.dylib(dylib), name, data) }
        })?;
        Ok(Patchable::new(self.session(), patchable))
    }

    /// A map of code memory. In a notebook it is a picture.
    fn memory_map(&self, py: Python<'_>) -> Option<MemoryMap> {
        let session = self.session();
        detached(py, || session.jit.memory_map()).map(MemoryMap::from)
    }

    /// Totals of code memory.
    fn memory_statistics(&self, py: Python<'_>) -> PyResult<MemoryStatistics> {
        let session = self.session();
        let statistics = detached(py, || session.jit.memory_statistics());
        MemoryStatistics::new(py, &statistics)
    }

    /// Returns every free page of code memory to the kernel. Returns the number of bytes.
    fn release_free(&self, py: Python<'_>) -> u64 {
        let session = self.session();
        detached(py, || session.jit.release_free()).bytes
    }

    /// Returns every slab of code memory that is entirely free to the kernel. Returns the number of slabs.
    fn release_free_slabs(&self, py: Python<'_>) -> usize {
        let session = self.session();
        detached(py, || session.jit.release_free_slabs())
    }

    /// Tickets of the removals that are not complete, oldest first.
    fn pending_removals(&self, py: Python<'_>) -> Vec<Removal> {
        let session = self.session();
        let pending = detached(py, || session.jit.session().pending_removals());
        let is_own = |removal: &jittison::Removal| session.stubs.is_own(&removal.dylib());
        pending.into_iter().filter(|removal| !is_own(removal)).map(|removal| Removal::new(session, removal)).collect()
    }

    /// Frees what was removed under the policy "explicit". Returns the number of trackers.
    fn reclaim(&self, py: Python<'_>) -> usize {
        let session = self.session();
        detached(py, || session.jit.session().reclaim())
    }

    /// Ends the session: removes everything. Code that a function object holds stays in memory until that is dropped.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, |session| session.end())
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }

    /// The map of code memory as a picture.
    fn _repr_html_(&self, py: Python<'_>) -> Option<String> {
        self.memory_map(py).map(|map| map._repr_html_())
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let session = self.session();
        let (dylibs, statistics) = detached(py, || (session.jit.session().dylibs(), session.jit.memory_statistics()));
        let dylibs = dylibs.iter().filter(|dylib| !session.stubs.is_own(dylib)).count();
        let (allocations, live_bytes) = (statistics.allocations, statistics.live_bytes);
        format!("<jittison.Jit: {dylibs} dylibs, {allocations} allocations, {live_bytes} bytes of code memory>")
    }

    /// The number of trackers that own stubs or what they lead to. For tests.
    fn _kept(&self) -> usize {
        self.session().stubs.key_count()
    }
}

fn policy(name: &str) -> PyResult<ReclaimPolicy> {
    match name {
        "on_drop" => Ok(ReclaimPolicy::OnDrop),
        "background" => Ok(ReclaimPolicy::Background),
        "explicit" => Ok(ReclaimPolicy::Explicit),
        other => Err(PyValueError::new_err(format!(
            "reclaim is {other:?}; it must be \"on_drop\", \"background\" or \"explicit\""
        ))),
    }
}

fn profile(name: &str) -> PyResult<Profile> {
    match name {
        "jitdump" => Ok(Profile::JitDump),
        "map" => Ok(Profile::PerfMap),
        other => Err(PyValueError::new_err(format!("profiler is {other:?}; it must be \"jitdump\" or \"map\""))),
    }
}

/// Passes on an error that no caller receives. May run on any thread.
fn report(on_error: Option<&Py<PyAny>>, error: &Error) {
    Python::try_attach(|py| {
        let exception = exception_of(py, error);
        let Some(on_error) = on_error else { return exception.write_unraisable(py, None) };
        if let Err(raised) = on_error.call1(py, (exception.into_value(py),)) {
            raised.write_unraisable(py, Some(on_error.bind(py)));
        }
    });
}
