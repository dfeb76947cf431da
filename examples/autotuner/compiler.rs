//! Variants from the system's C compiler: `kernels.c`, compiled with different macros and flags. Each compilation is
//! a process; as many run at once as there are processors.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::problem::Kernel;
use crate::suite::{Defect, Suite, Variant};

const SOURCE: &str = include_str!("kernels.c");
const PLAIN_FLAGS: [&str; 1] = ["-O1"];
const OPTIMIZING_FLAGS: [&[&str]; 2] = [&["-O2"], &["-O3", "-march=native"]];

/// Why there are no variants.
pub enum Failure {
    NoCompiler,
    Broken(String),
}

/// One object to compile.
struct Job {
    name: String,
    arguments: Vec<String>,
}

/// Compiles the full suite.
pub fn suite() -> Result<Suite, Failure> {
    let compiler = std::env::var("CC").ok().filter(|name| !name.is_empty()).unwrap_or_else(|| "cc".to_owned());
    let mut jobs = vec![full()];
    let competing = Kernel::ALL.map(competitors);
    let bad = Kernel::ALL.map(|kernel| Defect::ALL.map(|defect| defective(kernel, defect)));
    let counts = competing.each_ref().map(Vec::len);
    jobs.extend(competing.into_iter().flatten());
    jobs.extend(bad.into_iter().flatten());
    let mut compiled = compile_all(&compiler, jobs)?.into_iter();
    let full = compiled.next().map(|(_, object)| object).unwrap_or_default();
    let mut take = |kernel, count: usize| -> Vec<Variant> {
        compiled.by_ref().take(count).map(|(name, object)| Variant { kernel, name, object }).collect()
    };
    let variants = [take(Kernel::Gemm, counts[0]), take(Kernel::Stencil, counts[1])];
    let mut with_defects = |kernel| Defect::ALL.into_iter().zip(take(kernel, Defect::ALL.len())).collect();
    let bad = [with_defects(Kernel::Gemm), with_defects(Kernel::Stencil)];
    Ok(Suite { compiler, full, variants, bad })
}

fn full() -> Job {
    let mut arguments = PLAIN_FLAGS.map(str::to_owned).to_vec();
    arguments.extend(["-DGEMM", "-DSTENCIL", "-DCOUNTS", "-DORDER=0"].map(str::to_owned));
    Job { name: "first".to_owned(), arguments }
}

fn competitors(kernel: Kernel) -> Vec<Job> {
    let mut jobs = vec![Job::new(kernel, &PLAIN_FLAGS, 0, 1, 1)];
    let (orders, tiles, unrolls): (&[u32], &[u32], &[u32]) = match kernel {
        Kernel::Gemm => (&[1, 2], &[8, 16, 32], &[1, 4]),
        Kernel::Stencil => (&[1], &[16, 64], &[1, 2, 4]),
    };
    for flags in OPTIMIZING_FLAGS {
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

/// Runs the compiler for all jobs. The objects come in the order of the jobs.
fn compile_all(compiler: &str, jobs: Vec<Job>) -> Result<Vec<(String, Vec<u8>)>, Failure> {
    let directory = tempfile::tempdir().map_err(|error| Failure::Broken(format!("no temporary directory: {error}")))?;
    let next = AtomicUsize::new(0);
    let compiled = Mutex::new(Vec::new());
    let worker = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(number) else { return };
            let object = compile(compiler, job, &directory.path().join(format!("{number}.o")));
            let failed = object.is_err();
            compiled.lock().unwrap_or_else(|poison| poison.into_inner()).push((number, object));
            if failed {
                // No further job needs to begin.
                next.store(jobs.len(), Ordering::Relaxed);
            }
        }
    };
    thread::scope(|scope| {
        let workers = thread::available_parallelism().map_or(1, usize::from);
        (0..workers).for_each(|_| drop(scope.spawn(worker)));
    });
    let mut compiled = compiled.into_inner().unwrap_or_else(|poison| poison.into_inner());
    compiled.sort_by_key(|(number, _)| *number);
    let objects = compiled.into_iter().map(|(_, object)| object).collect::<Result<Vec<_>, _>>()?;
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

/// Writes the source to the compiler's input, and waits for its end.
fn feed(mut child: Child) -> Result<(), String> {
    // A compiler that ends before it has read everything prints the reason itself.
    let written = child.stdin.take().map_or(Ok(()), |mut input| input.write_all(SOURCE.as_bytes()));
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: {}", output.status, message.lines().next().unwrap_or("it printed no reason")));
    }
    written.map_err(|error| error.to_string())
}
