//! [`LinkFault`]: why an object cannot be linked, with the place in the object, the value and the allowed range.

use crate::base::{ExecutorAddr, linker_made_hint};
use crate::error::short_text::{listed, quoted, short};

/// Why an object cannot be linked.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LinkFault {
    /// The bytes are not a relocatable ELF64 object.
    ///
    /// - *Cause*: the file is a program, a shared library, an archive, LLVM bitcode or text.
    /// - *Remedy*: pass the output of a compiler's `-c`, without `-flto`. Add an archive with `Jit::link_static_library`.
    #[error("not a relocatable ELF64 object: {0}")]
    NotAnObject(String),
    /// The object is for another machine.
    ///
    /// - *Cause*: a cross compiler made it, or it was copied from another machine.
    /// - *Remedy*: compile it for the machine that `expected` names.
    #[error("wrong architecture: e_machine is {found}, but this session links {expected}")]
    WrongArchitecture {
        /// The machine in the ELF header.
        found: String,
        /// The machine of the session.
        expected: &'static str,
    },
    /// The object is malformed.
    ///
    /// - *Cause*: the file is damaged or truncated, or its producer has a bug.
    /// - *Remedy*: compile it again. If `readelf -a` accepts the object, please report it.
    #[error("malformed: {0}")]
    Malformed(String),
    /// A graph that a generator built, or a change that a plugin asked for, is not valid. Nothing was linked or changed.
    ///
    /// - *Cause*: the generator or the plugin named a block or a symbol of another graph, or a place outside of a block; or
    ///   the plugin asked for a change that the block or the symbol does not allow.
    /// - *Remedy*: correct what the generator passes to `GraphBuilder`, or the plugin to `LinkGraph`; the fields say where it
    ///   is.
    #[error(
        "invalid graph: {problem} (block `{block}`, offset {offset:#x}{})",
        if edge.is_empty() { String::new() } else { format!(", edge {edge}") }
    )]
    InvalidGraph {
        /// The section of the block. Empty if no block is concerned.
        block: String,
        /// Offset in the block, in bytes.
        offset: u64,
        /// The relocation of the edge, by its psABI name, and its symbol. Empty if no edge is concerned.
        edge: String,
        /// What is wrong.
        problem: String,
    },
    /// A plugin broke the graph of an object. Nothing was linked.
    ///
    /// - *Cause*: after the plugin's hook, the graph could not be linked as the object promises. `problem` says why.
    /// - *Remedy*: correct the plugin, or remove it from the layer; the fields say where it is.
    #[error(
        "plugin `{plugin}` broke the graph in its hook `{hook}`: {problem} (block `{}`, offset {offset:#x}{}); nothing was \
         linked; correct the plugin, or remove it from the layer",
        short(block),
        if edge.is_empty() { String::new() } else { format!(", edge {edge}") }
    )]
    BrokenByPlugin {
        /// The plugin, by [`LinkPlugin::name`](crate::layer::LinkPlugin::name).
        plugin: String,
        /// The method of [`LinkHooks`](crate::layer::LinkHooks) that has just returned.
        hook: &'static str,
        /// The section of the block. Empty if no block is concerned.
        block: String,
        /// Offset in the block, in bytes.
        offset: u64,
        /// The relocation of the edge, by its psABI name, and its symbol. Empty if no edge is concerned.
        edge: String,
        /// What is wrong. It names the symbol, if one is concerned.
        problem: String,
    },
    /// The object uses something that jittison does not support.
    ///
    /// - *Cause*: a compiler option or a construct that the section *Limits* of `DESIGN.md` lists.
    /// - *Remedy*: compile without it: `what` names it, and the section, offset and symbol say where it is.
    #[error("unsupported {what} (section `{}`, offset {offset:#x}, symbol `{}`)", short(section), short(symbol))]
    Unsupported {
        /// The construct, by its name in the ABI.
        what: String,
        /// The section.
        section: String,
        /// Offset in the section, in bytes.
        offset: u64,
        /// The symbol of the construct. Empty when there is none.
        symbol: String,
    },
    /// An object refers to the bounds of a section, and another object has a part of that section that the bounds would not
    /// enclose.
    ///
    /// - *Cause*: `__start_X` and `__stop_X` enclose the parts of all objects. The parts are placed next to each other when the
    ///   first of the objects is linked. The field `problem` says why this part is not among them.
    /// - *Remedy*: add all objects with the section before the first of them is linked. Or join them with `ld -r`, or add
    ///   them to different dylibs.
    #[error(
        "{requesting} refers to the bounds of section `{section}` (`__start_{section}`, `__stop_{section}`), but they would not \
         enclose the part of {defining}: {problem}; add all objects with the section before the first of them is linked, join \
         them with `ld -r`, or add them to different dylibs"
    )]
    BoundsAcrossObjects {
        /// The section.
        section: String,
        /// The object that refers to the bounds.
        requesting: String,
        /// The other object that has such a section.
        defining: String,
        /// Why its part is not next to the others.
        problem: &'static str,
    },
    /// Hidden symbols have no definition in the dylib of the object.
    ///
    /// - *Cause*: the object declares them hidden, internal or protected, so no other dylib and no library may define them.
    /// - *Remedy*: define them in the same dylib, or declare them with default visibility.
    #[error(
        "hidden symbols without a definition in its dylib: {}; searched: {}; no other dylib and no library may define them: \
         define them in the same dylib, or declare them with default visibility{}",
        quoted(symbols),
        listed(searched, ", "),
        linker_made_hint(symbols)
    )]
    HiddenUndefined {
        /// All missing names.
        symbols: Vec<String>,
        /// The dylibs that were searched, in order.
        searched: Vec<String>,
    },
    /// A relocation's value does not fit its field.
    ///
    /// - *Cause*: code that was compiled for short distances refers to something far away, or a plugin changed an address.
    /// - *Remedy*: the field `advice` has it, often `-fPIC` or another placement of code memory.
    #[error(
        "relocation {kind} out of range (section `{}`, offset {offset:#x}, symbol `{}` at {target:#x}): value {} is not in \
         [{}, {}]; {advice}",
        short(section),
        short(symbol),
        signed(value),
        signed(min),
        signed(max)
    )]
    OutOfRange {
        /// The section.
        section: String,
        /// Offset in the section, in bytes.
        offset: u64,
        /// The relocation, by its psABI name.
        kind: String,
        /// The symbol.
        symbol: String,
        /// The symbol's address.
        target: u64,
        /// The value computed.
        value: i128,
        /// Smallest value that fits.
        min: i128,
        /// Largest value that fits.
        max: i128,
        /// The remedy.
        advice: &'static str,
    },
    /// A relocation's value is no multiple of the unit in which its field counts.
    ///
    /// - *Cause*: code accesses a symbol that is aligned less strictly than the access needs.
    /// - *Remedy*: declare the symbol alike where it is used and where it is defined, or align it.
    #[error(
        "relocation {kind} to a misaligned place (section `{}`, offset {offset:#x}, symbol `{}` at {target:#x}): value {} is \
         not a multiple of {multiple}",
        short(section),
        short(symbol),
        signed(value)
    )]
    Misaligned {
        /// The section.
        section: String,
        /// Offset in the section, in bytes.
        offset: u64,
        /// The relocation, by its psABI name.
        kind: String,
        /// The symbol.
        symbol: String,
        /// The symbol's address.
        target: u64,
        /// The value computed.
        value: i128,
        /// The unit in bytes.
        multiple: u64,
    },
    /// The verifier of debug builds computed other bytes than the linker did.
    ///
    /// - *Cause*: a bug of jittison.
    /// - *Remedy*: please report it, with the object.
    #[error(
        "the verifier computes other bytes than the linker, which is a bug of jittison: please report it (section \
         `{section}`, offset {offset:#x}, {kind}): found {found}, expected {expected}"
    )]
    Verification {
        /// The section, or another part of the link.
        section: String,
        /// The offset in bytes, or the index, of the difference.
        offset: u64,
        /// The relocation, by its psABI name, or another kind of difference.
        kind: String,
        /// What the linker computed.
        found: String,
        /// What the verifier computed.
        expected: String,
    },
}

