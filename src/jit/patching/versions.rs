//! [`Versions`]: all versions of one set of functions. Commits, rolls back, and removes versions that are no longer needed.
//!
//! # States of a version
//!
//! ```text
//!   uncommitted ── commit ──► current ── commit of another ──► history ── further commits ──► retired ── last pin goes ──► freed
//!     │                         │  ▲                              │                             ▲
//!     └─ dropped: freed         │  └────────── rollback ──────────┘                             │
//!                               └──────────────── rollback of its own commit ───────────────────┘
//! ```
//!
//! A version is in the history while a commit that can be undone leads back to it. The first version of a function is
//! current until another version defines the function.
//!
//! # Store, then retire
//!
//! [`Versions::redirect_and_retire`] first stores the new target into every slot, and then removes old versions. No other
//! method redirects or retires. So a thread that loaded an old target did so before the removal, and the pins that the
//! removal finds cover it.
//!
//! # What keeps the target of a stub in memory
//!
//! While the stubs exist, no edge leads from a stub to the current version: the session cannot delete an edge, and the
//! target changes with each commit. Instead, this type does not remove a version that is current or in the history.
//!
//! When the dylib, a version's dylib or the session is cleared, the targets are final. Then the [`ClearHook`] adds edges
//! from the stubs to the current versions and gives all trackers to one batch. So a handle to a stub pins the target of the
//! stub, and cycles of versions and stubs are reclaimed as other cycles are.
//!
//! An observer may clear the dylib in the middle of a commit or a rollback. Then some stubs already lead to the new targets, so
//! the edges lead there too ([`State::redirect_targets`]).
//!
//! Other code may remove the names of stubs and functions, or define them again. So stubs are known by their slots and their
//! tracker, and versions by their pins, never by name.
//!
//! # Locks
//!
//! `commit_lock` is held during a commit, a rollback, a sweep and a clear. It is re-entrant, because observers run during a
//! redirect and may clear the dylib. `state` is a leaf lock: nothing is called while it is held. A store into a slot calls nothing if
//! no observer hears of it and no message carries it, so a commit then makes its stores under `state`.

mod clear;
mod state;

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::base::{ExecutorAddr, Name, ReentrantGuard, ReentrantLock, count_step, sort_by_number};
use crate::error::{Error, ErrorKind, Result};
use crate::jit::inner::{Jit, JitInner};
use crate::jit::patching::outcome::{Committed, PatchVersion, RolledBack};
use crate::jit::patching::uncommitted_version::UncommittedVersion;
use crate::jit::patching::variables;
use crate::jit::patching::version_code::VersionCode;
use crate::jit::patching::versions::state::{
    LiveVersion, Numbers, Pins, Redirect, Redirects, RetiredVersion, State, Undo,
};
use crate::jit::spare_dylibs::Spare;
use crate::memory::Word;
use crate::platform::redirect_slot;
use crate::session::{ExecutionSession, JitDylib, Pin, Removal, ResourceTracker};
use crate::sync::{Arc, AtomicBool, Mutex, Ordering, Weak, unique_number};

/// The versions of one set of functions.
pub(super) struct Versions {
    /// Weak, because the session holds its dylibs and the dylib holds this.
    jit: Weak<JitInner>,
    /// Names this set of functions among those of the session.
    number: u64,
    dylib: JitDylib,
    /// Sorted.
    names: Vec<Name>,
    limits: Limits,
    /// Held by the thread that changes `state` in more than one step.
    commit_lock: ReentrantLock,
    /// The dylib was cleared. No version can be added any more. Set with both locks held.
    is_cleared: AtomicBool,
    state: Mutex<State>,
}

/// The settings of a [`PatchableBuilder`](crate::PatchableBuilder).
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// The number of commits that can be undone.
    pub(super) history: usize,
    /// The number of retired versions that may be in use.
    pub(super) max_versions: usize,
}

/// The slots of new stubs, in the order of their names.
type NewSlots = Arc<Mutex<Vec<Option<Arc<Word>>>>>;

impl Versions {
    pub(super) fn new(jit: &Jit, dylib: &JitDylib, names: Vec<Name>, limits: Limits) -> Arc<Versions> {
        Arc::new(Versions {
            jit: Arc::downgrade(&jit.0),
            number: unique_number(),
            dylib: dylib.clone(),
            names,
            limits,
            commit_lock: ReentrantLock::new(),
            is_cleared: AtomicBool::new(false),
            state: Mutex::new(State::default()),
        })
    }

