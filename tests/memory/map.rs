//! The memory map shows every opened byte once and every module by name. Its text fits a terminal, and its SVG is well-formed.

use fastrand::Rng;
use jittison::base::SegmentKind;
use jittison::memory::{MemoryManager, MemoryMap, SlabPool, SlabPoolOptions};

use crate::slab::{make, plan};
use crate::support::*;

/// Checks the sums within the map, and that they are equal to the manager's statistics.
fn check(map: &MemoryMap, memory: &dyn MemoryManager) {
    let statistics = memory.statistics();
    for (pool, expected) in map.windows[0].pools.iter().zip(statistics.pools) {
        // Ranges cover the slabs without gaps. The byte counts of slabs are sums over their ranges.
        assert_eq!(pool.ranges.iter().map(|range| range.size).sum::<u64>(), pool.opened_bytes());
        assert!(pool.ranges.windows(2).all(|pair| pair[0].end() <= pair[1].start));
        assert!(pool.slabs.windows(2).all(|pair| pair[0].end() <= pair[1].start));
        for slab in &pool.slabs {
            assert_eq!(slab.live_bytes + slab.free_bytes, slab.size, "{slab:?}");
            assert_eq!(slab.live_bytes + slab.fragmented_bytes, slab.resident_bytes, "{slab:?}");
            assert!(slab.returnable_bytes <= slab.fragmented_bytes && slab.largest_free <= slab.free_bytes, "{slab:?}");
            let covered: u64 = pool.ranges_in(slab).iter().map(|range| range.size).sum();
            assert!(covered >= slab.size);
        }
        let resident: u64 = pool.resident.iter().map(|(_, size)| size).sum();
        assert_eq!(resident, pool.resident_bytes());
        assert_eq!(pool.ranges.iter().map(|range| range.resident_bytes).sum::<u64>(), resident);
        assert_eq!(
            (pool.opened_bytes(), pool.live_bytes(), pool.free_bytes(), pool.largest_free(), pool.resident_bytes()),
            (expected.opened, expected.reserved, expected.free, expected.largest_free, expected.resident)
        );
        assert!((pool.fragmentation() - expected.fragmentation()).abs() < 1e-9);
    }
    let sum = |of: fn(&jittison::PoolStatistics) -> u64| statistics.pools.iter().map(of).sum::<u64>();
    assert_eq!(sum(|pool| pool.requested), statistics.live_bytes);
    assert_eq!(sum(|pool| pool.resident), statistics.resident_bytes);
    assert_eq!(map.windows[0].frame_table_bytes, statistics.frame_table_bytes);
    // The frame table takes 8 bytes for 64 bytes of code.
    assert_eq!(sum(|pool| pool.reserved) + statistics.pools[0].reserved / 8, statistics.reserved_bytes);
    assert_eq!(sum(|pool| pool.opened) + statistics.pools[0].opened / 8, statistics.opened_bytes);
}

#[test]
fn every_opened_byte_is_in_the_map_exactly_once() {
    let options = SlabPoolOptions { window_size: 256 << 20, shards: 3, returns_memory: false, ..Default::default() };
    let memory = SlabPool::new(SlabPoolOptions { trap_freed_code: false, ..options }).unwrap();
    let mut random = Rng::with_seed(7);
    let mut live = Vec::new();
    for round in 0..600 {
        let mut size = |limit| random.usize(..limit) as u64;
        if round % 100 == 99 {
            live.push(make(&memory, &plan(size(5 << 20), 0, (size(5 << 20), 0))));
        }
        live.push(make(&memory, &plan(size(9000), size(9000), (size(9000), 0))));
        for _ in 0..random.usize(..3) {
            drop(live.swap_remove(random.usize(..live.len())));
            if live.is_empty() {
                break;
            }
        }
        if round % 150 == 120 {
            memory.release_free();
        }
        if round % 20 == 0 {
            let map = memory.memory_map().unwrap();
            check(&map, &memory);
            assert_eq!(
                map.windows[0].pools.iter().flat_map(|pool| &pool.ranges).filter(|r| r.tenant.is_some()).count(),
                0,
                "only the map of a session has tenants"
            );
        }
    }
    drop(live);
    let map = memory.memory_map().unwrap();
    check(&map, &memory);
    assert_eq!(map.live_bytes(), 0);
}

