//! [`Lane`]: one socket between a thread of the controller and a thread of the executor.
//!
//! Messages nest on a lane (`src/wire/mod.rs`), so at most one is under way in each direction. The methods take `&self`, so that
//! a thread that waits for an answer can use its lane for what it is asked meanwhile.

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::net::TcpStream;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::executor::lane_page::{LanePage, Received};
use crate::os;
use crate::wire::{self, BadFrame, Side, StandardStream};

/// One end of a lane.
#[derive(Debug)]
pub(super) struct Lane {
    stream: UnixStream,
    /// Only lanes that the controller opens have mailboxes: an executor could shorten the file of a page that it made.
    mailboxes: Option<LanePage>,
    /// `None`: bytes go as they are. Not shared by threads, so a lane is not, either.
    cipher: Option<RefCell<Box<dyn Cipher>>>,
}

/// Encrypts what a lane sends, and decrypts what it receives.
pub(super) trait Cipher: fmt::Debug + Send {
    /// Sends all bytes. If the other side does not take them before the deadline, the lane is broken.
    fn send(&mut self, stream: &UnixStream, bytes: &[u8], deadline: Option<Instant>) -> Result<(), Broken>;

    /// Receives some bytes. Zero: the other side has closed the connection.
    fn receive(&mut self, stream: &UnixStream, bytes: &mut [u8], deadline: Option<Instant>) -> Result<usize, Broken>;
}

/// The socket of a lane that another thread may be using: to close it, and for last messages, which are not encrypted.
pub(super) struct Closer {
    stream: UnixStream,
    is_plain: bool,
}

/// Why a lane cannot be used any more.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    /// The other side has closed its end, or its process has ended.
    #[error("the other process has closed the connection")]
    Closed,
    /// Nothing arrived before the deadline.
    #[error("the other process did not answer in time")]
    Late,
    /// The kernel refused.
    #[error("the connection failed: {0}")]
    Refused(#[from] io::Error),
    /// The other side broke the protocol.
    #[error("the other process sent what the protocol does not allow: {0}")]
    Nonsense(String),
    /// One side encrypts and the other one does not, or the other side is not whom it must be.
    #[error("{0}")]
    Encryption(String),
}

impl From<BadFrame> for Broken {
    fn from(bad: BadFrame) -> Broken {
        Broken::Nonsense(bad.to_string())
    }
}

impl Broken {
    /// Why a socket does not send or receive.
    pub(super) fn of_socket(error: io::Error) -> Broken {
        match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Broken::Closed,
            io::ErrorKind::TimedOut => Broken::Late,
            _ => Broken::Refused(error),
        }
    }
}

impl Closer {
    /// Ends all waiting on both ends.
    pub(super) fn close(&self) {
        // It fails only if the lane is closed already.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }

    /// Sends a frame without waiting. Nothing is sent on an encrypted connection: only the lane has the keys. A signal handler may call it.
    pub(super) fn send_now(&self, frame: &[u8]) {
        if self.is_plain {
            // It fails if the other side has gone, or does not receive.
            let _ = os::send(&self.stream, frame, &[], Some(Instant::now()));
        }
    }

    /// A lane that receives what [`send_now`](Self::send_now) has sent. `None` for an encrypted connection.
    pub(super) fn lane(&self) -> Option<Lane> {
        self.stream.try_clone().ok().filter(|_| self.is_plain).map(Lane::new)
    }
}

impl Lane {
    pub(super) fn new(stream: UnixStream) -> Lane {
        Lane { stream, mailboxes: None, cipher: None }
    }

    /// A connection by a network, on which both sides have agreed on keys.
    #[cfg(feature = "executor-tls")]
    pub(super) fn encrypted(stream: UnixStream, cipher: Box<dyn Cipher>) -> Lane {
        Lane { stream, mailboxes: None, cipher: Some(RefCell::new(cipher)) }
    }

