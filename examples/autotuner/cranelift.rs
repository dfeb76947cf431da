//! Variants from Cranelift, in this process, for machines without a C compiler. They are the kernels of `kernels.c`.
//! Each holds a tile of a row in registers; variants differ in the number of cells per tile and per register.
//!
//! Not here: other loop orders, and tiles whose size is not a power of two.

use cranelift_codegen::Context;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{AbiParam, AtomicRmwOp, InstBuilder, MemFlagsData, Signature, Type, Value, types};
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_module::{DataDescription, DataId, FuncId, Linkage, Module, default_libcall_names};
use cranelift_object::{ObjectBuilder, ObjectModule};

use crate::problem::Kernel;
use crate::suite::{Defect, Suite, Variant};

/// Bytes of a cell.
const CELL: i64 = 8;

/// How the loop over a row's cells is laid out.
#[derive(Clone, Copy)]
struct Shape {
    /// Cells in one register.
    lanes: u32,
    /// Registers per tile.
    registers: u32,
}

const PLAIN: Shape = Shape { lanes: 1, registers: 1 };

/// Generates the full suite.
pub fn suite() -> Result<Suite, String> {
    let generator = Generator { isa: host()? };
    let shapes = || [1, 2].into_iter().flat_map(|lanes| [1, 2, 4, 8].map(|registers| Shape { lanes, registers }));
    let competing = |kernel| -> Result<Vec<Variant>, String> {
        shapes().map(|shape| generator.variant(kernel, shape.name(), shape, None)).collect()
    };
    let bad = |kernel| -> Result<Vec<(Defect, Variant)>, String> {
        let one = |defect: Defect| {
            let variant = generator.variant(kernel, defect.name().to_owned(), PLAIN, Some(defect))?;
            Ok((defect, variant))
        };
        Defect::ALL.into_iter().map(one).collect()
    };
    Ok(Suite {
        compiler: "Cranelift".to_owned(),
        full: generator.full()?,
        variants: [competing(Kernel::Gemm)?, competing(Kernel::Stencil)?],
        bad: [bad(Kernel::Gemm)?, bad(Kernel::Stencil)?],
    })
}

impl Shape {
    fn cells(self) -> i64 {
        i64::from(self.lanes * self.registers)
    }

    fn name(self) -> String {
        format!("{} x {} cells at a time", self.registers, self.lanes)
    }
}

fn host() -> Result<OwnedTargetIsa, String> {
    let mut flags = settings::builder();
    for (name, value) in [("opt_level", "speed"), ("is_pic", "true")] {
        flags.set(name, value).map_err(|error| error.to_string())?;
    }
    let host = cranelift_native::builder().map_err(str::to_owned)?;
    host.finish(settings::Flags::new(flags)).map_err(|error| error.to_string())
}

struct Generator {
    isa: OwnedTargetIsa,
}

impl Generator {
    fn variant(&self, kernel: Kernel, name: String, shape: Shape, defect: Option<Defect>) -> Result<Variant, String> {
        let mut object = Object::new(self, &name)?;
        object.kernel(kernel, shape, defect)?;
        if defect == Some(Defect::FailingInitialiser) {
            object.failing_initialiser()?;
        }
        Ok(Variant { kernel, name, object: object.finish()? })
    }

    fn full(&self) -> Result<Vec<u8>, String> {
        let mut object = Object::new(self, "first")?;
        let counters = [object.kernel(Kernel::Gemm, PLAIN, None)?, object.kernel(Kernel::Stencil, PLAIN, None)?];
        object.kernel_calls(counters)?;
        object.finish()
    }
}

/// An object file under construction.
struct Object {
    module: ObjectModule,
    context: Context,
    buffers: FunctionBuilderContext,
}

fn to_text(error: cranelift_module::ModuleError) -> String {
    error.to_string()
}

impl Object {
    fn new(generator: &Generator, name: &str) -> Result<Object, String> {
        let mut builder = ObjectBuilder::new(generator.isa.clone(), name, default_libcall_names()).map_err(to_text)?;
        // The panic of an initialiser unwinds through this code.
        builder.unwind_info(true);
        let module = ObjectModule::new(builder);
        Ok(Object { module, context: Context::new(), buffers: FunctionBuilderContext::new() })
    }

