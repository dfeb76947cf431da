//! `FreeSpace`: which parts of a pool are free, and where the next request goes.
//!
//! Pure arithmetic on offsets. All records live out of band, in one vector of
//! nodes, so the pool itself is never read or written: it may be unmapped,
//! executable, or in another process altogether. Everything is counted in
//! granules; how many bytes a granule has is the caller's business.
//!
//! The space is one row of ranges in order of address. Every range is a node,
//! linked to its two neighbours; free ranges are linked into a second list, the
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
    /// The first of the spare nodes.
    spare: u32,
    /// The last range of the row.
    last: u32,
    end: u32,
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
            last: NONE,
            end: 0,
            free_granules: 0,
            free_ranges: 0,
        }
    }

    /// Adds `granules` fresh granules at the end of the space; they merge with a
    /// free range there. A space ends at `u32::MAX` granules at most, and what
    /// would lie beyond is not taken up: `end` tells.
    pub(crate) fn grow(&mut self, granules: u32) {
        let granules = granules.min(u32::MAX - self.end);
        if granules == 0 {
            return;
        }
        let last = self.last;
        if self.is_free(last) {
            self.leave_bin(last);
            self.node_mut(last).granules += granules;
            self.enter_bin(last);
        } else {
            self.insert_free(last, NONE, self.end, granules);
        }
        self.end += granules;
    }

    /// Granules handed in by `grow` so far.
    pub(crate) fn end(&self) -> u32 {
        self.end
    }

    /// Takes `granules` granules (0 counts as 1) at a multiple of `alignment`, a
    /// power of two in granules, and returns the range's id and offset. `None`
    /// when no free range would do, and for an alignment that is no power of two.
    pub(crate) fn allocate(&mut self, granules: u32, alignment: u32) -> Option<(RangeId, u32)> {
        let granules = granules.max(1);
        let (index, at) = self.find(granules, alignment)?;
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
        Some((RangeId(index), at))
    }

    /// Gives a range back; it merges with a free neighbour on either side. An id
    /// that names no used range changes nothing (and stops a debug build).
    pub(crate) fn free(&mut self, id: RangeId) {
        let mut index = id.0;
        let Some(node) = self.used(id) else {
            debug_assert!(false, "range {index} given back, but it is not in use");
            return;
        };
        let (before, after) = (node.before, node.after);
        if self.is_free(before) {
            self.leave_bin(before);
            self.absorb_next(before);
            index = before;
        }
        if self.is_free(after) {
            self.leave_bin(after);
            self.absorb_next(index);
        }
        self.enter_bin(index);
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
        self.end - self.free_granules
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

    /// How many granules `grow` must add, at the least, for a request of this
    /// shape to fit, counting a free range at the end; 0 when it fits already.
    /// `u32::MAX` when no growth would make it fit.
    pub(crate) fn shortfall(&self, granules: u32, alignment: u32) -> u32 {
        let granules = granules.max(1);
        if !alignment.is_power_of_two() {
            return u32::MAX;
        }
        if self.find(granules, alignment).is_some() {
            return 0;
        }
        let start = match self.is_free(self.last) {
            true => self.node(self.last).offset,
            false => self.end,
        };
        align_up(start, alignment)
            .and_then(|at| at.checked_add(granules))
            .map_or(u32::MAX, |needed| needed.saturating_sub(self.end))
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
            *self.node_mut(index) = node;
        } else {
            // Every node stands for at least one of at most `NONE` granules, so
            // an index never reaches `NONE`.
            index = self.nodes.len() as u32;
            self.nodes.push(node);
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
        let spare = std::mem::replace(&mut self.spare, next);
        let node = self.node_mut(next);
        node.state = State::Spare;
        node.bin_after = spare;
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Random numbers that are the same on every run.
    struct Dice(u64);

    impl Dice {
        fn roll(&mut self) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0
        }

        /// Many small sizes and a long tail of big ones, as functions have.
        fn lognormal_size(&mut self, median: f64, sigma: f64) -> u32 {
            let normal = (0..12).map(|_| self.roll() as f64).sum::<f64>() / 2f64.powi(64) - 6.0;
            (median * (sigma * normal).exp()).clamp(1.0, 65536.0) as u32
        }
    }

    fn space_of(granules: u32) -> FreeSpace {
        let mut space = FreeSpace::new();
        space.grow(granules);
        space
    }

    /// The naive model: the live ranges, sorted by offset, and the end.
    #[derive(Default)]
    struct Model {
        live: Vec<(u32, u32, RangeId)>,
        end: u32,
    }

    impl Model {
        fn gaps(&self) -> Vec<(u32, u32)> {
            let mut gaps = Vec::new();
            let mut from = 0;
            for &(offset, granules, _) in &self.live {
                gaps.push((from, offset - from));
                from = offset + granules;
            }
            gaps.push((from, self.end - from));
            gaps.retain(|&(_, granules)| granules > 0);
            gaps
        }

        /// The least growth with which the request fits; 0 when it fits as is.
        fn shortfall(&self, granules: u32, alignment: u32) -> u64 {
            let mut gaps = self.gaps();
            // Growth makes a gap at the end, or lengthens the one there.
            if gaps.last().is_none_or(|&(at, len)| at + len != self.end) {
                gaps.push((self.end, 0));
            }
            let missing = |&(at, len): &(u32, u32)| {
                let start = u64::from(at).next_multiple_of(u64::from(alignment));
                (start + u64::from(granules)).saturating_sub(u64::from(at + len))
            };
            match gaps.iter().any(|gap| missing(gap) == 0) {
                true => 0,
                false => missing(&gaps[gaps.len() - 1]),
            }
        }

        fn agree(&self, space: &FreeSpace) -> Result<(), TestCaseError> {
            let gaps = self.gaps();
            let free: u32 = gaps.iter().map(|gap| gap.1).sum();
            let largest = gaps.iter().map(|gap| gap.1).max().unwrap_or(0);
            prop_assert_eq!((space.end(), space.largest_free()), (self.end, largest));
            prop_assert_eq!((space.free_granules(), space.free_ranges()), (free, gaps.len()));
            prop_assert_eq!(space.used_granules(), self.end - free);
            for &(offset, granules, id) in &self.live {
                prop_assert_eq!(space.range(id), (offset, granules));
            }
            Ok(())
        }
    }

    /// What to do in tenths, a size, bits of alignment (half of them none), a pick.
    fn steps() -> impl Strategy<Value = Vec<(u8, u32, u32, usize)>> {
        let size = prop_oneof![4 => 0..40u32, 3 => 0..700u32, 1 => 0..9000u32];
        let step = (0..10u8, size, 0..20u32, any::<usize>());
        prop::collection::vec(step, 1..200)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn it_agrees_with_a_naive_model_in_every_step(steps in steps()) {
            let mut space = FreeSpace::new();
            let mut model = Model::default();
            for (kind, granules, bits, pick) in steps {
                match kind {
                    0 => {
                        space.grow(granules);
                        model.end += granules;
                    }
                    1..=5 => {
                        let alignment = 1 << bits.saturating_sub(10);
                        let shortfall = space.shortfall(granules, alignment);
                        let taken = space.allocate(granules, alignment);
                        let granules = granules.max(1);
                        let missing = model.shortfall(granules, alignment);
                        prop_assert_eq!(u64::from(shortfall), missing);
                        prop_assert_eq!(taken.is_some(), missing == 0, "room as in the model");
                        let Some((id, offset)) = taken else { continue };
                        prop_assert_eq!(offset % alignment, 0);
                        let inside = |&(at, len): &(u32, u32)| at <= offset && offset + granules <= at + len;
                        prop_assert!(model.gaps().iter().any(inside), "overlap at {offset}");
                        let place = model.live.partition_point(|live| live.0 < offset);
                        model.live.insert(place, (offset, granules, id));
                    }
                    _ if !model.live.is_empty() => {
                        let pick = pick % model.live.len();
                        space.free(model.live.remove(pick).2);
                    }
                    _ => {}
                }
                model.agree(&space)?;
            }
            for (_, _, id) in std::mem::take(&mut model.live) {
                space.free(id);
            }
            model.agree(&space)?;
            prop_assert_eq!(space.largest_free(), space.end());
        }

        #[test]
        fn every_range_of_a_rounded_up_bin_is_long_enough(
            (granules, other, bits) in (1..=u32::MAX, 1..=u32::MAX, 0..30u32),
        ) {
            let (granules, other) = ((granules >> bits).max(1), (other >> bits).max(1));
            prop_assert!(bin_at_least(granules) - bin_of(granules) <= 1);
            prop_assert_eq!(bin_of(granules.min(other)), bin_of(granules).min(bin_of(other)));
            if bin_of(other) >= bin_at_least(granules) {
                prop_assert!(other >= granules);
            }
        }

        #[test]
        fn no_input_makes_it_panic(requests in prop::collection::vec(
            (any::<u32>(), 0..3u8, any::<u32>(), 0..32u32), 1..30,
        )) {
            let mut space = FreeSpace::new();
            for (granules, kind, odd, bits) in requests {
                let alignment = if kind == 0 { odd } else { 1 << bits };
                let small = granules >> bits;
                let before = space.used_granules();
                let shortfall = space.shortfall(small, alignment);
                if kind == 2 {
                    space.grow(shortfall);
                }
                let taken = space.allocate(small, alignment);
                prop_assert_eq!(taken.is_some(), space.used_granules() > before);
                prop_assert!(taken.is_none_or(|(_, at)| at % alignment == 0));
                prop_assert_eq!(space.range(RangeId(odd)).1 > 0, space.used(RangeId(odd)).is_some());
            }
        }
    }

    #[test]
    fn absurd_requests_get_none() {
        let mut space = space_of(u32::MAX);
        space.grow(u32::MAX);
        assert_eq!(space.end(), u32::MAX);
        for alignment in [0, 3, 6, u32::MAX] {
            assert_eq!(space.allocate(1, alignment), None);
            assert_eq!(space.shortfall(1, alignment), u32::MAX);
        }
        let (_, at) = space.allocate(1, 1).unwrap();
        assert_eq!(at, 0);
        assert_eq!(space.allocate(u32::MAX, 1), None);
        assert_eq!(space.allocate((1 << 31) + 1, 1 << 31), None);
        assert_eq!(space.shortfall(u32::MAX, 1), u32::MAX);
        assert_eq!(space.allocate((1 << 31) - 1, 1 << 31).unwrap().1, 1 << 31);
    }

    #[test]
    fn nothing_counts_as_one() {
        let mut space = space_of(1);
        assert_eq!(space.allocate(0, 1), Some((RangeId(0), 0)));
        assert_eq!((space.allocate(0, 1), space.shortfall(0, 1)), (None, 1));
    }

    #[test]
    fn alignment_gives_head_and_tail_back() {
        let mut space = space_of(100);
        assert_eq!(space.allocate(3, 1).unwrap().1, 0);
        assert_eq!(space.allocate(10, 32).unwrap().1, 32);
        assert_eq!((space.free_ranges(), space.free_granules()), (2, 87));
        assert_eq!(space.allocate(29, 1).unwrap().1, 3);
        assert_eq!(space.allocate(58, 1).unwrap().1, 42);
        assert_eq!(space.free_ranges(), 0);
    }

    #[test]
    fn a_close_fit_goes_before_a_roomy_one() {
        let mut space = space_of(1000);
        let (id, _) = space.allocate(67, 1).unwrap();
        space.allocate(1, 1).unwrap();
        space.free(id);
        assert_eq!(space.allocate(67, 1).unwrap().1, 0);
    }

    #[test]
    fn full_is_said_only_after_the_whole_bin_was_looked_at() {
        // In one bin: forty ranges of 64 and, at the end of the list, one of 65.
        let mut space = FreeSpace::new();
        let mut ids = Vec::new();
        for granules in std::iter::once(65).chain([64; 40]) {
            space.grow(granules + 1);
            ids.push(space.allocate(granules, 1).unwrap().0);
            space.allocate(1, 1).unwrap();
        }
        ids.into_iter().for_each(|id| space.free(id));
        assert_eq!(space.shortfall(65, 1), 0);
        assert_eq!(space.allocate(65, 1).unwrap().1, 0);
        assert_eq!(space.allocate(65, 1), None);
    }

    #[test]
    fn steady_churn_makes_no_new_nodes() {
        let mut space = space_of(5000);
        let round = |space: &mut FreeSpace| {
            let mut dice = Dice(7);
            let mut ids = Vec::new();
            while let Some((id, _)) = space.allocate(dice.lognormal_size(20.0, 1.0), 2) {
                ids.push(id);
            }
            let (odd, even): (Vec<_>, Vec<_>) = ids.iter().partition(|id| id.0 % 2 == 1);
            odd.into_iter().chain(even).for_each(|id| space.free(id));
        };
        round(&mut space);
        let nodes = space.nodes.len();
        for _ in 0..20 {
            round(&mut space);
        }
        assert_eq!(space.nodes.len(), nodes);
        assert_eq!((space.free_ranges(), space.largest_free()), (1, 5000));
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "not in use")]
    fn a_debug_build_stops_at_a_double_free() {
        let mut space = space_of(10);
        let (id, _) = space.allocate(5, 1).unwrap();
        space.free(id);
        space.free(id);
    }

    #[test]
    fn churn_wastes_less_than_a_fifth() {
        // The heavier the tail, the bigger the pool that evens it out.
        for (seed, sigma, pool) in [(1, 0.7, 300_000), (2, 1.0, 300_000), (3, 1.4, 1_000_000)] {
            let mut dice = Dice(0x9E37_79B9_7F4A_7C15 ^ seed);
            let (mut space, mut live, mut peak) = (FreeSpace::new(), Vec::new(), 0);
            for _ in 0..100_000 {
                if space.used_granules() < pool {
                    let granules = dice.lognormal_size(48.0, sigma);
                    let alignment = if dice.roll() & 7 == 0 { 4 } else { 1 };
                    space.grow(space.shortfall(granules, alignment));
                    live.push(space.allocate(granules, alignment).unwrap().0);
                    peak = peak.max(space.used_granules());
                } else {
                    let pick = dice.roll() as usize % live.len();
                    space.free(live.swap_remove(pick));
                }
            }
            let waste = 100.0 * (f64::from(space.end()) / f64::from(peak) - 1.0);
            assert!(waste < 20.0, "sigma {sigma}: {waste:.1} % wasted");
        }
    }
}
