//! [`Slot`]: a value with a generation, and with uses that are protected or counted, so that a handle is checked and its value used
//! without a lock.
//!
//! ```text
//!   63         32  31    30    29       0
//!  ┌─────────────┬─────┬──────┬──────────┐
//!  │ generation  │live │owned │  users   │   one word
//!  └─────────────┴─────┴──────┴──────────┘
//! ```
//!
//! The thread that publishes a value owns it. A hazard pointer of that thread ([`Hazards`]) protects its uses, which costs no atomic
//! read-modify-write. The uses of other threads, and those of an owner that has no hazard pointer left, are counted in `users`. While
//! `owned` is set, the owner may have uses that are protected. When the owner has ended, its hazards go to a later thread, which owns its
//! values then.
//!
//! | step | change | who |
//! |---|---|---|
//! | [`publish`](Slot::publish) | word: generation + 1, live, owned if the thread has hazards, no users | who has the empty slot |
//! | [`use_value`](Slot::use_value) | the use is protected, light barrier, and the word is still that of the generation, live | the owner |
//! | [`use_value`](Slot::use_value), [`use_counted`](Slot::use_counted) | users + 1, if generation and live agree | anyone with a handle |
//! | [`retire`](Slot::retire) | not live: later uses of the handle fail | one user |
//! | … of another thread than the owner | then heavy barrier; not owned, unless a use is protected | the same |
//! | [`drop_unused`](Slot::drop_unused) | not live and not owned, if no use is protected and none counted | the owner, or anyone if there is none |
//! | drop of a [`Used`] that is counted | users − 1 | its user |
//! | drop of a [`Used`] that is protected, or a use that failed after it was | the hazard pointer is cleared, light barrier; not owned, if the word is not live and no other use is protected | the owner |
//!
//! Who leaves a word that is not live, not owned and without users drops the value, and has the empty slot. A word never comes back,
//! because generations ascend and a slot whose generations are used up stays empty.
//!
//! Of an owner that protects a use and another thread that retires the value, at least one sees the other (`barriers.rs`): either the
//! owner sees that the word is not live, and leaves the value, or the other one sees the hazard pointer. Then it leaves `owned` to the
//! owner, which sees the word when its use ends.
//!
//! A thread that reads the word of a generation and then its own hazards in `hazards` owns that generation: `hazards` was stored before
//! the word, and only a thread that has the same hazards could have published another generation of them since.
//!
//! Source of the split between an owner and all others: Choi, Shull and Torrellas, "Biased Reference Counting" (2018).
//!
//! Model: the tests of this file, which `slot-model` runs under loom. Seeded bugs: `live_is_not_checked`, `no_heavy_barrier`,
//! `hazards_are_not_read`.

#[cfg(loom)]
use loom::{
    cell::UnsafeCell,
    sync::atomic::{AtomicPtr, AtomicU64, Ordering},
};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr;

use crate::barriers::{heavy_barrier, light_barrier};
use crate::hazards::Hazards;

#[cfg(not(loom))]
pub(crate) use cell::UnsafeCell;

/// The interface of loom's cell.
#[cfg(not(loom))]
mod cell {
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) fn new(value: T) -> UnsafeCell<T> {
            UnsafeCell(std::cell::UnsafeCell::new(value))
        }

        #[inline]
        pub(crate) fn with<R>(&self, body: impl FnOnce(*const T) -> R) -> R {
            body(self.0.get())
        }

        #[inline]
        pub(crate) fn with_mut<R>(&self, body: impl FnOnce(*mut T) -> R) -> R {
            body(self.0.get())
        }
    }
}

/// A place for one value at a time.
pub(crate) struct Slot<T> {
    /// A change that ends a use, or an ownership, is a release, and pairs with the acquire of the thread that drops the value.
    word: AtomicU64,
    /// Those of the owner, if `word` is owned.
    hazards: AtomicPtr<Hazards>,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: C8 - a value is reached by users of one generation, who share it, and dropped by the last of them, on any thread.
unsafe impl<T: Send + Sync> Sync for Slot<T> {}
// SAFETY: C8 - as above.
unsafe impl<T: Send + Sync> Send for Slot<T> {}

const LIVE: u64 = 1 << 31;
const OWNED: u64 = 1 << 30;
const USERS: u64 = OWNED - 1;
const GENERATION_SHIFT: u32 = 32;

impl<T> Slot<T> {
    pub(crate) fn new() -> Slot<T> {
        let hazards = AtomicPtr::new(ptr::null_mut());
        Slot { word: AtomicU64::new(0), hazards, value: UnsafeCell::new(None) }
    }