    fn finish(self) -> Result<Vec<u8>, String> {
        self.module.finish().emit().map_err(|error| error.to_string())
    }

    fn signature(&self, parameters: usize, returns: usize) -> Signature {
        let mut signature = self.module.make_signature();
        signature.params = vec![AbiParam::new(types::I64); parameters];
        signature.returns = vec![AbiParam::new(types::I64); returns];
        signature
    }

    /// Defines a function whose body `emit` writes.
    fn function(
        &mut self,
        name: &str,
        linkage: Linkage,
        signature: Signature,
        emit: impl FnOnce(&mut Emitter<'_>, &[Value]) -> Result<(), String>,
    ) -> Result<FuncId, String> {
        let id = self.module.declare_function(name, linkage, &signature).map_err(to_text)?;
        self.module.clear_context(&mut self.context);
        self.context.func.signature = signature;
        let builder = FunctionBuilder::new(&mut self.context.func, &mut self.buffers);
        let mut emitter = Emitter { builder, module: &mut self.module };
        let entry = emitter.builder.create_block();
        emitter.builder.append_block_params_for_function_params(entry);
        emitter.builder.switch_to_block(entry);
        let parameters = emitter.builder.block_params(entry).to_vec();
        emit(&mut emitter, &parameters)?;
        let config = emitter.module.target_config();
        emitter.builder.seal_all_blocks();
        emitter.builder.finalize(config);
        self.module.define_function(id, &mut self.context).map_err(to_text)?;
        Ok(id)
    }

    /// Defines a kernel and its counter.
    fn kernel(&mut self, kernel: Kernel, shape: Shape, defect: Option<Defect>) -> Result<DataId, String> {
        let counter = self.module.declare_data(kernel.counter(), Linkage::Export, true, false).map_err(to_text)?;
        let mut zero = DataDescription::new();
        zero.define_zeroinit(CELL as usize);
        zero.set_align(CELL as u64);
        self.module.define_data(counter, &zero).map_err(to_text)?;
        let missing = match defect {
            Some(Defect::MissingSymbol) => Some(self.imported("autotuner_no_such_function")?),
            _ => None,
        };
        let signature = self.signature(4, 0);
        self.function(kernel.name(), Linkage::Export, signature, |emitter, parameters| {
            let [first, second, output, side] = parameters[..] else {
                return Err("the kernel does not have four parameters".to_owned());
            };
            emitter.count(counter);
            match kernel {
                Kernel::Gemm => emitter.gemm([first, second, output], side, shape),
                Kernel::Stencil => emitter.stencil([first, second, output], side, shape),
            }
            if defect == Some(Defect::WrongAnswer) {
                emitter.make_wrong(output);
            }
            if let Some(missing) = missing {
                emitter.call(missing);
            }
            emitter.builder.ins().return_(&[]);
            Ok(())
        })?;
        Ok(counter)
    }

    fn imported(&mut self, name: &str) -> Result<FuncId, String> {
        let signature = self.signature(0, 0);
        self.module.declare_function(name, Linkage::Import, &signature).map_err(to_text)
    }

    /// Defines `kernel_calls(which)`, which reads the counters.
    fn kernel_calls(&mut self, [gemm, stencil]: [DataId; 2]) -> Result<(), String> {
        let signature = self.signature(1, 1);
        self.function("kernel_calls", Linkage::Export, signature, |emitter, parameters| {
            let (gemm, stencil) = (emitter.address(gemm), emitter.address(stencil));
            let address = emitter.builder.ins().select(parameters[0], stencil, gemm);
            let count = emitter.builder.ins().load(types::I64, MemFlagsData::trusted(), address, 0);
            emitter.builder.ins().return_(&[count]);
            Ok(())
        })?;
        Ok(())
    }

    /// Defines an initialiser that calls `autotuner_refuse`.
    fn failing_initialiser(&mut self) -> Result<(), String> {
        let refuse = self.imported("autotuner_refuse")?;
        let signature = self.signature(0, 0);
        let fail = self.function("fail", Linkage::Local, signature, |emitter, _| {
            emitter.call(refuse);
            emitter.builder.ins().return_(&[]);
            Ok(())
        })?;
        let list = self.module.declare_data("initialisers", Linkage::Local, true, false).map_err(to_text)?;
        let mut description = DataDescription::new();
        description.set_custom_section(".init_array");
        description.set_align(CELL as u64);
        description.define(vec![0; CELL as usize].into_boxed_slice());
        let fail = self.module.declare_func_in_data(fail, &mut description);
        description.write_function_addr(0, fail);
        self.module.define_data(list, &description).map_err(to_text)
    }
}

/// Emits the instructions of one function.
struct Emitter<'a> {
    builder: FunctionBuilder<'a>,
    module: &'a mut ObjectModule,
}

