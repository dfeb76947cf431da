//! [`Definition`]: a function or a data object that is defined and not finalised yet, and the graph of several.

use std::collections::HashMap;
use std::fmt;

use cranelift_codegen::isa::TargetIsa;
use cranelift_codegen::isa::unwind::UnwindInfo;
use cranelift_codegen::{Context, ir};
use cranelift_control::ControlPlane;
use cranelift_module::{
    DataId, FuncId, FuncOrDataId, Linkage, ModuleDeclarations, ModuleError, ModuleReloc, ModuleRelocTarget,
    ModuleResult,
};
use jittison::base::SegmentKind;
use jittison::link::{BlockContent, BuiltGraph, Edge, GraphBuilder, NewBlock, NewSymbol, SymbolIndex, SymbolScope};

use crate::builder::LibcallNames;
use crate::{relocation, unwind};

/// What Cranelift made of one function or data object.
pub(crate) struct Definition {
    pub(crate) id: FuncOrDataId,
    /// Its name, if that is not the one of the declaration. Then code that calls the declaration does not mean this definition.
    pub(crate) symbol: Option<String>,
    pub(crate) content: Content,
    pub(crate) align: u64,
    pub(crate) relocations: Vec<ModuleReloc>,
    pub(crate) unwind: Option<UnwindInfo>,
    /// Section of data, if the generator chose one.
    pub(crate) section: Option<String>,
    /// Whether dead-stripping keeps it.
    pub(crate) is_used: bool,
}

impl Definition {
    /// Compiles a function.
    pub(crate) fn compile(
        isa: &dyn TargetIsa,
        id: FuncId,
        context: &mut Context,
        control_plane: &mut ControlPlane,
    ) -> ModuleResult<Definition> {
        let compiled = context.compile(isa, control_plane)?;
        let unwind = compiled.create_unwind_info(isa)?;
        let align = function_align(isa, compiled.buffer.alignment.into());
        let bytes = compiled.code_buffer().to_vec();
        let relocations = compiled.buffer.relocs().to_vec().into_iter();
        let relocations = relocations.map(|found| ModuleReloc::from_mach_reloc(&found, &context.func, id)).collect();
        let definition = Definition::new(FuncOrDataId::Func(id), Content::Bytes(bytes), align);
        Ok(Definition { relocations, unwind, ..definition })
    }

    /// A definition without relocations.
    pub(crate) fn new(id: FuncOrDataId, content: Content, align: u64) -> Definition {
        let (relocations, unwind, section) = (Vec::new(), None, None);
        Definition { id, symbol: None, content, align, relocations, unwind, section, is_used: false }
    }
}

/// The alignment of a function in bytes, for which the compiler asks for `align`.
pub(crate) fn function_align(isa: &dyn TargetIsa, align: u64) -> u64 {
    align.max(isa.function_alignment().minimum.into()).max(isa.symbol_alignment())
}

/// The bytes of a definition.
pub(crate) enum Content {
    Bytes(Vec<u8>),
    Zeroes(u64),
}

/// The start of the names of symbols that were declared without one. Cranelift's own names for them begin with `.L`, which marks
/// labels that debuggers leave out.
const ANONYMOUS: &str = "<anonymous ";

/// Refuses a name that could be the one of a symbol without a name.
pub(crate) fn check_declared(name: &str) -> ModuleResult<()> {
    match name.starts_with(ANONYMOUS) {
        true => Err(ModuleError::Backend(anyhow::anyhow!("`{name}` is a name of symbols that have none"))),
        false => Ok(()),
    }
}

/// How the names of a module become names of its dylib.
pub(crate) struct Names<'a> {
    pub(crate) declarations: &'a ModuleDeclarations,
    pub(crate) libcalls: &'a LibcallNames,
}

impl Names<'_> {
    /// The name of a symbol of the module: the declared one. A symbol that was declared without a name has one that begins with
    /// [`ANONYMOUS`], which no declared name does.
    pub(crate) fn of(&self, id: FuncOrDataId) -> String {
        let (declared, id): (_, &dyn fmt::Display) = match &id {
            FuncOrDataId::Func(id) => (&self.declarations.get_function_decl(*id).name, id),
            FuncOrDataId::Data(id) => (&self.declarations.get_data_decl(*id).name, id),
        };
        declared.clone().unwrap_or_else(|| format!("{ANONYMOUS}{id}>"))
    }

    fn linkage(&self, id: FuncOrDataId) -> Linkage {
        match id {
            FuncOrDataId::Func(id) => self.declarations.get_function_decl(id).linkage,
            FuncOrDataId::Data(id) => self.declarations.get_data_decl(id).linkage,
        }
    }
}

/// Builds the graph of definitions that are removed together.
pub(crate) fn graph(definitions: Vec<Definition>, names: &Names<'_>, isa: &dyn TargetIsa) -> ModuleResult<BuiltGraph> {
    let title = definitions.first().map(|first| names.of(first.id)).unwrap_or_default();
    titled_graph(&title, definitions, names, isa)
}

