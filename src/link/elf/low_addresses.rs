//! [`has_low_addresses`]: whether an object holds addresses in 32 bits, so that it has to be below 2 GiB.
//!
//! Only the types of relocations are read. A caller that links several objects begins with such a one, and then the others get
//! memory near it: references between them reach.

use object::read::elf::SectionHeader as _;

use crate::arch::KindSet;
use crate::link::elf::{ElfObject, LE, SectionHeader, shf, sht};

/// Whether a loaded section of an object holds such an address. False for an object that cannot be read, and for compact
/// relocations.
pub fn has_low_addresses(name: &str, bytes: &[u8]) -> bool {
    let Ok(object) = ElfObject::open(name, bytes) else { return false };
    let is_loaded = |section: &SectionHeader| {
        let target = object.sections.section(object::SectionIndex(section.sh_info(LE) as usize));
        target.is_ok_and(|target| target.sh_flags(LE).0 & shf::ALLOC != 0)
    };
    let is_low = |section: &SectionHeader| {
        let Ok(Some((relocations, _))) = section.rela(LE, object.bytes) else { return false };
        let is_low = |r_type: u32| object.arch.kind_of(r_type).is_some_and(|kind| KindSet::LOW.contains(kind));
        relocations.iter().any(|relocation| is_low(relocation.r_type(LE, false).0))
    };
    let mut tables = object.sections.iter().filter(|section| section.sh_type(LE).0 == sht::RELA);
    tables.any(|section| is_loaded(section) && is_low(section))
}
