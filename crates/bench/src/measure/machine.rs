//! The machine, the tools and the competitors of a run. A figure has no meaning without them.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::{
    peers::cranelift, peers::dlopen, peers::elf_loader, peers::orc, peers::ours, scenarios::calls, scenarios::floor,
    scenarios::handles,
};

pub struct Machine {
    pub processor: String,
    pub cores: usize,
    pub kernel: String,
    pub rustc: String,
    pub date: String,
    /// The load average before the first round. If it is above zero, other programs disturb above all the figures of
    /// two threads.
    pub load: f64,
}

/// A competitor: a column of the tables.
pub struct Peer {
    pub competitor: &'static str,
    pub version: String,
    pub configuration: &'static str,
}

impl Machine {
    pub fn this() -> Machine {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let information = read("/proc/cpuinfo");
        let model = information.lines().find(|line| line.starts_with("model name"));
        let processor = model.and_then(|line| line.split_once(": ")).map_or("unknown", |(_, name)| name);
        Machine {
            processor: processor.to_string(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_string(),
            rustc: output_of("rustc", &["--version"]),
            date: output_of("date", &["-u", "+%Y-%m-%dT%H:%M:%SZ"]),
            load: read("/proc/loadavg").split(' ').next().and_then(|text| text.parse().ok()).unwrap_or(0.0),
        }
    }

    pub fn json(&self) -> Value {
        json!({
            "processor": self.processor,
            "cores": self.cores,
            "kernel": self.kernel,
            "rustc": self.rustc,
            "date": self.date,
            "load": self.load,
        })
    }

    pub fn line(&self) -> String {
        let Machine { processor, cores, kernel, rustc, date, load } = self;
        format!("{date}, {processor}, {cores} cores, load {load} before the run, Linux {kernel}, {rustc}")
    }
}

/// All competitors, even those that do not take part in a run.
pub fn peers(directory: &Path) -> Vec<Peer> {
    let glibc = output_of("getconf", &["GNU_LIBC_VERSION"]);
    let of =
        |competitor, version: &str, configuration| Peer { competitor, version: version.to_string(), configuration };
    let mut all = vec![of(
        ours::NAME,
        env!("CARGO_PKG_VERSION"),
        "Jit::new(): unwind tables registered, one tracker per module; for a million modules OnFull::OpenAnother",
    )];
    all.extend(orc::described(directory));
    all.push(of(
        dlopen::NAME,
        &glibc,
        "one shared object per module, built before the clock starts, each in its own file; dlopen, dlsym, dlclose",
    ));
    all.push(of(
        cranelift::NAME,
        cranelift_jit::VERSION,
        "the small object's machine code by define_function_bytes, nothing compiled while the clock runs; one JITModule per module in \
         an arena, free_memory; no unwind tables in any row, so its figures without tables are those of the other rows",
    ));
    all.push(of(
        elf_loader::NAME,
        "see Cargo.lock",
        "the same objects from memory, with relaxable GOT loads converted to plain ones; dropped; registers no unwind tables",
    ));
    all.push(of(floor::KERNEL, "the kernel", "three pages mapped, written, protected, unmapped; no linker"));
    all.push(of(calls::EPOCH, "see Cargo.lock", "a handle of its own collector, pinned and unpinned"));
    all.push(of(handles::POINTER, "-", "a call through the function's address, which does not keep the code"));
    all.push(of(floor::COMPUTING, "-", "multiplications in registers, in two independent threads"));
    all.push(of(floor::MEMORY, "-", "cache lines in random order, each with the position of the next"));
    all.push(of(
        floor::READING,
        "the crate `object`, see Cargo.lock",
        "sections copied, names hashed, relocations read and a word written for each; no session, no memory manager, no lookups",
    ));
    all.push(of(floor::COPY, &glibc, "memcpy of the same number of bytes, from cache to cache"));
    all
}

/// The standard output of a program, or an empty string.
pub fn output_of(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_string()).unwrap_or_default()
}
