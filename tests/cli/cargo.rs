//! `jittison watch --cargo`: a Rust program without dependencies is built by Cargo and edited while it runs. `docs/watch.md` has a table
//! with a line for each test.

use std::fs;
use std::path::Path;

use jittison_test_support::require;
use serde_json::Value;

use crate::native::{FAILED, cargo_jittison, directory, jittison};
use crate::watch::Watched;

/// The loop that runs. For each line of its input it writes what `parts::answer` says.
pub const MAIN: &str = r#"
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
pub struct Running {
    pub watched: Watched,
}

impl Running {
    /// Starts a program of `main.rs` and `parts.rs`. `None` if Cargo is missing.
    pub fn start(parts: &str) -> Option<Running> {
        Running::start_package(&[("src/main.rs", MAIN), ("src/parts.rs", parts)], "")
    }

    pub fn start_package(files: &[(&str, &str)], dependencies: &str) -> Option<Running> {
        Running::start_with(&[], files, dependencies)
    }

    /// Starts a package with more options of `watch`, and these dependencies.
    pub fn start_with(options: &[&str], files: &[(&str, &str)], dependencies: &str) -> Option<Running> {
        require("cargo")?;
        let directory = directory();
        let manifest = format!(
            "[package]\nname = \"edited\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n[dependencies]\n{dependencies}"
        );
        save(&directory, "Cargo.toml", &manifest);
        files.iter().for_each(|(file, text)| save(&directory, file, text));
        let arguments: Vec<String> = ["--cargo"].iter().chain(options).map(|option| option.to_string()).collect();
        Some(Running { watched: Watched::start_in(directory, &arguments) })
    }

    pub fn save(&self, file: &str, text: &str) {
        save(&self.watched.directory, file, text);
    }

    /// Saves the edited part, and waits until it runs.
    pub fn edit(&mut self, parts: &str) -> Value {
        self.save("src/parts.rs", parts);
        let event = self.watched.event();
        assert_eq!(event["event"], "reloaded", "{event}");
        event
    }

    /// Saves a part that cannot follow. Returns the error.
    pub fn edit_refused(&mut self, parts: &str) -> String {
        self.save("src/parts.rs", parts);
        let event = self.watched.event();
        assert_eq!(event["event"], "refused", "{event}");
        event["error"].as_str().expect("it says why").to_string()
    }

    pub fn ask(&mut self) -> String {
        self.watched.ask()
    }
}

pub fn save(directory: &Path, file: &str, text: &str) {
    let path = directory.join(file);
    fs::create_dir_all(path.parent().expect("it is in a folder")).expect("the directory is writable");
    fs::write(path, text).expect("the directory is writable");
}

/// A part whose state is a number.
pub fn part(body: &str, more: &str) -> String {
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
    program.edit(&part(
        "format!(\"{TEXT} {} {}\", twice(number), state.0)",
        "static TEXT: &str = \"third\"; fn twice(n: u64) -> u64 { 20 * n }",
    ));
    assert_eq!(program.ask(), "third 60 100");
    program.edit(&part(
        "format!(\"{TEXT} {} {}\", twice(number), state.0)",
        "static TEXT: &str = \"fourth\"; fn twice(n: u64) -> u64 { 20 * n }",
    ));
    assert_eq!(program.ask(), "fourth 80 100");
    assert_eq!(program.watched.end(), (Some(7), String::new()));
}

#[test]
fn a_cargo_package_that_runs_in_an_executor_follows() {
    let files = [("src/main.rs", MAIN), ("src/parts.rs", &*part("format!(\"first {number}\")", ""))];
    let Some(mut program) = Running::start_with(&["--executor"], &files, "") else { return };
    assert_eq!(program.ask(), "first 1");
    program.edit(&part("format!(\"second {number}\")", ""));
    assert_eq!(program.ask(), "second 2");
    assert_eq!(program.watched.end(), (Some(7), String::new()));
}

