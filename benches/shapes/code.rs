//! Shapes of linked code: modules with many functions, sections and references, trackers with many modules, stubs, lazy and patched
//! functions, and the lists of memory.

use std::sync::Arc;

use jittison::Jit;
use jittison::base::{ExecutorAddr, Name};
use jittison::link::{BuiltGraph, Edge, EdgeKind, GraphBuilder, NewBlock, NewSymbol};
use jittison::session::{Alias, JitDylib, ResourceTracker, SymbolFlags};

use crate::{ADDRESS, Shape, remove};

pub const SHAPES: &[(&str, Shape)] = &[
    ("module of many functions in one block: link", |jit, size| link(jit, functions(size))),
    ("module of many functions in one block: removal", |jit, size| removal(jit, functions(size))),
    ("module of many sections, a function each: link", |jit, size| link(jit, sections(size))),
    ("module of many sections, a function each: removal", |jit, size| removal(jit, sections(size))),
    ("module of many references to its own function: link", |jit, size| link(jit, references(size))),
    ("modules of one tracker: link", |jit, size| {
        let (jit, tracker) = (jit.clone(), tracker(jit));
        Box::new(move || {
            (0..size).for_each(|number| jit.link_graph(&tracker, module(number)).unwrap());
            std::mem::forget(tracker);
        })
    }),
    ("modules of one tracker: usage", |jit, size| {
        let (jit, tracker) = (jit.clone(), with_modules(jit, size));
        Box::new(move || {
            assert!(jit.usage(&tracker).total() > 0);
            std::mem::forget(tracker);
        })
    }),
    ("modules of one tracker: transfer", |jit, size| {
        let tracker = with_modules(jit, size);
        let destination = tracker.dylib().create_tracker().unwrap();
        Box::new(move || {
            tracker.transfer_to(&destination).unwrap();
            std::mem::forget(destination);
        })
    }),
    ("modules of one tracker: transfer to one that has as many", |jit, size| {
        let tracker = with_modules(jit, size);
        let destination = tracker.dylib().create_tracker().unwrap();
        (size..2 * size).for_each(|number| jit.link_graph(&destination, module(number)).unwrap());
        Box::new(move || {
            tracker.transfer_to(&destination).unwrap();
            std::mem::forget(destination);
        })
    }),
    ("modules of one tracker: removal", |jit, size| {
        let tracker = with_modules(jit, size);
        Box::new(move || remove(&tracker))
    }),
    ("modules, a tracker each: link", |jit, size| {
        let jit = jit.clone();
        let dylib = jit.session().create_dylib("shape").unwrap();
        Box::new(move || link_each(&jit, &dylib, size).into_iter().for_each(std::mem::forget))
    }),
    ("modules, a tracker each: removal", |jit, size| {
        let dylib = jit.session().create_dylib("shape").unwrap();
        let trackers = link_each(jit, &dylib, size).leak();
        Box::new(move || trackers.iter().for_each(remove))
    }),
    ("modules, a tracker each: clear of the dylib", |jit, size| {
        let dylib = jit.session().create_dylib("shape").unwrap();
        link_each(jit, &dylib, size).leak();
        Box::new(move || drop(dylib.clear().unwrap()))
    }),
    ("lazily added modules: add", |jit, size| {
        let (jit, tracker) = (jit.clone(), tracker(jit));
        Box::new(move || {
            (0..size).for_each(|number| jit.add_graph(&tracker, module(number)).unwrap());
            std::mem::forget(tracker);
        })
    }),
    ("memory map", |jit, size| {
        std::mem::forget(with_modules(jit, size));
        let jit = jit.clone();
        Box::new(move || drop(jit.memory_map()))
    }),
    ("memory statistics", |jit, size| {
        std::mem::forget(with_modules(jit, size));
        let jit = jit.clone();
        Box::new(move || _ = jit.memory_statistics())
    }),
    ("release of free memory after many removals", |jit, size| {
        remove(&with_modules(jit, size));
        let jit = jit.clone();
        Box::new(move || _ = jit.release_free())
    }),
    ("locate of an address among many modules", |jit, size| {
        let tracker = with_modules(jit, size);
        let address = jit.address_of(&tracker.dylib(), "function 0").unwrap();
        std::mem::forget(tracker);
        let jit = jit.clone();
        Box::new(move || assert!(jit.locate(&[address])[0].is_some()))
    }),
    ("stubs, created together", |jit, size| {
        let (jit, tracker) = (jit.clone(), tracker(jit));
        let names: Vec<String> = (0..size).map(|number| format!("stub {number}")).collect();
        Box::new(move || {
            let stubs: Vec<_> = names.iter().map(|name| (name.as_str(), ADDRESS)).collect();
            jit.create_stubs(&tracker, &stubs).unwrap();
            std::mem::forget(tracker);
        })
    }),
    ("stubs, created one by one", |jit, size| {
        let (jit, tracker) = (jit.clone(), tracker(jit));
        Box::new(move || {
            (0..size).for_each(|number| jit.create_stub(&tracker, &format!("stub {number}"), ADDRESS).unwrap());
            std::mem::forget(tracker);
        })
    }),
    ("stubs, redirected by name", |jit, size| {
        let (jit, tracker) = (jit.clone(), with_stubs(jit, size));
        let names: Vec<String> = (0..size).map(|number| format!("stub {number}")).collect();
        Box::new(move || {
            for name in &names {
                // SAFETY: nothing calls the stubs.
                unsafe { jit.redirect_stub(&tracker.dylib(), name, ExecutorAddr::new(16)) }.unwrap();
            }
            std::mem::forget(tracker);
        })
    }),
    ("stubs, removed", |jit, size| {
        let tracker = with_stubs(jit, size);
        Box::new(move || remove(&tracker))
    }),
    ("lazy functions, defined together", |jit, size| {
        let (jit, tracker) = (jit.clone(), tracker(jit));
        let (source, aliases) = (jit.create_dylib("source").unwrap(), lazy_aliases(size));
        Box::new(move || {
            jit.lazy_reexport(&tracker, &source, &aliases).unwrap();
            std::mem::forget(tracker);
        })
    }),
    ("lazy functions, removed", |jit, size| {
        let tracker = tracker(jit);
        jit.lazy_reexport(&tracker, &jit.create_dylib("source").unwrap(), &lazy_aliases(size)).unwrap();
        Box::new(move || remove(&tracker))
    }),
    ("patchable functions: first commit", |jit, size| patch(jit, size, 0)),
    ("patchable functions: second commit", |jit, size| patch(jit, size, 1)),
];

