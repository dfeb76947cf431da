//! The phases of a link, in order. Each state of a link is a type, and each step consumes the state before it.
//!
//! ```text
//!   ReadLink ── plan ─► PlannedLink ── allocate ─► PlacedLink ── finish ─► LinkedObject + finalized memory
//!                                                      ▲
//!                                     the caller looks the externals up
//! ```
//!
//! | state | known |
//! |---|---|
//! | [`ReadLink`] | blocks, symbols and edges |
//! | [`PlannedLink`] | sizes and offsets: the [`SegmentPlan`]; the names of the externals |
//! | [`PlacedLink`] | the addresses of all definitions of the object |
//! | [`FixedLink`] | all bytes; plugins may still change them |
//! | [`LinkedObject`] | the memory is sealed |
//!
//! Dropping a state abandons the link and frees its memory. A pass is a function of the caller that runs plugins between
//! two phases (ORC: `PassConfiguration`).
//!
//! The data of a link is one pooled object ([`Link`]). The states share it, so a step moves a pointer and allocates
//! nothing.

use std::cell::Cell;

use crate::arch::KindSet;
use crate::base::{ExecutorAddr, Pooled, PooledBox, RecycledVec, SegmentKind, TlsIndex, impl_recycle};
use crate::error::{LinkFault, Result};
use crate::link::bounds;
use crate::link::buffer::ObjectBuffer;
use crate::link::builder::BuiltGraph;
use crate::link::changes;
use crate::link::claim;
use crate::link::collectors;
use crate::link::elf::{self, InterfaceSymbol, NamedSection, Outline};
use crate::link::fixed_link::{FixedLink, bytes_of};
use crate::link::found_external::FoundExternal;
use crate::link::frames;
use crate::link::graph::{Binding, Block, BlockAddresses, BlockId, Definition, LinkGraph, Role, SymbolIndex};
use crate::link::indirect;
use crate::link::init_fragments;
use crate::link::initializers::{Initializer, InitializerStage};
use crate::link::kept_names::KeptNames;
use crate::link::large_sections;
use crate::link::layout::{self, Contents};
use crate::link::linker_names;
use crate::link::prune;
use crate::link::resolved_link::ResolvedLink;
use crate::link::section_part::SectionPart;
use crate::link::sizes;
use crate::link::symbol_uses::SymbolUses;
use crate::link::tables::Tables;
use crate::link::targets::Targets;
use crate::link::thread_local_plan::ThreadLocalPlan;
use crate::link::thread_local_thunks::ThreadLocalThunks;
use crate::link::thread_locals;
use crate::link::veneer_plan::add_veneers;
use crate::link::verify;
use crate::link::wrapped_names::WrappedNames;
use crate::memory::{Finalized, Frame, InFlight, MemoryManager, SegmentPlan};
use crate::sync::{Arc, LocalKey, plain_thread_local};

/// Whether the responsibility owns a definition of the object, so that this definition counts.
pub(crate) type IsOwned<'a> = dyn Fn(&LinkGraph, SymbolIndex) -> bool + 'a;

/// The point of a plan at which a pass runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanStage {
    /// After claiming: definitions that the responsibility does not own are externals (ORC: pre-prune passes).
    Claimed,
    /// After dead-stripping (ORC: post-prune passes). Weak definitions that the pass adds are not claimed, so other objects
    /// do not find them.
    Pruned,
}

/// A link after the object was read into a graph.
pub(crate) struct ReadLink {
    link: PooledBox<Link>,
}

/// A link that knows what memory and which externals it needs.
pub struct PlannedLink {
    link: PooledBox<Link>,
}

/// A link with memory: the addresses of all definitions of the object are final.
pub struct PlacedLink {
    pub(super) link: PooledBox<Link>,
    pub(super) memory: Box<dyn InFlight>,
}

