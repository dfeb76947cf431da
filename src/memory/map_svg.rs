//! [`MemoryMap::to_svg`]: draws the map for a browser, as one document without other files.
//!
//! ```text
//!   window    ▕ header │ code ░▓ │ read-only ░▓ │ data ░▓ ▏            the entire window; the open part of each pool
//!   slab      ▕▇▇▇▁▁▇▇▁▁▁ ▁▁▁                            ▏  numbers    2 MiB: live ranges in the colour of their group
//!             ▕╲_______╲                                 ▏
//!   enlarged  ▕▇▇▇▇▇▇▇▇▇▁▁▁▁▁▁▁▁▁▇▇▇▇▇▇▇                 ▏             the live ranges, if they are a small part
//! ```
//!
//! Adjacent ranges that are narrower than one pixel are drawn as one. So the size of the document depends on the number
//! of slabs, and not on the number of allocations. The title of each rectangle says what it shows.
//! `tests/memory/map_pictures.rs` compares the document with snapshots.

use std::collections::HashMap;
use std::fmt::Write as _;

use rustc_hash::FxBuildHasher;

use crate::base::{ExecutorAddr, sort_by_number};
use crate::memory::map_text::{bytes_text, pool_line, slab_line, zoom};
use crate::memory::memory_map::{MemoryMap, MemoryRange, PoolMap, SlabMap, WindowMap};

impl MemoryMap {
    /// The map as an SVG document.
    pub fn to_svg(&self) -> String {
        let mut drawing = Drawing { map: self, colours: Colours::of(self), body: String::new(), y: MARGIN };
        drawing.heading();
        for window in &self.windows {
            drawing.window(window);
        }
        drawing.finish()
    }
}

struct Drawing<'a> {
    map: &'a MemoryMap,
    colours: Colours,
    body: String,
    /// The top of the next element, in pixels.
    y: f64,
}

/// A part of memory, and the rectangle that shows it.
#[derive(Clone, Copy)]
struct Strip {
    start: ExecutorAddr,
    size: u64,
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

impl Strip {
    fn x_of(&self, address: ExecutorAddr) -> f64 {
        let offset = address.distance_from(self.start).clamp(0, self.size as i64);
        self.x + offset as f64 / self.size as f64 * self.width
    }
}

impl Drawing<'_> {
    fn heading(&mut self) {
        let title = format!(
            "Code memory: {} live in {} modules and stubs",
            bytes_text(self.map.live_bytes()),
            self.map.tenants.len()
        );
        self.text(MARGIN, 20.0, "t", &title);
        self.y += 34.0;
        let by = if self.colours.is_by_group { "by dylib" } else { "by module" };
        let fixed = [
            ("live, of unknown owner", UNKNOWN_OWNER),
            ("free and resident: fragmented", FRAGMENTED),
            ("free, not resident", EMPTY),
        ];
        let known = self.colours.legend.clone();
        let entries = known.iter().map(|(name, colour)| (name.as_str(), colour.as_str())).chain(fixed);
        let mut x = MARGIN;
        self.text(x, 10.0, "s", &format!("Colours {by}:"));
        x += 110.0;
        for (name, colour) in entries {
            let width = 26.0 + 6.2 * name.chars().count().min(60) as f64;
            if x + width > WIDTH - MARGIN {
                x = MARGIN + 110.0;
                self.y += 18.0;
            }
            self.rect((x, self.y, 11.0, 11.0), colour, 1.0, name);
            self.text(x + 16.0, 10.0, "s", &name.chars().take(60).collect::<String>());
            x += width;
        }
        self.y += 30.0;
    }

