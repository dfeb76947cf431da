//! `jittison map` shows the address of every object, as text, as JSON and as a picture. It runs nothing.

use std::fs;
use std::path::Path;

use predicates::str::{contains, starts_with};
use serde_json::Value;

use crate::native::{GNU, compile, directory, fails, jittison};

const OBJECTS: [&str; 3] = ["objects_main.cpp", "objects_shapes.cpp", "objects_statics.cpp"];

fn json(directory: &Path, objects: &[String]) -> Value {
    let output = jittison(directory).arg("map").args(objects).arg("--json").unwrap();
    serde_json::from_slice(&output.stdout).expect("the output is JSON")
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn number(value: &Value) -> u64 {
    value.as_u64().expect("a number")
}

#[test]
fn the_map_shows_every_object_with_the_sizes_of_its_link_plan() {
    let directory = directory();
    let objects = compile(GNU, &["-O1"], &OBJECTS, &directory);
    let shown = json(&directory, &objects);
    let modules = array(&shown["modules"]);
    assert_eq!(modules.len(), 3);
    for object in &objects {
        let index = modules.iter().position(|module| module["name"] == **object).expect("a module for every object");
        let inspected = jittison(&directory).args(["inspect", "--json", object]).unwrap();
        let inspected: Value = serde_json::from_slice(&inspected.stdout).expect("JSON");
        for (pool, number_of_pool) in ["code", "read-only", "data"].into_iter().zip(0..) {
            let segment = &modules[index]["segments"][number_of_pool];
            assert_eq!(modules[index]["dylib"], "main");
            // Weak definitions that another object has are not linked again. A session adds a `__dso_handle` to the data.
            let handle = if pool == "data" { 8 } else { 0 };
            let planned = number(&inspected["plan"]["segments"][number_of_pool]["size_bytes"]);
            assert!(number(&segment["size_bytes"]) <= planned + handle);
            let pools = array(&shown["windows"][0]["pools"]);
            let map = pools.iter().find(|map| map["pool"] == pool).expect("the pool");
            let ranges = array(&map["ranges"]).iter().filter(|range| range["module"] == index);
            let ranges: Vec<_> = ranges.collect();
            assert_eq!(ranges.len(), 1, "{object} has one range of {pool}");
            assert_eq!(ranges[0]["start"], segment["start"]);
            assert!(number(&ranges[0]["size_bytes"]) >= number(&segment["size_bytes"]));
        }
    }
    for pool in array(&shown["windows"][0]["pools"]) {
        let live = array(&pool["ranges"]).iter().filter(|range| range["is_live"] == true);
        let live: u64 = live.map(|range| number(&range["size_bytes"])).sum();
        assert_eq!(number(&pool["live_bytes"]), live);
        assert_eq!(number(&pool["opened_bytes"]), live + number(&pool["free_bytes"]));
        assert_eq!(array(&pool["slabs"]).len(), 1);
    }
}

#[test]
fn text_and_picture_name_the_objects_without_running_them() {
    let directory = directory();
    let objects = compile(GNU, &["-O1"], &OBJECTS, &directory);
    let mapped = jittison(&directory).arg("map").args(&objects).args(["--svg", "map.svg"]).assert().success();
    let svg = fs::read_to_string(directory.join("map.svg")).expect("the picture was written");
    assert!(svg.starts_with("<?xml") && svg.ends_with("</svg>\n"));
    for object in &objects {
        assert!(svg.contains(object), "{object} is missing");
    }
    let mapped = objects.iter().fold(mapped, |mapped, object| mapped.stdout(contains(object)));
    // The program would print from `main` and from its initialisers if it ran.
    mapped.stdout(starts_with("window 0x")).stderr("");
}

#[test]
fn link_and_output_errors_are_reported_in_one_line() {
    let directory = directory();
    let objects = compile(GNU, &["-O1"], &["missing_one.c", "data_entry.c"], &directory);
    for (arguments, expected) in [
        (&["map", &objects[0]][..], "absent_a"),
        (&["map", "nowhere.o"], "nowhere.o"),
        (&["map", &objects[1], "--svg", "no/such/directory.svg"], "no/such/directory.svg"),
    ] {
        fails(&directory, arguments).stderr(contains(expected));
    }
}
