//! ELF64 relocatable objects.
//!
//! | file | reads |
//! |---|---|
//! | `interface.rs` | what an object defines and needs, for the symbol table of a dylib |
//! | `data.rs` | its global variables, for patching |
//! | `machine.rs` | the machine that it is for |
//! | `low_addresses.rs` | whether it has to be below 2 GiB |
//! | `groups.rs` | its COMDAT groups, as far as the interface needs them |
//! | `outline.rs` | the positions of its tables, kept between the interface and the link |
//! | `names.rs` | its string tables |
//! | `compact.rs` | compact relocations, as relocations of the usual form |
//! | `read.rs`, `relocations.rs`, `properties.rs` | all of it, into a [`LinkGraph`](crate::link::LinkGraph) |
//!
//! `writer.rs` writes a relocatable file: for debuggers, and for code that is given without an object.
//!
//! The `object` crate parses the headers. This module checks everything that a malformed object may state wrongly, so
//! the code after it never meets an index or a range that does not exist.

mod compact;
mod data;
mod groups;
mod interface;
#[cfg(feature = "unstable")]
mod low_addresses;
mod machine;
mod names;
mod outline;
mod properties;
mod read;
mod relocations;
mod writer;

pub(crate) use compact::relocations_of;
pub(crate) use data::{ObjectVariable, variables};
pub use interface::{InterfaceSymbol, ObjectInterface, required_names};
pub(crate) use interface::{NamedSection, ScannedInterface, defined_names};
#[cfg(feature = "unstable")]
pub use low_addresses::has_low_addresses;
pub(crate) use machine::{check_machine, machine_of};
pub(crate) use outline::Outline;
pub(crate) use read::{read_all, read_graph};
pub(super) use writer::{E_SHOFF, EHDR_SIZE, HeaderFields, RelocatableFile, SHDR_SIZE, SYMBOL_SIZE, SymbolFields};

use std::cell::Cell;
use std::ops::Range;

use object::elf::{FileHeader64, Rela64, SectionHeader64, Sym64};
use object::read::StringTable;
use object::read::elf::{FileHeader, SectionHeader as _, SectionTable, Sym as _, SymbolTable};
use object::{LittleEndian, U32};

use crate::arch::Arch;
use crate::error::{Error, ErrorKind, LinkFault};
use crate::link::elf::names::NameTable;
use crate::link::graph::SymbolIndex;

pub(crate) type Header = FileHeader64<LittleEndian>;
pub(crate) type SectionHeader = SectionHeader64<LittleEndian>;
pub(crate) type ElfSymbol = Sym64<LittleEndian>;
pub(crate) type Rela = Rela64<LittleEndian>;
pub(crate) const LE: LittleEndian = LittleEndian;

/// A global definition: its name, which is UTF-8, its index, and its entry in the symbol table.
type Defined<'a> = (&'a [u8], SymbolIndex, &'a ElfSymbol);

/// An object whose headers have been checked.
pub(crate) struct ElfObject<'a> {
    pub(crate) name: &'a str,
    pub(crate) bytes: &'a [u8],
    pub(crate) arch: Arch,
    pub(crate) sections: SectionTable<'a, Header>,
    pub(crate) symbols: Symbols<'a>,
    /// The string table of the symbols (`.strtab`).
    names: Option<NameTable<'a>>,
    /// The string table of the sections (`.shstrtab`).
    section_names: Option<NameTable<'a>>,
    /// Whether the names cannot add up to more than [`NAMES_PER_BYTE`] allows, so that none must be counted.
    has_bounded_names: bool,
    /// Bytes of names that may still be read, if they must be counted.
    name_budget: Cell<u64>,
}

