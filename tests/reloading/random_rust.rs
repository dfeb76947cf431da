//! Random edits of a Rust program that several threads run: generic functions, `dyn` objects, closures, `static` variables. As in
//! `random.rs`, each version has a number, and the oracle knows which numbers a call may return.

use crate::random::Oracle;
use crate::*;

/// The flags of `jittison watch --cargo`.
const FLAGS: [&str; 8] = [
    "-Copt-level=0",
    "-Clink-dead-code",
    "-Csymbol-mangling-version=v0",
    "-Cdebuginfo=2",
    "-Coverflow-checks=off",
    "-Cdebug-assertions=off",
    "-Crelocation-model=pic",
    "-Cpanic=abort",
];

/// A number that each object has once, and that an edit replaces.
const NUMBER: i32 = 0x5a17_c0de;

/// By which way `answer` gets the number.
const WAYS: [&str; 4] =
    ["through(NUMBER)", "SHOWN.number()", "(|n: i64| through(n))(NUMBER)", "Pair::of(NUMBER).first()"];

/// The bits of a shape: three `static` variables, an `impl` block, and two for the way.
fn source(shape: usize, fields: &str) -> String {
    let extra = |index: usize| shape >> index & 1 != 0;
    let statics: String = (0..3)
        .filter(|index| extra(*index))
        .map(|index| format!("static EXTRA{index}: Count = Count::new({});\n", index + 1))
        .collect();
    let sum: Vec<String> =
        (0..3).filter(|index| extra(*index)).map(|index| format!("EXTRA{index}.fetch_add(0, Relaxed)")).collect();
    let sum = if sum.is_empty() { "0".to_string() } else { sum.join(" + ") };
    let block = if extra(3) { "impl Pair { fn second(&self) -> i64 { self.0[1] } }" } else { "" };
    let way = WAYS[shape >> 4];
    format!(
        "#![no_std]\n#![allow(dead_code)]\n\
         use core::sync::atomic::{{AtomicI64 as Count, Ordering::Relaxed}};\n\
         const NUMBER: i64 = {NUMBER};\n\
         struct State {{ calls: Count {fields} }}\n\
         static STATE: State = State {{ calls: Count::new(0) {} }};\n\
         {statics}\
         struct Pair([i64; 2]);\n{block}\n\
         impl Pair {{ fn of(n: i64) -> Pair {{ Pair([n, 0]) }} fn first(&self) -> i64 {{ self.0[0] }} }}\n\
         trait Numbers {{ fn number(&self) -> i64; }}\n\
         impl Numbers for Pair {{ fn number(&self) -> i64 {{ through(NUMBER ^ self.0[0]) }} }}\n\
         static SHOWN: &(dyn Numbers + Sync) = &Pair([0, 0]);\n\
         #[inline(never)] fn through<T: Copy>(value: T) -> T {{ value }}\n\
         #[no_mangle] pub extern \"C\" fn answer() -> i64 {{ STATE.calls.fetch_add(1, Relaxed); {way} }}\n\
         #[no_mangle] pub extern \"C\" fn call_count() -> i64 {{ STATE.calls.fetch_add(0, Relaxed) }}\n\
         #[no_mangle] pub extern \"C\" fn sum() -> i64 {{ {sum} }}\n",
        fields.replace("i64", "0"),
    )
}

/// Every place of the number.
fn with_number(object: &[u8], number: i32) -> Vec<u8> {
    let (old, mut object) = (NUMBER.to_le_bytes(), object.to_vec());
    let places: Vec<usize> = (0..object.len() - 3).filter(|at| object[*at..*at + 4] == old).collect();
    assert!(!places.is_empty(), "the object has the number");
    places.into_iter().for_each(|at| object[at..at + 4].copy_from_slice(&number.to_le_bytes()));
    object
}

#[test]
fn random_edits_of_a_running_rust_program_give_no_wrong_answer_and_keep_no_memory() {
    // It changes a constant in the machine code, where only x86-64 has it in one piece.
    if !support::require_x86_64() {
        return;
    }
    let rust = |source: &str| support::rust(&FLAGS, source);
    let is_full = support::rounds(8) == 8;
    let shapes: Vec<usize> = (0..64).step_by(if is_full { 1 } else { 5 }).collect();
    let objects = shapes.iter().map(|shape| rust(&source(*shape, "")));
    let Some(objects) = objects.collect::<Option<Vec<_>>>() else { return };
    let Some(other_layout) = rust(&source(0, ", more: i64")) else { return };
    let needs = "#![no_std]\nextern \"C\" { fn nowhere() -> i64; }\n#[no_mangle] pub extern \"C\" fn answer() -> i64 { unsafe { nowhere() } }";
    let Some(missing) = rust(needs) else { return };
    let program = Program::new(&[("jitted.o", &with_number(&objects[0], 0))]);
    let oracle = Oracle::default();
    let edits = if is_full { 10_000 } else { 200 };
    std::thread::scope(|threads| {
        let running: Vec<_> = (0..3)
            .map(|_| {
                let function = program.find("answer");
                let oracle = &oracle;
                threads.spawn(move || oracle.call_until_the_end(&function))
            })
            .collect();
        let mut random = fastrand::Rng::with_seed(33);
        let mut memory = None;
        for edit in 1..=edits {
            if random.u32(..5) == 0 {
                let broken = match random.u32(..3) {
                    0 => &objects[random.usize(..objects.len())][..random.usize(100..400)],
                    1 => &other_layout,
                    _ => &missing,
                };
                assert!(program.try_reload("jitted.o", broken).is_err());
                continue;
            }
            let index = random.usize(..shapes.len());
            let shape = shapes[index];
            let reload = oracle.edit(edit, || program.reload("jitted.o", &with_number(&objects[index], edit as i32)));
            assert!(!reload.diff.is_empty());
            let sum = (0..3).filter(|index| shape >> index & 1 != 0).map(|index| index + 1).sum::<i64>();
            assert_eq!(program.call("sum"), sum);
            // By then, all variables and functions have been there.
            if edit <= edits / 3 {
                memory = Some(support::held(&program.jit).1);
            }
        }
        oracle.end();
        let calls: i64 = running.into_iter().map(|caller| caller.join().unwrap()).sum();
        assert_eq!(program.call("call_count"), calls);
        let (first, now) = (memory.expect("a third of the edits was reached"), support::held(&program.jit).1);
        assert!(now <= first + 256 * 1024, "{first} bytes, then {now}");
    });
}
