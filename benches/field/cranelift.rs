//! cranelift-jit: each small module a `JITModule` of its own, since only a whole one gives its memory back.
//!
//! It takes functions, not objects. So it gets the very machine code that the others link, cut into functions ahead of the clock
//! ([`Pieces`]): nothing is compiled, and no object is read. The clock runs over all that linking is here: the module is made
//! and told the four functions that the small one calls; its pieces are declared by name, copied with
//! `define_function_bytes` and `define_data`, and relocated; the entry's address is asked for. A removal is `free_memory`.
//!
//! With gcc 12 a small module is then 8 pieces of code and constants (the five functions, two sections of constants, the stubs)
//! and 2 of data, 1,392 bytes with 37 relocations; the object has 33 of these, and five for its unwind tables. A medium one is
//! 504 pieces and 2, with 2,120 relocations. What the others do beside: read an ELF file, register unwind tables (jittison, ORC as
//! LLJIT), and make a module's symbols known to those after it.
//!
//! The memory is the crate's own arena, in the size of the module: it keeps code and data as near to each other as the code needs
//! them, which the crate's other memory provider leaves to chance, and is the faster of the two.

use std::mem::ManuallyDrop;

use cranelift_codegen::ir::Signature;
use cranelift_codegen::isa::{CallConv, OwnedTargetIsa};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_jit::{ArenaMemoryProvider, JITBuilder, JITModule};
use cranelift_module::{DataId, FuncId, Linkage, Module, ModuleError, default_libcall_names};
use jittison::base::ExecutorAddr;

use crate::cranelift_pieces::Pieces;
use crate::host_functions::HostFunctions;
use crate::linker::Linker;
use crate::objects::{Instance, Objects};
use crate::scenario::words;
use crate::workload::Workload;

pub const WHO: &str = "cranelift-jit";

pub struct Cranelift {
    isa: OwnedTargetIsa,
    /// Nothing is compiled, and so nobody reads it.
    signature: Signature,
    host: HostFunctions,
}

/// A module's pieces, and where what it calls is.
pub struct Input {
    pieces: Pieces,
    imports: Vec<ExecutorAddr>,
    reserved_bytes: usize,
}

/// Gives its memory back when it is dropped; the crate's own module keeps it for ever.
pub struct Live(ManuallyDrop<JITModule>);

impl Drop for Live {
    fn drop(&mut self) {
        // SAFETY: taken once, here.
        let module = unsafe { ManuallyDrop::take(&mut self.0) };
        // SAFETY: nobody runs its code, and nobody will: addresses are used while the module is live.
        unsafe { module.free_memory() };
    }
}

impl Linker for Cranelift {
    const WHO: &'static str = WHO;

    type Input = Input;
    type Live = Live;

    fn new(workload: &Workload) -> Result<Cranelift, String> {
        let mut flags = settings::builder();
        flags.set("use_colocated_libcalls", "false").map_err(words)?;
        flags.set("is_pic", "false").map_err(words)?;
        let isa = cranelift_native::builder().map_err(words)?.finish(settings::Flags::new(flags)).map_err(words)?;
        let host = HostFunctions::open(workload)?;
        Ok(Cranelift { isa, signature: Signature::new(CallConv::SystemV), host })
    }

    fn objects(workload: &Workload) -> Result<&Objects, String> {
        workload.by_function()
    }

    fn prepare(&self, instance: &Instance) -> Result<Input, String> {
        let pieces = Pieces::read(&instance.bytes, &instance.entry)?;
        let imports = pieces.imports.iter().map(|name| self.host.address(name)).collect::<Result<_, _>>()?;
        let reserved_bytes = pieces.reserved_bytes();
        Ok(Input { pieces, imports, reserved_bytes })
    }

    fn link(&mut self, input: &Input) -> Result<(ExecutorAddr, Live), String> {
        let mut builder = JITBuilder::with_isa(self.isa.clone(), default_libcall_names());
        for (name, address) in input.pieces.imports.iter().zip(&input.imports) {
            builder.symbol(name.as_str(), address.value() as usize as *const u8);
        }
        let memory = ArenaMemoryProvider::new_with_size(input.reserved_bytes).map_err(words)?;
        builder.memory_provider(Box::new(memory));
        let mut live = Live(ManuallyDrop::new(JITModule::new(builder)));
        self.define(&mut live.0, &input.pieces).map_err(words)?;
        let address = live.0.get_finalized_function(input.pieces.entry);
        Ok((ExecutorAddr::new(address as u64), live))
    }
}

impl Cranelift {
    fn define(&self, module: &mut JITModule, pieces: &Pieces) -> Result<(), Box<ModuleError>> {
        // All are declared before any is defined, in the order of their numbers.
        for name in &pieces.imports {
            module.declare_function(name, Linkage::Import, &self.signature)?;
        }
        for piece in &pieces.functions {
            match &piece.name {
                Some(name) => module.declare_function(name, Linkage::Export, &self.signature)?,
                None => module.declare_anonymous_function(&self.signature)?,
            };
        }
        for piece in &pieces.data {
            match &piece.name {
                Some(name) => module.declare_data(name, Linkage::Export, true, false)?,
                None => module.declare_anonymous_data(true, false)?,
            };
        }
        for (number, piece) in (pieces.imports.len() as u32..).zip(&pieces.functions) {
            module.define_function_bytes(FuncId::from_u32(number), piece.align, &piece.bytes, &piece.relocations)?;
        }
        for (number, piece) in (0..).zip(&pieces.data) {
            module.define_data(DataId::from_u32(number), &piece.description)?;
        }
        Ok(module.finalize_definitions()?)
    }
}
