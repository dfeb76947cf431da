//! What linked code does in an executor.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use jittison::base::Name;
use jittison::executor::ExecutorProcess;
use jittison::platform::Profile;
use jittison::session::{Alias, SymbolFlags};
use jittison::{ErrorKind, Jit, Reloader};

use jittison_test_tools::{PrivateDir, own_process, this_test};

use crate::{Remote, c, cpp, tools};

#[test]
fn a_function_runs_in_the_other_process_and_is_removed() {
    let Some(object) =
        c("int getpid(void); long sum(long a, long b) { return a + b; } long process(void) { return getpid(); }")
    else {
        return;
    };
    let remote = Remote::start();
    let tracker = remote.add("sum.o", &object);
    assert_eq!(remote.call("sum", &[2, 3]), 5);
    assert_eq!(remote.call("process", &[]), u64::from(remote.executor.id()));
    assert_ne!(remote.executor.id(), std::process::id());
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(remote.jit.memory_statistics().live_bytes, 0);
    let missing = remote.jit.remote_function(remote.jit.main_dylib(), "sum").unwrap_err();
    assert!(matches!(missing.kind(), ErrorKind::SymbolsNotFound { .. }), "{missing}");
}

#[test]
fn a_hook_moves_a_variable_there_and_the_end_of_the_process_in_it_is_an_error() {
    let old = "static int kept = 3; long run(void) { return kept++; }";
    let new = "static long kept; void jittison_migrate_kept(void *new, const void *old, unsigned long size) {
                   kept = *(const int *)old * 10 + size; }
               long run(void) { return kept++; }";
    let ends = new.replace("+ size; }", "+ size; __builtin_trap(); }");
    let compiled =
        |source: &str| jittison_test_support::gcc(&["-O1", "-fPIC", "-ffunction-sections", "-fdata-sections"], source);
    let (Some(old), Some(new), Some(ends)) = (compiled(old), compiled(new), compiled(&ends)) else { return };
    let remote = Remote::start();
    let tracker = remote.jit.main_dylib().create_tracker().unwrap();
    let reloader = Reloader::new(&remote.jit, &tracker).unwrap();
    reloader.add_object("a.o", &old[..]).unwrap();
    reloader.link().unwrap();
    assert_eq!(remote.call("run", &[]), 3);
    // SAFETY: the function keeps its signature, and nothing uses an address of a version.
    let reload = |object: &[u8]| unsafe { reloader.reload("a.o", object) };
    assert_eq!(reload(&new).unwrap().diff.moved_variables, ["kept"]);
    assert_eq!(remote.call("run", &[]), 44);
    let ended = reload(&ends).unwrap_err();
    assert!(matches!(ended.kind(), ErrorKind::ExecutorEnded { .. }), "{ended}");
}

#[test]
fn pointers_of_this_process_are_refused() {
    let Some(object) = c("long one(void) { return 1; } __thread long here = 3;") else { return };
    let remote = Remote::start();
    let _tracker = remote.add("one.o", &object);
    let main = remote.jit.main_dylib();
    let guard = remote.jit.guard();
    // SAFETY: the lookup is refused.
    let refused = unsafe { remote.jit.symbol::<extern "C" fn() -> i64>(&guard, main, "one") }.unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::RunsElsewhere), "{refused}");
    let refused = remote.jit.address_of(main, "here").unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::RunsElsewhere), "{refused}");
    let here = jittison::Jit::new().unwrap();
    let refused = here.remote_function(here.main_dylib(), "one").unwrap_err();
    assert!(refused.to_string().contains("runs in this process"), "{refused}");
}