    pub(super) fn dylib(&self) -> &JitDylib {
        &self.dylib
    }

    pub(super) fn names(&self) -> &[Name] {
        &self.names
    }

    pub(super) fn function_names(&self) -> Vec<String> {
        self.names.iter().map(Name::to_string).collect()
    }

    /// Detaches this from the dylib, if nothing was ever committed.
    pub(super) fn detach_if_unused(self: &Arc<Self>) {
        if self.state.lock().stubs.is_none() {
            self.dylib.detach(&**self);
        }
    }

    /// Begins a link. Returns the number of its version. Variables that exist stay until [`end_link`](Self::end_link).
    pub(super) fn begin_link(self: &Arc<Self>) -> Result<u64> {
        let guard = self.lock()?;
        {
            let mut state = self.state.lock();
            if !state.is_sweep_due() && state.retired.len() < self.limits.max_versions {
                return Ok(state.begin_link());
            }
        }
        self.sweep_locked(&guard);
        let held = self.held_at_limit();
        if !held.is_empty() {
            let line = |(number, removal): &(u64, Removal)| {
                format!("version {number} is held by {}", removal.described_obstacles())
            };
            let (dylib, functions) = (self.dylib.name().to_string(), self.function_names());
            let (limit, obstacles) = (self.limits.max_versions, held.iter().map(line).collect());
            return Err(ErrorKind::TooManyVersions { dylib, functions, held: held.len(), limit, obstacles }.into());
        }
        Ok(self.state.lock().begin_link())
    }

    /// The retired versions that are in use, if they are as many as the limit. Otherwise nothing.
    fn held_at_limit(&self) -> Vec<(u64, Removal)> {
        let retired: Vec<(u64, Removal)> = {
            let state = self.state.lock();
            if state.retired.len() < self.limits.max_versions {
                return Vec::new();
            }
            state.retired.iter().map(|retired| (retired.number, retired.removal.clone())).collect()
        };
        let held: Vec<_> = retired.into_iter().filter(|(_, removal)| !removal.is_complete()).collect();
        if held.len() < self.limits.max_versions { Vec::new() } else { held }
    }

    /// The dylib of a plain version that is gone, if there is one.
    pub(super) fn take_spare(&self, jit: &JitInner) -> Option<Spare> {
        jit.spare_dylibs.take(self.number)
    }

    pub(super) fn end_link(&self) {
        self.state.lock().links_in_progress -= 1;
    }

    /// The error for the caller who links or commits a version.
    pub(super) fn refusal(&self, version: u64, cause: Error) -> Error {
        if matches!(cause.kind(), ErrorKind::PatchableGone { .. }) {
            return cause;
        }
        let (dylib, functions) = (self.dylib.name().to_string(), self.function_names());
        ErrorKind::PatchRefused { dylib, functions, version, cause }.into()
    }

    /// Checks that the signatures are the ones that earlier versions declared.
    pub(super) fn check_signatures(&self, signatures: &FxHashMap<Name, String>) -> Result<()> {
        if signatures.is_empty() {
            return Ok(());
        }
        let state = self.state.lock();
        for (function, found) in signatures {
            let Some(expected) = state.signatures.get(function).filter(|expected| *expected != found) else { continue };
            let (function, expected, found) = (function.to_string(), expected.clone(), found.clone());
            return Err(ErrorKind::WrongSignature { function, expected, found }.into());
        }
        Ok(())
    }

    /// Redirects all callers to a version. If there is an error, nothing is changed and the version is removed.
    pub(super) fn commit(
        self: &Arc<Self>,
        jit: &JitInner,
        version: UncommittedVersion,
        signatures: FxHashMap<Name, String>,
    ) -> Result<Committed> {
        let guard = self.lock()?;
        self.check_signatures(&signatures)?;
        let code = version.code();
        let variables = match code.variables.is_empty() {
            true => None,
            false => Some(variables::publish(&self.dylib, &code.dylib, &code.variables)?),
        };
        let outcome = self.commit_functions(jit, version, variables.clone(), signatures);
        match (&outcome, variables) {
            (Err(_), Some(variables)) => drop(variables.remove()),
            _ => self.sweep_if_due(&guard),
        }
        outcome
    }

