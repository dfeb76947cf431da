//! Measures what one element costs in shapes of names, at sizes that grow: aliases, stubs, lazy functions, patched functions,
//! and dylibs in a link order. A cost that grows with the size is a cliff.
//!
//! `cargo bench -p jittison-bench --bench shapes_symbols` prints medians over five rounds, in nanoseconds per element. Patched
//! functions need gcc.

use std::hint::black_box;
use std::time::Instant;

use jittison::base::{ExecutorAddr, Name};
use jittison::session::{
    Alias, ExecutionSession, JitDylib, RequiredState, ResourceTracker, SymbolFlags, SymbolRequest, Visibility,
};
use jittison::{Jit, PreparedPatch};
use jittison_test_support as support;

const ROUNDS: usize = 5;
const FLAGS: SymbolFlags = SymbolFlags::EXPORTED;

fn main() {
    println!("{:<62}{:>9}{:>14}", "nanoseconds per element", "elements", "median");
    for count in [100, 1_000, 10_000] {
        row("aliases of one symbol, looked up one by one", count, || aliases(count, false, one_by_one));
        row("aliases of one symbol, in one lookup", count, || aliases(count, false, at_once));
        row("chain of aliases, one lookup of its end", count, || aliases(count, true, last));
    }
    for count in [1_000, 10_000, 100_000] {
        row("stubs, created together", count, || stubs(count).1);
    }
    for count in [1_000, 100_000] {
        row("stubs, redirected by name", count, || redirects(count));
    }
    for count in [100, 1_000, 5_000] {
        row("lazy functions, defined together", count, || lazy_functions(count));
    }
    for count in [100, 1_000, 4_000] {
        row("patchable functions, first commit", count, || first_commit(count));
    }
    for count in [10, 100, 1_000, 5_000] {
        link_order(count);
    }
    lookups_on_threads();
}

fn row(title: &str, elements: usize, mut per_element: impl FnMut() -> f64) {
    let mut rounds: Vec<f64> = (0..ROUNDS).map(|_| per_element()).collect();
    rounds.sort_by(f64::total_cmp);
    println!("{title:<62}{elements:>9}{:>14.1}", rounds[ROUNDS / 2]);
}

/// Nanoseconds per element.
fn timed(elements: usize, body: impl FnOnce()) -> f64 {
    let start = Instant::now();
    body();
    start.elapsed().as_secs_f64() * 1e9 / elements as f64
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("name_{number}")).collect()
}

/// `count` aliases in one unit: all of one ready symbol, or each of the one before.
fn aliases(count: usize, is_chain: bool, look_up: fn(&JitDylib, &[String]) -> ExecutorAddr) -> f64 {
    let session = ExecutionSession::new();
    let dylib = session.create_dylib("main").unwrap();
    let code = dylib.create_tracker().unwrap();
    let unit = code.define_materializing("code", [(Name::new("aliasee"), FLAGS)]).unwrap();
    unit.notify_resolved(|_| Some(ExecutorAddr::new(8))).unwrap();
    unit.notify_emitted(Vec::new()).unwrap();
    let names = names(count);
    let aliasee = |index: usize| if is_chain && index > 0 { names[index - 1].as_str() } else { "aliasee" };
    let alias = |(index, name): (usize, &String)| Alias {
        name: Name::new(name),
        aliasee: Name::new(aliasee(index)),
        flags: FLAGS,
    };
    let tracker = dylib.create_tracker().unwrap();
    tracker.define_aliases(&names.iter().enumerate().map(alias).collect::<Vec<_>>()).unwrap();
    timed(count, || assert_eq!(look_up(&dylib, &names), ExecutorAddr::new(8)))
}

fn one_by_one(dylib: &JitDylib, names: &[String]) -> ExecutorAddr {
    names.iter().fold(ExecutorAddr::NULL, |_, name| dylib.lookup_address(name).unwrap())
}

fn at_once(dylib: &JitDylib, names: &[String]) -> ExecutorAddr {
    let requests: Vec<_> = names.iter().map(|name| SymbolRequest::required(name)).collect();
    dylib.lookup(&requests, RequiredState::Ready).unwrap().last().unwrap().address
}

fn last(dylib: &JitDylib, names: &[String]) -> ExecutorAddr {
    dylib.lookup_address(names.last().unwrap()).unwrap()
}

/// A session with stubs, their tracker, and the time of their creation.
fn stubs(count: usize) -> ((Jit, ResourceTracker, Vec<String>), f64) {
    let (jit, names) = (Jit::new().unwrap(), names(count));
    let tracker = jit.main_dylib().create_tracker().unwrap();
    let stubs: Vec<_> = names.iter().map(|name| (name.as_str(), ExecutorAddr::new(8))).collect();
    let time = timed(count, || jit.create_stubs(&tracker, &stubs).unwrap());
    ((jit, tracker, names), time)
}

