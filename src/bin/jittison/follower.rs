//! [`Follower`]: a thread that waits for changed files, builds, and reloads objects while the program runs.
//!
//! ```text
//!   kernel ─► notify's thread ─► channel ─► this thread: build? ─► read ─► Reloader::reload_all ─► one line per event
//! ```
//!
//! An object is read when the file that was written is closed, or when another file takes its name. Sources may be saved in
//! several steps, so a build waits until they are quiet for a moment.
//!
//! All objects whose newest bytes do not run yet are reloaded together: those that changed, and those that were refused before. If
//! this is refused after a build, none of them follows: one build is one program. Without a build the objects may be of several
//! edits, so each one is tried alone.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use jittison::{InputFile, Reloader};
use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind};
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher as _};

use crate::output::message_of;
use crate::reload_lines::{Lines, Times};
use crate::watch::Followed;

/// Follows the files of a program until it is stopped.
pub struct Follower {
    messages: Sender<Message>,
    thread: Option<JoinHandle<()>>,
}

enum Message {
    Changed(Vec<PathBuf>),
    /// Files cannot be watched any more.
    Failed(String),
    Stop,
}

/// An object of the command line.
struct Object {
    /// As on the command line, which is its name.
    name: String,
    /// A hash of the bytes that run.
    runs: u64,
    /// A hash of the bytes that were read last. They run, or were refused.
    seen: u64,
}

/// Objects to reload, with their new bytes.
type Waiting = BTreeMap<PathBuf, Vec<u8>>;

impl Follower {
    /// Starts to follow. `objects` are the names of the objects with the bytes that run.
    pub fn start(reloader: Arc<Reloader>, objects: &[(String, u64)], followed: &Followed) -> Result<Follower, String> {
        let (messages, received) = channel();
        let sender = messages.clone();
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            let message = match event {
                Ok(event) if is_complete(&event.kind) => Message::Changed(event.paths),
                Ok(_) => return,
                Err(problem) => Message::Failed(problem.to_string()),
            };
            // Fails after the end.
            let _ = sender.send(message);
        })
        .map_err(|problem| format!("cannot watch files: {problem}"))?;
        let by_path = objects.iter().map(|(name, hash)| {
            Ok((real_path(Path::new(name))?, Object { name: name.clone(), runs: *hash, seen: *hash }))
        });
        let by_path: BTreeMap<PathBuf, Object> = by_path.collect::<Result<_, String>>()?;
        let folders: BTreeSet<&Path> = by_path.keys().filter_map(|path| path.parent()).collect();
        for folder in folders {
            watch_folder(&mut watcher, folder, RecursiveMode::NonRecursive)?;
        }
        let mut sources = Vec::new();
        for folder in &followed.sources {
            let folder = real_path(folder)?;
            watch_folder(&mut watcher, &folder, RecursiveMode::Recursive)?;
            sources.push(folder);
        }
        let lines = Lines::new(followed.is_json);
        lines.watching(by_path.values().map(|object| object.name.as_str()), &sources);
        let build = followed.build.clone();
        let state = State {
            reloader,
            objects: by_path,
            sources,
            build,
            seen_sources: HashMap::new(),
            refused: BTreeSet::new(),
            lines,
        };
        let thread = thread::Builder::new().name("jittison watch".to_string());
        let thread = thread.spawn(move || state.follow(&received, watcher));
        let thread = thread.map_err(|problem| format!("cannot start a thread: {problem}"))?;
        Ok(Follower { messages, thread: Some(thread) })
    }

    /// Stops, after a reload that is in progress.
    pub fn stop(&mut self) {
        let _ = self.messages.send(Message::Stop);
        // An initialiser of an archive member that a reload needs may call `exit` on the thread itself.
        let is_other = |thread: &JoinHandle<()>| thread.thread().id() != thread::current().id();
        if let Some(thread) = self.thread.take().filter(is_other) {
            let _ = thread.join();
        }
    }
}

fn watch_folder(watcher: &mut RecommendedWatcher, folder: &Path, mode: RecursiveMode) -> Result<(), String> {
    watcher.watch(folder, mode).map_err(|problem| format!("{}: cannot be watched: {problem}", folder.display()))
}

fn real_path(path: &Path) -> Result<PathBuf, String> {
    path.canonicalize().map_err(|problem| format!("{}: {problem}", path.display()))
}

/// Whether a file has all of its new bytes: it was closed after it was written, or has got its name.
fn is_complete(kind: &EventKind) -> bool {
    matches!(kind, EventKind::Access(AccessKind::Close(AccessMode::Write)) | EventKind::Modify(ModifyKind::Name(_)))
}

struct State {
    reloader: Arc<Reloader>,
    objects: BTreeMap<PathBuf, Object>,
    sources: Vec<PathBuf>,
    build: Option<String>,
    /// A hash of each source that was saved.
    seen_sources: HashMap<PathBuf, u64>,
    /// The objects whose newest bytes were refused.
    refused: BTreeSet<PathBuf>,
    lines: Lines,
}

impl State {
    fn follow(mut self, messages: &Receiver<Message>, watcher: RecommendedWatcher) {
        while let Ok(message) = messages.recv() {
            let since = Instant::now();
            let mut changed = BTreeSet::new();
            if self.take(message, &mut changed).is_break() {
                break;
            }
            while let Ok(message) = messages.try_recv() {
                if self.take(message, &mut changed).is_break() {
                    return;
                }
            }
            // Each path is looked at, because its bytes are noted.
            let mut is_source = false;
            for path in &changed {
                is_source |= self.is_changed_source(path);
            }
            if !is_source {
                let objects = changed.into_iter().filter(|path| self.objects.contains_key(path)).collect();
                self.reload_changed(objects, since, None);
                continue;
            }
            while let Ok(message) = messages.recv_timeout(QUIET) {
                if self.take(message, &mut changed).is_break() {
                    return;
                }
            }
            for path in &changed {
                self.is_changed_source(path);
            }
            let started = Instant::now();
            if self.run_build() {
                self.reload_changed(self.objects.keys().cloned().collect(), since, Some(started.elapsed()));
            }
        }
        drop(watcher);
    }