/// The data of a link. Pooled: see [`PooledBox`].
pub(super) struct Link {
    pub(super) graph: LinkGraph,
    symbol_uses: SymbolUses,
    tables: Tables,
    pub(super) plan: SegmentPlan,
    /// The blocks of each segment.
    pub(super) contents: Contents,
    /// The externals that some edge refers to, in the order of their symbols.
    externals: RecycledVec<UsedExternal>,
    pub(super) thread_locals: Option<ThreadLocalPlan>,
    /// Empty before memory is allocated.
    pub(super) addresses: BlockAddresses,
    /// Empty before memory is allocated. Externals have no address before they are found.
    targets: Targets,
}

/// A symbol that the link needs another object or library to define.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExternalSymbol<'a> {
    /// The name of the symbol.
    pub name: &'a str,
    /// Whether the link fails without a definition. If not (a weak reference), the address is null without one.
    pub required: bool,
    /// Whether the link needs the distance of the thread-local variable from the thread pointer (a static TLS model).
    pub needs_static_tls: bool,
    /// Whether the definition takes the place of a common symbol of the object, which may be aligned more strictly.
    pub is_lost_common: bool,
}

/// The result of a link.
#[derive(Debug)]
pub struct LinkedObject {
    /// The name of the object.
    pub name: Arc<str>,
    /// The initialisers and finalisers of the object, not sorted.
    pub initializers: Vec<Initializer>,
}

impl ReadLink {
    /// Reads an object. With an `outline` of the same bytes, the headers are not checked again.
    ///
    /// # Errors
    /// A [`LinkFault`], for an object that is malformed or not supported.
    pub(crate) fn read(name: Arc<str>, bytes: ObjectBuffer, outline: Option<&Outline>) -> Result<ReadLink> {
        let mut link = PooledBox::<Link>::acquire();
        elf::read_graph(&mut link.graph, name, bytes, outline)?;
        Ok(ReadLink { link })
    }

    /// An empty graph, which a generator fills.
    pub(crate) fn empty() -> ReadLink {
        ReadLink { link: PooledBox::<Link>::acquire() }
    }

    pub(crate) fn graph(&self) -> &LinkGraph {
        &self.link.graph
    }

    pub(crate) fn graph_mut(&mut self) -> &mut LinkGraph {
        &mut self.link.graph
    }

