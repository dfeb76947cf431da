//! Looking symbols up: find every name first, then ask for all of them, then wait.
//!
//! 1. In each dylib of the search order, names are matched; what is missing is asked of the dylib's generators
//!    (`search.rs`). If a required name is found nowhere, the lookup fails with all missing names and nothing was
//!    materialised.
//! 2. Each found symbol is either far enough along, or the query is attached to it; a lazy unit behind it is taken out
//!    and dispatched.
//! 3. The last symbol to arrive completes the query, outside all locks.
//!
//! A symbol that is removed between 1 and 2, and not defined again, is not found; one removed after 2 fails the query
//! with the cause.

use std::fmt;

use smallvec::{SmallVec, smallvec};

use crate::base::{ExecutorAddr, NameRef};
use crate::error::{Error, ErrorKind, Result};
use crate::session::dispatch::{self, Answer, Task, dispatch};
use crate::session::execution_session::SessionInner;
use crate::session::found;
use crate::session::jit_dylib::{DylibInner, JitDylib, Visibility};
use crate::session::responsibility::MaterializationResponsibility;
use crate::session::search::{Match, Progress, Search};
use crate::session::symbol::{SymbolFlags, SymbolId, SymbolRef, SymbolState};
use crate::session::symbol_table::{Symbol, SymbolTable};
use crate::sync::{Arc, Mutex, Rank};

/// One name that a lookup asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SymbolRequest<'a> {
    /// The name, as the object format mangles it.
    pub name: &'a str,
    /// Whether the lookup fails without it. A name that is not required and not found has the null address.
    pub required: bool,
}

impl<'a> SymbolRequest<'a> {
    /// Asks for `name` and fails without it.
    pub fn required(name: &'a str) -> SymbolRequest<'a> {
        SymbolRequest { name, required: true }
    }

    /// Asks for `name` and does without it.
    pub fn weak(name: &'a str) -> SymbolRequest<'a> {
        SymbolRequest { name, required: false }
    }
}

/// How far the symbols of a lookup must have come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequiredState {
    /// Addresses are known: enough to link against.
    Resolved,
    /// The code, and all that it refers to, may run.
    Ready,
}

/// What a lookup found for one name.
#[derive(Debug, Clone)]
pub struct LookupResult {
    /// The address; null when the name was not required and not found.
    pub address: ExecutorAddr,
    /// The symbol's flags.
    pub flags: SymbolFlags,
    /// The definition itself, to be given to
    /// [`notify_emitted`](MaterializationResponsibility::notify_emitted); `None` for absolute and for missing symbols.
    pub symbol: Option<SymbolRef>,
}

impl LookupResult {
    pub(crate) const MISSING: LookupResult =
        LookupResult { address: ExecutorAddr::NULL, flags: SymbolFlags::NONE, symbol: None };
}

pub(crate) type LookupResults = Vec<LookupResult>;

/// Most lookups that wait ask for one name.
type Results = SmallVec<[LookupResult; 1]>;

/// Who is told of a lookup's outcome.
pub(crate) enum OnComplete {
    /// A thread that waits.
    Tell(Arc<Answer<Result<Results>>>),
    /// The same, of one that wants addresses and nothing else.
    TellAddresses(Arc<Answer<Result<Results>>>),
    Call(Box<dyn FnOnce(Result<LookupResults>) + Send>),
}

impl OnComplete {
    pub(crate) fn call(body: impl FnOnce(Result<LookupResults>) + Send + 'static) -> OnComplete {
        OnComplete::Call(Box::new(body))
    }
}

/// A lookup under way.
pub(crate) struct Query {
    required: SymbolState,
    wants_definitions: bool,
    state: Mutex<QueryState>,
}

struct QueryState {
    /// Symbols still to come, and one for the thread that is attaching the query.
    outstanding: usize,
    results: Results,
    /// Gone once the query is complete or failed.
    on_complete: Option<OnComplete>,
}

/// A query's place in a symbol's list.
pub(crate) struct Waiter {
    pub(crate) query: Arc<Query>,
    pub(crate) index: usize,
    /// The symbol's, if the query wants to know the definition itself.
    pub(crate) dylib: Option<Arc<DylibInner>>,
}

/// A symbol as its table knows it.
pub(crate) struct Found<'a> {
    pub(crate) address: ExecutorAddr,
    pub(crate) flags: SymbolFlags,
    pub(crate) id: SymbolId,
    pub(crate) name: NameRef<'a>,
}

