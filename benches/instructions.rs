//! Counts the instructions of the hot operations. Other load on the machine does not change the counts, so CI can check
//! them.
//!
//! `cargo bench --bench instructions` runs itself under callgrind and prints a table.
//!
//! - `-- --check` fails if a count differs by more than a tenth from the record in `benches/instructions.txt`, in
//!   either direction.
//! - `-- --record` writes a new record.
//!
//! A record names its compilers. Under other compilers, the counts are printed but not compared. Needs gcc and
//! valgrind.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::hint::black_box;
use std::path::Path;
use std::process::{Command, ExitCode};

use jittison::link::{GraphBuilder, NewBlock, NewSymbol};
use jittison::session::{JitDylib, RequiredState, SymbolRequest, Visibility};
use jittison::{Jit, Reloader};

use jittison_test_support::bench::bed::{check, link, session};
use jittison_test_support::bench::objects::{self, Objects, Template};
use jittison_test_support::{PrivateDir, require};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let has_option = |option: &str| arguments.iter().any(|argument| argument == option);
    if has_option(COUNTED) {
        run(&objects::build().expect("the parent process has made the objects"));
        return ExitCode::SUCCESS;
    }
    let Some(counts) = count() else { return ExitCode::SUCCESS };
    let record = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/instructions.txt");
    if has_option("--record") {
        std::fs::write(&record, record_text(&counts)).unwrap();
    }
    let recorded = std::fs::read_to_string(&record).unwrap_or_default();
    let is_comparable = recorded.lines().next() == Some(&*compilers());
    let mut has_failed = false;
    println!("{:<44}{:>14}{:>14}", "instructions per operation", "counted", "recorded");
    for (operation, count) in &counts {
        let expected = recorded_count(&recorded, operation);
        let is_near = expected.is_some_and(|expected| *count * 10 <= expected * 11 && *count * 11 >= expected * 10);
        has_failed |= is_comparable && !is_near;
        let expected = expected.map_or("-".to_string(), |expected| expected.to_string());
        println!("{operation:<44}{count:>14}{expected:>14}{}", if is_near { "" } else { "   differs by a tenth" });
    }
    if !is_comparable {
        println!(
            "not compared, because the record is of other compilers: {}",
            recorded.lines().next().unwrap_or("there is no record")
        );
    } else if has_failed && has_option("--check") {
        println!("a count differs by a tenth from the record: find the cause, or write a new record with -- --record");
        return ExitCode::FAILURE;
    } else if !has_failed {
        println!("all counts hold");
    }
    ExitCode::SUCCESS
}

/// The instructions of each operation. `None` if a tool is missing.
fn count() -> Option<Vec<(&'static str, u64)>> {
    objects::build()?;
    let mut valgrind = require("valgrind")?;
    let mut annotate = require("callgrind_annotate")?;
    let directory = PrivateDir::new();
    let profile = directory.path("callgrind.out");
    let run = valgrind
        .args(["--tool=callgrind", "--toggle-collect=counted_*", "--compress-strings=no", "--compress-pos=no"])
        .arg(format!("--callgrind-out-file={}", profile.display()))
        .arg(std::env::current_exe().unwrap())
        .arg(COUNTED)
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let output = annotate.args(["--inclusive=yes", "--threshold=100"]).arg(&profile).output().unwrap();
    let listing = String::from_utf8_lossy(&output.stdout).into_owned();
    let count_of = |operation: &Operation| {
        let count = listing.lines().find_map(|row| count_in_row(row, operation));
        (operation.name, count.unwrap_or_else(|| panic!("callgrind does not list `{}`: {listing}", operation.symbol)))
    };
    Some(OPERATIONS.iter().map(count_of).collect())
}

/// The instructions of one operation, if this row of the listing is about it: `12,345 ( 6.78%)  file:counted_guard
/// [program]`.
fn count_in_row(row: &str, operation: &Operation) -> Option<u64> {
    let (_, function) = row.split_once(":counted_")?;
    if function.split_whitespace().next() != Some(operation.symbol) {
        return None;
    }
    let instructions: u64 = row.split_whitespace().next()?.replace(',', "").parse().ok()?;
    Some(instructions / operation.times)
}

/// The compilers of a record: of the library, and of the linked objects.
fn compilers() -> String {
    let first_line = |program: &str| {
        let stdout = Command::new(program).arg("--version").output().map(|output| output.stdout).unwrap_or_default();
        String::from_utf8_lossy(&stdout).lines().next().unwrap_or("none").to_string()
    };
    format!("{}; {}", first_line("rustc"), first_line("gcc"))
}

fn record_text(counts: &[(&str, u64)]) -> String {
    let mut text = compilers() + "\n";
    counts.iter().for_each(|(operation, count)| writeln!(text, "{operation}: {count}").unwrap());
    text
}

