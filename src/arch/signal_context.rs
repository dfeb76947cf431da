//! [`SignalContext`]: where the kernel stores the registers of a thread that a signal interrupts.

/// Offsets in the context that a signal handler gets, in bytes. Each register has eight.
pub(crate) struct SignalContext {
    pub(crate) instruction: usize,
    pub(crate) stack: usize,
    /// The register in which a called function finds its return address. `None`: the address is at the stack pointer.
    pub(crate) link: Option<usize>,
}
