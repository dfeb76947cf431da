//! Link here, run in another process: [`ExecutorProcess`] and [`serve`].
//!
//! An executor of this machine shares the code memory. One that is reached by a network ([`ExecutorProcess::connect`]) gets copies.
//!
//! The process that links is the *controller*, the one that runs is the *executor* (ORC: `ExecutionSession` and
//! `ExecutorProcessControl`). The code memory is shared: a link writes it here, and it is in the executor at once. A link that
//! needs no symbol of the executor, no initialiser and no thread-local block sends no message.
//!
//! ```no_run
//! # fn main() -> Result<(), jittison::Error> {
//! use jittison::executor::ExecutorProcess;
//!
//! let executor = ExecutorProcess::start("jittison-executor")?;
//! let jit = jittison::Jit::builder().executor(&executor).build()?;
//! let tracker = jit.main_dylib().create_tracker()?;
//! jit.add_object(&tracker, "add.o", std::fs::read("add.o").unwrap())?;
//! // SAFETY: `add` has this signature, and the object may run.
//! let add = unsafe { jit.lookup::<extern "C" fn(i32, i32) -> i32>("add")? };
//! assert_eq!(add.try_call(2, 3)?, 5);
//! # Ok(()) }
//! ```
//!
//! # How it is built
//!
//! | file | side | what it does |
//! |---|---|---|
//! | `lane.rs` | both | one socket between two threads |
//! | `lane_page.rs` | both | the shared page of a lane, for messages while the receiver polls |
//! | `process.rs` | controller | starts the executor, gives each thread a lane, notices its end |
//! | `ending.rs` | controller | how the executor has ended |
//! | `requests.rs` | controller | `Remote`, which implements the trait `Executor` of `host`, and its handles |
//! | `registered.rs` | controller | what the executor may ask about, and the answers |
//! | `windows.rs` | controller | windows of the executor, and the memory manager over them |
//! | `connect.rs`, `endpoint.rs` | controller | connections to executors that others have started |
//! | `changes.rs` | controller | the bytes that an executor must have which shares no memory |
//! | `listen.rs`, `strangers.rs` | executor | such connections, and those that have not proved their token yet |
//! | `streams.rs`, `outputs.rs` | controller | standard input, output and error of such an executor |
//! | `encrypted.rs` | both | such connections by TLS, with the feature `executor-tls` |
//! | `sandbox.rs` | both | what the executor may do beside running code |
//! | `passing.rs` | both | a call as the fields of a message |
//! | `crash_page.rs` | both | the shared page with the crash of an executor |
//! | `last_message.rs` | executor | its crash or exit status, if it is reached by a network |
//! | `serve.rs` | executor | the control socket, and the end of the process |
//! | `asking.rs` | executor | the lane of each thread, and questions to the controller |
//! | `answers.rs` | executor | what each request does: it calls `InProcess` of `host` |
//! | `questions.rs` | executor | what stands in the executor for targets, views, hooks and holds of the controller |
//!
//! # Lanes
//! Each thread of the controller that makes a request has a lane of its own, with a thread of the executor at the other end. So
//! code that a thread of the controller calls always runs on the same thread of the executor, with the same thread-local
//! variables. While code runs there, it may ask: a lazy function is called, `dlsym`, `exit`. The waiting thread of the controller
//! answers on the same lane, and may make requests meanwhile, which the waiting thread of the executor serves. A thread that
//! linked code itself has started gets a lane at its first question, with a new thread of the controller at the other end.
//!
//! `DESIGN.md`, section 10, walks through one link and one removal.
//!
//! # The end of an executor
//! A crash of linked code ends the executor and not the controller. Every request then fails with
//! [`ErrorKind::ExecutorEnded`](crate::ErrorKind::ExecutorEnded), also those under way. Removals succeed. If the controller
//! ends, the executor ends, too.
//!
//! # Limits
//! - Without a [`Sandbox`], linked code there has the rights of its user. It shares the data pool with the controller.
//! - A [`Symbol`](crate::Symbol) is a pointer of the process that links, so a session with an executor refuses it.
//! - A call of a [`Function`](crate::Function) passes its arguments on as they are: a pointer must be an address of the executor. Some
//!   signatures are refused (`docs/executor.md`).
//! - perf reads a jitdump, and no map of names. Debuggers stop in linked code at hardware breakpoints only.
//! - A child that linked code forks shares its data with its parent.
//! - On AArch64 code is copied, never shared: the process that runs it maintains its own caches of instructions.
//!
//! # Invariants
//! - **E1** *Code of a request is held.* The controller keeps the code of an address that a request calls in memory until the
//!   answer has arrived, or until the executor has ended.
//! - **E2** *Functions of a request.* The controller asks for a call only with an address that was looked up as a function, or
//!   that an object lists as an initialiser or finaliser. The executor belongs to its controller: it runs what it is told to.
//! - **E3** *Memory.* A pool of `memory` in the controller makes every allocation. The controller reads and writes it through the views of the
//!   pool; addresses of the executor are only numbers there. An executor by a network writes a range of its windows only because the controller
//!   says so, and the controller says so for what its pools have given out.
//! - **E4** *Shared pages.* The page of a lane or of a crash is mapped as long as its owner, and its file cannot shrink.

mod answers;
mod asking;
mod changes;
mod connect;
mod crash_page;
#[cfg(feature = "executor-tls")]
mod encrypted;
mod ending;
mod endpoint;
mod lane;
mod lane_page;
mod last_message;
mod listen;
mod outputs;
mod passing;
mod process;
mod questions;
mod registered;
mod requests;
mod sandbox;
mod serve;
mod strangers;
mod streams;
mod windows;

#[cfg(feature = "executor-tls")]
pub use encrypted::{ServerCertificate, TrustedCertificates, serve_network_encrypted};
pub use listen::serve_network;
pub use process::ExecutorProcess;
pub(crate) use requests::Remote;
pub use sandbox::Sandbox;
pub use serve::{serve, serve_standard_input};
pub(crate) use windows::executor_memory;

/// Checks the decoding of any bytes as messages, for fuzzing. Panics if a message is another one after it was encoded again.
#[cfg(feature = "unstable")]
#[doc(hidden)]
pub fn check_bytes(bytes: &[u8]) {
    crate::wire::check_bytes(bytes);
}
