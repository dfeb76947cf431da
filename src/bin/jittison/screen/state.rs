//! [`Screen`]: what is shown. Events, output and keys change it; `draw.rs` reads it.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ratatui::layout::Rect;
use ratatui::text::Line;
use serde_json::Value;

use crate::output::escape_controls;
use crate::screen::layout::{Layout, Pane};
use crate::screen::output_lines::OutputLines;

/// What is shown.
#[derive(Debug)]
pub struct Screen {
    pub objects: BTreeMap<String, ObjectRow>,
    pub memory: Memory,
    pub error: Option<LastError>,
    pub chosen: Pane,
    pub is_enlarged: bool,
    /// How often the program was interrupted.
    pub interrupts: usize,
    /// Whether the program was started.
    pub is_started: bool,
    events: VecDeque<String>,
    output: OutputLines,
    /// For each pane, the lines by which it is scrolled: from its top, or from its end if it [shows the end](Pane::shows_end).
    scrolled: [usize; 5],
}

/// An object that is followed.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct ObjectRow {
    pub version: u64,
    pub functions: u64,
    pub code_bytes: u64,
    pub reload: Option<LastReload>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct LastReload {
    /// Since the screen was opened.
    pub at: Duration,
    /// In milliseconds: from the save until it was live, build, read, link, commit.
    pub times: [Option<f64>; 5],
}

/// What is in memory.
#[derive(Debug, Default)]
pub struct Memory {
    /// Lines for the newest versions that were replaced, each with what keeps it.
    pub replaced: Vec<String>,
    pub replaced_count: u64,
    pub replaced_bytes: u64,
    /// For each kind of memory: its name; bytes that are requested, reserved, resident.
    pub pools: Vec<(String, [u64; 3])>,
    pub resident: u64,
    pub records: u64,
}

#[derive(Debug)]
pub struct LastError {
    pub title: String,
    pub text: String,
    /// Whether something was reloaded since.
    pub is_past: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    NextPane,
    PreviousPane,
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Enlarge,
    Interrupt,
}

impl Default for Screen {
    fn default() -> Screen {
        Screen {
            objects: BTreeMap::new(),
            memory: Memory::default(),
            error: None,
            chosen: Pane::Objects,
            is_enlarged: false,
            interrupts: 0,
            is_started: false,
            events: VecDeque::new(),
            output: OutputLines::default(),
            scrolled: [0; 5],
        }
    }
}

impl Screen {
    /// Takes what the program has written.
    pub fn add_output(&mut self, bytes: &[u8]) {
        self.output.add(bytes);
    }

    /// Takes a line of the event stream. `at` is the time since the screen was opened.
    pub fn add_event_line(&mut self, line: &str, at: Duration) {
        match serde_json::from_str::<Value>(line) {
            Ok(event) => self.add_event(&event, at),
            // A message from before the events began.
            Err(_) => self.output.add(format!("{line}\n").as_bytes()),
        }
    }

    fn add_event(&mut self, event: &Value, at: Duration) {
        match text(&event["event"]).as_str() {
            "memory" => return self.note_memory(event),
            "watching" => self.is_started = true,
            "reloaded" => self.note_reload(event, at),
            "unchanged" => self.note_past_error(),
            "refused" => self.note_error(&names_of(&event["objects"]), text(&event["error"])),
            "build_failed" => {
                self.note_error(&format!("the build failed: {}", text(&event["status"])), text(&event["output"]));
            }
            _ => {}
        }
        if self.events.len() == MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(format!("{} {}", clock(at), escape_controls(&text(&event["text"]))));
    }

    fn note_memory(&mut self, event: &Value) {
        for object in list(&event["objects"]) {
            let row = self.objects.entry(text(&object["object"])).or_default();
            row.version = number(&object["version"]);
            row.functions = number(&object["functions"]);
            row.code_bytes = number(&object["code_bytes"]);
        }
        let pool =
            |pool: &Value| (text(&pool["kind"]), ["requested", "reserved", "resident"].map(|what| number(&pool[what])));
        let mut replaced: Vec<String> = list(&event["replaced"]).iter().map(replaced_line).collect();
        let replaced_count = number(&event["replaced_in_all"]);
        match replaced_count.saturating_sub(replaced.len() as u64) {
            0 => {}
            older => replaced.push(format!("and {older} older ones")),
        }
        self.memory = Memory {
            replaced,
            replaced_count,
            replaced_bytes: number(&event["replaced_bytes"]),
            pools: list(&event["pools"]).iter().map(pool).collect(),
            resident: number(&event["resident"]),
            records: number(&event["records"]),
        };
    }

    fn note_reload(&mut self, event: &Value, at: Duration) {
        let times = &event["milliseconds"];
        let times = ["total", "build", "read", "link", "commit"].map(|step| times[step].as_f64());
        let row = self.objects.entry(text(&event["object"])).or_default();
        row.version = number(&event["version"]);
        row.code_bytes = number(&event["code_bytes"]);
        row.reload = Some(LastReload { at, times });
        self.note_past_error();
    }

