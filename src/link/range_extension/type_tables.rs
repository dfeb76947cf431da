//! Changes the encoding of exception tables that name types with 32-bit addresses (LSB 5.0, "Exception Frames"; the
//! `.gcc_except_table` of the C++ ABI).
//!
//! ```text
//!   LPStart encoding (omitted) │ type encoding │ uleb: from here to the types' end │ call sites, actions … │ types │ filters
//! ```
//!
//! A table counts its types backwards from their end. Four-byte encodings have entries of one size, so a change from
//! one to another moves nothing.

use std::ops::Range;

/// Changes every type table of 32-bit addresses to one of distances to slots (`DW_EH_PE_indirect | pcrel | sdata4`),
/// and returns the ranges in which the entries of those tables lie. The caller writes the entries.
///
/// `starts` are the offsets of the exception tables. `fields` are the offsets of all addresses in the section,
/// ascending. Other tables stay as they are, and so do tables that name no type.
pub(super) fn change_encoding<K>(bytes: &mut [u8], starts: &[(K, u64)], fields: &[usize]) -> Vec<Range<usize>> {
    let mut tables = Vec::new();
    for (_, start) in starts {
        let start = usize::try_from(*start).unwrap_or(usize::MAX);
        let has_fields = |table: &Range<usize>| {
            let first = fields.partition_point(|field| *field < table.start);
            fields.get(first).is_some_and(|field| *field < table.end)
        };
        if let Some(table) = type_range(bytes, start).filter(has_fields) {
            bytes[start + 1] = INDIRECT_PCREL_SDATA4;
            tables.push(table);
        }
    }
    tables
}

/// The range in which the types of the exception table at `start` lie, if they are 32-bit addresses.
fn type_range(bytes: &[u8], start: usize) -> Option<Range<usize>> {
    let [OMITTED, UDATA4, length @ ..] = bytes.get(start..)? else { return None };
    let (distance, size) = uleb(length)?;
    let first = start + 2 + size;
    let end = first.checked_add(usize::try_from(distance).ok()?).filter(|end| *end <= bytes.len())?;
    Some(first..end)
}

/// Decodes a ULEB128 number of at most nine bytes; returns the number and its size in bytes.
fn uleb(bytes: &[u8]) -> Option<(u64, usize)> {
    let size = bytes.iter().take(9).position(|byte| byte & 0x80 == 0)? + 1;
    let number = bytes[..size].iter().rev().fold(0, |number, byte| number << 7 | u64::from(byte & 0x7f));
    Some((number, size))
}

// DW_EH_PE_*.
const OMITTED: u8 = 0xff;
const UDATA4: u8 = 0x03;
const INDIRECT_PCREL_SDATA4: u8 = 0x9b;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tables_of_32_bit_addresses_change_their_encoding() {
        let mut bytes = vec![0xff, 0x03, 0x86, 0x00, 1, 1, 7, 7, 7, 7, 0xff, 0xff, 0, 0, 0xff, 0x03, 0x7f];
        let starts = [(0, 0), (0, 10), (0, 14), (0, 99), (0, u64::MAX)];
        assert_eq!(change_encoding(&mut bytes, &starts, &[]), [0..0; 0]);
        assert_eq!(bytes[1], 0x03, "it names no type");
        assert_eq!(change_encoding(&mut bytes, &starts, &[6]), [Range { start: 4, end: 10 }]);
        assert_eq!((bytes[1], bytes[11], bytes[15]), (0x9b, 0xff, 0x03), "omitted; past the end");
    }
}
