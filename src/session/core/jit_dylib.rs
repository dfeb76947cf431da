//! [`JitDylib`]: a handle to a namespace of symbols, with its trackers, link order and generators.
//!
//! Each dylib has its own lock; nothing here holds two of them. The symbol table owns the cores of the dylib's
//! trackers: a tracker has a record there until it is merged or reclaimed.

use std::fmt;

use smallvec::SmallVec;

use crate::base::{Name, PrefetchHints};
use crate::error::{Error, ErrorKind, Result};
use crate::session::core::clear_hook::ClearHook;
use crate::session::core::execution_session::{ManagerList, SessionInner};
use crate::session::core::generator::GeneratorEntry;
use crate::session::core::materialization::MaterializationUnit;
use crate::session::core::observer::Observers;
use crate::session::core::order_cache::OrderCache;
use crate::session::core::query::Waiter;
use crate::session::core::resource_tracker::{ResourceTracker, TrackerCore};
use crate::session::pins::pinned::Pinned;
use crate::session::pins::tracker_state::TrackerState;
use crate::session::symbols::ready_index::ReadyIndex;
use crate::session::symbols::symbol_table::owned::OwnedSymbols;
use crate::session::symbols::symbol_table::{self, Symbol, TableTypes};
use crate::session::types::ids::DylibId;
use crate::session::types::name_hash::NameHash;
use crate::session::types::request::Visibility;
use crate::session::types::shared_pins::SharedPins;
use crate::session::types::symbol::{SymbolFlags, SymbolId};
use crate::sync::{Arc, AtomicBool, AtomicU64, FairMutex, Mutex, Ordering, Rank, Weak};

/// A handle to one dylib (ORC: `JITDylib`). Cheap to clone.
///
/// ```
/// # const ADD: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/examples/add.o"));
/// # fn main() -> Result<(), jittison::Error> {
/// let jit = jittison::Jit::new()?;
/// let library = jit.create_dylib("library")?;
/// jit.add_object(&library.create_tracker()?, "add.o", ADD)?;
/// assert!(library.symbol_flags("add").is_some());
///
/// // Each dylib has its own names. `main` finds those of `library` once it links against it.
/// assert!(jit.address_of(jit.main_dylib(), "add").is_err());
/// jit.main_dylib().set_link_order(&[(library.clone(), jittison::session::Visibility::ExportedOnly)])?;
/// assert!(jit.address_of(jit.main_dylib(), "add").is_ok());
///
/// // All trackers of the dylib are removed in one step.
/// assert!(library.clear()?.is_empty());
/// assert!(library.symbol_flags("add").is_none());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct JitDylib {
    inner: Arc<DylibInner>,
}

/// The shared part of a dylib's handles. Aligned so that two dylibs never share a cache line.
#[repr(align(128))]
pub(crate) struct DylibInner {
    /// A cycle: the session's list of dylibs refers back here. It is broken when the dylib is removed, at the latest
    /// when the session ends. Handles reach the session through this field, so cloning a handle does not write the
    /// session's count.
    pub(crate) session: Arc<SessionInner>,
    pub(crate) id: DylibId,
    pub(crate) name: Arc<str>,
    pub(crate) state: FairMutex<DylibState>,
    /// The symbols that are looked up often, for lookups that do not take this dylib's lock.
    pub(crate) ready: Arc<ReadyIndex>,
    /// Where the names are that searches through a long link order have found.
    pub(crate) order: OrderCache,
    /// The number of objects that all layers have added.
    pub(crate) objects_added: AtomicU64,
    /// How often the link order was edited. Written under the lock of `state`, after the edit.
    link_order_edits: AtomicU64,
    /// Whether the trackers hold versions of functions that are reached through stubs. Set before the first tracker is
    /// created. Relaxed: who has a tracker of it came by it after that.
    pub(crate) has_versions: AtomicBool,
    /// A cache of the session's managers, and the version of the list.
    pub(crate) managers: Mutex<(u64, ManagerList)>,
}

/// Names the types that the symbol table of a dylib refers to.
pub(crate) struct DylibEntries;

impl TableTypes for DylibEntries {
    type Tracker = TrackerCore;
    type Unit = Box<dyn MaterializationUnit>;
    type Waiter = Waiter;
    type Dylib = DylibInner;
}

pub(crate) type SymbolTable = symbol_table::SymbolTable<DylibEntries>;
pub(crate) type UnitRecord = symbol_table::UnitRecord<DylibEntries>;
pub(crate) type TakenUnit = symbol_table::TakenUnit<DylibEntries>;
pub(crate) type RemovedSymbol = symbol_table::RemovedSymbol<DylibEntries>;
pub(crate) type TrackerRecord = symbol_table::TrackerRecord<DylibEntries>;

