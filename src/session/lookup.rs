//! Looking symbols up: find every name first, then ask for all of them, then wait.
//!
//! 1. In each dylib of the search order, names are matched; what is missing is asked of the dylib's generators. If a
//!    required name is found nowhere, the lookup fails with all missing names and nothing was materialised.
//! 2. Each found symbol is either far enough along, or the query is attached to it; a lazy unit behind it is taken out
//!    and dispatched.
//! 3. The last symbol to arrive completes the query, outside all locks.
//!
//! A symbol that is removed between 1 and 2, and not defined again, is not found; one removed after 2 fails the query
//! with the cause.

use std::fmt;

use crate::base::{ExecutorAddr, Name};
use crate::error::{Error, ErrorKind, Result};
use crate::session::dispatch::{self, Task, dispatch};
use crate::session::execution_session::SessionInner;
use crate::session::jit_dylib::{JitDylib, Visibility};
use crate::session::materialization::MaterializationResponsibility;
use crate::session::symbol::{SymbolFlags, SymbolId, SymbolRef, SymbolState};
use crate::sync::{Arc, Condvar, Mutex};

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
    const MISSING: LookupResult = LookupResult { address: ExecutorAddr::NULL, flags: SymbolFlags::NONE, symbol: None };
}

pub(crate) type LookupResults = Vec<LookupResult>;
pub(crate) type OnComplete = Box<dyn FnOnce(Result<LookupResults>) + Send>;

/// A lookup under way.
pub(crate) struct Query {
    required: SymbolState,
    state: Mutex<QueryState>,
}

struct QueryState {
    /// Symbols still to come, and one for the thread that is attaching the query.
    outstanding: usize,
    results: LookupResults,
    /// Gone once the query is complete or failed.
    on_complete: Option<OnComplete>,
}

/// A query's place in a symbol's list.
pub(crate) struct Waiter {
    pub(crate) query: Arc<Query>,
    pub(crate) index: usize,
    pub(crate) dylib: Arc<super::jit_dylib::DylibInner>,
}

/// A symbol as its table knows it.
pub(crate) struct Found {
    pub(crate) address: ExecutorAddr,
    pub(crate) flags: SymbolFlags,
    pub(crate) id: SymbolId,
    pub(crate) name: Name,
}

/// A query that has its answer: to be told outside all locks.
pub(crate) struct Completion {
    on_complete: OnComplete,
    outcome: Result<LookupResults>,
}

impl Completion {
    fn into_task(self) -> Task {
        Box::new(move || (self.on_complete)(self.outcome))
    }
}

