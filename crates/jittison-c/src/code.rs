//! The codes of errors, and the object and the symbol that an error names. A code never changes its meaning.

use jittison::error::{LinkFault, MemoryFault};
use jittison::{Error, ErrorKind};

/// `jittison_code`.
pub(crate) type Code = u32;

pub(crate) const NONE: Code = 0;
pub(crate) const INVALID_HANDLE: Code = 1;
pub(crate) const INVALID_ARGUMENT: Code = 2;
pub(crate) const WRONG_THREAD: Code = 3;
pub(crate) const TOO_MANY_HANDLES: Code = 4;
pub(crate) const PANIC: Code = 5;
/// A kind that this version of the C API does not know.
const OTHER_KIND: Code = 99;

/// The code of a kind of error.
pub(crate) fn of(kind: &ErrorKind) -> Code {
    match kind {
        ErrorKind::Other(_) => 100,
        ErrorKind::Several(_) => 101,
        ErrorKind::TrackerDefunct { .. } => 102,
        ErrorKind::DylibDefunct { .. } => 103,
        ErrorKind::SessionEnded => 104,
        ErrorKind::InUse { .. } => 105,
        ErrorKind::ForeignGuard { .. } => 106,
        ErrorKind::ForeignTracker { .. } => 107,
        ErrorKind::ForeignSession { .. } => 108,
        ErrorKind::NotInitialized { .. } => 109,
        ErrorKind::InitializerFailed { .. } => 110,
        ErrorKind::SymbolsNotFound { .. } => 111,
        ErrorKind::DuplicateDefinition { .. } => 112,
        ErrorKind::CommonTooSmall { .. } => 113,
        ErrorKind::FailedToMaterialize { .. } => 114,
        ErrorKind::DependencyRemoved { .. } => 115,
        ErrorKind::ResponsibilityDropped { .. } => 116,
        ErrorKind::NotResponsible { .. } => 117,
        ErrorKind::InterfaceMismatch { .. } => 118,
        ErrorKind::LookupAbandoned { .. } => 119,
        ErrorKind::SymbolsCouldNotBeRemoved { .. } => 120,
        ErrorKind::AliasCycle { .. } => 121,
        ErrorKind::NoSuchStub { .. } => 122,
        ErrorKind::NotPatchable { .. } => 123,
        ErrorKind::PatchRefused { .. } => 124,
        ErrorKind::PatchableGone { .. } => 125,
        ErrorKind::NothingToRollBack { .. } => 126,
        ErrorKind::TooManyVersions { .. } => 127,
        ErrorKind::VariableChanged { .. } => 128,
        ErrorKind::WrongSignature { .. } => 129,
        ErrorKind::Archive { .. } => 130,
        ErrorKind::File { .. } => 131,
        ErrorKind::ReloadRefused { .. } => 132,
        ErrorKind::Link { fault, .. } => of_link(fault),
        ErrorKind::Memory(fault) => of_memory(fault),
        _ => OTHER_KIND,
    }
}

fn of_link(fault: &LinkFault) -> Code {
    match fault {
        LinkFault::NotAnObject(_) => 201,
        LinkFault::Malformed(_) => 202,
        LinkFault::WrongArchitecture { .. } => 203,
        LinkFault::Unsupported { .. } => 204,
        LinkFault::OutOfRange { .. } => 205,
        LinkFault::HiddenUndefined { .. } => 206,
        LinkFault::BoundsAcrossObjects { .. } => 207,
        LinkFault::BrokenByPlugin { .. } => 208,
        LinkFault::InvalidGraph { .. } => 209,
        LinkFault::Verification { .. } => 210,
        LinkFault::Misaligned { .. } => 211,
        _ => 200,
    }
}

fn of_memory(fault: &MemoryFault) -> Code {
    match fault {
        MemoryFault::PoolExhausted { .. } => 301,
        MemoryFault::BudgetExceeded { .. } => 302,
        MemoryFault::Refused { .. } => 303,
        MemoryFault::BadPlan { .. } => 304,
        MemoryFault::BadWindow { .. } => 305,
        MemoryFault::NeverRuns => 306,
        _ => 300,
    }
}

/// Where an error happened.
#[derive(Default)]
pub(crate) struct Place {
    pub(crate) object: Option<String>,
    pub(crate) symbol: Option<String>,
}

/// The first object and the first symbol that the error, or else its root cause, names.
pub(crate) fn place(error: &Error) -> Place {
    let (outer, root) = (place_of(error.kind()), place_of(error.root_cause().kind()));
    Place { object: outer.object.or(root.object), symbol: outer.symbol.or(root.symbol) }
}

fn place_of(kind: &ErrorKind) -> Place {
    let at = |object: Option<&String>, symbol: Option<&String>| Place {
        object: object.cloned(),
        symbol: symbol.filter(|name| !name.is_empty()).cloned(),
    };
    match kind {
        ErrorKind::Link { object, fault } => at(Some(object), symbol_of(fault)),
        ErrorKind::Archive { archive, .. } => at(Some(archive), None),
        ErrorKind::File { path, .. } => at(Some(path), None),
        ErrorKind::SymbolsNotFound { symbols, needed_by, .. } => at(needed_by.as_ref(), symbols.first()),
        ErrorKind::FailedToMaterialize { symbols, .. } => at(None, symbols.first()),
        ErrorKind::DuplicateDefinition { symbol, second, .. } | ErrorKind::CommonTooSmall { symbol, second, .. } => {
            at(Some(second), Some(symbol))
        }
        ErrorKind::DependencyRemoved { symbol, dependant, .. } => at(Some(dependant), Some(symbol)),
        ErrorKind::VariableChanged { symbol, object, .. } | ErrorKind::ReloadRefused { symbol, object, .. } => {
            at(Some(object), Some(symbol))
        }
        ErrorKind::NotResponsible { symbol, unit, .. } | ErrorKind::InterfaceMismatch { symbol, unit, .. } => {
            at(Some(unit), Some(symbol))
        }
        ErrorKind::ForeignGuard { symbol }
        | ErrorKind::InitializerFailed { symbol, .. }
        | ErrorKind::AliasCycle { symbol, .. }
        | ErrorKind::NoSuchStub { symbol, .. }
        | ErrorKind::NotPatchable { symbol, .. } => at(None, Some(symbol)),
        ErrorKind::WrongSignature { function, .. } => at(None, Some(function)),
        ErrorKind::ResponsibilityDropped { symbols, unit } => at(Some(unit), symbols.first()),
        ErrorKind::SymbolsCouldNotBeRemoved { symbols, .. } => at(None, symbols.first()),
        _ => Place::default(),
    }
}

fn symbol_of(fault: &LinkFault) -> Option<&String> {
    match fault {
        LinkFault::OutOfRange { symbol, .. }
        | LinkFault::Misaligned { symbol, .. }
        | LinkFault::Unsupported { symbol, .. } => Some(symbol),
        LinkFault::HiddenUndefined { symbols, .. } => symbols.first(),
        _ => None,
    }
}
