//! Objects from other producers: g++, rustc, Cranelift.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cranelift_codegen::Context;
use cranelift_codegen::ir::{AbiParam, InstBuilder, MemFlagsData, types};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_module::{DataDescription, Linkage, Module, default_libcall_names};
use cranelift_object::{ObjectBuilder, ObjectModule};

use crate::support::*;

#[test]
fn cpp_with_the_standard_library_runs() {
    let Some(object) = cpp("
        #include <algorithm>
        #include <map>
        #include <string>
        #include <vector>
        #include <memory>
        #include <typeinfo>
        struct Shape { virtual ~Shape() = default; virtual long area() const = 0; };
        struct Square : Shape { long side; explicit Square(long s) : side(s) {} long area() const override { return side * side; } };
        static std::map<std::string, long> words = { { \"two\", 2 }, { \"three\", 3 } };
        extern \"C\" long test() {
            std::vector<std::unique_ptr<Shape>> shapes;
            for (long i = 5; i > 0; i--) shapes.push_back(std::make_unique<Square>(i));
            std::sort(shapes.begin(), shapes.end(), [](auto &a, auto &b) { return a->area() < b->area(); });
            long sum = 0, place = 1;
            for (auto &shape : shapes) sum += place++ * shape->area();
            auto *square = dynamic_cast<Square *>(shapes[0].get());
            std::string text(40, 'x');
            return sum * 1000 + words.at(\"two\") * 100 + words.at(\"three\") * 10 + (square ? square->side : 0) + text.size() - 40
                   + (typeid(*shapes[1]) == typeid(Square) ? 0 : 5);
        }")
    else {
        return;
    };
    let (jit, trackers) = linked(&[&object]);
    assert_eq!(long(&jit, "test"), 225 * 1000 + 231);
    assert!(trackers[0].remove().unwrap().is_complete());
    assert_eq!(held(&jit), (0, 0, 0));
}

#[test]
fn rust_objects_link_with_c_and_with_the_process() {
    let Some(object) = rust(
        &["-C", "panic=abort"],
        "#![no_std]
        extern \"C\" { fn from_c(x: i64) -> i64; fn strlen(text: *const u8) -> usize; }
        #[no_mangle] pub static TABLE: [extern \"C\" fn(i64) -> i64; 2] = [double, square];
        #[no_mangle] pub extern \"C\" fn double(x: i64) -> i64 { x.wrapping_mul(2) }
        extern \"C\" fn square(x: i64) -> i64 { x.wrapping_mul(x) }
        #[no_mangle] pub static mut COUNTER: i64 = 7;
        #[no_mangle] pub unsafe extern \"C\" fn test() -> i64 {
            COUNTER += 1;
            let text = b\"four\\0\";
            from_c(TABLE[0](10)) + TABLE[1](5) + COUNTER * 1000 + strlen(text.as_ptr()) as i64
        }",
    ) else {
        return;
    };
    let Some(from_c) = c("long from_c(long x) { return x + 1; }") else { return };
    let (jit, trackers) = linked(&[&object, &from_c]);
    assert_eq!(long(&jit, "test"), 21 + 25 + 8000 + 4);
    assert_eq!(function::<extern "C" fn(i64) -> i64>(&jit, "double").call(21), 42);
    assert!(trackers[0].remove().unwrap().is_complete());
}

#[test]
fn a_panic_unwinds_a_rust_function_and_drops_its_values() {
    let Some(object) = rust(
        &["-C", "panic=unwind"],
        "#![no_std]
        extern \"C-unwind\" { fn host(x: i64) -> i64; }
        struct Guard<'a>(&'a mut i64);
        impl Drop for Guard<'_> { fn drop(&mut self) { *self.0 += 100; } }
        #[no_mangle] pub unsafe extern \"C-unwind\" fn test(x: i64, dropped: *mut i64) -> i64 {
            let guard = Guard(&mut *dropped);
            let result = host(x) + *guard.0;
            result
        }",
    ) else {
        return;
    };
    extern "C-unwind" fn host(x: i64) -> i64 {
        if x < 0 {
            std::panic::panic_any(x);
        }
        x * 2
    }
    unsafe extern "C" {
        fn rust_eh_personality();
    }
    let jit = new_jit();
    define_function(&jit, jit.main_dylib(), "host", host as extern "C-unwind" fn(i64) -> i64);
    define_absolute(jit.main_dylib(), "rust_eh_personality", rust_eh_personality as *const () as u64);
    let _tracker = add(&jit, jit.main_dylib(), "unwinds.o", &object);
    let test = function::<extern "C-unwind" fn(i64, *mut i64) -> i64>(&jit, "test");
    let mut dropped = 5;
    assert_eq!(test.call(4, &mut dropped), 13);
    assert_eq!(dropped, 105);
    let caught = catch_unwind(AssertUnwindSafe(|| test.call(-3, &mut dropped))).unwrap_err();
    assert_eq!(caught.downcast_ref::<i64>(), Some(&-3));
    assert_eq!(dropped, 205);
}

