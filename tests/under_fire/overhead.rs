//! The cost of a call through a handle: the cost of a call through a pointer, plus one check of a word that is only read. The
//! instructions are compared in optimised builds only, because other builds differ.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Mnemonic};
use jittison::{Function, Symbol};

use crate::support::*;

type F = extern "C" fn(i64) -> i64;

#[inline(never)]
fn by_pointer(function: &F, x: i64) -> i64 {
    function(x)
}

#[inline(never)]
fn by_handle(function: &Function<F>, x: i64) -> i64 {
    function.call(x)
}

#[inline(never)]
fn by_symbol(function: &Symbol<'_, F>, x: i64) -> i64 {
    function.call(x)
}

/// The instructions of a function of this program, up to its first return or indirect jump.
fn instructions(address: u64) -> Vec<Mnemonic> {
    let bytes = read(address, 64);
    let mut decoder = Decoder::with_ip(64, &bytes, address, DecoderOptions::NONE);
    let mut found = Vec::new();
    for instruction in &mut decoder {
        found.push(instruction.mnemonic());
        if matches!(instruction.flow_control(), FlowControl::Return | FlowControl::IndirectBranch) {
            return found;
        }
    }
    panic!("no return in 64 bytes: {found:?}");
}

#[test]
fn a_call_through_a_handle_costs_one_check_more_than_through_a_pointer() {
    extern "C" fn twice(x: i64) -> i64 {
        2 * x
    }
    // SAFETY: a function of this program.
    let handle = unsafe { Function::from_address(jittison::base::ExecutorAddr::new(twice as F as usize as u64), None) };
    // SAFETY: the same.
    let symbol = unsafe { Symbol::from_address(handle.address()) };
    assert_eq!([by_pointer(&(twice as F), 4), by_handle(&handle, 4), by_symbol(&symbol, 4)], [8; 3]);
    let pointer = instructions(by_pointer as fn(&F, i64) -> i64 as usize as u64);
    let handle = instructions(by_handle as fn(&Function<F>, i64) -> i64 as usize as u64);
    // The check is a load, a test and a branch, in registers that need no saving.
    let is_check = |mnemonic: &Mnemonic| {
        matches!(mnemonic, Mnemonic::Mov | Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Je | Mnemonic::Jne)
    };
    let (call, check) = handle.split_last().unwrap();
    assert!(handle.len() <= pointer.len() + 4 && check.iter().all(is_check) && *call == Mnemonic::Jmp, "{handle:?}");
    assert_eq!(instructions(by_symbol as for<'a> fn(&Symbol<'a, F>, i64) -> i64 as usize as u64), pointer);
}
