//! [`FreeSpace`]: the free and used ranges of one pool, and the choice of a range for each request.
//!
//! This file only calculates with offsets. Its records are on the heap (`nodes.rs`), and it never accesses the pool
//! itself. So the pool may be unmapped, executable, or in another process. The unit of offsets and lengths is the
//! *granule*; the caller decides how many bytes a granule has.
//!
//! # Data structure
//!
//! It is a two-level segregated fit, as in a TLSF allocator. Each range is a node in two lists:
//!
//! - The *address list* has all ranges in order of address. Neighbours in it need not touch, because a space may own
//!   several separate parts of a pool.
//! - A *bin* has the free ranges of one size class.
//!
//! ```text
//!   address list     [ used 40 ]<->[ free 70 ]<->[ used 9 ]<->[ free 5 ]
//!                                       |                          |
//!   bin                     (exponent 2, mantissa 3)   (exponent 0, mantissa 5)
//!                            ranges of 70 or 71         ranges of exactly 5
//!
//!   exponent_map     ...00000101                   one bit for each exponent with a free range
//!   mantissa_maps    [0] ..00100000   [2] ..00001000   one bit for each mantissa with a free range
//! ```
//!
//! A size class is a length as a floating-point number with five bits of mantissa. Each length below 64 has a bin of
//! its own. Above, a bin spans at most 1/32 of its lengths.
//!
//! # How a request finds a range
//!
//! 1. It checks up to eight ranges of its own bin (its length rounded down). Some of them may be long enough. These are
//!    the closest fits.
//! 2. It searches the bitmaps for the first bin in which *every* range is long enough: its length plus the greatest
//!    loss to alignment, rounded up.
//! 3. It checks all ranges that are at least as long as the request.
//!
//! Steps 1 and 2 take constant time. Because of step 3, a request fails only if no free range fits. A freed range
//! merges with its free neighbours at once, so two free ranges never touch.
//!
//! # Limits
//!
//! - It does not map, commit, protect or zero memory.
//! - It has no lock: the caller locks.
//! - It does not detect the use of an id that was freed, if the node already belongs to another range.
//! - It never moves a range. So some space between ranges is lost: a few percent in a pool with many ranges, a quarter
//!   in a pool with two thousand ranges of very different lengths.

mod long_ranges;
mod nodes;

use std::num::NonZeroU32;

pub(crate) use long_ranges::FreeRange;
use nodes::{NONE, Node, Nodes};

/// Bits of mantissa in a size class.
const MANTISSA_BITS: u32 = 5;
/// Size classes for each exponent.
const MANTISSAS: u32 = 1 << MANTISSA_BITS;
/// Exponents. Lengths of 32 bits use 28 of them.
const EXPONENTS: u32 = 32;
/// How many ranges of its own bin a request checks before it searches the larger bins.
const NEAR_CHECKS: usize = 8;

/// The id of an allocated range. It belongs to the `FreeSpace` that returned it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RangeId(NonZeroU32);

impl RangeId {
    fn of(index: u32) -> RangeId {
        RangeId(NonZeroU32::MIN.saturating_add(index))
    }

    fn index(self) -> u32 {
        self.0.get() - 1
    }
}

/// The free and used ranges of one pool.
#[derive(Debug)]
pub(crate) struct FreeSpace {
    /// One bit for each exponent with a free range.
    exponent_map: u32,
    /// For each exponent, one bit for each mantissa with a free range.
    mantissa_maps: [u32; EXPONENTS as usize],
    /// The first free range of each bin.
    heads: Box<[u32]>,
    nodes: Nodes,
    /// The first node of the address list.
    first: u32,
    /// The lowest offset of the space. [`add`](Self::add) takes only granules below it.
    start: u32,
    /// The granules of the space, free and used.
    granules: u32,
    free_granules: u32,
    free_ranges: usize,
    /// How many ranges [`long_ranges`](Self::long_ranges) has visited.
    #[cfg(test)]
    visited_ranges: std::cell::Cell<usize>,
}

/// How many low bits of a length its size class drops.
#[inline]
fn dropped_bits(granules: u32) -> u32 {
    // Lengths below `2 * MANTISSAS` have a bin each.
    (granules | MANTISSAS).ilog2() - MANTISSA_BITS
}

/// The bin of a free range of this length: its size class, rounded down.
#[inline]
fn bin_of(granules: u32) -> u32 {
    let dropped = dropped_bits(granules);
    // The shifted length has one bit above the mantissa. The addition carries it into the exponent.
    (dropped << MANTISSA_BITS) + (granules >> dropped)
}

