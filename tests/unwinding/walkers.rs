//! All stack walkers find the same frames: LLVM's unwinder, the `backtrace` crate, the standard library, the C library, gdb and
//! perf.

use std::cell::RefCell;
use std::ffi::c_void;
use std::path::Path;
use std::process::Stdio;

use jittison::Jit;

use crate::host::*;
use crate::support::frame_of;
use crate::support::*;

/// The path of LLVM's unwinder. Without it the test is skipped: `None`.
fn llvm_unwinder() -> Option<&'static str> {
    const PLACES: [&str; 3] = [
        "/usr/lib/x86_64-linux-gnu/libunwind.so.1",
        "/usr/lib/llvm-19/lib/libunwind.so.1",
        "/usr/lib64/libunwind.so.1",
    ];
    let found = PLACES.into_iter().find(|place| Path::new(place).exists());
    require_that(found.is_some(), "LLVM's libunwind.so.1 (libunwind-19)");
    found
}

#[test]
fn every_test_of_this_program_passes_with_the_unwinder_of_llvm() {
    if is_llvm() {
        return;
    }
    let Some(library) = llvm_unwinder() else { return };
    let run = this_program()
        .args(["--skip", "gdb", "--skip", "perf", "--skip", "static_programs", "--nocapture"])
        .env("LD_PRELOAD", library)
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{output}\n{}", String::from_utf8_lossy(&run.stderr));
    pass_skips_on(&String::from_utf8_lossy(&run.stderr));
    assert!(output.contains("the unwinder is") && output.contains("libunwind.so.1"), "{output}");
}

/// Checks nothing itself. The test above reads this line in the output of the tests that it runs.
#[test]
fn the_name_of_the_unwinder_is_printed() {
    println!("the unwinder is {}", unwinder());
}

