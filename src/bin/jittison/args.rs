//! What can be typed, and the help texts.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// Links object files inside this process, without a linker, a file or a process of their own.
///
/// Objects are relocatable ELF files for x86-64 Linux, as `gcc -c` makes them.
#[derive(Debug, Parser)]
#[command(name = "jittison", version, after_help = STATUS)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Run(RunArgs),
    Inspect(InspectArgs),
    Map(MapArgs),
    Check(CheckArgs),
}

/// Link objects and archives and run them as a program
///
/// Links all objects and what they need of the archives, runs their initialisers (static constructors), calls `main` with
/// the arguments behind `--`, runs exit handlers and finalisers (static destructors), takes everything out of memory again,
/// and exits with what main returned. The program runs in this process, with all its rights.
#[derive(Debug, Parser)]
#[command(after_help = concat!(
    "Example:\n  gcc -c -fPIC main.c list.c\n  jittison run main.o list.o libtree.a -l z --report report.json -- one two\n\n",
    "Exit status: that of the program; 2 if the command line makes no sense; 125 if jittison itself fails, with one line\n",
    "on standard error. A program that dies of a signal takes this process with it, as it would alone."
))]
pub struct RunArgs {
    /// Object files and archives (libx.a); of archives, the members that something needs
    ///
    /// Archives satisfy each other's references and those of objects behind them, in any order. Where several define a name,
    /// the first one counts. Archives are mapped: do not change them while they are linked.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// An archive of which every member is linked; may be repeated
    #[arg(long, value_name = "ARCHIVE")]
    pub whole_archive: Vec<PathBuf>,

    /// Put the files and libraries behind this into a dylib of that name; may be repeated
    ///
    /// What stands before the first one is in `main`. A dylib sees its own symbols first, then what the others export, in the
    /// order of the command line, then the process and its libraries.
    #[arg(long, value_name = "NAME")]
    pub dylib: Vec<String>,

    /// The function to call: int SYMBOL(int argc, char **argv)
    #[arg(long, value_name = "SYMBOL", default_value = "main")]
    pub entry: String,

    /// A library for symbols that no file defines; may be repeated
    ///
    /// A path (has a slash), a file name (libz.so.1), or a bare name: z means libz.so, libz.a or libz.so.N, in the
    /// directories of -L first. The C library is there already; libm, libstdc++ and libgcc_s are looked into last, without
    /// being asked for.
    #[arg(short, long = "library", value_name = "NAME")]
    pub libraries: Vec<OsString>,

    /// A directory to look for libraries in, ahead of the system's; may be repeated
    #[arg(short = 'L', long = "library-path", value_name = "DIRECTORY")]
    pub library_paths: Vec<PathBuf>,

    /// Define a symbol with a fixed value; may be repeated
    #[arg(long = "define", visible_alias = "abs", value_name = "SYMBOL=VALUE", value_parser = definition)]
    pub absolute: Vec<(String, u64)>,

    /// Define a symbol that stands for another; may be repeated
    #[arg(long, value_name = "NAME=SYMBOL", value_parser = pair)]
    pub alias: Vec<(String, String)>,

    /// Threads that link, none for the main thread [default: as many as processors, if the files have a megabyte or more]
    ///
    /// They end before the program begins. However many there are, the same members of archives are linked, and initialisers
    /// run in the same order.
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,

    /// Link, and run nothing: not in this process's memory, and without its symbols
    #[arg(long)]
    pub no_exec: bool,

    /// With --no-exec: where the first object would stand; the others stand behind it
    #[arg(long, value_name = "ADDRESS", value_parser = number, requires = "no_exec")]
    pub base: Option<u64>,

    /// With --no-exec: take what nobody defines for null
    #[arg(long, requires = "no_exec")]
    pub phony_externals: bool,

    /// Write what was done, how long it took and what memory it held, as JSON
    ///
    /// Written when the program has returned or called exit, and its finalisers have run; the file stays empty if it ends
    /// in another way.
    #[arg(long, value_name = "FILE.json")]
    pub report: Option<PathBuf>,

    /// Say on standard error what is linked, redirected, removed and mapped, as it happens
    #[arg(long, conflicts_with = "no_exec")]
    pub trace: bool,

