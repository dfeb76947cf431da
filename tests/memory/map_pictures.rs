//! The exact text and SVG of maps that are built by hand, compared with the snapshots in `snapshots/`.
//!
//! ```text
//!   dylibs    two windows, tenants of several dylibs: every kind of range, slab and enlargement
//!   modules   one window, more tenants of one dylib than the legend names
//! ```

use jittison::base::{ExecutorAddr, SegmentKind};
use jittison::memory::{MemoryMap, MemoryRange, PoolMap, SlabMap, Tenant, WindowMap};

use self::Owner::{Free, T, Unnamed};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// A bar is 860 pixels wide. In a slab of this size one pixel is 2 KiB, and pixel edges are integers.
const PIXELS: u64 = 860 * PIXEL;
const PIXEL: u64 = 2 * KIB;

/// The owner of a range.
#[derive(Clone, Copy, PartialEq)]
enum Owner {
    Free,
    /// Live, without a tenant.
    Unnamed,
    /// The tenant with this index.
    T(usize),
}

/// A pool whose slabs follow each other from its start. The offsets in `resident` are relative to that start.
fn pool(
    pool: SegmentKind,
    (start, size): (u64, u64),
    slabs: &[(u64, usize)],
    ranges: &[(u64, Owner)],
    resident: &[(u64, u64)],
) -> PoolMap {
    let overlap = |a: (u64, u64), b: (u64, u64)| (a.0 + a.1).min(b.0 + b.1).saturating_sub(a.0.max(b.0));
    let backed = |part: (u64, u64)| resident.iter().map(|run| overlap(*run, part)).sum::<u64>();
    let mut at = 0;
    let owned_ranges: Vec<((u64, u64), Owner)> = ranges
        .iter()
        .map(|(size, owner)| {
            at += size;
            ((at - size, *size), *owner)
        })
        .collect();
    let mut next = 0;
    let slabs = slabs.iter().map(|(size, shard)| {
        let slab = (next, *size);
        next += size;
        let parts = |is_live: bool| owned_ranges.iter().filter(move |(_, owner)| (*owner != Free) == is_live);
        let held = |is_live: bool| parts(is_live).map(|(place, _)| overlap(*place, slab));
        // The part of a free range that lies in the slab.
        let free = |place: &(u64, u64)| (place.0.max(slab.0), overlap(*place, slab));
        SlabMap {
            start: ExecutorAddr::new(start + slab.0),
            size: *size,
            shard: *shard,
            live_bytes: held(true).sum(),
            free_bytes: held(false).sum(),
            resident_bytes: backed(slab),
            fragmented_bytes: parts(false).map(|(place, _)| backed(free(place))).sum(),
            // Neither the text nor the SVG shows it.
            returnable_bytes: 0,
            largest_free: held(false).max().unwrap_or(0),
            allocations: parts(true).filter(|(place, _)| (slab.0..next).contains(&place.0)).count(),
        }
    });
    let slabs: Vec<SlabMap> = slabs.collect();
    assert_eq!(at, slabs.iter().map(|slab| slab.size).sum::<u64>(), "ranges fill the slabs");
    let ranges = owned_ranges.iter().map(|((offset, size), owner)| MemoryRange {
        start: ExecutorAddr::new(start + offset),
        size: *size,
        is_live: *owner != Free,
        resident_bytes: backed((*offset, *size)),
        tenant: if let T(tenant) = owner { Some(*tenant) } else { None },
    });
    let ranges = ranges.collect();
    let resident = resident.iter().map(|(offset, size)| (ExecutorAddr::new(start + offset), *size)).collect();
    PoolMap { pool, start: ExecutorAddr::new(start), size, slabs, ranges, resident }
}

/// A pool without opened slabs.
fn unopened(kind: SegmentKind, place: (u64, u64)) -> PoolMap {
    pool(kind, place, &[], &[], &[])
}

fn window(base: u64, size: u64, description: &'static str, table: u64, pools: [PoolMap; 3]) -> WindowMap {
    WindowMap { base: ExecutorAddr::new(base), size, description, frame_table_bytes: table, pools }
}

/// A tenant without segments.
fn tenant(name: &str, group: &str, owner: &str) -> Tenant {
    Tenant { name: name.into(), group: group.into(), owner: owner.into(), segments: [(ExecutorAddr::NULL, 0); 3] }
}

