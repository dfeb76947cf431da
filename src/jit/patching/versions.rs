//! [`Versions`]: which version is current, which can be returned to, and what becomes of the others.
//!
//! ```text
//!   aside ── commit ──► current ── commit of another ──► history ── further commits ──► retired ── last hold goes ──► gone
//!     │                   │  ▲                              │                             ▲
//!     └─ dropped: gone    │  └────────── rollback ──────────┘                             │
//!                         └──────────────── rollback of its own commit ───────────────────┘
//! ```
//!
//! A version is in the history while one of the commits that can be undone leads back to it; the first version of a function
//! is current until another defines the function too.
//!
//! **Store, then retire**: all slots lead to new code before any old code is given up ([`Versions::switch`] is the only
//! place that does either). Whoever loaded a slot before that is in old code, which is removed as any code is: it goes when
//! nothing pins it.
//!
//! While the stubs are there, the versions that they lead to are kept by not being removed; no edge of the session's says so, since
//! edges cannot be taken back and this one changes with every commit. When the end comes, for the dylib, for one of the dylibs
//! beside it or for the session, nothing changes any more: the edges from the stubs to the current versions are added, and
//! all of it is retired as one batch ([`ClearHook`]). So a handle to a stub keeps what the stub leads to, and rings of versions
//! and stubs go as rings do.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rustc_hash::FxHashMap;

use crate::base::{ExecutorAddr, Name, ReentrantGuard, ReentrantLock};
use crate::error::{Error, ErrorKind, Result};
use crate::jit::patching::uncommitted_version::{Code, UncommittedVersion};
use crate::jit::patching::{Committed, Limits, PatchVersion, RolledBack, variables};
use crate::jit::{Jit, JitInner};
use crate::session::{ClearHook, ExecutionSession, JitDylib, Removal, ResourceTracker};
use crate::sync::{Arc, Mutex, Weak};

/// The versions of one set of functions.
pub(super) struct Versions {
    /// Weak: the dylib keeps this, and the session its dylibs.
    jit: Weak<JitInner>,
    dylib: JitDylib,
    /// Sorted.
    names: Vec<Name>,
    limits: Limits,
    /// Whoever changes `state` in more than one step has the turn.
    turns: ReentrantLock,
    /// A leaf lock, for the books only.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    is_gone: bool,
    versions_linked: u64,
    /// Links under way, which rely on the variables that they have seen.
    linking: usize,
    /// Of the stubs, from the first commit on.
    stubs: Option<ResourceTracker>,
    /// Current ones, and those of the history.
    live: BTreeMap<u64, Version>,
    current: FxHashMap<Name, u64>,
    /// The commits that can be undone, the last at the back.
    undo: VecDeque<Undo>,
    retired: Vec<Retired>,
    signatures: FxHashMap<Name, String>,
    /// What failed by an exception that may still be on its way.
    discarded: Vec<(JitDylib, ResourceTracker)>,
    /// Dylibs of what has been told to go.
    leaving: Vec<JitDylib>,
}

struct Version {
    code: Code,
    /// Under which its variables are found.
    variables: Option<ResourceTracker>,
}

struct Undo {
    version: u64,
    /// Where the functions of the version led before.
    before: Vec<(Name, Option<u64>)>,
}

struct Retired {
    number: u64,
    functions: Vec<String>,
    removal: Removal,
    variables: Option<ResourceTracker>,
}

/// Where callers are sent: a stub's name, and its new target.
type Move = (Name, ExecutorAddr);

