//! [`Hooks`]: the hooks of all plugins in one link. Calls them phase by phase, in the order in which the plugins were added.
//!
//! After each hook that has changed the graph, the graph is checked. So an error names the plugin that broke it.

use smallvec::SmallVec;

use crate::error::{Error, ErrorKind, LinkFault, Result};
use crate::layer::plugin::{LinkHooks, LinkOrigin, LinkPlugin};
use crate::layer::plugins::PluginList;
use crate::link::{FixedLink, FoundExternal, LinkGraph, LinkedObject, PlacedLink, Promise, Unpromised, check_changes};
use crate::session::ResourceKey;
use crate::sync::Arc;

pub(super) struct Hooks {
    /// The plugins, until memory is allocated.
    plugins: Option<PluginList>,
    /// In the order of the plugins. `None`: the plugin takes no part.
    by_plugin: SmallVec<[Option<Box<dyn LinkHooks>>; 4]>,
}

/// The definitions that the unit of a link has promised.
type Promises<'a> = dyn Fn() -> Vec<Promise> + 'a;

impl Hooks {
    pub(super) fn begin(plugins: PluginList, origin: &LinkOrigin<'_>) -> Hooks {
        let mut by_plugin = SmallVec::new();
        plugins.iter().for_each(|plugin| by_plugin.push(plugin.begin(origin)));
        Hooks { plugins: Some(plugins), by_plugin }
    }

    pub(super) fn prepare(
        &mut self,
        origin: &LinkOrigin<'_>,
        graph: &mut LinkGraph,
        promises: &Promises<'_>,
    ) -> Result<()> {
        for (plugin, hooks) in self.plugins.as_deref().unwrap_or_default().iter().zip(&mut self.by_plugin) {
            let (outcome, hook) = match hooks {
                Some(hooks) => (hooks.prepare(graph), "prepare"),
                None => (plugin.join(origin, graph).map(|joined| *hooks = joined), "join"),
            };
            if outcome.is_err() || graph.has_unchecked_changes() {
                checked(outcome, graph, promises, Unpromised::Claimed)
                    .map_err(|error| broken_by(plugin, hook, error))?;
            }
        }
        Ok(())
    }

    pub(super) fn pruned(&mut self, graph: &mut LinkGraph, promises: &Promises<'_>) -> Result<()> {
        for (plugin, hooks) in self.plugins.as_deref().unwrap_or_default().iter().zip(&mut self.by_plugin) {
            let Some(hooks) = hooks else { continue };
            let outcome = hooks.pruned(graph);
            if outcome.is_err() || graph.has_unchecked_changes() {
                checked(outcome, graph, promises, Unpromised::Refused)
                    .map_err(|error| broken_by(plugin, "pruned", error))?;
            }
        }
        Ok(())
    }

    /// The methods of [`PlacedLink`] refuse what is not valid, so nothing is checked afterwards.
    pub(super) fn placed(&mut self, link: &mut PlacedLink) -> Result<()> {
        let plugins = self.plugins.take();
        for (plugin, hooks) in plugins.as_deref().unwrap_or_default().iter().zip(&mut self.by_plugin) {
            let Some(hooks) = hooks else { continue };
            hooks.placed(link).map_err(|error| broken_by(plugin, "placed", error))?;
        }
        Ok(())
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

/// The outcome of a hook, and of the check of what it has changed.
#[cold]
fn checked(outcome: Result<()>, graph: &mut LinkGraph, promises: &Promises<'_>, unpromised: Unpromised) -> Result<()> {
    outcome?;
    check_changes(graph)?;
    graph.keep_promises(&promises(), unpromised)
}

/// Names the plugin in the error of a graph. Other errors of a hook stay as they are.
#[cold]
fn broken_by(plugin: &Arc<dyn LinkPlugin>, hook: &'static str, error: Error) -> Error {
    match error.kind() {
        ErrorKind::Link { object, fault: LinkFault::InvalidGraph { block, offset, edge, problem } } => {
            let (plugin, offset) = (plugin.name().to_string(), *offset);
            let (block, edge, problem) = (block.clone(), edge.clone(), problem.clone());
            let fault = LinkFault::BrokenByPlugin { plugin, hook, block, offset, edge, problem };
            ErrorKind::Link { object: object.clone(), fault }.into()
        }
        _ => error,
    }
}
