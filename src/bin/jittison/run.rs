//! `jittison run`: links files and runs them as a program.
//!
//! All objects of a dylib, with the archive members that they need, are under one tracker, because they are one program.
//! They refer to each other in rings, so none of them could be removed alone, and their finalisers run in one order over all
//! of them.

use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::io::{IsTerminal as _, Write as _};
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use clap::ArgMatches;
use jittison::base::{ExecutorAddr, Name};
use jittison::executor::{ExecutorProcess, TrustedCertificates};
use jittison::link::Archive;
use jittison::memory::{OnFull, Placement};
use jittison::platform::StaticLibraries;
use jittison::session::{Alias, DefinitionGenerator as _, RequiredState, SymbolFlags, SymbolRequest, Visibility};
use jittison::{Event, Jit, JitDylib, Program, ProgramEvent, Reloader, ResourceTracker};

use crate::add::{Reloaded, add_input, add_members, open_archive};
use crate::archives::{Requirements, check_order, may_be_of_compiler, support_library};
use crate::args::RunArgs;
use crate::follower::Follower;
use crate::inputs::{ArchiveFile, Group, Input, Inputs, gather};
use crate::interposed::check_interposed;
use crate::link::{Failures, Object, Supplier, Unreceived, pull};
use crate::link_totals::{LinkTotals, LinkTotalsPlugin};
use crate::offline;
use crate::output::{FAILED, message_of, print_error};
use crate::place::open_archive_to_watch;
use crate::process::FirstThreads;
use crate::progress::Progress;
use crate::report::{Outcome, Report};
use crate::watch::Followed;

/// Links the inputs and runs the program. Returns only if the program could not be run, or if nothing was to be run.
pub fn run(args: &RunArgs, matches: &ArgMatches) -> Result<(), String> {
    run_program(args, matches, None)
}

