//! Reads an object into a [`LinkGraph`]: sections become blocks, symbols keep their order, relocations become edges
//! (`relocations.rs`).
//!
//! 1. Sections: each loaded section (`SHF_ALLOC`) becomes a block. Other sections (debug information, symbol tables)
//!    get none.
//! 2. Section groups: members get the number of their group.
//! 3. Symbols: in the order of the symbol table. Common symbols get zero-fill blocks.
//! 4. Relocations: each becomes an edge. A relocation in memory that refers to a section without a block is refused
//!    later.
//!
//! Usual symbols take a fast path ([`plain_symbols`]). Where a symbol is unusual or wrong, the general path
//! ([`Reader::symbol`]) reads it and reports errors.
//!
//! Sections, groups and relocation tables that overlap in the file are refused. Otherwise a small file could ask for
//! any amount of memory or time.

use std::ops::Range;

use object::read::elf::{SectionHeader as _, Sym as _};
use smallvec::SmallVec;

use crate::base::{RecycledVec, SegmentKind, sort_by_number, until_nul};
use crate::error::Error;
use crate::link::buffer::ObjectBuffer;
use crate::link::elf::groups::GRP_COMDAT;
use crate::link::elf::interface::visit_definitions;
use crate::link::elf::{
    ElfObject, ElfSymbol, InterfaceSymbol, LE, Outline, SectionHeader, is_properties, shf, shn, sht, st,
};
use crate::link::graph::{
    Binding, Block, BlockId, Content, Definition, GraphSymbol, LinkGraph, Role, SymbolIndex, Text,
};
use crate::link::init_fragments;
use crate::link::initializers::{self, InitializerList};
use crate::link::prefix_filter::PrefixFilter;
use crate::sync::Arc;

/// Reads `bytes` into an empty graph. With an `outline` of the same bytes, the headers are not checked again.
///
/// # Errors
/// [`LinkFault`](crate::error::LinkFault), for an object that is malformed or not supported.
pub(crate) fn read_graph(
    graph: &mut LinkGraph,
    name: Arc<str>,
    bytes: ObjectBuffer,
    outline: Option<&Outline>,
) -> Result<(), Error> {
    let object = match outline.and_then(|outline| outline.open(&name, &bytes)) {
        Some(object) => object,
        None => ElfObject::open(&name, &bytes)?,
    };
    read_opened(graph, &object)?;
    (graph.name, graph.bytes) = (Some(name), bytes);
    Ok(())
}

/// As [`read_graph`], for an object whose interface is not known. Passes its definitions to `visit`, as
/// [`ObjectInterface::visit`] does, and returns whether it has initialisers.
///
/// [`ObjectInterface::visit`]: crate::link::ObjectInterface::visit
pub(crate) fn read_all(
    graph: &mut LinkGraph,
    name: Arc<str>,
    bytes: ObjectBuffer,
    mut visit: impl FnMut(InterfaceSymbol, usize),
) -> Result<bool, Error> {
    let object = ElfObject::open(&name, &bytes)?;
    let has_groups = read_opened(graph, &object)?;
    visit_definitions(&object, has_groups, &mut visit)?;
    (graph.name, graph.bytes) = (Some(name), bytes);
    Ok(graph.has_initializers())
}

/// Returns whether the object has section groups.
fn read_opened(graph: &mut LinkGraph, object: &ElfObject<'_>) -> Result<bool, Error> {
    graph.arch = object.arch;
    let symbol_count = object.symbols.all.len();
    // Space for the edges is reserved later, when the number of relocations is known.
    graph.blocks.ensure_capacity(object.sections.len());
    graph.block_of.ensure_capacity(object.sections.len());
    graph.symbols.ensure_capacity(symbol_count + 4);
    // An object without a symbol table still gets a null symbol.
    graph.use_recorder.ensure_capacity(symbol_count.max(1));
    let mut reader = Reader {
        block_of: std::mem::take(&mut graph.block_of),
        relocation_sections: SmallVec::new(),
        has_groups: false,
        content_order: FileOrder::default(),
        relocation_order: FileOrder::default(),
        relocation_bytes: 0,
        object,
        graph,
    };
    reader.sections()?;
    reader.groups()?;
    reader.symbols()?;
    reader.relocations()?;
    let Reader { block_of, has_groups, graph, .. } = reader;
    graph.block_of = block_of;
    Ok(has_groups)
}

