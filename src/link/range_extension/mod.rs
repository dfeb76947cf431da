//! Data that is farther away than the code that names it was compiled to reach: a shared library's, from a low window.
//!
//! Code of `-fno-pic` and `-fPIE` names other objects' variables in 32 bits. A system's linker has such a variable copied into
//! the program, and the library bound to the copy; here the library was bound long before. So nothing is copied and nothing
//! of the library is touched: the *reference* is made long enough for the variable where it is.
//!
//! ```text
//!   code:              mov stdout(%rip), %rdi      →   jmp thunk; traps          thunk: movabs $stdout, %rdi
//!                                                                                       mov (%rdi), %rdi
//!                                                                                       jmp behind
//!   exception table:   udata4  typeinfo            →   indirect pcrel sdata4      slot:  .quad typeinfo
//! ```
//!
//! | when | what | where |
//! |---|---|---|
//! | tables | room for each reference that might be too short: to an external that may be a library's, in code or in an exception table | [`RangeExtension::reserve`] |
//! | fix up | a reference that fits is applied as ever, a function out of reach has its stub; what is left is redirected | [`Redirects`] |
//! | | the instruction is found (`sites.rs`) and moved (`thunk.rs`) | code |
//! | | all tables of the section change their encoding (`type_tables.rs`), since one encoding holds for all entries | exception tables |
//! | removal | thunks and slots are blocks of the object, and go with it | |
//!
//! An object that has no such reference gets no room. What cannot be redirected exactly is refused by name: other data that
//! holds addresses in 32 bits, and instructions that `thunk.rs` does not know how to move.
//!
//! Thunks have no unwind information: no exception is thrown there, as none is thrown by the instructions that are moved,
//! but a profiler or a signal handler that walks the stack from within one does not get past it, nor does an exception for a
//! fault (`-fnon-call-exceptions`). Jumps into the middle of an instruction, which no compiler makes, are not looked for.

mod sites;
mod thunk;
mod type_tables;

use crate::base::{ExecutorAddr, RecycledVec, SegmentKind};
use crate::error::{Error, LinkFault};
use crate::link::fixup::Fixup;
use crate::link::graph::{Block, BlockId, Definition, Edge, LinkGraph, Role, Text};
use crate::link::x86_64::{EdgeKind, KindSet};
use crate::memory::InFlight;
use sites::{Field, Site, Sweep};
use thunk::{Far, ROOM};

/// Room for what may be too far away.
#[derive(Default)]
pub(crate) struct RangeExtension {
    thunks: Option<BlockId>,
    slots: Option<BlockId>,
    /// Exception tables that have slots, with their first; ascending.
    tables: Vec<(BlockId, u64)>,
}

impl RangeExtension {
    /// Makes room for every reference that might be too short, if [any may be](crate::link::survey::Survey::may_be_far).
    #[cold]
    pub(crate) fn reserve(graph: &mut LinkGraph) -> RangeExtension {
        let mut far = RangeExtension::default();
        let (mut thunk_count, mut slot_count) = (0, 0);
        for (id, block) in graph.blocks().filter(|(_, block)| !block.is_dropped && !block.is_zero_fill()) {
            let references = graph.edges(id).iter().filter(|edge| may_be_far(graph, edge)).count();
            if block.pool == SegmentKind::Code {
                thunk_count += references;
            } else if references > 0 && is_exception_table(graph, id, block) {
                far.tables.push((id, slot_count));
                // One encoding for all entries: those in reach need slots as well.
                slot_count += graph.edges(id).iter().filter(|edge| edge.kind == EdgeKind::Pointer32).count() as u64;
            }
        }
        if thunk_count > 0 {
            far.thunks =
                Some(add(graph, ".far_code", SegmentKind::Code, RecycledVec::repeat(TRAP, thunk_count * ROOM), 16));
        }
        if slot_count > 0 {
            far.slots = Some(add(
                graph,
                ".far_types",
                SegmentKind::ReadOnly,
                RecycledVec::repeat(0, slot_count as usize * 8),
                8,
            ));
        }
        far
    }

    /// The block of thunks, if there is one.
    pub(crate) fn thunks(&self) -> Option<BlockId> {
        self.thunks
    }

    /// The slots of exception tables, if there are any.
    pub(crate) fn slots(&self) -> Option<BlockId> {
        self.slots
    }

    /// Whether there is room to redirect a reference.
    pub(crate) fn covers(&self, graph: &LinkGraph, id: BlockId, edge: &Edge) -> bool {
        let is_code = graph.blocks[id.index()].pool == SegmentKind::Code && self.thunks.is_some();
        may_be_far(graph, edge) && (is_code || edge.kind == EdgeKind::Pointer32 && self.first_slot(id).is_some())
    }