/// A symbol table.
pub(crate) struct Symbols<'a> {
    /// All symbols, the null symbol first.
    pub(crate) all: &'a [ElfSymbol],
    /// The section indices that do not fit into `st_shndx` (`SHT_SYMTAB_SHNDX`). Empty if the object has no such table.
    extended: &'a [U32<LittleEndian>],
    strings: StringTable<'a>,
    /// The index of the first symbol that is not local, or the number of symbols if all are. The gABI puts no local
    /// symbol after it; the code does not rely on that.
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

    /// The index of the section that a symbol is defined in. `None` for undefined, absolute and common symbols.
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
    /// Checks the headers of an object.
    ///
    /// # Errors
    /// [`LinkFault::NotAnObject`], [`LinkFault::WrongArchitecture`] or [`LinkFault::Malformed`].
    pub(crate) fn open(name: &'a str, bytes: &'a [u8]) -> Result<ElfObject<'a>, Error> {
        let fault = |fault| Error::from(ErrorKind::Link { object: name.to_string(), fault });
        let not_an_object = |problem: &str| fault(LinkFault::NotAnObject(problem.to_string()));
        if bytes.get(..4) != Some(b"\x7fELF") {
            return Err(not_an_object(&describe_magic(bytes)));
        }
        if bytes.get(4) != Some(&2) || bytes.get(5) != Some(&1) {
            return Err(not_an_object("it is not 64-bit little-endian"));
        }
        if bytes.len() >= u32::MAX as usize {
            return Err(not_an_object("it is larger than 4 GiB"));
        }
        let header = Header::parse(bytes).map_err(|error| not_an_object(&error.to_string()))?;
        let machine = header.e_machine(LE).0;
        let Some(arch) = Arch::of_machine(machine) else {
            let expected = Arch::NATIVE.name();
            return Err(fault(LinkFault::WrongArchitecture { found: machine_name(machine), expected }));
        };
        if header.e_type(LE).0 != ET_REL {
            return Err(not_an_object(&format!(
                "e_type is {}, and only relocatable files (1) are linked",
                header.e_type(LE).0
            )));
        }
        let malformed = |error: object::read::Error| fault(LinkFault::Malformed(error.to_string()));
        let sections = header.sections(LE, bytes).map_err(malformed)?;
        let table = sections.symbols(LE, bytes, object::elf::SHT_SYMTAB).map_err(malformed)?;
        let names_of = |index| range_of(&sections, index, bytes).map(|range| NameTable::new(bytes, range));
        let names = names_of(table.string_section());
        let symbols = Symbols::of(&table, &sections, bytes).map_err(malformed)?;
        let section_names = header.shstrndx(LE, bytes).ok().map(|index| object::SectionIndex(index as usize));
        let section_names = section_names.and_then(names_of);
        // No name is longer than its table. So the number of names times the size of the table bounds the sum. If that
        // bound is too high, a bound by the longest name may be low enough.
        let bound_of =
            |count: usize, names: &Option<NameTable>| count as u64 * names.as_ref().map_or(0, NameTable::len) as u64;
        let upper_bound = bound_of(symbols.all.len(), &names).saturating_add(bound_of(sections.len(), &section_names));
        let name_budget = NAMES_PER_BYTE * bytes.len() as u64;
        let name_count = (symbols.all.len() + sections.len()) as u64;
        let has_bounded_names = upper_bound <= name_budget || {
            let longest = (name_budget / name_count) as usize;
            [&names, &section_names].into_iter().flatten().all(|names| names.are_at_most(longest))
        };
        let name_budget = Cell::new(name_budget);
        Ok(ElfObject { name, bytes, arch, sections, symbols, names, section_names, has_bounded_names, name_budget })
    }

    /// An error of this object.
    pub(crate) fn fault(&self, fault: LinkFault) -> Error {
        ErrorKind::Link { object: self.name.to_string(), fault }.into()
    }

    /// The error for a malformed object.
    pub(crate) fn malformed(&self, problem: impl ToString) -> Error {
        self.fault(LinkFault::Malformed(problem.to_string()))
    }

    /// The error for a construct that is not supported. `offset` is in bytes, in the section.
    pub(crate) fn unsupported(&self, what: &str, section: &str, offset: u64, symbol: &str) -> Error {
        self.fault(LinkFault::Unsupported {
            what: what.to_string(),
            section: section.to_string(),
            offset,
            symbol: symbol.to_string(),
        })
    }

    /// A section's name, which may not be UTF-8.
    fn section_name_bytes(&self, section: &SectionHeader) -> Result<&'a [u8], Error> {
        self.sections.section_name(LE, section).map_err(|error| self.malformed(error))
    }

    /// The string table from the start of a section's name on. For a test of the first bytes of the name.
    ///
    /// Does not search for the end of the name, because nothing counts such a search: for many sections with one long
    /// name it would take quadratic time.
    #[inline]
    pub(crate) fn bytes_from_section_name(&self, section: &SectionHeader) -> Result<&'a [u8], Error> {
        let from_name = self.section_names.as_ref().and_then(|names| names.bytes_from(section.sh_name.get(LE)));
        from_name.map_or_else(|| self.section_name_bytes(section), Ok)
    }

    /// The fast path for a section's name: its offset in the object, and the string table from the name on. `None` if
    /// the name needs checks or must be counted.
    pub(crate) fn plain_section_name(&self, section: &SectionHeader) -> Option<(u32, &'a [u8])> {
        let names = self.section_names.as_ref().filter(|_| self.has_bounded_names)?;
        let at = section.sh_name.get(LE);
        let suffix = names.suffix(at)?;
        Some((names.start() + at, suffix))
    }

    /// A section's name as text.
    ///
    /// # Errors
    /// If it is not in its table or not UTF-8, or if the names of the object overlap too much.
    pub(crate) fn section_name(&self, section: &SectionHeader) -> Result<&'a str, Error> {
        let name = self.section_name_bytes(section)?;
        self.count_name(name)?;
        std::str::from_utf8(name).map_err(|_| self.malformed("a section's name is not UTF-8"))
    }

    /// Whether a section is part of the running program. No linker loads a section with `SHF_EXCLUDE`; the types of tables
    /// that only a linker reads have no place in memory; and a linker reads the properties of an object and writes its
    /// own.
    pub(crate) fn is_loaded(&self, section: &SectionHeader) -> bool {
        let kind = section.sh_type(LE).0;
        section.sh_flags(LE).0 & (shf::ALLOC | shf::EXCLUDE) == shf::ALLOC
            && !matches!(kind, sht::RELA | sht::REL | sht::CREL | sht::GROUP)
            && !(kind == sht::NOTE && self.bytes_from_section_name(section).is_ok_and(is_properties))
    }

    /// A symbol's name as text.
    ///
    /// # Errors
    /// As [`section_name`](Self::section_name).
    pub(crate) fn symbol_name(&self, symbol: &ElfSymbol) -> Result<&'a str, Error> {
        if let Some(name) = self.names.as_ref().and_then(|names| names.text_at(symbol.st_name(LE))) {
            return self.count_name(name.as_bytes()).map(|()| name);
        }
        let name = symbol.name(LE, self.symbols.strings).map_err(|error| self.malformed(error))?;
        self.count_name(name)?;
        std::str::from_utf8(name).map_err(|_| self.malformed("a symbol's name is not UTF-8"))
    }

    /// The symbols' string table, for the fast path: an ASCII name begins at every offset. Empty if names need checks or
    /// must be counted.
    pub(crate) fn plain_names_table(&self) -> &'a [u8] {
        let names = self.names.as_ref().filter(|_| self.has_bounded_names);
        names.and_then(|names| names.suffix(0)).unwrap_or_default()
    }

    /// The range of offsets in the object at which a symbol's name may begin without further checks. Empty if names
    /// need checks or must be counted.
    pub(crate) fn plain_names(&self) -> Range<u32> {
        let names = self.names.as_ref().filter(|names| self.has_bounded_names && names.is_plain());
        names.map_or(0..0, |names| names.start()..names.start() + names.len() as u32)
    }

    /// The offset in the object of the symbols' string table.
    pub(crate) fn names_start(&self) -> Option<u32> {
        self.names.as_ref().map(NameTable::start)
    }

    /// Whether a symbol's name may have a version (`name@VERSION`, `name@@VERSION`).
    pub(crate) fn may_have_versions(&self) -> bool {
        self.names.as_ref().is_some_and(|names| names.has_byte(b'@'))
    }

    /// The symbols' string table, if all of it is UTF-8.
    pub(crate) fn names_text(&self) -> Option<&'a str> {
        self.names.as_ref().and_then(NameTable::text)
    }

    /// Subtracts a name from the budget. Names may share bytes, and linkers write such tables. Many symbols with one
    /// long name would otherwise take quadratic time.
    fn count_name(&self, name: &[u8]) -> Result<(), Error> {
        if self.has_bounded_names {
            return Ok(());
        }
        let rest = self.name_budget.get().checked_sub(name.len() as u64);
        self.name_budget.set(rest.ok_or_else(|| {
            self.malformed(format!("its names overlap: they are more than {NAMES_PER_BYTE} times its size"))
        })?);
        Ok(())
    }
}