/// `long test(long x) { return imported(x) + datum; }`, compiled by Cranelift with an unwind table.
fn cranelift_object() -> Vec<u8> {
    let mut flags = settings::builder();
    flags.set("is_pic", "true").unwrap();
    let isa = cranelift_native::builder().unwrap().finish(settings::Flags::new(flags)).unwrap();
    let mut builder = ObjectBuilder::new(Arc::clone(&isa), "cranelift", default_libcall_names()).unwrap();
    builder.unwind_info(true);
    let mut module = ObjectModule::new(builder);
    let mut signature = module.make_signature();
    signature.params.push(AbiParam::new(types::I64));
    signature.returns.push(AbiParam::new(types::I64));
    let imported = module.declare_function("imported", Linkage::Import, &signature).unwrap();
    let test = module.declare_function("test", Linkage::Export, &signature).unwrap();
    let datum = module.declare_data("datum", Linkage::Export, true, false).unwrap();
    let mut description = DataDescription::new();
    description.define(Box::new(90i64.to_le_bytes()));
    description.set_align(8);
    module.define_data(datum, &description).unwrap();

    let mut context = Context::new();
    context.func.signature = signature;
    let mut scratch = FunctionBuilderContext::new();
    let mut body = FunctionBuilder::new(&mut context.func, &mut scratch);
    let block = body.create_block();
    body.append_block_params_for_function_params(block);
    body.switch_to_block(block);
    body.seal_block(block);
    let callee = module.declare_func_in_func(imported, body.func);
    let data = module.declare_data_in_func(datum, body.func);
    let x = body.block_params(block)[0];
    let call = body.ins().call(callee, &[x]);
    let result = body.inst_results(call)[0];
    let address = body.ins().symbol_value(types::I64, data);
    let loaded = body.ins().load(types::I64, MemFlagsData::trusted(), address, 0);
    let sum = body.ins().iadd(result, loaded);
    body.ins().return_(&[sum]);
    body.finalize(isa.frontend_config());
    module.define_function(test, &mut context).unwrap();
    module.finish().emit().unwrap()
}

#[test]
fn cranelift_objects_link_and_a_panic_passes_through_them() {
    extern "C-unwind" fn imported(x: i64) -> i64 {
        if x == 0 {
            std::panic::panic_any("zero");
        }
        x * 5
    }
    let jit = new_jit();
    define_function(&jit, jit.main_dylib(), "imported", imported as extern "C-unwind" fn(i64) -> i64);
    let tracker = add(&jit, jit.main_dylib(), "cranelift.o", &cranelift_object());
    let test = function::<extern "C-unwind" fn(i64) -> i64>(&jit, "test");
    assert_eq!(test.call(2), 100);
    let caught = catch_unwind(|| test.call(0)).unwrap_err();
    assert_eq!(caught.downcast_ref::<&str>(), Some(&"zero"));
    drop(test);
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(held(&jit), (0, 0, 0));
}
