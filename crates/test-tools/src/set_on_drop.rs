//! [`SetOnDrop`]: ends the other threads of a test, also when an assertion fails.

use std::sync::atomic::{AtomicBool, Ordering};

/// Sets a flag when it is dropped. A thread that loops until the flag is set so ends also if the test panics.
pub struct SetOnDrop<'a>(pub &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
