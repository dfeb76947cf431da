//! The link, top to bottom.
//!
//! ```text
//!   PlannedLink ── allocate ─► PlacedLink ── externals looked up ─► LinkedObject + Finalized memory
//! ```
//!
//! Each state consumes the one before. Dropping any of them abandons the link and gives its memory back.

use crate::base::{ExecutorAddr, Kept, Pool, ThreadLocal, keep};
use crate::error::{LinkFault, MemoryFault, Result};
use crate::link::bounds;
use crate::link::buffer::ObjectBuffer;
use crate::link::claim;
use crate::link::elf;
use crate::link::fixup::{Fixup, FoundExternal};
use crate::link::frames;
use crate::link::functions::{self, LinkedFunction};
use crate::link::graph::{Binding, Block, BlockId, Definition, LinkGraph, Places, Role, SymbolIndex};
use crate::link::indirect;
use crate::link::initializers::Initializer;
use crate::link::layout;
use crate::link::prune;
use crate::link::second_opinion;
use crate::link::survey::Survey;
use crate::link::symbol_file;
use crate::link::tables::Tables;
use crate::link::thread_locals::{self, ThreadLocalPlace, ThreadLocalPlan};
use crate::memory::{ApartRequest, Finalized, InFlight, MemoryManager, SegmentPlan};
use crate::sync::Arc;

/// Where in a plan a pass stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanStage {
    /// The graph is read, and definitions that others made are externals.
    Claimed,
    /// What nothing leads to is gone.
    Pruned,
}

/// A link whose needs are known.
pub struct PlannedLink {
    graph: LinkGraph,
    tables: Tables,
    plan: SegmentPlan,
    /// All blocks, as they stand in their segments.
    order: Kept<BlockId>,
    externals: Kept<External>,
    thread_locals: Option<ThreadLocalPlan>,
}

/// A link whose own addresses are known.
pub struct PlacedLink {
    pub(super) graph: LinkGraph,
    tables: Tables,
    places: Places,
    memory: Box<dyn InFlight>,
    frame_count: u64,
    order: Kept<BlockId>,
    externals: Kept<External>,
    thread_locals: Option<ThreadLocalPlan>,
}

/// A symbol that the link needs from elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExternalSymbol<'a> {
    /// The name.
    pub name: &'a str,
    /// Whether the link fails without it; otherwise its address is null.
    pub required: bool,
    /// Whether its distance from the thread pointer is asked for.
    pub needs_static_place: bool,
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
        let mut prepare = Some(prepare);
        let is_owned = |graph: &LinkGraph, symbol| is_owned(graph.symbol_name(symbol));
        PlannedLink::plan_in_passes(name, bytes, is_owned, |stage, graph| match prepare.take() {
            Some(prepare) if stage == PlanStage::Claimed => prepare(graph),
            _ => Ok(()),
        })
    }

    /// As [`plan`](Self::plan), with a pass at each stage of the plan. Symbols that the object itself has are known by their
    /// numbers in its symbol table.
    ///
    /// # Errors
    /// As [`plan`](Self::plan).
    pub fn plan_in_passes(
        name: Arc<str>,
        bytes: ObjectBuffer,
        is_owned: impl Fn(&LinkGraph, SymbolIndex) -> bool,
        mut pass: impl FnMut(PlanStage, &mut LinkGraph) -> Result<()>,
    ) -> Result<PlannedLink> {
        // Bytes to arrays.
        let mut graph = elf::read_graph(name, bytes)?;
        // Definitions that others made become externals.
        claim::claim(&mut graph, is_owned);
        // What the object asks of the linker itself: stubs of indirect functions, bounds of its sections.
        indirect::build_stubs(&mut graph);
        let bounded = bounds::find(&graph)?;
        bounds::define(&mut graph, &bounded);
        thread_locals::define_module_base(&mut graph);
        // Plugins: the last chance to add blocks and symbols.
        pass(PlanStage::Claimed, &mut graph)?;
        // What nothing leads to is gone.
        prune::prune(&mut graph);
        pass(PlanStage::Pruned, &mut graph)?;
        // Room for every slot and stub that an edge may need.
        thread_locals::add_descriptor_function(&mut graph);
        let survey = Survey::of(&graph);
        let tables = Tables::build(&mut graph, &survey);
        // Offsets, and what to ask of memory and of the C library.
        let thread_locals = thread_locals::assign(&mut graph)?;
        let (plan, order) = layout::assign(&mut graph)?;
        let externals = externals(&graph, &survey);
        Ok(PlannedLink { graph, tables, plan, order, externals, thread_locals })
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
        external_symbols(&self.graph, self.externals.iter().copied())
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
        let places = Places { segments, apart, thread_locals: None };
        let PlannedLink { graph, tables, plan, order, externals, thread_locals } = self;
        let frame_count = plan.frame_count;
        Ok(PlacedLink { graph, tables, places, memory, frame_count, order, externals, thread_locals })
    }
}

impl PlacedLink {
    /// The graph.
    pub fn graph(&self) -> &LinkGraph {
        &self.graph
    }

