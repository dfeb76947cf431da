//! [`Event`]: what a function of Python hears of a session's work.

use std::sync::Arc;

use jittison::base::Name;
use jittison::{JitDylib, Observer, ResourceKey};
use pyo3::prelude::*;

use crate::interpreter::with_interpreter;
use crate::keep_alive::Stubs;

/// A step of a session: what `on_event` of Jit gets. str(event) is a line of text with all details.
#[pyclass(frozen, get_all, module = "jittison")]
pub(crate) struct Event {
    /// "linked", "published", "resolved", "retired", "reclaimed", "transferred", "redirected", "refused" or "memory".
    kind: &'static str,
    /// The name of the dylib. None for an event of code memory.
    dylib: Option<String>,
    /// The key of the tracker, as Tracker.key has it. None if the event is of no tracker.
    key: Option<String>,
    /// The object, the unit or the stub.
    name: Option<String>,
    /// The symbols that were resolved or published.
    symbols: Vec<String>,
    /// The bytes of code memory: of a linked object, or freed by a removal.
    bytes: u64,
    /// A line with all details, which str(event) is too.
    text: String,
}

#[pymethods]
impl Event {
    fn __str__(&self) -> &str {
        &self.text
    }

    fn __repr__(&self) -> String {
        format!("<jittison.Event: {}>", self.text)
    }
}

impl Event {
    fn new(event: &jittison::Event<'_>) -> Event {
        let names = |names: &mut dyn Iterator<Item = &Name>| names.map(|name| name.as_str().to_string()).collect();
        let text = event.to_string();
        let of = |kind, dylib: &JitDylib, key: Option<ResourceKey>| Event {
            kind,
            dylib: Some(dylib.name().to_string()),
            key: key.map(|key| key.to_string()),
            name: None,
            symbols: Vec::new(),
            bytes: 0,
            text: text.clone(),
        };
        match event {
            jittison::Event::Linked { dylib, key, object, bytes, .. } => {
                Event { name: Some(object.to_string()), bytes: bytes.iter().sum(), ..of("linked", dylib, Some(*key)) }
            }
            jittison::Event::Published { dylib, key, symbols, .. } => {
                Event { symbols: names(&mut symbols.iter()), ..of("published", dylib, Some(*key)) }
            }
            jittison::Event::Resolved { dylib, key, unit, symbols, .. } => Event {
                name: Some(unit.to_string()),
                symbols: names(&mut symbols.iter().map(|symbol| &symbol.name)),
                ..of("resolved", dylib, Some(*key))
            },
            jittison::Event::Retired { dylib, key, .. } => of("retired", dylib, Some(*key)),
            jittison::Event::Reclaimed { dylib, key, bytes, .. } => {
                Event { bytes: *bytes, ..of("reclaimed", dylib, Some(*key)) }
            }
            jittison::Event::Transferred { dylib, destination, .. } => of("transferred", dylib, Some(*destination)),
            jittison::Event::Redirected { dylib, stub, .. } => {
                Event { name: Some(stub.to_string()), ..of("redirected", dylib, None) }
            }
            jittison::Event::Refused { dylib, unit, .. } => {
                Event { name: Some(unit.to_string()), ..of("refused", dylib, None) }
            }
            _ => Event { kind: "memory", dylib: None, key: None, name: None, symbols: Vec::new(), bytes: 0, text },
        }
    }

    /// Whether it is of a dylib that the package has for itself.
    fn is_internal(&self) -> bool {
        self.dylib.as_deref().is_some_and(Stubs::is_own_name)
    }
}

/// Calls a function of Python with each event. It runs on the thread that did the step.
pub(crate) fn observer(function: Py<PyAny>) -> Arc<dyn Observer> {
    Arc::new(move |event: &jittison::Event<'_>| {
        let event = Event::new(event);
        if event.is_internal() {
            return;
        }
        with_interpreter(|py| {
            if let Err(raised) = function.call1(py, (event,)) {
                raised.write_unraisable(py, Some(function.bind(py)));
            }
        });
    })
}