/// As [`graph`], with a name for the graph.
pub(crate) fn titled_graph(
    title: &str,
    definitions: Vec<Definition>,
    names: &Names<'_>,
    isa: &dyn TargetIsa,
) -> ModuleResult<BuiltGraph> {
    let (mut graph, mut targets) = (GraphBuilder::new(title), Targets::default());
    let (mut blocks, mut functions) = (Vec::with_capacity(definitions.len()), Vec::new());
    for Definition { id, symbol, content, align, relocations, unwind, section, is_used, .. } in definitions {
        let size = content.size();
        let block = new_block(id, content, section.as_deref(), names).with_align(align);
        let block = graph.add_block(if is_used { block.retained() } else { block });
        let (name, is_declared) = match symbol {
            Some(symbol) => (symbol, false),
            None => (names.of(id), true),
        };
        let symbol = match id {
            FuncOrDataId::Func(_) => NewSymbol::function(&name, block, 0),
            FuncOrDataId::Data(_) => NewSymbol::new(&name, block, 0),
        };
        let symbol = match names.linkage(id) {
            Linkage::Preemptible => symbol.weak(),
            Linkage::Export => symbol,
            // Later finalisations of the module refer to it.
            Linkage::Local | Linkage::Hidden | Linkage::Import => symbol.with_scope(SymbolScope::Hidden),
        };
        let symbol = graph.add_symbol(symbol.with_size(size));
        if is_declared {
            targets.0.insert(Target::Own(id), symbol);
        }
        blocks.push((block, relocations));
        if matches!(id, FuncOrDataId::Func(_)) {
            functions.push((symbol, unwind));
        }
    }
    for (block, relocations) in blocks {
        let edges = relocations.iter().map(|relocation| edge(&mut graph, &mut targets, names, relocation));
        let edges = edges.collect::<ModuleResult<Vec<Edge>>>()?;
        graph.set_edges(block, &edges);
    }
    if let Some((table, edges)) = unwind::table(isa, functions.into_iter())? {
        graph.add_eh_frame(&table, &edges);
    }
    graph.finish().map_err(backend)
}

fn new_block<'a>(id: FuncOrDataId, content: Content, section: Option<&'a str>, names: &Names<'_>) -> NewBlock<'a> {
    let content = match content {
        Content::Bytes(bytes) => BlockContent::from(bytes),
        Content::Zeroes(size) => BlockContent::zeroes(size),
    };
    let FuncOrDataId::Data(id) = id else { return NewBlock::code(content) };
    let declaration = names.declarations.get_data_decl(id);
    let block = match (declaration.tls, declaration.writable) {
        (true, _) => NewBlock::thread_local(content),
        (false, true) => NewBlock::new(".data", SegmentKind::Data, content),
        (false, false) => NewBlock::new(".rodata", SegmentKind::ReadOnly, content),
    };
    match section {
        Some(section) => block.in_section(section),
        None => block,
    }
}

/// The symbols of a graph that its relocations refer to.
#[derive(Default)]
struct Targets(HashMap<Target, SymbolIndex>);

#[derive(PartialEq, Eq, Hash)]
enum Target {
    Own(FuncOrDataId),
    LibCall(ir::LibCall),
    KnownSymbol(ir::KnownSymbol),
}

fn edge(
    graph: &mut GraphBuilder,
    targets: &mut Targets,
    names: &Names<'_>,
    relocation: &ModuleReloc,
) -> ModuleResult<Edge> {
    let (target, distance) = match relocation.name {
        ModuleRelocTarget::User { .. } if ModuleDeclarations::is_function(&relocation.name) => {
            (Target::Own(FuncOrDataId::Func(FuncId::from_name(&relocation.name))), 0)
        }
        ModuleRelocTarget::User { .. } => (Target::Own(FuncOrDataId::Data(DataId::from_name(&relocation.name))), 0),
        ModuleRelocTarget::FunctionOffset(id, offset) => (Target::Own(FuncOrDataId::Func(id)), i64::from(offset)),
        ModuleRelocTarget::LibCall(call) => (Target::LibCall(call), 0),
        ModuleRelocTarget::KnownSymbol(symbol) => (Target::KnownSymbol(symbol), 0),
    };
    let symbol = match targets.0.get(&target) {
        Some(symbol) => *symbol,
        None => {
            let symbol = external(graph, names, &target)?;
            targets.0.insert(target, symbol);
            symbol
        }
    };
    let kind = relocation::edge_kind(relocation.kind)?;
    Ok(Edge { offset: relocation.offset, kind, symbol, addend: relocation.addend + distance })
}

/// Adds a symbol that the graph does not define.
fn external(graph: &mut GraphBuilder, names: &Names<'_>, target: &Target) -> ModuleResult<SymbolIndex> {
    Ok(match target {
        Target::Own(id) => match names.linkage(*id) {
            Linkage::Import | Linkage::Export => graph.add_external(&names.of(*id)),
            Linkage::Preemptible => graph.add_weak_external(&names.of(*id)),
            Linkage::Local | Linkage::Hidden => graph.add_hidden_external(&names.of(*id)),
        },
        Target::LibCall(call) => graph.add_external(&(names.libcalls)(*call)),
        Target::KnownSymbol(ir::KnownSymbol::ElfGlobalOffsetTable) => graph.add_external("_GLOBAL_OFFSET_TABLE_"),
        Target::KnownSymbol(other) => {
            return Err(ModuleError::Backend(anyhow::anyhow!("symbol {other} exists only on another system")));
        }
    })
}

impl Content {
    /// Size in bytes.
    pub(crate) fn size(&self) -> u64 {
        match self {
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::Zeroes(size) => *size,
        }
    }
}

/// An error of jittison as Cranelift's.
pub(crate) fn backend(error: jittison::Error) -> ModuleError {
    ModuleError::Backend(anyhow::Error::new(error))
}
