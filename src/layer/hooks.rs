//! [`Hooks`]: the hooks of all plugins in one link. Calls them phase by phase, in the order in which the plugins were added.

use smallvec::SmallVec;

use crate::error::Result;
use crate::layer::plugin::{LinkHooks, LinkOrigin};
use crate::layer::plugins::PluginList;
use crate::link::{FixedLink, FoundExternal, LinkGraph, LinkedObject, PlacedLink};
use crate::session::ResourceKey;

pub(super) struct Hooks {
    /// The plugins, until the graph is prepared.
    plugins: Option<PluginList>,
    /// In the order of the plugins. `None`: the plugin takes no part.
    by_plugin: SmallVec<[Option<Box<dyn LinkHooks>>; 4]>,
}

impl Hooks {
    pub(super) fn begin(plugins: PluginList, origin: &LinkOrigin<'_>) -> Hooks {
        let mut by_plugin = SmallVec::new();
        plugins.iter().for_each(|plugin| by_plugin.push(plugin.begin(origin)));
        Hooks { plugins: Some(plugins), by_plugin }
    }

    pub(super) fn prepare(&mut self, origin: &LinkOrigin<'_>, graph: &mut LinkGraph) -> Result<()> {
        let plugins = self.plugins.take();
        for (plugin, hooks) in plugins.iter().flat_map(|plugins| plugins.iter()).zip(&mut self.by_plugin) {
            match hooks {
                Some(hooks) => hooks.prepare(graph)?,
                None => *hooks = plugin.join(origin, graph)?,
            }
        }
        Ok(())
    }

    pub(super) fn pruned(&mut self, graph: &mut LinkGraph) -> Result<()> {
        self.active().try_for_each(|hooks| hooks.pruned(graph))
    }

    pub(super) fn placed(&mut self, link: &PlacedLink) -> Result<()> {
        self.active().try_for_each(|hooks| hooks.placed(link))
    }

    pub(super) fn bind(&mut self, link: &PlacedLink, found: &mut [FoundExternal]) -> Result<()> {
        self.active().try_for_each(|hooks| hooks.bind(link, found))
    }

    pub(super) fn fixed_up(&mut self, link: &mut FixedLink<'_>) -> Result<()> {
        self.active().try_for_each(|hooks| hooks.fixed_up(link))
    }

    pub(super) fn record(mut self, key: ResourceKey, origin: &LinkOrigin<'_>, linked: &LinkedObject) {
        for hooks in self.by_plugin.iter_mut().filter_map(Option::take) {
            hooks.record(key, origin, linked);
        }
    }

    /// The hooks of plugins that take part.
    fn active(&mut self) -> impl Iterator<Item = &mut Box<dyn LinkHooks>> {
        self.by_plugin.iter_mut().flatten()
    }
}
