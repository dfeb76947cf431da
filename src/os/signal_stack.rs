//! [`SignalStack`]: where the handler of a crash runs on one thread.
//!
//! The standard library gives its threads a stack for signals, too: 8 KiB, or the least that the kernel takes. The kernel stores the
//! registers of the processor there, which are 3 KiB with AVX-512 and 11 KiB with AMX, and the loader stores them again when it binds
//! a function. Too little is left for an unwinder.

use std::io;

use crate::os::page_size::page_size;
use crate::os::vm::{Protection, Reservation, protect};

/// The stack for signals of the thread that made it. Its drop gives the thread the stack of before.
pub(crate) struct SignalStack {
    stack: Reservation,
    /// Has a pointer, so a value stays on its thread.
    before: libc::stack_t,
}

impl SignalStack {
    /// Sets the stack of the calling thread.
    ///
    /// # Errors
    /// The kernel has no memory. Then the thread has the stack of before.
    pub(crate) fn set() -> io::Result<SignalStack> {
        // The lowest page stays without access: what does not fit faults.
        let stack = Reservation::new(0, guard_bytes() + size_bytes())?;
        let start = (stack.address() as *mut u8).wrapping_add(guard_bytes());
        // SAFETY: O1 - full pages of the reservation, which `stack` owns and nobody uses yet.
        unsafe { protect(start, size_bytes(), Protection::ReadWrite) }?;
        let own = libc::stack_t { ss_sp: start.cast(), ss_flags: 0, ss_size: size_bytes() };
        let mut before = NO_STACK;
        // SAFETY: O2 - both are local. O8 - the call changes the stack of the calling thread alone, to pages that stay until the drop.
        match unsafe { libc::sigaltstack(&own, &mut before) } {
            0 => Ok(SignalStack { stack, before }),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for SignalStack {
    fn drop(&mut self) {
        let mut current = NO_STACK;
        // SAFETY: O2 - `current` is local. The call changes nothing.
        unsafe { libc::sigaltstack(std::ptr::null(), &mut current) };
        // Linked code may have set another one.
        if current.ss_sp as u64 == self.stack.address() + guard_bytes() as u64 {
            // SAFETY: O2, O8 - the stack that this thread had before. Who set it unmaps it when the thread ends, which is later.
            unsafe { libc::sigaltstack(&self.before, std::ptr::null_mut()) };
        }
    }
}

const NO_STACK: libc::stack_t = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };

fn guard_bytes() -> usize {
    page_size() as usize
}

/// For what the kernel stores there, and 64 KiB for the handler. Full pages.
fn size_bytes() -> usize {
    // SAFETY: O9 - it reads what the kernel told the process at its start.
    let registers = unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) } as usize;
    (registers + (64 << 10)).next_multiple_of(guard_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn current() -> (usize, usize) {
        let mut current = NO_STACK;
        // SAFETY: O2 - `current` is local. The call changes nothing.
        assert_eq!(unsafe { libc::sigaltstack(std::ptr::null(), &mut current) }, 0);
        (current.ss_sp as usize, current.ss_size)
    }

    #[test]
    fn a_thread_has_64_kib_beside_its_registers_and_its_former_stack_afterwards() {
        let before = current();
        let stack = SignalStack::set().unwrap();
        assert!(current().1 >= 64 << 10, "{:?}", current());
        drop(stack);
        assert_eq!(current(), before);
    }

    #[test]
    fn a_stack_that_something_else_has_set_stays() {
        let stack = SignalStack::set().unwrap();
        let other = SignalStack::set().unwrap();
        let set = current();
        drop(stack);
        assert_eq!(current(), set);
        // Gives back the one that is gone, which no signal uses meanwhile.
        drop(other);
        // SAFETY: O8 - the calling thread has no stack for signals then.
        assert_eq!(unsafe { libc::sigaltstack(&NO_STACK, std::ptr::null_mut()) }, 0);
    }
}