fn redirects(count: usize) -> f64 {
    let ((jit, _tracker, names), _) = stubs(count);
    let operations = 200_000;
    timed(operations, || {
        for number in 0..operations {
            // SAFETY: nothing calls the stubs.
            unsafe { jit.redirect_stub(jit.main_dylib(), &names[number * 7919 % count], ExecutorAddr::new(16)) }
                .unwrap();
        }
    })
}

fn lazy_functions(count: usize) -> f64 {
    let jit = Jit::new().unwrap();
    let source = jit.create_dylib("source").unwrap();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    let alias = |name: &String| Alias { name: Name::new(name), aliasee: Name::new("function"), flags: FLAGS };
    let aliases: Vec<_> = names(count).iter().map(alias).collect();
    timed(count, || jit.lazy_reexport(&tracker, &source, &aliases).unwrap())
}

fn first_commit(count: usize) -> f64 {
    let names = names(count);
    let source: String = names.iter().map(|name| format!("long {name}(long n) {{ return n; }}\n")).collect();
    let Some(object) = support::c(&source) else { return f64::NAN };
    let jit = Jit::new().unwrap();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let functions = jit.patchable(jit.main_dylib(), &names).unwrap();
    let mut patch = functions.patch();
    patch.add_object("version.o", object).unwrap();
    // SAFETY: the object has no initialisers.
    let linked: PreparedPatch = unsafe { patch.link() }.unwrap();
    timed(count, || drop(linked.commit().unwrap()))
}

/// Searches from a dylib that links against `count` others. Each is repeated, and its first time is not counted.
fn link_order(count: usize) {
    let jit = Jit::new().unwrap();
    let own = jit.create_dylib("own").unwrap();
    let others: Vec<_> = (0..count).map(|number| jit.create_dylib(&format!("other {number}")).unwrap()).collect();
    own.set_link_order(&others.iter().map(|other| (other.clone(), Visibility::ExportedOnly)).collect::<Vec<_>>())
        .unwrap();
    let externals = ["first_external", "second_external", "third_external", "fourth_external"];
    for name in externals {
        support::define_absolute(&others[count - 1], name, support_target());
    }
    support::define_absolute(&own, "own_function", support_target());
    let operations = 20_000;
    let repeated = |title: &str, operations: usize, body: &dyn Fn()| {
        body();
        body();
        row(title, count, || timed(operations, || (0..operations).for_each(|_| body())));
    };
    repeated("address of a name in the last of n dylibs", operations, &|| {
        black_box(jit.address_of(&own, "first_external").unwrap());
    });
    repeated("address of a name that no dylib of n defines", operations, &|| {
        black_box(jit.address_of(&own, "nowhere").unwrap_err());
    });
    repeated("typed lookup of a name of the dylib itself, before n dylibs", operations, &|| {
        // SAFETY: the function is never called.
        black_box(unsafe { jit.lookup_in::<extern "C" fn()>(&own, "own_function") }.unwrap());
    });
    let calls: String = externals.iter().map(|name| format!("long {name}(void); ")).collect();
    let sum = externals.map(|name| format!("{name}()")).join(" + ");
    let Some(object) = support::c(&format!("{calls} long module(void) {{ return {sum}; }}")) else { return };
    repeated("link and remove a module with 4 externals behind n dylibs", 2_000, &|| {
        let tracker = own.create_tracker().unwrap();
        jit.link_object(&tracker, "module.o", &object[..]).unwrap();
        drop(tracker.remove().unwrap());
    });
}

/// An address near the code memory would do; the modules are never called.
fn support_target() -> u64 {
    target as *const () as u64
}

extern "C" fn target() -> i64 {
    1
}

/// Lookups of one thread, and of two that run at once: nanoseconds per lookup and thread.
fn lookups_on_threads() {
    let Some(object) = support::c("long function(long n) { return n; }") else { return };
    let jit = Jit::new().unwrap();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    jit.link_object(&tracker, "function.o", &object[..]).unwrap();
    let operations = 200_000;
    let typed = || {
        // SAFETY: the function has this signature.
        black_box(unsafe { jit.lookup::<extern "C" fn(i64) -> i64>("function") }.unwrap());
    };
    let guarded = || {
        let guard = jit.guard();
        // SAFETY: as above.
        black_box(unsafe { jit.symbol::<extern "C" fn(i64) -> i64>(&guard, jit.main_dylib(), "function") }.unwrap());
    };
    let address = || _ = black_box(jit.address_of(jit.main_dylib(), "function").unwrap());
    let kinds: [(&str, &(dyn Fn() + Sync)); 3] =
        [("typed lookup", &typed), ("symbol with guard", &guarded), ("address", &address)];
    for (title, body) in kinds {
        for threads in [1, 2] {
            row(&format!("{title}, threads at once"), threads, || {
                timed(operations, || {
                    std::thread::scope(|scope| {
                        for _ in 0..threads {
                            scope.spawn(|| (0..operations).for_each(|_| body()));
                        }
                    });
                })
            });
        }
    }
}
