//! A [`PassedCall`] as messages have it. Both sides pass calls, and both check what they get.

use crate::error::{Error, Result};
use crate::host::{CallRegisters, MAX_RESULT, MAX_STACK_WORDS, PassedCall};
use crate::wire::{PassedArguments, PassedResult};

/// What a call passes. The words of the stack are moved out of it.
pub(super) fn arguments_of(call: &mut PassedCall) -> Box<PassedArguments> {
    let CallRegisters { integers, vectors, .. } = call.registers;
    let (stack, result_bytes) = (std::mem::take(&mut call.stack), call.result.len() as u32);
    Box::new(PassedArguments { integers, vectors, stack, result_bytes })
}

/// The call of a message.
///
/// # Errors
/// It exceeds what a call can have.
pub(super) fn call_of(arguments: PassedArguments) -> Result<PassedCall> {
    let PassedArguments { integers, vectors, stack, result_bytes } = arguments;
    if stack.len() > MAX_STACK_WORDS || result_bytes as usize > MAX_RESULT {
        return Err(Error::other(format!(
            "no call with {} words of the stack and a result of {result_bytes} bytes",
            stack.len()
        )));
    }
    let mut call = PassedCall { stack, result: vec![0; result_bytes as usize], ..PassedCall::default() };
    (call.registers.integers, call.registers.vectors) = (integers, vectors);
    Ok(call)
}

/// The result of a call.
pub(super) fn result_of(call: PassedCall) -> PassedResult {
    let CallRegisters { integers: [first, second, ..], vectors: [a, b, c, d, ..], .. } = call.registers;
    PassedResult { integers: [first, second], vectors: [a, b, c, d], memory: call.result }
}

/// Stores the result of a message. False, and nothing is stored, if it has another size than the call wants.
pub(super) fn set_result(call: &mut PassedCall, result: PassedResult) -> bool {
    if result.memory.len() != call.result.len() {
        return false;
    }
    call.registers.integers[..2].copy_from_slice(&result.integers);
    call.registers.vectors[..4].copy_from_slice(&result.vectors);
    call.result = result.memory;
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Arch;

    #[test]
    fn a_call_and_its_result_are_the_same_after_a_message() {
        let mut call = PassedCall::of_integers(Arch::NATIVE, &[1, 0, 3]);
        call.registers.vectors[1] = u128::MAX;
        (call.stack, call.result) = (vec![4, 5], vec![0; 24]);
        let before = call.clone();
        let mut again = call_of(*arguments_of(&mut call)).unwrap();
        assert_eq!(again, before);
        let result = |bytes| PassedResult { integers: [7, 8], vectors: [9, 10, 11, 12], memory: vec![1; bytes] };
        assert!(!set_result(&mut again, result(23)) && again == before);
        assert!(set_result(&mut again, result(24)));
        assert_eq!(result_of(again), result(24));
    }

    #[test]
    fn arguments_beyond_a_call_are_refused() {
        let call = |words, result_bytes| {
            call_of(PassedArguments { stack: vec![0; words], result_bytes, ..PassedArguments::default() })
        };
        assert!(call(MAX_STACK_WORDS, MAX_RESULT as u32).is_ok());
        for (words, result) in [(MAX_STACK_WORDS + 1, 0), (0, MAX_RESULT as u32 + 1)] {
            let refused = call(words, result).unwrap_err();
            assert!(refused.to_string().starts_with("no call with "), "{refused}");
        }
    }
}
