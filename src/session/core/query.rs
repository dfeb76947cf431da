//! [`Query`]: a lookup under way: what has come, how much is still to come, and who is told.
//!
//! | stage | meaning | who moves it on |
//! |---|---|---|
//! | Open | symbols are still to come | the last one to arrive, or the first that fails, under whatever locks |
//! | Decided | the outcome is certain | whoever holds the [`Completion`], with no lock held |
//! | Told | a thread that waits may take the outcome | that thread |
//! | Over | the outcome was taken | |
//!
//! A query is decided once: what comes later changes nothing. That it is told later than it is decided is for those who
//! have to hear before whoever has looked something up (observers).

use smallvec::{SmallVec, smallvec};

use crate::error::{Error, Result};
use crate::session::core::jit_dylib::DylibInner;
use crate::session::lookup::blocking::{Found, LookupResult, LookupResults, RequiredState, state_of};
use crate::session::types::symbol::SymbolState;
use crate::session::work::dispatch::{Task, dispatch};
use crate::sync::{Arc, Condvar, Mutex, Rank};

/// A lookup under way.
pub(crate) struct Query {
    required: SymbolState,
    wants_definitions: bool,
    state: Mutex<QueryState>,
    told: Condvar,
}

struct QueryState {
    /// Symbols still to come, and, of a query that may wait for several, one for the thread that is attaching it.
    outstanding: usize,
    results: Results,
    failure: Option<Error>,
    stage: Stage,
}

enum Stage {
    Open(OnComplete),
    Decided,
    Told,
    Over,
}

/// Most lookups that wait ask for one name.
pub(crate) type Results = SmallVec<[LookupResult; 1]>;

/// Who is told of a lookup's outcome.
enum OnComplete {
    /// A thread that waits.
    Wake,
    Call(Callback),
}

type Callback = Box<dyn FnOnce(Result<LookupResults>) + Send>;

/// A query that is decided: to be told outside all locks.
pub(crate) struct Completion {
    query: Arc<Query>,
    on_complete: OnComplete,
}

/// Those of one step.
pub(crate) type Completions = SmallVec<[Completion; 2]>;

/// A query's place in a symbol's list.
pub(crate) struct Waiter {
    pub(crate) query: Arc<Query>,
    pub(crate) index: usize,
    /// The symbol's, if the query wants to know the definition itself.
    pub(crate) dylib: Option<Arc<DylibInner>>,
}

/// Those of one symbol: mostly one.
pub(crate) type Waiters = SmallVec<[Waiter; 1]>;

impl Query {
    /// One whose outcome `on_complete` is called with.
    pub(crate) fn calling(
        required: RequiredState,
        on_complete: impl FnOnce(Result<LookupResults>) + Send + 'static,
    ) -> Arc<Query> {
        Query::new(required, true, OnComplete::Call(Box::new(on_complete)))
    }

    /// One that a thread [waits](Self::sleep) for.
    pub(crate) fn waking(required: RequiredState) -> Arc<Query> {
        Query::new(required, true, OnComplete::Wake)
    }

    /// The same, for the address of one symbol and nothing else.
    pub(crate) fn waking_with_address(required: RequiredState) -> Arc<Query> {
        Query::new(required, false, OnComplete::Wake)
    }

    fn new(required: RequiredState, wants_definitions: bool, on_complete: OnComplete) -> Arc<Query> {
        let state = QueryState {
            outstanding: 1,
            results: smallvec![LookupResult::MISSING],
            failure: None,
            stage: Stage::Open(on_complete),
        };
        Arc::new(Query {
            required: state_of(required),
            wants_definitions,
            state: Mutex::ranked(Rank::Query, state),
            told: Condvar::new(),
        })
    }

    /// So many names were asked for, and so many of them have a definition to wait for; otherwise it is one of one.
    pub(crate) fn expect(&self, requests: usize, matches: usize) {
        let mut state = self.state.lock();
        state.results = smallvec![LookupResult::MISSING; requests];
        state.outstanding += matches;
    }

    pub(crate) fn is_served_by(&self, state: SymbolState) -> bool {
        state >= self.required
    }

    pub(crate) fn wants_definitions(&self) -> bool {
        self.wants_definitions
    }

    /// A symbol is there, or the thread that attached the query is done with that.
    pub(crate) fn arrived(self: Arc<Query>, result: Option<(usize, LookupResult)>) -> Option<Completion> {
        let on_complete = self.arrive(result)?;
        Some(Completion { query: self, on_complete })
    }

    /// A symbol was found as far along as it has to be, or not at all, while the query is being attached.
    pub(crate) fn serve(&self, result: Option<(usize, LookupResult)>) {
        let done = self.arrive(result);
        debug_assert!(done.is_none(), "the attaching thread counts too");
    }

    fn arrive(&self, result: Option<(usize, LookupResult)>) -> Option<OnComplete> {
        let mut state = self.state.lock();
        if let Some((index, result)) = result {
            state.results[index] = result;
        }
        state.outstanding -= 1;
        if state.outstanding == 0 { state.decide(None) } else { None }
    }

    pub(crate) fn fail(self: &Arc<Query>, error: &Error) -> Option<Completion> {
        let on_complete = self.state.lock().decide(Some(error))?;
        Some(Completion { query: self.clone(), on_complete })
    }

    /// The outcome, once it was told.
    pub(crate) fn take(&self) -> Option<Result<Results>> {
        self.state.lock().take()
    }

    /// Waits for it.
    pub(crate) fn sleep(&self) -> Result<Results> {
        let mut state = self.state.lock();
        loop {
            if let Some(outcome) = state.take() {
                return outcome;
            }
            self.told.wait(&mut state);
        }
    }
}

impl QueryState {
    /// Who is to be told, if nobody was before.
    fn decide(&mut self, failure: Option<&Error>) -> Option<OnComplete> {
        match std::mem::replace(&mut self.stage, Stage::Decided) {
            Stage::Open(on_complete) => {
                self.failure = failure.cloned();
                Some(on_complete)
            }
            further => {
                self.stage = further;
                None
            }
        }
    }

    fn take(&mut self) -> Option<Result<Results>> {
        if !matches!(self.stage, Stage::Told) {
            return None;
        }
        self.stage = Stage::Over;
        // Of a lookup that has failed, others may arrive yet.
        Some(self.failure.take().map_or_else(|| Ok(std::mem::take(&mut self.results)), Err))
    }
}

impl Waiter {
    pub(crate) fn satisfy(self, found: &Found<'_>) -> Option<Completion> {
        let result = found.result_in(self.dylib.as_ref());
        self.query.arrived(Some((self.index, result)))
    }
}

impl Completion {
    /// Tells who waits; what is called becomes a task.
    fn tell(self) -> Option<Task> {
        let Completion { query, on_complete } = self;
        query.state.lock().stage = Stage::Told;
        match on_complete {
            OnComplete::Wake => {
                query.told.notify_all();
                None
            }
            OnComplete::Call(body) => {
                let outcome = query.take()?;
                Some(Task::call(move || body(outcome.map(SmallVec::into_vec))))
            }
        }
    }
}

/// Tells finished queries, on this thread.
pub(crate) fn complete(completions: impl IntoIterator<Item = Completion>) {
    let mut calls: SmallVec<[Task; 2]> = SmallVec::new();
    for completion in completions {
        calls.extend(completion.tell());
    }
    if !calls.is_empty() {
        dispatch(calls);
    }
}
