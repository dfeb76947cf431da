//! `__start_NAME` and `__stop_NAME` over several objects that come and go: what is added or removed while others are linked, what
//! a transfer changes, which tracker pays for the memory, and what another dylib sees.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use jittison::base::{ExecutorAddr, SegmentKind};
use jittison::layer::{LinkHooks, LinkOrigin, LinkPlugin};
use jittison::link::{LinkGraph, ObjectBuffer};
use jittison::memory::{
    Finalized, Frame, InFlight, MemoryManager, MemoryUsage, SegmentPlan, SlabPool, SlabPoolOptions,
};
use jittison::session::Visibility;
use jittison::{Error, ErrorKind, Jit, MemoryStatistics, ResourceTracker};

use crate::bounds_across::{assert_across, assert_as_native, native, part, reader, remove_all};
use crate::support::*;

type Long = extern "C" fn() -> i64;

/// Symptom: the reader depended on the other object before that object's names were in the table, and its link failed with
/// "symbols not found".
#[test]
fn an_object_that_is_added_while_a_reader_is_linked_is_in_the_bounds_or_comes_too_late() {
    let (Some(one), Some(two), Some(reader)) = (part(1, "", &[1]), part(2, "", &[2]), reader("digits")) else { return };
    for _ in 0..rounds(200) {
        let (jit, mut trackers) = linked(&[&one, &reader]);
        let main = jit.main_dylib();
        let tracker = main.create_tracker().unwrap();
        let begin = Barrier::new(2);
        let (added, digits) = thread_pair(
            || {
                begin.wait();
                let is_added = jit.add_object(&tracker, "two.o", &*two);
                is_added.and_then(|()| Ok(try_function::<Long>(&jit, main, "get_2")?.call()))
            },
            || {
                begin.wait();
                long(&jit, "digits")
            },
        );
        match (digits, added) {
            (12, Ok(2)) => {}
            (1, Err(error)) => assert_across(&error, "object1.o", "two.o", "after the bounds were given out"),
            (digits, added) => panic!("{digits}, {added:?}"),
        }
        trackers.push(tracker);
        remove_all(&jit, trackers);
    }
}

fn thread_pair<A: Send, B>(one: impl FnOnce() -> A + Send, other: impl FnOnce() -> B) -> (A, B) {
    std::thread::scope(|scope| {
        let thread = scope.spawn(one);
        let other = other();
        (thread.join().unwrap(), other)
    })
}

/// Removes a tracker when the first plugin hook of the object `reader.o` is called.
struct RemovesPart(Arc<Mutex<Option<ResourceTracker>>>);
struct RemovesInHook(Arc<Mutex<Option<ResourceTracker>>>);

impl LinkPlugin for RemovesPart {
    fn begin(&self, origin: &LinkOrigin<'_>) -> Option<Box<dyn LinkHooks>> {
        (&**origin.object() == "reader.o").then(|| Box::new(RemovesInHook(self.0.clone())) as Box<dyn LinkHooks>)
    }
}

impl LinkHooks for RemovesInHook {
    fn prepare(&mut self, _: &mut LinkGraph) -> Result<(), Error> {
        if let Some(tracker) = self.0.lock().unwrap().take() {
            tracker.remove()?;
        }
        Ok(())
    }
}

/// Symptom: the error named a symbol that nobody has written.
#[test]
fn a_part_that_is_removed_while_its_reader_is_linked_is_named_in_the_error() {
    let (Some(one), Some(reader)) = (part(1, "", &[1]), reader("digits")) else { return };
    for is_linked in [false, true] {
        let (jit, mut trackers) = linked(&[&one]);
        if is_linked {
            assert_eq!(long(&jit, "get_1"), 1);
        }
        let removed = Arc::new(Mutex::new(trackers.pop()));
        jit.layer().add_plugin(Arc::new(RemovesPart(removed)));
        let reading = add(&jit, jit.main_dylib(), "reader.o", &reader);
        let error = try_function::<Long>(&jit, jit.main_dylib(), "digits").unwrap_err();
        assert_across(&error, "reader.o", "object0.o", "removed while the other object was linked");
        remove_all(&jit, vec![reading]);
    }
}

#[test]
fn a_transfer_moves_the_part_and_the_bounds_to_the_other_tracker() {
    let (Some(one), Some(two), Some(reader)) = (part(1, "", &[1]), part(2, "", &[2]), reader("digits")) else { return };
    for is_linked in [false, true] {
        let (jit, trackers) = linked(&[&one, &two, &reader]);
        let [one, two, reading] = <[_; 3]>::try_from(trackers).unwrap();
        if is_linked {
            assert_eq!(long(&jit, "digits"), 12);
        }
        one.transfer_to(&two).unwrap();
        assert_eq!(long(&jit, "digits"), 12);
        // The reader keeps both parts, and its own removal frees nothing else.
        reading.remove().unwrap();
        assert_eq!((long(&jit, "get_1"), long(&jit, "get_2")), (1, 2));
        remove_all(&jit, vec![two]);
    }
}

