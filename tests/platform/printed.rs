//! The `Debug` output of the parts of a platform.

use jittison::base::{ExecutorAddr, Name};
use jittison::platform::{
    InitFiniRegistry, LazyReexports, ProcessSymbols, ProgramSymbols, StaticLibraries, StubManager,
};
use jittison::session::{Alias, SymbolFlags};

use crate::support::*;

#[test]
fn debug_output_of_platform_parts_shows_their_contents() {
    let jit = new_jit();
    let memory = jit.layer().memory().clone();
    let stubs = StubManager::new(memory.clone());
    stubs.register(jit.session());
    let tracker = jit.main_dylib().create_tracker().unwrap();
    stubs.create(&tracker, &[("one", ExecutorAddr::new(1)), ("two", ExecutorAddr::new(2))]).unwrap();
    jit.address_of(jit.main_dylib(), "two").unwrap();
    assert_eq!(format!("{stubs:?}"), "stub manager with 2 stubs");

    let lazy = LazyReexports::new(memory, stubs.clone());
    lazy.register(jit.session());
    assert_eq!(format!("{lazy:?}"), "lazy re-exports under 0 keys");
    let alias = Alias { name: Name::new("later"), aliasee: Name::new("abs"), flags: SymbolFlags::EXPORTED };
    lazy.define(&tracker, jit.process_dylib(), &[alias]).unwrap();
    jit.address_of(jit.main_dylib(), "later").unwrap();
    assert_eq!(format!("{lazy:?}"), "lazy re-exports under 1 keys");

    assert_eq!(format!("{:?}", InitFiniRegistry::new()), "init/fini registry, 0 objects to initialise");
    assert_eq!(
        format!("{:?}", ProcessSymbols::new(["libm.so.6".into()])),
        "process symbols, with [], not yet [\"libm.so.6\"]"
    );
    assert!(format!("{:?}", StaticLibraries::new(jit.layer())).starts_with("static libraries: "));
    let symbols = ProgramSymbols::new().unwrap();
    assert_eq!(format!("{symbols:?}"), format!("{} symbols of the program", symbols.symbol_count()));
    let keys = jit.layer().key_count();
    assert_eq!(format!("{:?}", jit.layer()), format!("object linking layer with {keys} keys"));
}
