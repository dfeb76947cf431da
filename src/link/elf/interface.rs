//! [`ObjectInterface`]: what an object defines, and whether it has initialisers (ORC: `MaterializationUnit::Interface`,
//! `getObjectFileInterface`).
//!
//! The layer reads the interface when an object is added. The materialisation unit promises these symbols. Relocations
//! and contents are not read. [`required_names`] lists the names that an object needs from other objects.
//! [`defined_names`] lists those that it defines, for an archive without a symbol table.

use std::collections::BTreeSet;

use object::read::elf::{SectionHeader as _, Sym as _};
use smallvec::SmallVec;

use crate::base::Name;
use crate::error::{Error, LinkFault};
use crate::link::bounds;
use crate::link::claim::is_private;
use crate::link::elf::groups::{self, LocalGroup};
use crate::link::elf::{Defined, ElfObject, ElfSymbol, LE, Outline, is_loaded, shf, shn, st};
use crate::link::graph::SymbolIndex;
use crate::link::init_fragments;
use crate::link::initializers;
use crate::sync::Arc;

/// What an object defines.
#[derive(Debug, Default)]
#[cfg_attr(not(feature = "unstable"), allow(dead_code))]
pub struct ObjectInterface {
    /// The global definitions that have an address, in the order of the object's symbol table.
    pub symbols: Vec<InterfaceSymbol>,
    /// Whether the object has functions to run before its code is used, or before its code is removed. True also for
    /// `.init` and `.fini` fragments.
    pub has_initializers: bool,
}

/// A global definition of an object.
#[derive(Debug)]
pub struct InterfaceSymbol {
    /// The name.
    pub name: Name,
    /// Its index in the object's symbol table.
    pub index: SymbolIndex,
    /// Whether another definition may replace it: weak (`STB_WEAK`), unique (`STB_GNU_UNIQUE`) or common.
    pub is_weak: bool,
    /// Whether other dylibs see it: its visibility is neither hidden nor internal.
    pub is_exported: bool,
    /// Whether it is a function (`STT_FUNC`, `STT_GNU_IFUNC`).
    pub is_callable: bool,
    /// Whether every thread has its own copy (`STT_TLS`).
    pub is_thread_local: bool,
    /// Whether it is a fixed value (`SHN_ABS`).
    pub is_absolute: bool,
    /// Whether it is a strong definition and the signature of its COMDAT group. Of several such definitions with one
    /// name, the first counts.
    pub is_comdat: bool,
    /// Whether it has an address. If not, it stands for a COMDAT group without a global definition.
    pub has_address: bool,
    /// Whether it is a common symbol (`SHN_COMMON`). Of several common symbols with one name, the largest counts.
    pub is_common: bool,
    /// Size in bytes, as the object states it (`st_size`).
    pub size: u64,
}

impl ObjectInterface {
    /// Reads the interface of an object. `name` is the object's name in errors.
    ///
    /// # Errors
    /// If the bytes are not a relocatable object for x86-64, if they are malformed, or if they hold only intermediate
    /// code (slim LTO).
    #[cfg_attr(not(feature = "unstable"), allow(dead_code))]
    pub fn scan(name: &str, bytes: &[u8]) -> Result<ObjectInterface, Error> {
        let mut symbols = Vec::new();
        let scanned = ObjectInterface::visit(name, bytes, |symbol, remaining| {
            if symbol.has_address {
                symbols.reserve(remaining);
                symbols.push(symbol);
            }
        })?;
        Ok(ObjectInterface { symbols, has_initializers: scanned.has_initializers })
    }

    /// As [`scan`](Self::scan), but passes each definition to `visit`, with the number of definitions from it to the
    /// last.
    pub(crate) fn visit(
        name: &str,
        bytes: &[u8],
        mut visit: impl FnMut(InterfaceSymbol, usize),
    ) -> Result<ScannedInterface, Error> {
        let object = ElfObject::open(name, bytes)?;
        let (has_initializers, named_sections) = scan_sections(&object)?;
        visit_definitions(&object, &mut visit)?;
        Ok(ScannedInterface { has_initializers, named_sections, outline: Outline::of(&object) })
    }
}

