//! [`InitFiniRegistry`]: initialisers run once, before an object's code is used; finalisers before it goes.
//!
//! | when | what |
//! |---|---|
//! | a link is about to be emitted | its initialisers are recorded under its key, and wait |
//! | `run_pending` | those of objects that are ready run, by `(priority, object, position)` over all that wait in the dylib: a turn |
//! | an initialiser throws or panics | its object is taken back; the exception goes on to whoever asked for the turn |
//! | the key is reclaimed | exit handlers, the last registered first; then finalisers, in exact reverse of `(turn, priority, object, position)` |
//! | the last `close` of a dylib | the same, dylib by dylib; initialisers then wait again |
//! | a program ends, or the process | the same, ahead of a removal, which then runs none of them again |
//! | the key is transferred | the records go along |
//!
//! What has become of one object's initialisers; each step is taken by the thread that has the turn of its dylib, but for
//! the last, which is that of whoever finalises:
//!
//! ```text
//!   Waiting ── a turn takes it ──► Begun ── finalised ──► Finalized
//!      ▲                            │ └── one of its own throws ──► Failed
//!      └── closed; or another's ────┘
//!          throws before its first
//! ```
//!
//! Finalisers run only of objects that are Begun, exit handlers of all that have ever been. What a failed object has
//! registered so far is called at once; its names leave the dylib, where they may be defined again. Its memory stays
//! with its tracker until that is removed: the exception that is on its way may be of a type, and hold text, that lie in
//! there. Other objects of the turn go on where they were left, at the next one.
//!
//! One thread initialises at a time, and may do so again from inside an initialiser; others wait for the dylib that they
//! need (`init_queue.rs`). No lock is held while anything runs, and each object's tracker is pinned meanwhile.

use std::cmp::Reverse;
use std::fmt;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::base::{ArcShard, ExecutorAddr, ShardedArc, capacity_to_keep};
use crate::error::{Error, Result};
use crate::host::{self, ExitHook, ExitScope};
use crate::layer::{LinkHooks, LinkOrigin, LinkPlugin};
use crate::link::{Initializer, InitializerKind, LinkGraph, LinkedObject};
use crate::platform::dso_handle::give_own_handle;
use crate::platform::init_queue::{InitQueue, InitTurn, Waiting};
use crate::platform::opened::{Closed, OpenDylibs};
use crate::session::{JitDylib, Ledger, Pin, ResourceKey, ResourceManager, SymbolWatch, TrackerWatch, Watched};
use crate::sync::{Arc, AtomicBool, AtomicU64, AtomicUsize, Mutex, Ordering};

/// Runs initialisers and finalisers. Add it to the layer as a plugin, and register it with the session as a
/// [`ResourceManager`] after the layer.
pub struct InitFiniRegistry {
    books: ShardedArc<Books>,
    /// Runs what is owed when the process exits.
    exit_hook: ExitHook,
}

struct Books {
    records: Ledger<Arc<ObjectRecord>>,
    queue: InitQueue<Arc<ObjectRecord>>,
    turns: AtomicU64,
    /// How many objects were taken back because an initialiser failed.
    failures: AtomicUsize,
    /// The records that are not Waiting any more, by address, until their key is reclaimed or their dylib closed.
    begun: Mutex<FxHashMap<usize, Arc<ObjectRecord>>>,
    opened: OpenDylibs,
    /// Whether any dylib was ever opened.
    has_opened: AtomicBool,
}

/// What one object wants called.
struct ObjectRecord {
    dylib: u64,
    sequence: u64,
    object: Arc<str>,
    watch: SymbolWatch,
    tracker: TrackerWatch,
    initializers: Vec<Initializer>,
    exit_scope: ExitScope,
    state: Mutex<InitState>,
}

#[derive(Clone, Copy)]
struct InitState {
    phase: Phase,
    /// In which turn it was begun.
    turn: u64,
    /// How many of its initialisers have been called.
    called: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Waiting,
    Begun,
    Failed,
    /// Its finalisers have been called, or are.
    Finalized,
}

/// In which order something is called: turn, priority, object, position.
type Order = (u64, u32, u64, u32);

