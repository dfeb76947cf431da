//! Compares the free space with a naive model, and tests the cases that the model does not reach.

use super::*;
use crate::base::sized;
use proptest::prelude::*;

/// A generator of random numbers that are the same on each run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Many small sizes and a few large ones, as functions have.
    fn lognormal_size(&mut self, median: f64, sigma: f64) -> u32 {
        let normal = (0..12).map(|_| self.roll() as f64).sum::<f64>() / 2f64.powi(64) - 6.0;
        (median * (sigma * normal).exp()).clamp(1.0, 65536.0) as u32
    }
}

fn space_of(granules: u32) -> FreeSpace {
    let mut space = FreeSpace::new();
    space.add(0, granules);
    space
}

/// The end of spaces that grow downwards. It is aligned to every alignment that the tests request.
const TOP: u32 = 1 << 28;

fn start(space: &FreeSpace) -> u32 {
    if space.granules() == 0 { TOP } else { space.start }
}

/// Adds granules right below the start of the space.
fn grow(space: &mut FreeSpace, granules: u32) {
    space.add(start(space) - granules, granules);
}

/// The naive model: the live ranges, sorted by offset, and the start of the space.
struct Model {
    live: Vec<(u32, u32, RangeId)>,
    start: u32,
}

impl Model {
    fn gaps(&self) -> Vec<(u32, u32)> {
        let mut gaps = Vec::new();
        let mut from = self.start;
        for &(offset, granules, _) in &self.live {
            gaps.push((from, offset - from));
            from = offset + granules;
        }
        gaps.push((from, TOP - from));
        gaps.retain(|&(_, granules)| granules > 0);
        gaps
    }

    /// The least growth after which the request fits; 0 if it fits already.
    fn shortfall(&self, granules: u32, alignment: u32) -> u64 {
        let mut gaps = self.gaps();
        // Growth makes a gap at the start, or makes the gap at the start longer.
        if gaps.first().is_none_or(|&(at, _)| at != self.start) {
            gaps.insert(0, (self.start, 0));
        }
        let missing = |&(at, len): &(u32, u32)| {
            let start = (u64::from(at + len) - u64::from(granules)) / u64::from(alignment) * u64::from(alignment);
            u64::from(at).saturating_sub(start)
        };
        match gaps.iter().any(|gap| missing(gap) == 0) {
            true => 0,
            false => missing(&gaps[0]),
        }
    }

    fn compare(&self, space: &FreeSpace) -> Result<(), TestCaseError> {
        let gaps = self.gaps();
        let free: u32 = gaps.iter().map(|gap| gap.1).sum();
        let largest = gaps.iter().map(|gap| gap.1).max().unwrap_or(0);
        prop_assert_eq!((start(space), space.largest_free()), (self.start, largest));
        prop_assert_eq!((space.free_granules(), space.free_ranges()), (free, gaps.len()));
        prop_assert_eq!(space.used_granules(), TOP - self.start - free);
        for &(offset, granules, id) in &self.live {
            prop_assert_eq!(space.range(id), (offset, granules));
        }
        Ok(())
    }
}

