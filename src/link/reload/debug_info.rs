//! [`Units`]: the debug information of an object, as far as it says something of types.

use std::borrow::Cow;

use gimli::{
    AttributeValue, DebuggingInformationEntry, DwTag, Dwarf, EndianSlice, LittleEndian, Operation, Section as _, Unit,
    UnitOffset, constants as dw,
};
use rustc_hash::FxHashMap;

use crate::link::reload::object_file::{ObjectFile, Place, Relocation, Section};

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// The sections with debug information.
pub(super) struct Units<'a> {
    /// By name, with relocations applied as far as they lead to other debug sections.
    sections: FxHashMap<&'a str, Cow<'a, [u8]>>,
    /// The relocations of `.debug_info`, and those of `.debug_addr`, sorted by place.
    relocations: [Vec<&'a Relocation>; 2],
}

impl<'a> Units<'a> {
    pub(super) fn open(file: &'a ObjectFile<'_>) -> Units<'a> {
        let debug = file.sections.iter().filter(|section| section.name.starts_with(".debug_"));
        let sections = debug.map(|section| (section.name, relocated(file, section))).collect();
        let relocations = [".debug_info", ".debug_addr"].map(|name| {
            let section = file.sections.iter().filter(|section| section.name == name);
            let all = section.flat_map(|section| &section.relocations);
            let mut all: Vec<&Relocation> = all.collect();
            all.sort_by_key(|relocation| relocation.offset);
            all
        });
        Units { sections, relocations }
    }

    /// Calls `read` with the language and the entries of each unit, until one cannot be read.
    pub(super) fn for_each(&self, mut read: impl FnMut(gimli::DwLang, Tree<'_>)) {
        // What cannot be read is not compared.
        let _ = self.read_units(&mut read);
    }

    fn read_units(&self, read: &mut dyn FnMut(gimli::DwLang, Tree<'_>)) -> gimli::Result<()> {
        let load = |id: gimli::SectionId| -> gimli::Result<Slice<'_>> {
            let bytes = self.sections.get(id.name()).map(|bytes| &**bytes).unwrap_or_default();
            Ok(EndianSlice::new(bytes, LittleEndian))
        };
        let dwarf = Dwarf::load(load)?;
        let mut units = dwarf.units();
        while let Some(header) = units.next()? {
            let unit = dwarf.unit(header)?;
            let mut entries = unit.entries();
            let language = entries.next_dfs()?.and_then(|root| root.attr_value(dw::DW_AT_language));
            if let Some(AttributeValue::Language(language)) = language {
                read(language, Tree::read(self, &dwarf, &unit)?);
            }
        }
        Ok(())
    }
}

/// Whether the bytes of a section are those that its compiler wrote. Compressed sections are not read.
pub(super) fn is_readable(section: &Section<'_>) -> bool {
    section.flags & SHF_COMPRESSED == 0
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

/// An entry, as far as it says something of a type.
pub(super) struct Entry<'a> {
    offset: UnitOffset,
    /// The position behind its last descendant.
    end: usize,
    pub(super) tag: DwTag,
    pub(super) name: Option<&'a str>,
    pub(super) symbol: Option<&'a str>,
    pub(super) parent: Option<usize>,
    /// The type of a member, a parameter or a result.
    pub(super) a_type: Option<UnitOffset>,
    /// The declaration of a definition. Of an instance, the function or variable that it is one of.
    pub(super) specification: Option<UnitOffset>,
    pub(super) numbers: Numbers,
    pub(super) is_declaration: bool,
    /// Whether it is one of the copies of an inlined function, or a part of one. Then another entry has its types.
    pub(super) is_instance: bool,
    /// For a virtual function that the source declares: its number in the table.
    pub(super) slot: Option<u64>,
    /// For a variable with a fixed place: the relocation that has it.
    place: Option<&'a Relocation>,
}

/// Sizes, places and values, in the order of `NUMBERS`. What is not set is zero.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Numbers {
    set: u16,
    values: [u64; NUMBERS.len()],
}

impl Numbers {
    /// The first one that is set.
    pub(super) fn first(&self) -> Option<u64> {
        self.values.get(self.set.trailing_zeros() as usize).copied()
    }
}

/// The entries of a unit.
pub(super) struct Tree<'a> {
    /// In the order of the unit, so the parts of an entry follow it.
    pub(super) entries: Vec<Entry<'a>>,
}