impl Versions {
    pub(super) fn new(jit: &Jit, dylib: &JitDylib, names: Vec<Name>, limits: Limits) -> Arc<Versions> {
        Arc::new(Versions {
            jit: Arc::downgrade(&jit.0),
            dylib: dylib.clone(),
            names,
            limits,
            turns: ReentrantLock::new(),
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

    /// Takes this from the dylib if nothing was ever committed.
    pub(super) fn leave_unused(self: &Arc<Self>) {
        if self.state.lock().stubs.is_none() {
            self.dylib.detach(&(self.clone() as Arc<dyn ClearHook>));
        }
    }

    /// A link begins: the number of its version. Variables that are there stay so until it [ends](Self::end_link).
    pub(super) fn begin_link(self: &Arc<Self>) -> Result<u64> {
        let turn = self.take_turn()?;
        self.sweep_in(&turn);
        let held: Vec<(u64, Removal)> = {
            let state = self.state.lock();
            state.retired.iter().map(|retired| (retired.number, retired.removal.clone())).collect()
        };
        let held: Vec<_> = held.into_iter().filter(|(_, removal)| !removal.is_complete()).collect();
        if held.len() >= self.limits.max_versions && !held.is_empty() {
            let line = |(number, removal): &(u64, Removal)| {
                format!("version {number} is held by {}", removal.obstacles().join(", "))
            };
            let (dylib, functions) = (self.dylib.name().to_string(), self.function_names());
            let (limit, obstacles) = (self.limits.max_versions, held.iter().map(line).collect());
            return Err(ErrorKind::TooManyVersions { dylib, functions, held: held.len(), limit, obstacles }.into());
        }
        let mut state = self.state.lock();
        state.linking += 1;
        state.versions_linked += 1;
        Ok(state.versions_linked)
    }

    pub(super) fn end_link(&self) {
        self.state.lock().linking -= 1;
    }

    /// What `cause` is to whoever wanted a version.
    pub(super) fn refused(&self, version: u64, cause: Error) -> Error {
        if matches!(cause.kind(), ErrorKind::PatchableGone { .. }) {
            return cause;
        }
        let (dylib, functions) = (self.dylib.name().to_string(), self.function_names());
        ErrorKind::PatchRefused { dylib, functions, version, cause }.into()
    }

    /// Whether the functions are said to be what their first versions were said to be.
    pub(super) fn check_signatures(&self, signatures: &FxHashMap<Name, String>) -> Result<()> {
        let state = self.state.lock();
        for (function, found) in signatures {
            let Some(expected) = state.signatures.get(function).filter(|expected| *expected != found) else { continue };
            let (function, expected, found) = (function.to_string(), expected.clone(), found.clone());
            return Err(ErrorKind::WrongSignature { function, expected, found }.into());
        }
        Ok(())
    }

    /// Leads all callers to a version, or leaves everything as it is.
    pub(super) fn commit(
        self: &Arc<Self>,
        jit: &Jit,
        aside: UncommittedVersion,
        signatures: FxHashMap<Name, String>,
    ) -> Result<Committed> {
        let turn = self.take_turn()?;
        self.check_signatures(&signatures)?;
        let (brought, version) = (&aside.code().brought, &aside.code().dylib);
        let variables = match brought.is_empty() {
            true => None,
            false => Some(variables::publish(&self.dylib, version, brought)?),
        };
        let outcome = self.commit_functions(jit, aside, variables.clone(), signatures);
        match (&outcome, variables) {
            (Err(_), Some(variables)) => drop(variables.remove()),
            _ => self.sweep_in(&turn),
        }
        outcome
    }

    fn commit_functions(
        self: &Arc<Self>,
        jit: &Jit,
        aside: UncommittedVersion,
        variables: Option<ResourceTracker>,
        signatures: FxHashMap<Name, String>,
    ) -> Result<Committed> {
        let code = aside.code();
        let (mut moves, mut new) = (Vec::new(), Vec::new());
        let mut before = Vec::new();
        for (name, entry) in &code.functions {
            let current = self.state.lock().current.get(name).copied();
            before.push((name.clone(), current));
            match current {
                Some(_) => moves.push((name.clone(), entry.address)),
                None => new.push((name.as_str(), entry.address)),
            }
        }
        // What can fail comes first: names that nobody could call before.
        self.define_stubs(jit, &new)?;
        // From here on the dylib and this version go together.
        code.dylib.attach(self.clone())?;
        let version = code.number;
        let retired = self.switch(jit, &moves, |state| {
            state.current.extend(before.iter().map(|(name, _)| (name.clone(), version)));
            state.undo.push_back(Undo { version, before });
            if state.undo.len() > self.limits.history {
                state.undo.pop_front();
            }
            // Those that are known were found equal.
            state.signatures.extend(signatures);
            state.live.insert(version, Version { code: aside.take(), variables });
        })?;
        Ok(Committed { version, retired })
    }

    pub(super) fn rollback(self: &Arc<Self>) -> Result<RolledBack> {
        let turn = self.take_turn()?;
        let jit = Jit(self.jit.upgrade().ok_or_else(|| self.gone())?);
        let (dylib, functions) = (self.dylib.name().to_string(), self.function_names());
        let nothing = |problem| Error::from(ErrorKind::NothingToRollBack { dylib, functions, problem });
        let (version, returns, moves) = {
            let state = self.state.lock();
            let Some(undo) = state.undo.back() else {
                return Err(nothing("have no commit left in their history"));
            };
            let returns: Vec<_> =
                undo.before.iter().filter_map(|(name, number)| Some((name.clone(), (*number)?))).collect();
            let moves: Vec<Move> = returns
                .iter()
                .map(|(name, number)| (name.clone(), state.live[number].code.functions[name].address))
                .collect();
            (undo.version, returns, moves)
        };
        if moves.is_empty() {
            return Err(nothing("had no version before the last commit"));
        }
        let retired = self.switch(&jit, &moves, |state| {
            state.undo.pop_back();
            state.current.extend(returns);
        })?;
        self.sweep_in(&turn);
        Ok(RolledBack { version, retired })
    }

    /// Store, then retire: the protocol of a redirect against the removal of what it leads away from. `edit` says in the books
    /// what is current now; what these need no more is removed.
    fn switch(self: &Arc<Self>, jit: &Jit, moves: &[Move], edit: impl FnOnce(&mut State)) -> Result<Vec<Removal>> {
        for (name, target) in moves {
            // Fails only when the stubs have been reclaimed, and with them the last who could call them.
            jit.0.stubs.redirect(&self.dylib, name.as_str(), *target).map_err(|_| self.gone())?;
        }
        let old = {
            let mut state = self.state.lock();
            edit(&mut state);
            state.take_unneeded()
        };
        Ok(old.into_iter().filter_map(|version| self.retire(jit, version)).collect())
    }

    /// Removes a version that no slot leads to. No ticket if somebody has put its code under another tracker: then it goes with
    /// its dylib.
    fn retire(self: &Arc<Self>, jit: &Jit, version: Version) -> Option<Removal> {
        hold_for_late_bindings(jit.session(), &version.code);
        let Version { code: Code { number, dylib, tracker, functions, pin, .. }, variables } = version;
        dylib.detach(&(self.clone() as Arc<dyn ClearHook>));
        drop(pin);
        let removal = tracker.remove().or_else(|error| {
            jit.session().report_error(error);
            // A second removal gives the ticket of the first, which a manager had something to say of.
            tracker.remove()
        });
        let removed = jit.session().remove_dylib(&dylib);
        removed.err().into_iter().for_each(|error| jit.session().report_error(error));
        let mut functions: Vec<_> = functions.keys().map(Name::to_string).collect();
        functions.sort();
        let removal = removal.ok()?;
        let retired = Retired { number, functions, removal: removal.clone(), variables };
        self.state.lock().retired.push(retired);
        Some(removal)
    }

    /// Defines stubs under the tracker that has all of them, which the first commit makes.
    fn define_stubs(&self, jit: &Jit, new: &[(&str, ExecutorAddr)]) -> Result<()> {
        let known = self.state.lock().stubs.clone();
        if let Some(stubs) = known {
            return jit.create_stubs(&stubs, new);
        }
        let stubs = self.dylib.create_tracker()?;
        match jit.create_stubs(&stubs, new) {
            Ok(()) => drop(self.state.lock().stubs.insert(stubs)),
            Err(error) => {
                drop(stubs.remove());
                return Err(error);
            }
        }
        Ok(())
    }

    fn take_turn(&self) -> Result<ReentrantGuard<'_>> {
        let turn = self.turns.take();
        if turn.is_nested() {
            // An observer that was told of a redirect has come back in.
            return Err(Error::other("a version of the same functions is being committed by this very thread"));
        }
        if self.state.lock().is_gone { Err(self.gone()) } else { Ok(turn) }
    }

    fn gone(&self) -> Error {
        let (dylib, functions) = (self.dylib.name().to_string(), self.function_names());
        ErrorKind::PatchableGone { dylib, functions }.into()
    }

    /// Has a version that failed by an exception go when the exception has arrived: at the next call.
    pub(super) fn discard_later(&self, dylib: JitDylib, tracker: ResourceTracker) {
        self.state.lock().discarded.push((dylib, tracker));
    }

    /// Gives up what nobody needs any more.
    pub(super) fn sweep(&self) {
        if let Ok(turn) = self.take_turn() {
            self.sweep_in(&turn);
        }
    }

    fn sweep_in(&self, _turn: &ReentrantGuard<'_>) {
        let (discarded, retired, linking) = {
            let mut state = self.state.lock();
            (std::mem::take(&mut state.discarded), std::mem::take(&mut state.retired), state.linking)
        };
        if let Some(jit) = self.jit.upgrade() {
            for (dylib, _) in discarded {
                let removed = jit.session.remove_dylib(&dylib);
                removed.err().into_iter().for_each(|error| jit.session.report_error(error));
            }
        }
        let mut held = Vec::new();
        for mut version in retired {
            let unused = version.variables.take_if(|variables| linking == 0 && variables.dependents().is_empty());
            unused.into_iter().for_each(|variables| drop(variables.remove()));
            if version.variables.is_some() || !version.removal.is_complete() {
                held.push(version);
            }
        }
        self.state.lock().retired.extend(held);
    }

    pub(super) fn list(&self) -> Vec<PatchVersion> {
        let (mut list, retired) = {
            let state = self.state.lock();
            let list: Vec<_> = state.live.values().map(|version| state.describe(&version.code)).collect();
            let parts = |version: &Retired| (version.number, version.functions.clone(), version.removal.clone());
            (list, state.retired.iter().map(parts).collect::<Vec<_>>())
        };
        // Asked outside the lock: the session's locks are not ours to nest in.
        for (version, functions, removal) in retired {
            let held_by = removal.obstacles();
            list.push(PatchVersion { version, functions, current: Vec::new(), is_retired: true, held_by });
        }
        list.sort_by_key(|version| version.version);
        list
    }
}

/// Has a version that is about to be removed stay as long as a caller that was not entered may be inside of it: one that came
/// through a lazy re-export from before the session's first version.
fn hold_for_late_bindings(session: &ExecutionSession, code: &Code) {
    for tracker in session.late_bindings() {
        // None when it is gone: then the call has returned.
        let Some(pin) = tracker.pin() else { continue };
        if code.functions.values().any(|entry| pin.add_dependency(&entry.symbol).is_err()) {
            // Nothing can refer to the version any more, so it stays for good.
            std::mem::forget(code.pin.clone());
        }
    }
}

impl State {
    /// Takes out the versions that are neither current nor led back to.
    fn take_unneeded(&mut self) -> Vec<Version> {
        let history = self.undo.iter().flat_map(|undo| &undo.before).filter_map(|(_, number)| *number);
        let needed: BTreeSet<u64> = self.current.values().copied().chain(history).collect();
        let unneeded: Vec<u64> = self.live.keys().filter(|number| !needed.contains(number)).copied().collect();
        unneeded.iter().filter_map(|number| self.live.remove(number)).collect()
    }

    fn describe(&self, code: &Code) -> PatchVersion {
        let mut functions: Vec<_> = code.functions.keys().collect();
        functions.sort();
        let is_current = |name: &&&Name| self.current.get(**name) == Some(&code.number);
        PatchVersion {
            version: code.number,
            current: functions.iter().filter(is_current).map(|name| name.to_string()).collect(),
            functions: functions.iter().map(|name| name.to_string()).collect(),
            is_retired: false,
            held_by: Vec::new(),
        }
    }
}

impl ClearHook for Versions {
    fn leave(&self) -> Vec<ResourceTracker> {
        // This thread may have it already, if an observer that was told of a redirect clears the dylib.
        let _turn = self.turns.take();
        let state = {
            let mut state = self.state.lock();
            let left = State { is_gone: true, versions_linked: state.versions_linked, ..State::default() };
            std::mem::replace(&mut *state, left)
        };
        if let Some((_, stubs)) = state.current.keys().next().and_then(|name| self.dylib.pin(name.as_str())) {
            for (name, number) in &state.current {
                // Refused when one of them was removed behind our back, and holds what it held.
                let _ = stubs.add_dependency(&state.live[number].code.functions[name].symbol);
            }
        }
        let mut trackers: Vec<_> = state.stubs.into_iter().collect();
        let mut leaving = Vec::new();
        for Version { code, variables } in state.live.into_values() {
            if let Some(jit) = self.jit.upgrade() {
                hold_for_late_bindings(&jit.session, &code);
            }
            leaving.push(code.dylib);
            trackers.push(code.tracker);
            trackers.extend(variables);
        }
        trackers.extend(state.retired.into_iter().filter_map(|version| version.variables));
        for (dylib, tracker) in state.discarded {
            leaving.push(dylib);
            trackers.push(tracker);
        }
        let mut now = self.state.lock();
        now.leaving = leaving;
        // Of links that are under way, and will be told.
        now.linking = state.linking;
        trackers
    }

    fn left(&self) {
        let leaving = std::mem::take(&mut self.state.lock().leaving);
        let jit = self.jit.upgrade();
        for dylib in leaving {
            match &jit {
                Some(jit) => {
                    let removed = jit.session.remove_dylib(&dylib);
                    removed.err().into_iter().for_each(|error| jit.session.report_error(error));
                }
                // The session ends, and removes them itself.
                None => dylib.close(),
            }
        }
    }
}
