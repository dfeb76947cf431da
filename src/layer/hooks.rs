//! [`Hooks`]: what plugins do in one link, phase by phase, in the order in which they were added.

use smallvec::SmallVec;

use crate::error::Result;
use crate::layer::plugin::{LinkHooks, LinkOrigin};
use crate::layer::plugins::List;
use crate::link::{FixedLink, FoundExternal, LinkGraph, LinkedObject, PlacedLink};
use crate::session::ResourceKey;

pub(super) struct Hooks {
    /// Until the graph was prepared.
    plugins: Option<List>,
    /// By plugin: none, of one that takes no part.
    own: SmallVec<[Option<Box<dyn LinkHooks>>; 4]>,
}

impl Hooks {
    pub(super) fn begin(plugins: List, origin: &LinkOrigin<'_>) -> Hooks {
        let mut own = SmallVec::new();
        plugins.iter().for_each(|plugin| own.push(plugin.begin(origin)));
        Hooks { plugins: Some(plugins), own }
    }

    pub(super) fn prepare(&mut self, origin: &LinkOrigin<'_>, graph: &mut LinkGraph) -> Result<()> {
        let plugins = self.plugins.take();
        for (plugin, own) in plugins.iter().flat_map(|plugins| plugins.iter()).zip(&mut self.own) {
            match own {
                Some(own) => own.prepare(graph)?,
                None => *own = plugin.join(origin, graph)?,
            }
        }
        Ok(())
    }

    pub(super) fn pruned(&mut self, graph: &mut LinkGraph) -> Result<()> {
        self.taking_part().try_for_each(|own| own.pruned(graph))
    }

    pub(super) fn placed(&mut self, link: &PlacedLink) -> Result<()> {
        self.taking_part().try_for_each(|own| own.placed(link))
    }

    pub(super) fn bind(&mut self, link: &PlacedLink, found: &mut [FoundExternal]) -> Result<()> {
        self.taking_part().try_for_each(|own| own.bind(link, found))
    }

    pub(super) fn fixed_up(&mut self, link: &mut FixedLink<'_>) -> Result<()> {
        self.taking_part().try_for_each(|own| own.fixed_up(link))
    }

    pub(super) fn record(mut self, key: ResourceKey, origin: &LinkOrigin<'_>, linked: &LinkedObject) {
        for own in self.own.iter_mut().filter_map(Option::take) {
            own.record(key, origin, linked);
        }
    }

    fn taking_part(&mut self) -> impl Iterator<Item = &mut Box<dyn LinkHooks>> {
        self.own.iter_mut().flatten()
    }
}
