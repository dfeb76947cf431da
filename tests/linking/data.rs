//! Data sections: relocated pointers, zero-fill on reused memory, alignment, empty objects.

use jittison::base::SegmentKind;
use jittison::link::PlannedLink;

use crate::support::*;

#[test]
fn sections_that_only_relocation_writes_are_read_only_at_run_time() {
    let relocated = [
        ".data.rel.ro",
        ".data.rel.ro.local",
        ".preinit_array",
        ".init_array",
        ".init_array.00100",
        ".fini_array",
        ".ctors",
        ".dtors",
    ];
    let written = [".data", ".data.rel", ".data.rel.root", ".data.x", ".init", ".initial", ".dat", ".profile", ".x"];
    let section =
        |name: &&str| format!(".section {name},\"aw\",@progbits\n.globl \"d_{name}\"\n\"d_{name}\": .quad there\n");
    let source: String = relocated.iter().chain(&written).map(section).collect();
    let Some(object) = asm(&format!("{source}.section .note.GNU-stack\n")) else { return };
    let planned = PlannedLink::plan("pools.o".into(), object.into(), |_| true, |_| Ok(())).unwrap();
    let graph = planned.graph();
    let pool_of =
        |name: &str| graph.blocks().find(|(id, _)| graph.block_name(*id) == name).map(|(_, block)| block.pool);
    relocated.iter().for_each(|name| assert_eq!(pool_of(name), Some(SegmentKind::ReadOnly), "{name}"));
    written.iter().for_each(|name| assert_eq!(pool_of(name), Some(SegmentKind::Data), "{name}"));
}

#[test]
fn addresses_in_data_are_relocated_with_their_addends() {
    let Some(object) = c("
        static char bytes[64] = \"0123456789\";
        extern char outer[];
        char *const into = bytes + 3;
        char *outside = outer + 5;
        long (*self)(void);
        struct { void *a; char pad; void *b; } __attribute__((packed)) odd = { bytes + 9, 1, &into };
        long test(void) { return (into[0] - '0') * 1000 + (outside[0] - '0') * 100 + (*(char *)odd.a - '0') * 10
                                 + (odd.b == (void *)&into); }
    ") else {
        return;
    };
    let Some(outer) = c("char outer[32] = \"abcde7\";") else { return };
    let (jit, _trackers) = linked(&[&object, &outer]);
    assert_eq!(long(&jit, "test"), 3791);
}

#[test]
fn zero_fill_is_zero_on_reused_memory() {
    let Some(object) = c("
        static unsigned char zeroes[70000];
        static unsigned char dirt[70000] = { 1 };
        long test(void) {
            long sum = 0;
            for (int i = 0; i < 70000; i++) { sum += zeroes[i]; zeroes[i] = 0xff; dirt[i] = 0xee; }
            return sum;
        }
        void *where(void) { return zeroes; }
    ") else {
        return;
    };
    let jit = new_jit();
    let mut places = Vec::new();
    for round in 0..20 {
        // A spacer shifts the layout, so that zero-fill gets memory that held data before.
        let spacer = (round % 3 == 1).then(|| {
            let spacer = c("long spacer[300] = { 5 }; long spaced(void) { return spacer[0]; }").unwrap();
            let tracker = add(&jit, jit.main_dylib(), "spacer.o", &spacer);
            assert_eq!(long(&jit, "spaced"), 5);
            tracker
        });
        let tracker = add(&jit, jit.main_dylib(), "zeroes.o", &object);
        assert_eq!(long(&jit, "test"), 0, "round {round}");
        places.push(long(&jit, "where"));
        assert!(tracker.remove().unwrap().is_complete());
        drop(spacer);
        assert!(jit.main_dylib().clear().unwrap().is_empty());
        assert_eq!(held(&jit), (0, 0, 0));
    }
    places.sort_unstable();
    places.dedup();
    assert!(places.len() < 20, "no address was reused: {places:x?}");
}

