//! [`Reload`]: what a reload did.

use std::fmt;
use std::time::Duration;

use crate::link::Diff;
use crate::session::Removal;

/// What a reload did.
#[derive(Debug)]
#[non_exhaustive]
pub struct Reload {
    /// The name of the object.
    pub object: String,
    /// The number of the version that runs now. Numbers rise with each reload of any object that changes something; 0 is the
    /// version that was added.
    pub version: u64,
    /// What changed. If it is empty, nothing was linked.
    pub diff: Diff,
    /// The size of the functions of the replaced version, in bytes.
    pub code_bytes_before: u64,
    /// The size of the functions of the new version, in bytes.
    pub code_bytes: u64,
    /// Whether the version stays in memory until the [`Reloader`](crate::Reloader) is dropped, because it brought variables or
    /// may have registered handlers.
    pub stays: bool,
    /// The removals of versions to which no stub leads any more. Of objects that are reloaded together, the first one that changed
    /// has all of them.
    pub retired: Vec<Removal>,
    /// The number of retired versions that are still in memory, because a call or a handle is in the way.
    pub retired_in_memory: usize,
    /// The time to read and compare the object. This time and the following ones are those of all objects that are reloaded
    /// together.
    pub read_time: Duration,
    /// The time to link it.
    pub link_time: Duration,
    /// The time to redirect all stubs and to remove what is replaced.
    pub commit_time: Duration,
}

impl Reload {
    /// What changed, on one line with the times. `total` is from the notification of the kernel to the commit. `readable` has another name
    /// for some functions and variables.
    #[cfg(feature = "watch")]
    pub(in crate::jit) fn line_of_watch(
        &self,
        (total, build): (Duration, Option<Duration>),
        readable: &dyn Fn(&str) -> Option<String>,
    ) -> String {
        let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
        let build = build.map(|time| format!("build {:.2}, ", milliseconds(time))).unwrap_or_default();
        let [total, read, link, commit] = [total, self.read_time, self.link_time, self.commit_time].map(milliseconds);
        let replaced = match self.retired_in_memory {
            0 => String::new(),
            1 => "; 1 replaced version in memory".to_string(),
            count => format!("; {count} replaced versions in memory"),
        };
        let line = self.line(readable);
        format!(
            "{line}; live after {total:.2} ms ({build}read {read:.2}, link {link:.2}, commit {commit:.2}){replaced}"
        )
    }

    /// As `jittison watch` prints it.
    #[cfg(all(feature = "watch", feature = "unstable"))]
    pub fn watch_line(
        &self,
        total: Duration,
        build: Option<Duration>,
        readable: &dyn Fn(&str) -> Option<String>,
    ) -> String {
        self.line_of_watch((total, build), readable)
    }

    fn line(&self, readable: &dyn Fn(&str) -> Option<String>) -> String {
        let Reload { object, version, code_bytes_before, code_bytes, .. } = self;
        let diff = self.diff.in_words(readable);
        format!("{object} version {version}: {diff}; {code_bytes_before} -> {code_bytes} bytes of code")
    }
}

impl fmt::Display for Reload {
    /// What changed, on one line, without the times.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line(&|_| None))
    }
}
