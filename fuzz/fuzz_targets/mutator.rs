//! Mutations that use the structure of an ELF object.
//!
//! Half of all mutations are those of libFuzzer, which change bytes. The others do one of these:
//!
//! - change a field of the file header, a section header, a symbol or a relocation;
//! - overwrite a record with another record;
//! - add a section header;
//! - give a section or a symbol a name that has a special meaning for the linker.

use libfuzzer_sys::fuzzer_mutate;

/// Mutates the first `size` bytes of `data`. Returns the new size, which is at most `max_size`.
pub fn mutate(data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    let mut dice = Dice(u64::from(seed) << 1 | 1);
    if size < 64 || dice.roll(2) == 0 {
        return fuzzer_mutate(data, size, max_size);
    }
    let mut size = size;
    for _ in 0..1 + dice.roll(3) {
        size = change(&mut dice, data, size, max_size).unwrap_or(size);
    }
    size
}

fn change(dice: &mut Dice, data: &mut [u8], size: usize, max_size: usize) -> Option<usize> {
    let table = load(data, size, 40, 8)? as usize;
    let count = (load(data, size, 60, 2)? as usize).min(4096);
    let header = |index: usize| plus(table, index * SECTION);
    let section = header(dice.roll(count.max(1)));
    match dice.roll(16) {
        0 => {
            let (at, width) = dice.pick(&FILE_FIELDS);
            overwrite(dice, data, size, at, width)?;
        }
        1..=4 => {
            let (at, width) = dice.pick(&SECTION_FIELDS);
            let value = section_value(dice, data, size, section, at, count);
            match value {
                Some(value) if dice.roll(3) > 0 => store(data, size, plus(section, at), width, value)?,
                _ => overwrite(dice, data, size, plus(section, at), width)?,
            }
        }
        5 => {
            let other = header(dice.roll(count.max(1)));
            copy(data, size, other, section, SECTION)?;
        }
        6 => return add_section(dice, data, size, max_size, table, count),
        7..=9 => record(dice, data, size, table, count, SYMTAB, &SYMBOL_FIELDS, 24)?,
        10..=12 => record(dice, data, size, table, count, RELA, &RELOCATION_FIELDS, 24)?,
        13 => record(dice, data, size, table, count, GROUP, &[(0, 4)], 4)?,
        14 => name_section(dice, data, size, table, section)?,
        _ => {
            // The contents of a section: unwind tables, strings, lists.
            let (start, length) =
                (load(data, size, plus(section, 24), 8)? as usize, load(data, size, plus(section, 32), 8)? as usize);
            let at = plus(start, dice.roll(length.clamp(1, size)));
            let width = dice.pick(&[1, 2, 4, 8]);
            overwrite(dice, data, size, at, width)?;
        }
    }
    Some(size)
}

/// A plausible value of a field of a section header. `None` if the field has no special values.
fn section_value(dice: &mut Dice, data: &[u8], size: usize, section: usize, at: usize, count: usize) -> Option<u64> {
    Some(match at {
        4 => dice.pick(&[0, 1, 2, 3, 4, 7, 8, 9, 14, 15, 16, 17, 18, 0x4000_0014, 0x7000_0001]),
        8 => {
            let flags = load(data, size, plus(section, at), 8)?;
            flags ^ dice.pick(&[1, 2, 4, 0x10, 0x20, 0x40, 0x80, 0x200, 0x400, 0x800, 0x20_0000])
        }
        24 => dice.roll(size) as u64,
        32 => dice.pick(&[0, 1, 7, 8, 24, 48, size as u64, 1 << 20, 1 << 29, (1 << 31) - 1, 1 << 31, u32::MAX.into()]),
        40 | 44 => dice.roll(count + 1) as u64,
        48 => 1 << dice.roll(64),
        _ => return None,
    })
}

/// Changes a field of a random record, in a random section of type `kind`.
#[allow(clippy::too_many_arguments)]
fn record(
    dice: &mut Dice,
    data: &mut [u8],
    size: usize,
    table: usize,
    count: usize,
    kind: u64,
    fields: &[(usize, usize)],
    width: usize,
) -> Option<()> {
    let first = dice.roll(count.max(1));
    let has_kind = |index: &usize| load(data, size, plus(table, index * SECTION + 4), 4) == Some(kind);
    let index = (first..count).chain(0..first).find(has_kind)?;
    let section = plus(table, index * SECTION);
    let (start, length) =
        (load(data, size, plus(section, 24), 8)? as usize, load(data, size, plus(section, 32), 8)? as usize);
    let records = length.min(size) / width;
    let at = |number: usize| plus(start, number * width);
    let chosen = at(dice.roll(records.max(1)));
    if dice.roll(8) == 0 {
        let other = at(dice.roll(records.max(1)));
        return copy(data, size, other, chosen, width);
    }
    let (field, field_width) = dice.pick(fields);
    let value = match (kind, field) {
        (RELA, 8) => Some(dice.roll(52) as u64),
        (RELA, 0) => Some(dice.roll(512) as u64),
        (SYMTAB, 6) => Some(dice.pick(&[0, 0xfff1, 0xfff2, 0xffff, dice.0 % 16])),
        (SYMTAB, 4) => Some(dice.pick(&[0, 1, 2, 3, 4, 6, 10]) | dice.pick(&[0, 1, 2, 10]) << 4),
        (SYMTAB, 8 | 16) => Some(1 << dice.roll(64)),
        (GROUP, _) => Some(dice.roll(count + 1) as u64),
        (_, 12) => Some(dice.roll(64) as u64),
        _ => None,
    };
    match value {
        Some(value) if dice.roll(4) > 0 => store(data, size, plus(chosen, field), field_width, value),
        _ => overwrite(dice, data, size, plus(chosen, field), field_width),
    }
}

