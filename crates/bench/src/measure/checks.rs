//! Calls of linked functions, whose results are known.

use jittison::Function;
use jittison::base::ExecutorAddr;
use jittison_test_support::bench::objects::Instance;

/// The argument of every call of an entry.
pub const ARGUMENT: u64 = 7;

/// The signature of the entries.
pub type Run = extern "C" fn(u64) -> u64;

/// Calls a linked function and checks its result.
pub fn check(address: ExecutorAddr, instance: &Instance) -> Result<(), String> {
    check_with(address, instance, ARGUMENT)
}

pub fn check_with(address: ExecutorAddr, instance: &Instance, argument: u64) -> Result<(), String> {
    // SAFETY: the address of a function with this signature, in a live module.
    let run: Run = unsafe { std::mem::transmute(address.value() as usize) };
    check_result(run(argument), instance)
}

pub fn check_function(function: &Function<Run>, instance: &Instance) -> Result<(), String> {
    check_result(function.call(ARGUMENT), instance)
}

fn check_result(result: u64, instance: &Instance) -> Result<(), String> {
    let is_right = result == instance.expected;
    is_right.then_some(()).ok_or_else(|| format!("{} returns {result:#x}", instance.entry))
}
