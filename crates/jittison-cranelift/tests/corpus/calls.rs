//! Each type of Cranelift, passed and returned by each kind of call.

use cranelift_codegen::ir::{
    AbiParam, ArgumentPurpose, BlockArg, ExceptionTableData, ExceptionTableItem, InstBuilder, StackSlotData,
    StackSlotKind, Type, types,
};
use cranelift_codegen::isa::CallConv;
use cranelift_module::{DataDescription, FuncId, Linkage};

use crate::code::{Corpus, Fill, load, store};

/// The types of Cranelift with a size that is known when code is compiled, up to the widest vector.
pub fn all_types() -> Vec<Type> {
    use types::{F16, F32, F64, F128, I8, I16, I32, I64, I128};
    let lanes = [I8, I16, I32, I64, I128, F16, F32, F64, F128];
    let vectors = |lane: Type| [1, 2, 4, 8, 16, 32, 64].into_iter().filter_map(move |count| lane.by(count));
    lanes.into_iter().flat_map(vectors).filter(|kind| kind.bits() <= 512).collect()
}

/// Makes the functions of all calls.
pub fn add(corpus: &mut Corpus<'_>) {
    for kind in all_types() {
        for (name, make) in KINDS {
            let name = format!("{name}_{kind}");
            corpus.case(&name, |corpus| make(corpus, &name, kind));
        }
    }
    for (name, make) in ONCE {
        corpus.case(name, |corpus| make(corpus, name));
    }
}

