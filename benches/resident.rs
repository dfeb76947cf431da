//! Measures the resident memory of a small live module, and what stays resident after all modules are removed.
//!
//! `cargo bench --bench resident -- [MODULES]` links this many instances (default: 100,000) of a small C object into
//! one dylib. Each has unique names and a tracker of its own. All call the same runtime library. The figures include
//! everything: code, tables, and the heap. Needs gcc.

use jittison::Jit;
use jittison_test_support::bench::resident::Resident;
use jittison_test_support::gcc;

/// Five functions of the size that a query compiler makes, a table, a variable, and two callees in the runtime library.
const MODULE: &str = r#"
    extern long rt_hash(const char *, long); extern void rt_emit(long);
    long M00000000_seed = 17; static long hits;
    static const short weights[24] = { 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610, 987 };
    long M00000000_filter(const long *rows, long count) {
        long kept = 0;
        for (long row = 0; row < count; row++)
            if (rows[row] % 7 != M00000000_seed % 7 && (rows[row] ^ count) & 3) kept += weights[rows[row] & 15];
        return kept;
    }
    long M00000000_compare(const char *left, const char *right, long length) {
        for (long at = 0; at < length; at++)
            if (left[at] != right[at]) return left[at] < right[at] ? -1 : 1;
        return 0;
    }
    long M00000000_parse(const char *text) {
        long value = 0, sign = 1;
        for (; *text == ' ' || *text == '-'; text++) if (*text == '-') sign = -sign;
        for (; *text >= '0' && *text <= '9'; text++) value = value * 10 + *text - '0';
        return sign * value;
    }
    long M00000000_probe(const char *key, long length) {
        long slot = rt_hash(key, length) & 1023;
        for (long step = 0; step < 8; step++) if (weights[(slot + step) % 24] == (slot & 63)) { hits++; return step; }
        rt_emit(slot);
        return -1;
    }
    long M00000000_run(const long *rows, long count, const char *key) {
        long found = M00000000_probe(key, 5);
        if (found < 0) found = M00000000_parse(key);
        return M00000000_filter(rows, count) * 31 + found + M00000000_compare(key, "query", 5) + hits;
    }
"#;

const RUNTIME: &str = "long rt_hash(const char *s, long n) { long h = 5381; while (n--) h = h * 33 + *s++; return h; }
    long emitted; void rt_emit(long value) { emitted += value; }";

/// The most bytes that a module of six symbols and one dependency may use in addition to its contents.
const TARGET: u64 = 3_200 - 1_872;

fn main() {
    let count = std::env::args().skip(1).find_map(|arg| arg.parse().ok()).unwrap_or(100_000);
    let (Some(module), Some(runtime)) = (compile(MODULE), compile(RUNTIME)) else { return };
    let jit = Jit::builder().trap_freed_code(false).build().unwrap();
    let runtime_tracker = jit.main_dylib().create_tracker().unwrap();
    jit.add_object(&runtime_tracker, "runtime.o", runtime).unwrap();
    let link = |number: usize| {
        let tracker = jit.main_dylib().create_tracker().unwrap();
        jit.add_object(&tracker, "module.o", instance(&module, number)).unwrap();
        jit.address_of(jit.main_dylib(), &format!("M{number:08}_run")).unwrap();
        tracker
    };
    link(0).remove().unwrap();
    jit.release_free();
    let before = Resident::measure().unwrap();
    let trackers: Vec<_> = (0..count).map(link).collect();
    let full = Resident::measure().unwrap();
    let statistics = jit.memory_statistics();
    let per_module = |bytes: u64| bytes / count as u64;
    let grown = (full.bytes - before.bytes).max(0.0) as u64;
    println!("{count} modules of {} bytes, {} of contents", module.len(), per_module(statistics.live_bytes));
    println!("  resident bytes per module       {:>6}", per_module(grown));
    let additional = per_module(grown).saturating_sub(per_module(statistics.live_bytes));
    println!("  in addition to the contents     {additional:>6} (target {TARGET}: 1.9 KB of contents in 3.2 KB)");
    println!(
        "  of these, code memory           {:>6}",
        per_module(statistics.resident_bytes + statistics.frame_table_bytes)
    );
    println!("  mappings, for all modules       {:>6}", full.mappings - before.mappings);
    for tracker in &trackers {
        assert!(tracker.remove().unwrap().is_complete());
    }
    drop(trackers);
    jit.release_free();
    println!("resident after removing all: {:+} KiB", before.grown().unwrap() as i64 >> 10);
}

fn compile(source: &str) -> Option<Vec<u8>> {
    gcc(&["-O3", "-fPIC"], source)
}

/// A copy of the object with unique names.
fn instance(module: &[u8], number: usize) -> Vec<u8> {
    let (old, new) = (b"M00000000", format!("M{number:08}"));
    let mut bytes = module.to_vec();
    let offsets: Vec<usize> = (0..bytes.len() - old.len()).filter(|at| bytes[*at..].starts_with(old)).collect();
    for at in offsets {
        bytes[at..at + old.len()].copy_from_slice(new.as_bytes());
    }
    bytes
}
