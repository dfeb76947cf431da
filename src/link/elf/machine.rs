//! The machine that an object is for.

use crate::arch::Arch;
use crate::error::{ErrorKind, LinkFault, Result};
use crate::link::elf::machine_name;

/// `e_machine` of an ELF file for 64-bit little-endian machines. `None` for other bytes.
#[inline]
pub(crate) fn machine_of(bytes: &[u8]) -> Option<u16> {
    let head: &[u8; 20] = bytes.first_chunk()?;
    let is_known = head[..6] == *b"\x7fELF\x02\x01";
    is_known.then_some(u16::from_le_bytes([head[18], head[19]]))
}

/// Refuses an object whose `e_machine` is not the expected one.
///
/// # Errors
/// [`LinkFault::WrongArchitecture`].
pub(crate) fn check_machine(name: &str, found: u16, expected: u16) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    let (found, expected) = (machine_name(found), Arch::of_machine(expected).unwrap_or(Arch::NATIVE).name());
    Err(ErrorKind::Link { object: name.to_string(), fault: LinkFault::WrongArchitecture { found, expected } }.into())
}
