//! cranelift-jit's names on jittison: a [`JITModule`] whose functions can be removed, replaced, unwound, profiled and debugged
//! one by one.
//!
//! A program that uses cranelift-jit changes the dependency and the `use` line. Machine code goes from Cranelift into the graph
//! of a link ([`jittison::link::GraphBuilder`]), without an object file.
//!
//! ```
//! use cranelift_codegen::ir::{AbiParam, InstBuilder, types};
//! use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
//! use cranelift_module::{Linkage, Module, default_libcall_names};
//! use jittison_cranelift::{Grouping, JITBuilder, JITModule};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut builder = JITBuilder::new(default_libcall_names())?;
//! builder.grouping(Grouping::Single);
//! let mut module = JITModule::new(builder);
//!
//! let mut context = module.make_context();
//! context.func.signature.params.push(AbiParam::new(types::I64));
//! context.func.signature.returns.push(AbiParam::new(types::I64));
//! let double = module.declare_function("double", Linkage::Export, &context.func.signature)?;
//! let mut frontend = FunctionBuilderContext::new();
//! let mut function = FunctionBuilder::new(&mut context.func, &mut frontend);
//! let block = function.create_block();
//! function.append_block_params_for_function_params(block);
//! function.switch_to_block(block);
//! let x = function.block_params(block)[0];
//! let doubled = function.ins().iadd(x, x);
//! function.ins().return_(&[doubled]);
//! function.seal_all_blocks();
//! function.finalize(module.target_config());
//! module.define_function(double, &mut context)?;
//! module.finalize_definitions()?;
//!
//! // Safety: the signature is that of the function.
//! let handle = unsafe { module.function::<extern "C" fn(i64) -> i64>(double)? };
//! assert_eq!(handle.call(21), 42);
//!
//! let removal = module.remove_function(double)?;
//! assert!(!removal.is_complete()); // The handle keeps the code.
//! assert_eq!(handle.call(4), 8);
//! drop(handle);
//! assert!(removal.is_complete());
//! # Ok(()) }
//! ```
//!
//! `README.md` of the crate has a table of each item of cranelift-jit and what it means here.
// The error type is Cranelift's.
#![allow(clippy::result_large_err)]
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod builder;
mod definition;
mod function_graph;
mod host_symbols;
mod module;
mod relocation;
mod unwind;

pub use builder::{Grouping, JITBuilder};
pub use function_graph::function_graph;
pub use module::JITModule;

/// Version number of this crate. Its first two numbers are those of Cranelift.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
