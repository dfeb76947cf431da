//! [`Guards`]: the epoch records of a domain. Which threads are inside a guard, and what is deferred until they leave.
//!
//! A *domain* is one set of guards or calls: the guards of a session, the calls of a session, or the calls of the host.
//!
//! Code that a thread finds while it is inside a guard stays mapped until the thread leaves the guard, even if another thread
//! removes the code. `guard.rs` has the public [`Guard`](crate::session::Guard); `calls.rs` uses a second domain for calls of
//! linked code. A guard costs two stores and one fence.
//!
//! # Protocol
//! Each thread has one [`EpochRecord`] per domain. Its `epoch` is odd while the thread is inside a guard.
//!
//! | thread enters              | remover                                               |
//! |----------------------------|-------------------------------------------------------|
//! | 1. make `epoch` odd, fence | 1. unpublish the symbols or redirect the stubs, fence |
//! | 2. read symbols and stubs  | 2. read every record's `epoch`                        |
//!
//! One of the two fences comes first. Either the remover reads an odd epoch, or the thread finds no symbol. The remover
//! then *defers* the trackers: it stores them in one of the records that were odd, in a [`DeferredBatch`] that lists
//! the other ones.
//!
//! | thread leaves                       | remover, under the lock of the record                  |
//! |-------------------------------------|--------------------------------------------------------|
//! | 1. make `epoch` even, light barrier | 1. set `has_deferred`, heavy barrier                   |
//! | 2. read `has_deferred`              | 2. read `epoch`; if it is the old one, store the batch |
//!
//! Either the thread sees `has_deferred`, or the remover sees the new epoch and does not store the batch. Only a remover that
//! finds a guard pays for the heavy barrier, and only the first one in an epoch: the list of batches keeps the epoch in which
//! the flag was *announced*, until the thread has taken the batches. So the thread takes what later removers add meanwhile.
//!
//! A thread that leaves a guard moves each batch of its record to the next record in the batch that is still in its old epoch.
//! If there is none, the thread releases the batch ([`Deferred::release`]): the trackers leave the state Guarded
//! (`tracker_state.rs`), and this thread reclaims what nothing pins.
//!
//! `epoch` counts every entry and every exit. So a guard that was left and entered again does not match the old epoch, and a
//! removal never waits for a guard that was entered after it.
//!
//! # Record reuse
//! Records are never freed, so that entering a guard changes no reference count. A record that no thread uses goes to
//! the next thread that needs one in the same domain; after the end of its domain, to any other domain. `epoch` never
//! goes back, so a snapshot of an earlier owner never matches.
//!
//! # The end of a thread
//! A thread keeps a list of its records. The list is destroyed when the thread ends, and other destructors may run later. So
//! the thread's use of a record has one of two owners: the list, or the guards.
//!
//! | when                                           | owner        | deregistered by                                    |
//! |------------------------------------------------|--------------|----------------------------------------------------|
//! | the list exists                                | the list     | the destructor of the list, if no guard is entered |
//! | the list is destroyed while guards are entered | those guards | the drop of the last of them                       |
//! | a guard is entered after that                  | that guard   | its drop                                           |
//!
//! Only the drop of a guard deregisters a record, because no code can enter that guard again.
//! [`Guard::refresh`](crate::session::Guard::refresh) must not: it enters the same record again.
//!
//! # Limits
//! A leaked guard (`mem::forget`) keeps its record with its thread, and defers every later reclamation for ever.
//! [`Removal::obstacles`](crate::session::Removal::obstacles) names it.
//! Model: `loom_tests/loom_guard_retire.rs`.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::time::Instant;

use crate::sync::{
    Arc, AtomicBool, AtomicU64, AtomicUsize, Mutex, Ordering, ProcessMutex, ReadMostly, ThreadKey,
    are_statics_destroyed, describe_thread, fence, heavy_barrier, light_barrier, per_process, prepare_barriers,
    seeded_bug, store_then_fence, thread_local, unique_number,
};

