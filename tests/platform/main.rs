//! The promises of what running code expects of its platform: initialisers and finalisers, exit handlers, exceptions and
//! panics, redirectable stubs, lazy functions, handles, forgetting, calling back, opening and closing dylibs, the end of the process. One file per theme; `recorder.rs` is the host that linked code reports to.

mod debugger;
#[path = "../support/debuggers.rs"]
mod debuggers;
mod evict;
mod exceptions;
mod exit_handlers;
mod failing_initialisers;
mod forgetting;
mod handles;
mod init_fini;
mod lazy;
mod lazy_failures;
mod locate;
mod opening;
mod printed;
mod process_exit;
mod profiler;
mod recorder;
mod reentry;
mod stubs;
#[path = "../support/mod.rs"]
mod support;
mod thread_exit;
mod throwing;