/// A tenant that requested `size` bytes of code.
fn of_size(name: &str, group: &str, size: u64) -> Tenant {
    Tenant {
        segments: [(ExecutorAddr::NULL, size), (ExecutorAddr::NULL, 0), (ExecutorAddr::NULL, 0)],
        ..tenant(name, group, "tracker 1")
    }
}

/// A map of these windows. Each tenant requested exactly the ranges that it owns.
fn map(windows: Vec<WindowMap>, mut tenants: Vec<Tenant>) -> MemoryMap {
    for pool in windows.iter().flat_map(|window| &window.pools) {
        for range in &pool.ranges {
            let Some(tenant) = range.tenant.and_then(|tenant| tenants.get_mut(tenant)) else { continue };
            let segment = &mut tenant.segments[pool.pool.index()];
            *segment = (if segment.1 == 0 { range.start } else { segment.0 }, segment.1 + range.size);
        }
    }
    MemoryMap { windows, tenants }
}

/// Two windows, and tenants of several dylibs.
fn dylibs() -> MemoryMap {
    let tenants = vec![
        tenant("main.o", "main", "tracker 1"),
        tenant("odd \u{1}\u{fffe}<&>\"\n.o", "first <&> \"dylib\" \u{7f}", "tracker \"2\""),
        tenant(&"long-".repeat(14), &"a dylib whose name is long, ".repeat(3), "tracker 3"),
        tenant("tencharact", "dylib 3", "tracker 4"),
        tenant("ten chars!", "dylib 4", "tracker 5"),
        tenant("five.o", "dylib 5", "tracker 6"),
        tenant("six.o", "dylib 6", "tracker 7"),
        tenant("seven.o", "dylib 7", "tracker 8"),
        // Two tenants of one dylib: together they have more than the third tenant, and each has less.
        tenant("eight.o", "dylib 8", "tracker 9"),
        tenant("eight too.o", "dylib 8", "tracker 10"),
        tenant("gone.o", "dylib 9", "tracker 11"),
    ];
    map(vec![large_window(), small_window()], tenants)
}

/// Slabs of 2 MiB: one cell of the text is 32 KiB.
fn large_window() -> WindowMap {
    const CELL: u64 = 32 * KIB;
    let base = 0x7f00_0000_0000;
    let code = pool(
        SegmentKind::Code,
        (base + 4 * MIB, 32 * MIB),
        &[(2 * MIB, 0), (2 * MIB, 12)],
        &[
            // Cells that are full, half full and a quarter full, and slightly less.
            (CELL, T(0)),
            (CELL / 2, T(1)),
            (CELL / 2, Free),
            (CELL / 2 - 16, T(2)),
            (CELL / 2 + 16, Free),
            (CELL / 4, T(3)),
            (CELL * 3 / 4, Free),
            (CELL / 4 - 16, T(4)),
            (CELL * 3 / 4 + 16, Free),
            (CELL - 16, T(5)),
            (16, Free),
            // One resident cell, and one that is not.
            (2 * CELL, Free),
            // Two tenants that share a quarter.
            (CELL / 8, T(6)),
            (CELL / 8, T(7)),
            (CELL * 3 / 4, Free),
            // More than one cell, not aligned to a cell.
            (CELL / 2, Free),
            (12 * CELL, T(8)),
            (CELL / 2, T(9)),
            (2 * CELL, Unnamed),
            // There is no tenant with this index.
            (2 * CELL, T(99)),
            // Resident in its middle only.
            (37 * CELL, Free),
            (CELL, T(0)),
            // The second slab has no live range.
            (2 * MIB, Free),
        ],
        &[(0, 7 * CELL), (8 * CELL, 18 * CELL), (30 * CELL, 10 * CELL), (63 * CELL, CELL)],
    );
    let read_only = pool(
        SegmentKind::ReadOnly,
        (base + 38 * MIB, 12 * MIB),
        &[(2 * MIB, 0), (2 * MIB, 0), (2 * MIB, 0), (2 * MIB, 1)],
        &[
            // As many fragmented as live bytes: no tenant is listed.
            (MIB, T(1)),
            (MIB, Free),
            // A range in two slabs.
            (2 * MIB - 100 * KIB, Free),
            (200 * KIB, T(2)),
            (2 * MIB - 100 * KIB, Free),
            // The last eighth of the slab: the enlarged part starts before it. Both ranges have the same size.
            (2 * MIB - 200 * KIB, Free),
            (16 * KIB, T(3)),
            (168 * KIB, Free),
            (16 * KIB, T(4)),
        ],
        &[(0, 2 * MIB), (4 * MIB - 100 * KIB, 200 * KIB), (8 * MIB - 220 * KIB, 220 * KIB)],
    );
    let data = pool(
        SegmentKind::Data,
        (base + 52 * MIB, 12 * MIB),
        &[(2 * MIB, 0), (2 * MIB, 0), (2 * MIB, 1), (2 * MIB, 1), (2 * MIB, 1)],
        &[
            // Less than 1 KiB: the enlarged part is 1 KiB, with 16 bytes per cell.
            (64, Free),
            (8, T(0)),
            (8, T(1)),
            (4, T(2)),
            (12, T(3)),
            (32, Free),
            (128, T(5)),
            (32, Unnamed),
            (32, T(99)),
            (192, T(6)),
            (16, T(7)),
            (2 * MIB - 528, Free),
            // Exactly an eighth of the slab.
            (512 * KIB, Free),
            (128 * KIB, T(7)),
            (64 * KIB, Free),
            (64 * KIB, T(6)),
            (2 * MIB - 768 * KIB, Free),
            // Slightly more than an eighth.
            (512 * KIB, Free),
            (128 * KIB, T(7)),
            (64 * KIB, Free),
            (64 * KIB + 16, T(6)),
            (2 * MIB - 768 * KIB - 16, Free),
            // A single range. The slab has as many fragmented bytes as the next one.
            (64 * KIB, T(3)),
            (2 * MIB - 64 * KIB, Free),
            // More tenants than are named.
            (16, T(6)),
            (16, T(5)),
            (16, T(4)),
            (16, T(3)),
            (16, T(2)),
            (16, T(1)),
            (2 * MIB - 96, Free),
        ],
        &[
            (0, 1000 * KIB),
            (2 * MIB + 400 * KIB, 900 * KIB),
            (4 * MIB + 512 * KIB, 256 * KIB + 16),
            (6 * MIB, 764 * KIB),
            (8 * MIB, 700 * KIB + 96),
        ],
    );
    window(base, 64 * MIB, "two views of one memfd", 300 * KIB, [code, read_only, data])
}

