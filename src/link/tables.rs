//! [`Tables`]: the GOT, the stubs and the range extension of one object.
//!
//! The tables are built before layout, with an entry for every edge that may need one. Later, when the addresses are
//! known, `fixup.rs` decides by displacement whether a branch or a load reaches its target without the entry.
//!
//! ```text
//!   GOT:    [ slot 0 │ slot 1 │ … │ thread-local entries ]     slots hold addresses (psABI 5.2)
//!   stubs:  [ stub 0 │ stub 1 │ … ]                            each jumps through a slot (psABI 5.2)
//! ```
//!
//! A symbol has at most one slot and one stub, however many edges use them. A branch to the object's own code
//! reaches, or a veneer takes it there (`veneer_plan.rs`), so such a symbol gets no stub.

use rustc_hash::FxHashMap;

use crate::arch::{Arch, KindSet, ThreadLocalEntry};
use crate::base::{RecycledVec, SegmentKind, impl_recycle};
use crate::link::graph::{BlockId, Content, Definition, LinkGraph, SymbolIndex, Text};
use crate::link::range_extension::reservation::RangeExtension;
use crate::link::symbol_uses::SymbolUses;
use crate::link::veneers::Veneers;

impl_recycle!(SymbolEntries);

/// The numbers of a symbol's slot and stub; [`NONE`] if it has no slot or no stub.
#[derive(Clone, Copy)]
struct SymbolEntries {
    slot: u32,
    stub: u32,
}

/// The linker's tables for one object.
#[derive(Default)]
pub(crate) struct Tables {
    got: Option<BlockId>,
    stubs: Option<BlockId>,
    /// Bytes of each stub; zero if there is none.
    stub_size: u64,
    /// By symbol.
    by_symbol: RecycledVec<SymbolEntries>,
    /// By slot: its symbol.
    pub(crate) slots: RecycledVec<SymbolIndex>,
    /// By stub: its symbol.
    pub(crate) stub_targets: RecycledVec<SymbolIndex>,
    /// The entries of thread-local variables in the GOT, after the slots: the offset from the end of the slots.
    thread_locals: FxHashMap<(SymbolIndex, ThreadLocalEntry), u64>,
    /// Bytes of all entries of thread-local variables.
    thread_locals_size: u64,
    /// Thunks and slots for references that may be too short.
    pub(crate) range_extension: RangeExtension,
    /// For branches in code that is longer than their reach. Empty before layout.
    pub(crate) veneers: Veneers,
}

impl Tables {
    /// Builds the tables of an object that has none yet, and adds their blocks to the graph.
    pub(crate) fn build(&mut self, graph: &mut LinkGraph, uses: &SymbolUses) {
        let may_be_far = self.assign_entries(graph, uses);
        if uses.kinds.has_any_of(KindSet::THREAD_LOCAL_ENTRY) {
            for edge in graph.live_edges() {
                if let Some(entry) = edge.kind.thread_local_entry() {
                    self.insert_thread_local(edge.symbol, entry);
                }
            }
        }
        let needs_got = uses.kinds.has_any_of(KindSet::GOT);
        if needs_got || !self.slots.is_empty() || !self.thread_locals.is_empty() {
            let size = (self.slots.len() * SLOT_SIZE) as u64 + self.thread_locals_size;
            let align = SLOT_SIZE as u64;
            self.got = Some(graph.push_block(Text::Fixed(".got"), SegmentKind::ReadOnly, Content::Table, size, align));
        }
        // The object's GOT has this name, whatever kind of edge refers to it.
        if let (true, Some(got)) = (needs_got, self.got)
            && let Some(symbol) = graph.find_external("_GLOBAL_OFFSET_TABLE_")
        {
            graph.set_definition(symbol, Definition::Block(got, 0));
        }
        if !self.stub_targets.is_empty() {
            // A stub is aligned to its size, so that its jump lies in one cache line.
            self.stub_size = graph.arch.stub_size(graph.marks_entries) as u64;
            let (size, align) = (self.stub_targets.len() as u64 * self.stub_size, self.stub_size);
            self.stubs = Some(graph.push_block(Text::Fixed(".plt"), SegmentKind::Code, Content::Table, size, align));
        }
        if may_be_far || graph.arch != Arch::QUICK {
            self.range_extension = RangeExtension::reserve(graph);
        }
    }

