//! Variables whose layout changes: a hook of the new version brings the value to the new place.

use crate::*;

const OLD: &str = "
    static struct { int hits; int last; } state = { 1, 2 };
    void *place(void) { return &state; }
    long run(void) { state.hits++; return state.hits * 100 + state.last; }";

/// The new layout, and a hook for it.
const NEW: &str = "
    typedef unsigned long size_t;
    struct old_state { int hits; int last; };
    static struct { long last; long hits; long added; } state = { 7, 8, 9 };
    long calls, seen_size;
    void jittison_migrate_state(void *new, const void *old, size_t old_size) {
        struct old_state value = *(const struct old_state *)old;
        if (new != &state) __builtin_trap();
        state.hits = value.hits; state.last = value.last; seen_size = old_size; calls++;
    }
    void *place(void) { return &state; }
    long run(void) { state.hits++; return state.hits * 100 + state.last * 10 + state.added + seen_size * 10000 + calls * 1000000; }";

#[test]
fn a_hook_brings_the_value_of_a_static_variable_to_its_new_layout() {
    let (Some(one), Some(two)) = (c(OLD), c(NEW)) else { return };
    let program = Program::new(&[("a.o", &one)]);
    assert_eq!(program.call("run"), 202);
    let old_place = program.call("place");
    let reload = program.reload("a.o", &two);
    assert_eq!(reload.diff.moved_variables, ["state"]);
    // What the hook did not write has its initial value.
    assert_eq!(program.call("run"), 1_080_329);
    assert_ne!(program.call("place"), old_place);
}

#[test]
fn a_hook_runs_once_and_again_when_it_changes() {
    let third = NEW
        .replace("struct old_state { int hits; int last; };", "struct old_state { long last; long hits; long added; };")
        .replace("long added; } state = { 7, 8, 9 };", "long added; long more; } state;")
        .replace("calls++;", "state.added = value.added; calls += 3;");
    let same = NEW.replace("state.added +", "state.added + 1 +");
    let (Some(one), Some(two), Some(same), Some(three)) = (c(OLD), c(NEW), c(&same), c(&third)) else { return };
    let program = Program::new(&[("a.o", &one)]);
    drop(program.reload("a.o", &two));
    let place = program.call("place");
    // The version has the hook, which did not change.
    let reload = program.reload("a.o", &same);
    assert_eq!((reload.diff.changed, reload.diff.moved_variables), (vec!["run".to_string()], vec![]));
    assert_eq!((program.call("place"), program.call("run")), (place, 1_080_200 + 20 + 10));
    let reload = program.reload("a.o", &three);
    assert_eq!(reload.diff.moved_variables, ["state"]);
    assert_ne!(program.call("place"), place);
    // `hits`, `last` and `added` of the second layout, the size of that, and one call and three more.
    assert_eq!(program.call("run"), 4_240_329);
}

#[test]
fn a_hook_moves_a_variable_of_the_same_size_and_beside_others_that_stay() {
    let old = "static int pair[2] = { 3, 4 }; static long count; void set(int value) { pair[0] = pair[1] = value; } long run(void) { return ++count * 100 + pair[0] * 10 + pair[1]; }";
    let new = "static short pair[4]; static long count;
        void jittison_migrate_pair(void *new, const void *old, unsigned long size) {
            for (unsigned long i = 0; i < size / 4; i++) pair[i * 2] = ((const int *)old)[i]; }
        void set(int value) { pair[0] = pair[2] = value; }
        long run(void) { return ++count * 100 + pair[0] * 10 + pair[2]; }";
    let (Some(one), Some(two)) = (c(old), c(new)) else { return };
    let program = Program::new(&[("a.o", &one)]);
    assert_eq!(program.call("run"), 134);
    assert_eq!(program.reload("a.o", &two).diff.moved_variables, ["pair"]);
    assert_eq!(program.call("run"), 234);
}

#[test]
fn a_hook_moves_a_variable_of_a_function_and_one_of_a_namespace() {
    let old = "namespace app { static int total = 5; } extern \"C\" long run() { static int own = 2; return ++own * 10 + ++app::total; }";
    let new = "namespace app { static long total; }
        extern \"C\" void jittison_migrate__ZN3appL5totalE(void *to, const void *from, unsigned long) { *(long *)to = *(const int *)from; }
        extern \"C\" void jittison_migrate__ZZ3runE3own(void *to, const void *from, unsigned long) { *(long *)to = *(const int *)from; }
        extern \"C\" long run() { static long own = 0; return ++own * 10 + ++app::total; }";
    let (Some(one), Some(two)) = (cpp(old), cpp(new)) else { return };
    let program = Program::new(&[("a.o", &one)]);
    assert_eq!(program.call("run"), 36);
    let mut moved = program.reload("a.o", &two).diff.moved_variables;
    moved.sort();
    assert_eq!(moved, ["_ZN3appL5totalE", "_ZZ3runE3own"]);
    assert_eq!(program.call("run"), 47);
    // The same functions use the old and the new ones. Only the new ones are known.
    let three = cpp(&new.replace("* 10 +", "* 100 +")).unwrap();
    assert_eq!(program.reload("a.o", &three).diff.moved_variables, [""; 0]);
    assert_eq!(program.call("run"), 508);
}