pub(crate) fn found_of<'a>(table: &'a SymbolTable, id: SymbolId, symbol: &Symbol) -> Found<'a> {
    Found { address: symbol.address(), flags: symbol.flags, id, name: table.name(symbol) }
}

impl Found<'_> {
    pub(crate) fn result(&self, dylib: &Arc<DylibInner>) -> LookupResult {
        self.result_in(Some(dylib))
    }

    /// Without the definition, if there is no dylib.
    fn result_in(&self, dylib: Option<&Arc<DylibInner>>) -> LookupResult {
        // Nothing can be taken away from under an absolute symbol, so there is nothing to refer to.
        let dylib = dylib.filter(|_| !self.flags.contains(SymbolFlags::ABSOLUTE));
        let symbol = dylib.map(|dylib| SymbolRef { dylib: dylib.clone(), id: self.id, name: self.name.to_name() });
        LookupResult { address: self.address, flags: self.flags, symbol }
    }
}

/// A query that has its answer: to be told outside all locks.
pub(crate) struct Completion {
    on_complete: OnComplete,
    outcome: Result<Results>,
}

/// Those of one step.
pub(crate) type Completions = SmallVec<[Completion; 2]>;

/// Those of one symbol: mostly one.
pub(crate) type Waiters = SmallVec<[Waiter; 1]>;

impl Completion {
    /// Tells who waits; what is called becomes a task.
    fn tell(self) -> Option<Task> {
        match self.on_complete {
            OnComplete::Tell(answer) | OnComplete::TellAddresses(answer) => {
                answer.tell(self.outcome);
                None
            }
            OnComplete::Call(body) => Some(Task::call(move || body(self.outcome.map(SmallVec::into_vec)))),
        }
    }
}

/// Tells a lookup that it failed.
pub(crate) fn fail(on_complete: OnComplete, error: Error) {
    complete(smallvec![Completion { on_complete, outcome: Err(error) }]);
}

/// Tells finished queries, on this thread.
pub(crate) fn complete(completions: Completions) {
    let calls: SmallVec<[Task; 2]> = completions.into_iter().filter_map(Completion::tell).collect();
    if !calls.is_empty() {
        dispatch(calls);
    }
}

impl Query {
    pub(crate) fn is_served_by(&self, state: SymbolState) -> bool {
        state >= self.required
    }

    fn arrive(&self, index: Option<(usize, LookupResult)>) -> Option<Completion> {
        let mut state = self.state.lock();
        if let Some((index, result)) = index {
            state.results[index] = result;
        }
        state.outstanding -= 1;
        if state.outstanding > 0 {
            return None;
        }
        let outcome = Ok(std::mem::take(&mut state.results));
        state.on_complete.take().map(|on_complete| Completion { on_complete, outcome })
    }

    pub(crate) fn fail(&self, error: &Error) -> Option<Completion> {
        let on_complete = self.state.lock().on_complete.take()?;
        Some(Completion { on_complete, outcome: Err(error.clone()) })
    }
}

impl Waiter {
    pub(crate) fn satisfy(self, found: &Found<'_>) -> Option<Completion> {
        let result = found.result_in(self.dylib.as_ref());
        self.query.arrive(Some((self.index, result)))
    }
}