    /// Numbers slots and stubs. Returns whether a symbol with one of them may turn out to be data that is out of reach.
    fn assign_entries(&mut self, graph: &LinkGraph, uses: &SymbolUses) -> bool {
        let (count, is_low, mut may_be_far) = (graph.symbols.len(), graph.may_need_low_memory(), false);
        self.by_symbol.ensure_capacity(count);
        self.by_symbol.extend_repeated(count, &NO_ENTRIES);
        for (index, may_need_stub) in uses.with_slots(graph) {
            let entries = &mut self.by_symbol[index.index()];
            entries.slot = self.slots.len() as u32;
            self.slots.push(index);
            if may_need_stub {
                entries.stub = self.stub_targets.len() as u32;
                self.stub_targets.push(index);
            }
            may_be_far |= uses.may_be_far(index, &graph.symbols[index.index()], is_low);
        }
        may_be_far
    }

    /// Removes all entries and keeps the buffers, within limits.
    pub(crate) fn reset(&mut self) {
        let Tables { got, stubs, stub_size, by_symbol, slots, stub_targets, .. } = self;
        (*got, *stubs, *stub_size) = (None, None, 0);
        by_symbol.reset();
        slots.reset();
        stub_targets.reset();
        let Tables { thread_locals, thread_locals_size, range_extension, veneers, .. } = self;
        (*thread_locals, *thread_locals_size) = (FxHashMap::default(), 0);
        (*range_extension, *veneers) = (RangeExtension::default(), Veneers::default());
    }

    /// The GOT, if the object needs one.
    pub(crate) fn got(&self) -> Option<BlockId> {
        self.got
    }

    /// The block of stubs, if there are any.
    pub(crate) fn stubs(&self) -> Option<BlockId> {
        self.stubs
    }

    /// The offset of a symbol's slot in the GOT.
    pub(crate) fn slot(&self, symbol: SymbolIndex) -> Option<u64> {
        let number = self.by_symbol.get(symbol.index())?.slot;
        (number != NONE).then_some(u64::from(number) * SLOT_SIZE as u64)
    }

    /// The offset of a symbol's stub in the block of stubs.
    pub(crate) fn stub(&self, symbol: SymbolIndex) -> Option<u64> {
        let number = self.by_symbol.get(symbol.index())?.stub;
        (number != NONE).then_some(u64::from(number) * self.stub_size)
    }

    /// Bytes of each stub; zero if there is none.
    pub(crate) fn stub_size(&self) -> u64 {
        self.stub_size
    }

    /// The offset in the GOT of an entry of a thread-local variable.
    pub(crate) fn thread_local(&self, symbol: SymbolIndex, entry: ThreadLocalEntry) -> Option<u64> {
        let offset = self.thread_locals.get(&key(symbol, entry))?;
        Some((self.slots.len() * SLOT_SIZE) as u64 + offset)
    }

    /// All entries of thread-local variables, with their offsets in the GOT.
    pub(crate) fn thread_locals(&self) -> impl Iterator<Item = (SymbolIndex, ThreadLocalEntry, u64)> {
        let start = (self.slots.len() * SLOT_SIZE) as u64;
        self.thread_locals.iter().map(move |((symbol, entry), offset)| (*symbol, *entry, start + offset))
    }

    fn insert_thread_local(&mut self, symbol: SymbolIndex, entry: ThreadLocalEntry) {
        let end = &mut self.thread_locals_size;
        self.thread_locals.entry(key(symbol, entry)).or_insert_with(|| {
            let offset = *end;
            *end += match entry {
                ThreadLocalEntry::StaticOffset => 8,
                ThreadLocalEntry::Pair | ThreadLocalEntry::Block => 16,
                // Function and argument; the argument is the address of the pair that follows.
                ThreadLocalEntry::Descriptor => 32,
            };
            offset
        });
    }
}

/// The object has one thread-local block, so all symbols share the entry for it.
fn key(symbol: SymbolIndex, entry: ThreadLocalEntry) -> (SymbolIndex, ThreadLocalEntry) {
    (if entry == ThreadLocalEntry::Block { SymbolIndex(0) } else { symbol }, entry)
}

const NONE: u32 = u32::MAX;
/// The template that initialises the entries of symbols, a slice at a time.
static NO_ENTRIES: [SymbolEntries; 64] = [SymbolEntries { slot: NONE, stub: NONE }; 64];
/// Bytes of a GOT slot.
pub(crate) const SLOT_SIZE: usize = 8;
