//! `FreeSpace`: which parts of a pool are free, and where the next request goes.
//!
//! Pure arithmetic on offsets. All records live out of band (`nodes.rs`), so the
//! pool itself is never read or written: it may be unmapped, executable, or in
//! another process altogether. Everything is counted in granules; how many bytes a
//! granule has is the caller's business.
//!
//! The space is one row of ranges in order of address. Every range is a node,
//! linked to its two neighbours in the row, which need not touch it: a space may
//! own several stretches of a pool. Free ranges are linked into a second list, the
//! bin of their size:
//!
//! ```text
//!   row    [ used 40 ]<->[ free 70 ]<->[ used 9 ]<->[ free 5 ]
//!                             |                          |
//!   bin           (exponent 2, mantissa 3)      (exponent 0, mantissa 5)
//!                  ranges of 70 or 71            ranges of exactly 5
//!
//!   tops   ...00000101            one bit for each exponent with a free range
//!   subs   [0] ..00100000   [2] ..00001000   one bit for each mantissa
//! ```
//!
//! A bin is a size written as a floating-point number with five bits of
//! mantissa: sizes below 64 have a bin each, and above that a bin spans at most
//! 1/32 of its size. A request looks
//!
//! 1. at up to eight ranges of its own bin (its size rounded down), of which
//!    some may be long enough: this is where the close fits are;
//! 2. through the bitmaps for the first bin in which *every* range is long
//!    enough (its size, and the worst loss to alignment, rounded up);
//! 3. at every range that the first two steps passed over, and only then says
//!    that the space is full.
//!
//! Steps 1 and 2 take constant time. Step 3 is what makes "full" mean that no
//! free range would have done. Freed ranges merge with both neighbours at once,
//! so two free ranges never touch.
//!
//! What it does not do: it does not map, commit, protect or zero anything, it
//! does not lock (wrap it), it never gets smaller, and it does not detect an id that
//! is used again after its node has been given to somebody else. It never moves
//! a range either, so some space is lost between them: a few percent in a pool
//! of many ranges, a quarter in one of two thousand very unequal ones.

mod nodes;

use std::num::NonZeroU32;

use nodes::{NONE, Node, Nodes};

/// Bits of mantissa in a size class.
const MANTISSA_BITS: u32 = 5;
/// Size classes for each exponent, and the mask for the mantissa plus one.
const SUB_BINS: u32 = 1 << MANTISSA_BITS;
/// Exponents; 28 of them can occur for sizes that fit in 32 bits.
const TOP_BINS: u32 = 32;
/// How many ranges of its own bin a request looks at before it rounds up.
const NEAR_LOOKS: usize = 8;

/// Names an allocated range; must be given back to the `FreeSpace` that made it.
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
    /// One bit for each exponent that has a free range.
    tops: u32,
    /// For each exponent, one bit for each mantissa that has a free range.
    subs: [u32; TOP_BINS as usize],
    /// The first free range of each bin.
    heads: Box<[u32]>,
    nodes: Nodes,
    /// The first range of the row.
    first: u32,
    /// Where it begins: what is added lies below.
    start: u32,
    /// How much was added.
    granules: u32,
    free_granules: u32,
    free_ranges: usize,
}

/// How many bits of a length its size class drops.
#[inline]
fn dropped_bits(granules: u32) -> u32 {
    // Lengths below twice as many as there are mantissas have a bin each.
    (granules | SUB_BINS).ilog2() - MANTISSA_BITS
}

/// The bin a free range of this length lies in: its size class rounded down.
#[inline]
fn bin_of(granules: u32) -> u32 {
    let dropped = dropped_bits(granules);
    // What is left of a length that drops bits is a mantissa and the bit above it, which adds one to the exponent.
    (dropped << MANTISSA_BITS) + (granules >> dropped)
}

/// The first bin in which every range has at least this length. May be one past
/// the last bin that any length lies in.
#[inline]
fn bin_at_least(granules: u32) -> u32 {
    let dropped = granules & ((1 << dropped_bits(granules)) - 1);
    bin_of(granules) + u32::from(dropped != 0)
}

/// The first multiple of `alignment`, a power of two, at or after `offset`.
fn align_up(offset: u32, alignment: u32) -> Option<u32> {
    Some(offset.checked_add(alignment - 1)? & !(alignment - 1))
}

impl FreeSpace {
    /// An empty space: no range at all until the first `add`.
    pub(crate) fn new() -> Self {
        FreeSpace {
            tops: 0,
            subs: [0; TOP_BINS as usize],
            heads: vec![NONE; (TOP_BINS * SUB_BINS) as usize].into_boxed_slice(),
            nodes: Nodes::default(),
            first: NONE,
            start: u32::MAX,
            granules: 0,
            free_granules: 0,
            free_ranges: 0,
        }
    }

