//! Finds the functions that a fixed-up `.eh_frame` describes (LSB 5.0, "Exception Frames"), for the frame table.
//!
//! The section stays where it is linked, and the unwinder reads it there. This file reads only the pairs of function
//! start and FDE address. The FDE of a dropped function describes no address of the object's code; `src/memory` skips
//! its pair.
//!
//! There are two readers. The quick one handles the form that compilers write. Any other section goes to the general
//! one, which uses gimli. Whatever the quick reader accepts, the general reader accepts with the same result; a
//! property test checks this.
//!
//! | form | result |
//! |---|---|
//! | CIE of version 1 or 3, without augmentation or with one of `z`, `P`, `L`, `R`, `S`; any encoding that needs no base but its own address | read |
//! | CIE of version 4 (as `--gdwarf-cie-version=4`), which libgcc reads and LLVM's unwinder does not | read |
//! | the same with addresses that do not have 8 bytes; other versions; other augmentations, such as gcc 2's `eh`; functions named through a pointer | refused |
//! | records in the 64-bit format, which libgcc misreads | refused |
//!
//! The unwinder would misread what is refused here, and would report no error at a throw.

use std::borrow::Cow;

use gimli::{BaseAddresses, CieOrFde, EhFrame, EhFrameOffset, LittleEndian, UnwindSection};

use crate::base::{ExecutorAddr, NumberMap};
use crate::memory::Frame;

/// The number of FDEs in a section: it walks over the records by their lengths and skips CIEs. [`find_frames`] never
/// finds more.
pub(crate) fn count_records(section: &[u8]) -> u64 {
    let (mut at, mut count) = (0, 0);
    // A quick walk, up to the first record that is empty, too short for an identifier, cut off, or in the 64-bit
    // format.
    while let Some(head) = section.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let (length, id) = (word(head, 0), word(head, 4));
        let end = at + 4 + length as usize;
        if length < 4 || length == u32::MAX || end > section.len() {
            break;
        }
        count += u64::from(id != 0);
        at = end;
    }
    let rest = Records { section, at }.filter(|record| matches!(record, Record::Entry { is_cie: false, .. }));
    count + rest.count() as u64
}

/// Appends the frames of a fixed-up `.eh_frame` at `address` to `frames`.
///
/// # Errors
/// The reason, in DWARF's terms, for a section that the unwinder would misread.
pub(crate) fn find_frames(section: &[u8], address: ExecutorAddr, frames: &mut Vec<Frame>) -> Result<(), String> {
    let count_before = frames.len();
    if find_in_common_form(section, address, frames).is_some() {
        return Ok(());
    }
    frames.truncate(count_before);
    find_in_any_form(section, address, frames)
}

/// The quick reader: for sections as compilers write them, with at most four CIEs, whose pointers are [`PCREL_SDATA4`].
/// `None` for other forms and for malformed sections. It may then have appended frames, which the caller must remove.
fn find_in_common_form(section: &[u8], address: ExecutorAddr, frames: &mut Vec<Frame>) -> Option<()> {
    // The length `u32::MAX` marks the 64-bit format. In a shorter section, a record of that length does not fit.
    if section.len() > u32::MAX as usize {
        return None;
    }
    let (mut cies, mut at) = (RecentCies::default(), 0);
    loop {
        if let (cie, Some(fde_data)) = cies.last {
            at = read_common_fdes(section, at, (cie, fde_data), address, frames);
        }
        let rest = &section[at..];
        let Some(head) = rest.first_chunk::<8>() else { return is_terminated(rest).then_some(()) };
        let (length, id) = (word(head, 0) as usize, word(head, 4) as usize);
        let size = length.checked_add(4).filter(|size| *size <= rest.len())?;
        if length == 0 {
            // An FDE after a terminator cannot name a CIE before it.
            cies = RecentCies::default();
            at += size;
        } else if id == 0 {
            cies.insert(at, common_fde_data_size(rest.get(8..size)?)?)?;
            at += size;
        } else {
            cies.select((at + 4).checked_sub(id)?)?;
        }
    }
}

