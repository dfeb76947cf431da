//! [`Query`]: a lookup in progress. It counts the symbols that are still missing, collects the results, and knows the
//! receiver.
//!
//! | stage | meaning | who moves the query to the next stage |
//! |---|---|---|
//! | Open | symbols are missing | the thread with the last symbol, or with the first failure, under its locks |
//! | Decided | the outcome is fixed | the thread that has the [`Completion`], with no lock held |
//! | Delivered | the waiting thread may take the outcome | that thread |
//! | Taken | the outcome was taken | |
//!
//! A query is decided once; later results change nothing. The outcome is delivered after the decision, so that
//! observers run before the caller of the lookup.
//!
//! # Panics of a receiver
//! The thread that completes a query may be in the middle of a removal or of an emission, or may unwind. A panic of a
//! callback must not reach these. So it goes to the error reporter, and the other receivers of the step are served.

use smallvec::{SmallVec, smallvec};

use crate::base::catch;
use crate::error::{Error, Result};
use crate::session::core::jit_dylib::DylibInner;
use crate::session::core::materialization::Task;
use crate::session::core::symbol_ref::{LookupResult, LookupResults};
use crate::session::symbols::symbol_table::{Found, WaitingLookup};
use crate::session::types::error_reporter::ReporterHandle;
use crate::session::types::request::{RequiredState, state_of};
use crate::session::types::symbol::SymbolState;
use crate::session::work::dispatch::dispatch;
use crate::session::work::dispatcher::Waitable;
use crate::sync::{Arc, Condvar, Mutex, Rank};

/// A lookup in progress.
pub(crate) struct Query {
    required: SymbolState,
    wants_definitions: bool,
    state: Mutex<QueryState>,
    delivered: Condvar,
}

struct QueryState {
    /// The number of missing symbols, plus one for the thread that attaches a query to several symbols, until it has
    /// finished.
    outstanding: usize,
    results: Results,
    failure: Option<Error>,
    stage: QueryStage,
}

enum QueryStage {
    Open(OnComplete),
    Decided,
    Delivered,
    Taken,
}

/// The results of a query. Most lookups that wait have one name.
pub(crate) type Results = SmallVec<[LookupResult; 1]>;

/// The receiver of the outcome.
enum OnComplete {
    /// A thread waits for it.
    Wake,
    /// A callback, run as a task.
    Call(Callback),
}

type Callback = Box<dyn FnOnce(Result<LookupResults>) + Send>;

/// A decided query, to be delivered with no lock held. Must not be dropped undelivered: its receiver would wait for
/// ever.
pub(crate) struct Completion {
    query: Arc<Query>,
    on_complete: OnComplete,
}

/// The completions of one step.
pub(crate) type Completions = SmallVec<[Completion; 2]>;

/// An entry of a query in the list of a symbol's waiters.
pub(crate) struct Waiter {
    pub(crate) query: Arc<Query>,
    pub(crate) index: usize,
    /// The dylib of the symbol, if the query wants the definition itself.
    pub(crate) dylib: Option<Arc<DylibInner>>,
}

impl Query {
    /// A query that calls `on_complete` with its outcome.
    pub(crate) fn with_callback(
        required: RequiredState,
        on_complete: impl FnOnce(Result<LookupResults>) + Send + 'static,
    ) -> Arc<Query> {
        Query::new(required, true, OnComplete::Call(Box::new(on_complete)))
    }

    /// A query that a thread [waits](Self::sleep) for.
    pub(crate) fn blocking(required: RequiredState) -> Arc<Query> {
        Query::new(required, true, OnComplete::Wake)
    }

    /// As [`blocking`](Self::blocking), for the address of one symbol, without the definition.
    pub(crate) fn blocking_for_address(required: RequiredState) -> Arc<Query> {
        Query::new(required, false, OnComplete::Wake)
    }

    fn new(required: RequiredState, wants_definitions: bool, on_complete: OnComplete) -> Arc<Query> {
        let state = QueryState {
            outstanding: 1,
            results: smallvec![LookupResult::MISSING],
            failure: None,
            stage: QueryStage::Open(on_complete),
        };
        Arc::new(Query {
            required: state_of(required),
            wants_definitions,
            state: Mutex::ranked(Rank::Query, state),
            delivered: Condvar::new(),
        })
    }

    /// Sets the number of requested names, and how many of them have a definition to wait for. A query without this
    /// call has one name and waits for one symbol.
    pub(crate) fn set_expected(&self, requests: usize, matches: usize) {
        let mut state = self.state.lock();
        state.results = smallvec![LookupResult::MISSING; requests];
        state.outstanding += matches;
    }

    pub(crate) fn is_satisfied_by(&self, state: SymbolState) -> bool {
        state >= self.required
    }

    pub(crate) fn wants_definitions(&self) -> bool {
        self.wants_definitions
    }

