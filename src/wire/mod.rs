//! What the process that links and the process that runs say to each other: messages as values, and values as bytes.
//!
//! The room is pure: it opens no socket and knows no other room. `executor` sends the bytes.
//!
//! # A frame
//!
//! | bytes | content |
//! |---|---|
//! | 4 | length of the rest, little-endian, at most 256 MiB |
//! | n | one message in the format of the crate `postcard` (its specification 1.0); what a call passes is a byte array in it (`passed.rs`) |
//!
//! The first frame of a connection is the [`greeting`], which is text and stays as it is in every version. It has the number
//! of the [`PROTOCOL`], and both sides refuse another one.
//!
//! A short message goes through a [`Mailbox`] in a shared page instead, without its length field (`mailbox.rs`).
//!
//! A crash of the executor is in a [`CrashRecord`] of another shared page (`crash_record.rs`). By a network, it is a message.
//!
//! # Messages
//!
//! | from | type | content |
//! |---|---|---|
//! | the process that links | [`ToExecutor`] | a [`Request`], or the answer to a question |
//! | the process that runs | [`ToController`] | an [`Answer`], a [`Question`], or how the process ends |
//!
//! Requests and questions nest: whoever waits for an answer first answers what the other side asks meanwhile. So each lane has
//! at most one message under way in each direction.
//!
//! # What is checked
//! Bytes from the other side are never trusted to be well-formed: a length beyond the limit, an unknown message, and bytes
//! after a message are errors. Addresses and numbers are plain integers here; the receiver checks what it does with them.

#[cfg(feature = "executor")]
mod crash_record;
#[cfg(feature = "executor")]
mod frame;
mod mailbox;
#[cfg(feature = "executor")]
mod message;
#[cfg(feature = "executor")]
mod passed;

#[cfg(feature = "executor")]
pub(crate) use crash_record::{Crash, CrashRecord};
#[cfg(all(feature = "executor", feature = "unstable"))]
pub(crate) use frame::check_bytes;
#[cfg(feature = "executor")]
pub(crate) use frame::{BadFrame, CRASH_FRAME, Side, decode, encode, encode_crash, frame_length, greeting};
#[cfg(loom)]
pub use mailbox::{Arrival, Mailbox};
#[cfg(all(feature = "executor", not(loom)))]
pub(crate) use mailbox::{Arrival, Mailbox};
#[cfg(feature = "executor")]
pub(crate) use message::{
    Answer, Change, Facts, FoundByView, FoundInProcess, LocatedByView, PlaceOfWindow, Question, QuestionAnswer,
    Request, Role, SandboxRules, StandardStream, StaticOffset, ToController, ToExecutor, WindowPlacement, WindowShape,
};
#[cfg(feature = "executor")]
pub(crate) use passed::{PassedArguments, PassedResult};
