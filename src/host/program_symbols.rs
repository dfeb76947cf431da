//! [`program_symbols`]: reads the symbol table of the running program's file, and computes the address of each symbol.
//!
//! The loader's symbol table has only the symbols that the program exports. The `.symtab` of the file has all of them,
//! unless the program was stripped. Only the headers, the symbol table and its string table are read, because programs
//! are large.

use std::fmt::Display;
use std::marker::PhantomData;
use std::ops::Range;

use object::LittleEndian as LE;
use object::elf::{FileHeader64, PT_LOAD, ProgramHeader64, SHT_SYMTAB, SectionHeader64, Sym64};
use object::pod::{Pod, slice_from_bytes};
use object::read::StringTable;
use object::read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _, Sym as _};

use crate::base::{ExecutorAddr, sort_by_order};
use crate::error::{Error, ErrorKind};
use crate::os::{self, InputFile};

/// A global symbol of the program.
#[derive(Debug)]
pub(crate) struct ProgramSymbol {
    pub(crate) name: Box<str>,
    pub(crate) address: ExecutorAddr,
    pub(crate) is_function: bool,
}

/// All global and weak functions and variables of the program, sorted by name. Thread-local variables are not included,
/// because only compiled code knows their addresses; nor are indirect functions, which are chosen at run time.
///
/// # Errors
/// The file cannot be read, is no ELF file, or has no symbol table.
pub(super) fn program_symbols() -> Result<Vec<ProgramSymbol>, Error> {
    // This path opens the running file, even if another file has its name now.
    let file = InputFile::open(PROGRAM)?;
    let mut symbols = read(&file, os::program_range().start)?;
    if symbols.is_empty() {
        return Err(fault("the program has no symbol table: it was stripped"));
    }
    sort_by_order(&mut symbols, |a, b| a.name.cmp(&b.name));
    Ok(symbols)
}

/// Reads the symbols. `start` is the address of the first segment.
fn read(file: &InputFile, start: u64) -> Result<Vec<ProgramSymbol>, Error> {
    let Some(tables) = Tables::read(file, start)? else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for symbol in tables.symbols.entries()? {
        let is_function = symbol.st_type().0 == FUNCTION;
        let is_global =
            matches!(symbol.st_bind().0, GLOBAL | WEAK) && !matches!(symbol.st_shndx(LE).0, UNDEFINED | ABSOLUTE);
        let has_address = is_function || matches!(symbol.st_type().0, UNTYPED | VARIABLE);
        let name = tables.name(symbol)?;
        if is_global && has_address && !name.is_empty() {
            let address = ExecutorAddr::new(symbol.st_value(LE).wrapping_add(tables.load_bias));
            found.push(ProgramSymbol { name: name.into(), address, is_function });
        }
    }
    Ok(found)
}

/// The tables of the program's file.
pub(super) struct Tables {
    /// What is added to an address of the file.
    pub(super) load_bias: u64,
    pub(super) symbols: Table<Sym64<LE>>,
    names: Vec<u8>,
}

impl Tables {
    /// Reads the tables. `start` is the address of the first segment. `None` if the file has no symbol table.
    pub(super) fn read(file: &InputFile, start: u64) -> Result<Option<Tables>, Error> {
        let header = file.read_at(0..size_of::<FileHeader64<LE>>() as u64)?;
        let header = FileHeader64::<LE>::parse(&*header).map_err(fault)?;
        let segments = Table::<ProgramHeader64<LE>>::read(file, header.e_phoff(LE), header.e_phnum(LE).into())?;
        let segments = segments.entries()?.iter().filter(|segment| segment.p_type(LE) == PT_LOAD);
        let first = segments.map(|segment| segment.p_vaddr(LE)).min().unwrap_or(0);
        let load_bias = start.wrapping_sub(first);

        let sections_at = header.e_shoff(LE);
        if sections_at == 0 {
            return Ok(None); // no section headers
        }
        let count = match u64::from(header.e_shnum(LE)) {
            // Zero: the number does not fit into the header, and is in the size of the first section.
            0 => Table::<SectionHeader64<LE>>::read(file, sections_at, 1)?
                .entries()?
                .first()
                .map_or(0, |first| first.sh_size(LE)),
            count => count,
        };
        let sections = Table::<SectionHeader64<LE>>::read(file, sections_at, count)?;
        let sections = sections.entries()?;
        let Some(symtab) = sections.iter().find(|section| section.sh_type(LE) == SHT_SYMTAB) else { return Ok(None) };
        let strtab = sections.get(symtab.sh_link(LE) as usize).ok_or_else(|| fault("its symbol table has no names"))?;
        let count = symtab.sh_size(LE) / size_of::<Sym64<LE>>() as u64;
        let symbols = Table::<Sym64<LE>>::read(file, symtab.sh_offset(LE), count)?;
        let names = file.read_at(range(strtab.sh_offset(LE), strtab.sh_size(LE))?)?;
        Ok(Some(Tables { load_bias, symbols, names }))
    }

    /// The name of a symbol. Empty if it is no text.
    pub(super) fn name(&self, symbol: &Sym64<LE>) -> Result<&str, Error> {
        let names = StringTable::new(&*self.names, 0, self.names.len() as u64);
        let name = symbol.name(LE, names).map_err(fault)?;
        Ok(std::str::from_utf8(name).unwrap_or_default())
    }
}

/// An array of `T` that was read from the file.
pub(super) struct Table<T> {
    bytes: Vec<u8>,
    count: usize,
    of: PhantomData<T>,
}

impl<T: Pod> Table<T> {
    fn read(file: &InputFile, offset: u64, count: u64) -> Result<Table<T>, Error> {
        let size = count.checked_mul(size_of::<T>() as u64).ok_or_else(|| fault("a table in it is too large"))?;
        let bytes = file.read_at(range(offset, size)?)?;
        Ok(Table { bytes, count: count as usize, of: PhantomData })
    }

    pub(super) fn entries(&self) -> Result<&[T], Error> {
        let entries = slice_from_bytes(&self.bytes, self.count);
        entries.map(|(entries, _)| entries).map_err(|()| fault("a table in it is incomplete"))
    }
}

fn range(offset: u64, size: u64) -> Result<Range<u64>, Error> {
    let end = offset.checked_add(size).ok_or_else(|| fault("a table in it is too large"))?;
    Ok(offset..end)
}

pub(super) fn fault(problem: impl Display) -> Error {
    ErrorKind::File { path: PROGRAM.to_string(), problem: problem.to_string() }.into()
}

pub(super) const PROGRAM: &str = "/proc/self/exe";
// Types, bindings and section indices of symbols, with their numbers in the gABI.
const UNTYPED: u8 = 0;
pub(super) const VARIABLE: u8 = 1;
pub(super) const FUNCTION: u8 = 2;
pub(super) const GLOBAL: u8 = 1;
pub(super) const WEAK: u8 = 2;
pub(super) const UNDEFINED: u16 = 0;
pub(super) const ABSOLUTE: u16 = 0xfff1;
