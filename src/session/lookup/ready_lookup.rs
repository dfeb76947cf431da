//! Lookups without waiting: all names are found at once, or the lookup gives no answer. Each symbol must be *far enough
//! along*: in the required state or beyond.
//!
//! These lookups call no generator and create no query. If one gives no answer, its caller starts a full lookup
//! (`begin.rs`).
//!
//! Every link looks up its external symbols this way, on many threads. Most links look up the same few names in the same
//! dylibs. So the result, [`ReadyLookup`], refers to one shared list of the dylibs that were searched, and holds no
//! reference count for each symbol. Threads that link at the same time then write few common cache lines.

use smallvec::{SmallVec, smallvec};

use crate::base::{ExecutorAddr, Name, RecycledVec, count_step, impl_recycle, sort_by_number};
use crate::session::core::jit_dylib::{DylibInner, DylibState, JitDylib, LinkCache};
use crate::session::core::symbol_ref::{DependencyRef, LookupResult, LookupResults, NameOf, SymbolRef};
use crate::session::lookup::{long_order, ready_alias};
use crate::session::symbols::ready_index::entry::ReadySymbol;
use crate::session::symbols::symbol_table::{Found, found_symbol};
use crate::session::types::name_hash::NameHash;
use crate::session::types::request::{RequiredState, SymbolRequest, Visibility, state_of};
use crate::session::types::symbol::{SymbolFlags, SymbolId, SymbolState};
use crate::sync::{Arc, seeded_bug};

/// The results of a link's lookup, in the order of its names.
pub(crate) struct ReadyLookup {
    /// The dylibs after the link's own, if one of them was searched.
    link_cache: Option<LinkCache>,
    pub(crate) symbols: RecycledVec<FoundSymbol>,
}

impl_recycle!(FoundSymbol);

/// One result.
#[derive(Clone, Copy)]
pub(crate) struct FoundSymbol {
    pub(crate) address: ExecutorAddr,
    pub(crate) flags: SymbolFlags,
    /// The definition: the position of its dylib in the link's search order, where 0 is the link's own dylib, and its
    /// entry there. `None` for an absolute symbol: no removal can reclaim it.
    definition: Option<(u32, SymbolId)>,
}

impl FoundSymbol {
    const MISSING: FoundSymbol =
        FoundSymbol { address: ExecutorAddr::NULL, flags: SymbolFlags::NONE, definition: None };

    /// Whether the definition is in the link's own dylib. False for an absolute symbol.
    pub(crate) fn is_of_own_dylib(&self) -> bool {
        matches!(self.definition, Some((0, _)))
    }
}

