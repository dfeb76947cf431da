//! The costs before the first call: creating a session, and a whole process that links and calls one small module.
//!
//! A process has only one first session, so each figure is the median of several processes. Each links the library and
//! a small module, calls the module and ends. jittison and dlopen run in this program, and ORC in its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;

use jittison::Jit;
use jittison_test_support::bench::objects::Instance;
use serde_json::{Value, json};

use crate::measure::checks::{ARGUMENT, Run};
use crate::measure::competitor::{DLOPEN, JITTISON};
use crate::measure::rows;
use crate::measure::samples::{Samples, single};
use crate::measure::scenario::{Measures, Scenario, Unit, to_text};
use crate::measure::workload::{Workload, write_one};
use crate::measure::workload_scenario::scenario;
use crate::peers::orc::{Orc, set_ups};
use crate::peers::system_library::{SystemLibrary, build_shared_object, c_path};

const PROCESSES: usize = 21;
/// Sessions in one process after the first.
const SESSIONS: usize = 64;

pub fn scenarios(workload: &Rc<Workload>, peers: &Path) -> Vec<Box<dyn Scenario>> {
    let mut all = vec![
        scenario("start", JITTISON, workload, |workload| {
            let files = Files::write(workload)?;
            let process = median_of_processes(|| ours("once", &files))?;
            let mut measures = sessions(JITTISON, || output_of(&mut ours("sessions", &files)?))?;
            measures.push(single(rows::PROCESS.by(JITTISON), Unit::Nanoseconds, process));
            Ok(measures)
        }),
        scenario("start", DLOPEN, workload, |workload| {
            let files = Files::write(workload)?;
            let process = median_of_processes(|| ours("dlopen", &files))?;
            Ok(vec![single(rows::PROCESS.by(DLOPEN), Unit::Nanoseconds, process)])
        }),
    ];
    all.extend(set_ups(peers).into_iter().map(|orc| {
        scenario("start", orc.competitor, workload, move |workload| of_orc(&orc, &Files::write(workload)?))
    }));
    all
}

fn of_orc(orc: &Orc, files: &Files) -> Measures {
    let process = median_of_processes(|| Ok(orc.command("start", &files.for_peer, 0, 0)))?;
    let mut measures = sessions(orc.competitor, || output_of(&mut orc.command("start", &files.for_peer, SESSIONS, 0)))?;
    measures.push(single(rows::PROCESS.by(orc.competitor), Unit::Nanoseconds, process));
    Ok(measures)
}

/// What the processes link.
struct Files {
    directory: PathBuf,
    /// Library and module in one file, as ORC's program reads them.
    for_peer: PathBuf,
}

impl Files {
    /// `runtime.o`, `module.o`, a shared object of each, and `entry`.
    fn write(workload: &Workload) -> Result<Files, String> {
        let directory = workload.scratch.path().join("start");
        std::fs::create_dir_all(&directory).map_err(to_text)?;
        let (library, module) = (&workload.objects.runtime, workload.objects.small.instance(0));
        build_shared_object(&directory, "runtime", library)?;
        build_shared_object(&directory, "module", &module.bytes)?;
        std::fs::write(directory.join("entry"), format!("{} {}", module.entry, module.expected)).map_err(to_text)?;
        let for_peer = directory.join("both");
        write_one(&for_peer, library, &module, ARGUMENT).map_err(to_text)?;
        Ok(Files { directory, for_peer })
    }
}

fn ours(linker: &str, files: &Files) -> Result<Command, String> {
    let mut command = Command::new(std::env::current_exe().map_err(to_text)?);
    command.args(["--start", linker]).arg(&files.directory);
    Ok(command)
}

/// The time from the start of a process to its end, in nanoseconds.
fn median_of_processes(command: impl Fn() -> Result<Command, String>) -> Result<f64, String> {
    let mut samples = Samples::default();
    for _ in 0..PROCESSES {
        let mut command = command()?;
        command.stdout(Stdio::null());
        let status = samples.one(|| command.status()).map_err(to_text)?;
        status.success().then_some(()).ok_or_else(|| format!("{command:?}: {status}"))?;
    }
    Ok(samples.into_measure(rows::PROCESS.by("")).value)
}

