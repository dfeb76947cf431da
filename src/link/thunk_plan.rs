//! [`ThunkPlan`]: where the thunks for thread-local variables of one link are.
//!
//! ```text
//!   code:   [ descriptor function │ stub of __tls_get_addr │ thunk 0 │ thunk 1 │ … ]
//!   words:  [ __tls_get_addr │ unused │ descriptor 0 │ descriptor 1 │ … ]
//! ```
//!
//! A descriptor has four words: function, address of the third word, module, offset. There is one for each variable,
//! and one for the start of the local-dynamic block.

use crate::arch::{Arch, FarValue, STUB_SIZE, ThreadDistance};
use crate::base::ExecutorAddr;
use crate::link::graph::{Edge, SymbolIndex};

/// Where the thunks of a link and their descriptors are.
pub(crate) struct ThunkPlan {
    pub(super) arch: Arch,
    /// The address of the code.
    pub(crate) code: ExecutorAddr,
    /// The address of the words.
    pub(crate) words: ExecutorAddr,
    /// The address of `__tls_get_addr`.
    pub(super) get_address: ExecutorAddr,
    /// The variables that have descriptors, ascending. The descriptor of the block's start follows them.
    pub(super) variables: Vec<SymbolIndex>,
}

impl ThunkPlan {
    /// The address of the first thunk.
    pub(crate) fn first_thunk(&self) -> ExecutorAddr {
        self.code.offset(first_thunk(self.arch))
    }

    /// The distance that the instruction of an edge needs.
    pub(crate) fn distance(&self, edge: &Edge) -> FarValue {
        let number = self.variables.partition_point(|variable| *variable < edge.symbol) as u64;
        let block = self.variables.len() as u64;
        FarValue::Distance(ThreadDistance {
            variable: self.descriptor(number).value(),
            block: edge.kind.is_block_offset().then(|| self.descriptor(block).value()),
            addend: edge.addend,
            function: self.code.value(),
        })
    }

    /// The address of a descriptor, by its number.
    pub(super) fn descriptor(&self, number: u64) -> ExecutorAddr {
        self.words.offset(FIRST_DESCRIPTOR + number * DESCRIPTOR_SIZE)
    }
}

/// The offset of the stub in the code: after the function.
pub(super) fn stub_at(arch: Arch) -> u64 {
    arch.tls_descriptor().bytes.len().next_multiple_of(16) as u64
}

/// The offset of the first thunk in the code: after the stub.
pub(super) fn first_thunk(arch: Arch) -> u64 {
    stub_at(arch) + STUB_SIZE as u64
}

/// The offset of the first descriptor in the words.
pub(super) const FIRST_DESCRIPTOR: u64 = 16;
pub(super) const DESCRIPTOR_SIZE: u64 = 32;