    /// Records the result of one symbol, or, with `None`, that the thread that attached the query has finished.
    pub(crate) fn record(self: Arc<Query>, result: Option<(usize, LookupResult)>) -> Option<Completion> {
        let on_complete = self.count_down(result)?;
        Some(Completion { query: self, on_complete })
    }

    /// As [`record`](Self::record), for the thread that still attaches the query. The count includes this thread, so
    /// the call never decides the query. `None` for an optional symbol that was not found.
    pub(crate) fn record_while_attaching(&self, result: Option<(usize, LookupResult)>) {
        let decided = self.count_down(result);
        debug_assert!(decided.is_none(), "the count includes the attaching thread");
    }

    fn count_down(&self, result: Option<(usize, LookupResult)>) -> Option<OnComplete> {
        let mut state = self.state.lock();
        if let Some((index, result)) = result {
            state.results[index] = result;
        }
        state.outstanding -= 1;
        if state.outstanding == 0 { state.decide(None) } else { None }
    }

    /// Fails the query, unless it is decided.
    pub(crate) fn fail(self: &Arc<Query>, error: &Error) -> Option<Completion> {
        let on_complete = self.state.lock().decide(Some(error))?;
        Some(Completion { query: self.clone(), on_complete })
    }

    /// Takes the outcome, if it is delivered and not yet taken.
    pub(crate) fn take(&self) -> Option<Result<Results>> {
        self.state.lock().take()
    }

    /// Waits for the outcome and takes it.
    pub(crate) fn sleep(&self) -> Result<Results> {
        let mut state = self.state.lock();
        loop {
            if let Some(outcome) = state.take() {
                return outcome;
            }
            self.delivered.wait(&mut state);
        }
    }
}

impl Waitable for Query {
    type Outcome = Result<Results>;

    fn take(&self) -> Option<Result<Results>> {
        Query::take(self)
    }

    fn sleep(&self) -> Result<Results> {
        Query::sleep(self)
    }
}

impl QueryState {
    /// Fixes the outcome. Returns the receiver, or `None` if the query was decided before.
    fn decide(&mut self, failure: Option<&Error>) -> Option<OnComplete> {
        match std::mem::replace(&mut self.stage, QueryStage::Decided) {
            QueryStage::Open(on_complete) => {
                self.failure = failure.cloned();
                Some(on_complete)
            }
            later_stage => {
                self.stage = later_stage;
                None
            }
        }
    }

    fn take(&mut self) -> Option<Result<Results>> {
        if !matches!(self.stage, QueryStage::Delivered) {
            return None;
        }
        self.stage = QueryStage::Taken;
        // The results stay in a failed query: other threads may still record some, by index.
        Some(self.failure.take().map_or_else(|| Ok(std::mem::take(&mut self.results)), Err))
    }
}

impl WaitingLookup for Waiter {
    type Completion = Completion;

    #[inline]
    fn is_satisfied_by(&self, state: SymbolState) -> bool {
        self.query.is_satisfied_by(state)
    }

    fn satisfy(self, found: &Found<'_>) -> Option<Completion> {
        let result = found.result_in(self.dylib.as_ref());
        self.query.record(Some((self.index, result)))
    }
}

impl Completion {
    /// Wakes the waiting thread, or returns the callback as a task.
    fn deliver(self, reporter: &ReporterHandle) -> Option<Task> {
        let Completion { query, on_complete } = self;
        query.state.lock().stage = QueryStage::Delivered;
        match on_complete {
            OnComplete::Wake => {
                query.delivered.notify_all();
                None
            }
            OnComplete::Call(body) => {
                let (outcome, reporter) = (query.take()?, reporter.clone());
                // The task catches its panic, because another lookup of this thread may run the task.
                Some(Task::call(move || report_panic(&reporter, || body(outcome.map(SmallVec::into_vec)))))
            }
        }
    }
}

/// Delivers decided queries. Callbacks are dispatched as tasks of this thread. Called with no lock held (S5). Does not
/// panic: the caller may be in the middle of a removal.
pub(crate) fn complete(reporter: &ReporterHandle, completions: impl IntoIterator<Item = Completion>) {
    let mut callbacks: SmallVec<[Task; 2]> = SmallVec::new();
    for completion in completions {
        callbacks.extend(completion.deliver(reporter));
    }
    if !callbacks.is_empty() {
        // The callbacks may have queued units, whose panics the dispatch resumes.
        report_panic(reporter, || dispatch(callbacks));
    }
}

/// Runs the receivers of a lookup. A panic goes to the error reporter.
fn report_panic(reporter: &ReporterHandle, run: impl FnOnce()) {
    if let Err(panic) = catch(run) {
        reporter.report(Error::other(format!("what a lookup called when it was complete panicked: {panic}")));
    }
}
