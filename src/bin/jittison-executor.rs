//! The process that runs the code of a session in another process. `jittison run --executor` and `ExecutorProcess::start` start
//! it; it has no arguments.

use std::process::ExitCode;

fn main() -> ExitCode {
    match jittison::executor::serve_standard_input() {
        Ok(never) => match never {},
        Err(error) => {
            eprintln!("jittison-executor: {error}");
            ExitCode::FAILURE
        }
    }
}
