//! `jittison run`: from objects to an exit status.
//!
//! All objects stand under one tracker. They are one program: they refer to each other in rings, none of them could go
//! before the others, and their finalisers have to run in one order over all of them.

use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use jittison::link::{ObjectBuffer, ObjectInterface};
use jittison::memory::{OnFull, Placement};
use jittison::{Jit, Program, ProgramEvent, ResourceTracker};

use crate::args::RunArgs;
use crate::link::{Object, link_all};
use crate::process::{open_library, other_threads};
use crate::report::{Outcome, Report};
use crate::{FAILED, complain};

/// Comes back only with what kept the program from being run.
pub fn run(args: &RunArgs) -> Result<(), String> {
    // What the user mistyped is told before anything is done.
    let report_file = args.report.as_deref().map(create).transpose()?;
    let arguments = arguments(args)?;
    let libraries = args.libraries.iter().map(|name| open_library(&name.to_string_lossy()));
    let _libraries = libraries.collect::<Result<Vec<_>, _>>()?;

    // Programs refer to data of the libraries, and mostly as if it were their own.
    let near = Jit::builder().placement(Placement::NearLibraries).window_size(1 << 30).on_full(OnFull::OpenAnother);
    let jit = FALLBACKS.iter().fold(near, |builder, name| builder.library(name)).build().map_err(told)?;
    let tracker = jit.main_dylib().create_tracker().map_err(told)?;
    let mut report = Report::new(report_file, jit.memory_statistics());
    let program = Program::new(&jit, &tracker).map_err(told)?;

    // Every object's names enter the table; then every object is linked.
    let objects = args.objects.iter().map(|path| add(&jit, &tracker, path)).collect::<Result<Vec<_>, _>>()?;
    report.stage("add");
    check_entry(&objects, &args.entry)?;
    link_all(jit.main_dylib(), &objects)?;
    report.stage("link");
    report.entry = args.entry.clone();
    report.linked(&objects, jit.usage(&tracker), jit.memory_statistics());

    // The program runs; its end, by whatever way, is seen by the observer.
    let observe = {
        let mut ending = Ending { jit: jit.clone(), tracker: tracker.clone(), report, process: std::process::id() };
        move |event| ending.observe(event)
    };
    // SAFETY: B1 - the entry is a function of an object that the user asked to be run.
    let status = unsafe { program.run(&args.entry, &arguments, observe) }.map_err(told)?;
    // Not by returning: where code was kept, or this is a child that the program forked, nothing may be torn down.
    std::process::exit(status)
}

/// What is done when the program has come to its end.
struct Ending {
    jit: Jit,
    tracker: ResourceTracker,
    report: Report,
    /// The process that linked the program.
    process: u32,
}

impl Ending {
    fn observe(&mut self, event: ProgramEvent) {
        match event {
            ProgramEvent::Initialized { functions } => {
                self.report.initializers_called = functions;
                self.report.stage("initialize");
            }
            ProgramEvent::Ended { status, has_returned } => {
                self.report.status = status;
                self.report.has_returned = has_returned;
                self.report.stage("run");
            }
            ProgramEvent::Finalized => {
                self.report.stage("finalize");
                self.finish();
            }
            _ => {}
        }
    }

    fn finish(&mut self) {
        // A child of the program's has the code in common with its parent, and ends without it.
        if std::process::id() != self.process {
            return;
        }
        let outcome = match other_threads() {
            0 => self.tracker.remove().map_or_else(|error| Outcome::Failed(told(error)), Outcome::Removed),
            threads => Outcome::Kept { threads },
        };
        self.report.stage("remove");
        if let Err(problem) = self.report.write(&outcome, self.jit.memory_statistics()) {
            complain(&format!("the report cannot be written: {problem}"));
            std::process::exit(FAILED.into());
        }
    }
}

/// Adds an object; what it defines is kept for errors and the report.
pub fn add(jit: &Jit, tracker: &ResourceTracker, path: &Path) -> Result<Object, String> {
    let name = path.display().to_string();
    let bytes = fs::read(path).map_err(|problem| format!("{name}: {problem}"))?;
    let object = Object {
        size_bytes: bytes.len() as u64,
        interface: ObjectInterface::scan(&name, &bytes).map_err(told)?,
        path: name,
    };
    jit.add_object(tracker, &object.path, ObjectBuffer::from(bytes)).map_err(told)?;
    Ok(object)
}

fn check_entry(objects: &[Object], entry: &str) -> Result<(), String> {
    let mut symbols = objects.iter().flat_map(|object| &object.interface.symbols);
    match symbols.find(|symbol| symbol.name == entry) {
        Some(symbol) if symbol.is_callable => Ok(()),
        Some(_) => Err(format!("`{entry}` is not a function")),
        None => Err(format!("no object defines a function `{entry}`: nothing was run; another is named with --entry")),
    }
}

/// `argv`: the first object's path, then what the user gave.
fn arguments(args: &RunArgs) -> Result<Vec<CString>, String> {
    let name = args.objects.first().map(|path| path.as_os_str());
    let all = name.into_iter().chain(args.arguments.iter().map(|argument| argument.as_os_str()));
    let c_string = |text: &OsStr| CString::new(text.as_bytes()).map_err(|error| format!("argument: {error}"));
    all.map(c_string).collect()
}

/// Empty until the program has ended: a program that is killed leaves no report that looks like one.
fn create(path: &Path) -> Result<File, String> {
    let file = File::create(path).and_then(|mut file| file.flush().map(|()| file));
    file.map_err(|problem| format!("{}: {problem}", path.display()))
}

pub fn told(error: jittison::Error) -> String {
    error.root_cause().to_string()
}

/// What C and C++ programs are linked against without being asked.
pub const FALLBACKS: [&str; 3] = ["libm.so.6", "libstdc++.so.6", "libgcc_s.so.1"];
