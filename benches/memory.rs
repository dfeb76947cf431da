//! Measures the code memory without linking:
//!
//! - installing and removing objects, warm and cold, alone and next to another thread;
//! - the space that random allocation and freeing loses;
//! - the number of mappings;
//! - returning memory to the kernel.
//!
//! The slab pool of tvm-ffi is measured in the same run, as a peer.
//!
//! `cargo bench --bench memory` prints medians with the minimum and maximum over rounds, and the targets that are
//! missed. `… -- warm`, `cold` or `space` runs a part of it. Rounds are short: if other programs run on the machine,
//! the median is that of rounds without an interruption.
//!
//! `cargo bench --bench memory -- million` links a million tiny objects, calls some of them, and removes them all. Only
//! this part links and runs code.
//!
//! `jittison_test_support::bench::installed` says what an object is in the other parts.
//!
//! A figure has a few hundred rounds at most, so medians are exact and need no histogram.
//!
//! # The peer
//!
//! The peer is written from a description of tvm-ffi's slab pool:
//!
//! - It reserves 64 MiB, a third of it for code. The unit of allocation is a page.
//! - Free ranges are in a sorted list, with best fit. One lock guards the lists.
//! - Installing an object makes two `mprotect` calls that make its pages writable, zeroes the pages, copies the object,
//!   and makes three `mprotect` calls for the final protections.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use jittison::memory::{MemoryManager, MemoryStatistics, SegmentPlan, SegmentRequest, SlabPool, SlabPoolOptions};
use jittison::{Function, Jit};

use fastrand::Rng;
use jittison_test_support::bench::installed::{CODE, CONSTANTS, copy, install, plan};
use jittison_test_support::bench::resident::Resident;
use jittison_test_support::c;

fn main() {
    let parts: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let is_selected = |part: &str| parts.is_empty() || parts.iter().any(|argument| argument == part);
    if !parts.is_empty() && is_selected("million") {
        return million();
    }
    println!("{:<64}{:>10}{:>10}{:>10}", "nanoseconds per object of 3 KiB, over rounds", "median", "min", "max");
    let mut missed = Missed::default();
    if is_selected("warm") {
        warm(&mut missed);
        removal(&mut missed);
        peer();
    }
    if is_selected("cold") {
        cold(&mut missed);
        purging();
    }
    if is_selected("space") {
        println!();
        space(&mut missed);
        mappings(&mut missed);
    }
    missed.print();
}

// ---- time -------------------------------------------------------------------

fn warm(missed: &mut Missed) {
    let pool = new_pool(0);
    let one = report("install and remove, warm", || install_and_remove(&pool, WARM));
    missed.check("warm, one thread: 300 ns", one, 300.0);
    report("    of that, copying 3 KiB", || {
        let mut into = [[0u8; CODE]; 2];
        timed(WARM, |_| {
            copy(&mut into[0]);
            copy(&mut into[1][..CONSTANTS]);
            copy(&mut into[1][CONSTANTS..2 * CONSTANTS]);
        })
    });
    report("    without writing", || {
        timed(WARM, |_| drop(pool.allocate(&plan()).unwrap().finalize(Vec::new()).unwrap()))
    });
    let live = |pool: &SlabPool| {
        // A thousand live objects. Each round frees a random one before it installs the next.
        let mut rng = Rng::with_seed(5);
        let mut live: Vec<_> = (0..1_000).map(|_| install(pool)).collect();
        timed(WARM, |_| {
            let index = rng.usize(..live.len());
            drop(live.swap_remove(index));
            live.push(install(pool));
        })
    };
    report("install and remove, warm, one of 1,000 live replaced at random", || live(&pool));
    let spun = beside_a_spinning_thread(|| {
        report("install and remove, warm, while another thread spins", || install_and_remove(&pool, WARM))
    });
    missed.check("warm, a second thread running: 500 ns", spun, 500.0);
    report("two threads install and remove, per object of one thread", || {
        on_two_threads(|| install_and_remove(&pool, 20 * WARM))
    });
    report("    the same with a pool for each thread", || {
        let pools = Mutex::new(vec![new_pool(1), new_pool(1)]);
        on_two_threads(|| {
            let pool = pools.lock().unwrap().pop().unwrap();
            install_and_remove(&pool, 20 * WARM)
        })
    });
}

