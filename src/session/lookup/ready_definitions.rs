//! [`JitDylib::ready_definitions`]: what one dylib defines of a few names, in one step.
//!
//! A version of patched functions is in a dylib of its own, and its link has ended. So the functions are there and ready: one look
//! at the table answers which of them the version defines, and where. What is not ready needs a lookup (`blocking.rs`).

use smallvec::SmallVec;

use crate::base::{ExecutorAddr, Name};
use crate::session::core::jit_dylib::JitDylib;
use crate::session::core::symbol_ref::LookupResult;
use crate::session::types::symbol::{SymbolFlags, SymbolId, SymbolState};

/// A ready definition of one dylib. Unlike a [`LookupResult`], it writes no reference count.
#[derive(Clone, Copy)]
pub(crate) struct ReadyDefinition {
    pub(crate) address: ExecutorAddr,
    pub(crate) flags: SymbolFlags,
    /// `None` for an absolute symbol.
    pub(crate) id: Option<SymbolId>,
}

/// For each name: its definition, if there is one.
pub(crate) type ReadyDefinitions = SmallVec<[Option<ReadyDefinition>; 1]>;

impl From<LookupResult> for ReadyDefinition {
    fn from(found: LookupResult) -> ReadyDefinition {
        ReadyDefinition { address: found.address, flags: found.flags, id: found.symbol.map(|symbol| symbol.id) }
    }
}

impl JitDylib {
    /// The definitions of `names` in this dylib, hidden ones included. Materialises nothing, and calls no generator. `None` if a
    /// definition is not ready, if the names are many, or if the dylib is closed.
    pub(crate) fn ready_definitions(&self, names: &[Name]) -> Option<ReadyDefinitions> {
        if names.len() > MAX_NAMES {
            return None;
        }
        let state = self.inner().state.lock();
        if !state.is_open() {
            return None;
        }
        let mut definitions = ReadyDefinitions::with_capacity(names.len());
        for name in names {
            let found = state.table.find(name.as_str()).and_then(|id| Some((id, state.table.symbol(id)?)));
            definitions.push(match found {
                None => None,
                Some((id, symbol)) if symbol.state == SymbolState::Ready => {
                    let (address, flags) = (symbol.address(), symbol.flags);
                    let id = (!flags.contains(SymbolFlags::ABSOLUTE)).then_some(id);
                    Some(ReadyDefinition { address, flags, id })
                }
                Some(_) => return None,
            });
        }
        Some(definitions)
    }
}

/// So many names are searched under one lock of the dylib.
const MAX_NAMES: usize = 32;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::session::ExecutionSession;

    #[test]
    fn names_without_a_definition_have_no_result_and_a_closed_dylib_gives_no_answer() {
        let session = ExecutionSession::new();
        let dylib = session.create_dylib("main").unwrap();
        let names = [Name::new("absent"), Name::new("present")];
        dylib.define_absolute([(names[1].clone(), ExecutorAddr::new(7), SymbolFlags::EXPORTED)]).unwrap();
        let found = dylib.ready_definitions(&names).unwrap();
        assert!(found[0].is_none());
        assert_eq!(found[1].as_ref().unwrap().address, ExecutorAddr::new(7));
        let many = vec![names[1].clone(); MAX_NAMES + 1];
        assert!(dylib.ready_definitions(&many).is_none());
        session.remove_dylib(&dylib).unwrap();
        assert!(dylib.ready_definitions(&names).is_none());
    }
}
