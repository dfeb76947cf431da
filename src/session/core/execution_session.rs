//! [`ExecutionSession`]: the set of dylibs and managers, and where lookups start.
//!
//! A session ends when its last `ExecutionSession` handle is dropped, or by [`ExecutionSession::end`]. Handles to
//! dylibs and trackers do not keep it open; a [`Pin`](crate::session::Pin) keeps only its own tracker's resources, and
//! gives them back whenever it goes.

use std::fmt;

use crate::base::ExecutorAddr;
use crate::error::{Error, ErrorKind, Result};
use crate::session::core::dylibs::Dylibs;
use crate::session::core::jit_dylib::{DylibInner, JitDylib, Visibility};
use crate::session::core::observer::{Observer, Observers};
use crate::session::core::query::Query;
use crate::session::core::resource_manager::ResourceManager;
use crate::session::core::resource_tracker::{Pin, TrackerCore};
use crate::session::core::waiting::WaitingGraph;
use crate::session::lookup::blocking::{self, LookupResult, RequiredState, SymbolRequest};
use crate::session::lookup::symbol_at::{self, SymbolAt};
use crate::session::pins::calls::Calls;
use crate::session::pins::dependants::PinGraph;
use crate::session::pins::guards::Guards;
use crate::session::pins::revocable_pins::RevocablePins;
use crate::session::removal::reclaim;
use crate::session::removal::reclaimer::Reclaimer;
use crate::session::removal::symbol_watch::{SymbolWatch, Watched};
use crate::session::removal::ticket::Removal;
use crate::session::removal::unmoved::Unmoved;
use crate::session::types::error_reporter::{ErrorReporter, ReporterHandle};
use crate::session::types::symbol::{SymbolFlags, SymbolRef};
use crate::session::work::dispatch::Dispatcher;
use crate::sync::{Arc, AtomicBool, AtomicU64, Mutex, Ordering, Queue, Rank, Weak, seeded_bug};

/// Who reclaims a removed tracker when its last pin goes, or the last guard in its way is left. What nothing holds is always
/// reclaimed by the thread that removes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReclaimPolicy {
    /// The thread that drops the pin, at once: finalisers run there.
    #[default]
    OnDrop,
    /// Whoever calls [`ExecutionSession::reclaim`]; dropping a pin only queues the tracker, until the session has ended.
    Explicit,
    /// A thread of the session, started when there is work for the first time: finalisers run there. Dropping a pin only
    /// queues the tracker, until the session has ended.
    Background,
}

/// Settings of a session.
#[derive(Clone, Default)]
pub struct SessionOptions {
    /// Who reclaims a removed tracker when its last pin goes.
    pub reclaim: ReclaimPolicy,
    /// Threads that materialise, started as there is work. With none, the thread that looks something up does; only
    /// what it had queued before goes to another if it has to wait in the middle of materialising.
    pub worker_threads: usize,
    /// Hears of errors that no caller receives; without one they are dropped.
    pub error_reporter: Option<ErrorReporter>,
    /// Hear what happens in the session, in this order.
    pub observers: Vec<Arc<dyn Observer>>,
}

/// A handle to a session (ORC: `ExecutionSession`). Cheap to clone; the last one ends the session.
#[derive(Clone)]
pub struct ExecutionSession(Arc<SessionOwner>);

/// Managers, oldest first.
pub(crate) type ManagerList = Arc<[Arc<dyn ResourceManager>]>;

struct SessionOwner(Arc<SessionInner>);

pub(crate) struct SessionInner {
    dylibs: Mutex<Dylibs>,
    managers: Mutex<Vec<Arc<dyn ResourceManager>>>,
    /// Counts registrations; starts above what a new dylib's list says.
    managers_version: AtomicU64,
    ended: AtomicBool,
    pub(crate) pins: PinGraph,
    pub(crate) waiting: Mutex<WaitingGraph>,
    pub(crate) reclaim_policy: ReclaimPolicy,
    pub(crate) dispatcher: Arc<Dispatcher>,
    pub(crate) reclaimer: Arc<Reclaimer>,
    /// Removed dylibs, of which something may wait to be reclaimed.
    removed_dylibs: Mutex<Vec<Weak<DylibInner>>>,
    /// Trackers in Reclaiming that `reclaim` takes up.
    pub(crate) deferred: Queue<Arc<TrackerCore>>,
    /// Retired trackers that only standing pins hold, whose makers `reclaim` asks.
    pub(crate) undecided: Queue<Arc<TrackerCore>>,
    /// What standing pins say.
    pub(crate) standing: RevocablePins,
    /// Which threads may be executing what is removed.
    pub(crate) guards: Guards,
    /// Which threads may be inside versions that are replaced.
    pub(crate) calls: Calls,
    /// What managers may still hold under the keys of merged trackers.
    pub(crate) unmoved: Unmoved,
    pub(crate) unheard: ReporterHandle,
    pub(crate) observers: Observers,
}

