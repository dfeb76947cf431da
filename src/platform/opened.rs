//! [`OpenDylibs`]: how often each dylib was initialised and not yet deinitialised, as a loader counts `dlopen` and `dlclose`.
//!
//! | event | counts | who acts on it |
//! |---|---|---|
//! | `open` | one more opening of the dylib; at the first, one more user of it and of all that it links against | the caller initialises |
//! | `close` that is not the last | one opening less | – |
//! | the last `close` | one user less of each of these | the caller finalises those that have none left, the dylib first |
//! | the dylib is removed | its openings are forgotten, and it uses nothing any more | removal finalises it |
//!
//! What a dylib links against is what it was at its openings, not what it is when it is closed. Dylibs are known by number:
//! a handle in here would keep its session.

use rustc_hash::FxHashMap;

use crate::sync::Mutex;

pub(super) struct OpenDylibs {
    dylibs: Mutex<FxHashMap<u64, Counts>>,
}

#[derive(Default)]
struct Counts {
    openings: u32,
    /// Open dylibs that link against this one, and itself.
    users: u32,
    /// What this one uses while it is open: itself last, dependencies first.
    uses: Vec<u64>,
}

/// What a `close` came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Closed {
    NotOpen,
    StillOpen,
    /// Nobody uses these any more: dependants first.
    Unused(Vec<u64>),
}

impl OpenDylibs {
    pub(super) fn new() -> OpenDylibs {
        OpenDylibs { dylibs: Mutex::new(FxHashMap::default()) }
    }

    /// `order` is the dylib behind all that it links against. Whether it was open before.
    pub(super) fn open(&self, dylib: u64, order: &[u64]) -> bool {
        let mut dylibs = self.dylibs.lock();
        let counts = dylibs.entry(dylib).or_default();
        let was_open = counts.openings > 0;
        counts.openings += 1;
        let before = std::mem::take(&mut counts.uses);
        let (known, new): (Vec<_>, Vec<_>) = order.iter().copied().partition(|used| before.contains(used));
        debug_assert!(known.len() <= before.len());
        let unlinked = before.into_iter().filter(|used| !order.contains(used));
        counts.uses = unlinked.chain(order.iter().copied()).collect();
        for used in new {
            dylibs.entry(used).or_default().users += 1;
        }
        was_open
    }

    /// The dylib and what it uses; none when it is not open.
    pub(super) fn uses(&self, dylib: u64) -> Vec<u64> {
        self.dylibs.lock().get(&dylib).map(|counts| counts.uses.clone()).unwrap_or_default()
    }

    pub(super) fn close(&self, dylib: u64) -> Closed {
        let mut dylibs = self.dylibs.lock();
        let Some(counts) = dylibs.get_mut(&dylib).filter(|counts| counts.openings > 0) else { return Closed::NotOpen };
        counts.openings -= 1;
        match counts.openings {
            0 => Closed::Unused(release(&mut dylibs, dylib)),
            _ => Closed::StillOpen,
        }
    }

    /// The dylib is gone.
    pub(super) fn forget(&self, dylib: u64) {
        let mut dylibs = self.dylibs.lock();
        if let Some(counts) = dylibs.get_mut(&dylib) {
            counts.openings = 0;
            release(&mut dylibs, dylib);
        }
    }
}

/// The dylib uses nothing any more. Those that nobody uses now, dependants first.
fn release(dylibs: &mut FxHashMap<u64, Counts>, dylib: u64) -> Vec<u64> {
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
    fn a_dylib_that_two_use_is_unused_when_both_are_closed() {
        let open = OpenDylibs::new();
        assert!(!open.open(1, &[0, 1]) && !open.open(2, &[0, 2]) && open.open(1, &[0, 1]));
        assert_eq!(open.close(1), Closed::StillOpen);
        assert_eq!(open.close(1), Closed::Unused(vec![1]));
        assert_eq!(open.close(1), Closed::NotOpen);
        assert_eq!(open.close(0), Closed::NotOpen, "used, and never opened");
        assert_eq!(open.close(2), Closed::Unused(vec![2, 0]));
        assert_eq!(open.dylibs.lock().len(), 0);
    }

    #[test]
    fn what_was_linked_against_since_is_used_too_and_what_is_not_any_more_still_is() {
        let open = OpenDylibs::new();
        open.open(3, &[1, 3]);
        open.open(3, &[2, 3]);
        open.close(3);
        assert_eq!(open.close(3), Closed::Unused(vec![3, 2, 1]));
    }

    #[test]
    fn a_removed_dylib_uses_nothing() {
        let open = OpenDylibs::new();
        open.open(1, &[0, 1]);
        open.open(0, &[0]);
        open.forget(1);
        assert_eq!(open.close(0), Closed::Unused(vec![0]));
        assert_eq!(open.dylibs.lock().len(), 0);
    }
}
