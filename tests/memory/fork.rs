//! A forked child runs the code that was linked before the fork, whatever its parent does afterwards. It cannot write its
//! parent's code memory, and it links into memory of its own.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use jittison::base::SegmentKind;
use jittison::memory::{
    DualMapper, ForkPolicy, MemoryManager, MemoryMapper, Placement, PlainDualMapper, SingleMapper, SlabPool,
    SlabPoolOptions, SystemMapper,
};
use jittison::{Function, Jit, ResourceTracker};

use crate::mapping_modes::{assert_throws_and_catches, jit_of, jit_over, mapping_modes, pool_of, throwing};
use crate::slab::plan;
use crate::support::*;

/// A forked child of this process that runs a closure. Its exit status is 1 if the closure panics.
pub struct Child(libc::pid_t);

impl Child {
    pub fn start(body: impl FnOnce()) -> Child {
        // SAFETY: the child runs `body` and ends. It does not return into the test harness, whose other threads do not exist
        // in the child.
        match unsafe { libc::fork() } {
            0 => {
                let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
                // SAFETY: ends the child here.
                unsafe { libc::_exit(i32::from(outcome.is_err())) }
            }
            child => {
                assert!(child > 0);
                Child(child)
            }
        }
    }

    pub fn succeeds(self) {
        assert_eq!(self.status(), 0);
    }

    /// Waits for the child. Returns its exit code, or 1000 plus the number of the signal that ended it.
    pub fn status(self) -> i32 {
        let mut status = 0;
        // SAFETY: the kernel writes `status`.
        assert_eq!(unsafe { libc::waitpid(self.0, &mut status, 0) }, self.0);
        if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 1000 + libc::WTERMSIG(status) }
    }
}

/// A pipe with which one process wakes another.
struct Signal([OwnedFd; 2]);

impl Signal {
    fn new() -> Signal {
        let mut ends = [0; 2];
        // SAFETY: the kernel writes both numbers. Nothing else owns the descriptors.
        unsafe {
            assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
            Signal(ends.map(|end| OwnedFd::from_raw_fd(end)))
        }
    }

    fn send(&self) {
        // SAFETY: writes one byte of a literal.
        assert_eq!(unsafe { libc::write(self.0[1].as_raw_fd(), b"x".as_ptr().cast(), 1) }, 1);
    }

