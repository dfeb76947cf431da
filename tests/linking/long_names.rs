//! Long symbol names: whichever way an object is linked, the heap gets the bytes of each defined name once, and those of no external.

use jittison::link::ObjectBuffer;
use jittison::{Jit, ResourceTracker};

use crate::support::*;

/// Names of `length` bytes.
fn names(count: usize, length: usize) -> Vec<String> {
    (0..count).map(|number| format!("f{number:_<width$}", width = length - 1)).collect()
}

fn object(defined: &[String], called: &[String]) -> Option<Vec<u8>> {
    let definitions: String = defined.iter().map(|name| format!(".globl {name}\n{name}: ret\n")).collect();
    let calls: String = called.iter().map(|name| format!("call {name}@plt\n")).collect();
    let note = ".section .note.GNU-stack,\"\",@progbits\n";
    asm(&format!(".text\n{definitions}.globl user\nuser:\n{calls}ret\n{note}"))
}

/// The bytes that `link` allocates for an object under a new tracker. The bytes of the object itself are allocated before.
fn allocated_by(jit: &Jit, object: &[u8], link: impl FnOnce(&ResourceTracker, ObjectBuffer)) -> (ResourceTracker, u64) {
    let (tracker, bytes) = (jit.main_dylib().create_tracker().unwrap(), ObjectBuffer::from(object.to_vec()));
    let before = allocated_bytes();
    link(&tracker, bytes);
    (tracker, allocated_bytes() - before)
}

/// What a link allocates besides names, at most: less than a second copy of the names. A second link of the same kind finds the
/// buffers of the thread.
const REST: u64 = 40_000;

#[test]
fn a_link_stores_the_bytes_of_a_long_name_once() {
    const LENGTH: usize = 16 << 10;
    for count in [4, 8] {
        let (own, others) = (names(count, LENGTH), names(40, LENGTH));
        // In the second object the names of definitions are a small part of its string table.
        let (Some(plain), Some(calling)) = (object(&own, &[]), object(&own, &others[20..])) else { return };
        let jit = Jit::new().unwrap();
        others[20..].iter().for_each(|name| define_absolute(jit.main_dylib(), name, 0x1000));
        for object in [&plain, &calling] {
            let at_once =
                || allocated_by(&jit, object, |tracker, bytes| jit.link_object(tracker, "a.o", bytes).unwrap());
            let on_demand = || {
                allocated_by(&jit, object, |tracker, bytes| {
                    jit.add_object(tracker, "a.o", bytes).unwrap();
                    jit.address_of(jit.main_dylib(), "user").unwrap();
                })
            };
            for link in [&at_once as &dyn Fn() -> (ResourceTracker, u64), &on_demand] {
                drop(link().0.remove().unwrap());
                let (tracker, allocated) = link();
                assert!(allocated < (count * LENGTH) as u64 + REST, "{count}: {allocated}");
                tracker.remove().unwrap();
            }
        }
    }
}

#[test]
fn a_lookup_of_externals_that_are_not_linked_yet_copies_no_name() {
    const LENGTH: usize = 16 << 10;
    let own = names(4, LENGTH);
    let (Some(defining), Some(calling)) = (object(&own, &[]), asm_of_calls(&own)) else { return };
    let jit = Jit::new().unwrap();
    let mut allocated = 0;
    // The first round allocates the buffers of the thread.
    for _ in 0..2 {
        let (definitions, _) =
            allocated_by(&jit, &defining, |tracker, bytes| jit.add_object(tracker, "b.o", bytes).unwrap());
        let (tracker, bytes) = allocated_by(&jit, &calling, |tracker, bytes| {
            jit.add_object(tracker, "a.o", bytes).unwrap();
            jit.address_of(jit.main_dylib(), "caller").unwrap();
        });
        allocated = bytes;
        tracker.remove().unwrap();
        definitions.remove().unwrap();
    }
    assert!(allocated < REST, "{allocated}");
}

fn asm_of_calls(called: &[String]) -> Option<Vec<u8>> {
    let calls: String = called.iter().map(|name| format!("call {name}@plt\n")).collect();
    asm(&format!(".text\n.globl caller\ncaller:\n{calls}ret\n.section .note.GNU-stack,\"\",@progbits\n"))
}
