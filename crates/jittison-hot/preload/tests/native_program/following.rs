//! What follows.

use jittison_test_tools::{PrivateDir, require, require_that, rustc};

use crate::{Build, FLAGS, GCC, MAIN, compile, succeed};

/// Three threads call `step` all the time. Each answer is what they got since, which is the same for all of them.
const THREADS: &str = "#include <stdio.h>
#include <pthread.h>
#include <stdatomic.h>
long step(long n);
static _Atomic long rounds[3], last[3];
static void *work(void *number) {
    for (;;) { last[(long)number] = step(1); rounds[(long)number]++; }
    return 0;
}
int main(void) {
    pthread_t thread;
    for (long t = 0; t < 3; t++) pthread_create(&thread, 0, work, (void *)t);
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        for (int t = 0; t < 3; t++) for (long end = rounds[t] + 2; rounds[t] < end;) {}
        printf(\"%ld %ld %ld %ld\\n\", step(1), last[0], last[1], last[2]);
        fflush(stdout);
    }
    return 7;
}";

fn follows(build: Build<'_>) {
    let Some(mut program) = build.start(MAIN, "long step(long n) { return n + 10; }") else { return };
    assert_eq!(program.ask(), "11");
    let event = program.follow("long step(long n) { return n * 100; }");
    assert!(event.contains("version 1: changed step; "), "{event}");
    assert_eq!(program.ask(), "200");
    program.follow("long step(long n) { return n * 1000; }");
    assert_eq!(program.ask(), "3000");
    program.end();
}

#[test]
fn functions_follow_one_edit_after_the_other() {
    follows(GCC);
}

#[test]
fn functions_that_clang_compiled_follow() {
    let flags = FLAGS.map(|flag| if flag.starts_with("-flive") { "-fcf-protection" } else { flag });
    follows(Build { compiler: "clang-19", flags: &flags[..5], ..GCC });
    follows(Build { compiler: "clang-19", flags: &flags, ..GCC });
}

#[test]
fn functions_follow_with_marked_entries_and_at_fixed_addresses_and_without_optimisation() {
    follows(Build { flags: &[&FLAGS[..], &["-fcf-protection"]].concat(), ..GCC });
    follows(Build { link: &["-no-pie"], ..GCC });
    follows(Build { link: &["-Wl,--gc-sections"], ..GCC });
    follows(Build { flags: &[&FLAGS[1..], &["-O0"]].concat(), ..GCC });
}

#[test]
fn objects_are_named_by_a_folder_or_a_compile_database() {
    follows(Build { list: Some("."), ..GCC });
    let directory = PrivateDir::new();
    let database = r#"[{ "directory": "DIRECTORY", "file": "main.c", "output": "main.o", "command": "gcc -c main.c" },
        { "directory": "DIRECTORY", "file": "step.c", "arguments": ["gcc", "-c", "step.c", "-o", "step.o"] }]"#;
    directory.write("compile_commands.json", database.replace("DIRECTORY", &directory.display().to_string()));
    for (name, text) in [("main", MAIN), ("step", "long step(long n) { return n; }")] {
        let Some(()) = compile(&directory, ("gcc", &FLAGS), name, text) else { return };
    }
    let Some(mut program) = Build { list: Some("compile_commands.json"), ..GCC }.run(directory) else { return };
    assert_eq!(program.event(), "jittison: watching main.o, step.o");
    program.follow("long step(long n) { return -n; }");
    assert_eq!(program.ask(), "-1");
    program.end();
}

#[test]
fn threads_that_never_stop_calling_follow_many_edits() {
    let source = |version: usize| format!("long step(long n) {{ return n + {version} * 10; }}");
    let Some(mut program) = GCC.start(THREADS, &source(0)) else { return };
    for version in 1..12 {
        program.follow(&source(version));
        let value = version * 10 + 1;
        assert_eq!(program.ask(), format!("{value} {value} {value} {value}"));
    }
    program.end();
}

