//! Object features that a linker could silently ignore. Each is linked correctly or refused by name.

use crate::crafted::Elf;
use crate::support::*;

const STACK: &str = "\n.section .note.GNU-stack,\"\",@progbits\n";

/// Names that a native linker defines for a program.
const LINKER_DEFINED: [&str; 21] = [
    "_end",
    "end",
    "_etext",
    "etext",
    "__etext",
    "_edata",
    "edata",
    "__bss_start",
    "__data_start",
    "data_start",
    "__executable_start",
    "__ehdr_start",
    "__init_array_start",
    "__init_array_end",
    "__fini_array_start",
    "__fini_array_end",
    "__preinit_array_start",
    "__preinit_array_end",
    "_init",
    "_fini",
    "_start",
];

/// Symptom: weak references were null. A native linker always defines them.
#[test]
fn linker_defined_names_are_missing_symbols_even_if_weak_unless_defined() {
    for name in LINKER_DEFINED {
        for attribute in ["", "__attribute__((weak))", "__attribute__((visibility(\"hidden\")))"] {
            let source = format!("extern char {name}[] {attribute}; long test(void) {{ return (long){name}; }}");
            let Some(object) = gcc(&["-O1", "-fPIC", "-fno-builtin"], &source) else { return };
            let error = refused(&object, "test");
            let reason = format!("a native linker defines for an entire program `{name}` (");
            assert_says(&error, &[&format!("symbols not found: `{name}`"), "bad.o", &reason, "session"]);
            if attribute.contains("weak") {
                let jit = new_jit();
                define_absolute(jit.main_dylib(), name, 0x1234);
                let _object = add(&jit, jit.main_dylib(), "object.o", &object);
                assert_eq!(long(&jit, "test"), 0x1234, "{name}");
            }
        }
    }
}

/// Names beyond ASCII are read by another path.
#[test]
fn weak_linker_defined_names_are_missing_symbols_beside_names_beyond_ascii() {
    let source = format!(".text\n.globl gr\u{f6}\u{df}e\ngr\u{f6}\u{df}e: .weak _end\nmovabs $_end, %rax; ret{STACK}");
    let Some(object) = asm(&source) else { return };
    let error = refused(&object, "gr\u{f6}\u{df}e");
    assert_says(&error, &["symbols not found: `_end`", "bad.o", "a native linker defines"]);
}

// Seen red: a weak reference was null, and a strong one was not said to be the linker's.
#[test]
fn addresses_and_sizes_of_sections_that_gnu_ld_defines_are_refused_by_name() {
    for name in [".startof..text", ".sizeof..text", ".sizeof.table"] {
        for binding in ["globl", "weak"] {
            let source = format!(".{binding} {name}\n.text\n.globl test\ntest: movabs ${name}, %rax; ret{STACK}");
            let Some(object) = asm(&source) else { return };
            let error = refused(&object, "test");
            assert_says(&error, &[&format!("symbols not found: `{name}`"), "bad.o", "a native linker defines"]);
        }
    }
}

// Seen red: the error called the object malformed.
#[test]
fn a_symbol_outside_of_its_section_is_refused_with_its_value() {
    for (value, text) in [("base + 0x100", "0x100"), ("base - 0x10", "0xfffffffffffffff0")] {
        let source = format!(".data\nbase: .quad 1\n.globl outside\noutside = {value}\n{STACK}");
        let Some(object) = asm(&source) else { return };
        let error = refused(&object, "outside");
        assert_says(&error, &["bad.o", "`outside`", "`.data`", text, "outside of its section", "addend"]);
    }
}

