//! The set-up that the benchmarks of linking share: a session, and an object that is linked into it and called.

use jittison::Jit;
use jittison::base::ExecutorAddr;
use jittison::session::{JitDylib, ResourceTracker, Visibility};

use crate::bench::objects::Instance;

/// A session with default options, and with the runtime library in its own dylib.
pub fn session(runtime: &[u8]) -> Jit {
    let jit = Jit::new().unwrap();
    let library = jit.create_dylib("runtime").unwrap();
    jit.add_object(&library.default_tracker().unwrap(), "runtime.o", runtime).unwrap();
    let order = [vec![(library, Visibility::ExportedOnly)], jit.main_dylib().link_order()].concat();
    jit.main_dylib().set_link_order(&order).unwrap();
    jit
}

/// Links an instance at once and returns the address of its entry.
pub fn link(jit: &Jit, dylib: &JitDylib, instance: &Instance) -> (ExecutorAddr, ResourceTracker) {
    let tracker = dylib.create_tracker().unwrap();
    // The object's name is unique, as in a program that wants clear errors.
    jit.link_object(&tracker, &instance.entry, instance.bytes.clone()).unwrap();
    (dylib.lookup_address(&instance.entry).unwrap(), tracker)
}

/// Calls the entry and checks its result.
pub fn check(address: ExecutorAddr, instance: &Instance) {
    // SAFETY: the address of a function with this signature, whose tracker is live.
    let run: extern "C" fn(u64) -> u64 = unsafe { std::mem::transmute(address.value() as usize) };
    assert_eq!(run(7), instance.expected, "{}", instance.entry);
}
