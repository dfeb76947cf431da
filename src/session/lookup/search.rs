//! [`Search`]: step 1 of a lookup, which a generator may suspend.
//!
//! A search walks the dylibs of its order, and in each the generators, with what is still missing. A generator that
//! needs time captures the lookup; the search is parked, with names of its own, until the generator resumes it. While a
//! generator has captured one lookup, others that come to it queue up behind, and are resumed one by one, those included
//! that need no generation any more.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::base::catch;
use crate::error::{ErrorKind, Result};
use crate::session::core::generator::{DefinitionGenerator, Suspension};
use crate::session::core::jit_dylib::{JitDylib, Visibility};
use crate::session::core::query::complete;
use crate::session::lookup::blocking::{self, Goal, SymbolRequest};
use crate::session::types::symbol::SymbolId;
use crate::session::work::dispatch::{Task, dispatch};
use crate::sync::{Arc, Mutex, seeded_bug};

/// A walk through dylibs and their generators.
pub(crate) struct Search<'a> {
    order: Cow<'a, [(JitDylib, Visibility)]>,
    requests: SmallVec<[SymbolRequest<'a>; 2]>,
    matches: SmallVec<[Match; 2]>,
    /// Requests without a match.
    missing: SmallVec<[usize; 2]>,
    /// Where in the order.
    dylib: usize,
    /// That dylib's generators with lower serials have been asked; `None` before its table was.
    next_generator: Option<u64>,
}

/// A request and the definition that was found for it.
#[derive(Clone, Copy)]
pub(crate) struct Match {
    pub(crate) request: usize,
    pub(crate) dylib: usize,
    pub(crate) id: SymbolId,
}

/// How far a search came.
pub(crate) enum Progress {
    /// To its end.
    Found,
    /// A generator has it, or another lookup that it has to wait for.
    Suspended(Place),
}

/// Where a suspended search is put.
pub(crate) enum Place {
    /// With the generator that captured it.
    Captured(Arc<SuspendedSlot>),
    /// Behind the lookup that the generator has captured.
    Queued(Arc<GeneratorEntry>),
}

/// A generator as its dylib holds it.
pub(crate) struct GeneratorEntry {
    /// Position among all generators that its dylib was ever given.
    pub(crate) serial: u64,
    pub(crate) generator: Arc<dyn DefinitionGenerator>,
    queue: Mutex<GeneratorQueue>,
}

#[derive(Default)]
struct GeneratorQueue {
    /// More than one if several lookups came before the first was captured.
    captured: usize,
    waiting: VecDeque<ParkedSearch>,
}

/// A search that waits for a generator. Dropping it fails its lookup.
pub(crate) struct ParkedSearch {
    order: Vec<(JitDylib, Visibility)>,
    names: Vec<(String, bool)>,
    matches: SmallVec<[Match; 2]>,
    missing: SmallVec<[usize; 2]>,
    dylib: usize,
    next_generator: Option<u64>,
    goal: Option<Goal>,
}

/// Where a captured search and the word to go on meet, in either order.
pub(crate) struct SuspendedSlot {
    entry: Arc<GeneratorEntry>,
    /// For errors.
    dylib: String,
    state: Mutex<SlotState>,
}

enum SlotState {
    Empty,
    Parked(Box<ParkedSearch>),
    Resumed(Result<()>),
    Done,
}

