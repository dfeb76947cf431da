//! `JitBuilder::wrap`: undefined references to a wrapped symbol go to its wrapper, and those to its `__real_` name go to the symbol. The
//! results are those of `gcc -Wl,--wrap`.

use std::process::Command;

use jittison::Jit;

use crate::support::*;

/// Objects, by name, of which one defines `main`.
type Sources = [(&'static str, &'static str)];

/// The status of the program that gcc links with `--wrap` for each symbol.
fn native_status(sources: &Sources, wrapped: &[&str]) -> Option<i64> {
    let directory = PrivateDir::new();
    let gcc = require("gcc")?;
    let mut link = Command::new(gcc.get_program());
    link.args(["-o", directory.path("program").to_str()?]);
    for (name, source) in sources {
        link.arg(directory.write(name, c(source)?));
    }
    link.args(wrapped.iter().map(|symbol| format!("-Wl,--wrap={symbol}")));
    assert!(link.status().unwrap().success(), "ld links {sources:?}");
    Some(Command::new(directory.path("program")).status().unwrap().code().unwrap().into())
}

fn jit_with(sources: &Sources, wrapped: &[&str]) -> Option<Jit> {
    let jit = wrapped.iter().fold(Jit::builder(), |builder, symbol| builder.wrap(symbol)).build().unwrap();
    for (name, source) in sources {
        jit.add_object(&jit.main_dylib().default_tracker().unwrap(), name, c(source)?).unwrap();
    }
    Some(jit)
}

fn compare(sources: &Sources, wrapped: &[&str], expected: i64) {
    let (Some(native), Some(jit)) = (native_status(sources, wrapped), jit_with(sources, wrapped)) else { return };
    assert_eq!((native, long(&jit, "main")), (expected, expected), "{wrapped:?}: {sources:?}");
}

const MAIN: (&str, &str) = ("main.o", "extern int f(int); int main(void) { return f(1); }");
const F: (&str, &str) = ("f.o", "int f(int x) { return x + 1; } int g(int x) { return f(x) + 100; }");
const WRAPPER: (&str, &str) =
    ("wrapper.o", "extern int __real_f(int); int __wrap_f(int x) { return __real_f(x) * 10; }");

#[test]
fn an_undefined_reference_goes_to_the_wrapper_and_the_wrapper_reaches_the_original() {
    compare(&[MAIN, F, WRAPPER], &["f"], 20);
    compare(&[WRAPPER, F, MAIN], &["f"], 20);
    compare(&[MAIN, F, WRAPPER, ("real.o", "int __real_f(int x) { return 0 * x; }")], &[], 2);
    let inside = ("main.o", "extern int g(int); int main(void) { return g(1); }");
    compare(
        &[
            inside,
            ("f.o", "__attribute__((noinline)) int f(int x) { return x + 1; } int g(int x) { return f(x) + 100; }"),
            WRAPPER,
        ],
        &["f"],
        102,
    );
}

#[test]
fn a_wrapper_in_the_object_of_its_caller_is_used_and_pointers_to_functions_are_wrapped_too() {
    let both = (
        "main.o",
        "extern int f(int), __real_f(int); int __wrap_f(int x) { return __real_f(x) * 10; }
         int (*pointer)(int) = f; int main(void) { return f(1) + pointer(2); }",
    );
    compare(&[both, F], &["f"], 50);
    let real_only = ("main.o", "extern int __real_f(int); int main(void) { return __real_f(1); }");
    compare(&[real_only, F], &["f"], 2);
}

