//! [`PassedCall`]: a call with any signature, as one process passes it to another.
//!
//! Neither side knows the types of the arguments. The compiler of the caller has put them where the ABI says: in registers and
//! on the stack. All argument registers are passed on, and as many words of the stack as the signature can have there
//! ([`CallShape`]).
//!
//! A result of more than 16 bytes goes to a place that the caller gives (psABI 3.2.3, class MEMORY). The other process has a place
//! of its own, and its bytes are passed back.
//!
//! Pointers are passed as they are: they must be addresses of the process that runs the function.

use std::ptr;

use crate::arch::{self, Arch};
use crate::base::ExecutorAddr;
use crate::error::{Error, Result};

/// The registers of a call: those of the arguments before it, those of the result after it. `arch` knows the layout.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C, align(16))]
pub(crate) struct CallRegisters {
    /// The lower 128 bits of the vector registers.
    pub(crate) vectors: [u128; 8],
    /// The first [`argument_registers`](Arch::argument_registers) are used.
    pub(crate) integers: [u64; 8],
    /// The place of a large result, on architectures that have a register for it.
    pub(crate) result_place: u64,
    /// The number of the entry that was called (`callback.rs`).
    pub(super) number: u64,
}

const _: () = assert!(size_of::<CallRegisters>() == 208 && std::mem::offset_of!(CallRegisters, integers) == 128);
const _: () = assert!(std::mem::offset_of!(CallRegisters, result_place) == 192);
const _: () = assert!(std::mem::offset_of!(CallRegisters, number) == 200);

/// A call as it is passed from one process to another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PassedCall {
    pub(crate) registers: CallRegisters,
    /// The words of the stack, from the lowest address.
    pub(crate) stack: Vec<u64>,
    /// A result that is returned in memory, or nothing.
    pub(crate) result: Vec<u8>,
}

/// What is known of a signature without the classes of its types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallShape {
    /// At least as many words as the arguments have in the registers of one kind.
    register_words: usize,
    /// At least as many words as the arguments have on the stack.
    stack_words: usize,
    /// The size of a result that is returned in memory, or 0.
    result_bytes: usize,
    /// Why such a call cannot be passed on, if it cannot.
    obstacle: Option<&'static str>,
}

impl CallShape {
    /// The shape of a signature with arguments of these sizes and alignments in bytes, and a result of such.
    pub(super) const fn new(arguments: &[(usize, usize)], result: (usize, usize)) -> CallShape {
        let in_memory = result.0 > LARGE;
        // Words of arguments that may be in registers, and of those that may be on the stack whatever else is passed.
        let (mut words, mut stack) = (in_memory as usize, 0);
        let mut obstacle = None;
        let mut index = 0;
        while index < arguments.len() {
            let (size, align) = arguments[index];
            // Before an argument of 16 bytes there may be a word of padding.
            let own = size.div_ceil(8) + (align > 8) as usize;
            // Several members of four bytes may be in as many registers.
            words += if arch::FLOATS_HAVE_REGISTERS && align == 4 { size.div_ceil(4) } else { own };
            // A packed structure is on the stack even if it is small.
            if size > LARGE || size > align {
                stack += own;
            }
            if size > LARGE && arch::PASSES_LARGE_BY_ADDRESS {
                obstacle = Some("it has an argument of more than 16 bytes, which this architecture passes by address");
            }
            if align > LARGE {
                obstacle = Some("it has an argument with an alignment of more than 16 bytes");
            }
            index += 1;
        }
        if words > ARGUMENT_REGISTERS {
            stack = words;
        }
        if stack > MAX_STACK_WORDS {
            obstacle = Some("it has more than 2,048 bytes of arguments");
        }
        if result.0 > MAX_RESULT {
            obstacle = Some("its result has more than 2,048 bytes");
        }
        if result.1 > LARGE || !in_memory && result.0 > result.1 && result.1 < 4 {
            obstacle = Some("its result is a packed structure, or has an alignment of more than 16 bytes");
        }
        // Three or four members of eight bytes may be in registers, and nothing in memory.
        if arch::FLOATS_HAVE_REGISTERS && result.1 == 8 && (result.0 == 24 || result.0 == 32) {
            obstacle = Some("its result has 24 or 32 bytes, which may be in registers of this architecture or not");
        }
        CallShape {
            register_words: words,
            stack_words: stack,
            result_bytes: if in_memory { result.0 } else { 0 },
            obstacle,
        }
    }

