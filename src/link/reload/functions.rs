//! Functions behind stubs: what an object calls by name, or whose address a relocation takes, is reached through a stub.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::arch::EdgeKind;
use crate::link::elf::st;
use crate::link::reload::edits::{Edits, NewPlace};
use crate::link::reload::object_file::{Class, ObjectFile, Relocation, Section, Symbol, is_numbered};

/// A function behind a stub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StubbedFunction {
    /// The name of the stub.
    pub(crate) stub: String,
    /// The name of the code in the version.
    pub(crate) code: String,
}

/// Puts the functions of an object behind stubs, except those in `private`. `has_own_stub` says of a global name whether it gets one;
/// else references go to the definition that exists. With `all_statics` each
/// `static` function gets one, also if nothing takes its address.
pub(super) fn put_behind_stubs(
    file: &ObjectFile<'_>,
    edits: &mut Edits,
    private: &BTreeSet<String>,
    all_statics: bool,
    has_own_stub: impl Fn(&str) -> bool,
) -> Vec<StubbedFunction> {
    let mut stubbed = Vec::new();
    // By symbol of the object: the symbol of its code.
    let mut code_of = HashMap::new();
    // The number of a lambda may be that of another one in the next version. So its code belongs to its version.
    let is_private =
        |symbol: &Symbol<'_>| symbol.is_weak() && is_numbered(symbol.name) || private.contains(symbol.name);
    let global = file.functions().filter(|(_, _, symbol)| !symbol.is_local());
    for (index, section, symbol) in global.filter(|(_, _, symbol)| !is_private(symbol)) {
        edits.undefine(index);
        let (code, place) =
            (format!("{}.code", symbol.name), NewPlace { section, value: symbol.value, size: symbol.size });
        code_of.insert(index, edits.define(code.clone(), st::TYPE_FUNC, symbol.is_weak(), place));
        if has_own_stub(symbol.name) {
            stubbed.push(StubbedFunction { stub: symbol.name.to_string(), code });
        }
    }
    let metadata = file.sections.iter().filter(|section| matches!(section.class, Class::Unwind | Class::Metadata));
    for relocation in metadata.flat_map(|section| &section.relocations) {
        if let Some(code) = code_of.get(&relocation.symbol) {
            edits.retarget(relocation.at, *code, relocation.addend);
        }
    }
    stubbed.extend(stub_addresses_of_statics(file, edits, all_statics));
    stubbed
}

/// Lets relocations that take the address of a `static` function refer to a stub.
fn stub_addresses_of_statics(file: &ObjectFile<'_>, edits: &mut Edits, all: bool) -> Vec<StubbedFunction> {
    let statics = statics(file);
    let mut stubbed: BTreeMap<String, StubbedFunction> = BTreeMap::new();
    for section in &file.sections {
        for relocation in section.relocations.iter().filter(|relocation| takes_address(file, section, relocation)) {
            let Some((target, offset)) = file.target(relocation) else { continue };
            let Some(symbol) = u64::try_from(offset).ok().and_then(|offset| statics.get(&(target, offset))) else {
                continue;
            };
            let symbol = &file.symbols[*symbol];
            let stub = static_stub(file, symbol);
            let reference = edits.refer_to(&stub, st::TYPE_NOTYPE);
            // What remains of the addend is the distance of the field to the place from which the processor counts.
            let addend = if relocation.kind == Some(EdgeKind::Delta32) { -4 } else { 0 };
            edits.retarget(relocation.at, reference, addend);
            stubbed.entry(stub).or_insert_with_key(|stub| define_static(edits, stub, target, symbol));
        }
    }
    let others = statics.iter().filter(|_| all).map(|((section, _), symbol)| (*section, &file.symbols[*symbol]));
    for (section, symbol) in others {
        let stub = static_stub(file, symbol);
        stubbed.entry(stub).or_insert_with_key(|stub| define_static(edits, stub, section, symbol));
    }
    stubbed.into_values().collect()
}

/// The stub of a `static` function.
pub(super) fn static_stub(file: &ObjectFile<'_>, function: &Symbol<'_>) -> String {
    format!("{}:{}", file.name, function.name)
}

fn define_static(edits: &mut Edits, stub: &str, section: usize, function: &Symbol<'_>) -> StubbedFunction {
    let code = format!("{stub}.code");
    let place = NewPlace { section, value: function.value, size: function.size };
    edits.define(code.clone(), st::TYPE_FUNC, false, place);
    StubbedFunction { stub: stub.to_string(), code }
}

/// The `static` functions by section and offset, except parts of functions that the compiler split or cloned: those may have
/// another signature in the next version.
fn statics(file: &ObjectFile<'_>) -> HashMap<(usize, u64), usize> {
    let (mut seen, mut twice) = (HashSet::new(), HashSet::new());
    for (_, _, symbol) in file.functions().filter(|(_, _, symbol)| symbol.is_local()) {
        if !seen.insert(symbol.name) {
            twice.insert(symbol.name);
        }
    }
    let is_meant = |name: &str| !name.contains('.') && !twice.contains(name) && !is_numbered(name);
    let local = file.functions().filter(|(_, _, symbol)| symbol.is_local() && is_meant(symbol.name));
    local.map(|(index, section, symbol)| ((section, symbol.value), index)).collect()
}

/// Whether a relocation makes the address of what it refers to. A call does not. Neither do the tables of a `switch`, which are
/// read-only.
fn takes_address(file: &ObjectFile<'_>, section: &Section<'_>, relocation: &Relocation) -> bool {
    if !file.symbols[relocation.symbol].is_local() {
        return false;
    }
    match (section.class, relocation.kind) {
        (Class::Code, Some(kind)) if kind != EdgeKind::Pointer64 => {
            let before = section.content.get(..relocation.offset as usize).unwrap_or_default();
            file.arch.makes_address(kind, before)
        }
        (Class::Code | Class::Variables(_), Some(EdgeKind::Pointer64)) => true,
        (Class::Constants, Some(EdgeKind::Pointer64)) => section.is_writable(),
        _ => false,
    }
}
