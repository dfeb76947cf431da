//! Program symbols that the dynamic symbol table does not contain.

use std::sync::atomic::{AtomicI64, Ordering};

use jittison::base::{ExecutorAddr, Name};
use jittison::platform::ProgramSymbols;
use jittison::session::SymbolFlags;

use crate::support::*;
use crate::*;

#[unsafe(no_mangle)]
static JITTISON_TEST_COUNTER: AtomicI64 = AtomicI64::new(0);

#[unsafe(no_mangle)]
extern "C" fn jittison_test_twice(n: i64) -> i64 {
    2 * n
}

/// The source as the program would have it. It defines the variable as well.
const SOURCE: &str = "long JITTISON_TEST_COUNTER; extern long jittison_test_twice(long);
    long gemm(long n) { JITTISON_TEST_COUNTER += n; return jittison_test_twice(n); }";

#[test]
fn a_version_uses_program_variables_defined_by_address() {
    own_process!();
    let Some(object) = c(SOURCE) else { return };
    let jit = new_jit();
    let table = jit.main_dylib().create_tracker().unwrap();
    let counter = AtomicI64::new(5);
    let symbol =
        |name: &str, address: u64, flag| (Name::new(name), ExecutorAddr::new(address), SymbolFlags::EXPORTED | flag);
    table
        .define_absolute([
            symbol("JITTISON_TEST_COUNTER", &raw const counter as u64, SymbolFlags::NONE),
            symbol("jittison_test_twice", jittison_test_twice as *const () as u64, SymbolFlags::CALLABLE),
        ])
        .unwrap();
    let kernels = jit.patchable(jit.main_dylib(), &["gemm"]).unwrap();
    drop(commit(&kernels, &object));
    assert_eq!((find(&jit, "gemm").call(4), counter.load(Ordering::Relaxed)), (8, 9));
}

#[test]
fn a_version_uses_program_variables_that_only_the_symbol_table_names() {
    own_process!();
    let Some(object) = c(SOURCE) else { return };
    let jit = new_jit();
    assert!(
        jit.address_of(jit.main_dylib(), "JITTISON_TEST_COUNTER").is_err(),
        "the dynamic symbol table does not contain it"
    );
    jit.add_program_symbols(jit.main_dylib()).unwrap();
    let address = jit.address_of(jit.main_dylib(), "JITTISON_TEST_COUNTER").unwrap();
    assert_eq!(address.value(), &raw const JITTISON_TEST_COUNTER as u64);
    let kernels = jit.patchable(jit.main_dylib(), &["gemm"]).unwrap();
    drop(commit(&kernels, &object));
    JITTISON_TEST_COUNTER.store(30, Ordering::Relaxed);
    assert_eq!((find(&jit, "gemm").call(4), JITTISON_TEST_COUNTER.load(Ordering::Relaxed)), (8, 34));
}

#[test]
fn file_local_names_are_not_program_symbols() {
    own_process!();
    let symbols = ProgramSymbols::new().unwrap();
    assert!(symbols.symbol_count() > 100);
    let jit = new_jit();
    jit.add_program_symbols(jit.main_dylib()).unwrap();
    for name in ["crtstuff.c", "frame_dummy", "no such symbol"] {
        assert!(jit.address_of(jit.main_dylib(), name).is_err(), "{name}");
    }
}
