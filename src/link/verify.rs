//! A second opinion of every finished link, by the dullest code that can give one: debug builds only.
//!
//! The linker reads an object once, into a graph, and works from that. This reads the object again, and says for every byte
//! of the working memory why it is there:
//!
//! ```text
//!   a section's bytes  =  the object's,  but for the fields of its relocations;
//!   a field            =  the psABI's formula, from the relocation's number (`formulas.rs`);
//!   a GOT slot         =  the symbol's address;   a stub = a jump through such a slot;
//!   everything else    =  a trap in code, zero elsewhere.
//! ```
//!
//! Where the linker had a choice (a load by its slot or rewritten, a branch straight or by a stub), what counts is where the
//! bytes *lead*, not which way was taken; so it is with references that were redirected (`far.rs`). Nothing here asks how the linker decided, and no table of its is consulted but
//! for the graph's layout, the two blocks of the GOT and the stubs, and who owns which entry there.
//!
//! It is no judge of objects: whatever is malformed was refused before. Relocations whose fields lie on each other have no
//! one value, so they are counted, and their bytes are not judged. Zero-fill is looked at up to [`ZERO_FILL_SEEN`], lest
//! looking at it have the kernel back it.

mod far;
mod formulas;
mod reread;
#[cfg(test)]
mod tests;

use crate::base::SegmentKind;
use crate::error::{Error, LinkFault};
use crate::link::fixup::Fixup;
use crate::link::graph::{Block, BlockId, Definition, Role};
use crate::link::x86_64::ThreadLocalEntry;
use crate::memory::InFlight;
use formulas::Judge;
use reread::{Reference, Reread};

/// Whether `memory`, and the image of the thread-local block where there is one, are what the object and the addresses
/// make them.
///
/// # Errors
/// [`LinkFault::SecondOpinion`]: the first difference.
pub(crate) fn check(fixup: &Fixup<'_>, memory: &mut dyn InFlight, image: Option<&[u8]>) -> Result<(), Error> {
    let seen = Seen::of(fixup, memory);
    let bytes = fixup.graph.bytes.clone();
    let opinion = Opinion::new(fixup, &bytes, &seen, true)?;
    // The graph is the object: its blocks, its symbols, and as many edges as there are relocations.
    opinion.reread.check_graph(fixup.graph).map_err(|finding| opinion.error("symbol table", finding))?;
    for (id, block) in fixup.graph.blocks().filter(|(_, block)| !block.is_dropped) {
        let about_block = |finding| opinion.error(fixup.graph.block_name(id), finding);
        opinion.check_references(id, block).map_err(about_block)?;
        if block.role != Role::TlsIndex {
            opinion.check_block(id, block).map_err(about_block)?;
        }
    }
    // Nothing else is there: of what was dropped, or of who had the memory before.
    for pool in SegmentKind::ALL {
        opinion.check_gaps(pool).map_err(|finding| opinion.error(pool.name(), finding))?;
    }
    image.map_or(Ok(()), |image| opinion.check_image(image))
}

/// The same for the thread-local block's image alone, before externals are known: their fields are as the object has them.
///
/// # Errors
/// As [`check`].
pub(crate) fn check_own_image(fixup: &Fixup<'_>, image: &[u8]) -> Result<(), Error> {
    let (seen, bytes) = (Seen::default(), fixup.graph.bytes.clone());
    Opinion::new(fixup, &bytes, &seen, false)?.check_image(image)
}

/// The working memory, as it was found: zero-fill at the end is left out but for its beginning.
#[derive(Default)]
struct Seen {
    /// By pool.
    segments: [Vec<u8>; 3],
    /// By number.
    apart: Vec<Vec<u8>>,
    /// By pool: all its bytes, whether looked at or not.
    sizes: [u64; 3],
}

/// What is not as it must be.
struct Finding {
    offset: u64,
    kind: String,
    found: String,
    expected: String,
}

struct Opinion<'a> {
    fixup: &'a Fixup<'a>,
    seen: &'a Seen,
    reread: Reread<'a>,
    knows_externals: bool,
}

