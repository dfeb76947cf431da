//! [`emit`]: links the graph or the object of a materialisation unit that has claimed its symbols already (ORC:
//! `ObjectLinkingLayer::emit`).
//!
//! [`ObjectLinkingLayer::add_graph`](crate::layer::ObjectLinkingLayer::add_graph) claims what a graph defines. A unit that
//! makes its graph when a symbol is looked up has declared its symbols before. This file matches the graph with that claim: each
//! symbol of the responsibility is one of the graph, and what the graph defines beyond them is claimed now.

use rustc_hash::FxHashMap;

use crate::base::{Name, ShardedArc};
use crate::error::{ErrorKind, Result};
use crate::layer::claim_map::{ClaimMap, SectionClaim, SymbolNumbers};
use crate::layer::layer_inner::LayerInner;
use crate::layer::object_link::{Object, anchor_symbol, flags_of, initializer_symbol};
use crate::link::{BuiltGraph, InterfaceSymbol, ObjectBuffer, ReadLink};
use crate::session::{ClaimedSymbol, MaterializationResponsibility, SymbolFlags};
use crate::sync::Arc;

/// Links a graph for its responsibility. The outcome reaches lookups through the symbols.
pub(super) fn emit(layer: &ShardedArc<LayerInner>, responsibility: MaterializationResponsibility, graph: BuiltGraph) {
    if let Err(error) = layer.machine.check_graph(&graph) {
        return responsibility.fail(error);
    }
    let interface = graph.interface().map(|symbol| (symbol.name.clone(), symbol)).collect();
    let has_initializers = graph.has_initializers();
    emit_read(layer, responsibility, Made { name: graph.name, interface, has_initializers, read: graph.read });
}

/// As [`emit`], for an object.
pub(super) fn emit_object(
    layer: &ShardedArc<LayerInner>,
    responsibility: MaterializationResponsibility,
    name: &str,
    bytes: ObjectBuffer,
) {
    let (name, mut interface) = (Arc::<str>::from(name), Interface::default());
    let read = layer.machine.check(&name, &bytes).and_then(|()| {
        ReadLink::read_all(name.clone(), bytes, |symbol, _| drop(interface.insert(symbol.name.clone(), symbol)))
    });
    match read {
        Ok((read, has_initializers)) => {
            emit_read(layer, responsibility, Made { name, interface, has_initializers, read });
        }
        Err(error) => responsibility.fail(error),
    }
}

/// What a unit has made.
struct Made {
    name: Arc<str>,
    interface: Interface,
    has_initializers: bool,
    read: ReadLink,
}

/// The definitions that others can see.
type Interface = FxHashMap<Name, InterfaceSymbol>;

fn emit_read(layer: &ShardedArc<LayerInner>, mut responsibility: MaterializationResponsibility, made: Made) {
    match claim(layer, &mut responsibility, &made) {
        Ok(claims) => Object::claimed(made.read, claims).materialize(layer.shard(), responsibility),
        Err(error) => responsibility.fail(error),
    }
}

/// Claims what is defined and nobody has claimed for it.
fn claim(layer: &LayerInner, responsibility: &mut MaterializationResponsibility, made: &Made) -> Result<ClaimMap> {
    let Made { name, interface, has_initializers, read } = made;
    check(responsibility, interface)?;
    let promised: Vec<Name> = responsibility.symbols().iter().map(|claimed| claimed.name.clone()).collect();
    let mut added: Vec<(Name, SymbolFlags)> = interface
        .values()
        .filter(|symbol| !promised.contains(&symbol.name))
        .map(|symbol| (symbol.name.clone(), flags_of(symbol)))
        .collect();
    let sequence = responsibility.tracker().next_object_serial();
    added.extend(initializer_symbol(name, sequence, *has_initializers));
    let anchor = anchor_symbol(responsibility.dylib_handle(), name, sequence, read.has_section_parts());
    added.extend(anchor.clone());
    // A weak definition whose name is taken is left out.
    let is_complete = responsibility.define_materializing(&added)?.into_iter().all(|is_added| is_added);
    for claimed in responsibility.claimed.iter_mut() {
        let symbol = interface.get(&claimed.name);
        claimed.number = symbol.map(|symbol| symbol.index.index() as u32);
        claimed.size = symbol.map_or(0, |symbol| symbol.size);
    }
    let sections = anchor.map(|(anchor, _)| Box::new(SectionClaim { anchor, registration: None }));
    let (numbers, count) = (SymbolNumbers::InSymbolTable, responsibility.symbols().len());
    let hidden = layer.declare_hidden(&responsibility.tracker(), read.graph().hidden_weak_externals());
    Ok(ClaimMap { numbers, count, is_complete, sequence, sections, hidden })
}

/// Checks that the graph has the symbols of the responsibility, of the kind that was declared, and no COMDAT group: a group is
/// chosen when its names enter the table, which is over for the names of the responsibility.
fn check(responsibility: &MaterializationResponsibility, interface: &Interface) -> Result<()> {
    let fault = |problem, symbol: &Name| {
        let (unit, symbol) = (responsibility.unit_name().to_string(), symbol.to_string());
        Err(ErrorKind::InterfaceMismatch { unit, problem, symbol }.into())
    };
    let missing = responsibility.symbols().iter().find(|claimed| !interface.contains_key(&claimed.name));
    if let Some(missing) = missing {
        return fault("does not define", &missing.name);
    }
    // A reference to a thread-local variable is another one, so links must know what it is.
    let is_thread_local = |claimed: &ClaimedSymbol| claimed.flags.contains(SymbolFlags::THREAD_LOCAL);
    let is_other = |claimed: &&ClaimedSymbol| interface[&claimed.name].is_thread_local != is_thread_local(claimed);
    if let Some(other) = responsibility.symbols().iter().find(is_other) {
        let problem = match is_thread_local(other) {
            true => "defines as another thing than a thread-local variable",
            false => "defines as a thread-local variable",
        };
        return fault(problem, &other.name);
    }
    let member = interface.values().find(|symbol| symbol.is_comdat || symbol.leader.is_some());
    match member {
        Some(member) => fault("has a COMDAT group, which a graph for claimed symbols cannot have, with", &member.name),
        None => Ok(()),
    }
}
