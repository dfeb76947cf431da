//! [`Plugins`]: the plugins of a layer, in several copies. A link reads the copy of its thread, so that threads that link at the
//! same time write no common cache line.

use crate::layer::plugin::LinkPlugin;
use crate::sync::{Arc, Mutex, Rank, thread_number};

pub(super) type PluginList = Arc<[Arc<dyn LinkPlugin>]>;

pub(super) struct Plugins {
    /// Serialises changes. A change edits the copies one by one, so all copies get the same changes in the same order.
    edits: Mutex<()>,
    copies: [PaddedCopy; COPIES],
}

/// One copy. The alignment keeps each copy in cache lines of its own.
#[repr(align(128))]
struct PaddedCopy(Mutex<PluginList>);

impl Plugins {
    pub(super) fn new() -> Plugins {
        let edits = Mutex::ranked(Rank::Growth, ());
        Plugins { edits, copies: std::array::from_fn(|_| PaddedCopy(Mutex::new(Arc::from([])))) }
    }

    /// The plugins for a link that begins now.
    pub(super) fn snapshot(&self) -> PluginList {
        self.copies[thread_number() % COPIES].0.lock().clone()
    }

    pub(super) fn add(&self, plugin: Arc<dyn LinkPlugin>) {
        self.edit(|plugins| plugins.iter().chain([&plugin]).cloned().collect());
    }

    /// Returns false if the plugin is not in the list.
    pub(super) fn remove(&self, plugin: &Arc<dyn LinkPlugin>) -> bool {
        let mut was_in_list = false;
        self.edit(|plugins| {
            let remaining: PluginList = plugins.iter().filter(|other| !Arc::ptr_eq(other, plugin)).cloned().collect();
            was_in_list |= remaining.len() < plugins.len();
            remaining
        });
        was_in_list
    }

    fn edit(&self, mut edited: impl FnMut(&PluginList) -> PluginList) {
        // The old lists are dropped outside the locks: one may own the last reference to a plugin.
        let mut old: Vec<PluginList> = Vec::with_capacity(COPIES);
        let edits = self.edits.lock();
        for PaddedCopy(copy) in &self.copies {
            let mut copy = copy.lock();
            let new = edited(&copy);
            old.push(std::mem::replace(&mut copy, new));
        }
        drop(edits);
    }
}

/// Number of copies. Threads with equal numbers modulo this share one.
const COPIES: usize = 8;