/// A slab in which one pixel is 2 KiB.
fn small_window() -> WindowMap {
    let base = 0x7f10_0000_0000;
    let code = pool(
        SegmentKind::Code,
        (base + 2 * MIB, 16 * MIB),
        &[(PIXELS, 3)],
        &[
            // A range of one pixel is drawn separately, whatever follows it.
            (PIXEL, T(0)),
            // Two halves of a pixel are drawn as one, and no more ranges join them. Of two equal ranges the last gives the colour.
            (PIXEL / 2, T(1)),
            (PIXEL / 2, T(2)),
            // Ranges of less than a pixel; none is drawn separately.
            (PIXEL / 4, T(3)),
            (PIXEL / 8, Free),
            (PIXEL, T(4)),
            (PIXEL * 5 / 8, Free),
            // Exactly as wide as a name of ten characters, and slightly wider.
            (74 * PIXEL, T(3)),
            (74 * PIXEL + 16, T(4)),
            // 0.999 of the full colour: the opacity is written.
            (649, T(5)),
            (1, Free),
            (100 * PIXEL - 666, T(2)),
            // A pixel without live bytes, half of it resident.
            (PIXEL / 2, Free),
            (10 * PIXEL + PIXEL / 2, T(6)),
            // An empty range.
            (0, T(7)),
            // Free ranges with no, some and all bytes resident.
            (100 * PIXEL, Free),
            (10 * PIXEL, T(8)),
            (100 * PIXEL, Free),
            (10 * PIXEL, T(9)),
            (100 * PIXEL, Free),
            (PIXELS - 583 * PIXEL, T(0)),
        ],
        &[
            (0, 252 * PIXEL),
            (252 * PIXEL + PIXEL / 4, PIXEL / 4),
            (363 * PIXEL + PIXEL, 9 * PIXEL),
            (400 * PIXEL, 460 * PIXEL),
        ],
    );
    let read_only = unopened(SegmentKind::ReadOnly, (base + 20 * MIB, 4 * MIB));
    let data = unopened(SegmentKind::Data, (base + 26 * MIB, 6 * MIB));
    window(base, 32 * MIB, "one view", 0, [code, read_only, data])
}

