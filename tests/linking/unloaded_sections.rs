//! Symbols of sections that are no part of the running program: notes, debug information, sections for the linker only.

use crate::support::*;

const SECTIONS: [&str; 4] = [
    ".section .note.mine,\"a\",@note",
    ".section not_loaded,\"\",@progbits",
    ".section excluded,\"e\",@progbits",
    ".section excluded_data,\"awe\",@progbits",
];

fn object(section: &str, code: &str) -> Option<Vec<u8>> {
    asm(&format!(
        "{section}\n.globl mark\n.type mark, @object\nmark: .quad 5\n.size mark, 8
         .text\n.globl test\ntest: {code}; ret\n.section .note.GNU-stack,\"\",@progbits"
    ))
}

// Seen red: the link failed, because the interface promised an address for the symbol.
#[test]
fn a_symbol_of_a_section_that_is_not_loaded_is_ignored() {
    for section in SECTIONS {
        let Some(object) = object(section, "mov $7, %eax") else { return };
        let (jit, trackers) = linked(&[&object]);
        assert_eq!(long(&jit, "test"), 7, "{section}");
        assert!(jit.address_of(jit.main_dylib(), "mark").is_err(), "{section}: it has no address");
        assert!(trackers[0].remove().unwrap().is_complete());
        let tracker = jit.main_dylib().create_tracker().unwrap();
        jit.link_object(&tracker, "object.o", &object[..]).unwrap();
        assert_eq!(long(&jit, "test"), 7, "{section}");
    }
}

// Seen red: the error named an interface and no section.
#[test]
fn code_that_uses_a_symbol_of_a_section_that_is_not_loaded_is_refused() {
    for section in SECTIONS {
        let Some(object) = object(section, "mov mark(%rip), %rax") else { return };
        assert_says(&refused(&object, "test"), &["bad.o", "`.text`", "`mark`", "section that is not in memory"]);
    }
}

// Seen red: the link failed for a symbol of debug information.
#[test]
fn objects_with_machine_code_and_intermediate_code_and_debug_information_link() {
    let source = "int shared; long test(void) { return shared + 3; }";
    for flags in
        [&["-O2", "-g", "-flto", "-ffat-lto-objects"][..], &["-O2", "-g", "-fPIC", "-flto", "-ffat-lto-objects"]]
    {
        let Some(object) = gcc(flags, source) else { return };
        let (jit, _trackers) = linked(&[&object]);
        assert_eq!(long(&jit, "test"), 3, "{flags:?}");
    }
}