pub(crate) struct DylibState {
    pub(in crate::session) open: bool,
    pub(crate) table: SymbolTable,
    /// Weak, so that a removed dylib drops out of the link orders that name it.
    pub(in crate::session) link_order: LinkOrder,
    /// The dylibs of `link_order` that existed when a link first asked. Cleared when the order changes, or when a link
    /// finds one of them closed; until then it keeps that closed, empty dylib alive.
    pub(in crate::session) link_cache: Option<LinkCache>,
    /// Sorted by serial.
    pub(in crate::session) generators: Vec<Arc<GeneratorEntry>>,
    pub(in crate::session) generators_added: u64,
    pub(in crate::session) default_tracker: Option<Arc<TrackerCore>>,
    trackers_created: u64,
    /// Called when this dylib is cleared. May refer back to this dylib, until then.
    pub(crate) clear_hooks: Vec<Arc<dyn ClearHook>>,
    clears: RunningClears,
    pub(in crate::session) shared_pins: SharedPins,
}

/// The clears that are under way, and the trackers that were created meanwhile.
#[derive(Default)]
struct RunningClears {
    running: u32,
    created: Vec<Arc<TrackerCore>>,
}

/// How many of the created trackers a clear has seen.
pub(crate) struct ClearPosition(usize);

/// Dylibs to search, in order.
pub(crate) type SearchOrder = SmallVec<[(JitDylib, Visibility); 4]>;

/// The dylibs that a link searches after its own dylib. All links into that dylib share the list, so a link writes no
/// reference count of the other dylibs.
pub(crate) type LinkCache = Arc<SmallVec<[(JitDylib, Visibility); 4]>>;

/// Weak, so that a removed dylib drops out.
pub(crate) type LinkOrder = Vec<(Weak<DylibInner>, Visibility)>;

impl JitDylib {
    pub(crate) fn from_inner(inner: Arc<DylibInner>) -> JitDylib {
        JitDylib { inner }
    }

    pub(crate) fn inner(&self) -> &Arc<DylibInner> {
        &self.inner
    }

    /// The observers of the session.
    #[inline]
    pub(crate) fn observers(&self) -> &Observers {
        &self.inner.session.observers
    }

    /// A number that no other dylib of the process has, before or later. A dylib that is created later has a higher one.
    pub fn id(&self) -> u64 {
        self.inner.id.number()
    }

    /// The dylib's name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Creates a tracker that owns nothing yet (ORC: `createResourceTracker`).
    ///
    /// # Errors
    /// [`ErrorKind::DylibDefunct`] when the dylib was removed.
    pub fn create_tracker(&self) -> Result<ResourceTracker> {
        Ok(ResourceTracker::new(self.inner.new_core()?))
    }

    /// The default tracker (ORC: `getDefaultResourceTracker`). It owns definitions added without a tracker, and those
    /// of trackers whose last handle was dropped.
    ///
    /// # Errors
    /// [`ErrorKind::DylibDefunct`] when the dylib was removed.
    pub fn default_tracker(&self) -> Result<ResourceTracker> {
        Ok(ResourceTracker::from_core(self.inner.default_core()?))
    }

    /// This dylib with all its symbols, then the open dylibs of its link order.
    pub(crate) fn full_search_order(&self) -> SearchOrder {
        let mut order = SearchOrder::new();
        order.push((self.clone(), Visibility::All));
        self.append_link_order(&mut order, |other| !Arc::ptr_eq(other, &self.inner));
        order
    }

    /// Appends the open dylibs of the link order that `is_wanted` accepts.
    pub(crate) fn append_link_order(&self, order: &mut SearchOrder, is_wanted: impl Fn(&Arc<DylibInner>) -> bool) {
        let old_len = order.len();
        {
            let state = self.inner.state.lock();
            let alive = state.link_order.iter().filter_map(|(dylib, visibility)| Some((dylib.upgrade()?, *visibility)));
            order.extend(alive.map(|(dylib, visibility)| (JitDylib::from_inner(dylib), visibility)));
        }
        // After the lock is released: two dylibs' locks are never held together, and no dylib is dropped under one.
        let mut position = 0;
        order.retain(|(dylib, _)| {
            position += 1;
            position <= old_len || is_wanted(&dylib.inner) && dylib.inner.state.lock().open
        });
    }

