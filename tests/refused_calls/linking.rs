//! Refused calls during links and removals.

use std::sync::Arc;

use jittison::Jit;
use jittison::error::{ErrorKind, MemoryFault};
use jittison::memory::{MemoryManager, SlabPool};

use crate::calls::{Call, refusing};
use crate::support::*;
use crate::windows::{mappers, pool_of};

/// Code, constants, data, unwind tables and a large section of 2 MiB, with an alignment that `mmap` does not guarantee.
fn object() -> Option<Vec<u8>> {
    asm("
        .section .large,\"a\"\n.balign 2 << 20\nlarge: .fill 2 << 20, 1, 0x5a\n
        .section .rodata\nconstant: .quad 3\n
        .data\npointer: .quad large\nstate: .quad 4\n
        .text\n.globl test, place\n
        test: .cfi_startproc\nmovq constant(%rip), %rax\naddq state(%rip), %rax\nmovq pointer(%rip), %rcx\n
        cmpb $0x5a, 99(%rcx)\nje 1f\nud2\n1: ret\n.cfi_endproc\n
        place: movq pointer(%rip), %rax\nret\n
        .section .note.GNU-stack")
}

fn session(mapper: &'static dyn jittison::memory::MemoryMapper) -> (Jit, Arc<SlabPool>) {
    let memory = pool_of(mapper).unwrap();
    let jit = Jit::builder().memory_manager(memory.clone()).trap_freed_code(true).build().unwrap();
    links_on(&jit);
    (jit, memory)
}

#[test]
fn a_link_with_a_refused_call_fails_with_its_cause_and_leaves_nothing() {
    let Some(object) = object() else { return };
    for (mode, mapper) in mappers().into_iter().enumerate() {
        let (jit, _) = session(mapper);
        for call in [Call::Map, Call::Protect, Call::Advise] {
            let mut refusals = 0;
            loop {
                let tracker = add(&jit, jit.main_dylib(), "object.o", &object);
                let look_up = || try_function::<extern "C" fn() -> i64>(&jit, jit.main_dylib(), "test");
                let (test, was_refused) = refusing(call, refusals, look_up);
                match test {
                    Ok(test) => {
                        assert!(!was_refused, "a refused call must fail the link");
                        assert_eq!(test.call(), 7);
                    }
                    Err(error) => {
                        assert!(was_refused, "{error}");
                        let cause = error.root_cause();
                        assert!(matches!(cause.kind(), ErrorKind::Memory(MemoryFault::Refused { .. })), "{error}");
                        assert_says(
                            &error,
                            &["`test`", "was refused: Cannot allocate memory", "the operation was undone"],
                        );
                    }
                }
                assert!(tracker.remove().unwrap().is_complete());
                assert_eq!((held(&jit), jit.main_dylib().symbol_count()), ((0, 0, 0), 0), "{call:?} {refusals}");
                links_on(&jit);
                if !was_refused {
                    break;
                }
                refusals += 1;
            }
            // The large section has one mapping and one protection change. With a single mapping, two pools are opened and
            // sealed, too.
            let expected = match call {
                Call::Map => 1,
                Call::Protect if mode == 3 => 5,
                Call::Protect => 1,
                _ => 0,
            };
            assert_eq!(refusals, expected, "{call:?} in mapping mode {mode}");
        }
    }
}

#[test]
fn a_removal_completes_when_its_calls_are_refused() {
    let Some(object) = object() else { return };
    for mapper in mappers() {
        let (jit, memory) = session(mapper);
        for call in [Call::Unmap, Call::Protect, Call::Advise] {
            let mut refusals = 0;
            for after in 0..6 {
                let tracker = add(&jit, jit.main_dylib(), "object.o", &object);
                let place = long(&jit, "place") as u64;
                assert_eq!(long(&jit, "test"), 7);
                let (removal, was_refused) = refusing(call, after, || tracker.remove());
                assert!(removal.unwrap().is_complete());
                assert_eq!((held(&jit), memory.statistics().reserved_bytes), ((0, 0, 0), 0));
                if call == Call::Unmap && was_refused {
                    // The address space stays mapped, but its pages are free.
                    assert_eq!(read(place, 4096), [0; 4096]);
                }
                links_on(&jit);
                if !was_refused {
                    break;
                }
                refusals += 1;
            }
            assert!(refusals > 0 || call != Call::Unmap, "a removal unmaps the large section");
        }
    }
}
