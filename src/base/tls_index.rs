//! [`TlsIndex`]: the identity of a thread-local variable, which is the same in every thread.
//!
//! The psABI calls the pair `tls_index`. `__tls_get_addr` turns it into the address in the calling thread.

use crate::base::ExecutorAddr;

/// A thread-local variable: the module number that the C library gave out, and the offset in the module's TLS block (psABI,
/// "Thread-Local Storage"). The variable has a different address in each thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TlsIndex {
    /// The number of the module with the C library.
    pub module: u32,
    /// Bytes from the start of the module's TLS block.
    pub offset: u32,
}

impl TlsIndex {
    /// Encodes the pair as an address: the module in the upper half, the offset in the lower half. A symbol with
    /// [`SymbolFlags::THREAD_LOCAL`](crate::session::SymbolFlags::THREAD_LOCAL) has this value as its address.
    pub fn to_address(self) -> ExecutorAddr {
        ExecutorAddr::new(u64::from(self.module) << 32 | u64::from(self.offset))
    }

    /// Decodes what [`to_address`](Self::to_address) encoded.
    pub fn from_address(address: ExecutorAddr) -> TlsIndex {
        TlsIndex { module: (address.value() >> 32) as u32, offset: address.value() as u32 }
    }
}
