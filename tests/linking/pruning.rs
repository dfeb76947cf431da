//! Dead-stripping: what nothing leads to takes no memory, and what only it needs is not looked for.

use jittison::link::{ObjectBuffer, PlannedLink};

use crate::support::*;

const SECTIONS: [&str; 4] = ["-O1", "-fPIC", "-ffunction-sections", "-fdata-sections"];

fn kept(object: &[u8]) -> Vec<String> {
    let planned = PlannedLink::plan("o".into(), ObjectBuffer::from(object), |_| true, |_| Ok(())).unwrap();
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
