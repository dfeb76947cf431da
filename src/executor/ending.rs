//! [`Ended`]: how the process of an executor has ended.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use crate::executor::lane::Closer;
use crate::sync::sleep;
use crate::wire::{Crash, ToController};

/// How an executor ended.
pub(super) struct Ended {
    pub(super) how: String,
    /// Its exit status, if it called `exit`.
    pub(super) status: Option<i32>,
    pub(super) crash: Option<Crash>,
}

impl Ended {
    /// A process that this one has waited for. `None`: it was killed because it did not end. `when` completes the text.
    pub(super) fn of_child(status: Option<ExitStatus>, crash: impl FnOnce() -> Option<Crash>, when: &str) -> Ended {
        let Some(status) = status else {
            return Ended { how: format!("did not end in time {when}, and was killed"), status: None, crash: None };
        };
        // A program may handle the signal and go on. Its later end is no crash then.
        let is_of = |crash: &Crash| status.signal().map(i32::unsigned_abs) == Some(crash.signal);
        let how = match (status.signal(), status.code()) {
            (Some(signal), _) => by_signal(signal.unsigned_abs()),
            (None, Some(code)) => format!("ended with status {code}"),
            (None, None) => format!("ended ({status})"),
        };
        Ended { how: format!("{how} {when}"), status: status.code(), crash: crash().filter(is_of) }
    }

    /// A process that is reached by a network, by what it has said. `called` is the status with which its code has called `exit`.
    pub(super) fn far(said: LastWords, called: Option<i32>, when: &str) -> Ended {
        let LastWords { crash, status } = said;
        let how = match (&crash, status) {
            (Some(Crash { signal, .. }), _) => by_signal(*signal),
            (None, Some(status)) => format!("ended with status {status}"),
            (None, None) => "has closed its connections".to_string(),
        };
        let status = if crash.is_some() { None } else { status.or(called) };
        Ended { how: format!("{how} {when}"), status, crash }
    }
}

/// What an executor that is reached by a network has sent before it ended.
#[derive(Default)]
pub(super) struct LastWords {
    pub(super) crash: Option<Crash>,
    /// That of `exit`.
    status: Option<i32>,
}

impl LastWords {
    /// Waits for the end of the control connection, but not for longer than [`GRACE`].
    /// Nothing was said on an encrypted one.
    pub(super) fn receive(control: &Closer) -> LastWords {
        let deadline = Some(Instant::now() + GRACE);
        let mut said = LastWords::default();
        let Some(control) = control.lane() else { return said };
        for _ in 0..REPORTS {
            match control.receive_small(deadline) {
                Ok(ToController::Crashed(crash)) => said.crash = Some(crash),
                Ok(ToController::Exited(status)) => said.status = Some(status & 0xff),
                Ok(_) | Err(_) => break,
            }
        }
        said
    }
}

/// The most messages: an exit, and a crash without and with a backtrace.
const REPORTS: usize = 3;

/// Waits for a process, and kills it after [`GRACE`]. Returns its status, and whether it was killed.
pub(super) fn wait_or_kill(child: &mut Child) -> (Option<ExitStatus>, bool) {
    let end = Instant::now() + GRACE;
    let mut pause = Duration::from_micros(100);
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return (Some(status), false),
            Ok(None) if Instant::now() < end => sleep(pause),
            Ok(None) | Err(_) => break,
        }
        pause = (pause * 2).min(Duration::from_millis(20));
    }
    (end_at_once(child), true)
}

/// Kills a process and waits for it.
pub(super) fn end_at_once(child: &mut Child) -> Option<ExitStatus> {
    // It fails only if the process has ended.
    let _ = child.kill();
    child.wait().ok()
}

fn by_signal(signal: u32) -> String {
    format!("was ended by signal {signal}{}", signal_name(signal))
}

fn signal_name(signal: u32) -> &'static str {
    match signal {
        4 => " (SIGILL)",
        5 => " (SIGTRAP)",
        6 => " (SIGABRT)",
        7 => " (SIGBUS)",
        8 => " (SIGFPE)",
        9 => " (SIGKILL)",
        11 => " (SIGSEGV)",
        15 => " (SIGTERM)",
        31 => " (SIGSYS)",
        _ => "",
    }
}

/// How long an executor may take to end.
pub(super) const GRACE: Duration = Duration::from_secs(5);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::executor::lane::Lane;

    /// What is received of these messages before the connection closes.
    fn said(messages: &[ToController]) -> LastWords {
        let (control, other) = Lane::pair().unwrap();
        let other = Lane::new(other.into());
        messages.iter().for_each(|message| other.send(message, &[]).unwrap());
        drop(other);
        LastWords::receive(&control.closer().unwrap())
    }

    #[test]
    fn the_last_report_of_a_crash_counts_and_what_is_none_is_ignored() {
        let crash = |frames: &[u64]| Crash { signal: 11, address: 16, frames: frames.to_vec() };
        let reported = |frames| ToController::Crashed(crash(frames));
        assert_eq!(said(&[]).crash, None);
        assert_eq!(said(&[reported(&[]), reported(&[1, 2])]).crash, Some(crash(&[1, 2])));
        let long = reported(&[u64::MAX; 1000]);
        assert_eq!(said(&[reported(&[]), long]).crash, Some(crash(&[])));
        let ended = Ended::far(said(&[ToController::Exited(259)]), None, "now");
        assert_eq!((ended.how.as_str(), ended.status), ("ended with status 3 now", Some(3)));
        let ended = Ended::far(said(&[ToController::Exited(1), reported(&[])]), Some(1), "now");
        assert_eq!((ended.how.as_str(), ended.status), ("was ended by signal 11 (SIGSEGV) now", None));
    }
}
