//! [`CrtFragment`]: code of `crti.o` and `crtn.o` that does nothing by itself.

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
