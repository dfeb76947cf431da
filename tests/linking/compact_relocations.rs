//! Compact relocations (`SHT_CREL`): an object that has them links as the same object with usual relocations. A table that is
//! not well-formed is refused with its section.

use crate::crafted::{Elf, OFFSET, SIZE};
use crate::debug_info_size::collected;
use crate::support::*;

const RELA: u64 = 4;
const CREL: u64 = 0x4000_0014;
/// The field `sh_type` of a section header.
const TYPE: (usize, usize) = (4, 4);

/// Offset, symbol, type and addend of a relocation.
type Entry = (u64, u32, u32, i64);

/// More pointers than the reader decodes at a time, and references with addends to several symbols.
const SOURCE: &str = "
    extern long imported(long); long table[5] = { 10, 20, 30, 40, 50 }; static long zero[4];
    #define FOUR(n) table + n, zero + n, table + n + 1, (long *)imported
    #define ALL FOUR(0), FOUR(1), FOUR(2), FOUR(3), FOUR(0), FOUR(2)
    long *const pointers[] = { ALL, ALL, ALL, ALL };
    __attribute__((constructor)) static void set(void) { zero[1] = 7; }
    long test(void) {
        long sum = 0;
        for (int i = 0; i < 96; i++) if (i % 4 != 3) sum += *pointers[i];
        return imported(sum) + (pointers[3] == (long *)imported && pointers[95] == pointers[3]) * 100000;
    }";

fn types(object: &[u8]) -> Vec<u64> {
    let elf = Elf(object.to_vec());
    (0..elf.load(60, 2) as usize).map(|index| elf.load(elf.header_at(index) + TYPE.0, TYPE.1)).collect()
}

fn value(object: &[u8]) -> Option<i64> {
    let (jit, _trackers) = linked(&[object, &c("long imported(long x) { return x + 1; }")?]);
    initialize(&jit, jit.main_dylib());
    Some(long(&jit, "test"))
}

// Seen red: the object was refused.
#[test]
fn an_object_of_clang_with_compact_relocations_runs_as_its_source_says() {
    for model in [&["-fPIC"][..], &["-fno-pic"], &LARGE_CODE_MODEL] {
        let compile = |more: &[&str]| clang(&[&["-O1", "-g"], model, more].concat(), SOURCE);
        let (Some(usual), Some(compact)) = (compile(&[]), compile(&["-Wa,--crel,--allow-experimental-crel"])) else {
            return;
        };
        assert!(types(&compact).contains(&CREL) && !types(&compact).contains(&RELA));
        assert_eq!(value(&compact), value(&usual), "{model:?}");
        assert_eq!(value(&compact), Some(101_389), "{model:?}");
    }
}

#[test]
fn debuggers_and_profilers_get_the_lines_of_an_object_with_compact_relocations() {
    let source = "long test(void) { return 3; } long other(long x) { return x + test(); }";
    let compile = |more: &[&str]| clang(&[&["-O1", "-g", "-ffunction-sections"], more].concat(), source);
    let (Some(usual), Some(compact)) = (compile(&[]), compile(&["-Wa,--crel,--allow-experimental-crel"])) else {
        return;
    };
    let lines = |object: &[u8]| {
        let (file, functions) = collected(object);
        let has_compact = types(&file).contains(&CREL);
        let lines = |function: &jittison::link::LinkedFunction| {
            let start = function.address.value();
            function.lines.iter().map(|line| (line.address.value() - start, line.line)).collect::<Vec<_>>()
        };
        (has_compact, types(&file).contains(&RELA), functions.iter().map(lines).collect::<Vec<_>>())
    };
    let (has_compact, has_usual, found) = lines(&compact);
    assert!(!has_compact && has_usual, "debuggers read the usual form only");
    assert!(found.iter().any(|lines| !lines.is_empty()));
    assert_eq!(found, lines(&usual).2);
}

/// Appends a number in LEB128, signed.
fn push_signed(to: &mut Vec<u8>, mut value: i64) {
    loop {
        let byte = (value & 0x7f) as u8;
        value >>= 7;
        if value == i64::from(byte as i8) << 57 >> 63 {
            return to.push(byte);
        }
        to.push(byte | 0x80);
    }
}

