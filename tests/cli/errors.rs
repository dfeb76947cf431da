//! Errors are reported in one line that names the object, with an exit status of their own. The tool never crashes.

use std::fs;
use std::path::Path;

use jittison_test_tools::require_that;
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;

use crate::native::{
    GNU, OTHER, OWN, Twins, compile, directory, error_text, fails, has_failed, jittison, tool, wrong_architecture,
};

/// Writes the bytes to `bad.o`. Both subcommands must refuse the file with the same message, which names it.
fn refused(directory: &Path, bytes: &[u8], about: &str) -> String {
    fs::write(directory.join("bad.o"), bytes).expect("a file for the object");
    let failed = |command| {
        has_failed(jittison(directory).args([command, "bad.o"]).assert().append_context("case", about.to_string()))
    };
    let message = error_text(&failed("run").stderr(contains("bad.o")));
    failed("inspect").stderr(message.clone());
    message
}

fn good_object(directory: &Path) -> Vec<u8> {
    compile(GNU, &["-O1"], &["exceptions_main.cpp"], directory);
    fs::read(directory.join("exceptions_main.o")).expect("the object")
}

#[test]
fn a_truncated_object_is_refused_wherever_it_ends() {
    let directory = directory();
    let object = good_object(&directory);
    let step = object.len() / 150;
    for length in (0..64).step_by(7).chain((64..object.len()).step_by(step)).chain([object.len() - 1]) {
        let message = refused(&directory, &object[..length], &format!("{length} bytes"));
        assert!(message.contains("cannot link bad.o: "), "{message}");
    }
}

#[test]
fn a_corrupted_object_is_linked_or_refused_and_never_crashes_the_tool() {
    let directory = directory();
    let object = good_object(&directory);
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % below as u64) as usize
    };
    // The file header, the section headers at the end, and the entire file.
    let ranges = [(0, 64), (object.len() * 3 / 4, object.len()), (0, object.len())];
    let mut refusals = 0;
    for round in 0..360 {
        let (start, end) = ranges[round % ranges.len()];
        let mut bytes = object.clone();
        for _ in 0..=round % 3 {
            bytes[start + random(end - start)] ^= 1 << random(8);
        }
        fs::write(directory.join("bad.o"), &bytes).expect("a file for the object");
        let inspected = jittison(&directory).args(["inspect", "bad.o"]).assert();
        // A file that is still an object is not run, because its code may be anything.
        if inspected.try_success().is_err() {
            refused(&directory, &bytes, &format!("round {round}"));
            refusals += 1;
        }
    }
    assert!(refusals > 60, "only {refusals} files were refused, too few to test anything");
}

#[test]
fn an_object_for_another_machine_is_refused_by_name() {
    let directory = directory();
    let object = good_object(&directory);
    let for_machine = |machine| {
        let mut bytes = object.clone();
        bytes[18..20].copy_from_slice(&u16::to_le_bytes(machine));
        bytes
    };
    for (machine, name) in [(3, "i386 (3)"), (243, "RISC-V (243)"), (0x1234, "4660")] {
        let message = refused(&directory, &for_machine(machine), name);
        assert!(message.contains(&format!("wrong architecture: e_machine is {name}")), "{message}");
    }
    // `inspect` reads objects for both architectures, so this one is refused only where it would run.
    fs::write(directory.join("bad.o"), for_machine(OTHER.number)).expect("a file for the object");
    has_failed(jittison(&directory).args(["run", "bad.o"]).assert())
        .stderr(contains(format!("cannot link bad.o: {}", wrong_architecture(OTHER, OWN))));
    for (place, value) in [(4, 1), (5, 2)] {
        let mut bytes = object.clone();
        bytes[place] = value;
        let message = refused(&directory, &bytes, "class and byte order");
        assert!(message.contains("not 64-bit little-endian"), "{message}");
    }
}

#[test]
fn files_that_are_no_objects_are_refused() {
    let directory = directory();
    let twins = Twins::build(GNU, &["-O1"], "no-object", &["data_entry.c", "write_and_run.c"]);
    let executable = fs::read(twins.directory.join("native")).expect("the program");
    let others: [(&[u8], &str); 3] =
        [(&executable, "e_type is"), (b"int main;\n", "begins with"), (b"", "begins with")];
    for (bytes, words) in others {
        let message = refused(&directory, bytes, words);
        assert!(message.contains(words), "{message}");
    }
    for path in ["nowhere.o", "."] {
        fails(&directory, &["run", path]);
        fails(&directory, &["inspect", path]);
    }
}