fn removal(missed: &mut Missed) {
    let pool = new_pool(1);
    let removed = report("removal alone, of 2,000 live in random order", || removals(&pool));
    missed.check("removal: 150 ns", removed, 150.0);
}

fn peer() {
    let peer = Peer::new();
    let round = |count| timed(count, |_| peer.remove(peer.install()));
    report("tvm-ffi pattern: install and remove, warm", || round(PEER));
    beside_a_spinning_thread(|| report("tvm-ffi pattern: while another thread spins", || round(PEER)));
    report("tvm-ffi pattern: two threads, per object of one thread", || on_two_threads(|| round(10 * PEER)));
}

fn cold(missed: &mut Missed) {
    let fresh = report("install, fresh pages", || installs(&new_pool(1)));
    missed.check("cold: 4,000 ns", fresh, 4_000.0);
    let prefaulted = report("install, backed pages, none of them in a cache", || {
        let pool = new_pool(1);
        installs(&pool);
        installs(&pool)
    });
    missed.check("prefaulted: 600 ns", prefaulted, 600.0);
    report("tvm-ffi pattern: install, fresh pages", || {
        let peer = Peer::new();
        let mut live = Vec::new();
        timed(COLD_PEER, |_| live.push(peer.install()))
    });
}

fn purging() {
    report("release_free, per MiB", || {
        let pool = new_pool(1);
        installs(&pool);
        let start = Instant::now();
        let released = pool.release_free();
        start.elapsed().as_secs_f64() * 1e9 / (released.bytes as f64 / 1048576.0)
    });
}

fn install_and_remove(pool: &SlabPool, count: usize) -> f64 {
    timed(count, |_| drop(install(pool)))
}

/// Installs more objects than the caches hold. Removing them is not timed.
fn installs(pool: &SlabPool) -> f64 {
    let mut live = Vec::with_capacity(COLD);
    timed(COLD, |_| live.push(install(pool)))
}

fn removals(pool: &SlabPool) -> f64 {
    let mut rng = Rng::with_seed(11);
    let mut live: Vec<_> = (0..2_000).map(|_| install(pool)).collect();
    rng.shuffle(&mut live);
    timed(live.len(), |_| drop(live.pop()))
}

fn beside_a_spinning_thread<R>(work: impl FnOnce() -> R) -> R {
    // On cache lines of its own. Otherwise the spinning thread shares a line with the stack of the measuring thread.
    #[repr(align(128))]
    struct CacheLines(AtomicBool);
    let CacheLines(is_done) = &CacheLines(AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let result = work();
        is_done.store(true, Ordering::Relaxed);
        result
    })
}

fn on_two_threads(work: impl Fn() -> f64 + Sync) -> f64 {
    std::thread::scope(|scope| {
        let threads = [0, 1].map(|_| scope.spawn(&work));
        threads.map(|thread| thread.join().unwrap()).iter().sum::<f64>() / 2.0
    })
}

/// A pool with `shards` shards; 0 means one per processor. It has no background thread and does not fill freed code
/// with traps.
fn new_pool(shards: usize) -> SlabPool {
    let options = SlabPoolOptions { shards, returns_memory: false, trap_freed_code: false, ..Default::default() };
    SlabPool::new(options).unwrap()
}

// ---- space and mappings -----------------------------------------------------

fn space(missed: &mut Missed) {
    println!(
        "space beyond the requested bytes; lognormal sizes with a median of 2 KiB; after 20 replacements per live object"
    );
    for live in [4_000, 20_000] {
        let statistics = churn(live, |size| [size, 0, 0]);
        let resident = overhead(&statistics, statistics.resident_bytes);
        row(&format!("    {live} live, code only"), &format!("{resident:.1} %"));
        missed.check(&format!("space with {live} live: 15 %"), resident, 15.0);
        let statistics = churn(live, |size| [size * 2 / 3, size / 6, size / 6]);
        let resident = overhead(&statistics, statistics.resident_bytes);
        row(&format!("    {live} live, two thirds code, the rest constants and data"), &format!("{resident:.1} %"));
        missed.check(&format!("space with {live} live in three parts: 15 %"), resident, 15.0);
        let with_table = overhead(&statistics, statistics.resident_bytes + statistics.frame_table_bytes);
        row("        with the frame table", &format!("{with_table:.1} %"));
        row("        tables on the heap, per object", &format!("{} B", statistics.metadata_bytes / live as u64));
    }
    println!("    tvm-ffi pattern, complete pages: {:.1} % without any hole, for code only", pages_only());
}