/// The string table of the section names, for code that has no [`ElfObject`]. Empty if the object has none.
pub(crate) fn section_name_table<'a>(
    header: &Header,
    sections: &SectionTable<'a, Header>,
    bytes: &'a [u8],
) -> &'a [u8] {
    let index = header.shstrndx(LE, bytes).ok().map(|index| object::SectionIndex(index as usize));
    index.and_then(|index| sections.section(index).ok()?.data(LE, bytes).ok()).unwrap_or_default()
}

/// Whether a section's name, which starts here, is the one for properties.
pub(crate) fn is_properties(from_name: &[u8]) -> bool {
    from_name.strip_prefix(b".note.gnu.property").is_some_and(|rest| matches!(rest.first(), None | Some(0)))
}

/// Describes bytes that are not ELF, for an error.
fn describe_magic(bytes: &[u8]) -> String {
    let found = &bytes[..bytes.len().min(4)];
    let known = match found {
        b"BC\xc0\xde" | [0xde, 0xc0, 0x17, 0x0b] => "it is LLVM bitcode, which has to be compiled first: ",
        b"!<ar" | b"!<th" => "it is an archive: ",
        _ => "",
    };
    format!("{known}it begins with {found:02x?}, not with \\x7fELF")
}

/// The range of a section's bytes in the file.
fn range_of(sections: &SectionTable<'_, Header>, index: object::SectionIndex, bytes: &[u8]) -> Option<Range<usize>> {
    let (start, size) = sections.section(index).ok()?.file_range(LE)?;
    let end = start.checked_add(size).filter(|end| *end <= bytes.len() as u64)?;
    Some(start as usize..end as usize)
}

