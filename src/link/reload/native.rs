//! [`NativePlan`]: what an object has that the running executable was linked from. Nothing of it is linked again.
//!
//! The caller finds the functions and variables in the executable, by their names.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::error::Result;
use crate::link::elf::st;
use crate::link::reload::functions::static_stub;
use crate::link::reload::object_file::{ObjectFile, Place, Symbol};
use crate::link::reload::plan::{Plan, plan_added};
use crate::link::reload::world::World;

/// An object of the running executable.
pub(crate) struct NativePlan {
    pub(crate) plan: Plan,
    /// The name of its source, as the compiler noted it.
    pub(crate) source: String,
    /// The names of all its local functions and variables, sorted.
    pub(crate) locals: Vec<String>,
    pub(crate) functions: Vec<NativeFunction>,
    /// Global variables, and constants that other objects may read.
    pub(crate) globals: Vec<String>,
    pub(crate) sections: Vec<NativeSection>,
}

/// A function of the executable.
pub(crate) struct NativeFunction {
    pub(crate) symbol: String,
    pub(crate) is_local: bool,
    /// Another object may define it, too. Then it is not known which of them the executable has.
    pub(crate) is_weak: bool,
    /// The name of its stub. `None` if its code belongs to one version.
    pub(crate) stub: Option<String>,
    code: Vec<u8>,
    /// The bytes that a linker writes or may rewrite.
    linked: Vec<Range<usize>>,
}

/// A section with variables.
pub(crate) struct NativeSection {
    /// The symbol at its start.
    pub(crate) base: String,
    /// Its symbols: name, whether it is local, and offset in bytes.
    pub(crate) symbols: Vec<(String, bool, u64)>,
}

impl NativeFunction {
    /// Size in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.code.len() as u64
    }

    /// Whether the executable may have these bytes for it.
    pub(crate) fn is_linked_as(&self, native: &[u8]) -> bool {
        let is_equal = |at: usize| self.code[at] == native[at] || self.linked.iter().any(|range| range.contains(&at));
        self.code.len() == native.len() && (0..native.len()).all(is_equal)
    }
}

/// Plans an object of the running executable.
///
/// # Errors
/// The bytes are not an object that can be reloaded.
pub(crate) fn plan_native(name: &str, bytes: &[u8], world: &World<'_>) -> Result<NativePlan> {
    let file = ObjectFile::read(name, bytes)?;
    let (mut plan, new_sections) = plan_added(&file, world, true);
    plan.live.is_native = true;
    let source = file.symbols.iter().find(|symbol| symbol.kind == st::TYPE_FILE).map_or("", |symbol| symbol.name);
    let is_named = |symbol: &&Symbol<'_>| {
        matches!(symbol.place, Place::Section(_))
            && matches!(symbol.kind, st::TYPE_FUNC | st::TYPE_OBJECT | st::TYPE_TLS)
            && !symbol.name.starts_with(TEMPORARY)
    };
    let locals = file.symbols.iter().filter(is_named).filter(|symbol| symbol.is_local());
    let locals: BTreeSet<&str> = locals.map(|symbol| symbol.name).collect();
    let functions = file.functions().map(|(_, section, symbol)| function(&file, &plan, section, symbol));
    let constants = plan.live.shared_constants().map(|(name, _)| name.to_string());
    let sections = new_sections.iter().zip(&plan.live.sections).map(|(new, live)| {
        let symbols = new.symbols.iter().map(|symbol| &file.symbols[*symbol]);
        let symbols = symbols.map(|symbol| (symbol.name.to_string(), symbol.is_local(), symbol.value));
        NativeSection { base: live.base.clone(), symbols: symbols.collect() }
    });
    Ok(NativePlan {
        source: source.to_string(),
        locals: locals.into_iter().map(String::from).collect(),
        functions: functions.collect(),
        globals: plan.globals.keys().cloned().chain(constants).collect(),
        sections: sections.collect(),
        plan,
    })
}

fn function(file: &ObjectFile<'_>, plan: &Plan, section: usize, symbol: &Symbol<'_>) -> NativeFunction {
    let stub = if symbol.is_local() { static_stub(file, symbol) } else { symbol.name.to_string() };
    let stub = plan.functions.iter().any(|function| function.stub == stub).then_some(stub);
    let section = &file.sections[section];
    let start = (symbol.value as usize).min(section.content.len());
    let end = start.saturating_add(symbol.size as usize).min(section.content.len());
    let place = |offset: u64| (offset as usize).wrapping_sub(start);
    let inside = section.relocations.iter().filter(|relocation| (start..end).contains(&(relocation.offset as usize)));
    NativeFunction {
        symbol: symbol.name.to_string(),
        is_local: symbol.is_local(),
        is_weak: symbol.is_weak(),
        stub,
        code: section.content[start..end].to_vec(),
        linked: inside.map(|relocation| linked_around(place(relocation.offset))).collect(),
    }
}

/// The bytes around a field that a linker may rewrite, for example to relax a load from the GOT or a thread-local access.
fn linked_around(field: usize) -> Range<usize> {
    field.saturating_sub(4)..field.saturating_add(12)
}

/// What names begin with that linkers leave out.
const TEMPORARY: &str = ".L";
