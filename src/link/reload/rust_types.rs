//! [`RustTypes`]: what the debug information of a Rust object says of types, so that a version is refused that would read memory of
//! another one as something else.
//!
//! | recorded | by | compared because |
//! |---|---|---|
//! | the layout of a `struct`, `enum` or `union` | its path | objects of it exist |
//! | the functions in the table of a `dyn` type, in their order | the name of the table | the same |
//! | the types of the parameters and of the result of a function | its symbol | a loop that runs goes on calling it |
//! | whether the result has a closure or a `Future` of the crate in it | its symbol | its type changes with its body |
//! | the type of a `static` | its symbol | it keeps its value |
//!
//! A layout has the names of the types of its fields, whose layouts are recorded too. Objects of other languages, and those without
//! debug information, have none of this.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use gimli::{AttributeValue, DwTag, Dwarf, EndianSlice, LittleEndian, Section as _, Unit, UnitOffset, constants as dw};
use memchr::memmem;
use rustc_hash::FxHashMap;

use crate::link::reload::object_file::{ObjectFile, Relocation, Section};
use crate::link::reload::refusal::Refusal;
use crate::link::reload::rust_names::RustName;

/// What debug information says of types.
#[derive(Debug, Default)]
pub(super) struct RustTypes {
    /// A hash of each layout, by the path of the type.
    pub(super) layouts: BTreeMap<String, u64>,
    pub(super) signatures: FxHashMap<String, Signature>,
    /// A hash of the type of each `static`, by symbol.
    pub(super) statics: FxHashMap<String, u64>,
}

/// The types of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Signature {
    pub(super) hash: u64,
    /// Whether its result has a closure in it.
    pub(super) returns_closure: bool,
}

type Slice<'a> = EndianSlice<'a, LittleEndian>;

impl RustTypes {
    /// Reads the debug information of an object. If it cannot be read, what was read before.
    pub(super) fn read(file: &ObjectFile<'_>) -> RustTypes {
        let mut types = RustTypes::default();
        if has_units_of_rustc(file) {
            let sections = Sections::new(file);
            let _ = read_units(file, &sections, &mut types);
        }
        types
    }
}

impl RustTypes {
    /// Adds what was known before, because objects of older types may exist.
    ///
    /// # Errors
    /// A type or a `static` is another one now.
    pub(super) fn keep(&mut self, before: &RustTypes) -> Result<(), Refusal> {
        let changed =
            self.layouts.iter().filter(|(path, layout)| before.layouts.get(*path).is_some_and(|old| old != *layout));
        // A type itself before those that have it as an argument.
        if let Some((path, _)) = changed.min_by_key(|(path, _)| (path.contains(['<', '{']), path.len())) {
            let problem = "its layout or its methods changed, and objects of it may exist; start the program again";
            return Err(Refusal::new(path, problem));
        }
        let changed = self
            .statics
            .iter()
            .filter(|(symbol, a_type)| before.statics.get(*symbol).is_some_and(|old| old != *a_type));
        if let Some((symbol, _)) = changed.min_by_key(|(symbol, _)| *symbol) {
            return Err(Refusal::new(symbol, "it has another type, and keeps its value; start the program again"));
        }
        for (path, layout) in &before.layouts {
            self.layouts.entry(path.clone()).or_insert(*layout);
        }
        for (symbol, a_type) in &before.statics {
            self.statics.entry(symbol.clone()).or_insert(*a_type);
        }
        Ok(())
    }
}

/// Whether an object may have debug information of rustc, by the text with which it names itself. The debug information of other languages
/// is not read: there is much of it.
fn has_units_of_rustc(file: &ObjectFile<'_>) -> bool {
    let is_readable = |section: &&Section<'_>| section.flags & SHF_COMPRESSED == 0;
    let named = |name: &'static str| file.sections.iter().filter(move |section| section.name == name);
    let names_rustc = |section: &Section<'_>| memmem::find(section.content, b"rustc version").is_some();
    named(".debug_info").any(|section| is_readable(&section))
        && named(".debug_str").chain(named(".debug_info")).filter(is_readable).any(names_rustc)
}

/// The debug sections of an object, with their relocations applied as far as they lead to other debug sections.
struct Sections<'a>(FxHashMap<&'a str, Cow<'a, [u8]>>);

