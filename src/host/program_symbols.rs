//! The symbols that the running program's own file names, and where they are.

use std::path::Path;

use object::LittleEndian as LE;
use object::elf::{FileHeader64, PT_LOAD, SHT_SYMTAB};
use object::read::elf::{FileHeader as _, ProgramHeader as _, Sym as _};

use crate::base::ExecutorAddr;
use crate::error::{Error, ErrorKind};
use crate::os::{self, MappedFile};

/// A global symbol of the program.
#[derive(Debug)]
pub(crate) struct ProgramSymbol {
    pub(crate) name: Box<str>,
    pub(crate) address: ExecutorAddr,
    pub(crate) is_function: bool,
}

/// All functions and variables that the program's symbol table names for other object files, sorted by name. Without
/// thread-local ones, whose places only the compiler's code knows, and those that are chosen when the program runs.
///
/// # Errors
/// When the file cannot be mapped, is no ELF file, or has no symbol table.
pub(crate) fn program_symbols() -> Result<Vec<ProgramSymbol>, Error> {
    // The file that runs, even if another has its name by now.
    let file = MappedFile::open(Path::new(PROGRAM))?;
    let fail = |problem: String| Error::from(ErrorKind::File { path: PROGRAM.to_string(), problem });
    let mut symbols = read(file.as_ref(), os::program_range().start).map_err(|error| fail(error.to_string()))?;
    if symbols.is_empty() {
        return Err(fail("the program has no symbol table: it was stripped".to_string()));
    }
    symbols.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(symbols)
}

/// `start` is where the first of the program's segments is.
fn read(file: &[u8], start: u64) -> object::Result<Vec<ProgramSymbol>> {
    let header = FileHeader64::<LE>::parse(file)?;
    let segments = header.program_headers(LE, file)?.iter().filter(|segment| segment.p_type(LE) == PT_LOAD);
    let first = segments.map(|segment| segment.p_vaddr(LE)).min().unwrap_or(0);
    let moved_by = start.wrapping_sub(first);
    let table = header.sections(LE, file)?.symbols(LE, file, SHT_SYMTAB)?;
    let mut found = Vec::new();
    for symbol in table.iter() {
        let is_function = symbol.st_type().0 == FUNCTION;
        let is_global =
            matches!(symbol.st_bind().0, GLOBAL | WEAK) && !matches!(symbol.st_shndx(LE).0, UNDEFINED | ABSOLUTE);
        let is_placed = is_function || matches!(symbol.st_type().0, UNTYPED | VARIABLE);
        let name = std::str::from_utf8(table.symbol_name(LE, symbol)?).unwrap_or_default();
        if is_global && is_placed && !name.is_empty() {
            let address = ExecutorAddr::new(symbol.st_value(LE).wrapping_add(moved_by));
            found.push(ProgramSymbol { name: name.into(), address, is_function });
        }
    }
    Ok(found)
}

const PROGRAM: &str = "/proc/self/exe";
/// Types, bindings and sections of symbols, as the gABI numbers them.
const UNTYPED: u8 = 0;
const VARIABLE: u8 = 1;
const FUNCTION: u8 = 2;
const GLOBAL: u8 = 1;
const WEAK: u8 = 2;
const UNDEFINED: u16 = 0;
const ABSOLUTE: u16 = 0xfff1;
