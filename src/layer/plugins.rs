//! [`Plugins`]: a layer's plugins, in as many copies as threads are likely to link at once: to read one's own takes no line
//! that another thread writes.

use crate::layer::plugin::LinkPlugin;
use crate::sync::{Arc, Mutex, Rank, thread_number};

pub(super) type List = Arc<[Arc<dyn LinkPlugin>]>;

pub(super) struct Plugins {
    /// Held while the copies are changed one by one, so that all come to be the same.
    edits: Mutex<()>,
    copies: [Line; COPIES],
}

/// In lines of its own.
#[repr(align(128))]
struct Line(Mutex<List>);

impl Plugins {
    pub(super) fn new() -> Plugins {
        let edits = Mutex::ranked(Rank::Growth, ());
        Plugins { edits, copies: std::array::from_fn(|_| Line(Mutex::new(Arc::from([])))) }
    }

    /// For a link that begins.
    pub(super) fn now(&self) -> List {
        self.copies[thread_number() % COPIES].0.lock().clone()
    }

    pub(super) fn add(&self, plugin: Arc<dyn LinkPlugin>) {
        self.edit(|plugins| plugins.iter().chain([&plugin]).cloned().collect());
    }

    /// False when it is not there.
    pub(super) fn remove(&self, plugin: &Arc<dyn LinkPlugin>) -> bool {
        let mut was_there = false;
        self.edit(|plugins| {
            let left: List = plugins.iter().filter(|other| !Arc::ptr_eq(other, plugin)).cloned().collect();
            was_there |= left.len() < plugins.len();
            left
        });
        was_there
    }

    fn edit(&self, mut edited: impl FnMut(&List) -> List) {
        // Dropped outside the locks: they may be the last to hold a plugin.
        let mut old: Vec<List> = Vec::with_capacity(COPIES);
        let edits = self.edits.lock();
        for Line(copy) in &self.copies {
            let mut copy = copy.lock();
            let new = edited(&copy);
            old.push(std::mem::replace(&mut copy, new));
        }
        drop(edits);
    }
}

/// Threads whose numbers are so far apart share one.
const COPIES: usize = 8;
