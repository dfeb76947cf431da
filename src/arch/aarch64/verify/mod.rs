//! Checks one field by the formula that AAELF64 gives for its relocation type ("Relocation codes and operations").
//!
//! The names of the types are systematic, so the formula, the field and the range follow from the name. Nothing here uses the
//! linker's table of relocations, nor the code that stores its fields.
//!
//! The verifier inserts the value into the instruction of the object, and the result must be the instruction in memory, with all
//! of its bits. A value that leads through the GOT is that of any entry with the right words. So it does not matter which of two
//! equal entries the linker chose.

mod address_thunk;
mod distance_thunk;
mod relaxed;
mod relocations;

use std::ops::Range;

use crate::arch::verify::{FieldValue, Mismatch, Relocation, SectionView, has_property};

pub(crate) use relocations::{changes_bytes, number_of, relocation};

/// Checks the field of a relocation whose symbol has an address. Returns the range of bytes that the relocation explains.
pub(crate) fn check_field(section: &dyn SectionView, relocation: &Relocation) -> Result<Range<usize>, Mismatch> {
    let range = relocation.field();
    let (content, memory) = (section.content().get(range.clone()), section.memory().get(range.clone()));
    let (Some(content), Some(memory)) = (content, memory) else {
        return Err(Mismatch::new(relocation.offset, relocation.name, "past the end of its section", "inside"));
    };
    let name = relocation.name.strip_prefix("R_AARCH64_").unwrap_or_default();
    if name.is_empty() || content.is_empty() {
        let kind = format!("relocation type {}", relocation.r_type);
        return Err(Mismatch::new(relocation.offset, kind, "linked", "refused"));
    }
    let place = section.address().wrapping_add(relocation.offset);
    if let Some(explained) = relaxed::relaxed(section, relocation, name) {
        return Ok(explained);
    }
    let (old, found) = (FieldValue::of(content).unsigned, FieldValue::of(memory).unsigned);
    if matches!(name, "JUMP26" | "CALL26") && leads_by_veneer(section, relocation, place, old as u32, found as u32) {
        return Ok(range);
    }
    if distance_thunk::is_moved(section, relocation, name, place, found as u32) {
        return Ok(range);
    }
    let bases = bases(section, relocation, name)?;
    if address_thunk::is_moved(section, relocation, &bases, place, old as u32, found as u32) {
        return Ok(range);
    }
    let mut expected = Vec::new();
    for base in bases {
        let value = value(name, base, place, section.got_address());
        let stored = stored(name, old, value).map(|stored| stored & u64::MAX >> (64 - 8 * content.len()));
        if stored == Some(found) {
            return Ok(range);
        }
        expected.push(stored.map_or(format!("a refusal of {value:#x}"), |stored| format!("{stored:#x}")));
    }
    let expected = if expected.is_empty() { "an entry of the GOT".to_string() } else { expected.join(" or ") };
    Err(Mismatch::new(relocation.offset, relocation.name, format!("{found:#x}"), expected))
}

/// Whether a relocation is the kind of address that an exception table may have for a type, and that range extension replaces:
/// none is replaced here.
pub(crate) fn is_type_address(_: &Relocation) -> bool {
    false
}

/// Whether `stub` is the address of a stub whose slot holds `target`: `bti c; adrp x16; ldr x17, [x16]; br x17`.
pub(crate) fn is_stub_for(section: &dyn SectionView, stub: u64, target: u64) -> bool {
    let Some(code) = section.stub(stub).filter(|code| code.len() == 16) else { return false };
    let [bti, page, load, jump] = [0, 4, 8, 12].map(|at| FieldValue::of(&code[at..at + 4]).unsigned as u32);
    let Some(page) = page_of_adrp(page, stub.wrapping_add(4)).filter(|_| page & 0x1f == 16) else { return false };
    let slot = page.wrapping_add(u64::from(load >> 10 & 0xfff) * 8);
    (bti, load & 0xffc0_03ff, jump) == (0xd503_245f, 0xf940_0211, 0xd61f_0220) && section.got_word(slot) == Some(target)
}

