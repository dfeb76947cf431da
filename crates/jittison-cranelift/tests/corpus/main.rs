//! Some hundred functions, made by a generator, with the same results as on cranelift-jit: each type of Cranelift, each kind of
//! call, each relocation of the machine.

// The error type is Cranelift's.
#![allow(clippy::result_large_err)]

mod calls;
mod code;
mod programs;
mod references;

use std::collections::BTreeSet;

use cranelift_codegen::ir::{InstBuilder, types};
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_codegen::settings::{self, Configurable, Flags};
use cranelift_module::{DataDescription, Linkage, Module, default_libcall_names};
use jittison_cranelift::{Grouping, JITBuilder, JITModule};

use code::{Corpus, load, store};

const IS_X86_64: bool = cfg!(target_arch = "x86_64");

type Entry = extern "C" fn(*const u8, *mut u8);

/// What the functions of a corpus compute.
#[derive(Debug, PartialEq)]
struct Results {
    /// By name and input.
    outputs: Vec<(String, usize, Vec<u8>)>,
    refused: Vec<String>,
}

/// Inputs that look random. The last ones are all zeroes and all ones.
fn inputs() -> Vec<[u8; 1024]> {
    let mut state = 1u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    let mut inputs: Vec<[u8; 1024]> = (0..4).map(|_| std::array::from_fn(|_| random())).collect();
    inputs.extend([[0; 1024], [0xff; 1024]]);
    inputs
}

/// Calls each function with each input.
fn results(entries: &[(String, *const u8)], refused: Vec<String>) -> Results {
    let mut outputs = Vec::new();
    for (name, address) in entries {
        // Safety: the entries of a corpus have this signature, and their code stays as long as the module.
        let entry = unsafe { std::mem::transmute::<*const u8, Entry>(*address) };
        for (number, input) in inputs().iter().enumerate() {
            let mut output = [0xa5; 1024];
            entry(input.as_ptr(), output.as_mut_ptr());
            outputs.push((name.clone(), number, output.to_vec()));
        }
    }
    Results { outputs, refused }
}

fn make(corpus: &mut Corpus<'_>) {
    calls::add(corpus);
    programs::add(corpus);
    references::add(corpus);
}

fn isa(flags: &[(&str, &str)]) -> OwnedTargetIsa {
    let mut settings = settings::builder();
    settings.set("use_colocated_libcalls", "false").unwrap();
    flags.iter().for_each(|(name, value)| settings.set(name, value).unwrap());
    cranelift_native::builder().unwrap().finish(Flags::new(settings)).unwrap()
}

/// The instructions that each processor of the architecture has.
fn old_isa() -> OwnedTargetIsa {
    let mut settings = settings::builder();
    settings.set("use_colocated_libcalls", "false").unwrap();
    settings.set("is_pic", "false").unwrap();
    let host = isa(&[]).triple().clone();
    cranelift_codegen::isa::lookup(host).unwrap().finish(Flags::new(settings)).unwrap()
}

