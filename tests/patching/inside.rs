//! A version that a thread is inside of stays, by whichever way the thread came in, until its call returns.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use jittison::base::{ExecutorAddr, Name};
use jittison::session::{Alias, SymbolFlags};
use jittison::{Patchable, Removal};

use crate::support::*;
use crate::*;

/// Where linked code waits: it says that it is there, and goes on when it is let.
#[repr(C)]
struct Gate {
    wait: extern "C" fn(&Gate) -> i64,
    arrived: Sender<()>,
    opened: Mutex<Receiver<()>>,
}

/// The other side of a gate.
struct Keeper {
    gate: &'static Gate,
    arrived: Receiver<()>,
    open: Sender<()>,
}

extern "C" fn wait_at(gate: &Gate) -> i64 {
    gate.arrived.send(()).unwrap();
    gate.opened.lock().unwrap().recv().unwrap();
    0
}

impl Keeper {
    fn new() -> Keeper {
        let ((to_keeper, arrived), (open, opened)) = (channel(), channel());
        let gate = Box::leak(Box::new(Gate { wait: wait_at, arrived: to_keeper, opened: Mutex::new(opened) }));
        Keeper { gate, arrived, open }
    }

    /// What linked code takes for the gate.
    fn argument(&self) -> i64 {
        std::ptr::from_ref(self.gate) as i64
    }

    fn define(&self, jit: &Jit, name: &str) {
        let address = ExecutorAddr::new(self.argument() as u64);
        let symbol = (Name::new(name), address, SymbolFlags::EXPORTED);
        jit.main_dylib().define_absolute([symbol]).unwrap();
    }

    fn wait_for_arrival(&self) {
        self.arrived.recv().unwrap();
    }

    fn let_go_on(&self) {
        self.open.send(()).unwrap();
    }
}

/// `gemm`, which waits at the gate that it is given, and gives `value`.
fn waiting(value: i64) -> Option<Vec<u8>> {
    c(&format!(
        "struct gate {{ long (*wait)(struct gate *); }}; long gemm(long n) {{ return ((struct gate *)n)->wait((struct gate *)n) + {value}; }}"
    ))
}

fn plain(value: i64) -> Vec<u8> {
    functions(&[("gemm", &value.to_string())]).unwrap()
}

/// `gemm` without a history, in its first version, which waits.
fn patchable(jit: &Jit) -> Option<Patchable> {
    let first = waiting(1)?;
    let kernels = jit.patchable_builder(jit.main_dylib(), &["gemm"]).history(0).build().unwrap();
    assert!(commit(&kernels, &first).retired.is_empty());
    Some(kernels)
}

fn only(mut removals: Vec<Removal>) -> Removal {
    assert_eq!(removals.len(), 1);
    removals.pop().unwrap()
}

/// Replaces the version that a thread is inside of, has the thread go on, and waits for the version to go. `joined` waits for
/// the thread.
fn replace_under_a_caller<R>(kernels: &Patchable, keeper: &Keeper, joined: impl FnOnce() -> R) -> R {
    commit_under_a_caller(link(kernels, &plain(2)).unwrap(), keeper, joined)
}

fn commit_under_a_caller<R>(next: PreparedPatch, keeper: &Keeper, joined: impl FnOnce() -> R) -> R {
    let old = only(next.commit().unwrap().retired);
    assert!(!old.is_complete(), "a thread is inside");
    let obstacles = old.obstacles();
    assert!(obstacles.len() == 1 && obstacles[0].starts_with("a call of thread "), "{obstacles:?}");
    assert!(old.guards()[0].is_call);
    keeper.let_go_on();
    let result = joined();
    assert!(old.is_complete(), "{old:?}");
    result
}

#[test]
fn a_version_that_a_call_through_a_handle_is_inside_of_stays_until_the_call_returns() {
    own_process!();
    let jit = new_jit();
    let Some(kernels) = patchable(&jit) else { return };
    let (keeper, gemm) = (Keeper::new(), find(&jit, "gemm"));
    let (argument, clone) = (keeper.argument(), gemm.clone());
    let caller = thread::spawn(move || clone.call(argument));
    keeper.wait_for_arrival();
    let value = replace_under_a_caller(&kernels, &keeper, || caller.join().unwrap());
    assert_eq!((value, gemm.call(argument)), (1, 2));
}

