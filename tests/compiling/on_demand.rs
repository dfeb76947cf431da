//! Functions that are compiled at their first call, or ahead of it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use jittison::base::Name;
use jittison::layer::ObjectLinkingLayer;
use jittison::session::{MaterializationResponsibility, MaterializationUnit, SymbolFlags, SymbolState};
use jittison::{CompileOnDemandLayer, CompiledFunction, ErrorKind, ResourceKey, ResourceManager, ResourceTracker};

use crate::support::*;
use crate::*;

/// A compiler: `n7` returns 7, `next_f` returns one more than `f`. Names with `bad` fail. It logs the functions.
fn compile(log: &Log, request: &CompileRequest<'_>) -> Result<CompiledFunction, Error> {
    log.push(request.function);
    let name = request.function;
    if name.contains("bad") {
        return Err(Error::other(format!("no source of {name}")));
    }
    match name.strip_prefix("next_") {
        Some(callee) => Ok(CompiledFunction::new(one_more(request, callee)?).with_callees([callee])),
        None => Ok(number(request, name[1..].parse().unwrap())?.into()),
    }
}

fn layer_of(jit: &Jit) -> (CompileOnDemandLayer, ResourceTracker, Log) {
    let log = Log::default();
    let compiled = log.clone();
    let layer = jit.compile_on_demand(move |request: &CompileRequest<'_>| compile(&compiled, request));
    (layer, jit.main_dylib().create_tracker().unwrap(), log)
}

#[test]
fn each_function_of_a_module_is_compiled_once_and_at_its_first_call() {
    let (jit, ..) = session(Jit::builder());
    let (layer, tracker, log) = layer_of(&jit);
    layer.add(&tracker, &["n1", "n2", "n3"]).unwrap();
    let two = function::<Number>(&jit, "n2");
    assert!(log.take().is_empty(), "a lookup of the name compiles nothing");
    assert_eq!((two.call(), two.call()), (2, 2));
    assert_eq!(log.take(), ["n2"]);
    assert_eq!(call(&jit, "n1"), 1);
    assert_eq!(log.take(), ["n1"]);
    assert_eq!(jit.main_dylib().symbol_state("n3$body"), Some(SymbolState::NeverSearched));
    drop(two);
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(state(&jit, jit.main_dylib()), (0, (0, 0, 0)));
}

/// Symptom: `add` returned an error, and the functions were defined.
#[test]
fn functions_are_added_even_if_a_manager_panics_and_its_panic_is_reported() {
    struct Panics;
    impl ResourceManager for Panics {
        fn remove_resources(&self, _: &JitDylib, _: ResourceKey) -> Result<(), Error> {
            Ok(())
        }
        fn transfer_resources(&self, _: &JitDylib, _: ResourceKey, _: ResourceKey) {
            panic!("the manager panics");
        }
    }
    let (jit, reported, _) = session(Jit::builder());
    let (layer, tracker, _) = layer_of(&jit);
    jit.session().register_manager(Arc::new(Panics));
    layer.add(&tracker, &["n1"]).unwrap();
    assert!(matches!(&reported.take()[..], [error] if error.contains("the manager panics")));
    assert_eq!(call(&jit, "n1"), 1);
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(state(&jit, jit.main_dylib()), (0, (0, 0, 0)));
}

#[test]
fn first_calls_at_the_same_time_compile_once() {
    for _ in 0..40 {
        let (jit, ..) = session(Jit::builder());
        let (layer, tracker, log) = layer_of(&jit);
        layer.add(&tracker, &["n4", "next_n4"]).unwrap();
        let next = function::<Number>(&jit, "next_n4");
        let start = Barrier::new(3);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let next = next.clone();
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    assert_eq!(next.call(), 5);
                });
            }
        });
        assert_eq!(log.sorted(), ["n4", "next_n4"]);
    }
}

#[test]
fn two_functions_are_compiled_at_the_same_time() {
    for workers in [0, 2] {
        let (jit, ..) = session(Jit::builder().worker_threads(workers));
        // Passes only if two compilations meet.
        let meeting = Arc::new(Barrier::new(2));
        let layer = jit.compile_on_demand(move |request: &CompileRequest<'_>| {
            meeting.wait();
            number(request, 1).map(CompiledFunction::from)
        });
        layer.add(&jit.main_dylib().default_tracker().unwrap(), &["a", "b"]).unwrap();
        std::thread::scope(|scope| {
            for name in ["a", "b"] {
                let jit = &jit;
                scope.spawn(move || assert_eq!(call(jit, name), 1));
            }
        });
    }
}

#[test]
fn the_error_of_a_compiler_reaches_the_handler_of_each_call() {
    let (jit, reported, failed) = session(Jit::builder());
    let (layer, tracker, log) = layer_of(&jit);
    layer.add(&tracker, &["bad1", "n1"]).unwrap();
    let bad = function::<Number>(&jit, "bad1");
    assert_eq!((bad.call(), bad.call()), (-1, -1));
    assert_eq!(failed.take(), ["bad1: no source of bad1", "bad1: no source of bad1"]);
    assert_eq!((log.take(), reported.take()), (vec!["bad1".to_string()], vec![]));
    assert_eq!(call(&jit, "n1"), 1);
    drop(bad);
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(state(&jit, jit.main_dylib()), (0, (0, 0, 0)));
}

