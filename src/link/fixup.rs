//! Copies contents to their place and applies the edges.
//!
//! Every write is into the block's own bytes, which were checked to hold it when the object was read. Branches go
//! straight where the displacement allows and through their stub where not; GOT loads likewise are rewritten or left. What is
//! still too short for its target goes to `far_data`, a block at a time.

use crate::base::{ExecutorAddr, Kept, Pool, ThreadLocal, keep};
use crate::error::{Error, LinkFault};
use crate::link::far_data::Redirects;
use crate::link::graph::{Block, BlockId, Definition, Edge, LinkGraph, Places, Role, SymbolIndex};
use crate::link::tables::{SLOT, Tables};
use crate::link::x86_64::{self, EdgeKind, STUB, STUB_FIELD, ThreadLocalEntry};
use crate::memory::InFlight;

/// A graph whose every address is known.
pub(crate) struct Fixup<'a> {
    pub(crate) graph: &'a LinkGraph,
    pub(crate) tables: &'a Tables,
    pub(crate) places: &'a Places,
    /// By symbol.
    targets: Kept<Target>,
    found: &'a [FoundExternal],
}

keep!(Target);

/// Where a symbol is, worked out once for all edges that refer to it.
#[derive(Clone, Copy, Default)]
struct Target {
    address: u64,
    /// One more than the position among the externals; zero for the object's own.
    external: u32,
    /// Whether the address is all there is to it: it is somewhere, and no thread-local variable.
    is_plain: bool,
}

/// What was found for an external.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FoundExternal {
    /// Its address; null if it was not found and need not be.
    pub address: ExecutorAddr,
    /// Whether it is known to be a function: then a stub may stand for it where it is out of reach.
    pub is_callable: bool,
    /// If it is thread-local: its distance from the thread pointer where that was asked for and can be had. Its address is a
    /// [`ThreadLocal`](crate::base::ThreadLocal) then.
    pub thread_local: Option<Option<i64>>,
}

