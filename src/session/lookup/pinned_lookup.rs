//! Lookups of one ready symbol for an owned handle: its address, and a pin of its tracker.
//!
//! | lookup of a symbol | its pin |
//! |---|---|
//! | the first | its own, under the dylib's lock |
//! | the second | the [shared pin](crate::session::types::shared_pins) of the tracker for this group of threads, which the index of ready symbols gets |
//! | a later one by the same group | the same, from the index, without the dylib's lock |
//!
//! Code that is linked, looked up once and removed has no shared pin. Model: `loom_tests/loom_lookup_remove.rs`.

use crate::base::{CodeHold, ExecutorAddr};
use crate::session::core::jit_dylib::JitDylib;
use crate::session::core::resource_tracker::Pin;
use crate::session::types::name_hash::NameHash;
use crate::session::types::request::Visibility;
use crate::session::types::shared_pins::own_group;
use crate::session::types::symbol::{SymbolFlags, SymbolState};
use crate::sync::Arc;

/// The address of a symbol, and what keeps its code in memory. `None` instead of that for an absolute symbol: no removal frees it.
pub(crate) type HeldSymbol = (ExecutorAddr, Option<Arc<dyn CodeHold>>);

impl JitDylib {
    /// A ready symbol of this dylib alone, pinned. `None` if the symbol is not ready, or not of this dylib.
    #[inline]
    pub(crate) fn find_pinned(&self, name: &str) -> Option<HeldSymbol> {
        let hash = NameHash::of(name);
        match self.inner().ready.find_pinned(name, hash) {
            Some((address, pin)) => Some((address, pin.map(|pin| -> Arc<dyn CodeHold> { pin }))),
            None => self.find_pinned_in_table(name, hash),
        }
    }

    fn find_pinned_in_table(&self, name: &str, hash: NameHash) -> Option<HeldSymbol> {
        let mut state = self.inner().state.lock();
        let (id, symbol) = state.find_visible_hashed(name.as_bytes(), hash, Visibility::All)?;
        if !state.is_open() || symbol.state != SymbolState::Ready {
            return None;
        }
        let address = symbol.address();
        if symbol.flags.contains(SymbolFlags::ABSOLUTE) {
            state.table.note_ready_lookup(id);
            return Some((address, None));
        }
        let owner = state.table.owner(symbol)?.clone();
        // S2: the owner is live under this lock.
        if state.table.was_looked_up(symbol) {
            let tracker = owner.id;
            let pin = || Some(Box::new(Pin::new(owner)?) as Box<dyn CodeHold>);
            let shared = state.shared_pins.get_or_insert(tracker, own_group(), pin)?;
            state.table.note_pinned_lookup(id, &shared);
            return Some((address, Some(shared)));
        }
        state.table.note_ready_lookup(id);
        let pin = Pin::new(owner)?;
        drop(state);
        Some((address, Some(Arc::new(pin))))
    }

    /// For models: keeps the code of a ready symbol in memory, as an owned handle does.
    #[cfg(loom)]
    #[doc(hidden)]
    pub fn hold_for_models(&self, name: &str) -> Option<impl Sized + use<>> {
        self.find_pinned(name)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Barrier;

    use crate::base::{CodeHold, ExecutorAddr, Name};
    use crate::session::types::shared_pins::GROUPS;
    use crate::session::types::symbol::SymbolFlags;
    use crate::session::{ExecutionSession, RequiredState, SymbolRequest};
    use crate::sync::Arc;

    #[test]
    fn threads_of_different_groups_share_no_reference_count_and_one_thread_shares_its_own() {
        let session = ExecutionSession::new();
        let dylib = session.create_dylib("main").unwrap();
        let tracker = dylib.create_tracker().unwrap();
        let unit = tracker.define_materializing("unit", [(Name::new("often"), SymbolFlags::EXPORTED)]).unwrap();
        unit.notify_resolved(|_| Some(ExecutorAddr::new(64))).unwrap();
        unit.notify_emitted(Vec::new()).unwrap();
        dylib.lookup(&[SymbolRequest::required("often")], RequiredState::Ready).unwrap();
        let all_have_one = Barrier::new(GROUPS);
        let counters = std::thread::scope(|scope| {
            let look_up_often = || {
                let holds = [(); 40].map(|()| dylib.find_pinned("often").unwrap().1.unwrap());
                all_have_one.wait();
                let counter = |hold: &Arc<dyn CodeHold>| Arc::as_ptr(hold).addr();
                let [before, last] = [38, 39].map(|number| counter(&holds[number]));
                assert_eq!(before, last, "a thread shares its pin with itself");
                last
            };
            let threads = [(); GROUPS].map(|()| scope.spawn(look_up_often));
            threads.map(|thread| thread.join().unwrap())
        });
        // Threads that live together have different numbers, so they are of several groups.
        assert!(counters.iter().any(|counter| *counter != counters[0]), "{counters:x?}");
    }
}
