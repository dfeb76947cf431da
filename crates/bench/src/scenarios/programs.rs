//! Complete programs, linked and run: SQLite, CPython, clang's cc1 and others. `benches/real_programs/run` builds
//! them, compares their output, and reports the times. A scenario is one program with one tool. One round is one run
//! of the script, so the tools take turns here as well.
//!
//! The link time is the time before the program's first instruction: what a JIT linker reports, or the run of a
//! linker that writes a file. `link and run` is wall time including the program, with user time below it. If a
//! program prints anything but the expected output, the tool has no figure but a failure with the script's message.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::measure::competitor::{Competitor, JITTISON};
use crate::measure::machine::output_of;
use crate::measure::samples::single;
use crate::measure::scenario::{Key, Measure, Measures, Scenario, Unit, to_text};
use tempfile::TempDir;

const GROUP: &str = "programs";

/// A column.
struct Tool {
    competitor: &'static str,
    /// The script's name for it.
    name: &'static str,
    program: &'static str,
    configuration: &'static str,
}

const TOOLS: [Tool; 4] = [
    Tool { competitor: JITTISON, name: "jittison", program: "cargo", configuration: "jittison run" },
    Tool {
        competitor: "llvm-jitlink",
        name: "llvm-jitlink",
        program: "llvm-jitlink-19",
        configuration: "-show-times, with ORC's runtime: links and runs in one process",
    },
    Tool {
        competitor: "ld.lld",
        name: "ld.lld",
        program: "ld.lld-19",
        configuration: "called like g++'s linker: writes an executable, which is run",
    },
    Tool { competitor: "GNU ld", name: "GNU-ld", program: "ld", configuration: "the same" },
];

/// Programs with these names, separated by `|`. The name before the slash stands for all variants of a program.
/// Without names, all programs but not their variants.
pub fn programs(wanted: &str) -> Result<Vec<Program>, String> {
    let programs = names()?.into_iter().filter(|name| is_wanted(name, wanted)).collect::<Vec<String>>();
    if programs.is_empty() {
        return Err(format!("no program is called {wanted}; benches/real_programs/run --list names them"));
    }
    let tools = TOOLS.iter().filter(|tool| is_installed(tool)).collect::<Vec<&'static Tool>>();
    let mut all = Vec::new();
    for program in &programs {
        for tool in &tools {
            all.push(Program {
                name: program.clone(),
                tool,
                scratch: tempfile::tempdir().map_err(to_text)?,
                is_slow: false,
            });
        }
    }
    Ok(all)
}

/// Builds the inputs of the programs with the script, before the first round. Programs with missing prerequisites are
/// left out, with a message that says what to install.
pub fn prepare(programs: &mut Vec<Program>) {
    let mut have_inputs = HashMap::new();
    programs.retain(|program| *have_inputs.entry(program.name.clone()).or_insert_with(|| program.has_inputs()));
}

/// The report's description of the tools that are peers.
pub fn described() -> Vec<Competitor> {
    let peers = TOOLS.iter().filter(|tool| tool.competitor != JITTISON);
    let version = |tool: &Tool| {
        let output = output_of(tool.program, &["--version"]);
        let line = output.lines().find(|line| line.contains(|letter: char| letter.is_ascii_digit()));
        line.unwrap_or("not here").trim().to_string()
    };
    peers
        .map(|tool| Competitor { name: tool.competitor, version: version(tool), configuration: tool.configuration })
        .collect()
}

fn names() -> Result<Vec<String>, String> {
    let output = Command::new(script()).arg("--list").output().map_err(to_text)?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_string).collect())
}

fn is_wanted(name: &str, wanted: &str) -> bool {
    let program = name.split('/').next().unwrap_or(name);
    if wanted.is_empty() {
        return program == name;
    }
    wanted.split('|').any(|word| [name, program].contains(&word.trim()))
}

