//! `jittison run`: from objects to an exit status.
//!
//! All objects of a dylib, and what they need of archives, stand under one tracker. They are one program: they refer to each
//! other in rings, none of them could go before the others, and their finalisers have to run in one order over all of them.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{IsTerminal as _, Write as _};
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use clap::ArgMatches;
use jittison::base::{ExecutorAddr, Name};
use jittison::link::{Archive, FileBytes, ObjectBuffer, ObjectInterface, OpenFile, required_names};
use jittison::memory::{OnFull, Placement};
use jittison::session::{Alias, SymbolFlags, Visibility};
use jittison::{Event, InputFile, Jit, JitDylib, MappedFile, Program, ProgramEvent, ResourceTracker};

use crate::args::RunArgs;
use crate::inputs::{Group, Input, Inputs, gather};
use crate::link::{Failures, Object, Supplier, pull};
use crate::observer::{Observer, Totals};
use crate::process::other_threads;
use crate::progress::Progress;
use crate::report::{Outcome, Report};
use crate::{FAILED, complain, offline};

/// Comes back only with what kept the program from being run, or when nothing was to be run.
pub fn run(args: &RunArgs, matches: &ArgMatches) -> Result<(), String> {
    // What the user mistyped is told before anything is done.
    let report_file = args.report.as_deref().map(create).transpose()?;
    let arguments = arguments(args)?;
    let inputs = gather(args, matches)?;

    let threads = args.threads.unwrap_or_else(|| worth_threads(&inputs));
    let jit = if args.no_exec { offline_session(args)? } else { session(args, threads)? };
    let totals = Arc::new(Totals::default());
    if report_file.is_some() || std::io::stderr().is_terminal() {
        jit.layer().add_plugin(Arc::new(Observer(totals.clone())));
    }
    let mut report = Report::new(report_file, jit.memory_statistics(), totals.clone());
    let progress = Progress::start(totals);

    // Every file's names enter the tables; then every object is linked, with what it needs of the archives.
    let dylibs = dylibs(&jit, &inputs.groups, args.no_exec)?;
    let tracker = dylibs[0].1.clone();
    let program = Program::new(&jit, &tracker).map_err(told)?;
    define(&tracker, args)?;
    let mut objects = Vec::new();
    for (group, (dylib, tracker)) in inputs.groups.iter().zip(&dylibs) {
        objects.push((dylib, add_group(&jit, dylib, tracker, group)?));
    }
    report.stage("add");
    if !args.no_exec {
        check_entry(objects.iter().flat_map(|(_, objects)| objects), &args.entry)?;
    }
    let suppliers = suppliers(&jit, &inputs.groups, &dylibs)?;
    for (dylib, objects) in &objects {
        pull(dylib, objects, &suppliers);
    }
    let mut failures = Failures::default();
    for (dylib, objects) in &objects {
        failures.link(dylib, objects);
    }
    if threads > 0 {
        // The program has the process for itself.
        jit.session().dismiss_workers();
        other_threads();
    }
    failures.told(objects.iter().flat_map(|(_, objects)| objects))?;
    drop(progress);
    report.stage("link");
    report.entry = args.entry.clone();
    let usage = dylibs.iter().map(|(_, tracker)| jit.usage(tracker)).sum();
    report.linked(objects.iter().flat_map(|(_, objects)| objects), usage, jit.memory_statistics());

    let trackers: Vec<ResourceTracker> = dylibs.iter().map(|(_, tracker)| tracker.clone()).collect();
    let mut ending = Ending { jit: jit.clone(), trackers, report, process: std::process::id() };
    if args.no_exec {
        ending.finish();
        return Ok(());
    }
    // The program runs; its end, by whatever way, is seen by the observer.
    let observe = move |event| ending.observe(event);
    // SAFETY: B1 - the entry is a function of an object that the user asked to be run.
    let status = unsafe { program.run(&args.entry, &arguments, observe) }.map_err(told)?;
    // Not by returning: where code was kept, or this is a child that the program forked, nothing may be torn down.
    std::process::exit(status)
}