    /// Adds the granules `[offset, offset + granules)`, below everything that was
    /// added before; they merge with a free range that begins there. What is not
    /// below is not taken up.
    pub(crate) fn add(&mut self, offset: u32, granules: u32) {
        if granules == 0 || offset.checked_add(granules).is_none_or(|end| end > self.start) {
            return;
        }
        let first = self.first;
        if self.is_free(first) && self.node(first).offset == offset + granules {
            self.leave_bin(first);
            let node = self.node_mut(first);
            node.offset = offset;
            node.granules += granules;
            self.enter_bin(first);
        } else {
            self.insert_free(NONE, first, offset, granules);
        }
        self.start = offset;
        self.granules += granules;
    }

    /// Takes the granules `[offset, offset + granules)` out of the space, if all of
    /// them are free: the opposite of `add`.
    pub(crate) fn withdraw(&mut self, offset: u32, granules: u32) -> bool {
        let holds = |(_, from, length): &(u32, u32, u32)| *from <= offset && offset + granules <= from + length;
        let Some((index, ..)) = self.long_ranges(granules).find(holds) else { return false };
        let index = self.carve(index, offset, granules).index();
        let Node { before, after, .. } = *self.node(index);
        self.forget(index, before, after);
        self.granules -= granules;
        self.start = if self.first == NONE { u32::MAX } else { self.node(self.first).offset };
        true
    }

    /// Granules that were added.
    pub(crate) fn granules(&self) -> u32 {
        self.granules
    }

    /// Takes `granules` granules (0 counts as 1) at a multiple of `alignment`, a
    /// power of two in granules, and returns the range's id and offset. `None`
    /// when no free range would do, and for an alignment that is no power of two.
    pub(crate) fn allocate(&mut self, granules: u32, alignment: u32) -> Option<(RangeId, u32)> {
        let granules = granules.max(1);
        let (index, at) = self.find(granules, alignment)?;
        Some((self.carve(index, at, granules), at))
    }

    /// Takes a part of a free range, named as [`long_ranges`](Self::long_ranges) does.
    /// The part must lie in the range.
    #[inline]
    pub(crate) fn carve(&mut self, index: u32, at: u32, granules: u32) -> RangeId {
        let Node { offset, granules: length, before, .. } = *self.node(index);
        if at != offset || length == granules {
            return self.carve_within(index, at, granules);
        }
        // The common case: the free range goes on behind what is taken.
        let used = self.nodes.insert(Node::used(at, granules, before, index));
        self.lead_on(before, used);
        self.resize_free(index, |rest| {
            (rest.offset, rest.granules, rest.before) = (at + granules, length - granules, used);
        });
        RangeId::of(used)
    }

    /// The same where the free range does not go on behind what is taken, or begins in front of it.
    #[inline(never)]
    fn carve_within(&mut self, index: u32, at: u32, granules: u32) -> RangeId {
        let node = *self.node(index);
        if node.granules == granules {
            self.leave_bin(index);
            self.node_mut(index).mark_used();
            return RangeId::of(index);
        }
        // What alignment skips in front and what is left over behind stay free.
        let head = at - node.offset;
        let tail = node.granules - head - granules;
        self.leave_bin(index);
        if head > 0 {
            self.insert_free(node.before, index, node.offset, head);
        }
        if tail > 0 {
            self.insert_free(index, node.after, at + granules, tail);
        }
        let node = self.node_mut(index);
        (node.offset, node.granules) = (at, granules);
        node.mark_used();
        RangeId::of(index)
    }

