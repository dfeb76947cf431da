//! The process that runs the code of a session in another process.
//!
//! - Without arguments: `jittison run --executor` and `ExecutorProcess::start` start it.
//! - `--listen ADDRESS`: serves a controller that connects by a network (`ExecutorProcess::connect`), such as `--listen 127.0.0.1:7000`. The
//!   variable `JITTISON_EXECUTOR_TOKEN` has the token that the controller must know. `--listen stdin` takes the listening socket that is the
//!   standard input.

use std::convert::Infallible;
use std::net::TcpListener;
use std::os::fd::AsFd as _;
use std::process::ExitCode;

use jittison::executor::{serve_network, serve_standard_input};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let served = match arguments[..] {
        [] => serve_standard_input().map_err(|error| error.to_string()),
        ["--listen", address] => listen(address),
        _ => Err("usage: jittison-executor [--listen ADDRESS]".to_string()),
    };
    match served {
        Ok(never) => match never {},
        Err(error) => {
            eprintln!("jittison-executor: {error}");
            ExitCode::FAILURE
        }
    }
}

fn listen(address: &str) -> Result<Infallible, String> {
    let token = std::env::var("JITTISON_EXECUTOR_TOKEN")
        .map_err(|_| "`JITTISON_EXECUTOR_TOKEN` is not set: the token that the controller must know".to_string())?;
    let listener = match address {
        "stdin" => std::io::stdin().as_fd().try_clone_to_owned().map(TcpListener::from),
        address => TcpListener::bind(address),
    };
    let listener = listener.map_err(|error| format!("{address}: {error}"))?;
    if address != "stdin" {
        let place = listener.local_addr().map_or_else(|_| address.to_string(), |place| place.to_string());
        eprintln!("jittison-executor: listens at {place}");
    }
    serve_network(listener, &token).map_err(|error| error.to_string())
}
