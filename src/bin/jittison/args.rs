//! The options of each command, and their help texts.
//!
//! The `///` comments below are the help texts: the first paragraph for `-h`, all of it for `--help`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgAction, Args as ClapArgs, CommandFactory as _, Parser, Subcommand};

/// Links object files in this process, without a linker and without an output file.
///
/// Objects are relocatable ELF files for x86-64 Linux, such as `gcc -c` makes.
#[derive(Debug, Parser)]
#[command(name = "jittison", version, after_help = EXIT_STATUS)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Run(Box<RunArgs>),
    #[command(after_help = WATCH_HELP)]
    Watch(Box<WatchArgs>),
    Inspect(InspectArgs),
    Map(MapArgs),
    Check(CheckArgs),
}

/// Link objects and archives and run them as a program
///
/// Links all objects and the archive members that they need, runs initialisers (static constructors), calls `main` with the
/// arguments after `--`, runs exit handlers and finalisers (static destructors), frees everything, and exits with the status
/// of the program. The program runs in this process, with all rights of this process.
#[derive(Debug, Parser)]
#[command(after_help = concat!(
    "Example:\n  gcc -c -fPIC main.c list.c\n  jittison run main.o list.o libtree.a -l z --report report.json -- one two\n\n",
    "Exit status: that of the program; 2 if the command line is wrong; 125 if jittison fails, with one line on standard\n",
    "error. If a signal kills the program, it kills this process."
))]
pub struct RunArgs {
    /// Object files, and archives (libx.a), of which the needed members are linked
    ///
    /// An archive is searched where it stands: its members define what the files before it need. What is missing at the end is
    /// searched in all archives again, in their order; if a shared library has it, too, nothing is run, because native linkers
    /// differ. `run` maps archives: do not change them while it runs.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// An archive of which every member is linked; may be repeated
    #[arg(long, value_name = "ARCHIVE")]
    pub whole_archive: Vec<PathBuf>,

    /// Search the archives from here to --end-group again and again, until that adds no member; may be repeated
    #[arg(long, num_args = 0, action = ArgAction::Append, default_missing_value = "true")]
    pub start_group: Vec<bool>,

    /// See --start-group
    #[arg(long, num_args = 0, action = ArgAction::Append, default_missing_value = "true")]
    pub end_group: Vec<bool>,

    /// Put the following files and libraries into a dylib of this name; may be repeated
    ///
    /// Files before the first such option go to `main`. A dylib searches its own symbols, then those that the other dylibs
    /// export, in the order of the command line, then the process and its libraries.
    #[arg(long, value_name = "NAME")]
    pub dylib: Vec<String>,

    /// The function to call: int SYMBOL(int argc, char **argv)
    #[arg(long, value_name = "SYMBOL", default_value = "main")]
    pub entry: String,

    /// A library for symbols that no file defines; may be repeated
    ///
    /// A path (with a slash), a file name (libz.so.1), or a bare name: z means libz.so, libz.a or libz.so.N, searched in the
    /// directories of -L first. The C library is always searched.
    #[arg(short, long = "library", value_name = "NAME")]
    pub libraries: Vec<OsString>,

    /// Search no libraries that no option names, except the C library
    ///
    /// Without this option, libm, libstdc++ and libgcc_s are searched last, and then the compiler's support library
    /// (libgcc.a, or that of clang).
    #[arg(long)]
    pub nodefaultlibs: bool,

    /// A directory to search for libraries before the system's directories; may be repeated
    #[arg(short = 'L', long = "library-path", value_name = "DIRECTORY")]
    pub library_paths: Vec<PathBuf>,

    /// Define a symbol with a fixed value; may be repeated
    #[arg(long = "define", visible_alias = "abs", value_name = "SYMBOL=VALUE", value_parser = definition)]
    pub absolute: Vec<(String, u64)>,

    /// Define a symbol as another name of a symbol; may be repeated
    #[arg(long, value_name = "NAME=SYMBOL", value_parser = pair)]
    pub alias: Vec<(String, String)>,

