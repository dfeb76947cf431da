//! Functions that belong to one version, and functions of Rust that have another name than before.

use std::collections::{BTreeMap, BTreeSet};

use crate::arch::EdgeKind;
use crate::link::reload::functions::{StubbedFunction, static_stub};
use crate::link::reload::live_object::LiveObject;
use crate::link::reload::object_file::{Class, ObjectFile, Relocation};
use crate::link::reload::refusal::Refusal;
use crate::link::reload::rust_names::{RustName, mentions_closure};
use crate::link::reload::types::Signature;
use crate::link::reload::world::World;

/// The global functions of an object that belong to one version: functions whose types changed since callers were linked; in Rust also
/// closures and what is an instance for the type of one, and functions that return one.
pub(super) fn private_functions(file: &ObjectFile<'_>, live: &LiveObject, world: &World<'_>) -> BTreeSet<String> {
    let is_private = |name: &str| {
        let signature = live.types.signatures.get(name);
        let is_another = |new: &Signature| (world.stub_signature)(name).is_some_and(|old| old != new.hash);
        mentions_closure(name) || signature.is_some_and(|new| new.returns_closure || is_another(new))
    };
    let global = file.functions().map(|(_, _, symbol)| symbol).filter(|symbol| !symbol.is_local());
    global.map(|symbol| symbol.name).filter(|name| is_private(name)).map(String::from).collect()
}

/// Notes the stubs of functions by their names without numbers.
pub(super) fn note_unnumbered(functions: &[StubbedFunction], live: &mut LiveObject) {
    for StubbedFunction { stub, .. } in functions {
        if let Some(name) = RustName::read(stub) {
            live.unnumbered.entry(name.unnumbered).or_default().insert(stub.clone());
        }
    }
}

/// The stubs of functions that have other numbers in their names now: an `impl` block came or went before theirs. They lead to the new
/// code, too, because a `dyn` object or a loop has the old name.
pub(super) fn renumbered(
    functions: &[StubbedFunction],
    before: &LiveObject,
    live: &LiveObject,
    world: &World<'_>,
) -> Vec<StubbedFunction> {
    let mut all = Vec::new();
    for StubbedFunction { stub, code } in functions {
        let old = RustName::read(stub).and_then(|name| before.unnumbered.get(&name.unnumbered));
        let is_gone = |old: &&String| *old != stub && !live.functions.contains_key(*old);
        let has_same_types =
            |old: &&String| (world.stub_signature)(old).is_none_or(|types| live.signature(stub) == Some(types));
        let old = old.into_iter().flatten().filter(|old| is_gone(old) && has_same_types(old));
        all.extend(old.map(|old| StubbedFunction { stub: old.clone(), code: code.clone() }));
    }
    all
}

/// A `static` in a method that has another number now would lose its value.
pub(super) fn check_renumbered_variables(before: &LiveObject, live: &LiveObject) -> std::result::Result<(), Refusal> {
    let unnumbered = |name: &String| Some((RustName::read(name)?.unnumbered, name.clone()));
    let gone: BTreeMap<String, String> = before.variables.difference(&live.variables).filter_map(unnumbered).collect();
    let new = live.variables.difference(&before.variables).filter_map(unnumbered);
    match new.into_iter().find(|(name, _)| gone.contains_key(name)) {
        Some((_, name)) => Err(Refusal::new(
            &name,
            "it is in an `impl` block, and a block came or went before that one; put the new block behind it",
        )),
        None => Ok(()),
    }
}

/// Functions whose types changed, with a stub that code of older versions would call as they were. Private functions that other objects
/// would call as they were, or through tables of older versions.
pub(super) fn check_private(
    file: &ObjectFile<'_>,
    live: &LiveObject,
    world: &World<'_>,
) -> std::result::Result<(), Refusal> {
    if let Some(name) = live.private.iter().find(|name| live.functions.contains_key(*name) && (world.is_required)(name))
    {
        let problem =
            "it is a closure, or returns one, or its types changed, and another object uses it; reload both together";
        return Err(Refusal::new(name, problem));
    }
    for (_, _, symbol) in file.functions().filter(|(_, _, symbol)| symbol.is_local()) {
        let stub = static_stub(file, symbol);
        let types = (world.stub_signature)(&stub).zip(live.signature(&stub));
        if types.is_some_and(|(old, new)| old != new) {
            let problem = "its types changed, and running code may have its address; give it another name";
            return Err(Refusal::new(symbol.name, problem));
        }
    }
    let is_address = |relocation: &Relocation| relocation.kind == Some(EdgeKind::Pointer64);
    let tables = file.sections.iter().filter(|section| matches!(section.class, Class::Constants | Class::Variables(_)));
    for relocation in tables.flat_map(|section| &section.relocations).filter(|relocation| is_address(relocation)) {
        let name = file.symbols[relocation.symbol].name;
        let has_changed =
            || (world.stub_signature)(name).zip(live.signature(name)).is_some_and(|(old, new)| old != new);
        if live.private.contains(name) && has_changed() {
            let problem =
                "its types changed, and tables have its address, such as that of a `dyn` type; start the program again";
            return Err(Refusal::new(name, problem));
        }
    }
    Ok(())
}