/// A session that finds what C and C++ programs are linked against without being asked.
fn session(args: &RunArgs, threads: usize) -> Result<Jit, String> {
    // Programs refer to data of the libraries, and mostly as if it were their own.
    let near = Jit::builder().placement(Placement::NearLibraries).window_size(1 << 30).on_full(OnFull::OpenAnother);
    let mut builder = FALLBACKS.iter().fold(near, |builder, name| builder.library(name));
    if args.trace {
        builder = builder.observer(Arc::new(|event: &Event<'_>| eprintln!("jittison: {event}")));
    }
    builder.worker_threads(threads).build().map_err(told)
}

/// Threads take a quarter of a millisecond to start and to end, in which a quarter of a megabyte is linked.
fn worth_threads(inputs: &Inputs) -> usize {
    let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    if processors > 1 && inputs.size_bytes() >= 1 << 20 { processors } else { 0 }
}

fn offline_session(args: &RunArgs) -> Result<Jit, String> {
    let options = offline::Options { base: args.base, absolute: Vec::new(), phony_externals: args.phony_externals };
    Ok(offline::session(&options)?.0)
}

/// One for each group: it sees itself first, then the others as they were typed, then the process.
fn dylibs(jit: &Jit, groups: &[Group], is_offline: bool) -> Result<Vec<(JitDylib, ResourceTracker)>, String> {
    let mut dylibs = Vec::new();
    for group in groups {
        let is_main = group.name == "main";
        let dylib = if is_main { jit.main_dylib().clone() } else { jit.create_dylib(&group.name).map_err(told)? };
        let tracker = dylib.create_tracker().map_err(told)?;
        dylibs.push((dylib, tracker));
    }
    for (at, (dylib, _)) in dylibs.iter().enumerate() {
        let others = dylibs.iter().enumerate().filter(|(other, _)| *other != at);
        let mut order: Vec<_> = others.map(|(_, (other, _))| (other.clone(), Visibility::ExportedOnly)).collect();
        if !is_offline {
            order.push((jit.process_dylib().clone(), Visibility::ExportedOnly));
        }
        dylib.set_link_order(&order);
    }
    Ok(dylibs)
}

/// `--define` and `--alias`.
fn define(tracker: &ResourceTracker, args: &RunArgs) -> Result<(), String> {
    let flags = SymbolFlags::EXPORTED | SymbolFlags::ABSOLUTE;
    let absolute = args.absolute.iter().map(|(name, value)| (Name::new(name), ExecutorAddr::new(*value), flags));
    tracker.dylib().define_absolute(absolute).map_err(told)?;
    let alias = |(name, symbol): &(String, String)| Alias {
        name: Name::new(name),
        aliasee: Name::new(symbol),
        flags: SymbolFlags::EXPORTED | SymbolFlags::CALLABLE,
    };
    let aliases: Vec<Alias> = args.alias.iter().map(alias).collect();
    if aliases.is_empty() { Ok(()) } else { tracker.define_aliases(&aliases).map_err(told) }
}

/// Adds what goes to one dylib.
fn add_group(jit: &Jit, dylib: &JitDylib, tracker: &ResourceTracker, group: &Group) -> Result<Vec<Object>, String> {
    let mut objects = Vec::new();
    let mut archives = Vec::new();
    for input in &group.inputs {
        match input {
            Input::Object(path) => objects.push(add(jit, tracker, path)?),
            Input::Archive(path) => archives.push(path),
            Input::WholeArchive(path) => objects.extend(add_members(jit, tracker, path)?),
        }
    }
    if !archives.is_empty() {
        // Members belong to the program: they go with its objects.
        let libraries = jit.static_libraries(dylib).map_err(told)?;
        libraries.set_tracker(tracker);
        let archives = archives.into_iter().map(|path| open_archive(path)).collect::<Result<_, _>>()?;
        libraries.add(archives).map_err(told)?;
    }
    Ok(objects)
}

/// The dylibs that have archives.
fn suppliers(jit: &Jit, groups: &[Group], dylibs: &[(JitDylib, ResourceTracker)]) -> Result<Vec<Supplier>, String> {
    let with_archives = groups.iter().zip(dylibs).filter(|(group, _)| group.has_archives());
    let supplier =
        |(_, (dylib, _)): (_, &(JitDylib, _))| Ok((dylib.clone(), jit.static_libraries(dylib).map_err(told)?));
    with_archives.map(supplier).collect()
}

/// What is done when the program has come to its end.
struct Ending {
    jit: Jit,
    trackers: Vec<ResourceTracker>,
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
            // Trackers that refer to each other go together, when the last of them is removed.
            0 => match self.trackers.iter().map(ResourceTracker::remove).collect() {
                Ok(removals) => Outcome::Removed(removals),
                Err(error) => Outcome::Failed(told(error)),
            },
            threads => Outcome::RecycledVec { threads },
        };
        self.report.stage("remove");
        if let Err(problem) = self.report.write(&outcome, self.jit.memory_statistics()) {
            complain(&format!("the report cannot be written: {problem}"));
            std::process::exit(FAILED.into());
        }
    }
}

