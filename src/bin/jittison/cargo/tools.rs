//! `jittison-rustc` and `jittison-linker`: what Cargo and rustc start while a package is built for `watch`.
//!
//! `jittison-rustc` runs rustc. A crate of a package that is followed gets these flags:
//!
//! | flag | because |
//! |---|---|
//! | `codegen-units=1` | one object has the whole crate, so a function is always in the same object |
//! | `link-dead-code` | functions stay visible to other objects, so callers in the same crate reach them by a stub, too |
//! | `opt-level=0` | no code relies on the body of a function that may be replaced |
//! | `symbol-mangling-version=v0` | names say what is a closure |
//! | `debuginfo=2` | types are compared |
//! | `lto=off`, `strip=none` | the objects are code, with their symbols |
//! | `debug-assertions=off`, if the profile is optimised and does not turn them on | rustc would derive them from `opt-level=0` |
//!
//! `jittison-linker` links nothing. It keeps the objects, which rustc would delete, and writes a [`LinkRecord`].

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;

use jittison::link::{Archive, FileBytes};

use crate::cargo::link_record::{LinkInput, LinkRecord};
use crate::cargo::linker_line::{self, LineInput};
use crate::output::{FAILED, message_of, print_error};

/// The names by which this command is one of the tools.
pub const RUSTC: &str = "jittison-rustc";
pub const LINKER: &str = "jittison-linker";
/// The folders of the packages that are followed, one a line.
pub const PACKAGES: &str = "JITTISON_WATCH_PACKAGES";
/// The folder of the tools.
pub const TOOLS: &str = "JITTISON_WATCH_TOOLS";
/// `1` if test programs are followed, and not programs.
pub const TESTS: &str = "JITTISON_WATCH_TESTS";
/// The value of `RUSTC_WRAPPER` of the user.
pub const WRAPPER: &str = "JITTISON_WATCH_RUSTC_WRAPPER";

/// Runs as one of the tools, if this command was started by its name.
pub fn run_as_tool() -> Option<ExitCode> {
    let mut arguments = std::env::args_os();
    let name = arguments.next()?;
    let outcome = match Path::new(&name).file_name()?.to_str()? {
        RUSTC => Err(run_rustc(arguments.collect())),
        LINKER => record_link(arguments.collect()),
        _ => return None,
    };
    let outcome = outcome.map_err(|problem| print_error(&problem));
    Some(outcome.map_or(ExitCode::from(FAILED), |()| ExitCode::SUCCESS))
}

/// Becomes rustc. Returns only if that fails.
fn run_rustc(mut arguments: Vec<OsString>) -> String {
    if has_codegen_option(&arguments, "linker-plugin-lto") {
        // Its objects are no code. Cargo gives it for a profile with link-time optimisation, also for packages that are not followed.
        arguments.push("-Clinker-plugin-lto=no".into());
    }
    if let Some(target) = Target::of(&arguments).filter(|_| is_followed()) {
        if has_codegen_option(&arguments, "opt-level") && !has_codegen_option(&arguments, "debug-assertions") {
            // Cargo leaves it to rustc, which derives it from the level. A level of 0 in the profile is not passed.
            arguments.push("-Cdebug-assertions=off".into());
        }
        arguments.extend(FLAGS.map(OsString::from));
        match target {
            Target::Program => {
                let tools = PathBuf::from(std::env::var_os(TOOLS).unwrap_or_default());
                let mut linker = OsString::from("-Clinker=");
                linker.push(tools.join(LINKER));
                arguments.extend([linker, OsString::from("-Clinker-flavor=gcc")]);
            }
            Target::Library { mark } => {
                if let Err(problem) = std::fs::write(&mark, "") {
                    return format!("{}: {problem}", mark.display());
                }
            }
        }
    }
    let wrapper = std::env::var_os(WRAPPER).filter(|wrapper| !wrapper.is_empty());
    let mut line = wrapper.into_iter().chain(arguments);
    let Some(program) = line.next() else { return "there is no compiler to run".to_string() };
    let problem = Command::new(&program).args(line).exec();
    format!("{}: {problem}", Path::new(&program).display())
}

/// Whether Cargo gives this option of code generation (`-C NAME` or `-C NAME=VALUE`).
fn has_codegen_option(arguments: &[OsString], name: &str) -> bool {
    let options = arguments.windows(2).filter(|pair| pair[0] == "-C").filter_map(|pair| pair[1].to_str());
    options.into_iter().any(|option| option.split('=').next() == Some(name))
}

/// Whether the package that is compiled is followed.
fn is_followed() -> bool {
    let packages = std::env::var(PACKAGES).unwrap_or_default();
    std::env::var("CARGO_MANIFEST_DIR").is_ok_and(|folder| packages.lines().any(|package| package == folder))
}

/// What rustc compiles.
enum Target {
    Program,
    /// A library. The file `mark` beside it says that it is followed.
    Library {
        mark: PathBuf,
    },
}

