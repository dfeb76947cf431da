//! Errors of the Rust crate as exceptions of Python, with fields.
//!
//! The classes are in Python (`errors.py`), which passes them here when the package is imported. They have no `__init__` of
//! their own, so no Python code runs while an exception is made.

use std::collections::HashMap;

use jittison::error::{LinkFault, MemoryFault};
use jittison::{Error, ErrorKind};
use pyo3::exceptions::PySystemExit;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

use crate::interpreter::is_exiting_elsewhere;

/// The classes of exceptions, by name.
static CLASSES: PyOnceLock<HashMap<String, Py<PyType>>> = PyOnceLock::new();

/// Sets the classes of exceptions. The package calls it once.
#[pyfunction(name = "_set_exceptions")]
pub(crate) fn set_exceptions(py: Python<'_>, classes: HashMap<String, Py<PyType>>) {
    let _ = CLASSES.set(py, classes);
}

/// Reports an exception that no caller receives to sys.unraisablehook.
#[pyfunction(name = "_report")]
pub(crate) fn report(raised: &Bound<'_, PyAny>, function: &Bound<'_, PyAny>) {
    PyErr::from_value(raised.clone()).write_unraisable(raised.py(), Some(function));
}

/// The exception that a call raises for an error.
///
/// While the interpreter exits, calls of other threads fail, because their sessions have ended. An exception that nothing catches would be
/// printed then, and Python 3.14 may end the process with an abort if a thread prints while the interpreter is being finalized. So the
/// exception is SystemExit, which ends a thread without a word.
pub(crate) fn raise(py: Python<'_>, error: &Error) -> PyErr {
    if is_exiting_elsewhere() {
        return PySystemExit::new_err(());
    }
    exception_of(py, error)
}

/// The exception for an error. Its cause is the exception for the error's cause.
pub(crate) fn exception_of(py: Python<'_>, error: &Error) -> PyErr {
    let kind = kind_of(error.kind());
    let Some(class) = CLASSES.get(py).and_then(|classes| classes.get(kind.class)) else {
        return pyo3::exceptions::PyRuntimeError::new_err(error.to_string());
    };
    let raised = PyErr::from_type(class.bind(py).clone(), (error.to_string(),));
    let place = Place::of(error);
    let value = raised.value(py);
    let fields = || -> PyResult<()> {
        value.setattr("kind", kind.name)?;
        value.setattr("root_kind", kind_of(error.root_cause().kind()).name)?;
        value.setattr("message", error.to_string())?;
        value.setattr("is_retriable", error.is_retriable())?;
        value.setattr("object", place.object)?;
        value.setattr("section", place.section)?;
        value.setattr("offset", place.offset)?;
        value.setattr("symbol", place.symbols.first())?;
        value.setattr("symbols", place.symbols)?;
        value.setattr("dylib", place.dylib)?;
        value.setattr("holders", place.holders)
    };
    if let Err(problem) = fields() {
        return problem;
    }
    if let Some(cause) = cause_of(error.kind()) {
        raised.set_cause(py, Some(exception_of(py, cause)));
    }
    raised
}

fn cause_of(kind: &ErrorKind) -> Option<&Error> {
    match kind {
        ErrorKind::FailedToMaterialize { cause, .. } | ErrorKind::PatchRefused { cause, .. } => Some(cause),
        ErrorKind::DependencyRemoved { cause, .. } => cause.as_ref(),
        ErrorKind::Several(errors) => errors.first(),
        _ => None,
    }
}

/// A kind of error: its name, which is that of the Rust crate, and the class of its exception.
struct Kind {
    name: &'static str,
    class: &'static str,
}

