//! `watch --tui`: a full screen for a program that is watched.
//!
//! ```text
//!   this process                                   child process: `watch --screen-events`
//!   keys ──────────────► signals ────────────────► program
//!   Screen ◄── events, one line of JSON each ───── follower
//!     │    ◄── output ──── pseudo-terminal ◄────── standard output and standard error of the program
//!     └─► draw ─► terminal
//! ```
//!
//! The process that draws runs no linked code. So it restores the terminal however the program ends: by `exit`, by a panic or by any
//! signal. It then ends with the same status, or by the same signal.
//!
//! | file | holds |
//! |---|---|
//! | `output_lines.rs` | [`OutputLines`](output_lines::OutputLines): the last lines of a text that was written for a terminal |
//! | `state.rs` | [`Screen`](state::Screen): what is shown; takes events, output and keys |
//! | `layout.rs` | where the panes are |
//! | `draw.rs` | draws a [`Screen`](state::Screen), and does nothing else |
//! | `program.rs` | [`Program`](program::Program): the child process, its events and its output |
//! | `supervise.rs` | the loop that connects all of these |
//!
//! A file imports files above it in this table.

mod draw;
mod layout;
mod output_lines;
mod program;
mod state;
mod supervise;
#[cfg(test)]
mod tests;

pub use program::take_events;
pub use supervise::supervise;
