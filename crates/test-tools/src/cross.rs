//! Tools for the architecture of the tests, where the tests of another architecture run under an emulator.
//!
//! Two environment variables tell of it; `.ci/aarch64` sets them:
//!
//! | variable | what it is | example |
//! |---|---|---|
//! | `JITTISON_CROSS` | the triple of GNU tools and of clang | `aarch64-linux-gnu` |
//! | `JITTISON_EMULATOR` | the emulator | `qemu-aarch64` |

use std::env;
use std::path::Path;
use std::process::Command;

use crate::require::require_that;

/// Skips the calling test (`false`, and the caller must return) on an architecture other than x86-64.
pub fn require_x86_64() -> bool {
    require_that(cfg!(target_arch = "x86_64"), "x86-64")
}

/// The options of compilers for the large code model. Not every architecture has position-independent code of that model.
pub const LARGE_CODE_MODEL: [&str; 2] =
    [if cfg!(target_arch = "x86_64") { "-fPIC" } else { "-fno-pic" }, "-mcmodel=large"];

/// The option by which compilers mark the entries that indirect branches may reach.
pub const MARKED_ENTRIES: &str =
    if cfg!(target_arch = "x86_64") { "-fcf-protection=full" } else { "-mbranch-protection=standard" };

/// The option by which compilers use TLS descriptors.
pub const TLS_DESCRIPTORS: &str =
    if cfg!(target_arch = "x86_64") { "-mtls-dialect=gnu2" } else { "-mtls-dialect=desc" };

/// A command that runs a program of this architecture.
pub fn emulated(program: &Path) -> Command {
    match env::var_os("JITTISON_EMULATOR") {
        None => Command::new(program),
        Some(emulator) => {
            let mut command = Command::new(emulator);
            command.arg(program);
            command
        }
    }
}

/// The name of the tool that works for this architecture, and arguments that it needs for that.
pub(crate) fn of_target(tool: &str) -> (String, Vec<String>) {
    let Ok(triple) = env::var("JITTISON_CROSS") else { return (tool.to_string(), Vec::new()) };
    match tool {
        "cc" => (format!("{triple}-gcc"), Vec::new()),
        "c++" => (format!("{triple}-g++"), Vec::new()),
        "gcc" | "g++" | "ar" | "nm" | "ld" | "objcopy" | "objdump" | "readelf" | "strip" => {
            (format!("{triple}-{tool}"), Vec::new())
        }
        // They work on processes of this machine, so they are missing.
        "gdb" | "perf" | "valgrind" => (format!("{triple}-{tool}"), Vec::new()),
        _ if tool.starts_with("clang") => (tool.to_string(), vec![format!("--target={triple}")]),
        _ if Path::new(tool).ends_with("rustc") => {
            (tool.to_string(), vec!["--target".to_string(), triple.replace("-linux-", "-unknown-linux-")])
        }
        _ => (tool.to_string(), Vec::new()),
    }
}
