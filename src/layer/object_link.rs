//! The link of one object: read, plan, place, find the externals, fix up, record.
//!
//! | step | what happens | afterwards |
//! |---|---|---|
//! | read | the object's interface gives the symbols to claim | [`ObjectUnit`], or a responsibility |
//! | place | the graph is built, pruned and laid out; memory is allocated; all own addresses are known | [`PendingLink`] |
//! | find | one non-blocking lookup of all externals | all are there, or the link continues in an ordinary lookup |
//! | finish | plugins bind, relocations are applied, memory is sealed and recorded under the tracker's key | |
//! | emit | the symbols become ready as soon as their dependencies are | |
//!
//! There are two ways in. An [`ObjectUnit`] is materialised by a lookup. [`link_now`] links at once, for a caller that waits.
//! Both try the non-blocking lookup first, because it needs no query. If it finds all externals, no other thread needs to know
//! the addresses before the symbols are ready. Otherwise the addresses are published before the ordinary lookup, because the
//! externals may refer back to this object.

use smallvec::SmallVec;

use crate::base::{ArcShard, Name, RecycledVec, ShardedArc, impl_recycle};
use crate::error::{Error, Result};
use crate::layer::added_definitions::claim_added;
use crate::layer::claim_map::{ClaimMap, ObjectSymbol, SectionClaim, SymbolNumbers};
use crate::layer::external_lookup::{self, WantedExternal, WantedExternals};
use crate::layer::found_externals::found_externals;
use crate::layer::group_members::GroupMembers;
use crate::layer::hidden_names::HiddenDeclarations;
use crate::layer::hooks::Hooks;
use crate::layer::layer_inner::{LayerInner, ModuleExtras, ModuleMemory};
use crate::layer::link_report::LinkReport;
use crate::layer::plugin::LinkOrigin;
use crate::layer::section_bounds::AddedObject;
use crate::layer::section_claimant::{LinkingObject, PartDependency, SectionLink};
use crate::layer::section_use::UnlinkedInput;
use crate::layer::thread_locals::ThreadLocals;
use crate::link::{
    BuiltGraph, ExternalNames, ExternalSymbol, FoundExternal, InterfaceSymbol, LinkGraph, ObjectBuffer,
    ObjectInterface, Outline, PlacedLink, PlanStage, ReadLink, ScannedInterface, SealedLink, SymbolIndex,
};
use crate::memory::{Finalized, keep_with};
use crate::session::{
    ClaimedSymbol, FoundSymbol, JitDylib, LookupResult, MaterializationResponsibility, MaterializationUnit,
    MaterializationWait, NameSink, ReadyLookup, RequiredState, ResourceKey, ResourceTracker, SymbolFlags, SymbolRef,
};
use crate::sync::Arc;

/// An object that is added and not linked yet.
pub(super) struct ObjectUnit {
    pub(super) layer: Arc<ArcShard<LayerInner>>,
    pub(super) name: Arc<str>,
    pub(super) object: Object,
    pub(super) symbols: RecycledVec<(Name, SymbolFlags)>,
    /// See [`MaterializationUnit::group_members`].
    pub(super) group_members: Box<[(u32, u32)]>,
}

/// An object that is linked later.
pub(super) struct Object {
    input: Input,
    claims: ClaimMap,
}

/// What a link reads.
enum Input {
    Bytes {
        bytes: ObjectBuffer,
        /// The positions of the object's tables, from the read of its interface.
        outline: Option<Outline>,
    },
    /// The graph of a generator, or an object that was read.
    Read(ReadLink),
}

impl MaterializationUnit for ObjectUnit {
    fn name(&self) -> &str {
        &self.name
    }

    fn shared_name(&self) -> Arc<str> {
        self.name.clone()
    }

    fn symbols(&self) -> &[(Name, SymbolFlags)] {
        &self.symbols
    }

    fn size_bytes(&self, index: usize) -> u64 {
        self.object.size_bytes(index)
    }

    fn group_members(&self) -> &[(u32, u32)] {
        &self.group_members
    }

