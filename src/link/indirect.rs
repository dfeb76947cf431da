//! Indirect functions (`STT_GNU_IFUNC`): a resolver in the program chooses the function when the program runs.
//!
//! Each indirect function that the object defines gets a stub. The symbol's address is the stub's, for calls and for
//! comparisons of pointers. The stub jumps through a slot. At first the slot leads to an entry that calls the resolver,
//! stores the result in the slot and jumps to it.
//!
//! ```text
//!   stub:    jump by the slot                          slot: .quad entry, later the result
//!   entry:   pass resolver and &slot; jump common
//!   common:  save argument registers; call resolver; store; restore; jump to the result
//! ```
//!
//! Aliases share the stub. So a resolver runs at the first call, in the calling thread, when everything that it needs is
//! linked and initialised. Several threads may run it at once; they store the same result.
//!
//! # Limits
//! `arch` has the code, and says what a resolver gets as arguments, and which registers the common part saves. A resolver that uses
//! others overwrites arguments in them.

use rustc_hash::FxHashMap;

use crate::arch::{EdgeKind, IndirectTarget};
use crate::base::SegmentKind;
use crate::link::graph::{BlockId, Definition, Edge, LinkGraph, SymbolIndex};

/// Adds a stub for each indirect function that the object defines, and makes the stub the definition of the symbol.
pub(crate) fn build_stubs(graph: &mut LinkGraph) {
    let indirect = std::mem::take(&mut graph.indirect);
    let defined: Vec<(SymbolIndex, BlockId, u64)> = indirect
        .into_iter()
        .filter_map(|symbol| match graph.definition(symbol) {
            Definition::Block(block, offset) => Some((symbol, block, offset)),
            _ => None, // another object's definition replaces this one
        })
        .collect();
    if defined.is_empty() {
        return;
    }
    let template = graph.arch.indirect_code();
    let slots = graph.insert_block(".igot", SegmentKind::Data, vec![0; defined.len() * 8], 8, &[]);
    let code = graph.insert_block(".iplt", SegmentKind::Code, Vec::new(), 16, &[]);
    let common = graph.insert_local("", code, 0);
    let mut bytes = template.common.bytes.to_vec();
    let (mut code_edges, mut slot_edges) = (Vec::new(), Vec::new());
    for field in template.common.fields {
        let function = graph.find_external(field.target).unwrap_or_else(|| graph.insert_external(field.target));
        code_edges.push(Edge::of_field(field, 0, function));
    }
    // Names of one resolver are aliases of one function, which has one address.
    let mut stub_of = FxHashMap::default();
    for (symbol, block, offset) in defined {
        if let Some(stub) = stub_of.get(&(block, offset)) {
            graph.symbols[symbol.index()].definition = Definition::Block(code, *stub);
            continue;
        }
        let slot_offset = slot_edges.len() as u32 * 8;
        let resolver = graph.insert_local("", block, offset);
        let slot = graph.insert_local("", slots, slot_offset.into());
        bytes.resize(bytes.len().next_multiple_of(16), graph.arch.trap());
        let stub = bytes.len() as u64;
        let entry = graph.insert_local("", code, stub + template.entry);
        bytes.extend(template.stub_and_entry.bytes);
        let symbol_of = |target| match target {
            IndirectTarget::Slot => slot,
            IndirectTarget::Resolver => resolver,
            IndirectTarget::Common => common,
        };
        let fields = template.stub_and_entry.fields.iter();
        code_edges.extend(fields.map(|field| Edge::of_field(field, stub, symbol_of(field.target))));
        slot_edges.push(Edge { offset: slot_offset, kind: EdgeKind::Pointer64, symbol: entry, addend: 0 });
        stub_of.insert((block, offset), stub);
        graph.symbols[symbol.index()].definition = Definition::Block(code, stub);
    }
    graph.fill_block(code, bytes, &code_edges);
    graph.fill_block(slots, vec![0; slot_edges.len() * 8], &slot_edges);
}
