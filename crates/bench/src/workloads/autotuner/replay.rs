//! The scenarios of workload c: a tuner offers candidates at a pace, while callers call the functions.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::callers::{self, Calls};
use super::kernels::{FUNCTIONS, templates};
use super::tuner::Tuner;
use crate::measure::competitor::JITTISON;
use crate::measure::machine::processors;
use crate::measure::scenario::{Measures, Scenario, Unit};
use crate::workloads::host::HostSession;
use crate::workloads::rows::Rows;
use crate::workloads::times::Times;

/// How long candidates arrive at each rate.
const SPAN: Duration = Duration::from_secs(4);
const QUICK_SPAN: Duration = Duration::from_millis(400);
/// How long callers are measured while no function is replaced.
const CALM: Duration = Duration::from_millis(500);

/// One variant of the workload.
struct Autotuner {
    name: &'static str,
    /// The time between two candidates.
    pace: Duration,
    span: Duration,
    /// Whether a caller stays inside a guard for so long that no version can be freed meanwhile.
    has_long_call: bool,
}

pub fn scenarios(quick: bool) -> Vec<Box<dyn Scenario>> {
    let span = if quick { QUICK_SPAN } else { SPAN };
    let variants = [
        ("c1, 10 candidates per second", 100_000, false),
        ("c2, 1,000 candidates per second", 1_000, false),
        ("c3, 10,000 candidates per second", 100, false),
        ("c4, 1,000 per second during a long call", 1_000, true),
    ];
    let make = |(name, pace, has_long_call)| -> Box<dyn Scenario> {
        Box::new(Autotuner { name, pace: Duration::from_micros(pace), span, has_long_call })
    };
    variants.into_iter().map(make).collect()
}

impl Scenario for Autotuner {
    fn title(&self) -> String {
        format!("workload c, autotuner, {}, {JITTISON}", self.name)
    }

    fn round(&mut self) -> Measures {
        let (session, templates) = (HostSession::new()?, templates()?);
        let mut tuner = Tuner::new(&session, templates, FUNCTIONS)?;
        let plain = self.plain_calls(&mut tuner)?;
        let (calm, ()) = self.with_callers(&tuner, || {
            thread::sleep(CALM);
            Ok(())
        })?;
        let count = (self.span.as_nanos() / self.pace.as_nanos()) as u32;
        let progress = tuner.progress.clone();
        let (busy, duration) =
            callers::call_during(&session, templates, &progress, self.threads(), self.has_long_call, || {
                self.candidates(&mut tuner, count)
            })?;
        tuner.wait_for_removals()?;
        let mut rows = Rows::new("workload c", JITTISON, self.name);
        rows.times_and_tail("ten calls by a plain pointer", &plain);
        report_callers(&mut rows, &calm, &busy);
        rows.value("candidates", Unit::PerSecond, f64::from(count) / duration.as_secs_f64());
        tuner.report(&mut rows);
        tuner.clear()?;
        session.check_empty()?;
        Ok(rows.finish())
    }
}

impl Autotuner {
    /// One of the processors is left for the tuner.
    fn threads(&self) -> usize {
        processors().saturating_sub(1).max(1)
    }

    fn with_callers<R>(&self, tuner: &Tuner, work: impl FnOnce() -> Result<R, String>) -> Result<(Calls, R), String> {
        callers::call_during(tuner.session, tuner.templates, &tuner.progress, self.threads(), false, work)
    }

    /// Offers `count` candidates, one per `pace`. Returns how long it took.
    fn candidates(&self, tuner: &mut Tuner, count: u32) -> Result<Duration, String> {
        let start = Instant::now();
        for number in 0..count {
            // A late candidate does not wait, so the tuner may catch up.
            thread::sleep((start + self.pace * number).saturating_duration_since(Instant::now()));
            tuner.offer()?;
        }
        Ok(start.elapsed())
    }

    /// The same number of threads as in the other phases, calling functions through plain pointers.
    fn plain_calls(&self, tuner: &mut Tuner) -> Result<Times, String> {
        let (is_over, functions) = (AtomicBool::new(false), tuner.take_first_versions());
        thread::scope(|scope| {
            let call = || callers::call_plainly(&functions, tuner.templates, &is_over);
            let threads: Vec<_> = (0..self.threads()).map(|_| scope.spawn(call)).collect();
            thread::sleep(CALM);
            is_over.store(true, Ordering::Relaxed);
            let mut all = Times::new();
            for thread in threads {
                all.merge(&thread.join().map_err(|_| "a caller panicked")??);
            }
            Ok(all)
        })
    }
}

fn report_callers(rows: &mut Rows, calm: &Calls, busy: &Calls) {
    for (when, calls) in [("nothing changes", calm), ("versions change", busy)] {
        rows.times_and_tail(&format!("ten calls by the stub in a guard, {when}"), &calls.times);
        rows.times_and_tail(&format!("a caller leaves its guard, {when}"), &calls.guard_exits);
    }
    rows.value("a caller leaves its guard, versions change, maximum", Unit::Nanoseconds, busy.guard_exits.max());
    rows.times_and_tail("from a redirect to a caller's first call of the version", &busy.switch_delays);
}
