//! [`DeferredNotifications`]: what an emission brought about under locks, to be told when they are free.

use crate::session::core::jit_dylib::DylibId;
use crate::session::core::observer::{Event, Observers};
use crate::session::core::query::{Completions, complete};
use crate::session::core::resource_tracker::TrackerCore;
use crate::session::types::symbol::SymbolRef;
use crate::sync::Arc;

/// Lookups that have their answer and, if anybody listens, symbols that became ready.
pub(crate) struct DeferredNotifications {
    pub(crate) completions: Completions,
    #[allow(clippy::box_collection)] // mostly none, and on the way of every link
    published: Option<Box<Vec<Published>>>,
}

/// A symbol that became ready, and its owner.
pub(crate) type Published = (Arc<TrackerCore>, SymbolRef);

impl DeferredNotifications {
    pub(crate) fn new(observers: &Observers) -> DeferredNotifications {
        DeferredNotifications { completions: Completions::new(), published: observers.is_heard().then(Box::default) }
    }

    /// Takes note of symbols that became ready, and of their owners, if anybody listens.
    #[inline(always)]
    pub(crate) fn publish<I>(&mut self, symbols: impl FnOnce() -> I)
    where
        I: Iterator<Item = Published>,
    {
        if let Some(published) = &mut self.published {
            published.extend(symbols());
        }
    }

    /// Called with no lock held (S5). Observers first: who has the answer of a lookup may rely on their having heard.
    #[inline(always)]
    pub(crate) fn settle(self, observers: &Observers) {
        if let Some(published) = self.published {
            tell(observers, *published);
        }
        complete(self.completions);
    }
}

#[cold]
fn tell(observers: &Observers, mut published: Vec<Published>) {
    let of = |(core, _): &Published| -> (DylibId, _) { (core.dylib().id, core.key()) };
    published.sort_by_key(of);
    for group in published.chunk_by(|a, b| of(a) == of(b)) {
        let core = &group[0].0;
        let names: Vec<_> = group.iter().map(|(_, symbol)| symbol.name.clone()).collect();
        observers.tell(&Event::Published { dylib: &core.handle, key: core.key(), symbols: &names });
    }
}
