//! Plugins that break a graph. The link is refused, and the error names the plugin, the hook, the object and the place. Nothing
//! is leaked, and the session works on. No change makes the linker panic.

use std::sync::{Arc, Mutex};

use fastrand::Rng;
use jittison::base::{ExecutorAddr, SegmentKind};
use jittison::link::{BlockId, Definition, Edge, EdgeKind, LinkGraph, NewSymbol, SymbolIndex, SymbolScope};
use jittison::{Error, Jit};

use crate::changing_plugin::*;
use crate::support::*;

/// Code with an unwind record, data with a pointer, zero-fill, a thread-local variable, an unreachable section and references.
const SOURCE: &str = "
    .text
    .globl test, other, datum, pointer, zero, variable
    .weak weak
    .type test, @function
    .type weak, @function
    .type datum, @object
test:
    .cfi_startproc
    call elsewhere@PLT
    mov datum@GOTPCREL(%rip), %rcx
    add (%rcx), %rax
    ret
    .cfi_endproc
    .size test, . - test
weak: nop
    ret
    .size weak, 2
other = 0x40
    .data
datum: .quad 1
    .size datum, 8
pointer: .quad datum + 0
hidden_datum: .quad 2
    .globl hidden_datum
    .hidden hidden_datum
    .bss
zero: .zero 16
    .size zero, 16
    .section .tbss,\"awT\",@nobits
    .type variable, @object
variable: .zero 8
    .size variable, 8
    .section .text.dead,\"ax\",@progbits
dead: ret
    .section counted,\"awR\",@progbits
counted_word: .quad 1
    .section .note.GNU-stack
";

const ELSEWHERE: &str = "long elsewhere(void) { return 41; }";

/// Links the object with a change, and checks that the error names the plugin, the hook and all of `parts`, that nothing is
/// left, and that the session links the object as soon as the plugin is removed.
fn assert_refused(object: &[u8], changes: Changes, hook: &str, parts: &[&str]) {
    let jit = new_jit();
    let main = jit.main_dylib();
    let elsewhere = c(ELSEWHERE).map(|elsewhere| add(&jit, main, "elsewhere.o", &elsewhere));
    jit.address_of(main, "elsewhere").unwrap();
    let before = (held(&jit), main.symbol_count(), jit.layer().key_count());
    let plugin: Arc<dyn jittison::layer::LinkPlugin> = Arc::new(changes);
    jit.layer().add_plugin(plugin.clone());
    let tracker = add(&jit, main, "broken.o", object);
    let Err(error) = jit.address_of(main, "test") else { panic!("links in {hook}, without {parts:?}") };
    assert_says(&error, &["cannot link broken.o", "plugin `changes`", &format!("hook `{hook}`")]);
    assert_says(&error, parts);
    assert!(tracker.remove().unwrap().is_complete());
    let tracker = main.create_tracker().unwrap();
    let at_once = jit.link_object(&tracker, "broken.o", object).unwrap_err();
    assert_eq!(at_once.root_cause().to_string(), error.root_cause().to_string());
    assert_eq!((held(&jit), main.symbol_count(), jit.layer().key_count()), before, "after {error}");
    assert!(jit.layer().remove_plugin(&plugin));
    jit.link_object(&tracker, "broken.o", object).unwrap();
    assert_eq!(long(&jit, "test"), 42);
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(held(&jit), before.0);
    drop(elsewhere);
}

type Break = fn(&mut LinkGraph) -> Result<(), Error>;

/// Checks that each change is refused before and after pruning.
fn assert_all_refused(cases: &[(Break, &[&str])]) {
    let Some(object) = asm(SOURCE) else { return };
    for (change, parts) in cases {
        assert_refused(&object, in_prepare(*change), "prepare", parts);
        assert_refused(&object, in_pruned(*change), "pruned", parts);
    }
}

