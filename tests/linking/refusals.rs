//! Objects that cannot be linked are refused with name and place. The attempt leaves nothing, and the session still links.

use std::sync::Arc;

use jittison::Error;
use jittison::base::ExecutorAddr;
use jittison::error::{ErrorKind, LinkFault};
use jittison::link::{FoundExternal, ObjectBuffer, PlannedLink};
use jittison::memory::OfflineMemory;

use crate::crafted::Elf;
use crate::support::*;

/// `(value, min, max)` of a relocation out of range.
pub fn out_of_range(error: &Error) -> (i128, i128, i128) {
    match error.root_cause().kind() {
        ErrorKind::Link { fault: LinkFault::OutOfRange { value, min, max, .. }, .. } => (*value, *min, *max),
        other => panic!("not out of range: {other}"),
    }
}

#[test]
fn dynamic_relocations_are_refused_by_name() {
    for (number, name) in [(5, "R_X86_64_COPY"), (8, "R_X86_64_RELATIVE"), (37, "R_X86_64_IRELATIVE"), (99, "type 99")]
    {
        // No assembler writes type 99. It replaces the number of `R_X86_64_COPY` below.
        let written = if number == 99 { "R_X86_64_COPY" } else { name };
        let source = format!(
            ".text\n.globl test\ntest: nop\nplace: .quad 0\n.reloc place, {written}, x\n.section .note.GNU-stack\n"
        );
        let Some(mut object) = asm(&source) else { return };
        if number == 99 {
            // The type is the low word of `r_info` of the only relocation.
            let at = object.windows(8).position(|bytes| bytes[..4] == [5, 0, 0, 0] && bytes[4..] != [0; 4]).unwrap();
            object[at] = 99;
        }
        assert_says(&refused(&object, "test"), &["bad.o", name, "`.text`", "offset 0x1", "`x`"]);
    }
}

