//! Versions that are plain graphs share a dylib, one after the other.

use std::collections::BTreeSet;

use jittison::link::{BuiltGraph, GraphBuilder, InitializerKind, NewBlock, NewSymbol};
use jittison::session::Visibility;

use crate::support::machine_code;
use crate::*;

/// `long name(long n) { return value; }`. `change` may add more.
fn returns(name: &str, value: u8, change: impl FnOnce(&mut GraphBuilder)) -> BuiltGraph {
    let mut graph = GraphBuilder::new("version.graph");
    let code = graph.add_block(NewBlock::code(machine_code::returns(value.into())));
    graph.add_symbol(NewSymbol::function(name, code, 0));
    change(&mut graph);
    graph.finish().unwrap()
}

fn commit_graph(kernels: &Patchable, graph: BuiltGraph) -> Committed {
    let mut patch = kernels.patch();
    patch.add_graph(graph);
    // SAFETY: the functions of these tests may run, and have the signatures with which they are called.
    unsafe { patch.link() }.and_then(PreparedPatch::commit).unwrap()
}

fn patchable(jit: &Jit, name: &str, history: usize) -> Patchable {
    jit.patchable_builder(jit.main_dylib(), &[name]).history(history).build().unwrap()
}

/// The ids of the session's dylibs.
fn dylibs(jit: &Jit) -> BTreeSet<u64> {
    jit.session().dylibs().iter().map(JitDylib::id).collect()
}

#[test]
fn many_versions_of_a_function_take_two_dylibs_which_go_with_the_function() {
    let jit = support::new_jit();
    let before = dylibs(&jit);
    let kernels = patchable(&jit, "f", 0);
    let mut seen = BTreeSet::<u64>::new();
    for value in 0..100 {
        drop(commit_graph(&kernels, returns("f", value, |_| ())));
        assert_eq!(find(&jit, "f").call(0), i64::from(value));
        seen.extend(dylibs(&jit).difference(&before));
    }
    assert_eq!(seen.len(), 2, "the current version, and the one before");
    drop(kernels.remove().unwrap());
    assert_eq!(dylibs(&jit), before);
    // A clear of the patched dylib removes them too.
    let kernels = patchable(&jit, "f", 0);
    (0..3).for_each(|value| drop(commit_graph(&kernels, returns("f", value, |_| ()))));
    jit.main_dylib().clear().unwrap();
    assert_eq!(dylibs(&jit), before);
}

#[test]
fn a_version_that_is_in_use_gives_its_dylib_away_and_keeps_its_code() {
    let jit = support::new_jit();
    let kernels = patchable(&jit, "f", 0);
    drop(commit_graph(&kernels, returns("f", 0, |_| ())));
    let held = support::held(&jit);
    let (before, inside) = (dylibs(&jit).len(), jit.session().enter_call());
    let committed: Vec<_> = (1..50).map(|value| commit_graph(&kernels, returns("f", value, |_| ()))).collect();
    assert!(committed.iter().flat_map(|committed| &committed.retired).all(|removal| !removal.is_complete()));
    assert_eq!(kernels.versions().len(), 50);
    assert_eq!(dylibs(&jit).len(), before + 1);
    assert_eq!(find(&jit, "f").call(0), 49);
    drop(inside);
    assert!(committed.iter().flat_map(|committed| &committed.retired).all(|removal| removal.is_complete()));
    assert_eq!(support::held(&jit), held);
}

#[test]
fn a_rollback_finds_each_version_in_its_own_dylib() {
    let jit = support::new_jit();
    let kernels = patchable(&jit, "f", 3);
    (0..20).for_each(|value| drop(commit_graph(&kernels, returns("f", value, |_| ()))));
    for value in (16..19).rev() {
        drop(kernels.rollback().unwrap());
        assert_eq!(find(&jit, "f").call(0), value);
    }
    (30..50).for_each(|value| drop(commit_graph(&kernels, returns("f", value, |_| ()))));
    assert_eq!(find(&jit, "f").call(0), 49);
}

