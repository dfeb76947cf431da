//! The objects that the workloads link: relocatable ELF files of given sizes. gcc builds them from generated C at the
//! first use. Later instances are patched copies, so a replay needs no compiler.
//!
//! A program is a list of [`Step`]s, each of which changes one number. The steps are written as C for gcc, and
//! [`Step::apply`] does the same in Rust. The result of an instance is therefore known without linking it. All names
//! of an instance contain its number, in a fixed width. Its entry contains a value in an instruction. It has no
//! writable data.

use std::fmt::Write as _;
use std::process::{Command, Stdio};
use std::thread;

use jittison::link::ObjectBuffer;

use super::host_functions as host;
use crate::measure::scenario::to_text;
use fastrand::Rng;
use tempfile::TempDir;

/// The argument of every call of an entry.
pub const ARGUMENT: u64 = 7;

/// Stands for an instance's number in all its names.
const MARK: &str = "M00000000";
const SEED: u64 = 0x7a51_b3c9_d2e4_f680;
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
/// The average code size of a step and of an empty function, in bytes.
const MIX_BYTES: usize = 14;
const CALL_BYTES: usize = 18;
const TABLE_BYTES: usize = 19;
const FUNCTION_BYTES: usize = 16;

/// The properties of an object. Sizes and relocations are met within a few percent.
#[derive(Clone, Copy)]
pub struct Shape {
    /// Bytes of machine code.
    pub text: usize,
    /// Relocations in the code.
    pub relocations: usize,
    /// Functions that it defines, including the entry.
    pub functions: usize,
    /// Bytes of a table of constants; no table below 16.
    pub rodata: usize,
    /// Host functions that it calls; at most as many as [`host::FUNCTIONS`] has.
    pub hosts: usize,
}

/// An object from which instances are made.
pub struct Template {
    bytes: Vec<u8>,
    /// The offsets of the names that contain the instance's number; empty if all instances have the same names.
    names: Vec<usize>,
    /// The offset of the value.
    value: usize,
    /// The offset of the name of the host's first function, if the object calls it.
    callee: Option<usize>,
    /// The result of the entry, without the value.
    result: u64,
}

/// One object, with its own names and value.
pub struct Instance {
    pub bytes: ObjectBuffer,
    pub entry: String,
    /// The result of the entry for [`ARGUMENT`].
    pub expected: u64,
}

/// One change of the number that runs through a program.
#[derive(Clone, Copy)]
enum Step {
    Mix { factor: u32, shift: u32 },
    Call { which: usize, offset: u32 },
    Table { offset: u32, length: usize },
}

/// The templates of these shapes, in the same order.
pub fn build(shapes: &[Shape]) -> Result<Vec<Template>, String> {
    let programs: Vec<Vec<Vec<Step>>> = shapes
        .iter()
        .enumerate()
        .map(|(number, shape)| shape.program(&mut Rng::with_seed(number as u64 * 977 + 13)))
        .collect();
    let sources: Vec<String> = programs.iter().zip(shapes).map(|(program, shape)| source(program, shape)).collect();
    let objects = compile(&sources)?;
    objects.into_iter().zip(&programs).map(|(bytes, program)| Template::new(bytes, program)).collect()
}

impl Shape {
    /// The steps of each function, the entry first.
    fn program(&self, rng: &mut Rng) -> Vec<Vec<Step>> {
        let tables = usize::from(self.table_length() > 0);
        let calls = match self.hosts {
            0 => 0,
            hosts => self.relocations.saturating_sub(self.functions - 1 + tables).max(hosts),
        };
        let used_bytes = calls * CALL_BYTES + tables * TABLE_BYTES + self.functions * FUNCTION_BYTES;
        let mixes = self.text.saturating_sub(used_bytes) / MIX_BYTES;
        let mut steps: Vec<Step> = (0..calls).map(|call| self.call(call, rng)).collect();
        steps.extend((0..tables).map(|_| Step::Table { offset: odd(rng), length: self.table_length() }));
        steps.extend((0..mixes).map(|_| Step::Mix { factor: odd(rng), shift: rng.u32(1..=40) }));
        rng.shuffle(&mut steps);
        let share = steps.len().div_ceil(self.functions).max(1);
        let mut program: Vec<Vec<Step>> = steps.chunks(share).map(<[Step]>::to_vec).collect();
        program.resize(self.functions, Vec::new());
        program
    }

