//! [`PatchInput`]: an object or a graph that becomes part of a version.

use rustc_hash::FxHashSet;

use crate::error::Result;
use crate::layer::ObjectLinkingLayer;
use crate::link::{self, BuiltGraph, ObjectBuffer, ObjectVariable};
use crate::session::ResourceTracker;

/// An object or a graph that becomes part of a version.
pub(super) enum PatchInput {
    Object(String, ObjectBuffer),
    Graph(BuiltGraph),
    /// A graph without variables that others can see, by its name. It is made when the version has a tracker.
    Made(String, MakeGraph),
}

/// Makes a graph for a version with this tracker, and may record under the tracker what the graph refers to.
pub(super) type MakeGraph = Box<dyn FnOnce(&ResourceTracker) -> Result<BuiltGraph> + Send>;

impl PatchInput {
    /// The name of the object or graph.
    pub(super) fn name(&self) -> &str {
        match self {
            PatchInput::Object(name, _) | PatchInput::Made(name, _) => name,
            PatchInput::Graph(graph) => graph.name(),
        }
    }

    /// Whether a dylib that held it keeps nothing of it once its tracker is removed: it lists no initialisers, and adds to no
    /// section whose bounds can be named.
    pub(super) fn is_plain(&self) -> bool {
        matches!(self, PatchInput::Graph(graph) if !graph.has_initializers() && !graph.has_named_sections())
    }

    /// The variables that it defines and others can see.
    ///
    /// # Errors
    /// The bytes are not an object that can be linked.
    pub(super) fn variables(&self) -> Result<Vec<ObjectVariable<'_>>> {
        match self {
            PatchInput::Object(name, bytes) => link::variables(name, bytes),
            PatchInput::Graph(graph) => Ok(graph.variables()),
            PatchInput::Made(..) => Ok(Vec::new()),
        }
    }

    /// Adds it under a tracker, without the definitions in `left_out`. `is_alone` says that nothing else is added that it may
    /// refer to. Then a graph without initialisers is linked at once, which takes fewer steps than a lookup.
    ///
    /// # Errors
    /// As [`ObjectLinkingLayer::add`] or [`ObjectLinkingLayer::link`].
    pub(super) fn add_to(
        self,
        layer: &ObjectLinkingLayer,
        tracker: &ResourceTracker,
        left_out: &FxHashSet<String>,
        is_alone: bool,
    ) -> Result<()> {
        let is_left_out = |symbol: &str| left_out.contains(symbol);
        match self {
            PatchInput::Object(name, bytes) => layer.add_without(tracker, &name, bytes, is_left_out),
            PatchInput::Graph(graph) if is_alone && left_out.is_empty() && !graph.has_initializers() => {
                layer.link_graph(tracker, graph)
            }
            PatchInput::Graph(graph) => layer.add_graph_without(tracker, graph, is_left_out),
            PatchInput::Made(_, make) => layer.add_graph(tracker, make(tracker)?),
        }
    }
}
