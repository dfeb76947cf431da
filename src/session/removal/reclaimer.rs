//! [`Reclaimer`]: the thread that gives back what was removed, under
//! [`ReclaimPolicy::Background`](crate::session::ReclaimPolicy).
//!
//! Started when there is work for the first time. It sleeps on a bell: who queues a tracker rings. It holds the session only
//! while it works, and ends when the session does; what is queued from then on is reclaimed by whoever queues it.

use crate::session::core::execution_session::SessionInner;
use crate::sync::{Arc, Condvar, Mutex, Rank, Weak, seeded_bug, spawn_detached};

#[derive(Default)]
struct WakeState {
    is_rung: bool,
    is_answered: bool,
    is_stopping: bool,
}

pub(crate) struct Reclaimer {
    bell: Mutex<WakeState>,
    changed: Condvar,
}

impl Reclaimer {
    pub(crate) fn new() -> Arc<Reclaimer> {
        Arc::new(Reclaimer { bell: Mutex::ranked(Rank::Sleep, WakeState::default()), changed: Condvar::new() })
    }

    /// Has the thread look at what is queued. If the system refuses a thread, this one does the work.
    pub(crate) fn ring(self: &Arc<Reclaimer>, session: &Arc<SessionInner>) {
        let mut bell = self.bell.lock();
        bell.is_rung = true;
        self.changed.notify_one();
        let is_first = !std::mem::replace(&mut bell.is_answered, true);
        drop(bell);
        let (reclaimer, weak) = (self.clone(), Arc::downgrade(session));
        if is_first && spawn_detached("jittison-reclaim".to_string(), move || reclaimer.answer(&weak)).is_err() {
            self.bell.lock().is_answered = false;
            session.reclaim_deferred();
        }
    }

    /// Lets the thread end.
    pub(crate) fn stop(&self) {
        self.bell.lock().is_stopping = true;
        self.changed.notify_one();
    }

    fn answer(&self, session: &Weak<SessionInner>) {
        while self.wait() {
            let Some(session) = session.upgrade() else { return };
            session.reclaim_deferred();
            // Seeded bug: what was rung for meanwhile is forgotten.
            if seeded_bug!("bell_cleared_after_the_work") {
                self.bell.lock().is_rung = false;
            }
        }
    }

    /// Waits for the bell; false when it is time to end.
    fn wait(&self) -> bool {
        let mut bell = self.bell.lock();
        while !bell.is_rung && !bell.is_stopping {
            self.changed.wait(&mut bell);
        }
        bell.is_rung = false;
        !bell.is_stopping
    }
}
