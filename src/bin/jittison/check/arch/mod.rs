//! [`Decoded`]: what `decode_operand` needs of the instruction set.

mod aarch64;
mod x86_64;

use std::fmt;

/// One operand of the list of LLVM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operand {
    Number(u64),
    Register,
}

/// A decoded instruction of a known machine.
#[derive(Debug)]
pub enum Decoded {
    X86_64(x86_64::Decoded),
    Aarch64(aarch64::Decoded),
}

impl Decoded {
    /// Decodes the first instruction of `bytes` for the machine `e_machine`. `None` if there is none, or if it is not complete.
    pub fn from_bytes(e_machine: u16, bytes: &[u8]) -> Option<Decoded> {
        match e_machine {
            aarch64::E_MACHINE => aarch64::Decoded::from_bytes(bytes).map(Decoded::Aarch64),
            _ => x86_64::Decoded::from_bytes(bytes).map(Decoded::X86_64),
        }
    }

    /// The length in bytes. `None` if LLVM decodes the prefix as a separate instruction.
    pub fn length(&self) -> Option<u64> {
        match self {
            Decoded::X86_64(decoded) => decoded.length(),
            Decoded::Aarch64(_) => Some(aarch64::LENGTH),
        }
    }

    /// The operands. `None` if their numbers in LLVM are not known.
    pub fn operands(&self) -> Option<Vec<Operand>> {
        match self {
            Decoded::X86_64(decoded) => decoded.operands(),
            Decoded::Aarch64(decoded) => decoded.operands(),
        }
    }
}

impl fmt::Display for Decoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Decoded::X86_64(decoded) => decoded.fmt(f),
            Decoded::Aarch64(decoded) => decoded.fmt(f),
        }
    }
}