/// Adds a section header, which is a copy of another. Moves the table to the end of the object before.
fn add_section(
    dice: &mut Dice,
    data: &mut [u8],
    size: usize,
    max_size: usize,
    table: usize,
    count: usize,
) -> Option<usize> {
    let (old, new) = (count * SECTION, (count + 1) * SECTION);
    if plus(table, old) > size || count == 0 {
        return None;
    }
    // A table at the end stays where it is.
    let start = if table + old == size { table } else { size.next_multiple_of(8) };
    let end = start + new;
    if end > max_size || end > data.len() || count >= 0xff00 {
        return None;
    }
    data[size..end].fill(0);
    data.copy_within(table..table + old, start);
    let twin = start + dice.roll(count) * SECTION;
    data.copy_within(twin..twin + SECTION, start + old);
    store(data, end, 40, 8, start as u64)?;
    store(data, end, 60, 2, count as u64 + 1)?;
    Some(end)
}

/// Overwrites a name in a string table with a name that has a special meaning.
fn name_section(dice: &mut Dice, data: &mut [u8], size: usize, table: usize, section: usize) -> Option<()> {
    let strings = if dice.roll(2) == 0 { plus(table, load(data, size, 62, 2)? as usize * SECTION) } else { section };
    let (start, length) =
        (load(data, size, plus(strings, 24), 8)? as usize, load(data, size, plus(strings, 32), 8)? as usize);
    let offset = dice.roll(length.clamp(1, size));
    // The start of the name that contains `offset`.
    let bytes = data.get(..size)?.get(start..)?;
    let at = start + bytes.get(..offset)?.iter().rposition(|byte| *byte == 0).map_or(0, |at| at + 1);
    let name = dice.pick(&NAMES);
    let end = at + name.len();
    data.get_mut(..size)?.get_mut(at..end)?.copy_from_slice(name.as_bytes());
    if dice.roll(2) == 0 {
        // Gives the section this name.
        store(data, size, section, 4, (at - start) as u64)?;
    }
    Some(())
}

fn overwrite(dice: &mut Dice, data: &mut [u8], size: usize, at: usize, width: usize) -> Option<()> {
    let before = load(data, size, at, width)?;
    let value = match dice.roll(4) {
        0 => before.wrapping_add(dice.roll(33) as u64).wrapping_sub(16),
        1 => before ^ 1 << dice.roll(width * 8),
        2 => 1 << dice.roll(width * 8),
        _ => dice.pick(&VALUES),
    };
    store(data, size, at, width, value)
}

/// Adds two offsets. The object can contain any value, so the sum saturates, and the result is then out of bounds.
fn plus(offset: usize, distance: usize) -> usize {
    offset.saturating_add(distance)
}

fn load(data: &[u8], size: usize, at: usize, width: usize) -> Option<u64> {
    let mut word = [0; 8];
    word[..width].copy_from_slice(data.get(..size)?.get(at..at.checked_add(width)?)?);
    Some(u64::from_le_bytes(word))
}

fn store(data: &mut [u8], size: usize, at: usize, width: usize, value: u64) -> Option<()> {
    let field = data.get_mut(..size)?.get_mut(at..at.checked_add(width)?)?;
    field.copy_from_slice(&value.to_le_bytes()[..width]);
    Some(())
}

fn copy(data: &mut [u8], size: usize, from: usize, to: usize, width: usize) -> Option<()> {
    if plus(from.max(to), width) > size {
        return None;
    }
    data.copy_within(from..from + width, to);
    Some(())
}

/// A generator of random numbers: SplitMix64.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ word >> 31) % sides.max(1) as u64) as usize
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.roll(of.len())]
    }
}

// The offset and the width of each field in bytes, by the gABI.
const FILE_FIELDS: [(usize, usize); 7] = [(16, 2), (18, 2), (40, 8), (52, 2), (58, 2), (60, 2), (62, 2)];
const SECTION_FIELDS: [(usize, usize); 10] =
    [(0, 4), (4, 4), (8, 8), (16, 8), (24, 8), (32, 8), (40, 4), (44, 4), (48, 8), (56, 8)];
const SYMBOL_FIELDS: [(usize, usize); 6] = [(0, 4), (4, 1), (5, 1), (6, 2), (8, 8), (16, 8)];
const RELOCATION_FIELDS: [(usize, usize); 4] = [(0, 8), (8, 4), (12, 4), (16, 8)];
const SECTION: usize = 64;
const SYMTAB: u64 = 2;
const RELA: u64 = 4;
const GROUP: u64 = 17;
const VALUES: [u64; 10] = [0, 1, 7, 0xff, 0xffff, 0x7fff_ffff, 0xffff_ffff, 1 << 40, i64::MAX as u64, u64::MAX];
const NAMES: [&str; 16] = [
    ".eh_frame\0",
    ".init_array\0",
    ".init_array.7\0",
    ".fini_array\0",
    ".ctors.5\0",
    ".dtors\0",
    ".preinit_array\0",
    ".gcc_except_table\0",
    "_TLS_MODULE_BASE_\0",
    "_GLOBAL_OFFSET_TABLE_\0",
    "__tls_get_addr\0",
    "__start_keep\0",
    "__stop_keep\0",
    "keep\0",
    "COMMON\0",
    "DW.ref.a\0",
];