/// Tells finished queries, on this thread.
pub(crate) fn complete(completions: Vec<Completion>) {
    if !completions.is_empty() {
        dispatch(completions.into_iter().map(Completion::into_task));
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
    pub(crate) fn satisfy(self, found: &Found) -> Option<Completion> {
        let result = LookupResult { address: found.address, flags: found.flags, symbol: reference(&self.dylib, found) };
        self.query.arrive(Some((self.index, result)))
    }
}

fn reference(dylib: &Arc<super::jit_dylib::DylibInner>, found: &Found) -> Option<SymbolRef> {
    // Nothing can be taken away from under an absolute symbol, so there is nothing to refer to.
    (!found.flags.contains(SymbolFlags::ABSOLUTE)).then(|| SymbolRef {
        dylib: dylib.clone(),
        id: found.id,
        name: found.name.clone(),
    })
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
    let required = match required {
        RequiredState::Resolved => SymbolState::Resolved,
        RequiredState::Ready => SymbolState::Ready,
    };
    let matches = match find_all(order, requests, needed_by) {
        Ok(matches) => matches,
        Err(error) => return complete(vec![Completion { on_complete, outcome: Err(error) }]),
    };
    let query = Arc::new(Query {
        required,
        state: Mutex::new(QueryState {
            outstanding: matches.len() + 1,
            results: vec![LookupResult::MISSING; requests.len()],
            on_complete: Some(on_complete),
        }),
    });
    let mut tasks: Vec<Task> = Vec::new();
    for group in matches.chunk_by(|a, b| a.dylib == b.dylib) {
        if let Err(error) = attach(session, &order[group[0].dylib], group, requests, &query, &mut tasks) {
            complete(query.fail(&error).into_iter().collect());
            break;
        }
    }
    let arrived = query.arrive(None);
    tasks.extend(arrived.map(Completion::into_task));
    if !tasks.is_empty() {
        dispatch(tasks);
    }
}

/// Looks `requests` up and waits, running this thread's tasks meanwhile.
pub(crate) fn wait(
    session: &Arc<SessionInner>,
    order: &[(JitDylib, Visibility)],
    requests: &[SymbolRequest<'_>],
    required: RequiredState,
) -> Result<LookupResults> {
    let answer = Arc::new((Mutex::new(None), Condvar::new()));
    let told = answer.clone();
    let on_complete: OnComplete = Box::new(move |outcome| {
        *told.0.lock() = Some(outcome);
        told.1.notify_all();
    });
    start(session, order, requests, required, None, on_complete);
    loop {
        if let Some(outcome) = answer.0.lock().take() {
            return outcome;
        }
        // Inside a task, dispatch only queues: what this lookup waits for may be in this thread's own queue.
        if let Some(task) = dispatch::next() {
            task();
            continue;
        }
        let mut slot = answer.0.lock();
        while slot.is_none() {
            answer.1.wait(&mut slot);
        }
    }
}

#[derive(Clone, Copy)]
struct Match {
    request: usize,
    dylib: usize,
    id: SymbolId,
}

/// Step 1: a definition for every required name, in search order. Sorted by dylib.
fn find_all(
    order: &[(JitDylib, Visibility)],
    requests: &[SymbolRequest<'_>],
    needed_by: Option<&str>,
) -> Result<Vec<Match>> {
    let mut matches = Vec::with_capacity(requests.len());
    let mut missing: Vec<usize> = (0..requests.len()).collect();
    for (position, (dylib, visibility)) in order.iter().enumerate() {
        if missing.is_empty() {
            break;
        }
        dylib.find(requests, &mut missing, *visibility, |request, id| {
            matches.push(Match { request, dylib: position, id })
        })?;
        for generator in dylib.generators() {
            if missing.is_empty() {
                break;
            }
            // What the dylib defines and hides is missing from this search, but not from the dylib.
            let names = missing.iter().map(|request| requests[*request].name);
            let names: Vec<&str> = names.filter(|name| dylib.symbol_flags(name).is_none()).collect();
            if names.is_empty() {
                break;
            }
            generator.generate(dylib, &names)?;
            dylib.find(requests, &mut missing, *visibility, |request, id| {
                matches.push(Match { request, dylib: position, id })
            })?;
        }
    }
    let mut absent = missing.iter().map(|request| &requests[*request]).filter(|request| request.required).peekable();
    if absent.peek().is_some() {
        return Err(ErrorKind::SymbolsNotFound {
            symbols: absent.map(|request| request.name.to_string()).collect(),
            needed_by: needed_by.map(str::to_string),
            searched: order.iter().map(|(dylib, _)| dylib.name().to_string()).collect(),
        }
        .into());
    }
    Ok(matches)
}

/// Step 2 for the matches of one dylib.
fn attach(
    session: &Arc<SessionInner>,
    (dylib, visibility): &(JitDylib, Visibility),
    matches: &[Match],
    requests: &[SymbolRequest<'_>],
    query: &Arc<Query>,
    tasks: &mut Vec<Task>,
) -> Result<()> {
    let mut state = dylib.inner().state.lock();
    for Match { request, id, .. } in matches {
        // Defined anew since step 1 (a weak symbol was overridden, a module replaced): the new definition counts.
        let again = || state.find_visible(requests[*request].name, *visibility);
        let id = if state.table.symbol(*id).is_some() { Some(*id) } else { again() };
        let Some((id, symbol)) = id.and_then(|id| Some((id, state.table.symbol_mut(id)?))) else {
            return Err(ErrorKind::SymbolsNotFound {
                symbols: vec![requests[*request].name.to_string()],
                needed_by: None,
                searched: vec![dylib.name().to_string()],
            }
            .into());
        };
        if query.is_served_by(symbol.state) {
            let found = Found { address: symbol.address, flags: symbol.flags, id, name: symbol.name.clone() };
            let result =
                LookupResult { address: found.address, flags: found.flags, symbol: reference(dylib.inner(), &found) };
            let done = query.arrive(Some((*request, result)));
            debug_assert!(done.is_none(), "the attaching thread counts too");
            continue;
        }
        symbol.waiters.push(Waiter { query: query.clone(), index: *request, dylib: dylib.inner().clone() });
        if let Some(unit) = symbol.unit {
            tasks.extend(MaterializationResponsibility::begin(session, dylib, &mut state, unit));
        }
    }
    Ok(())
}

impl fmt::Debug for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Query({:?}, {} outstanding)", self.required, self.state.lock().outstanding)
    }
}
