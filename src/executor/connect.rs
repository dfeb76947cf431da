//! [`ExecutorProcess::connect`]: the executors that listen at an address.

use std::net::ToSocketAddrs;

use crate::error::{Error, Result};
use crate::executor::endpoint::Endpoint;
use crate::executor::process::ExecutorProcess;

impl ExecutorProcess {
    /// Connects to an executor that [serves a network](super::serve_network), such as `jittison-executor --listen`. Code and data are copied
    /// to it. The executor ends with its last handle and session here, or with this process.
    ///
    /// Whoever knows the token runs code there. Messages are not encrypted.
    ///
    /// # Errors
    /// Nobody listens at the address, or no executor of this version and architecture, or it has another token or a controller already.
    pub fn connect(address: impl ToSocketAddrs, token: &str) -> Result<ExecutorProcess> {
        let unknown = |problem: String| {
            Error::other(format!(
                "no executor was reached: {problem}; start `jittison-executor --listen` there, with the same token"
            ))
        };
        let addresses = address.to_socket_addrs().map_err(|error| unknown(error.to_string()))?;
        let mut problem = "the name has no address".to_string();
        for address in addresses {
            match ExecutorProcess::connect_to(Endpoint { address, token: token.as_bytes().to_vec() }, None) {
                Ok(executor) => return Ok(executor),
                Err(error) => problem = error,
            }
        }
        Err(unknown(problem))
    }
}
