//! [`FieldValue`]: the bytes of a field as a number.

/// A little-endian field of up to eight bytes, widened in both ways.
pub(crate) struct FieldValue {
    pub(crate) signed: u64,
    pub(crate) unsigned: u64,
}

impl FieldValue {
    pub(crate) fn of(field: &[u8]) -> FieldValue {
        let extended = |filler: u8| {
            let mut word = [filler; 8];
            let width = field.len().min(8);
            word[..width].copy_from_slice(&field[..width]);
            u64::from_le_bytes(word)
        };
        let is_negative = field.last().is_some_and(|byte| byte & 0x80 != 0);
        FieldValue { signed: extended(if is_negative { 0xff } else { 0 }), unsigned: extended(0) }
    }
}