/// A symbol and a block that no graph of these tests has.
fn foreign() -> (SymbolIndex, BlockId) {
    static FOUND: Mutex<Option<(SymbolIndex, BlockId)>> = Mutex::new(None);
    let mut found = FOUND.lock().unwrap();
    if let Some(found) = *found {
        return found;
    }
    let mut graph = jittison::link::GraphBuilder::new("large");
    let blocks: Vec<BlockId> = (0..500).map(|_| graph.add_block(jittison::link::NewBlock::data(vec![0; 8]))).collect();
    let symbols: Vec<SymbolIndex> = blocks.iter().map(|id| graph.add_symbol(NewSymbol::local("", *id, 0))).collect();
    *found.insert((symbols[499], blocks[499]))
}

fn edge(offset: u32, kind: EdgeKind, symbol: SymbolIndex) -> Edge {
    Edge { offset, kind, symbol, addend: 0 }
}

#[test]
fn edges_that_name_no_bytes_or_no_symbol_are_refused() {
    assert_all_refused(&[
        (
            |graph| {
                let edges = [edge(6, EdgeKind::Pointer64, symbol(graph, "datum"))];
                graph.add_block(".data.added", SegmentKind::Data, vec![0; 8], 8, &edges);
                Ok(())
            },
            &["block `.data.added`", "offset 0x6", "R_X86_64_64 to `datum`", "0x8 bytes"],
        ),
        (
            |graph| {
                let edges = [edge(0, EdgeKind::Pointer64, foreign().0)];
                graph.add_block(".data.added", SegmentKind::Data, vec![0; 8], 8, &edges);
                Ok(())
            },
            &["block `.data.added`", "symbol 500 is not in this graph"],
        ),
        (
            |graph| {
                let zero = graph.add_zero_block(".bss.added", SegmentKind::Data, 8, 8);
                graph.set_edges(zero, &[edge(0, EdgeKind::Pointer64, symbol(graph, "datum"))])
            },
            &["block `.bss.added`", "zero-filled"],
        ),
        (
            |graph| {
                let datum = symbol(graph, "datum");
                let edges = [edge(0, EdgeKind::Pointer64, datum), edge(4, EdgeKind::Pointer32, datum)];
                graph.add_block(".data.added", SegmentKind::Data, vec![0; 16], 8, &edges);
                Ok(())
            },
            &["block `.data.added`", "offset 0x4", "overlaps", "0x0"],
        ),
        (|graph| graph.redirect_edge(block(graph, ".data"), 9, symbol(graph, "datum")), &["block `.data`", "edge 9"]),
        (|graph| graph.redirect_edge(block(graph, ".data"), 0, foreign().0), &["symbol 500 is not in this graph"]),
        (|graph| graph.redirect_edge(foreign().1, 0, symbol(graph, "datum")), &["block 499 is not in this graph"]),
        (
            |graph| graph.redirect_edge(block(graph, ".data"), 0, symbol(graph, "variable")),
            &["block `.data`", "thread-local variable"],
        ),
        (
            |graph| {
                let edges = [edge(0, EdgeKind::ThreadLocalOffset64, symbol(graph, "datum"))];
                graph.add_block(".data.added", SegmentKind::Data, vec![0; 8], 8, &edges);
                Ok(())
            },
            &["block `.data.added`", "no thread-local variable"],
        ),
    ]);
}

#[test]
fn removed_symbols_that_are_still_used_are_refused() {
    assert_all_refused(&[
        (|graph| graph.remove_symbol(symbol(graph, "elsewhere")), &["block `.text`", "to `elsewhere`", "removed"]),
        (|graph| graph.remove_symbol(symbol(graph, "weak")), &["symbol `weak`", "promised"]),
        (|graph| graph.remove_block(block(graph, ".data")), &["`datum`"]),
        (
            |graph| {
                let elsewhere = symbol(graph, "elsewhere");
                let _ = graph.remove_symbol(elsewhere);
                graph.rename(elsewhere, "again")
            },
            &["symbol `elsewhere`", "was removed"],
        ),
        (|graph| graph.remove_symbol(foreign().0), &["symbol 500 is not in this graph"]),
        (|graph| graph.remove_block(foreign().1), &["block 499 is not in this graph"]),
    ]);
}