type Make = fn(&mut Corpus<'_>, &str, Type);

const KINDS: [(&str, Make); 14] = [
    ("local", |corpus, name, kind| direct(corpus, name, kind, Linkage::Local, CallConv::SystemV)),
    ("exported", |corpus, name, kind| direct(corpus, name, kind, Linkage::Export, CallConv::SystemV)),
    ("fast", |corpus, name, kind| direct(corpus, name, kind, Linkage::Hidden, CallConv::Fast)),
    ("fastcall", |corpus, name, kind| direct(corpus, name, kind, Linkage::Local, CallConv::WindowsFastcall)),
    ("winch", |corpus, name, kind| direct(corpus, name, kind, Linkage::Local, CallConv::Winch)),
    ("forward", forward),
    ("by_address", by_address),
    ("by_table", by_table),
    ("many_arguments", many_arguments),
    ("many_results", many_results),
    ("tail", |corpus, name, kind| tail(corpus, name, kind, false)),
    ("tail_by_address", |corpus, name, kind| tail(corpus, name, kind, true)),
    ("try", try_call),
    ("recursive", recursive),
];

type MakeOnce = fn(&mut Corpus<'_>, &str);

const ONCE: [(&str, MakeOnce); 4] = [
    ("preserve_all", preserve_all),
    ("struct_argument", struct_argument),
    ("struct_result", struct_result),
    ("anonymous", anonymous),
];

/// `callee(a, b) = b`
fn second(corpus: &mut Corpus<'_>, name: &str, kind: Type, linkage: Linkage, convention: CallConv) -> FuncId {
    let signature = corpus.signature(convention, &[kind, kind], &[kind]);
    let fill: Fill<'_> = &|_, code, values| {
        code.ins().return_(&[values[1]]);
    };
    corpus.function(&format!("{name}_callee"), linkage, &signature, fill)
}

/// An entry that calls a function of two values with those at its address.
pub fn calls(corpus: &mut Corpus<'_>, name: &str, kind: Type, callee: FuncId) {
    corpus.entry(name, &|module, code, values| {
        let arguments = [load(code, kind, values[0], 0), load(code, kind, values[0], 1)];
        let callee = module.declare_func_in_func(callee, code.func);
        let call = code.ins().call(callee, &arguments);
        let result = code.inst_results(call)[0];
        store(code, result, values[1], 0);
    });
}

fn direct(corpus: &mut Corpus<'_>, name: &str, kind: Type, linkage: Linkage, convention: CallConv) {
    let callee = second(corpus, name, kind, linkage, convention);
    calls(corpus, name, kind, callee);
}

/// The callee is defined after the caller.
fn forward(corpus: &mut Corpus<'_>, name: &str, kind: Type) {
    let signature = corpus.signature(CallConv::SystemV, &[kind, kind], &[kind]);
    let callee = corpus.declare(&format!("{name}_callee"), Linkage::Local, &signature);
    // If Cranelift does not compile such a callee, it refuses this one first, and no caller lacks its callee.
    second(corpus, &format!("{name}_check"), kind, Linkage::Local, CallConv::SystemV);
    calls(corpus, name, kind, callee);
    corpus.define(callee, &signature, &|_, code, values| {
        code.ins().return_(&[values[1]]);
    });
}

fn by_address(corpus: &mut Corpus<'_>, name: &str, kind: Type) {
    for (suffix, linkage) in [("", Linkage::Export), ("_local", Linkage::Local)] {
        let name = format!("{name}{suffix}");
        let callee = second(corpus, &name, kind, linkage, CallConv::SystemV);
        let signature = corpus.signature(CallConv::SystemV, &[kind, kind], &[kind]);
        corpus.entry(&name, &|module, code, values| {
            let arguments = [load(code, kind, values[0], 0), load(code, kind, values[0], 1)];
            let callee = module.declare_func_in_func(callee, code.func);
            let address = code.ins().func_addr(types::I64, callee);
            let signature = code.import_signature(signature.clone());
            let call = code.ins().call_indirect(signature, address, &arguments);
            let result = code.inst_results(call)[0];
            store(code, result, values[1], 0);
        });
    }
}

/// The address of the callee is in data.
fn by_table(corpus: &mut Corpus<'_>, name: &str, kind: Type) {
    let callee = second(corpus, name, kind, Linkage::Local, CallConv::SystemV);
    let signature = corpus.signature(CallConv::SystemV, &[kind, kind], &[kind]);
    let table = corpus.module.declare_data(&format!("{name}_table"), Linkage::Local, false, false).unwrap();
    let mut description = DataDescription::new();
    description.define_zeroinit(24);
    description.set_align(8);
    let callee = corpus.module.declare_func_in_data(callee, &mut description);
    description.write_function_addr(16, callee);
    corpus.module.define_data(table, &description).unwrap();
    corpus.entry(name, &|module, code, values| {
        let arguments = [load(code, kind, values[0], 0), load(code, kind, values[0], 1)];
        let table = module.declare_data_in_func(table, code.func);
        let table = code.ins().symbol_value(types::I64, table);
        let address = load(code, types::I64, table, 2);
        let signature = code.import_signature(signature.clone());
        let call = code.ins().call_indirect(signature, address, &arguments);
        let result = code.inst_results(call)[0];
        store(code, result, values[1], 0);
    });
}

/// Arguments that do not all fit into registers.
fn many_arguments(corpus: &mut Corpus<'_>, name: &str, kind: Type) {
    let signature = corpus.signature(CallConv::SystemV, &[kind; 12], &[kind]);
    let fill: Fill<'_> = &|_, code, values| {
        code.ins().return_(&[values[11]]);
    };
    let callee = corpus.function(&format!("{name}_callee"), Linkage::Local, &signature, fill);
    corpus.entry(name, &|module, code, values| {
        let arguments = [(); 12].map(|()| load(code, kind, values[0], 1));
        let arguments = [&arguments[..11], &[load(code, kind, values[0], 0)]].concat();
        let callee = module.declare_func_in_func(callee, code.func);
        let call = code.ins().call(callee, &arguments);
        let result = code.inst_results(call)[0];
        store(code, result, values[1], 0);
    });
}

/// As many results as registers hold.
fn many_results(corpus: &mut Corpus<'_>, name: &str, kind: Type) {
    let count = if kind == types::I128 { 3 } else { 6 };
    let signature = corpus.signature(CallConv::Tail, &[kind, kind], &vec![kind; count]);
    let fill: Fill<'_> = &|_, code, values| {
        let results: Vec<_> = (0..count).map(|number| values[number % 2]).collect();
        code.ins().return_(&results);
    };
    let callee = corpus.function(&format!("{name}_callee"), Linkage::Local, &signature, fill);
    corpus.entry(name, &|module, code, values| {
        let arguments = [load(code, kind, values[0], 0), load(code, kind, values[0], 1)];
        let callee = module.declare_func_in_func(callee, code.func);
        let call = code.ins().call(callee, &arguments);
        let results = code.inst_results(call).to_vec();
        results.into_iter().zip(0..).for_each(|(result, index)| store(code, result, values[1], index));
    });
}

