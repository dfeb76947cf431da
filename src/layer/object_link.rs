//! One object's link: read, planned, placed, its externals found, fixed up, recorded.
//!
//! An object is linked lazily, as the unit of a lookup, or at once, for a caller who waits. Either way it first asks for what
//! is there already, and only if something is not, or is still on its way, goes round by a lookup.

use std::time::Instant;

use smallvec::SmallVec;

use crate::base::{ArcShard, ExecutorAddr, Name, RecycledVec, ShardedArc, TlsIndex, impl_recycle};
use crate::error::{Error, Result};
use crate::host;
use crate::layer::hooks::Hooks;
use crate::layer::object_layer::{Extras, LayerInner, Module};
use crate::layer::plugin::LinkOrigin;
use crate::layer::section_bounds::{Registration, SectionBounds};
use crate::layer::thread_locals::ThreadLocals;
use crate::link::{
    ExternalNames, ExternalSymbol, FoundExternal, InterfaceSymbol, LinkGraph, ObjectBuffer, ObjectInterface, Outline,
    PlacedLink, PlanStage, ReadLink, Seen, SymbolIndex,
};
use crate::memory::MemoryUsage;
use crate::session::{
    ClaimedSymbol, Event, JitDylib, LookupResult, MaterializationResponsibility, MaterializationUnit,
    MaterializationWait, NameSink, Observers, ReadyLookup, RequiredState, ResourceKey, ResourceTracker, SymbolFlags,
    SymbolRef, SymbolRequest,
};
use crate::sync::Arc;

/// An object that nobody has looked into yet.
pub(super) struct ObjectUnit {
    pub(super) layer: Arc<ArcShard<LayerInner>>,
    pub(super) name: Arc<str>,
    pub(super) object: Object,
    pub(super) symbols: RecycledVec<(Name, SymbolFlags)>,
}

/// An object to be linked later.
pub(super) struct Object {
    bytes: ObjectBuffer,
    /// What is known of the bytes already.
    outline: Option<Outline>,
    promise: ClaimMap,
}

/// What is known of an object's promises when its symbols have gone into their table.
struct ClaimMap {
    origins: SymbolSource,
    /// How many symbols are promised.
    count: usize,
    /// Whether none of its definitions was left out.
    is_whole: bool,
    /// Of the object.
    sequence: u64,
    /// What the object has to do with sections that may be asked for their bounds.
    section_bounds: Option<Box<Registration>>,
}

/// Where what is promised stands in the object.
enum SymbolSource {
    /// A promise's number is that in the object's symbol table.
    Numbered,
    /// By position in what is promised; shorter, as the symbol for initialisers has none.
    Listed(RecycledVec<SourceSymbol>),
}

/// What the object itself says of a symbol.
#[derive(Clone, Copy)]
struct SourceSymbol {
    /// Bytes.
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
        self.symbols.drain(..).for_each(|(name, _)| sink.take(name));
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        let ObjectUnit { layer, object, .. } = *self;
        object.materialize(layer, responsibility);
    }
}

impl Object {
    /// Reads what an object promises, but for what is `left_out`.
    pub(super) fn read(
        tracker: &ResourceTracker,
        name: &Arc<str>,
        section_bounds: &Arc<SectionBounds>,
        bytes: ObjectBuffer,
        left_out: impl Fn(&str) -> bool,
    ) -> Result<(Object, RecycledVec<(Name, SymbolFlags)>)> {
        let sequence = tracker.number_object();
        let (mut symbols, mut origins, mut is_whole) = (RecycledVec::new(), RecycledVec::new(), true);
        let Seen { has_initializers, named_sections, outline } =
            ObjectInterface::visit(name, &bytes, |symbol, left| {
                if left_out(symbol.name.as_str()) {
                    is_whole = false;
                    return;
                }
                if symbols.is_empty() {
                    symbols.reserve_exact(left + 1);
                    origins.reserve_exact(left);
                }
                origins.push(SourceSymbol { size: symbol.size, index: symbol.index });
                let flags = flags_of(&symbol);
                symbols.push((symbol.name, flags));
            })?;
        let is_asked_for = has_initializers || symbols.is_empty();
        symbols.extend(initializers(name, sequence, is_asked_for));
        let section_bounds = match named_sections.is_empty() {
            true => None,
            false => section_bounds.add(tracker.dylib_handle(), tracker.watch(), name, named_sections)?,
        };
        let (origins, count) = (SymbolSource::Listed(origins), symbols.len());
        let promise = ClaimMap { origins, count, is_whole, sequence, section_bounds };
        Ok((Object { bytes, outline, promise }, symbols))
    }