#[test]
fn a_writable_and_executable_section_is_refused_by_name() {
    let directory = directory();
    let objects = compile(GNU, &["-O1"], &["write_and_run.c"], &directory);
    let bytes = fs::read(directory.join(&objects[0])).expect("the object");
    let message = refused(&directory, &bytes, "both");
    assert!(message.contains("unsupported") && message.contains("both writable and executable"), "{message}");
}

#[test]
fn all_missing_symbols_are_listed_with_the_objects_that_need_them() {
    let directory = directory();
    compile(GNU, &["-O1"], &["missing_one.c", "missing_two.c"], &directory);
    let failed = fails(&directory, &["run", "missing_one.o", "missing_two.o"]);
    insta::assert_snapshot!(
        error_text(&failed),
        @"jittison: symbols not found in the objects, this process or its libraries: `absent_a`, `absent_b` (needed by missing_one.o); `absent_data` (needed by missing_two.o)"
    );
}

#[test]
fn a_duplicate_definition_is_reported_with_both_objects() {
    let directory = directory();
    compile(GNU, &["-O1"], &["write_and_run.c", "greet_main.c", "missing_one.c"], &directory);
    let failed = fails(&directory, &["run", "greet_main.o", "missing_one.o"]);
    insta::assert_snapshot!(
        error_text(&failed),
        @"jittison: duplicate definition of `main` in dylib `main`: first in greet_main.o, again in missing_one.o; the second definition was not added; remove the first one, or make one of them weak or local"
    );
}

#[test]
fn a_wrong_entry_library_or_report_path_is_an_error_before_anything_runs() {
    let directory = directory();
    compile(GNU, &["-O1"], &["data_entry.c"], &directory);
    for (options, words) in [
        (&[][..], "no object defines a function `main`"),
        (&["--entry", "main_data"], "`main_data` is not a function"),
        (&["--entry", "entry", "-l", "no_such_library"], "libno_such_library.so"),
        (&["--entry", "entry", "-l", "/no/such/library.so"], "/no/such/library.so"),
        (&["--entry", "entry", "--report", "no/such/directory.json"], "no/such/directory.json"),
    ] {
        let arguments: Vec<&str> = ["run", "data_entry.o"].iter().chain(options).copied().collect();
        // The initialiser of the object would print.
        fails(&directory, &arguments).stderr(contains(words));
    }
}

