//! Defects that fuzzing (`fuzz/`) and the reviews after it found. Each test has the smallest input and the symptom.
//!
//! The input sizes make the time or memory of the defect far larger than the limit of the test, and that of a correct link far
//! smaller.

use std::sync::Arc;
use std::time::Duration;

use jittison::base::ExecutorAddr;
use jittison::link::{ObjectBuffer, ObjectInterface, PlannedLink};
use jittison::memory::OfflineMemory;

use crate::crafted::{ALIGN, Elf, OFFSET, SIZE};
use crate::support::*;

/// The function that every object defines for the lookup.
const TEST: &str = ".globl test\n.text\ntest: ret\n.section .note.GNU-stack,\"\",@progbits\n";

/// Links an unusual but valid object.
fn links(object: &[u8]) {
    let (jit, trackers) = linked(&[object]);
    jit.address_of(jit.main_dylib(), "test").unwrap();
    assert!(trackers.into_iter().all(|tracker| tracker.remove().unwrap().is_complete()));
    assert_eq!(held(&jit), (0, 0, 0));
    links_on(&jit);
}

/// The same, in less processor time than a quadratic algorithm needs.
fn links_in_linear_time(object: &[u8]) {
    let start = processor_time();
    links(object);
    let elapsed = processor_time() - start;
    assert!(elapsed < Duration::from_secs(5), "{elapsed:?} for {} bytes", object.len());
}

fn lines(count: usize, line: impl Fn(usize) -> String) -> String {
    (0..count).map(|number| line(number) + "\n").collect()
}

#[test]
fn an_empty_section_of_an_earlier_name_moves_no_other_section() {
    // Symptom: a panic. The second `kept` precedes `.rodata` in memory and follows it in the object.
    let Some(object) = asm(&format!(
        ".section kept,\"a\",@progbits
        .section .rodata,\"a\"
        .globl constant
        constant: .quad 1
        .section kept,\"ao\",@progbits,.text
        .data
        .quad __start_kept
        {TEST}"
    )) else {
        return;
    };
    links(&object);
}

#[test]
fn alignments_whose_sum_overflows_are_refused() {
    // Symptom: the sum of the sizes overflowed, and the link allocated the small remainder.
    let Some(object) = asm(&format!(
        ".data\n.globl datum\ndatum: .quad 1\n.section .bss.late,\"aw\",@nobits\n.globl late\nlate: .zero 8
        .section .rodata,\"a\"\n.globl constant\nconstant: .quad 1
        .section .zero,\"a\",@nobits\n.globl zero\nzero: .zero 8\n{TEST}"
    )) else {
        return;
    };
    let mut elf = Elf(object);
    elf.set(".bss.late", ALIGN, 1 << 63);
    elf.set(".zero", ALIGN, 1 << 63);
    assert_says(&refused(&elf.0, "test"), &["aligned to 9223372036854775808"]);
    let planned = PlannedLink::plan(Arc::from("bad.o"), ObjectBuffer::from(elf.0), |_| true, |_| Ok(()));
    let refused = planned.unwrap().allocate(&OfflineMemory::new(ExecutorAddr::new(0x1000)));
    assert_says(&refused.map(drop).unwrap_err(), &["at most 1 GiB"]);
}

#[test]
fn alignments_that_cause_much_padding_are_refused() {
    // Symptom: the link wrote a gigabyte of padding.
    let Some(object) = asm(&format!(
        ".data\n.globl datum\ndatum: .quad 1\n.section .data.late,\"aw\"\n.globl late\nlate: .quad 1\n{TEST}"
    )) else {
        return;
    };
    let mut elf = Elf(object);
    elf.set(".data.late", ALIGN, 1 << 29);
    assert_says(&refused(&elf.0, "test"), &["bad.o", "`.data.late`", "aligned to 536870912", "536870904 bytes"]);
}

#[test]
fn an_impossible_alignment_of_thread_local_variables_is_refused() {
    // Symptom: the process aborted. The file for the C library would have had 4 EiB.
    let Some(object) = c("_Thread_local long own = 1; long test(void) { return own; }") else { return };
    let mut elf = Elf(object);
    elf.set(".tdata", ALIGN, 2 << 20);
    links(&elf.0);
    elf.set(".tdata", ALIGN, 1 << 62);
    assert_says(&refused(&elf.0, "test"), &["bad.o", "`.tdata`", "aligned to 4611686018427387904"]);
}

#[test]
fn zero_fill_initialiser_lists_and_unwind_tables_are_not_read() {
    // Symptom: the link read every page of the zero-fill, four bytes at a time.
    let Some(object) = asm(&format!(
        ".section .eh_frame,\"a\",@nobits\n.zero 0x17000000\n.section .init_array,\"aw\",@nobits\n.zero 4096\n{TEST}"
    )) else {
        return;
    };
    links_in_linear_time(&object);
}

