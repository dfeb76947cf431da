//! [`TlsIndex`]: which thread-local variable, said without a thread.

use crate::base::ExecutorAddr;

/// A thread-local variable: its module's number with the C library, and its offset in the module's block (psABI,
/// "Thread-Local Storage"). Each thread has another address for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TlsIndex {
    /// The number that the C library gave to the module.
    pub module: u32,
    /// Bytes from the start of the module's block.
    pub offset: u32,
}

impl TlsIndex {
    /// In the place of an address: what a symbol with
    /// [`SymbolFlags::THREAD_LOCAL`](crate::session::SymbolFlags::THREAD_LOCAL) has for one.
    pub fn to_address(self) -> ExecutorAddr {
        ExecutorAddr::new(u64::from(self.module) << 32 | u64::from(self.offset))
    }

    /// The reverse.
    pub fn from_address(address: ExecutorAddr) -> TlsIndex {
        TlsIndex { module: (address.value() >> 32) as u32, offset: address.value() as u32 }
    }
}
