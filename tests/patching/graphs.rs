//! Versions that a code generator hands over as graphs.

use jittison::base::SegmentKind;
use jittison::link::{BuiltGraph, GraphBuilder, NewBlock, NewSymbol};
use jittison::{ErrorKind, PreparedPatch};

use crate::support::machine_code;
use crate::support::*;
use crate::*;

/// `long counter = start; long bump(long n) { return counter += times * n; }`, with as many bytes of variable as `size` says.
fn bump(times: usize, start: i64, size: usize) -> BuiltGraph {
    let mut graph = GraphBuilder::new("bump.graph");
    let mut value = start.to_le_bytes().to_vec();
    value.resize(size, 0);
    let variable = graph.add_block(NewBlock::new(".data", SegmentKind::Data, value).with_align(8));
    let counter = graph.add_symbol(NewSymbol::new("counter", variable, 0).with_size(size as u64));
    let add = machine_code::add_to(counter, times);
    let code = graph.add_block(NewBlock::code(add.bytes));
    graph.set_edges(code, &add.edges);
    graph.add_symbol(NewSymbol::function("bump", code, 0));
    graph.finish().unwrap()
}

fn link_graph(kernels: &Patchable, graph: BuiltGraph) -> Result<PreparedPatch, Error> {
    let mut patch = kernels.patch();
    patch.add_graph(graph).require("bump");
    // SAFETY: the function has the signature of the tests, and nothing has initialisers.
    unsafe { patch.link() }
}

fn commit_graph(kernels: &Patchable, graph: BuiltGraph) -> Committed {
    link_graph(kernels, graph).and_then(PreparedPatch::commit).unwrap()
}

#[test]
fn callers_follow_versions_that_are_graphs_and_variables_keep_their_values() {
    own_process!();
    let jit = new_jit();
    let kernels = jit.patchable_builder(jit.main_dylib(), &["bump"]).history(0).build().unwrap();
    drop(commit_graph(&kernels, bump(1, 100, 8)));
    let function = find(&jit, "bump");
    assert_eq!((function.call(1), function.call(1)), (101, 102));
    drop(commit_graph(&kernels, bump(3, 7, 8)));
    assert_eq!(function.call(10), 132, "the variable is that of the first version");
    drop(function);
    assert!(jit.main_dylib().clear().unwrap().is_empty());
    assert_eq!(held(&jit), (0, 0, 0));
}

#[test]
fn a_graph_shares_the_variables_of_an_object_and_the_reverse() {
    own_process!();
    let Some(object) = c("long counter = 50; long bump(long n) { return counter -= n; }") else { return };
    let jit = new_jit();
    let kernels = jit.patchable(jit.main_dylib(), &["bump"]).unwrap();
    drop(commit(&kernels, &object));
    let function = find(&jit, "bump");
    assert_eq!(function.call(1), 49);
    drop(commit_graph(&kernels, bump(2, 7, 8)));
    assert_eq!(function.call(1), 51);
    drop(commit(&kernels, &object));
    assert_eq!(function.call(1), 50);
}

/// As `bump`, but its code finds the variable by a section anchor, as gcc's does on AArch64.
fn anchored_bump(goes_by_got_too: bool) -> BuiltGraph {
    let mut graph = GraphBuilder::new("anchored.graph");
    let variable = graph.add_block(NewBlock::new(".data", SegmentKind::Data, vec![0; 8]).with_align(8));
    let counter = graph.add_symbol(NewSymbol::new("counter", variable, 0).with_size(8));
    let anchor = graph.add_symbol(NewSymbol::local(".LANCHOR0", variable, 0));
    let add = machine_code::add_to(anchor, 1);
    let code = graph.add_block(NewBlock::code(add.bytes));
    graph.set_edges(code, &add.edges);
    graph.add_symbol(NewSymbol::function("bump", code, 0));
    if goes_by_got_too {
        let load = machine_code::load_by_got(counter);
        let code = graph.add_block(NewBlock::code(load.bytes));
        graph.set_edges(code, &load.edges);
    }
    graph.finish().unwrap()
}

