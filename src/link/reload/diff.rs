//! [`Diff`]: which functions and variables changed between two versions of an object.
//!
//! Two versions of a function are equal if they have the same bytes, apart from fields of relocations, and the relocations
//! refer to the same things: to the same name, to the same text, or to the same bytes of an unnamed constant.
//!
//! rustc gives a constant a name, and mostly a section of its own, with a hash of the whole crate and a number. Those are unnamed, too:
//! they are compared by their bytes and by what they refer to.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use crate::link::elf::st;
use crate::link::reload::live_object::{Constant, LiveObject, Print};
use crate::link::reload::object_file::{Class, ObjectFile, Relocation};

/// What changed between two versions of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Diff {
    /// Functions whose code changed, sorted. A call of a `static` function in the same section counts as changed when the
    /// distance to that function changed, because the compiler leaves no relocation; `-ffunction-sections` avoids that.
    pub changed: Vec<String>,
    /// Functions that the version before did not have, sorted.
    pub added: Vec<String>,
    /// Functions that the new version does not have, sorted. Who calls them still reaches the last version that had them.
    pub removed: Vec<String>,
    /// Variables that are new, sorted.
    pub new_variables: Vec<String>,
    /// Variables that the new version does not have, sorted. They stay in memory.
    pub removed_variables: Vec<String>,
    /// Variables that got another place, to which a hook brings their values, in the order of the object.
    pub moved_variables: Vec<String>,
    /// Whether read-only data changed: texts, tables, virtual function tables.
    pub constants_changed: bool,
}

impl Diff {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        *self == Diff::default()
    }

    /// What changed, as a list of names. `readable` has another name for some of them.
    pub(crate) fn in_words(&self, readable: &dyn Fn(&str) -> Option<String>) -> String {
        let lists = [
            ("changed", &self.changed),
            ("added", &self.added),
            ("removed", &self.removed),
            ("new variables", &self.new_variables),
            ("removed variables", &self.removed_variables),
            ("moved variables", &self.moved_variables),
        ];
        let named = lists.iter().filter(|(_, names)| !names.is_empty());
        let mut parts: Vec<String> = named.map(|(what, names)| format!("{what} {}", some(names, readable))).collect();
        if self.constants_changed {
            parts.push("constants".to_string());
        }
        if parts.is_empty() { "nothing changed".to_string() } else { parts.join("; ") }
    }

    pub(super) fn between(before: &LiveObject, after: &LiveObject) -> Diff {
        let names = |of: &LiveObject, is_meant: &dyn Fn(&str) -> bool| -> Vec<String> {
            of.functions.keys().filter(|name| is_meant(name)).cloned().collect()
        };
        let is_changed = |name: &str| before.functions.get(name).is_some_and(|old| *old != after.functions[name]);
        Diff {
            changed: names(after, &is_changed),
            added: names(after, &|name| !before.functions.contains_key(name)),
            removed: names(before, &|name| !after.functions.contains_key(name)),
            new_variables: after.variables.difference(&before.variables).cloned().collect(),
            removed_variables: before.variables.difference(&after.variables).cloned().collect(),
            moved_variables: Vec::new(),
            constants_changed: before.constants_hash != after.constants_hash,
        }
    }
}

/// The first names of a list, and the number of the others. If names have readable ones, the shortest: those are no instances.
fn some(names: &[String], readable: &dyn Fn(&str) -> Option<String>) -> String {
    let mut shown: Vec<String> = names.iter().map(|name| readable(name).unwrap_or_else(|| name.clone())).collect();
    if shown != names {
        shown.sort_by_key(String::len);
    }
    match shown.len().checked_sub(SHOWN) {
        None | Some(0) => shown.join(", "),
        Some(more) => format!("{} and {more} more", shown[..SHOWN].join(", ")),
    }
}

impl fmt::Display for Diff {
    /// The names of what changed, on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.in_words(&|_| None))
    }
}

/// What the functions of an object are compared by. Local names may occur twice; then they are compared together.
pub(super) fn prints(file: &ObjectFile<'_>) -> BTreeMap<String, Print> {
    let mut prints: BTreeMap<String, Print> = BTreeMap::new();
    for (_, section, symbol) in file.functions() {
        let hash = hash_of(file, section, symbol.value, symbol.size);
        let print = prints.entry(symbol.name.to_string()).or_insert(Print { hash: 0, size: 0, is_strong: false });
        print.hash = print.hash.rotate_left(1) ^ hash;
        print.size = print.size.saturating_add(symbol.size);
        print.is_strong |= symbol.is_strong();
    }
    prints
}

