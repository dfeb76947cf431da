//! [`NumberedTargets`]: what is behind the entries of linked code, by the number that an entry passes on.

use std::collections::HashMap;

use crate::sync::{Arc, StaticMutex};

/// Targets of entries. Every number is used once.
pub(super) struct NumberedTargets<T: ?Sized>(StaticMutex<Table<T>>);

struct Table<T: ?Sized> {
    next: u64,
    by_number: Option<HashMap<u64, Arc<T>>>,
}

impl<T: ?Sized> NumberedTargets<T> {
    pub(super) const fn new() -> NumberedTargets<T> {
        NumberedTargets(StaticMutex::new(Table { next: 1, by_number: None }))
    }

    /// Adds a target. Returns its number.
    pub(super) fn add(&self, target: Arc<T>) -> u64 {
        let mut table = self.0.lock();
        let number = table.next;
        table.next += 1;
        table.by_number.get_or_insert_default().insert(number, target);
        number
    }

    pub(super) fn find(&self, number: u64) -> Option<Arc<T>> {
        self.0.lock().by_number.as_ref().and_then(|targets| targets.get(&number).cloned())
    }

    pub(super) fn remove(&self, number: u64) {
        let target = self.0.lock().by_number.as_mut().and_then(|targets| targets.remove(&number));
        // Outside the lock: the target may own the last handle of a session.
        drop(target);
    }
}
