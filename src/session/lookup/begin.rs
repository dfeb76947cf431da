//! Starts a lookup: finds every name first, then waits for all of them at once.
//!
//! 1. *Find.* Match the names in each dylib of the search order; ask the dylib's generators for the missing ones
//!    (`search.rs`). If a required name is found nowhere, the lookup fails with all missing names, and nothing was
//!    materialised.
//! 2. *Attach.* If a found symbol is far enough along, its result is recorded in the query. Otherwise the query is
//!    attached to the symbol. If the symbol has a lazy unit, the unit is taken out of the table and dispatched.
//! 3. *Complete.* The thread with the last symbol completes the query, outside all locks.
//!
//! A symbol that is removed between 1 and 2, and not defined again, is not found. A symbol that is removed after 2
//! fails the query with the cause.

use smallvec::SmallVec;

use crate::base::catch;
use crate::error::{Error, ErrorKind, Result};
use crate::session::core::execution_session::SessionInner;
use crate::session::core::generator::ParkedLookup;
use crate::session::core::jit_dylib::{DylibInner, DylibState, JitDylib, check_order};
use crate::session::core::materialization::Task;
use crate::session::core::query::{Query, Waiter, complete};
use crate::session::core::symbol_ref::LookupResult;
use crate::session::lookup::lazy_unit::{begun_since, take_unit_of};
use crate::session::lookup::not_found::not_found;
use crate::session::lookup::origin::Origin;
use crate::session::lookup::ready_alias;
use crate::session::lookup::search::{Match, OwnedSearch, Progress, Search};
use crate::session::lookup::searched::Searched;
use crate::session::symbols::symbol_table::found_symbol;
use crate::session::types::failure_count::FailureNumber;
use crate::session::types::request::{SymbolRequest, Visibility};
use crate::session::types::symbol::SymbolId;
use crate::sync::Arc;

/// Looks up `requests` for `query`. The thread that has the last symbol delivers the outcome.
pub(crate) fn start<'a>(
    session: &Arc<SessionInner>,
    order: impl Into<Searched<'a>>,
    requests: &[SymbolRequest<'a>],
    origin: Origin<'_>,
    query: Arc<Query>,
) {
    let order = order.into();
    if let Searched::Listed(order) = &order
        && let Err(error) = check_order(session, order)
    {
        return complete(&session.error_reporter, query.fail(&error));
    }
    let mut search = Search::new(order, requests, origin.since);
    match search.run() {
        Ok(Progress::Found) => attach_all(session, search, origin, query),
        Ok(Progress::Suspended(point)) => {
            let needed_by = origin.needed_by.map(str::to_string);
            let lookup = PendingLookup { session: session.clone(), needed_by, since: origin.since, query };
            point.park(ParkedSearch::new(search, lookup));
        }
        Err(error) => complete(&session.error_reporter, query.fail(&error)),
    }
}

/// The rest of a lookup whose search is suspended.
struct PendingLookup {
    session: Arc<SessionInner>,
    needed_by: Option<String>,
    since: FailureNumber,
    query: Arc<Query>,
}

/// Steps 2 and 3, after a search that ran to its end.
fn attach_all(session: &SessionInner, search: Search<'_>, origin: Origin<'_>, query: Arc<Query>) {
    let (order, requests, matches) = match search.into_required_matches(origin.needed_by) {
        Ok(found) => found,
        Err(error) => return complete(&session.error_reporter, query.fail(&error)),
    };
    query.set_expected(requests.len(), matches.len());
    let mut tasks: SmallVec<[Task; 2]> = SmallVec::new();
    for group in matches.chunk_by(|a, b| a.dylib == b.dylib) {
        let Some((dylib, visibility)) = order.get(group[0].dylib) else { continue };
        let mut state = dylib.inner().state.lock();
        let gone = group.iter().find(|Match { request, id, .. }| {
            match attach(&mut state, dylib.inner(), visibility, *id, &requests[*request], *request, &query) {
                Attached::Waiting(task) => tasks.extend(task.map(|task| begun_since(task, origin.since))),
                Attached::Answered(result) => query.record_while_attaching(result.map(|result| (*request, result))),
                Attached::Gone => return true,
            }
            false
        });
        drop(state);
        if let Some(gone) = gone {
            let name = requests[gone.request].name.to_string();
            let searched = [(dylib.clone(), visibility)];
            let error = not_found(&Searched::from(&searched[..]), vec![name], origin.needed_by);
            complete(&session.error_reporter, query.fail(&error));
            break;
        }
    }
    let completion = query.record(None);
    session.dispatcher.start(tasks);
    complete(&session.error_reporter, completion);
}