/// Whether a branch is `old` in the object, and leads in memory to a veneer that jumps to its target: `bti c; adrp x16;
/// add x17, x16; br x17`, or a load of a slot in place of the addition.
fn leads_by_veneer(section: &dyn SectionView, relocation: &Relocation, place: u64, old: u32, found: u32) -> bool {
    let distance = i64::from((found << 6) as i32 >> 4);
    let veneer = place.wrapping_add_signed(distance);
    let target = section.symbol_address(relocation.symbol).wrapping_add_signed(relocation.addend);
    let Some(code) = section.veneer(veneer).filter(|_| old >> 26 == found >> 26) else { return false };
    let [bti, page, low, jump] = [0, 4, 8, 12].map(|at| FieldValue::of(&code[at..at + 4]).unsigned as u32);
    let is_to_x16 = page & 0x1f == 16;
    let Some(page) = page_of_adrp(page, veneer.wrapping_add(4)).filter(|_| is_to_x16) else { return false };
    let offset = u64::from(low >> 10 & 0xfff);
    let is_to_target = match low & 0xffc0_03ff {
        0x9100_0211 => page.wrapping_add(offset) == target,
        0xf940_0211 => section.got_word(page.wrapping_add(offset * 8)) == Some(target),
        _ => false,
    };
    (bti, jump) == (0xd503_245f, 0xd61f_0220) && is_to_target
}

/// The instruction of a call with a distance.
pub(crate) fn call(old: u32, distance: i64) -> Option<u32> {
    stored("CALL26", old.into(), distance.into()).map(|call| call as u32)
}

/// Whether a section of notes has the property `GNU_PROPERTY_AARCH64_FEATURE_1_AND` with the bit for branch target
/// identification.
pub(crate) fn notes_say_marked(notes: &[u8], align: u64) -> bool {
    has_property(notes, align, 0xc000_0000)
}

/// The values that the formula of a type starts from: one, or the addresses of all entries of the GOT that suit the symbol.
fn bases(section: &dyn SectionView, relocation: &Relocation, name: &str) -> Result<Vec<i128>, Mismatch> {
    let (symbol, addend) = (relocation.symbol, i128::from(relocation.addend));
    let address = section.symbol_address(symbol);
    let plain = |address: u64| match name.contains("UABS") {
        true => i128::from(address) + addend,
        false => i128::from(address as i64) + addend,
    };
    let entries = |words: &dyn Fn(u64) -> Vec<u64>| -> Vec<i128> {
        if addend != 0 && name != "GOTPCREL32" {
            return Vec::new();
        }
        let start = section.got_address();
        let all = (0..).map(|number| start + 8 * number).take_while(|at| section.got_word(*at).is_some());
        let suits = |entry: &u64| {
            (0..).zip(words(*entry)).all(|(word, value)| section.got_word(entry + 8 * word) == Some(value))
        };
        all.filter(suits).map(|entry| i128::from(entry) + addend).collect()
    };
    Ok(match name.split('_').next().unwrap_or_default() {
        "TLSGD" => entries(&|_| section.pair(symbol)),
        "TLSDESC" => entries(&|entry| section.descriptor(symbol, entry)),
        "TLSIE" => {
            let words = section.static_offset(symbol, relocation.offset)?;
            entries(&|_| words.clone())
        }
        "TLSLE" => {
            let distance = section.static_offset(symbol, relocation.offset)?[0];
            vec![i128::from(distance as i64) + addend]
        }
        "TLSLD" if name.contains("DTPREL") => vec![i128::from(section.offset_from_own_block(symbol) as i64) + addend],
        "TLSLD" => entries(&|_| section.own_block()),
        _ if name.contains("GOT") && !name.starts_with("GOTREL") => entries(&|_| vec![address]),
        // A branch may go to a stub.
        "TSTBR14" | "CONDBR19" | "JUMP26" | "CALL26" | "PLT32" => {
            let stubs = stub_addresses(section, address);
            [address].into_iter().chain(stubs).map(plain).collect()
        }
        _ => vec![plain(address)],
    })
}

/// The stubs of an address.
fn stub_addresses(section: &dyn SectionView, target: u64) -> impl Iterator<Item = u64> {
    let start = section.stubs_address();
    let all = (0..).map(move |number| start + 16 * number).take_while(|stub| section.stub(*stub).is_some());
    all.filter(move |stub| is_stub_for(section, *stub, target))
}

/// The value of a formula. `base` is the part before the minus sign.
fn value(name: &str, base: i128, place: u64, got: u64) -> i128 {
    let page = |address: i128| address - address.rem_euclid(4096);
    let (place, got) = (i128::from(place), i128::from(got));
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    if has(&["PG_HI21", "PAGE21", "GOT_PAGE"]) {
        page(base) - page(place)
    } else if has(&["GOTPAGE"]) {
        base - page(got)
    } else if has(&["GOTOFF", "GOTREL", "TLSGD_MOVW", "TLSLD_MOVW_G", "TLSIE_MOVW", "TLSDESC_OFF"]) {
        base - got
    } else if name.starts_with("PREL") || has(&["_PREL", "PCREL", "BR14", "BR19", "JUMP26", "CALL26", "PLT32"]) {
        base - place
    } else {
        base
    }
}

