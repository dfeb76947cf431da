//! The competitor ORC of LLVM 19, in its own process: `peers/orc.cpp`, in two set-ups. This file runs the program
//! once per figure and round, and puts its output into the rows.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use serde_json::Value;

use crate::measure::machine::Peer;
use crate::measure::rows::{self, Row};
use crate::measure::scenario::{Key, Measure, Scenario, Unit};
use crate::measure::workload::{MAX_MAPPED, Workload};
use crate::peers::ours::{LIVE_WHILE_GROWING, against_a_thousand};
use crate::scenarios::registry::scenario;

type Measures = Result<Vec<Measure>, String>;

pub const AS_LLJIT: &str = "ORC as LLJIT";
pub const AT_ITS_BEST: &str = "ORC at its best";

/// One set-up: the program's name for it, and its column.
#[derive(Clone)]
pub struct Orc {
    program: PathBuf,
    set_up: &'static str,
    pub competitor: &'static str,
}

/// Both set-ups; empty if the program is not built.
pub fn set_ups(peers: &Path) -> Vec<Orc> {
    let program = peers.join("orc");
    let of = |(set_up, competitor)| Orc { program: program.clone(), set_up, competitor };
    if program.exists() { [("lljit", AS_LLJIT), ("best", AT_ITS_BEST)].map(of).into() } else { Vec::new() }
}

/// Empty, with a message, if the program is not built.
pub fn scenarios(workload: &Rc<Workload>, peers: &Path) -> Vec<Box<dyn Scenario>> {
    let set_ups = set_ups(peers);
    if set_ups.is_empty() {
        eprintln!("skipped: ORC (run crates/bench/peers/install and build)");
    }
    set_ups.iter().flat_map(|orc| scenarios_of(workload, orc)).collect()
}

fn scenarios_of(workload: &Rc<Workload>, orc: &Orc) -> Vec<Box<dyn Scenario>> {
    let of = |group, round: fn(&Orc, &Workload) -> Measures| {
        let orc = orc.clone();
        scenario(group, orc.competitor, workload, move |workload| round(&orc, workload))
    };
    vec![
        of("link, small", Orc::link_small),
        of("link, medium", Orc::link_medium),
        of("remove", Orc::remove),
        of("churn", Orc::churn),
        of("threads", Orc::threads),
        of("lookup", Orc::lookups),
        of("patch, swap", Orc::swaps),
        of("dylib", Orc::dylibs),
        of("memory manager", Orc::memory_manager),
        of("memory, live", Orc::memory),
        of("memory, growth", Orc::growth),
    ]
}

/// The report's description of the two set-ups.
pub fn described(peers: &Path) -> Vec<Peer> {
    let Ok(output) = Command::new(peers.join("orc")).arg("version").output() else { return Vec::new() };
    let version = format!("LLVM {}", String::from_utf8_lossy(&output.stdout).trim());
    let of = |competitor, configuration| Peer { competitor, version: version.clone(), configuration };
    vec![
        of(
            AS_LLJIT,
            "InProcessMemoryManager, EHFrameRegistrationPlugin with EPCEHFrameRegistrar; no IR layer, no platform",
        ),
        of(
            AT_ITS_BEST,
            "MapperJITLinkMemoryManager with slabs of 64 MiB, .eh_frame dropped (exceptions cannot pass through the code), \
             each object parsed once, glibc keeps its memory, names interned before lookups",
        ),
    ]
}

impl Orc {
    fn link_small(&self, workload: &Workload) -> Measures {
        let figures = self.run("link", workload.small_file()?, workload.sizes.small_links, 0)?;
        Ok(vec![
            nanoseconds(&figures, "add", self.row(&rows::LINK_SMALL))?,
            nanoseconds(&figures, "remove", self.row(&rows::REMOVE_SMALL))?,
            measure(&figures, "allocations", self.row(&rows::ALLOCATIONS), Unit::Count)?,
        ])
    }

    fn link_medium(&self, workload: &Workload) -> Measures {
        let keys = [self.row(&rows::LINK_MEDIUM), self.row(&rows::REMOVE_MEDIUM)];
        let mut measures = self.links(workload.medium_file()?, workload.sizes.medium_links, keys)?;
        let (live, replaced) = workload.sizes.medium_replaced();
        let figures = self.run("remove", workload.medium_file()?, replaced, live)?;
        measures.push(nanoseconds(&figures, "link", self.row(&rows::MEDIUM_AGAIN))?);
        Ok(measures)
    }

    /// Links of the objects in a file, and their removals.
    pub fn links(&self, objects: &Path, count: usize, [link, remove]: [Key; 2]) -> Measures {
        let figures = self.run("link", objects, count, 0)?;
        Ok(vec![nanoseconds(&figures, "add", link)?, nanoseconds(&figures, "remove", remove)?])
    }

    fn remove(&self, workload: &Workload) -> Measures {
        self.removals(workload, workload.small_file()?)
    }

    /// Removals of the objects in a file.
    pub fn removals(&self, workload: &Workload, objects: &Path) -> Measures {
        let mut measures = Vec::new();
        for live in workload.sizes.removals_beside.iter().filter(|live| **live <= MAX_MAPPED) {
            let figures = self.run("remove", objects, workload.sizes.removals, *live)?;
            measures.push(nanoseconds(&figures, "remove", rows::REMOVE.at(*live, self.competitor))?);
            measures.push(nanoseconds(&figures, "link", rows::LINK_BESIDE.at(*live, self.competitor))?);
        }
        measures.extend(against_a_thousand(&measures, self.competitor));
        Ok(measures)
    }

