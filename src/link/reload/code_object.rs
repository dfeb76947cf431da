//! [`object_of_code`]: an object whose only function is given as machine code.

use crate::link::elf::{RelocatableFile, SYMBOL_SIZE, SymbolFields, shf, st};

/// An object that defines the function `name` with these bytes, which refer to nothing outside of them. `machine` is the `e_machine`.
pub(crate) fn object_of_code(machine: u16, name: &str, is_strong: bool, code: &[u8]) -> Vec<u8> {
    let mut file = RelocatableFile::new();
    let section = file.add_section(b".text\0", SHT_PROGBITS, shf::ALLOC | shf::EXECINSTR, code);
    section.align = ALIGNMENT;
    let mut names = vec![0];
    names.extend(name.bytes());
    names.push(0);
    let mut symbols = vec![0; SYMBOL_SIZE];
    let binding = if is_strong { st::BIND_GLOBAL } else { st::BIND_WEAK };
    let size = code.len() as u64;
    SymbolFields { name: 1, binding, kind: st::TYPE_FUNC, section: 1, value: 0, size }.append_to(&mut symbols);
    file.add_symbols(&symbols, 1, &names);
    file.finish(machine)
}

const SHT_PROGBITS: u32 = 1;
/// In bytes: what compilers use for functions on both architectures.
const ALIGNMENT: u64 = 16;
