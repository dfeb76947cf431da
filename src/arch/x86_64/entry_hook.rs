//! Hooks at the entries of compiled functions: where a compiler leaves room for one, and its machine code.
//!
//! `-fpatchable-function-entry=114,112` leaves 112 bytes before the entry of a function, and two bytes at it:
//!
//! ```text
//!   entry - 112                      entry    body = entry + 2
//!   nop nop jmp *slot(%rip) slot …   nop nop  push …
//!           ▲                        │
//!           └──── jmp short -112 ────┘   the first nop becomes 0xeb; the second one, 0x90, is the distance
//! ```
//!
//! Nothing runs before the entry, so a long jump is written there first. Then one byte changes at the entry. A thread that is between
//! the two bytes executes a `nop`. clang has one instruction of two bytes there (`66 90`), with the same second byte.
//! `endbr64` may stand before the two bytes.

/// Bytes before the entry: as many as a short jump goes back whose distance is 0x90.
pub(crate) const ROOM_BEFORE_ENTRY: u64 = 112;
/// Bytes at an entry that [`entry_offset`] looks at.
pub(crate) const ENTRY_BYTES: usize = 6;
/// The byte that turns `nop` into a short jump.
pub(crate) const SHORT_JUMP: u8 = 0xeb;
/// Bytes of the room at an entry.
pub(crate) const ROOM_AT_ENTRY: u64 = 2;

/// Whether the bytes before an entry are room: nothing but `nop`. What aligns code is shorter.
pub(crate) fn is_room(before: &[u8]) -> bool {
    before.len() as u64 == ROOM_BEFORE_ENTRY && before.iter().all(|byte| *byte == 0x90)
}

/// Where the room at an entry begins, in bytes from the entry. `None` if there is none.
pub(crate) fn entry_offset(bytes: [u8; ENTRY_BYTES]) -> Option<u64> {
    match bytes {
        [0x90 | 0x66, 0x90, ..] => Some(0),
        [0xf3, 0x0f, 0x1e, 0xfa, 0x90 | 0x66, 0x90] => Some(4),
        _ => None,
    }
}

/// `jmp *slot(%rip)` with its slot behind it.
pub(crate) fn long_jump(target: u64) -> [u8; 14] {
    let mut code = [0xff, 0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    code[6..].copy_from_slice(&target.to_le_bytes());
    code
}
