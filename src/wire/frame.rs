//! Frames: messages as bytes.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The version of the messages. It grows whenever a message changes.
const PROTOCOL: u32 = 7;

/// The greatest length of a frame in bytes, without its length field.
const MAX_FRAME: u32 = 256 << 20;

/// Why bytes are no frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadFrame {
    /// The length field is beyond the limit.
    #[error("a message of {0} bytes; the limit is {MAX_FRAME}")]
    TooLong(u64),
    /// The bytes are no message of the expected type.
    #[error("the bytes are no message: {0}")]
    NoMessage(String),
    /// There are bytes after the message.
    #[error("{0} bytes follow a message")]
    Surplus(usize),
}

/// The frame of a message.
///
/// # Errors
/// [`BadFrame::TooLong`].
pub(crate) fn encode(message: &impl Serialize) -> Result<Vec<u8>, BadFrame> {
    // Most messages fit, and are allocated once.
    let mut frame = Vec::with_capacity(128);
    frame.extend([0; 4]);
    let frame = postcard::to_extend(message, frame).map_err(|error| BadFrame::NoMessage(error.to_string()))?;
    with_length(frame)
}

/// Fills in the length of a frame.
fn with_length(mut frame: Vec<u8>) -> Result<Vec<u8>, BadFrame> {
    let length = (frame.len() - 4) as u64;
    let short = u32::try_from(length).ok().filter(|length| *length <= MAX_FRAME).ok_or(BadFrame::TooLong(length))?;
    frame[..4].copy_from_slice(&short.to_le_bytes());
    Ok(frame)
}

/// The frame of [`ToController::Crashed`](crate::wire::ToController::Crashed), in `buffer`. It allocates nothing: a signal handler calls it.
/// `None`: there are too many frames. 48 fit.
pub(crate) fn encode_crash<'a>(
    buffer: &'a mut [u8; CRASH_FRAME],
    signal: u32,
    address: u64,
    frames: &[u64],
) -> Option<&'a [u8]> {
    /// As [`ToController`](crate::wire::ToController): a variant is its number, and a slice is as a vector.
    #[derive(Serialize)]
    enum Borrowed<'a> {
        #[allow(dead_code)]
        Ask,
        #[allow(dead_code)]
        Answer,
        Crashed(BorrowedCrash<'a>),
    }
    #[derive(Serialize)]
    struct BorrowedCrash<'a> {
        signal: u32,
        address: u64,
        frames: &'a [u64],
    }
    let crash = Borrowed::Crashed(BorrowedCrash { signal, address, frames });
    let length = postcard::to_slice(&crash, &mut buffer[4..]).ok()?.len();
    buffer[..4].copy_from_slice(&(length as u32).to_le_bytes());
    Some(&buffer[..4 + length])
}

/// The most bytes of the frame of a crash.
pub(crate) const CRASH_FRAME: usize = 512;

/// The number of bytes after the length field.
///
/// # Errors
/// [`BadFrame::TooLong`].
pub(crate) fn frame_length(field: [u8; 4]) -> Result<usize, BadFrame> {
    let length = u32::from_le_bytes(field);
    if length > MAX_FRAME { Err(BadFrame::TooLong(length.into())) } else { Ok(length as usize) }
}

/// The message in the bytes after a length field.
///
/// # Errors
/// [`BadFrame::NoMessage`], [`BadFrame::Surplus`].
pub(crate) fn decode<M: DeserializeOwned>(bytes: &[u8]) -> Result<M, BadFrame> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Ok(message),
        Ok((_, rest)) => Err(BadFrame::Surplus(rest.len())),
        Err(error) => Err(BadFrame::NoMessage(error.to_string())),
    }
}

/// Decodes bytes as a message of each side, and checks that what is a message is the same after it was encoded again.
#[cfg(feature = "unstable")]
pub(crate) fn check_bytes(bytes: &[u8]) {
    use crate::wire::{ToController, ToExecutor};
    fn check<M: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
        if let Ok(message) = decode::<M>(bytes) {
            let frame = encode(&message).expect("a message of a frame fits into a frame");
            assert!(frame.len() <= bytes.len() + 4, "the encoding is the shortest one");
            assert_eq!(decode::<M>(&frame[4..]).as_ref(), Ok(&message));
        }
    }
    check::<ToExecutor>(bytes);
    check::<ToController>(bytes);
}

/// A side of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Controller,
    Executor,
}