    /// Applies `edit` to the link order under the dylib's lock, and clears what is cached of it.
    pub(crate) fn edit_link_order<R>(&self, edit: impl FnOnce(&mut LinkOrder) -> R) -> R {
        let mut state = self.inner.state.lock();
        let outcome = edit(&mut state.link_order);
        // Release pairs with the load of `link_order_edits`: a thread that reads this number before the order reads an order that is at
        // least as new.
        self.inner.link_order_edits.fetch_add(1, Ordering::Release);
        // Dropped after the lock is released: a cache may hold the last reference to another dylib.
        let order = (state.link_cache.take(), self.inner.order.clear());
        drop(state);
        drop(order);
        outcome
    }

    /// A number that each edit of the link order changes. The load pairs with the increment of `edit_link_order`.
    pub(crate) fn link_order_edits(&self) -> u64 {
        self.inner.link_order_edits.load(Ordering::Acquire)
    }

    /// The [number](SessionInner::number) of the session.
    #[inline]
    pub(crate) fn session_number(&self) -> u64 {
        self.inner.session.number()
    }

    /// Checks that two dylibs are of one session.
    pub(crate) fn check_same_session(&self, other: &JitDylib) -> Result<()> {
        self.check_session(&other.inner.session)
    }

    /// Checks that this is a dylib of `session`.
    #[inline]
    pub(crate) fn check_session(&self, session: &Arc<SessionInner>) -> Result<()> {
        self.inner.check_session(session)
    }

    pub(crate) fn downgrade(&self) -> Weak<DylibInner> {
        Arc::downgrade(&self.inner)
    }

    /// The flags of a symbol that this dylib defines. Materialises nothing, and calls no generator.
    pub fn symbol_flags(&self, name: &str) -> Option<SymbolFlags> {
        let state = self.inner.state.lock();
        let id = state.table.find(name)?;
        state.table.symbol(id).map(|symbol| symbol.flags)
    }

    /// Whether the dylib is open, and holds nothing but removed trackers, so that other definitions find it as a new one.
    pub(crate) fn is_vacant(&self) -> bool {
        self.inner.state.lock().is_vacant()
    }

    /// Whether the dylib was removed.
    pub fn is_defunct(&self) -> bool {
        !self.inner.state.lock().open
    }
}

/// Checks that all dylibs of a search order are of `session`.
#[inline]
pub(crate) fn check_order(session: &Arc<SessionInner>, order: &[(JitDylib, Visibility)]) -> Result<()> {
    order.iter().try_for_each(|(dylib, _)| dylib.check_session(session))
}

