//! [`Follower`]: the thread that waits for new objects and reloads them.
//!
//! An object is read when the file that was written is closed, or when another file takes its name. A build may write several, so the
//! thread waits until they are quiet for a moment, and reloads those that changed together. If this is refused, each is tried alone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use jittison::{Jit, Reload, Reloader, ResourceTracker};
use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind};
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher as _};

use crate::objects::{Object, Objects};
use crate::print;

/// Follows the objects of the program that runs.
pub struct Follower {
    reloader: Reloader,
    _jit: (Jit, ResourceTracker),
    /// By path: the object with the bytes that run, and those that were read last.
    objects: BTreeMap<PathBuf, Followed>,
    _watcher: RecommendedWatcher,
}

struct Followed {
    object: Object,
    seen: Vec<u8>,
}

/// Paths that changed, or why they cannot be watched any more.
type Message = Result<Vec<PathBuf>, String>;

impl Follower {
    /// Finds the objects in the program and starts a thread that follows them.
    ///
    /// # Errors
    /// The program was stripped, or linked from other objects; files cannot be watched.
    pub fn start(objects: Objects) -> Result<(), String> {
        let (sender, messages) = channel();
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            let message = match event {
                Ok(event) if is_complete(&event.kind) => Ok(event.paths),
                Ok(_) => return,
                Err(problem) => Err(problem.to_string()),
            };
            // Fails after the end.
            let _ = sender.send(message);
        });
        let mut watcher = watcher.map_err(|problem| format!("cannot watch files: {problem}"))?;
        let folders: BTreeSet<&Path> = objects.0.keys().filter_map(|path| path.parent()).collect();
        for folder in folders {
            let watched = watcher.watch(folder, RecursiveMode::NonRecursive);
            watched.map_err(|problem| format!("{}: cannot be watched: {problem}", folder.display()))?;
        }
        let program = Jit::new().and_then(|jit| {
            let tracker = jit.main_dylib().create_tracker()?;
            let reloader = Reloader::new(&jit, &tracker)?;
            objects.0.values().try_for_each(|object| reloader.add_native_object(&object.name, &*object.bytes))?;
            reloader.link()?;
            Ok((reloader, (jit, tracker)))
        });
        let (reloader, jit) = program.map_err(|error| error.to_string())?;
        let names: Vec<&str> = objects.0.values().map(|object| object.name.as_str()).collect();
        print(&format!("watching {}", names.join(", ")));
        let followed = |(path, object): (PathBuf, Object)| (path, Followed { seen: object.bytes.clone(), object });
        let objects = objects.0.into_iter().map(followed).collect();
        let follower = Follower { reloader, _jit: jit, objects, _watcher: watcher };
        let thread = thread::Builder::new().name("jittison hot".to_string());
        thread
            .spawn(move || follower.follow(&messages))
            .map_err(|problem| format!("cannot start a thread: {problem}"))?;
        Ok(())
    }

    fn follow(mut self, messages: &Receiver<Message>) {
        // What was written since it was read.
        let mut changed = self.objects.keys().cloned().collect();
        loop {
            let since = Instant::now();
            while let Ok(message) = messages.recv_timeout(QUIET) {
                take(message, &mut changed);
            }
            self.reload_changed(&changed, since);
            changed = BTreeSet::new();
            let Ok(message) = messages.recv() else { return };
            take(message, &mut changed);
        }
    }

    /// Reloads the objects whose newest bytes do not run, if one of the paths is an object with other bytes than before.
    fn reload_changed(&mut self, changed: &BTreeSet<PathBuf>, since: Instant) {
        let mut has_changed = false;
        for (path, followed) in self.objects.iter_mut().filter(|(path, _)| changed.contains(*path)) {
            match std::fs::read(path) {
                Ok(bytes) if bytes != followed.seen => {
                    followed.seen = bytes;
                    has_changed = true;
                }
                Ok(_) => {}
                // A file that is written again may be gone for a moment. It comes with an event of its own.
                Err(_) if !path.exists() => {}
                Err(problem) => print(&format!("{}: {problem}; the running code stays", followed.object.name)),
            }
        }
        let is_waiting = |(_, followed): &(&PathBuf, &Followed)| followed.seen != followed.object.bytes;
        let waiting: Vec<PathBuf> = self.objects.iter().filter(is_waiting).map(|(path, _)| path.clone()).collect();
        if !has_changed || self.reload(&waiting, since).is_ok() {
            return;
        }
        self.reload_each(waiting, since);
    }

    /// Reloads objects one by one, as long as one of them follows: it may have what another one needs.
    fn reload_each(&mut self, mut waiting: Vec<PathBuf>, since: Instant) {
        loop {
            let (before, mut problems) = (waiting.len(), Vec::new());
            waiting.retain(|path| match self.reload(std::slice::from_ref(path), since) {
                Ok(()) => false,
                Err(problem) => {
                    problems.push(problem);
                    true
                }
            });
            if waiting.is_empty() || waiting.len() == before {
                return problems.iter().for_each(|problem| print(&format!("{problem}; the running code stays")));
            }
        }
    }

    fn reload(&mut self, paths: &[PathBuf], since: Instant) -> Result<(), String> {
        let objects: Vec<(&str, &[u8])> =
            paths.iter().map(|path| (self.objects[path].object.name.as_str(), &*self.objects[path].seen)).collect();
        // SAFETY: P1 - the user promises it. No version of an object of the program is freed.
        let reloads = unsafe { self.reloader.reload_all(objects) }.map_err(|error| error.to_string())?;
        reloads.iter().for_each(|reload| print(&line_of(reload, since)));
        for path in paths {
            self.objects.entry(path.clone()).and_modify(|followed| followed.object.bytes.clone_from(&followed.seen));
        }
        Ok(())
    }
}

