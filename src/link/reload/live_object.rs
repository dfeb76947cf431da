//! [`LiveObject`]: what a plan must know about the version of an object that runs.

use std::collections::{BTreeMap, BTreeSet};

use crate::link::reload::object_file::VariableKind;
use crate::link::reload::types::Types;

/// The version of an object that runs.
#[derive(Debug, Default)]
pub(crate) struct LiveObject {
    pub(super) functions: BTreeMap<String, Print>,
    /// All sections of variables that versions have brought, also those that the newest version does not use.
    pub(super) sections: Vec<LiveSection>,
    /// The names of the variables that the newest version has.
    pub(super) variables: BTreeSet<String>,
    /// The constants that have names.
    pub(super) constants: BTreeMap<String, Constant>,
    /// A hash of all constants.
    pub(super) constants_hash: u64,
    /// The names that the object needs from others.
    pub(super) required: BTreeSet<String>,
    /// The global functions that belong to one version and have no stub, of this version and of those before.
    pub(super) private: BTreeSet<String>,
    /// The global functions of Rust that have stubs, by their names without numbers, of this version and of those before.
    pub(super) unnumbered: BTreeMap<String, BTreeSet<String>>,
    /// Whether the running executable has the first version.
    pub(super) is_native: bool,
    /// The types, of this version and of those before.
    pub(super) types: Types,
}

/// What two versions of a function are compared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Print {
    pub(super) hash: u64,
    /// Size in bytes.
    pub(super) size: u64,
    /// Whether no other object may define a function of this name.
    pub(super) is_strong: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Constant {
    pub(super) hash: u64,
    /// Size in bytes.
    pub(super) size: u64,
    /// Whether other objects may read it.
    pub(super) is_shared: bool,
}

/// A constant that other objects may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SharedConstant {
    /// A hash of its value.
    pub(crate) hash: u64,
    /// Size in bytes.
    pub(crate) size: u64,
}

/// A section of variables that is in memory.
#[derive(Debug, Clone)]
pub(super) struct LiveSection {
    /// The symbol at its start.
    pub(super) base: String,
    pub(super) name: String,
    pub(super) kind: VariableKind,
    /// Size in bytes.
    pub(super) size: u64,
    pub(super) variables: Vec<LiveVariable>,
}

/// A variable that is in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LiveVariable {
    /// The name without the number that a compiler appends to `static` variables of functions.
    pub(super) key: String,
    pub(super) is_global: bool,
    /// Offset in bytes in its section.
    pub(super) offset: u64,
    /// Size in bytes.
    pub(super) size: u64,
    /// The functions whose code refers to it.
    pub(super) users: BTreeSet<String>,
}

/// The global variables of all objects that are reloaded.
pub(crate) type Globals = BTreeMap<String, GlobalVariable>;

/// The global variable of a name, if there is one.
pub(crate) type FindGlobal<'a> = &'a dyn Fn(&str) -> Option<GlobalVariable>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GlobalVariable {
    /// Size in bytes.
    pub(super) size: u64,
    pub(super) kind: VariableKind,
}

impl LiveObject {
    /// Adds what a new version that is a part of the object leaves as it is.
    pub(super) fn add_missing(&mut self, before: &LiveObject) {
        for (name, print) in &before.functions {
            self.functions.entry(name.clone()).or_insert(*print);
        }
        for (name, constant) in &before.constants {
            self.constants.entry(name.clone()).or_insert(*constant);
        }
        for (name, signature) in &before.types.signatures {
            self.types.signatures.entry(name.clone()).or_insert(*signature);
        }
        self.variables.extend(before.variables.iter().cloned());
        self.required.extend(before.required.iter().cloned());
        self.constants_hash = before.constants_hash;
    }

    /// Whether the object has a function of this name.
    pub(crate) fn has_function(&self, name: &str) -> bool {
        self.functions.contains_key(name)
    }

    /// Whether the object needs this name from another one.
    pub(crate) fn requires(&self, name: &str) -> bool {
        self.required.contains(name)
    }

    /// Whether the object has a function of this name that no other object may define.
    pub(crate) fn defines_function(&self, name: &str) -> bool {
        self.functions.get(name).is_some_and(|print| print.is_strong)
    }

    /// Whether the object has any functions that belong to its version.
    pub(crate) fn has_any_private(&self) -> bool {
        !self.private.is_empty()
    }

    /// Whether a global function of the version belongs to it alone.
    pub(crate) fn has_private(&self, name: &str) -> bool {
        self.private.contains(name) && self.functions.contains_key(name)
    }

    /// A hash of the types of a function, if they are known. `name` is that of its symbol or of its stub.
    pub(crate) fn signature(&self, name: &str) -> Option<u64> {
        // The stub of a `static` function is `OBJECT:NAME`.
        let symbol = name.rsplit(':').next()?;
        self.types.signatures.get(symbol).map(|signature| signature.hash)
    }

    /// The size of a function in bytes.
    pub(crate) fn function_size(&self, name: &str) -> u64 {
        self.functions.get(name).map_or(0, |print| print.size)
    }

    /// The names that the object needs from others, sorted.
    pub(crate) fn required(&self) -> impl Iterator<Item = &str> {
        self.required.iter().map(String::as_str)
    }

    /// The constant of this name, if other objects may read it.
    pub(crate) fn shared_constant(&self, name: &str) -> Option<SharedConstant> {
        self.constants.get(name).and_then(Constant::shared)
    }

    /// The constants that other objects may read, sorted by name.
    pub(crate) fn shared_constants(&self) -> impl Iterator<Item = (&str, SharedConstant)> {
        self.constants.iter().filter_map(|(name, constant)| Some((name.as_str(), constant.shared()?)))
    }

    /// The number of its functions.
    pub(crate) fn function_count(&self) -> usize {
        self.functions.len()
    }

    /// The size of its functions in bytes.
    pub(crate) fn code_bytes(&self) -> u64 {
        self.functions.values().fold(0, |bytes: u64, print| bytes.saturating_add(print.size))
    }
}

impl LiveSection {
    /// Whether it has a variable of this name that a hook can move. Names of Rust have hashes, so nobody writes a hook for one.
    pub(super) fn has_movable(&self, name: &str) -> bool {
        let is_meant = |variable: &LiveVariable| !variable.is_global && variable.key == name;
        !self.kind.is_thread_local() && !name.starts_with("_R") && self.variables.iter().any(is_meant)
    }
}

impl Constant {
    fn shared(&self) -> Option<SharedConstant> {
        self.is_shared.then_some(SharedConstant { hash: self.hash, size: self.size })
    }
}