#[test]
fn a_symbol_outside_of_its_block_is_refused() {
    assert_all_refused(&[
        (
            |graph| {
                let data = graph.add_block(".data.added", SegmentKind::Data, vec![0; 8], 8, &[]);
                graph.add_local("far", data, 9);
                Ok(())
            },
            &["block `.data.added`", "offset 0x9", "past the end"],
        ),
        (
            |graph| {
                let data = graph.add_block(".data.added", SegmentKind::Data, vec![0; 8], 8, &[]);
                graph.add_symbol(NewSymbol::local("long", data, 4).with_size(8));
                Ok(())
            },
            &["block `.data.added`", "offset 0x4", "symbol `long`", "0x8 bytes"],
        ),
        (
            |graph| {
                graph.add_local("far", foreign().1, 0);
                Ok(())
            },
            &["block 499 is not in this graph"],
        ),
        (
            |graph| {
                let data = block(graph, ".data");
                graph.redefine(symbol(graph, "datum"), Definition::Block(data, 17), 8)
            },
            &["block `.data`", "offset 0x11", "symbol `datum`"],
        ),
        (|graph| graph.set_content(block(graph, ".data"), vec![0; 4]), &["block `.data`"]),
        (
            |graph| {
                graph.define(symbol(graph, "elsewhere"), Definition::Nowhere);
                Ok(())
            },
            &["symbol `elsewhere`"],
        ),
    ]);
}

#[test]
fn a_promise_to_the_dylib_that_nothing_keeps_is_refused() {
    assert_all_refused(&[
        (|graph| graph.rename(symbol(graph, "test"), "renamed"), &["symbol `renamed`", "promised as `test`"]),
        (
            |graph| graph.set_scope(symbol(graph, "test"), SymbolScope::Local, false),
            &["symbol `test`", "promised as `test`"],
        ),
        (
            |graph| graph.set_scope(symbol(graph, "datum"), SymbolScope::Hidden, false),
            &["symbol `datum`", "promised to other dylibs"],
        ),
        (
            |graph| graph.set_scope(symbol(graph, "hidden_datum"), SymbolScope::Exported, false),
            &["symbol `hidden_datum`", "promised as hidden"],
        ),
        (|graph| graph.redefine(symbol(graph, "weak"), Definition::External, 0), &["promised as `weak`"]),
        (
            |graph| {
                let data = block(graph, ".data");
                graph.redefine(symbol(graph, "test"), Definition::Block(data, 0), 0)
            },
            &["symbol `test`", "promised as code"],
        ),
        (
            |graph| {
                let data = block(graph, ".data");
                graph.redefine(symbol(graph, "variable"), Definition::Block(data, 0), 8)
            },
            &["symbol `variable`", "thread-local"],
        ),
        (
            |graph| {
                let data = block(graph, ".data");
                graph.redefine(symbol(graph, "datum"), Definition::Block(data, 0), 4)
            },
            &["symbol `datum`", "0x8 bytes were promised"],
        ),
        (
            |graph| {
                graph.define(symbol(graph, "test"), Definition::Absolute(64));
                Ok(())
            },
            &["promised as `test`"],
        ),
    ]);
}

#[test]
fn names_that_no_other_object_could_use_are_refused() {
    assert_all_refused(&[
        (|graph| graph.rename(symbol(graph, "test"), ""), &["symbol `test`", "\"\""]),
        (|graph| graph.rename(symbol(graph, "elsewhere"), "a\0b"), &["symbol `elsewhere`", "\"a\\0b\""]),
        (
            |graph| {
                let code = add_constant(graph, 1);
                graph.add_symbol(NewSymbol::function("", code, 0));
                Ok(())
            },
            &["visible to other objects and has no name"],
        ),
        (
            |graph| {
                let code = add_constant(graph, 1);
                graph.add_symbol(NewSymbol::function("test", code, 0));
                Ok(())
            },
            &["symbol `test`", "two strong definitions"],
        ),
        (
            |graph| {
                graph.add_block("counted", SegmentKind::Data, vec![0; 8], 8, &[]);
                Ok(())
            },
            &["section `counted`", "C identifier"],
        ),
        (
            |graph| {
                graph.add_block(".init_array.5", SegmentKind::Data, vec![0; 8], 8, &[]);
                Ok(())
            },
            &["section `.init_array.5`", "`.init_array`"],
        ),
        (|graph| graph.set_scope(symbol(graph, "elsewhere"), SymbolScope::Local, false), &["symbol `elsewhere`"]),
    ]);
}

