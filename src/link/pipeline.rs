//! The link, top to bottom.
//!
//! ```text
//!   PlannedLink ── allocate ─► PlacedLink ── externals looked up ─► LinkedObject + Finalized memory
//! ```
//!
//! Each state consumes the one before. Dropping any of them abandons the link and gives its memory back.

use crate::base::{ExecutorAddr, Pool};
use crate::error::{LinkFault, MemoryFault, Result};
use crate::link::buffer::ObjectBuffer;
use crate::link::claim;
use crate::link::elf;
use crate::link::fixup::Fixup;
use crate::link::frames;
use crate::link::graph::{Binding, Definition, LinkGraph, Places, Role, SymbolIndex};
use crate::link::initializers::Initializer;
use crate::link::layout;
use crate::link::tables::Tables;
use crate::memory::{ApartRequest, Finalized, InFlight, MemoryManager, SegmentPlan};
use crate::sync::Arc;

/// A link whose needs are known.
pub struct PlannedLink {
    graph: LinkGraph,
    tables: Tables,
    plan: SegmentPlan,
}

/// A link whose own addresses are known.
pub struct PlacedLink {
    graph: LinkGraph,
    tables: Tables,
    places: Places,
    memory: Box<dyn InFlight>,
    externals: Vec<SymbolIndex>,
}

/// A symbol that the link needs from elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExternalSymbol<'a> {
    /// The name.
    pub name: &'a str,
    /// Whether the link fails without it; otherwise its address is null.
    pub required: bool,
}

/// What a finished link has to tell.
#[derive(Debug)]
pub struct LinkedObject {
    /// What the object is called.
    pub name: Arc<str>,
    /// What it wants called, unsorted.
    pub initializers: Vec<Initializer>,
}

impl PlannedLink {
    /// Reads an object, leaves out what `is_owned` denies, lets `prepare` change the graph, and plans.
    ///
    /// # Errors
    /// [`LinkFault`] for what is malformed or not supported; whatever `prepare` returns.
    pub fn plan(
        name: Arc<str>,
        bytes: ObjectBuffer,
        is_owned: impl Fn(&str) -> bool,
        prepare: impl FnOnce(&mut LinkGraph) -> Result<()>,
    ) -> Result<PlannedLink> {
        // Bytes to arrays.
        let mut graph = elf::read_graph(name, bytes)?;
        // Definitions that others made become externals.
        claim::claim(&mut graph, is_owned);
        // Plugins: the last chance to add blocks and symbols.
        prepare(&mut graph)?;
        // Room for every slot and stub that an edge may need.
        let tables = Tables::build(&mut graph);
        // Offsets, and what to ask of memory.
        let plan = layout::assign(&mut graph)?;
        Ok(PlannedLink { graph, tables, plan })
    }

    /// The same link, as one of those that belong together: see [`SegmentPlan::group`].
    pub fn in_group(mut self, group: u64) -> PlannedLink {
        self.plan.group = group;
        self
    }

    /// What the link needs.
    pub fn segment_plan(&self) -> &SegmentPlan {
        &self.plan
    }

    /// Number of GOT slots.
    pub fn got_slot_count(&self) -> usize {
        self.tables.slots.len()
    }

    /// Number of stubs for branches that may be out of reach.
    pub fn stub_count(&self) -> usize {
        self.tables.stub_targets.len()
    }

    /// What has to be looked up.
    pub fn externals(&self) -> impl Iterator<Item = ExternalSymbol<'_>> {
        external_symbols(&self.graph, externals(&self.graph))
    }

    /// The graph.
    pub fn graph(&self) -> &LinkGraph {
        &self.graph
    }

    /// Takes memory: the addresses of all definitions are final.
    ///
    /// # Errors
    /// [`MemoryFault`].
    pub fn allocate(self, memory: &dyn MemoryManager) -> Result<PlacedLink> {
        let mut memory = memory.allocate(&self.plan)?;
        let segments = Pool::ALL.map(|pool| memory.address(pool));
        let apart = places_apart(&self.plan, &mut *memory)?;
        let externals = externals(&self.graph);
        let places = Places { segments, apart };
        Ok(PlacedLink { graph: self.graph, tables: self.tables, places, memory, externals })
    }
}

impl PlacedLink {
    /// The global definitions and their addresses.
    pub fn definitions(&self) -> impl Iterator<Item = (&str, ExecutorAddr)> {
        self.graph.symbols().filter(|(_, symbol)| symbol.binding != Binding::Local).filter_map(|(index, symbol)| {
            let address = match symbol.definition {
                Definition::Block(block, offset) => self.graph.block_address(block, &self.places).offset(offset),
                Definition::Absolute(value) => ExecutorAddr::new(value),
                Definition::External | Definition::Nowhere => return None,
            };
            Some((self.graph.symbol_name(index), address))
        })
    }

