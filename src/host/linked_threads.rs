//! Threads that linked code starts: each is inside a call of the host until it ends.
//!
//! | function of linked code | in place of |
//! |---|---|
//! | [`pthread_create`] | that of the C library, which the standard library of Rust calls, too |
//! | [`thrd_create`] | that of the C library (C11) |
//! | [`start_cpp_thread`] | the function of libstdc++ behind `std::thread`, `std::jthread` and `std::async` |
//!
//! A new thread enters its call before it runs linked code. It may rely on what its starter may rely on: the first function and its
//! argument may belong to a version that was replaced meanwhile. So the starter pins all versions that are in memory, and the new
//! thread holds the pins in its call, until it passes a reload point or ends. The call is left in the last round of the destructors of
//! keys ([`os::ThreadEnd`]), after those of linked code.
//!
//! A thread that ends by `pthread_exit` or by a cancellation unwinds frames of this file. They hold nothing that must be dropped.
//!
//! # Limits
//! Threads that a library starts by itself are in no call.

use std::any::Any;
use std::ffi::{CStr, c_int, c_void};

use crate::base::{CallEntry, ExecutorAddr, enter_host_call};
use crate::os;
use crate::sync::StaticCell;

/// What the room above does for a new thread.
#[derive(Clone, Copy)]
pub(crate) struct ThreadHooks {
    /// Keeps all versions in memory, as long as the result lives.
    pub(crate) keep: fn() -> Box<dyn Any + Send>,
    /// Passes such a result to the host call of the calling thread, which drops it at its next reload point or at its end.
    pub(crate) hold: fn(Box<dyn Any + Send>),
}

/// The functions of this file. Linked code gets them where the process or one of its libraries has a function of the name: without a
/// loaded libstdc++, a program may define the state of `std::thread` itself.
pub(super) fn thread_functions(hooks: ThreadHooks) -> Vec<(&'static str, ExecutorAddr)> {
    HOOKS.get_or_init(|| hooks);
    let mut functions = Vec::new();
    let mut add = |name, function: *const ()| functions.push((name, ExecutorAddr::new(function as u64)));
    if thread_end().is_some() {
        add("pthread_create", pthread_create as *const ());
        add(C_THREAD.name, thrd_create as *const ());
        add(CPP_THREAD.name, start_cpp_thread as *const ());
    }
    functions
}

/// A function of the C or C++ library that starts a thread.
struct Native {
    name: &'static str,
    c_name: &'static CStr,
    address: StaticCell<Option<u64>>,
}

static C_THREAD: Native = Native { name: "thrd_create", c_name: c"thrd_create", address: StaticCell::new() };

/// `void std::thread::_M_start_thread(std::unique_ptr<_State>, void (*)())` of libstdc++.
static CPP_THREAD: Native = Native {
    name: "_ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE",
    c_name: c"_ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE",
    address: StaticCell::new(),
};

/// The function of the library, as it was found first.
fn native(function: &'static Native) -> Option<u64> {
    *function.address.get_or_init(|| os::process_symbol_version(function.c_name, None))
}

/// What a thread runs, and what keeps its code in memory.
pub(super) struct Start<F> {
    function: F,
    argument: *mut c_void,
    kept: Option<Box<dyn Any + Send>>,
}

/// The value of the key, from the start of a thread to its end.
struct Running {
    /// Destructors of keys that the C library has called.
    rounds: usize,
    _entry: Option<CallEntry>,
}

pub(super) type CStart = extern "C-unwind" fn(*mut c_void) -> c_int;

/// The key of all threads that linked code starts. `None` if the process has none left.
fn thread_end() -> Option<&'static os::ThreadEnd> {
    static KEY: StaticCell<Option<os::ThreadEnd>> = StaticCell::new();
    KEY.get_or_init(|| os::ThreadEnd::new(end_thread)).as_ref()
}

static HOOKS: StaticCell<ThreadHooks> = StaticCell::new();