    /// As [`read`](Self::read), for an object whose interface is not known. Passes its definitions to `visit`, each
    /// with the number of definitions from it to the last, and returns whether the object has initialisers.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) fn read_all(
        name: Arc<str>,
        bytes: ObjectBuffer,
        visit: impl FnMut(InterfaceSymbol, usize),
    ) -> Result<(ReadLink, bool)> {
        let mut link = PooledBox::<Link>::acquire();
        let has_initializers = elf::read_all(&mut link.graph, name, bytes, visit)?;
        Ok((ReadLink { link }, has_initializers))
    }

    /// The object's parts of sections that `__start_` and `__stop_` symbols can name, if `is_owned` says which of its
    /// definitions count, and whether the object may need memory below 2 GiB. The link itself finds the same.
    ///
    /// # Errors
    /// A [`LinkFault`], with which the link fails, too.
    pub(crate) fn section_parts(mut self, is_owned: &IsOwned<'_>) -> Result<(Vec<SectionPart>, bool)> {
        claim::claim(&mut self.link.graph, is_owned)?;
        Ok((bounds::parts(&self.link.graph), self.link.graph.may_need_low_memory()))
    }

    /// As [`section_parts`](Self::section_parts), before it is known which groups count.
    pub(crate) fn added_parts(&self) -> (Vec<SectionPart>, bool) {
        (bounds::parts(&self.link.graph), self.link.graph.may_need_low_memory())
    }

    /// The sections that `__start_` and `__stop_` symbols can name.
    pub(crate) fn named_sections(&self) -> Vec<NamedSection> {
        let blocks = &self.link.graph.blocks;
        let named = |part: SectionPart| {
            let is_certain = part.blocks.iter().any(|id| blocks[id.index()].group.is_none());
            NamedSection { name: part.section, is_certain }
        };
        bounds::parts(&self.link.graph).into_iter().map(named).collect()
    }

    /// Whether the object has sections that `__start_` and `__stop_` symbols can name.
    #[inline]
    pub(crate) fn has_section_parts(&self) -> bool {
        self.link.graph.has_named_sections && !bounds::parts(&self.link.graph).is_empty()
    }

    /// Renames the references to wrapped symbols.
    pub(crate) fn wrap(&mut self, wrapped: &WrappedNames) {
        wrapped.rename(&mut self.link.graph);
    }

    /// Turns the definitions for which `is_owned` is false into externals, and plans, with a call of `pass` at each
    /// stage. Without `is_owned`, all definitions count.
    ///
    /// # Errors
    /// A [`LinkFault`], for an object that is not supported; an error of `pass`.
    pub(crate) fn plan(
        self,
        is_owned: Option<&IsOwned<'_>>,
        mut pass: impl FnMut(PlanStage, &mut LinkGraph) -> Result<()>,
    ) -> Result<PlannedLink> {
        let mut link = self.link;
        let Link { graph, symbol_uses, tables, plan, contents, externals, .. } = &mut *link;
        // Definitions that the responsibility does not own become externals.
        if let Some(is_owned) = is_owned {
            claim::claim(graph, is_owned)?;
        }
        init_fragments::build_functions(graph)?;
        if graph.has_weak_externals {
            linker_names::require(graph);
        }
        // Symbols that a linker defines: stubs of indirect functions, bounds of sections, the base of the thread-local
        // block.
        if !graph.indirect.is_empty() {
            indirect::build_stubs(graph);
        }
        bounds::find(graph);
        if !graph.requested_bounds.is_empty() {
            bounds::define(graph);
        }
        thread_locals::define_module_base(graph);
        collectors::check(graph)?;
        // Plugins may change the graph.
        pass(PlanStage::Claimed, graph)?;
        changes::check::check(graph)?;
        if !graph.requested_bounds.is_empty() {
            bounds::check(graph)?;
        }
        // Dead-stripping.
        prune::prune(graph);
        // Plugins may change what is left.
        pass(PlanStage::Pruned, graph)?;
        changes::check::check(graph)?;
        // Space for every GOT slot and stub that an edge may need.
        if graph.kinds.has_any_of(KindSet::DESCRIPTOR) {
            thread_locals::add_descriptor_function(graph);
        }
        symbol_uses.collect(graph);
        if symbol_uses.kinds.has_any_of(KindSet::SIZE) {
            sizes::find(graph);
        }
        tables.build(graph, symbol_uses);
        // Offsets, and the plans for memory and for the C library.
        let thread_locals = thread_locals::assign(graph)?;
        layout::assign(graph, plan, contents)?;
        if let Some(code) = graph.arch.veneers().filter(|code| plan.segment(SegmentKind::Code).size > code.reach) {
            add_veneers(graph, tables, code, plan, contents)?;
        }
        let used = symbol_uses.used_externals(graph);
        externals.extend(used.map(|(symbol, needs_static_tls)| {
            let is_hidden = graph.symbols[symbol.index()].is_hidden;
            UsedExternal { symbol, needs_static_tls, is_hidden }
        }));
        link.thread_locals = thread_locals;
        Ok(PlannedLink { link })
    }
}

/// Links without a session, for tests and tools.
#[cfg_attr(not(feature = "unstable"), allow(dead_code))]
impl PlannedLink {
    /// Reads an object and plans its link.
    ///
    /// Global definitions whose name `is_owned` denies become externals. `prepare` may then change the graph
    /// ([`PlanStage::Claimed`]). `name` is the object's name in errors.
    ///
    /// # Errors
    /// A [`LinkFault`], for an object that is malformed or not supported; an error of `prepare`.
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

