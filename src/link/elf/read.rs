//! Reads an object into a [`LinkGraph`]: sections become blocks, symbols keep their order, relocations become edges
//! (`relocations.rs`).
//!
//! Sections that are not in memory (debug information, symbol tables) are left out. Whatever refers into them from
//! memory is refused.

use std::ops::Range;

use object::read::elf::{SectionHeader as _, Sym as _};
use smallvec::SmallVec;

use crate::base::{RecycledVec, SegmentKind, ahead_of_null};
use crate::error::Error;
use crate::link::buffer::ObjectBuffer;
use crate::link::elf::interface::visit_definitions;
use crate::link::elf::{ElfObject, ElfSymbol, InterfaceSymbol, LE, Outline, SectionHeader, shn, sht, st};
use crate::link::graph::{
    Binding, Block, BlockId, Content, Definition, LinkGraph, PrefixFilter, Role, Symbol, SymbolIndex, Text,
};
use crate::link::init_fragments;
use crate::link::initializers::{self, Direction};
use crate::sync::Arc;

/// Reads `bytes` into an empty graph; somebody who has seen them before may know the outline.
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

/// As [`read_graph`], of an object that nobody has looked into yet: shows its definitions to `visit`, as
/// [`ObjectInterface::visit`] does, and tells whether it has initialisers.
///
/// [`ObjectInterface::visit`]: crate::link::ObjectInterface::visit
pub(crate) fn read_all(
    graph: &mut LinkGraph,
    name: Arc<str>,
    bytes: ObjectBuffer,
    mut visit: impl FnMut(InterfaceSymbol, usize),
) -> Result<bool, Error> {
    let object = ElfObject::open(&name, &bytes)?;
    visit_definitions(&object, &mut visit)?;
    read_opened(graph, &object)?;
    (graph.name, graph.bytes) = (Some(name), bytes);
    Ok(graph.has_initializers())
}

fn read_opened(graph: &mut LinkGraph, object: &ElfObject<'_>) -> Result<(), Error> {
    let symbol_count = object.symbols.all.len();
    // Room for edges comes with the relocations, which say how many there will be.
    graph.blocks.make_room(object.sections.len());
    graph.block_of.make_room(object.sections.len());
    graph.symbols.make_room(symbol_count + 4);
    graph.own_symbol_count = symbol_count as u32;
    // Without a symbol table, there is still the null symbol.
    graph.uses.make_room(symbol_count.max(1));
    let mut reader = Reader {
        block_of: std::mem::take(&mut graph.block_of),
        relocations: SmallVec::new(),
        has_groups: false,
        contents: InOrder::default(),
        tables: InOrder::default(),
        relocation_bytes: 0,
        object,
        graph,
    };
    reader.sections()?;
    reader.groups()?;
    reader.symbols()?;
    reader.relocations()?;
    let Reader { block_of, graph, .. } = reader;
    graph.block_of = block_of;
    Ok(())
}

pub(super) struct Reader<'a, 'data> {
    pub(super) object: &'a ElfObject<'data>,
    pub(super) graph: &'a mut LinkGraph,
    /// By section index.
    pub(super) block_of: RecycledVec<Option<BlockId>>,
    /// Those that hold relocations.
    pub(super) relocations: SmallVec<[&'data SectionHeader; 8]>,
    has_groups: bool,
    /// The sections with bytes.
    contents: InOrder,
    /// The sections with relocations, debug information's included.
    pub(super) tables: InOrder,
    /// Of those whose sections were there before them.
    pub(super) relocation_bytes: u64,
}

/// Whether ranges of the file come in the order in which they stand there, as compilers write them: then none of them lies
/// on another.
#[derive(Default)]
pub(super) struct InOrder {
    end: usize,
    is_broken: bool,
}

impl InOrder {
    #[inline]
    pub(super) fn add(&mut self, range: &Range<usize>) {
        if !range.is_empty() {
            self.is_broken |= range.start < self.end;
            self.end = range.end;
        }
    }

