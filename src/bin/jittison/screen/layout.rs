//! Where the panes of the screen are.

use ratatui::layout::Rect;

/// A pane that can be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pane {
    Objects,
    Replaced,
    Events,
    Error,
    Output,
}

impl Pane {
    pub const ALL: [Pane; 5] = [Pane::Objects, Pane::Replaced, Pane::Events, Pane::Error, Pane::Output];

    /// The pane that comes so many places later in a round.
    pub fn later(self, places: usize) -> Pane {
        Pane::ALL[(self as usize + places) % Pane::ALL.len()]
    }

    /// Whether the last lines are shown first.
    pub fn shows_end(self) -> bool {
        matches!(self, Pane::Events | Pane::Output)
    }
}

/// The areas of the panes, with their borders. An area is empty if the pane is hidden.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Layout {
    panes: [Rect; 5],
    pub memory: Rect,
    /// The line of the keys.
    pub keys: Rect,
}

impl Layout {
    /// The chosen pane has more lines than the others, or all of them if it is enlarged.
    pub fn new(area: Rect, chosen: Pane, is_enlarged: bool) -> Layout {
        let height = area.height.saturating_sub(1);
        let mut layout =
            Layout { keys: Rect { y: area.y + height, height: area.height.min(1), ..area }, ..Layout::default() };
        if is_enlarged {
            layout.panes[chosen as usize] = Rect { height, ..area };
            return layout;
        }
        let memory = MEMORY_HEIGHT.min(height);
        let rest = height - memory;
        let row_of_chosen = match chosen {
            Pane::Objects => 0,
            Pane::Replaced => 1,
            Pane::Events | Pane::Error => 2,
            Pane::Output => 3,
        };
        // Tenths of the lines that the memory pane leaves.
        let shares: [u16; 4] = [[4, 0, 3, 3], [3, 1, 3, 3], [3, 0, 4, 3], [3, 0, 3, 4]][row_of_chosen];
        let mut heights = shares.map(|share| rest * share / 10);
        heights[1] += memory;
        heights[3] += height - heights.iter().sum::<u16>();
        let mut y = area.y;
        let rows = heights.map(|height| {
            let row = Rect { y, height, ..area };
            y += height;
            row
        });
        let (replaced, memory) = split(rows[1], area.width.saturating_sub(MEMORY_WIDTH).max(area.width * 9 / 20));
        let (events, error) = split(rows[2], area.width / 2);
        layout.panes = [rows[0], replaced, events, error, rows[3]];
        layout.memory = memory;
        layout
    }

    pub fn area(&self, pane: Pane) -> Rect {
        self.panes[pane as usize]
    }

    /// The width and the height of the lines of a pane.
    pub fn inner(&self, pane: Pane) -> (usize, usize) {
        let Rect { width, height, .. } = self.area(pane);
        // The header of the table.
        let header = u16::from(pane == Pane::Objects);
        (width.saturating_sub(2).into(), height.saturating_sub(2 + header).into())
    }
}

fn split(row: Rect, left: u16) -> (Rect, Rect) {
    let left = left.min(row.width);
    (Rect { width: left, ..row }, Rect { x: row.x + left, width: row.width - left, ..row })
}

const MEMORY_WIDTH: u16 = 44;
/// A header, three kinds of memory, a sum, and the borders.
const MEMORY_HEIGHT: u16 = 7;
