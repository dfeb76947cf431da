//! The linkers that are compared.

pub mod cranelift;
mod cranelift_pieces;
pub mod dlopen;
pub mod elf_loader;
mod host_functions;
pub mod linker;
pub mod orc;
pub mod ours;
pub mod system_library;