/// The constants that have names.
pub(super) fn constants(file: &ObjectFile<'_>) -> BTreeMap<String, Constant> {
    let of_constants = file.sections.iter().enumerate().filter(|(_, section)| section.class == Class::Constants);
    let named = of_constants.flat_map(|(index, _)| file.data_symbols(index).map(move |(_, symbol)| (index, symbol)));
    let named = named.filter(|(_, symbol)| !is_anonymous(symbol.name));
    let constant = named.map(|(section, symbol)| {
        let hash = hash_of(file, section, symbol.value, symbol.size);
        (
            symbol.key().to_string(),
            Constant { hash, size: symbol.size, is_shared: !symbol.is_local() && !symbol.is_weak() },
        )
    });
    constant.collect()
}

/// A hash of all constants of an object.
pub(super) fn constants_hash(file: &ObjectFile<'_>) -> u64 {
    let (mut hasher, mut anonymous) = (DefaultHasher::new(), 0u64);
    for (index, section) in file.sections.iter().enumerate() {
        if section.class == Class::Constants && section.size > 0 && !section.lists_room() {
            let hash = hash_of(file, index, 0, section.size);
            match is_anonymous(section.name) {
                // In any order.
                true => anonymous = anonymous.wrapping_add(hash),
                false => (section.name, hash).hash(&mut hasher),
            }
        }
    }
    hasher.write_u64(anonymous);
    hasher.finish()
}

fn hash_of(file: &ObjectFile<'_>, section: usize, start: u64, size: u64) -> u64 {
    hash_nested(file, section, (start, size), 0)
}

/// `depth` is the number of anonymous constants that led to this place.
fn hash_nested(file: &ObjectFile<'_>, section: usize, (start, size): (u64, u64), depth: usize) -> u64 {
    let mut hasher = DefaultHasher::new();
    let section = &file.sections[section];
    let end = start.saturating_add(size);
    let (from, to) = (clamp(start, section.content), clamp(end, section.content));
    let mut bytes = section.content[from..to].to_vec();
    for relocation in section.relocations.iter().filter(|relocation| (start..end).contains(&relocation.offset)) {
        let inside = (relocation.offset - start) as usize;
        let width = relocation.kind.map_or(0, |kind| kind.width());
        bytes.iter_mut().skip(inside).take(width).for_each(|byte| *byte = 0);
        (inside, relocation.r_type).hash(&mut hasher);
        hash_target(file, relocation, &mut hasher, depth);
    }
    (size, bytes).hash(&mut hasher);
    hasher.finish()
}

fn hash_target(file: &ObjectFile<'_>, relocation: &Relocation, hasher: &mut DefaultHasher, depth: usize) {
    let symbol = &file.symbols[relocation.symbol];
    let place = file.target(relocation).and_then(|(section, offset)| Some((section, u64::try_from(offset).ok()?)));
    let Some((index, offset)) = place.filter(|_| symbol.is_local()) else {
        return (symbol.name, relocation.addend).hash(hasher);
    };
    let section = &file.sections[index];
    if is_anonymous(section.name) {
        if depth < DEEPEST {
            hash_nested(file, index, (0, section.size), depth + 1).hash(hasher);
        }
        return offset.hash(hasher);
    }
    let is_function = section.class == Class::Code;
    let named = file.symbol_at(index, offset, |symbol| (symbol.kind == st::TYPE_FUNC) == is_function);
    if let Some((_, named)) = named.filter(|(_, named)| is_anonymous(named.name)) {
        if depth < DEEPEST {
            hash_nested(file, index, (named.value, named.size), depth + 1).hash(hasher);
        }
        return (offset - named.value).hash(hasher);
    }
    if let Some((_, named)) = named {
        return (named.key(), offset - named.value).hash(hasher);
    }
    let content = &section.content[clamp(offset, section.content)..];
    let length = match section.has_texts() {
        true => content.iter().position(|byte| *byte == 0).unwrap_or(content.len()),
        false => content.len().min(LONGEST_UNNAMED),
    };
    (section.name, &content[..length]).hash(hasher);
}

fn clamp(offset: u64, content: &[u8]) -> usize {
    (offset as usize).min(content.len())
}

/// Whether a section holds a constant that rustc has numbered (`.rodata..Lanon.HASH.NUMBER`), or a symbol is one (`.Lanon.HASH.NUMBER`).
fn is_anonymous(name: &str) -> bool {
    name.contains(".Lanon.")
}

/// The most names of a list that are shown.
const SHOWN: usize = 8;
/// How far constants that refer to constants are followed.
const DEEPEST: usize = 4;
/// Bytes of an unnamed constant that are compared: as many as a vector register has.
const LONGEST_UNNAMED: usize = 16;
