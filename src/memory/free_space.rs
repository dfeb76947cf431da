//! `FreeSpace`: which parts of a pool are free, and where the next request goes.
//!
//! Pure arithmetic on offsets. All records live out of band, in one vector of
//! nodes, so the pool itself is never read or written: it may be unmapped,
//! executable, or in another process altogether. Everything is counted in
//! granules; how many bytes a granule has is the caller's business.
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
//! does not lock (wrap it), it never shrinks, and it does not detect an id that
//! is used again after its node has been given to somebody else. It never moves
//! a range either, so some space is lost between them: a few percent in a pool
//! of many ranges, a quarter in one of two thousand very unequal ones.

/// "No node": the end of every list.
const NONE: u32 = u32::MAX;
/// Bits of mantissa in a size class.
const MANTISSA_BITS: u32 = 5;
/// Size classes for each exponent, and the mask for the mantissa plus one.
const SUB_BINS: u32 = 1 << MANTISSA_BITS;
/// Exponents; 28 of them can occur for sizes that fit in 32 bits.
const TOP_BINS: u32 = 32;
/// So many nodes are kept when they stand for nothing.
const LARGE: usize = 1024;
/// How many ranges of its own bin a request looks at before it rounds up.
const NEAR_LOOKS: usize = 8;

/// Names an allocated range; must be given back to the `FreeSpace` that made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RangeId(u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    Used,
    /// Stands for no range; waits in the list of spare nodes.
    Spare,
}

#[derive(Debug, Clone, Copy)]
struct Node {
    offset: u32,
    granules: u32,
    /// Neighbours in the row.
    before: u32,
    after: u32,
    /// Neighbours in the bin. A spare node keeps the next spare in `bin_after`.
    bin_before: u32,
    bin_after: u32,
    state: State,
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
    nodes: Vec<Node>,
    /// The first of the spare nodes, and how many there are.
    spare: u32,
    spares: usize,
    /// When so few nodes stand for something, it is worth a look whether some can go.
    trim_at: usize,
    /// The last range of the row.
    last: u32,
    /// Where the last of what was added ends.
    end: u32,
    /// How much was added.
    granules: u32,
    free_granules: u32,
    free_ranges: usize,
}

/// The bin a free range of this length lies in: its size class rounded down.
fn bin_of(granules: u32) -> u32 {
    if granules < SUB_BINS {
        return granules;
    }
    let exponent = granules.ilog2() - MANTISSA_BITS;
    ((exponent + 1) << MANTISSA_BITS) | ((granules >> exponent) & (SUB_BINS - 1))
}

/// The first bin in which every range has at least this length. May be one past
/// the last bin that any length lies in.
fn bin_at_least(granules: u32) -> u32 {
    let bin = bin_of(granules);
    let dropped_bits = (bin >> MANTISSA_BITS).saturating_sub(1);
    let dropped = granules & ((1 << dropped_bits) - 1);
    bin + u32::from(dropped != 0)
}

/// The first multiple of `alignment`, a power of two, at or after `offset`.
fn align_up(offset: u32, alignment: u32) -> Option<u32> {
    Some(offset.checked_add(alignment - 1)? & !(alignment - 1))
}

impl FreeSpace {
    /// An empty space: no range at all until the first `grow`.
    pub(crate) fn new() -> Self {
        FreeSpace {
            tops: 0,
            subs: [0; TOP_BINS as usize],
            heads: vec![NONE; (TOP_BINS * SUB_BINS) as usize].into_boxed_slice(),
            nodes: Vec::new(),
            spare: NONE,
            spares: 0,
            trim_at: 0,
            last: NONE,
            end: 0,
            granules: 0,
            free_granules: 0,
            free_ranges: 0,
        }
    }

    /// Adds the granules `[offset, offset + granules)`, beyond everything that was
    /// added before; they merge with a free range that ends there. What lies before
    /// the end of the space, or beyond `u32::MAX`, is not taken up.
    pub(crate) fn add(&mut self, offset: u32, granules: u32) {
        let granules = granules.min(u32::MAX - offset);
        if granules == 0 || offset < self.end {
            return;
        }
        let last = self.last;
        if self.is_free(last) && self.end_of(last) == offset {
            self.leave_bin(last);
            self.node_mut(last).granules += granules;
            self.enter_bin(last);
        } else {
            self.insert_free(last, NONE, offset, granules);
        }
        self.end = offset + granules;
        self.granules += granules;
    }

