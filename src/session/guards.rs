//! [`Guard`]: what a thread runs or reads under it stays, whoever removes it meanwhile. For calls so short that an owned handle
//! would cost more than they do.
//!
//! Each thread that uses guards has a *post* in the session: a word that is odd while it is inside one. A remover takes the
//! names away first and then looks at the posts. The guards that it finds entered may have seen the names: the trackers wait
//! for exactly those, in the *custody* of one of them after the other. Whoever leaves a guard hands what waits for it on to the
//! next that is still in the way, or, after the last, settles it (`tracker_gate.rs`) on its own thread.
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
//! A post is its thread's until that ends, and then another's. A guard that is forgotten keeps its post, and whatever is
//! removed from then on, for ever.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::session::execution_session::ExecutionSession;
use crate::session::reclaim;
use crate::session::resource_tracker::TrackerCore;
use crate::sync::{
    Arc, AtomicBool, AtomicU64, Mutex, Ordering, ReadMostly, describe_thread, fence, heavy_barrier, light_barrier,
    prepare_barriers, store_then_fence, thread_local, unique_number,
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
    berth: Rc<Berth>,
    session: PhantomData<&'s ExecutionSession>,
}

/// A thread's own view of its post in one session.
struct Berth {
    post: Arc<Post>,
    /// Guards that the thread has entered and not left.
    depth: Cell<usize>,
    /// What the post's word is; nobody else writes it.
    entries: Cell<u64>,
}

/// One thread's place in one session.
#[repr(align(64))]
pub(crate) struct Post {
    /// Which session's.
    session: u64,
    /// Odd while a guard is entered; counts on at each entry and each leaving.
    entries: AtomicU64,
    /// Whether somebody may have left something in `waiting`.
    is_awaited: AtomicBool,
    /// Whether a thread has it.
    is_manned: AtomicBool,
    /// What waits for the guard that is entered.
    waiting: Mutex<Vec<Custody>>,
    thread: Mutex<Arc<str>>,
}

/// A guard that somebody has seen entered.
#[derive(Clone)]
pub(crate) struct Entered {
    post: Arc<Post>,
    entries: u64,
}

/// Trackers that were removed together, and wait for guards.
struct Custody {
    cores: Vec<Arc<TrackerCore>>,
    since: Instant,
    /// Who else may be in the way.
    others: Vec<Entered>,
}

/// A session's posts.
pub(crate) struct Guards {
    id: u64,
    posts: ReadMostly<Vec<Arc<Post>>>,
}

/// A guard that keeps something from being reclaimed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockingGuard {
    /// The thread that has entered it, by its system's number and its name.
    pub thread: Arc<str>,
    /// How long what asked for it has been waiting for it.
    pub blocking_for: Duration,
}

#[cfg(not(loom))]
thread_local! {
    static BERTHS: RefCell<Vec<Rc<Berth>>> = const { RefCell::new(Vec::new()) };
}

// loom's `thread_local` takes no `const` block.
#[cfg(loom)]
thread_local! {
    static BERTHS: RefCell<Vec<Rc<Berth>>> = RefCell::new(Vec::new());
}

impl ExecutionSession {
    /// Enters a guard: what this thread finds in the session from now on stays in memory until the guard is dropped.
    #[inline]
    pub fn guard(&self) -> Guard<'_> {
        let guards = &self.inner().guards;
        let known = BERTHS.try_with(|berths| {
            let berths = berths.borrow();
            berths.iter().find(|berth| berth.post.session == guards.id).cloned()
        });
        let berth = known.ok().flatten().unwrap_or_else(|| guards.take_berth());
        berth.enter();
        Guard { berth, session: PhantomData }
    }
}

impl Guard<'_> {
    /// Leaves the guard and enters it anew: what waited for it may go, and so may whatever was found under it. Inside another
    /// guard of the same session it does nothing.
    #[inline]
    pub fn refresh(&mut self) {
        self.berth.leave();
        self.berth.enter();
    }

    /// Whether the guard is of this session.
    pub fn is_of(&self, session: &ExecutionSession) -> bool {
        self.berth.post.session == session.inner().guards.id
    }
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.berth.leave();
    }
}

impl fmt::Debug for Guard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "guard of {}", self.berth.post.thread())
    }
}

impl Berth {
    #[inline]
    fn enter(&self) {
        let depth = self.depth.get();
        self.depth.set(depth + 1);
        if depth == 0 {
            let entries = self.entries.get() + 1;
            self.entries.set(entries);
            #[cfg(not(mutant = "guard_entered_without_a_fence"))]
            store_then_fence(&self.post.entries, entries);
            #[cfg(mutant = "guard_entered_without_a_fence")]
            self.post.entries.store(entries, Ordering::Release);
        }
    }

    #[inline]
    fn leave(&self) {
        let depth = self.depth.get() - 1;
        self.depth.set(depth);
        if depth == 0 {
            let entries = self.entries.get() + 1;
            self.entries.set(entries);
            // Release: what this thread did inside is done before what waits for it is freed.
            self.post.entries.store(entries, Ordering::Release);
            #[cfg(not(mutant = "guard_left_without_a_barrier"))]
            light_barrier();
            if self.post.is_awaited.load(Ordering::Relaxed) {
                self.post.hand_on();
            }
        }
    }
}

