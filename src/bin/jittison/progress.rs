//! [`Progress`]: a progress line on a terminal, for links that take longer than a second.

use std::io::{IsTerminal as _, stderr};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::ProgressBar;

use crate::link_totals::LinkTotals;

/// Draws a progress line until it is dropped.
pub struct Progress {
    /// Dropped to stop the thread.
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    /// Starts to draw after a second, if standard error is a terminal.
    pub fn start(totals: Arc<LinkTotals>) -> Progress {
        if !stderr().is_terminal() {
            return Progress { stop: None, thread: None };
        }
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::spawn(move || draw(&totals, &stopped));
        Progress { stop: Some(stop), thread: Some(thread) }
    }
}

fn draw(totals: &LinkTotals, stopped: &mpsc::Receiver<()>) {
    if stopped.recv_timeout(DELAY) != Err(mpsc::RecvTimeoutError::Timeout) {
        return;
    }
    let bar = ProgressBar::new_spinner();
    while stopped.recv_timeout(TICK) == Err(mpsc::RecvTimeoutError::Timeout) {
        bar.set_message(format!("linking: {} objects and members", totals.linked.load(Relaxed)));
        bar.tick();
    }
    bar.finish_and_clear();
}

impl Drop for Progress {
    /// Joins the thread, so that it has ended before the program starts.
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

const DELAY: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(100);
