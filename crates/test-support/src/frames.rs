//! [`frame_of`]: queries the unwinder of the process.

use std::ffi::c_void;

#[repr(C)]
#[derive(Default)]
struct Bases {
    text: usize,
    data: usize,
    function: usize,
}

unsafe extern "C" {
    /// libgcc's search for the frame description of an address.
    fn _Unwind_Find_FDE(address: *const c_void, bases: *mut Bases) -> *const c_void;
}

/// The start of the function that the unwinder finds at an address.
pub fn frame_of(address: u64) -> Option<u64> {
    let mut bases = Bases::default();
    // SAFETY: the unwinder only compares the address with known ranges, and writes the three words.
    let found = unsafe { _Unwind_Find_FDE(address as *const c_void, &mut bases) };
    (!found.is_null()).then_some(bases.function as u64)
}
