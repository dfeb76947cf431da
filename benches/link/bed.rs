//! What the benchmarks of linking do alike: a session, and an object that is linked into it and called.

use jittison::Jit;
use jittison::base::ExecutorAddr;
use jittison::session::{JitDylib, ResourceTracker, Visibility};

use crate::objects::Instance;

/// A session as anybody would make it, with the runtime library in a dylib of its own.
pub fn session(runtime: &[u8]) -> Jit {
    let jit = Jit::new().unwrap();
    let library = jit.create_dylib("runtime").unwrap();
    jit.add_object(&library.default_tracker().unwrap(), "runtime.o", runtime).unwrap();
    let order = [vec![(library, Visibility::ExportedOnly)], jit.main_dylib().link_order()].concat();
    jit.main_dylib().set_link_order(&order);
    jit
}

/// Links it at once.
pub fn link(jit: &Jit, dylib: &JitDylib, instance: &Instance) -> (ExecutorAddr, ResourceTracker) {
    let tracker = dylib.create_tracker().unwrap();
    // A name that no other object has, as errors would show it.
    jit.link_object(&tracker, &instance.entry, instance.bytes.clone()).unwrap();
    (dylib.lookup_address(&instance.entry).unwrap(), tracker)
}

pub fn check(address: ExecutorAddr, instance: &Instance) {
    // SAFETY: the address of a function of this signature, under a tracker that is live.
    let run: extern "C" fn(u64) -> u64 = unsafe { std::mem::transmute(address.value() as usize) };
    assert_eq!(run(7), instance.expected, "{}", instance.entry);
}