    fn commit_functions(
        self: &Arc<Self>,
        jit: &JitInner,
        version: UncommittedVersion,
        variables: Option<ResourceTracker>,
        signatures: FxHashMap<Name, String>,
    ) -> Result<Committed> {
        let code = version.code();
        // Without an observer, the stores need no other step: `edit` makes them.
        let is_store = jit.stubs.redirects_by_store(&self.dylib);
        let (mut redirects, mut new) = (Redirects::new(), Vec::new());
        let mut before: SmallVec<[_; 1]> = SmallVec::new();
        {
            let state = self.state.lock();
            for (name, function) in &code.functions {
                let current = state.current.get(name).copied();
                match current {
                    Some(_) if is_store => {}
                    Some(_) => redirects.push(state.redirect(name, function.address)),
                    None => new.push((name.as_str(), function.address)),
                }
                before.push((name.clone(), current));
            }
        }
        // First the steps that can fail. From here on, a clear of the dylib clears the version, and the reverse.
        code.dylib.attach(self.clone())?;
        // After `attach`, because defined stubs cannot be removed one by one. The new stubs have names that no caller could
        // reach before.
        if let Err(error) = self.define_stubs(jit, &new) {
            // The drop of the version clears its dylib. That must not clear the other versions.
            code.dylib.detach(&**self);
            return Err(error);
        }
        let number = code.number;
        let targets = if is_store { Pins::new() } else { code.pin.iter().cloned().collect() };
        let retired = self.redirect_and_retire(jit, &redirects, targets, |state| {
            if is_store {
                let old = before.iter().zip(&version.code().functions).filter(|((_, current), _)| current.is_some());
                old.for_each(|(_, (name, function))| state.store_target(name, function.address));
            }
            state.live.insert(number, LiveVersion { code: version.into_code(), uses: 0, variables });
            // A signature that was declared before is equal: `check_signatures` compared it.
            state.signatures.extend(signatures);
            let mut left = Numbers::new();
            state.make_current(before.iter().map(|(name, _)| (name, number)), &mut left);
            if self.limits.history > 0 {
                state.push_undo(Undo { version: number, before });
            }
            if state.undo.len() > self.limits.history {
                let oldest = state.undo.pop_front();
                state.leave(oldest.iter().flat_map(Undo::versions), &mut left);
            }
            left
        })?;
        Ok(Committed { version: number, retired })
    }

    pub(super) fn rollback(self: &Arc<Self>) -> Result<RolledBack> {
        let guard = self.lock()?;
        let jit = self.jit.upgrade().ok_or_else(|| self.gone())?;
        let (dylib, functions) = (self.dylib.name().to_string(), self.function_names());
        let nothing = |problem| Error::from(ErrorKind::NothingToRollBack { dylib, functions, problem });
        let (version, previous, redirects, targets) = {
            let state = self.state.lock();
            let Some(undo) = state.undo.back() else {
                return Err(nothing("have no commit in their history"));
            };
            let previous: Vec<_> =
                undo.before.iter().filter_map(|(name, number)| Some((name.clone(), (*number)?))).collect();
            let redirect =
                |(name, number): &(Name, u64)| Some(state.redirect(name, state.live[number].code.address_of(name)?));
            let redirects: Redirects = previous.iter().filter_map(redirect).collect();
            let numbers: BTreeSet<u64> = previous.iter().map(|(_, number)| *number).collect();
            let targets = numbers.iter().filter_map(|number| state.live[number].code.pin.clone()).collect();
            (undo.version, previous, redirects, targets)
        };
        if redirects.is_empty() {
            return Err(nothing("had no version before the last commit"));
        }
        let retired = self.redirect_and_retire(&jit, &redirects, targets, |state| {
            let mut left = Numbers::new();
            state.make_current(previous.iter().map(|(name, number)| (name, *number)), &mut left);
            let undone = state.undo.pop_back();
            state.leave(undone.iter().flat_map(Undo::versions), &mut left);
            left
        })?;
        self.sweep_locked(&guard);
        Ok(RolledBack { version, retired })
    }

