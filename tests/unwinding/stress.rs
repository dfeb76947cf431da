//! Threads throw and panic through live frames, while other threads link modules, throw through them and remove them. Freed code
//! is filled with traps, and every exception is counted.

use fastrand::Rng;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use jittison::link::ObjectBuffer;
use jittison::{Function, Jit, JitDylib, ResourceTracker};

use crate::host::*;
use crate::support::*;

const THROWER: &str = "
    extern \"C\" long panics(long);
    extern \"C\" long thrower(long x) { if (x > 0) throw x; return panics(x); }";

/// `outer` calls through `depth` more frames, each with a destructor that counts.
fn module(depth: usize) -> Option<ObjectBuffer> {
    let mut frames = String::from("extern \"C\" long thrower(long);\n");
    frames += "struct Count { long &n; ~Count() { n++; } };\n";
    let mut inner = "thrower(x)".to_string();
    for index in 0..depth {
        frames += &format!(
            "__attribute__((noinline)) static long f{index}(long x, long &n) {{ Count c{{n}}; return {inner}; }}\n"
        );
        inner = format!("f{index}(x, n)");
    }
    frames += &format!("extern \"C\" long outer(long x) {{ long n = 0; return {inner} - n; }}\n");
    // `counted` catches the exception and returns its value and the number of destructors that ran.
    frames += &format!(
        "extern \"C\" long counted(long x) {{
             long n = 0;
             try {{ {inner}; }} catch (long v) {{ return v * 100 + n; }}
             return -1;
         }}"
    );
    gxx(&["-O1", "-fPIC"], &frames).map(ObjectBuffer::from)
}

struct Module {
    tracker: ResourceTracker,
    outer: Bridge,
    counted: Function<extern "C" fn(i64) -> i64>,
    depth: usize,
}

impl Module {
    fn load(jit: &Jit, dylib: &JitDylib, objects: &[ObjectBuffer], depth: usize) -> Module {
        let tracker = add_object(jit, dylib, "frames.o", objects[depth].clone());
        let (outer, counted) = (try_function(jit, dylib, "outer"), try_function(jit, dylib, "counted"));
        Module { tracker, outer: outer.unwrap(), counted: counted.unwrap(), depth }
    }

    /// Throws once and panics once.
    fn check(&self, x: i64) {
        assert_eq!(self.counted.call(x), x * 100 + self.depth as i64);
        let caught = catch_unwind(AssertUnwindSafe(|| self.outer.call(-x))).unwrap_err();
        assert_eq!(caught.downcast_ref::<i64>(), Some(&-x));
    }

    fn remove(self) {
        let Module { tracker, outer, counted, .. } = self;
        drop((outer, counted));
        assert!(tracker.remove().unwrap().is_complete());
    }
}

#[test]
fn every_exception_and_panic_is_caught_while_modules_are_linked_and_removed() {
    let (Some(thrower), Some(objects)) = (cpp(THROWER), (0..6).map(module).collect::<Option<Vec<_>>>()) else { return };
    let jit = new_jit();
    // Each module has its own dylib, which finds `thrower` in the main dylib.
    install(jit.main_dylib());
    let _thrower = add(&jit, jit.main_dylib(), "thrower.o", &thrower);
    let dylib = |name: &str| {
        let dylib = jit.create_dylib(name).unwrap();
        let order = [jit.main_dylib(), jit.process_dylib()];
        let order = order.map(|next| (next.clone(), jittison::session::Visibility::ExportedOnly));
        dylib.set_link_order(&order).unwrap();
        dylib
    };
    let residents: Vec<_> =
        (0..6).map(|depth| Module::load(&jit, &dylib(&format!("resident {depth}")), &objects, depth)).collect();
    let (stop, thrown, churned) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (residents, stop, thrown) = (&residents, &stop, &thrown);
            scope.spawn(move || {
                let mut x = 0;
                while x < 300 || !stop.load(Ordering::Relaxed) {
                    x += 1;
                    residents[(x as usize + thread) % residents.len()].check(x);
                }
                thrown.fetch_add(x as u64, Ordering::Relaxed);
            });
        }
        let churners: Vec<_> = (0..2)
            .map(|thread| {
                let (jit, objects, churned, dylib) = (&jit, &objects, &churned, dylib(&format!("churn {thread}")));
                scope.spawn(move || {
                    let (begun, mut random) = (Instant::now(), Rng::with_seed(77 + thread));
                    for round in 1.. {
                        let module = Module::load(jit, &dylib, objects, random.usize(..objects.len()));
                        module.check(round);
                        module.remove();
                        churned.fetch_add(1, Ordering::Relaxed);
                        if round >= 200 && begun.elapsed() > Duration::from_secs(2) {
                            break;
                        }
                    }
                })
            })
            .collect();
        let ends: Vec<_> = churners.into_iter().map(|churner| churner.join()).collect();
        stop.store(true, Ordering::Relaxed);
        ends.into_iter().for_each(|end| end.unwrap());
    });
    let (thrown, churned) = (thrown.into_inner(), churned.into_inner());
    assert!(thrown >= 3 * 300 && churned >= 2 * 200, "{thrown}, {churned}");
    println!(
        "{thrown} exceptions and {thrown} panics through live frames, while {churned} modules were linked and removed"
    );
    residents.into_iter().for_each(Module::remove);
    assert_eq!(held(&jit).0, 1);
}
