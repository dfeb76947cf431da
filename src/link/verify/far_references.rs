//! Checks far references in exception tables. Range extension replaces an address that is out of reach by the distance
//! to a slot. The slot holds the 64-bit address, and the table's encoding changes to that of distances. The
//! architecture checks far references in code.

use std::ops::Range;

use super::field_verifier::FieldVerifier;
use crate::arch::verify::{FieldValue, Mismatch, Relocation, SectionView as _};

impl FieldVerifier<'_> {
    /// Whether the field is the distance to a slot that holds the address.
    pub(super) fn leads_to_slot(&self, relocation: &Relocation) -> bool {
        if !self.link.graph.arch.is_type_address(relocation) {
            return false;
        }
        let slots = self.block(self.link.tables.range_extension.slots());
        let (Some((start, slots)), Some(field)) = (slots, self.memory.get(relocation.field())) else { return false };
        let at =
            self.address.wrapping_add(relocation.offset).wrapping_add(FieldValue::of(field).signed).wrapping_sub(start);
        let slot = usize::try_from(at).ok().and_then(|at| slots.get(at..at.checked_add(8)?));
        let target = self.symbol_address(relocation.symbol).wrapping_add(relocation.addend as u64);
        at % 8 == 0 && slot.is_some_and(|slot| FieldValue::of(slot).unsigned == target)
    }

    /// Explains the encoding bytes that range extension changed: writes them to `explained`, which holds the bytes that
    /// memory must have. A table whose entries lead to slots must have the encoding of distances.
    pub(super) fn explain_encodings(&self, explained: &mut [u8], relocations: &[Relocation]) -> Result<(), Mismatch> {
        let in_slots = || relocations.iter().filter(|relocation| self.leads_to_slot(relocation));
        if self.link.tables.range_extension.slots().is_none() || in_slots().next().is_none() {
            return Ok(());
        }
        let is_changed = |at: &usize| explained[*at] == 0x03 && self.memory.get(*at) == Some(&0x9b);
        let changed: Vec<usize> = (0..explained.len()).filter(is_changed).collect();
        let tables: Vec<Range<usize>> = changed.iter().map(|at| type_range(explained, *at)).collect();
        let has_encoding =
            |relocation: &&Relocation| tables.iter().any(|types| types.contains(&relocation.field().start));
        if let Some(relocation) = in_slots().find(|relocation| !has_encoding(relocation)) {
            return Err(Mismatch::new(
                relocation.offset,
                relocation.name,
                "a distance",
                "an address, by its table's encoding",
            ));
        }
        for (at, types) in changed.iter().zip(tables) {
            if in_slots().any(|relocation| types.contains(&relocation.field().start)) {
                explained[*at] = 0x9b;
            }
        }
        Ok(())
    }
}

/// The range of the types whose encoding is at `at`. The ULEB128 number after the encoding is the distance to their
/// end.
fn type_range(table: &[u8], at: usize) -> Range<usize> {
    let length = table[at + 1..].iter().take(9).position(|byte| byte & 0x80 == 0).map_or(0, |last| last + 1);
    let start = at + 1 + length;
    let distance = table[at + 1..start].iter().rev().fold(0, |number, byte| number << 7 | usize::from(byte & 0x7f));
    start..start.saturating_add(distance)
}
