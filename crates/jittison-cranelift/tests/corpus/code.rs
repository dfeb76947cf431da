//! [`Corpus`]: makes functions in a module of either crate, and notes what their code refers to.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use cranelift_codegen::ir::{AbiParam, InstBuilder, MemFlagsData, Signature, Type, Value, types};
use cranelift_codegen::isa::CallConv;
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_module::{FuncId, Linkage, Module};

/// The module, the code of a function, and its parameters.
pub type Fill<'a> = &'a dyn Fn(&mut dyn Module, &mut FunctionBuilder<'_>, &[Value]);

/// The functions that are made in one module.
pub struct Corpus<'a> {
    pub module: &'a mut dyn Module,
    /// What can be called: each reads its input from the first parameter, and writes its results to the second.
    pub entries: Vec<(String, FuncId)>,
    /// The cases that Cranelift does not compile for this machine.
    pub refused: Vec<String>,
    /// The kinds of relocations in the code.
    pub relocations: BTreeSet<String>,
}

impl<'a> Corpus<'a> {
    pub fn new(module: &'a mut dyn Module) -> Corpus<'a> {
        Corpus { module, entries: Vec::new(), refused: Vec::new(), relocations: BTreeSet::new() }
    }

    /// Makes the functions of a case. If Cranelift does not compile one of them, the case is refused.
    pub fn case(&mut self, name: &str, make: impl FnOnce(&mut Corpus<'_>)) {
        let count = self.entries.len();
        let made = catch_unwind(AssertUnwindSafe(|| make(self)));
        if made.is_err() {
            self.entries.truncate(count);
            self.refused.push(name.to_string());
        }
    }

    pub fn signature(&self, convention: CallConv, parameters: &[Type], results: &[Type]) -> Signature {
        let mut signature = Signature::new(convention);
        signature.params.extend(parameters.iter().map(|kind| AbiParam::new(*kind)));
        signature.returns.extend(results.iter().map(|kind| AbiParam::new(*kind)));
        signature
    }

    pub fn declare(&mut self, name: &str, linkage: Linkage, signature: &Signature) -> FuncId {
        self.module.declare_function(name, linkage, signature).unwrap()
    }

    /// Declares and defines a function.
    pub fn function(&mut self, name: &str, linkage: Linkage, signature: &Signature, fill: Fill<'_>) -> FuncId {
        let id = self.declare(name, linkage, signature);
        self.define(id, signature, fill);
        id
    }

    /// Defines a function that is declared.
    pub fn define(&mut self, id: FuncId, signature: &Signature, fill: Fill<'_>) {
        let mut context = self.module.make_context();
        context.func.signature = signature.clone();
        let mut frontend = FunctionBuilderContext::new();
        let mut code = FunctionBuilder::new(&mut context.func, &mut frontend);
        let entry = code.create_block();
        code.append_block_params_for_function_params(entry);
        code.switch_to_block(entry);
        let parameters = code.block_params(entry).to_vec();
        fill(self.module, &mut code, &parameters);
        code.seal_all_blocks();
        code.finalize(self.module.target_config());
        self.module.define_function(id, &mut context).unwrap();
        let compiled = context.compiled_code().unwrap();
        let kinds = compiled.buffer.relocs().iter().map(|relocation| format!("{:?}", relocation.kind));
        self.relocations.extend(kinds);
    }

    /// Makes a function that can be called: `fill` gets its input and its output.
    pub fn entry(&mut self, name: &str, fill: Fill<'_>) {
        let signature = self.signature(CallConv::SystemV, &[types::I64, types::I64], &[]);
        let fill: Fill<'_> = &|module, code, parameters| {
            fill(module, code, parameters);
            code.ins().return_(&[]);
        };
        let id = self.function(name, Linkage::Export, &signature, fill);
        self.entries.push((name.to_string(), id));
    }
}

/// Loads a value of the input, which is at `index` among values of its type.
pub fn load(code: &mut FunctionBuilder<'_>, kind: Type, input: Value, index: i32) -> Value {
    code.ins().load(kind, MemFlagsData::new(), input, index * kind.bytes() as i32)
}

/// Stores a result, which is at `index` among values of its type.
pub fn store(code: &mut FunctionBuilder<'_>, value: Value, output: Value, index: i32) {
    let size = code.func.dfg.value_type(value).bytes() as i32;
    code.ins().store(MemFlagsData::new(), value, output, index * size);
}
