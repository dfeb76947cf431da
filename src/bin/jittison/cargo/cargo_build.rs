//! [`CargoBuild`]: builds a program of a Cargo package for `watch`, and knows its sources.
//!
//! Cargo says which files the program was compiled from: those of all packages that are on this machine (`NAME.d`). A new file may be
//! named by a source that was saved before it, so each Rust file below a package counts, too.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::SystemTime;

use notify::RecursiveMode;
use serde_json::Value;

use crate::args::CargoArgs;
use crate::build::{BuildFailure, Built, is_changed, saved_since};
use crate::cargo::link_record::LinkRecord;
use crate::cargo::tools::{LINKER, PACKAGES, RUSTC, TOOLS, WRAPPER};
use crate::database::{CLOCK_TICK, dependencies_of};
use crate::follower::real_path;
use crate::inputs::BuiltInput;
use crate::reload_lines::Lines;

/// A program of a Cargo package.
pub struct CargoBuild {
    arguments: Vec<OsString>,
    environment: Vec<(&'static str, OsString)>,
    /// Where Cargo builds.
    target_folder: PathBuf,
    /// The folders of the packages that may be followed: those that are not downloaded.
    packages: Vec<PathBuf>,
    /// The file that Cargo takes for the program. It holds the record.
    program: PathBuf,
    /// What the program that runs consists of.
    record: LinkRecord,
    sources: BTreeSet<PathBuf>,
    /// A hash of each file that was saved.
    seen: HashMap<PathBuf, u64>,
    /// When Cargo was started last. What was saved later may not be in the objects.
    built_at: SystemTime,
}

impl CargoBuild {
    /// Builds the program that `args` name.
    ///
    /// # Errors
    /// Cargo fails, or builds no program or several.
    pub fn open(args: &CargoArgs, lines: &Lines) -> Result<CargoBuild, String> {
        let shows_progress = !lines.is_json();
        let metadata = metadata(args, shows_progress)?;
        let packages = local_packages(&metadata);
        let target_folder =
            metadata["target_directory"].as_str().ok_or("`cargo metadata` names no target directory")?;
        let target_folder = Path::new(target_folder).join("jittison-watch");
        let tools = target_folder.join("tools");
        create_tools(&tools)?;
        let folders: Vec<&str> = packages.iter().filter_map(|folder| folder.to_str()).collect();
        let mut environment = vec![
            ("RUSTC_WRAPPER", tools.join(RUSTC).into_os_string()),
            (PACKAGES, folders.join("\n").into()),
            (TOOLS, tools.into_os_string()),
        ];
        environment.extend(std::env::var_os("RUSTC_WRAPPER").map(|wrapper| (WRAPPER, wrapper)));
        let mut arguments = arguments(args, &target_folder);
        if shows_progress && std::io::stderr().is_terminal() {
            // Errors of later builds are read, and shown as they are.
            arguments.push("--color=always".into());
        }
        let mut build = CargoBuild {
            arguments,
            environment,
            target_folder,
            packages: packages.iter().map(|folder| real_path(folder)).collect::<Result<_, _>>()?,
            program: PathBuf::new(),
            record: LinkRecord::default(),
            sources: BTreeSet::new(),
            seen: HashMap::new(),
            built_at: SystemTime::UNIX_EPOCH,
        };
        let output = build.cargo(shows_progress).map_err(|failure| {
            if !shows_progress {
                lines.build_failed(&failure);
            }
            NOT_STARTED.to_string()
        })?;
        build.program = only_program(&output)?;
        build.record = LinkRecord::read(&build.program)?;
        build.read_sources()?;
        Ok(build)
    }

    /// The path of the program, as its first argument.
    pub fn program(&self) -> &Path {
        &self.program
    }

    pub fn inputs(&self) -> Vec<BuiltInput> {
        self.record.built_inputs()
    }

    /// The folders of sources to watch.
    pub fn folders(&self) -> Vec<(PathBuf, RecursiveMode)> {
        let mut folders = BTreeMap::new();
        for file in &self.sources {
            folders.extend(file.parent().map(|folder| (folder.to_path_buf(), RecursiveMode::NonRecursive)));
        }
        for package in self.packages_of_program() {
            folders.insert(package.clone(), RecursiveMode::NonRecursive);
            let sources = package.join("src");
            if sources.is_dir() {
                folders.insert(sources, RecursiveMode::Recursive);
            }
        }
        folders.into_iter().collect()
    }

    /// The sources that were saved after a compiler may have read them.
    pub fn saved_since_built(&self) -> Vec<PathBuf> {
        saved_since(self.sources.iter(), self.built_at)
    }

    /// Whether a file is a source that was saved with other bytes. Notes the bytes.
    pub fn is_changed_source(&mut self, path: &Path) -> bool {
        let is_rust = path.extension() == Some(OsStr::new("rs"));
        let is_of_package = is_rust || path.file_name() == Some(OsStr::new("Cargo.toml"));
        let is_of_package = is_of_package
            && !path.starts_with(&self.target_folder)
            && self.packages_of_program().any(|package| path.starts_with(package));
        (is_of_package || self.sources.contains(path)) && is_changed(&mut self.seen, path)
    }

