//! Copies contents to their place and applies the edges.
//!
//! Every write is into the block's own bytes, which were checked to hold it when the object was read. Branches go
//! straight where the displacement allows and through their stub where not; GOT loads likewise are rewritten or left. What is
//! still too short for its target goes to `far_data`, a block at a time.

use crate::base::{ExecutorAddr, SegmentKind, TlsIndex};
use crate::error::{Error, LinkFault};
use crate::link::graph::{Block, BlockId, Definition, Edge, LinkGraph, Places, Role, SymbolIndex};
use crate::link::layout::Contents;
use crate::link::range_extension::Redirects;
use crate::link::tables::{SLOT, Tables};
use crate::link::targets::{Target, Targets, is_near_zero};
use crate::link::thread_locals;
use crate::link::x86_64::{self, EdgeKind, KindSet, STUB, STUB_FIELD, ThreadLocalEntry};
use crate::memory::InFlight;

/// A graph whose every address is known.
pub(crate) struct Fixup<'a> {
    pub(crate) graph: &'a LinkGraph,
    pub(crate) tables: &'a Tables,
    pub(crate) places: &'a Places,
    targets: &'a Targets,
    found: &'a [FoundExternal],
    /// Where the stubs are, if there are any.
    stubs: Option<ExecutorAddr>,
}

/// What was found for an external.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FoundExternal {
    /// Its address; null if it was not found and need not be.
    pub address: ExecutorAddr,
    /// Whether it is known to be a function: then a stub may stand for it where it is out of reach.
    pub is_callable: bool,
    /// If it is thread-local: its distance from the thread pointer where that was asked for and can be had. Its address is a
    /// [`TlsIndex`](crate::base::ThreadLocal) then.
    pub thread_local: Option<Option<i64>>,
}

