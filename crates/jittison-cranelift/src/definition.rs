//! [`Definition`]: a function or a data object that is defined and not finalised yet, and the graph of several.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use cranelift_codegen::isa::TargetIsa;
use cranelift_codegen::isa::unwind::UnwindInfo;
use cranelift_codegen::{Context, ir};
use cranelift_control::ControlPlane;
use cranelift_module::{
    DataId, FuncId, FuncOrDataId, Linkage, ModuleDeclarations, ModuleError, ModuleReloc, ModuleRelocTarget,
    ModuleResult,
};
use jittison::base::SegmentKind;
use jittison::link::{
    BlockContent, BlockId, BuiltGraph, Edge, EdgeKind, GraphBuilder, NewBlock, NewSymbol, SymbolIndex, SymbolScope,
};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::builder::LibcallNames;
use crate::{relocation, unwind};

/// What Cranelift made of one function or data object.
pub(crate) struct Definition {
    pub(crate) id: FuncOrDataId,
    /// Its name, if that is not the one of the declaration. Then code that calls the declaration does not mean this definition.
    pub(crate) symbol: Option<String>,
    pub(crate) content: Content,
    pub(crate) align: u64,
    /// A range of the relocations of a [`Store`].
    pub(crate) relocations: Range<usize>,
    pub(crate) unwind: Option<UnwindInfo>,
    /// Section of data, if the generator chose one.
    pub(crate) section: Option<String>,
    /// Whether dead-stripping keeps it.
    pub(crate) is_used: bool,
}

/// The bytes of a definition.
pub(crate) enum Content {
    /// A range of the bytes of a [`Store`].
    Bytes(Range<usize>),
    Zeroes(u64),
}

/// The bytes and relocations of several definitions. A module keeps its buffers from one finalisation to the next.
#[derive(Default)]
pub(crate) struct Store {
    bytes: Vec<u8>,
    relocations: Vec<ModuleReloc>,
}

impl Store {
    /// Compiles a function.
    pub(crate) fn compile(
        &mut self,
        isa: &dyn TargetIsa,
        id: FuncId,
        context: &mut Context,
        control_plane: &mut ControlPlane,
    ) -> ModuleResult<Definition> {
        let compiled = context.compile(isa, control_plane)?;
        let unwind = compiled.create_unwind_info(isa)?;
        let align = function_align(isa, compiled.buffer.alignment.into());
        let content = self.add_bytes(compiled.code_buffer());
        let relocations = context.compiled_code().map_or(&[][..], |compiled| compiled.buffer.relocs()).iter();
        let relocations = relocations.map(|found| ModuleReloc::from_mach_reloc(found, &context.func, id));
        let relocations = self.add_relocations(relocations);
        Ok(Definition { relocations, unwind, ..Definition::new(FuncOrDataId::Func(id), content, align) })
    }

    /// Keeps machine code that another compiler made.
    pub(crate) fn function(
        &mut self,
        isa: &dyn TargetIsa,
        id: FuncId,
        align: u64,
        bytes: &[u8],
        relocations: &[ModuleReloc],
    ) -> Definition {
        let (content, relocations) = (self.add_bytes(bytes), self.add_relocations(relocations.iter().cloned()));
        Definition { relocations, ..Definition::new(FuncOrDataId::Func(id), content, function_align(isa, align)) }
    }

    /// Keeps the bytes of a definition.
    pub(crate) fn add_bytes(&mut self, bytes: &[u8]) -> Content {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        Content::Bytes(start..self.bytes.len())
    }

    /// Keeps the relocations of a definition.
    pub(crate) fn add_relocations(&mut self, relocations: impl Iterator<Item = ModuleReloc>) -> Range<usize> {
        let start = self.relocations.len();
        self.relocations.extend(relocations);
        start..self.relocations.len()
    }

    /// Forgets all definitions. Keeps small buffers.
    pub(crate) fn clear(&mut self) {
        if self.bytes.capacity() > MAX_KEPT || self.relocations.capacity() * size_of::<ModuleReloc>() > MAX_KEPT {
            *self = Store::default();
        }
        self.bytes.clear();
        self.relocations.clear();
    }

