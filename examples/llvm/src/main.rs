//! LLVM compiles, jittison links: each object that LLVM makes is linked from memory, called, and removed.
//!
//! ```text
//! .ci/llvm
//! ```
//!
//! The function is `weighted_sum(values, count)`, once for each pair of a weight and an optimisation level. LLVM's own JIT is
//! not used: `inkwell`'s target machine writes an object into memory, and `Jit::link_object` takes it.

use std::error::Error;

use inkwell::context::Context;
use inkwell::module::Module;
use inkwell::targets::{CodeModel, FileType, InitializationConfig, RelocMode, Target, TargetMachine};
use inkwell::{AddressSpace, IntPredicate, OptimizationLevel};
use jittison::Jit;

type SumFn = extern "C" fn(*const i64, i64) -> i64;

const LEVELS: [OptimizationLevel; 2] = [OptimizationLevel::None, OptimizationLevel::Aggressive];

fn main() -> Result<(), Box<dyn Error>> {
    Target::initialize_x86(&InitializationConfig::default());
    let triple = TargetMachine::get_default_triple();
    let target = Target::from_triple(&triple).map_err(|error| error.to_string())?;
    let cpu = TargetMachine::get_host_cpu_name().to_string();
    let machines = LEVELS.map(|level| {
        target
            .create_target_machine(&triple, &cpu, "", level, RelocMode::PIC, CodeModel::Small)
            .expect("the host's machine")
    });

    let jit = Jit::new()?;
    let values: Vec<i64> = (0..100).collect();
    let mut at_first = None;
    for weight in 1..=20 {
        for machine in &machines {
            let context = Context::create();
            let module = weighted_sum(&context, weight)?;
            module.set_triple(&triple);
            let object =
                machine.write_to_memory_buffer(&module, FileType::Object).map_err(|error| error.to_string())?;

            let tracker = jit.main_dylib().create_tracker()?;
            jit.link_object(&tracker, "weighted_sum.o", object.as_slice())?;
            // Safety: the function has this signature, and all that was added may run.
            let sum = unsafe { jit.lookup::<SumFn>("weighted_sum")? };
            assert_eq!(sum.call(values.as_ptr(), 100), weight as i64 * 4950);
            assert_eq!(sum.call(values.as_ptr(), 0), 0);
            drop(sum);
            assert!(tracker.remove()?.is_complete());
        }
        let live = jit.memory_statistics().live_bytes;
        assert_eq!(*at_first.get_or_insert(live), live, "code is left");
    }
    println!("llvm: 40 objects linked and removed, all sums right, memory is flat");
    Ok(())
}

/// A loop over `count` values, each times `weight`.
fn weighted_sum(context: &Context, weight: u64) -> Result<Module<'_>, Box<dyn Error>> {
    let (module, builder) = (context.create_module("weighted_sum"), context.create_builder());
    let (long, pointer) = (context.i64_type(), context.ptr_type(AddressSpace::default()));
    let function = module.add_function("weighted_sum", long.fn_type(&[pointer.into(), long.into()], false), None);
    let values = function.get_nth_param(0).expect("two parameters").into_pointer_value();
    let count = function.get_nth_param(1).expect("two parameters").into_int_value();
    let [entry, head, body, done] =
        ["entry", "head", "body", "done"].map(|name| context.append_basic_block(function, name));
    let (zero, one) = (long.const_zero(), long.const_int(1, false));

    builder.position_at_end(entry);
    builder.build_unconditional_branch(head)?;

    builder.position_at_end(head);
    let (index, sum) = (builder.build_phi(long, "index")?, builder.build_phi(long, "sum")?);
    let (at, total) = (index.as_basic_value().into_int_value(), sum.as_basic_value().into_int_value());
    let is_left = builder.build_int_compare(IntPredicate::SLT, at, count, "is_left")?;
    builder.build_conditional_branch(is_left, body, done)?;

    builder.position_at_end(body);
    // SAFETY: the caller of `weighted_sum` passes `count` values.
    let place = unsafe { builder.build_gep(long, values, &[at], "place")? };
    let value = builder.build_load(long, place, "value")?.into_int_value();
    let weighted = builder.build_int_mul(value, long.const_int(weight, false), "weighted")?;
    let next = (builder.build_int_add(at, one, "next")?, builder.build_int_add(total, weighted, "next_total")?);
    builder.build_unconditional_branch(head)?;
    index.add_incoming(&[(&zero, entry), (&next.0, body)]);
    sum.add_incoming(&[(&zero, entry), (&next.1, body)]);

    builder.position_at_end(done);
    builder.build_return(Some(&total))?;
    module.verify().map_err(|error| error.to_string())?;
    Ok(module)
}
