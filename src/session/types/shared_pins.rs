//! [`SharedPin`]: one pin of a tracker that many owned handles share. [`SharedPins`]: those of one dylib.
//!
//! A pin of its own costs a handle two locks of the tracker and an allocation, and as many when it is dropped. So a symbol that
//! is looked up often gets a shared pin: the dylib holds it, the index of ready symbols refers to it weakly, and a lookup that
//! finds it there only counts one reference.
//!
//! Threads that count references of one pin in turn move its cache line between their cores each time. So threads are divided
//! into [`GROUPS`] by their number, and each group shares a pin of its own. Until it has one, it mostly shares that of another
//! group.
//!
//! The session counts a shared pin as one pin of its tracker. Before the tracker is retired or transferred, the dylib drops its
//! references. Either no handle has one, and the pin is gone. Or a handle keeps the pin: then the tracker is pinned, and a
//! lookup that still finds the symbol in the index shares the pin of that handle.
//!
//! The numbers of handles are for reports: [`SharedPins::extra_handles`].

use rustc_hash::FxHashMap;

use crate::base::{CallEntry, CodeHold};
use crate::session::types::ids::TrackerId;
use crate::sync::{Arc, Weak, thread_number};

/// The most threads that look up functions without a common counter.
pub(in crate::session) const GROUPS: usize = 8;

/// The group of the calling thread, below [`GROUPS`].
#[inline]
pub(in crate::session) fn own_group() -> usize {
    thread_number() % GROUPS
}

/// One pin, and the references of all handles that share it.
pub(crate) struct SharedPin(Box<dyn CodeHold>);

/// The shared pins of the trackers of one dylib. The dylib's lock guards them.
#[derive(Default)]
pub(in crate::session) struct SharedPins(FxHashMap<TrackerId, PinsOfTracker>);

#[derive(Default)]
struct PinsOfTracker {
    /// The pins that lookups share, by group of threads. As long as the highest group that has one.
    current: Vec<Option<Arc<SharedPin>>>,
    /// Earlier pins. Only handles hold them.
    released: Vec<Weak<SharedPin>>,
}

impl SharedPin {
    pub(in crate::session) fn new(pin: Box<dyn CodeHold>) -> SharedPin {
        SharedPin(pin)
    }
}

impl CodeHold for SharedPin {
    fn enter_call(&self) -> Option<CallEntry> {
        self.0.enter_call()
    }
}

impl SharedPins {
    #[inline]
    pub(in crate::session) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The pin of a tracker that lookups by a group of threads share. Made with `pin` if there is none. `None` if `pin` returns
    /// `None`.
    pub(in crate::session) fn get_or_insert(
        &mut self,
        tracker: TrackerId,
        group: usize,
        pin: impl FnOnce() -> Option<Box<dyn CodeHold>>,
    ) -> Option<Arc<SharedPin>> {
        if let Some(current) = self.0.get(&tracker).and_then(|pins| pins.current.get(group)?.as_ref()) {
            return Some(current.clone());
        }
        let new = Arc::new(SharedPin::new(pin()?));
        let current = &mut self.0.entry(tracker).or_default().current;
        if current.len() <= group {
            current.resize(group + 1, None);
        }
        current[group] = Some(new.clone());
        Some(new)
    }

    /// Drops the dylib's references to the pins of a tracker, which is live.
    #[cold]
    pub(in crate::session) fn release(&mut self, tracker: TrackerId) {
        let Some(pins) = self.0.get_mut(&tracker) else { return };
        pins.released.retain(|pin| pin.strong_count() > 0);
        for current in std::mem::take(&mut pins.current).into_iter().flatten() {
            let released = Arc::downgrade(&current);
            drop(current);
            pins.released.extend((released.strong_count() > 0).then_some(released));
        }
        if pins.released.is_empty() {
            self.0.remove(&tracker);
        }
    }

    /// `source`, whose pin is released, was transferred to `destination`.
    pub(in crate::session) fn transfer(&mut self, source: TrackerId, destination: TrackerId) {
        if let Some(moved) = self.0.remove(&source) {
            self.0.entry(destination).or_default().released.extend(moved.released);
        }
    }

    /// The tracker is reclaimed.
    pub(in crate::session) fn remove(&mut self, tracker: TrackerId) {
        self.0.remove(&tracker);
    }

    /// How many more handles a tracker has than pins.
    pub(in crate::session) fn extra_handles(&self, tracker: TrackerId) -> isize {
        let Some(pins) = self.0.get(&tracker) else { return 0 };
        let beyond_one = |references: usize| (references as isize - 1).max(0);
        // The dylib's own reference is no handle.
        let of_current =
            pins.current.iter().flatten().map(|current| Arc::strong_count(current) as isize - 2).sum::<isize>();
        of_current + pins.released.iter().map(|pin| beyond_one(pin.strong_count())).sum::<isize>()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    struct Held;

    impl CodeHold for Held {
        fn enter_call(&self) -> Option<CallEntry> {
            None
        }
    }

    fn share(pins: &mut SharedPins, group: usize) -> Arc<SharedPin> {
        pins.get_or_insert(TrackerId::default(), group, || Some(Box::new(Held))).unwrap()
    }

    #[test]
    fn each_group_shares_one_pin_and_the_handles_of_all_are_counted() {
        let (mut pins, tracker) = (SharedPins::default(), TrackerId::default());
        let [first, again, last] = [0, 0, GROUPS - 1].map(|group| share(&mut pins, group));
        let more = [2, 2, 2].map(|group| share(&mut pins, group));
        assert!(Arc::ptr_eq(&first, &again) && Arc::ptr_eq(&more[0], &more[2]));
        assert!(!Arc::ptr_eq(&first, &last) && !Arc::ptr_eq(&first, &more[0]));
        // Six handles of three pins.
        assert_eq!(pins.extra_handles(tracker), 3);
        drop(more);
        pins.release(tracker);
        // Three handles of two pins. The third pin went with its handles.
        assert_eq!(pins.extra_handles(tracker), 1);
        let new = share(&mut pins, 0);
        assert!(!Arc::ptr_eq(&new, &first));
        assert_eq!(pins.extra_handles(tracker), 1);
        drop((first, again, last));
        assert_eq!(pins.extra_handles(tracker), 0);
        drop(new);
        pins.release(tracker);
        assert!(pins.is_empty());
    }
}
