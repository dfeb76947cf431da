//! perf finds the names of linked code, also at addresses that other code used before. These tests read the files record by
//! record and with perf.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jittison::Jit;
use jittison::platform::Profile;

use crate::support::*;

// ---- a reader of jitdumps ---------------------------------------------------

#[derive(Debug)]
struct Load {
    process: u32,
    name: String,
    address: u64,
    code: Vec<u8>,
    /// `.eh_frame` and `.eh_frame_hdr`.
    unwinding: Option<(Vec<u8>, Vec<u8>)>,
    lines: Vec<(u64, u32, String)>,
}

struct Words<'a>(&'a [u8]);

impl<'a> Words<'a> {
    fn take(&mut self, count: usize) -> &'a [u8] {
        let (head, tail) = self.0.split_at(count);
        self.0 = tail;
        head
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take(4).try_into().unwrap())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take(8).try_into().unwrap())
    }

    fn text(&mut self) -> String {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap();
        let text = String::from_utf8(self.take(end).to_vec()).unwrap();
        self.take(1);
        text
    }
}

/// `e_machine` of this architecture.
const MACHINE: u32 = if cfg!(target_arch = "x86_64") { 62 } else { 183 };

/// All load records of a dump. Checks that every record is well-formed and that the records are numbered.
fn loads(dump: &Path) -> Vec<Load> {
    let bytes = std::fs::read(dump).unwrap();
    let mut words = Words(&bytes);
    assert_eq!([words.u32(), words.u32(), words.u32(), words.u32()], [0x4a69_5444, 1, 40, MACHINE]);
    let (_, process, began, flags) = (words.u32(), words.u32(), words.u64(), words.u64());
    assert_eq!(flags, 0);
    let (mut loads, mut numbers) = (Vec::new(), Vec::new());
    let (mut unwinding, mut lines, mut latest) = (None, Vec::new(), began);
    while !words.0.is_empty() {
        let (kind, size, time) = (words.u32(), words.u32(), words.u64());
        assert!(time >= latest, "timestamps ascend");
        latest = time;
        let mut body = Words(words.take(size as usize - 16));
        match kind {
            0 => {
                let (by, _thread, vma, address) = (body.u32(), body.u32(), body.u64(), body.u64());
                let (code_size, number, name) = (body.u64(), body.u64(), body.text());
                assert_eq!((by, vma, code_size), (process, address, body.0.len() as u64));
                numbers.push(number);
                let (unwinding, lines) = (unwinding.take(), std::mem::take(&mut lines));
                loads.push(Load { process, name, address, code: body.0.to_vec(), unwinding, lines });
            }
            2 => {
                let (address, count) = (body.u64(), body.u64());
                lines = (0..count).map(|_| (body.u64(), (body.u32(), body.u32()).0, body.text())).collect();
                assert!(lines.iter().all(|(at, ..)| *at >= address));
                assert!(body.0.len() < 8);
            }
            4 => {
                let (both, header, mapped) = (body.u64(), body.u64(), body.u64());
                assert_eq!(mapped, 0);
                let table = body.take((both - header) as usize).to_vec();
                unwinding = Some((table, body.take(header as usize).to_vec()));
                assert!(body.0.len() < 8);
            }
            other => panic!("record of kind {other}"),
        }
    }
    numbers.sort_unstable();
    assert!(numbers.iter().copied().eq(0..loads.len() as u64), "{numbers:?}");
    loads
}

/// The dump files in the subdirectories of a directory.
fn dumps(base: &Path) -> Vec<PathBuf> {
    let entries = |dir: &Path| -> Vec<PathBuf> {
        std::fs::read_dir(dir).map_or(Vec::new(), |entries| entries.map(|entry| entry.unwrap().path()).collect())
    };
    let files = entries(base).into_iter().flat_map(|dir| entries(&dir));
    files.filter(|file| file.extension().is_some_and(|extension| extension == "dump")).collect()
}

/// Runs a test in its own process with these environment variables.
fn run_alone(test: &str, variables: &[(&str, &str)]) -> std::process::Output {
    let run = rerun(test).envs(variables.iter().copied()).output().unwrap();
    assert_passed(test, &run);
    run
}

