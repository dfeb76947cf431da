//! Converts what a lookup found for the externals of a link to what the link reads.
//!
//! For a thread-local variable, a static model needs its distance from the thread pointer, and the C library may have to
//! grant that first ([`Executor::static_offset`](crate::host::Executor::static_offset)). A distance between two variables in blocks of other objects needs it
//! too, unless both are in one block.

use crate::base::{ExecutorAddr, RecycledVec, TlsIndex};
use crate::layer::layer_inner::LayerInner;
use crate::link::{ExternalSymbol, FoundExternal, PlacedLink};
use crate::session::SymbolFlags;

/// Converts lookup results, in the order of the externals.
pub(super) fn found_externals(
    placed: &PlacedLink,
    layer: &LayerInner,
    found: impl Iterator<Item = (ExecutorAddr, SymbolFlags)> + Clone,
) -> RecycledVec<FoundExternal> {
    if found.clone().any(|(_, flags)| flags.contains(SymbolFlags::THREAD_LOCAL)) {
        return with_thread_locals(placed, layer, found);
    }
    let plain = |(address, flags): (_, SymbolFlags)| FoundExternal {
        address,
        is_callable: flags.contains(SymbolFlags::CALLABLE),
        thread_local: None,
        block_align: 0,
    };
    found.map(plain).collect()
}

#[cold]
fn with_thread_locals(
    placed: &PlacedLink,
    layer: &LayerInner,
    found: impl Iterator<Item = (ExecutorAddr, SymbolFlags)> + Clone,
) -> RecycledVec<FoundExternal> {
    let LayerInner { executor, foreign_thread_locals: foreign, .. } = layer;
    // Of another machine, the process has no variable that the code could use.
    let of_process = || (placed.graph().arch == executor.arch()).then_some(executor);
    let needs_distances = !is_one_block(placed, found.clone());
    let convert = |(external, (address, flags)): (ExternalSymbol<'_>, (ExecutorAddr, SymbolFlags))| {
        let static_offset = || {
            let variable = TlsIndex::from_address(address);
            let is_needed = external.needs_static_tls && needs_distances;
            if !is_needed {
                return None;
            }
            let offset = foreign.static_offset(variable);
            offset.or_else(|| of_process()?.static_offset(variable, external.name))
        };
        let is_thread_local = flags.contains(SymbolFlags::THREAD_LOCAL);
        let module = TlsIndex::from_address(address).module;
        let block_align = || {
            let align = foreign.alignment(module);
            align.or_else(|| Some(of_process()?.thread_local_alignment(module))).unwrap_or(0)
        };
        FoundExternal {
            address,
            is_callable: flags.contains(SymbolFlags::CALLABLE),
            thread_local: is_thread_local.then(static_offset),
            block_align: if is_thread_local && external.is_lost_common { block_align() } else { 0 },
        }
    };
    placed.externals().zip(found).map(convert).collect()
}

/// Whether the code holds offsets in one block of another object, and no other distances of thread-local variables.
fn is_one_block(placed: &PlacedLink, found: impl Iterator<Item = (ExecutorAddr, SymbolFlags)>) -> bool {
    if placed.thread_local_plan().is_some() || placed.uses_thread_pointer() {
        return false;
    }
    let used = placed.externals().zip(found).filter(|(external, _)| external.needs_static_tls);
    let mut modules = used.map(|(_, (address, _))| TlsIndex::from_address(address).module);
    let first = modules.next();
    modules.all(|module| Some(module) == first)
}
