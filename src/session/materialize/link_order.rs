//! Link orders: editing them, and walking them depth first.
//!
//! An order names other dylibs weakly: a removed one is forgotten. Orders are read one dylib at a time, so a walk is a
//! picture of no single moment when others edit meanwhile.

use rustc_hash::FxHashSet;

use crate::error::Result;
use crate::session::core::execution_session::ExecutionSession;
use crate::session::core::jit_dylib::{JitDylib, Visibility};

impl JitDylib {
    /// Puts dylibs at the end of the link order, those left out that stand in it already.
    pub fn add_to_link_order(&self, added: &[(JitDylib, Visibility)]) {
        self.edit_link_order(|order| {
            for (dylib, visibility) in added {
                let dylib = dylib.downgrade();
                if !order.iter().any(|(other, _)| other.ptr_eq(&dylib)) {
                    order.push((dylib, *visibility));
                }
            }
        });
    }

    /// Puts `new` where `old` stands in the link order. False when it does not stand there.
    pub fn replace_in_link_order(&self, old: &JitDylib, new: &JitDylib, visibility: Visibility) -> bool {
        let old = old.downgrade();
        self.edit_link_order(|order| {
            let entry = order.iter_mut().find(|(dylib, _)| dylib.ptr_eq(&old));
            entry.map(|entry| *entry = (new.downgrade(), visibility)).is_some()
        })
    }

    /// Takes a dylib out of the link order. False when it does not stand there.
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
    /// `roots` and everything that their link orders lead to, each once, where the walk first comes to it (ORC:
    /// `getDFSLinkOrder`). In a tree, a dylib stands before what it links against; what several link against stands
    /// behind the first of them.
    ///
    /// # Errors
    /// When a root was removed.
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

    /// The reverse of [`dfs_link_order`](Self::dfs_link_order).
    ///
    /// # Errors
    /// When a root was removed.
    pub fn reverse_dfs_link_order(&self, roots: &[JitDylib]) -> Result<Vec<JitDylib>> {
        let mut order = self.dfs_link_order(roots)?;
        order.reverse();
        Ok(order)
    }
}
