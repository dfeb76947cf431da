//! Cranelift's relocations as edges of a graph.

use cranelift_codegen::binemit::Reloc;
use cranelift_codegen::isa::TargetIsa;
use cranelift_module::{ModuleError, ModuleResult};
use jittison::link::{Aarch64Relocation, EdgeKind};

/// The edge kind with the formula of a relocation. `None` for a relocation that changes nothing.
pub(crate) fn edge_kind(isa: &dyn TargetIsa, relocation: Reloc) -> ModuleResult<Option<EdgeKind>> {
    Ok(Some(match relocation {
        Reloc::Abs4 if isa.name() == "aarch64" => EdgeKind::Aarch64(Aarch64Relocation::Abs32),
        Reloc::Abs4 => EdgeKind::Pointer32,
        Reloc::Abs8 => EdgeKind::Pointer64,
        Reloc::X86PCRel4 => EdgeKind::Delta32,
        Reloc::X86CallPCRel4 | Reloc::X86CallPLTRel4 => EdgeKind::Branch32,
        Reloc::X86GOTPCRel4 => EdgeKind::GotLoad32,
        Reloc::ElfX86_64TlsGd => EdgeKind::ThreadLocalPair32,
        Reloc::Arm64Call => EdgeKind::Aarch64(Aarch64Relocation::Call26),
        Reloc::Aarch64AdrPrelPgHi21 => EdgeKind::Aarch64(Aarch64Relocation::AdrPrelPgHi21),
        Reloc::Aarch64AddAbsLo12Nc => EdgeKind::Aarch64(Aarch64Relocation::AddAbsLo12Nc),
        Reloc::Aarch64AdrGotPage21 => EdgeKind::Aarch64(Aarch64Relocation::AdrGotPage),
        Reloc::Aarch64Ld64GotLo12Nc => EdgeKind::Aarch64(Aarch64Relocation::Ld64GotLo12Nc),
        Reloc::Aarch64TlsDescAdrPage21 => EdgeKind::Aarch64(Aarch64Relocation::TlsdescAdrPage21),
        Reloc::Aarch64TlsDescLd64Lo12 => EdgeKind::Aarch64(Aarch64Relocation::TlsdescLd64Lo12),
        Reloc::Aarch64TlsDescAddLo12 => EdgeKind::Aarch64(Aarch64Relocation::TlsdescAddLo12),
        // Marks the call, for linkers that rewrite the sequence.
        Reloc::Aarch64TlsDescCall => return Ok(None),
        other => {
            let problem = "is of another system than ELF on x86-64 and AArch64";
            return Err(ModuleError::Backend(anyhow::anyhow!("relocation {other} {problem}")));
        }
    }))
}
