//! [`Watcher`]: reloads the objects whose files are written again.
//!
//! ```text
//!   kernel ─► thread of `notify` ─► channel ─► `wait`: read ─► Reloader::reload_all ─► events
//! ```
//!
//! Who uses it says when objects are reloaded, and on which thread: in [`Watcher::wait`]. The command `jittison watch` builds, and follows
//! members of archives, so it has a follower of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::Hasher as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use rustc_hash::FxHasher;

use crate::error::{Error, Result};
use crate::jit::reloading::{Reload, Reloader};
use crate::link::ObjectBuffer;
use crate::sync::{Receiver, RecvTimeoutError, channel};

/// Files of objects that are followed: an object is reloaded when its file was written again.
///
/// ```no_run
/// # fn main() -> Result<(), jittison::Error> {
/// # let jit = jittison::Jit::new()?;
/// # let reloader = jittison::Reloader::new(&jit, &jit.main_dylib().create_tracker()?)?;
/// let bytes = std::fs::read("step.o").unwrap();
/// reloader.add_object("step.o", &*bytes)?;
/// reloader.link()?;
/// let mut watcher = jittison::Watcher::new()?;
/// watcher.add_file("step.o", "step.o", &bytes)?;
/// loop {
///     // SAFETY: each object may run, and its functions keep the types with which they are called.
///     for event in unsafe { watcher.wait(&reloader, None) } {
///         println!("{event}");
///     }
/// }
/// # }
/// ```
///
/// A file is read when it is closed after it was written, or when another file takes its name. Objects whose files change within 20
/// milliseconds follow together. If that is refused, each is tried alone. An object that was refused is tried again when another file
/// changes.
pub struct Watcher {
    files: BTreeMap<PathBuf, File>,
    /// The objects that do not run yet: those that were read, or refused.
    waiting: BTreeMap<PathBuf, ObjectBuffer>,
    /// Files that may have changed.
    changed: BTreeSet<PathBuf>,
    messages: Receiver<Message>,
    notify: RecommendedWatcher,
}

/// Paths that changed, or why they cannot be watched any more.
type Message = std::result::Result<Vec<PathBuf>, String>;

struct File {
    object: String,
    /// A hash of the bytes that were read last.
    seen: u64,
}

/// What a [`Watcher`] did.
#[derive(Debug)]
#[non_exhaustive]
pub enum WatchEvent {
    /// Objects were reloaded together.
    Reloaded {
        /// What was done with each.
        reloads: Vec<Reload>,
        /// From the notification of the kernel to the commit.
        time: Duration,
    },
    /// Objects could not be reloaded. The running code stays.
    Refused {
        /// The names of the objects that were tried together.
        objects: Vec<String>,
        /// Why.
        error: Error,
    },
    /// A file could not be read, or files cannot be watched any more. The running code stays.
    Unread {
        /// The name of the object. `None` if it is no single file.
        object: Option<String>,
        /// Why.
        error: Error,
    },
}