#[test]
fn a_dump_has_every_function_with_its_bytes_its_frames_and_its_lines() {
    if !require_x86_64() {
        return;
    }
    let test = this_test!();
    let source = "static __attribute__((noinline)) long dumped_local(long a) {\n return a * 3;\n}\n\
                  long dumped(long a) {\n return dumped_local(a) + 1;\n}\n";
    let assembly = ".text\n.globl unsized_first, unsized_second\nunsized_first: nop; nop; ret\nunsized_second: ret\n";
    if is_rerun(test) {
        let jit = Jit::new().unwrap();
        let object = gcc(&["-g", "-O1", "-fPIC", "-fno-ipa-ra"], source).unwrap();
        let _tracker = add(&jit, jit.main_dylib(), "dumped.o", &object);
        let _assembled = add(&jit, jit.main_dylib(), "assembled.o", &asm(assembly).unwrap());
        let newer =
            gcc(&["-O1", "-fPIC", "-Wa,--gdwarf-cie-version=4"], "long dumped_cie_4(void) { return 4; }").unwrap();
        let _newer = add(&jit, jit.main_dylib(), "newer.o", &newer);
        assert_eq!(long(&jit, "dumped_cie_4"), 4);
        let dumped = function::<extern "C" fn(i64) -> i64>(&jit, "dumped");
        assert_eq!(dumped.call(4), 13);
        function::<extern "C" fn()>(&jit, "unsized_first").call();
        println!("[{:x}]", dumped.address().value());
        println!(
            "[{}]",
            read(dumped.address().value(), 4).iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        );
        return;
    }
    if c("").is_none() {
        return;
    }
    let dir = PrivateDir::new();
    let base = dir.path("dumps");
    let run = run_alone(test, &[("JITTISON_PERF", "jitdump"), ("JITTISON_PERF_DIR", base.to_str().unwrap())]);
    let output = String::from_utf8_lossy(&run.stdout).into_owned();
    let printed: Vec<&str> = output.split(['[', ']']).skip(1).step_by(2).collect();
    let [dump] = &dumps(&base)[..] else { panic!("one dump") };
    let loads = loads(dump);
    assert_eq!(dump.file_name().unwrap().to_str().unwrap(), format!("jit-{}.dump", loads[0].process));
    let by_name: BTreeMap<&str, &Load> = loads.iter().map(|load| (load.name.as_str(), load)).collect();
    assert_eq!(
        by_name.keys().copied().collect::<Vec<_>>(),
        ["dumped", "dumped_cie_4", "dumped_local", "unsized_first", "unsized_second"]
    );
    let dumped = by_name["dumped"];
    assert_eq!(format!("{:x}", dumped.address), printed[0]);
    let code: String = dumped.code[..4].iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(code, printed[1], "the dumped code is fixed up");
    let lines: Vec<u32> = dumped.lines.iter().map(|(_, line, _)| *line).collect();
    assert!(lines.contains(&5) && lines.iter().all(|line| (4..=6).contains(line)), "{lines:?}");
    assert!(dumped.lines.iter().all(|(at, _, file)| {
        (dumped.address..dumped.address + dumped.code.len() as u64).contains(at) && file.ends_with("/input")
    }));
    assert_eq!((by_name["unsized_first"].code.len(), by_name["unsized_second"].code.len()), (3, 1));
    assert!(by_name["unsized_first"].unwinding.is_none());
    for name in ["dumped", "dumped_cie_4", "dumped_local"] {
        check_unwinding(by_name[name]);
    }
}

/// Checks that the unwind tables describe exactly the code. They follow the code at the next multiple of 8.
fn check_unwinding(load: &Load) {
    let (table, header) = load.unwinding.as_ref().unwrap();
    let (code_at, table_at) = (0x8000u64, 0x8000 + (load.code.len() as u64).next_multiple_of(8));
    let header_at = table_at + table.len() as u64;
    let word = |bytes: &[u8], at: usize| i32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let from = |at: u64, distance: i32| at.wrapping_add_signed(distance.into());
    assert_eq!(header[..4], [1, 0x1b, 3, 0x3b]);
    assert_eq!(from(header_at + 4, word(header, 4)), table_at);
    assert_eq!(word(header, 8), 1);
    assert_eq!(from(header_at, word(header, 12)), code_at);
    let fde = (from(header_at, word(header, 16)) - table_at) as usize;
    let cie_length = word(table, 0) as usize;
    assert_eq!(fde, cie_length + 4, "the FDE follows the CIE");
    assert_eq!(word(table, fde + 4) as usize, fde + 4, "the FDE refers to the CIE");
    assert_eq!(from(table_at + fde as u64 + 8, word(table, fde + 8)), code_at);
    assert_eq!(word(table, fde + 12) as usize, load.code.len());
    assert_eq!(&table[table.len() - 4..], [0; 4]);
}