    /// Where a block will run; of a thread-local one, its offset.
    pub fn block_address(&self, block: BlockId) -> ExecutorAddr {
        self.graph.block_address(block, &self.places)
    }

    /// What the thread-local block needs, if there is one: [`place_thread_locals`](Self::place_thread_locals) says what it
    /// got, before the definitions are asked for.
    pub fn thread_local_plan(&self) -> Option<&ThreadLocalPlan> {
        self.thread_locals.as_ref()
    }

    /// What every thread's copy of the block begins as, without what depends on externals; and whether nothing does. The
    /// rest is zero.
    ///
    /// # Errors
    /// A relocation that cannot stand there.
    pub fn thread_local_image(&self) -> Result<(Vec<u8>, bool)> {
        let mut image = vec![0; self.thread_locals.map_or(0, |plan| plan.image_size as usize)];
        let fixup = Fixup::new(&self.graph, &self.tables, &self.places, std::iter::empty(), &[]);
        let left = fixup.own_image(&mut image)?;
        if cfg!(debug_assertions) {
            second_opinion::check_own_image(&fixup, &image)?;
        }
        // The C library fills such a block in for all threads when it is loaded: before externals are known.
        if let (Some(edge), true) = (left, self.thread_locals.is_some_and(|plan| plan.is_static)) {
            return Err(self.graph.fault(LinkFault::Unsupported {
                what: format!(
                    "{} to another object's symbol in a thread-local variable of a static model; compile with -fPIC",
                    edge.kind.name()
                ),
                section: ".tdata".to_string(),
                offset: edge.offset.into(),
                symbol: self.graph.symbol_name(edge.symbol).to_string(),
            }));
        }
        let is_whole = left.is_none();
        Ok((image, is_whole))
    }

    /// Where the thread-local block is.
    pub fn place_thread_locals(&mut self, place: ThreadLocalPlace) {
        self.places.thread_locals = Some(place);
    }

    /// The global definitions and their addresses; of thread-local ones, what they have for an address.
    pub fn definitions(&self) -> impl Iterator<Item = (&str, ExecutorAddr)> {
        self.graph
            .symbols()
            .filter(|(_, symbol)| symbol.binding != Binding::Local)
            .filter_map(|(index, _)| Some((self.graph.symbol_name(index), self.definition_address(index)?)))
    }

    /// The address of a definition, or what it has for one if it is thread-local; `None` for what is elsewhere.
    pub fn definition_address(&self, symbol: SymbolIndex) -> Option<ExecutorAddr> {
        match self.graph.symbols.get(symbol.index())?.definition {
            Definition::Block(block, offset) if self.graph.blocks[block.index()].role == Role::ThreadLocal => {
                let offset = (self.graph.blocks[block.index()].offset + offset) as u32;
                Some(ThreadLocal { module: self.places.thread_locals?.module, offset }.to_address())
            }
            Definition::Block(block, offset) => Some(self.graph.block_address(block, &self.places).offset(offset)),
            Definition::Absolute(value) => Some(ExecutorAddr::new(value)),
            Definition::External | Definition::Nowhere => None,
        }
    }

