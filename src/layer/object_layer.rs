//! [`ObjectLinkingLayer`]: object → materialisation. Its ledger holds the memory of every finished link, by key.

use std::fmt;
use std::time::Instant;

use smallvec::SmallVec;

use crate::base::{ExecutorAddr, Kept, Name, Share, Spread, ThreadLocal, keep};
use crate::error::Result;
use crate::host;
use crate::layer::memory_ledger::{MemoryLedger, Occupant};
use crate::layer::plugin::{LinkHooks, LinkOrigin, LinkPlugin};
use crate::layer::plugins::Plugins;
use crate::layer::thread_locals::ThreadLocals;
use crate::link::{
    ExternalNames, ExternalSymbol, FoundExternal, InterfaceSymbol, LinkGraph, ObjectBuffer, ObjectInterface, Outline,
    PlacedLink, PlanStage, PlannedLink, Seen, SymbolIndex,
};
use crate::memory::{Finalized, MemoryManager, MemoryUsage, Tenant};
use crate::session::{
    Event, FoundNow, JitDylib, LookupResult, MaterializationResponsibility, MaterializationUnit, OwedSymbol,
    RequiredState, ResourceKey, ResourceManager, ResourceTracker, SymbolFlags, SymbolRequest,
};
use crate::sync::Arc;

/// Links objects into dylibs (ORC: `ObjectLinkingLayer`). Register it with the session as a [`ResourceManager`], before
/// anything that is built upon it.
pub struct ObjectLinkingLayer {
    /// Each link holds it, from when its object is added until its end.
    inner: Spread<LayerInner>,
}

struct LayerInner {
    memory: Arc<dyn MemoryManager>,
    plugins: Plugins,
    held: MemoryLedger<Module>,
}

/// A linked object: 40 bytes that are held for each.
struct Module {
    memory: Box<dyn Finalized>,
    /// Its block of thread-local variables, if it has one.
    _thread_locals: Option<Box<ThreadLocals>>,
    /// The object's, shared with whoever else knows it.
    name: Arc<str>,
}

impl Occupant for Module {
    fn memory(&self) -> &dyn Finalized {
        &*self.memory
    }

    fn name(&self) -> Arc<str> {
        self.name.clone()
    }
}

impl ObjectLinkingLayer {
    /// A layer that takes its memory from `memory`.
    pub fn new(memory: Arc<dyn MemoryManager>) -> Arc<ObjectLinkingLayer> {
        let inner = LayerInner { memory, plugins: Plugins::new(), held: MemoryLedger::new() };
        Arc::new(ObjectLinkingLayer { inner: Spread::new(inner) })
    }

    /// Has `plugin` take part in all links that begin from now on.
    pub fn add_plugin(&self, plugin: Arc<dyn LinkPlugin>) {
        self.inner.plugins.add(plugin);
    }

    /// Takes a plugin out again: links that begin from now on do not see it. False when it is not there.
    pub fn remove_plugin(&self, plugin: &Arc<dyn LinkPlugin>) -> bool {
        self.inner.plugins.remove(plugin)
    }

    /// Adds an object under a tracker. It is linked when one of its symbols is looked for.
    ///
    /// # Errors
    /// When the bytes are no object that can be linked, a strong symbol of it is defined already, or the tracker is
    /// defunct; nothing was added then.
    pub fn add(&self, tracker: &ResourceTracker, name: &str, bytes: ObjectBuffer) -> Result<()> {
        self.add_without(tracker, name, bytes, |_| false)
    }

