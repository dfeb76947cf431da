//! [`JitDylib`]: a namespace of symbols with its trackers, link order and generators.
//!
//! Each dylib has a lock of its own; nothing here takes two. A dylib's table is the owner of its trackers' cores: a live
//! tracker's record is there until it is merged or reclaimed.

use std::fmt;

use smallvec::SmallVec;

use crate::base::{ExecutorAddr, Name, PrefetchHints};
use crate::error::{Error, ErrorKind, Result};
use crate::session::core::clear_hook::ClearHook;
use crate::session::core::execution_session::{ManagerList, SessionInner};
use crate::session::core::generator::DefinitionGenerator;
use crate::session::core::materialization::{self, MaterializationUnit};
use crate::session::core::observer::Observers;
use crate::session::core::resource_tracker::{Pin, ResourceKey, ResourceTracker, TrackerCore};
use crate::session::lookup::blocking::{self, LookupResult, RequiredState, SymbolRequest};
use crate::session::lookup::search::GeneratorEntry;
use crate::session::pins::tracker_state::TrackerState;
use crate::session::removal::symbol_watch::SymbolWatch;
use crate::session::removal::unpublish::RemovedDefinitions;
use crate::session::symbols::ready_index::ReadyIndex;
use crate::session::symbols::symbol_table::{OwnedSymbols, Symbol, SymbolTable, TrackerRecord};
use crate::session::types::name_hash::NameHash;
use crate::session::types::symbol::{SymbolFlags, SymbolId, SymbolState};
use crate::sync::{Arc, AtomicBool, AtomicU64, Mutex, Rank, Weak};

slotmap::new_key_type! {
    pub(crate) struct DylibId;
}

/// Which symbols of a dylib a search sees (ORC: `JITDylibLookupFlags`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visibility {
    /// Exported ones only.
    ExportedOnly,
    /// Hidden ones too.
    All,
}

impl Visibility {
    pub(crate) fn sees(self, flags: SymbolFlags) -> bool {
        self == Visibility::All || flags.contains(SymbolFlags::EXPORTED)
    }
}

/// A handle to one dylib. Cheap to clone.
#[derive(Clone)]
pub struct JitDylib {
    inner: Arc<DylibInner>,
}

/// On cache lines of its own, so that two dylibs never share one.
#[repr(align(128))]
pub(crate) struct DylibInner {
    /// The session's list of dylibs points back here until the dylib is removed, at the latest when the session ends;
    /// that breaks the cycle. Reached through here, the session's own count is not touched by every handle.
    pub(crate) session: Arc<SessionInner>,
    pub(crate) id: DylibId,
    pub(crate) name: Arc<str>,
    /// Position in creation order.
    pub(crate) serial: u64,
    pub(crate) state: Mutex<DylibState>,
    /// What is looked up often, for lookups that take no lock of this dylib.
    pub(crate) ready: Arc<ReadyIndex>,
    /// How many objects were added, by whatever layer.
    pub(crate) objects_added: AtomicU64,
    /// Whether its trackers are versions of functions that are reached through stubs. Set before the first tracker is made.
    pub(crate) has_versions: AtomicBool,
    /// The session's managers, with the version that the list is of.
    pub(crate) managers: Mutex<(u64, ManagerList)>,
}

pub(crate) struct DylibState {
    open: bool,
    pub(crate) table: SymbolTable,
    /// Weak, so that a removed dylib is forgotten by the link orders that named it.
    link_order: LinkOrder,
    /// Those of them that were there when a link first asked: until the order changes, or one is found to be closed, which is
    /// held until then, empty.
    linked: Option<Linked>,
    /// In the order of their serials.
    generators: Vec<Arc<GeneratorEntry>>,
    generators_added: u64,
    default_tracker: Option<Arc<TrackerCore>>,
    trackers_created: u64,
    /// What goes when this dylib is cleared. May point back here, until then.
    pub(crate) companions: Vec<Arc<dyn ClearHook>>,
}

/// Dylibs to search, one after the other.
pub(crate) type SearchOrder = SmallVec<[(JitDylib, Visibility); 4]>;