    /// Let undefined references to SYMBOL go to __wrap_SYMBOL, and those to __real_SYMBOL go to SYMBOL; may be repeated
    ///
    /// As the option of ld. References in the file that defines SYMBOL stay as they are.
    #[arg(long, value_name = "SYMBOL")]
    pub wrap: Vec<String>,

    /// Number of threads that link; 0 for the main thread only [default: all processors for inputs of a megabyte or more]
    ///
    /// The threads end before the program starts. Their number changes neither the archive members that are linked nor the
    /// order of initialisers.
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,

    /// Link and run nothing; the link uses no memory and no symbols of this process
    #[arg(long)]
    pub no_exec: bool,

    /// With --no-exec: the address of the first object; the others follow it
    #[arg(long, value_name = "ADDRESS", value_parser = number, requires = "no_exec")]
    pub base: Option<u64>,

    /// With --no-exec: undefined symbols are null
    #[arg(long, requires = "no_exec")]
    pub phony_externals: bool,

    /// Write what was linked, how long each stage took, and the memory it used, as JSON
    ///
    /// The report is written when the program has returned or called exit, and its finalisers have run. If the program ends
    /// in another way, the file is empty.
    #[arg(long, value_name = "FILE.json")]
    pub report: Option<PathBuf>,

    /// Run the program in another process, which shares the code memory: PROGRAM [default: jittison-executor beside this program]
    ///
    /// If a signal ends the program, this process reports it and ends with status 125. Libraries of -l are
    /// opened in both processes.
    ///
    /// tcp:HOST:PORT is a `jittison-executor --listen HOST:PORT`, perhaps of another machine, to which code and data are copied.
    /// JITTISON_EXECUTOR_TOKEN has its token.
    ///
    /// tls:HOST:PORT is one that also has --certificate and --key: connections are encrypted. JITTISON_EXECUTOR_CERTIFICATE names the PEM
    /// file of the certificate to trust, which must be for HOST.
    #[arg(long, value_name = "PROGRAM", require_equals = true, conflicts_with = "no_exec")]
    pub executor: Option<Option<PathBuf>>,

    /// Print to standard error what is linked, redirected, removed and mapped, as it happens
    #[arg(long, conflicts_with = "no_exec")]
    pub trace: bool,

    /// argv[1], argv[2] and so on of the program; argv[0] is the path of the first file
    #[arg(last = true, value_name = "ARGS")]
    pub arguments: Vec<OsString>,
}

/// Run a program, and reload its objects when they change
///
/// Links and runs the files as `run` does. When an object file is written again, its functions are replaced while the program
/// runs: callers reach the new code with their next call. Variables keep their values. An object that cannot follow changes
/// nothing, and the error says why. Members of archives follow, too. Dylibs of --dylib do not. Each event is a line on standard
/// error.
#[derive(Debug, Parser)]
pub struct WatchArgs {
    /// The command that builds the objects, for a shell; it runs when a file below --source was saved
    ///
    /// Without it, the objects themselves are watched. In both cases all objects that have changed are reloaded.
    #[arg(long, value_name = "COMMAND", requires = "sources")]
    pub build: Option<String>,

    /// A folder of sources, watched with all that is in it; may be repeated
    #[arg(long = "source", value_name = "DIRECTORY", requires = "build")]
    pub sources: Vec<PathBuf>,

    /// A compile database, or the folder of one: the program consists of its sources, which are compiled with its commands
    ///
    /// A source is compiled again when it, or a header that it reads, was saved. All that a save changes follows together. The
    /// flags that a reload needs are added; objects are written to the folder `jittison-watch` beside the database.
    #[arg(long, value_name = "FILE", conflicts_with = "build")]
    pub compile_commands: Option<PathBuf>,

    /// With --compile-commands: a source, a folder of sources, or a name in the path of an output (`app.dir` for the target `app`
    /// of CMake); may be repeated. Others are left out
    #[arg(long, value_name = "PATH", requires = "compile_commands")]
    pub only: Vec<PathBuf>,

    #[command(flatten)]
    pub cargo: CargoArgs,

    /// Write events as lines of JSON
    #[arg(long)]
    pub json: bool,