    fn wait(&self) {
        let mut ready = libc::pollfd { fd: self.0[0].as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: the kernel writes the structure.
        assert_eq!(unsafe { libc::poll(&mut ready, 1, 60_000) }, 1, "the other process has failed");
        let mut byte = 0u8;
        // SAFETY: the kernel writes the byte.
        assert_eq!(unsafe { libc::read(self.0[0].as_raw_fd(), (&raw mut byte).cast(), 1) }, 1);
    }
}

/// A module whose functions use code, constants, a table of pointers and data of their own.
pub fn module(number: i64) -> Option<Vec<u8>> {
    c(&format!(
        "static const long constants[4] = {{ {number}, 2, 3, 4 }}; static long state = 100;
         static long one(long x) {{ return x + constants[0]; }} static long two(long x) {{ return x * 2; }}
         static long (*const table[2])(long) = {{ one, two }};
         long value(long x) {{ return table[0](x) * 1000 + table[1](x); }}
         long count(void) {{ return state++; }}"
    ))
}

pub fn value_of(jit: &Jit) -> Function<extern "C" fn(i64) -> i64> {
    function::<extern "C" fn(i64) -> i64>(jit, "value")
}

/// Calls `value` of `module(5)` with many arguments.
fn call_often(value: &Function<extern "C" fn(i64) -> i64>) {
    for x in 0..1000 {
        assert_eq!(value.call(x), (x + 5) * 1000 + x * 2);
    }
}

#[test]
fn a_child_runs_the_old_code_after_its_parent_reuses_the_address() {
    own_process!();
    let (Some(old), Some(new)) = (module(5), module(60)) else { return };
    for (mapper, _) in mapping_modes() {
        let jit = jit_of(mapper);
        let tracker = add(&jit, jit.main_dylib(), "old.o", &old);
        let value = value_of(&jit);
        let address = jit.address_of(jit.main_dylib(), "value").unwrap();
        let (started, changed) = (Signal::new(), Signal::new());
        let child = Child::start(|| {
            assert_eq!(value.call(1), 6002);
            started.send();
            changed.wait();
            call_often(&value);
        });
        started.wait();
        drop(value);
        assert!(tracker.remove().unwrap().is_complete());
        let mut kept = Vec::new();
        for index in 0..1000 {
            let dylib = jit.create_dylib("new").unwrap();
            kept.push(add(&jit, &dylib, "new.o", &new));
            let new_address = jit.address_of(&dylib, "value").unwrap();
            assert!(index > 0 || new_address == address, "the first new module reuses the old address");
        }
        changed.send();
        child.succeeds();
        let dylib = jit.create_dylib("last").unwrap();
        let _last = add(&jit, &dylib, "new.o", &new);
        let value = try_function::<extern "C" fn(i64) -> i64>(&jit, &dylib, "value").unwrap();
        assert_eq!(value.call(1), 61_002, "the parent still links and calls");
    }
}

/// Links `object`, which is `module(60)`, calls it, throws, catches and removes, 20 times.
fn assert_works(jit: &Jit, object: &[u8], throwing: &[Vec<u8>; 2]) {
    for _ in 0..20 {
        let dylib = jit.create_dylib("assert_works").unwrap();
        let tracker = add(jit, &dylib, "object.o", object);
        let value = try_function::<extern "C" fn(i64) -> i64>(jit, &dylib, "value").unwrap();
        assert_eq!(value.call(2), 62_004);
        drop(value);
        assert_throws_and_catches(jit, throwing);
        assert!(tracker.remove().unwrap().is_complete());
    }
}

#[test]
fn a_child_links_throws_and_removes_without_changing_its_parent() {
    own_process!();
    let (Some(old), Some(new), Some(throwing)) = (module(5), module(60), throwing()) else { return };
    for (mapper, _) in mapping_modes() {
        let jit = jit_of(mapper);
        let kept = add(&jit, jit.main_dylib(), "old.o", &old);
        let removed = add(&jit, &jit.create_dylib("removed").unwrap(), "old.o", &old);
        assert_eq!(long(&jit, "count"), 100);
        assert_works(&jit, &new, &throwing);
        let before = (held(&jit), read(jit.address_of(jit.main_dylib(), "value").unwrap().value(), 64));
        let parent_address = jit.address_of(jit.main_dylib(), "value").unwrap();
        Child::start(|| {
            assert_eq!(held(&jit), before.0);
            assert_works(&jit, &new, &throwing);
            assert!(removed.remove().unwrap().is_complete());
            assert_eq!([long(&jit, "count"), long(&jit, "count")], [101, 102]);
            // Removes the code that the parent runs, and links other code at its address.
            assert!(kept.remove().unwrap().is_complete());
            let _new = add(&jit, jit.main_dylib(), "new.o", &new);
            assert_eq!(jit.address_of(jit.main_dylib(), "value").unwrap(), parent_address);
            assert_eq!(value_of(&jit).call(2), 62_004);
            // The child can also create a session of its own. All drops work.
            let own = jit_of(mapper);
            assert_works(&own, &new, &throwing);
            drop((own, jit.clone()));
        })
        .succeeds();
        assert_eq!(read(parent_address.value(), 64), before.1, "the child's code does not appear in the parent");
        assert_eq!((value_of(&jit).call(2), long(&jit, "count")), (7004, 101));
        assert_eq!(held(&jit), before.0);
        assert_works(&jit, &new, &throwing);
    }
}

#[test]
fn a_grandchild_runs_what_the_child_linked_after_the_first_fork() {
    own_process!();
    let (Some(old), Some(new), Some(throwing)) = (module(5), module(60), throwing()) else { return };
    for (mapper, _) in mapping_modes() {
        let jit = jit_of(mapper);
        let _old = add(&jit, jit.main_dylib(), "old.o", &old);
        assert_eq!(value_of(&jit).call(1), 6002);
        Child::start(|| {
            let dylib = jit.create_dylib("child").unwrap();
            let tracker = add(&jit, &dylib, "new.o", &new);
            let value = try_function::<extern "C" fn(i64) -> i64>(&jit, &dylib, "value").unwrap();
            let (started, changed) = (Signal::new(), Signal::new());
            let grandchild = Child::start(|| {
                started.send();
                changed.wait();
                assert_eq!((value.call(1), value_of(&jit).call(1)), (61_002, 6002));
                assert_works(&jit, &new, &throwing);
            });
            started.wait();
            drop(value);
            assert!(tracker.remove().unwrap().is_complete());
            assert_works(&jit, &new, &throwing);
            changed.send();
            grandchild.succeeds();
        })
        .succeeds();
        assert_eq!(value_of(&jit).call(1), 6002);
    }
}

#[test]
fn a_child_forked_while_threads_link_runs_every_published_module() {
    own_process!();
    const KEPT: usize = 40;
    let Some(object) = module(5) else { return };
    for (mapper, _) in mapping_modes() {
        let memory = pool_of(mapper, Placement::default());
        // 16 MiB of code make the copy of a fork slow. Meanwhile the other threads publish.
        let mut ballast = memory.allocate(&plan(16 << 20, 0, (0, 0))).unwrap();
        ballast.working(SegmentKind::Code).fill(0x90);
        let _ballast = ballast.finalize(Vec::new()).unwrap();
        let (jit, is_done) = (jit_over(memory), AtomicBool::new(false));
        // Addresses of functions that may be called. They are stored after the link and cleared before the removal.
        let published: [[AtomicUsize; KEPT]; 2] = std::array::from_fn(|_| std::array::from_fn(|_| AtomicUsize::new(0)));
        std::thread::scope(|scope| {
            for (thread, published) in published.iter().enumerate() {
                let (jit, is_done, object) = (&jit, &is_done, &object);
                scope.spawn(move || {
                    let mut kept: [Option<ResourceTracker>; KEPT] = std::array::from_fn(|_| None);
                    for round in 0.. {
                        if is_done.load(Ordering::Relaxed) {
                            break;
                        }
                        let slot = round % KEPT;
                        published[slot].store(0, Ordering::SeqCst);
                        if let Some(tracker) = kept[slot].take() {
                            assert!(tracker.remove().unwrap().is_complete());
                        }
                        let dylib = jit.create_dylib(&format!("{thread} {round}")).unwrap();
                        kept[slot] = Some(add(jit, &dylib, "object.o", object));
                        let address = jit.address_of(&dylib, "value").unwrap().value();
                        published[slot].store(address as usize, Ordering::SeqCst);
                    }
                });
            }
            let fork = |_| {
                Child::start(|| {
                    // The child only calls: other threads may have held locks at the fork.
                    for address in published.iter().flatten().map(|word| word.load(Ordering::SeqCst)) {
                        if address != 0 {
                            // SAFETY: at the fork the function was published and not yet removed.
                            let value: extern "C" fn(i64) -> i64 = unsafe { std::mem::transmute(address) };
                            // SAFETY: ends the child. A panic would allocate.
                            (value(1) != 6002).then(|| unsafe { libc::_exit(7) });
                        }
                    }
                })
                .status()
            };
            let _end = SetOnDrop(&is_done);
            let statuses: Vec<i32> = (0..20).map(fork).collect();
            assert!(statuses.iter().all(|status| *status == 0), "{statuses:?}");
        });
    }
}

#[test]
fn with_the_share_policy_a_child_runs_existing_code_and_cannot_link() {
    own_process!();
    let (Some(old), Some(new), Some(throwing)) = (module(5), module(60), throwing()) else { return };
    let mappers: [&'static dyn MemoryMapper; 3] = [
        &DualMapper { fork_policy: ForkPolicy::Share },
        &PlainDualMapper { fork_policy: ForkPolicy::Share },
        &SystemMapper { fork_policy: ForkPolicy::Share },
    ];
    for mapper in mappers {
        let jit = jit_of(mapper);
        let tracker = add(&jit, jit.main_dylib(), "old.o", &old);
        assert_eq!(value_of(&jit).call(1), 6002);
        Child::start(|| {
            assert_eq!(value_of(&jit).call(1), 6002);
            let other = jit.create_dylib("other").unwrap();
            let _new = add(&jit, &other, "new.o", &new);
            let error = jit.address_of(&other, "value").unwrap_err();
            assert_says(&error, &["linking in a forked child", "make a session in the child"]);
            // The child may remove. The parent does not see the removal.
            assert!(tracker.remove().unwrap().is_complete());
            let own = jit_of(&SystemMapper { fork_policy: ForkPolicy::Snapshot });
            assert_works(&own, &new, &throwing);
        })
        .succeeds();
        assert_eq!(value_of(&jit).call(1), 6002, "the parent does not see the child's removal");
        assert_works(&jit, &new, &throwing);
    }
}

#[test]
fn a_child_keeps_no_page_and_no_descriptor_of_its_parent() {
    own_process!();
    let Some(object) = module(5) else { return };
    // The inodes of this crate's mapped files and open files.
    let inodes = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let ours = maps.lines().filter(|line| line.contains("memfd:jittison"));
        let mapped = ours.map(|line| line.split_whitespace().nth(4).unwrap().to_string());
        let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten().map(|entry| entry.path());
        let ours =
            open.filter(|path| std::fs::read_link(path).is_ok_and(|to| to.to_string_lossy().contains("jittison")));
        let open = ours.map(|path| std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(path).unwrap()).to_string());
        mapped.chain(open).collect::<std::collections::BTreeSet<_>>()
    };
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let memory = pool_of(&DualMapper { fork_policy: ForkPolicy::Snapshot }, Placement::default());
    let jit = jit_over(memory);
    let tracker = add(&jit, jit.main_dylib(), "object.o", &object);
    assert_eq!(value_of(&jit).call(1), 6002);
    let mut all = Some((jit, tracker));
    let (parent_inodes, parent_descriptors) = (inodes(), descriptors());
    assert_eq!(parent_inodes.len(), 1);
    Child::start(|| {
        assert_eq!(descriptors(), parent_descriptors);
        assert_eq!(inodes().len(), 1);
        assert!(inodes().is_disjoint(&parent_inodes));
        assert!(crate::mapping_modes::writable_and_executable().is_empty());
        all = None;
        assert_eq!((inodes().len(), descriptors()), (0, parent_descriptors - 1));
    })
    .succeeds();
    assert_eq!((inodes(), descriptors()), (parent_inodes, parent_descriptors), "the parent keeps no copy");
    drop(all);
}