/// Reads consecutive FDEs of the CIE at `cie`, whose augmentation data has at least `fde_data` bytes. Returns the
/// offset of the first record that is something else, or malformed.
#[inline(never)] // so that the loop shares no registers with its caller
fn read_common_fdes(
    section: &[u8],
    mut at: usize,
    (cie, fde_data): (usize, usize),
    address: ExecutorAddr,
    frames: &mut Vec<Frame>,
) -> usize {
    // Length, distance from the CIE, start, size; the length of the augmentation data.
    while let Some(head) = section.get(at..).and_then(|rest| rest.first_chunk::<17>()) {
        let (end, distance) = (at + 4 + word(head, 0) as usize, word(head, 4) as usize);
        let augmentation = usize::from(head[16]);
        // The augmentation data holds what the CIE requires, and is inside its record.
        let is_common = cie + distance == at + 4
            && (fde_data..=0x7f).contains(&augmentation)
            && at + 17 + augmentation <= end
            && end <= section.len();
        if !is_common {
            break;
        }
        if word(head, 12) > 0 {
            let fde = address.offset(at as u64);
            let start = fde.offset(8).value().wrapping_add_signed(i64::from(word(head, 8) as i32));
            frames.push(Frame { start: ExecutorAddr::new(start), fde });
        }
        at = end;
    }
    at
}

#[inline(always)]
fn word<const N: usize>(head: &[u8; N], at: usize) -> u32 {
    u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]])
}

/// Whether the rest of a section is only terminators.
fn is_terminated(rest: &[u8]) -> bool {
    rest.len().is_multiple_of(4) && rest.iter().all(|byte| *byte == 0)
}

/// Up to four CIEs: the offset of each, and the least number of bytes of augmentation data of its FDEs; `None` in an
/// empty entry.
#[derive(Default)]
struct RecentCies {
    /// The CIE of the FDEs that are read now.
    last: (usize, Option<usize>),
    others: [(usize, Option<usize>); 3],
}

impl RecentCies {
    /// Adds a CIE and selects it. `None` if there are four already.
    fn insert(&mut self, at: usize, fde_data: usize) -> Option<()> {
        let before = std::mem::replace(&mut self.last, (at, Some(fde_data)));
        if before.1.is_some() {
            *self.others.iter_mut().find(|(_, fde_data)| fde_data.is_none())? = before;
        }
        Some(())
    }

    /// Selects the CIE at `at`. `None` if it is unknown, or is selected already.
    fn select(&mut self, at: usize) -> Option<()> {
        let other = self.others.iter_mut().find(|(other, fde_data)| fde_data.is_some() && *other == at)?;
        std::mem::swap(other, &mut self.last);
        Some(())
    }
}

/// The least number of bytes of augmentation data of a CIE's FDEs. `body` is the CIE from its version on. `None` for a
/// CIE that is not in one of the two common forms, or whose pointers are not [`PCREL_SDATA4`].
fn common_fde_data_size(body: &[u8]) -> Option<usize> {
    const INDIRECT: u8 = 0x80;
    let (factors, encoding, fde_data) = match body {
        [1, b'z', b'R', 0, code, data, register, 1, encoding, ..] => ([code, data, register], encoding, 0),
        [
            1,
            b'z',
            b'P',
            b'L',
            b'R',
            0,
            code,
            data,
            register,
            7,
            personality,
            _,
            _,
            _,
            _,
            PCREL_SDATA4,
            encoding,
            ..,
        ] if personality & !INDIRECT == PCREL_SDATA4 => ([code, data, register], encoding, 4),
        _ => return None,
    };
    let is_common = *encoding == PCREL_SDATA4 && factors.iter().all(|factor| **factor < 0x80);
    is_common.then_some(fde_data)
}

/// Pointer encoding: four bytes, signed, relative to their own address (`DW_EH_PE_pcrel | DW_EH_PE_sdata4`).
const PCREL_SDATA4: u8 = 0x1b;

/// The general reader: for every form of the table in the module's documentation.
fn find_in_any_form(section: &[u8], address: ExecutorAddr, frames: &mut Vec<Frame>) -> Result<(), String> {
    // Merged sections may have terminators in the middle. gimli stops at one, so it gets each part separately.
    let mut start = 0;
    for record in (Records { section, at: 0 }) {
        match record {
            Record::Entry { at, is_long: true, .. } => {
                return Err(format!("the record at {at:#x} is in the 64-bit format, which unwinders misread"));
            }
            Record::Entry { .. } => {}
            Record::Terminator { at } => {
                find_in_part(&section[start..at], address.offset(start as u64), frames)?;
                start = at + 4;
            }
        }
    }
    find_in_part(&section[start..], address.offset(start as u64), frames)
}

