//! Sections that share one long name, in a string table that is not plain. No step may search for the end of the name for each
//! section.
//!
//! There are 60,000 sections and 64 MiB of name. A search for each section reads 4 TB, which takes minutes.

use jittison::Jit;
use jittison::link::ObjectInterface;

use crate::debug_info_size::collected;
use crate::support::{own_process, require_x86_64};

const SECTIONS: usize = 60_000;
const NAME_BYTES: usize = 64 << 20;

const PROGBITS: u64 = 1;
const SYMTAB: u64 = 2;
const STRTAB: u64 = 3;
const WRITE: u64 = 1;
const ALLOC: u64 = 2;
const EXECINSTR: u64 = 4;

/// An object with a function `test`, and with [`SECTIONS`] empty sections of these flags and of one name. Its `variables`
/// symbols named `v` are defined in the first of those sections.
fn with_shared_name(flags: u64, variables: usize) -> Vec<u8> {
    let names =
        [&b"\0.text\0.symtab\0.strtab\0.shstrtab\0."[..], &vec![b'n'; NAME_BYTES], b"\0not terminated"].concat();
    let name_at = |name: &[u8]| names.windows(name.len()).position(|bytes| bytes == name).unwrap() as u64;
    let symbol = |name: u32, info: u8, section: u16| {
        [&name.to_le_bytes()[..], &[info, 0], &section.to_le_bytes(), &[0; 16]].concat()
    };
    // Global symbols: `test` is a function, the others are variables.
    let symbols = [symbol(0, 0, 0), symbol(1, 0x12, 1), symbol(6, 0x11, FIRST_SHARED).repeat(variables)].concat();
    let mut file = vec![0; 64];
    let mut place = |bytes: &[u8]| {
        file.resize(file.len().next_multiple_of(8), 0);
        file.extend(bytes);
        ((file.len() - bytes.len()) as u64, bytes.len() as u64)
    };
    let (text, table, strings) = (place(b"\xc3"), place(&symbols), place(b"\0test\0v\0"));
    let section_names = place(&names);
    let header = |name: u64, kind: u64, flags: u64, (start, size): (u64, u64), link: u64, info: u64, entry: u64| {
        let words = [name | kind << 32, flags, 0, start, size, link | info << 32, 1, entry];
        words.map(u64::to_le_bytes).concat()
    };
    let headers = [
        vec![0; 64],
        header(name_at(b".text"), PROGBITS, ALLOC | EXECINSTR, text, 0, 0, 0),
        header(name_at(b".symtab"), SYMTAB, 0, table, 3, 1, 24),
        header(name_at(b".strtab"), STRTAB, 0, strings, 0, 0, 0),
        header(name_at(b".shstrtab"), STRTAB, 0, section_names, 0, 0, 0),
        header(name_at(b".nnn"), PROGBITS, flags, (text.0, 0), 0, 0, 0).repeat(SECTIONS),
    ];
    let (headers_at, _) = place(&headers.concat());
    // ELF64, little-endian; a relocatable object for x86-64.
    file[..20].copy_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x01\0\x3e\0");
    file[20] = 1;
    file[40..48].copy_from_slice(&headers_at.to_le_bytes());
    let counts = [64, 0, 0, 64, SECTIONS as u16 + FIRST_SHARED, 4].map(u16::to_le_bytes).concat();
    file[52..64].copy_from_slice(&counts);
    file
}

/// The index of the first section that has the shared name.
const FIRST_SHARED: u16 = 5;

#[test]
fn an_interface_is_read_without_the_ends_of_section_names() {
    let object = with_shared_name(ALLOC, 0);
    assert_eq!(ObjectInterface::scan("shared.o", &object).unwrap().symbols.len(), 1);
}

#[test]
fn the_variables_of_a_patch_are_read_without_the_ends_of_section_names() {
    own_process!();
    let object = with_shared_name(ALLOC | WRITE, SECTIONS);
    let jit = Jit::new().unwrap();
    let patchable = jit.patchable(jit.main_dylib(), &["test"]).unwrap();
    patchable.patch().add_object("shared.o", object).unwrap();
}

#[test]
fn a_link_is_described_without_the_ends_of_section_names() {
    if !require_x86_64() {
        return;
    }
    let object = with_shared_name(0, 0);
    let (file, functions) = collected(&object);
    assert!(file.len() > NAME_BYTES, "the string tables are copied");
    assert_eq!((functions.len(), functions[0].name.as_str()), (1, "test"));
}
