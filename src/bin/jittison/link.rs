//! Links every object that was given, and reports the first causes of all failures together.
//!
//! A session links lazily: it would skip an object that nothing refers to, and miss the errors in it. A native linker links
//! every object. So this file looks up the symbols of each object. The order of these lookups does not matter to the
//! program: initialisers run later, in the order in which the objects were given.
//!
//! Worker threads link in any order. So all archive members that the inputs need are added before, in the order of the inputs
//! (`archives.rs`, then [`pull`]). Then the set of members, and the order of their initialisers, do not depend on the threads.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use jittison::error::FailedDefinition;
use jittison::link::ObjectInterface;
use jittison::platform::StaticLibraries;
use jittison::session::{DefinitionGenerator, JitDylib, RequiredState, SymbolRequest};
use jittison::{Error, ErrorKind};

use crate::archives::Requirements;

/// An object that was given.
pub struct Object {
    pub path: String,
    pub size_bytes: u64,
    pub interface: ObjectInterface,
    /// Whether it is the first object of its dylib that holds addresses in 32 bits. False if nobody looked for one.
    pub is_low: bool,
}

/// A dylib that has archives.
pub type Supplier = (JitDylib, Arc<StaticLibraries>);

/// Adds the archive members that the inputs of `dylib` still need: from archives of `dylib` first, then from those of the
/// others.
pub fn pull(dylib: &JitDylib, requirements: &Requirements, suppliers: &[Supplier]) {
    let (own, others): (Vec<_>, Vec<_>) = suppliers.iter().partition(|(supplier, _)| supplier == dylib);
    let mut missing = requirements.missing_in(dylib);
    for (supplier, libraries) in own.iter().chain(&others) {
        let requests: Vec<_> = missing.iter().map(|name| SymbolRequest::required(name)).collect();
        // An error of an archive is reported by each link that needs the archive.
        let _ = libraries.generate(supplier, &requests);
        missing.retain(|name| supplier.symbol_flags(name).is_none());
    }
}

/// Links all objects, which were added to `dylib`.
pub fn link_all(dylib: &JitDylib, objects: &[Object]) -> Result<(), String> {
    let mut failures = Failures::default();
    failures.link(dylib, objects);
    failures.into_result(objects.iter())
}

/// Errors of links that no lookup receives: an object failed after the addresses of its symbols were known, so nothing waited
/// for it any more.
#[derive(Clone, Default)]
pub struct Unreceived(Arc<Mutex<Vec<Error>>>);

impl Unreceived {
    pub fn push(&self, error: Error) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(error);
    }

    pub fn take(&self) -> Vec<Error> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The failures of links. Failures that only follow from another one are left out of the message.
#[derive(Default)]
pub struct Failures(Vec<Error>);

impl Failures {
    /// Links the objects, which were added to `dylib`, and collects the failures.
    pub fn link(&mut self, dylib: &JitDylib, objects: &[Object]) {
        // The memory of a dylib is near what it has already. So if one object has to be below 2 GiB, all of them are.
        let (low, others): (Vec<_>, Vec<_>) = objects.iter().partition(|object| object.is_low);
        for object in low.into_iter().chain(others) {
            let names = object.interface.symbols.iter().map(|symbol| symbol.name.as_str());
            self.look_up(dylib, names);
        }
        // Objects that define no symbol and have initialisers.
        let nameless = dylib.pending_side_effects();
        self.look_up(dylib, nameless.iter().map(|name| name.as_str()));
    }

    /// Looks up the names as weak references: a symbol that failed together with another object is then not reported again.
    fn look_up<'a>(&mut self, dylib: &JitDylib, names: impl Iterator<Item = &'a str>) {
        let requests: Vec<_> = names.map(SymbolRequest::weak).collect();
        let failure = dylib.lookup(&requests, RequiredState::Ready).err();
        self.0.extend(failure.map(|error| error.root_cause().clone()));
    }

    /// Adds errors that no lookup has received, if lookups have failed. Else they are of no consequence.
    pub fn add(&mut self, errors: Vec<Error>) {
        if !self.0.is_empty() {
            self.0.extend(errors.iter().map(|error| error.root_cause().clone()));
        }
    }

    /// The first failures in one line, and the number of the others; `Ok` if there are none.
    pub fn into_result<'a>(self, objects: impl Iterator<Item = &'a Object>) -> Result<(), String> {
        let Some(first) = self.0.first() else { return Ok(()) };
        let defined: BTreeSet<&str> =
            objects.flat_map(|object| &object.interface.symbols).map(|symbol| symbol.name.as_str()).collect();
        let (mut missing, mut others) = (List::default(), List::default());
        // An object fails because one that it refers to has failed, and was removed.
        let is_consequence = |error: &Error| matches!(error.kind(), ErrorKind::DependencyRemoved { .. });
        let has_cause = !self.0.iter().all(is_consequence);
        for error in self.0.iter().filter(|error| !(has_cause && is_consequence(error))) {
            match error.kind() {
                ErrorKind::SymbolsNotFound { symbols, needed_by, failed, .. } => {
                    // A symbol that an object defines is missing only because that object failed.
                    let failed: BTreeSet<&str> = failed.iter().map(FailedDefinition::symbol).collect();
                    let is_cause = |name: &&str| !defined.contains(name) && !failed.contains(name);
                    let mut names = List::default();
                    symbols.iter().map(String::as_str).filter(is_cause).for_each(|name| names.push(quoted(name)));
                    if !names.shown.is_empty() {
                        let needed_by = needed_by.as_ref().map(|object| format!(" (needed by {object})"));
                        missing.push(names.join(", ") + &needed_by.unwrap_or_default());
                    }
                }
                _ => others.push(error.to_string()),
            }
        }
        let mut texts: Vec<String> = Vec::new();
        if !others.shown.is_empty() {
            texts.push(others.join("; "));
        }
        if !missing.shown.is_empty() {
            let missing = missing.join("; ");
            texts.push(format!("symbols not found in the objects, this process or its libraries: {missing}"));
        }
        Err(if texts.is_empty() { first.to_string() } else { texts.join("; ") })
    }
}

/// The first few of a list of texts, each once, and the number of the others.
#[derive(Default)]
struct List {
    seen: BTreeSet<String>,
    shown: Vec<String>,
}

impl List {
    fn push(&mut self, text: String) {
        if self.seen.insert(text.clone()) && self.shown.len() < SHOWN {
            self.shown.push(text);
        }
    }

    fn join(&self, separator: &str) -> String {
        let shown = self.shown.join(separator);
        match self.seen.len() - self.shown.len() {
            0 => shown,
            more => format!("{shown} and {more} more"),
        }
    }
}

/// A name in quotes. Of a long name only the beginning.
fn quoted(name: &str) -> String {
    match name.char_indices().nth(LONGEST) {
        None => format!("`{name}`"),
        Some((end, _)) => format!("`{}…`", &name[..end]),
    }
}

/// The most elements of a list that a message shows, as in the errors of the library.
const SHOWN: usize = 8;
/// The most characters of a name that a message shows.
const LONGEST: usize = 256;