    pub(super) fn is_kept(&self) -> bool {
        !self.is_broken
    }
}

impl<'data> Reader<'_, 'data> {
    fn sections(&mut self) -> Result<(), Error> {
        let (mut has_links, mut symbol_tables) = (false, 0);
        self.block_of.push_copies(self.object.sections.len(), &NO_BLOCKS);
        for (index, section) in self.object.sections.iter().enumerate() {
            let flags = section.sh_flags(LE).0;
            if flags & shf::ALLOC != 0 {
                self.block_of[index] = self.section(section)?;
            } else if flags & shf::EXECINSTR != 0 {
                self.check_stack(section)?;
            }
            has_links |= flags & shf::LINK_ORDER != 0;
            match section.sh_type(LE).0 {
                sht::RELA | sht::REL | sht::CREL => self.table(section),
                sht::GROUP => self.has_groups = true,
                sht::SYMTAB => symbol_tables += 1,
                _ => {}
            }
        }
        if symbol_tables > 1 {
            return Err(self.object.unsupported("second symbol table", ".symtab", 0, ""));
        }
        if has_links {
            self.links();
        }
        if self.contents.is_kept() {
            return Ok(());
        }
        self.check_apart(self.graph.blocks.iter().filter_map(|block| match &block.content {
            Content::Object(range) => Some(range.clone()),
            _ => None,
        }))
    }

    /// A section that is not in memory, and executable: the mark of code that wants an executable stack.
    #[cold]
    fn check_stack(&self, section: &SectionHeader) -> Result<(), Error> {
        let name = self.object.section_name(section)?;
        if name != ".note.GNU-stack" {
            return Ok(());
        }
        let what =
            "executable stack: the threads of this process have none; compile without pointers to nested functions";
        Err(self.object.unsupported(what, name, 0, ""))
    }

    /// Which section each is about, for those that say so.
    fn links(&mut self) {
        for (index, section) in self.object.sections.enumerate() {
            let Some(Some(block)) = self.block_of.get(index.0) else { continue };
            if section.sh_flags(LE).0 & shf::LINK_ORDER != 0 {
                let linked = self.block_of.get(section.sh_link(LE) as usize).copied().flatten();
                self.graph.blocks[block.0 as usize].linked_to = linked.filter(|linked| linked != block);
            }
        }
    }

    /// Refuses sections that lie on each other in the file: a small file could ask for any amount of memory by them.
    pub(super) fn check_apart(&self, ranges: impl Iterator<Item = Range<usize>> + Clone) -> Result<(), Error> {
        let mut in_order = InOrder::default();
        ranges.clone().for_each(|range| in_order.add(&range));
        if in_order.is_kept() {
            return Ok(());
        }
        let mut sorted: Vec<_> = ranges.filter(|range| !range.is_empty()).collect();
        sorted.sort_unstable_by_key(|range| range.start);
        match sorted.array_windows().find(|[before, after]| after.start < before.end) {
            None => Ok(()),
            Some([_, after]) => {
                Err(self.object.malformed(format!("two of its sections overlap in the file, at {:#x}", after.start)))
            }
        }
    }

