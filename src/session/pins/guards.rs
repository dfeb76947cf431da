//! [`Guard`]: what a thread runs or reads under it stays, whoever removes it meanwhile. For calls so short that an owned handle
//! would cost more than they do.
//!
//! Each thread that uses guards has a *post* in the session: a word that is odd while it is inside one. A remover takes the
//! names away first and then looks at the posts. The guards that it finds entered may have seen the names: the trackers wait
//! for exactly those, in the *custody* of one of them after the other. Whoever leaves a guard hands what waits for it on to the
//! next that is still in the way, or, after the last, settles it (`tracker_state.rs`) on its own thread.
//!
//! | thread inside | remover |
//! |---|---|
//! | 1 makes its word odd, and a fence | 1 takes the names, or redirects the stubs, away |
//! | 2 finds a name, reads a stub's slot | 2 a fence, and looks at the words |
//!
//! Of two fences one is first: either the remover sees the word odd, or the thread does not see the name. The same again on the
//! way out, with a barrier that costs only the remover, as it is needed only if somebody is in the way:
//!
//! | thread leaving | remover, under the post's lock |
//! |---|---|
//! | 1 makes its word even, light barrier | 1 says that it waits, heavy barrier |
//! | 2 looks whether somebody waits | 2 looks whether the word has changed; if not, leaves its trackers there |
//!
//! Words count entries, so that a guard that was left and entered again is not taken for the old one: nothing waits for a guard
//! that was entered after the names had gone. Model: `loom_tests/loom_guard_retire.rs`.
//!
//! Posts are never freed, so that entering takes no count: they are *listed* by a session and *manned* by a thread, and when
//! neither is so any more the next session or thread takes them. Their words count on all the while. A guard that is
//! forgotten keeps its post manned, and whatever is removed from then on, for ever.
//!
//! # The end of a thread
//! A thread keeps a list of its posts. The list is destroyed when the thread ends, and other destructors may run later. So a
//! post has one of two owners: the list, or its guards.
//!
//! | when | who owns the post | who gives it up |
//! |---|---|---|
//! | the list is there | the list | the destructor of the list, if no guard is entered |
//! | the list is destroyed, and guards are entered | those guards | the drop of the last of them |
//! | a guard is entered later | that guard | its drop |
//!
//! Only the drop of a guard gives a post up, after which no code can enter it: [`Guard::refresh`] cannot.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use crate::session::core::execution_session::{ExecutionSession, SessionInner};
use crate::session::core::resource_tracker::TrackerCore;
use crate::session::pins::calls;
use crate::session::removal::reclaim;
use crate::sync::{
    Arc, AtomicBool, AtomicU64, AtomicUsize, Mutex, Ordering, ProcessMutex, ReadMostly, ThreadKey, describe_thread,
    fence, heavy_barrier, is_process_over, light_barrier, per_process, prepare_barriers, seeded_bug, store_then_fence,
    thread_local, unique_number,
};

/// While there is one, what its thread finds in the session stays in memory: code, data, stubs' targets. Entering and leaving
/// cost a few nanoseconds; guards inside guards nearly nothing. Made by [`ExecutionSession::guard`].
///
/// Removal goes on meanwhile: names vanish, and the tickets say who is in the way ([`Removal::obstacles`]). What waits is given
/// back on the thread that leaves the last guard in its way. A guard blocks what was removed since it was entered, all of it,
/// since it cannot be known what the thread has seen: enter anew now and then ([`refresh`](Self::refresh)), and hold calls that
/// may take long by an owned handle instead.
///
/// [`Removal::obstacles`]: crate::session::Removal::obstacles
pub struct Guard<'s> {
    post: &'static EpochRecord,
    /// What the post's word is, while any of the thread's guards is entered.
    entries: u64,
    session: PhantomData<&'s ExecutionSession>,
    /// The post is this thread's.
    not_send: PhantomData<*const ()>,
}

/// One thread's place in one session.
#[repr(align(64))]
pub(crate) struct EpochRecord {
    /// Which session's. Read by whoever mans it.
    session: AtomicU64,
    /// Guards that its thread has entered inside another and not left. Only that thread's.
    inner: AtomicU64,
    /// Odd while a guard is entered; counts on at each entry and each leaving. Written by its thread only.
    entries: AtomicU64,
    /// Whether somebody may have left something in `waiting`.
    is_awaited: AtomicBool,
    /// Whether its guards own it: the thread's list is destroyed. Only that thread's. While it is set, `is_awaited` is.
    is_owned_by_guards: AtomicBool,
    /// [`LISTED`], [`MANNED`].
    users: AtomicUsize,
    /// What waits for the guard that is entered.
    waiting: Mutex<Vec<DeferredBatch>>,
    thread: Mutex<Arc<str>>,
}