#[test]
fn variables_keep_their_addresses_and_values() {
    let source = |version: &str| {
        format!(
            "static long zero, data = 10; static __thread long local = 20; long global = 30; __thread long shared = 40;
             const long limits[] = {{ 5, 6 }};
             long step(long n) {{ static long own = 50; zero++; data++; local++; global++; shared++; own++;
                 return {version} + zero + data + local + global + shared + own + limits[n & 1]; }}"
        )
    };
    let Some(mut program) = GCC.start(MAIN, &source("0")) else { return };
    let sum = |n: u64, version: u64| (version + 150 + 6 * n + 5 + (n & 1)).to_string();
    assert_eq!([program.ask(), program.ask()], [sum(1, 0), sum(2, 0)]);
    program.follow(&source("1000"));
    assert_eq!(program.ask(), sum(3, 1000));
    program.follow(&source("2000"));
    assert_eq!(program.ask(), sum(4, 2000));
    program.end();
}

#[test]
fn constants_and_new_variables_and_functions_have_the_values_of_the_source() {
    let Some(mut program) =
        GCC.start(MAIN, "const long table[] = { 1, 2 }; long step(long n) { return table[n & 1]; }")
    else {
        return;
    };
    assert_eq!(program.ask(), "2");
    program.follow(
        "static long added = 40; long counter; __attribute__((noinline)) static long more(void) { return ++added + ++counter; }
         const long table[] = { 7, 8 }; long step(long n) { return more() * 10 + table[n & 1]; }",
    );
    assert_eq!([program.ask(), program.ask()], ["427", "448"]);
    program.end();
}

/// The loop of `main` never leaves, and calls a `static` function of its own object.
#[test]
fn a_static_function_follows_in_a_loop_that_runs() {
    let main = |value: u32| {
        MAIN.replace(
            "long step(long n);",
            &format!("__attribute__((noinline)) static long step(long n) {{ return n + {value}; }}"),
        )
    };
    let Some(mut program) = GCC.start(&main(0), "int other;") else { return };
    assert_eq!(program.ask(), "1");
    for (version, value) in [(1, "102"), (2, "203")] {
        compile(&program.directory, ("gcc", &FLAGS), "main", &main(version * 100)).unwrap();
        let event = program.event();
        assert!(event.contains(&format!("main.o version {version}: changed step; ")), "{event}");
        assert_eq!(program.ask(), value);
    }
    program.end();
}

#[test]
fn addresses_of_functions_stay_and_what_is_called_by_them_follows() {
    let main =
        MAIN.replace("long step(long n);", "long (*kept)(long); long step(long n); long count(long n) { return n; }");
    let source = |value: u32| {
        format!(
            "extern long (*kept)(long); long count(long n); static long own(long n) {{ return n + {value}; }}
             long step(long n) {{ if (!kept) kept = own; return kept(n) * 10 + (kept == own) + (step != count); }}"
        )
    };
    let Some(mut program) = GCC.start(&main, &source(0)) else { return };
    assert_eq!(program.ask(), "12");
    program.follow(&source(100));
    assert_eq!(program.ask(), "1022");
    program.end();
}

