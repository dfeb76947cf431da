//! [`ExecutorProcess::connect`]: the executors that listen at an address.

use std::net::ToSocketAddrs;

use crate::error::{Error, Result};
use crate::executor::endpoint::{Encryption, Endpoint};
use crate::executor::process::ExecutorProcess;

impl ExecutorProcess {
    /// Connects to an executor that [serves a network](super::serve_network), such as `jittison-executor --listen`. Code and data are copied
    /// to it. The executor ends with its last handle and session here, or with this process.
    ///
    /// Whoever knows the token runs code there. Messages are not encrypted; `connect_encrypted` of the feature `executor-tls` encrypts them.
    ///
    /// # Errors
    /// Nobody listens at the address, or no executor of this version and architecture, or it has another token or a controller already.
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
