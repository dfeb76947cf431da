//! [`InitCounts`]: how often each dylib was initialised and not yet deinitialised, as a loader counts `dlopen` and `dlclose`.
//!
//! | event | counts | what the caller does |
//! |---|---|---|
//! | `increment` | the own count rises; each dylib of the link order gets one more user, once | initialises |
//! | `decrement`, not the last | the own count falls | – |
//! | the last `decrement` | each dylib that it uses has one user less | finalises those without users, the dylib first |
//! | an initialisation ends | `succeed` if it succeeded, else `undo_failed` | finalises if others have succeeded meanwhile |
//! | the dylib is removed | its own count is zero, and it uses nothing | removal finalises it, and no other dylib |
//!
//! `dlclose` unloads, so it finalises the dependencies that lose their last user. The removal of a dylib does not:
//! their code stays, and code that outlives the removed dylib may have found it by a lookup. From then on, such a
//! dependency is treated as one that only lookups have initialised. Its own removal finalises it, or the last
//! `decrement` of a dylib that uses it.
//!
//! What a dylib uses is its link order at each `increment`, not at the last `decrement`. Dylibs are known by number, because a
//! handle would keep its session alive.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::sync::Mutex;

pub(super) struct InitCounts {
    dylibs: Mutex<FxHashMap<u64, Counts>>,
}

#[derive(Default)]
struct Counts {
    /// Calls of `increment` without a `decrement`.
    own: u32,
    /// Whether an initialisation has succeeded since the count was last zero.
    has_succeeded: bool,
    /// Number of dylibs with a count that use this one. A dylib uses itself.
    users: u32,
    /// The dylibs that this one uses: dependencies first, itself last.
    uses: Vec<u64>,
}

/// The result of [`InitCounts::decrement`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decrement {
    /// The count was zero.
    NotInitialized,
    /// The count is not zero yet.
    StillInitialized,
    /// These dylibs have no user any more. Dependants come first.
    Unused(Vec<u64>),
}

impl InitCounts {
    pub(super) fn new() -> InitCounts {
        InitCounts { dylibs: Mutex::new(FxHashMap::default()) }
    }

    /// Counts one more initialisation. `order` is everything that the dylib links against, then the dylib itself.
    pub(super) fn increment(&self, dylib: u64, order: &[u64]) {
        let mut dylibs = self.dylibs.lock();
        let counts = dylibs.entry(dylib).or_default();
        counts.own += 1;
        let before = std::mem::take(&mut counts.uses);
        let (known, new): (Vec<_>, Vec<_>) = order.iter().copied().partition(|used| before.contains(used));
        debug_assert!(known.len() <= before.len());
        let unlinked = before.into_iter().filter(|used| !order.contains(used));
        counts.uses = unlinked.chain(order.iter().copied()).collect();
        for used in new {
            dylibs.entry(used).or_default().users += 1;
        }
    }

    /// Records that a counted initialisation has succeeded. Does nothing if the dylib is removed.
    pub(super) fn succeed(&self, dylib: u64) {
        if let Some(counts) = self.dylibs.lock().get_mut(&dylib).filter(|counts| counts.own > 0) {
            counts.has_succeeded = true;
        }
    }

    /// Undoes the count of an initialisation that has failed. Returns false and changes nothing if another initialisation has
    /// succeeded. Then the caller undoes the failed one as if it had succeeded: the other one may have been undone
    /// already, without finalisers, because the failed one was still counted.
    pub(super) fn undo_failed(&self, dylib: u64) -> bool {
        let mut dylibs = self.dylibs.lock();
        let Some(counts) = dylibs.get_mut(&dylib).filter(|counts| counts.own > 0) else { return true };
        if counts.has_succeeded {
            return false;
        }
        counts.own -= 1;
        if counts.own == 0 {
            // The caller finalises nothing: what was initialised before the failure stays initialised until it is removed.
            release_uses(&mut dylibs, dylib);
        }
        true
    }

    /// The dylibs that a dylib uses, itself included. Empty if its count is zero.
    pub(super) fn uses(&self, dylib: u64) -> Vec<u64> {
        self.dylibs.lock().get(&dylib).map(|counts| counts.uses.clone()).unwrap_or_default()
    }

    /// Counts one initialisation less.
    pub(super) fn decrement(&self, dylib: u64) -> Decrement {
        let mut dylibs = self.dylibs.lock();
        let Some(counts) = dylibs.get_mut(&dylib).filter(|counts| counts.own > 0) else {
            return Decrement::NotInitialized;
        };
        counts.own -= 1;
        match counts.own {
            0 => {
                counts.has_succeeded = false;
                Decrement::Unused(release_uses(&mut dylibs, dylib))
            }
            _ => Decrement::StillInitialized,
        }
    }

