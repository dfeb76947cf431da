//! [`Table`]: the floor table of `DESIGN.md`, and other tables of it.

use std::collections::BTreeSet;

pub struct Room {
    pub name: String,
    pub floor: u32,
    /// Names of rooms, and of outside crates.
    pub imports: BTreeSet<String>,
    pub may_be_unsafe: bool,
}

pub struct Table(pub Vec<Room>);

impl Table {
    pub fn room(&self, name: &str) -> Option<&Room> {
        self.0.iter().find(|room| room.name == name)
    }
}

/// The words of a text that stand in single backticks, with their lines.
pub fn backticked(text: &str) -> Vec<(usize, &str)> {
    let mut words = Vec::new();
    let mut fenced = false;
    for (line, row) in (1..).zip(text.lines()) {
        if row.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            let spans = row.split('`').skip(1).step_by(2);
            words.extend(spans.flat_map(str::split_whitespace).map(|word| (line, word)));
        }
    }
    words
}

/// Reads the table under the first heading that has the word "Floors" and a table.
pub fn read_table(design: &str) -> Result<Table, String> {
    let mut rows: Vec<(usize, Vec<&str>)> = Vec::new();
    let mut under_floors = false;
    for (line, row) in (1..).zip(design.lines()) {
        let cells = row.trim().strip_prefix('|').map(|row| row.trim_end_matches('|'));
        match cells {
            Some(cells) if under_floors => {
                rows.push((line, cells.split('|').map(str::trim).collect()));
            }
            _ if !rows.is_empty() => break,
            _ if row.starts_with('#') => under_floors = row.contains("Floors"),
            _ => {}
        }
    }
    let columns = ["floor", "room", "imports", "unsafe", "speaks of"];
    if rows.len() < 3 || rows[0].1 != columns {
        let line = rows.first().map_or(1, |row| row.0);
        return Err(format!(
            "DESIGN.md:{line}: no floor table. Mend: under a heading with the word \"Floors\", \
             put a table with the columns {}",
            columns.join(" | ")
        ));
    }
    let mut rooms = Vec::new();
    let mut import_cells = Vec::new();
    for (line, cells) in &rows[2..] {
        let fault = |what: String| Err(format!("DESIGN.md:{line}: {what} in the floor table"));
        let &[floor, names, imports, may, _] = &cells[..] else {
            return fault(format!("{} cells where five belong", cells.len()));
        };
        let Ok(floor) = floor.parse::<u32>() else {
            return fault(format!("floor \"{floor}\" is no number"));
        };
        let may_be_unsafe = match may.split_whitespace().next() {
            Some("yes") => true,
            Some("no") => false,
            _ => return fault(format!("unsafe is \"{may}\", neither yes nor no,")),
        };
        for (_, name) in backticked(names) {
            rooms.push(Room { name: plain(name).to_string(), floor, imports: BTreeSet::new(), may_be_unsafe });
            import_cells.push((line, imports));
        }
    }
    let floors: Vec<(u32, String)> = rooms.iter().map(|room| (room.floor, room.name.clone())).collect();
    for (room, (line, cell)) in rooms.iter_mut().zip(import_cells) {
        for (_, name) in backticked(cell) {
            if !floors.iter().any(|(_, known)| known == plain(name)) {
                return Err(format!("DESIGN.md:{line}: `{name}` is imported but has no row in the floor table"));
            }
            room.imports.insert(plain(name).to_string());
        }
        for item in cell.split(',').map(str::trim) {
            let number = item.parse::<u32>().ok();
            if number.is_some() || item == "all below" {
                let meant = |floor: u32| number.map_or(floor < room.floor, |number| floor == number);
                let named = floors.iter().filter(|(floor, _)| meant(*floor));
                room.imports.extend(named.map(|(_, name)| name.clone()));
            } else if !item.contains(['`', ' ']) {
                room.imports.insert(item.to_string());
            }
        }
    }
    Ok(Table(rooms))
}

/// A room's name without the slash or the ending that a table may give it.
pub fn plain(name: &str) -> &str {
    name.trim_end_matches('/').trim_end_matches(".rs")
}

/// A row of the table of sub-rooms.
#[derive(Debug, PartialEq)]
pub struct SubRoom {
    /// Such as `session/pins`.
    pub name: String,
    /// Sub-rooms that it may import.
    pub imports: BTreeSet<String>,
    /// The largest number of its files that may form one circle. `None`: no circle is allowed.
    pub knot: Option<usize>,
}

/// Reads the table whose columns are `sub-room | imports | knot | holds`. A row may import only rows above it.
pub fn sub_rooms(design: &str) -> Result<Vec<SubRoom>, String> {
    let head = "| sub-room | imports | knot | holds |";
    let rows = design.lines().skip_while(|row| row.trim() != head).skip(2);
    let mut table: Vec<SubRoom> = Vec::new();
    for row in rows.take_while(|row| row.starts_with('|')) {
        let cells: Vec<&str> = row.trim().trim_matches('|').split('|').map(str::trim).collect();
        let &[name, imports, knot, _] = &cells[..] else {
            return Err(format!("DESIGN.md: `{row}` has {} cells where four belong", cells.len()));
        };
        let name = plain(name.trim_matches('`')).to_string();
        let imports: BTreeSet<String> =
            backticked(imports).into_iter().map(|(_, word)| plain(word.trim_end_matches(',')).to_string()).collect();
        if let Some(unknown) = imports.iter().find(|import| !table.iter().any(|above| above.name == **import)) {
            return Err(format!(
                "DESIGN.md: `{name}` imports `{unknown}`, which is no row above it. Mend: order the table so that imports \
                 go up only"
            ));
        }
        table.push(SubRoom { name, imports, knot: knot.parse().ok() });
    }
    if table.is_empty() {
        Err(format!("DESIGN.md: no table of sub-rooms. Mend: add one with the columns {head}"))
    } else {
        Ok(table)
    }
}
