//! [`ExecutorProcess::connect`] and [`ExecutorProcess::from_socket`]: executors that others have started.

use std::net::ToSocketAddrs;
use std::os::unix::net::UnixStream;

use crate::error::{Error, Result};
use crate::executor::endpoint::{Encryption, Endpoint};
use crate::executor::lane::Lane;
use crate::executor::process::ExecutorProcess;
use crate::executor::sandbox::Sandbox;

impl ExecutorProcess {
    /// Makes an executor of the process at the other end of a socket, which [serves](super::serve) it: the child of a server that forks, for
    /// example, with what the server has loaded. Code and data are copied to it. It ends with its last handle and session here, or with this
    /// process.
    ///
    /// This process is not its parent. So [`kill`](Self::kill) ends it only when it notices that the connections are closed, after three seconds
    /// at most, and of its end are known a crash and an exit that linked code has called.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let socket = std::os::unix::net::UnixStream::connect("/run/warm-executors")?;
    /// let executor = jittison::executor::ExecutorProcess::from_socket(socket, None)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The other process does not serve, or is of another version. With a sandbox, as
    /// [`start_sandboxed`](Self::start_sandboxed).
    pub fn from_socket(socket: UnixStream, sandbox: Option<&Sandbox>) -> Result<ExecutorProcess> {
        ExecutorProcess::over(Lane::new(socket), sandbox.map(Sandbox::rules), None)
            .map_err(|problem| Error::other(format!("no executor is at the other end of the socket: {problem}")))
    }

    /// Connects to an executor that [serves a network](super::serve_network), such as `jittison-executor --listen`. Code and data are copied
    /// to it. The executor ends with its last handle and session here, or with this process.
    ///
    /// Whoever knows the token runs code there. Messages are not encrypted; `connect_encrypted` of the feature `executor-tls` encrypts them.
    ///
    /// # Errors
    /// Nobody listens at the address, or no executor of this version, or it has another token or a controller already.
    pub fn connect(address: impl ToSocketAddrs, token: &str) -> Result<ExecutorProcess> {
        ExecutorProcess::connect_to_any(address, token, None, "jittison-executor --listen")
    }

    /// As [`connect`](Self::connect). `command` is what must run there.
    pub(super) fn connect_to_any(
        address: impl ToSocketAddrs,
        token: &str,
        encryption: Option<Encryption>,
        command: &str,
    ) -> Result<ExecutorProcess> {
        let unknown = |problem: String| {
            Error::other(format!("no executor was reached: {problem}; start `{command}` there, with the same token"))
        };
        let addresses = address.to_socket_addrs().map_err(|error| unknown(error.to_string()))?;
        let mut problem = "the name has no address".to_string();
        for address in addresses {
            let endpoint = Endpoint { address, token: token.as_bytes().to_vec(), encryption: encryption.clone() };
            match ExecutorProcess::connect_to(endpoint, None) {
                Ok(executor) => return Ok(executor),
                Err(error) => problem = error,
            }
        }
        Err(unknown(problem))
    }
}