#[test]
fn nothing_is_dumped_by_default_and_the_builder_overrides_the_environment() {
    let test = this_test!();
    let Some(object) = c("long undumped(void) { return 7; }") else { return };
    if is_rerun(test) {
        let builder = Jit::builder();
        let has_profile = std::env::var_os("JITTISON_PERF").is_some();
        let jit = if has_profile { builder.profiler(None) } else { builder }.build().unwrap();
        let _tracker = add(&jit, jit.main_dylib(), "undumped.o", &object);
        assert_eq!(long(&jit, "undumped"), 7);
        return;
    }
    let dir = PrivateDir::new();
    let directory = dir.path("").to_str().unwrap().to_string();
    run_alone(test, &[("JITTISON_PERF", "jitdump"), ("JITTISON_PERF_DIR", &directory)]);
    run_alone(test, &[("JITTISON_PERF", "something else"), ("JITTISON_PERF_DIR", &directory)]);
    run_alone(test, &[("JITTISON_PERF_DIR", &directory)]);
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
}

#[test]
fn the_builder_fails_if_a_profile_cannot_be_written() {
    let test = this_test!();
    if is_rerun(test) {
        let error = Jit::builder().profiler(Some(Profile::JitDump)).build().unwrap_err();
        assert_says(&error, &["/dev/null"]);
        return;
    }
    run_alone(test, &[("JITTISON_PERF_DIR", "/dev/null")]);
}

#[test]
fn sessions_and_forked_children_write_their_own_files_with_complete_records() {
    let test = this_test!();
    let Some(object) = c("long shared_name(void) { return 7; }") else { return };
    if is_rerun(test) {
        let jits = [Jit::new().unwrap(), Jit::new().unwrap()];
        let link = |jit: &Jit, times: usize| {
            for _ in 0..times {
                let dylib = jit.create_dylib("one of many").unwrap();
                let tracker = add(jit, &dylib, "shared.o", &object);
                assert_eq!(long_in(jit, &dylib, "shared_name"), 7);
                assert!(tracker.remove().unwrap().is_complete());
            }
        };
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (jit, link) = (&jits[thread % 2], &link);
                scope.spawn(move || link(jit, 50));
            }
        });
        // SAFETY: the child links and ends. It does not return into the test harness.
        let child = unsafe { libc::fork() };
        if child == 0 {
            link(&jits[0], 3);
            // SAFETY: ends the child here.
            unsafe { libc::_exit(0) }
        }
        let mut status = 0;
        // SAFETY: waits for the child. The kernel writes `status`.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
        link(&jits[0], 1);
        return;
    }
    let dir = PrivateDir::new();
    let directory = dir.path("").to_str().unwrap().to_string();
    run_alone(test, &[("JITTISON_PERF", "jitdump"), ("JITTISON_PERF_DIR", &directory)]);
    let mut counts: Vec<usize> = dumps(Path::new(&directory)).iter().map(|dump| loads(dump).len()).collect();
    counts.sort_unstable();
    assert_eq!(counts, [3, 100, 101]);
}

#[test]
fn a_perf_map_lists_every_function() {
    let test = this_test!();
    // Longer than ten bytes, so that the hexadecimal size differs from the decimal size.
    let Some(object) =
        asm(".globl mapped_name\nmapped_name: mov $7, %eax\n.fill 20, 1, 0x90\nret\n.size mapped_name, 26")
    else {
        return;
    };
    if is_rerun(test) {
        let jit = Jit::new().unwrap();
        let _tracker = add(&jit, jit.main_dylib(), "mapped.o", &object);
        let function = function::<extern "C" fn() -> i64>(&jit, "mapped_name");
        let path = format!("/tmp/perf-{}.map", std::process::id());
        let map = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        assert_eq!(map, format!("{:x} 1a mapped_name\n", function.address().value()));
        return;
    }
    run_alone(test, &[("JITTISON_PERF", "map")]);
}