/// The medians of what several processes print of their sessions.
fn sessions(competitor: &str, output: impl Fn() -> Result<Value, String>) -> Measures {
    let outputs = (0..PROCESSES).map(|_| output()).collect::<Result<Vec<Value>, String>>()?;
    let median = |(name, row): (&str, rows::Row)| {
        let value =
            |output: &Value| output[name]["value"].as_f64().ok_or_else(|| format!("no figure `{name}` in {output}"));
        let mut values = outputs.iter().map(value).collect::<Result<Vec<f64>, String>>()?;
        values.sort_by(f64::total_cmp);
        Ok(single(row.by(competitor), Unit::Nanoseconds, values[values.len() / 2]))
    };
    [("new", rows::NEW), ("later", rows::NEW_LATER), ("session", rows::SESSION)].into_iter().map(median).collect()
}

fn output_of(command: &mut Command) -> Result<Value, String> {
    let output = command.output().map_err(to_text)?;
    if !output.status.success() {
        return Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("not JSON: {error}"))
}

/// The work of such a process. It reads the files of a directory.
pub fn run_in_new_process(linker: &str, directory: &Path) -> Result<(), String> {
    let linked = Linked::read(directory)?;
    match linker {
        "once" => linked.call_in(Jit::new().map_err(to_text)?),
        "dlopen" => linked.call_opened(directory),
        "sessions" => linked.print_sessions(),
        _ => Err(format!("{linker} is none of once, dlopen, sessions")),
    }
}

struct Linked {
    library: Vec<u8>,
    module: Instance,
}

impl Linked {
    fn read(directory: &Path) -> Result<Linked, String> {
        let read = |name: &str| std::fs::read(directory.join(name)).map_err(|error| format!("{name}: {error}"));
        let line = String::from_utf8(read("entry")?).map_err(to_text)?;
        let (entry, expected) = line.split_once(' ').ok_or("the entry has no expected result")?;
        let module = Instance {
            bytes: read("module.o")?.into(),
            entry: entry.to_owned(),
            expected: expected.parse().map_err(to_text)?,
        };
        Ok(Linked { library: read("runtime.o")?, module })
    }

    /// Links both, calls the module, and ends the session.
    fn call_in(&self, jit: Jit) -> Result<(), String> {
        let tracker = jit.main_dylib().create_tracker().map_err(to_text)?;
        jit.add_object(&tracker, "runtime.o", self.library.as_slice()).map_err(to_text)?;
        jit.add_object(&tracker, "module.o", self.module.bytes.clone()).map_err(to_text)?;
        // SAFETY: every entry has this signature.
        let function = unsafe { jit.lookup::<Run>(&self.module.entry) }.map_err(to_text)?;
        self.check(function.call(ARGUMENT))
    }

    fn call_opened(&self, directory: &Path) -> Result<(), String> {
        let open = |name: &str, scope| SystemLibrary::open(&c_path(&directory.join(name))?, scope);
        let (_library, module) = (open("runtime.so", libc::RTLD_GLOBAL)?, open("module.so", libc::RTLD_LOCAL)?);
        let entry = std::ffi::CString::new(self.module.entry.as_str()).map_err(to_text)?;
        // SAFETY: every entry has this signature; the module is open.
        let run: Run = unsafe { std::mem::transmute(module.symbol(&entry)?.value() as usize) };
        self.check(run(ARGUMENT))
    }

    fn print_sessions(&self) -> Result<(), String> {
        let (mut first, mut later, mut whole) = (Samples::default(), Samples::default(), Samples::default());
        self.call_in(first.one(Jit::new).map_err(to_text)?)?;
        for _ in 0..SESSIONS {
            drop(later.one(Jit::new).map_err(to_text)?);
            whole.one(|| self.call_in(Jit::new().map_err(to_text)?))?;
        }
        let median = |samples: Samples| json!({ "value": samples.into_measure(rows::NEW.by(JITTISON)).value });
        println!("{}", json!({ "new": median(first), "later": median(later), "session": median(whole) }));
        Ok(())
    }

    fn check(&self, result: u64) -> Result<(), String> {
        let is_right = result == self.module.expected;
        is_right.then_some(()).ok_or_else(|| format!("{} returns {result:#x}", self.module.entry))
    }
}
