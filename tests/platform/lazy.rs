//! Lazy re-exports: functions that are linked at their first call.

use std::sync::{Arc, Mutex};

use jittison::base::{ExecutorAddr, Name};
use jittison::error::Result;
use jittison::session::{
    Alias, DefinitionGenerator, Event, Observer, SymbolFlags, SymbolRequest, SymbolState, Visibility,
};
use jittison::{Function, Jit, JitDylib, ResourceTracker};

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

/// A library with the object above, not yet linked, and a tracker of the main dylib that re-exports its functions lazily.
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
    assert_eq!(
        library.symbol_state("mix"),
        Some(SymbolState::NeverSearched),
        "a lookup of the lazy name links nothing"
    );
    for _ in 0..3 {
        assert_eq!(mix.call(1, 2.5, 3, 4.25, 5, 6, 7, 8), 36.75);
    }
    assert_eq!(library.symbol_state("mix"), Some(SymbolState::Ready));
    assert_eq!(function::<extern "C" fn(i64) -> i64>(&jit, "lazy_twice").call(21), 42);
}

/// Symptom: the function ran before the constructors of its object.
#[test]
fn the_first_call_runs_initialisers_of_the_function_and_of_its_dependencies_before_the_function() {
    let base = c("static long value; __attribute__((constructor)) static void set(void) { value = 7; }
                  long base_value(void) { return value; }");
    let code = c("extern long base_value(void); static long value;
                  __attribute__((constructor)) static void set(void) { value = base_value() + 1; }
                  long get(void) { return value; }");
    let (Some(base), Some(code)) = (base, code) else { return };
    let jit = new_jit();
    let (lower, library) = (jit.create_dylib("lower").unwrap(), jit.create_dylib("library").unwrap());
    library.set_link_order(&[(lower.clone(), Visibility::ExportedOnly)]).unwrap();
    let _objects = [add(&jit, &lower, "base.o", &base), add(&jit, &library, "code.o", &code)];
    let names = jit.main_dylib().create_tracker().unwrap();
    jit.lazy_reexport(&names, &library, &[alias("lazy_get", "get")]).unwrap();
    assert_eq!(long(&jit, "lazy_get"), 8);
}

#[test]
fn no_thread_enters_a_lazy_function_before_its_initialisers_have_ended() {
    let source = "extern void pause(void); static volatile long value;
         __attribute__((constructor)) static void set(void) { pause(); value = 7; }
         long get(void) { return value; }";
    let Some(code) = c(source) else { return };
    extern "C" fn pause() {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let jit = new_jit();
    let library = jit.create_dylib("library").unwrap();
    define_function(&jit, &library, "pause", pause as extern "C" fn());
    let _code = add(&jit, &library, "code.o", &code);
    let names = jit.main_dylib().create_tracker().unwrap();
    jit.lazy_reexport(&names, &library, &[alias("lazy_get", "get")]).unwrap();
    let get = function::<extern "C" fn() -> i64>(&jit, "lazy_get");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(get.call(), 7));
        }
    });
}

#[test]
fn an_initialiser_may_make_the_first_call_of_a_lazy_function_of_its_object() {
    let source = "extern long lazy_get(void); static long value = 3, seen;
         __attribute__((constructor)) static void set(void) { seen = lazy_get(); value = 7; }
         long get(void) { return value * 10 + seen; }";
    let Some(code) = c(source) else { return };
    let jit = new_jit();
    let names = jit.main_dylib().create_tracker().unwrap();
    jit.lazy_reexport(&names, jit.main_dylib(), &[alias("lazy_get", "get")]).unwrap();
    let _code = add(&jit, jit.main_dylib(), "code.o", &code);
    assert_eq!(long(&jit, "lazy_get"), 70 + 30);
}

