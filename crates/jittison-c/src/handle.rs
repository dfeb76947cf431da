//! Handles: numbers that name values of this library. A number that names nothing is an error, never a crash.
//!
//! ```text
//!   63    56 55              24 23        0
//!  ┌────────┬──────────────────┬───────────┐
//!  │  kind  │    generation    │   slot    │
//!  └────────┴──────────────────┴───────────┘
//! ```
//!
//! Each kind has a table. A slot counts its values in `generation`, so a released handle differs from later handles of the
//! slot. A slot whose generations are used up is not used again. No kind is 0, so the null handle is of no kind.
//!
//! A value that one thread releases stays alive while other threads use it: `slot.rs` knows its users. A value that belongs to
//! one thread needs no such knowledge: `owned_slot.rs`. A lookup takes no lock.

use std::cell::{Cell, Ref, RefMut};
use std::marker::PhantomData;
use std::mem;
use std::ops::Deref;
use std::ptr;
use std::sync::OnceLock;

use parking_lot::Mutex;

use crate::error::Failure;
use crate::owned_slot::{OwnedSlot, Refused};
use crate::slot::{Counted, NotLive, Slot, Use, Used};
use crate::thread_number::{ThreadNumber, hazards};

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
    Reloader,
}

impl Kind {
    /// In the order of the numbers.
    const NAMES: [(Kind, &str); 22] = [
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
        (Kind::Reloader, "reloader"),
    ];

    pub(crate) fn name(self) -> &'static str {
        Kind::NAMES[self as usize - 1].1
    }

    fn of(bits: u64) -> Option<Kind> {
        Kind::NAMES.into_iter().map(|(kind, _)| kind).find(|kind| *kind as u64 == bits >> KIND_SHIFT)
    }
}

/// The values of one kind. `S` says who may use a value.
pub(crate) struct Table<T: 'static, S: 'static = Slot<T>> {
    kind: Kind,
    /// Chunk `n` has `FIRST_CHUNK << n` slots. Chunks are never freed, so that a lookup takes no lock.
    chunks: [OnceLock<Box<[S]>>; CHUNKS],
    empty: Mutex<EmptySlots>,
    values: PhantomData<fn(T)>,
}

/// The values of one kind, each of which belongs to a thread.
pub(crate) type OwnedTable<T> = Table<T, OwnedSlot<T>>;

/// A place of a table.
pub(crate) trait Place {
    fn empty() -> Self;
    fn generation(&self) -> u32;
}

impl<T> Place for Slot<T> {
    fn empty() -> Slot<T> {
        Slot::new()
    }

    #[inline]
    fn generation(&self) -> u32 {
        self.generation()
    }
}

impl<T> Place for OwnedSlot<T> {
    fn empty() -> OwnedSlot<T> {
        OwnedSlot::new()
    }

    #[inline]
    fn generation(&self) -> u32 {
        self.generation()
    }
}

/// The slots without a value.
struct EmptySlots {
    /// Slots that had a value.
    used: Vec<u32>,
    /// This slot and those behind it never had one.
    next: u32,
}

impl EmptySlots {
    fn take(&mut self) -> Option<u32> {
        if let Some(index) = self.used.pop() {
            return Some(index);
        }
        let index = self.next;
        (index < SLOTS).then(|| self.next += 1).map(|()| index)
    }
}

thread_local! {
    static SPARE: Spare = const { Spare([const { Cell::new(None) }; Kind::NAMES.len() + 1]) };
}

/// For each kind, the slot that this thread emptied last, and the list that it belongs to. The next value goes there without a lock.
struct Spare([Cell<Option<SpareSlot>>; Kind::NAMES.len() + 1]);

