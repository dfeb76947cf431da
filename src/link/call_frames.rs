//! [`CallFrame`]: what an object's unwind tables say of some code, taken apart so that it can be written down elsewhere.
//!
//! gimli reads the records and their pointers; the instructions are copied as they stand, since none that compilers write
//! depends on its place.

use std::collections::BTreeMap;

use gimli::{BaseAddresses, CieOrFde, EhFrame, EhFrameOffset, LittleEndian, UnwindSection};

use crate::base::ExecutorAddr;
use crate::link::frames::{Record, Records};

/// How to unwind the frames of some code: an FDE and its CIE, in the words of DWARF, without what the C++ runtime adds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallFrame {
    /// The first byte of the code.
    pub start: ExecutorAddr,
    /// Bytes of code.
    pub size: u64,
    /// The factor of code offsets.
    pub code_alignment: u64,
    /// The factor of data offsets.
    pub data_alignment: i64,
    /// The column of the return address.
    pub return_register: u16,
    /// Whether the frame is one that a signal made.
    pub is_signal_frame: bool,
    /// Instructions of the CIE.
    pub initial: Vec<u8>,
    /// Instructions of the FDE.
    pub instructions: Vec<u8>,
}

/// All of a fixed-up `.eh_frame` that stands at `address`. What cannot be read is left out: the link has read the tables, too,
/// and refuses those that are malformed. Left out, too, is what begins with more than [`LONGEST_INITIAL`].
pub(super) fn read(section: &[u8], address: ExecutorAddr) -> Vec<CallFrame> {
    let mut frames = Vec::new();
    let mut start = 0;
    for record in (Records { section, at: 0 }) {
        if let Record::Terminator { at } = record {
            read_stretch(&section[start..at], address.offset(start as u64), &mut frames);
            start = at + 4;
        }
    }
    read_stretch(&section[start..], address.offset(start as u64), &mut frames);
    frames
}

fn read_stretch(stretch: &[u8], address: ExecutorAddr, frames: &mut Vec<CallFrame>) {
    let bases = BaseAddresses::default().set_eh_frame(address.value());
    let eh_frame = EhFrame::new(stretch, LittleEndian);
    let mut entries = eh_frame.entries(&bases);
    // Any number of small FDEs may name a CIE of any length: each of those is read once.
    let mut cies = BTreeMap::new();
    let mut initials = BTreeMap::new();
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        let cie = |section: &EhFrame<_>, bases: &BaseAddresses, at: EhFrameOffset| {
            cies.entry(at.0).or_insert_with(|| section.cie_from_offset(bases, at)).clone()
        };
        let Ok(fde) = partial.parse(cie) else { continue };
        let cie = fde.cie();
        let is_augmented = cie.augmentation().is_some();
        let pointer_format = cie.fde_address_encoding().map_or(0, |encoding| encoding.0 & 0xf);
        let read_initial = || Entry::at(stretch, cie.offset()).and_then(|entry| entry.cie_instructions(is_augmented));
        let initial = initials.entry(cie.offset()).or_insert_with(read_initial).as_ref();
        let (Some(initial), Some(instructions)) = (
            initial.filter(|initial| initial.len() <= LONGEST_INITIAL),
            Entry::at(stretch, fde.offset()).and_then(|entry| entry.fde_instructions(is_augmented, pointer_format)),
        ) else {
            continue;
        };
        frames.push(CallFrame {
            start: ExecutorAddr::new(fde.initial_address()),
            size: fde.len(),
            code_alignment: cie.code_alignment_factor(),
            data_alignment: cie.data_alignment_factor(),
            return_register: cie.return_address_register().0,
            is_signal_frame: cie.is_signal_trampoline(),
            initial: initial.clone(),
            instructions,
        });
    }
}

/// What is left of a record, from behind its identifier on.
struct Entry<'a> {
    left: &'a [u8],
}

impl<'a> Entry<'a> {
    fn at(section: &'a [u8], offset: usize) -> Option<Entry<'a>> {
        let (short, tail) = section.get(offset..)?.split_first_chunk::<4>()?;
        let body = match u32::from_le_bytes(*short) {
            u32::MAX => {
                let (long, tail) = tail.split_first_chunk::<8>()?;
                tail.get(..usize::try_from(u64::from_le_bytes(*long)).ok()?)?
            }
            length => tail.get(..length as usize)?,
        };
        // Four bytes here in both formats, unlike in .debug_frame.
        Some(Entry { left: body.get(4..)? })
    }

    fn cie_instructions(mut self, is_augmented: bool) -> Option<Vec<u8>> {
        let (version, _) = (self.byte()?, self.text()?);
        for _ in 0..2 {
            self.leb()?; // both factors
        }
        if version == 1 { self.byte().map(u64::from) } else { self.leb() }?;
        self.rest(is_augmented)
    }

    fn fde_instructions(mut self, is_augmented: bool, pointer_format: u8) -> Option<Vec<u8>> {
        // DW_EH_PE_*: absptr; [us]data2, 4 and 8; those of variable length are not pointers to code.
        let width = match pointer_format & 7 {
            0 | 4 => 8,
            2 => 2,
            3 => 4,
            _ => return None,
        };
        self.left = self.left.get(2 * width..)?;
        self.rest(is_augmented)
    }

    /// Behind the augmentation's data.
    fn rest(mut self, is_augmented: bool) -> Option<Vec<u8>> {
        let data = if is_augmented { self.leb()? } else { 0 };
        self.left.get(usize::try_from(data).ok()?..).map(<[u8]>::to_vec)
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, left) = self.left.split_first()?;
        self.left = left;
        Some(*first)
    }

    fn text(&mut self) -> Option<()> {
        let end = memchr::memchr(0, self.left)?;
        self.left = &self.left[end + 1..];
        Some(())
    }

    fn leb(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

/// Bytes of a CIE's instructions, of which each of its FDEs gets a copy. Compilers write ten.
const LONGEST_INITIAL: usize = 512;