    /// Sets the counts of the dylibs that are not in the list to zero, because they are removed.
    pub(super) fn remove_unlisted(&self, list: impl FnOnce() -> Vec<u64>) {
        let is_counted = |(dylib, counts): (&u64, &Counts)| (counts.own > 0).then_some(*dylib);
        // Read before the list. So the list has every counted dylib that is not removed.
        let counted: Vec<_> = self.dylibs.lock().iter().filter_map(is_counted).collect();
        let listed: FxHashSet<_> = list().into_iter().collect();
        counted.into_iter().filter(|dylib| !listed.contains(dylib)).for_each(|dylib| self.remove(dylib));
    }

    /// Sets the count of a removed dylib to zero.
    pub(super) fn remove(&self, dylib: u64) {
        let mut dylibs = self.dylibs.lock();
        if let Some(counts) = dylibs.get_mut(&dylib) {
            (counts.own, counts.has_succeeded) = (0, false);
            // The caller does not finalise the unused dylibs: the removal of a dylib leaves the others as they are.
            release_uses(&mut dylibs, dylib);
        }
    }
}

/// Removes the dylib as a user of others. Returns the dylibs without users, dependants first.
fn release_uses(dylibs: &mut FxHashMap<u64, Counts>, dylib: u64) -> Vec<u64> {
    let uses = dylibs.get_mut(&dylib).map(|counts| std::mem::take(&mut counts.uses)).unwrap_or_default();
    let mut unused = Vec::new();
    for used in uses.into_iter().rev() {
        let Some(counts) = dylibs.get_mut(&used) else { continue };
        counts.users -= 1;
        if counts.users == 0 {
            unused.push(used);
            dylibs.remove(&used);
        }
    }
    unused
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dylib_with_two_users_is_unused_after_both_are_deinitialized() {
        let counts = InitCounts::new();
        [(1, &[0, 1]), (2, &[0, 2]), (1, &[0, 1])]
            .into_iter()
            .for_each(|(dylib, order)| counts.increment(dylib, order));
        assert_eq!(counts.decrement(1), Decrement::StillInitialized);
        assert_eq!(counts.decrement(1), Decrement::Unused(vec![1]));
        assert_eq!(counts.decrement(1), Decrement::NotInitialized);
        assert_eq!(counts.decrement(0), Decrement::NotInitialized, "used, but never initialised itself");
        assert_eq!(counts.decrement(2), Decrement::Unused(vec![2, 0]));
        assert_eq!(counts.dylibs.lock().len(), 0);
    }

    #[test]
    fn a_dylib_uses_what_it_linked_against_at_any_increment() {
        let counts = InitCounts::new();
        counts.increment(3, &[1, 3]);
        counts.increment(3, &[2, 3]);
        counts.decrement(3);
        assert_eq!(counts.decrement(3), Decrement::Unused(vec![3, 2, 1]));
    }

    /// Symptom: the finalisers of a dylib did not run, because it was undone while another initialisation was failing.
    #[test]
    fn a_success_that_was_undone_before_a_failure_is_finalised_with_the_failure() {
        let counts = InitCounts::new();
        // The first one fails later. The second one succeeds and is undone.
        counts.increment(1, &[0, 1]);
        counts.increment(1, &[0, 1]);
        counts.succeed(1);
        assert_eq!(counts.decrement(1), Decrement::StillInitialized);
        assert!(!counts.undo_failed(1), "finalisers are pending");
        assert_eq!(counts.decrement(1), Decrement::Unused(vec![1, 0]));
        // A later failure alone leaves nothing to finalise.
        counts.increment(1, &[0, 1]);
        assert!(counts.undo_failed(1) && counts.undo_failed(1));
        assert_eq!(counts.dylibs.lock().len(), 0);
    }

    #[test]
    fn a_success_of_a_dylib_that_another_uses_does_not_count_after_it_is_undone() {
        let counts = InitCounts::new();
        counts.increment(2, &[1, 2]);
        counts.increment(1, &[1]);
        counts.succeed(1);
        assert_eq!(counts.decrement(1), Decrement::Unused(vec![]), "the other dylib uses it");
        counts.increment(1, &[1]);
        assert!(counts.undo_failed(1));
    }

    #[test]
    fn a_removed_dylib_uses_nothing() {
        let counts = InitCounts::new();
        counts.increment(1, &[0, 1]);
        counts.increment(0, &[0]);
        counts.remove(1);
        assert_eq!(counts.decrement(0), Decrement::Unused(vec![0]));
        assert_eq!(counts.dylibs.lock().len(), 0);
    }
}