/// The list of a table, and one of its slots.
type SpareSlot = (&'static Mutex<EmptySlots>, u32);

impl Spare {
    fn take(&self, kind: Kind, list: &'static Mutex<EmptySlots>) -> Option<u32> {
        let place = &self.0[kind as usize];
        let (of, index) = place.get()?;
        ptr::eq(of, list).then(|| place.set(None)).map(|()| index)
    }

    /// False if the thread has one already.
    fn keep(&self, kind: Kind, list: &'static Mutex<EmptySlots>, index: u32) -> bool {
        let place = &self.0[kind as usize];
        let is_free = place.get().is_none();
        if is_free {
            place.set(Some((list, index)));
        }
        is_free
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        for (list, index) in self.0.iter().filter_map(Cell::take) {
            list.lock().used.push(index);
        }
    }
}

impl<T> Table<T> {
    pub(crate) const fn new(kind: Kind) -> Table<T> {
        Table::with_slots(kind)
    }

    /// Stores a value. Returns its handle.
    #[inline]
    pub(crate) fn insert(&'static self, value: T) -> Result<u64, Failure> {
        self.insert_with(|| Ok(value))
    }

    /// Makes a value and stores it. If the table is full, `make` is not called: what it does is then not done.
    #[inline]
    pub(crate) fn insert_with(&'static self, make: impl FnOnce() -> Result<T, Failure>) -> Result<u64, Failure> {
        let place = self.reserve()?;
        let value = make()?;
        Ok(place.fill(value))
    }

    /// Whether a handle names a value at this moment.
    #[inline]
    pub(crate) fn is_live(&self, bits: u64) -> bool {
        self.slot(bits).is_some_and(|(slot, generation, _)| slot.is_live(generation))
    }

    /// The value of a handle, for a call of this thread.
    #[inline(always)]
    pub(crate) fn get(&'static self, bits: u64) -> Result<Held<T>, Failure> {
        let Some((slot, generation, index)) = self.slot(bits) else { return Err(self.refusal(bits)) };
        match slot.use_value(generation, hazards()) {
            Ok(used) => Ok(Held { used: Some(used), table: self, index }),
            Err(not_live) => Err(self.refusal_of(bits, index, not_live)),
        }
    }

    #[cold]
    #[inline(never)]
    fn refusal_of(&'static self, bits: u64, index: u32, not_live: NotLive) -> Failure {
        if not_live.is_emptied {
            self.recycle(index);
        }
        self.refusal(bits)
    }

    /// The value of a handle, for longer than a call, and for any thread.
    pub(crate) fn retain(&'static self, bits: u64) -> Result<Retained<T>, Failure> {
        let found = self.slot(bits).and_then(|(slot, generation, index)| Some((slot.use_counted(generation)?, index)));
        let (counted, index) = found.ok_or_else(|| self.refusal(bits))?;
        Ok(Retained { used: Some(counted), table: self, index })
    }

    /// Ends a handle. Its value is dropped now, or by the last call that uses it.
    pub(crate) fn release(&'static self, bits: u64) -> Result<(), Failure> {
        if let Some((slot, generation, index)) = self.slot(bits)
            && slot.drop_unused(generation, hazards())
        {
            self.recycle(index);
            return Ok(());
        }
        self.take(bits).map(drop)
    }

    /// Ends a handle. Returns its value.
    pub(crate) fn take(&'static self, bits: u64) -> Result<Held<T>, Failure> {
        let held = self.get(bits)?;
        if held.retire() { Ok(held) } else { Err(self.refusal(bits)) }
    }
}

impl<T> OwnedTable<T> {
    pub(crate) const fn owned(kind: Kind) -> OwnedTable<T> {
        Table::with_slots(kind)
    }

    /// Makes a value of the calling thread and stores it. Returns its handle. If the table is full, `make` is not called.
    #[inline]
    pub(crate) fn insert_owned(&'static self, make: impl FnOnce() -> Result<T, Failure>) -> Result<u64, Failure> {
        let place = self.reserve()?;
        let value = make()?;
        Ok(place.fill_with(|slot| slot.publish(value, ThreadNumber::current().0)))
    }

    /// The value of a handle, which belongs to the calling thread.
    #[inline]
    pub(crate) fn borrow(&self, bits: u64) -> Result<Ref<'_, T>, Failure> {
        let found = self.slot(bits).ok_or(Refused::Stale);
        let value = found.and_then(|(slot, generation, _)| slot.borrow(generation, ThreadNumber::current().0));
        value.map_err(|refused| self.owned_refusal(bits, refused))
    }

    /// As [`borrow`](Self::borrow), for a change.
    pub(crate) fn borrow_mut(&self, bits: u64) -> Result<RefMut<'_, T>, Failure> {
        let found = self.slot(bits).ok_or(Refused::Stale);
        let value = found.and_then(|(slot, generation, _)| slot.borrow_mut(generation, ThreadNumber::current().0));
        value.map_err(|refused| self.owned_refusal(bits, refused))
    }

    /// Ends a handle, then drops its value.
    #[inline]
    pub(crate) fn release_owned(&'static self, bits: u64) -> Result<(), Failure> {
        let Some((slot, generation, index)) = self.slot(bits) else { return Err(self.refusal(bits)) };
        let ended = slot.end(generation, ThreadNumber::current().0);
        ended.map_err(|refused| self.owned_refusal(bits, refused))?;
        // If the drop has panicked, the slot stays empty for ever.
        self.recycle(index);
        Ok(())
    }

    #[cold]
    fn owned_refusal(&self, bits: u64, refused: Refused) -> Failure {
        match refused {
            Refused::Stale => self.refusal(bits),
            Refused::Elsewhere => {
                Failure::thread(format!("the {} belongs to another thread; nothing was done", self.kind.name()))
            }
            Refused::Borrowed => Failure::argument(format!(
                "another call of this thread uses the {}; nothing was done",
                self.kind.name()
            )),
        }
    }
}