    /// Stores the new targets, then removes the versions that are not needed any more: see the header. `targets` pins the
    /// versions of the new targets. `edit` records in the state which versions are current, and returns those that may be needed
    /// no more. Targets that are not in `redirects` are stored by `edit`, first.
    fn redirect_and_retire(
        self: &Arc<Self>,
        jit: &JitInner,
        redirects: &[Redirect],
        targets: Pins,
        edit: impl FnOnce(&mut State) -> Numbers,
    ) -> Result<Vec<Removal>> {
        let stubs = {
            let mut state = self.state.lock();
            state.redirect_targets = targets;
            state.stubs.as_ref().map(ResourceTracker::watch)
        };
        // The stubs are reclaimed if other code removed their tracker and no caller is left. The pin keeps them until all lead
        // to their new targets.
        let pin = stubs.and_then(|stubs| stubs.pin());
        if pin.is_some() {
            for Redirect { name, slot, target } in redirects {
                redirect_slot(slot.as_deref(), &self.dylib, name.as_str(), *target);
            }
        }
        let (targets, unneeded) = {
            let mut state = self.state.lock();
            let targets = std::mem::take(&mut state.redirect_targets);
            if pin.is_none() || self.is_cleared() {
                // The slots keep the memory of stubs that no caller has any more.
                let slots = std::mem::take(&mut state.slots);
                drop(state);
                drop((targets, slots));
                return Err(self.gone());
            }
            let left = edit(&mut state);
            (targets, state.remove_unneeded(left))
        };
        // Without the lock, because the drop of a last pin reclaims.
        drop((targets, pin));
        Ok(unneeded.into_iter().filter_map(|version| self.retire(jit, version)).collect())
    }

    /// Removes a version that no slot leads to. `None` if its code was transferred to another tracker: then it is removed
    /// with its dylib.
    fn retire(self: &Arc<Self>, jit: &JitInner, version: LiveVersion) -> Option<Removal> {
        pin_for_late_bindings(&jit.session, version.code.pin.as_ref());
        let LiveVersion { code, variables, .. } = version;
        let VersionCode { number, dylib, is_plain, order, tracker, functions, pin, .. } = *code;
        dylib.detach(&**self);
        drop(pin);
        let removal = tracker.remove().or_else(|error| {
            jit.session.report_error(error);
            // The error is that of a resource manager. A second removal returns the ticket of the first one.
            tracker.remove()
        });
        // An observer of the removal may have cleared the patched dylib.
        let unneeded = match is_plain && removal.is_ok() && self.check_present().is_ok() {
            true => jit.spare_dylibs.keep(Spare { set: self.number, dylib, order }),
            false => Some(dylib),
        };
        let removed = unneeded.map(|dylib| jit.session.remove_dylib(&dylib));
        removed.and_then(Result::err).into_iter().for_each(|error| jit.session.report_error(error));
        let removal = removal.ok()?;
        // A version that nothing uses is gone already, so no sweep has to look for it.
        let is_gone = removal.is_complete();
        if !is_gone || variables.is_some() {
            let mut state = self.state.lock();
            if !is_gone {
                let functions = functions.into_iter().map(|(name, _)| name).collect();
                state.retired.push(RetiredVersion { number, functions, removal: removal.clone() });
            }
            state.retired_variables.extend(variables.map(|variables| (number, variables)));
        }
        Some(removal)
    }

    /// Defines stubs. All stubs of the set are under one tracker, which the first commit creates.
    fn define_stubs(&self, jit: &JitInner, new: &[(&str, ExecutorAddr)]) -> Result<()> {
        if new.is_empty() {
            return Ok(());
        }
        let known = self.state.lock().stubs.clone();
        if let Some(stubs) = known {
            return self.define_stubs_under(jit, stubs, new);
        }
        let stubs = self.dylib.create_tracker()?;
        self.define_stubs_under(jit, stubs.clone(), new).inspect_err(|_| drop(stubs.remove()))
    }

    fn define_stubs_under(&self, jit: &JitInner, stubs: ResourceTracker, new: &[(&str, ExecutorAddr)]) -> Result<()> {
        let (slots, count): (NewSlots, _) = (Arc::new(Mutex::new(Vec::new())), new.len());
        let found = slots.clone();
        jit.stubs.create_with(&stubs, new, move |_, stubs| {
            *found.lock() = (0..count).map(|index| stubs.slot(index).map(Arc::new)).collect();
        })?;
        let slots = std::mem::take(&mut *slots.lock());
        let named = new.iter().zip(slots).filter_map(|((name, _), slot)| Some((Name::new(name), slot?)));
        let mut state = self.state.lock();
        state.slots.extend(named);
        let old = state.stubs.replace(stubs);
        drop(state);
        drop(old);
        Ok(())
    }