    fn relocations_of(&self, definition: &Definition) -> &[ModuleReloc] {
        self.relocations.get(definition.relocations.clone()).unwrap_or_default()
    }
}

/// The most bytes of a buffer that is kept.
const MAX_KEPT: usize = 1 << 18;

impl Definition {
    /// A definition without relocations.
    pub(crate) fn new(id: FuncOrDataId, content: Content, align: u64) -> Definition {
        let (relocations, unwind, section) = (0..0, None, None);
        Definition { id, symbol: None, content, align, relocations, unwind, section, is_used: false }
    }
}

/// The alignment of a function in bytes, for which the compiler asks for `align`.
pub(crate) fn function_align(isa: &dyn TargetIsa, align: u64) -> u64 {
    align.max(isa.function_alignment().minimum.into()).max(isa.symbol_alignment())
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
    pub(crate) fn of(&self, id: FuncOrDataId) -> Cow<'_, str> {
        let (declared, id): (_, &dyn fmt::Display) = match &id {
            FuncOrDataId::Func(id) => (&self.declarations.get_function_decl(*id).name, id),
            FuncOrDataId::Data(id) => (&self.declarations.get_data_decl(*id).name, id),
        };
        match declared {
            Some(name) => Cow::Borrowed(name),
            None => Cow::Owned(format!("{ANONYMOUS}{id}>")),
        }
    }

    fn linkage(&self, id: FuncOrDataId) -> Linkage {
        match id {
            FuncOrDataId::Func(id) => self.declarations.get_function_decl(id).linkage,
            FuncOrDataId::Data(id) => self.declarations.get_data_decl(id).linkage,
        }
    }
}

/// Builds the graph of definitions that are removed together. Its name is that of the first.
pub(crate) fn graph<'a>(
    definitions: impl ExactSizeIterator<Item = &'a Definition> + Clone,
    store: &Store,
    names: &Names<'_>,
    isa: &dyn TargetIsa,
) -> ModuleResult<BuiltGraph> {
    let title = definitions.clone().next().map(|first| names.of(first.id)).unwrap_or_default();
    titled_graph(&title, definitions, store, names, isa)
}

/// As [`graph`], with a name for the graph.
pub(crate) fn titled_graph<'a>(
    title: &str,
    definitions: impl ExactSizeIterator<Item = &'a Definition> + Clone,
    store: &Store,
    names: &Names<'_>,
    isa: &dyn TargetIsa,
) -> ModuleResult<BuiltGraph> {
    let mut graph = GraphBuilder::new(title);
    let mut placed: SmallVec<[(BlockId, SymbolIndex); 1]> = SmallVec::with_capacity(definitions.len());
    placed.extend(definitions.clone().map(|definition| place(&mut graph, definition, store, names)));
    let mut writer = EdgeWriter { graph: &mut graph, names, isa, targets: FxHashMap::default(), edges: Vec::new() };
    if definitions.clone().any(|definition| !definition.relocations.is_empty()) {
        writer.targets.reserve(2 * placed.len());
        for (definition, (_, symbol)) in definitions.clone().zip(&placed) {
            if definition.symbol.is_none() {
                writer.targets.insert(Target::Own(definition.id), *symbol);
            }
        }
        for (definition, (block, _)) in definitions.clone().zip(&placed) {
            writer.write(*block, store.relocations_of(definition))?;
        }
    }
    let functions = definitions.zip(&placed);
    let functions =
        functions.filter_map(|(definition, (_, symbol))| definition.unwind.as_ref().map(|unwind| (*symbol, unwind)));
    if let Some((table, edges)) = unwind::table(isa, functions)? {
        graph.add_eh_frame(&table, &edges);
    }
    graph.finish().map_err(backend)
}

