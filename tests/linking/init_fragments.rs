//! `.init` and `.fini` fragments become functions of their object. Those of `crti.o` and `crtn.o` are ignored, and fragments
//! with a beginning or an end of their own are refused. `tests/platform/init_fragments.rs` has their order.

use crate::support::*;

/// An object with a fragment, whose code is given for each architecture, and a function `test` that returns 5.
fn fragment(section: &str, x86_64: &str, aarch64: &str) -> Option<Vec<u8>> {
    let with = |code: &str, set: &str| {
        format!(
            ".section {section},\"ax\",@progbits\n{code}\n.text\n.globl test\ntest: {set}; ret\n
            .section .note.GNU-stack,\"\",@progbits"
        )
    };
    asm_of_target(&with(x86_64, "mov $5, %eax"), &with(aarch64, "mov x0, #5"))
}

#[test]
fn a_fragment_that_brings_its_own_beginning_or_end_is_refused_with_what_to_do_instead() {
    for (section, function) in [(".init", "_init"), (".fini", "_fini")] {
        let own = |code: &str| format!(".globl {function}; .hidden {function}; {function}: {code}");
        let (x86_64, aarch64) =
            (own("push %rbp; mov %rsp, %rbp; call test"), own("stp x29, x30, [sp, #-16]!; mov x29, sp; bl test"));
        for (x86_64, aarch64, cause) in [
            (x86_64.as_str(), aarch64.as_str(), "begins the function itself"),
            ("nop; leave; ret", "nop; ldp x29, x30, [sp], #16; ret", "ends with a return"),
            ("call test; pop %rbp; ret", "bl test; ldp x29, x30, [sp], #48; ret", "ends with a return"),
            ("call test; add $24, %rsp; ret", "bl test; ldp x29, x30, [sp], #16; hint #29; ret", "ends with a return"),
        ] {
            let Some(object) = fragment(section, x86_64, aarch64) else { return };
            assert_says(&refused(&object, "test"), &["bad.o", &format!("`{section}`"), cause, "jittison adds"]);
        }
    }
}

#[test]
fn a_fragment_that_calls_a_missing_function_fails_with_its_name() {
    let Some(object) = fragment(".init", "call begin", "bl begin") else { return };
    assert_says(&refused(&object, "test"), &["`begin`"]);
}

#[test]
fn filler_between_fragments_is_limited_to_a_mebibyte() {
    // Found by fuzzing: each byte of padding was content of a block, so a fragment aligned to 64 MiB took four times as much.
    let source = |alignment: u32| {
        format!(
            ".section .init,\"ax\",@progbits,unique,1\nnop\n.section .init,\"ax\",@progbits,unique,2\n.p2align {alignment}\nnop
            .text\n.globl test\ntest: ret\n.section .note.GNU-stack,\"\",@progbits"
        )
    };
    let of_target = |alignment: u32| asm_of_target(&source(alignment), &source(alignment));
    let (Some(large), Some(too_large)) = (of_target(20), of_target(21)) else { return };
    let (jit, _trackers) = linked(&[&large]);
    jit.address_of(jit.main_dylib(), "test").unwrap();
    assert_says(&refused(&too_large, "test"), &["`.init`", "2097152", "padding"]);
}

#[test]
fn empty_fragments_and_those_of_crt_files_are_accepted_and_make_no_function() {
    let gmon = "sub $8, %rsp; mov __gmon_start__@GOTPCREL(%rip), %rax; test %rax, %rax; je 1f; call *%rax; 1:
        .weak __gmon_start__";
    let weak = "stp x29, x30, [sp, #-16]!; mov x29, sp; bl weak; .section .text.weak,\"ax\",@progbits
        weak: adrp x0, :got:__gmon_start__; ldr x0, [x0, :got_lo12:__gmon_start__]; cbz x0, 1f; b __gmon_start__; 1: ret
        .weak __gmon_start__";
    for (section, x86_64, aarch64) in [
        (".init", "", ""),
        (".init", gmon, weak),
        (".init", &format!("endbr64; {gmon}"), &format!("nop; {weak}")),
        (".fini", "sub $8, %rsp", "stp x29, x30, [sp, #-16]!; mov x29, sp"),
        (".fini", "endbr64; sub $8, %rsp", "hint #34; stp x29, x30, [sp, #-16]!; mov x29, sp"),
        (".init", "add $8, %rsp; ret", "ldp x29, x30, [sp], #16; ret"),
        (".init", "push %rax", "hint #25; stp x29, x30, [sp, #-16]!; mov x29, sp"),
        (".fini", "pop %rax; ret", "ldp x29, x30, [sp], #16; hint #29; ret"),
    ] {
        let Some(object) = fragment(section, x86_64, aarch64) else { return };
        let (jit, _trackers) = linked(&[&object]);
        assert_eq!(initialize(&jit, jit.main_dylib()), 0, "{section}: {x86_64}");
        assert_eq!(long(&jit, "test"), 5, "{section}: {x86_64}");
    }
    for file in ["crti.o", "crtn.o", "crt1.o"] {
        let Some(mut gcc) = require("gcc") else { return };
        let path = gcc.arg(format!("-print-file-name={file}")).output().unwrap();
        let bytes = std::fs::read(String::from_utf8(path.stdout).unwrap().trim()).unwrap();
        let main = c("int main(void) { return 0; } long test(void) { return 6; }").unwrap();
        let (jit, trackers) = linked(&[&main]);
        jit.link_object(&trackers[0], file, &*bytes).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert_eq!(long(&jit, "test"), 6, "{file}");
    }
}
