//! Types of C and C++ with debug information: a reload that would read memory as something else is refused by name.

use crate::*;

/// The flags of the tests, and `-g`.
fn typed(flags: &[&'static str], source: &str) -> Option<Vec<u8>> {
    support::gcc(&[&FLAGS[..], &["-g"], flags].concat(), source)
}

fn typed_cpp(source: &str) -> Option<Vec<u8>> {
    support::gxx(&[&FLAGS[..], &["-g"]].concat(), source)
}

/// Reloads `a.o` and looks at the refusal.
#[track_caller]
fn assert_refused(one: &[u8], two: &[u8], says: &[&str]) {
    let program = Program::new(&[("a.o", one)]);
    program.call("run");
    program.refused("a.o", two, says);
    program.call("run");
}

/// Reloads `a.o`. Returns what `run` gives before and afterwards.
#[track_caller]
fn results(one: &[u8], two: &[u8]) -> (i64, i64) {
    let program = Program::new(&[("a.o", one)]);
    let before = program.call("run");
    drop(program.reload("a.o", two));
    (before, program.call("run"))
}

/// Definitions of before and after an edit, and the name in the refusal. `FIRST` of each is `first` of a variable `it`.
const LAYOUTS: [(&str, &str, &str); 9] = [
    (
        "struct node { int first; int other; }; struct node it = { 1, 2 };",
        "struct node { int other; int first; }; struct node it = { 2, 1 };",
        "`node`",
    ),
    (
        "typedef struct { int first; int other; } node; node it;",
        "typedef struct { int other; int first; } node; node it;",
        "`node`",
    ),
    (
        "struct in { int first; int b; }; struct node { struct in in; }; struct node *it;",
        "struct in { int b; int first; }; struct node { struct in in; }; struct node *it;",
        "`in`",
    ),
    (
        "struct node { unsigned first : 3, other : 5; }; struct node it;",
        "struct node { unsigned first : 5, other : 3; }; struct node it;",
        "`node`",
    ),
    (
        "union node { int first; int more; }; union node it;",
        "union node { float first; int more; }; union node it;",
        "`node`",
    ),
    (
        "struct node { struct { int first; int other; } part; }; struct node it;",
        "struct node { struct { int other; int first; } part; }; struct node it;",
        "`node`",
    ),
    (
        "enum state { IDLE, RUNS }; struct node { int first; }; enum state it;",
        "enum state { IDLE, ENDS, RUNS }; struct node { int first; }; enum state it;",
        "`state::RUNS`",
    ),
    (
        "struct node { int (*first)(int); }; struct node it;",
        "struct node { int (*first)(float); }; struct node it;",
        "`node`",
    ),
    (
        "struct node { int first[2][3]; }; struct node it;",
        "struct node { int first[3][2]; }; struct node it;",
        "`node`",
    ),
];

#[test]
fn a_type_with_another_layout_is_refused_by_name() {
    for (old, new, name) in LAYOUTS {
        let source =
            |definition: &str, result: i32| format!("{definition} long run(void) {{ return {result} + !&it; }}");
        let (Some(one), Some(two)) = (typed(&[], &source(old, 1)), typed(&[], &source(new, 2))) else { return };
        assert_refused(&one, &two, &[name, "layout"]);
        // The same edit is accepted if nothing says what the types are.
        let (Some(one), Some(two)) = (c(&source(old, 1)), c(&source(new, 2))) else { return };
        assert_eq!(results(&one, &two), (1, 2), "{new}");
    }
}

#[test]
fn a_type_is_known_on_in_later_versions_that_do_not_use_it() {
    let sources = [
        "struct node { int first; int other; }; struct node it; long run(void) { return it.first; }",
        "long run(void) { return 5; }",
        "struct node { int other; int first; }; struct node *now; long run(void) { return !!now; }",
    ];
    let [Some(one), Some(two), Some(three)] = sources.map(|source| typed(&[], source)) else { return };
    let program = Program::new(&[("a.o", &one)]);
    drop(program.reload("a.o", &two));
    program.refused("a.o", &three, &["`node`", "layout"]);
    assert_eq!(program.call("run"), 5);
}

#[test]
fn what_is_not_a_layout_may_change() {
    let old = "typedef long count; enum { SIZE = 10 }; enum state { IDLE, RUNS }; struct later;
        struct node { count first; const int other; struct later *later; }; struct node it = { 1, 2, 0 }; enum state state = RUNS;
        long run(void) { struct part { int a, b; } part = { SIZE, 2 }; return it.first + part.a; }";
    let new = "typedef long number; typedef number again; enum { SIZE = 20 }; enum state { IDLE, RUNS, ENDS }; struct added { int a; };
        struct later { int a; }; struct node { again first; int other; struct later *later; }; struct node it = { 1, 2, 0 };
        enum state state = RUNS; struct added more;
        long run(void) { struct part { int b; long a; } part = { 3, SIZE }; return it.first + part.a * 2 + more.a; }";
    let (Some(one), Some(two)) = (typed(&[], old), typed(&[], new)) else { return };
    assert_eq!(results(&one, &two), (11, 41));
    let old = "struct node { int first; static int shared; virtual long value() { return first; } }; int node::shared = 7; node it{};
        extern \"C\" long run() { return it.value(); }";
    let new = "struct node { int first; static int shared; static int more; virtual long value() { return first + add(); }
        int add() const { return 5; } }; int node::shared = 7; int node::more = 1; node it{}; extern \"C\" long run() { node *p = &it; return p->value(); }";
    let (Some(one), Some(two)) = (typed_cpp(old), typed_cpp(new)) else { return };
    assert_eq!(results(&one, &two), (0, 5));
}