/// Modules of one dylib. The fourth and the fifth have the same name, and the last requested the most bytes.
fn modules() -> MemoryMap {
    let base = 0x10_0000;
    let names = (0..27).map(|number| if number == 4 { "module3.o".to_string() } else { format!("module{number}.o") });
    let tenants = names.map(|name| tenant(&name, "main", "tracker 1")).collect();
    let live_ranges: Vec<(u64, Owner)> = (0..27).map(|number| (16 * KIB + 512 * number as u64, T(number))).collect();
    let size: u64 = live_ranges.iter().map(|(size, _)| size).sum();
    let ranges = [live_ranges, vec![(MIB, Free), (2 * MIB - MIB - size, Free)]].concat();
    let code = pool(SegmentKind::Code, (base + 2 * MIB, 4 * MIB), &[(2 * MIB, 0)], &ranges, &[(0, MIB)]);
    let read_only = unopened(SegmentKind::ReadOnly, (base + 8 * MIB, 4 * MIB));
    let data = unopened(SegmentKind::Data, (base + 13 * MIB, 3 * MIB));
    map(vec![window(base, 16 * MIB, "one view", 4096, [code, read_only, data])], tenants)
}

#[test]
fn the_text_of_a_map_is_its_snapshot() {
    insta::assert_snapshot!("dylibs_text", dylibs().to_text());
    insta::assert_snapshot!("modules_text", modules().to_text());
}

#[test]
fn the_svg_of_a_map_is_its_snapshot() {
    insta::assert_snapshot!("dylibs_svg", dylibs().to_svg());
    insta::assert_snapshot!("modules_svg", modules().to_svg());
}

/// A window with `count` empty slabs of code.
fn of_slabs(count: usize) -> MemoryMap {
    let slabs = vec![(2 * MIB, 7); count];
    let code = pool(SegmentKind::Code, (4 * MIB, 128 * MIB), &slabs, &[(2 * MIB * count as u64, Free)], &[]);
    let read_only = unopened(SegmentKind::ReadOnly, (140 * MIB, 4 * MIB));
    let data = unopened(SegmentKind::Data, (150 * MIB, 4 * MIB));
    map(vec![window(0, 160 * MIB, "one view", 0, [code, read_only, data])], Vec::new())
}

#[test]
fn up_to_forty_eight_slabs_of_a_window_are_drawn_large() {
    for (count, height, base_line, gap) in [(48, 18, 15, 10), (49, 10, 7, 3)] {
        let svg = of_slabs(count).to_svg();
        let slabs: Vec<&str> = svg.lines().filter(|line| line.contains("<title>slab 0x")).collect();
        assert_eq!(slabs.len(), count);
        for (index, slab) in slabs.iter().enumerate() {
            let (y, start) = (84 + 66 + 34 + index * (height + gap), 4 * MIB + 2 * MIB * index as u64);
            let rect =
                format!("<rect x=\"180.00\" y=\"{y}.00\" width=\"860.00\" height=\"{height}.00\" fill=\"#f3f3f1\">");
            assert!(slab.starts_with(&rect), "expected {rect} at the start of {slab}");
            let label = |x: u64, text: &str| {
                format!("<text class=\"s\" x=\"{x}.00\" y=\"{}.00\">{text}</text>\n", y + base_line)
            };
            for label in [label(20, &format!("{start:#x} shard 7")), label(1050, "0 B, 0 B fragmented")] {
                assert!(svg.contains(&label), "{label} is missing");
            }
        }
        let end = 84 + 66 + 3 * (34 + 14) + count * (height + gap) + 20;
        assert!(svg.contains(&format!("width=\"1240\" height=\"{end}\" viewBox=\"0 0 1240 {end}\"")), "{end}");
    }
}

#[test]
fn ranges_of_small_slabs_have_no_names_and_no_slab_is_enlarged() {
    let mut map = of_slabs(49);
    let place = map.windows[0].pools[0].start;
    map.tenants = vec![of_size("name", "main", 64 * KIB)];
    let range = MemoryRange { start: place, size: 128 * KIB, is_live: true, resident_bytes: 0, tenant: Some(0) };
    map.windows[0].pools[0].ranges = vec![range];
    let (small, title) = (map.to_svg(), "<title>name of main, tracker 1: 0x400000 + 128 KiB (131072 bytes)</title>");
    assert!(small.contains(title), "{small}");
    assert!(!small.contains("class=\"n\"") && !small.contains("enlarged"), "{small}");
    map.windows[0].pools[0].slabs.pop();
    let large = map.to_svg();
    assert_eq!(large.matches(title).count(), 2, "in the slab and in its enlarged part: {large}");
    assert_eq!(large.matches("class=\"n\"").count(), 2);
}

