//! [`carry`] and [`PassedCall::make`]: a call with any signature that another process runs.
//!
//! ```text
//!   controller                                          executor
//!   call of a `Function` ─► carry_call (assembly)       make_call (assembly) ─► the function
//!                           stores the registers ─────► loads them
//!                           loads the result     ◄───── stores it
//! ```
//!
//! Neither side knows the types of the arguments. The compiler of the caller has put them where the ABI says: in registers and
//! on the stack. All argument registers are passed on, and as many words of the stack as the signature can have there
//! ([`CallShape`]). `arch` has the machine code of both sides.
//!
//! A result of more than 16 bytes goes to a place that the caller gives (psABI 3.2.3, class MEMORY). The executor has a place of
//! its own, and its bytes are passed back.
//!
//! Pointers are passed as they are: they must be addresses of the executor.

use std::any::Any;
use std::cell::Cell;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;

use crate::arch;
use crate::base::{CallEntry, CodeHold, ExecutorAddr, catch};
use crate::error::{Error, Result};
use crate::sync::{Arc, plain_thread_local};

/// The registers of a call: those of the arguments before it, those of the result after it. `arch` knows the layout.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C, align(16))]
pub(crate) struct CallRegisters {
    /// The lower 128 bits of the vector registers.
    pub(crate) vectors: [u128; 8],
    /// The first [`ARGUMENT_REGISTERS`](arch::ARGUMENT_REGISTERS) are used.
    pub(crate) integers: [u64; 8],
    /// The place of a large result, on architectures that have a register for it.
    pub(crate) result_place: u64,
}

const _: () = assert!(size_of::<CallRegisters>() == 208 && std::mem::offset_of!(CallRegisters, integers) == 128);
const _: () = assert!(std::mem::offset_of!(CallRegisters, result_place) == 192);

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
            words += own;
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
        if words > arch::ARGUMENT_REGISTERS {
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
        CallShape {
            register_words: words,
            stack_words: stack,
            result_bytes: if in_memory { result.0 } else { 0 },
            obstacle,
        }
    }

    /// Checks that calls of this shape can be passed on.
    pub(crate) fn check(&self, name: &str) -> Result<()> {
        match self.obstacle {
            None => Ok(()),
            Some(obstacle) => Err(Error::other(format!(
                "`{name}` cannot be called with its type in the process of an executor: {obstacle}; nothing was linked; pass the \
                 address of a block that the executor has"
            ))),
        }
    }
}

/// The greatest size of an argument or a result in registers.
const LARGE: usize = 16;
/// Less than a guard page, so that a stack that overflows faults.
pub(crate) const MAX_STACK_WORDS: usize = 256;
pub(crate) const MAX_RESULT: usize = 2048;

/// The process that runs a function.
pub(crate) trait RemoteCalls: Send + Sync {
    /// Makes a call there. The caller keeps the code at `address` in memory.
    ///
    /// # Errors
    /// How the process ended, before or in the call.
    fn call(&self, address: ExecutorAddr, call: &mut PassedCall) -> Result<()>;
}

/// The hold of a function that another process runs.
pub(crate) struct RemoteHold {
    pub(crate) pin: Option<Arc<dyn CodeHold>>,
    pub(crate) calls: Box<dyn RemoteCalls>,
}

impl CodeHold for RemoteHold {
    fn enter_call(&self) -> Option<CallEntry> {
        self.pin.as_ref()?.enter_call()
    }
}

/// The process that runs the code of a hold, unless it is this one.
pub(super) fn remote_calls(hold: &Arc<dyn CodeHold>) -> Option<&dyn RemoteCalls> {
    let hold: &dyn Any = &**hold;
    hold.downcast_ref::<RemoteHold>().map(|hold| &*hold.calls)
}

/// A call on its way from [`carry`] through [`carry_call`] to the other process.
struct Outgoing<'a> {
    calls: &'a dyn RemoteCalls,
    address: ExecutorAddr,
    shape: CallShape,
    outcome: Option<Result<()>>,
}

plain_thread_local! {
    /// The [`Outgoing`] of the next [`carry_call`] of this thread.
    static NEXT: Cell<*mut c_void> = const { Cell::new(ptr::null_mut()) };
}

/// Calls the function at `address` in another process. `body` calls [`carrier`] as a function of the signature of `shape`, with
/// the arguments, and returns what it returns.
///
/// # Safety
/// - `body` does that, once, on this thread, and calls no other carrier before.
/// - In the other process, a function of this signature is at `address`, and something keeps its code in memory.
pub(super) unsafe fn carry<R>(
    calls: &dyn RemoteCalls,
    address: ExecutorAddr,
    shape: CallShape,
    body: impl FnOnce() -> MaybeUninit<R>,
) -> Result<R> {
    let mut outgoing = Outgoing { calls, address, shape, outcome: None };
    NEXT.set((&raw mut outgoing).cast());
    let value = body();
    outgoing.outcome.expect("`pass_on` stores the outcome before `body` returns")?;
    // SAFETY: H1 - the other process has called a function that returns an `R`, and `pass_on` has put what it returned where
    // the ABI has it.
    Ok(unsafe { value.assume_init() })
}

