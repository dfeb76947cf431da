//! `.init` and `.fini` fragments run in the order of a native program, which the C compiler's linker makes of the same objects.

use crate::recorder::{install, recording_jit, take};
use crate::support::*;

/// An object with fragments, initialisers and finalisers. They record `base` plus an offset. Only the second fragment of each
/// section is aligned, and it records whether its address and its stack are.
fn object(base: i64) -> Option<Vec<u8>> {
    let is_x86_64 = cfg!(target_arch = "x86_64");
    let call = |offset: i64| match is_x86_64 {
        true => format!("mov ${}, %edi\ncall record@PLT\n", base + offset),
        false => format!("mov x0, #{}\nbl record\n", base + offset),
    };
    let (begin, end) = match is_x86_64 {
        true => ("sub $8, %rsp", "add $8, %rsp; ret"),
        false => ("stp x29, x30, [sp, #-16]!", "ldp x29, x30, [sp], #16; ret"),
    };
    let list = |section: &str, offset: i64| {
        let kind = section.split('.').nth(1).unwrap();
        format!(
            ".section {section},\"aw\",@{kind}\n.quad f{offset}\n.text\nf{offset}: {begin}\n{}{end}\n",
            call(offset)
        )
    };
    let aligned = match is_x86_64 {
        true => "1: lea 1b(%rip), %rdi; or %rsp, %rdi; and $15, %edi; add $EVENT, %rdi; call record@PLT\n",
        false => "1: adr x0, 1b; mov x1, sp; orr x0, x0, x1; and x0, x0, #15; add x0, x0, #EVENT; bl record\n",
    };
    let fragments = |section: &str, offset: i64| {
        format!(
            ".section {section},\"ax\",@progbits,unique,1\n{}nop
             .section {section},\"ax\",@progbits,unique,2\n.p2align 5\n{}",
            call(offset),
            aligned.replace("EVENT", &(base + offset + 20).to_string()),
        )
    };
    let lists = [(".init_array", 1), (".init_array.00101", 2), (".fini_array", 3), (".fini_array.00101", 4)];
    let lists: String = lists.iter().map(|(section, offset)| list(section, *offset)).collect();
    let touch = if is_x86_64 { "mov $1, %eax" } else { "mov x0, #1" };
    let source = format!(
        "{lists}{}{}.text\n.globl touch{base}\ntouch{base}: {touch}; ret\n.section .note.GNU-stack,\"\",@progbits\n",
        fragments(".init", 30),
        fragments(".fini", 60),
    );
    asm_of_target(&source, &source)
}

const CALL: &str = if cfg!(target_arch = "x86_64") { "call" } else { "bl" };

