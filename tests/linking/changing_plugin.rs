//! A plugin that changes each graph in one hook, and searches by name.

use std::sync::Arc;

use jittison::base::SegmentKind;
use jittison::layer::{LinkHooks, LinkOrigin, LinkPlugin};
use jittison::link::{BlockId, Definition, Edge, LinkGraph, PlacedLink, SymbolIndex};
use jittison::{Error, Jit};

use crate::support::*;

type Change = Arc<dyn Fn(&mut LinkGraph) -> Result<(), Error> + Send + Sync>;
type PlacedChange = Arc<dyn Fn(&mut PlacedLink) -> Result<(), Error> + Send + Sync>;

/// Runs one function in each link. Its name in errors is `changes`.
#[derive(Clone)]
pub enum Changes {
    Prepare(Change),
    Pruned(Change),
    Placed(PlacedChange),
}

pub fn in_prepare(change: impl Fn(&mut LinkGraph) -> Result<(), Error> + Send + Sync + 'static) -> Changes {
    Changes::Prepare(Arc::new(change))
}

pub fn in_pruned(change: impl Fn(&mut LinkGraph) -> Result<(), Error> + Send + Sync + 'static) -> Changes {
    Changes::Pruned(Arc::new(change))
}

pub fn in_placed(change: impl Fn(&mut PlacedLink) -> Result<(), Error> + Send + Sync + 'static) -> Changes {
    Changes::Placed(Arc::new(change))
}

/// The same change in either hook.
pub fn before_and_after_pruning(
    change: impl Fn(&mut LinkGraph) -> Result<(), Error> + Send + Sync + 'static,
) -> [Changes; 2] {
    let change: Change = Arc::new(change);
    [Changes::Prepare(change.clone()), Changes::Pruned(change)]
}

/// A session whose links this plugin changes.
pub fn jit_with(changes: Changes) -> Jit {
    let jit = new_jit();
    jit.layer().add_plugin(Arc::new(changes));
    jit
}

impl LinkPlugin for Changes {
    fn name(&self) -> &str {
        "changes"
    }

    fn begin(&self, _: &LinkOrigin<'_>) -> Option<Box<dyn LinkHooks>> {
        Some(Box::new(self.clone()))
    }
}

impl LinkHooks for Changes {
    fn prepare(&mut self, graph: &mut LinkGraph) -> Result<(), Error> {
        if let Changes::Prepare(change) = self { change(graph) } else { Ok(()) }
    }

    fn pruned(&mut self, graph: &mut LinkGraph) -> Result<(), Error> {
        if let Changes::Pruned(change) = self { change(graph) } else { Ok(()) }
    }

    fn placed(&mut self, link: &mut PlacedLink) -> Result<(), Error> {
        if let Changes::Placed(change) = self { change(link) } else { Ok(()) }
    }
}

pub fn find_symbol(graph: &LinkGraph, name: &str) -> Option<SymbolIndex> {
    graph.symbols().map(|(index, _)| index).find(|index| graph.symbol_name(*index) == name)
}

pub fn find_definition(graph: &LinkGraph, name: &str) -> Option<SymbolIndex> {
    find_symbol(graph, name).filter(|symbol| graph.definition(*symbol) != Definition::External)
}

pub fn symbol(graph: &LinkGraph, name: &str) -> SymbolIndex {
    find_symbol(graph, name).unwrap_or_else(|| panic!("no symbol `{name}`"))
}

pub fn find_block(graph: &LinkGraph, name: &str) -> Option<BlockId> {
    graph.blocks().map(|(id, _)| id).find(|id| graph.block_name(*id) == name)
}

pub fn block(graph: &LinkGraph, name: &str) -> BlockId {
    find_block(graph, name).unwrap_or_else(|| panic!("no block `{name}`"))
}

/// Where all edges to a symbol are: the block and the position among its edges.
pub fn edges_to(graph: &LinkGraph, target: SymbolIndex) -> Vec<(BlockId, usize, Edge)> {
    let live = graph.blocks().filter(|(_, block)| !block.is_dropped());
    let numbered = live.flat_map(|(id, _)| graph.edges(id).iter().enumerate().map(move |(at, edge)| (id, at, *edge)));
    numbered.filter(|(_, _, edge)| edge.symbol == target).collect()
}

/// Adds `mov $value, %eax; ret`.
pub fn add_constant(graph: &mut LinkGraph, value: u32) -> BlockId {
    let mut code = vec![0xb8];
    code.extend(value.to_le_bytes());
    code.push(0xc3);
    graph.add_block(".text.added", SegmentKind::Code, code, 16, &[])
}
