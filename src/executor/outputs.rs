//! [`Outputs`]: the output streams of an executor that are still open.

use std::time::Instant;

use crate::sync::{Arc, Condvar, Mutex, Rank};

/// The output streams that are open.
pub(super) struct Outputs {
    open: Mutex<u32>,
    closed: Condvar,
}

impl Outputs {
    pub(super) fn new(open: u32) -> Outputs {
        Outputs { open: Mutex::ranked(Rank::Leaf, open), closed: Condvar::new() }
    }

    /// Waits until all output has arrived, which a process that the executor has started may delay.
    pub(super) fn wait_until(&self, deadline: Instant) {
        let mut open = self.open.lock();
        while *open > 0 && Instant::now() < deadline {
            self.closed.wait_until(&mut open, deadline);
        }
    }
}

/// Counts an output stream as closed when it is dropped.
pub(super) struct Open(Arc<Outputs>);

impl Open {
    pub(super) fn new(outputs: Arc<Outputs>) -> Open {
        Open(outputs)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        *self.0.open.lock() -= 1;
        self.0.closed.notify_all();
    }
}
