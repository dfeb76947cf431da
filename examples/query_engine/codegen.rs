//! Compiles a [`Plan`] to machine code with Cranelift: in an object file, or in any other module of Cranelift.
//!
//! A query becomes one function. Its text lists become read-only tables beside it. The function is
//!
//! ```text
//! query(columns, range, output, capacity) -> number of rows that passed the filter
//! ```
//!
//! `columns` points to an array with the address of each column's first value. `range` points to the first row and
//! the row after the last. The function writes the row where it stopped into `range`. It stops before the end only if
//! `output` is full.
//!
//! A query with groups adds to the accumulators in `output`. Each has 16 bytes, and those of one group are adjacent.
//! A query without groups writes up to `capacity` rows of 8-byte values there.
//!
//! The code never traps and never allocates: the planner has bounded all arithmetic. It does not vectorise.

use std::sync::Arc;

use cranelift_codegen::Context;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{AbiParam, Block, InstBuilder, MemFlagsData, Value, types};
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_module::{DataDescription, FuncId, Linkage, Module, default_libcall_names};
use cranelift_object::{ObjectBuilder, ObjectModule};

use crate::data::{Column, Table};
use crate::plan::{Condition, Fold, Key, Plan, Scalar, Sink};
use crate::query::{Arithmetic, Comparison};

/// Size of an accumulator, in bytes.
pub const ACCUMULATOR: i64 = 16;
/// Size of a value in an output row, in bytes.
pub const CELL: i64 = 8;

/// An object file that defines one query.
pub struct Compiled {
    pub object: Vec<u8>,
    /// Size of the function's code, without padding and tables.
    pub function_bytes: usize,
}

/// Compiles queries, one at a time, and reuses its buffers.
pub struct Compiler {
    isa: OwnedTargetIsa,
    context: Context,
    builder: FunctionBuilderContext,
}

impl Compiler {
    /// Creates a compiler for this machine.
    pub fn new() -> Result<Compiler, String> {
        let mut flags = settings::builder();
        let options = [
            ("opt_level", "speed"),
            ("is_pic", "true"),
            ("enable_verifier", if cfg!(debug_assertions) { "true" } else { "false" }),
        ];
        for (name, value) in options {
            flags.set(name, value).map_err(|error| error.to_string())?;
        }
        let host = cranelift_native::builder().map_err(str::to_owned)?;
        let isa = host.finish(settings::Flags::new(flags)).map_err(|error| error.to_string())?;
        Ok(Compiler { isa, context: Context::new(), builder: FunctionBuilderContext::new() })
    }

    /// The instruction set for which this compiles.
    pub fn isa(&self) -> &OwnedTargetIsa {
        &self.isa
    }

    /// Compiles a query to an object file that defines `symbol`.
    pub fn compile(&mut self, symbol: &str, plan: &Plan, table: &Table) -> Result<Compiled, String> {
        let mut module = self.object_module(symbol)?;
        let (_, function_bytes) = self.define(&mut module, symbol, plan, table)?;
        let object = module.finish().emit().map_err(|error| error.to_string())?;
        Ok(Compiled { object, function_bytes })
    }

    /// A module that becomes an object file.
    pub fn object_module(&self, symbol: &str) -> Result<ObjectModule, String> {
        let mut builder =
            ObjectBuilder::new(Arc::clone(&self.isa), symbol, default_libcall_names()).map_err(to_text)?;
        builder.unwind_info(true);
        Ok(ObjectModule::new(builder))
    }

