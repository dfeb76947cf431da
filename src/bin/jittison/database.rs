//! [`Database`]: the sources of a compile database (`compile_commands.json`), each with the command that compiles it.
//!
//! Each command gets the flags that a reload needs, and writes to a folder beside the database. So the project's own build stays as
//! it is. The compiler also lists the files that it read; a source is compiled again when one of them was saved.
//!
//! Format: <https://clang.llvm.org/docs/JSONCompilationDatabase.html>.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::build::{BuildFailure, is_changed, saved_since};
use crate::inputs::ObjectFile;

/// The sources of a program.
pub struct Database {
    units: Vec<Unit>,
    /// The positions of units whose sources were saved since they were compiled.
    stale: BTreeSet<usize>,
    /// Objects that were compiled since they were asked for: other units failed.
    compiled: BTreeSet<PathBuf>,
    /// A hash of each file that was saved.
    seen: HashMap<PathBuf, u64>,
    /// When compilers were started last. What was saved later may not be in the objects.
    compiled_at: SystemTime,
}

/// A source and its command.
struct Unit {
    /// The source, as a person would name it.
    name: String,
    directory: PathBuf,
    /// The compiler and its arguments, without those that name its outputs.
    command: Vec<String>,
    object: PathBuf,
    /// The files that the compiler has read.
    dependencies: BTreeSet<PathBuf>,
}

impl Database {
    /// Reads a database, or `compile_commands.json` in a folder. `only` selects sources: a source, a folder of sources, or a name in
    /// the path of an output, such as `app.dir`. Without, all are meant.
    pub fn open(path: &Path, only: &[PathBuf]) -> Result<Database, String> {
        let path = if path.is_dir() { path.join("compile_commands.json") } else { path.to_path_buf() };
        let in_file = |problem: &dyn std::fmt::Display| format!("{}: {problem}", path.display());
        let text = std::fs::read(&path).map_err(|problem| in_file(&problem))?;
        let entries: Value = serde_json::from_slice(&text).map_err(|problem| in_file(&problem))?;
        let entries = entries.as_array().ok_or_else(|| in_file(&"it is not a list of commands"))?;
        let folder = path.canonicalize().map_err(|problem| in_file(&problem))?;
        let objects = folder.parent().unwrap_or(Path::new("/")).join("jittison-watch");
        let mut units = Vec::new();
        let mut sources: BTreeMap<PathBuf, String> = BTreeMap::new();
        for entry in entries {
            let entry = Entry::read(entry).map_err(|problem| in_file(&problem))?;
            if !only.is_empty() && !only.iter().any(|only| entry.is_meant(only)) {
                continue;
            }
            if let Some(other) = sources.insert(entry.source.clone(), entry.output.clone()) {
                let source = entry.source.display();
                return Err(in_file(&format!(
                    "{source} has two commands, for `{other}` and for `{}`; choose one with --only, for example \
                     --only NAME.dir for the target NAME of CMake",
                    entry.output
                )));
            }
            units.push(entry.into_unit(&objects, units.len()));
        }
        if units.is_empty() {
            let problem = if only.is_empty() { "it has no commands" } else { "--only names none of its sources" };
            return Err(in_file(&problem));
        }
        std::fs::create_dir_all(&objects).map_err(|problem| format!("{}: {problem}", objects.display()))?;
        add_flags_of_gcc(&mut units);
        let stale = (0..units.len()).collect();
        let compiled_at = SystemTime::UNIX_EPOCH;
        Ok(Database { units, stale, compiled: BTreeSet::new(), seen: HashMap::new(), compiled_at })
    }

    /// The objects of the program, each with the name of its source.
    pub fn objects(&self) -> Vec<ObjectFile> {
        let object = |unit: &Unit| ObjectFile { name: unit.name.clone(), path: unit.object.clone(), follows: true };
        self.units.iter().map(object).collect()
    }

    /// The folders of all files that compilers have read.
    pub fn folders(&self) -> BTreeSet<PathBuf> {
        let files = self.units.iter().flat_map(|unit| &unit.dependencies);
        files.filter_map(|file| file.parent()).map(Path::to_path_buf).collect()
    }

