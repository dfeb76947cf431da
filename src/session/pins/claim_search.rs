//! [`ClaimSearch`]: decides whether a tracker is free, where the witness forest does not.
//!
//! The search starts at a retired tracker and visits dependants, and dependants of these, until it finds a *holder*: a root of the
//! witness forest, or a tracker whose witnesses lead to one. Then the trackers on the way become witnesses, and the start is
//! held. If there is no holder, all visited trackers are free. The search claims them together, so a ring is reclaimed as one
//! batch. It walks no tracker twice: what it frees pays for the walk. Where it finds a holder, it has visited only trackers
//! whose own witnesses lead to the start or to another open node.
//!
//! # In pieces
//! A search may be long, so it holds a lock only for a piece ([`PIECE`]) of its work. Meanwhile other threads work on the graph.
//! This is why the answer is still true at the end:
//!
//! | what changes | why the answer stays true |
//! |---|---|
//! | a visited tracker gets a dependant | it cannot: it is not live |
//! | a transfer moves an edge to a visited tracker | both trackers are live, so the edge leads from a holder; the search reads the edges again, so that it is not missed |
//! | an edge to a visited tracker is removed | it can only free more; the removal asks again |
//! | a visited tracker is reclaimed for its last pin | it is not: while a search has visited a tracker, only the search claims it |
//! | a visited tracker gets a handle pin | the pin takes the forest's lock and is noted in the search; the tracker is a holder |
//! | the same, after the search has begun to claim | the pin is refused, as for any tracker that is being reclaimed |
//! | another search meets a visited tracker | the older search goes on. The younger ends, and the older asks its question too |
//! | a holder is no longer one | a thread asks about it, and the trackers below it are in its subtree by then; else the link is not made, and the start is asked about again |
//!
//! A question about a visited tracker is handed to the search, whose thread asks it at the end ([`ReclaimSet::questions`]).
//! Model: `loom_tests/loom_dependant_remove.rs`.

use rustc_hash::FxHashSet;

use crate::session::pins::dependants::{PinGraph, ReclaimSet, newest_first};
use crate::session::pins::pin_table::PIECE;
use crate::session::pins::pinned::Pinned;
use crate::session::pins::tracker_state::{PinState, SearchVisit};
use crate::session::pins::witnesses::{RunningSearch, SearchPhase, WalkEnd, Witnesses};
use crate::session::types::ids::ResourceKey;
use crate::sync::Arc;

/// How many dependants a question reads before it becomes a search, and how many steps up and through the subtree it makes for
/// each. Few under loom, so that the models reach the searches.
const CANDIDATES: usize = if cfg!(loom) { 1 } else { 4 };
const STEPS: usize = if cfg!(loom) { 2 } else { 64 };

pub(super) struct ClaimSearch<'a, T> {
    graph: &'a PinGraph<T>,
    claimed_before: &'a FxHashSet<ResourceKey>,
    number: u32,
    /// The visited trackers. The first one is the start.
    visited: Vec<Visited<T>>,
    /// Those that revocable pins hold.
    revocable: Vec<Arc<T>>,
    questions: Vec<Arc<T>>,
}

struct Visited<T> {
    core: Arc<T>,
    /// The index of a visited tracker that this one refers to.
    via: usize,
}

/// Why a search ends before it has visited all dependants.
enum Stop<T> {
    /// `holder` holds the visited tracker with index `via`. `walked` is the version of the forest in which the witnesses of the
    /// holder lead to a root; `None` if it is a root itself.
    Held { holder: Arc<T>, via: usize, walked: Option<u64> },
    /// An older search goes on instead.
    Yielded,
}

/// What a search does with a tracker that another search has visited.
enum Conflict {
    /// The other search claims it: it is a root until it has released its edges.
    IsClaimed,
    Yield,
    Take,
}

impl<T: Pinned> PinGraph<T> {
    /// Claims `core` and everything that leads to it, if no live tracker and no tracker with a handle pin is among them. The
    /// caller has already claimed the trackers of `claimed_before`, and reclaims them together with the result.
    pub(crate) fn claim_free(&self, core: &Arc<T>, claimed_before: &FxHashSet<ResourceKey>) -> ReclaimSet<T> {
        match self.answer(core, claimed_before) {
            Ok(answer) => answer,
            Err(search) => ClaimSearch::new(self, search, claimed_before).run(core),
        }
    }

