//! Moves one instruction into a thunk that computes the distance of a thread-local variable in the thread that runs.
//!
//! The instruction holds a part of a distance from the thread pointer (local exec) or from the start of a block (local
//! dynamic), or loads a distance from a slot (initial exec). The thunk calls the function of TLS descriptors, which keeps
//! all registers but `x0` and the flags.
//!
//! ```text
//!   stp x0, x30, [sp, #-32]!; stp xs, xf, [sp, #16]; mrs xf, nzcv
//!   adrp x0, variable; add x0, x0, variable; bl function
//!   mov xs, x0                                     or, with an addend: movz, movk xs; add xs, x0, xs
//!   adrp x0, block; add x0, x0, block; bl function; sub xs, xs, x0     for a distance from the start of a block
//!   msr nzcv, xf; ldp x0, x30, [sp]; ldr xf, [sp, #24]
//!   the instruction, with a part of xs for its own part of the distance
//!   ldr xs, [sp, #16]; add sp, sp, #32
//!   b next instruction
//! ```
//!
//! `xs` and `xf` are registers that the instruction does not use. Linux has no red zone on AArch64, so the memory below `sp`
//! is free (AAPCS64, 6.4.5.1).
//!
//! # Parts
//! A distance that is fixed has few bits, and an address minus the thread pointer has all 64. So one instruction of a group
//! takes what the others leave:
//!
//! | relocation | part |
//! |---|---|
//! | `HI12` | all but the low 12 bits |
//! | `LO12_NC` | the low 12 bits |
//! | `LO12`, which checks | all; refused beside a `HI12` of the same variable |
//! | `G0`, `G1`, `G2`, which check | all but the low 0, 16 or 32 bits |
//! | `G0_NC`, `G1_NC` | 16 bits |
//! | the load of a slot | all |
//!
//! # Refused
//! Instructions of other forms, on the stack pointer, and of 32 bits. Any thunk in a section with instructions of SVE: the
//! function keeps 128 bits of the vector registers.

use rustc_hash::FxHashSet;

use crate::arch::EdgeKind;
use crate::arch::aarch64::branch::{B, BL, branch};
use crate::arch::aarch64::field::Field;
use crate::arch::far_code::{FarCode, FarValue, ThreadDistance};

/// The most bytes of a thunk.
pub(crate) const MAX_DISTANCE_THUNK_SIZE: usize = 96;

/// What the instructions of a section say about all distances in it.
pub(super) struct DistanceSection {
    has_sve: bool,
    /// The distances whose upper bits an instruction has.
    high_parts: FxHashSet<u64>,
}

impl DistanceSection {
    pub(super) fn of(code: &FarCode<'_>) -> DistanceSection {
        let distances = code.references.iter().filter_map(|reference| match &reference.value {
            FarValue::Distance(distance) => Some((reference.kind, distance)),
            FarValue::Address(_) => None,
        });
        let is_high = |(kind, _): &(EdgeKind, &ThreadDistance)| field_of(*kind) == Some(Field::AddHigh);
        DistanceSection {
            has_sve: distances.clone().next().is_some() && code.content.chunks_exact(4).any(is_of_sve),
            high_parts: distances.filter(is_high).map(|(_, distance)| number_of(distance)).collect(),
        }
    }

    /// The thunk at `thunk` for an instruction with a part of a distance. It goes on at `next`.
    pub(super) fn thunk(
        &self,
        instruction: u32,
        kind: EdgeKind,
        distance: &ThreadDistance,
        thunk: u64,
        next: u64,
    ) -> Result<Vec<u8>, String> {
        if holds_all(kind) && self.high_parts.contains(&number_of(distance)) {
            return Err("another instruction has the upper bits of the distance".to_string());
        }
        if self.has_sve {
            return Err("the section has instructions of SVE, whose registers a thunk does not keep".to_string());
        }
        let use_of = Use::of(instruction, kind).ok_or("it is no instruction of this model")?;
        build(&use_of, distance, thunk, next)
    }
}

