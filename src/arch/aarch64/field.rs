//! [`Field`]: where an AArch64 relocation stores its value: bytes of data, or bits of an instruction (Arm Architecture
//! Reference Manual, C4.1).
//!
//! | field | bits of the value | bits of the instruction |
//! |---|---|---|
//! | `Adr` | [20:0] | immhi [23:5], immlo [30:29] |
//! | `Adrp` | [32:12] | the same |
//! | `Add`, `AddHigh` | [11:0], [23:12] | imm12 [21:10] |
//! | `LoadStore(n)` | [11:n] | imm12 [21:10], in units of 2ⁿ bytes |
//! | `GotLoad` | [14:3] | imm12 [21:10], in units of 8 bytes |
//! | `Literal` | [20:2] | imm19 [23:5] |
//! | `TestBranch` | [15:2] | imm14 [18:5] |
//! | `Branch` | [27:2] | imm26 [25:0] |
//! | `MoveWide(g)`, `MoveSigned(g)` | [16g + 15:16g] | imm16 [20:5] |
//!
//! `MoveSigned` also makes the instruction MOVN for a negative value, which then holds the inverted bits, and MOVZ for another
//! one. A MOVK stays a MOVK.

/// Where a value is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    /// A little-endian number of so many bytes.
    Bytes(u8),
    Adr,
    Adrp,
    Add,
    AddHigh,
    LoadStore(u32),
    GotLoad,
    Literal,
    TestBranch,
    Branch,
    MoveWide(u32),
    MoveSigned(u32),
}

impl Field {
    /// Bytes of the field; for bits of an instruction, those of the instruction.
    pub(crate) const fn width(self) -> usize {
        match self {
            Field::Bytes(count) => count as usize,
            _ => 4,
        }
    }

    /// The number of which the value must be a multiple, because the field has no bits for the rest.
    pub(crate) const fn multiple(self) -> u64 {
        match self {
            Field::LoadStore(scale) => 1 << scale,
            Field::GotLoad => 8,
            Field::Literal | Field::TestBranch | Field::Branch => 4,
            Field::Bytes(_) | Field::Adr | Field::Adrp | Field::Add | Field::AddHigh => 1,
            Field::MoveWide(_) | Field::MoveSigned(_) => 1,
        }
    }

    /// Stores the low bits of a value, which the caller has checked. `field` has [`width`](Self::width) bytes.
    pub(crate) fn store(self, field: &mut [u8], value: i128) {
        let stored = match (self, field.first_chunk()) {
            (Field::Bytes(_), _) | (_, None) => value as u64,
            (_, Some(instruction)) => self.inserted(u32::from_le_bytes(*instruction), value).into(),
        };
        let width = field.len().min(8);
        field[..width].copy_from_slice(&stored.to_le_bytes()[..width]);
    }

    /// The instruction with the bits of a value.
    fn inserted(self, instruction: u32, value: i128) -> u32 {
        let bits = |low: u32, count: u32| (value >> low) as u32 & ((1 << count) - 1);
        let with = |at: u32, count: u32, bits: u32| instruction & !(((1 << count) - 1) << at) | bits << at;
        let address = |low: u32| instruction & !ADR_BITS | bits(low, 2) << 29 | bits(low + 2, 19) << 5;
        match self {
            Field::Bytes(_) => instruction,
            Field::Adr => address(0),
            Field::Adrp => address(12),
            Field::Add => with(10, 12, bits(0, 12)),
            Field::AddHigh => with(10, 12, bits(12, 12)),
            Field::LoadStore(scale) => with(10, 12, bits(scale, 12 - scale)),
            Field::GotLoad => with(10, 12, bits(3, 12)),
            Field::Literal => with(5, 19, bits(2, 19)),
            Field::TestBranch => with(5, 14, bits(2, 14)),
            Field::Branch => with(0, 26, bits(2, 26)),
            Field::MoveWide(group) => with(5, 16, bits(16 * group, 16)),
            Field::MoveSigned(_) if instruction & MOVE_OPCODE == MOVK => {
                Field::MoveWide(self.group()).inserted(instruction, value)
            }
            Field::MoveSigned(group) if value < 0 => {
                Field::MoveWide(group).inserted(instruction & !MOVE_OPCODE, !value)
            }
            Field::MoveSigned(group) => Field::MoveWide(group).inserted(instruction & !MOVE_OPCODE | MOVZ, value),
        }
    }

    fn group(self) -> u32 {
        match self {
            Field::MoveWide(group) | Field::MoveSigned(group) => group,
            _ => 0,
        }
    }
}

/// immhi and immlo of ADR and ADRP.
const ADR_BITS: u32 = 3 << 29 | ((1 << 19) - 1) << 5;
/// The bits that tell MOVN (0), MOVZ and MOVK apart.
const MOVE_OPCODE: u32 = 3 << 29;
const MOVZ: u32 = 2 << 29;
const MOVK: u32 = 3 << 29;
