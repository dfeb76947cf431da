//! What debuggers and profilers are told of an object costs what the object does, however odd it is: these overlap in what
//! nobody runs, and would be told as the square of their size.

use std::sync::{Arc, Mutex};

use jittison::layer::{LinkHooks, LinkOrigin, LinkPlugin};
use jittison::link::{FixedLink, LinkedFunction};
use jittison::{Error, Jit};

use crate::crafted::{Elf, OFFSET, SIZE};
use crate::support::*;

/// Asks for all that there is to tell.
#[derive(Default, Clone)]
struct Curious(Arc<Mutex<(Vec<u8>, Vec<LinkedFunction>)>>);

impl LinkPlugin for Curious {
    fn begin(&self, _origin: &LinkOrigin<'_>) -> Option<Box<dyn LinkHooks>> {
        Some(Box::new(self.clone()))
    }
}

impl LinkHooks for Curious {
    fn fixed_up(&mut self, link: &mut FixedLink<'_>) -> Result<(), Error> {
        *self.0.lock().unwrap() = (link.symbol_file(), link.functions());
        Ok(())
    }
}

/// The symbol file, and the functions.
fn told(object: &[u8]) -> (Vec<u8>, Vec<LinkedFunction>) {
    let (jit, curious) = (Jit::new().unwrap(), Curious::default());
    jit.layer().add_plugin(Arc::new(curious.clone()));
    let _tracker = add(&jit, jit.main_dylib(), "odd.o", object);
    jit.address_of(jit.main_dylib(), "test").unwrap();
    std::mem::take(&mut *curious.0.lock().unwrap())
}

/// Bytes of what is told of functions, as a profiler writes them down: each line with its file.
fn written(functions: &[LinkedFunction]) -> usize {
    let frame = |function: &LinkedFunction| {
        function.frame.as_ref().map_or(0, |frame| frame.initial.len() + frame.instructions.len())
    };
    let lines = |function: &LinkedFunction| function.lines.iter().map(|line| 16 + line.file.len()).sum::<usize>();
    functions.iter().map(|function| function.code.len() + frame(function) + lines(function)).sum()
}

/// So many times its size may be told of an object.
const MOST: usize = 65;

#[test]
fn debug_sections_that_overlap_in_the_file_are_told_once() {
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
    let (file, _) = told(&elf.0);
    assert!(file.len() < 2 * elf.0.len(), "{} bytes of {}", file.len(), elf.0.len());
    assert!(file.len() > 1_000_000, "the first of them is there");
}

#[test]
fn functions_that_lie_on_each_other_are_told_in_full_only_while_there_is_room() {
    let names: String = (0..300).map(|n| format!(".globl f{n}\n.set f{n}, test + {n}\n.size f{n}, 900000\n")).collect();
    let Some(object) = asm(&format!(".globl test\ntest: .fill 1000000, 1, 0x90\nret\n{names}")) else { return };
    let (_, functions) = told(&object);
    let told = written(&functions);
    assert!(told < MOST * object.len(), "{told} bytes of {}", object.len());
    // Two names for the first place.
    assert_eq!(functions.len(), 300);
    assert!(functions.iter().all(|function| !function.code.is_empty()));
    assert_eq!((functions[1].code.len(), functions[299].code.len()), (900_000, 900_000));
}

#[test]
fn functions_with_a_long_common_part_of_their_unwind_tables_are_told_without() {
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
    let (_, functions) = told(&object);
    assert!(functions.len() >= 2000);
    assert!(written(&functions) < MOST * object.len(), "{} bytes of {}", written(&functions), object.len());
}

#[test]
fn names_within_a_function_of_long_unwind_instructions_are_told_with_them_only_while_there_is_room() {
    let names: String = (0..2000).map(|n| format!(".globl f{n}\nf{n}: nop\n.size f{n}, 1\n")).collect();
    let Some(object) = asm(&format!(
        ".globl test\ntest: .cfi_startproc\nnop\n.size test, 1\n{names}
        .cfi_escape 0\n.rept 20000\n.cfi_escape 0, 0, 0, 0, 0, 0, 0, 0, 0, 0\n.endr\nret\n.cfi_endproc"
    )) else {
        return;
    };
    let (_, functions) = told(&object);
    assert!(functions[0].frame.as_ref().is_some_and(|frame| frame.instructions.len() > 100_000));
    assert!(written(&functions) < MOST * object.len(), "{} bytes of {}", written(&functions), object.len());
}

#[test]
fn lines_of_files_with_a_long_name_in_common_are_told_with_it_only_while_there_is_room() {
    // A table by hand: version 5, one directory, 2,000 files that share their name in .debug_line_str, a row for each.
    let rows: String = (0..2000).map(|n| format!(".byte 4\n.uleb128 {n}\n.byte 1, 2\n.uleb128 1\n")).collect();
    let Some(object) = asm(&format!(
        ".globl test\ntest: .fill 3000, 1, 0x90\nret\n.size test, . - test
        .section .debug_line_str,\"MS\",@progbits,1\nlong: .fill 200000, 1, 'x'\n.byte 0
        .section .debug_line,\"\"
        .long end - version\nversion: .short 5\n.byte 8, 0\n.long program - header
        header: .byte 1, 1, 1, -5, 14, 13, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1
        .byte 1, 1, 0x1f\n.uleb128 1\n.long 0
        .byte 1, 1, 0x1f\n.uleb128 2000\n.rept 2000\n.long 0\n.endr
        program: .byte 0, 9, 2\n.quad test\n{rows}.byte 0, 1, 1\nend:"
    )) else {
        return;
    };
    let (_, functions) = told(&object);
    assert_eq!(functions[0].code.len(), 3001);
    assert!(written(&functions) < MOST * object.len(), "{} bytes of {}", written(&functions), object.len());
}
