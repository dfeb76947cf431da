//! Connections by TLS: [`ExecutorProcess::connect_encrypted`] and [`serve_network_encrypted`].
//!
//! 1. The controller connects. Both sides agree on keys (TLS 1.3).
//! 2. The controller checks that the certificate of the executor is for the name that it was told, and that a certificate that it trusts
//!    vouches for it. Nothing else was sent until then.
//! 3. The lane sends and receives through a [`TlsCipher`]. The first message of the controller has the token, as without encryption.
//!
//! A lane belongs to one thread, and so does its cipher: there are no further threads or sockets. When a process ends, the kernel closes
//! its connections, and the other side finds its lanes broken as without encryption. No side announces the end of a connection
//! (`close_notify`): a message is used only if all of it has arrived, so a connection that somebody cuts is like one whose process has
//! ended.
//!
//! The cryptography is that of `ring`, whatever the program has chosen for its own connections.

use std::convert::Infallible;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustls::client::ClientConnection;
use rustls::pki_types::pem::{Error as PemError, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::ServerConnection;
use rustls::version::TLS13;
use rustls::{CertificateError, ClientConfig, Connection, RootCertStore, ServerConfig};

use crate::error::{Error, Result};
use crate::executor::endpoint::Encryption;
use crate::executor::lane::{Broken, Cipher, Lane, stream_of};
use crate::executor::listen::serve_connections;
use crate::executor::process::ExecutorProcess;
use crate::os;
use crate::sync::Arc;

/// The certificates that a controller trusts: those of its executors, or of authorities that have signed them.
///
/// Other certificates of this machine are not trusted.
#[derive(Clone)]
pub struct TrustedCertificates(Arc<ClientConfig>);

impl TrustedCertificates {
    /// Reads one or more certificates in the PEM format.
    ///
    /// # Errors
    /// The text has no certificate, or one that cannot be read.
    pub fn from_pem(pem: &[u8]) -> Result<TrustedCertificates> {
        let mut trusted = RootCertStore::empty();
        for certificate in certificates(pem)? {
            trusted
                .add(certificate)
                .map_err(|error| Error::other(format!("a certificate cannot be trusted: {error}")))?;
        }
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| Error::other(format!("TLS cannot be used: {error}")))?
            .with_root_certificates(trusted)
            .with_no_client_auth();
        Ok(TrustedCertificates(Arc::new(config)))
    }
}

/// What proves to controllers that a process is the executor that they mean: a certificate, and the key that belongs to it.
#[derive(Clone)]
pub struct ServerCertificate(Arc<ServerConfig>);

impl ServerCertificate {
    /// Reads a certificate and its private key in the PEM format. Certificates of authorities between it and the one that controllers
    /// trust follow the first one.
    ///
    /// # Errors
    /// One of the texts has no certificate or no private key, or the key is encrypted or belongs to another certificate.
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<ServerCertificate> {
        let chain = certificates(certificate)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| match error {
            PemError::NoItemsFound => Error::other(
                "the key: the text has no private key in PEM, or an encrypted one; give one without a password",
            ),
            error => Error::other(format!("the key: {error}")),
        })?;
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| Error::other(format!("TLS cannot be used: {error}")))?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|error| Error::other(format!("the certificate and the key do not fit: {error}")))?;
        Ok(ServerCertificate(Arc::new(config)))
    }
}

impl ExecutorProcess {
    /// As [`connect`](Self::connect), to an executor that [encrypts](serve_network_encrypted) its connections, such as
    /// `jittison-executor --listen ADDRESS --certificate FILE --key FILE`.
    ///
    /// `server_name` is the name or the address of the machine as the certificate of the executor has it. The token is sent after the
    /// certificate was checked.
    ///
    /// # Errors
    /// As [`connect`](Self::connect). Also if the executor does not encrypt its connections, if its certificate is for another name, out of
    /// date, or not trusted, or if `server_name` is no name.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), jittison::Error> {
    /// use jittison::executor::{ExecutorProcess, TrustedCertificates};
    ///
    /// let trusted = TrustedCertificates::from_pem(&std::fs::read("executor.pem").unwrap())?;
    /// let executor = ExecutorProcess::connect_encrypted("lab:7000", "lab", "0123456789abcdef", &trusted)?;
    /// # Ok(()) }
    /// ```
    pub fn connect_encrypted(
        address: impl ToSocketAddrs,
        server_name: &str,
        token: &str,
        trusted: &TrustedCertificates,
    ) -> Result<ExecutorProcess> {
        let name = ServerName::try_from(server_name.to_string())
            .map_err(|error| Error::other(format!("`{server_name}` is no name of a machine: {error}")))?;
        let config = trusted.0.clone();
        let encryption: Encryption = Arc::new(move |stream, deadline| {
            let connection = ClientConnection::new(config.clone(), name.clone());
            let connection = connection.map_err(|error| Broken::Encryption(error.to_string()))?;
            lane(connection.into(), stream, deadline)
        });
        let command = "jittison-executor --listen --certificate --key";
        ExecutorProcess::connect_to_any(address, token, Some(encryption), command)
    }
}

