//! [`Follower`]: a thread that waits for changed files, builds, and reloads objects while the program runs.
//!
//! ```text
//!   kernel ─► notify's thread ─► channel ─► this thread: build? ─► read ─► Reloader::reload ─► one line per event
//! ```
//!
//! An object is read when the file that was written is closed, or when another file takes its name. Sources may be saved in
//! several steps, so a build waits until they are quiet for a moment.
//!
//! An object that could not be reloaded is tried again after the next one that could: a new function may be called by one object
//! and defined by another.

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
    /// A hash of the bytes that were reloaded, or that could not be.
    seen: u64,
}

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
        let by_path = objects
            .iter()
            .map(|(name, seen)| Ok((real_path(Path::new(name))?, Object { name: name.clone(), seen: *seen })));
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
            failed: BTreeSet::new(),
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
    /// The objects whose newest bytes could not be reloaded.
    failed: BTreeSet<PathBuf>,
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
                self.reload_all(objects, since, None);
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
                self.reload_all(self.objects.keys().cloned().collect(), since, Some(started.elapsed()));
            }
        }
        drop(watcher);
    }

    fn take(&mut self, message: Message, changed: &mut BTreeSet<PathBuf>) -> std::ops::ControlFlow<()> {
        match message {
            Message::Changed(paths) => changed.extend(paths),
            Message::Failed(problem) => self.lines.failed(None, &format!("cannot watch files: {problem}")),
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

    /// Reloads those of the objects that have changed, and those that failed before.
    fn reload_all(&mut self, paths: BTreeSet<PathBuf>, since: Instant, build: Option<Duration>) {
        let mut waiting: BTreeMap<PathBuf, Vec<u8>> = BTreeMap::new();
        for path in &paths {
            let object = &self.objects[path];
            let bytes = match InputFile::open(path).and_then(|file| file.read()) {
                Ok(bytes) => bytes,
                Err(error) => {
                    self.lines.failed(Some(&object.name), &message_of(error));
                    continue;
                }
            };
            if hash_of(&bytes) != object.seen {
                waiting.insert(path.clone(), bytes);
            }
        }
        loop {
            let mut errors = BTreeMap::new();
            let before = waiting.len();
            for (path, bytes) in std::mem::take(&mut waiting) {
                if let Err(error) = self.reload(&path, &bytes, since, build) {
                    errors.insert(path.clone(), error);
                    waiting.insert(path, bytes);
                }
            }
            let has_progress = waiting.len() < before;
            if has_progress {
                self.add_failed(&mut waiting);
            }
            if waiting.is_empty() || !has_progress {
                for (path, error) in errors {
                    self.lines.failed(Some(&self.objects[&path].name), &error);
                    self.failed.insert(path);
                }
                return;
            }
        }
    }

    /// Adds the objects that failed earlier.
    fn add_failed(&mut self, waiting: &mut BTreeMap<PathBuf, Vec<u8>>) {
        for path in std::mem::take(&mut self.failed) {
            if let Ok(bytes) = InputFile::open(&path).and_then(|file| file.read()) {
                waiting.entry(path).or_insert(bytes);
            }
        }
    }

    fn reload(&mut self, path: &Path, bytes: &[u8], since: Instant, build: Option<Duration>) -> Result<(), String> {
        let Some(object) = self.objects.get_mut(path) else { return Ok(()) };
        // Also if it fails: the same bytes fail again.
        object.seen = hash_of(bytes);
        // SAFETY: B1 - the user promises that each version of an object may run, and that its functions have the signatures with
        // which the program calls them. The call of `main` began before every reload, so no version is freed while the
        // program uses an address of it.
        let reload = unsafe { self.reloader.reload(&object.name, bytes) }.map_err(message_of)?;
        self.failed.remove(path);
        self.lines.reloaded(&reload, &Times { total: since.elapsed(), build });
        Ok(())
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
