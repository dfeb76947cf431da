//! [`Changes`]: bytes that an executor that shares no memory must have before it runs code: one by a network, or in a sandbox.
//!
//! | step | who |
//! |---|---|
//! | a range is taken | the window of this process, whichever thread links (`memory/copy_mapper.rs`) |
//! | all that was taken is sent, and answered | the thread that makes the next request which runs code, or that answers a question of running code |
//!
//! `sending` is held from the taking to the answer. So a second thread finds nothing to send only when the executor has what the first one
//! sent, and ranges arrive in the order in which they were taken.

use crate::sync::{HintUsize, Mutex, MutexGuard, Ordering, Queue, Rank};
use crate::wire::{Change, Request};

/// What was taken.
pub(super) struct Changes {
    /// A queue without a lock, because ranges are taken by threads that hold locks.
    pending: Queue<Change>,
    bytes: HintUsize,
    sending: Mutex<()>,
}

/// Changes to send. The next ones are taken after this is dropped.
pub(super) struct Batch<'a> {
    pub(super) changes: Vec<Change>,
    pub(super) sending: MutexGuard<'a, ()>,
}

impl Changes {
    pub(super) fn new() -> Changes {
        Changes { pending: Queue::new(), bytes: HintUsize::new(0), sending: Mutex::ranked(Rank::Growth, ()) }
    }

    pub(super) fn push(&self, change: Change) {
        self.bytes.fetch_add(size_of_bytes(&change), Ordering::Relaxed);
        self.pending.push(change);
    }

    /// Whether so much was taken that it should be sent.
    pub(super) fn are_many(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > MESSAGE_BYTES
    }

    /// The next changes for one message, or `None` if the executor has all.
    pub(super) fn take(&self) -> Option<Batch<'_>> {
        let sending = self.sending.lock();
        let (mut changes, mut bytes) = (Vec::new(), 0);
        while bytes <= MESSAGE_BYTES
            && let Some(change) = self.pending.pop()
        {
            bytes += size_of_bytes(&change);
            changes.push(change);
        }
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        (!changes.is_empty()).then_some(Batch { changes, sending })
    }
}

/// Whether code may run for a request.
pub(super) fn runs_code(request: &Request) -> bool {
    use Request::{Call, CallMain, EndProgram, RunExitHandlers, RunInitializer, RunThreadDestructors};
    matches!(
        request,
        Call { .. }
            | CallMain { .. }
            | EndProgram { .. }
            | RunExitHandlers { .. }
            | RunInitializer { .. }
            | RunThreadDestructors { .. }
    )
}

fn size_of_bytes(change: &Change) -> usize {
    match change {
        Change::Bytes { bytes, .. } => bytes.len(),
        Change::Zeroes { .. } => 0,
    }
}

/// The most bytes of one change. A message has fewer than twice as many.
pub(super) const MESSAGE_BYTES: usize = 8 << 20;
