//! The free ranges that are long enough for a purge.

use crate::memory::free_space::{FreeSpace, bin_of};

/// A free range at one time: its index, its offset and its length.
pub(crate) type FreeRange = (u32, u32, u32);

impl FreeSpace {
    /// Whether a range from [`long_ranges`](Self::long_ranges) is still free and unchanged.
    pub(crate) fn is_free_range(&self, (index, offset, granules): &FreeRange) -> bool {
        let node = self.nodes.get(*index).filter(|node| !node.is_used());
        node.is_some_and(|node| (node.offset, node.granules) == (*offset, *granules))
    }

    /// The free ranges of at least `granules`.
    pub(crate) fn long_ranges(&self, granules: u32) -> impl Iterator<Item = FreeRange> + '_ {
        let mut next = self.occupied_from(bin_of(granules));
        let bins = std::iter::from_fn(move || {
            let bin = next?;
            next = self.occupied_from(bin + 1);
            Some(bin)
        });
        let ranges = bins.flat_map(|bin| self.bin(bin)).map(|index| (index, self.node(index)));
        #[cfg(test)]
        let ranges = ranges.inspect(|_| self.visited_ranges.set(self.visited_ranges.get() + 1));
        ranges
            .filter(move |(_, node)| node.granules >= granules)
            .map(|(index, node)| (index, node.offset, node.granules))
    }

    #[cfg(test)]
    pub(crate) fn visited_ranges(&self) -> usize {
        self.visited_ranges.get()
    }
}