impl<T, S: Place> Table<T, S> {
    const fn with_slots(kind: Kind) -> Table<T, S> {
        let empty = Mutex::new(EmptySlots { used: Vec::new(), next: 0 });
        Table { kind, chunks: [const { OnceLock::new() }; CHUNKS], empty, values: PhantomData }
    }

    /// An empty slot, for one value.
    #[inline]
    pub(crate) fn reserve(&'static self) -> Result<Reserved<T, S>, Failure> {
        let index = self.empty_slot().ok_or_else(|| Failure::too_many_handles(self.kind))?;
        Ok(Reserved { table: self, index })
    }

    /// As [`reserve`](Self::reserve), for `count` values, or for none.
    pub(crate) fn reserve_many(&'static self, count: usize) -> Result<Vec<Reserved<T, S>>, Failure> {
        (0..count).map(|_| self.reserve()).collect()
    }

    #[inline]
    fn empty_slot(&'static self) -> Option<u32> {
        #[cfg(test)]
        if ARE_TABLES_FULL.get() {
            return None;
        }
        let of_thread = SPARE.try_with(|spare| spare.take(self.kind, &self.empty)).ok().flatten();
        of_thread.or_else(|| self.empty.lock().take())
    }

    /// The slot of a handle of this kind, and the handle's generation.
    #[inline]
    fn slot(&self, bits: u64) -> Option<(&S, u32, u32)> {
        let index = bits as u32 & (SLOTS - 1);
        let (chunk, offset) = place_of(index);
        if bits >> KIND_SHIFT != self.kind as u64 {
            return None;
        }
        let slot = self.chunks.get(chunk)?.get()?.get(offset)?;
        Some((slot, (bits >> GENERATION_SHIFT) as u32, index))
    }

    /// Lets the next value have an empty slot, unless its generations are used up.
    #[inline]
    fn recycle(&'static self, index: u32) {
        let (chunk, offset) = place_of(index);
        let slot = self.chunks[chunk].get().map(|slots| &slots[offset]);
        if slot.is_some_and(|slot| slot.generation() == u32::MAX) {
            return;
        }
        let is_kept = SPARE.try_with(|spare| spare.keep(self.kind, &self.empty, index));
        if !is_kept.unwrap_or(false) {
            self.empty.lock().used.push(index);
        }
    }

    /// Why a handle names nothing of this table.
    #[cold]
    pub(crate) fn refusal(&self, bits: u64) -> Failure {
        let problem = match Kind::of(bits) {
            _ if bits == 0 => "is null".to_string(),
            None => "was not made by this library".to_string(),
            Some(kind) if kind != self.kind => format!("names a {}", kind.name()),
            Some(_) => "was released, or was not made by this library".to_string(),
        };
        Failure::handle(format!("the {} handle {bits:#x} {problem}; nothing was done", self.kind.name()))
    }
}

