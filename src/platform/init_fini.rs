//! [`InitFiniRegistry`]: runs initialisers once before an object's code is used, and finalisers before the code is freed.
//!
//! | when | what happens |
//! |---|---|
//! | a link is recorded | its initialisers are recorded under its key, and the object is queued |
//! | `run_pending` | the ready objects of the dylib are one *batch*: their initialisers run in the order of `call_order.rs` |
//! | an initialiser throws or panics | its object fails; the exception continues to the caller of `run_pending` |
//! | the key is reclaimed | exit handlers run, latest first; then finalisers, in reverse order |
//! | the last `deinitialize` of a dylib | the same, dylib by dylib; then the objects are queued again |
//! | the program or the process exits | the same; a later removal runs none of them again |
//! | the key is transferred | the ledger moves the records |
//!
//! # Phases of an object
//! The thread that holds the lock of the queue makes each step, except the step to `Finalized`, which any finalising thread
//! makes.
//!
//! ```text
//!      ┌───────────── its dylib is deinitialised ─────────────┐
//!      ▼                                                      │
//!   Waiting ── a batch has it ──► Begun ── finalised ──► Finalized
//!      ▲                            │ └── one of its initialisers throws ──► Failed
//!      └── another object throws ───┘
//!          before its first initialiser
//! ```
//!
//! Only objects in `Begun` run finalisers. Objects in every phase except `Waiting` run exit handlers.
//!
//! # A failed object
//! Its names are removed from the dylib and may be defined again. Then the exit handlers that it has registered run.
//! Its memory stays until its tracker is removed, because the exception may have a type or a text that is in this
//! memory. The other objects of the batch continue at the next `run_pending` where they stopped.
//!
//! # Threads
//! One thread at a time initialises or finalises dylibs (`init_queue.rs`), and may do so again from inside an initialiser. Other
//! threads wait only if they need a dylib of that thread. No other lock is held while linked code runs, and the tracker of each
//! object is pinned meanwhile.

use std::fmt;

use rustc_hash::FxHashMap;

use crate::base::{ArcShard, ExecutorAddr, ShardedArc, shrunk_capacity, sort_by_order};
use crate::error::{Error, Result};
use crate::host::{Executor, HandlerScope, ProcessExitHook, ViewScope};
use crate::layer::{LinkHooks, LinkOrigin, LinkPlugin};
use crate::link::{FoundExternal, Initializer, InitializerKind, LinkGraph, LinkedObject, PlacedLink};
use crate::platform::call_order::CallOrder;
use crate::platform::dependency_order::dependencies_first;
use crate::platform::dso_handle::define_dso_handle;
use crate::platform::init_counts::{Decrement, InitCounts};
use crate::platform::init_queue::{InitQueue, InitToken, QueuedObject};
use crate::platform::loader_view::{LoaderServices, ObjectLoader, PendingInitializers};
use crate::session::{
    ExecutionSession, JitDylib, Ledger, ManagerRank, Pin, ResourceKey, ResourceManager, SymbolWatch, TrackerWatch,
    Watched,
};
use crate::sync::{Arc, AtomicBool, AtomicU64, AtomicUsize, Mutex, Ordering, StaticCell};

/// Runs initialisers and finalisers. Add it to the layer as a plugin, and [register](Self::register) it with the session.
pub struct InitFiniRegistry {
    inner: ShardedArc<RegistryInner>,
    /// Runs exit handlers and finalisers when the process exits.
    exit_hook: Box<dyn ProcessExitHook>,
}

/// What the registry and the hooks of each link share. It is the manager, so that only the session can call it:
/// `remove_resources` runs finalisers.
struct RegistryInner {
    executor: Arc<dyn Executor>,
    records: Ledger<Arc<ObjectRecord>>,
    queue: InitQueue<Arc<ObjectRecord>>,
    next_batch: AtomicU64,
    /// Number of objects that failed because an initialiser threw or panicked. The increment is Release and pairs with the Acquire load:
    /// who sees it finds no name of the object.
    failures: AtomicUsize,
    /// The records that are not in `Waiting`, by address, until their key is reclaimed or their dylib is deinitialised.
    begun: Mutex<FxHashMap<usize, Arc<ObjectRecord>>>,
    counts: InitCounts,
    /// Whether any dylib was ever counted. Relaxed: a removal that follows a count sees it, and the counts have their own lock.
    has_counts: AtomicBool,
    /// What the objects see through the loader's functions. Empty without a [`Jit`](crate::Jit): then they call the
    /// loader's own.
    loader: StaticCell<Arc<LoaderServices>>,
}

