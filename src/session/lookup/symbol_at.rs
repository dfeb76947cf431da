//! [`SymbolAt`]: maps addresses to the symbols that contain them, for backtraces, crash reports and profilers.
//!
//! There is no index: one call visits all symbols once, however many addresses it has. So ask for many addresses in one
//! call.

use crate::base::{ExecutorAddr, Name, pair, sort_by_number};
use crate::session::core::execution_session::ExecutionSession;
use crate::session::core::jit_dylib::{JitDylib, SymbolTable};
use crate::session::types::symbol::{SymbolFlags, SymbolState};

/// The symbol that contains an address.
#[derive(Debug, Clone)]
pub struct SymbolAt {
    /// The dylib that defines it.
    pub dylib: JitDylib,
    /// Its name.
    pub name: Name,
    /// The address of the symbol.
    pub start: ExecutorAddr,
    /// The distance of the address from `start`, in bytes.
    pub offset: u64,
}

impl ExecutionSession {
    /// For each address, the symbol that contains it. `None` when no symbol of known size does. Visits all symbols of
    /// the session once.
    pub fn symbols_at(&self, addresses: &[ExecutorAddr]) -> Vec<Option<SymbolAt>> {
        find(&self.dylibs(), addresses)
    }
}

impl JitDylib {
    /// As [`ExecutionSession::symbols_at`], for one address in the session of this dylib.
    pub(crate) fn symbol_at(&self, address: ExecutorAddr) -> Option<SymbolAt> {
        let dylibs = self.inner().session.dylibs.lock().in_order();
        find(&dylibs, &[address]).pop().flatten()
    }
}

/// For each address, the innermost symbol of `dylibs` that contains it.
fn find(dylibs: &[JitDylib], addresses: &[ExecutorAddr]) -> Vec<Option<SymbolAt>> {
    let mut wanted: Vec<(ExecutorAddr, usize)> = addresses.iter().copied().zip(0..).collect();
    sort_by_number(&mut wanted, |(address, index)| pair(address.value(), *index as u64));
    let mut found = vec![None; addresses.len()];
    for dylib in dylibs {
        find_in(&dylib.inner().state.lock().table, dylib, &wanted, &mut found);
    }
    found
}

fn find_in(table: &SymbolTable, dylib: &JitDylib, wanted: &[(ExecutorAddr, usize)], found: &mut [Option<SymbolAt>]) {
    for symbol in table.symbols() {
        // Absolute symbols and thread-local variables have no address in code memory.
        let is_placed = !symbol.flags.contains(SymbolFlags::ABSOLUTE)
            && !symbol.flags.contains(SymbolFlags::THREAD_LOCAL)
            && symbol.state >= SymbolState::Resolved;
        if !is_placed {
            continue;
        }
        let (start, size) = (symbol.address(), table.size(symbol));
        let first = wanted.partition_point(|(address, _)| *address < start);
        let inside = wanted[first..].iter().take_while(|(address, _)| address.value() - start.value() < size);
        for (address, index) in inside {
            // Of several symbols that contain the address, the innermost counts: the one with the highest start.
            if found[*index].as_ref().is_none_or(|other: &SymbolAt| other.start < start) {
                let (name, offset) = (table.name(symbol).to_name(), address.value() - start.value());
                found[*index] = Some(SymbolAt { dylib: dylib.clone(), name, start, offset });
            }
        }
    }
}
