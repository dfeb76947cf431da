//! Inputs of `run` besides objects: archives, libraries, dylibs, definitions and aliases. Also worker threads and `--no-exec`.

use std::fs;
use std::path::Path;
use std::process::Command;

use assert_cmd::assert::Assert;
use jittison_test_support::require_x86_64;
use predicates::prelude::PredicateBooleanExt as _;
use predicates::str::contains;
use serde_json::Value;

use crate::native::{directory, fails, jittison, report, tool};

/// Compiles each source `(name, text)` to `name.o`.
fn objects(directory: &Path, flags: &[&str], sources: &[(&str, &str)]) {
    for (name, text) in sources {
        let (source, object) = (format!("{name}.c"), format!("{name}.o"));
        fs::write(directory.join(&source), text).expect("a source");
        tool("gcc", directory).args(["-c", "-O1", "-fPIC"]).args(flags).args([&source, "-o", &object]).unwrap();
    }
}

fn archive(directory: &Path, flags: &str, name: &str, members: &[&str]) {
    tool("ar", directory).arg(flags).arg(name).args(members).unwrap();
}

fn run(directory: &Path, arguments: &[&str]) -> Assert {
    jittison(directory).arg("run").args(arguments).assert()
}

/// Asserts that a run fails.
fn run_fails(directory: &Path, arguments: &[&str]) -> Assert {
    fails(directory, &[&["run"], arguments].concat())
}

#[test]
fn members_of_archives_are_pulled_as_they_are_needed_in_any_order() {
    let directory = directory();
    objects(
        &directory,
        &[],
        &[
            ("main", "int first(void); int main(void) { return first(); }"),
            ("first", "int second(void); int first(void) { return second() + 1; }"),
            ("second", "int second(void) { return 40; }"),
            ("unneeded", "int nobody_has_this(void); int unneeded(void) { return nobody_has_this(); }"),
        ],
    );
    archive(&directory, "rc", "liba.a", &["first.o", "unneeded.o"]);
    archive(&directory, "rcT", "libb.a", &["second.o"]);
    for order in [["main.o", "liba.a", "libb.a"], ["libb.a", "liba.a", "main.o"]] {
        run(&directory, &order).code(41);
    }
    run(&directory, &["main.o", "-L", ".", "-l", "a", "-l", "b"]).code(41);
    run_fails(&directory, &["main.o", "liba.a"]).stderr(contains("`second`"));
    run_fails(&directory, &["main.o", "libb.a", "--whole-archive", "liba.a"]).stderr(contains("`nobody_has_this`"));
}

/// Sources of an object with an initialiser that prints its name.
fn speaking(name: &str, text: &str) -> String {
    format!("int puts(const char *); __attribute__((constructor)) static void say(void) {{ puts(\"{name}\"); }} {text}")
}

// Seen red: the members were initialised after all objects.
#[test]
fn initialisers_of_archive_members_run_where_the_archive_stands() {
    let directory = directory();
    let sources = [
        ("main", "int m1(void), n(void); int main(void) { return m1() + n(); }"),
        ("m1", "int m3(void); int m1(void) { return m3(); }"),
        ("m2", "int m2(void) { return 1; }"),
        ("m3", "int m3(void) { return 5; }"),
        ("n", "int m2(void); int n(void) { return m2(); }"),
        ("last", "int last(void) { return 1; }"),
    ];
    let sources = sources.map(|(name, text)| (name, speaking(name, text)));
    let sources: Vec<(&str, &str)> = sources.iter().map(|(name, text)| (*name, text.as_str())).collect();
    objects(&directory, &[], &sources);
    archive(&directory, "rc", "libm.a", &["m3.o", "m1.o", "m2.o"]);
    archive(&directory, "rc", "libn.a", &["n.o"]);
    let print = |order: &[&str]| {
        let run = run(&directory, order).code(6);
        String::from_utf8(run.get_output().stdout.clone()).unwrap().lines().map(str::to_string).collect::<Vec<_>>()
    };
    // The first pass over `libm.a` finds `m1`, the second `m3`. `n` comes too late for `m2`, which is searched at the end.
    let found = print(&["main.o", "libm.a", "libn.a", "last.o"]);
    assert_eq!(found, ["main", "m1", "m3", "n", "last", "m2"]);
    let found = print(&["main.o", "./libn.a", "./libm.a", "last.o"]);
    assert_eq!(found, ["main", "n", "m1", "m2", "m3", "last"]);
    // An archive before the object that needs it is searched at the end.
    let found = print(&["./libn.a", "./libm.a", "last.o", "main.o"]);
    assert_eq!(found[..2], ["last", "main"]);
    let tool_run = tool("gcc", &directory).args(["main.o", "libn.a", "libm.a", "last.o", "-o", "native"]).output();
    if tool_run.is_ok_and(|run| run.status.success()) {
        let native = std::process::Command::new(directory.join("native")).output().unwrap();
        let ours = run(&directory, &["main.o", "libn.a", "libm.a", "last.o"]).code(6);
        assert_eq!(native.stdout, ours.get_output().stdout);
    }
}

