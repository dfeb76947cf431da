//! [`Program`]: the child process of a screen, its events and its output.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, PipeReader, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;

/// A `watch` that runs in a process group of its own. Dropping it hangs up the program.
pub struct Program {
    child: Child,
    pid: Option<Pid>,
    /// The other end of the terminal to which the program writes.
    terminal: OwnedFd,
    messages: Receiver<Message>,
    is_over: bool,
}

/// What a program tells its screen.
pub enum Message {
    /// A line of the event stream.
    Event(String),
    /// What the program has written.
    Output(Vec<u8>),
}

impl Program {
    /// Starts this command again with the same arguments. It writes its output to a terminal of so many columns and rows.
    pub fn start(columns: u16, rows: u16) -> io::Result<Program> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let terminal = rustix::pty::openpt(flags)?;
        rustix::pty::grantpt(&terminal)?;
        rustix::pty::unlockpt(&terminal)?;
        resize(&terminal, columns, rows)?;
        let output = rustix::pty::ioctl_tiocgptpeer(&terminal, flags)?;
        let (events, events_of_child) = io::pipe()?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(arguments_of_child(std::env::args_os().skip(1))).stdout(output).stderr(events_of_child);
        if io::IsTerminal::is_terminal(&io::stdin()) {
            // The screen reads the keys.
            command.stdin(Stdio::null());
        }
        let child = std::os::unix::process::CommandExt::process_group(&mut command, 0).spawn()?;
        // The ends of the child are closed here, so that the readers see when all others are closed.
        drop(command);
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        // Bounded, so that a program that writes faster than the screen reads has to wait.
        let (sender, messages) = sync_channel(64);
        let readable = File::from(terminal.try_clone()?);
        let program = Program { child, pid, terminal, messages, is_over: false };
        let to_screen = sender.clone();
        thread::Builder::new().name("events".to_string()).spawn(move || read_events(events, &to_screen))?;
        thread::Builder::new().name("output".to_string()).spawn(move || read_output(readable, &sender))?;
        Ok(program)
    }

    /// The next message, if there is one within `time`.
    pub fn message(&self, time: Duration) -> Option<Message> {
        match self.messages.recv_timeout(time) {
            Ok(message) => Some(message),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                // Both streams were closed, and the program runs on.
                if !self.is_over {
                    thread::sleep(time);
                }
                None
            }
        }
    }

    /// How the program has ended. `None` while it runs.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        let status = self.child.try_wait()?;
        self.is_over |= status.is_some();
        Ok(status)
    }

    /// The messages from before the end. Processes that the program started may keep its streams open, so this ends after a while.
    pub fn last_messages(&self) -> Vec<Message> {
        let started = Instant::now();
        let mut last = Vec::new();
        while let Some(left) = MAX_DRAIN.checked_sub(started.elapsed()) {
            match self.messages.recv_timeout(left) {
                Ok(message) => last.push(message),
                Err(_) => break,
            }
        }
        last
    }

    /// Sends a signal to the program and its processes.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid.filter(|_| !self.is_over) {
            // Fails if it has just ended.
            let _ = rustix::process::kill_process_group(pid, signal);
        }
    }

    pub fn resize(&self, columns: u16, rows: u16) {
        // The program writes on with the old size.
        let _ = resize(&self.terminal, columns, rows);
        self.signal(Signal::WINCH);
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.signal(Signal::HUP);
    }
}

fn resize(terminal: &OwnedFd, columns: u16, rows: u16) -> io::Result<()> {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    Ok(rustix::termios::tcsetwinsize(terminal, size)?)
}

/// The arguments with which this command was called, for the child.
fn arguments_of_child<A: AsRef<std::ffi::OsStr> + From<&'static str>>(
    arguments: impl Iterator<Item = A>,
) -> impl Iterator<Item = A> {
    let mut is_of_program = false;
    arguments.map(move |argument| {
        is_of_program |= argument.as_ref() == "--";
        let is_option = !is_of_program && argument.as_ref() == "--tui";
        if is_option { A::from("--screen-events") } else { argument }
    })
}

fn read_events(events: PipeReader, messages: &SyncSender<Message>) {
    for line in BufReader::new(events).split(b'\n') {
        let Ok(line) = line else { return };
        if messages.send(Message::Event(String::from_utf8_lossy(&line).into_owned())).is_err() {
            return;
        }
    }
}

fn read_output(mut terminal: File, messages: &SyncSender<Message>) {
    let mut bytes = vec![0; 1 << 14];
    loop {
        match terminal.read(&mut bytes) {
            Ok(count) if count > 0 => {
                if messages.send(Message::Output(bytes[..count].to_vec())).is_err() {
                    return;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // A terminal fails when the last process that writes to it has closed it.
            _ => return,
        }
    }
}

/// In the child: takes the stream for events. Standard error is the terminal of standard output from here on. If the process that
/// draws the screen dies, the program is hung up.
pub fn take_events() -> Result<File, String> {
    let failed = |error: io::Error| format!("the screen cannot be reached: {error}");
    let events = io::stderr().as_fd().try_clone_to_owned().map_err(failed)?;
    rustix::stdio::dup2_stderr(io::stdout()).map_err(|error| failed(error.into()))?;
    rustix::process::set_parent_process_death_signal(Some(Signal::HUP)).map_err(|error| failed(error.into()))?;
    Ok(File::from(events))
}

/// How long messages are read after the program has ended.
const MAX_DRAIN: Duration = Duration::from_millis(300);
