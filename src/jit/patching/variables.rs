//! Variables stay: a version that defines a variable which is there already refers to that one instead.
//!
//! | the name is | then a version's own definition |
//! |---|---|
//! | a variable of the dylib (linked, at a given address, or brought by a version that was committed) | is left out; the link order leads to the dylib's |
//! | anything else, or nothing | counts |
//!
//! The dylib has a tracker for each version that brought any, whose symbols have their addresses and depend on that version. So
//! later versions that use a variable keep it, by way of that tracker, and with it all of the version that brought it; and so
//! does any other code of, or linked against, the dylib. A tracker that nobody uses goes once its version is retired.

use rustc_hash::FxHashMap;

use crate::base::Name;
use crate::error::{ErrorKind, Result};
use crate::link::Variable;
use crate::session::{
    ExecutionSession, JitDylib, LookupResult, MaterializationResponsibility, MaterializationUnit, RequiredState,
    ResourceTracker, SymbolFlags, SymbolRequest, Visibility,
};

/// Bytes of each variable that a version brings.
pub(super) type VersionVariables = FxHashMap<Name, u64>;

/// Splits an object's variables: whether each, by its position, is there already. Generators of the dylib are asked.
pub(super) fn find_there(
    session: &ExecutionSession,
    object: &str,
    variables: &[Variable<'_>],
    home: &JitDylib,
) -> Result<Vec<bool>> {
    let requests: Vec<_> = variables.iter().map(|variable| SymbolRequest::weak(variable.name)).collect();
    let found = session.lookup_flags(&[(home.clone(), Visibility::All)], &requests)?;
    let mut is_there = vec![false; variables.len()];
    for ((variable, flags), is_there) in variables.iter().zip(found).zip(&mut is_there) {
        if !flags.is_some_and(|flags| is_same_kind(variable, flags)) {
            continue;
        }
        *is_there = true;
        let (wanted, found) = (variable.size, home.symbol_size(variable.name).unwrap_or(0));
        if found != 0 && wanted > found {
            let (symbol, object) = (variable.name.to_string(), object.to_string());
            return Err(ErrorKind::VariableChanged { symbol, object, wanted, found }.into());
        }
    }
    Ok(is_there)
}

fn is_same_kind(variable: &Variable<'_>, flags: SymbolFlags) -> bool {
    let is_variable = !flags.contains(SymbolFlags::CALLABLE) && !flags.contains(SymbolFlags::SIDE_EFFECTS_ONLY);
    is_variable && flags.contains(SymbolFlags::THREAD_LOCAL) == variable.is_thread_local
}

/// Has later versions find what a version brought, and whoever links against the dylib, under a tracker of its own.
pub(super) fn publish(home: &JitDylib, version: &JitDylib, brought: &VersionVariables) -> Result<ResourceTracker> {
    let names: Vec<&Name> = brought.keys().collect();
    let requests: Vec<_> = names.iter().map(|name| SymbolRequest::required(name.as_str())).collect();
    let found = version.lookup(&requests, RequiredState::Ready)?;
    let tracker = home.create_tracker()?;
    let symbols = names.iter().zip(&found).map(|(name, found)| ((*name).clone(), flags_of(found))).collect();
    let sizes = names.iter().map(|name| brought[*name]).collect();
    tracker.define(VariableUnit { symbols, sizes, found })?;
    home.lookup(&requests, RequiredState::Ready)?;
    Ok(tracker)
}

fn flags_of(found: &LookupResult) -> SymbolFlags {
    match found.flags.contains(SymbolFlags::THREAD_LOCAL) {
        true => SymbolFlags::EXPORTED | SymbolFlags::THREAD_LOCAL,
        false => SymbolFlags::EXPORTED,
    }
}

/// Names for variables that have their addresses.
struct VariableUnit {
    symbols: Vec<(Name, SymbolFlags)>,
    sizes: Vec<u64>,
    found: Vec<LookupResult>,
}

impl MaterializationUnit for VariableUnit {
    fn name(&self) -> &str {
        "variables of a version"
    }

    fn symbols(&self) -> &[(Name, SymbolFlags)] {
        &self.symbols
    }

    fn size_bytes(&self, index: usize) -> u64 {
        self.sizes[index]
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        let address_of = |wanted: &Name| {
            let position = self.symbols.iter().position(|(name, _)| name == wanted)?;
            Some(self.found[position].address)
        };
        match responsibility.notify_resolved(|owed| address_of(&owed.name)) {
            Ok(()) => {
                let dependencies = self.found.into_iter().filter_map(|found| found.symbol).collect();
                drop(responsibility.notify_emitted(dependencies));
            }
            Err(error) => responsibility.fail(error),
        }
    }
}
