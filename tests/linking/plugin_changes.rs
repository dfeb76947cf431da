//! What plugins may change in a graph: symbols, blocks, sections and edges, before and after pruning, and after layout. What
//! they break is in `plugin_refusals.rs`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use jittison::base::{ExecutorAddr, SegmentKind};
use jittison::link::{
    Block, BlockId, Definition, Edge, EdgeKind, GraphBuilder, LinkGraph, NewBlock, NewSymbol, SymbolScope,
};
use jittison::session::{SymbolFlags, SymbolState};
use jittison::{Error, ErrorKind, Jit};

use crate::changing_plugin::*;
use crate::support::*;

/// A caller of `wanted`, which no object defines.
const CALLER: &str = "extern long wanted(void); long test(void) { return wanted() + 1; }";

#[test]
fn a_renamed_reference_is_looked_up_by_its_new_name() {
    let (Some(caller), Some(other)) = (c(CALLER), c("long renamed(void) { return 41; }")) else { return };
    let changes = before_and_after_pruning(|graph| match find_symbol(graph, "wanted") {
        Some(wanted) => graph.rename(wanted, "renamed"),
        None => Ok(()),
    });
    for changes in changes {
        let jit = jit_with(changes);
        let main = jit.main_dylib();
        let (_caller, _other) = (add(&jit, main, "caller.o", &caller), add(&jit, main, "other.o", &other));
        assert_eq!(long(&jit, "test"), 42);
        assert_eq!(main.symbol_state("wanted"), None);
    }
}

/// Renames `test` and puts `mov $7, %eax; ret` in its place. The object's own function stays reachable as `original_test`.
fn intercept(graph: &mut LinkGraph) -> Result<(), Error> {
    let Some(test) = find_definition(graph, "test") else { return Ok(()) };
    graph.rename(test, "original_test")?;
    let code = add_constant(graph, 7);
    graph.add_symbol(NewSymbol::function("test", code, 0).with_size(6));
    Ok(())
}

#[test]
fn a_definition_that_takes_a_promised_name_is_what_others_find() {
    if !require_x86_64() {
        return;
    }
    let (Some(object), Some(user)) =
        (c("long test(void) { return 1; }"), c("extern long test(void); long use(void) { return test() * 6; }"))
    else {
        return;
    };
    let jit = jit_with(in_prepare(intercept));
    let main = jit.main_dylib();
    let (tracker, user) = (add(&jit, main, "test.o", &object), add(&jit, main, "user.o", &user));
    assert_eq!((long(&jit, "test"), long(&jit, "use"), long(&jit, "original_test")), (7, 42, 1));
    let removal = tracker.remove().unwrap();
    assert!(user.remove().unwrap().is_complete() && removal.is_complete());
    assert_eq!((held(&jit), main.symbol_count()), ((0, 0, 0), 0));
}

#[test]
fn a_promised_name_may_move_to_another_definition_after_pruning_if_no_new_name_appears() {
    if !require_x86_64() {
        return;
    }
    let Some(object) = c("long test(void) { return 1; }") else { return };
    let jit = jit_with(in_pruned(|graph| {
        let Some(test) = find_symbol(graph, "test") else { return Ok(()) };
        graph.set_scope(test, SymbolScope::Local, false)?;
        let code = add_constant(graph, 9);
        graph.add_symbol(NewSymbol::function("test", code, 0));
        Ok(())
    }));
    let _tracker = add(&jit, jit.main_dylib(), "test.o", &object);
    assert_eq!(long(&jit, "test"), 9);
}

#[test]
fn a_redefined_symbol_keeps_its_name_and_leads_to_its_new_place() {
    let Some(object) = c("long value = 3; long test(void) { return value; }") else { return };
    let jit = jit_with(in_prepare(|graph| {
        let value = symbol(graph, "value");
        let data = graph.add_block(".data.moved", SegmentKind::Data, 77u64.to_le_bytes().to_vec(), 8, &[]);
        graph.redefine(value, Definition::Block(data, 0), 8)
    }));
    let _tracker = add(&jit, jit.main_dylib(), "test.o", &object);
    assert_eq!(long(&jit, "test"), 77);
    let value = jit.address_of(jit.main_dylib(), "value").unwrap();
    assert_eq!(read(value.value(), 8), 77u64.to_le_bytes());
}

