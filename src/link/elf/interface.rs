//! [`ObjectInterface`]: what an object defines and whether it has initialisers, without reading the rest of it.
//!
//! This is what a materialisation unit promises when an object is added.

use std::collections::BTreeSet;

use crate::base::Name;
use crate::error::{Error, LinkFault};
use crate::link::bounds;
use crate::link::claim::is_private;
use crate::link::elf::{ElfObject, ElfSymbol, LE, Outline, shn, st};
use crate::link::graph::SymbolIndex;
use crate::link::init_fragments;
use crate::link::initializers;
use object::read::elf::{SectionHeader as _, Sym as _};
use smallvec::SmallVec;

use crate::sync::Arc;

/// What an object defines.
#[derive(Debug, Default)]
pub struct ObjectInterface {
    /// Its global definitions, in the order of its symbol table.
    pub symbols: Vec<InterfaceSymbol>,
    /// Whether it has functions to run before its code is used, or before it goes.
    pub has_initializers: bool,
}

/// One global definition.
#[derive(Debug)]
pub struct InterfaceSymbol {
    /// The name.
    pub name: Name,
    /// Its number in the object's symbol table.
    pub index: SymbolIndex,
    /// Whether another definition may stand in for it.
    pub is_weak: bool,
    /// Whether other dylibs see it.
    pub is_exported: bool,
    /// Whether it is a function.
    pub is_callable: bool,
    /// Whether every thread has its own.
    pub is_thread_local: bool,
    /// Whether it is a fixed value.
    pub is_absolute: bool,
    /// Whether it is a common symbol: the largest of several counts.
    pub is_common: bool,
    /// Bytes, as the object says.
    pub size: u64,
}

impl ObjectInterface {
    /// Reads the interface of an object.
    ///
    /// # Errors
    /// When the bytes are not a relocatable object of this machine.
    pub fn scan(name: &str, bytes: &[u8]) -> Result<ObjectInterface, Error> {
        let mut symbols = Vec::new();
        let seen = ObjectInterface::visit(name, bytes, |symbol, left| {
            symbols.reserve(left);
            symbols.push(symbol);
        })?;
        Ok(ObjectInterface { symbols, has_initializers: seen.has_initializers })
    }

    /// As [`scan`](Self::scan), one definition at a time, with how many are left, itself included.
    pub(crate) fn visit(
        name: &str,
        bytes: &[u8],
        mut visit: impl FnMut(InterfaceSymbol, usize),
    ) -> Result<Seen, Error> {
        let object = ElfObject::open(name, bytes)?;
        let (has_initializers, named_sections) = look_at_sections(&object)?;
        visit_definitions(&object, &mut visit)?;
        Ok(Seen { has_initializers, named_sections, outline: Outline::of(&object) })
    }
}

/// Shows every global definition to `visit`, with how many are left, itself included.
#[inline(always)] // with what it is shown to
pub(super) fn visit_definitions(
    object: &ElfObject<'_>,
    visit: &mut impl FnMut(InterfaceSymbol, usize),
) -> Result<(), Error> {
    let mut defined = SmallVec::new();
    definitions(object, &mut defined)?;
    let mut text = SharedText::of(object, &defined);
    for (number, (name, index, symbol)) in defined.iter().enumerate() {
        visit(interface_symbol(text.name(name), *index, symbol), defined.len() - number);
    }
    Ok(())
}

/// What was seen of an object beside its definitions.
pub(crate) struct Seen {
    /// As [`ObjectInterface::has_initializers`].
    pub(crate) has_initializers: bool,
    /// Sections in memory that may be asked for their bounds: C identifiers. Without those of section groups, which may be
    /// another object's in the end.
    pub(crate) named_sections: Vec<Box<str>>,
    /// For who opens it again.
    pub(crate) outline: Option<Outline>,
}

