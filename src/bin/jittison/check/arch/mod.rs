//! What `decode_operand` needs of the instruction set.

mod x86_64;

pub(super) use x86_64::{Decoded, Operand};