#[test]
fn an_added_reference_leads_to_another_object_and_not_to_the_local_symbol_of_its_name() {
    if !require_x86_64() {
        return;
    }
    let source = "__attribute__((noinline)) static long mine(void) { __asm__(\"\"); return 1; }
                  long test(void) { return mine(); }";
    let (Some(object), Some(other)) = (c(source), c("long mine(void) { return 5; }")) else { return };
    let jit = jit_with(in_prepare(|graph| {
        let Some(test) = find_symbol(graph, "test") else { return Ok(()) };
        let mine = graph.add_external("mine");
        // mov mine@GOTPCREL(%rip), %rax; jmp *%rax
        let code = vec![0x48, 0x8b, 0x05, 0, 0, 0, 0, 0xff, 0xe0];
        let edge = Edge { offset: 3, kind: EdgeKind::GotLoad32, symbol: mine, addend: -4 };
        let code = graph.add_block(".text.to_mine", SegmentKind::Code, code, 16, &[edge]);
        graph.redefine(test, Definition::Block(code, 0), 9)
    }));
    let main = jit.main_dylib();
    let (_object, _other) = (add(&jit, main, "test.o", &object), add(&jit, main, "other.o", &other));
    assert_eq!(long(&jit, "test"), 5);
}

#[test]
fn an_added_definition_of_a_new_name_is_found_and_removed_with_its_tracker() {
    if !require_x86_64() {
        return;
    }
    let (Some(object), Some(user)) =
        (c("long test(void) { return 1; }"), c("extern long fresh(void); long use(void) { return fresh(); }"))
    else {
        return;
    };
    let jit = jit_with(in_prepare(|graph| {
        if find_symbol(graph, "test").is_some() {
            let code = add_constant(graph, 13);
            graph.add_symbol(NewSymbol::function("fresh", code, 0));
            graph.add_symbol(NewSymbol::absolute("fixed", ExecutorAddr::new(0x1234)));
            graph.add_symbol(NewSymbol::new("unseen", code, 1).with_scope(SymbolScope::Hidden));
        }
        Ok(())
    }));
    let main = jit.main_dylib();
    let tracker = add(&jit, main, "test.o", &object);
    assert_eq!(main.symbol_state("fresh"), None, "the plugin has not seen the object yet");
    assert_eq!((long(&jit, "test"), long(&jit, "fresh")), (1, 13));
    let user = add(&jit, main, "user.o", &user);
    assert_eq!(long(&jit, "use"), 13);
    assert_eq!(jit.address_of(main, "fixed").unwrap(), ExecutorAddr::new(0x1234));
    let has = |name, flag| main.symbol_flags(name).unwrap().contains(flag);
    assert!(has("fresh", SymbolFlags::CALLABLE | SymbolFlags::EXPORTED) && !has("fresh", SymbolFlags::WEAK));
    assert!(has("fixed", SymbolFlags::EXPORTED) && !has("unseen", SymbolFlags::EXPORTED));
    assert_eq!(main.symbol_count_of(tracker.key()), 4);
    assert!(!tracker.remove().unwrap().is_complete(), "the user depends on what the plugin added");
    assert!(user.remove().unwrap().is_complete());
    assert_eq!((held(&jit), main.symbol_count()), ((0, 0, 0), 0));
}