pub(super) fn keep_versions() -> Option<Box<dyn Any + Send>> {
    HOOKS.get().map(|hooks| (hooks.keep)())
}

impl<F> Start<F> {
    pub(super) fn into_raw(function: F, argument: *mut c_void) -> *mut c_void {
        Box::into_raw(Box::new(Start { function, argument, kept: keep_versions() })).cast()
    }

    /// Drops what no thread has got.
    ///
    /// # Safety
    /// As [`enter`](Self::enter).
    pub(super) unsafe fn discard(start: *mut c_void) {
        // SAFETY: H4 - by contract it is the value that `into_raw` has leaked, and this is the only use.
        drop(unsafe { Box::from_raw(start.cast::<Start<F>>()) });
    }

    /// Enters the call of a new thread. Returns what it runs.
    ///
    /// # Safety
    /// `start` is from [`into_raw`](Self::into_raw) with the same `F`, and is not used again.
    unsafe fn enter(start: *mut c_void) -> (F, *mut c_void) {
        // SAFETY: H4 - by contract it is the value that `into_raw` has leaked, and this is the only use.
        let start = *unsafe { Box::from_raw(start.cast::<Start<F>>()) };
        enter_thread(start.kept);
        (start.function, start.argument)
    }
}

/// Enters a call that the end of the calling thread leaves.
pub(super) fn enter_thread(kept: Option<Box<dyn Any + Send>>) {
    // A function of a library that starts a thread may call another one that counts it.
    if !thread_end().is_some_and(os::ThreadEnd::is_set) {
        let running = Box::into_raw(Box::new(Running { rounds: 0, _entry: enter_host_call() }));
        // Without memory for the value, the call is never left: what this thread may run stays in memory.
        let _ = thread_end().is_some_and(|key| key.set(running.cast()));
    }
    if let (Some(hooks), Some(kept)) = (HOOKS.get(), kept) {
        (hooks.hold)(kept);
    }
}

/// The destructor of the key. The C library sets the value to null first.
///
/// # Safety
/// `running` is the value that [`enter_thread`] has set in this thread.
unsafe extern "C" fn end_thread(running: *mut c_void) {
    let running = running.cast::<Running>();
    // SAFETY: H4 - the value of this thread, which nobody else uses.
    let rounds = unsafe {
        (*running).rounds += 1;
        (*running).rounds
    };
    // Destructors of linked code may run in each round.
    if rounds < os::ThreadEnd::ROUNDS && thread_end().is_some_and(|key| key.set(running.cast())) {
        return;
    }
    // SAFETY: H4 - it was leaked in `enter_thread`, and no destructor gets it again.
    drop(unsafe { Box::from_raw(running) });
}

/// `pthread_create`.
///
/// # Safety
/// Only linked code calls this, as its `pthread_create`.
unsafe extern "C" fn pthread_create(
    thread: *mut c_void,
    attributes: *const c_void,
    start: os::StartRoutine,
    argument: *mut c_void,
) -> c_int {
    let start = Start::into_raw(start, argument);
    // SAFETY: H7 - linked code passes what `pthread_create` may get; `run` gets its own argument.
    let result = unsafe { os::create_thread(thread, attributes, run, start) };
    if result != 0 {
        // SAFETY: H4 - no thread was started, so nobody else has it.
        unsafe { Start::<os::StartRoutine>::discard(start) };
    }
    result
}

/// The function of a thread that [`pthread_create`] starts.
pub(super) extern "C-unwind" fn run(start: *mut c_void) -> *mut c_void {
    // SAFETY: H4 - `pthread_create` passes it to this thread only.
    let (function, argument) = unsafe { Start::<os::StartRoutine>::enter(start) };
    function(argument)
}

