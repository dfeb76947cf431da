//! [`CallFrame`]: the unwind information of one piece of code, for profilers that write it to a file of their own.
//!
//! gimli parses the records and their pointers. The call frame instructions are copied unparsed: no instruction that
//! compilers write depends on its own address.

use gimli::{BaseAddresses, CieOrFde, EhFrame, EhFrameOffset, LittleEndian, UnwindSection};

use crate::base::{ExecutorAddr, NumberMap};
use crate::link::frames::{Record, Records, without_version_4};

/// How to unwind the frames of one piece of code: an FDE and its CIE (DWARF 5, 6.4), without the C++ runtime's
/// augmentation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallFrame {
    /// The first byte of the code.
    pub start: ExecutorAddr,
    /// Size of the code in bytes.
    pub size: u64,
    /// The code alignment factor.
    pub code_alignment: u64,
    /// The data alignment factor.
    pub data_alignment: i64,
    /// The register column of the return address.
    pub return_register: u16,
    /// Whether this is a signal frame (augmentation `S`).
    pub is_signal_frame: bool,
    /// The initial instructions, from the CIE.
    pub initial: Vec<u8>,
    /// The instructions of the FDE.
    pub instructions: Vec<u8>,
}

/// Reads all frames of a fixed-up `.eh_frame` at `address`.
///
/// Skips what cannot be read: the link itself reads the section (`frames.rs`) and refuses a malformed one. It also skips
/// frames with more than [`MAX_INITIAL_BYTES`] of initial instructions.
pub(super) fn read(section: &[u8], address: ExecutorAddr) -> Vec<CallFrame> {
    let mut frames = Vec::new();
    let mut start = 0;
    for record in (Records { section, at: 0 }) {
        if let Record::Terminator { at } = record {
            read_part(&section[start..at], address.offset(start as u64), &mut frames);
            start = at + 4;
        }
    }
    read_part(&section[start..], address.offset(start as u64), &mut frames);
    frames
}

fn read_part(part: &[u8], address: ExecutorAddr, frames: &mut Vec<CallFrame>) {
    let Ok(part) = &without_version_4(part) else { return };
    let bases = BaseAddresses::default().set_eh_frame(address.value());
    let eh_frame = EhFrame::new(part, LittleEndian);
    let mut entries = eh_frame.entries(&bases);
    // Many small FDEs may name one long CIE. Each CIE is parsed once.
    let mut cies = NumberMap::new();
    let mut initials = NumberMap::new();
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        let cie = |section: &EhFrame<_>, bases: &BaseAddresses, at: EhFrameOffset| {
            cies.get_or_insert_with(at.0 as u64, || section.cie_from_offset(bases, at)).clone()
        };
        let Ok(fde) = partial.parse(cie) else { continue };
        let cie = fde.cie();
        let is_augmented = cie.augmentation().is_some();
        let pointer_format = cie.fde_address_encoding().map_or(0, |encoding| encoding.0 & 0xf);
        let read_initial =
            || RecordReader::at(part, cie.offset()).and_then(|record| record.cie_instructions(is_augmented));
        let initial = initials.get_or_insert_with(cie.offset() as u64, read_initial).as_ref();
        let (Some(initial), Some(instructions)) = (
            initial.filter(|initial| initial.len() <= MAX_INITIAL_BYTES),
            RecordReader::at(part, fde.offset())
                .and_then(|record| record.fde_instructions(is_augmented, pointer_format)),
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

/// Reads a record, from the byte after its identifier on.
struct RecordReader<'a> {
    rest: &'a [u8],
}

impl<'a> RecordReader<'a> {
    fn at(section: &'a [u8], offset: usize) -> Option<RecordReader<'a>> {
        let (short, tail) = section.get(offset..)?.split_first_chunk::<4>()?;
        let body = match u32::from_le_bytes(*short) {
            u32::MAX => {
                let (long, tail) = tail.split_first_chunk::<8>()?;
                tail.get(..usize::try_from(u64::from_le_bytes(*long)).ok()?)?
            }
            length => tail.get(..length as usize)?,
        };
        // The identifier has four bytes in both formats, unlike in .debug_frame.
        Some(RecordReader { rest: body.get(4..)? })
    }

    fn cie_instructions(mut self, is_augmented: bool) -> Option<Vec<u8>> {
        let (version, _) = (self.byte()?, self.skip_string()?);
        for _ in 0..2 {
            self.leb()?; // the alignment factors
        }
        if version == 1 { self.byte().map(u64::from) } else { self.leb() }?;
        self.after_augmentation(is_augmented)
    }

    fn fde_instructions(mut self, is_augmented: bool, pointer_format: u8) -> Option<Vec<u8>> {
        // DW_EH_PE_*: absptr, [us]data2, [us]data4, [us]data8. Encodings of variable length do not occur for pointers
        // to code.
        let width = match pointer_format & 7 {
            0 | 4 => 8,
            2 => 2,
            3 => 4,
            _ => return None,
        };
        self.rest = self.rest.get(2 * width..)?;
        self.after_augmentation(is_augmented)
    }

    /// The bytes after the augmentation data.
    fn after_augmentation(mut self, is_augmented: bool) -> Option<Vec<u8>> {
        let data = if is_augmented { self.leb()? } else { 0 };
        self.rest.get(usize::try_from(data).ok()?..).map(<[u8]>::to_vec)
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn skip_string(&mut self) -> Option<()> {
        let end = memchr::memchr(0, self.rest)?;
        self.rest = &self.rest[end + 1..];
        Some(())
    }

    /// Reads a ULEB128 number. It also skips an SLEB128 number, but then the returned value is wrong.
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

/// The most bytes of a CIE's initial instructions. Each FDE of the CIE gets a copy of them. Compilers write ten.
const MAX_INITIAL_BYTES: usize = 512;