/// As [`run`]. With `followed`, the objects of the first dylib are reloaded when they change.
pub fn run_program(args: &RunArgs, matches: &ArgMatches, followed: Option<Followed>) -> Result<(), String> {
    let own_threads = FirstThreads::of(std::process::id());
    // First the steps that find mistakes of the command line.
    let report_file = args.report.as_deref().map(create_file).transpose()?;
    let program = followed.as_ref().and_then(|followed| followed.build.program());
    let start_folder = followed.as_ref().and_then(|followed| followed.build.start_folder());
    let arguments = arguments(args, program.as_deref())?;
    let built = followed.as_ref().map(|followed| followed.build.inputs()).unwrap_or_default();
    let inputs = gather(args, matches, built)?;

    let threads = args.threads.unwrap_or_else(|| default_thread_count(&inputs));
    let unreceived = Unreceived::default();
    let executor = args.executor.as_ref().map(|path| start_executor(path.as_deref())).transpose()?;
    // Threads of a process of another machine cannot be counted.
    let is_far = args.executor.as_ref().is_some_and(|path| Far::of(path.as_deref()).is_some());
    let near_threads = executor.as_ref().filter(|_| !is_far).map(|executor| FirstThreads::of(executor.id()));
    let jit = if args.no_exec {
        offline_session(args)?
    } else {
        session(args, &inputs, threads, executor.as_ref(), &unreceived)?
    };
    let totals = Arc::new(LinkTotals::default());
    if report_file.is_some() || std::io::stderr().is_terminal() {
        jit.layer().add_plugin(Arc::new(LinkTotalsPlugin(totals.clone())));
    }
    let mut report = Report::new(report_file, jit.memory_statistics(), totals.clone());
    let progress = Progress::start(totals);

    // Add all objects before the first one is linked, so that every name is known.
    let dylibs = dylibs(&jit, &inputs.groups, args.no_exec)?;
    let tracker = dylibs[0].1.clone();
    let program = Program::new(&jit, &tracker).map_err(message_of)?;
    define(&tracker, args)?;
    let mut reloaded = match &followed {
        Some(_) => {
            let reloader = Arc::new(Reloader::new(&jit, &tracker).map_err(message_of)?);
            Some(Reloaded::new(reloader))
        }
        None => None,
    };
    let mut objects = Vec::new();
    let mut required = vec![Requirements::of_entry(&args.entry)];
    required.resize_with(dylibs.len(), Requirements::default);
    required.iter_mut().for_each(|requirements| requirements.wants_low_object = !args.no_exec);
    for ((group, (dylib, tracker)), requirements) in inputs.groups.iter().zip(&dylibs).zip(&mut required) {
        let reloaded = reloaded.as_mut().filter(|_| objects.is_empty());
        objects.push((dylib, add_group(&jit, dylib, tracker, group, &args.entry, requirements, reloaded)?));
    }
    let suppliers = suppliers(&jit, &inputs.groups, &dylibs)?;
    add_members_again(&suppliers, false);
    if !args.no_exec {
        for (((dylib, _), requirements), group) in dylibs.iter().zip(&required).zip(&inputs.groups) {
            if group.has_archives() {
                check_order(&jit, dylib, &*jit.static_libraries(dylib).map_err(message_of)?, requirements)?;
            }
        }
    }
    for ((dylib, _), requirements) in dylibs.iter().zip(&required) {
        pull(dylib, requirements, &suppliers);
    }
    if !args.nodefaultlibs && !args.phony_externals {
        add_support_libraries(&jit, &dylibs, &required, args.no_exec)?;
    }
    report.end_stage("add");
    if !args.no_exec {
        check_entry(&dylibs[0].0, &args.entry, &required[0])?;
        dylibs.iter().try_for_each(|(dylib, _)| check_allocator(dylib))?;
        dylibs.iter().zip(&required).try_for_each(|((dylib, _), required)| check_interposed(dylib, required))?;
    }
    let mut failures = Failures::default();
    for (dylib, objects) in &objects {
        failures.link(dylib, objects);
    }
    // The thread that draws the progress ends here, before the threads are counted.
    drop(progress);
    if threads > 0 {
        // The workers end, so that the program starts in a process without other threads.
        jit.session().dismiss_workers();
        own_threads.count_others();
    }
    failures.add(unreceived.take());
    failures.into_result(objects.iter().flat_map(|(_, objects)| objects))?;
    add_members_again(&suppliers, true);
    if let Some(reloaded) = &reloaded {
        reloaded.reloader.link().map_err(message_of)?;
    }
    report.end_stage("link");
    report.entry = args.entry.clone();
    let usage = dylibs.iter().map(|(_, tracker)| jit.usage(tracker)).sum();
    report.set_linked(objects.iter().flat_map(|(_, objects)| objects), usage, jit.memory_statistics());

    let trackers: Vec<ResourceTracker> = dylibs.iter().map(|(_, tracker)| tracker.clone()).collect();
    let process_id = std::process::id();
    let first_threads = near_threads.unwrap_or(own_threads);
    let mut cleanup = Cleanup { jit: jit.clone(), trackers, report, process_id, first_threads, following: None };
    if args.no_exec {
        cleanup.finish();
        return Ok(());
    }
    if let (Some(followed), Some(Reloaded { reloader, objects, unfollowed, .. })) = (followed, reloaded) {
        unfollowed.iter().for_each(|(name, reason)| followed.lines.not_followed(name, reason));
        let follower = Follower::start(&jit, reloader.clone(), objects, followed)?;
        cleanup.following = Some((follower, reloader));
    }
    if let Some(folder) = start_folder {
        std::env::set_current_dir(&folder).map_err(|problem| format!("{}: {problem}", folder.display()))?;
    }
    // The cleanup runs in the observer, because `run` does not return if the program calls `exit`.
    let observe = move |event| cleanup.handle_event(event);
    // SAFETY: B1 - the user promises that the objects may run and that the entry is a `main`. `check_entry` found that the
    // program defines it, as a function or without a type.
    let status = unsafe { program.run(&args.entry, &arguments, observe) }.map_err(message_of)?;
    if let Some(executor) = executor {
        // It writes what the C library there has buffered. It has ended already if the program called `exit`.
        let _ = executor.end();
    }
    // Exit here, without drops. Threads may still run code that was not removed, or this is a child that the program forked.
    std::process::exit(status)
}