// Seen red: the definition of the later object counted, and no member was linked.
#[test]
fn an_object_after_an_archive_keeps_no_member_out() {
    let directory = directory();
    objects(
        &directory,
        &[],
        &[
            ("main", "int choice(void); int main(void) { return choice(); }"),
            ("member", "int choice(void) { return 1; }"),
            ("weak", "__attribute__((weak)) int choice(void) { return 2; }"),
            ("strong", "int choice(void) { return 3; }"),
        ],
    );
    archive(&directory, "rc", "liba.a", &["member.o"]);
    run(&directory, &["main.o", "liba.a", "weak.o"]).code(1);
    run(&directory, &["main.o", "weak.o", "liba.a"]).code(2);
    run_fails(&directory, &["main.o", "liba.a", "strong.o"]).stderr(contains("duplicate definition of `choice`"));
}

/// Instructions of a function that returns 7.
const RETURN_SEVEN: &str = if cfg!(target_arch = "x86_64") { "mov $7, %eax; ret" } else { "mov w0, 7; ret" };

// Seen red: an archive without an object that defines `main` was refused, and so was a `main` without a type.
#[test]
fn the_entry_may_be_in_an_archive_and_without_a_type() {
    let directory = directory();
    objects(&directory, &[], &[("main", "int main(void) { return 6; }"), ("other", "int other(void) { return 1; }")]);
    fs::write(
        directory.join("plain.s"),
        format!(".globl main\nmain: {RETURN_SEVEN}\n.section .note.GNU-stack,\"\",@progbits\n"),
    )
    .expect("a source");
    tool("gcc", &directory).args(["-c", "plain.s", "-o", "plain.o"]).unwrap();
    archive(&directory, "rc", "libmain.a", &["other.o", "main.o"]);
    archive(&directory, "rc", "libplain.a", &["plain.o"]);
    run(&directory, &["libmain.a"]).code(6);
    run(&directory, &["other.o", "libmain.a", "--report", "report.json"]).code(6);
    assert_eq!(report(&directory)["removal"]["everything_returned"], true);
    run(&directory, &["plain.o"]).code(7);
    run(&directory, &["libplain.a"]).code(7);
    run_fails(&directory, &["other.o"]).stderr(contains("no object defines a function `main`"));
    objects(&directory, &[], &[("data", "int main = 3;")]);
    run_fails(&directory, &["data.o"]).stderr(contains("`main` is not a function"));
}

// Seen red: the functions of the support library were not found.
#[test]
fn the_support_library_of_the_compiler_is_searched_unless_the_user_says_no() {
    // Of AArch64, compilers call only functions that a shared library or jittison has, too.
    if !require_x86_64() {
        return;
    }
    let directory = directory();
    let source = "volatile _Decimal64 value = 1.5dd; int main(int count, char **arguments) { return (int)((value + count) * 2); }";
    objects(&directory, &[], &[("main", source)]);
    run(&directory, &["main.o"]).code(5);
    run_fails(&directory, &["main.o", "--nodefaultlibs"]).stderr(contains("symbols not found"));
    objects(&directory, &[], &[("plain", "int main(void) { return 3; }")]);
    run(&directory, &["plain.o", "--nodefaultlibs"]).code(3);
}

