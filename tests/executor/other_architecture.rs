//! Executors of another architecture: this process is of x86-64, and they are of AArch64, under an emulator.

use std::env;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use jittison::base::Name;
use jittison::executor::ExecutorProcess;
use jittison::link::{BuiltGraph, GraphBuilder, NewBlock, NewSymbol};
use jittison::platform::Profile;
use jittison::session::{Alias, SymbolFlags};
use jittison::{CompileRequest, CompiledFunction, Error, ErrorKind, Jit, Reloader};
use jittison_test_tools::{INPUT, OUTPUT, PrivateDir, build, require, require_that, require_x86_64};

use crate::far::TOKEN;
use crate::{Remote, c};

/// The variable with the path of the executor. `.ci/aarch64 --executor` builds it.
const EXECUTOR: &str = "JITTISON_AARCH64_EXECUTOR";

/// A command that runs the executor for AArch64. `None`: the test is skipped.
fn executor_command() -> Option<Command> {
    if !require_x86_64() {
        return None;
    }
    let program = env::var_os(EXECUTOR).filter(|program| Path::new(program).is_file());
    require_that(
        program.is_some(),
        &format!("{EXECUTOR}, the path of an executor that `.ci/aarch64 --executor` builds"),
    );
    let program = program?;
    let mut command = require("qemu-aarch64")?;
    command.args(["-L", "/usr/aarch64-linux-gnu"]).arg(program);
    Some(command)
}

/// An object of C for AArch64. `None` without a compiler: the test is skipped.
fn aarch64(source: &str) -> Option<Vec<u8>> {
    compiled("aarch64-linux-gnu-gcc", &["-x", "c", "-O1", "-fPIC"], source)
}

/// An object of C++ for AArch64.
fn aarch64_cpp(source: &str) -> Option<Vec<u8>> {
    compiled("aarch64-linux-gnu-g++", &["-x", "c++", "-O1", "-fPIC"], source)
}

fn compiled(tool: &str, flags: &[&str], source: &str) -> Option<Vec<u8>> {
    build(tool, source.as_bytes(), &[flags, &["-c", "-o", OUTPUT, INPUT]].concat())
}

/// A session with an executor for AArch64.
fn start() -> Option<Remote> {
    let executor = ExecutorProcess::start_command(executor_command()?).unwrap();
    let jit = Jit::builder().executor(&executor).library("libstdc++.so.6").trap_freed_code(true).build().unwrap();
    Some(Remote { executor, jit })
}

#[test]
fn a_function_is_linked_for_the_executor_called_with_integers_and_removed() {
    let source = "long sum(long a, long b) { return a + b; } int getpid(void); long process(void) { return getpid(); } \
                  long ten(long a, long b, long c, long d, long e, long f, long g, long h, long i, long j) \
                  { return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + 9 * i + 10 * j; }";
    let Some(object) = aarch64(source) else { return };
    let Some(remote) = start() else { return };
    assert_eq!(remote.executor.machine(), 183);
    let tracker = remote.add("sum.o", &object);
    assert_eq!(remote.call("sum", &[2, u64::MAX]), 1);
    assert_ne!(remote.call("process", &[]), u64::from(std::process::id()));
    // Eight arguments are in registers there, where this process has six.
    assert_eq!(remote.call("ten", &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]), 385);
    let usage = remote.jit.usage(&tracker);
    assert!(usage.code >= 40, "{usage:?}");
    assert_eq!(remote.jit.memory_statistics().live_bytes, usage.code + usage.read_only + usage.data);
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(remote.jit.memory_statistics().live_bytes, 0);
    let missing = remote.jit.remote_function(remote.jit.main_dylib(), "sum").unwrap_err();
    assert!(matches!(missing.kind(), ErrorKind::SymbolsNotFound { .. }), "{missing}");
}