/// Passes every global definition to `visit`, with the number of definitions from it to the last.
#[inline(always)] // so that `visit` is inlined into the loop
pub(super) fn visit_definitions(
    object: &ElfObject<'_>,
    visit: &mut impl FnMut(InterfaceSymbol, usize),
) -> Result<(), Error> {
    let mut defined = SmallVec::new();
    let mut comdat = Vec::new();
    definitions(object, &mut defined, &mut comdat)?;
    if !comdat.is_empty() {
        groups::retain_signatures(object, &mut comdat)?;
    }
    let mut text = SharedText::of(object, &defined);
    for (number, (name, index, symbol)) in defined.iter().enumerate() {
        let is_comdat = !comdat.is_empty() && comdat.binary_search(index).is_ok();
        let symbol = InterfaceSymbol { is_comdat, ..interface_symbol(text.next_name(name), *index, symbol) };
        visit(symbol, defined.len() - number);
    }
    for group in groups::local_groups(object, &defined)? {
        visit(group_symbol(&group), 1);
    }
    Ok(())
}

/// The properties of an object besides its definitions.
pub(crate) struct ScannedInterface {
    /// As [`ObjectInterface::has_initializers`].
    pub(crate) has_initializers: bool,
    /// The names of the loaded, non-empty sections that are C identifiers, so that `__start_` and `__stop_` symbols can
    /// name them. Without members of section groups, because another object's copy of the group may count.
    pub(crate) named_sections: Vec<Box<str>>,
    /// For the link, which opens the object again.
    pub(crate) outline: Option<Outline>,
}

/// Whether the object has initialisers, and [`ScannedInterface::named_sections`].
fn scan_sections(object: &ElfObject<'_>) -> Result<(bool, Vec<Box<str>>), Error> {
    let (mut has_initializers, mut named) = (false, BTreeSet::new());
    for section in object.sections.iter().filter(|section| section.sh_flags(LE).0 & shf::ALLOC != 0) {
        let from_name = object.bytes_from_section_name(section)?;
        if initializers::may_list(from_name) {
            let name = object.section_name(section)?.as_bytes();
            has_initializers |= initializers::classify(name).is_some() || init_fragments::has_fragment(name);
        } else if from_name.first() != Some(&b'.')
            && section.sh_flags(LE).0 & shf::GROUP == 0
            && section.sh_size(LE) > 0
        {
            let name = object.section_name(section)?;
            if bounds::is_identifier(name) {
                named.insert(name);
            }
        }
    }
    Ok((has_initializers, named.into_iter().map(Box::from).collect()))
}

/// One shared text for the names of all definitions, so that a name needs no allocation of its own.
struct SharedText {
    text: Arc<str>,
    /// The address of the string table that `text` is a copy of. `None` if `text` is the concatenation of the names.
    original: Option<usize>,
    /// The end of the previous name in the concatenation.
    end: usize,
}

impl SharedText {
    /// A copy of the object's string table if it consists mostly of these names, and their concatenation otherwise.
    fn of(object: &ElfObject<'_>, defined: &[Defined<'_>]) -> SharedText {
        let names = defined.iter().map(|(name, ..)| *name);
        let length: usize = names.clone().map(<[u8]>::len).sum();
        match object.names_text().filter(|text| text.len() <= 2 * length + 64) {
            Some(text) => SharedText { text: Arc::from(text), original: Some(text.as_ptr() as usize), end: 0 },
            None => SharedText { text: Name::concat(names), original: None, end: 0 },
        }
    }

    /// The name of the next definition.
    #[inline]
    fn next_name(&mut self, name: &[u8]) -> Name {
        match self.original {
            Some(original) => Name::from_part(&self.text, (name.as_ptr() as usize).wrapping_sub(original), name),
            None => Name::next_part(&self.text, &mut self.end, name),
        }
    }
}

