//! All code and data of a session are within 32-bit reach of each other: with little free address space, in many slabs, and
//! for references that cannot use a stub.

use std::sync::Arc;

use jittison::Jit;
use jittison::memory::{SlabPool, SlabPoolOptions};

use crate::support::*;

const MIB: u64 = 1 << 20;

fn jit_with(slab_size: u64) -> Jit {
    let options = SlabPoolOptions { slab_size, shards: 1, ..SlabPoolOptions::default() };
    let memory = Arc::new(SlabPool::new(options).unwrap());
    Jit::builder().library("libstdc++.so.6").memory_manager(memory).build().unwrap()
}

/// Maps all free address space within `distance` of `address` and returns the number of bytes. It stays mapped until the process
/// ends.
fn block_around(address: u64, distance: u64) -> u64 {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    let start = address.saturating_sub(distance).max(MIB) & !(MIB - 1);
    let take = |at: u64| {
        // SAFETY: `MAP_FIXED_NOREPLACE` maps only free address space. Nothing uses the mapping.
        unsafe { libc::mmap(at as *mut _, MIB as usize, libc::PROT_NONE, flags, -1, 0) != libc::MAP_FAILED }
    };
    (start..address + distance).step_by(MIB as usize).filter(|at| take(*at)).count() as u64 * MIB
}

fn hidden_pair() -> Option<[Vec<u8>; 2]> {
    let flags = ["-O2", "-fPIE", "-fvisibility=hidden"];
    Some([
        gcc(&flags, "long callee(void) { return 6; } long datum = 7;")?,
        gcc(
            &flags,
            "#pragma GCC visibility push(hidden)
             extern long callee(void); extern long datum;
             #pragma GCC visibility pop
             long test(void) { return callee() * 10 + datum; }",
        )?,
    ])
}

#[test]
fn two_objects_share_a_slab_if_the_address_space_around_it_is_taken() {
    own_process!();
    let Some([hidden, caller]) = hidden_pair() else { return };
    let jit = jit_with(8 * MIB);
    let _hidden = add(&jit, jit.main_dylib(), "hidden.o", &hidden);
    let first = jit.address_of(jit.main_dylib(), "callee").unwrap().value();
    block_around(first, 256 * MIB);
    assert_eq!(block_around(first, 256 * MIB), 0, "no address space is free there");
    let _caller = add(&jit, jit.main_dylib(), "caller.o", &caller);
    assert_eq!(long(&jit, "test"), 67);
    let second = jit.address_of(jit.main_dylib(), "test").unwrap().value();
    assert!(first.abs_diff(second) < 8 * MIB, "{first:#x} and {second:#x}");
}

#[test]
fn pie_objects_reach_their_dso_handle_if_three_gibibytes_around_it_are_taken() {
    own_process!();
    let class = |name: &str| {
        format!(
            "extern \"C\" long drops; struct {name} {{ long value; {name}() : value(5) {{}} ~{name}() {{ drops++; }} }};
             static {name} object; extern \"C\" long of_{name}() {{ return object.value; }}"
        )
    };
    let compile = |name| gxx(&["-O2", "-fpie"], &class(name));
    let (Some(first), Some(second), Some(counter)) =
        (compile("first"), compile("second"), c("long drops; long dropped(void) { return drops; }"))
    else {
        return;
    };
    let jit = jit_with(0);
    let _counter = add(&jit, jit.main_dylib(), "counter.o", &counter);
    let early = add(&jit, jit.main_dylib(), "first.o", &first);
    assert_eq!(long(&jit, "of_first"), 5);
    let place = jit.address_of(jit.main_dylib(), "of_first").unwrap().value();
    block_around(place, 3 << 30);
    let late = add(&jit, jit.main_dylib(), "second.o", &second);
    assert_eq!(long(&jit, "of_second"), 5);
    assert!(late.remove().unwrap().is_complete());
    assert_eq!(long(&jit, "dropped"), 1, "destructors run when their module is removed, not at exit");
    assert!(early.remove().unwrap().is_complete());
    assert_eq!(long(&jit, "dropped"), 2);
}

#[test]
fn a_dylib_in_many_slabs_calls_its_hidden_functions() {
    // Each module fills most of a slab, and calls the one before it.
    let module = |number: usize| {
        asm(&format!(
            ".text\n.globl f{number}\n.hidden f{number}\nf{number}: {}\nincq %rax\nret\n.fill 1500000, 1, 0x90\n
             .section .note.GNU-stack",
            match number {
                0 => "xorl %eax, %eax".to_string(),
                // The code takes the address with a 32-bit displacement, which cannot use a stub.
                _ =>
                    format!(".hidden f{0}\nsubq $8, %rsp\nlea f{0}(%rip), %rax\ncall *%rax\naddq $8, %rsp", number - 1),
            }
        ))
    };
    let Some(modules) = (0..24).map(module).collect::<Option<Vec<_>>>() else { return };
    let Some(test) = asm(".text\n.globl test\n.hidden f23\ntest: jmp f23\n.section .note.GNU-stack") else { return };
    let jit = jit_with(0);
    let _trackers: Vec<_> = modules.iter().map(|module| add(&jit, jit.main_dylib(), "module.o", module)).collect();
    let _test = add(&jit, jit.main_dylib(), "test.o", &test);
    assert_eq!(long(&jit, "test"), 24);
    let statistics = jit.memory_statistics();
    assert!(statistics.opened_bytes >= 24 * 3 / 4 * 2 * MIB, "{statistics:?}");
}

#[test]
fn sixteen_modules_larger_than_one_slab_all_run() {
    let module = |number: u64| {
        c(&format!("static char spread[1 << 20] = {{ {number} }}; long test(void) {{ return spread[0]; }}"))
    };
    let Some(modules) = (0..16).map(module).collect::<Option<Vec<_>>>() else { return };
    let jit = jit_with(8 * MIB);
    let before = jit.memory_statistics().opened_bytes;
    let dylibs: Vec<_> = (0..16).map(|number| jit.create_dylib(&format!("module {number}")).unwrap()).collect();
    let trackers: Vec<_> =
        dylibs.iter().zip(&modules).map(|(dylib, module)| add(&jit, dylib, "module.o", module)).collect();
    for _ in 0..2 {
        for (number, dylib) in dylibs.iter().enumerate() {
            assert_eq!(long_in(&jit, dylib, "test"), number as i64);
        }
    }
    assert!(jit.memory_statistics().opened_bytes - before >= 16 * MIB);
    assert!(trackers.iter().all(|tracker| tracker.remove().unwrap().is_complete()));
    assert_eq!(held(&jit), (0, 0, 0));
}