/// The address of an executor that is reached by a network.
enum Far<'a> {
    Plain(&'a str),
    Encrypted(&'a str),
}

impl Far<'_> {
    fn of(path: Option<&Path>) -> Option<Far<'_>> {
        let text = path?.to_str()?;
        let encrypted = || text.strip_prefix("tls:").map(Far::Encrypted);
        text.strip_prefix("tcp:").map(Far::Plain).or_else(encrypted)
    }

    fn connect(&self) -> Result<ExecutorProcess, String> {
        let token = std::env::var("JITTISON_EXECUTOR_TOKEN")
            .map_err(|_| "`JITTISON_EXECUTOR_TOKEN` is not set: the token of the executor".to_string())?;
        match *self {
            Far::Plain(address) => {
                let executor = ExecutorProcess::connect(address, &token).map_err(message_of)?;
                executor.forward_streams().map_err(message_of)?;
                Ok(executor)
            }
            Far::Encrypted(address) => {
                let host = host_of(address).ok_or_else(|| format!("tls:{address}: write tls:HOST:PORT"))?;
                let path = std::env::var_os("JITTISON_EXECUTOR_CERTIFICATE").ok_or(
                    "`JITTISON_EXECUTOR_CERTIFICATE` is not set: a file with the certificate of the executor, or of the authority that has \
                     signed it",
                )?;
                let in_file = |problem: String| format!("{}: {problem}", path.display());
                let pem = fs::read(&path).map_err(|error| in_file(error.to_string()))?;
                let trusted = TrustedCertificates::from_pem(&pem).map_err(|error| in_file(message_of(error)))?;
                ExecutorProcess::connect_encrypted(address, host, &token, &trusted).map_err(message_of)
            }
        }
    }
}

/// The host of `HOST:PORT` or `[HOST]:PORT`.
fn host_of(address: &str) -> Option<&str> {
    let (host, _) = address.rsplit_once(':')?;
    Some(host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host))
}

/// Starts an executor: the program at `path`, or else the one beside this program. Or connects to the one at `tcp:HOST:PORT` or
/// `tls:HOST:PORT`.
fn start_executor(path: Option<&Path>) -> Result<ExecutorProcess, String> {
    if let Some(far) = Far::of(path) {
        return far.connect();
    }
    let path = match path {
        Some(path) => path.to_path_buf(),
        None => std::env::current_exe()
            .map_err(|error| format!("this program has no path: {error}"))?
            .with_file_name("jittison-executor"),
    };
    ExecutorProcess::start(path).map_err(message_of)
}