    fn take(&mut self, message: Message, changed: &mut BTreeSet<PathBuf>) -> std::ops::ControlFlow<()> {
        match message {
            Message::Changed(paths) => changed.extend(paths),
            Message::Failed(problem) => self.lines.refused(&[], &format!("cannot watch files: {problem}")),
            Message::Stop => return std::ops::ControlFlow::Break(()),
        }
        std::ops::ControlFlow::Continue(())
    }

    /// Whether a path is a source with other bytes than before. Notes the bytes.
    fn is_changed_source(&mut self, path: &Path) -> bool {
        let is_meant = self.sources.iter().any(|folder| path.starts_with(folder))
            && !self.objects.contains_key(path)
            && !is_product(path);
        let Some(bytes) = std::fs::read(path).ok().filter(|_| is_meant) else { return false };
        let hash = hash_of(&bytes);
        self.seen_sources.insert(path.to_path_buf(), hash) != Some(hash)
    }

    /// Runs the command of `--build`. Returns whether it succeeded.
    fn run_build(&self) -> bool {
        let Some(command) = &self.build else { return false };
        let output = Command::new("sh").args(["-c", command]).stdin(Stdio::null()).output();
        match output {
            Ok(output) if output.status.success() => true,
            Ok(output) => {
                let text = [output.stdout, output.stderr].concat();
                self.lines.build_failed(&output.status.to_string(), &String::from_utf8_lossy(&text));
                false
            }
            Err(problem) => {
                self.lines.build_failed(&problem.to_string(), "");
                false
            }
        }
    }

    /// Reloads those of the objects that have changed, and those that were refused before.
    fn reload_changed(&mut self, paths: BTreeSet<PathBuf>, since: Instant, build: Option<Duration>) {
        let refused = std::mem::take(&mut self.refused);
        let (mut waiting, mut has_changed) = (Waiting::new(), false);
        for path in paths.into_iter().chain(refused).collect::<BTreeSet<_>>() {
            let Some(object) = self.objects.get_mut(&path) else { continue };
            match InputFile::open(&path).and_then(|file| file.read()) {
                Ok(bytes) => {
                    let seen = std::mem::replace(&mut object.seen, hash_of(&bytes));
                    has_changed |= object.seen != seen;
                    if object.seen != object.runs {
                        waiting.insert(path, bytes);
                    }
                }
                Err(error) => {
                    self.lines.refused(&[&object.name], &message_of(error));
                    self.refused.insert(path);
                }
            }
        }
        match has_changed {
            true => self.reload(waiting, since, build),
            // The same bytes fail again.
            false => self.refused.extend(waiting.into_keys()),
        }
    }

    fn reload(&mut self, waiting: Waiting, since: Instant, build: Option<Duration>) {
        let Err(error) = self.reload_all(&waiting, since, build) else { return };
        if waiting.len() > 1 && build.is_none() {
            return self.reload_each(waiting, since);
        }
        let names: Vec<&str> = waiting.keys().map(|path| self.objects[path].name.as_str()).collect();
        self.lines.refused(&names, &error);
        self.refused.extend(waiting.into_keys());
    }

    /// Reloads objects together.
    fn reload_all(&mut self, waiting: &Waiting, since: Instant, build: Option<Duration>) -> Result<(), String> {
        let objects: Vec<(&str, &[u8])> =
            waiting.iter().map(|(path, bytes)| (self.objects[path].name.as_str(), bytes.as_slice())).collect();
        // SAFETY: B1 - the user promises that each version of an object may run, and that its functions have the signatures with
        // which the program calls them. The call of `main` began before every reload, so no version is freed while the
        // program uses an address of it.
        let reloads = unsafe { self.reloader.reload_all(objects) }.map_err(message_of)?;
        let times = Times { total: since.elapsed(), build };
        reloads.iter().for_each(|reload| self.lines.reloaded(reload, &times));
        for path in waiting.keys() {
            self.objects.entry(path.clone()).and_modify(|object| object.runs = object.seen);
        }
        Ok(())
    }

    /// Reloads objects one by one, as long as one of them follows: it may have what another one needs.
    fn reload_each(&mut self, mut waiting: Waiting, since: Instant) {
        loop {
            let (before, mut errors) = (waiting.len(), Vec::new());
            for (path, bytes) in std::mem::take(&mut waiting) {
                let one = Waiting::from([(path, bytes)]);
                if let Err(error) = self.reload_all(&one, since, None) {
                    errors.push(error);
                    waiting.extend(one);
                }
            }
            if waiting.is_empty() || waiting.len() == before {
                for (path, error) in waiting.into_keys().zip(errors) {
                    self.lines.refused(&[&self.objects[&path].name], &error);
                    self.refused.insert(path);
                }
                return;
            }
        }
    }
}

/// Whether a file is a product of a build or a temporary file of an editor.
fn is_product(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let extension = path.extension().unwrap_or_default().to_string_lossy();
    name.starts_with('.') || name.ends_with('~') || PRODUCTS.contains(&&*extension)
}

/// A hash of the bytes of a file.
pub fn hash_of(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

const PRODUCTS: [&str; 9] = ["o", "a", "so", "d", "lo", "gch", "tmp", "swp", "swx"];
/// How long sources must be quiet before they are built.
const QUIET: Duration = Duration::from_millis(20);
