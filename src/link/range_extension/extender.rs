//! [`RangeExtender`]: rewrites the far references of one link to thunks and slots.
//!
//! Fix-up applies all other edges of a block first, then hands over the far references: those whose target is out of
//! reach, and those to thread-local variables whose value differs from thread to thread. The order matters, because a far reference may share its instruction or its exception table with other edges.
//! The extender changes the block at once. It collects the contents of thunks and slots and writes them when all blocks
//! are done.

use super::decode_starts::DecodeStarts;
use super::type_tables;
use crate::arch::{EdgeKind, FarCode, FarReference, FarValue};
use crate::base::{ExecutorAddr, SegmentKind, sort_by_number};
use crate::error::{Error, LinkFault};
use crate::link::graph::{BlockId, Definition, Edge};
use crate::link::resolved_link::ResolvedLink;
use crate::link::thread_locals;
use crate::memory::InFlight;

/// The thunks and slots that far references of one link use so far.
pub(crate) struct RangeExtender {
    /// The code of the thunks, one after the other.
    thunks: Vec<u8>,
    /// The code of the thunks that compute distances of thread-local variables.
    distance_thunks: Vec<u8>,
    /// Offset in the block of slots, and the address that the slot holds.
    slots: Vec<(u64, u64)>,
    /// Where instructions and exception tables begin; computed at the first far reference.
    starts: Option<DecodeStarts>,
}

impl RangeExtender {
    pub(crate) fn new() -> RangeExtender {
        RangeExtender { thunks: Vec::new(), distance_thunks: Vec::new(), slots: Vec::new(), starts: None }
    }

    /// Rewrites the far references `far` of a block, whose bytes are `bytes`. All other edges of the block are applied.
    ///
    /// # Errors
    /// [`LinkFault::Unsupported`] for a reference that cannot be extended exactly.
    pub(crate) fn extend_block(
        &mut self,
        link: &ResolvedLink<'_>,
        id: BlockId,
        bytes: &mut [u8],
        mut far: Vec<Edge>,
    ) -> Result<(), Error> {
        sort_by_number(&mut far, |edge| edge.offset.into());
        if link.graph.blocks[id.index()].pool == SegmentKind::Code {
            self.extend_code(link, id, bytes, &far)
        } else {
            self.extend_exception_tables(link, id, bytes, &far)
        }
    }

    fn extend_code(
        &mut self,
        link: &ResolvedLink<'_>,
        id: BlockId,
        bytes: &mut [u8],
        far: &[Edge],
    ) -> Result<(), Error> {
        let (graph, addresses) = (link.graph, link.addresses);
        let content = graph.content(&graph.blocks[id.index()]).unwrap_or(&[]);
        let starts = self.starts.get_or_insert_with(|| DecodeStarts::of(graph)).of_block(id);
        let starts: Vec<u64> = starts.iter().map(|(_, start)| *start).collect();
        let mut fields: Vec<u32> = graph.edges(id).iter().map(|edge| edge.offset).collect();
        sort_by_number(&mut fields, |field| u128::from(*field));
        let is_computed = |edge: &Edge| {
            link.thunks.is_some()
                && edge.kind.has_fixed_distance()
                && link.needs_thunk(id, edge).is_ok_and(|needs_thunk| needs_thunk)
        };
        let value_of = |edge: &Edge| match link.thunks {
            Some(thunks) if is_computed(edge) => Ok(thunks.distance(edge)),
            _ => link.far_address(id, edge).map(|address| FarValue::Address(address.value())),
        };
        let (distances, addresses_of): (Vec<Edge>, Vec<Edge>) = far.iter().partition(|edge| is_computed(edge));
        let thunks = link.tables.range_extension.thunks().map(|thunks| graph.block_address(thunks, addresses));
        let distance_thunks = link.thunks.map(|thunks| thunks.first_thunk());
        let RangeExtender { thunks: code, distance_thunks: distance_code, .. } = self;
        for (far, first, thunks) in [(addresses_of, thunks, code), (distances, distance_thunks, distance_code)] {
            let reference =
                |edge: &Edge| Ok(FarReference { offset: edge.offset, kind: edge.kind, value: value_of(edge)? });
            let references = far.iter().map(reference).collect::<Result<Vec<FarReference>, Error>>()?;
            let code = FarCode {
                content,
                address: graph.block_address(id, addresses).value(),
                starts: &starts,
                fields: &fields,
                references: &references,
                thunks: first.map(ExecutorAddr::value),
            };
            graph.arch.extend_code(&code, bytes, thunks).map_err(|fault| {
                let (edge, instruction) = (&far[fault.reference], content.get(fault.instruction).unwrap_or(&[]));
                match is_computed(edge) {
                    true => thread_locals::not_computed(graph, id, edge, instruction, &fault.problem),
                    false => refusal(link, id, edge, instruction, &fault.problem),
                }
            })?;
        }
        Ok(())
    }