/// The state of one read.
pub(super) struct Reader<'a, 'data> {
    pub(super) object: &'a ElfObject<'data>,
    pub(super) graph: &'a mut LinkGraph,
    /// The block of each section, by section index. Moved into the graph at the end.
    pub(super) block_of: RecycledVec<Option<BlockId>>,
    /// The sections that hold relocations, those for sections without a block included.
    pub(super) relocation_sections: SmallVec<[&'data SectionHeader; 8]>,
    has_groups: bool,
    /// The file order of the loaded sections with bytes.
    content_order: FileOrder,
    /// The file order of the relocation sections.
    pub(super) relocation_order: FileOrder,
    /// Total size of the relocation sections whose target section comes before them and has a block.
    pub(super) relocation_bytes: u64,
}

/// Whether ranges are visited in ascending file order, as compilers write them. If they are, no two of them overlap,
/// and no sorting is needed.
#[derive(Default)]
pub(super) struct FileOrder {
    end: usize,
    is_violated: bool,
}

impl FileOrder {
    #[inline]
    pub(super) fn add(&mut self, range: &Range<usize>) {
        if !range.is_empty() {
            self.is_violated |= range.start < self.end;
            self.end = range.end;
        }
    }

    pub(super) fn is_ascending(&self) -> bool {
        !self.is_violated
    }
}

impl<'data> Reader<'_, 'data> {
    /// Makes the blocks.
    fn sections(&mut self) -> Result<(), Error> {
        let (mut has_links, mut symbol_tables) = (false, 0);
        self.block_of.extend_repeated(self.object.sections.len(), &NO_BLOCKS);
        for (index, section) in self.object.sections.iter().enumerate() {
            let flags = section.sh_flags(LE).0;
            if flags & shf::ALLOC != 0 {
                self.block_of[index] = self.section(section)?;
            } else if flags & shf::EXECINSTR != 0 {
                self.check_stack(section)?;
            }
            has_links |= flags & shf::LINK_ORDER != 0;
            match section.sh_type(LE).0 {
                sht::RELA | sht::REL | sht::CREL => self.note_relocations(section),
                sht::GROUP => self.has_groups = true,
                sht::SYMTAB => symbol_tables += 1,
                _ => {}
            }
        }
        if symbol_tables > 1 {
            return Err(self.object.unsupported("second symbol table", ".symtab", 0, ""));
        }
        if has_links {
            self.link_order();
        }
        if self.content_order.is_ascending() {
            return Ok(());
        }
        self.check_no_overlap(self.graph.blocks.iter().filter_map(|block| match &block.content {
            Content::Object(range) => Some(range.clone()),
            _ => None,
        }))
    }

    /// Refuses an executable section that is not loaded, if it is the mark for an executable stack (`.note.GNU-stack`).
    #[cold]
    fn check_stack(&self, section: &SectionHeader) -> Result<(), Error> {
        let name = self.object.section_name(section)?;
        if name != ".note.GNU-stack" {
            return Ok(());
        }
        let what = "executable stack: no thread of this process has one; compile without pointers to nested functions";
        Err(self.object.unsupported(what, name, 0, ""))
    }

    /// Sets `Block::linked_to` for the sections with `SHF_LINK_ORDER`.
    fn link_order(&mut self) {
        for (index, section) in self.object.sections.enumerate() {
            let Some(Some(block)) = self.block_of.get(index.0) else { continue };
            if section.sh_flags(LE).0 & shf::LINK_ORDER != 0 {
                let linked = self.block_of.get(section.sh_link(LE) as usize).copied().flatten();
                self.graph.blocks[block.0 as usize].linked_to = linked.filter(|linked| linked != block);
            }
        }
    }