#[test]
fn data_and_the_functions_and_variables_of_the_libraries_there_are_reached() {
    let source = r#"
        #include <stdio.h>
        #include <string.h>
        extern long shared;
        long next(void);
        static const char *const texts[] = {"one", "twelve"};
        static char large[1 << 20];
        long lengths(void) { return strlen(texts[0]) * 10 + strlen(texts[1]); }
        long of_other(void) { shared += 5; return next() + shared; }
        long zero(void) { large[70000] += 3; return large[70000] + large[1 << 19]; }
        long printed(void) { return puts("printed by AArch64") >= 0 && fflush(stdout) == 0; }
    "#;
    let other = "#include <stdatomic.h>\nlong shared = 100; static atomic_long count; long next(void) { return atomic_fetch_add(&count, 1) + 1; }";
    let (Some(first), Some(second)) = (aarch64(source), aarch64(other)) else { return };
    let Some(remote) = start() else { return };
    let trackers = [remote.add("first.o", &first), remote.add("second.o", &second)];
    assert_eq!(remote.call("lengths", &[]), 36);
    // `atomic_fetch_add` is a function of the compiler's support library, which the executor offers.
    assert_eq!([remote.call("of_other", &[]), remote.call("of_other", &[])], [106, 112]);
    assert_eq!([remote.call("zero", &[]), remote.call("zero", &[])], [3, 6]);
    assert_eq!(remote.call("printed", &[]), 1);
    // What code there has written stays when other code is linked.
    let Some(third) = aarch64("long third(void) { return 3; }") else { return };
    let _third = remote.add("third.o", &third);
    assert_eq!([remote.call("third", &[]), remote.call("zero", &[])], [3, 9]);
    // A dependant holds what it refers to.
    let [first, second] = trackers;
    let removal = second.remove().unwrap();
    assert!(!removal.is_complete());
    assert_eq!(remote.call("of_other", &[]), 118);
    assert!(first.remove().unwrap().is_complete() && removal.is_complete());
}

#[test]
fn initialisers_finalisers_and_exit_handlers_run_in_order() {
    let source = r#"
        #include <stdlib.h>
        extern long steps;
        static void note(long step) { steps = steps * 10 + step; }
        __attribute__((constructor)) static void begin(void) { note(1); }
        static void handler(void) { note(3); }
        __attribute__((destructor)) static void end(void) { note(4); }
        long run(void) { note(2); atexit(handler); return steps; }
    "#;
    let (Some(object), Some(steps)) = (aarch64(source), aarch64("long steps; long get(void) { return steps; }")) else {
        return;
    };
    let Some(remote) = start() else { return };
    let _steps = remote.add("steps.o", &steps);
    let tracker = remote.add("order.o", &object);
    assert_eq!(remote.call("run", &[]), 12);
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(remote.call("get", &[]), 1234);
}

#[test]
fn an_indirect_function_is_resolved_there_with_the_features_of_that_processor() {
    let source = r#"
        #include <sys/auxv.h>
        #include <stdint.h>
        struct features { uint64_t size, first, second; };
        static long calls;
        static long one(long x) { return x + 1; }
        static long other(long x) { return x + 100; }
        static void *resolve(uint64_t word, const struct features *all) {
            calls++;
            uint64_t first = getauxval(AT_HWCAP);
            return first && word == (first | 1ul << 62) && all->size == 24 && all->first == first
                && all->second == getauxval(AT_HWCAP2) ? one : other;
        }
        long pick(long x) __attribute__((ifunc("resolve")));
        long use(long x) { return pick(x) * 10 + calls; }
    "#;
    let (Some(object), Some(user)) = (aarch64(source), aarch64("long pick(long); long far(void) { return pick(5); }"))
    else {
        return;
    };
    let Some(remote) = start() else { return };
    let _user = remote.add("user.o", &user);
    let tracker = remote.add("pick.o", &object);
    assert_eq!([remote.call("use", &[40]), remote.call("use", &[41])], [411, 421]);
    assert_eq!([remote.call("far", &[]), remote.call("pick", &[6])], [6, 7]);
    drop(tracker);
}

