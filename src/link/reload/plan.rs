//! [`plan_first`] and [`NewObject::plan`]: what is linked, what keeps its place, and what is refused before anything changes.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::Result;
use crate::link::ObjectBuffer;
use crate::link::elf::st;
use crate::link::reload::diff::{self, Diff};
use crate::link::reload::edits::{Edits, NewPlace};
use crate::link::reload::functions::{StubbedFunction, put_behind_stubs};
use crate::link::reload::live_object::{
    GlobalVariable, Globals, LiveObject, LiveSection, LiveVariable, SharedConstant,
};
use crate::link::reload::object_file::{
    Class, ObjectFile, Place, Relocation, Section, Symbol, VariableKind, is_numbered, without_discriminator,
};
use crate::link::reload::read_types::read_types;
use crate::link::reload::refusal::Refusal;
use crate::link::reload::rust_names::mentions_closure;
use crate::link::reload::variables::{Fate, HOOK, Moved, NewSection, check_same, fate, match_all, sections_of};
use crate::link::reload::version_functions::{
    check_private, check_renumbered_variables, note_unnumbered, private_functions, renumbered,
};
use crate::link::reload::world::World;

/// A version of an object, planned.
pub(crate) struct Plan {
    /// The object to link.
    pub(crate) object: ObjectBuffer,
    /// Its functions behind stubs.
    pub(crate) functions: Vec<StubbedFunction>,
    /// The variables that the version brings, with their sizes in bytes.
    pub(crate) variables: Vec<(String, u64)>,
    /// Those of them that are global.
    pub(crate) globals: Globals,
    /// The variables whose values hooks bring to new places.
    pub(crate) moves: Vec<Move>,
    pub(crate) diff: Diff,
    /// What is live when the version is committed.
    pub(crate) live: LiveObject,
    /// The number of functions that are linked, and their size in bytes.
    pub(crate) linked: (usize, u64),
    /// Whether the version has to stay in memory: its variables do, or its code registers handlers that are called later.
    pub(crate) stays: bool,
}

/// A call of a hook. A place is a symbol and a distance in bytes.
pub(crate) struct Move {
    /// The name of the hook in the version.
    pub(crate) hook: String,
    /// A symbol of the home dylib.
    pub(crate) from: (String, u64),
    /// A symbol of the version.
    pub(crate) to: (String, u64),
    /// The size of the old variable in bytes.
    pub(crate) size: u64,
}

impl Plan {
    /// The name of something that the linked object defines.
    pub(crate) fn some_definition(&self) -> Option<&str> {
        let function = self.functions.first().map(|function| function.code.as_str());
        let variable = || self.variables.first().map(|(name, _)| name.as_str());
        function.or_else(variable).or_else(|| self.live.shared_constants().next().map(|(name, _)| name))
    }
}

/// Plans the first version of an object.
///
/// # Errors
/// The bytes are not an object that can be reloaded.
pub(crate) fn plan_first(name: &str, bytes: &[u8], world: &World<'_>) -> Result<Plan> {
    Ok(plan_added(&ObjectFile::read(name, bytes)?, world, false).0)
}

/// As [`plan_first`], with the sections of variables in the order of those that are live. `is_native` says that the executable has the
/// object: then all `static` functions get stubs.
pub(super) fn plan_added(file: &ObjectFile<'_>, world: &World<'_>, is_native: bool) -> (Plan, Vec<NewSection>) {
    let mut edits = Edits::new(file);
    let mut live = describe(file);
    live.private = private_functions(file, &live, world);
    let owns_stub = |name: &str| owns_stub(file, name, world);
    let functions = put_behind_stubs(file, &mut edits, &live.private, is_native, owns_stub);
    note_unnumbered(&functions, &mut live);
    let mut globals = Globals::new();
    let sections = sections_of(file);
    for section in &sections {
        let base = define_base(file, &mut edits, section, "");
        globals.extend(globals_of(section, &[]));
        live.sections.push(live_section(file, section, base, &[]));
    }
    globals.extend(commons(file).map(|(_, symbol)| common(symbol)));
    let object = edits.apply(file).into();
    let (variables, moves, diff) = (Vec::new(), Vec::new(), Diff::default());
    let linked = (live.function_count(), live.code_bytes());
    (Plan { object, functions, variables, globals, moves, diff, live, linked, stays: true }, sections)
}