fn is_installed(tool: &Tool) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let is_found = tool.competitor == JITTISON
        || std::env::split_paths(&paths).any(|directory| directory.join(tool.program).exists());
    if !is_found {
        eprintln!("skipped: {} (run crates/bench/peers/install)", tool.competitor);
    }
    is_found
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/real_programs/run")
}

/// A file that the script builds.
pub fn input(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/real_programs").join(name)
}

/// One program with one tool.
pub struct Program {
    name: String,
    tool: &'static Tool,
    scratch: TempDir,
    /// It takes so long that one round is enough.
    is_slow: bool,
}

impl Scenario for Program {
    fn title(&self) -> String {
        format!("{GROUP}, {}: {}", self.name, self.tool.competitor)
    }

    fn round(&mut self) -> Measures {
        if self.is_slow {
            return Ok(Vec::new());
        }
        let sample = self.run()?;
        if sample["verdict"] != "same" {
            return Err(format!("{}: {}", text(&sample, "verdict"), text(&sample, "reason")));
        }
        self.is_slow = number(&sample, "wall_us")? > SLOW_US;
        self.measures(&sample)
    }
}

const SLOW_US: f64 = 10e6;

/// The lines of the script's error output that are shown: what is missing and what to install, or a compiler's last
/// error and the program's name.
const MESSAGE_LINES: usize = 2;

impl Program {
    pub fn name(&self) -> &str {
        &self.name
    }

    fn has_inputs(&self) -> bool {
        eprintln!("preparing {}", self.name);
        let built = self.build_inputs();
        if let Err(reason) = &built {
            eprintln!("skipped: {} ({reason})", self.name);
        }
        built.is_ok()
    }

    /// Builds the inputs. The error says what is missing and what to install.
    fn build_inputs(&self) -> Result<(), String> {
        let mut command = Command::new(script());
        let output = command.args(["--only", &self.name, "--tools", self.tool.name, "--build-only"]).output();
        let output = output.map_err(to_text)?;
        if output.status.success() {
            return Ok(());
        }
        let output = String::from_utf8_lossy(&output.stderr);
        let lines = output.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<&str>>();
        Err(lines[lines.len().saturating_sub(MESSAGE_LINES)..].join("; "))
    }

    /// The script's sample of one run.
    fn run(&self) -> Result<Value, String> {
        let path = self.scratch.path().join("samples.json");
        let mut command = Command::new(script());
        command.args(["--only", &self.name, "--tools", self.tool.name, "--rounds", "1", "--json"]).arg(&path);
        let output = command.output().map_err(to_text)?;
        // Exit status 1 means a wrong result, which the sample describes.
        if !matches!(output.status.code(), Some(0 | 1)) {
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_string());
        }
        let json = std::fs::read(&path).map_err(to_text)?;
        let mut report: Value = serde_json::from_slice(&json).map_err(to_text)?;
        Ok(report["samples"][0].take())
    }

    fn measures(&self, sample: &Value) -> Measures {
        let measure = |what: &str, unit, value| {
            let what = format!("{}: {what}", self.name);
            single(Key { group: GROUP, what, at: None, competitor: self.tool.competitor.to_string() }, unit, value)
        };
        let nanoseconds = |figure| Ok::<f64, String>(number(sample, figure)? * 1e3);
        let run = measure("link and run", Unit::Nanoseconds, nanoseconds("wall_us")?);
        Ok(vec![
            measure("link", Unit::Nanoseconds, nanoseconds("link_us")?),
            Measure { cpu: Some(nanoseconds("user_us")?), ..run },
            measure("maximum resident", Unit::Bytes, number(sample, "peak_rss_kb")? * 1024.0),
        ])
    }
}

fn number(sample: &Value, name: &str) -> Result<f64, String> {
    sample[name].as_f64().ok_or_else(|| format!("no figure `{name}` in {sample}"))
}

fn text<'a>(sample: &'a Value, name: &str) -> &'a str {
    sample[name].as_str().unwrap_or_default()
}
