//! COMDAT section groups, as far as the interface of an object needs them (gABI, "Section Groups").
//!
//! A native linker keeps the first group of each signature and drops the others as a whole. Here one symbol *stands for*
//! each group in the symbol table of the dylib. If that symbol is left out because another object's group has it, all
//! definitions of the group are left out.
//!
//! | group | the symbol that stands for it |
//! |---|---|
//! | with a global definition whose name is the signature | that definition |
//! | with another signature and a strong definition | a symbol without address |
//! | with another signature and weak definitions only | none: of each name the first definition is kept |
//! | without a global definition | a symbol without address |

use object::read::elf::{SectionHeader as _, Sym as _};
use object::{LittleEndian, U32};

use crate::base::{pair, sort_by_number};
use crate::error::Error;
use crate::link::elf::{ElfObject, LE, SectionHeader, shn, st};
use crate::link::graph::SymbolIndex;

/// The COMDAT groups of an object.
#[derive(Default)]
pub(super) struct Groups<'a> {
    /// The definitions that stand for their groups, ascending.
    signatures: Vec<SymbolIndex>,
    /// The other definitions of groups, ascending, each with the symbol that stands for its group.
    members: Vec<(SymbolIndex, SymbolIndex)>,
    /// The groups for which a symbol without address stands.
    pub(super) unnamed: Vec<UnnamedGroup<'a>>,
}

/// A COMDAT group for which no definition stands.
pub(super) struct UnnamedGroup<'a> {
    pub(super) signature: &'a str,
    /// The symbol of the signature.
    pub(super) symbol: SymbolIndex,
}

/// A COMDAT group as the object has it.
struct Group<'a> {
    signature: SymbolIndex,
    /// Section indices.
    members: &'a [U32<LittleEndian>],
}

impl<'a> Groups<'a> {
    /// Reads the groups. `grouped` are the global definitions in sections of groups, ascending.
    #[inline(never)] // called for few objects
    pub(super) fn read(object: &ElfObject<'a>, grouped: Vec<SymbolIndex>) -> Result<Groups<'a>, Error> {
        let mut found = Groups::default();
        let groups = comdat_groups(object)?;
        let mut signatures: Vec<SymbolIndex> = groups.iter().map(|group| group.signature).collect();
        sort_by_number(&mut signatures, SymbolIndex::number);
        let is_signature = |symbol: &SymbolIndex| signatures.binary_search(symbol).is_ok();
        let others: Vec<SymbolIndex>;
        (found.signatures, others) = grouped.into_iter().partition(is_signature);
        // Most groups have one global definition, which is their signature.
        if !others.is_empty() || groups.iter().any(|group| is_local_or_undefined(object, group.signature)) {
            found.read_others(object, &groups, &others)?;
        }
        Ok(found)
    }

    /// Reads what is in the groups besides definitions that are signatures: `others`.
    #[cold]
    fn read_others(
        &mut self,
        object: &ElfObject<'a>,
        groups: &[Group<'a>],
        others: &[SymbolIndex],
    ) -> Result<(), Error> {
        let group_of = group_by_section(object, groups)?;
        let in_group = |symbol: &SymbolIndex| {
            let section = object.symbols.section(object.symbols.all.get(symbol.index())?, symbol.index());
            Some(((*group_of.get(section.ok()??)?)?, *symbol))
        };
        let mut others: Vec<(usize, SymbolIndex)> = others.iter().filter_map(in_group).collect();
        sort_by_number(&mut others, |(group, symbol)| pair(*group as u64, symbol.0));
        let mut rest = &others[..];
        for (number, Group { signature, members }) in groups.iter().enumerate() {
            let own;
            (own, rest) = rest.split_at(rest.partition_point(|(group, _)| *group <= number));
            let is_named = self.signatures.binary_search(signature).is_ok();
            let is_in_memory = |section: &U32<LittleEndian>| {
                section_at(object, section.get(LE) as usize).is_some_and(|section| object.is_loaded(section))
            };
            let is_unnamed = !is_named
                && is_local_or_undefined(object, *signature)
                && match own {
                    [] => members.iter().any(is_in_memory),
                    _ => own.iter().any(|(_, symbol)| is_strong(object, *symbol)),
                };
            if is_unnamed {
                let name = signature_name(object, *signature)?;
                self.unnamed.push(UnnamedGroup { signature: name, symbol: *signature });
            }
            if is_named || is_unnamed {
                self.members.extend(own.iter().map(|(_, symbol)| (*symbol, *signature)));
            }
        }
        sort_by_number(&mut self.members, |(member, signature)| pair(member.0, signature.0));
        Ok(())
    }

    /// Whether a definition stands for its group, and the symbol that stands for it if that is another one.
    #[inline(never)] // called for few objects
    pub(super) fn role_of(&self, symbol: SymbolIndex) -> (bool, Option<SymbolIndex>) {
        let position = self.members.binary_search_by_key(&symbol, |(member, _)| *member).ok();
        (self.signatures.binary_search(&symbol).is_ok(), position.map(|position| self.members[position].1))
    }
}

/// By section: the number of its group.
fn group_by_section(object: &ElfObject<'_>, groups: &[Group<'_>]) -> Result<Vec<Option<usize>>, Error> {
    let mut group_of = vec![None; object.sections.len()];
    let mut unread = object.bytes.len() / size_of::<U32<LittleEndian>>();
    for (number, Group { members, .. }) in groups.iter().enumerate() {
        // Otherwise many groups could have the same bytes of the file as their members.
        unread = unread
            .checked_sub(members.len())
            .ok_or_else(|| object.malformed("its section groups overlap in the file"))?;
        for member in *members {
            if let Some(group) = group_of.get_mut(member.get(LE) as usize) {
                *group = Some(number);
            }
        }
    }
    Ok(group_of)
}

fn is_strong(object: &ElfObject<'_>, symbol: SymbolIndex) -> bool {
    object.symbols.all.get(symbol.index()).is_some_and(|symbol| symbol.st_bind().0 != st::BIND_WEAK)
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
