//! The link verifier: checks every byte of a finished link by a second, independent computation. Debug builds only.
//!
//! The linker reads an object once, into a graph, and works from the graph. The verifier parses the object again and
//! explains every byte of the working memory:
//!
//! ```text
//!   a section's bytes  =  the object's, except for the fields of its relocations;
//!   a field            =  the psABI's formula for the type of its relocation (4.4.1);
//!   a GOT slot         =  the symbol's address;   a stub = a jump through such a slot;
//!   everything else    =  a trap in code, zero elsewhere.
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `input_view.rs` | the input: an object (`object_view.rs`, parsed again) or what a generator handed over (`built_view.rs`) |
//! | `memory_snapshot.rs` | the bytes to check |
//! | `field_verifier.rs` | one section, as the architecture's formulas see it |
//! | `far_references.rs` | one field of an exception table that range extension rewrote |
//!
//! The formulas and the type of a difference are in `arch/verify/` and in the folder of the architecture.
//!
//! Where the linker had a choice, the verifier checks the address that the bytes *lead to*, not the choice: a load
//! through its slot or a rewritten one, a branch to its target or to a stub, a reference that was extended or not. It
//! reads no state of the linker but the graph, the addresses, the blocks of the tables, and which symbol owns which
//! entry of the GOT and the stubs.
//!
//! # Limits
//! - The verifier does not check objects: the linker has refused what is malformed.
//! - Relocations whose fields overlap have no defined value. The verifier counts them and does not check their bytes.
//! - Zero-fill is checked up to a limit ([`MemorySnapshot`]).
//!
//! Tests: `verify/tests.rs` changes bytes and graphs and expects a mismatch; every other test that links in a debug
//! build runs the verifier.

mod built_view;
mod far_references;
mod field_verifier;
mod input_view;
mod memory_snapshot;
mod object_view;
#[cfg(test)]
mod tests;

use crate::arch::ThreadLocalEntry;
use crate::arch::verify::{Mismatch, Relocation, SectionView};
use crate::base::{SegmentKind, pair, sort_by_number};
use crate::error::{Error, LinkFault};
use crate::link::graph::{Block, BlockId, Definition, Role};
use crate::link::resolved_link::ResolvedLink;
use crate::memory::InFlight;
use field_verifier::{FieldVerifier, definition};
use input_view::InputView;
use memory_snapshot::{MemorySnapshot, is_in_segment};

/// Checks that `memory`, and the image of the thread-local block if there is one, have the bytes that follow from the
/// object and the addresses. `thunks` is the memory of the thunks for thread-local variables.
///
/// # Errors
/// [`LinkFault::Verification`]: the first difference.
pub(crate) fn check(
    link: &ResolvedLink<'_>,
    memory: &mut dyn InFlight,
    image: Option<&[u8]>,
    thunks: Option<&mut dyn InFlight>,
) -> Result<(), Error> {
    let snapshot = MemorySnapshot::of(link, memory, thunks);
    let bytes = link.graph.bytes.clone();
    let verifier = Verifier::new(link, &bytes, &snapshot, true)?;
    // The graph agrees with the object: blocks, symbols, and the number of edges.
    verifier.object.check_symbols(link.graph).map_err(|mismatch| verifier.error("symbol table", mismatch))?;
    for (id, block) in link.graph.blocks().filter(|(_, block)| !block.is_dropped) {
        let in_block = |mismatch| verifier.error(link.graph.block_name(id), mismatch);
        verifier.check_relocations(id, block).map_err(in_block)?;
        if block.role != Role::ThreadLocal {
            verifier.check_block(id, block).map_err(in_block)?;
        }
    }
    // No bytes are left of dropped blocks or of an earlier use of the memory.
    for pool in SegmentKind::ALL {
        verifier.check_gaps(pool).map_err(|mismatch| verifier.error(pool.name(), mismatch))?;
    }
    image.map_or(Ok(()), |image| verifier.check_image(image))
}