fn find_in_part(part: &[u8], address: ExecutorAddr, frames: &mut Vec<Frame>) -> Result<(), String> {
    let part = without_version_4(part)?;
    let bases = BaseAddresses::default().set_eh_frame(address.value());
    let eh_frame = EhFrame::new(&part, LittleEndian);
    let mut entries = eh_frame.entries(&bases);
    // Many small FDEs may name one long CIE. Each CIE is parsed once.
    let mut cies = NumberMap::new();
    while let Some(entry) = entries.next().map_err(|error| error.to_string())? {
        let CieOrFde::Fde(partial) = entry else { continue };
        let cie = |section: &EhFrame<_>, bases: &BaseAddresses, at: EhFrameOffset| {
            if let Some(cie) = cies.get(at.0 as u64) {
                return Ok(Clone::clone(cie));
            }
            let cie = section.cie_from_offset(bases, at)?;
            // `without_version_4` changed all records of version 4, so the FDE names no record of this part.
            if cie.version() == 4 {
                return Err(gimli::Error::UnknownVersion(4));
            }
            cies.insert(at.0 as u64, cie.clone());
            Ok(cie)
        };
        let fde = partial.parse(cie).map_err(|error| error.to_string())?;
        if fde.cie().fde_address_encoding().is_some_and(|encoding| encoding.is_indirect()) {
            return Err(format!("the FDE at {:#x} names its function through a pointer", fde.offset()));
        }
        if fde.len() > 0 {
            let start = ExecutorAddr::new(fde.initial_address());
            frames.push(Frame { start, fde: address.offset(fde.offset() as u64) });
        }
    }
    Ok(())
}

/// The FDEs of a section before fix-up: the offset of each, and the number of bytes that it covers. FDEs of no bytes are
/// left out.
///
/// # Errors
/// As [`find_frames`].
pub(crate) fn records(section: &[u8]) -> Result<Vec<(u64, u64)>, String> {
    let (mut found, mut start) = (Vec::new(), 0);
    let mut add_part = |from: usize, to: usize| -> Result<(), String> {
        let part = without_version_4(&section[from..to])?;
        let bases = BaseAddresses::default().set_eh_frame(0);
        let eh_frame = EhFrame::new(&part, LittleEndian);
        let mut entries = eh_frame.entries(&bases);
        while let Some(entry) = entries.next().map_err(|error| error.to_string())? {
            let CieOrFde::Fde(partial) = entry else { continue };
            let fde = partial.parse(EhFrame::cie_from_offset).map_err(|error| error.to_string())?;
            if fde.len() > 0 {
                found.push(((from + fde.offset()) as u64, fde.len()));
            }
        }
        Ok(())
    };
    for record in (Records { section, at: 0 }) {
        if let Record::Terminator { at } = record {
            add_part(start, at)?;
            start = at + 4;
        }
    }
    add_part(start, section.len())?;
    Ok(found)
}

/// Converts each CIE of version 4 to version 3, which gimli and the LSB know. Version 3 lacks two bytes: the sizes of
/// addresses and of segment selectors. The records keep their offsets.
pub(super) fn without_version_4(part: &[u8]) -> Result<Cow<'_, [u8]>, String> {
    let mut bytes = Cow::Borrowed(part);
    for record in (Records { section: part, at: 0 }) {
        let Record::Entry { at, end, is_cie: true, .. } = record else { continue };
        let Some([4, rest @ ..]) = part.get(at + 8..end) else { continue };
        let sizes_at = rest.iter().position(|byte| *byte == 0).map(|length| at + 9 + length + 1);
        match sizes_at.and_then(|sizes_at| part[..end].get(sizes_at..sizes_at + 2)) {
            Some([8, 0]) => {}
            Some([address, segment]) => {
                return Err(format!("the CIE at {at:#x} has addresses of {address} bytes, and segments of {segment}"));
            }
            _ => return Err(format!("the CIE at {at:#x} ends too early")),
        }
        let Some(sizes_at) = sizes_at else { continue };
        let bytes = bytes.to_mut();
        bytes[at + 8] = 3;
        // Two bytes are left over at the end: `DW_CFA_nop`.
        bytes.copy_within(sizes_at + 2..end, sizes_at);
        bytes[end - 2..end].fill(0);
    }
    Ok(bytes)
}

