//! Lookups that have nothing to wait for: a few names, each far enough along. They ask no generator and make no query; one
//! that comes to nothing sends its caller the long way round (`lookup.rs`).
//!
//! Every link asks so for its externals, from many threads, and mostly for the same few names of the same dylibs. So what a
//! link is told, [`ReadyLookup`], counts on the dylibs that it walked, once each, and on nothing else: threads that link take
//! few of each other's lines.

use smallvec::{SmallVec, smallvec};

use crate::base::{ExecutorAddr, Name, RecycledVec, impl_recycle};
use crate::session::core::jit_dylib::{DylibInner, DylibState, JitDylib, Linked, Visibility};
use crate::session::lookup::blocking::{Found, LookupResult, RequiredState, SymbolRequest, found_of, state_of};
use crate::session::symbols::ready_index::ReadySymbol;
use crate::session::types::name_hash::NameHash;
use crate::session::types::symbol::{SymbolFlags, SymbolId, SymbolRef, SymbolState};
use crate::sync::{Arc, seeded_bug};

/// What the names of a link were found to be, in their order.
pub(crate) struct ReadyLookup {
    /// The dylibs behind the link's own, if one of them was asked.
    linked: Option<Linked>,
    pub(crate) symbols: RecycledVec<FoundSymbol>,
}

impl_recycle!(FoundSymbol);

/// One of them.
#[derive(Clone, Copy)]
pub(crate) struct FoundSymbol {
    pub(crate) address: ExecutorAddr,
    pub(crate) flags: SymbolFlags,
    /// Its dylib, counted from the link's own, and its entry there. `None` for what nothing can be taken away from under.
    definition: Option<(u32, SymbolId)>,
}

/// A definition that emitted code refers to.
#[derive(Clone, Copy)]
pub(crate) struct DependencyRef<'a> {
    pub(crate) dylib: &'a Arc<DylibInner>,
    pub(crate) id: SymbolId,
    /// For errors.
    name: DependencyName<'a>,
    /// Of its dylib, as far as they are to be told apart.
    number: u32,
}

#[derive(Clone, Copy)]
enum DependencyName<'a> {
    Known(&'a Name),
    /// By its position among what was looked for.
    Asked(&'a NameOf<'a>, u32),
}

/// The names of what was looked for, by their positions.
pub(crate) type NameOf<'a> = dyn Fn(usize) -> Name + 'a;

impl<'a> DependencyRef<'a> {
    pub(crate) fn of(symbol: &'a SymbolRef) -> DependencyRef<'a> {
        DependencyRef { dylib: &symbol.dylib, id: symbol.id, name: DependencyName::Known(&symbol.name), number: 0 }
    }

    pub(crate) fn name(self) -> Name {
        match self.name {
            DependencyName::Known(name) => name.clone(),
            DependencyName::Asked(name_of, position) => name_of(position as usize),
        }
    }

    pub(crate) fn to_ref(self) -> SymbolRef {
        SymbolRef { dylib: self.dylib.clone(), id: self.id, name: self.name() }
    }
}

impl FoundSymbol {
    const MISSING: FoundSymbol =
        FoundSymbol { address: ExecutorAddr::NULL, flags: SymbolFlags::NONE, definition: None };
}

impl ReadyLookup {
    /// The definitions, dylib by dylib, put into `needs`; `own` is the link's.
    pub(crate) fn needs<'a>(
        &'a self,
        own: &'a Arc<DylibInner>,
        name_of: &'a NameOf<'a>,
        needs: &mut SmallVec<[DependencyRef<'a>; 8]>,
    ) {
        let linked = self.linked.as_deref().map_or(&[][..], |linked| linked);
        let dylib = |number: u32| number.checked_sub(1).map_or(own, |number| &linked[number as usize].0);
        let mut is_sorted = true;
        for (position, symbol) in self.symbols.iter().enumerate() {
            if let Some((number, id)) = symbol.definition {
                is_sorted &= needs.last().is_none_or(|last: &DependencyRef<'_>| last.number <= number);
                let name = DependencyName::Asked(name_of, position as u32);
                needs.push(DependencyRef { dylib: dylib(number), id, name, number });
            }
        }
        if !is_sorted {
            needs.sort_unstable_by_key(|need: &DependencyRef<'_>| need.number);
        }
    }
}

/// What a link into `own` finds.
pub(crate) fn found_now(own: &Arc<DylibInner>, names: &[&[u8]], required: RequiredState) -> Option<ReadyLookup> {
    if names.len() > FEW {
        return None;
    }
    let mut symbols = RecycledVec::repeat(FoundSymbol::MISSING, names.len());
    let mut search = SearchNow::new(names, required, &mut symbols, |dylib, _, found| {
        let is_absolute = found.flags.contains(SymbolFlags::ABSOLUTE);
        let definition = (!is_absolute).then_some((dylib as u32, found.id));
        FoundSymbol { address: found.address, flags: found.flags, definition }
    });
    search.look_into_index(0, own, Visibility::All);
    let mut linked = None;
    if !search.is_over() {
        let mut state = own.state.lock();
        search.look_into_table(0, own, Visibility::All, &mut state)?;
        if !search.is_over() {
            linked = Some(state.linked(own));
        }
    }
    for (position, (dylib, visibility)) in linked.iter().flat_map(|linked| linked.iter()).enumerate() {
        if search.look_into(position + 1, dylib, *visibility).is_none() {
            own.forget_linked_if_closed(dylib);
            return None;
        }
    }
    search.is_over().then_some(())?;
    Some(ReadyLookup { symbols, linked })
}

/// As a lookup would say it.
pub(crate) fn results_now(
    order: &[(JitDylib, Visibility)],
    requests: &[SymbolRequest<'_>],
    required: RequiredState,
) -> Option<SmallVec<[LookupResult; 8]>> {
    if requests.len() > FEW {
        return None;
    }
    if let [request] = requests {
        let found = find_now(walk(order), request.name, state_of(required), |found, dylib| found.result(dylib));
        return if let TryFind::Found(found) = found { Some(smallvec![found]) } else { None };
    }
    let names: SmallVec<[&[u8]; 8]> = requests.iter().map(|request| request.name.as_bytes()).collect();
    let mut results = smallvec![LookupResult::MISSING; requests.len()];
    let mut search = SearchNow::new(&names, required, &mut results, |_, dylib, found| found.result(dylib));
    for (dylib, visibility) in walk(order) {
        search.look_into(0, dylib, visibility)?;
    }
    search.is_over().then_some(results)
}

/// A walk through dylibs that waits for nothing.
struct SearchNow<'a, R, F> {
    names: &'a [&'a [u8]],
    hashes: SmallVec<[NameHash; 16]>,
    required: SymbolState,
    results: &'a mut [R],
    missing: Missing,
    /// Makes a result of what was found, and of the place of its dylib in the walk.
    take: F,
}

/// Names that have no result yet: a bit for each of up to [`FEW`].
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

