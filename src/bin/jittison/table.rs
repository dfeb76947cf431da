//! [`Table`]: rows of text in aligned columns.

use std::fmt::Write as _;

/// Rows under headings. A column is as wide as its widest cell. Columns whose heading is in `right` are aligned to the
/// right.
pub struct Table {
    headings: &'static [&'static str],
    right: &'static [&'static str],
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(headings: &'static [&'static str], right: &'static [&'static str]) -> Table {
        Table { headings, right, rows: Vec::new() }
    }

    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The table as indented lines; `none` if it has no row.
    pub fn text(&self) -> String {
        if self.rows.is_empty() {
            return "  none\n".to_string();
        }
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
            cells.chain([self.headings[column].len()]).max().unwrap_or(0).min(MAX_WIDTH)
        };
        let widths: Vec<usize> = (0..self.headings.len()).map(width).collect();
        let headings: Vec<String> = self.headings.iter().map(|cell| (*cell).to_string()).collect();
        let mut text = String::new();
        for row in std::iter::once(&headings).chain(&self.rows) {
            let mut line = String::new();
            for ((cell, width), heading) in row.iter().zip(&widths).zip(self.headings) {
                // Writing to a string cannot fail.
                let _ = match self.right.contains(heading) {
                    true => write!(line, "  {cell:>width$}"),
                    // The last column holds names, which may be long.
                    false if *heading == self.headings[self.headings.len() - 1] => write!(line, "  {cell}"),
                    false => write!(line, "  {cell:<width$}"),
                };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// The greatest width to which cells are padded, in characters. The names in an object may be longer.
const MAX_WIDTH: usize = 200;