    /// Puts a value into an empty slot. Returns its generation. The caller has the slot: nobody else publishes. `own` are the
    /// hazards of the calling thread.
    #[inline(always)]
    pub(crate) fn publish(&self, value: T, own: Option<&'static Hazards>) -> u32 {
        // Relaxed: the caller has the slot, and came by it after the last user emptied it.
        let generation = self.generation() + 1;
        // SAFETY: C8 - the slot is empty and the caller has it, so there is no user, and nothing to drop.
        self.value.with_mut(|place| unsafe { place.write(Some(value)) });
        let mut owned = 0;
        if let Some(own) = own {
            // Relaxed: the store of the word releases it.
            self.hazards.store(ptr::from_ref(own).cast_mut(), Ordering::Relaxed);
            owned = OWNED;
        }
        // Release: pairs with the acquires of those that read the value or `hazards`.
        self.word.store(live(generation) | owned, Ordering::Release);
        generation
    }

    /// The last generation that was published.
    pub(crate) fn generation(&self) -> u32 {
        (self.word.load(Ordering::Relaxed) >> GENERATION_SHIFT) as u32
    }

    /// For tests of the last generation. The slot is empty.
    #[cfg(test)]
    pub(crate) fn set_generation(&self, generation: u32) {
        self.word.store(u64::from(generation) << GENERATION_SHIFT, Ordering::Relaxed);
    }

    /// Whether a generation is live at this moment.
    #[inline]
    pub(crate) fn is_live(&self, generation: u32) -> bool {
        // Relaxed: who retires it at the same time may come before or after.
        self.word.load(Ordering::Relaxed) & !(OWNED | USERS) == live(generation)
    }

    /// The value of a generation, if it is live. `own` are the hazards of the calling thread, on which the use ends.
    #[inline(always)]
    pub(crate) fn use_value(&self, generation: u32, own: Option<&'static Hazards>) -> Result<Used<'_, T>, NotLive> {
        // Acquire: pairs with the release of `publish`, so `hazards` is not older than the generation.
        let word = self.word.load(Ordering::Acquire);
        if word & !USERS == live(generation) | OWNED
            && let Some(own) = own.filter(|own| self.is_owned_by(own))
            && let Some(place) = own.protect(self.address())
        {
            light_barrier();
            let used = Used { slot: self, hazard: Some((own, place)), of_thread: PhantomData };
            // Relaxed: the first load acquired the value.
            if self.word.load(Ordering::Relaxed) & !USERS == live(generation) | OWNED || live_is_not_checked() {
                return Ok(used);
            }
            // Who retired the value may have seen the hazard pointer, and left the value to this thread.
            return Err(NotLive { is_emptied: used.end() });
        }
        let counted = self.use_counted(generation).ok_or(NotLive { is_emptied: false })?;
        Ok(Used { slot: counted.slot, hazard: None, of_thread: PhantomData })
    }

    /// As [`use_value`](Self::use_value). The use may end on any thread.
    #[inline(never)]
    pub(crate) fn use_counted(&self, generation: u32) -> Option<Counted<'_, T>> {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let is_live = word & LIVE != 0 || live_is_not_checked();
            if !is_live || (word >> GENERATION_SHIFT) as u32 != generation {
                return None;
            }
            assert!(word & USERS != USERS, "a handle is used by a thousand million calls at once");
            // Acquire: pairs with the release of `publish`.
            match self.word.compare_exchange_weak(word, word + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(Counted { slot: self }),
                Err(changed) => word = changed,
            }
        }
    }

