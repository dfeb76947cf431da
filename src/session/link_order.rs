//! Link orders: methods that edit them and walk them depth first.
//!
//! A link order holds weak references to other dylibs, so a removed dylib drops out of it. A walk reads the orders one
//! dylib at a time. If other threads edit them meanwhile, the result need not match any single moment.

use rustc_hash::FxHashSet;

use crate::error::Result;
use crate::session::core::execution_session::ExecutionSession;
use crate::session::core::jit_dylib::{DylibInner, JitDylib, SearchOrder, check_order};
use crate::session::types::request::Visibility;
use crate::sync::{Arc, Weak};

impl JitDylib {
    /// Sets the dylibs that later links search after this one, in order (ORC: `setLinkOrder`). Nothing changes if they are these
    /// already.
    ///
    /// # Errors
    /// [`ErrorKind::ForeignSession`](crate::ErrorKind::ForeignSession): a dylib is of another session. Then the link order
    /// is unchanged.
    pub fn set_link_order(&self, order: &[(JitDylib, Visibility)]) -> Result<()> {
        check_order(&self.inner().session, order)?;
        let is_same = |(old, new): (&(Weak<DylibInner>, Visibility), &(JitDylib, Visibility))| {
            std::ptr::eq(old.0.as_ptr(), Arc::as_ptr(new.0.inner())) && old.1 == new.1
        };
        let is_unchanged = {
            let old = &self.inner().state.lock().link_order;
            old.len() == order.len() && old.iter().zip(order).all(is_same)
        };
        if is_unchanged {
            return Ok(());
        }
        self.edit_link_order(|old| {
            // Reuses the buffer. The old entries are weak, so they may be dropped under the lock.
            old.clear();
            old.extend(order.iter().map(|(dylib, visibility)| (dylib.downgrade(), *visibility)));
        });
        Ok(())
    }

    /// The dylibs that are searched after this one, without removed ones.
    pub fn link_order(&self) -> Vec<(JitDylib, Visibility)> {
        let mut order = SearchOrder::new();
        self.append_link_order(&mut order, |_| true);
        order.into_vec()
    }

    /// The search order of a link into this dylib: the dylib itself, hidden symbols included, then its link order.
    pub fn search_order(&self) -> Vec<(JitDylib, Visibility)> {
        self.full_search_order().into_vec()
    }

    /// Appends dylibs to the link order, except those that it already names (ORC: `addToLinkOrder`).
    ///
    /// # Errors
    /// As [`set_link_order`](Self::set_link_order).
    pub fn add_to_link_order(&self, added: &[(JitDylib, Visibility)]) -> Result<()> {
        check_order(&self.inner().session, added)?;
        self.edit_link_order(|order| {
            for (dylib, visibility) in added {
                let dylib = dylib.downgrade();
                if !order.iter().any(|(other, _)| other.ptr_eq(&dylib)) {
                    order.push((dylib, *visibility));
                }
            }
        });
        Ok(())
    }

    /// Replaces `old` by `new` in the link order (ORC: `replaceInLinkOrder`). False when the order does not name `old`.
    ///
    /// # Errors
    /// As [`set_link_order`](Self::set_link_order).
    pub fn replace_in_link_order(&self, old: &JitDylib, new: &JitDylib, visibility: Visibility) -> Result<bool> {
        new.check_session(&self.inner().session)?;
        let old = old.downgrade();
        Ok(self.edit_link_order(|order| {
            let entry = order.iter_mut().find(|(dylib, _)| dylib.ptr_eq(&old));
            entry.map(|entry| *entry = (new.downgrade(), visibility)).is_some()
        }))
    }

    /// Removes a dylib from the link order (ORC: `removeFromLinkOrder`). False when the order does not name it.
    pub fn remove_from_link_order(&self, removed: &JitDylib) -> bool {
        let removed = removed.downgrade();
        self.edit_link_order(|order| {
            let before = order.len();
            order.retain(|(dylib, _)| !dylib.ptr_eq(&removed));
            order.len() != before
        })
    }
}

impl ExecutionSession {
    /// `roots` and all dylibs that their link orders reach, each once, at the place where a depth-first walk first
    /// comes to it (ORC: `getDFSLinkOrder`). In a tree, a dylib stands before the dylibs that it links against; a dylib
    /// that several link against stands after the first of them.
    ///
    /// # Errors
    /// [`ErrorKind::DylibDefunct`](crate::ErrorKind::DylibDefunct) when a root, or a dylib on the way, was removed.
    pub fn dfs_link_order(&self, roots: &[JitDylib]) -> Result<Vec<JitDylib>> {
        let mut order = Vec::new();
        let mut seen = FxHashSet::default();
        let mut unvisited: Vec<JitDylib> = roots.iter().rev().cloned().collect();
        while let Some(dylib) = unvisited.pop() {
            if !seen.insert(dylib.id()) {
                continue;
            }
            if dylib.is_defunct() {
                return Err(dylib.inner().defunct());
            }
            unvisited.extend(dylib.link_order().into_iter().rev().map(|(next, _)| next));
            order.push(dylib);
        }
        Ok(order)
    }

    /// The reverse of [`dfs_link_order`](Self::dfs_link_order) (ORC: `getReverseDFSLinkOrder`).
    ///
    /// # Errors
    /// As [`dfs_link_order`](Self::dfs_link_order).
    pub fn reverse_dfs_link_order(&self, roots: &[JitDylib]) -> Result<Vec<JitDylib>> {
        let mut order = self.dfs_link_order(roots)?;
        order.reverse();
        Ok(order)
    }
}