#[test]
fn a_strong_definition_of_a_name_that_the_dylib_has_fails_the_link() {
    let (Some(first), Some(second)) = (c("long taken(void) { return 1; }"), c("long test(void) { return 2; }")) else {
        return;
    };
    let jit = jit_with(in_prepare(|graph| {
        if find_symbol(graph, "test").is_some() {
            let code = add_constant(graph, 3);
            graph.add_symbol(NewSymbol::function("taken", code, 0));
        }
        Ok(())
    }));
    let main = jit.main_dylib();
    let tracker = add(&jit, main, "first.o", &first);
    assert_eq!(long(&jit, "taken"), 1);
    let before = held(&jit);
    let second = add(&jit, main, "second.o", &second);
    assert_says(&jit.address_of(main, "test").unwrap_err(), &["`taken`"]);
    assert_eq!((held(&jit), main.symbol_count(), long(&jit, "taken")), (before, 1, 1));
    assert!(second.remove().unwrap().is_complete() && tracker.remove().unwrap().is_complete());
}

#[test]
fn a_removed_reference_is_not_looked_up() {
    let source =
        "extern long nowhere(void); __attribute__((noinline)) static long mine(void) { __asm__(\"\"); return 4; }
                  long test(int x) { return x ? nowhere() : mine(); }";
    let Some(object) = gcc(&["-O1", "-ffunction-sections"], source) else { return };
    let changes = before_and_after_pruning(|graph| {
        let (nowhere, mine) = (symbol(graph, "nowhere"), symbol(graph, "mine"));
        for (block, position, _) in edges_to(graph, nowhere) {
            graph.redirect_edge(block, position, mine)?;
        }
        graph.remove_symbol(nowhere)
    });
    for changes in changes {
        let jit = jit_with(changes);
        let _tracker = add(&jit, jit.main_dylib(), "test.o", &object);
        let test = function::<extern "C" fn(i32) -> i64>(&jit, "test");
        assert_eq!((test.call(0), test.call(1)), (4, 4));
    }
}

#[test]
fn a_local_definition_that_becomes_exported_is_found_by_other_objects() {
    let source = "__attribute__((noinline)) static long secret(void) { __asm__(\"\"); return 21; }
                  long test(void) { return secret(); }";
    let (Some(object), Some(user)) =
        (c(source), c("extern long secret(void); long use(void) { return 2 * secret(); }"))
    else {
        return;
    };
    let jit = jit_with(in_prepare(|graph| match find_symbol(graph, "test") {
        Some(_) => graph.set_scope(symbol(graph, "secret"), SymbolScope::Exported, false),
        None => Ok(()),
    }));
    let main = jit.main_dylib();
    let _object = add(&jit, main, "test.o", &object);
    assert_eq!(long(&jit, "test"), 21);
    let _user = add(&jit, main, "user.o", &user);
    assert_eq!(long(&jit, "use"), 42);
}

#[test]
fn a_reference_that_becomes_weak_may_stay_undefined() {
    let source = "extern long absent; long test(void) { return (long)&absent; }";
    let Some(object) = c(source) else { return };
    let jit = jit_with(in_prepare(|graph| {
        let absent = symbol(graph, "absent");
        graph.set_scope(absent, SymbolScope::Exported, true)
    }));
    let _tracker = add(&jit, jit.main_dylib(), "test.o", &object);
    assert_eq!(long(&jit, "test"), 0);
}