/// Links the objects natively with a `main`, and returns what the program records.
fn native(objects: &[&[u8]]) -> Option<Vec<i64>> {
    let main = "#include <stdio.h>
        void record(long event) { printf(\"%ld\\n\", event); fflush(stdout); }
        int main(void) { record(0); return 0; }";
    let dir = PrivateDir::new();
    let program = dir.path("program");
    let mut gcc = require("gcc")?;
    gcc.arg("-o").arg(&program).args(["-no-pie", "-x", "c"]).arg(dir.write("main.c", main)).args(["-x", "none"]);
    for (index, object) in objects.iter().enumerate() {
        gcc.arg(dir.write(&format!("object{index}.o"), object));
    }
    let run = gcc.output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let run = emulated(&program).output().unwrap();
    assert!(run.status.success());
    let events = String::from_utf8(run.stdout).unwrap();
    Some(events.lines().map(|line| line.parse().unwrap()).collect())
}

/// Symptom: an object with a fragment was refused.
#[test]
fn fragments_run_around_the_lists_in_the_order_of_a_native_program() {
    let (Some(first), Some(second)) = (object(100), object(200)) else { return };
    let Some(native) = native(&[&first, &second]) else { return };
    let jit = recording_jit();
    let tracker = add(&jit, jit.main_dylib(), "first.o", &first);
    jit.add_object(&tracker, "second.o", &*second).unwrap();
    assert_eq!(initialize(&jit, jit.main_dylib()), 6);
    crate::recorder::push(0);
    assert!(tracker.remove().unwrap().is_complete());
    let events = take();
    assert_eq!(events, native);
    assert_eq!(events[..4], [130, 150, 230, 250], "aligned, and in the order of the objects");
    assert_eq!(events[events.len() - 4..], [160, 180, 260, 280]);
}

#[test]
fn an_object_that_is_linked_at_once_runs_its_fragments_and_so_does_a_second_initialisation() {
    let Some(object) = object(0) else { return };
    let jit = recording_jit();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    jit.link_object(&tracker, "object.o", &*object).unwrap();
    assert_eq!(take(), []);
    for _ in 0..2 {
        assert_eq!(initialize(&jit, jit.main_dylib()), 3);
        assert_eq!(take(), [30, 50, 2, 1]);
        deinitialize(&jit, jit.main_dylib()).unwrap();
        assert_eq!(take(), [3, 4, 60, 80]);
    }
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(take(), []);
}

#[test]
fn an_object_whose_only_initialiser_is_a_fragment_runs_it_before_its_code_is_used() {
    let source = "void record(long); static void begin(void) { record(1); } static void end(void) { record(2); }
         __asm__(\".pushsection .init,\\\"ax\\\",@progbits\\n CALL begin\\n .popsection\");
         __asm__(\".pushsection .fini,\\\"ax\\\",@progbits\\n CALL end\\n .popsection\");
         void *keep[] = {(void *)begin, (void *)end};
         long touch(void) { record(5); return 5; }";
    let Some(object) = gcc(&["-O1", "-fPIC", "-fno-toplevel-reorder"], &source.replace("CALL", CALL)) else { return };
    let jit = recording_jit();
    let dylib = jit.create_dylib("library").unwrap();
    install(&jit, &dylib);
    let tracker = add(&jit, &dylib, "object.o", &object);
    assert_eq!(long_in(&jit, &dylib, "touch"), 5);
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(take(), [1, 5, 2]);
}

#[test]
fn an_unwinder_walks_through_a_fragment_that_the_object_does_not_describe() {
    let source = |directives: [&str; 2]| {
        format!(
            "struct _Unwind_Context; int _Unwind_Backtrace(int (*)(struct _Unwind_Context *, void *), void *);
             void record(long);
             static int visit(struct _Unwind_Context *context, void *count) {{ ++*(long *)count; return 0; }}
             __attribute__((noinline)) void begin(void) {{
                 long count = 0; _Unwind_Backtrace(visit, &count); record(count > 4);
             }}
             long touch(void) {{ return 5; }}
             __asm__(\".pushsection .init,\\\"ax\\\",@progbits\\n {} {CALL} begin\\n {} .popsection\");",
            directives[0], directives[1],
        )
    };
    let frame = match cfg!(target_arch = "x86_64") {
        true => ".cfi_startproc\\n .cfi_def_cfa_offset 16\\n",
        false => ".cfi_startproc\\n .cfi_def_cfa 29, 16\\n .cfi_offset 29, -16\\n .cfi_offset 30, -8\\n",
    };
    let described = [frame, "nop\\n .cfi_endproc\\n"];
    for directives in [["", ""], described] {
        let Some(object) = c(&source(directives)) else { return };
        let jit = recording_jit();
        let _tracker = add(&jit, jit.main_dylib(), "object.o", &object);
        assert_eq!(long(&jit, "touch"), 5);
        assert_eq!(take(), [1], "{directives:?}: the frames of the host are below the fragment's");
    }
}

/// A native linker keeps the first copy of a group, and its fragment runs once.
#[test]
fn a_fragment_of_a_section_group_runs_once_if_two_objects_have_the_group() {
    let source = |name: &str, call: &str, set: &str, jump: &str| {
        format!(
            ".section .init,\"axG\",@progbits,shared,comdat\n{call}
             .section .text.shared,\"axG\",@progbits,shared,comdat\n.weak shared\nshared: {set}; ret
             .text\n.globl {name}\n{name}: {jump}\n.section .note.GNU-stack,\"\",@progbits"
        )
    };
    let object = |name: &str| {
        asm_of_target(
            &source(name, "mov $7, %edi\ncall record@PLT", "mov $3, %eax", "jmp shared@PLT"),
            &source(name, "mov x0, #7\nbl record", "mov x0, #3", "b shared"),
        )
    };
    let (Some(first), Some(second)) = (object("first"), object("second")) else { return };
    let jit = recording_jit();
    let _first = add(&jit, jit.main_dylib(), "first.o", &first);
    let _second = add(&jit, jit.main_dylib(), "second.o", &second);
    assert_eq!(initialize(&jit, jit.main_dylib()), 1);
    assert_eq!((long(&jit, "first"), long(&jit, "second"), take()), (3, 3, vec![7]));
}