    /// Bytes of the symbol at a position of what it promises.
    fn size_bytes(&self, index: usize) -> u64 {
        match &self.promise.origins {
            SymbolSource::Listed(origins) => origins.get(index).map_or(0, |origin| origin.size),
            SymbolSource::Numbered => 0,
        }
    }

    /// Links it for who has looked for one of its symbols, and hears from that how it ends.
    fn materialize(self, layer: Arc<ArcShard<LayerInner>>, mut responsibility: MaterializationResponsibility) {
        let report = Report::begin(responsibility.observers());
        let Object { bytes, outline, promise } = self;
        let read = ReadLink::read(responsibility.unit_name.clone(), bytes, outline.as_ref());
        let placed = read.and_then(|read| promise.place(read, &layer, &mut responsibility, report));
        let mut pending = match placed {
            Ok(pending) => pending,
            Err(error) => return responsibility.fail(error),
        };
        match pending.find_now(&responsibility) {
            Ok(Some(found)) => drop(pending.emit_now(&layer, responsibility, &found)),
            Ok(None) => pending.look_up_externals(layer, responsibility),
            Err(error) => responsibility.fail(error),
        }
    }
}

/// Links an object that nobody has looked into yet, and waits for what it needs. It is read before its names are anybody's.
pub(super) fn link_at_once(
    layer: &ShardedArc<LayerInner>,
    tracker: &ResourceTracker,
    name: &str,
    bytes: ObjectBuffer,
) -> Result<()> {
    let dylib = tracker.dylib_handle();
    let (report, name) = (Report::begin(dylib.observers()), Arc::from(name));
    let mut symbols = RecycledVec::new();
    let read = ReadLink::read_all(Arc::clone(&name), bytes, |symbol, left| {
        if symbols.is_empty() {
            symbols.reserve_exact(left + 1);
        }
        let (flags, number) = (flags_of(&symbol), Some(symbol.index.index() as u32));
        let size = symbol.size;
        symbols.push(ClaimedSymbol { size, ..ClaimedSymbol::promised(symbol.name, flags, number) });
    });
    let (read, has_initializers) =
        read.inspect_err(|error| dylib.observers().tell_refused(dylib.inner(), &name, error))?;
    let sequence = tracker.number_object();
    let initializers = initializers(&name, sequence, has_initializers || symbols.is_empty());
    symbols.extend(initializers.map(|(name, flags)| ClaimedSymbol::promised(name, flags, None)));
    let (origins, count) = (SymbolSource::Numbered, symbols.len());
    let promise = ClaimMap { origins, count, is_whole: true, sequence, section_bounds: None };
    let mut responsibility = tracker.begin(name, symbols)?;
    if responsibility.symbols().is_empty() {
        return Ok(());
    }
    let mut pending = match promise.place(read, layer, &mut responsibility, report) {
        Ok(pending) => pending,
        Err(error) => return Err(failed(responsibility, error)),
    };
    match pending.find_now(&responsibility) {
        Ok(Some(found)) => match pending.emit_now(layer, responsibility, &found)? {
            Some(awaited) => awaited.wait(),
            None => Ok(()),
        },
        Ok(None) => {
            let awaited = responsibility.await_end(responsibility.symbols())?;
            let begin = || pending.look_up_externals(layer.share(), responsibility);
            awaited.map_or(Ok(()), |awaited| awaited.wait_after(begin))
        }
        Err(error) => Err(failed(responsibility, error)),
    }
}

