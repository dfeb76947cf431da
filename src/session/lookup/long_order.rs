//! Searches through long link orders, with the [`OrderCache`](crate::session::core::order_cache::OrderCache) of the dylib.
//!
//! [`fill`] goes through the order once for names that the cache does not know. [`next_position`] tells a search which dylib
//! matters next.

use smallvec::SmallVec;

use crate::base::{Name, count_step};
use crate::session::core::jit_dylib::{DylibInner, LinkCache};
use crate::session::core::order_cache::FirstDefinition;
use crate::session::symbols::name_watch::Watch;
use crate::session::types::name_hash::NameHash;
use crate::session::types::request::Visibility;
use crate::sync::{Arc, seeded_bug};

/// Whether searches through these dylibs use the cache. In a short order, asking each dylib is as fast.
pub(crate) fn is_long(others: &LinkCache) -> bool {
    others.len() >= MIN_LONG_ORDER
}

/// Goes through the link order of `own`, and stores where the first definitions of `names` are. Does nothing if the order is
/// short, or is edited meanwhile. The order of steps is that of `symbols/name_watch.rs`.
pub(crate) fn fill<'a>(own: &Arc<DylibInner>, names: impl Iterator<Item = (&'a str, NameHash)>) {
    let Some(others) = current_order(own) else { return };
    let is_late = seeded_bug!("watched_after_the_search");
    let set = |hash| if is_late { Some(Watch::NONE) } else { own.session.names.watch(hash) };
    let watch = |(name, hash)| Some(Wanted { name, hash, watch: set(hash)?, position: None });
    let mut wanted: SmallVec<[Wanted<'_>; 8]> = names.filter_map(watch).collect();
    {
        let state = own.state.lock();
        wanted
            .retain(|wanted| state.find_visible_hashed(wanted.name.as_bytes(), wanted.hash, Visibility::All).is_none());
    }
    let mut unfound = wanted.len();
    for (position, (dylib, visibility)) in (1..).zip(others.iter()) {
        if unfound == 0 {
            break;
        }
        count_step();
        let state = dylib.inner().state.lock();
        if !state.is_open() {
            continue;
        }
        for wanted in wanted.iter_mut().filter(|wanted| wanted.position.is_none()) {
            if state.find_visible_hashed(wanted.name.as_bytes(), wanted.hash, *visibility).is_some() {
                wanted.position = Some(position);
                unfound -= 1;
            }
        }
    }
    // Seeded bug: a definition between the search and this watch is not noticed.
    if is_late {
        wanted
            .iter_mut()
            .for_each(|wanted| wanted.watch = own.session.names.watch(wanted.hash).unwrap_or(wanted.watch));
    }
    let end = others.len() as u32 + 1;
    let found = |Wanted { name, hash, watch, position }| {
        let (name, position) = (Name::new(name), position.unwrap_or(end));
        FirstDefinition { name, hash, watch, position }
    };
    own.order.add(&others, wanted.into_iter().map(found));
}

/// A name, and the first position that defines it.
struct Wanted<'a> {
    name: &'a str,
    hash: NameHash,
    watch: Watch,
    position: Option<u32>,
}

/// The dylibs of the cached order of `own`. Makes the cache if there is none, or if it is not valid any more. `None` if the
/// order is short, the dylib is closed, or its order is edited meanwhile.
fn current_order(own: &Arc<DylibInner>) -> Option<LinkCache> {
    let names = &own.session.names;
    if let Some(others) = own.order.read(names, |order| order.others().cloned()) {
        return Some(others);
    }
    if own.order.is_made() {
        // It may hold closed dylibs.
        own.clear_link_cache();
    }
    let (versions, mut generators) = (names.versions(), Vec::new());
    let others = {
        let mut state = own.state.lock();
        let others = state.link_cache(own);
        if !state.is_open() || !is_long(&others) {
            return None;
        }
        state.table.watch_names(names);
        generators.extend(state.has_generators().then_some(0));
        others
    };
    let mut open = SmallVec::with_capacity(others.len());
    for (dylib, visibility) in others.iter() {
        count_step();
        let mut state = dylib.inner().state.lock();
        if !state.is_open() {
            continue;
        }
        state.table.watch_names(names);
        open.push((dylib.clone(), *visibility));
        generators.extend(state.has_generators().then_some(open.len() as u32));
    }
    let open: LinkCache = if open.len() == others.len() { others.clone() } else { Arc::new(open) };
    let mut state = own.state.lock();
    let is_same = state.is_open() && state.link_cache.as_ref().is_some_and(|cached| Arc::ptr_eq(cached, &others));
    let old = is_same.then(|| {
        let old = state.link_cache.replace(open.clone());
        (old, own.order.replace(open.clone(), versions, generators))
    });
    drop(state);
    drop(old);
    is_same.then_some(open)
}

/// The first position at or after `from` that matters for `names`, in the link order `others` of `own`: its dylib may define
/// one of them, or has a generator. `None` if that is not known.
pub(crate) fn next_position<'a>(
    own: &Arc<DylibInner>,
    others: &LinkCache,
    names: impl Iterator<Item = &'a str> + Clone,
    from: usize,
) -> Option<usize> {
    let (from, end) = (from as u32, others.len() as u32 + 1);
    let try_next = |unknown: &mut SmallVec<[(&'a str, NameHash); 4]>| {
        own.order.read(&own.session.names, |order| {
            order.others().filter(|cached| Arc::ptr_eq(cached, others))?;
            let mut next = order.generator_from(from).unwrap_or(end);
            for name in names.clone() {
                let hash = NameHash::of(name);
                match order.first(&own.session.names, name.as_bytes(), hash) {
                    // The search has passed the first definition, which was removed or is hidden.
                    Some(first) => next = if first < from { from } else { next.min(first) },
                    None => unknown.push((name, hash)),
                }
            }
            Some(next as usize)
        })
    };
    let mut unknown = SmallVec::new();
    match try_next(&mut unknown) {
        Some(next) if unknown.is_empty() => return Some(next),
        Some(_) => fill(own, unknown.into_iter()),
        None => fill(own, names.clone().map(|name| (name, NameHash::of(name)))),
    }
    let mut unknown = SmallVec::new();
    try_next(&mut unknown).filter(|_| unknown.is_empty())
}

/// The least number of dylibs in a long link order.
const MIN_LONG_ORDER: usize = if cfg!(loom) { 2 } else { 4 };

#[cfg(all(test, not(loom)))]
mod tests;