/// The callee ends with a tail call.
fn tail(corpus: &mut Corpus<'_>, name: &str, kind: Type, is_by_address: bool) {
    let callee = second(corpus, name, kind, Linkage::Local, CallConv::Tail);
    let signature = corpus.signature(CallConv::Tail, &[kind, kind], &[kind]);
    let fill: Fill<'_> = &|module, code, values| {
        let callee = module.declare_func_in_func(callee, code.func);
        let swapped = [values[1], values[0]];
        if is_by_address {
            let address = code.ins().func_addr(types::I64, callee);
            let signature = code.import_signature(signature.clone());
            code.ins().return_call_indirect(signature, address, &swapped);
        } else {
            code.ins().return_call(callee, &swapped);
        }
    };
    let middle = corpus.function(&format!("{name}_middle"), Linkage::Local, &signature, fill);
    calls(corpus, name, kind, middle);
}

/// A call with a handler of exceptions, which returns.
fn try_call(corpus: &mut Corpus<'_>, name: &str, kind: Type) {
    let callee = second(corpus, name, kind, Linkage::Export, CallConv::Tail);
    corpus.entry(name, &|module, code, values| {
        let arguments = [load(code, kind, values[0], 0), load(code, kind, values[0], 1)];
        let callee = module.declare_func_in_func(callee, code.func);
        let (normal, caught, end) = (code.create_block(), code.create_block(), code.create_block());
        let result = code.append_block_param(normal, kind);
        let payload = [code.append_block_param(caught, types::I64), code.append_block_param(caught, types::I64)];
        let lists = &mut code.func.dfg.value_lists;
        let on_return = cranelift_codegen::ir::BlockCall::new(normal, [BlockArg::TryCallRet(0)], lists);
        let on_throw = [BlockArg::TryCallExn(0), BlockArg::TryCallExn(1)];
        let on_throw = cranelift_codegen::ir::BlockCall::new(caught, on_throw, lists);
        let signature = code.func.dfg.ext_funcs[callee].signature;
        let table = ExceptionTableData::new(signature, on_return, [ExceptionTableItem::Default(on_throw)]);
        let table = code.func.dfg.exception_tables.push(table);
        code.ins().try_call(callee, &arguments, table);
        code.switch_to_block(normal);
        store(code, result, values[1], 0);
        code.ins().jump(end, &[]);
        code.switch_to_block(caught);
        store(code, payload[0], values[1], 1);
        code.ins().jump(end, &[]);
        code.switch_to_block(end);
    });
}

/// `f(n, a, b) = n == 0 ? a : f(n - 1, b, a)`
fn recursive(corpus: &mut Corpus<'_>, name: &str, kind: Type) {
    let signature = corpus.signature(CallConv::SystemV, &[types::I32, kind, kind], &[kind]);
    let callee = corpus.declare(&format!("{name}_callee"), Linkage::Export, &signature);
    corpus.define(callee, &signature, &|module, code, values| {
        let (stop, go_on) = (code.create_block(), code.create_block());
        code.ins().brif(values[0], go_on, &[], stop, &[]);
        code.switch_to_block(stop);
        code.ins().return_(&[values[1]]);
        code.switch_to_block(go_on);
        let less = code.ins().iadd_imm_s(values[0], -1);
        let itself = module.declare_func_in_func(callee, code.func);
        let call = code.ins().call(itself, &[less, values[2], values[1]]);
        let result = code.inst_results(call)[0];
        code.ins().return_(&[result]);
    });
    corpus.entry(name, &|module, code, values| {
        let count = code.ins().iconst(types::I32, 7);
        let arguments = [count, load(code, kind, values[0], 0), load(code, kind, values[0], 1)];
        let callee = module.declare_func_in_func(callee, code.func);
        let call = code.ins().call(callee, &arguments);
        let result = code.inst_results(call)[0];
        store(code, result, values[1], 0);
    });
}

