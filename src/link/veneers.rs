//! [`Veneers`]: the blocks of veneers of one object, and what each veneer leads to. `veneer_plan.rs` says when there are some.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::arch::VeneerCode;
use crate::base::SegmentKind;
use crate::link::graph::{BlockId, Edge, LinkGraph, SymbolIndex};

/// The veneers of one object.
#[derive(Default)]
pub(crate) struct Veneers {
    blocks: Vec<BlockId>,
    /// By symbol and addend: the block and the offset in the block of each veneer.
    places: FxHashMap<Target, SmallVec<[(BlockId, u64); 2]>>,
}

/// What a veneer leads to.
pub(crate) type Target = (SymbolIndex, i64);

impl Veneers {
    /// The blocks of veneers.
    pub(crate) fn blocks(&self) -> &[BlockId] {
        &self.blocks
    }

    /// The block and the offset in the block of each veneer for a symbol and an addend.
    pub(crate) fn places(&self, target: Target) -> &[(BlockId, u64)] {
        self.places.get(&target).map_or(&[], |places| places)
    }

    /// Adds a block with a veneer for each target. The flag says whether the veneer goes through the symbol's slot.
    pub(crate) fn insert(&mut self, graph: &mut LinkGraph, code: &VeneerCode, targets: &[(Target, bool)]) -> BlockId {
        let (mut bytes, mut edges) = (Vec::new(), Vec::new());
        for ((symbol, addend), has_slot) in targets {
            let template = if *has_slot { &code.through_slot } else { &code.direct };
            let start = bytes.len() as u64;
            let with_addend = |edge: Edge| Edge { addend: edge.addend + addend, ..edge };
            edges.extend(template.fields.iter().map(|field| with_addend(Edge::of_field(field, start, *symbol))));
            bytes.extend(template.bytes);
        }
        let id = graph.insert_block(".veneers", SegmentKind::Code, bytes, VENEER_ALIGN, &edges);
        self.blocks.push(id);
        for (number, (target, _)) in targets.iter().enumerate() {
            self.places.entry(*target).or_default().push((id, number as u64 * VENEER_SIZE));
        }
        id
    }
}

/// Bytes of a veneer.
pub(crate) const VENEER_SIZE: u64 = 16;
pub(crate) const VENEER_ALIGN: u64 = 16;
