//! Each function that makes a handle, called while its thread finds all tables full: it is refused, writes nothing and does
//! nothing, so that the same call succeeds afterwards. The header says which functions these are.

use std::collections::BTreeSet;
use std::ffi::{c_int, c_void};
use std::fs;
use std::ptr::null;

use crate::code;
use crate::error::ErrorObject;
use crate::handle::ARE_TABLES_FULL;
use crate::text::Str;

/// A `jittison_error *`.
type Error = *mut c_void;
/// A place for out-parameters of all kinds.
type Outs = *mut u64;
type Options = *const u64;

/// `jittison_reload_object`.
#[repr(C)]
struct ReloadObject {
    name: Str,
    bytes: *const u8,
    size: usize,
}

impl ReloadObject {
    fn new(name: &'static str, bytes: &'static [u8]) -> ReloadObject {
        ReloadObject { name: text(name), bytes: bytes.as_ptr(), size: bytes.len() }
    }
}

// A handle is a struct of one number, which is passed as the number.
unsafe extern "C-unwind" {
    safe fn jittison_session_create(options: Options, out: Outs) -> Error;
    safe fn jittison_session_destroy(session: u64) -> Error;
    safe fn jittison_dylib_main(session: u64, out: Outs) -> Error;
    safe fn jittison_dylib_process(session: u64, out: Outs) -> Error;
    safe fn jittison_dylib_create(session: u64, name: Str, out: Outs) -> Error;
    safe fn jittison_dylib_find(session: u64, name: Str, out: Outs) -> Error;
    safe fn jittison_dylib_link_order(dylib: u64, out: Outs, capacity: usize, count: Outs) -> Error;
    safe fn jittison_dylib_clear(dylib: u64, out: Outs) -> Error;
    safe fn jittison_dylib_remove(session: u64, dylib: u64, out: Outs) -> Error;
    safe fn jittison_tracker_create(dylib: u64, out: Outs) -> Error;
    safe fn jittison_tracker_default(dylib: u64, out: Outs) -> Error;
    safe fn jittison_tracker_dylib(tracker: u64, out: Outs) -> Error;
    safe fn jittison_tracker_dependencies(tracker: u64, out: Outs, capacity: usize, count: Outs) -> Error;
    safe fn jittison_tracker_dependents(tracker: u64, out: Outs, capacity: usize, count: Outs) -> Error;
    safe fn jittison_tracker_remove(tracker: u64, out: Outs) -> Error;
    safe fn jittison_tracker_try_remove(tracker: u64, out: Outs) -> Error;
    safe fn jittison_tracker_remove_cascade(tracker: u64, out: Outs) -> Error;
    safe fn jittison_tracker_remove_now(session: u64, tracker: u64, out: Outs) -> Error;
    safe fn jittison_tracker_remove_all(trackers: *const u64, count: usize, out: Outs) -> Error;
    safe fn jittison_object_add(session: u64, tracker: u64, name: Str, bytes: *const u8, size: usize) -> Error;
    safe fn jittison_function_lookup(session: u64, dylib: u64, name: Str, out: Outs) -> Error;
    safe fn jittison_function_clone(function: u64, out: Outs) -> Error;
    safe fn jittison_guard_enter(session: u64, out: Outs) -> Error;
    safe fn jittison_guard_leave(guard: u64) -> Error;
    safe fn jittison_call_enter(session: u64, out: Outs) -> Error;
    safe fn jittison_call_leave(call: u64) -> Error;
    safe fn jittison_stub_create(session: u64, tracker: u64, stubs: *const u64, count: usize) -> Error;
    safe fn jittison_stub_find(session: u64, dylib: u64, name: Str, out: Outs) -> Error;
    safe fn jittison_alias_reexport(tracker: u64, source: u64, aliases: *const u64, count: usize) -> Error;
    safe fn jittison_patchable_create(
        session: u64,
        dylib: u64,
        functions: *const Str,
        count: usize,
        options: Options,
        out: Outs,
    ) -> Error;
    safe fn jittison_patchable_create_from(
        session: u64,
        dylib: u64,
        name: Str,
        bytes: *const u8,
        size: usize,
        out: Outs,
    ) -> Error;
    safe fn jittison_patchable_rollback(patchable: u64, version: Outs, retired: Outs) -> Error;
    safe fn jittison_patchable_remove(patchable: u64, out: Outs) -> Error;
    safe fn jittison_patch_begin(patchable: u64, out: Outs) -> Error;
    safe fn jittison_patch_add_object(patch: u64, name: Str, bytes: *const u8, size: usize) -> Error;
    safe fn jittison_patch_link(patch: u64) -> Error;
    safe fn jittison_patch_lookup(patch: u64, name: Str, out: Outs) -> Error;
    safe fn jittison_patch_commit(patch: u64, version: Outs, retired: Outs) -> Error;
    safe fn jittison_reloader_create(session: u64, tracker: u64, out: Outs) -> Error;
    safe fn jittison_reloader_add_object(reloader: u64, name: Str, bytes: *const u8, size: usize) -> Error;
    safe fn jittison_reloader_link(reloader: u64) -> Error;
    safe fn jittison_reloader_reload(
        reloader: u64,
        name: Str,
        bytes: *const u8,
        size: usize,
        facts: Outs,
        changes: Outs,
        retired: Outs,
    ) -> Error;
    safe fn jittison_reloader_reload_all(
        reloader: u64,
        objects: *const ReloadObject,
        count: usize,
        changes: Outs,
        retired: Outs,
    ) -> Error;
    safe fn jittison_removal_pending(session: u64, out: Outs, count: Outs) -> Error;
    safe fn jittison_manager_create(session: u64, callbacks: Options, context: *mut c_void, out: Outs) -> Error;
    safe fn jittison_generator_create(dylib: u64, callbacks: Options, context: *mut c_void, out: Outs) -> Error;
    safe fn jittison_generator_create_reexports(
        dylib: u64,
        source: u64,
        is_shown: usize,
        dropped: usize,
        context: *mut c_void,
        out: Outs,
    ) -> Error;
    safe fn jittison_generator_suspend(out: Outs) -> Error;
    safe fn jittison_suspension_resume(suspension: u64, error: Error) -> Error;
    safe fn jittison_unit_begin(tracker: u64, name: Str, symbols: *const u64, count: usize, out: Outs) -> Error;
    safe fn jittison_responsibility_tracker(responsibility: u64, out: Outs) -> Error;
    safe fn jittison_responsibility_delegate(responsibility: u64, names: *const Str, count: usize, out: Outs) -> Error;
    safe fn jittison_pin_create(dylib: u64, name: Str, address: Outs, out: Outs) -> Error;
    safe fn jittison_graph_create(name: Str, out: Outs) -> Error;
    safe fn jittison_graph_add_block(graph: u64, block: Options, out: Outs) -> Error;
    safe fn jittison_graph_add_symbol(graph: u64, symbol: Options, out: Outs) -> Error;
    safe fn jittison_on_demand_create(session: u64, callbacks: Options, context: *mut c_void, out: Outs) -> Error;
    safe fn jittison_reoptimizer_create(
        session: u64,
        callbacks: Options,
        context: *mut c_void,
        calls: *const u64,
        count: usize,
        out: Outs,
    ) -> Error;
    safe fn jittison_reoptimizer_add(layer: u64, dylib: u64, functions: *const Str, count: usize, out: Outs) -> Error;
    safe fn jittison_tiered_remove(tiered: u64, out: Outs) -> Error;
    safe fn jittison_plugin_add(session: u64, callbacks: Options, context: *mut c_void, out: Outs) -> Error;
    safe fn jittison_symbol_lookup_async(
        session: u64,
        dylib: u64,
        requests: *const u64,
        count: usize,
        state: u32,
        callback: usize,
        context: *mut c_void,
    ) -> Error;
}

