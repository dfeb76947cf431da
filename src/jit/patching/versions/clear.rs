//! The end of [`Versions`]: by its own removal, or by its [`ClearHook`] when the patched dylib, or the dylib of a version, is
//! cleared. The head of `versions.rs` says what is removed and why.

use std::collections::BTreeSet;

use crate::error::Result;
use crate::jit::patching::versions::{LiveVersion, Versions, keep_for, pin_for_late_bindings};
use crate::session::{ClearHook, JitDylib, Removal, ResourceTracker};
use crate::sync::Arc;

impl Versions {
    /// Removes the stubs, all versions and their variables as one batch.
    pub(in crate::jit::patching) fn remove(self: &Arc<Self>) -> Result<Vec<Removal>> {
        let trackers = {
            // Under the lock, so that one thread alone takes the versions.
            let _guard = self.lock()?;
            self.trackers_to_remove(&self.dylib).unwrap_or_default()
        };
        self.dylib.detach(&(self.clone() as Arc<dyn ClearHook>));
        let removals = ResourceTracker::remove_all(&trackers);
        self.cleared();
        removals
    }
}

impl ClearHook for Versions {
    fn trackers_to_remove(&self, dylib: &JitDylib) -> Option<Vec<ResourceTracker>> {
        // The lock is nested if an observer that was called for a redirect clears the dylib.
        let _guard = self.commit_lock.lock();
        let state = {
            let mut state = self.state.lock();
            // Another thread has taken the versions, and removes them.
            if state.is_cleared {
                return None;
            }
            // The dylib of a version whose commit failed, or that was retired, while this thread waited for the lock.
            // Its clear removes nothing else.
            if *dylib != self.dylib && !state.live.values().any(|version| version.code.dylib == *dylib) {
                return None;
            }
            state.clear()
        };
        // No pin: the stubs are reclaimed, so no caller is left.
        if let Some(stubs) = state.stubs.as_ref().and_then(|stubs| stubs.watch().pin()) {
            let current: BTreeSet<u64> = state.current.values().copied().collect();
            let current = current.iter().filter_map(|number| state.live[number].code.pin.as_ref());
            current.chain(&state.redirect_targets).for_each(|version| keep_for(&stubs, version));
        }
        let mut trackers: Vec<_> = state.stubs.into_iter().collect();
        let mut dylibs = Vec::new();
        for LiveVersion { code, variables } in state.live.into_values() {
            if let Some(jit) = self.jit.upgrade() {
                pin_for_late_bindings(&jit.session, &code);
            }
            dylibs.push(code.dylib);
            trackers.push(code.tracker);
            trackers.extend(variables);
        }
        trackers.extend(state.retired.into_iter().filter_map(|version| version.variables));
        self.state.lock().cleared = dylibs;
        Some(trackers)
    }

    fn cleared(&self) {
        let dylibs = std::mem::take(&mut self.state.lock().cleared);
        let jit = self.jit.upgrade();
        for dylib in dylibs {
            match &jit {
                Some(jit) => {
                    let removed = jit.session.remove_dylib(&dylib);
                    removed.err().into_iter().for_each(|error| jit.session.report_error(error));
                }
                // The session is ending and removes its dylibs itself.
                None => dylib.close(),
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::thread;

    use super::*;
    use crate::jit::inner::Jit;
    use crate::jit::patching::patchable::Patchable;
    use crate::jit::patching::versions::SWEEP_MIN;

    const SCALE_1: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/examples/scale_1.o"));

    fn committed_twice() -> (Jit, Patchable) {
        let jit = Jit::new().unwrap();
        let kernels = jit.patchable_builder(jit.main_dylib(), &["scale"]).history(0).build().unwrap();
        for _ in 0..2 {
            let mut patch = kernels.patch();
            patch.add_object("scale_1.o", SCALE_1).unwrap();
            // SAFETY: J1 - the object may run.
            drop(unsafe { patch.link() }.unwrap().commit().unwrap());
        }
        (jit, kernels)
    }

    #[test]
    fn versions_that_are_gone_are_forgotten_and_those_in_use_are_not_visited_by_each_commit() {
        let (_jit, kernels) = committed_twice();
        let commit = || {
            let mut patch = kernels.patch();
            patch.add_object("scale_1.o", SCALE_1).unwrap();
            // SAFETY: J1 - the object may run.
            drop(unsafe { patch.link() }.unwrap().commit().unwrap());
        };
        let count = || kernels.0.versions.state.lock().retired.len();
        (0..50).for_each(|_| commit());
        // The first version stays, because it has the variables.
        assert!(count() <= 1 + SWEEP_MIN, "{}", count());
    }

    #[test]
    fn a_link_that_ends_during_a_clear_is_not_counted_after_it() {
        let (jit, kernels) = committed_twice();
        let versions = &kernels.0.versions;
        versions.begin_link().unwrap();
        // The clear stops at the lock of the dylib, after it has replaced the state.
        let dylib = jit.main_dylib().inner().state.lock();
        thread::scope(|threads| {
            let clear = threads.spawn(|| versions.trackers_to_remove(jit.main_dylib()).map(drop));
            while !versions.state.lock().is_cleared {
                thread::yield_now();
            }
            assert_eq!(versions.state.lock().links_in_progress, 1);
            versions.end_link();
            drop(dylib);
            assert!(clear.join().unwrap().is_some());
        });
        assert_eq!(versions.state.lock().links_in_progress, 0);
        versions.cleared();
    }

    #[test]
    fn a_clear_of_a_version_that_is_no_longer_live_clears_no_other() {
        // The clear took its hooks before the version was retired, and asks them after it.
        let (jit, kernels) = committed_twice();
        let versions = &kernels.0.versions;
        let of_other = jit.session().create_dylib("retired").unwrap();
        assert!(versions.trackers_to_remove(&of_other).is_none());
        assert!(!versions.state.lock().is_cleared);
        let current = versions.state.lock().live.values().next().unwrap().code.dylib.clone();
        assert!(versions.trackers_to_remove(&current).is_some());
        assert!(versions.state.lock().is_cleared);
        // A clear of the patched dylib meanwhile leaves the rest to the first one.
        assert!(versions.trackers_to_remove(jit.main_dylib()).is_none());
        let count = jit.session().dylibs().len();
        versions.cleared();
        assert_eq!(jit.session().dylibs().len(), count - 1);
    }
}
