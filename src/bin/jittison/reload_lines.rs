//! [`Lines`]: one line for each event of `watch`: for people or as JSON on standard error, or as JSON for the screen of `--tui`.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use jittison::base::SegmentKind;
use jittison::{MemoryStatistics, ObjectVersion, Reload};
use serde_json::{Value, json};

use crate::build::BuildFailure;
use crate::output::{escape_controls, print_error};

/// Writes the events of `watch`.
pub struct Lines {
    format: Format,
}

enum Format {
    Text,
    Json,
    /// As JSON, with the events that only the screen has, to the process that draws it.
    Screen(File),
}

/// How long a reload took, beside its own steps.
pub struct Times {
    /// From the notification of the kernel to the commit.
    pub total: Duration,
    /// The build command.
    pub build: Option<Duration>,
}

impl Lines {
    pub fn new(is_json: bool) -> Lines {
        Lines { format: if is_json { Format::Json } else { Format::Text } }
    }

    /// For a screen that reads the events from this file.
    pub fn for_screen(events: File) -> Lines {
        Lines { format: Format::Screen(events) }
    }

    /// Whether [`memory`](Self::memory) writes an event.
    pub fn shows_memory(&self) -> bool {
        matches!(self.format, Format::Screen(_))
    }

    /// The versions that are in memory, and the code memory of the session. Only for a screen.
    pub fn memory(&self, versions: &[ObjectVersion], statistics: &MemoryStatistics) {
        if self.shows_memory() {
            self.write(memory_event(versions, statistics), String::new);
        }
    }

    /// Whether standard error has nothing but events. A screen has a pane for what else is written there.
    pub fn is_json(&self) -> bool {
        matches!(self.format, Format::Json)
    }

    pub fn watching<'a>(&self, objects: impl Iterator<Item = &'a str>, sources: &[PathBuf]) {
        let objects: Vec<&str> = objects.collect();
        let sources: Vec<String> = sources.iter().map(|folder| folder.display().to_string()).collect();
        self.write(json!({ "event": "watching", "objects": objects, "sources": sources }), || {
            format!("watching {}", [objects.join(", "), sources.join(", ")].join(" ").trim_end())
        });
    }

    /// A member of an archive is linked, and will not follow.
    pub fn not_followed(&self, object: &str, reason: &str) {
        self.write(json!({ "event": "not_followed", "object": object, "error": reason }), || {
            format!("{object} does not follow: {reason}")
        });
    }

    /// `objects` are those that do not follow, none if the failure is not that of an object.
    pub fn refused(&self, objects: &[&str], error: &str) {
        let error = &*with_names_of_rust(error);
        let object = if let [object] = objects { Some(object) } else { None };
        self.write(
            json!({ "event": "refused", "object": object, "objects": objects, "error": error }),
            || match objects {
                [object] if !error.contains(object) => format!("{object}: {error}; the running code stays"),
                [] | [_] => format!("{error}; the running code stays"),
                _ => format!("{error}; the running code of {} stays", objects.join(", ")),
            },
        );
    }

    /// The output of the compiler follows as it is.
    pub fn build_failed(&self, failure: &BuildFailure) {
        let BuildFailure { status, output } = failure;
        self.write(json!({ "event": "build_failed", "status": status, "output": output }), || {
            format!("the build failed ({status}); the running code stays")
        });
        if matches!(self.format, Format::Text) {
            let _ = std::io::stderr().write_all(output.as_bytes());
        }
    }

    pub fn reloaded(&self, reload: &Reload, times: &Times) {
        let event = if reload.diff.is_empty() { "unchanged" } else { "reloaded" };
        let value = json!({
            "event": event,
            "object": reload.object,
            "version": reload.version,
            "changed": reload.diff.changed,
            "added": reload.diff.added,
            "removed": reload.diff.removed,
            "new_variables": reload.diff.new_variables,
            "removed_variables": reload.diff.removed_variables,
            "moved_variables": reload.diff.moved_variables,
            "constants_changed": reload.diff.constants_changed,
            "code_bytes_before": reload.code_bytes_before,
            "code_bytes": reload.code_bytes,
            "stays": reload.stays,
            "replaced_in_memory": reload.retired_in_memory,
            "milliseconds": {
                "total": milliseconds(times.total),
                "build": times.build.map(milliseconds),
                "read": milliseconds(reload.read_time),
                "link": milliseconds(reload.link_time),
                "commit": milliseconds(reload.commit_time),
            },
        });
        self.write(value, || match reload.diff.is_empty() {
            true => format!("{}: no function and no constant changed", reload.object),
            false => text_of(reload, times),
        });
    }

    fn write(&self, mut value: Value, text: impl Fn() -> String) {
        if matches!(self.format, Format::Screen(_)) {
            value["text"] = text().into();
        }
        let line = || format!("{value}\n");
        // Whoever reads the events may have ended.
        let _ = match &self.format {
            Format::Text => return print_error(&text()),
            Format::Json => std::io::stderr().write_all(line().as_bytes()),
            Format::Screen(events) => (&*events).write_all(line().as_bytes()),
        };
    }
}

fn memory_event(versions: &[ObjectVersion], statistics: &MemoryStatistics) -> Value {
    let (replaced, running): (Vec<&ObjectVersion>, Vec<&ObjectVersion>) =
        versions.iter().partition(|version| version.is_replaced);
    let describe = |version: &&ObjectVersion| {
        json!({
            "object": version.object,
            "version": version.version,
            "functions": version.functions,
            "code_bytes": version.code_bytes,
            "held_by": version.held_by.iter().map(|holder| with_names_of_rust(holder)).collect::<Vec<_>>(),
        })
    };
    let pools = SegmentKind::ALL.iter().zip(&statistics.pools).map(|(kind, pool)| {
        let kind = match kind {
            SegmentKind::Code => "code",
            SegmentKind::ReadOnly => "constants",
            _ => "data",
        };
        json!({ "kind": kind, "requested": pool.requested, "reserved": pool.reserved, "resident": pool.resident })
    });
    json!({
        "event": "memory",
        "objects": running.iter().map(describe).collect::<Vec<_>>(),
        "replaced": replaced.iter().take(REPLACED_SHOWN).map(describe).collect::<Vec<_>>(),
        "replaced_in_all": replaced.len(),
        "replaced_bytes": replaced.iter().map(|version| version.code_bytes).sum::<u64>(),
        "pools": pools.collect::<Vec<_>>(),
        "resident": statistics.resident_bytes + statistics.frame_table_bytes,
        "records": statistics.metadata_bytes,
    })
}

fn text_of(reload: &Reload, times: &Times) -> String {
    let line = reload.watch_line(times.total, times.build, &name_of_rust);
    escape_controls(&line)
}

/// A Rust function, without the hashes of crates. `None` for another name.
fn name_of_rust(name: &str) -> Option<String> {
    name.starts_with("_R").then(|| format!("{:#}", rustc_demangle::demangle(name)))
}

/// A text in which names between backticks are those of the source.
fn with_names_of_rust(text: &str) -> String {
    let parts = text.split('`').map(|part| name_of_rust(part).unwrap_or_else(|| part.to_string()));
    parts.collect::<Vec<_>>().join("`")
}

fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

/// The most replaced versions that the screen gets, the newest ones.
const REPLACED_SHOWN: usize = 200;