impl<'a> Fixup<'a> {
    /// `found` is what was found for the externals, in order; `targets` were told of it.
    pub(crate) fn new(
        graph: &'a LinkGraph,
        tables: &'a Tables,
        places: &'a Places,
        targets: &'a Targets,
        found: &'a [FoundExternal],
    ) -> Fixup<'a> {
        let stubs = tables.stubs().map(|stubs| graph.block_address(stubs, places));
        Fixup { graph, tables, places, targets, found, stubs }
    }

    /// Writes everything into `memory`.
    pub(crate) fn apply(
        &self,
        memory: &mut dyn InFlight,
        contents: &Contents,
        image: Option<&mut [u8]>,
    ) -> Result<(), Error> {
        let mut redirects = Redirects::new();
        // Asking a holder for its bytes is done once per link.
        let object: &[u8] = &self.graph.bytes;
        for pool in SegmentKind::ALL {
            let segment = memory.working(pool);
            if !segment.is_empty() {
                self.apply_segment(pool, object, segment, contents, &mut redirects)?;
                match pool {
                    SegmentKind::Code => self.fill_stubs(segment),
                    SegmentKind::ReadOnly => self.fill_slots(segment),
                    SegmentKind::Data => {}
                }
            }
        }
        if !self.places.apart.is_empty() {
            self.apply_apart(object, memory, &mut redirects)?;
        }
        if let Some(image) = image {
            self.apply_thread_locals(object, image, |_, _| true)?;
        }
        self.fill_thread_locals(memory)?;
        redirects.write(self, memory);
        Ok(())
    }

    fn apply_segment(
        &self,
        pool: SegmentKind,
        object: &[u8],
        segment: &mut [u8],
        contents: &Contents,
        redirects: &mut Redirects,
    ) -> Result<(), Error> {
        let mut written = 0;
        for (id, block) in contents.of(self.graph, pool) {
            let (start, end) = (block.offset as usize, (block.offset + block.size) as usize);
            // Gaps hold whatever was there before; code gets traps, so that nothing runs into it.
            if written < start {
                segment[written..start].fill(if pool == SegmentKind::Code { TRAP } else { 0 });
            }
            written = end;
            // Tables are filled in when their segment is done.
            let Some(content) = self.graph.content_in(object, block) else { continue };
            let bytes = &mut segment[start..end];
            bytes.copy_from_slice(content);
            if !block.edges.is_empty() {
                self.block(id, block, self.places.segments[pool.index()].offset(block.offset), bytes, redirects)?;
            }
        }
        Ok(())
    }

    /// What every thread's copy begins as, as far as it is known before externals are: with the edges to the object's own
    /// definitions. The first edge to another, if there is one.
    pub(crate) fn own_image(&self, image: &mut [u8]) -> Result<Option<(BlockId, Edge)>, Error> {
        let mut left = None;
        self.apply_thread_locals(&self.graph.bytes, image, |id, edge| {
            let is_known = self.graph.definition(edge.symbol) != Definition::External;
            if !is_known {
                left.get_or_insert((id, *edge));
            }
            is_known
        })?;
        Ok(left)
    }

    fn apply_thread_locals(
        &self,
        object: &[u8],
        image: &mut [u8],
        mut is_known: impl FnMut(BlockId, &Edge) -> bool,
    ) -> Result<(), Error> {
        let blocks = self.graph.special().filter(|(_, block)| block.role == Role::TlsIndex && !block.is_dropped);
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
                if is_known(id, edge)
                    && let Outcome::OutOfReach(value) = self.edge(id, block, edge, ExecutorAddr::NULL, bytes)?
                {
                    return Err(self.out_of_range(id, edge, value));
                }
            }
        }
        Ok(())
    }

    /// As [`apply_segment`](Self::apply_segment), for what is in no segment.
    fn apply_apart(&self, object: &[u8], memory: &mut dyn InFlight, redirects: &mut Redirects) -> Result<(), Error> {
        for (id, block) in self.graph.blocks() {
            let Some(number) = block.apart else { continue };
            let Some(content) = self.graph.content_in(object, block) else { continue };
            let bytes = memory.apart(number as usize);
            bytes.copy_from_slice(content);
            self.block(id, block, self.places.apart[number as usize], bytes, redirects)?;
        }
        Ok(())
    }

    fn block(
        &self,
        id: BlockId,
        block: &Block,
        address: ExecutorAddr,
        bytes: &mut [u8],
        redirects: &mut Redirects,
    ) -> Result<(), Error> {
        let mut left = &self.graph.edges[block.edges.start as usize..block.edges.end as usize];
        // No place in the block, then, is anywhere else.
        let is_near = is_near_zero(address.value().saturating_add(u64::from(u32::MAX)));
        let mut far = Vec::new();
        loop {
            if is_near {
                left = simple_edges(left, self.targets.all(), address.value(), bytes);
            }
            let Some((edge, rest)) = left.split_first() else { break };
            left = rest;
            if !(is_near && self.branch_by_stub(edge, address, bytes)) {
                self.unusual_edge(id, block, edge, address, bytes, &mut far)?;
            }
        }
        // They may share instructions and tables with what was fixed up, and change those.
        if far.is_empty() { Ok(()) } else { self.redirect(id, bytes, far, redirects) }
    }

    #[cold]
    fn redirect(&self, id: BlockId, bytes: &mut [u8], far: Vec<Edge>, redirects: &mut Redirects) -> Result<(), Error> {
        redirects.block(self, id, bytes, far)
    }

    #[inline(never)]
    fn unusual_edge(
        &self,
        id: BlockId,
        block: &Block,
        edge: &Edge,
        address: ExecutorAddr,
        bytes: &mut [u8],
        far: &mut Vec<Edge>,
    ) -> Result<(), Error> {
        if let Outcome::OutOfReach(value) = self.edge(id, block, edge, address, bytes)? {
            if !self.tables.far.covers(self.graph, id, edge) {
                return Err(self.out_of_range(id, edge, value));
            }
            far.push(*edge);
        }
        Ok(())
    }

    /// A branch to what is out of reach goes to the stub that stands for it, which is in reach; in a block near zero, too.
    fn branch_by_stub(&self, edge: &Edge, block_address: ExecutorAddr, bytes: &mut [u8]) -> bool {
        let (EdgeKind::Branch32, Some(stubs)) = (edge.kind, self.stubs) else { return false };
        let (Some(_), Some(offset)) = (self.targets.plain(edge.symbol), self.tables.stub(edge.symbol)) else {
            return false;
        };
        let (stub, place) = (stubs.offset(offset), block_address.offset(edge.offset.into()));
        let distance = stub.value().wrapping_add_signed(edge.addend).wrapping_sub(place.value()) as i64;
        is_near_zero(stub.value())
            && i32::try_from(distance).is_ok_and(|value| put(bytes, edge.offset as usize, value.to_le_bytes()))
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
        let (start, end) = (edge.offset as usize, edge.offset as usize + edge.kind.width());
        let field = &mut bytes[start..end];
        if self.graph.definition(edge.symbol) == Definition::Nowhere {
            self.refer_nowhere(id, block, edge, field)?;
            return Ok(Outcome::Applied);
        }
        let target = self.address(edge.symbol);
        self.check_kind(id, edge)?;
        let to_target = wide(target) + i128::from(edge.addend) - wide(place);
        if let Ok(displacement) = i64::try_from(to_target)
            && edge.addend == -4
            && let Some((before, code)) = instruction_at(bytes, start)
            && x86_64::relax_got_load(edge.kind, before, code, displacement)
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
        bytes[start..end].copy_from_slice(&value.to_le_bytes()[..edge.kind.width()]);
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
            Definition::Block(block, _) => self.graph.blocks[block.index()].role == Role::TlsIndex,
            Definition::External => self.found(edge.symbol).is_some_and(|found| found.thread_local.is_some()),
            Definition::Absolute(_) | Definition::Nowhere => false,
        };
        let asks_for_block = edge.kind == EdgeKind::ThreadLocalBlock32;
        if is_variable == edge.kind.is_thread_local() && !asks_for_block
            || asks_for_block && self.places.thread_locals.is_some()
        {
            return Ok(());
        }
        Err(thread_locals::wrong_kind(self.graph, id, edge, is_variable))
    }

    /// Where a thread-local variable is.
    fn variable(&self, symbol: SymbolIndex) -> Variable {
        let own = self.places.thread_locals.as_ref();
        match self.graph.definition(symbol) {
            Definition::Block(block, offset) => {
                // Its offset is known before its module is: the image, which may hold it, is made first.
                let offset = self.graph.blocks[block.index()].offset + offset;
                let at = TlsIndex { module: own.map_or(0, |own| own.module), offset: offset as u32 };
                let start = own.and_then(|own| own.static_offset);
                Variable { at, static_offset: start.map(|start| start + offset as i64) }
            }
            _ => {
                let found = self.found(symbol).copied().unwrap_or_default();
                let at = TlsIndex::from_address(found.address);
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
        thread_locals::not_static(self.graph, id, edge)
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
    fn fill_thread_locals(&self, memory: &mut dyn InFlight) -> Result<(), Error> {
        let mut entries = self.tables.thread_locals().peekable();
        let (Some(block), Some(_)) = (self.tables.got(), entries.peek()) else { return Ok(()) };
        let got = self.graph.block_address(block, self.places);
        let bytes = &mut memory.working(SegmentKind::ReadOnly)[self.graph.blocks[block.index()].offset as usize..];
        for (symbol, entry, offset) in entries {
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
                ThreadLocalEntry::Block => {
                    put(0, self.places.thread_locals.map_or(0, |own| own.module.into()));
                    put(1, 0);
                }
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

    /// GOT slots hold addresses.
    fn fill_slots(&self, segment: &mut [u8]) {
        let Some(got) = self.tables.got() else { return };
        let start = self.graph.blocks[got.index()].offset as usize;
        let (slots, _) = segment[start..].as_chunks_mut::<SLOT>();
        for (symbol, slot) in self.tables.slots.iter().zip(slots) {
            *slot = self.address(*symbol).value().to_le_bytes();
        }
    }

    /// Stubs jump through their slot.
    fn fill_stubs(&self, segment: &mut [u8]) {
        let (Some(block), Some(got), Some(address)) = (self.tables.stubs(), self.tables.got(), self.stubs) else {
            return;
        };
        let got = self.graph.block_address(got, self.places);
        let mut field = address.offset(STUB_FIELD.into());
        let start = self.graph.blocks[block.index()].offset as usize;
        let (stubs, _) = segment[start..].as_chunks_mut::<{ STUB.len() }>();
        for (symbol, stub) in self.tables.stub_targets.iter().zip(stubs) {
            let slot = got.offset(self.tables.slot(*symbol).unwrap_or(0));
            // One window: any of its addresses reaches any other.
            let displacement = slot.distance_from(field.offset(4)) as i32;
            *stub = STUB;
            stub[STUB_FIELD as usize..STUB_FIELD as usize + 4].copy_from_slice(&displacement.to_le_bytes());
            field = field.offset(STUB.len() as u64);
        }
    }

    pub(crate) fn address(&self, symbol: SymbolIndex) -> ExecutorAddr {
        self.targets.address(symbol)
    }

    /// What was found for an external.
    pub(super) fn found(&self, symbol: SymbolIndex) -> Option<&FoundExternal> {
        self.found.get(self.targets.external(symbol)?)
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

/// Nearly all edges are of a few kinds, refer to something plain, and fit: those are done here, with the same outcome as in
/// [`Fixup::edge`]; of a block that starts [near zero](is_near_zero), and ends there. What is left, from the first on that is
/// otherwise: of that one nothing is written.
#[inline(never)] // a loop that has the registers to itself
fn simple_edges<'e>(mut edges: &'e [Edge], targets: &[Target], start: u64, bytes: &mut [u8]) -> &'e [Edge] {
    while let Some((edge, rest)) = edges.split_first() {
        let Some(target) = targets.get(edge.symbol.index()).and_then(Target::plain) else { break };
        if !simple_edge(edge, target, start, bytes) {
            break;
        }
        edges = rest;
    }
    edges
}

/// A field of four bytes with the two bytes ahead of it, and the byte ahead of those.
#[inline(always)]
fn instruction_at(bytes: &mut [u8], field: usize) -> Option<(Option<u8>, &mut [u8; 6])> {
    let (ahead, code) = bytes.split_at_mut_checked(field.checked_sub(2)?)?;
    Some((ahead.last().copied(), code.first_chunk_mut()?))
}

#[inline(always)]
fn simple_edge(edge: &Edge, target: u64, start: u64, bytes: &mut [u8]) -> bool {
    let (value, offset) = (target.wrapping_add_signed(edge.addend), edge.offset as usize);
    // Right whenever it fits into four bytes: see `is_near_zero`.
    let distance = value.wrapping_sub(start).wrapping_sub(u64::from(edge.offset)) as i64;
    if KindSet::DISTANCE.contains(edge.kind) {
        let short = distance as i32;
        i64::from(short) == distance && put(bytes, offset, short.to_le_bytes())
    } else if edge.kind == EdgeKind::Pointer64 {
        put(bytes, offset, value.to_le_bytes())
    } else if x86_64::is_relaxable(edge.kind) && edge.addend == -4 {
        let code = instruction_at(bytes, offset);
        code.is_some_and(|(before, code)| x86_64::relax_got_load(edge.kind, before, code, distance))
    } else {
        false
    }
}

/// Stores a field; false if it does not lie within the block.
#[inline]
fn put<const WIDTH: usize>(bytes: &mut [u8], offset: usize, value: [u8; WIDTH]) -> bool {
    let field = bytes.get_mut(offset..offset + WIDTH);
    field.map(|field| field.copy_from_slice(&value)).is_some()
}

/// What became of an edge.
enum Outcome {
    Applied,
    /// Its value, which does not fit; nothing was written.
    OutOfReach(i128),
}

/// A thread-local variable.
struct Variable {
    at: TlsIndex,
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        /// Addresses and addends that miss each other by about as much as four bytes hold, and any others.
        #[test]
        fn a_distance_is_written_the_short_way_when_it_fits_and_only_then(
            (target, start) in (0..1u64 << 62, 0..1u64 << 61),
            addend in any::<Option<i64>>(),
            (miss, offset) in (-5_000_000_000..5_000_000_000i64, 0..64u32),
        ) {
            let addend = addend.unwrap_or_else(|| (start as i64).wrapping_sub(target as i64).wrapping_add(miss));
            let exact = i128::from(target) + i128::from(addend) - i128::from(start) - i128::from(offset);
            let edge = Edge { offset, kind: EdgeKind::Delta32, symbol: SymbolIndex(0), addend };
            let (mut bytes, mut expected) = ([0xaa; 68], [0xaa; 68]);
            let fits = i32::try_from(exact).ok();
            if let Some(value) = fits {
                expected[offset as usize..offset as usize + 4].copy_from_slice(&value.to_le_bytes());
            }
            prop_assert_eq!(simple_edge(&edge, target, start, &mut bytes), fits.is_some());
            prop_assert_eq!(bytes, expected);
        }
    }
}
