//! Unwind tables: the CIE of the instruction set and an FDE for each function, as gimli writes them.

use cranelift_codegen::isa::TargetIsa;
use cranelift_codegen::isa::unwind::UnwindInfo;
use cranelift_module::{ModuleError, ModuleResult};
use gimli::write::{Address, EhFrame, EndianVec, FrameTable, RelocateWriter, Relocation, RelocationTarget};
use jittison::link::{Edge, EdgeKind, SymbolIndex};

/// Writes the `.eh_frame` of functions, and the edges of its pointers. `None` if no function has unwind information.
pub(crate) fn table<'a>(
    isa: &dyn TargetIsa,
    functions: impl Iterator<Item = (SymbolIndex, &'a UnwindInfo)>,
) -> ModuleResult<Option<(Vec<u8>, Vec<Edge>)>> {
    let mut functions = functions.peekable();
    if functions.peek().is_none() {
        return Ok(None);
    }
    let (mut table, mut cie, mut symbols) = (FrameTable::default(), None, Vec::new());
    for (symbol, info) in functions {
        let UnwindInfo::SystemV(info) = info else { continue };
        let Some(id) = cie.or_else(|| Some(table.add_cie(isa.create_systemv_cie()?))) else { continue };
        cie = Some(id);
        table.add_fde(id, info.to_fde(Address::Symbol { symbol: symbols.len(), addend: 0 }));
        symbols.push(symbol);
    }
    if symbols.is_empty() {
        return Ok(None);
    }
    let mut section = EhFrame(Section { bytes: EndianVec::new(gimli::RunTimeEndian::Little), pointers: Vec::new() });
    let failed = |problem| ModuleError::Backend(anyhow::anyhow!("unwind table: {problem}"));
    table.write_eh_frame(&mut section).map_err(failed)?;
    let EhFrame(Section { bytes, pointers }) = section;
    let edge = |pointer: Relocation| {
        let RelocationTarget::Symbol(symbol) = pointer.target else { return None };
        let is_relative = pointer.eh_pe.is_some_and(|encoding| encoding.application() == gimli::DW_EH_PE_pcrel);
        let kind = match (is_relative, pointer.size) {
            (true, 8) => EdgeKind::Delta64,
            (true, _) => EdgeKind::Delta32,
            (false, _) => EdgeKind::Pointer64,
        };
        Some(Edge { offset: pointer.offset as u32, kind, symbol: symbols[symbol], addend: pointer.addend })
    };
    Ok(Some((bytes.into_vec(), pointers.into_iter().filter_map(edge).collect())))
}

/// The section while gimli writes it.
struct Section {
    bytes: EndianVec<gimli::RunTimeEndian>,
    pointers: Vec<Relocation>,
}

impl RelocateWriter for Section {
    type Writer = EndianVec<gimli::RunTimeEndian>;

    fn writer(&self) -> &Self::Writer {
        &self.bytes
    }

    fn writer_mut(&mut self) -> &mut Self::Writer {
        &mut self.bytes
    }

    fn relocate(&mut self, relocation: Relocation) {
        self.pointers.push(relocation);
    }
}