impl<'a> Sections<'a> {
    fn new(file: &'a ObjectFile<'_>) -> Sections<'a> {
        let debug = file.sections.iter().filter(|section| section.name.starts_with(".debug_"));
        let content = debug.map(|section| (section.name, relocated(file, section)));
        Sections(content.collect())
    }
}

fn relocated<'a>(file: &'a ObjectFile<'_>, section: &'a Section<'_>) -> Cow<'a, [u8]> {
    if !RELOCATED.contains(&section.name) {
        return Cow::Borrowed(section.content);
    }
    let mut bytes = section.content.to_vec();
    for relocation in &section.relocations {
        let value = relocation.addend.wrapping_add_unsigned(file.symbols[relocation.symbol].value).to_le_bytes();
        let width = file.arch.absolute_width(relocation.r_type).unwrap_or(0);
        let field = (relocation.offset as usize)..(relocation.offset as usize).saturating_add(width);
        if let Some(field) = bytes.get_mut(field) {
            field.copy_from_slice(&value[..width]);
        }
    }
    Cow::Owned(bytes)
}

fn read_units(file: &ObjectFile<'_>, sections: &Sections<'_>, types: &mut RustTypes) -> gimli::Result<()> {
    let load = |id: gimli::SectionId| -> gimli::Result<Slice<'_>> {
        let bytes = sections.0.get(id.name()).map(|bytes| &**bytes).unwrap_or_default();
        Ok(EndianSlice::new(bytes, LittleEndian))
    };
    let dwarf = Dwarf::load(load)?;
    let mut units = dwarf.units();
    while let Some(header) = units.next()? {
        let unit = dwarf.unit(header)?;
        let mut entries = unit.entries();
        let language = entries.next_dfs()?.and_then(|root| root.attr_value(dw::DW_AT_language));
        if language == Some(AttributeValue::Language(dw::DW_LANG_Rust)) {
            let tree = Tree::read(&dwarf, &unit)?;
            tree.record(types);
            tree.record_tables(file, types);
        }
    }
    Ok(())
}

/// An entry, as far as it says something of a type.
struct Entry<'a> {
    tag: DwTag,
    name: Option<&'a str>,
    symbol: Option<&'a str>,
    parent: Option<usize>,
    children: Vec<usize>,
    /// The type of a member, a parameter or a result.
    a_type: Option<UnitOffset>,
    specification: Option<UnitOffset>,
    /// Sizes, places and values, in the order of `NUMBERS`.
    numbers: [Option<u64>; NUMBERS.len()],
    /// For a variable: the offset in bytes in `.debug_info` of the expression that is its place.
    place_at: Option<usize>,
}

/// The entries of a unit.
struct Tree<'a> {
    entries: Vec<Entry<'a>>,
    positions: FxHashMap<UnitOffset, usize>,
}