impl Drop for Berth {
    /// The thread ends, or uses other sessions now. Never while a guard is entered, which holds the berth.
    fn drop(&mut self) {
        // Release: the next thread goes on counting where this one stopped.
        self.post.is_manned.store(false, Ordering::Release);
    }
}

impl Post {
    fn thread(&self) -> Arc<str> {
        self.thread.lock().clone()
    }

    /// The guard was left: what waited for it goes on to the next guard in its way, or is settled.
    #[cold]
    fn hand_on(&self) {
        let waited = {
            let mut waiting = self.waiting.lock();
            // Under the lock: whoever says so after this leaves nothing for a guard that was left.
            self.is_awaited.store(false, Ordering::Relaxed);
            std::mem::take(&mut *waiting)
        };
        let free: Vec<_> = waited.into_iter().flat_map(Custody::entrust).collect();
        if let Some(core) = free.first() {
            let session = core.dylib.session.clone();
            reclaim::after_guards(&session, free);
        }
    }

    /// Leaves `custody` with the guard, if that is still entered.
    fn accept(&self, seen: u64, custody: Custody) -> Option<Custody> {
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

impl Custody {
    /// Leaves the trackers with one of the guards in their way. If none is left, returns them: they are to be settled.
    fn entrust(mut self) -> Vec<Arc<TrackerCore>> {
        while let Some(Entered { post, entries }) = self.others.pop() {
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

    /// A post for this thread, which has none in this session.
    #[cold]
    fn take_berth(&self) -> Rc<Berth> {
        prepare_barriers();
        let post = self.posts.write(|posts| {
            // Acquire: see `Berth::drop`.
            let free = posts.iter().find(|post| !post.is_manned.load(Ordering::Acquire)).cloned();
            let post = free.unwrap_or_else(|| {
                let post = Arc::new(Post::new(self.id));
                posts.push(post.clone());
                post
            });
            post.is_manned.store(true, Ordering::Relaxed);
            post
        });
        *post.thread.lock() = Arc::from(describe_thread());
        let entries = Cell::new(post.entries.load(Ordering::Relaxed));
        let berth = Rc::new(Berth { post, depth: Cell::new(0), entries });
        // At the end of a thread there is no list any more: the berth goes with the guard.
        let _ = BERTHS.try_with(|berths| {
            let mut berths = berths.borrow_mut();
            // Of sessions that are no more.
            berths.retain(|berth| Rc::strong_count(berth) > 1 || Arc::strong_count(&berth.post) > 1);
            berths.push(berth.clone());
        });
        berth
    }

    /// The guards that are entered, and may have seen what was there before this call.
    pub(crate) fn entered(&self) -> Vec<Entered> {
        // Pairs with the fence of whoever enters, and ahead of the look at whether there is any post: see above.
        #[cfg(not(mutant = "guards_looked_at_without_a_fence"))]
        fence(Ordering::SeqCst);
        let entered = self.posts.read(|posts| {
            let words = posts.iter().map(|post| (post, post.entries.load(Ordering::Acquire)));
            let entered = words.filter(|(_, entries)| entries % 2 == 1);
            entered.map(|(post, entries)| Entered { post: post.clone(), entries }).collect()
        });
        entered.unwrap_or_default()
    }

    /// Has `cores`, which are guarded, wait until the guards of `entered` are left. Returns them if they are already.
    pub(crate) fn entrust(&self, cores: Vec<Arc<TrackerCore>>, entered: Vec<Entered>) -> Vec<Arc<TrackerCore>> {
        Custody { cores, since: Instant::now(), others: entered }.entrust()
    }

    /// The guards that a tracker waits for, by thread.
    pub(crate) fn in_the_way_of(&self, core: &TrackerCore) -> Vec<BlockingGuard> {
        let posts = self.posts.read(|posts| posts.clone()).unwrap_or_default();
        let mut found = Vec::new();
        for post in &posts {
            let mut with = Vec::new();
            for custody in post.waiting.lock().iter() {
                if custody.cores.iter().any(|other| std::ptr::eq(&**other, core)) {
                    with.push((post.clone(), custody.since));
                    let others = custody.others.iter().filter(|other| other.is_still_entered());
                    with.extend(others.map(|other| (other.post.clone(), custody.since)));
                }
            }
            let guards = with
                .into_iter()
                .map(|(post, since)| BlockingGuard { thread: post.thread(), blocking_for: since.elapsed() });
            found.extend(guards);
        }
        found.sort_by(|a, b| a.thread.cmp(&b.thread));
        found
    }
}

impl Entered {
    fn is_still_entered(&self) -> bool {
        self.post.entries.load(Ordering::Acquire) == self.entries
    }

    pub(crate) fn thread(&self) -> Arc<str> {
        self.post.thread()
    }
}

impl Post {
    fn new(session: u64) -> Post {
        Post {
            session,
            entries: AtomicU64::new(0),
            is_awaited: AtomicBool::new(false),
            is_manned: AtomicBool::new(false),
            waiting: Mutex::new(Vec::new()),
            thread: Mutex::new(Arc::from("")),
        }
    }
}

impl fmt::Display for BlockingGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a guard of {}, for {:.1?}", self.thread, self.blocking_for)
    }
}