impl Emitter<'_> {
    fn address(&mut self, data: DataId) -> Value {
        let global = self.module.declare_data_in_func(data, self.builder.func);
        self.builder.ins().symbol_value(types::I64, global)
    }

    fn call(&mut self, function: FuncId) {
        let function = self.module.declare_func_in_func(function, self.builder.func);
        self.builder.ins().call(function, &[]);
    }

    fn count(&mut self, counter: DataId) {
        let address = self.address(counter);
        let one = self.number(1);
        self.builder.ins().atomic_rmw(types::I64, MemFlagsData::trusted(), AtomicRmwOp::Add, address, one);
    }

    /// Makes the first cell of the output wrong.
    fn make_wrong(&mut self, output: Value) {
        let right = self.load(types::F64, output, 0);
        let one = self.builder.ins().f64const(1.0);
        let wrong = self.builder.ins().fadd(right, one);
        self.store(wrong, output, 0);
    }

    /// `c = a * b`. It computes all sums of one tile of a row of `c` at once.
    fn gemm(&mut self, [a, b, c]: [Value; 3], side: Value, shape: Shape) {
        let zero = self.number(0);
        self.for_range(zero, side, 1, &[], |this, row, _| {
            let (a_row, c_row) = (this.cell(a, row, side, zero), this.cell(c, row, side, zero));
            this.for_range(zero, side, shape.cells(), &[], |this, column, _| {
                let zeros_of_tile = this.zeros(shape);
                let sums =
                    this.for_range(zero, side, 1, &vec![zeros_of_tile; shape.registers as usize], |this, k, sums| {
                        let at = this.at(a_row, k);
                        let x = this.load(types::F64, at, 0);
                        let x = this.splat(x, shape);
                        let from = this.cell(b, k, side, column);
                        let add = |this: &mut Self, (register, &sum): (usize, &Value)| {
                            let y = this.load(shape.value_type(), from, shape.offset(register));
                            let product = this.builder.ins().fmul(x, y);
                            this.builder.ins().fadd(sum, product)
                        };
                        sums.iter().enumerate().map(|sum| add(this, sum)).collect()
                    });
                let to = this.at(c_row, column);
                for (register, &sum) in sums.iter().enumerate() {
                    this.store(sum, to, shape.offset(register));
                }
                Vec::new()
            });
            Vec::new()
        });
    }

    /// Copies all cells, then computes the inner ones.
    fn stencil(&mut self, [grid, weights, output]: [Value; 3], side: Value, shape: Shape) {
        let (zero, one) = (self.number(0), self.number(1));
        let cells = self.builder.ins().imul(side, side);
        self.for_range(zero, cells, 1, &[], |this, cell, _| {
            let (from, to) = (this.at(grid, cell), this.at(output, cell));
            let value = this.load(types::F64, from, 0);
            this.store(value, to, 0);
            Vec::new()
        });
        let weights: Vec<Value> = (0..5)
            .map(|number| {
                let weight = self.load(types::F64, weights, number * CELL as i32);
                self.splat(weight, shape)
            })
            .collect();
        let last = self.builder.ins().iadd_imm_s(side, -1);
        let line = self.builder.ins().imul_imm_s(side, CELL);
        self.for_range(one, last, 1, &[], |this, row, _| {
            this.for_range(one, last, shape.cells(), &[], |this, column, _| {
                let (from, to) = (this.cell(grid, row, side, column), this.cell(output, row, side, column));
                let (above, below) = (this.builder.ins().isub(from, line), this.builder.ins().iadd(from, line));
                for offset in (0..shape.registers as usize).map(|register| shape.offset(register)) {
                    let around = [(from, 0), (above, 0), (below, 0), (from, -CELL as i32), (from, CELL as i32)];
                    let mut sum = this.zeros(shape);
                    for ((base, distance), &weight) in around.into_iter().zip(&weights) {
                        let neighbour = this.load(shape.value_type(), base, offset + distance);
                        let weighted = this.builder.ins().fmul(neighbour, weight);
                        sum = this.builder.ins().fadd(sum, weighted);
                    }
                    this.store(sum, to, offset);
                }
                Vec::new()
            });
            Vec::new()
        });
    }

    /// Emits a loop over `from`, `from + step`, … below `to`; the range is not empty. `body` gets the carried values
    /// and returns those of the next iteration. The result is the last of them.
    fn for_range(
        &mut self,
        from: Value,
        to: Value,
        step: i64,
        carried: &[Value],
        body: impl FnOnce(&mut Self, Value, &[Value]) -> Vec<Value>,
    ) -> Vec<Value> {
        let (loop_block, after) = (self.builder.create_block(), self.builder.create_block());
        self.builder.append_block_param(loop_block, types::I64);
        for value in carried {
            let value_type = self.builder.func.dfg.value_type(*value);
            self.builder.append_block_param(loop_block, value_type);
        }
        let start: Vec<_> = [from].iter().chain(carried).map(|&value| value.into()).collect();
        self.builder.ins().jump(loop_block, &start);
        self.builder.switch_to_block(loop_block);
        let parameters = self.builder.block_params(loop_block).to_vec();
        let carried = body(self, parameters[0], &parameters[1..]);
        let next = self.builder.ins().iadd_imm_s(parameters[0], step);
        let has_next = self.builder.ins().icmp(IntCC::SignedLessThan, next, to);
        let arguments: Vec<_> = [next].iter().chain(&carried).map(|&value| value.into()).collect();
        self.builder.ins().brif(has_next, loop_block, &arguments, after, &[]);
        self.builder.switch_to_block(after);
        carried
    }

    fn number(&mut self, number: i64) -> Value {
        self.builder.ins().iconst(types::I64, number)
    }

    /// The address of a cell of a square.
    fn cell(&mut self, base: Value, row: Value, side: Value, column: Value) -> Value {
        let start = self.builder.ins().imul(row, side);
        let index = self.builder.ins().iadd(start, column);
        self.at(base, index)
    }

    fn at(&mut self, base: Value, index: Value) -> Value {
        let offset = self.builder.ins().imul_imm_s(index, CELL);
        self.builder.ins().iadd(base, offset)
    }

    /// Cells are aligned; registers of several cells are not.
    fn load(&mut self, value_type: Type, address: Value, offset: i32) -> Value {
        self.builder.ins().load(value_type, MemFlagsData::new().with_notrap(), address, offset)
    }

    fn store(&mut self, value: Value, address: Value, offset: i32) {
        self.builder.ins().store(MemFlagsData::new().with_notrap(), value, address, offset);
    }

    fn zeros(&mut self, shape: Shape) -> Value {
        let zero = self.builder.ins().f64const(0.0);
        self.splat(zero, shape)
    }

    fn splat(&mut self, value: Value, shape: Shape) -> Value {
        match shape.lanes {
            1 => value,
            _ => self.builder.ins().splat(shape.value_type(), value),
        }
    }
}

impl Shape {
    /// The type of one register.
    fn value_type(self) -> Type {
        if self.lanes == 1 { types::F64 } else { types::F64X2 }
    }

    /// Where a register's cells begin in the tile, in bytes.
    fn offset(self, register: usize) -> i32 {
        (register as i64 * i64::from(self.lanes) * CELL) as i32
    }
}
