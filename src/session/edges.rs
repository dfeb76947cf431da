//! [`Edges`]: the trackers at the other ends of one tracker's pins. Most have one, which stands here itself; a runtime
//! library's tracker has as many as there are modules, and then keeps those of each of the graph's tables apart: threads that
//! link into dylibs of their own write lines of their own.

use rustc_hash::FxHashSet;

use crate::base::is_sparse;
use crate::session::pin_nodes::{PinNode, TABLES};

#[derive(Default)]
pub(crate) enum Edges {
    #[default]
    None,
    One(PinNode),
    #[allow(clippy::box_collection)] // rare, and there are two of this for each tracker
    Many(Box<FxHashSet<PinNode>>),
    Crowd(Box<Crowd>),
}

/// By table.
pub(crate) struct Crowd([Lines; TABLES]);

/// In lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Lines(FxHashSet<PinNode>);

impl Edges {
    pub(crate) fn contains(&self, node: PinNode) -> bool {
        match self {
            Edges::None => false,
            Edges::One(other) => *other == node,
            Edges::Many(many) => many.contains(&node),
            Edges::Crowd(crowd) => crowd.0[node.table()].0.contains(&node),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Edges::None => true,
            Edges::One(_) => false,
            Edges::Many(many) => many.is_empty(),
            Edges::Crowd(crowd) => crowd.0.iter().all(|of_table| of_table.0.is_empty()),
        }
    }

    pub(crate) fn add(&mut self, node: PinNode) {
        match self {
            Edges::None => *self = Edges::One(node),
            Edges::One(other) => *self = Edges::Many(Box::new([*other, node].into_iter().collect())),
            Edges::Many(many) if many.len() == CROWD && !many.contains(&node) => {
                let mut crowd = Crowd(Default::default());
                many.iter().chain([&node]).for_each(|node| crowd.add(*node));
                *self = Edges::Crowd(Box::new(crowd));
            }
            Edges::Many(many) => _ = many.insert(node),
            Edges::Crowd(crowd) => crowd.add(node),
        }
    }

    /// Whether it may be that none is left: a crowd is not gone through as long as there are others of the same table.
    pub(crate) fn remove(&mut self, node: PinNode) -> bool {
        match self {
            Edges::One(other) if *other == node => *self = Edges::None,
            Edges::None | Edges::One(_) => {}
            Edges::Many(many) => remove(many, node),
            Edges::Crowd(crowd) => {
                let of_table = &mut crowd.0[node.table()].0;
                remove(of_table, node);
                return of_table.is_empty();
            }
        }
        true
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = PinNode> {
        let (one, many, crowd) = match self {
            Edges::None => (None, None, None),
            Edges::One(one) => (Some(*one), None, None),
            Edges::Many(many) => (None, Some(many.iter().copied()), None),
            Edges::Crowd(crowd) => (None, None, Some(crowd.0.iter().flat_map(|of_table| of_table.0.iter().copied()))),
        };
        one.into_iter().chain(many.into_iter().flatten()).chain(crowd.into_iter().flatten())
    }
}

impl Crowd {
    fn add(&mut self, node: PinNode) {
        self.0[node.table()].0.insert(node);
    }
}

fn remove(nodes: &mut FxHashSet<PinNode>, node: PinNode) {
    nodes.remove(&node);
    if is_sparse(nodes.len(), nodes.capacity()) {
        nodes.shrink_to(nodes.len() * 2);
    }
}

/// From so many on they stand apart, which takes a kilobyte.
const CROWD: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::pin_nodes::PinNodes;

    #[test]
    fn edges_are_the_same_whether_they_are_few_or_a_crowd() {
        let mut nodes = PinNodes::new();
        let all: Vec<_> = (0..3 * CROWD as u64).map(|serial| nodes.insert(serial, ())).collect();
        let mut edges = Edges::default();
        for (number, node) in all.iter().enumerate() {
            assert!(!edges.contains(*node));
            edges.add(*node);
            edges.add(*node);
            assert_eq!(edges.nodes().count(), number + 1);
        }
        assert!(matches!(edges, Edges::Crowd(_)));
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
    fn what_takes_the_last_edge_away_says_so() {
        for count in [1, 2, 2 * CROWD as u64] {
            let mut nodes = PinNodes::new();
            let all: Vec<_> = (0..count).map(|serial| nodes.insert(serial, ())).collect();
            let mut edges = Edges::default();
            all.iter().for_each(|node| edges.add(*node));
            let said: Vec<_> = all.iter().map(|node| edges.remove(*node) && edges.is_empty()).collect();
            assert_eq!(said.iter().position(|is_last| *is_last), Some(all.len() - 1));
        }
    }

    #[test]
    fn an_edge_takes_few_bytes_since_there_are_two_for_each_module_that_calls_others() {
        assert_eq!(size_of::<Edges>(), 16);
    }
}
