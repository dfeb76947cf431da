//! Helpers of the tests and benchmarks of jittison: compile source text to objects, link and call them, and compare the resources
//! before and after.
//!
//! What needs no jittison is in `jittison-test-tools`, and named here as well. Unit tests of jittison use that crate: a test binary
//! cannot hold two copies of jittison.

mod allocations;
pub mod archive_bytes;
pub mod bench;
mod debuggers;
mod frames;
pub mod machine_code;

use std::collections::BTreeMap;
use std::fs;
use std::sync::Mutex;
use std::time::Duration;

use jittison::base::{ExecutorAddr, Name};
use jittison::host::FunctionPointer;
use jittison::link::ObjectBuffer;
use jittison::session::SymbolFlags;
use jittison::{Error, Function, Jit, JitDylib, ResourceTracker};

pub use allocations::{CountingAllocator, allocated_bytes, allocations, live_bytes};
pub use debuggers::{DebuggerList, gdb, has_symbol, jittison_test_checkpoint, may_trace};
pub use frames::frame_of;
pub use jittison_test_tools::*;

// ---- linking and calling ----------------------------------------------------

/// A session that finds the C++ runtime, and whose freed code traps.
pub fn new_jit() -> Jit {
    Jit::builder().library("libstdc++.so.6").trap_freed_code(true).build().unwrap()
}

/// Adds an object under a new tracker.
pub fn add(jit: &Jit, dylib: &JitDylib, name: &str, bytes: &[u8]) -> ResourceTracker {
    add_object(jit, dylib, name, bytes)
}

/// Like [`add`], for an object that the session takes without a copy.
pub fn add_object(jit: &Jit, dylib: &JitDylib, name: &str, object: impl Into<ObjectBuffer>) -> ResourceTracker {
    let tracker = dylib.create_tracker().unwrap();
    jit.add_object(&tracker, name, object).unwrap();
    tracker
}

/// A session with these objects in its main dylib, each under its own tracker. They are not linked yet.
pub fn linked(objects: &[&[u8]]) -> (Jit, Vec<ResourceTracker>) {
    let jit = new_jit();
    let add = |(index, bytes): (usize, &&[u8])| add(&jit, jit.main_dylib(), &format!("object{index}.o"), bytes);
    let trackers = objects.iter().enumerate().map(add).collect();
    (jit, trackers)
}

pub fn try_function<F: FunctionPointer>(jit: &Jit, dylib: &JitDylib, name: &str) -> Result<Function<F>, Error> {
    // SAFETY: tests look up functions of their own objects, with the signatures in the source.
    unsafe { jit.lookup_in::<F>(dylib, name) }
}

pub fn function<F: FunctionPointer>(jit: &Jit, name: &str) -> Function<F> {
    try_function(jit, jit.main_dylib(), name).unwrap()
}

/// Calls `long name(void)` of the main dylib.
pub fn long(jit: &Jit, name: &str) -> i64 {
    function::<extern "C" fn() -> i64>(jit, name).call()
}

/// Calls `long name(void)` of a dylib.
pub fn long_in(jit: &Jit, dylib: &JitDylib, name: &str) -> i64 {
    try_function::<extern "C" fn() -> i64>(jit, dylib, name).unwrap().call()
}

/// Links the objects that have initialisers and runs the initialisers. Returns their number.
pub fn initialize(jit: &Jit, dylib: &JitDylib) -> usize {
    // SAFETY: the objects are the tests' own. Their initialisers and finalisers may run.
    unsafe { jit.initialize(dylib) }.unwrap()
}

/// Undoes one initialisation of a dylib. The last call runs exit handlers and finalisers. Returns their number.
pub fn deinitialize(jit: &Jit, dylib: &JitDylib) -> Result<usize, Error> {
    // SAFETY: the objects are the tests' own. What the tests call meanwhile needs nothing that their finalisers undo.
    unsafe { jit.deinitialize(dylib) }
}

/// Defines a fixed address, under the dylib's default tracker.
pub fn define_absolute(dylib: &JitDylib, name: &str, address: u64) {
    let flags = SymbolFlags::EXPORTED | SymbolFlags::ABSOLUTE;
    dylib.define_absolute([(Name::new(name), ExecutorAddr::new(address), flags)]).unwrap();
}

/// Defines a function of the test, under the dylib's default tracker. Its memory in a session with an executor does not count as
/// [`held`].
pub fn define_function<F: FunctionPointer>(jit: &Jit, dylib: &JitDylib, name: &str, function: F) {
    let before = statistics(jit);
    let tracker = dylib.create_tracker().unwrap();
    // SAFETY: functions of tests are never freed, and take what the tests' own objects pass.
    unsafe { jit.define_function(&tracker, name, function) }.unwrap();
    let (after, mut of_functions) = (statistics(jit), OF_FUNCTIONS.lock().unwrap());
    let sum = of_functions.entry(std::ptr::from_ref(jit.session()).addr()).or_default();
    *sum = (sum.0 + after.0 - before.0, sum.1 + after.1 - before.1, sum.2 + after.2 - before.2);
}

