//! A version stays until the calls inside it return, for every way in which a thread can enter it.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use jittison::base::{ExecutorAddr, Name};
use jittison::session::{Alias, SymbolFlags};
use jittison::{Patchable, Removal};

use crate::support::*;
use crate::*;

/// A gate at which linked code waits. The code reports its arrival and continues when the test opens the gate.
#[repr(C)]
struct Gate {
    wait: extern "C" fn(&Gate) -> i64,
    arrived: Sender<()>,
    opened: Mutex<Receiver<()>>,
}

/// The side of the test: waits for arrivals and opens the gate.
struct GateControl {
    gate: &'static Gate,
    arrived: Receiver<()>,
    open: Sender<()>,
}

extern "C" fn wait_at(gate: &Gate) -> i64 {
    gate.arrived.send(()).unwrap();
    gate.opened.lock().unwrap().recv().unwrap();
    0
}

impl GateControl {
    fn new() -> GateControl {
        let ((to_control, arrived), (open, opened)) = (channel(), channel());
        let gate = Box::leak(Box::new(Gate { wait: wait_at, arrived: to_control, opened: Mutex::new(opened) }));
        GateControl { gate, arrived, open }
    }

    /// The argument for linked code: the address of the gate.
    fn argument(&self) -> i64 {
        std::ptr::from_ref(self.gate) as i64
    }

    /// A control, and a thread that is inside `call`, at the gate in its argument.
    fn with_caller<R: Send + 'static>(call: impl FnOnce(i64) -> R + Send + 'static) -> (GateControl, JoinHandle<R>) {
        let control = GateControl::new();
        let argument = control.argument();
        let caller = thread::spawn(move || call(argument));
        control.wait_for_arrival();
        (control, caller)
    }

    fn define(&self, jit: &Jit, name: &str) {
        let address = ExecutorAddr::new(self.argument() as u64);
        let symbol = (Name::new(name), address, SymbolFlags::EXPORTED);
        jit.main_dylib().define_absolute([symbol]).unwrap();
    }

    fn wait_for_arrival(&self) {
        self.arrived.recv().unwrap();
    }

    fn open_gate(&self) {
        self.open.send(()).unwrap();
    }
}

/// An object whose `gemm` waits at the gate in its argument and returns `value`.
fn waiting(value: i64) -> Option<Vec<u8>> {
    c(&format!(
        "struct gate {{ long (*wait)(struct gate *); }}; long gemm(long n) {{ return ((struct gate *)n)->wait((struct gate *)n) + {value}; }}"
    ))
}

fn plain(value: i64) -> Vec<u8> {
    functions(&[("gemm", &value.to_string())]).unwrap()
}

/// A patchable `gemm` without a history. Its first version waits at the gate.
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

/// Replaces the version that a thread is inside, lets the thread continue, and asserts that the version is freed then. `joined`
/// waits for the thread.
fn replace_under_a_caller<R>(kernels: &Patchable, control: &GateControl, joined: impl FnOnce() -> R) -> R {
    commit_under_a_caller(link(kernels, &plain(2)).unwrap(), control, joined)
}

fn commit_under_a_caller<R>(next: PreparedPatch, control: &GateControl, joined: impl FnOnce() -> R) -> R {
    let old = only(next.commit().unwrap().retired);
    assert!(!old.is_complete(), "a thread is inside the version");
    let obstacles = old.obstacles();
    assert!(obstacles.len() == 1 && obstacles[0].starts_with("a call of thread "), "{obstacles:?}");
    assert!(old.guards()[0].is_call);
    control.open_gate();
    let result = joined();
    assert!(old.is_complete(), "{old:?}");
    result
}

#[test]
fn a_version_called_through_a_handle_stays_until_the_call_returns() {
    own_process!();
    let jit = new_jit();
    let Some(kernels) = patchable(&jit) else { return };
    let gemm = find(&jit, "gemm");
    let clone = gemm.clone();
    let (control, caller) = GateControl::with_caller(move |argument| clone.call(argument));
    let value = replace_under_a_caller(&kernels, &control, || caller.join().unwrap());
    assert_eq!((value, gemm.call(control.argument())), (1, 2));
}

#[test]
fn a_version_rolled_back_during_a_call_stays_until_the_call_returns() {
    own_process!();
    let jit = new_jit();
    let Some(second) = waiting(2) else { return };
    let kernels = jit.patchable(jit.main_dylib(), &["gemm"]).unwrap();
    drop((commit(&kernels, &plain(1)), commit(&kernels, &second)));
    let gemm = find(&jit, "gemm");
    let clone = gemm.clone();
    let (control, caller) = GateControl::with_caller(move |argument| clone.call(argument));
    let undone = only(kernels.rollback().unwrap().retired);
    assert!(!undone.is_complete());
    control.open_gate();
    assert_eq!(caller.join().unwrap(), 2);
    assert!(undone.is_complete());
    assert_eq!(gemm.call(control.argument()), 1);
}