/// A later version of an object, read and compared with the one that runs.
pub(crate) struct NewObject<'a> {
    file: ObjectFile<'a>,
    live: LiveObject,
    /// The number of functions of the file, and their size in bytes.
    linked: (usize, u64),
    pub(crate) diff: Diff,
}

impl<'a> NewObject<'a> {
    /// Reads an object.
    ///
    /// # Errors
    /// The bytes are not an object that can be reloaded.
    pub(crate) fn read(name: &'a str, bytes: &'a [u8], before: &LiveObject) -> Result<NewObject<'a>> {
        let file = ObjectFile::read(name, bytes)?;
        let live = describe(&file);
        let linked = (live.function_count(), live.code_bytes());
        Ok(NewObject { diff: Diff::between(before, &live), linked, file, live })
    }

    /// Reads an object that has some functions of the object. The others stay as they are, and so does all that they use.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) fn read_part(name: &'a str, bytes: &'a [u8], before: &LiveObject) -> Result<NewObject<'a>> {
        let file = ObjectFile::read(name, bytes)?;
        let mut live = describe(&file);
        let linked = (live.function_count(), live.code_bytes());
        live.add_missing(before);
        Ok(NewObject { diff: Diff::between(before, &live), linked, file, live })
    }

    /// The names that no other object of a program may define.
    pub(crate) fn strong_definitions(&self) -> impl Iterator<Item = &str> {
        let is_defined = |symbol: &&Symbol<'_>| matches!(symbol.place, Place::Section(_));
        let strong = self.file.symbols.iter().filter(is_defined).filter(|symbol| symbol.is_strong());
        strong.map(|symbol| symbol.name)
    }

    /// Whether the version needs a function of an object that belongs, or will belong, to one version: then both are linked together.
    pub(crate) fn needs_private(&self, of: &LiveObject, after: &NewObject<'_>) -> bool {
        let is_new_closure = |name: &str| mentions_closure(name) && after.live.functions.contains_key(name);
        let has_other_types =
            |name: &str| after.live.signature(name).zip(of.signature(name)).is_some_and(|(new, old)| new != old);
        let is_private = |name: &str| of.private.contains(name) || is_new_closure(name) || has_other_types(name);
        self.live.required().any(is_private)
    }

    /// Plans the version.
    ///
    /// # Errors
    /// What cannot follow.
    pub(crate) fn plan(
        self,
        version: u64,
        before: &LiveObject,
        world: &World<'_>,
    ) -> std::result::Result<Plan, Refusal> {
        plan_later(self, version, before, world)
    }
}

