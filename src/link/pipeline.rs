//! The link, top to bottom.
//!
//! ```text
//!   ReadLink ── plan ─► PlannedLink ── allocate ─► PlacedLink ── externals looked up ─► LinkedObject + Finalized memory
//! ```
//!
//! Each state consumes the one before. Dropping any of them abandons the link and gives its memory back.

use std::cell::Cell;

use crate::base::{ExecutorAddr, Pooled, PooledBox, RecycledVec, SegmentKind, TlsIndex, impl_recycle};
use crate::error::{Error, LinkFault, MemoryFault, Result};
use crate::link::bounds;
use crate::link::buffer::ObjectBuffer;
use crate::link::claim;
use crate::link::elf::{self, InterfaceSymbol, Outline};
use crate::link::fixup::{Fixup, FoundExternal};
use crate::link::frames;
use crate::link::functions::{self, LinkedFunction};
use crate::link::graph::{Binding, Block, BlockId, Definition, LinkGraph, Places, Role, SymbolIndex};
use crate::link::indirect;
use crate::link::init_fragments;
use crate::link::initializers::Initializer;
use crate::link::layout::{self, Contents};
use crate::link::linker_names;
use crate::link::prune;
use crate::link::symbol_file;
use crate::link::symbol_uses::SymbolUses;
use crate::link::tables::Tables;
use crate::link::targets::Targets;
use crate::link::thread_locals::{self, ThreadLocalPlace, ThreadLocalPlan};
use crate::link::verify;
use crate::memory::{Finalized, Frame, InFlight, LargeRequest, MemoryManager, SegmentPlan};
use crate::sync::{Arc, LocalKey, plain_thread_local};

/// Whether a definition of the graph's own counts.
pub(crate) type IsOwned<'a> = dyn Fn(&LinkGraph, SymbolIndex) -> bool + 'a;

/// Where in a plan a pass stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanStage {
    /// The graph is read, and definitions that others made are externals.
    Claimed,
    /// What nothing leads to is gone.
    Pruned,
}

/// A link whose object is read.
pub(crate) struct ReadLink {
    link: PooledBox<Link>,
}

/// A link whose needs are known.
pub struct PlannedLink {
    link: PooledBox<Link>,
}

/// A link whose own addresses are known.
pub struct PlacedLink {
    pub(super) link: PooledBox<Link>,
    memory: Box<dyn InFlight>,
}

/// What a link knows: made where it stands, and handed on from state to state without being moved.
#[derive(Default)]
pub(super) struct Link {
    pub(super) graph: LinkGraph,
    survey: SymbolUses,
    tables: Tables,
    plan: SegmentPlan,
    /// What stands in its segments.
    contents: Contents,
    /// Those that some edge refers to, in the order of the symbols.
    externals: RecycledVec<External>,
    thread_locals: Option<ThreadLocalPlan>,
    /// Nowhere, until memory is allocated.
    places: Places,
    /// None, until memory is allocated; externals are nowhere, until they are found.
    targets: Targets,
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

impl ReadLink {
    /// Reads an object, whose outline may be known.
    ///
    /// # Errors
    /// [`LinkFault`] for what is malformed or not supported.
    pub(crate) fn read(name: Arc<str>, bytes: ObjectBuffer, outline: Option<&Outline>) -> Result<ReadLink> {
        let mut link = PooledBox::<Link>::take();
        elf::read_graph(&mut link.graph, name, bytes, outline)?;
        Ok(ReadLink { link })
    }

    /// As [`read`](Self::read), of an object that nobody has looked into yet: shows its definitions to `visit`, each with how
    /// many are left, and tells whether it has initialisers.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) fn read_all(
        name: Arc<str>,
        bytes: ObjectBuffer,
        visit: impl FnMut(InterfaceSymbol, usize),
    ) -> Result<(ReadLink, bool)> {
        let mut link = PooledBox::<Link>::take();
        let has_initializers = elf::read_all(&mut link.graph, name, bytes, visit)?;
        Ok((ReadLink { link }, has_initializers))
    }