#[test]
fn starting_a_program_runs_no_fork_handlers() {
    own_process!();
    static FORKS: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn count() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    let (Some(object), Some(mut program)) = (module(5), require("true")) else { return };
    let jit = jit_of(&SystemMapper { fork_policy: ForkPolicy::Snapshot });
    let _tracker = add(&jit, jit.main_dylib(), "object.o", &object);
    assert_eq!(value_of(&jit).call(1), 6002);
    // SAFETY: a function of this program, which only counts. It stands for the library's own handlers: the C library calls
    // all fork handlers or none.
    assert_eq!(unsafe { pthread_atfork(Some(count), None, None) }, 0);
    for _ in 0..3 {
        assert!(program.status().unwrap().success());
    }
    assert_eq!(FORKS.load(Ordering::Relaxed), 0);
    Child::start(|| {}).succeeds();
    assert_eq!(FORKS.load(Ordering::Relaxed), 1);
}

#[test]
fn a_child_returns_free_memory_without_the_background_thread_of_its_parent() {
    own_process!();
    assert_child_returns_free_memory(DualMapper::default());
}

/// A process whose windows are all mapped once needs no copies at a fork. The fork counts nevertheless.
#[test]
fn a_child_of_a_process_without_shared_windows_returns_free_memory() {
    own_process!();
    assert_child_returns_free_memory(SingleMapper);
}

