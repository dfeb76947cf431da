//! What a program can do with a module, beyond what cranelift-jit's own tests cover: removal, groups, unwinding, thread-local
//! data, several modules in one session.

// The error type is Cranelift's.
#![allow(clippy::result_large_err)]

mod redefining;

use cranelift_codegen::Context;
use cranelift_codegen::ir::{self, AbiParam, InstBuilder, MemFlagsData, types};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_module::{DataDescription, DataId, FuncId, Linkage, Module, ModuleError, default_libcall_names};
use jittison::Jit;
use jittison_cranelift::{Grouping, JITBuilder, JITModule};

type LongFn = extern "C" fn(i64) -> i64;

fn builder(grouping: Grouping) -> JITBuilder {
    let mut builder = JITBuilder::new(default_libcall_names()).unwrap();
    builder.grouping(grouping);
    builder
}

fn module(grouping: Grouping) -> JITModule {
    JITModule::new(builder(grouping))
}

fn signature(module: &JITModule) -> ir::Signature {
    let mut signature = module.make_signature();
    signature.params.push(AbiParam::new(types::I64));
    signature.returns.push(AbiParam::new(types::I64));
    signature
}

fn declare(module: &mut JITModule, name: &str, linkage: Linkage) -> FuncId {
    let signature = signature(module);
    module.declare_function(name, linkage, &signature).unwrap()
}

