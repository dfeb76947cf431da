//! Draws a [`Screen`].

use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, BorderType, Cell, Paragraph, Row, Table};

use crate::output::escape_controls;
use crate::screen::layout::Pane;
use crate::screen::state::{ObjectRow, Screen, clock};

/// Draws the whole screen.
pub fn draw(frame: &mut Frame<'_>, screen: &Screen) {
    let layout = screen.layout(frame.area());
    for pane in Pane::ALL {
        let area = layout.area(pane);
        if area.is_empty() {
            continue;
        }
        let (width, height) = layout.inner(pane);
        let lines = screen.lines(pane, width);
        let hidden = lines.len().saturating_sub(height);
        let first = screen.first_line(pane, hidden);
        let shown = first..lines.len().min(first + height);
        let mut block = block(title(screen, pane), screen.chosen == pane);
        if hidden > 0 {
            let position = format!(" {}-{} of {} ", shown.start + 1, shown.end, lines.len());
            block = block.title_bottom(Line::from(position).right_aligned());
        }
        let lines = &lines[shown];
        match pane {
            Pane::Objects => frame.render_widget(object_table(screen, lines, width).block(block), area),
            _ => frame.render_widget(paragraph(screen, pane, lines).block(block), area),
        }
    }
    draw_memory(frame, screen, layout.memory);
    let keys = Paragraph::new(keys_line(screen)).style(Style::new().add_modifier(Modifier::REVERSED));
    frame.render_widget(keys, layout.keys);
}

fn block(title: String, is_chosen: bool) -> Block<'static> {
    let block = Block::bordered().title(format!(" {title} "));
    match is_chosen {
        true => block.border_type(BorderType::Thick).title_style(Style::new().add_modifier(Modifier::BOLD)),
        false => block,
    }
}

fn title(screen: &Screen, pane: Pane) -> String {
    match pane {
        Pane::Objects => format!("objects: {}", screen.objects.len()),
        Pane::Replaced => {
            let (count, bytes) = (screen.memory.replaced_count, screen.memory.replaced_bytes);
            format!("replaced versions in memory: {count}, {} of code", size(bytes))
        }
        Pane::Events => "events".to_string(),
        Pane::Error => match &screen.error {
            None => "no error".to_string(),
            Some(error) if error.is_past => format!("past error, {}", error.title),
            Some(error) => format!("error, {}", error.title),
        },
        Pane::Output => "output of the program".to_string(),
    }
}

fn paragraph(screen: &Screen, pane: Pane, lines: &[String]) -> Paragraph<'static> {
    let lines: Vec<Line<'static>> = lines.iter().cloned().map(Line::from).collect();
    let is_error = pane == Pane::Error && screen.error.as_ref().is_some_and(|error| !error.is_past);
    Paragraph::new(lines).style(if is_error { Style::new().fg(Color::Red) } else { Style::new() })
}

fn object_table(screen: &Screen, names: &[String], width: usize) -> Table<'static> {
    let others: usize = HEADER.iter().skip(1).map(|(_, width)| usize::from(*width) + 1).sum();
    let name_width = width.saturating_sub(others);
    let rows: Vec<Row<'static>> =
        names.iter().filter_map(|name| Some(object_row(name, name_width, screen.objects.get(name)?))).collect();
    let header = HEADER.map(|(title, width)| if width == 0 { Cell::from(title) } else { right(title.to_string()) });
    let widths = HEADER.map(|(_, width)| if width == 0 { Constraint::Fill(1) } else { Constraint::Length(width) });
    Table::new(rows, widths).header(Row::new(header).style(Style::new().add_modifier(Modifier::BOLD)))
}

fn object_row(name: &str, name_width: usize, row: &ObjectRow) -> Row<'static> {
    let numbers = [row.version, row.functions, row.code_bytes].map(|number| right(number.to_string()));
    let at = right(row.reload.as_ref().map_or("-".to_string(), |reload| clock(reload.at)));
    let times = row.reload.as_ref().map_or([None; 5], |reload| reload.times);
    let times = times.map(|time| right(time.map_or("-".to_string(), milliseconds)));
    let name = Cell::from(end_of(&escape_controls(name), name_width));
    Row::new(std::iter::once(name).chain(numbers).chain([at]).chain(times))
}

/// The end of a name that is longer than so many characters: it tells objects of one folder apart.
fn end_of(name: &str, characters: usize) -> String {
    let too_many = name.chars().count().saturating_sub(characters);
    match too_many {
        0 => name.to_string(),
        _ => std::iter::once('…').chain(name.chars().skip(too_many + 1)).collect(),
    }
}

fn right(text: String) -> Cell<'static> {
    Cell::from(Line::from(text).right_aligned())
}

/// Two decimals, if they fit.
fn milliseconds(time: f64) -> String {
    if time < 1000.0 { format!("{time:.2}") } else { format!("{time:.0}") }
}

fn draw_memory(frame: &mut Frame<'_>, screen: &Screen, area: Rect) {
    if area.is_empty() {
        return;
    }
    let memory = &screen.memory;
    let header = ["", "used", "reserved", "resident"].map(|title| right(title.to_string()));
    let pools = memory.pools.iter().map(|(kind, bytes)| {
        let bytes = bytes.map(|bytes| right(size(bytes)));
        Row::new(std::iter::once(Cell::from(kind.clone())).chain(bytes))
    });
    let sum = ["all".to_string(), String::new(), String::new(), size(memory.resident)];
    let sum =
        Row::new(sum.into_iter().enumerate().map(|(column, text)| if column == 0 { text.into() } else { right(text) }));
    let rows: Vec<Row<'static>> = pools.chain([sum]).collect();
    let widths = [Constraint::Fill(1), Constraint::Length(9), Constraint::Length(9), Constraint::Length(9)];
    let title = format!("memory; records {}", size(memory.records));
    let table = Table::new(rows, widths).header(Row::new(header).style(Style::new().add_modifier(Modifier::BOLD)));
    frame.render_widget(table.block(block(title, false)), area);
}

/// Bytes, kibibytes or mebibytes.
fn size(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} B"),
        10_000..1_000_000 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MiB", bytes as f64 / (1024.0 * 1024.0)),
    }
}

fn keys_line(screen: &Screen) -> String {
    let end = match (screen.is_started, screen.interrupts) {
        (_, 1) => "interrupted; q again: terminate",
        (_, 2) => "terminated; q again: kill",
        (_, 3..) => "killed",
        (true, _) => "q: interrupt the program",
        (false, _) => "linking; q: interrupt",
    };
    format!(" {end} | Tab: next pane | arrows, PgUp, PgDn, Home, End: scroll | Enter: enlarge")
}

/// The columns of the objects, with their widths. The name has what is left.
const HEADER: [(&str, u16); 10] = [
    ("object", 0),
    ("version", 7),
    ("funcs", 5),
    ("bytes", 7),
    ("at", 6),
    ("live ms", 7),
    ("build", 7),
    ("read", 6),
    ("link", 6),
    ("commit", 6),
];
