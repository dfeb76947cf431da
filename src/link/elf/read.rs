//! Reads an object into a [`LinkGraph`]: sections become blocks, symbols keep their order, relocations become edges.
//!
//! Sections that are not in memory (debug information, symbol tables) are left out. Whatever refers into them from
//! memory is refused.

use std::ops::Range;

use object::read::elf::{Rela as _, SectionHeader as _, Sym as _};

use crate::base::{Kept, Pool};
use crate::error::{Error, LinkFault};
use crate::link::buffer::ObjectBuffer;
use crate::link::elf::{ElfObject, ElfSymbol, LE, Rela, SectionHeader, shn, st};
use crate::link::graph::{
    Beginnings, Binding, Block, BlockId, Content, Definition, Edge, LinkGraph, Role, Symbol, SymbolIndex, Text,
};
use crate::link::initializers::{self, Direction};
use crate::link::x86_64::{self, EdgeKind, KindSet};
use crate::sync::Arc;

/// Reads `bytes`.
pub(crate) fn read_graph(name: Arc<str>, bytes: ObjectBuffer) -> Result<LinkGraph, Error> {
    let content = bytes.clone();
    let object = ElfObject::open(&name, &content)?;
    let mut graph = LinkGraph {
        name: name.clone(),
        bytes,
        blocks: Kept::with_capacity(object.sections.len()),
        symbols: Kept::with_capacity(object.symbols.len() + 4),
        edges: Kept::new(),
        group_count: 0,
        indirect: Vec::new(),
        first_global: 0,
        kinds: KindSet::default(),
        beginnings: Beginnings::default(),
        descriptor_function: None,
    };
    let mut reader = Reader {
        block_of: Kept::repeat(None, object.sections.len()),
        has_groups: false,
        object: &object,
        graph: &mut graph,
    };
    reader.sections()?;
    reader.groups()?;
    reader.symbols()?;
    reader.relocations()?;
    Ok(graph)
}

struct Reader<'a, 'data> {
    object: &'a ElfObject<'data>,
    graph: &'a mut LinkGraph,
    /// By section index.
    block_of: Kept<Option<BlockId>>,
    has_groups: bool,
}

