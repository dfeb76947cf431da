//! Whole programs, linked and run: SQLite, CPython, clang's cc1 and others, by `benches/real_programs/run`, which builds them,
//! compares what they print, and tells how long it took. A scenario is one program with one tool, and a round of it one run of
//! the script, so that the tools go by turns here as well.
//!
//! A link is what a tool does before the program's first instruction: what a JIT linker says of itself, or the whole process of a
//! linker that writes a file. `link and run` is wall time with that of the program, and user time below it. A tool whose program
//! prints anything else than it should has no figure but a failure, with the script's words.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::machine::{Peer, said_by};
use crate::ours;
use crate::scenario::{Key, Measure, Scenario, Unit, words};
use crate::scratch::Scratch;

const GROUP: &str = "programs";

/// A column.
struct Tool {
    who: &'static str,
    /// The script's word for it.
    name: &'static str,
    program: &'static str,
    configuration: &'static str,
}

const TOOLS: [Tool; 4] = [
    Tool { who: ours::WHO, name: "jittison", program: "cargo", configuration: "jittison run" },
    Tool {
        who: "llvm-jitlink",
        name: "llvm-jitlink",
        program: "llvm-jitlink-19",
        configuration: "-show-times, with ORC's runtime: links and runs in one process",
    },
    Tool {
        who: "ld.lld",
        name: "ld.lld",
        program: "ld.lld-19",
        configuration: "as g++ calls its linker: writes an executable, which is run",
    },
    Tool { who: "GNU ld", name: "GNU-ld", program: "ld", configuration: "the same" },
];

/// Programs of these names, with `|` between them, one's variants all by the name before their slash; without names all but the
/// variants.
pub fn programs(wanted: &str) -> Result<Vec<Program>, String> {
    let programs = names()?.into_iter().filter(|name| is_wanted(name, wanted)).collect::<Vec<String>>();
    if programs.is_empty() {
        return Err(format!("no program is called {wanted}; benches/real_programs/run --list names them"));
    }
    let tools = TOOLS.iter().filter(|tool| is_there(tool)).collect::<Vec<&'static Tool>>();
    let mut all = Vec::new();
    for program in &programs {
        for tool in &tools {
            all.push(Program { name: program.clone(), tool, scratch: Scratch::new()?, is_slow: false });
        }
    }
    Ok(all)
}

/// Has the script make what the programs are linked of. Leaves out those for which something is missing, and says what: ahead of the
/// first round, when there is still time to install it.
pub fn prepare(programs: &mut Vec<Program>) {
    let mut are_there = HashMap::new();
    programs.retain(|program| *are_there.entry(program.name.clone()).or_insert_with(|| program.has_inputs()));
}

/// What the report says of the tools that are peers.
pub fn described() -> Vec<Peer> {
    let peers = TOOLS.iter().filter(|tool| tool.who != ours::WHO);
    let version = |tool: &Tool| {
        let said = said_by(tool.program, &["--version"]);
        let line = said.lines().find(|line| line.contains(|letter: char| letter.is_ascii_digit()));
        line.unwrap_or("not here").trim().to_string()
    };
    peers.map(|tool| Peer { who: tool.who, version: version(tool), configuration: tool.configuration }).collect()
}

fn names() -> Result<Vec<String>, String> {
    let output = Command::new(script()).arg("--list").output().map_err(words)?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_string).collect())
}

fn is_wanted(name: &str, wanted: &str) -> bool {
    let program = name.split('/').next().unwrap_or(name);
    if wanted.is_empty() {
        return program == name;
    }
    wanted.split('|').any(|word| [name, program].contains(&word.trim()))
}

fn is_there(tool: &Tool) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let is_found =
        tool.who == ours::WHO || std::env::split_paths(&paths).any(|directory| directory.join(tool.program).exists());
    if !is_found {
        eprintln!("skipped: {} (run benches/field/peers/install)", tool.who);
    }
    is_found
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/real_programs/run")
}

/// One of the files that the script makes.
pub fn input(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target/real_programs").join(name)
}

/// One program with one tool.
pub struct Program {
    name: String,
    tool: &'static Tool,
    scratch: Scratch,
    /// Takes so long that once is enough.
    is_slow: bool,
}

impl Scenario for Program {
    fn title(&self) -> String {
        format!("{GROUP}, {}: {}", self.name, self.tool.who)
    }

    fn round(&mut self) -> Result<Vec<Measure>, String> {
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

/// Of the script's words when it fails: what is missing and what to install, or a compiler's last word and the program's name.
const TOLD_LINES: usize = 2;

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

    /// An error is what is missing, and what to install.
    fn build_inputs(&self) -> Result<(), String> {
        let mut command = Command::new(script());
        let output = command.args(["--only", &self.name, "--tools", self.tool.name, "--build-only"]).output();
        let output = output.map_err(words)?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let lines = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<&str>>();
        Err(lines[lines.len().saturating_sub(TOLD_LINES)..].join("; "))
    }

    /// The script's sample of one run.
    fn run(&self) -> Result<Value, String> {
        let path = self.scratch.path("samples.json");
        let mut command = Command::new(script());
        command.args(["--only", &self.name, "--tools", self.tool.name, "--rounds", "1", "--json"]).arg(&path);
        let output = command.output().map_err(words)?;
        // A wrong result is 1, and told in the sample.
        if !matches!(output.status.code(), Some(0 | 1)) {
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_string());
        }
        let json = std::fs::read(&path).map_err(words)?;
        let mut report: Value = serde_json::from_slice(&json).map_err(words)?;
        Ok(report["samples"][0].take())
    }

    fn measures(&self, sample: &Value) -> Result<Vec<Measure>, String> {
        let measure = |what: &str, unit, value| Measure {
            key: Key { group: GROUP, what: format!("{}: {what}", self.name), at: None, who: self.tool.who.to_string() },
            unit,
            value,
            p99: None,
            cpu: None,
        };
        let nanoseconds = |figure| Ok::<f64, String>(number(sample, figure)? * 1e3);
        let run = measure("link and run", Unit::Nanoseconds, nanoseconds("wall_us")?);
        Ok(vec![
            measure("link", Unit::Nanoseconds, nanoseconds("link_us")?),
            Measure { cpu: Some(nanoseconds("user_us")?), ..run },
            measure("resident at most", Unit::Bytes, number(sample, "peak_rss_kb")? * 1024.0),
        ])
    }
}

fn number(sample: &Value, name: &str) -> Result<f64, String> {
    sample[name].as_f64().ok_or_else(|| format!("no figure `{name}` in {sample}"))
}

fn text<'a>(sample: &'a Value, name: &str) -> &'a str {
    sample[name].as_str().unwrap_or_default()
}
