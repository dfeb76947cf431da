//! [`MemoryObserver`]: who hears what becomes of code memory.
//!
//! What happens under a lock is noted, and told when the lock is free: by the same thread, in the order in which it
//! happened. Where nobody listens, nothing is noted.

use std::fmt;

use smallvec::SmallVec;

use crate::base::{MemoryEvent, catch};
use crate::sync::{Arc, assert_unlocked};

/// Hears what becomes of code memory.
///
/// Called with no lock held, by the thread that did it, which is one of the pool's own when memory goes back by itself. May
/// use the pool meanwhile. A panic ends nothing but the call. It lives as long as the pool's memory: a handle to the pool in
/// it would keep both for ever.
pub type MemoryObserver = Arc<dyn Fn(MemoryEvent) + Send + Sync>;

/// What happened and is not told yet: mostly nothing.
pub(crate) type EventBuf = SmallVec<[MemoryEvent; 1]>;

/// What happens during an operation of the pool, told when this is dropped: when the operation has let go of all locks.
pub(crate) struct FlushOnDrop<'a> {
    teller: &'a EventSink,
    pub(crate) happened: EventBuf,
}

impl Drop for FlushOnDrop<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if !self.happened.is_empty() {
            self.teller.tell(std::mem::take(&mut self.happened));
        }
    }
}

/// Where a pool's events go.
#[derive(Clone, Default)]
pub(crate) struct EventSink(Option<MemoryObserver>);

impl EventSink {
    pub(crate) fn new(observer: MemoryObserver) -> EventSink {
        EventSink(Some(observer))
    }

    pub(crate) fn is_heard(&self) -> bool {
        self.0.is_some()
    }

    #[inline(always)]
    pub(crate) fn telling(&self) -> FlushOnDrop<'_> {
        FlushOnDrop { teller: self, happened: EventBuf::new() }
    }

    /// Takes note, if anybody listens.
    pub(crate) fn note(&self, happened: &mut EventBuf, event: MemoryEvent) {
        if self.is_heard() {
            happened.push(event);
        }
    }

    /// Called with no lock held.
    #[cold]
    fn tell(&self, happened: EventBuf) {
        let Some(observer) = &self.0 else { return };
        assert_unlocked();
        for event in happened {
            // Events come out of drops too, which can take no panic.
            let _ = catch(|| observer(event));
        }
    }

    pub(crate) fn tell_one(&self, event: MemoryEvent) {
        self.note(&mut self.telling().happened, event);
    }
}

impl fmt::Debug for EventSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_heard() { "somebody listens" } else { "nobody listens" })
    }
}
