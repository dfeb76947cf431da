//! Dead-stripping: what nothing leads to takes no memory, and what only it needs is not looked for.

use jittison::base::SegmentKind;
use jittison::link::{Definition, Edge, EdgeKind, LinkGraph, ObjectBuffer, PlannedLink};

use crate::support::*;

const SECTIONS: [&str; 4] = ["-O1", "-fPIC", "-ffunction-sections", "-fdata-sections"];

fn kept(object: &[u8]) -> Vec<String> {
    kept_with(object, |_| {})
}

/// Of an object that a plugin has changed.
fn kept_with(object: &[u8], change: impl FnOnce(&mut LinkGraph)) -> Vec<String> {
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
fn what_no_visible_definition_leads_to_is_dropped_with_what_only_it_needs() {
    let source = "
        extern long missing(long);
        __attribute__((used)) static long dead(long x) { return missing(x); }
        __attribute__((used)) static long dead_data = 5;
        __attribute__((noinline)) static long alive(long x) { return x * 3; }
        long test(void) { return alive(14); }";
    let Some(object) = gcc(&SECTIONS, source) else { return };
    let kept = kept(&object);
    assert!(kept.contains(&".text.test".to_string()) && kept.contains(&".text.alive".to_string()), "{kept:?}");
    assert!(!kept.iter().any(|name| name.contains("dead")), "{kept:?}");
    let (jit, _trackers) = linked(&[&object]);
    assert_eq!(long(&jit, "test"), 42, "without `missing`, which nobody has");
}

#[test]
fn initialisers_what_they_call_and_what_asks_to_be_retained_is_kept() {
    let source = "
        long ran;
        __attribute__((noinline)) static void helper(void) { ran = 7; }
        __attribute__((constructor)) static void start(void) { helper(); }
        __attribute__((section(\"kept\"), retain, used)) static long retained = 3;
        long test(void) { return ran; }";
    let Some(object) = gcc(&SECTIONS, source) else { return };
    let kept = kept(&object);
    for name in [".text.start", ".text.helper", "kept"] {
        assert!(kept.contains(&name.to_string()), "{name} of {kept:?}");
    }
    let (jit, _trackers) = linked(&[&object]);
    assert_eq!(long(&jit, "test"), 7);
}

#[test]
fn a_section_about_another_lives_and_dies_with_it() {
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
    assert_eq!(kept(&object), [".text.live", "about"]);
}

#[test]
fn unwind_tables_keep_nobody_s_code_and_still_unwind_what_lives() {
    let source = "
        __attribute__((used)) static void dead() { throw 1; }
        __attribute__((noinline)) static void thrower(int x) { if (x) throw x; }
        extern \"C\" long test() { try { thrower(6); } catch (int x) { return x; } return 0; }";
    let Some(object) = gxx(&SECTIONS, source) else { return };
    assert!(!kept(&object).iter().any(|name| name.contains("dead")));
    let (jit, _trackers) = linked(&[&object]);
    assert_eq!(long(&jit, "test"), 6);
}

#[test]
fn a_table_that_only_unwind_tables_refer_to_is_kept() {
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
    assert_eq!(kept(&object), [".text.test", ".gcc_except_table", ".eh_frame"]);
}

#[test]
fn what_only_a_plugin_s_block_refers_to_is_kept() {
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
    let kept = kept_with(&object, |graph| {
        let (symbol, _) = graph.symbols().find(|(index, _)| graph.symbol_name(*index) == "local").unwrap();
        let edge = Edge { offset: 0, kind: EdgeKind::Pointer64, symbol, addend: 0 };
        graph.add_block("made", SegmentKind::Data, vec![0; 8], 8, &[edge]);
    });
    assert_eq!(kept, [".text.test", ".data.local", "made"]);
}

#[test]
fn what_lives_is_told_from_what_does_not_among_any_number_of_sections_that_lead_somewhere() {
    let ring = |name: &str, last: &str| -> String {
        let section = |number: usize| {
            let next = (number + 1) % 50;
            format!(".section .text.{name}{number},\"ax\",@progbits\n{name}{number}: call {name}{next}\n")
        };
        (0..50).map(section).collect::<String>() + last
    };
    let (live, dead) = (ring("live", "ret\n"), ring("dead", "call missing\n"));
    let Some(object) = asm(&format!("{dead}{live}.text\n.globl test\ntest: call live20\n")) else { return };
    let kept = kept(&object);
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