/// The first frame of a side, without its length field. The other side is of this version if its frame is equal. It may be of another
/// architecture, which is one of its [`Facts`](crate::wire::Facts).
pub(crate) fn greeting(side: Side) -> String {
    let side = if side == Side::Controller { "controller" } else { "executor" };
    format!("jittison {side}, protocol {PROTOCOL}, version {}", env!("CARGO_PKG_VERSION"))
}

#[cfg(all(test, not(loom)))]
mod tests {
    #[cfg(feature = "unstable")]
    use proptest::prelude::*;

    use super::*;
    use crate::wire::{
        Answer, Crash, PassedArguments, PassedResult, Question, Request, SandboxRules, StaticOffset, ToController,
        ToExecutor,
    };

    #[test]
    fn a_message_comes_out_as_it_went_in() {
        let arguments = PassedArguments { integers: [1; 8], stack: vec![0, 1], result_bytes: 24, ..Default::default() };
        let messages = [
            ToExecutor::Ask(Request::FindSymbols { names: vec!["puts".into()] }),
            ToExecutor::Ask(Request::Call { address: u64::MAX, arguments: Box::new(arguments) }),
            ToExecutor::Ask(Request::Start {
                sandbox: Some(SandboxRules {
                    readable: vec![b"/lib".to_vec()],
                    writable: Vec::new(),
                    memory: Some(1 << 40),
                    processor_time: None,
                    open_files: Some(0),
                    namespaces: true,
                }),
            }),
            ToExecutor::Ask(Request::LoadThreadLocals {
                image: vec![0, 255],
                size: 9,
                align: 16,
                offset: StaticOffset::Wanted,
            }),
        ];
        for message in messages {
            let frame = encode(&message).unwrap();
            assert_eq!(frame_length(frame[..4].try_into().unwrap()).unwrap(), frame.len() - 4);
            assert_eq!(decode::<ToExecutor>(&frame[4..]).unwrap(), message);
        }
        let returned = ToController::Answer(Answer::Returned(PassedResult {
            integers: [1, 2],
            vectors: [3; 4],
            memory: vec![4; 24],
        }));
        assert_eq!(decode::<ToController>(&encode(&returned).unwrap()[4..]).unwrap(), returned);
        let question = ToController::Ask(Question::ExitHook { hook: 3, status: Some(-1) });
        assert_eq!(decode::<ToController>(&encode(&question).unwrap()[4..]).unwrap(), question);
    }

    #[test]
    fn a_crash_is_encoded_without_memory_as_any_message() {
        let crash = |frames| Crash { signal: 11, address: u64::MAX, frames };
        for frames in [vec![], vec![0, 1, 300], vec![u64::MAX; 48]] {
            let mut buffer = [0; CRASH_FRAME];
            let frame = encode_crash(&mut buffer, 11, u64::MAX, &frames).unwrap();
            assert_eq!(frame, encode(&ToController::Crashed(crash(frames))).unwrap());
        }
        assert_eq!(encode_crash(&mut [0; CRASH_FRAME], 11, 0, &[u64::MAX; 60]), None);
    }

    #[test]
    fn a_length_beyond_the_limit_and_bytes_after_a_message_are_refused() {
        assert_eq!(frame_length(MAX_FRAME.to_le_bytes()), Ok(MAX_FRAME as usize));
        assert_eq!(frame_length((MAX_FRAME + 1).to_le_bytes()), Err(BadFrame::TooLong(u64::from(MAX_FRAME) + 1)));
        let mut frame = encode(&ToController::Answer(Answer::Done)).unwrap();
        frame.push(0);
        assert_eq!(decode::<ToController>(&frame[4..]), Err(BadFrame::Surplus(1)));
        assert!(matches!(decode::<ToController>(&[]), Err(BadFrame::NoMessage(_))));
        assert!(matches!(decode::<ToController>(&[250, 250]), Err(BadFrame::NoMessage(_))));
    }

    #[test]
    fn the_two_greetings_differ_and_have_the_version() {
        let [controller, executor] = [Side::Controller, Side::Executor].map(greeting);
        assert_eq!(controller.replace("controller", "executor"), executor);
        assert_ne!(controller, executor);
        assert!(
            controller.contains(&format!("protocol {PROTOCOL}")) && controller.contains(env!("CARGO_PKG_VERSION")),
            "{controller}"
        );
    }

    #[cfg(feature = "unstable")]
    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            check_bytes(&bytes);
        }
    }
}