    /// Refuses ranges that overlap in the file.
    pub(super) fn check_no_overlap(&self, ranges: impl Iterator<Item = Range<usize>> + Clone) -> Result<(), Error> {
        let mut order = FileOrder::default();
        ranges.clone().for_each(|range| order.add(&range));
        if order.is_ascending() {
            return Ok(());
        }
        let mut sorted: Vec<_> = ranges.filter(|range| !range.is_empty()).collect();
        sort_by_number(&mut sorted, |range| range.start as u128);
        match sorted.windows(2).find(|pair| pair[1].start < pair[0].end) {
            None => Ok(()),
            Some(pair) => {
                let after = &pair[1];
                Err(self.object.malformed(format!("two of its sections overlap in the file, at {:#x}", after.start)))
            }
        }
    }

    /// Makes the block of a loaded section. `None` for a section that the link does not place in memory: excluded
    /// sections, properties, relocations and section groups.
    fn section(&mut self, section: &SectionHeader) -> Result<Option<BlockId>, Error> {
        let object = self.object;
        let (text, from_name) = self.section_name(section)?;
        let name = || std::str::from_utf8(only_name(from_name)).unwrap_or("");
        let (kind, flags) = (section.sh_type(LE).0, section.sh_flags(LE).0);
        let refuse = |what: &str| Err(object.unsupported(what, name(), 0, ""));
        if flags & (shf::COMPRESSED | shf::OS_NONCONFORMING | shf::EXCLUDE) != 0 {
            return match flags {
                _ if flags & shf::COMPRESSED != 0 => refuse("compressed section in memory (SHF_COMPRESSED)"),
                _ if flags & shf::OS_NONCONFORMING != 0 => {
                    refuse("section that only another system's linker understands (SHF_OS_NONCONFORMING)")
                }
                _ => Ok(None), // SHF_EXCLUDE: no linker loads the section
            };
        }
        if flags & (shf::EXECINSTR | shf::WRITE) == shf::EXECINSTR | shf::WRITE {
            return refuse("section that is both writable and executable");
        }
        match kind {
            sht::PROGBITS | sht::NOBITS => {}
            _ if object.arch.is_unwind_section(kind) => {}
            sht::INIT_ARRAY | sht::FINI_ARRAY | sht::PREINIT_ARRAY => {}
            sht::NOTE => {
                self.properties(section);
                if is_properties(from_name) {
                    return Ok(None);
                }
            }
            sht::RELA | sht::REL | sht::CREL | sht::GROUP => return Ok(None),
            _ => return refuse(&format!("section type {kind:#x}")),
        }
        let (size, align) = (section.sh_size(LE), section.sh_addralign(LE).max(1));
        if !align.is_power_of_two() {
            let problem = format!("section `{}` is aligned to {align}, which is no power of two", name());
            return Err(object.malformed(problem));
        }
        if size > u64::from(u32::MAX) {
            return refuse("section larger than 4 GiB");
        }
        let content = match section.file_range(LE) {
            None => Content::Zero,
            Some((start, size)) => {
                let end = start.checked_add(size).filter(|end| *end <= object.bytes.len() as u64);
                let end = end.ok_or_else(|| {
                    object.malformed(format!("section `{}` reaches past the end of the file", name()))
                })?;
                let range = start as usize..end as usize;
                self.content_order.add(&range);
                Content::Object(range)
            }
        };
        let is_plain = !may_be_special(from_name);
        self.graph.has_named_sections |= from_name.first() != Some(&b'.');
        let pool = match flags & (shf::EXECINSTR | shf::WRITE) {
            0 => SegmentKind::ReadOnly,
            shf::WRITE if is_plain || !is_relocated_only(from_name) => SegmentKind::Data,
            shf::WRITE => SegmentKind::ReadOnly,
            _ => SegmentKind::Code,
        };
        let is_retained = flags & shf::GNU_RETAIN != 0;
        let id = self.graph.push(Block { is_retained, ..Block::new(text, pool, content, size, align) });
        if !is_plain || flags & shf::TLS != 0 {
            self.set_role(id, flags, from_name)?;
        }
        Ok(Some(id))
    }

