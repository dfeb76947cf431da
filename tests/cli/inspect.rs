//! `jittison inspect` shows the same as `readelf`, and the plan of a link.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use jittison_test_support::{INPUT, OUTPUT, asm, build};
use serde_json::Value;

use crate::native::{GNU, compile, directory, jittison, tool, toolchains};

fn inspected(directory: &Path, object: &str) -> Value {
    let output = jittison(directory).args(["inspect", "--json", object]).unwrap();
    serde_json::from_slice(&output.stdout).expect("the output is JSON")
}

fn readelf(directory: &Path, option: &str, object: &str) -> String {
    let output = tool("readelf", directory).args([option, "-W", object]).unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// `(name, size, alignment)` of the sections with flag A, without notes, as `readelf -S` shows them.
fn sections_by_readelf(directory: &Path, object: &str) -> Vec<(String, u64, u64)> {
    let text = readelf(directory, "-S", object);
    let rows = text.lines().filter_map(|row| row.split_once(']').filter(|(number, _)| number.contains('[')));
    let sections = rows.filter_map(|(_, row)| {
        let cells: Vec<&str> = row.split_whitespace().collect();
        let [name, kind, _, _, size, _, flags, .., align] = cells[..] else { return None };
        let is_loaded = flags.contains('A') && kind != "NOTE";
        is_loaded.then(|| (name.to_string(), u64::from_str_radix(size, 16).unwrap_or(0), align.parse().unwrap_or(0)))
    });
    sections.collect()
}

#[test]
fn inspect_shows_the_sections_symbols_and_relocations_of_readelf() {
    for toolchain in toolchains() {
        let directory = directory();
        for object in
            compile(toolchain, &["-O1"], &["exceptions_main.cpp", "basics_data.c", "lifecycle_order.c"], &directory)
        {
            let shown = inspected(&directory, &object);
            let number = |value: &Value| value.as_u64().expect("a number");
            let sections: Vec<(String, u64, u64)> = array(&shown["sections"])
                .iter()
                .map(|section| {
                    let name = section["name"].as_str().unwrap_or_default().to_string();
                    (name, number(&section["size_bytes"]), number(&section["align_bytes"]))
                })
                .collect();
            assert_eq!(sections, sections_by_readelf(&directory, &object), "{object}");

            // One row for each symbol, the null one included: `number: value size …`.
            let text = readelf(&directory, "-s", &object);
            let is_symbol =
                |row: &&str| row.split(':').next().is_some_and(|number| number.trim().parse::<u32>().is_ok());
            let rows: Vec<&str> = text.lines().filter(is_symbol).collect();
            let symbols = array(&shown["symbols"]);
            assert_eq!(symbols.len(), rows.len(), "{object}");
            for (symbol, row) in symbols.iter().zip(rows) {
                let cells: Vec<&str> = row.split_whitespace().collect();
                let place = symbol["place"].as_str();
                let is_hidden = symbol["visibility"] == "hidden" || symbol["visibility"] == "private";
                assert_eq!(symbol["size_bytes"].to_string(), cells[2], "{object}: {row}");
                assert_eq!(
                    symbol["binding"].as_str().map(str::to_uppercase).as_deref(),
                    Some(cells[4]),
                    "{object}: {row}"
                );
                assert_eq!(cells[5] == "HIDDEN" && cells[6] != "UND", is_hidden, "{object}: {row}");
                assert_eq!(cells[6] == "UND" && cells[0] != "0:", place == Some("undefined"), "{object}: {row}");
                if place == Some("section") {
                    assert_eq!(symbol["value"].as_u64(), u64::from_str_radix(cells[1], 16).ok(), "{object}: {row}");
                }
            }
            assert_eq!(relocations_shown(&shown), relocations_by_readelf(&directory, &object), "{object}");
        }
    }
}

/// How the names of relocation types begin.
const RELOCATION: &str = if cfg!(target_arch = "x86_64") { "R_X86_64_" } else { "R_AARCH64_" };

/// Counts by section and relocation type.
type Relocations = BTreeMap<(String, String), usize>;

fn relocations_shown(shown: &Value) -> Relocations {
    let mut counts = Relocations::new();
    for section in array(&shown["sections"]) {
        for relocation in array(&section["relocations"]) {
            let of = |value: &Value| value.as_str().unwrap_or_default().to_string();
            *counts.entry((of(&section["name"]), of(&relocation["type"]))).or_default() += 1;
        }
    }
    counts
}

fn relocations_by_readelf(directory: &Path, object: &str) -> Relocations {
    let mut counts = Relocations::new();
    let mut section = String::new();
    for row in readelf(directory, "-r", object).lines() {
        if let Some(name) = row.strip_prefix("Relocation section '.rela") {
            section = name.split('\'').next().unwrap_or_default().to_string();
        } else if let Some(kind) = row.split_whitespace().nth(2).filter(|kind| kind.starts_with(RELOCATION)) {
            *counts.entry((section.clone(), kind.to_string())).or_default() += 1;
        }
    }
    counts
}

#[test]
fn the_plan_adds_up_and_initialisers_have_their_priorities() {
    let directory = directory();
    let objects = compile(GNU, &["-O0"], &["lifecycle_order.c", "basics_data.c", "missing_two.c"], &directory);
    let shown = inspected(&directory, &objects[0]);
    let mut lists: Vec<(&str, u64, u64)> = array(&shown["initializers"])
        .iter()
        .map(|list| {
            let number = |key: &str| list[key].as_u64().unwrap_or(0);
            (list["kind"].as_str().unwrap_or_default(), number("priority"), number("functions"))
        })
        .collect();
    lists.sort_unstable();
    let expected = [
        ("finaliser", 101, 1),
        ("finaliser", 30000, 1),
        ("finaliser", 65536, 3),
        ("initialiser", 101, 1),
        ("initialiser", 500, 1),
        ("initialiser", 30000, 1),
        ("initialiser", 65536, 2),
    ];
    assert_eq!(lists, expected);
    let undefined: Vec<&str> =
        array(&shown["undefined"]).iter().filter_map(|external| external["name"].as_str()).collect();
    assert!(undefined.contains(&"puts") && undefined.contains(&"atexit"), "{undefined:?}");
    assert!(shown["plan"]["stubs"].as_u64().is_some_and(|stubs| stubs >= 2), "{:#}", shown["plan"]);

    // Every section is aligned and inside the segment of its pool.
    for object in &objects {
        let shown = inspected(&directory, object);
        let segments = array(&shown["plan"]["segments"]);
        for section in array(&shown["sections"]) {
            let number = |key: &str| section[key].as_u64().unwrap_or(u64::MAX);
            let segment = segments
                .iter()
                .find(|segment| segment["pool"] == section["pool"])
                .expect("the segment of the pool exists");
            assert!(number("offset_in_segment") + number("size_bytes") <= segment["size_bytes"].as_u64().unwrap_or(0));
            assert_eq!(number("offset_in_segment") % number("align_bytes"), 0);
        }
    }
    // Zero-fill is the end of the segment: everything except `.data`.
    let data = inspected(&directory, &objects[1]);
    let segment = &data["plan"]["segments"][2];
    let bytes = array(&data["sections"]).iter().find(|section| section["name"] == ".data").expect("a section `.data`");
    let [size, zeroes, bytes] = [&segment["size_bytes"], &segment["zero_fill_bytes"], &bytes["size_bytes"]]
        .map(|number| number.as_u64().expect("a number"));
    assert!(zeroes >= 4096 * 4 && size == zeroes + bytes, "{segment:#}");
}

/// An object whose bytes do not depend on the version of the compiler.
const ASSEMBLED: &str = "
    .globl main
    .type main, @function
    main:
        call absent_a@PLT
        movq absent_data@GOTPCREL(%rip), %rax
        leaq words(%rip), %rdi
        ret
    .size main, . - main
    .section .rodata, \"a\"
    words: .quad main, 3
    .section .init_array.00500, \"aw\", @init_array
    .quad main
    .bss
    .globl zeroes
    .type zeroes, @object
    .hidden zeroes
    .balign 16
    zeroes: .zero 100
    .size zeroes, 100
    .section .note.GNU-stack, \"\", @progbits
    ";

#[test]
fn the_tables_show_what_the_json_has() {
    let directory = directory();
    let Some(object) = asm(ASSEMBLED) else { return };
    fs::write(directory.join("assembled.o"), object).expect("a file for the object");
    let shown = |arguments: &[&str]| {
        let inspected = jittison(&directory).arg("inspect").args(arguments).arg("assembled.o").assert();
        String::from_utf8(inspected.success().stderr("").get_output().stdout.clone()).expect("text")
    };
    // The size of the file depends on the version of the assembler.
    let filters = [(r"o: \d+ bytes", "o: [SIZE] bytes"), (r#"(?m)^(  "size_bytes"): \d+"#, "$1: [SIZE]")];
    insta::with_settings!({ filters => filters }, {
        insta::assert_snapshot!("inspect", shown(&[]));
        insta::assert_snapshot!("inspect_json", shown(&["--json"]));
    });
}

#[test]
fn inspect_shows_a_symbol_with_a_very_long_name() {
    let directory = directory();
    let name = "n".repeat(70_000);
    let source = format!(".text\n.globl {name}\n{name}: ret\n.section .note.GNU-stack\n");
    let Some(object) = build("gcc", source.as_bytes(), &["-x", "assembler", "-c", "-o", OUTPUT, INPUT]) else { return };
    fs::write(directory.join("long.o"), object).unwrap();
    let output = jittison(&directory).args(["inspect", "long.o"]).unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains(&name));
}