#[test]
fn a_version_that_is_rolled_back_under_a_caller_stays_until_the_call_returns() {
    own_process!();
    let jit = new_jit();
    let Some(second) = waiting(2) else { return };
    let kernels = jit.patchable(jit.main_dylib(), &["gemm"]).unwrap();
    drop((commit(&kernels, &plain(1)), commit(&kernels, &second)));
    let (keeper, gemm) = (Keeper::new(), find(&jit, "gemm"));
    let argument = keeper.argument();
    let caller = thread::spawn({
        let gemm = gemm.clone();
        move || gemm.call(argument)
    });
    keeper.wait_for_arrival();
    let undone = only(kernels.rollback().unwrap().retired);
    assert!(!undone.is_complete());
    keeper.let_go_on();
    assert_eq!(caller.join().unwrap(), 2);
    assert!(undone.is_complete());
    assert_eq!(gemm.call(argument), 1);
}

#[test]
fn a_version_that_linked_code_calls_stays_until_the_outer_call_returns() {
    own_process!();
    let jit = new_jit();
    let Some(kernels) = patchable(&jit) else { return };
    let outer = c("extern long gemm(long); long outer(long n) { return gemm(n) * 10; }").unwrap();
    add(&jit, jit.main_dylib(), "outer.o", &outer);
    let (keeper, outer) = (Keeper::new(), find(&jit, "outer"));
    let argument = keeper.argument();
    let caller = thread::spawn(move || outer.call(argument));
    keeper.wait_for_arrival();
    assert_eq!(replace_under_a_caller(&kernels, &keeper, || caller.join().unwrap()), 10);
}

#[test]
fn a_version_that_a_call_through_a_bare_pointer_is_inside_of_stays_as_long_as_the_call_is_entered() {
    own_process!();
    let jit = new_jit();
    let Some(kernels) = patchable(&jit) else { return };
    let (keeper, gemm, session) = (Keeper::new(), find(&jit, "gemm"), jit.session().clone());
    let argument = keeper.argument();
    let caller = thread::spawn(move || {
        let _entry = session.enter_call();
        // SAFETY: the handle is there, and the call is entered.
        let pointer = unsafe { gemm.as_ptr() };
        pointer(argument)
    });
    keeper.wait_for_arrival();
    assert_eq!(replace_under_a_caller(&kernels, &keeper, || caller.join().unwrap()), 1);
}

#[test]
fn a_call_that_never_returns_lets_replaced_versions_go_when_it_passes_a_quiescent_state() {
    own_process!();
    let jit = new_jit();
    let Some(first) = functions(&[("gemm", "n")]) else { return };
    let kernels = jit.patchable_builder(jit.main_dylib(), &["gemm"]).history(0).build().unwrap();
    drop(commit(&kernels, &first));
    // Calls the host between two calls of `gemm`, with the version's number.
    let turns = c("extern long gemm(long); struct host { long (*between)(struct host *); }; \
                   long turns(long n) { struct host *h = (struct host *)n; long sum = gemm(1); h->between(h); return sum + gemm(1); }")
    .unwrap();
    add(&jit, jit.main_dylib(), "turns.o", &turns);
    #[repr(C)]
    struct Host {
        between: extern "C" fn(&Host) -> i64,
        jit: Jit,
        next: Mutex<Option<PreparedPatch>>,
    }
    extern "C" fn between(host: &Host) -> i64 {
        let next = host.next.lock().unwrap().take().unwrap();
        let old = only(next.commit().unwrap().retired);
        assert!(!old.is_complete(), "this thread's own call is in the way");
        // SAFETY: the stack has `turns`, and no version of `gemm`.
        unsafe { host.jit.pass_quiescent_state() };
        assert!(old.is_complete(), "{old:?}");
        0
    }
    let host = Host { between, jit: jit.clone(), next: Mutex::new(Some(link(&kernels, &plain(40)).unwrap())) };
    // Inside of another call, which goes on, too.
    let outer = jit.session().enter_call();
    assert_eq!(find(&jit, "turns").call(std::ptr::from_ref(&host) as i64), 41);
    assert!(!only(commit(&kernels, &plain(3)).retired).is_complete(), "the outer call is entered still");
    drop(outer);
    assert_eq!(numbers(&kernels).0, [3]);
}

