//! Tests of the inspectors: each gets a bad snippet and must report it.

use crate::LONGEST_FILE;
use crate::cycles::*;
use crate::inspect::*;
use crate::reading::*;
use crate::table::*;

const DESIGN: &str = "# Design\n\n## Floors and rooms\n
| floor | room | imports | unsafe | speaks of |
|---|---|---|---|---|
| 0 | `sync.rs`, `error.rs`, `base/` | std | no | names |
| 1 | `os/` | 0, libc, memmap2 | yes | pages |
| 2 | `host/` | 0, `os` | yes | code |
| 3 | `link/` | 0, `host` | no | symbols |
| 4 | `jit.rs` | all below | no | everything |
| 5 | `bin/` | `jit.rs` and public types | no | words |
";

fn table() -> Table {
    read_table(DESIGN).unwrap_or_else(|fault| panic!("{fault}"))
}

/// The lines of the faults, and that each says how to mend it.
fn lines_of(faults: &[String]) -> Vec<usize> {
    let line = |fault: &String| {
        assert!(fault.contains("Mend: "), "{fault}");
        fault.split(':').nth(1).and_then(|line| line.parse().ok()).expect("a line number")
    };
    faults.iter().map(line).collect()
}

#[test]
fn the_table_reader_knows_numbers_rooms_crates_and_all_below() {
    let table = table();
    let imports = |room: &str| {
        let row = table.room(room).expect("the room is there");
        row.imports.iter().cloned().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(imports("base"), "std");
    assert_eq!(imports("os"), "base error libc memmap2 sync");
    assert_eq!(imports("jit"), "base error host link os sync");
    assert_eq!(imports("bin"), "jit");
    assert!(table.room("os").is_some_and(|os| os.may_be_unsafe && os.floor == 1));
    assert!(table.room("link").is_some_and(|link| !link.may_be_unsafe));
}

#[test]
fn the_table_reader_sees_a_table_it_cannot_use() {
    let fault = |from: &str, to: &str| {
        let broken = DESIGN.replacen(from, to, 1);
        assert_ne!(broken, DESIGN);
        read_table(&broken).err().unwrap_or_else(|| panic!("{to} was not seen"))
    };
    assert!(fault("Floors", "Rooms").starts_with("DESIGN.md:1: no floor table"));
    assert!(fault("speaks of", "says").starts_with("DESIGN.md:5: no floor table"));
    assert!(fault("| 1 |", "| one |").starts_with("DESIGN.md:8: floor \"one\""));
    assert!(fault("| yes |", "| maybe |").starts_with("DESIGN.md:8: unsafe is \"maybe\""));
    assert!(fault("| pages", "").starts_with("DESIGN.md:8: 4 cells"));
    assert!(fault("0, `os`", "0, `so`").starts_with("DESIGN.md:9: `so` is imported"));
}

#[test]
fn the_stripper_blanks_comments_and_literals_and_keeps_places() {
    let text = "a /* b /* c */ d */ e \"f // \\\" g\" h // i \"\n\
                j r#\"k \" // l\"# m br\"n\\\" o 'p' q '\\'' r '\"' s<'t> u r#v 'w: x b'\\\\' y\n\"z\n\" A";
    let layers = layers(text);
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(words(&layers.code), "a e h j m b o q r s<'t> u r#v 'w: x b y A");
    assert_eq!(words(&layers.comments), "/* b /* c */ d */ // i \"");
    assert_eq!(layers.code.lines().count(), 4);
    assert_eq!(layers.code.find('m'), Some(text.chars().take_while(|&c| c != 'm').count()));
}

#[test]
fn the_path_reader_unfolds_use_trees_and_finds_inline_paths() {
    let text = "use {a::b, crate::{c::{self, D as E}, f::*,},};\nuse ::g;\n\
                fn h() -> impl I + use<> { j::<k::L>::m; <n::O>::p(); q.r }\nmod s { use super::t; }";
    let paths = named_paths(&tokens(text));
    let shown = |path: &NamedPath| format!("{}{}", path.segments.join("::"), "'".repeat(path.depth));
    let shown: Vec<String> = paths.iter().map(shown).collect();
    let expected = ["a::b", "crate::c::self", "crate::c::D", "crate::f::*", "g", "k::L", "n::O", "super::t'"];
    assert_eq!(shown, expected);
    assert_eq!(paths.iter().map(|path| path.line).collect::<Vec<_>>(), [1, 1, 1, 1, 2, 3, 3, 4]);
}

#[test]
fn a_forbidden_import_is_seen_in_every_guise() {
    let table = table();
    let lines = |file: &str, text: &str| lines_of(&import_faults(file, text, &table));
    let good = "use crate::{base::A, os::{B, C}};\nuse crate::host::x;\n// crate::jit\nuse super::y;\n\
                const D: &str = \"crate::jit\";\npub(crate) use self::z;";
    assert_eq!(lines("src/host/file.rs", good), []);
    for bad in [
        "\nuse crate::jit;",
        "use crate::{os,\nlink::{A}, base};",
        "fn f() {\ncrate::link::g() }",
        "mod a {\nuse super::super::super::link; }",
        "\nuse super::super::link::A;",
        "#[cfg(test)] mod tests {\nuse crate::jit::Jit; }",
        "macro_rules! m { () => {\n$crate::jit::x() } }",
        "\nuse crate::*;",
        "\nuse crate::Jit;",
        "\nuse crate::cellar::X;",
    ] {
        assert_eq!(lines("src/host/file.rs", bad), [2], "{bad}");
    }
    assert_eq!(lines("src/host/mod.rs", "use super::link;"), [1]);
    assert_eq!(lines("src/error.rs", "use super::base;"), [1]);
    assert_eq!(lines("src/os/mod.rs", "use crate::libc;"), [1]);
    assert_eq!(lines("src/jit.rs", "use super::{link, host, os};"), []);
    assert_eq!(lines("src/cellar/mod.rs", ""), [1]);
    assert_eq!(lines("src/bin/tool/main.rs", "use crate::args;"), []);
}

#[test]
fn unsafe_code_outside_its_rooms_is_seen() {
    let table = table();
    let lines = |file: &str, text: &str| lines_of(&unsafe_faults(file, text, &table));
    let bad = "#![deny(unsafe_code)]\n// unsafe\nfn f() { unsafe { g() } }\nconst S: &str = \"unsafe\";\n\
               #[cfg(test)]\n#[allow(x)]\npub(crate) mod tests { fn h() { unsafe { i() } } }\n\
               unsafe fn j() {}\n#[cfg(test)]\nunsafe fn k() {}\n#[unsafe(no_mangle)] fn l() {}";
    assert_eq!(lines("src/link/a.rs", bad), [3, 8, 10]);
    assert_eq!(lines("src/lib.rs", bad), [3, 8, 10]);
    assert_eq!(lines("src/os/a.rs", bad), []);
}

#[test]
fn machine_code_outside_the_architecture_folders_is_seen() {
    let bad = "// x86 in a comment\nconst R_X86_64_64: u32 = 1;\nuse iced_x86::Code;\n#[cfg(target_arch = \"y\")]\nconst F: u8 = 0xCC;\n\
               const S: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];\nconst N: &str = \"x86\";\nconst OK: u8 = 0xf3;";
    assert_eq!(lines_of(&architecture_faults("src/link/a.rs", bad)), [2, 3, 4, 5, 6]);
    assert_eq!(lines_of(&architecture_faults("src/arch/x86_64/a.rs", bad)), []);
}

#[test]
fn code_for_this_process_where_an_executor_may_run_it_is_seen() {
    let bad = "// NATIVE\nlet stub = Arch::NATIVE.stub(a, b);\nlet stub = self.arch.stub(a, b);\n\
               #[cfg(test)] mod tests { fn f() { Arch::NATIVE.trap() } }";
    assert_eq!(lines_of(&native_faults("src/platform/a.rs", bad)), [2]);
    assert_eq!(lines_of(&native_faults("src/platform/stubs.rs", bad)), []);
    assert_eq!(lines_of(&native_faults("src/host/a.rs", bad)), []);
}

#[test]
fn ways_to_the_process_around_the_executor_are_seen() {
    let good = "use crate::host::{Executor, InProcess};\nfn f() { g(Arc::new(InProcess), InProcess::address_in_this_thread(v)) }\n\
                #[cfg(test)] mod tests { use crate::host::ExitScope; }";
    assert_eq!(lines_of(&executor_faults("src/platform/a.rs", good)), []);
    let bad = "use crate::host::find_symbol;\nuse crate::host;\nuse crate::host::{self, Executor};\nhost::run_initializer(a);\n\
               use crate::host::ThreadLocalModule;\nInProcess.find_symbol(a);\nuse crate::os::Library;\nInProcess::new();";
    assert_eq!(lines_of(&executor_faults("src/jit.rs", bad)), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(lines_of(&executor_faults("src/host/a.rs", bad)), []);
}

#[test]
fn unjustified_dependencies_and_unlisted_models_are_seen() {
    let manifest =
        "[dependencies]\nlibc.workspace = true\n# why\nmemchr = \"2\"\nclap = { optional = true }\n\n[lints]\nx = 1\n";
    let design = "| crate | why |\n|---|---|\n| `libc`, `gone` | calls |\n\n`loom_tests/loom_a.rs`";
    let faults = dependency_faults(design, manifest);
    assert!(faults.len() == 2 && faults[0].contains("`memchr`") && faults[1].contains("`gone`"), "{faults:?}");
    let models = ["loom_tests/loom_a.rs", "loom_tests/loom_b.rs"].map(String::from);
    assert_eq!(missing_model_faults(design, &models).len(), 1);
}

#[test]
fn suppressions_of_functions_that_do_not_exist_are_seen() {
    let read = |file: &str| if file == "src/os/fork.rs" { "fn write_at(to: u8) {}".to_string() } else { String::new() };
    let suppressions =
        "# a comment\nrace:jittison::os::fork::write_at\nrace:jittison::os::fork::gone\nrace:std::thread\n";
    assert_eq!(lines_of(&suppression_faults(suppressions, read)), [3]);
}

#[test]
fn safety_notes_without_a_promise_and_promises_without_a_note_are_seen() {
    let file = |name: &str, text: &str| (name.to_string(), text.to_string());
    let head = file("src/os/mod.rs", "//! **O1** mapped.\n//!\n//! **O2** ours; **O3rd** O4.\nmod a;");
    let good = file("src/os/a.rs", "// SAFETY: mapped,\n// says O1\nunsafe {}\nf(); // SAFETY: (O2).\n");
    assert_eq!(safety_faults("os", &[&head, &good]), [""; 0]);
    let bad = file(
        "src/os/a.rs",
        "// SAFETY: sure\nlet o = O1;\n// O1\n// SAFETY: O3, O4\n// SAFETY: O1\n/* safety: O11, xO1 */",
    );
    let faults = safety_faults("os", &[&head, &bad]);
    assert_eq!(lines_of(&faults), [1, 4, 6, 3]);
    assert!(faults[3].starts_with("src/os/mod.rs:3: promise O2"));
    let tool = [file("src/bin/tool/main.rs", "//! **B1** typed.\n"), file("src/bin/tool/a.rs", "// SAFETY: B1\n")];
    assert_eq!(safety_faults("bin", &[&tool[0], &tool[1]]), [""; 0]);
    assert_eq!(lines_of(&safety_faults("bin", &[&tool[1]])), [1]);
    let example = file("src/os/a.rs", "/// // SAFETY: its signature.\n// SAFETY: O1, O2\n");
    assert_eq!(safety_faults("os", &[&head, &example]), [""; 0]);
    let mixed = file("src/os/a.rs", "// SAFETY: O1, O2\n// SAFETY: O1, O9\n");
    assert_eq!(lines_of(&safety_faults("os", &[&head, &mixed])), [2]);
    let alone = file("src/sync.rs", "//! Nothing.\n// SAFETY: S1\n");
    assert_eq!(lines_of(&safety_faults("sync", &[&alone])), [2]);
}

#[test]
fn locks_threads_and_foreign_crates_are_seen() {
    let table = table();
    let lines = |file: &str, text: &str| lines_of(&outside_faults(file, text, &table));
    let bad = "use std::{fmt, sync::Arc};\nstd::thread::spawn(f);\nuse parking_lot as p;\n\
               crossbeam_epoch::pin();\nloom::model(f);\n#[cfg(loom)]\nuse std::fmt; // std::sync\n\
               use core::sync::atomic;\n#[cfg(all(test, not(loom)))]\nmod tests { use std::sync::Arc; }";
    assert_eq!(lines("src/os/a.rs", bad), [1, 2, 3, 4, 5, 8]);
    assert_eq!(lines("src/sync.rs", bad), []);
    let bad = "use libc;\nlet libc = libc::mmap;\n// libc::a\nuse crate::libc_free;";
    assert_eq!(lines("src/host/a.rs", bad), [1, 2]);
    assert_eq!(lines("src/sync.rs", bad), [1, 2]);
    assert_eq!(lines("src/os/a.rs", bad), []);
}

#[test]
fn missing_paths_openings_models_and_long_files_are_seen() {
    let exists = |path: &str| matches!(path, "src/os/" | "src/jit.rs");
    let design = "`src/os/`, `src/so/`\nsrc/x.rs `src/jit.rs` `host/`\n```\n`src/y.rs`\n```\n`benches/a.rs -v`";
    assert_eq!(lines_of(&missing_path_faults("DESIGN.md", design, exists)), [1, 6]);

    assert_eq!(opening_fault("src/a.rs", "//! A.\n"), None);
    for bad in ["", "// A.\n", "\n//! A.\n", "#![cfg(loom)]\n//! A.\n"] {
        assert!(opening_fault("src/a.rs", bad).is_some(), "{bad}");
    }
    let rows = "| a | b |\n|---|---|\n| x | `f.rs` `t` |\n| y | `f.rs` `u` |\n| z | the same |\n";
    let read = |_: &str| "#[test]\nfn t() {}\nfn u() {}".to_string();
    assert_eq!(missing_test_faults(rows, read).len(), 2);
    assert_eq!(loom_fault("loom_tests/loom_a.rs", "//! A model\n//! of `src/jit.rs`.\n", exists), None);
    for bad in ["//! src/jit.rs", "//! `src/so.rs`", "//! `src/os/`", "//! A.\n\n// `src/jit.rs`"] {
        assert!(loom_fault("loom_tests/loom_a.rs", bad, exists).is_some(), "{bad}");
    }
    assert_eq!(length_fault("src/a.rs", &"\n".repeat(LONGEST_FILE)), None);
    assert!(length_fault("src/a.rs", &"\n".repeat(LONGEST_FILE + 1)).is_some());
}

#[test]
fn rooms_that_import_their_own_floor_or_a_higher_one_are_seen() {
    let upward = DESIGN.replace("| 0, `os` | yes | code |", "| 0, `link` | yes | code |");
    let table = read_table(&upward).expect("the table can be read");
    let faults: Vec<String> = table.0.iter().flat_map(|room| upward_faults(room, &table)).collect();
    assert_eq!(lines_of(&faults), [1]);
    assert!(faults[0].contains("`host` (floor 2) import `link` (floor 3)"), "{}", faults[0]);
}

#[test]
fn circles_of_files_and_imports_against_the_order_of_sub_rooms_are_seen() {
    let file = |name: &str, text: &str| (name.to_string(), text.to_string());
    let files = [
        file("src/s/mod.rs", "mod a;\nmod b;\npub use a::one::One;\npub use b::two::Two;"),
        file("src/s/a/mod.rs", "pub mod one;"),
        file("src/s/b/mod.rs", "pub mod two;\npub mod three;"),
        file("src/s/a/one.rs", "use crate::s::Two;\n#[cfg(test)] mod tests { use crate::s::b::three::Three; }"),
        file("src/s/b/two.rs", "fn f() { crate::s::a::one::g() }"),
        file("src/s/b/three.rs", "use super::two::Two;"),
    ];
    let imports = Imports::read(&files.iter().collect::<Vec<_>>());
    assert_eq!(imports.circles(), [["src/s/a/one.rs", "src/s/b/two.rs"]]);
    assert_eq!(lines_of(&circle_faults(&imports, &[])), [1]);
    assert_eq!(lines_of(&circle_faults(&imports, &[("src/s/".to_string(), 1)])), [1]);
    assert_eq!(circle_faults(&imports, &[("src/s/".to_string(), 2)]), [""; 0]);
    let bench = files.each_ref().map(|(name, text)| file(&format!("crates/bench/{name}"), text));
    let of_bench = Imports::read(&bench.iter().collect::<Vec<_>>());
    assert_eq!(of_bench.circles(), [["crates/bench/src/s/a/one.rs", "crates/bench/src/s/b/two.rs"]]);
    let facade = "//! fn\npub mod one;\npub use one::One;\n";
    assert_eq!(facade_fault("src/s/mod.rs", facade), None);
    let bad = facade_fault("src/s/mod.rs", &format!("{facade}pub const A: u8 = 1;")).expect("code in a facade");
    assert_eq!(lines_of(&[bad]), [4]);
    assert_eq!(facade_fault("src/s/one.rs", "fn f() {}"), None);
    let design =
        "| sub-room | imports | knot | holds |\n|---|---|---|---|\n| `s/a` | – | – | x |\n| `s/b` | `s/a` | 3 | y |\n";
    let table = sub_rooms(design).expect("the table can be read");
    assert_eq!(table[1].knot, Some(3));
    let faults = imports.sub_room_faults(&table);
    assert_eq!(lines_of(&faults), [1]);
    assert!(faults[0].starts_with("src/s/a/one.rs") && faults[0].contains("s::b::two"), "{}", faults[0]);
    assert!(sub_rooms(&design.replace("| – | – | x", "| `s/b` | – | x")).is_err());
    assert!(sub_rooms("none").is_err());
}
