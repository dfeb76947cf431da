//! A shared library with a copy of the crate inside, which a program that has one of its own opens and closes.

use std::ffi::c_void;
use std::sync::Mutex;

use jittison::base::{ExecutorAddr, Name};
use jittison::session::SymbolFlags;
use jittison::{Jit, ResourceTracker};

static LIVE: Mutex<Option<(Jit, ResourceTracker)>> = Mutex::new(None);

/// Links an object, with `say` and `helper` for it to call.
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

/// The address of a function of the object; null when there is none.
///
/// # Safety
/// `name` points to `size` bytes of text. The object may run.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn copy_find(name: *const u8, size: usize) -> *const c_void {
    // SAFETY: by contract.
    let name = std::str::from_utf8(unsafe { std::slice::from_raw_parts(name, size) }).unwrap();
    let live = LIVE.lock().unwrap();
    let (jit, _) = live.as_ref().unwrap();
    // SAFETY: the caller casts it to what it is.
    match unsafe { jit.lookup::<extern "C" fn()>(name) } {
        Ok(found) => found.address().value() as *const c_void,
        Err(_) => std::ptr::null(),
    }
}

/// Removes the object, and ends the session; whether nothing was in the way.
#[unsafe(no_mangle)]
pub extern "C" fn copy_end() -> bool {
    let Some((jit, tracker)) = LIVE.lock().unwrap().take() else { return false };
    let is_complete = tracker.remove().unwrap().is_complete();
    drop(jit);
    is_complete
}
