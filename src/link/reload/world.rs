//! [`World`]: what a plan asks about the rest of a program.

use crate::link::reload::live_object::{FindGlobal, SharedConstant};

/// What a plan asks about the rest of the program, and about the objects that are reloaded with this one and were planned before.
pub(crate) struct World<'a> {
    /// The global variable of a name.
    pub(crate) global: FindGlobal<'a>,
    /// The constant of a name that other objects may read.
    pub(crate) constant: &'a dyn Fn(&str) -> Option<SharedConstant>,
    /// Whether a name has a stub of an object that is reloaded.
    pub(crate) has_stub: &'a dyn Fn(&str) -> bool,
    /// Whether the program defines a name.
    pub(crate) is_defined: &'a dyn Fn(&str) -> bool,
    /// The object that is not linked again and has a function of this name, which no other one may define.
    pub(crate) defining_object: &'a dyn Fn(&str) -> Option<String>,
    /// Whether an object needs a name and is not linked again.
    pub(crate) is_required: &'a dyn Fn(&str) -> bool,
    /// The hash of the types of a function when its stub was made, if it has one and the types were known.
    pub(crate) stub_signature: &'a dyn Fn(&str) -> Option<u64>,
}