/// The statistics after random allocation and freeing. No page returns to the kernel, so every page that was ever used
/// is resident.
fn churn(live: usize, split: fn(u64) -> [u64; 3]) -> MemoryStatistics {
    let pool = new_pool(1);
    let mut rng = Rng::with_seed(77);
    let allocate = |rng: &mut Rng| {
        let sizes = split(lognormal(rng));
        let request = |size| SegmentRequest { size, align: 16, zero_fill: 0 };
        pool.allocate(&SegmentPlan { segments: sizes.map(request), ..SegmentPlan::default() }).unwrap()
    };
    let mut held: Vec<_> = (0..live).map(|_| allocate(&mut rng)).collect();
    for _ in 0..20 * live {
        let index = rng.usize(..live);
        // Free first, then allocate: the requested bytes stay about the same.
        drop(held.swap_remove(index));
        held.push(allocate(&mut rng));
    }
    pool.statistics()
}

fn overhead(statistics: &MemoryStatistics, bytes: u64) -> f64 {
    (bytes as f64 / statistics.live_bytes as f64 - 1.0) * 100.0
}

fn pages_only() -> f64 {
    let mut rng = Rng::with_seed(77);
    let (mut requested, mut held) = (0, 0);
    for _ in 0..20_000 {
        let size = lognormal(&mut rng);
        requested += size;
        held += size.next_multiple_of(4096);
    }
    (held as f64 / requested as f64 - 1.0) * 100.0
}

fn mappings(missed: &mut Missed) {
    let before = mapped();
    let pool = new_pool(0);
    let live: Vec<_> = (0..100_000).map(|_| install(&pool)).collect();
    let ours = mappings_of_window(&pool);
    row("mappings of the window, at 100,000 live objects", &ours.to_string());
    // These include the mappings of the allocator.
    row("    of the process, since before", &(mapped() as i64 - before as i64).to_string());
    missed.check("mappings: 16", ours as f64, 16.0);
    drop(live);
    drop(pool);
    let before = mapped();
    let peer = Peer::new();
    let live: Vec<_> = (0..4_000).map(|_| peer.install()).collect();
    row("    tvm-ffi pattern, at 4,000 live objects", &(mapped() as i64 - before as i64).to_string());
    drop(live);
}

fn mapped() -> usize {
    Resident::measure().unwrap().mappings as usize
}

/// The mappings in the window and of its working view.
fn mappings_of_window(pool: &SlabPool) -> usize {
    let (base, size) = pool.window();
    let is_ours = |line: &&str| {
        let start = line.split('-').next().and_then(|start| u64::from_str_radix(start, 16).ok()).unwrap_or(0);
        (base.value()..base.value() + size).contains(&start) || line.contains("memfd:jittison")
    };
    std::fs::read_to_string("/proc/self/maps").unwrap().lines().filter(is_ours).count()
}

// ---- the peer ---------------------------------------------------------------

/// The tvm-ffi pattern.
struct Peer {
    base: usize,
    lists: Mutex<[PageList; 2]>,
}

/// Free pages of one part of the slab, sorted by address: `(first, count)`. Pages from `next` to `end` were never used.
struct PageList {
    free: Vec<(usize, usize)>,
    next: usize,
    end: usize,
    committed: BTreeSet<usize>,
}

/// The first page of the code, and the first page of constants and data.
type PeerObject = [usize; 2];

