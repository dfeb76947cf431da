//! Data for debuggers and profilers stays proportional to the size of the object. These objects overlap names, code, unwind
//! tables or line tables, so that complete data would be quadratic in their size.

use std::sync::{Arc, Mutex};

use jittison::layer::{LinkHooks, LinkOrigin, LinkPlugin};
use jittison::link::{FixedLink, LinkedFunction};
use jittison::{Error, Jit};

use crate::crafted::{Elf, OFFSET, SIZE};
use crate::support::*;

/// A plugin that collects the symbol file and all functions of a link.
#[derive(Default, Clone)]
pub(crate) struct Collector(Arc<Mutex<(Vec<u8>, Vec<LinkedFunction>)>>);

impl Collector {
    /// The symbol file and the functions of the last link.
    pub(crate) fn take(&self) -> (Vec<u8>, Vec<LinkedFunction>) {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl LinkPlugin for Collector {
    fn begin(&self, _origin: &LinkOrigin<'_>) -> Option<Box<dyn LinkHooks>> {
        Some(Box::new(self.clone()))
    }
}

impl LinkHooks for Collector {
    fn fixed_up(&mut self, link: &mut FixedLink<'_>) -> Result<(), Error> {
        *self.0.lock().unwrap() = (link.symbol_file(), link.functions());
        Ok(())
    }
}

/// The symbol file and the functions of a linked object.
pub(crate) fn collected(object: &[u8]) -> (Vec<u8>, Vec<LinkedFunction>) {
    let (jit, collector) = (Jit::new().unwrap(), Collector::default());
    jit.layer().add_plugin(Arc::new(collector.clone()));
    let _tracker = add(&jit, jit.main_dylib(), "odd.o", object);
    jit.address_of(jit.main_dylib(), "test").unwrap();
    collector.take()
}

/// Bytes of the functions in a profiler file, where each line has the name of its file.
fn reported_bytes(functions: &[LinkedFunction]) -> usize {
    let frame = |function: &LinkedFunction| {
        function.frame.as_ref().map_or(0, |frame| frame.initial.len() + frame.instructions.len())
    };
    let lines = |function: &LinkedFunction| function.lines.iter().map(|line| 16 + line.file.len()).sum::<usize>();
    functions.iter().map(|function| function.name.len() + function.code.len() + frame(function) + lines(function)).sum()
}

/// The reported bytes of an object stay below this multiple of its size.
const LIMIT: usize = 65;

#[track_caller]
fn assert_within_limit(functions: &[LinkedFunction], object: &[u8]) {
    let reported = reported_bytes(functions);
    assert!(reported < LIMIT * object.len(), "{reported} bytes of {}", object.len());
}

#[test]
fn debug_sections_that_overlap_in_the_file_are_copied_once() {
    let sections: String = (0..200).map(|n| format!(".section .debug_{n},\"\"\n.byte 1\n")).collect();
    let Some(object) =
        asm(&format!(".globl test\ntest: ret\n.section .debug_all,\"\"\n.fill 1000000, 1, 1\n{sections}"))
    else {
        return;
    };
    let mut elf = Elf(object);
    let (place, size) = (elf.start(".debug_all") as u64, elf.field(".debug_all", SIZE));
    for n in 0..200 {
        elf.set(&format!(".debug_{n}"), OFFSET, place);
        elf.set(&format!(".debug_{n}"), SIZE, size);
    }
    let (file, _) = collected(&elf.0);
    assert!(file.len() < 2 * elf.0.len(), "{} bytes of {}", file.len(), elf.0.len());
    assert!(file.len() > 1_000_000, "the first section is copied");
}

#[test]
fn the_code_of_overlapping_functions_is_reported_up_to_a_limit() {
    let names: String = (0..300).map(|n| format!(".globl f{n}\n.set f{n}, test + {n}\n.size f{n}, 900000\n")).collect();
    let Some(object) = asm(&format!(".globl test\ntest: .fill 1000000, 1, 0x90\nret\n{names}")) else { return };
    let (_, functions) = collected(&object);
    let size = reported_bytes(&functions);
    assert!(size < LIMIT * object.len(), "{size} bytes of {}", object.len());
    // Two names have the first address.
    assert_eq!(functions.len(), 300);
    assert!(functions.iter().all(|function| !function.code.is_empty()));
    assert_eq!((functions[1].code.len(), functions[299].code.len()), (900_000, 900_000));
}

#[test]
fn functions_that_share_a_long_cie_stay_within_the_limit() {
    let functions: String = (0..2000).map(|n| format!(".globl f{n}\nf{n}: nop\n.size f{n}, 1\n")).collect::<String>();
    let Some(object) = asm(&format!(
        ".globl test\ntest: ret\n{functions}
        .section .eh_frame,\"a\",@unwind
        cie: .long cie_end - cie_body\ncie_body: .long 0\n.byte 1, 0, 1, 0x78, 16\n.fill 200003, 1, 0\ncie_end:
        .set n, 0
        .rept 2000
        .long 20
        .long . - cie
        .quad f0 + n, 1
        .set n, n + 1
        .endr"
    )) else {
        return;
    };
    let (_, functions) = collected(&object);
    assert!(functions.len() >= 2000);
    assert_within_limit(&functions, &object);
}

#[test]
fn names_inside_a_function_with_long_unwind_instructions_stay_within_the_limit() {
    let names: String = (0..2000).map(|n| format!(".globl f{n}\nf{n}: nop\n.size f{n}, 1\n")).collect();
    let Some(object) = asm(&format!(
        ".globl test\ntest: .cfi_startproc\nnop\n.size test, 1\n{names}
        .cfi_escape 0\n.rept 20000\n.cfi_escape 0, 0, 0, 0, 0, 0, 0, 0, 0, 0\n.endr\nret\n.cfi_endproc"
    )) else {
        return;
    };
    let (_, functions) = collected(&object);
    assert!(functions[0].frame.as_ref().is_some_and(|frame| frame.instructions.len() > 100_000));
    assert_within_limit(&functions, &object);
}

/// An object whose line table has one row for each of `files` files. All of them share one name of `length` bytes.
fn with_shared_file_name(files: usize, length: usize) -> Option<Vec<u8>> {
    // A hand-written line table: version 5, one directory; the name is in .debug_line_str.
    let rows: String = (0..files).map(|n| format!(".byte 4\n.uleb128 {n}\n.byte 1, 2\n.uleb128 1\n")).collect();
    asm(&format!(
        ".globl test\ntest: .fill {files} + 1000, 1, 0x90\nret\n.size test, . - test
        .section .debug_line_str,\"MS\",@progbits,1\nlong: .fill {length}, 1, 'x'\n.byte 0
        .section .debug_line,\"\"
        .long end - version\nversion: .short 5\n.byte 8, 0\n.long program - header
        header: .byte 1, 1, 1, -5, 14, 13, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1
        .byte 1, 1, 0x1f\n.uleb128 1\n.long 0
        .byte 1, 1, 0x1f\n.uleb128 {files}\n.rept {files}\n.long 0\n.endr
        program: .byte 0, 9, 2\n.quad test\n{rows}.byte 0, 1, 1\nend:"
    ))
}

#[test]
fn lines_of_files_that_share_a_long_name_stay_within_the_limit() {
    let Some(object) = with_shared_file_name(2000, 200_000) else { return };
    let (_, functions) = collected(&object);
    assert_eq!(functions[0].code.len(), 3001);
    assert_within_limit(&functions, &object);
}

#[test]
fn file_names_beyond_the_limit_are_not_read() {
    // Symptom: each of the 450 GB of names was searched and copied before the limit refused it.
    let Some(object) = with_shared_file_name(150_000, 3_000_000) else { return };
    let (_, functions) = collected(&object);
    assert_eq!(functions[0].code.len(), 151_001);
    assert_within_limit(&functions, &object);
}

#[test]
fn names_of_local_functions_that_share_a_long_text_stay_within_the_limit() {
    let long = "n".repeat(500_000);
    let functions: String = (0..1000).map(|n| format!("f{n}: nop\n.size f{n}, 1\n")).collect();
    let Some(object) = asm(&format!(".globl test\ntest: ret\n.size test, 1\n{functions}{long}: nop\n")) else { return };
    let mut elf = Elf(object);
    let (table, name) = (elf.start(".symtab"), elf.load(elf.symbol(&long), 4));
    for symbol in (1..elf.field(".symtab", SIZE) as usize / 24).map(|index| table + index * 24) {
        // A local symbol without a type.
        if elf.load(symbol + 4, 1) == 0 {
            elf.store(symbol, 4, name);
        }
    }
    let (_, functions) = collected(&elf.0);
    assert_eq!((functions.len(), functions[0].name.as_str()), (1002, "test"));
    assert_eq!((functions[1].name.len(), functions[1001].name.len()), (500_000, 0), "the budget pays for some names");
    assert_within_limit(&functions, &elf.0);
}
