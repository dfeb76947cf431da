//! Graphs of code generators: what is linked from blocks, symbols and edges without an object behaves as if it came from one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use jittison::base::{ExecutorAddr, SegmentKind};
use jittison::error::LinkFault;
use jittison::link::{
    BlockContent, BuiltGraph, Definition, Edge, EdgeKind, GraphBuilder, InitializerKind, NewBlock, NewSymbol,
    ObjectBuffer, SymbolIndex, SymbolScope,
};
use jittison::{Error, ErrorKind, Jit};

use crate::debug_info_size::Collector;
use crate::support::*;

/// `mov $value, %eax; ret`
fn returns(value: u32) -> Vec<u8> {
    [&[0xb8][..], &value.to_le_bytes(), &[0xc3]].concat()
}

fn edge(offset: u32, kind: EdgeKind, symbol: SymbolIndex, addend: i64) -> Edge {
    Edge { offset, kind, symbol, addend }
}

/// A function `name` that returns `value`.
fn constant(name: &str, value: u32) -> BuiltGraph {
    let mut graph = GraphBuilder::new(name);
    let text = graph.add_block(NewBlock::code(returns(value)));
    graph.add_symbol(NewSymbol::function(name, text, 0));
    graph.finish().unwrap()
}

/// A function `name` that calls `callee` and adds one: `sub $8, %rsp; call callee; inc %rax; add $8, %rsp; ret`.
fn caller(name: &str, callee: &str) -> BuiltGraph {
    let mut graph = GraphBuilder::new(name);
    let code = [0x48, 0x83, 0xec, 8, 0xe8, 0, 0, 0, 0, 0x48, 0xff, 0xc0, 0x48, 0x83, 0xc4, 8, 0xc3];
    let text = graph.add_block(NewBlock::code(&code[..]));
    let callee = graph.add_external(callee);
    graph.add_symbol(NewSymbol::function(name, text, 0).with_size(code.len() as u64));
    graph.set_edges(text, &[edge(5, EdgeKind::Branch32, callee, -4)]);
    graph.finish().unwrap()
}