#[test]
fn a_compiler_that_panics_or_omits_the_function_fails_the_call() {
    let (jit, _, failed) = session(Jit::builder());
    let layer = jit.compile_on_demand(|request: &CompileRequest<'_>| {
        assert!(request.function != "panics", "out of registers");
        let mut other = *request;
        other.symbol = "another";
        number(&other, 1).map(CompiledFunction::from)
    });
    layer.add(&jit.main_dylib().default_tracker().unwrap(), &["panics", "omits"]).unwrap();
    assert_eq!((call(&jit, "panics"), call(&jit, "omits")), (-1, -1));
    let failed = failed.take();
    assert!(failed[0].contains("`panics`") && failed[0].contains("out of registers"), "{failed:?}");
    assert!(failed[1].contains("does not define") && failed[1].contains("omits$body"), "{failed:?}");
}

#[test]
fn speculation_compiles_a_function_and_the_callees_that_the_compiler_names() {
    for workers in [0, 2] {
        let (jit, reported, _) = session(Jit::builder().worker_threads(workers));
        let (layer, tracker, log) = layer_of(&jit);
        layer.add(&tracker, &["n1", "next_n1", "next_next_n1", "n2"]).unwrap();
        layer.speculate(jit.main_dylib(), "next_next_n1").unwrap();
        let is_ready = |name: &str| jit.main_dylib().symbol_state(&format!("{name}$body")) == Some(SymbolState::Ready);
        wait_until(|| ["n1", "next_n1", "next_next_n1"].iter().all(|name| is_ready(name)));
        assert_eq!(call(&jit, "next_next_n1"), 3);
        layer.speculate(jit.main_dylib(), "n1").unwrap();
        assert_eq!(log.sorted(), ["n1", "next_n1", "next_next_n1"]);
        assert!(reported.take().is_empty());
        let unknown = layer.speculate(jit.main_dylib(), "n9").unwrap_err();
        assert!(matches!(unknown.kind(), ErrorKind::SymbolsNotFound { .. }), "{unknown}");
    }
}

#[test]
fn an_error_ahead_of_a_call_is_reported_and_reaches_later_calls() {
    let (jit, reported, failed) = session(Jit::builder());
    let (layer, tracker, log) = layer_of(&jit);
    layer.add(&tracker, &["bad2"]).unwrap();
    layer.speculate(jit.main_dylib(), "bad2").unwrap();
    wait_until(|| jit.main_dylib().symbol_state("bad2$body").is_none());
    wait_until(|| !reported.sorted().is_empty());
    assert_says(&Error::other(reported.take().concat()), &["bad2$body", "no source of bad2"]);
    assert_says(&layer.speculate(jit.main_dylib(), "bad2").unwrap_err(), &["no source of bad2"]);
    assert_eq!(call(&jit, "bad2"), -1);
    assert_eq!((failed.take(), log.take()), (vec!["bad2: no source of bad2".to_string()], vec!["bad2".to_string()]));
}

#[test]
fn a_removal_takes_back_what_was_compiled_and_what_was_not() {
    let (jit, ..) = session(Jit::builder());
    let (layer, tracker, log) = layer_of(&jit);
    layer.add(&tracker, &["n1", "next_n1", "n2"]).unwrap();
    assert_eq!(call(&jit, "next_n1"), 2);
    assert!(jit.usage(&tracker).code > 0);
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(state(&jit, jit.main_dylib()), (0, (0, 0, 0)));
    let again = jit.main_dylib().create_tracker().unwrap();
    layer.add(&again, &["n1", "n2"]).unwrap();
    assert_eq!((call(&jit, "n2"), call(&jit, "n1")), (2, 1));
    wait_until(|| log.sorted().len() == 4);
}

#[test]
fn a_removal_during_a_compilation_fails_the_call_and_leaves_nothing() {
    let (jit, _, failed) = session(Jit::builder());
    let tracker = jit.main_dylib().create_tracker().unwrap();
    let to_remove = tracker.clone();
    let layer = jit.compile_on_demand(move |request: &CompileRequest<'_>| {
        // Not complete, because the handle of the caller pins the tracker.
        assert!(!to_remove.remove().unwrap().is_complete());
        number(request, 1).map(CompiledFunction::from)
    });
    layer.add(&tracker, &["f"]).unwrap();
    let function = function::<Number>(&jit, "f");
    assert_eq!(function.call(), -1);
    let failed = failed.take();
    assert!(failed.len() == 1 && failed[0].contains("remove"), "{failed:?}");
    drop(function);
    assert_eq!(state(&jit, jit.main_dylib()), (0, (0, 0, 0)));
}