/// Symptom: if the host program exports `_end`, linked code got that address.
#[test]
fn linker_defined_names_of_the_host_are_not_visible_to_linked_code() {
    let library = "char _end[4], _edata[4], __bss_start[4], plain_variable_of_library[4];";
    let dir = PrivateDir::new();
    let path = dir.path("libhost.so");
    let Some(bytes) = build(
        "gcc",
        library.as_bytes(),
        &["-x", "c", "-shared", "-fPIC", "-nostdlib", "-Wl,-z,nostart-stop-gc", "-o", OUTPUT, INPUT],
    ) else {
        return;
    };
    std::fs::write(&path, bytes).unwrap();
    let jit = jittison::Jit::builder().library(path.to_str().unwrap()).build().unwrap();
    let Some(found) =
        c("extern char plain_variable_of_library[]; long test(void) { return (long)plain_variable_of_library; }")
    else {
        return;
    };
    let _found = add(&jit, jit.main_dylib(), "found.o", &found);
    assert_ne!(long(&jit, "test"), 0, "the library is searched");
    for name in ["_end", "_edata", "__bss_start"] {
        let Some(object) = c(&format!("extern char {name}[]; long test2(void) {{ return (long){name}; }}")) else {
            return;
        };
        let tracker = add(&jit, jit.main_dylib(), "object.o", &object);
        let error = jit.address_of(jit.main_dylib(), "test2").expect_err(name);
        assert_says(&error, &[&format!("`{name}`"), "a native linker defines"]);
        tracker.remove().unwrap();
    }
}

fn refused_asm(source: &str, says: &[&str]) {
    let Some(object) = asm(&format!(".text\n.globl test\ntest: ret\n{source}{STACK}")) else { return };
    assert_says(&refused(&object, "test"), says);
}

#[test]
fn a_loaded_section_of_an_unknown_type_is_refused_by_number() {
    refused_asm(".section odd,\"a\",@0x6fff4c01\n.quad 1\n", &["0x6fff4c01", "`odd`"]);
    // A section that is not loaded is ignored.
    let Some(object) =
        asm(&format!(".text\n.globl test\ntest: mov $3, %eax; ret\n.section odd,\"\",@0x6fff4c01\n.quad 1{STACK}"))
    else {
        return;
    };
    let (jit, _trackers) = linked(&[&object]);
    assert_eq!(long(&jit, "test"), 3);
}

#[test]
fn symbols_of_unknown_types_and_bindings_are_refused_by_number() {
    let Some(object) = asm(&format!(".text\n.globl test, odd\nodd: nop\ntest: ret\n{STACK}")) else { return };
    let info_of = |elf: &Elf| elf.symbol("odd") + 4;
    for (info, says) in [
        (0x18, "symbol type 8"),
        (0x1b, "symbol type 11"),
        (0x1f, "symbol type 15"),
        (0x31, "symbol binding 3"),
        (0xb2, "symbol binding 11"),
        (0xd0, "symbol binding 13"),
    ] {
        let mut elf = Elf(object.clone());
        let at = info_of(&elf);
        elf.store(at, 1, info);
        assert_says(&refused(&elf.0, "test"), &["bad.o", says, "`odd`"]);
    }
}

#[test]
fn thread_local_and_indirect_symbols_without_a_section_are_refused() {
    let Some(object) = asm(&format!(".text\n.globl test, odd\nodd: nop\ntest: ret\n{STACK}")) else { return };
    for (info, place, says) in [
        (0x16, 0xfff1, "absolute value of a symbol of type 6"),
        (0x1a, 0xfff1, "absolute value of a symbol of type 10"),
    ] {
        let mut elf = Elf(object.clone());
        let at = elf.symbol("odd");
        elf.store(at + 4, 1, info);
        elf.store(at + 6, 2, place);
        assert_says(&refused(&elf.0, "test"), &["bad.o", says, "`odd`"]);
    }
}

#[test]
fn a_second_section_of_relocations_for_one_section_is_refused() {
    let source =
        format!(".text\n.globl test\ntest: lea x(%rip), %rax; ret\n.section .other,\"ax\",@progbits\n.quad y{STACK}");
    let Some(object) = asm(&source) else { return };
    let mut elf = Elf(object);
    // Now both relocation sections apply to `.text`.
    let (text, other) = (elf.header(".rela.text"), elf.header(".rela.other"));
    let info = elf.load(text + 44, 4);
    elf.store(other + 44, 4, info);
    assert_says(&refused(&elf.0, "test"), &["bad.o", "second relocation section", "`.text`"]);
}