    fn section(&mut self, section: &SectionHeader) -> Result<Option<BlockId>, Error> {
        let object = self.object;
        let (text, onwards) = self.section_name(section)?;
        let name = || std::str::from_utf8(only_name(onwards)).unwrap_or("");
        let (kind, flags) = (section.sh_type(LE).0, section.sh_flags(LE).0);
        let refuse = |what: &str| Err(object.unsupported(what, name(), 0, ""));
        if flags & (shf::COMPRESSED | shf::OS_NONCONFORMING | shf::EXCLUDE) != 0 {
            return match flags {
                _ if flags & shf::COMPRESSED != 0 => refuse("compressed section in memory (SHF_COMPRESSED)"),
                _ if flags & shf::OS_NONCONFORMING != 0 => {
                    refuse("section that only another system's linker understands (SHF_OS_NONCONFORMING)")
                }
                _ => Ok(None), // no linker takes it into memory
            };
        }
        if flags & (shf::EXECINSTR | shf::WRITE) == shf::EXECINSTR | shf::WRITE {
            return refuse("section that is both writable and executable");
        }
        match kind {
            sht::PROGBITS | sht::NOBITS | sht::X86_64_UNWIND => {}
            sht::INIT_ARRAY | sht::FINI_ARRAY | sht::PREINIT_ARRAY => {}
            sht::NOTE => return Ok(None), // for the system linker's output, not for running code
            sht::RELA | sht::REL | sht::GROUP => return Ok(None),
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
                self.contents.add(&range);
                Content::Object(range)
            }
        };
        let is_plain = !may_be_special(onwards);
        self.graph.has_named_sections |= onwards.first() != Some(&b'.');
        let role = match flags & shf::TLS {
            0 if is_plain => Role::Plain,
            0 => role_of(onwards),
            _ => Role::TlsIndex,
        };
        if matches!(role, Role::Initializers { .. }) && size % 8 != 0 {
            let problem = format!("section `{}` has {size} bytes, which is no whole number of addresses", name());
            return Err(object.malformed(problem));
        }
        let pool = match flags & (shf::EXECINSTR | shf::WRITE) {
            0 => SegmentKind::ReadOnly,
            shf::WRITE if is_plain || !is_relocated_only(onwards) => SegmentKind::Data,
            shf::WRITE => SegmentKind::ReadOnly,
            _ => SegmentKind::Code,
        };
        let is_retained = flags & shf::GNU_RETAIN != 0;
        let block = Block { role, is_retained, ..Block::new(text, pool, content, size, align) };
        let id = self.graph.push(block);
        if role != Role::Plain {
            self.graph.special.push(id);
        }
        Ok(Some(id))
    }

    /// A section's name, and how it begins: what else may stand behind it, as
    /// [`section_name_onwards`](ElfObject::section_name_onwards) says.
    fn section_name(&mut self, section: &SectionHeader) -> Result<(Text, &'data [u8]), Error> {
        if let Some((start, onwards)) = self.object.plain_section_name(section) {
            return Ok((Text::Terminated(start), onwards));
        }
        let name = self.object.section_name(section)?;
        Ok((self.text(name), name.as_bytes()))
    }

    /// A name as a range of the object, of which it is a part.
    #[inline]
    fn text(&mut self, name: &str) -> Text {
        let start = (name.as_ptr() as usize).wrapping_sub(self.object.bytes.as_ptr() as usize);
        match start.checked_add(name.len()) {
            Some(end) if end <= self.object.bytes.len() => Text::Object(start as u32..end as u32),
            _ => self.graph.made.name(name),
        }
    }

    fn groups(&mut self) -> Result<(), Error> {
        if !self.has_groups {
            return Ok(());
        }
        self.check_apart(self.object.sections.iter().filter_map(|section| {
            let (start, size) = section.file_range(LE).filter(|_| section.sh_type(LE).0 == sht::GROUP)?;
            // One that reaches past the end of the file is refused when it is read.
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
                continue; // its members stay together anyhow: all of them are kept
            }
            let group = self.graph.group_count;
            self.graph.group_count += 1;
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

    fn symbols(&mut self) -> Result<(), Error> {
        let object = self.object;
        let symbols = object.symbols.all;
        let (names, mut left) = (object.plain_names(), symbols);
        loop {
            // The null symbol is what it is, whatever it says.
            if left.len() < symbols.len() {
                let LinkGraph { symbols, blocks, beginnings, .. } = &mut *self.graph;
                let surroundings =
                    Surroundings { bytes: object.bytes, names: &names, block_of: &self.block_of, blocks };
                left = plain_symbols(left, &surroundings, symbols, beginnings);
            }
            let Some((symbol, rest)) = left.split_first() else { break };
            let symbol = self.symbol(symbols.len() - left.len(), symbol)?;
            self.graph.symbols.push(symbol);
            left = rest;
        }
        self.graph.first_global = object.symbols.first_global as u32;
        if self.graph.symbols.is_empty() {
            // Without a symbol table, relocations against symbol 0 still mean the value 0.
            let name = Text::Fixed("");
            self.graph.push_symbol(Symbol {
                name,
                definition: Definition::Absolute(0),
                size: 0,
                binding: Binding::Local,
                is_hidden: true,
            });
        }
        Ok(())
    }

    fn symbol(&mut self, index: usize, symbol: &ElfSymbol) -> Result<Symbol, Error> {
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
        Ok(Symbol { name, definition, size: symbol.st_size(LE), binding, is_hidden: is_hidden(symbol) })
    }

    #[cold]
    fn unsupported_symbol(&self, what: &str, number: u8, symbol: &ElfSymbol) -> Error {
        let name = self.object.symbol_name(symbol).unwrap_or("");
        self.object.unsupported(&format!("{what} {number}"), ".symtab", 0, name)
    }

    /// A symbol's name. Only those of externals are sure to be asked for.
    fn name(&mut self, symbol: &ElfSymbol, binding: Binding) -> Result<Text, Error> {
        if let (Some(start), Binding::Local) = (self.object.names_start(), binding) {
            return Ok(Text::Terminated(start.saturating_add(symbol.st_name(LE))));
        }
        let name = self.object.symbol_name(symbol)?;
        if symbol.st_shndx(LE).0 == shn::UNDEF {
            self.graph.beginnings.add(name.as_bytes());
        }
        Ok(self.text(name))
    }

    fn definition(&mut self, index: usize, symbol: &ElfSymbol) -> Result<Definition, Error> {
        let object = self.object;
        // Asked for only where there is something to complain of.
        let name = || object.symbol_name(symbol).unwrap_or("");
        let (value, kind, place) = (symbol.st_value(LE), symbol.st_type().0, symbol.st_shndx(LE).0);
        if index == 0 {
            return Ok(Definition::Absolute(0));
        }
        if kind == st::TYPE_FILE {
            return Ok(Definition::Nowhere);
        }
        let section = match place {
            // Nobody else could define it.
            shn::UNDEF if symbol.st_bind().0 == st::BIND_LOCAL => return Ok(Definition::Nowhere),
            shn::UNDEF => return Ok(Definition::External),
            shn::ABS => return Ok(Definition::Absolute(value)),
            shn::COMMON => return self.common(symbol),
            _ if place < shn::RESERVED => usize::from(place),
            _ => self.distant_section(index, symbol)?,
        };
        let block = self.block_of.get(section).ok_or_else(|| {
            object.malformed(format!("symbol `{}` is in section {section}, which does not exist", name()))
        })?;
        let Some(id) = *block else { return Ok(Definition::Nowhere) };
        let block = &self.graph.blocks[id.index()];
        let is_thread_local = block.role == Role::TlsIndex;
        if (kind == st::TYPE_TLS) != is_thread_local && kind != st::TYPE_SECTION {
            let found = if is_thread_local { "is not" } else { "is" };
            return Err(object.malformed(format!("symbol `{}` {found} of type STT_TLS, unlike its section", name())));
        }
        if value > block.size {
            let size = block.size;
            return Err(object
                .malformed(format!("symbol `{}` is at {value:#x}, past the end ({size:#x}) of its section", name())));
        }
        Ok(Definition::Block(id, value))
    }

    /// A common symbol gets room of its own.
    fn common(&mut self, symbol: &ElfSymbol) -> Result<Definition, Error> {
        let (value, size) = (symbol.st_value(LE), symbol.st_size(LE));
        let align = value.max(1);
        if symbol.st_type().0 == st::TYPE_TLS {
            return Err(self.unsupported_symbol("common symbol of type", st::TYPE_TLS, symbol));
        }
        if !align.is_power_of_two() || size > u64::from(u32::MAX) {
            let name = self.object.symbol_name(symbol).unwrap_or("");
            let problem = format!("common symbol `{name}` has alignment {value} and size {size}");
            return Err(self.object.malformed(problem));
        }
        let block = self.graph.push_block(Text::Fixed("COMMON"), SegmentKind::Data, Content::Zero, size, align);
        Ok(Definition::Block(block, 0))
    }

    /// A symbol's section, whose number is in a table of its own.
    #[cold]
    fn distant_section(&self, index: usize, symbol: &ElfSymbol) -> Result<usize, Error> {
        let object = self.object;
        let section = object.symbols.section(symbol, index).map_err(|error| object.malformed(error))?;
        section.ok_or_else(|| {
            let name = object.symbol_name(symbol).unwrap_or("");
            object.unsupported("special section index", ".symtab", index as u64, name)
        })
    }
}

/// What symbols are seen in.
struct Surroundings<'a> {
    /// Of the object.
    bytes: &'a [u8],
    /// As [`ElfObject::plain_names`] says.
    names: &'a Range<u32>,
    /// By section.
    block_of: &'a [Option<BlockId>],
    blocks: &'a [Block],
}

/// Reads symbols up to the first that is plain neither [here](plain_symbol) nor [elsewhere](plain_external), and no
/// [file](plain_file); what is left from there on.
#[inline(never)] // a loop that has the registers to itself
fn plain_symbols<'a>(
    mut symbols: &'a [ElfSymbol],
    surroundings: &Surroundings<'_>,
    read: &mut Vec<Symbol>,
    beginnings: &mut PrefixFilter,
) -> &'a [ElfSymbol] {
    let Surroundings { bytes, names, block_of, blocks } = *surroundings;
    while let Some((symbol, rest)) = symbols.split_first() {
        if let Some(symbol) = plain_symbol(symbol, names, block_of, blocks) {
            read.push(symbol);
        } else if !plain_external(symbol, names, bytes, beginnings, read) && !plain_file(symbol, names, read) {
            break;
        }
        symbols = rest;
    }
    symbols
}

