//! [`SymbolAt`]: which symbol an address belongs to. For backtraces, crash reports and profilers, that is, seldom: there is no
//! index, and all symbols are gone over once, whatever the number of addresses. Nothing is kept for it.

use crate::base::{ExecutorAddr, Name};
use crate::session::core::jit_dylib::JitDylib;
use crate::session::symbols::symbol_table::SymbolTable;
use crate::session::types::symbol::{SymbolFlags, SymbolState};

/// The symbol that an address lies in.
#[derive(Debug, Clone)]
pub struct SymbolAt {
    /// The dylib that defines it.
    pub dylib: JitDylib,
    /// Its name.
    pub name: Name,
    /// Where it begins.
    pub start: ExecutorAddr,
    /// How many bytes further on the address is.
    pub offset: u64,
}

/// For each address, the symbol of `dylibs` that it lies in, if one is known to.
pub(crate) fn find(dylibs: &[JitDylib], addresses: &[ExecutorAddr]) -> Vec<Option<SymbolAt>> {
    let mut wanted: Vec<(ExecutorAddr, usize)> = addresses.iter().copied().zip(0..).collect();
    wanted.sort_unstable();
    let mut found = vec![None; addresses.len()];
    for dylib in dylibs {
        find_in(&dylib.inner().state.lock().table, dylib, &wanted, &mut found);
    }
    found
}

fn find_in(table: &SymbolTable, dylib: &JitDylib, wanted: &[(ExecutorAddr, usize)], found: &mut [Option<SymbolAt>]) {
    for symbol in table.symbols() {
        // Constants and thread-local variables have no place that code could be at.
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
            // Of several, the one that begins last: the innermost.
            if found[*index].as_ref().is_none_or(|other: &SymbolAt| other.start < start) {
                let (name, offset) = (table.name(symbol).to_name(), address.value() - start.value());
                found[*index] = Some(SymbolAt { dylib: dylib.clone(), name, start, offset });
            }
        }
    }
}