/// The first bin in which every range has at least this length. It may be one more than the last bin of any length.
#[inline]
fn bin_at_least(granules: u32) -> u32 {
    let dropped = granules & ((1 << dropped_bits(granules)) - 1);
    bin_of(granules) + u32::from(dropped != 0)
}

/// The first multiple of `alignment`, a power of two, that is not less than `offset`.
fn align_up(offset: u32, alignment: u32) -> Option<u32> {
    Some(offset.checked_add(alignment - 1)? & !(alignment - 1))
}

impl FreeSpace {
    /// A space without ranges.
    pub(crate) fn new() -> Self {
        FreeSpace {
            exponent_map: 0,
            mantissa_maps: [0; EXPONENTS as usize],
            heads: vec![NONE; (EXPONENTS * MANTISSAS) as usize].into_boxed_slice(),
            nodes: Nodes::default(),
            first: NONE,
            start: u32::MAX,
            granules: 0,
            free_granules: 0,
            free_ranges: 0,
            #[cfg(test)]
            visited_ranges: std::cell::Cell::default(),
        }
    }

    /// Adds the free granules `[offset, offset + granules)` below the start of the space. They merge with a free range
    /// that begins at their end. Does nothing if they are not below the start.
    pub(crate) fn add(&mut self, offset: u32, granules: u32) {
        if granules == 0 || offset.checked_add(granules).is_none_or(|end| end > self.start) {
            return;
        }
        let first = self.first;
        if self.is_free(first) && self.node(first).offset == offset + granules {
            self.remove_from_bin(first);
            let node = self.node_mut(first);
            node.offset = offset;
            node.granules += granules;
            self.insert_into_bin(first);
        } else {
            self.insert_free(NONE, first, offset, granules);
        }
        self.start = offset;
        self.granules += granules;
    }

    /// Removes the granules `[offset, offset + granules)` from the space and returns true. If one of them is not free,
    /// returns false and removes none. The opposite of [`add`](Self::add).
    pub(crate) fn withdraw(&mut self, offset: u32, granules: u32) -> bool {
        let Some((index, ..)) = self.free_range_around(offset, granules) else { return false };
        let index = self.carve(index, offset, granules).index();
        let Node { prev, next, .. } = *self.node(index);
        self.remove_node(index, prev, next);
        self.granules -= granules;
        self.start = if self.first == NONE { u32::MAX } else { self.node(self.first).offset };
        true
    }

    /// Whether the granules `[offset, offset + granules)` are all free.
    pub(crate) fn is_free_part(&self, offset: u32, granules: u32) -> bool {
        self.free_range_around(offset, granules).is_some()
    }

    fn free_range_around(&self, offset: u32, granules: u32) -> Option<FreeRange> {
        let holds = |(_, from, length): &FreeRange| *from <= offset && offset + granules <= from + length;
        self.long_ranges(granules).find(holds)
    }

    /// The granules of the space, free and used.
    pub(crate) fn granules(&self) -> u32 {
        self.granules
    }

    /// Allocates `granules` (0 counts as 1) at a multiple of `alignment` granules. Returns the id and the offset of the
    /// range. `None` if no free range fits, or if `alignment` is not a power of two.
    pub(crate) fn allocate(&mut self, granules: u32, alignment: u32) -> Option<(RangeId, u32)> {
        let granules = granules.max(1);
        let (index, at) = self.find(granules, alignment)?;
        Some((self.carve(index, at, granules), at))
    }

    /// Allocates the part `[at, at + granules)` of the free range with this index, which comes from
    /// [`long_ranges`](Self::long_ranges). The part lies in the range.
    #[inline]
    pub(crate) fn carve(&mut self, index: u32, at: u32, granules: u32) -> RangeId {
        let Node { offset, granules: length, prev, .. } = *self.node(index);
        if at != offset || length == granules {
            return self.carve_general(index, at, granules);
        }
        // The common case: the part is at the start of the range, and the rest after it stays free.
        let used = self.nodes.insert(Node::used(at, granules, prev, index));
        self.set_next(prev, used);
        self.resize_free(index, |rest| {
            (rest.offset, rest.granules, rest.prev) = (at + granules, length - granules, used);
        });
        RangeId::of(used)
    }