/// The initialisers, finalisers and exit handlers of one object.
struct ObjectRecord {
    dylib: u64,
    sequence: u64,
    object: Arc<str>,
    watch: SymbolWatch,
    tracker: TrackerWatch,
    initializers: Vec<Initializer>,
    exit_scope: Box<dyn HandlerScope>,
    /// Open as long as the record lives: until the finalisers have run.
    _loader_scope: Option<Box<dyn ViewScope>>,
    state: Mutex<InitState>,
}

#[derive(Clone, Copy)]
struct InitState {
    phase: Phase,
    /// The batch in which the object was begun.
    batch: u64,
    /// Number of its initialisers that have been called.
    called_count: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No initialiser has run.
    Waiting,
    /// A batch has the object: its initialisers run or have run.
    Begun,
    /// One of its initialisers threw or panicked.
    Failed,
    /// Its finalisers have run or are running.
    Finalized,
}

impl InitFiniRegistry {
    /// An empty registry.
    #[cfg(feature = "unstable")]
    pub fn new() -> Arc<InitFiniRegistry> {
        InitFiniRegistry::with_executor(Arc::new(crate::host::InProcess))
    }

    /// As [`new`](Self::new), for code that runs in the process behind `executor`.
    pub(crate) fn with_executor(executor: Arc<dyn Executor>) -> Arc<InitFiniRegistry> {
        let inner = ShardedArc::new(RegistryInner {
            executor: executor.clone(),
            records: Ledger::new(),
            queue: InitQueue::new(),
            next_batch: AtomicU64::new(0),
            failures: AtomicUsize::new(0),
            begun: Mutex::new(FxHashMap::default()),
            counts: InitCounts::new(),
            has_counts: AtomicBool::new(false),
            loader: StaticCell::new(),
        });
        // Weak, because the list of hooks belongs to the process and must not keep the registry alive.
        let weak = Arc::downgrade(inner.inner());
        let exit_hook = executor.add_exit_hook(Arc::new(move |status| {
            if let Some(inner) = weak.upgrade() {
                inner.finalize_all(status);
            }
        }));
        Arc::new(InitFiniRegistry { inner, exit_hook })
    }

    /// Registers the registry with a session. From now on the session runs the finalisers of a tracker when it reclaims the
    /// tracker, before its stubs and its code are freed. A second call does nothing.
    pub fn register(&self, session: &ExecutionSession) {
        session.register_ranked(ManagerRank::Initializers, self.inner.inner().clone());
    }

    /// Sets what the objects that are linked from now on see through the loader's functions.
    pub(crate) fn set_loader_services(&self, services: Arc<LoaderServices>) {
        self.inner.loader.get_or_init(|| services);
    }

    /// Whether any object of the session waits for its initialisers or is being initialised.
    pub(crate) fn has_pending(&self) -> bool {
        !self.inner.queue.is_finished()
    }

    /// Runs the pending initialisers of everything that `dylib` links against and then its own. Waits for initialisers of these
    /// dylibs that run in other threads. Returns the number of functions called.
    ///
    /// This runs linked code, so the caller has the user's consent (H3). An exception or panic of an initialiser unwinds through
    /// this function.
    pub(crate) fn run_pending(&self, dylib: &JitDylib) -> usize {
        self.run_pending_of_all(std::iter::once(dylib))
    }