impl Seen {
    fn of(fixup: &Fixup<'_>, memory: &mut dyn InFlight) -> Seen {
        let mut seen = Seen::default();
        for pool in SegmentKind::ALL {
            let has_content = |block: &&Block| block.pool == pool && is_in_segment(block) && !block.is_zero_fill();
            let content = fixup.graph.blocks.iter().filter(has_content).map(|block| block.offset + block.size).max();
            let segment = memory.working(pool);
            let end = segment.len().min(content.unwrap_or(0) as usize + ZERO_FILL_SEEN);
            seen.segments[pool.index()] = segment[..end].to_vec();
            seen.sizes[pool.index()] = segment.len() as u64;
        }
        seen.apart = (0..fixup.places.apart.len()).map(|number| memory.apart(number).to_vec()).collect();
        seen
    }

    /// A block's bytes, if all of them were looked at.
    fn bytes(&self, block: &Block) -> Option<&[u8]> {
        match block.apart {
            Some(number) => self.apart.get(number as usize).map(|bytes| &bytes[..]),
            None => {
                let end = block.offset.checked_add(block.size)?;
                self.segments[block.pool.index()].get(block.offset as usize..end as usize)
            }
        }
    }
}

impl Finding {
    fn new(offset: u64, kind: impl ToString, found: impl ToString, expected: impl ToString) -> Finding {
        Finding { offset, kind: kind.to_string(), found: found.to_string(), expected: expected.to_string() }
    }
}