    /// As [`add`](Self::add), without those of its definitions that are `left_out`: what the object refers to by these names
    /// is looked up, as if it defined none.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn add_without(
        &self,
        tracker: &ResourceTracker,
        name: &str,
        bytes: ObjectBuffer,
        left_out: impl Fn(&str) -> bool,
    ) -> Result<()> {
        let sequence = tracker.number_object();
        let promised = promised(name, &bytes, sequence, left_out);
        if let Err(error) = &promised {
            let dylib = tracker.dylib();
            dylib.observers().tell_refused(dylib.inner(), name, error);
        }
        let Promised { symbols, origins, outline } = promised?;
        tracker.define(ObjectUnit {
            layer: self.inner.share(),
            name: Arc::from(name),
            bytes,
            outline,
            symbols,
            origins,
            sequence,
        })
    }

    /// What the code under a key holds, in constant time.
    pub fn usage(&self, key: ResourceKey) -> MemoryUsage {
        self.inner.held.usage(key)
    }

    /// What the code of a dylib holds, in constant time.
    pub fn usage_of_dylib(&self, dylib: &JitDylib) -> MemoryUsage {
        self.inner.held.usage_of_dylib(dylib)
    }

    /// Which modules live where, for a picture of the memory.
    pub fn tenants(&self) -> Vec<Tenant> {
        self.inner.held.tenants()
    }

    /// The memory manager.
    pub fn memory(&self) -> &Arc<dyn MemoryManager> {
        &self.inner.memory
    }

    /// Number of keys under which memory is held.
    pub fn key_count(&self) -> usize {
        self.inner.held.key_count()
    }
}

impl ResourceManager for ObjectLinkingLayer {
    fn remove_resources(&self, _dylib: &JitDylib, key: ResourceKey) -> Result<()> {
        // Dropping gives the memory back, the last linked first.
        self.inner.held.take(key).rev().for_each(drop);
        Ok(())
    }

    fn skips_unused_keys(&self) -> bool {
        true
    }

    fn transfer_resources(&self, _dylib: &JitDylib, destination: ResourceKey, source: ResourceKey) {
        self.inner.held.transfer(destination, source);
    }

    fn held_bytes(&self, key: ResourceKey) -> u64 {
        self.usage(key).total()
    }
}

impl fmt::Debug for ObjectLinkingLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "object linking layer with {} keys", self.key_count())
    }
}

/// An object that nobody has looked into yet.
struct ObjectUnit {
    layer: Arc<Share<LayerInner>>,
    name: Arc<str>,
    bytes: ObjectBuffer,
    /// What is known of the bytes already.
    outline: Option<Outline>,
    symbols: Kept<(Name, SymbolFlags)>,
    /// By position in `symbols`; shorter, as the symbol for initialisers has none.
    origins: Kept<Origin>,
    sequence: u64,
}

/// What the object itself says of a symbol.
#[derive(Clone, Copy)]
struct Origin {
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
        self.origins.get(index).map_or(0, |origin| origin.size)
    }

    fn give_names(&mut self, take: &mut dyn FnMut(Name)) {
        self.symbols.drain(..).for_each(|(name, _)| take(name));
    }

    fn materialize(self: Box<Self>, mut responsibility: MaterializationResponsibility) {
        let (sequence, report) = (self.sequence, responsibility.observers().is_heard().then(Report::begin));
        let mut hooks: Hooks = {
            let plugins = self.layer.plugins.now();
            let origin = LinkOrigin::new(&self.name, sequence, &responsibility);
            plugins.iter().map(|plugin| plugin.begin(&origin)).collect()
        };
        match self.place(&mut responsibility, &mut hooks) {
            Ok((placed, thread_locals)) => {
                look_up_externals(
                    self.layer,
                    responsibility,
                    Pending { sequence, placed, thread_locals, hooks, report },
                );
            }
            Err(error) => responsibility.fail(error),
        }
    }
}

impl ObjectUnit {
    /// Plans, takes memory, and makes the addresses known.
    fn place(
        &self,
        responsibility: &mut MaterializationResponsibility,
        hooks: &mut Hooks,
    ) -> Result<(PlacedLink, Option<Box<ThreadLocals>>)> {
        let is_owned = self.is_owned(responsibility.symbols());
        let planned = PlannedLink::plan_outlined(
            self.name.clone(),
            self.bytes.clone(),
            self.outline.as_ref(),
            |_, symbol| is_owned.get(symbol.index()) == Some(&true),
            |stage, graph| match stage {
                PlanStage::Claimed => {
                    hooks.iter_mut().try_for_each(|hook| hook.prepare(graph))?;
                    claim_added(graph, responsibility)
                }
                PlanStage::Pruned => hooks.iter_mut().try_for_each(|hook| hook.pruned(graph)),
            },
        )?;
        let mut placed = planned.in_group(group_of(&responsibility.dylib())).allocate(&*self.layer.memory)?;
        let thread_locals = ThreadLocals::place(&mut placed)?;
        hooks.iter_mut().try_for_each(|hook| hook.placed(&placed))?;
        responsibility.notify_resolved(|symbol| {
            // What plugins have added is behind what the object has, and is known by its name.
            let added =
                || placed.definitions().find(|(name, _)| *name == symbol.name.as_str()).map(|(_, address)| address);
            self.index_of(symbol).map_or_else(added, |index| placed.definition_address(index))
        })?;
        Ok((placed, thread_locals))
    }
}

