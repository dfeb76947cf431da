//! Checks one field by the formula that the x86-64 psABI gives for its relocation type (1.0, 4.4.1, table 4.9).
//!
//! A field that leads through a table is checked backwards: the field says where the code will look, and the entry
//! there must be the one that the formula needs. So it does not matter which of two equal entries the linker chose.
//!
//! All arithmetic is modulo 2⁶⁴, like the machine's. A narrow field is widened as the machine widens it, and must then
//! be the *full* value. So a truncated value is a mismatch.

mod far_code;
mod relocations;

use std::ops::Range;

use crate::arch::verify::{FieldValue, Mismatch, Relocation, SectionView, has_property};

pub(crate) use relocations::{changes_bytes, number_of, relocation};

/// Checks the field of a relocation whose symbol has an address. Returns the range of bytes that the relocation
/// explains.
pub(crate) fn check_field(section: &dyn SectionView, relocation: &Relocation) -> Result<Range<usize>, Mismatch> {
    let fields = Fields(section);
    let Some(field) = section.field(relocation) else {
        return Err(Mismatch::new(relocation.offset, relocation.name, "no such field", "one in its section"));
    };
    if relocation.rewritable_before > 0 && fields.is_relaxed(relocation) {
        fields.check_relaxed(relocation)?;
        return Ok(relocation.rewritable());
    }
    if let Some(explained) = far_code::moved_instruction(section, relocation) {
        return Ok(explained);
    }
    fields.check_value(relocation, field)?;
    Ok(relocation.field())
}

/// Whether a relocation is the kind of address that an exception table may have for a type.
pub(crate) fn is_type_address(relocation: &Relocation) -> bool {
    relocation.r_type == 10
}

/// Whether `stub` is the address of a stub whose slot holds `target`, with `endbr64` if the object has that at its own
/// entries, and without it otherwise.
pub(crate) fn is_stub_for(section: &dyn SectionView, stub: u64, target: u64) -> bool {
    let (end, field) = match (section.marks_entries(), section.stub(stub)) {
        // endbr64; jmp *slot(%rip)
        (true, Some([0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, field @ .., 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc])) => {
            (10, field)
        }
        // jmp *slot(%rip)
        (false, Some([0xff, 0x25, field @ .., 0xcc, 0xcc])) => (6, field),
        _ => return false,
    };
    let slot = stub.wrapping_add(end).wrapping_add(FieldValue::of(field).signed);
    field.len() == 4 && section.got_word(slot) == Some(target)
}

/// The field of a call with a distance. It counts from the end of the field.
pub(crate) fn call(distance: i64) -> Option<u32> {
    i32::try_from(distance - 4).ok().map(|distance| distance as u32)
}

/// Whether a section of notes has the property `GNU_PROPERTY_X86_FEATURE_1_AND` with the bit for indirect branch tracking
/// (psABI 1.0, 4.1.3).
pub(crate) fn notes_say_marked(notes: &[u8], align: u64) -> bool {
    has_property(notes, align, 0xc000_0002)
}

/// The checks of one section's fields.
struct Fields<'a>(&'a dyn SectionView);