    fn window(&mut self, window: &WindowMap) {
        let line = format!("Window {} + {}: {}", window.base, bytes_text(window.size), window.description);
        self.text(MARGIN, 12.0, "h", &line);
        self.y += 20.0;
        let strip = Strip {
            start: window.base,
            size: window.size,
            x: MARGIN,
            y: self.y,
            width: WIDTH - 2.0 * MARGIN,
            height: 22.0,
        };
        let (y, height) = (strip.y, strip.height);
        self.rect((strip.x, y, strip.width, height), EMPTY, 1.0, "guards between pools");
        let table = format!("header and frame table: {} used", bytes_text(window.frame_table_bytes));
        let table_width = strip.x_of(window.pools[0].start) - strip.x;
        self.rect((strip.x, y, table_width, height), TABLE, 1.0, &table);
        for (pool, colour) in window.pools.iter().zip(POOLS) {
            let (from, to) = (strip.x_of(pool.start), strip.x_of(pool.start.offset(pool.size)));
            // The place of the slabs, and not their size alone: pools open from the end.
            let (first, last) = (pool.slabs.first(), pool.slabs.last());
            let open_to = last.map_or(to, |slab| strip.x_of(slab.end()));
            let open_from = first.map_or(to, |slab| strip.x_of(slab.start)).min(open_to - 1.0);
            let line = pool_line(pool);
            self.rect((from, y, to - from, height), colour, 0.25, &line);
            self.rect((open_from, y, open_to - open_from, height), colour, 1.0, &line);
            self.text(from + 6.0, 15.0, "s", pool.pool.name());
        }
        self.y += height + 24.0;
        let is_detailed = window.pools.iter().map(|pool| pool.slabs.len()).sum::<usize>() <= MAX_DETAILED;
        for pool in &window.pools {
            let line = pool_line(pool);
            let (name, numbers) = line.split_once(": ").unwrap_or((&line, ""));
            self.text(MARGIN, 12.0, "h", name);
            self.text(MARGIN, 26.0, "s", numbers);
            self.y += 34.0;
            for slab in &pool.slabs {
                self.slab(pool, slab, is_detailed);
            }
            self.y += 14.0;
        }
    }

    fn slab(&mut self, pool: &PoolMap, slab: &SlabMap, is_detailed: bool) {
        let height = if is_detailed { 18.0 } else { 10.0 };
        let ranges = &pool.pieces_in(slab);
        let strip = Strip { start: slab.start, size: slab.size, x: LEFT, y: self.y, width: STRIP, height };
        self.text(MARGIN, height - 3.0, "s", &format!("{} shard {}", slab.start, slab.shard));
        self.text(
            LEFT + STRIP + 10.0,
            height - 3.0,
            "s",
            &format!("{}, {} fragmented", bytes_text(slab.live_bytes), bytes_text(slab.fragmented_bytes)),
        );
        self.rect((LEFT, self.y, STRIP, height), EMPTY, 1.0, &format!("slab {}: {}", slab.start, slab_line(slab)));
        self.ranges(&strip, ranges);
        self.y += height;
        if let Some((start, size)) = zoom(ranges, slab).filter(|_| is_detailed) {
            self.enlarged(&strip, ranges, start, size);
        }
        self.y += if is_detailed { 10.0 } else { 3.0 };
    }

    /// The live part of a slab, enlarged, connected with its place in the slab.
    fn enlarged(&mut self, slab: &Strip, ranges: &[MemoryRange], start: ExecutorAddr, size: u64) {
        let strip = Strip { start, size, x: LEFT, y: self.y + 12.0, width: STRIP, height: 30.0 };
        let (from, to) = (slab.x_of(start), slab.x_of(start.offset(size)));
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(
            self.body,
            "<path class=\"z\" d=\"M{:.2} {:.2}L{:.2} {:.2}L{:.2} {:.2}L{:.2} {:.2}Z\"/>",
            from,
            self.y,
            to,
            self.y,
            LEFT + STRIP,
            strip.y,
            LEFT,
            strip.y
        );
        self.text(MARGIN, 32.0, "s", &format!("enlarged: {}", bytes_text(size)));
        self.rect(
            (LEFT, strip.y, STRIP, strip.height),
            EMPTY,
            1.0,
            &format!("{} of the slab, enlarged", bytes_text(size)),
        );
        self.ranges(&strip, ranges);
        self.y = strip.y + strip.height;
    }

