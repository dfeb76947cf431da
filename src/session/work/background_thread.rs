//! [`BackgroundThread`]: a thread that does one kind of work for an owner, on request.
//!
//! The first [`notify`](BackgroundThread::notify) starts the thread. The thread does the work and sleeps until the next
//! `notify`. It holds a strong reference to its owner only while it works, and ends when the owner is dropped or calls
//! [`stop`](BackgroundThread::stop).
//! After that the caller must do the work itself. A session has such a thread for
//! [`ReclaimPolicy::Background`](crate::session::ReclaimPolicy), which reclaims removed trackers. A layer that compiles in the
//! background has one too, if its session has no worker threads (`background_work.rs`).
//!
//! # Forks
//! A forked child does not have the thread of its parent. The first `notify` in the child starts another one. That thread
//! sleeps on a condition variable of its own: the parent's thread still counts as a sleeper on the old one, and a wake-up
//! there may pass the lock to it.

use crate::sync::{Arc, Condvar, Mutex, Rank, Weak, seeded_bug, spawn_detached};

#[derive(Default)]
struct WakeState {
    is_notified: bool,
    is_stopping: bool,
    thread: Option<StartedThread>,
}

/// A thread that was started, in this process or in one that forked it.
struct StartedThread {
    process: u32,
    /// Notified when there is work, and when the thread must end.
    changed: Arc<Condvar>,
}

/// The thread, which may not be started yet.
pub(crate) struct BackgroundThread {
    name: &'static str,
    wake: Mutex<WakeState>,
}

impl BackgroundThread {
    pub(crate) fn new(name: &'static str) -> Arc<BackgroundThread> {
        let wake = Mutex::ranked(Rank::Sleep, WakeState::default());
        Arc::new(BackgroundThread { name, wake })
    }

    /// Wakes or starts the thread, which does `work` for `owner`. If the system refuses a thread, this call does the
    /// work.
    pub(crate) fn notify<S: Send + Sync + 'static>(self: &Arc<BackgroundThread>, owner: &Arc<S>, work: fn(&Arc<S>)) {
        let Some(changed) = self.wake_or_register() else { return };
        let (thread, weak) = (self.clone(), Arc::downgrade(owner));
        if spawn_detached(self.name.to_string(), move || thread.run(&changed, &weak, work)).is_err() {
            self.wake.lock().thread = None;
            work(owner);
        }
    }

    /// Wakes the thread. If this process has none, registers one, which the caller starts with the result.
    fn wake_or_register(&self) -> Option<Arc<Condvar>> {
        let mut wake = self.wake.lock();
        wake.is_notified = true;
        let process = std::process::id();
        if let Some(thread) = wake.thread.as_ref().filter(|thread| thread.process == process) {
            thread.changed.notify_one();
            return None;
        }
        let changed = Arc::new(Condvar::new());
        wake.thread = Some(StartedThread { process, changed: changed.clone() });
        Some(changed)
    }

    /// The thread ends after its current work.
    pub(crate) fn stop(&self) {
        let mut wake = self.wake.lock();
        wake.is_stopping = true;
        let thread = wake.thread.as_ref().filter(|thread| thread.process == std::process::id());
        thread.into_iter().for_each(|thread| thread.changed.notify_one());
    }

    fn run<S>(&self, changed: &Condvar, owner: &Weak<S>, work: fn(&Arc<S>)) {
        while self.wait(changed) {
            let Some(owner) = owner.upgrade() else { return };
            work(&owner);
            // Seeded bug: a notification during the work is lost.
            if seeded_bug!("bell_cleared_after_the_work") {
                self.wake.lock().is_notified = false;
            }
        }
    }

    /// Waits for a notification. Returns false when the thread must end.
    fn wait(&self, changed: &Condvar) -> bool {
        let mut wake = self.wake.lock();
        while !wake.is_notified && !wake.is_stopping {
            changed.wait(&mut wake);
        }
        wake.is_notified = false;
        !wake.is_stopping
    }
}
