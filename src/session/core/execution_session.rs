//! [`ExecutionSession`]: the session handle, its options, and [`SessionInner`], the state that all its objects share.
//!
//! A session ends when its last `ExecutionSession` handle is dropped, or by [`ExecutionSession::end`]
//! (`removal/dylib.rs`). Handles to dylibs and trackers do not keep it open. A [`Pin`](crate::session::Pin) keeps only
//! the resources of its own tracker; they are released when the pin is dropped, even after the end.

use std::fmt;

use crate::session::core::dylibs::{Dylibs, RemovedDylibs};
use crate::session::core::jit_dylib::{DylibInner, JitDylib};
use crate::session::core::materialization::Materialization;
use crate::session::core::observer::{Observer, Observers};
use crate::session::core::resource_manager::{RankedManagers, ResourceManager};
use crate::session::core::resource_tracker::TrackerCore;
use crate::session::core::waiting::WaitingGraph;
use crate::session::pins::calls::Calls;
use crate::session::pins::dependants::PinGraph;
use crate::session::pins::guards::Guards;
use crate::session::pins::revocable_pins::RevocablePins;
use crate::session::symbols::name_watch::NameWatch;
use crate::session::types::error_reporter::{ErrorReporter, ReporterHandle};
use crate::session::types::failed_transfers::FailedTransfers;
use crate::session::types::failure_count::FailureCount;
use crate::session::types::pending_removals::PendingRemovals;
use crate::session::work::background_thread::BackgroundThread;
use crate::session::work::dispatcher::Dispatcher;
use crate::sync::{Arc, AtomicBool, AtomicU64, Mutex, Ordering, Queue, Rank, seeded_bug};

/// Which thread reclaims a removed tracker whose last pin is dropped later, or whose last deferring guard is left
/// later. A tracker that nothing holds is always reclaimed by the thread that removes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReclaimPolicy {
    /// The thread that drops the last pin, at once. Finalisers run on that thread.
    #[default]
    OnDrop,
    /// A thread that calls [`ExecutionSession::reclaim`]. Dropping the last pin only queues the tracker. Once the
    /// session has ended, it is reclaimed as with `OnDrop`.
    Explicit,
    /// A background thread of the session, which starts when there is work for the first time. Finalisers run on that
    /// thread. Dropping the last pin only queues the tracker. Once the session has ended, it is reclaimed as with
    /// `OnDrop`. A forked child starts a thread of its own.
    Background,
}

/// Options of a session.
#[derive(Clone, Default)]
pub struct SessionOptions {
    /// Which thread reclaims a removed tracker whose last pin is dropped later.
    pub reclaim: ReclaimPolicy,
    /// The most worker threads that materialise; they start when there is work. With zero, the thread that looks a
    /// symbol up materialises it. If that thread has to wait while it materialises, only the tasks that it queued
    /// earlier move to another thread.
    pub worker_threads: usize,
    /// Receives errors that no caller receives; without a reporter they are dropped.
    pub error_reporter: Option<ErrorReporter>,
    /// The observers, called in this order.
    pub observers: Vec<Arc<dyn Observer>>,
}

/// A handle to a session (ORC: `ExecutionSession`). Cheap to clone. Dropping the last handle ends the session.
///
/// ```
/// use jittison::base::{ExecutorAddr, Name};
/// use jittison::session::{ExecutionSession, SymbolFlags, Visibility};
///
/// # fn main() -> Result<(), jittison::Error> {
/// // No linking layer: the symbols are plain addresses.
/// let session = ExecutionSession::new();
/// let dylib = session.create_dylib("constants")?;
/// dylib.define_absolute([(Name::new("answer"), ExecutorAddr::new(42), SymbolFlags::EXPORTED)])?;
/// let found = session.lookup_address(&[(dylib.clone(), Visibility::All)], "answer")?;
/// assert_eq!(found.value(), 42);
///
/// session.end()?;
/// assert!(session.create_dylib("late").is_err());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct ExecutionSession(Arc<SessionOwner>);

/// The managers, in reverse of the order of release.
pub(crate) type ManagerList = Arc<[Arc<dyn ResourceManager>]>;

/// Ends the session when the last handle is dropped.
pub(in crate::session) struct SessionOwner(pub(in crate::session) Arc<SessionInner>);

