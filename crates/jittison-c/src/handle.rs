//! Handles: numbers that name values of this library. A number that names nothing is an error, never a crash.
//!
//! ```text
//!   63    56 55              24 23        0
//!  ┌────────┬──────────────────┬───────────┐
//!  │  kind  │    generation    │   slot    │
//!  └────────┴──────────────────┴───────────┘
//! ```
//!
//! Each kind has a table. A slot counts its uses in `generation`, so a released handle differs from later handles of the
//! slot. A slot whose generation is used up is not used again. No kind is 0, so the null handle is of no kind.
//!
//! A lookup clones an `Arc`, so a value that one thread releases stays alive while other threads use it.

use std::sync::Arc;

use parking_lot::RwLock;

use crate::error::Failure;

/// What a handle names. The numbers are part of no interface.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Session = 1,
    Dylib,
    Tracker,
    Function,
    Removal,
    Guard,
    Call,
    Stub,
    Patchable,
    Patch,
    Manager,
    Generator,
    Responsibility,
    Pin,
    Graph,
    Link,
    Plugin,
    OnDemand,
    Reoptimizer,
    Tiered,
    Suspension,
}

impl Kind {
    /// In the order of the numbers.
    const NAMES: [(Kind, &str); 21] = [
        (Kind::Session, "session"),
        (Kind::Dylib, "dylib"),
        (Kind::Tracker, "tracker"),
        (Kind::Function, "function"),
        (Kind::Removal, "removal"),
        (Kind::Guard, "guard"),
        (Kind::Call, "call"),
        (Kind::Stub, "stub"),
        (Kind::Patchable, "patchable"),
        (Kind::Patch, "patch"),
        (Kind::Manager, "manager"),
        (Kind::Generator, "generator"),
        (Kind::Responsibility, "responsibility"),
        (Kind::Pin, "pin"),
        (Kind::Graph, "graph"),
        (Kind::Link, "link"),
        (Kind::Plugin, "plugin"),
        (Kind::OnDemand, "on-demand layer"),
        (Kind::Reoptimizer, "reoptimizer"),
        (Kind::Tiered, "set of tiered functions"),
        (Kind::Suspension, "suspended lookup"),
    ];

    pub(crate) fn name(self) -> &'static str {
        Kind::NAMES[self as usize - 1].1
    }

    fn of(bits: u64) -> Option<Kind> {
        Kind::NAMES.into_iter().map(|(kind, _)| kind).find(|kind| *kind as u64 == bits >> KIND_SHIFT)
    }
}

/// The values of one kind.
pub(crate) struct Table<T> {
    kind: Kind,
    slots: RwLock<Slots<T>>,
}

struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

struct Slot<T> {
    generation: u32,
    value: Option<Arc<T>>,
}

impl<T> Table<T> {
    pub(crate) const fn new(kind: Kind) -> Table<T> {
        Table { kind, slots: RwLock::new(Slots { slots: Vec::new(), free: Vec::new() }) }
    }

    /// Stores a value. Returns its handle.
    pub(crate) fn insert(&self, value: T) -> Result<u64, Failure> {
        let value = Some(Arc::new(value));
        let mut table = self.slots.write();
        let index = match table.free.pop() {
            Some(index) => index,
            None if table.slots.len() == SLOTS => return Err(Failure::too_many_handles(self.kind)),
            None => {
                table.slots.push(Slot { generation: 0, value: None });
                table.slots.len() as u32 - 1
            }
        };
        let slot = &mut table.slots[index as usize];
        slot.generation += 1;
        slot.value = value;
        Ok((self.kind as u64) << KIND_SHIFT | (slot.generation as u64) << GENERATION_SHIFT | index as u64)
    }

    /// The value of a handle.
    #[inline]
    pub(crate) fn get(&self, bits: u64) -> Result<Arc<T>, Failure> {
        let table = self.slots.read();
        match table.index_of(self.kind, bits).and_then(|index| table.slots[index].value.clone()) {
            Some(value) => Ok(value),
            None => Err(self.refusal(bits)),
        }
    }

