//! The process that runs the code of a session in another process.
//!
//! - Without arguments: `jittison run --executor` and `ExecutorProcess::start` start it.
//! - `--listen ADDRESS`: serves a controller that connects by a network (`ExecutorProcess::connect`), such as `--listen 127.0.0.1:7000`. The
//!   variable `JITTISON_EXECUTOR_TOKEN` has the token that the controller must know. `--listen stdin` takes the listening socket that is the
//!   standard input.
//! - `--certificate FILE --key FILE`, with `--listen`: encrypts the connections by TLS (`ExecutorProcess::connect_encrypted`). The files are
//!   in the PEM format. Needs the feature `executor-tls`.

use std::convert::Infallible;
use std::net::TcpListener;
use std::os::fd::AsFd as _;
use std::process::ExitCode;

#[cfg(feature = "executor-tls")]
use jittison::executor::{ServerCertificate, serve_network_encrypted};
use jittison::executor::{serve_network, serve_standard_input};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let served = match arguments[..] {
        [] => serve_standard_input().map_err(|error| error.to_string()),
        ["--listen", address, ref options @ ..] => match options {
            [] => listen(address, None),
            ["--certificate", certificate, "--key", key] | ["--key", key, "--certificate", certificate] => {
                listen(address, Some(Files { certificate, key }))
            }
            _ => Err(USAGE.to_string()),
        },
        _ => Err(USAGE.to_string()),
    };
    match served {
        Ok(never) => match never {},
        Err(error) => {
            eprintln!("jittison-executor: {error}");
            ExitCode::FAILURE
        }
    }
}

const USAGE: &str = "usage: jittison-executor [--listen ADDRESS [--certificate FILE --key FILE]]";

/// What proves that this is the right executor.
#[cfg_attr(not(feature = "executor-tls"), expect(dead_code))]
struct Files<'a> {
    certificate: &'a str,
    key: &'a str,
}

fn listen(address: &str, files: Option<Files<'_>>) -> Result<Infallible, String> {
    let certificate = files.as_ref().map(certificate).transpose()?;
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
    match certificate {
        None => serve_network(listener, &token).map_err(|error| error.to_string()),
        Some(certificate) => serve_encrypted(listener, &token, &certificate),
    }
}

#[cfg(feature = "executor-tls")]
fn certificate(files: &Files<'_>) -> Result<ServerCertificate, String> {
    let read = |path: &str| std::fs::read(path).map_err(|error| format!("{path}: {error}"));
    ServerCertificate::from_pem(&read(files.certificate)?, &read(files.key)?)
        .map_err(|error| format!("{}, {}: {error}", files.certificate, files.key))
}

#[cfg(feature = "executor-tls")]
fn serve_encrypted(listener: TcpListener, token: &str, certificate: &ServerCertificate) -> Result<Infallible, String> {
    serve_network_encrypted(listener, token, certificate).map_err(|error| error.to_string())
}

#[cfg(not(feature = "executor-tls"))]
fn certificate(_: &Files<'_>) -> Result<Infallible, String> {
    Err("`--certificate` and `--key` need a build with the feature `executor-tls`".to_string())
}

#[cfg(not(feature = "executor-tls"))]
fn serve_encrypted(_: TcpListener, _: &str, never: &Infallible) -> Result<Infallible, String> {
    match *never {}
}