    /// Sets the role of a section that may be special.
    #[inline(never)] // called for few sections, so that the code for all others has more registers
    fn set_role(&mut self, id: BlockId, flags: u64, from_name: &[u8]) -> Result<(), Error> {
        let role = if flags & shf::TLS == 0 { role_of(from_name) } else { Role::ThreadLocal };
        if role == Role::Plain {
            return Ok(());
        }
        let block = &mut self.graph.blocks[id.index()];
        block.role = role;
        if matches!(role, Role::Initializers { .. }) && !block.size.is_multiple_of(8) {
            let (name, size) = (std::str::from_utf8(only_name(from_name)).unwrap_or(""), block.size);
            let problem = format!("section `{name}` has {size} bytes, which is no whole number of addresses");
            return Err(self.object.malformed(problem));
        }
        self.graph.special.push(id);
        Ok(())
    }

    /// A section's name, and the string table from the name on (or the name alone), for tests of its first bytes.
    fn section_name(&mut self, section: &SectionHeader) -> Result<(Text, &'data [u8]), Error> {
        if let Some((start, from_name)) = self.object.plain_section_name(section) {
            return Ok((Text::Terminated(start), from_name));
        }
        let name = self.object.section_name(section)?;
        Ok((self.text(name), name.as_bytes()))
    }

    /// A name as a range of the object. A name that is not a part of the object is copied.
    #[inline]
    fn text(&mut self, name: &str) -> Text {
        let start = (name.as_ptr() as usize).wrapping_sub(self.object.bytes.as_ptr() as usize);
        match start.checked_add(name.len()) {
            Some(end) if end <= self.object.bytes.len() => Text::Object(start as u32..end as u32),
            _ => self.graph.synthetic.add_name(name),
        }
    }

    /// Sets `Block::group`.
    fn groups(&mut self) -> Result<(), Error> {
        if !self.has_groups {
            return Ok(());
        }
        self.check_no_overlap(self.object.sections.iter().filter_map(|section| {
            let (start, size) = section.file_range(LE).filter(|_| section.sh_type(LE).0 == sht::GROUP)?;
            // A range that reaches past the end of the file is refused when it is read.
            Some(start as usize..start.saturating_add(size) as usize)
        }))?;
        for section in self.object.sections.iter() {
            let Some((flags, members)) = section.group(LE, self.object.bytes).map_err(|e| self.object.malformed(e))?
            else {
                continue;
            };
            if flags.0 & !GRP_COMDAT != 0 {
                let name = self.object.section_name(section)?;
                return Err(self.object.unsupported(&format!("section group flags {:#x}", flags.0), name, 0, ""));
            }
            if flags.0 & GRP_COMDAT == 0 {
                continue; // not a COMDAT group: another object cannot replace it, so its members are plain blocks
            }
            let group = self.graph.group_signatures.len() as u32;
            self.graph.group_signatures.push(SymbolIndex(section.sh_info(LE)));
            for member in members {
                let slot = self.block_of.get(member.get(LE) as usize);
                let block =
                    slot.ok_or_else(|| self.object.malformed("a section group names a section that does not exist"))?;
                if let Some(block) = block {
                    self.graph.blocks[block.0 as usize].group = Some(group);
                }
            }
        }
        Ok(())
    }