impl InitFiniRegistry {
    /// An empty registry.
    pub fn new() -> Arc<InitFiniRegistry> {
        let books = ShardedArc::new(Books {
            records: Ledger::new(),
            queue: InitQueue::new(),
            turns: AtomicU64::new(0),
            failures: AtomicUsize::new(0),
            begun: Mutex::new(FxHashMap::default()),
            opened: OpenDylibs::new(),
            has_opened: AtomicBool::new(false),
        });
        // Weak: the list of hooks is the process's.
        let known = Arc::downgrade(books.whole());
        let exit_hook = ExitHook::new(move |status| {
            if let Some(books) = known.upgrade() {
                books.finalize_all(status);
            }
        });
        Arc::new(InitFiniRegistry { books, exit_hook })
    }

    /// Runs what waits in `dylib` and in everything that it links against, dependencies first, and waits for what another
    /// thread is running there. Returns the number of functions called.
    ///
    /// This runs linked code: the caller has its user's word that it may (H3). An exception or panic of an initialiser
    /// passes through here.
    pub(crate) fn run_pending(&self, dylib: &JitDylib) -> usize {
        if self.books.queue.is_finished() {
            return 0;
        }
        dependencies_first(dylib).iter().map(|dylib| self.run_pending_of(dylib)).sum()
    }

    fn run_pending_of(&self, dylib: &JitDylib) -> usize {
        let Some(mut turn) = Turn::take(&self.books, dylib.id()) else { return 0 };
        self.exit_hook.tell_the_c_library();
        let calls = turn.begin();
        for (_, index, initializer) in &calls {
            // Found so by the turn's drop, if this does not return.
            turn.running = Some(*index);
            turn.taken[*index].0.state.lock().called += 1;
            host::run_initializer(*initializer);
        }
        turn.running = None;
        calls.len()
    }

    /// How many objects have been taken back so far because an initialiser failed. Whoever found a symbol after asking,
    /// and sees another number after it has initialised, may have found one of those.
    pub(crate) fn failures(&self) -> usize {
        self.books.failures.load(Ordering::Acquire)
    }

    /// Counts one more opening of a dylib, ahead of its initialisation. It is not counted if what is returned is dropped
    /// before it is told that all went well.
    pub(crate) fn open(&self, dylib: &JitDylib) -> Opening<'_> {
        let order: Vec<_> = dependencies_first(dylib).iter().map(JitDylib::id).collect();
        self.books.has_opened.store(true, Ordering::Relaxed);
        let was_open = self.books.opened.open(dylib.id(), &order);
        Opening { books: &self.books, dylib: dylib.id(), was_open, is_done: false }
    }

    /// Counts one opening less. At the last, runs the exit handlers and finalisers of the dylib, and of what it links
    /// against and nobody else has open; what has no opening of its own and was initialised by lookups is not spared.
    /// Returns the number of functions called; `None` when the dylib is not open.
    pub(crate) fn close(&self, dylib: &JitDylib) -> Option<usize> {
        self.books.close(dylib.id())
    }

    /// Runs the exit handlers and finalisers of what is under a key and has been initialised, ahead of its removal,
    /// which then runs none of them again. The caller holds a pin of the tracker (H2).
    pub(crate) fn run_finalizers(&self, key: ResourceKey) {
        let records = self.books.records.inspect(key, |records| records.to_vec());
        finalize(&records);
    }
}

/// An opening that is on its way.
#[must_use]
pub(crate) struct Opening<'a> {
    books: &'a Books,
    dylib: u64,
    was_open: bool,
    is_done: bool,
}

impl Opening<'_> {
    /// The dylib is initialised.
    pub(crate) fn succeed(mut self) {
        self.is_done = true;
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        match (self.is_done, self.was_open) {
            (true, _) => {}
            // Another opening may have been closed meanwhile, and counted on this one.
            (false, true) => drop(self.books.close(self.dylib)),
            // What was initialised all the same is in use by whoever looked it up, and stays so until it is removed.
            (false, false) => drop(self.books.opened.close(self.dylib)),
        }
    }
}

