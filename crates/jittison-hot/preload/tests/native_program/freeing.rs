//! Which replaced versions are freed: each thread of the program is counted as a call, and passes reload points.

use crate::{Build, FLAGS, GCC, MAIN};

/// The head of a program that includes `jittison_reload.h`.
const POINTS: &str = concat!(
    "#include \"",
    env!("CARGO_MANIFEST_DIR"),
    "/../../jittison-c/include/jittison_reload.h\"\n#include <stdio.h>\n#include <stdlib.h>\n#include <stdatomic.h>\nlong step(long n);\n"
);

fn source(version: usize) -> String {
    format!("long step(long n) {{ return n + {version} * 100; }}")
}

/// How many replaced versions are in memory after a reload, by its line.
fn replaced(event: &str) -> usize {
    match event.split("; ").last().and_then(|last| last.strip_suffix(" in memory")) {
        Some(last) => last.split(' ').next().unwrap().parse().unwrap(),
        None => 0,
    }
}

/// Edits a program that asks `step` in several threads. Returns how many replaced versions are in memory after the last edit.
fn edit(build: Build<'_>, main: &str, edits: usize) -> Option<usize> {
    let mut program = build.start(main, &source(0))?;
    let (mut last, mut question) = (0, 0);
    for version in 1..=edits {
        last = replaced(&program.follow(&source(version)));
        // The threads pass a reload point before each answer.
        for _ in 0..2 {
            question += 1;
            assert_eq!(program.ask(), (question + version as i64 * 100).to_string());
        }
    }
    program.end();
    Some(last)
}

#[test]
fn replaced_versions_are_freed_when_main_passes_reload_points() {
    let main = format!(
        "{POINTS} int main(void) {{
            char line[64];
            for (long n = 1; fgets(line, sizeof line, stdin); n++) {{
                jittison_reload_point();
                printf(\"%ld\\n\", step(n)); fflush(stdout);
            }}
            return 7;
        }}"
    );
    for build in [GCC, Build { link: &["-no-pie"], ..GCC }] {
        let Some(replaced) = edit(build, &main, 12) else { return };
        // That of the last edit, and one that `main` may have entered before its last point.
        assert!(replaced <= 2, "{replaced}");
    }
}

#[test]
fn without_a_reload_point_replaced_versions_stay() {
    let Some(replaced) = edit(GCC, MAIN, 6) else { return };
    // The first version is that of the program.
    assert_eq!(replaced, 5);
}