#[test]
fn weak_references_data_and_several_symbols_are_wrapped_as_by_ld() {
    let weak = ("main.o", "extern int f(int) __attribute__((weak)); int main(void) { return f ? f(1) : 7; }");
    compare(&[weak, F, WRAPPER], &["f"], 20);
    compare(&[weak, F], &["f"], 7);
    let data = ("main.o", "extern int value, __real_value; int main(void) { return value * 10 + __real_value; }");
    compare(&[data, ("a.o", "int value = 3;"), ("b.o", "int __wrap_value = 4;")], &["value"], 43);
    let two = ("main.o", "extern int f(int), g(int); int main(void) { return f(1) + g(1); }");
    let wrap_g = ("wrap_g.o", "extern int __real_g(int); int __wrap_g(int x) { return __real_g(x) - 90; }");
    compare(
        &[two, ("f.o", "int f(int x) { return x + 1; }"), ("g.o", "int g(int x) { return x + 100; }"), WRAPPER, wrap_g],
        &["f", "g"],
        31,
    );
    let twice =
        ("wrap2.o", "extern int __real___wrap_f(int); int __wrap___wrap_f(int x) { return __real___wrap_f(x) + 5; }");
    compare(&[MAIN, F, WRAPPER, twice], &["f", "__wrap_f"], 20);
}

#[test]
fn a_function_of_the_c_library_is_wrapped() {
    let main = (
        "main.o",
        "#include <stdlib.h>\nextern int count; void *volatile p; int main(void) { p = malloc(8); free(p); return count; }",
    );
    let wrapper = (
        "wrapper.o",
        "#include <stddef.h>\nint count; void *__real_malloc(size_t); void *__wrap_malloc(size_t n) { count += n; return __real_malloc(n); }",
    );
    compare(&[main, wrapper], &["malloc"], 8);
}

#[test]
fn a_member_of_an_archive_is_taken_for_the_wrapper_and_not_for_the_wrapped_name() {
    let Some(objects) = [MAIN.1, F.1, WRAPPER.1].iter().map(|source| c(source)).collect::<Option<Vec<_>>>() else {
        return;
    };
    let directory = PrivateDir::new();
    let members: [(&str, &[u8]); 2] = [("f.o", &objects[1]), ("wrapper.o", &objects[2])];
    let Some(archive) = directory.archive("ar", &["rcs"], "libwrap.a", &members) else { return };
    let (main, program) = (directory.write("main.o", &objects[0]), directory.path("program"));
    let Some(gcc) = require("gcc") else { return };
    let mut link = Command::new(gcc.get_program());
    assert!(link.args(["-Wl,--wrap=f", "-o"]).args([&program, &main, &archive]).status().unwrap().success());
    assert_eq!(Command::new(&program).status().unwrap().code(), Some(20));
    let jit = jit_with(&[MAIN], &["f"]).unwrap();
    jit.link_static_library(jit.main_dylib(), &archive).unwrap();
    assert_eq!(long(&jit, "main"), 20);

    // Without a reference to `__real_f`, the member of `f` is not needed.
    let lone = c("int __wrap_f(int x) { return x + 40; }").unwrap();
    let members: [(&str, &[u8]); 2] = [("f.o", &objects[1]), ("lone.o", &lone)];
    let archive = directory.archive("ar", &["rcs"], "liblone.a", &members).unwrap();
    let jit = jit_with(&[MAIN], &["f"]).unwrap();
    jit.link_static_library(jit.main_dylib(), &archive).unwrap();
    assert_eq!((long(&jit, "main"), jit.main_dylib().symbol_flags("f")), (41, None));
}

#[test]
fn the_host_looks_up_the_original_and_a_missing_wrapper_is_named() {
    let Some(jit) = jit_with(&[MAIN, F], &["f"]) else { return };
    let f = function::<extern "C" fn(i32) -> i32>(&jit, "f");
    assert_eq!(f.call(1), 2);
    assert_says(&jit.address_of(jit.main_dylib(), "main").unwrap_err(), &["`__wrap_f`", "needed by main.o"]);
}

#[test]
fn an_object_that_is_linked_at_once_is_wrapped() {
    let Some(jit) = jit_with(&[F, WRAPPER], &["f"]) else { return };
    let tracker = jit.main_dylib().create_tracker().unwrap();
    jit.link_object(&tracker, MAIN.0, c(MAIN.1).unwrap()).unwrap();
    assert_eq!(long(&jit, "main"), 20);
}