/// A symbol as most are: code or data in a section, or all of it, with nothing wrong about it.
#[inline(always)]
fn plain_symbol(
    symbol: &ElfSymbol,
    names: &Range<u32>,
    block_of: &[Option<BlockId>],
    blocks: &[Block],
) -> Option<Symbol> {
    let (place, value, size) = (symbol.st_shndx(LE).0, symbol.st_value(LE), symbol.st_size(LE));
    if place == shn::UNDEF || place >= shn::RESERVED || !IS_PLAIN[usize::from(symbol.st_info.0)] {
        return None;
    }
    let id = (*block_of.get(usize::from(place))?)?;
    let block = blocks.get(id.index())?;
    let name = plain_name(symbol, names)?;
    if value > block.size || block.role == Role::TlsIndex {
        return None;
    }
    let (name, definition) = (Text::Terminated(name), Definition::Block(id, value));
    Some(Symbol { name, definition, size, binding: binding(symbol), is_hidden: is_hidden(symbol) })
}

/// Reads a symbol that says what the source is called, if it is one.
#[inline(never)]
fn plain_file(symbol: &ElfSymbol, names: &Range<u32>, read: &mut Vec<Symbol>) -> bool {
    let Some(name) = plain_name(symbol, names) else { return false };
    if symbol.st_type().0 != st::TYPE_FILE || binding(symbol) != Binding::Local {
        return false;
    }
    let (name, definition, binding) = (Text::Terminated(name), Definition::Nowhere, Binding::Local);
    read.push(Symbol { name, definition, size: symbol.st_size(LE), binding, is_hidden: is_hidden(symbol) });
    true
}