/// The address at which linked code of a session calls a function of the test.
pub fn function_address<F: FunctionPointer>(jit: &Jit, function: F) -> ExecutorAddr {
    let name = format!("{:x}", function.to_address());
    let existing = jit.session().dylibs().into_iter().find(|dylib| dylib.name() == "functions");
    let dylib = existing.unwrap_or_else(|| jit.create_dylib("functions").unwrap());
    jit.address_of(&dylib, &name).unwrap_or_else(|_| {
        define_function(jit, &dylib, &name, function);
        jit.address_of(&dylib, &name).unwrap()
    })
}

/// What functions of tests take, by the address of their session.
static OF_FUNCTIONS: Mutex<BTreeMap<usize, (usize, u64, u64)>> = Mutex::new(BTreeMap::new());

/// Copies linked bytes from memory.
pub fn read(address: u64, length: usize) -> Vec<u8> {
    // SAFETY: tests read only memory that they linked and still keep.
    unsafe { std::slice::from_raw_parts(address as *const u8, length) }.to_vec()
}

// ---- held memory and failed links -------------------------------------------

/// `(allocations, live bytes, reserved bytes)`, without those of [`define_function`].
pub fn held(jit: &Jit) -> (usize, u64, u64) {
    let all = statistics(jit);
    let of_functions = OF_FUNCTIONS.lock().unwrap().get(&std::ptr::from_ref(jit.session()).addr()).copied();
    let (allocations, live, reserved) = of_functions.unwrap_or_default();
    // Another session may have had the address before.
    (all.0.saturating_sub(allocations), all.1.saturating_sub(live), all.2.saturating_sub(reserved))
}

fn statistics(jit: &Jit) -> (usize, u64, u64) {
    let statistics = jit.memory_statistics();
    (statistics.allocations, statistics.live_bytes, statistics.reserved_bytes)
}

/// Links `bytes`, looks up `symbol` and returns the error. Checks that the attempt leaves nothing and that the session still
/// links.
pub fn refused(bytes: &[u8], symbol: &str) -> Error {
    let jit = new_jit();
    refused_in(&jit, bytes, symbol)
}

/// Like [`refused`], in an existing session.
pub fn refused_in(jit: &Jit, bytes: &[u8], symbol: &str) -> Error {
    let before = (held(jit), jit.main_dylib().symbol_count());
    let tracker = jit.main_dylib().create_tracker().unwrap();
    let attempt = jit
        .add_object(&tracker, "bad.o", bytes)
        .and_then(|()| jit.address_of(jit.main_dylib(), symbol))
        .expect_err("the object must be refused");
    assert_eq!((held(jit), jit.main_dylib().symbol_count()), before, "after {attempt}");
    let at_once = jit.link_object(&tracker, "bad.o", bytes).expect_err("`link_object` must refuse the object, too");
    assert_eq!(at_once.root_cause().to_string(), attempt.root_cause().to_string());
    assert_eq!((held(jit), jit.main_dylib().symbol_count()), before, "after {at_once}");
    assert!(tracker.remove().unwrap().is_complete());
    links_on(jit);
    assert_eq!(held(jit), before.0);
    attempt
}

/// Checks that the session still works: links, calls and removes a small object.
pub fn links_on(jit: &Jit) {
    let Some(good) = c("long links_on(void) { static long state = 4; return state++; }") else { return };
    let dylib = jit.create_dylib("links on").unwrap();
    let tracker = add(jit, &dylib, "good.o", &good);
    assert_eq!(long_in(jit, &dylib, "links_on"), 4);
    assert!(tracker.remove().unwrap().is_complete());
    assert!(jit.session().remove_dylib(&dylib).unwrap().is_empty());
}

/// Asserts that the text of an error contains all `parts`.
pub fn assert_says(error: &Error, parts: &[&str]) {
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

// ---- time -------------------------------------------------------------------

/// The processor time of the calling thread. Other threads and processes do not add to it.
pub fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes `time`.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Waits until another thread makes a condition true. There is no deadline, because the machine may be busy.
pub fn wait_until(mut condition: impl FnMut() -> bool) {
    while !condition() {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Names the calling thread for [`wait_until_asleep`].
pub fn thread_id() -> i32 {
    // SAFETY: the call has no arguments and cannot fail.
    unsafe { libc::gettid() }
}

/// Waits until a thread of this process waits for another one: it sleeps at two looks, and has not run between them.
pub fn wait_until_asleep(thread: i32) {
    let mut last = None;
    wait_until(|| {
        let status = std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap();
        let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
        let is_asleep = line("State:").starts_with('S');
        let now = Some((is_asleep, line("voluntary_ctxt_switches:")));
        let is_same = std::mem::replace(&mut last, now.clone()) == now;
        is_asleep && is_same
    });
}

// ---- the process ------------------------------------------------------------

/// One line of `/proc/self/maps`.
#[derive(Debug, Clone)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    pub protection: String,
    pub name: String,
}

/// Bytes of a page of the kernel.
pub fn page_size() -> u64 {
    // SAFETY: it takes no pointer.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as u64 }
}

/// The resident bytes of this process.
pub fn resident_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * page_size()
}

/// The mappings of this process.
pub fn mappings() -> Vec<Mapping> {
    let text = fs::read_to_string("/proc/self/maps").unwrap();
    let address = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let parse = |line: &str| {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let protection = words.next()?.to_string();
        let name = words.skip(3).collect::<Vec<_>>().join(" ");
        Some(Mapping { start: address(start), end: address(end), protection, name })
    };
    text.lines().filter_map(parse).collect()
}
