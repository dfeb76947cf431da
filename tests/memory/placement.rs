//! The placement of windows: near the program by default, below 2 GiB on request. The address of the writable view is random.

use std::sync::Arc;

use jittison::Jit;
use jittison::base::SegmentKind;
use jittison::memory::{ForkPolicy, MemoryMapper, Placement, SlabPool, SlabPoolOptions, SystemMapper, WindowLayout};

use crate::mapping_modes::{assert_throws_and_catches, jit_over, mapping_modes, throwing};
use crate::support::*;

const REACH: u64 = 1 << 31;

fn placed(mapper: &'static dyn MemoryMapper, placement: Placement, window_size: u64) -> Arc<SlabPool> {
    let options = SlabPoolOptions { placement, window_size, ..SlabPoolOptions::default() };
    Arc::new(SlabPool::with_mapper(mapper, options).unwrap())
}

/// An object compiled with `-fno-pic`: it has absolute addresses in 32 bits.
fn fixed() -> Option<Vec<u8>> {
    gcc(
        &["-O2", "-fno-pic", "-mcmodel=small", "-fno-pie"],
        "static long values[4] = { 1, 2, 3, 4 }; static long *at = values + 1; const char text[] = \"fixed\";
         long sum(long i) { return values[i & 3] + *at; }
         const char *text_at(void) { return text; }
         long test(void) { return sum(3) * 10 + text_at()[0]; }",
    )
}

#[test]
fn a_low_window_lies_below_two_gigabytes() {
    let Some(throwing) = throwing() else { return };
    for (mapper, _) in mapping_modes() {
        let sessions: Vec<_> = (0..2).map(|_| placed(mapper, Placement::Low2GiB, 256 << 20)).collect();
        for memory in sessions {
            let (base, size) = memory.window();
            assert!(base.value() + size <= REACH, "{base}");
            let jit = jit_over(memory);
            if let Some(object) = fixed() {
                let _tracker = add(&jit, jit.main_dylib(), "fixed.o", &object);
                assert_eq!(long(&jit, "test"), 60 + i64::from(b'f'));
            }
            assert_throws_and_catches(&jit, &throwing);
        }
    }
}

#[test]
fn a_low_window_of_the_default_size_is_halved_until_it_fits() {
    let memory = placed(
        &SystemMapper { fork_policy: ForkPolicy::Snapshot },
        Placement::Low2GiB,
        SlabPoolOptions::default().window_size,
    );
    let (base, size) = memory.window();
    assert!(base.value() + size <= REACH && size > REACH / 2 - (8 << 20), "{base} {size:#x}");
}

#[test]
fn a_low_window_without_free_address_space_is_refused_and_the_error_names_the_occupant() {
    own_process!();
    for start in (1 << 20..REACH).step_by(16 << 20) {
        // SAFETY: `MAP_FIXED_NOREPLACE` maps only free address space. Nothing uses the mapping.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
            libc::mmap(start as *mut _, 4 << 20, libc::PROT_NONE, flags, -1, 0);
        }
    }
    let options = SlabPoolOptions { placement: Placement::Low2GiB, ..SlabPoolOptions::default() };
    let error = SlabPool::new(options).err().expect("there is no free address space");
    assert_says(&error, &["below 2 GiB", "no range of that size is free", "anonymous memory at 0x", "4096 KiB"]);
    // Other placements still work.
    let jit = Jit::new().unwrap();
    links_on(&jit);
}

/// The address range of the program's own segments.
fn program() -> std::ops::Range<u64> {
    let path = std::env::current_exe().unwrap();
    let of_program: Vec<_> = mappings().into_iter().filter(|mapping| mapping.name == path.to_string_lossy()).collect();
    of_program.first().unwrap().start..of_program.last().unwrap().end
}

#[test]
fn code_is_within_32_bits_of_the_program_if_the_kernel_allows_it() {
    own_process!();
    // In its own process, so that windows of other tests do not occupy the address space.
    let program = program();
    let reaches = |start: u64, end: u64| end.max(program.end) - start.min(program.start) <= REACH;
    for (mapper, _) in mapping_modes() {
        // A window of the default size always fits below the program.
        let memory = placed(mapper, Placement::NearHost, u64::MAX);
        let (base, size) = memory.window();
        let code = WindowLayout::divide(size).unwrap().pool(SegmentKind::Code);
        let start = base.value() + code.offset;
        assert!(reaches(start, start + code.size), "code at {start:#x}, the program at {:#x}", program.start);
        drop(memory);
        // A smaller window is within reach with all its pools.
        for memory in (0..2).map(|_| placed(mapper, Placement::NearHost, 512 << 20)).collect::<Vec<_>>() {
            let (base, size) = memory.window();
            assert!(reaches(base.value(), base.value() + size), "{base}");
        }
    }
}

#[test]
fn a_window_that_does_not_fit_near_the_program_is_mapped_elsewhere() {
    own_process!();
    let Some(throwing) = throwing() else { return };
    let sessions: Vec<_> = (0..5)
        .map(|_| placed(&SystemMapper { fork_policy: ForkPolicy::Snapshot }, Placement::NearHost, u64::MAX))
        .collect();
    for memory in sessions {
        assert_throws_and_catches(&jit_over(memory), &throwing);
    }
}

#[test]
fn the_heap_can_grow_beside_a_window() {
    own_process!();
    let _windows: Vec<_> = (0..3)
        .map(|_| placed(&SystemMapper { fork_policy: ForkPolicy::Snapshot }, Placement::NearHost, u64::MAX))
        .collect();
    // SAFETY: moves the end of the heap up and down again. Nothing is stored there.
    unsafe {
        assert_ne!(libc::sbrk(64 << 20) as isize, -1);
        libc::sbrk(-(64 << 20));
    }
}

#[test]
fn the_address_of_the_writable_view_is_random() {
    let test = this_test!();
    if is_rerun(test) {
        let _memory = placed(&SystemMapper { fork_policy: ForkPolicy::Snapshot }, Placement::NearHost, 64 << 20);
        let views = mappings().into_iter().filter(|mapping| mapping.name.contains("memfd:jittison"));
        let writable: Vec<_> = views.filter(|view| view.protection == "rw-s").collect();
        assert_eq!(writable.len(), 1);
        println!("alias {:x}.", writable[0].start);
        return;
    }
    let writable_address = |_| {
        let run = rerun(test).output().unwrap();
        let text = String::from_utf8_lossy(&run.stdout).into_owned();
        let (_, address) = text.split_once("alias ").expect("the child prints the address");
        address.split_once('.').unwrap().0.to_string()
    };
    let seen: std::collections::BTreeSet<String> = (0..6).map(writable_address).collect();
    assert!(seen.len() >= 5, "{seen:?}");
}