#[test]
fn statics_and_thread_locals_keep_their_values() {
    let part = |text: &str, more: &str| {
        let body = format!(
            "use std::sync::atomic::{{AtomicU64, Ordering::Relaxed}};
             static COUNT: AtomicU64 = AtomicU64::new(10);
             LOCAL.set(LOCAL.get() + 1); LIST.with_borrow_mut(|list| list.push(number));
             format!(\"{text} {{}} {{}} {{}}\", COUNT.fetch_add(1, Relaxed), LOCAL.get(), LIST.with_borrow(|list| list.len()))"
        );
        let locals = "use std::cell::{Cell, RefCell};
            thread_local! { static LOCAL: Cell<u64> = const { Cell::new(20) }; static LIST: RefCell<Vec<u64>> = RefCell::new(Vec::new()); }";
        self::part(&body, &format!("{locals} {more}"))
    };
    let Some(mut program) = Running::start(&part("a", "")) else { return };
    assert_eq!(program.ask(), "a 10 21 1");
    program.edit(&part("b", ""));
    assert_eq!(program.ask(), "b 11 22 2");
    // A new `static`, and a new thread-local one.
    let more = "use std::sync::atomic::{AtomicU64, Ordering::Relaxed}; static NEW: AtomicU64 = AtomicU64::new(30);
        thread_local! { static FRESH: Cell<u64> = Cell::new(40); }
        pub fn fresh() -> u64 { FRESH.set(FRESH.get() + 1); FRESH.get() + NEW.fetch_add(100, Relaxed) }";
    program.edit(&part("c", more).replace("\"c ", "\"c {} ").replace("COUNT.fetch", "fresh(), COUNT.fetch"));
    assert_eq!(program.ask(), "c 71 12 23 3");
    assert_eq!(program.ask(), "c 172 13 24 4");
}

#[test]
fn instances_of_generics_and_methods_of_dyn_objects_follow() {
    let part = |speak: &str, wrap: &str| {
        format!(
            "pub trait Speak {{ fn speak(&self) -> String; }}
             struct Dog; struct Cat(u64);
             impl Speak for Dog {{ fn speak(&self) -> String {{ \"wuff\".to_string() }} }}
             impl Speak for Cat {{ fn speak(&self) -> String {{ {speak} }} }}
             pub struct State(Vec<Box<dyn Speak>>);
             pub fn start() -> State {{ State(vec![Box::new(Dog), Box::new(Cat(3))]) }}
             fn wrap<T: std::fmt::Display>(value: T) -> String {{ {wrap} }}
             pub fn answer(state: &mut State, number: u64) -> String {{
                 let all: Vec<String> = state.0.iter().map(|one| one.speak()).collect();
                 format!(\"{{}} {{}}\", all.join(\" \"), wrap(number))
             }}"
        )
    };
    let Some(mut program) = Running::start(&part("format!(\"miau {}\", self.0)", "format!(\"<{value}>\")")) else {
        return;
    };
    assert_eq!(program.ask(), "wuff miau 3 <1>");
    program.edit(&part("format!(\"meow {}\", 10 * self.0)", "format!(\"<{value}>\")"));
    assert_eq!(program.ask(), "wuff meow 30 <2>");
    program.edit(&part("format!(\"meow {}\", 10 * self.0)", "format!(\"[{value}|{value}]\")"));
    assert_eq!(program.ask(), "wuff meow 30 [3|3]");
}

#[test]
fn a_closure_that_was_stored_stays_as_it_was() {
    let part = |closure: &str| {
        format!(
            "pub struct State(Vec<Box<dyn Fn(u64) -> String>>);
             pub fn start() -> State {{ State(vec![make(1)]) }}
             fn make(first: u64) -> Box<dyn Fn(u64) -> String> {{ {closure} }}
             fn show(value: u64) -> String {{ format!(\"old {{value}}\") }}
             pub fn answer(state: &mut State, number: u64) -> String {{
                 if number == 2 {{ state.0.push(make(2)); }}
                 let all: Vec<String> = state.0.iter().map(|one| one(number)).collect();
                 all.join(\" \")
             }}"
        )
    };
    let before = part("Box::new(move |n| format!(\"{}/{}\", show(first), n))");
    let Some(mut program) = Running::start(&before) else { return };
    assert_eq!(program.ask(), "old 1/1");
    // It has more in it. What the old one calls follows.
    let larger = "let text = \"y\".repeat(3); Box::new(move |n| format!(\"{text}{}/{}\", show(first), n))";
    program.edit(&part(larger).replace("old {", "mid {"));
    assert_eq!(program.ask(), "mid 1/2 yyymid 2/2");
    // There is one before it.
    let after = "let text = \"x\".repeat(3); let f = move |n: u64| n + first; Box::new(move |n| format!(\"{text}{}{}\", f(n), first))";
    program.edit(&part(after).replace("old {", "new {"));
    assert_eq!(program.ask(), "new 1/3 yyynew 2/3");
    program.edit(&part("Box::new(move |_| first.to_string())").replace("old {", "last {"));
    assert_eq!(program.ask(), "last 1/4 yyylast 2/4");
}

#[test]
fn a_future_that_began_ends_as_it_was_and_the_next_one_is_new() {
    let part = |body: &str| {
        format!(
            "use std::{{future::Future, pin::Pin, task::{{Context, Poll, Waker}}}};
             pub struct State(Option<Pin<Box<dyn Future<Output = String>>>>);
             pub fn start() -> State {{ State(None) }}
             struct Yield(bool);
             impl Future for Yield {{
                 type Output = ();
                 fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {{
                     if std::mem::replace(&mut self.0, true) {{ Poll::Ready(()) }} else {{ Poll::Pending }}
                 }}
             }}
             async fn inner(n: u64) -> String {{ {body} }}
             async fn task(n: u64) -> String {{ let first = inner(n).await; let second = inner(n + 1).await; format!(\"{{first}} {{second}}\") }}
             pub fn answer(state: &mut State, number: u64) -> String {{
                 let mut task = state.0.take().unwrap_or_else(|| Box::pin(task(number)));
                 match task.as_mut().poll(&mut Context::from_waker(Waker::noop())) {{
                     Poll::Ready(text) => text,
                     Poll::Pending => {{ state.0 = Some(task); format!(\"{{number}}\") }}
                 }}
             }}"
        )
    };
    let Some(mut program) = Running::start(&part("Yield(false).await; format!(\"old {n}\")")) else { return };
    assert_eq!(program.ask(), "1");
    // The state of the new one is larger and has one more step.
    program.edit(&part(
        "let all = [n; 50]; Yield(false).await; Yield(false).await; format!(\"new {}\", all.iter().sum::<u64>())",
    ));
    assert_eq!((program.ask(), program.ask()), ("2".to_string(), "old 1 old 2".to_string()));
    let answers: Vec<String> = (0..5).map(|_| program.ask()).collect();
    assert_eq!(answers, ["4", "5", "6", "7", "new 200 new 250"]);
}

#[test]
fn panics_pass_from_new_code_to_old_code_and_drop_what_is_between() {
    // Shares the process: the text with the hook is that of another program.
    let part = |fails: &str| {
        format!(
            "use std::panic::{{catch_unwind, AssertUnwindSafe}};
             pub struct State(Box<dyn Fn(u64) -> String>);
             struct Dropped<'a>(&'a std::cell::Cell<u64>);
             impl Drop for Dropped<'_> {{ fn drop(&mut self) {{ self.0.set(self.0.get() + 1); }} }}
             fn fails(number: u64) {{ {fails} }}
             fn between(number: u64, count: &std::cell::Cell<u64>) {{ let _dropped = Dropped(count); fails(number); }}
             pub fn start() -> State {{
                 std::panic::set_hook(Box::new(|_| ()));
                 State(Box::new(|number| {{
                     let count = std::cell::Cell::new(0);
                     let caught = catch_unwind(AssertUnwindSafe(|| between(number, &count)));
                     let text = caught.err().and_then(|panic| panic.downcast_ref::<String>().cloned());
                     format!(\"{{text:?}} {{}}\", count.get())
                 }}))
             }}
             pub fn answer(state: &mut State, number: u64) -> String {{ (state.0)(number) }}"
        )
    };
    let Some(mut program) = Running::start(&part("let _ = number;")) else { return };
    assert_eq!(program.ask(), "None 1");
    program.edit(&part("panic!(\"new {number}\")"));
    assert_eq!(program.ask(), "Some(\"new 2\") 1");
    program.edit(&part("let empty = [0u8; 2]; let _ = empty[number as usize];"));
    assert_eq!(program.ask(), "Some(\"index out of bounds: the len is 2 but the index is 3\") 1");
}

#[test]
fn threads_that_run_follow_at_their_next_call() {
    let part = |work: &str| {
        format!(
            "use std::sync::mpsc::{{channel, Receiver, Sender}};
             pub struct State(Vec<(Sender<u64>, Receiver<String>)>);
             pub fn start() -> State {{
                 State((0..4).map(|thread| {{
                     let (questions, asked) = channel();
                     let (answers, answered) = channel();
                     std::thread::spawn(move || for number in asked {{ answers.send(work(thread, number)).unwrap(); }});
                     (questions, answered)
                 }}).collect())
             }}
             thread_local! {{ static CALLS: std::cell::RefCell<Vec<u64>> = std::cell::RefCell::new(Vec::new()); }}
             fn calls(number: u64) -> usize {{ CALLS.with_borrow_mut(|calls| {{ calls.push(number); calls.len() }}) }}
             fn work(thread: u64, number: u64) -> String {{ {work} }}
             pub fn answer(state: &mut State, number: u64) -> String {{
                 state.0.iter().for_each(|(questions, _)| questions.send(number).unwrap());
                 state.0.iter().map(|(_, answers)| answers.recv().unwrap()).collect::<Vec<_>>().join(\" \")
             }}"
        )
    };
    let Some(mut program) = Running::start(&part("format!(\"{}\", thread + number + calls(number) as u64 - 1)")) else {
        return;
    };
    assert_eq!(program.ask(), "1 2 3 4");
    for round in 1..4 {
        program.edit(&part(&format!("format!(\"{round}:{{}}/{{}}\", thread * number, calls(number))")));
        let expected: Vec<String> =
            (0..4).map(|thread| format!("{round}:{}/{}", thread * (round + 1), round + 1)).collect();
        assert_eq!(program.ask(), expected.join(" "));
    }
}

#[test]
fn threads_that_never_stop_calling_follow_many_edits() {
    let part = |result: u64| {
        format!(
            "use std::sync::atomic::{{AtomicU64, Ordering::Relaxed}};
             static WRONG: AtomicU64 = AtomicU64::new(0);
             static NEWEST: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
             pub struct State;
             pub fn start() -> State {{
                 for thread in 0..2 {{
                     std::thread::spawn(move || loop {{
                         let text: String = (0..10).map(|n| result(n)).map(|n| char::from(b'a' + n as u8)).collect();
                         let first = text.bytes().next().unwrap_or(0);
                         NEWEST[thread].fetch_max(u64::from(first - b'a'), Relaxed);
                     }});
                 }}
                 State
             }}
             #[inline(never)] fn result(n: u64) -> u64 {{ if n > 9 {{ WRONG.fetch_add(1, Relaxed); }} {result} }}
             pub fn answer(_: &mut State, _: u64) -> String {{
                 let is_newest = || NEWEST.iter().all(|newest| newest.load(Relaxed) == {result});
                 while !is_newest() {{ std::thread::yield_now(); }}
                 format!(\"{{}} {{}}\", {result}, WRONG.load(Relaxed))
             }}"
        )
    };
    let Some(mut program) = Running::start(&part(0)) else { return };
    assert_eq!(program.ask(), "0 0");
    for result in 1..6 {
        program.edit(&part(result));
        assert_eq!(program.ask(), format!("{result} 0"));
    }
}

#[test]
fn a_source_that_does_not_compile_changes_nothing_and_its_error_is_shown() {
    let Some(mut program) = Running::start(&part("format!(\"a {number}\")", "")) else { return };
    program.save("src/parts.rs", &part("format!(\"b {nummer}\")", ""));
    let event = program.watched.event();
    assert_eq!(event["event"], "build_failed", "{event}");
    let output = event["output"].as_str().expect("a text");
    assert!(output.contains("nummer") && output.contains("src/parts.rs"), "{output}");
    assert_eq!(program.ask(), "a 1");
    program.edit(&part("format!(\"c {number}\")", ""));
    assert_eq!(program.ask(), "c 2");

    program.save("src/parts.rs", "!");
    let started = jittison(&program.watched.directory).args(["watch", "--json", "--cargo"]).assert().code(FAILED);
    let shown = String::from_utf8_lossy(&started.get_output().stderr).into_owned();
    assert!(shown.contains("\"build_failed\"") && shown.contains("src/parts.rs"), "{shown}");
}

#[test]
fn a_function_with_other_types_follows_in_new_callers_and_loops_go_on_with_the_old_one() {
    let part = |tick: &str, call: &str, show: &str| {
        format!(
            "use std::sync::mpsc::{{channel, Receiver, Sender}};
             pub struct State(Sender<u64>, Receiver<String>);
             pub fn start() -> State {{
                 let (questions, asked) = channel(); let (answers, answered) = channel();
                 std::thread::spawn(move || for number in asked {{ answers.send(looped(number)).unwrap(); let _ = {call}; }});
                 State(questions, answered)
             }}
             fn looped(number: u64) -> String {{ {call} }}
             {tick}
             pub fn answer(state: &mut State, number: u64) -> String {{
                 state.0.send(number).unwrap();
                 format!(\"{{}} {{}}\", state.1.recv().unwrap(), {show})
             }}"
        )
    };
    let before = part("fn tick(n: u64) -> String { format!(\"a{n}\") }", "tick(number)", "tick(number)");
    let Some(mut program) = Running::start(&before) else { return };
    assert_eq!(program.ask(), "a1 a1");
    let after = "fn tick(text: &str, n: f64) -> String { format!(\"{text}{n:.1}\") }";
    program.edit(&part(after, "tick(\"b\", number as f64)", "tick(\"c\", number as f64)"));
    assert_eq!(program.ask(), "b2.0 c2.0");
    program.edit(&part(after, "tick(\"d\", number as f64)", "tick(\"e\", number as f64)").replace(":.1", ":.2"));
    assert_eq!(program.ask(), "d3.00 e3.00");
}

#[test]
fn crates_of_the_workspace_follow_with_each_other() {
    let main = MAIN.replace("mod parts;", "mod parts; ");
    let parts = |text: &str| {
        format!(
            "use std::{{future::Future, pin::Pin, task::{{Context, Poll, Waker}}}};
             pub struct State(near::Kept); pub fn start() -> State {{ State(near::Kept::default()) }}
             pub fn answer(state: &mut State, number: u64) -> String {{
                 let mut task: Pin<Box<dyn Future<Output = u64>>> = Box::pin(async move {{ near::later(number).await + 1 }});
                 let later = match task.as_mut().poll(&mut Context::from_waker(Waker::noop())) {{ Poll::Ready(n) => n, Poll::Pending => 0 }};
                 format!(\"{text} {{}} {{}} {{later}} {{}}\", near::name(), state.0.next(), near::adder(number)(1))
             }}"
        )
    };
    let near = |name: &str, adder: &str, later: &str| {
        format!(
            "#[derive(Default)] pub struct Kept {{ count: u64 }} impl Kept {{ pub fn next(&mut self) -> u64 {{ self.count += 1; self.count }} }}
             pub fn name() -> &'static str {{ \"{name}\" }}
             pub fn adder(n: u64) -> impl Fn(u64) -> u64 {{ {adder} }}
             pub async fn later(n: u64) -> u64 {{ {later} }}"
        )
    };
    let manifest = "[package]\nname = \"near\"\nversion = \"0.1.0\"\nedition = \"2021\"\n";
    let first = near("near", "move |m| n + m", "n");
    let files = [
        ("src/main.rs", &*main),
        ("src/parts.rs", &parts("a")),
        ("near/Cargo.toml", manifest),
        ("near/src/lib.rs", &first),
    ];
    let Some(mut program) = Running::start_package(&files, "near = { path = \"near\" }") else { return };
    assert_eq!(program.ask(), "a near 1 2 2");
    program.save("near/src/lib.rs", &near("far", "move |m| n + m", "n"));
    let event = program.watched.event();
    assert_eq!(event["event"], "reloaded", "{event}");
    assert_eq!(program.ask(), "a far 2 3 3");
    // The types of the closure and of the future change, so the program is linked with them.
    let second = near(
        "far",
        "let all = [n; 40]; move |m| all.iter().sum::<u64>() + m",
        "let all = [n; 9]; std::future::ready(()).await; all.iter().sum()",
    );
    program.save("near/src/lib.rs", &second);
    let events = [program.watched.event(), program.watched.event()];
    assert!(events.iter().all(|event| event["event"] == "reloaded"), "{events:?}");
    assert_eq!(program.ask(), "a far 3 28 121");
    // The program alone. It finds those of the newest version.
    program.edit(&parts("b"));
    assert_eq!(program.ask(), "b far 4 37 161");
}

#[test]
fn a_new_source_is_seen_when_it_is_saved() {
    let Some(mut program) = Running::start(&part("format!(\"{number}\")", "")) else { return };
    let parts = part("format!(\"{}\", inner::value(number))", "#[path = \"inner.rs\"] mod inner;");
    program.save("src/parts.rs", &parts);
    assert_eq!(program.watched.event()["event"], "build_failed");
    program.save("src/inner.rs", "pub fn value(n: u64) -> u64 { 1000 + n }");
    assert_eq!(program.watched.event()["event"], "reloaded");
    assert_eq!(program.ask(), "1001");
    program.save("src/inner.rs", "pub fn value(n: u64) -> u64 { 2000 + n }");
    assert_eq!(program.watched.event()["event"], "reloaded");
    assert_eq!(program.ask(), "2002");
}

#[test]
fn methods_follow_after_an_impl_block_came_before_theirs() {
    let part = |blocks: &str, text: &str| {
        format!(
            "pub trait Speak {{ fn speak(&self) -> String; }} struct Dog; struct Cat;
             impl Speak for Dog {{ fn speak(&self) -> String {{ \"{text}\".to_string() }} }}
             {blocks}
             impl Cat {{ fn name(&self) -> String {{ \"cat {text}\".to_string() }} }}
             impl Speak for Cat {{ fn speak(&self) -> String {{ self.name() }} }}
             pub struct State(Vec<Box<dyn Speak>>); pub fn start() -> State {{ State(vec![Box::new(Dog), Box::new(Cat)]) }}
             pub fn answer(state: &mut State, _: u64) -> String {{ state.0.iter().map(|one| one.speak() + \" \").collect() }}"
        )
    };
    let Some(mut program) = Running::start(&part("", "a")) else { return };
    assert_eq!(program.ask(), "a cat a");
    let blocks = "impl Dog { pub fn more(&self) -> u64 { 1 } } #[derive(Clone, Debug)] pub struct Bird(u64);";
    program.edit(&part(blocks, "b"));
    assert_eq!(program.ask(), "b cat b");
    program.edit(&part(&format!("{blocks} impl Cat {{ pub fn more(&self) -> u64 {{ 2 }} }}"), "c"));
    assert_eq!(program.ask(), "c cat c");
    program.edit(&part("", "d"));
    assert_eq!(program.ask(), "d cat d");
}

#[test]
fn cargo_finds_the_command_and_passes_the_arguments_of_the_program_on() {
    if require("cargo").is_none() {
        return;
    }
    let directory = directory();
    save(
        &directory,
        "Cargo.toml",
        "[package]\nname = \"many\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n",
    );
    let main = |text: &str| {
        format!("fn main() {{ println!(\"{text} {{:?}}\", std::env::args().skip(1).collect::<Vec<_>>()); }}")
    };
    save(&directory, "src/bin/one.rs", &main("one"));
    save(&directory, "src/bin/two.rs", &main("two"));
    save(&directory, "examples/three.rs", &main("three"));
    let cargo = |arguments: &[&str]| cargo_jittison(&directory).args(["jittison", "run"]).args(arguments).assert();
    let several = cargo(&["--", "a"]).code(FAILED).get_output().stderr.clone();
    let several = String::from_utf8_lossy(&several).into_owned();
    assert!(
        several.contains("several programs: one, two") || several.contains("several programs: two, one"),
        "{several}"
    );
    cargo(&["--bin", "two", "--", "a", "b c"]).success().stdout("two [\"a\", \"b c\"]\n");
    cargo(&["--example", "three"]).success().stdout("three []\n");
    // Nothing has to be compiled, and the program is another one.
    cargo(&["--bin", "one"]).success().stdout("one []\n");
    cargo(&["--bin", "two"]).success().stdout("two []\n");
}

#[test]
fn replaced_versions_of_a_crate_are_freed_at_its_reload_points() {
    let main = |point: &str| {
        let passed = format!("let is_replaced = {point};");
        format!(
            "mod parts;\nfn answers(number: &mut u64) -> bool {{\n    for line in std::io::stdin().lines() {{\n        \
             if line.is_err() {{ break; }}\n        *number += 1;\n        let answer = parts::answer(*number);\n        {passed}\n        \
             println!(\"{{answer}} {{is_replaced}}\");\n        if is_replaced {{ return true; }}\n    }}\n    false\n}}\n\
             fn main() {{ let mut number = 0; while answers(&mut number) {{}} std::process::exit(7); }}"
        )
    };
    let parts = |factor: u32| format!("pub fn answer(number: u64) -> u64 {{ {factor} * number }}");
    let dependency =
        concat!("jittison-reload = { path = \"", env!("CARGO_MANIFEST_DIR"), "/crates/jittison-reload\" }\n");
    for (point, is_freed) in
        [("unsafe { jittison_reload::reload_point!() }", true), ("jittison_reload::is_replaced!()", false)]
    {
        let files = [("src/main.rs", &*main(point)), ("src/parts.rs", &*parts(1))];
        let Some(mut program) = Running::start_package(&files, dependency) else { return };
        assert_eq!(program.ask(), "1 false");
        for edit in 2..6 {
            let event = program.edit(&parts(edit));
            let in_memory = event["replaced_in_memory"].as_u64().expect("an event has the number");
            assert!(if is_freed { in_memory <= 2 } else { in_memory + 2 == u64::from(edit) }, "{event}");
            // The loop that runs is of the version before, and is called again.
            let asked = [program.ask(), program.ask()];
            let number = 2 * u64::from(edit) - 2;
            let answers = [number, number + 1].map(|number| u64::from(edit) * number);
            assert_eq!(asked, [format!("{} true", answers[0]), format!("{} false", answers[1])]);
        }
        assert_eq!(program.watched.end().0, Some(7));
    }
}
