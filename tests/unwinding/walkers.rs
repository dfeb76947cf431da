//! Everybody who walks the stack finds the same frames: LLVM's unwinder, the `backtrace` crate, the standard library, the C
//! library, gdb and perf.

use std::cell::RefCell;
use std::ffi::c_void;
use std::path::Path;
use std::process::{Command, Stdio};

use jittison::Jit;

use crate::frames::frame_of;
use crate::host::*;
use crate::support::*;

/// Where LLVM's unwinder is installed.
fn llvm_unwinder() -> Option<&'static str> {
    const PLACES: [&str; 3] = [
        "/usr/lib/x86_64-linux-gnu/libunwind.so.1",
        "/usr/lib/llvm-19/lib/libunwind.so.1",
        "/usr/lib64/libunwind.so.1",
    ];
    let found = PLACES.into_iter().find(|place| Path::new(place).exists());
    if found.is_none() {
        skip("LLVM's libunwind.so.1 (libunwind-19)");
    }
    found
}

#[test]
fn all_that_crosses_under_libgcc_crosses_under_llvm_s_unwinder() {
    if is_llvm() {
        return;
    }
    let Some(library) = llvm_unwinder() else { return };
    let run = this_program()
        .args(["--skip", "gdb", "--skip", "perf", "--skip", "static_programs", "--nocapture"])
        .env("LD_PRELOAD", library)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{told}\n{}", String::from_utf8_lossy(&run.stderr));
    pass_skips_on(&String::from_utf8_lossy(&run.stderr));
    assert!(told.contains("the unwinder is") && told.contains("libunwind.so.1"), "{told}");
}

#[test]
fn the_unwinder_is_told() {
    println!("the unwinder is {}", unwinder());
}