#[test]
fn a_second_symbol_table_is_refused() {
    let Some(object) = asm(&format!(".text\n.globl test\ntest: ret\n.section .more,\"\",@progbits\n.zero 48{STACK}"))
    else {
        return;
    };
    let mut elf = Elf(object);
    let more = elf.header(".more");
    elf.store(more + 4, 4, 2);
    let jit = new_jit();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    let error = jit.link_object(&tracker, "bad.o", &*elf.0).expect_err("two symbol tables are ambiguous");
    assert_says(&error, &["bad.o", "second symbol table"]);
}

#[test]
fn unsupported_section_flags_and_references_to_excluded_sections_are_refused() {
    let source = format!(
        ".text\n.globl test\ntest: lea odd(%rip), %rax; ret\n.section .odd,\"aw\",@progbits\nodd: .quad 1{STACK}"
    );
    let Some(object) = asm(&source) else { return };
    for (flag, says) in [(0x100, "SHF_OS_NONCONFORMING"), (0x800, "SHF_COMPRESSED"), (0x8000_0000, "not in memory")] {
        let mut elf = Elf(object.clone());
        let flags = elf.header(".odd") + 8;
        let old = elf.load(flags, 8);
        elf.store(flags, 8, old | flag);
        assert_says(&refused(&elf.0, "test"), &["bad.o", says]);
    }
}

#[test]
fn section_groups_of_unknown_flags_are_refused() {
    let source =
        format!(".text\n.globl test\ntest: ret\n.section .odd,\"awG\",@progbits,sign,comdat\nsign: .quad 1{STACK}");
    let Some(object) = asm(&source) else { return };
    let mut elf = Elf(object);
    let group = elf.header(".group");
    let at = elf.load(group + 24, 8) as usize;
    elf.store(at, 4, 3);
    assert_says(&refused(&elf.0, "test"), &["bad.o", "section group flags 0x3"]);
}

/// Symptom: the object was added, and its names were not found.
#[test]
fn an_lto_only_object_is_refused_with_what_to_do_instead() {
    let source = "long test(void) { return 1; }";
    let Some(slim) = gcc(&["-O2", "-flto", "-fno-fat-lto-objects"], source) else { return };
    assert_says(&refused(&slim, "test"), &["bad.o", "LTO", "-ffat-lto-objects"]);
    let Some(fat) = gcc(&["-O2", "-flto", "-ffat-lto-objects"], source) else { return };
    let (jit, _trackers) = linked(&[&fat]);
    assert_eq!(long(&jit, "test"), 1);
}

/// Symptom: the call of the nested function crashed the process.
#[test]
fn code_that_needs_an_executable_stack_is_refused() {
    let source = "
        int apply(int (*f)(int), int x);
        long test(long y) { int add(int x) { return x + y; } return apply(add, 1); }";
    let Some(object) = c(source) else { return };
    assert_says(&refused(&object, "test"), &["bad.o", "executable stack", "`.note.GNU-stack`"]);
}

#[test]
fn a_missing_versioned_symbol_is_reported_with_its_version() {
    let Some(object) = asm(&format!(
        ".text\n.globl test\ntest: call memcpy_old@PLT; ret\n.symver memcpy_old, memcpy@GLIBC_0.1{STACK}"
    )) else {
        return;
    };
    assert_says(&refused(&object, "test"), &["memcpy@GLIBC_0.1", "bad.o"]);
}

#[test]
fn sections_without_run_time_meaning_are_ignored() {
    // A linker warning, a property note, mergeable strings, a debug link.
    let source = format!(
        ".text\n.globl test\ntest: mov $4, %eax; ret
        .section .gnu.warning.test,\"\",@progbits\n.string \"do not\"
        .section .note.gnu.property,\"a\",@note\n.p2align 3\n.long 4, 16, 5\n.asciz \"GNU\"\n.long 0xc0000002, 4, 3, 0
        .section .odd,\"aMS\",@progbits,1\n.string \"x\"
        .section .gnu_debuglink,\"\",@progbits\n.string \"y\"{STACK}"
    );
    let Some(object) = asm(&source) else { return };
    let (jit, _trackers) = linked(&[&object]);
    assert_eq!(long(&jit, "test"), 4);
}