    /// The ranges of a strip. Adjacent ranges that are too narrow are drawn as one.
    fn ranges(&mut self, strip: &Strip, ranges: &[MemoryRange]) {
        let mut rest = ranges;
        while let Some(first) = rest.first() {
            let from = strip.x_of(first.start);
            let is_wide_enough = |range: &MemoryRange| strip.x_of(range.end()) - from >= MIN_WIDTH;
            // Takes as many ranges as make one pixel. A range that is wide enough by itself is not taken.
            let is_wide_alone = |range: &MemoryRange| strip.x_of(range.end()) - strip.x_of(range.start) >= MIN_WIDTH;
            let mut count = 1;
            while !is_wide_enough(&rest[count - 1]) && rest.get(count).is_some_and(|next| !is_wide_alone(next)) {
                count += 1;
            }
            let (together, others) = rest.split_at(count);
            rest = others;
            let to = strip.x_of(together[count - 1].end());
            if to > from {
                let (colour, opacity, title) = self.style(together);
                self.rect((from, strip.y, (to - from).max(MIN_WIDTH), strip.height), &colour, opacity, &title);
                self.name(strip, together, (from, to));
            }
        }
    }

    /// The name of the tenant, if the range is drawn large enough.
    fn name(&mut self, strip: &Strip, ranges: &[MemoryRange], (from, to): (f64, f64)) {
        let [MemoryRange { tenant: Some(tenant), .. }] = ranges else { return };
        let Some(tenant) = self.map.tenants.get(*tenant) else { return };
        if strip.height >= 18.0 && to - from > 12.0 + 6.2 * tenant.name.chars().count() as f64 {
            let y = strip.y + strip.height / 2.0 + 3.5;
            let name = escaped(&tenant.name);
            let _ = writeln!(self.body, "<text class=\"n\" x=\"{:.2}\" y=\"{y:.2}\">{name}</text>", from + 6.0);
        }
    }

    /// The colour, opacity and title of ranges that are drawn as one.
    fn style(&self, ranges: &[MemoryRange]) -> (String, f64, String) {
        if let [range] = ranges {
            return self.style_of_one(range);
        }
        let size: u64 = ranges.iter().map(|range| range.size).sum();
        let live = || ranges.iter().filter(|range| range.is_live);
        let live_bytes: u64 = live().map(|range| range.size).sum();
        let title = format!(
            "{}: {} live in {} allocations, {} free",
            ranges[0].start,
            bytes_text(live_bytes),
            live().count(),
            bytes_text(size - live_bytes)
        );
        match live().max_by_key(|range| range.size) {
            // Even a small live range stays visible.
            Some(largest) => {
                (self.colours.of_range(largest), 0.35 + 0.65 * live_bytes as f64 / size.max(1) as f64, title)
            }
            None => (FRAGMENTED.to_string(), 1.0, title),
        }
    }

    fn style_of_one(&self, range: &MemoryRange) -> (String, f64, String) {
        let MemoryRange { start, size, .. } = range;
        let place = format!("{start} + {} ({size} bytes)", bytes_text(*size));
        if !range.is_live {
            let resident = range.resident_bytes as f64 / (*size).max(1) as f64;
            let title = format!("free {place}, {} resident", bytes_text(range.resident_bytes));
            return (FRAGMENTED.to_string(), resident, title);
        }
        let title = match range.tenant.and_then(|tenant| self.map.tenants.get(tenant)) {
            Some(tenant) => format!("{} of {}, {}: {place}", tenant.name, tenant.group, tenant.owner),
            None => format!("live {place}"),
        };
        (self.colours.of_range(range), 1.0, title)
    }

    fn rect(&mut self, (x, y, width, height): (f64, f64, f64, f64), fill: &str, opacity: f64, title: &str) {
        let opacity = if opacity < 0.999 { format!(" fill-opacity=\"{opacity:.2}\"") } else { String::new() };
        let title = escaped(title);
        let _ = writeln!(
            self.body,
            "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{height:.2}\" fill=\"{fill}\"{opacity}>\
             <title>{title}</title></rect>"
        );
    }

    /// A text whose base line is `down` pixels below `y`.
    fn text(&mut self, x: f64, down: f64, class: &str, text: &str) {
        let y = self.y + down;
        let _ = writeln!(self.body, "<text class=\"{class}\" x=\"{x:.2}\" y=\"{y:.2}\">{}</text>", escaped(text));
    }

    fn finish(self) -> String {
        let height = self.y + MARGIN;
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" \
             height=\"{height:.0}\" viewBox=\"0 0 {WIDTH} {height:.0}\">\n<style>{STYLE}</style>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{}</svg>\n",
            self.body
        )
    }
}