    /// Adds granules at the end of the space.
    #[cfg(test)]
    pub(crate) fn grow(&mut self, granules: u32) {
        self.add(self.end, granules);
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
    pub(crate) fn carve(&mut self, index: u32, at: u32, granules: u32) -> RangeId {
        self.leave_bin(index);
        let node = *self.node(index);
        // What alignment skips in front and what is left over behind go back.
        let head = at - node.offset;
        let tail = node.granules - head - granules;
        if head > 0 {
            self.insert_free(node.before, index, node.offset, head);
        }
        if tail > 0 {
            self.insert_free(index, node.after, at + granules, tail);
        }
        let node = self.node_mut(index);
        node.offset = at;
        node.granules = granules;
        node.state = State::Used;
        RangeId(index)
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

    /// Gives a range back; it merges with a free neighbour on either side. An id
    /// that names no used range changes nothing (and stops a debug build).
    pub(crate) fn free(&mut self, id: RangeId) {
        let mut index = id.0;
        let Some(node) = self.used(id) else {
            debug_assert!(false, "range {index} given back, but it is not in use");
            return;
        };
        let Node { offset, before, after, .. } = *node;
        let end = self.end_of(index);
        if self.is_free(before) && self.end_of(before) == offset {
            self.leave_bin(before);
            self.absorb_next(before);
            index = before;
        }
        if self.is_free(after) && self.node(after).offset == end {
            self.leave_bin(after);
            self.absorb_next(index);
        }
        self.enter_bin(index);
        if self.nodes.len() - self.spares <= self.trim_at && self.nodes.len() > LARGE {
            self.trim();
        }
    }

    /// Gives the memory of spare nodes back that stand behind the last one in use. Ids that are out keep their nodes.
    fn trim(&mut self) {
        let in_use = self.nodes.iter().rposition(|node| node.state != State::Spare).map_or(0, |last| last + 1);
        self.nodes.truncate(in_use);
        self.nodes.shrink_to(in_use.next_power_of_two());
        (self.spare, self.spares) = (NONE, 0);
        for index in (0..in_use).rev().filter(|index| self.nodes[*index].state == State::Spare).collect::<Vec<_>>() {
            self.make_spare(index as u32);
        }
        // Again when half as many are left, whatever stood in the way by then: so it happens seldom.
        self.trim_at = (in_use - self.spares) / 2;
    }

    /// Stands a node aside until another range needs one.
    fn make_spare(&mut self, index: u32) {
        let spare = std::mem::replace(&mut self.spare, index);
        let node = self.node_mut(index);
        node.state = State::Spare;
        node.bin_after = spare;
        self.spares += 1;
    }

    /// Offset and length of a range in use; (0, 0) for an id that names none.
    #[cfg(test)]
    pub(crate) fn range(&self, id: RangeId) -> (u32, u32) {
        self.used(id).map_or((0, 0), |node| (node.offset, node.granules))
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
        (self.nodes.capacity() * size_of::<Node>() + size_of_val(&*self.heads)) as u64
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

    /// How many granules must be added at `at`, at the least, for a request of this
    /// shape to fit, counting a free range that ends there; 0 when it fits already.
    /// `u32::MAX` when nothing added there would make it fit.
    pub(crate) fn shortfall(&self, at: u32, granules: u32, alignment: u32) -> u32 {
        let granules = granules.max(1);
        if !alignment.is_power_of_two() {
            return u32::MAX;
        }
        if self.find(granules, alignment).is_some() {
            return 0;
        }
        let start = match self.is_free(self.last) && self.end_of(self.last) == at {
            true => self.node(self.last).offset,
            false => at,
        };
        align_up(start, alignment)
            .and_then(|start| start.checked_add(granules))
            .map_or(u32::MAX, |needed| needed.saturating_sub(at))
    }

    /// A free range for the request, and the offset in it where it would lie.
    fn find(&self, granules: u32, alignment: u32) -> Option<(u32, u32)> {
        if !alignment.is_power_of_two() || granules > self.free_granules {
            return None;
        }
        // Where in a free range the request would lie, if there is room for it.
        let fit = |index: u32| {
            let node = self.node(index);
            let at = align_up(node.offset, alignment)?;
            let room = node.granules.checked_sub(at - node.offset)?;
            (room >= granules).then_some((index, at))
        };
        let own = bin_of(granules);
        if let Some(found) = self.bin(own).take(NEAR_LOOKS).find_map(fit) {
            return Some(found);
        }
        // A range this long has room wherever the alignment falls in it.
        let padded = granules.checked_add(alignment - 1);
        let ample = padded.and_then(|padded| self.occupied_from(bin_at_least(padded)));
        if let Some(found) = ample.and_then(|bin| self.bin(bin).find_map(fit)) {
            return Some(found);
        }
        let mut next = self.occupied_from(own);
        while let Some(bin) = next {
            if let Some(found) = self.bin(bin).find_map(fit) {
                return Some(found);
            }
            next = self.occupied_from(bin + 1);
        }
        None
    }

    /// The first bin that holds a range, from `bin` on (at most one past the last).
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
        let bin = bin_of(granules);
        let head = std::mem::replace(&mut self.heads[bin as usize], index);
        if head != NONE {
            self.node_mut(head).bin_before = index;
        }
        let node = self.node_mut(index);
        node.state = State::Free;
        node.bin_before = NONE;
        node.bin_after = head;
        self.tops |= 1 << (bin >> MANTISSA_BITS);
        self.subs[(bin >> MANTISSA_BITS) as usize] |= 1 << (bin & (SUB_BINS - 1));
        self.free_granules += granules;
        self.free_ranges += 1;
    }

    fn leave_bin(&mut self, index: u32) {
        let node = *self.node(index);
        if node.bin_after != NONE {
            self.node_mut(node.bin_after).bin_before = node.bin_before;
        }
        if node.bin_before != NONE {
            self.node_mut(node.bin_before).bin_after = node.bin_after;
        } else {
            let bin = bin_of(node.granules);
            self.heads[bin as usize] = node.bin_after;
            if node.bin_after == NONE {
                let top = bin >> MANTISSA_BITS;
                self.subs[top as usize] &= !(1 << (bin & (SUB_BINS - 1)));
                if self.subs[top as usize] == 0 {
                    self.tops &= !(1 << top);
                }
            }
        }
        self.free_granules -= node.granules;
        self.free_ranges -= 1;
    }

    /// Puts a free range into the row, between two that are neighbours now (or at
    /// an end of the row, where the neighbour is `NONE`).
    fn insert_free(&mut self, before: u32, after: u32, offset: u32, granules: u32) {
        let node = Node { offset, granules, before, after, bin_before: NONE, bin_after: NONE, state: State::Free };
        let mut index = self.spare;
        if index != NONE {
            self.spare = self.node(index).bin_after;
            self.spares -= 1;
            *self.node_mut(index) = node;
        } else {
            // Every node stands for at least one of at most `NONE` granules, so
            // an index never reaches `NONE`.
            index = self.nodes.len() as u32;
            self.nodes.push(node);
            self.trim_at = self.nodes.len() / 8;
        }
        self.join(before, index);
        self.join(index, after);
        self.enter_bin(index);
    }

    /// Makes two nodes neighbours in the row; `NONE` for an end of the row.
    fn join(&mut self, before: u32, after: u32) {
        if before != NONE {
            self.node_mut(before).after = after;
        }
        if after != NONE {
            self.node_mut(after).before = before;
        } else {
            self.last = before;
        }
    }

    /// Merges the next range of the row into this one; neither may be in a bin.
    fn absorb_next(&mut self, index: u32) {
        let next = self.node(index).after;
        let swallowed = *self.node(next);
        self.node_mut(index).granules += swallowed.granules;
        self.join(index, swallowed.after);
        self.make_spare(next);
    }

    /// Where a range ends.
    fn end_of(&self, index: u32) -> u32 {
        let node = self.node(index);
        node.offset + node.granules
    }

    fn is_free(&self, index: u32) -> bool {
        let node = self.nodes.get(index as usize);
        node.is_some_and(|node| node.state == State::Free)
    }

    fn used(&self, id: RangeId) -> Option<&Node> {
        let node = self.nodes.get(id.0 as usize)?;
        (node.state == State::Used).then_some(node)
    }

    fn node(&self, index: u32) -> &Node {
        &self.nodes[index as usize]
    }

    fn node_mut(&mut self, index: u32) -> &mut Node {
        &mut self.nodes[index as usize]
    }
}

#[cfg(test)]
mod tests;
