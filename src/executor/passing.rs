//! A [`PassedCall`] as the fields of a message. Both sides pass calls, and both check what they get.

use crate::error::{Error, Result};
use crate::host::{CallRegisters, MAX_RESULT, MAX_STACK_WORDS, PassedCall};

/// The fields of a call: integer registers, vector registers, words of the stack, and the size of a result in memory. Registers
/// behind the last one that is not zero are left out.
pub(super) fn fields_of(call: &mut PassedCall) -> (Vec<u64>, Vec<u128>, Vec<u64>, u64) {
    let CallRegisters { integers, vectors, .. } = &call.registers;
    let registers = (without_zeros(integers), without_zeros(vectors));
    (registers.0, registers.1, std::mem::take(&mut call.stack), call.result.len() as u64)
}

/// The call of a message.
///
/// # Errors
/// The fields exceed what a call can have.
pub(super) fn call_of(integers: &[u64], vectors: &[u128], stack: Vec<u64>, result_bytes: u64) -> Result<PassedCall> {
    let mut call = PassedCall::default();
    let CallRegisters { integers: all_integers, vectors: all_vectors, .. } = &mut call.registers;
    let has_registers = integers.len() <= all_integers.len() && vectors.len() <= all_vectors.len();
    if !has_registers || stack.len() > MAX_STACK_WORDS || result_bytes > MAX_RESULT as u64 {
        return Err(Error::other(format!(
            "no call with {} and {} registers, {} words of the stack and a result of {result_bytes} bytes",
            integers.len(),
            vectors.len(),
            stack.len()
        )));
    }
    all_integers[..integers.len()].copy_from_slice(integers);
    all_vectors[..vectors.len()].copy_from_slice(vectors);
    (call.stack, call.result) = (stack, vec![0; result_bytes as usize]);
    Ok(call)
}

/// The registers of a result.
pub(super) fn result_of(call: &PassedCall) -> ([u64; 2], [u128; 4]) {
    let CallRegisters { integers: [first, second, ..], vectors: [a, b, c, d, ..], .. } = call.registers;
    ([first, second], [a, b, c, d])
}

/// Stores the result of a message. False, and nothing is stored, if it has another size than the call wants.
pub(super) fn set_result(call: &mut PassedCall, integers: [u64; 2], vectors: [u128; 4], memory: Vec<u8>) -> bool {
    if memory.len() != call.result.len() {
        return false;
    }
    call.registers.integers[..2].copy_from_slice(&integers);
    call.registers.vectors[..4].copy_from_slice(&vectors);
    call.result = memory;
    true
}

fn without_zeros<T: Copy + PartialEq + Default>(registers: &[T]) -> Vec<T> {
    let used = registers.iter().rposition(|register| *register != T::default()).map_or(0, |last| last + 1);
    registers[..used].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_and_its_result_are_the_same_after_a_message() {
        let mut call = PassedCall::of_integers(&[1, 0, 3]);
        call.registers.vectors[1] = u128::MAX;
        (call.stack, call.result) = (vec![4, 5], vec![0; 24]);
        let before = call.clone();
        let (integers, vectors, stack, result_bytes) = fields_of(&mut call);
        assert_eq!((&*integers, &*vectors), (&[1, 0, 3][..], &[0, u128::MAX][..]));
        let mut again = call_of(&integers, &vectors, stack, result_bytes).unwrap();
        assert_eq!(again, before);
        assert!(!set_result(&mut again, [7, 8], [9, 10, 11, 12], vec![1; 23]) && again == before);
        assert!(set_result(&mut again, [7, 8], [9, 10, 11, 12], vec![1; 24]));
        assert_eq!((result_of(&again), again.result), (([7, 8], [9, 10, 11, 12]), vec![1; 24]));
    }

    #[test]
    fn fields_beyond_a_call_are_refused() {
        assert!(call_of(&[1; 8], &[1; 8], vec![0; MAX_STACK_WORDS], MAX_RESULT as u64).is_ok());
        for (integers, vectors, words, result) in
            [(9, 0, 0, 0), (0, 9, 0, 0), (0, 0, MAX_STACK_WORDS + 1, 0), (0, 0, 0, MAX_RESULT as u64 + 1)]
        {
            let refused = call_of(&vec![1; integers], &vec![1; vectors], vec![0; words], result).unwrap_err();
            assert!(refused.to_string().starts_with("no call with "), "{refused}");
        }
    }
}
