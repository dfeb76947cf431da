//! `jittison watch --cargo`: a Rust program without dependencies is built by Cargo and edited while it runs. `docs/watch.md` has a table
//! with a line for each test.

use std::fs;
use std::path::Path;

use jittison_test_support::{PrivateDir, require};
use serde_json::Value;

use crate::native::directory;
use crate::watch::Watched;

/// The loop that runs. For each line of its input it writes what `parts::answer` says.
const MAIN: &str = r#"
mod parts;
fn main() {
    let mut state = parts::start();
    for (number, line) in std::io::stdin().lines().enumerate() {
        match line {
            Ok(line) if line != "q" => println!("{}", parts::answer(&mut state, number as u64 + 1)),
            _ => break,
        }
    }
    std::process::exit(7);
}
"#;

/// A program that runs, and its package.
struct Running {
    watched: Watched,
}

impl Running {
    /// Starts a program of `main.rs` and `parts.rs`. `None` if Cargo is missing.
    fn start(parts: &str) -> Option<Running> {
        Running::start_package(&[("src/main.rs", MAIN), ("src/parts.rs", parts)], "")
    }

    fn start_package(files: &[(&str, &str)], dependencies: &str) -> Option<Running> {
        require("cargo")?;
        let directory = directory();
        let manifest = format!(
            "[package]\nname = \"edited\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n[dependencies]\n{dependencies}"
        );
        save(&directory, "Cargo.toml", &manifest);
        files.iter().for_each(|(file, text)| save(&directory, file, text));
        Some(Running { watched: Watched::start_in(directory, &["--cargo".to_string()]) })
    }

    fn save(&self, file: &str, text: &str) {
        save(&self.watched.directory, file, text);
    }

    /// Saves the edited part, and waits until it runs.
    fn edit(&mut self, parts: &str) -> Value {
        self.save("src/parts.rs", parts);
        let event = self.watched.event();
        assert_eq!(event["event"], "reloaded", "{event}");
        event
    }

    /// Saves a part that cannot follow. Returns the error.
    fn edit_refused(&mut self, parts: &str) -> String {
        self.save("src/parts.rs", parts);
        let event = self.watched.event();
        assert_eq!(event["event"], "refused", "{event}");
        event["error"].as_str().expect("it says why").to_string()
    }

    fn ask(&mut self) -> String {
        self.watched.ask()
    }
}

fn save(directory: &Path, file: &str, text: &str) {
    let path = directory.join(file);
    fs::create_dir_all(path.parent().expect("it is in a folder")).expect("the directory is writable");
    fs::write(path, text).expect("the directory is writable");
}

/// A part whose state is a number.
fn part(body: &str, more: &str) -> String {
    format!(
        "pub struct State(u64);\npub fn start() -> State {{ State(100) }}\n\
         pub fn answer(state: &mut State, number: u64) -> String {{ let _ = (&state.0, number); {body} }}\n{more}"
    )
}

#[test]
fn functions_of_a_cargo_package_follow() {
    let Some(mut program) = Running::start(&part("format!(\"first {number}\")", "")) else { return };
    assert_eq!(program.ask(), "first 1");
    let event =
        program.edit(&part("format!(\"second {} {}\", twice(number), state.0)", "fn twice(n: u64) -> u64 { 2 * n }"));
    let names = |list: &Value| list.as_array().expect("a list").iter().map(Value::to_string).collect::<String>();
    assert!(names(&event["added"]).contains("twice"), "{event}");
    assert_eq!(program.ask(), "second 4 100");
    program.edit(&part("format!(\"second {} {}\", twice(number), state.0)", "fn twice(n: u64) -> u64 { 20 * n }"));
    assert_eq!(program.ask(), "second 60 100");
    assert_eq!(program.watched.end(), (Some(7), String::new()));
}
