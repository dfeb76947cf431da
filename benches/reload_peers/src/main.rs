//! From an object that a compiler has written to the first call of its code: jittison beside other tools for reloading.
//!
//! ```text
//! cargo run --release --manifest-path benches/reload_peers/Cargo.toml
//! ```
//!
//! The object has ten kilobytes of code. Tools that load libraries need one, so `cc -shared` is part of their time. The second table has
//! the times of calls on one thread while another one reloads.

mod calls;
mod tools;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A folder with the objects of two versions. `step` of the first one adds 1 to its argument, that of the second one 2.
struct Versions {
    folder: tempfile::TempDir,
}

impl Versions {
    fn compile() -> Versions {
        let versions = Versions { folder: tempfile::tempdir().expect("a temporary folder") };
        (1..=2).for_each(|version| versions.compile_one(version));
        versions
    }

    /// Flags as `docs/watch.md` advises, which suit libraries as well.
    fn compile_one(&self, version: usize) {
        let mut source = String::new();
        for number in 0..FUNCTIONS {
            source += &format!(
                "long table{number}[8]; long part{number}(long n) {{ for (int i = 0; i < 8; i++) {{ n = n * {} + (n >> 3); \
                 table{number}[i] ^= n; }} return n + table{number}[n & 7]; }}\n",
                2 * number + 3
            );
        }
        source += &format!("long step(long n) {{ return n + {version}; }} int main(void) {{ return 0; }}\n");
        let path = self.folder.path().join(format!("version{version}.c"));
        std::fs::write(&path, source).expect("a source is written");
        let flags = ["-c", "-O2", "-fPIC", "-ffunction-sections", "-fdata-sections", "-o"];
        run(Command::new("cc").args(flags).arg(self.object(version)).arg(&path));
    }

    /// Versions take turns: 0 is the first one.
    fn object(&self, number: usize) -> PathBuf {
        self.folder.path().join(format!("version{}.o", (number - 1) % 2 + 1))
    }

    /// Links a version as a library.
    fn link(&self, number: usize, library: &Path) {
        run(Command::new("cc").args(["-shared", "-o"]).arg(library).arg(self.object(number)));
    }

    /// What `step(0)` of a version returns.
    fn expected(number: usize) -> i64 {
        (number as i64 - 1) % 2 + 1
    }
}

const FUNCTIONS: usize = 60;
const ROUNDS: usize = 100;

fn main() {
    let versions = Versions::compile();
    let bytes = std::fs::metadata(versions.object(1)).expect("the object was compiled").len();
    println!("object of {bytes} bytes; from the object to the first call of its code, median and slowest of {ROUNDS}");
    let mut tools: Vec<Box<dyn tools::Tool>> = vec![
        Box::new(tools::Jittison::start(&versions)),
        Box::new(tools::Dlopen::start(&versions)),
        Box::new(tools::Subsecond::start(&versions)),
        Box::new(tools::HotLib::start(
            &versions,
            "hot-lib-reloader, 50 ms of debounce",
            Some(Duration::from_millis(50)),
        )),
        Box::new(tools::HotLib::start(&versions, "hot-lib-reloader, as it is", None)),
    ];
    for tool in &mut tools {
        // Versions differ from one to the next, so each reload has something to do.
        let rounds = if tool.waits() { 10 } else { ROUNDS };
        let mut times: Vec<tools::Times> = (2..rounds + 2).map(|number| tool.reload(&versions, number)).collect();
        times.sort_by_key(tools::Times::all);
        let (median, slowest) = (&times[times.len() / 2], &times[times.len() - 1]);
        println!(
            "{:<40} {:>9.3} ms, of which `cc -shared` {:>7.3}; slowest {:>9.3}",
            tool.name(),
            milliseconds(median.all()),
            milliseconds(median.link),
            milliseconds(slowest.all())
        );
    }
    calls::measure(&versions);
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn run(command: &mut Command) {
    let status = command.status().unwrap_or_else(|problem| panic!("{command:?}: {problem}"));
    assert!(status.success(), "{command:?}: {status}");
}