fn assert_child_returns_free_memory(mapper: impl MemoryMapper + 'static) {
    let options = SlabPoolOptions { trap_freed_code: false, ..Default::default() };
    let memory = SlabPool::with_mapper(mapper, options).unwrap();
    let allocate_and_free = || {
        let mut one = memory.allocate(&plan(0, 0, (40 << 20, 0))).unwrap();
        one.working(SegmentKind::Data).fill(1);
    };
    // Starts the background thread of the parent.
    allocate_and_free();
    let child = Child::start(|| {
        allocate_and_free();
        wait_until(|| memory.statistics().returned_bytes >= 30 << 20);
    });
    child.succeeds();
}

/// Runs a closure when the thread-local variables of its thread are destroyed.
struct ForksAtThreadEnd(std::cell::RefCell<Option<Box<dyn FnOnce()>>>);

impl Drop for ForksAtThreadEnd {
    fn drop(&mut self) {
        if let Some(body) = self.0.take() {
            body();
        }
    }
}

thread_local! {
    static AT_THREAD_END: ForksAtThreadEnd = const { ForksAtThreadEnd(std::cell::RefCell::new(None)) };
}

#[test]
fn a_child_forked_by_an_ending_thread_runs_the_old_code_after_its_parent_reuses_the_address() {
    own_process!();
    let (Some(old), Some(new)) = (module(5), module(60)) else { return };
    for (mapper, _) in mapping_modes() {
        let jit = jit_of(mapper);
        let tracker = add(&jit, jit.main_dylib(), "old.o", &old);
        let value = value_of(&jit);
        let address = jit.address_of(jit.main_dylib(), "value").unwrap();
        let (started, changed) = (Signal::new(), Signal::new());
        let (forked, has_forked) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let (started, changed, value, jit, new) = (&started, &changed, &value, &jit, &new);
            let ending = scope.spawn(move || {
                let fork = move || {
                    let child = Child::start(|| {
                        started.send();
                        changed.wait();
                        call_often(value);
                        let dylib = jit.create_dylib("child").unwrap();
                        let _new = add(jit, &dylib, "new.o", new);
                        let own = try_function::<extern "C" fn(i64) -> i64>(jit, &dylib, "value").unwrap();
                        assert_eq!(own.call(1), 61_002);
                    });
                    let _ = forked.send(child);
                };
                let fork: Box<dyn FnOnce()> = Box::new(fork);
                // SAFETY: the thread ends inside the scope, and runs the closure when it ends.
                let fork = unsafe { std::mem::transmute::<Box<dyn FnOnce()>, Box<dyn FnOnce() + 'static>>(fork) };
                // This variable is registered first, so it is destroyed after the variables of the crate.
                AT_THREAD_END.with(|end| *end.0.borrow_mut() = Some(fork));
                Child::start(|| {}).succeeds();
                assert_eq!(value.call(1), 6002);
            });
            ending.join().unwrap();
        });
        let child = has_forked.recv().unwrap();
        started.wait();
        drop(value);
        assert!(tracker.remove().unwrap().is_complete());
        let again = jit.create_dylib("new").unwrap();
        let _new = add(&jit, &again, "new.o", &new);
        assert_eq!(jit.address_of(&again, "value").unwrap(), address, "the new module reuses the old address");
        changed.send();
        child.succeeds();
    }
}