impl<'a> Tree<'a> {
    fn read(dwarf: &Dwarf<Slice<'a>>, unit: &Unit<Slice<'a>>) -> gimli::Result<Tree<'a>> {
        let mut tree = Tree { entries: Vec::new(), positions: FxHashMap::default() };
        // For each depth, the entry that is open there. `None` for one that is left out.
        let mut open: Vec<Option<usize>> = Vec::new();
        let mut cursor = unit.entries();
        while let Some(entry) = cursor.next_dfs()? {
            open.truncate(usize::try_from(entry.depth()).unwrap_or(0));
            if !KEPT.contains(&entry.tag()) {
                open.push(open.last().copied().flatten());
                continue;
            }
            let text = |name| {
                let value = entry.attr_value(name)?;
                dwarf.attr_string(unit, value).ok().and_then(|text| std::str::from_utf8(text.slice()).ok())
            };
            let reference = |name| match entry.attr_value(name)? {
                AttributeValue::UnitRef(offset) => Some(offset),
                _ => None,
            };
            let number = |name| {
                let attribute = entry.attr(name)?;
                attribute.udata_value().or_else(|| attribute.sdata_value().map(|value| value as u64))
            };
            let place_at = match entry.attr_value(dw::DW_AT_location) {
                Some(AttributeValue::Exprloc(place)) => Some(place.0.offset_from(*dwarf.debug_info.reader())),
                _ => None,
            };
            let parent = open.last().copied().flatten();
            let position = tree.entries.len();
            tree.entries.push(Entry {
                tag: entry.tag(),
                name: text(dw::DW_AT_name),
                symbol: text(dw::DW_AT_linkage_name),
                parent,
                children: Vec::new(),
                a_type: reference(dw::DW_AT_type),
                specification: reference(dw::DW_AT_specification),
                numbers: NUMBERS.map(number),
                place_at,
            });
            tree.positions.insert(entry.offset(), position);
            if let Some(parent) = parent {
                tree.entries[parent].children.push(position);
            }
            open.push(Some(position));
        }
        Ok(tree)
    }

    fn record(&self, types: &mut RustTypes) {
        for (position, entry) in self.entries.iter().enumerate() {
            match entry.tag {
                dw::DW_TAG_structure_type | dw::DW_TAG_union_type | dw::DW_TAG_enumeration_type => {
                    self.record_layout(position, types);
                }
                dw::DW_TAG_subprogram => self.record_signature(position, types),
                dw::DW_TAG_variable => {
                    if let Some(symbol) = entry.symbol {
                        types.statics.insert(symbol.to_string(), hash(&self.type_name(entry.a_type)));
                    }
                }
                _ => {}
            }
        }
    }

    fn record_layout(&self, position: usize, types: &mut RustTypes) {
        let is_part = |parent: usize| IN_TYPES.contains(&self.entries[parent].tag);
        let path = self.path(position);
        // Parts are recorded with the whole, and closures are never shared by versions.
        if self.entries[position].parent.is_some_and(is_part) || is_closure(&path) {
            return;
        }
        let mut hasher = DefaultHasher::new();
        self.hash_layout(position, &mut hasher, 0);
        // Several crates may have types of one path.
        let layout = types.layouts.entry(path).or_default();
        *layout = layout.wrapping_add(hasher.finish());
    }

    /// The tables of `dyn` types: a slot is called by its number.
    fn record_tables(&self, file: &ObjectFile<'_>, types: &mut RustTypes) {
        let info = file.sections.iter().find(|section| section.name == ".debug_info");
        let relocations = info.into_iter().flat_map(|info| &info.relocations);
        let places: FxHashMap<u64, &Relocation> =
            relocations.map(|relocation| (relocation.offset, relocation)).collect();
        for (position, entry) in self.entries.iter().enumerate() {
            let Some(at) = entry.place_at.filter(|_| entry.name.is_some_and(|name| name.ends_with("{vtable}"))) else {
                continue;
            };
            let name = self.path(position);
            // After the operation `DW_OP_addr`.
            let target = places.get(&(at as u64 + 1)).and_then(|relocation| file.target(relocation));
            if let Some((section, start)) = target.filter(|_| !is_closure(&name)) {
                let size = self.position_of(entry.a_type).and_then(|table| self.entries[table].numbers[0]).unwrap_or(0);
                types.layouts.insert(name, hash_of_table(file, section, start as u64, size));
            }
        }
    }

    fn position_of(&self, offset: Option<UnitOffset>) -> Option<usize> {
        self.positions.get(&offset?).copied()
    }

    fn hash_layout(&self, position: usize, hasher: &mut DefaultHasher, depth: usize) {
        let entry = &self.entries[position];
        (entry.tag.0, entry.name, entry.numbers, self.type_name(entry.a_type)).hash(hasher);
        for child in entry.children.iter().filter(|child| self.entries[**child].tag != dw::DW_TAG_subprogram) {
            if depth < DEEPEST {
                self.hash_layout(*child, hasher, depth + 1);
            }
        }
        hasher.write_u8(0);
    }

    fn record_signature(&self, position: usize, types: &mut RustTypes) {
        let entry = &self.entries[position];
        // The declaration of a method is in its type, and has the result.
        let declared = entry.specification.and_then(|offset| self.positions.get(&offset)).map(|at| &self.entries[*at]);
        let declaration = declared.unwrap_or(entry);
        // `#[no_mangle]`: the name is that of the symbol.
        let Some(symbol) = entry.symbol.or(declaration.symbol).or(declaration.name) else { return };
        let result = self.type_name(declaration.a_type);
        let mut hasher = DefaultHasher::new();
        result.hash(&mut hasher);
        let is_parameter = |child: &&usize| self.entries[**child].tag == dw::DW_TAG_formal_parameter;
        for parameter in declaration.children.iter().filter(is_parameter) {
            self.type_name(self.entries[*parameter].a_type).hash(&mut hasher);
        }
        let signature = Signature { hash: hasher.finish(), returns_closure: is_closure(&result) };
        types.signatures.insert(symbol.to_string(), signature);
    }

    /// The names around an entry, and its own.
    fn path(&self, position: usize) -> String {
        let mut names = Vec::new();
        let mut next = Some(position);
        while let Some(entry) = next.map(|position| &self.entries[position]) {
            names.extend(entry.name.filter(|_| entry.tag != dw::DW_TAG_compile_unit));
            next = entry.parent;
        }
        names.reverse();
        names.join("::")
    }

    fn type_name(&self, offset: Option<UnitOffset>) -> String {
        // The types of the elements of arrays, which have no names.
        let (mut next, mut counts) = (self.position_of(offset), String::new());
        while let Some(array) = next.filter(|position| self.entries[*position].tag == dw::DW_TAG_array_type) {
            if counts.len() > LONGEST_COUNTS {
                break;
            }
            let entry = &self.entries[array];
            let count = entry.children.first().and_then(|range| self.entries[*range].numbers.iter().flatten().next());
            counts += &format!("[{}]", count.copied().unwrap_or_default());
            next = self.position_of(entry.a_type);
        }
        counts + &next.map(|position| self.path(position)).unwrap_or_default()
    }
}

