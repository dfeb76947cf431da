//! Threads: tasks in place, worker threads, waiting for an outcome, and a background thread.
//!
//! - `dispatch.rs`: tasks that run on the thread that caused them;
//! - `worker_pool.rs`: tasks that run on a bounded number of worker threads;
//! - `dispatcher.rs`: the choice between the two, and waiting;
//! - `background_thread.rs`: a thread that repeats one kind of work on request.
//!
//! The sub-room is generic over the job ([`Job`](dispatch::Job)) and over the outcome that a thread waits for
//! ([`Waitable`](dispatcher::Waitable)), so it does not know what a materialisation or a lookup is. It imports no other sub-room.

pub(in crate::session) mod background_thread;
pub(in crate::session) mod dispatch;
pub(in crate::session) mod dispatcher;
pub(in crate::session) mod worker_pool;