#[test]
fn the_map_shows_each_linking_thread_in_a_slab_of_its_own_shard() {
    let memory = SlabPool::new(SlabPoolOptions { window_size: 64 << 20, shards: 4, ..Default::default() }).unwrap();
    let held: Vec<_> = (0..4)
        .map(|_| std::thread::scope(|scope| scope.spawn(|| make(&memory, &plan(64, 16, (16, 0)))).join().unwrap()))
        .collect();
    let map = memory.memory_map().unwrap();
    for pool in &map.windows[0].pools {
        let shards: std::collections::BTreeSet<_> = pool.slabs.iter().map(|slab| slab.shard).collect();
        assert_eq!(shards.len(), pool.slabs.len(), "each shard has one slab");
        assert_eq!(pool.allocations(), 4);
    }
    drop(held);
}

#[test]
fn release_free_returns_the_returnable_bytes_and_no_other_fragmented_bytes() {
    let options = SlabPoolOptions { window_size: 64 << 20, shards: 1, returns_memory: false, ..Default::default() };
    let memory = SlabPool::new(SlabPoolOptions { trap_freed_code: false, ..options }).unwrap();
    let freed = make(&memory, &plan(0, 0, (1 << 20, 0)));
    let kept = make(&memory, &plan(0, 0, (100, 0)));
    drop(freed);
    let of_data = |map: MemoryMap| map.windows[0].pools[2].slabs[0];
    let slab = of_data(memory.memory_map().unwrap());
    assert_eq!((slab.live_bytes, slab.resident_bytes, slab.allocations), (112, (1 << 20) + page_size(), 1));
    assert_eq!((slab.fragmented_bytes, slab.returnable_bytes), ((1 << 20) + page_size() - 112, 1 << 20));
    assert_eq!(memory.release_free().bytes, slab.returnable_bytes);
    let slab = of_data(memory.memory_map().unwrap());
    assert_eq!((slab.fragmented_bytes, slab.returnable_bytes), (page_size() - 112, 0));
    drop(kept);
}

#[test]
fn the_map_names_modules_and_stubs() {
    let Some(object) =
        c("long state = 3; static const char text[99] = \"x\"; const char *test(void) { return text + state; }")
    else {
        return;
    };
    let jit = new_jit();
    let dylibs = ["first <&> \"dylib\"", "second"].map(|name| jit.create_dylib(name).unwrap());
    let trackers = dylibs.each_ref().map(|dylib| add(&jit, dylib, "module.o", &object));
    for dylib in &dylibs {
        jit.address_of(dylib, "test").unwrap();
    }
    jit.create_stub(&trackers[1], "stub", jit.address_of(&dylibs[0], "test").unwrap()).unwrap();
    let map = jit.memory_map().unwrap();
    let named: Vec<_> = map.tenants.iter().map(|tenant| (&*tenant.name, &*tenant.group, &*tenant.owner)).collect();
    let keys = trackers.each_ref().map(|tracker| tracker.key().to_string());
    assert_eq!(named.len(), 3);
    assert!(named.contains(&("module.o", "first <&> \"dylib\"", &keys[0])), "{named:?}");
    assert!(named.contains(&("module.o", "second", &keys[1])));
    assert!(named.contains(&("stub `stub`", "second", &keys[1])));
    // The address of the function is in a range of its module.
    for (dylib, key) in dylibs.iter().zip(&keys) {
        let function = jit.address_of(dylib, "test").unwrap();
        let mut ranges = map.windows[0].pools[SegmentKind::Code.index()].ranges.iter();
        let range = ranges.find(|range| (range.start..range.end()).contains(&function)).unwrap();
        let tenant = &map.tenants[range.tenant.unwrap()];
        assert_eq!((&*tenant.name, &*tenant.owner), ("module.o", &key[..]));
    }
    // While no link is running, every live range has a tenant.
    let live = map.pools().flat_map(|pool| &pool.ranges).filter(|range| range.is_live);
    assert_eq!(live.filter(|range| range.tenant.is_none()).count(), 0);
    assert!(trackers[1].remove().unwrap().is_complete());
    assert_eq!(jit.memory_map().unwrap().tenants.len(), 1);
}

