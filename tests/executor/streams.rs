//! Standard input, output and error of programs that run in a far executor.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use jittison::executor::ExecutorProcess;
use jittison_test_tools::{PrivateDir, emulated};

use crate::far::{Listening, TOKEN};
use crate::{c, start};

/// Writes its input twice as long to the output, and the number of bytes to the error output. Ends by its argument.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(int argc, char **argv) {
    long count = 0;
    for (int c; (c = getchar()) != EOF; count++) { putchar(c); putchar(c); }
    fprintf(stderr, "%ld\n", count);
    if (argc > 1 && !strcmp(argv[1], "exit")) exit(3);
    if (argc > 1 && !strcmp(argv[1], "abort")) { fflush(stdout); abort(); }
    return 2;
}
"#;

fn run(object: &Path, listening: &Listening, how: &str) -> Command {
    let mut command = emulated(Path::new(env!("CARGO_BIN_EXE_jittison")));
    command.args(["run", &format!("--executor=tcp:{}", listening.address)]).arg(object).args(["--", how]);
    command.env("JITTISON_EXECUTOR_TOKEN", TOKEN);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn a_program_of_a_far_executor_has_the_streams_of_the_command() {
    let Some(object) = c(PROGRAM) else { return };
    let folder = PrivateDir::new();
    let path = folder.path("program.o");
    std::fs::write(&path, object).unwrap();
    let input: Vec<u8> = (0..300_000_u32).map(|number| (number % 251) as u8).collect();
    let twice: Vec<u8> = input.iter().flat_map(|byte| [*byte, *byte]).collect();
    for (how, status) in [("return", 2), ("exit", 3), ("abort", 125)] {
        let listening = Listening::start();
        let mut child = run(&path, &listening, how).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let output = std::thread::scope(|scope| {
            scope.spawn(|| {
                stdin.write_all(&input).unwrap();
                drop(stdin);
            });
            child.wait_with_output().unwrap()
        });
        assert!(output.stdout == twice, "{how}: {} bytes", output.stdout.len());
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.starts_with("300000\n"), "{how}: {error}");
        assert_eq!(output.status.code(), Some(status), "{how}: {error}");
    }
}

#[test]
fn streams_are_forwarded_once_and_from_far_executors_only() {
    let error = start().forward_streams().unwrap_err().to_string();
    assert!(error.contains("an executor of this machine has the streams of its command"), "{error}");
    let listening = Listening::start();
    let executor = ExecutorProcess::connect(listening.address, TOKEN).unwrap();
    executor.forward_streams().unwrap();
    let error = executor.forward_streams().unwrap_err().to_string();
    assert!(error.contains("were not forwarded: they are already"), "{error}");
    executor.end().unwrap();
}
