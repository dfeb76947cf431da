//! The evictor: a thread that removes queries while clients run them, as a cache does that is short of memory.
//!
//! A client hands it the tracker when it begins to run the query. Whoever comes last, the evictor or the client
//! that lets the query go, gives its memory back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use jittison::ResourceTracker;

/// Takes queries; its thread ends when the last handle is dropped.
#[derive(Clone)]
pub struct Evictor {
    orders: Sender<ResourceTracker>,
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
        let (orders, queries) = channel();
        let counts = Arc::new(Counts::default());
        let evictor = Evictor { orders, counts: counts.clone() };
        thread::Builder::new().name("evictor".to_owned()).spawn(move || evict(&queries, &counts))?;
        Ok(evictor)
    }

    /// Has a query removed, now.
    pub fn evict(&self, tracker: ResourceTracker) {
        // The thread lives as long as this.
        let _ = self.orders.send(tracker);
    }

    /// How many queries were removed, and how many of them while their client was running them.
    pub fn counts(&self) -> (u64, u64) {
        (self.counts.evicted.load(Ordering::Relaxed), self.counts.held.load(Ordering::Relaxed))
    }
}

fn evict(queries: &Receiver<ResourceTracker>, counts: &Counts) {
    for tracker in queries {
        // What a manager has to say, the client that removes it again is told.
        if let Ok(removal) = tracker.remove() {
            counts.held.fetch_add(u64::from(!removal.is_complete()), Ordering::Relaxed);
        }
        counts.evicted.fetch_add(1, Ordering::Relaxed);
    }
}
