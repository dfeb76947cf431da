//! Random edits of a program that several threads run. Each version has a number, and the oracle knows which numbers a call may
//! return.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use crate::*;

/// Which numbers a call may return, for threads that call all the time.
#[derive(Default)]
pub struct Oracle {
    lowest: AtomicI64,
    highest: AtomicI64,
    is_over: AtomicBool,
}

impl Oracle {
    /// Calls a function until the end. Checks each answer, and returns how many there were.
    pub fn call_until_the_end(&self, function: &Function<Long>) -> i64 {
        let mut calls = 0;
        while !self.is_over.load(Ordering::Relaxed) {
            let from = self.lowest.load(Ordering::SeqCst);
            let answer = function.call();
            let to = self.highest.load(Ordering::SeqCst);
            assert!((from..=to).contains(&answer), "{answer} is not in {from}..={to}");
            calls += 1;
        }
        calls
    }

    /// An edit after which calls return this number.
    pub fn edit<R>(&self, number: i64, edit: impl FnOnce() -> R) -> R {
        self.highest.store(number, Ordering::SeqCst);
        let result = edit();
        self.lowest.store(number, Ordering::SeqCst);
        result
    }

    pub fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// What an edit may change, besides the number.
#[derive(Clone, Copy)]
struct Shape {
    /// Which `static` variables the object has.
    variables: u32,
    has_helper: bool,
}

/// A number that each object has once, and that an edit replaces.
const NUMBER: i32 = 0x5a17_c0de;

fn source(shape: Shape) -> String {
    let mut text = String::from("static long calls;\n");
    let mut sum = String::from("0");
    for index in (0..3).filter(|index| shape.variables >> index & 1 != 0) {
        text += &format!("static long extra{index} = {};\n", index + 1);
        sum += &format!(" + extra{index}");
    }
    if shape.has_helper {
        text += "__attribute__((noinline)) static long helper(long n) { return n; }\nlong shown(long n) { return helper(n); }\n";
    }
    let number = format!("0x{NUMBER:x}");
    let answer = if shape.has_helper { format!("shown({number})") } else { number };
    text += &format!(
        "long answer(void) {{ __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED); return {answer}; }}\n\
         long call_count(void) {{ return calls; }}\nlong sum(void) {{ return {sum}; }}\n"
    );
    text
}

fn with_number(object: &[u8], number: i32) -> Vec<u8> {
    let old = NUMBER.to_le_bytes();
    let at = object.windows(4).position(|bytes| bytes == old).expect("the object has the number");
    let mut object = object.to_vec();
    object[at..at + 4].copy_from_slice(&number.to_le_bytes());
    object
}

#[test]
fn random_edits_of_a_running_program_give_no_wrong_answer_and_keep_no_memory() {
    // It changes a constant in the machine code, where only x86-64 has it in one piece.
    if !support::require_x86_64() {
        return;
    }
    let shapes: Vec<Shape> = (0..16).map(|bits| Shape { variables: bits & 7, has_helper: bits & 8 != 0 }).collect();
    let Some(objects) = shapes.iter().map(|shape| c(&source(*shape))).collect::<Option<Vec<_>>>() else { return };
    let Some(other_size) = c("static char calls; long answer(void) { return calls++; }") else { return };
    let Some(missing) = c("long nowhere(void); long answer(void) { return nowhere(); }") else { return };
    // Two callers, which are reloaded together with the object now and then.
    let caller = |sum: &str| c(&format!("long answer(void); long ask(void) {{ return {sum}; }}"));
    let callers = ["answer()", "1 + answer() - 1", "answer() * 2 / 2"].map(caller);
    let Some(callers) = callers.into_iter().collect::<Option<Vec<_>>>() else { return };
    let program = Program::new(&[("a.o", &with_number(&objects[0], 0)), ("caller.o", &callers[0])]);
    let oracle = Oracle::default();
    let is_full = support::rounds(8) == 8;
    let edits = if is_full { 10_000 } else { 400 };
    std::thread::scope(|threads| {
        let running: Vec<_> = (0..3)
            .map(|index| {
                let function = program.find(if index == 0 { "answer" } else { "ask" });
                let oracle = &oracle;
                threads.spawn(move || oracle.call_until_the_end(&function))
            })
            .collect();
        let mut random = fastrand::Rng::with_seed(33);
        let mut memory = None;
        for edit in 1..=edits {
            if random.u32(..5) == 0 {
                let broken = match random.u32(..3) {
                    0 => &objects[random.usize(..16)][..random.usize(100..400)],
                    1 => &other_size,
                    _ => &missing,
                };
                assert!(program.try_reload("a.o", broken).is_err());
                // The other one is good, but does not follow alone.
                assert!(program.try_reload_all(&[("caller.o", &callers[1]), ("a.o", broken)]).is_err());
                continue;
            }
            let shape = random.usize(..16);
            let new = with_number(&objects[shape], edit as i32);
            let all: [(&str, &[u8]); 2] = [("a.o", &new), ("caller.o", &callers[random.usize(..3)])];
            let together = &all[..random.usize(1..=2)];
            let reloads = oracle.edit(edit, || program.reload_all(together));
            assert!(!reloads[0].diff.is_empty());
            let variables = shapes[shape].variables;
            let sum = (0..3).filter(|index| variables >> index & 1 != 0).map(|index| index + 1).sum::<i64>();
            assert_eq!(program.call("sum"), sum);
            // By then, all variables and functions have been there.
            if edit <= edits / 4 {
                memory = Some(support::held(&program.jit).1);
            }
        }
        oracle.end();
        let calls: i64 = running.into_iter().map(|caller| caller.join().unwrap()).sum();
        assert_eq!(program.call("call_count"), calls);
        // One more edit, after all calls have returned, frees what they held.
        let last = program.reload("a.o", &with_number(&objects[0], -1));
        assert_eq!(last.retired_in_memory, 0);
        let (first, now) = (memory.expect("a quarter of the edits was reached"), support::held(&program.jit).1);
        assert!(now <= first + 64 * 1024, "{first} bytes, then {now}");
    });
}