/// Looks `requests` up and calls `on_complete` on whichever thread has the answer.
pub(crate) fn start(
    session: &Arc<SessionInner>,
    order: &[(JitDylib, Visibility)],
    requests: &[SymbolRequest<'_>],
    required: RequiredState,
    needed_by: Option<&str>,
    on_complete: OnComplete,
) {
    let mut search = Search::new(order, requests);
    match search.run() {
        Ok(Progress::Found) => finish(session, search, required, needed_by, on_complete),
        Ok(Progress::Suspended(place)) => {
            let goal =
                Goal { session: session.clone(), required, needed_by: needed_by.map(str::to_string), on_complete };
            place.park(search.into_parked(goal));
        }
        Err(error) => fail(on_complete, error),
    }
}

/// What a lookup is for, kept while its search is suspended.
pub(crate) struct Goal {
    pub(crate) session: Arc<SessionInner>,
    pub(crate) required: RequiredState,
    pub(crate) needed_by: Option<String>,
    pub(crate) on_complete: OnComplete,
}

/// Steps 2 and 3, after a search that ran to its end.
pub(crate) fn finish(
    session: &Arc<SessionInner>,
    search: Search<'_>,
    required: RequiredState,
    needed_by: Option<&str>,
    on_complete: OnComplete,
) {
    let required = state_of(required);
    let (order, requests, matches) = match search.matches(needed_by) {
        Ok(found) => found,
        Err(error) => return fail(on_complete, error),
    };
    let query = Arc::new(Query {
        required,
        wants_definitions: !matches!(on_complete, OnComplete::TellAddresses(_)),
        state: Mutex::ranked(
            Rank::Query,
            QueryState {
                outstanding: matches.len() + 1,
                results: smallvec![LookupResult::MISSING; requests.len()],
                on_complete: Some(on_complete),
            },
        ),
    });
    let mut tasks: SmallVec<[Task; 2]> = SmallVec::new();
    for group in matches.chunk_by(|a, b| a.dylib == b.dylib) {
        if let Err(error) = attach(&order[group[0].dylib], group, &requests, &query, &mut tasks) {
            complete(query.fail(&error).into_iter().collect());
            break;
        }
    }
    let arrived = query.arrive(None);
    session.dispatcher.start(tasks);
    complete(arrived.into_iter().collect());
}

pub(crate) fn state_of(required: RequiredState) -> SymbolState {
    match required {
        RequiredState::Resolved => SymbolState::Resolved,
        RequiredState::Ready => SymbolState::Ready,
    }
}

/// Looks `requests` up and waits, running what that sets off meanwhile.
pub(crate) fn wait(
    session: &Arc<SessionInner>,
    order: &[(JitDylib, Visibility)],
    requests: &[SymbolRequest<'_>],
    required: RequiredState,
) -> Result<LookupResults> {
    if let Some(found) = found::results_now(order, requests, required) {
        return Ok(found.into_vec());
    }
    wait_for_query(session, order, requests, required, OnComplete::Tell).map(SmallVec::into_vec)
}

fn wait_for_query(
    session: &Arc<SessionInner>,
    order: &[(JitDylib, Visibility)],
    requests: &[SymbolRequest<'_>],
    required: RequiredState,
    tell: impl FnOnce(Arc<Answer<Result<Results>>>) -> OnComplete,
) -> Result<Results> {
    let answer = Arc::new(Answer::new());
    let older = dispatch::queued();
    start(session, order, requests, required, None, tell(answer.clone()));
    session.dispatcher.wait(&answer, older)
}

/// Looks one name up and waits for its address.
pub(crate) fn address(
    session: &Arc<SessionInner>,
    order: &[(JitDylib, Visibility)],
    name: &str,
) -> Result<ExecutorAddr> {
    let found = found::find_now(found::walk(order), name, SymbolState::Ready, |found, _| found.address);
    let wait = || {
        let requests = [SymbolRequest::required(name)];
        wait_for_query(session, order, &requests, RequiredState::Ready, OnComplete::TellAddresses)
    };
    found.map_or_else(|| Ok(wait()?[0].address), Ok)
}

/// As [`address`], of a symbol of this dylib.
pub(crate) fn address_in(dylib: &JitDylib, name: &str) -> Result<ExecutorAddr> {
    // Nothing is counted on this way: threads that look things up do not take each other's lines.
    let found = found::find_now([(dylib.inner(), Visibility::All)], name, SymbolState::Ready, |found, _| found.address);
    found.map_or_else(|| address(&dylib.inner().session, &[(dylib.clone(), Visibility::All)], name), Ok)
}

/// Step 1 alone: the flags of what is found.
pub(crate) fn flags(
    order: &[(JitDylib, Visibility)],
    requests: &[SymbolRequest<'_>],
) -> Result<Vec<Option<SymbolFlags>>> {
    let mut search = Search::new(order, requests);
    // A generator that suspends cannot be waited for without materialising: what it would add is not found.
    search.run_without_suspending()?;
    let (_, _, matches) = search.matches(None)?;
    Ok(flags_of(order, requests.len(), matches))
}

/// As [`flags`], but without the names that are required and not found.
pub(crate) fn flags_of_those_found(
    order: &[(JitDylib, Visibility)],
    requests: &[SymbolRequest<'_>],
) -> Result<Vec<Option<SymbolFlags>>> {
    let mut search = Search::new(order, requests);
    search.run_without_suspending()?;
    Ok(flags_of(order, requests.len(), search.found()))
}

/// By request.
fn flags_of(
    order: &[(JitDylib, Visibility)],
    requests: usize,
    matches: SmallVec<[Match; 2]>,
) -> Vec<Option<SymbolFlags>> {
    let mut flags = vec![None; requests];
    for Match { request, dylib, id } in matches {
        flags[request] = order[dylib].0.inner().state.lock().table.symbol(id).map(|symbol| symbol.flags);
    }
    flags
}

/// Step 2 for the matches of one dylib.
fn attach(
    (dylib, visibility): &(JitDylib, Visibility),
    matches: &[Match],
    requests: &[SymbolRequest<'_>],
    query: &Arc<Query>,
    tasks: &mut SmallVec<[Task; 2]>,
) -> Result<()> {
    let mut state = dylib.inner().state.lock();
    for Match { request, id, .. } in matches {
        // Defined anew since step 1 (a weak symbol was overridden, a module replaced): the new definition counts.
        let again = || state.find_visible(requests[*request].name, *visibility);
        let id = if state.table.symbol(*id).is_some() { Some(*id) } else { again() };
        let Some((id, symbol)) = id.and_then(|id| Some((id, state.table.symbol(id)?))) else {
            if !requests[*request].required {
                let done = query.arrive(None);
                debug_assert!(done.is_none(), "the attaching thread counts too");
                continue;
            }
            return Err(ErrorKind::SymbolsNotFound {
                symbols: vec![requests[*request].name.to_string()],
                needed_by: None,
                searched: vec![dylib.name().to_string()],
            }
            .into());
        };
        let wanted_in = Some(dylib.inner()).filter(|_| query.wants_definitions);
        if query.is_served_by(symbol.state) {
            let found = found_of(&state.table, id, symbol);
            let done = query.arrive(Some((*request, found.result_in(wanted_in))));
            debug_assert!(done.is_none(), "the attaching thread counts too");
            continue;
        }
        let unit = symbol.unit();
        state.table.add_waiter(id, Waiter { query: query.clone(), index: *request, dylib: wanted_in.cloned() });
        if let Some(unit) = unit {
            tasks.extend(MaterializationResponsibility::begin(&mut state, unit));
        }
    }
    Ok(())
}

impl fmt::Debug for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Query({:?}, {} outstanding)", self.required, self.state.lock().outstanding)
    }
}