/// Steps: a kind (0 to 9), a size, bits of alignment (half of the steps have none), and a random index.
fn steps() -> impl Strategy<Value = Vec<(u8, u32, u32, usize)>> {
    let size = prop_oneof![4 => 0..40u32, 3 => 0..700u32, 1 => 0..9000u32];
    let step = (0..10u8, size, 0..20u32, any::<usize>());
    prop::collection::vec(step, 1..sized(200, 30))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn the_free_space_agrees_with_a_naive_model_after_every_step(steps in steps()) {
        let mut space = FreeSpace::new();
        let mut model = Model { live: Vec::new(), start: TOP };
        for (kind, granules, bits, pick) in steps {
            match kind {
                0 => {
                    grow(&mut space, granules);
                    model.start -= granules;
                }
                1..=5 => {
                    let alignment = 1 << bits.saturating_sub(10);
                    let shortfall = space.shortfall(start(&space), granules, alignment);
                    let taken = space.allocate(granules, alignment);
                    let granules = granules.max(1);
                    let missing = model.shortfall(granules, alignment);
                    prop_assert_eq!(u64::from(shortfall), missing);
                    prop_assert_eq!(taken.is_some(), missing == 0, "fits as in the model");
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
            model.compare(&space)?;
        }
        for (_, _, id) in std::mem::take(&mut model.live) {
            space.free(id);
        }
        model.compare(&space)?;
        prop_assert_eq!(space.largest_free(), TOP - model.start);
    }

    #[test]
    fn every_range_of_a_bin_that_is_rounded_up_is_long_enough(
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
    fn no_request_panics(requests in prop::collection::vec(
        (any::<u32>(), 0..3u8, any::<u32>(), 0..32u32), 1..30,
    )) {
        let mut space = FreeSpace::new();
        for (granules, kind, odd, bits) in requests {
            let alignment = if kind == 0 { odd } else { 1 << bits };
            let small = granules >> bits;
            let before = space.used_granules();
            let shortfall = space.shortfall(start(&space), small, alignment);
            if kind == 2 {
                grow(&mut space, shortfall.min(1 << 20));
            }
            let taken = space.allocate(small, alignment);
            prop_assert_eq!(taken.is_some(), space.used_granules() > before);
            prop_assert!(taken.is_none_or(|(_, at)| at % alignment == 0));
            prop_assert_eq!(space.range(RangeId::of(odd)).1 > 0, space.used(RangeId::of(odd)).is_some());
        }
    }
}

#[test]
fn requests_that_can_never_fit_return_none() {
    let mut space = space_of(u32::MAX);
    space.add(0, u32::MAX);
    assert_eq!(space.granules(), u32::MAX);
    for alignment in [0, 3, 6, u32::MAX] {
        assert_eq!(space.allocate(1, alignment), None);
        assert_eq!(space.shortfall(0, 1, alignment), u32::MAX);
    }
    let (_, at) = space.allocate(1, 1).unwrap();
    assert_eq!(at, 0);
    assert_eq!(space.allocate(u32::MAX, 1), None);
    assert_eq!(space.allocate((1 << 31) + 1, 1 << 31), None);
    assert_eq!(space.shortfall(0, u32::MAX, 1), u32::MAX);
    assert_eq!(space.allocate((1 << 31) - 1, 1 << 31).unwrap().1, 1 << 31);
}

#[test]
fn parts_that_do_not_touch_do_not_merge() {
    let mut space = FreeSpace::new();
    space.add(120, 10);
    space.add(100, 10);
    assert_eq!((space.granules(), space.free_ranges(), space.largest_free()), (20, 2, 10));
    let ids: Vec<_> = (0..20).map(|_| space.allocate(1, 1).unwrap().0).collect();
    assert_eq!(space.allocate(1, 1), None);
    ids.into_iter().for_each(|id| space.free(id));
    assert_eq!((space.free_granules(), space.free_ranges(), space.largest_free()), (20, 2, 10));
    // Granules right below the first part merge with it.
    assert_eq!((space.shortfall(100, 15, 1), space.shortfall(95, 15, 1)), (5, 15));
    space.add(95, 5);
    assert_eq!((space.free_ranges(), space.allocate(15, 1).unwrap().1), (2, 95));
    // Granules that are not below the start are not added.
    space.add(96, 5);
    space.add(300, 5);
    assert_eq!(space.granules(), 25);
}

#[test]
fn free_granules_can_be_withdrawn_and_added_again() {
    let mut space = FreeSpace::new();
    [(200, 100), (100, 100), (0, 100)].into_iter().for_each(|(offset, granules)| space.add(offset, granules));
    let (one, at) = space.allocate(1, 1).unwrap();
    assert_eq!(at, 0);
    assert!(!space.withdraw(0, 100), "a range there is in use");
    assert!(!space.withdraw(250, 100), "the space does not own all of it");
    assert!(space.withdraw(100, 100));
    assert_eq!((space.granules(), space.free_granules(), space.free_ranges(), space.start), (200, 199, 2, 0));
    space.free(one);
    assert_eq!(space.free_ranges(), 2, "the withdrawn granules are between them");
    assert!(space.withdraw(0, 100) && space.start == 200);
    space.add(100, 100);
    assert_eq!((space.free_ranges(), space.largest_free()), (1, 200));
    assert!(space.withdraw(100, 200) && space.granules() == 0);
    space.add(50, 10);
    assert_eq!(space.allocate(10, 1).unwrap().1, 50);
}

#[test]
fn a_part_of_a_free_range_can_be_allocated_and_merges_again() {
    let mut space = space_of(100);
    space.allocate(10, 1).unwrap();
    let long: Vec<_> = space.long_ranges(50).collect();
    let [(index, offset, granules)] = long[..] else { panic!("{long:?}") };
    assert_eq!((offset, granules), (10, 90));
    assert_eq!(space.long_ranges(91).count(), 0);
    let id = space.carve(index, 40, 20);
    assert_eq!((space.range(id), space.free_ranges(), space.free_granules()), ((40, 20), 2, 70));
    space.free(id);
    assert_eq!((space.free_ranges(), space.largest_free()), (1, 90));
}

#[cfg_attr(miri, ignore = "takes minutes, and shorter tests run the same steps")]
#[test]
fn pages_of_nodes_are_freed_with_their_ranges() {
    let mut space = FreeSpace::new();
    space.add(200_000, 50_000);
    space.add(0, 100_000);
    let (live, at) = space.allocate(1, 1).unwrap();
    for _ in 0..3 {
        let ids: Vec<_> = (0..100_000).map(|_| space.allocate(1, 1).unwrap().0).collect();
        assert!(space.heap_bytes() > 2_000_000);
        ids.into_iter().for_each(|id| space.free(id));
        assert!(space.heap_bytes() < 200_000, "{}", space.heap_bytes());
        assert_eq!((space.free_granules(), space.free_ranges(), space.range(live)), (149_999, 2, (at, 1)));
    }
}

#[test]
fn a_range_that_is_allocated_and_freed_repeatedly_allocates_no_page_of_nodes() {
    let mut space = space_of(100_000);
    let ids: Vec<_> = (0..sized(1_000, 100)).map(|_| space.allocate(1, 1).unwrap().0).collect();
    ids.into_iter().for_each(|id| space.free(id));
    let (id, _) = space.allocate(1, 1).unwrap();
    space.free(id);
    let pages = space.nodes.page_addresses();
    for _ in 0..sized(100, 5) {
        let (id, _) = space.allocate(1, 1).unwrap();
        assert_eq!(space.nodes.page_addresses(), pages);
        space.free(id);
    }
}

#[test]
fn a_request_of_zero_granules_gets_one() {
    let mut space = FreeSpace::new();
    grow(&mut space, 1);
    assert_eq!(space.allocate(0, 1), Some((RangeId::of(0), TOP - 1)));
    assert_eq!((space.allocate(0, 1), space.shortfall(TOP - 1, 0, 1)), (None, 1));
}

#[test]
fn the_parts_before_and_after_an_aligned_range_stay_free() {
    let mut space = space_of(100);
    assert_eq!(space.allocate(3, 1).unwrap().1, 0);
    assert_eq!(space.allocate(10, 32).unwrap().1, 32);
    assert_eq!((space.free_ranges(), space.free_granules()), (2, 87));
    assert_eq!(space.allocate(29, 1).unwrap().1, 3);
    assert_eq!(space.allocate(58, 1).unwrap().1, 42);
    assert_eq!(space.free_ranges(), 0);
}

#[test]
fn a_close_fit_is_preferred_to_a_longer_range() {
    let mut space = space_of(1000);
    let (id, _) = space.allocate(67, 1).unwrap();
    space.allocate(1, 1).unwrap();
    space.free(id);
    assert_eq!(space.allocate(67, 1).unwrap().1, 0);
}

#[test]
fn a_request_fails_only_after_all_ranges_of_its_bin_were_checked() {
    // One bin has forty ranges of 64 and, at its end, one of 65.
    let mut space = FreeSpace::new();
    let mut ids = Vec::new();
    for granules in std::iter::once(65).chain([64; 40]) {
        grow(&mut space, granules + 1);
        ids.push(space.allocate(granules, 1).unwrap().0);
        space.allocate(1, 1).unwrap();
    }
    ids.into_iter().for_each(|id| space.free(id));
    assert_eq!(space.shortfall(start(&space), 65, 1), 0);
    assert_eq!(space.allocate(65, 1).unwrap().1, TOP - 66);
    assert_eq!(space.allocate(65, 1), None);
}

#[test]
fn repeated_rounds_of_allocation_use_no_more_memory_for_nodes() {
    let mut space = space_of(5000);
    let round = |space: &mut FreeSpace| {
        let mut dice = Dice(7);
        let mut ids = Vec::new();
        while let Some((id, _)) = space.allocate(dice.lognormal_size(20.0, 1.0), 2) {
            ids.push(id);
        }
        let (odd, even): (Vec<_>, Vec<_>) = ids.iter().partition(|id| id.index() % 2 == 1);
        odd.into_iter().chain(even).for_each(|id| space.free(id));
    };
    round(&mut space);
    let nodes = space.nodes.heap_bytes();
    for _ in 0..sized(20, 1) {
        round(&mut space);
    }
    assert_eq!(space.nodes.heap_bytes(), nodes);
    assert_eq!((space.free_ranges(), space.largest_free()), (1, 5000));
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "not in use")]
fn a_debug_build_panics_at_a_double_free() {
    let mut space = space_of(10);
    let (id, _) = space.allocate(5, 1).unwrap();
    space.free(id);
    space.free(id);
}

#[cfg_attr(miri, ignore = "takes minutes, and shorter tests run the same steps")]
#[test]
fn random_allocation_and_freeing_wastes_less_than_a_fifth() {
    // With a larger share of large sizes, the pool is larger, too.
    for (seed, sigma, pool) in [(1, 0.7, 300_000), (2, 1.0, 300_000), (3, 1.4, 1_000_000)] {
        let mut dice = Dice(0x9E37_79B9_7F4A_7C15 ^ seed);
        let (mut space, mut live, mut peak) = (FreeSpace::new(), Vec::new(), 0);
        for _ in 0..100_000 {
            if space.used_granules() < pool {
                let granules = dice.lognormal_size(48.0, sigma);
                let alignment = if dice.roll() & 7 == 0 { 4 } else { 1 };
                let missing = space.shortfall(start(&space), granules, alignment);
                grow(&mut space, missing);
                live.push(space.allocate(granules, alignment).unwrap().0);
                peak = peak.max(space.used_granules());
            } else {
                let pick = dice.roll() as usize % live.len();
                space.free(live.swap_remove(pick));
            }
        }
        let waste = 100.0 * (f64::from(space.granules()) / f64::from(peak) - 1.0);
        assert!(waste < 20.0, "sigma {sigma}: {waste:.1} % wasted");
    }
}

#[test]
fn ranges_lists_all_added_granules_without_gap_or_overlap() {
    let mut space = FreeSpace::new();
    assert_eq!(space.ranges(), []);
    space.add(200, 50);
    space.add(10, 100);
    let ids: Vec<_> = (0..5).map(|_| space.allocate(10, 1).unwrap().0).collect();
    space.free(ids[1]);
    space.free(ids[2]);
    let ranges = space.ranges();
    assert_eq!(ranges.iter().filter(|range| range.2).map(|range| range.1).sum::<u32>(), space.used_granules());
    assert_eq!(ranges.iter().filter(|range| !range.2).map(|range| range.1).sum::<u32>(), space.free_granules());
    assert_eq!(ranges.iter().filter(|range| !range.2).count(), space.free_ranges());
    for pair in ranges.windows(2) {
        assert!(pair[0].0 + pair[0].1 == pair[1].0 || pair[1].0 == 200, "{ranges:?}");
    }
    assert_eq!((ranges[0].0, ranges[ranges.len() - 1].0 + ranges[ranges.len() - 1].1), (10, 250));
}