pub(crate) struct SessionInner {
    pub(in crate::session) dylibs: Mutex<Dylibs>,
    pub(in crate::session) managers: Mutex<RankedManagers>,
    /// Counts registrations. Starts above the version of a new dylib's cached list.
    pub(in crate::session) managers_version: AtomicU64,
    pub(in crate::session) ended: AtomicBool,
    pub(crate) pins: PinGraph<TrackerCore>,
    pub(crate) waiting: Mutex<WaitingGraph>,
    pub(crate) reclaim_policy: ReclaimPolicy,
    pub(crate) dispatcher: Arc<Dispatcher<Materialization>>,
    pub(crate) reclaimer: Arc<BackgroundThread>,
    /// Removed dylibs that may still have trackers to reclaim.
    pub(in crate::session) removed_dylibs: Mutex<RemovedDylibs>,
    pub(crate) pending_removals: PendingRemovals<TrackerCore>,
    /// Trackers in state Reclaiming; `reclaim` processes them.
    pub(crate) deferred: Queue<Arc<TrackerCore>>,
    /// Retired trackers that only revocable pins hold; `reclaim` asks the managers to release these pins.
    pub(crate) only_revocable: Queue<Arc<TrackerCore>>,
    /// The reasons of revocable pins.
    pub(crate) revocable_pins: RevocablePins<TrackerCore>,
    /// The threads that may be executing removed code.
    pub(crate) guards: Guards,
    /// The threads that may be inside replaced versions.
    pub(crate) calls: Calls<TrackerCore>,
    /// Resources that managers may still hold under the keys of merged trackers.
    pub(crate) failed_transfers: FailedTransfers<dyn ResourceManager>,
    pub(crate) error_reporter: ReporterHandle,
    pub(crate) observers: Observers,
    pub(in crate::session) failures: FailureCount,
    /// The names whose definition invalidates cached searches.
    pub(crate) names: Arc<NameWatch>,
}

impl ExecutionSession {
    /// A session without dylibs and managers, with default options.
    pub fn new() -> ExecutionSession {
        ExecutionSession::with_policy(ReclaimPolicy::OnDrop)
    }

    /// A session with default options and the given reclaim policy.
    pub fn with_policy(policy: ReclaimPolicy) -> ExecutionSession {
        ExecutionSession::with_options(SessionOptions { reclaim: policy, ..SessionOptions::default() })
    }

    /// A session with the given options.
    pub fn with_options(options: SessionOptions) -> ExecutionSession {
        ExecutionSession(Arc::new(SessionOwner(Arc::new(SessionInner {
            dylibs: Mutex::new(Dylibs::new()),
            managers: Mutex::new(RankedManagers::default()),
            managers_version: AtomicU64::new(1),
            ended: AtomicBool::new(false),
            pins: PinGraph::new(),
            waiting: Mutex::ranked(Rank::Waiting, WaitingGraph::default()),
            reclaim_policy: options.reclaim,
            dispatcher: Arc::new(Dispatcher::new(options.worker_threads)),
            reclaimer: BackgroundThread::new("jittison-reclaim"),
            removed_dylibs: Mutex::new(RemovedDylibs::default()),
            pending_removals: PendingRemovals::new(),
            deferred: Queue::new(),
            only_revocable: Queue::new(),
            revocable_pins: RevocablePins::new(),
            guards: Guards::new(),
            calls: Calls::new(),
            failed_transfers: FailedTransfers::new(),
            error_reporter: ReporterHandle::new(options.error_reporter),
            observers: Observers::new(options.observers),
            failures: FailureCount::new(),
            names: Arc::new(NameWatch::new()),
        }))))
    }

    pub(crate) fn inner(&self) -> &Arc<SessionInner> {
        &self.0.0
    }

    /// The dylibs, in creation order.
    pub fn dylibs(&self) -> Vec<JitDylib> {
        self.0.0.dylibs.lock().in_order()
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

impl SessionInner {
    /// A number that no other session of the process has, before or later. Not zero.
    #[inline]
    pub(crate) fn number(&self) -> u64 {
        self.guards.id() + 1
    }

    /// The current managers, in reverse of the order of release. Each dylib caches the list, so removals in different
    /// dylibs share no memory. The cache is refreshed when its version differs.
    pub(crate) fn managers(&self, dylib: &DylibInner) -> ManagerList {
        // Acquire pairs with the increment of `edit_managers`: a thread that sees a version also sees its list.
        let version = self.managers_version.load(Ordering::Acquire);
        // Declared before the guard, so dropped after it: it may hold the last reference to a deregistered manager.
        let mut _old = None;
        let mut cached = dylib.managers.lock();
        if cached.0 != version {
            let managers = self.managers.lock().list();
            _old = Some(std::mem::replace(&mut *cached, (version, managers)));
        }
        cached.1.clone()
    }

    /// Changes the list of managers, then its version. The increment pairs with the load of `managers`.
    pub(crate) fn edit_managers(&self, edit: impl FnOnce(&mut RankedManagers)) {
        edit(&mut self.managers.lock());
        self.managers_version.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether the session has ended. `end` stores the flag, then takes this lock, then reads the queue for the last
    /// time. So if this returns false, an entry that the caller has queued before the call is still processed. The lock orders the
    /// load, so it is Relaxed.
    pub(crate) fn has_ended(&self) -> bool {
        let _dylibs = self.dylibs.lock();
        !seeded_bug!("queued_after_the_end") && self.ended.load(Ordering::Relaxed)
    }
}
