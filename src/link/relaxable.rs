//! [`Relaxable`]: the sequences of instructions of an object that may be rewritten together to cheaper ones.
//!
//! The instructions of a sequence ([`Sequence`]) follow one another, and the first makes a page or a half of an address in a
//! register for the others. Rewritten instructions make something else there, so nothing but the sequence may use the register:
//!
//! | what could use it | why nothing does |
//! |---|---|
//! | an instruction after the sequence | the sequence overwrites the register (`arch` checks the instructions) |
//! | another instruction of this kind, to which code jumps from the first one | all of the object are in whole sequences; otherwise none is rewritten. Pages without an addition are common, so for these the symbol counts |
//! | an instruction of the sequence, for code that jumps to it with a register from elsewhere | the same; and no symbol is defined within the sequence |

use rustc_hash::{FxHashMap, FxHashSet};

use crate::arch::{Arch, Sequence};
use crate::link::graph::{BlockId, Definition, Edge, LinkGraph, SymbolIndex};

/// The sequences that may be rewritten, by block and offset of the first instruction. Empty if there is none.
#[derive(Default)]
pub(crate) struct Relaxable(FxHashMap<(BlockId, u64), Sequence>);

impl Relaxable {
    /// The sequence whose first instruction is at an offset of a block.
    pub(super) fn at(&self, id: BlockId, offset: u32) -> Option<Sequence> {
        self.0.get(&(id, offset.into())).copied()
    }

    /// Finds the sequences of an object.
    #[inline]
    pub(crate) fn of(graph: &LinkGraph) -> Relaxable {
        // Its references are single instructions.
        if graph.arch == Arch::QUICK { Relaxable::default() } else { Relaxable::find(graph) }
    }

    #[cold]
    fn find(graph: &LinkGraph) -> Relaxable {
        let mut finder = Finder::default();
        for (id, _) in graph.blocks().filter(|(_, block)| !block.is_dropped) {
            for edge in graph.edges(id) {
                if let Some((sequence, part)) = graph.arch.part_of_sequence(edge.kind) {
                    finder.take(id, edge, sequence, part);
                }
            }
            finder.end_block();
        }
        let Finder { mut found, broken, broken_symbols, .. } = finder;
        found.retain(|_, (sequence, symbol)| match sequence {
            Sequence::Address => !broken_symbols.contains(symbol),
            _ => !broken.contains(sequence),
        });
        if !found.is_empty() {
            for (_, symbol) in graph.symbols() {
                if let Definition::Block(id, offset) = symbol.definition {
                    remove_around(&mut found, id, offset);
                }
            }
        }
        Relaxable(found.into_iter().map(|(place, (sequence, _))| (place, sequence)).collect())
    }
}

/// Removes the sequences that an offset of a block is within.
fn remove_around(found: &mut FxHashMap<(BlockId, u64), (Sequence, SymbolIndex)>, id: BlockId, offset: u64) {
    for before in (1..Sequence::MOST_INSTRUCTIONS as u64).map(|count| 4 * count) {
        let start = offset.checked_sub(before).map(|start| (id, start));
        if let Some(start) = start
            && found.get(&start).is_some_and(|(sequence, _)| before < 4 * sequence.instructions() as u64)
        {
            found.remove(&start);
        }
    }
}

/// What is known of the edges so far.
#[derive(Default)]
struct Finder<'a> {
    found: FxHashMap<(BlockId, u64), (Sequence, SymbolIndex)>,
    /// Kinds of sequences with an instruction that is in none.
    broken: FxHashSet<Sequence>,
    /// Symbols whose page, or whose offset in a page, is in no sequence.
    broken_symbols: FxHashSet<SymbolIndex>,
    /// The sequence of each kind that has begun: its first edge, and how many it has.
    begun: FxHashMap<Sequence, (&'a Edge, usize)>,
}

impl<'a> Finder<'a> {
    /// Takes the next edge of a block, which is part number `part` of a sequence.
    fn take(&mut self, id: BlockId, edge: &'a Edge, sequence: Sequence, part: usize) {
        let begun = self.begun.remove(&sequence);
        match begun {
            Some((first, count)) if count == part && is_part(sequence, first, edge, part) => {
                if part + 1 == sequence.edges() {
                    self.found.insert((id, first.offset.into()), (sequence, first.symbol));
                } else {
                    self.begun.insert(sequence, (first, count + 1));
                }
            }
            _ => {
                begun.into_iter().for_each(|(first, _)| self.put_aside(sequence, first));
                match part {
                    0 => drop(self.begun.insert(sequence, (edge, 1))),
                    _ => self.put_aside(sequence, edge),
                }
            }
        }
    }

    fn end_block(&mut self) {
        for (sequence, (first, _)) in std::mem::take(&mut self.begun) {
            self.put_aside(sequence, first);
        }
    }

    /// Notes that an edge is in no whole sequence.
    fn put_aside(&mut self, sequence: Sequence, edge: &Edge) {
        match sequence {
            Sequence::Address => drop(self.broken_symbols.insert(edge.symbol)),
            _ => drop(self.broken.insert(sequence)),
        }
    }
}

/// Whether the first edges of a list are those of a whole sequence.
pub(super) fn is_sequence(graph: &LinkGraph, edges: &[Edge], sequence: Sequence) -> bool {
    let Some(first) = edges.first().filter(|_| edges.len() == sequence.edges()) else { return false };
    edges.iter().enumerate().all(|(part, edge)| {
        graph.arch.part_of_sequence(edge.kind) == Some((sequence, part)) && is_part(sequence, first, edge, part)
    })
}

/// Whether an edge may be part number `part` of the sequence that `first` begins. Entries of the GOT have no addends.
fn is_part(sequence: Sequence, first: &Edge, edge: &Edge, part: usize) -> bool {
    let is_next = u64::from(first.offset) + 4 * part as u64 == u64::from(edge.offset);
    let has_entry = sequence != Sequence::Address;
    is_next && first.symbol == edge.symbol && first.addend == edge.addend && !(has_entry && edge.addend != 0)
}
