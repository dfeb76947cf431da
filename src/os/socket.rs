//! Sockets between two processes of this machine, which carry bytes and open descriptors.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

/// The greatest number of descriptors of one message.
pub(crate) const MAX_DESCRIPTORS: usize = 4;

/// Sends all bytes, and the descriptors with the first of them. A closed socket is an error, and no signal.
pub(crate) fn send(stream: &UnixStream, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut sent = 0;
    while sent < bytes.len() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let carried = if sent == 0 { descriptors } else { &[] };
        if !carried.is_empty() && !control.push(SendAncillaryMessage::ScmRights(carried)) {
            return Err(io::Error::other("too many descriptors for one message"));
        }
        match sendmsg(stream, &[IoSlice::new(&bytes[sent..])], &mut control, SendFlags::NOSIGNAL) {
            Ok(count) => sent += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Receives some bytes, and adds the descriptors that come with them to `descriptors`. Zero bytes: the peer has closed the
/// socket.
pub(crate) fn receive(stream: &UnixStream, bytes: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    loop {
        let mut control = RecvAncillaryBuffer::new(&mut space);
        match recvmsg(stream, &mut [IoSliceMut::new(bytes)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(message) => {
                for carried in control.drain() {
                    if let RecvAncillaryMessage::ScmRights(received) = carried {
                        descriptors.extend(received);
                    }
                }
                return Ok(message.bytes);
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Takes the descriptor of the standard input, where a parent has put a socket. Further reads of the standard input find the
/// end of the file, until [`set_standard_input`] is called.
///
/// # Errors
/// The standard input is no socket, or the kernel refuses a descriptor.
pub(crate) fn take_standard_input() -> io::Result<UnixStream> {
    let input = rustix::stdio::stdin();
    rustix::net::sockopt::socket_type(input)?;
    let socket = rustix::io::fcntl_dupfd_cloexec(input, 3)?;
    let nothing = std::fs::File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nothing)?;
    Ok(UnixStream::from(socket))
}

/// Makes a descriptor the standard input.
pub(crate) fn set_standard_input(descriptor: &OwnedFd) -> io::Result<()> {
    Ok(rustix::stdio::dup2_stdin(descriptor)?)
}
