//! How many instructions the hot operations take: what no noisy machine changes, so that CI can hold it.
//!
//! `cargo bench --bench instructions` runs itself under callgrind and prints a table. `-- --check` fails if an operation takes
//! a tenth more than `benches/instructions.txt` says, or a tenth less: then the record is out of date. `-- --record` writes
//! it anew. A record holds for the compilers that it names, and nothing is compared under others. Needs gcc and valgrind.

#[path = "link/bed.rs"]
mod bed;
#[path = "link/objects.rs"]
mod objects;

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::hint::black_box;
use std::path::Path;
use std::process::{Command, ExitCode};

use jittison::Jit;
use jittison::session::{JitDylib, RequiredState, SymbolRequest, Visibility};

use bed::{check, link, session};
use objects::{Objects, Template};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let is_asked = |option: &str| arguments.iter().any(|argument| argument == option);
    if is_asked(COUNTED) {
        run(&objects::build().expect("the parent has made them"));
        return ExitCode::SUCCESS;
    }
    let Some(counts) = count() else { return ExitCode::SUCCESS };
    let record = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/instructions.txt");
    if is_asked("--record") {
        std::fs::write(&record, written(&counts)).unwrap();
    }
    let known = std::fs::read_to_string(&record).unwrap_or_default();
    let is_comparable = known.lines().next() == Some(&*compilers());
    let mut fails = false;
    println!("{:<44}{:>14}{:>14}", "instructions per operation", "here", "recorded");
    for (operation, here) in &counts {
        let before = recorded(&known, operation);
        let is_near = before.is_some_and(|before| *here * 10 <= before * 11 && *here * 11 >= before * 10);
        fails |= is_comparable && !is_near;
        let before = before.map_or("-".to_string(), |before| before.to_string());
        println!("{operation:<44}{here:>14}{before:>14}{}", if is_near { "" } else { "   a tenth off" });
    }
    if !is_comparable {
        println!(
            "recorded under other compilers, not compared: {}",
            known.lines().next().unwrap_or("nothing is recorded")
        );
    } else if fails && is_asked("--check") {
        println!("a hot operation has changed by a tenth: find out why, or record it with -- --record");
        return ExitCode::FAILURE;
    } else if !fails {
        println!("instructions hold");
    }
    ExitCode::SUCCESS
}

/// Instructions for one of each operation; `None`, and a line that says so, where something is missing.
fn count() -> Option<Vec<(&'static str, u64)>> {
    objects::build().or_else(|| missing("gcc"))?;
    let directory = std::env::temp_dir().join(format!("jittison-instructions-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let profile = directory.join("callgrind.out");
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--toggle-collect=counted_*", "--compress-strings=no", "--compress-pos=no"])
        .arg(format!("--callgrind-out-file={}", profile.display()))
        .arg(std::env::current_exe().unwrap())
        .arg(COUNTED)
        .output();
    let told = run.ok().map(|run| {
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        Command::new("callgrind_annotate").args(["--inclusive=yes", "--threshold=100"]).arg(&profile).output().unwrap()
    });
    std::fs::remove_dir_all(&directory).unwrap();
    let told = told.or_else(|| missing("valgrind"))?;
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    let of = |operation: &Operation| {
        let count = told.lines().find_map(|row| counted(row, operation));
        (operation.name, count.unwrap_or_else(|| panic!("callgrind does not name `{}`: {told}", operation.symbol)))
    };
    Some(OPERATIONS.iter().map(of).collect())
}

fn missing<T>(what: &str) -> Option<T> {
    println!("skipped: needs {what}");
    None
}

/// Instructions for one operation, if a row of callgrind's is its: `12,345 ( 6.78%)  file:counted_guard [program]`.
fn counted(row: &str, operation: &Operation) -> Option<u64> {
    let (_, function) = row.split_once(":counted_")?;
    if function.split_whitespace().next() != Some(operation.symbol) {
        return None;
    }
    let instructions: u64 = row.split_whitespace().next()?.replace(',', "").parse().ok()?;
    Some(instructions / operation.times)
}

/// Under which compilers a record holds: of the library, and of the objects that are linked.
fn compilers() -> String {
    let first_line = |program: &str| {
        let told = Command::new(program).arg("--version").output().map(|told| told.stdout).unwrap_or_default();
        String::from_utf8_lossy(&told).lines().next().unwrap_or("none").to_string()
    };
    format!("{}; {}", first_line("rustc"), first_line("gcc"))
}

fn written(counts: &[(&str, u64)]) -> String {
    let mut text = compilers() + "\n";
    counts.iter().for_each(|(operation, count)| writeln!(text, "{operation}: {count}").unwrap());
    text
}

fn recorded(known: &str, operation: &str) -> Option<u64> {
    known.lines().find_map(|line| line.strip_prefix(operation)?.strip_prefix(": ")?.parse().ok())
}

// ---- what is counted ----------------------------------------------------------

/// How often a thing is done while instructions are counted, under which symbol of this program.
struct Operation {
    name: &'static str,
    symbol: &'static str,
    times: u64,
}

macro_rules! operations {
    ($($function:ident = $symbol:literal, $times:literal, $name:literal;)*) => {
        const OPERATIONS: &[Operation] = &[$(Operation { name: $name, symbol: $symbol, times: $times }),*];
        $(
            /// Has callgrind count while `body` runs.
            // SAFETY: no other symbol begins with `counted_`.
            #[unsafe(export_name = concat!("counted_", $symbol))]
            #[inline(never)]
            fn $function<'a>(body: &mut (dyn FnMut() + 'a)) {
                // No two of these are alike, or one would stand for all.
                black_box($symbol);
                body();
            }
        )*
    };
}

