//! The results of a run, as a table or as JSON.

use serde_json::{Value, json};

use crate::measure::{Footprint, Step};
use crate::run::{Summary, percentiles};

/// Prints a number of bytes with a unit.
pub fn bytes(count: u64) -> String {
    const MEBI: u64 = 1 << 20;
    match count {
        0..1024 => format!("{count} B"),
        1024..MEBI => format!("{:.1} KiB", count as f64 / 1024.0),
        _ => format!("{:.1} MiB", count as f64 / MEBI as f64),
    }
}

fn growth(start: u64, end: u64) -> String {
    if end >= start { format!("+{}", bytes(end - start)) } else { format!("-{}", bytes(start - end)) }
}

/// The table at the end of a run.
pub fn table(summary: &mut Summary, never_remove: bool) -> String {
    let mut lines = Vec::new();
    lines.push(format!(
        "{} queries on {} client{} in {:.1} s, all answers as interpreted",
        summary.queries,
        summary.clients,
        if summary.clients == 1 { "" } else { "s" },
        summary.seconds
    ));
    let (evicted, running) = summary.evictions;
    if evicted > 0 {
        lines.push(format!("{evicted} queries (with the warm-up) removed by another thread: {running} while they ran"));
    }
    lines.push(String::new());
    lines.push(format!("{:<12}{:>14}{:>14}", "step", "p50", "p99"));
    for step in Step::ALL {
        let (median, tail) = match percentiles(&mut summary.latencies, step) {
            Some((median, tail)) => (format!("{median:.1} µs"), format!("{tail:.1} µs")),
            None => ("-".to_owned(), "-".to_owned()),
        };
        lines.push(format!("{:<12}{median:>14}{tail:>14}", step.name()));
    }
    for (name, latencies) in ["Q1", "Q6"].into_iter().zip(&mut summary.full_table) {
        if let Some((median, tail)) = percentiles(latencies, Step::Run) {
            let name = format!("run {name}");
            let (median, tail) = (median / 1_000.0, tail / 1_000.0);
            lines.push(format!(
                "{name:<12}{:>14}{:>14}   over the full table",
                format!("{median:.2} ms"),
                format!("{tail:.2} ms")
            ));
        }
    }
    lines.push(String::new());
    lines.push(format!("{:<12}{:>14}{:>14}{:>14}", "", "start", "peak", "end"));
    lines.push(format!(
        "{:<12}{:>14}{:>14}{:>14}",
        "code",
        bytes(summary.code_start),
        bytes(summary.code_peak),
        bytes(summary.code_live)
    ));
    let Footprint { resident: start, mappings: maps } = summary.start;
    lines.push(format!(
        "{:<12}{:>14}{:>14}{:>14}",
        "resident",
        bytes(start),
        bytes(summary.peak.resident),
        bytes(summary.end.resident)
    ));
    lines.push(format!("{:<12}{:>14}{:>14}{:>14}", "mappings", maps, summary.peak.mappings, summary.end.mappings));
    lines.push(String::new());
    let resident = growth(start, summary.end.resident);
    lines.push(if never_remove {
        let mappings = summary.end.mappings as i64 - maps as i64;
        let code = growth(summary.code_start, summary.code_live);
        format!("nothing was removed: code {code}, resident {resident}, mappings {mappings:+}")
    } else if summary.leaks().is_empty() {
        format!("everything was removed and memory is flat: resident {resident}")
    } else {
        format!("memory was left behind: resident {resident}")
    });
    lines.join("\n")
}

/// The same as one JSON object. Sizes are in bytes and latencies in microseconds, as plain numbers.
pub fn json(summary: &mut Summary, scale: f64, seed: u64, never_remove: bool) -> Value {
    let mut latency = serde_json::Map::new();
    for step in Step::ALL {
        let value = match percentiles(&mut summary.latencies, step) {
            Some((median, tail)) => json!({ "p50_us": median, "p99_us": tail }),
            None => Value::Null,
        };
        latency.insert(step.name().to_owned(), value);
    }
    for (name, latencies) in ["run_q1", "run_q6"].into_iter().zip(&mut summary.full_table) {
        let value = match percentiles(latencies, Step::Run) {
            Some((median, tail)) => json!({ "p50_us": median, "p99_us": tail }),
            None => Value::Null,
        };
        latency.insert(name.to_owned(), value);
    }
    let footprint = |at: Footprint| json!({ "resident_bytes": at.resident, "mappings": at.mappings });
    let leaks = if never_remove { Vec::new() } else { summary.leaks() };
    json!({
        "scale": scale,
        "seed": seed,
        "queries": summary.queries,
        "clients": summary.clients,
        "evictions": { "all": summary.evictions.0, "while_running": summary.evictions.1 },
        "never_remove": never_remove,
        "seconds": summary.seconds,
        "latency": latency,
        "code_bytes": {
            "start": summary.code_start,
            "peak": summary.code_peak,
            "live": summary.code_live,
        },
        "linker_bytes": { "start": summary.linker_start, "end": summary.linker_end },
        "start": footprint(summary.start),
        "peak": footprint(summary.peak),
        "end": footprint(summary.end),
        "resident_growth_allowed": summary.tolerance(),
        "left_behind": leaks,
    })
}
