//! [`sort_by_number`] and [`sort_by_order`]: sorts of which little is compiled again for each type.
//!
//! The sort of the standard library is compiled for each type and each key: about 6 KB of code each time. Lists that are short, or
//! rarely in disorder, use these. What is compiled for a type reads the numbers, or compares two elements, and swaps two elements.

use std::cmp::Ordering;

/// Up to this length, elements are inserted where they belong, without an allocation.
const MAX_INSERTION: usize = 20;

/// Sorts by a number. Elements of the same number keep their order.
pub(crate) fn sort_by_number<T>(items: &mut [T], number: impl Fn(&T) -> u128) {
    if items.is_sorted_by_key(&number) {
        return;
    }
    if items.len() <= MAX_INSERTION {
        let mut numbers = [0; MAX_INSERTION];
        for (place, item) in numbers.iter_mut().zip(&*items) {
            *place = number(item);
        }
        insert_each(&mut numbers[..items.len()], &mut |a, b| items.swap(a, b));
    } else {
        let order = sorted_positions(items.iter().map(number).collect());
        apply_order(order, &mut |a, b| items.swap(a, b));
    }
}

/// Sorts by a comparison. Elements that compare equal keep their order.
pub(crate) fn sort_by_order<T>(items: &mut [T], compare: impl Fn(&T, &T) -> Ordering) {
    if let Some(order) = positions_in_order(items.len(), &|a, b| compare(&items[a], &items[b])) {
        apply_order(order, &mut |a, b| items.swap(a, b));
    }
}

/// Sorts by insertion. Calls `swap` for each two neighbours that change places.
fn insert_each(numbers: &mut [u128], swap: &mut dyn FnMut(usize, usize)) {
    for end in 1..numbers.len() {
        let mut at = end;
        while at > 0 && numbers[at] < numbers[at - 1] {
            numbers.swap(at, at - 1);
            swap(at, at - 1);
            at -= 1;
        }
    }
}

/// Puts the elements in order. `order` has the position of the element that belongs at each place.
fn apply_order(mut order: Vec<usize>, swap: &mut dyn FnMut(usize, usize)) {
    // Each round puts the elements of one cycle in their places.
    for start in 0..order.len() {
        let mut at = start;
        loop {
            let source = std::mem::replace(&mut order[at], at);
            if source == start {
                break;
            }
            swap(at, source);
            at = source;
        }
    }
}

/// The positions of elements in order of `compare`. `None`: they are in order.
fn positions_in_order(length: usize, compare: &dyn Fn(usize, usize) -> Ordering) -> Option<Vec<usize>> {
    if (1..length).all(|at| compare(at - 1, at).is_le()) {
        return None;
    }
    let mut order: Vec<usize> = (0..length).collect();
    order.sort_by(|a, b| compare(*a, *b));
    Some(order)
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
    fn a_comparison_sorts_as_the_standard_library_does() {
        let mut random = fastrand::Rng::with_seed(5);
        for length in [0, 1, 2, 20, 21, 300] {
            for range in [1, 4, 10_000] {
                let items: Vec<(u64, usize)> = (0..length).map(|index| (random.u64(..range), index)).collect();
                let (mut own, mut expected) = (items.clone(), items);
                sort_by_order(&mut own, |a, b| b.0.cmp(&a.0));
                expected.sort_by_key(|item| std::cmp::Reverse(item.0));
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
