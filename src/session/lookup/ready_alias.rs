//! [`make_ready`]: makes an alias ready at once if its aliasee is a ready symbol of the same dylib.
//!
//! Such an alias needs no task and no query. The table has the address already, and the dylib's lock keeps it there while the
//! alias gets it (S2). All other aliases are materialised as other units are (`materialize/aliases.rs`).

use crate::base::count_step;
use crate::session::core::jit_dylib::{DylibInner, DylibState};
use crate::session::core::materialization::UnitSymbol;
use crate::session::symbols::symbol_table::Symbol;
use crate::session::types::symbol::{SymbolFlags, SymbolId, SymbolState};
use crate::sync::Arc;

/// Makes the alias `id` ready. `None`, and nothing is changed, if that is not possible at once.
pub(crate) fn make_ready<'a>(state: &'a mut DylibState, dylib: &Arc<DylibInner>, id: SymbolId) -> Option<&'a Symbol> {
    let alias = state.table.symbol(id)?;
    let unit = state.table.unit(alias.unit()?)?;
    let aliasee = unit.unit.as_ref()?.aliasee(UnitSymbol(state.table.name(alias).as_str()))?;
    count_step();
    // The drop of the unit under the lock takes time in proportion to its symbols.
    let may_drop_unit = unit.owed_count() > 1 || unit.listed_count() <= MAX_DROPPED;
    if !may_drop_unit || !state.is_open() || !Arc::ptr_eq(aliasee.source.inner(), dylib) {
        return None;
    }
    // Observers hear of the stages of a materialisation. A group that waits for the alias is woken by an emission.
    if dylib.session.observers.is_active() || state.table.has_waiters(id) {
        return None;
    }
    let found = state.table.symbol(state.find_visible(aliasee.name, aliasee.visibility)?)?;
    if found.state != SymbolState::Ready || alias.flags.contains(SymbolFlags::SIDE_EFFECTS_ONLY) {
        return None;
    }
    let is_absolute = found.flags.contains(SymbolFlags::ABSOLUTE);
    let (owner, of_aliasee) = (state.table.owner(alias)?, state.table.owner(found)?);
    // The alias keeps the memory of its aliasee, as code that refers to it does.
    let is_kept = is_absolute
        || Arc::ptr_eq(owner, of_aliasee)
        || dylib.session.pins.table_of(dylib.id.number()).add(owner, of_aliasee);
    if !is_kept {
        return None;
    }
    let flags = if is_absolute { alias.flags | SymbolFlags::ABSOLUTE } else { alias.flags };
    let address = found.address();
    // S5: a unit of aliases is not the embedder's. Its source is this dylib, so this is not the last handle of another one.
    drop(state.table.finish_lazy(id, address, flags));
    state.table.symbol(id)
}

/// The most symbols of a unit that is dropped under the lock.
const MAX_DROPPED: usize = 16;
