//! [`OutputLines`]: the last lines of a text that was written for a terminal, without its control sequences.

use std::collections::VecDeque;

/// The last lines of a text. Colours and cursor movements are left out; a carriage return starts the line again.
#[derive(Debug, Default)]
pub struct OutputLines {
    lines: VecDeque<String>,
    /// The bytes of the line that has no end yet.
    open: Vec<u8>,
    /// The next byte of a text replaces the open line.
    is_returned: bool,
    sequence: Sequence,
}

/// The control sequence in which the text is.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Sequence {
    #[default]
    None,
    /// After the escape character.
    Escape,
    /// After `ESC [`, until a final byte.
    Control,
    /// After `ESC ]` and the like, until BEL or `ESC \`.
    Text,
}

impl OutputLines {
    /// The lines of a whole text.
    pub fn of(text: &str) -> OutputLines {
        let mut lines = OutputLines::default();
        lines.add(text.as_bytes());
        lines
    }

    /// Adds bytes. They may end inside a line, a character or a control sequence.
    pub fn add(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.add_byte(*byte));
    }

    /// The lines, with the one that has no end yet.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let open = (!self.open.is_empty()).then(|| text_of(&self.open));
        self.lines.iter().cloned().chain(open)
    }

    fn add_byte(&mut self, byte: u8) {
        match (self.sequence, byte) {
            (Sequence::None, ESCAPE) | (Sequence::Text, ESCAPE) => self.sequence = Sequence::Escape,
            (Sequence::None, _) => self.add_plain(byte),
            (Sequence::Escape, b'[') => self.sequence = Sequence::Control,
            (Sequence::Escape, b']' | b'P' | b'X' | b'^' | b'_') => self.sequence = Sequence::Text,
            // Intermediate bytes, for example of `ESC ( B`.
            (Sequence::Escape, 0x20..=0x2f) => {}
            (Sequence::Control, 0x40..=0x7e) | (Sequence::Escape, _) | (Sequence::Text, BELL) => {
                self.sequence = Sequence::None;
            }
            (Sequence::Control | Sequence::Text, _) => {}
        }
    }

    fn add_plain(&mut self, byte: u8) {
        match byte {
            b'\n' => self.end_line(),
            b'\r' => self.is_returned = true,
            b'\t' => {
                self.restart_if_returned();
                let width = TAB - self.open.len() % TAB;
                self.open.extend(std::iter::repeat_n(b' ', width));
            }
            BACKSPACE => drop(self.open.pop()),
            0..0x20 | 0x7f => {}
            _ => {
                self.restart_if_returned();
                self.open.push(byte);
            }
        }
        if self.open.len() >= MAX_LINE_BYTES {
            self.end_line();
        }
    }

    fn restart_if_returned(&mut self) {
        if std::mem::take(&mut self.is_returned) {
            self.open.clear();
        }
    }

    fn end_line(&mut self) {
        self.is_returned = false;
        if self.lines.len() == MAX_LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(text_of(&self.open));
        self.open.clear();
    }
}

/// The control characters among C1, which UTF-8 may spell, are left out.
fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().filter(|character| !character.is_control()).collect()
}

/// The most lines that are kept.
pub const MAX_LINES: usize = 2000;
/// A longer line is split.
pub const MAX_LINE_BYTES: usize = 4096;
const TAB: usize = 8;
const ESCAPE: u8 = 0x1b;
const BELL: u8 = 0x07;
const BACKSPACE: u8 = 0x08;