impl ExecutionSession {
    /// A session with no dylib and no manager.
    pub fn new() -> ExecutionSession {
        ExecutionSession::with_policy(ReclaimPolicy::OnDrop)
    }

    /// A session whose deferred reclaims are done as `policy` says.
    pub fn with_policy(policy: ReclaimPolicy) -> ExecutionSession {
        ExecutionSession::with_options(SessionOptions { reclaim: policy, ..SessionOptions::default() })
    }

    /// A session with settings.
    pub fn with_options(options: SessionOptions) -> ExecutionSession {
        ExecutionSession(Arc::new(SessionOwner(Arc::new(SessionInner {
            dylibs: Mutex::new(Dylibs::new()),
            managers: Mutex::new(Vec::new()),
            managers_version: AtomicU64::new(1),
            ended: AtomicBool::new(false),
            pins: PinGraph::new(),
            waiting: Mutex::ranked(Rank::Waiting, WaitingGraph::default()),
            reclaim_policy: options.reclaim,
            dispatcher: Arc::new(Dispatcher::new(options.worker_threads)),
            reclaimer: Reclaimer::new(),
            removed_dylibs: Mutex::new(Vec::new()),
            deferred: Queue::new(),
            undecided: Queue::new(),
            standing: RevocablePins::new(),
            guards: Guards::new(),
            calls: Calls::new(),
            unmoved: Unmoved::new(),
            unheard: ReporterHandle::new(options.error_reporter),
            observers: Observers::new(options.observers),
        }))))
    }

    /// A new, empty dylib. Names need not be unique.
    ///
    /// # Errors
    /// When the session has ended.
    pub fn create_dylib(&self, name: &str) -> Result<JitDylib> {
        self.create_dylib_ahead_of(&[], name)
    }

    /// The same, with a link order.
    pub(crate) fn create_dylib_ahead_of(&self, others: &[(&JitDylib, Visibility)], name: &str) -> Result<JitDylib> {
        let session = &self.0.0;
        let mut dylibs = session.dylibs.lock();
        // Asked under the lock: `end` sets this before it takes the lock to list the dylibs.
        if session.ended.load(Ordering::Acquire) {
            return Err(ErrorKind::SessionEnded.into());
        }
        if seeded_bug!("dylib_added_under_a_later_lock") {
            drop(dylibs);
            dylibs = session.dylibs.lock();
        }
        Ok(JitDylib::from_inner(dylibs.add(session, name, others)))
    }

    pub(crate) fn inner(&self) -> &Arc<SessionInner> {
        &self.0.0
    }

    /// Waits until the worker threads have nothing to do, and ends them; others are started when there is work again. For who
    /// links in threads, and wants the process to have no more of them than its own when the linked code runs: before it
    /// forks, for one. When this returns they do no more for the session; the system may still be taking them apart. Asked by
    /// a worker, it does nothing.
    pub fn dismiss_workers(&self) {
        self.0.0.dispatcher.dismiss_workers();
    }

