//! Objects that contradict themselves in one place. Each is a real object with some overwritten fields.

use crate::support::*;

/// Source that gives an object every kind of section.
const SOURCE: &str = "
    extern long imported; static long own[3] = { 1, 2, 3 }; long *const pointer = own + 1;
    __attribute__((constructor)) static void set(void) { own[0] = 4; }
    long test(void) { return imported + pointer[0] + own[0]++; }";

/// The bytes of an object, with access to its fields at the offsets of the gABI.
#[derive(Clone)]
pub(crate) struct Elf(pub(crate) Vec<u8>);

/// Fields of a section header: offset and width in bytes.
const TYPE: (usize, usize) = (4, 4);
const FLAGS: (usize, usize) = (8, 8);
pub(crate) const OFFSET: (usize, usize) = (24, 8);
pub(crate) const SIZE: (usize, usize) = (32, 8);
const LINK: (usize, usize) = (40, 4);
const INFO: (usize, usize) = (44, 4);
pub(crate) const ALIGN: (usize, usize) = (48, 8);
const ENTRY_SIZE: (usize, usize) = (56, 8);

impl Elf {
    fn new() -> Option<Elf> {
        c(SOURCE).map(Elf)
    }

    pub(crate) fn load(&self, at: usize, width: usize) -> u64 {
        let mut word = [0; 8];
        word[..width].copy_from_slice(&self.0[at..at + width]);
        u64::from_le_bytes(word)
    }