/// A session has it in its list.
const LISTED: usize = 1;
/// A thread enters its guards there.
const MANNED: usize = 2;

/// A guard that somebody has seen entered.
#[derive(Clone, Copy)]
pub(crate) struct ActiveGuard {
    post: &'static EpochRecord,
    entries: u64,
}

/// Trackers that were removed together, and wait for guards.
struct DeferredBatch {
    cores: Vec<Arc<TrackerCore>>,
    since: Instant,
    /// Who else may be in the way.
    others: Vec<ActiveGuard>,
}

/// A session's posts.
pub(crate) struct Guards {
    id: u64,
    posts: ReadMostly<Vec<&'static EpochRecord>>,
}

/// A guard that keeps something from being reclaimed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockingGuard {
    /// Whether it is a call of linked code, which is in the way of replaced versions only.
    pub is_call: bool,
    /// The thread that has entered it, by the system's number and the system's name, which has at most 15 bytes.
    pub thread: Arc<str>,
    /// How long what asked for it has been waiting for it.
    pub blocking_for: Duration,
}

thread_local! {
    // loom's `thread_local` takes no `const` block.
    #[allow(clippy::missing_const_for_thread_local)]
    static MANNED_HERE: RefCell<ThreadRecords> = RefCell::new(ThreadRecords::default());
}

/// The post that a thread used last in domains of one kind.
pub(crate) type LastPost = ThreadKey<Cell<Option<&'static EpochRecord>>>;

#[cfg(not(loom))]
thread_local! {
    /// For guards. Has nothing to drop, so it costs no look at whether it was.
    static LAST: Cell<Option<&'static EpochRecord>> = const { Cell::new(None) };
    /// For calls of a session's code.
    pub(crate) static LAST_CALL: Cell<Option<&'static EpochRecord>> = const { Cell::new(None) };
    /// For calls that the host makes by itself.
    pub(crate) static LAST_HOST_CALL: Cell<Option<&'static EpochRecord>> = const { Cell::new(None) };
}

#[cfg(loom)]
thread_local! {
    static LAST: Cell<Option<&'static EpochRecord>> = Cell::new(None);
    pub(crate) static LAST_CALL: Cell<Option<&'static EpochRecord>> = Cell::new(None);
    pub(crate) static LAST_HOST_CALL: Cell<Option<&'static EpochRecord>> = Cell::new(None);
}

/// The posts of one thread.
#[derive(Default)]
struct ThreadRecords {
    posts: Vec<&'static EpochRecord>,
    /// For models: a destructor may have run although the list is there.
    is_destroyed: bool,
}

/// Whether a guard is entered, by its post's word.
#[inline]
fn is_inside(entries: u64) -> bool {
    entries % 2 == 1
}

per_process! {
    /// Posts that no session lists and no thread mans.
    static UNUSED: ProcessMutex<Vec<&'static EpochRecord>> = ProcessMutex::new(Vec::new());
}

impl ExecutionSession {
    /// Enters a guard: what this thread finds in the session from now on stays in memory until the guard is dropped.
    #[inline]
    pub fn guard(&self) -> Guard<'_> {
        let post = self.inner().guards.post_of_this_thread(&LAST);
        let entries = post.enter();
        Guard { post, entries, session: PhantomData, not_send: PhantomData }
    }
}

impl Guard<'_> {
    /// Leaves the guard and enters it anew: what waited for it may go, and so may whatever was found under it. Inside another
    /// guard of the same session it does nothing.
    #[inline]
    pub fn refresh(&mut self) {
        if self.post.leave(self.entries) {
            self.post.hand_on();
            // Seeded bug: another thread may take the post.
            if seeded_bug!("post_given_up_by_a_refresh") {
                self.post.give_up_if_owned_by_guards();
            }
        }
        self.entries = self.post.enter();
    }

    /// Whether the guard is of this session.
    pub fn is_of(&self, session: &ExecutionSession) -> bool {
        self.post.session.load(Ordering::Relaxed) == session.inner().guards.id
    }
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.post.leave_for_good(self.entries);
    }
}

impl fmt::Debug for Guard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "guard of {}", self.post.thread())
    }
}

