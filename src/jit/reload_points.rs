//! [`ReloadPoints`]: which code on the stacks of threads belongs to versions that a [`Reloader`](crate::Reloader) has made.
//!
//! A thread of linked code that never ends its call passes *reload points*: it calls `jittison_reload_point`. There it relies on nothing
//! of replaced versions but the frames on its stack.
//!
//! | state of a version | what keeps it | who frees it |
//! |---|---|---|
//! | runs | the reloader | – |
//! | replaced | calls that were active at its removal | the thread whose call ends last, or passes its reload point last |
//! | replaced, and on the stack of a thread at a reload point | pins of that thread | the same thread, when its call ends or at a later reload point |
//!
//! | step of a reload point | for |
//! |---|---|
//! | return at once, if nothing was replaced since the last one and no replaced version was on the stack | loops |
//! | walk the frames; if some are unknown, do no more | code without unwind information, other stacks |
//! | pin the versions of the frames, then refresh the calls of the thread (`src/session/pins/calls.rs`) | memory |
//!
//! A reloader counts a replacement after it has removed the versions, so a thread that sees the count refreshes calls that the removals
//! have seen.
//!
//! # Limits
//! A version of a [`Patchable`](crate::Patchable) is not known here. A session that has one frees nothing at reload points, and
//! neither do threads that linked code started, in the whole process.

use std::any::Any;
use std::cell::Cell;
use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::base::ExecutorAddr;
use crate::host::{ReloadHooks, ThreadHooks, WalkFn};
use crate::session::{ExecutionSession, TrackerWatch, hold_in_host_call, pass_reload_point};
use crate::sync::{Arc, CountU64, Mutex, Ordering, StaticMutex, Weak, plain_thread_local};

/// The code of the versions of one session.
pub(in crate::jit) struct ReloadPoints {
    session: ExecutionSession,
    code: Mutex<CodeTable>,
}

/// The code of versions, by address and by object. Entries of a freed version stay until its object is replaced again, or until other
/// code has their addresses.
#[derive(Default)]
struct CodeTable {
    by_address: BTreeMap<u64, VersionCode>,
    /// The first addresses of each object.
    by_object: FxHashMap<Arc<str>, Vec<u64>>,
}

/// The code of one version of an object.
pub(in crate::jit) struct VersionCode {
    /// The first address and the one after the last.
    pub(in crate::jit) range: (u64, u64),
    pub(in crate::jit) object: Arc<str>,
    /// `None` for the version that was added, which is freed with the program.
    pub(in crate::jit) tracker: Option<TrackerWatch>,
    pub(in crate::jit) is_replaced: bool,
}

/// What a thread knows from its last reload point.
#[derive(Clone, Copy)]
struct LastPass {
    replacements: u64,
    caller: u64,
    was_replaced: bool,
    /// Whether a replaced version was on the stack.
    has_pins: bool,
}

plain_thread_local! {
    static LAST: Cell<LastPass> = const { Cell::new(LastPass { replacements: 0, caller: 0, was_replaced: false, has_pins: false }) };
}

/// The sessions with reloaders.
static SESSIONS: StaticMutex<Vec<Weak<ReloadPoints>>> = StaticMutex::new(Vec::new());

/// How often versions were replaced, in all sessions.
static REPLACEMENTS: CountU64 = CountU64::new(0);

impl ReloadPoints {
    /// Those of a session, from its first reloader on.
    pub(in crate::jit) fn register(session: &ExecutionSession) -> Arc<ReloadPoints> {
        let points = Arc::new(ReloadPoints { session: session.clone(), code: Mutex::new(CodeTable::default()) });
        let mut sessions = SESSIONS.lock();
        sessions.retain(|points| points.strong_count() > 0);
        sessions.push(Arc::downgrade(&points));
        points
    }

    /// What linked code asks at its reload points and when it starts a thread.
    pub(in crate::jit) fn hooks() -> ReloadHooks {
        ReloadHooks { pass, is_replaced, threads: ThreadHooks { keep: keep_all, hold: hold_in_host_call } }
    }

    /// Adds the code of the objects of a program.
    pub(in crate::jit) fn add_first(&self, new: Vec<VersionCode>) {
        let freed = self.code.lock().insert(new);
        drop(freed);
    }

    /// Adds the code of new versions. Earlier versions of these objects are replaced. Call it after the removal of what is replaced.
    pub(in crate::jit) fn replace(&self, new: Vec<VersionCode>) {
        // The lock of a tracker may not be taken under that of the table.
        let trackers = {
            let code = self.code.lock();
            new.iter().flat_map(|new| code.trackers_of(&new.object)).collect::<Vec<_>>()
        };
        let freed = trackers.into_iter().filter(|(_, tracker)| tracker.is_reclaimed()).map(|(start, _)| start);
        let freed: Vec<u64> = freed.collect();
        let removed = {
            let mut code = self.code.lock();
            let mut removed: Vec<VersionCode> = freed.into_iter().filter_map(|start| code.remove(start)).collect();
            new.iter().for_each(|new| code.mark_replaced(&new.object));
            removed.extend(code.insert(new));
            removed
        };
        drop(removed);
        // Pairs with the load of `pass`, which then finds the change in the tables.
        REPLACEMENTS.fetch_add(1, Ordering::Release);
    }

