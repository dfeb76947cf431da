//! [`PinNodes`]: the places of trackers in the pin graph, by number.
//!
//! One lock guards all of them, but each dylib's stand in a table that few other dylibs share: threads that link into dylibs
//! of their own come to the lock one after the other, and then write what the other did not.

use std::num::NonZeroU32;
use std::ops::{Index, IndexMut};

use crate::base::{SlotNumber, Slots};

slotmap::new_key_type! {
    struct NodeKey;
}

/// Names a node, as long as it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PinNode(NonZeroU32);

pub(crate) struct PinNodes<N> {
    tables: [Table<N>; TABLES],
}

/// In lines of its own.
#[repr(align(128))]
struct Table<N>(Slots<NodeKey, N>);

impl PinNode {
    /// Of the slot's number in its table, and the table's. A table has numbers for half a billion trackers: their code alone
    /// would be more than a terabyte.
    fn new(slot: SlotNumber<NodeKey>, table: usize) -> PinNode {
        PinNode(slot.number().saturating_mul(TABLE_COUNT).saturating_add(table as u32))
    }

    /// Trackers of one dylib are in one, and few other dylibs' are.
    pub(crate) fn table(self) -> usize {
        self.0.get() as usize % TABLES
    }

    fn slot(self) -> Option<SlotNumber<NodeKey>> {
        NonZeroU32::new(self.0.get() / TABLE_COUNT).map(SlotNumber::numbered)
    }
}

impl<N> PinNodes<N> {
    pub(crate) fn new() -> PinNodes<N> {
        PinNodes { tables: std::array::from_fn(|_| Table(Slots::new())) }
    }

    /// Adds one for a tracker of the dylib of this serial number.
    pub(crate) fn insert(&mut self, dylib: u64, node: N) -> PinNode {
        let table = dylib as usize % TABLES;
        PinNode::new(SlotNumber::of(self.tables[table].0.insert(node)), table)
    }

    pub(crate) fn remove(&mut self, node: PinNode) -> Option<N> {
        Some(self.tables[node.table()].0.remove_at(node.slot()?)?.1)
    }

    pub(crate) fn at(&self, node: PinNode) -> Option<&N> {
        self.tables[node.table()].0.at(node.slot()?)
    }

    pub(crate) fn at_mut(&mut self, node: PinNode) -> Option<&mut N> {
        self.tables[node.table()].0.at_mut(node.slot()?)
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

pub(crate) const TABLES: usize = 8;
const TABLE_COUNT: NonZeroU32 = NonZeroU32::new(TABLES as u32).unwrap();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_found_by_its_number_among_those_of_all_dylibs() {
        let mut nodes = PinNodes::new();
        let numbers: Vec<_> = (0..200).map(|serial| nodes.insert(serial, serial)).collect();
        assert!(numbers.iter().zip(0..).all(|(number, serial)| nodes[*number] == serial));
        assert!(numbers.array_windows().all(|[one, next]| one.table() != next.table()), "one after the other, apart");
        for (number, serial) in numbers.iter().zip(0..) {
            assert_eq!((nodes.remove(*number), nodes.at(*number)), (Some(serial), None));
        }
        assert_eq!(size_of::<Option<PinNode>>(), 4);
    }
}
