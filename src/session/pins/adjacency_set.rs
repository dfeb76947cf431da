//! [`AdjacencySet`]: the nodes at the other ends of one node's edges.
//!
//! Most sets have one node, and an `AdjacencySet` stores that one inline. A larger set is a sparse bit set on the heap. It is
//! ordered, so that a reader can read it in pieces ([`nodes_after`](AdjacencySet::nodes_after)), and it never grows in one long
//! step.

use smallvec::SmallVec;

use crate::base::NumberTree;
use crate::session::pins::pin_nodes::PinNode;

#[derive(Default)]
pub(crate) enum AdjacencySet {
    #[default]
    None,
    One(PinNode),
    #[allow(clippy::box_collection)] // rare, and each node has two sets
    Many(Box<Many>),
}

/// A sparse bit set: one map entry for each 64 node numbers.
#[derive(Default)]
pub(crate) struct Many {
    words: NumberTree,
    count: usize,
}

impl Many {
    fn contains(&self, node: PinNode) -> bool {
        let (word, bit) = node.word();
        self.words.get(&u64::from(word)).is_some_and(|word| word & bit != 0)
    }

    fn insert(&mut self, node: PinNode) {
        let (word, bit) = node.word();
        let word = self.words.entry(word.into()).or_default();
        self.count += usize::from(*word & bit == 0);
        *word |= bit;
    }

    fn remove(&mut self, node: PinNode) {
        let (number, bit) = node.word();
        let number = u64::from(number);
        let Some(word) = self.words.get_mut(&number) else { return };
        self.count -= usize::from(*word & bit != 0);
        *word &= !bit;
        if *word == 0 {
            self.words.remove(&number);
        }
    }

    fn nodes_after(&self, last: Option<PinNode>) -> impl Iterator<Item = PinNode> {
        let first_word = last.map_or(0, |last| u64::from(last.word().0));
        let nodes = self.words.range(first_word..).flat_map(|(number, word)| PinNode::of_word(*number as u32, *word));
        nodes.filter(move |node| last.is_none_or(|last| node.is_after(last)))
    }
}

impl AdjacencySet {
    pub(crate) fn contains(&self, node: PinNode) -> bool {
        match self {
            AdjacencySet::None => false,
            AdjacencySet::One(other) => *other == node,
            AdjacencySet::Many(many) => many.contains(node),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            AdjacencySet::None => 0,
            AdjacencySet::One(_) => 1,
            AdjacencySet::Many(many) => many.count,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn add(&mut self, node: PinNode) {
        match self {
            AdjacencySet::None => *self = AdjacencySet::One(node),
            AdjacencySet::One(other) => {
                let mut many = Many::default();
                many.insert(*other);
                many.insert(node);
                *self = AdjacencySet::Many(Box::new(many));
            }
            AdjacencySet::Many(many) => many.insert(node),
        }
    }

    pub(crate) fn remove(&mut self, node: PinNode) {
        match self {
            AdjacencySet::One(other) if *other == node => *self = AdjacencySet::None,
            AdjacencySet::None | AdjacencySet::One(_) => {}
            AdjacencySet::Many(many) => many.remove(node),
        }
    }

    #[inline]
    pub(crate) fn nodes(&self) -> impl Iterator<Item = PinNode> {
        self.nodes_after(None)
    }

    /// The first nodes, up to `count`.
    #[inline]
    pub(super) fn first_nodes(&self, count: usize) -> SmallVec<[PinNode; 4]> {
        match self {
            AdjacencySet::None => SmallVec::new(),
            AdjacencySet::One(one) => SmallVec::from_iter([*one]),
            AdjacencySet::Many(many) => many.nodes_after(None).take(count).collect(),
        }
    }

    /// The nodes after `last`, in the order of their numbers.
    #[inline]
    pub(crate) fn nodes_after(&self, last: Option<PinNode>) -> impl Iterator<Item = PinNode> {
        match self {
            AdjacencySet::None => NodeIter::One(None),
            AdjacencySet::One(one) => {
                NodeIter::One(Some(*one).filter(|one| last.is_none_or(|last| one.is_after(last))))
            }
            AdjacencySet::Many(many) => NodeIter::Many(Box::new(many.nodes_after(last))),
        }
    }
}

/// Iterates over the nodes of a set.
enum NodeIter<'a> {
    One(Option<PinNode>),
    /// Boxed, so that the common case does not carry its state.
    Many(Box<dyn Iterator<Item = PinNode> + 'a>),
}

impl Iterator for NodeIter<'_> {
    type Item = PinNode;

    #[inline]
    fn next(&mut self) -> Option<PinNode> {
        match self {
            NodeIter::One(one) => one.take(),
            NodeIter::Many(many) => many.next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::sized;
    use crate::session::pins::pin_nodes::PinNodes;

    #[test]
    fn a_set_of_one_and_a_set_of_many_behave_the_same() {
        let mut nodes = PinNodes::new();
        let all: Vec<_> = (0..sized(200, 40)).map(|_| nodes.insert(())).collect();
        let mut edges = AdjacencySet::default();
        for (number, node) in all.iter().enumerate() {
            assert!(!edges.contains(*node));
            edges.add(*node);
            edges.add(*node);
            assert_eq!((edges.nodes().count(), edges.len()), (number + 1, number + 1));
            let in_pieces = std::iter::successors(edges.nodes().next(), |last| edges.nodes_after(Some(*last)).next());
            assert!(in_pieces.eq(edges.nodes()));
        }
        assert!(all.iter().all(|node| edges.contains(*node)));
        for (number, node) in all.iter().enumerate() {
            assert!(!edges.is_empty());
            edges.remove(*node);
            edges.remove(*node);
            assert!(!edges.contains(*node));
            assert_eq!(edges.nodes().count(), all.len() - number - 1);
        }
        assert!(edges.is_empty());
    }

    #[test]
    fn an_adjacency_set_takes_16_bytes() {
        assert_eq!(size_of::<AdjacencySet>(), 16);
    }
}