    /// As [`run_pending`](Self::run_pending), for each of `dylibs` in order. Goes to each dylib once.
    pub(crate) fn run_pending_of_all<'a>(&self, dylibs: impl Iterator<Item = &'a JitDylib>) -> usize {
        if !self.has_pending() {
            return 0;
        }
        dependencies_first(dylibs).iter().map(|dylib| self.run_pending_of(dylib)).sum()
    }

    /// If no object of the session waits for its initialisers or is being initialised: a number that is the same as long as
    /// none is queued.
    #[inline]
    pub(crate) fn finished_queue(&self) -> Option<usize> {
        self.inner.queue.finished()
    }

    fn run_pending_of(&self, dylib: &JitDylib) -> usize {
        let Some(mut guard) = InitGuard::acquire(&self.inner, dylib.id()) else { return 0 };
        self.exit_hook.register_at_libc();
        let calls = guard.begin();
        for (_, index, initializer) in &calls {
            // Set before the call: if the initialiser throws, `drop` of the guard fails this object.
            guard.running = Some(*index);
            guard.objects[*index].0.state.lock().called_count += 1;
            self.inner.executor.run_initializer(*initializer);
        }
        guard.running = None;
        calls.len()
    }

    /// Number of objects that have failed so far. If a caller reads this before a lookup and reads another number after
    /// `run_pending`, the symbol that it found may be of a failed object.
    pub(crate) fn failures(&self) -> usize {
        self.inner.failures.load(Ordering::Acquire)
    }

    /// Counts one more initialisation of a dylib, before it is initialised. If the returned guard is dropped without
    /// [`commit`](InitializeGuard::commit), the count is undone.
    pub(crate) fn begin_initialize(&self, dylib: &JitDylib) -> InitializeGuard<'_> {
        let order: Vec<_> = dependencies_first([dylib]).iter().map(JitDylib::id).collect();
        self.inner.has_counts.store(true, Ordering::Relaxed);
        self.inner.counts.increment(dylib.id(), &order);
        InitializeGuard { inner: &self.inner, dylib: dylib.id(), is_committed: false }
    }

    /// Undoes the count of one initialisation. If it was the last, runs the exit handlers and finalisers of the dylib, and of
    /// the dylibs that it links against and that no other initialised dylib uses. This includes dylibs that only lookups have
    /// initialised. Returns the number of functions called. `None` if the count of the dylib is already zero.
    pub(crate) fn deinitialize(&self, session: &ExecutionSession, dylib: &JitDylib) -> Option<usize> {
        // A dylib without trackers is removed without a call of `remove_resources`.
        self.inner.counts.remove_unlisted(|| session.unreleased_dylibs());
        self.inner.deinitialize(dylib.id())
    }

    /// Runs the exit handlers and finalisers of the initialised objects under a key, before the key is removed. The removal runs
    /// none of them again. The caller holds a pin of the tracker (H2).
    pub(crate) fn run_finalizers(&self, key: ResourceKey) {
        let records = self.inner.records.inspect(key, |records| records.to_vec());
        self.inner.finalize(&records);
    }
}

/// An initialisation that is counted and not complete.
#[must_use]
pub(crate) struct InitializeGuard<'a> {
    inner: &'a RegistryInner,
    dylib: u64,
    is_committed: bool,
}

impl InitializeGuard<'_> {
    /// Keeps the count, because the dylib is initialised.
    pub(crate) fn commit(mut self) {
        self.inner.counts.succeed(self.dylib);
        self.is_committed = true;
    }
}

impl Drop for InitializeGuard<'_> {
    fn drop(&mut self) {
        if !self.is_committed && !self.inner.counts.undo_failed(self.dylib) {
            self.inner.deinitialize(self.dylib);
        }
    }
}

/// The lock of the queue, with the objects of a batch and their pins. Dropping it releases the lock.
struct InitGuard<'a> {
    inner: &'a RegistryInner,
    /// `None` after the release.
    token: Option<InitToken>,
    /// Empty if the queue was locked to finalise.
    objects: Vec<(Arc<ObjectRecord>, Pin)>,
    /// Index of the object whose initialiser runs.
    running: Option<usize>,
}