    /// The free ranges of at least `granules`: index, offset, length.
    pub(crate) fn long_ranges(&self, granules: u32) -> impl Iterator<Item = (u32, u32, u32)> + '_ {
        let mut next = self.occupied_from(bin_of(granules));
        let bins = std::iter::from_fn(move || {
            let bin = next?;
            next = self.occupied_from(bin + 1);
            Some(bin)
        });
        let ranges = bins.flat_map(|bin| self.bin(bin)).map(|index| (index, self.node(index)));
        ranges
            .filter(move |(_, node)| node.granules >= granules)
            .map(|(index, node)| (index, node.offset, node.granules))
    }

    /// Asks for the record of a range that is given back soon.
    pub(crate) fn prefetch(&self, id: RangeId) {
        self.nodes.prefetch(id.index());
    }

    /// Gives a range back; it merges with a free neighbour on either side. An id
    /// that names no used range changes nothing (and stops a debug build).
    pub(crate) fn free(&mut self, id: RangeId) {
        let index = id.index();
        let Some(node) = self.used(id) else {
            debug_assert!(false, "range {index} given back, but it is not in use");
            return;
        };
        let Node { offset, granules, before, after, .. } = *node;
        let front = self.free_range(before).filter(|(from, length)| from + length == offset);
        let back = self.free_range(after).filter(|(from, _)| *from == offset + granules);
        match (front, back) {
            (None, None) => self.enter_bin(index),
            (Some(_), None) => {
                self.forget(index, before, after);
                self.resize_free(before, |front| front.granules += granules);
            }
            (None, Some(_)) => {
                self.lead_on(before, after);
                self.nodes.remove(index);
                self.resize_free(after, |back| {
                    (back.offset, back.granules, back.before) = (offset, granules + back.granules, before);
                });
            }
            (Some(_), Some((_, last))) => {
                self.leave_bin(after);
                let behind = self.node(after).after;
                self.nodes.remove(index);
                self.forget(after, before, behind);
                self.resize_free(before, |front| front.granules += granules + last);
            }
        }
    }

    /// Offset and length of a range in use; (0, 0) for an id that names none.
    #[cfg(test)]
    pub(crate) fn range(&self, id: RangeId) -> (u32, u32) {
        self.used(id).map_or((0, 0), |node| (node.offset, node.granules))
    }

    /// Every range in order of address: offset, length, whether it is in use.
    pub(crate) fn ranges(&self) -> Vec<(u32, u32, bool)> {
        let known = |index: u32| (index != NONE).then_some(index);
        let row = std::iter::successors(known(self.first), |index| known(self.node(*index).after));
        row.map(|index| self.node(index)).map(|node| (node.offset, node.granules, node.is_used())).collect()
    }

    /// Granules in free ranges.
    pub(crate) fn free_granules(&self) -> u32 {
        self.free_granules
    }

    /// Granules in ranges that are allocated.
    pub(crate) fn used_granules(&self) -> u32 {
        self.granules - self.free_granules
    }

    /// Bytes of memory that the records take.
    pub(crate) fn heap_bytes(&self) -> u64 {
        (self.nodes.heap_bytes() + size_of_val(&*self.heads)) as u64
    }

    /// Length of the longest free range; 0 when there is none.
    pub(crate) fn largest_free(&self) -> u32 {
        let longest_of = |top: u32| {
            let sub = self.subs[top as usize].checked_ilog2()?;
            let bin = self.bin((top << MANTISSA_BITS) | sub);
            bin.map(|index| self.node(index).granules).max()
        };
        self.tops.checked_ilog2().and_then(longest_of).unwrap_or(0)
    }

    /// How many free ranges there are; each is as long as can be.
    pub(crate) fn free_ranges(&self) -> usize {
        self.free_ranges
    }

    /// How many granules must be added right below `at`, at the least, for a request
    /// of this shape to fit, counting a free range that begins there; 0 when it fits
    /// already. `u32::MAX` when nothing added there would make it fit.
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

    /// A free range for the request, and the offset in it where it would lie.
    #[inline(always)] // into `allocate`: on the way of every link
    fn find(&self, granules: u32, alignment: u32) -> Option<(u32, u32)> {
        if !alignment.is_power_of_two() || granules > self.free_granules {
            return None;
        }
        let mut near = self.heads[bin_of(granules) as usize];
        for _ in 0..NEAR_LOOKS {
            if near == NONE {
                break;
            }
            if let Some(at) = self.fit(near, granules, alignment) {
                return Some((near, at));
            }
            near = self.node(near).bin_after;
        }
        // A range this long has room wherever the alignment falls in it.
        let padded = granules.checked_add(alignment - 1);
        if let Some(bin) = padded.and_then(|padded| self.occupied_from(bin_at_least(padded))) {
            let ample = self.heads[bin as usize];
            if let Some(at) = self.fit(ample, granules, alignment) {
                return Some((ample, at));
            }
        }
        self.find_anywhere(granules, alignment)
    }

    /// The same among all free ranges.
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

    /// Where in a free range a request would lie, if there is room for it.
    #[inline]
    fn fit(&self, index: u32, granules: u32, alignment: u32) -> Option<u32> {
        let node = self.node(index);
        let at = align_up(node.offset, alignment)?;
        let room = node.granules.checked_sub(at - node.offset)?;
        (room >= granules).then_some(at)
    }

    /// The first bin that holds a range, from `bin` on (at most one past the last).
    #[inline]
    fn occupied_from(&self, bin: u32) -> Option<u32> {
        let (top, sub) = (bin >> MANTISSA_BITS, bin & (SUB_BINS - 1));
        let here = self.subs[top as usize] & (u32::MAX << sub);
        if here != 0 {
            return Some((top << MANTISSA_BITS) | here.trailing_zeros());
        }
        let above = self.tops & (u32::MAX << (top + 1));
        let top = above.trailing_zeros();
        let subs = self.subs.get(top as usize)?;
        Some((top << MANTISSA_BITS) | subs.trailing_zeros())
    }

    /// The free ranges of a bin, the last one freed first.
    fn bin(&self, bin: u32) -> impl Iterator<Item = u32> + '_ {
        let known = |index: u32| (index != NONE).then_some(index);
        let next = move |&index: &u32| known(self.node(index).bin_after);
        std::iter::successors(known(self.heads[bin as usize]), next)
    }

    fn enter_bin(&mut self, index: u32) {
        let granules = self.node(index).granules;
        self.free_granules += granules;
        self.free_ranges += 1;
        self.lead_bin(bin_of(granules), index);
    }

    fn leave_bin(&mut self, index: u32) {
        let Node { granules, bin_before, bin_after, .. } = *self.node(index);
        self.free_granules -= granules;
        self.free_ranges -= 1;
        self.unlink(bin_of(granules), bin_before, bin_after);
    }

    /// Gives a free range another place and length. Most often it stays in its bin, and then no list is touched.
    #[inline]
    fn resize_free(&mut self, index: u32, resize: impl FnOnce(&mut Node)) {
        let node = self.nodes.at_mut(index);
        let before = node.granules;
        resize(node);
        let Node { granules, bin_before, bin_after, .. } = *node;
        self.free_granules = self.free_granules - before + granules;
        let (old, new) = (bin_of(before), bin_of(granules));
        if old != new {
            self.unlink(old, bin_before, bin_after);
            self.lead_bin(new, index);
        }
    }

    /// Puts a free range at the head of a bin.
    #[inline]
    fn lead_bin(&mut self, bin: u32, index: u32) {
        let head = std::mem::replace(&mut self.heads[bin as usize], index);
        let node = self.nodes.at_mut(index);
        (node.bin_before, node.bin_after) = (NONE, head);
        if head != NONE {
            self.node_mut(head).bin_before = index;
        }
        let (top, sub) = (bin >> MANTISSA_BITS, bin & (SUB_BINS - 1));
        self.tops |= 1 << top;
        self.subs[top as usize] |= 1 << sub;
    }

    /// Makes two free ranges neighbours in a bin, between which one stood; `NONE` for an end of the bin.
    #[inline]
    fn unlink(&mut self, bin: u32, before: u32, after: u32) {
        if after != NONE {
            self.node_mut(after).bin_before = before;
        }
        if before != NONE {
            self.node_mut(before).bin_after = after;
            return;
        }
        self.heads[bin as usize] = after;
        if after == NONE {
            let (top, sub) = (bin >> MANTISSA_BITS, bin & (SUB_BINS - 1));
            self.subs[top as usize] &= !(1 << sub);
            if self.subs[top as usize] == 0 {
                self.tops &= !(1 << top);
            }
        }
    }

    /// Puts a free range into the row, between two that are neighbours now (or at
    /// an end of the row, where the neighbour is `NONE`).
    fn insert_free(&mut self, before: u32, after: u32, offset: u32, granules: u32) {
        let index = self.insert(before, after, offset, granules);
        self.enter_bin(index);
    }

    /// Puts a range in use into the row, in the same way.
    #[inline]
    fn insert(&mut self, before: u32, after: u32, offset: u32, granules: u32) -> u32 {
        // Its own side of both links it brings along.
        let index = self.nodes.insert(Node::used(offset, granules, before, after));
        self.lead_on(before, index);
        self.follow(after, index);
        index
    }

    /// Makes two nodes neighbours in the row; `NONE` for an end of the row.
    #[inline]
    fn join(&mut self, before: u32, after: u32) {
        self.lead_on(before, after);
        self.follow(after, before);
    }

    /// Has a range, or the beginning of the row, lead on to another.
    #[inline]
    fn lead_on(&mut self, before: u32, after: u32) {
        match before {
            NONE => self.first = after,
            _ => self.node_mut(before).after = after,
        }
    }

    /// Has a range, if it is not the end of the row, stand behind another.
    #[inline]
    fn follow(&mut self, after: u32, before: u32) {
        if after != NONE {
            self.node_mut(after).before = before;
        }
    }

    /// Takes a range, which is in no bin, out of the row, where it stands between these two.
    #[inline]
    fn forget(&mut self, index: u32, before: u32, after: u32) {
        self.join(before, after);
        self.nodes.remove(index);
    }

    /// Where a range ends.
    fn end_of(&self, index: u32) -> u32 {
        let node = self.node(index);
        node.offset + node.granules
    }

    fn is_free(&self, index: u32) -> bool {
        index != NONE && !self.node(index).is_used()
    }

    /// Offset and length of a range of the row, if it is free.
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