    /// Reads the symbol table.
    fn symbols(&mut self) -> Result<(), Error> {
        let object = self.object;
        let symbols = object.symbols.all;
        let (names, mut rest) = (object.plain_names(), self.null_symbol(symbols));
        loop {
            // The first symbol is the null symbol, whatever its fields say. `plain_symbols` does not know that.
            if rest.len() < symbols.len() {
                let LinkGraph { symbols, blocks, external_prefixes, has_weak_externals, .. } = &mut *self.graph;
                let tables = SymbolTables { bytes: object.bytes, names: &names, block_of: &self.block_of, blocks };
                rest = plain_symbols(rest, &tables, symbols, external_prefixes, has_weak_externals);
            }
            let Some((symbol, after)) = rest.split_first() else { break };
            let symbol = self.symbol(symbols.len() - rest.len(), symbol)?;
            self.graph.symbols.push(symbol);
            rest = after;
        }
        self.graph.first_global = object.symbols.first_global as u32;
        if self.graph.symbols.is_empty() {
            // Without a symbol table, relocations may still refer to symbol 0, which has the value 0.
            let name = Text::Fixed("");
            self.graph.push_symbol(GraphSymbol {
                name,
                definition: Definition::Absolute(0),
                size: 0,
                binding: Binding::Local,
                is_hidden: true,
            });
        }
        Ok(())
    }

