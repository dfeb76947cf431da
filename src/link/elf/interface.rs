//! [`ObjectInterface`]: what an object defines, and whether it has initialisers (ORC: `MaterializationUnit::Interface`,
//! `getObjectFileInterface`).
//!
//! The layer reads the interface when an object is added. The materialisation unit promises these symbols. Relocations
//! and contents are not read. [`required_names`] lists the names that an object needs from other objects.
//! [`defined_names`] lists those that it defines, for an archive without a symbol table.

use object::elf::{SymbolBind, SymbolOther, SymbolType};
use object::read::elf::{SectionHeader as _, Sym as _};
use smallvec::SmallVec;

use crate::base::{Name, sort_by_order, until_nul};
use crate::error::{Error, LinkFault};
use crate::link::bounds;
use crate::link::claim::{group_claim_name, is_private};
use crate::link::elf::groups::{Groups, UnnamedGroup};
use crate::link::elf::{Defined, ElfObject, ElfSymbol, LE, Outline, shf, shn, sht, st};
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
    /// Whether another definition may replace it: weak (`STB_WEAK`) or common.
    pub is_weak: bool,
    /// Whether other dylibs see it: its visibility is neither hidden nor internal.
    pub is_exported: bool,
    /// Whether it is a function (`STT_FUNC`, `STT_GNU_IFUNC`).
    pub is_callable: bool,
    /// Whether it has no type (`STT_NOTYPE`), as a function of an assembler may have none.
    #[cfg_attr(not(feature = "unstable"), allow(dead_code))]
    pub is_untyped: bool,
    /// Whether every thread has its own copy (`STT_TLS`).
    pub is_thread_local: bool,
    /// Whether it is a fixed value (`SHN_ABS`).
    pub is_absolute: bool,
    /// Whether it stands for a COMDAT group. Of several such definitions with one name, the first counts.
    pub is_comdat: bool,
    /// The index of the symbol that stands for its COMDAT group, if that is another one. If that symbol is left out, so is
    /// this one.
    pub leader: Option<SymbolIndex>,
    /// Whether it has an address. If not, it only stands for a COMDAT group.
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
        let has_groups = object.sections.iter().any(|section| section.sh_type(LE).0 == sht::GROUP);
        let has_hidden_weak = visit_definitions(&object, has_groups, &mut visit)?;
        let hidden_weak = if has_hidden_weak { hidden_weak_names(&object)? } else { Vec::new() };
        Ok(ScannedInterface { has_initializers, named_sections, hidden_weak, outline: Outline::of(&object) })
    }
}

/// Passes every global definition to `visit`, with the number of definitions from it to the last. `has_groups` says
/// whether the object has section groups. Returns whether it has weak references to hidden, internal or protected symbols.
#[inline(always)] // so that `visit` is inlined into the loop, which is its only call
pub(super) fn visit_definitions(
    object: &ElfObject<'_>,
    has_groups: bool,
    visit: &mut impl FnMut(InterfaceSymbol, usize),
) -> Result<bool, Error> {
    let others: Vec<OtherSymbol>;
    let (mut defined, mut grouped) = (SmallVec::new(), Vec::new());
    let Rare { has_default_versions, has_hidden_weak } = definitions(object, &mut defined, &mut grouped)?;
    let groups = if has_groups { Some(Groups::read(object, grouped)?) } else { None };
    let own_count = defined.len();
    let unnamed = groups.as_ref().map_or(&[][..], |groups| &groups.unnamed);
    if has_default_versions || !unnamed.is_empty() {
        others = other_symbols(object, &defined, unnamed)?;
        defined.extend(others.iter().map(|other| (other.name.as_bytes(), other.index, &other.symbol)));
    }
    let (count, addressed_count) = (defined.len(), defined.len() - unnamed.len());
    let mut text = SharedText::of(object, &defined);
    for (number, (name, index, symbol)) in defined.iter().enumerate() {
        let has_address = number < addressed_count;
        let (is_comdat, leader) = match &groups {
            Some(groups) if number < own_count => groups.role_of(*index),
            _ => (!has_address, None),
        };
        let symbol = interface_symbol(text.next_name(name), *index, symbol);
        visit(InterfaceSymbol { is_comdat, leader, has_address, ..symbol }, count - number);
    }
    Ok(has_hidden_weak)
}

/// What few objects have.
#[derive(Default)]
struct Rare {
    /// Definitions of a default version (`name@@VERSION`).
    has_default_versions: bool,
    /// Weak references to hidden, internal or protected symbols.
    has_hidden_weak: bool,
}

