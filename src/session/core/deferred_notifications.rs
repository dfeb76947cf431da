//! [`DeferredNotifications`]: notifications that an emission collects under locks, and delivers after it has released
//! them (S5).

use crate::base::sort_by_order;
use crate::session::core::observer::{Event, Observers};
use crate::session::core::query::Completions;
use crate::session::core::resource_tracker::TrackerCore;
use crate::session::core::symbol_ref::SymbolRef;
use crate::session::types::ids::DylibId;
use crate::sync::Arc;

/// Completed queries, and, if the session has observers, the symbols that became ready.
pub(crate) struct DeferredNotifications {
    pub(crate) completions: Completions,
    #[allow(clippy::box_collection)] // Mostly `None`, and each link moves this value: one word is cheaper to move.
    published: Option<Box<Vec<Published>>>,
}

/// A symbol that became ready, and its owner.
pub(crate) type Published = (Arc<TrackerCore>, SymbolRef);

impl DeferredNotifications {
    pub(crate) fn new(observers: &Observers) -> DeferredNotifications {
        DeferredNotifications { completions: Completions::new(), published: observers.is_active().then(Box::default) }
    }

    /// Records symbols that became ready and their owners, if the session has observers.
    #[inline(always)]
    pub(crate) fn publish<I>(&mut self, symbols: impl FnOnce() -> I)
    where
        I: Iterator<Item = Published>,
    {
        if let Some(published) = &mut self.published {
            published.extend(symbols());
        }
    }

    /// Calls the observers. Called with no lock held (S5). Returns the completed queries, which the caller delivers next:
    /// a caller that receives the result of a lookup may rely on the observers having been called.
    #[inline(always)]
    #[must_use]
    pub(crate) fn call_observers(self, observers: &Observers) -> Completions {
        if let Some(published) = self.published {
            deliver_published(observers, *published);
        }
        self.completions
    }
}

#[cold]
fn deliver_published(observers: &Observers, mut published: Vec<Published>) {
    let sort_key = |(core, _): &Published| -> (DylibId, _) { (core.dylib().id, core.key()) };
    sort_by_order(&mut published, |a, b| sort_key(a).cmp(&sort_key(b)));
    for group in published.chunk_by(|a, b| sort_key(a) == sort_key(b)) {
        let core = &group[0].0;
        let names: Vec<_> = group.iter().map(|(_, symbol)| symbol.name.clone()).collect();
        observers.deliver(&Event::Published { dylib: &core.handle, key: core.key(), symbols: &names });
    }
}
