//! [`compare`]: builds a program, links and runs it natively and with `jittison`, and says how the answers compare.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::program::{Object, Program};
use crate::tools::{Ended, Executable, Linker, Status, Tools};
use crate::{assembly, c_source, main_object};

/// The exit status of `jittison` if it refuses to link.
const REFUSED: Status = Status::Exit(125);

/// What a linker makes of a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    Refused { message: String },
    Ran { stdout: String, status: Status },
}

#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    /// The same output and the same status.
    Agree,
    /// Not the answer of GNU ld, but that of another native linker, or of the other kind of executable.
    AsOther,
    /// Both refuse.
    BothRefuse,
    /// The native linkers differ from each other, or the program crashes natively.
    Undefined {
        reason: String,
        /// Each with the name of its linker.
        answers: Vec<(String, Answer)>,
    },
    /// `jittison` refuses what the native linkers accept.
    Refused {
        message: String,
    },
    /// `jittison` accepts what the native linkers refuse.
    AcceptedMore {
        message: String,
    },
    Wrong(Difference),
}

#[derive(Clone, PartialEq, Debug)]
pub struct Difference {
    pub native: Answer,
    pub ours: Answer,
}

impl Outcome {
    pub fn is_wrong(&self) -> bool {
        matches!(self, Outcome::Wrong(_))
    }
}

/// The sources of a program, in the order of its objects.
pub fn sources(program: &Program) -> Vec<String> {
    let write = |object: &Object| if object.is_c() { c_source::write(object) } else { assembly::write(object) };
    program.objects.iter().map(write).collect()
}

/// Compares a program. `Err` is a failure of a tool that builds objects, which is a fault of the generator.
pub fn compare(tools: &Tools, program: &Program, directory: &Path) -> Result<Outcome, String> {
    let inputs = build(tools, program, directory)?;
    let arguments: &[&str] = if program.has_thread { &["thread"] } else { &[] };
    let native_answer = |linker, is_pie| {
        let kind = Executable { is_pie, has_cpp: program.has_cpp() };
        native_answer(tools, linker, kind, &inputs, arguments, directory)
    };
    let native = native_answer(Linker::Ld, program.is_pie)?;
    let ended = tools.run_jittison(&inputs, arguments, &directory.join("jittison.run"))?;
    let ours = our_answer(ended);
    if is_same(&native, &ours) {
        return Ok(agreement(&native));
    }
    if let Answer::Ran { status: Status::Signal(signal), .. } = native {
        let reason = format!("it crashes natively with signal {signal}");
        return Ok(Outcome::Undefined { reason, answers: vec![("ld".into(), native), ("jittison".into(), ours)] });
    }
    // Further native answers, for a program that the linkers do not agree on.
    let mut others = Vec::new();
    for (linker, is_pie) in
        [(Linker::Lld, program.is_pie), (Linker::Ld, !program.is_pie), (Linker::Lld, !program.is_pie)]
    {
        if tools.has(linker) && !(is_pie && program.needs_fixed_addresses()) {
            let kind = if is_pie == program.is_pie { "same" } else { "other" };
            others.push((format!("{linker:?}, {kind} kind"), native_answer(linker, is_pie)?));
            let outcome = disagreement(&native, &ours, &others);
            if matches!(outcome, Outcome::AsOther | Outcome::Undefined { .. }) {
                return Ok(outcome);
            }
        }
    }
    Ok(disagreement(&native, &ours, &others))
}

/// The outcome if `ours` is not what GNU ld answers. `others` are further native answers, with the names of their linkers.
/// Refusals and crashes of other linkers say nothing.
fn disagreement(native: &Answer, ours: &Answer, others: &[(String, Answer)]) -> Outcome {
    let is_valid = |answer: &Answer| matches!(answer, Answer::Ran { status: Status::Exit(_), .. });
    if is_valid(ours) && others.iter().any(|(_, other)| is_same(other, ours)) {
        return Outcome::AsOther;
    }
    let dissenter = others.iter().find(|(_, other)| is_valid(other) && !is_same(other, native));
    if let Some((linker, other)) = dissenter {
        let reason = format!("ld: {}; {linker}: {}", short(native), short(other));
        let named = |linker: &str, answer: &Answer| vec![(linker.to_string(), answer.clone())];
        let answers = [named("ld", native), others.to_vec(), named("jittison", ours)].concat();
        return Outcome::Undefined { reason, answers };
    }
    match (native, ours) {
        (Answer::Ran { .. }, Answer::Refused { message }) => Outcome::Refused { message: message.clone() },
        (Answer::Refused { message }, Answer::Ran { .. }) => Outcome::AcceptedMore { message: message.clone() },
        _ => Outcome::Wrong(Difference { native: native.clone(), ours: ours.clone() }),
    }
}

