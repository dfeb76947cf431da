//! The totals of trackers, dylibs and the session are equal at every step, and the session's total matches the memory that the
//! kernel reports.

use fastrand::Rng;
use std::collections::HashMap;

use jittison::base::SegmentKind;
use jittison::memory::{MemoryManager, MemoryUsage, SlabPool, SlabPoolOptions};
use jittison::session::Alias;
use jittison::{Jit, JitDylib, ResourceTracker};

use crate::slab::{make, plan};
use crate::support::*;

/// An object whose function name contains a number, so that many of them can be linked into one dylib.
#[derive(Clone)]
struct Numbered {
    bytes: Vec<u8>,
    /// The positions of the name in `bytes`.
    name_positions: Vec<usize>,
}

const PATTERN: &str = "f00000000";

impl Numbered {
    fn new(rest: &str) -> Option<Numbered> {
        let rest = rest.replace("USED", "static __attribute__((used))");
        let source = format!("long {PATTERN}(void) {{ return 1; }} {rest}");
        let flags = ["-O2", "-fPIC", "-fno-asynchronous-unwind-tables"];
        let bytes = gcc(&flags, &source)?;
        let name_positions = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(PATTERN.as_bytes())).collect();
        Some(Numbered { bytes, name_positions })
    }

    /// Links the object with this number and returns the function's name.
    fn link(&mut self, jit: &Jit, tracker: &ResourceTracker, number: usize) -> String {
        let name = format!("f{number:08}");
        for at in &self.name_positions {
            self.bytes[*at..*at + name.len()].copy_from_slice(name.as_bytes());
        }
        jit.add_object(tracker, "numbered.o", self.bytes.clone()).unwrap();
        jit.address_of(&tracker.dylib(), &name).unwrap();
        name
    }
}

/// Checks that the totals of trackers, dylibs and the session are equal.
fn check(jit: &Jit, dylibs: &[JitDylib], trackers: &[ResourceTracker]) {
    let mut session = MemoryUsage::default();
    for dylib in dylibs {
        let own = trackers.iter().filter(|tracker| tracker.dylib() == *dylib).cloned();
        let own = own.chain([dylib.default_tracker().unwrap()]);
        let by_tracker: MemoryUsage = own.map(|tracker| jit.usage(&tracker)).sum();
        assert_eq!(jit.usage_of_dylib(dylib), by_tracker);
        session += by_tracker;
    }
    let total = jit.memory_statistics();
    assert_eq!((session.allocations as usize, session.requested()), (total.allocations, total.live_bytes));
    assert_eq!(session.reserved, total.reserved_bytes);
    let by_pool = total.pools.map(|pool| pool.requested);
    assert_eq!([session.code, session.read_only, session.data], by_pool);
    assert!(session.metadata <= total.metadata_bytes);
}

#[test]
fn totals_of_trackers_dylibs_and_session_agree_through_ten_thousand_random_steps() {
    let sources = ["", "USED long data[77] = { 2 };", "USED char zero[3000]; USED const char text[300] = \"x\";"];
    let mut objects: Vec<_> = sources.iter().filter_map(|source| Numbered::new(source)).collect();
    if objects.len() < sources.len() {
        return;
    }
    let jit = new_jit();
    let names = ["a", "b", "c"];
    let dylibs: Vec<_> = names.iter().map(|name| jit.create_dylib(name).unwrap()).collect();
    let mut trackers: Vec<ResourceTracker> = Vec::new();
    let mut done: HashMap<&str, usize> = HashMap::new();
    let mut random = Rng::with_seed(0x2545_f491_4f6c_dd1d);
    for step in 0..10_000 {
        let kind = if trackers.len() < 6 { "tracker" } else { STEPS[random.usize(..STEPS.len())] };
        *done.entry(kind).or_default() += 1;
        let which = random.usize(..trackers.len().max(1));
        match kind {
            "tracker" => trackers.push(dylibs[random.usize(..dylibs.len())].create_tracker().unwrap()),
            "link" => {
                let object = random.usize(..objects.len());
                objects[object].link(&jit, &trackers[which], step);
            }
            "stub" => {
                jit.create_stub(&trackers[which], &format!("stub{step}"), jittison::base::ExecutorAddr::new(8)).unwrap()
            }
            "lazy" => {
                let alias = Alias {
                    name: format!("lazy{step}").into(),
                    aliasee: "nothing".into(),
                    flags: jittison::session::SymbolFlags::EXPORTED,
                };
                jit.lazy_reexport(&trackers[which], &dylibs[0], &[alias]).unwrap();
            }
            "transfer" => {
                let of = trackers[which].dylib();
                let other = trackers.iter().find(|other| other.dylib() == of && other.key() != trackers[which].key());
                if let Some(other) = other {
                    let (source, before) = (trackers[which].clone(), jit.usage(other));
                    let both = [before, jit.usage(&source)].into_iter().sum::<MemoryUsage>();
                    source.transfer_to(other).unwrap();
                    assert_eq!((jit.usage(other), jit.usage(&source)), (both, MemoryUsage::default()));
                    trackers.swap_remove(which);
                }
            }
            "remove" => {
                assert!(trackers.swap_remove(which).remove().unwrap().is_complete());
            }
            // The code moves to the default tracker.
            "drop" => drop(trackers.swap_remove(which)),
            "default" => drop(dylibs[random.usize(..dylibs.len())].default_tracker().unwrap().remove().unwrap()),
            _ => {
                let dylib = &dylibs[random.usize(..dylibs.len())];
                assert!(dylib.clear().unwrap().is_empty());
                trackers.retain(|tracker| tracker.dylib() != *dylib);
                assert_eq!(jit.usage_of_dylib(dylib), MemoryUsage::default());
            }
        }
        check(&jit, &dylibs, &trackers);
    }
    assert!(STEPS.iter().all(|step| done[step] > 10), "{done:?}");
    for dylib in &dylibs {
        assert!(dylib.clear().unwrap().is_empty());
    }
    check(&jit, &dylibs, &[]);
    assert_eq!((held(&jit), jit.layer().key_count()), ((0, 0, 0), 0));
}

