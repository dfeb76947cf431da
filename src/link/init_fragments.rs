//! `.init` and `.fini` sections: code fragments that a native linker concatenates to the functions `_init` and `_fini`
//! (System V ABI, "Special Sections").
//!
//! `crti.o` holds the beginning of both functions and `crtn.o` holds the end. An object that is linked between them
//! adds calls, without a return. jittison makes no such functions, so a fragment would never run. An object with a
//! fragment is refused. The fragments of `crti.o` and `crtn.o` do nothing by themselves and are accepted.

use crate::arch::CrtFragment;
use crate::base::SegmentKind;
use crate::error::{Error, LinkFault};
use crate::link::graph::{Block, BlockId, LinkGraph, Role};

/// Whether a section of this name holds fragments.
pub(crate) fn has_fragment(section: &[u8]) -> bool {
    matches!(section, b".init" | b".fini")
}

/// Refuses a graph with fragments, other than those of `crti.o` and `crtn.o`.
///
/// # Errors
/// [`LinkFault::Unsupported`], with the attribute or section to use instead.
pub(crate) fn check(graph: &LinkGraph) -> Result<(), Error> {
    let has_bytes = |block: &Block| !block.is_dropped && block.size > 0;
    let is_fragment =
        |block: &Block| block.role == Role::InitFragment && block.pool == SegmentKind::Code && has_bytes(block);
    for (id, block) in graph.special().filter(|(_, block)| is_fragment(block)) {
        if !is_of_c_library(graph, id, graph.content(block).unwrap_or_default()) {
            let section = graph.block_name(id).to_string();
            let attribute = if section == ".init" { "constructor" } else { "destructor" };
            let what = format!(
                "fragment of the function that crti.o begins and crtn.o ends, which would never run; use \
                 `__attribute__(({attribute}))` or a section `{section}_array`"
            );
            return Err(graph.fault(LinkFault::Unsupported { what, section, offset: 0, symbol: String::new() }));
        }
    }
    Ok(())
}

/// Whether `code` is the beginning or the end of the two functions, as in glibc and musl. The beginning of glibc's
/// `_init` also calls `__gmon_start__` if it is defined (gprof), which a JIT does not need.
fn is_of_c_library(graph: &LinkGraph, id: BlockId, code: &[u8]) -> bool {
    match graph.arch.crt_fragment(code) {
        None => false,
        Some(CrtFragment::End) => true,
        Some(CrtFragment::Beginning) => graph.edges(id).is_empty(),
        Some(CrtFragment::BeginningWithCall) => {
            matches!(graph.edges(id), [edge] if graph.symbol_name(edge.symbol) == "__gmon_start__")
        }
    }
}
