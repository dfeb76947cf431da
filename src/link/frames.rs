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
    let known = frames.len();
    if find_usual(stretch, address, frames).is_some() {
        return Ok(());
    }
    frames.truncate(known);
    find_any(stretch, address, frames)
}

/// As compilers write them: with one to a few CIEs, that say that addresses are four bytes, relative to where they stand.
/// `None` for what is not so, or not well-formed.
fn find_usual(stretch: &[u8], address: ExecutorAddr, frames: &mut Vec<Frame>) -> Option<()> {
    let word = |at: usize| Some(u32::from_le_bytes(*stretch.get(at..)?.first_chunk::<4>()?));
    let (mut usual_cies, mut at) = ([None; 4], 0);
    while at < stretch.len() {
        let (length, id) = (word(at)? as usize, word(at + 4)?);
        let end = at.checked_add(4)?.checked_add(length).filter(|end| *end <= stretch.len())?;
        if id == 0 {
            let is_usual = is_usual_cie(stretch.get(at + 8..end)?);
            *usual_cies.iter_mut().find(|slot| slot.is_none()).filter(|_| is_usual)? = Some(at);
        } else {
            let cie = (at + 4).checked_sub(id as usize);
            // The augmentation data has to lie within its record.
            let augmentation = usize::from(*stretch[..end].get(at + 16)?);
            if !usual_cies.contains(&cie) || cie.is_none() || augmentation > 0x7f || at + 17 + augmentation > end {
                return None;
            }
            if word(at + 12)? > 0 {
                let start = address.offset(at as u64 + 8).value().wrapping_add_signed(i64::from(word(at + 8)? as i32));
                frames.push(Frame { start: ExecutorAddr::new(start), fde: address.offset(at as u64) });
            }
        }
        at = end;
    }
    Some(())
}

/// Whether a CIE, from its version on, has augmentation data of a kind known here, and says `DW_EH_PE_pcrel | sdata4` for
/// addresses of functions.
fn is_usual_cie(body: &[u8]) -> bool {
    const PCREL_SDATA4: u8 = 0x1b;
    let encoding = match body {
        [1, b'z', b'R', 0, _code, _data, _register, 1, encoding, ..] => *encoding,
        [1, b'z', b'P', b'L', b'R', 0, _code, _data, _register, 7, personality, _, _, _, _, _lsda, encoding, ..]
            if personality & 0xf == 0xb =>
        {
            *encoding
        }
        _ => return false,
    };
    let factors = if body[2] == b'R' { &body[4..7] } else { &body[6..9] };
    encoding == PCREL_SDATA4 && factors.iter().all(|factor| *factor < 0x80)
}

/// Whatever DWARF allows.
fn find_any(stretch: &[u8], address: ExecutorAddr, frames: &mut Vec<Frame>) -> Result<(), String> {
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
pub(super) struct Records<'a> {
    pub(super) section: &'a [u8],
    pub(super) at: usize,
}

pub(super) enum Record {
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