/// The most bytes of names that are read, per byte of the object. Names that share no bytes take less than one.
const NAMES_PER_BYTE: u64 = 64;
pub(crate) const ET_REL: u16 = 1;

fn machine_name(machine: u16) -> String {
    let name = match machine {
        3 => "i386",
        8 => "MIPS",
        20 => "PowerPC",
        21 => "PowerPC64",
        22 => "S390",
        40 => "ARM",
        62 => "x86-64",
        183 => "AArch64",
        243 => "RISC-V",
        258 => "LoongArch",
        _ => return machine.to_string(),
    };
    format!("{name} ({machine})")
}

/// Symbol types, bindings and visibilities of the gABI and of GNU.
pub(crate) mod st {
    pub(crate) const TYPE_NOTYPE: u8 = 0;
    pub(crate) const TYPE_OBJECT: u8 = 1;
    pub(crate) const TYPE_SECTION: u8 = 3;
    pub(crate) const TYPE_FILE: u8 = 4;
    pub(crate) const TYPE_FUNC: u8 = 2;
    pub(crate) const TYPE_TLS: u8 = 6;
    pub(crate) const TYPE_GNU_IFUNC: u8 = 10;
    pub(crate) const BIND_LOCAL: u8 = 0;
    #[cfg(feature = "reload")]
    pub(crate) const BIND_GLOBAL: u8 = 1;
    pub(crate) const BIND_WEAK: u8 = 2;
    pub(crate) const BIND_GNU_UNIQUE: u8 = 10;
    pub(crate) const VISIBILITY_DEFAULT: u8 = 0;
    pub(crate) const VISIBILITY_INTERNAL: u8 = 1;
    pub(crate) const VISIBILITY_HIDDEN: u8 = 2;
}

/// Special section indices (gABI, "Special Section Indexes").
pub(crate) mod shn {
    pub(crate) const UNDEF: u16 = 0;
    /// The first index that is not a section (`SHN_LORESERVE`).
    pub(crate) const RESERVED: u16 = 0xff00;
    pub(crate) const ABS: u16 = 0xfff1;
    pub(crate) const COMMON: u16 = 0xfff2;
    /// The section index is in a table of its own (`SHN_XINDEX`).
    pub(crate) const EXTENDED: u16 = 0xffff;
}

/// Section flags (`SHF_*`) of the gABI and of GNU.
pub(crate) mod shf {
    pub(crate) const WRITE: u64 = 1;
    pub(crate) const ALLOC: u64 = 2;
    pub(crate) const EXECINSTR: u64 = 4;
    pub(crate) const LINK_ORDER: u64 = 0x80;
    pub(crate) const OS_NONCONFORMING: u64 = 0x100;
    /// The section is a member of a group.
    pub(crate) const GROUP: u64 = 0x200;
    pub(crate) const TLS: u64 = 0x400;
    pub(crate) const COMPRESSED: u64 = 0x800;
    pub(crate) const GNU_RETAIN: u64 = 0x20_0000;
    pub(crate) const EXCLUDE: u64 = 0x8000_0000;
}

/// Section types of the gABI and LLVM (`CREL`).
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
}
