//! The program's own symbols: those that its dynamic symbol table does not name.

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

/// As the program's own source would say it: it defines the variable, too.
const SOURCE: &str = "long JITTISON_TEST_COUNTER; extern long jittison_test_twice(long);
    long gemm(long n) { JITTISON_TEST_COUNTER += n; return jittison_test_twice(n); }";

#[test]
fn a_version_shares_the_program_s_variables_by_a_side_table_of_addresses() {
    own_process!();
    let Some(object) = c(SOURCE) else { return };
    let jit = new_jit();
    let table = jit.main_dylib().create_tracker().unwrap();
    let counter = AtomicI64::new(5);
    let place =
        |name: &str, address: u64, flag| (Name::new(name), ExecutorAddr::new(address), SymbolFlags::EXPORTED | flag);
    table
        .define_absolute([
            place("JITTISON_TEST_COUNTER", &raw const counter as u64, SymbolFlags::NONE),
            place("jittison_test_twice", jittison_test_twice as *const () as u64, SymbolFlags::CALLABLE),
        ])
        .unwrap();
    let kernels = jit.patchable(jit.main_dylib(), &["gemm"]).unwrap();
    drop(commit(&kernels, &object));
    assert_eq!((find(&jit, "gemm").call(4), counter.load(Ordering::Relaxed)), (8, 9));
}

#[test]
fn a_version_shares_the_program_s_variables_that_only_its_symbol_table_names() {
    own_process!();
    let Some(object) = c(SOURCE) else { return };
    let jit = new_jit();
    assert!(jit.address_of(jit.main_dylib(), "JITTISON_TEST_COUNTER").is_err(), "the loader does not know it");
    jit.add_program_symbols(jit.main_dylib()).unwrap();
    let address = jit.address_of(jit.main_dylib(), "JITTISON_TEST_COUNTER").unwrap();
    assert_eq!(address.value(), &raw const JITTISON_TEST_COUNTER as u64);
    let kernels = jit.patchable(jit.main_dylib(), &["gemm"]).unwrap();
    drop(commit(&kernels, &object));
    JITTISON_TEST_COUNTER.store(30, Ordering::Relaxed);
    assert_eq!((find(&jit, "gemm").call(4), JITTISON_TEST_COUNTER.load(Ordering::Relaxed)), (8, 34));
}

#[test]
fn names_that_are_local_to_an_object_file_are_not_the_program_s() {
    own_process!();
    let symbols = ProgramSymbols::new().unwrap();
    assert!(symbols.symbol_count() > 100);
    let jit = new_jit();
    jit.add_program_symbols(jit.main_dylib()).unwrap();
    for name in ["crtstuff.c", "frame_dummy", "no such symbol"] {
        assert!(jit.address_of(jit.main_dylib(), name).is_err(), "{name}");
    }
}