/// Defines a function of one number, whose body `fill` writes.
fn define(
    module: &mut JITModule,
    id: FuncId,
    fill: impl FnOnce(&mut JITModule, &mut FunctionBuilder<'_>, ir::Value) -> ir::Value,
) -> Result<(), ModuleError> {
    let mut context = body(module, fill);
    module.define_function(id, &mut context)
}

/// The IR of a function of one number, whose body `fill` writes.
fn body(
    module: &mut JITModule,
    fill: impl FnOnce(&mut JITModule, &mut FunctionBuilder<'_>, ir::Value) -> ir::Value,
) -> Context {
    let mut context = module.make_context();
    context.func.signature = signature(module);
    let mut frontend = FunctionBuilderContext::new();
    let mut function = FunctionBuilder::new(&mut context.func, &mut frontend);
    let block = function.create_block();
    function.append_block_params_for_function_params(block);
    function.switch_to_block(block);
    let argument = function.block_params(block)[0];
    let result = fill(module, &mut function, argument);
    function.ins().return_(&[result]);
    function.seal_all_blocks();
    function.finalize(module.target_config());
    context
}

/// `name(x) = x + number`
fn adds(module: &mut JITModule, name: &str, number: i64) -> FuncId {
    let id = declare(module, name, Linkage::Export);
    define(module, id, |_, function, x| function.ins().iadd_imm_s(x, number)).unwrap();
    id
}

/// `name(x) = callee(x) + 1`
fn calls(module: &mut JITModule, name: &str, callee: FuncId) -> FuncId {
    let id = declare(module, name, Linkage::Export);
    define(module, id, |module, function, x| {
        let callee = module.declare_func_in_func(callee, function.func);
        let call = function.ins().call(callee, &[x]);
        let result = function.inst_results(call)[0];
        function.ins().iadd_imm_s(result, 1)
    })
    .unwrap();
    id
}

fn call(module: &JITModule, id: FuncId, argument: i64) -> i64 {
    // Safety: all functions of this file have this signature.
    unsafe { module.function::<LongFn>(id).unwrap() }.call(argument)
}

#[test]
fn a_function_is_removed_alone_and_its_name_is_free_again() {
    let mut module = module(Grouping::Single);
    let (first, second) = (adds(&mut module, "first", 1), adds(&mut module, "second", 2));
    module.finalize_definitions().unwrap();
    assert_eq!((call(&module, first, 10), call(&module, second, 10)), (11, 12));
    assert!(module.remove_function(first).unwrap().is_complete());
    assert_eq!(call(&module, second, 10), 12);
    assert!(module.remove_function(first).is_err(), "it is removed already");
    define(&mut module, first, |_, function, x| function.ins().iadd_imm_s(x, 100)).unwrap();
    module.finalize_definitions().unwrap();
    assert_eq!(call(&module, first, 10), 110);
}

#[test]
fn a_removed_function_stays_as_long_as_another_one_calls_it() {
    let mut module = module(Grouping::Single);
    let callee = adds(&mut module, "callee", 5);
    let caller = calls(&mut module, "caller", callee);
    module.finalize_definitions().unwrap();
    let removal = module.remove_function(callee).unwrap();
    assert!(!removal.is_complete());
    assert_eq!(call(&module, caller, 1), 7);
    module.remove_function(caller).unwrap();
    assert!(removal.is_complete());
}

#[test]
fn functions_of_one_batch_that_call_each_other_are_linked_and_removed_one_by_one() {
    let mut module = module(Grouping::Single);
    let (even, odd) = (declare(&mut module, "even", Linkage::Local), declare(&mut module, "odd", Linkage::Local));
    // f(x) = x == 0 ? result : other(x - 1)
    for (id, other, result) in [(even, odd, 1), (odd, even, 0)] {
        define(&mut module, id, |module, function, x| {
            let (stop, go_on) = (function.create_block(), function.create_block());
            function.ins().brif(x, go_on, &[], stop, &[]);
            function.switch_to_block(stop);
            let value = function.ins().iconst(types::I64, result);
            function.ins().return_(&[value]);
            function.switch_to_block(go_on);
            let less = function.ins().iadd_imm_s(x, -1);
            let other = module.declare_func_in_func(other, function.func);
            let call = function.ins().call(other, &[less]);
            function.inst_results(call)[0]
        })
        .unwrap();
    }
    module.finalize_definitions().unwrap();
    assert_eq!((call(&module, even, 10), call(&module, odd, 10)), (1, 0));
    let first = module.remove_function(even).unwrap();
    assert!(!first.is_complete(), "`odd` calls it");
    assert!(module.remove_function(odd).unwrap().is_complete() && first.is_complete());
}

#[test]
fn the_names_of_a_removed_group_may_be_defined_again() {
    let mut module = module(Grouping::Manual);
    for number in 1..4 {
        let id = adds(&mut module, "again", number);
        module.finalize_definitions().unwrap();
        assert_eq!(call(&module, id, 10), 10 + number);
        let twice = define(&mut module, id, |_, _, x| x);
        assert!(matches!(twice, Err(ModuleError::DuplicateDefinition(_))), "{twice:?}");
        assert!(module.next_group().unwrap().remove().unwrap().is_complete());
    }
}

#[test]
fn the_names_of_a_transferred_group_stay_defined() {
    let mut module = module(Grouping::Manual);
    let id = adds(&mut module, "moved", 1);
    module.finalize_definitions().unwrap();
    let other = module.dylib().create_tracker().unwrap();
    module.next_group().unwrap().transfer_to(&other).unwrap();
    define(&mut module, id, |_, _, x| x).unwrap();
    let error = module.finalize_definitions().unwrap_err();
    assert!(format!("{error:?}").contains("moved"), "{error:?}");
    assert_eq!(call(&module, id, 1), 2, "the first definition");
}

#[test]
fn a_group_is_removed_by_its_tracker() {
    let mut module = module(Grouping::Manual);
    let kept = adds(&mut module, "kept", 1);
    module.finalize_definitions().unwrap();
    let _first = module.next_group().unwrap();
    let removed = adds(&mut module, "removed", 2);
    let also = calls(&mut module, "also", removed);
    module.finalize_definitions().unwrap();
    let group = module.next_group().unwrap();
    assert_eq!((call(&module, kept, 0), call(&module, also, 0)), (1, 3));
    assert!(module.remove_function(removed).is_err(), "it shares a group");
    assert!(group.remove().unwrap().is_complete());
    assert_eq!(call(&module, kept, 0), 1);
    // Safety: the signature.
    assert!(unsafe { module.function::<LongFn>(removed) }.is_err());
}

#[test]
fn symbols_of_the_builder_come_before_its_searches_and_the_last_search_is_asked_first() {
    extern "C" fn named(x: i64) -> i64 {
        x + 1000
    }
    extern "C" fn searched(x: i64) -> i64 {
        x + 2000
    }
    let mut builder = builder(Grouping::Manual);
    builder.symbol("named", named as *const u8);
    builder.symbol_lookup_fn(Box::new(|name| (name != "labs").then_some(named as *const u8)));
    builder.symbol_lookup_fn(Box::new(|name| ["searched", "named"].contains(&name).then_some(searched as *const u8)));
    let mut module = JITModule::new(builder);
    let callers = ["named", "searched", "labs"].map(|name| {
        let callee = declare(&mut module, name, Linkage::Import);
        calls(&mut module, &format!("calls_{name}"), callee)
    });
    module.finalize_definitions().unwrap();
    assert_eq!(callers.map(|caller| call(&module, caller, -5)), [996, 1996, 6]);
}

/// Symptom: a call of the host's `fn1` reached the module's second function, which has no name.
#[test]
fn a_name_of_the_host_is_never_that_of_a_function_without_a_name() {
    extern "C" fn of_host(x: i64) -> i64 {
        x + 1000
    }
    let mut builder = builder(Grouping::Single);
    builder.symbol("fn1", of_host as *const u8).symbol(".Lfn1", of_host as *const u8);
    let mut module = JITModule::new(builder);
    let named = declare(&mut module, "fn1", Linkage::Import);
    let signature = signature(&module);
    let anonymous = module.declare_anonymous_function(&signature).unwrap();
    assert_eq!(anonymous.as_u32(), 1);
    define(&mut module, anonymous, |_, _, x| x).unwrap();
    module.finalize_definitions().unwrap();
    let label = declare(&mut module, ".Lfn1", Linkage::Import);
    let callers = [named, label, anonymous].map(|callee| calls(&mut module, &format!("calls_{callee}"), callee));
    module.finalize_definitions().unwrap();
    assert_eq!(callers.map(|caller| call(&module, caller, 1)), [1002, 1002, 2]);
    assert!(module.declare_function("<anonymous funcid1>", Linkage::Import, &signature).is_err());
}

/// Symptom: a function that was removed, or that could not be linked, was that of the C library with its name.
#[test]
fn a_function_that_is_gone_is_never_that_of_the_host_with_its_name() {
    let is_gone = |module: &JITModule, id: FuncId| {
        let find = std::panic::AssertUnwindSafe(|| module.get_finalized_function(id));
        // Safety: `labs` has this signature.
        unsafe { module.function::<LongFn>(id) }.is_err() && std::panic::catch_unwind(find).is_err()
    };
    let mut module = module(Grouping::Manual);
    let id = adds(&mut module, "labs", 1);
    assert!(is_gone(&module, id), "it is not finalised");
    module.finalize_definitions().unwrap();
    assert_eq!(call(&module, id, -5), -4);
    module.next_group().unwrap().remove().unwrap();
    assert!(is_gone(&module, id), "it was removed");

    // Two groups, of which the first cannot be linked.
    define(&mut module, id, |_, _, x| x).unwrap();
    let missing = declare(&mut module, "no_such_function_anywhere", Linkage::Import);
    calls(&mut module, "caller", missing);
    let _first = module.next_group().unwrap();
    let fine = adds(&mut module, "fine", 1);
    assert!(module.finalize_definitions().is_err());
    assert_eq!(call(&module, fine, 1), 2);
    assert!(is_gone(&module, id), "it was not linked");

    let mut context = body(&mut module, |_, _, x| x);
    // Safety: the signature.
    drop(unsafe { module.redefine_function(id, &mut context) }.unwrap());
    assert_eq!(call(&module, id, -5), -5);
    drop(module.dylib().clear().unwrap());
    assert!(is_gone(&module, id), "its dylib was cleared");
}

#[test]
fn a_missing_symbol_is_an_error_and_the_module_goes_on() {
    for grouping in [Grouping::Manual, Grouping::Single] {
        let mut module = module(grouping);
        let missing = declare(&mut module, "no_such_function_anywhere", Linkage::Import);
        let caller = calls(&mut module, "caller", missing);
        let fine = if grouping == Grouping::Single { Some(adds(&mut module, "fine", 1)) } else { None };
        let error = module.finalize_definitions().unwrap_err();
        assert!(format!("{error:?}").contains("no_such_function_anywhere"), "{error:?}");
        fine.into_iter().for_each(|fine| assert_eq!(call(&module, fine, 1), 2));
        define(&mut module, caller, |_, _, x| x).unwrap();
        module.finalize_definitions().unwrap();
        assert_eq!(call(&module, caller, 3), 3);
    }
}

fn data(module: &mut JITModule, name: &str, writable: bool, tls: bool, content: &[u8]) -> DataId {
    let id = module.declare_data(name, Linkage::Local, writable, tls).unwrap();
    let mut description = DataDescription::new();
    description.define(content.into());
    module.define_data(id, &description).unwrap();
    id
}

#[test]
fn data_has_its_content_and_points_to_functions_and_data() {
    let mut module = module(Grouping::Manual);
    let number = data(&mut module, "number", false, false, &7i64.to_le_bytes());
    let function = adds(&mut module, "function", 3);
    let table = module.declare_data("table", Linkage::Export, true, false).unwrap();
    let mut description = DataDescription::new();
    description.define_zeroinit(16);
    let number_in_data = module.declare_data_in_data(number, &mut description);
    let function_in_data = module.declare_func_in_data(function, &mut description);
    description.write_data_addr(0, number_in_data, 0);
    description.write_function_addr(8, function_in_data);
    module.define_data(table, &description).unwrap();
    module.finalize_definitions().unwrap();
    let (at, size) = module.get_finalized_data(table);
    assert_eq!(size, 16);
    // Safety: the table has two addresses, and the first one is that of a number.
    let words = unsafe { *(at as *const [u64; 2]) };
    assert_eq!(unsafe { *(words[0] as *const i64) }, 7);
    assert_eq!(words[1], module.get_finalized_function(function) as u64);
}

#[test]
fn each_thread_has_its_own_thread_local_data() {
    let mut flags = builder(Grouping::Manual);
    let isa = {
        use cranelift_codegen::settings::{self, Configurable};
        let mut settings = settings::builder();
        settings.set("tls_model", "elf_gd").unwrap();
        settings.set("is_pic", "true").unwrap();
        cranelift_native_isa(settings::Flags::new(settings))
    };
    flags.grouping(Grouping::Manual);
    let mut module = JITModule::new(JITBuilder::with_isa(isa, default_libcall_names()));
    let counter = data(&mut module, "counter", true, true, &40i64.to_le_bytes());
    let next = declare(&mut module, "next", Linkage::Export);
    define(&mut module, next, |module, function, x| {
        let counter = module.declare_data_in_func(counter, function.func);
        let at = function.ins().tls_value(types::I64, counter);
        let old = function.ins().load(types::I64, MemFlagsData::trusted(), at, 0);
        let new = function.ins().iadd(old, x);
        function.ins().store(MemFlagsData::trusted(), new, at, 0);
        new
    })
    .unwrap();
    module.finalize_definitions().unwrap();
    assert_eq!((call(&module, next, 1), call(&module, next, 1)), (41, 42));
    std::thread::scope(|scope| scope.spawn(|| assert_eq!(call(&module, next, 2), 42)).join().unwrap());
}

fn cranelift_native_isa(flags: cranelift_codegen::settings::Flags) -> cranelift_codegen::isa::OwnedTargetIsa {
    cranelift_native::builder().unwrap().finish(flags).unwrap()
}

#[test]
fn a_panic_passes_through_compiled_frames() {
    extern "C-unwind" fn panics(x: i64) -> i64 {
        std::panic::panic_any(x)
    }
    let mut builder = builder(Grouping::Manual);
    builder.symbol("panics", panics as *const u8);
    let mut module = JITModule::new(builder);
    let host = declare(&mut module, "panics", Linkage::Import);
    let inner = calls(&mut module, "inner", host);
    let outer = calls(&mut module, "outer", inner);
    module.finalize_definitions().unwrap();
    // Safety: the signature of the function, which may unwind.
    let outer = unsafe { module.function::<extern "C-unwind" fn(i64) -> i64>(outer).unwrap() };
    let caught = std::panic::catch_unwind(|| outer.call(5)).unwrap_err();
    assert_eq!(caught.downcast_ref::<i64>(), Some(&5));
}

#[test]
fn a_module_keeps_its_code_unless_it_is_told_to_remove_it() {
    let jit = Jit::new().unwrap();
    let live = jit.memory_statistics().live_bytes;
    let make = |is_removed: bool| {
        let mut builder = builder(Grouping::Manual);
        builder.session(&jit).remove_on_drop(is_removed);
        let mut module = JITModule::new(builder);
        let id = adds(&mut module, "f", 1);
        module.finalize_definitions().unwrap();
        (module, id)
    };
    drop(make(true));
    assert_eq!(jit.memory_statistics().live_bytes, live);
    let (module, id) = make(true);
    // Safety: the signature.
    let handle = unsafe { module.function::<LongFn>(id).unwrap() };
    module.free_memory();
    assert_eq!(handle.call(1), 2, "the handle keeps the code");
    drop(handle);
    assert_eq!(jit.memory_statistics().live_bytes, live);
    let (module, id) = make(false);
    let address = module.get_finalized_function(id);
    drop(module);
    // Safety: the code stays, and this is its signature.
    assert_eq!(unsafe { std::mem::transmute::<*const u8, LongFn>(address) }(1), 2);
}

#[test]
fn modules_of_several_threads_share_a_session_and_free_what_they_remove() {
    let jit = Jit::new().unwrap();
    let live = jit.memory_statistics().live_bytes;
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let jit = jit.clone();
            scope.spawn(move || {
                let mut builder = builder(Grouping::Single);
                builder.session(&jit).remove_on_drop(true);
                let mut module = JITModule::new(builder);
                let id = declare(&mut module, "f", Linkage::Export);
                for round in 0..200 {
                    define(&mut module, id, |_, function, x| function.ins().iadd_imm_s(x, thread * 1000 + round))
                        .unwrap();
                    module.finalize_definitions().unwrap();
                    assert_eq!(call(&module, id, 7), 7 + thread * 1000 + round);
                    module.remove_function(id).unwrap();
                }
            });
        }
    });
    assert_eq!(jit.memory_statistics().live_bytes, live);
}