    /// A shape that another process has described, if calls of it can be passed on.
    pub(crate) fn of_words(register_words: u64, stack_words: u64, result_bytes: u64) -> Option<CallShape> {
        let is_possible = stack_words <= MAX_STACK_WORDS as u64 && result_bytes <= MAX_RESULT as u64;
        let (register_words, stack_words) = (register_words.min(8) as usize, stack_words as usize);
        let shape = CallShape { register_words, stack_words, result_bytes: result_bytes as usize, obstacle: None };
        is_possible.then_some(shape)
    }

    /// Words in registers of one kind, words of the stack, and bytes of a result in memory: at least as many as a call has.
    pub(crate) fn words(&self) -> [u64; 3] {
        [self.register_words as u64, self.stack_words as u64, self.result_bytes as u64]
    }

    /// Checks that calls of this shape can be passed on.
    pub(crate) fn check(&self, name: &str) -> Result<()> {
        match self.obstacle {
            None => Ok(()),
            Some(obstacle) => Err(Error::other(format!(
                "`{name}` cannot be called with its type from one process in another: {obstacle}; nothing was done; pass the \
                 address of a block that the executor has"
            ))),
        }
    }
}

/// How many integer registers have arguments of this process.
const ARGUMENT_REGISTERS: usize = Arch::NATIVE.argument_registers();
/// The greatest size of an argument or a result in registers.
const LARGE: usize = 16;
/// Less than a guard page, so that a stack that overflows faults.
pub(crate) const MAX_STACK_WORDS: usize = 256;
pub(crate) const MAX_RESULT: usize = 2048;

/// The register with the place of a large result.
fn result_place(registers: &mut CallRegisters) -> &mut u64 {
    if arch::RESULT_PLACE_IS_ARGUMENT { &mut registers.integers[0] } else { &mut registers.result_place }
}

impl PassedCall {
    /// A call of code of an architecture, with integers or pointers.
    pub(crate) fn of_integers(arch: Arch, arguments: &[u64]) -> PassedCall {
        let (in_registers, stack) = arguments.split_at(arguments.len().min(arch.argument_registers()));
        let mut call = PassedCall { stack: stack.to_vec(), ..PassedCall::default() };
        call.registers.integers[..in_registers.len()].copy_from_slice(in_registers);
        call
    }

    /// Makes the call in this process, and stores the registers and the memory of its result.
    ///
    /// # Safety
    /// At `address` is a function, its code stays in memory during the call, and the registers and the stack have its arguments.
    /// It returns at most `result.len()` bytes in memory, if it does so.
    pub(crate) unsafe fn make(&mut self, address: ExecutorAddr) {
        // Aligned for every type.
        let mut place = vec![0u128; self.result.len().div_ceil(16)];
        if !self.result.is_empty() {
            *result_place(&mut self.registers) = place.as_mut_ptr() as u64;
        }
        let function = address.value() as usize;
        // SAFETY: H1, H2 - the caller promises a function of these arguments, whose code stays in memory. The pointers are to
        // registers and words of this call.
        unsafe { make_call(function, &mut self.registers, self.stack.as_ptr(), self.stack.len()) };
        let bytes = place.iter().flat_map(|word| word.to_ne_bytes());
        self.result.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
    }

    /// The call that a function of [`define_carrier`](arch::define_carrier) got.
    ///
    /// # Safety
    /// `registers` are those of its caller, whose arguments have this shape, and `stack` is where the arguments begin that are not in
    /// registers.
    pub(super) unsafe fn of_caller(shape: CallShape, registers: &CallRegisters, stack: *const u64) -> PassedCall {
        let CallShape { register_words, stack_words, result_bytes, .. } = shape;
        let mut call = PassedCall { registers: *registers, stack: vec![0; stack_words], result: vec![0; result_bytes] };
        // What the others hold is not the other process's business.
        call.registers.integers.iter_mut().skip(register_words).for_each(|register| *register = 0);
        call.registers.vectors.iter_mut().skip(register_words).for_each(|register| *register = 0);
        call.registers.number = 0;
        // SAFETY: H4 - above the frame of the assembly function are the frames of its callers, which are larger than the
        // arguments that a `CallShape` can have. The words may be anything, and are copied as bytes of no type.
        unsafe { ptr::copy_nonoverlapping(stack.cast::<u8>(), call.stack.as_mut_ptr().cast::<u8>(), stack_words * 8) };
        call
    }

