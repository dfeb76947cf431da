//! Links every object that was given, and tells all that is missing at once.
//!
//! A session links lazily: what nobody asks for stays unlinked, with its mistakes unseen. A native linker does not do
//! that, so every object is asked for here, by its own names. The order does not matter to the program: initialisers run
//! later, in the order in which objects were given.
//!
//! Threads may link in any order. So what archives supply is settled before, in the order in which objects were given.

use std::collections::BTreeSet;
use std::sync::Arc;

use jittison::link::ObjectInterface;
use jittison::platform::StaticLibraries;
use jittison::session::{DefinitionGenerator, JitDylib, RequiredState, SymbolRequest};
use jittison::{Error, ErrorKind};

/// An object as it was given.
pub struct Object {
    pub path: String,
    pub size_bytes: u64,
    pub interface: ObjectInterface,
    /// What it needs from elsewhere.
    pub required: Vec<String>,
}

/// A dylib that has archives.
pub type Supplier = (JitDylib, Arc<StaticLibraries>);

/// Has archives supply what the objects of `dylib` need: its own ahead of the others'.
pub fn pull(dylib: &JitDylib, objects: &[Object], suppliers: &[Supplier]) {
    let (own, others): (Vec<_>, Vec<_>) = suppliers.iter().partition(|(supplier, _)| supplier == dylib);
    for object in objects {
        let mut missing: Vec<&str> = object.required.iter().map(String::as_str).collect();
        missing.retain(|name| dylib.symbol_flags(name).is_none());
        for (supplier, libraries) in own.iter().chain(&others) {
            let requests: Vec<_> = missing.iter().map(|name| SymbolRequest::required(name)).collect();
            // What is wrong with an archive is told by the links that need it.
            let _ = libraries.generate(supplier, &requests);
            missing.retain(|name| supplier.symbol_flags(name).is_none());
        }
    }
}

/// Links them all into `dylib`, to which they have been added.
pub fn link_all(dylib: &JitDylib, objects: &[Object]) -> Result<(), String> {
    let mut failures = Failures::default();
    failures.link(dylib, objects);
    failures.told(objects.iter())
}

/// What went wrong, without what only went wrong because of it.
#[derive(Default)]
pub struct Failures(Vec<Error>);

impl Failures {
    /// Links what was added to `dylib`.
    pub fn link(&mut self, dylib: &JitDylib, objects: &[Object]) {
        for object in objects {
            let names = object.interface.symbols.iter().map(|symbol| symbol.name.as_str());
            self.look_up(dylib, names);
        }
        // Those that define nothing, and have initialisers.
        let nameless = dylib.pending_side_effects();
        self.look_up(dylib, nameless.iter().map(|name| name.as_str()));
    }

    /// Weak: what another object's failure took along has failed already.
    fn look_up<'a>(&mut self, dylib: &JitDylib, names: impl Iterator<Item = &'a str>) {
        let requests: Vec<_> = names.map(SymbolRequest::weak).collect();
        let failure = dylib.lookup(&requests, RequiredState::Ready).err();
        self.0.extend(failure.map(|error| error.root_cause().clone()));
    }

    /// All of it in one line; nothing if nothing went wrong.
    pub fn told<'a>(&self, objects: impl Iterator<Item = &'a Object>) -> Result<(), String> {
        let Some(first) = self.0.first() else { return Ok(()) };
        let defined: BTreeSet<&str> =
            objects.flat_map(|object| &object.interface.symbols).map(|symbol| symbol.name.as_str()).collect();
        let mut missing: Vec<String> = Vec::new();
        let mut others: Vec<String> = Vec::new();
        for error in &self.0 {
            let (told, list) = match error.kind() {
                ErrorKind::SymbolsNotFound { symbols, needed_by, .. } => {
                    // A name that an object defines is missing only because that object failed.
                    let symbols: Vec<_> = symbols.iter().filter(|name| !defined.contains(name.as_str())).collect();
                    if symbols.is_empty() {
                        continue;
                    }
                    let names: Vec<_> = symbols.iter().map(|name| format!("`{name}`")).collect();
                    let needed_by = needed_by.as_ref().map(|object| format!(" (needed by {object})"));
                    (names.join(", ") + &needed_by.unwrap_or_default(), &mut missing)
                }
                _ => (error.to_string(), &mut others),
            };
            if !list.contains(&told) {
                list.push(told);
            }
        }
        if !missing.is_empty() {
            let missing = missing.join("; ");
            others.push(format!("symbols not found in the objects, this process or its libraries: {missing}"));
        }
        Err(if others.is_empty() { first.to_string() } else { others.join("; ") })
    }
}
