//! [`Judge`]: what one field must be, by the formula that the psABI gives for the relocation's number (1.0, table 4.9).
//!
//! Every formula is read backwards where it goes through a table: the field says where the code will look, and there must
//! be what the code wants. All arithmetic is modulo 2⁶⁴, as the machine's; a narrow field is widened as the machine would
//! widen it and must then be the *whole* value, so a truncated one is found.

use std::ops::Range;

use super::reread::{Reference, Reread};
use super::{Finding, Seen};
use crate::link::fixup::Fixup;
use crate::link::graph::SymbolIndex;
use crate::link::graph::{BlockId, Definition, Role};

/// Judges the fields of one section.
pub(super) struct Judge<'a> {
    pub(super) fixup: &'a Fixup<'a>,
    pub(super) seen: &'a Seen,
    pub(super) reread: &'a Reread<'a>,
    /// As the object has it.
    pub(super) content: &'a [u8],
    /// As it was found.
    pub(super) memory: &'a [u8],
    /// Where it stands.
    pub(super) address: u64,
}

/// A thread-local variable: module, offset in the module's block, distance from the thread pointer.
struct Variable {
    module: u64,
    offset: u64,
    from_thread_pointer: Option<i64>,
}

impl Judge<'_> {
    /// Judges a field; the bytes that its relocation accounts for.
    pub(super) fn reference(&self, reference: &Reference) -> Result<Range<usize>, Finding> {
        let field = self.memory.get(reference.field()).filter(|field| !field.is_empty());
        let Some(field) = field else {
            return Err(Finding::new(reference.offset, reference.name(), "no such field", "one in its section"));
        };
        if self.definition(reference.symbol) == Definition::Nowhere {
            self.same(reference, u64::from(field.iter().any(|byte| *byte != 0)), 0)?;
            return Ok(reference.field());
        }
        if matches!(reference.r_type, 41 | 42) && self.is_rewritten(reference) {
            self.rewritten(reference)?;
            return Ok(reference.reach());
        }
        if let Some(touched) = self.redirected(reference) {
            return Ok(touched);
        }
        self.field(reference, Value::of(field))?;
        Ok(reference.field())
    }

    /// `v` is what the field holds; `S`, `A`, `P`, `G`, `GOT` and `Z` are the psABI's.
    fn field(&self, reference: &Reference, Value { signed: v, unsigned }: Value) -> Result<(), Finding> {
        let symbol = reference.symbol;
        let (s, a) = (self.symbol_address(symbol), reference.addend as u64);
        let (p, got) = (self.address.wrapping_add(reference.offset), self.got_address());
        let s_plus_a = s.wrapping_add(a);
        match reference.r_type {
            // S + A
            1 => self.same(reference, v, s_plus_a),
            10 => self.same_or_stub(reference, unsigned, s_plus_a, unsigned.wrapping_sub(a)),
            11 => self.same_or_stub(reference, v, s_plus_a, v.wrapping_sub(a)),
            // Both readings of the bits are in use.
            12 | 14 if unsigned == s_plus_a => Ok(()),
            12 | 14 => self.same(reference, v, s_plus_a),
            // S + A - P
            2 => self.same_or_stub(reference, v, s_plus_a.wrapping_sub(p), v.wrapping_add(p).wrapping_sub(a)),
            13 | 15 | 24 => self.same(reference, v, s_plus_a.wrapping_sub(p)),
            // L + A - P, where L is S or a way there
            4 if self.is_stub_for(v.wrapping_add(p).wrapping_sub(a), s) => Ok(()),
            4 => self.same(reference, v, s_plus_a.wrapping_sub(p)),
            // G + A - P: the slot holds S
            9 | 28 | 41 | 42 | 43 | 46 | 49 => self.entry(reference.offset, v.wrapping_add(p).wrapping_sub(a), &[s]),
            // G + A - GOT
            3 | 27 | 30 => self.entry(reference.offset, v.wrapping_add(got).wrapping_sub(a), &[s]),
            // S + A - GOT
            25 | 31 => self.same(reference, v, s_plus_a.wrapping_sub(got)),
            // GOT + A - P
            26 | 29 => self.same(reference, v, got.wrapping_add(a).wrapping_sub(p)),
            // Z + A
            32 => self.same(reference, unsigned, self.reread.symbol_size(symbol).wrapping_add(a)),
            33 => self.same(reference, v, self.reread.symbol_size(symbol).wrapping_add(a)),
            _ => self.thread_local_field(reference, v, v.wrapping_add(p).wrapping_sub(a)),
        }
    }

    /// Those of thread-local variables; `entry` is where the field leads.
    fn thread_local_field(&self, reference: &Reference, v: u64, entry: u64) -> Result<(), Finding> {
        let (symbol, offset) = (reference.symbol, reference.offset);
        let a = reference.addend as u64;
        match reference.r_type {
            // In the GOT: module and offset
            19 => self.entry(offset, entry, &self.pair(symbol)),
            20 => self.entry(offset, entry, &self.own_block()),
            // Offset in the block
            17 | 21 => self.same(reference, v, self.offset_from_own_block(symbol).wrapping_add(a)),
            // In the GOT: distance from the thread pointer
            22 | 44 | 47 | 50 => self.entry(offset, entry, &self.static_offset(symbol, offset)?),
            // Distance from the thread pointer
            18 | 23 => self.same(reference, v, self.static_offset(symbol, offset)?[0].wrapping_add(a)),
            // In the GOT: descriptor
            34 | 45 | 48 | 51 => self.entry(offset, entry, &self.descriptor(symbol, entry)),
            unknown => Err(Finding::new(offset, format!("relocation {unknown}"), "linked", "refused")),
        }
    }

    // ---- instructions ---------------------------------------------------------

    fn is_rewritten(&self, reference: &Reference) -> bool {
        let ahead = reference.reach().start..reference.field().start;
        self.memory.get(ahead.clone()) != self.content.get(ahead)
    }

    /// A load, call or jump by way of the slot was made one without. It must reach what the slot would have held.
    fn rewritten(&self, reference: &Reference) -> Result<(), Finding> {
        let (is, was) = (self.memory.get(reference.reach()), self.content.get(reference.reach()));
        let (Some([opcode, modrm, is_field @ ..]), Some([old_opcode, old_modrm, ..])) = (is, was) else {
            return Err(Finding::new(reference.offset, reference.name(), "another instruction", "room for one"));
        };
        // The instruction ends with the field, whichever of them it is; a jump is a byte shorter.
        let end = self.address.wrapping_add(reference.offset).wrapping_add(4);
        let is_load = (*old_opcode, *old_modrm & 0xc7) == (0x8b, 0x05);
        let is_plain = reference.r_type == 41;
        let leads_to = match (*opcode, *modrm) {
            // mov slot(%rip), %reg → lea symbol(%rip), the same %reg
            (0x8d, modrm) if is_load && modrm == *old_modrm => end.wrapping_add(Value::of(is_field).signed),
            // call *slot(%rip) → addr32 call symbol
            (0x67, 0xe8) if is_plain && (*old_opcode, *old_modrm) == (0xff, 0x15) => {
                end.wrapping_add(Value::of(is_field).signed)
            }
            // jmp *slot(%rip) → jmp symbol; nop
            (0xe9, first)
                if is_plain && (*old_opcode, *old_modrm) == (0xff, 0x25) && is_field.last() == Some(&0x90) =>
            {
                let field = [first, is_field[0], is_field[1], is_field[2]];
                end.wrapping_sub(1).wrapping_add(Value::of(&field).signed)
            }
            _ => {
                let found = format!("{opcode:02x} {modrm:02x} for {old_opcode:02x} {old_modrm:02x}");
                return Err(Finding::new(reference.offset, reference.name(), found, "one of the three rewritings"));
            }
        };
        // Such an instruction reads the slot itself, no byte behind it.
        self.same(reference, reference.addend as u64, -4i64 as u64)?;
        self.same(reference, leads_to, self.symbol_address(reference.symbol))
    }

    /// Whether at `stub` there is `jmp *slot(%rip)`, in the block of stubs, with a slot that holds `target`.
    pub(super) fn is_stub_for(&self, stub: u64, target: u64) -> bool {
        let Some((start, bytes)) = self.block(self.fixup.tables.stubs()) else { return false };
        let offset = stub.wrapping_sub(start);
        let stub_bytes = usize::try_from(offset).ok().and_then(|offset| bytes.get(offset..offset.checked_add(16)?));
        match stub_bytes {
            // endbr64; jmp *slot(%rip)
            Some([0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, a, b, c, d, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc])
                if offset.is_multiple_of(16) =>
            {
                let slot = stub.wrapping_add(10).wrapping_add(Value::of(&[*a, *b, *c, *d]).signed);
                self.got_word(slot) == Some(target)
            }
            _ => false,
        }
    }

    // ---- values ---------------------------------------------------------------

    fn same(&self, reference: &Reference, found: u64, expected: u64) -> Result<(), Finding> {
        match found == expected {
            true => Ok(()),
            false => {
                let (found, expected) = (format!("{found:#x}"), format!("{expected:#x}"));
                Err(Finding::new(reference.offset, reference.name(), found, expected))
            }
        }
    }

    /// A known function's address may be its stub's, if its own does not fit the field.
    fn same_or_stub(&self, reference: &Reference, found: u64, expected: u64, leads_to: u64) -> Result<(), Finding> {
        let symbol = reference.symbol as usize;
        let is_function = self.fixup.found(SymbolIndex(symbol as u32)).is_some_and(|found| found.is_callable);
        let fits = match reference.r_type {
            10 => u32::try_from(expected).is_ok(),
            _ => i32::try_from(expected as i64).is_ok(),
        };
        if is_function && !fits && self.is_stub_for(leads_to, self.symbol_address(reference.symbol)) {
            return Ok(());
        }
        self.same(reference, found, expected)
    }

    /// At `entry`, which must be in the GOT, are these words.
    pub(super) fn entry(&self, offset: u64, entry: u64, words: &[u64]) -> Result<(), Finding> {
        for (index, word) in (0..).zip(words) {
            let found = self.got_word(entry.wrapping_add(index * 8));
            if found != Some(*word) {
                let found = found.map_or("no word of the GOT".to_string(), |found| format!("{found:#x}"));
                let kind = format!("GOT entry at {entry:#x}, word {index}");
                return Err(Finding::new(offset, kind, found, format!("{word:#x}")));
            }
        }
        Ok(())
    }

    fn got_word(&self, address: u64) -> Option<u64> {
        let (start, bytes) = self.block(self.fixup.tables.got())?;
        let offset = usize::try_from(address.wrapping_sub(start)).ok().filter(|offset| offset % 8 == 0)?;
        Some(Value::of(bytes.get(offset..offset.checked_add(8)?)?).unsigned)
    }

    fn got_address(&self) -> u64 {
        self.block(self.fixup.tables.got()).map_or(0, |(address, _)| address)
    }

    pub(super) fn block(&self, id: Option<BlockId>) -> Option<(u64, &[u8])> {
        let block = &self.fixup.graph.blocks[id?.index()];
        let start = self.fixup.places.segments[block.pool.index()].value();
        Some((start.wrapping_add(block.offset), self.seen.bytes(block)?))
    }

    fn definition(&self, symbol: u32) -> Definition {
        super::definition(self.fixup, symbol)
    }

    /// `S`.
    pub(super) fn symbol_address(&self, symbol: u32) -> u64 {
        match self.definition(symbol) {
            Definition::Absolute(value) => value,
            Definition::External => self.fixup.found(SymbolIndex(symbol)).map_or(0, |found| found.address.value()),
            Definition::Nowhere => 0,
            Definition::Block(id, offset) => {
                let block = &self.fixup.graph.blocks[id.index()];
                let start = match block.apart {
                    Some(number) => self.fixup.places.apart[number as usize].value(),
                    None => self.fixup.places.segments[block.pool.index()].value().wrapping_add(block.offset),
                };
                start.wrapping_add(offset)
            }
        }
    }

    // ---- thread-local variables -------------------------------------------------

    fn variable(&self, symbol: u32) -> Variable {
        let own = self.fixup.places.thread_locals;
        match self.definition(symbol) {
            Definition::Block(id, offset) if self.fixup.graph.blocks[id.index()].role == Role::TlsIndex => {
                let offset = self.fixup.graph.blocks[id.index()].offset + offset;
                let start = own.and_then(|own| own.static_offset);
                let from_thread_pointer = start.map(|start| start.wrapping_add_unsigned(offset));
                Variable { module: own.map_or(0, |own| own.module.into()), offset, from_thread_pointer }
            }
            _ => {
                // A variable's address is its module in the upper half, its offset in the lower.
                let found = self.fixup.found(SymbolIndex(symbol)).copied().unwrap_or_default();
                let (module, offset) = (found.address.value() >> 32, found.address.value() & 0xffff_ffff);
                Variable { module, offset, from_thread_pointer: found.thread_local.flatten() }
            }
        }
    }

    /// A variable's module and offset.
    pub(super) fn pair(&self, symbol: u32) -> Vec<u64> {
        let Variable { module, offset, .. } = self.variable(symbol);
        vec![module, offset]
    }

    /// The start of the object's own block.
    pub(super) fn own_block(&self) -> Vec<u64> {
        vec![self.fixup.places.thread_locals.map_or(0, |own| own.module.into()), 0]
    }

    /// A variable's distance from the thread pointer.
    pub(super) fn static_offset(&self, symbol: u32, offset: u64) -> Result<Vec<u64>, Finding> {
        match self.variable(symbol).from_thread_pointer {
            Some(distance) => Ok(vec![distance as u64]),
            None => Err(Finding::new(offset, "thread-local variable", "a fixed distance", "refusal: it has none")),
        }
    }

    /// A variable's descriptor at `entry`: function, argument, and the pair that the argument points to.
    pub(super) fn descriptor(&self, symbol: u32, entry: u64) -> Vec<u64> {
        let function = self.fixup.graph.descriptor_function.map_or(0, |function| self.symbol_address(function.0));
        let Variable { module, offset, .. } = self.variable(symbol);
        vec![function, entry.wrapping_add(16), module, offset]
    }

    /// Distance of a variable from the start of the object's own block, also if it is in another's.
    fn offset_from_own_block(&self, symbol: u32) -> u64 {
        let Variable { module, offset, from_thread_pointer } = self.variable(symbol);
        match (self.fixup.places.thread_locals, from_thread_pointer) {
            (Some(own), Some(distance)) if u64::from(own.module) != module => {
                distance.wrapping_sub(own.static_offset.unwrap_or(0)) as u64
            }
            _ => offset,
        }
    }
}

/// What a little-endian field of up to eight bytes holds.
pub(super) struct Value {
    pub(super) signed: u64,
    pub(super) unsigned: u64,
}

impl Value {
    pub(super) fn of(field: &[u8]) -> Value {
        let extended = |filler: u8| {
            let mut word = [filler; 8];
            let width = field.len().min(8);
            word[..width].copy_from_slice(&field[..width]);
            u64::from_le_bytes(word)
        };
        let is_negative = field.last().is_some_and(|byte| byte & 0x80 != 0);
        Value { signed: extended(if is_negative { 0xff } else { 0 }), unsigned: extended(0) }
    }
}
