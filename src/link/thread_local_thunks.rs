//! [`ThreadLocalThunks`]: the memory of the thunks that compute distances of thread-local variables.
//!
//! Code of the static models holds a variable's distance from the thread pointer, and local-dynamic code its distance
//! from the start of a block. If the C library gave a block no static offset, such a distance differs from thread to
//! thread: its static space is used up, the block does not fit, or a thread has used the block already. Then each such
//! instruction moves to a thunk ([`Arch::extend_code`](crate::arch::Arch::extend_code)), which asks the function of TLS
//! descriptors for the distance. `thunk_plan.rs` says where they are.
//!
//! Whether a link needs thunks is known when its externals are found and the C library has answered. Its memory is
//! allocated then. So the thunks have an allocation of their own, near the first, and a link without thunks has none.

use crate::base::{ExecutorAddr, SegmentKind, TlsIndex, sort_by_number};
use crate::error::Result;
use crate::link::graph::{Block, BlockId, Edge, Role, SymbolIndex};
use crate::link::resolved_link::ResolvedLink;
use crate::link::thread_locals;
use crate::link::thunk_plan::{DESCRIPTOR_SIZE, FIRST_DESCRIPTOR, ThunkPlan, first_thunk, stub_at};
use crate::memory::{InFlight, MemoryManager, SegmentPlan, SegmentRequest};

/// Memory for the thunks of one link.
pub(crate) struct ThreadLocalThunks {
    pub(crate) memory: Box<dyn InFlight>,
    pub(crate) plan: ThunkPlan,
}

impl ThreadLocalThunks {
    /// Allocates memory for the thunks that a link needs; `None` if it needs none. `near` is the plan of the link.
    /// `get_address` is the address of `__tls_get_addr`.
    ///
    /// # Errors
    /// [`LinkFault::Unsupported`](crate::error::LinkFault::Unsupported), for an edge without a value that no thunk can
    /// compute; an error of the memory manager.
    pub(crate) fn allocate(
        link: &ResolvedLink<'_>,
        near: &SegmentPlan,
        memory: &dyn MemoryManager,
        get_address: impl FnOnce() -> Option<ExecutorAddr>,
    ) -> Result<Option<ThreadLocalThunks>> {
        let mut edges: Vec<(BlockId, &Edge)> = Vec::new();
        let is_in_memory = |block: &Block| !block.is_dropped && block.role != Role::ThreadLocal;
        for (id, _) in link.graph.blocks().filter(|(_, block)| is_in_memory(block)) {
            for edge in link.graph.edges(id).iter().filter(|edge| edge.kind.has_fixed_distance()) {
                if link.needs_thunk(id, edge)? {
                    edges.push((id, edge));
                }
            }
        }
        let Some((id, first)) = edges.first().copied() else { return Ok(None) };
        let get_address = get_address().ok_or_else(|| {
            let problem = "the process has no `__tls_get_addr` for a thunk to call";
            thread_locals::not_computed(link.graph, id, first, &[], problem)
        })?;
        let mut variables: Vec<SymbolIndex> = edges.iter().map(|(_, edge)| edge.symbol).collect();
        sort_by_number(&mut variables, SymbolIndex::number);
        variables.dedup();
        let arch = link.graph.arch;
        let size = first_thunk(arch) + (edges.len() * arch.max_distance_thunk_size()) as u64;
        let words = FIRST_DESCRIPTOR + (variables.len() as u64 + 1) * DESCRIPTOR_SIZE;
        let mut plan = SegmentPlan { group: near.group, low: near.low, ..SegmentPlan::default() };
        plan.segments[SegmentKind::Code.index()] = SegmentRequest { size, align: 16, zero_fill: 0 };
        plan.segments[SegmentKind::ReadOnly.index()] = SegmentRequest { size: words, align: 16, zero_fill: 0 };
        let memory = memory.allocate(&plan)?;
        let (code, words) = (memory.address(SegmentKind::Code), memory.address(SegmentKind::ReadOnly));
        if arch.slot_distance(code.offset(stub_at(arch)), words).is_none() {
            let problem = "the memory manager places code and constants too far apart for a thunk";
            return Err(thread_locals::not_computed(link.graph, id, first, &[], problem));
        }
        Ok(Some(ThreadLocalThunks { memory, plan: ThunkPlan { arch, code, words, get_address, variables } }))
    }
}

impl ThunkPlan {
    /// Writes the function, the thunks and the descriptors. `thunks` is the code of all thunks.
    pub(crate) fn write(&self, link: &ResolvedLink<'_>, thunks: &[u8], memory: &mut dyn InFlight) {
        let (function, start) = (self.arch.tls_descriptor(), first_thunk(self.arch) as usize);
        let stub_at = stub_at(self.arch) as usize;
        let code = memory.working(SegmentKind::Code);
        code.fill(self.arch.trap());
        code[..function.bytes.len()].copy_from_slice(function.bytes);
        for field in function.fields {
            // Both are in this block of code.
            let (at, addend) = (field.offset as usize, field.addend);
            let distance = stub_at as i64 + addend - at as i64;
            field.kind.store(&mut code[at..at + field.kind.width()], distance.into());
        }
        let place = self.code.offset(stub_at as u64);
        let distance = self.words.distance_from(place);
        code[stub_at..start].copy_from_slice(&self.arch.stub(place, distance as i32));
        code[start..start + thunks.len()].copy_from_slice(thunks);
        let words = memory.working(SegmentKind::ReadOnly);
        words.fill(0);
        words[..8].copy_from_slice(&self.get_address.value().to_le_bytes());
        let variables = self.variables.iter().map(|variable| link.thread_local_location(*variable).index);
        let block = link.local_dynamic_block.map_or(0, |block| block.module);
        for (number, index) in (0..).zip(variables.chain([TlsIndex { module: block, offset: 0 }])) {
            let descriptor = self.descriptor(number);
            let content = [self.code.value(), descriptor.value() + 16, index.module.into(), index.offset.into()];
            let at = (FIRST_DESCRIPTOR + number * DESCRIPTOR_SIZE) as usize;
            words[at..at + DESCRIPTOR_SIZE as usize].copy_from_slice(&content.map(u64::to_le_bytes).concat());
        }
    }
}
