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

use std::time::Instant;

use smallvec::SmallVec;

use crate::base::{ArcShard, ExecutorAddr, Name, RecycledVec, ShardedArc, TlsIndex, impl_recycle};
use crate::error::{Error, Result};
use crate::host::Executor;
use crate::layer::external_lookup::{self, WantedExternal, WantedExternals};
use crate::layer::hooks::Hooks;
use crate::layer::layer_inner::{LayerInner, ModuleExtras, ModuleMemory};
use crate::layer::plugin::LinkOrigin;
use crate::layer::section_bounds::{Registration, SectionBounds};
use crate::layer::thread_locals::ThreadLocals;
use crate::link::{
    ExternalNames, ExternalSymbol, FoundExternal, InterfaceSymbol, LinkGraph, ObjectBuffer, ObjectInterface, Outline,
    PlacedLink, PlanStage, ReadLink, ScannedInterface, SymbolIndex,
};
use crate::memory::MemoryUsage;
use crate::session::{
    ClaimedSymbol, Event, FoundSymbol, JitDylib, LookupResult, MaterializationResponsibility, MaterializationUnit,
    MaterializationWait, NameSink, Observers, ReadyLookup, RequiredState, ResourceKey, ResourceTracker, SymbolFlags,
    SymbolRef,
};
use crate::sync::Arc;

/// An object that is added and not linked yet.
pub(super) struct ObjectUnit {
    pub(super) layer: Arc<ArcShard<LayerInner>>,
    pub(super) name: Arc<str>,
    pub(super) object: Object,
    pub(super) symbols: RecycledVec<(Name, SymbolFlags)>,
}

/// The bytes of an object that is linked later.
pub(super) struct Object {
    bytes: ObjectBuffer,
    /// The positions of the object's tables, from the read of its interface.
    outline: Option<Outline>,
    claims: ClaimMap,
}

/// Maps the symbols that an object claims to its own symbol table. Used after the names have moved to the dylib's table.
struct ClaimMap {
    numbers: SymbolNumbers,
    /// Number of symbols that the object claims.
    count: usize,
    /// Whether the object claims all its definitions.
    is_complete: bool,
    /// Sequence number of the object in its dylib.
    sequence: u64,
    /// The registration of sections whose bounds may be requested.
    section_bounds: Option<Box<Registration>>,
}

/// How the number of a claimed symbol leads to the object's symbol table.
enum SymbolNumbers {
    /// The number is the index in the object's symbol table.
    InSymbolTable,
    /// The number is a position in this list. The list has no entry for the symbol that stands for initialisers.
    Listed(RecycledVec<ObjectSymbol>),
}

