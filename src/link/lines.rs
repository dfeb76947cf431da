//! [`SourceLine`]: the source lines of a finished link's code, from the line tables of its debug information (DWARF 5,
//! 6.2).
//!
//! The tables are copied from the object and relocated with the link's addresses: absolute fields of four and eight bytes
//! (psABI 4.4.1), the only types that compilers write there. The result is for profilers, so nothing here fails a link.
//! A table that cannot be read gives no lines. Compressed sections are not read. A graph without an object has its lines from
//! the generator.

use gimli::{AttributeValue, DebugLine, DebugLineOffset, EndianSlice, Format, LineProgramHeader, LittleEndian};
use object::SectionIndex;
use object::read::elf::{FileHeader as _, Rela as _, SectionHeader as _, SectionTable};

use crate::base::{ExecutorAddr, NumberMap};
use crate::link::elf::{Header, LE, SectionHeader, relocations_of, section_name_table, sht};
use crate::link::fixed_link::FixedLink;
use crate::link::graph::{Definition, SymbolIndex};
use crate::link::output_budget::{OutputBudget, SharedTexts};
use crate::sync::Arc;

/// The source line of the code from some address on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceLine {
    /// The first address of the code.
    pub address: ExecutorAddr,
    /// The file as the compiler wrote it: directory and name, joined.
    pub file: Arc<str>,
    /// The line, from 1.
    pub line: u32,
}

/// By address: the file and line of the code from there on; `None` where the object has no line.
pub(super) type LineTable = NumberMap<Option<(Arc<str>, u32)>>;

/// Reads all line tables of the object. A file whose name exceeds the budget, and each file after it, is called
/// [`UNKNOWN`].
pub(super) fn of(link: &FixedLink<'_>, budget: &mut OutputBudget) -> LineTable {
    let mut table = LineTable::new();
    if link.graph().is_built {
        return built_lines(link);
    }
    let object = link.graph().bytes.clone();
    let Ok(header) = Header::parse(&*object) else { return table };
    let Ok(sections) = header.sections(LE, &*object) else { return table };
    let names = section_name_table(header, &sections, &object);
    let copy = |name| relocated(link, &object, &sections, section_named(&sections, names, name)?);
    let Some(bytes) = copy(&b".debug_line\0"[..]) else { return table };
    let [line_strings, strings] =
        [&b".debug_line_str\0"[..], b".debug_str\0"].map(|name| copy(name).unwrap_or_default());
    let mut strings = DebugStrings { line_strings, strings, shared: SharedTexts::default() };
    let mut offset = 0;
    // The programs follow each other, so the compilation units are not needed to find them.
    while let Ok(program) = DebugLine::new(&bytes, LittleEndian).program(DebugLineOffset(offset), 8, None, None) {
        let header = program.header();
        let length_size = if header.format() == Format::Dwarf64 { 12 } else { 4 };
        let Some(next) = offset.checked_add(length_size).and_then(|at| at.checked_add(header.unit_length())) else {
            break;
        };
        let mut files: NumberMap<Arc<str>> = NumberMap::new();
        let mut rows = program.rows();
        while let Ok(Some((header, row))) = rows.next_row() {
            if row.end_sequence() {
                table.get_or_insert_with(row.address(), || None);
            } else if let Some(line) = row.line() {
                let name = || strings.path(header, row.file_index(), budget).unwrap_or_else(|| UNKNOWN.into());
                let file = files.get_or_insert_with(row.file_index(), name).clone();
                table.insert(row.address(), Some((file, u32::try_from(line.get()).unwrap_or(u32::MAX))));
            }
        }
        offset = next;
    }
    table
}

/// The lines of a graph without an object.
fn built_lines(link: &FixedLink<'_>) -> LineTable {
    let mut table = LineTable::new();
    let graph = link.graph();
    for lines in graph.lines.iter().filter(|lines| !graph.blocks[lines.block.index()].is_dropped) {
        let start = link.block_address(lines.block).value();
        table.get_or_insert_with(start + graph.blocks[lines.block.index()].size, || None);
        for (offset, line) in &lines.rows {
            table.insert(start + u64::from(*offset), (*line != 0).then(|| (lines.file.clone(), *line)));
        }
    }
    table
}

/// The lines of the code in a range; empty if the names of the files exceed the budget.
pub(super) fn within(
    table: &LineTable,
    address: ExecutorAddr,
    size: u64,
    budget: &mut OutputBudget,
) -> Vec<SourceLine> {
    let (start, end) = (address.value(), address.value().saturating_add(size));
    let before = table.range(..=start).next_back().filter(|(at, _)| *at < start).map(|(_, line)| (start, line));
    let rows = before.into_iter().chain(table.range(start..end));
    let known = rows.filter_map(|(at, line)| {
        let (file, line) = line.as_ref()?;
        Some(SourceLine { address: ExecutorAddr::new(at), file: file.clone(), line: *line })
    });
    let known: Vec<SourceLine> = known.collect();
    // A profiler writes the file name with each line.
    if budget.spend(known.iter().map(|line| line.file.len()).sum()) { known } else { Vec::new() }
}