    /// Retires the value of a generation and drops it, if nobody uses it. The caller has the slot then. False if somebody does, or may:
    /// the value is owned by another thread; or if the generation is not live. `own` are the hazards of the calling thread.
    #[inline]
    pub(crate) fn drop_unused(&self, generation: u32, own: Option<&'static Hazards>) -> bool {
        // Acquire: as in `use_value`.
        let word = self.word.load(Ordering::Acquire);
        if word & !OWNED != live(generation) {
            return false;
        }
        let may_drop = word & OWNED == 0
            || own.is_some_and(|own| self.is_owned_by(own) && (own.is_empty() || !own.protects(self.address())));
        // Acquire: pairs with the release of `publish` and of the users that have ended.
        let empty = u64::from(generation) << GENERATION_SHIFT;
        let is_unused =
            may_drop && self.word.compare_exchange(word, empty, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if is_unused {
            self.drop_value();
        }
        is_unused
    }

    /// Whether the calling thread, which has `own`, owns the value. The caller has read the word of its generation.
    #[inline]
    fn is_owned_by(&self, own: &Hazards) -> bool {
        // Relaxed: the load of the word orders it.
        ptr::eq(self.hazards.load(Ordering::Relaxed), own)
    }

    /// What a hazard pointer has.
    #[inline]
    fn address(&self) -> usize {
        ptr::from_ref(self).addr()
    }

    /// The value, for a [`Used`] or a [`Counted`], which only a live value has.
    #[inline]
    fn value_of_user(&self) -> &T {
        // SAFETY: C8 - the value is published and the use of the caller is protected or counted, so nobody writes it or drops it.
        let value = self.value.with(|place| unsafe { &*place });
        value.as_ref().expect("a value that is used is there")
    }

    /// Drops the value where it is. The caller has found that no user is left and none can come.
    #[inline]
    fn drop_value(&self) {
        // SAFETY: C8 - the value is this thread's, by the caller's finding.
        self.value.with_mut(|place| unsafe { *place = None });
    }

    /// Makes the value of a user unreachable by later uses. False if another user was first.
    pub(crate) fn retire(used: &Used<'_, T>) -> bool {
        let slot = used.slot;
        // Relaxed: users only stop to find the value; the drops of users order what they did.
        let before = slot.word.fetch_and(!LIVE, Ordering::Relaxed);
        if before & LIVE != 0 && before & OWNED != 0 && used.hazard.is_none() {
            heavy_barrier();
            // Relaxed: the use is counted, so the generation is still that of these hazards. They came with the word.
            let hazards = slot.hazards.load(Ordering::Relaxed);
            // SAFETY: C8 - `publish` stored them, and they are never freed.
            let is_protected = unsafe { &*hazards }.protects(slot.address()) && !hazards_are_not_read();
            if !is_protected {
                // AcqRel: what the owner did happens before the drop of the value. Users are left: this one.
                slot.word.fetch_and(!OWNED, Ordering::AcqRel);
            }
        }
        before & LIVE != 0
    }

    /// Gives up the ownership of a value that is retired, unless a use is protected. True if that leaves no user: then the value is dropped,
    /// and the caller has the slot. For the owner only.
    #[cold]
    fn give_up(&self, own: &Hazards) -> bool {
        // Acquire: as in `use_value`.
        let mut word = self.word.load(Ordering::Acquire);
        while word & (LIVE | OWNED) == OWNED && self.is_owned_by(own) && !own.protects(self.address()) {
            // AcqRel: what this thread did happens before the drop of the value, and what the users did.
            match self.word.compare_exchange_weak(word, word & !OWNED, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) if word & USERS == 0 => {
                    self.drop_value();
                    return true;
                }
                Ok(_) => return false,
                Err(changed) => word = changed,
            }
        }
        false
    }
}

/// The word of a live generation that is not owned and has no users.
#[inline]
fn live(generation: u32) -> u64 {
    u64::from(generation) << GENERATION_SHIFT | LIVE
}

/// A generation has no value.
#[derive(Debug)]
pub(crate) struct NotLive {
    /// Whether the attempt was the last use of the slot's retired value, and dropped it: the caller has the slot then.
    pub(crate) is_emptied: bool,
}

/// Whether a seeded bug of the model is asked for.
#[cfg(loom)]
fn is_seeded(bug: &str) -> bool {
    std::env::var_os("SEEDED_BUG").is_some_and(|seeded| seeded == bug)
}

#[cfg(not(loom))]
#[inline(always)]
fn is_seeded(_: &str) -> bool {
    false
}

#[inline(always)]
fn live_is_not_checked() -> bool {
    is_seeded("live_is_not_checked")
}

#[inline(always)]
fn hazards_are_not_read() -> bool {
    is_seeded("hazards_are_not_read")
}

