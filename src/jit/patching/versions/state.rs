//! [`State`]: which versions there are, which of them callers reach, and which are needed no more.
//!
//! A live version counts its uses: the functions whose current version it is, and the entries of the history that lead back to it.
//! A version without a use is removed. So a commit takes steps for the functions that it defines, however many others there are.

use std::collections::{BTreeMap, VecDeque};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::base::{ExecutorAddr, Name, sort_by_number};
use crate::jit::patching::outcome::PatchVersion;
use crate::jit::patching::version_code::VersionCode;
use crate::memory::Word;
use crate::session::{JitDylib, Pin, Removal, ResourceTracker};
use crate::sync::Arc;

/// The versions of one set of functions.
#[derive(Default)]
pub(super) struct State {
    pub(super) versions_linked: u64,
    /// Links in progress. They rely on the variables that they found.
    pub(super) links_in_progress: usize,
    /// The tracker of the stubs. The first commit creates it.
    pub(super) stubs: Option<ResourceTracker>,
    /// The slots of the stubs. Empty in offline memory, whose code never runs.
    pub(super) slots: FxHashMap<Name, Arc<Word>>,
    /// Pins of the versions to which a redirect in progress leads.
    pub(super) redirect_targets: Pins,
    /// The versions that are current or in the history.
    pub(super) live: BTreeMap<u64, LiveVersion>,
    /// For each function that is defined, the version that callers reach.
    pub(super) current: FxHashMap<Name, u64>,
    /// The commits that can be undone, the newest at the back.
    pub(super) undo: VecDeque<Undo>,
    pub(super) retired: Vec<RetiredVersion>,
    /// By number of a retired version: the tracker under which the dylib finds the variables that the version defined first. It
    /// pins the version.
    pub(super) retired_variables: Vec<(u64, ResourceTracker)>,
    /// The number of retired versions that the last sweep left.
    pub(super) left_by_sweep: usize,
    pub(super) signatures: FxHashMap<Name, String>,
    /// The dylibs of versions that a clear of the dylib has retired. They are removed after it.
    pub(super) cleared: Vec<JitDylib>,
}

/// A version that is current or in the history.
pub(super) struct LiveVersion {
    pub(super) code: Box<VersionCode>,
    /// How many functions have it as current version, and how many entries of the history lead back to it.
    pub(super) uses: usize,
    /// The tracker under which the dylib finds the variables that this version defined first.
    pub(super) variables: Option<ResourceTracker>,
}

/// How to undo one commit.
pub(super) struct Undo {
    pub(super) version: u64,
    /// For each function of the version: the version that was current before.
    pub(super) before: SmallVec<[(Name, Option<u64>); 1]>,
}

impl Undo {
    /// The versions to which it leads back, one for each function that had one.
    pub(super) fn versions(&self) -> impl Iterator<Item = u64> {
        self.before.iter().filter_map(|(_, number)| *number)
    }
}

/// A version that was removed for good and is pinned.
pub(super) struct RetiredVersion {
    pub(super) number: u64,
    /// Sorted.
    pub(super) functions: SmallVec<[Name; 1]>,
    pub(super) removal: Removal,
}

/// A stub that gets a new target.
pub(super) struct Redirect {
    pub(super) name: Name,
    /// `None` in offline memory.
    pub(super) slot: Option<Arc<Word>>,
    pub(super) target: ExecutorAddr,
}

/// The redirects of one commit or rollback, mostly one.
pub(super) type Redirects = SmallVec<[Redirect; 1]>;

/// Numbers of versions.
pub(super) type Numbers = SmallVec<[u64; 1]>;

/// Pins of versions.
pub(super) type Pins = SmallVec<[Arc<Pin>; 1]>;

impl State {
    /// Returns the state, and replaces it by that of a cleared dylib.
    pub(super) fn clear(&mut self) -> State {
        let State { versions_linked, links_in_progress, .. } = *self;
        // Kept in the same step, because a link of another thread may call `end_link` at any time.
        let cleared = State { versions_linked, links_in_progress, ..State::default() };
        std::mem::replace(self, cleared)
    }

    /// Redirects a stub by a store alone.
    pub(super) fn store_target(&self, name: &Name, target: ExecutorAddr) {
        if let Some(slot) = self.slots.get(name) {
            slot.store(target.value());
        }
    }

    pub(super) fn redirect(&self, name: &Name, target: ExecutorAddr) -> Redirect {
        Redirect { name: name.clone(), slot: self.slots.get(name).cloned(), target }
    }

    /// Counts a link in progress, and returns the number of its version.
    pub(super) fn begin_link(&mut self) -> u64 {
        self.links_in_progress += 1;
        self.versions_linked += 1;
        self.versions_linked
    }

    /// Whether variables wait for a sweep, or so many versions were retired since the last one that a visit of all is worth it.
    pub(super) fn is_sweep_due(&self) -> bool {
        !self.retired_variables.is_empty() || self.retired.len() >= 2 * self.left_by_sweep + SWEEP_MIN
    }

    /// Records the version that callers of each function reach. Adds those that they reached before to `left`.
    pub(super) fn make_current<'a>(&mut self, functions: impl Iterator<Item = (&'a Name, u64)>, left: &mut Numbers) {
        for (name, number) in functions {
            self.count_use(number);
            let before = match self.current.get_mut(name) {
                Some(current) => Some(std::mem::replace(current, number)),
                None => self.current.insert(name.clone(), number),
            };
            self.leave(before.into_iter(), left);
        }
    }

    /// Adds a commit to the history.
    pub(super) fn push_undo(&mut self, undo: Undo) {
        undo.versions().for_each(|number| self.count_use(number));
        self.undo.push_back(undo);
    }

    pub(super) fn count_use(&mut self, number: u64) {
        if let Some(version) = self.live.get_mut(&number) {
            version.uses += 1;
        }
    }

    /// Ends one use of each version. Adds those without a use to `left`.
    pub(super) fn leave(&mut self, numbers: impl Iterator<Item = u64>, left: &mut Numbers) {
        for number in numbers {
            let Some(version) = self.live.get_mut(&number) else { continue };
            version.uses -= 1;
            if version.uses == 0 {
                left.push(number);
            }
        }
    }

    /// Removes and returns those of `left` that are neither current nor in the history, sorted.
    pub(super) fn remove_unneeded(&mut self, mut left: Numbers) -> SmallVec<[LiveVersion; 1]> {
        sort_by_number(&mut left, |number| u128::from(*number));
        left.dedup();
        left.retain(|number| self.live.get(number).is_some_and(|version| version.uses == 0));
        let unneeded = left.iter().filter_map(|number| self.live.remove(number)).collect();
        debug_assert!(
            self.live.iter().all(|(number, version)| version.uses > 0 && version.uses == self.uses_of(*number))
        );
        unneeded
    }

    /// How often a version is current or in the history, counted again.
    pub(super) fn uses_of(&self, number: u64) -> usize {
        let history = self.undo.iter().flat_map(Undo::versions);
        self.current.values().copied().chain(history).filter(|used| *used == number).count()
    }

    pub(super) fn describe(&self, code: &VersionCode) -> PatchVersion {
        let functions = || code.functions.iter().map(|(name, _)| name);
        let is_current = |name: &&Name| self.current.get(*name) == Some(&code.number);
        PatchVersion {
            version: code.number,
            current: functions().filter(is_current).map(Name::to_string).collect(),
            functions: functions().map(Name::to_string).collect(),
            is_retired: false,
            held_by: Vec::new(),
        }
    }
}

/// So many retired versions are not worth a sweep, in addition to those that the last one left.
pub(super) const SWEEP_MIN: usize = 8;
