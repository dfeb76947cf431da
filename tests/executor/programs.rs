//! Programs that run in an executor, by the command line.

use std::process::{Command, Output};

use crate::{c, tools};

/// Compiles `source` and runs it by `jittison run --executor`.
fn run(source: &str, arguments: &[&str]) -> Option<Output> {
    let object = c(source)?;
    let directory = tools::PrivateDir::new();
    let path = directory.write("program.o", object);
    let mut tool = Command::new(env!("CARGO_BIN_EXE_jittison"));
    // Without a path it is the program beside.
    tool.arg("run").arg("--executor").arg(path);
    Some(tool.arg("--").args(arguments).output().unwrap())
}

#[test]
fn a_program_returns_its_status_and_its_output() {
    let source = r#"
        #include <stdio.h>
        int main(int argc, char **argv) { printf("%d %s\n", argc, argv[1]); return 3; }
    "#;
    let Some(output) = run(source, &["word"]) else { return };
    assert_eq!(String::from_utf8_lossy(&output.stdout), "2 word\n", "{output:?}");
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn a_program_reads_the_input_of_its_controller() {
    let Some(object) = c(
        "#include <stdio.h>\nint main(void) { char line[9] = \"\"; return !fgets(line, 9, stdin) || line[0] != 'y'; }",
    ) else {
        return;
    };
    let directory = tools::PrivateDir::new();
    let input = directory.write("input", "yes\n");
    let mut tool = Command::new(env!("CARGO_BIN_EXE_jittison"));
    tool.args(["run", "--executor"]).arg(directory.write("program.o", object));
    let output = tool.stdin(std::fs::File::open(input).unwrap()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn a_program_that_calls_exit_runs_its_handlers() {
    let source = r#"
        #include <stdio.h>
        #include <stdlib.h>
        static void bye(void) { puts("bye"); }
        __attribute__((destructor)) static void last(void) { puts("last"); }
        int main(void) { atexit(bye); exit(9); }
    "#;
    let Some(output) = run(source, &[]) else { return };
    assert_eq!(String::from_utf8_lossy(&output.stdout), "bye\nlast\n", "{output:?}");
    assert_eq!(output.status.code(), Some(9));
}

#[test]
fn a_program_that_crashes_is_reported_and_ends_nothing_else() {
    let Some(output) = run("int main(void) { *(volatile int *)8 = 1; return 0; }", &[]) else { return };
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("was ended by signal 11 (SIGSEGV) while it ran `main`"), "{text}");
    assert!(text.contains(" at the address 0x8 in main+"), "{text}");
}