    /// Show a full screen: objects, replaced versions and what keeps them, memory, events, errors, the output of the program
    ///
    /// The program runs in a child process. Its output goes to a pane of the screen. Its standard input is that of this command,
    /// or empty if that is the terminal. Keys: Tab and Shift-Tab choose a pane, arrows, Page Up, Page Down, Home and End scroll,
    /// Enter enlarges, q or Ctrl-C interrupts the program.
    #[arg(long, conflicts_with = "json")]
    pub tui: bool,

    /// Events go to standard error as the screen of --tui reads them, and the standard error of the program to standard output
    #[arg(long, hide = true, conflicts_with_all = ["json", "tui"])]
    pub screen_events: bool,

    #[command(flatten)]
    pub run: RunArgs,
}

/// A program of a Cargo package.
#[derive(Debug, ClapArgs)]
pub struct CargoArgs {
    /// Build a program of the Cargo package in this folder, and follow the sources of all packages that are not downloaded
    ///
    /// Cargo builds in `jittison-watch` in the target directory. The packages that are followed are compiled with `codegen-units=1`
    /// and `opt-level=0`. What else is linked, for example the standard library, comes from Cargo, too.
    #[arg(long, conflicts_with_all = ["build", "compile_commands"])]
    pub cargo: bool,

    /// With --cargo: the `Cargo.toml` of the package
    #[arg(long, value_name = "FILE", requires = "cargo")]
    pub manifest_path: Option<PathBuf>,

    /// With --cargo: the program, if the package has several
    #[arg(long, value_name = "NAME", requires = "cargo", conflicts_with = "example")]
    pub bin: Option<String>,

    /// With --cargo: an example in the place of a program
    #[arg(long, value_name = "NAME", requires = "cargo")]
    pub example: Option<String>,

    /// With --cargo: run an integration test (`tests/NAME.rs`) in the place of a program
    ///
    /// The arguments after `--` are those of the test program, for example the name of a test. It starts in the folder of its package.
    #[arg(long, value_name = "NAME", requires = "cargo", conflicts_with_all = ["bin", "example", "lib"])]
    pub test: Option<String>,

    /// With --cargo: run the unit tests of the library in the place of a program
    #[arg(long, requires = "cargo", conflicts_with_all = ["bin", "example"])]
    pub lib: bool,

    /// With --cargo: run the tests of what --bin or --example names; without them, the only test program of the package
    #[arg(long, requires = "cargo")]
    pub tests: bool,

    /// With --cargo: the package in a workspace
    #[arg(long, value_name = "NAME", requires = "cargo")]
    pub package: Option<String>,

    /// With --cargo: features to build with, separated by commas
    #[arg(long, value_name = "FEATURES", requires = "cargo")]
    pub features: Option<String>,

    /// With --cargo: the profile to build with, for example one of your own [default: dev, or test for tests]
    ///
    /// Assertions, overflow checks, panics and the packages that are downloaded are as the profile says. What is followed is compiled
    /// with `opt-level=0` all the same.
    #[arg(long, value_name = "NAME", requires = "cargo")]
    pub profile: Option<String>,

    /// With --cargo: as --profile release
    #[arg(long, requires = "cargo", conflicts_with = "profile")]
    pub release: bool,
}

impl CargoArgs {
    /// Whether the program is a test program.
    pub fn is_test(&self) -> bool {
        self.tests || self.lib || self.test.is_some()
    }
}

/// Show the contents of an object and the memory that a link of it would allocate
///
/// Prints the sections that are loaded into memory, symbols, relocations, initialisers, undefined symbols, and the bytes of
/// each kind of memory that a link would allocate. Nothing is linked, looked up or run.
#[derive(Debug, Parser)]
#[command(after_help = concat!(
    "Exit status: 0; 2 if the command line is wrong; 125 if the file is not an object that can be linked, with one line on\n",
    "standard error that names the cause."
))]
pub struct InspectArgs {
    /// The object file
    #[arg(value_name = "OBJECT")]
    pub object: PathBuf,

    /// Write JSON instead of tables
    #[arg(long)]
    pub json: bool,
}