    fn first_slot(&self, id: BlockId) -> Option<u64> {
        let at = self.tables.binary_search_by_key(&id, |(table, _)| *table).ok()?;
        Some(self.tables[at].1)
    }
}

/// What was redirected in one link.
pub(crate) struct Redirects {
    thunks: Vec<u8>,
    /// Offset in the block of slots, and what the slot holds.
    slots: Vec<(u64, u64)>,
    /// Where instructions and exception tables begin: found when somebody asks.
    starts: Option<sites::Starts>,
}

impl Redirects {
    pub(crate) fn new() -> Redirects {
        Redirects { thunks: Vec::new(), slots: Vec::new(), starts: None }
    }

    /// Redirects `far`, whose symbols are out of reach. Everything else in the block is fixed up.
    pub(crate) fn block(
        &mut self,
        fixup: &Fixup<'_>,
        id: BlockId,
        bytes: &mut [u8],
        mut far: Vec<Edge>,
    ) -> Result<(), Error> {
        far.sort_by_key(|edge| edge.offset);
        if fixup.graph.blocks[id.index()].pool == SegmentKind::Code {
            self.code(fixup, id, bytes, &far)
        } else {
            self.exception_tables(fixup, id, bytes, &far)
        }
    }

    fn code(&mut self, fixup: &Fixup<'_>, id: BlockId, bytes: &mut [u8], far: &[Edge]) -> Result<(), Error> {
        let graph = fixup.graph;
        let starts = self.starts.get_or_insert_with(|| sites::Starts::of(graph));
        let content = graph.content(&graph.blocks[id.index()]).unwrap_or(&[]);
        let mut sweep = Sweep::new(content, starts.in_block(id), graph.edges(id));
        let mut sites: Vec<(Site, &[Edge])> = Vec::new();
        let mut left = far;
        while let Some(first) = left.first() {
            let site = sweep.find(first.offset).map_err(|problem| refusal(fixup, id, first, &[], &problem))?;
            let count = left.iter().take_while(|edge| (edge.offset as usize) < site.end).count();
            let (here, rest) = left.split_at(count);
            sites.push((site, here));
            left = rest;
        }
        for (site, here) in sites {
            let shown = &content[site.start..site.end];
            self.instruction(fixup, id, bytes, &site, here)
                .map_err(|problem| refusal(fixup, id, &here[0], shown, &problem))?;
        }
        Ok(())
    }

    /// Moves one instruction, all of whose far operands are `far`.
    fn instruction(
        &mut self,
        fixup: &Fixup<'_>,
        id: BlockId,
        bytes: &mut [u8],
        site: &Site,
        far: &[Edge],
    ) -> Result<(), String> {
        let address = fixup.graph.block_address(id, fixup.places);
        let base = fixup.tables.far.thunks.map(|thunks| fixup.graph.block_address(thunks, fixup.places));
        let thunk = base.ok_or("there is no room")?.offset(self.thunks.len() as u64);
        let (start, end) = (address.offset(site.start as u64), address.offset(site.end as u64));
        let mut operands = Far::default();
        for edge in far {
            let value = fixup.address(edge.symbol).offset(edge.addend as u64);
            // What a displacement is relative to is the end of the instruction.
            let behind_field = end.distance_from(address.offset(edge.offset.into())) as u64;
            let (slot, value) = match (site.field(edge.offset), edge.kind) {
                (Some(Field::Displacement { is_relative: true }), EdgeKind::Delta32) => {
                    (&mut operands.displacement, value.offset(behind_field))
                }
                (Some(Field::Displacement { is_relative: false }), EdgeKind::Pointer32 | EdgeKind::Pointer32Signed) => {
                    (&mut operands.displacement, value)
                }
                (Some(Field::Immediate), EdgeKind::Pointer32 | EdgeKind::Pointer32Signed) => {
                    (&mut operands.immediate, value)
                }
                _ => return Err("it is no operand of such an instruction".to_string()),
            };
            if slot.replace(value.value()).is_some() {
                return Err("one operand has two relocations".to_string());
            }
        }
        let moved = thunk::build(&bytes[site.start..site.end], start.value(), &operands, thunk.value())?;
        let jump = i32::try_from(thunk.distance_from(start.offset(JUMP))).map_err(|_| "its thunk is out of reach")?;
        let old = &mut bytes[site.start..site.end];
        old.fill(moved.filler);
        old[0] = moved.opcode;
        old[1..JUMP as usize].copy_from_slice(&jump.to_le_bytes());
        self.thunks.extend(moved.code);
        Ok(())
    }