/// A number for a variable and what its distance counts from. Addresses of descriptors are even.
fn number_of(distance: &ThreadDistance) -> u64 {
    distance.variable | u64::from(distance.block.is_some())
}

/// Whether the relocation of an edge checks that the low 12 bits are all of the distance.
fn holds_all(kind: EdgeKind) -> bool {
    kind.range().is_some() && field_of(kind).is_some_and(|field| matches!(field, Field::Add | Field::LoadStore(_)))
}

/// Whether four bytes of a section are an instruction of SVE (Arm ARM, C4.1: `op0` is 0010). Data may be taken for one.
fn is_of_sve(bytes: &[u8]) -> bool {
    bytes[3] & 0x1e == 0x04
}

fn field_of(kind: EdgeKind) -> Option<Field> {
    match kind {
        EdgeKind::Aarch64(relocation) => Some(relocation.row().field),
        _ => None,
    }
}

/// What an instruction does with a distance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// Adds a part of it to a register.
    Add { to: u32, base: u32, part: Part },
    /// Loads or stores at a register plus a part of it. The instruction has a zero offset and no base.
    Access { instruction: u32, base: u32, part: Part },
    /// Sets a register to a part of it.
    Set { to: u32, part: Part },
    /// Inserts 16 bits of it into a register, from a bit on.
    Insert { to: u32, from: u32 },
}

/// A part of a distance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// All but the low bits.
    From(u32),
    /// The low 12 bits.
    Low12,
    /// 16 bits, from a bit on.
    Bits16(u32),
}

