//! [`IndexPins`]: the shared pins to which entries of an index refer, by number and group of threads.
//!
//! A number takes four bytes of an entry, a reference would take eight. The entry needs them for the name.

use std::cell::Cell;
use std::num::NonZeroU32;

use crate::session::types::shared_pins::{GROUPS, SharedPin};
use crate::sync::{Arc, Weak};

/// The number of the pins of one entry in an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PinNumber(NonZeroU32);

/// Weak references, so that the index pins nothing.
#[derive(Default)]
pub(super) struct IndexPins {
    /// By group, then by number. A group without a pin for the last numbers has a shorter list.
    pins: [Vec<Weak<SharedPin>>; GROUPS],
    /// How many numbers were given out, those in `free` included.
    count: usize,
    free: Vec<PinNumber>,
}

/// Of so many lookups that find only a pin of another group, one finds nothing, and makes a pin.
const BORROWS: u32 = 16;

std::thread_local! {
    /// How many such lookups the thread made. Models run on one thread of the system, so that there is one group.
    static BORROWED: Cell<u32> = const { Cell::new(0) };
}

impl PinNumber {
    fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

impl IndexPins {
    /// A number, by which `group` finds `pin`. `None` if all numbers are used.
    pub(super) fn insert(&mut self, group: usize, pin: &Arc<SharedPin>) -> Option<PinNumber> {
        let number = match self.free.pop() {
            Some(number) => number,
            None => {
                let number = u32::try_from(self.count + 1).ok().and_then(NonZeroU32::new).map(PinNumber)?;
                self.count += 1;
                number
            }
        };
        self.set(number, group, pin);
        Some(number)
    }

    /// From now on, `group` finds `pin` by this number.
    pub(super) fn set(&mut self, number: PinNumber, group: usize, pin: &Arc<SharedPin>) {
        let pins = &mut self.pins[group];
        if pins.len() <= number.index() {
            pins.resize(number.index() + 1, Weak::new());
        }
        pins[number.index()] = Arc::downgrade(pin);
    }

    pub(super) fn remove(&mut self, number: PinNumber) {
        self.pins.iter_mut().filter_map(|pins| pins.get_mut(number.index())).for_each(|pin| *pin = Weak::new());
        self.free.push(number);
        // Releases memory after a peak.
        if self.free.len() == self.count {
            *self = IndexPins::default();
        }
    }

    /// A reference to the pin of a group, if a handle or the dylib still has one. A group without a pin gets that of another one
    /// most of the time: making one pays for a symbol that is looked up often.
    #[inline]
    pub(super) fn find(&self, number: PinNumber, group: usize) -> Option<Arc<SharedPin>> {
        self.upgrade(number, group).or_else(|| self.find_other(number))
    }

    #[cold]
    fn find_other(&self, number: PinNumber) -> Option<Arc<SharedPin>> {
        let is_due = BORROWED.get() % BORROWS == BORROWS - 1;
        BORROWED.set(BORROWED.get().wrapping_add(1));
        if is_due { None } else { (0..GROUPS).find_map(|group| self.upgrade(number, group)) }
    }

    #[inline]
    fn upgrade(&self, number: PinNumber, group: usize) -> Option<Arc<SharedPin>> {
        self.pins[group].get(number.index())?.upgrade()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::{CallEntry, CodeHold};

    struct Held;

    impl CodeHold for Held {
        fn enter_call(&self) -> Option<CallEntry> {
            None
        }
    }

    #[test]
    fn numbers_are_used_again_and_a_dropped_pin_is_not_found() {
        let [first, second] = [(); 2].map(|()| Arc::new(SharedPin::new(Box::new(Held))));
        let mut pins = IndexPins::default();
        let numbers = [&first, &second, &first].map(|pin| pins.insert(0, pin).unwrap());
        pins.remove(numbers[0]);
        assert_eq!(pins.insert(0, &second), Some(numbers[0]));
        pins.set(numbers[2], 0, &second);
        drop(first);
        assert!(numbers.iter().all(|number| Arc::ptr_eq(&pins.upgrade(*number, 0).unwrap(), &second)));
        drop(second);
        assert!(numbers.iter().all(|number| pins.upgrade(*number, 0).is_none()));
        numbers.into_iter().for_each(|number| pins.remove(number));
        assert_eq!((pins.pins.each_ref().map(Vec::capacity), pins.free.capacity()), ([0; GROUPS], 0));
    }

    #[test]
    fn each_group_finds_its_own_pin_or_mostly_that_of_another_until_the_number_is_removed() {
        let [first, second] = [(); 2].map(|()| Arc::new(SharedPin::new(Box::new(Held))));
        let mut pins = IndexPins::default();
        let [number, kept] = [(); 2].map(|()| pins.insert(0, &first).unwrap());
        let of = |pins: &IndexPins, group| pins.upgrade(number, group);
        let found = [(); BORROWS as usize].map(|()| pins.find(number, GROUPS - 1));
        let borrowed: Vec<_> = found.iter().flatten().collect();
        assert!(borrowed.iter().all(|pin| Arc::ptr_eq(pin, &first)));
        assert_eq!(borrowed.len() as u32, BORROWS - 1, "one of these lookups makes a pin");
        assert!(of(&pins, GROUPS - 1).is_none());
        pins.set(number, GROUPS - 1, &second);
        assert!(Arc::ptr_eq(&of(&pins, 0).unwrap(), &first) && Arc::ptr_eq(&of(&pins, GROUPS - 1).unwrap(), &second));
        pins.remove(number);
        assert!((0..GROUPS).all(|group| of(&pins, group).is_none()));
        // The number serves another entry, and no group finds what it had.
        assert_eq!(pins.insert(0, &second), Some(number));
        assert!((1..GROUPS).all(|group| of(&pins, group).is_none()));
        assert!(Arc::ptr_eq(&pins.upgrade(kept, 0).unwrap(), &first));
    }
}