    /// What has to be looked up.
    pub fn externals(&self) -> impl Iterator<Item = ExternalSymbol<'_>> {
        external_symbols(&self.graph, self.externals.iter().copied())
    }

    /// Fixes everything up with what was found for the externals, in their order, and seals the memory. `image` is the
    /// image of the thread-local block, if that is not whole yet.
    ///
    /// # Errors
    /// A relocation out of range, malformed unwind tables; the memory is given back.
    pub fn finish(
        self,
        found: &[FoundExternal],
        image: Option<&mut [u8]>,
    ) -> Result<(LinkedObject, Box<dyn Finalized>)> {
        self.finish_in_passes(found, image, |_| Ok(()))
    }

    /// As [`finish`](Self::finish), with a pass over the bytes before they are sealed.
    ///
    /// # Errors
    /// As [`finish`](Self::finish); what `pass` returns.
    pub fn finish_in_passes(
        self,
        found: &[FoundExternal],
        image: Option<&mut [u8]>,
        pass: impl FnOnce(&mut FixedLink<'_>) -> Result<()>,
    ) -> Result<(LinkedObject, Box<dyn Finalized>)> {
        self.seal(found, image, pass).map(|(linked, memory, _)| (linked, memory))
    }

    /// As [`finish_in_passes`](Self::finish_in_passes), with the names of what was looked up.
    pub(crate) fn seal(
        mut self,
        found: &[FoundExternal],
        mut image: Option<&mut [u8]>,
        pass: impl FnOnce(&mut FixedLink<'_>) -> Result<()>,
    ) -> Result<(LinkedObject, Box<dyn Finalized>, ExternalNames)> {
        let externals = self.externals.iter().map(|external| external.symbol);
        let fixup = Fixup::new(&self.graph, &self.tables, &self.places, externals, found);
        // Bytes in place, every edge applied.
        fixup.apply(&mut *self.memory, &self.order, image.as_deref_mut())?;
        if cfg!(debug_assertions) {
            second_opinion::check(&fixup, &mut *self.memory, image.as_deref())?;
        }
        // Plugins: the last chance to see and change bytes.
        pass(&mut FixedLink { fixup, memory: &mut *self.memory })?;
        // What the unwinder and the registry of initialisers must know.
        let (frames, initializers) = self.collect()?;
        // From here on the memory is nobody's to write.
        let sealed = self.memory.finalize(frames)?;
        let names = ExternalNames { graph: self.graph, externals: self.externals };
        Ok((LinkedObject { name: names.graph.name.clone(), initializers }, sealed, names))
    }

    fn collect(&mut self) -> Result<(Vec<crate::memory::Frame>, Vec<Initializer>)> {
        // Counted when the link was planned.
        let mut found = Vec::with_capacity(self.frame_count as usize);
        let mut initializers = Vec::new();
        // Zero-fill says nothing, and looking for it would make memory of it.
        let has_bytes = |block: &Block| !block.is_dropped && block.size > 0 && !block.is_zero_fill();
        for (id, block) in self.graph.blocks().filter(|(_, block)| has_bytes(block)) {
            let (start, end) = (block.offset as usize, (block.offset + block.size) as usize);
            match block.role {
                Role::Plain | Role::ThreadLocal => {}
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

/// What is left of a link: the names of what it looked up, in the order of [`PlacedLink::externals`].
pub(crate) struct ExternalNames {
    graph: LinkGraph,
    externals: Kept<External>,
}

impl ExternalNames {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.externals.iter().map(|external| self.graph.name_bytes(external.symbol))
    }
}

/// A link whose bytes are final, and still writable.
pub struct FixedLink<'a> {
    pub(super) fixup: Fixup<'a>,
    pub(super) memory: &'a mut dyn InFlight,
}

impl FixedLink<'_> {
    /// The graph.
    pub fn graph(&self) -> &LinkGraph {
        self.fixup.graph
    }

    /// Where a block will run; of a thread-local one, its offset.
    pub fn block_address(&self, block: BlockId) -> ExecutorAddr {
        self.fixup.graph.block_address(block, self.fixup.places)
    }

    /// Where a symbol is: what was found, for externals; null for those that are nowhere.
    pub fn symbol_address(&self, symbol: SymbolIndex) -> ExecutorAddr {
        self.fixup.address(symbol)
    }

    /// Where a symbol's GOT slot is, if it has one.
    pub fn got_slot(&self, symbol: SymbolIndex) -> Option<ExecutorAddr> {
        let (got, offset) = (self.fixup.tables.got()?, self.fixup.tables.slot(symbol)?);
        Some(self.block_address(got).offset(offset))
    }

    /// Where a symbol's stub is, if it has one.
    pub fn stub(&self, symbol: SymbolIndex) -> Option<ExecutorAddr> {
        let (stubs, offset) = (self.fixup.tables.stubs()?, self.fixup.tables.stub(symbol)?);
        Some(self.block_address(stubs).offset(offset))
    }

    /// What a debugger is to read of this object: its own symbols and debug information, as an ELF file whose sections have
    /// the addresses that they got here. Without debug information it is a small part of the object. It refers to nothing:
    /// it may be kept, written to a file, or shown to a debugger by other means than [`Debugger`].
    ///
    /// [`Debugger`]: crate::platform::Debugger
    pub fn symbol_file(&mut self) -> Vec<u8> {
        symbol_file::write(self)
    }

    /// The functions of this object that have names, with the bytes that will run, how to unwind them, and which source
    /// lines they come from: for profilers. In the order of their addresses within each section.
    pub fn functions(&mut self) -> Vec<LinkedFunction> {
        functions::list(self)
    }

    /// A block's bytes; empty for those that are dropped or thread-local.
    pub fn bytes(&mut self, block: BlockId) -> &mut [u8] {
        let block = &self.fixup.graph.blocks[block.index()];
        if block.is_dropped || block.role == Role::ThreadLocal {
            return &mut [];
        }
        match block.apart {
            Some(number) => self.memory.apart(number as usize),
            None => &mut self.memory.working(block.pool)[block.offset as usize..(block.offset + block.size) as usize],
        }
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
    externals: impl IntoIterator<Item = External>,
) -> impl Iterator<Item = ExternalSymbol<'_>> {
    externals.into_iter().map(|External { symbol, needs_static_place }| ExternalSymbol {
        name: graph.symbol_name(symbol),
        required: graph.symbols[symbol.index()].binding != Binding::Weak,
        needs_static_place,
    })
}

keep!(External);

/// An external that some edge refers to.
#[derive(Clone, Copy)]
struct External {
    symbol: SymbolIndex,
    needs_static_place: bool,
}

/// The externals that some edge refers to, in the order of the symbols.
fn externals(graph: &LinkGraph, survey: &Survey) -> Kept<External> {
    let used = graph.externals().filter(|symbol| survey.is_used(*symbol));
    used.map(|symbol| External { symbol, needs_static_place: survey.needs_static_place(symbol) }).collect()
}