const ADD: &[u8] = include_bytes!("../../../docs/examples/add.o");
const SCALE_1: &[u8] = include_bytes!("../../../docs/examples/scale_1.o");
const SCALE_2: &[u8] = include_bytes!("../../../docs/examples/scale_2.o");
const SENTINEL: u64 = 0x5e5e_5e5e_5e5e_5e5e;
/// Words for out-parameters.
const WORDS: usize = 8;
/// A block in the code pool that is one `ret`.
const RET: &[u8] = &[0xc3];

fn text(text: &'static str) -> Str {
    Str::of(text)
}

/// The words of a `jittison_str`.
fn words(text: &'static str) -> [u64; 2] {
    [text.as_ptr() as usize as u64, text.len() as u64]
}

#[track_caller]
fn ok(error: Error) {
    if !error.is_null() {
        // SAFETY: C2 - the error was made for this call, and is freed once.
        panic!("{}", unsafe { Box::from_raw(error.cast::<ErrorObject>()) }.message());
    }
}

/// The functions that were called with full tables.
#[derive(Default)]
struct Calls(BTreeSet<&'static str>);

impl Calls {
    /// Calls a function with full tables, and again. Returns what it wrote then.
    fn add(&mut self, function: &'static str, call: impl Fn(Outs) -> Error) -> [u64; WORDS] {
        let mut outs = [SENTINEL; WORDS];
        ARE_TABLES_FULL.set(true);
        let error = call(outs.as_mut_ptr());
        ARE_TABLES_FULL.set(false);
        assert!(!error.is_null(), "{function} found a place in a full table");
        // SAFETY: C2 - the error was made for this call, and is freed once.
        let refusal = unsafe { Box::from_raw(error.cast::<ErrorObject>()) };
        assert_eq!(refusal.code(), code::TOO_MANY_HANDLES, "{function}: {}", refusal.message());
        assert_eq!(outs, [SENTINEL; WORDS], "{function} wrote an out-parameter and failed");
        let error = call(outs.as_mut_ptr());
        if !error.is_null() {
            // SAFETY: C2 - as above.
            panic!("{function} after a refusal: {}", unsafe { Box::from_raw(error.cast::<ErrorObject>()) }.message());
        }
        assert_ne!(outs[0], SENTINEL, "{function} wrote nothing");
        self.0.insert(function);
        outs
    }
}

/// Calls a function of the C API by its name, with the out-parameters as `outs`. Its arguments are evaluated in each call, so they
/// call nothing.
macro_rules! with_full_tables {
    ($calls:ident, $function:ident($($argument:expr),*), |$outs:ident| $($out:expr),+) => {
        $calls.add(stringify!($function), |$outs| $function($($argument,)* $($out),+))
    };
    ($calls:ident, $function:ident($($argument:expr),*)) => {
        with_full_tables!($calls, $function($($argument),*), |outs| outs)[0]
    };
}

fn session_with_dylib(calls: &mut Calls) -> (u64, u64) {
    let session = with_full_tables!(calls, jittison_session_create(null()));
    let dylib = with_full_tables!(calls, jittison_dylib_main(session));
    (session, dylib)
}

fn tracker_of(dylib: u64) -> u64 {
    let mut tracker = 0;
    ok(jittison_tracker_create(dylib, &mut tracker));
    tracker
}

fn dylibs(calls: &mut Calls, session: u64) {
    with_full_tables!(calls, jittison_dylib_process(session));
    let dylib = with_full_tables!(calls, jittison_dylib_create(session, text("other")));
    with_full_tables!(calls, jittison_dylib_find(session, text("other")));
    let outs = with_full_tables!(calls, jittison_dylib_link_order(dylib), |outs| outs, 1, outs.wrapping_add(4));
    assert_eq!(outs[4], 1);
    with_full_tables!(calls, jittison_dylib_clear(dylib));
    with_full_tables!(calls, jittison_dylib_remove(session, dylib));
}

fn trackers(calls: &mut Calls, session: u64, dylib: u64) {
    let tracker = with_full_tables!(calls, jittison_tracker_create(dylib));
    with_full_tables!(calls, jittison_tracker_default(dylib));
    with_full_tables!(calls, jittison_tracker_dylib(tracker));
    let user = tracker_of(dylib);
    ok(jittison_object_add(session, tracker, text("add.o"), ADD.as_ptr(), ADD.len()));
    let alias = [words("sum").as_slice(), &words("add"), &[5]].concat();
    ok(jittison_alias_reexport(user, dylib, alias.as_ptr(), 1));
    let function = with_full_tables!(calls, jittison_function_lookup(session, dylib, text("sum")));
    with_full_tables!(calls, jittison_function_clone(function));
    let dependencies = |outs: Outs| jittison_tracker_dependencies(user, outs, 2, outs.wrapping_add(4));
    assert_eq!(calls.add("jittison_tracker_dependencies", dependencies)[4], 1);
    let dependents = |outs: Outs| jittison_tracker_dependents(tracker, outs, 2, outs.wrapping_add(4));
    assert_eq!(calls.add("jittison_tracker_dependents", dependents)[4], 1);
    let outs = with_full_tables!(calls, jittison_pin_create(dylib, text("add")), |outs| outs.wrapping_add(1), outs);
    assert_ne!(outs[1], SENTINEL);
    let stub = [words("stub").as_slice(), &[outs[1]]].concat();
    ok(jittison_stub_create(session, user, stub.as_ptr(), 1));
    with_full_tables!(calls, jittison_stub_find(session, dylib, text("stub")));
    with_full_tables!(calls, jittison_tracker_remove(tracker));
    let others = [tracker_of(dylib), tracker_of(dylib), tracker_of(dylib)];
    with_full_tables!(calls, jittison_tracker_try_remove(others[0]));
    with_full_tables!(calls, jittison_tracker_remove_cascade(others[1]));
    with_full_tables!(calls, jittison_tracker_remove_now(session, others[2]));
    let removed = [tracker_of(dylib)];
    with_full_tables!(calls, jittison_tracker_remove_all(removed.as_ptr(), 1));
    // The pin and the functions keep the code of the first one.
    let outs = with_full_tables!(calls, jittison_removal_pending(session), |outs| outs, outs.wrapping_add(1));
    assert!((1..SENTINEL).contains(&outs[1]));
}

fn guards(calls: &mut Calls, session: u64) {
    ok(jittison_guard_leave(with_full_tables!(calls, jittison_guard_enter(session))));
    ok(jittison_call_leave(with_full_tables!(calls, jittison_call_enter(session))));
}

fn patches(calls: &mut Calls, session: u64, dylib: u64) {
    let functions = [text("add")];
    let create = |outs| jittison_patchable_create(session, dylib, functions.as_ptr(), 1, null(), outs);
    let patchable = calls.add("jittison_patchable_create", create)[0];
    for version in 1..=2 {
        let patch = with_full_tables!(calls, jittison_patch_begin(patchable));
        ok(jittison_patch_add_object(patch, text("add.o"), ADD.as_ptr(), ADD.len()));
        ok(jittison_patch_link(patch));
        with_full_tables!(calls, jittison_patch_lookup(patch, text("add")));
        let outs = with_full_tables!(calls, jittison_patch_commit(patch), |outs| outs.wrapping_add(1), outs);
        assert_eq!(outs[1], version);
    }
    let outs = with_full_tables!(calls, jittison_patchable_rollback(patchable), |outs| outs.wrapping_add(1), outs);
    assert_eq!(outs[1], 2);
    with_full_tables!(calls, jittison_patchable_remove(patchable));
    let mut other = 0;
    ok(jittison_dylib_create(session, text("rebindable"), &mut other));
    with_full_tables!(calls, jittison_patchable_create_from(session, other, text("add.o"), ADD.as_ptr(), ADD.len()));
}

fn reloads(calls: &mut Calls, session: u64) {
    let mut dylib = 0;
    ok(jittison_dylib_create(session, text("reloaded"), &mut dylib));
    let tracker = tracker_of(dylib);
    let reloader = with_full_tables!(calls, jittison_reloader_create(session, tracker));
    ok(jittison_reloader_add_object(reloader, text("scale.o"), SCALE_1.as_ptr(), SCALE_1.len()));
    ok(jittison_reloader_link(reloader));
    let (bytes, size, none) = (SCALE_2.as_ptr(), SCALE_2.len(), std::ptr::null_mut());
    with_full_tables!(calls, jittison_reloader_reload(reloader, text("scale.o"), bytes, size), |outs| none, none, outs);
    let objects = [ReloadObject::new("scale.o", SCALE_1)];
    with_full_tables!(calls, jittison_reloader_reload_all(reloader, objects.as_ptr(), 1), |outs| none, outs);
}

fn custom(calls: &mut Calls, session: u64, dylib: u64) {
    unsafe extern "C-unwind" fn remove(_: u64, _: *mut c_void) -> Error {
        std::ptr::null_mut()
    }
    unsafe extern "C-unwind" fn transfer(_: u64, _: u64, _: *mut c_void) {}
    let manager = [48, remove as *const () as usize as u64, transfer as *const () as usize as u64, 0, 0, 0];
    with_full_tables!(calls, jittison_manager_create(session, manager.as_ptr(), std::ptr::null_mut()));
    let plugin = [8];
    with_full_tables!(calls, jittison_plugin_add(session, plugin.as_ptr(), std::ptr::null_mut()));
    with_full_tables!(calls, jittison_graph_create(text("graph")));

    let symbols = [words("first").as_slice(), &[5], &words("second"), &[5]].concat();
    let tracker = tracker_of(dylib);
    let unit = with_full_tables!(calls, jittison_unit_begin(tracker, text("unit"), symbols.as_ptr(), 2));
    with_full_tables!(calls, jittison_responsibility_tracker(unit));
    let names = [text("second")];
    with_full_tables!(calls, jittison_responsibility_delegate(unit, names.as_ptr(), 1));
}

fn generators(calls: &mut Calls, session: u64, dylib: u64) {
    /// Suspends the lookup, and notes it in the context.
    unsafe extern "C-unwind" fn generate(_: u64, _: *const u64, _: usize, context: *mut c_void) -> Error {
        // SAFETY: C5 - the context is that of `generators`, which waits for this call.
        let (calls, suspended) = unsafe { &mut *context.cast::<(&mut Calls, u64)>() };
        *suspended = with_full_tables!(calls, jittison_generator_suspend());
        std::ptr::null_mut()
    }
    unsafe extern "C-unwind" fn on_missing(error: Error, _: *const c_void, _: usize, _: *mut c_void) {
        // SAFETY: C2 - the callee owns the error.
        drop(unsafe { Box::from_raw(error.cast::<ErrorObject>()) });
    }
    let mut other = 0;
    ok(jittison_dylib_create(session, text("generated"), &mut other));
    with_full_tables!(calls, jittison_generator_create_reexports(other, dylib, 0, 0, std::ptr::null_mut()));
    let generator = [24, generate as *const () as usize as u64, 0];
    let mut context = (calls, 0);
    let pointer = (&raw mut context).cast::<c_void>();
    let mut handle = 0;
    ok(jittison_generator_create(other, generator.as_ptr(), pointer, &mut handle));
    let request = [words("late").as_slice(), &[1]].concat();
    let on_missing = on_missing as *const () as usize;
    ok(jittison_symbol_lookup_async(session, other, request.as_ptr(), 1, 0, on_missing, std::ptr::null_mut()));
    let (calls, suspended) = context;
    ok(jittison_suspension_resume(suspended, std::ptr::null_mut()));
    with_full_tables!(
        calls,
        jittison_generator_create(
            dylib,
            [24, generate_nothing as *const () as usize as u64, 0].as_ptr(),
            std::ptr::null_mut()
        )
    );
}

unsafe extern "C-unwind" fn generate_nothing(_: u64, _: *const u64, _: usize, _: *mut c_void) -> Error {
    std::ptr::null_mut()
}

fn compilers(calls: &mut Calls, session: u64, dylib: u64) {
    unsafe extern "C-unwind" fn compile(request: *const u64, graph: u64, _: *mut c_void) -> Error {
        // SAFETY: C1 - a request has six words, and its symbol is the fourth and fifth.
        let request = unsafe { &*request.cast::<[u64; 6]>() };
        let block = [80, 0, 0, 0, 0, RET.as_ptr() as usize as u64, RET.len() as u64, 0, 0, 0];
        let symbol = [56, request[3], request[4], 0, 0, 1, 4 << 32];
        let mut position = 0;
        ok(jittison_graph_add_block(graph, block.as_ptr(), &mut position));
        ok(jittison_graph_add_symbol(graph, symbol.as_ptr(), &mut position));
        std::ptr::null_mut()
    }
    let callbacks = [24, compile as *const () as usize as u64, 0];
    with_full_tables!(calls, jittison_on_demand_create(session, callbacks.as_ptr(), std::ptr::null_mut()));
    let tiers = [1000];
    let create =
        |outs| jittison_reoptimizer_create(session, callbacks.as_ptr(), std::ptr::null_mut(), tiers.as_ptr(), 1, outs);
    let layer = calls.add("jittison_reoptimizer_create", create)[0];
    let functions = [text("tiered")];
    let tiered = with_full_tables!(calls, jittison_reoptimizer_add(layer, dylib, functions.as_ptr(), 1));
    with_full_tables!(calls, jittison_tiered_remove(tiered));
}

/// The functions of the header that write a handle.
fn functions_that_make_handles() -> BTreeSet<String> {
    let header = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/include/jittison.h")).unwrap();
    let kinds = header.lines().filter(|line| line.contains("{ uint64_t bits; }"));
    let kinds: Vec<_> =
        kinds.map(|line| line.split_whitespace().nth(2).unwrap()).chain(["jittison_link_entry"]).collect();
    let declarations = header.split("\nJITTISON_API ").skip(1).map(|rest| rest.split(';').next().unwrap());
    let makes = |declaration: &&str| {
        let parameters = declaration.split_once('(').unwrap().1.split(',').map(str::trim);
        let mut outs = parameters.filter(|parameter| !parameter.starts_with("const "));
        outs.any(|parameter| kinds.iter().any(|kind| parameter.starts_with(&format!("{kind} *"))))
    };
    let name = |declaration: &str| {
        let head = declaration.split('(').next().unwrap();
        head.rsplit([' ', '*']).next().unwrap().to_string()
    };
    declarations.filter(makes).map(name).collect()
}

#[test]
fn a_function_that_finds_a_full_table_writes_nothing_and_does_nothing() {
    let mut calls = Calls::default();
    let (session, dylib) = session_with_dylib(&mut calls);
    dylibs(&mut calls, session);
    trackers(&mut calls, session, dylib);
    guards(&mut calls, session);
    let mut patched = 0;
    ok(jittison_dylib_create(session, text("patched"), &mut patched));
    patches(&mut calls, session, patched);
    reloads(&mut calls, session);
    custom(&mut calls, session, dylib);
    compilers(&mut calls, session, dylib);
    generators(&mut calls, session, dylib);
    ok(jittison_session_destroy(session));
    let called: BTreeSet<String> = calls.0.iter().map(|name| name.to_string()).collect();
    assert_eq!(called, functions_that_make_handles());
}

/// Functions with several out-parameters, the last of which is misaligned: the first ones stay as they are.
#[test]
fn a_bad_out_parameter_is_found_before_the_first_is_written() {
    unsafe extern "C-unwind" {
        safe fn jittison_session_reclaim(session: u64, count: Outs) -> Error;
        safe fn jittison_symbol_state(dylib: u64, name: Str, state: Outs, flags: Outs) -> Error;
        safe fn jittison_removal_blockers(removal: u64, handles: Outs, dependants: Outs, guards: Outs) -> Error;
        safe fn jittison_program_run(
            session: u64,
            tracker: u64,
            entry: Str,
            argc: c_int,
            argv: *const *const u8,
            status: Outs,
        ) -> Error;
    }
    let refused = |error: Error| {
        assert!(!error.is_null());
        // SAFETY: C2 - the error was made for this call, and is freed once.
        let failure = unsafe { Box::from_raw(error.cast::<ErrorObject>()) };
        assert_eq!(failure.code(), code::INVALID_ARGUMENT, "{}", failure.message());
        assert!(failure.message().contains("is not aligned"), "{}", failure.message());
    };
    let (session, dylib) = session_with_dylib(&mut Calls::default());
    let tracker = tracker_of(dylib);
    ok(jittison_object_add(session, tracker, text("add.o"), ADD.as_ptr(), ADD.len()));
    let mut outs = [SENTINEL; WORDS];
    let first = outs.as_mut_ptr();
    let second = first.wrapping_add(1);
    let odd = first.wrapping_add(4).wrapping_byte_add(1);
    refused(jittison_dylib_link_order(dylib, first, 1, odd));
    refused(jittison_tracker_dependencies(tracker, first, 1, odd));
    refused(jittison_symbol_state(dylib, text("add"), first, odd));
    refused(jittison_pin_create(dylib, text("add"), odd, first));
    refused(jittison_removal_pending(session, first, odd));
    refused(jittison_session_reclaim(session, odd));
    refused(jittison_program_run(session, tracker, text("add"), 0, null(), odd));
    let mut removal = 0;
    ok(jittison_tracker_remove(tracker, &mut removal));
    refused(jittison_removal_blockers(removal, first, second, odd));
    let mut patchable = 0;
    let functions = [text("add")];
    ok(jittison_patchable_create(session, dylib, functions.as_ptr(), 1, null(), &mut patchable));
    let mut patch = 0;
    ok(jittison_patch_begin(patchable, &mut patch));
    ok(jittison_patch_add_object(patch, text("add.o"), ADD.as_ptr(), ADD.len()));
    ok(jittison_patch_link(patch));
    refused(jittison_patch_commit(patch, odd, first));
    refused(jittison_patch_commit(patch, first, odd));
    assert_eq!(outs, [SENTINEL; WORDS]);
    let (mut reloader, none) = (0, std::ptr::null_mut());
    ok(jittison_reloader_create(session, tracker_of(dylib), &mut reloader));
    ok(jittison_reloader_add_object(reloader, text("scale.o"), SCALE_1.as_ptr(), SCALE_1.len()));
    ok(jittison_reloader_link(reloader));
    let reload = |facts, changes, retired| {
        let (bytes, size) = (SCALE_2.as_ptr(), SCALE_2.len());
        jittison_reloader_reload(reloader, text("scale.o"), bytes, size, facts, changes, retired)
    };
    refused(reload(odd, first, second));
    refused(reload(none, odd, first));
    refused(reload(none, first, odd));
    let objects = [ReloadObject::new("scale.o", SCALE_2)];
    refused(jittison_reloader_reload_all(reloader, objects.as_ptr(), 1, odd, first));
    refused(jittison_reloader_reload_all(reloader, objects.as_ptr(), 1, first, odd));
    assert_eq!(outs, [SENTINEL; WORDS]);
    // Nothing was reloaded: this reload changes something.
    let mut facts = [80, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    ok(reload(facts.as_mut_ptr(), none, none));
    assert_eq!((facts[0], facts[1], facts[8] as u8), (80, 1, 1));
    // The patch is not committed: it can be.
    ok(jittison_patch_commit(patch, std::ptr::null_mut(), std::ptr::null_mut()));
    refused(jittison_patchable_rollback(patchable, first, odd));
    assert_eq!(outs, [SENTINEL; WORDS]);
    ok(jittison_session_destroy(session));
}
