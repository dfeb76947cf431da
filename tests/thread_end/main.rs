//! Every public call works while a thread or the process ends: in destructors of thread-local variables that were registered
//! before or after the crate's own, in destructors of `pthread_key_create`, and in `atexit` handlers.
//!
//! Each test runs in its own process. A failed step aborts the process, because a panic cannot leave a destructor.

use jittison_test_support as support;

use std::cell::RefCell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Waker};

use jittison::base::Name;
use jittison::link::{GraphBuilder, NewBlock, NewSymbol};
use jittison::session::{
    Alias, ReclaimPolicy, ReexportsGenerator, RequiredState, SymbolFlags, SymbolRequest, Visibility,
};
use jittison::{CompileRequest, CompiledFunction, Function, Jit, ResourceTracker};

use crate::support::*;

type Add = extern "C" fn(i64) -> i64;
type Get = extern "C" fn() -> i64;

/// A function that adds a constant. Its object has a constructor, a destructor and a thread-local variable.
fn adds(number: i64) -> Option<Vec<u8>> {
    cpp(&format!(
        "struct Local {{ long n = {number}; ~Local() {{ n = 0; }} }}; static thread_local Local local;
         static long made; struct Made {{ Made() {{ made = {number}; }} ~Made() {{ made = 0; }} }}; static Made one;
         extern \"C\" long add(long x) {{ return x + made + local.n - {number}; }}"
    ))
}

fn plain(number: i64) -> Option<Vec<u8>> {
    c(&format!("long plain(long x) {{ return x + {number}; }} long caller(long x) {{ return plain(x) * 2; }}"))
}

/// The objects, compiled before the tests start.
struct Objects {
    adds: Vec<u8>,
    plain: [Vec<u8>; 2],
}

/// The state that outlives the threads.
struct World {
    jit: Jit,
    objects: Objects,
    kept: ResourceTracker,
    /// The number of completed calls of [`use_everything`](World::use_everything).
    steps: AtomicU64,
}

static WORLD: OnceLock<World> = OnceLock::new();

/// `None` without a compiler.
fn world() -> Option<&'static World> {
    if WORLD.get().is_none() {
        let objects = Objects { adds: adds(5)?, plain: [plain(1)?, plain(2)?] };
        let jit = new_jit();
        let kept = add(&jit, jit.main_dylib(), "plain.o", &objects.plain[0]);
        let _ = WORLD.set(World { jit, objects, kept, steps: AtomicU64::new(0) });
    }
    WORLD.get()
}

impl World {
    /// Makes every public call, in the shared session and in new sessions.
    fn use_everything(&self) {
        self.use_guards();
        for (workers, policy) in
            [(0, ReclaimPolicy::OnDrop), (2, ReclaimPolicy::Background), (0, ReclaimPolicy::Explicit)]
        {
            let builder = Jit::builder().library("libstdc++.so.6").trap_freed_code(true).window_size(64 << 20);
            let jit = builder.worker_threads(workers).reclaim_policy(policy).build().unwrap();
            self.use_links(&jit);
            self.use_lookups(&jit);
            self.use_patches(&jit);
            self.use_compilers(&jit);
            let _ = (jit.memory_statistics(), jit.memory_map(), jit.release_free(), jit.release_free_slabs());
            jit.session().reclaim();
            jit.session().end().unwrap();
        }
        self.use_fork();
        self.steps.fetch_add(1, Ordering::SeqCst);
    }

    fn use_guards(&self) {
        let mut guard = self.jit.guard();
        // SAFETY: the signature in the source.
        let symbol = unsafe { self.jit.symbol::<Add>(&guard, self.jit.main_dylib(), "caller") }.unwrap();
        assert_eq!(symbol.call(3), 8);
        guard.refresh();
        let dylib = self.jit.create_dylib("late").unwrap();
        let tracker = add(&self.jit, &dylib, "late.o", &self.objects.plain[1]);
        let held = try_function::<Add>(&self.jit, &dylib, "plain").unwrap();
        let removal = tracker.remove().unwrap();
        let inner = self.jit.guard();
        assert!(!removal.is_complete() && removal.obstacles().len() > 1, "{:?}", removal.obstacles());
        drop((inner, held));
        assert!(!removal.is_complete());
        guard.refresh();
        assert!(removal.is_complete(), "{:?}", removal.obstacles());
        drop(guard);
        assert!(self.jit.session().remove_dylib(&dylib).unwrap().is_empty());
        let _ = self.jit.usage(&self.kept);
    }