    fn give_names(&mut self, sink: &mut NameSink<'_>) {
        self.symbols.drain(..).for_each(|(name, _)| sink.push(name));
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        let ObjectUnit { layer, object, .. } = *self;
        object.materialize(layer, responsibility);
    }
}

impl Object {
    /// Reads the symbols that an object claims: all its definitions except those for which `is_excluded` returns true.
    pub(super) fn read(
        tracker: &ResourceTracker,
        layer: Arc<ArcShard<LayerInner>>,
        name: Arc<str>,
        bytes: ObjectBuffer,
        is_excluded: impl Fn(&str) -> bool,
    ) -> Result<ObjectUnit> {
        layer.machine.check(&name, &bytes)?;
        let (sequence, mut members) = (tracker.next_object_serial(), GroupMembers::default());
        let (mut symbols, mut numbers, mut is_complete) = (RecycledVec::new(), RecycledVec::new(), true);
        let ScannedInterface { has_initializers, named_sections, hidden_weak, outline } =
            ObjectInterface::visit(&name, &bytes, |symbol, following| {
                if is_excluded(symbol.name.as_str()) {
                    is_complete = false;
                    return;
                }
                if symbols.is_empty() {
                    symbols.reserve_exact(following + 1);
                    numbers.reserve_exact(following);
                }
                members.add(symbols.len(), &symbol);
                numbers.push(ObjectSymbol { size: symbol.size, index: symbol.index });
                let flags = flags_of(&symbol);
                symbols.push((symbol.name, flags));
            })?;
        let needs_symbol = has_initializers || symbols.is_empty();
        symbols.extend(initializer_symbol(&name, sequence, needs_symbol));
        let dylib = tracker.dylib_handle();
        let anchor = anchor_symbol(dylib, &name, sequence, !named_sections.is_empty());
        symbols.extend(anchor.clone());
        let mut sections = None;
        if let Some((anchor, _)) = anchor {
            let input = UnlinkedInput::Object(bytes.clone());
            let added = AddedObject { dylib, tracker: tracker.watch(), name: &name, input, anchor: &anchor };
            let registration = Some(layer.section_bounds.add(&added, named_sections)?);
            sections = Some(Box::new(SectionClaim { anchor, registration }));
        }
        let hidden = layer.declare_hidden(tracker, hidden_weak);
        let group_members = members.into_pairs(numbers.iter().map(|symbol| symbol.index));
        let (numbers, count) = (SymbolNumbers::Listed(numbers), symbols.len());
        let claims = ClaimMap { numbers, count, is_complete, sequence, sections, hidden };
        let object = Object { input: Input::Bytes { bytes, outline }, claims };
        Ok(ObjectUnit { layer, name, object, symbols, group_members })
    }

    /// As [`read`](Self::read), for the graph of a generator.
    pub(super) fn of_graph(
        tracker: &ResourceTracker,
        layer: Arc<ArcShard<LayerInner>>,
        graph: BuiltGraph,
        is_excluded: impl Fn(&str) -> bool,
    ) -> Result<ObjectUnit> {
        layer.machine.check_graph(&graph)?;
        let (sequence, name, mut members) = (tracker.next_object_serial(), graph.name.clone(), GroupMembers::default());
        let interface = graph.interface();
        let (mut symbols, mut numbers, mut is_complete) = (RecycledVec::new(), RecycledVec::new(), true);
        symbols.reserve_exact(interface.len() + 1);
        numbers.reserve_exact(interface.len());
        for symbol in interface {
            if is_excluded(symbol.name.as_str()) {
                is_complete = false;
                continue;
            }
            members.add(symbols.len(), &symbol);
            numbers.push(ObjectSymbol { size: symbol.size, index: symbol.index });
            let flags = flags_of(&symbol);
            symbols.push((symbol.name, flags));
        }
        let needs_symbol = graph.has_initializers() || symbols.is_empty();
        symbols.extend(initializer_symbol(&name, sequence, needs_symbol));
        let (dylib, sections) = (tracker.dylib_handle(), graph.read.named_sections());
        let anchor = anchor_symbol(dylib, &name, sequence, !sections.is_empty());
        symbols.extend(anchor.clone());
        let sections = match anchor {
            None => None,
            Some((anchor, _)) => {
                let input = UnlinkedInput::Graph(Arc::new(graph.read.added_parts()));
                let added = AddedObject { dylib, tracker: tracker.watch(), name: &name, input, anchor: &anchor };
                let registration = Some(layer.section_bounds.add(&added, sections)?);
                Some(Box::new(SectionClaim { anchor, registration }))
            }
        };
        let group_members = members.into_pairs(numbers.iter().map(|symbol| symbol.index));
        let (numbers, count) = (SymbolNumbers::Listed(numbers), symbols.len());
        let claims = ClaimMap { numbers, count, is_complete, sequence, sections, hidden: None };
        let object = Object { input: Input::Read(graph.read), claims };
        Ok(ObjectUnit { layer, name, object, symbols, group_members })
    }

