//! `jittison watch`: runs a program as `run` does, and reloads its objects when they change.

use std::path::PathBuf;

use clap::ArgMatches;

use crate::args::WatchArgs;
use crate::run::run_program;

/// What to follow.
pub struct Followed {
    /// The command that builds the objects.
    pub build: Option<String>,
    /// The folders of its sources.
    pub sources: Vec<PathBuf>,
    /// Whether events are lines of JSON.
    pub is_json: bool,
}

/// Links the inputs, runs the program and follows its objects. Returns only if the program could not be run.
pub fn watch(args: &WatchArgs, matches: &ArgMatches) -> Result<(), String> {
    if args.run.no_exec {
        return Err("`watch` runs the program; leave --no-exec out".to_string());
    }
    let followed = Followed { build: args.build.clone(), sources: args.sources.clone(), is_json: args.json };
    run_program(&args.run, matches, Some(&followed))
}
