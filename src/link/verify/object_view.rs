//! [`ObjectView`]: the object, parsed a second time for the verifier: its sections, symbols and relocations.
//!
//! Nothing here uses `elf/read.rs`. The blocks of the graph are in the order of the sections that are in memory. So a
//! second walk over the section table finds the section of each block, and [`ObjectView::new`] checks that names, sizes
//! and file ranges agree. [`ObjectView::check_symbols`] checks the symbols.

use object::LittleEndian;
use object::elf::FileHeader64;
use object::read::elf::{Crel, FileHeader, SectionHeader as _, SectionTable, Sym as _, SymbolTable};

use crate::arch::verify::{Mismatch, Relocation};
use crate::base::SegmentKind;
use crate::link::graph::{Binding, Block, BlockId, Content, Definition, Edge, LinkGraph, SymbolIndex, Text};

type Elf = FileHeader64<LittleEndian>;
const LE: LittleEndian = LittleEndian;

// From the gABI.
const SHF_WRITE: u64 = 1;
const SHF_ALLOC: u64 = 2;
const SHF_EXCLUDE: u64 = 0x8000_0000;
const SHF_EXECINSTR: u64 = 4;
const SHT_RELA: u32 = 4;
const SHT_NOTE: u32 = 7;
const SHT_REL: u32 = 9;
const SHT_GROUP: u32 = 17;
const SHT_CREL: u32 = 0x4000_0014;
/// The section of notes that a linker merges, and does not copy.
const PROPERTIES: &[u8] = b".note.gnu.property";
const SHN_UNDEF: u16 = 0;
const SHN_ABS: u16 = 0xfff1;
const SHN_COMMON: u16 = 0xfff2;
const STB_LOCAL: u8 = 0;
const STT_FILE: u8 = 4;
const STT_GNU_IFUNC: u8 = 10;

/// An object, and which of its sections the blocks of a graph are.
pub(super) struct ObjectView<'a> {
    bytes: &'a [u8],
    sections: SectionTable<'a, Elf>,
    symbols: SymbolTable<'a, Elf>,
    /// By block: its section's index; `None` for a block that the linker made or a plugin made or changed.
    section_of: Vec<Option<usize>>,
    /// By section: its block; `None` for a section that is not in memory.
    block_of: Vec<Option<BlockId>>,
    /// By section: the sections that hold its relocations.
    relocation_tables_of: Vec<Vec<usize>>,
    marks_entries: bool,
}

