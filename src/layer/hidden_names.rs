//! [`HiddenNames`]: names that some object of a dylib declares hidden, internal or protected, as a weak reference.
//!
//! A native linker merges the visibility of a symbol over all objects of a program: the most constraining one holds for all (gABI,
//! "Symbol Visibility"). So if one object declares a name as hidden, no library defines it for any object of the program. A weak
//! reference is then null, and any other one fails.
//!
//! Here objects are linked one by one. An object registers its weak hidden names when it is added, and a link treats its own
//! references to these names as hidden. A strong hidden name needs no registration: without a definition in the dylib, its own
//! object fails. A reference that was linked before the declaration came keeps what it has.
//!
//! An object counts until its tracker is removed. Nearly all sessions have no such name, and then a link reads one word.

use rustc_hash::FxHashMap;

use crate::base::NumberMap;
use crate::link::LinkGraph;
use crate::session::{JitDylib, ResourceTracker, TrackerWatch};
use crate::sync::{Arc, AtomicUsize, Mutex, Ordering};

/// The hidden weak names of all dylibs of a session.
pub(super) struct HiddenNames {
    table: Arc<HiddenTable>,
}

struct HiddenTable {
    /// Number of registrations that were made. A link that sees 0 follows no addition of such an object. Relaxed: a link that follows an
    /// addition sees the count of it, and the table has a lock.
    count: AtomicUsize,
    /// By dylib and name: the objects that declare it, by number. A leaf lock.
    dylibs: Mutex<FxHashMap<u64, FxHashMap<Box<str>, Declarations>>>,
}

/// The trackers of the objects that declare a name. Never empty.
type Declarations = NumberMap<TrackerWatch>;

/// The hidden weak names of one object. Dropping it deregisters them.
pub(super) struct HiddenDeclarations {
    table: Arc<HiddenTable>,
    dylib: u64,
    number: u64,
    names: Vec<Box<str>>,
}

impl HiddenNames {
    pub(super) fn new() -> HiddenNames {
        let table = HiddenTable { count: AtomicUsize::new(0), dylibs: Mutex::new(FxHashMap::default()) };
        HiddenNames { table: Arc::new(table) }
    }

    /// Registers the hidden weak names of an object that is added under a tracker. `None` if it has none.
    pub(super) fn declare(&self, tracker: &ResourceTracker, names: Vec<Box<str>>) -> Option<Box<HiddenDeclarations>> {
        if names.is_empty() {
            return None;
        }
        let (table, dylib) = (self.table.clone(), tracker.dylib_handle().id());
        let number = table.count.fetch_add(1, Ordering::Relaxed) as u64;
        for name in &names {
            let mut dylibs = table.dylibs.lock();
            dylibs.entry(dylib).or_default().entry(name.clone()).or_default().insert(number, tracker.watch());
        }
        Some(Box::new(HiddenDeclarations { table, dylib, number, names }))
    }

    /// Hides the externals of a graph that other objects of the dylib declare hidden.
    #[inline]
    pub(super) fn merge_into(&self, graph: &mut LinkGraph, dylib: &JitDylib) {
        if self.table.count.load(Ordering::Relaxed) > 0 {
            self.table.merge_into(graph, dylib.id());
        }
    }
}

impl HiddenTable {
    #[cold]
    fn merge_into(&self, graph: &mut LinkGraph, dylib: u64) {
        if !self.dylibs.lock().contains_key(&dylib) {
            return;
        }
        let is_hidden = |name: &[u8]| std::str::from_utf8(name).is_ok_and(|name| self.is_declared(dylib, name));
        let hidden: Vec<_> = graph.named_externals().filter(|(_, name)| is_hidden(name)).collect();
        let hidden: Vec<_> = hidden.into_iter().map(|(symbol, _)| symbol).collect();
        hidden.into_iter().for_each(|symbol| graph.hide_external(symbol));
    }

    /// Whether an object with a live tracker declares the name.
    fn is_declared(&self, dylib: u64, name: &str) -> bool {
        while let Some((number, tracker)) = self.newest(dylib, name) {
            // Without the lock, because this takes locks of trackers.
            if tracker.is_live() {
                return true;
            }
            // The tracker was removed, and only pins keep its memory. Its objects are no longer part of the dylib.
            self.remove(dylib, name, number);
        }
        false
    }

    fn newest(&self, dylib: u64, name: &str) -> Option<(u64, TrackerWatch)> {
        let dylibs = self.dylibs.lock();
        let (number, tracker) = dylibs.get(&dylib)?.get(name)?.range(..).next_back()?;
        Some((number, tracker.clone()))
    }

    fn remove(&self, dylib: u64, name: &str, number: u64) {
        let mut dylibs = self.dylibs.lock();
        let Some(names) = dylibs.get_mut(&dylib) else { return };
        let Some(declarations) = names.get_mut(name) else { return };
        let removed = declarations.remove(number);
        if declarations.is_empty() {
            names.remove(name);
            if names.is_empty() {
                dylibs.remove(&dylib);
            }
        }
        drop(dylibs);
        // A watch may be the last owner of a tracker's data. It is dropped here, without the lock.
        drop(removed);
    }
}

impl Drop for HiddenDeclarations {
    fn drop(&mut self) {
        self.names.iter().for_each(|name| self.table.remove(self.dylib, name, self.number));
    }
}
