//! A web server of tokio and serde, whose pages are edited while it runs:
//!
//! ```sh
//! cargo run --release --features cli -- watch --cargo --manifest-path examples/watch_rust/Cargo.toml
//! curl http://127.0.0.1:8000/
//! ```
//!
//! Change `pages.rs`, save it, and ask again. `main` never returns, so its loop stays as it is; what it calls follows. The first
//! argument is the port. `--tests --bin watch_rust` at the end of the first command runs the tests in place of the server.

mod pages;

use std::io::Result;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use pages::Book;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

#[tokio::main]
async fn main() -> Result<()> {
    let port = std::env::args().nth(1).and_then(|port| port.parse().ok()).unwrap_or(8000);
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    println!("http://{}/", listener.local_addr()?);
    let book = Arc::new(Book::default());
    let shared = book.clone();
    thread::spawn(move || {
        for second in 1.. {
            thread::sleep(Duration::from_secs(1));
            pages::tick(&shared, second);
        }
    });
    loop {
        let (stream, _) = listener.accept().await?;
        start(book.clone(), stream);
    }
}

/// Starts the task of a request. The function is not `async`, so each call starts the newest `serve`.
fn start(book: Arc<Book>, stream: TcpStream) {
    tokio::spawn(serve(book, stream));
}

/// Answers one request. A page that panics is an error of the server, and the others stay.
async fn serve(book: Arc<Book>, mut stream: TcpStream) -> Result<()> {
    let mut request = String::new();
    BufReader::new(&mut stream).read_line(&mut request).await?;
    let path = request.split_whitespace().nth(1).unwrap_or("/").to_string();
    let (status, body) = match tokio::spawn(pages::answer(book, path)).await {
        Ok(body) => ("200 OK", body),
        Err(_) => ("500 Internal Server Error", "this page panicked\n".to_string()),
    };
    let head = format!("HTTP/1.0 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all((head + &body).as_bytes()).await
}