    /// Leaves out what `is_owned` denies, and plans, with a pass at each stage; without `is_owned`, all definitions count.
    ///
    /// # Errors
    /// [`LinkFault`] for what is not supported; whatever `pass` returns.
    pub(crate) fn plan(
        self,
        is_owned: Option<&IsOwned<'_>>,
        mut pass: impl FnMut(PlanStage, &mut LinkGraph) -> Result<()>,
    ) -> Result<PlannedLink> {
        let mut link = self.link;
        let Link { graph, survey, tables, plan, contents, externals, .. } = &mut *link;
        // Definitions that others made become externals.
        if let Some(is_owned) = is_owned {
            claim::claim(graph, is_owned);
        }
        init_fragments::check(graph)?;
        linker_names::require(graph);
        // What the object asks of the linker itself: stubs of indirect functions, bounds of its sections.
        indirect::build_stubs(graph);
        let bounded = bounds::find(graph)?;
        bounds::define(graph, &bounded);
        thread_locals::define_module_base(graph);
        // Plugins: the last chance to add blocks and symbols.
        pass(PlanStage::Claimed, graph)?;
        // What nothing leads to is gone.
        prune::prune(graph);
        pass(PlanStage::Pruned, graph)?;
        // Room for every slot and stub that an edge may need.
        thread_locals::add_descriptor_function(graph);
        survey.take(graph);
        tables.build(graph, survey);
        // Offsets, and what to ask of memory and of the C library.
        let thread_locals = thread_locals::assign(graph)?;
        layout::assign(graph, plan, contents)?;
        let used = survey.used_externals(graph);
        externals.extend(used.map(|(symbol, needs_static_place)| External { symbol, needs_static_place }));
        link.thread_locals = thread_locals;
        Ok(PlannedLink { link })
    }
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
        pass: impl FnMut(PlanStage, &mut LinkGraph) -> Result<()>,
    ) -> Result<PlannedLink> {
        ReadLink::read(name, bytes, None)?.plan(Some(&is_owned), pass)
    }

    /// The same link, as one of those that belong together: see [`SegmentPlan::group`].
    pub fn in_group(mut self, group: u64) -> PlannedLink {
        self.link.plan.group = group;
        self
    }

    /// What the link needs.
    pub fn segment_plan(&self) -> &SegmentPlan {
        &self.link.plan
    }

    /// Number of GOT slots.
    pub fn got_slot_count(&self) -> usize {
        self.link.tables.slots.len()
    }

    /// Number of stubs for branches that may be out of reach.
    pub fn stub_count(&self) -> usize {
        self.link.tables.stub_targets.len()
    }

    /// What has to be looked up.
    pub fn externals(&self) -> impl Iterator<Item = ExternalSymbol<'_>> {
        self.link.externals()
    }

    /// The graph.
    pub fn graph(&self) -> &LinkGraph {
        &self.link.graph
    }

    /// Takes memory: the addresses of all definitions are final.
    ///
    /// # Errors
    /// [`MemoryFault`].
    pub fn allocate(self, memory: &dyn MemoryManager) -> Result<PlacedLink> {
        let mut link = self.link;
        let Link { graph, plan, places, targets, .. } = &mut *link;
        let mut memory = memory.allocate(plan)?;
        places.segments = SegmentKind::ALL.map(|pool| memory.address(pool));
        places.apart = places_apart(plan, &mut *memory)?;
        targets.enter_own(graph, places);
        Ok(PlacedLink { link, memory })
    }
}

impl PlacedLink {
    /// The graph.
    pub fn graph(&self) -> &LinkGraph {
        &self.link.graph
    }

    /// Where a block will run; of a thread-local one, its offset.
    pub fn block_address(&self, block: BlockId) -> ExecutorAddr {
        self.link.graph.block_address(block, &self.link.places)
    }

    /// What the thread-local block needs, if there is one: [`place_thread_locals`](Self::place_thread_locals) says what it
    /// got, before the definitions are asked for.
    pub fn thread_local_plan(&self) -> Option<&ThreadLocalPlan> {
        self.link.thread_locals.as_ref()
    }