    /// What was read, with its symbols claimed.
    pub(super) fn claimed(read: ReadLink, claims: ClaimMap) -> Object {
        Object { input: Input::Read(read), claims }
    }

    /// Size of the claimed symbol at a position, in bytes.
    fn size_bytes(&self, index: usize) -> u64 {
        match &self.claims.numbers {
            SymbolNumbers::Listed(numbers) => numbers.get(index).map_or(0, |symbol| symbol.size),
            SymbolNumbers::InSymbolTable => 0,
        }
    }

    /// Links the object for a lookup of one of its symbols. The outcome reaches the lookup through the symbols.
    pub(super) fn materialize(
        self,
        layer: Arc<ArcShard<LayerInner>>,
        mut responsibility: MaterializationResponsibility,
    ) {
        let report = LinkReport::begin(responsibility.observers());
        let Object { input, claims } = self;
        let read = match input {
            Input::Bytes { bytes, outline } => {
                ReadLink::read(responsibility.unit_name.clone(), bytes, outline.as_ref())
            }
            Input::Read(read) => Ok(read),
        };
        let placed = read.and_then(|read| claims.place(read, &layer, &mut responsibility, report));
        let mut pending = match placed {
            Ok(pending) => pending,
            Err(error) => return responsibility.fail(error),
        };
        match pending.find_ready(&responsibility) {
            Ok(Some(found)) => drop(pending.finish_and_emit(&layer, responsibility, &found)),
            Ok(None) => pending.look_up_externals(layer, responsibility),
            Err(error) => responsibility.fail(error),
        }
    }
}

/// Links an object at once, and waits for what it refers to. The object is read before its names are claimed.
pub(super) fn link_now(
    layer: &ShardedArc<LayerInner>,
    tracker: &ResourceTracker,
    name: &str,
    bytes: ObjectBuffer,
) -> Result<()> {
    let dylib = tracker.dylib_handle();
    let (report, name) = (LinkReport::begin(dylib.observers()), Arc::from(name));
    let (mut symbols, mut members) = (RecycledVec::new(), GroupMembers::default());
    let checked = layer.machine.check(&name, &bytes);
    let read = checked.and_then(|()| {
        ReadLink::read_all(Arc::clone(&name), bytes, |symbol, following| {
            if symbols.is_empty() {
                symbols.reserve_exact(following + 1);
            }
            let (flags, number) = (flags_of(&symbol), Some(symbol.index.index() as u32));
            let size = symbol.size;
            members.add(symbols.len(), &symbol);
            symbols.push(ClaimedSymbol { size, ..ClaimedSymbol::with_flags(symbol.name, flags, number) });
        })
    });
    let (read, has_initializers) =
        read.inspect_err(|error| dylib.observers().deliver_refused(dylib.inner(), &name, error))?;
    link_read(layer, tracker, name, read, Claims { symbols, members, has_initializers }, report)
}

