//! [`start`]: the thread that waits for new objects and reloads them.

use std::thread;

use jittison::{Error, Jit, Reloader, ResourceTracker, Watcher};

use crate::objects::Objects;
use crate::print;

/// Finds the objects in the program that runs, and starts a thread that follows them.
///
/// # Errors
/// The program was stripped, or linked from other objects; files cannot be watched.
pub fn start(objects: Objects) -> Result<(), String> {
    let (program, watcher) = open(&objects).map_err(|error| error.to_string())?;
    let names: Vec<&str> = objects.0.values().map(|object| object.name.as_str()).collect();
    print(&format!("watching {}", names.join(", ")));
    let thread = thread::Builder::new().name("jittison hot".to_string());
    let follow = thread.spawn(move || follow(&program, watcher));
    follow.map_err(|problem| format!("cannot start a thread: {problem}"))?;
    Ok(())
}

/// The program, as it was linked.
struct Program {
    reloader: Reloader,
    _jit: (Jit, ResourceTracker),
}

fn open(objects: &Objects) -> Result<(Program, Watcher), Error> {
    let mut watcher = Watcher::new()?;
    let jit = Jit::new()?;
    let tracker = jit.main_dylib().create_tracker()?;
    let reloader = Reloader::new(&jit, &tracker)?;
    for (path, object) in &objects.0 {
        reloader.add_native_object(&object.name, &*object.bytes)?;
        watcher.add_file(&object.name, path, &object.bytes)?;
    }
    reloader.link()?;
    Ok((Program { reloader, _jit: (jit, tracker) }, watcher))
}

fn follow(program: &Program, mut watcher: Watcher) {
    loop {
        // SAFETY: P1 - the user promises it. A version is freed only if threads pass reload points, where they promise to use nothing of it.
        let events = unsafe { watcher.wait(&program.reloader, None) };
        events.iter().for_each(|event| event.to_string().lines().for_each(print));
    }
}