thread_local! {
    /// The addresses that each walker found, with its name.
    static SEEN: RefCell<Vec<(&'static str, Vec<u64>)>> = const { RefCell::new(Vec::new()) };
    static TEXT: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Called by linked code. Walks the stack with each walker.
extern "C" fn walk(x: i64) -> i64 {
    let mut by_crate = Vec::new();
    backtrace::trace(|frame| {
        by_crate.push(frame.ip() as u64);
        true
    });
    let mut by_c_library = [0u64; 200];
    // SAFETY: the C library writes at most the 200 words of the array.
    let count = unsafe { libc::backtrace(by_c_library.as_mut_ptr().cast::<*mut c_void>(), 200) };
    SEEN.with_borrow_mut(|seen| {
        seen.push(("the backtrace crate", by_crate));
        seen.push(("the C library", by_c_library[..count as usize].to_vec()));
    });
    TEXT.set(std::backtrace::Backtrace::force_capture().to_string());
    x
}

const CHAIN: [&str; 2] = [
    "extern long walk(long); __attribute__((noinline)) long inner(long x) { return walk(x) + 1; }
     __attribute__((noinline)) long middle(long x) { return inner(x) * 3; }",
    "extern long middle(long); long outer(long x) { return middle(x) - 1; }",
];

/// A session with two modules that call each other and then `walk`.
fn chain(walk: extern "C" fn(i64) -> i64, flag: &str) -> Option<Jit> {
    let jit = new_jit();
    define_absolute(jit.main_dylib(), "walk", walk as *const () as u64);
    for source in CHAIN {
        let tracker = add(&jit, jit.main_dylib(), "chain.o", &gcc(&["-O2", "-fPIC", flag], source)?);
        // The object moves to the dylib's default tracker.
        drop(tracker);
    }
    Some(jit)
}

/// The addresses of the chain's functions, innermost first.
fn starts(jit: &Jit) -> [u64; 3] {
    ["inner", "middle", "outer"].map(|name| jit.address_of(jit.main_dylib(), name).unwrap().value())
}

#[test]
fn backtraces_pass_through_linked_frames_to_the_host() {
    let Some(jit) = chain(walk, "-fomit-frame-pointer") else { return };
    let outer = function::<extern "C" fn(i64) -> i64>(&jit, "outer");
    assert_eq!(outer.call(5), 17);
    let starts = starts(&jit);
    let here = backtraces_pass_through_linked_frames_to_the_host as *const () as u64;
    for (walker, frames) in SEEN.take() {
        // The functions of this chain are short, and their addresses are at least 32 bytes apart.
        let position = |start: u64| frames.iter().position(|ip| (start..start + 32).contains(ip));
        let positions = starts.map(position);
        let first = positions[0].unwrap_or_else(|| panic!("{walker}: {frames:x?}, {starts:x?}"));
        assert_eq!(positions, [Some(first), Some(first + 1), Some(first + 2)], "{walker}");
        // The host's frames follow, with the frame of this function.
        let beyond = frames[first + 3..].iter().filter_map(|ip| frame_of(ip.saturating_sub(1))).collect::<Vec<_>>();
        assert!(beyond.len() > 3 && beyond.iter().any(|start| here.abs_diff(*start) < 4096), "{walker}: {beyond:x?}");
    }
    // The standard library has no names for linked frames, and continues after them.
    let text = TEXT.take();
    let unnamed = text.matches("<unknown>").count();
    assert!(unnamed >= 3, "{text}");
    assert!(text.contains("backtraces_pass_through_linked_frames"), "{text}");
}

/// The code is the first of a new session. The memory before it is not opened.
#[test]
fn backtraces_end_in_code_without_frames_at_the_start_of_the_open_text() {
    // `bare` comes before the function with a table. That function's entry fills the slots of its granules.
    let source = "long walked(long); long described(long x) { return walked(x) + 1; }
        __asm__(\".text\\n.globl bare\\n.type bare, @function\\nbare: push %rbx; call *walked@GOTPCREL(%rip); pop %rbx; ret\");";
    let Some(object) = gcc(&["-O2", "-fPIC", "-fexceptions"], source) else { return };
    let jit = new_jit();
    define_absolute(jit.main_dylib(), "walked", walk as *const () as u64);
    add(&jit, jit.main_dylib(), "bare.o", &object);
    let bare = function::<extern "C" fn(i64) -> i64>(&jit, "bare");
    assert_eq!(bare.address().value() % (64 << 10), 0, "the function is at the start of the open text");
    bare.call(5);
    for (walker, frames) in SEEN.take() {
        let linked =
            frames.iter().filter(|ip| (bare.address().value()..bare.address().value() + 16).contains(ip)).count();
        assert!(linked <= 1, "{walker}: {frames:x?}");
    }
    TEXT.take();
}

/// A function of the host at which gdb stops.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn jittison_test_stops_here(x: i64) -> i64 {
    std::hint::black_box(x)
}

// The gdb test enters linked code through this function: a frame of the host that has a name and a frame pointer at every
// optimisation level. It calls its first argument with its second.
#[cfg(target_arch = "x86_64")]
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

#[cfg(target_arch = "aarch64")]
std::arch::global_asm!(
    ".globl jittison_test_calls_from_here",
    ".type jittison_test_calls_from_here, @function",
    "jittison_test_calls_from_here:",
    ".cfi_startproc",
    "stp x29, x30, [sp, #-16]!",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset x29, -16",
    ".cfi_offset x30, -8",
    "mov x29, sp",
    ".cfi_def_cfa_register x29",
    "mov x16, x0",
    "mov x0, x1",
    "blr x16",
    "ldp x29, x30, [sp], #16",
    ".cfi_def_cfa sp, 0",
    "ret",
    ".cfi_endproc",
    ".size jittison_test_calls_from_here, . - jittison_test_calls_from_here",
);

unsafe extern "C" {
    fn jittison_test_calls_from_here(function: extern "C" fn(i64) -> i64, x: i64) -> i64;
}

/// Runs one test of this program under a tool and returns the output. Without the tool the test is skipped: `None`.
fn run_under(tool: &str, args: &[&str], test: &str) -> Option<String> {
    let mut tool = require(tool)?;
    tool.args(args);
    let run = rerun_below(tool, test).env_remove("DEBUGINFOD_URLS").stdin(Stdio::null()).output().unwrap();
    let output = format!("{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{output}");
    Some(output)
}

#[test]
fn gdb_unwinds_past_linked_frames_and_has_no_complaint() {
    let test = this_test!();
    if is_rerun(test) {
        let Some(jit) = chain(jittison_test_stops_here, "-fno-omit-frame-pointer") else { return };
        println!("linked at {:x?}", starts(&jit));
        let outer = function::<extern "C" fn(i64) -> i64>(&jit, "outer");
        // SAFETY: the handle keeps the function, which has that signature.
        assert_eq!(unsafe { jittison_test_calls_from_here(outer.as_ptr(), 5) }, 17);
        return println!("test finished");
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
    let Some(output) = run_under("gdb", &args, test).filter(|output| may_trace(output)) else { return };
    assert!(output.contains("test finished") && output.contains("exited normally"), "{output}");
    // After the host's frame gdb continues with guessed values, and may print where that stops.
    let lines = output.lines().filter(|line| !line.starts_with("Backtrace stopped"));
    let lower = lines.collect::<Vec<_>>().join("\n").to_lowercase();
    assert!(!["warning", "error", "corrupt"].iter().any(|word| lower.contains(word)), "{output}");
    let libraries = output.lines().filter(|line| line.contains("/fd/") && line.contains("Yes")).count();
    assert!(libraries > 0, "gdb sees the window as a library: {output}");
    // gdb finds the linked frames in order, perhaps with guessed frames in between, and then a frame of the host.
    let linked = output.lines().find_map(|line| line.strip_prefix("linked at [")).unwrap();
    let starts: Vec<u64> =
        linked.trim_end_matches(']').split(", ").map(|start| u64::from_str_radix(start, 16).unwrap()).collect();
    let unnamed = |line: &&str| line.starts_with('#') && line.ends_with("in ?? ()");
    let address = |line: &str| u64::from_str_radix(line.split("0x").nth(1)?.split(' ').next()?, 16).ok();
    let found: Vec<u64> = output.lines().filter(unnamed).filter_map(address).collect();
    let linked_ones: Vec<_> =
        found.iter().filter_map(|ip| starts.iter().position(|start| (*start..start + 16).contains(ip))).collect();
    assert_eq!(linked_ones, [0, 1, 2], "{output}");
    let frames: Vec<&str> = output.lines().filter(|line| line.starts_with('#')).collect();
    let last_linked = frames.iter().rposition(unnamed);
    let host = frames.iter().position(|line| line.contains("jittison_test_calls_from_here"));
    assert!(host.is_some() && host > last_linked, "{output}");
}

#[test]
fn perf_samples_linked_code_and_has_no_complaint() {
    let spinner = "long spin(long rounds) { volatile long n = 0; while (n < rounds) n++; return n; }";
    let test = this_test!();
    if is_rerun(test) {
        let Some(object) = c(spinner) else { return };
        let (jit, _trackers) = linked(&[&object]);
        let spin = function::<extern "C" fn(i64) -> i64>(&jit, "spin");
        println!("linked at [{:x}]", spin.address().value());
        assert_eq!(spin.call(100_000_000), 100_000_000);
        return println!("test finished");
    }
    let dir = PrivateDir::new();
    let record = dir.path("perf.data");
    let record = record.to_str().unwrap();
    let args = ["record", "-q", "-e", "cpu-clock", "-g", "-o", record, "--"];
    let Some(mut perf) = require("perf") else { return };
    let is_permitted = perf.args(args).arg("true").output().unwrap().status.success();
    if !require_that(is_permitted, "the right to use perf events") {
        return;
    }
    let Some(output) = run_under("perf", &args, test) else { return };
    assert!(output.contains("test finished"), "{output}");
    let read = require("perf").unwrap().args(["script", "-G", "-F", "ip,sym,dso", "-i", record]).output().unwrap();
    let (samples, complaints) = (String::from_utf8_lossy(&read.stdout), String::from_utf8_lossy(&read.stderr));
    let linked = output.split("linked at [").nth(1).and_then(|rest| rest.split(']').next()).unwrap();
    let start = u64::from_str_radix(linked, 16).unwrap();
    let is_linked = |line: &&str| {
        let ip = line.split_whitespace().next().and_then(|word| u64::from_str_radix(word, 16).ok());
        ip.is_some_and(|ip| (start..start + 64).contains(&ip))
    };
    let sampled: Vec<&str> = samples.lines().filter(is_linked).collect();
    assert!(read.status.success() && !sampled.is_empty(), "{complaints}");
    assert!(
        sampled.iter().all(|line| line.contains("memfd:jittison")),
        "the samples belong to the window's file: {}",
        sampled[0]
    );

    assert!(!complaints.to_lowercase().contains("error"), "{complaints}");
}
