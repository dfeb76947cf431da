//! Measures operations on structures that are large, by shape and size: a cost that grows with the size is a defect, and so is an
//! operation for which other threads wait long.
//!
//! `cargo bench --bench shapes` prints, for each shape, the time for each element at three sizes, and the longest time that an
//! operation of another thread took meanwhile: the lowest over some rounds, because the machine interrupts threads too. That
//! thread creates a tracker that refers to another one and removes it, in a dylib of its own or in the dylib of the shape.
//! Compare figures of the same run only.
//!
//! `-- WORD` runs the shapes whose names contain the word, `-- WORD SIZE…` at these sizes. `-- --record` runs all and writes
//! `docs/shapes.md`.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use jittison::Jit;
use jittison::base::{ExecutorAddr, Name};
use jittison::session::{ExecutionSession, ResourceTracker, SymbolFlags};

mod code;
mod names;
mod trackers;

const SIZES: [usize; 3] = [1_000, 10_000, 100_000];

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench").peekable();
    let records = arguments.next_if(|argument| argument == "--record").is_some();
    let word = arguments.next().unwrap_or_default();
    let chosen: Vec<usize> = arguments.filter_map(|size| size.parse().ok()).collect();
    let sizes = if chosen.is_empty() { SIZES.to_vec() } else { chosen };
    let shapes = [trackers::SHAPES, names::SHAPES, code::SHAPES].concat();
    let mut table = String::new();
    println!(
        "{:<66}{}",
        "shape",
        sizes.iter().map(|size| format!("{size:>9}")).collect::<String>() + "   others wait, us"
    );
    for (name, shape) in shapes.iter().filter(|(name, _)| name.contains(&word)) {
        let rows = measure(*shape, &sizes);
        let cell = |row: &Option<Row>| row.as_ref().map_or("-".to_string(), |row| format!("{:.0}", row.each_ns));
        let waits = rows.iter().flatten().last().map_or([0.0; 2], |row| row.waits_us);
        let each: String = rows.iter().map(|row| format!("{:>9}", cell(row))).collect();
        println!("{name:<66}{each}{:>9.0}{:>9.0}", waits[0], waits[1]);
        let each: String = rows.iter().map(|row| format!(" {} |", cell(row))).collect();
        writeln!(table, "| {name} |{each} {:.0} | {:.0} |", waits[0], waits[1]).unwrap();
    }
    if records {
        let text = include_str!("head.md").to_string() + &table;
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/shapes.md"), text).unwrap();
    }
}

/// What was measured at one size.
struct Row {
    each_ns: f64,
    /// The longest waits of another thread: in a dylib of its own, and in the dylib of the shape.
    waits_us: [f64; 2],
}

/// A row for each size. Sizes that would take long are left out.
fn measure(shape: Shape, sizes: &[usize]) -> Vec<Option<Row>> {
    let mut is_slow = false;
    let row = |size: &usize| {
        if is_slow {
            return None;
        }
        let [(taken, own), (_, same)] = ["others", "shape"].map(|place| quietest(place, shape, *size));
        is_slow = taken > SLOW;
        let each_ns = taken.as_secs_f64() * 1e9 / *size as f64;
        Some(Row { each_ns, waits_us: [own, same].map(|longest| longest.as_secs_f64() * 1e6) })
    };
    sizes.iter().map(row).collect()
}

/// The shortest time of a shape, and the lowest of the longest waits, over some rounds.
fn quietest(place: &'static str, shape: Shape, size: usize) -> (Duration, Duration) {
    let round = |_| {
        let jit = Arc::new(Jit::new().unwrap());
        let prepared = shape(&jit, size);
        beside_others(jit.session(), place, prepared)
    };
    let rounds = if size > 20_000 { 2 } else { 3 };
    (0..rounds).map(round).reduce(|a, b| (a.0.min(b.0), a.1.min(b.1))).unwrap()
}

/// A shape that takes so long is not measured at larger sizes.
const SLOW: Duration = Duration::from_secs(2);

/// What is measured. Everything else was done before.
type Prepared = Box<dyn FnOnce()>;
type Shape = fn(&Arc<Jit>, usize) -> Prepared;

const ADDRESS: ExecutorAddr = ExecutorAddr::new(8);

fn remove(tracker: &ResourceTracker) {
    drop(tracker.remove().unwrap());
}

fn symbols(indices: std::ops::Range<usize>) -> impl Iterator<Item = (Name, ExecutorAddr, SymbolFlags)> {
    indices.map(|index| (name_of(index), ADDRESS, SymbolFlags::EXPORTED))
}

fn name_of(index: usize) -> Name {
    Name::new(&format!("symbol {index}"))
}

/// Runs `body`, and returns its time and the longest time of another thread's operation meanwhile, in the dylib `place`.
fn beside_others(session: &ExecutionSession, place: &'static str, body: Prepared) -> (Duration, Duration) {
    let (is_ready, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let library = session.create_dylib("library").unwrap();
            let existing = session.dylibs().into_iter().find(|dylib| dylib.name() == place);
            let dylib = existing.unwrap_or_else(|| session.create_dylib(place).unwrap());
            let ((_library, symbol), name) = (trackers::load(&library, 0, Vec::new()), Name::new("other"));
            let mut longest = Duration::ZERO;
            while !is_over.load(Ordering::Relaxed) {
                let start = Instant::now();
                if let Ok((tracker, _)) = trackers::try_load(&dylib, &name, vec![symbol.clone()]) {
                    remove(&tracker);
                }
                longest = longest.max(start.elapsed());
                if !is_ready.swap(true, Ordering::Relaxed) {
                    longest = Duration::ZERO;
                }
            }
            longest
        });
        while !is_ready.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
        let start = Instant::now();
        body();
        let taken = start.elapsed();
        is_over.store(true, Ordering::Relaxed);
        (taken, other.join().unwrap())
    })
}