#[test]
fn a_version_of_the_history_stays_under_a_caller_when_the_dylib_is_cleared() {
    own_process!();
    let jit = new_jit();
    let Some(first) = waiting(1) else { return };
    let kernels = jit.patchable(jit.main_dylib(), &["gemm"]).unwrap();
    drop(commit(&kernels, &first));
    let bystander = jit.main_dylib().create_tracker().unwrap();
    jit.add_object(&bystander, "bystander.o", functions(&[("bystander", "n")]).unwrap()).unwrap();
    assert_eq!(find(&jit, "bystander").call(3), 3);
    let (keeper, gemm) = (Keeper::new(), find(&jit, "gemm"));
    let argument = keeper.argument();
    let caller = thread::spawn(move || gemm.call(argument));
    keeper.wait_for_arrival();
    assert!(commit(&kernels, &plain(2)).retired.is_empty(), "it can be rolled back");
    let pending = jit.main_dylib().clear().unwrap();
    // The stub, by the handle; what it leads to; and the version of the history, by the call.
    assert!(pending.iter().any(|removal| removal.guards().iter().any(|guard| guard.is_call)), "{pending:?}");
    assert!(pending.iter().all(|removal| removal.key() != bystander.key()), "the call cannot be inside of it");
    keeper.let_go_on();
    assert_eq!(caller.join().unwrap(), 1);
    assert!(pending.iter().all(Removal::is_complete), "{pending:?}");
    drop(kernels);
    assert_eq!(held(&jit), (0, 0, 0));
}

#[test]
fn a_call_is_in_the_way_of_versions_only_and_of_its_own_session_only() {
    own_process!();
    let (jit, other) = (new_jit(), new_jit());
    let (Some(kernels), Some(others)) = (patchable(&jit), patchable(&other)) else { return };
    let bystander = jit.main_dylib().create_tracker().unwrap();
    jit.add_object(&bystander, "bystander.o", functions(&[("bystander", "n")]).unwrap()).unwrap();
    assert_eq!(find(&jit, "bystander").call(3), 3);
    let (keeper, gemm) = (Keeper::new(), find(&jit, "gemm"));
    let argument = keeper.argument();
    let caller = thread::spawn(move || gemm.call(argument));
    keeper.wait_for_arrival();
    assert!(bystander.remove().unwrap().is_complete(), "the call cannot be inside of it");
    assert!(only(commit(&others, &plain(2)).retired).is_complete(), "nobody calls anything of this session");
    replace_under_a_caller(&kernels, &keeper, || caller.join().unwrap());
}

#[test]
fn initialisers_and_finalisers_and_exit_handlers_hold_the_versions_that_they_call() {
    // Calls that the host makes by itself hold versions of all sessions of the process.
    own_process!();
    let at_init =
        "__attribute__((constructor)) static void f(void) { gemm((long)&gate); } long anchor(long n) { return n; }";
    let at_fini =
        "__attribute__((destructor)) static void f(void) { gemm((long)&gate); } long anchor(long n) { return n; }";
    let at_exit = "int atexit(void (*)(void)); static void f(void) { gemm((long)&gate); } \
                   __attribute__((constructor)) static void i(void) { atexit(f); } long anchor(long n) { return n; }";
    for (source, is_late) in [(at_init, false), (at_fini, true), (at_exit, true)] {
        let jit = new_jit();
        let Some(kernels) = patchable(&jit) else { return };
        let keeper = Keeper::new();
        keeper.define(&jit, "gate");
        let object = c(&format!("extern long gemm(long); extern char gate; {source}")).unwrap();
        let tracker = jit.main_dylib().create_tracker().unwrap();
        jit.add_object(&tracker, "module.o", object).unwrap();
        if is_late {
            drop(find(&jit, "anchor"));
        }
        // Ahead: a link waits for initialisers of the dylib that another thread runs.
        let next = link(&kernels, &plain(2)).unwrap();
        let caller = thread::spawn({
            let jit = jit.clone();
            move || match is_late {
                true => drop(tracker.remove().unwrap()),
                false => drop(find(&jit, "anchor")),
            }
        });
        keeper.wait_for_arrival();
        commit_under_a_caller(next, &keeper, || caller.join().unwrap());
    }
}

