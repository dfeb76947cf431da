//! Symbols of sections that are no part of the running program: properties, debug information, sections for the linker only.
//! And symbols of notes, which are a part of it.

use jittison::ErrorKind;

use crate::support::*;

const SECTIONS: [&str; 4] = [
    ".section .note.gnu.property,\"a\",@note",
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

/// An object whose note has the symbol `mark`, a read-only quadword.
const NOTED: &str = ".section .note.mine,\"a\",@note\n.balign 8\n.globl mark\n.protected mark
     .type mark, @object\nmark: .quad 5\n.size mark, 8\n.section .note.GNU-stack,\"\",@progbits";
const WEAK: &str = ".data\n.weak mark\n.type mark, @object\nmark: .quad 6\n.size mark, 8
     .section .note.GNU-stack,\"\",@progbits";
const READS: &str = ".text\n.globl test\ntest: mov mark@GOTPCREL(%rip), %rax; mov (%rax), %rax; ret
     .section .note.GNU-stack,\"\",@progbits";

// Seen red: the symbol had no address, and code had the weak definition of another object without an error.
#[test]
fn a_definition_in_a_note_counts_like_any_other() {
    let [Some(noted), Some(weak), Some(reads)] = [NOTED, WEAK, READS].map(asm) else { return };
    let orders: [&[&[u8]]; 4] =
        [&[&noted, &reads], &[&noted, &weak, &reads], &[&weak, &noted, &reads], &[&reads, &weak, &noted]];
    for objects in orders {
        let (jit, _trackers) = linked(objects);
        assert_eq!(long(&jit, "test"), 5);
    }
}

// Seen red: the member was linked for its weak definition.
#[test]
fn a_definition_in_a_note_keeps_a_member_of_a_static_library_out() {
    let [Some(noted), Some(weak), Some(reads)] = [NOTED, WEAK, READS].map(asm) else { return };
    let folder = PrivateDir::new();
    let Some(path) = folder.archive("ar", &["rcs"], "libweak.a", &[("weak.o", &weak)]) else { return };
    let (jit, _trackers) = linked(&[&noted, &reads]);
    jit.link_static_library(jit.main_dylib(), &path).unwrap();
    assert_eq!(long(&jit, "test"), 5);
}

#[test]
fn two_definitions_of_which_one_is_in_a_note_are_duplicates() {
    let strong = WEAK.replace(".weak", ".globl");
    let [Some(noted), Some(strong)] = [NOTED, &strong].map(asm) else { return };
    let (jit, _trackers) = linked(&[&noted]);
    let tracker = jit.main_dylib().create_tracker().unwrap();
    let error = jit.add_object(&tracker, "strong.o", strong).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::DuplicateDefinition { .. }), "{error}");
}

// Seen red: the note was not loaded, so the reference was refused.
#[test]
fn a_note_holds_addresses_and_needs_a_reference_to_be_kept() {
    let source = ".section .note.used,\"a\",@note\nused: .quad value\n.section .note.unused,\"a\",@note\n.quad missing
         .data\nvalue: .quad 8\n.text\n.globl test\ntest: mov used(%rip), %rax; mov (%rax), %rax; ret
         .section .note.GNU-stack,\"\",@progbits";
    let Some(object) = asm(source) else { return };
    let (jit, _trackers) = linked(&[&object]);
    assert_eq!(long(&jit, "test"), 8);
}

#[test]
fn notes_have_bounds_as_other_sections() {
    let source = ".section marks,\"a\",@note\n.quad 1, 2, 3\n.text\n.globl test
         test: lea __stop_marks(%rip), %rax; lea __start_marks(%rip), %rcx; sub %rcx, %rax; ret
         .section .note.GNU-stack,\"\",@progbits";
    let Some(object) = asm(source) else { return };
    let (jit, _trackers) = linked(&[&object]);
    assert_eq!(long(&jit, "test"), 24);
}
