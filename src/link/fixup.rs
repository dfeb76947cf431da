//! Copies contents to their place and applies the edges.
//!
//! Every write is into the block's own bytes, which were checked to hold it when the object was read. Branches go
//! straight where the displacement allows and through their stub where not; GOT loads likewise are rewritten or left.

use crate::base::{ExecutorAddr, Pool};
use crate::error::{Error, LinkFault};
use crate::link::graph::{Block, BlockId, Definition, Edge, LinkGraph, Places, Role, SymbolIndex};
use crate::link::tables::{SLOT, Tables};
use crate::link::x86_64::{self, EdgeKind, STUB, STUB_FIELD};
use crate::memory::InFlight;

/// A graph whose every address is known.
pub(crate) struct Fixup<'a> {
    pub(crate) graph: &'a LinkGraph,
    pub(crate) tables: &'a Tables,
    pub(crate) places: &'a Places,
    /// By symbol: the address of those that are external.
    pub(crate) externals: &'a [ExecutorAddr],
}

impl Fixup<'_> {
    /// Writes everything into `memory`.
    pub(crate) fn apply(&self, memory: &mut dyn InFlight) -> Result<(), Error> {
        // Held apart from the graph's own handle, so that asking a holder for its bytes is done once per link.
        let object = self.graph.bytes.clone();
        let object: &[u8] = &object;
        for pool in Pool::ALL {
            let segment = memory.working(pool);
            let mut written = 0;
            let mut blocks: Vec<(BlockId, &Block)> =
                self.graph.blocks().filter(|(_, block)| block.pool == pool && is_in_segment(block)).collect();
            blocks.sort_by_key(|(_, block)| block.offset);
            for (id, block) in blocks {
                let Some(content) = self.graph.content_in(object, block) else { continue };
                let (start, end) = (block.offset as usize, block.offset as usize + content.len());
                // Gaps hold whatever was there before; code gets traps, so that nothing runs into it.
                segment[written..start].fill(if pool == Pool::Code { TRAP } else { 0 });
                let bytes = &mut segment[start..end];
                bytes.copy_from_slice(content);
                self.block(id, block, bytes)?;
                written = end;
            }
        }
        self.apply_apart(object, memory)?;
        self.fill_tables(memory)
    }

    /// As above, for what is in no segment.
    fn apply_apart(&self, object: &[u8], memory: &mut dyn InFlight) -> Result<(), Error> {
        for (id, block) in self.graph.blocks() {
            let (Some(number), Some(content)) = (block.apart, self.graph.content_in(object, block)) else { continue };
            let bytes = memory.apart(number as usize);
            bytes.copy_from_slice(content);
            self.block(id, block, bytes)?;
        }
        Ok(())
    }

    fn block(&self, id: BlockId, block: &Block, bytes: &mut [u8]) -> Result<(), Error> {
        let address = self.graph.block_address(id, self.places);
        for edge in self.graph.edges(id) {
            self.edge(id, block, edge, address, bytes)?;
        }
        Ok(())
    }

    fn edge(
        &self,
        id: BlockId,
        block: &Block,
        edge: &Edge,
        block_address: ExecutorAddr,
        bytes: &mut [u8],
    ) -> Result<(), Error> {
        let place = block_address.offset(edge.offset.into());
        let (before, rest) = bytes.split_at_mut(edge.offset as usize);
        let field = &mut rest[..edge.kind.width()];
        if self.graph.definition(edge.symbol) == Definition::Nowhere {
            return self.refer_nowhere(id, block, edge, field);
        }
        let target = self.address(edge.symbol);
        let to_target = wide(target) + i128::from(edge.addend) - wide(place);
        if let (Ok(displacement), Ok(word)) = (i64::try_from(to_target), <&mut [u8; 4]>::try_from(&mut *field))
            && edge.addend == -4
            && x86_64::relax_got_load(edge.kind, before, word, displacement)
        {
            return Ok(());
        }
        let value = self.value(edge, target, to_target, place);
        if let Some((min, max)) = edge.kind.range()
            && !(min..=max).contains(&value)
        {
            return Err(self.out_of_range(id, edge, target, value, min, max));
        }
        field.copy_from_slice(&value.to_le_bytes()[..edge.kind.width()]);
        Ok(())
    }

    fn value(&self, edge: &Edge, target: ExecutorAddr, to_target: i128, place: ExecutorAddr) -> i128 {
        use EdgeKind::*;
        let addend = i128::from(edge.addend);
        let got = || self.tables.got().map_or(0, |got| wide(self.graph.block_address(got, self.places)));
        // Tables were built from these very edges: a slot that an edge needs is there.
        let slot = || got() + i128::from(self.tables.slot(edge.symbol).unwrap_or(0));
        match edge.kind {
            Pointer64 => i128::from(target.value().wrapping_add_signed(edge.addend)),
            Pointer32 | Pointer32Signed | Pointer16 | Pointer8 => signed_low(target, edge.kind) + addend,
            Delta64 | Delta32 | Delta16 | Delta8 => to_target,
            Branch32 => self.branch(edge, to_target, place),
            GotLoad32 | GotLoad32Relaxable | GotLoad32RexRelaxable | GotLoad64 => slot() + addend - wide(place),
            GotSlot64 | GotSlot32 => slot() + addend - got(),
            GotOffset64 => wide(target) + addend - got(),
            GotBase32 | GotBase64 => got() + addend - wide(place),
            Size32 | Size64 => i128::from(self.graph.symbols[edge.symbol.0 as usize].size) + addend,
        }
    }

    /// To the target where it is in reach, to its stub where not.
    fn branch(&self, edge: &Edge, to_target: i128, place: ExecutorAddr) -> i128 {
        if i32::try_from(to_target).is_ok() {
            return to_target;
        }
        match (self.tables.stubs(), self.tables.stub(edge.symbol)) {
            (Some(stubs), Some(offset)) => {
                let stub = self.graph.block_address(stubs, self.places).offset(offset);
                wide(stub) + i128::from(edge.addend) - wide(place)
            }
            _ => to_target,
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

    /// GOT slots hold addresses; stubs jump through their slot.
    fn fill_tables(&self, memory: &mut dyn InFlight) -> Result<(), Error> {
        let Some(got) = self.tables.got() else { return Ok(()) };
        let start = self.graph.blocks[got.0 as usize].offset as usize;
        let segment = memory.working(Pool::ReadOnly);
        for (symbol, slot) in self.tables.slots.iter().zip(segment[start..].chunks_exact_mut(SLOT)) {
            slot.copy_from_slice(&self.address(*symbol).value().to_le_bytes());
        }
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
        match self.graph.definition(symbol) {
            Definition::Block(block, offset) => self.graph.block_address(block, self.places).offset(offset),
            Definition::Absolute(value) => ExecutorAddr::new(value),
            Definition::External => self.externals.get(symbol.0 as usize).copied().unwrap_or_default(),
            Definition::Nowhere => ExecutorAddr::NULL,
        }
    }

    fn out_of_range(&self, id: BlockId, edge: &Edge, target: ExecutorAddr, value: i128, min: i128, max: i128) -> Error {
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
            target: target.value(),
            value,
            min,
            max,
            advice,
        })
    }
}

fn is_in_segment(block: &Block) -> bool {
    !block.is_dropped && !block.is_apart()
}

fn wide(address: ExecutorAddr) -> i128 {
    address.value().into()
}

/// A sign-extended field means addresses of the top half as negative numbers; the others mean them as they are.
fn signed_low(target: ExecutorAddr, kind: EdgeKind) -> i128 {
    if kind == EdgeKind::Pointer32Signed { i128::from(target.value() as i64) } else { wide(target) }
}

const TRAP: u8 = 0xcc;