/// The number, the tracker and the function of a linked module.
type Linked = (i64, ResourceTracker, Function<extern "C" fn(i64) -> i64>);

/// The session that fork handlers of this program use.
struct Handled {
    jit: Jit,
    objects: [Vec<u8>; 2],
    /// The tracker of the module that the next handler removes.
    old: std::sync::Mutex<Option<ResourceTracker>>,
    /// The modules that handlers have linked.
    linked: std::sync::Mutex<Vec<Linked>>,
}

static HANDLED: std::sync::OnceLock<Handled> = std::sync::OnceLock::new();

impl Handled {
    /// Removes `old`, links two modules, calls all linked modules, removes one and releases free memory.
    fn work(&self, number: usize) {
        if let Some(old) = self.old.lock().unwrap().take() {
            assert!(old.remove().unwrap().is_complete());
        }
        for (index, value) in [5, 60].into_iter().enumerate() {
            let dylib = self.jit.create_dylib(&format!("handler {number}")).unwrap();
            let tracker = add(&self.jit, &dylib, "handled.o", &self.objects[index]);
            let function = try_function::<extern "C" fn(i64) -> i64>(&self.jit, &dylib, "value").unwrap();
            self.linked.lock().unwrap().push((value, tracker, function));
        }
        self.check();
        let removed = self.linked.lock().unwrap().remove(0);
        drop(removed.2);
        assert!(removed.1.remove().unwrap().is_complete());
        self.jit.release_free();
        // Another session maps a window and unmaps it.
        let other = jit_of(&SystemMapper { fork_policy: ForkPolicy::Snapshot });
        let _tracker = add(&other, other.main_dylib(), "other.o", &self.objects[0]);
        assert_eq!(value_of(&other).call(1), 6002);
        self.check();
    }

