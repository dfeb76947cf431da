//! Definitions that functions of Python supply when they are needed: [`Generator`], and units whose object is made at the first
//! lookup ([`LazyObject`]).
//!
//! The functions run on the thread that looks up a symbol, or on one that links, without a lock of the session. An exception
//! fails the lookup, with its text.

use std::sync::{Arc, Weak};

use jittison::base::{ExecutorAddr, Name};
use jittison::session::{
    DefinitionGenerator, MaterializationResponsibility, MaterializationUnit, SymbolFlags, SymbolRequest,
};
use jittison::{Error, ErrorKind, JitDylib};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::interpreter::{Detached, detached, with_interpreter};
use crate::keep_alive::Target;
use crate::session::{Session, release};
use crate::stub::target;

/// Asks a function of Python for names that a dylib misses.
struct Finder {
    /// Takes a name. Returns None, or an address and what keeps it.
    find: Py<PyAny>,
    session: Weak<Session>,
}

impl Finder {
    fn ask(&self, name: &str) -> Result<Option<(u64, Target)>, Error> {
        call(|py| {
            let found = self.find.bind(py).call1((name,))?;
            if found.is_none() {
                return Ok(None);
            }
            let (address, keep) = found.extract::<(u64, Bound<'_, PyAny>)>()?;
            Ok(Some((address, target(&keep))))
        })
    }

    fn define(&self, dylib: &JitDylib, name: &str, address: u64, target: Target) -> Result<(), Error> {
        let address = ExecutorAddr::new(address);
        if matches!(target, Target::Address) {
            // Weak, because another thread may define the same name at the same time.
            let flags = SymbolFlags::EXPORTED | SymbolFlags::WEAK;
            return dylib.define_absolute([(Name::new(name), address, flags)]);
        }
        let session = self.session.upgrade().ok_or(ErrorKind::SessionEnded)?;
        let tracker = dylib.default_tracker();
        let made = tracker.and_then(|tracker| session.stubs.create(&session.jit, &tracker, name, address, target));
        release(session);
        match made {
            // Another thread was first.
            Err(error) if matches!(error.kind(), ErrorKind::DuplicateDefinition { .. }) => Ok(()),
            made => made.map(drop),
        }
    }
}

impl DefinitionGenerator for Finder {
    fn generate(&self, dylib: &JitDylib, missing: &[SymbolRequest<'_>]) -> Result<(), Error> {
        for request in missing {
            if let Some((address, target)) = self.ask(request.name)? {
                self.define(dylib, request.name, address, target)?;
            }
        }
        Ok(())
    }
}

/// Calls Python. An exception is an error with its text.
fn call<R>(body: impl FnOnce(Python<'_>) -> PyResult<R>) -> Result<R, Error> {
    let outcome = with_interpreter(|py| body(py).map_err(Error::other));
    outcome.unwrap_or_else(|| Err(Error::other("the interpreter has ended")))
}

/// A generator of a dylib: what Dylib.add_generator returns.
#[pyclass(frozen, module = "jittison")]
pub(crate) struct Generator {
    inner: Detached<(Arc<dyn DefinitionGenerator>, JitDylib, Arc<Session>)>,
}

impl Generator {
    pub(crate) fn add(py: Python<'_>, session: &Arc<Session>, dylib: &JitDylib, find: Py<PyAny>) -> Generator {
        let finder: Arc<dyn DefinitionGenerator> = Arc::new(Finder { find, session: Arc::downgrade(session) });
        detached(py, || dylib.add_generator(finder.clone()));
        Generator { inner: Detached::new((finder, dylib.clone(), session.clone())) }
    }
}

#[pymethods]
impl Generator {
    /// Removes the generator from its dylib. What it has defined stays. Returns whether it was there.
    fn remove(&self, py: Python<'_>) -> bool {
        let (generator, dylib, _) = self.inner.get();
        detached(py, || dylib.remove_generator(generator))
    }

    fn __repr__(&self) -> String {
        format!("<jittison.Generator of {:?}>", self.inner.get().1.name())
    }
}

/// Symbols whose object a function of Python makes when one of them is looked up.
pub(crate) struct LazyObject {
    name: String,
    symbols: Vec<(Name, SymbolFlags)>,
    /// Takes nothing. Returns the bytes of the object.
    make: Py<PyAny>,
    session: Weak<Session>,
}

impl LazyObject {
    pub(crate) fn new(session: &Arc<Session>, name: &str, symbols: &[String], make: Py<PyAny>) -> LazyObject {
        let flags = SymbolFlags::EXPORTED | SymbolFlags::CALLABLE;
        let symbols = symbols.iter().map(|symbol| (Name::new(symbol), flags)).collect();
        LazyObject { name: name.to_string(), symbols, make, session: Arc::downgrade(session) }
    }
}

impl MaterializationUnit for LazyObject {
    fn name(&self) -> &str {
        &self.name
    }

    fn symbols(&self) -> &[(Name, SymbolFlags)] {
        &self.symbols
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        let bytes = match call(|py| Ok(self.make.bind(py).call0()?.cast::<PyBytes>()?.as_bytes().to_vec())) {
            Ok(bytes) => bytes,
            Err(error) => return responsibility.fail(error),
        };
        let Some(session) = self.session.upgrade() else { return responsibility.fail(ErrorKind::SessionEnded.into()) };
        session.jit.layer().emit_object(responsibility, &self.name, bytes.into());
        release(session);
    }
}