    /// The fast path for the null symbol, as compilers write it. Returns the symbols that are left.
    fn null_symbol<'s>(&mut self, symbols: &'s [ElfSymbol]) -> &'s [ElfSymbol] {
        match (symbols.split_first(), self.object.names_start()) {
            (Some((null, rest)), Some(names)) if (null.st_info.0, null.st_name(LE)) == (0, 0) => {
                let (name, definition) = (Text::Terminated(names), Definition::Absolute(0));
                let (size, is_hidden) = (null.st_size(LE), is_hidden(null));
                self.graph.symbols.push(GraphSymbol { name, definition, size, binding: Binding::Local, is_hidden });
                rest
            }
            _ => symbols,
        }
    }

    /// The general path for one symbol.
    fn symbol(&mut self, index: usize, symbol: &ElfSymbol) -> Result<GraphSymbol, Error> {
        let binding = binding(symbol);
        let name = self.name(symbol, binding)?;
        let definition = self.definition(index, symbol)?;
        match (symbol.st_type().0, definition) {
            (_, Definition::External | Definition::Nowhere) => {}
            (st::TYPE_GNU_IFUNC, Definition::Block(..)) => self.graph.indirect.push(SymbolIndex(index as u32)),
            (kind, Definition::Absolute(_)) if matches!(kind, st::TYPE_GNU_IFUNC | st::TYPE_TLS) => {
                return Err(self.unsupported_symbol("absolute value of a symbol of type", kind, symbol));
            }
            (kind, _) if kind > st::TYPE_TLS => return Err(self.unsupported_symbol("symbol type", kind, symbol)),
            _ => {}
        }
        if symbol.st_bind().0 > st::BIND_WEAK && symbol.st_bind().0 != st::BIND_GNU_UNIQUE {
            return Err(self.unsupported_symbol("symbol binding", symbol.st_bind().0, symbol));
        }
        Ok(GraphSymbol { name, definition, size: symbol.st_size(LE), binding, is_hidden: is_hidden(symbol) })
    }

    #[cold]
    fn unsupported_symbol(&self, what: &str, number: u8, symbol: &ElfSymbol) -> Error {
        let name = self.object.symbol_name(symbol).unwrap_or("");
        self.object.unsupported(&format!("{what} {number}"), ".symtab", 0, name)
    }

    /// A symbol's name. A local symbol's name is not checked here, because most are never read.
    fn name(&mut self, symbol: &ElfSymbol, binding: Binding) -> Result<Text, Error> {
        if let (Some(start), Binding::Local) = (self.object.names_start(), binding) {
            return Ok(Text::Terminated(start.saturating_add(symbol.st_name(LE))));
        }
        let name = self.object.symbol_name(symbol)?;
        if symbol.st_shndx(LE).0 == shn::UNDEF {
            self.graph.external_prefixes.insert(name.as_bytes());
            self.graph.has_weak_externals |= binding == Binding::Weak;
        }
        Ok(self.text(name))
    }

    /// What a symbol stands for. Makes a block for a common symbol.
    fn definition(&mut self, index: usize, symbol: &ElfSymbol) -> Result<Definition, Error> {
        let object = self.object;
        // For errors only.
        let name = || object.symbol_name(symbol).unwrap_or("");
        let (value, kind, shndx) = (symbol.st_value(LE), symbol.st_type().0, symbol.st_shndx(LE).0);
        if index == 0 {
            return Ok(Definition::Absolute(0));
        }
        if kind == st::TYPE_FILE {
            return Ok(Definition::Nowhere);
        }
        let section = match shndx {
            // A local symbol cannot be defined by another object.
            shn::UNDEF if symbol.st_bind().0 == st::BIND_LOCAL => return Ok(Definition::Nowhere),
            shn::UNDEF => return Ok(Definition::External),
            shn::ABS => return Ok(Definition::Absolute(value)),
            shn::COMMON => return self.common(symbol),
            _ if shndx < shn::RESERVED => usize::from(shndx),
            _ => self.extended_section(index, symbol)?,
        };
        let block = self.block_of.get(section).ok_or_else(|| {
            object.malformed(format!("symbol `{}` is in section {section}, which does not exist", name()))
        })?;
        let Some(id) = *block else { return Ok(Definition::Nowhere) };
        let block = &self.graph.blocks[id.index()];
        let is_thread_local = block.role == Role::ThreadLocal;
        let is_mapping = || kind == st::TYPE_NOTYPE && object.arch.is_mapping_symbol(name());
        if (kind == st::TYPE_TLS) != is_thread_local && kind != st::TYPE_SECTION && !is_mapping() {
            let found = if is_thread_local { "is not" } else { "is" };
            return Err(object.malformed(format!("symbol `{}` {found} of type STT_TLS, unlike its section", name())));
        }
        if value > block.size {
            // A native linker gives it an address outside. Here nothing of the object is there.
            let (size, section) = (block.size, self.graph.text_of(object.bytes, &block.name));
            let what = format!(
                "symbol outside of its section, which has {size:#x} bytes: refer to a symbol inside, with an addend"
            );
            return Err(object.unsupported(&what, section, value, name()));
        }
        Ok(Definition::Block(id, value))
    }

    /// Makes a zero-fill block for a common symbol, thread-local if the symbol is. `st_value` is its alignment (gABI,
    /// "Symbol Values").
    fn common(&mut self, symbol: &ElfSymbol) -> Result<Definition, Error> {
        let (value, size) = (symbol.st_value(LE), symbol.st_size(LE));
        let align = value.max(1);
        if !align.is_power_of_two() || size > u64::from(u32::MAX) {
            let name = self.object.symbol_name(symbol).unwrap_or("");
            let problem = format!("common symbol `{name}` has alignment {value} and size {size}");
            return Err(self.object.malformed(problem));
        }
        let block = self.graph.push_block(Text::Fixed("COMMON"), SegmentKind::Data, Content::Zero, size, align);
        if symbol.st_type().0 == st::TYPE_TLS {
            self.graph.blocks[block.index()].role = Role::ThreadLocal;
            self.graph.special.push(block);
        }
        Ok(Definition::Block(block, 0))
    }

    /// The index of a symbol's section, from the table of extended section indices.
    #[cold]
    fn extended_section(&self, index: usize, symbol: &ElfSymbol) -> Result<usize, Error> {
        let object = self.object;
        let section = object.symbols.section(symbol, index).map_err(|error| object.malformed(error))?;
        section.ok_or_else(|| {
            let name = object.symbol_name(symbol).unwrap_or("");
            object.unsupported("special section index", ".symtab", index as u64, name)
        })
    }
}