/// As [`link_now`], for the graph of a generator.
pub(super) fn link_graph_now(
    layer: &ShardedArc<LayerInner>,
    tracker: &ResourceTracker,
    graph: BuiltGraph,
) -> Result<()> {
    layer.machine.check_graph(&graph)?;
    let report = LinkReport::begin(tracker.dylib_handle().observers());
    let interface = graph.interface();
    let (mut symbols, mut members) = (RecycledVec::new(), GroupMembers::default());
    symbols.reserve_exact(interface.len() + 1);
    for symbol in interface {
        members.add(symbols.len(), &symbol);
        let (flags, number, size) = (flags_of(&symbol), Some(symbol.index.index() as u32), symbol.size);
        symbols.push(ClaimedSymbol { size, ..ClaimedSymbol::with_flags(symbol.name, flags, number) });
    }
    let has_initializers = graph.has_initializers();
    link_read(layer, tracker, graph.name, graph.read, Claims { symbols, members, has_initializers }, report)
}

/// What an object claims.
struct Claims {
    symbols: RecycledVec<ClaimedSymbol>,
    members: GroupMembers,
    has_initializers: bool,
}

/// Links what was read, and waits for what it refers to.
#[inline(always)] // into both ways in
fn link_read(
    layer: &ShardedArc<LayerInner>,
    tracker: &ResourceTracker,
    name: Arc<str>,
    read: ReadLink,
    claims: Claims,
    report: Option<Box<LinkReport>>,
) -> Result<()> {
    let Claims { mut symbols, members, has_initializers } = claims;
    let sequence = tracker.next_object_serial();
    let initializers = initializer_symbol(&name, sequence, has_initializers || symbols.is_empty());
    let anchor = anchor_symbol(tracker.dylib_handle(), &name, sequence, read.has_section_parts());
    if let Some((name, flags)) = initializers {
        symbols.push(ClaimedSymbol::with_flags(name, flags, None));
    }
    if let Some((name, flags)) = anchor.clone() {
        symbols.push(ClaimedSymbol::with_flags(name, flags, None));
    }
    let sections = anchor.map(|(anchor, _)| Box::new(SectionClaim { anchor, registration: None }));
    let (numbers, count) = (SymbolNumbers::InSymbolTable, symbols.len());
    let hidden = layer.declare_hidden(tracker, read.graph().hidden_weak_externals());
    let claims = ClaimMap { numbers, count, is_complete: true, sequence, sections, hidden };
    let index_of = |claimed: &ClaimedSymbol| SymbolIndex(claimed.number.unwrap_or(u32::MAX));
    let members = members.into_pairs(symbols.iter().map(index_of));
    let mut responsibility = tracker.begin_materializing(name, symbols, &members)?;
    if responsibility.symbols().is_empty() {
        return Ok(());
    }
    let mut pending = match claims.place(read, layer, &mut responsibility, report) {
        Ok(pending) => pending,
        Err(error) => return Err(failed(responsibility, error)),
    };
    match pending.find_ready(&responsibility) {
        Ok(Some(found)) => match pending.finish_and_emit(layer, responsibility, &found)? {
            Some(awaited) => awaited.wait(),
            None => Ok(()),
        },
        Ok(None) => {
            let awaited = responsibility.prepare_wait(responsibility.symbols())?;
            let begin = || pending.look_up_externals(layer.shard(), responsibility);
            awaited.map_or(Ok(()), |awaited| awaited.wait_after(begin))
        }
        Err(error) => Err(failed(responsibility, error)),
    }
}

/// The symbol without address that stands for an object's initialisers, if it `is_needed`. An object without definitions
/// needs it too, so that a lookup can materialise it.
pub(super) fn initializer_symbol(object: &str, sequence: u64, is_needed: bool) -> Option<(Name, SymbolFlags)> {
    let name = || Name::from(format!("{object}#{sequence}.initializers"));
    is_needed.then(|| (name(), SymbolFlags::SIDE_EFFECTS_ONLY))
}

/// The hidden symbol that stands for the sections of an object whose bounds other objects may request, if it `is_needed`. Such
/// an object depends on it (`section_bounds.rs`). The dylib's number keeps the name apart from those of other dylibs.
pub(super) fn anchor_symbol(
    dylib: &JitDylib,
    object: &str,
    sequence: u64,
    is_needed: bool,
) -> Option<(Name, SymbolFlags)> {
    let name = || Name::from(format!("{object}#{}.{sequence}.sections", dylib.id()));
    is_needed.then(|| (name(), SymbolFlags::NONE))
}

