//! `examples/watch_rust`: a server of tokio and serde whose pages are edited while it runs.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;

use jittison_test_support::{require, require_that};
use predicates::str::contains;

use crate::cargo::save;
use crate::native::{cargo_jittison, directory};
use crate::watch::Watched;

#[test]
fn the_example_serves_pages_that_follow() {
    // Shares the process: the text with the hook is that of another program.
    let Some(mut cargo) = require("cargo") else { return };
    let directory = directory();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/watch_rust");
    let read = |file: &str| fs::read_to_string(example.join(file)).expect("the example is there");
    for file in ["Cargo.toml", "Cargo.lock", "src/main.rs", "src/pages.rs"] {
        save(&directory, file, &read(file));
    }
    let fetched = cargo.args(["fetch", "--locked"]).current_dir(&*directory).output().expect("Cargo runs");
    if !require_that(fetched.status.success(), "the registry of Cargo, for tokio and serde") {
        return;
    }
    // Its tests. They have the same dependencies, which are built once.
    let mut tests = cargo_jittison(&directory);
    tests
        .args(["jittison", "run", "--tests", "--bin", "watch_rust"])
        .assert()
        .success()
        .stdout(contains("test pages::tests::notes_are_in_the_book ... ok"));

    let arguments = ["--cargo", "--", "0"].map(String::from);
    let mut watched = Watched::start_in(directory, &arguments);
    let address = watched.line().trim_start_matches("http://").trim_end_matches('/').to_string();
    let ask = |path: &str| {
        let mut stream = TcpStream::connect(&address).expect("the server listens");
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").expect("the server reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("the answer is text");
        answer.lines().last().unwrap_or_default().trim().to_string()
    };
    assert_eq!((ask("/"), ask("/squares")), ("hello, visitor 1".to_string(), "1 4 9 16 25".to_string()));
    assert_eq!(ask("/add/milk"), "1 notes");
    let edited = read("src/pages.rs").replace("hello, visitor", "good day, visitor").replace("n * n", "n * n * n");
    let mut edit = |file: &str, text: &str, expected: &str| {
        save(&watched.directory, file, text);
        let event = watched.event();
        assert_eq!(event["event"], expected, "{event}");
    };
    // Handlers, and what their tasks call. The book has kept its values.
    edit("src/pages.rs", &edited, "reloaded");
    assert_eq!((ask("/"), ask("/squares")), ("good day, visitor 4".to_string(), "1 8 27 64 125".to_string()));
    let book = r#"{"visits":6,"notes":[{"text":"milk","visit":3}]}"#;
    assert_eq!(ask("/book"), book);
    // Another `async` function whose state is larger, and what serde writes.
    let larger = edited
        .replace("squares(5).await,", "later(&book).await,")
        .replace("    text: String,\n", "    #[serde(rename = \"what\")]\n    text: String,\n");
    let later = "async fn later(book: &Book) -> String { let all = [2; 30]; tokio::task::yield_now().await; let first = squares(3).await;
        format!(\"{first}{} {}\", all.iter().sum::<u64>(), book.visits.load(Ordering::Relaxed)) }";
    edit("src/pages.rs", &format!("{larger}\n{later}\n"), "reloaded");
    assert_eq!((ask("/squares"), ask("/add/tea")), ("60 7".to_string(), "2 notes".to_string()));
    let book = r#"{"visits":9,"notes":[{"what":"milk","visit":3},{"what":"tea","visit":8}]}"#;
    assert_eq!(ask("/book"), book);
    // A page that panics, and a layout that cannot follow.
    let panics = edited.replace(
        "    let tasks",
        "    std::panic::set_hook(Box::new(|_| ())); if count == 5 { panic!() }\n    let tasks",
    );
    edit("src/pages.rs", &panics, "reloaded");
    assert_eq!((ask("/squares"), ask("/")), ("this page panicked".to_string(), "good day, visitor 11".to_string()));
    let layout =
        edited.replace("    visit: u64,", "    visit: u64,\n    more: u64,").replace("visit })", "visit, more: 1 })");
    edit("src/pages.rs", &layout, "refused");
    assert_eq!(ask("/"), "good day, visitor 12");
    // The task of each request is started anew, so `serve` follows, too.
    edit("src/pages.rs", &edited, "reloaded");
    edit(
        "src/main.rs",
        &read("src/main.rs").replace("\"200 OK\", body", "\"200 OK\", body.to_uppercase()"),
        "reloaded",
    );
    assert_eq!(ask("/"), "GOOD DAY, VISITOR 13");
}
