//! Lookups that block the calling thread, and lookups of flags.
//!
//! A lookup whose symbols are all far enough along is answered at once (`ready_lookup.rs`). Otherwise the lookup is
//! started (`begin.rs`), and the thread waits for it. While it waits, it runs the tasks that the lookup dispatched.

use smallvec::SmallVec;

use crate::base::ExecutorAddr;
use crate::error::{Error, Result};
use crate::session::core::execution_session::{ExecutionSession, SessionInner};
use crate::session::core::jit_dylib::{DylibInner, JitDylib, check_order};
use crate::session::core::materialization::Materialization;
use crate::session::core::query::{Query, Results};
use crate::session::core::symbol_ref::{LookupResult, LookupResults};
use crate::session::lookup::begin::{attach_one, start};
use crate::session::lookup::not_found::not_found;
use crate::session::lookup::origin::Origin;
use crate::session::lookup::ready_lookup::{FindFrom, TryFind};
use crate::session::lookup::search::{Match, Search};
use crate::session::lookup::searched::Searched;
use crate::session::lookup::{begin, ready_lookup};
use crate::session::symbols::symbol_table::Found;
use crate::session::types::failure_count::FailureNumber;
use crate::session::types::request::{RequiredState, SymbolRequest, Visibility};
use crate::session::types::symbol::{SymbolFlags, SymbolState};
use crate::session::work::dispatch::queued_count;
use crate::sync::Arc;

