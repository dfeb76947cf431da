//! [`has_property`]: the properties of an object, for the verifier.

use crate::arch::verify::FieldValue;

/// Whether a section of notes has a property `kind` of 32 bits with bit 0 set (gABI, "Note Section"; the Linux extensions to it,
/// "Program Property").
pub(crate) fn has_property(mut notes: &[u8], align: u64, kind: u32) -> bool {
    let note_align = if align == 8 { 8 } else { 4 };
    while let Some(note) = Note::split(&mut notes, note_align) {
        let mut properties = if (note.owner, note.kind) == (&b"GNU\0"[..], 5) { note.content } else { &[] };
        while let Some((head, rest)) = properties.split_at_checked(8) {
            let (found, size) = (word(head, 0), word(head, 4) as usize);
            if found == kind && size == 4 && rest.first().is_some_and(|byte| byte & 1 == 1) {
                return true;
            }
            properties = rest.get(size.next_multiple_of(8)..).unwrap_or_default();
        }
    }
    false
}

/// A note of an ELF file (gABI, "Note Section").
struct Note<'a> {
    owner: &'a [u8],
    kind: u32,
    content: &'a [u8],
}

impl<'a> Note<'a> {
    /// Splits the first note off.
    fn split(notes: &mut &'a [u8], align: usize) -> Option<Note<'a>> {
        let (owner_size, size) = (word(notes.get(..12)?, 0) as usize, word(notes, 4) as usize);
        let start = owner_size.checked_add(12)?.checked_next_multiple_of(align)?;
        let end = start.checked_add(size)?;
        let note =
            Note { owner: notes.get(12..12 + owner_size)?, kind: word(notes, 8), content: notes.get(start..end)? };
        *notes = notes.get(end.checked_next_multiple_of(align)?..).unwrap_or_default();
        Some(note)
    }
}

/// The word at an offset that the caller has checked.
fn word(bytes: &[u8], at: usize) -> u32 {
    FieldValue::of(&bytes[at..at + 4]).unsigned as u32
}
