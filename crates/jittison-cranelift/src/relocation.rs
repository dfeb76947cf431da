//! Cranelift's relocations as edges of a graph.

use cranelift_codegen::binemit::Reloc;
use cranelift_module::{ModuleError, ModuleResult};
use jittison::link::EdgeKind;

/// The edge kind with the formula of a relocation.
pub(crate) fn edge_kind(relocation: Reloc) -> ModuleResult<EdgeKind> {
    Ok(match relocation {
        Reloc::Abs4 => EdgeKind::Pointer32,
        Reloc::Abs8 => EdgeKind::Pointer64,
        Reloc::X86PCRel4 => EdgeKind::Delta32,
        Reloc::X86CallPCRel4 | Reloc::X86CallPLTRel4 => EdgeKind::Branch32,
        Reloc::X86GOTPCRel4 => EdgeKind::GotLoad32,
        Reloc::ElfX86_64TlsGd => EdgeKind::ThreadLocalPair32,
        other => return Err(ModuleError::Backend(anyhow::anyhow!("relocation {other} is not one of x86-64 ELF"))),
    })
}