fn plan_later(
    new: NewObject<'_>,
    version: u64,
    before: &LiveObject,
    world: &World<'_>,
) -> std::result::Result<Plan, Refusal> {
    let NewObject { file, mut live, linked, mut diff } = new;
    let file = &file;
    check_functions(file)?;
    check_added(file, &diff, world)?;
    check_constants(before, &live, world)?;
    check_numbers(before, &live)?;
    let is_movable = |name: &str| before.sections.iter().any(|section| section.has_movable(name));
    live.types.keep(&before.types, &moved_by_hooks(&diff), is_movable)?;
    live.private = private_functions(file, &live, world);
    live.private.extend(before.private.iter().cloned());
    check_private(file, &live, world)?;
    let mut edits = Edits::new(file);
    let mut functions =
        put_behind_stubs(file, &mut edits, &live.private, before.is_native, |name| owns_stub(file, name, world));
    functions.extend(renumbered(&functions, before, &live, world));
    live.unnumbered = before.unnumbered.clone();
    live.is_native = before.is_native;
    note_unnumbered(&functions, &mut live);
    check_renumbered_variables(before, &live)?;
    let sections = sections_of(file);
    let hooks = new_hooks(&functions, &diff);
    let (matches, moved) = match_all(&sections, before, world.global, |name| hooks.contains_key(name))?;
    let by_place = references_by_place(file);
    let (mut variables, mut globals, mut brought) = (Vec::new(), Globals::new(), BTreeMap::new());
    let mut bases = BTreeMap::new();
    live.sections = before.sections.clone();
    for (section, matches) in sections.into_iter().zip(&matches) {
        let by_place = by_place.get(&section.index).map(Vec::as_slice).unwrap_or_default();
        match fate(file, &section, matches, (before, world.global), by_place.is_empty())? {
            Fate::Reused { base, delta } => {
                drop_variables(file, &mut edits, &section);
                refer_to_base(file, &mut edits, by_place, &section, (&base, delta));
            }
            Fate::Known => drop_variables(file, &mut edits, &section),
            Fate::Linked { existing } => {
                existing.iter().for_each(|position| edits.undefine(section.symbols[*position]));
                check_not_defined(file, &section, &existing, world)?;
                let base = define_base(file, &mut edits, &section, &format!("@{version}"));
                variables.push((base.clone(), file.sections[section.index].size));
                let new = globals_of(&section, &existing);
                variables.extend(new.iter().map(|(name, global)| (name.clone(), global.size)));
                globals.extend(new);
                let name = section.variables.first().map_or(file.sections[section.index].name, |first| &first.key);
                brought.insert(section.index, name.to_string());
                bases.insert(section.index, base.clone());
                live.sections.push(live_section(file, &section, base, &existing));
            }
        }
    }
    for (index, symbol) in commons(file) {
        let (name, global) = common(symbol);
        match (world.global)(&name) {
            Some(old) => {
                check_same(&name, (global.size, global.kind), (old.size, old.kind))?;
                edits.undefine(index);
            }
            None => {
                variables.push((name.clone(), global.size));
                globals.insert(name, global);
            }
        }
    }
    check_initializers(file, &brought)?;
    let is_list = |section: &Section<'_>| section.class == Class::Initializers || section.lists_room();
    let lists = file.sections.iter().enumerate().filter(|(_, section)| is_list(section));
    lists.for_each(|(index, _)| edits.drop_section(index));
    let stays = !variables.is_empty() || registers_handlers(file);
    let moves = moved.iter().filter_map(|moved| {
        let Moved { key, from: (at, position), to: (section, offset) } = moved;
        let (old, hook) = (&before.sections[*at], hooks.get(key)?.clone());
        let LiveVariable { offset: old_offset, size, .. } = old.variables[*position];
        let (from, to) = ((old.base.clone(), old_offset), (bases.get(section)?.clone(), *offset));
        Some(Move { hook, from, to, size })
    });
    let moves = moves.collect();
    diff.moved_variables = moved.iter().map(|moved| moved.key.clone()).collect();
    forget_moved(&mut live, &moved);
    Ok(Plan { object: edits.apply(file).into(), functions, variables, globals, moves, diff, live, linked, stays })
}

/// The hooks that the version adds or changes: the code of each, by the name of its variable.
fn new_hooks(functions: &[StubbedFunction], diff: &Diff) -> BTreeMap<String, String> {
    let moved = moved_by_hooks(diff);
    let hooks = functions.iter().filter_map(|function| Some((function.stub.strip_prefix(HOOK)?, &function.code)));
    let new = hooks.filter(|(variable, _)| moved.contains(variable));
    new.map(|(variable, code)| (variable.to_string(), code.clone())).collect()
}

/// The variables of the hooks that the version adds or changes.
fn moved_by_hooks(diff: &Diff) -> BTreeSet<&str> {
    diff.added.iter().chain(&diff.changed).filter_map(|name| name.strip_prefix(HOOK)).collect()
}

/// Forgets the old places of variables that moved, so that the next version finds the new ones.
fn forget_moved(live: &mut LiveObject, moved: &[Moved]) {
    for Moved { key, from: (at, _), .. } in moved {
        live.sections[*at].variables.retain(|variable| variable.is_global || variable.key != *key);
    }
    let mut index = 0..;
    live.sections.retain(|section| {
        let is_left = index.next().is_some_and(|index| moved.iter().any(|moved| moved.from.0 == index));
        !is_left || !section.variables.is_empty()
    });
}

/// Whether an object gets a stub for its function. Not if the function is weak and the program has another definition.
fn owns_stub(file: &ObjectFile<'_>, name: &str, world: &World<'_>) -> bool {
    let is_weak = || file.functions().any(|(_, _, symbol)| symbol.name == name && symbol.is_weak());
    (world.has_stub)(name) || !(world.is_defined)(name) || !is_weak()
}