impl<'a> Opinion<'a> {
    fn new(fixup: &'a Fixup<'a>, bytes: &'a [u8], seen: &'a Seen, knows_externals: bool) -> Result<Opinion<'a>, Error> {
        let reread = Reread::new(bytes, fixup.graph);
        let reread = reread.map_err(|finding| error(fixup, "section table", finding))?;
        Ok(Opinion { fixup, seen, reread, knows_externals })
    }

    fn error(&self, section: &str, finding: Finding) -> Error {
        error(self.fixup, section, finding)
    }

    /// Every relocation of a live section is one edge. What is not in memory is referred to only by tables that may.
    fn check_references(&self, id: BlockId, block: &Block) -> Result<(), Finding> {
        let (graph, references) = (self.fixup.graph, self.reread.references(self.fixup.graph, id));
        if references.len() != graph.edges(id).len() {
            return Err(Finding::new(0, "number of relocations", graph.edges(id).len(), references.len()));
        }
        let is_nowhere = |reference: &&Reference| definition(self.fixup, reference.symbol) == Definition::Nowhere;
        match references.iter().find(is_nowhere) {
            Some(reference)
                if !graph.block_name(id).starts_with(".gcc_except_table") && block.role != Role::EhFrame =>
            {
                Err(Finding::new(reference.offset, reference.name(), "a symbol that is nowhere", "refusal"))
            }
            _ => Ok(()),
        }
    }

    fn check_block(&self, id: BlockId, block: &Block) -> Result<(), Finding> {
        let address = self.fixup.graph.block_address(id, self.fixup.places).value();
        if !address.is_multiple_of(block.align) {
            return Err(Finding::new(0, "address", format!("{address:#x}"), format!("a multiple of {}", block.align)));
        }
        if block.apart.is_none() && block.offset + block.size > self.seen.sizes[block.pool.index()] {
            return Err(Finding::new(0, "place", "past the end of its segment", "inside"));
        }
        let Some(content) = self.reread.content(self.fixup.graph, id, block) else { return Ok(()) }; // zero-fill: seen with the gaps
        let Some(memory) = self.seen.bytes(block) else {
            return Err(Finding::new(0, "place", "outside of what has content", "inside"));
        };
        if Some(id) == self.fixup.tables.got() {
            return self.check_got(address, memory);
        }
        if Some(id) == self.fixup.tables.stubs() {
            return self.check_stubs(address);
        }
        // Judged by what leads there.
        if [self.fixup.tables.far.thunks(), self.fixup.tables.far.slots()].contains(&Some(id)) {
            return Ok(());
        }
        self.check_bytes(content, memory, address, &self.reread.references(self.fixup.graph, id))
    }

    /// Content, but for fields; fields, by their formulas.
    fn check_bytes(
        &self,
        content: &[u8],
        memory: &[u8],
        address: u64,
        references: &[Reference],
    ) -> Result<(), Finding> {
        if content.len() != memory.len() {
            return Err(Finding::new(0, "size", memory.len(), content.len()));
        }
        // What the memory must be: grows out of the object's bytes, a judged field at a time.
        let mut explained = content.to_vec();
        let entangled = entangled(references);
        for (reference, is_entangled) in references.iter().zip(entangled) {
            if !self.knows(reference) {
                continue;
            }
            let judge = Judge { fixup: self.fixup, seen: self.seen, reread: &self.reread, content, memory, address };
            let touched = match is_entangled {
                true => reference.reach(),
                false => judge.reference(reference)?,
            };
            let (Some(explained), Some(memory)) = (explained.get_mut(touched.clone()), memory.get(touched)) else {
                return Err(Finding::new(reference.offset, reference.name(), "past the end of its section", "inside"));
            };
            explained.copy_from_slice(memory);
        }
        let judge = Judge { fixup: self.fixup, seen: self.seen, reread: &self.reread, content, memory, address };
        judge.explain_encodings(&mut explained, references)?;
        first_difference(memory, &explained)
    }

    /// Whether what it refers to has an address by now.
    fn knows(&self, reference: &Reference) -> bool {
        self.knows_externals || definition(self.fixup, reference.symbol) != Definition::External
    }

    /// Every word of the GOT is an address, or part of an entry for a thread-local variable.
    fn check_got(&self, address: u64, memory: &[u8]) -> Result<(), Finding> {
        let judge = self.judge_of_tables(address, memory);
        let mut accounted = 0;
        for (number, symbol) in (0..).zip(self.fixup.tables.slots.iter()) {
            judge.entry(number * 8, address + number * 8, &[judge.symbol_address(symbol.0)])?;
            accounted += 8;
        }
        for (symbol, entry, offset) in self.fixup.tables.thread_locals() {
            let words = match entry {
                ThreadLocalEntry::Pair => judge.pair(symbol.0),
                ThreadLocalEntry::Block => judge.own_block(),
                ThreadLocalEntry::StaticOffset => judge.static_offset(symbol.0, offset)?,
                ThreadLocalEntry::Descriptor => judge.descriptor(symbol.0, address + offset),
            };
            judge.entry(offset, address + offset, &words)?;
            accounted += words.len() * 8;
        }
        match accounted == memory.len() {
            true => Ok(()),
            false => Err(Finding::new(0, "bytes of the GOT", memory.len(), accounted)),
        }
    }

    fn check_stubs(&self, address: u64) -> Result<(), Finding> {
        let judge = self.judge_of_tables(address, &[]);
        for (number, symbol) in (0..).zip(self.fixup.tables.stub_targets.iter()) {
            let target = judge.symbol_address(symbol.0);
            if !judge.is_stub_for(address + number * 16, target) {
                return Err(Finding::new(number * 16, "stub", "no way there", format!("a way to {target:#x}")));
            }
        }
        Ok(())
    }

    fn judge_of_tables(&self, address: u64, memory: &'a [u8]) -> Judge<'_> {
        Judge { fixup: self.fixup, seen: self.seen, reread: &self.reread, content: &[], memory, address }
    }

    /// Blocks of a segment do not lie on each other. Between contents nothing can be run into, and zero-fill is zero.
    fn check_gaps(&self, pool: SegmentKind) -> Result<(), Finding> {
        let segment = &self.seen.segments[pool.index()];
        let blocks = || self.fixup.graph.blocks.iter().filter(|block| block.pool == pool && is_in_segment(block));
        let mut content: Vec<&Block> = blocks().filter(|block| !block.is_zero_fill()).collect();
        content.sort_by_key(|block| (block.offset, block.size));
        let mut end = 0;
        for block in content {
            if block.offset < end {
                return Err(Finding::new(block.offset, "place", "on another block", "by itself"));
            }
            let filler = if pool == SegmentKind::Code { 0xcc } else { 0 };
            check_filled(segment, end..block.offset, filler)?;
            end = block.offset + block.size;
        }
        if blocks().any(|block| block.is_zero_fill() && block.size > 0 && block.offset < end) {
            return Err(Finding::new(end, "zero-fill", "among contents", "behind them"));
        }
        check_filled(segment, end..segment.len() as u64, 0)
    }

    /// The thread-local block's image: contents at their offsets, zero between them.
    fn check_image(&self, image: &[u8]) -> Result<(), Error> {
        let mut gaps = image.to_vec();
        let blocks = self.fixup.graph.blocks();
        for (id, block) in blocks.filter(|(_, block)| block.role == Role::TlsIndex && !block.is_dropped) {
            let Some(content) = self.reread.content(self.fixup.graph, id, block) else { continue };
            let name = self.fixup.graph.block_name(id);
            let range = block.offset as usize..(block.offset + block.size) as usize;
            let Some(memory) = image.get(range.clone()) else {
                return Err(self.error(name, Finding::new(0, "place", "outside of the image", "inside")));
            };
            let references = self.reread.references(self.fixup.graph, id);
            // It has no address: relocations that depend on one were refused.
            let checked = self.check_bytes(content, memory, 0, &references);
            checked.map_err(|finding| self.error(name, finding))?;
            gaps[range].fill(0);
        }
        let checked = check_filled(&gaps, 0..gaps.len() as u64, 0);
        checked.map_err(|finding| self.error("thread-local image", finding))
    }
}

