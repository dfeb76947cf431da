//! An observer that keeps what it is told.

use std::sync::{Arc, Mutex};

use jittison::base::MemoryEvent;
use jittison::{Event, Jit, Observer, ResourceKey};

/// An event, as the tests compare it.
#[derive(Debug, Clone, PartialEq)]
pub enum Told {
    Resolved { key: ResourceKey, unit: String, symbols: Vec<String> },
    Linked { key: ResourceKey, object: String, bytes: [u64; 3], reserved: u64, counts: [usize; 3] },
    Published { key: ResourceKey, symbols: Vec<String> },
    Redirected { stub: String, from: u64, to: u64 },
    Transferred { source: ResourceKey, destination: ResourceKey },
    Retired { key: ResourceKey, held: (usize, usize, usize) },
    Reclaimed { key: ResourceKey, bytes: u64, failures: usize },
    Refused { unit: String, error: String },
    Memory(MemoryEvent),
}

impl Told {
    /// The kind alone.
    pub fn kind(&self) -> &'static str {
        match self {
            Told::Resolved { .. } => "resolved",
            Told::Linked { .. } => "linked",
            Told::Published { .. } => "published",
            Told::Redirected { .. } => "redirected",
            Told::Transferred { .. } => "transferred",
            Told::Retired { .. } => "retired",
            Told::Reclaimed { .. } => "reclaimed",
            Told::Refused { .. } => "refused",
            Told::Memory(_) => "memory",
        }
    }
}

/// Keeps what it is told, but not of the process's own symbols.
#[derive(Default)]
pub struct Recorder(Mutex<Vec<Told>>);

impl Recorder {
    /// What was told since this was asked last.
    pub fn take(&self) -> Vec<Told> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    /// The same without what became of memory.
    pub fn take_of_modules(&self) -> Vec<Told> {
        self.take().into_iter().filter(|told| told.kind() != "memory").collect()
    }
}

impl Observer for Recorder {
    fn observe(&self, event: &Event<'_>) {
        let names = |names: &[jittison::base::Name]| names.iter().map(|name| name.to_string()).collect();
        let told = match *event {
            Event::Published { dylib, .. } if dylib.name() == "process" => return,
            Event::Resolved { key, unit, symbols, .. } => Told::Resolved {
                key,
                unit: unit.to_string(),
                symbols: symbols.iter().map(|owed| owed.name.to_string()).collect(),
            },
            Event::Linked { key, object, bytes, reserved, relocations, definitions, externals, elapsed, .. } => {
                assert!(elapsed.as_nanos() > 0);
                let counts = [relocations, definitions, externals];
                Told::Linked { key, object: object.to_string(), bytes, reserved, counts }
            }
            Event::Published { key, symbols, .. } => Told::Published { key, symbols: names(symbols) },
            Event::Redirected { stub, from, to, .. } => {
                Told::Redirected { stub: stub.to_string(), from: from.value(), to: to.value() }
            }
            Event::Transferred { source, destination, .. } => Told::Transferred { source, destination },
            Event::Retired { key, handles, dependants, guards, .. } => {
                Told::Retired { key, held: (handles, dependants, guards) }
            }
            Event::Reclaimed { key, bytes, failures, .. } => Told::Reclaimed { key, bytes, failures },
            Event::Refused { unit, error, .. } => Told::Refused { unit: unit.to_string(), error: error.to_string() },
            Event::Memory(event) => Told::Memory(event),
            _ => panic!("an event that no test knows: {event}"),
        };
        assert!(!event.to_string().is_empty());
        self.0.lock().unwrap().push(told);
    }
}

/// A session that is listened to.
pub fn observed() -> (Jit, Arc<Recorder>) {
    let recorder = Arc::new(Recorder::default());
    (Jit::builder().observer(recorder.clone()).build().unwrap(), recorder)
}

/// The kinds, in order.
pub fn kinds(told: &[Told]) -> Vec<&'static str> {
    told.iter().map(Told::kind).collect()
}