#[test]
fn added_sections_hold_code_constants_data_and_zeroes() {
    if !require_x86_64() {
        return;
    }
    let Some(object) = c(CALLER) else { return };
    let places = Arc::new(Mutex::new(Vec::new()));
    let seen = places.clone();
    let jit = jit_with(in_prepare(move |graph| {
        let constant = graph.add_block(".rodata.added", SegmentKind::ReadOnly, 40u64.to_le_bytes().to_vec(), 8, &[]);
        let constant = graph.add_local("constant", constant, 0);
        let zeroes = graph.add_zero_block(".bss.added", SegmentKind::Data, 4096, 64);
        let counter = graph.add_local("counter", zeroes, 8);
        // incq counter(%rip); mov constant(%rip), %rax; add counter(%rip), %rax; ret
        let mut code = vec![0x48, 0xff, 0x05, 0, 0, 0, 0, 0x48, 0x8b, 0x05, 0, 0, 0, 0];
        code.extend([0x48, 0x03, 0x05, 0, 0, 0, 0, 0xc3]);
        let edge = |offset, symbol| Edge { offset, kind: EdgeKind::Delta32, symbol, addend: -4 };
        let edges = [edge(3, counter), edge(10, constant), edge(17, counter)];
        let code = graph.add_block(".text.added", SegmentKind::Code, code, 16, &edges);
        seen.lock().unwrap().extend([graph.block_name(code).to_string()]);
        graph.define(symbol(graph, "wanted"), Definition::Block(code, 0));
        Ok(())
    }));
    let _tracker = add(&jit, jit.main_dylib(), "test.o", &object);
    assert_eq!((long(&jit, "test"), long(&jit, "test")), (42, 43));
    assert_eq!(*places.lock().unwrap(), [".text.added"]);
}

#[test]
fn a_section_moves_to_other_memory_and_is_aligned_as_asked() {
    own_process!();
    let source = "long table[64] = { 5, 6 }; long test(void) { return table[1]; }";
    let Some(object) = gcc(&["-O1", "-fdata-sections"], source) else { return };
    let jit = jit_with(in_prepare(|graph| {
        let table = block(graph, ".data.table");
        graph.set_section(table, ".rodata.table", SegmentKind::ReadOnly)?;
        graph.set_alignment(table, 512)?;
        assert_eq!((graph.block_name(table), graph.blocks().count() > 1), (".rodata.table", true));
        Ok(())
    }));
    let _tracker = add(&jit, jit.main_dylib(), "test.o", &object);
    assert_eq!(long(&jit, "test"), 6);
    let table = jit.address_of(jit.main_dylib(), "table").unwrap().value();
    assert_eq!(table % 512, 0);
    let mapping = mappings().into_iter().find(|mapping| mapping.start <= table && table < mapping.end).unwrap();
    assert!(!mapping.protection.contains('w'), "{}", mapping.protection);
}

#[test]
fn a_block_gets_other_bytes_of_another_size_with_other_edges() {
    let source = "extern const char text[]; __attribute__((section(\".rodata.text\"))) const char text[] = \"short\";
                  long other = 9; long test(void) { return text[0] + text[5]; }";
    let Some(object) = gcc(&["-O1", "-fno-builtin", "-fPIC"], source) else { return };
    let jit = jit_with(in_prepare(|graph| {
        let text = block(graph, ".rodata.text");
        assert_eq!(graph.block_bytes(text), Some(&b"short\0"[..]));
        graph.set_content(text, b"a longer text\0\0\0\0\0\0\0\0\0\0\0".to_vec())?;
        let edge = Edge { offset: 16, kind: EdgeKind::Pointer64, symbol: symbol(graph, "other"), addend: 0 };
        graph.set_edges(text, &[edge])
    }));
    let _tracker = add(&jit, jit.main_dylib(), "test.o", &object);
    jit.address_of(jit.main_dylib(), "test").unwrap();
    let address = |name| jit.address_of(jit.main_dylib(), name).unwrap().value();
    let text = read(address("text"), 24);
    assert_eq!((&text[..14], &text[16..]), (&b"a longer text\0"[..], &address("other").to_le_bytes()[..]));
}

#[test]
fn a_removed_block_takes_no_memory() {
    let source = "static long unused[1000] __attribute__((used, retain)) = { 1 }; long test(void) { return 2; }";
    let Some(object) = gcc(&["-O1", "-fdata-sections"], source) else { return };
    let usage = |jit: Jit| {
        let tracker = add(&jit, jit.main_dylib(), "test.o", &object);
        assert_eq!(long(&jit, "test"), 2);
        jit.usage(&tracker).requested()
    };
    let with = usage(new_jit());
    for changes in before_and_after_pruning(|graph| graph.remove_block(block(graph, ".data.unused"))) {
        let without = usage(jit_with(changes));
        assert!(with - without >= 8000, "{with} and {without} bytes");
    }
}

