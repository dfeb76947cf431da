//! [`EventSink`]: delivers the events of code memory to an observer.
//!
//! An operation records its events in an [`EventBuf`] while it holds locks. After it has released them, the same thread
//! delivers the events in the order in which they happened ([`FlushOnDrop`]). Without an observer nothing is recorded.

use std::fmt;

use smallvec::SmallVec;

use crate::base::{MemoryEvent, catch};
use crate::sync::{Arc, assert_unlocked};

/// An observer of code memory.
///
/// The thread that caused an event calls the observer, with no lock held. If free pages return to the kernel in the
/// background, that is a thread of the pool. The observer may use the pool. If it panics, only this call ends. The
/// memory of the pool owns the observer: an observer that holds a handle to the pool keeps both for ever.
pub type MemoryObserver = Arc<dyn Fn(MemoryEvent) + Send + Sync>;

/// Events that happened and are not delivered yet. Most operations have none.
pub(crate) type EventBuf = SmallVec<[MemoryEvent; 1]>;

/// The events of one operation. Its drop delivers them, so it is dropped after every lock of the operation.
pub(crate) struct FlushOnDrop<'a> {
    sink: &'a EventSink,
    pub(crate) events: EventBuf,
}

impl Drop for FlushOnDrop<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if !self.events.is_empty() {
            self.sink.deliver(std::mem::take(&mut self.events));
        }
    }
}

/// Where the events of a pool go: to an observer, or nowhere.
#[derive(Clone, Default)]
pub(crate) struct EventSink(Option<MemoryObserver>);

impl EventSink {
    pub(crate) fn new(observer: MemoryObserver) -> EventSink {
        EventSink(Some(observer))
    }

    pub(crate) fn has_observer(&self) -> bool {
        self.0.is_some()
    }

    /// Starts an operation whose events are delivered when the returned value is dropped.
    #[inline(always)]
    pub(crate) fn deferred(&self) -> FlushOnDrop<'_> {
        FlushOnDrop { sink: self, events: EventBuf::new() }
    }

    /// Adds `event` to `events` if there is an observer.
    pub(crate) fn record(&self, events: &mut EventBuf, event: MemoryEvent) {
        if self.has_observer() {
            events.push(event);
        }
    }

    /// Calls the observer. The caller holds no lock.
    #[cold]
    fn deliver(&self, events: EventBuf) {
        let Some(observer) = &self.0 else { return };
        assert_unlocked();
        for event in events {
            // A drop may deliver events, and a drop must not panic.
            let _ = catch(|| observer(event));
        }
    }

    /// Delivers one event. The caller holds no lock.
    pub(crate) fn deliver_one(&self, event: MemoryEvent) {
        self.record(&mut self.deferred().events, event);
    }
}

impl fmt::Debug for EventSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.has_observer() { "an observer" } else { "no observer" })
    }
}
