//! [`Search`]: step 1 of a lookup. It finds a definition for each name, and a generator may suspend it.
//!
//! A search walks the dylibs of its order. In each dylib it matches the missing names, and then calls the generators
//! with the names that the dylib does not define. In a long link order it passes over the dylibs that do not matter for the
//! missing names (`long_order.rs`).
//!
//! If a generator captures the lookup, the search is parked with copies of its names ([`OwnedSearch`]), until the
//! generator resumes it. A search that comes to a generator with a captured lookup waits in the generator's queue.
//! Queued searches resume one by one, even those that need no definition from the generator any more.

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::base::count_step;
use crate::error::Result;
use crate::session::core::generator::{GeneratorEntry, ParkedLookup, SuspendedSlot, Suspension};
use crate::session::core::jit_dylib::JitDylib;
use crate::session::lookup::long_order;
use crate::session::lookup::not_found::not_found;
use crate::session::lookup::searched::Searched;
use crate::session::types::failure_count::FailureNumber;
use crate::session::types::request::{SymbolRequest, Visibility};
use crate::session::types::symbol::SymbolId;
use crate::sync::Arc;

/// A walk through dylibs and their generators.
pub(crate) struct Search<'a> {
    order: Searched<'a>,
    requests: SmallVec<[SymbolRequest<'a>; 2]>,
    matches: SmallVec<[Match; 2]>,
    /// The requests without a match.
    missing: SmallVec<[usize; 2]>,
    /// The current position in the order.
    dylib: usize,
    /// The generators of the current dylib with lower serials have been called. `None` until the names were matched
    /// there.
    next_serial: Option<u64>,
    /// Whether the search goes through all dylibs of a long link order.
    visits_all: bool,
    /// Definitions that have failed since then have failed for this search.
    since: FailureNumber,
}

/// A request and the definition that was found for it.
#[derive(Clone, Copy)]
pub(crate) struct Match {
    pub(crate) request: usize,
    pub(crate) dylib: usize,
    pub(crate) id: SymbolId,
}

/// A suspended search, with copies of its names.
pub(crate) struct OwnedSearch {
    order: Searched<'static>,
    names: Vec<(String, bool)>,
    matches: SmallVec<[Match; 2]>,
    missing: SmallVec<[usize; 2]>,
    dylib: usize,
    next_serial: Option<u64>,
    since: FailureNumber,
}

/// How far a search came.
pub(crate) enum Progress {
    /// To its end.
    Found,
    /// To a generator where it has to wait.
    Suspended(SuspensionPoint),
}

/// Where a suspended search is parked.
pub(crate) enum SuspensionPoint {
    /// The generator has captured it.
    Captured(Arc<SuspendedSlot>),
    /// The generator has captured another lookup.
    Queued(Arc<GeneratorEntry>),
}

impl<'a> Search<'a> {
    pub(in crate::session) fn new(
        order: impl Into<Searched<'a>>,
        requests: &[SymbolRequest<'a>],
        since: FailureNumber,
    ) -> Search<'a> {
        Search {
            order: order.into(),
            requests: SmallVec::from_slice(requests),
            matches: SmallVec::with_capacity(requests.len()),
            missing: (0..requests.len()).collect(),
            dylib: 0,
            next_serial: None,
            visits_all: false,
            since,
        }
    }

    /// Runs until every name is found, the order is at its end, or a generator suspends the search.
    pub(crate) fn run(&mut self) -> Result<Progress> {
        self.walk(true)
    }

    /// As [`run`](Self::run), but no generator can suspend the search. What a generator would add later is not found.
    pub(crate) fn run_without_suspending(&mut self) -> Result<()> {
        self.walk(false).map(drop)
    }

    fn walk(&mut self, may_suspend: bool) -> Result<Progress> {
        while self.dylib < self.order.len() && !self.missing.is_empty() {
            if self.next_serial.is_none() {
                self.pass_over();
                self.match_names()?;
                self.next_serial = Some(0);
            }
            while let Some((entry, undefined)) = self.next_generator()? {
                if let Some(point) = self.call_generator(&entry, &undefined, may_suspend)? {
                    return Ok(Progress::Suspended(point));
                }
            }
            self.dylib += 1;
            self.next_serial = None;
        }
        Ok(Progress::Found)
    }