#[test]
fn a_refused_addition_defines_nothing() {
    let (jit, ..) = session(Jit::builder());
    let (layer, tracker, _) = layer_of(&jit);
    layer.add(&tracker, &["n1"]).unwrap();
    let before = state(&jit, jit.main_dylib());
    for names in [&["n2", "n1"][..], &["n3", "n4", "n1"]] {
        assert!(layer.add(&tracker, names).is_err());
        assert_eq!(state(&jit, jit.main_dylib()), before);
    }
    let removed = jit.main_dylib().create_tracker().unwrap();
    removed.remove().unwrap();
    assert!(matches!(layer.add(&removed, &["n4"]).unwrap_err().kind(), ErrorKind::TrackerDefunct { .. }));
    assert_eq!(state(&jit, jit.main_dylib()), before);
    assert_eq!(call(&jit, "n1"), 1);
}

#[test]
fn the_session_ends_while_functions_are_compiled_ahead() {
    for round in 0..20 {
        let (jit, ..) = session(Jit::builder().worker_threads(round % 3));
        let count = Arc::new(AtomicUsize::new(0));
        let (counted, names) = (count.clone(), (0..8).map(|i| format!("n{i}")).collect::<Vec<_>>());
        let layer = jit.compile_on_demand(move |request: &CompileRequest<'_>| {
            counted.fetch_add(1, Ordering::Relaxed);
            number(request, 1).map(CompiledFunction::from)
        });
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        layer.add(&jit.main_dylib().default_tracker().unwrap(), &names).unwrap();
        names.iter().for_each(|name| layer.speculate(jit.main_dylib(), name).unwrap());
        let watch = jit.clone();
        watch.session().end().unwrap();
        drop((layer, jit));
        wait_until(|| held(&watch) == (0, 0, 0));
        assert!(count.load(Ordering::Relaxed) <= 8);
    }
}

#[test]
fn what_a_graph_defines_beyond_its_function_goes_with_it() {
    let (jit, ..) = session(Jit::builder());
    let has_table = Arc::new(AtomicBool::new(false));
    let seen = has_table.clone();
    let layer = jit.compile_on_demand(move |request: &CompileRequest<'_>| {
        seen.store(true, Ordering::Relaxed);
        let mut graph = GraphBuilder::new(request.function);
        let table = graph.add_block(NewBlock::constants(&77u64.to_le_bytes()[..]));
        let table = graph.add_symbol(NewSymbol::new("table", table, 0).with_size(8));
        let load = machine_code::load(table);
        let code = graph.add_block(NewBlock::code(load.bytes));
        graph.add_symbol(NewSymbol::function(request.symbol, code, 0));
        graph.set_edges(code, &load.edges);
        graph.finish().map(CompiledFunction::from)
    });
    let tracker = jit.main_dylib().create_tracker().unwrap();
    layer.add(&tracker, &["first"]).unwrap();
    assert_eq!(call(&jit, "first"), 77);
    assert!(has_table.load(Ordering::Relaxed) && jit.main_dylib().symbol_flags("table").is_some());
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(state(&jit, jit.main_dylib()), (0, (0, 0, 0)));
}

/// A unit whose symbol `variable` was declared with these flags, and that emits a graph with a (thread-local) variable.
struct Declared(Arc<ObjectLinkingLayer>, [(Name, SymbolFlags); 1], bool);

impl MaterializationUnit for Declared {
    fn name(&self) -> &str {
        "declared"
    }

    fn symbols(&self) -> &[(Name, SymbolFlags)] {
        &self.1
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        let mut graph = GraphBuilder::new("variable");
        let content = [1, 0, 0, 0, 0, 0, 0, 0];
        let block = if self.2 { NewBlock::thread_local(&content[..]) } else { NewBlock::data(&content[..]) };
        let block = graph.add_block(block);
        graph.add_symbol(NewSymbol::new("variable", block, 0));
        self.0.emit_graph(responsibility, graph.finish().unwrap());
    }
}

/// Symptom: `address_of` returned the address of something else.
#[test]
fn a_graph_has_the_thread_local_variables_that_its_unit_declared() {
    let (jit, ..) = session(Jit::builder());
    for (is_declared, is_defined) in [(true, true), (false, false), (true, false), (false, true)] {
        let tracker = jit.main_dylib().create_tracker().unwrap();
        let flag = if is_declared { SymbolFlags::THREAD_LOCAL } else { SymbolFlags::NONE };
        let symbols = [(Name::new("variable"), SymbolFlags::EXPORTED | flag)];
        tracker.define(Declared(jit.layer().clone(), symbols, is_defined)).unwrap();
        let found = jit.address_of(jit.main_dylib(), "variable");
        match is_declared == is_defined {
            // SAFETY: the address is that of the variable, in this thread, whose tracker is live.
            true => assert_eq!(unsafe { *(found.unwrap().value() as *const u64) }, 1),
            false => {
                let error = found.unwrap_err();
                assert!(matches!(error.root_cause().kind(), ErrorKind::InterfaceMismatch { .. }), "{error}");
            }
        }
        assert!(tracker.remove().unwrap().is_complete());
    }
}