#[test]
fn the_error_names_the_cause_if_an_object_fails_that_others_refer_to() {
    let directory = directory();
    // The narrowest relocations that the architectures have.
    let (field, relocation) = match cfg!(target_arch = "x86_64") {
        true => (".byte variable - .", "R_X86_64_PC8"),
        false => (".hword variable - ., 0", "R_AARCH64_PREL16"),
    };
    let failing = &format!(
        "extern int variable; int back(void);
        int second(int x) {{ __asm__ volatile(\"{field}\"); return x ? back() : variable; }}"
    );
    objects(
        &directory,
        &[],
        &[
            ("main", "int second(int); int back(void) { return 3; } int main(void) { return second(0); }"),
            ("failing", failing),
            ("variable", "int variable = 4;"),
        ],
    );
    let words = ["failing.o", relocation, "`variable`"];
    for order in [["main.o", "failing.o", "variable.o"], ["variable.o", "main.o", "failing.o"]] {
        let run = run_fails(&directory, &order);
        let message = String::from_utf8_lossy(&run.get_output().stderr).into_owned();
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
        assert!(!message.contains("was removed"), "{message}");
    }
}

// Seen red: each member that needed the failed one added it again, with all that it needs, and so did what needed that member.
#[test]
fn a_member_that_cannot_be_linked_is_tried_once_however_many_members_need_it() {
    const COUNT: usize = 24;
    let (field, relocation) = match cfg!(target_arch = "x86_64") {
        true => (".byte m1", "R_X86_64_8"),
        false => (".hword m1, 0", "R_AARCH64_ABS16"),
    };
    let directory = directory();
    let call = |next: &[usize], number: usize| {
        let declared: String = next.iter().map(|next| format!("int m{next}(int);")).collect();
        let called: String = next.iter().map(|next| format!(" + m{next}(x)")).collect();
        format!("{declared} int m{number}(int x) {{ return x{called}; }}")
    };
    let sources: Vec<(String, String)> = (0..COUNT)
        .map(|number| {
            // The second member is linked early, and cannot be linked. All need it, and it needs the first.
            let next: Vec<usize> = match number {
                1 => vec![0],
                _ => [1, number + 1, number + 2].into_iter().filter(|next| *next < COUNT && *next != number).collect(),
            };
            let bad = if number == 1 { format!("__asm__(\"{field}\");") } else { String::new() };
            (format!("m{number}"), format!("{bad} {}", call(&next, number)))
        })
        .chain([("main".to_string(), "int m0(int); int main(void) { return m0(0); }".to_string())])
        .collect();
    let sources: Vec<(&str, &str)> = sources.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    objects(&directory, &[], &sources);
    let members: Vec<String> = (0..COUNT).map(|number| format!("m{number}.o")).collect();
    archive(&directory, "rc", "libm.a", &members.iter().map(String::as_str).collect::<Vec<_>>());
    for (order, threads) in [(["main.o", "libm.a"], "0"), (["libm.a", "main.o"], "0"), (["main.o", "libm.a"], "2")] {
        let run = run(&directory, &[&order[..], &["--trace", "--threads", threads]].concat()).code(125);
        let trace = String::from_utf8_lossy(&run.get_output().stderr).into_owned();
        let tries = trace.matches("jittison: refused: libm.a(").count();
        assert!((1..=COUNT).contains(&tries), "{tries} refusals\n{trace}");
        let message = trace.lines().last().unwrap_or_default();
        assert!(message.contains(relocation) && !message.contains("was removed"), "{message}");
    }
}

// Seen red: the index has `f@@V2` only, and `f` was not found.
#[test]
fn a_member_is_found_by_the_name_of_its_default_version_where_the_archive_stands_and_before() {
    let directory = directory();
    let versioned = "__asm__(\".symver own, f@@V2\"); int own(void) { return 9; }
        __attribute__((constructor)) static void say(void) { extern int puts(const char *); puts(\"f\"); }";
    let by_version = "__asm__(\".symver wanted, f@V2\"); int wanted(void); int main(void) { return wanted(); }";
    let by_name = "int f(void); int main(void) { return f(); }";
    objects(&directory, &[], &[("f", versioned), ("by_name", by_name), ("by_version", by_version)]);
    archive(&directory, "rc", "libf.a", &["f.o"]);
    for object in ["by_name.o", "by_version.o"] {
        for order in [[object, "libf.a"], ["libf.a", object]] {
            run(&directory, &order).code(9).stdout("f\n");
        }
    }
}

// Seen red: the C library's `strdup` called its own `malloc`, and the program's `free` got the block.
#[test]
fn an_allocator_of_the_program_is_refused_by_name() {
    let directory = directory();
    let allocator = "static char bytes[4096]; static int used; void abort(void);
        void *malloc(unsigned long size) { void *block = bytes + used; used += (size + 15) / 16 * 16; return block; }
        void free(void *block) { if (block && ((char *)block < bytes || (char *)block > bytes + 4096)) abort(); }";
    let main = "char *strdup(const char *); void *malloc(unsigned long); void free(void *);
        int main(void) { free(malloc(8)); free(strdup(\"text\")); return 5; }";
    objects(&directory, &[], &[("allocator", allocator), ("main", main), ("plain", "int main(void) { return 4; }")]);
    archive(&directory, "rc", "libmalloc.a", &["allocator.o"]);
    run_fails(&directory, &["main.o", "libmalloc.a"]).stderr(contains("`malloc`").and(contains("C library")));
    run(&directory, &["main.o"]).code(5);
    // A member that is not linked, and a link that is not run, harm nobody.
    run(&directory, &["plain.o", "libmalloc.a"]).code(4);
    run(&directory, &["main.o", "libmalloc.a", "--no-exec", "--phony-externals"]).code(0);
}

/// `gcc -fsplit-stack` tells the linker to wrap `pthread_create`. Then threads get a stack that grows, of any size at first.
#[test]
fn code_with_split_stacks_runs_in_threads_if_thread_creation_is_wrapped_as_the_compiler_does() {
    if !require_x86_64() {
        return;
    }
    let directory = directory();
    let main = "
        #include <pthread.h>
        #include <stdio.h>
        static long deep(long n) { volatile char room[4096]; room[0] = 1; return n ? deep(n - 1) + room[0] : 0; }
        static void *run(void *n) { return (void *)deep((long)n); }
        int main(void) {
            pthread_attr_t small;
            pthread_t threads[4];
            long sum = 0;
            pthread_attr_init(&small);
            pthread_attr_setstacksize(&small, 65536);
            for (long i = 0; i < 4; i++) if (pthread_create(&threads[i], &small, run, (void *)(1000 + i))) return 9;
            for (int i = 0; i < 4; i++) { void *result; pthread_join(threads[i], &result); sum += (long)result; }
            printf(\"%ld\\n\", sum);
            return 3;
        }";
    objects(&directory, &["-fsplit-stack"], &[("main", main)]);
    tool("gcc", &directory).args(["-fsplit-stack", "main.o", "-o", "native"]).unwrap();
    let native = Command::new(directory.join("native")).output().expect("the native program");
    assert_eq!((native.status.code(), native.stdout.as_slice()), (Some(3), &b"4006\n"[..]));
    run(&directory, &["main.o", "--wrap", "pthread_create"]).code(3).stdout("4006\n");
}

#[test]
fn the_report_counts_pulled_members_and_everything_is_returned() {
    let directory = directory();
    objects(
        &directory,
        &[],
        &[("main", "int first(void); int main(void) { return first(); }"), ("first", "int first(void) { return 3; }")],
    );
    archive(&directory, "rc", "liba.a", &["first.o"]);
    run(&directory, &["main.o", "liba.a", "--report", "report.json"]).code(3);
    let report = report(&directory);
    let link = &report["link"];
    assert_eq!((&link["objects"], &link["members_pulled"]), (&2.into(), &1.into()), "{report:#}");
    let call = if cfg!(target_arch = "x86_64") { "R_X86_64_PLT32" } else { "R_AARCH64_CALL26" };
    assert!(link["relocations"][call].as_u64().is_some_and(|count| count >= 1));
    for phase in ["read", "prune", "plan_and_allocate", "look_up", "fix_up", "seal"] {
        assert!(link["phases"][format!("{phase}_us")].as_f64().is_some_and(|took| took > 0.0), "{phase}: {report:#}");
    }
    assert_eq!(report["removal"]["everything_returned"], true);
}

#[test]
fn a_dylib_searches_itself_first_and_then_exports_of_the_others() {
    let directory = directory();
    objects(
        &directory,
        &[],
        &[
            ("main", "int own(void) { return 1; } int theirs(void); int main(void) { return own() * 10 + theirs(); }"),
            ("other", "int own(void) { return 2; } int theirs(void) { return own(); }"),
        ],
    );
    run(&directory, &["main.o", "--dylib", "second", "other.o"]).code(12);
    run_fails(&directory, &["main.o", "other.o"]).stderr(contains("duplicate definition of `own`"));
    objects(&directory, &["-fvisibility=hidden"], &[("hidden", "int theirs(void) { return 2; }")]);
    run_fails(&directory, &["main.o", "--dylib", "second", "hidden.o"]).stderr(contains("`theirs`"));
}

#[test]
fn the_command_line_defines_symbols_and_aliases() {
    let directory = directory();
    objects(
        &directory,
        &[],
        &[(
            "main",
            "extern char fixed[]; int named(void); int real(void) { return 5; } int main(void) { return (int)(long)fixed + named(); }",
        )],
    );
    run(&directory, &["main.o", "--define", "fixed=0x20", "--alias", "named=real"]).code(37);
    let options = ["--define", "fixed=1", "--alias", "named=real", "--alias", "begin=main", "--entry", "real"];
    run(&directory, &[&["main.o"], &options[..]].concat()).code(5);
}

#[test]
fn worker_threads_link_the_same_program() {
    let directory = directory();
    let sources: Vec<(String, String)> = (0..40)
        .map(|i| {
            let next = if i == 39 { "0".to_string() } else { format!("f{}()", i + 1) };
            (format!("f{i}"), format!("int f{}(void); int f{i}(void) {{ return {next} + 1; }}", i + 1))
        })
        .collect();
    let sources: Vec<(&str, &str)> = sources.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    objects(&directory, &[], &sources);
    objects(&directory, &[], &[("main", "int f0(void); int main(void) { return f0(); }")]);
    let members: Vec<String> = (0..40).map(|i| format!("f{i}.o")).collect();
    let members: Vec<&str> = members.iter().map(String::as_str).collect();
    archive(&directory, "rc", "libf.a", &members);
    for threads in ["0", "1", "2", "4"] {
        run(&directory, &["main.o", "libf.a", "--threads", threads]).code(40);
    }
}

/// One object refers to many objects, and each of these to an archive member of its own. An initialiser in each prints its name.
#[test]
fn initialisers_run_in_the_same_order_with_any_number_of_threads() {
    const COUNT: usize = 60;
    let directory = directory();
    let with_initialiser = |name: String, text: String| {
        let say = format!("__attribute__((constructor)) static void say(void) {{ puts(\"{name}\"); }}");
        (name, format!("void puts(const char *); {say} {text}"))
    };
    let object = |number| {
        let text = format!("int m{number}(void); int o{number}(void) {{ return m{number}(); }}");
        with_initialiser(format!("o{number}"), text)
    };
    let member = |number| with_initialiser(format!("m{number}"), format!("int m{number}(void) {{ return {number}; }}"));
    let each = |text: fn(usize) -> String| (0..COUNT).map(text).collect::<String>();
    let (declared, called) = (each(|number| format!("int o{number}(void);")), each(|number| format!(" + o{number}()")));
    let main = ("main".to_string(), format!("{declared} int main(void) {{ return (0{called}) / 100; }}"));
    let sources: Vec<_> = (0..COUNT).flat_map(|number| [object(number), member(number)]).chain([main]).collect();
    let sources: Vec<(&str, &str)> = sources.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    objects(&directory, &[], &sources);
    let named = |kind: &str| (0..COUNT).map(|number| format!("{kind}{number}.o")).collect::<Vec<String>>();
    let (given, members) = (named("o"), named("m"));
    archive(&directory, "rc", "libm.a", &members.iter().map(String::as_str).collect::<Vec<_>>());
    let given: Vec<&str> = ["main.o", "./libm.a"].into_iter().chain(given.iter().map(String::as_str)).collect();
    let print = |threads: &str| {
        let run = run(&directory, &[&given[..], &["--threads", threads]].concat()).code(17);
        String::from_utf8(run.get_output().stdout.clone()).unwrap()
    };
    let expected = print("0");
    assert_eq!(expected.lines().count(), 2 * COUNT);
    for threads in ["2", "4"].iter().cycle().take(12) {
        assert_eq!(print(threads), expected, "{threads} threads");
    }
}

#[test]
fn link_threads_end_before_the_program_starts_and_everything_is_returned() {
    // Shares the process: the program that `jittison run` runs counts its own threads.
    let directory = directory();
    let count = "#include <dirent.h>
        int main(void) { int n = -3; DIR *tasks = opendir(\"/proc/self/task\"); for (; tasks; n++) if (!readdir(tasks)) return n; return 99; }";
    objects(&directory, &[], &[("main", count), ("other", "int other(void) { return 1; }")]);
    // An emulator has a thread of its own.
    let expected = native(&directory, &["main.o", "other.o"]);
    for threads in ["0", "1", "4"] {
        let arguments = ["main.o", "other.o", "--threads", threads, "--report", "report.json"];
        // The status is the number of threads besides the main one.
        run(&directory, &arguments).code(expected);
        let report = report(&directory);
        assert_eq!(
            (&report["removal"]["everything_returned"], &report["removal"]["hindrance"]),
            (&true.into(), &Value::Null)
        );
    }
}

#[test]
fn no_exec_links_at_the_given_base_without_process_symbols() {
    let directory = directory();
    objects(&directory, &[], &[("main", "int printf(const char *, ...); int main(void) { return printf(\"no\"); }")]);
    run_fails(&directory, &["main.o", "--no-exec"]).stderr(contains("`printf`"));
    let options = ["--phony-externals", "--base", "0x40000000", "--report", "report.json"];
    run(&directory, &[&["main.o", "--no-exec"], &options[..]].concat()).code(0).stdout("");
    let report = report(&directory);
    assert_eq!(report["link"]["objects"], 1);
    assert_eq!((&report["status"], &report["ended_by"]), (&Value::Null, &Value::Null));
}

/// `libm.so` and `libncurses.so` of many systems are such files.
#[test]
fn a_linker_script_stands_for_the_files_that_it_names() {
    let directory = directory();
    objects(
        &directory,
        &[],
        &[
            (
                "main",
                "int first(void); double cbrt(double); int main(int n, char **v) { return first() + (int)cbrt(n); }",
            ),
            ("first", "int second(void); int first(void) { return second() + 1; }"),
            ("second", "int second(void) { return 40; }"),
        ],
    );
    archive(&directory, "rc", "liba.a", &["first.o"]);
    archive(&directory, "rc", "libb.a", &["second.o"]);
    let write = |text: &str| std::fs::write(directory.join("libboth.so"), text).unwrap();
    let link = ["main.o", "-L", ".", "-l", "both"];
    write("/* a comment ( */ OUTPUT_FORMAT(elf64-x86-64)\nGROUP ( ./liba.a, -lb AS_NEEDED(-lm) )\n");
    run(&directory, &link).code(42);
    write("INPUT(liba.a)INPUT(\"libb.a\")");
    run(&directory, &link).code(42);
    for (text, cause) in [
        ("SEARCH_DIR(/none) INPUT(liba.a)", "libboth.so: the linker script has the command `SEARCH_DIR`"),
        ("INPUT(liba.a", "libboth.so: the linker script has a list without an end"),
        ("INPUT(liba.a))", "libboth.so: the linker script has a `)` too many"),
        ("/* INPUT(liba.a)", "libboth.so: the linker script has a comment without an end"),
        ("INPUT(-lboth)", "libboth.so: too many linker scripts in each other"),
        ("INPUT(-lnone)", "libnone.so"),
        ("not a script", "libboth.so"),
        ("", "libboth.so"),
    ] {
        write(text);
        run_fails(&directory, &link).stderr(contains(cause));
    }
}

/// The exit status of the program that `gcc` links from the same inputs.
fn native(directory: &Path, inputs: &[&str]) -> i32 {
    tool("gcc", directory).arg("-Wl,--no-as-needed").args(inputs).args(["-Wl,-rpath,.", "-o", "native"]).unwrap();
    let status = Command::new(directory.join("native")).current_dir(directory).status();
    status.expect("the native program runs").code().expect("it exits")
}

// Seen red: the member was added, so the program took its function instead of the C library's.
#[test]
fn a_name_that_an_archive_before_its_user_and_a_library_have_is_refused_and_taken_from_a_group() {
    let directory = directory();
    objects(
        &directory,
        &[],
        &[
            ("main", "int user(void); int main(void) { return user(); }"),
            ("user", "int getpagesize(void); int user(void) { return getpagesize() == 4096 ? 7 : getpagesize(); }"),
            ("size", "int getpagesize(void) { return 9; }"),
        ],
    );
    archive(&directory, "rc", "libsize.a", &["size.o"]);
    archive(&directory, "rc", "libuser.a", &["user.o"]);
    assert_eq!(native(&directory, &["libsize.a", "main.o", "user.o"]), 7);
    for inputs in [["libsize.a", "main.o", "user.o"], ["main.o", "libsize.a", "libuser.a"]] {
        run_fails(&directory, &inputs).stderr(
            contains("`getpagesize` is needed by files after the archive that defines it, libsize.a(size.o)")
                .and(contains("a shared library has it")),
        );
    }
    for behind in [["main.o", "user.o", "libsize.a"], ["main.o", "libuser.a", "libsize.a"]] {
        assert_eq!(native(&directory, &behind), 9);
        run(&directory, &behind).code(9);
    }
    let group = ["-Wl,--start-group", "libsize.a", "libuser.a", "-Wl,--end-group"];
    assert_eq!(native(&directory, &[&["main.o"], &group[..]].concat()), 9);
    run(&directory, &["main.o", "--start-group", "libsize.a", "libuser.a", "--end-group"]).code(9);
    run(&directory, &["--start-group", "libsize.a", "--end-group", "main.o", "--start-group", "libuser.a"])
        .code(125)
        .stderr(contains("`getpagesize`"));
}

// Seen red: the member was added, and its definition counted.
#[test]
fn a_library_before_an_archive_keeps_out_the_members_for_its_names() {
    let directory = directory();
    objects(
        &directory,
        &[],
        &[
            ("main", "int first(void), second(void); int main(void) { return first() * 10 + second(); }"),
            ("first", "int first(void) { return 1; }"),
            ("second", "int second(void) { return 1; }"),
        ],
    );
    archive(&directory, "rc", "libboth.a", &["first.o", "second.o"]);
    fs::write(directory.join("two.c"), "int first(void) { return 2; }").expect("a source");
    tool("gcc", &directory).args(["-shared", "-fPIC", "two.c", "-o", "libtwo.so"]).unwrap();
    for (inputs, status) in [
        (["main.o", "./libtwo.so", "libboth.a"], 21),
        (["./libtwo.so", "main.o", "libboth.a"], 21),
        (["main.o", "libboth.a", "./libtwo.so"], 11),
    ] {
        assert_eq!(native(&directory, &inputs), status);
        let options: Vec<&str> = inputs
            .iter()
            .flat_map(|input| if input.ends_with(".so") { vec!["-l", *input] } else { vec![*input] })
            .collect();
        run(&directory, &options).code(status);
    }
}

// Seen red: the common symbol stayed, and the member was not added.
#[test]
fn a_member_with_data_takes_the_place_of_a_common_symbol_and_one_with_a_weak_definition_does_not() {
    let directory = directory();
    let variables = |attributes: &str| format!("{attributes} int plain = 3; {attributes} __thread int local = 4;");
    objects(
        &directory,
        &["-fcommon"],
        &[
            ("main", "int plain; extern __thread int local; int main(void) { return plain * 10 + local; }"),
            ("strong", &variables("")),
            ("weak", &variables("__attribute__((weak))")),
        ],
    );
    fs::write(directory.join("common.s"), ".tls_common local,4,4\n.section .note.GNU-stack,\"\"").expect("a source");
    tool("gcc", &directory).args(["-c", "common.s", "-o", "common.o"]).unwrap();
    for (member, status) in [("strong", 34), ("weak", 0)] {
        archive(&directory, "rc", &format!("lib{member}.a"), &[&format!("{member}.o")]);
        let inputs = ["main.o", "common.o", &format!("lib{member}.a")];
        assert_eq!(native(&directory, &inputs), status, "{member}");
        run(&directory, &inputs).code(status);
    }
}

// Seen red: the first object was above 2 GiB, the second below, and the table of distances did not reach.
#[test]
fn all_objects_are_below_2_gib_if_one_of_them_has_to_be() {
    if !require_x86_64() {
        return;
    }
    let directory = directory();
    objects(&directory, &[], &[("main", "long entry(void); int main(void) { return (int)entry(); }")]);
    let low = ".globl seven\n.data\nseven: .quad 7\n.text\n.globl below\nbelow: mov $below, %eax; ret\n";
    let table = ".globl entry\n.section .rodata\ntable: .long seven - .\n.text\n\
                 entry: lea table(%rip), %rcx; movslq (%rcx), %rax; mov (%rax, %rcx), %rax; ret\n";
    for (name, text) in [("low", low), ("table", table)] {
        fs::write(directory.join(format!("{name}.s")), format!("{text}.section .note.GNU-stack,\"\"\n"))
            .expect("a source");
        tool("as", &directory).args([&format!("{name}.s"), "-o", &format!("{name}.o")]).unwrap();
    }
    tool("gcc", &directory).args(["-no-pie", "main.o", "table.o", "low.o", "-o", "native"]).unwrap();
    let native = Command::new(directory.join("native")).status().expect("the native program runs");
    assert_eq!(native.code(), Some(7));
    run(&directory, &["main.o", "table.o", "low.o"]).code(7);
}

// Seen red: the library's `getopt` changed its own variable, and the program read another one.
#[test]
fn a_variable_of_the_c_library_that_the_program_defines_is_refused_if_the_library_uses_it() {
    // Shares the process: the programs run in processes of their own.
    let directory = directory();
    let main = "int getopt(int, char *const *, const char *); extern int optind;
        int main(void) { static char o[] = \"-a\"; char *v[] = { o, o, 0 }; return getopt(2, v, \"a\") == 97 ? optind : 99; }";
    objects(
        &directory,
        &["-fcommon"],
        &[
            ("main", main),
            ("global", "int optind = 1;"),
            ("common", "int optind;"),
            ("hidden", "__attribute__((visibility(\"hidden\"))) int optind = 1;"),
            ("own", "int optind = 1; int getopt(int n, char *const *v, const char *o) { optind = 5; return 97; }"),
        ],
    );
    for (other, status) in [("global.o", 2), ("common.o", 2)] {
        assert_eq!(native(&directory, &["main.o", other]), status);
        run_fails(&directory, &["main.o", other]).stderr(contains("the variable `optind`").and(contains("`getopt`")));
    }
    for (inputs, status) in [(&["main.o"][..], 2), (&["main.o", "own.o"], 5), (&["main.o", "hidden.o"], 1)] {
        assert_eq!(native(&directory, inputs), status);
        run(&directory, inputs).code(status);
    }
}

// Seen red: threads of `std::thread` had no unsafe stack, which the `pthread_create` of Clang's `safe-stack` makes, and crashed.
#[test]
fn a_function_of_the_c_library_that_the_program_defines_is_refused_if_the_cpp_library_calls_it() {
    let directory = directory();
    let own = "
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <pthread.h>
        int created;
        int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument) {
            int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = dlsym(RTLD_NEXT, \"pthread_create\");
            created++;
            return real(thread, attributes, run, argument);
        }";
    let plain = "
        #include <pthread.h>
        extern int created;
        static void *run(void *x) { return x; }
        int main(void) { pthread_t t; pthread_create(&t, 0, run, 0); pthread_join(t, 0); return 4 + created; }";
    objects(&directory, &[], &[("own", own), ("plain", plain)]);
    let threads = "#include <thread>
        extern \"C\" int created;
        int main() { std::thread([] {}).join(); return 4 + created; }";
    fs::write(directory.join("threads.cpp"), threads).expect("a source");
    tool("g++", &directory).args(["-c", "-fPIC", "threads.cpp", "-o", "threads.o"]).unwrap();
    archive(&directory, "rc", "libown.a", &["own.o"]);
    run(&directory, &["plain.o", "own.o"]).code(5);
    for other in ["own.o", "libown.a"] {
        let refused = run_fails(&directory, &["threads.o", other]);
        refused.stderr(contains("`pthread_create`").and(contains("_ZNSt6thread15_M_start_thread")));
    }
}
