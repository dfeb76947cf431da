//! [`define_dso_handle`]: gives an object its own `__dso_handle`, under which it registers exit handlers, thread-local
//! destructors, fork handlers and `quick_exit` handlers.
//!
//! In the C++ ABI each shared object has one handle, and a handler belongs to the handle with which it was registered. Here
//! code is removed by tracker. A tracker gets its objects one by one, and another tracker may take them over. So each *object*
//! has a handle of its own, whose word is the number of its [`HandlerScope`]. The handlers of a tracker are those of its
//! current objects, and run in reverse order of their registration. With one handle per dylib, the handlers of its trackers
//! could not be told apart.
//!
//! Code does not notice that there are several handles: the ABI only lets it pass the address on.

use crate::arch::HandlerTarget;
use crate::base::{ExecutorAddr, SegmentKind};
use crate::host::{Executor, HandlerScope};
use crate::link::{Definition, LinkGraph};
use crate::platform::wanted_names::WantedNames;

/// If an object refers to one of the names in [`WANTED`], defines these names in its graph, so that they lead to a new scope.
/// Returns the scope. `None` if the object refers to none of them.
pub(super) fn define_dso_handle(graph: &mut LinkGraph, executor: &dyn Executor) -> Option<Box<dyn HandlerScope>> {
    let [handle, cxa_atexit, atexit, on_exit, thread_atexit, thread_atexit_impl, atfork, at_quick_exit, rest @ ..] =
        WANTED.find(graph)?;
    let [register_atfork, cxa_at_quick_exit] = rest;
    let (scope, functions) = (executor.open_exit_scope(), executor.handler_functions());
    let word = scope.number().to_le_bytes().to_vec();
    let block = graph.insert_block(".data.__dso_handle", SegmentKind::Data, word, 8, &[]);
    let handle = match handle {
        Some(handle) => {
            graph.set_definition(handle, Definition::Block(block, 0));
            handle
        }
        None => graph.insert_local("__dso_handle", block, 0),
    };
    // These functions get the handle from their caller. The C library's own functions would keep a handler that no
    // scope knows, and call it after the code is freed.
    let captures = [
        (cxa_atexit, functions.atexit),
        (thread_atexit, functions.thread_atexit),
        (thread_atexit_impl, functions.thread_atexit),
        (register_atfork, functions.atfork),
        (cxa_at_quick_exit, functions.at_quick_exit),
    ];
    for (wanted, capture) in captures {
        if let Some(wanted) = wanted {
            graph.set_definition(wanted, Definition::Absolute(capture.value()));
        }
    }
    if let Some(atexit) = atexit {
        let cxa_atexit = cxa_atexit.unwrap_or_else(|| graph.insert_local_absolute("__cxa_atexit", functions.atexit));
        let block = graph.insert_code(".text.atexit", graph.arch.atexit(), |target| match target {
            HandlerTarget::Handle => handle,
            HandlerTarget::Function => cxa_atexit,
        });
        graph.set_definition(atexit, Definition::Block(block, 0));
    }
    // In a native program, these functions are in the static part of the C library and pass the program's own handle on. Here
    // on_exit(f, p), at_quick_exit(f) and pthread_atfork(f, g, h) get the object's handle as one more argument.
    let [second, third, fourth] = graph.arch.with_handle();
    let with_handle: [(_, &str, _, ExecutorAddr); 3] = [
        (on_exit, "on_exit", third, functions.on_exit),
        (at_quick_exit, "at_quick_exit", second, functions.at_quick_exit),
        (atfork, "pthread_atfork", fourth, functions.atfork),
    ];
    for (wanted, name, code, capture) in with_handle {
        let Some(wanted) = wanted else { continue };
        let capture = graph.insert_local_absolute(name, capture);
        let block = graph.insert_code(&format!(".text.{name}"), code, |target| match target {
            HandlerTarget::Handle => handle,
            HandlerTarget::Function => capture,
        });
        graph.set_definition(wanted, Definition::Block(block, 0));
    }
    Some(scope)
}

/// The names that need a scope.
static WANTED: WantedNames<10> = WantedNames::new([
    "__dso_handle",
    "__cxa_atexit",
    "atexit",
    "on_exit",
    "__cxa_thread_atexit",
    "__cxa_thread_atexit_impl",
    "pthread_atfork",
    "at_quick_exit",
    "__register_atfork",
    "__cxa_at_quick_exit",
]);