#[test]
fn a_bound_lazy_name_keeps_its_function_and_an_unbound_one_does_not() {
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
fn lazy_names_that_were_never_called_are_removed_without_a_link() {
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
fn lazy_functions_of_one_tracker_share_two_allocations_and_removal_frees_them() {
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
        // Per function: a stub, an entry and a slot of 8 bytes.
        let stub_and_entry = if cfg!(target_arch = "x86_64") { 16 + 20 } else { 24 + 40 };
        assert_eq!((usage.allocations, usage.code, usage.data), (2, count * stub_and_entry, count * 8));
        let call = |i: u64| function::<extern "C" fn(u64) -> u64>(&jit, &format!("lazy{i}")).call(1);
        (0..count).step_by(7).for_each(|i| assert_eq!((call(i), call(i)), (i + 1, i + 1), "round {round}"));
        assert!(names.remove().unwrap().is_complete());
        assert_eq!(jit.usage(&names).allocations, 0);
    }
    assert!(code.remove().unwrap().is_complete());
    assert_eq!(held(&jit), (0, 0, 0));
}

type Twice = extern "C" fn(i64) -> i64;

#[test]
fn a_removed_lazy_function_that_is_held_keeps_the_function_it_binds() {
    let Some((jit, _library, code, names)) = lazy() else { return };
    let twice = function::<Twice>(&jit, "lazy_twice");
    let removals = [&names, &code].map(|tracker| {
        let removal = tracker.remove().unwrap();
        if tracker.key() == names.key() {
            assert_eq!(twice.call(21), 42, "the first call, after the removal of the function's own tracker");
        }
        removal
    });
    assert_eq!([removals[0].is_complete(), removals[1].is_complete()], [false, false]);
    assert_eq!(removals[1].blockers(), (0, 1));
    assert_eq!(twice.call(4), 8);
    drop(twice);
    assert!(removals.iter().all(|removal| removal.is_complete()));
    assert_eq!(held(&jit), (0, 0, 0));
}

#[test]
fn a_cycle_closed_by_a_first_call_after_removal_is_freed_with_the_last_handle() {
    let source = "extern long lazy_back(long); long back(long x) { return x + 1; }
                  long there(long x) { return x ? lazy_back(x) : 0; }";
    let Some(object) = c(source) else { return };
    let jit = new_jit();
    let library = jit.create_dylib("library").unwrap();
    library.set_link_order(&[(jit.main_dylib().clone(), jittison::session::Visibility::All)]).unwrap();
    let names = jit.main_dylib().create_tracker().unwrap();
    jit.lazy_reexport(&names, &library, &[alias("lazy_back", "back"), alias("lazy_there", "there")]).unwrap();
    let code = add(&jit, &library, "library.o", &object);
    let [there, back] = ["lazy_there", "lazy_back"].map(|name| function::<Twice>(&jit, name));
    jit.address_of(&library, "there").unwrap();
    let removal = names.remove().unwrap();
    assert_eq!((there.call(0), back.call(1), there.call(5)), (0, 2, 6));
    let code_removal = code.remove().unwrap();
    assert!(!removal.is_complete() && !code_removal.is_complete());
    drop(there);
    assert!(!removal.is_complete() && !code_removal.is_complete());
    drop(back);
    assert!(removal.is_complete() && code_removal.is_complete());
    assert_eq!(held(&jit), (0, 0, 0));
}

#[test]
fn the_first_call_of_a_removed_function_does_not_bind_its_successor() {
    let Some((jit, library, _code, names)) = lazy() else { return };
    let old = function::<Twice>(&jit, "lazy_twice");
    let removal = names.remove().unwrap();
    let other = add(&jit, &library, "other.o", &c("long thrice(long x) { return 3 * x; }").unwrap());
    let again = jit.main_dylib().create_tracker().unwrap();
    jit.lazy_reexport(&again, &library, &[alias("lazy_twice", "thrice")]).unwrap();
    let new = function::<Twice>(&jit, "lazy_twice");
    assert_eq!(old.call(7), 14);
    assert_eq!((new.call(7), new.call(8), old.call(8)), (21, 24, 16));
    drop(old);
    assert!(removal.is_complete());
    assert_eq!(new.call(9), 27);
    drop((new, other));
}

#[test]
fn a_redirect_during_the_binding_of_a_lazy_function_stays() {
    /// Adds the object when a lookup needs it, and redirects the stub.
    struct Library(Jit, Vec<u8>);
    extern "C" fn elsewhere(x: i64) -> i64 {
        -x
    }
    impl DefinitionGenerator for Library {
        fn generate(&self, dylib: &JitDylib, missing: &[SymbolRequest<'_>]) -> Result<()> {
            if missing.iter().any(|request| request.name == "twice") {
                self.0.add_object(&dylib.default_tracker()?, "library.o", self.1.clone())?;
                let target = ExecutorAddr::new(elsewhere as *const () as u64);
                // SAFETY: a function with that signature, which is never removed.
                unsafe { self.0.redirect_stub(self.0.main_dylib(), "lazy_twice", target) }?;
            }
            Ok(())
        }
    }
    let Some(object) = c("long twice(long x) { return 2 * x; }") else { return };
    let jit = new_jit();
    let library = jit.create_dylib("library").unwrap();
    library.add_generator(Arc::new(Library(jit.clone(), object)));
    let names = jit.main_dylib().create_tracker().unwrap();
    jit.lazy_reexport(&names, &library, &[alias("lazy_twice", "twice")]).unwrap();
    let twice = function::<Twice>(&jit, "lazy_twice");
    assert_eq!((twice.call(5), twice.call(5)), (10, -5));
    drop(twice);
    jit.session().end().unwrap();
}

#[test]
fn a_finaliser_may_make_the_first_call_of_a_lazy_function_of_its_own_tracker() {
    let source = "extern long lazy_twice(long); extern void report(long);
                  __attribute__((destructor)) static void finalise(void) { report(lazy_twice(21)); report(lazy_twice(4)); }
                  long live(void) { return 1; }";
    let (Some(object), Some((jit, _library, code, names))) = (c(source), lazy()) else { return };
    static REPORTED: Mutex<Vec<i64>> = Mutex::new(Vec::new());
    extern "C" fn report(value: i64) {
        REPORTED.lock().unwrap().push(value);
    }
    define_function(&jit, jit.main_dylib(), "report", report as extern "C" fn(i64));
    jit.add_object(&names, "user.o", object).unwrap();
    assert_eq!(long(&jit, "live"), 1);
    assert!(names.remove().unwrap().is_complete());
    assert_eq!(*REPORTED.lock().unwrap(), [42, 8]);
    assert!(code.remove().unwrap().is_complete());
    assert_eq!(held(&jit), (0, 0, 0));
}

#[test]
fn a_failed_definition_of_lazy_functions_leaves_nothing_behind() {
    let Some((jit, library, _code, names)) = lazy() else { return };
    let before = held(&jit);
    let tracker = jit.main_dylib().create_tracker().unwrap();
    let with_duplicate = [alias("free", "twice"), alias("lazy_mix", "mix")];
    assert!(jit.lazy_reexport(&tracker, &library, &with_duplicate).is_err());
    assert_eq!((held(&jit), jit.main_dylib().symbol_state("free")), (before, None));
    names.remove().unwrap();
    assert!(jit.lazy_reexport(&names, &library, &[alias("free", "twice")]).is_err(), "the tracker was removed");
    assert_eq!(held(&jit), (0, 0, 0));
}

/// The entries exist before the stubs are published, so a handle of a stub keeps both.
#[test]
fn a_handle_of_a_lazy_function_keeps_its_entry_after_an_immediate_removal() {
    struct Remover {
        to_remove: Mutex<Option<(Jit, ResourceTracker)>>,
        /// The handle, and whether the removal was complete. A failed assertion in an observer would not fail the test.
        outcome: Mutex<Option<(Function<Twice>, bool)>>,
    }
    impl Observer for Remover {
        fn observe(&self, event: &Event<'_>) {
            if !matches!(event, Event::Published { symbols, .. } if symbols.iter().any(|name| name.as_str() == "lazy_twice"))
            {
                return;
            }
            let Some((jit, names)) = self.to_remove.lock().unwrap().take() else { return };
            let twice = function(&jit, "lazy_twice");
            *self.outcome.lock().unwrap() = Some((twice, names.remove().unwrap().is_complete()));
        }
    }
    let Some(object) = c("long twice(long x) { return 2 * x; }") else { return };
    let remover = Arc::new(Remover { to_remove: Mutex::default(), outcome: Mutex::default() });
    let jit = Jit::builder().trap_freed_code(true).observer(remover.clone()).build().unwrap();
    let library = jit.create_dylib("library").unwrap();
    let _code = add(&jit, &library, "library.o", &object);
    let names = jit.main_dylib().create_tracker().unwrap();
    *remover.to_remove.lock().unwrap() = Some((jit.clone(), names.clone()));
    let _ = jit.lazy_reexport(&names, &library, &[alias("lazy_twice", "twice")]);
    let (twice, is_complete) = remover.outcome.lock().unwrap().take().expect("the stub was published");
    assert!(!is_complete, "the handle defers the removal");
    assert_eq!((twice.call(3), twice.call(4)), (6, 8));
}
