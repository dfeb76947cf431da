//! What a built graph must be, so that the phases of a link can rely on it as on a graph of an object.
//!
//! | refused | why |
//! |---|---|
//! | position of another graph | it names nothing here |
//! | field outside of its block, edge of a zero-filled block | there are no bytes |
//! | block of a section that has a meaning, such as `.init_array` | the name alone gives it no effect |
//! | alignment that is no power of two, block over 4 GiB | no segment can place it |
//! | symbol past the end of its block | it would name another block |
//! | visible symbol without a name, with a null byte in it, or with the name of another one | nobody could refer to it |
//! | thread-local variable that is referred to as an address, and the reverse | it has no address |

use rustc_hash::FxHashSet;

use crate::base::SegmentKind;
use crate::error::{Error, LinkFault};
use crate::link::edge_rules;
use crate::link::graph::{Block, BlockId, Definition, Edge, LinkGraph, Role, SymbolIndex, Text};
use crate::link::meaningful_sections;

/// Checks what [`first_bad_edge`] could not see yet.
pub(super) fn check(graph: &LinkGraph, visible: impl Iterator<Item = SymbolIndex> + Clone) -> Result<(), Error> {
    for (id, block) in graph.blocks() {
        check_block(graph, id, block)?;
    }
    for (index, symbol) in graph.symbols().skip(1) {
        check_definition(graph, index, symbol.definition)?;
    }
    check_names(graph, visible)
}

fn check_block(graph: &LinkGraph, id: BlockId, block: &Block) -> Result<(), Error> {
    let invalid = |problem: String| Err(graph.fault(invalid(graph.block_name(id), 0, String::new(), problem)));
    if !block.align.is_power_of_two() {
        return invalid(format!("its alignment is {}, which is no power of two", block.align));
    }
    if block.size > u64::from(u32::MAX) {
        return invalid(format!("it has {} bytes, and the limit is 4 GiB", block.size));
    }
    if block.role == Role::ThreadLocal && block.pool != SegmentKind::Data {
        return invalid("thread-local variables must be data".to_string());
    }
    if let Some(problem) = section_problem(graph, id, block) {
        return invalid(problem);
    }
    for edge in graph.edges(id) {
        check_use(graph, id, edge)?;
    }
    Ok(())
}

/// Why a block cannot be in its section: it would look like one that has an effect.
fn section_problem(graph: &LinkGraph, id: BlockId, block: &Block) -> Option<String> {
    let known = match block.role {
        Role::Plain => meaningful_sections::find(graph.block_name(id))?,
        Role::ThreadLocal => {
            let is_thread_local = |name| matches!(name, ".tdata" | ".tbss");
            meaningful_sections::find(graph.block_name(id)).filter(|known| !is_thread_local(known.name))?
        }
        _ => return None,
    };
    Some(format!("in this section it would have no effect: {}", known.advice))
}

/// Refuses an edge that uses a variable as what it is not.
fn check_use(graph: &LinkGraph, id: BlockId, edge: &Edge) -> Result<(), Error> {
    let Some(problem) = edge_rules::use_problem(graph, edge) else { return Ok(()) };
    let name = describe(graph, edge);
    Err(graph.fault(invalid(graph.block_name(id), edge.offset.into(), name, problem.to_string())))
}

fn check_definition(graph: &LinkGraph, index: SymbolIndex, definition: Definition) -> Result<(), Error> {
    let Definition::Block(id, offset) = definition else { return Ok(()) };
    let name = || graph.symbol_name(index);
    let Some(block) = graph.blocks.get(id.index()) else { return Err(graph.fault(no_block(id))) };
    if offset > block.size {
        let problem = format!("symbol `{}` is past the end of the block, which has {} bytes", name(), block.size);
        return Err(graph.fault(invalid(graph.block_name(id), offset, String::new(), problem)));
    }
    Ok(())
}

/// Checks that each visible name can be found, and means one symbol.
fn check_names(graph: &LinkGraph, visible: impl Iterator<Item = SymbolIndex> + Clone) -> Result<(), Error> {
    let bad_name = |problem: String| Err(graph.fault(invalid("", 0, String::new(), problem)));
    let mut names = FxHashSet::default();
    let is_single = visible.clone().nth(1).is_none();
    for index in visible {
        let name = graph.name_bytes(index);
        if name.is_empty() || name.contains(&0) {
            return bad_name(format!("a visible symbol has the name {:?}", graph.symbol_name(index)));
        }
        if !is_single && !names.insert(name) {
            return bad_name(format!("two visible symbols have the name `{}`", graph.symbol_name(index)));
        }
    }
    Ok(())
}

/// The fault of the first edge that names no symbol or no bytes. The name of `block` is in `bytes`.
pub(super) fn first_bad_edge(graph: &LinkGraph, bytes: &[u8], block: &Block, edges: &[Edge]) -> Option<LinkFault> {
    edges.iter().find_map(|edge| {
        let problem = edge_rules::place_problem(graph.arch, graph.symbols.len(), block, edge)?;
        let edge_name = graph.relocation_name(edge.kind).to_string();
        Some(invalid(name_in(bytes, block), edge.offset.into(), edge_name, problem))
    })
}

pub(super) fn no_block(block: BlockId) -> LinkFault {
    invalid("", 0, String::new(), format!("block {} is not in this graph", block.index()))
}

pub(super) fn edges_twice(bytes: &[u8], block: &Block) -> LinkFault {
    invalid(name_in(bytes, block), 0, String::new(), "its edges were set twice".to_string())
}

pub(super) fn no_signature(symbol: SymbolIndex) -> LinkFault {
    let problem = format!("symbol {} is the signature of a COMDAT group, and others cannot see it", symbol.index());
    invalid("", 0, String::new(), problem)
}

pub(super) fn too_large() -> LinkFault {
    let problem = "its names and copied contents have more than 4 GiB; hand large contents over as vectors";
    invalid("", 0, String::new(), problem.to_string())
}

fn describe(graph: &LinkGraph, edge: &Edge) -> String {
    format!("{} to `{}`", graph.relocation_name(edge.kind), graph.symbol_name(edge.symbol))
}

/// The name of a block while its graph is built.
fn name_in<'a>(bytes: &'a [u8], block: &Block) -> &'a str {
    let Text::Object(range) = &block.name else { return "" };
    bytes.get(range.start as usize..range.end as usize).and_then(|name| std::str::from_utf8(name).ok()).unwrap_or("")
}

#[cold]
fn invalid(block: &str, offset: u64, edge: String, problem: String) -> LinkFault {
    LinkFault::InvalidGraph { block: block.to_string(), offset, edge, problem }
}