/// The tables that the fast path reads.
struct SymbolTables<'a> {
    /// The bytes of the object.
    bytes: &'a [u8],
    /// See [`ElfObject::plain_names`].
    names: &'a Range<u32>,
    /// By section index.
    block_of: &'a [Option<BlockId>],
    blocks: &'a [Block],
}

/// The fast path: reads symbols into `read` up to the first that is neither a plain [definition](plain_symbol), nor a
/// plain [external](plain_external), nor a [file](plain_file) symbol. Returns the symbols from there on.
#[inline(never)] // a loop of its own, so that its variables stay in registers
fn plain_symbols<'a>(
    mut symbols: &'a [ElfSymbol],
    tables: &SymbolTables<'_>,
    read: &mut Vec<GraphSymbol>,
    external_prefixes: &mut PrefixFilter,
    has_weak_externals: &mut bool,
) -> &'a [ElfSymbol] {
    let SymbolTables { bytes, names, block_of, blocks } = *tables;
    while let Some((symbol, rest)) = symbols.split_first() {
        if let Some(symbol) = plain_symbol(symbol, names, block_of, blocks) {
            read.push(symbol);
        } else if plain_external(symbol, names, bytes, external_prefixes, read) {
            *has_weak_externals |= binding(symbol) == Binding::Weak;
        } else if !plain_file(symbol, names, read) {
            break;
        }
        symbols = rest;
    }
    symbols
}

/// A symbol of usual type and binding that is defined in a loaded section other than a thread-local one, or that names
/// the section itself. `None` for any other symbol, and for one with an error.
#[inline(always)]
fn plain_symbol(
    symbol: &ElfSymbol,
    names: &Range<u32>,
    block_of: &[Option<BlockId>],
    blocks: &[Block],
) -> Option<GraphSymbol> {
    let (shndx, value, size) = (symbol.st_shndx(LE).0, symbol.st_value(LE), symbol.st_size(LE));
    if shndx == shn::UNDEF || shndx >= shn::RESERVED || !IS_PLAIN[usize::from(symbol.st_info.0)] {
        return None;
    }
    let id = (*block_of.get(usize::from(shndx))?)?;
    let block = blocks.get(id.index())?;
    let name = plain_name(symbol, names)?;
    if value > block.size || block.role == Role::ThreadLocal {
        return None;
    }
    let (name, definition) = (Text::Terminated(name), Definition::Block(id, value));
    Some(GraphSymbol { name, definition, size, binding: binding(symbol), is_hidden: is_hidden(symbol) })
}

/// Reads a symbol that names the source file (`STT_FILE`). False for any other symbol.
#[inline(never)]
fn plain_file(symbol: &ElfSymbol, names: &Range<u32>, read: &mut Vec<GraphSymbol>) -> bool {
    let Some(name) = plain_name(symbol, names) else { return false };
    if symbol.st_type().0 != st::TYPE_FILE || binding(symbol) != Binding::Local {
        return false;
    }
    let (name, definition, binding) = (Text::Terminated(name), Definition::Nowhere, Binding::Local);
    read.push(GraphSymbol { name, definition, size: symbol.st_size(LE), binding, is_hidden: is_hidden(symbol) });
    true
}

/// Reads a global or weak undefined symbol with a plain name. False for any other symbol.
#[inline(never)]
fn plain_external(
    symbol: &ElfSymbol,
    names: &Range<u32>,
    bytes: &[u8],
    external_prefixes: &mut PrefixFilter,
    read: &mut Vec<GraphSymbol>,
) -> bool {
    let (binding, kind) = (binding(symbol), symbol.st_type().0);
    if symbol.st_shndx(LE).0 != shn::UNDEF || binding == Binding::Local || kind == st::TYPE_FILE {
        return false;
    }
    let Some(start) = plain_name(symbol, names) else { return false };
    let from_name = bytes.get(start as usize..names.end as usize);
    let Some(name) = from_name.and_then(until_nul) else { return false };
    external_prefixes.insert(name);
    let (name, definition) = (Text::Object(start..start + name.len() as u32), Definition::External);
    read.push(GraphSymbol { name, definition, size: symbol.st_size(LE), binding, is_hidden: is_hidden(symbol) });
    true
}