impl<'a> Fixup<'a> {
    /// `found` is what was found for `externals`, in order; those that are not there are null.
    pub(crate) fn new(
        graph: &'a LinkGraph,
        tables: &'a Tables,
        places: &'a Places,
        externals: impl Iterator<Item = SymbolIndex>,
        found: &'a [FoundExternal],
    ) -> Fixup<'a> {
        let mut fixup = Fixup { graph, tables, places, targets: Kept::with_capacity(graph.symbols.len()), found };
        fixup.targets.extend(graph.symbols.iter().map(|symbol| own_target(graph, places, symbol.definition)));
        for (number, (symbol, found)) in externals.zip(found).enumerate() {
            fixup.targets[symbol.index()] = Target {
                address: found.address.value(),
                external: number as u32 + 1,
                is_plain: found.thread_local.is_none(),
            };
        }
        fixup
    }

    /// Writes everything into `memory`.
    pub(crate) fn apply(
        &self,
        memory: &mut dyn InFlight,
        order: &[BlockId],
        image: Option<&mut [u8]>,
    ) -> Result<(), Error> {
        let mut redirects = Redirects::new();
        // Held apart from the graph's own handle, so that asking a holder for its bytes is done once per link.
        let object = self.graph.bytes.clone();
        let object: &[u8] = &object;
        for pool in Pool::ALL {
            let segment = memory.working(pool);
            let mut written = 0;
            for id in order.iter().copied() {
                let block = &self.graph.blocks[id.index()];
                if block.pool != pool || !is_in_segment(block) {
                    continue;
                }
                let Some(content) = self.graph.content_in(object, block) else { continue };
                let (start, end) = (block.offset as usize, block.offset as usize + content.len());
                // Gaps hold whatever was there before; code gets traps, so that nothing runs into it.
                segment[written..start].fill(if pool == Pool::Code { TRAP } else { 0 });
                let bytes = &mut segment[start..end];
                bytes.copy_from_slice(content);
                self.block(id, block, bytes, &mut redirects)?;
                written = end;
            }
        }
        self.apply_apart(object, memory, &mut redirects)?;
        if let Some(image) = image {
            self.apply_thread_locals(object, image, |_| true)?;
        }
        self.fill_tables(memory)?;
        redirects.write(self, memory);
        Ok(())
    }

    /// What every thread's copy begins as, as far as it is known before externals are: with the edges to the object's own
    /// definitions. The first edge to another, if there is one.
    pub(crate) fn own_image(&self, image: &mut [u8]) -> Result<Option<Edge>, Error> {
        let object = self.graph.bytes.clone();
        let mut left = None;
        self.apply_thread_locals(&object, image, |edge| {
            let is_known = self.graph.definition(edge.symbol) != Definition::External;
            if !is_known {
                left.get_or_insert(*edge);
            }
            is_known
        })?;
        Ok(left)
    }

    fn apply_thread_locals(
        &self,
        object: &[u8],
        image: &mut [u8],
        mut is_known: impl FnMut(&Edge) -> bool,
    ) -> Result<(), Error> {
        let blocks = self.graph.blocks().filter(|(_, block)| block.role == Role::ThreadLocal && !block.is_dropped);
        for (id, block) in blocks {
            let Some(content) = self.graph.content_in(object, block) else { continue };
            let bytes = &mut image[block.offset as usize..block.offset as usize + content.len()];
            bytes.copy_from_slice(content);
            for edge in self.graph.edges(id) {
                if edge.kind.depends_on_place() {
                    return Err(self.refuse(
                        id,
                        edge,
                        format!("{} in what every thread has a copy of", edge.kind.name()),
                    ));
                }
                if is_known(edge)
                    && let Outcome::OutOfReach(value) = self.edge(id, block, edge, ExecutorAddr::NULL, bytes)?
                {
                    return Err(self.out_of_range(id, edge, value));
                }
            }
        }
        Ok(())
    }

    /// As above, for what is in no segment.
    fn apply_apart(&self, object: &[u8], memory: &mut dyn InFlight, redirects: &mut Redirects) -> Result<(), Error> {
        for (id, block) in self.graph.blocks() {
            let (Some(number), Some(content)) = (block.apart, self.graph.content_in(object, block)) else { continue };
            let bytes = memory.apart(number as usize);
            bytes.copy_from_slice(content);
            self.block(id, block, bytes, redirects)?;
        }
        Ok(())
    }

    fn block(&self, id: BlockId, block: &Block, bytes: &mut [u8], redirects: &mut Redirects) -> Result<(), Error> {
        let address = self.graph.block_address(id, self.places);
        let mut far = Vec::new();
        for edge in self.graph.edges(id) {
            if !self.simple_edge(edge, address, bytes)
                && let Outcome::OutOfReach(value) = self.edge(id, block, edge, address, bytes)?
            {
                if !self.tables.far.covers(self.graph, id, edge) {
                    return Err(self.out_of_range(id, edge, value));
                }
                far.push(*edge);
            }
        }
        // They may share instructions and tables with what was fixed up, and change those.
        if far.is_empty() { Ok(()) } else { redirects.block(self, id, bytes, far) }
    }

    /// Nearly all edges are one of three kinds, refer to something plain, and fit: those are done here, with the same outcome
    /// as in [`edge`](Self::edge). False for the others.
    #[inline]
    fn simple_edge(&self, edge: &Edge, block_address: ExecutorAddr, bytes: &mut [u8]) -> bool {
        let (target, offset) = (self.targets[edge.symbol.index()], edge.offset as usize);
        if !target.is_plain {
            return false;
        }
        match edge.kind {
            EdgeKind::Pointer64 => {
                let value = target.address.wrapping_add_signed(edge.addend);
                bytes[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
                true
            }
            EdgeKind::Delta32 | EdgeKind::Branch32 => {
                let place = block_address.value() + u64::from(edge.offset);
                // Addresses of user space, whose differences cannot overflow.
                if (target.address | place) >> 62 != 0 || edge.addend.unsigned_abs() >> 32 != 0 {
                    return false;
                }
                let value = target.address as i64 + edge.addend - place as i64;
                let Ok(value) = i32::try_from(value) else { return false };
                bytes[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
                true
            }
            _ => false,
        }
    }

    fn edge(
        &self,
        id: BlockId,
        block: &Block,
        edge: &Edge,
        block_address: ExecutorAddr,
        bytes: &mut [u8],
    ) -> Result<Outcome, Error> {
        let place = block_address.offset(edge.offset.into());
        let (before, rest) = bytes.split_at_mut(edge.offset as usize);
        let field = &mut rest[..edge.kind.width()];
        if self.graph.definition(edge.symbol) == Definition::Nowhere {
            self.refer_nowhere(id, block, edge, field)?;
            return Ok(Outcome::Applied);
        }
        let target = self.address(edge.symbol);
        self.check_kind(id, edge)?;
        let to_target = wide(target) + i128::from(edge.addend) - wide(place);
        if let (Ok(displacement), Ok(word)) = (i64::try_from(to_target), <&mut [u8; 4]>::try_from(&mut *field))
            && edge.addend == -4
            && x86_64::relax_got_load(edge.kind, before, word, displacement)
        {
            return Ok(Outcome::Applied);
        }
        let mut value = self.value(id, edge, target, to_target, place)?;
        if let Some((min, max)) = edge.kind.range()
            && !(min..=max).contains(&value)
        {
            let stub = self.stub_instead(edge, place).filter(|value| (min..=max).contains(value));
            let Some(stub) = stub else { return Ok(Outcome::OutOfReach(value)) };
            value = stub;
        }
        field.copy_from_slice(&value.to_le_bytes()[..edge.kind.width()]);
        Ok(Outcome::Applied)
    }

    fn value(
        &self,
        id: BlockId,
        edge: &Edge,
        target: ExecutorAddr,
        to_target: i128,
        place: ExecutorAddr,
    ) -> Result<i128, Error> {
        use EdgeKind::*;
        let addend = i128::from(edge.addend);
        let got = || self.tables.got().map_or(0, |got| wide(self.graph.block_address(got, self.places)));
        // Tables were built from these very edges: a slot that an edge needs is there.
        let slot = || got() + i128::from(self.tables.slot(edge.symbol).unwrap_or(0));
        Ok(match edge.kind {
            Pointer64 => i128::from(target.value().wrapping_add_signed(edge.addend)),
            Pointer32 | Pointer32Signed | Pointer16 | Pointer8 => signed_low(target, edge.kind) + addend,
            Delta64 | Delta32 | Delta16 | Delta8 | Branch32 => to_target,
            GotLoad32 | GotLoad32Relaxable | GotLoad32RexRelaxable | GotLoad32Apx | GotLoad64 => {
                slot() + addend - wide(place)
            }
            GotSlot64 | GotSlot32 => slot() + addend - got(),
            GotOffset64 => wide(target) + addend - got(),
            GotBase32 | GotBase64 => got() + addend - wide(place),
            Size32 | Size64 => i128::from(self.graph.symbols[edge.symbol.0 as usize].size) + addend,
            ThreadLocalPair32 | ThreadLocalBlock32 | StaticLoad32 | ThreadLocalDescriptor32 => {
                let entry = edge.kind.thread_local_entry();
                let offset = entry.and_then(|entry| self.tables.thread_local(edge.symbol, entry)).unwrap_or(0);
                got() + i128::from(offset) + addend - wide(place)
            }
            ThreadLocalOffset32 | ThreadLocalOffset64 => {
                let offset = self.block_offset(edge.symbol);
                i128::from(offset.ok_or_else(|| self.not_static(id, edge))?) + addend
            }
            StaticOffset32 | StaticOffset64 => {
                let distance = self.variable(edge.symbol).static_offset;
                i128::from(distance.ok_or_else(|| self.not_static(id, edge))?) + addend
            }
        })
    }

    /// What stands for a function that is out of reach: its stub, for a branch to anything and for the address of what is
    /// known to be a function.
    fn stub_instead(&self, edge: &Edge, place: ExecutorAddr) -> Option<i128> {
        use EdgeKind::*;
        let is_callable = || self.found(edge.symbol).is_some_and(|found| found.is_callable);
        if edge.kind != Branch32 && !is_callable() {
            return None;
        }
        let (stubs, offset) = (self.tables.stubs()?, self.tables.stub(edge.symbol)?);
        let value = wide(self.graph.block_address(stubs, self.places).offset(offset)) + i128::from(edge.addend);
        match edge.kind {
            Branch32 | Delta32 => Some(value - wide(place)),
            Pointer32 | Pointer32Signed => Some(value),
            _ => None,
        }
    }

    /// Something refers to what is not in memory. Unwind tables of dropped functions do; others may not.
    fn refer_nowhere(&self, id: BlockId, block: &Block, edge: &Edge, field: &mut [u8]) -> Result<(), Error> {
        let name = self.graph.block_name(id);
        if block.role == Role::EhFrame || name.starts_with(".gcc_except_table") {
            field.fill(0);
            return Ok(());
        }
        Err(self.graph.fault(LinkFault::Unsupported {
            what: format!("{} to a section that is not in memory, or was dropped with its group", edge.kind.name()),
            section: name.to_string(),
            offset: edge.offset.into(),
            symbol: self.graph.symbol_name(edge.symbol).to_string(),
        }))
    }

    /// Thread-local variables are referred to as such, and nothing else is.
    fn check_kind(&self, id: BlockId, edge: &Edge) -> Result<(), Error> {
        let is_variable = match self.graph.definition(edge.symbol) {
            Definition::Block(block, _) => self.graph.blocks[block.index()].role == Role::ThreadLocal,
            Definition::External => self.found(edge.symbol).is_some_and(|found| found.thread_local.is_some()),
            Definition::Absolute(_) | Definition::Nowhere => false,
        };
        let asks_for_block = edge.kind == EdgeKind::ThreadLocalBlock32;
        if is_variable == edge.kind.is_thread_local() && !asks_for_block
            || asks_for_block && self.places.thread_locals.is_some()
        {
            return Ok(());
        }
        let what = match (asks_for_block, is_variable) {
            (true, _) => "{} in an object without thread-local sections",
            (false, true) => "{} to a thread-local variable",
            (false, false) => "{} to a symbol that is no thread-local variable",
        };
        Err(self.refuse(id, edge, what.replace("{}", edge.kind.name())))
    }

    /// Where a thread-local variable is.
    fn variable(&self, symbol: SymbolIndex) -> Variable {
        let own = self.places.thread_locals.as_ref();
        match self.graph.definition(symbol) {
            Definition::Block(block, offset) => {
                // Its offset is known before its module is: the image, which may hold it, is made first.
                let offset = self.graph.blocks[block.index()].offset + offset;
                let at = ThreadLocal { module: own.map_or(0, |own| own.module), offset: offset as u32 };
                let start = own.and_then(|own| own.static_offset);
                Variable { at, static_offset: start.map(|start| start + offset as i64) }
            }
            _ => {
                let found = self.found(symbol).copied().unwrap_or_default();
                let at = ThreadLocal::from_address(found.address);
                Variable { at, static_offset: found.thread_local.flatten() }
            }
        }
    }

    /// Where a variable is, seen from the object's own block.
    fn block_offset(&self, symbol: SymbolIndex) -> Option<i64> {
        let (own, variable) = (self.places.thread_locals, self.variable(symbol));
        match own {
            Some(own) if own.module != variable.at.module => Some(variable.static_offset? - own.static_offset?),
            _ => Some(variable.at.offset.into()),
        }
    }

    fn not_static(&self, id: BlockId, edge: &Edge) -> Error {
        let what = format!(
            "{} to a variable without a place at a fixed distance from the thread pointer: the C library has no room left \
             for it there; compile with -fPIC and without -ftls-model",
            edge.kind.name()
        );
        self.refuse(id, edge, what)
    }

    fn refuse(&self, id: BlockId, edge: &Edge, what: String) -> Error {
        self.graph.fault(LinkFault::Unsupported {
            what,
            section: self.graph.block_name(id).to_string(),
            offset: edge.offset.into(),
            symbol: self.graph.symbol_name(edge.symbol).to_string(),
        })
    }

    /// What thread-local variables have in the GOT.
    fn fill_thread_locals(&self, got: ExecutorAddr, bytes: &mut [u8]) -> Result<(), Error> {
        for (symbol, entry, offset) in self.tables.thread_locals() {
            let at = offset as usize;
            let mut put = |index: usize, word: u64| {
                bytes[at + index * SLOT..at + (index + 1) * SLOT].copy_from_slice(&word.to_le_bytes());
            };
            let variable = self.variable(symbol);
            match entry {
                ThreadLocalEntry::Pair => {
                    put(0, variable.at.module.into());
                    put(1, variable.at.offset.into());
                }
                ThreadLocalEntry::Block => put(0, self.places.thread_locals.map_or(0, |own| own.module.into())),
                ThreadLocalEntry::StaticOffset => {
                    put(0, variable.static_offset.ok_or_else(|| self.not_static_slot(symbol))? as u64);
                }
                ThreadLocalEntry::Descriptor => {
                    let function =
                        self.graph.descriptor_function.map_or(ExecutorAddr::NULL, |function| self.address(function));
                    put(0, function.value());
                    put(1, got.offset(offset + 2 * SLOT as u64).value());
                    put(2, variable.at.module.into());
                    put(3, variable.at.offset.into());
                }
            }
        }
        Ok(())
    }

    fn not_static_slot(&self, symbol: SymbolIndex) -> Error {
        let is_it = |edge: &&Edge| edge.symbol == symbol && edge.kind == EdgeKind::StaticLoad32;
        let place = self.graph.blocks().find_map(|(id, _)| Some((id, self.graph.edges(id).iter().find(is_it)?)));
        match place {
            Some((id, edge)) => self.not_static(id, edge),
            None => self.graph.fault(LinkFault::Malformed("a slot that nobody asked for".to_string())),
        }
    }

    /// GOT slots hold addresses; stubs jump through their slot.
    fn fill_tables(&self, memory: &mut dyn InFlight) -> Result<(), Error> {
        let Some(got) = self.tables.got() else { return Ok(()) };
        let start = self.graph.blocks[got.0 as usize].offset as usize;
        let segment = memory.working(Pool::ReadOnly);
        for (symbol, slot) in self.tables.slots.iter().zip(segment[start..].chunks_exact_mut(SLOT)) {
            slot.copy_from_slice(&self.address(*symbol).value().to_le_bytes());
        }
        self.fill_thread_locals(self.graph.block_address(got, self.places), &mut segment[start..])?;
        let Some(stubs) = self.tables.stubs() else { return Ok(()) };
        let start = self.graph.blocks[stubs.0 as usize].offset as usize;
        let (got, stubs) = (self.graph.block_address(got, self.places), self.graph.block_address(stubs, self.places));
        let segment = memory.working(Pool::Code);
        for (index, (symbol, stub)) in
            self.tables.stub_targets.iter().zip(segment[start..].chunks_exact_mut(STUB.len())).enumerate()
        {
            let slot = got.offset(self.tables.slot(*symbol).unwrap_or(0));
            let field = stubs.offset((index * STUB.len()) as u64 + u64::from(STUB_FIELD));
            // One window: any of its addresses reaches any other.
            let displacement = slot.distance_from(field.offset(4)) as i32;
            stub[STUB_FIELD as usize..STUB_FIELD as usize + 4].copy_from_slice(&displacement.to_le_bytes());
        }
        Ok(())
    }

    pub(crate) fn address(&self, symbol: SymbolIndex) -> ExecutorAddr {
        self.targets.get(symbol.index()).map_or(ExecutorAddr::NULL, |target| ExecutorAddr::new(target.address))
    }

    /// What was found for an external.
    pub(super) fn found(&self, symbol: SymbolIndex) -> Option<&FoundExternal> {
        let target = self.targets.get(symbol.index())?;
        self.found.get(target.external.checked_sub(1)? as usize)
    }

    fn out_of_range(&self, id: BlockId, edge: &Edge, value: i128) -> Error {
        let (min, max) = edge.kind.range().unwrap_or_default();
        let advice = match edge.kind {
            EdgeKind::Pointer32 | EdgeKind::Pointer32Signed => "the code wants to be placed low: compile it with -fPIC",
            EdgeKind::Delta32 => {
                "the symbol is out of reach: compile with -fPIC, so that the reference goes through the GOT"
            }
            _ => "the field is too narrow for this value",
        };
        self.graph.fault(LinkFault::OutOfRange {
            section: self.graph.block_name(id).to_string(),
            offset: edge.offset.into(),
            kind: edge.kind.name().to_string(),
            symbol: self.graph.symbol_name(edge.symbol).to_string(),
            target: self.address(edge.symbol).value(),
            value,
            min,
            max,
            advice,
        })
    }
}

fn own_target(graph: &LinkGraph, places: &Places, definition: Definition) -> Target {
    let plain = |address: ExecutorAddr| Target { address: address.value(), external: 0, is_plain: true };
    match definition {
        Definition::Block(block, offset) => {
            let is_plain = graph.blocks[block.index()].role != Role::ThreadLocal;
            Target { is_plain, ..plain(graph.block_address(block, places).offset(offset)) }
        }
        Definition::Absolute(value) => plain(ExecutorAddr::new(value)),
        Definition::External | Definition::Nowhere => Target::default(),
    }
}

/// Whether a block has bytes in its pool's segment. Those without any have no place among the others.
fn is_in_segment(block: &Block) -> bool {
    !block.is_dropped && !block.is_apart() && block.role != Role::ThreadLocal && block.size > 0
}

/// What became of an edge.
enum Outcome {
    Applied,
    /// Its value, which does not fit; nothing was written.
    OutOfReach(i128),
}

/// A thread-local variable.
struct Variable {
    at: ThreadLocal,
    /// From the thread pointer.
    static_offset: Option<i64>,
}

fn wide(address: ExecutorAddr) -> i128 {
    address.value().into()
}

/// A sign-extended field means addresses of the top half as negative numbers; the others mean them as they are.
fn signed_low(target: ExecutorAddr, kind: EdgeKind) -> i128 {
    if kind == EdgeKind::Pointer32Signed { i128::from(target.value() as i64) } else { wide(target) }
}

const TRAP: u8 = 0xcc;