impl ExecutionSession {
    /// Looks up `requests` in `order`, and waits until all of them are in the required state (ORC: `lookup`). The
    /// results are in the order of the requests.
    ///
    /// Without worker threads, materialisation that the lookup starts runs on this thread.
    ///
    /// # Errors
    /// [`ErrorKind::SymbolsNotFound`](crate::ErrorKind::SymbolsNotFound) with all missing names;
    /// [`ErrorKind::FailedToMaterialize`](crate::ErrorKind::FailedToMaterialize) with the root cause;
    /// [`ErrorKind::ForeignSession`](crate::ErrorKind::ForeignSession) when a dylib of `order` is of another session.
    pub fn lookup(
        &self,
        order: &[(JitDylib, Visibility)],
        requests: &[SymbolRequest<'_>],
        required: RequiredState,
    ) -> Result<Vec<LookupResult>> {
        check_order(self.inner(), order)?;
        wait(self.inner(), order, requests, required)
    }

    /// The address of one symbol; waits until the symbol is ready.
    ///
    /// For a ready symbol that is looked up often, this takes no lock of its dylib, allocates nothing, and writes
    /// nothing that another thread reads. So threads that do it at the same time do not slow each other down.
    ///
    /// # Errors
    /// As [`lookup`](Self::lookup).
    pub fn lookup_address(&self, order: &[(JitDylib, Visibility)], name: &str) -> Result<ExecutorAddr> {
        check_order(self.inner(), order)?;
        address(self.inner(), order, name)
    }

    /// As [`lookup`](Self::lookup), but calls `on_complete` with the outcome instead of waiting. The callback runs with
    /// no lock held, on the thread that has the last symbol; this may be the calling thread. A panic of the callback goes
    /// to the session's [error reporter](crate::session::SessionOptions::error_reporter).
    pub fn lookup_then(
        &self,
        order: &[(JitDylib, Visibility)],
        requests: &[SymbolRequest<'_>],
        required: RequiredState,
        on_complete: impl FnOnce(Result<Vec<LookupResult>>) + Send + 'static,
    ) {
        let (session, query) = (self.inner(), Query::with_callback(required, on_complete));
        begin::start(session, order, requests, Origin::of_embedder(session), query);
    }

    /// The flags of symbols, in the order of `requests` (ORC: `lookupFlags`). Materialises nothing, but calls
    /// generators. `None` for an optional symbol that was not found. A generator that would suspend is not waited for:
    /// what it would add is not found.
    ///
    /// # Errors
    /// [`ErrorKind::SymbolsNotFound`](crate::ErrorKind::SymbolsNotFound) with all missing names, or the error of a
    /// generator.
    pub fn lookup_flags(
        &self,
        order: &[(JitDylib, Visibility)],
        requests: &[SymbolRequest<'_>],
    ) -> Result<Vec<Option<SymbolFlags>>> {
        check_order(self.inner(), order)?;
        flags(order, requests)
    }
}

impl JitDylib {
    /// Looks up `requests` in this dylib only, hidden symbols included, and waits for them.
    ///
    /// # Errors
    /// As [`ExecutionSession::lookup`](crate::session::ExecutionSession::lookup).
    pub fn lookup(&self, requests: &[SymbolRequest<'_>], required: RequiredState) -> Result<Vec<LookupResult>> {
        wait(&self.inner().session, &[(self.clone(), Visibility::All)], requests, required)
    }

    /// Looks up one name in `order`, whose dylibs are of the session of this one, and waits for it. `None` if it is not found.
    ///
    /// # Errors
    /// As [`ExecutionSession::lookup`](crate::session::ExecutionSession::lookup).
    pub(crate) fn lookup_optional(&self, order: &[(JitDylib, Visibility)], name: &str) -> Result<Option<LookupResult>> {
        let requests = [SymbolRequest::weak(name)];
        let found = wait(&self.inner().session, order, &requests, RequiredState::Ready)?.pop();
        Ok(found.filter(|found| found.symbol.is_some() || !found.address.is_null()))
    }

    /// The address of one symbol of this dylib, hidden symbols included; waits until the symbol is ready.
    ///
    /// # Errors
    /// As [`ExecutionSession::lookup_address`](crate::session::ExecutionSession::lookup_address).
    pub fn lookup_address(&self, name: &str) -> Result<ExecutorAddr> {
        address_in(self, name)
    }
}

impl JitDylib {
    /// The address and the flags of one symbol of this dylib or its link order; waits until the symbol is ready.
    #[inline]
    pub(crate) fn find_address(&self, name: &str) -> Result<(ExecutorAddr, SymbolFlags)> {
        find_from(self, name, |found, _| (found.address, found.flags), |found| (found.address, found.flags))
    }

    /// For models: the address of a ready symbol of this dylib or its link order.
    #[cfg(loom)]
    #[doc(hidden)]
    pub fn address_for_models(&self, name: &str) -> Option<ExecutorAddr> {
        self.find_address(name).ok().map(|(address, _)| address)
    }

    /// Looks up one name in this dylib only, hidden symbols included, without waiting. An error goes to the session's error
    /// reporter.
    pub(crate) fn begin_lookup(&self, name: &str) {
        let dylib = self.clone();
        let query = Query::with_callback(RequiredState::Ready, move |outcome: Result<LookupResults>| {
            outcome.err().into_iter().for_each(|error| dylib.report_error(error));
        });
        let (session, order) = (&self.inner().session, [(self.clone(), Visibility::All)]);
        begin::start(session, &order[..], &[SymbolRequest::required(name)], Origin::of_embedder(session), query);
    }

    /// Passes an error to the session's error reporter. For owners that hold no session handle.
    pub(crate) fn report_error(&self, error: Error) {
        self.inner().session.error_reporter.report(error);
    }

    /// As [`find_address`](Self::find_address), with the definition.
    pub(crate) fn find_from(&self, name: &str) -> Result<LookupResult> {
        find_from(self, name, |found, dylib| found.result(dylib), |found| found)
    }
}

/// Looks up `requests` and waits for them. Runs the tasks of this thread meanwhile.
pub(crate) fn wait(
    session: &Arc<SessionInner>,
    order: &[(JitDylib, Visibility)],
    requests: &[SymbolRequest<'_>],
    required: RequiredState,
) -> Result<LookupResults> {
    if let Some(found) = ready_lookup::try_lookup_results(order, requests, required) {
        return Ok(found.into_vec());
    }
    let query = Query::blocking(required);
    wait_for(session, &query, || start(session, order, requests, Origin::of_embedder(session), query.clone()))
        .map(SmallVec::into_vec)
}

/// Waits for a query that `begin` starts.
fn wait_for(session: &SessionInner, query: &Arc<Query>, begin: impl FnOnce()) -> Result<Results> {
    let older = queued_count::<Materialization>();
    begin();
    session.dispatcher.wait(&**query, older)
}

/// Looks one name up and waits for its address.
pub(crate) fn address(
    session: &Arc<SessionInner>,
    order: &[(JitDylib, Visibility)],
    name: &str,
) -> Result<ExecutorAddr> {
    let tried = ready_lookup::try_find(ready_lookup::walk(order), name, SymbolState::Ready, |found, _| found.address);
    address_from(session, tried, name, |requests, query| {
        start(session, order, requests, Origin::of_embedder(session), query);
    })
}

/// As [`address`], for a symbol of this dylib.
pub(crate) fn address_in(dylib: &JitDylib, name: &str) -> Result<ExecutorAddr> {
    // Writes no reference count if the symbol is ready, so lookups on several threads do not contend for a cache line.
    let order = [(dylib.inner(), Visibility::All)];
    let (session, tried) =
        (&dylib.inner().session, ready_lookup::try_find(order, name, SymbolState::Ready, |found, _| found.address));
    address_from(session, tried, name, |requests, query| {
        start(session, &[(dylib.clone(), Visibility::All)][..], requests, Origin::of_embedder(session), query);
    })
}

/// Looks one name up in `own` and its link order, and waits until it is ready. `make_result` makes the result of a ready symbol
/// in place, `of_result` that of another one.
#[inline]
pub(crate) fn find_from<R>(
    own: &JitDylib,
    name: &str,
    make_result: impl Fn(&Found<'_>, &Arc<DylibInner>) -> R,
    of_result: impl FnOnce(LookupResult) -> R,
) -> Result<R> {
    match ready_lookup::try_find_from(own.inner(), name, make_result) {
        FindFrom::Found(found) => Ok(found),
        FindFrom::Missing => Err(not_found(&Searched::from_dylib(own), vec![name.to_string()], None)),
        FindFrom::Unknown => {
            let (session, query) = (&own.inner().session, Query::blocking(RequiredState::Ready));
            let requests = [SymbolRequest::required(name)];
            let found = wait_for(session, &query, || {
                start(session, Searched::from_dylib(own), &requests, Origin::of_embedder(session), query.clone());
            });
            found?.pop().map(of_result).ok_or_else(|| Error::other("a lookup lost its only result"))
        }
    }
}

/// The address that was found, or else the result of a query. `search` starts the query if the symbol was not found.
#[inline]
fn address_from(
    session: &Arc<SessionInner>,
    tried: TryFind<'_, ExecutorAddr>,
    name: &str,
    search: impl FnOnce(&[SymbolRequest<'_>; 1], Arc<Query>),
) -> Result<ExecutorAddr> {
    if let TryFind::Found(address) = tried {
        return Ok(address);
    }
    let (requests, query) = ([SymbolRequest::required(name)], Query::blocking_for_address(RequiredState::Ready));
    let found = wait_for(session, &query, || match tried {
        TryFind::Pending { dylib, visibility, id } => attach_one(dylib, visibility, id, &requests[0], query.clone()),
        TryFind::Found(_) | TryFind::Unknown => search(&requests, query.clone()),
    });
    Ok(found?[0].address)
}

/// Step 1 of a lookup alone: the flags of the symbols that it finds.
pub(crate) fn flags(
    order: &[(JitDylib, Visibility)],
    requests: &[SymbolRequest<'_>],
) -> Result<Vec<Option<SymbolFlags>>> {
    let mut search = Search::new(order, requests, FailureNumber::LATEST);
    // Waiting for a generator that suspends would need a query, and so materialise. What it would add is not found.
    search.run_without_suspending()?;
    let (_, _, matches) = search.into_required_matches(None)?;
    Ok(flags_of(order, requests.len(), matches))
}

/// As [`flags`], but a required name that was not found is `None` instead of an error.
pub(crate) fn flags_if_found(
    order: &[(JitDylib, Visibility)],
    requests: &[SymbolRequest<'_>],
) -> Result<Vec<Option<SymbolFlags>>> {
    let mut search = Search::new(order, requests, FailureNumber::LATEST);
    search.run_without_suspending()?;
    Ok(flags_of(order, requests.len(), search.into_matches()))
}

/// The flags of `matches`, by request.
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
