//! [`Orc`]: ORC of LLVM 19, in its own process: `peers/orc.cpp` of this package, in two set-ups, one of them also with
//! jemalloc. A run of the program is one measurement. It prints its figures, which are [`Figures`] here.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::measure::competitor::{ORC_AS_LLJIT, ORC_AT_ITS_BEST, ORC_WITH_JEMALLOC};
use crate::measure::scenario::{Key, Measure, Unit};

/// One set-up: the program's name for it, and its column.
#[derive(Clone)]
pub struct Orc {
    program: PathBuf,
    set_up: &'static str,
    pub competitor: &'static str,
}

/// The set-ups whose program is built.
pub fn set_ups(peers: &Path) -> Vec<Orc> {
    let all =
        [("orc", "lljit", ORC_AS_LLJIT), ("orc", "best", ORC_AT_ITS_BEST), ("orc-jemalloc", "best", ORC_WITH_JEMALLOC)];
    let of = |(program, set_up, competitor)| Orc { program: peers.join(program), set_up, competitor };
    all.map(of).into_iter().filter(|orc| orc.program.exists()).collect()
}

/// The version of LLVM; `None` if the program is not built.
pub fn version(peers: &Path) -> Option<String> {
    let output = Command::new(peers.join("orc")).arg("version").output().ok()?;
    Some(format!("LLVM {}", String::from_utf8_lossy(&output.stdout).trim()))
}

impl Orc {
    /// Whether the program counts its heap allocations: only the C library's.
    pub fn counts_allocations(&self) -> bool {
        self.competitor != ORC_WITH_JEMALLOC
    }

    /// The command line that runs one mode of the program.
    pub fn command(&self, mode: &str, objects: &Path, operations: usize, live: usize) -> Command {
        let mut command = Command::new(&self.program);
        command.args([mode, "--set-up", self.set_up]).arg("--objects").arg(objects);
        command.args(["--operations", &operations.to_string(), "--live", &live.to_string()]);
        command
    }

    pub fn run(&self, mode: &str, objects: &Path, operations: usize, live: usize) -> Result<Figures, String> {
        let output = self
            .command(mode, objects, operations, live)
            .output()
            .map_err(|error| format!("{}: {error}", self.program.display()))?;
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{mode} {live}: {}: {}", output.status, message.trim()));
        }
        let figures = serde_json::from_slice(&output.stdout).map_err(|error| format!("{mode}: not JSON: {error}"))?;
        Ok(Figures(figures))
    }
}

/// The figures of one run, by the program's names.
pub struct Figures(Value);

impl Figures {
    pub fn nanoseconds(&self, name: &str, key: Key) -> Result<Measure, String> {
        self.measure(name, key, Unit::Nanoseconds)
    }

    pub fn measure(&self, name: &str, key: Key, unit: Unit) -> Result<Measure, String> {
        let figure = &self.0[name];
        let value = figure["value"].as_f64().ok_or_else(|| format!("no figure `{name}` in {}", self.0))?;
        let [mean, p99, p999, cpu] = ["mean", "p99", "p999", "cpu"].map(|part| figure[part].as_f64());
        Ok(Measure { key, unit, value, mean, p99, p999, cpu })
    }
}
