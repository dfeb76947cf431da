//! [`UnwindTable`]: the `.eh_frame` of functions whose call frame instructions a generator hands over (LSB 5.0, "Exception
//! Frames"). It has one CIE, and an FDE for each function.

use crate::arch::{Arch, EdgeKind};
use crate::link::graph::{Edge, SymbolIndex};

/// The section while it grows. Empty as long as no function has unwind information.
#[derive(Default)]
pub(super) struct UnwindTable {
    content: Vec<u8>,
    edges: Vec<Edge>,
}

impl UnwindTable {
    /// Appends the FDE of a function of `size` bytes.
    pub(super) fn add(&mut self, arch: Arch, function: SymbolIndex, size: u32, instructions: &[u8]) {
        if self.content.is_empty() {
            let body = arch.frameless_cie();
            self.push_record(0, &[&body]);
        }
        // The pointer to the CIE is the distance from the field to the CIE, which is at the start of the section.
        let cie_pointer = self.content.len() as u32 + 4;
        let start = cie_pointer + 4;
        // The start of the function (an edge writes it), its size, and no augmentation data.
        self.push_record(cie_pointer, &[&[0; 4], &size.to_le_bytes(), &[0], instructions]);
        self.edges.push(Edge { offset: start, kind: EdgeKind::Delta32, symbol: function, addend: 0 });
    }

    /// Appends a record: its length, its id or CIE pointer, and `parts`. `DW_CFA_nop` (0) fills it to whole words.
    fn push_record(&mut self, id: u32, parts: &[&[u8]]) {
        let size: usize = parts.iter().map(|part| part.len()).sum();
        // With the length field itself, the record has a multiple of eight bytes.
        let length = (size + 4 + 4).next_multiple_of(8) - 4;
        let end = self.content.len() + 4 + length;
        self.content.extend((length as u32).to_le_bytes());
        self.content.extend(id.to_le_bytes());
        parts.iter().for_each(|part| self.content.extend_from_slice(part));
        self.content.resize(end, 0);
    }

    /// The section and its edges. `None` if no function has unwind information.
    pub(super) fn take(&mut self) -> Option<(Vec<u8>, Vec<Edge>)> {
        (!self.content.is_empty()).then(|| (std::mem::take(&mut self.content), std::mem::take(&mut self.edges)))
    }
}