impl ObjectUnit {
    /// Which of the object's symbols are owed, by their numbers there.
    fn is_owned(&self, symbols: &[OwedSymbol]) -> Kept<bool> {
        // They are in the order of the object's symbol table.
        let mut is_owned = Kept::repeat(false, self.origins.last().map_or(0, |last| last.index.index() + 1));
        for index in symbols.iter().filter_map(|owed| self.index_of(owed)) {
            is_owned[index.index()] = true;
        }
        is_owned
    }

    /// The number of an owed symbol in the object's symbol table, if it has an address there.
    fn index_of(&self, owed: &OwedSymbol) -> Option<SymbolIndex> {
        self.origins.get(owed.position? as usize).map(|origin| origin.index)
    }
}

/// A link whose externals are being looked up.
struct Pending {
    /// Of the object.
    sequence: u64,
    placed: PlacedLink,
    thread_locals: Option<Box<ThreadLocals>>,
    hooks: Hooks,
    /// If anybody listens.
    report: Option<Box<Report>>,
}

/// What plugins do in one link, in the order in which they were added.
type Hooks = SmallVec<[Box<dyn LinkHooks>; 4]>;

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

fn look_up_externals(layer: Arc<Share<LayerInner>>, responsibility: MaterializationResponsibility, pending: Pending) {
    let found = {
        let requests: SmallVec<[SymbolRequest<'_>; 16]> = pending.placed.externals().map(request_for).collect();
        responsibility.lookup_now(&requests, RequiredState::Resolved)
    };
    if let Some(found) = found {
        return emit(&layer, responsibility, pending, Ok(Found::AtOnce(found)));
    }
    // The names are in the graph, which goes along into the continuation: the lookup is done with them when it returns.
    let names: Vec<(String, bool)> =
        pending.placed.externals().map(|external| (external.name.to_string(), external.required)).collect();
    let requests: Vec<_> = names.iter().map(|(name, required)| SymbolRequest { name, required: *required }).collect();
    responsibility.lookup(&requests, RequiredState::Resolved, move |responsibility, found| {
        emit(&layer, responsibility, pending, found.map(Found::ByLookup));
    });
}

/// What was found for the externals, in their order.
#[allow(clippy::large_enum_variant)] // made once in a link, and mostly the large one
enum Found {
    AtOnce(FoundNow),
    ByLookup(Vec<LookupResult>),
}

impl Found {
    fn externals(&self, placed: &PlacedLink) -> Kept<FoundExternal> {
        match self {
            Found::AtOnce(found) => {
                found_externals(placed, found.symbols.iter().map(|symbol| (symbol.address, symbol.flags)))
            }
            Found::ByLookup(found) => {
                found_externals(placed, found.iter().map(|result| (result.address, result.flags)))
            }
        }
    }

    /// The code is in place, and refers to this.
    fn notify_emitted(self, responsibility: MaterializationResponsibility, names: &ExternalNames) -> Result<()> {
        match self {
            Found::AtOnce(found) => responsibility.notify_emitted_now(&found, names.iter()),
            Found::ByLookup(found) => {
                responsibility.notify_emitted(found.into_iter().filter_map(|result| result.symbol).collect())
            }
        }
    }
}

fn request_for(external: ExternalSymbol<'_>) -> SymbolRequest<'_> {
    SymbolRequest { name: external.name, required: external.required }
}

fn emit(layer: &LayerInner, responsibility: MaterializationResponsibility, pending: Pending, found: Result<Found>) {
    let finished = found.and_then(|found| Ok((finish(layer, &responsibility, pending, &found)?, found)));
    match finished {
        // A failure to emit has failed the symbols; the memory is the tracker's, and goes with it.
        Ok((names, found)) => drop(found.notify_emitted(responsibility, &names)),
        Err(error) => responsibility.fail(error),
    }
}

/// Fixes up, seals, and records everything under the key.
fn finish(
    layer: &LayerInner,
    responsibility: &MaterializationResponsibility,
    pending: Pending,
    found: &Found,
) -> Result<ExternalNames> {
    let Pending { sequence, placed, mut thread_locals, mut hooks, mut report } = pending;
    if let Some(report) = &mut report {
        report.count(&placed);
    }
    let mut externals = found.externals(&placed);
    hooks.iter_mut().try_for_each(|hook| hook.bind(&placed, &mut externals))?;
    let image = thread_locals.as_mut().and_then(|thread_locals| thread_locals.unfinished_image());
    let (linked, memory, names) =
        placed.seal(&externals, image, |link| hooks.iter_mut().try_for_each(|hook| hook.fixed_up(link)))?;
    let dylib = responsibility.dylib();
    if let Some(report) = &mut report {
        report.usage = memory.usage();
    }
    // If the tracker is defunct, the closure is dropped unrun, and with it the memory.
    let key = responsibility.with_resource_key(move |key| {
        layer.held.record(&dylib, key, Module { memory, _thread_locals: thread_locals, name: linked.name.clone() });
        let origin = LinkOrigin::new(&linked.name, sequence, responsibility);
        for hook in hooks {
            hook.record(key, &origin, &linked);
        }
        key
    })?;
    if let Some(report) = report {
        report.tell(responsibility, key);
    }
    Ok(names)
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
    #[cold]
    fn begin() -> Box<Report> {
        let (started, usage) = (Instant::now(), MemoryUsage::default());
        Box::new(Report { started, relocations: 0, definitions: 0, externals: 0, usage })
    }

    #[cold]
    fn count(&mut self, placed: &PlacedLink) {
        let graph = placed.graph();
        let own = graph.blocks().filter(|(_, block)| !block.is_dropped() && !block.is_made());
        self.relocations = own.map(|(id, _)| graph.edges(id).len()).sum();
        self.definitions = placed.definitions().count();
        self.externals = placed.externals().count();
    }

    #[cold]
    fn tell(&self, responsibility: &MaterializationResponsibility, key: ResourceKey) {
        let Report { started, relocations, definitions, externals, usage } = self;
        responsibility.observers().tell(&Event::Linked {
            dylib: &responsibility.dylib(),
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

keep!(FoundExternal, Origin, (Name, SymbolFlags));

fn found_externals(
    placed: &PlacedLink,
    found: impl Iterator<Item = (ExecutorAddr, SymbolFlags)> + Clone,
) -> Kept<FoundExternal> {
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
        let variable = ThreadLocal::from_address(address);
        if external.needs_static_place { host::static_offset(variable, external.name) } else { None }
    };
    FoundExternal {
        address,
        is_callable: flags.contains(SymbolFlags::CALLABLE),
        thread_local: is_thread_local.then(static_offset),
    }
}

/// What is known of an object when it is added.
struct Promised {
    symbols: Kept<(Name, SymbolFlags)>,
    /// Of all symbols that the object itself has.
    origins: Kept<Origin>,
    outline: Option<Outline>,
}

/// What an object promises: its global definitions, and a symbol without address for its initialisers. An object that
/// defines nothing gets that symbol too, so that it can be asked for.
fn promised(object: &str, bytes: &[u8], sequence: u64, left_out: impl Fn(&str) -> bool) -> Result<Promised> {
    let (mut symbols, mut origins) = (Kept::new(), Kept::new());
    let Seen { has_initializers, outline } = ObjectInterface::visit(object, bytes, |symbol, left| {
        // Taken apart ahead of all else: then nothing of it has to stand in memory but the name.
        let (flags, origin) = (flags_of(&symbol), Origin { size: symbol.size, index: symbol.index });
        let name = symbol.name;
        if left_out(name.as_str()) {
            return;
        }
        if symbols.is_empty() {
            symbols.reserve_exact(left + 1);
            origins.reserve_exact(left);
        }
        origins.push(origin);
        symbols.push((name, flags));
    })?;
    if has_initializers || symbols.is_empty() {
        symbols.push((Name::from(format!("{object}#{sequence}.initializers")), SymbolFlags::SIDE_EFFECTS_ONLY));
    }
    Ok(Promised { symbols, origins, outline })
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