    fn use_links(&self, jit: &Jit) {
        let dylib = jit.create_dylib("links").unwrap();
        let tracker = add(jit, &dylib, "adds.o", &self.objects.adds);
        assert!(initialize(jit, &dylib) > 0);
        let function = try_function::<Add>(jit, &dylib, "add").unwrap();
        assert_eq!(function.call(10), 15);
        let address = jit.address_of(&dylib, "add").unwrap();
        assert!(jit.locate(&[address])[0].is_some());
        deinitialize(jit, &dylib).unwrap();
        drop(function);
        let removal = tracker.remove().unwrap();
        jit.session().reclaim();
        assert!(removal.wait().is_ok(), "{:?}", removal.obstacles());
        let at_once = dylib.create_tracker().unwrap();
        jit.link_object(&at_once, "plain.o", &self.objects.plain[0][..]).unwrap();
        let other = dylib.create_tracker().unwrap();
        at_once.transfer_to(&other).unwrap();
        let stubs = dylib.create_tracker().unwrap();
        jit.create_stub(&stubs, "stub", jit.address_of(&dylib, "plain").unwrap()).unwrap();
        let stub = try_function::<Add>(jit, &dylib, "stub").unwrap();
        assert_eq!(stub.call(1), 2);
        // SAFETY: a function with the same signature, which its tracker keeps.
        unsafe { jit.redirect_stub(&dylib, "stub", jit.address_of(&dylib, "caller").unwrap()) }.unwrap();
        assert_eq!(stub.call(1), 4);
        drop(stub);
        // SAFETY: nothing runs the code, now or later.
        drop(unsafe { jit.remove_now(&stubs) }.unwrap());
        drop(dylib.clear().unwrap());
    }

    fn use_lookups(&self, jit: &Jit) {
        let source = jit.create_dylib("source").unwrap();
        let _code = add(jit, &source, "plain.o", &self.objects.plain[1]);
        let names = jit.main_dylib().create_tracker().unwrap();
        let alias = |name: &str, aliasee: &str| Alias {
            name: Name::new(name),
            aliasee: Name::new(aliasee),
            flags: SymbolFlags::EXPORTED,
        };
        jit.lazy_reexport(&names, &source, &[alias("lazy", "plain")]).unwrap();
        assert_eq!(function::<Add>(jit, "lazy").call(1), 3);
        names.reexport(&source, &[alias("other", "plain")]).unwrap();
        let order = [(jit.main_dylib().clone(), Visibility::All)];
        let request = [SymbolRequest::required("other")];
        let mut future = Box::pin(jit.session().lookup_async(&order, &request, RequiredState::Ready));
        while future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            std::thread::yield_now();
        }
        let _ = jit.session().pending_removals();
        let (_, pin) = jit.main_dylib().pin("other").unwrap();
        drop(pin);
        let facade = jit.create_dylib("facade").unwrap();
        facade.add_generator(Arc::new(ReexportsGenerator::new(&source, |_| true)));
        assert!(jit.address_of(&facade, "plain").is_ok());
        let missing = jit.address_of(jit.main_dylib(), "missing").unwrap_err();
        assert_says(&missing, &["missing"]);
    }

    fn use_patches(&self, jit: &Jit) {
        let dylib = jit.create_dylib("patched").unwrap();
        let patched = jit.patchable_builder(&dylib, &["plain"]).history(1).build().unwrap();
        for object in self.objects.plain.iter().chain(&self.objects.plain) {
            let mut patch = patched.patch();
            patch.add_object("patch.o", &object[..]).unwrap();
            // SAFETY: all versions have the same signature.
            drop(unsafe { patch.link() }.unwrap().commit().unwrap());
        }
        let function: Function<Add> = try_function(jit, &dylib, "plain").unwrap();
        assert_eq!(function.call(1), 3);
        drop(patched.rollback().unwrap());
        assert_eq!(function.call(1), 2);
    }

    fn use_compilers(&self, jit: &Jit) {
        // A function that returns the number of its tier.
        let compile = |request: &CompileRequest<'_>| {
            let mut graph = GraphBuilder::new(request.symbol);
            let code = graph.add_block(NewBlock::code(machine_code::returns(request.tier as i32)));
            graph.add_symbol(NewSymbol::function(request.symbol, code, 0));
            Ok(CompiledFunction::new(graph.finish()?))
        };
        let dylib = jit.create_dylib("compiled").unwrap();
        let (owner, layer) = (dylib.create_tracker().unwrap().remove_on_drop(), jit.compile_on_demand(compile));
        layer.add(&owner, &["first", "second"]).unwrap();
        layer.speculate(&dylib, "second").unwrap();
        for name in ["first", "second"] {
            assert_eq!(try_function::<Get>(jit, &dylib, name).unwrap().call(), 1);
        }
        drop(owner);
        let layer = jit.reoptimize_layer(compile, &[1]);
        // SAFETY: both tiers have the signature with which they are called.
        let functions = unsafe { layer.add(&dylib, &["tiers"]) }.unwrap();
        let tiers = try_function::<Get>(jit, &dylib, "tiers").unwrap();
        assert_eq!(tiers.call(), 1);
        wait_until(|| tiers.call() == 2);
        drop(tiers);
        drop(functions.remove().unwrap());
    }

    /// A forked child calls, links and removes, too.
    fn use_fork(&self) {
        // SAFETY: the child has only this thread, and ends here.
        match unsafe { libc::fork() } {
            0 => {
                self.use_guards();
                // SAFETY: ends the child.
                unsafe { libc::_exit(0) }
            }
            child => {
                let mut status = 0;
                // SAFETY: the kernel writes `status`.
                assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
                assert_eq!(status, 0, "the child failed");
            }
        }
    }
}

