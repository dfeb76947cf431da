//! What a live small module costs in memory, everything included, and what is left when all are gone.
//!
//! `cargo bench --bench resident -- [MODULES]` links so many instances (100,000 unless told otherwise) of a small C object
//! into one dylib, each under a tracker of its own and with names of its own, all calling into one runtime library. Needs
//! gcc.

#[path = "field/resident.rs"]
mod resident;

use std::process::Command;

use jittison::Jit;
use resident::Resident;

/// Functions of the size that a query compiler makes: five, a table, a variable, two callees elsewhere.
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

/// What a module of six symbols and one dependency may take beside its content, in bytes.
const TARGET: u64 = 3_200 - 1_872;

fn main() {
    let count = std::env::args().skip(1).find_map(|arg| arg.parse().ok()).unwrap_or(100_000);
    let (Some(module), Some(runtime)) = (compile(MODULE), compile(RUNTIME)) else {
        return println!("skipped: needs gcc");
    };
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
    let each = |bytes: u64| bytes / count as u64;
    let more = (full.bytes - before.bytes).max(0.0) as u64;
    println!("{count} modules of {} bytes, {} of content", module.len(), each(statistics.live_bytes));
    println!("  resident, everything included   {:>6} bytes each", each(more));
    let beside = each(more).saturating_sub(each(statistics.live_bytes));
    println!("  beside the content              {beside:>6} (target {TARGET}: 1.9 KB of content in 3.2 KB)");
    println!("  of that code memory             {:>6}", each(statistics.resident_bytes + statistics.frame_table_bytes));
    println!("  mappings, of all                {:>6}", full.mappings - before.mappings);
    for tracker in &trackers {
        assert!(tracker.remove().unwrap().is_complete());
    }
    drop(trackers);
    jit.release_free();
    println!("after removing all: {:+} KiB", before.grown().unwrap() as i64 >> 10);
}

fn compile(source: &str) -> Option<Vec<u8>> {
    let dir = std::env::temp_dir().join(format!("jittison-bench-{}", std::process::id()));
    std::fs::create_dir_all(&dir).ok()?;
    let (from, to) = (dir.join("source.c"), dir.join("object.o"));
    std::fs::write(&from, source).ok()?;
    let built = Command::new("gcc").args(["-O3", "-fPIC", "-c", "-o"]).arg(&to).arg(&from).status();
    let object = built.is_ok_and(|status| status.success()).then(|| std::fs::read(&to).ok()).flatten();
    let _ = std::fs::remove_dir_all(&dir);
    object
}

/// The object with names of its own.
fn instance(module: &[u8], number: usize) -> Vec<u8> {
    let (old, new) = (b"M00000000", format!("M{number:08}"));
    let mut bytes = module.to_vec();
    let places: Vec<usize> = (0..bytes.len() - old.len()).filter(|at| bytes[*at..].starts_with(old)).collect();
    for at in places {
        bytes[at..at + old.len()].copy_from_slice(new.as_bytes());
    }
    bytes
}