/// The epoch of one thread in one domain.
#[repr(align(64))]
pub(crate) struct EpochRecord {
    /// The number of the domain that lists the record. The thread that uses the record reads it. Relaxed: a record gets to the thread
    /// through the lock of the list, or through `users`.
    domain: AtomicU64,
    /// Guards that the thread has entered inside another guard and not left. Only that thread uses it.
    nested: AtomicU64,
    /// Odd while a guard is entered. Each entry and each exit adds one. Only the thread writes it. Its stores are Release, and each pairs
    /// with the Acquire loads of removers: a remover that reads a later epoch sees what the thread did in the guard. The thread itself
    /// loads it Relaxed.
    epoch: AtomicU64,
    /// Whether `deferred` may have batches. Relaxed: the barriers of `leave` and `try_defer` order it.
    has_deferred: AtomicBool,
    /// Whether the guards own the record, because the list of the thread is destroyed. Only the thread uses it. While it is
    /// set, `has_deferred` is set too.
    is_owned_by_guards: AtomicBool,
    /// Bits [`USED_BY_DOMAIN`] and [`USED_BY_THREAD`]. `deregister` clears them with AcqRel, and pairs with itself and with the load of
    /// `register`: the next thread of the record sees what this one stored in it.
    users: AtomicUsize,
    /// What waits for the guard that is entered.
    deferred: Mutex<DeferredList>,
    thread: Mutex<Arc<str>>,
}

/// A domain lists the record.
const USED_BY_DOMAIN: usize = 1;
/// A thread enters its guards with the record.
const USED_BY_THREAD: usize = 2;

/// A snapshot of a record that was inside a guard.
#[derive(Clone, Copy)]
pub(crate) struct ActiveGuard {
    record: &'static EpochRecord,
    epoch: u64,
}

/// Work that waits until certain guards are left.
pub(crate) trait Deferred: Any + Send {
    /// Called with no lock held, when no guard blocks this item or `others` any more. `others` waited in the same
    /// record.
    fn release(self: Box<Self>, others: Vec<Box<dyn Deferred>>);
}

/// Trackers that were removed together and wait for guards.
struct DeferredBatch {
    items: Box<dyn Deferred>,
    since: Instant,
    /// The other guards that may block the batch.
    others: Vec<ActiveGuard>,
}

/// What waits for one guard.
#[derive(Default)]
struct DeferredList {
    /// The epoch whose thread is certain to take the list when it leaves. Zero, which no guard has, if no remover has announced
    /// one.
    announced: u64,
    batches: Vec<DeferredBatch>,
    /// What the thread itself keeps until it leaves or refreshes the guard.
    held: Option<Box<dyn Any + Send>>,
}

/// One domain: its number and its records.
pub(crate) struct Guards {
    id: u64,
    records: ReadMostly<Vec<&'static EpochRecord>>,
}

thread_local! {
    // loom's `thread_local` takes no `const` block.
    #[allow(clippy::missing_const_for_thread_local)]
    static THREAD_RECORDS: RefCell<ThreadRecords> = RefCell::new(ThreadRecords::default());
}

/// Caches the record that a thread used last, for one kind of domain.
pub(crate) type LastRecord = ThreadKey<Cell<Option<&'static EpochRecord>>>;

#[cfg(not(loom))]
thread_local! {
    /// For guards. The cell has no destructor, so an access does not check whether the variable was destroyed.
    pub(super) static LAST: Cell<Option<&'static EpochRecord>> = const { Cell::new(None) };
    /// For calls of a session's code.
    pub(crate) static LAST_CALL: Cell<Option<&'static EpochRecord>> = const { Cell::new(None) };
    /// For calls that the host makes itself.
    pub(crate) static LAST_HOST_CALL: Cell<Option<&'static EpochRecord>> = const { Cell::new(None) };
}

#[cfg(loom)]
thread_local! {
    pub(super) static LAST: Cell<Option<&'static EpochRecord>> = Cell::new(None);
    pub(crate) static LAST_CALL: Cell<Option<&'static EpochRecord>> = Cell::new(None);
    pub(crate) static LAST_HOST_CALL: Cell<Option<&'static EpochRecord>> = Cell::new(None);
}

/// The records that one thread uses.
#[derive(Default)]
struct ThreadRecords {
    records: Vec<&'static EpochRecord>,
    /// For models: loom may keep this value after its destructor ran.
    is_destroyed: bool,
}

/// Whether a record with this epoch is inside a guard.
#[inline]
fn is_entered(epoch: u64) -> bool {
    epoch % 2 == 1
}

per_process! {
    /// Records without a domain and without a thread.
    static FREE_RECORDS: ProcessMutex<Vec<&'static EpochRecord>> = ProcessMutex::new(Vec::new());
}