    /// [`carve`](Self::carve) for a part that is the entire range, or does not start at its start.
    #[inline(never)]
    fn carve_general(&mut self, index: u32, at: u32, granules: u32) -> RangeId {
        let node = *self.node(index);
        if node.granules == granules {
            self.remove_from_bin(index);
            self.node_mut(index).mark_used();
            return RangeId::of(index);
        }
        // The rest before the part and the rest after it stay free.
        let head = at - node.offset;
        let tail = node.granules - head - granules;
        self.remove_from_bin(index);
        if head > 0 {
            self.insert_free(node.prev, index, node.offset, head);
        }
        if tail > 0 {
            self.insert_free(index, node.next, at + granules, tail);
        }
        let node = self.node_mut(index);
        (node.offset, node.granules) = (at, granules);
        node.mark_used();
        RangeId::of(index)
    }

    /// The address of the node of a range in use. It does not change.
    pub(crate) fn record_address(&self, id: RangeId) -> usize {
        std::ptr::from_ref(self.node(id.index())).addr()
    }

    /// Prefetches the node of a range that is freed soon.
    pub(crate) fn prefetch(&self, id: RangeId) {
        self.nodes.prefetch(id.index());
    }

    /// Frees a range, which merges with its free neighbours. If no range in use has this id, nothing changes, and a
    /// debug build panics.
    pub(crate) fn free(&mut self, id: RangeId) {
        let index = id.index();
        let Some(node) = self.used(id) else {
            debug_assert!(false, "range {index} is freed, but it is not in use");
            return;
        };
        let Node { offset, granules, prev, next, .. } = *node;
        let front = self.free_range(prev).filter(|(from, length)| from + length == offset);
        let back = self.free_range(next).filter(|(from, _)| *from == offset + granules);
        match (front, back) {
            (None, None) => self.insert_into_bin(index),
            (Some(_), None) => {
                self.remove_node(index, prev, next);
                self.resize_free(prev, |front| front.granules += granules);
            }
            (None, Some(_)) => {
                self.set_next(prev, next);
                self.nodes.remove(index);
                self.resize_free(next, |back| {
                    (back.offset, back.granules, back.prev) = (offset, granules + back.granules, prev);
                });
            }
            (Some(_), Some((_, last))) => {
                self.remove_from_bin(next);
                let behind = self.node(next).next;
                self.nodes.remove(index);
                self.remove_node(next, prev, behind);
                self.resize_free(prev, |front| front.granules += granules + last);
            }
        }
    }

    /// Offset and length of the range in use with this id, or (0, 0).
    #[cfg(test)]
    pub(crate) fn range(&self, id: RangeId) -> (u32, u32) {
        self.used(id).map_or((0, 0), |node| (node.offset, node.granules))
    }

    /// All ranges in order of address: offset, length, and whether the range is in use.
    pub(crate) fn ranges(&self) -> Vec<(u32, u32, bool)> {
        let some_index = |index: u32| (index != NONE).then_some(index);
        let in_order = std::iter::successors(some_index(self.first), |index| some_index(self.node(*index).next));
        in_order.map(|index| self.node(index)).map(|node| (node.offset, node.granules, node.is_used())).collect()
    }

    /// Granules in free ranges.
    pub(crate) fn free_granules(&self) -> u32 {
        self.free_granules
    }

    /// Granules in ranges that are in use.
    pub(crate) fn used_granules(&self) -> u32 {
        self.granules - self.free_granules
    }

    /// Bytes of heap memory that the records use.
    pub(crate) fn heap_bytes(&self) -> u64 {
        (self.nodes.heap_bytes() + size_of_val(&*self.heads)) as u64
    }

    /// Length of the longest free range, or 0.
    pub(crate) fn largest_free(&self) -> u32 {
        let longest_of = |exponent: u32| {
            let mantissa = self.mantissa_maps[exponent as usize].checked_ilog2()?;
            let bin = self.bin((exponent << MANTISSA_BITS) | mantissa);
            bin.map(|index| self.node(index).granules).max()
        };
        self.exponent_map.checked_ilog2().and_then(longest_of).unwrap_or(0)
    }

    /// The number of free ranges. No two of them touch.
    pub(crate) fn free_ranges(&self) -> usize {
        self.free_ranges
    }