/// A symbol that the object's symbol table does not have.
struct OtherSymbol {
    name: String,
    index: SymbolIndex,
    symbol: ElfSymbol,
}

/// The symbols that come after the definitions: a second name, `name@VERSION`, of each definition `name@@VERSION`, because
/// references may name that version; and the symbols that stand for groups.
#[cold]
fn other_symbols(
    object: &ElfObject<'_>,
    defined: &[Defined<'_>],
    unnamed: &[UnnamedGroup<'_>],
) -> Result<Vec<OtherSymbol>, Error> {
    let mut found = Vec::new();
    for (_, index, symbol) in defined {
        if let Some((name, version)) = object.symbol_name(symbol)?.split_once("@@") {
            found.push(OtherSymbol { name: format!("{name}@{version}"), index: *index, symbol: **symbol });
        }
    }
    found.extend(unnamed.iter().map(group_symbol));
    Ok(found)
}

/// The properties of an object besides its definitions.
pub(crate) struct ScannedInterface {
    /// As [`ObjectInterface::has_initializers`].
    pub(crate) has_initializers: bool,
    /// The loaded, non-empty sections that `__start_` and `__stop_` symbols can name, because their names are C
    /// identifiers. Sorted by name.
    pub(crate) named_sections: Vec<NamedSection>,
    /// The names of weak references to hidden, internal or protected symbols.
    pub(crate) hidden_weak: Vec<Box<str>>,
    /// For the link, which opens the object again.
    pub(crate) outline: Option<Outline>,
}

/// All sections of one name that is a C identifier.
pub(crate) struct NamedSection {
    pub(crate) name: Box<str>,
    /// Whether one of them is in no section group. Another object's copy of a group may count instead.
    pub(crate) is_certain: bool,
}

/// Whether the object has initialisers, and [`ScannedInterface::named_sections`].
fn scan_sections(object: &ElfObject<'_>) -> Result<(bool, Vec<NamedSection>), Error> {
    let (mut has_initializers, mut named) = (false, Vec::new());
    for section in object.sections.iter().filter(|section| section.sh_flags(LE).0 & shf::ALLOC != 0) {
        let from_name = object.bytes_from_section_name(section)?;
        if initializers::may_list(from_name) {
            let name = object.section_name(section)?.as_bytes();
            has_initializers |= initializers::classify(name).is_some() || init_fragments::has_fragment(name);
        } else if from_name.first() != Some(&b'.') && section.sh_size(LE) > 0 {
            let name = object.section_name(section)?;
            if bounds::is_identifier(name) {
                named.push((name, section.sh_flags(LE).0 & shf::GROUP == 0));
            }
        }
    }
    sort_by_order(&mut named, |a, b| a.0.cmp(b.0));
    let named = named.chunk_by(|a, b| a.0 == b.0).map(|of_one_name| NamedSection {
        name: Box::from(of_one_name[0].0),
        is_certain: of_one_name.iter().any(|(_, is_certain)| *is_certain),
    });
    Ok((has_initializers, named.collect()))
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

/// Collects the global definitions in `defined`, and those of them that are in section groups in `grouped`. An
/// out-parameter, because the vector is too large to move.
fn definitions<'a: 'names, 'names>(
    object: &ElfObject<'a>,
    defined: &mut SmallVec<[Defined<'names>; 16]>,
    grouped: &mut Vec<SymbolIndex>,
) -> Result<Rare, Error> {
    let mut rare = Rare::default();
    let symbols = object.symbols.all;
    // The null symbol defines nothing, whatever its fields say.
    let first = object.symbols.first_global.max(1);
    let (plain_names, may_have_versions) = (object.plain_names_table(), object.may_have_versions());
    // The last section that was found to be loaded and in no group. Most definitions are in the section of the one
    // before.
    let mut plain_section = shn::UNDEF;
    for (number, symbol) in symbols.get(first..).unwrap_or_default().iter().enumerate() {
        if symbol.st_shndx(LE).0 == shn::UNDEF || symbol.st_bind().0 == st::BIND_LOCAL {
            rare.has_hidden_weak |= is_hidden_weak(symbol);
            continue;
        }
        let name = match plain_names.get(symbol.st_name(LE) as usize..).and_then(until_nul) {
            Some(name) => name,
            None => object.symbol_name(symbol)?.as_bytes(),
        };
        let name = if may_have_versions { without_default_version(name, &mut rare.has_default_versions) } else { name };
        if name.is_empty() {
            return Err(object.malformed("a global symbol without a name"));
        }
        if is_private(name) {
            continue;
        }
        let index = SymbolIndex((first + number) as u32);
        if symbol.st_shndx(LE).0 != plain_section {
            if symbol.st_shndx(LE).0 == shn::COMMON && name == SLIM_LTO {
                let problem =
                    "it has the compiler's intermediate code (LTO) and no machine code: compile with -ffat-lto-objects";
                return Err(object.fault(LinkFault::NotAnObject(problem.to_string())));
            }
            match place_of(object, symbol, index) {
                // A symbol without an address, such as one of debug information. Code cannot refer to it.
                Place::NotLoaded => continue,
                Place::InGroup => grouped.push(index),
                // The section index is in another table, or the symbol is in none.
                Place::Plain if symbol.st_shndx(LE).0 >= shn::RESERVED => {}
                Place::Plain => plain_section = symbol.st_shndx(LE).0,
            }
        }
        if defined.is_empty() {
            defined.reserve(symbols.len() - first);
        }
        defined.push((name, index, symbol));
    }
    Ok(rare)
}

/// Whether a symbol is weak and hidden, internal or protected.
#[inline]
fn is_hidden_weak(symbol: &ElfSymbol) -> bool {
    symbol.st_bind().0 == st::BIND_WEAK && symbol.st_visibility().0 != st::VISIBILITY_DEFAULT
}

#[cold]
fn hidden_weak_names(object: &ElfObject<'_>) -> Result<Vec<Box<str>>, Error> {
    let is_meant = |symbol: &&ElfSymbol| symbol.st_shndx(LE).0 == shn::UNDEF && is_hidden_weak(symbol);
    object.symbols.all.iter().filter(is_meant).map(|symbol| Ok(object.symbol_name(symbol)?.into())).collect()
}

/// The section of a definition, as far as the interface depends on it.
enum Place {
    NotLoaded,
    InGroup,
    /// Any other section, or none: an absolute or a common symbol.
    Plain,
}

#[inline(never)] // called for few definitions, so that the loop keeps its variables in registers
fn place_of(object: &ElfObject<'_>, symbol: &ElfSymbol, index: SymbolIndex) -> Place {
    // An index of a section that does not exist is refused when the object is read.
    let section = object.symbols.section(symbol, index.index()).ok().flatten();
    match section.and_then(|section| object.sections.section(object::SectionIndex(section)).ok()) {
        Some(section) if !object.is_loaded(section) => Place::NotLoaded,
        Some(section) if section.sh_flags(LE).0 & shf::GROUP != 0 => Place::InGroup,
        _ => Place::Plain,
    }
}

/// The name that references without a version have for a symbol of the default version: `name` for `name@@VERSION`
/// (`.symver`). Sets `is_found` for such a name. Any other name stays as it is.
#[cold]
fn without_default_version<'a>(name: &'a [u8], is_found: &mut bool) -> &'a [u8] {
    let Some(end) = name.windows(2).position(|pair| pair == b"@@") else { return name };
    *is_found = true;
    &name[..end]
}

fn interface_symbol(name: Name, index: SymbolIndex, symbol: &ElfSymbol) -> InterfaceSymbol {
    let (section, kind) = (symbol.st_shndx(LE).0, symbol.st_type().0);
    InterfaceSymbol {
        name,
        index,
        is_weak: symbol.st_bind().0 == st::BIND_WEAK || section == shn::COMMON,
        is_exported: !matches!(symbol.st_visibility().0, st::VISIBILITY_HIDDEN | st::VISIBILITY_INTERNAL),
        is_callable: matches!(kind, st::TYPE_FUNC | st::TYPE_GNU_IFUNC),
        is_untyped: kind == st::TYPE_NOTYPE,
        is_thread_local: kind == st::TYPE_TLS,
        is_absolute: section == shn::ABS,
        is_comdat: false,
        leader: None,
        has_address: true,
        is_common: section == shn::COMMON,
        size: symbol.st_size(LE),
    }
}

/// The symbol that stands for a section group: weak, hidden and without a type of its own. No symbol of a compiler has such
/// a name.
#[cold]
fn group_symbol(group: &UnnamedGroup<'_>) -> OtherSymbol {
    let mut symbol = ElfSymbol::default();
    symbol.set_st_info(SymbolBind(st::BIND_WEAK), SymbolType(st::TYPE_OBJECT));
    symbol.st_other = SymbolOther(st::VISIBILITY_HIDDEN);
    OtherSymbol { name: group_claim_name(group.signature), index: group.symbol, symbol }
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