    /// Answers from the witness forest and a few dependants. Otherwise begins a search, and returns its number.
    fn answer(&self, core: &Arc<T>, claimed_before: &FxHashSet<ResourceKey>) -> Result<ReclaimSet<T>, u32> {
        let mut witnesses = self.witnesses.lock();
        let (pins, search) = core.state().pin_state();
        if pins == PinState::Held || hand_over(&mut witnesses, search, core) {
            return Ok(ReclaimSet::empty());
        }
        if pins == PinState::DependantsOnly && self.has_witness(&witnesses, core, claimed_before) {
            return Ok(ReclaimSet::empty());
        }
        witnesses.unlink(core);
        witnesses.open(core);
        let mut has_unclaimed = false;
        let (candidates, are_all) = self.some_dependants(core, CANDIDATES);
        for candidate in candidates.iter().map(Pinned::current) {
            self.count_step();
            if claimed_before.contains(&candidate.key()) {
                continue;
            }
            has_unclaimed = true;
            match candidate.state().pin_state() {
                (PinState::Held, _) => witnesses.link_to_root(core, &candidate),
                (PinState::DependantsOnly, 0) if self.is_held(&witnesses, core, &candidate) => {
                    witnesses.link(core, &candidate);
                }
                _ => continue,
            }
            return Ok(ReclaimSet::empty());
        }
        if has_unclaimed || !are_all {
            return Err(begin_search(&mut witnesses, core));
        }
        // Only trackers that the caller has claimed refer to it.
        let mut answer = ReclaimSet::empty();
        match pins {
            PinState::RevocableOnly => answer.revocable.push(core.clone()),
            _ => answer.free.extend(core.state().claim_unpinned().then(|| core.clone())),
        }
        Ok(answer)
    }

    /// Whether the witness of `core` still refers to it and is held.
    fn has_witness(&self, witnesses: &Witnesses<T>, core: &T, claimed_before: &FxHashSet<ResourceKey>) -> bool {
        self.count_step();
        let Some(witness) = witnesses.node_of(core).and_then(|node| witnesses.witness(node)) else { return false };
        let holder = witnesses.core(witness).current();
        !claimed_before.contains(&holder.key())
            && self.has_edge(&holder, core)
            && (!witnesses.has_open() || witnesses.walk_up(witness, STEPS) == WalkEnd::Root)
    }

    /// Whether the witnesses of a dependant prove that `core` is held.
    fn is_held(&self, witnesses: &Witnesses<T>, core: &T, dependant: &T) -> bool {
        let node = witnesses.node_of(dependant).filter(|node| witnesses.witness(*node).is_some());
        node.is_some_and(|node| witnesses.is_held_through(core, node, STEPS) == Some(true))
    }

    /// What a search with the number `own` does with a tracker that the search `other` has visited.
    fn resolve_conflict(&self, own: u32, other: u32) -> Conflict {
        let mut witnesses = self.witnesses.lock();
        let own_start = witnesses.search_mut(own).map(|search| search.start.clone());
        let Some(found) = witnesses.search_mut(other) else { return Conflict::Take };
        match found.phase {
            SearchPhase::Claiming => return Conflict::IsClaimed,
            SearchPhase::Ending => return Conflict::Take,
            SearchPhase::Exploring if other < own => {
                found.questions.extend(own_start);
                return Conflict::Yield;
            }
            SearchPhase::Exploring => found.phase = SearchPhase::Ending,
        }
        let question = found.start.clone();
        if let Some(search) = witnesses.search_mut(own) {
            search.questions.push(question);
        }
        Conflict::Take
    }
}

fn begin_search<T: Pinned>(witnesses: &mut Witnesses<T>, start: &Arc<T>) -> u32 {
    // Zero means no search.
    witnesses.last_search = witnesses.last_search.checked_add(1).unwrap_or(1);
    let number = witnesses.last_search;
    let (start, phase) = (start.clone(), SearchPhase::Exploring);
    witnesses.searches.push(RunningSearch { number, start, phase, pinned: None, questions: Vec::new() });
    number
}

/// Hands the question about `core` to the search that has visited it. Returns false if there is none.
fn hand_over<T: Pinned>(witnesses: &mut Witnesses<T>, search: u32, core: &Arc<T>) -> bool {
    let Some(search) = witnesses.search_mut(search) else { return false };
    if search.phase != SearchPhase::Claiming {
        search.questions.push(core.clone());
    }
    true
}