#[test]
fn a_pipe_in_place_of_the_perf_map_is_refused() {
    // Symptom without this: the builder waited for ever for a reader of the pipe.
    let test = this_test!();
    if is_rerun(test) {
        let path = std::ffi::CString::new(format!("/tmp/perf-{}.map", std::process::id())).unwrap();
        // SAFETY: a C string. The alarm ends the process if it blocks.
        unsafe {
            assert_eq!(libc::mkfifo(path.as_ptr(), 0o600), 0);
            libc::alarm(20);
        }
        let refused = Jit::builder().profiler(Some(Profile::PerfMap)).build().map(drop);
        std::fs::remove_file(path.to_str().unwrap()).unwrap();
        assert_says(&refused.unwrap_err(), &["/tmp/perf-"]);
        return;
    }
    run_alone(test, &[]);
}

#[test]
fn sessions_that_share_a_perf_map_respect_the_file_size_limit_together() {
    // Symptom without this: the kernel ended the process, because each session counted only its own lines.
    let test = this_test!();
    let name = "n".repeat(1000);
    let Some(object) = c(&format!("long {name}(void) {{ return 7; }}")) else { return };
    if is_rerun(test) {
        let jits = [Jit::new().unwrap(), Jit::new().unwrap()];
        let limit = libc::rlimit { rlim_cur: 3500, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: sets a limit of this process, which is this test's own.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) }, 0);
        for round in 0..6 {
            let jit = &jits[round % 2];
            let dylib = jit.create_dylib("one of many").unwrap();
            let _tracker = add(jit, &dylib, "named.o", &object);
            assert_eq!(long_in(jit, &dylib, &name), 7, "links still work");
        }
        let path = format!("/tmp/perf-{}.map", std::process::id());
        let map = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        assert_eq!(map.lines().count(), 3);
        return;
    }
    run_alone(test, &[("JITTISON_PERF", "map")]);
}

// ---- perf -------------------------------------------------------------------

/// Runs perf. Returns whether it succeeded, and its output. Without perf the test is skipped: `None`.
fn perf(args: &[&str], variables: &[(&str, &str)]) -> Option<(bool, String)> {
    let run = require("perf")?.args(args).envs(variables.iter().copied()).output().unwrap();
    let output = String::from_utf8_lossy(&run.stdout).into_owned() + &String::from_utf8_lossy(&run.stderr);
    Some((run.status.success(), output))
}

/// Runs the calling test in its own process under `perf record`, which writes `file`. Returns the output. If perf is missing or
/// not permitted, the test is skipped: `None`.
fn record(test: &str, options: &[&str], file: &str, variables: &[(&str, &str)]) -> Option<String> {
    let program = std::env::current_exe().unwrap().to_str().unwrap().to_string();
    let target = ["-o", file, "--", &program];
    let variables = [variables, &[(OWN_PROCESS, test)]].concat();
    let (works, output) =
        perf(&[&["record", "-e", "cpu-clock"], options, &target, &arguments(test)].concat(), &variables)?;
    assert!(works || !output.contains("panicked"), "{output}");
    let needs = format!("the right to use perf events: {}", output.trim().replace('\n', " "));
    require_that(works, &needs).then_some(output)
}

/// A function `name` that spins. All such objects have the same size, so the second one reuses the address of the first.
fn spinning(name: &str) -> String {
    format!(
        "static __attribute__((noinline)) long {name}_inner(long count) {{
             volatile long sum = 0; for (long i = 0; i < count; i++) sum += i; return sum; }}
         long {name}(long count) {{ return {name}_inner(count) + 1; }}"
    )
}

/// The current time of the clock that perf uses for samples.
fn monotonic_seconds() -> f64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes `now`.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) }, 0);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Runs two functions at the same address, one after the other. Prints the time before each call and after its return.
fn spin_one_after_the_other() {
    let jit = Jit::new().unwrap();
    let mut addresses = Vec::new();
    for (name, count) in [("perf_early", 250_000_000), ("perf_late", 1_000_000_000)] {
        let object = gcc(&["-O2", "-fPIC", "-fno-omit-frame-pointer"], &spinning(name)).unwrap();
        let tracker = add(&jit, jit.main_dylib(), name, &object);
        let spin = function::<extern "C" fn(i64) -> i64>(&jit, name);
        println!("[{}]", monotonic_seconds());
        spin.call(count);
        addresses.push(spin.address());
        drop(spin);
        println!("[{}]", monotonic_seconds());
        assert!(tracker.remove().unwrap().is_complete());
    }
    assert_eq!(addresses[0], addresses[1], "the address is reused");
}

