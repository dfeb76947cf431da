//! [`Image`]: what rules can ask about the result of a link.

/// The result of a link, as the rules ask about it. The name of a file is the last component of its path. An error is a
/// sentence that names what is missing.
pub trait Image {
    /// `e_machine` of the objects.
    fn machine(&self) -> u16;

    /// The address of a symbol, which may be local or absolute.
    fn symbol(&self, name: &str) -> Option<u64>;

    /// The bytes from an address to the end of the block that contains it, as the linker wrote them; zeroes if the block is
    /// zero-fill. `None` if no block contains the address.
    fn bytes_at(&self, address: u64) -> Option<&[u8]>;

    /// The address of a section of a file.
    fn section(&self, file: &str, section: &str) -> Result<u64, String>;

    /// The GOT slot through which a file reaches a symbol.
    fn got_entry(&self, file: &str, symbol: &str) -> Result<u64, String>;

    /// The stub through which a file calls a symbol.
    fn stub(&self, file: &str, symbol: &str) -> Result<u64, String>;
}