    /// As [`plan`](Self::plan), with a call of `pass` at each stage. `is_owned` gets the position of a symbol, which is
    /// its index in the object's symbol table.
    ///
    /// # Errors
    /// As [`plan`](Self::plan), with the errors of `pass`.
    pub fn plan_in_passes(
        name: Arc<str>,
        bytes: ObjectBuffer,
        is_owned: impl Fn(&LinkGraph, SymbolIndex) -> bool,
        pass: impl FnMut(PlanStage, &mut LinkGraph) -> Result<()>,
    ) -> Result<PlannedLink> {
        ReadLink::read(name, bytes, None)?.plan(Some(&is_owned), pass)
    }

    /// As [`plan`](Self::plan), for the graph of a generator.
    ///
    /// # Errors
    /// As [`plan`](Self::plan).
    pub fn plan_graph(graph: BuiltGraph, is_owned: impl Fn(&str) -> bool) -> Result<PlannedLink> {
        let is_owned = |graph: &LinkGraph, symbol| is_owned(graph.symbol_name(symbol));
        graph.read.plan(Some(&is_owned), |_, _| Ok(()))
    }

    /// Sets the number of the group of allocations that should be near each other: see [`SegmentPlan::group`].
    pub fn in_group(mut self, group: u64) -> PlannedLink {
        self.link.plan.group = group;
        self
    }

    /// The memory that the link needs.
    pub fn segment_plan(&self) -> &SegmentPlan {
        &self.link.plan
    }

    /// The number of GOT slots.
    pub fn got_slot_count(&self) -> usize {
        self.link.tables.slots.len()
    }

    /// The number of stubs for branches that may be out of reach.
    pub fn stub_count(&self) -> usize {
        self.link.tables.stub_targets.len()
    }

    /// The externals that must be looked up, in the order in which what was found is passed on.
    pub fn externals(&self) -> impl Iterator<Item = ExternalSymbol<'_>> {
        self.link.externals()
    }

    /// The graph of the link.
    pub fn graph(&self) -> &LinkGraph {
        &self.link.graph
    }

    /// Allocates the memory. The addresses of all definitions are final then.
    ///
    /// # Errors
    /// A [`MemoryFault`](crate::error::MemoryFault).
    pub fn allocate(self, memory: &dyn MemoryManager) -> Result<PlacedLink> {
        let mut link = self.link;
        let Link { graph, plan, addresses, targets, .. } = &mut *link;
        let mut memory = memory.allocate(plan)?;
        addresses.segments = SegmentKind::ALL.map(|pool| memory.address(pool));
        if !(plan.large_sections.is_empty() && graph.placements.is_empty()) {
            (memory, addresses.large_sections) = large_sections::place(graph, plan, memory)?;
        }
        targets.insert_definitions(graph, addresses);
        Ok(PlacedLink { link, memory })
    }
}

impl PlacedLink {
    /// The graph of the link.
    pub fn graph(&self) -> &LinkGraph {
        &self.link.graph
    }

    /// The address at which a block will run. For a thread-local block, this is meaningless.
    ///
    /// # Panics
    /// If `block` is a position of another graph.
    pub fn block_address(&self, block: BlockId) -> ExecutorAddr {
        self.link.graph.block_address(block, &self.link.addresses)
    }

    /// The names and addresses of the global definitions. The address of a thread-local variable is a [`TlsIndex`], as
    /// an address.
    pub fn definitions(&self) -> impl Iterator<Item = (&str, ExecutorAddr)> {
        let graph = &self.link.graph;
        let named = graph.symbols().filter(|(_, symbol)| symbol.binding != Binding::Local);
        named.filter_map(|(index, _)| Some((graph.symbol_name(index), self.definition_address(index)?)))
    }

    /// The address of a definition. For a thread-local variable, a [`TlsIndex`] as an address; `None` before its block
    /// is placed. `None` also for an external, and for a symbol without an address.
    #[inline]
    pub fn definition_address(&self, symbol: SymbolIndex) -> Option<ExecutorAddr> {
        // An external has no plain target here, because the externals are not found yet.
        self.link.targets.plain(symbol).or_else(|| self.special_address(symbol))
    }