/// The address of [`carry_call`], a function of any signature.
pub(super) fn carrier() -> usize {
    carry_call as *const () as usize
}

/// Passes a call on, and stores the registers and the memory of its result.
///
/// # Safety
/// Only [`carry_call`] calls it: `registers` are those of its caller, and `stack` is where the arguments of its caller that are not in
/// registers begin.
unsafe extern "C" fn pass_on(registers: *mut CallRegisters, stack: *const u64) {
    let outgoing = NEXT.replace(ptr::null_mut()).cast::<Outgoing<'_>>();
    // SAFETY: H4 - `carry` of this thread stored the address of its own `Outgoing`, and waits for `carry_call`, which passes
    // its registers.
    let (outgoing, registers) = unsafe { (&mut *outgoing, &mut *registers) };
    let CallShape { register_words, stack_words, result_bytes, .. } = outgoing.shape;
    let mut call = PassedCall { registers: *registers, stack: vec![0; stack_words], result: vec![0; result_bytes] };
    // What the others hold is not the executor's business.
    call.registers.integers.iter_mut().skip(register_words).for_each(|register| *register = 0);
    call.registers.vectors.iter_mut().skip(register_words).for_each(|register| *register = 0);
    // SAFETY: H4 - above the frame of `carry_call` are the frames of its callers, which are larger than the arguments that
    // `CallShape` can have. The words may be anything, and are copied as bytes of no type.
    unsafe { ptr::copy_nonoverlapping(stack.cast::<u8>(), call.stack.as_mut_ptr().cast::<u8>(), stack_words * 8) };
    let place = *result_place(registers);
    let outcome = catch(|| outgoing.calls.call(outgoing.address, &mut call));
    let outcome = outcome.unwrap_or_else(|panic| Err(Error::other(format!("a call in an executor panicked: {panic}"))));
    if outcome.is_ok() {
        *registers = call.registers;
        if result_bytes > 0 {
            // SAFETY: H1 - a caller of a function with so large a result gives a place for it.
            unsafe { ptr::copy_nonoverlapping(call.result.as_ptr(), place as *mut u8, result_bytes) };
            registers.integers[0] = place;
        }
    }
    outgoing.outcome = Some(outcome);
}

/// The register with the place of a large result.
fn result_place(registers: &mut CallRegisters) -> &mut u64 {
    if arch::RESULT_PLACE_IS_ARGUMENT { &mut registers.integers[0] } else { &mut registers.result_place }
}

impl PassedCall {
    /// A call with integers or pointers.
    pub(crate) fn of_integers(arguments: &[u64]) -> PassedCall {
        let (in_registers, stack) = arguments.split_at(arguments.len().min(arch::ARGUMENT_REGISTERS));
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
}

/// The name has the crate version, because a program may contain two versions of this crate.
macro_rules! symbol {
    ($name:literal) => {
        concat!("jittison_", $name, "_", env!("CARGO_PKG_VERSION"))
    };
}

unsafe extern "C-unwind" {
    /// Gets a call of any signature, and passes it to [`pass_on`].
    #[link_name = symbol!("carry_call")]
    fn carry_call();

    /// Calls a function with these registers and words of the stack, and stores the registers of the result.
    #[link_name = symbol!("make_call")]
    fn make_call(function: usize, registers: &mut CallRegisters, stack: *const u64, words: usize);
}

arch::define_remote_calls!({ symbol!("carry_call") }, { symbol!("make_call") }, pass_on);

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;
    use crate::host::Function;
    use crate::sync::Mutex;

    /// Makes calls in this process, and keeps what was passed.
    struct Here(Mutex<Vec<PassedCall>>);

    impl Here {
        fn new() -> Arc<Here> {
            Arc::new(Here(Mutex::new(Vec::new())))
        }
    }

    struct Calls(Arc<Here>);

    impl RemoteCalls for Calls {
        fn call(&self, address: ExecutorAddr, call: &mut PassedCall) -> Result<()> {
            self.0.0.lock().push(call.clone());
            // SAFETY: H1 - each test makes its handle with the address and the type of a function of this program.
            unsafe { call.make(address) };
            Ok(())
        }
    }

    /// Fails or panics instead.
    struct Refuses(bool);

    impl RemoteCalls for Refuses {
        fn call(&self, _: ExecutorAddr, _: &mut PassedCall) -> Result<()> {
            assert!(!self.0, "by the test");
            Err(Error::other("no"))
        }
    }