/// Runs the exit handlers and finalisers of those of `records` whose initialisers have begun; each once, however often
/// this is called. Returns the number of functions called.
///
/// It may be called again from inside a handler or finaliser that will not return, because it called `exit`: handlers that
/// are left run then; finalisers, once begun, are given up, as the C library does.
fn finalize(records: &[Arc<ObjectRecord>]) -> usize {
    let begun: Vec<_> = records.iter().filter(|record| record.phase() != Phase::Waiting).collect();
    let scopes: Vec<_> = begun.iter().map(|record| &record.exit_scope).collect();
    let mut count = ExitScope::run_all(&scopes);
    let unfinalized = begun.iter().filter(|record| record.change(Phase::Begun, Phase::Finalized));
    let mut calls: Vec<_> = unfinalized.flat_map(|record| record.ordered(InitializerKind::Fini)).collect();
    calls.sort_unstable_by_key(|(order, _)| Reverse(*order));
    let is_of_one_go = |((turn, priority, ..), _): &(Order, _), ((other_turn, other, ..), _): &(Order, _)| {
        let [is_plain, is_other_plain] = [*priority, *other].map(|priority| priority == Initializer::DEFAULT_PRIORITY);
        (turn, is_plain) == (other_turn, is_other_plain)
    };
    for calls in calls.chunk_by(is_of_one_go) {
        for (_, finalizer) in calls {
            host::run_initializer(*finalizer);
        }
        // What finalisers registered themselves. The compiler's own finaliser, which sees to that in a program or shared
        // object, is the last of those without a priority.
        count += calls.len() + ExitScope::run_all(&scopes);
    }
    count
}

/// A thread's right to initialise and finalise, with the objects that it took to initialise and their pins.
struct Turn<'a> {
    books: &'a Books,
    /// `None` once it has ended.
    turn: Option<InitTurn>,
    taken: Vec<(Arc<ObjectRecord>, Pin)>,
    /// Which of these has an initialiser running.
    running: Option<usize>,
}

impl<'a> Turn<'a> {
    /// Takes the ready ones of a dylib's waiting objects; `None` when there are none and nobody is running any.
    fn take(books: &'a Books, dylib: u64) -> Option<Turn<'a>> {
        let (turn, mine) = books.queue.take(dylib)?;
        // Asked outside the lock: the session's locks are not ours to nest in.
        let mut turn = Turn { books, turn: Some(turn), taken: Vec::new(), running: None };
        let mut unready = Vec::new();
        let mut gone = 0;
        for record in mine {
            match record.watch.pin() {
                Watched::Ready(pin) => turn.taken.push((record, pin)),
                Watched::Unready => unready.push(record),
                Watched::Gone => gone += 1,
            }
        }
        books.queue.sort_out(unready, gone);
        Some(turn)
    }

    /// Has every other thread wait that initialises any of `dylibs`.
    fn enter(books: &'a Books, dylibs: &[u64]) -> Turn<'a> {
        Turn { books, turn: Some(books.queue.enter(dylibs)), taken: Vec::new(), running: None }
    }

    /// What to call, in order, each with the number of its object among those that were taken.
    fn begin(&self) -> Vec<(Order, usize, ExecutorAddr)> {
        let turn = self.books.turns.fetch_add(1, Ordering::Relaxed);
        let mut calls = Vec::new();
        for (index, (record, _)) in self.taken.iter().enumerate() {
            let called = {
                let mut state = record.state.lock();
                if state.phase == Phase::Waiting {
                    *state = InitState { phase: Phase::Begun, turn, called: 0 };
                }
                state.called
            };
            self.books.begun.lock().insert(Arc::as_ptr(record) as usize, record.clone());
            let mut own: Vec<_> = record.ordered(InitializerKind::Init).collect();
            own.sort_unstable_by_key(|(order, _)| *order);
            calls.extend(own.into_iter().skip(called).map(|(order, initializer)| (order, index, initializer)));
        }
        // By priority over all of them, whatever turn one was begun in.
        calls.sort_unstable_by_key(|((_, priority, sequence, position), ..)| (*priority, *sequence, *position));
        calls
    }
}

impl Drop for Turn<'_> {
    /// Also when an initialiser panics or throws: its object is taken back, and the others must not wait for ever.
    fn drop(&mut self) {
        let failed = self.running.map(|index| self.taken[index].0.clone());
        let mut unfinished = Vec::new();
        if let Some(failed) = &failed {
            self.books.take_back(failed);
            let others = self.taken.iter().map(|(record, _)| record).filter(|record| !Arc::ptr_eq(record, failed));
            unfinished.extend(others.filter(|record| self.books.put_off(record)).cloned());
        }
        let done = self.taken.len() - unfinished.len();
        if let Some(turn) = self.turn.take() {
            self.books.queue.end(turn, done, unfinished);
        }
    }
}

impl Waiting for Arc<ObjectRecord> {
    fn dylib(&self) -> u64 {
        self.dylib
    }
}

impl ObjectRecord {
    fn ordered(&self, kind: InitializerKind) -> impl Iterator<Item = (Order, ExecutorAddr)> {
        let turn = self.state.lock().turn;
        let wanted = self.initializers.iter().filter(move |initializer| initializer.kind == kind);
        wanted.map(move |initializer| {
            ((turn, initializer.priority, self.sequence, initializer.position), initializer.address)
        })
    }

