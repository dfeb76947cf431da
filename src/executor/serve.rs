//! [`serve`]: the threads of an executor, and its questions.
//!
//! | thread | waits on | ends |
//! |---|---|---|
//! | the one that called `serve` | the control socket, for further lanes | with the process |
//! | one for each lane | its lane, for requests | when the lane closes; destructors of its thread-local variables run then |
//! | threads that linked code starts | nothing, until they have a question | as their code says |
//!
//! When the control socket closes, the controller is done or gone, and the process ends as by `exit(0)`.

use std::convert::Infallible;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::executor::answers::Server;
use crate::executor::asking::{serve_lane, start_asking};
use crate::executor::crash_page::store_crashes;
use crate::executor::lane::{Broken, Lane};
use crate::executor::sandbox::restrictions_of;
use crate::os;
use crate::sync::{sleep, spawn_for_code};
use crate::wire::{Answer, Facts, Request, SandboxRules, Side, ToController, ToExecutor};

/// Makes this process an executor of the process that has put a socket at its standard input
/// ([`ExecutorProcess::start_command`](super::ExecutorProcess::start_command)). Its standard input becomes that of the
/// controller.
///
/// # Errors
/// As [`serve`]. Also if the standard input is no socket.
pub fn serve_standard_input() -> Result<Infallible> {
    let problem = |error| {
        Error::other(format!(
            "the standard input is no socket of a process that links ({error}); an executor is started by \
             `ExecutorProcess::start` or `jittison run --executor`"
        ))
    };
    serve_with(os::take_standard_input().map_err(problem)?, true)
}

/// Makes this process an executor of the process at the other end of a socket. Returns only if it cannot: the process ends when
/// the other end is closed.
///
/// Any program can call it, a server that forks too: then linked code finds the symbols of that program. A [`Sandbox`](super::Sandbox) needs a
/// process of one thread. Other threads and the
/// standard input of the program stay. The actions for SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP and SIGABRT become those that
/// report a crash to the controller.
///
/// # Errors
/// The other end is no controller of this version, or this process is an executor already.
pub fn serve(control: UnixStream) -> Result<Infallible> {
    serve_with(control, false)
}

/// As [`serve`]. `takes_input` says whether the standard input becomes that of the controller.
fn serve_with(control: UnixStream, takes_input: bool) -> Result<Infallible> {
    let control = Lane::new(control);
    let broken = |broken: Broken| Error::other(format!("this process cannot serve as an executor: {broken}"));
    // Both sides greet first, so that each can say which version the other one has.
    control.greet(Side::Executor, &[]).map_err(broken)?;
    let mut descriptors = control.receive_greeting(Side::Controller, None).map_err(broken)?.into_iter();
    let back = descriptors.next().ok_or_else(|| Error::other("the process that links sent no socket for questions"))?;
    if let Some(page) = descriptors.next() {
        // Without it, the controller knows only the signal.
        let _ = store_crashes(&page.into());
    }
    if let Some(input) = descriptors.next().filter(|_| takes_input) {
        // Without it, programs that read find the end of the file.
        let _ = os::set_standard_input(&input);
    }
    let (ToExecutor::Ask(Request::Start { sandbox }), _) = control.receive().map_err(broken)? else {
        return Err(Error::other("the process that links did not say how to start"));
    };
    let started = start(sandbox, || {
        let server = Server::new();
        let facts = server.facts();
        start_asking(Box::new(server), Lane::new(back.into()), false).map(|()| facts)
    });
    let facts = started.inspect_err(|error| {
        let _ = control.send(&ToController::Answer(Answer::Failed(error.to_string())), &[]);
    })?;
    control.send(&ToController::Answer(Answer::Facts(facts)), &[]).map_err(broken)?;
    while let Ok((ToExecutor::Ask(request), descriptors)) = control.receive() {
        let answer = open_lane(request, descriptors);
        if control.send(&ToController::Answer(answer), &[]).is_err() {
            break;
        }
    }
    end()
}

/// Restricts the process if wanted, and then makes it an executor.
pub(super) fn start(sandbox: Option<SandboxRules>, serve: impl FnOnce() -> Result<Facts>) -> Result<Facts> {
    // Before any thread is started that serves, so that each has the restrictions.
    if let Some(rules) = sandbox {
        let restricted = os::restrict(&restrictions_of(rules));
        restricted.map_err(|problem| Error::other(format!("it cannot restrict itself: {problem}")))?;
    }
    serve()
}

/// Ends the process when its controller is done. Linked code that waits in an exit handler does not keep it.
pub(super) fn end() -> ! {
    let _ = spawn_for_code("jittison-end", || {
        sleep(Duration::from_secs(3));
        std::process::abort();
    });
    std::process::exit(0)
}

/// Serves a request on the control socket.
fn open_lane(request: Request, descriptors: Vec<OwnedFd>) -> Answer {
    let (Request::OpenLane, Ok(descriptors)) = (&request, <[OwnedFd; 2]>::try_from(descriptors)) else {
        return Answer::Failed(format!("{request:?} on the control socket"));
    };
    let lane = match Lane::from_descriptors(descriptors) {
        Ok(lane) => lane,
        Err(error) => return Answer::Failed(format!("the executor cannot map the page of a lane: {error}")),
    };
    match spawn_for_code("jittison-lane", move || serve_lane(Rc::new(lane))) {
        Ok(()) => Answer::Done,
        Err(error) => Answer::Failed(format!("the executor cannot start a thread: {error}")),
    }
}
