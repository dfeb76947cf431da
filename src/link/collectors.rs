//! [`check`]: refuses objects of a runtime whose garbage collector would not see all their variables.
//!
//! D's runtime gets from each object a call of `_d_dso_registry`, and asks the loader for the library of the caller: the writable
//! segments and the one thread-local block of that library hold the variables in which it looks for pointers. Here each object
//! has a thread-local block of its own, so blocks to which only a thread-local variable points would be freed while they are
//! used.
//!
//! A collector that reads the writable segments of all libraries at each collection, as Boehm's does, finds the variables of
//! linked code (`src/memory/data_segment.rs`).

use crate::error::{LinkFault, Result};
use crate::link::graph::LinkGraph;

/// # Errors
/// [`LinkFault::Unsupported`].
pub(crate) fn check(graph: &LinkGraph) -> Result<()> {
    match graph.find_external(REGISTRY_OF_D) {
        None => Ok(()),
        Some(_) => Err(graph.fault(LinkFault::Unsupported {
            what: "garbage collector of D: it looks for pointers in the thread-local variables of one module, and each linked \
                   object is one; compile without D's runtime (`-betterC`, `-fno-druntime`)"
                .to_string(),
            section: String::new(),
            offset: 0,
            symbol: REGISTRY_OF_D.to_string(),
        })),
    }
}

const REGISTRY_OF_D: &str = "_d_dso_registry";