/// `thrd_create`.
///
/// # Safety
/// Only linked code calls this, as its `thrd_create`.
unsafe extern "C" fn thrd_create(thread: *mut c_void, start: CStart, argument: *mut c_void) -> c_int {
    type Create = unsafe extern "C" fn(*mut c_void, CStart, *mut c_void) -> c_int;
    /// `thrd_error`.
    const FAILED: c_int = 2;
    let Some(address) = native(&C_THREAD) else { return FAILED };
    // SAFETY: H1 - the function of the C library with this name has this type.
    let create = unsafe { std::mem::transmute::<usize, Create>(address as usize) };
    let start = Start::into_raw(start, argument);
    // SAFETY: H7 - linked code passes what `thrd_create` may get; `run_c` gets its own argument.
    let result = unsafe { create(thread, run_c, start) };
    if result != 0 {
        // SAFETY: H4 - no thread was started, so nobody else has it.
        unsafe { Start::<CStart>::discard(start) };
    }
    result
}

/// The function of a thread that [`thrd_create`] starts.
pub(super) extern "C-unwind" fn run_c(start: *mut c_void) -> c_int {
    // SAFETY: H4 - `thrd_create` passes it to this thread only.
    let (function, argument) = unsafe { Start::<CStart>::enter(start) };
    function(argument)
}

type StateFn = extern "C-unwind" fn(*mut CppState);

/// A `std::thread::_State` of libstdc++: a class with virtual functions and, here, another state (Itanium C++ ABI, 2.5).
#[repr(C)]
struct CppState {
    functions: *const StateFn,
    inner: *mut CppState,
    kept: Option<Box<dyn Any + Send>>,
}

/// The virtual functions of a state: the two destructors, and `_M_run`.
static STATE_FUNCTIONS: [StateFn; 3] = [destroy_state, delete_state, run_state];

/// Calls a virtual function of a state.
fn call_state(state: *mut CppState, index: usize) {
    // SAFETY: H7 - linked code has passed a state, whose first word leads to three functions of this type.
    let function = unsafe { *(*state).functions.add(index) };
    function(state);
}

/// `std::thread::_M_start_thread`.
///
/// # Safety
/// Only linked code calls this, as the function of libstdc++.
unsafe extern "C-unwind" fn start_cpp_thread(thread: *mut c_void, state: *mut *mut CppState, depend: *const c_void) {
    type Start = unsafe extern "C-unwind" fn(*mut c_void, *mut *mut CppState, *const c_void);
    let address =
        native(&CPP_THREAD).expect("linked code gets this function only where a library has that of its name");
    // SAFETY: H1 - the function of the library with this name has this type: a `unique_ptr` is passed by its address.
    let start = unsafe { std::mem::transmute::<usize, Start>(address as usize) };
    // SAFETY: H7 - linked code passes a `unique_ptr` with a state.
    let inner = unsafe { *state };
    let outer = Box::new(CppState { functions: (&raw const STATE_FUNCTIONS).cast(), inner, kept: keep_versions() });
    // SAFETY: H7 - the `unique_ptr` of the caller. The library deletes the new state, which deletes the other one.
    unsafe { *state = Box::into_raw(outer) };
    // SAFETY: H7 - the arguments of linked code. If no thread can be started, it throws, and its caller deletes the state.
    unsafe { start(thread, state, depend) };
}

extern "C-unwind" fn run_state(state: *mut CppState) {
    // SAFETY: H4 - a state of `start_cpp_thread`, which this thread owns.
    let (inner, kept) = unsafe { ((*state).inner, (*state).kept.take()) };
    enter_thread(kept);
    call_state(inner, 2);
}

extern "C-unwind" fn destroy_state(state: *mut CppState) {
    // SAFETY: H4 - as for `run_state`. Its own memory is freed by `delete_state`.
    call_state(unsafe { (*state).inner }, 1);
}

extern "C-unwind" fn delete_state(state: *mut CppState) {
    destroy_state(state);
    // SAFETY: H4 - `start_cpp_thread` has leaked it, and nobody uses a state after this function.
    drop(unsafe { Box::from_raw(state) });
}
