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

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hasher as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use jittison::link::ObjectBuffer;
use jittison::{Jit, MemoryStatistics, ObjectVersion, Reloader};
use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind};
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher as _};
use rustc_hash::FxHasher;

use crate::build::{Build, Built};
use crate::output::message_of;
use crate::place::{Place, ReadFile};
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

/// An object of the program, as it was added.
pub struct Loaded {
    pub name: String,
    pub place: Place,
    /// A hash of its bytes.
    pub hash: u64,
}

/// An object that is followed.
struct Object {
    /// With which it was added.
    name: String,
    /// A hash of the bytes that run.
    runs: u64,
    /// A hash of the bytes that were read last. They run, or were refused. If nothing could be read, of the error.
    seen: u64,
}

/// Objects to reload, with their new bytes.
type Waiting = BTreeMap<Place, ObjectBuffer>;

impl Follower {
    /// Starts to follow. `objects` are the names of the objects with the bytes that run.
    pub fn start(
        jit: &Jit,
        reloader: Arc<Reloader>,
        objects: Vec<Loaded>,
        followed: Followed,
    ) -> Result<Follower, String> {
        let Followed { build, lines } = followed;
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
        let by_path = objects.into_iter().map(|Loaded { name, place, hash }| {
            let place = Place { path: real_path(&place.path)?, ..place };
            Ok((place, Object { name, runs: hash, seen: hash }))
        });
        let objects: BTreeMap<Place, Object> = by_path.collect::<Result<_, String>>()?;
        if build.is_elsewhere() {
            let folders: BTreeSet<&Path> = objects.keys().filter_map(|place| place.path.parent()).collect();
            for folder in folders {
                watch_folder(&mut watcher, folder, RecursiveMode::NonRecursive)?;
            }
        }
        let (folders, refused, again) = (BTreeSet::new(), BTreeSet::new(), messages.clone());
        let mut state = State {
            jit: jit.clone(),
            reloader,
            objects,
            folders,
            build,
            refused,
            lines,
            reported: None,
            messages: again,
        };
        state.watch_sources(&mut watcher)?;
        // What was written since it was read.
        let _ = messages.send(Message::Changed(state.files().into_iter().collect()));
        state.report_memory();
        let names = state.objects.values().map(|object| object.name.as_str());
        state.lines.watching(names, &state.folders.iter().cloned().collect::<Vec<_>>());
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

/// The path of a file or folder that exists, without links.
pub fn real_path(path: &Path) -> Result<PathBuf, String> {
    path.canonicalize().map_err(|problem| format!("{}: {problem}", path.display()))
}

/// Whether a file has all of its new bytes: it was closed after it was written, or has got its name.
fn is_complete(kind: &EventKind) -> bool {
    matches!(kind, EventKind::Access(AccessKind::Close(AccessMode::Write)) | EventKind::Modify(ModifyKind::Name(_)))
}

struct State {
    jit: Jit,
    reloader: Arc<Reloader>,
    objects: BTreeMap<Place, Object>,
    /// The folders of sources that are watched.
    folders: BTreeSet<PathBuf>,
    build: Build,
    /// The objects whose newest bytes were refused.
    refused: BTreeSet<Place>,
    lines: Lines,
    /// What the screen was told of the memory.
    reported: Option<(Vec<ObjectVersion>, MemoryStatistics)>,
    /// To this thread itself.
    messages: Sender<Message>,
}

impl State {
    fn follow(mut self, messages: &Receiver<Message>, mut watcher: RecommendedWatcher) {
        while let Some(message) = self.next(messages) {
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
                self.reload_changed(&changed, since, None);
                continue;
            }
            // Other files of the folders may be written all the time.
            let mut saved_at = Instant::now();
            while let Some(left) = QUIET.checked_sub(saved_at.elapsed()) {
                let Ok(message) = messages.recv_timeout(left) else { break };
                let mut more = BTreeSet::new();
                if self.take(message, &mut more).is_break() {
                    return;
                }
                for path in &more {
                    if self.is_changed_source(path) {
                        saved_at = Instant::now();
                    }
                }
            }
            self.build(since);
            // A source may read other files now.
            if let Err(problem) = self.watch_sources(&mut watcher) {
                self.lines.refused(&[], &problem);
            }
        }
    }

    /// Waits for a message. Meanwhile a screen gets what is in memory, because calls end at any time. `None` after the end.
    fn next(&mut self, messages: &Receiver<Message>) -> Option<Message> {
        loop {
            if !self.lines.shows_memory() {
                return messages.recv().ok();
            }
            match messages.recv_timeout(SCREEN_INTERVAL) {
                Ok(message) => return Some(message),
                Err(RecvTimeoutError::Timeout) => self.report_memory(),
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    /// Tells a screen what is in memory, if that has changed.
    fn report_memory(&mut self) {
        if !self.lines.shows_memory() {
            return;
        }
        let now = (self.reloader.versions(), self.jit.memory_statistics());
        if self.reported.as_ref() != Some(&now) {
            self.lines.memory(&now.0, &now.1);
            self.reported = Some(now);
        }
    }

    /// Watches the folders of sources that are not watched yet. What was saved there before is looked at, too.
    fn watch_sources(&mut self, watcher: &mut RecommendedWatcher) -> Result<(), String> {
        let new = self.build.folders().into_iter().filter(|(folder, _)| !self.folders.contains(folder));
        let new: Vec<(PathBuf, RecursiveMode)> = new.collect();
        for (folder, mode) in &new {
            watch_folder(watcher, folder, *mode)?;
            self.folders.insert(folder.clone());
        }
        if !new.is_empty() {
            let _ = self.messages.send(Message::Changed(self.build.saved_since_built()));
        }
        Ok(())
    }

    /// Builds, and reloads what changed.
    fn build(&mut self, since: Instant) {
        let started = Instant::now();
        let built = self.build.run();
        let time = Some(started.elapsed());
        match built {
            Ok(Built::Any) => self.reload_changed(&self.files(), since, time),
            Ok(Built::These(files)) => self.reload_changed(&files, since, time),
            Ok(Built::AnotherProgram(problem)) => self.lines.refused(&[], &problem),
            Err(failure) => self.lines.build_failed(&failure),
        }
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
        self.objects.keys().all(|place| place.path != path) && self.build.is_changed_source(path)
    }

    /// The files that hold objects.
    fn files(&self) -> BTreeSet<PathBuf> {
        self.objects.keys().map(|place| place.path.clone()).collect()
    }

    /// Reloads those of the objects in files that have changed, and those that were refused before.
    fn reload_changed(&mut self, files: &BTreeSet<PathBuf>, since: Instant, build: Option<Duration>) {
        let refused = std::mem::take(&mut self.refused);
        let (mut waiting, mut has_changed) = (Waiting::new(), false);
        let mut read: Option<ReadFile> = None;
        for (place, object) in &mut self.objects {
            if !files.contains(&place.path) && !refused.contains(place) {
                continue;
            }
            // The members of an archive stand together.
            let file = match &mut read {
                Some(file) if file.path == place.path => file,
                _ => read.insert(ReadFile::new(&place.path)),
            };
            match file.bytes(place.member.as_ref()) {
                Ok(bytes) => {
                    let seen = std::mem::replace(&mut object.seen, hash_of(&bytes));
                    has_changed |= object.seen != seen;
                    if object.seen != object.runs {
                        waiting.insert(place.clone(), bytes);
                    }
                }
                Err(error) => {
                    // A file that is renamed has several events.
                    let seen = std::mem::replace(&mut object.seen, hash_of(error.as_bytes()));
                    if object.seen != seen {
                        self.lines.refused(&[&object.name], &error);
                    }
                    self.refused.insert(place.clone());
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
        let Err(mut error) = self.reload_all(&waiting, &Waiting::new(), since, build) else { return };
        if waiting.len() > 1 && build.is_none() {
            return self.reload_each(waiting, since);
        }
        if let Some(others) = self.others(&waiting) {
            match self.reload_all(&waiting, &others, since, build) {
                Ok(()) => return,
                Err(of_all) => error = of_all,
            }
        }
        let names: Vec<&str> = waiting.keys().map(|place| self.objects[place].name.as_str()).collect();
        self.lines.refused(&names, &error);
        self.refused.extend(waiting.into_keys());
    }

    /// The objects of a Cargo package that did not change, if there are any. They may have to be linked again with one that did: a
    /// closure that they use has another type.
    fn others(&self, waiting: &Waiting) -> Option<Waiting> {
        let others =
            self.objects.keys().filter(|place| matches!(self.build, Build::Cargo(_)) && !waiting.contains_key(place));
        let read = |place: &Place| Some((place.clone(), ReadFile::new(&place.path).bytes(None).ok()?));
        others.map(read).collect::<Option<Waiting>>().filter(|others| !others.is_empty())
    }

    /// Reloads objects together, with others that have the bytes that run.
    fn reload_all(
        &mut self,
        waiting: &Waiting,
        others: &Waiting,
        since: Instant,
        build: Option<Duration>,
    ) -> Result<(), String> {
        let all = waiting.iter().chain(others);
        let objects: Vec<(&str, ObjectBuffer)> =
            all.map(|(place, bytes)| (self.objects[place].name.as_str(), bytes.clone())).collect();
        // SAFETY: B1 - the user promises that each version of an object may run, and that its functions have the signatures with
        // which the program calls them. The call of `main` began before every reload, so no version is freed while the
        // program uses an address of it.
        let reloads = unsafe { self.reloader.reload_all(objects) }.map_err(message_of)?;
        let times = Times { total: since.elapsed(), build };
        reloads.iter().take(waiting.len()).for_each(|reload| self.lines.reloaded(reload, &times));
        self.report_memory();
        for place in waiting.keys() {
            self.objects.entry(place.clone()).and_modify(|object| object.runs = object.seen);
        }
        Ok(())
    }

    /// Reloads objects one by one, as long as one of them follows: it may have what another one needs.
    fn reload_each(&mut self, mut waiting: Waiting, since: Instant) {
        loop {
            let (before, mut errors) = (waiting.len(), Vec::new());
            for (place, bytes) in std::mem::take(&mut waiting) {
                let one = Waiting::from([(place, bytes)]);
                if let Err(error) = self.reload_all(&one, &Waiting::new(), since, None) {
                    errors.push(error);
                    waiting.extend(one);
                }
            }
            if waiting.is_empty() || waiting.len() == before {
                for (place, error) in waiting.into_keys().zip(errors) {
                    self.lines.refused(&[&self.objects[&place].name], &error);
                    self.refused.insert(place);
                }
                return;
            }
        }
    }
}

/// A hash of the bytes of a file.
pub fn hash_of(bytes: &[u8]) -> u64 {
    // An archive has many megabytes.
    let mut hasher = FxHasher::default();
    hasher.write(bytes);
    hasher.finish()
}

/// How often a screen gets what is in memory.
const SCREEN_INTERVAL: Duration = Duration::from_millis(500);
/// How long sources must be quiet before they are built.
const QUIET: Duration = Duration::from_millis(20);