fn short(answer: &Answer) -> String {
    match answer {
        Answer::Refused { message } => cause(message),
        Answer::Ran { status, .. } => format!("{status:?}").replace(|c: char| c.is_ascii_digit(), ""),
    }
}

fn agreement(answer: &Answer) -> Outcome {
    match answer {
        Answer::Refused { .. } => Outcome::BothRefuse,
        Answer::Ran { .. } => Outcome::Agree,
    }
}

/// Two refusals are the same, whatever they say.
fn is_same(one: &Answer, other: &Answer) -> bool {
    match (one, other) {
        (Answer::Refused { .. }, Answer::Refused { .. }) => true,
        _ => one == other,
    }
}

/// Compiles the objects, and returns the inputs in the order of the command line.
fn build(tools: &Tools, program: &Program, directory: &Path) -> Result<Vec<PathBuf>, String> {
    fs::create_dir_all(directory).map_err(|problem| format!("{}: {problem}", directory.display()))?;
    let mut objects = Vec::new();
    for (object, source) in program.objects.iter().zip(sources(program)) {
        let path = directory.join(format!("object{}.o", object.id));
        tools.compile(&object.writer, &source, &path)?;
        objects.push((object, path));
    }
    let mut inputs: Vec<PathBuf> = Vec::new();
    let mut archives = BTreeSet::new();
    for (object, path) in &objects {
        let Some(archive) = object.archive else {
            inputs.push(path.clone());
            continue;
        };
        if archives.insert(archive) {
            let file = directory.join(format!("archive{archive}.a"));
            let members = objects.iter().filter(|(other, _)| other.archive == Some(archive));
            let members: Vec<PathBuf> = members.map(|(_, path)| path.clone()).collect();
            tools.archive(&file, &members)?;
            inputs.push(file);
        }
    }
    let main = directory.join("main.o");
    tools.compile(&main_object::writer(), main_object::SOURCE, &main)?;
    inputs.insert(program.main_at.min(inputs.len()), main);
    Ok(inputs)
}

fn native_answer(
    tools: &Tools,
    linker: Linker,
    kind: Executable,
    inputs: &[PathBuf],
    arguments: &[&str],
    directory: &Path,
) -> Result<Answer, String> {
    let program = directory.join("native");
    let linked = tools.link(linker, kind, inputs, &program)?;
    if linked.status != Status::Exit(0) {
        return Ok(Answer::Refused { message: linked.stderr });
    }
    let ended = tools.run_program(&program, arguments)?;
    Ok(Answer::Ran { stdout: ended.stdout, status: ended.status })
}

fn our_answer(ended: Ended) -> Answer {
    if ended.status == REFUSED && ended.stderr.starts_with("jittison: ") {
        return Answer::Refused { message: ended.stderr };
    }
    Answer::Ran { stdout: ended.stdout, status: ended.status }
}

/// The first error of a message without paths, names and numbers.
pub fn cause(message: &str) -> String {
    let is_context = |line: &str| {
        line.contains("in function") || line.contains("warning: ") || line.contains("NOTE: ") || line.trim().is_empty()
    };
    let line = message.lines().find(|line| !is_context(line)).unwrap_or_default();
    let words = line.split_whitespace().filter(|word| !word.contains(['/', '+']) && !word.contains(".o"));
    let mut general: Vec<&str> = words.map(general_word).collect();
    general.dedup();
    general.join(" ")
}

fn general_word(word: &str) -> &str {
    let is_number = |word: &str| word.trim_start_matches(['-', '(']).starts_with(|first: char| first.is_ascii_digit());
    match word {
        _ if word.contains('`') => "`…`",
        _ if is_number(word) => "N",
        _ => word,
    }
}

#[cfg(test)]
mod tests {
    use super::cause;

    #[test]
    fn causes_of_programs_that_differ_in_names_are_equal() {
        let one = "jittison: /tmp/a/object1.o: .text+0x3: `f0` is 12 bytes too far away";
        let other = "jittison: /tmp/b/object0.o: .text+0x5: `d1` is 7 bytes too far away";
        assert_eq!(cause(one), cause(other));
        let native = "/usr/bin/ld: a.o: in function `run_0':\n(.text+0x7): undefined reference to `f1'\n";
        assert_eq!(cause(native), "undefined reference to `…`");
    }
}