/// The offset in the object of a symbol's name, if it lies in `names`.
#[inline(always)]
fn plain_name(symbol: &ElfSymbol, names: &Range<u32>) -> Option<u32> {
    let (offset, length) = (symbol.st_name(LE), names.end - names.start);
    (offset < length).then(|| names.start + offset)
}

fn binding(symbol: &ElfSymbol) -> Binding {
    BINDINGS[usize::from(symbol.st_bind().0) % BINDINGS.len()]
}

fn is_hidden(symbol: &ElfSymbol) -> bool {
    symbol.st_visibility().0 != st::VISIBILITY_DEFAULT
}

/// By the binding's number in the gABI. [`Reader::symbol`] refuses unknown numbers.
static BINDINGS: [Binding; 16] = {
    let mut bindings = [Binding::Global; 16];
    bindings[st::BIND_LOCAL as usize] = Binding::Local;
    bindings[st::BIND_WEAK as usize] = Binding::Weak;
    bindings
};

/// Whether a definition with this `st_info` may be [plain](plain_symbol): its type is at most `STT_SECTION` and its
/// binding is known.
static IS_PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let mut kind = 0;
    while kind <= st::TYPE_SECTION as usize {
        let (weak, unique) = (st::BIND_WEAK as usize, st::BIND_GNU_UNIQUE as usize);
        (plain[kind], plain[1 << 4 | kind], plain[weak << 4 | kind], plain[unique << 4 | kind]) =
            (true, true, true, true);
        kind += 1;
    }
    plain
};

/// The name at the start of these bytes, up to the null byte.
fn only_name(from_name: &[u8]) -> &[u8] {
    until_nul(from_name).unwrap_or(from_name)
}

/// Whether a section whose name starts here may have a special role. A cheap test of the first bytes: if it returns
/// false, the section is plain.
fn may_be_special(from_name: &[u8]) -> bool {
    matches!(from_name.first_chunk(), Some(b".in" | b".fi" | b".ct" | b".dt" | b".pr" | b".eh" | b".da"))
}

/// Whether only relocation writes to a section of this name (RELRO). Such a section is read-only for the running code.
fn is_relocated_only(name: &[u8]) -> bool {
    const RELRO: [&[u8]; 7] =
        [b".data.rel.ro", b".preinit_array", b".init_array", b".fini_array", b".ctors", b".dtors", b".eh_frame"];
    RELRO.iter().any(|relro| has_stem(name, relro))
}

/// Whether a section name is `stem`, or `stem` with a suffix after a dot. Compilers append the names of variables, so
/// `.data.rel.root` is the section of a variable `root` and no `.data.rel.ro`.
pub(super) fn has_stem(from_name: &[u8], stem: &[u8]) -> bool {
    let rest = from_name.strip_prefix(stem);
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(0 | b'.')))
}

/// The role of a section whose name starts here.
fn role_of(from_name: &[u8]) -> Role {
    if from_name.starts_with(EH_FRAME) && only_name(from_name) == EH_FRAME {
        return Role::EhFrame;
    }
    if !initializers::may_list(from_name) {
        return Role::Plain;
    }
    if init_fragments::has_fragment(only_name(from_name)) {
        return Role::InitFragment;
    }
    match initializers::classify(only_name(from_name)) {
        Some(InitializerList { kind, stage, priority, rank, backward }) => {
            Role::Initializers { kind, stage, priority, rank, backward }
        }
        None => Role::Plain,
    }
}

/// The initial value of `Reader::block_of`, to be repeated.
static NO_BLOCKS: [Option<BlockId>; 64] = [None; 64];
const EH_FRAME: &[u8] = b".eh_frame";