#[test]
fn code_that_finds_a_kept_variable_by_a_section_anchor_is_refused() {
    own_process!();
    let jit = new_jit();
    let kernels = jit.patchable_builder(jit.main_dylib(), &["bump"]).history(0).build().unwrap();
    drop(commit_graph(&kernels, anchored_bump(false)));
    let function = find(&jit, "bump");
    assert_eq!(function.call(1), 1);
    let error = link_graph(&kernels, anchored_bump(false)).err().unwrap().to_string();
    assert!(error.contains("section anchors") && error.contains("-fno-section-anchors"), "{error}");
    assert!(error.contains("counter") && error.contains(".data"), "{error}");
    assert_eq!(function.call(1), 2, "callers stay");
    // Code that goes by the GOT expects that another object may define the variable: it never uses the anchor for it.
    drop(commit_graph(&kernels, anchored_bump(true)));
    drop(function);
    assert!(jit.main_dylib().clear().unwrap().is_empty());
    assert_eq!(held(&jit), (0, 0, 0));
}

#[test]
fn a_graph_whose_variable_has_grown_is_refused_and_leaves_nothing() {
    own_process!();
    let jit = new_jit();
    let kernels = jit.patchable(jit.main_dylib(), &["bump"]).unwrap();
    drop(commit_graph(&kernels, bump(1, 0, 8)));
    let before = state_of(&jit);
    let error = link_graph(&kernels, bump(1, 0, 16)).unwrap_err();
    let root = error.root_cause().kind();
    assert!(matches!(root, ErrorKind::VariableChanged { wanted: 16, found: 8, .. }), "{error}");
    assert!(error.to_string().contains("bump.graph"), "{error}");
    assert_eq!(state_of(&jit), before);
}

/// A function, and variables of one block without sizes, at these offsets.
fn unsized_variables(variables: &[(&str, u64)], block: usize) -> BuiltGraph {
    let mut graph = GraphBuilder::new("unsized.graph");
    let code = graph.add_block(NewBlock::code(machine_code::ret()));
    graph.add_symbol(NewSymbol::function("bump", code, 0));
    let data = graph.add_block(NewBlock::data(vec![0; block]));
    for (name, offset) in variables {
        graph.add_symbol(NewSymbol::new(name, data, *offset));
    }
    graph.finish().unwrap()
}

/// Symptom: the larger variable took the memory of the smaller one, and of what was behind that.
#[test]
fn a_variable_without_a_size_that_has_grown_is_refused_too() {
    own_process!();
    let jit = new_jit();
    let kernels = jit.patchable(jit.main_dylib(), &["bump"]).unwrap();
    drop(commit_graph(&kernels, unsized_variables(&[("first", 0), ("second", 8)], 24)));
    let wanted_of = |graph| match link_graph(&kernels, graph).map(drop).unwrap_err().root_cause().kind() {
        ErrorKind::VariableChanged { symbol, wanted, found, .. } => (symbol.clone(), *wanted, *found),
        other => panic!("{other:?}"),
    };
    assert_eq!(wanted_of(unsized_variables(&[("first", 0)], 12)), ("first".to_string(), 12, 8));
    assert_eq!(wanted_of(unsized_variables(&[("first", 0), ("second", 4)], 24)), ("second".to_string(), 20, 16));
    drop(commit_graph(&kernels, unsized_variables(&[("second", 0), ("third", 16), ("first", 20)], 24)));
}

#[test]
fn a_graph_that_lacks_a_required_function_is_refused() {
    own_process!();
    let jit = new_jit();
    let kernels = jit.patchable(jit.main_dylib(), &["bump", "other"]).unwrap();
    let before = state_of(&jit);
    let mut patch = kernels.patch();
    patch.add_graph(bump(1, 0, 8)).require("other");
    // SAFETY: nothing has initialisers.
    let error = unsafe { patch.link() }.unwrap_err();
    assert!(error.to_string().contains("other"), "{error}");
    assert_eq!(state_of(&jit), before);
}