#[test]
fn a_new_strong_name_after_pruning_is_refused_because_no_object_would_find_it() {
    let Some(object) = asm(SOURCE) else { return };
    let change = in_pruned(|graph| {
        let code = add_constant(graph, 1);
        graph.add_symbol(NewSymbol::function("late", code, 0));
        Ok(())
    });
    assert_refused(&object, change, "pruned", &["symbol `late`", "not promised", "`prepare`"]);
}

#[test]
fn blocks_that_something_else_has_a_place_for_are_refused() {
    assert_all_refused(&[
        (|graph| graph.remove_block(block(graph, "counted")), &["block `counted`", "C identifier"]),
        (
            |graph| graph.split_block(block(graph, ".text"), &[3]).map(drop),
            &["block `.text`", "cannot be split", "0x3"],
        ),
        (|graph| graph.split_block(block(graph, ".data"), &[4]).map(drop), &["block `.data`", "symbol `datum`"]),
        (|graph| graph.split_block(block(graph, ".data"), &[8, 8]).map(drop), &["block `.data`", "offset 0x8"]),
        (|graph| graph.split_block(block(graph, ".data"), &[99]).map(drop), &["block `.data`", "offset 0x63"]),
        (|graph| graph.split_block(block(graph, ".eh_frame"), &[8]).map(drop), &["block `.eh_frame`"]),
        (|graph| graph.split_block(block(graph, ".tbss"), &[4]).map(drop), &["block `.tbss`"]),
        (
            |graph| {
                let parts = graph.split_block(block(graph, ".data"), &[8])?;
                graph.set_content(parts[0], vec![0; 32])
            },
            &["block `.data`", "fixed place"],
        ),
        (
            |graph| {
                let parts = graph.split_block(block(graph, ".data"), &[8])?;
                graph.set_section(parts[0], ".rodata", SegmentKind::ReadOnly)
            },
            &["block `.data`", "fixed place"],
        ),
        (|graph| graph.set_section(block(graph, ".bss"), ".text.zero", SegmentKind::Code), &["block `.bss`", "code"]),
        (|graph| graph.set_section(block(graph, ".eh_frame"), ".x", SegmentKind::Data), &["block `.eh_frame`"]),
        (|graph| graph.remove_block(block(graph, ".tbss")), &["block `.tbss`"]),
        (|graph| graph.set_alignment(block(graph, ".data"), 24), &["block `.data`", "24", "power of two"]),
        (|graph| graph.set_alignment(block(graph, ".eh_frame"), 64), &["block `.eh_frame`"]),
        (
            |graph| {
                graph.add_block(".data.odd", SegmentKind::Data, vec![0; 8], 3, &[]);
                Ok(())
            },
            &["block `.data.odd`", "3 bytes", "power of two"],
        ),
    ]);
}

#[test]
fn a_dropped_block_cannot_be_changed_or_referred_to() {
    if !require_x86_64() {
        return;
    }
    let Some(object) = asm(SOURCE) else { return };
    let cases: [(Break, &[&str]); 4] = [
        (|graph| graph.set_content(block(graph, ".text.dead"), vec![0xc3]), &["block `.text.dead`", "dropped"]),
        (|graph| graph.set_edges(block(graph, ".text.dead"), &[]), &["block `.text.dead`", "dropped"]),
        (|graph| graph.remove_block(block(graph, ".text.dead")), &["block `.text.dead`", "dropped"]),
        (
            |graph| graph.redirect_edge(block(graph, ".data"), 0, symbol(graph, "dead")),
            &["block `.data`", "to `dead`", "not in memory"],
        ),
    ];
    for (change, parts) in cases {
        assert_refused(&object, in_pruned(change), "pruned", parts);
    }
}

