//! A shared library that contains a copy of the crate. A program with its own copy opens and closes it.

use std::ffi::c_void;
use std::sync::{Arc, Mutex};

use jittison::base::{ExecutorAddr, Name};
use jittison::layer::ObjectLinkingLayer;
use jittison::memory::OfflineMemory;
use jittison::platform::Debugger;
use jittison::session::{RequiredState, SymbolFlags, SymbolRequest};
use jittison::{ExecutionSession, Jit, ResourceTracker};

static LIVE: Mutex<Option<(Jit, ResourceTracker)>> = Mutex::new(None);
static LISTED: Mutex<Option<(ExecutionSession, Arc<ObjectLinkingLayer>)>> = Mutex::new(None);

unsafe extern "C" {
    static __jit_debug_descriptor: u8;
    static __jittison_jit_debug_lock_v1: u8;
}

/// The debugger list of this copy.
#[unsafe(no_mangle)]
pub extern "C" fn copy_list() -> *const c_void {
    (&raw const __jit_debug_descriptor).cast()
}

/// The lock of that list.
#[unsafe(no_mangle)]
pub extern "C" fn copy_list_lock() -> *const c_void {
    (&raw const __jittison_jit_debug_lock_v1).cast()
}

/// Links an object at an offline address and registers it in the debugger list. This uses no memory pool and no exit hook.
///
/// # Safety
/// `object` points to `size` bytes of an object that defines `name`. `name` points to `name_size` bytes of text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn copy_list_only(object: *const u8, size: usize, name: *const u8, name_size: usize) {
    // SAFETY: by contract.
    let (bytes, name) =
        unsafe { (std::slice::from_raw_parts(object, size), std::slice::from_raw_parts(name, name_size)) };
    let name = std::str::from_utf8(name).unwrap();
    let session = ExecutionSession::new();
    let layer = ObjectLinkingLayer::new(Arc::new(OfflineMemory::new(ExecutorAddr::new(0x1000_0000))));
    layer.register(&session);
    let debugger = Debugger::new();
    layer.add_plugin(debugger.clone());
    debugger.register(&session);
    let dylib = session.create_dylib("listed").unwrap();
    let tracker = dylib.create_tracker().unwrap();
    layer.add(&tracker, "listed.o", bytes.to_vec().into()).unwrap();
    let order = dylib.search_order();
    session.lookup(&order, &[SymbolRequest::required(name)], RequiredState::Ready).unwrap();
    assert_eq!(debugger.key_count(), 1);
    *LISTED.lock().unwrap() = Some((session, layer));
}

/// Ends the session of `copy_list_only`.
#[unsafe(no_mangle)]
pub extern "C" fn copy_unlist() {
    let listed = LISTED.lock().unwrap().take();
    drop(listed);
}

/// Adds an object, with `say` and `helper` for it to call.
///
/// # Safety
/// `object` points to `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn copy_begin(object: *const u8, size: usize, say: *const c_void, helper: *const c_void) {
    // SAFETY: by contract.
    let bytes = unsafe { std::slice::from_raw_parts(object, size) }.to_vec();
    let jit = Jit::builder().library("libstdc++.so.6").trap_freed_code(true).build().unwrap();
    let flags = SymbolFlags::EXPORTED | SymbolFlags::CALLABLE;
    let define = |name: &str, at: *const c_void| {
        jit.main_dylib().define_absolute([(Name::new(name), ExecutorAddr::new(at as u64), flags)]).unwrap();
    };
    define("say", say);
    define("helper", helper);
    let tracker = jit.main_dylib().create_tracker().unwrap();
    jit.add_object(&tracker, "copy.o", bytes).unwrap();
    *LIVE.lock().unwrap() = Some((jit, tracker));
}

/// The address of a function of the object, or null.
///
/// # Safety
/// `name` points to `size` bytes of text. The object may run.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn copy_find(name: *const u8, size: usize) -> *const c_void {
    // SAFETY: by contract.
    let name = std::str::from_utf8(unsafe { std::slice::from_raw_parts(name, size) }).unwrap();
    let live = LIVE.lock().unwrap();
    let (jit, _) = live.as_ref().unwrap();
    // SAFETY: the caller casts the address to the right type.
    match unsafe { jit.lookup::<extern "C" fn()>(name) } {
        Ok(found) => found.address().value() as *const c_void,
        Err(_) => std::ptr::null(),
    }
}

/// Removes the object and ends the session. True if the removal was complete.
#[unsafe(no_mangle)]
pub extern "C" fn copy_end() -> bool {
    let Some((jit, tracker)) = LIVE.lock().unwrap().take() else { return false };
    let is_complete = tracker.remove().unwrap().is_complete();
    drop(jit);
    is_complete
}
