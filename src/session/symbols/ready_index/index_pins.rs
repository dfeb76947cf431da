//! [`IndexPins`]: the shared pins to which entries of an index refer, by number.
//!
//! A number takes four bytes of an entry, a reference would take eight. The entry needs them for the name.

use std::num::NonZeroU32;

use crate::session::types::shared_pins::SharedPin;
use crate::sync::{Arc, Weak};

/// The number of a pin in one index. One entry has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PinNumber(NonZeroU32);

/// Weak references, so that the index pins nothing.
#[derive(Default)]
pub(super) struct IndexPins {
    pins: Vec<Weak<SharedPin>>,
    free: Vec<PinNumber>,
}

impl PinNumber {
    fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

impl IndexPins {
    /// A number for `pin`. `None` if all numbers are used.
    pub(super) fn insert(&mut self, pin: &Arc<SharedPin>) -> Option<PinNumber> {
        let pin = Arc::downgrade(pin);
        if let Some(number) = self.free.pop() {
            self.pins[number.index()] = pin;
            return Some(number);
        }
        self.pins.push(pin);
        u32::try_from(self.pins.len()).ok().and_then(NonZeroU32::new).map(PinNumber)
    }

    /// Replaces the pin with this number.
    pub(super) fn replace(&mut self, number: PinNumber, pin: &Arc<SharedPin>) {
        self.pins[number.index()] = Arc::downgrade(pin);
    }

    pub(super) fn remove(&mut self, number: PinNumber) {
        self.pins[number.index()] = Weak::new();
        self.free.push(number);
        // Releases memory after a peak.
        if self.free.len() == self.pins.len() {
            *self = IndexPins::default();
        }
    }

    /// A reference to a pin, if some handle or the dylib still has one.
    #[inline]
    pub(super) fn upgrade(&self, number: PinNumber) -> Option<Arc<SharedPin>> {
        self.pins[number.index()].upgrade()
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
        let numbers = [&first, &second, &first].map(|pin| pins.insert(pin).unwrap());
        pins.remove(numbers[0]);
        assert_eq!(pins.insert(&second), Some(numbers[0]));
        pins.replace(numbers[2], &second);
        drop(first);
        assert!(numbers.iter().all(|number| Arc::ptr_eq(&pins.upgrade(*number).unwrap(), &second)));
        drop(second);
        assert!(numbers.iter().all(|number| pins.upgrade(*number).is_none()));
        numbers.into_iter().for_each(|number| pins.remove(number));
        assert_eq!((pins.pins.capacity(), pins.free.capacity()), (0, 0));
    }
}