    /// The files that were saved after a compiler may have read them.
    pub fn saved_since_compiled(&self) -> Vec<PathBuf> {
        let files: BTreeSet<&PathBuf> = self.units.iter().flat_map(|unit| &unit.dependencies).collect();
        saved_since(files.into_iter(), self.compiled_at)
    }

    /// Whether a file that a compiler has read was saved with other bytes. Notes what has to be compiled.
    pub fn is_changed_source(&mut self, path: &Path) -> bool {
        let readers = self.units.iter().enumerate().filter(|(_, unit)| unit.dependencies.contains(path));
        let readers: Vec<usize> = readers.map(|(position, _)| position).collect();
        if readers.is_empty() || !is_changed(&mut self.seen, path) {
            return false;
        }
        self.stale.extend(readers);
        true
    }

    /// Compiles what is stale, on all processors. Returns the objects that were compiled since the last success.
    ///
    /// # Errors
    /// A compiler failed. Its source stays stale.
    pub fn compile(&mut self) -> Result<BTreeSet<PathBuf>, BuildFailure> {
        let stale: Vec<&Unit> = self.stale.iter().map(|position| &self.units[*position]).collect();
        self.compiled_at = SystemTime::now() - CLOCK_TICK;
        let results = compile_all(&stale);
        let (mut failures, mut statuses) = (String::new(), BTreeSet::new());
        for (position, result) in self.stale.clone().into_iter().zip(results) {
            match result {
                Ok(dependencies) => {
                    self.stale.remove(&position);
                    self.compiled.insert(self.units[position].object.clone());
                    self.units[position].dependencies = dependencies;
                }
                Err(failure) => {
                    failures += &failure.output;
                    statuses.insert(failure.status);
                }
            }
        }
        match statuses.pop_first() {
            Some(status) => Err(BuildFailure { status, output: failures }),
            None => Ok(std::mem::take(&mut self.compiled)),
        }
    }
}

/// An entry of a database.
struct Entry {
    directory: PathBuf,
    source: PathBuf,
    /// Empty if the database does not say it.
    output: String,
    command: Vec<String>,
}

impl Entry {
    fn read(entry: &Value) -> Result<Entry, String> {
        let text = |member: &str| entry[member].as_str();
        let file = text("file").ok_or("a command has no `file`")?;
        let directory =
            PathBuf::from(text("directory").ok_or_else(|| format!("the command of {file} has no `directory`"))?);
        let arguments = entry["arguments"].as_array();
        let command = match (arguments, text("command")) {
            (Some(arguments), _) => arguments.iter().map(|argument| argument.as_str().map(String::from)).collect(),
            (None, Some(command)) => shlex::split(command),
            (None, None) => None,
        };
        let command = command.filter(|command| !command.is_empty());
        let command = command.ok_or_else(|| format!("the command of {file} cannot be read"))?;
        let command = without_end_of_options(expanded(command, &directory, 0));
        let source = directory.join(file);
        // A file that does not exist keeps its name, and its compiler will say so.
        let source = source.canonicalize().unwrap_or(source);
        let output = text("output").or_else(|| output_of(&command)).unwrap_or_default().to_string();
        Ok(Entry { directory, source, output, command })
    }

    fn is_meant(&self, only: &Path) -> bool {
        let is_below = only.canonicalize().is_ok_and(|only| self.source.starts_with(only));
        is_below || Path::new(&self.output).components().any(|part| Path::new(part.as_os_str()) == only)
    }

    fn into_unit(self, objects: &Path, number: usize) -> Unit {
        let stem = self.source.file_stem().unwrap_or_default().to_string_lossy();
        let object = objects.join(format!("{number}-{stem}.o"));
        let current = std::env::current_dir().and_then(|current| current.canonicalize()).unwrap_or_default();
        let name = self.source.strip_prefix(current).unwrap_or(&self.source).display().to_string();
        let mut command = without_outputs(self.command);
        // A path is meant from the folder of the command.
        if command[0].contains('/') {
            command[0] = self.directory.join(&command[0]).to_string_lossy().into_owned();
        }
        command.extend(FLAGS.map(String::from));
        let dependencies = BTreeSet::from([self.source]);
        Unit { name, directory: self.directory, command, object, dependencies }
    }
}

