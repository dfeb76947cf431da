//! [`Searched`]: the dylibs that a search goes through, in order.

use std::borrow::Cow;

use crate::session::core::jit_dylib::{JitDylib, LinkCache};
use crate::session::types::request::Visibility;

/// The dylibs of a search. A position counts from zero.
#[derive(Clone)]
pub(crate) enum Searched<'a> {
    /// Those that a caller lists.
    Listed(Cow<'a, [(JitDylib, Visibility)]>),
    /// A dylib with all its symbols, then its link order, which all searches from the dylib share.
    From(JitDylib, LinkCache),
}

impl<'a> From<&'a [(JitDylib, Visibility)]> for Searched<'a> {
    fn from(order: &'a [(JitDylib, Visibility)]) -> Searched<'a> {
        Searched::Listed(Cow::Borrowed(order))
    }
}

impl Searched<'_> {
    /// The search order of `own`.
    pub(crate) fn from_dylib(own: &JitDylib) -> Searched<'static> {
        let others = own.inner().state.lock().link_cache(own.inner());
        Searched::From(own.clone(), others)
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Searched::Listed(order) => order.len(),
            Searched::From(_, others) => 1 + others.len(),
        }
    }

    pub(crate) fn get(&self, position: usize) -> Option<(&JitDylib, Visibility)> {
        match self {
            Searched::Listed(order) => order.get(position).map(|(dylib, visibility)| (dylib, *visibility)),
            Searched::From(own, _) if position == 0 => Some((own, Visibility::All)),
            Searched::From(_, others) => others.get(position - 1).map(|(dylib, visibility)| (dylib, *visibility)),
        }
    }

    /// For errors: the names of the dylibs, in order. Of many, it has the first ones and the number of the others.
    pub(crate) fn names(&self) -> Vec<String> {
        let named = (0..self.len().min(MAX_NAMED)).filter_map(|position| self.get(position));
        // A closed dylib of a link order is no longer part of it.
        let named = named.filter(|(dylib, _)| matches!(self, Searched::Listed(_)) || !dylib.is_defunct());
        let mut names: Vec<_> = named.map(|(dylib, _)| dylib.name().to_string()).collect();
        if self.len() > MAX_NAMED {
            names.push(format!("and {} more", self.len() - MAX_NAMED));
        }
        names
    }

    pub(crate) fn into_owned(self) -> Searched<'static> {
        match self {
            Searched::Listed(order) => Searched::Listed(Cow::Owned(order.into_owned())),
            Searched::From(own, others) => Searched::From(own, others),
        }
    }

    /// The same dylibs, for a search that ends before `self` does.
    pub(crate) fn borrowed(&self) -> Searched<'_> {
        match self {
            Searched::Listed(order) => Searched::Listed(Cow::Borrowed(order)),
            Searched::From(own, others) => Searched::From(own.clone(), others.clone()),
        }
    }
}

/// The most dylibs that an error names.
const MAX_NAMED: usize = 16;