impl Target {
    /// `None` for a build script, a macro, calls that compile nothing, and programs that are not followed.
    fn of(arguments: &[OsString]) -> Option<Target> {
        let arguments: Vec<&str> = arguments.iter().filter_map(|argument| argument.to_str()).collect();
        let values = |option: &'static str| {
            let pairs = arguments.windows(2).filter(move |pair| pair[0] == option);
            pairs.map(|pair| pair[1])
        };
        let name = values("--crate-name").next()?;
        let folder = values("--out-dir").next()?;
        let emits_code = arguments.iter().any(|argument| argument.starts_with("--emit=") && argument.contains("link"));
        if !emits_code || name.starts_with("build_script_") {
            return None;
        }
        // Cargo names no type for a test program.
        let (is_test, is_program) =
            (values("--crate-type").next().is_none(), values("--crate-type").any(|kind| kind == "bin"));
        if is_test || is_program {
            // A program that a test starts is linked.
            let are_tests_meant = std::env::var_os(TESTS).is_some_and(|value| !value.is_empty());
            return (is_test == are_tests_meant).then_some(Target::Program);
        }
        let is_library = values("--crate-type").any(|kind| kind == "lib" || kind == "rlib");
        let suffix = values("-C").find_map(|option| option.strip_prefix("extra-filename="));
        let mark = mark_of(&Path::new(folder).join(format!("lib{name}{}.rlib", suffix.unwrap_or_default())));
        is_library.then_some(Target::Library { mark })
    }
}

/// The file that says that a library is followed.
fn mark_of(library: &Path) -> PathBuf {
    library.with_extension("jittison-watch")
}

/// Keeps the objects of a program beside it, and writes what it consists of in its place.
fn record_link(arguments: Vec<OsString>) -> Result<(), String> {
    let utf8 = |argument: OsString| argument.into_string().map_err(|text| format!("{text:?} is not UTF-8"));
    let arguments: Vec<String> = arguments.into_iter().map(utf8).collect::<Result<_, _>>()?;
    let line = linker_line::read(&arguments)?;
    let objects = line.output.with_extension("objects");
    let in_folder = |problem: std::io::Error| format!("{}: {problem}", objects.display());
    std::fs::create_dir_all(&objects).map_err(in_folder)?;
    let mut record = LinkRecord { inputs: Vec::new(), library_paths: line.library_paths };
    let program = crate_of(&line.output);
    let mut count = 0;
    for input in line.inputs {
        match input {
            LineInput::CrateObject(path) => {
                let bytes = std::fs::read(&path).map_err(|problem| format!("{}: {problem}", path.display()))?;
                record.inputs.push(keep(&objects, numbered(&program, count), &bytes)?);
                count += 1;
            }
            LineInput::Object(path) => {
                // rustc deletes it.
                let own = objects.join(path.file_name().unwrap_or_default());
                std::fs::copy(&path, &own).map_err(|problem| format!("{}: {problem}", path.display()))?;
                record.inputs.push(LinkInput::Object { path: own });
            }
            LineInput::Archive(path) => {
                if mark_of(&path).exists() {
                    record.inputs.extend(crate_objects(&objects, &path)?);
                }
                record.inputs.push(LinkInput::Archive { path });
            }
            LineInput::WholeArchive(path) => record.inputs.push(LinkInput::WholeArchive { path }),
            LineInput::Library(name) => record.inputs.push(LinkInput::Library { name }),
            LineInput::WholeLibrary(name) => {
                let mut found = record.library_paths.iter().map(|folder| folder.join(format!("lib{name}.a")));
                record.inputs.push(match found.find(|path| path.is_file()) {
                    Some(path) => LinkInput::WholeArchive { path },
                    None => LinkInput::Library { name },
                });
            }
        }
    }
    record.write(&line.output)
}

/// The objects of a library that is followed, in files of their own.
fn crate_objects(folder: &Path, library: &Path) -> Result<Vec<LinkInput>, String> {
    let archive = Archive::open(library, Arc::new(|path: &Path| FileBytes::open(path))).map_err(message_of)?;
    let name = format!("{}.rlib", crate_of(&library.with_extension("")));
    let mut kept = Vec::new();
    for offset in archive.member_offsets().map_err(message_of)? {
        let member = archive.member(offset).map_err(message_of)?;
        // Others are of native libraries, and metadata.
        if member.name().ends_with(".rcgu.o)") {
            kept.push(keep(folder, numbered(&name, kept.len()), &member.bytes)?);
        }
    }
    Ok(kept)
}

/// Writes an object at once, so that a link that fails leaves the old one.
fn keep(folder: &Path, name: String, bytes: &[u8]) -> Result<LinkInput, String> {
    let (path, new) = (folder.join(format!("{name}.o")), folder.join(format!("{name}.new")));
    let written = std::fs::write(&new, bytes).and_then(|()| std::fs::rename(&new, &path));
    written.map_err(|problem| format!("{}: {problem}", path.display()))?;
    Ok(LinkInput::Crate { name, path })
}

/// The name of a crate in the path of its program or library, which ends with a hash of Cargo.
fn crate_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.rsplit_once('-').map_or(&*name, |(name, _)| name).to_string()
}

/// The name of an object. One crate has one, and perhaps the allocator.
fn numbered(name: &str, number: usize) -> String {
    if number == 0 { name.to_string() } else { format!("{name}#{number}") }
}

const FLAGS: [&str; 7] = [
    "-Ccodegen-units=1",
    "-Clink-dead-code",
    "-Copt-level=0",
    "-Csymbol-mangling-version=v0",
    "-Cdebuginfo=2",
    "-Clto=off",
    "-Cstrip=none",
];
