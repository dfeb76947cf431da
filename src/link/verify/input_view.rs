//! [`InputView`]: the input of a link, read a second time: an object, or what a generator handed over.

use crate::arch::verify::{Mismatch, Relocation};
use crate::link::graph::{Block, BlockId, Content, LinkGraph};
use crate::link::verify::built_view::BuiltView;
use crate::link::verify::object_view::{self, ObjectView};

pub(super) enum InputView<'a> {
    Object(Box<ObjectView<'a>>),
    Built(BuiltView<'a>),
}

impl<'a> InputView<'a> {
    /// The input of a graph. `bytes` are those of the graph.
    pub(super) fn new(bytes: &'a [u8], graph: &'a LinkGraph) -> Result<InputView<'a>, Mismatch> {
        match &graph.description {
            None => ObjectView::new(bytes, graph).map(Box::new).map(InputView::Object),
            Some(description) => BuiltView::new(description, graph).map(InputView::Built),
        }
    }

    /// Whether the input says that it marks the entries that indirect branches may reach.
    pub(super) fn marks_entries(&self) -> bool {
        match self {
            InputView::Object(view) => view.marks_entries(),
            InputView::Built(view) => view.marks_entries(),
        }
    }

    /// A block's bytes before fix-up; `None` for zero-fill.
    pub(super) fn content<'b>(&'b self, graph: &'b LinkGraph, id: BlockId, block: &'b Block) -> Option<&'b [u8]> {
        let input = match self {
            InputView::Object(view) => view.content(id),
            InputView::Built(view) => view.content(id),
        };
        input.unwrap_or_else(|| added_content(graph, id, block))
    }

    /// The relocations of a block that change bytes: those of the input, or the edges of a block that the linker or a plugin
    /// made.
    pub(super) fn relocations(&self, graph: &LinkGraph, id: BlockId) -> Vec<Relocation> {
        let input = match self {
            InputView::Object(view) => view.relocations(graph, id),
            InputView::Built(view) => view.relocations(graph, id),
        };
        input.unwrap_or_else(|| graph.edges(id).iter().map(|edge| object_view::relocation_of(graph, edge)).collect())
    }

    /// A symbol's size; zero for a symbol that the linker made.
    pub(super) fn symbol_size(&self, symbol: u32) -> u64 {
        match self {
            InputView::Object(view) => view.symbol_size(symbol),
            InputView::Built(view) => view.symbol_size(symbol),
        }
    }

    /// Checks that every symbol of the input has its name, size and definition in the graph, or a definition that the linker
    /// may give it.
    pub(super) fn check_symbols(&self, graph: &LinkGraph) -> Result<(), Mismatch> {
        match self {
            InputView::Object(view) => view.check_symbols(graph),
            InputView::Built(view) => view.check_symbols(graph),
        }
    }
}

/// The bytes before fix-up of a block that the linker made, or that a plugin made or changed.
fn added_content<'b>(graph: &'b LinkGraph, id: BlockId, block: &'b Block) -> Option<&'b [u8]> {
    match &block.content {
        Content::Synthetic(_) => graph.content(block),
        Content::Object(_) | Content::Given(_) if graph.is_changed_block(id) => graph.content(block),
        // The verifier checks a table entry by entry.
        Content::Table => Some(&[]),
        Content::Object(_) | Content::Given(_) | Content::Zero => None,
    }
}