#[test]
fn thread_local_variables_of_dynamic_and_static_models_belong_to_the_thread_that_calls() {
    // Shares the process: the static space is that of the executor's process.
    let next = "long next(void) { return ++count; }";
    let sources = [
        // Descriptors, the general dynamic model, and the initial-exec model, which needs a static offset there.
        (&["-fPIC"][..], format!("static _Thread_local long count = 5; {next}")),
        (&["-fPIC", "-mtls-dialect=trad"], format!("_Thread_local long count = 5; {next}")),
        (&["-fPIC", "-ftls-model=initial-exec"], format!("static _Thread_local long count = 5; {next}")),
    ];
    let Some(remote) = start() else { return };
    for (flags, source) in sources {
        let flags = [&["-x", "c", "-O1"], flags].concat();
        let Some(object) = compiled("aarch64-linux-gnu-gcc", &flags, &source) else { return };
        let Some(user) = aarch64("extern _Thread_local long count; long peek(void) { return count; }") else { return };
        let tracker = remote.add("count.o", &object);
        assert_eq!([remote.call("next", &[]), remote.call("next", &[])], [6, 7], "{flags:?}");
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(remote.call("next", &[]), 6, "{flags:?}"));
        });
        if !source.starts_with("static") {
            let user = remote.add("user.o", &user);
            assert_eq!(remote.call("peek", &[]), 7);
            assert!(user.remove().unwrap().is_complete());
        }
        assert_eq!(remote.call("next", &[]), 8, "{flags:?}");
        assert!(tracker.remove().unwrap().is_complete());
    }
}

#[test]
fn exceptions_cross_objects_and_leave_with_their_unwind_tables() {
    let (Some(thrower), Some(catcher)) = (
        aarch64_cpp("struct Number { long value; }; void thrower(long n) { if (n > 3) throw Number{n}; }"),
        aarch64_cpp(
            "struct Number { long value; }; void thrower(long n); static long unwound; \
             struct Unwinds { ~Unwinds() { unwound++; } }; \
             extern \"C\" long caught(long n) { try { Unwinds local; thrower(n); return 0; } \
             catch (Number &number) { return number.value * 10 + unwound; } }",
        ),
    ) else {
        return;
    };
    let Some(remote) = start() else { return };
    for _ in 0..3 {
        // The memory of a round is that of the one before.
        let trackers = [remote.add("thrower.o", &thrower), remote.add("catcher.o", &catcher)];
        assert_eq!([2, 4, 50].map(|n| remote.call("caught", &[n])), [0, 42, 503]);
        assert!(trackers.into_iter().rev().all(|tracker| tracker.remove().unwrap().is_complete()));
    }
}