fn describe(file: &ObjectFile<'_>) -> LiveObject {
    let of_variables = file.variable_sections().flat_map(|(section, _)| file.data_symbols(section));
    let all = of_variables.chain(commons(file));
    let required = file.symbols.iter().filter(|symbol| symbol.place == Place::Undefined && !symbol.name.is_empty());
    LiveObject {
        functions: diff::prints(file),
        sections: Vec::new(),
        variables: all.map(|(_, symbol)| symbol.key().to_string()).collect(),
        constants: diff::constants(file),
        constants_hash: diff::constants_hash(file),
        required: required.map(|symbol| symbol.name.to_string()).collect(),
        private: BTreeSet::new(),
        unnumbered: BTreeMap::new(),
        is_native: false,
        types: read_types(file),
    }
}

/// The common symbols, with the index of each.
fn commons<'f, 'a>(file: &'f ObjectFile<'a>) -> impl Iterator<Item = (usize, &'f Symbol<'a>)> {
    file.symbols.iter().enumerate().filter(|(_, symbol)| symbol.place == Place::Common)
}

fn common(symbol: &Symbol<'_>) -> (String, GlobalVariable) {
    (symbol.name.to_string(), GlobalVariable { size: symbol.size, kind: VariableKind::ZeroFilled })
}

/// The global variables of a section, without those at the positions `existing`.
fn globals_of(section: &NewSection, existing: &[usize]) -> Globals {
    let new = section.variables.iter().enumerate().filter(|(position, _)| !existing.contains(position));
    let global = new.filter(|(_, variable)| variable.is_global);
    global.map(|(_, v)| (v.key.clone(), GlobalVariable { size: v.size, kind: section.kind })).collect()
}

fn live_section(file: &ObjectFile<'_>, section: &NewSection, base: String, existing: &[usize]) -> LiveSection {
    let NewSection { index, kind, variables, .. } = section;
    let (name, size) = (file.sections[*index].name.to_string(), file.sections[*index].size);
    let new = variables.iter().enumerate().filter(|(position, _)| !existing.contains(position));
    LiveSection { base, name, kind: *kind, size, variables: new.map(|(_, variable)| variable.clone()).collect() }
}

/// Defines the symbol at the start of a section. Sections of one name are numbered.
fn define_base(file: &ObjectFile<'_>, edits: &mut Edits, section: &NewSection, suffix: &str) -> String {
    let Section { name, size, .. } = &file.sections[section.index];
    let before = file.sections[..section.index].iter().filter(|other| other.name == *name).count();
    let number = if before == 0 { String::new() } else { format!("#{before}") };
    let base = format!("{}:{name}{number}{suffix}", file.name);
    let place = NewPlace { section: section.index, value: 0, size: *size };
    edits.define(base.clone(), kind_of_base(section), false, place);
    base
}

fn kind_of_base(section: &NewSection) -> u8 {
    if section.kind.is_thread_local() { st::TYPE_TLS } else { st::TYPE_OBJECT }
}

/// Leaves out a section whose variables all exist.
fn drop_variables(file: &ObjectFile<'_>, edits: &mut Edits, section: &NewSection) {
    edits.drop_section(section.index);
    let global = section.symbols.iter().filter(|symbol| !file.symbols[**symbol].is_local());
    global.for_each(|symbol| edits.undefine(*symbol));
}

/// Lets references to a section by place go to the section that is in memory, at a distance.
fn refer_to_base(
    file: &ObjectFile<'_>,
    edits: &mut Edits,
    references: &[&Relocation],
    section: &NewSection,
    (base, delta): (&str, i64),
) {
    for relocation in references {
        let symbol = &file.symbols[relocation.symbol];
        let reference = edits.refer_to(base, kind_of_base(section));
        let place = relocation.addend.wrapping_add_unsigned(symbol.value).wrapping_add(delta);
        edits.retarget(relocation.at, reference, place);
    }
}

/// For each section, the relocations that refer to it by place and not by a global name.
fn references_by_place<'f>(file: &'f ObjectFile<'_>) -> BTreeMap<usize, Vec<&'f Relocation>> {
    let mut references: BTreeMap<usize, Vec<&Relocation>> = BTreeMap::new();
    for (_, relocation) in file.loaded_relocations() {
        let symbol = &file.symbols[relocation.symbol];
        if let Place::Section(section) = symbol.place
            && symbol.is_local()
        {
            references.entry(section).or_default().push(relocation);
        }
    }
    references
}

