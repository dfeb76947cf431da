//! A watcher of files: objects follow when their files are written again.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jittison::{WatchEvent, Watcher};

use crate::*;

/// Long enough for the kernel's notification on a busy machine.
const LONG: Option<Duration> = Some(Duration::from_secs(60));

/// A program whose objects are files.
struct Watched {
    program: Program,
    watcher: Watcher,
    folder: tempfile::TempDir,
}

impl Watched {
    fn new(objects: &[(&str, &[u8])]) -> Watched {
        let folder = tempfile::tempdir().unwrap();
        let mut watcher = Watcher::new().unwrap();
        for (name, bytes) in objects {
            std::fs::write(folder.path().join(name), bytes).unwrap();
            watcher.add_file(name, folder.path().join(name), bytes).unwrap();
        }
        Watched { program: Program::new(objects), watcher, folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes another file, and gives it the name.
    fn replace(&self, name: &str, bytes: &[u8]) {
        let new = self.path("new");
        std::fs::write(&new, bytes).unwrap();
        std::fs::rename(new, self.path(name)).unwrap();
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Vec<WatchEvent> {
        // SAFETY: as in `try_reload`.
        unsafe { self.watcher.wait(&self.program.reloader, timeout) }
    }
}

fn reloaded(events: &[WatchEvent]) -> Vec<&str> {
    let reloads = events.iter().filter_map(|event| match event {
        WatchEvent::Reloaded { reloads, .. } => Some(reloads),
        _ => None,
    });
    reloads.flatten().map(|reload| reload.object.as_str()).collect()
}

#[test]
fn an_object_follows_when_its_file_is_written_or_replaced() {
    let sources = [1, 2, 3].map(|n| c(&format!("static int calls; long run(void) {{ return ++calls * 10 + {n}; }}")));
    let [Some(one), Some(two), Some(three)] = sources else { return };
    let mut watched = Watched::new(&[("a.o", &one)]);
    assert_eq!(watched.program.call("run"), 11);
    std::fs::write(watched.path("a.o"), &two).unwrap();
    let events = watched.wait(LONG);
    assert_eq!(reloaded(&events), ["a.o"]);
    assert!(events[0].to_string().starts_with("a.o version 1: changed run; "), "{}", events[0]);
    assert_eq!(watched.program.call("run"), 22);
    watched.replace("a.o", &three);
    assert_eq!(reloaded(&watched.wait(LONG)), ["a.o"]);
    assert_eq!(watched.program.call("run"), 33);
    // The same bytes, a file with another name, and no file are no events.
    std::fs::write(watched.path("a.o"), &three).unwrap();
    std::fs::write(watched.path("b.o"), &one).unwrap();
    std::fs::remove_file(watched.path("a.o")).unwrap();
    assert_eq!(watched.wait(Some(Duration::from_millis(300))).len(), 0);
    watched.replace("a.o", &one);
    assert_eq!(reloaded(&watched.wait(LONG)), ["a.o"]);
}

#[test]
fn what_was_written_before_the_watcher_had_the_file_follows() {
    let (Some(one), Some(two)) = (c("long run(void) { return 1; }"), c("long run(void) { return 2; }")) else { return };
    let mut watched = Watched::new(&[]);
    watched.program = Program::new(&[("a.o", &one)]);
    std::fs::write(watched.path("a.o"), &two).unwrap();
    let path = watched.path("a.o");
    watched.watcher.add_file("a.o", path, &one).unwrap();
    assert_eq!(reloaded(&watched.wait(LONG)), ["a.o"]);
    assert_eq!(watched.program.call("run"), 2);
}

#[test]
fn objects_that_need_each_other_follow_together_and_others_alone() {
    let sources = [
        "long f(void) { return 1; } long run(void) { return f(); }",
        "long g(void) { return 2; }",
        // Needs the new function of the other one.
        "long new_of_g(void); long run(void) { return new_of_g() + 10; }",
        "long g(void) { return 2; } long new_of_g(void) { return 30; }",
        "int g[100]; long more(void) { return 9; }",
        "long run(void) { return 5; }",
    ];
    let [Some(f), Some(g), Some(needs), Some(has), Some(broken), Some(alone)] = sources.map(c) else { return };
    let mut watched = Watched::new(&[("f.o", &f), ("g.o", &g)]);
    watched.program.call("run");
    watched.replace("f.o", &needs);
    let events = watched.wait(LONG);
    assert!(matches!(&events[..], [WatchEvent::Refused { objects, .. }] if *objects == ["f.o"]), "{events:?}");
    let text = events[0].to_string();
    assert!(text.contains("new_of_g") && text.ends_with("; the running code stays"), "{text}");
    assert_eq!(watched.program.call("run"), 1);
    // The refused one is tried again with the next change.
    watched.replace("g.o", &has);
    assert_eq!(reloaded(&watched.wait(LONG)), ["f.o", "g.o"]);
    assert_eq!(watched.program.call("run"), 40);
    // One of two that changed together is broken.
    watched.replace("g.o", &broken[..100]);
    watched.replace("f.o", &alone);
    let (mut followed, mut refused) = (Vec::new(), 0);
    while followed.is_empty() {
        let events = watched.wait(LONG);
        assert!(!events.is_empty(), "the kernel says nothing");
        followed.extend(reloaded(&events).into_iter().map(str::to_string));
        refused += events.iter().filter(|event| matches!(event, WatchEvent::Refused { .. })).count();
    }
    assert_eq!((followed, refused > 0), (vec!["f.o".to_string()], true));
    assert_eq!(watched.program.call("run"), 5);
}

#[test]
fn other_files_that_are_written_all_the_time_hold_nothing_back() {
    let (Some(one), Some(two)) = (c("long run(void) { return 1; }"), c("long run(void) { return 2; }")) else { return };
    let mut watched = Watched::new(&[("a.o", &one)]);
    const MOST: usize = 100_000;
    let (log, is_over) = (watched.path("log"), AtomicBool::new(false));
    std::thread::scope(|threads| {
        let writes = threads.spawn(|| {
            let is_going_on = |_: &usize| !is_over.load(Ordering::Relaxed);
            (0..MOST).take_while(is_going_on).map(|_| std::fs::write(&log, "a line").unwrap()).count()
        });
        watched.replace("a.o", &two);
        assert_eq!(reloaded(&watched.wait(LONG)), ["a.o"]);
        is_over.store(true, Ordering::Relaxed);
        let writes = writes.join().unwrap();
        assert!(writes < MOST / 4, "the reload came after {writes} writes");
    });
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = Watcher::new().unwrap().add_file("a.o", "/no/such/a.o", b"").unwrap_err();
    support::assert_says(&error, &["/no/such/a.o", "No such file"]);
}
