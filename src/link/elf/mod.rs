//! ELF64 objects for x86-64: what they define (`interface.rs`, `data.rs`) and what they consist of (`read.rs`,
//! `relocations.rs`).
//!
//! Headers are read through `object`; everything that the gABI lets an object say wrong is checked here, so that
//! nothing behind this door meets an index or a range that does not exist.

mod data;
mod interface;
mod names;
mod outline;
mod read;
mod relocations;

pub(crate) use data::{Variable, variables};
pub use interface::{InterfaceSymbol, ObjectInterface, required_names};
pub(crate) use interface::{Seen, defined_names};
pub(crate) use outline::Outline;
pub(crate) use read::{read_all, read_graph};

use std::cell::Cell;
use std::ops::Range;

use object::elf::{FileHeader64, Rela64, SectionHeader64, Sym64};
use object::read::StringTable;
use object::read::elf::{FileHeader, SectionHeader as _, SectionTable, Sym as _, SymbolTable};
use object::{LittleEndian, U32};

use crate::base::ahead_of_null;
use crate::error::{Error, ErrorKind, LinkFault};
use crate::link::elf::names::Names;

pub(crate) type Header = FileHeader64<LittleEndian>;
pub(crate) type SectionHeader = SectionHeader64<LittleEndian>;
pub(crate) type ElfSymbol = Sym64<LittleEndian>;
pub(crate) type Rela = Rela64<LittleEndian>;
pub(crate) const LE: LittleEndian = LittleEndian;

/// An object whose headers have been checked.
pub(crate) struct ElfObject<'a> {
    pub(crate) name: &'a str,
    pub(crate) bytes: &'a [u8],
    pub(crate) sections: SectionTable<'a, Header>,
    pub(crate) symbols: Symbols<'a>,
    /// The names of symbols.
    names: Option<Names<'a>>,
    /// The names of sections.
    section_names: Option<Names<'a>>,
    /// The names are so few, or so short, that they cannot add up to more than may be read: none has to be counted.
    has_few_names: bool,
    /// Bytes of names that may still be read.
    names_left: Cell<u64>,
}

/// A symbol table.
pub(crate) struct Symbols<'a> {
    /// All of them, the null symbol first.
    pub(crate) all: &'a [ElfSymbol],
    /// Numbers of sections that are too large to stand in the symbols themselves, if there are any.
    extended: &'a [U32<LittleEndian>],
    strings: StringTable<'a>,
    /// The first that is not local; as many as there are, if all of them are. Behind it there are no local ones, as the gABI has
    /// it, but nobody relies on that.
    first_global: usize,
}

impl<'a> Symbols<'a> {
    fn of(
        table: &SymbolTable<'a, Header>,
        sections: &SectionTable<'a, Header>,
        bytes: &'a [u8],
    ) -> object::read::Result<Symbols<'a>> {
        let extended = match table.shndx_section() {
            object::SectionIndex(0) => &[],
            index => sections.section(index)?.data_as_array(LE, bytes)?,
        };
        Ok(Symbols::new(table.symbols(), extended, table.strings()))
    }

    fn new(all: &'a [ElfSymbol], extended: &'a [U32<LittleEndian>], strings: StringTable<'a>) -> Symbols<'a> {
        let first_global = all.iter().position(|symbol| symbol.st_bind().0 != st::BIND_LOCAL).unwrap_or(all.len());
        Symbols { all, extended, strings, first_global }
    }

    /// The section that a symbol is in, if it is in one.
    pub(crate) fn section(&self, symbol: &ElfSymbol, index: usize) -> Result<Option<usize>, &'static str> {
        match symbol.st_shndx(LE).0 {
            shn::EXTENDED => {
                let section = self.extended.get(index).ok_or("Missing ELF symbol extended index")?;
                Ok(Some(section.get(LE) as usize).filter(|section| *section != 0))
            }
            shn::UNDEF | shn::RESERVED.. => Ok(None),
            section => Ok(Some(section.into())),
        }
    }
}