#[test]
fn every_alignment_up_to_two_mebibytes_is_kept_for_code_constants_data_and_zero_fill() {
    for align in [64u64, 256, 4096, 8192, 65536, 1 << 21] {
        let Some(object) = gcc(
            &["-O1", "-fPIC"],
            &format!(
                "static char pad1[3] = \"x\"; static const char pad2[] = \"yy\";
                 __attribute__((aligned({align}))) static const long constant[2] = {{ 11, 1 }};
                 __attribute__((aligned({align}))) static long data[2] = {{ 7, 2 }};
                 __attribute__((aligned({align}))) static long zero[2];
                 void *constant_at(void) {{ return (void *)(constant + (pad2[0] == 0)); }}
                 void *data_at(void) {{ return data + (pad1[0] == 0); }}
                 void *zero_at(void) {{ return zero; }}
                 long test(void) {{ data[0]++; zero[0]++; return constant[0] * 100 + data[0] * 10 + zero[0]; }}"
            ),
        ) else {
            return;
        };
        let Some(code) = asm(&format!(
            ".text\nret\n.balign {align}\n.globl code\ncode: lea code(%rip), %rax\nret\n.section .note.GNU-stack"
        )) else {
            return;
        };
        let (jit, trackers) = linked(&[&object, &code]);
        for place in ["constant_at", "data_at", "zero_at", "code"] {
            assert_eq!(long(&jit, place) as u64 % align, 0, "{place} aligned to {align}");
        }
        assert_eq!(long(&jit, "test"), 1181);
        assert!(trackers.iter().all(|tracker| tracker.remove().unwrap().is_complete()));
        assert_eq!(held(&jit), (0, 0, 0));
    }
}

#[test]
fn an_empty_object_is_added_and_removed() {
    let (Some(empty), Some(assembled)) = (c(""), asm(".section .note.GNU-stack")) else { return };
    let jit = new_jit();
    for bytes in [&empty, &assembled] {
        let tracker = add(&jit, jit.main_dylib(), "empty.o", bytes);
        assert_eq!(initialize(&jit, jit.main_dylib()), 0);
        assert!(tracker.remove().unwrap().is_complete());
    }
    assert_eq!(held(&jit), (0, 0, 0));
    assert_eq!(jit.main_dylib().symbol_count(), 0);
}

#[test]
fn initialize_runs_an_object_that_has_only_a_constructor() {
    let (Some(constructor), Some(state)) = (
        c("extern long state; __attribute__((constructor)) static void set(void) { state = 42; }"),
        c("long state; long test(void) { return state; }"),
    ) else {
        return;
    };
    let (jit, trackers) = linked(&[&constructor, &state]);
    assert_eq!(long(&jit, "test"), 0, "nothing has linked the other object");
    assert_eq!(initialize(&jit, jit.main_dylib()), 1);
    assert_eq!(long(&jit, "test"), 42);
    assert_eq!(initialize(&jit, jit.main_dylib()), 0, "each initialiser runs once");
    assert!(trackers[0].remove().unwrap().is_complete());
    assert!(trackers[1].remove().unwrap().is_complete());
    assert_eq!(held(&jit), (0, 0, 0));
}

#[test]
fn a_pointer_variable_whose_name_begins_with_ro_can_be_written() {
    // gcc puts it into `.data.rel.root`.
    let source = "int x = 40; int *root = &x; int y = 42; long test(void) { root = &y; return *root; }";
    let Some(object) = gcc(&["-O1", "-fPIC", "-fdata-sections"], source) else { return };
    let (jit, _trackers) = linked(&[&object]);
    assert_eq!(long(&jit, "test"), 42);
}

#[test]
fn a_section_of_four_mebibytes_links_and_is_counted() {
    let Some(object) = asm("
        .section .blob,\"a\"\nblob: .fill 4194304, 1, 0x5a\n
        .text\n.globl test\ntest: lea blob(%rip), %rax\nmovzbl 4194303(%rax), %eax\nret\n.section .note.GNU-stack
    ") else {
        return;
    };
    let (jit, trackers) = linked(&[&object]);
    assert_eq!(long(&jit, "test"), 0x5a);
    assert!(jit.usage(&trackers[0]).read_only >= 4 << 20);
    assert!(trackers[0].remove().unwrap().is_complete());
    assert_eq!(held(&jit), (0, 0, 0));
}

#[test]
fn a_huge_zero_fill_costs_no_resident_memory() {
    own_process!();
    let Some(object) = c("static char huge[300 << 20]; long test(void) { huge[299 << 20] = 1; return huge[5]; }")
    else {
        return;
    };
    let resident = || {
        let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
        let line = text.lines().find(|line| line.starts_with("Anonymous:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() // KiB
    };
    let jit = new_jit();
    let before = resident();
    let tracker = add(&jit, jit.main_dylib(), "huge.o", &object);
    assert_eq!(long(&jit, "test"), 0);
    assert!(resident() < before + (30 << 10), "{} -> {} KiB", before, resident());
    assert!(tracker.remove().unwrap().is_complete());
}