#[test]
fn hooks_move_all_variables_of_a_section_that_the_compiler_refers_to_by_place() {
    let hook = |name: &str| {
        format!(
            "void jittison_migrate_{name}(void *new, const void *old, unsigned long size) {{ {name} = *(const int *)old; }}"
        )
    };
    let source = |kind: &str, hooks: &str| {
        let source = format!(
            "static {kind} one, two; {hooks} void set({kind} a, {kind} b) {{ one = a; two = b; }}
             long run(void) {{ two += 2; return ++one * 100 + two; }}"
        );
        support::gcc(&["-O1", "-fPIC"], &source)
    };
    let (Some(old), Some(new)) = (source("int", ""), source("long", &[hook("one"), hook("two")].concat())) else {
        return;
    };
    let program = Program::new(&[("a.o", &old)]);
    assert_eq!((program.call("run"), program.call("run")), (102, 204));
    assert_eq!(program.reload("a.o", &new).diff.moved_variables.len(), 2);
    assert_eq!(program.call("run"), 306);
    // One of them cannot move alone.
    let (Some(old), Some(one)) = (source("int", ""), source("int", &hook("one"))) else { return };
    let program = Program::new(&[("a.o", &old)]);
    program.refused("a.o", &one, &["came, went or moved", "-fdata-sections"]);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn the_old_place_of_a_variable_is_not_used_again() {
    let old = "static int kept; long run(void) { kept += 5; return kept; }";
    let new = "static long kept; void jittison_migrate_kept(void *new, const void *old, unsigned long size) { kept = *(const int *)old; }
               long run(void) { kept += 5; return kept; }";
    // Data without a name in a section of the same name and size.
    let unnamed = "asm(\".bss\\n.Lunnamed: .zero 4\\n.text\");
        long run(void) { int n; asm volatile(\"incl .Lunnamed(%%rip)\\n movl .Lunnamed(%%rip), %0\" : \"=r\"(n)); return n; }";
    let compiled = |source| support::gcc(&["-O1", "-fPIC"], source);
    let (Some(old), Some(new), Some(unnamed)) = (compiled(old), compiled(new), compiled(unnamed)) else { return };
    let program = Program::new(&[("a.o", &old)]);
    assert_eq!(program.call("run"), 5);
    assert_eq!(program.reload("a.o", &new).diff.moved_variables, ["kept"]);
    assert_eq!(program.call("run"), 10);
    drop(program.reload("a.o", &unnamed));
    assert_eq!(program.call("run"), 1);
}

#[test]
fn variables_that_no_hook_can_move_are_refused() {
    let source =
        |kind: &str, hook: &str| c(&format!("{kind} kept = 1; {hook} long run(void) {{ return kept++ * 0 + 1; }}"));
    let hook = "void jittison_migrate_kept(void *new, const void *old, unsigned long size) { }";
    for (old, new, hook, says) in [
        (
            "static int",
            "static long",
            "",
            "add a function `void jittison_migrate_kept(void *new, const void *old, size_t old_size)`",
        ),
        ("int", "long", hook, "`jittison_migrate_kept` cannot move it: it is global"),
        (
            "static __thread int",
            "static __thread long",
            hook,
            "`jittison_migrate_kept` cannot move it: it is thread-local",
        ),
        ("static int", "static __thread int", hook, "`jittison_migrate_kept` cannot move it: it is thread-local"),
    ] {
        let (Some(one), Some(two)) = (source(old, ""), source(new, hook)) else { return };
        let program = Program::new(&[("a.o", &one)]);
        program.refused("a.o", &two, &["`kept`", says]);
        assert_eq!(program.call("run"), 1);
    }
}

#[test]
fn a_hook_that_panics_leaves_everything_as_it_was() {
    extern "C-unwind" fn fail() {
        panic!("by the test");
    }
    let old = "static int kept = 1; long run(void) { return kept++; }";
    let new = "extern void fail(void); static long kept;
        void jittison_migrate_kept(void *new, const void *old, unsigned long size) { kept = 5; fail(); }
        long run(void) { return 100 + kept++; }";
    let (Some(one), Some(two)) = (c(old), c(new)) else { return };
    let program = Program::new(&[("a.o", &one)]);
    support::define_function(&program.jit, program.jit.main_dylib(), "fail", fail as extern "C-unwind" fn());
    assert_eq!(program.call("run"), 1);
    let before = program.state();
    let reload = std::panic::AssertUnwindSafe(|| program.try_reload("a.o", &two).map(drop));
    assert!(std::panic::catch_unwind(reload).is_err(), "the panic goes to the caller of the reload");
    assert_eq!((program.call("run"), program.state()), (2, before));
    drop(program.reload("a.o", &c("static int kept = 1; long run(void) { return 10 * kept++; }").unwrap()));
    assert_eq!(program.call("run"), 30);
}