/// A symbol in the object's symbol table.
#[derive(Clone, Copy)]
struct ObjectSymbol {
    /// Size in bytes.
    size: u64,
    index: SymbolIndex,
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
        name: &Arc<str>,
        section_bounds: &Arc<SectionBounds>,
        bytes: ObjectBuffer,
        is_excluded: impl Fn(&str) -> bool,
    ) -> Result<(Object, RecycledVec<(Name, SymbolFlags)>)> {
        let sequence = tracker.next_object_serial();
        let (mut symbols, mut numbers, mut is_complete) = (RecycledVec::new(), RecycledVec::new(), true);
        let ScannedInterface { has_initializers, named_sections, outline } =
            ObjectInterface::visit(name, &bytes, |symbol, following| {
                if is_excluded(symbol.name.as_str()) {
                    is_complete = false;
                    return;
                }
                if symbols.is_empty() {
                    symbols.reserve_exact(following + 1);
                    numbers.reserve_exact(following);
                }
                numbers.push(ObjectSymbol { size: symbol.size, index: symbol.index });
                let flags = flags_of(&symbol);
                symbols.push((symbol.name, flags));
            })?;
        let needs_symbol = has_initializers || symbols.is_empty();
        symbols.extend(initializer_symbol(name, sequence, needs_symbol));
        let section_bounds = match named_sections.is_empty() {
            true => None,
            false => section_bounds.add(tracker.dylib_handle(), tracker.watch(), name, named_sections)?,
        };
        let (numbers, count) = (SymbolNumbers::Listed(numbers), symbols.len());
        let claims = ClaimMap { numbers, count, is_complete, sequence, section_bounds };
        Ok((Object { bytes, outline, claims }, symbols))
    }

    /// Size of the claimed symbol at a position, in bytes.
    fn size_bytes(&self, index: usize) -> u64 {
        match &self.claims.numbers {
            SymbolNumbers::Listed(numbers) => numbers.get(index).map_or(0, |symbol| symbol.size),
            SymbolNumbers::InSymbolTable => 0,
        }
    }

    /// Links the object for a lookup of one of its symbols. The outcome reaches the lookup through the symbols.
    fn materialize(self, layer: Arc<ArcShard<LayerInner>>, mut responsibility: MaterializationResponsibility) {
        let report = LinkReport::begin(responsibility.observers());
        let Object { bytes, outline, claims } = self;
        let read = ReadLink::read(responsibility.unit_name.clone(), bytes, outline.as_ref());
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
    let mut symbols = RecycledVec::new();
    let read = ReadLink::read_all(Arc::clone(&name), bytes, |symbol, following| {
        if symbols.is_empty() {
            symbols.reserve_exact(following + 1);
        }
        let (flags, number) = (flags_of(&symbol), Some(symbol.index.index() as u32));
        let size = symbol.size;
        symbols.push(ClaimedSymbol { size, ..ClaimedSymbol::with_flags(symbol.name, flags, number) });
    });
    let (read, has_initializers) =
        read.inspect_err(|error| dylib.observers().deliver_refused(dylib.inner(), &name, error))?;
    let sequence = tracker.next_object_serial();
    let initializers = initializer_symbol(&name, sequence, has_initializers || symbols.is_empty());
    symbols.extend(initializers.map(|(name, flags)| ClaimedSymbol::with_flags(name, flags, None)));
    let (numbers, count) = (SymbolNumbers::InSymbolTable, symbols.len());
    let claims = ClaimMap { numbers, count, is_complete: true, sequence, section_bounds: None };
    let mut responsibility = tracker.begin_materializing(name, symbols)?;
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
fn initializer_symbol(object: &str, sequence: u64, is_needed: bool) -> Option<(Name, SymbolFlags)> {
    let name = || Name::from(format!("{object}#{sequence}.initializers"));
    is_needed.then(|| (name(), SymbolFlags::SIDE_EFFECTS_ONLY))
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
        let mut section_bounds = self.section_bounds.take();
        let planned = read.plan(claimed_set.is_some().then_some(&is_claimed), |stage, graph| match stage {
            PlanStage::Claimed => {
                section_bounds = layer.section_bounds.link(graph, responsibility, section_bounds.take())?;
                hooks.prepare(&LinkOrigin::new(sequence, responsibility), graph)?;
                claim_added(graph, responsibility)
            }
            PlanStage::Pruned => hooks.pruned(graph),
        })?;
        let mut placed = planned.in_group(group_of(responsibility.dylib_handle())).allocate(&*layer.memory)?;
        let thread_locals = ThreadLocals::place(&mut placed, &*layer.executor)?;
        hooks.placed(&placed)?;
        responsibility.locate(|symbol| {
            // A definition that a plugin added has no number. It is found by its name.
            let added =
                || placed.definitions().find(|(name, _)| *name == symbol.name.as_str()).map(|(_, address)| address);
            self.index_of(symbol).map_or_else(added, |index| placed.definition_address(index))
        })?;
        Ok(PendingLink { sequence, placed, is_unpublished: true, thread_locals, section_bounds, hooks, report })
    }

    /// The claimed symbols, by their indices in the object's symbol table. `None` if all definitions are claimed.
    fn claimed_set(&self, symbols: &[ClaimedSymbol]) -> Option<SymbolSet> {
        if self.is_complete && symbols.len() == self.count {
            return None;
        }
        let indices = || symbols.iter().filter_map(|claimed| self.index_of(claimed));
        let mut set = SymbolSet::up_to(indices().max());
        set.insert_all(indices());
        Some(set)
    }

    /// The index of a claimed symbol in the object's symbol table. `None` for a symbol that the object does not define.
    fn index_of(&self, claimed: &ClaimedSymbol) -> Option<SymbolIndex> {
        let number = claimed.number?;
        match &self.numbers {
            SymbolNumbers::InSymbolTable => Some(SymbolIndex(number)),
            SymbolNumbers::Listed(list) => list.get(number as usize).map(|symbol| symbol.index),
        }
    }
}

/// A set of symbols of an object: one bit for each.
struct SymbolSet(SmallVec<[u64; 8]>);

impl SymbolSet {
    /// An empty set with space for symbols up to `last`.
    fn up_to(last: Option<SymbolIndex>) -> SymbolSet {
        // The inline words are enough for most objects.
        let (mut words, count) = (SmallVec::from([0; 8]), last.map_or(0, |last| last.index() / 64 + 1));
        if count > words.len() {
            words.resize(count, 0);
        }
        SymbolSet(words)
    }