    /// Locks `commit_lock`.
    ///
    /// # Errors
    /// This thread holds the lock already, or the dylib was cleared.
    fn lock(&self) -> Result<ReentrantGuard<'_>> {
        let guard = self.commit_lock.lock();
        if guard.is_nested() {
            // An observer of a redirect, or code that runs in a removal, has called back.
            return Err(Error::other(
                "this thread is already committing or rolling back a version of these functions; do not patch them in an observer",
            ));
        }
        self.check_present().map(|()| guard)
    }

    /// Checks that the dylib was not cleared.
    pub(super) fn check_present(&self) -> Result<()> {
        if self.is_cleared() { Err(self.gone()) } else { Ok(()) }
    }

    fn is_cleared(&self) -> bool {
        // Acquire pairs with the release of `clear.rs`. A thread that holds one of the locks sees the store by the lock, too.
        self.is_cleared.load(Ordering::Acquire)
    }

    fn gone(&self) -> Error {
        let (dylib, functions) = (self.dylib.name().to_string(), self.function_names());
        ErrorKind::PatchableGone { dylib, functions }.into()
    }

    /// Removes variables and retired versions that nothing uses any more. Does nothing if the calling thread is inside a
    /// commit, or the dylib was cleared.
    pub(super) fn sweep(&self) {
        if let Ok(guard) = self.lock() {
            self.sweep_locked(&guard);
        }
    }

    /// Sweeps if that is due. So a commit takes the same steps however many versions are in use.
    fn sweep_if_due(&self, guard: &ReentrantGuard<'_>) {
        let is_due = self.state.lock().is_sweep_due();
        if is_due {
            self.sweep_locked(guard);
        }
    }

    fn sweep_locked(&self, _guard: &ReentrantGuard<'_>) {
        // All stay in the state meanwhile: a finaliser that runs here may list the versions or clear the dylib.
        let (variables, links_in_progress) = {
            let state = self.state.lock();
            (state.retired_variables.clone(), state.links_in_progress)
        };
        let is_unused = |variables: &ResourceTracker| links_in_progress == 0 && variables.dependents().is_empty();
        for (number, variables) in variables {
            if !is_unused(&variables) {
                continue;
            }
            drop(variables.remove());
            let removed: Vec<_> =
                self.state.lock().retired_variables.extract_if(.., |(other, _)| *other == number).collect();
            // Without the lock, because the drop of a tracker takes locks of the session.
            drop(removed);
        }
        let gone: Vec<_> = {
            let mut state = self.state.lock();
            let is_gone = |version: &mut RetiredVersion| {
                count_step();
                version.removal.is_complete()
            };
            let gone = state.retired.extract_if(.., is_gone).collect();
            state.left_by_sweep = state.retired.len();
            gone
        };
        drop(gone);
    }

    pub(super) fn list(&self) -> Vec<PatchVersion> {
        // Without the lock, a version that a commit of another thread retires would be missing for a moment.
        let _guard = self.commit_lock.lock();
        let (mut list, retired) = {
            let state = self.state.lock();
            let list: Vec<_> = state.live.values().map(|version| state.describe(&version.code)).collect();
            let parts = |version: &RetiredVersion| {
                let functions = version.functions.iter().map(Name::to_string).collect();
                (version.number, functions, version.removal.clone())
            };
            let held = state.retired.iter().filter(|version| !version.removal.is_complete());
            (list, held.map(parts).collect::<Vec<_>>())
        };
        // `obstacles` takes locks of the session, so it is called without the leaf lock.
        for (version, functions, removal) in retired {
            let held_by = removal.obstacles();
            list.push(PatchVersion { version, functions, current: Vec::new(), is_retired: true, held_by });
        }
        sort_by_number(&mut list, |version| u128::from(version.version));
        list
    }
}

/// Pins a version that is about to be removed, as long as a caller that is not counted may be inside it. Such a caller came
/// through a lazy re-export that was made before the first version of the session existed and bound after it.
pub(in crate::jit) fn pin_for_late_bindings(session: &ExecutionSession, version: Option<&Arc<Pin>>) {
    for tracker in session.late_bindings() {
        // No pin: the tracker is gone, so the call has returned.
        if let (Some(caller), Some(version)) = (tracker.pin(), version) {
            keep_for(&caller, version);
        }
    }
}

/// Keeps a version in memory as long as the tracker of its callers.
pub(in crate::jit) fn keep_for(callers: &Pin, version: &Arc<Pin>) {
    if !callers.depend_on(version) {
        // Other code removed the version, so it accepts no dependants any more. It must stay in memory for ever.
        std::mem::forget(version.clone());
    }
}