    fn exception_tables(
        &mut self,
        fixup: &Fixup<'_>,
        id: BlockId,
        bytes: &mut [u8],
        far: &[Edge],
    ) -> Result<(), Error> {
        let (graph, data) = (fixup.graph, &fixup.tables.far);
        let no_table = |edge: &Edge| refusal(fixup, id, edge, &[], "it is in no table of types of a known encoding");
        let (Some(first), Some(block)) = (data.first_slot(id), data.slots) else {
            return far.first().map_or(Ok(()), |edge| Err(no_table(edge)));
        };
        let starts = self.starts.get_or_insert_with(|| sites::Starts::of(graph));
        let addresses = || graph.edges(id).iter().filter(|edge| edge.kind == EdgeKind::Pointer32);
        let mut fields: Vec<usize> = addresses().map(|edge| edge.offset as usize).collect();
        fields.sort_unstable();
        let mut tables = type_tables::change_encoding(bytes, starts.in_block(id), &fields);
        tables.sort_by_key(|table| table.end);
        let is_in_table = |edge: &Edge| {
            let at = edge.offset as usize;
            let next = tables.partition_point(|table| table.end <= at);
            tables.get(next).is_some_and(|table| table.contains(&at))
        };
        if let Some(edge) = far.iter().find(|edge| !is_in_table(edge)) {
            return Err(no_table(edge));
        }
        let (slots, table) = (graph.block_address(block, fixup.places), graph.block_address(id, fixup.places));
        for (number, edge) in (first..).zip(addresses()).filter(|(_, edge)| is_in_table(edge)) {
            let target = fixup.address(edge.symbol).offset(edge.addend as u64);
            let distance = slots.offset(number * 8).distance_from(table.offset(edge.offset.into()));
            let distance = i32::try_from(distance).map_err(|_| no_table(edge))?;
            let at = edge.offset as usize;
            // A null type catches everything, and is null in any encoding; what was dropped is null as well.
            let is_null = target == ExecutorAddr::NULL || graph.definition(edge.symbol) == Definition::Nowhere;
            let field = if is_null { 0 } else { distance };
            bytes[at..at + 4].copy_from_slice(&field.to_le_bytes());
            self.slots.push((number * 8, target.value()));
        }
        Ok(())
    }

    /// Writes thunks and slots to their places.
    pub(crate) fn write(&self, fixup: &Fixup<'_>, memory: &mut dyn InFlight) {
        if let (Some(thunks), false) = (fixup.tables.far.thunks, self.thunks.is_empty()) {
            let start = fixup.graph.blocks[thunks.index()].offset as usize;
            memory.working(SegmentKind::Code)[start..start + self.thunks.len()].copy_from_slice(&self.thunks);
        }
        if let (Some(slots), false) = (fixup.tables.far.slots, self.slots.is_empty()) {
            let start = fixup.graph.blocks[slots.index()].offset as usize;
            let segment = memory.working(SegmentKind::ReadOnly);
            for (offset, word) in &self.slots {
                let at = start + *offset as usize;
                segment[at..at + 8].copy_from_slice(&word.to_le_bytes());
            }
        }
    }
}

/// Whether a reference might be too short for what it turns out to name.
fn may_be_far(graph: &LinkGraph, edge: &Edge) -> bool {
    let symbol = &graph.symbols[edge.symbol.index()];
    KindSet::NEAR.contains(edge.kind) && symbol.definition == Definition::External && !symbol.is_hidden
}

fn is_exception_table(graph: &LinkGraph, id: BlockId, block: &Block) -> bool {
    block.pool == SegmentKind::ReadOnly && block.role == Role::Plain && is_exception_table_name(graph.block_name(id))
}

/// Whether a section holds exception tables.
pub(crate) fn is_exception_table_name(name: &str) -> bool {
    name.starts_with(".gcc_except_table")
}

fn add(graph: &mut LinkGraph, name: &'static str, pool: SegmentKind, content: RecycledVec<u8>, align: u64) -> BlockId {
    let size = content.len() as u64;
    let content = graph.made.content(content);
    graph.push_block(Text::Fixed(name), pool, content, size, align)
}

fn refusal(fixup: &Fixup<'_>, id: BlockId, edge: &Edge, instruction: &[u8], problem: &str) -> Error {
    let shown: String = instruction.iter().map(|byte| format!(" {byte:02x}")).collect();
    let of_instruction = if shown.is_empty() { String::new() } else { format!(" in the instruction{shown}") };
    fixup.graph.fault(LinkFault::Unsupported {
        what: format!(
            "{}{of_instruction} to data at {}, which is out of reach ({problem}; compile with -fPIC)",
            edge.kind.name(),
            fixup.address(edge.symbol)
        ),
        section: fixup.graph.block_name(id).to_string(),
        offset: edge.offset.into(),
        symbol: fixup.graph.symbol_name(edge.symbol).to_string(),
    })
}

/// Bytes of a near jump, and of a near call. No instruction with a field of four bytes is shorter.
const JUMP: u64 = 5;
const TRAP: u8 = 0xcc;