#[test]
fn a_spare_dylib_that_was_removed_or_filled_by_others_is_not_in_the_way() {
    let jit = support::new_jit();
    let before = dylibs(&jit);
    let kernels = patchable(&jit, "f", 0);
    let others =
        || jit.session().dylibs().into_iter().filter(|dylib| !before.contains(&dylib.id())).collect::<Vec<_>>();
    (0..2).for_each(|value| drop(commit_graph(&kernels, returns("f", value, |_| ()))));
    let spare = others().into_iter().find(|dylib| dylib.symbol_count() == 0).unwrap();
    jit.session().remove_dylib(&spare).unwrap();
    drop(commit_graph(&kernels, returns("f", 2, |_| ())));
    // The version that is replaced next has a definition of others beside it, so its dylib is removed.
    let current = others().into_iter().find(|dylib| dylib.symbol_flags("f").is_some()).unwrap();
    jit.link_graph(&current.default_tracker().unwrap(), returns("g", 7, |_| ())).unwrap();
    drop(commit_graph(&kernels, returns("f", 3, |_| ())));
    drop(commit_graph(&kernels, returns("f", 4, |_| ())));
    assert!(current.is_defunct());
    assert_eq!(find(&jit, "f").call(0), 4);
}

#[test]
fn each_version_gets_the_link_order_that_the_patched_dylib_has_at_that_time() {
    let jit = support::new_jit();
    let libraries = [0, 1, 2].map(|number| jit.create_dylib(&format!("library {number}")).unwrap());
    let (before, main) = (dylibs(&jit), jit.main_dylib());
    let kernels = patchable(&jit, "f", 0);
    let commit = || drop(commit_graph(&kernels, returns("f", 1, |_| ())));
    let versions = || jit.session().dylibs().into_iter().filter(|dylib| !before.contains(&dylib.id()));
    let assert_order = || {
        let current = versions().find(|dylib| dylib.symbol_flags("f").is_some()).unwrap();
        assert_eq!(current.link_order(), main.search_order());
    };
    for library in libraries {
        // Each order serves for three versions, so both dylibs get it.
        for _ in 0..3 {
            commit();
            assert_order();
        }
        main.add_to_link_order(&[(library, Visibility::ExportedOnly)]).unwrap();
    }
    // Other code may change the order of a spare, too.
    versions().for_each(|dylib| dylib.set_link_order(&[]).unwrap());
    (0..2).for_each(|_| commit());
    assert_order();
}

#[test]
fn versions_that_leave_more_under_their_dylib_have_dylibs_of_their_own() {
    let jit = support::new_jit();
    let with_bounds = |graph: &mut GraphBuilder| {
        let block = NewBlock::constants(vec![1; 8]).in_section("entries").retained();
        graph.add_block(block);
    };
    let with_initializer = |graph: &mut GraphBuilder| {
        let code = graph.add_block(NewBlock::code(machine_code::ret()));
        let function = graph.add_symbol(NewSymbol::local("init", code, 0));
        graph.add_initializers(InitializerKind::Init, 65_535, &[function]);
    };
    for change in [&with_bounds as &dyn Fn(&mut GraphBuilder), &with_initializer] {
        let kernels = patchable(&jit, "f", 0);
        let (before, mut seen) = (dylibs(&jit), BTreeSet::<u64>::new());
        for value in 0..10 {
            drop(commit_graph(&kernels, returns("f", value, change)));
            seen.extend(dylibs(&jit).difference(&before));
        }
        assert_eq!(seen.len(), 10);
        drop(kernels.remove().unwrap());
        assert_eq!(dylibs(&jit), before);
    }
}

#[test]
fn few_spare_dylibs_are_kept_however_many_functions_were_replaced() {
    let jit = support::new_jit();
    let (before, count) = (dylibs(&jit).len(), 60);
    let names: Vec<_> = (0..count).map(|number| format!("f{number}")).collect();
    let sets: Vec<_> = names.iter().map(|name| patchable(&jit, name, 0)).collect();
    for value in 0..3 {
        for (name, set) in names.iter().zip(&sets) {
            drop(commit_graph(set, returns(name, value, |_| ())));
        }
    }
    let spares = dylibs(&jit).len() - before - count;
    assert!((1..=16).contains(&spares), "{spares}");
}
