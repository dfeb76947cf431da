//! Functions that are defined again while others call them.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::*;

/// Defines `id` again as `x + number`.
fn redefine(module: &mut JITModule, id: FuncId, number: i64) -> Result<jittison::Committed, ModuleError> {
    let mut context = body(module, |_, function, x| function.ins().iadd_imm_s(x, number));
    // Safety: the signature is that of all functions here.
    unsafe { module.redefine_function(id, &mut context) }
}

#[test]
fn callers_handles_and_addresses_follow_a_redefinition() {
    let mut module = module(Grouping::Manual);
    let callee = declare(&mut module, "callee", Linkage::Local);
    drop(redefine(&mut module, callee, 1).unwrap());
    let caller = calls(&mut module, "caller", callee);
    module.finalize_definitions().unwrap();
    let address = module.get_finalized_function(callee);
    // Safety: the signature.
    let handle = unsafe { module.function::<LongFn>(callee).unwrap() };
    assert_eq!((call(&module, caller, 10), handle.call(10)), (12, 11));

    let committed = redefine(&mut module, callee, 100).unwrap();
    assert_eq!((call(&module, caller, 10), handle.call(10)), (111, 110));
    assert_eq!(module.get_finalized_function(callee), address);
    assert!(committed.retired.iter().all(|old| old.is_complete()), "no one is inside the first version");
}

#[test]
fn a_function_is_redefined_under_two_callers_and_replaced_code_is_freed() {
    let jit = Jit::new().unwrap();
    let mut builder = builder(Grouping::Manual);
    builder.session(&jit).remove_on_drop(true);
    let mut module = JITModule::new(builder);
    let id = declare(&mut module, "f", Linkage::Export);
    // From here on all numbers have encodings of one length.
    drop(redefine(&mut module, id, 1000).unwrap());
    // Safety: the signature.
    let handle = unsafe { module.function::<LongFn>(id).unwrap() };
    let (live, done) = (jit.memory_statistics().live_bytes, AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut last = 1000;
                while !done.load(Ordering::Relaxed) {
                    let number = handle.call(0);
                    assert!((last..=1500).contains(&number), "{number} after {last}");
                    last = number;
                }
            });
        }
        let redefined: Vec<_> = (1001..=1500).map(|number| redefine(&mut module, id, number).map(drop)).collect();
        // Before an assertion, so that the threads end in any case.
        done.store(true, Ordering::Relaxed);
        assert!(redefined.iter().all(Result::is_ok), "{redefined:?}");
    });
    assert_eq!(handle.call(0), 1500);
    assert_eq!(jit.memory_statistics().live_bytes, live, "only the last version is left");
}

#[test]
fn a_function_of_a_removed_group_may_be_defined_again_in_versions() {
    let mut module = module(Grouping::Manual);
    let id = adds(&mut module, "f", 1);
    module.finalize_definitions().unwrap();
    assert!(redefine(&mut module, id, 2).is_err(), "its callers are bound to the definition");
    module.next_group().unwrap().remove().unwrap();
    for number in [2, 3] {
        drop(redefine(&mut module, id, number).unwrap());
        assert_eq!(call(&module, id, 10), 10 + number);
    }
}

#[test]
fn a_redefinition_that_fails_changes_nothing() {
    let mut module = module(Grouping::Manual);
    let missing = declare(&mut module, "no_such_function_anywhere", Linkage::Import);
    let id = declare(&mut module, "f", Linkage::Export);
    let fails = |module: &mut JITModule| {
        let mut context = body(module, |module, function, x| {
            let callee = module.declare_func_in_func(missing, function.func);
            let call = function.ins().call(callee, &[x]);
            function.inst_results(call)[0]
        });
        // Safety: the signature.
        let error = unsafe { module.redefine_function(id, &mut context) }.unwrap_err();
        assert!(format!("{error:?}").contains("no_such_function_anywhere"), "{error:?}");
    };
    fails(&mut module);
    drop(redefine(&mut module, id, 1).unwrap());
    fails(&mut module);
    assert_eq!(call(&module, id, 1), 2);

    let mut other = body(&mut module, |_, _, x| x);
    other.func.signature.params.push(AbiParam::new(types::I64));
    // Safety: it is refused.
    let error = unsafe { module.redefine_function(id, &mut other) }.unwrap_err();
    assert!(error.to_string().contains("signature differs"), "{error}");
    assert_eq!(call(&module, id, 1), 2);
}