#[test]
fn a_link_that_needs_nothing_of_the_executor_sends_no_message() {
    let Some(object) = c("static long calls; long counted(void) { return ++calls; }") else { return };
    let remote = Remote::start();
    let _first = remote.add("first.o", &object);
    assert_eq!(remote.call("counted", &[]), 1);
    let before = switches(&remote);
    for number in 0..100 {
        let dylib = remote.jit.create_dylib(&format!("dylib {number}")).unwrap();
        let tracker = dylib.create_tracker().unwrap();
        remote.jit.add_object(&tracker, "again.o", &object[..]).unwrap();
        remote.jit.address_of(&dylib, "counted").unwrap();
        assert!(tracker.remove().unwrap().is_complete());
    }
    assert_eq!(switches(&remote), before);
}

/// How often the threads of the executor have waited, once all of them wait.
fn switches(remote: &Remote) -> u64 {
    let mut count = count_switches(remote);
    loop {
        std::thread::sleep(std::time::Duration::from_millis(20));
        let again = count_switches(remote);
        if again == count {
            return count;
        }
        count = again;
    }
}

fn count_switches(remote: &Remote) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", remote.executor.id())).unwrap();
    let count = |task: std::fs::DirEntry| {
        let status = std::fs::read_to_string(task.path().join("status")).unwrap();
        status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))
            .unwrap()
            .trim()
            .parse::<u64>()
            .unwrap()
    };
    tasks.map(|task| count(task.unwrap())).sum()
}

#[test]
fn initialisers_finalisers_and_exit_handlers_run_there() {
    let source = r#"
        #include <stdlib.h>
        #include <unistd.h>
        static long state;
        long *log_words;
        static void note(long step) { state = state * 10 + step; }
        __attribute__((constructor)) static void begin(void) { note(1); }
        static void handler(void) { note(3); if (state == 123) _exit(77); }
        __attribute__((destructor)) static void end(void) { note(4); }
        long run(void) { note(2); atexit(handler); return state; }
    "#;
    let Some(object) = c(source) else { return };
    let remote = Remote::start();
    let tracker = remote.add("steps.o", &object);
    assert_eq!(remote.call("run", &[]), 12);
    // The handler ends the process, so it has run there.
    assert!(tracker.remove().unwrap().is_complete());
    let ended = remote.executor.end().unwrap_err();
    assert!(ended.to_string().contains("ended with status 77 while it ran exit handlers"), "{ended}");
}

#[test]
fn thread_local_variables_belong_to_the_thread_that_calls() {
    let Some(object) = c("static __thread long count = 5; long next(void) { return ++count; }") else { return };
    let remote = Remote::start();
    let _tracker = remote.add("count.o", &object);
    assert_eq!((remote.call("next", &[]), remote.call("next", &[])), (6, 7));
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!((remote.call("next", &[]), remote.call("next", &[])), (6, 7)));
    });
    assert_eq!(remote.call("next", &[]), 8);
}

#[test]
fn exceptions_are_caught_across_modules_there() {
    let (Some(thrower), Some(catcher)) = (
        cpp("struct Number { long value; }; void thrower(long n) { throw Number{n}; }"),
        cpp("struct Number { long value; }; void thrower(long n);\n\
             extern \"C\" long caught(long n) { try { thrower(n); return 0; } catch (Number &number) { return number.value + 1; } }"),
    ) else {
        return;
    };
    let remote = Remote::start();
    let _trackers = [remote.add("thrower.o", &thrower), remote.add("catcher.o", &catcher)];
    for n in [4, 50] {
        assert_eq!(remote.call("caught", &[n]), n + 1);
    }
}