    fn check(&self) {
        for (number, _, function) in self.linked.lock().unwrap().iter() {
            assert_eq!(function.call(1), (number + 1) * 1000 + 2);
        }
    }
}

unsafe extern "C" {
    pub fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> i32;
}

extern "C" fn work_in_handler() {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    if let Some(handled) = HANDLED.get() {
        handled.work(COUNT.fetch_add(1, Ordering::Relaxed));
    }
}

/// Forks while the given fork handlers (prepare, parent, child) call [`Handled::work`]. They are registered before the crate's
/// own handlers if `is_first`, and after them otherwise.
fn works_in_handlers(is_first: bool, handlers: [bool; 3]) {
    let handler = |index: usize| handlers[index].then_some(work_in_handler as extern "C" fn());
    let arm = || {
        // SAFETY: functions of this program that do not unwind: a panic in them aborts.
        assert_eq!(unsafe { pthread_atfork(handler(0), handler(1), handler(2)) }, 0);
    };
    let (Some(old), Some(new)) = (module(5), module(60)) else { return };
    if is_first {
        arm();
    }
    let jit = Jit::builder().trap_freed_code(true).build().unwrap();
    let tracker = add(&jit, jit.main_dylib(), "old.o", &old);
    assert_eq!(value_of(&jit).call(1), 6002);
    if !is_first {
        arm();
    }
    let handled = Handled {
        jit,
        objects: [old, new],
        old: std::sync::Mutex::new(Some(tracker)),
        linked: std::sync::Mutex::new(Vec::new()),
    };
    assert!(HANDLED.set(handled).is_ok());
    let handled = HANDLED.get().unwrap();
    for round in 0..5 {
        let (started, changed) = (Signal::new(), Signal::new());
        let child = Child::start(|| {
            handled.check();
            started.send();
            changed.wait();
            handled.check();
            handled.work(1000 + round);
            Child::start(|| handled.check()).succeeds();
        });
        started.wait();
        // Remove the code that the child runs, and link other code at its address.
        for (_, tracker, function) in handled.linked.lock().unwrap().drain(..) {
            drop(function);
            assert!(tracker.remove().unwrap().is_complete());
        }
        handled.work(2000 + round);
        changed.send();
        child.succeeds();
        handled.check();
    }
}