    /// Passes over dylibs of a long link order that do not matter for the missing names.
    fn pass_over(&mut self) {
        let Searched::From(own, others) = &self.order else { return };
        if self.dylib == 0 || self.visits_all || !long_order::is_long(others) {
            return;
        }
        let names = self.missing.iter().map(|request| self.requests[*request].name);
        match long_order::next_position(own.inner(), others, names, self.dylib) {
            Some(next) => self.dylib = next,
            None => self.visits_all = true,
        }
    }

    /// Matches the missing names in the current dylib.
    pub(crate) fn match_names(&mut self) -> Result<()> {
        let Some((dylib, visibility)) = self.order.get(self.dylib) else { return Ok(()) };
        let (position, matches) = (self.dylib, &mut self.matches);
        count_step();
        let found = dylib.find(&self.requests, &mut self.missing, visibility, |request, id| {
            matches.push(Match { request, dylib: position, id });
        });
        match &self.order {
            // A closed dylib is no longer part of the link order.
            Searched::From(own, _) if found.is_err() && position > 0 => {
                own.inner().clear_link_cache();
                Ok(())
            }
            _ => found,
        }
    }

    /// The current dylib.
    fn current(&self) -> Option<&JitDylib> {
        self.order.get(self.dylib).map(|(dylib, _)| dylib)
    }

    /// The next generator of the current dylib, and the names that it should define. `None` if no name is missing from
    /// the dylib, or no generator is left.
    #[allow(clippy::type_complexity)]
    fn next_generator(&mut self) -> Result<Option<(Arc<GeneratorEntry>, Vec<SymbolRequest<'a>>)>> {
        let next = self.next_serial.and_then(|serial| self.current()?.generator_from(serial));
        let Some(entry) = next else { return Ok(None) };
        let (undefined, are_all_undefined) = self.undefined_names()?;
        if !are_all_undefined {
            // A missing name that the dylib defines is hidden, or another thread has defined it since the last match.
            // The search does not come back to this dylib, so match again.
            self.match_names()?;
        }
        Ok((!undefined.is_empty()).then_some((entry, undefined)))
    }

    /// The missing names that the current dylib does not define, and whether these are all missing names. Each name
    /// comes once, and is required if any request requires it. A name that the dylib defines and hides is missing from
    /// this search, but not from the dylib.
    ///
    /// # Errors
    /// A required name whose definition has failed for this search: see `types/failure_count.rs`.
    fn undefined_names(&self) -> Result<(Vec<SymbolRequest<'a>>, bool)> {
        let dylib = self.current();
        let mut undefined: Vec<SymbolRequest<'a>> = Vec::new();
        let mut position_of = FxHashMap::default();
        let mut are_all_undefined = true;
        for request in self.missing.iter().map(|request| self.requests[*request]) {
            match position_of.entry(request.name) {
                Entry::Occupied(position) => {
                    let already: &mut SymbolRequest<'a> = &mut undefined[*position.get()];
                    already.required |= request.required;
                }
                Entry::Vacant(position) => {
                    let standing = dylib.map_or(Standing::Undefined, |dylib| dylib.standing(request.name, self.since));
                    match standing {
                        Standing::Failed if request.required => {
                            return Err(not_found(&self.order, vec![request.name.to_string()], None));
                        }
                        Standing::Undefined | Standing::Failed => {
                            position.insert(undefined.len());
                            undefined.push(request);
                        }
                        Standing::Defined => are_all_undefined = false,
                    }
                }
            }
        }
        Ok((undefined, are_all_undefined))
    }

