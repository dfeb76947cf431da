//! The records of perf's jitdump format, version 1 (`tools/perf/Documentation/jitdump-specification.txt` in Linux).
//!
//! ```text
//!   file header, then for each function: [debug info] [unwinding info] load
//! ```
//!
//! `perf inject --jit` makes a small shared object of each load record and the optional records before it, and maps
//! that object at the time of the load record. There is no record for removed code: a later load record at the same
//! address hides it from then on.
//!
//! The unwinding info has the layout of that shared object: after the code, at the next multiple of 8, comes
//! `.eh_frame`, then `.eh_frame_hdr`. Pointers are relative to their own address. Those in the search table of
//! `.eh_frame_hdr` are relative to the start of that section.

use crate::arch::Arch;
use crate::host::Stamp;
use crate::link::{CallFrame, LinkedFunction};

/// The file's header.
pub(super) fn header(stamp: Stamp) -> Vec<u8> {
    let mut bytes = Bytes::default();
    bytes.u32(MAGIC).u32(VERSION).u32(HEADER_SIZE).u32(u32::from(Arch::NATIVE.e_machine())).u32(0).u32(stamp.process);
    bytes.u64(stamp.nanoseconds).u64(0);
    bytes.0
}

/// All records of a function. `number` is its number in the file.
pub(super) fn function(function: &LinkedFunction, stamp: Stamp, number: u64) -> Vec<u8> {
    let mut bytes = Bytes::default();
    let address = function.address.value();
    if !function.lines.is_empty() {
        bytes.record(DEBUG_INFO, stamp, |bytes| {
            bytes.u64(address).u64(function.lines.len() as u64);
            for line in &function.lines {
                bytes.u64(line.address.value()).u32(line.line).u32(0).text(&line.file);
            }
        });
    }
    if let Some((table, header)) = function.frame.as_ref().and_then(|frame| unwind_tables(frame, function)) {
        bytes.record(UNWINDING_INFO, stamp, |bytes| {
            // Mapped size zero: the process itself maps none of these tables.
            bytes.u64((table.len() + header.len()) as u64).u64(header.len() as u64).u64(0);
            bytes.0.extend(table);
            bytes.0.extend(header);
        });
    }
    bytes.record(LOAD, stamp, |bytes| {
        bytes.u32(stamp.process).u32(stamp.thread).u64(address).u64(address);
        bytes.u64(function.code.len() as u64).u64(number).text(&function.name);
        bytes.0.extend(&function.code);
    });
    bytes.0
}

/// Makes `.eh_frame` with one FDE, and its `.eh_frame_hdr`. `None` if a distance does not fit its field.
fn unwind_tables(frame: &CallFrame, function: &LinkedFunction) -> Option<(Vec<u8>, Vec<u8>)> {
    // All offsets count from the first byte of the function.
    let table_at = (function.code.len() as i64 + 7) & !7;
    let start = frame.start.value().wrapping_sub(function.address.value()) as i64;
    let mut table = Bytes::default();
    table.frame_record(|table| {
        table.u32(0).u8(1); // CIE, version 1
        table.text(if frame.is_signal_frame { "zRS" } else { "zR" });
        table.leb(frame.code_alignment).signed_leb(frame.data_alignment);
        table.u8(u8::try_from(frame.return_register).ok()?).leb(1).u8(PCREL_SDATA4);
        table.0.extend(&frame.initial);
        Some(())
    })?;
    let fde_at = table.0.len();
    table.frame_record(|table| {
        table.u32(fde_at as u32 + 4); // back to the CIE
        let here = table_at + table.0.len() as i64;
        table.i32(start - here)?.u32(u32::try_from(frame.size).ok()?).leb(0);
        table.0.extend(&frame.instructions);
        Some(())
    })?;
    table.u32(0);
    let header_at = table_at + table.0.len() as i64;
    let mut header = Bytes::default();
    header.u8(1).u8(PCREL_SDATA4).u8(UDATA4).u8(DATAREL_SDATA4);
    header.i32(table_at - (header_at + 4))?.u32(1);
    header.i32(start - header_at)?.i32(table_at + fde_at as i64 - header_at)?;
    Some((table.0, header.0))
}

