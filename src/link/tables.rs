//! The GOT and the stubs of one object: made before layout, for every edge that may need them.
//!
//! Whether a branch or a load can do without its slot is known only when addresses are (by displacement, in
//! `fixup.rs`); the room for it must be there before. A symbol has one slot and one stub, however many edges use it.
//! Branches to the object's own code always reach, so they get no stub.

use rustc_hash::FxHashMap;

use crate::base::{RecycledVec, SegmentKind, impl_recycle};
use crate::link::graph::{BlockId, Content, Definition, LinkGraph, SymbolIndex, Text};
use crate::link::range_extension::RangeExtension;
use crate::link::symbol_uses::SymbolUses;
use crate::link::thread_locals::live_edges;
use crate::link::x86_64::{KindSet, STUB, ThreadLocalEntry};

impl_recycle!(Numbers);

/// Which slot and which stub are a symbol's; [`NONE`], if it has none.
#[derive(Clone, Copy)]
struct Numbers {
    slot: u32,
    stub: u32,
}

/// Where slots and stubs stand.
#[derive(Default)]
pub(crate) struct Tables {
    got: Option<BlockId>,
    stubs: Option<BlockId>,
    /// By symbol.
    numbers: RecycledVec<Numbers>,
    /// By slot: the symbol.
    pub(crate) slots: RecycledVec<SymbolIndex>,
    /// By stub: the symbol.
    pub(crate) stub_targets: RecycledVec<SymbolIndex>,
    /// What thread-local variables have in the GOT, behind the slots: offset there.
    thread_locals: FxHashMap<(SymbolIndex, ThreadLocalEntry), u64>,
    /// Bytes of those.
    thread_locals_size: u64,
    /// Room for references that may turn out to be too short.
    pub(crate) far: RangeExtension,
}

impl Tables {
    /// Makes room for all of them, where there are none yet.
    pub(crate) fn build(&mut self, graph: &mut LinkGraph, survey: &SymbolUses) {
        let may_be_far = self.number(graph, survey);
        if survey.kinds.has_any_of(KindSet::THREAD_LOCAL_ENTRY) {
            for edge in live_edges(graph) {
                if let Some(entry) = edge.kind.thread_local_entry() {
                    self.want_thread_local(edge.symbol, entry);
                }
            }
        }
        let needs_got = survey.kinds.has_any_of(KindSet::GOT);
        if needs_got || !self.slots.is_empty() || !self.thread_locals.is_empty() {
            let size = (self.slots.len() * SLOT) as u64 + self.thread_locals_size;
            self.got =
                Some(graph.push_block(Text::Fixed(".got"), SegmentKind::ReadOnly, Content::Table, size, SLOT as u64));
        }
        // An object's own GOT goes by this name, whatever kind of edge refers to it.
        if let (true, Some(got)) = (needs_got, self.got)
            && let Some(symbol) = graph.find_external("_GLOBAL_OFFSET_TABLE_")
        {
            graph.define(symbol, Definition::Block(got, 0));
        }
        if !self.stub_targets.is_empty() {
            let size = (self.stub_targets.len() * STUB.len()) as u64;
            self.stubs = Some(graph.push_block(Text::Fixed(".plt"), SegmentKind::Code, Content::Table, size, 16));
        }
        if may_be_far {
            self.far = RangeExtension::reserve(graph);
        }
    }

    /// Numbers slots and stubs; whether something that takes one may turn out to be too far away for data.
    fn number(&mut self, graph: &LinkGraph, survey: &SymbolUses) -> bool {
        let (count, mut may_be_far) = (graph.symbols.len(), false);
        self.numbers.make_room(count);
        self.numbers.push_copies(count, &BLANKS);
        for (index, may_need_stub) in survey.with_slots(graph) {
            let numbers = &mut self.numbers[index.index()];
            numbers.slot = self.slots.len() as u32;
            self.slots.push(index);
            if may_need_stub {
                numbers.stub = self.stub_targets.len() as u32;
                self.stub_targets.push(index);
            }
            may_be_far |= survey.may_be_far(index, &graph.symbols[index.index()]);
        }
        may_be_far
    }

    /// Forgets all of them.
    pub(crate) fn empty(&mut self) {
        let Tables { got, stubs, numbers, slots, stub_targets, thread_locals, thread_locals_size, far } = self;
        (*got, *stubs, *thread_locals_size) = (None, None, 0);
        numbers.empty();
        slots.empty();
        stub_targets.empty();
        (*thread_locals, *far) = (FxHashMap::default(), RangeExtension::default());
    }

    /// The GOT, if any edge refers to it.
    pub(crate) fn got(&self) -> Option<BlockId> {
        self.got
    }

    /// The block of stubs, if there are any.
    pub(crate) fn stubs(&self) -> Option<BlockId> {
        self.stubs
    }

    /// Offset of a symbol's slot in the GOT.
    pub(crate) fn slot(&self, symbol: SymbolIndex) -> Option<u64> {
        let number = self.numbers.get(symbol.index())?.slot;
        (number != NONE).then_some(u64::from(number) * SLOT as u64)
    }

    /// Offset of a symbol's stub in the block of stubs.
    pub(crate) fn stub(&self, symbol: SymbolIndex) -> Option<u64> {
        let number = self.numbers.get(symbol.index())?.stub;
        (number != NONE).then_some(u64::from(number) * STUB.len() as u64)
    }

    /// Offset in the GOT of what a thread-local variable has there.
    pub(crate) fn thread_local(&self, symbol: SymbolIndex, entry: ThreadLocalEntry) -> Option<u64> {
        let offset = self.thread_locals.get(&key(symbol, entry))?;
        Some((self.slots.len() * SLOT) as u64 + offset)
    }

    /// All of those, with their offsets in the GOT.
    pub(crate) fn thread_locals(&self) -> impl Iterator<Item = (SymbolIndex, ThreadLocalEntry, u64)> {
        let start = (self.slots.len() * SLOT) as u64;
        self.thread_locals.iter().map(move |((symbol, entry), offset)| (*symbol, *entry, start + offset))
    }

    fn want_thread_local(&mut self, symbol: SymbolIndex, entry: ThreadLocalEntry) {
        let end = &mut self.thread_locals_size;
        self.thread_locals.entry(key(symbol, entry)).or_insert_with(|| {
            let offset = *end;
            *end += match entry {
                ThreadLocalEntry::StaticOffset => 8,
                ThreadLocalEntry::Pair | ThreadLocalEntry::Block => 16,
                // Its argument is the address of the pair behind it.
                ThreadLocalEntry::Descriptor => 32,
            };
            offset
        });
    }
}

/// The object has one block, whichever symbol it is asked for by.
fn key(symbol: SymbolIndex, entry: ThreadLocalEntry) -> (SymbolIndex, ThreadLocalEntry) {
    (if entry == ThreadLocalEntry::Block { SymbolIndex(0) } else { symbol }, entry)
}

const NONE: u32 = u32::MAX;
/// What stands where numbers may be.
static BLANKS: [Numbers; 64] = [Numbers { slot: NONE, stub: NONE }; 64];
pub(crate) const SLOT: usize = 8;