    fn call(&self, number: usize, rng: &mut Rng) -> Step {
        Step::Call { which: number % self.hosts, offset: odd(rng) }
    }

    /// A power of two, or zero.
    fn table_length(&self) -> usize {
        match self.rodata / 8 {
            0 | 1 => 0,
            length => 1 << length.ilog2(),
        }
    }
}

/// Small enough for an immediate operand.
fn odd(rng: &mut Rng) -> u32 {
    rng.u32(..1 << 30) | 1
}

impl Step {
    fn apply(self, x: u64) -> u64 {
        match self {
            Step::Mix { factor, shift } => x.wrapping_mul(factor.into()) ^ x >> shift,
            Step::Call { which, offset } => x ^ host::FUNCTIONS[which](x.wrapping_add(offset.into())),
            Step::Table { offset, length } => x.wrapping_add(constant((x ^ u64::from(offset)) as usize & (length - 1))),
        }
    }

    fn write(self, text: &mut String) {
        let _ = match self {
            Step::Mix { factor, shift } => writeln!(text, "x = x * {factor}u ^ x >> {shift};"),
            Step::Call { which, offset } => writeln!(text, "x ^= {}(x + {offset}u);", host::name(which)),
            Step::Table { offset, length } => writeln!(text, "x += table[(x ^ {offset}u) & {}];", length - 1),
        };
    }
}

fn constant(position: usize) -> u64 {
    (position as u64 + 1).wrapping_mul(GOLDEN)
}

fn source(program: &[Vec<Step>], shape: &Shape) -> String {
    let mut text = String::from("typedef unsigned long u64;\n");
    for which in 0..shape.hosts {
        let _ = writeln!(text, "extern u64 {}(u64);", host::name(which));
    }
    let constants: Vec<String> = (0..shape.table_length()).map(|at| format!("{}u", constant(at))).collect();
    if !constants.is_empty() {
        let _ = writeln!(text, "static const u64 table[{}] = {{ {} }};", constants.len(), constants.join(", "));
    }
    for (number, steps) in program.iter().enumerate().skip(1) {
        let _ = writeln!(text, "u64 {MARK}_f{number}(u64 x) {{");
        steps.iter().for_each(|step| step.write(&mut text));
        text.push_str("return x; }\n");
    }
    let _ = writeln!(text, "u64 {MARK}_run(u64 x) {{");
    for number in 1..program.len() {
        let _ = writeln!(text, "x = {MARK}_f{number}(x);");
    }
    program[0].iter().for_each(|step| step.write(&mut text));
    let _ = writeln!(text, "return x ^ {SEED}u; }}");
    text
}

impl Template {
    fn new(bytes: Vec<u8>, program: &[Vec<Step>]) -> Result<Template, String> {
        let names = positions(&bytes, MARK.as_bytes());
        let values = positions(&bytes, &SEED.to_le_bytes());
        let (false, &[value]) = (names.is_empty(), &values[..]) else {
            return Err(format!("an object has {} names to patch and {} values", names.len(), values.len()));
        };
        let callee = positions(&bytes, host::name(0).as_bytes()).first().copied();
        let (entry, others) = program.split_first().ok_or("a program without an entry")?;
        let result = others.iter().chain([entry]).flatten().fold(ARGUMENT, |x, step| step.apply(x));
        Ok(Template { bytes, names, value, callee, result })
    }

    /// The instance with this number; it returns [`result`](Self::result) of this value.
    pub fn instance(&self, number: u32, value: u64) -> Instance {
        let (bytes, entry) = self.patched(number, value);
        Instance { bytes: bytes.into(), entry, expected: self.result(value) }
    }

    /// An instance that needs an undefined function. If the object calls none, it is unchanged.
    pub fn broken(&self, number: u32) -> Instance {
        let (mut bytes, entry) = self.patched(number, 0);
        if let Some(at) = self.callee {
            bytes[at..at + 4].copy_from_slice(b"none");
        }
        Instance { bytes: bytes.into(), entry, expected: 0 }
    }