fn tracker(jit: &Jit) -> ResourceTracker {
    jit.session().create_dylib("shape").unwrap().create_tracker().unwrap()
}

const RETURN: [u8; 4] = [0xc3; 4];

fn link(jit: &Arc<Jit>, graph: BuiltGraph) -> Box<dyn FnOnce()> {
    let (jit, tracker) = (jit.clone(), tracker(jit));
    Box::new(move || {
        jit.link_graph(&tracker, graph).unwrap();
        std::mem::forget(tracker);
    })
}

fn removal(jit: &Arc<Jit>, graph: BuiltGraph) -> Box<dyn FnOnce()> {
    let tracker = tracker(jit);
    jit.link_graph(&tracker, graph).unwrap();
    Box::new(move || remove(&tracker))
}

fn module(number: usize) -> BuiltGraph {
    let mut graph = GraphBuilder::new("module");
    let text = graph.add_block(NewBlock::code(&RETURN[..]));
    graph.add_symbol(NewSymbol::function(&format!("function {number}"), text, 0));
    graph.finish().unwrap()
}

fn functions(size: usize) -> BuiltGraph {
    let mut graph = GraphBuilder::new("functions");
    let text = graph.add_block(NewBlock::code(vec![0xc3; 4 * size].as_slice()));
    for number in 0..size {
        graph.add_symbol(NewSymbol::function(&format!("function {number}"), text, 4 * number as u64));
    }
    graph.finish().unwrap()
}

fn sections(size: usize) -> BuiltGraph {
    let mut graph = GraphBuilder::new("sections");
    for number in 0..size {
        let text = graph.add_block(NewBlock::code(&RETURN[..]).in_section(&format!(".text.{number}")));
        graph.add_symbol(NewSymbol::function(&format!("function {number}"), text, 0));
    }
    graph.finish().unwrap()
}

fn references(size: usize) -> BuiltGraph {
    let mut graph = GraphBuilder::new("references");
    let text = graph.add_block(NewBlock::code(&RETURN[..]));
    let function = graph.add_symbol(NewSymbol::function("function", text, 0));
    let data = graph.add_block(NewBlock::data(vec![0; 8 * size].as_slice()).retained());
    let edge = |number| Edge { offset: 8 * number as u32, kind: EdgeKind::Pointer64, symbol: function, addend: 0 };
    graph.set_edges(data, &(0..size).map(edge).collect::<Vec<_>>());
    graph.finish().unwrap()
}

fn with_modules(jit: &Jit, size: usize) -> ResourceTracker {
    let tracker = tracker(jit);
    (0..size).for_each(|number| jit.link_graph(&tracker, module(number)).unwrap());
    tracker
}

fn link_each(jit: &Jit, dylib: &JitDylib, size: usize) -> Vec<ResourceTracker> {
    let link = |number| {
        let tracker = dylib.create_tracker().unwrap();
        jit.link_graph(&tracker, module(number)).unwrap();
        tracker
    };
    (0..size).map(link).collect()
}

fn with_stubs(jit: &Jit, size: usize) -> ResourceTracker {
    let tracker = tracker(jit);
    let names: Vec<String> = (0..size).map(|number| format!("stub {number}")).collect();
    jit.create_stubs(&tracker, &names.iter().map(|name| (name.as_str(), ADDRESS)).collect::<Vec<_>>()).unwrap();
    tracker
}

fn lazy_aliases(size: usize) -> Vec<Alias> {
    let alias = |number| Alias {
        name: Name::new(&format!("lazy {number}")),
        aliasee: Name::new("function"),
        flags: SymbolFlags::EXPORTED,
    };
    (0..size).map(alias).collect()
}

/// A commit of a version with all functions, after so many others.
fn patch(jit: &Jit, size: usize, commits: usize) -> Box<dyn FnOnce()> {
    let dylib = jit.session().create_dylib("shape").unwrap();
    let names: Vec<String> = (0..size).map(|number| format!("function {number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let patchable = jit.patchable(&dylib, &names).unwrap();
    let prepared = || {
        let mut patch = patchable.patch();
        patch.add_graph(functions(size));
        // SAFETY: the graph has no initialisers.
        unsafe { patch.link() }.unwrap()
    };
    (0..commits).for_each(|_| drop(prepared().commit().unwrap()));
    let last = prepared();
    Box::new(move || {
        drop(last.commit().unwrap());
        std::mem::forget(patchable);
    })
}