impl EpochRecord {
    /// Enters a guard. Returns the epoch, which [`leave`](Self::leave) needs.
    #[inline]
    pub(crate) fn enter(&self) -> u64 {
        let epoch = self.epoch.load(Ordering::Relaxed);
        if is_entered(epoch) {
            self.nested.store(self.nested.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            return epoch;
        }
        if seeded_bug!("guard_entered_without_a_fence") {
            self.epoch.store(epoch + 1, Ordering::Release);
        } else {
            store_then_fence(&self.epoch, epoch + 1);
        }
        epoch + 1
    }

    /// Leaves one guard. Returns true if the caller must [run the deferred work](Self::run_deferred). `epoch` is what `enter`
    /// returned. It is a parameter, because a load of the record's epoch waits for the store and the fence of `enter`.
    #[inline]
    pub(super) fn leave(&self, epoch: u64) -> bool {
        // The order in which nested guards are dropped does not matter: the last one ends the epoch.
        let nested = self.nested.load(Ordering::Relaxed);
        if nested != 0 {
            self.nested.store(nested - 1, Ordering::Relaxed);
            return false;
        }
        // Release: the accesses of this thread inside the guard happen before the memory is freed.
        self.epoch.store(epoch + 1, Ordering::Release);
        if !seeded_bug!("guard_left_without_a_barrier") {
            light_barrier();
        }
        self.has_deferred.load(Ordering::Relaxed)
    }

    /// Leaves one guard for good: runs the deferred work, and deregisters the record if the guards own it.
    #[inline]
    pub(crate) fn leave_and_run_deferred(&'static self, epoch: u64) {
        if self.leave(epoch) {
            self.run_deferred_and_deregister();
        }
    }

    /// The current epoch.
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// Leaves all guards of this thread in the record and enters them again. What waited for them is released.
    pub(crate) fn refresh(&'static self) {
        if is_entered(self.epoch()) {
            let nested = self.nested.swap(0, Ordering::Relaxed);
            if self.leave(self.epoch()) {
                self.run_deferred();
            }
            self.enter();
            // Added, not stored: the deferred work may have entered a guard that it has not left.
            self.nested.store(self.nested.load(Ordering::Relaxed) + nested, Ordering::Relaxed);
        } else {
            self.deregister_if_owned_by_guards();
        }
    }

    /// As [`refresh`](Self::refresh). `held` is dropped when this thread leaves the guards or refreshes them again; at once if none
    /// is entered.
    #[cfg(feature = "reload")]
    pub(crate) fn refresh_holding(&'static self, held: Box<dyn Any + Send>) {
        self.refresh();
        let epoch = self.epoch();
        if !is_entered(epoch) {
            return;
        }
        let mut deferred = self.deferred.lock();
        // Without a barrier: this thread itself leaves the guard, and sees its own store.
        self.has_deferred.store(true, Ordering::Relaxed);
        deferred.announced = epoch;
        deferred.held = Some(held);
    }

    pub(crate) fn thread(&self) -> Arc<str> {
        self.thread.lock().clone()
    }

    /// The guard was left. Each batch moves to the next guard that blocks it, or is released.
    #[cold]
    pub(super) fn run_deferred(&'static self) {
        let (waited, held) = {
            let mut deferred = self.deferred.lock();
            // Under the lock: a remover that sets the flag after this finds a new epoch, and stores no batch.
            self.has_deferred.store(self.is_owned_by_guards.load(Ordering::Relaxed), Ordering::Relaxed);
            if !seeded_bug!("announcement_outlives_its_guard") {
                deferred.announced = 0;
            }
            (std::mem::take(&mut deferred.batches), deferred.held.take())
        };
        let mut free = waited.into_iter().filter_map(DeferredBatch::defer_to_next);
        if let Some(first) = free.next() {
            let others = free.collect();
            first.release(others);
        }
        drop(held);
    }

    /// The list of the thread is destroyed: the guards own the record from now on.
    fn transfer_to_guards(&self) {
        self.is_owned_by_guards.store(true, Ordering::Relaxed);
        // So the last guard takes the slow path and deregisters the record, even if no batch is stored.
        self.has_deferred.store(true, Ordering::Relaxed);
    }

    /// One function, so that the inlined caller saves no register between two calls.
    #[cold]
    fn run_deferred_and_deregister(&'static self) {
        self.run_deferred();
        self.deregister_if_owned_by_guards();
    }

    /// Deregisters the record if the guards own it. The thread must enter no guard in it afterwards.
    pub(super) fn deregister_if_owned_by_guards(&'static self) {
        if self.is_owned_by_guards.swap(false, Ordering::Relaxed) {
            self.has_deferred.store(false, Ordering::Relaxed);
            self.deregister(USED_BY_THREAD);
        }
    }

    /// Whether the domain no longer exists and no guard is entered. A leaked guard keeps the record.
    fn is_orphaned(&self) -> bool {
        self.users.load(Ordering::Relaxed) & USED_BY_DOMAIN == 0 && !is_entered(self.epoch.load(Ordering::Relaxed))
    }

    /// The domain, or the thread, no longer uses the record. After the last of them it is free for others.
    fn deregister(&'static self, user: usize) {
        let before = self.users.fetch_and(!user, Ordering::AcqRel);
        if before == user && !are_statics_destroyed() {
            FREE_RECORDS.lock().push(self);
        }
    }

    /// Stores `batch` in the record, if its epoch is still `seen`. Returns the batch otherwise.
    fn try_defer(&self, seen: u64, batch: DeferredBatch) -> Option<DeferredBatch> {
        let mut deferred = self.deferred.lock();
        if deferred.announced != seen {
            self.has_deferred.store(true, Ordering::Relaxed);
            heavy_barrier();
            if self.epoch.load(Ordering::Acquire) != seen {
                return Some(batch);
            }
            deferred.announced = seen;
        }
        deferred.batches.push(batch);
        None
    }
}

/// Waits a moment for guards, and returns those that are still entered. A call mostly ends sooner than a remover could announce a
/// batch to its thread. A thread to which a batch was announced already is inside for long, so it is not waited for.
pub(crate) fn wait_briefly(mut active: Vec<ActiveGuard>) -> Vec<ActiveGuard> {
    for _ in 0..BRIEF_WAIT {
        active.retain(ActiveGuard::is_active);
        if active.iter().all(|active| active.record.has_deferred.load(Ordering::Relaxed)) {
            break;
        }
        std::hint::spin_loop();
    }
    active
}

/// How often guards are looked at before a batch is deferred. Each look may cost a cache miss.
const BRIEF_WAIT: usize = if cfg!(loom) { 1 } else { 32 };

/// Defers `items` until the guards and calls of `active` are left. Returns `items` if they are left already.
pub(crate) fn defer<D: Deferred>(items: D, active: Vec<ActiveGuard>) -> Option<D> {
    if active.is_empty() {
        return Some(items);
    }
    let batch = DeferredBatch { items: Box::new(items), since: Instant::now(), others: active };
    let free: Box<dyn Any> = batch.defer_to_next()?;
    free.downcast().ok().map(|free| *free)
}

impl DeferredBatch {
    /// Stores the batch in the record of a guard that blocks it. If there is none, returns the items: they can be released.
    fn defer_to_next(mut self) -> Option<Box<dyn Deferred>> {
        while let Some(ActiveGuard { record, epoch }) = self.others.pop() {
            match record.try_defer(epoch, self) {
                Some(batch) => self = batch,
                None => return None,
            }
        }
        Some(self.items)
    }
}

impl Guards {
    pub(crate) fn new() -> Guards {
        Guards { id: unique_number(), records: ReadMostly::new() }
    }