impl<'a> ObjectView<'a> {
    pub(super) fn new(bytes: &'a [u8], graph: &LinkGraph) -> Result<ObjectView<'a>, Mismatch> {
        let unreadable = |error: object::read::Error| Mismatch::new(0, "object", error, "what the linker read");
        let header = Elf::parse(bytes).map_err(unreadable)?;
        let sections = header.sections(LE, bytes).map_err(unreadable)?;
        let symbols = sections.symbols(LE, bytes, object::elf::SHT_SYMTAB).map_err(unreadable)?;
        let count = sections.len();
        let (section_of, block_of) = (vec![None; graph.blocks.len()], vec![None; count]);
        let mut view = ObjectView {
            bytes,
            sections,
            symbols,
            section_of,
            block_of,
            relocation_tables_of: vec![Vec::new(); count],
            marks_entries: false,
        };
        let mut next = 0;
        for (index, section) in view.sections.enumerate() {
            let (flags, kind) = (section.sh_flags(LE).0, section.sh_type(LE).0);
            if let (SHT_RELA | SHT_CREL, Some(tables)) =
                (kind, view.relocation_tables_of.get_mut(section.sh_info(LE) as usize))
            {
                tables.push(index.0);
            }
            if (kind, flags & (SHF_ALLOC | SHF_EXCLUDE)) == (SHT_NOTE, SHF_ALLOC) {
                let notes = section.data(LE, bytes).unwrap_or_default();
                view.marks_entries |= graph.arch.notes_say_marked(notes, section.sh_addralign(LE));
            }
            let is_properties = || view.sections.section_name(LE, section).is_ok_and(|name| name == PROPERTIES);
            if flags & (SHF_ALLOC | SHF_EXCLUDE) != SHF_ALLOC
                || matches!(kind, SHT_RELA | SHT_REL | SHT_CREL | SHT_GROUP)
                || kind == SHT_NOTE && is_properties()
            {
                continue;
            }
            match view.section_of.get_mut(next) {
                Some(section) => *section = Some(index.0),
                None => return Err(Mismatch::new(index.0 as u64, "number of sections in memory", next, "more")),
            }
            view.block_of[index.0] = Some(BlockId(next as u32));
            next += 1;
        }
        // What a plugin changed is checked as what it added.
        for (id, block) in graph.blocks() {
            match graph.is_changed_block(id) {
                true => view.section_of[id.index()] = None,
                false => view.check_block(graph, id, block)?,
            }
        }
        Ok(view)
    }

    /// Whether the object says that it marks the entries that indirect branches may reach.
    pub(super) fn marks_entries(&self) -> bool {
        self.marks_entries
    }

    /// Checks that a block agrees with its section header; or that a block without a section has no contents of the
    /// object.
    fn check_block(&self, graph: &LinkGraph, id: BlockId, block: &Block) -> Result<(), Mismatch> {
        let mismatch =
            |kind: &str, found: String, expected: String| Err(Mismatch::new(id.0.into(), kind, found, expected));
        let Some(section) = self.section(id) else {
            return match block.content {
                Content::Object(_) | Content::Given(_) => {
                    mismatch("block", "bytes of the object".to_string(), "a section".to_string())
                }
                Content::Synthetic(_) | Content::Table | Content::Zero => Ok(()),
            };
        };
        let name = self.sections.section_name(LE, section).unwrap_or_default();
        if graph.block_name(id).as_bytes() != name {
            let name = String::from_utf8_lossy(name).to_string();
            return mismatch("name", graph.block_name(id).to_string(), name);
        }
        let (size, align, flags) = (section.sh_size(LE), section.sh_addralign(LE).max(1), section.sh_flags(LE).0);
        if (block.size, block.align) != (size, align) {
            return mismatch(
                "size and alignment",
                format!("{:?}", (block.size, block.align)),
                format!("{:?}", (size, align)),
            );
        }
        let found = match &block.content {
            Content::Object(range) => Some((range.start as u64, range.len() as u64)),
            Content::Synthetic(_) | Content::Given(_) | Content::Table | Content::Zero => None,
        };
        if found != section.file_range(LE) {
            return mismatch("range of the object", format!("{found:?}"), format!("{:?}", section.file_range(LE)));
        }
        let (is_writable, is_executable) = (flags & SHF_WRITE != 0, flags & SHF_EXECINSTR != 0);
        if (block.pool == SegmentKind::Code) != is_executable || block.pool == SegmentKind::Data && !is_writable {
            return mismatch("pool", block.pool.name().to_string(), format!("one for section flags {flags:#x}"));
        }
        Ok(())
    }

    fn section(&self, id: BlockId) -> Option<&'a object::elf::SectionHeader64<LittleEndian>> {
        let index = (*self.section_of.get(id.index())?)?;
        self.sections.section(object::SectionIndex(index)).ok()
    }

    /// A block's bytes before fix-up, which are `None` for zero-fill. `None` for a block without a section.
    pub(super) fn content(&self, id: BlockId) -> Option<Option<&[u8]>> {
        let section = self.section(id)?;
        let range =
            section.file_range(LE).and_then(|(start, size)| Some(start as usize..start.checked_add(size)? as usize));
        Some(range.and_then(|range| self.bytes.get(range)))
    }

    /// The relocations of a block that change bytes, from the object's relocation tables. `None` for a block without a
    /// section.
    pub(super) fn relocations(&self, graph: &LinkGraph, id: BlockId) -> Option<Vec<Relocation>> {
        let section = self.section_of.get(id.index()).copied().flatten()?;
        let tables = self.relocation_tables_of[section]
            .iter()
            .filter_map(|table| self.sections.section(object::SectionIndex(*table)).ok());
        let entries = tables.flat_map(|table| self.entries(table));
        let changing = entries.filter(|entry| graph.arch.changes_bytes(entry.r_type.0));
        let relocation = |Crel { r_offset, r_sym, r_type, r_addend }| {
            graph.arch.verified_relocation(r_offset, r_type.0, r_sym, r_addend)
        };
        Some(changing.map(relocation).collect())
    }

