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

use smallvec::SmallVec;

use crate::base::{ExecutorAddr, NameRef};
use crate::error::{ErrorKind, Result};
use crate::session::core::execution_session::SessionInner;
use crate::session::core::jit_dylib::{DylibInner, DylibState, JitDylib, Visibility};
use crate::session::core::query::{Query, Results, Waiter, complete};
use crate::session::lookup::ready_lookup::{self, TryFind};
use crate::session::lookup::search::{Match, Progress, Search};
use crate::session::materialize::responsibility::MaterializationResponsibility;
use crate::session::symbols::symbol_table::{Symbol, SymbolTable};
use crate::session::types::symbol::{SymbolFlags, SymbolId, SymbolRef, SymbolState};
use crate::session::work::dispatch::{self, Task};
use crate::sync::Arc;

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
    pub(crate) fn result_in(&self, dylib: Option<&Arc<DylibInner>>) -> LookupResult {
        // Nothing can be taken away from under an absolute symbol, so there is nothing to refer to.
        let dylib = dylib.filter(|_| !self.flags.contains(SymbolFlags::ABSOLUTE));
        let symbol = dylib.map(|dylib| SymbolRef { dylib: dylib.clone(), id: self.id, name: self.name.to_name() });
        LookupResult { address: self.address, flags: self.flags, symbol }
    }
}