    fn churn(&self, workload: &Workload) -> Measures {
        self.churns(workload, workload.small_file()?)
    }

    /// Replacements of the objects in a file.
    pub fn churns(&self, workload: &Workload, objects: &Path) -> Measures {
        let mut measures = Vec::new();
        for live in workload.sizes.churns_of {
            let figures = self.run("churn", objects, workload.sizes.churns, *live)?;
            measures.push(measure(&figures, "rate", rows::CHURN_RATE.at(*live, self.competitor), Unit::PerSecond)?);
            measures.push(nanoseconds(&figures, "operation", rows::CHURN.at(*live, self.competitor))?);
        }
        Ok(measures)
    }

    fn threads(&self, workload: &Workload) -> Measures {
        let figures = self.run("threads", workload.small_file()?, workload.sizes.thread_churns, 0)?;
        Ok(vec![
            measure(&figures, "one", self.row(&rows::ONE_THREAD), Unit::PerSecond)?,
            measure(&figures, "two", self.row(&rows::TWO_THREADS), Unit::PerSecond)?,
            measure(&figures, "ratio", self.row(&rows::THREADS), Unit::Ratio)?,
        ])
    }

    fn lookups(&self, workload: &Workload) -> Measures {
        let mut measures = Vec::new();
        for symbols in workload.sizes.lookups_among {
            let figures = self.run("lookup", workload.small_file()?, workload.sizes.lookups, *symbols)?;
            measures.push(nanoseconds(&figures, "one", rows::LOOKUP.at(*symbols, self.competitor))?);
            measures.push(nanoseconds(&figures, "two", rows::LOOKUP_TWO.at(*symbols, self.competitor))?);
            measures.push(measure(&figures, "ratio", rows::LOOKUP_THREADS.at(*symbols, self.competitor), Unit::Ratio)?);
        }
        Ok(measures)
    }

    fn swaps(&self, workload: &Workload) -> Measures {
        let figures = self.run("swap", workload.small_file()?, workload.sizes.swaps, 0)?;
        Ok(vec![
            nanoseconds(&figures, "redirect", self.row(&rows::REDIRECT))?,
            nanoseconds(&figures, "swap", self.row(&rows::SWAP))?,
        ])
    }

    fn dylibs(&self, workload: &Workload) -> Measures {
        let figures = self.run("dylib", workload.small_file()?, workload.sizes.swaps, 0)?;
        Ok(vec![
            nanoseconds(&figures, "dylib", self.row(&rows::DYLIB))?,
            nanoseconds(&figures, "tracker", self.row(&rows::TRACKER))?,
        ])
    }

    fn memory_manager(&self, workload: &Workload) -> Measures {
        let figures = self.run("manager", workload.small_file()?, workload.sizes.swaps, 0)?;
        Ok(vec![nanoseconds(&figures, "manager", self.row(&rows::MANAGER))?])
    }

    fn memory(&self, workload: &Workload) -> Measures {
        let mut measures = Vec::new();
        for live in workload.sizes.residents.iter().filter(|live| **live <= MAX_MAPPED) {
            let figures = self.run("resident", workload.small_file()?, 0, *live)?;
            measures.push(measure(&figures, "bytes", rows::RESIDENT.at(*live, self.competitor), Unit::Bytes)?);
            measures.push(measure(&figures, "left", rows::LEFTOVER.at(*live, self.competitor), Unit::Bytes)?);
            measures.push(measure(&figures, "mappings", rows::MAPPINGS.at(*live, self.competitor), Unit::Count)?);
        }
        Ok(measures)
    }

    fn growth(&self, workload: &Workload) -> Measures {
        let figures = self.run("growth", workload.small_file()?, workload.sizes.churns, LIVE_WHILE_GROWING)?;
        Ok(vec![measure(&figures, "growth", self.row(&rows::GROWTH), Unit::Bytes)?])
    }

    fn row(&self, row: &Row) -> Key {
        row.by(self.competitor)
    }

    /// The command line that runs one mode of the program.
    pub fn command(&self, mode: &str, objects: &Path, operations: usize, live: usize) -> Command {
        let mut command = Command::new(&self.program);
        command.args([mode, "--set-up", self.set_up]).arg("--objects").arg(objects);
        command.args(["--operations", &operations.to_string(), "--live", &live.to_string()]);
        command
    }

    fn run(&self, mode: &str, objects: &Path, operations: usize, live: usize) -> Result<Value, String> {
        let output = self
            .command(mode, objects, operations, live)
            .output()
            .map_err(|error| format!("{}: {error}", self.program.display()))?;
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{mode} {live}: {}: {}", output.status, message.trim()));
        }
        serde_json::from_slice(&output.stdout).map_err(|error| format!("{mode}: not JSON: {error}"))
    }
}

fn nanoseconds(figures: &Value, name: &str, key: Key) -> Result<Measure, String> {
    measure(figures, name, key, Unit::Nanoseconds)
}

fn measure(figures: &Value, name: &str, key: Key, unit: Unit) -> Result<Measure, String> {
    let figure = &figures[name];
    let value = figure["value"].as_f64().ok_or_else(|| format!("no figure `{name}` in {figures}"))?;
    Ok(Measure { key, unit, value, p99: figure["p99"].as_f64(), cpu: figure["cpu"].as_f64() })
}