/// Iterates over a section's records by their lengths, up to the first that is cut off.
pub(super) struct Records<'a> {
    pub(super) section: &'a [u8],
    pub(super) at: usize,
}

/// A record: offsets in the section.
pub(super) enum Record {
    /// A CIE or FDE; `is_long` for the 64-bit format.
    Entry {
        at: usize,
        end: usize,
        is_cie: bool,
        is_long: bool,
    },
    Terminator {
        at: usize,
    },
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
        let is_cie = body.get(..4) == Some(&[0; 4]);
        Some(Record::Entry { at, end: self.at, is_cie, is_long: body_at == at + 12 })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn fdes_are_counted_without_cies_terminators_and_cut_off_records() {
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let (cie, fde) = ([4, 0], [8, 8, 7]);
        assert_eq!(count_records(&words(&[&cie[..], &fde, &fde].concat())), 2);
        assert_eq!(count_records(&words(&[&cie[..], &fde, &[0], &fde].concat())), 2, "a terminator in the middle");
        assert_eq!(count_records(&words(&[&cie[..], &fde, &[u32::MAX, 4, 0, 9]].concat())), 2, "a long record");
        assert_eq!(count_records(&words(&[&fde[..], &[400, 1]].concat())), 1, "cut off");
        let short = [words(&[&cie[..], &fde].concat()), vec![2, 0, 0, 0, 9, 9], words(&fde)].concat();
        assert_eq!(count_records(&short), 3, "a record too short for an identifier");
        assert_eq!(count_records(&[1, 2, 3]), 0);
    }

    /// A CIE of version 1 without augmentation: absolute 8-byte pointers. In the 64-bit format if `long`.
    fn plain_cie(long: bool) -> Vec<u8> {
        let body = [0, 0, 0, 0, 1, 0, 1, 0x78, 16, 0, 0, 0];
        let length = if long { [&[0xff; 4][..], &12u64.to_le_bytes()].concat() } else { 12u32.to_le_bytes().to_vec() };
        [length, body.to_vec()].concat()
    }

    fn plain_fde(distance: u32, start: u64) -> Vec<u8> {
        [
            20u32.to_le_bytes().to_vec(),
            distance.to_le_bytes().to_vec(),
            start.to_le_bytes().to_vec(),
            16u64.to_le_bytes().to_vec(),
        ]
        .concat()
    }

    fn frame(start: u64, fde: u64) -> Frame {
        Frame { start: ExecutorAddr::new(start), fde: ExecutorAddr::new(fde) }
    }

    const AT: ExecutorAddr = ExecutorAddr::new(0x9000);

    #[test]
    fn frames_after_a_terminator_are_found() {
        let section = [plain_cie(false), plain_fde(20, 0x1000), vec![0; 4], plain_cie(false), plain_fde(20, 0x2000)];
        let mut frames = Vec::new();
        find_frames(&[section.concat(), vec![0; 4]].concat(), AT, &mut frames).unwrap();
        assert_eq!(frames, [frame(0x1000, 0x9010), frame(0x2000, 0x9010 + 24 + 4 + 16)]);
    }

    #[test]
    fn a_record_in_the_64_bit_format_is_refused() {
        let section = [plain_cie(false), plain_fde(20, 0x1000), plain_cie(true), plain_fde(28, 0x2000)].concat();
        let error = find_frames(&section, AT, &mut Vec::new()).unwrap_err();
        assert_eq!(error, "the record at 0x28 is in the 64-bit format, which unwinders misread");
    }

    #[test]
    fn a_cie_of_version_4_is_read_only_for_8_byte_addresses() {
        let section = |sizes: [u8; 2]| {
            let cie = [
                &[20, 0, 0, 0, 0, 0, 0, 0, 4, b'z', b'R', 0][..],
                &sizes,
                &[1, 0x78, 16, 1, PCREL_SDATA4, 0x0c, 7, 8, 0x90, 1],
            ];
            [&cie.concat()[..], &[16, 0, 0, 0, 28, 0, 0, 0, 0x20, 1, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]].concat()
        };
        let mut frames = Vec::new();
        find_frames(&section([8, 0]), AT, &mut frames).unwrap();
        assert_eq!(frames, [frame(0x9140, 0x9018)]);
        for (sizes, words) in [([4, 0], "addresses of 4 bytes"), ([8, 2], "segments of 2")] {
            assert!(find_frames(&section(sizes), AT, &mut frames).unwrap_err().contains(words));
        }
        let short = [8, 0, 0, 0, 0, 0, 0, 0, 4, b'z', b'R', 8];
        assert!(find_frames(&short, AT, &mut frames).unwrap_err().contains("ends too early"));
    }

