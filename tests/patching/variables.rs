//! Variables keep their address and value when functions change.

use std::thread;

use jittison::ErrorKind;

use crate::support::*;
use crate::*;

/// A version of `bump`. Each source defines the variable again.
fn bump(step: i64) -> Option<Vec<u8>> {
    c(&format!("long counter = 100; long bump(long n) {{ return counter += {step} + n; }}"))
}

#[test]
fn a_variable_of_the_first_version_keeps_its_value() {
    own_process!();
    let (Some(first), Some(second), Some(third), Some(reader)) =
        (bump(1), bump(10), bump(100), c("extern long counter; long bump(long n) { return counter; }"))
    else {
        return;
    };
    let jit = new_jit();
    let kernels = jit.patchable_builder(jit.main_dylib(), &["bump"]).history(0).build().unwrap();
    drop(commit(&kernels, &first));
    let bump = find(&jit, "bump");
    assert_eq!((bump.call(0), bump.call(0)), (101, 102));
    let retired = commit(&kernels, &second).retired;
    assert_eq!(bump.call(0), 112);
    assert!(!retired[0].is_complete(), "the version with the variable stays while a version uses it");
    assert_eq!(version_numbers(&kernels), (vec![1, 2], vec![2]));
    let retired_second = commit(&kernels, &third).retired;
    assert_eq!(bump.call(0), 212);
    assert!(retired_second[0].is_complete(), "the second version added no variable");
    drop(commit(&kernels, &reader));
    assert_eq!(
        (bump.call(0), version_numbers(&kernels)),
        (212, (vec![1, 4], vec![4])),
        "a version that only refers to the variable"
    );
    // No version uses the variable: it is freed. The next version that defines it starts with the initial value.
    drop(commit(&kernels, &functions(&[("bump", "n")]).unwrap()));
    assert!(retired[0].is_complete());
    assert_eq!(version_numbers(&kernels), (vec![5], vec![5]));
    drop(commit(&kernels, &first));
    assert_eq!(bump.call(0), 101);
    drop(bump);
    assert!(jit.main_dylib().clear().unwrap().is_empty());
    assert_eq!(held(&jit), (0, 0, 0));
}

#[test]
fn versions_share_dylib_common_hidden_and_thread_local_variables() {
    own_process!();
    let version = |step: i64| {
        gcc(
            // Section anchors would reach `hidden` without its name.
            &["-O2", "-fPIC", "-fcommon", "-fno-section-anchors"],
            &format!(
                "long counter = 5; long common; __attribute__((visibility(\"hidden\"))) long hidden = 7;
                 __thread long own = 9; static long local = 1; const long constant = {step};
                 long bump(long n) {{
                     counter += {step}; common += {step}; hidden += {step}; own += {step}; local += {step};
                     return counter * 100000000 + common * 1000000 + hidden * 10000 + own * 100 + local * 10 + constant;
                 }}"
            ),
        )
    };
    let (Some(program), Some(first), Some(second)) = (c("long counter = 40;"), version(1), version(2)) else { return };
    let jit = new_jit();
    drop(add(&jit, jit.main_dylib(), "program.o", &program));
    let kernels = jit.patchable_builder(jit.main_dylib(), &["bump"]).build().unwrap();
    drop(commit(&kernels, &first));
    let bump = find(&jit, "bump");
    assert_eq!(bump.call(0), 4_101_081_021);
    drop(commit(&kernels, &second));
    assert_eq!(bump.call(0), 4_303_101_232, "all keep their values, except static and constant ones");
    let there = bump.clone();
    assert_eq!(thread::spawn(move || there.call(0)).join().unwrap(), 4_505_121_152, "another thread has its own copy");
}

#[test]
fn virtual_functions_are_those_of_the_new_version() {
    own_process!();
    let version = |k: i64| {
        cpp(&format!(
            "struct Shape {{ virtual long area(long n); virtual ~Shape(); }};
             long Shape::area(long n) {{ return n + {k}; }} Shape::~Shape() {{}}
             extern \"C\" Shape *shape(); Shape *made; Shape *shape() {{ return made = new Shape; }}
             extern \"C\" long bump(long n) {{ Shape *s = shape(); long r = s->area(n); delete s; return r; }}"
        ))
    };
    let (Some(first), Some(second)) = (version(1), version(2)) else { return };
    let jit = new_jit();
    let kernels = jit.patchable(jit.main_dylib(), &["bump"]).unwrap();
    for (object, k) in [(&first, 1), (&second, 2)] {
        drop(commit(&kernels, object));
        assert_eq!(find(&jit, "bump").call(0), k, "the virtual table belongs to the version");
    }
}

#[test]
fn a_variable_that_has_grown_is_refused() {
    own_process!();
    let table = |size: i64| c(&format!("long table[{size}]; long bump(long n) {{ return table[n]++; }}"));
    let (Some(small), Some(large)) = (table(4), table(8)) else { return };
    let jit = new_jit();
    let kernels = jit.patchable(jit.main_dylib(), &["bump"]).unwrap();
    drop(commit(&kernels, &small));
    let before = state_of(&jit);
    let error = link(&kernels, &large).unwrap_err();
    assert!(matches!(error.root_cause().kind(), ErrorKind::VariableChanged { wanted: 64, found: 32, .. }), "{error}");
    assert_eq!(state_of(&jit), before);
}

#[test]
fn rollback_removes_the_variables_that_the_version_added() {
    own_process!();
    let (Some(first), Some(second)) = (functions(&[("bump", "n")]), bump(1)) else { return };
    let jit = new_jit();
    let kernels = jit.patchable(jit.main_dylib(), &["bump"]).unwrap();
    drop(commit(&kernels, &first));
    let before = held(&jit);
    drop(commit(&kernels, &second));
    let undone = kernels.rollback().unwrap().retired;
    assert!(undone[0].is_complete());
    assert_eq!(held(&jit), before);
}
