//! [`SpareDylibs`]: dylibs of versions that are gone, for the next versions of the same functions.
//!
//! A code generator that replaces a function again and again would make a dylib for each version. Instead, the dylib of a replaced
//! version takes the next one: its names are gone at once, and what callers still use stays under the tracker of the old version.
//! The link order and the caches of searches are those of the functions already.
//!
//! A dylib is kept for a *plain* version only: one graph, without initialisers and without sections whose bounds can be named.
//! Nothing else of it is recorded under the dylib. A set of functions has one spare at most, and goes back to it; the oldest spare
//! of the session is removed for a new one.

use crate::session::JitDylib;
use crate::sync::Mutex;

/// The spares of one session, the oldest first.
pub(in crate::jit) struct SpareDylibs(Mutex<Vec<Spare>>);

/// A dylib for the next version of a set of functions.
pub(in crate::jit) struct Spare {
    /// The number of the set.
    pub(in crate::jit) set: u64,
    pub(in crate::jit) dylib: JitDylib,
    pub(in crate::jit) order: Option<OrderEdits>,
}

/// [How often](JitDylib::link_order_edits) the link orders of the patched dylib and of a version's dylib were edited. As long as
/// both are the same, the order of the version's dylib is right.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::jit) struct OrderEdits {
    home: u64,
    own: u64,
}

impl OrderEdits {
    pub(in crate::jit) fn of(home: &JitDylib, own: &JitDylib) -> OrderEdits {
        OrderEdits { home: home.link_order_edits(), own: own.link_order_edits() }
    }
}

impl SpareDylibs {
    pub(in crate::jit) fn new() -> SpareDylibs {
        SpareDylibs(Mutex::new(Vec::new()))
    }

    /// Takes the spare of a set of functions.
    pub(in crate::jit) fn take(&self, set: u64) -> Option<Spare> {
        let mut spares = self.0.lock();
        let position = spares.iter().position(|spare| spare.set == set)?;
        Some(spares.remove(position))
    }

    /// Keeps a spare, if its dylib is empty. Returns the dylib that the caller removes instead, if there is one.
    #[must_use]
    pub(in crate::jit) fn keep(&self, spare: Spare) -> Option<JitDylib> {
        if !spare.dylib.is_vacant() {
            return Some(spare.dylib);
        }
        let mut spares = self.0.lock();
        if spares.iter().any(|other| other.set == spare.set) {
            return Some(spare.dylib);
        }
        let evicted = (spares.len() == MAX_SPARES).then(|| spares.remove(0).dylib);
        spares.push(spare);
        evicted
    }
}

/// The most spares of a session: few functions are replaced at one time.
const MAX_SPARES: usize = 16;