impl<'a> Tree<'a> {
    fn read(units: &'a Units<'a>, dwarf: &Dwarf<Slice<'a>>, unit: &Unit<Slice<'a>>) -> gimli::Result<Tree<'a>> {
        let mut tree = Tree { entries: Vec::new() };
        // For each depth, the entry that is open there, and whether the next one is a part of it. If not, another one is between them.
        let mut open: Vec<(Option<usize>, bool)> = Vec::new();
        let mut cursor = unit.entries();
        while let Some(entry) = cursor.next_dfs()? {
            let depth = usize::try_from(entry.depth()).unwrap_or(0);
            tree.close(open.drain(depth.min(open.len())..));
            let (parent, is_part) = open.last().copied().unwrap_or((None, true));
            let mut own = None;
            if READ.contains(&entry.tag()) && (is_part || entry.tag() != dw::DW_TAG_formal_parameter) {
                let entry = Entry::read(units, dwarf, unit, (entry, parent));
                if !entry.is_without_place() || !tree.is_in_function(&entry) {
                    own = Some(tree.entries.len());
                    tree.entries.push(entry);
                }
            }
            open.push((own.or(parent), own.is_some()));
        }
        tree.close(open.drain(..));
        Ok(tree)
    }

    /// Notes that entries have no more children.
    fn close(&mut self, open: impl Iterator<Item = (Option<usize>, bool)>) {
        let end = self.entries.len();
        open.filter_map(|(position, _)| position).for_each(|position| self.entries[position].end = end);
    }

    /// The children of an entry. Those of one that was left out are among them.
    pub(super) fn children(&self, position: usize) -> impl Iterator<Item = &Entry<'a>> {
        self.child_positions(position).map(|child| &self.entries[child])
    }

    pub(super) fn child_positions(&self, position: usize) -> impl Iterator<Item = usize> {
        let end = self.entries[position].end;
        let within = move |position: usize| (position < end).then_some(position);
        std::iter::successors(within(position + 1), move |child| within(self.entries[*child].end))
    }

    pub(super) fn position_of(&self, offset: Option<UnitOffset>) -> Option<usize> {
        let offset = offset?;
        self.entries.binary_search_by_key(&offset.0, |entry| entry.offset.0).ok()
    }

    /// The declaration of a definition, or the entry itself.
    pub(super) fn declaration(&self, position: usize) -> &Entry<'a> {
        let entry = &self.entries[position];
        self.position_of(entry.specification).map_or(entry, |declared| &self.entries[declared])
    }

    /// The names around an entry, and its own.
    pub(super) fn path(&self, position: usize) -> String {
        let mut names = Vec::new();
        let mut next = Some(position);
        while let Some(entry) = next.map(|position| &self.entries[position]) {
            names.extend(entry.name.filter(|_| entry.tag != dw::DW_TAG_compile_unit));
            next = entry.parent;
        }
        names.reverse();
        names.join("::")
    }

    pub(super) fn is_in_function(&self, entry: &Entry<'_>) -> bool {
        let mut around = std::iter::successors(entry.parent, |around| self.entries[*around].parent);
        around.any(|around| self.entries[around].tag == dw::DW_TAG_subprogram)
    }

    /// Size in bytes of a type.
    pub(super) fn size(&self, position: usize) -> u64 {
        self.entries[position].numbers.values[0]
    }
}

impl<'a> Entry<'a> {
    fn read(
        units: &'a Units<'a>,
        dwarf: &Dwarf<Slice<'a>>,
        unit: &Unit<Slice<'a>>,
        (entry, parent): (&DebuggingInformationEntry<Slice<'a>>, Option<usize>),
    ) -> Entry<'a> {
        let mut new = Entry {
            offset: entry.offset(),
            end: 0,
            tag: entry.tag(),
            name: None,
            symbol: None,
            parent,
            a_type: None,
            specification: None,
            numbers: Numbers::default(),
            is_declaration: false,
            is_instance: false,
            slot: None,
            place: None,
        };
        let text = |value| {
            let text = dwarf.attr_string(unit, value).ok();
            text.and_then(|text| std::str::from_utf8(text.slice()).ok())
        };
        let mut is_artificial = false;
        for attribute in entry.attrs() {
            match (attribute.name(), attribute.value()) {
                (dw::DW_AT_name, value) => new.name = text(value),
                (dw::DW_AT_linkage_name, value) => new.symbol = text(value),
                (dw::DW_AT_type, AttributeValue::UnitRef(offset)) => new.a_type = Some(offset),
                (dw::DW_AT_specification, AttributeValue::UnitRef(offset)) => new.specification = Some(offset),
                (dw::DW_AT_abstract_origin, AttributeValue::UnitRef(offset)) => {
                    new.specification = new.specification.or(Some(offset));
                    new.is_instance = true;
                }
                (dw::DW_AT_declaration, AttributeValue::Flag(is_set)) => new.is_declaration = is_set,
                (dw::DW_AT_artificial, AttributeValue::Flag(is_set)) => is_artificial = is_set,
                (dw::DW_AT_location, AttributeValue::Exprloc(place)) => new.place = units.place(dwarf, unit, place),
                (dw::DW_AT_vtable_elem_location, AttributeValue::Exprloc(mut slot)) => {
                    if let Ok(Operation::UnsignedConstant { value }) = Operation::parse(&mut slot.0, unit.encoding()) {
                        new.slot = Some(value);
                    }
                }
                (name, _) => {
                    if let Some(at) = NUMBERS.iter().position(|number| *number == name) {
                        let signed = || attribute.sdata_value().map(|value| value as u64);
                        if let Some(value) = attribute.udata_value().or_else(signed) {
                            new.numbers.set |= 1 << at;
                            new.numbers.values[at] = value;
                        }
                    }
                }
            }
        }
        // What the compiler adds to a class depends on its uses.
        new.slot = new.slot.filter(|_| !is_artificial);
        new
    }