/// Adds every member of an archive, as if each had been typed.
fn add_members(jit: &Jit, tracker: &ResourceTracker, path: &Path) -> Result<Vec<Object>, String> {
    let archive = open_archive(path)?;
    let add_one = |offset: u64| {
        let member = archive.member(offset).map_err(told)?;
        add_bytes(jit, tracker, member.full_name(), member.bytes)
    };
    archive.member_offsets().map_err(told)?.into_iter().map(add_one).collect()
}

/// Maps an archive: reading the members of a large program takes a fifth of its link.
fn open_archive(path: &Path) -> Result<Archive, String> {
    let open_file: Arc<OpenFile> = Arc::new(|path| {
        // SAFETY: B1 - whoever typed the command says that nobody changes the archives while they are linked.
        let file = unsafe { MappedFile::open(path) }?;
        Ok(FileBytes::InMemory(ObjectBuffer::new(file)))
    });
    Archive::open(path, open_file).map_err(told)
}

/// Adds an object; what it defines is kept for errors and the report.
pub fn add(jit: &Jit, tracker: &ResourceTracker, path: &Path) -> Result<Object, String> {
    let name = path.display().to_string();
    let bytes = InputFile::open(path).and_then(|file| file.read()).map_err(told)?.into();
    add_bytes(jit, tracker, name, bytes)
}

fn add_bytes(jit: &Jit, tracker: &ResourceTracker, name: String, bytes: ObjectBuffer) -> Result<Object, String> {
    let object = Object {
        size_bytes: bytes.len() as u64,
        interface: ObjectInterface::scan(&name, &bytes).map_err(told)?,
        required: required_names(&name, &bytes).map_err(told)?.into_iter().map(str::to_string).collect(),
        path: name,
    };
    jit.add_object(tracker, &object.path, bytes).map_err(told)?;
    Ok(object)
}

fn check_entry<'a>(objects: impl Iterator<Item = &'a Object>, entry: &str) -> Result<(), String> {
    let mut symbols = objects.flat_map(|object| &object.interface.symbols);
    match symbols.find(|symbol| symbol.name.as_str() == entry) {
        Some(symbol) if symbol.is_callable => Ok(()),
        Some(_) => Err(format!("`{entry}` is not a function")),
        None => Err(format!("no object defines a function `{entry}`: nothing was run; another is named with --entry")),
    }
}

/// `argv`: the first file's path, then what the user gave.
fn arguments(args: &RunArgs) -> Result<Vec<CString>, String> {
    let name = args.files.first().map(|path| path.as_os_str());
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
