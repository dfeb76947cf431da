//! [`RustTypes`]: the types of Rust.
//!
//! | recorded, beside what [`Types`] has of each language | by | compared because |
//! |---|---|---|
//! | the functions in the table of a `dyn` type, in their order | the name of the table | objects of it exist |
//! | whether the result of a function has a closure or a `Future` of the crate in it | its symbol | its type changes with its body |

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use gimli::{DwTag, UnitOffset, constants as dw};

use crate::link::reload::debug_info::Tree;
use crate::link::reload::object_file::{ObjectFile, Relocation};
use crate::link::reload::rust_names::RustName;
use crate::link::reload::types::{Layout, Signature, Types};

/// A unit of Rust.
pub(super) struct RustTypes<'a> {
    pub(super) file: &'a ObjectFile<'a>,
    pub(super) tree: Tree<'a>,
}

impl RustTypes<'_> {
    pub(super) fn record(&self, types: &mut Types) {
        for (position, entry) in self.tree.entries.iter().enumerate() {
            match entry.tag {
                dw::DW_TAG_structure_type | dw::DW_TAG_union_type | dw::DW_TAG_enumeration_type => {
                    self.record_layout(position, types);
                }
                dw::DW_TAG_subprogram if !entry.is_instance => self.record_signature(position, types),
                dw::DW_TAG_variable => {
                    if let Some(symbol) = entry.symbol {
                        types.variables.insert(symbol.to_string(), Layout::of(self.type_name(entry.a_type)));
                    }
                }
                _ => {}
            }
        }
        self.record_tables(types);
    }

    fn record_layout(&self, position: usize, types: &mut Types) {
        let is_part = |parent: usize| IN_TYPES.contains(&self.tree.entries[parent].tag);
        let path = self.tree.path(position);
        // Parts are recorded with the whole, and closures are never shared by versions.
        if self.tree.entries[position].parent.is_some_and(is_part) || is_closure(&path) {
            return;
        }
        let mut hasher = DefaultHasher::new();
        self.hash_layout(position, &mut hasher, 0);
        // Several crates may have types of one path.
        let layout = types.layouts.entry(path).or_default();
        layout.hash = layout.hash.wrapping_add(hasher.finish());
    }

    /// The tables of `dyn` types: a slot is called by its number.
    fn record_tables(&self, types: &mut Types) {
        for (position, entry) in self.tree.entries.iter().enumerate() {
            if !entry.name.is_some_and(|name| name.ends_with("{vtable}")) {
                continue;
            }
            let name = self.tree.path(position);
            if let Some((section, start)) = entry.place(self.file).filter(|_| !is_closure(&name)) {
                let size = self.tree.position_of(entry.a_type).map_or(0, |table| self.tree.size(table));
                types
                    .layouts
                    .insert(name, Layout { hash: hash_of_table(self.file, section, start, size), ..Layout::default() });
            }
        }
    }

    fn hash_layout(&self, position: usize, hasher: &mut DefaultHasher, depth: usize) {
        let entry = &self.tree.entries[position];
        (entry.tag.0, entry.name, entry.numbers, self.type_name(entry.a_type)).hash(hasher);
        let is_function = |child: &usize| self.tree.entries[*child].tag == dw::DW_TAG_subprogram;
        for child in self.tree.child_positions(position).filter(|child| !is_function(child)) {
            if depth < DEEPEST {
                self.hash_layout(child, hasher, depth + 1);
            }
        }
        hasher.write_u8(0);
    }

    fn record_signature(&self, position: usize, types: &mut Types) {
        let entry = &self.tree.entries[position];
        // The declaration of a method is in its type, and has the result.
        let declared = self.tree.position_of(entry.specification).unwrap_or(position);
        let declaration = &self.tree.entries[declared];
        // `#[no_mangle]`: the name is that of the symbol.
        let Some(symbol) = entry.symbol.or(declaration.symbol).or(declaration.name) else { return };
        let result = self.type_name(declaration.a_type);
        let mut hasher = DefaultHasher::new();
        result.hash(&mut hasher);
        let parameters = self.tree.children(declared).filter(|child| child.tag == dw::DW_TAG_formal_parameter);
        for parameter in parameters {
            self.type_name(parameter.a_type).hash(&mut hasher);
        }
        let signature = Signature { hash: hasher.finish(), returns_closure: is_closure(&result) };
        types.signatures.insert(symbol.to_string(), signature);
    }

    fn type_name(&self, offset: Option<UnitOffset>) -> String {
        // The types of the elements of arrays, which have no names.
        let (mut next, mut counts) = (self.tree.position_of(offset), String::new());
        while let Some(array) = next.filter(|position| self.tree.entries[*position].tag == dw::DW_TAG_array_type) {
            if counts.len() > LONGEST_COUNTS {
                break;
            }
            let entry = &self.tree.entries[array];
            let count = self.tree.children(array).next().and_then(|range| range.numbers.first());
            counts += &format!("[{}]", count.unwrap_or_default());
            next = self.tree.position_of(entry.a_type);
        }
        counts + &next.map(|position| self.tree.path(position)).unwrap_or_default()
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

/// How deep types are nested in types that are compared.
const DEEPEST: usize = 64;
/// Bytes of the text for the counts of an array. A broken object may have an array of itself.
const LONGEST_COUNTS: usize = 256;
/// The tags in which a type is a part.
const IN_TYPES: [DwTag; 5] = [
    dw::DW_TAG_structure_type,
    dw::DW_TAG_union_type,
    dw::DW_TAG_enumeration_type,
    dw::DW_TAG_variant_part,
    dw::DW_TAG_variant,
];