    pub(crate) fn store(&mut self, at: usize, width: usize, value: u64) {
        self.0[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
    }

    pub(crate) fn header_at(&self, index: usize) -> usize {
        self.load(40, 8) as usize + index * 64
    }

    fn name_at(&self, header: usize) -> usize {
        let strings = self.header_at(self.load(62, 2) as usize);
        (self.load(strings + OFFSET.0, 8) + self.load(header, 4)) as usize
    }

    /// Index of the first section of this name.
    pub(crate) fn index(&self, name: &str) -> usize {
        self.indices(name).next().unwrap_or_else(|| panic!("no section {name}"))
    }

    /// Indices of all sections of this name.
    pub(crate) fn indices(&self, name: &str) -> impl Iterator<Item = usize> {
        (0..self.load(60, 2) as usize).filter(move |index| {
            let at = self.name_at(self.header_at(*index));
            self.0[at..].starts_with(name.as_bytes()) && self.0[at + name.len()] == 0
        })
    }

    pub(crate) fn header(&self, name: &str) -> usize {
        self.header_at(self.index(name))
    }

    pub(crate) fn field(&self, section: &str, field: (usize, usize)) -> u64 {
        self.load(self.header(section) + field.0, field.1)
    }

    pub(crate) fn set(&mut self, section: &str, field: (usize, usize), value: u64) {
        self.store(self.header(section) + field.0, field.1, value);
    }

    pub(crate) fn start(&self, section: &str) -> usize {
        self.field(section, OFFSET) as usize
    }

    /// File offset of the symbol with this name.
    pub(crate) fn symbol(&self, name: &str) -> usize {
        let (table, strings) = (self.start(".symtab"), self.start(".strtab"));
        let symbols = (0..self.field(".symtab", SIZE) as usize / 24).map(|index| table + index * 24);
        let has_name =
            |at: &usize| self.0[strings + self.load(*at, 4) as usize..].starts_with(format!("{name}\0").as_bytes());
        symbols.into_iter().find(has_name).unwrap()
    }
}

/// Asserts that the object is refused with these words after `change`.
fn refuses(change: impl FnOnce(&mut Elf), words: &[&str]) {
    let Some(mut elf) = Elf::new() else { return };
    change(&mut elf);
    let jit = new_jit();
    define_absolute(jit.main_dylib(), "imported", 0x1000);
    assert_says(&refused_in(&jit, &elf.0, "test"), &[&["bad.o"], words].concat());
}

#[test]
fn a_relocation_past_the_end_of_its_section_is_refused_with_its_place() {
    refuses(|elf| elf.store(elf.start(".rela.text"), 8, 1 << 40), &["`.text`", "0x10000000000", "past its end"]);
    refuses(|elf| elf.store(elf.start(".rela.text"), 8, u64::MAX), &["`.text`", "past its end"]);
    // The first byte of the field is inside the section, the last is not.
    refuses(
        |elf| {
            let last = elf.field(".text", SIZE) - 3;
            elf.store(elf.start(".rela.text"), 8, last);
        },
        &["`.text`", "past its end"],
    );
}

#[test]
fn a_relocation_that_names_no_symbol_is_refused_with_its_place() {
    refuses(|elf| elf.store(elf.start(".rela.text") + 12, 4, 4000), &["`.text`", "symbol 4000", "does not exist"]);
    refuses(|elf| elf.store(elf.start(".rela.text") + 12, 4, u32::MAX.into()), &["symbol 4294967295"]);
}

#[test]
fn a_relocation_of_an_unsupported_type_is_refused_by_number_or_name() {
    if !require_x86_64() {
        return;
    }
    refuses(|elf| elf.store(elf.start(".rela.text") + 8, 4, 777), &["unsupported relocation type 777", "`.text`"]);
    refuses(|elf| elf.store(elf.start(".rela.text") + 8, 4, 37), &["R_X86_64_IRELATIVE", "offset 0x"]);
}

#[test]
fn a_section_that_reaches_past_the_file_is_refused() {
    for size in [1 << 60, u64::MAX, u64::MAX / 2, 1 << 20] {
        refuses(|elf| elf.set(".text", SIZE, size), &["`.text`"]);
    }
    refuses(|elf| elf.set(".text", OFFSET, u64::MAX - 3), &["`.text`", "past the end of the file"]);
    refuses(|elf| elf.set(".rela.text", SIZE, 24 << 30), &["malformed"]);
    refuses(|elf| elf.set(".symtab", SIZE, 24 << 30), &["malformed"]);
    refuses(|elf| elf.set(".strtab", SIZE, 1 << 40), &["malformed"]);
}

#[test]
fn too_much_zero_fill_is_refused_with_its_size() {
    refuses(|elf| elf.set(".bss", SIZE, u64::MAX), &["section larger than 4 GiB", "`.bss`"]);
    refuses(
        |elf| {
            elf.set(".bss", SIZE, (4 << 30) - 1);
            elf.set(".bss", FLAGS, 0x20_0003); // SHF_GNU_RETAIN: kept without references
        },
        &["data pool is exhausted", "4294967"],
    );
}

#[test]
fn an_alignment_that_is_no_power_of_two_or_too_large_is_refused() {
    refuses(|elf| elf.set(".data", ALIGN, 3), &["`.data`", "aligned to 3"]);
    refuses(|elf| elf.set(".data", ALIGN, u64::MAX), &["`.data`", "no power of two"]);
    refuses(|elf| elf.set(".data", ALIGN, 1 << 62), &["cannot place", "aligned to 4611686018427387904"]);
}

#[test]
fn sections_that_overlap_in_the_file_are_refused() {
    refuses(
        |elf| {
            let text = elf.field(".text", OFFSET);
            elf.set(".data", OFFSET, text);
        },
        &["overlap"],
    );
    refuses(
        |elf| {
            let end = elf.field(".text", OFFSET) + elf.field(".text", SIZE);
            elf.set(".data", OFFSET, end - 1);
        },
        &["overlap"],
    );
    // Overlapping relocation sections would let a small file contain any number of relocations.
    refuses(
        |elf| {
            let relocations = elf.field(".rela.text", OFFSET);
            elf.set(".rela.eh_frame", OFFSET, relocations);
        },
        &["overlap"],
    );
}

#[test]
fn a_symbol_outside_its_section_or_without_a_valid_section_is_refused() {
    refuses(|elf| elf.store(elf.symbol("test") + 8, 8, 1 << 33), &["`test`", "0x200000000", "outside of its section"]);
    refuses(|elf| elf.store(elf.symbol("test") + 6, 2, 0x7ff), &["`test`", "does not exist"]);
    refuses(|elf| elf.store(elf.symbol("test") + 6, 2, 0xff10), &["special section index", "`test`"]);
    refuses(|elf| elf.store(elf.symbol("imported"), 4, 1 << 30), &["malformed"]);
}

#[test]
fn names_that_are_not_utf8_are_refused() {
    // The name of an exported symbol.
    refuses(
        |elf| {
            let name = elf.0.windows(6).position(|bytes| bytes == b"\0test\0").unwrap();
            elf.0[name + 2] = 0xff;
        },
        &["not UTF-8"],
    );
    // The name of an undefined symbol.
    refuses(
        |elf| {
            let name = elf.0.windows(10).position(|bytes| bytes == b"\0imported\0").unwrap();
            elf.0[name + 2] = 0xff;
        },
        &["not UTF-8"],
    );
    refuses(
        |elf| {
            let at = elf.name_at(elf.header(".text"));
            elf.0[at + 2] = 0xff;
        },
        &["not UTF-8"],
    );
}

#[test]
fn names_are_found_around_bytes_that_are_not_utf8() {
    let Some(object) = asm(".globl test\ntest: mov $first, %eax\nadd $between, %eax\nadd $last, %eax\nret") else {
        return;
    };
    let mut elf = Elf(object);
    let name = elf.load(elf.symbol("first"), 4);
    elf.store(elf.symbol("between"), 4, name);
    let between = elf.0.windows(9).position(|bytes| bytes == b"\0between\0").unwrap();
    elf.0[between + 1] = 0xff;
    let jit = new_jit();
    define_absolute(jit.main_dylib(), "first", 5);
    define_absolute(jit.main_dylib(), "last", 7);
    let _tracker = add(&jit, jit.main_dylib(), "object.o", &elf.0);
    assert_eq!(long(&jit, "test"), 5 + 5 + 7);
}

#[test]
fn rel_sections_and_duplicate_or_misdirected_relocation_sections_are_refused() {
    refuses(
        |elf| {
            elf.set(".rela.text", TYPE, 9);
            elf.set(".rela.text", ENTRY_SIZE, 16);
        },
        &["relocations without addends (SHT_REL)"],
    );
    refuses(
        |elf| {
            let text = elf.index(".text") as u64;
            elf.set(".rela.eh_frame", INFO, text);
        },
        &["second relocation section", "`.text`"],
    );
    refuses(|elf| elf.set(".rela.text", INFO, 999), &["section that does not exist"]);
    refuses(
        |elf| {
            let bss = elf.index(".bss") as u64;
            elf.set(".rela.text", INFO, bss);
        },
        &["`.bss`", "no bytes"],
    );
}

#[test]
fn unsupported_section_types_and_flags_are_refused_by_name() {
    refuses(|elf| elf.set(".data", TYPE, 0x6fff_1234), &["section type 0x6fff1234", "`.data`"]);
    refuses(|elf| elf.set(".data", FLAGS, 0x403), &["STT_TLS", "unlike its section"]);
    refuses(|elf| elf.set(".data", FLAGS, 0x803), &["SHF_COMPRESSED", "`.data`"]);
}

#[test]
fn damaged_unwind_tables_are_refused() {
    refuses(|elf| elf.store(elf.start(".eh_frame"), 4, 0x7fff_fff0), &[".eh_frame"]);
    refuses(|elf| elf.store(elf.start(".eh_frame") + 8, 1, 99), &[".eh_frame"]);
    refuses(|elf| elf.store(elf.start(".eh_frame"), 4, 3), &[".eh_frame"]);
}

#[test]
fn an_initialiser_list_with_a_partial_entry_is_refused() {
    refuses(|elf| elf.set(".init_array", SIZE, 7), &["`.init_array`", "7 bytes"]);
}

#[test]
fn section_groups_with_wrong_members_are_refused_or_harmless() {
    let Some(object) = cpp(
        "inline long &counter() { static long it = 1; return it; } extern \"C\" long test() { return counter()++; }",
    ) else {
        return;
    };
    let original = Elf(object);
    let group = original.start(".group");
    let own = original.index(".group") as u64;
    let jit = new_jit();
    for member in [own, 0, 1, 5] {
        let mut elf = original.clone();
        elf.store(group + 4, 4, member);
        let tracker = add(&jit, jit.main_dylib(), "group.o", &elf.0);
        let _ = jit.address_of(jit.main_dylib(), "test");
        assert!(tracker.remove().unwrap().is_complete());
        assert_eq!(held(&jit), (0, 0, 0));
    }
    let mut elf = original.clone();
    elf.store(group + 4, 4, 60000);
    assert_says(&refused_in(&jit, &elf.0, "test"), &["section group", "does not exist"]);
}

#[test]
fn invalid_links_of_the_symbol_table_and_the_header_are_refused() {
    for link in [0, 1, 9999, u64::from(u32::MAX)] {
        refuses(|elf| elf.set(".symtab", LINK, link), &[]);
    }
    refuses(|elf| elf.store(40, 8, u64::MAX - 5), &[]); // e_shoff
    refuses(|elf| elf.store(58, 2, 3), &[]); // e_shentsize
    refuses(|elf| elf.store(62, 2, 0x7777), &[]); // e_shstrndx
}

#[test]
fn the_got_symbol_is_the_got_address_in_every_relocation() {
    let Some(object) = asm("
        .text
        .globl test
        test: lea _GLOBAL_OFFSET_TABLE_(%rip), %rax
              lea _GLOBAL_OFFSET_TABLE_(%rip), %rcx
              sub %rcx, %rax
              ret
        .section .note.GNU-stack\n")
    else {
        return;
    };
    // The assembler writes R_X86_64_GOTPC32 (26) for both. R_X86_64_PC32 (2) has the same meaning here.
    let mut one = Elf(object);
    let start = one.start(".rela.text");
    one.store(start + 8, 4, 2);
    let mut both = one.clone();
    both.store(start + 24 + 8, 4, 2);

    let (jit, _trackers) = linked(&[&one.0]);
    assert_eq!(long(&jit, "test"), 0);
    assert_says(&refused(&both.0, "test"), &["symbols not found", "`_GLOBAL_OFFSET_TABLE_` (its GOT", "bad.o"]);
}

#[test]
fn the_null_symbol_is_zero_even_with_a_section_index() {
    let Some(object) = asm("
        .data
        .globl value
        value: .quad value
        .section .note.GNU-stack\n")
    else {
        return;
    };
    let mut elf = Elf(object);
    let (relocation, null, data) = (elf.start(".rela.data"), elf.start(".symtab"), elf.index(".data") as u64);
    elf.store(relocation + 12, 4, 0);
    elf.store(relocation + 16, 8, 42);
    elf.store(null + 6, 2, data);

    let (jit, _trackers) = linked(&[&elf.0]);
    assert_eq!(read(jit.address_of(jit.main_dylib(), "value").unwrap().value(), 8), 42u64.to_le_bytes());
}

#[test]
fn names_are_found_at_any_distance_in_the_string_table() {
    let others: String = (0..100).map(|n| format!(".globl another_name_{n}\nanother_name_{n}: nop\n")).collect();
    for between in ["", &others] {
        let source = format!(
            ".text\n.globl test\ntest: movq first(%rip), %rax\nret\n{between}movq last(%rip), %rax\n.section .note.GNU-stack\n"
        );
        let Some(object) = asm(&source) else { return };
        assert_says(&refused(&object, "test"), &["symbols not found", "`first`", "`last`"]);
    }
}