fn recorded_count(record: &str, operation: &str) -> Option<u64> {
    record.lines().find_map(|line| line.strip_prefix(operation)?.strip_prefix(": ")?.parse().ok())
}

// ---- the operations -----------------------------------------------------------

/// An operation, the symbol of the function that callgrind counts, and how often the operation runs.
struct Operation {
    name: &'static str,
    symbol: &'static str,
    times: u64,
}

macro_rules! operations {
    ($($function:ident = $symbol:literal, $times:literal, $name:literal;)*) => {
        const OPERATIONS: &[Operation] = &[$(Operation { name: $name, symbol: $symbol, times: $times }),*];
        $(
            /// Runs `body`. Callgrind counts while this function runs.
            // SAFETY: no other symbol of the program begins with `counted_`.
            #[unsafe(export_name = concat!("counted_", $symbol))]
            #[inline(never)]
            fn $function<'a>(body: &mut (dyn FnMut() + 'a)) {
                // Makes the functions different. Otherwise the compiler may merge them.
                black_box($symbol);
                body();
            }
        )*
    };
}

operations! {
    link_small = "link_small", 200, "link a small object and look it up";
    link_lazily = "link_lazily", 200, "link a small object in its lookup";
    remove_small = "remove_small", 200, "remove a small object";
    link_medium = "link_medium", 10, "link a medium object and look it up";
    remove_medium = "remove_medium", 10, "remove a medium object";
    replace = "replace", 100, "replace a small object under its stub";
    patch_graph = "patch_graph", 100, "patch a function by a graph";
    dylib_lifetime = "dylib_lifetime", 100, "create a dylib, link into it, remove it";
    empty_tracker = "empty_tracker", 500, "create and remove an empty tracker";
    ready_address = "ready_address", 1000, "address of a ready symbol";
    ready_lookup = "ready_lookup", 1000, "lookup of a ready symbol, with flags";
    redirect = "redirect", 1000, "redirect a stub";
    guard = "guard", 1000, "enter and leave a guard";
    reload_of_10 = "reload_of_10", 20, "reload an object of a program of 10";
    reload_of_1000 = "reload_of_1000", 20, "reload an object of a program of 1,000";
}

/// How often the operation of this symbol runs.
fn times(symbol: &str) -> u64 {
    OPERATIONS.iter().find(|operation| operation.symbol == symbol).map_or(0, |operation| operation.times)
}

fn run(objects: &Objects) {
    let jit = session(&objects.runtime);
    let dylib = jit.main_dylib().clone();
    link_and_remove(&jit, &dylib, &objects.small, [link_small, remove_small], times("link_small"), LIVE);
    for number in 0..times("link_lazily") {
        let instance = objects.small.instance(4_000_000 + number as u32);
        let mut linked = None;
        link_lazily(&mut || {
            let tracker = dylib.create_tracker().unwrap();
            jit.add_object(&tracker, &instance.entry, instance.bytes.clone()).unwrap();
            linked = Some((dylib.lookup_address(&instance.entry).unwrap(), tracker));
        });
        let (address, tracker) = linked.unwrap();
        check(address, &instance);
        assert!(tracker.remove().unwrap().is_complete());
    }
    link_and_remove(&jit, &dylib, &objects.medium, [link_medium, remove_medium], times("link_medium"), 4);
    replacements(&jit, &dylib, &objects.small);
    patches(&jit);
    dylibs(&jit, &objects.small, &objects.runtime);
    let instance = objects.small.instance(1_000_000);
    let (_, _tracker) = link(&jit, &dylib, &instance);
    let order = [(dylib.clone(), Visibility::All)];
    for _ in 0..times("ready_address") {
        ready_address(&mut || assert!(!jit.session().lookup_address(&order, &instance.entry).unwrap().is_null()));
    }
    let requests = [SymbolRequest::required(&instance.entry)];
    for _ in 0..times("ready_lookup") {
        ready_lookup(&mut || drop(black_box(jit.session().lookup(&order, &requests, RequiredState::Ready).unwrap())));
    }
    for _ in 0..times("empty_tracker") {
        empty_tracker(&mut || drop(dylib.create_tracker().unwrap().remove().unwrap()));
    }
    for _ in 0..times("guard") {
        guard(&mut || drop(black_box(jit.guard())));
    }
    reloads(objects, reload_of_10, 10);
    reloads(objects, reload_of_1000, 1000);
}