// Seen red: libasan ended the process with a message of its own, and libtsan failed in the loader.
#[test]
fn the_library_of_a_sanitizer_is_refused_unless_the_process_was_started_with_it() {
    let directory = directory();
    let source = "#include <stdlib.h>\n#include <stdio.h>\n
        __attribute__((constructor)) static void start(void) { puts(\"it ran\"); }
        int main(int argc, char **argv) { char *block = malloc(10); block[argc + 7] = 1; free(block); return 3; }";
    let main = object(&directory, "main.c", source);
    for (library, name) in
        [("asan", "libasan.so"), ("/no/such/libtsan.so.2", "libtsan.so"), ("liblsan.so.0", "liblsan.so")]
    {
        let refused = fails(&directory, &["run", &main, "-l", library]);
        refused.stderr(contains(name).and(contains("LD_PRELOAD"))).stdout("");
    }
    // The library of another sanitizer replaces no allocator.
    fails(&directory, &["run", &main, "-l", "ubsan_of_nobody"])
        .stderr(contains("libubsan_of_nobody.so").and(contains("LD_PRELOAD").not()));

    let library = tool(GNU.c, &directory).arg("-print-file-name=libasan.so").unwrap().stdout;
    let library = String::from_utf8(library).unwrap().trim().to_string();
    if !require_that(library.contains('/'), "libasan of gcc") {
        return;
    }
    tool(GNU.c, &directory).args(["-c", "-fPIC", "-fsanitize=address", "main.c", "-o", "checked.o"]).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = jittison(&directory);
        command.args(["run", "checked.o", "-l", "asan", "--"]).args(arguments);
        command.env("LD_PRELOAD", &library).env("ASAN_OPTIONS", "detect_leaks=0").assert()
    };
    run(&[]).code(3).stdout("it ran\n");
    // The block has ten bytes, and the program writes the twelfth one.
    run(&["one", "two", "three"]).code(1).stderr(contains("heap-buffer-overflow"));
}

/// Writes a source file, and compiles it to an object of the same name.
fn object(directory: &Path, name: &str, source: &str) -> String {
    fs::write(directory.join(name), source).expect("a source file");
    let object = format!("{}.o", name.split('.').next().unwrap_or(name));
    tool(GNU.c, directory).args(["-c", "-fPIC", name, "-o", &object]).unwrap();
    object
}

/// A relocation that only a linker writes.
const RELATIVE: &str = if cfg!(target_arch = "x86_64") { "R_X86_64_RELATIVE" } else { "R_AARCH64_RELATIVE" };

const NO_STACK: &str = ".section .note.GNU-stack,\"\",@progbits\n";

#[test]
fn a_cascade_is_reported_by_its_first_cause_once() {
    let directory = directory();
    let refused = format!(".text\n.globl c\nc: ret\n.data\nplace: .quad 0\n.reloc place, {RELATIVE}, c\n{NO_STACK}");
    let objects = [
        object(&directory, "main.c", "extern int a(void); int main(void) { return a(); }"),
        object(&directory, "a.c", "extern int b(void); int a(void) { return b(); }"),
        object(
            &directory,
            "b.c",
            "extern int c(void), a(void); int b(void) { return c() + a(); } int b2(void) { return 1; }",
        ),
        object(&directory, "c.s", &refused),
        object(&directory, "d.c", "extern int b2(void); int d(void) { return b2(); }"),
    ];
    for first in 0..objects.len() {
        let mut files: Vec<&str> = objects.iter().map(String::as_str).collect();
        files.rotate_left(first);
        let threads = ["0", "3"].map(|number| [&["run", "--threads", number][..], &files].concat());
        let without_running = [&["run", "--no-exec"][..], &files].concat();
        for arguments in [&threads[0], &threads[1], &without_running, &[&["map"][..], &files].concat()] {
            let message = error_text(&fails(&directory, arguments));
            assert_eq!(message.matches("cannot link c.o: ").count(), 1, "{arguments:?}: {message}");
            let place = format!("{RELATIVE} (section `.data`, offset 0x0, symbol `c`)");
            assert!(message.contains(&place), "{message}");
            assert!(!message.contains("not found") && !message.contains("was removed"), "{arguments:?}: {message}");
        }
    }
}

/// The instruction of a call.
const CALL: &str = if cfg!(target_arch = "x86_64") { "call" } else { "bl" };

#[test]
fn thousands_of_missing_symbols_and_failures_make_a_short_message() {
    let directory = directory();
    let calls: String = (0..5_000).map(|number| format!("{CALL} missing{number}\n")).collect();
    object(&directory, "many.s", &format!(".text\n.globl main\n.type main, %function\nmain:\n{calls}ret\n{NO_STACK}"));
    let message = error_text(&fails(&directory, &["run", "many.o"]));
    assert!(
        message.contains("`missing0`, `missing1`, ") && message.contains("and 4992 more (needed by many.o)"),
        "{message}"
    );
    assert!(message.len() < 1_000, "{} bytes", message.len());

    let objects: Vec<String> = (0..20)
        .map(|number| {
            let source = format!("extern int gone{number}(void); int f{number}(void) {{ return gone{number}(); }}");
            object(&directory, &format!("f{number}.c"), &source)
        })
        .collect();
    object(&directory, "start.c", "int main(void) { return 0; }");
    let files: Vec<&str> = ["run", "start.o"].into_iter().chain(objects.iter().map(String::as_str)).collect();
    let message = error_text(&fails(&directory, &files));
    assert!(message.contains("`gone0` (needed by f0.o); ") && message.contains(" and 12 more"), "{message}");
}

#[test]
fn wrapped_symbols_are_those_of_ld() {
    let directory = directory();
    let objects = [
        object(&directory, "main.c", "extern int f(int); int main(int n, char **v) { return f(n); }"),
        object(&directory, "f.c", "int f(int x) { return x + 1; }"),
        object(&directory, "w.c", "extern int __real_f(int); int __wrap_f(int x) { return __real_f(x) * 10; }"),
    ];
    let files: Vec<&str> = objects.iter().map(String::as_str).collect();
    tool(GNU.c, &directory).args(&files).args(["-Wl,--wrap=f", "-o", "native"]).unwrap();
    let expected = std::process::Command::new(directory.join("native")).status().expect("it runs").code();
    assert_eq!(expected, Some(20));
    jittison(&directory).args(["run", "--wrap=f"]).args(&files).assert().code(20);
    jittison(&directory).args(["run", "--threads", "2", "--wrap", "f"]).args(&files).assert().code(20);
    jittison(&directory).args(["run", "main.o", "f.o"]).assert().code(2);
    let message = error_text(&fails(&directory, &["run", "--wrap=f", "main.o", "f.o"]));
    assert!(message.contains("`__wrap_f` (needed by main.o)"), "{message}");
    jittison(&directory).args(["run", "--no-exec", "--wrap=f"]).args(&files).assert().success();
}