fn kind_of(kind: &ErrorKind) -> Kind {
    let named = |name, class| Kind { name, class };
    match kind {
        ErrorKind::TrackerDefunct { .. } => named("TrackerDefunct", "DefunctError"),
        ErrorKind::DylibDefunct { .. } => named("DylibDefunct", "DefunctError"),
        ErrorKind::SessionEnded => named("SessionEnded", "DefunctError"),
        ErrorKind::PatchableGone { .. } => named("PatchableGone", "DefunctError"),
        ErrorKind::InUse { .. } => named("InUse", "InUseError"),
        ErrorKind::SymbolsNotFound { .. } => named("SymbolsNotFound", "SymbolNotFoundError"),
        ErrorKind::NoSuchStub { .. } => named("NoSuchStub", "SymbolNotFoundError"),
        ErrorKind::DuplicateDefinition { .. } => named("DuplicateDefinition", "DuplicateDefinitionError"),
        ErrorKind::CommonTooSmall { .. } => named("CommonTooSmall", "DuplicateDefinitionError"),
        ErrorKind::FailedToMaterialize { .. } => named("FailedToMaterialize", "LinkError"),
        ErrorKind::DependencyRemoved { .. } => named("DependencyRemoved", "LinkError"),
        ErrorKind::AliasCycle { .. } => named("AliasCycle", "LinkError"),
        ErrorKind::Archive { .. } => named("Archive", "LinkError"),
        ErrorKind::Link { fault, .. } => named(fault_name(fault), "LinkError"),
        ErrorKind::Memory(fault) => named(memory_fault_name(fault), "CodeMemoryError"),
        ErrorKind::PatchRefused { .. } => named("PatchRefused", "PatchError"),
        ErrorKind::NotPatchable { .. } => named("NotPatchable", "PatchError"),
        ErrorKind::WrongSignature { .. } => named("WrongSignature", "PatchError"),
        ErrorKind::VariableChanged { .. } => named("VariableChanged", "PatchError"),
        ErrorKind::ReloadRefused { .. } => named("ReloadRefused", "PatchError"),
        ErrorKind::TooManyVersions { .. } => named("TooManyVersions", "PatchError"),
        ErrorKind::NothingToRollBack { .. } => named("NothingToRollBack", "PatchError"),
        ErrorKind::File { .. } => named("File", "FileError"),
        ErrorKind::ForeignTracker { .. } => named("ForeignTracker", "Error"),
        ErrorKind::ForeignSession { .. } => named("ForeignSession", "Error"),
        ErrorKind::ForeignGuard { .. } => named("ForeignGuard", "Error"),
        ErrorKind::NotInitialized { .. } => named("NotInitialized", "Error"),
        ErrorKind::InitializerFailed { .. } => named("InitializerFailed", "Error"),
        ErrorKind::SymbolsCouldNotBeRemoved { .. } => named("SymbolsCouldNotBeRemoved", "Error"),
        ErrorKind::Several(_) => named("Several", "Error"),
        _ => named("Other", "Error"),
    }
}

fn fault_name(fault: &LinkFault) -> &'static str {
    match fault {
        LinkFault::NotAnObject(_) => "NotAnObject",
        LinkFault::Malformed(_) => "Malformed",
        LinkFault::WrongArchitecture { .. } => "WrongArchitecture",
        LinkFault::Unsupported { .. } => "Unsupported",
        LinkFault::OutOfRange { .. } => "OutOfRange",
        LinkFault::HiddenUndefined { .. } => "HiddenUndefined",
        LinkFault::BoundsAcrossObjects { .. } => "BoundsAcrossObjects",
        LinkFault::InvalidGraph { .. } => "InvalidGraph",
        LinkFault::Verification { .. } => "Verification",
        LinkFault::Misaligned { .. } => "Misaligned",
        _ => "Link",
    }
}

fn memory_fault_name(fault: &MemoryFault) -> &'static str {
    match fault {
        MemoryFault::PoolExhausted { .. } => "PoolExhausted",
        MemoryFault::BudgetExceeded { .. } => "BudgetExceeded",
        MemoryFault::Refused { .. } => "Refused",
        MemoryFault::BadPlan { .. } => "BadPlan",
        MemoryFault::BadWindow { .. } => "BadWindow",
        MemoryFault::NeverRuns => "NeverRuns",
        _ => "Memory",
    }
}

/// Where an error happened.
#[derive(Default)]
struct Place {
    object: Option<String>,
    section: Option<String>,
    offset: Option<u64>,
    symbols: Vec<String>,
    dylib: Option<String>,
    holders: Vec<String>,
}

impl Place {
    /// What the error names. What it does not name is taken from its root cause.
    fn of(error: &Error) -> Place {
        let (outer, root) = (Place::of_kind(error.kind()), Place::of_kind(error.root_cause().kind()));
        Place {
            object: outer.object.or(root.object),
            section: outer.section.or(root.section),
            offset: outer.offset.or(root.offset),
            symbols: if outer.symbols.is_empty() { root.symbols } else { outer.symbols },
            dylib: outer.dylib.or(root.dylib),
            holders: if outer.holders.is_empty() { root.holders } else { outer.holders },
        }
    }

