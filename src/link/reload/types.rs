//! [`Types`]: the types that versions of an object know, so that one is refused which would read memory of another one as something
//! else.
//!
//! | recorded | by | compared because |
//! |---|---|---|
//! | the layout of a type | its path | objects of it exist |
//! | the types of the parameters and of the result of a function | its symbol | a loop that runs goes on calling it |
//! | the type of a variable | its symbol | it keeps its value |
//!
//! A layout has the names of the types of its fields, whose layouts are recorded too. Objects without debug information have none of
//! this.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher as _};

use rustc_hash::FxHashMap;

use crate::link::reload::refusal::Refusal;

/// What debug information says of types.
#[derive(Debug, Default)]
pub(super) struct Types {
    /// By the path of the type.
    pub(super) layouts: BTreeMap<String, Layout>,
    pub(super) signatures: FxHashMap<String, Signature>,
    /// The types of variables, by symbol.
    pub(super) variables: FxHashMap<String, Layout>,
}

/// What a type looks like in memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) hash: u64,
    /// The paths of the types to which its fields lead, also by pointers. Not known of Rust.
    pub(super) leads_to: BTreeSet<String>,
}

/// The types of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Signature {
    pub(super) hash: u64,
    /// Whether its result has a closure in it.
    pub(super) returns_closure: bool,
}

impl Types {
    /// Adds what was known before, because objects of older types may exist. Hooks of this version move the variables in `moved`,
    /// and answer for all types to which those lead. `is_movable` says whether a hook could move a variable.
    ///
    /// # Errors
    /// A type or a variable is another one now.
    pub(super) fn keep(
        &mut self,
        before: &Types,
        moved: &BTreeSet<&str>,
        is_movable: impl Fn(&str) -> bool,
    ) -> Result<(), Refusal> {
        let answered_for = before.led_to_by(moved);
        let is_changed = |(path, layout): &(&String, &Layout)| {
            before.layouts.get(*path).is_some_and(|old| old.hash != layout.hash)
                && !answered_for.contains(path.as_str())
        };
        // A type itself before those that have it as an argument.
        let changed = self.layouts.iter().filter(is_changed);
        if let Some((path, _)) = changed.min_by_key(|(path, _)| (path.contains(['<', '{']), path.len())) {
            let problem = "its layout or its methods changed, and objects of it may exist; start the program again";
            return Err(Refusal::new(path, problem));
        }
        let is_another = |(symbol, a_type): &(&String, &Layout)| {
            before.variables.get(*symbol).is_some_and(|old| old.hash != a_type.hash) && !moved.contains(symbol.as_str())
        };
        if let Some((symbol, _)) = self.variables.iter().filter(is_another).min_by_key(|(symbol, _)| *symbol) {
            let problem = "it has another type, and keeps its value";
            return Err(match is_movable(symbol) {
                true => Refusal::new(symbol, problem).with_hint_of_hook(),
                false => Refusal::new(symbol, format!("{problem}; start the program again")),
            });
        }
        for (path, layout) in &before.layouts {
            self.layouts.entry(path.clone()).or_insert_with(|| layout.clone());
        }
        for (symbol, a_type) in &before.variables {
            self.variables.entry(symbol.clone()).or_insert_with(|| a_type.clone());
        }
        Ok(())
    }

    /// The paths of the types to which variables lead.
    fn led_to_by(&self, variables: &BTreeSet<&str>) -> BTreeSet<&str> {
        let mut found = BTreeSet::new();
        let of_variables = variables.iter().filter_map(|symbol| self.variables.get(*symbol));
        let mut waiting: Vec<&Layout> = of_variables.collect();
        while let Some(layout) = waiting.pop() {
            for path in &layout.leads_to {
                if found.insert(path.as_str()) {
                    waiting.extend(self.layouts.get(path));
                }
            }
        }
        found
    }
}

impl Layout {
    /// A layout that leads to no other one.
    pub(super) fn of(content: impl Hash) -> Layout {
        Layout { hash: hash_of(content), leads_to: BTreeSet::new() }
    }
}

pub(super) fn hash_of(content: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    hasher.finish()
}