#[test]
fn the_map_names_the_module_that_fragments_a_slab_and_the_bytes() {
    let Some(object) = c("static const char text[40000] = \"x\"; const char *test(long i) { return text + i; }") else {
        return;
    };
    let jit = new_jit();
    let link = |number: usize| {
        let dylib = jit.create_dylib(&format!("dylib {number}")).unwrap();
        let tracker = add(&jit, &dylib, &format!("module{number}.o"), &object);
        jit.address_of(&dylib, "test").unwrap();
        tracker
    };
    let mut trackers: Vec<_> = (0..40).map(link).collect();
    let kept = trackers.remove(20);
    let mut removals = trackers.into_iter().map(|tracker| tracker.remove().unwrap());
    assert!(removals.all(|removal| removal.is_complete()));
    let map = jit.memory_map().unwrap();
    let fragmented = map.fragmented_slabs();
    let constants = fragmented.iter().find(|slab| slab.pool == SegmentKind::ReadOnly).unwrap();
    let names: Vec<_> = constants.tenants.iter().map(|tenant| &*map.tenants[*tenant].name).collect();
    assert_eq!(names, ["module20.o"]);
    assert!(constants.fragmented_bytes > 30 * 40_000, "the free ranges of thirty-nine removed modules: {constants:?}");
    assert!((40_000..41_000).contains(&constants.requested_bytes), "{constants:?}");
    assert!((constants.requested_bytes..constants.requested_bytes + 1_000).contains(&constants.live_bytes));
    assert!(fragmented.is_sorted_by_key(|slab| std::cmp::Reverse(slab.fragmented_bytes)));
    assert!(map.to_text().contains("module20.o fragments"), "{}", map.to_text());
    assert!(kept.remove().unwrap().is_complete());
    assert_eq!(jit.memory_map().unwrap().fragmented_slabs(), [], "no module is live");
}

#[test]
fn the_text_has_a_line_for_each_slab_and_letters_for_modules() {
    let Some(object) = c("long state = 3; long test(void) { return state; }") else { return };
    let jit = new_jit();
    let _tracker = add(&jit, jit.main_dylib(), "module\n.o", &object);
    jit.address_of(jit.main_dylib(), "test").unwrap();
    let text = jit.memory_map().unwrap().to_text();
    let bars = text.lines().filter(|line| line.contains(" shard ")).count();
    assert_eq!(bars, 3, "{text}");
    for words in [
        "window 0x",
        "code 0x",
        "read-only 0x",
        "data 0x",
        "|aaaa",
        "module\u{fffd}.o (main, tracker ",
        "fragmentation",
        "fragmented",
    ] {
        assert!(text.contains(words), "{words} is not in\n{text}");
    }
    for line in text.lines().filter(|line| line.matches('|').count() == 2) {
        assert_eq!(line.split('|').nth(1).unwrap().chars().count(), 64, "{line}");
    }
}

#[test]
fn the_svg_is_well_formed_small_and_names_every_module() {
    let Some(object) = c("long state = 3; long test(void) { return state; }") else { return };
    let jit = new_jit();
    let mut trackers = Vec::new();
    for index in 0..3000 {
        let name = if index % 2 == 0 { "even & <odd>" } else { "odd \u{1} \"dylib\"" };
        let dylib = jit.create_dylib(name).unwrap();
        trackers.push(add(&jit, &dylib, &format!("module{index}.o"), &object));
        jit.address_of(&dylib, "test").unwrap();
    }
    let large = jit.memory_map().unwrap().to_svg();
    assert_well_formed(&large);
    assert!(large.len() < 1 << 20, "{} bytes for 3000 modules", large.len());
    assert!(large.contains("allocations, "), "narrow ranges are drawn as one");
    for tracker in trackers.drain(3..) {
        assert!(tracker.remove().unwrap().is_complete());
    }
    let small = jit.memory_map().unwrap().to_svg();
    assert_well_formed(&small);
    for words in ["module0.o", "module1.o", "module2.o", "even &amp; &lt;odd&gt;", "odd \u{fffd} &quot;dylib&quot;"] {
        assert!(small.contains(words), "{words} is not in\n{small}");
    }
    let pool = SlabPool::new(SlabPoolOptions { window_size: 64 << 20, ..Default::default() }).unwrap();
    assert_well_formed(&pool.memory_map().unwrap().to_svg());
    assert_well_formed(&MemoryMap::default().to_svg());
}

