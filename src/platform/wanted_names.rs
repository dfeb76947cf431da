//! [`WantedNames`]: the external names to which a service of this room gives a meaning, such as `atexit`.

use crate::link::{LinkGraph, PrefixFilter, SymbolIndex};

/// A set of names, and a filter that answers for most objects that they refer to none of them.
pub(super) struct WantedNames<const N: usize> {
    pub(super) names: [&'static str; N],
    filter: PrefixFilter,
}

impl<const N: usize> WantedNames<N> {
    pub(super) const fn new(names: [&'static str; N]) -> WantedNames<N> {
        WantedNames { names, filter: PrefixFilter::from_names(&names) }
    }

    /// By name: the external of a graph that has it. `None` if the graph has none of them.
    pub(super) fn find(&self, graph: &LinkGraph) -> Option<[Option<SymbolIndex>; N]> {
        if graph.may_have_any_external(&self.filter) { self.search(graph) } else { None }
    }

    #[inline(never)] // few objects get here
    fn search(&self, graph: &LinkGraph) -> Option<[Option<SymbolIndex>; N]> {
        let mut found = [None; N];
        for (index, name) in graph.named_externals() {
            if let Some(at) = self.names.iter().position(|wanted| is_named(name, wanted.as_bytes())) {
                found[at].get_or_insert(index);
            }
        }
        found.iter().any(Option::is_some).then_some(found)
    }
}

/// Whether a name is `wanted`, or a version of it (`wanted@VERSION`). Every version of these functions does the same.
#[inline]
fn is_named(name: &[u8], wanted: &[u8]) -> bool {
    matches!(name.get(wanted.len()), None | Some(b'@')) && name.starts_with(wanted)
}
