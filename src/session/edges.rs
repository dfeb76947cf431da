//! [`Edges`]: the trackers at the other ends of one tracker's pins. Most have one, which stands here itself; a runtime
//! library's tracker has as many as there are modules.

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

    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Edges::None => true,
            Edges::One(_) => false,
            Edges::Many(many) => many.is_empty(),
        }
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
