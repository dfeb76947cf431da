//! [`MemoryMap::to_text`]: a picture for a terminal.
//!
//! One line per slab: 64 cells of 32 KiB. Where what lives in a slab fits into an eighth of it, a second line shows that
//! part enlarged. A cell of an enlarged part has the letter of who has most of it.

use std::fmt::Write as _;

use crate::base::ExecutorAddr;
use crate::memory::memory_map::{MemoryMap, MemoryRange, PoolMap, SlabMap, Tenant, WindowMap};

impl MemoryMap {
    /// The map as lines of text, without a table of contents longer than a screen: of many tenants those that asked for
    /// most are named.
    pub fn to_text(&self) -> String {
        let letters = Letters::of(&self.tenants);
        let mut text = String::new();
        for window in &self.windows {
            window_text(&mut text, window, &letters);
        }
        text.push_str("\n  █▓▒░ all, most, some, little of the cell is live   · free, and resident   (blank) free, not resident\n");
        letters.list(&mut text, &self.tenants);
        self.worst_strandings(&mut text);
        text
    }

    /// Who keeps most memory from going back, if it is worth speaking of.
    fn worst_strandings(&self, text: &mut String) {
        let worst =
            self.fragmentation_by().into_iter().filter(|stranding| stranding.stranded_bytes > stranding.live_bytes);
        for stranding in worst.take(WORST) {
            let tenants = stranding.by.iter().take(WORST).filter_map(|tenant| self.tenants.get(*tenant));
            let names: Vec<&str> = tenants.map(|tenant| &*tenant.name).collect();
            let others = match stranding.by.len().saturating_sub(WORST) {
                0 => String::new(),
                others => format!(" and {others} others"),
            };
            let (stranded, live) = (bytes_text(stranding.stranded_bytes), bytes_text(stranding.live_bytes));
            let _ = writeln!(
                text,
                "  {}{others} strands {stranded} of the {} slab {} with {live}",
                line(&names.join(", ")),
                stranding.pool.name(),
                stranding.slab,
            );
        }
    }
}

fn window_text(text: &mut String, window: &WindowMap, letters: &Letters) {
    // Writing to a string does not fail, here and below.
    let _ = writeln!(
        text,
        "window {} + {}, {}; frame table {}",
        window.base,
        bytes_text(window.size),
        window.description,
        bytes_text(window.frame_table_bytes)
    );
    for pool in &window.pools {
        let _ = writeln!(text, "\n{}", pool_line(pool));
        for slab in &pool.slabs {
            slab_text(text, pool, slab, letters);
        }
    }
}

/// So many slabs, and names in each, are told of.
const WORST: usize = 4;

/// The totals of a pool in one line.
pub(crate) fn pool_line(pool: &PoolMap) -> String {
    format!(
        "{} {} + {}: {} opened, {} live in {} allocations, {} free in {} ranges, largest {}, fragmentation {:.0} %; {} \
         resident, {} stranded",
        pool.pool.name(),
        pool.start,
        bytes_text(pool.size),
        bytes_text(pool.opened_bytes()),
        bytes_text(pool.live_bytes()),
        pool.allocations(),
        bytes_text(pool.free_bytes()),
        pool.free_ranges().count(),
        bytes_text(pool.largest_free()),
        pool.fragmentation() * 100.0,
        bytes_text(pool.resident_bytes()),
        bytes_text(pool.stranded_bytes()),
    )
}

/// The totals of a slab in one line.
pub(crate) fn slab_line(slab: &SlabMap) -> String {
    format!(
        "{} live in {}, largest free {}, {} resident, {} stranded",
        bytes_text(slab.live_bytes),
        slab.allocations,
        bytes_text(slab.largest_free),
        bytes_text(slab.resident_bytes),
        bytes_text(slab.stranded_bytes),
    )
}

fn slab_text(text: &mut String, pool: &PoolMap, slab: &SlabMap, letters: &Letters) {
    let ranges = &pool.pieces_in(slab);
    let whole = cells(ranges, slab.start, slab.size);
    let bar: String = whole.iter().map(Cell::shade).collect();
    let _ = writeln!(text, "  {} shard {:<2}|{bar}| {}", slab.start, slab.shard, slab_line(slab));
    if let Some((start, size)) = zoom(ranges, slab) {
        let bar: String = cells(ranges, start, size).iter().map(|cell| cell.letter(letters)).collect();
        let _ = writeln!(text, "  {start} {:>8}|{bar}|", bytes_text(size));
    }
}

/// The part of a slab in which something lives, when it is worth being shown enlarged: `(start, size)`.
pub(crate) fn zoom(ranges: &[MemoryRange], slab: &SlabMap) -> Option<(ExecutorAddr, u64)> {
    let mut live = ranges.iter().filter(|range| range.is_live);
    let first = live.next()?;
    let last = live.next_back().unwrap_or(first);
    let (start, end) = (first.start.max(slab.start), last.end().min(slab.end()));
    // As large as the smallest power of two that holds it, so that scales compare.
    let size = u64::try_from(end.distance_from(start)).ok()?.next_power_of_two().max(SMALLEST_ZOOM);
    let start = start.min(ExecutorAddr::new(slab.end().value() - size.min(slab.size)));
    (size <= slab.size / 8).then_some((start, size))
}

