//! `jittison watch`: runs a program as `run` does, and reloads its objects when they change.

use std::path::PathBuf;

use clap::ArgMatches;

use crate::args::WatchArgs;
use crate::build::{Build, BuildCommand};
use crate::cargo::CargoBuild;
use crate::database::Database;
use crate::follower::real_path;
use crate::reload_lines::Lines;
use crate::run::run_program;
use crate::screen;

/// What to follow.
pub struct Followed {
    pub build: Build,
    pub lines: Lines,
}

/// Links the inputs, runs the program and follows its objects. Returns only if the program could not be run.
pub fn watch(args: &WatchArgs, matches: &ArgMatches) -> Result<(), String> {
    if args.run.no_exec {
        return Err("`watch` runs the program; leave --no-exec out".to_string());
    }
    if args.tui {
        return screen::supervise();
    }
    let lines = if args.screen_events { Lines::for_screen(screen::take_events()?) } else { Lines::new(args.json) };
    let build = build(args, &lines)?;
    run_program(&args.run, matches, Some(Followed { build, lines }))
}

/// How the objects are built. Sources of a compile database are compiled at once.
fn build(args: &WatchArgs, lines: &Lines) -> Result<Build, String> {
    if let Some(path) = &args.compile_commands {
        let mut database = Database::open(path, &args.only)?;
        let compiled = database.compile();
        compiled.map_err(|failure| {
            lines.build_failed(&failure);
            "the program was not started: its sources could not be compiled".to_string()
        })?;
        return Ok(Build::Database(database));
    }
    if args.cargo.cargo {
        return Ok(Build::Cargo(Box::new(CargoBuild::open(&args.cargo, lines)?)));
    }
    let Some(command) = args.build.clone() else { return Ok(Build::Elsewhere) };
    let sources: Result<Vec<PathBuf>, String> = args.sources.iter().map(|folder| real_path(folder)).collect();
    Ok(Build::Command(BuildCommand::new(command, sources?)))
}