#[test]
fn each_tracker_is_charged_for_the_parts_of_its_linked_objects() {
    let parts = [part(1, "", &[1, 2, 3]), part(2, "", &[4]), part(3, "", &[5; 1000])];
    let [Some(one), Some(two), Some(three)] = parts else { return };
    let (jit, trackers) = linked(&[&one, &two, &three]);
    let usage = |index: usize| jit.usage(&trackers[index]);
    assert_eq!(long(&jit, "get_2"), 4);
    assert_eq!((usage(0).data, usage(1).data, usage(2).data), (0, 8, 0));
    assert!(held(&jit).1 >= 8 + 24 + 8000, "the area has the places of all");
    assert_eq!(long(&jit, "get_1"), 1);
    assert_eq!((usage(0).data, usage(1).data, usage(2).data), (24, 8, 0));
    assert!(usage(0).reserved >= usage(0).requested());
    let [one, two, _three] = <[_; 3]>::try_from(trackers).unwrap();
    // The third object has a place, and is not linked.
    remove_all(&jit, vec![one, two]);
}

fn remove_all_of(trackers: Vec<ResourceTracker>) {
    trackers.into_iter().for_each(|tracker| drop(tracker.remove().unwrap()));
}

#[test]
fn a_dylib_sees_its_own_sections_only() {
    let (Some(one), Some(two), Some(reader)) = (part(1, "", &[1]), part(2, "", &[2]), reader("digits")) else { return };
    let (jit, trackers) = linked(&[&one]);
    let main = jit.main_dylib();
    let other = jit.create_dylib("other").unwrap();
    other.add_to_link_order(&[(main.clone(), Visibility::ExportedOnly)]).unwrap();
    // Without a section of its own, it has no bounds. Those of another dylib are not taken.
    let alone = add(&jit, &other, "reader.o", &reader);
    let error = try_function::<Long>(&jit, &other, "digits").unwrap_err();
    assert_says(
        &error,
        &["symbols not found", "`__start_sets`", "only objects of a dylib with a section `sets` know its bounds"],
    );
    remove_all_of(vec![alone]);
    let own = vec![add(&jit, &other, "two.o", &two), add(&jit, &other, "reader.o", &reader)];
    assert_eq!(long_in(&jit, &other, "digits"), 2);
    assert_eq!(long(&jit, "get_1"), 1);
    let error = jit.address_of(main, "__start_sets").unwrap_err();
    assert!(matches!(error.root_cause().kind(), ErrorKind::SymbolsNotFound { .. }), "{error}");
    assert_says(&error, &["only objects of a dylib with a section `sets` know its bounds"]);
    remove_all_of(own);
    remove_all(&jit, trackers);
}

/// Symptom: the group was taken for lost when the area was made, and then its object had no place.
#[test]
fn copies_of_a_group_without_a_definition_count_once() {
    let object = |value: usize| {
        asm(&format!(
            ".section sets,\"awG\",@progbits,signature,comdat\n.quad {value}\n
            .data\n.globl get_{value}_data\nget_{value}_data: .quad 0\n.section .note.GNU-stack,\"\",@progbits\n"
        ))
    };
    let (Some(one), Some(two), Some(reader)) = (object(1), object(2), reader("digits")) else { return };
    assert_as_native(&[&one, &two, &reader], "digits", 1);
    assert_as_native(&[&two, &reader, &one], "digits", 2);
}

#[test]
fn linked_sections_of_each_object_keep_the_order_of_their_code() {
    let object = |first: usize| {
        let (one, two) = (first, first + 1);
        asm(&format!(
            ".section .text.f{one},\"ax\"\nf{one}: ret\n.section .text.f{two},\"ax\"\nf{two}: ret\n
            .section sets,\"awo\",@progbits,.text.f{two},unique,2\n.quad {two}\n
            .section sets,\"awo\",@progbits,.text.f{one},unique,1\n.quad {one}\n
            .section .note.GNU-stack,\"\",@progbits\n"
        ))
    };
    let (Some(one), Some(two), Some(reader)) = (object(1), object(3), reader("digits")) else { return };
    let Some(expected) = native(&[&one, &two, &reader], "digits") else { return };
    assert_as_native(&[&one, &two, &reader], "digits", expected);
}

/// A manager whose finalized memory cannot be written.
struct Sealed(SlabPool);
struct SealedInFlight(Box<dyn InFlight>);
struct SealedMemory(Box<dyn Finalized>);