/// Looks `requests` up; whichever thread has the answer tells it.
pub(crate) fn start(
    session: &Arc<SessionInner>,
    order: &[(JitDylib, Visibility)],
    requests: &[SymbolRequest<'_>],
    needed_by: Option<&str>,
    query: Arc<Query>,
) {
    let mut search = Search::new(order, requests);
    match search.run() {
        Ok(Progress::Found) => finish(session, search, needed_by, query),
        Ok(Progress::Suspended(place)) => {
            let goal = Goal { session: session.clone(), needed_by: needed_by.map(str::to_string), query };
            place.park(search.into_parked(goal));
        }
        Err(error) => complete(query.fail(&error)),
    }
}

/// What a lookup is for, kept while its search is suspended.
pub(crate) struct Goal {
    pub(crate) session: Arc<SessionInner>,
    pub(crate) needed_by: Option<String>,
    pub(crate) query: Arc<Query>,
}

/// Steps 2 and 3, after a search that ran to its end.
pub(crate) fn finish(session: &SessionInner, search: Search<'_>, needed_by: Option<&str>, query: Arc<Query>) {
    let (order, requests, matches) = match search.matches(needed_by) {
        Ok(found) => found,
        Err(error) => return complete(query.fail(&error)),
    };
    query.expect(requests.len(), matches.len());
    let mut tasks: SmallVec<[Task; 2]> = SmallVec::new();
    for group in matches.chunk_by(|a, b| a.dylib == b.dylib) {
        let (dylib, visibility) = &order[group[0].dylib];
        let mut state = dylib.inner().state.lock();
        let attached = group.iter().try_for_each(|Match { request, id, .. }| {
            match attach(&mut state, dylib.inner(), *visibility, *id, &requests[*request], *request, &query)? {
                Attached::Waits(task) => tasks.extend(task),
                Attached::Has(result) => query.serve(result.map(|result| (*request, result))),
            }
            Ok(())
        });
        drop(state);
        if let Err(error) = attached {
            complete(query.fail(&error));
            break;
        }
    }
    let arrived = query.arrived(None);
    session.dispatcher.start(tasks);
    complete(arrived);
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
    if let Some(found) = ready_lookup::results_now(order, requests, required) {
        return Ok(found.into_vec());
    }
    let query = Query::waking(required);
    wait_for(session, &query, || start(session, order, requests, None, query.clone())).map(SmallVec::into_vec)
}

/// Waits for a query that `begin` sets going.
fn wait_for(session: &SessionInner, query: &Arc<Query>, begin: impl FnOnce()) -> Result<Results> {
    let older = dispatch::queued();
    begin();
    session.dispatcher.wait(query, older)
}

/// Looks one name up and waits for its address.
pub(crate) fn address(
    session: &Arc<SessionInner>,
    order: &[(JitDylib, Visibility)],
    name: &str,
) -> Result<ExecutorAddr> {
    let now = ready_lookup::find_now(ready_lookup::walk(order), name, SymbolState::Ready, |found, _| found.address);
    address_from(session, now, name, |requests, query| start(session, order, requests, None, query))
}

/// As [`address`], of a symbol of this dylib.
pub(crate) fn address_in(dylib: &JitDylib, name: &str) -> Result<ExecutorAddr> {
    // Nothing is counted on this way: threads that look things up do not take each other's lines.
    let order = [(dylib.inner(), Visibility::All)];
    let (session, now) =
        (&dylib.inner().session, ready_lookup::find_now(order, name, SymbolState::Ready, |found, _| found.address));
    address_from(session, now, name, |requests, query| {
        start(session, &[(dylib.clone(), Visibility::All)], requests, None, query);
    })
}

/// What was found, or what comes of waiting for it; `search` is for what was not.
#[inline]
fn address_from(
    session: &Arc<SessionInner>,
    now: TryFind<'_, ExecutorAddr>,
    name: &str,
    search: impl FnOnce(&[SymbolRequest<'_>; 1], Arc<Query>),
) -> Result<ExecutorAddr> {
    if let TryFind::Found(address) = now {
        return Ok(address);
    }
    let (requests, query) = ([SymbolRequest::required(name)], Query::waking_with_address(RequiredState::Ready));
    let found = wait_for(session, &query, || match now {
        TryFind::Pending { dylib, visibility, id } => finish_one(dylib, visibility, id, &requests[0], query.clone()),
        TryFind::Found(_) | TryFind::Unknown => search(&requests, query.clone()),
    });
    Ok(found?[0].address)
}

/// As [`finish`], of one definition, which is all that the query waits for.
fn finish_one(
    dylib: &Arc<DylibInner>,
    visibility: Visibility,
    id: SymbolId,
    request: &SymbolRequest<'_>,
    query: Arc<Query>,
) {
    let attached = attach(&mut dylib.state.lock(), dylib, visibility, id, request, 0, &query);
    match attached {
        Ok(Attached::Waits(task)) => dylib.session.dispatcher.start(task),
        Ok(Attached::Has(result)) => complete(query.arrived(result.map(|result| (0, result)))),
        Err(error) => complete(query.fail(&error)),
    }
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

/// What comes of asking for a symbol that was found.
enum Attached {
    /// The query is told when it is far enough along; the task is to see to that.
    Waits(Option<Task>),
    /// It is far enough along, or gone and not required.
    Has(Option<LookupResult>),
}

/// Step 2 for one symbol.
fn attach(
    state: &mut DylibState,
    dylib: &Arc<DylibInner>,
    visibility: Visibility,
    id: SymbolId,
    request: &SymbolRequest<'_>,
    index: usize,
    query: &Arc<Query>,
) -> Result<Attached> {
    // Defined anew since step 1 (a weak symbol was overridden, a module replaced): the new definition counts.
    let again = || state.find_visible(request.name, visibility);
    let id = if state.table.symbol(id).is_some() { Some(id) } else { again() };
    let Some((id, symbol)) = id.and_then(|id| Some((id, state.table.symbol(id)?))) else {
        if !request.required {
            return Ok(Attached::Has(None));
        }
        return Err(ErrorKind::SymbolsNotFound {
            symbols: vec![request.name.to_string()],
            needed_by: None,
            searched: vec![dylib.name.to_string()],
        }
        .into());
    };
    let wanted_in = Some(dylib).filter(|_| query.wants_definitions());
    if query.is_served_by(symbol.state) {
        return Ok(Attached::Has(Some(found_of(&state.table, id, symbol).result_in(wanted_in))));
    }
    let unit = symbol.unit();
    state.table.add_waiter(id, Waiter { query: query.clone(), index, dylib: wanted_in.cloned() });
    Ok(Attached::Waits(unit.and_then(|unit| MaterializationResponsibility::begin(state, unit))))
}