#[cfg(test)]
thread_local! {
    /// Whether the calling thread finds each table full.
    pub(crate) static ARE_TABLES_FULL: Cell<bool> = const { Cell::new(false) };
}

/// An empty slot that a call has. It goes back to its table if it gets no value.
pub(crate) struct Reserved<T: 'static, S: Place + 'static = Slot<T>> {
    table: &'static Table<T, S>,
    index: u32,
}

impl<T> Reserved<T> {
    /// Stores a value. Returns its handle.
    #[inline(always)]
    pub(crate) fn fill(self, value: T) -> u64 {
        self.fill_with(|slot| slot.publish(value, hazards()))
    }
}

impl<T, S: Place> Reserved<T, S> {
    /// Calls `publish` with the slot. Returns the handle of its value.
    #[inline(always)]
    fn fill_with(self, publish: impl FnOnce(&S) -> u32) -> u64 {
        let (chunk, offset) = place_of(self.index);
        let slots = self.table.chunks[chunk].get_or_init(|| (0..FIRST_CHUNK << chunk).map(|_| S::empty()).collect());
        let generation = publish(&slots[offset]);
        let bits = (self.table.kind as u64) << KIND_SHIFT | (generation as u64) << GENERATION_SHIFT | self.index as u64;
        mem::forget(self);
        bits
    }
}

impl<T, S: Place> Drop for Reserved<T, S> {
    fn drop(&mut self) {
        self.table.recycle(self.index);
    }
}

/// A value that a call of this thread uses. It lives until the last use has ended, whoever releases its handle.
pub(crate) struct Held<T: 'static, U: Use = Used<'static, T>> {
    /// `None` while it is dropped.
    used: Option<U>,
    table: &'static Table<T>,
    index: u32,
}

/// A value that something of this library has for longer than a call. Any thread may drop it.
pub(crate) type Retained<T> = Held<T, Counted<'static, T>>;

impl<T> Held<T> {
    /// Ends the handle of the value, which this call still uses. False if it had ended.
    pub(crate) fn retire(&self) -> bool {
        self.used.as_ref().is_some_and(Slot::retire)
    }
}

impl<T, U: Use<Target = T>> Deref for Held<T, U> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.used.as_ref().expect("it is not dropped")
    }
}

impl<T, U: Use> Drop for Held<T, U> {
    #[inline]
    fn drop(&mut self) {
        if self.used.take().is_some_and(U::end) {
            self.table.recycle(self.index);
        }
    }
}

/// The chunk of a slot, and its place there.
#[inline]
fn place_of(index: u32) -> (usize, usize) {
    let from_first = index + FIRST_CHUNK;
    let chunk = from_first.ilog2() - FIRST_CHUNK.ilog2();
    (chunk as usize, (from_first - (FIRST_CHUNK << chunk)) as usize)
}

const KIND_SHIFT: u32 = 56;
const GENERATION_SHIFT: u32 = 24;
/// The largest number of handles of one kind at one time.
const SLOTS: u32 = 1 << GENERATION_SHIFT;
/// Slots of the first chunk, a power of two.
const FIRST_CHUNK: u32 = 64;
const CHUNKS: usize = (SLOTS / FIRST_CHUNK).ilog2() as usize + 1;

#[cfg(test)]
mod tests {
    use super::*;

