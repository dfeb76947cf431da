//! Finds the functions that an object's `.eh_frame` describes, after fix-up (LSB 5.0, "Exception Frames").
//!
//! The section itself stays where it was linked; the unwinder reads it there. Only `(function, FDE)` pairs are taken
//! out, for the frame table. FDEs of dropped functions describe no address of this object and are left out by memory.

use gimli::{BaseAddresses, CieOrFde, EhFrame, LittleEndian, UnwindSection};

use crate::base::ExecutorAddr;
use crate::memory::Frame;

/// At most how many FDEs a section has: its records, counted by their lengths.
pub(crate) fn count_records(section: &[u8]) -> u64 {
    let mut rest = section;
    let mut count = 0;
    while let Some((length, tail)) = rest.split_first_chunk::<4>() {
        let (length, tail) = match u32::from_le_bytes(*length) {
            0 => (0, tail),
            u32::MAX => match tail.split_first_chunk::<8>() {
                Some((length, tail)) => (u64::from_le_bytes(*length), tail),
                None => break,
            },
            length => (u64::from(length), tail),
        };
        let Some(next) = usize::try_from(length).ok().and_then(|length| tail.get(length..)) else { break };
        count += u64::from(length != 0);
        rest = next;
    }
    count
}

/// The frames of a fixed-up `.eh_frame` that stands at `address`; an error in the words of DWARF.
pub(crate) fn find_frames(section: &[u8], address: ExecutorAddr, frames: &mut Vec<Frame>) -> Result<(), String> {
    let bases = BaseAddresses::default().set_eh_frame(address.value());
    let mut rest = section;
    let mut skipped = 0;
    // A terminator may stand in the middle, where sections were merged: gimli stops at it, and is started again behind.
    while !rest.is_empty() {
        let parsed = find_until_terminator(rest, address.offset(skipped), &bases, frames)?;
        let Some(next) = rest.get(parsed..) else { break };
        rest = next;
        skipped += parsed as u64;
    }
    Ok(())
}

/// Parses up to a terminator or the end; how many bytes that were.
fn find_until_terminator(
    section: &[u8],
    address: ExecutorAddr,
    bases: &BaseAddresses,
    frames: &mut Vec<Frame>,
) -> Result<usize, String> {
    let bases = bases.clone().set_eh_frame(address.value());
    let eh_frame = EhFrame::new(section, LittleEndian);
    let mut entries = eh_frame.entries(&bases);
    let mut end = 0;
    while let Some(entry) = entries.next().map_err(|error| error.to_string())? {
        let (offset, length) = match &entry {
            CieOrFde::Cie(cie) => (cie.offset(), cie.entry_len()),
            CieOrFde::Fde(partial) => {
                let fde = partial.parse(EhFrame::cie_from_offset).map_err(|error| error.to_string())?;
                if fde.len() > 0 {
                    let start = ExecutorAddr::new(fde.initial_address());
                    frames.push(Frame { start, fde: address.offset(fde.offset() as u64) });
                }
                (fde.offset(), fde.entry_len())
            }
        };
        end = offset + 4 + length;
    }
    // What is left is a terminator, or nothing.
    Ok((end + 4).min(section.len()).max(4))
}
