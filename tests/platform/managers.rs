//! The resource managers of the crate: only their session calls them, in an order that no registration changes.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use jittison::base::{ExecutorAddr, Name};
use jittison::error::Error;
use jittison::layer::ObjectLinkingLayer;
use jittison::platform::{Debugger, InitFiniRegistry, LazyReexports, StubManager};
use jittison::session::{ResourceManager, SymbolFlags};
use jittison::{Jit, JitDylib, ResourceKey};

use crate::support::*;

/// `IS_MANAGER` is true if `T` implements [`ResourceManager`]: an inherent constant hides one of a trait.
struct Probe<T>(std::marker::PhantomData<T>);

impl<T: ResourceManager> Probe<T> {
    const IS_MANAGER: bool = true;
}

trait Otherwise {
    const IS_MANAGER: bool = false;
}

impl<T> Otherwise for Probe<T> {}

/// `remove_resources` of the layer freed code that threads ran, and safe code could call it.
#[test]
fn no_manager_of_the_crate_can_be_called_by_others_than_its_session() {
    let is_manager = [
        Probe::<ObjectLinkingLayer>::IS_MANAGER,
        Probe::<StubManager>::IS_MANAGER,
        Probe::<LazyReexports>::IS_MANAGER,
        Probe::<InitFiniRegistry>::IS_MANAGER,
        Probe::<Debugger>::IS_MANAGER,
        Probe::<UsageLog>::IS_MANAGER,
    ];
    assert_eq!(is_manager, [false, false, false, false, false, true], "only the last one is of an embedder");
}

/// Logs the bytes of code that a key still has when the manager is called for it.
struct UsageLog(Arc<ObjectLinkingLayer>, Mutex<Vec<u64>>);

impl ResourceManager for UsageLog {
    fn remove_resources(&self, _: &JitDylib, key: ResourceKey) -> Result<(), Error> {
        self.1.lock().unwrap().push(self.0.usage(key).code);
        Ok(())
    }

    fn transfer_resources(&self, _: &JitDylib, _: ResourceKey, _: ResourceKey) {}
}

static FINALISED_KEYS: AtomicUsize = AtomicUsize::new(0);

/// Called by the finaliser: counts the keys whose code is still in memory.
extern "C" fn finalised(layer: *const c_void) {
    // SAFETY: the test passes the address of its layer, which it still owns.
    let layer = unsafe { &*layer.cast::<ObjectLinkingLayer>() };
    FINALISED_KEYS.fetch_add(layer.key_count(), Ordering::Relaxed);
}

/// The memory was released first, because its manager was the newest one.
#[test]
fn code_is_freed_after_its_finalisers_and_after_all_managers_whatever_is_registered_again() {
    let source = "extern char layer[]; void finalised(void *);
        __attribute__((destructor)) static void last(void) { finalised(layer); }
        int answer(void) { return 42; }";
    let Some(object) = c(source) else { return };
    let jit: Jit = new_jit();
    let early = Arc::new(UsageLog(jit.layer().clone(), Mutex::default()));
    jit.session().register_manager(early.clone());
    jit.layer().register(jit.session());
    let late = Arc::new(UsageLog(jit.layer().clone(), Mutex::default()));
    jit.session().register_manager(late.clone());
    jit.session().register_manager(early.clone());
    let flags = SymbolFlags::EXPORTED;
    let symbols = [
        (Name::new("layer"), ExecutorAddr::new(Arc::as_ptr(jit.layer()).addr() as u64), flags),
        (Name::new("finalised"), ExecutorAddr::new(finalised as *const () as u64), flags | SymbolFlags::CALLABLE),
    ];
    jit.main_dylib().define_absolute(symbols).unwrap();
    let tracker = add(&jit, jit.main_dylib(), "answer.o", &object);
    let answer = function::<extern "C" fn() -> i32>(&jit, "answer");
    assert_eq!(answer.call(), 42);
    drop(answer);
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(FINALISED_KEYS.load(Ordering::Relaxed), 1);
    for log in [early, late] {
        let log = log.1.lock().unwrap().clone();
        assert!(matches!(log[..], [code] if code > 0), "{log:?}");
    }
    assert_eq!(jit.layer().key_count(), 0);
}
