//! A progress line for links that take longer than a second, on terminals.

use std::io::{IsTerminal as _, stderr};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::ProgressBar;

use crate::observer::Totals;

/// Draws until it is dropped.
pub struct Progress {
    done: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    /// Begins to draw after a second, if somebody looks.
    pub fn start(totals: Arc<Totals>) -> Progress {
        if !stderr().is_terminal() {
            return Progress { done: None, thread: None };
        }
        let (done, over) = mpsc::channel();
        let thread = std::thread::spawn(move || draw(&totals, &over));
        Progress { done: Some(done), thread: Some(thread) }
    }
}

fn draw(totals: &Totals, over: &mpsc::Receiver<()>) {
    if over.recv_timeout(PATIENCE) != Err(mpsc::RecvTimeoutError::Timeout) {
        return;
    }
    let bar = ProgressBar::new_spinner();
    while over.recv_timeout(TICK) == Err(mpsc::RecvTimeoutError::Timeout) {
        bar.set_message(format!("linking: {} objects and members", totals.linked.load(Relaxed)));
        bar.tick();
    }
    bar.finish_and_clear();
}

impl Drop for Progress {
    /// The thread is gone when the program begins.
    fn drop(&mut self) {
        drop(self.done.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(100);
