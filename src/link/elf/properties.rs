//! The properties of an object: notes of the owner "GNU" and the type `NT_GNU_PROPERTY_TYPE_0`, usually in
//! `.note.gnu.property`.
//!
//! A linker reads the sections of that name and writes its own, so they are not loaded. Other notes are data like any
//! other: code may refer to them.

use object::read::elf::SectionHeader as _;

use crate::link::elf::read::Reader;
use crate::link::elf::{LE, SectionHeader};

impl Reader<'_, '_> {
    /// Reads the properties in a section of notes. A note that is malformed says nothing.
    #[cold]
    pub(super) fn properties(&mut self, section: &SectionHeader) {
        let arch = self.object.arch;
        let Ok(Some(mut notes)) = section.notes(LE, self.object.bytes) else { return };
        while let Ok(Some(note)) = notes.next() {
            let Some(mut properties) = note.gnu_properties(LE) else { continue };
            while let Ok(Some(property)) = properties.next() {
                let value = property.data_u32(LE).unwrap_or(0);
                self.graph.marks_entries |= arch.is_mark_property(property.pr_type().0, value);
            }
        }
    }
}