/// A command with the arguments of response files (`@FILE`) in their places. A file that cannot be read keeps its argument, as
/// compilers do it.
fn expanded(command: Vec<String>, directory: &Path, depth: usize) -> Vec<String> {
    let mut all = Vec::new();
    for argument in command {
        let file = argument.strip_prefix('@').filter(|_| depth < MAX_RESPONSE_FILES);
        match file.and_then(|file| std::fs::read_to_string(directory.join(file)).ok()) {
            Some(text) => all.extend(expanded(arguments_of(&text), directory, depth + 1)),
            None => all.push(argument),
        }
    }
    all
}

/// The arguments of a response file. They are separated by white space, quotes keep it, and a backslash escapes each character, in quotes
/// too.
fn arguments_of(text: &str) -> Vec<String> {
    let (mut all, mut argument, mut quote) = (Vec::new(), None, None);
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => argument.get_or_insert_with(String::new).extend(characters.next()),
            _ if quote == Some(character) => quote = None,
            '"' | '\'' if quote.is_none() => {
                quote = Some(character);
                // It may be empty.
                argument.get_or_insert_with(String::new);
            }
            _ if character.is_whitespace() && quote.is_none() => all.extend(argument.take()),
            _ => argument.get_or_insert_with(String::new).push(character),
        }
    }
    all.extend(argument);
    all
}

/// A command without the `--` before its sources, so that options may be added. A `--` before options ends those of a program that runs
/// the compiler, and stays.
fn without_end_of_options(mut command: Vec<String>) -> Vec<String> {
    let end = command.iter().rposition(|argument| argument == "--");
    if let Some(end) = end.filter(|end| command[end + 1..].iter().all(|argument| !argument.starts_with('-'))) {
        command.remove(end);
    }
    command
}

/// What `-o` names.
fn output_of(command: &[String]) -> Option<&str> {
    let position = command.iter().position(|argument| argument == "-o")?;
    command.get(position + 1).map(String::as_str)
}

/// A command without the arguments that name its outputs.
fn without_outputs(command: Vec<String>) -> Vec<String> {
    let mut kept = Vec::new();
    let mut arguments = command.into_iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "-o" | "-MF" | "-MT" | "-MQ" => drop(arguments.next()),
            "-c" | "-M" | "-MM" | "-MD" | "-MMD" | "-MP" | "-MG" => {}
            _ => kept.push(argument),
        }
    }
    kept
}

/// With gcc, no code may rely on the body of a function that is replaced.
fn add_flags_of_gcc(units: &mut [Unit]) {
    let mut known: BTreeMap<Vec<String>, bool> = BTreeMap::new();
    for unit in units {
        // With what runs the compiler, for example a cache, and without a source.
        let is_option = |part: &String| part.starts_with('-') || unit.directory.join(part).is_file();
        let count = 1 + unit.command.iter().skip(1).take_while(|part| !is_option(part)).count();
        let compiler = unit.command[..count].to_vec();
        let accepts = known.entry(compiler).or_insert_with_key(|compiler| accepts(compiler, LIVE_PATCHING));
        if *accepts {
            unit.command.push(LIVE_PATCHING.to_string());
        }
    }
}

fn accepts(compiler: &[String], flag: &str) -> bool {
    let Some((program, arguments)) = compiler.split_first() else { return false };
    let mut command = Command::new(program);
    command.args(arguments).args([flag, "-Werror", "-x", "c", "-c", "/dev/null", "-o", "/dev/null"]);
    command.stdin(Stdio::null()).output().is_ok_and(|output| output.status.success())
}

/// The files that a compiler has read.
type Compiled = Result<BTreeSet<PathBuf>, BuildFailure>;

/// Compiles units on all processors. The results are in their order.
fn compile_all(units: &[&Unit]) -> Vec<Compiled> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<(usize, Compiled)>> = Mutex::new(Vec::new());
    let work = || {
        while let Some((position, unit)) = take(&next, units) {
            let result = unit.compile();
            results.lock().unwrap_or_else(PoisonError::into_inner).push((position, result));
        }
    };
    let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    thread::scope(|scope| {
        for _ in 1..processors.min(units.len()) {
            scope.spawn(work);
        }
        work();
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(position, _)| *position);
    results.into_iter().map(|(_, result)| result).collect()
}

fn take<'u>(next: &AtomicUsize, units: &[&'u Unit]) -> Option<(usize, &'u Unit)> {
    let position = next.fetch_add(1, Ordering::Relaxed);
    units.get(position).map(|unit| (position, *unit))
}

