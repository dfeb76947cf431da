//! Variables that versions share: a version that defines an existing variable refers to the existing one instead.
//!
//! | the name is | the definition of the new version |
//! |---|---|
//! | a variable of the dylib: linked, absolute, or defined by an earlier committed version | is left out; references bind to the existing variable |
//! | anything else, or undefined | is used |
//!
//! For each version that defines new variables, the dylib gets one tracker. Its symbols have the addresses of the variables,
//! and they depend on that version. So a later version, or other code, that refers to a variable pins that tracker, and
//! through it the entire version that defined the variable. The tracker is removed when nothing refers to it and its version
//! is retired.

use rustc_hash::FxHashMap;

use crate::base::Name;
use crate::error::{ErrorKind, Result};
use crate::link::ObjectVariable;
use crate::session::{
    ExecutionSession, JitDylib, LookupResult, MaterializationResponsibility, MaterializationUnit, RequiredState,
    ResourceTracker, SymbolFlags, SymbolRequest, Visibility,
};

/// The variables that a version is the first to define, with their sizes in bytes.
pub(in crate::jit) type VersionVariables = FxHashMap<Name, u64>;

/// For each variable of an object, by position: whether `home` has it already. May call the generators of `home`.
///
/// # Errors
/// [`ErrorKind::VariableChanged`] if the object defines a larger variable than the existing one.
pub(super) fn find_existing(
    session: &ExecutionSession,
    object: &str,
    variables: &[ObjectVariable<'_>],
    home: &JitDylib,
) -> Result<Vec<bool>> {
    let requests: Vec<_> = variables.iter().map(|variable| SymbolRequest::weak(variable.name)).collect();
    let found = session.lookup_flags(&[(home.clone(), Visibility::All)], &requests)?;
    let mut exists = vec![false; variables.len()];
    for ((variable, flags), exists) in variables.iter().zip(found).zip(&mut exists) {
        if !flags.is_some_and(|flags| is_same_kind(variable, flags)) {
            continue;
        }
        *exists = true;
        let (wanted, found) = (variable.size, home.symbol_size(variable.name).unwrap_or(0));
        if found != 0 && wanted > found {
            let (symbol, object) = (variable.name.to_string(), object.to_string());
            return Err(ErrorKind::VariableChanged { symbol, object, wanted, found }.into());
        }
    }
    Ok(exists)
}

fn is_same_kind(variable: &ObjectVariable<'_>, flags: SymbolFlags) -> bool {
    let is_variable = !flags.contains(SymbolFlags::CALLABLE) && !flags.contains(SymbolFlags::SIDE_EFFECTS_ONLY);
    is_variable && flags.contains(SymbolFlags::THREAD_LOCAL) == variable.is_thread_local
}

/// Defines the variables of a version in `home`, so that later versions and dylibs that link against `home` find them.
/// Returns the tracker that owns these definitions.
pub(in crate::jit) fn publish(
    home: &JitDylib,
    version: &JitDylib,
    variables: &VersionVariables,
) -> Result<ResourceTracker> {
    let names: Vec<&Name> = variables.keys().collect();
    let requests: Vec<_> = names.iter().map(|name| SymbolRequest::required(name.as_str())).collect();
    let found = version.lookup(&requests, RequiredState::Ready)?;
    let tracker = home.create_tracker()?;
    let symbols = names.iter().zip(&found).map(|(name, found)| ((*name).clone(), flags_of(found))).collect();
    let sizes = names.iter().map(|name| variables[*name]).collect();
    let defined = tracker.define(VariableUnit { symbols, sizes, found });
    if let Err(error) = defined.and_then(|()| home.lookup(&requests, RequiredState::Ready)) {
        // A drop without a removal transfers the definitions to the default tracker of `home`.
        drop(tracker.remove());
        return Err(error);
    }
    Ok(tracker)
}

fn flags_of(found: &LookupResult) -> SymbolFlags {
    // A version of a program may share a function, too.
    let kind =
        [SymbolFlags::THREAD_LOCAL, SymbolFlags::CALLABLE].into_iter().filter(|kind| found.flags.contains(*kind));
    kind.fold(SymbolFlags::EXPORTED, |flags, kind| flags | kind)
}

/// Defines names for variables whose addresses are known, and makes them depend on the version that has the variables.
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
        match responsibility.notify_resolved(|claimed| address_of(&claimed.name)) {
            Ok(()) => {
                let dependencies = self.found.into_iter().filter_map(|found| found.symbol).collect();
                drop(responsibility.notify_emitted(dependencies));
            }
            Err(error) => responsibility.fail(error),
        }
    }
}