    /// What the program gets as argv[1], argv[2] and so on; argv[0] is the first file's path
    #[arg(last = true, value_name = "ARGS")]
    pub arguments: Vec<OsString>,
}

/// Show what an object consists of and what linking it would take
///
/// Lists sections that would be in memory, symbols, relocations, initialisers, what has to be found elsewhere, and how many
/// bytes of which kind of memory a link would ask for. Nothing is linked, looked up or run.
#[derive(Debug, Parser)]
#[command(after_help = concat!(
    "Exit status: 0; 2 if the command line makes no sense; 125 if the file is no object that can be linked, with one line\n",
    "on standard error that says why."
))]
pub struct InspectArgs {
    /// The object file
    #[arg(value_name = "OBJECT")]
    pub object: PathBuf,

    /// Write JSON instead of tables
    #[arg(long)]
    pub json: bool,
}

/// Show where objects stand in code memory once they are linked
///
/// Links all objects, each under a tracker of its own, and draws the windows, pools and slabs of code memory with what lives
/// in them and what is free. Nothing is run. Addresses differ from one time to the next.
#[derive(Debug, Parser)]
#[command(after_help = concat!(
    "Example:\n  jittison map main.o list.o --svg map.svg\n\n",
    "Exit status: 0; 2 if the command line makes no sense; 125 if the objects cannot be linked, with one line on standard\n",
    "error that says why."
))]
pub struct MapArgs {
    /// The object files
    #[arg(required = true, value_name = "OBJECT")]
    pub objects: Vec<PathBuf>,

    /// A shared library for symbols that no object defines; may be repeated. As for `run`
    #[arg(short, long = "library", value_name = "NAME")]
    pub libraries: Vec<OsString>,

    /// Write the picture for a browser, too
    #[arg(long, value_name = "FILE.svg")]
    pub svg: Option<PathBuf>,

    /// Write JSON instead of the picture for a terminal; sizes and addresses are numbers of bytes
    #[arg(long)]
    pub json: bool,
}

/// Link objects at fixed addresses and check the result against rules
///
/// Links all objects as `run` does, but runs nothing and takes nothing from this process: what they need and do not have has
/// to be given. Then evaluates the rules of a file, lines that begin with `# jitlink-check:`, in the language of LLVM's own
/// linker tests.
#[derive(Debug, Parser)]
#[command(after_help = concat!(
    "Example:\n  jittison check --rules test.s --base 0x10000000 --abs external=0x2000 test.o\n\n",
    "Exit status: 0 if every rule holds; 2 if the command line makes no sense; 125 if one does not, with the rule, both\n",
    "values and their parts on standard error, or if the objects cannot be linked."
))]
pub struct CheckArgs {
    /// The object files
    #[arg(required = true, value_name = "OBJECT")]
    pub objects: Vec<PathBuf>,

    /// The file with the rules, which may be the objects' assembly source
    #[arg(long, value_name = "FILE")]
    pub rules: PathBuf,

    /// Where the first object stands; the others stand behind it
    #[arg(long, value_name = "ADDRESS", value_parser = number)]
    pub base: Option<u64>,

    /// A symbol with a fixed value; may be repeated
    #[arg(long = "abs", value_name = "SYMBOL=VALUE", value_parser = definition)]
    pub absolute: Vec<(String, u64)>,

    /// Take what nobody defines for null
    #[arg(long)]
    pub phony_externals: bool,
}

/// A number, decimal or with `0x`.
fn number(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|problem| problem.to_string())
}

/// `NAME=SYMBOL`.
fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, symbol)) if !name.is_empty() && !symbol.is_empty() => Ok((name.to_string(), symbol.to_string())),
        _ => Err("NAME=SYMBOL is wanted".to_string()),
    }
}

/// `SYMBOL=VALUE`.
fn definition(text: &str) -> Result<(String, u64), String> {
    let (name, value) = text.split_once('=').ok_or("SYMBOL=VALUE is wanted")?;
    if name.is_empty() {
        return Err("the symbol has no name".to_string());
    }
    Ok((name.to_string(), number(value)?))
}

const STATUS: &str = "Exit status: that of the program that was run, or 0; 2 if the command line makes no sense; 125 if \
                      jittison itself\nfails, with one line on standard error.";