    /// The flags of symbols, by the order of `requests`, without materialising any. Generators are asked. `None` for
    /// those that are not required and not found.
    ///
    /// # Errors
    /// [`ErrorKind::SymbolsNotFound`] with all missing names; whatever a generator reports.
    pub fn lookup_flags(
        &self,
        order: &[(JitDylib, Visibility)],
        requests: &[SymbolRequest<'_>],
    ) -> Result<Vec<Option<SymbolFlags>>> {
        blocking::flags(order, requests)
    }

    /// For each address, the symbol that it lies in, if its size is known. Goes over all symbols of the session, once.
    pub fn symbols_at(&self, addresses: &[ExecutorAddr]) -> Vec<Option<SymbolAt>> {
        symbol_at::find(&self.dylibs(), addresses)
    }

    /// The dylibs, in creation order.
    pub fn dylibs(&self) -> Vec<JitDylib> {
        self.0.0.dylibs.lock().in_order()
    }

    /// Clears a dylib and closes it: everything under it goes, nothing new comes in. Returns the removals that pins keep
    /// from being complete.
    ///
    /// # Errors
    /// What managers report, joined; the dylib is closed all the same.
    pub fn remove_dylib(&self, dylib: &JitDylib) -> Result<Vec<Removal>> {
        self.0.0.remove_dylib(dylib)
    }

    /// Adds a manager; it is told of transfers and removals that happen from now on, before those registered earlier.
    pub fn register_manager(&self, manager: Arc<dyn ResourceManager>) {
        self.0.0.edit_managers(|managers| managers.push(manager));
    }

    /// Takes a manager out again. Removals that are under way may still tell it.
    pub fn deregister_manager(&self, manager: &Arc<dyn ResourceManager>) {
        self.0.0.edit_managers(|managers| managers.retain(|other| !Arc::ptr_eq(other, manager)));
        // A dylib's own list would keep the manager alive until the dylib's next removal.
        for dylib in self.dylibs() {
            self.0.0.managers(dylib.inner());
        }
        // After the list: what is removed from now on has been seen there.
        let aside = self.0.0.dylibs.lock().take_aside();
        drop(aside);
    }

    /// Looks `requests` up in `order` and waits for them. Results are in the order of the requests.
    ///
    /// Without worker threads, materialisation that the lookup sets off runs on this thread.
    ///
    /// # Errors
    /// [`ErrorKind::SymbolsNotFound`] with all missing names; [`ErrorKind::FailedToMaterialize`] with the root cause.
    pub fn lookup(
        &self,
        order: &[(JitDylib, Visibility)],
        requests: &[SymbolRequest<'_>],
        required: RequiredState,
    ) -> Result<Vec<LookupResult>> {
        blocking::wait(&self.0.0, order, requests, required)
    }

    /// The address of one symbol; waits until it is ready.
    ///
    /// For a symbol that is ready and is looked up often, this takes no lock of its dylib, allocates nothing and writes
    /// nothing that another thread reads, so that any number of threads may do it side by side.
    ///
    /// # Errors
    /// As [`lookup`](Self::lookup).
    pub fn lookup_address(&self, order: &[(JitDylib, Visibility)], name: &str) -> Result<ExecutorAddr> {
        blocking::address(&self.0.0, order, name)
    }

    /// As [`lookup`](Self::lookup), but calls `on_complete` instead of waiting.
    pub fn lookup_then(
        &self,
        order: &[(JitDylib, Visibility)],
        requests: &[SymbolRequest<'_>],
        required: RequiredState,
        on_complete: impl FnOnce(Result<Vec<LookupResult>>) + Send + 'static,
    ) {
        blocking::start(&self.0.0, order, requests, None, Query::calling(required, on_complete));
    }

    /// Pins the tracker of a definition that [`lookup`](Self::lookup) found ready. `None` when it was removed since.
    pub fn pin(&self, symbol: &SymbolRef) -> Option<Pin> {
        match SymbolWatch::of(symbol).pin() {
            Watched::Ready(pin) => Some(pin),
            Watched::Unready | Watched::Gone => None,
        }
    }

    /// What was removed and is not given back, the longest waiting first: the tickets say who is in the way, since when, and
    /// of how many bytes. Nobody is in the way of what is being given back just now, or waits for [`reclaim`](Self::reclaim).
    pub fn pending_removals(&self) -> Vec<Removal> {
        let session = &self.0.0;
        let mut dylibs: Vec<_> = session.dylibs.lock().iter().cloned().collect();
        dylibs.extend(session.removed_dylibs.lock().iter().filter_map(Weak::upgrade));
        let cores: Vec<_> = dylibs.iter().flat_map(|dylib| dylib.state.lock().cores()).collect();
        let mut waiting: Vec<_> = cores.into_iter().filter(|core| core.gate.is_leaving()).collect();
        waiting.sort_by_cached_key(|core| (core.gate.leaving_since(), core.dylib().serial, core.serial));
        waiting.into_iter().map(Removal::new).collect()
    }

    /// Reclaims the removed trackers whose last pin went under [`ReclaimPolicy::Explicit`]; returns their number.
    pub fn reclaim(&self) -> usize {
        self.0.0.reclaim_deferred()
    }

    /// Tells the session's [error reporter](SessionOptions::error_reporter) of an error that no caller receives. Without a
    /// reporter the error is dropped.
    ///
    /// The session itself reports the root causes of failures that nobody waited for, what managers say when a removal is
    /// completed later than the call that asked for it, and what they say when the last session handle is dropped.
    pub fn report_error(&self, error: Error) {
        self.0.0.unheard.report(error);
    }

    /// Ends the session: removes all dylibs, newest first. What pins hold is given back when they go.
    ///
    /// # Errors
    /// What managers report, joined; the session has ended all the same.
    pub fn end(&self) -> Result<()> {
        self.0.0.end()
    }
}

impl fmt::Debug for SessionOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionOptions")
            .field("reclaim", &self.reclaim)
            .field("worker_threads", &self.worker_threads)
            .field("error_reporter", &self.error_reporter.is_some())
            .field("observers", &self.observers.len())
            .finish()
    }
}

impl Default for ExecutionSession {
    fn default() -> Self {
        ExecutionSession::new()
    }
}

impl fmt::Debug for ExecutionSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "session of {:?}", self.dylibs())
    }
}