/// The share of samples of each symbol, in percent.
fn shares(report: &str) -> BTreeMap<String, f64> {
    let rows = report.lines().filter(|row| !row.starts_with('#') && !row.trim().is_empty());
    let share = |row: &str| {
        let (share, symbol) = row.trim().split_once('%')?;
        // The first word is the privilege level. Some versions add instructions per cycle after the symbol.
        Some((symbol.split_whitespace().nth(1)?.to_string(), share.parse().ok()?))
    };
    rows.filter_map(share).collect()
}

/// One sample of `perf script -F time,ip,sym`: its time and its frames, innermost first.
#[derive(Debug)]
struct Sample<'a> {
    time: f64,
    names: Vec<&'a str>,
}

impl<'a> Sample<'a> {
    fn parse(text: &'a str) -> Option<Sample<'a>> {
        let mut lines = text.trim().lines();
        let time = lines.next()?.trim().strip_suffix(':')?.parse().ok()?;
        Some(Sample { time, names: lines.filter_map(|frame| frame.split_whitespace().nth(1)).collect() })
    }
}

#[test]
fn perf_attributes_samples_to_the_function_that_was_live_at_their_time() {
    let test = this_test!();
    if is_rerun(test) {
        return spin_one_after_the_other();
    }
    if c("").is_none() {
        return;
    }
    let dir = PrivateDir::new();
    let path = |name: &str| dir.path(name).to_str().unwrap().to_string();
    let (recorded, injected) = (path("perf.data"), path("perf.jit.data"));
    let variables = [("JITTISON_PERF", "jitdump"), ("JITTISON_PERF_DIR", &path("dumps"))];
    let options = ["-k", "mono", "--call-graph", "fp", "-F", "400"];
    let Some(output) = record(test, &options, &recorded, &variables) else { return };
    let moments: Vec<f64> = output.split(['[', ']']).filter_map(|part| part.parse().ok()).collect();
    let &[early_called, early_removed, late_called, late_removed] = moments.as_slice() else { panic!("{output}") };
    let (works, output) = perf(&["inject", "--jit", "-i", &recorded, "-o", &injected], &[]).unwrap();
    assert!(works, "{output}");
    let (works, script) = perf(&["script", "--ns", "-i", &injected, "-F", "time,ip,sym"], &[]).unwrap();
    assert!(works, "{script}");
    let samples: Vec<Sample> = script.split("\n\n").filter_map(Sample::parse).collect();
    for (inner, caller, from, to) in [
        ("perf_early_inner", "perf_early", early_called, early_removed),
        ("perf_late_inner", "perf_late", late_called, late_removed),
    ] {
        let of_inner: Vec<_> = samples.iter().filter(|sample| sample.names.first() == Some(&inner)).collect();
        assert!(of_inner.len() >= 5, "{} samples of {inner}: {script}", of_inner.len());
        let outside = of_inner.iter().find(|sample| sample.time < from || sample.time > to);
        assert!(outside.is_none(), "{inner}, {from} to {to}: {outside:?}");
        // Nothing else runs during that time, except the kernel for short times.
        let all = samples.iter().filter(|sample| (from..to).contains(&sample.time)).count();
        assert!(10 * of_inner.len() > 8 * all, "{} of {all} are named: {script}", of_inner.len());
        // Callers are named by the code that was live at the same time.
        let called = of_inner.iter().filter(|sample| sample.names.get(1) == Some(&caller)).count();
        assert!(10 * called > 9 * of_inner.len(), "{called} of {}: {:?}", of_inner.len(), of_inner[0]);
    }
}

#[test]
fn perf_reads_function_names_from_the_perf_map() {
    let test = this_test!();
    if is_rerun(test) {
        println!("[/tmp/perf-{}.map]", std::process::id());
        return spin_one_after_the_other();
    }
    if c("").is_none() {
        return;
    }
    let dir = PrivateDir::new();
    let recorded = dir.path("perf.data").to_str().unwrap().to_string();
    let Some(output) = record(test, &["-F", "200"], &recorded, &[("JITTISON_PERF", "map")]) else { return };
    let (works, report) = perf(&["report", "--stdio", "-i", &recorded, "--sort", "symbol"], &[]).unwrap();
    let map = output.split(['[', ']']).find(|part| part.starts_with("/tmp/perf-")).unwrap();
    std::fs::remove_file(map).unwrap();
    assert!(works, "{report}");
    let named: f64 = shares(&report).iter().filter(|(name, _)| name.starts_with("perf_")).map(|(_, share)| share).sum();
    assert!(named > 80.0, "{report}");
}