impl<'a> Search<'a> {
    pub(crate) fn new(order: &'a [(JitDylib, Visibility)], requests: &[SymbolRequest<'a>]) -> Search<'a> {
        Search {
            order: Cow::Borrowed(order),
            requests: SmallVec::from_slice(requests),
            matches: SmallVec::with_capacity(requests.len()),
            missing: (0..requests.len()).collect(),
            dylib: 0,
            next_generator: None,
        }
    }

    /// Goes on until everything is found, the order is at its end, or a generator suspends.
    pub(crate) fn run(&mut self) -> Result<Progress> {
        self.walk(true)
    }

    /// As [`run`](Self::run); what a suspending generator would add is not waited for.
    pub(crate) fn run_without_suspending(&mut self) -> Result<()> {
        self.walk(false).map(drop)
    }

    fn walk(&mut self, may_suspend: bool) -> Result<Progress> {
        while self.dylib < self.order.len() && !self.missing.is_empty() {
            if self.next_generator.is_none() {
                self.match_names()?;
                self.next_generator = Some(0);
            }
            while let Some((entry, wanted)) = self.next_generator()? {
                if let Some(place) = self.ask(&entry, &wanted, may_suspend)? {
                    return Ok(Progress::Suspended(place));
                }
            }
            self.dylib += 1;
            self.next_generator = None;
        }
        Ok(Progress::Found)
    }

    fn match_names(&mut self) -> Result<()> {
        let (dylib, visibility) = &self.order[self.dylib];
        let (position, matches) = (self.dylib, &mut self.matches);
        dylib.find(&self.requests, &mut self.missing, *visibility, |request, id| {
            matches.push(Match { request, dylib: position, id });
        })
    }

    /// The next generator of the dylib that has not been asked, and what to ask it for, if anything is missing there.
    #[allow(clippy::type_complexity)]
    fn next_generator(&mut self) -> Result<Option<(Arc<GeneratorEntry>, Vec<SymbolRequest<'a>>)>> {
        let next = self.next_generator.and_then(|serial| self.order[self.dylib].0.generator_from(serial));
        let Some(entry) = next else { return Ok(None) };
        let (wanted, are_all_undefined) = self.wanted();
        if !are_all_undefined {
            // Hidden, or defined by another thread since they were missed: nobody would look here for them again.
            self.match_names()?;
        }
        Ok((!wanted.is_empty()).then_some((entry, wanted)))
    }

    /// What the dylib does not define, each name once, and required if any request requires it. What the dylib defines
    /// and hides is missing from this search, but not from the dylib. Also whether that is all that is missing.
    fn wanted(&self) -> (Vec<SymbolRequest<'a>>, bool) {
        let dylib = &self.order[self.dylib].0;
        let mut wanted: Vec<SymbolRequest<'a>> = Vec::new();
        let mut position_of = FxHashMap::default();
        let mut are_all_undefined = true;
        for request in self.missing.iter().map(|request| self.requests[*request]) {
            match position_of.entry(request.name) {
                Entry::Occupied(position) => {
                    let already: &mut SymbolRequest<'a> = &mut wanted[*position.get()];
                    already.required |= request.required;
                }
                Entry::Vacant(position) if dylib.symbol_flags(request.name).is_none() => {
                    position.insert(wanted.len());
                    wanted.push(request);
                }
                Entry::Vacant(_) => are_all_undefined = false,
            }
        }
        (wanted, are_all_undefined)
    }

    /// Asks one generator. `Some` when the search has to be parked.
    fn ask(
        &mut self,
        entry: &Arc<GeneratorEntry>,
        wanted: &[SymbolRequest<'a>],
        may_suspend: bool,
    ) -> Result<Option<Place>> {
        if may_suspend && entry.queue.lock().captured > 0 {
            return Ok(Some(Place::Queued(entry.clone())));
        }
        let dylib = self.order[self.dylib].0.clone();
        let suspension = Suspension::new(entry.clone(), &dylib, may_suspend);
        let outcome = entry.generator.generate_or_suspend(&dylib, wanted, &suspension);
        self.next_generator = Some(entry.serial + 1);
        if let Some(slot) = suspension.into_captured() {
            // A generator that captures and fails fails what it captured; those behind it go on.
            if outcome.is_err() {
                slot.overrule(outcome);
            }
            return Ok(Some(Place::Captured(slot)));
        }
        outcome?;
        self.match_names()?;
        Ok(None)
    }

    /// Ends the search with what was found.
    pub(crate) fn found(self) -> SmallVec<[Match; 2]> {
        self.matches
    }

    /// Ends the search: what was found, or all the required names that were not.
    #[allow(clippy::type_complexity)]
    pub(crate) fn matches(
        self,
        needed_by: Option<&str>,
    ) -> Result<(Cow<'a, [(JitDylib, Visibility)]>, SmallVec<[SymbolRequest<'a>; 2]>, SmallVec<[Match; 2]>)> {
        let missing = self.missing.iter().map(|request| &self.requests[*request]);
        let absent: Vec<String> = missing.filter(|request| request.required).map(|r| r.name.to_string()).collect();
        if absent.is_empty() {
            return Ok((self.order, self.requests, self.matches));
        }
        Err(ErrorKind::SymbolsNotFound {
            symbols: absent,
            needed_by: needed_by.map(str::to_string),
            searched: self.order.iter().map(|(dylib, _)| dylib.name().to_string()).collect(),
        }
        .into())
    }

    pub(crate) fn into_parked(self, goal: Goal) -> ParkedSearch {
        ParkedSearch {
            order: self.order.into_owned(),
            names: self.requests.iter().map(|request| (request.name.to_string(), request.required)).collect(),
            matches: self.matches,
            missing: self.missing,
            dylib: self.dylib,
            next_generator: self.next_generator,
            goal: Some(goal),
        }
    }
}

impl Place {
    pub(crate) fn park(self, search: ParkedSearch) {
        match self {
            Place::Captured(slot) => slot.park(search),
            Place::Queued(entry) => entry.enqueue(search),
        }
    }
}

impl GeneratorEntry {
    pub(crate) fn new(generator: Arc<dyn DefinitionGenerator>, serial: u64) -> Arc<GeneratorEntry> {
        Arc::new(GeneratorEntry { serial, generator, queue: Mutex::new(GeneratorQueue::default()) })
    }