impl Reader<'_, '_> {
    fn sections(&mut self) -> Result<(), Error> {
        let mut has_links = false;
        for (index, section) in self.object.sections.enumerate() {
            let flags = section.sh_flags(LE).0;
            if flags & shf::ALLOC != 0 {
                self.block_of[index.0] = self.section(section)?;
            }
            has_links |= flags & shf::LINK_ORDER != 0;
            self.has_groups |= section.sh_type(LE).0 == sht::GROUP;
        }
        if has_links {
            self.links();
        }
        self.check_apart(self.graph.blocks.iter().filter_map(|block| match &block.content {
            Content::Object(range) => Some(range.clone()),
            _ => None,
        }))
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
    fn check_apart(&self, ranges: impl Iterator<Item = Range<usize>> + Clone) -> Result<(), Error> {
        let ranges = ranges.filter(|range| !range.is_empty());
        let mut end = 0;
        // In the order in which compilers write them, mostly.
        if ranges.clone().all(|range| std::mem::replace(&mut end, range.end) <= range.start) {
            return Ok(());
        }
        let mut sorted: Vec<_> = ranges.collect();
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
        let name = object.section_name(section)?;
        let (kind, flags) = (section.sh_type(LE).0, section.sh_flags(LE).0);
        let refuse = |what: &str| Err(object.unsupported(what, name, 0, ""));
        if flags & shf::COMPRESSED != 0 {
            return refuse("compressed section in memory (SHF_COMPRESSED)");
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
            return Err(object.malformed(format!("section `{name}` is aligned to {align}, which is no power of two")));
        }
        if size > u64::from(u32::MAX) {
            return refuse("section larger than 4 GiB");
        }
        let content = match section.file_range(LE) {
            None => Content::Zero,
            Some((start, size)) => {
                let end = start.checked_add(size).filter(|end| *end <= object.bytes.len() as u64);
                let end =
                    end.ok_or_else(|| object.malformed(format!("section `{name}` reaches past the end of the file")))?;
                Content::Object(start as usize..end as usize)
            }
        };
        let id = self.graph.push_block(text(object, name), pool_of(name, flags), content, size, align, 0..0);
        let role = if flags & shf::TLS != 0 { Role::ThreadLocal } else { role_of(name) };
        if matches!(role, Role::Initializers { .. }) && size % 8 != 0 {
            return Err(
                object.malformed(format!("section `{name}` has {size} bytes, which is no whole number of addresses"))
            );
        }
        let block = &mut self.graph.blocks[id.0 as usize];
        block.role = role;
        block.is_retained = flags & shf::GNU_RETAIN != 0;
        Ok(Some(id))
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
        // Whole objects are smaller than 4 GiB.
        let names_at = self.object.names_range.as_ref().map(|range| range.start as u32);
        let count = self.object.symbols.len() as u32;
        self.graph.first_global = count;
        for (index, symbol) in self.object.symbols.enumerate() {
            let binding = match symbol.st_bind().0 {
                st::BIND_LOCAL => Binding::Local,
                st::BIND_WEAK | st::BIND_GNU_UNIQUE => Binding::Weak,
                _ => Binding::Global,
            };
            let name = match (binding, names_at) {
                (Binding::Local, Some(at)) => Text::Terminated(at.saturating_add(symbol.st_name(LE))),
                _ => {
                    let name = self.object.symbol_name(symbol)?;
                    if symbol.st_shndx(LE).0 == shn::UNDEF {
                        self.graph.beginnings.add(name.as_bytes());
                    }
                    text(self.object, name)
                }
            };
            if binding != Binding::Local {
                self.graph.first_global = self.graph.first_global.min(index.0 as u32);
            }
            let definition = self.definition(index, symbol)?;
            let is_hidden = symbol.st_visibility().0 != st::VISIBILITY_DEFAULT;
            let size = symbol.st_size(LE);
            let id = self.graph.push_symbol(Symbol { name, definition, size, binding, is_hidden });
            if symbol.st_type().0 == st::TYPE_GNU_IFUNC && matches!(definition, Definition::Block(..)) {
                self.graph.indirect.push(id);
            }
        }
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

    fn definition(&mut self, index: object::SymbolIndex, symbol: &ElfSymbol) -> Result<Definition, Error> {
        let object = self.object;
        // Asked for only where there is something to complain of.
        let name = || object.symbol_name(symbol).unwrap_or("");
        let value = symbol.st_value(LE);
        let kind = symbol.st_type().0;
        if index.0 == 0 {
            return Ok(Definition::Absolute(0));
        }
        if kind == st::TYPE_FILE {
            return Ok(Definition::Nowhere);
        }
        match symbol.st_shndx(LE).0 {
            // Nobody else could define it.
            shn::UNDEF if symbol.st_bind().0 == st::BIND_LOCAL => return Ok(Definition::Nowhere),
            shn::UNDEF => return Ok(Definition::External),
            shn::ABS => return Ok(Definition::Absolute(value)),
            shn::COMMON => {
                let align = value.max(1);
                if !align.is_power_of_two() || symbol.st_size(LE) > u64::from(u32::MAX) {
                    return Err(object.malformed(format!(
                        "common symbol `{}` has alignment {value} and size {}",
                        name(),
                        symbol.st_size(LE)
                    )));
                }
                let block = self.graph.push_block(
                    Text::Fixed("COMMON"),
                    Pool::Data,
                    Content::Zero,
                    symbol.st_size(LE),
                    align,
                    0..0,
                );
                return Ok(Definition::Block(block, 0));
            }
            _ => {}
        }
        let section = object.symbols.symbol_section(LE, symbol, index).map_err(|error| object.malformed(error))?;
        let Some(section) = section else {
            return Err(object.unsupported("special section index", ".symtab", index.0 as u64, name()));
        };
        let block = self.block_of.get(section.0).ok_or_else(|| {
            object.malformed(format!("symbol `{}` is in section {}, which does not exist", name(), section.0))
        })?;
        let Some(block) = *block else { return Ok(Definition::Nowhere) };
        let is_thread_local = self.graph.blocks[block.0 as usize].role == Role::ThreadLocal;
        if kind != st::TYPE_SECTION && (kind == st::TYPE_TLS) != is_thread_local {
            let found = if is_thread_local { "is not" } else { "is" };
            return Err(object.malformed(format!("symbol `{}` {found} of type STT_TLS, unlike its section", name())));
        }
        let size = self.graph.blocks[block.0 as usize].size;
        if value > size {
            return Err(object
                .malformed(format!("symbol `{}` is at {value:#x}, past the end ({size:#x}) of its section", name())));
        }
        Ok(Definition::Block(block, value))
    }

    fn relocations(&mut self) -> Result<(), Error> {
        let object = self.object;
        self.check_apart(object.sections.iter().filter_map(|section| {
            let is_read = self.block_of.get(section.sh_info(LE) as usize).is_some_and(Option::is_some);
            let (start, size) = section.file_range(LE).filter(|_| is_read && section.sh_type(LE).0 == sht::RELA)?;
            // One that reaches past the end of the file is refused when it is read.
            Some(start as usize..start.saturating_add(size) as usize)
        }))?;
        for section in object.sections.iter() {
            let target = section.sh_info(LE) as usize;
            match section.sh_type(LE).0 {
                sht::RELA => {}
                kind @ (sht::REL | sht::CREL) => {
                    if self.block_of.get(target).is_some_and(Option::is_some) {
                        let name = object.section_name(section)?;
                        let what = if kind == sht::REL {
                            "relocations without addends (SHT_REL)"
                        } else {
                            "compact relocations (SHT_CREL)"
                        };
                        return Err(object.unsupported(what, name, 0, ""));
                    }
                    continue;
                }
                _ => continue,
            }
            let block = self
                .block_of
                .get(target)
                .ok_or_else(|| object.malformed("relocations for a section that does not exist"))?;
            if let Some(block) = *block {
                self.edges(section, block)?;
            }
        }
        Ok(())
    }

    fn edges(&mut self, section: &SectionHeader, block: BlockId) -> Result<(), Error> {
        let object = self.object;
        let Some((relocations, _)) = section.rela(LE, object.bytes).map_err(|error| object.malformed(error))? else {
            return Ok(());
        };
        let block_size = self.check_relocatable(block, relocations.is_empty())?;
        let first = self.graph.edges.len() as u32;
        let symbols = self.graph.symbols.len();
        let (edges, mut kinds) = (&mut *self.graph.edges, self.graph.kinds);
        edges.reserve(relocations.len());
        for relocation in relocations {
            let (offset, r_type) = (relocation.r_offset(LE), relocation.r_type(LE, false).0);
            let symbol = relocation.r_sym(LE, false);
            let Some((kind, width)) = EdgeKind::decode(r_type).filter(|_| (symbol as usize) < symbols) else {
                if x86_64::is_mark(r_type) {
                    continue;
                }
                return Err(self.unknown(block, relocation));
            };
            // Blocks are smaller than 4 GiB.
            if offset > block_size || block_size - offset < width {
                let name = self.graph.block_name(block);
                return Err(object.malformed(format!(
                    "relocation in `{name}` at {offset:#x} reaches past its end ({block_size:#x})"
                )));
            }
            kinds.insert(kind);
            let (symbol, addend) = (SymbolIndex(symbol), relocation.r_addend(LE));
            edges.push(Edge { offset: offset as u32, kind, symbol, addend });
        }
        self.graph.kinds = kinds;
        self.graph.blocks[block.0 as usize].edges = first..self.graph.edges.len() as u32;
        if kinds.has_any_of(KindSet::SIZE) { self.check_sizes(block) } else { Ok(()) }
    }

    /// The size of a block that may have relocations.
    fn check_relocatable(&self, block: BlockId, has_none: bool) -> Result<u64, Error> {
        let (object, name) = (self.object, || self.graph.block_name(block));
        let Block { size, content, edges, .. } = &self.graph.blocks[block.0 as usize];
        if !edges.is_empty() {
            return Err(object.unsupported("second relocation section for one section", name(), 0, ""));
        }
        if matches!(content, Content::Zero) && !has_none {
            return Err(object.malformed(format!("relocations in `{}`, which has no bytes", name())));
        }
        Ok(*size)
    }

    /// What is wrong with a relocation whose symbol or type is not known.
    fn unknown(&self, block: BlockId, relocation: &Rela) -> Error {
        let (section, offset) = (self.graph.block_name(block).to_string(), relocation.r_offset(LE));
        let symbol = relocation.r_sym(LE, false);
        if symbol as usize >= self.graph.symbols.len() {
            return self.object.malformed(format!(
                "relocation in `{section}` at {offset:#x} names symbol {symbol}, which does not exist"
            ));
        }
        let what = x86_64::relocation_name(relocation.r_type(LE, false).0);
        let symbol = self.graph.symbol_name(SymbolIndex(symbol)).to_string();
        self.object.fault(LinkFault::Unsupported { what, section, offset, symbol })
    }

    /// Only the object that defines a symbol knows its size.
    fn check_sizes(&self, block: BlockId) -> Result<(), Error> {
        let is_elsewhere = |edge: &&Edge| self.graph.definition(edge.symbol) == Definition::External;
        let Some(edge) = self.graph.edges(block).iter().filter(|edge| edge.kind.is_size()).find(is_elsewhere) else {
            return Ok(());
        };
        Err(self.object.fault(LinkFault::Unsupported {
            what: format!("relocation {} to another object's symbol", edge.kind.name()),
            section: self.graph.block_name(block).to_string(),
            offset: edge.offset.into(),
            symbol: self.graph.symbol_name(edge.symbol).to_string(),
        }))
    }
}

/// The pool for a section. What only relocation writes goes where running code cannot write it.
fn pool_of(name: &str, flags: u64) -> Pool {
    const RELRO: [&str; 7] =
        [".data.rel.ro", ".preinit_array", ".init_array", ".fini_array", ".ctors", ".dtors", ".eh_frame"];
    if flags & shf::EXECINSTR != 0 {
        Pool::Code
    } else if flags & shf::WRITE == 0 || RELRO.iter().any(|relro| name.starts_with(relro)) {
        Pool::ReadOnly
    } else {
        Pool::Data
    }
}

fn role_of(name: &str) -> Role {
    if name == ".eh_frame" {
        return Role::EhFrame;
    }
    match initializers::classify(name) {
        Some((kind, priority, direction)) => {
            Role::Initializers { kind, priority, backward: direction == Direction::Backward }
        }
        None => Role::Plain,
    }
}

/// A name as a range of the object, of which it is a part.
fn text(object: &ElfObject<'_>, name: &str) -> Text {
    let start = (name.as_ptr() as usize).wrapping_sub(object.bytes.as_ptr() as usize);
    match start.checked_add(name.len()) {
        Some(end) if end <= object.bytes.len() => Text::Object(start as u32..end as u32),
        _ => Text::Made(Arc::from(name)),
    }
}

const GRP_COMDAT: u32 = 1;

/// Section types.
mod sht {
    pub(super) const PROGBITS: u32 = 1;
    pub(super) const RELA: u32 = 4;
    pub(super) const NOTE: u32 = 7;
    pub(super) const NOBITS: u32 = 8;
    pub(super) const REL: u32 = 9;
    pub(super) const INIT_ARRAY: u32 = 14;
    pub(super) const FINI_ARRAY: u32 = 15;
    pub(super) const PREINIT_ARRAY: u32 = 16;
    pub(super) const GROUP: u32 = 17;
    pub(super) const CREL: u32 = 0x4000_0014;
    pub(super) const X86_64_UNWIND: u32 = 0x7000_0001;
}

/// Section flags.
mod shf {
    pub(super) const WRITE: u64 = 1;
    pub(super) const ALLOC: u64 = 2;
    pub(super) const EXECINSTR: u64 = 4;
    pub(super) const LINK_ORDER: u64 = 0x80;
    pub(super) const TLS: u64 = 0x400;
    pub(super) const COMPRESSED: u64 = 0x800;
    pub(super) const GNU_RETAIN: u64 = 0x20_0000;
}