impl Peer {
    fn new() -> Peer {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new reservation at an address that the kernel chooses. It replaces no mapping.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), SLAB + CHUNK, libc::PROT_NONE, flags, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED);
        let base = (base as usize).next_multiple_of(CHUNK);
        // SAFETY: the range lies in the reservation above, which is new.
        unsafe { libc::madvise(base as *mut libc::c_void, SLAB, libc::MADV_HUGEPAGE) };
        let middle = SLAB * 2 / 3 / CHUNK * CHUNK / PAGE;
        let list = |next, end| PageList { free: Vec::new(), next, end, committed: BTreeSet::new() };
        Peer { base, lists: Mutex::new([list(middle, SLAB / PAGE), list(0, middle)]) }
    }

    fn install(&self) -> PeerObject {
        let [code, rest] = {
            let mut lists = self.lists.lock().unwrap();
            [lists[0].allocate(1), lists[1].allocate(2)]
        };
        // The pages have the protection of their last use, so both ranges are made writable.
        self.commit(0, code, 1);
        self.commit(1, rest, 2);
        for (page, count, length) in [(code, 1, CODE), (rest, 1, CONSTANTS), (rest + 1, 1, CONSTANTS)] {
            // SAFETY: the pages lie in the reservation, belong to this object alone, and are writable since `commit`.
            let bytes = unsafe { std::slice::from_raw_parts_mut((self.base + page * PAGE) as *mut u8, count * PAGE) };
            bytes.fill(0);
            copy(&mut bytes[..length]);
        }
        self.protect(code, 1, libc::PROT_READ | libc::PROT_EXEC);
        self.protect(rest, 1, libc::PROT_READ);
        self.protect(rest + 1, 1, libc::PROT_READ | libc::PROT_WRITE);
        [code, rest]
    }

    fn remove(&self, [code, rest]: PeerObject) {
        let mut lists = self.lists.lock().unwrap();
        lists[0].free(code, 1);
        lists[1].free(rest, 2);
    }

    /// Makes pages writable: the entire chunk at its first use, later only the pages.
    fn commit(&self, list: usize, page: usize, count: usize) {
        let chunk = page * PAGE / CHUNK;
        let is_new = self.lists.lock().unwrap()[list].committed.insert(chunk);
        let write = libc::PROT_READ | libc::PROT_WRITE;
        if is_new { self.protect(chunk * CHUNK / PAGE, CHUNK / PAGE, write) } else { self.protect(page, count, write) }
    }

    fn protect(&self, page: usize, count: usize, protection: i32) {
        // SAFETY: the pages lie in the reservation. They belong to the caller, or to no object yet.
        let result =
            unsafe { libc::mprotect((self.base + page * PAGE) as *mut libc::c_void, count * PAGE, protection) };
        assert_eq!(result, 0);
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // SAFETY: `self` is dropped, so no object uses the pages. Up to one chunk of address space around them stays
        // reserved, without access.
        unsafe { libc::munmap(self.base as *mut libc::c_void, SLAB) };
    }
}

impl PageList {
    fn allocate(&mut self, count: usize) -> usize {
        let fitting = self.free.iter().enumerate().filter(|(_, (_, length))| *length >= count);
        if let Some((index, (first, length))) = fitting.min_by_key(|(_, (_, length))| *length).map(|(i, f)| (i, *f)) {
            if length == count {
                self.free.remove(index);
            } else {
                self.free[index] = (first + count, length - count);
            }
            return first;
        }
        let first = self.next;
        assert!(first + count <= self.end, "the slab is full");
        self.next += count;
        first
    }

    fn free(&mut self, first: usize, count: usize) {
        let index = self.free.partition_point(|(start, _)| *start < first);
        self.free.insert(index, (first, count));
        for index in [index + 1, index] {
            if index > 0
                && index < self.free.len()
                && self.free[index - 1].0 + self.free[index - 1].1 == self.free[index].0
            {
                self.free[index - 1].1 += self.free.remove(index).1;
            }
        }
    }
}

// ---- a million --------------------------------------------------------------