/// A buffer with little-endian values.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn u8(&mut self, value: u8) -> &mut Bytes {
        self.0.push(value);
        self
    }

    fn u32(&mut self, value: u32) -> &mut Bytes {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn i32(&mut self, value: i64) -> Option<&mut Bytes> {
        self.0.extend(i32::try_from(value).ok()?.to_le_bytes());
        Some(self)
    }

    fn u64(&mut self, value: u64) -> &mut Bytes {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn text(&mut self, text: &str) -> &mut Bytes {
        self.0.extend(text.bytes().filter(|byte| *byte != 0).chain([0]));
        self
    }

    fn leb(&mut self, mut value: u64) -> &mut Bytes {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.u8(value as u8)
    }

    fn signed_leb(&mut self, mut value: i64) -> &mut Bytes {
        while !(-0x40..0x40).contains(&value) {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.u8(value as u8 & 0x7f)
    }

    /// Appends a record of the dump, with its length, padded to a multiple of 8.
    fn record(&mut self, kind: u32, stamp: Stamp, body: impl FnOnce(&mut Bytes)) {
        let at = self.0.len();
        self.u32(kind).u32(0).u64(stamp.nanoseconds);
        body(self);
        // perf finds the code of a load record from the record's end, so a load record has no padding.
        if kind != LOAD {
            self.0.resize(self.0.len().next_multiple_of(8), 0);
        }
        let length = (self.0.len() - at) as u32;
        self.0[at + 4..at + 8].copy_from_slice(&length.to_le_bytes());
    }

    /// Appends a record of `.eh_frame`, with its length, padded to a multiple of 8 with zeroes, which are `DW_CFA_nop`.
    fn frame_record(&mut self, body: impl FnOnce(&mut Bytes) -> Option<()>) -> Option<()> {
        let at = self.0.len();
        self.u32(0);
        body(self)?;
        self.0.resize(self.0.len().next_multiple_of(8), 0);
        let length = (self.0.len() - at - 4) as u32;
        self.0[at..at + 4].copy_from_slice(&length.to_le_bytes());
        Some(())
    }
}

const MAGIC: u32 = 0x4a69_5444;
const VERSION: u32 = 1;
const HEADER_SIZE: u32 = 40;
const LOAD: u32 = 0;
const DEBUG_INFO: u32 = 2;
const UNWINDING_INFO: u32 = 4;
// DW_EH_PE_*
const PCREL_SDATA4: u8 = 0x1b;
const UDATA4: u8 = 0x03;
const DATAREL_SDATA4: u8 = 0x3b;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leb128_has_seven_bits_per_byte() {
        let unsigned = |value| std::mem::take(&mut Bytes::default().leb(value).0);
        assert_eq!(unsigned(0x7f), [0x7f]);
        assert_eq!(unsigned(0x80), [0x80, 0x01]);
        assert_eq!(unsigned(300), [0xac, 0x02]);
        let signed = |value| std::mem::take(&mut Bytes::default().signed_leb(value).0);
        assert_eq!((signed(-1), signed(63), signed(-64)), (vec![0x7f], vec![0x3f], vec![0x40]));
        assert_eq!((signed(64), signed(-65)), (vec![0xc0, 0x00], vec![0xbf, 0x7f]));
    }

    #[test]
    fn the_length_of_a_frame_record_does_not_depend_on_its_position() {
        let mut bytes = Bytes::default();
        for _ in 0..2 {
            bytes.frame_record(|record| Some(_ = record.u32(7).u8(9))).unwrap();
        }
        let record = [12, 0, 0, 0, 7, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(bytes.0, [record, record].concat());
        assert_eq!(bytes.frame_record(|_| None), None);
    }
}
