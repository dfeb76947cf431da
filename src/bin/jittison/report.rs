//! [`Report`]: the JSON that `run --report` writes: objects, time per stage, memory before, during and after, and whether the
//! removal freed everything.

use std::fs::File;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jittison::{MemoryStatistics, MemoryUsage, Removal};
use serde_json::{Value, json};

use crate::link::Object;
use crate::link_totals::LinkTotals;
use crate::process::Footprint;

/// Collects facts while the program is linked and run. It is written once, at the end.
pub struct Report {
    file: Option<File>,
    stage_began: Instant,
    stages: Vec<(&'static str, Duration)>,
    before: (MemoryStatistics, Footprint),
    linked: Option<(MemoryStatistics, Footprint)>,
    objects: Vec<Value>,
    totals: Arc<LinkTotals>,
    pub entry: String,
    pub usage: MemoryUsage,
    pub initializers_called: usize,
    pub status: Option<i32>,
    pub has_returned: bool,
}

/// What happened to the code after the program had ended.
pub enum Outcome {
    Removed(Vec<Removal>),
    /// Not removed, because threads of the program were still running in it.
    StillRunning {
        threads: usize,
    },
    Failed(String),
}

impl Report {
    pub fn new(file: Option<File>, before: MemoryStatistics, totals: Arc<LinkTotals>) -> Report {
        Report {
            file,
            stage_began: Instant::now(),
            stages: Vec::new(),
            before: (before, Footprint::read()),
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

    /// Ends a stage and begins the next one.
    pub fn end_stage(&mut self, name: &'static str) {
        let now = Instant::now();
        self.stages.push((name, now - self.stage_began));
        self.stage_began = now;
    }

    /// Records the state after the link.
    pub fn set_linked<'a>(
        &mut self,
        objects: impl Iterator<Item = &'a Object>,
        usage: MemoryUsage,
        statistics: MemoryStatistics,
    ) {
        self.objects = objects.map(object).collect();
        self.usage = usage;
        self.linked = Some((statistics, Footprint::read()));
        // The time for reading `/proc` belongs to no stage.
        self.stage_began = Instant::now();
    }

    /// Writes the report, if the user asked for one.
    pub fn write(&mut self, outcome: &Outcome, after: MemoryStatistics) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let stages: serde_json::Map<String, Value> =
            self.stages.iter().map(|(name, took)| (format!("{name}_us"), json!(took.as_secs_f64() * 1e6))).collect();
        let moments =
            [("before", Some(self.before)), ("linked", self.linked), ("after", Some((after, Footprint::read())))];
        let memory: serde_json::Map<String, Value> =
            moments.into_iter().filter_map(|(name, moment)| Some((name.to_string(), memory(moment?)))).collect();
        let report = json!({
            "objects": self.objects,
            "entry": self.entry,
            "status": self.status,
            "ended_by": self.status.map(|_| if self.has_returned { "return from the entry" } else { "exit" }),
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
    let is_everything_freed = (after.allocations, after.live_bytes, after.reserved_bytes) == (0, 0, 0);
    let (is_complete, hindrance) = match outcome {
        Outcome::Removed(removals) => match removals.iter().find(|removal| !removal.is_complete()) {
            None => (true, None),
            Some(removal) => (false, Some(format!("held by: {}", removal.obstacles().join(", ")))),
        },
        Outcome::StillRunning { threads } => {
            (false, Some(format!("{threads} threads of the program were still running")))
        }
        Outcome::Failed(problem) => (false, Some(problem.clone())),
    };
    json!({
        "is_complete": is_complete,
        "everything_returned": is_everything_freed,
        "live_bytes": after.live_bytes,
        "hindrance": hindrance,
    })
}
