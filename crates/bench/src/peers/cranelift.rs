//! [`Cranelift`]: cranelift-jit. Each small module is a `JITModule`, because only a full `JITModule` can release its
//! memory.
//!
//! cranelift-jit links functions, not objects. It therefore gets the machine code that the other competitors link,
//! cut into functions before the clock starts ([`Pieces`]). Nothing is compiled and no object is read. The clock
//! covers everything that belongs to linking: creating the module, declaring the four imported functions, declaring
//! the pieces, copying them with `define_function_bytes` and `define_data`, relocating them, and asking for the
//! entry's address. A removal is `free_memory`.
//!
//! With gcc 12 a small module has 8 pieces of code and constants (five functions, two sections of constants, the
//! stubs) and 2 of data: 1,392 bytes with 37 relocations. The object has 33 of these, and five for its unwind tables.
//! A medium module has 504 and 2 pieces, with 2,120 relocations. The other competitors additionally read an ELF file,
//! register unwind tables (jittison, ORC as LLJIT), and publish the module's symbols for later modules.
//!
//! The memory is the crate's arena, with the size of the module. It keeps code and data within the reach that the
//! code needs. The crate's other memory provider does not guarantee that, and is slower.

use std::mem::ManuallyDrop;

use cranelift_codegen::ir::Signature;
use cranelift_codegen::isa::{CallConv, OwnedTargetIsa};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_jit::{ArenaMemoryProvider, JITBuilder, JITModule};
use cranelift_module::{DataId, FuncId, Linkage, Module, ModuleError, default_libcall_names};
use jittison::base::ExecutorAddr;

use super::cranelift_pieces::Pieces;
use super::host_functions::HostFunctions;
use super::linker::Linker;
use crate::measure::competitor::CRANELIFT_JIT;
use crate::measure::scenario::to_text;
use crate::measure::workload::Workload;
use jittison_test_support::bench::objects::{Instance, Objects};

pub struct Cranelift {
    isa: OwnedTargetIsa,
    /// Required by declarations. Nothing is compiled, so its content does not matter.
    signature: Signature,
    host: HostFunctions,
}

/// A module's pieces, and the addresses of its imports.
pub struct Input {
    pieces: Pieces,
    imports: Vec<ExecutorAddr>,
    reserved_bytes: usize,
}

/// Releases its memory when it is dropped; the crate's own module never does.
pub struct Live(ManuallyDrop<JITModule>);

impl Drop for Live {
    fn drop(&mut self) {
        // SAFETY: `drop` runs once, so the module is taken once.
        let module = unsafe { ManuallyDrop::take(&mut self.0) };
        // SAFETY: no thread runs its code any more; addresses are used only while the module is live.
        unsafe { module.free_memory() };
    }
}

impl Linker for Cranelift {
    const NAME: &'static str = CRANELIFT_JIT;

    type Input = Input;
    type Live = Live;

    fn new(workload: &Workload) -> Result<Cranelift, String> {
        let mut flags = settings::builder();
        flags.set("use_colocated_libcalls", "false").map_err(to_text)?;
        flags.set("is_pic", "false").map_err(to_text)?;
        let isa = cranelift_native::builder().map_err(to_text)?.finish(settings::Flags::new(flags)).map_err(to_text)?;
        let host = HostFunctions::open(workload)?;
        Ok(Cranelift { isa, signature: Signature::new(CallConv::SystemV), host })
    }

    fn objects(workload: &Workload) -> Result<&Objects, String> {
        workload.by_function()
    }

    fn prepare(&mut self, instance: &Instance) -> Result<Input, String> {
        let pieces = Pieces::read(&instance.bytes, &instance.entry)?;
        let imports = pieces.imports.iter().map(|name| self.host.address(name)).collect::<Result<_, _>>()?;
        let reserved_bytes = pieces.reserved_bytes();
        Ok(Input { pieces, imports, reserved_bytes })
    }

    fn link(&mut self, _: &Instance, input: &Input) -> Result<(ExecutorAddr, Live), String> {
        let mut builder = JITBuilder::with_isa(self.isa.clone(), default_libcall_names());
        for (name, address) in input.pieces.imports.iter().zip(&input.imports) {
            builder.symbol(name.as_str(), address.value() as usize as *const u8);
        }
        let memory = ArenaMemoryProvider::new_with_size(input.reserved_bytes).map_err(to_text)?;
        builder.memory_provider(Box::new(memory));
        let mut live = Live(ManuallyDrop::new(JITModule::new(builder)));
        self.define(&mut live.0, &input.pieces).map_err(to_text)?;
        let address = live.0.get_finalized_function(input.pieces.entry);
        Ok((ExecutorAddr::new(address as u64), live))
    }
}

impl Cranelift {
    fn define(&self, module: &mut JITModule, pieces: &Pieces) -> Result<(), Box<ModuleError>> {
        // All pieces are declared before the first is defined, in the order of their numbers.
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