#[test]
fn a_lazy_function_is_linked_at_its_first_call_from_there() {
    let (Some(caller), Some(callee)) =
        (c("long lazy(long); long run(long n) { return lazy(n) + 1; }"), c("long body(long n) { return n * 2; }"))
    else {
        return;
    };
    let remote = Remote::start();
    let main = remote.jit.main_dylib();
    let _trackers = [remote.add("caller.o", &caller), remote.add("callee.o", &callee)];
    let lazy = main.create_tracker().unwrap();
    let alias = Alias { name: Name::new("lazy"), aliasee: Name::new("body"), flags: SymbolFlags::EXPORTED };
    remote.jit.lazy_reexport(&lazy, main, &[alias]).unwrap();
    assert_eq!((remote.call("run", &[20]), remote.call("run", &[21])), (41, 43));
    // From a thread that linked code starts, which the session does not know.
    let source = r#"
        #include <pthread.h>
        long lazy2(long);
        static void *body2(void *n) { return (void *)lazy2((long)n); }
        long threaded(long n) { pthread_t t; void *r; pthread_create(&t, 0, body2, (void *)n); pthread_join(t, &r); return (long)r; }
    "#;
    let Some(threaded) = c(source) else { return };
    let _threaded = remote.add("threaded.o", &threaded);
    let alias = Alias { name: Name::new("lazy2"), aliasee: Name::new("body"), flags: SymbolFlags::EXPORTED };
    remote.jit.lazy_reexport(&lazy, main, &[alias]).unwrap();
    assert_eq!(remote.call("threaded", &[30]), 60);
}

#[test]
fn dlsym_of_linked_code_finds_linked_code_and_the_libraries_there() {
    let source = r#"
        #define _GNU_SOURCE
        #include <dlfcn.h>
        long answer(void) { return 42; }
        long by_name(void) { long (*f)(void) = dlsym(RTLD_DEFAULT, "answer"); return f ? f() : -1; }
        long of_libc(void) { int (*f)(const char *) = dlsym(RTLD_DEFAULT, "atoi"); return f ? f("17") : -1; }
        long name_of(void) { Dl_info info; return dladdr((void *)answer, &info) && info.dli_sname && info.dli_saddr == (void *)answer; }
    "#;
    let Some(object) = c(source) else { return };
    let remote = Remote::start();
    let _tracker = remote.add("dl.o", &object);
    assert_eq!(["by_name", "of_libc", "name_of"].map(|name| remote.call(name, &[])), [42, 17, 1]);
}

#[test]
fn nothing_is_writable_and_executable_there_and_removed_code_leaves_its_map() {
    let Some(object) = c(
        "static char filler[1 << 20]; long fill(void) { for (long i = 0; i < sizeof filler; i++) filler[i] = 1; return filler[100]; }",
    ) else {
        return;
    };
    let remote = Remote::start();
    let tracker = remote.add("fill.o", &object);
    assert_eq!(remote.call("fill", &[]), 1);
    let mappings = remote.mappings();
    assert!(mappings.iter().any(|line| line.contains(" r-xs ")), "{mappings:?}");
    assert!(mappings.iter().all(|line| !line.contains("wx")), "{mappings:?}");
    // Each page is in memory once, however many processes map it.
    let shared = || {
        let smaps = std::fs::read_to_string(format!("/proc/{}/smaps", remote.executor.id())).unwrap();
        let mut is_window = false;
        let mut kilobytes = 0;
        for line in smaps.lines() {
            if line.split(' ').next().is_some_and(|range| range.contains('-')) {
                is_window = line.contains("memfd:jittison");
            } else if let Some(size) = line.strip_prefix("Rss:").filter(|_| is_window) {
                kilobytes += size.trim().trim_end_matches(" kB").parse::<u64>().unwrap();
            }
        }
        kilobytes
    };
    assert!(shared() >= 1024, "{}", shared());
    assert!(tracker.remove().unwrap().is_complete());
    remote.jit.release_free();
    assert!(shared() < 64, "{}", shared());
}