/// The colours of groups, or of tenants if there is only one group.
struct Colours {
    is_by_group: bool,
    /// The colour of each tenant of the map's list.
    by_tenant: Vec<String>,
    /// The names and colours of those that requested most.
    legend: Vec<(String, String)>,
}

impl Colours {
    fn of(map: &MemoryMap) -> Colours {
        let is_by_group = map.tenants.iter().any(|tenant| tenant.group != map.tenants[0].group);
        let name = |index: usize| if is_by_group { &*map.tenants[index].group } else { &*map.tenants[index].name };
        let mut numbers: HashMap<&str, usize, FxBuildHasher> = HashMap::default();
        let mut sizes: Vec<(&str, u64)> = Vec::new();
        let mut by_tenant = Vec::with_capacity(map.tenants.len());
        for (index, tenant) in map.tenants.iter().enumerate() {
            let number = *numbers.entry(name(index)).or_insert(sizes.len());
            if number == sizes.len() {
                sizes.push((name(index), 0));
            }
            sizes[number].1 += tenant.requested_bytes();
            by_tenant.push(colour(number));
        }
        let mut order: Vec<usize> = (0..sizes.len()).collect();
        sort_by_number(&mut order, |number| u128::from(!sizes[*number].1));
        let mut legend: Vec<_> =
            order.iter().take(MAX_NAMED).map(|number| (sizes[*number].0.to_string(), colour(*number))).collect();
        if sizes.len() > MAX_NAMED {
            legend.push((format!("and {} more", sizes.len() - MAX_NAMED), EMPTY.to_string()));
        }
        Colours { is_by_group, by_tenant, legend }
    }

    fn of_range(&self, range: &MemoryRange) -> String {
        range.tenant.and_then(|tenant| self.by_tenant.get(tenant)).cloned().unwrap_or_else(|| UNKNOWN_OWNER.to_string())
    }
}

/// Colour `number` of an endless series: each hue is a golden angle from the one before, so that they differ, in three
/// levels of brightness.
fn colour(number: usize) -> String {
    let hue = (210.0 + number as f64 * 137.508) % 360.0;
    let lightness = [0.50, 0.62, 0.40][number % 3];
    let channel = |offset: f64| {
        let k = (offset + hue / 30.0) % 12.0;
        let chroma = 0.62 * f64::min(lightness, 1.0 - lightness);
        let value: f64 = lightness - chroma * (k - 3.0).min(9.0 - k).clamp(-1.0, 1.0);
        (value * 255.0).round() as u8
    };
    format!("#{:02x}{:02x}{:02x}", channel(0.0), channel(8.0), channel(4.0))
}

/// Escapes a text for XML. Characters that XML does not allow are replaced.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            character if character.is_control() || matches!(character, '\u{fffe}' | '\u{ffff}') => {
                escaped.push('\u{fffd}')
            }
            character => escaped.push(character),
        }
    }
    escaped
}

const WIDTH: f64 = 1240.0;
const MARGIN: f64 = 20.0;
const LEFT: f64 = 180.0;
const STRIP: f64 = 860.0;

/// Pixels. A narrower range is drawn together with its neighbours.
const MIN_WIDTH: f64 = 1.0;

/// The greatest number of slabs of a window that are drawn large.
const MAX_DETAILED: usize = 48;

/// The greatest number of groups in the legend.
const MAX_NAMED: usize = 24;

const UNKNOWN_OWNER: &str = "#6b6b6b";
const FRAGMENTED: &str = "#d9b8b0";
const EMPTY: &str = "#f3f3f1";
const TABLE: &str = "#c9c9c4";
const POOLS: [&str; 3] = ["#3f6fb5", "#3d9a6b", "#c08a2e"];

const STYLE: &str = "text{font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#222}\
                     .t{font-size:18px;font-weight:bold}.h{font-size:12px;font-weight:bold}.s{font-size:10px}\
                     .n{font-size:10px;fill:#fff;pointer-events:none}\
                     .z{fill:#e6e6e2;stroke:none}rect:hover{stroke:#000;stroke-width:1}";
