//! [`GroupMembers`]: the definitions of an object that are left out together with the symbol that stands for their COMDAT
//! group. The session needs them as pairs of positions
//! ([`MaterializationUnit::group_members`](crate::session::MaterializationUnit::group_members)).

use rustc_hash::FxHashMap;

use crate::link::{InterfaceSymbol, SymbolIndex};

/// Collects the members while the interface of an object is read.
#[derive(Default)]
pub(super) struct GroupMembers {
    /// The position of each member among the claimed symbols, and the index of the symbol that stands for its group.
    found: Vec<(u32, SymbolIndex)>,
}

impl GroupMembers {
    /// Records the claimed symbol at `position`, if it is a member.
    #[inline]
    pub(super) fn add(&mut self, position: usize, symbol: &InterfaceSymbol) {
        if let Some(leader) = symbol.leader {
            self.found.push((position as u32, leader));
        }
    }

    /// The pairs of positions. `indices` are the indices of the claimed symbols. A member whose leader is not claimed is
    /// in no pair.
    #[inline]
    pub(super) fn into_pairs(self, indices: impl Iterator<Item = SymbolIndex>) -> Box<[(u32, u32)]> {
        if self.found.is_empty() { Box::default() } else { self.pairs(indices) }
    }

    #[cold]
    fn pairs(self, indices: impl Iterator<Item = SymbolIndex>) -> Box<[(u32, u32)]> {
        let positions: FxHashMap<SymbolIndex, u32> = indices.zip(0..).collect();
        let pair = |(member, leader): (u32, SymbolIndex)| Some((member, *positions.get(&leader)?));
        self.found.into_iter().filter_map(pair).collect()
    }
}