fn invalid(graph: Result<BuiltGraph, Error>) -> (String, u64, String, String) {
    match graph.expect_err("the graph is refused").kind() {
        ErrorKind::Link { fault: LinkFault::InvalidGraph { block, offset, edge, problem }, object } => {
            assert_eq!(object, "g");
            (block.clone(), *offset, edge.clone(), problem.clone())
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_graph_is_linked_called_and_removed_like_an_object() {
    if !require_x86_64() {
        return;
    }
    let jit = new_jit();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    let live = jit.memory_statistics().live_bytes;
    jit.link_graph(&tracker, constant("seven", 7)).unwrap();
    assert_eq!(long(&jit, "seven"), 7);
    assert!(jit.usage(&tracker).code > 0);
    tracker.remove().unwrap();
    assert!(jit.address_of(jit.main_dylib(), "seven").is_err());
    assert_eq!(jit.memory_statistics().live_bytes, live);
    jit.link_graph(&jit.main_dylib().create_tracker().unwrap(), constant("seven", 8)).unwrap();
    assert_eq!(long(&jit, "seven"), 8, "the name is free again");
}

#[test]
fn an_added_graph_is_linked_by_the_first_lookup() {
    if !require_x86_64() {
        return;
    }
    let jit = new_jit();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    jit.add_graph(&tracker, caller("outer", "inner")).unwrap();
    jit.add_graph(&tracker, constant("inner", 41)).unwrap();
    assert_eq!(jit.usage(&tracker).code, 0);
    assert_eq!(long(&jit, "outer"), 42);
    assert!(jit.usage(&tracker).code > 0);
}

#[test]
fn graphs_and_objects_refer_to_each_other() {
    if !require_x86_64() {
        return;
    }
    let Some(object) = c("extern long from_graph(void); long from_object(void) { return from_graph() * 2; }") else {
        return;
    };
    let jit = new_jit();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    jit.add_graph(&tracker, constant("from_graph", 20)).unwrap();
    jit.add_object(&tracker, "object.o", object).unwrap();
    jit.add_graph(&tracker, caller("outer", "from_object")).unwrap();
    assert_eq!(long(&jit, "outer"), 41);
}

#[test]
fn code_that_a_graph_refers_to_stays_until_the_graph_is_removed() {
    if !require_x86_64() {
        return;
    }
    let jit = new_jit();
    let (base, user) = (jit.main_dylib().create_tracker().unwrap(), jit.main_dylib().create_tracker().unwrap());
    jit.link_graph(&base, constant("inner", 1)).unwrap();
    jit.link_graph(&user, caller("outer", "inner")).unwrap();
    let removal = base.remove().unwrap();
    assert!(!removal.is_complete());
    assert_eq!(long(&jit, "outer"), 2);
    user.remove().unwrap();
    assert!(removal.is_complete());
}

#[test]
fn every_kind_of_content_has_its_bytes_where_it_runs() {
    let jit = new_jit();
    let mut graph = GraphBuilder::new("contents");
    let mut add = |name: &str, content: BlockContent<'_>| {
        let block = graph.add_block(NewBlock::new(".rodata", SegmentKind::ReadOnly, content).with_align(64));
        graph.add_symbol(NewSymbol::new(name, block, 0).with_size(8));
    };
    add("copied", BlockContent::from(&1u64.to_le_bytes()[..]));
    add("owned", BlockContent::from(2u64.to_le_bytes().to_vec()));
    add("shared", BlockContent::shared(ObjectBuffer::from(3u64.to_le_bytes().to_vec())));
    add("written", BlockContent::written(8, |memory| memory.copy_from_slice(&4u64.to_le_bytes())));
    add("half_written", BlockContent::written(8, |memory| memory[0] = 5));
    let zero = graph.add_block(NewBlock::zeroes(1 << 16));
    graph.add_symbol(NewSymbol::new("zero", zero, 0));
    jit.link_graph(&jit.main_dylib().create_tracker().unwrap(), graph.finish().unwrap()).unwrap();
    for (name, value) in [("copied", 1), ("owned", 2), ("shared", 3), ("written", 4), ("half_written", 5), ("zero", 0)]
    {
        let address = jit.address_of(jit.main_dylib(), name).unwrap().value();
        assert_eq!(address % 16, 0);
        // Safety: the variable has eight bytes, and its tracker is not removed.
        assert_eq!(unsafe { *(address as *const u64) }, value, "{name}");
    }
}

#[test]
fn a_generator_writes_in_place_once_in_a_release_build() {
    if !require_x86_64() {
        return;
    }
    let (jit, calls) = (new_jit(), Arc::new(AtomicUsize::new(0)));
    let counter = calls.clone();
    let mut graph = GraphBuilder::new("in place");
    let text = graph.add_block(NewBlock::code(BlockContent::written(6, move |memory| {
        counter.fetch_add(1, Ordering::Relaxed);
        memory.copy_from_slice(&returns(9));
    })));
    graph.add_symbol(NewSymbol::function("nine", text, 0));
    jit.link_graph(&jit.main_dylib().create_tracker().unwrap(), graph.finish().unwrap()).unwrap();
    assert_eq!(long(&jit, "nine"), 9);
    // The verifier of debug builds asks for the bytes, too.
    assert_eq!(calls.load(Ordering::Relaxed), 1 + usize::from(cfg!(debug_assertions)));
}

#[test]
fn scopes_decide_who_sees_a_symbol() {
    if !require_x86_64() {
        return;
    }
    let jit = new_jit();
    let mut graph = GraphBuilder::new("scopes");
    let text = graph.add_block(NewBlock::code(returns(3)));
    graph.add_symbol(NewSymbol::function("exported", text, 0));
    graph.add_symbol(NewSymbol::function("hidden", text, 0).with_scope(SymbolScope::Hidden));
    graph.add_symbol(NewSymbol::function("local", text, 0).with_scope(SymbolScope::Local));
    jit.link_graph(&jit.main_dylib().create_tracker().unwrap(), graph.finish().unwrap()).unwrap();
    let other = jit.create_dylib("other").unwrap();
    other.add_to_link_order(&[(jit.main_dylib().clone(), jittison::session::Visibility::ExportedOnly)]).unwrap();
    assert_eq!(long_in(&jit, &other, "exported"), 3);
    assert!(jit.address_of(&other, "hidden").is_err());
    assert!(jit.address_of(jit.main_dylib(), "hidden").is_ok());
    assert!(jit.address_of(jit.main_dylib(), "local").is_err());
    jit.link_graph(&jit.main_dylib().create_tracker().unwrap(), caller("outer", "hidden")).unwrap();
    assert_eq!(long(&jit, "outer"), 4, "its own dylib may refer to it");
}

#[test]
fn weak_and_absolute_symbols_and_comdat_groups_mean_what_they_mean_in_objects() {
    if !require_x86_64() {
        return;
    }
    let jit = new_jit();
    let weak = |value: u32| {
        let mut graph = GraphBuilder::new("weak");
        let text = graph.add_block(NewBlock::code(returns(value)));
        graph.add_symbol(NewSymbol::function("weak", text, 0).weak());
        graph.finish().unwrap()
    };
    let (first, second) = (jit.main_dylib().create_tracker().unwrap(), jit.main_dylib().create_tracker().unwrap());
    jit.link_graph(&first, weak(1)).unwrap();
    jit.link_graph(&second, weak(2)).unwrap();
    assert_eq!(long(&jit, "weak"), 1, "the first definition counts");

    let mut graph = GraphBuilder::new("absolute");
    graph.add_symbol(NewSymbol::absolute("fixed", ExecutorAddr::new(0x1234)));
    jit.link_graph(&second, graph.finish().unwrap()).unwrap();
    assert_eq!(jit.address_of(jit.main_dylib(), "fixed").unwrap().value(), 0x1234);

    let group = |object: &str, value: u32| {
        let mut graph = GraphBuilder::new(object);
        let text = graph.add_block(NewBlock::code(returns(value)));
        let signature = graph.add_symbol(NewSymbol::function("grouped", text, 0));
        graph.set_comdat(text, signature);
        graph.finish().unwrap()
    };
    jit.link_graph(&first, group("one", 10)).unwrap();
    let before = jit.usage(&second).code;
    jit.link_graph(&second, group("two", 20)).unwrap();
    assert_eq!(long(&jit, "grouped"), 10);
    assert_eq!(jit.usage(&second).code, before, "the second group takes no memory");

    let mut graph = GraphBuilder::new("null");
    let nothing = graph.add_weak_external("no_such_symbol_anywhere");
    let block = graph.add_block(NewBlock::data(vec![1; 8]));
    graph.add_symbol(NewSymbol::new("pointer", block, 0));
    graph.set_edges(block, &[edge(0, EdgeKind::Pointer64, nothing, 0)]);
    jit.link_graph(&second, graph.finish().unwrap()).unwrap();
    let pointer = jit.address_of(jit.main_dylib(), "pointer").unwrap();
    // Safety: the variable has eight bytes.
    assert_eq!(unsafe { *(pointer.value() as *const u64) }, 0);
}

#[test]
fn a_weak_reference_of_a_graph_to_a_linker_defined_name_is_a_missing_symbol() {
    let jit = new_jit();
    let mut graph = GraphBuilder::new("end");
    let end = graph.add_weak_external("_end");
    let block = graph.add_block(NewBlock::data(vec![0; 8]));
    graph.add_symbol(NewSymbol::new("pointer", block, 0));
    graph.set_edges(block, &[edge(0, EdgeKind::Pointer64, end, 0)]);
    let tracker = jit.main_dylib().create_tracker().unwrap();
    let error = jit.link_graph(&tracker, graph.finish().unwrap()).unwrap_err();
    assert_says(&error, &["symbols not found: `_end`", "a native linker defines"]);
}

#[test]
fn a_block_that_no_visible_symbol_leads_to_takes_no_memory_unless_it_is_retained() {
    if !require_x86_64() {
        return;
    }
    let usage = |is_retained: bool| {
        let jit = new_jit();
        let mut graph = GraphBuilder::new("dead");
        let text = graph.add_block(NewBlock::code(returns(1)));
        graph.add_symbol(NewSymbol::function("live", text, 0));
        let dead = NewBlock::code(vec![0xcc; 4096]);
        let dead = graph.add_block(if is_retained { dead.retained() } else { dead });
        graph.add_symbol(NewSymbol::local("dead", dead, 0));
        let tracker = jit.main_dylib().create_tracker().unwrap();
        jit.link_graph(&tracker, graph.finish().unwrap()).unwrap();
        jit.usage(&tracker).code
    };
    assert!(usage(false) < 4096 && usage(true) > 4096);
}

#[test]
fn each_thread_has_its_own_thread_local_variable_of_a_graph() {
    if !require_x86_64() {
        return;
    }
    let jit = new_jit();
    let mut graph = GraphBuilder::new("counter");
    // push %rbx (alignment); general dynamic: data16 lea counter@tlsgd(%rip), %rdi; data16 data16 rex call __tls_get_addr;
    // incq (%rax); mov (%rax), %rax; pop %rbx; ret
    let code = [
        0x53, 0x66, 0x48, 0x8d, 0x3d, 0, 0, 0, 0, 0x66, 0x66, 0x48, 0xe8, 0, 0, 0, 0, 0x48, 0xff, 0x00, 0x48, 0x8b,
        0x00, 0x5b, 0xc3,
    ];
    let text = graph.add_block(NewBlock::code(&code[..]));
    let storage = graph.add_block(NewBlock::thread_local(100u64.to_le_bytes().to_vec()).with_align(8));
    let counter = graph.add_symbol(NewSymbol::new("counter", storage, 0));
    let get_address = graph.add_external("__tls_get_addr");
    graph.add_symbol(NewSymbol::function("next", text, 0));
    graph.set_edges(
        text,
        &[edge(5, EdgeKind::ThreadLocalPair32, counter, -4), edge(13, EdgeKind::Branch32, get_address, -4)],
    );
    jit.link_graph(&jit.main_dylib().create_tracker().unwrap(), graph.finish().unwrap()).unwrap();
    assert_eq!((long(&jit, "next"), long(&jit, "next")), (101, 102));
    std::thread::scope(|scope| scope.spawn(|| assert_eq!(long(&jit, "next"), 101)).join().unwrap());
}

#[test]
fn initialisers_of_a_graph_run_once_and_finalisers_at_removal() {
    if !require_x86_64() {
        return;
    }
    let jit = new_jit();
    let mut graph = GraphBuilder::new("initialised");
    // incq state(%rip); ret
    let text = graph.add_block(NewBlock::code(&[0x48, 0xff, 0x05, 0, 0, 0, 0, 0xc3][..]));
    let function = graph.add_symbol(NewSymbol::function("increment", text, 0));
    let data = graph.add_block(NewBlock::data(vec![0; 8]));
    let state = graph.add_symbol(NewSymbol::new("state", data, 0));
    graph.set_edges(text, &[edge(3, EdgeKind::Delta32, state, -4)]);
    graph.add_initializers(InitializerKind::Init, 65_535, &[function, function]);
    let log = Box::leak(Box::new(0u64));
    let log_at = graph.add_symbol(NewSymbol::absolute("log", ExecutorAddr::new(log as *mut u64 as u64)));
    // movabs $log, %rax; incq (%rax); ret
    let fini = graph.add_block(NewBlock::code(&[0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0x48, 0xff, 0x00, 0xc3][..]));
    graph.set_edges(fini, &[edge(2, EdgeKind::Pointer64, log_at, 0)]);
    let fini = graph.add_symbol(NewSymbol::local("fini", fini, 0));
    graph.add_initializers(InitializerKind::Fini, 65_535, &[fini]);
    let tracker = jit.main_dylib().create_tracker().unwrap();
    jit.link_graph(&tracker, graph.finish().unwrap()).unwrap();
    // Safety: the initialisers are those above.
    unsafe { jit.initialize(jit.main_dylib()).unwrap() };
    let state = jit.address_of(jit.main_dylib(), "state").unwrap();
    // Safety: the variable has eight bytes.
    assert_eq!((unsafe { *(state.value() as *const u64) }, *log), (2, 0));
    tracker.remove().unwrap();
    assert_eq!(*log, 1);
}

#[test]
fn a_panic_passes_through_functions_with_unwind_instructions() {
    if !require_x86_64() {
        return;
    }
    extern "C-unwind" fn panics() -> i64 {
        std::panic::panic_any(77i64)
    }
    let jit = new_jit();
    let mut graph = GraphBuilder::new("unwound");
    // push %rbx; movabs $panics, %rax; call *%rax; pop %rbx; ret
    let code = [0x53, 0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xd0, 0x5b, 0xc3];
    let text = graph.add_block(NewBlock::code(&code[..]));
    let host = graph.add_symbol(
        NewSymbol::absolute("host", ExecutorAddr::new(panics as *const () as u64)).with_scope(SymbolScope::Local),
    );
    let function = graph.add_symbol(NewSymbol::function("passes", text, 0));
    graph.set_edges(text, &[edge(3, EdgeKind::Pointer64, host, 0)]);
    // DW_CFA_advance_loc 1; DW_CFA_def_cfa_offset 16; DW_CFA_offset %rbx (3), 2; DW_CFA_advance_loc 13; DW_CFA_def_cfa_offset 8
    graph.add_unwind(function, code.len() as u32, &[0x41, 0x0e, 16, 0x83, 2, 0x4d, 0x0e, 8]);
    let tracker = jit.main_dylib().create_tracker().unwrap();
    jit.link_graph(&tracker, graph.finish().unwrap()).unwrap();
    // Safety: the signature of the function.
    let passes = unsafe { jit.lookup::<extern "C-unwind" fn() -> i64>("passes").unwrap() };
    let caught = std::panic::catch_unwind(|| passes.call()).expect_err("it panics");
    assert_eq!(caught.downcast_ref::<i64>(), Some(&77));
}

#[test]
fn a_wrong_graph_is_refused_with_its_block_and_edge() {
    if !require_x86_64() {
        return;
    }
    let build = |fill: &dyn Fn(&mut GraphBuilder)| {
        let mut graph = GraphBuilder::new("g");
        fill(&mut graph);
        invalid(graph.finish())
    };
    let foreign = {
        let mut other = GraphBuilder::new("other");
        let block = (0..10).map(|_| other.add_block(NewBlock::zeroes(8))).last().unwrap();
        (block, other.add_symbol(NewSymbol::new("a", block, 0)), other.add_external("b"))
    };
    let (block, offset, edge_name, problem) = build(&|graph| {
        let text = graph.add_block(NewBlock::code(returns(1)));
        let external = graph.add_external("x");
        graph.set_edges(text, &[edge(3, EdgeKind::Branch32, external, -4)]);
    });
    assert_eq!((&*block, offset, &*edge_name), (".text", 3, "R_X86_64_PLT32"));
    assert_eq!(problem, "the field ends at 0x7, and the block has 0x6 bytes");

    let problem_of = |fill: &dyn Fn(&mut GraphBuilder)| build(fill).3;
    let problems = [
        problem_of(&|graph| {
            let text = graph.add_block(NewBlock::code(returns(1)));
            graph.set_edges(text, &[edge(0, EdgeKind::Branch32, foreign.2, -4)]);
        }),
        problem_of(&|graph| graph.set_edges(foreign.0, &[])),
        problem_of(&|graph| {
            graph.add_symbol(NewSymbol::new("s", foreign.0, 0));
        }),
        problem_of(&|graph| {
            let zero = graph.add_block(NewBlock::zeroes(8));
            let symbol = graph.add_symbol(NewSymbol::new("zero", zero, 0));
            graph.set_edges(zero, &[edge(0, EdgeKind::Pointer64, symbol, 0)]);
        }),
        problem_of(&|graph| {
            graph.add_block(NewBlock::zeroes(8).with_align(3));
        }),
        problem_of(&|graph| {
            graph.add_block(NewBlock::zeroes(1 << 33));
        }),
        problem_of(&|graph| {
            let text = graph.add_block(NewBlock::code(returns(1)));
            graph.add_symbol(NewSymbol::function("late", text, 7));
        }),
        problem_of(&|graph| {
            let text = graph.add_block(NewBlock::code(returns(1)));
            graph.add_symbol(NewSymbol::function("", text, 0));
        }),
        problem_of(&|graph| {
            let text = graph.add_block(NewBlock::code(returns(1)));
            graph.add_symbol(NewSymbol::function("a\0b", text, 0));
        }),
        problem_of(&|graph| {
            let text = graph.add_block(NewBlock::code(returns(1)));
            graph.add_symbol(NewSymbol::function("twice", text, 0));
            graph.add_symbol(NewSymbol::function("twice", text, 0).weak());
        }),
        problem_of(&|graph| {
            let text = graph.add_block(NewBlock::code(returns(1)));
            let symbol = graph.add_symbol(NewSymbol::function("f", text, 0));
            graph.set_edges(text, &[edge(0, EdgeKind::Branch32, symbol, 0)]);
            graph.set_edges(text, &[edge(0, EdgeKind::Branch32, symbol, 0)]);
        }),
        problem_of(&|graph| {
            let text = graph.add_block(NewBlock::code(returns(1)));
            let local = graph.add_symbol(NewSymbol::local("l", text, 0));
            graph.set_comdat(text, local);
        }),
        problem_of(&|graph| {
            let text = graph.add_block(NewBlock::code(vec![0; 8]));
            let storage = graph.add_block(NewBlock::thread_local(vec![0; 8]));
            let variable = graph.add_symbol(NewSymbol::new("variable", storage, 0));
            graph.set_edges(text, &[edge(0, EdgeKind::Delta32, variable, 0)]);
        }),
        problem_of(&|graph| {
            let text = graph.add_block(NewBlock::code(vec![0; 8]));
            let function = graph.add_symbol(NewSymbol::function("f", text, 0));
            graph.set_edges(text, &[edge(0, EdgeKind::StaticOffset32, function, 0)]);
        }),
    ];
    let expected = [
        "symbol 2 is not in this graph",
        "block 9 is not in this graph",
        "block 9 is not in this graph",
        "the block is zero-filled, so it has no fields",
        "its alignment is 3, which is no power of two",
        "it has 8589934592 bytes, and the limit is 4 GiB",
        "symbol `late` is past the end of the block, which has 6 bytes",
        "a visible symbol has the name \"\"",
        "a visible symbol has the name \"a\\0b\"",
        "two visible symbols have the name `twice`",
        "its edges were set twice",
        "symbol 1 is the signature of a COMDAT group, and others cannot see it",
        "the symbol is a thread-local variable, which has no address of its own: use a thread-local kind of edge",
        "the symbol is no thread-local variable",
    ];
    assert_eq!(problems, expected);
}

#[test]
fn a_refused_graph_and_a_missing_symbol_leave_nothing() {
    let jit = new_jit();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    let live = jit.memory_statistics().live_bytes;
    let error = jit.link_graph(&tracker, caller("outer", "missing_callee")).unwrap_err();
    assert!(error.to_string().contains("missing_callee"), "{error}");
    jit.link_graph(&tracker, constant("taken", 1)).unwrap();
    assert!(jit.link_graph(&tracker, constant("taken", 2)).is_err(), "a duplicate definition");
    assert!(jit.address_of(jit.main_dylib(), "outer").is_err());
    tracker.remove().unwrap();
    assert_eq!(jit.memory_statistics().live_bytes, live);
    let other = Jit::new().unwrap();
    let foreign = other.main_dylib().create_tracker().unwrap();
    assert!(matches!(jit.link_graph(&foreign, constant("f", 1)).unwrap_err().kind(), ErrorKind::ForeignSession { .. }));
}

#[test]
fn a_panic_of_a_generator_in_place_fails_the_link_and_leaves_nothing() {
    if !require_x86_64() {
        return;
    }
    let jit = new_jit();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    let live = jit.memory_statistics().live_bytes;
    let mut graph = GraphBuilder::new("panics");
    let may_write = Arc::new(AtomicUsize::new(0));
    // The description of debug builds writes the block once before the link.
    let budget = may_write.clone();
    let text = graph.add_block(NewBlock::code(BlockContent::written(6, move |_| {
        assert!(budget.fetch_add(1, Ordering::Relaxed) < usize::from(cfg!(debug_assertions)), "the generator gives up");
    })));
    graph.add_symbol(NewSymbol::function("never", text, 0));
    let graph = graph.finish().unwrap();
    let link = std::panic::AssertUnwindSafe(|| jit.link_graph(&tracker, graph));
    assert!(std::panic::catch_unwind(link).is_err());
    assert!(jit.address_of(jit.main_dylib(), "never").is_err());
    assert_eq!(jit.memory_statistics().live_bytes, live);
    jit.link_graph(&tracker, constant("never", 5)).unwrap();
    assert_eq!(long(&jit, "never"), 5);
}

#[test]
fn the_definition_of_a_plugin_may_replace_an_external_of_a_graph() {
    if !require_x86_64() {
        return;
    }
    use jittison::layer::{LinkHooks, LinkOrigin, LinkPlugin};
    struct Defines;
    impl LinkPlugin for Defines {
        fn begin(&self, _: &LinkOrigin<'_>) -> Option<Box<dyn LinkHooks>> {
            Some(Box::new(Defines))
        }
    }
    impl LinkHooks for Defines {
        fn prepare(&mut self, graph: &mut jittison::link::LinkGraph) -> Result<(), Error> {
            let Some(external) = graph.find_external("callee") else { return Ok(()) };
            let block = graph.add_block("plugin", SegmentKind::Code, returns(30), 16, &[]);
            graph.define(external, Definition::Block(block, 0));
            Ok(())
        }
    }
    let jit = new_jit();
    jit.layer().add_plugin(Arc::new(Defines));
    jit.link_graph(&jit.main_dylib().create_tracker().unwrap(), caller("outer", "callee")).unwrap();
    assert_eq!(long(&jit, "outer"), 31);
}

#[test]
fn a_debugger_and_a_profiler_get_the_names_the_lines_and_the_unwind_tables_of_a_graph() {
    if !require_x86_64() {
        return;
    }
    let (jit, collector) = (new_jit(), Collector::default());
    jit.layer().add_plugin(Arc::new(collector.clone()));
    let mut graph = GraphBuilder::new("shown");
    let text = graph.add_block(NewBlock::code(returns(1)));
    let large = graph.add_block(NewBlock::code(vec![0xc3; 4096]));
    let function = graph.add_symbol(NewSymbol::function("exported", text, 0).with_size(6));
    graph.add_symbol(NewSymbol::local("inner", text, 5).with_size(1));
    graph.add_symbol(NewSymbol::function("large", large, 0).with_size(4096));
    graph.add_symbol(NewSymbol::local("", large, 8));
    graph.add_unwind(function, 6, &[]);
    graph.add_lines(text, "made.up", &[(0, 7), (5, 8)]);
    jit.link_graph(&jit.main_dylib().create_tracker().unwrap(), graph.finish().unwrap()).unwrap();
    let (file, functions) = collector.take();

    let address = |name| jit.address_of(jit.main_dylib(), name).unwrap();
    let found: Vec<_> =
        functions.iter().map(|function| (&*function.name, function.address, function.code.len())).collect();
    let exported = address("exported");
    assert_eq!(found, [("exported", exported, 6), ("inner", exported.offset(5), 1), ("large", address("large"), 4096)]);
    let own: Vec<_> = functions[0].lines.iter().map(|line| (line.address, &*line.file, line.line)).collect();
    assert_eq!(own, [(exported, "made.up", 7), (exported.offset(5), "made.up", 8)]);
    assert_eq!(functions[2].lines, [], "the lines end with their block");
    assert!(functions[0].frame.is_some() && functions[2].frame.is_none());

    let Some(mut readelf) = require("readelf") else { return };
    let dir = PrivateDir::new();
    dir.write("symbols.o", &file);
    readelf.args(["-W", "-S", "-s", "--debug-dump=frames"]).arg(dir.path("symbols.o"));
    let output = readelf.output().unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let output = String::from_utf8_lossy(&output.stdout);
    let hex = |word: &str| u64::from_str_radix(word, 16).unwrap();
    let section = output.lines().find(|line| line.contains(" .text ")).expect("a section for code");
    let base = hex(section.split(" NOBITS ").nth(1).unwrap().split_whitespace().next().unwrap());
    let symbol = |name: &str| {
        let line = output.lines().find(|line| line.ends_with(&format!(" {name}"))).expect(name);
        let words: Vec<&str> = line.split_whitespace().collect();
        (base + hex(words[1]), words[2].to_string(), words[3].to_string(), words[4].to_string())
    };
    let of = |address: ExecutorAddr, size: &str, binding: &str| {
        (address.value(), size.to_string(), "FUNC".to_string(), binding.to_string())
    };
    assert_eq!(symbol("exported"), of(exported, "6", "GLOBAL"));
    assert_eq!(symbol("inner"), of(exported.offset(5), "1", "LOCAL"));
    assert!(output.contains("FDE"), "{output}");
}

#[test]
fn a_profiler_gets_no_copy_of_zero_filled_code() {
    let (jit, collector) = (new_jit(), Collector::default());
    jit.layer().add_plugin(Arc::new(collector.clone()));
    let mut graph = GraphBuilder::new("zero");
    let zero = graph.add_block(NewBlock::new(".text", SegmentKind::Code, BlockContent::zeroes(1 << 20)));
    graph.add_symbol(NewSymbol::function("zero", zero, 0).with_size(1 << 20));
    jit.link_graph(&jit.main_dylib().create_tracker().unwrap(), graph.finish().unwrap()).unwrap();
    assert_eq!(collector.take().1, []);
}

#[test]
fn section_bounds_enclose_the_parts_of_graphs_and_objects() {
    let reader = "extern const long __start_entries[], __stop_entries[];
                  long sum(void) { long s = 0; for (const long *p = __start_entries; p < __stop_entries; p++) s += *p; return s; }";
    let part =
        "__attribute__((section(\"entries\"), used)) const long of_object = 4; long pulled(void) { return of_object; }";
    let (Some(reader), Some(object)) = (c(reader), c(part)) else { return };
    let graph = |name: &str, value: u64| {
        let mut graph = GraphBuilder::new(name);
        let content = value.to_le_bytes().to_vec();
        let block = graph.add_block(NewBlock::constants(content).in_section("entries").with_align(8));
        graph.add_symbol(NewSymbol::new(name, block, 0));
        graph.finish().unwrap()
    };
    let jit = new_jit();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    jit.add_graph(&tracker, graph("one", 1)).unwrap();
    jit.add_object(&tracker, "part.o", object).unwrap();
    jit.add_graph(&tracker, graph("two", 2)).unwrap();
    jit.add_object(&tracker, "reader.o", reader).unwrap();
    assert_eq!(long(&jit, "sum"), 7);
    assert!(jit.link_graph(&tracker, graph("late", 8)).is_err(), "the bounds are given out");
    tracker.remove().unwrap();
    let own = jit.main_dylib().create_tracker().unwrap();
    jit.link_graph(&own, graph("alone", 9)).unwrap();
}

/// Symptom: a block of `.init_array` was plain bytes, so its functions never ran, and nothing said so.
#[test]
fn a_block_in_a_section_that_would_have_no_effect_is_refused_by_name() {
    let finish = |block: NewBlock<'_>, section: &str| {
        let mut graph = GraphBuilder::new("generated");
        graph.add_block(block.in_section(section));
        graph.finish().map(drop).map_err(|error| error.to_string())
    };
    let (data, own) = (|| NewBlock::data(vec![0; 8]), || NewBlock::thread_local(vec![0; 8]));
    for section in
        [".init_array", ".init_array.100", ".fini_array", ".preinit_array", ".ctors", ".dtors", ".init", ".fini"]
    {
        for block in [data(), own()] {
            let error = finish(block, section).unwrap_err();
            assert!(error.contains(section) && error.contains("GraphBuilder::add_initializers"), "{error}");
        }
    }
    assert!(finish(data(), ".eh_frame").unwrap_err().contains("GraphBuilder::add_eh_frame"));
    assert!(finish(data(), ".tdata").unwrap_err().contains("NewBlock::thread_local"));
    assert!(
        finish(own(), ".tdata.x").is_ok() && finish(data(), ".data.x").is_ok() && finish(data(), ".initial").is_ok()
    );
}