/// Creates a session that also searches the libraries that C and C++ programs use by default.
fn session(
    args: &RunArgs,
    inputs: &Inputs,
    threads: usize,
    executor: Option<&ExecutorProcess>,
    unreceived: &Unreceived,
) -> Result<Jit, String> {
    // Programs refer to data of shared libraries with 32-bit displacements, so code memory should be near the libraries.
    let mut near = Jit::builder().placement(Placement::NearLibraries).window_size(1 << 30).on_full(OnFull::OpenAnother);
    if let Some(executor) = executor {
        // Those of the command line are open in this process, where their exports were read.
        let libraries = inputs.groups.iter().flat_map(|group| &group.inputs).filter_map(|input| match input {
            Input::Library(library) => Some(library.name()),
            _ => None,
        });
        near = libraries.fold(near.executor(executor), |builder, name| builder.library(name));
    }
    let default: &[&str] = if args.nodefaultlibs { &[] } else { &DEFAULT_LIBRARIES };
    let mut builder = default.iter().fold(near, |builder, name| builder.library(name));
    builder = args.wrap.iter().fold(builder, |builder, symbol| builder.wrap(symbol));
    if args.trace {
        builder = builder.observer(Arc::new(|event: &Event<'_>| eprintln!("jittison: {event}")));
    }
    let unreceived = unreceived.clone();
    let reporter = Arc::new(move |error| unreceived.push(error));
    builder.error_reporter(reporter).worker_threads(threads).build().map_err(message_of)
}

/// All processors for inputs of a megabyte or more, else none: for less, starting and ending the threads takes longer than
/// the link.
fn default_thread_count(inputs: &Inputs) -> usize {
    let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    if processors > 1 && inputs.size_bytes() >= 1 << 20 { processors } else { 0 }
}

fn offline_session(args: &RunArgs) -> Result<Jit, String> {
    let options = offline::Options {
        base: args.base,
        absolute: Vec::new(),
        phony_externals: args.phony_externals,
        wrap: args.wrap.clone(),
    };
    offline::session(&options)
}

/// Creates a dylib and a tracker for each group. A dylib searches itself, then the others in the order of the command line,
/// then the process.
fn dylibs(jit: &Jit, groups: &[Group], is_offline: bool) -> Result<Vec<(JitDylib, ResourceTracker)>, String> {
    let mut dylibs = Vec::new();
    for group in groups {
        let is_main = group.name == "main";
        let dylib =
            if is_main { jit.main_dylib().clone() } else { jit.create_dylib(&group.name).map_err(message_of)? };
        let tracker = dylib.create_tracker().map_err(message_of)?;
        dylibs.push((dylib, tracker));
    }
    for (index, (dylib, _)) in dylibs.iter().enumerate() {
        let others = dylibs.iter().enumerate().filter(|(other, _)| *other != index);
        let mut order: Vec<_> = others.map(|(_, (other, _))| (other.clone(), Visibility::ExportedOnly)).collect();
        if !is_offline {
            order.push((jit.process_dylib().clone(), Visibility::ExportedOnly));
        }
        dylib.set_link_order(&order).map_err(|error| error.to_string())?;
    }
    Ok(dylibs)
}

/// Defines the symbols of `--define` and `--alias`.
fn define(tracker: &ResourceTracker, args: &RunArgs) -> Result<(), String> {
    let flags = SymbolFlags::EXPORTED | SymbolFlags::ABSOLUTE;
    let absolute = args.absolute.iter().map(|(name, value)| (Name::new(name), ExecutorAddr::new(*value), flags));
    tracker.dylib().define_absolute(absolute).map_err(message_of)?;
    let alias = |(name, symbol): &(String, String)| Alias {
        name: Name::new(name),
        aliasee: Name::new(symbol),
        flags: SymbolFlags::EXPORTED | SymbolFlags::CALLABLE,
    };
    let aliases: Vec<Alias> = args.alias.iter().map(alias).collect();
    if aliases.is_empty() { Ok(()) } else { tracker.define_aliases(&aliases).map_err(message_of) }
}

/// Adds the inputs of one dylib in their order, with the members of archives that the inputs before each archive require.
fn add_group(
    jit: &Jit,
    dylib: &JitDylib,
    tracker: &ResourceTracker,
    group: &Group,
    entry: &str,
    requirements: &mut Requirements,
    mut reloaded: Option<&mut Reloaded>,
) -> Result<Vec<Object>, String> {
    let mut objects = Vec::new();
    let mut archives: Vec<Archive> = Vec::new();
    let mut group_start = 0;
    for input in &group.inputs {
        match input {
            Input::Object(object) => {
                let reloaded = reloaded.as_deref_mut().filter(|_| object.follows);
                objects.push(add_input(jit, tracker, object, requirements, reloaded)?);
            }
            Input::Archive(ArchiveFile { path, follows }) => {
                let archive = if reloaded.is_some() { open_archive_to_watch(path)? } else { open_archive(path)? };
                let reloaded = reloaded.as_deref_mut().filter(|_| *follows);
                requirements.search(jit, tracker, &archive, entry, reloaded)?;
                archives.push(archive);
            }
            Input::WholeArchive(ArchiveFile { path, follows }) => {
                let reloaded = reloaded.as_deref_mut().filter(|_| *follows);
                objects.extend(add_members(jit, tracker, path, requirements, reloaded)?);
            }
            Input::Library(library) => requirements.libraries.push(library.clone()),
            Input::GroupStart => group_start = archives.len(),
            Input::GroupEnd => {
                let group = &archives[group_start..];
                requirements.search_group(jit, tracker, group, entry, reloaded.as_deref_mut())?;
            }
        }
    }
    objects.iter().for_each(|object| requirements.note_entry(&object.interface, entry));
    if !archives.is_empty() {
        // Members are removed together with the objects of the program.
        let libraries = jit.static_libraries(dylib).map_err(message_of)?;
        libraries.set_tracker(tracker);
        libraries.add(archives).map_err(message_of)?;
        requirements.found.iter().for_each(|name| libraries.note_added(dylib, name));
        libraries.exclude(&requirements.of_libraries);
    }
    Ok(objects)
}

/// Adds members of the compiler's support library that define what neither the inputs nor the process define.
fn add_support_libraries(
    jit: &Jit,
    dylibs: &[(JitDylib, ResourceTracker)],
    required: &[Requirements],
    is_offline: bool,
) -> Result<(), String> {
    let is_defined = |name: &&str| dylibs.iter().any(|(dylib, _)| dylib.symbol_flags(name).is_some());
    for ((dylib, tracker), requirements) in dylibs.iter().zip(required) {
        let mut missing = requirements.missing_in(dylib);
        missing.retain(|name| may_be_of_compiler(name) && !is_defined(name));
        if !is_offline && !missing.is_empty() {
            let requests: Vec<_> = missing.iter().map(|name| SymbolRequest::weak(name)).collect();
            let found = jit.process_dylib().lookup(&requests, RequiredState::Resolved).map_err(message_of)?;
            let mut is_absent = found.iter().map(|found| found.address.is_null());
            missing.retain(|_| is_absent.next() == Some(true));
        }
        if let Some(library) = support_library().filter(|_| !missing.is_empty()) {
            let libraries = StaticLibraries::new(jit.layer());
            libraries.set_tracker(tracker);
            libraries.add(vec![open_archive(&library)?]).map_err(message_of)?;
            let requests: Vec<_> = missing.iter().map(|name| SymbolRequest::required(name)).collect();
            libraries.generate(dylib, &requests).map_err(message_of)?;
        }
    }
    Ok(())
}

/// The dylibs that have archives.
fn suppliers(jit: &Jit, groups: &[Group], dylibs: &[(JitDylib, ResourceTracker)]) -> Result<Vec<Supplier>, String> {
    let with_archives = groups.iter().zip(dylibs).filter(|(group, _)| group.has_archives());
    let supplier =
        |(_, (dylib, _)): (_, &(JitDylib, _))| Ok((dylib.clone(), jit.static_libraries(dylib).map_err(message_of)?));
    with_archives.map(supplier).collect()
}

/// Whether archive members that have failed are added again when they are needed again. During the links they are not: everything
/// that needs such a member would add it again, with all that it needs, and fail for the same cause.
fn add_members_again(suppliers: &[Supplier], adds_again: bool) {
    suppliers.iter().for_each(|(_, libraries)| libraries.set_adds_again(adds_again));
}

/// Removes the program and writes the report, after the program has ended.
struct Cleanup {
    jit: Jit,
    trackers: Vec<ResourceTracker>,
    report: Report,
    /// The process that linked the program.
    process_id: u32,
    /// Those of the process that runs the program.
    first_threads: FirstThreads,
    /// What follows the files, and what reloads them. `None` without `watch`.
    following: Option<(Follower, Arc<Reloader>)>,
}

impl Cleanup {
    fn handle_event(&mut self, event: ProgramEvent) {
        match event {
            ProgramEvent::Initialized { functions } => {
                self.report.initializers_called = functions;
                self.report.end_stage("initialize");
            }
            ProgramEvent::Ended { status, has_returned } => {
                self.stop_following();
                self.report.status = status;
                self.report.has_returned = has_returned;
                self.report.end_stage("run");
            }
            ProgramEvent::Finalized => {
                self.report.end_stage("finalize");
                self.finish();
            }
            _ => {}
        }
    }

    /// Ends the thread that follows the files. A child that the program forked does not have it.
    fn stop_following(&mut self) {
        if let Some((follower, _)) = self.following.as_mut().filter(|_| std::process::id() == self.process_id) {
            follower.stop();
        }
    }

    fn finish(&mut self) {
        // A child that the program forked has a copy of the code. It ends without removing it, and the parent writes the
        // report.
        if std::process::id() != self.process_id {
            return;
        }
        // The last versions belong to the program from here on.
        drop(self.following.take());
        let outcome = match self.first_threads.count_others() {
            // The removal of the last tracker reclaims all, because they refer to each other.
            0 => match self.trackers.iter().map(ResourceTracker::remove).collect() {
                Ok(removals) => Outcome::Removed(removals),
                Err(error) => Outcome::Failed(message_of(error)),
            },
            threads => Outcome::StillRunning { threads },
        };
        self.report.end_stage("remove");
        if let Err(problem) = self.report.write(&outcome, self.jit.memory_statistics()) {
            print_error(&format!("cannot write the report: {problem}"));
            std::process::exit(FAILED.into());
        }
    }
}

/// Checks that an object or a member of an archive of the program defines the entry as a function.
fn check_entry(dylib: &JitDylib, entry: &str, requirements: &Requirements) -> Result<(), String> {
    match dylib.symbol_flags(entry) {
        Some(flags) if flags.contains(SymbolFlags::CALLABLE) || requirements.has_untyped_entry => Ok(()),
        Some(_) => Err(format!("`{entry}` is not a function; nothing was run; name a function with --entry")),
        None => {
            Err(format!("no object defines a function `{entry}`; nothing was run; name another function with --entry"))
        }
    }
}

/// Refuses an allocator of the program. A native linker would make shared libraries call it too. Here they call the one of the C
/// library, so a block of `strdup` would go to a `free` that does not know it.
fn check_allocator(dylib: &JitDylib) -> Result<(), String> {
    let is_exported =
        |name: &&&str| dylib.symbol_flags(name).is_some_and(|flags| flags.contains(SymbolFlags::EXPORTED));
    match ALLOCATOR.iter().find(is_exported) {
        None => Ok(()),
        Some(name) => Err(format!(
            "the files define `{name}`, and the shared libraries of this process go on calling that of the C library, so one would get \
             blocks of the other; nothing was run; leave the allocator out"
        )),
    }
}

/// `argv`: the path of the program or of the first file, then the arguments of the user.
fn arguments(args: &RunArgs, program: Option<&Path>) -> Result<Vec<CString>, String> {
    let name = program.or(args.files.first().map(PathBuf::as_path)).map(Path::as_os_str);
    let all = name.into_iter().chain(args.arguments.iter().map(|argument| argument.as_os_str()));
    let c_string = |text: &OsStr| CString::new(text.as_bytes()).map_err(|error| format!("argument: {error}"));
    all.map(c_string).collect()
}

/// Creates the file of the report. It stays empty until the program has ended, so a program that is killed leaves no report.
fn create_file(path: &Path) -> Result<File, String> {
    let file = File::create(path).and_then(|mut file| file.flush().map(|()| file));
    file.map_err(|problem| format!("{}: {problem}", path.display()))
}

/// The functions of an allocator that take blocks of each other.
const ALLOCATOR: [&str; 4] = ["malloc", "calloc", "realloc", "free"];

/// The libraries that compilers link C and C++ programs with by default.
pub const DEFAULT_LIBRARIES: [&str; 3] = ["libm.so.6", "libstdc++.so.6", "libgcc_s.so.1"];