    /// A number that no other value has, before or later.
    #[inline]
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The record of this thread in this domain.
    #[inline]
    pub(crate) fn record_of_this_thread(&self, last: &'static LastRecord) -> &'static EpochRecord {
        match last.try_with(Cell::get).ok().flatten() {
            Some(record) if record.domain.load(Ordering::Relaxed) == self.id => record,
            _ => self.find_or_register(last),
        }
    }

    #[cold]
    fn find_or_register(&self, last: &'static LastRecord) -> &'static EpochRecord {
        let known = THREAD_RECORDS.try_with(|records| {
            let records = records.borrow();
            let known = records.records.iter().find(|record| record.domain.load(Ordering::Relaxed) == self.id).copied();
            (!records.is_destroyed).then_some(known)
        });
        match known.ok().flatten() {
            Some(known) => {
                let record = known.unwrap_or_else(|| self.register_for_thread());
                let _ = last.try_with(|last| last.set(Some(record)));
                record
            }
            None => {
                let record = self.register();
                record.transfer_to_guards();
                record
            }
        }
    }

    /// A record that is listed in [`THREAD_RECORDS`].
    fn register_for_thread(&self) -> &'static EpochRecord {
        let record = self.register();
        let _ = THREAD_RECORDS.try_with(|records| {
            let records = &mut records.borrow_mut().records;
            // Removes records of domains that no longer exist. Another thread may take them, and give them another domain, so
            // none stays the last record of this thread.
            for record in records.extract_if(.., |record| record.is_orphaned()) {
                for last in [&LAST, &LAST_CALL, &LAST_HOST_CALL] {
                    let _ = last.try_with(|last| {
                        if last.get().is_some_and(|last| std::ptr::eq(last, record)) {
                            last.set(None);
                        }
                    });
                }
                record.deregister(USED_BY_THREAD);
            }
            records.push(record);
        });
        record
    }

    /// A record that no other thread uses, of this domain.
    fn register(&self) -> &'static EpochRecord {
        prepare_barriers();
        let record = self.records.write(|records| {
            let free = records.iter().find(|record| record.users.load(Ordering::Acquire) == USED_BY_DOMAIN).copied();
            let record = free.unwrap_or_else(|| {
                let record = FREE_RECORDS.lock().pop().unwrap_or_else(|| Box::leak(Box::new(EpochRecord::new())));
                record.domain.store(self.id, Ordering::Relaxed);
                records.push(record);
                record
            });
            // A plain store is right: this list is locked, so no other thread registers the record.
            record.users.store(USED_BY_DOMAIN | USED_BY_THREAD, Ordering::Relaxed);
            record
        });
        *record.thread.lock() = Arc::from(describe_thread());
        record
    }