    /// A lookup is captured: others queue from now on.
    pub(crate) fn capture(self: &Arc<GeneratorEntry>, dylib: &str) -> Arc<SuspendedSlot> {
        self.queue.lock().captured += 1;
        Arc::new(SuspendedSlot { entry: self.clone(), dylib: dylib.to_string(), state: Mutex::new(SlotState::Empty) })
    }

    fn enqueue(&self, search: ParkedSearch) {
        let mut queue = self.queue.lock();
        // Seeded bug: queued, though nobody is left to let it go on.
        if seeded_bug!("queued_behind_a_lookup_that_has_gone_on") || queue.captured > 0 {
            queue.waiting.push_back(search);
            return;
        }
        drop(queue);
        // Resumed meanwhile: nothing is left to wait for.
        search.go_on(Ok(()));
    }

    /// The next in the queue, if no lookup is captured.
    fn next_in_queue(&self) -> Option<ParkedSearch> {
        let mut queue = self.queue.lock();
        if queue.captured > 0 { None } else { queue.waiting.pop_front() }
    }

    /// A captured lookup has gone on: the next in the queue may, until one is captured again.
    pub(crate) fn pass_on(&self) {
        self.queue.lock().captured -= 1;
        while let Some(next) = self.next_in_queue() {
            next.go_on(Ok(()));
        }
    }

    /// Fails what waits for this generator, which is gone from its dylib.
    pub(crate) fn abandon(&self) {
        let waiting = std::mem::take(&mut self.queue.lock().waiting);
        drop(waiting);
    }
}

impl SuspendedSlot {
    fn park(self: &Arc<SuspendedSlot>, search: ParkedSearch) {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, SlotState::Done) {
            SlotState::Resumed(word) => {
                drop(state);
                self.go_on(search, word);
            }
            _ => *state = SlotState::Parked(Box::new(search)),
        }
    }

    /// Lets the search go on, or, without a word, fails it.
    pub(crate) fn resume(self: &Arc<SuspendedSlot>, word: Option<Result<()>>) {
        let word = word.unwrap_or_else(|| Err(ErrorKind::LookupAbandoned { dylib: self.dylib.clone() }.into()));
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, SlotState::Done) {
            SlotState::Parked(search) => {
                drop(state);
                self.go_on(*search, word);
            }
            SlotState::Empty => *state = SlotState::Resumed(word),
            // Seeded bug: the failure is forgotten, and the lookup with it.
            SlotState::Resumed(_) | SlotState::Done if seeded_bug!("resumed_over_a_failure") => {}
            already @ (SlotState::Resumed(_) | SlotState::Done) => *state = already,
        }
    }

    /// For the generator's own failure, before the search is parked: counts whatever was said before.
    fn overrule(&self, word: Result<()>) {
        *self.state.lock() = SlotState::Resumed(word);
    }

    /// The lookup went down with its generator, and will not be parked: those behind it go on.
    pub(crate) fn give_up(&self) {
        *self.state.lock() = SlotState::Done;
        let entry = self.entry.clone();
        // The thread is unwinding already: it cannot take another panic.
        let _ = catch(|| dispatch([Task::call(move || entry.pass_on())]));
    }

    fn go_on(self: &Arc<SuspendedSlot>, search: ParkedSearch, word: Result<()>) {
        let entry = self.entry.clone();
        dispatch([Task::call(move || search.go_on(word)), Task::call(move || entry.pass_on())]);
    }
}

impl ParkedSearch {
    /// Goes on where the search was suspended, or fails it.
    fn go_on(mut self, word: Result<()>) {
        let Some(goal) = self.goal.take() else { return };
        let Goal { session, needed_by, query } = goal;
        if let Err(error) = word {
            return complete(query.fail(&error));
        }
        let mut search = Search {
            order: Cow::Borrowed(&self.order),
            requests: self.names.iter().map(|(name, required)| SymbolRequest { name, required: *required }).collect(),
            matches: std::mem::take(&mut self.matches),
            missing: std::mem::take(&mut self.missing),
            dylib: self.dylib,
            next_generator: self.next_generator,
        };
        // What the generator has defined meanwhile counts first.
        match search.match_names().and_then(|()| search.run()) {
            Ok(Progress::Found) => blocking::finish(&session, search, needed_by.as_deref(), query),
            Ok(Progress::Suspended(place)) => {
                place.park(search.into_parked(Goal { session, needed_by, query }));
            }
            Err(error) => complete(query.fail(&error)),
        }
    }
}

impl Drop for ParkedSearch {
    fn drop(&mut self) {
        let Some(goal) = self.goal.take() else { return };
        let dylib = self.order.get(self.dylib).map(|(dylib, _)| dylib.name().to_string()).unwrap_or_default();
        complete(goal.query.fail(&ErrorKind::LookupAbandoned { dylib }.into()));
    }
}
