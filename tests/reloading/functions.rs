//! Functions of an object that are replaced by themselves: the others stay as they are.

use crate::*;

const FULL: &str = "static long calls; static long scale = 2; long more = 3; const char text[] = \"old\";
    long step(long n) { return ++calls * 100 + n * scale; } long other(void) { return calls; }
    long run(void) { return step(more); }";

impl Program {
    fn reload_functions(&self, name: &str, bytes: &[u8]) -> Result<Reload, Error> {
        // SAFETY: as in `try_reload`.
        unsafe { self.reloader.reload_functions(name, bytes) }
    }

    fn replace_function(&self, name: &str, code: &[u8]) -> Result<Reload, Error> {
        // SAFETY: as in `try_reload`. The tests give whole functions.
        unsafe { self.reloader.replace_function(name, code) }
    }
}

#[test]
fn a_function_follows_and_the_others_of_its_object_stay() {
    let part = "static long calls; extern long more; static __attribute__((noinline)) long twice(long n) { return 2 * n + more; } long step(long n) { calls += 10; return calls * 100 + twice(n); }";
    let (Some(full), Some(part)) = (c(FULL), c(part)) else { return };
    let program = Program::new(&[("a.o", &full)]);
    assert_eq!(program.call("run"), 106);
    let reload = program.reload_functions("a.o", &part).unwrap();
    assert_eq!(
        (&reload.diff.changed[..], &reload.diff.added[..]),
        (&["step".to_string()][..], &["twice".to_string()][..])
    );
    assert_eq!((&reload.diff.removed, &reload.diff.removed_variables), (&vec![], &vec![]));
    assert!(!reload.diff.constants_changed);
    // `calls` and `more` are those of before.
    assert_eq!((program.call("run"), program.call("other")), (1109, 11));
    // The object is known as it runs: with its first bytes it changes back.
    let reload = program.reload("a.o", &full);
    assert_eq!((reload.diff.changed, reload.diff.removed), (vec!["step".to_string()], vec!["twice".to_string()]));
    assert_eq!(program.call("run"), 1206);
}

#[test]
fn versions_of_a_function_are_freed_one_by_one() {
    let part = |n: u32| format!("long step(long n) {{ return n + {n}; }}");
    let [Some(full), Some(one), Some(two)] = [FULL, &part(10), &part(20)].map(c) else { return };
    let program = Program::new(&[("a.o", &full)]);
    program.call("run");
    for _ in 0..3 {
        for (part, expected) in [(&one, 13), (&two, 23)] {
            let reload = program.reload_functions("a.o", part).unwrap();
            assert_eq!((program.call("run"), reload.retired_in_memory), (expected, 0));
            let versions = program.reloader.versions();
            let new: Vec<_> = versions.iter().filter(|version| version.version > 0).collect();
            // The newest one runs. It has one function, and the object has three.
            assert_eq!((new.len(), new[0].version, new[0].functions), (1, reload.version, 3), "{versions:?}");
        }
    }
}

#[test]
fn a_version_of_a_part_is_listed_with_its_own_functions() {
    let part = |n: u32| format!("static long fresh = {n}; long step(long n) {{ return n + fresh++; }}");
    let last = "long step(long n) { return n; }";
    let [Some(full), Some(one), Some(last)] = [FULL, &part(10), last].map(c) else { return };
    let program = Program::new(&[("a.o", &full)]);
    program.reload_functions("a.o", &one).unwrap();
    program.reload_functions("a.o", &last).unwrap();
    let versions = program.reloader.versions();
    // It brought a variable, so it stays.
    let kept: Vec<_> = versions.iter().filter(|version| version.version == 1).collect();
    assert_eq!((kept.len(), kept[0].functions, kept[0].is_replaced), (1, 1, true), "{versions:?}");
}

