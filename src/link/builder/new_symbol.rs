//! [`NewSymbol`]: a definition as a code generator hands it over.

use crate::base::ExecutorAddr;
use crate::link::graph::{Binding, BlockId, Definition};

/// A definition for [`GraphBuilder::add_symbol`](super::GraphBuilder::add_symbol) and
/// [`LinkGraph::add_symbol`](crate::link::LinkGraph::add_symbol).
#[derive(Debug, Clone, Copy)]
pub struct NewSymbol<'a> {
    pub(in crate::link) name: &'a str,
    pub(in crate::link) definition: Definition,
    pub(in crate::link) size: u64,
    pub(in crate::link) scope: SymbolScope,
    pub(in crate::link) is_weak: bool,
    pub(in crate::link) is_callable: bool,
}

/// Who can refer to a definition by its name (ORC: `jitlink::Scope`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SymbolScope {
    /// The dylib of the graph, and the dylibs that link against it.
    Exported,
    /// The dylib of the graph.
    Hidden,
    /// The graph alone. The name may be empty.
    Local,
}

impl SymbolScope {
    /// The binding of a symbol with this scope. A local symbol cannot be weak.
    pub(in crate::link) fn binding(self, is_weak: bool) -> Binding {
        match (self, is_weak) {
            (SymbolScope::Local, _) => Binding::Local,
            (SymbolScope::Hidden | SymbolScope::Exported, true) => Binding::Weak,
            (SymbolScope::Hidden | SymbolScope::Exported, false) => Binding::Global,
        }
    }
}

impl<'a> NewSymbol<'a> {
    /// An exported variable at `offset` bytes in a block. In a block of thread-local variables, it is one of them.
    pub fn new(name: &'a str, block: BlockId, offset: u64) -> NewSymbol<'a> {
        let (definition, scope) = (Definition::Block(block, offset), SymbolScope::Exported);
        NewSymbol { name, definition, size: 0, scope, is_weak: false, is_callable: false }
    }

    /// An exported function at `offset` bytes in a block.
    pub fn function(name: &'a str, block: BlockId, offset: u64) -> NewSymbol<'a> {
        NewSymbol { is_callable: true, ..NewSymbol::new(name, block, offset) }
    }

    /// A symbol that only the graph itself refers to, at `offset` bytes in a block.
    pub fn local(name: &'a str, block: BlockId, offset: u64) -> NewSymbol<'a> {
        NewSymbol { scope: SymbolScope::Local, ..NewSymbol::new(name, block, offset) }
    }

    /// An exported symbol with a fixed address or value (`SHN_ABS`).
    pub fn absolute(name: &'a str, address: ExecutorAddr) -> NewSymbol<'a> {
        let (definition, scope) = (Definition::Absolute(address.value()), SymbolScope::Exported);
        NewSymbol { name, definition, size: 0, scope, is_weak: false, is_callable: false }
    }

    /// Sets who can refer to the symbol.
    pub fn with_scope(self, scope: SymbolScope) -> NewSymbol<'a> {
        NewSymbol { scope, ..self }
    }

    /// Sets the size in bytes. Debuggers, profilers and [`Jit::locate`](crate::Jit::locate) show it. Without it, a variable ends
    /// where the next symbol begins that others can see, or with its block.
    pub fn with_size(self, size: u64) -> NewSymbol<'a> {
        NewSymbol { size, ..self }
    }

    /// Makes the definition weak: the first definition of the name counts.
    pub fn weak(self) -> NewSymbol<'a> {
        NewSymbol { is_weak: true, ..self }
    }
}
