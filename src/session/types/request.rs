//! The parameters of a lookup: names ([`SymbolRequest`]), the state to wait for ([`RequiredState`]), and which symbols of a
//! dylib the lookup sees ([`Visibility`]).

use crate::session::types::symbol::{SymbolFlags, SymbolState};

/// One name of a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SymbolRequest<'a> {
    /// The mangled name, as the object file has it.
    pub name: &'a str,
    /// Whether the lookup fails without the symbol. If the name is optional and is not found, the result has the null address.
    pub required: bool,
}

impl<'a> SymbolRequest<'a> {
    /// A required name: the lookup fails if it is not found.
    pub fn required(name: &'a str) -> SymbolRequest<'a> {
        SymbolRequest { name, required: true }
    }

    /// An optional name: the lookup succeeds without it.
    pub fn weak(name: &'a str) -> SymbolRequest<'a> {
        SymbolRequest { name, required: false }
    }
}

/// The state that the symbols of a lookup must reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequiredState {
    /// The addresses are known. This is enough to link against the symbols.
    Resolved,
    /// The code, and everything that it refers to, may run.
    Ready,
}

/// The symbol state that satisfies `required`.
pub(crate) fn state_of(required: RequiredState) -> SymbolState {
    match required {
        RequiredState::Resolved => SymbolState::Resolved,
        RequiredState::Ready => SymbolState::Ready,
    }
}

/// Which symbols of a dylib a search sees (ORC: `JITDylibLookupFlags`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visibility {
    /// Exported symbols only.
    ExportedOnly,
    /// Exported and hidden symbols.
    All,
}

impl Visibility {
    /// Whether a search with this visibility sees a symbol with `flags`.
    pub(crate) fn sees(self, flags: SymbolFlags) -> bool {
        self == Visibility::All || flags.contains(SymbolFlags::EXPORTED)
    }
}
