//! [`Edges`]: the trackers at the other ends of one tracker's pins, counted. Most have one or two, a runtime library's
//! tracker has as many as there are modules: a short list up to some length, a table from there.

use rustc_hash::FxHashMap;

use crate::base::is_sparse;
use crate::session::resource_tracker::ResourceKey;

#[derive(Default)]
pub(crate) struct Edges {
    few: Vec<(ResourceKey, usize)>,
    many: Option<Box<FxHashMap<ResourceKey, usize>>>,
}

impl Edges {
    pub(crate) fn contains(&self, key: ResourceKey) -> bool {
        match &self.many {
            Some(many) => many.contains_key(&key),
            None => self.few.iter().any(|(other, _)| *other == key),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.few.is_empty() && self.many.as_ref().is_none_or(|many| many.is_empty())
    }

    /// Counts `more` edges to `key`.
    pub(crate) fn add(&mut self, key: ResourceKey, more: usize) {
        if let Some(many) = &mut self.many {
            *many.entry(key).or_default() += more;
        } else if let Some((_, count)) = self.few.iter_mut().find(|(other, _)| *other == key) {
            *count += more;
        } else if self.few.len() < FEW {
            self.few.reserve_exact(if self.few.is_empty() { 1 } else { self.few.len() });
            self.few.push((key, more));
        } else {
            let many = self.few.drain(..).chain([(key, more)]).collect();
            self.few = Vec::new();
            self.many = Some(Box::new(many));
        }
    }

    /// Forgets all edges to `key`.
    pub(crate) fn remove(&mut self, key: ResourceKey) {
        if let Some(many) = &mut self.many {
            many.remove(&key);
            if is_sparse(many.len(), many.capacity()) {
                many.shrink_to(many.len() * 2);
            }
        } else if let Some(at) = self.few.iter().position(|(other, _)| *other == key) {
            self.few.swap_remove(at);
        }
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &ResourceKey> {
        self.few.iter().map(|(key, _)| key).chain(self.many.iter().flat_map(|many| many.keys()))
    }

    /// Every edge with its count.
    pub(crate) fn into_counts(self) -> impl Iterator<Item = (ResourceKey, usize)> {
        self.few.into_iter().chain(self.many.into_iter().flat_map(|many| *many))
    }
}

/// Looking at so many one by one is no slower than a table.
const FEW: usize = 8;