    /// The controller's end of a lane with mailboxes, and what the executor gets of it: a socket and the page.
    pub(super) fn with_mailboxes() -> io::Result<(Lane, [OwnedFd; 2])> {
        let (stream, other) = UnixStream::pair()?;
        let (mailboxes, page) = LanePage::create()?;
        Ok((Lane { stream, mailboxes: Some(mailboxes), cipher: None }, [other.into(), page.into()]))
    }

    /// The executor's end of such a lane.
    pub(super) fn from_descriptors([socket, page]: [OwnedFd; 2]) -> io::Result<Lane> {
        Ok(Lane { mailboxes: Some(LanePage::open(&page.into())?), ..Lane::new(socket.into()) })
    }

    /// A connection by a network.
    pub(super) fn of_stream(stream: TcpStream) -> io::Result<Lane> {
        stream_of(stream).map(Lane::new)
    }

    /// The socket, which has bytes without frames from now on.
    ///
    /// # Errors
    /// The lane is encrypted.
    pub(super) fn into_stream(self) -> Result<UnixStream, String> {
        if self.cipher.is_none() { Ok(self.stream) } else { Err(NOT_ENCRYPTED.to_string()) }
    }

    /// Makes the socket a standard stream of this process.
    ///
    /// # Errors
    /// The lane is encrypted, or what the kernel refuses.
    pub(super) fn become_stream(&self, stream: StandardStream) -> io::Result<()> {
        if self.cipher.is_some() {
            return Err(io::Error::other(NOT_ENCRYPTED));
        }
        match stream {
            StandardStream::Input => os::set_standard_input(&self.stream),
            StandardStream::Output => os::set_standard_output(&self.stream),
            StandardStream::Error => os::set_standard_error(&self.stream),
        }
    }

    /// Two ends.
    pub(super) fn pair() -> io::Result<(Lane, OwnedFd)> {
        let (own, other) = UnixStream::pair()?;
        Ok((Lane::new(own), other.into()))
    }

    /// What closes it.
    pub(super) fn closer(&self) -> io::Result<Closer> {
        Ok(Closer { stream: self.stream.try_clone()?, is_plain: self.cipher.is_none() })
    }

