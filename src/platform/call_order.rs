//! [`CallOrder`]: the order in which initialisers and finalisers of several objects are called.
//!
//! | | order |
//! |---|---|
//! | initialisers of one batch | stage, priority, rank, object, position |
//! | finalisers | the reverse, the newest batch first; but those of the stage of fragments by object within their batch |
//!
//! A native linker concatenates the `.fini` fragments of all objects to one function, in the order of the objects.

use std::cmp::Reverse;

use crate::link::{Initializer, InitializerStage};

/// The place of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CallOrder {
    /// The batch in which the object was begun.
    pub(super) batch: u64,
    stage: InitializerStage,
    priority: u32,
    rank: u8,
    /// Sequence number of the object in its dylib.
    sequence: u64,
    position: u32,
}

impl CallOrder {
    pub(super) fn new(batch: u64, sequence: u64, function: &Initializer) -> CallOrder {
        let Initializer { stage, priority, rank, position, .. } = *function;
        CallOrder { batch, stage, priority, rank, sequence, position }
    }

    /// The sort key of an initialiser. The batch is not part of it: a deferred object may be of an earlier batch.
    pub(super) fn to_initialize(self) -> impl Ord {
        (self.stage, self.priority, self.rank, self.sequence, self.position)
    }

    /// The sort key of a finaliser.
    pub(super) fn to_finalize(self) -> impl Ord {
        let is_forward = self.stage == InitializerStage::Fragments;
        let object = if is_forward { self.sequence } else { !self.sequence };
        (Reverse((self.batch, self.stage, self.priority, self.rank)), object, Reverse(self.position))
    }

    /// Whether no exit handlers run between this finaliser and the next one. In a program or shared object, a finaliser
    /// of the compiler runs the exit handlers. It is the last finaliser without a priority.
    pub(super) fn is_grouped_with(self, next: CallOrder) -> bool {
        let group = |order: CallOrder| (order.batch, order.stage, order.priority == Initializer::DEFAULT_PRIORITY);
        group(self) == group(next)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::ExecutorAddr;
    use crate::link::InitializerKind;

    #[test]
    fn fragments_run_by_object_before_all_lists_and_after_them_at_the_end() {
        use InitializerStage::*;
        let order = |batch, sequence, stage, priority, position| {
            let (kind, address) = (InitializerKind::Init, ExecutorAddr::NULL);
            CallOrder::new(batch, sequence, &Initializer { kind, stage, priority, rank: 0, position, address })
        };
        let plain = Initializer::DEFAULT_PRIORITY;
        let first = [
            order(0, 2, Preinit, 0, 0),
            order(0, 1, Fragments, plain, 0),
            order(0, 2, Fragments, plain, 1),
            order(0, 2, Lists, 0, 2),
            order(0, 1, Lists, plain, 1),
            order(0, 1, Lists, plain, 2),
            order(0, 2, Lists, plain, 3),
        ];
        assert!(first.is_sorted_by(|a, b| a.to_initialize() < b.to_initialize()));
        let mut finalized = vec![order(1, 0, Lists, plain, 0)];
        finalized.extend([6, 5, 4, 3, 1, 2, 0].map(|index: usize| first[index]));
        assert!(finalized.is_sorted_by(|a, b| a.to_finalize() < b.to_finalize()));
        assert!(first[4].is_grouped_with(first[6]) && !first[3].is_grouped_with(first[4]));
        assert!(!first[4].is_grouped_with(first[2]) && !finalized[0].is_grouped_with(finalized[1]));
    }
}