#[test]
fn an_unwind_table_that_a_change_breaks_is_refused() {
    assert_all_refused(&[
        (
            |graph| {
                let table = block(graph, ".eh_frame");
                graph.set_edges(table, &[])
            },
            &["block `.eh_frame`", "no edge to its function"],
        ),
        (
            |graph| {
                let table = block(graph, ".eh_frame");
                let size = graph.block_bytes(table).map_or(0, <[u8]>::len);
                graph.set_content(table, vec![0xff; size])
            },
            &["block `.eh_frame`", "cannot be read"],
        ),
        (
            |graph| {
                let (table, weak) = (block(graph, ".eh_frame"), symbol(graph, "weak"));
                graph.redirect_edge(table, 0, weak)
            },
            &["block `.eh_frame`", "unwind record covers"],
        ),
    ]);
}

#[test]
fn what_layout_has_fixed_is_refused_after_it() {
    let Some(object) = asm(SOURCE) else { return };
    type BreakPlaced = fn(&mut jittison::link::PlacedLink) -> Result<(), Error>;
    let cases: [(BreakPlaced, &[&str]); 7] = [
        (|link| link.set_content(block(link.graph(), ".data"), vec![0; 25]), &["block `.data`", "0x18 bytes"]),
        (|link| link.set_content(block(link.graph(), ".bss"), vec![0; 16]), &["block `.bss`"]),
        (|link| link.set_content(block(link.graph(), ".eh_frame"), vec![0; 8]), &["block `.eh_frame`"]),
        (|link| link.set_content(block(link.graph(), ".tbss"), vec![0; 8]), &["block `.tbss`"]),
        (|link| link.set_content(foreign().1, vec![0; 8]), &["block 499 is not in this graph"]),
        (
            |link| link.redirect_edge(block(link.graph(), ".text"), 1, symbol(link.graph(), "pointer")),
            &["block `.text`", "to `pointer`", "no GOT slot", "`pruned`"],
        ),
        (
            |link| link.redirect_edge(block(link.graph(), ".data"), 0, symbol(link.graph(), "dead")),
            &["block `.data`", "to `dead`", "not in memory"],
        ),
    ];
    for (change, parts) in cases {
        assert_refused(&object, in_placed(change), "placed", parts);
    }
}

/// One random change with random arguments, most of them wrong.
fn change_at_random(dice: &mut Rng, graph: &mut LinkGraph) -> Result<(), Error> {
    let blocks: Vec<BlockId> = graph.blocks().map(|(id, _)| id).chain([foreign().1]).collect();
    let symbols: Vec<SymbolIndex> = graph.symbols().map(|(index, _)| index).chain([foreign().0]).collect();
    let (block, other) = (blocks[dice.usize(..blocks.len())], blocks[dice.usize(..blocks.len())]);
    let (symbol, target) = (symbols[dice.usize(..symbols.len())], symbols[dice.usize(..symbols.len())]);
    let kinds = [SegmentKind::Code, SegmentKind::ReadOnly, SegmentKind::Data];
    let kind = kinds[dice.usize(..3)];
    let size = graph.blocks().find(|(id, _)| *id == block).map_or(8, |(_, block)| block.size.min(4096));
    let at = dice.u64(..size + 4);
    let names = ["test", "datum", "fresh", "", ".data.x", "counted", ".init_array", "elsewhere", "weak"];
    let name = names[dice.usize(..names.len())];
    let scope = [SymbolScope::Exported, SymbolScope::Hidden, SymbolScope::Local][dice.usize(..3)];
    let edge_kinds = [
        EdgeKind::Pointer64,
        EdgeKind::Delta32,
        EdgeKind::Branch32,
        EdgeKind::GotLoad32,
        EdgeKind::ThreadLocalOffset64,
        EdgeKind::Size32,
    ];
    let edges: Vec<Edge> = (0..dice.usize(..3))
        .map(|_| edge(dice.u32(..size as u32 + 2), edge_kinds[dice.usize(..edge_kinds.len())], target))
        .collect();
    let definitions =
        [Definition::Block(other, at), Definition::Absolute(dice.u64(..)), Definition::External, Definition::Nowhere];
    let definition = definitions[dice.usize(..4)];
    let bytes = vec![0x90; if dice.bool() { size as usize } else { dice.usize(..64) }];
    match dice.usize(..18) {
        0 => _ = graph.add_block(name, kind, bytes, 1 << dice.u32(..64), &edges),
        1 => _ = graph.add_zero_block(name, kind, at << dice.u32(..64), 1 << dice.u32(..20)),
        2 => graph.remove_block(block)?,
        3 => graph.set_section(block, name, kind)?,
        4 => graph.set_alignment(block, 1 << dice.u32(..64))?,
        5 => graph.set_content(block, bytes)?,
        6 => drop(graph.split_block(block, &[at, at + dice.u64(..16)])?),
        7 => graph.set_edges(block, &edges)?,
        8 | 9 => graph.redirect_edge(block, dice.usize(..4), target)?,
        10 => _ = graph.add_symbol(NewSymbol::new(name, other, at).with_size(at).with_scope(scope)),
        11 => _ = graph.add_weak(name, block, at),
        12 => _ = graph.add_local(name, block, at),
        13 => graph.define(symbol, definition),
        14 => graph.rename(symbol, name)?,
        15 => graph.set_scope(symbol, scope, dice.bool())?,
        16 => graph.redefine(symbol, definition, dice.u64(..16))?,
        _ => graph.remove_symbol(symbol)?,
    }
    Ok(())
}

