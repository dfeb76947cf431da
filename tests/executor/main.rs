//! Sessions whose code runs in another process of this machine (`src/executor/`).

mod callbacks;
mod debugger;
#[cfg(feature = "executor-tls")]
mod encrypted;
mod far;
mod faults;
mod fork_server;
mod many;
mod other_architecture;
mod programs;
mod restart;
mod running;
mod sandbox;
mod streams;
mod typed;

use std::path::Path;

use jittison::executor::ExecutorProcess;
use jittison::{Jit, ResourceTracker};
use jittison_test_tools as tools;

/// A session with an executor of its own.
pub struct Remote {
    /// The process.
    pub executor: ExecutorProcess,
    /// The session.
    pub jit: Jit,
}

impl Remote {
    /// Starts both.
    pub fn start() -> Remote {
        let executor = start();
        let jit = Jit::builder().executor(&executor).library("libstdc++.so.6").build().unwrap();
        Remote { executor, jit }
    }

    /// Adds an object under a new tracker.
    pub fn add(&self, name: &str, object: &[u8]) -> ResourceTracker {
        let tracker = self.jit.main_dylib().create_tracker().unwrap();
        self.jit.add_object(&tracker, name, object).unwrap();
        tracker
    }

    /// Calls a function of the main dylib.
    pub fn call(&self, name: &str, arguments: &[u64]) -> u64 {
        self.jit.remote_function(self.jit.main_dylib(), name).unwrap().call(arguments).unwrap()
    }

    /// The mappings of the executor: first address, last address, permissions and path.
    pub fn mappings(&self) -> Vec<String> {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.executor.id())).unwrap();
        maps.lines().map(String::from).collect()
    }
}

/// Starts an executor.
pub fn start() -> ExecutorProcess {
    ExecutorProcess::start_command(tools::emulated(Path::new(env!("CARGO_BIN_EXE_jittison-executor")))).unwrap()
}

/// An object of C. `None` without a compiler.
pub fn c(source: &str) -> Option<Vec<u8>> {
    tools::gcc(&["-O1", "-fPIC"], source)
}

/// An object of C++. `None` without a compiler.
pub fn cpp(source: &str) -> Option<Vec<u8>> {
    tools::cpp(source)
}