    /// What every thread's copy of the block begins as, without what depends on externals; and whether nothing does. The
    /// rest is zero.
    ///
    /// # Errors
    /// A relocation that cannot stand there.
    pub fn thread_local_image(&self) -> Result<(Vec<u8>, bool)> {
        let link = &*self.link;
        let mut image = vec![0; link.thread_locals.map_or(0, |plan| plan.image_size as usize)];
        let fixup = link.fixup(&[]);
        let left = fixup.own_image(&mut image)?;
        if cfg!(debug_assertions) {
            verify::check_own_image(&fixup, &image)?;
        }
        // The C library fills such a block in for all threads when it is loaded: before externals are known.
        if let (Some((id, edge)), true) = (&left, link.thread_locals.is_some_and(|plan| plan.is_static)) {
            return Err(thread_locals::unfinished_static_image(&link.graph, *id, edge));
        }
        let is_whole = left.is_none();
        Ok((image, is_whole))
    }

    /// The error of a link whose thread-local block the C library refused, with `problem` for its reason.
    pub(crate) fn thread_local_block_refused(&self, problem: &str) -> Error {
        let size = self.link.thread_locals.map_or(0, |plan| plan.size);
        thread_locals::block_refused(&self.link.graph, size, problem)
    }

    /// Where the thread-local block is.
    pub fn place_thread_locals(&mut self, place: ThreadLocalPlace) {
        self.link.places.thread_locals = Some(place);
    }

    /// The global definitions and their addresses; of thread-local ones, what they have for an address.
    pub fn definitions(&self) -> impl Iterator<Item = (&str, ExecutorAddr)> {
        let graph = &self.link.graph;
        let named = graph.symbols().filter(|(_, symbol)| symbol.binding != Binding::Local);
        named.filter_map(|(index, _)| Some((graph.symbol_name(index), self.definition_address(index)?)))
    }

    /// The address of a definition, or what it has for one if it is thread-local; `None` for what is elsewhere.
    #[inline]
    pub fn definition_address(&self, symbol: SymbolIndex) -> Option<ExecutorAddr> {
        // Externals are nowhere yet.
        self.link.targets.plain(symbol).or_else(|| self.unusual_address(symbol))
    }

    fn unusual_address(&self, symbol: SymbolIndex) -> Option<ExecutorAddr> {
        let Link { graph, places, targets, .. } = &*self.link;
        match graph.symbols.get(symbol.index())?.definition {
            Definition::Block(block, offset) if graph.blocks[block.index()].role == Role::TlsIndex => {
                let offset = (graph.blocks[block.index()].offset + offset) as u32;
                Some(TlsIndex { module: places.thread_locals?.module, offset }.to_address())
            }
            Definition::Block(..) | Definition::Absolute(_) => Some(targets.address(symbol)),
            Definition::External | Definition::Nowhere => None,
        }
    }

    /// What has to be looked up.
    pub fn externals(&self) -> impl Iterator<Item = ExternalSymbol<'_>> {
        self.link.externals()
    }

    /// Their names alone, before anybody has made sure that they are text: cheaper than [`externals`](Self::externals).
    pub(crate) fn external_names(&self) -> impl Iterator<Item = &[u8]> {
        self.link.external_names()
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
        let link = &mut *self.link;
        let Link { targets, externals, .. } = link;
        targets.bind(externals.iter().map(|external| external.symbol), found);
        let fixup = link.fixup(found);
        // Bytes in place, every edge applied.
        fixup.apply(&mut *self.memory, &link.contents, image.as_deref_mut())?;
        if cfg!(debug_assertions) {
            verify::check(&fixup, &mut *self.memory, image.as_deref())?;
        }
        // Plugins: the last chance to see and change bytes.
        pass(&mut FixedLink { fixup, memory: &mut *self.memory })?;
        // What the unwinder and the registry of initialisers must know.
        let (frames, initializers) = self.link.collect(&mut *self.memory)?;
        // From here on the memory is nobody's to write.
        let sealed = self.memory.finalize(frames)?;
        let name = self.link.graph.name.take().unwrap_or_default();
        Ok((LinkedObject { name, initializers }, sealed, ExternalNames { link: self.link }))
    }
}