    fn phase(&self) -> Phase {
        self.state.lock().phase
    }

    /// False, and nothing changed, when the phase is another than `from`.
    fn change(&self, from: Phase, to: Phase) -> bool {
        let mut state = self.state.lock();
        let is_from = state.phase == from;
        if is_from {
            state.phase = to;
        }
        is_from
    }
}

impl Books {
    /// An initialiser of the object has failed: its names go, and what it registered so far is called. The caller has the
    /// turn, and a pin of the object.
    fn take_back(&self, failed: &ObjectRecord) {
        failed.change(Phase::Begun, Phase::Failed);
        failed.watch.take_back_unit(|| Error::other(format!("an initialiser of {} failed", failed.object)));
        // After the names: whoever sees this number does not find them.
        self.failures.fetch_add(1, Ordering::Release);
        ExitScope::run_all(&[&failed.exit_scope]);
    }

    /// Whether an object of a turn that ends early has initialisers left to run. If none has run, it waits as before.
    fn put_off(&self, record: &Arc<ObjectRecord>) -> bool {
        let total = record.initializers.iter().filter(|initializer| initializer.kind == InitializerKind::Init).count();
        let mut state = record.state.lock();
        if state.phase != Phase::Begun || state.called == total {
            return false;
        }
        if state.called == 0 {
            state.phase = Phase::Waiting;
        }
        true
    }

    fn close(&self, dylib: u64) -> Option<usize> {
        let uses = self.opened.uses(dylib);
        // Ahead of the count: who opens the dylib again from here on, and finds that it is not initialised, waits.
        let _turn = Turn::enter(self, &uses);
        match self.opened.close(dylib) {
            Closed::NotOpen => None,
            Closed::StillOpen => Some(0),
            Closed::Unused(dylibs) => Some(dylibs.into_iter().map(|dylib| self.finalize_dylib(dylib)).sum()),
        }
    }

    /// Runs exit handlers and finalisers of a dylib; its initialisers wait again then.
    fn finalize_dylib(&self, dylib: u64) -> usize {
        let held = self.hold_begun(|record| record.dylib == dylib);
        let records: Vec<_> = held.iter().map(|(record, _)| record.clone()).collect();
        let count = finalize(&records);
        for record in records {
            // The C library would call those once more if they were registered again.
            record.exit_scope.forget_at_libc();
            if record.change(Phase::Finalized, Phase::Waiting) {
                self.begun.lock().remove(&(Arc::as_ptr(&record) as usize));
                self.queue.add(record);
            }
        }
        // Whoever was removed meanwhile goes now, and is taken out of the queue again.
        drop(held);
        count
    }

    /// The process exits: runs exit handlers and finalisers of all that was initialised. Removes nothing, since other threads
    /// go on meanwhile. What another thread is reclaiming is finalised by that thread.
    fn finalize_all(&self, status: Option<i32>) {
        if let Some(status) = status {
            host::set_exit_status(status);
        }
        let held = self.hold_begun(|_| true);
        let records: Vec<_> = held.iter().map(|(record, _)| record.clone()).collect();
        finalize(&records);
    }

    /// The records of a kind that are not Waiting, each with a pin, unless its tracker is being reclaimed.
    fn hold_begun(&self, is_wanted: impl Fn(&ObjectRecord) -> bool) -> Vec<(Arc<ObjectRecord>, Pin)> {
        let begun: Vec<_> = self.begun.lock().values().filter(|record| is_wanted(record)).cloned().collect();
        begun.into_iter().filter_map(|record| record.tracker.pin().map(|pin| (record, pin))).collect()
    }

