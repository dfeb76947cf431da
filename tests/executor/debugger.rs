//! gdb in the process of an executor.

use std::sync::atomic::{AtomicBool, Ordering};

use jittison::Jit;
use jittison_test_support::may_trace;
use jittison_test_tools::{gcc, require, require_x86_64};

use crate::start;

#[test]
fn gdb_stops_at_hardware_breakpoints_in_code_of_an_executor() {
    let source = "long n;\n__attribute__((noinline)) long work(long amount) {\n  return n += amount; }\nlong caller(void) { return work(7) + 1; }\n";
    let Some(object) = require_x86_64().then(|| gcc(&["-O1", "-g", "-fPIC"], source)).flatten() else { return };
    let Some(mut gdb) = require("gdb") else { return };
    let executor = start();
    let jit = Jit::builder().executor(&executor).debugger(true).build().unwrap();
    jit.add_object(&jit.main_dylib().default_tracker().unwrap(), "work.o", object).unwrap();
    let caller = jit.remote_function(jit.main_dylib(), "caller").unwrap();
    let is_done = AtomicBool::new(false);
    let output = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                caller.call(&[]).unwrap();
            }
        });
        gdb.args(["-batch", "-nx", "-p", &executor.id().to_string()]);
        let commands =
            ["set pagination off", "info line work", "hbreak work", "continue", "backtrace 2", "delete", "detach"];
        gdb.args(commands.iter().flat_map(|command| ["-ex", command]));
        let output = gdb.output();
        is_done.store(true, Ordering::Relaxed);
        output.unwrap()
    });
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    if !may_trace(&text) {
        return;
    }
    assert!(text.contains("starts at address") && text.contains("<work>"), "{text}");
    // A virtual processor may have no registers for breakpoints.
    if text.contains("Could not insert hardware breakpoint") || text.contains("debug register") {
        return;
    }
    assert!(text.contains("work (amount=amount@entry=7)") || text.contains("work (amount=7)"), "{text}");
    assert!(text.contains("in caller ()"), "{text}");
}