    /// Sends a message, with descriptors.
    pub(super) fn send(&self, message: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> Result<(), Broken> {
        self.send_frame(&wire::encode(message)?, descriptors, None)
    }

    /// Receives a message, and the descriptors that come with it.
    pub(super) fn receive<M: DeserializeOwned>(&self) -> Result<(M, Vec<OwnedFd>), Broken> {
        self.receive_until(None)
    }

    /// As [`receive`](Self::receive). If the message is not complete at the deadline, the lane is broken.
    pub(super) fn receive_until<M: DeserializeOwned>(
        &self,
        deadline: Option<Instant>,
    ) -> Result<(M, Vec<OwnedFd>), Broken> {
        let (bytes, descriptors) = self.receive_frame(deadline)?;
        Ok((wire::decode(&bytes)?, descriptors))
    }

    /// As [`receive_until`](Self::receive_until), for a small message of somebody who has not proved anything yet.
    pub(super) fn receive_small<M: DeserializeOwned>(&self, deadline: Option<Instant>) -> Result<M, Broken> {
        Ok(wire::decode(&self.receive_by_socket(deadline, SMALL)?.0)?)
    }

    /// Sends the first frame, with descriptors.
    pub(super) fn greet(&self, own: Side, descriptors: &[BorrowedFd<'_>]) -> Result<(), Broken> {
        let text = wire::greeting(own);
        let length = (text.len() as u32).to_le_bytes();
        self.send_frame(&[&length, text.as_bytes()].concat(), descriptors, None)
    }

    /// Receives the first frame of the other side. The error of a lane that is broken, or the text of another version.
    pub(super) fn receive_greeting(&self, other: Side, deadline: Option<Instant>) -> Result<Vec<OwnedFd>, Broken> {
        let (bytes, descriptors) = self.receive_by_socket(deadline, SMALL)?;
        let expected = wire::greeting(other);
        if bytes == expected.as_bytes() {
            return Ok(descriptors);
        }
        let theirs = String::from_utf8_lossy(&bytes[..bytes.len().min(100)]).into_owned();
        Err(Broken::Nonsense(format!("it says `{theirs}` and not `{expected}`")))
    }

    /// Sends an encoded message, with descriptors. If the other side does not take it before the deadline, the lane is broken.
    pub(super) fn send_frame(
        &self,
        frame: &[u8],
        descriptors: &[BorrowedFd<'_>],
        deadline: Option<Instant>,
    ) -> Result<(), Broken> {
        if self
            .mailboxes
            .as_ref()
            .is_some_and(|mailboxes| mailboxes.send(descriptors.is_empty().then_some(&frame[4..])))
        {
            return Ok(());
        }
        match &self.cipher {
            // By a network there are no descriptors.
            Some(cipher) => cipher.borrow_mut().send(&self.stream, frame, deadline),
            None => os::send(&self.stream, frame, descriptors, deadline).map_err(Broken::of_socket),
        }
    }

    fn receive_frame(&self, deadline: Option<Instant>) -> Result<(Vec<u8>, Vec<OwnedFd>), Broken> {
        let Some(mailboxes) = &self.mailboxes else { return self.receive_by_socket(deadline, usize::MAX) };
        match mailboxes.receive(deadline, || self.receive_by_socket(deadline, usize::MAX)) {
            Received::Here(bytes) => Ok((bytes, Vec::new())),
            Received::BySocket(received) => received,
            Received::Nonsense => Err(Broken::Nonsense("a state of a mailbox that there is not".to_string())),
        }
    }

    fn receive_by_socket(&self, deadline: Option<Instant>, most: usize) -> Result<(Vec<u8>, Vec<OwnedFd>), Broken> {
        let mut descriptors = Vec::new();
        let mut field = [0; 4];
        self.fill(&mut field, &mut descriptors, deadline)?;
        let mut left = wire::frame_length(field)?;
        if left > most {
            if field[..2] == TLS_ALERT {
                return Err(Broken::Encryption("it encrypts its connections, and this side does not".to_string()));
            }
            return Err(Broken::Nonsense(format!("a first message of {left} bytes")));
        }
        let mut bytes = Vec::new();
        // In pieces, so that a length alone allocates no memory.
        while left > 0 {
            let start = bytes.len();
            bytes.resize(start + left.min(PIECE), 0);
            self.fill(&mut bytes[start..], &mut descriptors, deadline)?;
            left -= bytes.len() - start;
        }
        if descriptors.len() > os::MAX_DESCRIPTORS {
            return Err(Broken::Nonsense(format!("{} descriptors in one message", descriptors.len())));
        }
        Ok((bytes, descriptors))
    }

    /// Fills a buffer.
    fn fill(
        &self,
        mut bytes: &mut [u8],
        descriptors: &mut Vec<OwnedFd>,
        deadline: Option<Instant>,
    ) -> Result<(), Broken> {
        while !bytes.is_empty() {
            let received = match &self.cipher {
                Some(cipher) => cipher.borrow_mut().receive(&self.stream, bytes, deadline)?,
                None => os::receive(&self.stream, bytes, descriptors, deadline).map_err(Broken::of_socket)?,
            };
            if received == 0 {
                return Err(Broken::Closed);
            }
            bytes = &mut bytes[received..];
        }
        Ok(())
    }
}

/// A connection by a network as a socket that sends and receives in the same way.
pub(super) fn stream_of(stream: TcpStream) -> io::Result<UnixStream> {
    stream.set_nodelay(true)?;
    Ok(OwnedFd::from(stream).into())
}

const NOT_ENCRYPTED: &str = "standard streams are sockets of the kernel, which does not encrypt them";

/// How a TLS server begins its answer to bytes that are no TLS: an alert, of version 3.x.
const TLS_ALERT: [u8; 2] = [21, 3];

/// Bytes that are received at a time.
const PIECE: usize = 1 << 20;

/// The most bytes of a greeting, and of what proves the right to go on.
const SMALL: usize = 4096;
