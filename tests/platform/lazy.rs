//! Lazy re-exports: functions that are linked when they are first called.

use jittison::base::Name;
use jittison::session::{Alias, SymbolFlags, SymbolState};
use jittison::{Jit, JitDylib, ResourceTracker};

use crate::support::*;

const SOURCE: &str = "long calls;
    double mix(int a, double b, long c, float d, int e, int f, int g, int h) {
        calls++; return a + b + c + d + e + f + g + h;
    }
    long twice(long x) { return 2 * x; }";

type Mix = extern "C" fn(i32, f64, i64, f32, i32, i32, i32, i32) -> f64;

fn alias(name: &str, aliasee: &str) -> Alias {
    Alias { name: Name::new(name), aliasee: Name::new(aliasee), flags: SymbolFlags::EXPORTED }
}

/// A library with the object above, not linked, and a tracker of the main dylib that re-exports it lazily.
fn lazy() -> Option<(Jit, JitDylib, ResourceTracker, ResourceTracker)> {
    let object = c(SOURCE)?;
    let jit = new_jit();
    let library = jit.create_dylib("library").unwrap();
    let code = add(&jit, &library, "library.o", &object);
    let names = jit.main_dylib().create_tracker().unwrap();
    jit.lazy_reexport(&names, &library, &[alias("lazy_mix", "mix"), alias("lazy_twice", "twice")]).unwrap();
    Some((jit, library, code, names))
}

#[test]
fn the_first_call_links_the_function_and_keeps_its_arguments() {
    let Some((jit, library, ..)) = lazy() else { return };
    let mix = function::<Mix>(&jit, "lazy_mix");
    assert_eq!(library.symbol_state("mix"), Some(SymbolState::NeverSearched), "looking the name up links nothing");
    for _ in 0..3 {
        assert_eq!(mix.call(1, 2.5, 3, 4.25, 5, 6, 7, 8), 36.75);
    }
    assert_eq!(library.symbol_state("mix"), Some(SymbolState::Ready));
    assert_eq!(function::<extern "C" fn(i64) -> i64>(&jit, "lazy_twice").call(21), 42);
}

#[test]
fn a_bound_name_keeps_its_function_and_an_unbound_one_does_not() {
    let Some((jit, _library, code, names)) = lazy() else { return };
    assert!(code.dependents().is_empty());
    function::<Mix>(&jit, "lazy_mix").call(0, 0.0, 0, 0.0, 0, 0, 0, 0);
    assert_eq!(code.dependents().iter().map(ResourceTracker::key).collect::<Vec<_>>(), [names.key()]);
    let removal = code.remove().unwrap();
    assert_eq!(removal.blockers(), (0, 1));
    assert_eq!(function::<Mix>(&jit, "lazy_mix").call(1, 1.0, 0, 0.0, 0, 0, 0, 0), 2.0);
    assert!(names.remove().unwrap().is_complete());
    assert!(removal.is_complete());
    assert_eq!(held(&jit), (0, 0, 0));
}

#[test]
fn names_that_were_never_called_are_removed_without_linking_anything() {
    let Some((jit, library, _code, names)) = lazy() else { return };
    assert!(names.remove().unwrap().is_complete());
    assert_eq!(jit.main_dylib().symbol_state("lazy_mix"), None);
    assert_eq!(library.symbol_state("mix"), Some(SymbolState::NeverSearched));
    assert_eq!(held(&jit), (0, 0, 0));
    let again = jit.main_dylib().create_tracker().unwrap();
    jit.lazy_reexport(&again, &library, &[alias("lazy_mix", "mix")]).unwrap();
    assert_eq!(function::<Mix>(&jit, "lazy_mix").call(1, 1.0, 1, 1.0, 1, 1, 1, 1), 8.0);
}

#[test]
fn many_threads_may_make_the_first_call_at_once() {
    for _ in 0..50 {
        let Some((jit, ..)) = lazy() else { return };
        let twice = function::<extern "C" fn(i64) -> i64>(&jit, "lazy_twice");
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let twice = twice.clone();
                scope.spawn(move || (0..100).for_each(|i| assert_eq!(twice.call(i + thread), 2 * (i + thread))));
            }
        });
    }
}

#[test]
fn many_lazy_functions_share_their_memory_and_all_of_it_goes_with_their_key() {
    let count = 200;
    let source: String = (0..count).map(|i| format!("long f{i}(long x) {{ return x + {i}; }}\n")).collect();
    let Some(object) = c(&source) else { return };
    let jit = new_jit();
    let library = jit.create_dylib("library").unwrap();
    let code = add(&jit, &library, "library.o", &object);
    let aliases: Vec<_> = (0..count).map(|i| alias(&format!("lazy{i}"), &format!("f{i}"))).collect();
    for round in 0..20 {
        let names = jit.main_dylib().create_tracker().unwrap();
        jit.lazy_reexport(&names, &library, &aliases).unwrap();
        let usage = jit.usage(&names);
        // A stub of eight bytes and an entry of sixteen each; a slot each, and one for all entries.
        assert_eq!((usage.allocations, usage.code, usage.data), (2, count * 24, count * 8));
        let call = |i: u64| function::<extern "C" fn(u64) -> u64>(&jit, &format!("lazy{i}")).call(1);
        (0..count).step_by(7).for_each(|i| assert_eq!((call(i), call(i)), (i + 1, i + 1), "round {round}"));
        assert!(names.remove().unwrap().is_complete());
        assert_eq!(jit.usage(&names).allocations, 0);
    }
    assert!(code.remove().unwrap().is_complete());
    assert_eq!(held(&jit), (0, 0, 0));
}
