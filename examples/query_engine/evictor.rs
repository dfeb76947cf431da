//! [`Evictor`]: a thread that removes queries while clients run them, like a cache that is short of memory.
//!
//! When a client begins to run a query, it sends the tracker of the query to the evictor. The last of the two releases
//! the memory: the evictor that removes the query, or the client that drops its handle.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use jittison::ResourceTracker;

/// Removes queries. Its thread ends when the last handle is dropped.
#[derive(Clone)]
pub struct Evictor {
    trackers: Sender<ResourceTracker>,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    evicted: AtomicU64,
    held: AtomicU64,
}

impl Evictor {
    /// Starts the thread.
    pub fn new() -> std::io::Result<Evictor> {
        let (trackers, queries) = channel();
        let counts = Arc::new(Counts::default());
        let evictor = Evictor { trackers, counts: counts.clone() };
        thread::Builder::new().name("evictor".to_owned()).spawn(move || evict(&queries, &counts))?;
        Ok(evictor)
    }

    /// Asks the thread to remove a query at once.
    pub fn evict(&self, tracker: ResourceTracker) {
        // The thread lives at least as long as this sender.
        let _ = self.trackers.send(tracker);
    }

    /// The number of removed queries, and of those that their client was running at that time.
    pub fn counts(&self) -> (u64, u64) {
        (self.counts.evicted.load(Ordering::Relaxed), self.counts.held.load(Ordering::Relaxed))
    }
}

fn evict(queries: &Receiver<ResourceTracker>, counts: &Counts) {
    for tracker in queries {
        // An error of a manager is left to the client, which removes the tracker again and gets it.
        if let Ok(removal) = tracker.remove() {
            counts.held.fetch_add(u64::from(!removal.is_complete()), Ordering::Relaxed);
        }
        counts.evicted.fetch_add(1, Ordering::Relaxed);
    }
}