#[test]
fn what_a_compiler_adds_to_a_class_is_no_method_of_it() {
    let class = "struct base { virtual ~base(); virtual int f(); int n; }; struct node : base { int m; int f() override { return 2; } };";
    // Only the second version needs the destructor that nobody wrote, and then clang describes it.
    let uses = ["static node *kept; return !!kept + 5;", "node *p = new node; int r = p->f(); delete p; return r;"];
    let flags = [&FLAGS[..], &["-g", "-fstandalone-debug", "-x", "c++"]].concat();
    let compile = |text: &str| support::clang(&flags, &format!("{class} {text}"));
    let [one, two] = uses.map(|body| compile(&format!("extern \"C\" long run() {{ {body} }}")));
    let (Some(one), Some(two), Some(base)) = (one, two, compile("base::~base() {} int base::f() { return 1; }")) else {
        return;
    };
    let program = Program::new(&[("a.o", &one), ("b.o", &base)]);
    assert_eq!(program.call("run"), 5);
    drop(program.reload("a.o", &two));
    assert_eq!(program.call("run"), 2);
}

#[test]
fn a_variable_of_another_type_is_refused_by_name() {
    let edits: [(&str, &str, &[&str]); 6] = [
        ("int n = 1;", "float n = 1;", &["`n`", "another type", "start the program again"]),
        ("static int n = 1;", "static float n = 1;", &["`n`", "another type", "jittison_migrate_n"]),
        ("static int n[2] = { 1 };", "static short n[4] = { 1 };", &["`n`", "another type"]),
        (
            "static _Thread_local int n = 1;",
            "static _Thread_local float n = 1;",
            &["`n`", "another type", "start the program again"],
        ),
        ("static struct { int a, b; } n = { 1 };", "static struct { int b, a; } n = { 1 };", &["`n`", "another type"]),
        ("static int *n;", "static float *n;", &["`n`", "another type"]),
    ];
    let flags: [&[&str]; 2] = [&[], &["-gdwarf-4"]];
    for (old, new, says) in edits {
        let source = |variable: &str, result: i32| {
            format!("{variable} void *place(void) {{ return &n; }} long run(void) {{ return {result}; }}")
        };
        for flags in flags {
            let (Some(one), Some(two)) = (typed(flags, &source(old, 1)), typed(flags, &source(new, 2))) else { return };
            assert_refused(&one, &two, says);
        }
    }
}

#[test]
fn variables_of_one_name_in_several_functions_are_not_mixed_up() {
    let old = "long f(void) { static int n = 1; return ++n; } long run(void) { static long n = 10; return ++n + f(); }";
    let new =
        "long run(void) { static long n = 10; return ++n * 2 + f(); } long f(void) { static int n = 1; return ++n; }"
            .replacen("long run", "long f(void); long run", 1);
    let (Some(one), Some(two)) = (typed(&[], old), typed(&[], &new)) else { return };
    assert_eq!(results(&one, &two), (13, 27));
}

#[test]
fn a_hook_answers_for_the_types_that_its_variable_leads_to() {
    let old = "struct in { int a, b; }; struct node { struct in in; struct node *next; }; static struct node *head; static struct node first = { { 1, 2 }, 0 };
        long run(void) { head = &first; return head->in.a; }";
    let new = "struct in { int b, a; }; struct node { struct in in; struct node *next; }; static struct node *head; static struct node first;
        long run(void) { return head->in.a * 10; }";
    let hook = "struct old { int a, b; void *next; };
        void jittison_migrate_first(void *to, const void *from, unsigned long size) {
            first = (struct node){ { ((const struct old *)from)->b, ((const struct old *)from)->a }, 0 }; head = &first; }";
    let (Some(one), Some(two), Some(three)) = (typed(&[], old), typed(&[], new), typed(&[], &format!("{new} {hook}")))
    else {
        return;
    };
    let program = Program::new(&[("a.o", &one)]);
    assert_eq!(program.call("run"), 1);
    program.refused("a.o", &two, &["`in`", "layout"]);
    assert_eq!(program.reload("a.o", &three).diff.moved_variables, ["first"]);
    assert_eq!(program.call("run"), 10);
    // It answers for no other type.
    let other = "struct other { int a, b; }; struct other *more(void) { return 0; }";
    let (Some(one), Some(two)) =
        (typed(&[], &format!("{old} {other}")), typed(&[], &format!("{new} {hook} {}", other.replace("a, b", "b, a"))))
    else {
        return;
    };
    assert_refused(&one, &two, &["`other`", "layout"]);
}

