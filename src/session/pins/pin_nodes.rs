//! [`PinNodes`]: the nodes of one table of the pin graph, or of the witness forest, by number. [`PinNode`] is such a number, and
//! [`NodeCell`] stores the number of a tracker's own node.

use std::ops::{Index, IndexMut};

use crate::base::{PagedArena, SlotNumber};
use crate::sync::{GuardedU32, Ordering};

slotmap::new_key_type! {
    struct NodeKey;
}

/// The number of a node in its table. It is valid until the node is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PinNode(SlotNumber<NodeKey>);

impl PinNode {
    /// Whether the number of this node is higher.
    pub(crate) fn is_after(self, other: PinNode) -> bool {
        self.0.number() > other.0.number()
    }

    /// For a bit set of nodes: the index of the word that has a bit for this node, and the bit.
    pub(crate) fn word(self) -> (u32, u64) {
        (self.0.number() / u64::BITS, 1 << (self.0.number() % u64::BITS))
    }

    /// The nodes whose bits are set in the word with index `number`.
    pub(crate) fn of_word(number: u32, word: u64) -> impl Iterator<Item = PinNode> {
        let set = (0..u64::BITS).filter(move |bit| word & 1 << bit != 0);
        set.filter_map(move |bit| SlotNumber::from_number(number * u64::BITS + bit)).map(PinNode)
    }
}

/// The number of a tracker's own node, or none. The lock of the node's table (of the forest) guards it. Two kinds of reader may read it without
/// that lock: those that know that the tracker is not live, since such a tracker gets no node, and those that need only a hint.
#[derive(Default)]
pub(crate) struct NodeCell(GuardedU32);

impl NodeCell {
    pub(crate) fn get(&self) -> Option<PinNode> {
        SlotNumber::from_number(self.0.load(Ordering::Relaxed)).map(PinNode)
    }

    pub(crate) fn set(&self, node: PinNode) {
        self.0.store(node.0.number(), Ordering::Relaxed);
    }

    /// Two plain operations instead of an atomic exchange: no other thread writes meanwhile.
    pub(crate) fn take(&self) -> Option<PinNode> {
        let node = self.get();
        self.0.store(0, Ordering::Relaxed);
        node
    }
}

pub(crate) struct PinNodes<N>(PagedArena<NodeKey, N>);

impl<N> PinNodes<N> {
    pub(crate) fn new() -> PinNodes<N> {
        PinNodes(PagedArena::new())
    }

    pub(crate) fn insert(&mut self, node: N) -> PinNode {
        PinNode(SlotNumber::of(self.0.insert(node)))
    }

    pub(crate) fn remove(&mut self, node: PinNode) -> Option<N> {
        Some(self.0.remove_at(node.0)?.1)
    }

    /// Prefetches a node.
    pub(crate) fn prefetch(&self, node: PinNode) {
        self.0.prefetch(node.0);
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn at(&self, node: PinNode) -> Option<&N> {
        self.0.at(node.0)
    }

    pub(crate) fn at_mut(&mut self, node: PinNode) -> Option<&mut N> {
        self.0.at_mut(node.0)
    }
}

impl<N> Index<PinNode> for PinNodes<N> {
    type Output = N;
    fn index(&self, node: PinNode) -> &N {
        self.at(node).expect("a number is dropped before its node is removed")
    }
}

impl<N> IndexMut<PinNode> for PinNodes<N> {
    fn index_mut(&mut self, node: PinNode) -> &mut N {
        self.at_mut(node).expect("a number is dropped before its node is removed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_found_by_its_number_until_it_is_removed() {
        let mut nodes = PinNodes::new();
        let numbers: Vec<_> = (0..200).map(|value| nodes.insert(value)).collect();
        assert!(numbers.iter().zip(0..).all(|(number, value)| nodes[*number] == value));
        for (number, value) in numbers.iter().zip(0..) {
            assert_eq!((nodes.remove(*number), nodes.at(*number)), (Some(value), None));
        }
        assert_eq!(size_of::<Option<PinNode>>(), 4);
    }
}