/// A use of a value, which keeps it. It ends on the thread that began it.
pub(crate) struct Used<'a, T> {
    slot: &'a Slot<T>,
    /// The place of its hazard pointer; else the use is counted.
    hazard: Option<(&'static Hazards, usize)>,
    of_thread: PhantomData<*const ()>,
}

impl<T> Use for Used<'_, T> {
    #[inline]
    fn end(self) -> bool {
        let Some((own, place)) = self.hazard else { return Counted { slot: self.slot }.end() };
        own.clear(place);
        light_barrier();
        // Relaxed: `give_up` reads it again.
        self.slot.word.load(Ordering::Relaxed) & (LIVE | OWNED) == OWNED && self.slot.give_up(own)
    }
}

impl<T> Deref for Used<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.slot.value_of_user()
    }
}

/// A use of a value that is counted. It may end on any thread.
pub(crate) struct Counted<'a, T> {
    slot: &'a Slot<T>,
}

impl<T> Use for Counted<'_, T> {
    #[inline(never)]
    fn end(self) -> bool {
        // Release: what this user did happens before the drop of the value. Acquire: the last user sees what all did.
        let before = self.slot.word.fetch_sub(1, Ordering::AcqRel);
        let is_last = before & (LIVE | OWNED | USERS) == 1;
        if is_last {
            self.slot.drop_value();
        }
        is_last
    }
}

impl<T> Deref for Counted<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.slot.value_of_user()
    }
}

/// A use of a value, of either kind.
pub(crate) trait Use: Deref {
    /// Ends the use. If it was the last one of a retired value, drops the value, and returns true: the caller has the slot then.
    fn end(self) -> bool;
}

#[cfg(all(test, loom))]
mod model {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// One thread uses a value, another one takes it if it has no user, or else retires it: one of them drops it.
    #[test]
    fn use_versus_take() {
        loom::model(|| {
            let slot = Arc::new(Slot::new());
            let generation = slot.publish(std::sync::Arc::new(7), None);
            let used = slot.use_value(generation, None).expect("it is there");
            let value = (*used).clone();
            assert!(!used.end());
            let user = {
                let slot = slot.clone();
                thread::spawn(move || {
                    if let Ok(used) = slot.use_value(generation, None) {
                        assert_eq!(**used, 7);
                        used.end();
                    }
                })
            };
            if !slot.drop_unused(generation, None) {
                let used = slot.use_value(generation, None).expect("nobody else takes it");
                assert!(Slot::retire(&used));
                used.end();
            }
            assert!(slot.use_value(generation, None).is_err() && !slot.drop_unused(generation, None));
            user.join().unwrap();
            assert_eq!(std::sync::Arc::strong_count(&value), 1);
        });
    }

