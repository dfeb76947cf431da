//! The end of [`Versions`]: by its own removal, or by its [`ClearHook`] when the patched dylib, or the dylib of a version, is
//! cleared. The head of `versions.rs` says what is removed and why.

use std::collections::BTreeSet;

use crate::error::Result;
use crate::jit::patching::versions::state::LiveVersion;
use crate::jit::patching::versions::{Versions, keep_for, pin_for_late_bindings};
use crate::session::{ClearHook, JitDylib, Removal, ResourceTracker};
use crate::sync::{Arc, Ordering};

impl Versions {
    /// Removes the stubs, all versions and their variables as one batch.
    pub(in crate::jit::patching) fn remove(self: &Arc<Self>) -> Result<Vec<Removal>> {
        let trackers = {
            // Under the lock, so that one thread alone takes the versions.
            let _guard = self.lock()?;
            self.trackers_to_remove(&self.dylib).ok_or_else(|| self.gone())?
        };
        self.dylib.detach(&**self);
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
            if self.is_cleared() {
                return None;
            }
            // The dylib of a version whose commit failed, or that was retired, while this thread waited for the lock.
            // Its clear removes nothing else.
            if *dylib != self.dylib && !state.live.values().any(|version| version.code.dylib == *dylib) {
                return None;
            }
            // Release pairs with the load of `is_cleared`.
            self.is_cleared.store(true, Ordering::Release);
            state.clear()
        };
        // No pin: the stubs are reclaimed, so no caller is left.
        if let Some(stubs) = state.stubs.as_ref().and_then(|stubs| stubs.watch().pin()) {
            let current: BTreeSet<u64> = state.current.values().copied().collect();
            let current = current.iter().filter_map(|number| state.live[number].code.pin.as_ref());
            current.chain(&state.redirect_targets).for_each(|version| keep_for(&stubs, version));
        }
        let mut trackers: Vec<_> = state.stubs.into_iter().collect();
        let jit = self.jit.upgrade();
        let mut dylibs: Vec<_> = jit.iter().filter_map(|jit| self.take_spare(jit)).map(|spare| spare.dylib).collect();
        for LiveVersion { code, variables, .. } in state.live.into_values() {
            if let Some(jit) = &jit {
                pin_for_late_bindings(&jit.session, code.pin.as_ref());
            }
            dylibs.push(code.dylib);
            trackers.push(code.tracker);
            trackers.extend(variables);
        }
        trackers.extend(state.retired_variables.into_iter().map(|(_, variables)| variables));
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
    use crate::base::steps_of;
    use crate::host::Function;
    use crate::jit::inner::Jit;
    use crate::jit::patching::patchable::Patchable;
    use crate::jit::patching::versions::state::SWEEP_MIN;
    use crate::link::{GraphBuilder, NewBlock, NewSymbol};

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

    /// A version of `f` that is a graph without variables, committed. Returns a handle that keeps the version.
    fn commit_graph(kernels: &Patchable) -> Function<extern "C" fn()> {
        let mut graph = GraphBuilder::new("f");
        let code = graph.add_block(NewBlock::code(vec![0xc3; 16]));
        graph.add_symbol(NewSymbol::function("f", code, 0));
        let mut patch = kernels.patch();
        patch.add_graph(graph.finish().unwrap());
        // SAFETY: J1 - the function has this signature, and nothing has initialisers.
        let prepared = unsafe { patch.link() }.unwrap();
        // SAFETY: J1 - the function has this signature.
        let handle = unsafe { prepared.lookup("f") }.unwrap();
        drop(prepared.commit().unwrap());
        handle
    }

    #[test]
    fn versions_that_are_gone_are_forgotten() {
        let jit = Jit::new().unwrap();
        let kernels = jit.patchable_builder(jit.main_dylib(), &["f"]).history(0).build().unwrap();
        (0..10 * SWEEP_MIN).for_each(|_| drop(commit_graph(&kernels)));
        let count = kernels.0.versions.state.lock().retired.len();
        assert!(count <= SWEEP_MIN, "{count}");
    }

    #[test]
    fn commits_visit_few_versions_however_many_are_in_use() {
        let jit = Jit::new().unwrap();
        let builder = jit.patchable_builder(jit.main_dylib(), &["f"]).history(0);
        let kernels = builder.max_versions(usize::MAX).build().unwrap();
        let commits = 400;
        let mut handles = Vec::new();
        let steps = steps_of(|| handles.extend((0..commits).map(|_| commit_graph(&kernels))));
        assert_eq!(kernels.versions().len(), commits);
        let others = steps_of(|| handles.extend((0..commits).map(|_| commit_graph(&kernels))));
        // Each number of versions at which they are visited is about twice the one before.
        assert!(others < 2 * steps, "{steps} steps, then {others}");
    }

    #[test]
    fn a_dylib_forgets_functions_that_were_removed() {
        let (jit, kernels) = committed_twice();
        let count = || jit.main_dylib().inner().state.lock().clear_hooks.len();
        assert_eq!(count(), 1);
        drop(kernels.remove().unwrap());
        assert_eq!(count(), 0);
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
            while !versions.is_cleared() {
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
        assert!(!versions.is_cleared());
        let current = versions.state.lock().live.values().next().unwrap().code.dylib.clone();
        assert!(versions.trackers_to_remove(&current).is_some());
        assert!(versions.is_cleared());
        // A clear of the patched dylib meanwhile leaves the rest to the first one.
        assert!(versions.trackers_to_remove(jit.main_dylib()).is_none());
        let count = jit.session().dylibs().len();
        versions.cleared();
        assert_eq!(jit.session().dylibs().len(), count - 1);
    }
}