#[test]
fn a_function_with_another_kind_of_definition_is_refused() {
    let mut module = module(Grouping::Single);
    let plain = adds(&mut module, "plain", 1);
    let refused = |module: &mut JITModule| redefine(module, plain, 2).unwrap_err().to_string();
    assert!(refused(&mut module).contains("bound to the definition"));
    module.finalize_definitions().unwrap();
    assert!(refused(&mut module).contains("bound to the definition"));
    assert_eq!(call(&module, plain, 1), 2);
    module.remove_function(plain).unwrap();
    drop(redefine(&mut module, plain, 2).unwrap());
    assert_eq!(call(&module, plain, 1), 3);
    // The reverse.
    let defined = define(&mut module, plain, |_, _, x| x);
    assert!(matches!(defined, Err(ModuleError::DuplicateDefinition(_))), "{defined:?}");
    let import = declare(&mut module, "labs", Linkage::Import);
    let imported = redefine(&mut module, import, 1);
    assert!(matches!(imported, Err(ModuleError::InvalidImportDefinition(_))), "{imported:?}");
}

#[test]
fn a_redefinable_function_is_removed_and_its_name_is_free() {
    let jit = Jit::new().unwrap();
    let mut builder = builder(Grouping::Manual);
    builder.session(&jit);
    let mut module = JITModule::new(builder);
    let live = jit.memory_statistics().live_bytes;
    let id = declare(&mut module, "f", Linkage::Export);
    drop(redefine(&mut module, id, 1).unwrap());
    drop(redefine(&mut module, id, 2).unwrap());
    // Safety: the signature.
    let handle = unsafe { module.function::<LongFn>(id).unwrap() };
    let removal = module.remove_function(id).unwrap();
    assert!(!removal.is_complete());
    assert_eq!(handle.call(1), 3, "the handle keeps the last version");
    drop(handle);
    assert!(removal.is_complete());
    assert_eq!(jit.memory_statistics().live_bytes, live);
    define(&mut module, id, |_, function, x| function.ins().iadd_imm_s(x, 7)).unwrap();
    module.finalize_definitions().unwrap();
    assert_eq!(call(&module, id, 1), 8);
}

#[test]
fn a_function_whose_dylib_was_cleared_can_be_defined_again_after_its_removal() {
    let mut module = module(Grouping::Manual);
    let id = declare(&mut module, "f", Linkage::Export);
    drop(redefine(&mut module, id, 1).unwrap());
    drop(module.dylib().clear().unwrap());
    let removed = module.remove_function(id).unwrap_err();
    assert!(format!("{removed:?}").contains("can no longer be patched"), "{removed:?}");
    drop(redefine(&mut module, id, 2).unwrap());
    assert_eq!(call(&module, id, 1), 3);
}

#[test]
fn machine_code_replaces_a_compiled_version() {
    let mut module = module(Grouping::Manual);
    let id = declare(&mut module, "f", Linkage::Export);
    drop(redefine(&mut module, id, 1).unwrap());
    let negates: &[u8] = match cfg!(target_arch = "x86_64") {
        // mov %rdi, %rax; neg %rax; ret
        true => &[0x48, 0x89, 0xf8, 0x48, 0xf7, 0xd8, 0xc3],
        // neg x0, x0; ret
        false => &[0xe0, 0x03, 0x00, 0xcb, 0xc0, 0x03, 0x5f, 0xd6],
    };
    // Safety: the code has the signature.
    drop(unsafe { module.redefine_function_bytes(id, 16, negates, &[]) }.unwrap());
    assert_eq!(call(&module, id, 5), -5);
}

#[test]
fn a_refused_removal_does_not_lose_a_definition_that_is_not_finalised() {
    let mut module = module(Grouping::Single);
    let id = adds(&mut module, "f", 1);
    assert!(module.remove_function(id).unwrap_err().to_string().contains("not finalised"));
    assert!(matches!(define(&mut module, id, |_, _, x| x), Err(ModuleError::DuplicateDefinition(_))));
    module.finalize_definitions().unwrap();
    assert_eq!(call(&module, id, 1), 2);
}
