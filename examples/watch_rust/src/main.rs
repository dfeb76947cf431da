//! A web server on threads, whose pages are edited while it runs:
//!
//! ```sh
//! cargo run --release --features cli -- watch --cargo --manifest-path examples/watch_rust/Cargo.toml
//! curl http://127.0.0.1:8000/
//! ```
//!
//! Change `pages.rs`, save it, and ask again. This file never returns, so what stands in its loops stays as it is; what they call
//! follows. The first argument is the port.

mod pages;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

fn main() -> std::io::Result<()> {
    let port = std::env::args().nth(1).and_then(|port| port.parse().ok()).unwrap_or(8000);
    let listener = TcpListener::bind(("127.0.0.1", port))?;
    println!("http://{}/", listener.local_addr()?);
    thread::spawn(|| {
        for second in 1.. {
            thread::sleep(Duration::from_secs(1));
            pages::tick(second);
        }
    });
    let site = pages::site();
    thread::scope(|scope| {
        for stream in listener.incoming() {
            scope.spawn(|| stream.and_then(|stream| serve(&site, stream)));
        }
    });
    Ok(())
}

/// Answers one request. A page that panics is an error of the server, and the others stay.
fn serve(site: &pages::Site, mut stream: TcpStream) -> std::io::Result<()> {
    let mut request = String::new();
    BufReader::new(&stream).read_line(&mut request)?;
    let path = request.split_whitespace().nth(1).unwrap_or("/");
    let page = catch_unwind(AssertUnwindSafe(|| pages::answer(site, path)));
    let (status, body) = match page {
        Ok(body) => ("200 OK", body),
        Err(_) => ("500 Internal Server Error", "this page panicked\n".to_string()),
    };
    write!(stream, "HTTP/1.0 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}