/// Calls [`World::use_everything`] when the thread-local variables of its thread are destroyed.
struct AtThreadEnd(RefCell<bool>);

impl Drop for AtThreadEnd {
    fn drop(&mut self) {
        if self.0.take() {
            WORLD.get().unwrap().use_everything();
        }
    }
}

thread_local! {
    static FIRST: AtThreadEnd = const { AtThreadEnd(RefCell::new(false)) };
    static LAST: AtThreadEnd = const { AtThreadEnd(RefCell::new(false)) };
}

fn arm(variable: &'static std::thread::LocalKey<AtThreadEnd>) {
    variable.with(|variable| *variable.0.borrow_mut() = true);
}

#[test]
fn every_call_works_in_destructors_of_thread_locals_of_any_order() {
    own_process!();
    let Some(world) = world() else { return };
    let body = move |early: bool, late: bool, uses: bool| {
        std::thread::spawn(move || {
            // Thread-local variables are destroyed in reverse order of their first use.
            if early {
                arm(&FIRST);
            }
            if uses {
                world.use_everything();
            }
            if late {
                arm(&LAST);
            }
        })
        .join()
        .unwrap();
    };
    for (count, (early, late, uses)) in
        [(true, false, true), (false, true, true), (true, true, true), (true, false, false)].into_iter().enumerate()
    {
        let before = world.steps.load(Ordering::SeqCst);
        body(early, late, uses);
        let ran = world.steps.load(Ordering::SeqCst) - before;
        assert_eq!(ran, u64::from(early) + u64::from(late) + u64::from(uses), "case {count}");
    }
    assert!(world.kept.remove().unwrap().is_complete(), "no thread leaks a guard or a handle");
}

/// How many times the C library calls a destructor that sets its variable again.
const ROUNDS: usize = 4;

#[test]
fn every_call_works_in_destructors_of_pthread_keys_to_the_last_round() {
    static KEY: AtomicU64 = AtomicU64::new(0);
    extern "C" fn destroyed(rounds_left: *mut c_void) {
        WORLD.get().unwrap().use_everything();
        let rounds_left = rounds_left.addr() - 1;
        if rounds_left > 0 {
            // SAFETY: the key exists. The value is only a number.
            unsafe { libc::pthread_setspecific(KEY.load(Ordering::SeqCst) as u32, rounds_left as *const c_void) };
        }
    }
    own_process!();
    let Some(world) = world() else { return };
    let mut key = 0;
    // SAFETY: the C library writes the key; the destructor takes any value.
    assert_eq!(unsafe { libc::pthread_key_create(&mut key, Some(destroyed)) }, 0);
    KEY.store(u64::from(key), Ordering::SeqCst);
    for uses in [true, false] {
        let before = world.steps.load(Ordering::SeqCst);
        std::thread::spawn(move || {
            if uses {
                world.use_everything();
            }
            // SAFETY: as above.
            unsafe { libc::pthread_setspecific(key, ROUNDS as *const c_void) };
        })
        .join()
        .unwrap();
        assert_eq!(world.steps.load(Ordering::SeqCst) - before, ROUNDS as u64 + u64::from(uses));
    }
    assert!(world.kept.remove().unwrap().is_complete(), "no thread leaks a guard or a handle");
}

#[test]
fn every_call_works_while_the_process_exits() {
    extern "C" fn at_exit() {
        WORLD.get().unwrap().use_everything();
        let line = "\nexit handler done\n";
        // SAFETY: the pointer and the length of `line`.
        unsafe { libc::write(1, line.as_ptr().cast(), line.len()) };
    }
    let test = this_test!();
    if is_rerun(test) {
        // SAFETY: a function of this program.
        unsafe { libc::atexit(at_exit) };
        arm(&FIRST);
        let Some(world) = world() else { std::process::exit(3) };
        world.use_everything();
        arm(&LAST);
        // SAFETY: as above. This handler runs before the crate's own handlers.
        unsafe { libc::atexit(at_exit) };
        // `exit` runs the destructors of this thread's variables before the handlers.
        std::process::exit(0);
    }
    let run = rerun(test).output().unwrap();
    pass_skips_on(&String::from_utf8_lossy(&run.stderr));
    let output = String::from_utf8_lossy(&run.stdout).into_owned();
    if run.status.code() == Some(3) {
        return;
    }
    assert_eq!(run.status.code(), Some(0), "{output}{}", String::from_utf8_lossy(&run.stderr));
    assert_eq!(output.matches("exit handler done").count(), 2, "{output}");
}