/// Reads a symbol that others define, if it is as most of those are; false if it is not.
#[inline(never)]
fn plain_external(
    symbol: &ElfSymbol,
    names: &Range<u32>,
    bytes: &[u8],
    beginnings: &mut PrefixFilter,
    read: &mut Vec<Symbol>,
) -> bool {
    let (binding, kind) = (binding(symbol), symbol.st_type().0);
    if symbol.st_shndx(LE).0 != shn::UNDEF || binding == Binding::Local || kind == st::TYPE_FILE {
        return false;
    }
    let Some(start) = plain_name(symbol, names) else { return false };
    let onwards = bytes.get(start as usize..names.end as usize);
    let Some(name) = onwards.and_then(ahead_of_null) else { return false };
    beginnings.add(name);
    let (name, definition) = (Text::Object(start..start + name.len() as u32), Definition::External);
    read.push(Symbol { name, definition, size: symbol.st_size(LE), binding, is_hidden: is_hidden(symbol) });
    true
}

/// Where in the object a symbol's name begins, if that is where names may begin.
#[inline(always)]
fn plain_name(symbol: &ElfSymbol, names: &Range<u32>) -> Option<u32> {
    let (at, length) = (symbol.st_name(LE), names.end - names.start);
    (at < length).then(|| names.start + at)
}

