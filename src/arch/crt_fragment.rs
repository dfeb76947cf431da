//! [`CrtFragment`]: code of `crti.o` and `crtn.o` that does nothing by itself. [`CrtFrame`]: such code for one object.

/// A fragment of `_init` or `_fini` that the C library brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CrtFragment {
    /// The beginning of a function: it makes a frame.
    Beginning,
    /// The beginning of `_init`, which also calls one weak function if that is defined.
    BeginningWithCall,
    /// The end of a function: it removes the frame and returns.
    End,
}

/// What makes a function of the fragments of one object, as `crti.o` and `crtn.o` do for a program.
pub(crate) struct CrtFrame {
    /// Makes a frame, in which the stack is aligned for calls.
    pub(crate) beginning: &'static [u8],
    /// Removes the frame and returns.
    pub(crate) end: &'static [u8],
    /// The shortest instruction without effect, for the gaps before aligned fragments.
    pub(crate) filler: &'static [u8],
    /// Makes an `.eh_frame` with one FDE, for a function of so many bytes.
    pub(crate) unwind: fn(u32) -> Vec<u8>,
    /// The offset in `unwind` of the field that holds the distance to the function, in 32 bits.
    pub(crate) unwind_start: u32,
}