    /// What has to be looked up.
    pub fn externals(&self) -> impl Iterator<Item = ExternalSymbol<'_>> {
        external_symbols(&self.graph, self.externals.iter().copied())
    }

    /// Fixes everything up with the externals' addresses, in their order, and seals the memory.
    ///
    /// # Errors
    /// A relocation out of range, malformed unwind tables; the memory is given back.
    pub fn finish(mut self, external_addresses: &[ExecutorAddr]) -> Result<(LinkedObject, Box<dyn Finalized>)> {
        let mut by_symbol = vec![ExecutorAddr::NULL; self.graph.symbols.len()];
        for (index, address) in self.externals.iter().zip(external_addresses) {
            by_symbol[index.0 as usize] = *address;
        }
        let fixup = Fixup { graph: &self.graph, tables: &self.tables, places: &self.places, externals: &by_symbol };
        // Bytes in place, every edge applied.
        fixup.apply(&mut *self.memory)?;
        // What the unwinder and the registry of initialisers must know.
        let (frames, initializers) = self.collect()?;
        // From here on the memory is nobody's to write.
        let sealed = self.memory.finalize(frames)?;
        Ok((LinkedObject { name: self.graph.name.clone(), initializers }, sealed))
    }

    fn collect(&mut self) -> Result<(Vec<crate::memory::Frame>, Vec<Initializer>)> {
        let mut found = Vec::new();
        let mut initializers = Vec::new();
        for (id, block) in self.graph.blocks().filter(|(_, block)| !block.is_dropped && block.size > 0) {
            let (start, end) = (block.offset as usize, (block.offset + block.size) as usize);
            match block.role {
                Role::Plain => {}
                Role::EhFrame => {
                    let section = &self.memory.working(block.pool)[start..end];
                    let address = self.graph.block_address(id, &self.places);
                    frames::find_frames(section, address, &mut found)
                        .map_err(|error| self.graph.fault(LinkFault::Malformed(format!(".eh_frame: {error}"))))?;
                }
                Role::Initializers { kind, priority, backward } => {
                    let words = self.memory.working(block.pool)[start..end].chunks_exact(8);
                    let mut listed: Vec<u64> =
                        words.map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default())).collect();
                    if backward {
                        listed.reverse();
                    }
                    // Zero and minus one are what old toolchains leave as markers.
                    for address in listed.into_iter().filter(|address| !matches!(*address, 0 | u64::MAX)) {
                        let position = initializers.len() as u32;
                        initializers.push(Initializer {
                            kind,
                            priority,
                            position,
                            address: ExecutorAddr::new(address),
                        });
                    }
                }
            }
        }
        Ok((found, initializers))
    }
}

/// Where the sections apart stand.
fn places_apart(plan: &SegmentPlan, memory: &mut dyn InFlight) -> Result<Vec<ExecutorAddr>> {
    let place = |(index, request): (usize, &ApartRequest)| {
        if memory.apart(index).len() as u64 != request.size {
            let ApartRequest { size, align, .. } = *request;
            let problem = "this memory manager places no section apart from the pools";
            return Err(MemoryFault::BadPlan { pool: "apart", size, align, problem }.into());
        }
        Ok(memory.apart_address(index))
    };
    plan.apart.iter().enumerate().map(place).collect()
}

fn external_symbols(
    graph: &LinkGraph,
    externals: impl IntoIterator<Item = SymbolIndex>,
) -> impl Iterator<Item = ExternalSymbol<'_>> {
    externals.into_iter().map(|index| ExternalSymbol {
        name: graph.symbol_name(index),
        required: graph.symbols[index.0 as usize].binding != Binding::Weak,
    })
}

/// The externals that some edge refers to.
fn externals(graph: &LinkGraph) -> Vec<SymbolIndex> {
    let mut is_used = vec![false; graph.symbols.len()];
    for block in graph.blocks.iter().filter(|block| !block.is_dropped) {
        for edge in &graph.edges[block.edges.start as usize..block.edges.end as usize] {
            is_used[edge.symbol.0 as usize] = true;
        }
    }
    let external = |index: &SymbolIndex| is_used[index.0 as usize] && graph.definition(*index) == Definition::External;
    (0..graph.symbols.len() as u32).map(SymbolIndex).filter(external).collect()
}