#[test]
fn a_lazy_function_is_linked_at_its_first_call_and_a_stub_is_redirected_under_its_caller() {
    let source = "long lazy(long); long run(long n) { return lazy(n) + 1; } \
                  double lazy_float(double, long, double, long); \
                  long floats(void) { return (long)lazy_float(1.5, 2, 4.25, 3); } \
                  long stub(void); long by_stub(void) { return stub() + 1000; }";
    let bodies = "long body(long n) { return n * 2; } double floating(double a, long b, double c, long d) { return a * b + c * d; } \
                  long one(void) { return 1; } long two(void) { return 2; }";
    let (Some(caller), Some(callee)) = (aarch64(source), aarch64(bodies)) else { return };
    let Some(remote) = start() else { return };
    let main = remote.jit.main_dylib();
    let trackers = [remote.add("caller.o", &caller), remote.add("callee.o", &callee)];
    let lazy = main.create_tracker().unwrap();
    let alias = |name, aliasee| Alias {
        name: Name::new(name),
        aliasee: Name::new(aliasee),
        flags: SymbolFlags::EXPORTED | SymbolFlags::CALLABLE,
    };
    remote.jit.lazy_reexport(&lazy, main, &[alias("lazy", "body"), alias("lazy_float", "floating")]).unwrap();
    let address = |name| remote.jit.address_of(main, name).unwrap();
    remote.jit.create_stubs(&lazy, &[("stub", address("one"))]).unwrap();
    // The entry passes on all registers of arguments, those of numbers with a point, too.
    assert_eq!([remote.call("run", &[20]), remote.call("run", &[21]), remote.call("floats", &[])], [41, 43, 15]);
    assert_eq!(remote.call("by_stub", &[]), 1001);
    let stub = remote.jit.stub(main, "stub").unwrap();
    // SAFETY: a function of the executor with the signature that callers use.
    unsafe { stub.redirect(address("two")) };
    assert_eq!(remote.call("by_stub", &[]), 1002);
    drop(stub);
    let [caller, callee] = trackers;
    assert!(!lazy.remove().unwrap().is_complete(), "the caller holds the stubs");
    assert!(caller.remove().unwrap().is_complete() && callee.remove().unwrap().is_complete());
    assert_eq!(remote.jit.memory_statistics().live_bytes, 0);
}

#[test]
fn a_function_is_replaced_while_threads_call_it_there() {
    let version = |number: u32| {
        aarch64(&format!(
            "long version(void) {{ long n = {number}; for (volatile int i = 0; i < 200; i++); return n * 1000 + {number}; }}"
        ))
    };
    let versions: Vec<_> = (1..=3).filter_map(version).collect();
    if versions.is_empty() {
        return;
    }
    let Some(remote) = start() else { return };
    let jit = &remote.jit;
    let kernels =
        jit.patchable_builder(jit.main_dylib(), &["version"]).history(0).max_versions(usize::MAX).build().unwrap();
    let commit = |object: &[u8]| {
        let mut patch = kernels.patch();
        patch.add_object("version.o", object).unwrap();
        // SAFETY: the object may run, and every version has this signature.
        drop(unsafe { patch.link() }.unwrap().commit().unwrap());
    };
    commit(&versions[0]);
    let function = jit.remote_function(jit.main_dylib(), "version").unwrap();
    let (is_over, calls) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let value = function.call(&[]).unwrap();
                assert!((1..=3).contains(&(value / 1000)) && value / 1000 == value % 1000, "{value}");
                calls.fetch_add(1, Ordering::Relaxed);
            }
        });
        for round in 1..30 {
            commit(&versions[round % 3]);
            assert_eq!(function.call(&[]).unwrap(), (round as u64 % 3 + 1) * 1001, "after the commit");
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(calls.load(Ordering::Relaxed) > 0);
}