    /// The template as a shared library, all instances of which have the same names.
    pub fn shared(&self) -> Result<Template, String> {
        let scratch = tempfile::tempdir().map_err(to_text)?;
        std::fs::write(scratch.path().join("object.o"), &self.bytes).map_err(to_text)?;
        let bytes = link(&scratch, "object.o")?;
        let [value] = positions(&bytes, &SEED.to_le_bytes())[..] else {
            return Err("a library without a value to patch, or with several".into());
        };
        let callee = positions(&bytes, host::name(0).as_bytes()).first().copied();
        Ok(Template { bytes, names: Vec::new(), value, callee, result: self.result })
    }

    /// The result of an instance with this value for [`ARGUMENT`].
    pub fn result(&self, value: u64) -> u64 {
        self.result ^ SEED ^ value
    }

    /// The value of the instance that returned this result.
    pub fn value(&self, result: u64) -> u64 {
        result ^ self.result ^ SEED
    }

    fn patched(&self, number: u32, value: u64) -> (Vec<u8>, String) {
        let number = if self.names.is_empty() { 0 } else { number };
        let (mut bytes, name) = (self.bytes.clone(), format!("M{number:08x}"));
        for &at in &self.names {
            bytes[at..at + name.len()].copy_from_slice(name.as_bytes());
        }
        bytes[self.value..self.value + 8].copy_from_slice(&(SEED ^ value).to_le_bytes());
        (bytes, entry(number))
    }
}

/// The entry of all instances with this number.
pub fn entry(number: u32) -> String {
    format!("M{number:08x}_run")
}

fn positions(bytes: &[u8], pattern: &[u8]) -> Vec<usize> {
    (0..bytes.len().saturating_sub(pattern.len())).filter(|&at| bytes[at..].starts_with(pattern)).collect()
}

/// Compiles the sources, with as many compilers at once as there are processors.
fn compile(sources: &[String]) -> Result<Vec<Vec<u8>>, String> {
    let scratch = tempfile::tempdir().map_err(to_text)?;
    let write = |(number, text): (usize, &String)| std::fs::write(scratch.path().join(format!("{number}.c")), text);
    sources.iter().enumerate().try_for_each(write).map_err(to_text)?;
    let compilers = thread::available_parallelism().map_or(1, usize::from).min(sources.len());
    let share = |first: usize| (first..sources.len()).step_by(compilers).map(|number| format!("{number}.c"));
    let directory = &scratch;
    thread::scope(|scope| {
        let started: Vec<_> = (0..compilers)
            // A higher level generates the same code for such programs, and takes three times as long.
            .map(|first| scope.spawn(move || gcc(directory, &["-O1", "-fPIC", "-c"], share(first))))
            .collect();
        let ended = started.into_iter().map(|one| one.join().unwrap_or_else(|_| Err("a thread panicked".into())));
        ended.collect::<Result<(), String>>()
    })?;
    let read = |number: usize| std::fs::read(scratch.path().join(format!("{number}.o"))).map_err(to_text);
    (0..sources.len()).map(read).collect()
}

/// A shared library of one source.
pub fn shared_library(source: &str) -> Result<Vec<u8>, String> {
    let scratch = tempfile::tempdir().map_err(to_text)?;
    std::fs::write(scratch.path().join("source.c"), source).map_err(to_text)?;
    link(&scratch, "source.c")
}

fn link(scratch: &TempDir, file: &str) -> Result<Vec<u8>, String> {
    let options = ["-O1", "-fPIC", "-shared", "-nostdlib", "-s", "-o", "library.so"];
    gcc(scratch, &options, [file.to_owned()].into_iter())?;
    std::fs::read(scratch.path().join("library.so")).map_err(to_text)
}

fn gcc(scratch: &TempDir, options: &[&str], files: impl Iterator<Item = String>) -> Result<(), String> {
    let mut command = Command::new("gcc");
    command.args(options).args(["-fcf-protection=none", "-w"]).args(files).current_dir(scratch.path());
    let status = command.stdin(Stdio::null()).status().map_err(|error| format!("gcc is needed: {error}"))?;
    status.success().then_some(()).ok_or_else(|| format!("gcc: {status}"))
}