operations! {
    link_small = "link_small", 200, "link a small object, and look it up";
    link_lazily = "link_lazily", 200, "the same, linked by the lookup";
    remove_small = "remove_small", 200, "remove it";
    link_medium = "link_medium", 10, "link a medium object, and look it up";
    remove_medium = "remove_medium", 10, "remove it, of medium size";
    replace = "replace", 100, "replace a small object under its stub";
    whole_dylib = "whole_dylib", 100, "dylib, small object, remove the dylib";
    empty_tracker = "empty_tracker", 500, "create and remove an empty tracker";
    ready_address = "ready_address", 1000, "address of a ready symbol";
    ready_lookup = "ready_lookup", 1000, "lookup of a ready symbol, with flags";
    redirect = "redirect", 1000, "redirect a stub";
    guard = "guard", 1000, "enter and leave a guard";
}

/// How often the operation of this symbol is done.
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
    dylibs(&jit, &objects.small, &objects.runtime);
    let name = objects.small.instance(1_000_000);
    let (_, _kept) = link(&jit, &dylib, &name);
    let order = [(dylib.clone(), Visibility::All)];
    for _ in 0..times("ready_address") {
        ready_address(&mut || assert!(!jit.session().lookup_address(&order, &name.entry).unwrap().is_null()));
    }
    let requests = [SymbolRequest::required(&name.entry)];
    for _ in 0..times("ready_lookup") {
        ready_lookup(&mut || drop(black_box(jit.session().lookup(&order, &requests, RequiredState::Ready).unwrap())));
    }
    for _ in 0..times("empty_tracker") {
        empty_tracker(&mut || drop(dylib.create_tracker().unwrap().remove().unwrap()));
    }
    for _ in 0..times("guard") {
        guard(&mut || drop(black_box(jit.guard())));
    }
}

type Counter = fn(&mut (dyn FnMut() + '_));

/// Links, and removes the oldest, with so many live ones all the time; the first few are not counted.
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
        // SAFETY: where it leads already.
        redirect(&mut || unsafe { stub.redirect(black_box(address)) });
    }
    let mut current = Some(first);
    for number in 0..times("replace") {
        let instance = template.instance(2_000_001 + number as u32);
        replace(&mut || {
            let (address, new) = link(jit, dylib, &instance);
            // SAFETY: of the same signature; the old one is removed after this, and nobody calls.
            unsafe { stub.redirect(address) };
            let old = current.replace(new);
            old.into_iter().for_each(|old| drop(old.remove().unwrap()));
        });
    }
}

fn dylibs(jit: &Jit, template: &Template, runtime: &[u8]) {
    let library = jit.create_dylib("callees").unwrap();
    jit.add_object(&library.default_tracker().unwrap(), "runtime.o", runtime).unwrap();
    let order = [vec![(library, Visibility::ExportedOnly)], jit.main_dylib().link_order()].concat();
    for number in 0..times("whole_dylib") {
        let instance = template.instance(3_000_000 + number as u32);
        whole_dylib(&mut || {
            let dylib = jit.create_dylib("of-a-query").unwrap();
            dylib.set_link_order(&order);
            drop(link(jit, &dylib, &instance));
            jit.session().remove_dylib(&dylib).unwrap();
        });
    }
}

/// The argument by which this program is told that it is being counted.
const COUNTED: &str = "--counted";

/// Small objects that are live all the time.
const LIVE: u64 = 64;
