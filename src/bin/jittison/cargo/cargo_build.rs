//! [`CargoBuild`]: builds a program of a Cargo package for `watch`, and knows its sources.
//!
//! Cargo says which files the program was compiled from: those of all packages that are on this machine (`NAME.d`). For a test program
//! it writes no such list; there, those of rustc are read, of each crate. A new file may be named by a source that was saved before it,
//! so each Rust file below a package counts, too.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

use notify::RecursiveMode;
use serde_json::Value;

use crate::args::CargoArgs;
use crate::build::{BuildFailure, Built, is_changed, saved_since};
use crate::cargo::artifact::Artifact;
use crate::cargo::link_record::LinkRecord;
use crate::cargo::tools::{LINKER, PACKAGES, RUSTC, TESTS, TOOLS, WRAPPER};
use crate::database::{CLOCK_TICK, dependencies_of};
use crate::follower::real_path;
use crate::inputs::BuiltInput;
use crate::reload_lines::Lines;

/// A program of a Cargo package.
pub struct CargoBuild {
    arguments: Vec<OsString>,
    environment: Vec<(&'static str, OsString)>,
    /// Where Cargo is started. The program may change the folder of this process.
    folder: PathBuf,
    /// Where Cargo builds.
    target_folder: PathBuf,
    /// The folders of the packages that may be followed: those that are not downloaded.
    packages: Vec<PathBuf>,
    /// Relative paths of sources begin there.
    workspace: PathBuf,
    /// Whether the program is a test program.
    is_test: bool,
    /// The folder of the package of the program.
    package: PathBuf,
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
        let folder_of = |member: &str| {
            let folder = metadata[member].as_str();
            folder.map(PathBuf::from).ok_or_else(|| format!("`cargo metadata` has no `{member}`"))
        };
        let workspace = folder_of("workspace_root")?;
        let target_folder = target_folder(args, &folder_of("target_directory")?);
        let tools = target_folder.join("tools");
        create_tools(&tools)?;
        let folders: Vec<&str> = packages.iter().filter_map(|folder| folder.to_str()).collect();
        let mut environment = vec![
            ("RUSTC_WRAPPER", tools.join(RUSTC).into_os_string()),
            (PACKAGES, folders.join("\n").into()),
            (TOOLS, tools.into_os_string()),
            (TESTS, if args.is_test() { "1".into() } else { OsString::new() }),
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
            folder: std::env::current_dir().map_err(|problem| format!("the current folder: {problem}"))?,
            target_folder,
            packages: packages.iter().map(|folder| real_path(folder)).collect::<Result<_, _>>()?,
            workspace,
            is_test: args.is_test(),
            package: PathBuf::new(),
            program: PathBuf::new(),
            record: LinkRecord::default(),
            sources: BTreeSet::new(),
            seen: HashMap::new(),
            built_at: SystemTime::UNIX_EPOCH,
        };
        let artifacts = build.cargo(shows_progress).map_err(|failure| {
            if !shows_progress {
                lines.build_failed(&failure);
            }
            NOT_STARTED.to_string()
        })?;
        (build.program, build.package) = only_program(&artifacts, build.is_test)?;
        build.record = LinkRecord::read(&build.program)?;
        build.read_sources(&artifacts)?;
        Ok(build)
    }