const STEPS: [&str; 20] = [
    "tracker", "tracker", "tracker", "tracker", "link", "link", "link", "link", "link", "link", "link", "stub", "stub",
    "lazy", "transfer", "transfer", "remove", "drop", "default", "clear",
];

#[test]
fn removed_code_that_is_pinned_still_counts_for_its_dylib() {
    let Some(object) = c("long test(void) { return 3; }") else { return };
    let jit = new_jit();
    let tracker = add(&jit, jit.main_dylib(), "object.o", &object);
    let test = function::<extern "C" fn() -> i64>(&jit, "test");
    let before = jit.usage(&tracker);
    assert_eq!(before.allocations, 1);
    assert!(!tracker.remove().unwrap().is_complete());
    assert_eq!(jit.usage_of_dylib(jit.main_dylib()), before);
    drop(test);
    assert_eq!(jit.usage_of_dylib(jit.main_dylib()), MemoryUsage::default());
}

/// The resident bytes of a window as the kernel reports them. Each page counts once, however often it is mapped.
///
/// Sums `Pss` of `/proc/self/smaps` over the mappings in the window and over the working view of its file, which has another
/// address. `Pss` divides a page among its mappings, so the two views of a page count it once. Only this process maps the file.
fn window_pages(base: u64, size: u64) -> u64 {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut is_ours = false;
    let mut kib = 0;
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default();
        if let Some((start, _)) = first.split_once('-') {
            let start = u64::from_str_radix(start, 16).unwrap();
            is_ours = (base..base + size).contains(&start) || line.contains("memfd:jittison");
        } else if first == "Pss:" && is_ours {
            kib += words.next().unwrap().parse::<u64>().unwrap();
        }
    }
    kib << 10
}

/// The resident bytes of the heap and of other private memory.
fn anonymous_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

fn assert_close(reported: u64, measured: u64, percent: u64, what: &str) {
    println!("{what}: {reported} reported, {measured} measured");
    assert!(
        reported.abs_diff(measured) * 100 <= measured * percent,
        "{what}: {reported} reported, {measured} measured"
    );
}

/// Compares `resident_bytes` and `frame_table_bytes` with the resident pages of the window: header and frame table, code and
/// constants (shared memory, mapped twice, counted once), and data (private). The session's heap does not count.
#[test]
fn with_many_modules_the_totals_match_the_kernel_within_ten_percent() {
    own_process!();
    let Some(mut object) = Numbered::new("USED long data = 3; USED const long text = 4;") else {
        return;
    };
    const PER_DYLIB: usize = 1_000;
    let memory = std::sync::Arc::new(SlabPool::new(SlabPoolOptions::default()).unwrap());
    let (base, size) = memory.window();
    let jit = Jit::builder().memory_manager(memory).build().unwrap();
    let pages_before = window_pages(base.value(), size);
    let (mut dylibs, mut trackers) = (Vec::new(), Vec::new());
    // With fewer modules the free ends of the slabs would be more than 10 %.
    for number in 0..rounds(100_000).max(40_000) {
        if number % PER_DYLIB == 0 {
            dylibs.push(jit.create_dylib("some").unwrap());
        }
        let tracker = dylibs[number / PER_DYLIB].create_tracker().unwrap();
        let name = object.link(&jit, &tracker, number);
        // Some modules run, so that both views of their pages are in use.
        if number % 7 == 0 {
            assert_eq!(long_in(&jit, &tracker.dylib(), &name), 1);
        }
        trackers.push(tracker);
    }
    check(&jit, &dylibs, &trackers);
    let total = jit.memory_statistics();
    let pages = window_pages(base.value(), size) - pages_before;
    assert_close(total.resident_bytes + total.frame_table_bytes, pages, 1, "pages of the window");
    // Nearly all of it is reserved by trackers, with padding and slots.
    assert_close(total.reserved_bytes, pages, 10, "bytes reserved by trackers");

    // The totals also agree with one module left.
    let last = trackers.pop();
    for tracker in trackers.drain(..) {
        assert!(tracker.remove().unwrap().is_complete());
    }
    jit.release_free();
    check(&jit, &dylibs, &[last.unwrap()]);
}

#[test]
fn metadata_bytes_match_the_growth_of_the_heap() {
    own_process!();
    const COUNT: usize = 200_000;
    let options = SlabPoolOptions { shards: 1, returns_memory: false, ..Default::default() };
    let memory = SlabPool::new(options).unwrap();
    let mut live = Vec::with_capacity(COUNT);
    let before = anonymous_bytes();
    let mut random = Rng::with_seed(99);
    for _ in 0..COUNT {
        // Without data all private memory is heap. The holes create free ranges, whose records count as well.
        let one = make(&memory, &plan(1 + random.usize(..200) as u64, 1 + random.usize(..200) as u64, (0, 0)));
        if random.usize(..4) > 0 {
            live.push(one);
        }
    }
    let handles = live.len() * size_of_val(&live[0]);
    let grown = anonymous_bytes() - before - handles as u64;
    assert_eq!(memory.statistics().pools[SegmentKind::Data.index()].reserved, 0);
    // Lists count with their capacity, of which not every page is touched yet.
    assert_close(memory.statistics().metadata_bytes, grown, 15, "heap of the metadata");
}