    /// The least number of granules that have to be added right below `at`, so that a request of this length and
    /// alignment fits. A free range that begins at `at` counts. 0 if the request fits already, `u32::MAX` if it can
    /// never fit there.
    pub(crate) fn shortfall(&self, at: u32, granules: u32, alignment: u32) -> u32 {
        let granules = granules.max(1);
        if !alignment.is_power_of_two() {
            return u32::MAX;
        }
        if self.find(granules, alignment).is_some() {
            return 0;
        }
        let end = match self.is_free(self.first) && self.node(self.first).offset == at {
            true => self.end_of(self.first),
            false => at,
        };
        let start = end.checked_sub(granules).map(|start| start & !(alignment - 1));
        start.map_or(u32::MAX, |start| at.saturating_sub(start))
    }

    /// The index of a free range for the request, and the offset of the request in the pool.
    #[inline(always)] // into `allocate`: every link runs it
    fn find(&self, granules: u32, alignment: u32) -> Option<(u32, u32)> {
        if !alignment.is_power_of_two() || granules > self.free_granules {
            return None;
        }
        let mut near = self.heads[bin_of(granules) as usize];
        for _ in 0..NEAR_CHECKS {
            if near == NONE {
                break;
            }
            if let Some(at) = self.fit(near, granules, alignment) {
                return Some((near, at));
            }
            near = self.node(near).bin_next;
        }
        // A range of this length fits, whatever its offset.
        let padded = granules.checked_add(alignment - 1);
        if let Some(bin) = padded.and_then(|padded| self.occupied_from(bin_at_least(padded))) {
            let far = self.heads[bin as usize];
            if let Some(at) = self.fit(far, granules, alignment) {
                return Some((far, at));
            }
        }
        self.find_anywhere(granules, alignment)
    }

    /// [`find`](Self::find) among all free ranges.
    #[cold]
    fn find_anywhere(&self, granules: u32, alignment: u32) -> Option<(u32, u32)> {
        let mut next = self.occupied_from(bin_of(granules));
        while let Some(bin) = next {
            let fit = |index: u32| Some((index, self.fit(index, granules, alignment)?));
            if let Some(found) = self.bin(bin).find_map(fit) {
                return Some(found);
            }
            next = self.occupied_from(bin + 1);
        }
        None
    }

    /// The offset that a request gets in a free range. `None` if the range is too short.
    #[inline]
    fn fit(&self, index: u32, granules: u32, alignment: u32) -> Option<u32> {
        let node = self.node(index);
        let at = align_up(node.offset, alignment)?;
        let usable = node.granules.checked_sub(at - node.offset)?;
        (usable >= granules).then_some(at)
    }

    /// The first bin from `bin` on that has a free range. `bin` is at most one more than the last bin.
    #[inline]
    fn occupied_from(&self, bin: u32) -> Option<u32> {
        let (exponent, mantissa) = (bin >> MANTISSA_BITS, bin & (MANTISSAS - 1));
        let here = self.mantissa_maps[exponent as usize] & (u32::MAX << mantissa);
        if here != 0 {
            return Some((exponent << MANTISSA_BITS) | here.trailing_zeros());
        }
        let above = self.exponent_map & (u32::MAX << (exponent + 1));
        let exponent = above.trailing_zeros();
        let mantissas = self.mantissa_maps.get(exponent as usize)?;
        Some((exponent << MANTISSA_BITS) | mantissas.trailing_zeros())
    }

