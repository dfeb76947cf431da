//! [`FieldVerifier`]: checks one field by the formula that the psABI gives for its relocation type (1.0, 4.4.1, table
//! 4.9).
//!
//! A field that leads through a table is checked backwards: the field says where the code will look, and the entry
//! there must be the one that the formula needs. So it does not matter which of two equal entries the linker chose.
//!
//! All arithmetic is modulo 2⁶⁴, like the machine's. A narrow field is widened as the machine widens it, and must then
//! be the *full* value. So a truncated value is a mismatch.
//!
//! This file uses numbers of relocation types, not [`EdgeKind`](crate::link::x86_64::EdgeKind): it must not repeat a
//! mistake of the linker's own tables.

use std::ops::Range;

use super::memory_snapshot::MemorySnapshot;
use super::mismatch::Mismatch;
use super::object_view::{ObjectView, Relocation};
use crate::link::graph::{BlockId, Definition, Role, SymbolIndex};
use crate::link::resolved_link::ResolvedLink;

/// Checks the fields of one section.
pub(super) struct FieldVerifier<'a> {
    pub(super) link: &'a ResolvedLink<'a>,
    pub(super) snapshot: &'a MemorySnapshot,
    pub(super) object: &'a ObjectView<'a>,
    /// The section's bytes in the object.
    pub(super) content: &'a [u8],
    /// The section's bytes in memory.
    pub(super) memory: &'a [u8],
    /// The section's address.
    pub(super) address: u64,
}

/// Where a thread-local variable is.
struct ThreadLocalLocation {
    module: u64,
    /// Offset in the module's block.
    offset: u64,
    from_thread_pointer: Option<i64>,
}