impl<'a> ElfObject<'a> {
    pub(crate) fn open(name: &'a str, bytes: &'a [u8]) -> Result<ElfObject<'a>, Error> {
        let fault = |fault| Error::from(ErrorKind::Link { object: name.to_string(), fault });
        let not_an_object = |problem: &str| fault(LinkFault::NotAnObject(problem.to_string()));
        if bytes.get(..4) != Some(b"\x7fELF") {
            return Err(not_an_object(&what_else(bytes)));
        }
        if bytes.get(4) != Some(&2) || bytes.get(5) != Some(&1) {
            return Err(not_an_object("it is not 64-bit little-endian"));
        }
        if bytes.len() >= u32::MAX as usize {
            return Err(not_an_object("it is larger than 4 GiB"));
        }
        let header = Header::parse(bytes).map_err(|error| not_an_object(&error.to_string()))?;
        let machine = header.e_machine(LE).0;
        if machine != EM_X86_64 {
            return Err(fault(LinkFault::WrongArchitecture { found: machine_name(machine), expected: "x86-64 (62)" }));
        }
        if header.e_type(LE).0 != ET_REL {
            return Err(not_an_object(&format!(
                "e_type is {}, and only relocatable files (1) are linked",
                header.e_type(LE).0
            )));
        }
        let malformed = |error: object::read::Error| fault(LinkFault::Malformed(error.to_string()));
        let sections = header.sections(LE, bytes).map_err(malformed)?;
        let table = sections.symbols(LE, bytes, object::elf::SHT_SYMTAB).map_err(malformed)?;
        let names_of = |index| range_of(&sections, index, bytes).map(|range| Names::new(bytes, range));
        let names = names_of(table.string_section());
        let symbols = Symbols::of(&table, &sections, bytes).map_err(malformed)?;
        let section_names = header.shstrndx(LE, bytes).ok().map(|index| object::SectionIndex(index as usize));
        let section_names = section_names.and_then(names_of);
        // A name is no longer than its table.
        let all_of = |count: usize, names: &Option<Names>| count as u64 * names.as_ref().map_or(0, Names::len) as u64;
        let most = all_of(symbols.all.len(), &names).saturating_add(all_of(sections.len(), &section_names));
        let names_left = NAMES_PER_BYTE * bytes.len() as u64;
        let name_count = (symbols.all.len() + sections.len()) as u64;
        let has_few_names = most <= names_left || {
            let longest = (names_left / name_count) as usize;
            [&names, &section_names].into_iter().flatten().all(|names| names.are_within(longest))
        };
        let names_left = Cell::new(names_left);
        Ok(ElfObject { name, bytes, sections, symbols, names, section_names, has_few_names, names_left })
    }

    pub(crate) fn fault(&self, fault: LinkFault) -> Error {
        ErrorKind::Link { object: self.name.to_string(), fault }.into()
    }

    pub(crate) fn malformed(&self, problem: impl ToString) -> Error {
        self.fault(LinkFault::Malformed(problem.to_string()))
    }

    pub(crate) fn unsupported(&self, what: &str, section: &str, offset: u64, symbol: &str) -> Error {
        self.fault(LinkFault::Unsupported {
            what: what.to_string(),
            section: section.to_string(),
            offset,
            symbol: symbol.to_string(),
        })
    }

    /// A section's name, which may not be text.
    pub(crate) fn section_name_bytes(&self, section: &SectionHeader) -> Result<&'a [u8], Error> {
        self.sections.section_name(LE, section).map_err(|error| self.malformed(error))
    }

    /// As [`section_name_bytes`](Self::section_name_bytes), and what else may stand behind it: for a look at how it begins.
    #[inline]
    pub(crate) fn section_name_onwards(&self, section: &SectionHeader) -> Result<&'a [u8], Error> {
        let plain = self.section_names.as_ref().and_then(|names| names.onwards(section.sh_name.get(LE)));
        plain.map_or_else(|| self.section_name_bytes(section), Ok)
    }

    /// Where in the object a section's name begins, and what stands from there on, if there is a name without doubt, and no
    /// need to count it.
    pub(crate) fn plain_section_name(&self, section: &SectionHeader) -> Option<(u32, &'a [u8])> {
        let names = self.section_names.as_ref().filter(|_| self.has_few_names)?;
        let at = section.sh_name.get(LE);
        let onwards = names.onwards(at)?;
        Some((names.start() + at, onwards))
    }

    pub(crate) fn section_name(&self, section: &SectionHeader) -> Result<&'a str, Error> {
        let name = self.section_name_bytes(section)?;
        self.count_name(name)?;
        std::str::from_utf8(name).map_err(|_| self.malformed("a section's name is not UTF-8"))
    }

    pub(crate) fn symbol_name(&self, symbol: &ElfSymbol) -> Result<&'a str, Error> {
        if let Some(name) = self.names.as_ref().and_then(|names| names.text_at(symbol.st_name(LE))) {
            return self.count_name(name.as_bytes()).map(|()| name);
        }
        let name = symbol.name(LE, self.symbols.strings).map_err(|error| self.malformed(error))?;
        self.count_name(name)?;
        std::str::from_utf8(name).map_err(|_| self.malformed("a symbol's name is not UTF-8"))
    }

    /// A symbol's name, if there is one without doubt, and no need to count it: it is text.
    #[inline]
    pub(crate) fn plain_symbol_name(&self, symbol: &ElfSymbol) -> Option<&'a [u8]> {
        let names = self.names.as_ref().filter(|_| self.has_few_names)?;
        ahead_of_null(names.onwards(symbol.st_name(LE))?)
    }

    /// Where in the object names of symbols may begin such that there is a name without doubt, and no need to count it.
    pub(crate) fn plain_names(&self) -> Range<u32> {
        let names = self.names.as_ref().filter(|names| self.has_few_names && names.is_plain());
        names.map_or(0..0, |names| names.start()..names.start() + names.len() as u32)
    }

    /// Where all names of symbols stand in the object, if there are any.
    pub(crate) fn names_start(&self) -> Option<u32> {
        self.names.as_ref().map(Names::start)
    }

    /// All names of symbols, if all of it is text.
    pub(crate) fn names_text(&self) -> Option<&'a str> {
        self.names.as_ref().and_then(Names::text)
    }

    /// Names may share their bytes, and linkers make them: a long one with many symbols would be the square of the object.
    fn count_name(&self, name: &[u8]) -> Result<(), Error> {
        if self.has_few_names {
            return Ok(());
        }
        let left = self.names_left.get().checked_sub(name.len() as u64);
        self.names_left.set(left.ok_or_else(|| {
            self.malformed(format!("its names overlap: they are more than {NAMES_PER_BYTE} times its size"))
        })?);
        Ok(())
    }
}

