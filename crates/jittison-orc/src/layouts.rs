//! Structs of the headers. Their layouts are the same from LLVM 14 to 19; only their names changed.

use std::ffi::c_int;

use crate::dylib::Dylib;
use crate::names::Entry;

/// `LLVMJITSymbolFlags`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct CFlags {
    pub(crate) generic: u8,
    pub(crate) target: u8,
}

/// `LLVMJITEvaluatedSymbol`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Evaluated {
    pub(crate) address: u64,
    pub(crate) flags: CFlags,
}

/// `LLVMOrcCSymbolMapPair`, which LLVM 14 calls `LLVMJITCSymbolMapPair`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct SymbolPair {
    pub(crate) name: *const Entry,
    pub(crate) symbol: Evaluated,
}

/// `LLVMOrcCSymbolFlagsMapPair`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct FlagsPair {
    pub(crate) name: *const Entry,
    pub(crate) flags: CFlags,
}

/// `LLVMOrcCSymbolAliasMapPair`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct AliasPair {
    pub(crate) name: *const Entry,
    pub(crate) aliasee: *const Entry,
    pub(crate) flags: CFlags,
}

/// `LLVMOrcCSymbolsList`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct SymbolsList {
    pub(crate) symbols: *const *const Entry,
    pub(crate) length: usize,
}

/// `LLVMOrcCDependenceMapPair`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct DependencePair {
    pub(crate) dylib: *const Dylib,
    pub(crate) names: SymbolsList,
}

/// `LLVMOrcCSymbolDependenceGroup`, of LLVM 19.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct DependenceGroup {
    pub(crate) symbols: SymbolsList,
    pub(crate) dependencies: *const DependencePair,
    pub(crate) count: usize,
}

/// `LLVMOrcCLookupSetElement`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct LookupElement {
    pub(crate) name: *const Entry,
    /// 0: required. 1: weakly referenced.
    pub(crate) flags: c_int,
}

/// `LLVMOrcCJITDylibSearchOrderElement`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct SearchElement {
    pub(crate) dylib: *const Dylib,
    /// 0: exported symbols only. 1: all symbols.
    pub(crate) flags: c_int,
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::*;

    #[test]
    fn structs_have_the_sizes_of_the_headers() {
        assert_eq!([size_of::<SymbolPair>(), size_of::<FlagsPair>(), size_of::<AliasPair>()], [24, 16, 24]);
        assert_eq!([size_of::<SymbolsList>(), size_of::<DependencePair>(), size_of::<DependenceGroup>()], [16, 24, 32]);
        assert_eq!([size_of::<LookupElement>(), size_of::<SearchElement>()], [16, 16]);
        assert_eq!([offset_of!(Evaluated, flags), offset_of!(AliasPair, flags)], [8, 16]);
    }
}