/// The field with the value: `old` is the field in the object. `None` if the value does not fit.
pub(super) fn stored(name: &str, old: u64, value: i128) -> Option<u64> {
    let last = name.trim_end_matches("_NC").rsplit('_').next().unwrap_or_default();
    let fits = |low: i128, end: i128| (low..end).contains(&value).then_some(());
    let within = |bits: u32| fits(-(1 << bits), 1 << bits);
    // The bits of the value from `low` on, put into the instruction from `at` on.
    let put = |low: u32, count: u32, at: u32| {
        let mask = ((1 << count) - 1) << at;
        old & !mask | ((value >> low) as u64) << at & mask
    };
    // immlo and immhi.
    let put_address = |low: u32| {
        let bits = (value >> low) as u64;
        old & 0x9f00_001f | (bits & 3) << 29 | (bits >> 2 & 0x7_ffff) << 5
    };
    let is_multiple = |of: i128| (value % of == 0).then_some(());
    match last {
        "ABS64" | "PREL64" | "GOTREL64" => return Some(value as u64),
        "ABS32" | "PREL32" => fits(-(1 << 31), 1 << 32)?,
        "ABS16" | "PREL16" => fits(-(1 << 15), 1 << 16)?,
        "GOTREL32" | "PLT32" | "GOTPCREL32" => within(31)?,
        "G0" | "G1" | "G2" | "G3" => return moved(name, last, old, value),
        "LO15" => {
            fits(0, 1 << 15)?;
            is_multiple(8)?;
            return Some(put(3, 12, 10));
        }
        "HI12" => {
            fits(0, 1 << 24)?;
            return Some(put(12, 12, 10));
        }
        "LO12" => {
            let is_offset = name.contains("TPREL") && !name.contains("GOTTPREL") || name.contains("DTPREL");
            if is_offset && !name.ends_with("_NC") {
                fits(0, 1 << 12)?;
            }
            let scale = access_scale(name);
            is_multiple(1 << scale)?;
            // The whole field: its upper bits are zero.
            return Some(old & !(0xfff << 10) | ((value >> scale) as u64 & 0xfff >> scale) << 10);
        }
        "LO19" | "PREL19" | "CONDBR19" => {
            within(20)?;
            is_multiple(4)?;
            return Some(put(2, 19, 5));
        }
        "TSTBR14" => {
            within(15)?;
            is_multiple(4)?;
            return Some(put(2, 14, 5));
        }
        "JUMP26" | "CALL26" => {
            within(27)?;
            is_multiple(4)?;
            return Some(put(2, 26, 0));
        }
        "LO21" | "PREL21" => {
            within(20)?;
            return Some(put_address(0));
        }
        "HI21" | "PAGE21" | "PAGE" => {
            if !name.ends_with("_NC") {
                within(32)?;
            }
            return Some(put_address(12));
        }
        _ => return None,
    }
    Some(value as u64)
}

/// The scale of the offset of a load or store; zero for an addition.
fn access_scale(name: &str) -> u32 {
    let access = name.split('_').find_map(|part| part.strip_prefix("LDST").or_else(|| part.strip_prefix("LD")));
    match access {
        Some("16") => 1,
        Some("32") => 2,
        Some("64") => 3,
        Some("128") => 4,
        _ => 0,
    }
}

/// A move of 16 bits of the value.
fn moved(name: &str, group: &str, old: u64, value: i128) -> Option<u64> {
    let group = match group {
        "G0" => 0,
        "G1" => 1,
        "G2" => 2,
        _ => 3,
    };
    let end = 1i128 << (16 * (group + 1));
    let is_checked = !name.ends_with("_NC") && group < 3;
    let put = |opcode: u64, value: i128| old & 0x9fe0_001f | opcode | ((value >> (16 * group)) as u64 & 0xffff) << 5;
    let opcode = old & 0x6000_0000;
    if name.contains("UABS") || name.ends_with("_NC") {
        return (!is_checked || (0..end).contains(&value)).then(|| put(opcode, value));
    }
    if is_checked && !(-end..end).contains(&value) {
        return None;
    }
    Some(match (opcode, value < 0) {
        (0x6000_0000, _) => put(opcode, value), // MOVK
        (_, true) => put(0, !value),            // MOVN
        (_, false) => put(0x4000_0000, value),  // MOVZ
    })
}

/// The page that an ADRP at an address makes; `None` for another instruction.
fn page_of_adrp(instruction: u32, address: u64) -> Option<u64> {
    if instruction & 0x9f00_0000 != 0x9000_0000 {
        return None;
    }
    let pages = (instruction >> 5 & 0x7_ffff) << 2 | instruction >> 29 & 3;
    let pages = i64::from((pages << 11) as i32 >> 11);
    Some((address & !0xfff).wrapping_add_signed(pages << 12))
}