impl Fields<'_> {
    /// Checks that a field holds the value of its formula. `v` is the field, sign-extended. `S`, `A`, `P`, `L`, `G`,
    /// `GOT` and `Z` are the psABI's (4.4.1).
    fn check_value(
        &self,
        relocation: &Relocation,
        FieldValue { signed: v, unsigned }: FieldValue,
    ) -> Result<(), Mismatch> {
        let symbol = relocation.symbol;
        let (s, a) = (self.0.symbol_address(symbol), relocation.addend as u64);
        let (p, got) = (self.0.address().wrapping_add(relocation.offset), self.0.got_address());
        let s_plus_a = s.wrapping_add(a);
        match relocation.r_type {
            // S + A
            1 => self.expect(relocation, v, s_plus_a),
            10 => self.expect_or_stub(relocation, unsigned, s_plus_a, unsigned.wrapping_sub(a)),
            11 => self.expect_or_stub(relocation, v, s_plus_a, v.wrapping_sub(a)),
            // Assemblers use both readings of the bits.
            12 | 14 if unsigned == s_plus_a => Ok(()),
            12 | 14 => self.expect(relocation, v, s_plus_a),
            // S + A - P
            2 => self.expect_or_stub(relocation, v, s_plus_a.wrapping_sub(p), v.wrapping_add(p).wrapping_sub(a)),
            13 | 15 | 24 => self.expect(relocation, v, s_plus_a.wrapping_sub(p)),
            // L + A - P, where L is S or a stub for S
            4 if self.is_stub_for(v.wrapping_add(p).wrapping_sub(a), s) => Ok(()),
            4 => self.expect(relocation, v, s_plus_a.wrapping_sub(p)),
            // G + A - P, where the slot holds S
            9 | 28 | 41 | 42 | 43 | 46 | 49 => {
                self.expect_entry(relocation.offset, v.wrapping_add(p).wrapping_sub(a), &[s])
            }
            // G + A - GOT
            3 | 27 | 30 => self.expect_entry(relocation.offset, v.wrapping_add(got).wrapping_sub(a), &[s]),
            // S + A - GOT
            25 | 31 => self.expect(relocation, v, s_plus_a.wrapping_sub(got)),
            // GOT + A - P
            26 | 29 => self.expect(relocation, v, got.wrapping_add(a).wrapping_sub(p)),
            // Z + A
            32 => self.expect(relocation, unsigned, self.0.symbol_size(symbol).wrapping_add(a)),
            33 => self.expect(relocation, v, self.0.symbol_size(symbol).wrapping_add(a)),
            _ => self.check_thread_local_value(relocation, v, v.wrapping_add(p).wrapping_sub(a)),
        }
    }

    /// As [`check_value`](Self::check_value), for relocations of thread-local variables. `entry` is the address that
    /// the field leads to.
    fn check_thread_local_value(&self, relocation: &Relocation, v: u64, entry: u64) -> Result<(), Mismatch> {
        let (symbol, offset) = (relocation.symbol, relocation.offset);
        let a = relocation.addend as u64;
        match relocation.r_type {
            // GOT entry: module and offset
            19 => self.expect_entry(offset, entry, &self.0.pair(symbol)),
            20 => self.expect_entry(offset, entry, &self.0.own_block()),
            // Offset from the start of the block
            17 | 21 => self.expect(relocation, v, self.0.offset_from_own_block(symbol).wrapping_add(a)),
            // GOT entry: distance from the thread pointer
            22 | 44 | 47 | 50 => self.expect_entry(offset, entry, &self.0.static_offset(symbol, offset)?),
            // Distance from the thread pointer
            18 | 23 => self.expect(relocation, v, self.0.static_offset(symbol, offset)?[0].wrapping_add(a)),
            // GOT entry: descriptor
            34 | 45 | 48 | 51 => self.expect_entry(offset, entry, &self.0.descriptor(symbol, entry)),
            unknown => Err(Mismatch::new(offset, format!("relocation type {unknown}"), "linked", "refused")),
        }
    }

    // ---- instructions ----

    /// Whether the bytes before the field differ from the object's.
    fn is_relaxed(&self, relocation: &Relocation) -> bool {
        let before = relocation.rewritable().start..relocation.field().start;
        self.0.memory().get(before.clone()) != self.0.content().get(before)
    }

    /// Checks a load, call or jump that was rewritten to do without its slot (psABI B.2). It must lead to the address
    /// that the slot would hold.
    fn check_relaxed(&self, relocation: &Relocation) -> Result<(), Mismatch> {
        let (new, old) = (self.0.memory().get(relocation.rewritable()), self.0.content().get(relocation.rewritable()));
        let (Some([opcode, modrm, field @ ..]), Some([old_opcode, old_modrm, ..])) = (new, old) else {
            return Err(Mismatch::new(
                relocation.offset,
                relocation.name,
                "a rewritten instruction",
                "two bytes before the field",
            ));
        };
        // The instruction ends with the field. A rewritten jump is a byte shorter.
        let end = self.0.address().wrapping_add(relocation.offset).wrapping_add(4);
        let is_load = (*old_opcode, *old_modrm & 0xc7) == (0x8b, 0x05);
        let is_plain = relocation.r_type == 41;
        let leads_to = match (*opcode, *modrm) {
            // mov slot(%rip), %reg → lea symbol(%rip), the same %reg
            (0x8d, modrm) if is_load && modrm == *old_modrm => end.wrapping_add(FieldValue::of(field).signed),
            // call *slot(%rip) → addr32 call symbol
            (0x67, 0xe8) if is_plain && (*old_opcode, *old_modrm) == (0xff, 0x15) => {
                end.wrapping_add(FieldValue::of(field).signed)
            }
            // jmp *slot(%rip) → jmp symbol; nop
            (0xe9, first) if is_plain && (*old_opcode, *old_modrm) == (0xff, 0x25) && field.last() == Some(&0x90) => {
                let moved_field = [first, field[0], field[1], field[2]];
                end.wrapping_sub(1).wrapping_add(FieldValue::of(&moved_field).signed)
            }
            _ => {
                let found = format!("{opcode:02x} {modrm:02x} for {old_opcode:02x} {old_modrm:02x}");
                return Err(Mismatch::new(relocation.offset, relocation.name, found, "one of the three relaxations"));
            }
        };
        // The addend of such an instruction must be that of a plain load of the slot.
        self.expect(relocation, relocation.addend as u64, -4i64 as u64)?;
        self.expect(relocation, leads_to, self.0.symbol_address(relocation.symbol))
    }

    fn expect(&self, relocation: &Relocation, found: u64, expected: u64) -> Result<(), Mismatch> {
        self.0.expect(relocation, found, expected)
    }

    fn expect_entry(&self, offset: u64, entry: u64, words: &[u64]) -> Result<(), Mismatch> {
        self.0.expect_entry(offset, entry, words)
    }

    fn is_stub_for(&self, stub: u64, target: u64) -> bool {
        is_stub_for(self.0, stub, target)
    }

    /// As [`expect`](Self::expect); but for a known function whose address does not fit, `leads_to` may be its stub if
    /// the field is only used for a call: the operand of a branch, or the personality routine of an unwind table.
    fn expect_or_stub(
        &self,
        relocation: &Relocation,
        found: u64,
        expected: u64,
        leads_to: u64,
    ) -> Result<(), Mismatch> {
        let is_called = self.0.is_external_function(relocation.symbol)
            && (self.0.is_unwind_table() || relocation.r_type == 2 && self.is_operand_of_branch(relocation));
        let fits = match relocation.r_type {
            10 => u32::try_from(expected).is_ok(),
            _ => i32::try_from(expected as i64).is_ok(),
        };
        if is_called && !fits && self.is_stub_for(leads_to, self.0.symbol_address(relocation.symbol)) {
            return Ok(());
        }
        self.expect(relocation, found, expected)
    }

    /// Whether the opcode before the field is that of `call`, `jmp` or `jcc`.
    fn is_operand_of_branch(&self, relocation: &Relocation) -> bool {
        let byte = |before: usize| self.0.content().get(relocation.field().start.checked_sub(before)?).copied();
        match (byte(2), byte(1)) {
            (_, Some(0xe8 | 0xe9)) => true,
            (Some(0x0f), Some(opcode)) => opcode & 0xf0 == 0x80,
            _ => false,
        }
    }
}