/// Checks the image of the thread-local block before the externals are known. The fields of externals must have the
/// object's bytes.
///
/// # Errors
/// As [`check`].
pub(crate) fn check_own_image(link: &ResolvedLink<'_>, image: &[u8]) -> Result<(), Error> {
    check_image(link, image, false)
}

/// Checks the image of the thread-local block after the externals are known.
///
/// # Errors
/// As [`check`].
pub(crate) fn check_complete_image(link: &ResolvedLink<'_>, image: &[u8]) -> Result<(), Error> {
    check_image(link, image, true)
}

fn check_image(link: &ResolvedLink<'_>, image: &[u8], knows_externals: bool) -> Result<(), Error> {
    let (snapshot, bytes) = (MemorySnapshot::default(), link.graph.bytes.clone());
    Verifier::new(link, &bytes, &snapshot, knows_externals)?.check_image(image)
}

/// Checks one link.
struct Verifier<'a> {
    link: &'a ResolvedLink<'a>,
    snapshot: &'a MemorySnapshot,
    object: InputView<'a>,
    knows_externals: bool,
}

impl<'a> Verifier<'a> {
    fn new(
        link: &'a ResolvedLink<'a>,
        bytes: &'a [u8],
        snapshot: &'a MemorySnapshot,
        knows_externals: bool,
    ) -> Result<Verifier<'a>, Error> {
        let object = InputView::new(bytes, link.graph);
        let object = object.map_err(|mismatch| error(link, "section table", mismatch))?;
        Ok(Verifier { link, snapshot, object, knows_externals })
    }

    fn error(&self, section: &str, mismatch: Mismatch) -> Error {
        error(self.link, section, mismatch)
    }

    /// Checks that every relocation of a block is one edge, and that only unwind and exception tables refer to what is
    /// not in memory.
    fn check_relocations(&self, id: BlockId, block: &Block) -> Result<(), Mismatch> {
        let (graph, relocations) = (self.link.graph, self.object.relocations(self.link.graph, id));
        if relocations.len() != graph.edges(id).len() {
            return Err(Mismatch::new(0, "number of relocations", graph.edges(id).len(), relocations.len()));
        }
        let is_to_nowhere = |relocation: &&Relocation| definition(self.link, relocation.symbol) == Definition::Nowhere;
        match relocations.iter().find(is_to_nowhere) {
            Some(relocation)
                if !graph.block_name(id).starts_with(".gcc_except_table") && block.role != Role::EhFrame =>
            {
                Err(Mismatch::new(relocation.offset, relocation.name, "a symbol that is not in memory", "refused"))
            }
            _ => Ok(()),
        }
    }

    /// Checks the address and the bytes of a block.
    fn check_block(&self, id: BlockId, block: &Block) -> Result<(), Mismatch> {
        let address = self.link.graph.block_address(id, self.link.addresses).value();
        if !address.is_multiple_of(block.align) {
            return Err(Mismatch::new(0, "address", format!("{address:#x}"), format!("a multiple of {}", block.align)));
        }
        if block.large_index.is_none() && block.offset + block.size > self.snapshot.sizes[block.pool.index()] {
            return Err(Mismatch::new(0, "place", "past the end of its segment", "inside"));
        }
        let Some(content) = self.object.content(self.link.graph, id, block) else {
            return Ok(()); // zero-fill: checked with the gaps
        };
        let Some(memory) = self.snapshot.bytes(block) else {
            return Err(Mismatch::new(0, "place", "outside of the contents", "inside"));
        };
        if Some(id) == self.link.tables.got() {
            return self.check_got(address, memory);
        }
        if Some(id) == self.link.tables.stubs() {
            return self.check_stubs(address);
        }
        // Checked through the references that lead there.
        let range_extension = &self.link.tables.range_extension;
        if [range_extension.thunks(), range_extension.slots()].contains(&Some(id)) {
            return Ok(());
        }
        self.check_bytes(block.role, content, memory, address, &self.object.relocations(self.link.graph, id))
    }

    /// Checks fields by their formulas and all other bytes against the object's `content`.
    fn check_bytes(
        &self,
        role: Role,
        content: &[u8],
        memory: &[u8],
        address: u64,
        relocations: &[Relocation],
    ) -> Result<(), Mismatch> {
        if content.len() != memory.len() {
            return Err(Mismatch::new(0, "size", memory.len(), content.len()));
        }
        // What memory must be: the object's bytes, into which each checked field is copied.
        let mut explained = content.to_vec();
        let overlapping = overlapping(relocations);
        for (relocation, is_overlapping) in relocations.iter().zip(overlapping) {
            if !self.knows(relocation) {
                continue;
            }
            let fields = self.fields(role, content, memory, address);
            let range = match is_overlapping {
                true => relocation.rewritable(),
                false => fields.check(relocation)?,
            };
            let (Some(explained), Some(memory)) = (explained.get_mut(range.clone()), memory.get(range)) else {
                return Err(Mismatch::new(relocation.offset, relocation.name, "past the end of its section", "inside"));
            };
            explained.copy_from_slice(memory);
        }
        self.fields(role, content, memory, address).explain_encodings(&mut explained, relocations)?;
        first_difference(memory, &explained)
    }

    /// Whether the symbol of a relocation has its address already.
    fn knows(&self, relocation: &Relocation) -> bool {
        self.knows_externals || definition(self.link, relocation.symbol) != Definition::External
    }

    /// The checks of one section's fields.
    fn fields<'b>(&'b self, role: Role, content: &'b [u8], memory: &'b [u8], address: u64) -> FieldVerifier<'b> {
        let Verifier { link, snapshot, object, .. } = self;
        FieldVerifier { link, snapshot, object, content, memory, address, role }
    }

    /// Checks that every word of the GOT is a symbol's address, or part of an entry of a thread-local variable.
    fn check_got(&self, address: u64, memory: &[u8]) -> Result<(), Mismatch> {
        let fields = self.fields(Role::Plain, &[], memory, address);
        let mut explained = 0;
        for (number, symbol) in (0..).zip(self.link.tables.slots.iter()) {
            fields.expect_entry(number * 8, address + number * 8, &[fields.symbol_address(symbol.0)])?;
            explained += 8;
        }
        for (symbol, entry, offset) in self.link.tables.thread_locals() {
            let words = match entry {
                ThreadLocalEntry::Pair => fields.pair(symbol.0),
                ThreadLocalEntry::Block => fields.own_block(),
                ThreadLocalEntry::StaticOffset => fields.static_offset(symbol.0, offset)?,
                ThreadLocalEntry::Descriptor => fields.descriptor(symbol.0, address + offset),
            };
            fields.expect_entry(offset, address + offset, &words)?;
            explained += words.len() * 8;
        }
        match explained == memory.len() {
            true => Ok(()),
            false => Err(Mismatch::new(0, "bytes of the GOT", memory.len(), explained)),
        }
    }

    fn check_stubs(&self, address: u64) -> Result<(), Mismatch> {
        let fields = self.fields(Role::Plain, &[], &[], address);
        for (number, symbol) in (0..).zip(self.link.tables.stub_targets.iter()) {
            let (target, offset) = (fields.symbol_address(symbol.0), number * self.link.tables.stub_size());
            if !fields.is_stub_for(address + offset, target) {
                let expected = format!("a jump to {target:#x}");
                return Err(Mismatch::new(offset, "stub", "no jump to the target", expected));
            }
        }
        Ok(())
    }

    /// Checks that the blocks of a segment do not overlap, that the gaps between contents hold traps or zeroes, and
    /// that zero-fill is zero.
    fn check_gaps(&self, pool: SegmentKind) -> Result<(), Mismatch> {
        let segment = &self.snapshot.segments[pool.index()];
        let blocks = || self.link.graph.blocks.iter().filter(|block| block.pool == pool && is_in_segment(block));
        let mut content: Vec<&Block> = blocks().filter(|block| !block.is_zero_fill()).collect();
        sort_by_number(&mut content, |block| pair(block.offset, block.size));
        let mut end = 0;
        for block in content {
            if block.offset < end {
                return Err(Mismatch::new(block.offset, "place", "inside another block", "after it"));
            }
            let filler = if pool == SegmentKind::Code { self.link.graph.arch.trap() } else { 0 };
            check_filled(segment, end..block.offset, filler)?;
            end = block.offset + block.size;
        }
        if blocks().any(|block| block.is_zero_fill() && block.size > 0 && block.offset < end) {
            return Err(Mismatch::new(end, "zero-fill", "among contents", "after them"));
        }
        check_filled(segment, end..segment.len() as u64, 0)
    }

    /// Checks the image of the thread-local block: contents at their offsets, zeroes between them.
    fn check_image(&self, image: &[u8]) -> Result<(), Error> {
        let mut gaps = image.to_vec();
        let blocks = self.link.graph.blocks();
        for (id, block) in blocks.filter(|(_, block)| block.role == Role::ThreadLocal && !block.is_dropped) {
            let Some(content) = self.object.content(self.link.graph, id, block) else { continue };
            let name = self.link.graph.block_name(id);
            let range = block.offset as usize..(block.offset + block.size) as usize;
            let Some(memory) = image.get(range.clone()) else {
                return Err(self.error(name, Mismatch::new(0, "place", "outside of the image", "inside")));
            };
            let relocations = self.object.relocations(self.link.graph, id);
            // The image has no address: the linker refused relocations that depend on one.
            let checked = self.check_bytes(block.role, content, memory, 0, &relocations);
            checked.map_err(|mismatch| self.error(name, mismatch))?;
            gaps[range].fill(0);
        }
        let checked = check_filled(&gaps, 0..gaps.len() as u64, 0);
        checked.map_err(|mismatch| self.error("thread-local image", mismatch))
    }
}