// SAFETY: the pool makes all allocations.
unsafe impl MemoryManager for Sealed {
    fn allocate(&self, plan: &SegmentPlan) -> Result<Box<dyn InFlight>, Error> {
        Ok(Box::new(SealedInFlight(self.0.allocate(plan)?)))
    }

    fn statistics(&self) -> MemoryStatistics {
        self.0.statistics()
    }
}

impl InFlight for SealedInFlight {
    fn address(&self, pool: SegmentKind) -> ExecutorAddr {
        self.0.address(pool)
    }

    fn working(&mut self, pool: SegmentKind) -> &mut [u8] {
        self.0.working(pool)
    }

    fn finalize(self: Box<Self>, frames: Vec<Frame>) -> Result<Box<dyn Finalized>, Error> {
        Ok(Box::new(SealedMemory(self.0.finalize(frames)?)))
    }
}

impl Finalized for SealedMemory {
    fn address(&self, pool: SegmentKind) -> ExecutorAddr {
        self.0.address(pool)
    }

    fn usage(&self) -> MemoryUsage {
        self.0.usage()
    }

    fn word(&self, offset: u64) -> Option<&AtomicU64> {
        self.0.word(offset)
    }
}

/// Symptom: such a manager linked no object with a section of such a name.
#[test]
fn memory_that_cannot_be_written_once_it_is_finalized_has_bounds_of_one_object() {
    let own =
        c("__attribute__((section(\"sets\"), used)) static long mine = 7; extern long __start_sets[], __stop_sets[];
        long digits(void) { return (__stop_sets - __start_sets) * 10 + __start_sets[0]; }");
    let (Some(own), Some(one), Some(two), Some(reader)) = (own, part(1, "", &[1]), part(2, "", &[2]), reader("digits"))
    else {
        return;
    };
    let memory = || Arc::new(Sealed(SlabPool::new(SlabPoolOptions::default()).unwrap()));
    let jit = Jit::builder().memory_manager(memory()).build().unwrap();
    let alone = add(&jit, jit.main_dylib(), "own.o", &own);
    assert_eq!(long(&jit, "digits"), 17);
    remove_all(&jit, vec![alone]);
    let trackers = [("one.o", &one), ("two.o", &two)].map(|(name, object)| add(&jit, jit.main_dylib(), name, object));
    assert_eq!((long(&jit, "get_1"), long(&jit, "get_2")), (1, 2));
    assert_across(&refused_in(&jit, &reader, "digits"), "bad.o", "one.o", "has no `Finalized::write`");
    remove_all(&jit, trackers.into());
}

/// Symptom: each link visited the uses of all other objects with the section.
#[test]
fn very_many_objects_with_one_section_are_linked_in_linear_time() {
    let Some(part) = asm(".section sets,\"aw\",@progbits\n.quad 1\n.section .note.GNU-stack,\"\",@progbits\n") else {
        return;
    };
    let start = processor_time();
    let jit = new_jit();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    let object = ObjectBuffer::from(part);
    for number in 0..6000 {
        jit.link_object(&tracker, &format!("part{number}.o"), object.clone()).unwrap();
    }
    remove_all(&jit, vec![tracker]);
    assert_is_linear(start);
}

/// As compilers do for sanitizers: each object has a part, and refers to the bounds of all.
#[test]
fn very_many_objects_that_refer_to_the_bounds_of_all_are_linked_in_linear_time() {
    let Some(object) = asm(".section sets,\"aw\",@progbits\n.quad 1\n.data\n.globl size_0000\n
        size_0000: .quad __stop_sets - 8\n.section .note.GNU-stack,\"\",@progbits\n")
    else {
        return;
    };
    let named = |number: usize| {
        let (mut bytes, name) = (object.clone(), format!("size_{number:04}"));
        let start = bytes.windows(name.len()).position(|bytes| bytes == b"size_0000").unwrap();
        bytes[start..start + name.len()].copy_from_slice(name.as_bytes());
        bytes
    };
    let start = processor_time();
    let jit = new_jit();
    let main = jit.main_dylib();
    let trackers: Vec<_> = (0..2000).map(|number| add(&jit, main, &format!("{number}.o"), &named(number))).collect();
    let last_part = |number: usize| read(jit.address_of(main, &format!("size_{number:04}")).unwrap().value(), 8);
    assert_eq!(last_part(0), last_part(1999));
    remove_all(&jit, trackers);
    assert_is_linear(start);
}

fn assert_is_linear(start: Duration) {
    let elapsed = processor_time() - start;
    assert!(elapsed < Duration::from_secs(10), "{elapsed:?}");
}