/// The results on cranelift-jit, and the relocations of the code.
fn on_cranelift_jit(isa: OwnedTargetIsa, make: fn(&mut Corpus<'_>)) -> (Results, BTreeSet<String>) {
    let mut builder = cranelift_jit::JITBuilder::with_isa(isa, default_libcall_names());
    builder.symbols(references::host_symbols());
    let mut module = cranelift_jit::JITModule::new(builder);
    let mut corpus = Corpus::new(&mut module);
    make(&mut corpus);
    let Corpus { entries, refused, relocations, .. } = corpus;
    module.finalize_definitions().unwrap();
    let entries: Vec<_> = entries.into_iter().map(|(name, id)| (name, module.get_finalized_function(id))).collect();
    (results(&entries, refused), relocations)
}

/// The same on this crate.
fn here(isa: OwnedTargetIsa, grouping: Grouping, make: fn(&mut Corpus<'_>)) -> (Results, BTreeSet<String>) {
    let mut builder = JITBuilder::with_isa(isa, default_libcall_names());
    builder.symbols(references::host_symbols()).grouping(grouping).remove_on_drop(true);
    let mut module = JITModule::new(builder);
    let mut corpus = Corpus::new(&mut module);
    make(&mut corpus);
    let Corpus { entries, refused, relocations, .. } = corpus;
    module.finalize_definitions().unwrap();
    let entries: Vec<_> = entries.into_iter().map(|(name, id)| (name, module.get_finalized_function(id))).collect();
    (results(&entries, refused), relocations)
}

#[track_caller]
fn assert_same(expected: &Results, found: &Results) {
    let different: Vec<_> = expected.outputs.iter().zip(&found.outputs).filter(|(a, b)| a != b).collect();
    assert!(different.is_empty(), "{} differ, the first is {:?}", different.len(), different[0]);
    assert_eq!(expected.outputs.len(), found.outputs.len());
    assert_eq!(expected.refused, found.refused);
}

fn names(kinds: &BTreeSet<String>) -> Vec<&str> {
    kinds.iter().map(String::as_str).collect()
}

#[test]
fn generated_functions_have_the_same_results_as_on_cranelift_jit() {
    // What Cranelift needs for tail calls, and for 128-bit integers as parameters.
    let flags = [("preserve_frame_pointers", "true"), ("enable_llvm_abi_extensions", "true")];
    let [fixed, moved] = ["false", "true"].map(|is_pic| [&flags[..], &[("is_pic", is_pic)]].concat());
    let fixed = || isa(&fixed);
    let (expected, relocations) = on_cranelift_jit(fixed(), make);
    let count = expected.outputs.len() / inputs().len();
    println!("{count} functions with {relocations:?}");
    assert!(count >= 200, "{count} functions");
    // Cranelift has no registers for wider types, and for all others each kind of call.
    let is_narrow = |name: &&String| {
        calls::all_types().iter().any(|kind| kind.bits() <= 128 && name.ends_with(&format!("_{kind}")))
    };
    let refused: Vec<_> = expected.refused.iter().filter(is_narrow).collect();
    // On x86-64 the convention has one register for results.
    assert_eq!(refused, if IS_X86_64 { &["winch_i128"][..] } else { &[] });
    for grouping in [Grouping::Manual, Grouping::Single] {
        assert_same(&expected, &here(fixed(), grouping, make).0);
    }
    let (moved, more) = here(isa(&moved), Grouping::Manual, make);
    assert_same(&expected, &moved);
    // All that ELF has on the machine, but those of thread-local data, which has a test of its own.
    let relocations: BTreeSet<String> = relocations.union(&more).cloned().collect();
    let all = match IS_X86_64 {
        true => &["Abs4", "Abs8", "X86CallPCRel4", "X86GOTPCRel4", "X86PCRel4"][..],
        false => &[
            "Aarch64AddAbsLo12Nc",
            "Aarch64AdrGotPage21",
            "Aarch64AdrPrelPgHi21",
            "Aarch64Ld64GotLo12Nc",
            "Abs4",
            "Abs8",
            "Arm64Call",
        ],
    };
    assert_eq!(names(&relocations), all);
}

#[test]
fn code_for_old_processors_calls_libraries_with_the_same_results() {
    let (expected, _) = on_cranelift_jit(old_isa(), references::add_library_calls);
    assert_eq!((expected.outputs.len(), expected.refused.len()), (2 * inputs().len(), 0));
    assert_same(&expected, &here(old_isa(), Grouping::Manual, references::add_library_calls).0);
}

#[test]
fn thread_local_data_is_that_of_the_thread() {
    let mut builder =
        JITBuilder::with_isa(isa(&[("is_pic", "true"), ("tls_model", "elf_gd")]), default_libcall_names());
    builder.remove_on_drop(true);
    let mut module = JITModule::new(builder);
    let mut corpus = Corpus::new(&mut module);
    let variables = [Linkage::Local, Linkage::Export].map(|linkage| {
        let name = format!("of_thread_{linkage:?}");
        let variable = corpus.module.declare_data(&name, linkage, true, true).unwrap();
        let mut description = DataDescription::new();
        description.define(9u64.to_le_bytes().into());
        corpus.module.define_data(variable, &description).unwrap();
        variable
    });
    corpus.entry("thread_local", &|module, code, values| {
        for (variable, index) in variables.iter().zip(0..) {
            let variable = module.declare_data_in_func(*variable, code.func);
            let address = code.ins().tls_value(types::I64, variable);
            let old = load(code, types::I64, address, 0);
            let new = code.ins().iadd_imm_s(old, i64::from(index) + 1);
            store(code, new, address, 0);
            store(code, old, values[1], index);
        }
    });
    let of_variables = match IS_X86_64 {
        true => &["ElfX86_64TlsGd", "X86CallPLTRel4"][..],
        false => &["Aarch64TlsDescAddLo12", "Aarch64TlsDescAdrPage21", "Aarch64TlsDescCall", "Aarch64TlsDescLd64Lo12"],
    };
    assert_eq!(names(&corpus.relocations), of_variables);
    let id = corpus.entries[0].1;
    module.finalize_definitions().unwrap();
    // Safety: the signature of all entries.
    let entry = unsafe { module.function::<extern "C" fn(*const u8, *mut u8)>(id).unwrap() };
    let call = || {
        let mut output = [0u64; 2];
        entry.call(std::ptr::null(), output.as_mut_ptr().cast());
        output
    };
    assert_eq!([call(), call()], [[9, 9], [10, 11]]);
    std::thread::scope(|scope| scope.spawn(|| assert_eq!(call(), [9, 9])).join().unwrap());
}
