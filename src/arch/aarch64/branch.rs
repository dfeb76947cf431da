//! [`branch`]: direct branches of code that the linker writes.

use crate::arch::aarch64::field::Field;

/// The branch `opcode` at an address; `None` if the target is out of reach.
pub(super) fn branch(opcode: u32, place: u64, target: u64) -> Option<u32> {
    let distance = i128::from(target) - i128::from(place);
    let mut code = opcode.to_le_bytes();
    Field::Branch.store(&mut code, distance);
    (-(1 << 27)..1 << 27).contains(&distance).then_some(u32::from_le_bytes(code))
}

pub(super) const B: u32 = 0x1400_0000;
pub(super) const BL: u32 = 0x9400_0000;