#[test]
fn destructors_of_thread_local_variables_run_there_and_hold_their_code() {
    let source = r#"
        #include <unistd.h>
        static long destroyed;
        struct Local { long value = 1; ~Local() { destroyed += value; } };
        static thread_local Local local;
        extern "C" long touch() { return local.value++; }
        extern "C" long count() { return destroyed; }
    "#;
    let Some(object) = cpp(source) else { return };
    let remote = Remote::start();
    let tracker = remote.add("local.o", &object);
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(remote.call("touch", &[]), 1)).join().unwrap();
    });
    // The thread of the executor ends after that of the controller.
    while remote.call("count", &[]) == 0 {
        std::thread::yield_now();
    }
    assert_eq!(remote.call("count", &[]), 2);
    assert_eq!(remote.call("touch", &[]), 1);
    // It runs the destructor of this thread. The hold of the other thread is dropped after its destructor.
    let removal = tracker.remove().unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    while !removal.is_complete() {
        assert!(Instant::now() < end, "{:?}", removal.obstacles());
        std::thread::yield_now();
    }
    assert_eq!(remote.jit.memory_statistics().live_bytes, 0);
}

#[test]
fn a_function_is_replaced_while_threads_call_it_there_and_no_call_goes_wrong() {
    // Each result has the number of its version twice. The loop makes calls long, so that versions are replaced during calls.
    let version = |number: u32| {
        c(&format!(
            "long version(void) {{ long n = {number}; for (volatile int i = 0; i < 200; i++); return n * 1000 + {number}; }}"
        ))
    };
    let versions: Vec<_> = (1..=9).filter_map(version).collect();
    if versions.is_empty() {
        return;
    }
    let (calls, rounds) = (AtomicU64::new(0), tools::rounds(200) as u64);
    let executor = crate::start();
    // Freed code is a trap, so a call of it would end the executor.
    let jit = Jit::builder().executor(&executor).trap_freed_code(true).build().unwrap();
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
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let value = function.call(&[]).unwrap();
                    assert!((1..=9).contains(&(value / 1000)) && value / 1000 == value % 1000, "{value}");
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for round in 0..rounds {
            let before = calls.load(Ordering::Relaxed);
            commit(&versions[round as usize % 9]);
            while calls.load(Ordering::Relaxed) == before {
                std::thread::yield_now();
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(function.call(&[]).unwrap(), (rounds - 1) % 9 * 1001 + 1001);
    println!("{} calls under {rounds} replacements", calls.load(Ordering::Relaxed));
}

#[test]
fn modules_come_and_go_while_their_functions_are_called_there() {
    let Some(object) = c("static long calls; long next(long n) { calls++; return n + calls; }") else { return };
    let executor = crate::start();
    let jit = Jit::builder().executor(&executor).trap_freed_code(true).build().unwrap();
    let rounds = if tools::rounds(8) == 8 { 250_000 } else { 1000 };
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (jit, object) = (&jit, &object);
            scope.spawn(move || {
                for round in 0..rounds {
                    let dylib = jit.create_dylib(&format!("{thread} {round}")).unwrap();
                    let tracker = dylib.create_tracker().unwrap();
                    jit.add_object(&tracker, "next.o", &object[..]).unwrap();
                    let next = jit.remote_function(&dylib, "next").unwrap();
                    let removal = tracker.remove().unwrap();
                    assert!(!removal.is_complete(), "the handle holds it");
                    assert_eq!([next.call(&[round]).unwrap(), next.call(&[round]).unwrap()], [round + 1, round + 2]);
                    drop(next);
                    assert!(removal.is_complete());
                }
            });
        }
    });
    assert_eq!(jit.memory_statistics().live_bytes, 0);
}

/// A function of this program, which linked code calls when this program is the executor.
#[unsafe(no_mangle)]
extern "C" fn jittison_test_of_the_executor(number: u64) -> u64 {
    number + 1
}

#[test]
fn any_program_can_be_an_executor_and_linked_code_finds_its_functions() {
    let test = this_test!();
    if tools::is_rerun(test) {
        let Err(error) = jittison::executor::serve_standard_input();
        panic!("{error}");
    }
    let Some(object) =
        c("long jittison_test_of_the_executor(long); int getpid(void); long process(void) { return getpid(); } \
         long run(long n) { return jittison_test_of_the_executor(n) + 1; }")
    else {
        return;
    };
    let mut command = tools::rerun(test);
    command.stdout(std::process::Stdio::null());
    let executor = ExecutorProcess::start_command(command).unwrap();
    let remote = Remote { jit: Jit::builder().executor(&executor).build().unwrap(), executor };
    let _tracker = remote.add("run.o", &object);
    remote.jit.add_program_symbols(remote.jit.main_dylib()).unwrap();
    assert_eq!(remote.call("run", &[40]), 42);
    assert_eq!(remote.call("process", &[]), u64::from(remote.executor.id()));
    assert_eq!(jittison_test_of_the_executor(1), 2);
}