impl FieldVerifier<'_> {
    /// Checks the field of a relocation. Returns the range of bytes that the relocation explains.
    pub(super) fn check(&self, relocation: &Relocation) -> Result<Range<usize>, Mismatch> {
        let field = self.memory.get(relocation.field()).filter(|field| !field.is_empty());
        let Some(field) = field else {
            return Err(Mismatch::new(relocation.offset, relocation.name(), "no such field", "one in its section"));
        };
        if self.definition(relocation.symbol) == Definition::Nowhere {
            self.expect(relocation, u64::from(field.iter().any(|byte| *byte != 0)), 0)?;
            return Ok(relocation.field());
        }
        if matches!(relocation.r_type, 41 | 42) && self.is_relaxed(relocation) {
            self.check_relaxed(relocation)?;
            return Ok(relocation.rewritable());
        }
        if let Some(explained) = self.extended(relocation) {
            return Ok(explained);
        }
        self.check_value(relocation, FieldValue::of(field))?;
        Ok(relocation.field())
    }

    /// Checks that a field holds the value of its formula. `v` is the field, sign-extended. `S`, `A`, `P`, `L`, `G`,
    /// `GOT` and `Z` are the psABI's (4.4.1).
    fn check_value(
        &self,
        relocation: &Relocation,
        FieldValue { signed: v, unsigned }: FieldValue,
    ) -> Result<(), Mismatch> {
        let symbol = relocation.symbol;
        let (s, a) = (self.symbol_address(symbol), relocation.addend as u64);
        let (p, got) = (self.address.wrapping_add(relocation.offset), self.got_address());
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
            32 => self.expect(relocation, unsigned, self.object.symbol_size(symbol).wrapping_add(a)),
            33 => self.expect(relocation, v, self.object.symbol_size(symbol).wrapping_add(a)),
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
            19 => self.expect_entry(offset, entry, &self.pair(symbol)),
            20 => self.expect_entry(offset, entry, &self.own_block()),
            // Offset from the start of the block
            17 | 21 => self.expect(relocation, v, self.offset_from_own_block(symbol).wrapping_add(a)),
            // GOT entry: distance from the thread pointer
            22 | 44 | 47 | 50 => self.expect_entry(offset, entry, &self.static_offset(symbol, offset)?),
            // Distance from the thread pointer
            18 | 23 => self.expect(relocation, v, self.static_offset(symbol, offset)?[0].wrapping_add(a)),
            // GOT entry: descriptor
            34 | 45 | 48 | 51 => self.expect_entry(offset, entry, &self.descriptor(symbol, entry)),
            unknown => Err(Mismatch::new(offset, format!("relocation type {unknown}"), "linked", "refused")),
        }
    }

    // ---- instructions ----

    /// Whether the bytes before the field differ from the object's.
    fn is_relaxed(&self, relocation: &Relocation) -> bool {
        let before = relocation.rewritable().start..relocation.field().start;
        self.memory.get(before.clone()) != self.content.get(before)
    }

    /// Checks a load, call or jump that was rewritten to do without its slot (psABI B.2). It must lead to the address
    /// that the slot would hold.
    fn check_relaxed(&self, relocation: &Relocation) -> Result<(), Mismatch> {
        let (new, old) = (self.memory.get(relocation.rewritable()), self.content.get(relocation.rewritable()));
        let (Some([opcode, modrm, field @ ..]), Some([old_opcode, old_modrm, ..])) = (new, old) else {
            return Err(Mismatch::new(
                relocation.offset,
                relocation.name(),
                "a rewritten instruction",
                "two bytes before the field",
            ));
        };
        // The instruction ends with the field. A rewritten jump is a byte shorter.
        let end = self.address.wrapping_add(relocation.offset).wrapping_add(4);
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
                return Err(Mismatch::new(relocation.offset, relocation.name(), found, "one of the three relaxations"));
            }
        };
        // The addend of such an instruction must be that of a plain load of the slot.
        self.expect(relocation, relocation.addend as u64, -4i64 as u64)?;
        self.expect(relocation, leads_to, self.symbol_address(relocation.symbol))
    }

    /// Whether `stub` is the address of a stub whose slot holds `target`.
    pub(super) fn is_stub_for(&self, stub: u64, target: u64) -> bool {
        let Some((start, bytes)) = self.block(self.link.tables.stubs()) else { return false };
        let offset = stub.wrapping_sub(start);
        let stub_bytes = usize::try_from(offset).ok().and_then(|offset| bytes.get(offset..offset.checked_add(16)?));
        match stub_bytes {
            // endbr64; jmp *slot(%rip)
            Some([0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, a, b, c, d, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc])
                if offset.is_multiple_of(16) =>
            {
                let slot = stub.wrapping_add(10).wrapping_add(FieldValue::of(&[*a, *b, *c, *d]).signed);
                self.got_word(slot) == Some(target)
            }
            _ => false,
        }
    }

    // ---- values ----

    fn expect(&self, relocation: &Relocation, found: u64, expected: u64) -> Result<(), Mismatch> {
        match found == expected {
            true => Ok(()),
            false => {
                let (found, expected) = (format!("{found:#x}"), format!("{expected:#x}"));
                Err(Mismatch::new(relocation.offset, relocation.name(), found, expected))
            }
        }
    }

    /// As [`expect`](Self::expect); but for a known function whose address does not fit, `leads_to` may be its stub.
    fn expect_or_stub(
        &self,
        relocation: &Relocation,
        found: u64,
        expected: u64,
        leads_to: u64,
    ) -> Result<(), Mismatch> {
        let symbol = relocation.symbol as usize;
        let is_function = self.link.found(SymbolIndex(symbol as u32)).is_some_and(|found| found.is_callable);
        let fits = match relocation.r_type {
            10 => u32::try_from(expected).is_ok(),
            _ => i32::try_from(expected as i64).is_ok(),
        };
        if is_function && !fits && self.is_stub_for(leads_to, self.symbol_address(relocation.symbol)) {
            return Ok(());
        }
        self.expect(relocation, found, expected)
    }

    /// Checks that the GOT holds `words` at the address `entry`. `offset` is the place to report.
    pub(super) fn expect_entry(&self, offset: u64, entry: u64, words: &[u64]) -> Result<(), Mismatch> {
        for (index, word) in (0..).zip(words) {
            let found = self.got_word(entry.wrapping_add(index * 8));
            if found != Some(*word) {
                let found = found.map_or("no word of the GOT".to_string(), |found| format!("{found:#x}"));
                let kind = format!("GOT entry at {entry:#x}, word {index}");
                return Err(Mismatch::new(offset, kind, found, format!("{word:#x}")));
            }
        }
        Ok(())
    }

    fn got_word(&self, address: u64) -> Option<u64> {
        let (start, bytes) = self.block(self.link.tables.got())?;
        let offset = usize::try_from(address.wrapping_sub(start)).ok().filter(|offset| offset % 8 == 0)?;
        Some(FieldValue::of(bytes.get(offset..offset.checked_add(8)?)?).unsigned)
    }

    fn got_address(&self) -> u64 {
        self.block(self.link.tables.got()).map_or(0, |(address, _)| address)
    }

    /// A block's address and its bytes.
    pub(super) fn block(&self, id: Option<BlockId>) -> Option<(u64, &[u8])> {
        let block = &self.link.graph.blocks[id?.index()];
        let start = self.link.addresses.segments[block.pool.index()].value();
        Some((start.wrapping_add(block.offset), self.snapshot.bytes(block)?))
    }

    fn definition(&self, symbol: u32) -> Definition {
        definition(self.link, symbol)
    }

    /// `S`: the address of a symbol.
    pub(super) fn symbol_address(&self, symbol: u32) -> u64 {
        match self.definition(symbol) {
            Definition::Absolute(value) => value,
            Definition::External => self.link.found(SymbolIndex(symbol)).map_or(0, |found| found.address.value()),
            Definition::Nowhere => 0,
            Definition::Block(id, offset) => {
                let block = &self.link.graph.blocks[id.index()];
                let start = match block.large_index {
                    Some(number) => self.link.addresses.large_sections[number as usize].value(),
                    None => self.link.addresses.segments[block.pool.index()].value().wrapping_add(block.offset),
                };
                start.wrapping_add(offset)
            }
        }
    }

    // ---- thread-local variables ----

    fn thread_local_location(&self, symbol: u32) -> ThreadLocalLocation {
        let own = self.link.addresses.thread_locals;
        match self.definition(symbol) {
            Definition::Block(id, offset) if self.link.graph.blocks[id.index()].role == Role::ThreadLocal => {
                let offset = self.link.graph.blocks[id.index()].offset + offset;
                let start = own.and_then(|own| own.static_offset);
                let from_thread_pointer = start.map(|start| start.wrapping_add_unsigned(offset));
                ThreadLocalLocation { module: own.map_or(0, |own| own.module.into()), offset, from_thread_pointer }
            }
            _ => {
                // The address of an external variable has the module number in its upper half, the offset in its lower
                // half.
                let found = self.link.found(SymbolIndex(symbol)).copied().unwrap_or_default();
                let (module, offset) = (found.address.value() >> 32, found.address.value() & 0xffff_ffff);
                ThreadLocalLocation { module, offset, from_thread_pointer: found.thread_local.flatten() }
            }
        }
    }

    /// The GOT pair of a variable: module and offset.
    pub(super) fn pair(&self, symbol: u32) -> Vec<u64> {
        let ThreadLocalLocation { module, offset, .. } = self.thread_local_location(symbol);
        vec![module, offset]
    }

    /// The GOT pair of the object's own block.
    pub(super) fn own_block(&self) -> Vec<u64> {
        vec![self.link.addresses.thread_locals.map_or(0, |own| own.module.into()), 0]
    }

    /// A variable's distance from the thread pointer. `offset` is the place to report if there is none.
    pub(super) fn static_offset(&self, symbol: u32, offset: u64) -> Result<Vec<u64>, Mismatch> {
        match self.thread_local_location(symbol).from_thread_pointer {
            Some(distance) => Ok(vec![distance as u64]),
            None => Err(Mismatch::new(
                offset,
                "thread-local variable",
                "a fixed distance",
                "a refusal: the variable has none",
            )),
        }
    }

    /// The descriptor of a variable at the address `entry`: function, argument, and the pair that the argument points
    /// to.
    pub(super) fn descriptor(&self, symbol: u32, entry: u64) -> Vec<u64> {
        let function = self.link.graph.descriptor_function.map_or(0, |function| self.symbol_address(function.0));
        let ThreadLocalLocation { module, offset, .. } = self.thread_local_location(symbol);
        vec![function, entry.wrapping_add(16), module, offset]
    }

    /// A variable's distance from the start of the object's own block, also for a variable of another block.
    fn offset_from_own_block(&self, symbol: u32) -> u64 {
        let ThreadLocalLocation { module, offset, from_thread_pointer } = self.thread_local_location(symbol);
        match (self.link.addresses.thread_locals, from_thread_pointer) {
            (Some(own), Some(distance)) if u64::from(own.module) != module => {
                distance.wrapping_sub(own.static_offset.unwrap_or(0)) as u64
            }
            _ => offset,
        }
    }
}

/// A little-endian field of up to eight bytes, widened in both ways.
pub(super) struct FieldValue {
    pub(super) signed: u64,
    pub(super) unsigned: u64,
}

impl FieldValue {
    pub(super) fn of(field: &[u8]) -> FieldValue {
        let extended = |filler: u8| {
            let mut word = [filler; 8];
            let width = field.len().min(8);
            word[..width].copy_from_slice(&field[..width]);
            u64::from_le_bytes(word)
        };
        let is_negative = field.last().is_some_and(|byte| byte & 0x80 != 0);
        FieldValue { signed: extended(if is_negative { 0xff } else { 0 }), unsigned: extended(0) }
    }
}

/// The definition of a symbol of the object, by its number.
pub(super) fn definition(link: &ResolvedLink<'_>, symbol: u32) -> Definition {
    link.graph.symbols.get(symbol as usize).map_or(Definition::Nowhere, |symbol| symbol.definition)
}