/// The linked code is not run: a plugin may change what it does.
#[test]
fn random_changes_link_or_are_refused_and_neither_panic_nor_leak() {
    let (Some(object), Some(elsewhere)) = (asm(SOURCE), c(ELSEWHERE)) else { return };
    let mut linked = 0;
    for seed in 0..rounds(3000) as u64 {
        let dice = Arc::new(Mutex::new(Rng::with_seed(seed)));
        let ignores_errors = seed % 2 == 0;
        let change = move |graph: &mut LinkGraph| {
            let mut dice = dice.lock().unwrap();
            for _ in 0..1 + dice.usize(..5) {
                match change_at_random(&mut dice, graph) {
                    Err(error) if !ignores_errors => return Err(error),
                    _ => {}
                }
            }
            Ok(())
        };
        let [before, after] = before_and_after_pruning(change);
        let jit = Jit::builder().build().unwrap();
        let _elsewhere = add(&jit, jit.main_dylib(), "elsewhere.o", &elsewhere);
        jit.address_of(jit.main_dylib(), "elsewhere").unwrap();
        let held_before = (held(&jit), jit.main_dylib().symbol_count());
        jit.layer().add_plugin(Arc::new(before));
        jit.layer().add_plugin(Arc::new(after));
        let tracker = jit.main_dylib().create_tracker().unwrap();
        match jit.link_object(&tracker, "random.o", object.as_slice()) {
            Ok(()) => linked += 1,
            Err(error) => {
                assert!(!error.to_string().contains("bug of jittison"), "seed {seed}: {error}");
                assert_eq!((held(&jit), jit.main_dylib().symbol_count()), held_before, "seed {seed}: {error}");
            }
        }
        assert!(tracker.remove().unwrap().is_complete(), "seed {seed}");
        assert_eq!((held(&jit), jit.main_dylib().symbol_count()), held_before, "seed {seed}");
    }
    assert!(linked > 0, "some changes are valid");
}

#[test]
fn an_address_that_a_plugin_supplies_is_linked_as_a_number() {
    let Some(object) = asm(SOURCE) else { return };
    let jit = jit_with(in_prepare(|graph| {
        graph.define(symbol(graph, "elsewhere"), Definition::Absolute(ExecutorAddr::new(0x4141_4141).value()));
        Ok(())
    }));
    let _tracker = add(&jit, jit.main_dylib(), "test.o", &object);
    jit.address_of(jit.main_dylib(), "test").unwrap();
}
