//! [`Pieces`]: an object in the form that cranelift-jit accepts, with the same machine code and the same relocations.
//!
//! The object has one section per function, and each section becomes a piece. Executable and read-only sections
//! become functions, because cranelift stores its functions' constants beside their code. Writable sections become
//! data. cranelift-jit has no GOT. A load of the address of a symbol that the object defines therefore becomes a
//! computation of the address, as a linker would relax it. Imported symbols are reached through a table of stubs,
//! which is a piece of its own:
//!
//! ```text
//!   entry n   jmp *address(%rip); ud2      8 bytes, the target of calls
//!             address                      8 bytes, filled in by an absolute relocation
//! ```
//!
//! Unwind tables are left out: cranelift-jit cannot take them.

use cranelift_codegen::binemit::Reloc;
use cranelift_module::{DataDescription, DataId, FuncId, ModuleReloc, ModuleRelocTarget};
use object::elf::{
    R_X86_64_64, R_X86_64_GOTPCREL, R_X86_64_GOTPCRELX, R_X86_64_PC32, R_X86_64_PLT32, R_X86_64_REX_GOTPCRELX,
};
use object::read::elf::ElfFile64;
use object::{
    LittleEndian, Object, ObjectSection, ObjectSymbol, Relocation, RelocationFlags, RelocationTarget, SectionIndex,
    SectionKind, SymbolIndex,
};

use crate::measure::scenario::to_text;

/// Functions are declared in this order, after the imports: relocations refer to them by number.
pub struct Pieces {
    pub imports: Vec<String>,
    pub functions: Vec<FunctionPiece>,
    pub data: Vec<DataPiece>,
    pub entry: FuncId,
}

pub struct FunctionPiece {
    /// The name of the global function that begins here, if there is one.
    pub name: Option<String>,
    pub bytes: Vec<u8>,
    pub align: u64,
    pub relocations: Vec<ModuleReloc>,
}

pub struct DataPiece {
    pub name: Option<String>,
    pub description: DataDescription,
    pub size_bytes: u64,
    pub align: u64,
}

impl Pieces {
    pub fn read(object: &[u8], entry: &str) -> Result<Pieces, String> {
        let file = ElfFile64::<LittleEndian>::parse(object).map_err(to_text)?;
        let map = SectionMap::of(&file);
        let mut functions = Vec::with_capacity(map.functions.len() + 1);
        for index in &map.functions {
            functions.push(function_piece(&file, *index, &map)?);
        }
        functions.push(stubs(&map));
        let data = map.data.iter().map(|index| data_piece(&file, *index)).collect::<Result<_, _>>()?;
        let is_entry = |piece: &FunctionPiece| piece.name.as_deref() == Some(entry);
        let position = functions.iter().position(is_entry).ok_or_else(|| format!("no section of {entry}"))?;
        let entry = map.function(position);
        let imports = map.imports.into_iter().map(|(_, name)| name).collect();
        Ok(Pieces { imports, functions, data, entry })
    }

    /// The memory that cranelift-jit's arena needs for all pieces.
    pub fn reserved_bytes(&self) -> usize {
        let code = self.functions.iter().map(|piece| piece.bytes.len() as u64 + piece.align).sum();
        let data = self.data.iter().map(|piece| piece.size_bytes + piece.align).sum();
        [code, data].into_iter().map(segment_bytes).sum::<u64>() as usize
    }
}

/// A segment of more than one page grows by full pages, and leaves the last one free.
fn segment_bytes(content_bytes: u64) -> u64 {
    let pages = content_bytes.div_ceil(PAGE_BYTES);
    (if pages > 1 { pages + 1 } else { pages }) * PAGE_BYTES
}

const PAGE_BYTES: u64 = 4096;

type File<'a> = ElfFile64<'a, LittleEndian>;

/// The sections and symbols of an object, by what they become.
struct SectionMap {
    imports: Vec<(SymbolIndex, String)>,
    functions: Vec<SectionIndex>,
    data: Vec<SectionIndex>,
}

impl SectionMap {
    fn of(file: &File) -> SectionMap {
        let is_import = |name: &str| !name.is_empty() && name != "_GLOBAL_OFFSET_TABLE_";
        let undefined = file.symbols().filter(|symbol| symbol.is_undefined());
        let named = undefined.filter_map(|symbol| Some((symbol.index(), symbol.name().ok()?.to_string())));
        let imports = named.filter(|(_, name)| is_import(name)).collect();
        let (mut functions, mut data) = (Vec::new(), Vec::new());
        for section in file.sections().filter(|section| section.size() > 0) {
            let name = section.name().unwrap_or_default();
            match section.kind() {
                _ if name == ".eh_frame" => {}
                // Only the linker writes to it.
                _ if name.starts_with(".data.rel.ro") => functions.push(section.index()),
                SectionKind::Text | SectionKind::ReadOnlyData | SectionKind::ReadOnlyString => {
                    functions.push(section.index());
                }
                SectionKind::Data | SectionKind::UninitializedData => data.push(section.index()),
                _ => {}
            }
        }
        SectionMap { imports, functions, data }
    }

    fn function(&self, position: usize) -> FuncId {
        FuncId::from_u32((self.imports.len() + position) as u32)
    }

