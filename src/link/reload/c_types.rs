//! [`CTypes`]: the types of C and C++.
//!
//! A type is described by what it looks like in memory: `typedef`, `const` and the names of numbers are left out. A type that has a
//! name is described by its path, and its layout is recorded. A type without a name, and one of a function, is described by its parts.

use std::cell::Cell;
use std::collections::BTreeSet;

use gimli::constants as dw;

use crate::link::reload::debug_info::{Entry, Tree};
use crate::link::reload::object_file::{ObjectFile, Symbol};
use crate::link::reload::types::{Layout, Signature, Types, hash_of};

/// A unit of C or C++.
pub(super) struct CTypes<'a> {
    pub(super) file: &'a ObjectFile<'a>,
    pub(super) tree: Tree<'a>,
    /// How many bytes of descriptions may still be written. A broken object may have types whose parts double at each level.
    pub(super) room: Cell<usize>,
}

/// The words for a type.
#[derive(Default)]
struct Description {
    text: String,
    leads_to: BTreeSet<String>,
    /// The types whose parts are being described.
    open: Vec<usize>,
}

impl Description {
    fn layout(self) -> Layout {
        Layout { hash: hash_of(self.text), leads_to: self.leads_to }
    }
}

impl CTypes<'_> {
    pub(super) fn record(&self, types: &mut Types) {
        let mut names_twice = Vec::new();
        for (position, entry) in self.tree.entries.iter().enumerate() {
            match entry.tag {
                dw::DW_TAG_subprogram if !entry.is_declaration && !entry.is_instance => {
                    self.record_signature(position, types)
                }
                dw::DW_TAG_variable => {
                    if let Some((symbol, layout)) = self.variable(position)
                        && types.variables.insert(symbol.to_string(), layout).is_some()
                    {
                        names_twice.push(symbol);
                    }
                }
                _ => self.record_layout(position, types),
            }
        }
        // `static` variables of several functions.
        for symbol in names_twice {
            types.variables.remove(symbol);
        }
    }

    fn record_layout(&self, position: usize, types: &mut Types) {
        let entry = &self.tree.entries[position];
        if !self.is_named(position) || entry.is_declaration {
            return;
        }
        let mut description = Description::default();
        match entry.tag {
            dw::DW_TAG_typedef => {
                let Some(unnamed) = self.unnamed_target(entry) else { return };
                self.describe_parts(unnamed, &mut description);
            }
            _ => self.describe_parts(position, &mut description),
        }
        let path = self.tree.path(position);
        if entry.tag == dw::DW_TAG_enumeration_type {
            let enumerators = self.tree.children(position);
            for enumerator in enumerators.filter(|child| child.tag == dw::DW_TAG_enumerator) {
                let path = format!("{path}::{}", enumerator.name.unwrap_or_default());
                types.layouts.insert(path, Layout::of(enumerator.numbers));
            }
        }
        types.layouts.insert(path, description.layout());
    }

    /// Whether a type is known by its path: it has a name that the source gave it, outside of functions.
    fn is_named(&self, position: usize) -> bool {
        let entry = &self.tree.entries[position];
        let is_type = match entry.tag {
            dw::DW_TAG_typedef => self.unnamed_target(entry).is_some(),
            tag => AGGREGATES.contains(&tag),
        };
        is_type && entry.name.is_some_and(|name| !name.starts_with('<')) && !self.tree.is_in_function(entry)
    }

    /// The type without a name that a `typedef` names.
    fn unnamed_target(&self, entry: &Entry<'_>) -> Option<usize> {
        let target = self.tree.position_of(entry.a_type).filter(|_| entry.tag == dw::DW_TAG_typedef)?;
        let entry = &self.tree.entries[target];
        (AGGREGATES.contains(&entry.tag) && entry.name.is_none()).then_some(target)
    }

    fn record_signature(&self, position: usize, types: &mut Types) {
        let entry = &self.tree.entries[position];
        let declared = self.tree.declaration(position);
        let name = entry.symbol.or(declared.symbol).or(entry.name).or(declared.name);
        let Some(name) = name else { return };
        let mut description = Description::default();
        self.describe_call(position, declared, &mut description);
        let signature = Signature { hash: hash_of(description.text), returns_closure: false };
        types.signatures.insert(name.to_string(), signature);
    }

    /// The variable of the object that an entry describes, by its symbol.
    fn variable(&self, position: usize) -> Option<(&str, Layout)> {
        let entry = &self.tree.entries[position];
        let symbol = match entry.place(self.file) {
            Some((section, offset)) => self.file.symbol_at(section, offset, |symbol| !symbol.name.is_empty())?.1,
            None => self.thread_local_without_place(position)?,
        };
        let mut description = Description::default();
        let a_type = self.tree.declaration(position).a_type.or(entry.a_type)?;
        self.describe(self.tree.position_of(Some(a_type)), &mut description);
        Some((symbol.key(), description.layout()))
    }

    /// The thread-local variable that has the name of an entry without a place. In debug information of gcc for AArch64, no
    /// thread-local variable has one. Those of functions are left out: a variable on the stack may have the same name.
    fn thread_local_without_place(&self, position: usize) -> Option<&Symbol<'_>> {
        let entry = &self.tree.entries[position];
        if entry.is_declaration || self.tree.is_in_function(entry) {
            return None;
        }
        let declared = self.tree.declaration(position);
        let name = entry.symbol.or(declared.symbol).or(entry.name).or(declared.name)?;
        let sections = self.file.variable_sections().filter(|(_, kind)| kind.is_thread_local());
        let mut symbols = sections.flat_map(|(section, _)| self.file.data_symbols(section));
        symbols.find_map(|(_, symbol)| (symbol.name == name).then_some(symbol))
    }

    fn describe(&self, position: Option<usize>, to: &mut Description) {
        let Some(room) = self.room.get().checked_sub(SMALLEST) else { return };
        self.room.set(room);
        let Some(position) = position.filter(|_| to.text.len() < LONGEST) else { return to.text.push_str("void") };
        let entry = &self.tree.entries[position];
        if self.is_named(position) {
            let path = self.tree.path(position);
            to.text.push_str(&path);
            to.leads_to.insert(path);
            return;
        }
        let target = self.tree.position_of(entry.a_type);
        if to.open.len() > DEEPEST || to.open.contains(&position) {
            return;
        }
        to.open.push(position);
        match entry.tag {
            dw::DW_TAG_base_type => to.text.push_str(&format!("{:?}", entry.numbers)),
            dw::DW_TAG_pointer_type | dw::DW_TAG_reference_type | dw::DW_TAG_rvalue_reference_type => {
                to.text.push('*');
                self.describe(target, to);
            }
            dw::DW_TAG_array_type => {
                let ranges = self.tree.children(position).map(|range| range.numbers);
                ranges.for_each(|range| to.text.push_str(&format!("[{range:?}]")));
                self.describe(target, to);
            }
            dw::DW_TAG_subroutine_type => self.describe_call(position, entry, to),
            dw::DW_TAG_ptr_to_member_type => {
                to.text.push_str("::*");
                self.describe(target, to);
            }
            dw::DW_TAG_typedef | dw::DW_TAG_const_type | dw::DW_TAG_volatile_type | dw::DW_TAG_restrict_type => {
                self.describe(target, to);
            }
            dw::DW_TAG_atomic_type => {
                to.text.push_str("atomic ");
                self.describe(target, to);
            }
            tag if AGGREGATES.contains(&tag) => self.describe_parts(position, to),
            _ => to.text.push_str(entry.name.unwrap_or_default()),
        }
        to.open.pop();
    }

    /// The fields of a type, its bases, and the places of its virtual functions.
    fn describe_parts(&self, position: usize, to: &mut Description) {
        let entry = &self.tree.entries[position];
        to.text.push_str(&format!("{{{}", self.tree.size(position)));
        if entry.tag == dw::DW_TAG_enumeration_type {
            self.describe(self.tree.position_of(entry.a_type), to);
        }
        for child in self.tree.children(position) {
            match child.tag {
                // A `static` member is declared.
                dw::DW_TAG_member | dw::DW_TAG_inheritance if !child.is_declaration => {
                    to.text.push_str(&format!(";{} {:?} ", child.name.unwrap_or_default(), child.numbers));
                    self.describe(self.tree.position_of(child.a_type), to);
                }
                dw::DW_TAG_subprogram if child.slot.is_some() => {
                    let name = child.symbol.or(child.name).unwrap_or_default();
                    to.text.push_str(&format!(";{:?} {name}", child.slot));
                }
                _ => {}
            }
        }
        to.text.push('}');
    }

    /// The types of a result and of parameters.
    fn describe_call(&self, position: usize, declared: &Entry<'_>, to: &mut Description) {
        let a_type = declared.a_type.or(self.tree.entries[position].a_type);
        self.describe(self.tree.position_of(a_type), to);
        to.text.push('(');
        for child in self.tree.children(position) {
            match child.tag {
                dw::DW_TAG_formal_parameter => {
                    self.describe(self.tree.position_of(child.a_type), to);
                    to.text.push(',');
                }
                dw::DW_TAG_unspecified_parameters => to.text.push_str("..."),
                _ => {}
            }
        }
        to.text.push(')');
    }
}

const AGGREGATES: [gimli::DwTag; 4] =
    [dw::DW_TAG_structure_type, dw::DW_TAG_class_type, dw::DW_TAG_union_type, dw::DW_TAG_enumeration_type];
/// How deep types without names are nested in types that are compared.
const DEEPEST: usize = 64;
/// Bytes of a description, after which nothing is added.
const LONGEST: usize = 1 << 16;
/// Bytes that each part of a description is counted as.
const SMALLEST: usize = 16;
/// Bytes of all descriptions of a unit.
pub(super) const ROOM: usize = 1 << 28;