    /// As [`definition_address`](Self::definition_address), for a symbol whose target is not plain: a thread-local
    /// variable, an address outside the lowest quarter of the address space, or a symbol without an address.
    fn special_address(&self, symbol: SymbolIndex) -> Option<ExecutorAddr> {
        let Link { graph, addresses, targets, .. } = &*self.link;
        match graph.symbols.get(symbol.index())?.definition {
            Definition::Block(block, offset) if graph.blocks[block.index()].role == Role::ThreadLocal => {
                let offset = (graph.blocks[block.index()].offset + offset) as u32;
                Some(TlsIndex { module: addresses.thread_locals?.module, offset }.to_address())
            }
            Definition::Block(..) | Definition::Absolute(_) => Some(targets.address(symbol)),
            Definition::External | Definition::Nowhere => None,
        }
    }

    /// The externals that must be looked up, in the order in which what was found is passed on.
    pub fn externals(&self) -> impl Iterator<Item = ExternalSymbol<'_>> {
        self.link.externals()
    }

    /// Whether a symbol is among the externals.
    pub(super) fn is_used_external(&self, symbol: SymbolIndex) -> bool {
        self.link.externals.binary_search_by_key(&symbol, |external| external.symbol).is_ok()
    }

    /// The offset of a symbol's slot in the GOT, if it has one.
    pub(super) fn got_slot(&self, symbol: SymbolIndex) -> Option<u64> {
        self.link.tables.slot(symbol)
    }

    /// The number of externals.
    pub(crate) fn external_count(&self) -> usize {
        self.link.externals.len()
    }

    /// The names of the externals as bytes. Cheaper than [`externals`](Self::externals), because nothing checks that
    /// they are UTF-8.
    pub(crate) fn external_names(&self) -> impl Iterator<Item = &[u8]> {
        self.link.external_names()
    }

    /// The names of the externals, for use after the link has moved.
    pub(crate) fn kept_external_names(&self) -> KeptNames {
        KeptNames::new(&self.link.graph.bytes, self.externals().map(|external| external.name))
    }

    /// By external: whether the object declares it hidden, internal or protected.
    pub(crate) fn hidden_externals(&self) -> impl Iterator<Item = bool> {
        self.link.externals.iter().map(|external| external.is_hidden)
    }

    /// Whether the link needs the size of an external.
    pub(crate) fn needs_sizes(&self) -> bool {
        !self.link.graph.sized_externals.is_empty()
    }

    /// The positions of the externals whose sizes the link needs, among [`externals`](Self::externals).
    pub(crate) fn sized_externals(&self) -> Vec<usize> {
        let Link { graph, externals, .. } = &*self.link;
        if graph.sized_externals.is_empty() {
            return Vec::new();
        }
        let is_sized = |external: &UsedExternal| graph.sized_externals.binary_search(&external.symbol).is_ok();
        externals.iter().enumerate().filter(|(_, external)| is_sized(external)).map(|(position, _)| position).collect()
    }

    /// Sets the size in bytes of the external at a position. `None` if its definition has no known size.
    ///
    /// # Errors
    /// [`LinkFault::Unsupported`] without a size.
    pub(crate) fn set_external_size(&mut self, position: usize, size: Option<u64>) -> Result<()> {
        let Link { graph, externals, .. } = &mut *self.link;
        let Some(UsedExternal { symbol, .. }) = externals.get(position).copied() else { return Ok(()) };
        graph.symbols[symbol.index()].size = size.ok_or_else(|| sizes::unknown_size(graph, symbol))?;
        Ok(())
    }

    /// Writes all bytes, applies all edges, and seals the memory.
    ///
    /// `found` has one element per external, in the order of [`externals`](Self::externals). `image` is the image of
    /// the thread-local block, if it was not complete; its missing fields are written.
    ///
    /// # Errors
    /// A [`LinkFault`], for instance for a relocation out of range or malformed unwind tables; a
    /// [`MemoryFault`](crate::error::MemoryFault). The memory is freed.
    #[cfg(any(test, feature = "unstable"))]
    pub fn finish(
        self,
        found: &[FoundExternal],
        image: Option<&mut [u8]>,
    ) -> Result<(LinkedObject, Box<dyn Finalized>)> {
        self.finish_in_passes(found, image, |_| Ok(()))
    }

    /// As `finish`, with a call of `pass` before the memory is sealed (ORC: post-fixup passes).
    ///
    /// # Errors
    /// As `finish`, with the errors of `pass`.
    #[cfg(any(test, feature = "unstable"))]
    pub fn finish_in_passes(
        self,
        found: &[FoundExternal],
        image: Option<&mut [u8]>,
        pass: impl FnOnce(&mut FixedLink<'_>) -> Result<()>,
    ) -> Result<(LinkedObject, Box<dyn Finalized>)> {
        self.seal(found, image, None, pass).map(|sealed| (sealed.linked, sealed.memory))
    }

    /// Writes all bytes, applies all edges, calls `pass` and seals the memory. `thunks` are those that the link needs.
    pub(crate) fn seal(
        mut self,
        found: &[FoundExternal],
        mut image: Option<&mut [u8]>,
        thunks: Option<ThreadLocalThunks>,
        pass: impl FnOnce(&mut FixedLink<'_>) -> Result<()>,
    ) -> Result<SealedLink> {
        self.link.insert_externals(found);
        let (plan, mut thunks) = thunks.map(|thunks| (thunks.plan, thunks.memory)).unzip();
        let resolved = self.link.resolved(found).with_thunks(plan.as_ref());
        // Copy all bytes and apply all edges.
        resolved.apply(&mut *self.memory, &self.link.contents, image.as_deref_mut(), thunks.as_deref_mut())?;
        if cfg!(debug_assertions) {
            verify::check(&resolved, &mut *self.memory, image.as_deref(), thunks.as_deref_mut())?;
        }
        // Plugins may read and change bytes, here only.
        pass(&mut FixedLink { resolved, memory: &mut *self.memory })?;
        // Unwind records and lists of initialisers, from the fixed-up bytes.
        let (frames, initializers) = self.link.collect(&mut *self.memory)?;
        // From here on the link cannot write the memory.
        let thunks = thunks.map(|thunks| thunks.finalize(Vec::new())).transpose()?;
        let memory = self.memory.finalize(frames)?;
        let name = self.link.graph.name.take().unwrap_or_default();
        let linked = LinkedObject { name, initializers };
        Ok(SealedLink { linked, memory, thunks, names: ExternalNames { link: self.link } })
    }
}

/// A link whose memory is sealed.
pub(crate) struct SealedLink {
    pub(crate) linked: LinkedObject,
    pub(crate) memory: Box<dyn Finalized>,
    /// The memory of thunks for thread-local variables, if there are any. It must be freed with the link.
    pub(crate) thunks: Option<Box<dyn Finalized>>,
    /// The names of the externals.
    pub(crate) names: ExternalNames,
}

impl Default for Link {
    fn default() -> Link {
        Link {
            graph: LinkGraph::empty(),
            symbol_uses: SymbolUses::default(),
            tables: Tables::default(),
            plan: SegmentPlan::default(),
            contents: Contents::default(),
            externals: RecycledVec::new(),
            thread_locals: None,
            addresses: BlockAddresses::default(),
            targets: Targets::default(),
        }
    }
}

impl Pooled for Link {
    fn slot() -> &'static LocalKey<Cell<Option<Box<Link>>>> {
        plain_thread_local! { static POOL: Cell<Option<Box<Link>>> = const { Cell::new(None) }; }
        &POOL
    }

    fn reset(&mut self) {
        // `layout::assign` overwrites `plan` and `contents`.
        let Link { graph, symbol_uses, tables, plan: _, contents: _, externals, thread_locals, addresses, targets } =
            self;
        graph.reset();
        symbol_uses.reset();
        tables.reset();
        externals.reset();
        targets.reset();
        (*thread_locals, *addresses) = (None, BlockAddresses::default());
    }
}