impl ReadyLookup {
    /// Appends the definitions to `dependencies`, grouped by dylib. `own` is the link's dylib.
    pub(crate) fn dependencies<'a>(
        &'a self,
        own: &'a Arc<DylibInner>,
        name_of: &'a NameOf<'a>,
        dependencies: &mut SmallVec<[DependencyRef<'a>; 8]>,
    ) {
        let mut is_sorted = true;
        for (position, symbol) in self.symbols.iter().enumerate() {
            if let Some((dylib_index, id)) = symbol.definition {
                is_sorted &= dependencies.last().is_none_or(|last: &DependencyRef<'_>| last.dylib_index <= dylib_index);
                let name_position = position as u32;
                dependencies.push(DependencyRef::by_position(
                    self.dylib(own, dylib_index),
                    id,
                    name_of,
                    name_position,
                    dylib_index,
                ));
            }
        }
        if !is_sorted {
            sort_by_number(dependencies, |dependency: &DependencyRef<'_>| dependency.dylib_index.into());
        }
    }
}

impl ReadyLookup {
    /// The results of a lookup of `requests` from `own`.
    pub(crate) fn results(&self, own: &Arc<DylibInner>, requests: &[SymbolRequest<'_>]) -> LookupResults {
        let results = self.symbols.iter().zip(requests).map(|(symbol, request)| {
            let reference = |(dylib, id): (u32, SymbolId)| SymbolRef {
                dylib: self.dylib(own, dylib).clone(),
                id,
                name: Name::new(request.name),
            };
            let FoundSymbol { address, flags, definition } = *symbol;
            LookupResult { address, flags, symbol: definition.map(reference) }
        });
        results.collect()
    }

    /// The dylib at a position of the search order of `own`.
    fn dylib<'a>(&'a self, own: &'a Arc<DylibInner>, position: u32) -> &'a Arc<DylibInner> {
        match (&self.link_cache, position) {
            (Some(others), 1..) => others[position as usize - 1].0.inner(),
            _ => own,
        }
    }
}

/// What a link into `own` finds for `names`. `None` unless every name is found, in the required state or beyond.
pub(crate) fn try_lookup(own: &Arc<DylibInner>, names: &[&[u8]], required: RequiredState) -> Option<ReadyLookup> {
    if names.len() > MAX_NAMES {
        return None;
    }
    let mut symbols = RecycledVec::repeat(FoundSymbol::MISSING, names.len());
    let mut search = TrySearch::new(names, required, &mut symbols, |dylib, _, found| {
        let is_absolute = found.flags.contains(SymbolFlags::ABSOLUTE);
        let definition = (!is_absolute).then_some((dylib as u32, found.id));
        FoundSymbol { address: found.address, flags: found.flags, definition }
    });
    search.search_index(0, own, Visibility::All);
    let mut link_cache = None;
    if !search.is_done() {
        link_cache = search.search_cached_order(own)?;
    }
    if !search.is_done() {
        let mut state = own.state.lock();
        search.search_table(0, own, Visibility::All, &mut state)?;
        if !search.is_done() {
            let others = state.link_cache(own);
            drop(state);
            search.search_others(own, &others)?;
            // Names that were found in another list have positions of that list.
            link_cache.is_none_or(|cached| Arc::ptr_eq(&cached, &others)).then_some(())?;
            link_cache = Some(others);
        }
    }
    search.is_done().then_some(())?;
    Some(ReadyLookup { symbols, link_cache })
}

/// The results of a lookup in `order`. `None` unless every name is found, in the required state or beyond.
pub(crate) fn try_lookup_results(
    order: &[(JitDylib, Visibility)],
    requests: &[SymbolRequest<'_>],
    required: RequiredState,
) -> Option<SmallVec<[LookupResult; 8]>> {
    if requests.len() > MAX_NAMES {
        return None;
    }
    if let [request] = requests {
        let found = try_find(walk(order), request.name, state_of(required), |found, dylib| found.result(dylib));
        return if let TryFind::Found(found) = found { Some(smallvec![found]) } else { None };
    }
    let names: SmallVec<[&[u8]; 8]> = requests.iter().map(|request| request.name.as_bytes()).collect();
    let mut results = smallvec![LookupResult::MISSING; requests.len()];
    let mut search = TrySearch::new(&names, required, &mut results, |_, dylib, found| found.result(dylib));
    for (dylib, visibility) in walk(order) {
        search.search_dylib(0, dylib, visibility)?;
    }
    search.is_done().then_some(results)
}

/// A search of dylibs that waits for nothing.
struct TrySearch<'a, R, F> {
    names: &'a [&'a [u8]],
    hashes: SmallVec<[NameHash; 16]>,
    required: SymbolState,
    results: &'a mut [R],
    missing: Missing,
    /// Makes a result. Its arguments are the position of the dylib in the search order, the dylib, and the symbol.
    make_result: F,
}

/// The names that have no result yet: one bit for each of up to [`MAX_NAMES`].
#[derive(Clone, Copy)]
struct Missing(u32);

impl Missing {
    fn all(names: usize) -> Missing {
        Missing(((1_u64 << names) - 1) as u32)
    }

    fn only(index: usize) -> Missing {
        Missing(1 << index)
    }

    fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn add(&mut self, index: usize) {
        self.0 |= 1 << index;
    }

    fn add_all(&mut self, others: Missing) {
        self.0 |= others.0;
    }

    /// Keeps `names`, which are some of these. Returns the others.
    fn replace_by(&mut self, names: Missing) -> Missing {
        let others = Missing(self.0 & !names.0);
        *self = names;
        others
    }

    fn for_each(mut self, mut body: impl FnMut(usize)) {
        self.retain(|index| {
            body(index);
            true
        });
    }

    /// Keeps the names for which `is_missing` returns true.
    #[inline(always)]
    fn retain(&mut self, mut is_missing: impl FnMut(usize) -> bool) {
        let mut unvisited = self.0;
        while unvisited != 0 {
            let index = unvisited.trailing_zeros();
            unvisited &= unvisited - 1;
            if !is_missing(index as usize) {
                self.0 &= !(1 << index);
            }
        }
    }
}

impl<'a, R, F: Fn(usize, &Arc<DylibInner>, &Found<'_>) -> R> TrySearch<'a, R, F> {
    /// `results` has one place for each of `names`, which are up to [`MAX_NAMES`].
    #[inline(always)]
    fn new(
        names: &'a [&'a [u8]],
        required: RequiredState,
        results: &'a mut [R],
        make_result: F,
    ) -> TrySearch<'a, R, F> {
        let hashes = names.iter().map(|name| NameHash::of_bytes(name)).collect();
        let missing = Missing::all(names.len());
        TrySearch { names, hashes, required: state_of(required), results, missing, make_result }
    }

    fn is_done(&self) -> bool {
        self.missing.is_empty()
    }

    /// Searches the dylibs of the link order of `own`. `None` as for [`search_dylib`](Self::search_dylib).
    fn search_others(&mut self, own: &Arc<DylibInner>, others: &LinkCache) -> Option<()> {
        if long_order::is_long(others) {
            let mut unknown: SmallVec<[(&str, NameHash); 8]> = SmallVec::new();
            self.missing.for_each(|index| {
                let name = std::str::from_utf8(self.names[index]).ok();
                unknown.extend(name.map(|name| (name, self.hashes[index])));
            });
            long_order::fill(own, unknown.into_iter());
            let cached = self.search_cached_order(own)?;
            return cached.is_some_and(|cached| Arc::ptr_eq(&cached, others)).then_some(());
        }
        for (position, (dylib, visibility)) in (1..).zip(others.iter()) {
            if self.search_dylib(position, dylib.inner(), *visibility).is_none() {
                own.clear_link_cache_if_closed(dylib.inner());
                return None;
            }
        }
        Some(())
    }

    /// Searches the dylibs that define the missing names according to the cached link order of `own`. Returns the dylibs of
    /// that order if one was searched. `None` as for [`search_dylib`](Self::search_dylib).
    fn search_cached_order(&mut self, own: &Arc<DylibInner>) -> Option<Option<LinkCache>> {
        let (mut first, mut is_answered): (SmallVec<[(u32, Missing); 4]>, _) = (SmallVec::new(), true);
        let others = own.order.read(&own.session.names, |order| {
            let others = order.others()?;
            let last = order.generator_from(0).unwrap_or(u32::MAX).min(others.len() as u32);
            self.missing.for_each(|index| {
                let position = order.first(&own.session.names, self.names[index], self.hashes[index]);
                let Some(position) = position else { return };
                // No dylib defines the name, or an earlier generator may define it.
                is_answered &= position <= last;
                match first.iter_mut().find(|(other, _)| *other == position) {
                    Some((_, names)) => names.add(index),
                    None => first.push((position, Missing::only(index))),
                }
            });
            (!first.is_empty()).then(|| others.clone())
        });
        is_answered.then_some(())?;
        let Some(others) = others else { return Some(None) };
        for (position, names) in first {
            let (dylib, visibility) = &others[position as usize - 1];
            let rest = self.missing.replace_by(names);
            let searched = self.search_dylib(position as usize, dylib.inner(), *visibility);
            self.missing.add_all(rest);
            if searched.is_none() {
                own.clear_link_cache_if_closed(dylib.inner());
                return None;
            }
        }
        Some(Some(others))
    }

    /// Searches one dylib for the missing names. `None` when a name is found but not far enough along, when a generator
    /// may define one, or when the dylib is closed.
    fn search_dylib(&mut self, position: usize, dylib: &Arc<DylibInner>, visibility: Visibility) -> Option<()> {
        if self.is_done() || self.search_index(position, dylib, visibility) {
            return Some(());
        }
        let mut state = dylib.state.lock();
        self.search_table(position, dylib, visibility, &mut state)?;
        // A link searches the same few names in this dylib each time, because their definitions are in later dylibs.
        self.missing.for_each(|index| {
            let name = String::from_utf8_lossy(self.names[index]);
            state.table.note_absent(&name, self.hashes[index]);
        });
        Some(())
    }

    /// Searches the index of ready symbols. Returns whether the index has an entry for every missing name. An entry
    /// says that the name is defined here, or that it is absent.
    fn search_index(&mut self, position: usize, dylib: &Arc<DylibInner>, visibility: Visibility) -> bool {
        let TrySearch { names, hashes, results, missing, make_result, .. } = self;
        let mut is_answered = true;
        let was_read = dylib.ready.read(|entries| {
            missing.retain(|index| {
                let Some((name, symbol)) = entries.find(names[index], hashes[index]) else {
                    is_answered = false;
                    return true;
                };
                let ReadySymbol { address, flags, id } = symbol;
                let is_visible = visibility.sees(flags) && !symbol.is_absent();
                if is_visible {
                    let found = Found { address, flags, id, name: name.borrowed() };
                    results[index] = make_result(position, dylib, &found);
                }
                !is_visible
            });
        });
        is_answered && was_read.is_some()
    }

    /// Searches the symbol table, under the dylib's lock. `None` as for [`search_dylib`](Self::search_dylib).
    fn search_table(
        &mut self,
        position: usize,
        dylib: &Arc<DylibInner>,
        visibility: Visibility,
        state: &mut DylibState,
    ) -> Option<()> {
        if !state.is_open() {
            return None;
        }
        let TrySearch { names, hashes, required, results, missing, make_result } = self;
        let mut is_far_enough = true;
        missing.retain(|index| {
            let found = state.find_visible_hashed(names[index], hashes[index], visibility);
            let Some((id, symbol)) = found else { return true };
            if symbol.state < *required {
                is_far_enough = false;
                return true;
            }
            let is_ready = symbol.state == SymbolState::Ready;
            results[index] = make_result(position, dylib, &found_symbol(&state.table, id, symbol));
            if is_ready {
                state.table.note_ready_lookup(id);
            }
            false
        });
        // A generator of this dylib may define a missing name. It comes before the later dylibs, and is not called
        // here.
        let may_be_generated = !missing.is_empty() && state.has_generators();
        (is_far_enough && !may_be_generated).then_some(())
    }
}