#[test]
fn a_32_bit_absolute_address_out_of_range_is_an_error_with_value_and_interval() {
    let Some(object) = asm("
        .data\n.globl test\ntest: .long 0\n.reloc test, R_X86_64_32S, far\n.section .note.GNU-stack\n")
    else {
        return;
    };
    let jit = new_jit();
    define_absolute(jit.main_dylib(), "far", 0x7fff_0000_0000);
    let error = refused_in(&jit, &object, "test");
    assert_says(&error, &["bad.o", "`.data`", "offset 0x0", "R_X86_64_32S", "is not in [", "0x7fffffff]", "-fPIC"]);
    let (value, min, max) = out_of_range(&error);
    assert_eq!((min, max), (-0x8000_0000, 0x7fff_ffff));
    assert!(value > max);
}

#[test]
fn a_32_bit_distance_out_of_range_is_an_error_with_value_and_interval() {
    let Some(object) = asm(".data\n.globl test\ntest: .long 0\n.long far - .\n.section .note.GNU-stack\n") else {
        return;
    };
    let jit = new_jit();
    define_absolute(jit.main_dylib(), "far", 0x1000);
    let error = refused_in(&jit, &object, "test");
    assert_says(&error, &["bad.o", "`.data`", "offset 0x4", "R_X86_64_PC32", "`far` at 0x1000", "GOT"]);
    let (value, min, max) = out_of_range(&error);
    assert_eq!((min, max), (-0x8000_0000, 0x7fff_ffff));
    assert!(value < min);
}

#[test]
fn a_branch_with_too_large_an_addend_is_refused_despite_its_stub() {
    let Some(object) = asm("
        .text\n.globl test\ntest: .byte 0xe8\nfield: .long 0
        .reloc field, R_X86_64_PLT32, far + 0x100000000\n.section .note.GNU-stack\n")
    else {
        return;
    };
    let jit = new_jit();
    define_absolute(jit.main_dylib(), "far", 0x1000);
    assert_says(&refused_in(&jit, &object, "test"), &["bad.o", "offset 0x1", "R_X86_64_PLT32", "is not in ["]);
}

#[test]
fn a_distance_that_fits_only_by_wrapping_around_is_refused() {
    for (base, symbol, addend) in
        [(0x1_0000, "high", i64::MAX), (0x1_0000, "own", i64::MAX), (3 << 62, "low", -(1 << 62))]
    {
        let Some(object) = asm(&format!(
            ".data\n.globl test\ntest: .long 0
            .reloc test, R_X86_64_PC32, {symbol} + ({addend})\n.section .note.GNU-stack\n"
        )) else {
            return;
        };
        let mut elf = Elf(object);
        if symbol == "own" {
            // The assembler would fold an absolute symbol of the same object.
            let at = elf.symbol(symbol);
            elf.store(at + 6, 2, 0xfff1);
            elf.store(at + 8, 8, 1 << 63);
        }
        let planned = PlannedLink::plan(Arc::from("bad.o"), ObjectBuffer::from(elf.0), |_| true, |_| Ok(())).unwrap();
        let placed = planned.allocate(&OfflineMemory::new(ExecutorAddr::new(base))).unwrap();
        let address = ExecutorAddr::new(if symbol == "low" { 0x1000 } else { 1 << 63 });
        let found = [FoundExternal { address, ..FoundExternal::default() }];
        let externals = placed.externals().count();
        let error = placed.finish(&found[..externals], None).map(drop).expect_err(symbol);
        assert_says(&error, &["bad.o", "R_X86_64_PC32", "is not in ["]);
    }
}

#[test]
fn all_missing_symbols_are_listed_with_the_object_that_needs_them() {
    let Some(object) = c("
        extern long first(void), second(void), third; extern long maybe(void) __attribute__((weak));
        long test(void) { return first() + second() + third + (maybe ? maybe() : 0); }")
    else {
        return;
    };
    let error = refused(&object, "test");
    assert_says(&error, &["`first`", "`second`", "`third`", "needed by bad.o", "searched: main, process"]);
    let ErrorKind::SymbolsNotFound { symbols, needed_by, .. } = error.root_cause().kind() else { panic!("{error}") };
    assert_eq!((symbols.len(), needed_by.as_deref()), (3, Some("bad.o")));
}

#[test]
fn a_failed_link_succeeds_after_the_missing_symbol_is_added() {
    let (Some(user), Some(missing)) =
        (c("extern long missing(void); long test(void) { return missing(); }"), c("long missing(void) { return 8; }"))
    else {
        return;
    };
    let jit = new_jit();
    refused_in(&jit, &user, "test");
    let _missing = add(&jit, jit.main_dylib(), "missing.o", &missing);
    let _user = add(&jit, jit.main_dylib(), "user.o", &user);
    assert_eq!(long(&jit, "test"), 8);
}

#[test]
fn files_that_are_no_x86_64_objects_are_refused_by_their_kind() {
    if !require_x86_64() {
        return;
    }
    let source = "int main(void) { return 0; } long test(void) { return 1; }";
    let Some(good) = c(source) else { return };
    let executable = build("gcc", source.as_bytes(), &["-x", "c", "-o", OUTPUT, INPUT]).unwrap();
    assert_says(&refused(&executable, "test"), &["bad.o", "e_type is 3", "only relocatable files"]);
    let library = build("gcc", source.as_bytes(), &["-x", "c", "-shared", "-fPIC", "-o", OUTPUT, INPUT]).unwrap();
    assert_says(&refused(&library, "test"), &["e_type is 3"]);
    if let Some(archive) = build("ar", &good, &["rc", OUTPUT, INPUT]) {
        assert_says(&refused(&archive, "test"), &["not a relocatable ELF64 object", "[21, 3c, 61, 72]"]);
    }
    if let Some(arm) =
        build("clang-19", source.as_bytes(), &["--target=aarch64-linux-gnu", "-xc", "-c", "-o", OUTPUT, INPUT])
    {
        assert_says(&refused(&arm, "test"), &["wrong architecture", "AArch64 (183)", "x86-64 (62)"]);
    }
    if let Some(narrow) =
        build("clang-19", source.as_bytes(), &["--target=i386-linux-gnu", "-xc", "-c", "-o", OUTPUT, INPUT])
    {
        assert_says(&refused(&narrow, "test"), &["not 64-bit little-endian"]);
    }
    let patched = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    assert_says(&refused(&patched(4, 1), "test"), &["not 64-bit little-endian"]); // ELFCLASS32
    assert_says(&refused(&patched(5, 2), "test"), &["not 64-bit little-endian"]); // ELFDATA2MSB
    assert_says(&refused(&patched(18, 0xb7), "test"), &["AArch64 (183)"]);
    assert_says(&refused(&patched(16, 2), "test"), &["e_type is 2"]);
    assert_says(&refused(b"", "test"), &["bad.o", "not a relocatable ELF64 object"]);
    assert_says(
        &refused(b"garbage, and more of it than an ELF header has: some sixty-four bytes.", "test"),
        &["not a relocatable"],
    );
    assert_says(&refused(b"\x7fELF", "test"), &["not 64-bit little-endian"]);
    assert_says(&refused(b"\x7fELF\x02\x01", "test"), &["not a relocatable ELF64 object"]);
}

#[test]
fn a_missing_file_is_an_error_with_its_name() {
    let jit = new_jit();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    let dir = PrivateDir::new();
    let error = jit.add_object_file(&tracker, dir.path("absent.o")).unwrap_err();
    assert_says(&error, &["absent.o", "No such file"]);
    dir.write("empty.o", b"");
    let error = jit.add_object_file(&tracker, dir.path("empty.o")).unwrap_err();
    assert_says(&error, &["empty.o"]);
    if let Some(good) = c("long test(void) { return 12; }") {
        dir.write("good.o", good);
        jit.add_object_file(&tracker, dir.path("good.o")).unwrap();
        assert_eq!(long(&jit, "test"), 12);
    }
}

#[test]
fn a_section_that_is_writable_and_executable_is_refused() {
    let Some(object) = asm(".section .both,\"awx\"\n.globl test\ntest: ret\n.section .note.GNU-stack\n") else {
        return;
    };
    assert_says(&refused(&object, "test"), &["bad.o", "both writable and executable", "`.both`"]);
}

#[test]
fn an_object_larger_than_the_window_is_refused_with_its_size() {
    let Some(object) = c("char huge[1900u << 20]; char *test(void) { return huge; }") else { return };
    let error = refused(&object, "test");
    assert_says(&error, &["data pool is exhausted", "1992294400 bytes were requested"]);
}