    /// Tables are statics.
    fn leaked<T>(kind: Kind) -> &'static Table<T> {
        Box::leak(Box::new(Table::new(kind)))
    }

    #[test]
    fn a_released_handle_names_nothing_when_its_slot_is_used_again() {
        let table = leaked(Kind::Tracker);
        let first = table.insert("first").unwrap();
        assert_eq!(*table.take(first).unwrap(), "first");
        let second = table.insert("second").unwrap();
        assert_eq!(first as u32 & 0xff_ffff, second as u32 & 0xff_ffff);
        assert!(table.get(first).is_err() && table.take(first).is_err());
        assert_eq!(*table.get(second).unwrap(), "second");
    }

    #[test]
    fn a_handle_of_another_kind_names_nothing() {
        let (trackers, dylibs) = (leaked(Kind::Tracker), leaked(Kind::Dylib));
        let (tracker, dylib) = (trackers.insert(1).unwrap(), dylibs.insert(2).unwrap());
        assert!(trackers.get(dylib).is_err() && dylibs.get(tracker).is_err() && trackers.get(0).is_err());
        let Err(failure) = trackers.get(dylib) else { panic!("the kind is wrong") };
        let text = failure.to_string();
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
        let table = leaked(Kind::Removal);
        let first = table.insert(1).unwrap();
        table.take(first).unwrap();
        table.chunks[0].get().unwrap()[0].set_generation(u32::MAX - 1);
        let last = table.insert(2).unwrap();
        table.release(last).unwrap();
        let next = table.insert(3).unwrap();
        assert_eq!(next & 0xff_ffff, 1);
        assert!(table.get(last).is_err() && table.get(first).is_err());
    }

    #[test]
    fn a_value_is_dropped_by_the_last_call_that_uses_it() {
        let table = leaked(Kind::Function);
        let counted = std::sync::Arc::new(());
        let handle = table.insert(counted.clone()).unwrap();
        let (first, second) = (table.get(handle).unwrap(), table.get(handle).unwrap());
        table.release(handle).unwrap();
        assert!(table.get(handle).is_err() && table.release(handle).is_err() && table.take(handle).is_err());
        drop(first);
        assert_eq!(std::sync::Arc::strong_count(&counted), 2);
        drop(second);
        assert_eq!(std::sync::Arc::strong_count(&counted), 1);
        // The slot is used again, and only now.
        assert_eq!(table.insert(counted).unwrap() & 0xff_ffff, handle & 0xff_ffff);
    }

    #[test]
    fn more_uses_at_once_than_a_thread_has_hazard_pointers_keep_their_value() {
        let table = leaked(Kind::Function);
        let counted = std::sync::Arc::new(());
        let handle = table.insert(counted.clone()).unwrap();
        let uses: Vec<_> = (0..20).map(|_| table.get(handle).unwrap()).collect();
        table.release(handle).unwrap();
        assert!(table.get(handle).is_err());
        for used in uses {
            assert_eq!(std::sync::Arc::strong_count(&counted), 2);
            drop(used);
        }
        assert_eq!(std::sync::Arc::strong_count(&counted), 1);
    }

    #[test]
    fn a_value_that_another_thread_releases_is_dropped_when_the_use_of_its_owner_ends() {
        let table = leaked(Kind::Function);
        let counted = std::sync::Arc::new(());
        let handle = table.insert(counted.clone()).unwrap();
        let elsewhere = |work: fn(&'static Table<std::sync::Arc<()>>, u64)| {
            std::thread::spawn(move || work(table, handle)).join().unwrap();
        };
        let used = table.get(handle).unwrap();
        elsewhere(|table, handle| table.release(handle).unwrap());
        assert!(table.get(handle).is_err());
        assert_eq!(std::sync::Arc::strong_count(&counted), 2);
        drop(used);
        assert_eq!(std::sync::Arc::strong_count(&counted), 1);
        // The owner got the slot, and gives it to its next value.
        assert_eq!(table.insert(counted.clone()).unwrap() & 0xff_ffff, handle & 0xff_ffff);
    }

    #[test]
    fn a_value_that_its_owner_does_not_use_is_dropped_by_another_thread_that_releases_it() {
        let table = leaked(Kind::Function);
        let counted = std::sync::Arc::new(());
        let handle = table.insert(counted.clone()).unwrap();
        drop(table.get(handle).unwrap());
        std::thread::spawn(move || table.release(handle).unwrap()).join().unwrap();
        assert_eq!(std::sync::Arc::strong_count(&counted), 1);
    }

    #[test]
    fn no_value_is_dropped_twice_or_while_a_thread_uses_it() {
        use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
        static DROPS: AtomicUsize = AtomicUsize::new(0);
        /// Says 7 until it is dropped.
        struct Value(AtomicUsize);
        impl Drop for Value {
            fn drop(&mut self) {
                assert_eq!(self.0.swap(0, SeqCst), 7);
                DROPS.fetch_add(1, SeqCst);
            }
        }
        const THREADS: u64 = 4;
        const ROUNDS: u64 = 20_000;
        let table = leaked(Kind::Function);
        // The newest handles of all threads. Each is released by the thread that puts another one in its place.
        let shared: &'static [std::sync::atomic::AtomicU64; 4] = Box::leak(Box::default());
        let work = move |mut random: u64| {
            for _ in 0..ROUNDS {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let place = &shared[(random >> 40) as usize % shared.len()];
                if random >> 62 == 0 {
                    let new = table.insert(Value(AtomicUsize::new(7))).unwrap();
                    let old = place.swap(new, SeqCst);
                    assert!(old == 0 || table.release(old).is_ok());
                } else if let Ok(value) = table.get(place.load(SeqCst)) {
                    assert_eq!(value.0.load(SeqCst), 7);
                    let again = table.get(place.load(SeqCst)).map(|value| value.0.load(SeqCst));
                    assert!(again.is_err() || again.is_ok_and(|seven| seven == 7));
                    assert_eq!(value.0.load(SeqCst), 7);
                }
            }
        };
        let threads: Vec<_> = (1..=THREADS).map(|seed| std::thread::spawn(move || work(seed))).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        for place in shared {
            let last = place.load(SeqCst);
            assert!(last == 0 || table.release(last).is_ok());
        }
        // A slot is used again, whoever emptied it: each thread has a few, and each place has one.
        let slots = table.empty.lock().next;
        assert!(slots <= 40, "{slots} slots for {} values at once", shared.len());
        let inserted = (1..=THREADS).map(|seed| {
            let step = |random: &u64| Some(random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
            std::iter::successors(step(&seed), step).take(ROUNDS as usize).filter(|random| random >> 62 == 0).count()
        });
        assert_eq!(DROPS.load(SeqCst), inserted.sum::<usize>());
    }

    #[test]
    fn a_value_outlives_the_thread_that_made_it_and_is_used_while_threads_end() {
        struct Late(&'static Table<std::sync::Arc<()>>, Cell<u64>);
        impl Drop for Late {
            fn drop(&mut self) {
                // The thread has given its hazards back by now.
                drop(self.0.get(self.1.get()).unwrap());
                let own = self.0.insert(std::sync::Arc::new(())).unwrap();
                self.0.release(own).unwrap();
                assert!(self.0.get(own).is_err());
            }
        }
        let table = leaked(Kind::Function);
        let counted = std::sync::Arc::new(());
        let value = counted.clone();
        let handle = std::thread::spawn(move || {
            thread_local! { static LATE: std::cell::OnceCell<Late> = const { std::cell::OnceCell::new() }; }
            // Registered before the hazards, so it is dropped after them.
            LATE.with(|late| drop(late.set(Late(table, Cell::new(0)))));
            let handle = table.insert(value).unwrap();
            LATE.with(|late| late.get().unwrap().1.set(handle));
            handle
        });
        let handle = handle.join().unwrap();
        drop(table.get(handle).unwrap());
        table.release(handle).unwrap();
        assert_eq!(std::sync::Arc::strong_count(&counted), 1);
    }

    #[test]
    fn a_table_grows_by_chunks_and_finds_each_value() {
        let table = leaked(Kind::Stub);
        let handles: Vec<_> = (0..1000).map(|number| table.insert(number).unwrap()).collect();
        assert!(handles.iter().enumerate().all(|(number, handle)| *table.get(*handle).unwrap() == number));
        assert_eq!((place_of(0), place_of(63), place_of(64), place_of(191)), ((0, 0), (0, 63), (1, 0), (1, 127)));
        assert_eq!(place_of(SLOTS - 1).0, CHUNKS - 1);
    }
}