/// The result of looking for one name without waiting.
pub(crate) enum TryFind<'a, R> {
    Found(R),
    /// The name is defined, but its symbol is not far enough along.
    Pending {
        dylib: &'a Arc<DylibInner>,
        visibility: Visibility,
        id: SymbolId,
    },
    /// No definition was found, but no generator was called.
    Unknown,
}

/// Looks for one name without waiting. `make_result` makes the result from the symbol, in place.
#[inline]
pub(crate) fn try_find<'a, R>(
    order: impl IntoIterator<Item = (&'a Arc<DylibInner>, Visibility)>,
    name: &str,
    required: SymbolState,
    make_result: impl Fn(&Found<'_>, &Arc<DylibInner>) -> R,
) -> TryFind<'a, R> {
    let hash = NameHash::of(name);
    for (dylib, visibility) in order {
        match find_in(dylib, visibility, name, hash, required, &make_result) {
            FindIn::Found(found) => return TryFind::Found(found),
            FindIn::Absent => continue,
            FindIn::Pending(id) => return TryFind::Pending { dylib, visibility, id },
            FindIn::Unknown => return TryFind::Unknown,
        }
    }
    TryFind::Unknown
}

/// The result of looking for one name in one dylib.
enum FindIn<R> {
    Found(R),
    Pending(SymbolId),
    /// The dylib does not define it, and has no generator.
    Absent,
    /// A generator may define it, or the dylib is closed.
    Unknown,
}