/// What bytes are that are not ELF.
fn what_else(bytes: &[u8]) -> String {
    let found = &bytes[..bytes.len().min(4)];
    let known = match found {
        b"BC\xc0\xde" | [0xde, 0xc0, 0x17, 0x0b] => "it is LLVM bitcode, which has to be compiled first: ",
        b"!<ar" | b"!<th" => "it is an archive: ",
        _ => "",
    };
    format!("{known}it begins with {found:02x?}, not with \\x7fELF")
}

/// Where a section stands in the file.
fn range_of(sections: &SectionTable<'_, Header>, index: object::SectionIndex, bytes: &[u8]) -> Option<Range<usize>> {
    let (start, size) = sections.section(index).ok()?.file_range(LE)?;
    let end = start.checked_add(size).filter(|end| *end <= bytes.len() as u64)?;
    Some(start as usize..end as usize)
}

/// Bytes of names that are read for each byte of the object, at most. Names that share nothing are less than one.
const NAMES_PER_BYTE: u64 = 64;
pub(crate) const EM_X86_64: u16 = 62;
pub(crate) const ET_REL: u16 = 1;

fn machine_name(machine: u16) -> String {
    let name = match machine {
        3 => "i386",
        8 => "MIPS",
        20 => "PowerPC",
        21 => "PowerPC64",
        22 => "S390",
        40 => "ARM",
        183 => "AArch64",
        243 => "RISC-V",
        258 => "LoongArch",
        _ => return machine.to_string(),
    };
    format!("{name} ({machine})")
}

/// Symbol types and bindings of the gABI and of GNU.
pub(crate) mod st {
    pub(crate) const TYPE_SECTION: u8 = 3;
    pub(crate) const TYPE_FILE: u8 = 4;
    pub(crate) const TYPE_FUNC: u8 = 2;
    pub(crate) const TYPE_TLS: u8 = 6;
    pub(crate) const TYPE_GNU_IFUNC: u8 = 10;
    pub(crate) const BIND_LOCAL: u8 = 0;
    pub(crate) const BIND_WEAK: u8 = 2;
    pub(crate) const BIND_GNU_UNIQUE: u8 = 10;
    pub(crate) const VISIBILITY_DEFAULT: u8 = 0;
    pub(crate) const VISIBILITY_INTERNAL: u8 = 1;
    pub(crate) const VISIBILITY_HIDDEN: u8 = 2;
}

/// Special section indices.
pub(crate) mod shn {
    pub(crate) const UNDEF: u16 = 0;
    /// From here on no section is meant.
    pub(crate) const RESERVED: u16 = 0xff00;
    pub(crate) const ABS: u16 = 0xfff1;
    pub(crate) const COMMON: u16 = 0xfff2;
    /// Its number stands in a table of its own.
    pub(crate) const EXTENDED: u16 = 0xffff;
}

/// Section types.
pub(crate) mod sht {
    pub(crate) const PROGBITS: u32 = 1;
    pub(crate) const SYMTAB: u32 = 2;
    pub(crate) const RELA: u32 = 4;
    pub(crate) const NOTE: u32 = 7;
    pub(crate) const NOBITS: u32 = 8;
    pub(crate) const REL: u32 = 9;
    pub(crate) const INIT_ARRAY: u32 = 14;
    pub(crate) const FINI_ARRAY: u32 = 15;
    pub(crate) const PREINIT_ARRAY: u32 = 16;
    pub(crate) const GROUP: u32 = 17;
    pub(crate) const CREL: u32 = 0x4000_0014;
    pub(crate) const X86_64_UNWIND: u32 = 0x7000_0001;
}