/// Collects the global definitions in `defined`, and those of them that are strong and in section groups in `grouped`.
/// An out-parameter, because the vector is too large to move.
fn definitions<'a>(
    object: &ElfObject<'a>,
    defined: &mut SmallVec<[Defined<'a>; 16]>,
    grouped: &mut Vec<SymbolIndex>,
) -> Result<(), Error> {
    let symbols = object.symbols.all;
    // The null symbol defines nothing, whatever its fields say.
    let first = object.symbols.first_global.max(1);
    let may_have_versions = object.may_have_versions();
    for (number, symbol) in symbols.get(first..).unwrap_or_default().iter().enumerate() {
        if symbol.st_shndx(LE).0 == shn::UNDEF || symbol.st_bind().0 == st::BIND_LOCAL {
            continue;
        }
        let name = match object.plain_symbol_name(symbol) {
            Some(name) => name,
            None => object.symbol_name(symbol)?.as_bytes(),
        };
        let name = if may_have_versions { without_default_version(name) } else { name };
        if name.is_empty() {
            return Err(object.malformed("a global symbol without a name"));
        }
        if is_private(name) {
            continue;
        }
        if symbol.st_shndx(LE).0 == shn::COMMON && name == SLIM_LTO {
            let problem =
                "it has the compiler's intermediate code (LTO) and no machine code: compile with -ffat-lto-objects";
            return Err(object.fault(LinkFault::NotAnObject(problem.to_string())));
        }
        let index = SymbolIndex((first + number) as u32);
        // An index of a section that does not exist is refused when the object is read.
        let section = object.symbols.section(symbol, index.index()).ok().flatten();
        let section = section.and_then(|section| object.sections.section(object::SectionIndex(section)).ok());
        match section {
            // A symbol without an address, such as one of debug information. Code cannot refer to it.
            Some(section) if !is_loaded(section) => continue,
            Some(section) if section.sh_flags(LE).0 & shf::GROUP != 0 && symbol.st_bind().0 == st::BIND_GLOBAL => {
                grouped.push(index);
            }
            _ => {}
        }
        if defined.is_empty() {
            defined.reserve(symbols.len() - first);
        }
        defined.push((name, index, symbol));
    }
    Ok(())
}

/// The name that references without a version have for a symbol of the default version: `name` for `name@@VERSION`
/// (`.symver`). Any other name stays as it is.
#[cold]
fn without_default_version(name: &[u8]) -> &[u8] {
    name.windows(2).position(|pair| pair == b"@@").map_or(name, |end| &name[..end])
}

fn interface_symbol(name: Name, index: SymbolIndex, symbol: &ElfSymbol) -> InterfaceSymbol {
    let (section, kind) = (symbol.st_shndx(LE).0, symbol.st_type().0);
    InterfaceSymbol {
        name,
        index,
        is_weak: matches!(symbol.st_bind().0, st::BIND_WEAK | st::BIND_GNU_UNIQUE) || section == shn::COMMON,
        is_exported: !matches!(symbol.st_visibility().0, st::VISIBILITY_HIDDEN | st::VISIBILITY_INTERNAL),
        is_callable: matches!(kind, st::TYPE_FUNC | st::TYPE_GNU_IFUNC),
        is_thread_local: kind == st::TYPE_TLS,
        is_absolute: section == shn::ABS,
        is_comdat: false,
        has_address: true,
        is_common: section == shn::COMMON,
        size: symbol.st_size(LE),
    }
}

/// The symbol that stands for a section group. No symbol of a compiler has such a name.
#[cold]
fn group_symbol(group: &LocalGroup<'_>) -> InterfaceSymbol {
    InterfaceSymbol {
        name: Name::from(format!("section group `{}`", group.signature)),
        index: group.symbol,
        is_weak: true,
        is_exported: false,
        is_callable: false,
        is_thread_local: false,
        is_absolute: false,
        is_comdat: false,
        has_address: false,
        is_common: false,
        size: 0,
    }
}

/// The common symbol that gcc defines in an object without machine code.
const SLIM_LTO: &[u8] = b"__gnu_lto_slim";

/// The names that an object needs other objects to define, in the order of its symbol table. Weak undefined symbols are
/// not among them, because the object works without them.
///
/// # Errors
/// As [`ObjectInterface::scan`].
pub fn required_names<'a>(name: &'a str, bytes: &'a [u8]) -> Result<Vec<&'a str>, Error> {
    let object = ElfObject::open(name, bytes)?;
    let is_required = |symbol: &&ElfSymbol| {
        symbol.st_shndx(LE).0 == shn::UNDEF && !matches!(symbol.st_bind().0, st::BIND_LOCAL | st::BIND_WEAK)
    };
    object.symbols.all.iter().skip(1).filter(is_required).map(|symbol| object.symbol_name(symbol)).collect()
}

/// The names of all global definitions of an object, as the symbol table of an archive lists them. Includes definitions
/// that cannot be linked.
///
/// # Errors
/// As [`ObjectInterface::scan`].
pub(crate) fn defined_names<'a>(name: &'a str, bytes: &'a [u8]) -> Result<Vec<&'a str>, Error> {
    let object = ElfObject::open(name, bytes)?;
    let is_defined = |symbol: &&ElfSymbol| symbol.st_shndx(LE).0 != shn::UNDEF && symbol.st_bind().0 != st::BIND_LOCAL;
    object.symbols.all.iter().skip(1).filter(is_defined).map(|symbol| object.symbol_name(symbol)).collect()
}
