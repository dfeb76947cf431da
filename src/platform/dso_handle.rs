//! What an object registers under its `__dso_handle`, and with whom: exit handlers, destructors of thread-local variables,
//! handlers of forks and of `quick_exit`.
//!
//! The C++ ABI has one handle for each shared object, and a handler belongs to the handle that it was registered with. Here
//! what comes and goes as one is a tracker, and a tracker gets its objects one by one, and may be merged into another. So
//! each *object* has a handle of its own, whose word names its [`ExitScope`]: the handlers of a tracker are those of its
//! objects, whichever these are now, and run in the order of their registration over all of them. With one handle for each
//! dylib, handlers of the trackers of a dylib could not be told apart. No code can tell that there are more: all that the ABI
//! lets it do with the address is to pass it on.

use crate::base::{ExecutorAddr, SegmentKind};
use crate::host::{self, ExitScope};
use crate::link::{Definition, ENDBR64, Edge, EdgeKind, LinkGraph, SymbolIndex};

/// If an object asks for any of it, gives it a `__dso_handle` of its own and has what it registers there led to a scope,
/// which is made for it.
pub(super) fn give_own_handle(graph: &mut LinkGraph) -> Option<ExitScope> {
    let wanted = find_externals(graph, WANTED);
    let [handle, cxa_atexit, atexit, on_exit, thread_atexit, thread_atexit_impl, atfork, at_quick_exit] = wanted;
    if wanted.iter().all(Option::is_none) {
        return None;
    }
    let scope = ExitScope::new();
    let word = scope.number().to_le_bytes().to_vec();
    let block = graph.add_block(".data.__dso_handle", SegmentKind::Data, word, 8, &[]);
    let handle = match handle {
        Some(handle) => {
            graph.define(handle, Definition::Block(block, 0));
            handle
        }
        None => graph.add_local("__dso_handle", block, 0),
    };
    let capture = Definition::Absolute(host::atexit_capture_address().value());
    if let Some(cxa_atexit) = cxa_atexit {
        graph.define(cxa_atexit, capture);
    }
    for thread_atexit in [thread_atexit, thread_atexit_impl].into_iter().flatten() {
        graph.define(thread_atexit, Definition::Absolute(host::thread_atexit_capture_address().value()));
    }
    if let Some(atexit) = atexit {
        let cxa_atexit =
            cxa_atexit.unwrap_or_else(|| graph.add_local_absolute("__cxa_atexit", host::atexit_capture_address()));
        // atexit(f) is __cxa_atexit(f, 0, &__dso_handle):
        //   endbr64; xor %esi,%esi; lea __dso_handle(%rip),%rdx; jmp __cxa_atexit
        let code = [&ENDBR64[..], &[0x31, 0xf6], &LEA_RDX, &[0, 0, 0, 0, 0xe9, 0, 0, 0, 0]].concat();
        let edges = [
            Edge { offset: 9, kind: EdgeKind::Delta32, symbol: handle, addend: -4 },
            Edge { offset: 14, kind: EdgeKind::Branch32, symbol: cxa_atexit, addend: -4 },
        ];
        let block = graph.add_block(".text.atexit", SegmentKind::Code, code, 16, &edges);
        graph.define(atexit, Definition::Block(block, 0));
    }
    // The C library has these in the part of it that is linked into each program, with that program's own handle:
    // on_exit(f, p), at_quick_exit(f) and pthread_atfork(f, g, h) take the handle as one argument more.
    let with_handle: [(_, &str, &[u8], ExecutorAddr); 3] = [
        (on_exit, "on_exit", &LEA_RDX, host::on_exit_capture_address()),
        (at_quick_exit, "at_quick_exit", &LEA_RSI, host::at_quick_exit_capture_address()),
        (atfork, "pthread_atfork", &LEA_RCX, host::atfork_capture_address()),
    ];
    for (wanted, name, lea, capture) in with_handle {
        let Some(wanted) = wanted else { continue };
        let capture = graph.add_local_absolute(name, capture);
        // endbr64; lea __dso_handle(%rip),…; jmp (what captures it)
        let code = [&ENDBR64, lea, &[0, 0, 0, 0, 0xe9, 0, 0, 0, 0]].concat();
        let edges = [
            Edge { offset: 7, kind: EdgeKind::Delta32, symbol: handle, addend: -4 },
            Edge { offset: 12, kind: EdgeKind::Branch32, symbol: capture, addend: -4 },
        ];
        let block = graph.add_block(&format!(".text.{name}"), SegmentKind::Code, code, 16, &edges);
        graph.define(wanted, Definition::Block(block, 0));
    }
    Some(scope)
}

/// `lea …(%rip)`, into the register of the second, third and fourth argument.
const LEA_RSI: [u8; 3] = [0x48, 0x8d, 0x35];
const LEA_RDX: [u8; 3] = [0x48, 0x8d, 0x15];
const LEA_RCX: [u8; 3] = [0x48, 0x8d, 0x0d];

/// What leads to an object's own scope.
const WANTED: [&str; 8] = [
    "__dso_handle",
    "__cxa_atexit",
    "atexit",
    "on_exit",
    "__cxa_thread_atexit",
    "__cxa_thread_atexit_impl",
    "pthread_atfork",
    "at_quick_exit",
];

/// The externals of these names, in one walk over all of them.
fn find_externals<const N: usize>(graph: &LinkGraph, names: [&str; N]) -> [Option<SymbolIndex>; N] {
    let mut found = [None; N];
    if !names.iter().any(|name| graph.may_have_external(name)) {
        return found;
    }
    for (index, name) in graph.named_externals() {
        if let Some(at) = names.iter().position(|wanted| wanted.as_bytes() == name) {
            found[at].get_or_insert(index);
        }
    }
    found
}