impl<'a> InitGuard<'a> {
    /// Locks the queue, with the ready objects of a dylib. `None` if no object of the dylib is queued, also after waiting for
    /// another thread that initialises them.
    fn acquire(inner: &'a RegistryInner, dylib: u64) -> Option<InitGuard<'a>> {
        let (token, queued) = inner.queue.acquire(dylib)?;
        // The pins are taken outside the mutex of the queue, because they take locks of the session.
        let mut guard = InitGuard { inner, token: Some(token), objects: Vec::new(), running: None };
        let mut unready = Vec::new();
        let mut removed_count = 0;
        for record in queued {
            match record.watch.pin() {
                Watched::Ready(pin) => guard.objects.push((record, pin)),
                Watched::Unready => unready.push(record),
                Watched::Gone => removed_count += 1,
            }
        }
        inner.queue.requeue(unready, removed_count);
        Some(guard)
    }

    /// Locks the queue for `dylibs`, so that no other thread initialises one of them.
    fn lock(inner: &'a RegistryInner, dylibs: &[u64]) -> InitGuard<'a> {
        InitGuard { inner, token: Some(inner.queue.lock(dylibs)), objects: Vec::new(), running: None }
    }

    /// Begins the objects as one batch. Returns the calls in order, each with the index of its object.
    fn begin(&self) -> Vec<(CallOrder, usize, ExecutorAddr)> {
        let batch = self.inner.next_batch.fetch_add(1, Ordering::Relaxed);
        let mut calls = Vec::new();
        for (index, (record, _)) in self.objects.iter().enumerate() {
            let called_count = {
                let mut state = record.state.lock();
                match state.phase {
                    Phase::Waiting => *state = InitState { phase: Phase::Begun, batch, called_count: 0 },
                    Phase::Begun => {}
                    // A deferred object was finalised meanwhile, because the process exits.
                    Phase::Finalized | Phase::Failed => continue,
                }
                state.called_count
            };
            self.inner.begun.lock().insert(Arc::as_ptr(record) as usize, record.clone());
            let mut own: Vec<_> = record.calls_of(InitializerKind::Init).collect();
            sort_by_order(&mut own, |(a, _), (b, _)| a.to_initialize().cmp(&b.to_initialize()));
            calls.extend(own.into_iter().skip(called_count).map(|(order, initializer)| (order, index, initializer)));
        }
        sort_by_order(&mut calls, |(a, ..), (b, ..)| a.to_initialize().cmp(&b.to_initialize()));
        calls
    }
}

impl Drop for InitGuard<'_> {
    /// Also runs if an initialiser panics or throws. Then its object fails, and the lock is released for other threads.
    fn drop(&mut self) {
        let failed = self.running.map(|index| self.objects[index].0.clone());
        let mut unfinished = Vec::new();
        if let Some(failed) = &failed {
            self.inner.fail_object(failed);
            let others = self.objects.iter().map(|(record, _)| record).filter(|record| !Arc::ptr_eq(record, failed));
            unfinished.extend(others.filter(|record| self.inner.defer_object(record)).cloned());
        }
        let finished_count = self.objects.len() - unfinished.len();
        if let Some(token) = self.token.take() {
            self.inner.queue.release(token, finished_count, unfinished);
        }
    }
}

impl PendingInitializers for InitFiniRegistry {
    fn has_pending(&self) -> bool {
        InitFiniRegistry::has_pending(self)
    }

    fn run_pending(&self, dylib: &JitDylib) {
        InitFiniRegistry::run_pending(self, dylib);
    }

    fn failures(&self) -> usize {
        InitFiniRegistry::failures(self)
    }
}

impl QueuedObject for Arc<ObjectRecord> {
    fn dylib(&self) -> u64 {
        self.dylib
    }

    fn key(&self) -> usize {
        Arc::as_ptr(self) as usize
    }
}

impl ObjectRecord {
    /// The initialisers or finalisers of the object, each with its place in the order.
    fn calls_of(&self, kind: InitializerKind) -> impl Iterator<Item = (CallOrder, ExecutorAddr)> {
        let batch = self.state.lock().batch;
        let wanted = self.initializers.iter().filter(move |initializer| initializer.kind == kind);
        wanted.map(move |function| (CallOrder::new(batch, self.sequence, function), function.address))
    }

    fn phase(&self) -> Phase {
        self.state.lock().phase
    }

    /// Changes the phase from `from` to `to`. Returns false and changes nothing if the phase is not `from`.
    fn change(&self, from: Phase, to: Phase) -> bool {
        let mut state = self.state.lock();
        let is_from = state.phase == from;
        if is_from {
            state.phase = to;
        }
        is_from
    }
}

impl RegistryInner {
    /// Fails an object after one of its initialisers threw: removes its names, and runs the exit handlers that it has
    /// registered. The caller holds the lock of the queue and a pin of the object.
    fn fail_object(&self, failed: &ObjectRecord) {
        failed.change(Phase::Begun, Phase::Failed);
        failed.watch.remove_unit(&Error::other(format!("an initialiser of {} failed", failed.object)));
        // After the names are removed: a thread that sees this count does not find the names.
        self.failures.fetch_add(1, Ordering::Release);
        self.executor.run_exit_handlers(&[failed.exit_scope.number()]);
    }

    /// Whether an object of an interrupted batch has initialisers that have not run. If none has run, its phase is `Waiting`
    /// again.
    fn defer_object(&self, record: &Arc<ObjectRecord>) -> bool {
        let total = record.initializers.iter().filter(|initializer| initializer.kind == InitializerKind::Init).count();
        let mut state = record.state.lock();
        if state.phase != Phase::Begun || state.called_count == total {
            return false;
        }
        if state.called_count == 0 {
            state.phase = Phase::Waiting;
        }
        true
    }