#[test]
fn a_debugger_name_and_a_source_of_each_address_are_known() {
    let mut module = module(Grouping::Single);
    let id = adds(&mut module, "found_by_address", 1);
    module.finalize_definitions().unwrap();
    let address = jittison::base::ExecutorAddr::new(module.get_finalized_function(id) as u64);
    let located = module.session().locate(&[address.offset(1)]).remove(0).unwrap();
    assert_eq!(located.function.unwrap().0.as_str(), "found_by_address");
    assert_eq!(&*located.object, "found_by_address");
}

/// Symptom: the functions of an `.init_array` never ran, and nothing said so.
#[test]
fn data_in_a_section_of_initialisers_is_refused_by_name() {
    let mut module = module(Grouping::Single);
    let function = adds(&mut module, "initializer", 1);
    let id = module.declare_data("list", Linkage::Export, false, false).unwrap();
    for section in [".init_array", ".init_array.100", ".fini_array", ".preinit_array", ".ctors", ".init"] {
        let mut data = DataDescription::new();
        data.define_zeroinit(8);
        let function = module.declare_func_in_data(function, &mut data);
        data.write_function_addr(0, function);
        data.custom_section = Some(section.to_string());
        let error = format!("{:?}", module.define_data(id, &data).unwrap_err());
        assert!(error.contains("`list`") && error.contains(&format!("`{section}`")), "{error}");
    }
    // The declaration may be defined otherwise.
    let mut data = DataDescription::new();
    data.define(Box::new([1]));
    data.custom_section = Some(".rodata.list".to_string());
    module.define_data(id, &data).unwrap();
    module.finalize_definitions().unwrap();
    assert_eq!(module.get_finalized_data(id).1, 1);
}