impl Drop for SessionOwner {
    fn drop(&mut self) {
        if let Err(error) = self.0.end() {
            self.0.unheard.report(error);
        }
    }
}

impl SessionInner {
    /// The managers, oldest first, as of now. Each dylib keeps a list of its own, so that removals in different dylibs
    /// share nothing; it is made anew when the version says that it is old.
    pub(crate) fn managers(&self, dylib: &DylibInner) -> ManagerList {
        // Acquire pairs with the release of a registration: whoever sees its version sees its list.
        let version = self.managers_version.load(Ordering::Acquire);
        // Outlives the lock: it may be the last to hold a manager that was taken out.
        let mut _old = None;
        let mut cached = dylib.managers.lock();
        if cached.0 != version {
            let managers = self.managers.lock().iter().cloned().collect();
            _old = Some(std::mem::replace(&mut *cached, (version, managers)));
        }
        cached.1.clone()
    }

    fn edit_managers(&self, edit: impl FnOnce(&mut Vec<Arc<dyn ResourceManager>>)) {
        edit(&mut self.managers.lock());
        self.managers_version.fetch_add(1, Ordering::AcqRel);
    }

    fn remove_dylib(self: &Arc<SessionInner>, dylib: &JitDylib) -> Result<Vec<Removal>> {
        dylib.close();
        let pending = dylib.clear();
        let is_empty = matches!(pending.as_deref(), Ok([]));
        if let Some(waiting) = self.unlist(dylib, is_empty) {
            let mut removed = self.removed_dylibs.lock();
            removed.retain(|dylib| dylib.strong_count() > 0);
            removed.push(Arc::downgrade(&waiting));
        }
        pending
    }

    /// Takes a removed dylib off the list, and puts it aside if it `is_empty`; returns it if not.
    fn unlist(&self, dylib: &JitDylib, is_empty: bool) -> Option<Arc<DylibInner>> {
        let mut dylibs = self.dylibs.lock();
        let removed = dylibs.remove(dylib.inner().id)?;
        if !is_empty {
            return Some(removed);
        }
        let dropped = dylibs.put_aside(removed);
        drop(dylibs);
        drop(dropped);
        None
    }

    /// Asked under the lock that `end` takes between setting this and its last look at the queue: who is told no has
    /// queued in time.
    pub(crate) fn has_ended(&self) -> bool {
        let _dylibs = self.dylibs.lock();
        !seeded_bug!("queued_after_the_end") && self.ended.load(Ordering::Relaxed)
    }

    fn end(self: &Arc<SessionInner>) -> Result<()> {
        self.ended.store(true, Ordering::Release);
        let mut failures = Vec::new();
        let (aside, listed) = {
            let mut dylibs = self.dylibs.lock();
            (dylibs.end(), dylibs.in_order())
        };
        drop(aside);
        for dylib in listed.iter().rev() {
            failures.extend(self.remove_dylib(dylib).err());
        }
        self.reclaim_deferred();
        self.reclaimer.stop();
        self.dispatcher.stop();
        Error::join(failures)
    }

    /// What is queued goes as one batch, since rings are queued member by member. Returns the number of trackers.
    pub(crate) fn reclaim_deferred(self: &Arc<SessionInner>) -> usize {
        let mut count = 0;
        loop {
            let mut batch: Vec<_> = std::iter::from_fn(|| self.deferred.pop()).collect();
            let undecided: Vec<_> = std::iter::from_fn(|| self.undecided.pop()).collect();
            let mut claimed = batch.iter().map(|core| core.key()).collect();
            batch.extend(reclaim::claim(self, undecided, &mut claimed));
            if batch.is_empty() {
                return count;
            }
            count += batch.len();
            reclaim::reclaim(self, &reclaim::in_order(self, batch), &[]);
        }
    }
}