    /// The guards that are entered and may have read symbols before this call.
    pub(crate) fn active(&self) -> Vec<ActiveGuard> {
        // Pairs with the fence of `enter`. It also comes before the check whether any record exists.
        if !seeded_bug!("guards_looked_at_without_a_fence") {
            fence(Ordering::SeqCst);
        }
        let active = self.records.read(|records| {
            let epochs = records.iter().map(|record| (record, record.epoch.load(Ordering::Acquire)));
            let active = epochs.filter(|(_, epoch)| is_entered(*epoch));
            active.map(|(record, epoch)| ActiveGuard { record, epoch }).collect()
        });
        active.unwrap_or_default()
    }

    /// The records that block certain items, and since when. Finds the batches that are stored in records of this domain. For
    /// each of them it returns the guards of all domains. `is_among` says whether the items of a batch are the right ones.
    pub(crate) fn blocking(&self, is_among: impl Fn(&dyn Any) -> bool) -> Vec<(&'static EpochRecord, Instant)> {
        let records = self.records.read(|records| records.clone()).unwrap_or_default();
        let mut found = Vec::new();
        for record in &records {
            for batch in record.deferred.lock().batches.iter() {
                if is_among(&*batch.items) {
                    found.push((*record, batch.since));
                    let others = batch.others.iter().filter(|other| other.is_active());
                    found.extend(others.map(|other| (other.record, batch.since)));
                }
            }
        }
        found
    }

    /// Whether the record belongs to this domain.
    pub(crate) fn owns(&self, record: &EpochRecord) -> bool {
        record.domain.load(Ordering::Relaxed) == self.id
    }
}

impl ActiveGuard {
    fn is_active(&self) -> bool {
        self.record.epoch.load(Ordering::Acquire) == self.epoch
    }

