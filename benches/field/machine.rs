//! Where and with what it was measured: without this, no figure means anything.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::{cranelift, dlopen, elf_load, floor, handles, orc, ours, ours_calls};

pub struct Machine {
    pub processor: String,
    pub cores: usize,
    pub kernel: String,
    pub rustc: String,
    pub date: String,
    /// Tasks that ran or wanted to, before the first round: above none, others spoil the figures of two threads first.
    pub load: f64,
}

/// A column of the tables.
pub struct Peer {
    pub who: &'static str,
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
            rustc: said_by("rustc", &["--version"]),
            date: said_by("date", &["-u", "+%Y-%m-%dT%H:%M:%SZ"]),
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
        format!("{date}, {processor}, {cores} cores, load {load} ahead of it, Linux {kernel}, {rustc}")
    }
}

/// All who are measured, whether or not they take part in a run.
pub fn peers(directory: &Path) -> Vec<Peer> {
    let glibc = said_by("getconf", &["GNU_LIBC_VERSION"]);
    let of = |who, version: &str, configuration| Peer { who, version: version.to_string(), configuration };
    let mut all = vec![of(
        ours::WHO,
        env!("CARGO_PKG_VERSION"),
        "Jit::new(): unwind tables registered, each module under a tracker of its own; among a million OnFull::OpenAnother",
    )];
    all.extend(orc::described(directory));
    all.push(of(
        dlopen::WHO,
        &glibc,
        "a shared object a module, made ahead, each in a file of its own; dlopen, dlsym, dlclose",
    ));
    all.push(of(
        cranelift::WHO,
        cranelift_jit::VERSION,
        "the small object's machine code by define_function_bytes, nothing compiled in the time; a JITModule a module in an arena, \
         free_memory; no unwind tables in any row, so that what it does without them is in the others",
    ));
    all.push(of(
        elf_load::WHO,
        "see Cargo.lock",
        "the same objects from memory, with relaxable loads from the GOT said as plain ones; dropped; registers no unwind tables",
    ));
    all.push(of(floor::KERNEL, "the kernel's", "three pages mapped, written, protected, unmapped: no linker at all"));
    all.push(of(ours_calls::EPOCH, "see Cargo.lock", "a handle of a collector of its own, pinned and unpinned"));
    all.push(of(handles::POINTER, "-", "a call through the function's address, which keeps nobody from freeing it"));
    all.push(of(floor::COMPUTING, "-", "multiplications in registers: two threads that have nothing in common"));
    all.push(of(floor::MEMORY, "-", "lines of memory at random, each of which says which is next"));
    all.push(of(
        floor::READING,
        "the crate `object`, see Cargo.lock",
        "sections copied, names hashed, relocations read and a word written for each; no session, no memory manager, nothing found",
    ));
    all.push(of(floor::COPY, &glibc, "memcpy of as many bytes, from cache to cache"));
    all
}

/// What a program prints, or nothing.
pub fn said_by(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_string()).unwrap_or_default()
}