/// What a link searches behind its own dylib. All links into that dylib share it, and write no count of the others.
pub(crate) type Linked = Arc<SmallVec<[(Arc<DylibInner>, Visibility); 4]>>;

/// Weak, so that a removed dylib is forgotten.
pub(crate) type LinkOrder = Vec<(Weak<DylibInner>, Visibility)>;

impl JitDylib {
    pub(crate) fn from_inner(inner: Arc<DylibInner>) -> JitDylib {
        JitDylib { inner }
    }

    pub(crate) fn inner(&self) -> &Arc<DylibInner> {
        &self.inner
    }

    /// Who listens to the session.
    #[inline]
    pub(crate) fn observers(&self) -> &Observers {
        &self.inner.session.observers
    }

    /// A number that no other dylib of the session has or will have.
    pub fn id(&self) -> u64 {
        self.inner.serial
    }

    /// The dylib's name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// A new tracker that owns nothing yet.
    ///
    /// # Errors
    /// When the dylib was removed.
    pub fn create_tracker(&self) -> Result<ResourceTracker> {
        Ok(ResourceTracker::first(self.inner.new_core()?))
    }

    /// The tracker that owns what was added under no other, and what other trackers owned whose handles were dropped.
    ///
    /// # Errors
    /// When the dylib was removed.
    pub fn default_tracker(&self) -> Result<ResourceTracker> {
        Ok(ResourceTracker::from_core(self.inner.default_core()?))
    }

    /// Adds a unit's symbols under the default tracker.
    ///
    /// # Errors
    /// As [`ResourceTracker::define`].
    pub fn define(&self, unit: impl MaterializationUnit + 'static) -> Result<()> {
        materialization::define(&self.inner.default_core()?, Box::new(unit))
    }

    /// Adds symbols that have an address already, under the default tracker.
    ///
    /// # Errors
    /// As [`ResourceTracker::define`].
    pub fn define_absolute(&self, symbols: impl IntoIterator<Item = (Name, ExecutorAddr, SymbolFlags)>) -> Result<()> {
        materialization::define_absolute(&self.inner.default_core()?, symbols.into_iter().collect())
    }

    /// Sets the dylibs that are searched after this one, in order, by links that start from now on.
    pub fn set_link_order(&self, order: &[(JitDylib, Visibility)]) {
        self.edit_link_order(|old| {
            // Into its room. What goes from it is weak, and may be dropped under the lock.
            old.clear();
            old.extend(order.iter().map(|(dylib, visibility)| (dylib.downgrade(), *visibility)));
        });
    }

    /// The dylibs that are searched after this one; removed ones are not among them.
    pub fn link_order(&self) -> Vec<(JitDylib, Visibility)> {
        let mut order = SearchOrder::new();
        self.append_link_order(&mut order, |_| true);
        order.into_vec()
    }

    /// This dylib, hidden symbols included, then its link order: what a link into it searches.
    pub fn search_order(&self) -> Vec<(JitDylib, Visibility)> {
        self.whole_order().into_vec()
    }

    pub(crate) fn whole_order(&self) -> SearchOrder {
        let mut order = SearchOrder::new();
        order.push((self.clone(), Visibility::All));
        self.append_link_order(&mut order, |other| !Arc::ptr_eq(other, &self.inner));
        order
    }

    fn append_link_order(&self, order: &mut SearchOrder, is_wanted: impl Fn(&Arc<DylibInner>) -> bool) {
        let own = order.len();
        {
            let state = self.inner.state.lock();
            let known = state.link_order.iter().filter_map(|(dylib, visibility)| Some((dylib.upgrade()?, *visibility)));
            order.extend(known.map(|(dylib, visibility)| (JitDylib::from_inner(dylib), visibility)));
        }
        // Asked outside the lock: two dylibs' locks are never held together. Nor is one dropped under it.
        let mut position = 0;
        order.retain(|(dylib, _)| {
            position += 1;
            position <= own || is_wanted(&dylib.inner) && dylib.inner.state.lock().open
        });
    }

