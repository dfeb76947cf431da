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

/// The spares of one session, the oldest first, each with the number of its set of functions.
pub(in crate::jit) struct SpareDylibs(Mutex<Vec<(u64, JitDylib)>>);

impl SpareDylibs {
    pub(in crate::jit) fn new() -> SpareDylibs {
        SpareDylibs(Mutex::new(Vec::new()))
    }

    /// Takes the spare of a set of functions.
    pub(in crate::jit) fn take(&self, set: u64) -> Option<JitDylib> {
        let mut spares = self.0.lock();
        let position = spares.iter().position(|(of_set, _)| *of_set == set)?;
        Some(spares.remove(position).1)
    }

    /// Keeps a dylib for the next version of a set of functions, if it is empty. Returns the dylib that the caller removes instead,
    /// if there is one.
    #[must_use]
    pub(in crate::jit) fn keep(&self, set: u64, dylib: JitDylib) -> Option<JitDylib> {
        if !dylib.is_vacant() {
            return Some(dylib);
        }
        let mut spares = self.0.lock();
        if spares.iter().any(|(of_set, _)| *of_set == set) {
            return Some(dylib);
        }
        let evicted = (spares.len() == MAX_SPARES).then(|| spares.remove(0).1);
        spares.push((set, dylib));
        evicted
    }
}

/// The most spares of a session: few functions are replaced at one time.
const MAX_SPARES: usize = 16;
