//! `jittison watch --cargo`: edits of a Rust program that cannot follow. They are refused by name, and change nothing.

use std::fs;

use crate::cargo::{MAIN, Running, part};

#[test]
fn types_with_another_layout_are_refused_by_name() {
    let types = |types: &str, make: &str, show: &str| {
        format!(
            "{types} pub struct State(Vec<Kept>); pub fn start() -> State {{ State(vec![{make}]) }}
             pub fn answer(state: &mut State, number: u64) -> String {{ let _ = number; state.0.iter().map(|kept| {show}).collect() }}"
        )
    };
    let before = types("pub struct Kept { a: u32 }", "Kept { a: 1 }", "format!(\"{}\", kept.a)");
    let Some(mut program) = Running::start(&before) else { return };
    assert_eq!(program.ask(), "1");
    let larger =
        types("pub struct Kept { a: u32, b: u64 }", "Kept { a: 1, b: 2 }", "format!(\"{} {}\", kept.a, kept.b)");
    let error = program.edit_refused(&larger);
    assert!(error.contains("`edited::parts::Kept`") && error.contains("layout"), "{error}");
    let other = types("pub struct Kept { a: f32 }", "Kept { a: 1.0 }", "format!(\"{}\", kept.a)");
    assert!(program.edit_refused(&other).contains("`edited::parts::Kept`"));
    let variants = types(
        "pub enum Kept { A(u32), B }",
        "Kept::A(1)",
        "match kept { Kept::A(n) => n.to_string(), Kept::B => String::new() }",
    );
    assert!(program.edit_refused(&variants).contains("`edited::parts::Kept`"));
    assert_eq!(program.ask(), "1");
    program.edit(&types("pub struct Kept { a: u32 }", "Kept { a: 1 }", "format!(\"{} again\", kept.a)"));
    assert_eq!(program.ask(), "1 again");
}