#[test]
fn a_destructor_of_a_thread_s_variable_holds_the_version_that_it_calls() {
    // Calls that the host makes by itself hold versions of all sessions of the process.
    own_process!();
    let jit = new_jit();
    let Some(kernels) = patchable(&jit) else { return };
    let keeper = Keeper::new();
    keeper.define(&jit, "gate");
    let object = c("extern long gemm(long); extern char gate; extern char __dso_handle; \
                    int __cxa_thread_atexit(void (*)(void *), void *, void *); \
                    static void f(void *p) { gemm((long)p); } \
                    long owe(long n) { return __cxa_thread_atexit(f, &gate, &__dso_handle) + n; }")
    .unwrap();
    add(&jit, jit.main_dylib(), "module.o", &object);
    let owe = find(&jit, "owe");
    let caller = thread::spawn(move || assert_eq!(owe.call(7), 7));
    keeper.wait_for_arrival();
    replace_under_a_caller(&kernels, &keeper, || caller.join().unwrap());
}

#[test]
fn a_call_from_before_the_first_version_that_a_lazy_re_export_leads_into_one_keeps_it() {
    own_process!();
    for is_removed in [false, true] {
        let jit = new_jit();
        let lazy = jit.main_dylib().create_tracker().unwrap();
        let alias = Alias {
            name: Name::new("later"),
            aliasee: Name::new("gemm"),
            flags: SymbolFlags::EXPORTED | SymbolFlags::CALLABLE,
        };
        jit.lazy_reexport(&lazy, jit.main_dylib(), &[alias]).unwrap();
        let Some(outer) = c("struct gate { long (*wait)(struct gate *); }; extern long later(long); \
                             long outer(long n) { ((struct gate *)n)->wait((struct gate *)n); return later(n) * 10; }")
        else {
            return;
        };
        let outer_tracker = jit.main_dylib().create_tracker().unwrap();
        jit.add_object(&outer_tracker, "outer.o", outer).unwrap();
        let (keeper, outer) = (Keeper::new(), find(&jit, "outer"));
        let argument = keeper.argument();
        let caller = thread::spawn(move || outer.call(argument));
        keeper.wait_for_arrival();
        // The call began when nothing could be patched. It comes into the first version all the same.
        let kernels = patchable(&jit).unwrap();
        keeper.let_go_on();
        keeper.wait_for_arrival();
        if is_removed {
            assert!(!lazy.remove().unwrap().is_complete());
        }
        let old = only(commit(&kernels, &plain(2)).retired);
        assert!(!old.is_complete());
        keeper.let_go_on();
        assert_eq!(caller.join().unwrap(), 10);
        if !is_removed {
            drop((outer_tracker.remove().unwrap(), lazy.remove().unwrap()));
            assert!(old.is_complete(), "{old:?}");
        }
    }
}

#[test]
fn a_program_s_main_holds_the_versions_that_it_calls() {
    own_process!();
    let jit = new_jit();
    let Some(kernels) = patchable(&jit) else { return };
    let keeper = Keeper::new();
    keeper.define(&jit, "gate");
    let main =
        c("extern long gemm(long); extern char gate; int main(void) { return gemm((long)&gate) + 40; }").unwrap();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    jit.add_object(&tracker, "main.o", main).unwrap();
    let program = jittison::Program::new(&jit, &tracker).unwrap();
    let caller = thread::spawn(move || {
        // SAFETY: it is a `main`, and may run.
        unsafe { program.run("main", &[c"program".into()], |_| {}) }.unwrap()
    });
    keeper.wait_for_arrival();
    assert_eq!(replace_under_a_caller(&kernels, &keeper, || caller.join().unwrap()), 41);
}
