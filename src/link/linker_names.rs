//! Names that a native linker defines for an entire program ([`LINKER_DEFINED`]): a reference to one needs a
//! definition.
//!
//! A weak reference without a definition is null. A native linker always defines these names, so code may use them
//! without a test for null. The link therefore makes such weak references strong: it fails if nothing defines the name.

use crate::base::{LINKER_DEFINED, is_linker_defined};
use crate::link::graph::{Binding, Definition, LinkGraph, SymbolIndex};
use crate::link::prefix_filter::PrefixFilter;

/// Makes weak references to these names strong.
pub(crate) fn require(graph: &mut LinkGraph) {
    if !graph.may_have_any_external(&PREFIXES) {
        return;
    }
    for index in graph.first_global as usize..graph.symbols.len() {
        let symbol = &graph.symbols[index];
        let is_weak_external = symbol.definition == Definition::External && symbol.binding == Binding::Weak;
        if is_weak_external && is_linker_defined(graph.name_bytes(SymbolIndex(index as u32))) {
            graph.symbols[index].binding = Binding::Global;
        }
    }
}

static PREFIXES: PrefixFilter = PrefixFilter::from_names(&LINKER_DEFINED);