    /// Takes the value of a handle away. The handle names nothing any more.
    pub(crate) fn take(&self, bits: u64) -> Result<Arc<T>, Failure> {
        self.take_if(bits, |_| Ok(()))
    }

    /// As [`take`](Self::take), if `check` allows it.
    pub(crate) fn take_if(&self, bits: u64, check: impl FnOnce(&T) -> Result<(), Failure>) -> Result<Arc<T>, Failure> {
        let mut table = self.slots.write();
        let Some(index) = table.index_of(self.kind, bits) else { return Err(self.refusal(bits)) };
        let slot = &mut table.slots[index];
        if let Some(value) = &slot.value {
            check(value)?;
        }
        let Some(value) = slot.value.take() else { return Err(self.refusal(bits)) };
        if slot.generation < u32::MAX {
            table.free.push(index as u32);
        }
        Ok(value)
    }

    fn refusal(&self, bits: u64) -> Failure {
        let problem = match Kind::of(bits) {
            _ if bits == 0 => "is null".to_string(),
            None => "was not made by this library".to_string(),
            Some(kind) if kind != self.kind => format!("names a {}", kind.name()),
            Some(_) => "was released, or was not made by this library".to_string(),
        };
        Failure::Handle(format!("the {} handle {bits:#x} {problem}; nothing was done", self.kind.name()))
    }
}

impl<T> Slots<T> {
    /// The slot of a handle, if the kind and the generation agree.
    #[inline]
    fn index_of(&self, kind: Kind, bits: u64) -> Option<usize> {
        let index = (bits & (SLOTS as u64 - 1)) as usize;
        let generation = (bits >> GENERATION_SHIFT) as u32;
        let slot = self.slots.get(index)?;
        (bits >> KIND_SHIFT == kind as u64 && slot.generation == generation).then_some(index)
    }
}

const KIND_SHIFT: u32 = 56;
const GENERATION_SHIFT: u32 = 24;
/// The largest number of handles of one kind at one time.
const SLOTS: usize = 1 << GENERATION_SHIFT;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_released_handle_names_nothing_when_its_slot_is_used_again() {
        let table = Table::new(Kind::Tracker);
        let first = table.insert("first").unwrap();
        assert_eq!(*table.take(first).unwrap(), "first");
        let second = table.insert("second").unwrap();
        assert_eq!(first as u32 & 0xff_ffff, second as u32 & 0xff_ffff);
        assert!(table.get(first).is_err() && table.take(first).is_err());
        assert_eq!(*table.get(second).unwrap(), "second");
    }

    #[test]
    fn a_handle_of_another_kind_names_nothing() {
        let (trackers, dylibs) = (Table::new(Kind::Tracker), Table::new(Kind::Dylib));
        let (tracker, dylib) = (trackers.insert(1).unwrap(), dylibs.insert(2).unwrap());
        assert!(trackers.get(dylib).is_err() && dylibs.get(tracker).is_err() && trackers.get(0).is_err());
        let Err(Failure::Handle(text)) = trackers.get(dylib) else { panic!("the kind is wrong") };
        assert!(text.contains("names a dylib"), "{text}");
    }

    #[test]
    fn every_kind_has_its_name() {
        for (index, (kind, name)) in Kind::NAMES.into_iter().enumerate() {
            assert_eq!((kind as usize, kind.name()), (index + 1, name));
        }
    }

    #[test]
    fn a_slot_is_not_used_again_when_its_generations_are_used_up() {
        let table = Table::new(Kind::Removal);
        let first = table.insert(1).unwrap();
        table.take(first).unwrap();
        table.slots.write().slots[0].generation = u32::MAX - 1;
        let last = table.insert(2).unwrap();
        table.take(last).unwrap();
        let next = table.insert(3).unwrap();
        assert_eq!(next & 0xff_ffff, 1);
        assert!(table.get(last).is_err() && table.get(first).is_err());
    }
}