    /// Runs the exit handlers and finalisers of those `records` whose initialisers have begun. Each runs once, however often
    /// this is called. Returns the number of functions called.
    ///
    /// A handler or finaliser may call `exit`, which calls this again and does not return. The inner call runs the remaining
    /// exit handlers. The remaining finalisers do not run, as with the C library.
    fn finalize(&self, records: &[Arc<ObjectRecord>]) -> usize {
        let begun: Vec<_> = records.iter().filter(|record| record.phase() != Phase::Waiting).collect();
        let scopes: Vec<u64> = begun.iter().map(|record| record.exit_scope.number()).collect();
        let mut count = self.executor.run_exit_handlers(&scopes);
        let unfinalized = begun.iter().filter(|record| record.change(Phase::Begun, Phase::Finalized));
        let mut calls: Vec<_> = unfinalized.flat_map(|record| record.calls_of(InitializerKind::Fini)).collect();
        sort_by_order(&mut calls, |(a, _), (b, _)| a.to_finalize().cmp(&b.to_finalize()));
        for calls in calls.chunk_by(|(order, _), (next, _)| order.is_grouped_with(*next)) {
            for (_, finalizer) in calls {
                self.executor.run_initializer(*finalizer);
            }
            // Finalisers may have registered exit handlers.
            count += calls.len() + self.executor.run_exit_handlers(&scopes);
        }
        count
    }

    fn deinitialize(&self, dylib: u64) -> Option<usize> {
        let uses = self.counts.uses(dylib);
        // Locked before the count falls: a thread that initialises the dylib again waits until it is finalised.
        let _guard = InitGuard::lock(self, &uses);
        match self.counts.decrement(dylib) {
            Decrement::NotInitialized => None,
            Decrement::StillInitialized => Some(0),
            Decrement::Unused(dylibs) => Some(dylibs.into_iter().map(|dylib| self.finalize_dylib(dylib)).sum()),
        }
    }

    /// Runs the exit handlers and finalisers of a dylib, and queues its objects again.
    fn finalize_dylib(&self, dylib: u64) -> usize {
        let pinned = self.pin_begun(|record| record.dylib == dylib);
        let records: Vec<_> = pinned.iter().map(|(record, _)| record.clone()).collect();
        let count = self.finalize(&records);
        let mut waiting = FxHashMap::default();
        for record in records {
            // The next initialisation registers these handlers again, and the C library must not have them twice.
            record.exit_scope.deregister_at_libc();
            if record.change(Phase::Finalized, Phase::Waiting) {
                waiting.insert(Arc::as_ptr(&record) as usize, record);
            }
        }
        // A deferred object is in the queue already.
        self.queue.remove(waiting.values());
        for (address, record) in waiting {
            self.begun.lock().remove(&address);
            self.queue.push(record);
        }
        // An object whose tracker was removed meanwhile is reclaimed here, which also removes it from the queue.
        drop(pinned);
        count
    }

    /// Runs the exit handlers and finalisers of all initialised objects, because the process exits. Removes nothing, because
    /// other threads still run. If another thread reclaims an object, that thread finalises it.
    fn finalize_all(&self, status: Option<i32>) {
        if let Some(status) = status {
            self.executor.set_exit_status(status);
        }
        let pinned = self.pin_begun(|_| true);
        let records: Vec<_> = pinned.iter().map(|(record, _)| record.clone()).collect();
        self.finalize(&records);
    }

    /// The wanted records that are not in `Waiting`, each with a pin. Records whose tracker is being reclaimed are left out.
    fn pin_begun(&self, is_wanted: impl Fn(&ObjectRecord) -> bool) -> Vec<(Arc<ObjectRecord>, Pin)> {
        let begun: Vec<_> = self.begun.lock().values().filter(|record| is_wanted(record)).cloned().collect();
        begun.into_iter().filter_map(|record| record.tracker.pin().map(|pin| (record, pin))).collect()
    }