#[test]
fn a_version_called_by_linked_code_stays_until_the_outer_call_returns() {
    own_process!();
    let jit = new_jit();
    let Some(kernels) = patchable(&jit) else { return };
    let outer = c("extern long gemm(long); long outer(long n) { return gemm(n) * 10; }").unwrap();
    add(&jit, jit.main_dylib(), "outer.o", &outer);
    let outer = find(&jit, "outer");
    let (control, caller) = GateControl::with_caller(move |argument| outer.call(argument));
    assert_eq!(replace_under_a_caller(&kernels, &control, || caller.join().unwrap()), 10);
}

#[test]
fn a_version_called_through_a_pointer_stays_while_the_call_is_entered() {
    own_process!();
    let jit = new_jit();
    let Some(kernels) = patchable(&jit) else { return };
    let (gemm, session) = (find(&jit, "gemm"), jit.session().clone());
    let (control, caller) = GateControl::with_caller(move |argument| {
        let _entry = session.enter_call();
        // SAFETY: the handle is live, and the call is entered.
        let pointer = unsafe { gemm.as_ptr() };
        pointer(argument)
    });
    assert_eq!(replace_under_a_caller(&kernels, &control, || caller.join().unwrap()), 1);
}

#[test]
fn a_quiescent_state_inside_a_call_frees_replaced_versions() {
    own_process!();
    let jit = new_jit();
    let Some(first) = functions(&[("gemm", "n")]) else { return };
    let kernels = jit.patchable_builder(jit.main_dylib(), &["gemm"]).history(0).build().unwrap();
    drop(commit(&kernels, &first));
    // Calls the host between two calls of `gemm`.
    let two_calls = c("extern long gemm(long); struct host { long (*between)(struct host *); }; \
                   long two_calls(long n) { struct host *h = (struct host *)n; long sum = gemm(1); h->between(h); return sum + gemm(1); }")
    .unwrap();
    add(&jit, jit.main_dylib(), "two_calls.o", &two_calls);
    #[repr(C)]
    struct Host {
        between: extern "C" fn(&Host) -> i64,
        jit: Jit,
        next: Mutex<Option<PreparedPatch>>,
    }
    extern "C" fn between(host: &Host) -> i64 {
        let next = host.next.lock().unwrap().take().unwrap();
        let old = only(next.commit().unwrap().retired);
        assert!(!old.is_complete(), "the call of this thread keeps it");
        // SAFETY: the stack contains `two_calls` and no version of `gemm`.
        unsafe { host.jit.pass_quiescent_state() };
        assert!(old.is_complete(), "{old:?}");
        0
    }
    let host = Host { between, jit: jit.clone(), next: Mutex::new(Some(link(&kernels, &plain(40)).unwrap())) };
    // All of this is inside another entered call.
    let outer = jit.session().enter_call();
    assert_eq!(find(&jit, "two_calls").call(std::ptr::from_ref(&host) as i64), 41);
    assert!(!only(commit(&kernels, &plain(3)).retired).is_complete(), "the outer call is still entered");
    drop(outer);
    assert_eq!(version_numbers(&kernels).0, [3]);
}

#[test]
fn clearing_the_dylib_keeps_a_history_version_that_a_thread_is_inside() {
    own_process!();
    let jit = new_jit();
    let Some(first) = waiting(1) else { return };
    let kernels = jit.patchable(jit.main_dylib(), &["gemm"]).unwrap();
    drop(commit(&kernels, &first));
    let bystander = add_object(&jit, jit.main_dylib(), "bystander.o", functions(&[("bystander", "n")]).unwrap());
    assert_eq!(find(&jit, "bystander").call(3), 3);
    let gemm = find(&jit, "gemm");
    let (control, caller) = GateControl::with_caller(move |argument| gemm.call(argument));
    assert!(commit(&kernels, &plain(2)).retired.is_empty(), "the old version can be rolled back");
    let pending = jit.main_dylib().clear().unwrap();
    // The handle keeps the stub and its target. The call keeps the version of the history.
    assert!(pending.iter().any(|removal| removal.guards().iter().any(|guard| guard.is_call)), "{pending:?}");
    assert!(pending.iter().all(|removal| removal.key() != bystander.key()), "the call cannot be inside this object");
    control.open_gate();
    assert_eq!(caller.join().unwrap(), 1);
    assert!(pending.iter().all(Removal::is_complete), "{pending:?}");
    drop(kernels);
    assert_eq!(held(&jit), (0, 0, 0));
}

