//! `.init` and `.fini` fragments are refused by name, because nothing would run them.

use crate::support::*;

fn fragment(section: &str, code: &str) -> Option<Vec<u8>> {
    asm(&format!(
        ".section {section},\"ax\",@progbits\n{code}\n.text\n.globl test\ntest: mov $5, %eax; ret\n
        .section .note.GNU-stack,\"\",@progbits"
    ))
}

/// Symptom: the program ran without a call of the function that the fragment calls.
#[test]
fn a_fragment_is_refused_with_what_to_do_instead() {
    for (section, attribute) in [(".init", "constructor"), (".fini", "destructor")] {
        for code in [
            "call begin",
            "sub $8, %rsp; call begin",
            "mov $1, %eax",
            "sub $8, %rsp; mov begin@GOTPCREL(%rip), %rax; \
                     test %rax, %rax; je 1f; call *%rax; 1:",
        ] {
            let Some(object) = fragment(section, code) else { return };
            assert_says(&refused(&object, "test"), &["bad.o", &format!("`{section}`"), attribute, "never run"]);
        }
    }
}

#[test]
fn initialize_refuses_a_dylib_whose_object_has_a_fragment() {
    let Some(object) = fragment(".init", "call begin") else { return };
    let jit = new_jit();
    let _tracker = add(&jit, jit.main_dylib(), "fragment.o", &object);
    // SAFETY: nothing runs, because the only object is refused.
    let error = unsafe { jit.initialize(jit.main_dylib()) }.expect_err("the fragment cannot run");
    assert_says(&error, &["fragment.o", "`.init`"]);
}

#[test]
fn empty_fragments_and_those_of_crt_files_are_accepted() {
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
