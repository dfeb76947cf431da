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

use crate::base::{ExecutorAddr, RecycledVec, impl_recycle};
use crate::session::core::jit_dylib::{DylibInner, DylibState, JitDylib, LinkCache};
use crate::session::core::symbol_ref::{DependencyRef, LookupResult, NameOf};
use crate::session::lookup::ready_alias;
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
        let others = self.link_cache.as_deref().map_or(&[][..], |others| others);
        let dylib = |index: u32| index.checked_sub(1).map_or(own, |index| &others[index as usize].0);
        let mut is_sorted = true;
        for (position, symbol) in self.symbols.iter().enumerate() {
            if let Some((dylib_index, id)) = symbol.definition {
                is_sorted &= dependencies.last().is_none_or(|last: &DependencyRef<'_>| last.dylib_index <= dylib_index);
                let name_position = position as u32;
                dependencies.push(DependencyRef::by_position(
                    dylib(dylib_index),
                    id,
                    name_of,
                    name_position,
                    dylib_index,
                ));
            }
        }
        if !is_sorted {
            dependencies.sort_unstable_by_key(|dependency: &DependencyRef<'_>| dependency.dylib_index);
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
        let mut state = own.state.lock();
        search.search_table(0, own, Visibility::All, &mut state)?;
        if !search.is_done() {
            link_cache = Some(state.link_cache(own));
        }
    }
    for (position, (dylib, visibility)) in link_cache.iter().flat_map(|others| others.iter()).enumerate() {
        if search.search_dylib(position + 1, dylib, *visibility).is_none() {
            own.clear_link_cache_if_closed(dylib);
            return None;
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

    fn is_empty(self) -> bool {
        self.0 == 0
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
        let indexed = dylib.ready.find(name, hash, |name, symbol| {
            let ReadySymbol { address, flags, id } = symbol;
            let is_visible = visibility.sees(flags) && !symbol.is_absent();
            is_visible.then(|| make_result(&Found { address, flags, id, name: name.borrowed() }, dylib))
        });
        match indexed {
            Some(Some(found)) => return TryFind::Found(found),
            Some(None) => continue,
            None => {}
        }
        let mut state = dylib.state.lock();
        if !state.is_open() {
            return TryFind::Unknown;
        }
        let Some((id, symbol)) = state.find_visible_hashed(name.as_bytes(), hash, visibility) else {
            // A generator of this dylib may define the name. It comes before the later dylibs, and is not called here.
            if state.has_generators() {
                return TryFind::Unknown;
            }
            continue;
        };
        if symbol.state < required {
            if ready_alias::make_ready(&mut state, dylib, id).is_none() {
                return TryFind::Pending { dylib, visibility, id };
            }
            let Some(symbol) = state.table.symbol(id) else { return TryFind::Unknown };
            return TryFind::Found(make_result(&found_symbol(&state.table, id, symbol), dylib));
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
                dylib.ready.insert(name, ready);
            }
        }
        return TryFind::Found(found);
    }
    TryFind::Unknown
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
    use crate::base::Name;
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
