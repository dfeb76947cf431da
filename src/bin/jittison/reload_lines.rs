//! [`Lines`]: one line on standard error for each event of `watch`, for people or as JSON.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use jittison::Reload;
use serde_json::{Value, json};

use crate::build::BuildFailure;
use crate::output::{escape_controls, print_error};

/// Writes the events of `watch`.
pub struct Lines {
    is_json: bool,
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
        Lines { is_json }
    }

    pub fn is_json(&self) -> bool {
        self.is_json
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
        if !self.is_json {
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

    fn write(&self, value: Value, text: impl FnOnce() -> String) {
        if !self.is_json {
            return print_error(&text());
        }
        let _ = std::io::stderr().write_all(format!("{value}\n").as_bytes());
    }
}

fn text_of(reload: &Reload, times: &Times) -> String {
    let diff = &reload.diff;
    let lists = [
        ("changed", &diff.changed),
        ("added", &diff.added),
        ("removed", &diff.removed),
        ("new variables", &diff.new_variables),
        ("removed variables", &diff.removed_variables),
        ("moved variables", &diff.moved_variables),
    ];
    let mut parts: Vec<String> = lists
        .iter()
        .filter(|(_, names)| !names.is_empty())
        .map(|(what, names)| format!("{what} {}", some(names)))
        .collect();
    if diff.constants_changed {
        parts.push("constants".to_string());
    }
    let build = times.build.map(|time| format!("build {:.2}, ", milliseconds(time))).unwrap_or_default();
    let kept = match reload.retired_in_memory {
        0 => String::new(),
        1 => "; 1 replaced version in memory".to_string(),
        count => format!("; {count} replaced versions in memory"),
    };
    let line = format!(
        "{} version {}: {}; {} -> {} bytes of code; live after {:.2} ms ({build}read {:.2}, link {:.2}, commit {:.2}){kept}",
        reload.object,
        reload.version,
        parts.join("; "),
        reload.code_bytes_before,
        reload.code_bytes,
        milliseconds(times.total),
        milliseconds(reload.read_time),
        milliseconds(reload.link_time),
        milliseconds(reload.commit_time),
    );
    escape_controls(&line)
}

/// The first names of a list, and the number of the others. Of Rust functions, the shortest names: those are no instances.
fn some(names: &[String]) -> String {
    let mut readable: Vec<String> =
        names.iter().map(|name| name_of_rust(name).unwrap_or_else(|| name.clone())).collect();
    if readable != names {
        readable.sort_by_key(String::len);
    }
    match readable.len().checked_sub(SHOWN) {
        None | Some(0) => readable.join(", "),
        Some(more) => format!("{} and {more} more", readable[..SHOWN].join(", ")),
    }
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

/// The most names of a list that a line shows.
const SHOWN: usize = 8;
