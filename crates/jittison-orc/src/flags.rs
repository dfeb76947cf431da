//! Flags of symbols: those of LLVM's C API, and those of jittison.

use jittison::session::SymbolFlags;

use crate::layouts::CFlags;

/// Each flag of `LLVMJITSymbolGenericFlags`, and jittison's.
const FLAGS: [(u8, SymbolFlags); 4] = [
    (1, SymbolFlags::EXPORTED),
    (2, SymbolFlags::WEAK),
    (4, SymbolFlags::CALLABLE),
    (8, SymbolFlags::SIDE_EFFECTS_ONLY),
];

/// The flags that a program gave. x86-64 and AArch64 have no target flags.
pub(crate) fn read(flags: CFlags) -> SymbolFlags {
    let is_set = |(bit, _): &&(u8, SymbolFlags)| flags.generic & bit != 0;
    FLAGS.iter().filter(is_set).fold(SymbolFlags::NONE, |all, (_, flag)| all | *flag)
}

/// The flags that a program sees.
pub(crate) fn show(flags: SymbolFlags) -> CFlags {
    let is_set = |(_, flag): &&(u8, SymbolFlags)| flags.contains(*flag);
    CFlags { generic: FLAGS.iter().filter(is_set).map(|(bit, _)| bit).sum(), target: 0 }
}