/// What one cell of a bar shows.
#[derive(Clone, Copy, Default)]
struct Cell {
    size: u64,
    live: u64,
    resident_free: u64,
    /// Who has most of it, and how much.
    most: Option<(Option<usize>, u64)>,
}

impl Cell {
    fn shade(&self) -> char {
        match self.live * 4 {
            0 if self.resident_free > 0 => '·',
            0 => ' ',
            live if live >= self.size * 4 => '█',
            live if live >= self.size * 2 => '▓',
            live if live >= self.size => '▒',
            _ => '░',
        }
    }

    fn letter(&self, letters: &Letters) -> char {
        match self.most {
            Some((tenant, _)) => tenant.map_or('?', |tenant| letters.letter(tenant)),
            None => self.shade(),
        }
    }
}

/// A stretch of memory as cells of one size.
fn cells(ranges: &[MemoryRange], start: ExecutorAddr, size: u64) -> [Cell; CELLS] {
    let cell_size = (size / CELLS as u64).max(1);
    let mut cells = [Cell { size: cell_size, ..Cell::default() }; CELLS];
    for range in ranges {
        let offset =
            |address: ExecutorAddr| address.value().saturating_sub(start.value()).min(cell_size * CELLS as u64);
        let (from, to) = (offset(range.start), offset(range.end()));
        for index in from / cell_size..to.div_ceil(cell_size) {
            let part = to.min((index + 1) * cell_size) - from.max(index * cell_size);
            let cell = &mut cells[index as usize];
            if range.is_live {
                cell.live += part;
                if cell.most.is_none_or(|(_, most)| most < part) {
                    cell.most = Some((range.tenant, part));
                }
            } else {
                cell.resident_free += part.min(range.resident_bytes);
            }
        }
    }
    cells
}

/// Letters for those who asked for most.
struct Letters {
    /// Positions in the map's list, by letter.
    named: Vec<usize>,
    by_tenant: Vec<char>,
}

impl Letters {
    fn of(tenants: &[Tenant]) -> Letters {
        let mut named: Vec<usize> = (0..tenants.len()).collect();
        named.sort_by_key(|index| std::cmp::Reverse(tenants[*index].requested_bytes()));
        named.truncate(LETTERS.len());
        let mut by_tenant = vec!['+'; tenants.len()];
        for (index, letter) in named.iter().zip(LETTERS.chars()) {
            by_tenant[*index] = letter;
        }
        Letters { named, by_tenant }
    }

    fn letter(&self, tenant: usize) -> char {
        self.by_tenant.get(tenant).copied().unwrap_or('?')
    }

    fn list(&self, text: &mut String, tenants: &[Tenant]) {
        if tenants.is_empty() {
            return;
        }
        text.push_str("\n  who            code  read-only       data  name (dylib, tracker)\n");
        for index in &self.named {
            let tenant = &tenants[*index];
            let [code, read_only, data] = tenant.segments.map(|(_, size)| bytes_text(size));
            let Tenant { name, group, owner, .. } = tenant;
            let letter = self.letter(*index);
            let _ = writeln!(
                text,
                "    {letter}  {code:>12} {read_only:>10} {data:>10}  {} ({}, {owner})",
                line(name),
                line(group)
            );
        }
        let unnamed = tenants.len() - self.named.len();
        if unnamed > 0 {
            let _ = writeln!(text, "    +  and {unnamed} more that asked for less");
        }
    }
}

/// A name on one line, whatever it consists of.
fn line(name: &str) -> String {
    name.chars().map(|character| if character.is_control() { '\u{fffd}' } else { character }).collect()
}

/// A number of bytes for people: three digits or so.
pub(crate) fn bytes_text(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut value = bytes as f64;
    while value >= 1000.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if unit == 0 || value >= 99.95 { 0 } else { 1 };
    format!("{value:.digits$} {}", units[unit])
}

/// Cells of a bar.
const CELLS: usize = 64;

/// Nothing is shown larger than this: one cell per 16 bytes.
const SMALLEST_ZOOM: u64 = 1024;

const LETTERS: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_told_in_three_digits_or_so() {
        let told: Vec<String> =
            [0, 999, 1000, 1024, 12_595, 102_400, 2 << 20, 1022 << 20, 3 << 30].into_iter().map(bytes_text).collect();
        assert_eq!(
            told,
            ["0 B", "999 B", "1.0 KiB", "1.0 KiB", "12.3 KiB", "100 KiB", "2.0 MiB", "1.0 GiB", "3.0 GiB"]
        );
    }

    #[test]
    fn there_are_no_digits_behind_the_point_from_a_hundred_and_no_units_behind_tebibytes() {
        let told: Vec<String> = [102_348, 102_349, 7 << 40, 5000 << 40].into_iter().map(bytes_text).collect();
        assert_eq!(told, ["99.9 KiB", "100 KiB", "7.0 TiB", "5000 TiB"]);
    }
}