/// Links a million modules of one tiny function, each with a tracker of its own.
fn million() {
    const MODULES: usize = 1_000_000;
    const CALLS: usize = 100_000;
    let Some(mut object) = tiny_object() else { return };
    let jit = Jit::builder().returns_memory(false).build().unwrap();
    let print = |what: &str, start: Instant| {
        let statistics = jit.memory_statistics();
        println!(
            "{what:<28}{:>8.2} s   resident {:>7.1} MiB   code memory {:>6.1} MiB   mappings {}",
            start.elapsed().as_secs_f64(),
            Resident::measure().unwrap().bytes / 1048576.0,
            (statistics.resident_bytes + statistics.frame_table_bytes) as f64 / 1048576.0,
            mapped()
        );
    };
    print("empty", Instant::now());
    let before = Resident::measure().unwrap();

    let start = Instant::now();
    let mut trackers = Vec::with_capacity(MODULES);
    for number in 0..MODULES {
        let tracker = jit.main_dylib().create_tracker().unwrap();
        let name = object.numbered(number);
        jit.add_object(&tracker, "tiny.o", object.bytes.clone()).unwrap();
        assert!(!jit.address_of(jit.main_dylib(), &name).unwrap().is_null());
        trackers.push(tracker);
    }
    print("linked a million", start);
    println!("    resident per module: {:.0} B", before.grown().unwrap() / MODULES as f64);

    let start = Instant::now();
    let mut rng = Rng::with_seed(3);
    for _ in 0..CALLS {
        let name = object.numbered(rng.usize(..MODULES));
        // SAFETY: `tiny_object` compiles the function with this signature.
        let function: Function<extern "C" fn(i32) -> i32> = unsafe { jit.lookup(&name) }.unwrap();
        assert_eq!(function.call(5), 47);
    }
    print("called 100,000 of them", start);

    let start = Instant::now();
    for tracker in trackers.drain(..) {
        assert!(tracker.remove().unwrap().is_complete());
    }
    print("removed all", start);
    assert_eq!(jit.memory_statistics().allocations, 0);
    let start = Instant::now();
    jit.release_free();
    print("released free memory", start);
}

struct Tiny {
    bytes: Vec<u8>,
    /// The offsets of the function's name.
    name_offsets: Vec<usize>,
}

impl Tiny {
    /// Writes a name with this number into the object, and returns it.
    fn numbered(&mut self, number: usize) -> String {
        let name = format!("f{number:08}");
        for offset in &self.name_offsets {
            self.bytes[*offset..*offset + name.len()].copy_from_slice(name.as_bytes());
        }
        name
    }
}

fn tiny_object() -> Option<Tiny> {
    let bytes = c("int f00000000(int x) { return x + 42; }")?;
    let name_offsets = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(b"f00000000")).collect();
    Some(Tiny { bytes, name_offsets })
}

// ---- measuring and printing -------------------------------------------------

/// Nanoseconds per operation, over one batch.
fn timed(operations: usize, mut operation: impl FnMut(usize)) -> f64 {
    let start = Instant::now();
    (0..operations).for_each(&mut operation);
    start.elapsed().as_secs_f64() * 1e9 / operations as f64
}

/// Runs rounds of a measurement, after one that does not count, and prints them. Returns the median.
fn report(what: &str, mut round: impl FnMut() -> f64) -> f64 {
    round();
    let started = Instant::now();
    let mut figures: Vec<f64> = Vec::new();
    while figures.len() < ROUNDS || figures.len() < MAX_ROUNDS && started.elapsed() < MAX_TIME {
        figures.push(round());
    }
    figures.sort_by(f64::total_cmp);
    let (median, least, most) = (figures[figures.len() / 2], figures[0], figures[figures.len() - 1]);
    println!("{what:<64}{median:>10.0}{least:>10.0}{most:>10.0}");
    median
}

fn row(what: &str, figure: &str) {
    println!("{what:<64}{figure:>10}");
}

/// The targets that are missed.
#[derive(Default)]
struct Missed(Vec<String>);

impl Missed {
    fn check(&mut self, target: &str, figure: f64, most: f64) {
        if figure > most {
            self.0.push(format!("{target} ({figure:.0})"));
        }
    }

    fn print(&self) {
        match &self.0[..] {
            [] => println!("\nall targets are met"),
            missed => println!("\nmissed targets: {}", missed.join("; ")),
        }
    }
}

/// A random size between 64 bytes and 1 MiB. The median is 2 KiB, and a sixth of the sizes is above 5.4 KiB.
fn lognormal(rng: &mut Rng) -> u64 {
    let mut unit = || 1.0 - rng.f64();
    let normal = (-2.0 * unit().ln()).sqrt() * (std::f64::consts::TAU * unit()).cos();
    (2048.0 * normal.exp()).clamp(64.0, 1048576.0) as u64
}

const ROUNDS: usize = 15;
const MAX_ROUNDS: usize = 501;
const MAX_TIME: Duration = Duration::from_millis(700);
const WARM: usize = 2_000;
const PEER: usize = 100;
const COLD: usize = 20_000;
const COLD_PEER: usize = 4_000;

const PAGE: usize = 4096;
const CHUNK: usize = 2 << 20;
const SLAB: usize = 64 << 20;
