//! [`dependencies_first`]: the order in which dylibs are initialised.

use rustc_hash::FxHashSet;

use crate::session::JitDylib;

/// For each of `dylibs` in order: all dylibs that it links against, directly or not, then the dylib itself. Dependencies come
/// before their dependants. In a cycle, the dylib that is reached first comes last. Each dylib comes once.
pub(crate) fn dependencies_first<'a>(dylibs: impl IntoIterator<Item = &'a JitDylib>) -> Vec<JitDylib> {
    let mut order = Vec::new();
    let mut entered = FxHashSet::default();
    for dylib in dylibs {
        let mut unvisited = vec![(dylib.clone(), false)];
        while let Some((next, is_expanded)) = unvisited.pop() {
            if is_expanded {
                order.push(next);
            } else if entered.insert(next.id()) {
                let dependencies = next.link_order();
                unvisited.push((next, true));
                unvisited.extend(dependencies.into_iter().map(|(dylib, _)| (dylib, false)));
            }
        }
    }
    order
}