impl Pooled for Link {
    fn aside() -> &'static LocalKey<Cell<Option<Box<Link>>>> {
        plain_thread_local! { static ASIDE: Cell<Option<Box<Link>>> = const { Cell::new(None) }; }
        &ASIDE
    }

    fn empty(&mut self) {
        // A plan says itself what it consists of.
        let Link { graph, survey, tables, plan: _, contents: _, externals, thread_locals, places, targets } = self;
        graph.empty();
        survey.empty();
        tables.empty();
        externals.empty();
        targets.empty();
        (*thread_locals, *places) = (None, Places::default());
    }
}

impl Link {
    fn externals(&self) -> impl Iterator<Item = ExternalSymbol<'_>> {
        let graph = &self.graph;
        self.externals.iter().map(move |External { symbol, needs_static_place }| ExternalSymbol {
            name: graph.symbol_name(*symbol),
            required: graph.symbols[symbol.index()].binding != Binding::Weak,
            needs_static_place: *needs_static_place,
        })
    }

    /// Their names, before anybody has made sure that they are text.
    fn external_names(&self) -> impl Iterator<Item = &[u8]> {
        self.graph.names_of(self.externals.iter().map(|external| external.symbol))
    }

    fn fixup<'a>(&'a self, found: &'a [FoundExternal]) -> Fixup<'a> {
        Fixup::new(&self.graph, &self.tables, &self.places, &self.targets, found)
    }

    fn collect(&self, memory: &mut dyn InFlight) -> Result<(Vec<Frame>, Vec<Initializer>)> {
        // Counted when the link was planned.
        let mut found = RecycledVec::with_capacity(self.plan.frame_count as usize).into_vec();
        let mut initializers = Vec::new();
        // Zero-fill says nothing, and looking for it would make memory of it.
        let has_bytes = |block: &Block| !block.is_dropped && block.size > 0 && !block.is_zero_fill();
        for (id, block) in self.graph.special() {
            match block.role {
                Role::Plain | Role::TlsIndex | Role::InitFragment => {}
                _ if !has_bytes(block) => {}
                Role::EhFrame => {
                    let address = self.graph.block_address(id, &self.places);
                    frames::find_frames(bytes_of(block, memory), address, &mut found)
                        .map_err(|error| self.graph.fault(LinkFault::Malformed(format!(".eh_frame: {error}"))))?;
                }
                Role::Initializers { kind, priority, backward } => {
                    let words = bytes_of(block, memory).chunks_exact(8);
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
    link: PooledBox<Link>,
}

impl ExternalNames {
    pub(crate) fn at(&self, position: usize) -> &str {
        self.link.externals.get(position).map_or("", |external| self.link.graph.symbol_name(external.symbol))
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
        if block.is_dropped || block.role == Role::TlsIndex {
            return &mut [];
        }
        match block.apart {
            Some(number) => self.memory.apart(number as usize),
            None => bytes_of(block, self.memory),
        }
    }
}

/// Where the sections apart stand.
fn places_apart(plan: &SegmentPlan, memory: &mut dyn InFlight) -> Result<Vec<ExecutorAddr>> {
    let place = |(index, request): (usize, &LargeRequest)| {
        if memory.apart(index).len() as u64 != request.size {
            let LargeRequest { size, align, .. } = *request;
            let problem = "this memory manager places no section apart from the pools";
            return Err(MemoryFault::BadPlan { pool: "apart", size, align, problem }.into());
        }
        Ok(memory.apart_address(index))
    };
    plan.apart.iter().enumerate().map(place).collect()
}

/// The bytes of a block that is in a segment.
fn bytes_of<'a>(block: &Block, memory: &'a mut dyn InFlight) -> &'a mut [u8] {
    &mut memory.working(block.pool)[block.offset as usize..(block.offset + block.size) as usize]
}

impl_recycle!(External);

/// An external that some edge refers to.
#[derive(Clone, Copy)]
struct External {
    symbol: SymbolIndex,
    needs_static_place: bool,
}