    /// Keeps those that `is_missing` says are missing still.
    #[inline(always)]
    fn retain(&mut self, mut is_missing: impl FnMut(usize) -> bool) {
        let mut unasked = self.0;
        while unasked != 0 {
            let index = unasked.trailing_zeros();
            unasked &= unasked - 1;
            if !is_missing(index as usize) {
                self.0 &= !(1 << index);
            }
        }
    }
}

impl<'a, R, F: Fn(usize, &Arc<DylibInner>, &Found<'_>) -> R> SearchNow<'a, R, F> {
    /// Has as many `results` as `names`, which are up to [`FEW`].
    #[inline(always)]
    fn new(names: &'a [&'a [u8]], required: RequiredState, results: &'a mut [R], take: F) -> SearchNow<'a, R, F> {
        let hashes = names.iter().map(|name| NameHash::of_bytes(name)).collect();
        let missing = Missing::all(names.len());
        SearchNow { names, hashes, required: state_of(required), results, missing, take }
    }

    fn is_over(&self) -> bool {
        self.missing.is_empty()
    }

    /// `None` when something was found that is not far enough along, or the dylib is closed.
    fn look_into(&mut self, position: usize, dylib: &Arc<DylibInner>, visibility: Visibility) -> Option<()> {
        if self.is_over() || self.look_into_index(position, dylib, visibility) {
            return Some(());
        }
        let mut state = dylib.state.lock();
        self.look_into_table(position, dylib, visibility, &mut state)?;
        // Whoever links against a dylib and others behind it asks it for the same few names each time.
        self.missing.for_each(|index| {
            let name = String::from_utf8_lossy(self.names[index]);
            state.table.note_absent(&name, self.hashes[index]);
        });
        Some(())
    }

    /// Whether the index has an answer to all that was missing: that it is here, or that it is not.
    fn look_into_index(&mut self, position: usize, dylib: &Arc<DylibInner>, visibility: Visibility) -> bool {
        let SearchNow { names, hashes, results, missing, take, .. } = self;
        let mut is_answered = true;
        let was_read = dylib.ready.read(|known| {
            missing.retain(|index| {
                let Some((name, symbol)) = known.find(names[index], hashes[index]) else {
                    is_answered = false;
                    return true;
                };
                let ReadySymbol { address, flags, id } = symbol;
                let is_visible = visibility.sees(flags) && !symbol.is_absent();
                if is_visible {
                    results[index] = take(position, dylib, &Found { address, flags, id, name: name.borrowed() });
                }
                !is_visible
            });
        });
        is_answered && was_read.is_some()
    }

    fn look_into_table(
        &mut self,
        position: usize,
        dylib: &Arc<DylibInner>,
        visibility: Visibility,
        state: &mut DylibState,
    ) -> Option<()> {
        if !state.is_open() {
            return None;
        }
        let SearchNow { names, hashes, required, results, missing, take } = self;
        let mut is_far_enough = true;
        missing.retain(|index| {
            let found = state.find_visible_hashed(names[index], hashes[index], visibility);
            let Some((id, symbol)) = found else { return true };
            if symbol.state < *required {
                is_far_enough = false;
                return true;
            }
            let is_ready = symbol.state == SymbolState::Ready;
            results[index] = take(position, dylib, &found_of(&state.table, id, symbol));
            if is_ready {
                state.table.note_ready_lookup(id);
            }
            false
        });
        // The dylibs behind are searched for what the generators of this one do not know.
        let may_be_generated = !missing.is_empty() && state.has_generators();
        (is_far_enough && !may_be_generated).then_some(())
    }
}

