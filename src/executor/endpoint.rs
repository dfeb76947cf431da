//! [`Endpoint`]: an executor that listens on a network, and the connections to it.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::executor::lane::{Broken, Lane};
use crate::sync::Arc;
use crate::wire::{Answer, Request, Role, Side, ToController, ToExecutor};

/// Where it listens, and what proves the right to use it.
#[derive(Clone)]
pub(super) struct Endpoint {
    pub(super) address: SocketAddr,
    pub(super) token: Vec<u8>,
    pub(super) encryption: Option<Encryption>,
}

/// Agrees on keys with the other side of a connection, before the time is over, and makes a lane of it.
pub(super) type Encryption = Arc<dyn Fn(TcpStream, Instant) -> Result<Lane, Broken> + Send + Sync>;

/// A lane over a connection by a network.
pub(super) fn lane_over(stream: TcpStream, encryption: Option<&Encryption>, deadline: Instant) -> Result<Lane, Broken> {
    match encryption {
        Some(encryption) => encryption(stream, deadline),
        None => Ok(Lane::of_stream(stream)?),
    }
}

impl Endpoint {
    /// Opens a connection.
    ///
    /// # Errors
    /// Nobody listens there, no executor of this version, or it refuses the token.
    pub(super) fn join(&self, role: Role) -> Result<Lane, String> {
        let connect = || -> Result<Lane, Broken> {
            let deadline = Instant::now() + TIME_TO_CONNECT;
            let stream = TcpStream::connect_timeout(&self.address, TIME_TO_CONNECT)?;
            let lane = lane_over(stream, self.encryption.as_ref(), deadline)?;
            let deadline = Some(deadline);
            lane.greet(Side::Controller, &[])?;
            lane.receive_greeting(Side::Executor, deadline)?;
            lane.send(&ToExecutor::Ask(Request::Join { token: self.token.clone(), role }), &[])?;
            match lane.receive_until(deadline)?.0 {
                ToController::Answer(Answer::Done) => Ok(lane),
                ToController::Answer(Answer::Failed(problem)) => Err(Broken::Nonsense(problem)),
                other => Err(Broken::Nonsense(format!("{other:?}"))),
            }
        };
        connect().map_err(|broken| format!("{}: {broken}", self.address))
    }
}

/// How long an executor may take to accept a connection.
pub(super) const TIME_TO_CONNECT: Duration = Duration::from_secs(10);