#[test]
fn what_the_other_functions_need_is_known_after_a_part_was_replaced() {
    let full = "extern const int limit; long step(long n) { return n; } long run(void) { return step(1) + limit; }";
    let part = "long step(long n) { return n + 1; }";
    let limits = [10, 20].map(|limit| c(&format!("const int limit = {limit};")));
    let ([Some(full), Some(part)], [Some(ten), Some(twenty)]) = ([full, part].map(c), limits) else { return };
    let program = Program::new(&[("a.o", &full), ("b.o", &ten)]);
    program.reload_functions("a.o", &part).unwrap();
    program.refused("b.o", &twenty, &["`limit`", "another object reads"]);
    assert_eq!(program.call("run"), 12);
}

#[test]
fn a_part_of_an_object_is_refused_as_the_whole_one_is() {
    let full = "static int n[2]; long step(void) { return ++n[0]; } long run(void) { return step(); }";
    let larger = "static int n[3]; long step(void) { return ++n[2]; }";
    let missing = "long nobody(void); long step(void) { return nobody(); }";
    let of_another = "long mine(void) { return 4; }";
    let [Some(full), Some(larger), Some(missing), Some(mine)] = [full, larger, missing, of_another].map(c) else {
        return;
    };
    let program = Program::new(&[("a.o", &full), ("b.o", &mine)]);
    program.call("run");
    let refusals: [(&str, &[u8], &[&str]); 4] = [
        ("a.o", &larger, &["`n`", "12 bytes"]),
        ("a.o", &missing, &["nobody"]),
        ("a.o", &mine, &["`mine`", "b.o defines"]),
        ("c.o", &mine, &["c.o", "no object of this name"]),
    ];
    for (name, bytes, says) in refusals {
        let before = program.state();
        support::assert_says(&program.reload_functions(name, bytes).unwrap_err(), says);
        assert_eq!(program.state(), before);
    }
    assert_eq!(program.call("run"), 2);
}

#[test]
fn machine_code_replaces_a_function() {
    let full = "long step(long n) { return n; } __attribute__((noinline)) static long hidden(void) { return 1; } long run(void) { return step(20) + hidden(); }
        __attribute__((weak)) long weak(void) { return 1; }";
    let (Some(full), Some(twice), Some(five)) = (c(full), code("lea rax, [rdi + rdi]; ret"), code("mov eax, 5; ret"))
    else {
        return;
    };
    let program = Program::new(&[("a.o", &full)]);
    assert_eq!(program.call("run"), 21);
    let reload = program.replace_function("step", &twice).unwrap();
    assert_eq!(
        (reload.object.as_str(), &reload.diff.changed[..], program.call("run")),
        ("a.o", &["step".to_string()][..], 41)
    );
    assert_eq!((program.replace_function("step", &five).unwrap().retired_in_memory, program.call("run")), (0, 6));
    // The same bytes are no change.
    assert!(program.replace_function("step", &five).unwrap().diff.is_empty());
    program.replace_function("weak", &five).unwrap();
    assert_eq!(program.call("weak"), 5);
    for name in ["hidden", "nobody", "a.o:hidden", ""] {
        let before = program.state();
        support::assert_says(
            &program.replace_function(name, &five).unwrap_err(),
            &["no object that was added has a global function"],
        );
        assert_eq!(program.state(), before);
    }
    // No code: a call would run what is behind it.
    support::assert_says(&program.replace_function("step", &[]).unwrap_err(), &["`step`", "no code"]);
    assert_eq!(program.call("run"), 6);
}

/// The machine code of x86-64 instructions, in the syntax of Intel.
fn code(assembly: &str) -> Option<Vec<u8>> {
    let object = support::asm(&format!(".intel_syntax noprefix\n.globl f, g\nf: {assembly}\ng:\n"))?;
    use object::{Object as _, ObjectSection as _, ObjectSymbol as _};
    let file = object::File::parse(&*object).unwrap();
    let address = |name| file.symbol_by_name(name).unwrap().address() as usize;
    Some(file.section_by_name(".text").unwrap().data().unwrap()[address("f")..address("g")].to_vec())
}