    fn insert_all(&mut self, symbols: impl Iterator<Item = SymbolIndex>) {
        let words = &mut self.0[..];
        symbols.for_each(|symbol| words[symbol.index() / 64] |= 1 << (symbol.index() % 64));
    }

    fn contains(&self, symbol: SymbolIndex) -> bool {
        self.0.get(symbol.index() / 64).is_some_and(|word| word >> (symbol.index() % 64) & 1 == 1)
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
    section_bounds: Option<Box<Registration>>,
    hooks: Hooks,
    /// `None` without observers.
    report: Option<Box<LinkReport>>,
}

/// Claims the weak definitions that plugins added. A name that is already defined elsewhere becomes an external.
fn claim_added(graph: &mut LinkGraph, responsibility: &mut MaterializationResponsibility) -> Result<()> {
    let added = graph.added_weak();
    if added.is_empty() {
        return Ok(());
    }
    let weak = SymbolFlags::EXPORTED | SymbolFlags::WEAK;
    let flags = |is_code| if is_code { weak | SymbolFlags::CALLABLE } else { weak };
    let claims: Vec<_> =
        added.iter().map(|(symbol, is_code)| (Name::new(graph.symbol_name(*symbol)), flags(*is_code))).collect();
    let claimed = responsibility.define_materializing(&claims)?;
    for ((symbol, _), _) in added.into_iter().zip(claimed).filter(|(_, is_claimed)| !is_claimed) {
        graph.make_external(symbol);
    }
    Ok(())
}

impl PendingLink {
    /// Returns the externals if all of them are resolved already. If not, or if there are observers, this publishes the
    /// addresses of the claimed symbols, because externals may refer back to this object.
    fn find_ready(&mut self, responsibility: &MaterializationResponsibility) -> Result<Option<ReadyLookup>> {
        let found = {
            let names: SmallVec<[_; 16]> = self.placed.external_names().collect();
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
        let externals = self.placed.externals().zip(self.placed.hidden_externals()).map(wanted).collect();
        // The graph moves into the continuation.
        let externals = WantedExternals { names: self.placed.kept_external_names(), externals };
        external_lookup::look_up(responsibility, externals, move |responsibility, found| {
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
        let found_symbols = found.symbols.iter().map(|symbol| (symbol.address, symbol.flags));
        let externals = found_externals(&self.placed, &*layer.executor, found_symbols);
        match self.finish(layer, &responsibility, externals) {
            Ok(names) => responsibility.notify_emitted_with_lookup(
                found,
                &|position| Name::new(names.at(position)),
                is_unpublished,
            ),
            Err(error) => Err(failed(responsibility, error)),
        }
    }

    /// Finishes the link with the results of a lookup. Returns the dependencies for its emission.
    fn finish_found(
        self,
        layer: &LayerInner,
        responsibility: &MaterializationResponsibility,
        found: Vec<LookupResult>,
    ) -> Result<Vec<SymbolRef>> {
        let found_symbols = found.iter().map(|result| (result.address, result.flags));
        let externals = found_externals(&self.placed, &*layer.executor, found_symbols);
        self.finish(layer, responsibility, externals)?;
        Ok(found.into_iter().filter_map(|result| result.symbol).collect())
    }

    /// Applies the relocations, seals the memory, and records everything under the tracker's key.
    fn finish(
        self,
        layer: &LayerInner,
        responsibility: &MaterializationResponsibility,
        mut externals: RecycledVec<FoundExternal>,
    ) -> Result<ExternalNames> {
        let PendingLink { sequence, placed, mut thread_locals, section_bounds, mut hooks, mut report, .. } = self;
        if let Some(report) = &mut report {
            report.count(&placed);
        }
        hooks.bind(&placed, &mut externals)?;
        let image = thread_locals.as_mut().and_then(|thread_locals| thread_locals.incomplete_image());
        let (linked, memory, names) = placed.seal(&externals, image, |link| hooks.fixed_up(link))?;
        thread_locals.iter_mut().for_each(|thread_locals| thread_locals.complete());
        let dylib = responsibility.dylib_handle();
        if let Some(report) = &mut report {
            report.usage = memory.usage();
        }
        let extras = (thread_locals.is_some() || section_bounds.is_some())
            .then(|| Box::new(ModuleExtras { _thread_locals: thread_locals, _section_bounds: section_bounds }));
        // If the tracker is defunct, the closure is dropped without a call, which frees the memory.
        let key = responsibility.with_resource_key(|key| {
            hooks.record(key, &LinkOrigin::new(sequence, responsibility), &linked);
            let module = ModuleMemory { memory, _extras: extras, name: linked.name };
            layer.ledger.record_with_hints(dylib, key, module, responsibility.prefetch_hints());
            key
        })?;
        if let Some(report) = report {
            report.deliver(responsibility, key);
        }
        Ok(names)
    }
}

/// Collects what observers get to know about a link. Exists only if there are observers.
struct LinkReport {
    started: Instant,
    relocations: usize,
    definitions: usize,
    externals: usize,
    usage: MemoryUsage,
}

impl LinkReport {
    /// Starts the clock. `None` without observers.
    fn begin(observers: &Observers) -> Option<Box<LinkReport>> {
        observers.is_active().then(LinkReport::new)
    }

    #[cold]
    fn new() -> Box<LinkReport> {
        let (started, usage) = (Instant::now(), MemoryUsage::default());
        Box::new(LinkReport { started, relocations: 0, definitions: 0, externals: 0, usage })
    }

    #[cold]
    fn count(&mut self, placed: &PlacedLink) {
        let graph = placed.graph();
        let own = graph.blocks().filter(|(_, block)| !block.is_dropped() && !block.is_synthetic());
        self.relocations = own.map(|(id, _)| graph.edges(id).len()).sum();
        self.definitions = placed.definitions().count();
        self.externals = placed.external_names().count();
    }

    #[cold]
    fn deliver(&self, responsibility: &MaterializationResponsibility, key: ResourceKey) {
        let LinkReport { started, relocations, definitions, externals, usage } = self;
        responsibility.observers().deliver(&Event::Linked {
            dylib: responsibility.dylib_handle(),
            key,
            object: responsibility.unit_name(),
            bytes: [usage.code, usage.read_only, usage.data],
            reserved: usage.reserved,
            relocations: *relocations,
            definitions: *definitions,
            externals: *externals,
            elapsed: started.elapsed(),
        });
    }
}

impl_recycle!(FoundExternal, ObjectSymbol, (Name, SymbolFlags));

/// Converts lookup results, in the order of the externals.
fn found_externals(
    placed: &PlacedLink,
    executor: &dyn Executor,
    found: impl Iterator<Item = (ExecutorAddr, SymbolFlags)> + Clone,
) -> RecycledVec<FoundExternal> {
    if found.clone().any(|(_, flags)| flags.contains(SymbolFlags::THREAD_LOCAL)) {
        return placed.externals().zip(found).map(|found| found_external(executor, found)).collect();
    }
    let plain = |(address, flags): (_, SymbolFlags)| FoundExternal {
        address,
        is_callable: flags.contains(SymbolFlags::CALLABLE),
        thread_local: None,
    };
    found.map(plain).collect()
}

fn found_external(
    executor: &dyn Executor,
    (external, (address, flags)): (ExternalSymbol<'_>, (ExecutorAddr, SymbolFlags)),
) -> FoundExternal {
    let is_thread_local = flags.contains(SymbolFlags::THREAD_LOCAL);
    let static_offset = || {
        let variable = TlsIndex::from_address(address);
        if external.needs_static_tls { executor.static_offset(variable, external.name) } else { None }
    };
    FoundExternal {
        address,
        is_callable: flags.contains(SymbolFlags::CALLABLE),
        thread_local: is_thread_local.then(static_offset),
    }
}

fn flags_of(symbol: &InterfaceSymbol) -> SymbolFlags {
    let set = [
        (symbol.is_weak, SymbolFlags::WEAK),
        (symbol.is_common, SymbolFlags::COMMON),
        (symbol.is_comdat, SymbolFlags::COMDAT),
        (!symbol.has_address, SymbolFlags::SIDE_EFFECTS_ONLY),
        (symbol.is_exported, SymbolFlags::EXPORTED),
        (symbol.is_callable, SymbolFlags::CALLABLE),
        (symbol.is_absolute, SymbolFlags::ABSOLUTE),
        (symbol.is_thread_local, SymbolFlags::THREAD_LOCAL),
    ];
    set.into_iter().filter(|(is_set, _)| *is_set).fold(SymbolFlags::NONE, |flags, (_, flag)| flags | flag)
}

/// The memory group of a dylib: its code is placed together. Plus one, because zero means no group.
fn group_of(dylib: &JitDylib) -> u64 {
    dylib.id() + 1
}