    /// Builds the program again.
    ///
    /// # Errors
    /// Cargo failed.
    pub fn run(&mut self) -> Result<Built, BuildFailure> {
        self.cargo(false)?;
        let record = LinkRecord::read(&self.program).map_err(BuildFailure::not_run)?;
        self.read_sources().map_err(BuildFailure::not_run)?;
        Ok(match record.difference(&self.record) {
            None => Built::Any,
            Some(input) => Built::AnotherProgram(format!(
                "{}: the program was linked with other libraries or objects when it was started; start it again",
                input.name()
            )),
        })
    }

    fn packages_of_program(&self) -> impl Iterator<Item = &PathBuf> {
        self.packages.iter().filter(|package| self.sources.iter().any(|source| source.starts_with(package)))
    }

    fn cargo(&mut self, shows_progress: bool) -> Result<Output, BuildFailure> {
        self.built_at = SystemTime::now() - CLOCK_TICK;
        let mut command = cargo();
        command.args(&self.arguments).envs(self.environment.iter().cloned()).stdin(Stdio::null());
        if shows_progress {
            command.stderr(Stdio::inherit());
        }
        let output = command.stdout(Stdio::piped()).output();
        let output = output.map_err(|problem| BuildFailure::not_run(format!("cargo: {problem}")))?;
        match output.status.success() {
            true => Ok(output),
            false => Err(BuildFailure {
                status: output.status.to_string(),
                output: String::from_utf8_lossy(&output.stderr).into_owned(),
            }),
        }
    }

    fn read_sources(&mut self) -> Result<(), String> {
        let list = self.program.with_extension("d");
        let text = std::fs::read_to_string(&list).map_err(|problem| format!("{}: {problem}", list.display()))?;
        let files = dependencies_of(&text).into_iter().map(PathBuf::from);
        self.sources = files.map(|file| file.canonicalize().unwrap_or(file)).collect();
        Ok(())
    }
}

fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// What Cargo knows of the packages.
fn metadata(args: &CargoArgs, shows_progress: bool) -> Result<Value, String> {
    let mut command = cargo();
    command.args(["metadata", "--format-version", "1"]).args(manifest(args));
    if shows_progress {
        command.stderr(Stdio::inherit());
    }
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|problem| format!("cargo: {problem}"))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{text}`cargo metadata` failed ({})", output.status));
    }
    serde_json::from_slice(&output.stdout).map_err(|problem| format!("`cargo metadata`: {problem}"))
}

/// The folders of the packages that are not downloaded.
fn local_packages(metadata: &Value) -> Vec<PathBuf> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let local = packages.filter(|package| package["source"].is_null());
    let manifests = local.filter_map(|package| package["manifest_path"].as_str());
    manifests.filter_map(|manifest| Path::new(manifest).parent()).map(Path::to_path_buf).collect()
}

/// Links to this command, by the names of the tools.
fn create_tools(folder: &Path) -> Result<(), String> {
    let in_folder = |problem: std::io::Error| format!("{}: {problem}", folder.display());
    std::fs::create_dir_all(folder).map_err(in_folder)?;
    let own = std::env::current_exe().map_err(|problem| format!("this program has no path: {problem}"))?;
    for name in [RUSTC, LINKER] {
        let link = folder.join(name);
        if std::fs::read_link(&link).is_ok_and(|target| target == own) {
            continue;
        }
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(&own, &link).map_err(in_folder)?;
    }
    Ok(())
}

fn manifest(args: &CargoArgs) -> impl Iterator<Item = OsString> {
    let path = args.manifest_path.iter().map(|path| path.clone().into_os_string());
    path.flat_map(|path| [OsString::from("--manifest-path"), path])
}

/// The arguments of Cargo for a build.
fn arguments(args: &CargoArgs, target_folder: &Path) -> Vec<OsString> {
    let mut all: Vec<OsString> = vec!["build".into(), "--message-format=json-render-diagnostics".into()];
    all.extend(manifest(args));
    all.extend(["--target-dir".into(), target_folder.into()]);
    let options = [
        ("--bin", &args.bin),
        ("--example", &args.example),
        ("--package", &args.package),
        ("--features", &args.features),
    ];
    for (option, value) in options {
        all.extend(value.iter().flat_map(|value| [option.into(), value.into()]));
    }
    if args.bin.is_none() && args.example.is_none() {
        all.push("--bins".into());
    }
    all
}

/// The one program that Cargo has built.
fn only_program(output: &Output) -> Result<PathBuf, String> {
    let messages =
        output.stdout.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    let built: Vec<(String, PathBuf)> = messages
        .filter(|message| message["reason"] == "compiler-artifact")
        .filter_map(|message| {
            let name = message["target"]["name"].as_str()?.to_string();
            Some((name, PathBuf::from(message["executable"].as_str()?)))
        })
        .collect();
    match built.as_slice() {
        [(_, program)] => Ok(program.clone()),
        [] => Err("the package has no program; name an example with --example".to_string()),
        several => {
            let names: Vec<&str> = several.iter().map(|(name, _)| name.as_str()).collect();
            Err(format!("there are several programs: {}; choose one with --bin", names.join(", ")))
        }
    }
}

const NOT_STARTED: &str = "the program was not started: Cargo could not build it";