    /// The thread, and whether it is inside a guard or a call.
    pub(crate) fn describe(&self, guards: &Guards) -> String {
        let what = if guards.owns(self.record) { "a guard" } else { "a call" };
        format!("{what} of {}", self.record.thread())
    }
}

impl Drop for Guards {
    fn drop(&mut self) {
        let records = self.records.read(Vec::clone).unwrap_or_default();
        records.into_iter().for_each(|record| record.deregister(USED_BY_DOMAIN));
    }
}

impl Drop for ThreadRecords {
    fn drop(&mut self) {
        self.end();
    }
}

impl ThreadRecords {
    /// The thread ends. A record inside a guard goes to its guards; if such a guard was leaked, the thread keeps the record.
    fn end(&mut self) {
        for last in [&LAST, &LAST_CALL, &LAST_HOST_CALL] {
            let _ = last.try_with(|last| last.set(None));
        }
        for record in self.records.drain(..) {
            let is_entered = is_entered(record.epoch.load(Ordering::Relaxed));
            match is_entered && !seeded_bug!("entered_post_given_up") {
                true => record.transfer_to_guards(),
                false => record.deregister(USED_BY_THREAD),
            }
        }
        self.is_destroyed = true;
    }
}

/// For models: destroys the list of this thread. Loom destroys the variables of a thread in any order.
#[cfg(loom)]
#[doc(hidden)]
pub fn end_of_thread() {
    THREAD_RECORDS.with(|records| records.borrow_mut().end());
}

impl EpochRecord {
    fn new() -> EpochRecord {
        EpochRecord {
            domain: AtomicU64::new(0),
            nested: AtomicU64::new(0),
            epoch: AtomicU64::new(0),
            has_deferred: AtomicBool::new(false),
            is_owned_by_guards: AtomicBool::new(false),
            users: AtomicUsize::new(0),
            deferred: Mutex::new(DeferredList::default()),
            thread: Mutex::new(Arc::from("")),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::session::core::execution_session::ExecutionSession;

    struct AtThreadEnd(Cell<Option<Box<dyn FnOnce()>>>);

    impl Drop for AtThreadEnd {
        fn drop(&mut self) {
            if let Some(body) = self.0.take() {
                body();
            }
        }
    }

    std::thread_local! {
        static AT_THREAD_END: AtThreadEnd = const { AtThreadEnd(Cell::new(None)) };
    }

    /// Runs threads one after the other; each enters guards and ends. Returns the number of records of the session.
    fn records_after(threads: usize, body: impl Fn(&'static ExecutionSession) + Copy + Send + Sync + 'static) -> usize {
        let session: &'static ExecutionSession = Box::leak(Box::new(ExecutionSession::new()));
        for _ in 0..threads {
            std::thread::spawn(move || body(session)).join().expect("the thread does not panic");
        }
        let records = session.inner().guards.records.read(Vec::clone).unwrap_or_default();
        let are_free = records.iter().all(|record| record.users.load(Ordering::Relaxed) == USED_BY_DOMAIN);
        assert!(are_free, "a record still has a thread");
        records.len()
    }

    #[test]
    #[cfg_attr(miri, ignore = "leaks its sessions on purpose")]
    fn ended_threads_free_their_records_whenever_their_guards_are_dropped() {
        // This variable is registered before the list of records, so its destructor runs after that of the list.
        let at_end = |body: Box<dyn FnOnce()>| AT_THREAD_END.with(|end| end.0.set(Some(body)));
        assert_eq!(records_after(20, |session| drop(session.guard())), 1);
        let dropped_late = move |session: &'static ExecutionSession| {
            let guards = std::rc::Rc::new(Cell::new(None));
            let late = guards.clone();
            at_end(Box::new(move || drop(late.take())));
            guards.set(Some([session.guard(), session.guard()]));
        };
        assert_eq!(records_after(20, dropped_late), 1);
        let entered_late = move |session: &'static ExecutionSession| {
            at_end(Box::new(move || {
                let mut outer = session.guard();
                let mut inner = session.guard();
                inner.refresh();
                outer.refresh();
                drop(outer);
                inner.refresh();
            }));
            drop(session.guard());
        };
        assert_eq!(records_after(20, entered_late), 2);
    }

    #[test]
    fn a_record_that_a_thread_has_freed_is_the_last_record_of_no_kind() {
        // The last record of a kind outlives its session. A registration for another kind frees it, and then another thread
        // and another session may take it.
        for (stale, freeing) in [(&LAST, &LAST_CALL), (&LAST_CALL, &LAST_HOST_CALL), (&LAST_HOST_CALL, &LAST)] {
            let on_thread = move || {
                let ended = Guards::new();
                let record = ended.record_of_this_thread(stale);
                drop(ended);
                Guards::new().record_of_this_thread(freeing);
                assert!(stale.get().is_none_or(|last| !std::ptr::eq(last, record)));
            };
            std::thread::spawn(on_thread).join().unwrap();
        }
    }
}