/// As [`serve_network`](super::serve_network). Connections are encrypted, and other ones are closed.
///
/// Controllers that trust the certificate ([`ExecutorProcess::connect_encrypted`]) know that they speak with this process, and nobody
/// between both reads or changes what they send. This process knows its controller by the token.
///
/// # Errors
/// As [`serve_network`](super::serve_network).
pub fn serve_network_encrypted(
    listener: TcpListener,
    token: &str,
    certificate: &ServerCertificate,
) -> Result<Infallible> {
    let config = certificate.0.clone();
    let encryption: Encryption = Arc::new(move |stream, deadline| {
        let connection = ServerConnection::new(config.clone());
        let connection = connection.map_err(|error| Broken::Encryption(error.to_string()))?;
        lane(connection.into(), stream, deadline)
    });
    serve_connections(listener, token, Some(encryption))
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    let all: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match all {
        Ok(all) if all.is_empty() => Err(Error::other("the text has no certificate in PEM")),
        all => all.map_err(|error| Error::other(format!("a certificate cannot be read: {error}"))),
    }
}

/// Agrees on keys, and makes a lane of the connection.
fn lane(connection: Connection, stream: TcpStream, deadline: Instant) -> std::result::Result<Lane, Broken> {
    let stream = stream_of(stream)?;
    let mut cipher = TlsCipher { connection };
    let deadline = Some(deadline);
    loop {
        cipher.flush(&stream, deadline)?;
        if !cipher.connection.is_handshaking() {
            return Ok(Lane::encrypted(stream, Box::new(cipher)));
        }
        if cipher.receive_records(&stream, deadline)? == 0 {
            return Err(Broken::Closed);
        }
    }
}

/// The keys of one connection, and what is on its way.
#[derive(Debug)]
struct TlsCipher {
    connection: Connection,
}

impl Cipher for TlsCipher {
    fn send(
        &mut self,
        stream: &UnixStream,
        mut bytes: &[u8],
        deadline: Option<Instant>,
    ) -> std::result::Result<(), Broken> {
        while !bytes.is_empty() {
            // It takes some records' worth, so a long message is not encrypted as a whole before its first byte is sent.
            let taken = self.connection.writer().write(bytes)?;
            bytes = &bytes[taken..];
            self.flush(stream, deadline)?;
        }
        Ok(())
    }

    fn receive(
        &mut self,
        stream: &UnixStream,
        bytes: &mut [u8],
        deadline: Option<Instant>,
    ) -> std::result::Result<usize, Broken> {
        loop {
            match self.connection.reader().read(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                received => return Ok(received?),
            }
            // Nothing that was decrypted is left, so there is room.
            if self.receive_records(stream, deadline)? == 0 {
                return Ok(0);
            }
        }
    }
}

impl TlsCipher {
    /// Sends what is encrypted.
    fn flush(&mut self, stream: &UnixStream, deadline: Option<Instant>) -> std::result::Result<(), Broken> {
        let mut records = Vec::new();
        while self.connection.wants_write() {
            self.connection.write_tls(&mut records)?;
        }
        os::send(stream, &records, &[], deadline).map_err(Broken::of_socket)
    }

    /// Receives some bytes, and decrypts the records that are complete. Returns how many bytes there were. Zero: the other side has
    /// closed the connection.
    fn receive_records(
        &mut self,
        stream: &UnixStream,
        deadline: Option<Instant>,
    ) -> std::result::Result<usize, Broken> {
        let was_handshaking = self.connection.is_handshaking();
        let received = self.connection.read_tls(&mut Socket { stream, deadline }).map_err(Broken::of_socket)?;
        match self.connection.process_new_packets() {
            Ok(_) => Ok(received),
            Err(error) => {
                // The other side gets the reason, if it still listens.
                let _ = self.flush(stream, Some(Instant::now() + TIME_TO_COMPLAIN));
                Err(Broken::Encryption(if was_handshaking { disagreement(&error) } else { interference(&error) }))
            }
        }
    }
}

/// How long a connection that is broken may take to accept the reason.
const TIME_TO_COMPLAIN: Duration = Duration::from_secs(1);

/// A socket that waits until a deadline.
struct Socket<'a> {
    stream: &'a UnixStream,
    deadline: Option<Instant>,
}

impl Read for Socket<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        // Descriptors do not come by a network.
        os::receive(self.stream, bytes, &mut Vec::new(), self.deadline)
    }
}

/// Why there are no keys.
fn disagreement(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidMessage(_) => "the other side does not encrypt the connection, and this one does".to_string(),
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            "its certificate is not trusted: it is none of the trusted ones, and none of them has signed it; trust the certificate of this \
             executor if you know that it is the right one"
                .to_string()
        }
        rustls::Error::InvalidCertificate(problem) => {
            let text = format!("its certificate is not accepted: {problem}");
            // Certificates that `openssl req -x509` makes without further options are such.
            if text.contains("CaUsedAsEndEntity") {
                return format!("{text}; it is that of an authority, make one with `basicConstraints=CA:FALSE`");
            }
            text
        }
        error => format!("both sides do not agree on keys: {error}"),
    }
}

/// Why a connection is broken that had keys.
fn interference(error: &rustls::Error) -> String {
    match error {
        rustls::Error::AlertReceived(alert) => format!("the other side has ended the encrypted connection: {alert:?}"),
        error => format!("somebody has changed the encrypted bytes, or a side is defective: {error}"),
    }
}

impl fmt::Debug for TrustedCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("trusted certificates")
    }
}

impl fmt::Debug for ServerCertificate {
    // Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("certificate of a server")
    }
}