    /// The piece that defines a symbol, and the symbol's offset in it.
    fn target_of(&self, file: &File, index: SymbolIndex) -> Option<(ModuleRelocTarget, i64)> {
        let symbol = file.symbol_by_index(index).ok()?;
        let section = symbol.section_index()?;
        let position = |sections: &[SectionIndex]| sections.iter().position(|other| *other == section);
        let function = position(&self.functions).map(|at| self.function(at).into());
        let data = || position(&self.data).map(|at| DataId::from_u32(at as u32).into());
        Some((function.or_else(data)?, symbol.address() as i64))
    }

    /// The stub of an imported symbol.
    fn stub(&self, index: SymbolIndex) -> Option<(ModuleRelocTarget, i64)> {
        let position = self.imports.iter().position(|(other, _)| *other == index)?;
        Some((self.function(self.functions.len()).into(), position as i64 * STUB_BYTES))
    }
}

const STUB_BYTES: i64 = 16;
/// The offset of the address in a stub.
const STUB_ADDRESS: i64 = 8;

fn stubs(map: &SectionMap) -> FunctionPiece {
    let (mut bytes, mut relocations) = (Vec::new(), Vec::new());
    for import in 0..map.imports.len() {
        bytes.extend_from_slice(&[0xff, 0x25, 2, 0, 0, 0, 0x0f, 0x0b]);
        let (offset, target) = (bytes.len() as u32, FuncId::from_u32(import as u32));
        relocations.push(ModuleReloc { offset, kind: Reloc::Abs8, name: target.into(), addend: 0 });
        bytes.extend_from_slice(&[0; 8]);
    }
    FunctionPiece { name: None, bytes, align: STUB_BYTES as u64, relocations }
}

fn function_piece(file: &File, index: SectionIndex, map: &SectionMap) -> Result<FunctionPiece, String> {
    let section = file.section_by_index(index).map_err(to_text)?;
    let mut bytes = section.data().map_err(to_text)?.to_vec();
    let mut relocations = Vec::new();
    for (offset, relocation) in section.relocations() {
        relocations.push(converted(file, map, &mut bytes, offset, &relocation)?);
    }
    Ok(FunctionPiece { name: name_at_start(file, index), bytes, align: section.align().max(1), relocations })
}

/// Converts a relocation to cranelift-jit's kind. Changes an instruction that needs a GOT.
fn converted(
    file: &File,
    map: &SectionMap,
    bytes: &mut [u8],
    offset: u64,
    relocation: &Relocation,
) -> Result<ModuleReloc, String> {
    let (RelocationFlags::Elf { r_type }, RelocationTarget::Symbol(symbol)) = (relocation.flags(), relocation.target())
    else {
        return Err("a relocation without a symbol".to_string());
    };
    let (defined, stub) = (map.target_of(file, symbol), map.stub(symbol));
    let (kind, target_of) = match r_type {
        R_X86_64_64 => (Reloc::Abs8, defined),
        R_X86_64_PC32 => (Reloc::X86PCRel4, defined),
        R_X86_64_PLT32 => (Reloc::X86CallPCRel4, defined.or(stub)),
        R_X86_64_GOTPCREL | R_X86_64_GOTPCRELX | R_X86_64_REX_GOTPCRELX => {
            let slot = stub.map(|(table, at)| (table, at + STUB_ADDRESS));
            (Reloc::X86PCRel4, defined.filter(|_| load_to_address(bytes, offset)).or(slot))
        }
        _ => (Reloc::X86PCRel4, None),
    };
    let (name, at) =
        target_of.ok_or_else(|| format!("cranelift-jit has no counterpart of relocation {r_type} at {offset:#x}"))?;
    Ok(ModuleReloc { offset: offset as u32, kind, name, addend: at + relocation.addend() })
}

/// Replaces `mov slot(%rip), register` by `lea target(%rip), register`; returns whether the instruction was such a
/// load.
fn load_to_address(bytes: &mut [u8], offset: u64) -> bool {
    const MOV: u8 = 0x8b;
    const LEA: u8 = 0x8d;
    let operation = (offset as usize).checked_sub(2).and_then(|at| bytes.get_mut(at));
    match operation {
        Some(operation) if *operation == MOV => {
            *operation = LEA;
            true
        }
        _ => false,
    }
}

fn data_piece(file: &File, index: SectionIndex) -> Result<DataPiece, String> {
    let section = file.section_by_index(index).map_err(to_text)?;
    if section.relocations().next().is_some() {
        return Err("relocations in writable data".to_string());
    }
    let (size_bytes, align) = (section.size(), section.align().max(1));
    let mut description = DataDescription::new();
    match section.kind() {
        SectionKind::UninitializedData => description.define_zeroinit(size_bytes as usize),
        _ => description.define(section.data().map_err(to_text)?.into()),
    }
    description.set_align(align);
    Ok(DataPiece { name: name_at_start(file, index), description, size_bytes, align })
}

/// The global symbol at the start of a section.
fn name_at_start(file: &File, index: SectionIndex) -> Option<String> {
    let starts_section = |symbol: &object::read::elf::ElfSymbol64<LittleEndian>| {
        symbol.is_global() && symbol.section_index() == Some(index) && symbol.address() == 0
    };
    file.symbols().find(starts_section).and_then(|symbol| Some(symbol.name().ok()?.to_string()))
}