/// The symbol without address that stands for an object's initialisers, if it `is_there`. An object that defines nothing has
/// it too, so that it can be asked for.
fn initializers(object: &str, sequence: u64, is_there: bool) -> Option<(Name, SymbolFlags)> {
    let named = || Name::from(format!("{object}#{sequence}.initializers"));
    is_there.then(|| (named(), SymbolFlags::SIDE_EFFECTS_ONLY))
}

impl ClaimMap {
    /// Plans, takes memory, and works out the addresses.
    fn place(
        mut self,
        read: ReadLink,
        layer: &LayerInner,
        responsibility: &mut MaterializationResponsibility,
        report: Option<Box<Report>>,
    ) -> Result<Pending> {
        let (owned, sequence) = (self.owned(responsibility.symbols()), self.sequence);
        let is_owned = |_: &LinkGraph, symbol| owned.as_ref().is_none_or(|owned| owned.has(symbol));
        let mut hooks = Hooks::begin(layer.plugins.now(), &LinkOrigin::new(sequence, responsibility));
        let mut section_bounds = self.section_bounds.take();
        let planned = read.plan(owned.is_some().then_some(&is_owned), |stage, graph| match stage {
            PlanStage::Claimed => {
                section_bounds = layer.section_bounds.link(graph, responsibility, section_bounds.take())?;
                hooks.prepare(&LinkOrigin::new(sequence, responsibility), graph)?;
                claim_added(graph, responsibility)
            }
            PlanStage::Pruned => hooks.pruned(graph),
        })?;
        let mut placed = planned.in_group(group_of(responsibility.dylib_handle())).allocate(&*layer.memory)?;
        let thread_locals = ThreadLocals::place(&mut placed)?;
        hooks.placed(&placed)?;
        responsibility.locate(|symbol| {
            // What plugins have added is behind what the object has, and is known by its name.
            let added =
                || placed.definitions().find(|(name, _)| *name == symbol.name.as_str()).map(|(_, address)| address);
            self.index_of(symbol).map_or_else(added, |index| placed.definition_address(index))
        })?;
        Ok(Pending { sequence, placed, is_untold: true, thread_locals, section_bounds, hooks, report })
    }

    /// Which of the object's symbols are owed, by their numbers there; `None` if all of them are.
    fn owned(&self, symbols: &[ClaimedSymbol]) -> Option<SymbolSet> {
        if self.is_whole && symbols.len() == self.count {
            return None;
        }
        let owed = || symbols.iter().filter_map(|owed| self.index_of(owed));
        let mut owned = SymbolSet::up_to(owed().max());
        owned.add(owed());
        Some(owned)
    }

    /// The number of an owed symbol in the object's symbol table, if it has an address there.
    fn index_of(&self, owed: &ClaimedSymbol) -> Option<SymbolIndex> {
        let number = owed.number?;
        match &self.origins {
            SymbolSource::Numbered => Some(SymbolIndex(number)),
            SymbolSource::Listed(list) => list.get(number as usize).map(|origin| origin.index),
        }
    }
}

/// Some of an object's symbols: a bit for each.
struct SymbolSet(SmallVec<[u64; 8]>);

impl SymbolSet {
    /// None, of those up to `last`.
    fn up_to(last: Option<SymbolIndex>) -> SymbolSet {
        // Mostly they fit in.
        let (mut words, count) = (SmallVec::from([0; 8]), last.map_or(0, |last| last.index() / 64 + 1));
        if count > words.len() {
            words.resize(count, 0);
        }
        SymbolSet(words)
    }

    fn add(&mut self, symbols: impl Iterator<Item = SymbolIndex>) {
        let words = &mut self.0[..];
        symbols.for_each(|symbol| words[symbol.index() / 64] |= 1 << (symbol.index() % 64));
    }

    fn has(&self, symbol: SymbolIndex) -> bool {
        self.0.get(symbol.index() / 64).is_some_and(|word| word >> (symbol.index() % 64) & 1 == 1)
    }
}