/// A hash of the functions in a table, in their order.
fn hash_of_table(file: &ObjectFile<'_>, section: usize, start: u64, size: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    let is_inside = |relocation: &&Relocation| (start..start.saturating_add(size)).contains(&relocation.offset);
    for relocation in file.sections[section].relocations.iter().filter(is_inside) {
        let name = RustName::read(file.symbols[relocation.symbol].name).filter(|name| !name.mentions_closure);
        (relocation.offset - start, name.map(|name| name.unnumbered)).hash(&mut hasher);
    }
    hasher.finish()
}

/// Whether a type is that of a closure or of the state of an `async` function, or has such a type as an argument.
fn is_closure(type_name: &str) -> bool {
    type_name.contains("_env#")
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// How deep types are nested in types that are compared.
const DEEPEST: usize = 64;
/// Bytes of the text for the counts of an array. A broken object may have an array of itself.
const LONGEST_COUNTS: usize = 256;
/// The attributes that a layout has.
const NUMBERS: [gimli::DwAt; 6] = [
    dw::DW_AT_byte_size,
    dw::DW_AT_data_member_location,
    dw::DW_AT_discr_value,
    dw::DW_AT_const_value,
    dw::DW_AT_count,
    dw::DW_AT_upper_bound,
];
/// The tags in which a type is a part.
const IN_TYPES: [DwTag; 5] = [
    dw::DW_TAG_structure_type,
    dw::DW_TAG_union_type,
    dw::DW_TAG_enumeration_type,
    dw::DW_TAG_variant_part,
    dw::DW_TAG_variant,
];
/// The tags that are read.
const KEPT: [DwTag; 19] = [
    dw::DW_TAG_compile_unit,
    dw::DW_TAG_namespace,
    dw::DW_TAG_structure_type,
    dw::DW_TAG_union_type,
    dw::DW_TAG_enumeration_type,
    dw::DW_TAG_variant_part,
    dw::DW_TAG_variant,
    dw::DW_TAG_member,
    dw::DW_TAG_enumerator,
    dw::DW_TAG_subprogram,
    // Their parameters are not those of the function around them.
    dw::DW_TAG_lexical_block,
    dw::DW_TAG_inlined_subroutine,
    dw::DW_TAG_formal_parameter,
    dw::DW_TAG_variable,
    dw::DW_TAG_base_type,
    dw::DW_TAG_pointer_type,
    dw::DW_TAG_array_type,
    dw::DW_TAG_subrange_type,
    dw::DW_TAG_subroutine_type,
];
/// The sections whose relocations lead to other debug sections.
const RELOCATED: [&str; 2] = [".debug_info", ".debug_str_offsets"];
/// `SHF_COMPRESSED`.
const SHF_COMPRESSED: u64 = 0x800;
