//! Standard input, output and error of an executor that is reached by a network, as those of its controller.
//!
//! Each stream is a connection of its own. In the executor its socket is the descriptor 0, 1 or 2, so linked code and its libraries read and write
//! it, and what they have written at the end of the process arrives. In the controller a thread copies each of them.

use std::io::{self, Read, Write};
use std::net::Shutdown;

use crate::error::{Error, Result};
use crate::executor::outputs::{Open, Outputs};
use crate::executor::process::ExecutorProcess;
use crate::sync::{Arc, spawn_for_code};
use crate::wire::StandardStream;

impl ExecutorProcess {
    /// Makes standard input, output and error of an executor that is reached by a network those of this process, as they are for an executor of
    /// this machine. Call it once, before code runs there: what was written before stays there.
    ///
    /// Threads of this process copy the bytes. One reads the standard input of this process from now on, so nobody else should. When the
    /// executor has ended, its output is complete after [`end`](Self::end), and after an error with
    /// [`ErrorKind::ExecutorEnded`](crate::ErrorKind::ExecutorEnded).
    ///
    /// # Errors
    /// The executor is one of this machine, which has the streams of its command. It has ended, or refuses. The streams were forwarded before.
    pub fn forward_streams(&self) -> Result<()> {
        let refused = |problem: String| {
            Error::other(format!("the streams of executor process {} were not forwarded: {problem}", self.id()))
        };
        if !self.0.is_far() {
            return Err(refused("an executor of this machine has the streams of its command".to_string()));
        }
        let outputs = Arc::new(Outputs::new(2));
        // Both are closed if this fails, so that nobody waits for them.
        let open = [Open::new(outputs.clone()), Open::new(outputs.clone())];
        if !self.0.set_outputs(outputs) {
            return Err(refused("they are already".to_string()));
        }
        let join = |stream| self.0.join_stream(stream).map_err(refused);
        let (input, output, error) =
            (join(StandardStream::Input)?, join(StandardStream::Output)?, join(StandardStream::Error)?);
        let start = |name: &str, body: Box<dyn FnOnce() + Send>| {
            spawn_for_code(name, body).map_err(|error| refused(format!("no thread is started: {error}")))
        };
        let [output_open, error_open] = open;
        let copy_output = move || copy(&output, io::stdout(), Some(output_open));
        let copy_error = move || copy(&error, io::stderr(), Some(error_open));
        let copy_input = move || {
            copy(io::stdin(), &input, None);
            // The executor reads the end of the file. It fails only if the executor has ended.
            let _ = input.shutdown(Shutdown::Write);
        };
        start("jittison-stdout", Box::new(copy_output))?;
        start("jittison-stderr", Box::new(copy_error))?;
        start("jittison-stdin", Box::new(copy_input))
    }
}

/// Copies until the end of the file or an error. Whoever reads sees each piece at once. `_open` counts it as closed then.
fn copy(mut from: impl Read, mut to: impl Write, _open: Option<Open>) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) if to.write_all(&buffer[..count]).and_then(|()| to.flush()).is_ok() => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            _ => return,
        }
    }
}