/// Fails what is owed, for a caller who is told himself, too.
#[cold]
fn failed(responsibility: MaterializationResponsibility, error: Error) -> Error {
    responsibility.fail(error.clone());
    error
}

/// A link whose externals are being looked up.
struct Pending {
    /// Of the object.
    sequence: u64,
    placed: PlacedLink,
    /// Whether nobody knows yet where the symbols are.
    is_untold: bool,
    thread_locals: Option<Box<ThreadLocals>>,
    section_bounds: Option<Box<Registration>>,
    hooks: Hooks,
    /// If anybody listens.
    report: Option<Box<Report>>,
}

/// Claims what plugins have added for others to see. What somebody else defined first becomes an external.
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
        graph.disown(symbol);
    }
    Ok(())
}

impl Pending {
    /// What it refers to, if that is all there. Nobody need know the addresses before the code can run then; otherwise they are
    /// told, as what it refers to may refer to it.
    fn find_now(&mut self, responsibility: &MaterializationResponsibility) -> Result<Option<ReadyLookup>> {
        let found = {
            let names: SmallVec<[_; 16]> = self.placed.external_names().collect();
            responsibility.lookup_now(&names, RequiredState::Resolved)
        };
        if self.is_untold && (found.is_none() || responsibility.observers().is_heard()) {
            responsibility.resolve_located(responsibility.symbols())?;
            self.is_untold = false;
        }
        Ok(found)
    }

    fn look_up_externals(self, layer: Arc<ArcShard<LayerInner>>, responsibility: MaterializationResponsibility) {
        // The names are in the graph, which goes along into the continuation: the lookup is done with them when it returns.
        let names: Vec<(String, bool)> =
            self.placed.externals().map(|external| (external.name.to_string(), external.required)).collect();
        let requests: Vec<_> =
            names.iter().map(|(name, required)| SymbolRequest { name, required: *required }).collect();
        responsibility.lookup(&requests, RequiredState::Resolved, move |responsibility, found| {
            match found.and_then(|found| self.finish_found(&layer, &responsibility, found)) {
                // A failure has failed the symbols; the memory is the tracker's, and goes with it.
                Ok(dependencies) => drop(responsibility.notify_emitted(dependencies)),
                Err(error) => responsibility.fail(error),
            }
        });
    }

    /// Ends the link with what was found at once; what is left to wait for, if somebody does.
    fn emit_now(
        self,
        layer: &LayerInner,
        responsibility: MaterializationResponsibility,
        found: &ReadyLookup,
    ) -> Result<Option<MaterializationWait>> {
        let is_untold = self.is_untold;
        let found_symbols = found.symbols.iter().map(|symbol| (symbol.address, symbol.flags));
        let externals = found_externals(&self.placed, found_symbols);
        match self.finish(layer, &responsibility, externals) {
            Ok(names) => responsibility.notify_emitted_now(found, &|position| Name::new(names.at(position)), is_untold),
            Err(error) => Err(failed(responsibility, error)),
        }
    }

    /// Ends the link, but for what it depends on.
    fn finish_found(
        self,
        layer: &LayerInner,
        responsibility: &MaterializationResponsibility,
        found: Vec<LookupResult>,
    ) -> Result<Vec<SymbolRef>> {
        let externals = found_externals(&self.placed, found.iter().map(|result| (result.address, result.flags)));
        self.finish(layer, responsibility, externals)?;
        Ok(found.into_iter().filter_map(|result| result.symbol).collect())
    }