fn binding(symbol: &ElfSymbol) -> Binding {
    BINDINGS[usize::from(symbol.st_bind().0) % BINDINGS.len()]
}

fn is_hidden(symbol: &ElfSymbol) -> bool {
    symbol.st_visibility().0 != st::VISIBILITY_DEFAULT
}

/// By what the gABI has for them.
static BINDINGS: [Binding; 16] = {
    let mut bindings = [Binding::Global; 16];
    bindings[st::BIND_LOCAL as usize] = Binding::Local;
    bindings[st::BIND_WEAK as usize] = Binding::Weak;
    bindings[st::BIND_GNU_UNIQUE as usize] = Binding::Weak;
    bindings
};

/// Whether a definition with this `st_info` may be [plain](plain_symbol): by its type and its binding.
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

/// A name, without what may stand behind it.
fn only_name(onwards: &[u8]) -> &[u8] {
    ahead_of_null(onwards).unwrap_or(onwards)
}

/// Whether a section whose name begins so may be more than code and data: cheap, and right when it says no.
fn may_be_special(onwards: &[u8]) -> bool {
    matches!(onwards.first_chunk(), Some(b".in" | b".fi" | b".ct" | b".dt" | b".pr" | b".eh" | b".da"))
}

/// Whether only relocation writes to a section, by how its name begins: then running code cannot.
fn is_relocated_only(name: &[u8]) -> bool {
    const RELRO: [&[u8]; 7] =
        [b".data.rel.ro", b".preinit_array", b".init_array", b".fini_array", b".ctors", b".dtors", b".eh_frame"];
    RELRO.iter().any(|relro| name.starts_with(relro))
}

/// What is in a section whose name begins here.
fn role_of(onwards: &[u8]) -> Role {
    if onwards.starts_with(EH_FRAME) && only_name(onwards) == EH_FRAME {
        return Role::EhFrame;
    }
    if !initializers::may_list(onwards) {
        return Role::Plain;
    }
    if init_fragments::has_fragment(only_name(onwards)) {
        return Role::InitFragment;
    }
    match initializers::classify(only_name(onwards)) {
        Some((kind, priority, direction)) => {
            Role::Initializers { kind, priority, backward: direction == Direction::Backward }
        }
        None => Role::Plain,
    }
}

/// Of sections that are no blocks.
static NO_BLOCKS: [Option<BlockId>; 64] = [None; 64];
const EH_FRAME: &[u8] = b".eh_frame";
const GRP_COMDAT: u32 = 1;

/// Section flags.
mod shf {
    pub(super) const WRITE: u64 = 1;
    pub(super) const ALLOC: u64 = 2;
    pub(super) const EXECINSTR: u64 = 4;
    pub(super) const LINK_ORDER: u64 = 0x80;
    pub(super) const OS_NONCONFORMING: u64 = 0x100;
    pub(super) const TLS: u64 = 0x400;
    pub(super) const COMPRESSED: u64 = 0x800;
    pub(super) const GNU_RETAIN: u64 = 0x20_0000;
    pub(super) const EXCLUDE: u64 = 0x8000_0000;
}