#[test]
fn a_class_with_other_virtual_functions_or_bases_is_refused_by_name() {
    let edits = [
        (
            "struct base { int n; }; struct node : base { virtual long one(); };",
            "struct base { int n; }; struct node : base { virtual long two(); virtual long one(); };",
        ),
        (
            "struct base { int n; }; struct node : base { virtual long one(); };",
            "struct base { int n; }; struct node : base { virtual long one(); virtual long two(); };",
        ),
        (
            "struct base { int n; }; struct more { int m; }; struct node : base, more { virtual long one(); };",
            "struct base { int n; }; struct more { int m; }; struct node : more, base { virtual long one(); };",
        ),
    ];
    for (old, new) in edits {
        let source = |class: &str, result: i32| {
            let two = if class.contains("two") { "long node::two() { return 9; }" } else { "" };
            format!(
                "namespace app {{ {class} long node::one() {{ return {result}; }} {two} node it; }} extern \"C\" long run() {{ return app::it.one(); }}"
            )
        };
        let (Some(one), Some(two)) = (typed_cpp(&source(old, 1)), typed_cpp(&source(new, 2))) else { return };
        assert_refused(&one, &two, &["`app::node`", "methods"]);
    }
}

#[test]
fn a_function_with_other_types_is_refused_while_other_objects_call_it() {
    let main = "long f(int); long run(void) { return f(3); }";
    let main_of_two = "long f(long, long); long run(void) { return f(1L << 40, 2); }";
    let (Some(main), Some(main_of_two)) = (typed(&[], main), typed(&[], main_of_two)) else { return };
    let (old, new) = ("long f(int a) { return a; }", "long f(long a, long b) { return (a >> 40) * 10 + b; }");
    let (Some(old), Some(new)) = (typed(&[], old), typed(&[], new)) else { return };
    let program = Program::new(&[("main.o", &main), ("f.o", &old)]);
    assert_eq!(program.call("run"), 3);
    program.refused("f.o", &new, &["`f`", "types changed", "reload both together"]);
    drop(program.reload_all(&[("f.o", &new), ("main.o", &main_of_two)]));
    assert_eq!(program.call("run"), 12);
    // A caller that was linked with the first version still reaches it.
    // SAFETY: the first `f` has this signature.
    let f = unsafe { program.jit.lookup::<extern "C" fn(i32) -> i64>("f") }.unwrap();
    assert_eq!(f.call(8), 8);
}

#[test]
fn a_static_function_with_other_types_is_refused_if_its_address_was_taken() {
    let old = "static long f(int a) { return a; } long (*kept)(int) = f; long run(void) { return kept(2); }";
    let new = "static long f(long a, long b) { return a + b; } long (*kept)(int) = (long (*)(int))f; long run(void) { return kept(3); }";
    let (Some(one), Some(two)) = (typed(&[], old), typed(&[], new)) else { return };
    assert_refused(&one, &two, &["`f`", "types changed", "another name"]);
    // A function that is only called follows with its callers.
    let old = "__attribute__((noinline)) static long f(int a) { return a; } int n = 2; long run(void) { return f(n); }";
    let new = "__attribute__((noinline)) static long f(long a, int *b) { return a + *b; } int n = 2; long run(void) { return f(n, &n); }";
    let (Some(one), Some(two)) = (typed(&[], old), typed(&[], new)) else { return };
    assert_eq!(results(&one, &two), (2, 4));
}

#[test]
fn broken_debug_information_is_compared_as_far_as_it_can_be_read() {
    use object::{Object as _, ObjectSection as _};
    let source = "struct in { int a, b; }; typedef struct { struct in in; int (*f)(struct in *, ...); } pair; pair it; static long n[2][3];
        enum state { IDLE, RUNS } state; union { int a; float b; } u; long run(void) { return it.in.a + (long)n + u.a + state; }";
    let Some(whole) = typed(&["-gdwarf-5"], source) else { return };
    let file = object::File::parse(&*whole).unwrap();
    let debug = file.sections().filter(|section| section.name().is_ok_and(|name| name.starts_with(".debug_")));
    let ranges: Vec<(usize, usize)> =
        debug.filter_map(|section| section.file_range()).map(|(at, size)| (at as usize, size as usize)).collect();
    let mut random = fastrand::Rng::with_seed(33);
    let (mut reloaded, mut refused) = (0, 0);
    for round in 0..500 {
        let mut broken = whole.clone();
        for _ in 0..1 + round % 3 {
            let (at, size) = ranges[random.usize(..ranges.len())];
            broken[at + random.usize(..size.max(1)).min(size)] = random.u8(..);
        }
        let program = Program::new(&[("a.o", if round % 2 == 0 { &whole } else { &broken })]);
        match program.try_reload("a.o", if round % 2 == 0 { &broken } else { &whole }) {
            Ok(_) => reloaded += 1,
            Err(error) => {
                support::assert_says(&error, &["a.o was not reloaded", "nothing was changed"]);
                refused += 1;
            }
        }
    }
    assert!(reloaded > 50 && refused > 5, "{reloaded} were reloaded and {refused} refused, too few to test anything");
}