    /// Compiles a query into a module, where it defines `symbol`. Returns the function and the size of its code in bytes.
    pub fn define(
        &mut self,
        module: &mut dyn Module,
        symbol: &str,
        plan: &Plan,
        table: &Table,
    ) -> Result<(FuncId, usize), String> {
        let mut signature = module.make_signature();
        let pointer = module.target_config().pointer_type();
        signature.params = [pointer, pointer, pointer, types::I64].map(AbiParam::new).to_vec();
        signature.returns.push(AbiParam::new(types::I64));
        let function = module.declare_function(symbol, Linkage::Export, &signature).map_err(to_text)?;
        module.clear_context(&mut self.context);
        self.context.func.signature = signature;
        let tables = {
            let builder = FunctionBuilder::new(&mut self.context.func, &mut self.builder);
            let mut emitter = Emitter::new(builder, module, table, symbol);
            emitter.query(plan)?;
            let tables = std::mem::take(&mut emitter.tables);
            emitter.builder.seal_all_blocks();
            let config = emitter.module.target_config();
            emitter.builder.finalize(config);
            tables
        };
        module.define_function(function, &mut self.context).map_err(to_text)?;
        let function_bytes = self.context.compiled_code().map_or(0, |code| code.code_buffer().len());
        for (id, bytes) in tables {
            let mut description = DataDescription::new();
            description.define(bytes);
            module.define_data(id, &description).map_err(to_text)?;
        }
        Ok((function, function_bytes))
    }
}

fn to_text(error: cranelift_module::ModuleError) -> String {
    error.to_string()
}

/// Emits the instructions of one query.
struct Emitter<'a> {
    builder: FunctionBuilder<'a>,
    module: &'a mut dyn Module,
    table: &'a Table,
    symbol: &'a str,
    /// Tables of bytes that go into the object beside the function.
    tables: Vec<(cranelift_module::DataId, Box<[u8]>)>,
    /// The address of the first value of each column that the query reads.
    bases: Vec<Option<Value>>,
    /// The value of each column in the current row, once it is loaded. It stays valid for the rest of the loop's
    /// body, because the body is a straight line of blocks with exits and without joins.
    loaded: Vec<Option<Value>>,
    row: Option<Value>,
}