/// Reloads one object of a program of so many.
fn reloads(objects: &Objects, reload: Counter, count: u32) {
    const VERSIONS: [&[u8]; 2] =
        [include_bytes!("../docs/examples/scale_1.o"), include_bytes!("../docs/examples/scale_2.o")];
    let jit = session(&objects.runtime);
    let reloader = Reloader::new(&jit, &jit.main_dylib().create_tracker().unwrap()).unwrap();
    for number in 1..count {
        let instance = objects.small.instance(number);
        reloader.add_object(&instance.entry, instance.bytes.clone()).unwrap();
    }
    reloader.add_object("scale.o", VERSIONS[0]).unwrap();
    reloader.link().unwrap();
    for number in 0..times("reload_of_10") + 1 {
        // SAFETY: both versions have the same signature, and nothing calls them.
        let mut body = || drop(unsafe { reloader.reload("scale.o", VERSIONS[(number as usize + 1) % 2]) }.unwrap());
        // The first one begins what later ones have.
        if number == 0 { body() } else { reload(&mut body) }
    }
}

type Counter = fn(&mut (dyn FnMut() + '_));

/// Links an object and removes the oldest one, `times` times, while `live` objects are live. The first `live` links are
/// not counted.
fn link_and_remove(
    jit: &Jit,
    dylib: &JitDylib,
    template: &Template,
    [add, remove]: [Counter; 2],
    times: u64,
    live: u64,
) {
    let mut trackers = VecDeque::new();
    for number in 0..live + times {
        let instance = template.instance(number as u32);
        let is_counted = number >= live;
        let mut linked = None;
        let mut body = || linked = Some(link(jit, dylib, &instance));
        if is_counted {
            add(&mut body)
        } else {
            body()
        }
        let (address, tracker) = linked.unwrap();
        check(address, &instance);
        trackers.push_back(tracker);
        if is_counted {
            let oldest = trackers.pop_front().unwrap();
            remove(&mut || assert!(oldest.remove().unwrap().is_complete()));
        }
    }
}

fn replacements(jit: &Jit, dylib: &JitDylib, template: &Template) {
    let (address, first) = link(jit, dylib, &template.instance(2_000_000));
    let stubs = dylib.create_tracker().unwrap();
    jit.create_stub(&stubs, "stub", address).unwrap();
    let stub = jit.stub(dylib, "stub").unwrap();
    for _ in 0..times("redirect") {
        // SAFETY: `address` is the current target of the stub.
        redirect(&mut || unsafe { stub.redirect(black_box(address)) });
    }
    let mut current = Some(first);
    for number in 0..times("replace") {
        let instance = template.instance(2_000_001 + number as u32);
        replace(&mut || {
            let (address, new) = link(jit, dylib, &instance);
            // SAFETY: the new function has the same signature. The old one is removed after this call, and no thread
            // calls it.
            unsafe { stub.redirect(address) };
            let old = current.replace(new);
            old.into_iter().for_each(|old| drop(old.remove().unwrap()));
        });
    }
}

/// Patches one function again and again by a graph, as a code generator does. Each version replaces the one before, which is freed.
fn patches(jit: &Jit) {
    let dylib = jit.create_dylib("patched").unwrap();
    let patchable = jit.patchable_builder(&dylib, &["patched"]).history(0).build().unwrap();
    for number in 0..times("patch_graph") + 4 {
        let mut body = || {
            let mut graph = GraphBuilder::new("patched");
            let code = graph.add_block(NewBlock::code(&[0xc3][..]));
            graph.add_symbol(NewSymbol::function("patched", code, 0).with_size(1));
            let mut patch = patchable.patch();
            patch.add_graph(graph.finish().unwrap());
            // SAFETY: nothing calls the function, and no version has initialisers.
            let committed = unsafe { patch.link() }.unwrap().commit().unwrap();
            assert!(committed.retired.iter().all(|old| old.is_complete()));
        };
        // The first ones make the dylibs that later ones use again.
        if number < 4 { body() } else { patch_graph(&mut body) }
    }
    jit.session().remove_dylib(&dylib).unwrap();
}

fn dylibs(jit: &Jit, template: &Template, runtime: &[u8]) {
    let library = jit.create_dylib("callees").unwrap();
    jit.add_object(&library.default_tracker().unwrap(), "runtime.o", runtime).unwrap();
    let order = [vec![(library, Visibility::ExportedOnly)], jit.main_dylib().link_order()].concat();
    for number in 0..times("dylib_lifetime") {
        let instance = template.instance(3_000_000 + number as u32);
        dylib_lifetime(&mut || {
            let dylib = jit.create_dylib("of-a-query").unwrap();
            dylib.set_link_order(&order).unwrap();
            drop(link(jit, &dylib, &instance));
            jit.session().remove_dylib(&dylib).unwrap();
        });
    }
}

/// The argument with which this program runs itself under callgrind.
const COUNTED: &str = "--counted";

/// The number of small objects that are live all the time.
const LIVE: u64 = 64;