    /// Calls one generator. Returns the point at which the search has to be parked, if it has to.
    fn call_generator(
        &mut self,
        entry: &Arc<GeneratorEntry>,
        undefined: &[SymbolRequest<'a>],
        may_suspend: bool,
    ) -> Result<Option<SuspensionPoint>> {
        if may_suspend && entry.is_captured() {
            return Ok(Some(SuspensionPoint::Queued(entry.clone())));
        }
        let Some(dylib) = self.current().cloned() else { return Ok(None) };
        let suspension = Suspension::new(entry.clone(), &dylib, may_suspend);
        let outcome = entry.generator.generate_or_suspend(&dylib, undefined, &suspension);
        self.next_serial = Some(entry.serial + 1);
        if let Some(slot) = suspension.into_captured() {
            // The generator has captured the lookup and returned an error. The lookup is parked all the same, and fails
            // when it resumes: that way the queued lookups are released.
            if outcome.is_err() {
                slot.override_outcome(outcome);
            }
            return Ok(Some(SuspensionPoint::Captured(slot)));
        }
        outcome?;
        self.match_names()?;
        Ok(None)
    }

    /// The name of the dylib at which the search is, for errors.
    pub(crate) fn dylib_name(&self) -> &str {
        self.current().map_or("", JitDylib::name)
    }

    /// Ends the search with what was found.
    pub(crate) fn into_matches(self) -> SmallVec<[Match; 2]> {
        self.matches
    }

    /// Ends the search with what was found, or with the error that names every required name that was not found.
    #[allow(clippy::type_complexity)]
    pub(crate) fn into_required_matches(
        self,
        needed_by: Option<&str>,
    ) -> Result<(Searched<'a>, SmallVec<[SymbolRequest<'a>; 2]>, SmallVec<[Match; 2]>)> {
        let missing = self.missing.iter().map(|request| &self.requests[*request]);
        let absent: Vec<String> = missing.filter(|request| request.required).map(|r| r.name.to_string()).collect();
        if absent.is_empty() {
            return Ok((self.order, self.requests, self.matches));
        }
        Err(not_found(&self.order, absent, needed_by))
    }

    pub(crate) fn into_owned(self) -> OwnedSearch {
        OwnedSearch {
            order: self.order.into_owned(),
            names: self.requests.iter().map(|request| (request.name.to_string(), request.required)).collect(),
            matches: self.matches,
            missing: self.missing,
            dylib: self.dylib,
            next_serial: self.next_serial,
            since: self.since,
        }
    }
}

/// What a dylib knows of a name.
enum Standing {
    Defined,
    Undefined,
    /// Undefined, because its definition has failed for this search.
    Failed,
}

impl JitDylib {
    fn standing(&self, name: &str, since: FailureNumber) -> Standing {
        let state = self.inner().state.lock();
        match state.table.find(name) {
            Some(_) => Standing::Defined,
            None if state.table.has_failed_since(since, name) => Standing::Failed,
            None => Standing::Undefined,
        }
    }

    /// Matches the requests whose positions are in `missing`, and removes the matched ones from `missing`.
    pub(crate) fn find(
        &self,
        requests: &[SymbolRequest<'_>],
        missing: &mut SmallVec<[usize; 2]>,
        visibility: Visibility,
        mut matched: impl FnMut(usize, SymbolId),
    ) -> Result<()> {
        let state = self.inner().state.lock();
        if !state.open {
            return Err(self.inner().defunct());
        }
        missing.retain(|request| {
            let visible = state.find_visible(requests[*request].name, visibility);
            visible.inspect(|id| matched(*request, *id)).is_none()
        });
        Ok(())
    }
}

impl OwnedSearch {
    /// The search, to be continued.
    pub(crate) fn resume(&mut self) -> Search<'_> {
        Search {
            order: self.order.borrowed(),
            requests: self.names.iter().map(|(name, required)| SymbolRequest { name, required: *required }).collect(),
            matches: std::mem::take(&mut self.matches),
            missing: std::mem::take(&mut self.missing),
            dylib: self.dylib,
            next_serial: self.next_serial,
            visits_all: false,
            since: self.since,
        }
    }

    /// The name of the dylib at which the search was suspended, for errors.
    pub(crate) fn dylib_name(&self) -> String {
        self.order.get(self.dylib).map(|(dylib, _)| dylib.name().to_string()).unwrap_or_default()
    }
}

impl SuspensionPoint {
    pub(crate) fn park(self, search: Box<dyn ParkedLookup>) {
        match self {
            SuspensionPoint::Captured(slot) => slot.park(search),
            SuspensionPoint::Queued(entry) => entry.enqueue(search),
        }
    }
}
