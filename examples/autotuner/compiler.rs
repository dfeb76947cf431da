//! Variants by the system's C compiler: `kernels.c` with other macros and flags each time, in processes of their own, as many
//! at once as there are processors.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::problem::Kernel;
use crate::suite::{Defect, Suite, Variant};

const SOURCE: &str = include_str!("kernels.c");
const PLAIN: [&str; 1] = ["-O1"];
const BETTER: [&[&str]; 2] = [&["-O2"], &["-O3", "-march=native"]];

/// Why there are no variants.
pub enum Failure {
    NoCompiler,
    Broken(String),
}

/// One object to be compiled.
struct Job {
    name: String,
    arguments: Vec<String>,
}

/// Compiles the whole suite.
pub fn suite() -> Result<Suite, Failure> {
    let compiler = std::env::var("CC").ok().filter(|name| !name.is_empty()).unwrap_or_else(|| "cc".to_owned());
    let mut jobs = vec![whole()];
    let good = Kernel::ALL.map(competitors);
    let bad = Kernel::ALL.map(|kernel| Defect::ALL.map(|defect| defective(kernel, defect)));
    let counts = good.each_ref().map(Vec::len);
    jobs.extend(good.into_iter().flatten());
    jobs.extend(bad.into_iter().flatten());
    let mut made = compile_all(&compiler, jobs)?.into_iter();
    let whole = made.next().map(|(_, object)| object).unwrap_or_default();
    let mut take = |kernel, count: usize| -> Vec<Variant> {
        made.by_ref().take(count).map(|(name, object)| Variant { kernel, name, object }).collect()
    };
    let variants = [take(Kernel::Gemm, counts[0]), take(Kernel::Stencil, counts[1])];
    let mut with_defects = |kernel| Defect::ALL.into_iter().zip(take(kernel, Defect::ALL.len())).collect();
    let bad = [with_defects(Kernel::Gemm), with_defects(Kernel::Stencil)];
    Ok(Suite { compiler, whole, variants, bad })
}

fn whole() -> Job {
    let mut arguments = PLAIN.map(str::to_owned).to_vec();
    arguments.extend(["-DGEMM", "-DSTENCIL", "-DCOUNTS", "-DORDER=0"].map(str::to_owned));
    Job { name: "first".to_owned(), arguments }
}

fn competitors(kernel: Kernel) -> Vec<Job> {
    let mut jobs = vec![Job::new(kernel, &PLAIN, 0, 1, 1)];
    let (orders, tiles, unrolls): (&[u32], &[u32], &[u32]) = match kernel {
        Kernel::Gemm => (&[1, 2], &[8, 16, 32], &[1, 4]),
        Kernel::Stencil => (&[1], &[16, 64], &[1, 2, 4]),
    };
    for flags in BETTER {
        for &order in orders {
            for &tile in tiles {
                jobs.extend(unrolls.iter().map(|&unroll| Job::new(kernel, flags, order, tile, unroll)));
            }
        }
    }
    jobs
}

fn defective(kernel: Kernel, defect: Defect) -> Job {
    let mut job = Job::new(kernel, &["-O2"], 1, 16, 1);
    let macro_name = match defect {
        Defect::MissingSymbol => "-DMISSING",
        Defect::WrongAnswer => "-DWRONG",
        Defect::FailingInitialiser => "-DFAILING",
    };
    job.arguments.push(macro_name.to_owned());
    job.name = defect.name().to_owned();
    job
}

impl Job {
    fn new(kernel: Kernel, flags: &[&str], order: u32, tile: u32, unroll: u32) -> Job {
        let define = match kernel {
            Kernel::Gemm => "-DGEMM",
            Kernel::Stencil => "-DSTENCIL",
        };
        let mut arguments: Vec<String> = flags.iter().map(|&flag| flag.to_owned()).collect();
        arguments.push(define.to_owned());
        arguments.extend([("ORDER", order), ("TILE", tile), ("UNROLL", unroll)].map(|(k, v)| format!("-D{k}={v}")));
        let name = match order {
            0 => format!("as written, {}", flags.join(" ")),
            1 => format!("rows, tile {tile}, unroll {unroll}, {}", flags.join(" ")),
            _ => format!("registers, tile {tile}, unroll {unroll}, {}", flags.join(" ")),
        };
        Job { name, arguments }
    }
}

/// Runs the compiler for all jobs; objects in the order of the jobs.
fn compile_all(compiler: &str, jobs: Vec<Job>) -> Result<Vec<(String, Vec<u8>)>, Failure> {
    let directory = Scratch::new().map_err(|error| Failure::Broken(format!("no scratch directory: {error}")))?;
    let next = AtomicUsize::new(0);
    let made = Mutex::new(Vec::new());
    let worker = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(number) else { return };
            let object = compile(compiler, job, &directory.0.join(format!("{number}.o")));
            let failed = object.is_err();
            made.lock().unwrap_or_else(|poison| poison.into_inner()).push((number, object));
            if failed {
                // The others need not begin any more.
                next.store(jobs.len(), Ordering::Relaxed);
            }
        }
    };
    thread::scope(|scope| {
        let workers = thread::available_parallelism().map_or(1, usize::from);
        (0..workers).for_each(|_| drop(scope.spawn(worker)));
    });
    let mut made = made.into_inner().unwrap_or_else(|poison| poison.into_inner());
    made.sort_by_key(|(number, _)| *number);
    let objects = made.into_iter().map(|(_, object)| object).collect::<Result<Vec<_>, _>>()?;
    Ok(jobs.into_iter().map(|job| job.name).zip(objects).collect())
}

fn compile(compiler: &str, job: &Job, output: &Path) -> Result<Vec<u8>, Failure> {
    let broken = |what: String| Failure::Broken(format!("{compiler}, for `{}`: {what}", job.name));
    let mut command = Command::new(compiler);
    command.args(["-x", "c", "-fPIC", "-w", "-c", "-", "-o"]).arg(output).args(&job.arguments);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let child = child.map_err(|error| match error.kind() {
        ErrorKind::NotFound => Failure::NoCompiler,
        _ => broken(error.to_string()),
    })?;
    feed(child).map_err(broken)?;
    fs::read(output).map_err(|error| broken(format!("{}: {error}", output.display())))
}

/// Hands the source over, and waits for the end.
fn feed(mut child: Child) -> Result<(), String> {
    // A compiler that ends before it has read everything says why on its own.
    let written = child.stdin.take().map_or(Ok(()), |mut input| input.write_all(SOURCE.as_bytes()));
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        let told = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: {}", output.status, told.lines().next().unwrap_or("it does not say why")));
    }
    written.map_err(|error| error.to_string())
}

/// A directory of this process's own, removed with the value.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> std::io::Result<Scratch> {
        let path = std::env::temp_dir().join(format!("jittison-autotuner-{}", std::process::id()));
        // Nobody else's: fails if it is there.
        fs::create_dir(&path)?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is for the system to tidy up.
        let _ = fs::remove_dir_all(&self.0);
    }
}