/// What there is to say of one name without waiting.
pub(crate) enum TryFind<'a, R> {
    Found(R),
    /// It is here, but not far enough along.
    Pending {
        dylib: &'a Arc<DylibInner>,
        visibility: Visibility,
        id: SymbolId,
    },
    /// Nothing: generators were not asked.
    Unknown,
}

/// One name, passed to `take` where it stands.
#[inline]
pub(crate) fn find_now<'a, R>(
    order: impl IntoIterator<Item = (&'a Arc<DylibInner>, Visibility)>,
    name: &str,
    required: SymbolState,
    take: impl Fn(&Found<'_>, &Arc<DylibInner>) -> R,
) -> TryFind<'a, R> {
    let hash = NameHash::of(name);
    for (dylib, visibility) in order {
        let indexed = dylib.ready.find(name, hash, |name, symbol| {
            let ReadySymbol { address, flags, id } = symbol;
            let is_visible = visibility.sees(flags) && !symbol.is_absent();
            is_visible.then(|| take(&Found { address, flags, id, name: name.borrowed() }, dylib))
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
            // The dylibs behind are searched for what the generators of this one do not know.
            if state.has_generators() {
                return TryFind::Unknown;
            }
            continue;
        };
        if symbol.state < required {
            return TryFind::Pending { dylib, visibility, id };
        }
        let found = take(&found_of(&state.table, id, symbol), dylib);
        if symbol.state == SymbolState::Ready {
            // Seeded bug: a removal in between does not see it.
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

pub(crate) fn walk(order: &[(JitDylib, Visibility)]) -> impl Iterator<Item = (&Arc<DylibInner>, Visibility)> {
    order.iter().map(|(dylib, visibility)| (dylib.inner(), *visibility))
}

/// Up to so many names are worth a look before the real lookup.
const FEW: usize = 32;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::session::ExecutionSession;

    #[test]
    fn a_removed_dylib_of_a_link_order_is_let_go_of_by_the_next_link() {
        let session = ExecutionSession::new();
        let [user, library, other] = ["user", "library", "other"].map(|name| session.create_dylib(name).unwrap());
        let name = Name::new("present");
        other.define_absolute([(name, ExecutorAddr::new(8), SymbolFlags::EXPORTED)]).unwrap();
        let known = library.downgrade();
        user.set_link_order(&[(library.clone(), Visibility::All), (other, Visibility::All)]);
        let link = || found_now(user.inner(), &[b"present"], RequiredState::Resolved);
        // Often enough for the library to be passed by without its lock.
        for _ in 0..4 {
            assert_eq!(link().unwrap().symbols[0].address, ExecutorAddr::new(8));
        }
        assert!(session.remove_dylib(&library).unwrap().is_empty());
        drop(library);
        assert!(link().is_none(), "what is closed is not passed by unseen");
        assert!(known.upgrade().is_none());
        assert!(link().is_some());
    }

    #[test]
    fn a_dylib_is_passed_by_without_its_lock_with_names_that_it_was_passed_by_with_before() {
        let session = ExecutionSession::new();
        let [front, library] = ["front", "library"].map(|name| session.create_dylib(name).unwrap());
        let names = ["one", "two"];
        library
            .define_absolute(names.map(|name| (Name::new(name), ExecutorAddr::new(8), SymbolFlags::EXPORTED)))
            .unwrap();
        let order = [(front.clone(), Visibility::All), (library, Visibility::All)];
        let found = || {
            let requests = names.map(SymbolRequest::required);
            results_now(&order, &requests, RequiredState::Ready).map(|found| found.len())
        };
        assert_eq!([found(), found(), found()], [Some(2); 3]);
        let locked = front.inner().state.lock();
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::scope(|threads| {
            threads.spawn(|| tell.send(found()).unwrap());
            let told = told.recv_timeout(std::time::Duration::from_secs(60));
            drop(locked);
            assert_eq!(told, Ok(Some(2)));
        });
    }
}