impl Unit {
    /// Compiles the source. Returns the files that the compiler has read.
    fn compile(&self) -> Compiled {
        let failed = BuildFailure::not_run;
        // Another file first, so that nobody sees half an object.
        let (new, list) = (self.object.with_extension("new"), self.object.with_extension("d"));
        let mut command = Command::new(&self.command[0]);
        command.current_dir(&self.directory).args(&self.command[1..]).stdin(Stdio::null());
        command.arg("-c").arg("-o").arg(&new).arg("-MMD").arg("-MF").arg(&list);
        BuildFailure::check(command.output().map_err(|problem| format!("{}: {problem}", self.command[0])))?;
        std::fs::rename(&new, &self.object).map_err(|problem| failed(format!("{}: {problem}", new.display())))?;
        let list =
            std::fs::read_to_string(&list).map_err(|problem| failed(format!("{}: {problem}", list.display())))?;
        let files = dependencies_of(&list).into_iter().map(|file| self.directory.join(file));
        Ok(files.map(|file| file.canonicalize().unwrap_or(file)).collect())
    }
}

/// The files of a rule that a compiler wrote for `make`: those after the colon. In them, a space is escaped by a backslash, and a
/// line that goes on ends with one.
pub fn dependencies_of(rule: &str) -> Vec<String> {
    let rule = rule.replace("\\\n", " ");
    let Some((_, files)) = rule.split_once(": ") else { return Vec::new() };
    let (mut all, mut file) = (Vec::new(), String::new());
    let mut characters = files.chars().peekable();
    while let Some(character) = characters.next() {
        match (character, characters.peek()) {
            ('\\', Some(' ' | '#' | '\\')) | ('$', Some('$')) => file.extend(characters.next()),
            (character, _) if character.is_whitespace() => {
                all.push(std::mem::take(&mut file));
            }
            (character, _) => file.push(character),
        }
    }
    all.push(file);
    all.retain(|file| !file.is_empty());
    all
}

/// The depth to which response files may name each other.
const MAX_RESPONSE_FILES: usize = 8;
/// The clock of a file system may lag behind by as much.
pub const CLOCK_TICK: Duration = Duration::from_millis(20);
/// What a reload needs. See `docs/watch.md`.
const FLAGS: [&str; 4] = ["-fPIC", "-ffunction-sections", "-fdata-sections", "-fno-lto"];
const LIVE_PATCHING: &str = "-flive-patching=inline-clone";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_rule_are_read_with_spaces_in_their_names_and_over_lines() {
        let rule = "out.o: /src/a.c \\\n  /src/with\\ space.h ../b$$.h \\\n c\\#.h\n";
        assert_eq!(dependencies_of(rule), ["/src/a.c", "/src/with space.h", "../b$.h", "c#.h"]);
        assert!(dependencies_of("").is_empty());
    }

    #[test]
    fn arguments_that_name_outputs_are_left_out() {
        let command = "ccache gcc -O2 -c -o x.o -MMD -MF x.d -MT x.o -Iinclude a.c";
        let command: Vec<String> = shlex::split(command).unwrap();
        assert_eq!(output_of(&command), Some("x.o"));
        assert_eq!(without_outputs(command), ["ccache", "gcc", "-O2", "-Iinclude", "a.c"]);
    }

    #[test]
    fn arguments_of_response_files_are_read_with_quotes_and_escapes() {
        let text = "-O2\t'-DA=\"b c\"'\n\"-DQ=\\\"d\\\"\"  '' a\\ b.c'd e'";
        assert_eq!(arguments_of(text), ["-O2", "-DA=\"b c\"", "-DQ=\"d\"", "", "a b.cd e"]);
        assert!(arguments_of(" \n").is_empty());
    }

    #[test]
    fn the_end_of_options_is_left_out_before_sources_only() {
        let of = |command: &str| without_end_of_options(shlex::split(command).unwrap()).join(" ");
        assert_eq!(of("clang -O2 -- a.c"), "clang -O2 a.c");
        assert_eq!(of("run -- clang -O2 a.c"), "run -- clang -O2 a.c");
        assert_eq!(of("run -- clang -O2 -- a.c"), "run -- clang -O2 a.c");
        assert_eq!(of("clang"), "clang");
    }
}