    /// Changes the link order by `edit`, at once.
    pub(crate) fn edit_link_order<R>(&self, edit: impl FnOnce(&mut LinkOrder) -> R) -> R {
        let mut state = self.inner.state.lock();
        let outcome = edit(&mut state.link_order);
        // Dropped outside the lock: it may be the last to hold another dylib.
        let linked = state.linked.take();
        drop(state);
        drop(linked);
        outcome
    }

    pub(crate) fn downgrade(&self) -> Weak<DylibInner> {
        Arc::downgrade(&self.inner)
    }

    /// Adds a generator, to be asked after those that are there. A removed dylib asks none, and takes none.
    pub fn add_generator(&self, generator: Arc<dyn DefinitionGenerator>) {
        let mut state = self.inner.state.lock();
        if !state.open {
            return;
        }
        state.table.forget_absents();
        let serial = state.generators_added;
        state.generators_added += 1;
        state.generators.push(GeneratorEntry::new(generator, serial));
    }

    /// Takes a generator out. Lookups that wait for it fail; one that it has captured may still be resumed. False when it
    /// is not there.
    pub fn remove_generator(&self, generator: &Arc<dyn DefinitionGenerator>) -> bool {
        let removed = {
            let mut state = self.inner.state.lock();
            let position = state.generators.iter().position(|entry| Arc::ptr_eq(&entry.generator, generator));
            position.map(|position| state.generators.remove(position))
        };
        removed.map(|entry| entry.abandon()).is_some()
    }

    /// The first generator with this serial or a later one.
    pub(crate) fn generator_from(&self, serial: u64) -> Option<Arc<GeneratorEntry>> {
        self.inner.state.lock().generators.iter().find(|entry| entry.serial >= serial).cloned()
    }

    /// The flags of a symbol that is defined here, without materialising it.
    pub fn symbol_flags(&self, name: &str) -> Option<SymbolFlags> {
        let state = self.inner.state.lock();
        let id = state.table.find(name)?;
        state.table.symbol(id).map(|symbol| symbol.flags)
    }

    /// A watch of the definition that a name has here now.
    pub fn watch(&self, name: &str) -> Option<SymbolWatch> {
        let state = self.inner.state.lock();
        state.table.find(name).map(|id| SymbolWatch::new(&self.inner, id))
    }

    /// Bytes of a symbol that is defined here; zero when unknown.
    pub(crate) fn symbol_size(&self, name: &str) -> Option<u64> {
        let state = self.inner.state.lock();
        let symbol = state.table.symbol(state.table.find(name)?)?;
        Some(state.table.size(symbol))
    }

    /// Has `companion` go when this dylib is cleared.
    ///
    /// # Errors
    /// When the dylib was removed.
    pub(crate) fn attach(&self, companion: Arc<dyn ClearHook>) -> Result<()> {
        let mut state = self.inner.state.lock();
        if !state.open {
            return Err(self.inner.defunct());
        }
        state.companions.push(companion);
        Ok(())
    }

    /// Has it not.
    pub(crate) fn detach(&self, companion: &Arc<dyn ClearHook>) {
        let detached: Vec<_> = {
            let mut state = self.inner.state.lock();
            state.companions.extract_if(.., |other| Arc::ptr_eq(other, companion)).collect()
        };
        drop(detached);
    }

    /// How far a symbol that is defined here has come.
    pub fn symbol_state(&self, name: &str) -> Option<SymbolState> {
        let state = self.inner.state.lock();
        let id = state.table.find(name)?;
        state.table.symbol(id).map(|symbol| symbol.state)
    }

    /// Number of symbols defined here.
    pub fn symbol_count(&self) -> usize {
        self.inner.state.lock().table.symbol_count()
    }

    /// Number of symbols that a tracker of this dylib owns; zero for a defunct one.
    pub fn symbol_count_of(&self, key: ResourceKey) -> usize {
        let state = self.inner.state.lock();
        state.table.tracker(key.tracker).filter(|_| key.dylib == self.inner.id).map_or(0, TrackerRecord::symbol_count)
    }

    /// Pins the tracker that owns a ready symbol, and gives the symbol's address. `None` when there is none.
    pub fn pin(&self, name: &str) -> Option<(ExecutorAddr, Pin)> {
        let (address, core) = {
            let state = self.inner.state.lock();
            let symbol = state.table.symbol(state.table.find(name)?)?;
            if symbol.state != SymbolState::Ready {
                return None;
            }
            (symbol.address(), state.table.owner(symbol)?.clone())
        };
        Some((address, Pin::new(core)?))
    }