impl Link {
    fn externals(&self) -> impl Iterator<Item = ExternalSymbol<'_>> {
        let graph = &self.graph;
        self.externals.iter().map(move |UsedExternal { symbol, needs_static_tls, .. }| ExternalSymbol {
            name: graph.symbol_name(*symbol),
            required: graph.symbols[symbol.index()].binding != Binding::Weak,
            needs_static_tls: *needs_static_tls,
            is_lost_common: graph.is_lost_common(*symbol),
        })
    }

    /// The names of the externals as bytes.
    fn external_names(&self) -> impl Iterator<Item = &[u8]> {
        self.graph.names_of(self.externals.iter().map(|external| external.symbol))
    }

    /// Enters what was found for the externals.
    pub(super) fn insert_externals(&mut self, found: &[FoundExternal]) {
        let Link { targets, externals, .. } = self;
        targets.insert_externals(externals.iter().map(|external| external.symbol), found);
    }

    pub(super) fn resolved<'a>(&'a self, found: &'a [FoundExternal]) -> ResolvedLink<'a> {
        ResolvedLink::new(&self.graph, &self.tables, &self.addresses, &self.targets, found)
    }

    /// Reads the unwind records and the lists of initialisers from the fixed-up bytes.
    fn collect(&self, memory: &mut dyn InFlight) -> Result<(Vec<Frame>, Vec<Initializer>)> {
        // The plan has the number of records.
        let mut frames = RecycledVec::with_capacity(self.plan.frame_count as usize).into_vec();
        let mut initializers = Vec::new();
        // A zero-fill block lists nothing, and a read of it would populate its pages.
        let has_bytes = |block: &Block| !block.is_dropped && block.size > 0 && !block.is_zero_fill();
        for (id, block) in self.graph.special() {
            match block.role {
                Role::Plain | Role::ThreadLocal | Role::InitFragment => {}
                _ if !has_bytes(block) => {}
                Role::EhFrame => {
                    let address = self.graph.block_address(id, &self.addresses);
                    frames::find_frames(bytes_of(block, memory), address, &mut frames)
                        .map_err(|error| self.graph.fault(LinkFault::Malformed(format!(".eh_frame: {error}"))))?;
                }
                Role::FragmentFunction { kind } => initializers.push(Initializer {
                    kind,
                    stage: InitializerStage::Fragments,
                    priority: Initializer::DEFAULT_PRIORITY,
                    rank: 0,
                    position: initializers.len() as u32,
                    address: self.graph.block_address(id, &self.addresses),
                }),
                Role::Initializers { kind, stage, priority, rank, backward } => {
                    let words = bytes_of(block, memory).chunks_exact(8);
                    let mut functions: Vec<u64> =
                        words.map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default())).collect();
                    if backward {
                        functions.reverse();
                    }
                    // Old toolchains write 0 and -1 as markers.
                    for address in functions.into_iter().filter(|address| !matches!(*address, 0 | u64::MAX)) {
                        initializers.push(Initializer {
                            kind,
                            stage,
                            priority,
                            rank,
                            position: initializers.len() as u32,
                            address: ExecutorAddr::new(address),
                        });
                    }
                }
            }
        }
        Ok((frames, initializers))
    }
}

/// The names of a finished link's externals, in the order of [`PlacedLink::externals`].
pub(crate) struct ExternalNames {
    link: PooledBox<Link>,
}

impl ExternalNames {
    /// The number of externals.
    pub(crate) fn len(&self) -> usize {
        self.link.externals.len()
    }

    /// The name of the external at a position. Empty if there is none.
    pub(crate) fn at(&self, position: usize) -> &str {
        self.link.externals.get(position).map_or("", |external| self.link.graph.symbol_name(external.symbol))
    }
}

impl_recycle!(UsedExternal);

/// An external that some edge refers to.
#[derive(Clone, Copy)]
struct UsedExternal {
    symbol: SymbolIndex,
    needs_static_tls: bool,
    /// Whether only the object's own dylib may define it.
    is_hidden: bool,
}