impl<'a, T: Pinned> ClaimSearch<'a, T> {
    fn new(graph: &'a PinGraph<T>, number: u32, claimed_before: &'a FxHashSet<ResourceKey>) -> ClaimSearch<'a, T> {
        let (visited, revocable, questions) = (Vec::new(), Vec::new(), Vec::new());
        ClaimSearch { graph, claimed_before, number, visited, revocable, questions }
    }

    fn run(mut self, start: &Arc<T>) -> ReclaimSet<T> {
        let mut found = match self.explore(start) {
            Ok(()) => self.claim(),
            Err(Stop::Yielded) => ReclaimSet::empty(),
            Err(Stop::Held { holder, via, walked }) => {
                self.link_path(holder, via, walked);
                ReclaimSet::empty()
            }
        };
        if found.free.is_empty() {
            self.leave();
        }
        self.end();
        found.questions = self.questions;
        found
    }

    /// Visits everything that leads to `start`.
    fn explore(&mut self, start: &Arc<T>) -> Result<(), Stop<T>> {
        self.visit(start, 0)?;
        let (graph, mut next) = (self.graph, 0);
        while let Some(Visited { core, .. }) = self.visited.get(next) {
            let core = core.clone();
            for table in graph.tables_of_dependants(&core) {
                // A tracker that comes twice is known the second time.
                graph.read_dependants(table, &core, |piece, _| {
                    piece.iter().try_for_each(|(_, dependant)| self.consider(dependant, next))
                })?;
            }
            next += 1;
        }
        Ok(())
    }

    /// Visits a dependant of a visited tracker, and its witnesses, unless they lead to a root.
    fn consider(&mut self, dependant: &Arc<T>, via: usize) -> Result<(), Stop<T>> {
        self.graph.count_step();
        if self.claimed_before.contains(&dependant.key()) || !self.visit(dependant, via)? {
            return Ok(());
        }
        let mut last = self.visited.len() - 1;
        for witness in self.walk_up(last)? {
            if self.claimed_before.contains(&witness.key()) || !self.visit(&witness, last)? {
                break;
            }
            last = self.visited.len() - 1;
        }
        Ok(())
    }

    /// Returns whether this is the first visit.
    fn visit(&mut self, core: &Arc<T>, via: usize) -> Result<bool, Stop<T>> {
        let is_holder = || Stop::Held { holder: core.clone(), via, walked: None };
        let mut stolen_from = 0;
        loop {
            match core.state().visit(self.number, stolen_from) {
                SearchVisit::Held => return Err(is_holder()),
                SearchVisit::Known => return Ok(false),
                SearchVisit::OfAnother(other) => match self.graph.resolve_conflict(self.number, other) {
                    Conflict::IsClaimed => return Err(is_holder()),
                    Conflict::Yield => return Err(Stop::Yielded),
                    Conflict::Take => stolen_from = other,
                },
                SearchVisit::First { is_revocable } => {
                    self.revocable.extend(is_revocable.then(|| core.clone()));
                    self.visited.push(Visited { core: core.clone(), via });
                    return Ok(true);
                }
            }
        }
    }

    /// Walks from a visited tracker up its witnesses. Stops the search if they lead to a root. Otherwise returns them, as far as
    /// they are not visited.
    fn walk_up(&mut self, index: usize) -> Result<Vec<Arc<T>>, Stop<T>> {
        let Visited { core: first, via } = &self.visited[index];
        let (mut last, mut walked, mut version) = (first.clone(), Vec::new(), None);
        loop {
            let witnesses = self.graph.witnesses.lock();
            let version = *version.get_or_insert(witnesses.version);
            for _ in 0..PIECE {
                self.graph.count_step();
                let Some(node) = witnesses.node_of(&last) else { return Ok(walked) };
                let Some(witness) = witnesses.witness(node) else {
                    let is_root = !witnesses.is_open(node) && !Arc::ptr_eq(&last, first);
                    let held = Stop::Held { holder: first.clone(), via: *via, walked: Some(version) };
                    return if is_root { Err(held) } else { Ok(walked) };
                };
                last = witnesses.core(witness).clone();
                if last.state().pin_state().1 == self.number {
                    return Ok(walked);
                }
                if !witnesses.is_merged(witness) {
                    walked.push(last.clone());
                }
            }
            witnesses.unlock_fair();
        }
    }

    /// Makes the trackers on the way from a holder to the start witnesses. If something has changed, the start is asked about
    /// again.
    fn link_path(&mut self, mut holder: Arc<T>, via: usize, walked: Option<u64>) {
        if self.visited.is_empty() {
            return;
        }
        let (mut next, mut walked) = (Some(via), walked);
        while next.is_some() {
            let mut witnesses = self.graph.witnesses.lock();
            for _ in 0..PIECE {
                let Some(index) = next else { break };
                if !self.link(&mut witnesses, &holder, index, walked) {
                    self.questions.push(self.visited[0].core.clone());
                    return;
                }
                walked = Some(witnesses.version);
                holder = self.visited[index].core.clone();
                next = (index > 0).then_some(self.visited[index].via);
            }
            witnesses.unlock_fair();
        }
    }

    /// Makes `holder` the witness of a visited tracker. Returns false if that is no longer right.
    fn link(&self, witnesses: &mut Witnesses<T>, holder: &Arc<T>, index: usize, walked: Option<u64>) -> bool {
        let (core, holder) = (&self.visited[index].core, &holder.current());
        let (pins, search) = core.state().pin_state();
        if pins == PinState::Held || search != self.number || !self.graph.has_edge(holder, core) {
            return false;
        }
        let is_holder = match walked {
            None => holder.state().pin_state().0 == PinState::Held || witnesses.is_being_claimed(holder),
            Some(version) => version == witnesses.version || self.is_still_held(witnesses, holder),
        };
        if is_holder {
            witnesses.unlink(core);
            match walked {
                None => witnesses.link_to_root(core, holder),
                Some(_) => witnesses.link(core, holder),
            }
            core.state().end_visit(self.number);
        }
        is_holder
    }

    /// Whether the witnesses of a tracker lead to a root, and not through a visited tracker that is not linked yet.
    fn is_still_held(&self, witnesses: &Witnesses<T>, holder: &T) -> bool {
        let Some(mut node) = witnesses.node_of(holder) else { return false };
        while let Some(witness) = witnesses.witness(node) {
            if witnesses.core(witness).state().pin_state().1 == self.number {
                return false;
            }
            node = witness;
        }
        !witnesses.is_open(node)
    }

    /// Nothing holds the visited trackers: claims them, unless one was pinned meanwhile, or another search goes on instead.
    fn claim(&mut self) -> ReclaimSet<T> {
        let mut found = ReclaimSet::empty();
        let pinned = {
            let mut witnesses = self.graph.witnesses.lock();
            let Some(search) = witnesses.search_mut(self.number) else { return found };
            if search.phase != SearchPhase::Exploring {
                return found;
            }
            search.phase = if self.revocable.is_empty() && search.pinned.is_none() {
                SearchPhase::Claiming
            } else {
                SearchPhase::Ending
            };
            search.pinned.take()
        };
        if let Some(pinned) = pinned {
            let index = self.visited.iter().position(|visited| Arc::ptr_eq(&visited.core, &pinned));
            // The start needs no witness if it is pinned itself.
            if let Some(index) = index.filter(|index| *index > 0) {
                self.link_path(pinned, self.visited[index].via, None);
            }
        } else if !self.revocable.is_empty() {
            found.revocable = std::mem::take(&mut self.revocable);
            newest_first(&mut found.revocable);
        } else {
            for piece in self.visited.chunks(PIECE) {
                let mut witnesses = self.graph.witnesses.lock();
                for Visited { core, .. } in piece {
                    // Not if another thread has forced its removal.
                    if core.state().claim_unpinned() {
                        witnesses.open_claimed(core);
                        found.free.push(core.clone());
                    }
                }
                witnesses.unlock_fair();
            }
            newest_first(&mut found.free);
        }
        found
    }

    /// Takes the questions that were handed over.
    fn end(&mut self) {
        let mut witnesses = self.graph.witnesses.lock();
        let position = witnesses.searches.iter().position(|search| search.number == self.number);
        let handed_over = position.map(|position| witnesses.searches.swap_remove(position).questions);
        self.questions.extend(handed_over.into_iter().flatten());
    }

    /// Leaves the visited trackers, which are not claimed.
    fn leave(&mut self) {
        if let Some(search) = self.graph.witnesses.lock().search_mut(self.number)
            && search.phase == SearchPhase::Exploring
        {
            search.phase = SearchPhase::Ending;
        }
        self.visited.iter().for_each(|visited| visited.core.state().end_visit(self.number));
    }
}
