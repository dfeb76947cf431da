//! The host's functions that the objects call.

/// What each of [`FUNCTIONS`] adds, after it rotates its argument to the left by its index plus one.
pub const ADDEND: u64 = 0x2545_f491_4f6c_dd1d;

/// The signature of the entries.
pub type Run = extern "C" fn(u64) -> u64;

/// The functions that objects may call.
pub const FUNCTIONS: [Run; 16] = [
    rotate::<0>,
    rotate::<1>,
    rotate::<2>,
    rotate::<3>,
    rotate::<4>,
    rotate::<5>,
    rotate::<6>,
    rotate::<7>,
    rotate::<8>,
    rotate::<9>,
    rotate::<10>,
    rotate::<11>,
    rotate::<12>,
    rotate::<13>,
    rotate::<14>,
    rotate::<15>,
];

extern "C" fn rotate<const BY: u32>(x: u64) -> u64 {
    x.rotate_left(BY + 1).wrapping_add(ADDEND)
}

/// The symbol of a function of [`FUNCTIONS`].
pub fn name(which: usize) -> String {
    format!("host_{which:02}")
}
