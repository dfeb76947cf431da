//! Refusals while code is linked and removed.

use std::sync::Arc;

use jittison::Jit;
use jittison::error::{ErrorKind, MemoryFault};
use jittison::memory::{MemoryManager, SlabPool};

use crate::calls::{Call, refusing};
use crate::support::*;
use crate::windows::{mappers, pool_of};

/// Code, constants, data, unwind information, and 2 MiB that live apart, at an alignment that the kernel does not give
/// by itself.
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
fn a_link_whose_calls_are_refused_fails_clearly_and_leaves_nothing() {
    let Some(object) = object() else { return };
    for (rung, mapper) in mappers().into_iter().enumerate() {
        let (jit, _) = session(mapper);
        for call in [Call::Map, Call::Protect, Call::Advise] {
            let mut refusals = 0;
            loop {
                let tracker = add(&jit, jit.main_dylib(), "object.o", &object);
                let look_up = || try_function::<extern "C" fn() -> i64>(&jit, jit.main_dylib(), "test");
                let (test, was_refused) = refusing(call, refusals, look_up);
                match test {
                    Ok(test) => {
                        assert!(!was_refused, "no call of a link may fail unseen");
                        assert_eq!(test.call(), 7);
                    }
                    Err(error) => {
                        assert!(was_refused, "{error}");
                        let cause = error.root_cause();
                        assert!(matches!(cause.kind(), ErrorKind::Memory(MemoryFault::Refused { .. })), "{error}");
                        assert_says(&error, &["`test`", "was refused: Cannot allocate memory", "nothing was kept"]);
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
            // One mapping apart, and its protection; where code is mapped once, two pools are opened and sealed besides.
            let expected = match call {
                Call::Map => 1,
                Call::Protect if rung == 3 => 5,
                Call::Protect => 1,
                _ => 0,
            };
            assert_eq!(refusals, expected, "{call:?} at rung {rung}");
        }
    }
}

#[test]
fn a_removal_whose_calls_are_refused_is_complete_all_the_same() {
    let Some(object) = object() else { return };
    for mapper in mappers() {
        let (jit, memory) = session(mapper);
        for call in [Call::Unmap, Call::Protect, Call::Advise] {
            for after in 0..6 {
                let tracker = add(&jit, jit.main_dylib(), "object.o", &object);
                let place = long(&jit, "place") as u64;
                assert_eq!(long(&jit, "test"), 7);
                let (removal, was_refused) = refusing(call, after, || tracker.remove());
                assert!(removal.unwrap().is_complete());
                assert_eq!((held(&jit), memory.statistics().reserved_bytes), ((0, 0, 0), 0));
                if call == Call::Unmap && was_refused {
                    // The address space could not go, but its pages did.
                    assert_eq!(read(place, 4096), [0; 4096]);
                }
                links_on(&jit);
                if !was_refused {
                    break;
                }
            }
        }
    }
}