    fn of_kind(kind: &ErrorKind) -> Place {
        let none = Place::default();
        match kind {
            ErrorKind::Link { object, fault } => Place { object: some(object), ..Place::of_fault(fault) },
            ErrorKind::Archive { archive, member, offset, .. } => {
                let object = if member.is_empty() { archive.clone() } else { format!("{archive}({member})") };
                Place { object: Some(object), offset: Some(*offset), ..none }
            }
            ErrorKind::File { path, .. } => Place { object: some(path), ..none },
            ErrorKind::SymbolsNotFound { symbols, needed_by, searched, .. } => {
                Place { object: needed_by.clone(), symbols: symbols.clone(), dylib: searched.first().cloned(), ..none }
            }
            ErrorKind::FailedToMaterialize { dylib, symbols, .. } => {
                Place { dylib: some(dylib), symbols: symbols.clone(), ..none }
            }
            ErrorKind::SymbolsCouldNotBeRemoved { dylib, symbols } => {
                Place { dylib: some(dylib), symbols: symbols.clone(), ..none }
            }
            ErrorKind::DuplicateDefinition { symbol, dylib, second, .. }
            | ErrorKind::CommonTooSmall { symbol, dylib, second, .. } => {
                Place { object: some(second), symbols: vec![symbol.clone()], dylib: some(dylib), ..none }
            }
            ErrorKind::DependencyRemoved { dylib, symbol, dependant, .. } => {
                Place { object: some(dependant), symbols: vec![symbol.clone()], dylib: some(dylib), ..none }
            }
            ErrorKind::VariableChanged { symbol, object, .. } | ErrorKind::ReloadRefused { symbol, object, .. } => {
                Place { object: some(object), symbols: vec![symbol.clone()], ..none }
            }
            ErrorKind::WrongSignature { function, .. } => Place { symbols: vec![function.clone()], ..none },
            ErrorKind::InitializerFailed { symbol, dylib }
            | ErrorKind::AliasCycle { symbol, dylib }
            | ErrorKind::NoSuchStub { symbol, dylib }
            | ErrorKind::NotPatchable { symbol, dylib, .. } => {
                Place { symbols: vec![symbol.clone()], dylib: some(dylib), ..none }
            }
            ErrorKind::InUse { dylib, holders, .. } => Place { dylib: some(dylib), holders: holders.clone(), ..none },
            ErrorKind::TooManyVersions { dylib, functions, obstacles, .. } => {
                Place { dylib: some(dylib), symbols: functions.clone(), holders: obstacles.clone(), ..none }
            }
            ErrorKind::PatchRefused { dylib, functions, .. }
            | ErrorKind::NothingToRollBack { dylib, functions, .. }
            | ErrorKind::PatchableGone { dylib, functions } => {
                Place { dylib: some(dylib), symbols: functions.clone(), ..none }
            }
            ErrorKind::TrackerDefunct { dylib, .. }
            | ErrorKind::ForeignTracker { dylib, .. }
            | ErrorKind::ForeignSession { dylib }
            | ErrorKind::DylibDefunct { dylib }
            | ErrorKind::NotInitialized { dylib } => Place { dylib: some(dylib), ..none },
            _ => none,
        }
    }

    fn of_fault(fault: &LinkFault) -> Place {
        let at = |section: &String, offset: u64, symbols: Vec<String>| Place {
            section: some(section),
            offset: Some(offset),
            symbols,
            ..Place::default()
        };
        match fault {
            LinkFault::Unsupported { section, offset, symbol, .. }
            | LinkFault::OutOfRange { section, offset, symbol, .. }
            | LinkFault::Misaligned { section, offset, symbol, .. } => {
                at(section, *offset, some(symbol).into_iter().collect())
            }
            LinkFault::Verification { section, offset, .. } => at(section, *offset, Vec::new()),
            LinkFault::BoundsAcrossObjects { section, .. } => Place { section: some(section), ..Place::default() },
            LinkFault::HiddenUndefined { symbols, .. } => Place { symbols: symbols.clone(), ..Place::default() },
            LinkFault::InvalidGraph { offset, .. } => Place { offset: Some(*offset), ..Place::default() },
            _ => Place::default(),
        }
    }
}

/// A name, unless it is empty.
fn some(name: &str) -> Option<String> {
    (!name.is_empty()).then(|| name.to_string())
}
