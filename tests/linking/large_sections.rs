//! Large sections: a section of [`LARGE_SECTION_MIN`] bytes or more that only 64-bit addresses refer to gets a mapping of its
//! own, outside the window. Any other section stays in the window.

use std::sync::Arc;

use jittison::Jit;
use jittison::error::ErrorKind;
use jittison::link::{FoundExternal, LARGE_SECTION_MIN, ObjectBuffer, PlannedLink};
use jittison::memory::{
    Finalized, ForkPolicy, Frame, InFlight, MemoryManager, MemoryStatistics, PlainDualMapper, SegmentPlan,
    SingleMapper, SlabPool, SlabPoolOptions, SystemMapper,
};

use crate::support::*;

/// An object with a section `.nv_fatbin` of `size` bytes, as CUDA compilers make it, and `more` assembly. Only a 64-bit address
/// in `.data.rel` refers to the section. The function `place` returns the address of the section.
fn fat_binary(flags: &str, size: u64, more: &str) -> Option<Vec<u8>> {
    asm(&format!(
        ".section .nv_fatbin,\"{flags}\"\n.balign 8\nfat: .fill {size} - 8, 1, 0x5a\n.quad 0x1122334455667788\n
         .section .data.rel,\"aw\"\npointer: .quad fat\n
         .text\n.globl place\nplace: movq pointer(%rip), %rax\nret\n{more}\n.section .note.GNU-stack"
    ))
}

fn planned(object: &[u8]) -> PlannedLink {
    PlannedLink::plan("fat.o".into(), ObjectBuffer::new(object.to_vec()), |_| true, |_| Ok(())).unwrap()
}

fn pool() -> Arc<SlabPool> {
    let options = SlabPoolOptions { window_size: 64 << 20, trap_freed_code: true, ..SlabPoolOptions::default() };
    Arc::new(SlabPool::new(options).unwrap())
}

fn jit_over(memory: &Arc<SlabPool>) -> Jit {
    Jit::builder().memory_manager(memory.clone()).build().unwrap()
}

fn is_inside(memory: &SlabPool, address: u64) -> bool {
    let (base, size) = memory.window();
    (base.value()..base.value() + size).contains(&address)
}

fn mapping_at(address: u64) -> Option<Mapping> {
    // Shares the process: the caller owns the mapping at this address.
    mappings().into_iter().find(|mapping| (mapping.start..mapping.end).contains(&address))
}

#[test]
fn a_large_section_is_mapped_outside_the_window_counted_and_freed_with_its_object() {
    own_process!();
    let Some(object) = fat_binary("a", 4 << 20, "") else { return };
    let mappers: [&dyn jittison::memory::MemoryMapper; 3] = [
        &SystemMapper { fork_policy: ForkPolicy::Snapshot },
        &PlainDualMapper { fork_policy: ForkPolicy::Snapshot },
        &SingleMapper,
    ];
    for mapper in mappers {
        let options = SlabPoolOptions { window_size: 64 << 20, ..SlabPoolOptions::default() };
        let memory = Arc::new(SlabPool::with_mapper(mapper, options).unwrap());
        let jit = jit_over(&memory);
        let before = mappings().len();
        for _ in 0..3 {
            let tracker = add(&jit, jit.main_dylib(), "fat.o", &object);
            let place = long(&jit, "place") as u64;
            assert!(!is_inside(&memory, place), "{place:#x}");
            let bytes = read(place, 4 << 20);
            assert!(bytes[..(4 << 20) - 8].iter().all(|byte| *byte == 0x5a));
            assert_eq!(bytes[(4 << 20) - 8..], 0x1122_3344_5566_7788u64.to_le_bytes());
            assert_eq!(mapping_at(place).unwrap().protection, "r--p");
            let usage = jit.usage(&tracker);
            assert!(usage.read_only >= 4 << 20 && usage.reserved >= 4 << 20, "{usage:?}");
            assert_eq!(held(&jit), (1, usage.requested(), usage.reserved));
            let statistics = jit.memory_statistics();
            assert_eq!(statistics.opened_bytes, statistics.reserved_bytes + statistics.free_bytes);
            assert!(statistics.resident_bytes >= 4 << 20);
            assert!(tracker.remove().unwrap().is_complete());
            assert!(mapping_at(place).is_none_or(|mapping| mapping.protection != "r--p"));
            assert_eq!(held(&jit), (0, 0, 0));
        }
        assert_eq!(mappings().len(), before);
    }
}