thread_local! {
    /// What each walker saw, by name.
    static SEEN: RefCell<Vec<(&'static str, Vec<u64>)>> = const { RefCell::new(Vec::new()) };
    static TEXT: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Called by linked code, which the walkers have to find their way through.
extern "C" fn walk(x: i64) -> i64 {
    let mut crate_s = Vec::new();
    backtrace::trace(|frame| {
        crate_s.push(frame.ip() as u64);
        true
    });
    let mut c_library_s = [0u64; 200];
    // SAFETY: the C library writes no more than it is told that there is room for.
    let count = unsafe { libc::backtrace(c_library_s.as_mut_ptr().cast::<*mut c_void>(), 200) };
    SEEN.with_borrow_mut(|seen| {
        seen.push(("the backtrace crate", crate_s));
        seen.push(("the C library", c_library_s[..count as usize].to_vec()));
    });
    TEXT.set(std::backtrace::Backtrace::force_capture().to_string());
    x
}

const CHAIN: [&str; 2] = [
    "extern long walk(long); __attribute__((noinline)) long inner(long x) { return walk(x) + 1; }
     __attribute__((noinline)) long middle(long x) { return inner(x) * 3; }",
    "extern long middle(long); long outer(long x) { return middle(x) - 1; }",
];

/// Two modules, which call what is called `walk`.
fn chain(walk: extern "C" fn(i64) -> i64, flag: &str) -> Option<Jit> {
    let jit = new_jit();
    define_absolute(jit.main_dylib(), "walk", walk as *const () as u64);
    for source in CHAIN {
        let tracker = add(&jit, jit.main_dylib(), "chain.o", &gcc(&["-O2", "-fPIC", flag], source)?);
        // What it has goes to the dylib's default tracker.
        drop(tracker);
    }
    Some(jit)
}

/// Where the chain's functions begin, innermost first.
fn starts(jit: &Jit) -> [u64; 3] {
    ["inner", "middle", "outer"].map(|name| jit.address_of(jit.main_dylib(), name).unwrap().value())
}

#[test]
fn backtraces_lead_through_linked_frames_to_whoever_called_them() {
    let Some(jit) = chain(walk, "-fomit-frame-pointer") else { return };
    let outer = function::<extern "C" fn(i64) -> i64>(&jit, "outer");
    assert_eq!(outer.call(5), 17);
    let starts = starts(&jit);
    let here = backtraces_lead_through_linked_frames_to_whoever_called_them as *const () as u64;
    for (walker, frames) in SEEN.take() {
        // Functions of this chain are short, and stand apart.
        let place = |start: u64| frames.iter().position(|ip| (start..start + 32).contains(ip));
        let places = starts.map(place);
        let first = places[0].unwrap_or_else(|| panic!("{walker}: {frames:x?}, {starts:x?}"));
        assert_eq!(places, [Some(first), Some(first + 1), Some(first + 2)], "{walker}");
        // The host's frames are beyond: this function among them.
        let beyond = frames[first + 3..].iter().filter_map(|ip| frame_of(ip.saturating_sub(1))).collect::<Vec<_>>();
        assert!(beyond.len() > 3 && beyond.iter().any(|start| here.abs_diff(*start) < 4096), "{walker}: {beyond:x?}");
    }
    // Linked frames have no names for it, and do not end it.
    let text = TEXT.take();
    let unnamed = text.matches("<unknown>").count();
    assert!(unnamed >= 3, "{text}");
    assert!(text.contains("backtraces_lead_through_linked_frames"), "{text}");
}

/// In the first slab of a fresh session; below it nothing is open.
#[test]
fn backtraces_end_in_code_without_frames_that_stands_lowest() {
    // Assembled ahead of the function with frames, by which its granules' slots are filled.
    let source = "long walked(long); long described(long x) { return walked(x) + 1; }
        __asm__(\".text\\n.globl bare\\n.type bare, @function\\nbare: push %rbx; call *walked@GOTPCREL(%rip); pop %rbx; ret\");";
    let Some(object) = gcc(&["-O2", "-fPIC", "-fexceptions"], source) else { return };
    let jit = new_jit();
    define_absolute(jit.main_dylib(), "walked", walk as *const () as u64);
    add(&jit, jit.main_dylib(), "bare.o", &object);
    let bare = function::<extern "C" fn(i64) -> i64>(&jit, "bare");
    assert_eq!(bare.address().value() % (2 << 20), 0, "it stands at the start of a slab");
    bare.call(5);
    for (walker, frames) in SEEN.take() {
        let linked =
            frames.iter().filter(|ip| (bare.address().value()..bare.address().value() + 16).contains(ip)).count();
        assert!(linked <= 1, "{walker}: {frames:x?}");
    }
    TEXT.take();
}

/// Where gdb stops, and perf looks.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn jittison_test_stops_here(x: i64) -> i64 {
    std::hint::black_box(x)
}

// Whence gdb's test enters linked code: a frame of the host's with a name and a frame pointer, whatever is optimised. Calls the
// function at its first argument with its second.
std::arch::global_asm!(
    ".globl jittison_test_calls_from_here",
    ".type jittison_test_calls_from_here, @function",
    "jittison_test_calls_from_here:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "mov rax, rdi",
    "mov rdi, rsi",
    "call rax",
    "pop rbp",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    ".size jittison_test_calls_from_here, . - jittison_test_calls_from_here",
);

unsafe extern "C" {
    fn jittison_test_calls_from_here(function: extern "C" fn(i64) -> i64, x: i64) -> i64;
}

/// What a tool says of this program running one test; `None` without the tool.
fn watched(tool: &str, args: &[&str], test: &str) -> Option<String> {
    let mut command = Command::new(tool);
    command.args(args);
    let run = rerun_below(command, test).env_remove("DEBUGINFOD_URLS").stdin(Stdio::null()).output();
    match run {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            skip(tool);
            None
        }
        run => {
            let run = run.unwrap();
            let told = format!("{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
            assert!(run.status.success(), "{told}");
            Some(told)
        }
    }
}

#[test]
fn gdb_finds_its_way_past_linked_frames_and_has_no_complaint_about_a_window() {
    let test = this_test!();
    if is_rerun(test) {
        let Some(jit) = chain(jittison_test_stops_here, "-fno-omit-frame-pointer") else { return };
        println!("linked at {:x?}", starts(&jit));
        let outer = function::<extern "C" fn(i64) -> i64>(&jit, "outer");
        // SAFETY: the handle holds the function, which is of that signature.
        assert_eq!(unsafe { jittison_test_calls_from_here(outer.as_ptr(), 5) }, 17);
        return println!("all is well");
    }
    let commands = [
        "set width 0",
        "break jittison_test_stops_here",
        "run",
        "backtrace 8",
        "info sharedlibrary",
        "delete",
        "continue",
    ];
    let mut args = vec!["-nx", "-batch", "-iex", "set auto-load off"];
    args.extend(commands.iter().flat_map(|command| ["-ex", command]));
    args.push("--args");
    let Some(told) = watched("gdb", &args, test) else { return };
    assert!(told.contains("all is well") && told.contains("exited normally"), "{told}");
    // Past the host's frame gdb goes on by what it guessed of ours, and may say where that ends.
    let lines = told.lines().filter(|line| !line.starts_with("Backtrace stopped"));
    let lower = lines.collect::<Vec<_>>().join("\n").to_lowercase();
    assert!(!["warning", "error", "corrupt"].iter().any(|word| lower.contains(word)), "{told}");
    let libraries = told.lines().filter(|line| line.contains("/fd/") && line.contains("Yes")).count();
    assert!(libraries > 0, "the window is a library to gdb: {told}");
    // Each linked frame, in order, among what gdb guesses besides, and then a frame of the host's.
    let linked = told.lines().find_map(|line| line.strip_prefix("linked at [")).unwrap();
    let starts: Vec<u64> =
        linked.trim_end_matches(']').split(", ").map(|start| u64::from_str_radix(start, 16).unwrap()).collect();
    let unnamed = |line: &&str| line.starts_with('#') && line.ends_with("in ?? ()");
    let address = |line: &str| u64::from_str_radix(line.split("0x").nth(1)?.split(' ').next()?, 16).ok();
    let found: Vec<u64> = told.lines().filter(unnamed).filter_map(address).collect();
    let linked_ones: Vec<_> =
        found.iter().filter_map(|ip| starts.iter().position(|start| (*start..start + 16).contains(ip))).collect();
    assert_eq!(linked_ones, [0, 1, 2], "{told}");
    let frames: Vec<&str> = told.lines().filter(|line| line.starts_with('#')).collect();
    let last_linked = frames.iter().rposition(unnamed);
    let host = frames.iter().position(|line| line.contains("jittison_test_calls_from_here"));
    assert!(host.is_some() && host > last_linked, "{told}");
}

#[test]
fn perf_samples_linked_code_and_reads_its_record_without_complaint() {
    let spinner = "long spin(long rounds) { volatile long n = 0; while (n < rounds) n++; return n; }";
    let test = this_test!();
    if is_rerun(test) {
        let Some(object) = c(spinner) else { return };
        let (jit, _trackers) = linked(&[&object]);
        let spin = function::<extern "C" fn(i64) -> i64>(&jit, "spin");
        println!("linked at [{:x}]", spin.address().value());
        assert_eq!(spin.call(100_000_000), 100_000_000);
        return println!("all is well");
    }
    let dir = PrivateDir::new();
    let record = dir.path("perf.data");
    let record = record.to_str().unwrap();
    let args = ["record", "-q", "-e", "cpu-clock", "-g", "-o", record, "--"];
    // Where the kernel forbids it, there is nothing to see.
    if !Command::new("perf").args(args).arg("true").output().is_ok_and(|run| run.status.success()) {
        return skip("perf, and the right to use it");
    }
    let Some(told) = watched("perf", &args, test) else { return };
    assert!(told.contains("all is well"), "{told}");
    let read = Command::new("perf").args(["script", "-G", "-F", "ip,sym,dso", "-i", record]).output().unwrap();
    let (samples, complaints) = (String::from_utf8_lossy(&read.stdout), String::from_utf8_lossy(&read.stderr));
    let linked = told.split("linked at [").nth(1).and_then(|rest| rest.split(']').next()).unwrap();
    let start = u64::from_str_radix(linked, 16).unwrap();
    let is_linked = |line: &&str| {
        let ip = line.split_whitespace().next().and_then(|word| u64::from_str_radix(word, 16).ok());
        ip.is_some_and(|ip| (start..start + 64).contains(&ip))
    };
    let sampled: Vec<&str> = samples.lines().filter(is_linked).collect();
    assert!(read.status.success() && !sampled.is_empty(), "{complaints}");
    assert!(sampled.iter().all(|line| line.contains("memfd:jittison")), "they are the window's: {}", sampled[0]);

    assert!(!complaints.to_lowercase().contains("error"), "{complaints}");
}