    /// The key of `gone` is being reclaimed.
    fn forget(&self, gone: &[Arc<ObjectRecord>]) {
        let mut begun = self.begun.lock();
        gone.iter().for_each(|record| drop(begun.remove(&(Arc::as_ptr(record) as usize))));
        if let Some(kept) = capacity_to_keep(begun.len(), begun.capacity()) {
            begun.shrink_to(kept);
        }
        drop(begun);
        self.queue.remove(|record| gone.iter().any(|other| Arc::ptr_eq(record, other)));
    }
}

impl ResourceManager for InitFiniRegistry {
    fn remove_resources(&self, dylib: &JitDylib, key: ResourceKey) -> Result<()> {
        if self.books.has_opened.load(Ordering::Relaxed) && dylib.is_defunct() {
            self.books.opened.forget(dylib.id());
        }
        let records = self.books.records.take(key);
        if records.is_empty() {
            return Ok(());
        }
        self.books.forget(&records);
        finalize(&records);
        Ok(())
    }

    /// As long as no dylib was opened: one that was is forgotten when its last tracker goes, whatever that holds.
    fn skips_unused_keys(&self) -> bool {
        !self.books.has_opened.load(Ordering::Relaxed)
    }

    /// Destroys what the calling thread owes to the objects under the key: the thread holds them for that.
    fn release_pins(&self, _dylib: &JitDylib, key: ResourceKey) {
        let records = self.books.records.inspect(key, |records| records.to_vec());
        let scopes: Vec<_> = records.iter().map(|record| &record.exit_scope).collect();
        ExitScope::settle_thread(&scopes);
    }

    fn transfer_resources(&self, _dylib: &JitDylib, destination: ResourceKey, source: ResourceKey) {
        self.books.records.transfer(destination, source);
    }
}

impl LinkPlugin for InitFiniRegistry {
    /// Gives the object a `__dso_handle` of its own, if it asks for any, and has its exit handlers registered with it.
    fn join(&self, _origin: &LinkOrigin<'_>, graph: &mut LinkGraph) -> Result<Option<Box<dyn LinkHooks>>> {
        let exit_scope = give_own_handle(graph);
        if exit_scope.is_none() && !graph.has_initializers() {
            return Ok(None);
        }
        Ok(Some(Box::new(ObjectHooks { books: self.books.share(), exit_scope })))
    }
}

struct ObjectHooks {
    books: Arc<ArcShard<Books>>,
    /// Made when the object has a `__dso_handle`.
    exit_scope: Option<ExitScope>,
}

impl LinkHooks for ObjectHooks {
    fn record(self: Box<Self>, key: ResourceKey, origin: &LinkOrigin<'_>, linked: &LinkedObject) {
        if linked.initializers.is_empty() && self.exit_scope.is_none() {
            return;
        }
        // Nobody can have asked for an object of which nothing is owed.
        let Some(watch) = origin.watch() else { return };
        let exit_scope = self.exit_scope.unwrap_or_else(ExitScope::new);
        let (tracker, object) = (origin.tracker(), origin.object().clone());
        exit_scope.set_hold(move |who| {
            let pin = tracker.pin()?;
            Some(Box::new(pin.stand(format!("{who} owes destructors to {object}"))))
        });
        let record = Arc::new(ObjectRecord {
            dylib: origin.dylib().id(),
            sequence: origin.sequence(),
            object: origin.object().clone(),
            watch,
            tracker: origin.tracker(),
            initializers: linked.initializers.clone(),
            exit_scope,
            state: Mutex::new(InitState { phase: Phase::Waiting, turn: 0, called: 0 }),
        });
        self.books.records.record(key, record.clone());
        self.books.queue.add(record);
    }
}

/// A dylib behind all that its link order leads to, however far; of a ring, the first one met comes last.
pub(crate) fn dependencies_first(dylib: &JitDylib) -> Vec<JitDylib> {
    let mut order = Vec::new();
    let mut entered = FxHashSet::default();
    let mut unvisited = vec![(dylib.clone(), false)];
    while let Some((next, is_left)) = unvisited.pop() {
        if is_left {
            order.push(next);
        } else if entered.insert(next.id()) {
            let dependencies = next.link_order();
            unvisited.push((next, true));
            unvisited.extend(dependencies.into_iter().map(|(dylib, _)| (dylib, false)));
        }
    }
    order
}

impl fmt::Debug for InitFiniRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Outside the lock: the formatter may be the embedder's.
        let count = self.books.queue.len();
        write!(f, "init/fini registry, {count} objects to initialise")
    }
}