    /// Gives the result to the caller.
    ///
    /// # Safety
    /// The call was made from these `registers` by [`of_caller`](Self::of_caller), for a function that returns what the function
    /// returned that was called.
    pub(super) unsafe fn return_to_caller(self, registers: &mut CallRegisters) {
        let place = *result_place(registers);
        *registers = self.registers;
        if !self.result.is_empty() {
            // SAFETY: H1 - a caller of a function with so large a result gives a place for it.
            unsafe { ptr::copy_nonoverlapping(self.result.as_ptr(), place as *mut u8, self.result.len()) };
            registers.integers[0] = place;
        }
    }
}

unsafe extern "C-unwind" {
    /// Calls a function with these registers and words of the stack, and stores the registers of the result.
    #[link_name = concat!("jittison_make_call_", env!("CARGO_PKG_VERSION"))]
    fn make_call(function: usize, registers: &mut CallRegisters, stack: *const u64, words: usize);
}

// The name has the crate version, because a program may contain two versions of this crate.
arch::define_make_call!({ concat!("jittison_make_call_", env!("CARGO_PKG_VERSION")) });

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn shapes_have_at_least_the_words_that_the_abi_puts_on_the_stack() {
        let words = |arguments: &[(usize, usize)], result| CallShape::new(arguments, result).stack_words;
        let (long, double_long, large, packed) = ((8, 8), (16, 16), (24, 8), (5, 1));
        assert_eq!(words(&[], (0, 1)), 0);
        assert_eq!(words(&[long; 6], long), 0);
        assert!(words(&[long; 12], long) >= 12 - ARGUMENT_REGISTERS);
        // With the place of the result there may be one register less.
        assert!(!arch::RESULT_PLACE_IS_ARGUMENT || words(&[long; 6], large) >= 1);
        // After five integers, both halves of the sixth argument, and padding before it.
        assert!(ARGUMENT_REGISTERS > 6 || words(&[long, long, long, long, long, double_long], long) >= 3);
        assert!(words(&[packed, long], long) >= 1);
        let four_floats = CallShape::new(&[(16, 4)], (0, 1)).register_words;
        assert_eq!(four_floats, if arch::FLOATS_HAVE_REGISTERS { 4 } else { 2 });
        assert!(arch::PASSES_LARGE_BY_ADDRESS || words(&[large, long], long) >= 3);
    }

    #[test]
    fn the_words_of_another_process_are_limited() {
        let shape = CallShape::new(&[(8, 8); 9], (24, 8));
        let [registers, words, result] = shape.words();
        let again = CallShape::of_words(registers, words, result).unwrap();
        assert_eq!(again.words(), [registers.min(8), words, 24]);
        assert!(CallShape::of_words(1, MAX_STACK_WORDS as u64, MAX_RESULT as u64).is_some());
        assert!(CallShape::of_words(1, MAX_STACK_WORDS as u64 + 1, 0).is_none());
        assert!(CallShape::of_words(1, 0, MAX_RESULT as u64 + 1).is_none());
        assert_eq!(CallShape::of_words(u64::MAX, 0, 0).map(|shape| shape.register_words), Some(8));
    }

    #[test]
    fn signatures_that_cannot_be_passed_on_say_why() {
        let problem = |arguments: &[(usize, usize)], result| match CallShape::new(arguments, result).check("f") {
            Ok(()) => String::new(),
            Err(error) => error.to_string(),
        };
        assert_eq!(problem(&[(4, 4), (8, 8), (16, 16), (1, 1), (0, 1)], (8, 8)), "");
        assert_eq!(problem(&[], (2048, 8)), "");
        assert!(problem(&[(32, 32)], (8, 8)).contains("an argument with an alignment of more than 16 bytes"));
        assert!(problem(&[], (32, 32)).contains("its result is a packed structure, or has an alignment"));
        assert!(problem(&[], (5, 1)).contains("its result is a packed structure"));
        assert!(problem(&[], (2049, 1)).contains("its result has more than 2,048 bytes"));
        assert_eq!(problem(&[(24, 8)], (8, 8)).is_empty(), !arch::PASSES_LARGE_BY_ADDRESS);
        assert_eq!([24, 32].map(|size| problem(&[], (size, 8)).is_empty()), [!arch::FLOATS_HAVE_REGISTERS; 2]);
        if !arch::PASSES_LARGE_BY_ADDRESS {
            assert_eq!(problem(&[(2048, 8)], (8, 8)), "");
            assert!(problem(&[(2056, 8)], (8, 8)).contains("more than 2,048 bytes of arguments"));
        }
    }
}
