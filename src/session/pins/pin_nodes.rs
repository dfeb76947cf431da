//! [`PinNodes`]: the nodes of one table of the pin graph, by number.

use std::ops::{Index, IndexMut};

use crate::base::{PagedArena, SlotNumber};
use crate::sync::{GuardedU32, Ordering};

slotmap::new_key_type! {
    struct NodeKey;
}

/// Names a node in its table, as long as it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PinNode(SlotNumber<NodeKey>);

impl PinNode {
    /// The word that has a bit for this node, in a set of nodes, and the bit.
    pub(crate) fn word(self) -> (u32, u64) {
        (self.0.number() / u64::BITS, 1 << (self.0.number() % u64::BITS))
    }

    /// The nodes of which a word has the bits.
    pub(crate) fn of_word(number: u32, word: u64) -> impl Iterator<Item = PinNode> {
        let set = (0..u64::BITS).filter(move |bit| word & 1 << bit != 0);
        set.filter_map(move |bit| SlotNumber::numbered(number * u64::BITS + bit)).map(PinNode)
    }
}

/// A place for a node's number, which the lock of the node's table guards: read and written only under that, but for those who
/// ask of a tracker that gets no node any more, and for hints.
#[derive(Default)]
pub(crate) struct NodePlace(GuardedU32);

impl NodePlace {
    pub(crate) fn get(&self) -> Option<PinNode> {
        SlotNumber::numbered(self.0.load(Ordering::Relaxed)).map(PinNode)
    }

    pub(crate) fn put(&self, node: PinNode) {
        self.0.store(node.0.number(), Ordering::Relaxed);
    }

    /// Without a locked instruction: nobody else writes meanwhile.
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

    /// Asks for a node ahead of its use.
    pub(crate) fn prefetch(&self, node: PinNode) {
        self.0.prefetch(node.0);
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
        self.at(node).expect("nodes are forgotten ahead of their removal")
    }
}

impl<N> IndexMut<PinNode> for PinNodes<N> {
    fn index_mut(&mut self, node: PinNode) -> &mut N {
        self.at_mut(node).expect("nodes are forgotten ahead of their removal")
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