    /// A handle to a function of this program that is called through `calls`.
    macro_rules! handle {
        ($calls:expr, $function:ident as $type:ty) => {{
            let hold: Arc<dyn CodeHold> = Arc::new(RemoteHold { pin: None, calls: Box::new($calls) });
            let address = ExecutorAddr::new($function as *const () as u64);
            // SAFETY: H1 - the function has this type.
            unsafe { Function::<$type>::with_hold(address, Some(hold)) }
        }};
    }

    #[repr(C)]
    #[derive(Debug, Clone, Copy, PartialEq)]
    struct Mixed {
        integer: u64,
        float: f64,
    }

    extern "C" fn sum(a: i32, b: f64, c: Mixed, d: u8, e: u128, f: i64, g: f32, h: u64, i: u64, j: u64) -> f64 {
        let integers = a as f64 + d as f64 + e as f64 + f as f64 + h as f64 + 100.0 * (i as f64 + 100.0 * j as f64);
        integers + b + c.integer as f64 + c.float + g as f64
    }

    extern "C" fn swap(mixed: Mixed) -> Mixed {
        Mixed { integer: mixed.float as u64, float: mixed.integer as f64 }
    }

    #[repr(C)]
    #[derive(Debug, PartialEq)]
    struct Five([u64; 5]);

    extern "C" fn five(first: u64) -> Five {
        Five([first, first + 1, first + 2, first + 3, first + 4])
    }

    extern "C" fn next(number: u64) -> u64 {
        number + 1
    }

    #[test]
    fn a_call_that_was_passed_on_returns_what_a_call_returns() {
        let here = Here::new();
        let sum_there = handle!(
            Calls(here.clone()),
            sum as extern "C" fn(i32, f64, Mixed, u8, u128, i64, f32, u64, u64, u64) -> f64
        );
        let mixed = Mixed { integer: 3, float: 4.5 };
        let expected = sum(-1, 2.5, mixed, 5, 6, -7, 8.25, 9, 10, 11);
        assert_eq!(sum_there.try_call(-1, 2.5, mixed, 5, 6, -7, 8.25, 9, 10, 11).unwrap(), expected);
        assert_eq!(
            handle!(Calls(here.clone()), swap as extern "C" fn(Mixed) -> Mixed).try_call(mixed).unwrap(),
            swap(mixed)
        );
        let five_there = handle!(Calls(here), five as extern "C" fn(u64) -> Five);
        assert_eq!(five_there.try_call(7).unwrap(), Five([7, 8, 9, 10, 11]));
    }

    #[test]
    fn registers_without_arguments_and_words_beyond_them_are_not_passed_on() {
        let here = Here::new();
        let next_there = handle!(Calls(here.clone()), next as extern "C" fn(u64) -> u64);
        assert_eq!(next_there.try_call(41).unwrap(), 42);
        let passed = here.0.lock().pop().unwrap();
        assert_eq!(passed.registers.integers, [41, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(passed.registers.vectors[1..], [0; 7]);
        assert_eq!((passed.stack.len(), passed.result.len()), (0, 0));
    }

    #[test]
    fn a_call_that_is_not_made_is_an_error_and_the_next_one_is_made() {
        let refused = handle!(Refuses(false), next as extern "C" fn(u64) -> u64).try_call(1).unwrap_err();
        assert_eq!(refused.to_string(), "no");
        let panicked = handle!(Refuses(true), next as extern "C" fn(u64) -> u64).try_call(1).unwrap_err();
        assert_eq!(panicked.to_string(), "a call in an executor panicked: by the test");
        let next_there = handle!(Calls(Here::new()), next as extern "C" fn(u64) -> u64);
        assert_eq!(next_there.try_call(1).unwrap(), 2);
    }

    #[test]
    fn shapes_have_at_least_the_words_that_the_abi_puts_on_the_stack() {
        let words = |arguments: &[(usize, usize)], result| CallShape::new(arguments, result).stack_words;
        let (long, double_long, large, packed) = ((8, 8), (16, 16), (24, 8), (5, 1));
        assert_eq!(words(&[], (0, 1)), 0);
        assert_eq!(words(&[long; 6], long), 0);
        assert!(words(&[long; 12], long) >= 12 - arch::ARGUMENT_REGISTERS);
        // With the place of the result there may be one register less.
        assert!(!arch::RESULT_PLACE_IS_ARGUMENT || words(&[long; 6], large) >= 1);
        // After five integers, both halves of the sixth argument, and padding before it.
        assert!(arch::ARGUMENT_REGISTERS > 6 || words(&[long, long, long, long, long, double_long], long) >= 3);
        assert!(words(&[packed, long], long) >= 1);
        assert!(arch::PASSES_LARGE_BY_ADDRESS || words(&[large, long], long) >= 3);
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
        if !arch::PASSES_LARGE_BY_ADDRESS {
            assert_eq!(problem(&[(2048, 8)], (8, 8)), "");
            assert!(problem(&[(2056, 8)], (8, 8)).contains("more than 2,048 bytes of arguments"));
        }
    }
}
