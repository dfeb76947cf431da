//! [`Function`]: a function of linked code, and what keeps its code in memory. [`Pin`]: the same for a variable.
//!
//! A function is found without a signature. The Python part of the package binds it to one: a callable of ctypes or cffi for
//! its address, and what its parameters take. `call.rs` calls it.

use std::sync::{Arc, OnceLock};

use jittison::base::ExecutorAddr;
use jittison::session::{RequiredState, SymbolFlags, SymbolRequest, Visibility};
use jittison::{Error, ErrorKind, JitDylib};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::argument::Parameter;
use crate::interpreter::Detached;
use crate::session::Session;

/// The program knows the signature. The handle has none.
pub(crate) type AnyFunction = unsafe extern "C-unwind" fn();
/// An owned handle: it keeps the code in memory.
pub(crate) type Code = jittison::Function<AnyFunction>;

/// A function of linked code with a signature. It keeps its code in memory as long as it exists, also when the code is
/// removed. Any thread may call it, also several at once; the GIL is released during a call.
///
/// The signature is a promise of the program: a wrong one crashes or computes nonsense, as with ctypes.
#[pyclass(frozen, weakref, module = "jittison")]
pub(crate) struct Function {
    inner: Detached<(Code, Arc<Session>)>,
    name: String,
    binding: OnceLock<Binding>,
}

/// A function with its signature.
pub(crate) struct Binding {
    /// The function object of ctypes or cffi for the address.
    pub(crate) callable: Py<PyAny>,
    /// For each parameter that takes buffers, what it takes.
    pub(crate) parameters: Vec<Option<Parameter>>,
    signature: Py<PyAny>,
}

impl Function {
    pub(crate) fn new(session: &Arc<Session>, code: Code, name: &str) -> Function {
        let inner = Detached::new((code, session.clone()));
        Function { inner, name: name.to_string(), binding: OnceLock::new() }
    }

    pub(crate) fn code(&self) -> &Code {
        &self.inner.get().0
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.inner.get().1
    }

    pub(crate) fn binding(&self) -> Option<&Binding> {
        self.binding.get()
    }

    fn bound(&self) -> PyResult<&Binding> {
        self.binding().ok_or_else(|| PyTypeError::new_err(format!("`{}` has no signature", self.name)))
    }
}

#[pymethods]
impl Function {
    /// The name that it was found by.
    #[getter(__name__)]
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Where the code is.
    #[getter]
    fn address(&self) -> u64 {
        self.code().address().value()
    }

    /// The signature that it was looked up with.
    #[getter]
    fn signature(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(self.bound()?.signature.clone_ref(py))
    }

    /// The function object of ctypes or cffi. ctypes takes it when this function is passed as an argument. It is valid as
    /// long as this function exists, and calls through it are not counted: see Patchable.
    #[getter]
    fn _as_parameter_(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(self.bound()?.callable.clone_ref(py))
    }

    /// Binds the function to a signature, once.
    fn _bind(&self, callable: Py<PyAny>, parameters: Vec<Option<Parameter>>, signature: Py<PyAny>) -> PyResult<()> {
        let binding = Binding { callable, parameters, signature };
        self.binding.set(binding).map_err(|_| PyTypeError::new_err(format!("`{}` has a signature already", self.name)))
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let signature = self.binding().map(|binding| binding.signature.bind(py).to_string());
        format!("<jittison.Function {:?} at {:#x}: {}>", self.name, self.address(), signature.unwrap_or_default())
    }
}

/// Keeps a variable of linked code in memory.
#[pyclass(frozen, module = "jittison", name = "_Pin")]
pub(crate) struct Pin {
    _inner: Detached<(Option<jittison::session::Pin>, Arc<Session>)>,
}

impl Pin {
    pub(crate) fn new(session: &Arc<Session>, pin: Option<jittison::session::Pin>) -> Pin {
        Pin { _inner: Detached::new((pin, session.clone())) }
    }

    /// Finds a variable, and pins what it is in. There is no pin if the address was given as a number.
    pub(crate) fn find(
        session: &Session,
        dylib: &JitDylib,
        name: &str,
    ) -> Result<(ExecutorAddr, Option<jittison::session::Pin>), Error> {
        let mut order = vec![(dylib.clone(), Visibility::All)];
        order.extend(dylib.link_order());
        let requests = [SymbolRequest::required(name)];
        let found = session.jit.session().lookup(&order, &requests, RequiredState::Ready)?.pop();
        let missing = || ErrorKind::SymbolsNotFound {
            symbols: vec![name.to_string()],
            needed_by: None,
            searched: order.iter().map(|(dylib, _)| dylib.name().to_string()).collect(),
            failed: Vec::new(),
        };
        let found = found.ok_or_else(missing)?;
        if found.flags.contains(SymbolFlags::THREAD_LOCAL) {
            let text = "is thread-local: it has one address for each thread, which `address_of` returns in that thread";
            return Err(Error::other(format!("`{name}` {text}")));
        }
        let pin = match &found.symbol {
            // The tracker may have been removed since the lookup.
            Some(symbol) => Some(session.jit.session().pin(symbol).ok_or_else(missing)?),
            None => None,
        };
        Ok((found.address, pin))
    }
}