/// As [`attach_all`], for a query that waits for one definition only.
pub(crate) fn attach_one(
    dylib: &Arc<DylibInner>,
    visibility: Visibility,
    id: SymbolId,
    request: &SymbolRequest<'_>,
    query: Arc<Query>,
) {
    let attached = attach(&mut dylib.state.lock(), dylib, visibility, id, request, 0, &query);
    let reporter = &dylib.session.error_reporter;
    match attached {
        Attached::Waiting(task) => dylib.session.dispatcher.start(task),
        Attached::Answered(result) => complete(reporter, query.record(result.map(|result| (0, result)))),
        Attached::Gone => {
            let searched = [(JitDylib::from_inner(dylib.clone()), visibility)];
            let error = not_found(&Searched::from(&searched[..]), vec![request.name.to_string()], None);
            complete(reporter, query.fail(&error));
        }
    }
}

/// The outcome of attaching a query to one symbol.
enum Attached {
    /// The query waits for the symbol. The task, if any, materialises it.
    Waiting(Option<Task>),
    /// The symbol is far enough along; or it is gone, and optional.
    Answered(Option<LookupResult>),
    /// The symbol is gone, and required.
    Gone,
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
) -> Attached {
    // The symbol may have been defined again since step 1: a weak symbol was overridden, or a module replaced. Then the
    // query uses the new definition.
    let find_again = || state.find_visible(request.name, visibility);
    let id = if state.table.symbol(id).is_some() { Some(id) } else { find_again() };
    let Some((id, symbol)) = id.and_then(|id| Some((id, state.table.symbol(id)?))) else {
        return if request.required { Attached::Gone } else { Attached::Answered(None) };
    };
    let definition_dylib = Some(dylib).filter(|_| query.wants_definitions());
    if query.is_satisfied_by(symbol.state) {
        return Attached::Answered(Some(found_symbol(&state.table, id, symbol).result_in(definition_dylib)));
    }
    if symbol.unit().is_none() {
        state.table.add_waiter(id, Waiter { query: query.clone(), index, dylib: definition_dylib.cloned() });
        return Attached::Waiting(None);
    }
    if ready_alias::make_ready(state, dylib, id).is_some()
        && let Some(symbol) = state.table.symbol(id)
    {
        return Attached::Answered(Some(found_symbol(&state.table, id, symbol).result_in(definition_dylib)));
    }
    state.table.add_waiter(id, Waiter { query: query.clone(), index, dylib: definition_dylib.cloned() });
    Attached::Waiting(take_unit_of(state, id))
}

/// A search that is suspended at a generator. Dropping it fails its lookup.
struct ParkedSearch {
    search: OwnedSearch,
    lookup: Option<PendingLookup>,
}

impl ParkedSearch {
    fn new(search: Search<'_>, lookup: PendingLookup) -> Box<ParkedSearch> {
        Box::new(ParkedSearch { search: search.into_owned(), lookup: Some(lookup) })
    }
}

impl ParkedLookup for ParkedSearch {
    fn resume(mut self: Box<Self>, outcome: Result<()>) {
        let Some(lookup) = self.lookup.take() else { return };
        let PendingLookup { session, needed_by, since, query } = lookup;
        if let Err(error) = outcome {
            return complete(&session.error_reporter, query.fail(&error));
        }
        let mut search = self.search.resume();
        // First match what the generator has defined meanwhile. A panic of a later generator fails the lookup: the
        // caller of the lookup is not on this thread.
        let outcome = catch(|| search.match_names().and_then(|()| search.run()));
        match outcome.unwrap_or_else(|panic| Err(generator_panicked(&search, &panic))) {
            Ok(Progress::Found) => {
                attach_all(&session, search, Origin { needed_by: needed_by.as_deref(), since }, query);
            }
            Ok(Progress::Suspended(point)) => {
                point.park(ParkedSearch::new(search, PendingLookup { session, needed_by, since, query }));
            }
            Err(error) => complete(&session.error_reporter, query.fail(&error)),
        }
    }
}

#[cold]
fn generator_panicked(search: &Search<'_>, panic: &str) -> Error {
    Error::other(format!("a generator of `{}` panicked in a lookup: {panic}", search.dylib_name()))
}

impl Drop for ParkedSearch {
    fn drop(&mut self) {
        let Some(lookup) = self.lookup.take() else { return };
        let dylib = self.search.dylib_name();
        let error = ErrorKind::LookupAbandoned { dylib }.into();
        complete(&lookup.session.error_reporter, lookup.query.fail(&error));
    }
}