macro_rules! handlers {
    ($($test:ident: $is_first:expr, $handlers:expr;)*) => {$(
        #[test]
        fn $test() {
            own_process!();
            works_in_handlers($is_first, $handlers);
        }
    )*};
}

handlers! {
    a_prepare_handler_that_was_registered_first_may_link_and_remove: true, [true, false, false];
    a_parent_handler_that_was_registered_first_may_link_and_remove: true, [false, true, false];
    a_child_handler_that_was_registered_first_may_link_and_remove: true, [false, false, true];
    all_handlers_that_were_registered_first_may_link_and_remove: true, [true, true, true];
    a_prepare_handler_that_was_registered_later_may_link_and_remove: false, [true, false, false];
    a_parent_handler_that_was_registered_later_may_link_and_remove: false, [false, true, false];
    a_child_handler_that_was_registered_later_may_link_and_remove: false, [false, false, true];
    all_handlers_that_were_registered_later_may_link_and_remove: false, [true, true, true];
}

/// Forks in a fork handler, once per fork of the test. Both processes link and remove.
extern "C" fn fork_in_handler() {
    in_one_handler(|handled| {
        Child::start(|| {
            handled.check();
            handled.work(3000);
            // The inner child forks in its turn, outside of the handlers.
            Child::start(|| handled.check()).succeeds();
        })
        .succeeds();
        handled.work(4000);
    });
}

/// Forks in a child handler. The inner child goes on in place of the child, which waits for it.
extern "C" fn be_replaced_in_handler() {
    in_one_handler(|handled| {
        // SAFETY: the inner child returns from this handler as the child would.
        match unsafe { libc::fork() } {
            0 => handled.work(3000),
            inner => {
                let status = Child(inner).status();
                handled.work(4000);
                // SAFETY: ends this process here.
                unsafe { libc::_exit(status) }
            }
        }
    });
}