#[test]
fn a_call_blocks_only_versions_of_its_own_session() {
    own_process!();
    let (jit, other) = (new_jit(), new_jit());
    let (Some(kernels), Some(others)) = (patchable(&jit), patchable(&other)) else { return };
    let bystander = add_object(&jit, jit.main_dylib(), "bystander.o", functions(&[("bystander", "n")]).unwrap());
    assert_eq!(find(&jit, "bystander").call(3), 3);
    let gemm = find(&jit, "gemm");
    let (control, caller) = GateControl::with_caller(move |argument| gemm.call(argument));
    assert!(bystander.remove().unwrap().is_complete(), "the call cannot be inside this object");
    assert!(only(commit(&others, &plain(2)).retired).is_complete(), "no call is inside this session");
    replace_under_a_caller(&kernels, &control, || caller.join().unwrap());
}

#[test]
fn initialisers_finalisers_and_exit_handlers_keep_the_versions_that_they_call() {
    // Calls that the host makes itself keep versions of all sessions of the process.
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
        let control = GateControl::new();
        control.define(&jit, "gate");
        let object = c(&format!("extern long gemm(long); extern char gate; {source}")).unwrap();
        let tracker = add_object(&jit, jit.main_dylib(), "module.o", object);
        if is_late {
            drop(find(&jit, "anchor"));
        }
        // Linked before the thread starts: a link waits for initialisers that another thread runs.
        let next = link(&kernels, &plain(2)).unwrap();
        let caller = thread::spawn({
            let jit = jit.clone();
            move || match is_late {
                true => drop(tracker.remove().unwrap()),
                false => drop(find(&jit, "anchor")),
            }
        });
        control.wait_for_arrival();
        commit_under_a_caller(next, &control, || caller.join().unwrap());
    }
}

#[test]
fn a_thread_local_destructor_keeps_the_version_that_it_calls() {
    // Calls that the host makes itself keep versions of all sessions of the process.
    own_process!();
    let jit = new_jit();
    let Some(kernels) = patchable(&jit) else { return };
    let control = GateControl::new();
    control.define(&jit, "gate");
    let object = c("extern long gemm(long); extern char gate; extern char __dso_handle; \
                    int __cxa_thread_atexit(void (*)(void *), void *, void *); \
                    static void f(void *p) { gemm((long)p); } \
                    long owe(long n) { return __cxa_thread_atexit(f, &gate, &__dso_handle) + n; }")
    .unwrap();
    add(&jit, jit.main_dylib(), "module.o", &object);
    let owe = find(&jit, "owe");
    let caller = thread::spawn(move || assert_eq!(owe.call(7), 7));
    control.wait_for_arrival();
    replace_under_a_caller(&kernels, &control, || caller.join().unwrap());
}

#[test]
fn a_call_started_before_the_first_version_keeps_the_version_that_it_enters() {
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
        let outer_tracker = add_object(&jit, jit.main_dylib(), "outer.o", outer);
        let outer = find(&jit, "outer");
        let (control, caller) = GateControl::with_caller(move |argument| outer.call(argument));
        // The call began before anything was patchable, and enters the first version now.
        let kernels = patchable(&jit).unwrap();
        control.open_gate();
        control.wait_for_arrival();
        if is_removed {
            assert!(!lazy.remove().unwrap().is_complete());
        }
        let old = only(commit(&kernels, &plain(2)).retired);
        assert!(!old.is_complete());
        control.open_gate();
        assert_eq!(caller.join().unwrap(), 10);
        if !is_removed {
            drop((outer_tracker.remove().unwrap(), lazy.remove().unwrap()));
            assert!(old.is_complete(), "{old:?}");
        }
    }
}

#[test]
fn main_of_a_program_keeps_the_versions_that_it_calls() {
    own_process!();
    let jit = new_jit();
    let Some(kernels) = patchable(&jit) else { return };
    let control = GateControl::new();
    control.define(&jit, "gate");
    let main =
        c("extern long gemm(long); extern char gate; int main(void) { return gemm((long)&gate) + 40; }").unwrap();
    let tracker = add_object(&jit, jit.main_dylib(), "main.o", main);
    let program = jittison::Program::new(&jit, &tracker).unwrap();
    let caller = thread::spawn(move || {
        // SAFETY: the function is a `main` and may run.
        unsafe { program.run("main", &[c"program".into()], |_| {}) }.unwrap()
    });
    control.wait_for_arrival();
    assert_eq!(replace_under_a_caller(&kernels, &control, || caller.join().unwrap()), 41);
}