#[test]
fn a_large_writable_section_is_writable_and_not_executable() {
    let Some(object) = fat_binary(
        "aw",
        LARGE_SECTION_MIN,
        ".globl test\ntest: movq pointer(%rip), %rcx\nincq 8(%rcx)\nmovq 8(%rcx), %rax\nret",
    ) else {
        return;
    };
    let memory = pool();
    let jit = jit_over(&memory);
    let tracker = add(&jit, jit.main_dylib(), "fat.o", &object);
    assert_eq!([long(&jit, "test"), long(&jit, "test")], [0x5a5a_5a5a_5a5a_5a5b, 0x5a5a_5a5a_5a5a_5a5c]);
    let place = long(&jit, "place") as u64;
    assert!(!is_inside(&memory, place));
    assert_eq!(mapping_at(place).unwrap().protection, "rw-p");
    assert!(jit.usage(&tracker).data >= LARGE_SECTION_MIN);
}

#[test]
fn pointers_in_a_large_section_are_relocated_with_their_addends() {
    let Some(object) = asm("
        .section .nv_fatbin,\"aw\"\ntable: .quad test, table + 24, datum - 8, far + 100\n.zero 2 << 20\n
        .data\nfill: .quad 0\ndatum: .quad 42\npointer: .quad table\n
        .text\n.globl test\ntest: movq pointer(%rip), %rax\nret\n.section .note.GNU-stack")
    else {
        return;
    };
    let (jit, _trackers) = linked(&[&object]);
    define_absolute(jit.main_dylib(), "far", 0x1234_5678_9000);
    let table = long(&jit, "test") as u64;
    let words: Vec<u64> = read(table, 32).chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
    assert_eq!(words[0], jit.address_of(jit.main_dylib(), "test").unwrap().value());
    assert_eq!(words[1], table + 24);
    assert_eq!(read(words[2] + 8, 8), 42u64.to_le_bytes());
    assert_eq!(words[3], 0x1234_5678_9064);
}

#[test]
fn a_section_is_large_at_the_threshold_and_not_one_byte_below() {
    for (size, count) in [(LARGE_SECTION_MIN - 1, 0), (LARGE_SECTION_MIN, 1), (LARGE_SECTION_MIN + 1, 1)] {
        let Some(object) = fat_binary("a", size, "") else { return };
        let plan = planned(&object);
        let large = &plan.segment_plan().large_sections;
        assert_eq!(large.len(), count, "{size}");
        assert!(large.iter().all(|request| request.size == size && request.is_read_only && request.align == 8));
        assert_eq!(plan.graph().blocks().filter(|(_, block)| block.is_large()).count(), count);
        assert_eq!(plan.segment_plan().requested_bytes() > size, count == 0);
    }
}

#[test]
fn a_section_that_something_reaches_by_a_displacement_stays_in_the_window() {
    let cases = [
        ("code", "lea fat(%rip), %rax"),
        ("code, through the GOT", "movq fat@GOTPCREL(%rip), %rax"),
        ("data, in 32 bits", ".section .rodata\n.globl table\ntable: .long fat - ."),
        ("data, in 64 bits", ".section .rodata\n.globl table\ntable: .quad fat - ."),
        ("data, relative to the GOT", ".section .rodata\n.globl table\ntable: .quad fat@GOTOFF"),
        ("an absolute address in 32 bits", "movl $fat, %eax"),
        ("unwind information", ".cfi_startproc\n.cfi_lsda 0x1b, fat\nret\n.cfi_endproc"),
        ("the section itself", ".section .nv_fatbin\n.long place - ."),
        ("the section itself, in 64 bits", ".section .nv_fatbin\n.quad place - ."),
        ("other objects, by name", ".globl fat"),
        ("other objects, by a weak name", ".weak fat"),
    ];
    for (referrer, more) in cases {
        let Some(object) = fat_binary("a", 2 << 20, more) else { return };
        assert_eq!(planned(&object).segment_plan().large_sections, [], "{referrer}");
    }
    let Some(object) = fat_binary("a", 2 << 20, "movabs $fat, %rax") else { return };
    assert_eq!(planned(&object).segment_plan().large_sections.len(), 1, "an absolute address in 64 bits");
}

#[test]
fn large_code_zero_fill_and_initialiser_lists_stay_in_the_window() {
    let plans = [
        ".section .text.large,\"ax\"\n.fill 2 << 20, 1, 0x90",
        ".section .bss.large,\"aw\",@nobits\nlarge: .zero 2 << 20\n.data\n.quad large",
        ".section .init_array,\"aw\"\n.fill (2 << 20) / 8, 8, 0",
    ];
    for source in plans {
        let Some(object) = asm(&format!("{source}\n.section .note.GNU-stack")) else { return };
        assert_eq!(planned(&object).segment_plan().large_sections, [], "{source}");
    }
}

// Seen red: the second section had a mapping of its own, so the loop did not reach it.
#[test]
fn sections_of_one_name_with_bounds_stay_together_if_one_is_large() {
    let Some(object) = asm("
        .section parts,\"a\",@progbits\n.quad 1
        .section parts,\"a\",@progbits,unique,1\n.zero 4 << 20\n.quad 10
        .section parts,\"a\",@progbits,unique,2\n.quad 100
        .section .rodata\nbounds: .quad __start_parts, __stop_parts
        .text\n.globl test
        test: mov bounds(%rip), %rdx; mov bounds + 8(%rip), %rcx; xor %eax, %eax
        1: cmp %rcx, %rdx; jae 2f; add (%rdx), %rax; add $8, %rdx; jmp 1b
        2: ret\n.section .note.GNU-stack")
    else {
        return;
    };
    let (jit, _trackers) = linked(&[&object]);
    assert_eq!(long(&jit, "test"), 111);
    assert_eq!(planned(&object).segment_plan().large_sections, []);
}

#[test]
fn large_sections_get_the_alignment_that_they_ask_for() {
    for align in [1u64, 64, 4096, 65536, 1 << 21] {
        let Some(object) = fat_binary("a", 2 << 20, &format!(".section .nv_fatbin\n.balign {align}")) else { return };
        let jit = new_jit();
        let _tracker = add(&jit, jit.main_dylib(), "fat.o", &object);
        assert_eq!(long(&jit, "place") as u64 % align, 0, "{align}");
    }
}

#[test]
fn a_dropped_or_failed_link_frees_its_large_sections() {
    let Some(object) = fat_binary("a", 4 << 20, "pop far(%rip)") else { return };
    let memory = pool();
    let placed = || planned(&object).allocate(&*memory).unwrap();
    let assert_empty = || assert_eq!((memory.statistics().live_bytes, memory.statistics().reserved_bytes), (0, 0));
    let unfinished = placed();
    assert!(memory.statistics().reserved_bytes >= 4 << 20, "an unfinished link counts, too");
    drop(unfinished);
    assert_empty();
    let far = FoundExternal { address: jittison::base::ExecutorAddr::new(8), ..FoundExternal::default() };
    assert!(placed().finish(&[far], None).is_err(), "out of reach");
    assert_empty();
}

#[test]
fn the_budget_counts_large_sections() {
    let Some(object) = fat_binary("a", 4 << 20, "") else { return };
    let options = SlabPoolOptions { budget: Some((4 << 20) + 4096), ..SlabPoolOptions::default() };
    let memory = SlabPool::new(options).unwrap();
    let first = planned(&object).allocate(&memory).unwrap();
    let error = planned(&object).allocate(&memory).err().unwrap();
    assert_says(&error, &["budget of 4198400 bytes", "4194304 bytes were requested"]);
    drop(first);
    drop(planned(&object).allocate(&memory).unwrap());
    assert_eq!(memory.statistics().reserved_bytes, 0);
}

#[test]
fn a_memory_manager_without_large_sections_refuses_only_links_that_need_them() {
    struct NoLargeSections(SlabPool);
    struct NoLargeInFlight(Box<dyn InFlight>);
    // SAFETY: the pool makes all allocations. Those without large sections return no bytes for them.
    unsafe impl MemoryManager for NoLargeSections {
        fn allocate(&self, plan: &SegmentPlan) -> jittison::error::Result<Box<dyn InFlight>> {
            Ok(Box::new(NoLargeInFlight(self.0.allocate(&SegmentPlan { large_sections: Vec::new(), ..plan.clone() })?)))
        }
        fn statistics(&self) -> MemoryStatistics {
            self.0.statistics()
        }
    }
    impl InFlight for NoLargeInFlight {
        fn address(&self, pool: jittison::base::SegmentKind) -> jittison::base::ExecutorAddr {
            self.0.address(pool)
        }
        fn working(&mut self, pool: jittison::base::SegmentKind) -> &mut [u8] {
            self.0.working(pool)
        }
        fn finalize(self: Box<Self>, frames: Vec<Frame>) -> jittison::error::Result<Box<dyn Finalized>> {
            self.0.finalize(frames)
        }
    }
    let Some(object) = fat_binary("a", 2 << 20, "") else { return };
    let memory = NoLargeSections(SlabPool::new(SlabPoolOptions::default()).unwrap());
    let jit = Jit::builder().memory_manager(Arc::new(memory)).build().unwrap();
    let error = refused_in(&jit, &object, "place");
    assert!(matches!(error.root_cause().kind(), ErrorKind::Memory(_)), "{error}");
    assert_says(&error, &["2097152 bytes", "supports no large sections"]);
}