/// The string sections of the debug information.
struct DebugStrings {
    line_strings: Vec<u8>,
    strings: Vec<u8>,
    /// Many files may have one name.
    shared: SharedTexts,
}

type Slice<'a> = EndianSlice<'a, LittleEndian>;

impl DebugStrings {
    /// The path of a file of a line program. `None` if the program does not list the file, or if the budget refuses the
    /// path.
    fn path(
        &mut self,
        header: &LineProgramHeader<Slice<'_>>,
        file: u64,
        budget: &mut OutputBudget,
    ) -> Option<Arc<str>> {
        let entry = header.file(file)?;
        let DebugStrings { line_strings, strings, shared } = self;
        // Paid before the path is built, so that no refused text is copied.
        let mut text =
            |value| shared.pay(bytes_from(value, line_strings, strings), budget).map(String::from_utf8_lossy);
        let name = text(entry.path_name())?;
        if name.starts_with('/') {
            return Some(name.into());
        }
        match entry.directory(header) {
            Some(directory) => match text(directory)? {
                directory if directory.is_empty() => Some(name.into()),
                directory => Some(format!("{directory}/{name}").into()),
            },
            None => Some(name.into()),
        }
    }
}

/// The bytes from a text of a line program on.
fn bytes_from<'a>(value: AttributeValue<Slice<'a>>, line_strings: &'a [u8], strings: &'a [u8]) -> &'a [u8] {
    match value {
        AttributeValue::String(text) => text.slice(),
        AttributeValue::DebugLineStrRef(at) => line_strings.get(at.0..).unwrap_or_default(),
        AttributeValue::DebugStrRef(at) => strings.get(at.0..).unwrap_or_default(),
        _ => UNKNOWN.as_bytes(),
    }
}

/// The first section of a name, which ends with a null byte. Compares only as many bytes as the name has: many sections
/// may share a long name.
fn section_named<'a>(
    sections: &SectionTable<'a, Header>,
    names: &[u8],
    name: &[u8],
) -> Option<(SectionIndex, &'a SectionHeader)> {
    let from_name = |section: &SectionHeader| names.get(section.sh_name(LE) as usize..).unwrap_or_default();
    sections.enumerate().find(|(_, section)| from_name(section).starts_with(name))
}

/// Copies a section of debug information and applies its relocations. `None` for a compressed section.
fn relocated(
    link: &FixedLink<'_>,
    object: &[u8],
    sections: &SectionTable<'_, Header>,
    (index, section): (SectionIndex, &SectionHeader),
) -> Option<Vec<u8>> {
    if section.sh_flags(LE).0 & SHF_COMPRESSED != 0 {
        return None;
    }
    let mut bytes = section.data(LE, object).ok()?.to_vec();
    // Relocation tables may overlap in a malformed file. The limit keeps the work in proportion to the file.
    let mut remaining = object.len() as u64;
    for table in sections.iter().filter(|table| table.sh_info(LE) as usize == index.0) {
        if !matches!(table.sh_type(LE).0, sht::RELA | sht::CREL) {
            continue;
        }
        let Some(rest) = remaining.checked_sub(table.sh_size(LE)) else { break };
        remaining = rest;
        for relocation in relocations_of(table, object).iter().flat_map(|relocations| relocations.iter()) {
            let symbol = SymbolIndex(relocation.r_sym(LE, false));
            let definition = link.graph().symbols.get(symbol.index()).map(|symbol| symbol.definition);
            // A symbol that is not in memory belongs to another section of debug information, which starts at zero, or
            // to a dropped section, whose code is no function of the link.
            let base = match definition {
                None | Some(Definition::Nowhere) => 0,
                Some(_) => link.symbol_address(symbol).value(),
            };
            let value = base.wrapping_add_signed(relocation.r_addend(LE)).to_le_bytes();
            let Some(width) = link.graph().arch.absolute_width(relocation.r_type(LE, false).0) else { continue };
            let at = relocation.r_offset(LE) as usize;
            if let Some(field) = at.checked_add(width).and_then(|end| bytes.get_mut(at..end)) {
                field.copy_from_slice(&value[..width]);
            }
        }
    }
    Some(bytes)
}

/// The name of a file whose name is unknown.
const UNKNOWN: &str = "?";
const SHF_COMPRESSED: u64 = 0x800;