/// Adds the block and the symbol of a definition.
fn place(
    graph: &mut GraphBuilder,
    definition: &Definition,
    store: &Store,
    names: &Names<'_>,
) -> (BlockId, SymbolIndex) {
    let block = new_block(definition, store, names).with_align(definition.align);
    let block = graph.add_block(if definition.is_used { block.retained() } else { block });
    let name = match &definition.symbol {
        Some(symbol) => Cow::Borrowed(&**symbol),
        None => names.of(definition.id),
    };
    let symbol = match definition.id {
        FuncOrDataId::Func(_) => NewSymbol::function(&name, block, 0),
        FuncOrDataId::Data(_) => NewSymbol::new(&name, block, 0),
    };
    let symbol = match names.linkage(definition.id) {
        Linkage::Preemptible => symbol.weak(),
        Linkage::Export => symbol,
        // Later finalisations of the module refer to it.
        Linkage::Local | Linkage::Hidden | Linkage::Import => symbol.with_scope(SymbolScope::Hidden),
    };
    (block, graph.add_symbol(symbol.with_size(definition.content.size())))
}

fn new_block<'a>(definition: &'a Definition, store: &'a Store, names: &Names<'_>) -> NewBlock<'a> {
    let content = match &definition.content {
        Content::Bytes(range) => BlockContent::from(store.bytes.get(range.clone()).unwrap_or_default()),
        Content::Zeroes(size) => BlockContent::zeroes(*size),
    };
    let FuncOrDataId::Data(id) = definition.id else { return NewBlock::code(content) };
    let declaration = names.declarations.get_data_decl(id);
    let block = match (declaration.tls, declaration.writable) {
        (true, _) => NewBlock::thread_local(content),
        (false, true) => NewBlock::new(".data", SegmentKind::Data, content),
        (false, false) => NewBlock::new(".rodata", SegmentKind::ReadOnly, content),
    };
    match &definition.section {
        Some(section) => block.in_section(section),
        None => block,
    }
}

#[derive(PartialEq, Eq, Hash)]
enum Target {
    Own(FuncOrDataId),
    LibCall(ir::LibCall),
    KnownSymbol(ir::KnownSymbol),
}

/// Writes relocations as edges.
struct EdgeWriter<'a, 'b> {
    graph: &'a mut GraphBuilder,
    names: &'a Names<'b>,
    isa: &'a dyn TargetIsa,
    /// The symbols of the graph that relocations refer to.
    targets: FxHashMap<Target, SymbolIndex>,
    /// The edges of one block.
    edges: Vec<Edge>,
}

impl EdgeWriter<'_, '_> {
    /// Sets the edges of a block.
    fn write(&mut self, block: BlockId, relocations: &[ModuleReloc]) -> ModuleResult<()> {
        if relocations.is_empty() {
            return Ok(());
        }
        self.edges.clear();
        for relocation in relocations {
            if let Some(kind) = relocation::edge_kind(self.isa, relocation.kind)? {
                let edge = self.edge(relocation, kind)?;
                self.edges.push(edge);
            }
        }
        self.graph.set_edges(block, &self.edges);
        Ok(())
    }

    fn edge(&mut self, relocation: &ModuleReloc, kind: EdgeKind) -> ModuleResult<Edge> {
        let (target, distance) = match relocation.name {
            ModuleRelocTarget::User { .. } if ModuleDeclarations::is_function(&relocation.name) => {
                (Target::Own(FuncOrDataId::Func(FuncId::from_name(&relocation.name))), 0)
            }
            ModuleRelocTarget::User { .. } => (Target::Own(FuncOrDataId::Data(DataId::from_name(&relocation.name))), 0),
            ModuleRelocTarget::FunctionOffset(id, offset) => (Target::Own(FuncOrDataId::Func(id)), i64::from(offset)),
            ModuleRelocTarget::LibCall(call) => (Target::LibCall(call), 0),
            ModuleRelocTarget::KnownSymbol(symbol) => (Target::KnownSymbol(symbol), 0),
        };
        let symbol = match self.targets.get(&target) {
            Some(symbol) => *symbol,
            None => {
                let symbol = external(self.graph, self.names, &target)?;
                self.targets.insert(target, symbol);
                symbol
            }
        };
        Ok(Edge { offset: relocation.offset, kind, symbol, addend: relocation.addend + distance })
    }
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
            Content::Bytes(range) => range.len() as u64,
            Content::Zeroes(size) => *size,
        }
    }
}

/// An error of jittison as Cranelift's.
pub(crate) fn backend(error: jittison::Error) -> ModuleError {
    ModuleError::Backend(anyhow::Error::new(error))
}