impl EpochRecord {
    #[inline]
    pub(crate) fn enter(&self) -> u64 {
        let entries = self.entries.load(Ordering::Relaxed);
        if is_inside(entries) {
            self.inner.store(self.inner.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            return entries;
        }
        if seeded_bug!("guard_entered_without_a_fence") {
            self.entries.store(entries + 1, Ordering::Release);
        } else {
            store_then_fence(&self.entries, entries + 1);
        }
        entries + 1
    }

    /// Whether the caller must [hand on](Self::hand_on) what may wait. `entries` is what the word is: told, since to read it
    /// here would have to wait for the fence.
    #[inline]
    fn leave(&self, entries: u64) -> bool {
        // Whichever of the guards this is: the last one counts.
        let inner = self.inner.load(Ordering::Relaxed);
        if inner != 0 {
            self.inner.store(inner - 1, Ordering::Relaxed);
            return false;
        }
        // Release: what this thread did inside is done before what waits for it is freed.
        self.entries.store(entries + 1, Ordering::Release);
        if !seeded_bug!("guard_left_without_a_barrier") {
            light_barrier();
        }
        self.is_awaited.load(Ordering::Relaxed)
    }

    /// As [`leave`](Self::leave), for who does not enter anew: hands on what waits, and gives up a post that the guards own.
    #[inline]
    pub(crate) fn leave_for_good(&'static self, entries: u64) {
        if self.leave(entries) {
            self.hand_on_and_give_up();
        }
    }

    /// What the word is.
    #[inline]
    pub(crate) fn entries(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    /// Leaves all that the thread has entered here, and enters as much anew: what waited may go.
    pub(crate) fn enter_anew(&'static self) {
        if is_inside(self.entries()) {
            let inner = self.inner.swap(0, Ordering::Relaxed);
            if self.leave(self.entries()) {
                self.hand_on();
            }
            self.enter();
            self.inner.store(inner, Ordering::Relaxed);
        } else {
            self.give_up_if_owned_by_guards();
        }
    }

    fn thread(&self) -> Arc<str> {
        self.thread.lock().clone()
    }

    /// The guard was left: what waited for it goes on to the next guard in its way, or is settled.
    #[cold]
    fn hand_on(&'static self) {
        let waited = {
            let mut waiting = self.waiting.lock();
            // Under the lock: whoever says so after this leaves nothing for a guard that was left.
            self.is_awaited.store(self.is_owned_by_guards.load(Ordering::Relaxed), Ordering::Relaxed);
            std::mem::take(&mut *waiting)
        };
        let free: Vec<_> = waited.into_iter().flat_map(DeferredBatch::entrust).collect();
        if let Some(core) = free.first() {
            let session = core.dylib().session.clone();
            reclaim::after_guards(&session, free);
        }
    }

    /// The thread's list is destroyed: from now on the guards own the post.
    fn pass_to_guards(&self) {
        self.is_owned_by_guards.store(true, Ordering::Relaxed);
        // So the last guard looks, whether or not anybody waits.
        self.is_awaited.store(true, Ordering::Relaxed);
    }

    /// One call, so that the common way has to keep nothing for a second.
    #[cold]
    fn hand_on_and_give_up(&'static self) {
        self.hand_on();
        self.give_up_if_owned_by_guards();
    }

    /// No guard is entered here after it, if the guards own the post.
    fn give_up_if_owned_by_guards(&'static self) {
        if self.is_owned_by_guards.swap(false, Ordering::Relaxed) {
            self.is_awaited.store(false, Ordering::Relaxed);
            self.let_go(MANNED);
        }
    }

    /// Of a session that is no more, and without a guard that was forgotten.
    fn is_orphaned(&self) -> bool {
        self.users.load(Ordering::Relaxed) & LISTED == 0 && !is_inside(self.entries.load(Ordering::Relaxed))
    }

    /// The session, or the thread, uses it no more. The last of them leaves it to others.
    fn let_go(&'static self, user: usize) {
        // Release and acquire: the next thread goes on counting where this one stopped.
        let before = self.users.fetch_and(!user, Ordering::AcqRel);
        if before == user && !is_process_over() {
            UNUSED.lock().push(self);
        }
    }

    /// Leaves `custody` with the guard, if that is still entered.
    fn accept(&self, seen: u64, custody: DeferredBatch) -> Option<DeferredBatch> {
        let mut waiting = self.waiting.lock();
        self.is_awaited.store(true, Ordering::Relaxed);
        heavy_barrier();
        if self.entries.load(Ordering::Acquire) != seen {
            return Some(custody);
        }
        waiting.push(custody);
        None
    }
}

/// Has `cores`, which are guarded, wait until the guards and calls of `entered` are left. Returns them if they are already.
pub(crate) fn entrust(cores: Vec<Arc<TrackerCore>>, entered: Vec<ActiveGuard>) -> Vec<Arc<TrackerCore>> {
    match cores.is_empty() {
        true => cores,
        false => DeferredBatch { cores, since: Instant::now(), others: entered }.entrust(),
    }
}

impl DeferredBatch {
    /// Leaves the trackers with one of the guards in their way. If none is left, returns them: they are to be settled.
    fn entrust(mut self) -> Vec<Arc<TrackerCore>> {
        while let Some(ActiveGuard { post, entries }) = self.others.pop() {
            match post.accept(entries, self) {
                Some(back) => self = back,
                None => return Vec::new(),
            }
        }
        self.cores
    }
}

impl Guards {
    pub(crate) fn new() -> Guards {
        Guards { id: unique_number(), posts: ReadMostly::new() }
    }

    /// This thread's post in this domain.
    #[inline]
    pub(crate) fn post_of_this_thread(&self, last: &'static LastPost) -> &'static EpochRecord {
        match last.try_with(Cell::get).ok().flatten() {
            Some(post) if post.session.load(Ordering::Relaxed) == self.id => post,
            _ => self.post(last),
        }
    }

    #[cold]
    fn post(&self, last: &'static LastPost) -> &'static EpochRecord {
        let known = MANNED_HERE.try_with(|manned| {
            let manned = manned.borrow();
            let known = manned.posts.iter().find(|post| post.session.load(Ordering::Relaxed) == self.id).copied();
            (!manned.is_destroyed).then_some(known)
        });
        match known.ok().flatten() {
            Some(known) => {
                let post = known.unwrap_or_else(|| self.man_for_the_thread());
                let _ = last.try_with(|last| last.set(Some(post)));
                post
            }
            None => {
                let post = self.man();
                post.pass_to_guards();
                post
            }
        }
    }

    fn man_for_the_thread(&self) -> &'static EpochRecord {
        let post = self.man();
        let _ = MANNED_HERE.try_with(|manned| {
            let manned = &mut manned.borrow_mut().posts;
            // Of sessions that are no more.
            for post in manned.extract_if(.., |post| post.is_orphaned()) {
                post.let_go(MANNED);
            }
            manned.push(post);
        });
        post
    }

    /// A post that no other thread mans.
    fn man(&self) -> &'static EpochRecord {
        prepare_barriers();
        let post = self.posts.write(|posts| {
            // Acquire: see `let_go`.
            let free = posts.iter().find(|post| post.users.load(Ordering::Acquire) == LISTED).copied();
            let post = free.unwrap_or_else(|| {
                let post = UNUSED.lock().pop().unwrap_or_else(|| Box::leak(Box::new(EpochRecord::new())));
                post.session.store(self.id, Ordering::Relaxed);
                posts.push(post);
                post
            });
            // Nobody else does so: this list is locked.
            post.users.store(LISTED | MANNED, Ordering::Relaxed);
            post
        });
        *post.thread.lock() = Arc::from(describe_thread());
        post
    }

    /// The guards that are entered, and may have seen what was there before this call.
    pub(crate) fn entered(&self) -> Vec<ActiveGuard> {
        // Pairs with the fence of whoever enters, and ahead of the look at whether there is any post: see above.
        if !seeded_bug!("guards_looked_at_without_a_fence") {
            fence(Ordering::SeqCst);
        }
        let entered = self.posts.read(|posts| {
            let words = posts.iter().map(|post| (post, post.entries.load(Ordering::Acquire)));
            let entered = words.filter(|(_, entries)| is_inside(*entries));
            entered.map(|(post, entries)| ActiveGuard { post, entries }).collect()
        });
        entered.unwrap_or_default()
    }

    /// Those that `core` waits for, of all domains, if one of this domain is the one that it waits for next: the posts, and
    /// since when.
    pub(crate) fn awaited_by(&self, core: &TrackerCore) -> Vec<(&'static EpochRecord, Instant)> {
        let posts = self.posts.read(|posts| posts.clone()).unwrap_or_default();
        let mut found = Vec::new();
        for post in &posts {
            for custody in post.waiting.lock().iter() {
                if custody.cores.iter().any(|other| std::ptr::eq(&**other, core)) {
                    found.push((*post, custody.since));
                    let others = custody.others.iter().filter(|other| other.is_still_entered());
                    found.extend(others.map(|other| (other.post, custody.since)));
                }
            }
        }
        found
    }

    /// Whether a post is one of this domain.
    pub(crate) fn has(&self, post: &EpochRecord) -> bool {
        post.session.load(Ordering::Relaxed) == self.id
    }
}

impl SessionInner {
    /// The guards and calls that a tracker waits for, by thread.
    pub(crate) fn in_the_way_of(&self, core: &TrackerCore) -> Vec<BlockingGuard> {
        let domains = [Some(&self.guards), Some(&self.calls.entries), calls::host_calls()];
        let awaited = domains.into_iter().flatten().flat_map(|domain| domain.awaited_by(core));
        let blocking = |(post, since): (&'static EpochRecord, Instant)| BlockingGuard {
            is_call: !self.guards.has(post),
            thread: post.thread(),
            blocking_for: since.elapsed(),
        };
        let mut found: Vec<_> = awaited.map(blocking).collect();
        found.sort_by(|a, b| a.thread.cmp(&b.thread));
        found
    }
}

impl ActiveGuard {
    fn is_still_entered(&self) -> bool {
        self.post.entries.load(Ordering::Acquire) == self.entries
    }

    /// Which thread, and what it has entered.
    pub(crate) fn describe(&self, guards: &Guards) -> String {
        let what = if guards.has(self.post) { "a guard" } else { "a call" };
        format!("{what} of {}", self.post.thread())
    }
}

impl Drop for Guards {
    fn drop(&mut self) {
        let posts = self.posts.read(Vec::clone).unwrap_or_default();
        posts.into_iter().for_each(|post| post.let_go(LISTED));
    }
}

impl Drop for ThreadRecords {
    fn drop(&mut self) {
        self.end();
    }
}

impl ThreadRecords {
    /// The thread ends. A post whose guard was forgotten stays manned.
    fn end(&mut self) {
        for last in [&LAST, &LAST_CALL, &LAST_HOST_CALL] {
            let _ = last.try_with(|last| last.set(None));
        }
        for post in self.posts.drain(..) {
            let is_entered = is_inside(post.entries.load(Ordering::Relaxed));
            match is_entered && !seeded_bug!("entered_post_given_up") {
                true => post.pass_to_guards(),
                false => post.let_go(MANNED),
            }
        }
        self.is_destroyed = true;
    }
}

/// For models: does what happens when this thread's list is destroyed. Loom destroys a thread's variables in any order.
#[cfg(loom)]
#[doc(hidden)]
pub fn end_of_thread() {
    MANNED_HERE.with(|manned| manned.borrow_mut().end());
}

impl EpochRecord {
    fn new() -> EpochRecord {
        EpochRecord {
            session: AtomicU64::new(0),
            inner: AtomicU64::new(0),
            entries: AtomicU64::new(0),
            is_awaited: AtomicBool::new(false),
            is_owned_by_guards: AtomicBool::new(false),
            users: AtomicUsize::new(0),
            waiting: Mutex::new(Vec::new()),
            thread: Mutex::new(Arc::from("")),
        }
    }
}

impl fmt::Display for BlockingGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.is_call { "a call" } else { "a guard" };
        write!(f, "{what} of {}, for {:.1?}", self.thread, self.blocking_for)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;

    use super::*;

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

    /// Threads one after the other; each enters guards and ends. How many posts the session has then.
    fn posts_after(threads: usize, body: impl Fn(&'static ExecutionSession) + Copy + Send + Sync + 'static) -> usize {
        let session: &'static ExecutionSession = Box::leak(Box::new(ExecutionSession::new()));
        for _ in 0..threads {
            std::thread::spawn(move || body(session)).join().expect("it does not panic");
        }
        let posts = session.inner().guards.posts.read(Vec::clone).unwrap_or_default();
        assert!(posts.iter().all(|post| post.users.load(Ordering::Relaxed) == LISTED), "no thread is left");
        posts.len()
    }

    #[test]
    #[cfg_attr(miri, ignore = "leaks its sessions on purpose")]
    fn threads_leave_their_posts_to_the_next_whenever_their_guards_are_dropped() {
        // Registered ahead of the list of posts, so run after it is destroyed.
        let at_end = |body: Box<dyn FnOnce()>| AT_THREAD_END.with(|end| end.0.set(Some(body)));
        assert_eq!(posts_after(20, |session| drop(session.guard())), 1);
        let kept = move |session: &'static ExecutionSession| {
            let place = std::rc::Rc::new(Cell::new(None));
            let late = place.clone();
            at_end(Box::new(move || drop(late.take())));
            place.set(Some([session.guard(), session.guard()]));
        };
        assert_eq!(posts_after(20, kept), 1);
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
        assert_eq!(posts_after(20, entered_late), 2);
    }
}