    /// The entries of a relocation table, in either form.
    fn entries(&self, table: &object::elf::SectionHeader64<LittleEndian>) -> impl Iterator<Item = Crel> + use<'a> {
        let plain = table.rela(LE, self.bytes).ok().flatten().map_or(&[][..], |(entries, _)| entries);
        let compact = table.crel(LE, self.bytes).ok().flatten();
        let compact = compact.into_iter().flat_map(|(entries, _)| entries.filter_map(|entry| entry.ok()));
        plain.iter().map(|entry| Crel::from_rela(entry, LE, false)).chain(compact)
    }

    /// A symbol's size from the symbol table; zero for a symbol that the linker made.
    pub(super) fn symbol_size(&self, symbol: u32) -> u64 {
        self.symbols.iter().nth(symbol as usize).map_or(0, |symbol| symbol.st_size(LE))
    }

    /// Checks that every symbol of the object has the object's name, size and definition in the graph, or a definition
    /// that the linker may give it.
    pub(super) fn check_symbols(&self, graph: &LinkGraph) -> Result<(), Mismatch> {
        for (index, symbol) in self.symbols.enumerate() {
            let at = SymbolIndex(index.0 as u32);
            if graph.is_changed_symbol(at) {
                continue;
            }
            let Some(read) = graph.symbols.get(index.0) else {
                return Err(Mismatch::new(
                    index.0 as u64,
                    "number of symbols",
                    graph.symbols.len(),
                    self.symbols.len(),
                ));
            };
            let name = || self.symbols.symbol_name(LE, symbol).unwrap_or_default();
            // The linker does not read the names of local symbols before it needs them. Many of them may share a long
            // name, so they are not read here either.
            // An undefined symbol may have another name, if it is wrapped.
            let is_renamed = symbol.st_shndx(LE).0 == SHN_UNDEF && matches!(read.name, Text::Synthetic(_));
            let is_name = is_renamed || symbol.st_bind().0 == STB_LOCAL || graph.name_bytes(at) == name();
            // The size of an external is that of its definition.
            let is_size = read.size == symbol.st_size(LE) || graph.sized_externals.binary_search(&at).is_ok();
            if !is_name || !is_size {
                let (found, name) = (graph.symbol_name(at), String::from_utf8_lossy(name()));
                let found = format!("`{found}` of {} bytes", read.size);
                let expected = format!("`{name}` of {} bytes", symbol.st_size(LE));
                return Err(Mismatch::new(index.0 as u64, "symbol", found, expected));
            }
            let is_fixed = symbol.st_bind().0 == STB_LOCAL && symbol.st_shndx(LE).0 != SHN_UNDEF;
            // Another object's definition, the linker or a plugin may replace the definition of a symbol that is not
            // local.
            let is_replaceable =
                !is_fixed && (read.definition == Definition::External || read.binding == Binding::Local);
            let is_indirect = symbol.st_type().0 == STT_GNU_IFUNC;
            if index.0 != 0 && !is_replaceable && !is_indirect {
                self.check_definition(graph, index, symbol, read.definition)?;
            }
        }
        Ok(())
    }

    fn check_definition(
        &self,
        graph: &LinkGraph,
        index: object::SymbolIndex,
        symbol: &object::elf::Sym64<LittleEndian>,
        found: Definition,
    ) -> Result<(), Mismatch> {
        let value = symbol.st_value(LE);
        let agrees = match (symbol.st_shndx(LE).0, found) {
            _ if symbol.st_type().0 == STT_FILE => found == Definition::Nowhere,
            (SHN_UNDEF, _) if symbol.st_bind().0 == STB_LOCAL => found == Definition::Nowhere,
            (SHN_UNDEF, _) => found == Definition::External,
            (SHN_ABS, _) => found == Definition::Absolute(value),
            (SHN_COMMON, Definition::Block(block, 0)) => {
                let storage = &graph.blocks[block.index()];
                self.section(block).is_none() && storage.is_zero_fill() && storage.size >= symbol.st_size(LE)
            }
            (SHN_COMMON, _) => found == Definition::Nowhere,
            _ => {
                let section = self.symbols.symbol_section(LE, symbol, index).ok().flatten();
                let block = section.and_then(|section| *self.block_of.get(section.0)?);
                match block.filter(|block| !graph.blocks[block.index()].is_dropped) {
                    Some(block) => found == Definition::Block(block, value),
                    None => found == Definition::Nowhere,
                }
            }
        };
        if agrees {
            return Ok(());
        }
        let expected = format!("section {}, value {value:#x}", symbol.st_shndx(LE).0);
        Err(Mismatch::new(index.0 as u64, "definition of a symbol", format!("{found:?}"), expected))
    }
}

/// The relocation with the formula of an edge.
pub(super) fn relocation_of(graph: &LinkGraph, edge: &Edge) -> Relocation {
    let r_type = graph.arch.verified_number(edge.kind);
    graph.arch.verified_relocation(edge.offset.into(), r_type, edge.symbol.0, edge.addend)
}