    /// The free ranges of a bin. The last one that was inserted comes first.
    fn bin(&self, bin: u32) -> impl Iterator<Item = u32> + '_ {
        let some_index = |index: u32| (index != NONE).then_some(index);
        let next = move |&index: &u32| some_index(self.node(index).bin_next);
        std::iter::successors(some_index(self.heads[bin as usize]), next)
    }

    /// Inserts a range into the bin of its length and counts it as free.
    fn insert_into_bin(&mut self, index: u32) {
        let granules = self.node(index).granules;
        self.free_granules += granules;
        self.free_ranges += 1;
        self.push_to_bin(bin_of(granules), index);
    }

    /// Removes a range from its bin and no longer counts it as free.
    fn remove_from_bin(&mut self, index: u32) {
        let Node { granules, bin_prev, bin_next, .. } = *self.node(index);
        self.free_granules -= granules;
        self.free_ranges -= 1;
        self.unlink_from_bin(bin_of(granules), bin_prev, bin_next);
    }

    /// Changes offset and length of a free range. If its bin stays the same, which is the common case, no list changes.
    #[inline]
    fn resize_free(&mut self, index: u32, resize: impl FnOnce(&mut Node)) {
        let node = self.nodes.at_mut(index);
        let old_granules = node.granules;
        resize(node);
        let Node { granules, bin_prev, bin_next, .. } = *node;
        self.free_granules = self.free_granules - old_granules + granules;
        let (old, new) = (bin_of(old_granules), bin_of(granules));
        if old != new {
            self.unlink_from_bin(old, bin_prev, bin_next);
            self.push_to_bin(new, index);
        }
    }

    /// Makes a free range the first of a bin.
    #[inline]
    fn push_to_bin(&mut self, bin: u32, index: u32) {
        let head = std::mem::replace(&mut self.heads[bin as usize], index);
        let node = self.nodes.at_mut(index);
        (node.bin_prev, node.bin_next) = (NONE, head);
        if head != NONE {
            self.node_mut(head).bin_prev = index;
        }
        let (exponent, mantissa) = (bin >> MANTISSA_BITS, bin & (MANTISSAS - 1));
        self.exponent_map |= 1 << exponent;
        self.mantissa_maps[exponent as usize] |= 1 << mantissa;
    }

    /// Removes the range between `prev` and `next` from a bin. `NONE` is an end of the bin.
    #[inline]
    fn unlink_from_bin(&mut self, bin: u32, prev: u32, next: u32) {
        if next != NONE {
            self.node_mut(next).bin_prev = prev;
        }
        if prev != NONE {
            self.node_mut(prev).bin_next = next;
            return;
        }
        self.heads[bin as usize] = next;
        if next == NONE {
            let (exponent, mantissa) = (bin >> MANTISSA_BITS, bin & (MANTISSAS - 1));
            self.mantissa_maps[exponent as usize] &= !(1 << mantissa);
            if self.mantissa_maps[exponent as usize] == 0 {
                self.exponent_map &= !(1 << exponent);
            }
        }
    }

    /// Inserts a free range into the address list between two neighbours. `NONE` is an end of the list.
    fn insert_free(&mut self, prev: u32, next: u32, offset: u32, granules: u32) {
        let index = self.insert(prev, next, offset, granules);
        self.insert_into_bin(index);
    }

    /// Inserts a range in use into the address list between two neighbours. `NONE` is an end of the list.
    #[inline]
    fn insert(&mut self, prev: u32, next: u32, offset: u32, granules: u32) -> u32 {
        // The new node has its own side of both links.
        let index = self.nodes.insert(Node::used(offset, granules, prev, next));
        self.set_next(prev, index);
        self.set_prev(next, index);
        index
    }

    /// Makes two nodes neighbours in the address list. `NONE` is an end of the list.
    #[inline]
    fn link(&mut self, prev: u32, next: u32) {
        self.set_next(prev, next);
        self.set_prev(next, prev);
    }

    /// Sets the node after `prev`, or the first node if `prev` is `NONE`.
    #[inline]
    fn set_next(&mut self, prev: u32, next: u32) {
        match prev {
            NONE => self.first = next,
            _ => self.node_mut(prev).next = next,
        }
    }

    /// Sets the node before `next`, unless `next` is `NONE`.
    #[inline]
    fn set_prev(&mut self, next: u32, prev: u32) {
        if next != NONE {
            self.node_mut(next).prev = prev;
        }
    }

    /// Removes a range, which is in no bin, from the address list. `prev` and `next` are its neighbours.
    #[inline]
    fn remove_node(&mut self, index: u32, prev: u32, next: u32) {
        self.link(prev, next);
        self.nodes.remove(index);
    }

    /// The offset of the first granule after a range.
    fn end_of(&self, index: u32) -> u32 {
        let node = self.node(index);
        node.offset + node.granules
    }

    fn is_free(&self, index: u32) -> bool {
        index != NONE && !self.node(index).is_used()
    }

    /// Offset and length of a range of the address list, if it is free.
    fn free_range(&self, index: u32) -> Option<(u32, u32)> {
        if index == NONE {
            return None;
        }
        let node = self.node(index);
        (!node.is_used()).then_some((node.offset, node.granules))
    }

    fn used(&self, id: RangeId) -> Option<&Node> {
        self.nodes.get(id.index()).filter(|node| node.is_used())
    }

    fn node(&self, index: u32) -> &Node {
        self.nodes.at(index)
    }

    fn node_mut(&mut self, index: u32) -> &mut Node {
        self.nodes.at_mut(index)
    }
}

#[cfg(test)]
mod tests;