#[test]
fn large_sections_are_in_the_window_and_calls_have_many_arguments() {
    // Nothing refers to the array but 64-bit addresses, so a session of this process gives it a mapping of its own.
    let source = "static const char large[3 << 20] = {1, 2, 3}; const char *const table[] = {large, large + (3 << 20) - 1}; \
                  long sum(void) { return table[0][2] + table[1][0]; } \
                  long seven(long a, long b, long c, long d, long e, long f, long g) \
                  { return a + 10 * (b + 10 * (c + 10 * (d + 10 * (e + 10 * (f + 10 * g))))); }";
    let Some(object) = c(source) else { return };
    let remote = Remote::start();
    let tracker = remote.add("large.o", &object);
    assert_eq!(remote.call("sum", &[]), 3);
    assert!(remote.jit.usage(&tracker).read_only + remote.jit.usage(&tracker).data >= 3 << 20);
    assert_eq!(remote.call("seven", &[1, 2, 3, 4, 5, 6, 7]), 7654321);
    let seven = remote.jit.remote_function(remote.jit.main_dylib(), "seven").unwrap();
    let refused = seven.call(&[0; 257]).unwrap_err().to_string();
    assert!(
        refused.contains("`seven` was not called with 257 arguments") && refused.contains("256 at most"),
        "{refused}"
    );
    assert!(tracker.remove().unwrap().obstacles().iter().any(|holder| !holder.is_empty()));
    drop(seven);
    assert_eq!(remote.jit.memory_statistics().live_bytes, 0);
}

#[test]
fn a_jitdump_belongs_to_the_process_of_the_executor() {
    own_process!();
    let Some(object) = c("long one(void) { return 1; }") else { return };
    let folder = PrivateDir::new();
    // SAFETY: this test has a process of its own, with no other thread that reads the environment.
    unsafe { std::env::set_var("JITTISON_PERF_DIR", &*folder) };
    let executor = crate::start();
    let build = |profile| Jit::builder().executor(&executor).profiler(Some(profile)).build();
    let refused = build(Profile::PerfMap).unwrap_err();
    assert!(refused.to_string().contains("Profile::JitDump"), "{refused}");
    let remote = Remote { jit: build(Profile::JitDump).unwrap(), executor };
    let _tracker = remote.add("one.o", &object);
    assert_eq!(remote.call("one", &[]), 1);
    let name = format!("jittison-{0}-0/jit-{0}.dump", remote.executor.id());
    let dump = std::fs::read(folder.path(&name)).unwrap();
    // The process is in the header, and in the record of the function (jitdump specification, version 1).
    assert_eq!(dump[20..24], remote.executor.id().to_le_bytes());
    let word = |at: usize| u32::from_le_bytes(dump[at..at + 4].try_into().unwrap());
    let mut record = 40;
    while word(record) != 0 {
        record += word(record + 4) as usize;
    }
    assert_eq!([word(record + 16), word(record + 20)], [remote.executor.id(); 2]);
    assert!(dump.windows(4).any(|bytes| bytes == b"one\0"));
    let is_mapped = || remote.mappings().iter().any(|line| line.contains(" r-x") && line.ends_with(&name));
    assert!(is_mapped());
    let Remote { executor, jit } = remote;
    drop((_tracker, jit));
    let remote = Remote { jit: Jit::builder().executor(&executor).build().unwrap(), executor };
    assert!(!remote.mappings().iter().any(|line| line.ends_with(&name)));
}
