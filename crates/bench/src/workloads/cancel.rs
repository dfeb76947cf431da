//! [`Cancel`]: cancels a statement while its module is being linked.

use std::cell::RefCell;
use std::sync::Arc;

use jittison::ResourceTracker;
use jittison::layer::{LinkHooks, LinkOrigin, LinkPlugin};
use jittison::link::PlacedLink;

thread_local! {
    /// The tracker that this thread's next link removes half-way. The thread that does the lookup also links.
    static NEXT: RefCell<Option<ResourceTracker>> = const { RefCell::new(None) };
}

/// Removes trackers when their object has its memory but is not relocated yet.
pub struct Cancel;

impl Cancel {
    pub fn plugin() -> Arc<Cancel> {
        Arc::new(Cancel)
    }

    /// Makes this thread's next link remove the tracker.
    pub fn next(tracker: &ResourceTracker) {
        NEXT.with_borrow_mut(|next| *next = Some(tracker.clone()));
    }
}

impl LinkPlugin for Cancel {
    fn begin(&self, _: &LinkOrigin<'_>) -> Option<Box<dyn LinkHooks>> {
        Some(Box::new(Cancel))
    }
}

impl LinkHooks for Cancel {
    fn placed(&mut self, _: &mut PlacedLink) -> jittison::error::Result<()> {
        let tracker = NEXT.with_borrow_mut(Option::take);
        tracker.map_or(Ok(()), |tracker| tracker.remove().map(drop))
    }
}
