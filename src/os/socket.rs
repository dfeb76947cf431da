//! Sockets between two processes of this machine, which carry bytes and open descriptors.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

/// The greatest number of descriptors of one message.
pub(crate) const MAX_DESCRIPTORS: usize = 4;

/// Sends all bytes, and the descriptors with the first of them. A closed socket is an error, and no signal. If the peer does not
/// take all bytes before `deadline`, the error is `TimedOut`, and a part may be sent.
pub(crate) fn send(
    stream: &UnixStream,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
    deadline: Option<Instant>,
) -> io::Result<()> {
    let flags = if deadline.is_some() { SendFlags::NOSIGNAL | SendFlags::DONTWAIT } else { SendFlags::NOSIGNAL };
    let mut sent = 0;
    while sent < bytes.len() {
        wait_until(stream, PollFlags::OUT, deadline)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let carried = if sent == 0 { descriptors } else { &[] };
        if !carried.is_empty() && !control.push(SendAncillaryMessage::ScmRights(carried)) {
            return Err(io::Error::other("too many descriptors for one message"));
        }
        match sendmsg(stream, &[IoSlice::new(&bytes[sent..])], &mut control, flags) {
            Ok(count) => sent += count,
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Receives some bytes, and adds the descriptors that come with them to `descriptors`. Zero bytes: the peer has closed the
/// socket. If nothing arrives before `deadline`, the error is `TimedOut`.
pub(crate) fn receive(
    stream: &UnixStream,
    bytes: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
    deadline: Option<Instant>,
) -> io::Result<usize> {
    wait_until(stream, PollFlags::IN, deadline)?;
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

/// Waits until a socket is ready or its peer has closed it. Without a deadline, the system call that follows waits.
///
/// # Errors
/// `TimedOut`: the deadline is over.
fn wait_until(stream: &UnixStream, ready: PollFlags, deadline: Option<Instant>) -> io::Result<()> {
    let Some(deadline) = deadline else { return Ok(()) };
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        // A time that does not fit is longer than any wait.
        let left = Timespec::try_from(left).ok();
        match poll(&mut [PollFd::new(stream, ready)], left.as_ref()) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => return Ok(()),
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
pub(crate) fn set_standard_input(descriptor: impl AsFd) -> io::Result<()> {
    Ok(rustix::stdio::dup2_stdin(descriptor)?)
}

/// Makes a descriptor the standard output.
pub(crate) fn set_standard_output(descriptor: impl AsFd) -> io::Result<()> {
    Ok(rustix::stdio::dup2_stdout(descriptor)?)
}

/// Makes a descriptor the standard error.
pub(crate) fn set_standard_error(descriptor: impl AsFd) -> io::Result<()> {
    Ok(rustix::stdio::dup2_stderr(descriptor)?)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn neither_a_full_nor_an_empty_socket_is_waited_for_after_the_deadline() {
        let (own, other) = UnixStream::pair().unwrap();
        let soon = || Some(Instant::now() + Duration::from_millis(20));
        let full = send(&own, &vec![1; 1 << 24], &[], soon()).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::TimedOut);
        let empty = receive(&own, &mut [0], &mut Vec::new(), soon()).unwrap_err();
        assert_eq!(empty.kind(), io::ErrorKind::TimedOut);
        // What has arrived is received, even late.
        assert_eq!(receive(&other, &mut [0; 8], &mut Vec::new(), Some(Instant::now())).unwrap(), 8);
    }

    #[test]
    fn a_message_larger_than_the_socket_is_sent_before_the_deadline() {
        let (own, other) = UnixStream::pair().unwrap();
        let reader = std::thread::spawn(move || std::io::Read::read_to_end(&mut &other, &mut Vec::new()).unwrap());
        send(&own, &vec![1; 1 << 24], &[], Some(Instant::now() + Duration::from_secs(60))).unwrap();
        drop(own);
        assert_eq!(reader.join().unwrap(), 1 << 24);
    }
}