impl ClaimMap {
    /// Plans the link, allocates memory, and computes the addresses of all claimed symbols.
    fn place(
        mut self,
        mut read: ReadLink,
        layer: &LayerInner,
        responsibility: &mut MaterializationResponsibility,
        report: Option<Box<LinkReport>>,
    ) -> Result<PendingLink> {
        if let Some(wrapped) = &layer.wrapped {
            read.wrap(wrapped);
        }
        let (claimed_set, sequence) = (self.claimed_set(responsibility.symbols()), self.sequence);
        let is_claimed = |_: &LinkGraph, symbol| claimed_set.as_ref().is_none_or(|set| set.contains(symbol));
        let mut hooks = Hooks::begin(layer.plugins.snapshot(), &LinkOrigin::new(sequence, responsibility));
        let mut section_link = None;
        let mut registration = self.sections.as_mut().and_then(|sections| sections.registration.take());
        let anchor = self.sections.as_ref().map(|sections| &sections.anchor);
        let planned = read.plan(claimed_set.is_some().then_some(&is_claimed), |stage, graph| match stage {
            PlanStage::Claimed => {
                graph.keeps_large_sections = layer.keeps_large_sections;
                layer.hidden_names.merge_into(graph, responsibility.dylib_handle());
                if graph.has_named_sections || !graph.requested_bounds.is_empty() {
                    let (memory, group) = (&*layer.memory, group_of(responsibility.dylib_handle()));
                    let object = LinkingObject { responsibility, anchor, memory, group };
                    section_link = layer.section_bounds.link(graph, &object, registration.take())?;
                }
                let promises = || self.promises(responsibility.symbols());
                hooks.prepare(&LinkOrigin::new(sequence, responsibility), graph, &promises)?;
                if graph.has_changes() { claim_added(graph, responsibility) } else { Ok(()) }
            }
            PlanStage::Pruned => hooks.pruned(graph, &|| self.promises(responsibility.symbols())),
        })?;
        let mut placed = planned.in_group(group_of(responsibility.dylib_handle())).allocate(&*layer.memory)?;
        let LayerInner { memory, executor, foreign_thread_locals, .. } = layer;
        let thread_locals = ThreadLocals::place(&mut placed, &**memory, &**executor, foreign_thread_locals)?;
        hooks.placed(&mut placed)?;
        match placed.graph().has_changes() {
            false => responsibility.locate(|symbol| match self.index_of(symbol) {
                Some(index) => placed.definition_address(index),
                None => self.anchor_address(symbol),
            })?,
            true => responsibility.locate(|symbol| self.address_in_changed(&placed, symbol))?,
        }
        let (is_unpublished, hidden) = (true, self.hidden);
        Ok(PendingLink { sequence, placed, is_unpublished, thread_locals, section_link, hidden, hooks, report })
    }
}

/// Fails the claimed symbols, and returns the error for the caller, too.
#[cold]
fn failed(responsibility: MaterializationResponsibility, error: Error) -> Error {
    let error = responsibility.with_cause_of(responsibility.symbols(), error);
    responsibility.fail(error.clone());
    error
}

/// A link that has its memory and waits for its externals.
struct PendingLink {
    /// Sequence number of the object in its dylib.
    sequence: u64,
    placed: PlacedLink,
    /// Whether the addresses of the claimed symbols are not in the dylib's table yet.
    is_unpublished: bool,
    thread_locals: Option<Box<ThreadLocals>>,
    section_link: Option<Box<SectionLink>>,
    hidden: Option<Box<HiddenDeclarations>>,
    hooks: Hooks,
    /// `None` without observers.
    report: Option<Box<LinkReport>>,
}