    /// What g++ 12 writes for three functions, one with a personality and no landing pads.
    const COMPILED: &[&[u8]] = &[
        b"\x14\0\0\0\0\0\0\0\x01zR\0\x01\x78\x10\x01\x1b\x0c\x07\x08\x90\x01\0\0",
        b"\x10\0\0\0\x1c\0\0\0\x20\x01\0\0\x05\0\0\0\0\0\0\0",
        b"\x1c\0\0\0\0\0\0\0\x01zPLR\0\x01\x78\x10\x07\x9b\x08\0\0\0\x1b\x1b\x0c\x07\x08\x90\x01\0\0",
        b"\x1c\0\0\0\x24\0\0\0\x30\x01\0\0\x19\0\0\0\x04\x70\0\0\0\x41\x0e\x10\x83\x02\x4c\x0a\x0e\x08\x41\x0b",
        b"\x18\0\0\0\x44\0\0\0\x50\xff\xff\xff\x1a\0\0\0\x04\x70\0\0\0\x0e\x10\x83\x02\0\0\0",
    ];

    #[test]
    fn both_readers_find_the_same_frames_in_compiler_output() {
        let section = COMPILED.concat();
        let found = [frame(0x9140, 0x9018), frame(0x9184, 0x904c), frame(0x8fc4, 0x906c)];
        let (mut quick, mut general) = (Vec::new(), Vec::new());
        assert!(find_in_common_form(&section, AT, &mut quick).is_some());
        find_in_any_form(&section, AT, &mut general).unwrap();
        assert_eq!((&quick[..], &general[..]), (&found[..], &found[..]));
    }

    use proptest::prelude::*;

    /// Compiled records in which some bytes are changed, mostly to values with a meaning at that place.
    fn changed_sections() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![
            prop::sample::select(vec![0, 1, 3, 4, 7, 8, 0x10, 0x14, 0x18, 0x1b, 0x1c, 0x24, 0x3b, 0x80, 0x9b, 0xff]),
            any::<u8>(),
        ];
        // Versions, encodings, distances to CIEs, lengths of augmentation data; or any byte.
        let meaningful = prop::sample::select(vec![8, 15, 16, 28, 40, 52, 61, 62, 67, 68, 80, 92, 112, 124]);
        let place = prop_oneof![meaningful, 0..COMPILED.concat().len()];
        let records = prop::collection::vec(0..COMPILED.len() * 3, 0..6);
        let changes = prop::collection::vec((place, byte), 0..4);
        (records, changes, 0..8usize).prop_map(|(records, changes, cut)| {
            // All records, then the drawn ones. A drawn FDE names whatever is at its distance before it.
            let mut section = COMPILED.concat();
            for record in records {
                section.extend(*COMPILED.get(record).unwrap_or(&&[0; 4][..]));
            }
            for (at, byte) in changes {
                section[at] = byte;
            }
            section.truncate(section.len() - if cut < 4 { 0 } else { cut });
            section
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: crate::base::sized(4000, 4) as u32, ..Default::default() })]

        #[test]
        fn the_general_reader_agrees_with_the_quick_reader(section in changed_sections()) {
            let (mut quick, mut general) = (Vec::new(), Vec::new());
            if find_in_common_form(&section, AT, &mut quick).is_some() {
                prop_assert_eq!(find_in_any_form(&section, AT, &mut general), Ok(()));
                prop_assert_eq!(quick, general);
            }
        }

        #[test]
        fn the_record_count_bounds_the_number_of_frames(section in changed_sections()) {
            let mut frames = Vec::new();
            if find_frames(&section, AT, &mut frames).is_ok() {
                prop_assert!(frames.len() as u64 <= count_records(&section));
            }
        }
    }
}
