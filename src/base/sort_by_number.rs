//! [`sort_by_number`]: a sort of which little is compiled again for each type.
//!
//! The sort of the standard library is compiled for each type and each key: about 6 KB of code each time. Lists that are short, or
//! rarely in disorder, use this one.

/// Up to this length, elements are inserted where they belong, without an allocation.
const MAX_INSERTION: usize = 20;

/// Sorts by a number. Elements of the same number keep their order.
pub(crate) fn sort_by_number<T>(items: &mut [T], number: impl Fn(&T) -> u128) {
    if items.is_sorted_by_key(&number) {
        return;
    }
    if items.len() <= MAX_INSERTION {
        for end in 1..items.len() {
            let mut at = end;
            while at > 0 && number(&items[at]) < number(&items[at - 1]) {
                items.swap(at, at - 1);
                at -= 1;
            }
        }
        return;
    }
    let mut order = sorted_positions(items.iter().map(number).collect());
    // Each round puts the elements of one cycle in their places.
    for start in 0..items.len() {
        let mut at = start;
        loop {
            let source = std::mem::replace(&mut order[at], at);
            if source == start {
                break;
            }
            items.swap(at, source);
            at = source;
        }
    }
}

/// A number whose order is that of pairs of numbers.
pub(crate) fn pair(first: impl Into<u64>, second: impl Into<u64>) -> u128 {
    u128::from(first.into()) << 64 | u128::from(second.into())
}

/// The positions of the numbers in ascending order.
fn sorted_positions(numbers: Vec<u128>) -> Vec<usize> {
    let mut order: Vec<(u128, usize)> = numbers.into_iter().zip(0..).collect();
    order.sort_unstable();
    order.into_iter().map(|(_, position)| position).collect()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn lists_are_sorted_as_the_standard_library_sorts_them() {
        let mut random = fastrand::Rng::with_seed(3);
        for length in [0, 1, 2, 3, 19, 20, 21, 22, 100, 1000] {
            for range in [1, 3, 50, 10_000] {
                let items: Vec<(u64, usize)> = (0..length).map(|index| (random.u64(..range), index)).collect();
                let (mut own, mut expected) = (items.clone(), items);
                sort_by_number(&mut own, |(number, _)| u128::from(*number));
                expected.sort_by_key(|(number, _)| *number);
                assert_eq!(own, expected, "{length} elements below {range}");
            }
        }
    }

    #[test]
    fn pairs_are_ordered_by_their_first_number() {
        let pairs = [pair(0u64, u64::MAX), pair(1u32, 0u32), pair(1u32, 1u32), pair(u64::MAX, 0u32)];
        assert!(pairs.is_sorted_by(|a, b| a < b));
    }
}