impl Watcher {
    /// A watcher without files. It starts a thread, which waits for the kernel.
    ///
    /// # Errors
    /// The kernel gives no notifications: it has no memory, or the user has too many.
    pub fn new() -> Result<Watcher> {
        let (sender, messages) = channel();
        let notify = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            let message = match event {
                Ok(event) if is_complete(event.kind) => Ok(event.paths),
                Ok(_) => return,
                Err(problem) => Err(problem.to_string()),
            };
            // Fails after the end of the watcher.
            let _ = sender.send(message);
        });
        let notify = notify.map_err(|problem| Error::other(format!("cannot watch files: {problem}")))?;
        let (files, waiting, changed) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Ok(Watcher { files, waiting, changed, messages, notify })
    }

    /// Follows the file of an object of the reloader. `runs` are the bytes that run.
    ///
    /// # Errors
    /// The file is not there, or its folder cannot be watched.
    pub fn add_file(&mut self, object: &str, path: impl AsRef<Path>, runs: &[u8]) -> Result<()> {
        let path = path.as_ref();
        let problem = |problem: &dyn fmt::Display| Error::other(format!("{}: {problem}", path.display()));
        let real = path.canonicalize().map_err(|error| problem(&error))?;
        let folder = real.parent().unwrap_or(Path::new("/"));
        let is_watched = self.files.keys().any(|file| file.parent() == Some(folder));
        if !is_watched {
            let watched = self.notify.watch(folder, RecursiveMode::NonRecursive);
            watched.map_err(|error| problem(&format!("its folder cannot be watched: {error}")))?;
        }
        // It may have been written since it was read.
        self.changed.insert(real.clone());
        self.files.insert(real, File { object: object.to_string(), seen: hash_of(runs) });
        Ok(())
    }

    /// Waits until a file has other bytes than before, and reloads its object. Returns what was done: nothing after `timeout`.
    ///
    /// # Safety
    /// As [`Reloader::reload`], for all bytes that the files get.
    pub unsafe fn wait(&mut self, reloader: &Reloader, timeout: Option<Duration>) -> Vec<WatchEvent> {
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut events = Vec::new();
        loop {
            if self.changed.is_empty() {
                let message = match end {
                    None => self.messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
                    Some(end) => self.messages.recv_timeout(end.saturating_duration_since(Instant::now())),
                };
                let Ok(message) = message else { return events };
                self.note(message, &mut events);
            }
            let since = Instant::now();
            let mut changed_at = since;
            // Other files of the folder may be written all the time.
            while let Some(left) = QUIET.checked_sub(changed_at.elapsed()) {
                let Ok(message) = self.messages.recv_timeout(left) else { break };
                if self.note(message, &mut events) {
                    changed_at = Instant::now();
                }
            }
            if self.read_changed(&mut events) {
                // SAFETY: J1 - the caller promises it.
                unsafe { self.reload(reloader, since, &mut events) };
            }
            if !events.is_empty() {
                return events;
            }
        }
    }

    /// Notes which of the files may have changed. Says whether there are any.
    fn note(&mut self, message: Message, events: &mut Vec<WatchEvent>) -> bool {
        match message {
            Ok(mut paths) => {
                paths.retain(|path| self.files.contains_key(path));
                let has_any = !paths.is_empty();
                self.changed.extend(paths);
                has_any
            }
            Err(problem) => {
                let error = Error::other(format!("cannot watch files: {problem}"));
                events.push(WatchEvent::Unread { object: None, error });
                false
            }
        }
    }

    /// Reads the files that may have changed. Says whether one of them has other bytes than before.
    fn read_changed(&mut self, events: &mut Vec<WatchEvent>) -> bool {
        let mut has_changed = false;
        for path in std::mem::take(&mut self.changed) {
            let Some(file) = self.files.get_mut(&path) else { continue };
            match std::fs::read(&path) {
                Ok(bytes) => {
                    let seen = std::mem::replace(&mut file.seen, hash_of(&bytes));
                    if seen != file.seen {
                        self.waiting.insert(path, bytes.into());
                        has_changed = true;
                    }
                }
                // A file that is written again may be gone for a moment. It comes with an event of its own.
                Err(_) if !path.exists() => {}
                Err(problem) => events.push(WatchEvent::Unread {
                    object: Some(file.object.clone()),
                    error: Error::other(format!("{}: {problem}", path.display())),
                }),
            }
        }
        has_changed
    }

    /// Reloads all objects that wait, together if they follow together.
    ///
    /// # Safety
    /// As [`wait`](Self::wait).
    unsafe fn reload(&mut self, reloader: &Reloader, since: Instant, events: &mut Vec<WatchEvent>) {
        let all: Vec<PathBuf> = self.waiting.keys().cloned().collect();
        // SAFETY: J1 - the caller promises it.
        match unsafe { self.reload_together(reloader, &all, since) } {
            Ok(event) => events.push(event),
            Err(refusal) if all.len() == 1 => events.push(refusal),
            // SAFETY: J1 - as above.
            Err(_) => unsafe { self.reload_each(reloader, all, since, events) },
        }
    }

    /// Reloads objects one by one, as long as one of them follows: it may have what another one needs.
    ///
    /// # Safety
    /// As [`wait`](Self::wait).
    unsafe fn reload_each(
        &mut self,
        reloader: &Reloader,
        mut left: Vec<PathBuf>,
        since: Instant,
        events: &mut Vec<WatchEvent>,
    ) {
        loop {
            let (before, mut refusals) = (left.len(), Vec::new());
            // SAFETY: J1 - the caller promises it.
            left.retain(|path| match unsafe { self.reload_together(reloader, std::slice::from_ref(path), since) } {
                Ok(event) => {
                    events.push(event);
                    false
                }
                Err(refusal) => {
                    refusals.push(refusal);
                    true
                }
            });
            if left.is_empty() || left.len() == before {
                return events.append(&mut refusals);
            }
        }
    }

    /// # Safety
    /// As [`wait`](Self::wait).
    unsafe fn reload_together(
        &mut self,
        reloader: &Reloader,
        paths: &[PathBuf],
        since: Instant,
    ) -> std::result::Result<WatchEvent, WatchEvent> {
        let objects: Vec<(&str, ObjectBuffer)> =
            paths.iter().map(|path| (self.files[path].object.as_str(), self.waiting[path].clone())).collect();
        let names = objects.iter().map(|(name, _)| name.to_string()).collect();
        // SAFETY: J1 - the caller promises it.
        match unsafe { reloader.reload_all(objects) } {
            Ok(reloads) => {
                paths.iter().for_each(|path| drop(self.waiting.remove(path)));
                Ok(WatchEvent::Reloaded { reloads, time: since.elapsed() })
            }
            Err(error) => Err(WatchEvent::Refused { objects: names, error }),
        }
    }
}

/// Whether a file has all of its new bytes: it was closed after it was written, or has got its name.
fn is_complete(kind: EventKind) -> bool {
    matches!(kind, EventKind::Access(AccessKind::Close(AccessMode::Write)) | EventKind::Modify(ModifyKind::Name(_)))
}

fn hash_of(bytes: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(bytes);
    hasher.finish()
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files: Vec<&PathBuf> = self.files.keys().collect();
        f.debug_struct("Watcher").field("files", &files).finish_non_exhaustive()
    }
}

impl fmt::Display for WatchEvent {
    /// A line for each object, as `jittison watch` prints it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WatchEvent::Reloaded { reloads, time } => {
                for (number, reload) in reloads.iter().enumerate() {
                    let line_end = if number == 0 { "" } else { "\n" };
                    write!(f, "{line_end}{}", reload.line_of_watch((*time, None), &|_| None))?;
                }
                Ok(())
            }
            WatchEvent::Refused { error, .. } | WatchEvent::Unread { error, .. } => {
                write!(f, "{error}; the running code stays")
            }
        }
    }
}

/// How long files must be quiet before their objects are reloaded.
const QUIET: Duration = Duration::from_millis(20);
