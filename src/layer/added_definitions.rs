//! Definitions that plugins added in the hook `prepare`: the unit claims their names, so that other objects find them
//! (ORC: `MaterializationResponsibility::defineMaterializing`).

use crate::base::Name;
use crate::error::Result;
use crate::link::{AddedDefinition, LinkGraph};
use crate::session::{MaterializationResponsibility, SymbolFlags};

/// Claims the visible definitions that plugins added. A weak one whose name is defined elsewhere becomes an external.
///
/// # Errors
/// [`ErrorKind::DuplicateDefinition`](crate::ErrorKind::DuplicateDefinition): a strong one whose name is defined elsewhere.
#[cold]
pub(super) fn claim_added(graph: &mut LinkGraph, responsibility: &mut MaterializationResponsibility) -> Result<()> {
    let added = graph.added_definitions();
    if added.is_empty() {
        return Ok(());
    }
    let claims: Vec<_> =
        added.iter().map(|added| (Name::new(graph.symbol_name(added.symbol)), flags_of(added))).collect();
    let claimed = responsibility.define_materializing(&claims)?;
    for (added, is_claimed) in added.iter().zip(claimed) {
        if is_claimed {
            graph.promise_added(added);
        } else {
            graph.make_external(added.symbol);
        }
    }
    Ok(())
}

fn flags_of(added: &AddedDefinition) -> SymbolFlags {
    SymbolFlags::WEAK.only_if(added.is_weak)
        | SymbolFlags::EXPORTED.only_if(added.is_exported)
        | SymbolFlags::CALLABLE.only_if(added.is_code)
        | SymbolFlags::THREAD_LOCAL.only_if(added.is_thread_local)
}