/// Show where objects are in code memory after they are linked
///
/// Links all objects, each under its own tracker, and draws the windows, pools and slabs of code memory, with the objects in
/// them and the free ranges. Nothing is run. Addresses differ between runs.
#[derive(Debug, Parser)]
#[command(after_help = concat!(
    "Example:\n  jittison map main.o list.o --svg map.svg\n\n",
    "Exit status: 0; 2 if the command line is wrong; 125 if the objects cannot be linked, with one line on standard error\n",
    "that names the cause."
))]
pub struct MapArgs {
    /// The object files
    #[arg(required = true, value_name = "OBJECT")]
    pub objects: Vec<PathBuf>,

    /// A shared library for symbols that no object defines; may be repeated. As for `run`
    #[arg(short, long = "library", value_name = "NAME")]
    pub libraries: Vec<OsString>,

    /// Also write the map as a picture for a browser
    #[arg(long, value_name = "FILE.svg")]
    pub svg: Option<PathBuf>,

    /// Write JSON instead of the drawing for a terminal; sizes and addresses are in bytes
    #[arg(long)]
    pub json: bool,
}

/// Link objects at fixed addresses and check the result against rules
///
/// Links all objects as `run` does, but runs nothing and uses no symbols of this process: define what the objects need with
/// --abs. Then evaluates the rules of a file: the lines that begin with `# jitlink-check:`, in the language of LLVM's linker
/// tests.
#[derive(Debug, Parser)]
#[command(after_help = concat!(
    "Example:\n  jittison check --rules test.s --base 0x10000000 --abs external=0x2000 test.o\n\n",
    "Exit status: 0 if every rule holds; 2 if the command line is wrong; 125 if a rule does not hold, with the rule, both\n",
    "values and their parts on standard error, or if the objects cannot be linked."
))]
pub struct CheckArgs {
    /// The object files
    #[arg(required = true, value_name = "OBJECT")]
    pub objects: Vec<PathBuf>,

    /// The file with the rules; it may be the assembly source of an object
    #[arg(long, value_name = "FILE")]
    pub rules: PathBuf,

    /// The address of the first object; the others follow it
    #[arg(long, value_name = "ADDRESS", value_parser = number)]
    pub base: Option<u64>,

    /// Define a symbol with a fixed value; may be repeated
    #[arg(long = "abs", value_name = "SYMBOL=VALUE", value_parser = definition)]
    pub absolute: Vec<(String, u64)>,

    /// Undefined symbols are null
    #[arg(long)]
    pub phony_externals: bool,
}

/// The commands and their options.
pub fn command() -> clap::Command {
    // Here, because `watch` and `run` share the argument, and only `watch` knows of builds.
    let files = |files: clap::Arg| files.required(false).required_unless_present_any(["compile_commands", "cargo"]);
    // `mut_arg` moves an argument to the end, so the other positional one follows it.
    Args::command().mut_subcommand("watch", |watch| watch.mut_arg("files", files).mut_arg("arguments", |same| same))
}

/// Parses a number, decimal or with `0x`.
fn number(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|problem| problem.to_string())
}

/// Parses `NAME=SYMBOL`.
fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, symbol)) if !name.is_empty() && !symbol.is_empty() => Ok((name.to_string(), symbol.to_string())),
        _ => Err("expected NAME=SYMBOL".to_string()),
    }
}

/// Parses `SYMBOL=VALUE`.
fn definition(text: &str) -> Result<(String, u64), String> {
    let (name, value) = text.split_once('=').ok_or("expected SYMBOL=VALUE")?;
    if name.is_empty() {
        return Err("the symbol has no name".to_string());
    }
    Ok((name.to_string(), number(value)?))
}

/// At the variant, because that of `run` would replace it at the struct.
const WATCH_HELP: &str = "Examples:\n  jittison watch --build make --source src main.o list.o -- one two\n  jittison watch --cargo -- one two\n\n\
    Exit status: that of the program; 2 if the command line is wrong; 125 if jittison fails before the program runs.";
const EXIT_STATUS: &str = "Exit status: that of the program that was run, or 0; 2 if the command line is wrong; 125 if jittison \
                           fails,\nwith one line on standard error.";
