//! Tests of what linked code expects of its platform: initialisers and finalisers, exit handlers, exceptions and panics,
//! redirectable stubs, lazy functions, handles, drop order, calls back into the session, opening and closing dylibs, and the end
//! of threads and of the process. One file per theme. `recorder.rs` records events that linked code reports.

mod debugger;
mod drop_order;
mod evict;
mod exceptions;
mod exit_handlers;
mod failing_initialisers;
mod handles;
mod indirect_functions;
mod init_fini;
mod init_fragments;
mod lazy;
mod lazy_failures;
mod libraries;
mod loader;
mod locate;
mod managers;
mod opening;
mod printed;
mod process_exit;
mod profiler;
mod programs;
mod recorder;
mod reentry;
mod stubs;
mod thread_exit;
mod throwing;
mod two_sessions;

use jittison_test_support as support;