    /// Fixes up, seals, and records everything under the key.
    fn finish(
        self,
        layer: &LayerInner,
        responsibility: &MaterializationResponsibility,
        mut externals: RecycledVec<FoundExternal>,
    ) -> Result<ExternalNames> {
        let Pending { sequence, placed, mut thread_locals, section_bounds, mut hooks, mut report, .. } = self;
        if let Some(report) = &mut report {
            report.count(&placed);
        }
        hooks.bind(&placed, &mut externals)?;
        let image = thread_locals.as_mut().and_then(|thread_locals| thread_locals.unfinished_image());
        let (linked, memory, names) = placed.seal(&externals, image, |link| hooks.fixed_up(link))?;
        let dylib = responsibility.dylib_handle();
        if let Some(report) = &mut report {
            report.usage = memory.usage();
        }
        let extras = (thread_locals.is_some() || section_bounds.is_some())
            .then(|| Box::new(Extras { _thread_locals: thread_locals, _section_bounds: section_bounds }));
        // If the tracker is defunct, the closure is dropped unrun, and with it the memory.
        let key = responsibility.with_resource_key(|key| {
            hooks.record(key, &LinkOrigin::new(sequence, responsibility), &linked);
            let module = Module { memory, _extras: extras, name: linked.name };
            layer.held.record_noted(dylib, key, module, responsibility.whereabouts());
            key
        })?;
        if let Some(report) = report {
            report.tell(responsibility, key);
        }
        Ok(names)
    }
}

/// What observers are told of a link. Made when it begins, and only if anybody listens.
struct Report {
    started: Instant,
    relocations: usize,
    definitions: usize,
    externals: usize,
    usage: MemoryUsage,
}

impl Report {
    /// If anybody listens.
    fn begin(observers: &Observers) -> Option<Box<Report>> {
        observers.is_heard().then(Report::made_now)
    }

    #[cold]
    fn made_now() -> Box<Report> {
        let (started, usage) = (Instant::now(), MemoryUsage::default());
        Box::new(Report { started, relocations: 0, definitions: 0, externals: 0, usage })
    }

    #[cold]
    fn count(&mut self, placed: &PlacedLink) {
        let graph = placed.graph();
        let own = graph.blocks().filter(|(_, block)| !block.is_dropped() && !block.is_made());
        self.relocations = own.map(|(id, _)| graph.edges(id).len()).sum();
        self.definitions = placed.definitions().count();
        self.externals = placed.external_names().count();
    }

    #[cold]
    fn tell(&self, responsibility: &MaterializationResponsibility, key: ResourceKey) {
        let Report { started, relocations, definitions, externals, usage } = self;
        responsibility.observers().tell(&Event::Linked {
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

impl_recycle!(FoundExternal, SourceSymbol, (Name, SymbolFlags));

fn found_externals(
    placed: &PlacedLink,
    found: impl Iterator<Item = (ExecutorAddr, SymbolFlags)> + Clone,
) -> RecycledVec<FoundExternal> {
    if found.clone().any(|(_, flags)| flags.contains(SymbolFlags::THREAD_LOCAL)) {
        return placed.externals().zip(found).map(found_external).collect();
    }
    let plain = |(address, flags): (_, SymbolFlags)| FoundExternal {
        address,
        is_callable: flags.contains(SymbolFlags::CALLABLE),
        thread_local: None,
    };
    found.map(plain).collect()
}

fn found_external((external, (address, flags)): (ExternalSymbol<'_>, (ExecutorAddr, SymbolFlags))) -> FoundExternal {
    let is_thread_local = flags.contains(SymbolFlags::THREAD_LOCAL);
    let static_offset = || {
        let variable = TlsIndex::from_address(address);
        if external.needs_static_place { host::static_offset(variable, external.name) } else { None }
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
        (symbol.is_exported, SymbolFlags::EXPORTED),
        (symbol.is_callable, SymbolFlags::CALLABLE),
        (symbol.is_absolute, SymbolFlags::ABSOLUTE),
        (symbol.is_thread_local, SymbolFlags::THREAD_LOCAL),
    ];
    set.into_iter().filter(|(is_set, _)| *is_set).fold(SymbolFlags::NONE, |flags, (_, flag)| flags | flag)
}

/// What is linked into one dylib belongs together. No dylib has the number that belongs to nothing.
fn group_of(dylib: &JitDylib) -> u64 {
    dylib.id() + 1
}