/// Whether it has initialisers, and [`Seen::named_sections`].
fn look_at_sections(object: &ElfObject<'_>) -> Result<(bool, Vec<Box<str>>), Error> {
    let (mut has_initializers, mut named) = (false, BTreeSet::new());
    for section in object.sections.iter().filter(|section| section.sh_flags(LE).0 & ALLOC != 0) {
        let onwards = object.section_name_onwards(section)?;
        if initializers::may_list(onwards) {
            let name = object.section_name(section)?.as_bytes();
            has_initializers |= initializers::classify(name).is_some() || init_fragments::has_fragment(name);
        } else if onwards.first() != Some(&b'.') && section.sh_flags(LE).0 & GROUP == 0 && section.sh_size(LE) > 0 {
            let name = object.section_name(section)?;
            if bounds::is_identifier(name) {
                named.insert(name);
            }
        }
    }
    Ok((has_initializers, named.into_iter().map(Box::from).collect()))
}

/// A global definition: its name, which is text, and where in the symbol table it stands.
type Defined<'a> = (&'a [u8], SymbolIndex, &'a ElfSymbol);

/// One text for the names of all definitions.
struct SharedText {
    text: Arc<str>,
    /// Where the text begins that it is a copy of; otherwise it has the names one behind the other.
    original: Option<usize>,
    /// Where the last name ends.
    end: usize,
}

impl SharedText {
    /// That of the object, unless most of it is other names.
    fn of(object: &ElfObject<'_>, defined: &[Defined<'_>]) -> SharedText {
        let names = defined.iter().map(|(name, ..)| *name);
        let length: usize = names.clone().map(<[u8]>::len).sum();
        match object.names_text().filter(|text| text.len() <= 2 * length + 64) {
            Some(text) => SharedText { text: Arc::from(text), original: Some(text.as_ptr() as usize), end: 0 },
            None => SharedText { text: Name::joined(names), original: None, end: 0 },
        }
    }

    /// The next definition's name.
    #[inline]
    fn name(&mut self, name: &[u8]) -> Name {
        let start = self.original.map_or(self.end, |original| (name.as_ptr() as usize).wrapping_sub(original));
        self.end = start.wrapping_add(name.len());
        Name::part_of(&self.text, start, name)
    }
}

/// Fills `defined`, which is too large to be handed on.
fn definitions<'a>(object: &ElfObject<'a>, defined: &mut SmallVec<[Defined<'a>; 16]>) -> Result<(), Error> {
    let symbols = object.symbols.all;
    // The null symbol is what it is, whatever it says.
    let first = object.symbols.first_global.max(1);
    for (behind, symbol) in symbols.get(first..).unwrap_or_default().iter().enumerate() {
        if symbol.st_shndx(LE).0 == shn::UNDEF || symbol.st_bind().0 == st::BIND_LOCAL {
            continue;
        }
        let name = match object.plain_symbol_name(symbol) {
            Some(name) => name,
            None => object.symbol_name(symbol)?.as_bytes(),
        };
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
        if defined.is_empty() {
            defined.reserve(symbols.len() - first);
        }
        defined.push((name, SymbolIndex((first + behind) as u32), symbol));
    }
    Ok(())
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
        is_common: section == shn::COMMON,
        size: symbol.st_size(LE),
    }
}

/// What gcc defines in an object without machine code.
const SLIM_LTO: &[u8] = b"__gnu_lto_slim";
/// Section flags.
const ALLOC: u64 = 2;
const GROUP: u64 = 0x200;

/// The names that an object needs from elsewhere, in the order of its symbol table. Those that it can do without (weak
/// undefined) are not among them.
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

/// The names that an object defines for others, those included that cannot be linked: what an archive's index lists.
pub(crate) fn defined_names<'a>(name: &'a str, bytes: &'a [u8]) -> Result<Vec<&'a str>, Error> {
    let object = ElfObject::open(name, bytes)?;
    let is_defined = |symbol: &&ElfSymbol| symbol.st_shndx(LE).0 != shn::UNDEF && symbol.st_bind().0 != st::BIND_LOCAL;
    object.symbols.all.iter().skip(1).filter(is_defined).map(|symbol| object.symbol_name(symbol)).collect()
}