/// Calls `fork`, but not in the handlers that run for the fork that it makes.
fn in_one_handler(fork: impl FnOnce(&'static Handled)) {
    static IS_INNER: AtomicBool = AtomicBool::new(false);
    let Some(handled) = HANDLED.get() else { return };
    if !IS_INNER.swap(true, Ordering::Relaxed) {
        fork(handled);
        IS_INNER.store(false, Ordering::Relaxed);
    }
}

/// Forks while the given fork handlers (prepare, parent, child) of the program fork. See [`works_in_handlers`].
fn forks_in_handlers(is_first: bool, handlers: [Option<extern "C" fn()>; 3]) {
    let arm = || {
        let [prepare, parent, child] = handlers;
        // SAFETY: functions of this program that do not unwind: a panic in them aborts.
        assert_eq!(unsafe { pthread_atfork(prepare, parent, child) }, 0);
    };
    if is_first {
        arm();
    } else {
        // Maps the first window, so that the crate registers its handlers before the program does.
        let Some(object) = module(5) else { return };
        let jit = Jit::new().unwrap();
        let _tracker = add(&jit, jit.main_dylib(), "first.o", &object);
        assert_eq!(value_of(&jit).call(1), 6002);
        arm();
    }
    works_in_handlers(is_first, [false, false, false]);
}

macro_rules! forking_handlers {
    ($($test:ident: $is_first:expr, $handlers:expr;)*) => {$(
        #[test]
        fn $test() {
            own_process!();
            forks_in_handlers($is_first, $handlers);
        }
    )*};
}

forking_handlers! {
    a_prepare_handler_may_fork: true, [Some(fork_in_handler), None, None];
    a_prepare_handler_that_was_registered_later_may_fork: false, [Some(fork_in_handler), None, None];
    a_parent_handler_may_fork: true, [None, Some(fork_in_handler), None];
    a_parent_handler_that_was_registered_later_may_fork: false, [None, Some(fork_in_handler), None];
    a_child_handler_may_fork: true, [None, None, Some(fork_in_handler)];
    a_child_handler_that_was_registered_later_may_fork: false, [None, None, Some(fork_in_handler)];
    a_child_handler_may_fork_and_be_replaced_by_its_child: true, [None, None, Some(be_replaced_in_handler)];
    a_later_child_handler_may_fork_and_be_replaced_by_its_child: false, [None, None, Some(be_replaced_in_handler)];
}

#[test]
fn a_child_handler_that_has_linked_may_fork() {
    own_process!();
    extern "C" fn work_and_fork() {
        in_one_handler(|handled| {
            handled.work(2500);
            Child::start(|| handled.work(3000)).succeeds();
            handled.work(4000);
        });
    }
    forks_in_handlers(true, [None, None, Some(work_and_fork)]);
}

type Work = Box<dyn Fn() + Send + Sync>;

/// A closure that the handler below runs once, between the copy of the code memory and the fork.
static BEFORE_THE_FORK: std::sync::Mutex<Option<Work>> = std::sync::Mutex::new(None);

/// Registers a `prepare` handler before the crate's own handlers. The C library therefore calls it after the crate's `prepare`.
fn arm_before_the_fork() {
    extern "C" fn prepare() {
        let work = BEFORE_THE_FORK.lock().unwrap().take();
        work.into_iter().for_each(|work| work());
    }
    // SAFETY: a function of this program that does not unwind: a panic in it aborts.
    assert_eq!(unsafe { pthread_atfork(Some(prepare), None, None) }, 0);
}

#[test]
fn code_removed_by_a_prepare_handler_is_filled_with_traps_in_the_child_too() {
    own_process!();
    let Some(object) = module(5) else { return };
    arm_before_the_fork();
    let jit = jit_of(&SystemMapper { fork_policy: ForkPolicy::Snapshot });
    let tracker = add(&jit, jit.main_dylib(), "o.o", &object);
    let address = jit.main_dylib().lookup_address("value").unwrap().value();
    *BEFORE_THE_FORK.lock().unwrap() = Some(Box::new(move || assert!(tracker.remove().unwrap().is_complete())));
    assert_ne!(read(address, 1), [machine_code::TRAP]);
    Child::start(|| assert_eq!(read(address, 1), [machine_code::TRAP])).succeeds();
    assert_eq!(read(address, 1), [machine_code::TRAP]);
}

#[test]
fn a_child_gets_zeroed_memory_for_pages_that_are_purged_during_the_fork() {
    own_process!();
    const SIZE: u64 = 4 << 20;
    arm_before_the_fork();
    let options = SlabPoolOptions { returns_memory: false, trap_freed_code: false, ..Default::default() };
    let mapper = SystemMapper { fork_policy: ForkPolicy::Snapshot };
    let memory = std::sync::Arc::new(SlabPool::with_mapper(mapper, options).unwrap());
    let mut zeroed = plan(0, SIZE, (0, 0));
    zeroed.segments[SegmentKind::ReadOnly.index()].zero_fill = SIZE;
    let mut old = memory.allocate(&zeroed).unwrap();
    old.working(SegmentKind::ReadOnly).fill(0xc3);
    drop(old.finalize(Vec::new()).unwrap());
    let (go_on, may_begin) = std::sync::mpsc::channel();
    let other = memory.clone();
    let releasing = std::thread::spawn(move || {
        may_begin.recv().unwrap();
        other.release_free()
    });
    let go_on = std::sync::Mutex::new(go_on);
    *BEFORE_THE_FORK.lock().unwrap() = Some(Box::new(move || {
        go_on.lock().unwrap().send(()).unwrap();
        // Gives the other thread time to purge the pages. It then waits for the fork. If it is slower, the test passes too.
        std::thread::sleep(std::time::Duration::from_millis(300));
    }));
    let child = Child::start(|| {
        let mut new = memory.allocate(&zeroed).unwrap();
        assert!(new.working(SegmentKind::ReadOnly).iter().all(|byte| *byte == 0));
    });
    child.succeeds();
    assert!(releasing.join().unwrap().bytes >= SIZE);
}
