//! [`variables`]: the global variables that an object defines.
//!
//! Patching (`src/jit/patching/variables.rs`) compares the variables of two versions of an object, because both may
//! have to share them.

use object::read::elf::{SectionHeader as _, Sym as _};

use crate::error::Error;
use crate::link::elf::read::has_stem;
use crate::link::elf::{ElfObject, LE, shn, st};

/// A variable of an object with a global name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ObjectVariable<'a> {
    pub(crate) name: &'a str,
    /// Size in bytes.
    pub(crate) size: u64,
    pub(crate) is_thread_local: bool,
}

/// The global variables of an object, in the order of its symbol table: symbols in a writable section, and common
/// symbols.
///
/// Constants are not variables. Neither is data that only relocations write (`.data.rel.ro`, for instance tables of
/// virtual functions), because it belongs to the code.
///
/// # Errors
/// If the bytes are not a relocatable object for x86-64, or if they are malformed.
pub(crate) fn variables<'a>(name: &'a str, bytes: &'a [u8]) -> Result<Vec<ObjectVariable<'a>>, Error> {
    let object = ElfObject::open(name, bytes)?;
    let mut found = Vec::new();
    for (index, symbol) in object.symbols.all.iter().enumerate().skip(1) {
        let (section, kind) = (symbol.st_shndx(LE).0, symbol.st_type().0);
        let is_function = matches!(kind, st::TYPE_FUNC | st::TYPE_GNU_IFUNC);
        if is_function || matches!(section, shn::UNDEF | shn::ABS) || symbol.st_bind().0 == st::BIND_LOCAL {
            continue;
        }
        let is_variable = section == shn::COMMON || {
            let section = object.symbols.section(symbol, index).map_err(|error| object.malformed(error))?;
            let section = section.and_then(|section| object.sections.section(object::SectionIndex(section)).ok());
            match section {
                Some(section) => {
                    let is_writable = section.sh_flags(LE).0 & WRITE != 0;
                    is_writable && !has_stem(object.bytes_from_section_name(section)?, b".data.rel.ro")
                }
                None => false,
            }
        };
        if is_variable {
            let (size, is_thread_local) = (symbol.st_size(LE), kind == st::TYPE_TLS);
            found.push(ObjectVariable { name: object.symbol_name(symbol)?, size, is_thread_local });
        }
    }
    Ok(found)
}

/// `SHF_WRITE`.
const WRITE: u64 = 1;