impl PendingLink {
    /// Returns the externals if all of them are resolved already. If not, or if there are observers, this publishes the
    /// addresses of the claimed symbols, because externals may refer back to this object.
    fn find_ready(&mut self, responsibility: &MaterializationResponsibility) -> Result<Option<ReadyLookup>> {
        let found = if self.placed.needs_sizes() {
            None // only the full lookup leads to the sizes
        } else {
            let mut names: SmallVec<[_; 16]> = self.placed.external_names().collect();
            if let Some(link) = &self.section_link {
                names.extend(link.dependencies.iter().map(|part| part.anchor.as_bytes()));
            }
            let found = responsibility.try_lookup(&names, RequiredState::Resolved);
            // Only the full lookup knows which other dylibs may define a hidden external.
            let is_own = |(symbol, is_hidden): (&FoundSymbol, bool)| !is_hidden || symbol.is_of_own_dylib();
            found.filter(|found| found.symbols.iter().zip(self.placed.hidden_externals()).all(is_own))
        };
        if self.is_unpublished && (found.is_none() || responsibility.observers().is_active()) {
            responsibility.resolve_located(responsibility.symbols())?;
            self.is_unpublished = false;
        }
        Ok(found)
    }

    fn look_up_externals(self, layer: Arc<ArcShard<LayerInner>>, responsibility: MaterializationResponsibility) {
        let wanted = |(external, is_hidden): (ExternalSymbol<'_>, bool)| WantedExternal {
            required: external.required,
            is_hidden,
        };
        let mut externals: Vec<_> = self.placed.externals().zip(self.placed.hidden_externals()).map(wanted).collect();
        let dependencies = self.section_link.iter().flat_map(|link| &link.dependencies);
        let anchors: Vec<Name> = dependencies.map(|part| part.anchor.clone()).collect();
        externals.extend(anchors.iter().map(|_| WantedExternal { required: true, is_hidden: false }));
        // The graph moves into the continuation.
        let externals = WantedExternals { names: self.placed.kept_external_names(), anchors, externals };
        external_lookup::look_up(responsibility, externals, move |responsibility, found| {
            let found = found.map_err(|error| match &self.section_link {
                Some(link) => link.explain(&responsibility.unit_name, error),
                None => error,
            });
            match found.and_then(|found| self.finish_found(&layer, &responsibility, found)) {
                // If this fails, the symbols have failed. The tracker owns the memory and frees it.
                Ok(dependencies) => drop(responsibility.notify_emitted(dependencies)),
                Err(error) => responsibility.fail(error),
            }
        });
    }

    /// Finishes and emits the link with externals that were ready. Returns what the caller has to wait for, if it waits.
    fn finish_and_emit(
        self,
        layer: &LayerInner,
        responsibility: MaterializationResponsibility,
        found: &ReadyLookup,
    ) -> Result<Option<MaterializationWait>> {
        let is_unpublished = self.is_unpublished;
        let found_symbols =
            found.symbols.iter().take(self.placed.external_count()).map(|symbol| (symbol.address, symbol.flags));
        let externals = found_externals(&self.placed, layer, found_symbols);
        match self.finish(layer, &responsibility, externals) {
            Ok(names) => {
                responsibility.notify_emitted_with_lookup(found, &|position| names.at(position), is_unpublished)
            }
            Err(error) => Err(failed(responsibility, error)),
        }
    }

    /// Finishes the link with the results of a lookup. Returns the dependencies for its emission.
    fn finish_found(
        mut self,
        layer: &LayerInner,
        responsibility: &MaterializationResponsibility,
        found: Vec<LookupResult>,
    ) -> Result<Vec<SymbolRef>> {
        for position in self.placed.sized_externals() {
            self.placed.set_external_size(position, found.get(position).and_then(known_size))?;
        }
        let found_symbols =
            found.iter().take(self.placed.external_count()).map(|result| (result.address, result.flags));
        let externals = found_externals(&self.placed, layer, found_symbols);
        self.finish(layer, responsibility, externals)?;
        Ok(found.into_iter().filter_map(|result| result.symbol).collect())
    }

