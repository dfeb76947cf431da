//! The loop of the screen: messages, keys and signals change the [`Screen`], which is then drawn.

use std::io::{self, IsTerminal as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::Rect;
use rustix::process::{Resource, Rlimit, Signal};

use crate::output::print_error;
use crate::screen::draw::draw;
use crate::screen::program::{Message, Program};
use crate::screen::state::{Key, Screen};

/// Runs this command again as a child, and shows its events until it ends. Does not return then: this process ends as the child did.
///
/// # Errors
/// Standard output is no terminal, the terminal cannot be controlled, or the child cannot be started.
pub fn supervise() -> Result<(), String> {
    if !io::stdout().is_terminal() {
        return Err("--tui needs a terminal, and standard output is none; leave it out, or use --json".to_string());
    }
    let signals = Signals::catch().map_err(|error| format!("signals cannot be caught: {error}"))?;
    let opened = ratatui::try_init();
    let mut restore = Restore { is_over: false };
    let mut screen = Screen::default();
    let status = opened.and_then(|mut terminal| show(&mut terminal, &signals, &mut screen));
    restore.now();
    let status = status.map_err(|error| format!("--tui: the terminal cannot be used: {error}"))?;
    print_end(&screen);
    end_as(status)
}

/// Restores the terminal when it is dropped. A panic restores it before it prints its message: `ratatui` installs a hook.
struct Restore {
    is_over: bool,
}

impl Restore {
    fn now(&mut self) {
        if !std::mem::replace(&mut self.is_over, true) {
            // The terminal may be gone.
            let _ = ratatui::try_restore();
        }
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        self.now();
    }
}

/// Shows the program until it ends.
fn show(terminal: &mut DefaultTerminal, signals: &Signals, screen: &mut Screen) -> io::Result<ExitStatus> {
    let started = Instant::now();
    let size = terminal.size()?;
    let mut program = Program::start(size.width.saturating_sub(2), size.height)?;
    loop {
        terminal.draw(|frame| draw(frame, screen))?;
        // Nothing is drawn while nothing changes.
        while !take_keys(terminal, &program, screen)? && !take_messages(&program, screen, started) {
            signals.pass_to(&program);
            if let Some(status) = program.ended()? {
                program.last_messages().into_iter().for_each(|message| take(message, screen, started));
                return Ok(status);
            }
        }
        signals.pass_to(&program);
    }
}

/// Returns whether there were some.
fn take_keys(terminal: &DefaultTerminal, program: &Program, screen: &mut Screen) -> io::Result<bool> {
    let mut is_changed = false;
    while event::poll(Duration::ZERO)? {
        let event = event::read()?;
        is_changed = true;
        match event {
            Event::Key(key) => {
                let Some(key) = key_of(&key) else { continue };
                screen.press(key, Rect::from((ratatui::layout::Position::ORIGIN, terminal.size()?)));
                if key == Key::Interrupt {
                    program.signal(interrupt(screen.interrupts));
                }
            }
            Event::Resize(columns, rows) => program.resize(columns.saturating_sub(2), rows),
            _ => {}
        }
    }
    Ok(is_changed)
}

/// The signal of the first, second and a later time.
fn interrupt(times: usize) -> Signal {
    match times {
        0 | 1 => Signal::INT,
        2 => Signal::TERM,
        _ => Signal::KILL,
    }
}

/// The meaning of a key.
pub fn key_of(event: &KeyEvent) -> Option<Key> {
    if event.kind == KeyEventKind::Release {
        return None;
    }
    Some(match event.code {
        KeyCode::Char('q') => Key::Interrupt,
        KeyCode::Char('c') if event.modifiers.contains(KeyModifiers::CONTROL) => Key::Interrupt,
        KeyCode::Tab => Key::NextPane,
        KeyCode::BackTab => Key::PreviousPane,
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Enter => Key::Enlarge,
        _ => return None,
    })
}

/// Waits for messages a short time, and takes those that come in a row. Returns whether there were some.
fn take_messages(program: &Program, screen: &mut Screen, started: Instant) -> bool {
    let since = Instant::now();
    let mut next = program.message(FRAME);
    let is_changed = next.is_some();
    while let Some(message) = next {
        take(message, screen, started);
        next = FRAME.checked_sub(since.elapsed()).and_then(|_| program.message(Duration::ZERO));
    }
    is_changed
}

fn take(message: Message, screen: &mut Screen, started: Instant) {
    match message {
        Message::Event(line) => screen.add_event_line(&line, started.elapsed()),
        Message::Output(bytes) => screen.add_output(&bytes),
    }
}

/// The last output of the program, which the screen has covered. If the program was not started, also why.
fn print_end(screen: &Screen) {
    let mut text = screen.last_output(LINES_AT_END).join("\n");
    if !text.is_empty() {
        text.push('\n');
    }
    // The terminal may be gone.
    let _ = io::stdout().write_all(text.as_bytes());
    if let Some(error) = screen.error.as_ref().filter(|_| !screen.is_started) {
        print_error(&error.title);
        let _ = io::stderr().write_all(error.text.as_bytes());
    }
}

/// Ends this process as the child ended.
fn end_as(status: ExitStatus) -> ! {
    if let Some(signal) = status.signal() {
        // The child has dumped its core, if it was to.
        let _ = rustix::process::setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
        // Does not return for a signal that ends a process. Others, such as real-time signals, are unknown to it.
        let _ = signal_hook::low_level::emulate_default_handler(signal);
        std::process::exit(128 + signal);
    }
    std::process::exit(status.code().unwrap_or(i32::from(crate::output::FAILED)))
}

/// Signals that would end this process. The program gets them, and this process ends with it.
struct Signals([(Signal, Arc<AtomicBool>); 4]);

impl Signals {
    fn catch() -> io::Result<Signals> {
        let signals = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT].map(|signal| (signal, Arc::default()));
        for (signal, is_caught) in &signals {
            signal_hook::flag::register(signal.as_raw(), Arc::clone(is_caught))?;
        }
        Ok(Signals(signals))
    }

    fn pass_to(&self, program: &Program) {
        for (signal, is_caught) in &self.0 {
            if is_caught.swap(false, Ordering::Relaxed) {
                program.signal(*signal);
            }
        }
    }
}

/// How long the loop waits for messages, and takes them, between two looks at the keys.
const FRAME: Duration = Duration::from_millis(30);
/// The lines of output that stay on the terminal after the end.
const LINES_AT_END: usize = 20;