    /// Two threads use a value, and one of them retires it and publishes another one in the slot when it is empty. The value is
    /// dropped once, by the last user; a use that comes after it fails.
    #[test]
    fn use_versus_retire_and_reuse() {
        loom::model(|| {
            static DROPS: AtomicUsize = AtomicUsize::new(0);
            DROPS.store(0, SeqCst);
            struct Value(u32);
            impl Drop for Value {
                fn drop(&mut self) {
                    DROPS.fetch_add(1, SeqCst);
                }
            }
            let slot = Arc::new(Slot::new());
            let generation = slot.publish(Value(7), None);
            let finish = move |slot: &Slot<Value>, used: Option<Used<'_, Value>>| {
                let Some(used) = used else { return };
                assert_eq!(used.0, 7);
                if used.end() {
                    assert_eq!(DROPS.load(SeqCst), 1);
                    // The slot is this thread's: another value takes the place.
                    assert_eq!(slot.publish(Value(8), None), generation + 1);
                }
            };
            let user = {
                let slot = slot.clone();
                thread::spawn(move || finish(&slot, slot.use_value(generation, None).ok()))
            };
            let remover = slot.use_value(generation, None).expect("nobody else retires it");
            assert!(Slot::retire(&remover) && !Slot::retire(&remover));
            finish(&slot, Some(remover));
            finish(&slot, slot.use_value(generation, None).ok());
            user.join().unwrap();
            assert_eq!(DROPS.load(SeqCst), 1);
            assert!(slot.use_value(generation, None).is_err());
            let second = slot.use_value(generation + 1, None).expect("the slot has its second value");
            assert_eq!(second.0, 8);
            second.end();
        });
    }

    /// A value that counts its drops.
    struct Counting(u32, &'static AtomicUsize);

    impl Drop for Counting {
        fn drop(&mut self) {
            self.1.fetch_add(1, SeqCst);
        }
    }

    /// Runs a model with at most three preemptions.
    fn bounded(model: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(model);
    }

    /// A slot with a value of an owner, the value's generation, and the hazards of the owner and of another thread.
    fn owned_value(drops: &'static AtomicUsize) -> (Arc<Slot<Counting>>, u32, &'static Hazards, &'static Hazards) {
        drops.store(0, SeqCst);
        let slot = Arc::new(Slot::new());
        let [owner, other] = [(); 2].map(|()| &*Box::leak(Box::new(Hazards::new())));
        let generation = slot.publish(Counting(7, drops), Some(owner));
        (slot, generation, owner, other)
    }

    /// Ends a use, and publishes another value if that empties the slot.
    fn end(slot: &Slot<Counting>, used: Used<'_, Counting>, user: &'static Hazards) {
        if used.end() {
            slot.publish(Counting(8, other_drops()), Some(user));
        }
    }

    /// Uses a value, and publishes another one if that empties the slot. Whether there was a value.
    fn try_use(slot: &Slot<Counting>, generation: u32, user: &'static Hazards) -> bool {
        match slot.use_value(generation, Some(user)) {
            Ok(used) => {
                assert_eq!(used.0, 7);
                end(slot, used, user);
                true
            }
            Err(not_live) => {
                publish_if_emptied(slot, not_live, user);
                false
            }
        }
    }

    fn publish_if_emptied(slot: &Slot<Counting>, not_live: NotLive, user: &'static Hazards) {
        if not_live.is_emptied {
            slot.publish(Counting(8, other_drops()), Some(user));
        }
    }

    fn other_drops() -> &'static AtomicUsize {
        static OTHERS: AtomicUsize = AtomicUsize::new(0);
        &OTHERS
    }

    /// The owner of a value uses it twice, once inside another use, while another thread uses and retires it. The value is dropped once,
    /// by the last of all, who publishes another one, which nobody mistakes for the first.
    #[test]
    fn owner_versus_another_who_retires() {
        bounded(|| {
            static DROPS: AtomicUsize = AtomicUsize::new(0);
            let (slot, generation, owner, other) = owned_value(&DROPS);
            let remover = {
                let slot = slot.clone();
                thread::spawn(move || {
                    let used = slot.use_value(generation, Some(other)).expect("nobody else retires it");
                    assert!(Slot::retire(&used));
                    end(&slot, used, other);
                })
            };
            match slot.use_value(generation, Some(owner)) {
                Ok(used) => {
                    try_use(&slot, generation, owner);
                    assert_eq!(used.0, 7);
                    end(&slot, used, owner);
                }
                Err(not_live) => publish_if_emptied(&slot, not_live, owner),
            }
            try_use(&slot, generation, owner);
            remover.join().unwrap();
            assert!(!try_use(&slot, generation, owner));
            assert_eq!(DROPS.load(SeqCst), 1);
            assert_eq!(
                slot.use_value(generation + 1, None).map(|used| used.0).expect("the slot has its second value"),
                8
            );
        });
    }

    /// The owner of a value ends it, by one step or by two, while another thread uses it.
    #[test]
    fn owner_who_retires_versus_another() {
        bounded(|| {
            static DROPS: AtomicUsize = AtomicUsize::new(0);
            let (slot, generation, owner, other) = owned_value(&DROPS);
            let user = {
                let slot = slot.clone();
                thread::spawn(move || try_use(&slot, generation, other))
            };
            if slot.drop_unused(generation, Some(owner)) {
                slot.publish(Counting(8, other_drops()), Some(owner));
            } else {
                let used = slot.use_value(generation, Some(owner)).expect("nobody else retires it");
                assert!(!slot.drop_unused(generation, Some(owner)), "it is used");
                assert!(Slot::retire(&used));
                end(&slot, used, owner);
            }
            user.join().unwrap();
            assert_eq!(DROPS.load(SeqCst), 1);
            assert!(!try_use(&slot, generation, owner) && !try_use(&slot, generation, other));
        });
    }
}