/// Functions that cannot have a stub cannot follow.
fn check_functions(file: &ObjectFile<'_>) -> std::result::Result<(), Refusal> {
    for symbol in &file.symbols {
        let is_code = matches!(symbol.place, Place::Section(at) if file.sections[at].class == Class::Code);
        let problem = match symbol.kind {
            st::TYPE_GNU_IFUNC => "it is an indirect function, which is resolved once",
            st::TYPE_NOTYPE if !symbol.is_local() => "it is in code and has no type; give it the type of a function",
            _ => continue,
        };
        if is_code {
            return Err(Refusal::new(symbol.name, problem));
        }
    }
    Ok(())
}

/// A new function may not have the name of a function of another object.
fn check_added(file: &ObjectFile<'_>, diff: &Diff, world: &World<'_>) -> std::result::Result<(), Refusal> {
    let is_added = |name: &str| diff.added.binary_search_by(|added| added.as_str().cmp(name)).is_ok();
    let mut added = file.functions().filter(|(_, _, symbol)| symbol.is_strong() && is_added(symbol.name));
    match added.find_map(|(_, _, symbol)| Some((symbol.name, (world.defining_object)(symbol.name)?))) {
        Some((name, other)) => Err(Refusal::new(
            name,
            format!("{other} defines a function of this name; to move it, reload both objects together"),
        )),
        None => Ok(()),
    }
}

/// Constants that became variables, variables that became constants, and changed constants that others read.
fn check_constants(before: &LiveObject, after: &LiveObject, world: &World<'_>) -> std::result::Result<(), Refusal> {
    let is_of_another = |name: &&str| (world.global)(name).is_some() && !before.variables.contains(*name);
    if let Some(name) = after.shared_constants().map(|(name, _)| name).find(is_of_another) {
        return Err(Refusal::new(
            name,
            "it is a constant, and another object has a variable of this name; rename one of them",
        ));
    }
    // A name may be that of both: of `static` variables and constants of functions.
    let is_variable = |of: &LiveObject, name: &str| of.variables.contains(name) && !of.constants.contains_key(name);
    let is_constant = |of: &LiveObject, name: &str| of.constants.contains_key(name) && !of.variables.contains(name);
    if let Some(name) = after.variables.iter().find(|name| is_variable(after, name) && is_constant(before, name)) {
        return Err(Refusal::new(name, "it is a variable, and was a constant"));
    }
    if let Some(name) = after.constants.keys().find(|name| is_constant(after, name) && is_variable(before, name)) {
        return Err(Refusal::new(name, "it is a constant, and was a variable"));
    }
    let is_stale = |(name, new): &(&str, SharedConstant)| {
        (world.constant)(name).is_some_and(|old| old.hash != new.hash) && (world.is_required)(name)
    };
    match after.shared_constants().find(is_stale) {
        Some((name, _)) => Err(Refusal::new(name, "it is a constant that another object reads, and its value changed")),
        None => Ok(()),
    }
}

/// A compiler numbers lambdas, and `static` variables of one name in one C++ function. If their count changes, a number may mean
/// another one.
fn check_numbers(before: &LiveObject, after: &LiveObject) -> std::result::Result<(), Refusal> {
    let numbered =
        |of: &LiveObject| -> Vec<String> { of.variables.iter().filter(|name| is_numbered(name)).cloned().collect() };
    let lambdas =
        |of: &LiveObject| -> Vec<String> { of.functions.keys().filter(|name| is_numbered(name)).cloned().collect() };
    let (old, new) = (numbered(before), numbered(after));
    let named = new.iter().find(|name| !old.contains(name)).or(new.first()).filter(|_| !old.is_empty());
    if let Some(name) = named.filter(|_| old != new || lambdas(before) != lambdas(after)) {
        let problem =
            "it is a `static` variable of a lambda, and lambdas came or went; give it to a function with a name";
        return Err(Refusal::new(name, problem));
    }
    let count = |of: &LiveObject, name: &str| {
        of.variables.iter().filter(|other| without_discriminator(other) == without_discriminator(name)).count()
    };
    let numbered = after.variables.iter().filter(|name| without_discriminator(name) != *name);
    for name in numbered.chain(before.variables.iter().filter(|name| without_discriminator(name) != *name)) {
        let (old, new) = (count(before, name), count(after, name));
        if old != new && old != 0 && new != 0 {
            let problem = "several `static` variables of the function have this name, and their number changed; give them different \
                           names";
            return Err(Refusal::new(without_discriminator(name), problem));
        }
    }
    Ok(())
}

