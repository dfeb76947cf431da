//! [`Recorder`]: an observer that records events in a form that tests can compare.

use std::sync::{Arc, Mutex};

use jittison::base::MemoryEvent;
use jittison::{Event, Jit, Observer, ResourceKey};

/// A recorded event.
#[derive(Debug, Clone, PartialEq)]
pub enum Recorded {
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

impl Recorded {
    /// The kind of the event.
    pub fn kind(&self) -> &'static str {
        match self {
            Recorded::Resolved { .. } => "resolved",
            Recorded::Linked { .. } => "linked",
            Recorded::Published { .. } => "published",
            Recorded::Redirected { .. } => "redirected",
            Recorded::Transferred { .. } => "transferred",
            Recorded::Retired { .. } => "retired",
            Recorded::Reclaimed { .. } => "reclaimed",
            Recorded::Refused { .. } => "refused",
            Recorded::Memory(_) => "memory",
        }
    }
}

/// Records all events except those about symbols of the process.
#[derive(Default)]
pub struct Recorder(Mutex<Vec<Recorded>>);

impl Recorder {
    /// The events since the last call.
    pub fn take(&self) -> Vec<Recorded> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    /// The same without memory events.
    pub fn take_of_modules(&self) -> Vec<Recorded> {
        self.take().into_iter().filter(|recorded| recorded.kind() != "memory").collect()
    }
}

impl Observer for Recorder {
    fn observe(&self, event: &Event<'_>) {
        let names = |names: &[jittison::base::Name]| names.iter().map(|name| name.to_string()).collect();
        let recorded = match *event {
            Event::Published { dylib, .. } if dylib.name() == "process" => return,
            Event::Resolved { key, unit, symbols, .. } => Recorded::Resolved {
                key,
                unit: unit.to_string(),
                symbols: symbols.iter().map(|symbol| symbol.name.to_string()).collect(),
            },
            Event::Linked { key, object, bytes, reserved, relocations, definitions, externals, elapsed, .. } => {
                assert!(elapsed.as_nanos() > 0);
                let counts = [relocations, definitions, externals];
                Recorded::Linked { key, object: object.to_string(), bytes, reserved, counts }
            }
            Event::Published { key, symbols, .. } => Recorded::Published { key, symbols: names(symbols) },
            Event::Redirected { stub, from, to, .. } => {
                Recorded::Redirected { stub: stub.to_string(), from: from.value(), to: to.value() }
            }
            Event::Transferred { source, destination, .. } => Recorded::Transferred { source, destination },
            Event::Retired { key, handles, dependants, guards, .. } => {
                Recorded::Retired { key, held: (handles, dependants, guards) }
            }
            Event::Reclaimed { key, bytes, failures, .. } => Recorded::Reclaimed { key, bytes, failures },
            Event::Refused { unit, error, .. } => {
                Recorded::Refused { unit: unit.to_string(), error: error.to_string() }
            }
            Event::Memory(event) => Recorded::Memory(event),
            _ => panic!("an unknown event: {event}"),
        };
        assert!(!event.to_string().is_empty());
        self.0.lock().unwrap().push(recorded);
    }
}

/// A session with a recorder.
pub fn observed() -> (Jit, Arc<Recorder>) {
    let recorder = Arc::new(Recorder::default());
    (Jit::builder().observer(recorder.clone()).build().unwrap(), recorder)
}

/// The kinds of the events, in order.
pub fn kinds(recorded: &[Recorded]) -> Vec<&'static str> {
    recorded.iter().map(Recorded::kind).collect()
}
