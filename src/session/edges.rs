//! [`Edges`]: the nodes at the other ends of one node's edges. Most have one, which stands here itself.

use rustc_hash::FxHashSet;

use crate::base::is_sparse;
use crate::session::pin_nodes::PinNode;

#[derive(Default)]
pub(crate) enum Edges {
    #[default]
    None,
    One(PinNode),
    #[allow(clippy::box_collection)] // rare, and there are two of this for each tracker
    Many(Box<FxHashSet<PinNode>>),
}

impl Edges {
    pub(crate) fn contains(&self, node: PinNode) -> bool {
        match self {
            Edges::None => false,
            Edges::One(other) => *other == node,
            Edges::Many(many) => many.contains(&node),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Edges::None => 0,
            Edges::One(_) => 1,
            Edges::Many(many) => many.len(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn add(&mut self, node: PinNode) {
        match self {
            Edges::None => *self = Edges::One(node),
            Edges::One(other) => *self = Edges::Many(Box::new([*other, node].into_iter().collect())),
            Edges::Many(many) => _ = many.insert(node),
        }
    }

    pub(crate) fn remove(&mut self, node: PinNode) {
        match self {
            Edges::One(other) if *other == node => *self = Edges::None,
            Edges::None | Edges::One(_) => {}
            Edges::Many(many) => {
                many.remove(&node);
                if is_sparse(many.len(), many.capacity()) {
                    many.shrink_to(many.len() * 2);
                }
            }
        }
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = PinNode> {
        let (one, many) = match self {
            Edges::None => (None, None),
            Edges::One(one) => (Some(*one), None),
            Edges::Many(many) => (None, Some(many.iter().copied())),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::pin_nodes::PinNodes;

    #[test]
    fn edges_are_the_same_whether_they_are_few_or_many() {
        let mut nodes = PinNodes::new();
        let all: Vec<_> = (0..200).map(|_| nodes.insert(())).collect();
        let mut edges = Edges::default();
        for (number, node) in all.iter().enumerate() {
            assert!(!edges.contains(*node));
            edges.add(*node);
            edges.add(*node);
            assert_eq!((edges.nodes().count(), edges.len()), (number + 1, number + 1));
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
    fn an_edge_takes_few_bytes_since_there_are_two_for_each_module_that_calls_others() {
        assert_eq!(size_of::<Edges>(), 16);
    }
}