    /// Applies the relocations, seals the memory, and records everything under the tracker's key.
    fn finish(
        self,
        layer: &LayerInner,
        responsibility: &MaterializationResponsibility,
        mut externals: RecycledVec<FoundExternal>,
    ) -> Result<LookedUpNames> {
        let PendingLink {
            sequence, mut placed, mut thread_locals, section_link, hidden, mut hooks, mut report, ..
        } = self;
        if let Some(report) = &mut report {
            report.count(&placed);
        }
        hooks.bind(&placed, &mut externals)?;
        let (block, memory, executor) = (thread_locals.as_deref_mut(), &*layer.memory, &*layer.executor);
        let thunks = ThreadLocals::prepare(&mut placed, block, &externals, memory, executor)?;
        let SealedLink { linked, memory, thunks, names } =
            placed.seal(&externals, None, thunks, |link| hooks.fixed_up(link))?;
        let dylib = responsibility.dylib_handle();
        if let Some(report) = &mut report {
            report.usage = memory.usage();
            thunks.iter().for_each(|thunks| report.usage += thunks.usage());
        }
        let (sections, dependencies) = match section_link {
            Some(link) => (Some(link.registration), link.dependencies),
            None => (None, Vec::new()),
        };
        let memory = match thread_locals.is_some() || sections.is_some() || hidden.is_some() {
            true => {
                keep_with(memory, ModuleExtras { _thread_locals: thread_locals, _sections: sections, _hidden: hidden })
            }
            false => memory,
        };
        // If the tracker is defunct, the closure is dropped without a call, which frees the memory.
        let key = responsibility.with_resource_key(|key| {
            hooks.record(key, &LinkOrigin::new(sequence, responsibility), &linked);
            // Recorded first, so freed last.
            if let Some(memory) = thunks {
                record_thunks(layer, dylib, key, memory, &linked.name);
            }
            let module = ModuleMemory { memory, name: linked.name };
            layer.ledger.record_with_hints(dylib, key, module, responsibility.prefetch_hints());
            key
        })?;
        if let Some(report) = report {
            report.deliver(responsibility, key);
        }
        Ok(LookedUpNames { externals: names, dependencies })
    }
}

/// Records the memory of the thunks of a link.
#[cold]
#[inline(never)]
fn record_thunks(layer: &LayerInner, dylib: &JitDylib, key: ResourceKey, memory: Box<dyn Finalized>, name: &Arc<str>) {
    layer.ledger.record(dylib, key, ModuleMemory { memory, name: name.clone() });
}

/// The names that a link has looked up: its externals, then the objects whose sections it refers to.
struct LookedUpNames {
    externals: ExternalNames,
    dependencies: Vec<PartDependency>,
}

impl LookedUpNames {
    fn at(&self, position: usize) -> Name {
        let dependency =
            position.checked_sub(self.externals.len()).and_then(|position| self.dependencies.get(position));
        dependency.map(|part| part.anchor.clone()).unwrap_or_else(|| Name::new(self.externals.at(position)))
    }
}

impl_recycle!(FoundExternal, (Name, SymbolFlags));

/// The size of what a lookup found. A weak external that nothing defines has none, so it is zero, as with native linkers.
fn known_size(found: &LookupResult) -> Option<u64> {
    match &found.symbol {
        Some(symbol) => Some(symbol.size()).filter(|size| *size > 0),
        None => (found.address.is_null() && found.flags == SymbolFlags::NONE).then_some(0),
    }
}

pub(super) fn flags_of(symbol: &InterfaceSymbol) -> SymbolFlags {
    SymbolFlags::WEAK.only_if(symbol.is_weak)
        | SymbolFlags::COMMON.only_if(symbol.is_common)
        | SymbolFlags::COMDAT.only_if(symbol.is_comdat)
        | SymbolFlags::SIDE_EFFECTS_ONLY.only_if(!symbol.has_address)
        | SymbolFlags::EXPORTED.only_if(symbol.is_exported)
        | SymbolFlags::CALLABLE.only_if(symbol.is_callable)
        | SymbolFlags::ABSOLUTE.only_if(symbol.is_absolute)
        | SymbolFlags::THREAD_LOCAL.only_if(symbol.is_thread_local)
}

/// The memory group of a dylib: its code is placed together. Plus one, because zero means no group.
fn group_of(dylib: &JitDylib) -> u64 {
    dylib.id() + 1
}