#[test]
fn a_removed_function_leaves_its_unwind_record_without_effect() {
    if !require_x86_64() {
        return;
    }
    let source = "__attribute__((noinline)) static long mine(void) { __asm__(\"\"); return 4; }
                  long test(void) { return mine(); }";
    let Some(object) = gcc(&["-O1", "-ffunction-sections"], source) else { return };
    let jit = jit_with(in_prepare(|graph| {
        let mine = symbol(graph, "mine");
        let replacement = add_constant(graph, 8);
        let replacement = graph.add_local("replacement", replacement, 0);
        for (block, position, _) in edges_to(graph, mine) {
            if graph.block_name(block) == ".text.test" {
                graph.redirect_edge(block, position, replacement)?;
            }
        }
        // The compiler may refer to the function by the symbol of its section.
        let text = block(graph, ".text.mine");
        for (other, _) in graph.symbols().map(|(index, symbol)| (index, symbol.definition)).collect::<Vec<_>>() {
            if graph.definition(other) == Definition::Block(text, 0) {
                for (block, position, _) in edges_to(graph, other) {
                    if graph.block_name(block) == ".text.test" {
                        graph.redirect_edge(block, position, replacement)?;
                    }
                }
            }
        }
        graph.remove_block(text)
    }));
    let _tracker = add(&jit, jit.main_dylib(), "test.o", &object);
    assert_eq!(long(&jit, "test"), 8);
}

