//! Which source lines the code of a finished link comes from: the line tables of its debug information (DWARF 5, 6.2),
//! relocated by the link's addresses.
//!
//! For profilers, so nothing here fails a link: a table that cannot be read says nothing. Compressed tables are not read.

use std::collections::BTreeMap;

use gimli::{AttributeValue, DebugLine, DebugLineOffset, EndianSlice, Format, LineProgramHeader, LittleEndian};
use object::read::elf::{FileHeader as _, Rela as _, SectionHeader as _, SectionTable};

use crate::base::ExecutorAddr;
use crate::link::elf::{Header, LE, Rela};
use crate::link::functions::Room;
use crate::link::graph::{Definition, SymbolIndex};
use crate::link::pipeline::FixedLink;
use crate::sync::Arc;

/// From some address on, code comes from this line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceLine {
    /// The address.
    pub address: ExecutorAddr,
    /// The file, as the compiler wrote it: its directory joined with its name.
    pub file: Arc<str>,
    /// The line, from 1.
    pub line: u32,
}

/// By address: the file and line from there on; `None` where nobody knows.
pub(super) type LineTable = BTreeMap<u64, Option<(Arc<str>, u32)>>;

/// All that the object says, in files of unknown names where there is no room for them.
pub(super) fn of(link: &FixedLink<'_>, room: &mut Room) -> LineTable {
    let mut table = LineTable::new();
    let object = link.graph().bytes.clone();
    let sections = Header::parse(&*object).and_then(|header| header.sections(LE, &*object));
    let Ok(sections) = sections else { return table };
    let Some(bytes) = relocated(link, &object, &sections, b".debug_line") else { return table };
    let [line_strings, strings] =
        [&b".debug_line_str"[..], b".debug_str"].map(|name| relocated(link, &object, &sections, name));
    let strings = Strings { line_strings: line_strings.unwrap_or_default(), strings: strings.unwrap_or_default() };
    let mut offset = 0;
    // One program behind the other: their units need not be looked at.
    while let Ok(program) = DebugLine::new(&bytes, LittleEndian).program(DebugLineOffset(offset), 8, None, None) {
        let header = program.header();
        let length_size = if header.format() == Format::Dwarf64 { 12 } else { 4 };
        let Some(next) = offset.checked_add(length_size).and_then(|at| at.checked_add(header.unit_length())) else {
            break;
        };
        let mut files: BTreeMap<u64, Arc<str>> = BTreeMap::new();
        let mut rows = program.rows();
        while let Ok(Some((header, row))) = rows.next_row() {
            if row.end_sequence() {
                table.entry(row.address()).or_insert(None);
            } else if let Some(line) = row.line() {
                let name = || strings.path(header, row.file_index(), room).into();
                let file = files.entry(row.file_index()).or_insert_with(name).clone();
                table.insert(row.address(), Some((file, u32::try_from(line.get()).unwrap_or(u32::MAX))));
            }
        }
        offset = next;
    }
    table
}

/// The lines of some code; none if there is no room for the names of their files.
pub(super) fn within(table: &LineTable, address: ExecutorAddr, size: u64, room: &mut Room) -> Vec<SourceLine> {
    let (start, end) = (address.value(), address.value().saturating_add(size));
    let before = table.range(..=start).next_back().filter(|(at, _)| **at < start).map(|(_, line)| (start, line));
    let rows = before.into_iter().chain(table.range(start..end).map(|(at, line)| (*at, line)));
    let known = rows.filter_map(|(at, line)| {
        let (file, line) = line.as_ref()?;
        Some(SourceLine { address: ExecutorAddr::new(at), file: file.clone(), line: *line })
    });
    let known: Vec<SourceLine> = known.collect();
    // Profilers write the name with each line.
    if room.take(known.iter().map(|line| line.file.len()).sum()) { known } else { Vec::new() }
}

struct Strings {
    line_strings: Vec<u8>,
    strings: Vec<u8>,
}

type Slice<'a> = EndianSlice<'a, LittleEndian>;

impl Strings {
    fn path(&self, header: &LineProgramHeader<Slice<'_>>, file: u64, room: &mut Room) -> String {
        let Some(entry) = header.file(file) else { return UNKNOWN.to_string() };
        let name = self.text(entry.path_name());
        let path = match entry.directory(header).map(|directory| self.text(directory)) {
            Some(directory) if !directory.is_empty() && !name.starts_with('/') => format!("{directory}/{name}"),
            _ => name,
        };
        if room.take(path.len()) { path } else { UNKNOWN.to_string() }
    }

    fn text(&self, value: AttributeValue<Slice<'_>>) -> String {
        let bytes = match value {
            AttributeValue::String(text) => text.slice(),
            AttributeValue::DebugLineStrRef(at) => terminated(&self.line_strings, at.0),
            AttributeValue::DebugStrRef(at) => terminated(&self.strings, at.0),
            _ => UNKNOWN.as_bytes(),
        };
        String::from_utf8_lossy(bytes).into_owned()
    }
}

fn terminated(strings: &[u8], at: usize) -> &[u8] {
    let rest = strings.get(at..).unwrap_or(&[]);
    &rest[..memchr::memchr(0, rest).unwrap_or(rest.len())]
}

/// A section of debug information with its relocations applied.
fn relocated(link: &FixedLink<'_>, object: &[u8], sections: &SectionTable<'_, Header>, name: &[u8]) -> Option<Vec<u8>> {
    let (index, section) = sections.section_by_name(LE, name)?;
    if section.sh_flags(LE).0 & SHF_COMPRESSED != 0 {
        return None;
    }
    let mut bytes = section.data(LE, object).ok()?.to_vec();
    // Tables that lie on each other in the file would be read again and again.
    let mut left = object.len() / size_of::<Rela>();
    for table in sections.iter().filter(|table| table.sh_info(LE) as usize == index.0) {
        let Ok(Some((relocations, _))) = table.rela(LE, object) else { continue };
        let Some(rest) = left.checked_sub(relocations.len()) else { break };
        left = rest;
        for relocation in relocations {
            let symbol = SymbolIndex(relocation.r_sym(LE, false));
            let definition = link.graph().symbols.get(symbol.index()).map(|symbol| symbol.definition);
            // What is in no memory is other debug information, which starts at zero.
            let base = match definition {
                None | Some(Definition::Nowhere) => 0,
                Some(_) => link.symbol_address(symbol).value(),
            };
            let value = base.wrapping_add_signed(relocation.r_addend(LE)).to_le_bytes();
            let width = match relocation.r_type(LE, false).0 {
                R_X86_64_64 => 8,
                R_X86_64_32 => 4,
                _ => continue,
            };
            let at = relocation.r_offset(LE) as usize;
            if let Some(field) = at.checked_add(width).and_then(|end| bytes.get_mut(at..end)) {
                field.copy_from_slice(&value[..width]);
            }
        }
    }
    Some(bytes)
}

/// What a file is called whose name nobody knows.
const UNKNOWN: &str = "?";
const SHF_COMPRESSED: u64 = 0x800;
const R_X86_64_64: u32 = 1;
const R_X86_64_32: u32 = 10;
