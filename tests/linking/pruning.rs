//! Dead-stripping: unreachable sections get no memory, and symbols that only they need are not looked up.

use jittison::base::SegmentKind;
use jittison::link::{Definition, Edge, EdgeKind, LinkGraph, ObjectBuffer, PlannedLink};

use crate::support::*;

const SECTIONS: [&str; 4] = ["-O1", "-fPIC", "-ffunction-sections", "-fdata-sections"];

/// Names of the sections that the link keeps.
fn kept_sections(object: &[u8]) -> Vec<String> {
    kept_sections_after(object, |_| {})
}

/// The same after a plugin has changed the graph.
fn kept_sections_after(object: &[u8], change: impl FnOnce(&mut LinkGraph)) -> Vec<String> {
    let prepare = |graph: &mut LinkGraph| {
        change(graph);
        Ok(())
    };
    let planned = PlannedLink::plan("o".into(), ObjectBuffer::from(object), |_| true, prepare).unwrap();
    let graph = planned.graph();
    let live = graph.blocks().filter(|(_, block)| !block.is_dropped() && block.size > 0);
    live.map(|(id, _)| graph.block_name(id).to_string()).collect()
}

#[test]
fn unreachable_sections_and_their_missing_symbols_are_dropped() {
    let source = "
        extern long missing(long);
        __attribute__((used)) static long dead(long x) { return missing(x); }
        __attribute__((used)) static long dead_data = 5;
        __attribute__((noinline)) static long alive(long x) { return x * 3; }
        long test(void) { return alive(14); }";
    let Some(object) = gcc(&SECTIONS, source) else { return };
    let kept = kept_sections(&object);
    assert!(kept.contains(&".text.test".to_string()) && kept.contains(&".text.alive".to_string()), "{kept:?}");
    assert!(!kept.iter().any(|name| name.contains("dead")), "{kept:?}");
    let (jit, _trackers) = linked(&[&object]);
    assert_eq!(long(&jit, "test"), 42, "the link succeeds without `missing`");
}

#[test]
fn initialisers_their_callees_and_retained_sections_are_kept() {
    let source = "
        long ran;
        __attribute__((noinline)) static void helper(void) { ran = 7; }
        __attribute__((constructor)) static void start(void) { helper(); }
        __attribute__((section(\"kept\"), retain, used)) static long retained = 3;
        long test(void) { return ran; }";
    let Some(object) = gcc(&SECTIONS, source) else { return };
    let kept = kept_sections(&object);
    for name in [".text.start", ".text.helper", "kept"] {
        assert!(kept.contains(&name.to_string()), "{name} of {kept:?}");
    }
    let (jit, _trackers) = linked(&[&object]);
    assert_eq!(long(&jit, "test"), 7);
}

#[test]
fn a_link_order_section_is_kept_only_with_its_linked_section() {
    let source = r#"
        .section .text.live,"ax",@progbits; .globl test
        test: mov $1, %eax; ret
        .section .text.dead,"ax",@progbits
        local: ret
        .section about,"ao",@progbits,.text.live; .quad 1
        .section about,"ao",@progbits,.text.dead; .quad 2
        .section .note.GNU-stack,"",@progbits
    "#;
    let Some(object) = asm(source) else { return };
    assert_eq!(kept_sections(&object), [".text.live", "about"]);
}

#[test]
fn unwind_tables_keep_no_code_alive_and_unwind_live_code() {
    let source = "
        __attribute__((used)) static void dead() { throw 1; }
        __attribute__((noinline)) static void thrower(int x) { if (x) throw x; }
        extern \"C\" long test() { try { thrower(6); } catch (int x) { return x; } return 0; }";
    let Some(object) = gxx(&SECTIONS, source) else { return };
    assert!(!kept_sections(&object).iter().any(|name| name.contains("dead")));
    let (jit, _trackers) = linked(&[&object]);
    assert_eq!(long(&jit, "test"), 6);
}

#[test]
fn a_table_that_only_unwind_tables_of_live_code_refer_to_is_kept() {
    let source = r#"
        .section .text.test,"ax",@progbits; .globl test
        test: .cfi_startproc; .cfi_lsda 0x1b, table; mov $1, %eax; ret; .cfi_endproc
        .section .text.dead,"ax",@progbits
        dead: .cfi_startproc; ret; .cfi_endproc
        .section .gcc_except_table,"a",@progbits
        table: .byte 0xff, 0xff, 1, 0
        .section .note.GNU-stack,"",@progbits
    "#;
    let Some(object) = asm(source) else { return };
    assert_eq!(kept_sections(&object), [".text.test", ".gcc_except_table", ".eh_frame"]);
}

#[test]
fn a_section_that_only_a_plugin_block_refers_to_is_kept() {
    let source = r#"
        .section .text.test,"ax",@progbits; .globl test
        test: ret
        .section .data.local,"aw",@progbits
        local: .quad 1
        .section .data.dead,"aw",@progbits
        dead: .quad 2
        .section .note.GNU-stack,"",@progbits
    "#;
    let Some(object) = asm(source) else { return };
    let kept = kept_sections_after(&object, |graph| {
        let (symbol, _) = graph.symbols().find(|(index, _)| graph.symbol_name(*index) == "local").unwrap();
        let edge = Edge { offset: 0, kind: EdgeKind::Pointer64, symbol, addend: 0 };
        graph.add_block("made", SegmentKind::Data, vec![0; 8], 8, &[edge]);
    });
    assert_eq!(kept, [".text.test", ".data.local", "made"]);
}

#[test]
fn live_and_dead_cycles_of_many_sections_are_distinguished() {
    let ring = |name: &str, last: &str| -> String {
        let section = |number: usize| {
            let next = (number + 1) % 50;
            format!(".section .text.{name}{number},\"ax\",@progbits\n{name}{number}: call {name}{next}\n")
        };
        (0..50).map(section).collect::<String>() + last
    };
    let (live, dead) = (ring("live", "ret\n"), ring("dead", "call missing\n"));
    let Some(object) = asm(&format!("{dead}{live}.text\n.globl test\ntest: call live20\n")) else { return };
    let kept = kept_sections(&object);
    let count = |name: &str| kept.iter().filter(|kept| kept.starts_with(name)).count();
    assert_eq!((count(".text.live"), count(".text.dead")), (50, 0), "{kept:?}");
    let planned = PlannedLink::plan("o".into(), ObjectBuffer::from(object), |_| true, |_| Ok(())).unwrap();
    assert_eq!(planned.externals().count(), 0);
    let graph = planned.graph();
    let is_nowhere = |name: &str| {
        let symbol = graph.symbols().find(|(index, _)| graph.symbol_name(*index) == name);
        symbol.unwrap().1.definition == Definition::Nowhere
    };
    assert!(is_nowhere("dead7") && !is_nowhere("live7"));
}
