//! [`serve_network`]: an executor that its controller reaches by a network.
//!
//! | connection | a thread |
//! |---|---|
//! | of anybody | of its own, until it has proved the right to use this executor, for ten seconds, or until there are too many (`strangers.rs`) |
//! | `Back`, the first | ends, and questions for further lanes use the connection |
//! | `Control`, the second | waits on it; when it closes, the process ends |
//! | `Lane` | serves a thread of the controller |
//! | `BackLane` | gives the connection to the thread that has asked for it |
//! | `Stream` | makes the connection a standard stream of the process |
//!
//! A process serves one controller.

use std::convert::Infallible;
use std::net::{TcpListener, TcpStream};
use std::rc::Rc;
use std::time::Instant;

use crate::error::{Error, Result};
use crate::executor::answers::Server;
use crate::executor::asking::{give_back_lane, serve_lane, start_asking};
use crate::executor::crash_page::set_actions;
use crate::executor::endpoint::{Encryption, TIME_TO_CONNECT, lane_over};
use crate::executor::lane::{Broken, Lane};
use crate::executor::last_message::send_end_by;
use crate::executor::serve::{end, start};
use crate::executor::strangers::{Stranger, Strangers};
use crate::sync::{Arc, Mutex, spawn_for_code};
use crate::wire::{Answer, Request, Role, Side, ToController, ToExecutor};

/// Makes this process an executor of the process that connects to `listener` and knows the token
/// ([`ExecutorProcess::connect`](super::ExecutorProcess::connect)). Returns only if it cannot: the process ends when its controller does.
///
/// Whoever knows the token runs code here, with the rights of this process. Messages are not encrypted: use it between processes of
/// one machine, or through a tunnel. `serve_network_encrypted` of the feature `executor-tls` encrypts them. When there is a controller, the
/// actions for SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP and SIGABRT become those that report a crash to it.
///
/// # Errors
/// The token has fewer than 16 bytes. The listener fails. Connections that close before they are accepted are no failure.
pub fn serve_network(listener: TcpListener, token: &str) -> Result<Infallible> {
    serve_connections(listener, token, None)
}

/// As [`serve_network`]. `encryption`: for all connections, or for none.
pub(super) fn serve_connections(
    listener: TcpListener,
    token: &str,
    encryption: Option<Encryption>,
) -> Result<Infallible> {
    if token.len() < MIN_TOKEN {
        return Err(Error::other(format!("a token of {} bytes; take {MIN_TOKEN} random ones at least", token.len())));
    }
    let gate =
        Arc::new(Gate { token: token.as_bytes().to_vec(), encryption, controller: Mutex::new(Controller::Nobody) });
    let strangers = Strangers::new();
    loop {
        let (stream, address) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionAborted => continue,
            Err(error) => return Err(Error::other(format!("no connection is accepted: {error}"))),
        };
        // What cannot be served closes.
        let Ok(stranger) = strangers.admit(&stream, address.ip()) else { continue };
        let gate = gate.clone();
        // Without a thread the connection closes.
        let _ = spawn_for_code("jittison-lane", move || {
            // A connection that is none of a controller closes.
            let _ = gate.accept(stream, stranger);
        });
    }
}

/// What connections need until there is a controller.
struct Gate {
    token: Vec<u8>,
    encryption: Option<Encryption>,
    controller: Mutex<Controller>,
}

enum Controller {
    Nobody,
    /// The connection for questions has come, and the control connection has not.
    HalfWay(Lane),
    There,
}

impl Gate {
    fn accept(&self, stream: TcpStream, stranger: Stranger) -> std::result::Result<(), Broken> {
        let deadline = Instant::now() + TIME_TO_CONNECT;
        let lane = lane_over(stream, self.encryption.as_ref(), deadline)?;
        let deadline = Some(deadline);
        lane.greet(Side::Executor, &[])?;
        lane.receive_greeting(Side::Controller, deadline)?;
        let answer = |answer| lane.send(&ToController::Answer(answer), &[]);
        let ToExecutor::Ask(Request::Join { token, role }) = lane.receive_small(deadline)? else {
            return answer(Answer::Failed("a connection begins with its token".to_string()));
        };
        if !is_same(&token, &self.token) {
            return answer(Answer::Failed("the token is another one".to_string()));
        }
        drop(stranger);
        match role {
            Role::Back => {
                // Held until the lane is stored: the control connection may come as soon as this is answered.
                let mut controller = self.controller.lock();
                if matches!(*controller, Controller::There) {
                    return answer(Answer::Failed(TAKEN.to_string()));
                }
                answer(Answer::Done)?;
                *controller = Controller::HalfWay(lane);
            }
            Role::Control => {
                let before = std::mem::replace(&mut *self.controller.lock(), Controller::There);
                let Controller::HalfWay(back) = before else {
                    if matches!(before, Controller::Nobody) {
                        *self.controller.lock() = Controller::Nobody;
                    }
                    return answer(Answer::Failed(TAKEN.to_string()));
                };
                answer(Answer::Done)?;
                control(&lane, back)?;
            }
            Role::Lane => {
                answer(Answer::Done)?;
                serve_lane(Rc::new(lane));
            }
            Role::BackLane(number) => {
                answer(Answer::Done)?;
                give_back_lane(number, lane);
            }
            // Answered afterwards: what the process writes follows the answer.
            Role::Stream(stream) => match lane.become_stream(stream) {
                Ok(()) => answer(Answer::Done)?,
                Err(error) => return answer(Answer::Failed(error.to_string())),
            },
        }
        Ok(())
    }
}

/// Serves the control connection until the controller is gone. Then the process ends. Returns if this process cannot be an executor.
fn control(lane: &Lane, back: Lane) -> std::result::Result<(), Broken> {
    let started = match lane.receive() {
        Ok((ToExecutor::Ask(Request::Start { sandbox }), _)) => start(sandbox, || {
            let server = Server::new();
            let facts = server.facts();
            start_asking(Box::new(server), back, true).map(|()| facts)
        }),
        _ => Err(Error::other("the control connection begins with the start")),
    };
    match started {
        Err(error) => lane.send(&ToController::Answer(Answer::Failed(error.to_string())), &[]),
        Ok(facts) => {
            if lane.send(&ToController::Answer(Answer::Facts(facts)), &[]).is_ok() {
                // Without these, the controller knows only that the connections have closed.
                if let Ok(closer) = lane.closer() {
                    send_end_by(closer);
                }
                let _ = set_actions();
                // Nothing is asked here. It ends when the controller does.
                while lane.receive::<ToExecutor>().is_ok() {}
            }
            end()
        }
    }
}

/// Whether two tokens are equal, in a time that does not depend on how much of them is.
fn is_same(given: &[u8], expected: &[u8]) -> bool {
    let difference = given.iter().zip(expected).fold(0, |difference, (a, b)| difference | (a ^ b));
    given.len() == expected.len() && std::hint::black_box(difference) == 0
}

const MIN_TOKEN: usize = 16;
const TAKEN: &str = "this executor has a controller already, or no connection for questions";