    /// Removes the records of a key that is being reclaimed from the table and the queue.
    fn remove_records(&self, removed: &[Arc<ObjectRecord>]) {
        let mut begun = self.begun.lock();
        removed.iter().for_each(|record| drop(begun.remove(&(Arc::as_ptr(record) as usize))));
        if let Some(capacity) = shrunk_capacity(begun.len(), begun.capacity()) {
            begun.shrink_to(capacity);
        }
        drop(begun);
        self.queue.remove(removed);
    }
}

impl ResourceManager for RegistryInner {
    fn remove_resources(&self, dylib: &JitDylib, key: ResourceKey) -> Result<()> {
        if self.has_counts.load(Ordering::Relaxed) && dylib.is_defunct() {
            self.counts.remove(dylib.id());
        }
        let records = self.records.take(key);
        if records.is_empty() {
            return Ok(());
        }
        self.remove_records(&records);
        self.finalize(&records);
        Ok(())
    }

    /// True until a dylib is counted. After that, the removal of any tracker must reach this manager, because the removal of a
    /// dylib also removes its count.
    fn skips_unused_keys(&self) -> bool {
        !self.has_counts.load(Ordering::Relaxed)
    }

    /// Runs the thread-local destructors of the objects under the key that are pending in the calling thread. The thread
    /// holds a pin of each object because of them.
    fn release_pins(&self, _dylib: &JitDylib, key: ResourceKey) {
        let records = self.records.inspect(key, |records| records.to_vec());
        let scopes: Vec<u64> = records.iter().map(|record| record.exit_scope.number()).collect();
        self.executor.run_thread_dtors(&scopes);
    }

    fn transfer_resources(&self, _dylib: &JitDylib, destination: ResourceKey, source: ResourceKey) {
        self.records.transfer(destination, source);
    }
}

impl LinkPlugin for InitFiniRegistry {
    /// Gives the object its own `__dso_handle` if it refers to one or registers exit handlers, and its own functions of the
    /// loader if it refers to them.
    fn join(&self, origin: &LinkOrigin<'_>, graph: &mut LinkGraph) -> Result<Option<Box<dyn LinkHooks>>> {
        let exit_scope = define_dso_handle(graph, &*self.inner.executor);
        let services = self.inner.loader.get();
        let loader = services.and_then(|services| ObjectLoader::define(graph, origin, services));
        if exit_scope.is_none() && loader.is_none() && !graph.has_initializers() {
            return Ok(None);
        }
        Ok(Some(Box::new(InitFiniHooks { inner: self.inner.shard(), exit_scope, loader })))
    }
}

struct InitFiniHooks {
    inner: Arc<ArcShard<RegistryInner>>,
    /// `None` if the object has no `__dso_handle`.
    exit_scope: Option<Box<dyn HandlerScope>>,
    /// `None` if the object refers to no function of the loader.
    loader: Option<ObjectLoader>,
}

impl LinkHooks for InitFiniHooks {
    fn bind(&mut self, link: &PlacedLink, found: &mut [FoundExternal]) -> Result<()> {
        self.loader.iter().for_each(|loader| loader.bind(link, found));
        Ok(())
    }

    fn record(self: Box<Self>, key: ResourceKey, origin: &LinkOrigin<'_>, linked: &LinkedObject) {
        if linked.initializers.is_empty() && self.exit_scope.is_none() && self.loader.is_none() {
            return;
        }
        // Without a claimed symbol no lookup can reach the object, so its initialisers never run.
        let Some(watch) = origin.watch() else { return };
        let exit_scope = self.exit_scope.unwrap_or_else(|| self.inner.executor.open_exit_scope());
        let (tracker, object) = (origin.tracker(), origin.object().clone());
        exit_scope.set_keep_alive(Arc::new(move |holder: &str| {
            let pin = tracker.pin()?;
            Some(Box::new(pin.into_revocable(format!("{holder} has pending destructors of {object}"))))
        }));
        let record = Arc::new(ObjectRecord {
            dylib: origin.dylib().id(),
            sequence: origin.sequence(),
            object: origin.object().clone(),
            watch,
            tracker: origin.tracker(),
            initializers: linked.initializers.clone(),
            exit_scope,
            _loader_scope: self.loader.map(ObjectLoader::into_scope),
            state: Mutex::new(InitState { phase: Phase::Waiting, batch: 0, called_count: 0 }),
        });
        self.inner.records.record(key, record.clone());
        self.inner.queue.push(record);
    }
}

impl fmt::Debug for InitFiniRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The lock is released before formatting, because the formatter may be code of the embedder.
        let count = self.inner.queue.len();
        write!(f, "init/fini registry, {count} objects to initialise")
    }
}