impl<'a> Emitter<'a> {
    fn new(builder: FunctionBuilder<'a>, module: &'a mut dyn Module, table: &'a Table, symbol: &'a str) -> Emitter<'a> {
        let columns = Column::all().count();
        Emitter {
            builder,
            module,
            table,
            symbol,
            tables: Vec::new(),
            bases: vec![None; columns],
            loaded: vec![None; columns],
            row: None,
        }
    }

    fn query(&mut self, plan: &Plan) -> Result<(), String> {
        let trusted = MemFlagsData::trusted();
        let entry = self.builder.create_block();
        let head = self.builder.create_block();
        let body = self.builder.create_block();
        let skip = self.builder.create_block();
        let exit = self.builder.create_block();
        for block in [head, exit] {
            // The current row, and the number of rows that passed the filter.
            self.builder.append_block_param(block, types::I64);
            self.builder.append_block_param(block, types::I64);
        }

        self.builder.append_block_params_for_function_params(entry);
        self.builder.switch_to_block(entry);
        let parameters = self.builder.block_params(entry).to_vec();
        let [columns, range, output, capacity] = parameters[..] else {
            return Err("the function does not have four parameters".to_owned());
        };
        let pointer = self.module.target_config().pointer_type();
        for column in plan.columns() {
            let offset = (column.index() * pointer.bytes() as usize) as i32;
            let base = self.builder.ins().load(pointer, trusted, columns, offset);
            self.bases[column.index()] = Some(base);
        }
        let begin = self.builder.ins().load(types::I64, trusted, range, 0);
        let end = self.builder.ins().load(types::I64, trusted, range, 8);
        let zero = self.builder.ins().iconst(types::I64, 0);
        self.builder.ins().jump(head, &[begin.into(), zero.into()]);

        self.builder.switch_to_block(head);
        let [row, passed] = self.builder.block_params(head)[..] else {
            return Err("the loop block does not have two parameters".to_owned());
        };
        self.row = Some(row);
        let mut has_next = self.builder.ins().icmp(IntCC::UnsignedLessThan, row, end);
        if let Sink::Rows { .. } = plan.sink {
            let has_space = self.builder.ins().icmp(IntCC::UnsignedLessThan, passed, capacity);
            has_next = self.builder.ins().band(has_next, has_space);
        }
        self.builder.ins().brif(has_next, body, &[], exit, &[row.into(), passed.into()]);

        self.builder.switch_to_block(body);
        for condition in &plan.filter {
            self.skip_unless(condition, skip)?;
        }
        match &plan.sink {
            Sink::Rows { outputs, .. } => self.output_row(outputs, output, passed)?,
            Sink::Groups { keys, folds, .. } => self.accumulate(keys, folds, output)?,
        }
        let next = self.builder.ins().iadd_imm_s(row, 1);
        let one_more = self.builder.ins().iadd_imm_s(passed, 1);
        self.builder.ins().jump(head, &[next.into(), one_more.into()]);

        self.builder.switch_to_block(skip);
        let next = self.builder.ins().iadd_imm_s(row, 1);
        self.builder.ins().jump(head, &[next.into(), passed.into()]);

        self.builder.switch_to_block(exit);
        let [row, passed] = self.builder.block_params(exit)[..] else {
            return Err("the exit block does not have two parameters".to_owned());
        };
        self.builder.ins().store(trusted, row, range, 0);
        self.builder.ins().return_(&[passed]);
        Ok(())
    }

    /// Branches to `skip` unless the condition holds.
    fn skip_unless(&mut self, condition: &Condition, skip: Block) -> Result<(), String> {
        let holds = self.condition(condition)?;
        let next = self.builder.create_block();
        self.builder.ins().brif(holds, next, &[], skip, &[]);
        self.builder.switch_to_block(next);
        Ok(())
    }

    fn output_row(&mut self, outputs: &[Scalar], output: Value, passed: Value) -> Result<(), String> {
        let width = outputs.len() as i64 * CELL;
        let offset = self.builder.ins().imul_imm_s(passed, width);
        let address = self.builder.ins().iadd(output, offset);
        for (index, scalar) in outputs.iter().enumerate() {
            let value = self.scalar(scalar)?;
            let offset = (index as i64 * CELL) as i32;
            self.builder.ins().store(MemFlagsData::trusted(), value, address, offset);
        }
        Ok(())
    }

    fn accumulate(&mut self, keys: &[Key], folds: &[Fold], output: Value) -> Result<(), String> {
        let mut address = output;
        for key in keys {
            let code = self.column(key.column)?;
            let code = self.builder.ins().iadd_imm_s(code, -key.low);
            let stride = (key.stride * folds.len()) as i64 * ACCUMULATOR;
            let offset = self.builder.ins().imul_imm_s(code, stride);
            address = self.builder.ins().iadd(address, offset);
        }
        for (slot, fold) in folds.iter().enumerate() {
            self.fold(fold, address, (slot as i64 * ACCUMULATOR) as i32)?;
        }
        Ok(())
    }

    fn fold(&mut self, fold: &Fold, address: Value, offset: i32) -> Result<(), String> {
        let trusted = MemFlagsData::trusted();
        // Only sums need more than the low half of the accumulator.
        let width = if let Fold::Sum(_) = fold { types::I128 } else { types::I64 };
        let value = match fold {
            Fold::Count => None,
            Fold::Sum(s) | Fold::Minimum(s) | Fold::Maximum(s) => Some(self.scalar(s)?),
        };
        let old = self.builder.ins().load(width, trusted, address, offset);
        let new = match (fold, value) {
            (Fold::Sum(_), Some(value)) => {
                let wide = self.builder.ins().sextend(types::I128, value);
                self.builder.ins().iadd(old, wide)
            }
            (Fold::Minimum(_), Some(value)) => self.builder.ins().smin(old, value),
            (Fold::Maximum(_), Some(value)) => self.builder.ins().smax(old, value),
            _ => self.builder.ins().iadd_imm_s(old, 1),
        };
        self.builder.ins().store(trusted, new, address, offset);
        Ok(())
    }

    fn column(&mut self, column: Column) -> Result<Value, String> {
        if let Some(value) = self.loaded[column.index()] {
            return Ok(value);
        }
        let missing = || format!("the column {} has no base address", column.name());
        let base = self.bases[column.index()].ok_or_else(missing)?;
        let row = self.row.ok_or_else(missing)?;
        let width = self.table.width(column);
        // Columns do not change while queries run.
        let flags = MemFlagsData::trusted().with_readonly();
        let scaled = self.builder.ins().ishl_imm_u(row, i64::from(width.trailing_zeros()));
        let address = self.builder.ins().iadd(base, scaled);
        let value = match width {
            1 => self.builder.ins().uload8(types::I64, flags, address, 0),
            4 => self.builder.ins().sload32(flags, address, 0),
            _ => self.builder.ins().load(types::I64, flags, address, 0),
        };
        self.loaded[column.index()] = Some(value);
        Ok(value)
    }

    fn scalar(&mut self, scalar: &Scalar) -> Result<Value, String> {
        Ok(match scalar {
            Scalar::Column(column) => self.column(*column)?,
            Scalar::Constant(units) => self.builder.ins().iconst(types::I64, *units),
            Scalar::Negate(inner) => {
                let inner = self.scalar(inner)?;
                self.builder.ins().ineg(inner)
            }
            Scalar::Arithmetic(op, left, right) => {
                let (left, right) = (self.scalar(left)?, self.scalar(right)?);
                match op {
                    Arithmetic::Add => self.builder.ins().iadd(left, right),
                    Arithmetic::Subtract => self.builder.ins().isub(left, right),
                    Arithmetic::Multiply => self.builder.ins().imul(left, right),
                }
            }
            // Computes all results and selects one. The results cannot fail, and without joins the loaded columns
            // stay valid.
            Scalar::Case(arms, otherwise) => {
                let mut value = self.scalar(otherwise)?;
                for (condition, result) in arms.iter().rev() {
                    let holds = self.condition(condition)?;
                    let result = self.scalar(result)?;
                    value = self.builder.ins().select(holds, result, value);
                }
                value
            }
        })
    }

    fn condition(&mut self, condition: &Condition) -> Result<Value, String> {
        Ok(match condition {
            Condition::Constant(truth) => self.builder.ins().iconst(types::I8, i64::from(*truth)),
            Condition::Compare(op, left, right) => {
                let (left, right) = (self.scalar(left)?, self.scalar(right)?);
                let code = match op {
                    Comparison::Equal => IntCC::Equal,
                    Comparison::NotEqual => IntCC::NotEqual,
                    Comparison::Less => IntCC::SignedLessThan,
                    Comparison::LessOrEqual => IntCC::SignedLessThanOrEqual,
                    Comparison::Greater => IntCC::SignedGreaterThan,
                    Comparison::GreaterOrEqual => IntCC::SignedGreaterThanOrEqual,
                };
                self.builder.ins().icmp(code, left, right)
            }
            Condition::Member(column, members) => self.member(*column, members)?,
            Condition::All(parts) => {
                let mut all = self.builder.ins().iconst(types::I8, 1);
                for part in parts {
                    let holds = self.condition(part)?;
                    all = self.builder.ins().band(all, holds);
                }
                all
            }
            Condition::Any(parts) => {
                let mut any = self.builder.ins().iconst(types::I8, 0);
                for part in parts {
                    let holds = self.condition(part)?;
                    any = self.builder.ins().bor(any, holds);
                }
                any
            }
            Condition::Not(inner) => {
                let holds = self.condition(inner)?;
                self.builder.ins().bxor_imm_u(holds, 1)
            }
        })
    }

    /// Reads a code's entry in a table of bytes that is linked with the function.
    fn member(&mut self, column: Column, members: &[bool]) -> Result<Value, String> {
        let code = self.column(column)?;
        let name = format!("{}_texts_{}", self.symbol, self.tables.len());
        let id = self.module.declare_data(&name, Linkage::Local, false, false).map_err(|error| error.to_string())?;
        self.tables.push((id, members.iter().map(|&member| u8::from(member)).collect()));
        let global = self.module.declare_data_in_func(id, self.builder.func);
        let pointer = self.module.target_config().pointer_type();
        let base = self.builder.ins().symbol_value(pointer, global);
        let address = self.builder.ins().iadd(base, code);
        let flags = MemFlagsData::trusted().with_readonly();
        Ok(self.builder.ins().load(types::I8, flags, address, 0))
    }
}
