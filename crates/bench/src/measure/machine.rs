//! [`Machine`]: where a run takes place. A figure has no meaning without it.

use std::process::Command;

use serde_json::{Value, json};

pub struct Machine {
    pub processor: String,
    pub cores: usize,
    pub kernel: String,
    pub rustc: String,
    /// The build profile of this program, and the commit.
    pub profile: String,
    pub commit: String,
    pub date: String,
    /// The load average before the first round. If it is above zero, other programs ran. They disturb the figures of
    /// two threads most.
    pub load: f64,
}

impl Machine {
    pub fn this() -> Machine {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let information = read("/proc/cpuinfo");
        let model = information.lines().find(|line| line.starts_with("model name"));
        let processor = model.and_then(|line| line.split_once(": ")).map_or("unknown", |(_, name)| name);
        Machine {
            processor: processor.to_string(),
            cores: processors(),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_string(),
            rustc: output_of("rustc", &["--version"]),
            profile: profile(),
            commit: output_of("git", &["describe", "--always", "--dirty"]),
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
            "profile": self.profile,
            "commit": self.commit,
            "date": self.date,
            "load": self.load,
        })
    }

    pub fn line(&self) -> String {
        let Machine { processor, cores, kernel, rustc, profile, commit, date, load } = self;
        format!(
            "{date}, {processor}, {cores} cores, load {load} before the run, Linux {kernel}, {rustc}, profile {profile}, \
             commit {commit}"
        )
    }
}

/// The number of processors. A workload starts this many threads, or one fewer if it has a measuring thread.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The standard output of a program, or an empty string.
pub fn output_of(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_string()).unwrap_or_default()
}

/// The build profile: cargo puts a program into a directory of its name. The profile `users` is what a program has that
/// depends on jittison and changes nothing.
fn profile() -> String {
    let program = std::env::current_exe().unwrap_or_default();
    let directory = program.parent().and_then(|directory| directory.file_name()).unwrap_or_default();
    directory.to_string_lossy().into_owned()
}