impl LinkFault {
    /// The fault of a stub at `place` that cannot reach its slot. `section` and `offset` say where the stub is, and `symbol`
    /// is what it leads to.
    #[cold]
    pub(crate) fn slot_out_of_range(
        place: ExecutorAddr,
        slot: ExecutorAddr,
        section: &str,
        offset: u64,
        symbol: &str,
    ) -> LinkFault {
        LinkFault::OutOfRange {
            section: section.to_string(),
            offset,
            kind: "of a stub".to_string(),
            symbol: symbol.to_string(),
            target: slot.value(),
            value: i128::from(slot.value()) - i128::from(place.value()),
            min: i32::MIN.into(),
            max: i32::MAX.into(),
            advice: "the memory manager must place code, constants and data within 2 GiB of each other",
        }
    }
}

/// Formats a value as hexadecimal with a sign, as displacements are written.
fn signed(value: &i128) -> String {
    let sign = if *value < 0 { "-" } else { "" };
    format!("{sign}{:#x}", value.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_out_of_range_is_printed_with_its_sign() {
        let fault = LinkFault::OutOfRange {
            section: ".text".into(),
            offset: 4,
            kind: "R_X86_64_PC8".into(),
            symbol: "foo".into(),
            target: 0x1000,
            value: -0x81,
            min: -0x80,
            max: 0x7f,
            advice: "move it",
        };
        assert!(fault.to_string().contains("value -0x81 is not in [-0x80, 0x7f]"), "{fault}");
    }
}