#[test]
fn calls_of_a_tier_are_counted_there_and_the_next_tier_comes() {
    let tier = |number: u32, symbol: &str| aarch64(&format!("long {symbol}(void) {{ return {number}; }}"));
    if tier(1, "probe").is_none() {
        return;
    }
    let Some(remote) = start() else { return };
    let compile = move |request: &CompileRequest<'_>| -> Result<CompiledFunction, Error> {
        let object = tier(request.tier, request.symbol).ok_or_else(|| Error::other("no compiler"))?;
        Ok(CompiledFunction::from_object(&format!("tier{}.o", request.tier), object))
    };
    let layer = remote.jit.reoptimize_layer(compile, &[5]);
    // SAFETY: the functions have the signature with which this test calls them, and may run.
    let functions = unsafe { layer.add_on_demand(remote.jit.main_dylib(), &["tiered"]) }.unwrap();
    let tiered = remote.jit.remote_function(remote.jit.main_dylib(), "tiered").unwrap();
    assert!((0..5).all(|_| tiered.call(&[]).unwrap() == 1));
    let end = Instant::now() + Duration::from_secs(60);
    while tiered.call(&[]).unwrap() != 2 || functions.tier("tiered") != Some(2) {
        assert!(Instant::now() < end, "the tier does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn an_object_is_reloaded_and_its_variables_keep_their_values() {
    let source = |step: u32| {
        let flags = ["-x", "c", "-O1", "-fPIC", "-ffunction-sections", "-fdata-sections", "-fno-section-anchors"];
        let source = format!("static long hidden = 100; long run(void) {{ hidden += {step}; return hidden; }}");
        compiled("aarch64-linux-gnu-gcc", &flags, &source)
    };
    let (Some(one), Some(two)) = (source(1), source(10)) else { return };
    let Some(remote) = start() else { return };
    let tracker = remote.jit.main_dylib().create_tracker().unwrap();
    let reloader = Reloader::new(&remote.jit, &tracker).unwrap();
    reloader.add_object("a.o", &one[..]).unwrap();
    reloader.link().unwrap();
    let run = remote.jit.remote_function(remote.jit.main_dylib(), "run").unwrap();
    assert_eq!(run.call(&[]).unwrap(), 101);
    // SAFETY: the function keeps its signature, and nothing uses an address of a version.
    unsafe { reloader.reload("a.o", &two[..]) }.unwrap();
    assert_eq!(run.call(&[]).unwrap(), 111);
}

#[test]
fn linked_code_finds_linked_code_and_the_libraries_by_name() {
    let source = r#"
        #define _GNU_SOURCE
        #include <dlfcn.h>
        long answer(void) { return 42; }
        long by_name(void) { long (*f)(void) = dlsym(RTLD_DEFAULT, "answer"); return f ? f() : -1; }
        long of_libc(void) { int (*f)(const char *) = dlsym(RTLD_DEFAULT, "atoi"); return f ? f("17") : -1; }
        long name_of(void) { Dl_info info; return dladdr((void *)answer, &info) && info.dli_sname && info.dli_saddr == (void *)answer; }
    "#;
    let Some(object) = aarch64(source) else { return };
    let Some(remote) = start() else { return };
    let _tracker = remote.add("dl.o", &object);
    assert_eq!(["by_name", "of_libc", "name_of"].map(|name| remote.call(name, &[])), [42, 17, 1]);
}

#[test]
fn removed_code_is_overwritten_with_what_traps_there() {
    let (Some(object), Some(reader)) = (
        aarch64("long one(void) { return 1; }"),
        aarch64("unsigned read(const unsigned *at) { return *at; } long jump(long (*at)(void)) { return at() + 1; }"),
    ) else {
        return;
    };
    let Some(remote) = start() else { return };
    let _reader = remote.add("reader.o", &reader);
    let tracker = remote.add("one.o", &object);
    assert_eq!(remote.call("one", &[]), 1);
    let address = remote.jit.address_of(remote.jit.main_dylib(), "one").unwrap().value();
    assert_ne!(remote.call("read", &[address]), 0);
    assert!(tracker.remove().unwrap().is_complete());
    // `udf #0`
    assert_eq!(remote.call("read", &[address]), 0);
    let jump = remote.jit.remote_function(remote.jit.main_dylib(), "jump").unwrap();
    let error = jump.call(&[address]).unwrap_err();
    assert!(error.to_string().contains("signal 4 (SIGILL)"), "{error}");
    assert!(error.to_string().contains(" in jump+"), "{error}");
}

/// A graph that defines the function `one` with this code.
fn graph(mut graph: GraphBuilder, code: &[u8]) -> BuiltGraph {
    let block = graph.add_block(NewBlock::code(code));
    let symbol = graph.add_symbol(NewSymbol::function("one", block, 0).with_size(code.len() as u64));
    graph.add_unwind(symbol, code.len() as u32, &[]);
    graph.finish().unwrap()
}

#[test]
fn a_graph_for_the_machine_of_the_executor_is_linked_there() {
    let Some(remote) = start() else { return };
    let tracker = remote.jit.main_dylib().create_tracker().unwrap();
    assert!(GraphBuilder::for_machine("graph", 3).is_none());
    let builder = GraphBuilder::for_machine("graph", remote.executor.machine()).unwrap();
    // `mov x0, #7; ret`
    let code = [0xd280_00e0_u32, 0xd65f_03c0].map(u32::to_le_bytes).concat();
    remote.jit.add_graph(&tracker, graph(builder, &code)).unwrap();
    assert_eq!(remote.call("one", &[]), 7);
}

#[test]
fn an_object_or_a_graph_of_this_process_s_architecture_is_refused_by_name_and_nothing_is_done() {
    let (Some(other), Some(object)) = (c("long one(void) { return 2; }"), aarch64("long one(void) { return 1; }"))
    else {
        return;
    };
    let Some(remote) = start() else { return };
    let tracker = remote.jit.main_dylib().create_tracker().unwrap();
    let graph = || graph(GraphBuilder::new("graph"), &[0; 16]);
    let refusals = [
        ("one.o", remote.jit.add_object(&tracker, "one.o", &other[..])),
        ("one.o", remote.jit.link_object(&tracker, "one.o", &other[..])),
        ("graph", remote.jit.add_graph(&tracker, graph())),
        ("graph", remote.jit.link_graph(&tracker, graph())),
    ];
    for (name, refused) in refusals {
        let error = refused.unwrap_err().to_string();
        assert!([name, "x86-64 (62)", "AArch64 (183)"].iter().all(|part| error.contains(part)), "{error}");
    }
    assert_eq!(remote.jit.memory_statistics().live_bytes, 0);
    // The name is free.
    remote.jit.add_object(&tracker, "one.o", &object[..]).unwrap();
    assert_eq!(remote.call("one", &[]), 1);
    // Nor does an executor of this process's architecture link what is of the other one.
    let near = Remote::start();
    let tracker = near.jit.main_dylib().create_tracker().unwrap();
    let error = near.jit.add_object(&tracker, "one.o", &object[..]).unwrap_err().to_string();
    assert!(error.contains("one.o") && error.contains("AArch64 (183)"), "{error}");
}

#[test]
fn calls_with_a_type_and_functions_of_this_process_are_refused_by_name() {
    let Some(object) = aarch64("long one(void) { return 1; }") else { return };
    let Some(remote) = start() else { return };
    let tracker = remote.add("one.o", &object);
    let check = |refused: Error, name: &str| {
        let error = refused.to_string();
        let parts = [name, "x86-64 (62)", "AArch64 (183)", "nothing was done", "`Jit::remote_function`"];
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    };
    // SAFETY: the function has this type.
    check(unsafe { remote.jit.lookup::<extern "C" fn() -> i64>("one") }.unwrap_err(), "`one`");
    extern "C" fn twice(n: i64) -> i64 {
        2 * n
    }
    let twice = twice as extern "C" fn(i64) -> i64;
    // SAFETY: the function takes any number.
    check(unsafe { remote.jit.define_function(&tracker, "twice", twice) }.unwrap_err(), "`twice`");
    assert!(remote.jit.main_dylib().symbol_state("twice").is_none());
    let kernels = remote.jit.patchable_builder(remote.jit.main_dylib(), &["version"]).build().unwrap();
    let Some(version) = aarch64("long version(void) { return 1; }") else { return };
    let mut patch = kernels.patch();
    patch.add_object("version.o", version).unwrap();
    // SAFETY: the object may run, and the function has this type.
    let prepared = unsafe { patch.link() }.unwrap();
    // SAFETY: as above.
    check(unsafe { prepared.lookup::<extern "C" fn() -> i64>("version") }.unwrap_err(), "`version`");
    drop(prepared.commit().unwrap());
    assert_eq!([remote.call("one", &[]), remote.call("version", &[])], [1, 1]);
    let refused = Jit::builder().executor(&remote.executor).profiler(Some(Profile::JitDump)).build().unwrap_err();
    assert!(refused.to_string().contains("executors of this machine and its architecture"), "{refused}");
}

#[test]
fn a_crash_is_reported_with_its_signal_and_its_functions() {
    let source = "__attribute__((noinline)) long deeper(void) { return *(volatile long *)16; } \
                  long crash(void) { return deeper() + 1; }";
    let Some(object) = aarch64(source) else { return };
    let Some(remote) = start() else { return };
    let tracker = remote.add("crash.o", &object);
    let crash = remote.jit.remote_function(remote.jit.main_dylib(), "crash").unwrap();
    let error = crash.call(&[]).unwrap_err().to_string();
    assert!(error.contains("signal 11 (SIGSEGV)") && error.contains("at the address 0x10 in deeper+0x"), "{error}");
    assert!(error.contains("in crash.o of dylib `main`, called by crash+"), "{error}");
    drop(crash);
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(remote.jit.memory_statistics().live_bytes, 0);
}

#[test]
fn a_session_is_restarted_in_another_executor_of_its_architecture_only() {
    let Some(object) = aarch64("static long count; long next(void) { return ++count; }") else { return };
    let Some(command) = executor_command() else { return };
    let executor = ExecutorProcess::start_command(command).unwrap();
    let jit = Jit::builder().executor(&executor).keep_objects().build().unwrap();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    jit.link_object(&tracker, "next.o", &object[..]).unwrap();
    executor.kill().unwrap();
    let error = jit.restart(&crate::start(), |_| Ok(())).unwrap_err().to_string();
    assert!(error.contains("next.o") && error.contains("AArch64 (183)"), "{error}");
    let Some(other) = start() else { return };
    let restarted = jit.restart(&other.executor, |_| Ok(())).unwrap();
    let new = restarted.jit();
    assert_eq!(new.remote_function(new.main_dylib(), "next").unwrap().call(&[]).unwrap(), 1);
}

/// An executor that listens on the loopback interface. It is killed when this is dropped, if it has not ended.
struct Listening {
    address: std::net::SocketAddr,
    child: Child,
}

impl Drop for Listening {
    fn drop(&mut self) {
        // It fails only if the process has ended.
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }
}

fn listen() -> Option<Listening> {
    let mut command = executor_command()?;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    command.args(["--listen", "stdin"]).env("JITTISON_EXECUTOR_TOKEN", TOKEN).stdin(OwnedFd::from(listener));
    Some(Listening { address, child: command.spawn().unwrap() })
}

#[test]
fn a_program_runs_on_another_architecture_that_is_reached_by_tcp() {
    let source = r#"
        #include <pthread.h>
        #include <stdio.h>
        #include <stdlib.h>
        static _Thread_local long mine = 7;
        static long sum;
        static void *add(void *n) { mine += (long)n; return (void *)mine; }
        static void at_end(void) { printf("at the end: %ld\n", sum); }
        __attribute__((constructor)) static void begin(void) { atexit(at_end); puts("constructed"); }
        int main(int argc, char **argv) {
            for (long n = 0; n < 3; n++) {
                pthread_t thread; void *result;
                pthread_create(&thread, NULL, add, (void *)n); pthread_join(thread, &result); sum += (long)result;
            }
            printf("%d %s %ld %ld\n", argc, argv[1], sum, mine);
            return 42;
        }
    "#;
    let Some(object) = aarch64(source) else { return };
    let Some(listening) = listen() else { return };
    let folder = PrivateDir::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_jittison"));
    command.args(["run", &format!("--executor=tcp:{}", listening.address)]);
    command.arg(folder.write("program.o", object)).args(["--", "word"]).env("JITTISON_EXECUTOR_TOKEN", TOKEN);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text, "constructed\n2 word 24 7\nat the end: 24\n", "{output:?}");
    assert_eq!(output.status.code(), Some(42), "{output:?}");
}
