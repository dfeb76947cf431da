//! [`local_dynamic_block`]: the thread-local block that local-dynamic code of an object asks for.
//!
//! Such code asks for the start of one block and adds offsets. With a native linker that is the block of the program or
//! shared object. Here each object has a block of its own, and its code asks for that. An object without one takes the
//! block of the first variable that it reaches by an offset.

use crate::arch::EdgeKind;
use crate::base::TlsIndex;
use crate::link::found_external::FoundExternal;
use crate::link::graph::{LinkGraph, SymbolIndex};
use crate::link::thread_local_plan::ThreadLocalPlace;

/// The block that local-dynamic code asks for. `own` is the block of the object, and `found` returns what was found for
/// an external. `None` for an object that has no block and refers to none.
pub(super) fn local_dynamic_block<'a>(
    graph: &LinkGraph,
    own: Option<ThreadLocalPlace>,
    found: impl Fn(SymbolIndex) -> Option<&'a FoundExternal>,
) -> Option<ThreadLocalPlace> {
    if own.is_some() || !graph.kinds.contains(EdgeKind::ThreadLocalBlock32) {
        return own;
    }
    graph.live_edges().filter(|edge| edge.kind.is_block_offset()).find_map(|edge| {
        let FoundExternal { address, thread_local, .. } = found(edge.symbol)?;
        let variable = TlsIndex::from_address(*address);
        let static_offset = (*thread_local)?.map(|offset| offset - i64::from(variable.offset));
        Some(ThreadLocalPlace { module: variable.module, static_offset })
    })
}