/// Which references' fields lie on those of others.
fn entangled(references: &[Reference]) -> Vec<bool> {
    let mut order: Vec<usize> = (0..references.len()).collect();
    order.sort_by_key(|index| references[*index].reach().start);
    let mut entangled = vec![false; references.len()];
    let (mut end, mut last) = (0, None);
    for index in order {
        let reach = references[index].reach();
        if let (true, Some(last)) = (reach.start < end, last) {
            entangled[index] = true;
            entangled[last] = true;
        }
        if reach.end > end {
            (end, last) = (reach.end, Some(index));
        }
    }
    entangled
}

fn first_difference(found: &[u8], expected: &[u8]) -> Result<(), Finding> {
    if found == expected {
        return Ok(()); // the usual case, which large sections should not wait for
    }
    match found.iter().zip(expected).position(|(found, expected)| found != expected) {
        None => Ok(()),
        Some(at) => {
            let show = |bytes: &[u8]| format!("{:02x?}", &bytes[at..bytes.len().min(at + 8)]);
            Err(Finding::new(at as u64, "bytes that no relocation is for", show(found), show(expected)))
        }
    }
}

fn check_filled(segment: &[u8], range: std::ops::Range<u64>, filler: u8) -> Result<(), Finding> {
    let gap = segment.get(range.start as usize..range.end as usize).unwrap_or(&[]);
    match gap.iter().position(|byte| *byte != filler) {
        None => Ok(()),
        Some(at) => {
            let (found, expected) = (format!("{:#04x}", gap[at]), format!("{filler:#04x}"));
            Err(Finding::new(range.start + at as u64, "gap between blocks, or zero-fill", found, expected))
        }
    }
}

/// Where a symbol is that the object names by number.
fn definition(fixup: &Fixup<'_>, symbol: u32) -> Definition {
    fixup.graph.symbols.get(symbol as usize).map_or(Definition::Nowhere, |symbol| symbol.definition)
}

fn is_in_segment(block: &Block) -> bool {
    !block.is_dropped && !block.is_apart() && block.role != Role::TlsIndex
}

fn error(fixup: &Fixup<'_>, section: &str, finding: Finding) -> Error {
    let Finding { offset, kind, found, expected } = finding;
    fixup.graph.fault(LinkFault::SecondOpinion { section: section.to_string(), offset, kind, found, expected })
}

/// Bytes of a segment's zero-fill that are looked at.
const ZERO_FILL_SEEN: usize = 1 << 16;
