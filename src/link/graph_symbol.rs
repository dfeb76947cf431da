//! [`GraphSymbol`]: a symbol of a graph, and its [`Binding`].

use crate::link::content::Text;
use crate::link::definition::Definition;

/// A symbol of an object (ORC: `jitlink::Symbol`). [`LinkGraph::symbol_name`](crate::link::LinkGraph::symbol_name) has its name.
#[derive(Debug)]
pub struct GraphSymbol {
    pub(crate) name: Text,
    /// What the symbol stands for.
    pub definition: Definition,
    /// Size in bytes, as the object states it (`st_size`). Zero if the object states none.
    pub size: u64,
    pub(crate) binding: Binding,
    /// Whether the visibility is not `STV_DEFAULT`. No shared library defines such a symbol.
    pub(crate) is_hidden: bool,
}

/// The binding of a symbol (gABI, "Symbol Binding"). `STB_GNU_UNIQUE` counts as global.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binding {
    Local,
    Global,
    Weak,
}

impl GraphSymbol {
    /// Whether the symbol is visible in its own object only (`STB_LOCAL`, or defined by [`LinkGraph::define`](crate::link::LinkGraph::define)).
    pub fn is_local(&self) -> bool {
        self.binding == Binding::Local
    }

    /// Whether another definition may replace this one. A weak external may stay undefined; its address is then null.
    pub fn is_weak(&self) -> bool {
        self.binding == Binding::Weak
    }
}
