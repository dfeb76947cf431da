//! The results of a run, as a table and as JSON.

use std::time::Duration;

use serde_json::{Value, json};

use crate::Mode;
use crate::histogram::Histogram;
use crate::run::{KernelResult, Summary};
use crate::suite::Defect;

/// The table; its last line sums the run up.
pub fn table(summary: &Summary) -> String {
    let mut lines = vec![heading(summary), String::new()];
    lines.extend(kernels(&summary.kernel_results));
    lines.push(String::new());
    lines.extend(switches(summary));
    lines.push(String::new());
    lines.extend(latencies(summary));
    lines.push(String::new());
    lines.extend(versions(summary));
    lines.push(String::new());
    lines.push(summary_line(summary));
    lines.join("\n")
}

fn heading(summary: &Summary) -> String {
    let Summary { callers, seconds, compiler, mode, .. } = summary;
    let plural = if *callers == 1 { "" } else { "s" };
    format!("{callers} caller{plural}, {seconds:.1} s, variants by {compiler}, mode {}", mode.name())
}

fn kernels(kernel_results: &[KernelResult; 2]) -> Vec<String> {
    let row = |name: &str, cell: &dyn Fn(&KernelResult) -> String| {
        let [gemm, stencil] = kernel_results.each_ref().map(cell);
        format!("{name:<22}{gemm:>18}{stencil:>18}")
    };
    let mut lines = vec![
        row("", &|result| result.kernel.name().to_owned()),
        row("variants", &|result| result.variants.to_string()),
        row("first, GFLOP/s", &|result| format!("{:.2}", result.first_gigaflops)),
        row("best, GFLOP/s", &|result| format!("{:.2}", result.best_gigaflops)),
        row("best over first", &|result| format!("{:.2} x", result.speedup())),
        row("calls", &|result| result.calls.to_string()),
        row("counted by globals", &|result| result.counted.to_string()),
    ];
    lines.extend(kernel_results.iter().map(|result| format!("best {}: {}", result.kernel.name(), result.best)));
    lines
}

fn switches(summary: &Summary) -> Vec<String> {
    let (all, rate) = (summary.switches(), summary.switches() as f64 / summary.seconds);
    let (commits, rollbacks) = (summary.commits, summary.rollbacks);
    let rejected = Defect::ALL.iter().zip(summary.rejected).map(|(defect, count)| format!("{count} {}", defect.name()));
    vec![
        line("switches", format!("{all}, {rate:.0} per second: {commits} commits, {rollbacks} rollbacks")),
        line("wrong results", summary.wrong.to_string()),
        line("dropped calls", summary.dropped().to_string()),
        line("rejected", rejected.collect::<Vec<_>>().join(", ")),
    ]
}

fn latencies(summary: &Summary) -> Vec<String> {
    let row = |name: &str, latencies: &Histogram| {
        let cell = |share| microseconds(latencies.quantile(share));
        let longest = microseconds(latencies.longest());
        format!("{name:<38}{:>10}{:>10}{:>10}{longest:>10}", cell(0.5), cell(0.99), cell(0.999))
    };
    vec![
        format!("{:<38}{:>10}{:>10}{:>10}{:>10}", "one call, in µs", "p50", "p99", "p99.9", "max"),
        row("while tuning, by stub, all variants", &summary.latencies.tuning),
        row("tuner at rest, by stub, the best", &summary.latencies.at_rest),
        row("the same, by plain pointer", &summary.latencies.plain),
        row("the same, tuner busy elsewhere", &summary.latencies.plain_busy),
    ]
}

fn versions(summary: &Summary) -> Vec<String> {
    let delays = &summary.freed.delays;
    let delay = |share| microseconds(delays.quantile(share));
    let (median, tail, longest) = (delay(0.5), delay(0.99), microseconds(delays.longest()));
    let freed = match summary.mode {
        Mode::NeverFree => "never, until the end of the run".to_owned(),
        _ => format!("p50 {median} µs, p99 {tail} µs, max {longest} µs"),
    };
    let kib = |bytes: u64| format!("{:.1} KiB", bytes as f64 / 1024.0);
    let memory = &summary.memory;
    let [start, tuned, end] = [memory.start, memory.tuned, memory.end].map(|at| kib(at.live_bytes));
    vec![
        line("live versions at most", format!("{}; linking waited {} times", summary.peak_versions, summary.waits)),
        line("from retired to free", freed),
        line("linked memory", format!("{start} at the start, {tuned} when tuned, {end} at the end")),
    ]
}

fn summary_line(summary: &Summary) -> String {
    let (switches, wrong, dropped) = (summary.switches(), summary.wrong, summary.dropped());
    let versions = summary.peak_versions;
    let bound = if summary.mode == Mode::NeverFree { "all kept:" } else { "at most" };
    format!("autotuner: {switches} switches, {wrong} wrong, {dropped} dropped, {bound} {versions} versions")
}

fn line(name: &str, value: String) -> String {
    format!("{name:<24}{value}")
}

fn microseconds(duration: Option<Duration>) -> String {
    duration.map_or("-".to_owned(), |duration| format!("{:.1}", duration.as_nanos() as f64 / 1_000.0))
}

impl KernelResult {
    fn speedup(&self) -> f64 {
        self.best_gigaflops / self.first_gigaflops
    }
}

/// The same as one JSON object. Durations are in microseconds and sizes in bytes, as plain numbers.
pub fn json(summary: &Summary) -> Value {
    let rejected = Defect::ALL.iter().zip(summary.rejected);
    let rejected: serde_json::Map<_, _> =
        rejected.map(|(defect, count)| (defect.name().replace(' ', "_"), json!(count))).collect();
    let kernels: serde_json::Map<_, _> = summary.kernel_results.iter().map(json_of).collect();
    json!({
        "mode": summary.mode.name(),
        "callers": summary.callers,
        "compiler": summary.compiler,
        "seconds": summary.seconds,
        "kernels": kernels,
        "switches": summary.switches(),
        "commits": summary.commits,
        "rollbacks": summary.rollbacks,
        "wrong_results": summary.wrong,
        "dropped_calls": summary.dropped(),
        "rejected": rejected,
        "latency": {
            "tuning": quantiles(&summary.latencies.tuning),
            "at_rest": quantiles(&summary.latencies.at_rest),
            "plain_pointer": quantiles(&summary.latencies.plain),
            "plain_pointer_tuner_elsewhere": quantiles(&summary.latencies.plain_busy),
        },
        "peak_versions": summary.peak_versions,
        "waits": summary.waits,
        "retired_to_free": quantiles(&summary.freed.delays),
        "linked_bytes": {
            "start": summary.memory.start.live_bytes,
            "tuned": summary.memory.tuned.live_bytes,
            "end": summary.memory.end.live_bytes,
        },
        "faults": summary.faults(),
    })
}

fn json_of(result: &KernelResult) -> (String, Value) {
    let value = json!({
        "variants": result.variants,
        "best": result.best,
        "first_gigaflops": result.first_gigaflops,
        "best_gigaflops": result.best_gigaflops,
        "calls": result.calls,
        "counted": result.counted,
    });
    (result.kernel.name().to_owned(), value)
}

fn quantiles(durations: &Histogram) -> Value {
    let value = |duration: Option<Duration>| duration.map(|duration| duration.as_nanos() as f64 / 1_000.0);
    let quantile = |share| value(durations.quantile(share));
    json!({
        "p50_us": quantile(0.5),
        "p99_us": quantile(0.99),
        "p999_us": quantile(0.999),
        "max_us": value(durations.longest()),
    })
}