/// Checks that tags are balanced, that attributes are quoted, and that text and attributes have no character that XML forbids.
fn assert_well_formed(xml: &str) {
    let is_clean = |text: &str| {
        let entities = ["amp;", "lt;", "gt;", "quot;"];
        let has_stray = text.split('&').skip(1).any(|rest| !entities.iter().any(|entity| rest.starts_with(entity)));
        !has_stray && !text.contains('<') && !text.chars().any(|c| c.is_control() && c != '\n')
    };
    let body = xml.strip_prefix("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n").expect("the declaration comes first");
    let mut open: Vec<&str> = Vec::new();
    let mut roots = 0;
    for part in body.split('<').skip(1) {
        let (tag, text) = part.split_once('>').expect("every tag ends");
        assert!(is_clean(text), "{text}");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "closed in order");
            continue;
        }
        let is_empty = tag.ends_with('/');
        let tag = tag.trim_end_matches('/');
        let (name, attributes) = tag.split_once(' ').unwrap_or((tag, ""));
        let mut words: Vec<&str> = attributes.split('"').collect();
        assert_eq!(words.pop().map(str::trim), Some(""), "attributes are quoted: {tag}");
        for pair in words.chunks(2) {
            assert!(pair.len() == 2 && pair[0].ends_with('=') && is_clean(pair[1]), "{tag}");
            assert!(!pair[1].contains("NaN") && !pair[1].contains("inf"), "{tag}");
        }
        roots += usize::from(open.is_empty());
        if !is_empty {
            open.push(name);
        }
    }
    assert!(open.is_empty() && roots == 1, "{open:?} is not closed, {roots} roots");
}

/// `(x, width)` of the rectangles of a document that have this height, fill and opacity.
fn rectangles(svg: &str, height: &str, fill: &str, is_opaque: bool) -> Vec<(f64, f64)> {
    let number = |line: &str, name: &str| -> f64 {
        let from = line.find(&format!(" {name}=\"")).unwrap() + name.len() + 3;
        line[from..].split('"').next().unwrap().parse().unwrap()
    };
    let wanted = |line: &&str| {
        line.contains(&format!(" height=\"{height}\""))
            && line.contains(&format!(" fill=\"{fill}\""))
            && line.contains("fill-opacity") != is_opaque
    };
    svg.lines().filter(wanted).map(|line| (number(line, "x"), number(line, "width"))).collect()
}

/// Pools open from the end.
#[test]
fn the_svg_shows_the_open_part_of_a_pool_where_it_lies() {
    let memory = SlabPool::new(SlabPoolOptions { window_size: 64 << 20, ..Default::default() }).unwrap();
    let _live = make(&memory, &plan(2 << 20, 0, (0, 0)));
    let svg = memory.memory_map().unwrap().to_svg();
    let (code, open) = (rectangles(&svg, "22.00", "#3f6fb5", false), rectangles(&svg, "22.00", "#3f6fb5", true));
    let ([(x, width)], [(open_x, open_width)]) = (&code[..], &open[..]) else { panic!("{code:?} {open:?}") };
    // 2 MiB of 32 MiB of code are open.
    assert!((open_width - width / 16.0).abs() < 0.1, "{code:?} {open:?}");
    assert!((open_x + open_width - (x + width)).abs() < 0.1, "{code:?} {open:?}");
}