/// Appends a number in LEB128, unsigned.
fn push_unsigned(to: &mut Vec<u8>, mut value: u128) {
    while value > 0x7f {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

/// The table of compact relocations with these entries. `count` is what its header says.
fn encoded(entries: &[Entry], count: u64) -> Vec<u8> {
    let (mut table, mut last): (_, Entry) = (Vec::new(), (0, 0, 0, 0));
    push_unsigned(&mut table, u128::from(count) * 8 + 4);
    for entry in entries {
        let (symbol, kind, addend) = (entry.1 != last.1, entry.2 != last.2, entry.3 != last.3);
        let flags = u128::from(symbol) | u128::from(kind) << 1 | u128::from(addend) << 2;
        push_unsigned(&mut table, u128::from(entry.0.wrapping_sub(last.0)) << 3 | flags);
        if symbol {
            push_signed(&mut table, i64::from(entry.1.wrapping_sub(last.1) as i32));
        }
        if kind {
            push_signed(&mut table, i64::from(entry.2.wrapping_sub(last.2) as i32));
        }
        if addend {
            push_signed(&mut table, entry.3.wrapping_sub(last.3));
        }
        last = *entry;
    }
    table
}

fn entries(elf: &Elf, section: &str) -> Vec<Entry> {
    let (start, size) = (elf.start(section), elf.field(section, SIZE) as usize);
    let entry =
        |at| (elf.load(at, 8), elf.load(at + 12, 4) as u32, elf.load(at + 8, 4) as u32, elf.load(at + 16, 8) as i64);
    (start..start + size).step_by(24).map(entry).collect()
}

/// Replaces the relocation table of a section by a compact one.
fn replace(elf: &mut Elf, section: &str, table: &[u8]) {
    let at = elf.0.len() as u64;
    elf.0.extend(table);
    elf.set(section, TYPE, CREL);
    elf.set(section, OFFSET, at);
    elf.set(section, SIZE, table.len() as u64);
}

#[test]
fn usual_relocations_in_compact_form_give_the_same_result() {
    for flags in [&["-O2", "-fPIC"][..], &["-O0", "-fno-pic"], &LARGE_CODE_MODEL] {
        let Some(mut elf) = gcc(flags, SOURCE).map(Elf) else { return };
        let usual = value(&elf.0);
        for section in [".rela.text", ".rela.rodata", ".rela.data.rel.ro", ".rela.data.rel.ro.local", ".rela.eh_frame"]
        {
            if elf.indices(section).next().is_some() {
                let entries = entries(&elf, section);
                replace(&mut elf, section, &encoded(&entries, entries.len() as u64));
            }
        }
        assert_eq!((value(&elf.0), usual), (Some(101_389), Some(101_389)), "{flags:?}");
    }
}

#[test]
fn compact_relocations_that_are_not_well_formed_are_refused_with_their_section() {
    let Some(object) = c(SOURCE).map(Elf) else { return };
    let all = entries(&object, ".rela.text");
    let count = all.len() as u64;
    let whole = encoded(&all, count);
    let refuse = |table: &[u8], words: &[&str]| {
        let mut elf = object.clone();
        replace(&mut elf, ".rela.text", table);
        let jit = new_jit();
        define_absolute(jit.main_dylib(), "imported", 0x1000);
        assert_says(&refused_in(&jit, &elf.0, "test"), &[&["bad.o"], words].concat());
    };
    for end in 0..whole.len() {
        refuse(&whole[..end], &["SHT_CREL", "`.rela.text`"]);
    }
    for more in [count + 1, count + 100, u64::MAX >> 4] {
        refuse(&encoded(&all, more), &["SHT_CREL", "`.rela.text`"]);
    }
    refuse(&[&whole[..1], &[0xff; 12], &whole[1..]].concat(), &["SHT_CREL", "`.rela.text`"]);
    let mut no_addends = whole.clone();
    no_addends[0] &= !4;
    refuse(&no_addends, &["compact relocations without addends", "`.rela.text`"]);
    let changed = |change: &dyn Fn(&mut Entry)| {
        let mut all = all.clone();
        change(all.last_mut().unwrap());
        encoded(&all, count)
    };
    refuse(&changed(&|entry| entry.0 = 1 << 40), &["`.text`", "0x10000000000", "past its end"]);
    refuse(&changed(&|entry| entry.0 = u64::MAX >> 4), &["`.text`", "past its end"]);
    refuse(&changed(&|entry| entry.1 = 4000), &["`.text`", "symbol 4000", "does not exist"]);
    refuse(&changed(&|entry| entry.2 = 777), &["unsupported relocation type 777", "`.text`"]);
}

#[test]
fn compact_and_usual_relocations_for_one_section_are_refused() {
    let Some(mut elf) = c(SOURCE).map(Elf) else { return };
    let (table, text) = (entries(&elf, ".rela.text"), elf.index(".text") as u64);
    let other = [".rela.eh_frame"].into_iter().find(|name| elf.indices(name).next().is_some()).unwrap();
    replace(&mut elf, other, &encoded(&table, table.len() as u64));
    elf.set(other, (44, 4), text);
    assert_says(&refused(&elf.0, "test"), &["second relocation section for one section", "`.text`"]);
}