/// `others` as entries of a link order.
fn downgraded(others: &[(&JitDylib, Visibility)]) -> impl Iterator<Item = (Weak<DylibInner>, Visibility)> {
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
        others: &[(&JitDylib, Visibility)],
    ) -> DylibInner {
        let ready = Arc::new(ReadyIndex::new());
        DylibInner {
            session,
            id,
            name: Arc::from(name),
            objects_added: AtomicU64::new(0),
            link_order_edits: AtomicU64::new(0),
            has_versions: AtomicBool::new(false),
            order: OrderCache::new(),
            managers: Mutex::ranked(Rank::Growth, (0, Arc::from([]))),
            state: FairMutex::ranked(
                Rank::Dylib,
                DylibState {
                    open: true,
                    table: SymbolTable::new(ready.clone()),
                    link_order: downgraded(others).collect(),
                    link_cache: None,
                    generators: Vec::new(),
                    generators_added: 0,
                    default_tracker: None,
                    trackers_created: 0,
                    clear_hooks: Vec::new(),
                    clears: RunningClears::default(),
                    shared_pins: SharedPins::default(),
                },
            ),
            ready,
        }
    }

    /// Makes this removed dylib, to which nothing else refers, a new dylib. The memory of its tables stays allocated.
    /// Returns false, and changes nothing, if the dylib is not empty.
    pub(crate) fn reinit(&mut self, id: DylibId, name: &str, others: &[(&JitDylib, Visibility)]) -> bool {
        let state = self.state.get_mut();
        if !state.reinit() {
            return false;
        }
        state.link_order.extend(downgraded(others));
        (self.id, self.name) = (id, Arc::from(name));
        (self.objects_added, self.has_versions) = (AtomicU64::new(0), AtomicBool::new(false));
        self.link_order_edits = AtomicU64::new(0);
        true
    }

    /// Clears what is cached of the link order if `other`, a dylib of it, is closed. The next search makes it anew.
    pub(crate) fn clear_link_cache_if_closed(&self, other: &DylibInner) {
        if !other.state.lock().open {
            self.clear_link_cache();
        }
    }

    /// Clears what is cached of the link order.
    pub(crate) fn clear_link_cache(&self) {
        let mut state = self.state.lock();
        let order = (state.link_cache.take(), self.order.clear());
        drop(state);
        drop(order);
    }

    /// Checks that this is a dylib of `session`. Two sessions have different locks, and each frees what only the code of
    /// its own dylibs refers to. So nothing of one session may refer to the other.
    #[inline]
    pub(crate) fn check_session(&self, session: &Arc<SessionInner>) -> Result<()> {
        if Arc::ptr_eq(&self.session, session) { Ok(()) } else { Err(self.foreign()) }
    }

    #[cold]
    pub(crate) fn foreign(&self) -> Error {
        ErrorKind::ForeignSession { dylib: self.name.to_string() }.into()
    }

    /// The error that this dylib was removed.
    pub(crate) fn defunct(&self) -> Error {
        ErrorKind::DylibDefunct { dylib: self.name.to_string() }.into()
    }

    fn new_core(self: &Arc<DylibInner>) -> Result<Arc<TrackerCore>> {
        self.state.lock().new_core(self)
    }

    /// The core of the default tracker. Created on first use, and again after the default tracker was removed.
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
    /// Opens this removed dylib as a new one; see [`DylibInner::reinit`].
    fn reinit(&mut self) -> bool {
        let DylibState { open, table, link_order, link_cache, generators, generators_added, default_tracker, .. } =
            self;
        let is_empty =
            table.is_empty() && default_tracker.is_none() && self.clear_hooks.is_empty() && self.shared_pins.is_empty();
        // A link that ran after the removal may have made a link cache. It refers to other dylibs, which must not be
        // dropped here, under the lock of the session's list.
        if *open || !is_empty || link_cache.is_some() || !generators.is_empty() {
            return false;
        }
        link_order.clear();
        table.clear_failures();
        table.unwatch_names();
        (*open, *generators_added, self.trackers_created) = (true, 0, 0);
        true
    }

    /// See [`JitDylib::is_vacant`].
    fn is_vacant(&self) -> bool {
        let has_names = self.table.has_definitions() || self.table.has_failures() || self.has_generators();
        self.open && !has_names && self.default_tracker.is_none() && self.clear_hooks.is_empty()
    }

    pub(crate) fn new_core(&mut self, dylib: &Arc<DylibInner>) -> Result<Arc<TrackerCore>> {
        if !self.open {
            return Err(dylib.defunct());
        }
        self.trackers_created += 1;
        let serial = self.trackers_created;
        let core = self.table.add_tracker(|id| {
            Arc::new(TrackerCore {
                id,
                handle: JitDylib::from_inner(dylib.clone()),
                owned: OwnedSymbols::default(),
                state: TrackerState::new(serial),
                prefetch_hints: PrefetchHints::default(),
            })
        });
        if self.clears.running > 0 {
            self.clears.created.push(core.clone());
        }
        Ok(core)
    }

    /// The definition of `name` that a search with this visibility sees.
    pub(crate) fn find_visible(&self, name: &str, visibility: Visibility) -> Option<SymbolId> {
        self.find_visible_hashed(name.as_bytes(), NameHash::of(name), visibility).map(|(id, _)| id)
    }

    /// As [`find_visible`](Self::find_visible), for a name whose hash is known.
    #[inline]
    pub(crate) fn find_visible_hashed(
        &self,
        name: &[u8],
        hash: NameHash,
        visibility: Visibility,
    ) -> Option<(SymbolId, &Symbol)> {
        self.table.find_hashed(name, hash).filter(|(_, symbol)| visibility.sees(symbol.flags))
    }

    /// The failure of the last definition of a name in this dylib, which is `own`. `None` if that did not fail, or if a search
    /// with this visibility would not have found it.
    pub(crate) fn failure_of_name(&self, own: &DylibInner, name: &str, visibility: Visibility) -> Option<Error> {
        let cause = self.table.failure_of_name(name, visibility)?;
        Some(Error::failed_to_materialize(&own.name, vec![name.to_string()], cause))
    }

    /// The failure of a definition that this dylib, which is `own`, does not have any more. `None` if it did not fail.
    pub(crate) fn failure_of_definition(&self, own: &DylibInner, id: SymbolId, name: &Name) -> Option<Error> {
        let cause = self.table.failure_of_definition(id, name)?;
        Some(Error::failed_to_materialize(&own.name, vec![name.to_string()], cause))
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    /// Whether a generator may still define names that the table does not have.
    pub(crate) fn has_generators(&self) -> bool {
        !self.generators.is_empty()
    }

    /// Checks that the dylib is open and the tracker live, so that it may own a new definition.
    pub(crate) fn check_live(&self, core: &TrackerCore) -> Result<()> {
        if !self.open {
            return Err(core.dylib().defunct());
        }
        if core.state.is_live() { Ok(()) } else { Err(core.defunct()) }
    }

    /// As [`check_live`](Self::check_live), for the tracker into which `core` was merged, if it was.
    pub(crate) fn check_current_live(&self, core: &Arc<TrackerCore>) -> Result<()> {
        if !self.open {
            return Err(core.dylib().defunct());
        }
        // S2: under this dylib's lock a live tracker stays live. Only for a tracker that is not live is its own state
        // locked, to find the tracker into which it was merged.
        if core.state.is_live() || core.is_current_live() { Ok(()) } else { Err(core.current().defunct()) }
    }

    /// The dylibs that a link into this dylib, which is `own`, searches after it. Some may be closed.
    pub(crate) fn link_cache(&mut self, own: &DylibInner) -> LinkCache {
        let order = &self.link_order;
        let others = || order.iter().filter(|(dylib, _)| !std::ptr::eq(dylib.as_ptr(), own));
        let handle = |dylib: &Weak<DylibInner>| dylib.upgrade().map(JitDylib::from_inner);
        let alive = || others().filter_map(|(dylib, visibility)| Some((handle(dylib)?, *visibility))).collect();
        self.link_cache.get_or_insert_with(|| Arc::new(alive())).clone()
    }

    /// Whether all trackers are merged or reclaimed.
    pub(crate) fn has_no_tracker(&self) -> bool {
        !self.table.has_trackers()
    }

    /// A clear begins. It reads many trackers in pieces. From here on, those that are created are listed for it.
    pub(crate) fn begin_clear(&mut self) -> ClearPosition {
        self.clears.running += 1;
        ClearPosition(self.clears.created.len())
    }

    /// The trackers that were created since the last call, or since the clear began.
    pub(crate) fn created_since(&self, position: &mut ClearPosition) -> Vec<Arc<TrackerCore>> {
        let created = &self.clears.created[position.0..];
        position.0 = self.clears.created.len();
        created.iter().filter(|core| core.state.is_live()).cloned().collect()
    }

    /// A clear ends. The caller drops the result after it has released the lock.
    pub(crate) fn end_clear(&mut self, _: ClearPosition) -> Vec<Arc<TrackerCore>> {
        self.clears.running -= 1;
        if self.clears.running == 0 { std::mem::take(&mut self.clears.created) } else { Vec::new() }
    }

    /// Clears the default tracker if it is `core`. The next use creates a new one.
    pub(crate) fn clear_default_tracker(&mut self, core: &TrackerCore) {
        self.default_tracker.take_if(|default| default.id == core.id);
    }

    /// Releases the pin that handles of a tracker share. Called before the tracker is retired or transferred: from then on, only
    /// handles pin it.
    #[inline]
    pub(in crate::session) fn release_shared_pin(&mut self, core: &TrackerCore) {
        if !self.shared_pins.is_empty() {
            self.shared_pins.release(core.id);
        }
    }

    /// Removes the record of a tracker whose resources are released.
    pub(crate) fn remove_tracker(&mut self, core: &TrackerCore) -> Option<TrackerRecord> {
        if !self.shared_pins.is_empty() {
            self.shared_pins.remove(core.id);
        }
        self.table.remove_tracker(core.id)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::session::ExecutionSession;

    #[test]
    fn trackers_are_listed_for_a_clear_only_if_they_are_created_meanwhile() {
        let session = ExecutionSession::new();
        let dylib = session.create_dylib("dylib").unwrap();
        let listed = || dylib.inner().state.lock().clears.created.len();
        let _before = dylib.create_tracker().unwrap();
        assert_eq!(listed(), 0);
        let mut position = dylib.inner().state.lock().begin_clear();
        let during = dylib.create_tracker().unwrap();
        let created = dylib.inner().state.lock().created_since(&mut position);
        assert_eq!(created.iter().map(|core| core.id).collect::<Vec<_>>(), [during.core().id]);
        assert!(dylib.inner().state.lock().created_since(&mut position).is_empty());
        let created = dylib.inner().state.lock().end_clear(position);
        assert_eq!((created.len(), listed()), (1, 0));
        let _after = dylib.create_tracker().unwrap();
        assert_eq!(listed(), 0);
    }
}