#[test]
fn symbol_names_that_overlap_too_much_are_refused() {
    // Symptom: the link copied the same name for each symbol, which is quadratic in the size of the object.
    let symbols = lines(2000, |number| format!(".globl a{number}\na{number} = {number}"));
    let Some(object) = asm(&format!("{symbols}.globl {}\n.set {0}, 1\n{TEST}", "n".repeat(100_000))) else { return };
    let mut elf = Elf(object);
    let long = elf.load(elf.symbol(&"n".repeat(100_000)), 4);
    let table = elf.start(".symtab");
    for index in 1..elf.field(".symtab", SIZE) as usize / 24 {
        elf.store(table + index * 24, 4, long);
    }
    let scanned = ObjectInterface::scan("bad.o", &elf.0).map(|interface| interface.symbols.len());
    assert_says(&scanned.unwrap_err(), &["bad.o", "names overlap"]);
    let planned = PlannedLink::plan(Arc::from("bad.o"), ObjectBuffer::from(elf.0), |_| true, |_| Ok(()));
    assert_says(&planned.map(drop).unwrap_err(), &["bad.o", "names overlap"]);
}

#[test]
fn overlapping_names_of_externals_and_of_sections_are_refused() {
    let long = "n".repeat(100_000);
    let externals = lines(2000, |number| format!(".quad a{number}"));
    let sections = lines(2000, |number| format!(".section a{number},\"a\"\n.byte 1"));
    let (Some(externals), Some(sections)) = (
        asm(&format!(".data\n{externals}.quad {long}\n{TEST}")),
        asm(&format!("{sections}.section {long},\"a\"\n.byte 1\n{TEST}")),
    ) else {
        return;
    };
    let (mut externals, mut sections) = (Elf(externals), Elf(sections));
    let (table, name) = (externals.start(".symtab"), externals.load(externals.symbol(&long), 4));
    for index in 1..externals.field(".symtab", SIZE) as usize / 24 {
        externals.store(table + index * 24, 4, name);
    }
    let name = sections.load(sections.header_at(sections.index(&long)), 4);
    for index in 1..sections.load(60, 2) as usize {
        sections.store(sections.header_at(index), 4, name);
    }
    for Elf(object) in [externals, sections] {
        let planned = PlannedLink::plan(Arc::from("bad.o"), ObjectBuffer::from(object), |_| true, |_| Ok(()));
        assert_says(&planned.map(drop).unwrap_err(), &["bad.o", "names overlap"]);
    }
}

#[test]
fn groups_that_overlap_in_the_file_are_refused() {
    // Symptom: each group was read completely, which is the number of groups times the number of members.
    let Some(object) =
        asm(&format!(".section one,\"aG\",@progbits,g,comdat\n.section two,\"aG\",@progbits,h,comdat\n{TEST}"))
    else {
        return;
    };
    let mut elf = Elf(object);
    let place = elf.start(".group") as u64;
    let groups: Vec<usize> = elf.indices(".group").collect();
    for group in &groups {
        elf.store(elf.header_at(*group) + OFFSET.0, OFFSET.1, place);
    }
    assert_says(&refused(&elf.0, "test"), &["bad.o", "overlap"]);
}

#[test]
fn a_group_of_many_sections_links_in_linear_time() {
    // Symptom: the link walked the entire group for every member.
    let members = lines(25_000, |number| format!(".section s{number},\"aG\",@progbits,g,comdat"));
    let Some(object) = asm(&format!("{members}.globl g\ng: .quad 0\n.section other,\"a\"\n{TEST}")) else { return };
    links_in_linear_time(&object);
}

#[test]
fn bounds_of_many_sections_are_found_in_linear_time() {
    // Symptom: the link compared every section with every name.
    let sections = lines(12_000, |number| format!(".section s{number},\"a\"\n.byte 1\n.data\n.quad __start_s{number}"));
    let Some(object) = asm(&format!("{sections}{TEST}")) else { return };
    links_in_linear_time(&object);
}

#[test]
fn a_long_cie_of_many_unwind_entries_is_read_once() {
    // Symptom: the CIE was read again for every function.
    let Some(object) = asm(&format!(
        ".section .eh_frame,\"a\"
        cie: .long cie_end - cie_body
        cie_body: .long 0
        .byte 1
        .ascii \"z\"
        .fill 1000000, 1, 'S'
        .byte 0, 1, 0x78, 16, 0
        .balign 4
        cie_end:
        .rept 20000
        .long 24
        .long . - cie
        .quad 0x1000, 16
        .long 0
        .endr
        {TEST}"
    )) else {
        return;
    };
    links_in_linear_time(&object);
}