/// Looks for one name in the index of a dylib. `None` if the index has no entry, `Some(None)` if its entry is not visible.
#[inline(always)]
fn find_indexed<R>(
    dylib: &Arc<DylibInner>,
    visibility: Visibility,
    name: &str,
    hash: NameHash,
    make_result: &impl Fn(&Found<'_>, &Arc<DylibInner>) -> R,
) -> Option<Option<R>> {
    dylib.ready.find(name, hash, |name, symbol| {
        let ReadySymbol { address, flags, id } = symbol;
        let is_visible = visibility.sees(flags) && !symbol.is_absent();
        is_visible.then(|| make_result(&Found { address, flags, id, name: name.borrowed() }, dylib))
    })
}

#[inline(always)]
fn find_in<R>(
    dylib: &Arc<DylibInner>,
    visibility: Visibility,
    name: &str,
    hash: NameHash,
    required: SymbolState,
    make_result: &impl Fn(&Found<'_>, &Arc<DylibInner>) -> R,
) -> FindIn<R> {
    count_step();
    match find_indexed(dylib, visibility, name, hash, make_result) {
        Some(Some(found)) => return FindIn::Found(found),
        Some(None) => return FindIn::Absent,
        None => {}
    }
    let mut state = dylib.state.lock();
    if !state.is_open() {
        return FindIn::Unknown;
    }
    let Some((id, symbol)) = state.find_visible_hashed(name.as_bytes(), hash, visibility) else {
        // A generator of this dylib may define the name. It comes before the later dylibs, and is not called here.
        return if state.has_generators() { FindIn::Unknown } else { FindIn::Absent };
    };
    if symbol.state < required {
        let is_ready = ready_alias::make_ready(&mut state, dylib, id).is_some();
        let Some(symbol) = state.table.symbol(id).filter(|_| is_ready) else { return FindIn::Pending(id) };
        return FindIn::Found(make_result(&found_symbol(&state.table, id, symbol), dylib));
    }
    let found = make_result(&found_symbol(&state.table, id, symbol), dylib);
    if symbol.state == SymbolState::Ready {
        // Seeded bug: inserts into the index without the dylib's lock, so a removal in between misses the entry.
        let late = seeded_bug!("indexed_without_the_dylib_lock").then(|| {
            let ready = ReadySymbol { address: symbol.address(), flags: symbol.flags, id };
            (state.table.name(symbol).to_name(), ready)
        });
        state.table.note_ready_lookup(id);
        if let Some((name, ready)) = late {
            drop(state);
            dylib.ready.insert(name, ready, None);
        }
    }
    FindIn::Found(found)
}

/// The result of looking for one name in the search order of a dylib.
pub(crate) enum FindFrom<R> {
    Found(R),
    /// No dylib of the order defines the name, and none has a generator.
    Missing,
    /// The symbol is not ready, or a generator may define it, or a dylib is closed.
    Unknown,
}

/// Looks for one name, without waiting, in `own` and then in its link order. `make_result` makes the result in place.
#[inline]
pub(crate) fn try_find_from<R>(
    own: &Arc<DylibInner>,
    name: &str,
    make_result: impl Fn(&Found<'_>, &Arc<DylibInner>) -> R,
) -> FindFrom<R> {
    let hash = NameHash::of(name);
    if let Some(Some(found)) = find_indexed(own, Visibility::All, name, hash, &make_result) {
        return FindFrom::Found(found);
    }
    match find_cached(own, name, hash, &make_result) {
        Some(outcome) => outcome,
        None => find_uncached(own, name, hash, &make_result),
    }
}

/// Looks for a name in the dylib that defines it according to the cached link order of `own`. `None` if the cache does not
/// know, or the dylib does not define the name any more.
fn find_cached<R>(
    own: &Arc<DylibInner>,
    name: &str,
    hash: NameHash,
    make_result: &impl Fn(&Found<'_>, &Arc<DylibInner>) -> R,
) -> Option<FindFrom<R>> {
    let (dylib, visibility) = match own.order.read(&own.session.names, |order| {
        let (position, others) = (order.first(&own.session.names, name.as_bytes(), hash)?, order.others()?);
        // An earlier generator may define the name.
        if order.generator_from(0).is_some_and(|generator| generator < position) {
            return Some(Err(FindFrom::Unknown));
        }
        let Some((dylib, visibility)) = others.get(position as usize - 1) else { return Some(Err(FindFrom::Missing)) };
        match find_indexed(dylib.inner(), *visibility, name, hash, make_result) {
            Some(Some(found)) => Some(Err(FindFrom::Found(found))),
            _ => Some(Ok((dylib.clone(), *visibility))),
        }
    })? {
        Ok(place) => place,
        Err(outcome) => return Some(outcome),
    };
    match find_in(dylib.inner(), visibility, name, hash, SymbolState::Ready, make_result) {
        FindIn::Found(found) => Some(FindFrom::Found(found)),
        FindIn::Pending(_) => Some(FindFrom::Unknown),
        FindIn::Absent => None,
        FindIn::Unknown => {
            own.clear_link_cache_if_closed(dylib.inner());
            None
        }
    }
}

/// Looks for a name in `own`, then in each dylib of its link order. If the order is long, stores the outcome in its cache.
#[cold]
fn find_uncached<R>(
    own: &Arc<DylibInner>,
    name: &str,
    hash: NameHash,
    make_result: &impl Fn(&Found<'_>, &Arc<DylibInner>) -> R,
) -> FindFrom<R> {
    match find_in(own, Visibility::All, name, hash, SymbolState::Ready, make_result) {
        FindIn::Found(found) => return FindFrom::Found(found),
        FindIn::Absent => {}
        FindIn::Pending(_) | FindIn::Unknown => return FindFrom::Unknown,
    }
    let others = own.state.lock().link_cache(own);
    if long_order::is_long(&others) {
        long_order::fill(own, std::iter::once((name, hash)));
        return find_cached(own, name, hash, make_result).unwrap_or(FindFrom::Unknown);
    }
    for (dylib, visibility) in others.iter() {
        match find_in(dylib.inner(), *visibility, name, hash, SymbolState::Ready, make_result) {
            FindIn::Found(found) => return FindFrom::Found(found),
            FindIn::Absent => {}
            FindIn::Pending(_) => return FindFrom::Unknown,
            FindIn::Unknown => {
                own.clear_link_cache_if_closed(dylib.inner());
                return FindFrom::Unknown;
            }
        }
    }
    FindFrom::Missing
}

/// The dylibs of a search order.
pub(crate) fn walk(order: &[(JitDylib, Visibility)]) -> impl Iterator<Item = (&Arc<DylibInner>, Visibility)> {
    order.iter().map(|(dylib, visibility)| (dylib.inner(), *visibility))
}

/// The most names for which a lookup without waiting is tried: [`Missing`] has 32 bits.
const MAX_NAMES: usize = 32;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::session::ExecutionSession;

    #[test]
    fn a_link_that_finds_a_removed_dylib_drops_its_last_reference_to_it() {
        let session = ExecutionSession::new();
        let [user, library, other] = ["user", "library", "other"].map(|name| session.create_dylib(name).unwrap());
        let name = Name::new("present");
        other.define_absolute([(name, ExecutorAddr::new(8), SymbolFlags::EXPORTED)]).unwrap();
        let known = library.downgrade();
        user.set_link_order(&[(library.clone(), Visibility::All), (other, Visibility::All)]).unwrap();
        let link = || try_lookup(user.inner(), &[b"present"], RequiredState::Resolved);
        // Often enough that the absence is in the library's index, so that its lock is not taken.
        for _ in 0..4 {
            assert_eq!(link().unwrap().symbols[0].address, ExecutorAddr::new(8));
        }
        assert!(session.remove_dylib(&library).unwrap().is_empty());
        drop(library);
        assert!(link().is_none(), "the link notices that the dylib is closed");
        assert!(known.upgrade().is_none());
        assert!(link().is_some());
    }

    #[test]
    fn a_dylib_is_searched_without_its_lock_for_names_that_were_absent_before() {
        let session = ExecutionSession::new();
        let [front, library] = ["front", "library"].map(|name| session.create_dylib(name).unwrap());
        let names = ["one", "two"];
        library
            .define_absolute(names.map(|name| (Name::new(name), ExecutorAddr::new(8), SymbolFlags::EXPORTED)))
            .unwrap();
        let order = [(front.clone(), Visibility::All), (library, Visibility::All)];
        let found = || {
            let requests = names.map(SymbolRequest::required);
            try_lookup_results(&order, &requests, RequiredState::Ready).map(|found| found.len())
        };
        assert_eq!([found(), found(), found()], [Some(2); 3]);
        let locked = front.inner().state.lock();
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::scope(|threads| {
            threads.spawn(|| sender.send(found()).unwrap());
            let received = receiver.recv_timeout(std::time::Duration::from_secs(60));
            drop(locked);
            assert_eq!(received, Ok(Some(2)));
        });
    }
}