#[test]
fn the_legend_names_twenty_four_groups_and_counts_the_others() {
    let of = |count: u64| {
        let tenants = (0..count).map(|number| of_size("module.o", &format!("dylib {number}"), 1000 - number));
        map(Vec::new(), tenants.collect()).to_svg()
    };
    let (all, more) = (of(24), of(25));
    assert!(all.contains(">dylib 23</text>") && !all.contains(" more<"), "{all}");
    assert!(!more.contains("dylib 24") && more.contains("fill=\"#f3f3f1\"><title>and 1 more</title>"), "{more}");
    assert!(of(26).contains(">and 2 more</text>"));
}

#[test]
fn fifty_two_tenants_have_letters_and_the_others_a_plus() {
    let of = |count: usize| {
        let live_ranges = (0..count).map(|number| (16, T(number)));
        let ranges: Vec<_> = live_ranges.chain([(2 * MIB - 16 * count as u64, Free)]).collect();
        let code = pool(SegmentKind::Code, (2 * MIB, 4 * MIB), &[(2 * MIB, 0)], &ranges, &[]);
        let [read_only, data] =
            [unopened(SegmentKind::ReadOnly, (8 * MIB, MIB)), unopened(SegmentKind::Data, (10 * MIB, MIB))];
        let tenants = (0..count).map(|number| tenant(&format!("module{number}.o"), "main", "tracker 1"));
        map(vec![window(0, 12 * MIB, "one view", 0, [code, read_only, data])], tenants.collect()).to_text()
    };
    let letters: String = ('a'..='z').chain('A'..='Z').collect();
    let bar = |plus: &str| format!("  0x200000  1.0 KiB|{letters}{plus:<12}|\n");
    let (all, more) = (of(52), of(53));
    assert!(all.contains(&bar("")) && !all.contains("that requested less"), "{all}");
    assert!(more.contains(&bar("+")) && more.ends_with("\n    +  and 1 more that requested less\n"), "{more}");
    assert!(of(54).contains(&bar("++")) && of(54).ends_with("\n    +  and 2 more that requested less\n"));
}

#[test]
fn an_empty_map_has_only_a_legend() {
    let text =
        "\n  █▓▒░ all, most, some, little of the cell is live   · free, and resident   (blank) free, not resident\n";
    assert_eq!(MemoryMap::default().to_text(), text);
    let svg = MemoryMap::default().to_svg();
    assert_eq!(svg.matches("<rect ").count(), 4, "the background and three colours: {svg}");
    assert!(svg.contains(">Code memory: 0 B live in 0 modules and stubs</text>"), "{svg}");
    assert!(svg.contains("height=\"104\""), "{svg}");
}

#[test]
fn fragmented_slabs_have_live_ranges_and_resident_free_bytes() {
    let slabs = [(MIB, 0); 4];
    let ranges =
        [(KIB, T(0)), (MIB - KIB, Free), (MIB, T(1)), (MIB, Free), (KIB, T(2)), (KIB, Unnamed), (MIB - 2 * KIB, Free)];
    let resident = [(0, MIB), (MIB, MIB), (2 * MIB, MIB), (3 * MIB, MIB)];
    let code = pool(SegmentKind::Code, (8 * MIB, 8 * MIB), &slabs, &ranges, &resident);
    let [read_only, data] =
        [unopened(SegmentKind::ReadOnly, (20 * MIB, MIB)), unopened(SegmentKind::Data, (30 * MIB, MIB))];
    let tenants = ["first.o", "second.o", "third.o"].map(|name| tenant(name, "main", "tracker 1"));
    let mut map = map(vec![window(0, 40 * MIB, "one view", 0, [code, read_only, data])], tenants.into());
    // Fewer bytes than its range has.
    map.tenants[2].segments[0].1 = 1000;
    let found = map.fragmented_slabs();
    let summaries =
        found.iter().map(|slab| (slab.slab.value(), slab.fragmented_bytes, slab.live_bytes, slab.requested_bytes));
    assert_eq!(
        summaries.collect::<Vec<_>>(),
        [(8 * MIB, MIB - KIB, KIB, KIB), (11 * MIB, MIB - 2 * KIB, 2 * KIB, 1000)]
    );
    assert_eq!(found.iter().map(|slab| &slab.tenants[..]).collect::<Vec<_>>(), [[0], [2]]);
}