    fn extend_exception_tables(
        &mut self,
        link: &ResolvedLink<'_>,
        id: BlockId,
        bytes: &mut [u8],
        far: &[Edge],
    ) -> Result<(), Error> {
        let (graph, reserved) = (link.graph, &link.tables.range_extension);
        let no_table = |edge: &Edge| refusal(link, id, edge, &[], "it is in no type table of a known encoding");
        let (Some(first), Some(block)) = (reserved.first_slot(id), reserved.slots()) else {
            return far.first().map_or(Ok(()), |edge| Err(no_table(edge)));
        };
        let starts = self.starts.get_or_insert_with(|| DecodeStarts::of(graph));
        let addresses = || graph.edges(id).iter().filter(|edge| edge.kind == EdgeKind::Pointer32);
        let mut fields: Vec<usize> = addresses().map(|edge| edge.offset as usize).collect();
        sort_by_number(&mut fields, |field| *field as u128);
        let mut tables = type_tables::change_encoding(bytes, starts.of_block(id), &fields);
        sort_by_number(&mut tables, |table| table.end as u128);
        let is_in_table = |edge: &Edge| {
            let at = edge.offset as usize;
            let next = tables.partition_point(|table| table.end <= at);
            tables.get(next).is_some_and(|table| table.contains(&at))
        };
        if let Some(edge) = far.iter().find(|edge| !is_in_table(edge)) {
            return Err(no_table(edge));
        }
        let (slots, table) = (graph.block_address(block, link.addresses), graph.block_address(id, link.addresses));
        for (number, edge) in (first..).zip(addresses()).filter(|(_, edge)| is_in_table(edge)) {
            let target = link.address(edge.symbol).offset(edge.addend as u64);
            let distance = slots.offset(number * 8).distance_from(table.offset(edge.offset.into()));
            let distance = i32::try_from(distance).map_err(|_| no_table(edge))?;
            let at = edge.offset as usize;
            // A null type (`catch (...)`) is a zero field in any encoding. The type of a dropped section is null as
            // well.
            let is_null = target == ExecutorAddr::NULL || graph.definition(edge.symbol) == Definition::Nowhere;
            let field = if is_null { 0 } else { distance };
            bytes[at..at + 4].copy_from_slice(&field.to_le_bytes());
            self.slots.push((number * 8, target.value()));
        }
        Ok(())
    }

    /// Writes the thunks and slots to their blocks, and those for thread-local variables to the memory `thunks`.
    pub(crate) fn write(&self, link: &ResolvedLink<'_>, memory: &mut dyn InFlight, thunks: Option<&mut dyn InFlight>) {
        if let (Some(plan), Some(thunks)) = (link.thunks, thunks) {
            plan.write(link, &self.distance_thunks, thunks);
        }
        let reserved = &link.tables.range_extension;
        if let (Some(thunks), false) = (reserved.thunks(), self.thunks.is_empty()) {
            let start = link.graph.blocks[thunks.index()].offset as usize;
            memory.working(SegmentKind::Code)[start..start + self.thunks.len()].copy_from_slice(&self.thunks);
        }
        if let (Some(slots), false) = (reserved.slots(), self.slots.is_empty()) {
            let start = link.graph.blocks[slots.index()].offset as usize;
            let segment = memory.working(SegmentKind::ReadOnly);
            for (offset, address) in &self.slots {
                let at = start + *offset as usize;
                segment[at..at + 8].copy_from_slice(&address.to_le_bytes());
            }
        }
    }
}

/// The error for a reference that cannot be extended. `instruction` is the instruction's bytes, if they are known;
/// `problem` is a clause.
fn refusal(link: &ResolvedLink<'_>, id: BlockId, edge: &Edge, instruction: &[u8], problem: &str) -> Error {
    let hex: String = instruction.iter().map(|byte| format!(" {byte:02x}")).collect();
    let of_instruction = if hex.is_empty() { String::new() } else { format!(" in the instruction{hex}") };
    let is_function = link.found(edge.symbol).is_some_and(|found| found.is_callable);
    let target = if is_function { "the function" } else { "data" };
    link.graph.fault(LinkFault::Unsupported {
        what: format!(
            "{}{of_instruction} to {target} at {}, which is out of reach ({problem}; compile with -fPIC)",
            link.graph.relocation_name(edge.kind),
            link.address(edge.symbol)
        ),
        section: link.graph.block_name(id).to_string(),
        offset: edge.offset.into(),
        symbol: link.graph.symbol_name(edge.symbol).to_string(),
    })
}