/// New global variables may not have names that the program has.
fn check_not_defined(
    file: &ObjectFile<'_>,
    section: &NewSection,
    existing: &[usize],
    world: &World<'_>,
) -> std::result::Result<(), Refusal> {
    let new = section.symbols.iter().enumerate().filter(|(position, _)| !existing.contains(position));
    let mut global = new.map(|(_, symbol)| &file.symbols[*symbol]).filter(|symbol| !symbol.is_local());
    match global.find(|symbol| (world.is_defined)(symbol.name)) {
        Some(symbol) => Err(Refusal::new(symbol.name, "the program has another definition of this name")),
        None => Ok(()),
    }
}

/// Initialisers do not run again. So a new variable that one of them refers to would stay uninitialised. `brought` has the name
/// of a variable for each section that is linked.
fn check_initializers(file: &ObjectFile<'_>, brought: &BTreeMap<usize, String>) -> std::result::Result<(), Refusal> {
    let is_list = |index: &usize| file.sections[*index].class == Class::Initializers;
    let mut waiting: Vec<usize> = (0..file.sections.len()).filter(is_list).collect();
    let mut seen: BTreeSet<usize> = waiting.iter().copied().collect();
    while let Some(section) = waiting.pop() {
        if let Some(name) = brought.get(&section) {
            let problem = "it is new, and an initialiser refers to it; initialisers do not run again";
            return Err(Refusal::new(name, problem));
        }
        for relocation in &file.sections[section].relocations {
            if let Place::Section(next) = file.symbols[relocation.symbol].place
                && seen.insert(next)
            {
                waiting.push(next);
            }
        }
    }
    Ok(())
}

/// Whether code of the object may register functions that are called later by address.
fn registers_handlers(file: &ObjectFile<'_>) -> bool {
    let is_handler = |symbol: &Symbol<'_>| symbol.place == Place::Undefined && HANDLERS.contains(&symbol.name);
    file.symbols.iter().any(is_handler)
}

const HANDLERS: [&str; 6] =
    ["__dso_handle", "__cxa_atexit", "atexit", "at_quick_exit", "__cxa_thread_atexit", "pthread_atfork"];

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::sized;

    const BEFORE: &[u8] = include_bytes!("../../../docs/examples/scale_1.o");
    const AFTER: &[u8] = include_bytes!("../../../docs/examples/scale_2.o");

    #[test]
    fn numbers_at_their_limits_anywhere_in_an_object_are_planned_or_refused() {
        let world = World {
            global: &|_| None,
            constant: &|_| None,
            has_stub: &|_| true,
            is_defined: &|_| false,
            defining_object: &|_| None,
            is_required: &|_| true,
            stub_signature: &|_| None,
        };
        let before = plan_first("scale.o", BEFORE, &world).unwrap();
        let world = World { global: &|name| before.globals.get(name).copied(), ..world };
        let plan_reload = |bytes: &[u8], before: &LiveObject| {
            NewObject::read("scale.o", bytes, before).map(|new| new.plan(1, before, &world))
        };
        let mut planned = 0;
        // Miri takes minutes for all places.
        for place in (0..AFTER.len() - 8).step_by(sized(4, 1 << 8)) {
            for limit in [u64::MAX, 1 << 63, (1 << 63) - 1, (1 << 63) + 1] {
                let mut bytes = AFTER.to_vec();
                bytes[place..place + 8].copy_from_slice(&limit.to_le_bytes());
                let plan = plan_reload(&bytes, &before.live);
                planned += usize::from(matches!(&plan, Ok(Ok(plan)) if plan.live.code_bytes() > 0));
                let Ok(first) = plan_first("scale.o", &bytes, &world) else { continue };
                drop(plan_reload(AFTER, &first.live));
            }
        }
        assert!(planned > sized(100, 4), "only {planned} objects were planned, too few to test anything");
    }
}
