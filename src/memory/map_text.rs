//! [`MemoryMap::to_text`]: draws the map for a terminal.
//!
//! Each slab is one line of 64 cells of 32 KiB. If its live ranges fit into an eighth of the slab, a second line shows
//! that part enlarged. Each cell of the enlarged part shows the letter of the tenant that has most of the cell.
//! `tests/memory/map_pictures.rs` compares the text with snapshots.

use std::fmt::Write as _;

use crate::base::{ExecutorAddr, sort_by_number};
use crate::memory::memory_map::{MemoryMap, MemoryRange, PoolMap, SlabMap, Tenant, WindowMap};

impl MemoryMap {
    /// The map as lines of text. If there are many tenants, the legend names only those that requested most, so that it
    /// fits on a screen.
    pub fn to_text(&self) -> String {
        let letters = Letters::of(&self.tenants);
        let mut text = String::new();
        for window in &self.windows {
            window_text(&mut text, window, &letters);
        }
        text.push_str("\n  █▓▒░ all, most, some, little of the cell is live   · free, and resident   (blank) free, not resident\n");
        letters.list(&mut text, &self.tenants);
        self.worst_fragmentation(&mut text);
        text
    }

    /// The tenants that keep most memory from returning to the kernel, in slabs with more fragmented than live bytes.
    fn worst_fragmentation(&self, text: &mut String) {
        let worst = self.fragmented_slabs().into_iter().filter(|slab| slab.fragmented_bytes > slab.live_bytes);
        for slab in worst.take(WORST) {
            let tenants = slab.tenants.iter().take(WORST).filter_map(|tenant| self.tenants.get(*tenant));
            let names: Vec<&str> = tenants.map(|tenant| &*tenant.name).collect();
            let others = match slab.tenants.len().saturating_sub(WORST) {
                0 => String::new(),
                others => format!(" and {others} others"),
            };
            let (fragmented, live) = (bytes_text(slab.fragmented_bytes), bytes_text(slab.live_bytes));
            let _ = writeln!(
                text,
                "  {}{others} fragments {fragmented} of the {} slab {} with {live}",
                line(&names.join(", ")),
                slab.pool.name(),
                slab.slab,
            );
        }
    }
}

fn window_text(text: &mut String, window: &WindowMap, letters: &Letters) {
    // Writing to a string cannot fail, here and below.
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

/// The greatest number of slabs that are listed as fragmented, and of names for each.
const WORST: usize = 4;

/// The totals of a pool in one line.
pub(crate) fn pool_line(pool: &PoolMap) -> String {
    format!(
        "{} {} + {}: {} opened, {} live in {} allocations, {} free in {} ranges, largest {}, fragmentation {:.0} %; {} \
         resident, {} fragmented",
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
        bytes_text(pool.fragmented_bytes()),
    )
}

/// The totals of a slab in one line.
pub(crate) fn slab_line(slab: &SlabMap) -> String {
    format!(
        "{} live in {}, largest free {}, {} resident, {} fragmented",
        bytes_text(slab.live_bytes),
        slab.allocations,
        bytes_text(slab.largest_free),
        bytes_text(slab.resident_bytes),
        bytes_text(slab.fragmented_bytes),
    )
}

fn slab_text(text: &mut String, pool: &PoolMap, slab: &SlabMap, letters: &Letters) {
    let ranges = &pool.pieces_in(slab);
    let bar: String = cells(ranges, slab.start, slab.size).iter().map(Cell::shade).collect();
    let _ = writeln!(text, "  {} shard {:<2}|{bar}| {}", slab.start, slab.shard, slab_line(slab));
    if let Some((start, size)) = zoom(ranges, slab) {
        let bar: String = cells(ranges, start, size).iter().map(|cell| cell.letter(letters)).collect();
        let _ = writeln!(text, "  {start} {:>8}|{bar}|", bytes_text(size));
    }
}

/// The part of a slab that has all its live ranges, as `(start, size)`. `None` if it is more than an eighth of the
/// slab.
pub(crate) fn zoom(ranges: &[MemoryRange], slab: &SlabMap) -> Option<(ExecutorAddr, u64)> {
    let mut live = ranges.iter().filter(|range| range.is_live);
    let first = live.next()?;
    let last = live.next_back().unwrap_or(first);
    let (start, end) = (first.start.max(slab.start), last.end().min(slab.end()));
    // The size is a power of two, so that enlarged parts of different slabs compare.
    let size = u64::try_from(end.distance_from(start)).ok()?.next_power_of_two().max(MIN_ZOOM);
    let start = start.min(ExecutorAddr::new(slab.end().value() - size.min(slab.size)));
    (size <= slab.size / 8).then_some((start, size))
}

/// The ranges in one cell of a bar.
#[derive(Clone, Copy, Default)]
struct Cell {
    size: u64,
    live: u64,
    resident_free: u64,
    /// The tenant of the largest live range in the cell, if it is known, and its bytes in the cell.
    largest: Option<(Option<usize>, u64)>,
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
        match self.largest {
            Some((tenant, _)) => tenant.map_or('?', |tenant| letters.letter(tenant)),
            None => self.shade(),
        }
    }
}

/// Divides memory into cells of equal size.
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
                if cell.largest.is_none_or(|(_, largest)| largest < part) {
                    cell.largest = Some((range.tenant, part));
                }
            } else {
                cell.resident_free += part.min(range.resident_bytes);
            }
        }
    }
    cells
}

/// The letters of the tenants that requested most.
struct Letters {
    /// The tenants that have a letter, as indices of the map's list, in order of letter.
    named: Vec<usize>,
    by_tenant: Vec<char>,
}

impl Letters {
    fn of(tenants: &[Tenant]) -> Letters {
        let mut named: Vec<usize> = (0..tenants.len()).collect();
        sort_by_number(&mut named, |index| u128::from(!tenants[*index].requested_bytes()));
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
        text.push_str("\n  key            code  read-only       data  name (dylib, tracker)\n");
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
            let _ = writeln!(text, "    +  and {unnamed} more that requested less");
        }
    }
}

/// A name on one line: control characters are replaced.
fn line(name: &str) -> String {
    name.chars().map(|character| if character.is_control() { '\u{fffd}' } else { character }).collect()
}

/// A number of bytes with a unit, in about three digits.
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

/// The number of cells of a bar.
const CELLS: usize = 64;

/// The smallest enlarged part in bytes: one cell for 16 bytes.
const MIN_ZOOM: u64 = 1024;

const LETTERS: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_in_about_three_digits() {
        let texts: Vec<String> =
            [0, 999, 1000, 1024, 12_595, 102_400, 2 << 20, 1022 << 20, 3 << 30].into_iter().map(bytes_text).collect();
        assert_eq!(
            texts,
            ["0 B", "999 B", "1.0 KiB", "1.0 KiB", "12.3 KiB", "100 KiB", "2.0 MiB", "1.0 GiB", "3.0 GiB"]
        );
    }

    #[test]
    fn from_one_hundred_there_is_no_fraction_and_the_largest_unit_is_the_tebibyte() {
        let texts: Vec<String> = [102_348, 102_349, 7 << 40, 5000 << 40].into_iter().map(bytes_text).collect();
        assert_eq!(texts, ["99.9 KiB", "100 KiB", "7.0 TiB", "5000 TiB"]);
    }
}