/// Each answer waits until two threads have passed a reload point. `START` starts a thread that runs `work`.
const THREADS: &str = "
    static atomic_long rounds[2], turn;
    static void work(long number, int has_points) {
        for (;;) { if (step(1) < 0) abort(); if (has_points) jittison_reload_point(); rounds[number]++; }
    }
    MORE
    int main(void) {
        char line[64];
        START
        for (long n = 1; fgets(line, sizeof line, stdin); n++) {
            jittison_reload_point();
            for (int t = 0; t < 2; t++) for (long end = rounds[t] + 2; rounds[t] < end;) {}
            printf(\"%ld\\n\", step(n)); fflush(stdout);
        }
        exit(7);
    }";

fn with_threads(more: &str, start: &str) -> String {
    format!("{POINTS} {}", THREADS.replace("MORE", more).replace("START", start))
}

const PTHREADS: &str = "#include <pthread.h>
    static void *run(void *number) { work((long)number, POINT((long)number)); return 0; }";
const START_PTHREADS: &str =
    "for (long t = 0; t < 2; t++) { pthread_t thread; pthread_create(&thread, 0, run, (void *)t); }";

#[test]
fn threads_with_reload_points_keep_no_replaced_version() {
    let c11 = "#include <threads.h>
        static int run(void *number) { work((long)number, 1); return 0; }";
    let start_c11 = "for (long t = 0; t < 2; t++) { thrd_t thread; thrd_create(&thread, run, (void *)t); }";
    let posix = PTHREADS.replace("POINT((long)number)", "1");
    for (more, start) in [(posix.as_str(), START_PTHREADS), (c11, start_c11)] {
        let Some(replaced) = edit(GCC, &with_threads(more, start), 12) else { return };
        assert!(replaced <= 2, "{replaced}");
    }
    let cpp = "#include <thread>
        extern \"C\" long step(long n);";
    let start_cpp = "for (long t = 0; t < 2; t++) std::thread([=] { work(t, 1); }).detach();";
    let main = with_threads(cpp, start_cpp).replacen("long step(long n);", "extern \"C\" long step(long n);", 1);
    let main = main.replace("#include <stdatomic.h>", "#include <atomic>\nusing std::atomic_long;");
    let build = Build { compiler: "g++", flags: &FLAGS, ..GCC };
    let Some(mut program) = build.start(&main, "extern \"C\" long step(long n) { return n; }") else { return };
    let mut last = 0;
    for version in 1..=12 {
        last = replaced(&program.follow(&format!("extern \"C\" {}", source(version))));
        assert_eq!(
            [program.ask(), program.ask()],
            [2 * version - 1, 2 * version].map(|n| (n + version * 100).to_string())
        );
    }
    assert!(last <= 2, "{last}");
    program.end();
}

#[test]
fn a_thread_without_a_reload_point_keeps_replaced_versions() {
    let one_without = PTHREADS.replace("POINT((long)number)", "(long)number == 0");
    let Some(replaced) = edit(GCC, &with_threads(&one_without, START_PTHREADS), 8) else { return };
    assert!(replaced >= 7, "{replaced}");
}

#[test]
fn a_thread_that_has_ended_keeps_nothing() {
    let ending = "#include <pthread.h>
        static void *once(void *n) { return (void *)step((long)n); }
        static void *run(void *number) { work((long)number, 1); return 0; }";
    // Before each answer a thread runs `step` and ends, without a reload point.
    let main = with_threads(ending, START_PTHREADS).replace(
        "printf(",
        "pthread_t other; void *result; pthread_create(&other, 0, once, (void *)n); pthread_join(other, &result);
            if ((long)result != step(n)) abort();
            printf(",
    );
    let Some(replaced) = edit(GCC, &main, 12) else { return };
    assert!(replaced <= 2, "{replaced}");
}

#[test]
fn threads_that_new_versions_start_are_counted_once() {
    let step =
        |version: usize, start: &str| format!("{start} long step(long n) {{ return n + ask({version} * 100); }}");
    let posix = "#include <pthread.h>
        static void *run(void *n) { return n; }
        static long ask(long n) { pthread_t thread; void *result; pthread_create(&thread, 0, run, (void *)n); pthread_join(thread, &result); return (long)result; }";
    let cpp = "#include <thread>
        static long ask(long n) { long result = 0; std::thread thread([&] { result = n; }); thread.join(); return result; } extern \"C\"";
    for (compiler, start) in [("gcc", posix), ("g++", cpp)] {
        let head =
            if compiler == "g++" { POINTS.replace("long step", "extern \"C\" long step") } else { POINTS.to_string() };
        let head = head.replace("#include <stdatomic.h>", "");
        let main = format!(
            "{head} int main(void) {{ char line[64];
                for (long n = 1; fgets(line, sizeof line, stdin); n++) {{ jittison_reload_point(); printf(\"%ld\\n\", step(n)); fflush(stdout); }}
                return 7; }}"
        );
        let Some(mut program) = Build { compiler, ..GCC }.start(&main, &step(0, start)) else { return };
        let mut last = 0;
        for version in 1..=12 {
            last = replaced(&program.follow(&step(version, start)));
            assert_eq!(
                [program.ask(), program.ask()],
                [2 * version - 1, 2 * version].map(|n| (n + version * 100).to_string())
            );
        }
        assert!(last <= 2, "{compiler}: {last}");
        program.end();
    }
}