/// A callee that keeps all registers.
fn preserve_all(corpus: &mut Corpus<'_>, name: &str) {
    let signature = corpus.signature(CallConv::PreserveAll, &[types::I64, types::I64], &[]);
    let fill: Fill<'_> = &|_, code, values| {
        let doubled = code.ins().iadd(values[0], values[0]);
        store(code, doubled, values[1], 0);
        code.ins().return_(&[]);
    };
    let callee = corpus.function("preserve_all_callee", Linkage::Local, &signature, fill);
    corpus.entry(name, &|module, code, values| {
        let kept: Vec<_> = (0..8).map(|index| load(code, types::I64, values[0], index)).collect();
        let callee = module.declare_func_in_func(callee, code.func);
        code.ins().call(callee, &[kept[0], values[1]]);
        kept.into_iter().zip(1..).for_each(|(value, index)| store(code, value, values[1], index));
    });
}

/// A structure of 24 bytes that is passed by value.
fn struct_argument(corpus: &mut Corpus<'_>, name: &str) {
    let mut signature = corpus.signature(CallConv::SystemV, &[], &[types::I64]);
    signature.params.push(AbiParam::special(types::I64, ArgumentPurpose::StructArgument(24)));
    let fill: Fill<'_> = &|_, code, values| {
        let parts = [0, 1, 2].map(|index| load(code, types::I64, values[0], index));
        let sum = code.ins().iadd(parts[0], parts[1]);
        let sum = code.ins().isub(sum, parts[2]);
        code.ins().return_(&[sum]);
    };
    let callee = corpus.function("struct_argument_callee", Linkage::Export, &signature, fill);
    corpus.entry(name, &|module, code, values| {
        let callee = module.declare_func_in_func(callee, code.func);
        let call = code.ins().call(callee, &[values[0]]);
        let result = code.inst_results(call)[0];
        store(code, result, values[1], 0);
    });
}

/// A structure that the callee writes where the caller says.
fn struct_result(corpus: &mut Corpus<'_>, name: &str) {
    let mut signature = corpus.signature(CallConv::SystemV, &[], &[]);
    signature.params.push(AbiParam::special(types::I64, ArgumentPurpose::StructReturn));
    signature.params.push(AbiParam::new(types::I64));
    let fill: Fill<'_> = &|_, code, values| {
        (0..3).for_each(|index| store(code, values[1], values[0], index));
        code.ins().return_(&[]);
    };
    let callee = corpus.function("struct_result_callee", Linkage::Export, &signature, fill);
    corpus.entry(name, &|module, code, values| {
        let slot = code.create_sized_stack_slot(StackSlotData::new(StackSlotKind::ExplicitSlot, 24, 3));
        let address = code.ins().stack_addr(types::I64, slot, 0);
        let argument = load(code, types::I64, values[0], 0);
        let callee = module.declare_func_in_func(callee, code.func);
        code.ins().call(callee, &[address, argument]);
        for index in 0..3 {
            let part = load(code, types::I64, address, index);
            store(code, part, values[1], index);
        }
    });
}

/// Functions and data without names.
fn anonymous(corpus: &mut Corpus<'_>, name: &str) {
    let signature = corpus.signature(CallConv::SystemV, &[types::I64], &[types::I64]);
    let callee = corpus.module.declare_anonymous_function(&signature).unwrap();
    let data = corpus.module.declare_anonymous_data(true, false).unwrap();
    let mut description = DataDescription::new();
    description.define(77u64.to_le_bytes().into());
    corpus.module.define_data(data, &description).unwrap();
    corpus.define(callee, &signature, &|module, code, values| {
        let data = module.declare_data_in_func(data, code.func);
        let address = code.ins().symbol_value(types::I64, data);
        let number = load(code, types::I64, address, 0);
        let sum = code.ins().iadd(number, values[0]);
        code.ins().return_(&[sum]);
    });
    corpus.entry(name, &|module, code, values| {
        let argument = load(code, types::I64, values[0], 0);
        let callee = module.declare_func_in_func(callee, code.func);
        let call = code.ins().call(callee, &[argument]);
        let result = code.inst_results(call)[0];
        store(code, result, values[1], 0);
    });
}
