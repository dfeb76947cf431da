//! A compiler for arithmetic: each expression becomes machine code, is called, and is removed.
//!
//! ```text
//! cargo run --release -p jittison-cranelift --example expressions
//! ```
//!
//! One parser drives Cranelift and an interpreter. Their results must agree.

use cranelift_codegen::ir::{AbiParam, InstBuilder, Value, types};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_module::{FuncId, Linkage, Module, default_libcall_names};
use jittison_cranelift::{Grouping, JITBuilder, JITModule};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;
type Source<'a> = std::iter::Peekable<std::str::Bytes<'a>>;

const EXPRESSIONS: [&str; 6] = ["x", "x+y*3", "(x+y)*(x-y)", "x*x*x-2*x*y+7", "((x))-((y-1)*(1-y))", "9-8-7-x-y"];
const LEVELS: &[&[u8]] = &[b"+-", b"*"];
const ROUNDS: usize = 500;

fn main() -> Outcome<()> {
    let mut builder = JITBuilder::new(default_libcall_names())?;
    builder.grouping(Grouping::Single);
    let mut module = JITModule::new(builder);
    let mut at_first = None;
    for round in 0..ROUNDS {
        for source in EXPRESSIONS {
            let id = compile(&mut module, source)?;
            // Safety: the signature is that of each expression.
            let function = unsafe { module.function::<extern "C" fn(i64, i64) -> i64>(id)? };
            for (x, y) in [(0, 0), (1, 2), (-7, 5), (i64::MAX, 3)] {
                let expected = parse(&mut Interpreter, &mut source.bytes().peekable(), LEVELS, [x, y])?;
                assert_eq!(function.call(x, y), expected, "{source} of {x} and {y}");
            }
            drop(function);
            assert!(module.remove_function(id)?.is_complete());
        }
        let live = module.session().memory_statistics().live_bytes;
        assert_eq!(*at_first.get_or_insert(live), live, "round {round} left code");
    }
    println!("expressions: {} compiled and removed, all as interpreted, memory is flat", ROUNDS * EXPRESSIONS.len());
    Ok(())
}

/// Defines the function `expression(x, y)`. The name is free again after each removal.
fn compile(module: &mut JITModule, source: &str) -> Outcome<FuncId> {
    let (mut context, mut frontend) = (module.make_context(), FunctionBuilderContext::new());
    context.func.signature.params.extend([AbiParam::new(types::I64); 2]);
    context.func.signature.returns.push(AbiParam::new(types::I64));
    let id = module.declare_function("expression", Linkage::Export, &context.func.signature)?;
    let mut function = FunctionBuilder::new(&mut context.func, &mut frontend);
    let block = function.create_block();
    function.append_block_params_for_function_params(block);
    function.switch_to_block(block);
    let xy = [function.block_params(block)[0], function.block_params(block)[1]];
    let result = parse(&mut function, &mut source.bytes().peekable(), LEVELS, xy)?;
    function.ins().return_(&[result]);
    function.seal_all_blocks();
    function.finalize(module.target_config());
    module.define_function(id, &mut context)?;
    module.finalize_definitions()?;
    Ok(id)
}

trait Target {
    type Value: Copy;
    fn number(&mut self, number: i64) -> Self::Value;
    fn operation(&mut self, operator: u8, left: Self::Value, right: Self::Value) -> Self::Value;
}

struct Interpreter;
impl Target for Interpreter {
    type Value = i64;
    fn number(&mut self, number: i64) -> i64 {
        number
    }
    fn operation(&mut self, operator: u8, left: i64, right: i64) -> i64 {
        match operator {
            b'+' => left.wrapping_add(right),
            b'-' => left.wrapping_sub(right),
            _ => left.wrapping_mul(right),
        }
    }
}

impl Target for FunctionBuilder<'_> {
    type Value = Value;
    fn number(&mut self, number: i64) -> Value {
        self.ins().iconst(types::I64, number)
    }
    fn operation(&mut self, operator: u8, left: Value, right: Value) -> Value {
        match operator {
            b'+' => self.ins().iadd(left, right),
            b'-' => self.ins().isub(left, right),
            _ => self.ins().imul(left, right),
        }
    }
}

/// Parses operations of one level, of single digits, `x` and `y`. Operands are of the level that binds tighter.
fn parse<T: Target>(to: &mut T, source: &mut Source, levels: &[&[u8]], xy: [T::Value; 2]) -> Outcome<T::Value> {
    let Some((operators, tighter)) = levels.split_first() else {
        return match source.next() {
            Some(b'(') => {
                let value = parse(to, source, LEVELS, xy)?;
                source.next_if_eq(&b')').map(|_| value).ok_or("`)` is missing".into())
            }
            Some(name @ b'x'..=b'y') => Ok(xy[usize::from(name - b'x')]),
            Some(digit @ b'0'..=b'9') => Ok(to.number(i64::from(digit - b'0'))),
            other => Err(format!("no operand but {other:?}").into()),
        };
    };
    let mut left = parse(to, source, tighter, xy)?;
    while let Some(operator) = source.next_if(|byte| operators.contains(byte)) {
        let right = parse(to, source, tighter, xy)?;
        left = to.operation(operator, left, right);
    }
    Ok(left)
}
