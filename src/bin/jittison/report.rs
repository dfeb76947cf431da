//! What `run --report` writes: what was done, how long it took, what it held, and that all of it came back.

use std::fs::File;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jittison::{MemoryStatistics, MemoryUsage, Removal};
use serde_json::{Value, json};

use crate::link::Object;
use crate::observer::Totals;
use crate::process::Footprint;

/// Gathers while the program runs; written once, at its end.
pub struct Report {
    file: Option<File>,
    stage_began: Instant,
    stages: Vec<(&'static str, Duration)>,
    before: (MemoryStatistics, Footprint),
    linked: Option<(MemoryStatistics, Footprint)>,
    objects: Vec<Value>,
    totals: Arc<Totals>,
    pub entry: String,
    pub usage: MemoryUsage,
    pub initializers_called: usize,
    pub status: Option<i32>,
    pub has_returned: bool,
}

/// What became of the code when the program had ended.
pub enum Outcome {
    Removed(Vec<Removal>),
    /// Threads of the program were still running: their code cannot be taken from under them.
    RecycledVec {
        threads: usize,
    },
    Failed(String),
}

impl Report {
    pub fn new(file: Option<File>, before: MemoryStatistics, totals: Arc<Totals>) -> Report {
        Report {
            file,
            stage_began: Instant::now(),
            stages: Vec::new(),
            before: (before, Footprint::now()),
            linked: None,
            objects: Vec::new(),
            totals,
            entry: String::new(),
            usage: MemoryUsage::default(),
            initializers_called: 0,
            status: None,
            has_returned: false,
        }
    }

    /// The stage that ends now.
    pub fn stage(&mut self, name: &'static str) {
        let now = Instant::now();
        self.stages.push((name, now - self.stage_began));
        self.stage_began = now;
    }

    pub fn linked<'a>(
        &mut self,
        objects: impl Iterator<Item = &'a Object>,
        usage: MemoryUsage,
        statistics: MemoryStatistics,
    ) {
        self.objects = objects.map(object).collect();
        self.usage = usage;
        self.linked = Some((statistics, Footprint::now()));
        // Looking at `/proc` belongs to no stage.
        self.stage_began = Instant::now();
    }

    /// Writes the report, if one was asked for.
    pub fn write(&mut self, outcome: &Outcome, after: MemoryStatistics) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let stages: serde_json::Map<String, Value> =
            self.stages.iter().map(|(name, took)| (format!("{name}_us"), json!(took.as_secs_f64() * 1e6))).collect();
        let moments =
            [("before", Some(self.before)), ("linked", self.linked), ("after", Some((after, Footprint::now())))];
        let memory: serde_json::Map<String, Value> =
            moments.into_iter().filter_map(|(name, moment)| Some((name.to_string(), memory(moment?)))).collect();
        let report = json!({
            "objects": self.objects,
            "entry": self.entry,
            "status": self.status,
            "ended_by": if self.has_returned { "return from the entry" } else { "exit" },
            "initializers_called": self.initializers_called,
            "stages": stages,
            "link": self.totals.json(),
            "usage": {
                "code_bytes": self.usage.code,
                "read_only_bytes": self.usage.read_only,
                "data_bytes": self.usage.data,
                "reserved_bytes": self.usage.reserved,
                "metadata_bytes": self.usage.metadata,
            },
            "memory": memory,
            "removal": removal(outcome, &after),
        });
        let mut text = serde_json::to_string_pretty(&report)?;
        text.push('\n');
        file.write_all(text.as_bytes())
    }
}

fn object(object: &Object) -> Value {
    let symbols: Vec<&str> = object.interface.symbols.iter().map(|symbol| symbol.name.as_str()).collect();
    json!({
        "path": object.path,
        "size_bytes": object.size_bytes,
        "has_initializers": object.interface.has_initializers,
        "symbols": symbols,
    })
}

fn memory((statistics, footprint): (MemoryStatistics, Footprint)) -> Value {
    json!({
        "allocations": statistics.allocations,
        "live_bytes": statistics.live_bytes,
        "reserved_bytes": statistics.reserved_bytes,
        "opened_bytes": statistics.opened_bytes,
        "free_bytes": statistics.free_bytes,
        "free_ranges": statistics.free_ranges,
        "process_mappings": footprint.mappings,
        "process_resident_bytes": footprint.resident_bytes,
    })
}

fn removal(outcome: &Outcome, after: &MemoryStatistics) -> Value {
    let is_everything_returned = (after.allocations, after.live_bytes, after.reserved_bytes) == (0, 0, 0);
    let (is_complete, hindrance) = match outcome {
        Outcome::Removed(removals) => match removals.iter().find(|removal| !removal.is_complete()) {
            None => (true, None),
            Some(removal) => (false, Some(format!("in the way: {}", removal.obstacles().join(", ")))),
        },
        Outcome::RecycledVec { threads } => {
            (false, Some(format!("{threads} threads of the program were still running")))
        }
        Outcome::Failed(problem) => (false, Some(problem.clone())),
    };
    json!({
        "is_complete": is_complete,
        "everything_returned": is_everything_returned,
        "live_bytes": after.live_bytes,
        "hindrance": hindrance,
    })
}
