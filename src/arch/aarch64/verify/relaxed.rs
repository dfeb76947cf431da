//! Checks instructions that cheaper ones stand for ("Relocation optimization" of AAELF64): those of the object must be a sequence
//! in one register, and those in memory must make the same address or distance.

use std::ops::Range;

use crate::arch::aarch64::verify::page_of_adrp;
use crate::arch::verify::{FieldValue, Relocation, SectionView};

/// Whether the instructions from an offset on are right; `None` if they are not of the form.
type Check = fn(&dyn SectionView, &Relocation, usize) -> Option<bool>;

/// The bytes that a relocation explains if its instruction is one of such a sequence; `None` otherwise.
pub(super) fn relaxed(section: &dyn SectionView, relocation: &Relocation, name: &str) -> Option<Range<usize>> {
    let (position, is_relaxed): (usize, Check) = match name {
        "ADR_GOT_PAGE" => (0, is_relaxed_got_load),
        "LD64_GOT_LO12_NC" => (1, is_relaxed_got_load),
        "ADR_PREL_PG_HI21" | "ADR_PREL_PG_HI21_NC" => (0, is_relaxed_address),
        "ADD_ABS_LO12_NC" => (1, is_relaxed_address),
        "TLSIE_ADR_GOTTPREL_PAGE21" => (0, is_relaxed_static_load),
        "TLSIE_LD64_GOTTPREL_LO12_NC" => (1, is_relaxed_static_load),
        "TLSDESC_ADR_PAGE21" => (0, is_relaxed_descriptor),
        "TLSDESC_LD64_LO12" => (1, is_relaxed_descriptor),
        "TLSDESC_ADD_LO12" => (2, is_relaxed_descriptor),
        _ => return None,
    };
    let first = (relocation.offset as usize).checked_sub(4 * position)?;
    let Range { start, end } = relocation.field();
    // No relocation is at the call that ends the sequence of a descriptor, but a marker.
    let end = if position == 2 { end + 4 } else { end };
    is_relaxed(section, relocation, first)?.then_some(start..end)
}

/// The instruction at an offset of a section.
fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4).map(|word| FieldValue::of(word).unsigned as u32)
}

/// The register of ADRP in the object, and of the instruction after it, `second`, which reads and overwrites it.
fn register(section: &dyn SectionView, first: usize, second: u32) -> Option<u32> {
    let (page, other) = (word(section.content(), first)?, word(section.content(), first + 4)?);
    let register = page & 0x1f;
    let is_pair = page & 0x9f00_0000 == 0x9000_0000 && other & 0xffc0_03ff == second | register << 5 | register;
    (is_pair && register != 31).then_some(register)
}

/// ADRP and ADD of the symbol for a load of its slot.
fn is_relaxed_got_load(section: &dyn SectionView, relocation: &Relocation, first: usize) -> Option<bool> {
    let register = register(section, first, 0xf940_0000)?;
    let (page, add) = (word(section.memory(), first)?, word(section.memory(), first + 4)?);
    let target = page_of_adrp(page, section.address().wrapping_add(first as u64))?;
    let target = target.wrapping_add((add >> 10 & 0xfff).into());
    let has_register = page & 0x1f == register && add & 0xffc0_03ff == 0x9100_0000 | register << 5 | register;
    Some(has_register && relocation.addend == 0 && target == section.symbol_address(relocation.symbol))
}

/// `nop` and ADR for ADRP and ADD.
fn is_relaxed_address(section: &dyn SectionView, relocation: &Relocation, first: usize) -> Option<bool> {
    let register = register(section, first, 0x9100_0000)?;
    let (nop, adr) = (word(section.memory(), first)?, word(section.memory(), first + 4)?);
    let distance = i64::from((adr << 8 & 0xffff_e000 | adr >> 18 & 0x1800) as i32 >> 11);
    let address = section.address().wrapping_add(first as u64 + 4).wrapping_add_signed(distance);
    let target = section.symbol_address(relocation.symbol).wrapping_add_signed(relocation.addend);
    Some((nop, adr & 0x9f00_001f) == (0xd503_201f, 0x1000_0000 | register) && address == target)
}

/// Two moves for a load of a distance.
fn is_relaxed_static_load(section: &dyn SectionView, relocation: &Relocation, first: usize) -> Option<bool> {
    let register = register(section, first, 0xf940_0000)?;
    has_distance(section, relocation, first, register)
}

/// Two moves and two `nop` for a call of a descriptor's function.
fn is_relaxed_descriptor(section: &dyn SectionView, relocation: &Relocation, first: usize) -> Option<bool> {
    let old = |index: usize| word(section.content(), first + 4 * index);
    let load = old(1)?;
    let function = load & 0x1f;
    let is_call = old(0)? & 0x9f00_001f == 0x9000_0000
        && load & 0xffc0_03e0 == 0xf940_0000
        && !matches!(function, 0 | 31)
        && old(2)? & 0xffc0_03ff == 0x9100_0000
        && old(3)? == 0xd63f_0000 | function << 5;
    let is_empty = [2, 3].iter().all(|index| word(section.memory(), first + 4 * index) == Some(0xd503_201f));
    Some(is_call && is_empty && has_distance(section, relocation, first, 0)?)
}

/// Whether `movz` and `movk` of a register make the distance of the variable from the thread pointer.
fn has_distance(section: &dyn SectionView, relocation: &Relocation, first: usize, register: u32) -> Option<bool> {
    let (high, low) = (word(section.memory(), first)?, word(section.memory(), first + 4)?);
    let are_moves = (high & 0xffe0_001f, low & 0xffe0_001f) == (0xd2a0_0000 | register, 0xf280_0000 | register);
    let distance = u64::from(high >> 5 & 0xffff) << 16 | u64::from(low >> 5 & 0xffff);
    let expected = section.static_offset(relocation.symbol, relocation.offset).ok()?;
    Some(are_moves && relocation.addend == 0 && expected == [distance])
}