#[test]
fn a_trait_with_another_method_is_refused_by_name() {
    let part = |more: &str, call: &str| {
        format!(
            "pub trait Speak {{ {more} fn speak(&self) -> u64; }} struct Cat(u64); impl Speak for Cat {{ fn speak(&self) -> u64 {{ self.0 }} }}
             pub struct State(Box<dyn Speak>); pub fn start() -> State {{ State(Box::new(Cat(5))) }}
             pub fn answer(state: &mut State, number: u64) -> String {{ let _ = number; format!(\"{{}}\", {call}) }}"
        )
    };
    let Some(mut program) = Running::start(&part("", "state.0.speak()")) else { return };
    assert_eq!(program.ask(), "5");
    let error = program.edit_refused(&part("fn name(&self) -> u64 { 7 }", "state.0.name() + state.0.speak()"));
    assert!(error.contains("dyn edited::parts::Speak"), "{error}");
    // The same places in the table for other methods.
    let two = |order: &str| {
        part(order, "state.0.speak()").replace("u64 { self.0 }", "u64 { self.0 } fn name(&self) -> u64 { 7 }")
    };
    let renamed = part("", "state.0.say()").replace("speak(", "say(");
    assert!(program.edit_refused(&renamed).contains("{vtable}"));
    let error = program.edit_refused(&two("fn name(&self) -> u64;"));
    assert!(error.contains("dyn edited::parts::Speak"), "{error}");
    // The same place, and other parameters.
    let other = part("", "state.0.speak(1)")
        .replace("speak(&self)", "speak(&self, more: u64)")
        .replace("self.0 }", "self.0 + more }");
    let error = program.edit_refused(&other);
    assert!(error.contains("speak") && error.contains("`dyn` type"), "{error}");
    assert_eq!(program.ask(), "5");
}

#[test]
fn a_trait_whose_methods_changed_their_order_is_refused_by_name() {
    let part = |methods: &str, more: u64| {
        format!(
            "pub trait Speak {{ {methods} }} struct Cat(u64);
             impl Speak for Cat {{ fn one(&self) -> u64 {{ self.0 + {more} }} fn two(&self) -> u64 {{ self.0 + 1 }} }}
             pub struct State(Box<dyn Speak>); pub fn start() -> State {{ State(Box::new(Cat(5))) }}
             pub fn answer(state: &mut State, _: u64) -> String {{ format!(\"{{}} {{}}\", state.0.one(), state.0.two()) }}"
        )
    };
    let (one, two) = ("fn one(&self) -> u64;", "fn two(&self) -> u64;");
    let Some(mut program) = Running::start(&part(&format!("{one} {two}"), 0)) else { return };
    assert_eq!(program.ask(), "5 6");
    let error = program.edit_refused(&part(&format!("{two} {one}"), 0));
    assert!(error.contains("<edited::parts::Cat as edited::parts::Speak>"), "{error}");
    assert_eq!(program.ask(), "5 6");
    program.edit(&part(&format!("{one} {two}"), 10));
    assert_eq!(program.ask(), "15 6");
}

#[test]
fn a_static_of_another_type_is_refused_by_name() {
    let part = |a_type: &str, value: &str| {
        part(
            "format!(\"{}\", KEPT.lock().unwrap())",
            &format!("static KEPT: std::sync::Mutex<{a_type}> = std::sync::Mutex::new({value});"),
        )
    };
    let Some(mut program) = Running::start(&part("u32", "7")) else { return };
    assert_eq!(program.ask(), "7");
    assert!(program.edit_refused(&part("f32", "7.5")).contains("KEPT"));
    assert!(
        program
            .edit_refused(&part("[u64; 9]", "[7; 9]").replace("KEPT.lock().unwrap())", "KEPT.lock().unwrap()[0])"))
            .contains("KEPT")
    );
    assert_eq!(program.ask(), "7");
}

#[test]
fn a_static_of_a_method_is_refused_by_name_if_its_impl_block_got_another_number() {
    let part = |blocks: &str, step: u64| {
        part(
            "format!(\"{}\", Counter::next())",
            &format!(
                "struct Counter; {blocks}
                 impl Counter {{ fn next() -> u64 {{
                     static COUNT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(5);
                     COUNT.fetch_add({step}, std::sync::atomic::Ordering::Relaxed)
                 }} }}"
            ),
        )
    };
    let Some(mut program) = Running::start(&part("", 1)) else { return };
    assert_eq!(program.ask(), "5");
    assert!(program.edit_refused(&part("impl Counter { pub fn more() {} }", 1)).contains("COUNT"));
    program.edit(&part("", 10));
    assert_eq!((program.ask(), program.ask()), ("6".to_string(), "16".to_string()));
}

#[test]
fn a_library_that_the_program_was_not_linked_with_is_refused_by_name() {
    let manifest = "[package]\nname = \"near\"\nversion = \"0.1.0\"\nedition = \"2021\"\n";
    let first = part("format!(\"{number}\")", "");
    let files = [
        ("src/main.rs", MAIN),
        ("src/parts.rs", &*first),
        ("near/Cargo.toml", manifest),
        ("near/src/lib.rs", "pub fn two() -> u64 { 2 }"),
    ];
    let Some(mut program) = Running::start_package(&files, "") else { return };
    let manifest = fs::read_to_string(program.watched.directory.join("Cargo.toml")).expect("it was written");
    program.save("src/parts.rs", &part("format!(\"{}\", number + near::two())", ""));
    assert_eq!(program.watched.event()["event"], "build_failed");
    program.save("Cargo.toml", &format!("{manifest}near = {{ path = \"near\" }}\n"));
    let event = program.watched.event();
    assert_eq!(event["event"], "refused", "{event}");
    assert!(
        event["error"].as_str().is_some_and(|error| error.contains("near") && error.contains("start it again")),
        "{event}"
    );
    assert_eq!(program.ask(), "1");
}
