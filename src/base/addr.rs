//! [`ExecutorAddr`]: an address in the process that runs the code. That process may be another one.
//!
//! An address is a number. Offsets and distances wrap at 64 bits, as address arithmetic in the ELF psABI does. Only the rooms
//! `memory` and `host` turn an address into a pointer.

use std::fmt;

/// An address in the executing process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ExecutorAddr(u64);

impl ExecutorAddr {
    /// The null address: what an undefined weak symbol resolves to.
    pub const NULL: ExecutorAddr = ExecutorAddr(0);

    /// Makes an address from its value.
    pub const fn new(value: u64) -> ExecutorAddr {
        ExecutorAddr(value)
    }

    /// Returns the address as a number.
    pub const fn value(self) -> u64 {
        self.0
    }

    /// Whether this is [`ExecutorAddr::NULL`].
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }

    /// Returns the address `bytes` after this one. Wraps, as address arithmetic in the ELF psABI does.
    pub const fn offset(self, bytes: u64) -> ExecutorAddr {
        ExecutorAddr(self.0.wrapping_add(bytes))
    }

    /// Returns the signed distance in bytes from `origin` to this address. Wraps.
    pub const fn distance_from(self, origin: ExecutorAddr) -> i64 {
        self.0.wrapping_sub(origin.0) as i64
    }
}

impl fmt::Debug for ExecutorAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Display for ExecutorAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}
