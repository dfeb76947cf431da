//! [`Dylibs`]: a session's dylibs, and a few that were removed, whose room serves the next ones.
//!
//! A dylib that lives for a moment, of one query or one patch, costs mostly the memory that it is in and the tables that grow
//! from nothing. So a removed one of which nothing waits to be reclaimed is put aside, up to [`MOST`], and once nobody holds it
//! any more, the next dylib is made of it. Until then it is what every removed dylib is: closed, and empty, for a tracker or a
//! symbol would hold it. One that a link order names is let go instead, so that the order forgets it.
//!
//! What is put aside holds the session, so nothing is once the session [ends](Dylibs::end).

use crate::base::PagedArena;
use crate::session::core::execution_session::SessionInner;
use crate::session::core::jit_dylib::{DylibId, DylibInner, JitDylib, Visibility};
use crate::sync::Arc;

pub(crate) struct Dylibs {
    listed: PagedArena<DylibId, Arc<DylibInner>>,
    /// The longest there first.
    aside: Vec<Arc<DylibInner>>,
    created: u64,
    /// Whether the session has ended: then nothing is put aside any more.
    has_ended: bool,
}

impl Dylibs {
    pub(crate) fn new() -> Dylibs {
        Dylibs { listed: PagedArena::new(), aside: Vec::new(), created: 0, has_ended: false }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<DylibInner>> {
        self.listed.values()
    }

    /// As handles, in creation order.
    pub(crate) fn in_order(&self) -> Vec<JitDylib> {
        let mut dylibs: Vec<_> = self.iter().cloned().collect();
        dylibs.sort_by_key(|dylib| dylib.serial);
        dylibs.into_iter().map(JitDylib::from_inner).collect()
    }

    /// A new, empty one with these `others` in its link order, made of one that was put aside, if one of them is held by nobody.
    pub(crate) fn add(
        &mut self,
        session: &Arc<SessionInner>,
        name: &str,
        others: &[(&JitDylib, Visibility)],
    ) -> Arc<DylibInner> {
        let Dylibs { listed, aside, created, .. } = self;
        let serial = *created;
        *created += 1;
        let (_, dylib) = listed.insert_with_key(|id| {
            let mut is_made_of =
                |old: &mut Arc<DylibInner>| Arc::get_mut(old).is_some_and(|old| old.renew(id, name, serial, others));
            match aside.iter_mut().rposition(&mut is_made_of) {
                Some(position) => aside.remove(position),
                None => Arc::new(DylibInner::new(session.clone(), id, name, serial, others)),
            }
        });
        dylib.clone()
    }

    /// Takes one off the list, if it is there.
    pub(crate) fn remove(&mut self, id: DylibId) -> Option<Arc<DylibInner>> {
        self.listed.remove(id)
    }

    /// Puts one aside that was taken off the list; returns what has to go for that, or instead. To be dropped with no lock held.
    #[must_use]
    pub(crate) fn put_aside(&mut self, dylib: Arc<DylibInner>) -> Option<Arc<DylibInner>> {
        if self.has_ended || Arc::weak_count(&dylib) > 0 {
            return Some(dylib);
        }
        let displaced = (self.aside.len() == MOST).then(|| self.aside.remove(0));
        self.aside.push(dylib);
        displaced
    }

    /// As [`take_aside`](Self::take_aside), from now on.
    #[must_use]
    pub(crate) fn end(&mut self) -> Vec<Arc<DylibInner>> {
        self.has_ended = true;
        self.take_aside()
    }

    /// Has nothing put aside. To be dropped with no lock held.
    #[must_use]
    pub(crate) fn take_aside(&mut self) -> Vec<Arc<DylibInner>> {
        std::mem::take(&mut self.aside)
    }
}

/// Dylibs that are put aside at once: few threads make such at a time.
const MOST: usize = 4;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::{ExecutorAddr, Name};
    use crate::session::{DefinitionGenerator, ExecutionSession, SymbolFlags};
    use crate::sync::Ordering;

    struct Nothing;

    impl DefinitionGenerator for Nothing {}

    fn define(dylib: &JitDylib, name: &str) {
        let symbol = (Name::new(name), ExecutorAddr::new(8), SymbolFlags::EXPORTED);
        dylib.create_tracker().unwrap().define_absolute([symbol]).unwrap();
    }

    fn place(dylib: &JitDylib) -> *const DylibInner {
        Arc::as_ptr(dylib.inner())
    }

    #[test]
    fn a_dylib_that_is_made_of_a_removed_one_has_nothing_of_it() {
        let session = ExecutionSession::new();
        let (first, other) = (session.create_version_dylib("first").unwrap(), session.create_dylib("other").unwrap());
        define(&first, "symbol");
        first.set_link_order(&[(other, Visibility::All)]);
        first.add_generator(Arc::new(Nothing));
        let (old_place, old_id, old_key) = (place(&first), first.id(), first.create_tracker().unwrap().key());
        assert!(session.remove_dylib(&first).unwrap().is_empty());
        drop(first);
        let second = session.create_dylib("second").unwrap();
        assert_eq!((place(&second), second.name()), (old_place, "second"));
        assert!(!second.inner().has_versions.load(Ordering::Relaxed));
        assert!(!second.is_defunct() && second.link_order().is_empty() && second.generator_from(0).is_none());
        assert!(second.symbol_count() == 0 && second.id() != old_id && second.symbol_count_of(old_key) == 0);
        assert_ne!(second.default_tracker().unwrap().key(), old_key);
        define(&second, "symbol");
        assert_eq!(second.lookup_address("symbol").unwrap(), ExecutorAddr::new(8));
    }

    #[test]
    fn a_dylib_that_somebody_holds_stays_what_it_is() {
        let session = ExecutionSession::new();
        let first = session.create_dylib("first").unwrap();
        session.remove_dylib(&first).unwrap();
        let second = session.create_dylib("second").unwrap();
        assert!(first != second && first.is_defunct() && !second.is_defunct());
        assert_eq!((first.name(), second.name()), ("first", "second"));
        // It takes nothing that would stay with the session.
        let generator: Arc<dyn DefinitionGenerator> = Arc::new(Nothing);
        first.add_generator(generator.clone());
        assert_eq!(Arc::strong_count(&generator), 1);
    }

    #[test]
    fn few_removed_dylibs_are_put_aside_and_none_once_the_session_has_ended() {
        let session = ExecutionSession::new();
        let dylibs: Vec<_> = (0..MOST + 2).map(|_| session.create_dylib("short-lived").unwrap()).collect();
        let known: Vec<_> = dylibs.iter().map(|dylib| Arc::as_ptr(dylib.inner())).collect();
        dylibs.iter().for_each(|dylib| drop(session.remove_dylib(dylib).unwrap()));
        drop(dylibs);
        let again: Vec<_> = (0..MOST).map(|_| session.create_dylib("next").unwrap()).collect();
        assert!(again.iter().all(|dylib| known[2..].contains(&place(dylib))));
        // What the end itself removes, and nobody holds, would hold the session.
        let inner = Arc::downgrade(session.inner());
        drop(again);
        drop(session);
        assert_eq!(inner.strong_count(), 0);
    }
}
