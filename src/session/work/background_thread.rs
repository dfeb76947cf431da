//! [`BackgroundThread`]: a thread that does one kind of work for an owner, on request.
//!
//! The first [`notify`](BackgroundThread::notify) starts the thread. The thread does the work and sleeps until the next
//! `notify`. It holds a strong reference to its owner only while it works, and ends when the owner is dropped or calls
//! [`stop`](BackgroundThread::stop).
//! After that the caller must do the work itself. A session has one such thread. It reclaims removed trackers under
//! [`ReclaimPolicy::Background`](crate::session::ReclaimPolicy).

use crate::sync::{Arc, Condvar, Mutex, Rank, Weak, seeded_bug, spawn_detached};

#[derive(Default)]
struct WakeState {
    is_notified: bool,
    is_running: bool,
    is_stopping: bool,
}

/// The thread, which may not be started yet.
pub(crate) struct BackgroundThread {
    name: &'static str,
    wake: Mutex<WakeState>,
    changed: Condvar,
}

impl BackgroundThread {
    pub(crate) fn new(name: &'static str) -> Arc<BackgroundThread> {
        let wake = Mutex::ranked(Rank::Sleep, WakeState::default());
        Arc::new(BackgroundThread { name, wake, changed: Condvar::new() })
    }

    /// Wakes or starts the thread, which does `work` for `owner`. If the system refuses a thread, this call does the
    /// work.
    pub(crate) fn notify<S: Send + Sync + 'static>(self: &Arc<BackgroundThread>, owner: &Arc<S>, work: fn(&Arc<S>)) {
        let mut wake = self.wake.lock();
        wake.is_notified = true;
        self.changed.notify_one();
        let is_first = !std::mem::replace(&mut wake.is_running, true);
        drop(wake);
        let (thread, weak) = (self.clone(), Arc::downgrade(owner));
        if is_first && spawn_detached(self.name.to_string(), move || thread.run(&weak, work)).is_err() {
            self.wake.lock().is_running = false;
            work(owner);
        }
    }

    /// The thread ends after its current work.
    pub(crate) fn stop(&self) {
        self.wake.lock().is_stopping = true;
        self.changed.notify_one();
    }

    fn run<S>(&self, owner: &Weak<S>, work: fn(&Arc<S>)) {
        while self.wait() {
            let Some(owner) = owner.upgrade() else { return };
            work(&owner);
            // Seeded bug: a notification during the work is lost.
            if seeded_bug!("bell_cleared_after_the_work") {
                self.wake.lock().is_notified = false;
            }
        }
    }

    /// Waits for a notification. Returns false when the thread must end.
    fn wait(&self) -> bool {
        let mut wake = self.wake.lock();
        while !wake.is_notified && !wake.is_stopping {
            self.changed.wait(&mut wake);
        }
        wake.is_notified = false;
        !wake.is_stopping
    }
}
