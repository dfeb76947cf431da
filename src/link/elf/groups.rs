//! COMDAT section groups, as far as the interface of an object needs them (gABI, "Section Groups").
//!
//! A native linker keeps the first group of each signature. Here the claims of names choose the group: mostly all
//! definitions of a group are weak. Two kinds of groups need more:
//!
//! | group | what the interface has |
//! |---|---|
//! | with a strong definition whose name is the signature | [`InterfaceSymbol::is_comdat`](super::InterfaceSymbol::is_comdat): a second such definition is left out |
//! | without a global definition | a symbol without address that stands for the group |

use object::read::elf::{SectionHeader as _, Sym as _};
use object::{LittleEndian, U32};

use crate::error::Error;
use crate::link::elf::{Defined, ElfObject, LE, SectionHeader, is_loaded, shn, sht, st};
use crate::link::graph::SymbolIndex;

/// A COMDAT group.
struct Group<'a> {
    signature: SymbolIndex,
    /// Section indices.
    members: &'a [U32<LittleEndian>],
}

/// A COMDAT group without a global definition.
pub(super) struct LocalGroup<'a> {
    pub(super) signature: &'a str,
    /// The symbol of the signature.
    pub(super) symbol: SymbolIndex,
}

/// Keeps those of the strong definitions `symbols` that are signatures of COMDAT groups. `symbols` are ascending.
#[cold]
pub(super) fn retain_signatures(object: &ElfObject<'_>, symbols: &mut Vec<SymbolIndex>) -> Result<(), Error> {
    let mut signatures = comdat_groups(object)?;
    signatures.sort_unstable_by_key(|group| group.signature);
    symbols.retain(|symbol| signatures.binary_search_by_key(symbol, |group| group.signature).is_ok());
    Ok(())
}

/// The groups with loaded sections of which none has one of the global definitions `defined`.
pub(super) fn local_groups<'a>(object: &ElfObject<'a>, defined: &[Defined<'a>]) -> Result<Vec<LocalGroup<'a>>, Error> {
    if !object.sections.iter().any(|section| section.sh_type(LE).0 == sht::GROUP) {
        return Ok(Vec::new());
    }
    let mut groups = comdat_groups(object)?;
    // Most signatures are global definitions of their group.
    groups.retain(|group| is_local_or_undefined(object, group.signature));
    if groups.is_empty() {
        return Ok(Vec::new());
    }
    let mut has_definition = vec![false; object.sections.len()];
    for (_, index, symbol) in defined {
        if let Ok(Some(section)) = object.symbols.section(symbol, index.index())
            && let Some(has_definition) = has_definition.get_mut(section)
        {
            *has_definition = true;
        }
    }
    let (mut local, mut unread) = (Vec::new(), object.bytes.len() / size_of::<U32<LittleEndian>>());
    for Group { signature, members } in groups {
        // Otherwise many groups could have the same bytes of the file as their members.
        unread = unread
            .checked_sub(members.len())
            .ok_or_else(|| object.malformed("its section groups overlap in the file"))?;
        let sections = || members.iter().map(|member| member.get(LE) as usize);
        let is_in_memory = |section: usize| section_at(object, section).is_some_and(is_loaded);
        if sections().any(is_in_memory) && !sections().any(|section| has_definition.get(section) == Some(&true)) {
            local.push(LocalGroup { signature: signature_name(object, signature)?, symbol: signature });
        }
    }
    Ok(local)
}

fn comdat_groups<'a>(object: &ElfObject<'a>) -> Result<Vec<Group<'a>>, Error> {
    let mut groups = Vec::new();
    for section in object.sections.iter() {
        let group = section.group(LE, object.bytes).map_err(|error| object.malformed(error))?;
        if let Some((flags, members)) = group
            && flags.0 & GRP_COMDAT != 0
        {
            groups.push(Group { signature: SymbolIndex(section.sh_info(LE)), members });
        }
    }
    Ok(groups)
}

fn is_local_or_undefined(object: &ElfObject<'_>, symbol: SymbolIndex) -> bool {
    let symbol = object.symbols.all.get(symbol.index());
    symbol.is_some_and(|symbol| symbol.st_bind().0 == st::BIND_LOCAL || symbol.st_shndx(LE).0 == shn::UNDEF)
}

/// The name of a signature: that of its symbol, or that of the section if the symbol names a section.
fn signature_name<'a>(object: &ElfObject<'a>, index: SymbolIndex) -> Result<&'a str, Error> {
    let symbol = &object.symbols.all[index.index()];
    if symbol.st_type().0 == st::TYPE_SECTION
        && let Ok(Some(section)) = object.symbols.section(symbol, index.index())
        && let Some(section) = section_at(object, section)
    {
        return object.section_name(section);
    }
    object.symbol_name(symbol)
}

fn section_at<'a>(object: &ElfObject<'a>, index: usize) -> Option<&'a SectionHeader> {
    object.sections.section(object::SectionIndex(index)).ok()
}

/// The flag of a COMDAT group.
pub(super) const GRP_COMDAT: u32 = 1;