#[test]
fn exceptions_and_virtual_functions_and_static_variables_of_cpp_follow() {
    let main = "#include <cstdio>
        #include <stdexcept>
        struct Shape { virtual long area(long n) = 0; };
        Shape *make(); long step(long n);
        int main() {
            char line[64]; Shape *shape = make();
            for (long n = 1; fgets(line, sizeof line, stdin); n++) {
                try { printf(\"%ld \", shape->area(n)); printf(\"%ld\\n\", step(n)); }
                catch (const std::runtime_error &error) { printf(\"%s\\n\", error.what()); }
                fflush(stdout);
            }
            return 7;
        }";
    let source = |area: &str, step: &str| {
        format!(
            "#include <stdexcept>
             struct Shape {{ virtual long area(long n) = 0; }};
             struct Square : Shape {{ long area(long n) override {{ return {area}; }} }};
             static long made; struct Counter {{ long count = ++made; }};
             Shape *make() {{ return new Square; }}
             long step(long n) {{ static Counter counter; {step} }}"
        )
    };
    let Some(mut program) = (Build { compiler: "g++", ..GCC }).start(main, &source("n * n", "return counter.count;"))
    else {
        return;
    };
    assert_eq!(program.ask(), "1 1");
    program.follow(&source("n + 100", "if (n == 2) throw std::runtime_error(\"thrown\"); return counter.count + 10;"));
    assert_eq!([program.ask(), program.ask()], ["102 thrown", "103 11"]);
    program.end();
}

#[test]
fn parts_in_c_of_a_program_of_rust_follow() {
    let Some(mut rustc) = rustc() else { return };
    let directory = PrivateDir::new();
    let main = "unsafe extern \"C\" { safe fn step(n: i64) -> i64; }
        fn main() {
            for (line, n) in std::io::stdin().lines().zip(1..) { line.unwrap(); println!(\"{}\", step(n)); }
            std::process::exit(7)
        }";
    let main = directory.write("main.rs", main);
    let source = |value: u32| format!("static long calls; long step(long n) {{ return n + {value} + 10 * ++calls; }}");
    let Some(()) = compile(&directory, ("gcc", &FLAGS), "step", &source(0)) else { return };
    rustc.current_dir(&*directory).args(["--edition", "2024", "-C", "link-arg=step.o", "-o", "program"]).arg(main);
    succeed(&mut rustc);
    let mut program = Build { list: Some("step.o"), ..GCC }.start_program(directory);
    assert_eq!(program.event(), "jittison: watching step.o");
    assert_eq!(program.ask(), "11");
    program.follow(&source(1000));
    assert_eq!(program.ask(), "1022");
    program.end();
}

/// Without a stay in memory, the thread would return into code that was freed.
#[test]
fn a_thread_that_is_in_a_replaced_version_goes_on_there() {
    let main = "#include <stdio.h>
        #include <pthread.h>
        _Atomic int is_inside, may_leave; long step(long n);
        static void *hold(void *n) { return (void *)step((long)n); }
        int main(void) {
            char line[64]; pthread_t thread;
            for (long n = 1; fgets(line, sizeof line, stdin); n++) {
                void *held = 0;
                if (n == 2) { pthread_create(&thread, 0, hold, (void *)-5); while (!is_inside) {} }
                if (n == 5) { may_leave = 1; pthread_join(thread, &held); }
                printf(\"%ld %ld\\n\", step(n), (long)held); fflush(stdout);
            }
            return 7;
        }";
    let source = |version: u32| {
        format!(
            "extern _Atomic int is_inside, may_leave;
             long step(long n) {{ if (n < 0) {{ is_inside = 1; while (!may_leave) {{}} }} return n + {version} * 100; }}"
        )
    };
    let Some(mut program) = GCC.start(main, &source(0)) else { return };
    assert_eq!(program.ask(), "1 0");
    program.follow(&source(1));
    assert_eq!(program.ask(), "102 0");
    for version in 2..8 {
        program.follow(&source(version));
    }
    assert_eq!([program.ask(), program.ask(), program.ask()], ["703 0", "704 0", "705 95"]);
    program.end();
}

#[test]
fn new_code_finds_what_other_objects_of_the_program_do_not_export() {
    let main = MAIN
        .replace("long step(long n);", "long step(long n); long kept = 30; long other(long n) { return n * kept++; }");
    let build = Build { list: Some("step.o"), ..GCC };
    let Some(mut program) = build.start(&main, "long step(long n) { return n; }") else { return };
    assert_eq!(program.ask(), "1");
    program.follow("extern long kept; long other(long n); long step(long n) { return other(n) + kept; }");
    assert_eq!(program.ask(), "91");
    program.end();
}

/// What a program starts does not follow the objects of the program.
#[test]
fn programs_that_the_program_starts_are_left_alone() {
    if !require_that(require("true").is_some(), "true") {
        return;
    }
    let source =
        |value: u32| format!("#include <stdlib.h>\nlong step(long n) {{ return n + {value} + system(\"true\"); }}");
    let Some(mut program) = GCC.start(MAIN, &source(0)) else { return };
    assert_eq!(program.ask(), "1");
    program.follow(&source(100));
    assert_eq!(program.ask(), "102");
    program.end();
}