fn take(message: Message, changed: &mut BTreeSet<PathBuf>) {
    match message {
        Ok(paths) => changed.extend(paths),
        Err(problem) => print(&format!("cannot watch files: {problem}; the running code stays")),
    }
}

/// Whether a file has all of its new bytes: it was closed after it was written, or has got its name.
fn is_complete(kind: &EventKind) -> bool {
    matches!(kind, EventKind::Access(AccessKind::Close(AccessMode::Write)) | EventKind::Modify(ModifyKind::Name(_)))
}

fn line_of(reload: &Reload, since: Instant) -> String {
    let diff = &reload.diff;
    let lists = [
        ("changed", &diff.changed),
        ("added", &diff.added),
        ("removed", &diff.removed),
        ("new variables", &diff.new_variables),
        ("removed variables", &diff.removed_variables),
        ("moved variables", &diff.moved_variables),
    ];
    let named = lists.iter().filter(|(_, names)| !names.is_empty());
    let mut parts: Vec<String> = named.map(|(what, names)| format!("{what} {}", some(names))).collect();
    if diff.constants_changed {
        parts.push("constants".to_string());
    }
    if diff.is_empty() {
        parts.push("nothing changed".to_string());
    }
    let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
    format!(
        "{} version {}: {}; {} -> {} bytes of code; live after {:.2} ms (read {:.2}, link {:.2}, commit {:.2})",
        reload.object,
        reload.version,
        parts.join("; "),
        reload.code_bytes_before,
        reload.code_bytes,
        milliseconds(since.elapsed()),
        milliseconds(reload.read_time),
        milliseconds(reload.link_time),
        milliseconds(reload.commit_time),
    )
}

/// The first names of a list, and the number of the others.
fn some(names: &[String]) -> String {
    match names.len().checked_sub(SHOWN) {
        None | Some(0) => names.join(", "),
        Some(more) => format!("{} and {more} more", names[..SHOWN].join(", ")),
    }
}

/// How long objects must be quiet before they are reloaded.
const QUIET: Duration = Duration::from_millis(20);
/// The most names of a list that a line shows.
const SHOWN: usize = 8;