    /// The tracker of the version at an address, and whether it is replaced.
    fn find(&self, address: ExecutorAddr) -> Option<(Option<TrackerWatch>, bool)> {
        let address = address.value();
        let (tracker, is_replaced) = {
            let code = self.code.lock();
            let (_, found) = code.by_address.range(..=address).next_back()?;
            (address < found.range.1).then(|| (found.tracker.clone(), found.is_replaced))?
        };
        // The memory of a version that is freed may have other code.
        let is_freed = tracker.as_ref().is_some_and(TrackerWatch::is_reclaimed);
        (!is_freed).then_some((tracker, is_replaced))
    }
}

impl CodeTable {
    /// Adds code. Returns entries that had its addresses: their versions are freed.
    fn insert(&mut self, new: Vec<VersionCode>) -> Vec<VersionCode> {
        let mut freed = Vec::new();
        for new in new {
            while let Some((start, _)) =
                self.by_address.range(..new.range.1).next_back().filter(|(_, code)| code.range.1 > new.range.0)
            {
                freed.extend(self.remove(*start));
            }
            self.by_object.entry(new.object.clone()).or_default().push(new.range.0);
            self.by_address.insert(new.range.0, new);
        }
        freed
    }

    fn remove(&mut self, start: u64) -> Option<VersionCode> {
        let removed = self.by_address.remove(&start)?;
        if let Some(starts) = self.by_object.get_mut(&removed.object) {
            starts.retain(|other| *other != start);
        }
        Some(removed)
    }

    fn mark_replaced(&mut self, object: &str) {
        for start in self.by_object.get(object).into_iter().flatten() {
            if let Some(code) = self.by_address.get_mut(start) {
                code.is_replaced = true;
            }
        }
    }

    /// The versions of an object that may be freed already, by their first addresses.
    fn trackers_of(&self, object: &str) -> Vec<(u64, TrackerWatch)> {
        let starts = self.by_object.get(object).into_iter().flatten();
        let tracker = |start: &u64| Some((*start, self.by_address.get(start)?.tracker.clone()?));
        starts.filter_map(tracker).collect()
    }
}

fn sessions() -> SmallVec<[Arc<ReloadPoints>; 2]> {
    SESSIONS.lock().iter().filter_map(Weak::upgrade).collect()
}

/// Passes a reload point. Says whether the code at `caller` was replaced.
fn pass(caller: ExecutorAddr, walk: WalkFn) -> bool {
    // Pairs with the increment of `replace`.
    let replacements = REPLACEMENTS.load(Ordering::Acquire);
    let last = LAST.get();
    let is_up_to_date = last.replacements == replacements && !last.has_pins;
    if is_up_to_date && last.caller == caller.value() {
        return last.was_replaced;
    }
    let sessions = sessions();
    let find = |address: ExecutorAddr| sessions.iter().find_map(|points| points.find(address));
    let was_replaced = find(caller).is_some_and(|(_, is_replaced)| is_replaced);
    let has_pins = !is_up_to_date && refresh(&sessions, walk);
    LAST.set(LastPass { replacements, caller: caller.value(), was_replaced, has_pins });
    was_replaced
}

/// Says whether the code at `caller` was replaced.
fn is_replaced(caller: ExecutorAddr) -> bool {
    sessions().iter().find_map(|points| points.find(caller)).is_some_and(|(_, is_replaced)| is_replaced)
}

/// Frees what only the calls of this thread keep, except what is on its stack. Says whether replaced versions are there.
fn refresh(sessions: &[Arc<ReloadPoints>], walk: WalkFn) -> bool {
    let Some(frames) = walk() else { return false };
    let mut has_replaced = false;
    let mut on_stack: Vec<(&ExecutionSession, Vec<TrackerWatch>)> = Vec::new();
    for points in sessions {
        let found: Vec<_> = frames.iter().filter_map(|address| points.find(*address)).collect();
        has_replaced |= found.iter().any(|(tracker, is_replaced)| *is_replaced && tracker.is_some());
        on_stack.push((&points.session, found.into_iter().filter_map(|(tracker, _)| tracker).collect()));
    }
    pass_reload_point(&on_stack);
    has_replaced
}

/// Keeps all versions that are in memory.
fn keep_all() -> Box<dyn Any + Send> {
    let trackers = |points: &Arc<ReloadPoints>| -> Vec<TrackerWatch> {
        points.code.lock().by_address.values().filter_map(|code| code.tracker.clone()).collect()
    };
    let all: Vec<TrackerWatch> = sessions().iter().flat_map(trackers).collect();
    let pins: Vec<_> = all.iter().filter_map(TrackerWatch::pin).collect();
    Box::new(pins)
}