    fn note_error(&mut self, title: &str, mut text: String) {
        if let Some((end, _)) = text.char_indices().nth(MAX_ERROR_CHARACTERS) {
            text.truncate(end);
        }
        self.error = Some(LastError { title: escape_controls(title), text, is_past: false });
        self.scrolled[Pane::Error as usize] = 0;
    }

    fn note_past_error(&mut self) {
        self.error.iter_mut().for_each(|error| error.is_past = true);
    }

    /// Takes a key. `area` is that of the screen.
    pub fn press(&mut self, key: Key, area: Rect) {
        match key {
            Key::NextPane => self.chosen = self.chosen.later(1),
            Key::PreviousPane => self.chosen = self.chosen.later(Pane::ALL.len() - 1),
            Key::Enlarge => self.is_enlarged = !self.is_enlarged,
            Key::Interrupt => self.interrupts += 1,
            Key::Up | Key::Down | Key::PageUp | Key::PageDown | Key::Home | Key::End => self.scroll(key, area),
        }
    }

    fn scroll(&mut self, key: Key, area: Rect) {
        let (width, height) = self.layout(area).inner(self.chosen);
        let hidden = self.lines(self.chosen, width).len().saturating_sub(height);
        let from_top = self.first_line(self.chosen, hidden);
        let from_top = match key {
            Key::Up => from_top.saturating_sub(1),
            Key::Down => from_top + 1,
            Key::PageUp => from_top.saturating_sub(height.max(1)),
            Key::PageDown => from_top + height.max(1),
            Key::Home => 0,
            _ => hidden,
        };
        let from_top = from_top.min(hidden);
        self.scrolled[self.chosen as usize] = if self.chosen.shows_end() { hidden - from_top } else { from_top };
    }

    pub fn layout(&self, area: Rect) -> Layout {
        Layout::new(area, self.chosen, self.is_enlarged)
    }

    /// The first line of a pane that is shown, if so many do not fit.
    pub fn first_line(&self, pane: Pane, hidden: usize) -> usize {
        let scrolled = self.scrolled[pane as usize].min(hidden);
        if pane.shows_end() { hidden - scrolled } else { scrolled }
    }

    /// The lines of a pane, wrapped to a width. Of the table of objects, the names.
    pub fn lines(&self, pane: Pane, width: usize) -> Vec<String> {
        match pane {
            Pane::Objects => self.objects.keys().cloned().collect(),
            Pane::Replaced => wrap(self.memory.replaced.iter().cloned(), width),
            Pane::Events => wrap(self.events.iter().cloned(), width),
            Pane::Error => {
                let text = self.error.as_ref().map_or("", |error| &error.text);
                wrap(OutputLines::of(text).lines(), width)
            }
            Pane::Output => wrap(self.output.lines(), width),
        }
    }

    /// The last lines that the program has written.
    pub fn last_output(&self, count: usize) -> Vec<String> {
        let lines: Vec<String> = self.output.lines().collect();
        lines[lines.len().saturating_sub(count)..].to_vec()
    }
}

/// `step.o version 3, 412 bytes: ` and what keeps it.
fn replaced_line(version: &Value) -> String {
    let holders: Vec<String> = list(&version["held_by"]).iter().map(text).collect();
    let holders = if holders.is_empty() { "nothing; it is being freed".to_string() } else { holders.join("; ") };
    let (object, number, bytes) = (text(&version["object"]), &version["version"], &version["code_bytes"]);
    escape_controls(&format!("{object} version {number}, {bytes} bytes: {holders}"))
}

fn names_of(objects: &Value) -> String {
    let names: Vec<String> = list(objects).iter().map(text).collect();
    if names.is_empty() { "refused".to_string() } else { format!("refused: {}", names.join(", ")) }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_string()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Minutes and seconds.
pub fn clock(time: Duration) -> String {
    format!("{}:{:02}", time.as_secs() / 60, time.as_secs() % 60)
}

/// Splits lines that are wider than `width` cells, behind a space if there is one.
fn wrap(lines: impl Iterator<Item = String>, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut wrapped = Vec::new();
    for line in lines {
        let mut rest = line.as_str();
        while width_of(rest) > width {
            let fits = fitting(rest, width);
            let end = rest[..fits].rfind(' ').map_or(fits, |space| space + 1);
            wrapped.push(rest[..end].to_string());
            rest = &rest[end..];
        }
        wrapped.push(rest.to_string());
    }
    wrapped
}

/// The bytes of a text that fit into `width` cells: at least one character.
fn fitting(text: &str, width: usize) -> usize {
    let mut used = 0;
    for (start, character) in text.char_indices() {
        used += width_of(character.encode_utf8(&mut [0; 4]));
        if used > width && start > 0 {
            return start;
        }
    }
    text.len()
}

fn width_of(text: &str) -> usize {
    Line::raw(text).width()
}

/// The most events that are kept.
pub const MAX_EVENTS: usize = 500;
/// The most characters of an error that are kept.
pub const MAX_ERROR_CHARACTERS: usize = 200_000;