    /// Looks `requests` up in this dylib only, hidden symbols included, and waits for them.
    ///
    /// # Errors
    /// As [`ExecutionSession::lookup`](crate::session::ExecutionSession::lookup).
    pub fn lookup(&self, requests: &[SymbolRequest<'_>], required: RequiredState) -> Result<Vec<LookupResult>> {
        blocking::wait(&self.inner.session, &[(self.clone(), Visibility::All)], requests, required)
    }

    /// The address of one symbol of this dylib, hidden ones included; waits until it is ready.
    ///
    /// # Errors
    /// As [`ExecutionSession::lookup_address`](crate::session::ExecutionSession::lookup_address).
    pub fn lookup_address(&self, name: &str) -> Result<ExecutorAddr> {
        blocking::address_in(self, name)
    }

    /// Removes symbols by name, all or none. Lazy ones are discarded from their unit; the code of ready ones stays with
    /// its tracker until that is removed.
    ///
    /// # Errors
    /// [`ErrorKind::SymbolsNotFound`]; [`ErrorKind::SymbolsCouldNotBeRemoved`] for those that are being materialised.
    /// Nothing was removed then.
    pub fn remove_symbols(&self, names: &[&str]) -> Result<()> {
        let mut units = Vec::new();
        let removed = {
            let mut state = self.inner.state.lock();
            let ids = state.removable(self, names)?;
            let removed: Vec<_> = ids.into_iter().filter_map(|id| state.table.remove(id)).collect();
            for removed in &removed {
                let Some(unit) = removed.unit else { continue };
                if let Some(record) = state.table.unit_mut(unit) {
                    record.discarded.push(removed.name.clone());
                }
                units.extend(state.table.drop_unit_if_empty(unit));
            }
            removed
        };
        self.inner.session.pins.forget_known(&self.inner, removed.iter().map(|removed| removed.id));
        drop((removed, units));
        Ok(())
    }

    /// Symbols without address that are not ready: what has to be looked up for all initialisers to be linked.
    pub fn pending_side_effects(&self) -> Vec<Name> {
        let state = self.inner.state.lock();
        let pending = state.table.symbols().filter(|symbol| {
            symbol.flags.contains(SymbolFlags::SIDE_EFFECTS_ONLY) && symbol.state != SymbolState::Ready
        });
        pending.map(|symbol| state.table.name(symbol).to_name()).collect()
    }

    /// Whether the dylib was removed.
    pub fn is_defunct(&self) -> bool {
        !self.inner.state.lock().open
    }

    /// Refuses everything new from now on.
    pub(crate) fn close(&self) {
        let mut state = self.inner.state.lock();
        state.open = false;
        state.table.forget_absents();
        state.link_order.clear();
        let (generators, linked) = (std::mem::take(&mut state.generators), state.linked.take());
        drop(state);
        drop(linked);
        generators.iter().for_each(|entry| entry.abandon());
    }

    /// Matches the `missing` ones of `requests`; the matched leave `missing`.
    pub(crate) fn find(
        &self,
        requests: &[SymbolRequest<'_>],
        missing: &mut SmallVec<[usize; 2]>,
        visibility: Visibility,
        mut matched: impl FnMut(usize, SymbolId),
    ) -> Result<()> {
        let state = self.inner.state.lock();
        if !state.open {
            return Err(self.inner.defunct());
        }
        missing.retain(|request| {
            let visible = state.find_visible(requests[*request].name, visibility);
            visible.inspect(|id| matched(*request, *id)).is_none()
        });
        Ok(())
    }
}

/// As a link order has them.
fn weak(others: &[(&JitDylib, Visibility)]) -> impl Iterator<Item = (Weak<DylibInner>, Visibility)> {
    others.iter().map(|(dylib, visibility)| (dylib.downgrade(), *visibility))
}

impl PartialEq for JitDylib {
    fn eq(&self, other: &JitDylib) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for JitDylib {}

impl fmt::Debug for JitDylib {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dylib `{}`", self.inner.name)
    }
}

impl DylibInner {
    pub(crate) fn new(
        session: Arc<SessionInner>,
        id: DylibId,
        name: &str,
        serial: u64,
        others: &[(&JitDylib, Visibility)],
    ) -> DylibInner {
        let ready = Arc::new(ReadyIndex::new());
        DylibInner {
            session,
            id,
            name: Arc::from(name),
            serial,
            objects_added: AtomicU64::new(0),
            has_versions: AtomicBool::new(false),
            managers: Mutex::ranked(Rank::Growth, (0, Arc::from([]))),
            state: Mutex::ranked(
                Rank::Dylib,
                DylibState {
                    open: true,
                    table: SymbolTable::new(ready.clone()),
                    link_order: weak(others).collect(),
                    linked: None,
                    generators: Vec::new(),
                    generators_added: 0,
                    default_tracker: None,
                    trackers_created: 0,
                    companions: Vec::new(),
                },
            ),
            ready,
        }
    }

    /// Makes a new dylib of this removed one, which nobody else holds: what memory its tables have stays. False, and nothing
    /// done, if something is in it.
    pub(crate) fn renew(&mut self, id: DylibId, name: &str, serial: u64, others: &[(&JitDylib, Visibility)]) -> bool {
        let state = self.state.get_mut();
        if !state.renew() {
            return false;
        }
        state.link_order.extend(weak(others));
        (self.id, self.name, self.serial) = (id, Arc::from(name), serial);
        (self.objects_added, self.has_versions) = (AtomicU64::new(0), AtomicBool::new(false));
        true
    }

    /// If a dylib behind this one is closed, the next link asks again which there are.
    pub(crate) fn forget_linked_if_closed(&self, other: &DylibInner) {
        if !other.state.lock().open {
            let linked = self.state.lock().linked.take();
            drop(linked);
        }
    }

    pub(crate) fn defunct(&self) -> Error {
        ErrorKind::DylibDefunct { dylib: self.name.to_string() }.into()
    }

    fn new_core(self: &Arc<DylibInner>) -> Result<Arc<TrackerCore>> {
        self.state.lock().new_core(self)
    }

    /// The default tracker's core, made on first use and again after it was removed.
    pub(crate) fn default_core(self: &Arc<DylibInner>) -> Result<Arc<TrackerCore>> {
        let mut state = self.state.lock();
        if let Some(core) = &state.default_tracker {
            return if state.open { Ok(core.clone()) } else { Err(self.defunct()) };
        }
        let core = state.new_core(self)?;
        state.default_tracker = Some(core.clone());
        Ok(core)
    }
}

impl DylibState {
    /// Opens a removed dylib as a new one; see [`DylibInner::renew`].
    fn renew(&mut self) -> bool {
        let DylibState { open, table, link_order, linked, generators, generators_added, default_tracker, .. } = self;
        let is_empty = table.is_empty() && default_tracker.is_none() && self.companions.is_empty();
        // What a link that came too late has put in holds other dylibs, and is not for us to drop here.
        if *open || !is_empty || linked.is_some() || !generators.is_empty() {
            return false;
        }
        link_order.clear();
        (*open, *generators_added, self.trackers_created) = (true, 0, 0);
        true
    }

    fn new_core(&mut self, dylib: &Arc<DylibInner>) -> Result<Arc<TrackerCore>> {
        if !self.open {
            return Err(dylib.defunct());
        }
        self.trackers_created += 1;
        let serial = self.trackers_created;
        Ok(self.table.add_tracker(|id| {
            Arc::new(TrackerCore {
                id,
                handle: JitDylib::from_inner(dylib.clone()),
                serial,
                owned: OwnedSymbols::default(),
                gate: TrackerState::new(),
                whereabouts: PrefetchHints::default(),
            })
        }))
    }

    /// The definition of `name`, if a search sees it.
    pub(crate) fn find_visible(&self, name: &str, visibility: Visibility) -> Option<SymbolId> {
        self.find_visible_hashed(name.as_bytes(), NameHash::of(name), visibility).map(|(id, _)| id)
    }

    /// The same, of a name of this hash.
    #[inline]
    pub(crate) fn find_visible_hashed(
        &self,
        name: &[u8],
        hash: NameHash,
        visibility: Visibility,
    ) -> Option<(SymbolId, &Symbol)> {
        self.table.find_hashed(name, hash).filter(|(_, symbol)| visibility.sees(symbol.flags))
    }

    /// The entries of `names`, if each is there and none is being materialised.
    fn removable(&self, dylib: &JitDylib, names: &[&str]) -> Result<Vec<SymbolId>> {
        let (mut found, mut missing, mut busy) = (Vec::new(), Vec::new(), Vec::new());
        for name in names {
            match self.table.find(name).and_then(|id| Some((id, self.table.symbol(id)?.state))) {
                Some((id, SymbolState::NeverSearched | SymbolState::Ready)) => found.push(id),
                Some(_) => busy.push(name.to_string()),
                None => missing.push(name.to_string()),
            }
        }
        let dylib = dylib.name().to_string();
        if !missing.is_empty() {
            return Err(ErrorKind::SymbolsNotFound { symbols: missing, needed_by: None, searched: vec![dylib] }.into());
        }
        if !busy.is_empty() {
            return Err(ErrorKind::SymbolsCouldNotBeRemoved { dylib, symbols: busy }.into());
        }
        Ok(found)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    /// Whether what is not in the table may still be found here.
    pub(crate) fn has_generators(&self) -> bool {
        !self.generators.is_empty()
    }

    /// Refuses a definition under a tracker that is not live in an open dylib.
    pub(crate) fn check_live(&self, core: &TrackerCore) -> Result<()> {
        if !self.open {
            return Err(core.dylib().defunct());
        }
        if core.gate.is_live() { Ok(()) } else { Err(core.defunct()) }
    }

    /// As [`check_live`](Self::check_live), of the tracker that this one has become.
    pub(crate) fn check_now_live(&self, core: &Arc<TrackerCore>) -> Result<()> {
        if !self.open {
            return Err(core.dylib().defunct());
        }
        // Under this dylib's lock a tracker that is live stays so (S2); only of one that is not, its gate is asked what it became.
        if core.gate.is_live() || core.is_now_live() { Ok(()) } else { Err(core.current().defunct()) }
    }

    /// What a link into this dylib, which is `own`, searches behind it, whether still open or not.
    pub(crate) fn linked(&mut self, own: &DylibInner) -> Linked {
        let order = &self.link_order;
        let others = || order.iter().filter(|(dylib, _)| !std::ptr::eq(dylib.as_ptr(), own));
        let known = || others().filter_map(|(dylib, visibility)| Some((dylib.upgrade()?, *visibility))).collect();
        self.linked.get_or_insert_with(|| Arc::new(known())).clone()
    }

    /// The trackers that are neither merged nor reclaimed, in no particular order.
    pub(crate) fn cores(&self) -> SmallVec<[Arc<TrackerCore>; 4]> {
        self.table.trackers().cloned().collect()
    }

    /// Takes out everything that a just retired tracker owns; `None` if nobody needs to hear of that.
    pub(crate) fn unpublish(&mut self, core: &TrackerCore) -> Option<RemovedDefinitions> {
        self.forget_default(core);
        let (symbols, units) = self.table.remove_owned(core)?;
        let is_heard = !symbols.is_empty() || !units.is_empty();
        is_heard.then_some(RemovedDefinitions { symbols, units })
    }

    /// Moves what `source` owns to `destination`.
    pub(crate) fn merge_tracker(&mut self, source: &TrackerCore, destination: &TrackerCore) -> Option<TrackerRecord> {
        self.forget_default(source);
        self.table.merge_tracker(source.id, destination.id)
    }

    /// Has the next who asks for the default tracker make another one, if `core` is the one that there is.
    fn forget_default(&mut self, core: &TrackerCore) {
        self.default_tracker.take_if(|default| default.id == core.id);
    }

    /// Drops the record of a tracker whose resources are all given back.
    pub(crate) fn forget_tracker(&mut self, core: &TrackerCore) -> Option<TrackerRecord> {
        self.table.remove_tracker(core.id)
    }
}
