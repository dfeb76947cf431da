//! The properties of an object: notes of the owner "GNU" and the type `NT_GNU_PROPERTY_TYPE_0`, usually in
//! `.note.gnu.property`.

use object::read::elf::SectionHeader as _;

use crate::link::elf::read::Reader;
use crate::link::elf::{LE, SectionHeader};
use crate::link::graph::BlockId;

impl Reader<'_, '_> {
    /// Reads a section of notes. Notes describe a file and not running code, so there is no block. A note that is
    /// malformed says nothing.
    #[cold]
    pub(super) fn notes(&mut self, section: &SectionHeader) -> Option<BlockId> {
        let arch = self.object.arch;
        let mut notes = section.notes(LE, self.object.bytes).ok()??;
        while let Ok(Some(note)) = notes.next() {
            let Some(mut properties) = note.gnu_properties(LE) else { continue };
            while let Ok(Some(property)) = properties.next() {
                let value = property.data_u32(LE).unwrap_or(0);
                self.graph.marks_entries |= arch.is_mark_property(property.pr_type().0, value);
            }
        }
        None
    }
}