/// Functions that call each other without relocations, and data with pointers into the middle.
const SPLITTABLE: &str = "
    #include <stdlib.h>
    long table[4] = { 1, 2, 3, 4 }; long *middle = &table[2]; long tail = 5;
    __attribute__((noinline)) static long inner(long x) { __asm__(\"\"); return x * 2 + table[1]; }
    long outer(long x) { return inner(x) + *middle + tail; }
    long sum(void) { long all = 0; for (int i = 0; i < 4; i++) all += outer(i); return all + labs(-3); }";

/// Splits `.text` and `.data` before each symbol with a name.
fn split_at_symbols(graph: &mut LinkGraph) -> Result<(), Error> {
    for name in [".text", ".data"] {
        let Some(block) = find_block(graph, name) else { continue };
        let starts = graph.symbols().filter_map(|(index, symbol)| match symbol.definition {
            Definition::Block(id, at) if id == block && at > 0 && !graph.symbol_name(index).is_empty() => Some(at),
            _ => None,
        });
        let mut at: Vec<u64> = starts.collect();
        at.sort_unstable();
        at.dedup();
        if at.is_empty() {
            continue;
        }
        let parts = graph.split_block(block, &at)?;
        assert_eq!(parts.len(), at.len());
        assert!(parts.iter().all(|part| graph.block_name(*part) == name));
    }
    Ok(())
}

#[test]
fn the_parts_of_a_split_block_keep_their_order_and_every_reference() {
    for compile in [gcc, clang] {
        for flags in [&["-O0", "-fPIC"][..], &["-O2", "-fPIC"], &LARGE_CODE_MODEL, &["-Os", "-fPIE"]] {
            let Some(object) = compile(flags, SPLITTABLE) else { continue };
            let expected = long(&linked(&[&object]).0, "sum");
            for changes in before_and_after_pruning(split_at_symbols) {
                let jit = jit_with(changes);
                let tracker = add(&jit, jit.main_dylib(), "split.o", &object);
                assert_eq!(long(&jit, "sum"), expected, "{flags:?}");
                assert!(tracker.remove().unwrap().is_complete());
                assert_eq!(held(&jit), (0, 0, 0));
            }
        }
    }
}

#[test]
fn exceptions_cross_the_parts_of_a_split_block() {
    let source = "struct Guard { long *at; ~Guard() { *at += 10; } };
        __attribute__((noinline)) static void throws(long x) { if (x) throw x; }
        __attribute__((noinline)) static void passes(long x, long *at) { Guard guard{at}; throws(x); }
        extern \"C\" long test(long x) { long at = 0; try { passes(x, &at); } catch (long y) { at += y; } return at; }";
    let Some(object) = gxx(&["-O1"], source) else { return };
    let jit = jit_with(in_prepare(split_at_symbols));
    let _tracker = add(&jit, jit.main_dylib(), "throws.o", &object);
    let test = function::<extern "C" fn(i64) -> i64>(&jit, "test");
    assert_eq!((test.call(0), test.call(5)), (10, 15));
}

#[test]
fn pruning_keeps_all_parts_of_a_split_block_or_none() {
    let source = "
        .section .text.dead,\"ax\",@progbits
        first: nop
        second: ret
        .text
        .globl test
        .type test, @function
        test: call .Lhelper
              ret
        helper_start: nop
        .Lhelper: mov $6, %eax
              ret
        .section .note.GNU-stack";
    let Some(object) = asm(source) else { return };
    let count = Arc::new(AtomicU64::new(0));
    let (seen, jit) = (count.clone(), new_jit());
    jit.layer().add_plugin(Arc::new(in_prepare(|graph| {
        let (dead, text) = (block(graph, ".text.dead"), block(graph, ".text"));
        graph.split_block(dead, &[1])?;
        graph.split_block(text, &[6]).map(drop)
    })));
    jit.layer().add_plugin(Arc::new(in_pruned(move |graph| {
        let is_lost = |(id, block): &(BlockId, &Block)| block.is_dropped() && graph.block_name(*id) == ".text.dead";
        seen.store(graph.blocks().filter(is_lost).count() as u64, Ordering::Relaxed);
        Ok(())
    })));
    let _tracker = add(&jit, jit.main_dylib(), "split.o", &object);
    assert_eq!((long(&jit, "test"), count.load(Ordering::Relaxed)), (6, 2));
}

#[test]
fn redirected_edges_lead_to_their_new_symbol() {
    let source = "extern long one(void); extern long two(void); extern long datum, other;
                  long test(void) { return one() + datum; } long both(void) { return two() + other; }";
    let library = "long one(void) { return 1; } long two(void) { return 20; } long datum = 100, other = 2000;";
    let (Some(object), Some(library)) = (gcc(&["-O1", "-fPIC"], source), c(library)) else { return };
    let redirect = |graph: &mut LinkGraph| {
        for (from, to) in [("one", "two"), ("datum", "other")] {
            let (Some(from), Some(to)) = (find_symbol(graph, from), find_symbol(graph, to)) else { continue };
            if find_symbol(graph, "both").is_some() {
                for (block, position, _) in edges_to(graph, from) {
                    graph.redirect_edge(block, position, to)?;
                }
            }
        }
        Ok(())
    };
    for changes in before_and_after_pruning(redirect) {
        let jit = jit_with(changes);
        let main = jit.main_dylib();
        let (_object, _library) = (add(&jit, main, "test.o", &object), add(&jit, main, "library.o", &library));
        assert_eq!((long(&jit, "test"), long(&jit, "both")), (2020, 2020));
    }
}

#[test]
fn laid_out_addresses_are_final_and_bytes_and_edges_may_still_change() {
    let source = "extern long one(void); extern long two(void); const long constants[2] = { 3, 4 };
                  long test(void) { const long *at = constants; __asm__(\"\" : \"+r\"(at)); return one() + at[1]; } long both(void) { return two(); }";
    let library = "long one(void) { return 1; } long two(void) { return 20; }";
    let flags = ["-O1", "-fPIC", "-fno-builtin", "-fsemantic-interposition", "-fdata-sections"];
    let (Some(object), Some(library)) = (gcc(&flags, source), c(library)) else { return };
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = seen.clone();
    let jit = jit_with(in_placed(move |link| {
        let Some(constants) = find_block(link.graph(), ".rodata.constants") else { return Ok(()) };
        let (one, two) = (symbol(link.graph(), "one"), symbol(link.graph(), "two"));
        noted.lock().unwrap().push(link.block_address(constants));
        link.set_content(constants, [30u64, 4000].iter().flat_map(|word| word.to_le_bytes()).collect())?;
        for (block, position, _) in edges_to(link.graph(), one) {
            link.redirect_edge(block, position, two)?;
        }
        Ok(())
    }));
    let main = jit.main_dylib();
    let (_object, _library) = (add(&jit, main, "test.o", &object), add(&jit, main, "library.o", &library));
    assert_eq!((long(&jit, "test"), long(&jit, "both")), (4020, 20));
    assert_eq!(*seen.lock().unwrap(), [jit.address_of(main, "constants").unwrap()]);
}

#[test]
fn a_later_plugin_sees_what_an_earlier_one_has_changed() {
    if !require_x86_64() {
        return;
    }
    let Some(object) = c("long test(void) { return 1; }") else { return };
    let jit = jit_with(in_prepare(intercept));
    let names = Arc::new(Mutex::new(Vec::new()));
    let seen = names.clone();
    jit.layer().add_plugin(Arc::new(in_prepare(move |graph| {
        let named = graph.symbols().map(|(index, _)| graph.symbol_name(index)).filter(|name| name.contains("test"));
        seen.lock().unwrap().extend(named.map(str::to_string));
        Ok(())
    })));
    let _tracker = add(&jit, jit.main_dylib(), "t.o", &object);
    assert_eq!(long(&jit, "test"), 7);
    let names = names.lock().unwrap();
    assert!(names.contains(&"original_test".to_string()) && names.contains(&"test".to_string()), "{names:?}");
}

#[test]
fn a_changed_graph_of_a_generator_links_like_an_object() {
    if !require_x86_64() {
        return;
    }
    let jit = jit_with(in_prepare(intercept));
    let main = jit.main_dylib();
    let mut graph = GraphBuilder::new("generated");
    let code = graph.add_block(NewBlock::code(vec![0xb8, 1, 0, 0, 0, 0xc3]));
    graph.add_symbol(NewSymbol::function("test", code, 0).with_size(6));
    let tracker = main.create_tracker().unwrap();
    jit.link_graph(&tracker, graph.finish().unwrap()).unwrap();
    assert_eq!((long(&jit, "test"), long(&jit, "original_test")), (7, 1));
    assert_eq!(main.symbol_state("original_test"), Some(SymbolState::Ready));
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!((held(&jit), main.symbol_count()), ((0, 0, 0), 0));
}

#[test]
fn debuggers_find_the_names_of_a_changed_graph() {
    own_process!();
    let Some(object) = gcc(&["-O1", "-g", "-fPIC"], SPLITTABLE) else { return };
    let jit = Jit::builder().debugger(true).build().unwrap();
    jit.layer().add_plugin(Arc::new(in_prepare(|graph| {
        split_at_symbols(graph)?;
        let inner = symbol(graph, "inner");
        graph.rename(inner, "renamed_inner")
    })));
    let tracker = add(&jit, jit.main_dylib(), "split.o", &object);
    let sum = long(&jit, "sum");
    assert_eq!(sum, long(&linked(&[&object]).0, "sum"));
    assert_eq!(DebuggerList::own().count_with("outer"), 1);
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(DebuggerList::own().count_with("outer"), 0);
}

#[test]
fn an_error_of_a_plugin_stays_as_it_is() {
    let Some(object) = c("long test(void) { return 1; }") else { return };
    let jit = jit_with(in_prepare(|_| Err(ErrorKind::Other("refused".into()).into())));
    let _tracker = add(&jit, jit.main_dylib(), "test.o", &object);
    let error = jit.address_of(jit.main_dylib(), "test").unwrap_err();
    assert!(error.to_string().contains("refused") && !error.to_string().contains("broke the graph"), "{error}");
}