    /// The path of the program, as its first argument.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// The folder in which the program starts: for a test program that of its package, as Cargo does it.
    pub fn start_folder(&self) -> Option<&Path> {
        self.is_test.then_some(&*self.package)
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
        let artifacts = self.cargo(false)?;
        let record = LinkRecord::read(&self.program).map_err(BuildFailure::not_run)?;
        self.read_sources(&artifacts).map_err(BuildFailure::not_run)?;
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

    fn cargo(&mut self, shows_progress: bool) -> Result<Vec<Artifact>, BuildFailure> {
        self.built_at = SystemTime::now() - CLOCK_TICK;
        let mut command = cargo();
        command
            .args(&self.arguments)
            .envs(self.environment.iter().cloned())
            .stdin(Stdio::null())
            .current_dir(&self.folder);
        if shows_progress {
            command.stderr(Stdio::inherit());
        }
        let output = command.stdout(Stdio::piped()).output();
        let output = output.map_err(|problem| BuildFailure::not_run(format!("cargo: {problem}")))?;
        match output.status.success() {
            true => Ok(Artifact::read_all(&output.stdout)),
            false => Err(BuildFailure {
                status: output.status.to_string(),
                output: String::from_utf8_lossy(&output.stderr).into_owned(),
            }),
        }
    }

    fn read_sources(&mut self, artifacts: &[Artifact]) -> Result<(), String> {
        let mut files = BTreeSet::new();
        let mut read = |list: &Path| {
            let text = std::fs::read_to_string(list).map_err(|problem| format!("{}: {problem}", list.display()))?;
            // The first rule has all files.
            let rule = text.lines().next().unwrap_or_default();
            files.extend(dependencies_of(rule).into_iter().map(|file| self.workspace.join(file)));
            Ok::<(), String>(())
        };
        if self.is_test {
            let is_local = |artifact: &&Artifact| {
                artifact.package.canonicalize().is_ok_and(|folder| self.packages.contains(&folder))
            };
            let lists = artifacts.iter().filter(is_local).filter_map(Artifact::dependency_list);
            lists.into_iter().try_for_each(|list| read(&list))?;
        } else {
            read(&self.program.with_extension("d"))?;
        }
        self.sources = files.into_iter().map(|file| file.canonicalize().unwrap_or(file)).collect();
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

/// Where Cargo builds. The programs of a package are linked for its integration tests, which start them, and recorded else.
fn target_folder(args: &CargoArgs, users: &Path) -> PathBuf {
    let own = users.join("jittison-watch");
    let may_start_programs = args.is_test() && !args.lib && args.bin.is_none() && args.example.is_none();
    if may_start_programs { own.join("tests") } else { own }
}

/// The arguments of Cargo for a build.
fn arguments(args: &CargoArgs, target_folder: &Path) -> Vec<OsString> {
    let command: &[&str] = if args.is_test() { &["test", "--no-run"] } else { &["build"] };
    let mut all: Vec<OsString> = command.iter().map(OsString::from).collect();
    all.push("--message-format=json-render-diagnostics".into());
    all.extend(manifest(args));
    all.extend(["--target-dir".into(), target_folder.into()]);
    let options = [
        ("--bin", &args.bin),
        ("--example", &args.example),
        ("--test", &args.test),
        ("--package", &args.package),
        ("--features", &args.features),
        ("--profile", &args.profile),
    ];
    for (option, value) in options {
        all.extend(value.iter().flat_map(|value| [option.into(), value.into()]));
    }
    all.extend(args.release.then(|| "--release".into()));
    all.extend(args.lib.then(|| "--lib".into()));
    if args.bin.is_none() && args.example.is_none() && args.test.is_none() && !args.lib {
        all.push(if args.is_test() { "--tests".into() } else { "--bins".into() });
    }
    all
}

/// The one program that Cargo has built, and the folder of its package. If `is_test`, the one test program.
fn only_program(artifacts: &[Artifact], is_test: bool) -> Result<(PathBuf, PathBuf), String> {
    let is_meant = |artifact: &&Artifact| artifact.executable.is_some() && artifact.is_test == is_test;
    let built: Vec<&Artifact> = artifacts.iter().filter(is_meant).collect();
    let (kind, missing, options) = if is_test {
        ("test programs", "the package has no tests", "--test, --lib or --bin")
    } else {
        (
            "programs",
            "the package has no program; name an example with --example, or tests with --test or --lib",
            "--bin",
        )
    };
    match built.as_slice() {
        [] => Err(missing.to_string()),
        [Artifact { executable: Some(program), package, .. }] => Ok((program.clone(), package.clone())),
        several => {
            let names: Vec<String> = several.iter().map(|artifact| artifact.name(is_test)).collect();
            Err(format!("there are several {kind}: {}; choose one with {options}", names.join(", ")))
        }
    }
}

const NOT_STARTED: &str = "the program was not started: Cargo could not build it";