    /// Whether it is a variable on the stack, in a register, or nowhere.
    fn is_without_place(&self) -> bool {
        self.tag == dw::DW_TAG_variable && self.place.is_none() && self.symbol.is_none() && !self.is_declaration
    }

    /// The section and the offset in bytes of a variable.
    pub(super) fn place(&self, file: &ObjectFile<'_>) -> Option<(usize, u64)> {
        let relocation = self.place?;
        let symbol = &file.symbols[relocation.symbol];
        let Place::Section(section) = symbol.place else { return None };
        Some((section, symbol.value.wrapping_add_signed(relocation.addend)))
    }
}

impl<'a> Units<'a> {
    /// The relocation of the address with which an expression begins.
    fn place(
        &self,
        dwarf: &Dwarf<Slice<'a>>,
        unit: &Unit<Slice<'a>>,
        expression: gimli::Expression<Slice<'a>>,
    ) -> Option<&'a Relocation> {
        let [of_info, of_addresses] = &self.relocations;
        let code = expression.0.slice();
        let find = |all: &[&'a Relocation], at: u64| {
            let found = all.binary_search_by_key(&at, |relocation| relocation.offset).ok()?;
            Some(all[found])
        };
        match dw::DwOp(*code.first()?) {
            // After the byte of the operation.
            dw::DW_OP_addr | dw::DW_OP_const8u => {
                let at = expression.0.offset_from(*dwarf.debug_info.reader()) as u64 + 1;
                find(of_info, at)
            }
            dw::DW_OP_addrx | dw::DW_OP_constx => {
                let mut rest = expression.0;
                let operation = Operation::parse(&mut rest, unit.encoding()).ok()?;
                let (Operation::AddressIndex { index } | Operation::ConstantIndex { index }) = operation else {
                    return None;
                };
                let at = (unit.addr_base.0 as u64).checked_add((index.0 as u64).checked_mul(ADDRESS_SIZE)?)?;
                find(of_addresses, at)
            }
            _ => None,
        }
    }
}

/// The attributes that a layout has. The first one is the size in bytes.
const NUMBERS: [gimli::DwAt; 9] = [
    dw::DW_AT_byte_size,
    dw::DW_AT_data_member_location,
    dw::DW_AT_discr_value,
    dw::DW_AT_const_value,
    dw::DW_AT_count,
    dw::DW_AT_upper_bound,
    dw::DW_AT_bit_size,
    dw::DW_AT_data_bit_offset,
    dw::DW_AT_encoding,
];
/// The tags that are read.
const READ: [DwTag; 29] = [
    dw::DW_TAG_compile_unit,
    dw::DW_TAG_namespace,
    dw::DW_TAG_structure_type,
    dw::DW_TAG_class_type,
    dw::DW_TAG_union_type,
    dw::DW_TAG_enumeration_type,
    dw::DW_TAG_variant_part,
    dw::DW_TAG_variant,
    dw::DW_TAG_member,
    dw::DW_TAG_inheritance,
    dw::DW_TAG_enumerator,
    dw::DW_TAG_subprogram,
    dw::DW_TAG_formal_parameter,
    dw::DW_TAG_unspecified_parameters,
    dw::DW_TAG_variable,
    dw::DW_TAG_base_type,
    dw::DW_TAG_unspecified_type,
    dw::DW_TAG_pointer_type,
    dw::DW_TAG_reference_type,
    dw::DW_TAG_rvalue_reference_type,
    dw::DW_TAG_ptr_to_member_type,
    dw::DW_TAG_array_type,
    dw::DW_TAG_subrange_type,
    dw::DW_TAG_subroutine_type,
    dw::DW_TAG_typedef,
    dw::DW_TAG_const_type,
    dw::DW_TAG_volatile_type,
    dw::DW_TAG_restrict_type,
    dw::DW_TAG_atomic_type,
];
/// The sections whose relocations lead to other debug sections.
const RELOCATED: [&str; 2] = [".debug_info", ".debug_str_offsets"];
/// `SHF_COMPRESSED`.
const SHF_COMPRESSED: u64 = 0x800;
/// Size in bytes of an address in `.debug_addr`.
const ADDRESS_SIZE: u64 = 8;