/// By relocation: whether its field overlaps the field of another relocation.
fn overlapping(relocations: &[Relocation]) -> Vec<bool> {
    let mut order: Vec<usize> = (0..relocations.len()).collect();
    sort_by_number(&mut order, |index| relocations[*index].rewritable().start as u128);
    let mut overlapping = vec![false; relocations.len()];
    let (mut end, mut last) = (0, None);
    for index in order {
        let range = relocations[index].rewritable();
        if let (true, Some(last)) = (range.start < end, last) {
            overlapping[index] = true;
            overlapping[last] = true;
        }
        if range.end > end {
            (end, last) = (range.end, Some(index));
        }
    }
    overlapping
}

fn first_difference(found: &[u8], expected: &[u8]) -> Result<(), Mismatch> {
    // One comparison of the slices is much faster than the search below. Mostly they are equal.
    if found == expected {
        return Ok(());
    }
    match found.iter().zip(expected).position(|(found, expected)| found != expected) {
        None => Ok(()),
        Some(at) => {
            let hex = |bytes: &[u8]| format!("{:02x?}", &bytes[at..bytes.len().min(at + 8)]);
            Err(Mismatch::new(at as u64, "bytes without a relocation", hex(found), hex(expected)))
        }
    }
}

fn check_filled(segment: &[u8], range: std::ops::Range<u64>, filler: u8) -> Result<(), Mismatch> {
    let gap = segment.get(range.start as usize..range.end as usize).unwrap_or(&[]);
    // A section may be aligned to many megabytes, and then most of a segment is a gap: compare many bytes at a time.
    let filled = [filler; 512];
    let Some(chunk) = gap.chunks(filled.len()).position(|chunk| chunk != &filled[..chunk.len()]) else { return Ok(()) };
    let start = chunk * filled.len();
    match gap[start..].iter().position(|byte| *byte != filler) {
        None => Ok(()),
        Some(at) => {
            let at = start + at;
            let (found, expected) = (format!("{:#04x}", gap[at]), format!("{filler:#04x}"));
            Err(Mismatch::new(range.start + at as u64, "gap between blocks, or zero-fill", found, expected))
        }
    }
}

fn error(link: &ResolvedLink<'_>, section: &str, mismatch: Mismatch) -> Error {
    let Mismatch { offset, kind, found, expected } = mismatch;
    link.graph.fault(LinkFault::Verification { section: section.to_string(), offset, kind, found, expected })
}
