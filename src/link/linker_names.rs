//! Names that a native linker makes for a whole program ([`LINKER_MADE`]): an object that refers to one needs a definition.
//!
//! A weak reference would be null without one, and never is in a program that a native linker made: code that relies on that
//! would be wrong in silence.

use crate::base::{LINKER_MADE, is_linker_made};
use crate::link::graph::{Binding, Definition, LinkGraph, PrefixFilter, SymbolIndex};

/// Has the link fail if one of these names is not defined.
pub(crate) fn require(graph: &mut LinkGraph) {
    if !graph.beginnings.has_any_of(&BEGINNINGS) {
        return;
    }
    for index in graph.first_global as usize..graph.symbols.len() {
        let symbol = &graph.symbols[index];
        let is_weak_external = symbol.definition == Definition::External && symbol.binding == Binding::Weak;
        if is_weak_external && is_linker_made(graph.name_bytes(SymbolIndex(index as u32))) {
            graph.symbols[index].binding = Binding::Global;
        }
    }
}

static BEGINNINGS: PrefixFilter = PrefixFilter::of(&LINKER_MADE);
