//! Finds the functions that an object's `.eh_frame` describes, after fix-up (LSB 5.0, "Exception Frames").
//!
//! The section itself stays where it was linked; the unwinder reads it there. Only `(function, FDE)` pairs are taken
//! out, for the frame table. FDEs of dropped functions describe no address of this object and are left out by memory.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use gimli::{BaseAddresses, CieOrFde, EhFrame, EhFrameOffset, LittleEndian, UnwindSection};

use crate::base::ExecutorAddr;
use crate::memory::Frame;

/// How many FDEs a section has: its records by their lengths, without those whose identifier says CIE.
pub(crate) fn count_records(section: &[u8]) -> u64 {
    Records { section, at: 0 }.filter(|record| matches!(record, Record::Entry { is_cie: false, .. })).count() as u64
}

/// The frames of a fixed-up `.eh_frame` that stands at `address`; an error in the words of DWARF.
pub(crate) fn find_frames(section: &[u8], address: ExecutorAddr, frames: &mut Vec<Frame>) -> Result<(), String> {
    // A terminator may stand in the middle, where sections were merged: gimli would stop at it, so it is given the
    // stretches between.
    let mut start = 0;
    for record in (Records { section, at: 0 }) {
        if let Record::Terminator { at } = record {
            find_in_stretch(&section[start..at], address.offset(start as u64), frames)?;
            start = at + 4;
        }
    }
    find_in_stretch(&section[start..], address.offset(start as u64), frames)
}

fn find_in_stretch(stretch: &[u8], address: ExecutorAddr, frames: &mut Vec<Frame>) -> Result<(), String> {
    let bases = BaseAddresses::default().set_eh_frame(address.value());
    let eh_frame = EhFrame::new(stretch, LittleEndian);
    let mut entries = eh_frame.entries(&bases);
    // Any number of small FDEs may name a CIE of any length: each of those is read once.
    let mut cies = BTreeMap::new();
    while let Some(entry) = entries.next().map_err(|error| error.to_string())? {
        let CieOrFde::Fde(partial) = entry else { continue };
        let cie = |section: &EhFrame<_>, bases: &BaseAddresses, at: EhFrameOffset| match cies.entry(at.0) {
            Entry::Occupied(cie) => Ok(Clone::clone(cie.get())),
            Entry::Vacant(place) => Ok(place.insert(section.cie_from_offset(bases, at)?).clone()),
        };
        let fde = partial.parse(cie).map_err(|error| error.to_string())?;
        if fde.len() > 0 {
            let start = ExecutorAddr::new(fde.initial_address());
            frames.push(Frame { start, fde: address.offset(fde.offset() as u64) });
        }
    }
    Ok(())
}

/// A walk over a section's records by their lengths, up to the first that is cut off.
struct Records<'a> {
    section: &'a [u8],
    at: usize,
}

enum Record {
    Entry { is_cie: bool },
    Terminator { at: usize },
}

impl Iterator for Records<'_> {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        let at = self.at;
        let (short, tail) = self.section.get(at..)?.split_first_chunk::<4>()?;
        let (length, body_at) = match u32::from_le_bytes(*short) {
            0 => {
                self.at = at + 4;
                return Some(Record::Terminator { at });
            }
            u32::MAX => (u64::from_le_bytes(*tail.first_chunk::<8>()?), at + 12),
            length => (u64::from(length), at + 4),
        };
        self.at = body_at.checked_add(usize::try_from(length).ok()?)?;
        let body = self.section.get(body_at..self.at)?;
        Some(Record::Entry { is_cie: body.get(..4) == Some(&[0; 4]) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_counted_without_cies_terminators_and_what_is_cut_off() {
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let (cie, fde) = ([4, 0], [8, 8, 7]);
        assert_eq!(count_records(&words(&[&cie[..], &fde, &fde].concat())), 2);
        assert_eq!(count_records(&words(&[&cie[..], &fde, &[0], &fde].concat())), 2, "a terminator in the middle");
        assert_eq!(count_records(&words(&[&cie[..], &fde, &[u32::MAX, 4, 0, 9]].concat())), 2, "a long record");
        assert_eq!(count_records(&words(&[&fde[..], &[400, 1]].concat())), 1, "cut off");
        assert_eq!(count_records(&[1, 2, 3]), 0);
    }

    #[test]
    fn frames_behind_a_terminator_and_behind_a_long_record_are_found() {
        // Version 1, no augmentation, absolute 8-byte pointers.
        let cie = |long: bool| {
            let body = [0, 0, 0, 0, 1, 0, 1, 0x78, 16, 0, 0, 0];
            let length =
                if long { [&[0xff; 4][..], &12u64.to_le_bytes()].concat() } else { 12u32.to_le_bytes().to_vec() };
            [length, body.to_vec()].concat()
        };
        let fde = |distance: u32, start: u64| {
            [
                20u32.to_le_bytes().to_vec(),
                distance.to_le_bytes().to_vec(),
                start.to_le_bytes().to_vec(),
                16u64.to_le_bytes().to_vec(),
            ]
            .concat()
        };
        let section = [cie(false), fde(20, 0x1000), vec![0; 4], cie(true), fde(28, 0x2000), vec![0; 4]].concat();
        let mut frames = Vec::new();
        find_frames(&section, ExecutorAddr::new(0x9000), &mut frames).unwrap();
        let at = |start: u64, offset: u64| Frame {
            start: ExecutorAddr::new(start),
            fde: ExecutorAddr::new(0x9000 + offset),
        };
        assert_eq!(frames, [at(0x1000, 16), at(0x2000, 16 + 24 + 4 + 24)]);
    }
}
