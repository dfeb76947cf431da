//! `.init` and `.fini` fragments become functions of their object. Those of `crti.o` and `crtn.o` are ignored, and fragments
//! with a beginning or an end of their own are refused. `tests/platform/init_fragments.rs` has their order.

use crate::support::*;

fn fragment(section: &str, code: &str) -> Option<Vec<u8>> {
    asm(&format!(
        ".section {section},\"ax\",@progbits\n{code}\n.text\n.globl test\ntest: mov $5, %eax; ret\n
        .section .note.GNU-stack,\"\",@progbits"
    ))
}

#[test]
fn a_fragment_that_brings_its_own_beginning_or_end_is_refused_with_what_to_do_instead() {
    for (section, function) in [(".init", "_init"), (".fini", "_fini")] {
        let own = format!(".globl {function}; .hidden {function}; {function}: push %rbp; mov %rsp, %rbp; call test");
        for (code, cause) in [
            (own.as_str(), "begins the function itself"),
            ("nop; leave; ret", "ends with a return"),
            ("call test; pop %rbp; ret", "ends with a return"),
            ("call test; add $24, %rsp; ret", "ends with a return"),
        ] {
            let Some(object) = fragment(section, code) else { return };
            assert_says(&refused(&object, "test"), &["bad.o", &format!("`{section}`"), cause, "jittison adds"]);
        }
    }
}

#[test]
fn a_fragment_that_calls_a_missing_function_fails_with_its_name() {
    let Some(object) = fragment(".init", "call begin") else { return };
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
    let (Some(large), Some(too_large)) = (asm(&source(20)), asm(&source(21))) else { return };
    let (jit, _trackers) = linked(&[&large]);
    jit.address_of(jit.main_dylib(), "test").unwrap();
    assert_says(&refused(&too_large, "test"), &["`.init`", "2097152", "padding"]);
}

#[test]
fn empty_fragments_and_those_of_crt_files_are_accepted_and_make_no_function() {
    let gmon = "sub $8, %rsp; mov __gmon_start__@GOTPCREL(%rip), %rax; test %rax, %rax; je 1f; call *%rax; 1:
        .weak __gmon_start__";
    for (section, code) in [
        (".init", ""),
        (".init", gmon),
        (".init", &format!("endbr64; {gmon}")),
        (".fini", "sub $8, %rsp"),
        (".fini", "endbr64; sub $8, %rsp"),
        (".init", "add $8, %rsp; ret"),
        (".init", "push %rax"),
        (".fini", "pop %rax; ret"),
    ] {
        let Some(object) = fragment(section, code) else { return };
        let (jit, _trackers) = linked(&[&object]);
        assert_eq!(initialize(&jit, jit.main_dylib()), 0, "{section}: {code}");
        assert_eq!(long(&jit, "test"), 5, "{section}: {code}");
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