impl Use {
    /// The use of an instruction with an edge of a kind; `None` if the instruction has another form.
    fn of(instruction: u32, kind: EdgeKind) -> Option<Use> {
        let field = field_of(kind)?;
        let (to, base) = (instruction & 31, instruction >> 5 & 31);
        let low = if kind.range().is_some() { Part::From(0) } else { Part::Low12 };
        let is_slot = kind.general() == EdgeKind::StaticLoad32;
        let is_plain = base != STACK_POINTER;
        let is_set = to != ZERO_REGISTER;
        match field {
            Field::Add | Field::AddHigh if is_plain && is_set && instruction & 0xff80_0000 == ADD => {
                // The part of `HI12` counts in units of 4 KiB: the instruction shifts it.
                let is_shifted = instruction & ADD_SHIFT != 0;
                let part = if field == Field::AddHigh { Part::From(12) } else { low };
                (is_shifted == (field == Field::AddHigh)).then_some(Use::Add { to, base, part })
            }
            Field::LoadStore(3) if is_slot && is_set && instruction & 0xffc0_0000 == LDR => {
                Some(Use::Set { to, part: Part::From(0) })
            }
            Field::Literal if is_slot && is_set && instruction & 0xff00_0000 == LDR_LITERAL => {
                Some(Use::Set { to, part: Part::From(0) })
            }
            Field::LoadStore(_) if !is_slot && is_plain && instruction & 0x3b00_0000 == ACCESS => {
                Some(Use::Access { instruction: instruction & !OFFSET_AND_BASE, base, part: low })
            }
            Field::MoveSigned(group) | Field::MoveWide(group) if !is_slot && is_set => {
                let (from, is_checked) = (16 * group, kind.range().is_some());
                let has_group = instruction >> 21 & 3 == group;
                match instruction & 0xff80_0000 {
                    MOVK if has_group && !is_checked => Some(Use::Insert { to, from }),
                    MOVZ if has_group && !is_checked => Some(Use::Set { to, part: Part::Bits16(from) }),
                    MOVZ | MOVN if has_group && is_checked => Some(Use::Set { to, part: Part::From(from) }),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// The registers that the instruction names.
    fn registers(&self) -> [u32; 2] {
        match *self {
            Use::Add { to, base, .. } => [to, base],
            Use::Access { instruction, base, .. } => [instruction & 31, base],
            Use::Set { to, .. } | Use::Insert { to, .. } => [to, to],
        }
    }
}

/// The thunk at an address for one use of a distance. It goes on at `next`.
fn build(use_of: &Use, distance: &ThreadDistance, thunk: u64, next: u64) -> Result<Vec<u8>, String> {
    let mut unused = (9..=15).filter(|register| !use_of.registers().contains(register));
    let (Some(scratch), Some(flags)) = (unused.next(), unused.next()) else {
        return Err("it leaves no register".to_string());
    };
    let mut writer = ThunkWriter { code: Vec::with_capacity(MAX_DISTANCE_THUNK_SIZE), address: thunk };
    writer.push([
        0xa9be_7be0,                         // stp x0, x30, [sp, #-32]!
        0xa901_03e0 | flags << 10 | scratch, // stp xs, xf, [sp, #16]
        0xd53b_4200 | flags,                 // mrs xf, nzcv
    ]);
    writer.call_function(distance.variable, distance.function)?;
    writer.add_constant(scratch, distance.addend);
    if let Some(block) = distance.block {
        writer.call_function(block, distance.function)?;
        writer.push([0xcb00_0000 | scratch << 5 | scratch]); // sub xs, xs, x0
    }
    writer.push([
        0xd51b_4200 | flags, // msr nzcv, xf
        0xa940_7be0,         // ldp x0, x30, [sp]
        0xf940_0fe0 | flags, // ldr xf, [sp, #24]
    ]);
    writer.apply(use_of, scratch);
    writer.push([
        0xf940_0be0 | scratch, // ldr xs, [sp, #16]
        0x9100_83ff,           // add sp, sp, #32
    ]);
    writer.branch(B, next)?;
    Ok(writer.code)
}

/// Writes instructions one after the other.
struct ThunkWriter {
    code: Vec<u8>,
    /// The address of the first instruction.
    address: u64,
}

impl ThunkWriter {
    fn push<const COUNT: usize>(&mut self, instructions: [u32; COUNT]) {
        self.code.extend(instructions.into_iter().flat_map(u32::to_le_bytes));
    }

    fn place(&self) -> u64 {
        self.address.wrapping_add(self.code.len() as u64)
    }

    fn branch(&mut self, opcode: u32, target: u64) -> Result<(), String> {
        let instruction = branch(opcode, self.place(), target).ok_or("its thunk is out of reach")?;
        self.push([instruction]);
        Ok(())
    }

    /// Calls the function of TLS descriptors. It returns the distance from the thread pointer in `x0`.
    fn call_function(&mut self, descriptor: u64, function: u64) -> Result<(), String> {
        let mut page = ADRP.to_le_bytes();
        let pages = i128::from(descriptor & !0xfff) - i128::from(self.place() & !0xfff);
        if !(-(1 << 32)..1 << 32).contains(&pages) {
            return Err("its descriptor is out of reach".to_string());
        }
        Field::Adrp.store(&mut page, pages);
        self.push([u32::from_le_bytes(page), ADD | (descriptor as u32 & 0xfff) << 10]);
        self.branch(BL, function)
    }

    /// Sets `to` to `x0` plus a constant.
    fn add_constant(&mut self, to: u32, constant: i64) {
        if constant == 0 {
            return self.push([MOV | to]); // mov xs, x0
        }
        let part = |group: u32| (constant as u64 >> (16 * group)) as u32 & 0xffff;
        self.push([MOVZ | part(0) << 5 | to]);
        for group in (1..4).filter(|group| part(*group) != 0) {
            self.push([MOVK | group << 21 | part(group) << 5 | to]);
        }
        self.push([0x8b00_0000 | to << 16 | to]); // add xs, x0, xs
    }

    /// Writes the instruction, whose distance is in `scratch`.
    fn apply(&mut self, use_of: &Use, scratch: u32) {
        match *use_of {
            Use::Add { to, base, part } => {
                self.keep(part, scratch);
                self.push([ADD_REGISTER | scratch << 16 | base << 5 | to]);
            }
            Use::Access { instruction, base, part } => {
                self.keep(part, scratch);
                self.push([ADD_REGISTER | scratch << 16 | base << 5 | scratch, instruction | scratch << 5]);
            }
            Use::Set { to, part } => {
                self.keep(part, scratch);
                self.push([MOV | scratch << 16 | to]);
            }
            Use::Insert { to, from } => {
                self.push([
                    0xd340_fc00 | from << 16 | scratch << 5 | scratch, // lsr xs, xs, #from
                    0xb340_3c00 | ((64 - from) % 64) << 16 | scratch << 5 | to, // bfi xd, xs, #from, #16
                ]);
            }
        }
    }

    /// Clears all bits of a register but those of a part.
    fn keep(&mut self, part: Part, register: u32) {
        let (lowest, count) = match part {
            Part::From(0) => return,
            Part::From(low) => (low, 64 - low),
            Part::Low12 => (0, 12),
            Part::Bits16(low) => (low, 16),
        };
        // and x, x, #mask: `count` ones, rotated to begin at `lowest`.
        self.push([0x9240_0000 | ((64 - lowest) % 64) << 16 | (count - 1) << 10 | register << 5 | register]);
    }
}

/// Add (immediate, 64 bits), and its bit that shifts the immediate by 12.
const ADD: u32 = 0x9100_0000;
const ADD_SHIFT: u32 = 0x0040_0000;
/// Add (register, 64 bits).
const ADD_REGISTER: u32 = 0x8b00_0000;
/// A copy of `x0`; with a number at bit 16, of that register.
const MOV: u32 = 0xaa00_03e0;
/// Load and store (unsigned immediate), in the bits that all of them share, and their offset and base.
const ACCESS: u32 = 0x3900_0000;
const OFFSET_AND_BASE: u32 = 0x003f_ffe0;
/// Load (unsigned immediate, 64 bits), and load (literal, 64 bits).
const LDR: u32 = 0xf940_0000;
const LDR_LITERAL: u32 = 0x5800_0000;
/// Moves of 16 bits to a register of 64 bits.
const MOVN: u32 = 0x9280_0000;
const MOVZ: u32 = 0xd280_0000;
const MOVK: u32 = 0xf280_0000;
/// `adrp x0`.
const ADRP: u32 = 0x9000_0000;
/// The number 31 as a base, and as another register.
const STACK_POINTER: u32 = 31;
const ZERO_REGISTER: u32 = 31;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Aarch64Relocation::{self, *};

    const DISTANCE: ThreadDistance = ThreadDistance { variable: 0x9008, block: None, addend: 0, function: 0x3000 };

    fn words(code: &[u8]) -> Vec<u32> {
        code.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
    }

    fn use_of(instruction: u32, relocation: Aarch64Relocation) -> Option<Use> {
        Use::of(instruction, EdgeKind::Aarch64(relocation))
    }

    /// What a thunk does with the distance in x9, between its beginning and its end.
    fn applied(instruction: u32, relocation: Aarch64Relocation) -> Vec<u32> {
        let code = words(&build(&use_of(instruction, relocation).unwrap(), &DISTANCE, 0x2000, 0x1004).unwrap());
        let (begin, end) = (&code[..10], &code[code.len() - 3..]);
        let from = begin[1] & 31;
        assert_eq!(begin[7..9], [0xd51b_4200 | begin[2] & 31, 0xa940_7be0]);
        assert_eq!(end[..2], [0xf940_0be0 | from, 0x9100_83ff]);
        code[10..code.len() - 3].to_vec()
    }

    // The instructions below are those of GNU `as`.

    #[test]
    fn a_thunk_asks_for_the_distance_and_keeps_registers_and_flags() {
        // add x2, x3, :tprel_hi12:variable, lsl #12
        let high = use_of(0x9140_0062, TlsleAddTprelHi12).unwrap();
        let expected = [
            0xa9be_7be0, // stp x0, x30, [sp, #-32]!
            0xa901_2be9, // stp x9, x10, [sp, #16]
            0xd53b_420a, // mrs x10, nzcv
            0xf000_0020, // adrp x0, 0x9000
            0x9100_2000, // add x0, x0, #8
            0x9400_03fb, // bl 0x3000
            0xaa00_03e9, // mov x9, x0
            0xd51b_420a, // msr nzcv, x10
            0xa940_7be0, // ldp x0, x30, [sp]
            0xf940_0fea, // ldr x10, [sp, #24]
            0x9274_cd29, // and x9, x9, #0xfffffffffffff000
            0x8b09_0062, // add x2, x3, x9
            0xf940_0be9, // ldr x9, [sp, #16]
            0x9100_83ff, // add sp, sp, #32
            0x17ff_fbf3, // b 0x1004
        ];
        assert_eq!(words(&build(&high, &DISTANCE, 0x2000, 0x1004).unwrap()), expected);
    }

    #[test]
    fn the_longest_thunk_has_the_reserved_bytes_and_adds_the_addend_to_the_distance_from_the_block() {
        let distance = ThreadDistance { block: Some(0x9028), addend: 0x1234_4321_0678_5678, ..DISTANCE };
        let load = use_of(0xf940_0062, TlsldLdst64DtprelLo12Nc).unwrap();
        let code = words(&build(&load, &distance, 0x2000, 0x1004).unwrap());
        assert_eq!(code.len() * 4, MAX_DISTANCE_THUNK_SIZE);
        // movz and movk x9; add x9, x0, x9
        assert_eq!(code[6..11], [0xd28a_cf09, 0xf2a0_cf09, 0xf2c8_6429, 0xf2e2_4689, 0x8b09_0009]);
        // adrp x0, 0x9000; add x0, x0, #0x28; bl 0x3000; sub x9, x9, x0
        assert_eq!(code[11..15], [0xf000_0020, 0x9100_a000, 0x9400_03f3, 0xcb00_0129]);
        let negative = ThreadDistance { addend: -8, ..DISTANCE };
        let code = words(&build(&load, &negative, 0x2000, 0x1004).unwrap());
        assert_eq!(code[6..11], [0xd29f_ff09, 0xf2bf_ffe9, 0xf2df_ffe9, 0xf2ff_ffe9, 0x8b09_0009]);
    }

    #[test]
    fn each_instruction_takes_its_part_of_the_distance() {
        let cases: [(u32, Aarch64Relocation, &[u32]); 16] = [
            // add x2, x3, #low: and x9, x9, #0xfff; add x2, x3, x9
            (0x9100_0062, TlsleAddTprelLo12Nc, &[0x9240_2d29, 0x8b09_0062]),
            (0x9100_0062, TlsldAddDtprelLo12Nc, &[0x9240_2d29, 0x8b09_0062]),
            (0x9100_0062, TlsleAddTprelLo12, &[0x8b09_0062]),
            // ldr w0, [x3, #low]: and; add x9, x3, x9; ldr w0, [x9]
            (0xb940_0060, TlsleLdst32TprelLo12Nc, &[0x9240_2d29, 0x8b09_0069, 0xb940_0120]),
            (0xb947_fc60, TlsleLdst32TprelLo12, &[0x8b09_0069, 0xb940_0120]),
            // str q0, [x3, #low]
            (0x3d80_0060, TlsleLdst128TprelLo12Nc, &[0x9240_2d29, 0x8b09_0069, 0x3d80_0120]),
            // ldr x2, [x3, :gottprel_lo12:variable]; ldr x2, :gottprel:variable
            (0xf940_0062, TlsieLd64GottprelLo12Nc, &[0xaa09_03e2]),
            (0x5800_0002, TlsieLdGottprelPrel19, &[0xaa09_03e2]),
            // movz x2, #part, lsl #32, which may become movn
            (0xd2c0_0002, TlsleMovwTprelG2, &[0x9260_7d29, 0xaa09_03e2]),
            (0x92a0_0002, TlsleMovwTprelG1, &[0x9270_bd29, 0xaa09_03e2]),
            (0xd280_0002, TlsleMovwTprelG0, &[0xaa09_03e2]),
            // movz x2, #part, lsl #16
            (0xd2a0_0002, TlsleMovwTprelG1Nc, &[0x9270_3d29, 0xaa09_03e2]),
            (0xd280_0002, TlsleMovwTprelG0Nc, &[0x9240_3d29, 0xaa09_03e2]),
            // movk x2, #part, lsl #16: lsr x9, x9, #16; bfi x2, x9, #16, #16
            (0xf2a0_0002, TlsleMovwTprelG1Nc, &[0xd350_fd29, 0xb370_3d22]),
            (0xf280_0002, TlsleMovwTprelG0Nc, &[0xd340_fd29, 0xb340_3d22]),
            (0xf280_0002, TlsldMovwDtprelG0Nc, &[0xd340_fd29, 0xb340_3d22]),
        ];
        for (instruction, relocation, expected) in cases {
            assert_eq!(applied(instruction, relocation), expected, "{instruction:#x} {relocation:?}");
        }
    }

    #[test]
    fn a_thunk_uses_no_register_of_its_instruction() {
        for (instruction, relocation) in [(0x9100_0149, TlsleAddTprelLo12Nc), (0xf940_0149, TlsleLdst64TprelLo12Nc)] {
            // add x9, x10, #low; ldr x9, [x10, #low]
            let code = words(&build(&use_of(instruction, relocation).unwrap(), &DISTANCE, 0x2000, 0x1004).unwrap());
            assert_eq!((code[1], code[2]), (0xa901_33eb, 0xd53b_420c), "stp x11, x12, [sp, #16]; mrs x12, nzcv");
        }
    }

    #[test]
    fn instructions_of_other_forms_have_no_thunk() {
        let cases = [
            (0x1100_0062, TlsleAddTprelLo12Nc, "add w2, w3"),
            (0xd100_0062, TlsleAddTprelLo12Nc, "sub x2, x3"),
            (0xb100_0062, TlsleAddTprelLo12Nc, "adds x2, x3"),
            (0x9140_0062, TlsleAddTprelLo12Nc, "add x2, x3, lsl #12"),
            (0x9100_0062, TlsleAddTprelHi12, "add x2, x3, without a shift"),
            (0x9100_03e2, TlsleAddTprelLo12Nc, "add x2, sp"),
            (0x9100_007f, TlsleAddTprelLo12Nc, "add sp, x3"),
            (0xf940_03e2, TlsleLdst64TprelLo12Nc, "ldr x2, [sp]"),
            (0xf840_0062, TlsleLdst64TprelLo12Nc, "ldur x2, [x3]"),
            (0xa940_0c62, TlsleLdst64TprelLo12Nc, "ldp x2, x3, [x3]"),
            (0xb940_0062, TlsieLd64GottprelLo12Nc, "ldr w2, [x3]"),
            (0xf900_0062, TlsieLd64GottprelLo12Nc, "str x2, [x3]"),
            (0xf940_007f, TlsieLd64GottprelLo12Nc, "ldr xzr, [x3]"),
            (0x1800_0002, TlsieLdGottprelPrel19, "ldr w2, literal"),
            (0x5800_001f, TlsieLdGottprelPrel19, "ldr xzr, literal"),
            (0x5280_0002, TlsleMovwTprelG0, "movz w2"),
            (0xd2a0_0002, TlsleMovwTprelG0, "movz x2, lsl #16"),
            (0xf280_0002, TlsleMovwTprelG0, "movk x2, for all bits"),
            (0x9280_0002, TlsleMovwTprelG0Nc, "movn x2, for some bits"),
            (0xd280_001f, TlsleMovwTprelG0Nc, "movz xzr"),
            (0xd2a0_0002, TlsieMovwGottprelG1, "the distance of a slot"),
        ];
        for (instruction, relocation, what) in cases {
            assert_eq!(use_of(instruction, relocation), None, "{what}");
        }
    }
}
