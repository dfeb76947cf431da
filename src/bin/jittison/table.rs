//! [`Table`]: rows of text in columns; and names that fit on a line.

use std::fmt::Write as _;

/// Rows under a heading. Columns are as wide as their widest cell; those whose heading is in `right` are flush right.
pub struct Table {
    heading: &'static [&'static str],
    right: &'static [&'static str],
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(heading: &'static [&'static str], right: &'static [&'static str]) -> Table {
        Table { heading, right, rows: Vec::new() }
    }

    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The table as lines, indented; `none` when there is no row.
    pub fn text(&self) -> String {
        if self.rows.is_empty() {
            return "  none\n".to_string();
        }
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
            cells.chain([self.heading[column].len()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.heading.len()).map(width).collect();
        let heading: Vec<String> = self.heading.iter().map(|cell| (*cell).to_string()).collect();
        let mut text = String::new();
        for row in std::iter::once(&heading).chain(&self.rows) {
            let mut line = String::new();
            for ((cell, width), heading) in row.iter().zip(&widths).zip(self.heading) {
                // Writing to a string does not fail.
                let _ = match self.right.contains(heading) {
                    true => write!(line, "  {cell:>width$}"),
                    false => write!(line, "  {cell:<width$}"),
                };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// A text on one line, whatever a name in a broken object consists of.
pub fn shown(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    line
}
