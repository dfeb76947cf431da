//! Two tiers with Cranelift: functions run at once as Cranelift makes them without optimisation, and are compiled again with
//! optimisation, in the background, when they have been called often. Callers follow; the first tier is freed.
//!
//! ```text
//! cargo run --release -p jittison-cranelift --example tiers
//! ```

use std::sync::Arc;

use cranelift_codegen::Context;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{
    AbiParam, ExtFuncData, ExternalName, Function, InstBuilder, Signature, UserExternalName, UserFuncName, types,
};
use cranelift_codegen::isa::{CallConv, OwnedTargetIsa};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_module::{FuncId, Linkage, ModuleDeclarations};
use jittison::{CompileRequest, CompiledFunction, Error, Jit, ReOptimized};
use jittison_cranelift::function_graph;

/// The calls of a function in tier 1 after which it is compiled again.
const CALLS: u64 = 10_000;
/// `fib(25)`.
const ANSWER: i64 = 75_025;

/// What the compiler knows of the program: one recursive function.
struct Program {
    declarations: ModuleDeclarations,
    fib: FuncId,
    signature: Signature,
    /// The instruction set without and with optimisation.
    tiers: [OwnedTargetIsa; 2],
}

impl Program {
    fn new() -> Program {
        let mut signature = Signature::new(CallConv::SystemV);
        signature.params.push(AbiParam::new(types::I64));
        signature.returns.push(AbiParam::new(types::I64));
        let mut declarations = ModuleDeclarations::default();
        let (fib, _) = declarations.declare_function("fib", Linkage::Export, &signature).unwrap();
        let tiers = ["none", "speed"].map(|level| {
            let mut flags = settings::builder();
            flags.set("opt_level", level).unwrap();
            cranelift_native::builder().unwrap().finish(settings::Flags::new(flags)).unwrap()
        });
        Program { declarations, fib, signature, tiers }
    }

    /// `fn fib(n) { if n < 2 { n } else { fib(n - 1) + fib(n - 2) } }`
    fn fib(&self) -> Context {
        let name = UserFuncName::user(0, self.fib.as_u32());
        let mut context = Context::for_function(Function::with_name_signature(name, self.signature.clone()));
        let mut frontend = FunctionBuilderContext::new();
        let mut code = FunctionBuilder::new(&mut context.func, &mut frontend);
        let itself = {
            let name = UserExternalName::new(0, self.fib.as_u32());
            let name = ExternalName::user(code.func.declare_imported_user_function(name));
            let signature = code.import_signature(self.signature.clone());
            let function = ExtFuncData { name, signature, colocated: true, patchable: false };
            code.import_function(function)
        };
        let [entry, small, large] = [(); 3].map(|()| code.create_block());
        code.append_block_params_for_function_params(entry);
        code.switch_to_block(entry);
        let n = code.block_params(entry)[0];
        let is_small = code.ins().icmp_imm_s(IntCC::SignedLessThan, n, 2);
        code.ins().brif(is_small, small, &[], large, &[]);
        code.switch_to_block(small);
        code.ins().return_(&[n]);
        code.switch_to_block(large);
        let parts = [-1, -2].map(|step| {
            let smaller = code.ins().iadd_imm_s(n, step);
            let call = code.ins().call(itself, &[smaller]);
            code.inst_results(call)[0]
        });
        let sum = code.ins().iadd(parts[0], parts[1]);
        code.ins().return_(&[sum]);
        code.seal_all_blocks();
        code.finalize(self.tiers[0].frontend_config());
        context
    }

    /// The compiler of both tiers.
    fn compile(&self, request: &CompileRequest<'_>) -> Result<CompiledFunction, Error> {
        let (isa, title) = (&*self.tiers[request.tier as usize - 1], format!("fib, tier {}", request.tier));
        let graph = function_graph(isa, &self.declarations, self.fib, request.symbol, &title, &mut self.fib());
        graph.map(CompiledFunction::new).map_err(Error::other)
    }
}

/// The modules in code memory, as the session's map names them.
fn modules(jit: &Jit) -> Vec<String> {
    let map = jit.memory_map().expect("code memory has a map");
    map.tenants.iter().map(|tenant| tenant.name.to_string()).filter(|name| name.starts_with("fib")).collect()
}

/// Calls the function on two threads until each has called it in tier 2.
fn run(jit: &Jit, functions: &ReOptimized) -> Result<(), Error> {
    // SAFETY: both tiers have this signature.
    let fib = unsafe { jit.lookup::<extern "C" fn(i64) -> i64>("fib")? };
    let caller = || {
        let mut is_last = false;
        while !is_last {
            is_last = functions.tier("fib") == Some(2);
            assert_eq!(fib.call(25), ANSWER);
        }
    };
    std::thread::scope(|threads| [(); 2].map(|()| threads.spawn(caller)).map(|caller| caller.join().unwrap()));
    Ok(())
}

fn main() -> Result<(), Error> {
    let (jit, program) = (Jit::new()?, Arc::new(Program::new()));
    let layer = jit.reoptimize_layer(move |request: &CompileRequest<'_>| program.compile(request), &[CALLS]);
    // SAFETY: both tiers have the signature of `fib`.
    let functions = unsafe { layer.add(jit.main_dylib(), &["fib"])? };
    println!("at once: {:?}", modules(&jit));
    assert_eq!(modules(&jit), ["fib, tier 1"]);
    // As a caller that stays inside: what it may be in is not freed.
    let entry = jit.session().enter_call();
    run(&jit, &functions)?;
    println!("with a caller from before: {:?}", modules(&jit));
    assert_eq!(modules(&jit).len(), 2);
    drop(entry);
    println!("when it has left: {:?}", modules(&jit));
    assert_eq!(modules(&jit), ["fib, tier 2"]);
    assert!(functions.remove()?.iter().all(|removal| removal.is_complete()));
    assert_eq!(jit.memory_statistics().live_bytes, 0);
    println!("tiers: all answers right, nothing left");
    Ok(())
}
