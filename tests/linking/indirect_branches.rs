//! Control-flow enforcement (Intel CET). Generated code that indirect branches may reach begins with `endbr64`. Generated code
//! returns only to a caller, as a shadow stack requires. The tests read the code, so the machine need not enforce CET.

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic};
use jittison::Jit;
use jittison::base::Name;
use jittison::link::PlannedLink;
use jittison::memory::Placement;
use jittison::session::{Alias, SymbolFlags};

use crate::support::*;

const STACK: &str = "\n.section .note.GNU-stack,\"\",@progbits\n";
const FULL: [&str; 3] = ["-O2", "-fPIC", "-fcf-protection=full"];

/// The instructions from `address` to the first jump or return, inclusive.
fn code_at(address: u64) -> Vec<Instruction> {
    let bytes = read(address, 128);
    let mut decoder = Decoder::with_ip(64, &bytes, address, DecoderOptions::NONE);
    let mut code = Vec::new();
    loop {
        let instruction = decoder.decode();
        code.push(instruction);
        if matches!(instruction.mnemonic(), Mnemonic::Jmp | Mnemonic::Ret | Mnemonic::INVALID) {
            return code;
        }
    }
}

fn assert_endbr(address: u64, what: &str) {
    assert_eq!(code_at(address)[0].code(), Code::Endbr64, "{what} at {address:#x}");
}

/// The address in the slot that the jump of a stub uses.
fn target_of_stub(stub: u64) -> u64 {
    let jump = *code_at(stub).last().unwrap();
    assert_eq!(jump.code(), Code::Jmp_rm64, "the jump of a stub");
    u64::from_le_bytes(read(jump.ip_rel_memory_address(), 8).try_into().unwrap())
}

/// The note with which compilers say that the functions of an object begin with `endbr64`, and another property before it.
/// `value` is that of `GNU_PROPERTY_X86_FEATURE_1_AND`.
fn property_note(value: u32) -> String {
    format!(
        "\n.section .note.gnu.property,\"a\",@note\n.balign 8\n.long 4, 32, 5\n.asciz \"GNU\"
        .long 0xc0008002, 4, 1, 0\n.long 0xc0000002, 4, {value}, 0\n"
    )
}

/// Whether the stubs of an object with this note begin with `endbr64`, and the distance from stub to stub.
fn form_of_stubs(note: &str) -> Option<(bool, u64)> {
    let source = format!(
        ".text\n.globl first, second\nfirst: endbr64; lea far@PLT(%rip), %rax; ret
        second: endbr64; lea farther@PLT(%rip), %rax; ret{note}{STACK}"
    );
    let object = asm(&source)?;
    let jit = new_jit();
    // Far below any window.
    define_absolute(jit.main_dylib(), "far", 0x1000);
    define_absolute(jit.main_dylib(), "farther", 0x2000);
    let _object = add(&jit, jit.main_dylib(), "object.o", &object);
    let stubs = ["first", "second"].map(|name| long(&jit, name) as u64);
    assert_eq!(stubs.map(target_of_stub), [0x1000, 0x2000]);
    let has_marks = [code_at(stubs[0]), code_at(stubs[1])].map(|code| code[0].code() == Code::Endbr64);
    assert_eq!(has_marks[0], has_marks[1]);
    Some((has_marks[0], stubs[0].abs_diff(stubs[1])))
}

#[test]
fn stubs_of_an_object_that_marks_its_functions_begin_with_endbr64() {
    for value in [1, 3] {
        let Some(form) = form_of_stubs(&property_note(value)) else { return };
        assert_eq!(form, (true, 16));
    }
}

/// An indirect branch must not reach the functions of such an object either.
#[test]
fn stubs_of_an_object_without_marks_are_the_jump_alone() {
    // No note; shadow stacks alone; a note of another owner; a note that is cut off.
    let notes = [
        "".to_string(),
        property_note(2),
        property_note(3).replace("GNU", "GNV"),
        "\n.section .note.gnu.property,\"a\",@note\n.balign 8\n.long 4, 32, 5\n".to_string(),
    ];
    for note in notes {
        let Some(form) = form_of_stubs(&note) else { return };
        assert_eq!(form, (false, 8), "{note}");
    }
}

#[test]
fn functions_of_compilers_have_stubs_with_and_without_endbr64() {
    if !require_x86_64() {
        return;
    }
    for (flags, stub_size) in [("-fcf-protection=none", 8), ("-fcf-protection=full", 16)] {
        let source = "extern int first(void), second(void), third(void); int test(void) { return first() + second() + third(); }";
        let Some(object) = gcc(&["-O2", "-fPIC", flags], source) else { return };
        let planned = PlannedLink::plan("object.o".into(), object.into(), |_| true, |_| Ok(())).unwrap();
        let graph = planned.graph();
        let stubs = graph.blocks().find(|(id, _)| graph.block_name(*id) == ".plt").unwrap().1;
        assert_eq!((stubs.size, stubs.align), (3 * stub_size, stub_size), "{flags}");
    }
}

#[test]
fn stubs_and_entries_of_indirect_functions_begin_with_endbr64() {
    if !require_x86_64() {
        return;
    }
    let source = "
        static long one(void) { return 1; }
        static long (*resolve(void))(void) { return one; }
        long chosen(void) __attribute__((ifunc(\"resolve\")));
        long test(void) { return chosen(); }
        long pointer(void) { return (long)&chosen; }";
    let Some(object) = gcc(&FULL, source) else { return };
    let (jit, _trackers) = linked(&[&object]);
    let stub = long(&jit, "pointer") as u64;
    assert_eq!(jit.address_of(jit.main_dylib(), "chosen").unwrap().value(), stub);
    assert_endbr(stub, "stub");
    assert_endbr(target_of_stub(stub), "entry that the stub jumps to before the first call");
    assert_eq!(long(&jit, "test"), 1);
    assert_endbr(target_of_stub(stub), "function from the compiler");
}

#[test]
fn redirectable_and_lazy_stubs_and_their_entries_begin_with_endbr64() {
    if !require_x86_64() {
        return;
    }
    let Some(object) = gcc(&FULL, "long twice(long x) { return 2 * x; }") else { return };
    let jit = new_jit();
    let library = jit.create_dylib("library").unwrap();
    let _code = add(&jit, &library, "library.o", &object);
    let names = jit.main_dylib().create_tracker().unwrap();
    let alias = |name: &str| Alias { name: Name::new(name), aliasee: Name::new("twice"), flags: SymbolFlags::EXPORTED };
    jit.lazy_reexport(&names, &library, &[alias("first"), alias("second")]).unwrap();
    for name in ["first", "second"] {
        let stub = jit.address_of(jit.main_dylib(), name).unwrap().value();
        assert_endbr(stub, name);
        let entry = target_of_stub(stub);
        assert_endbr(entry, "entry");
        assert_endbr(target_of_stub(entry), "the lookup entry");
        assert_eq!(function::<extern "C" fn(i64) -> i64>(&jit, name).call(21), 42);
        assert_eq!(target_of_stub(stub), jit.address_of(&library, "twice").unwrap().value());
    }
}

#[test]
fn replacements_of_c_library_functions_begin_with_endbr64() {
    if !require_x86_64() {
        return;
    }
    let source = "
        #include <stdlib.h>
        #include <pthread.h>
        extern int on_exit(void (*)(int, void *), void *);
        long pointer0(void) { return (long)&atexit; }
        long pointer1(void) { return (long)&on_exit; }
        long pointer2(void) { return (long)&at_quick_exit; }
        long pointer3(void) { return (long)&pthread_atfork; }";
    let Some(object) = gcc(&FULL, source) else { return };
    let (jit, _trackers) = linked(&[&object]);
    for number in 0..4 {
        assert_endbr(long(&jit, &format!("pointer{number}")) as u64, &format!("function {number}"));
    }
}

#[test]
fn the_tls_descriptor_function_begins_with_endbr64_and_returns_once() {
    let source = format!(
        ".text\n.globl test\ntest: endbr64; lea x@tlsdesc(%rip), %rax; mov (%rax), %rax; ret
        .section .tbss,\"awT\",@nobits\n.globl x\n.type x, @object\nx: .zero 8{STACK}"
    );
    let Some(object) = asm(&source) else { return };
    let (jit, _trackers) = linked(&[&object]);
    let function = long(&jit, "test") as u64;
    assert_endbr(function, "descriptor function");
    let code = code_at(function);
    assert_eq!(code.last().unwrap().mnemonic(), Mnemonic::Ret, "it returns to its caller");
    // It returns from its own frame.
    let count = |mnemonic| code.iter().filter(|instruction| instruction.mnemonic() == mnemonic).count();
    assert_eq!(count(Mnemonic::Push), count(Mnemonic::Pop));
}

/// A return without a matching call would fault on a shadow stack.
#[test]
fn generated_entries_contain_no_return_instruction() {
    if !require_x86_64() {
        return;
    }
    let source = "
        static long one(void) { return 1; }
        static long (*resolve(void))(void) { return one; }
        long chosen(void) __attribute__((ifunc(\"resolve\")));
        extern long outer(void);
        long test(void) { return chosen() + outer(); }";
    let Some(object) = gcc(&FULL, source) else { return };
    let planned = PlannedLink::plan("object.o".into(), object.clone().into(), |_| true, |_| Ok(())).unwrap();
    let generated: Vec<_> =
        planned.graph().blocks().filter(|(_, block)| block.is_synthetic()).map(|(id, _)| id).collect();
    assert!(generated.len() >= 3, "{generated:?}");
    let jit = new_jit();
    define_absolute(jit.main_dylib(), "outer", 0x1000);
    let _object = add(&jit, jit.main_dylib(), "object.o", &object);
    let stub = jit.address_of(jit.main_dylib(), "chosen").unwrap().value();
    let entry = code_at(target_of_stub(stub));
    let common = code_at(entry.last().unwrap().near_branch_target());
    for instruction in entry.iter().chain(&common) {
        assert_ne!(instruction.mnemonic(), Mnemonic::Ret, "{instruction:?}");
    }
}

#[test]
fn a_function_keeps_endbr64_when_its_first_instruction_moves_to_a_thunk() {
    let words = Box::leak(Box::new([11u64, 22]));
    let source =
        format!(".text\n.globl test, low\ntest: endbr64; mov far(%rip), %rax; ret\nlow: mov $low, %eax; ret{STACK}");
    let Some(object) = asm(&source) else { return };
    let jit = Jit::builder().placement(Placement::Low2GiB).window_size(64 << 20).build().unwrap();
    define_absolute(jit.main_dylib(), "far", words.as_ptr() as u64);
    let _object = add(&jit, jit.main_dylib(), "object.o", &object);
    let address = jit.address_of(jit.main_dylib(), "test").unwrap().value();
    assert_endbr(address, "function");
    assert_eq!(code_at(address)[1].code(), Code::Jmp_rel32_64, "a jump to the thunk with the moved instruction");
    assert_eq!(long(&jit, "test"), 11);
}

#[test]
fn objects_compiled_for_cet_link_and_run() {
    if !require_x86_64() {
        return;
    }
    let c_source = "
        #include <setjmp.h>
        #include <stdlib.h>
        static jmp_buf back;
        static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
        static __thread long per_thread = 5;
        static long leave(long x) { longjmp(back, (int)x); }
        long choose(int n) { switch (n) { case 0: return 3; case 1: return 9; case 2: return 27; case 3: return 1; default: return 0; } }
        long test(void) {
            int numbers[4] = { 4, 1, 3, 2 };
            qsort(numbers, 4, sizeof *numbers, compare);
            int jumped = setjmp(back);
            if (jumped == 0) leave(7);
            return numbers[0] * 1000 + numbers[3] * 100 + jumped * 10 + per_thread + choose(numbers[1]) * 10000;
        }";
    let cpp_source = "
        #include <stdexcept>
        extern \"C\" long test2() { try { throw std::runtime_error(\"x\"); } catch (const std::exception &) { return 8; } }";
    for flags in [&FULL[..], &["-O0", "-fno-pie", "-fcf-protection=full"], &["-O2", "-fPIC", "-fcf-protection=branch"]]
    {
        let (Some(object), Some(cpp)) = (gcc(flags, c_source), gxx(flags, cpp_source)) else { return };
        let (jit, _trackers) = linked(&[&object, &cpp]);
        assert_eq!((long(&jit, "test"), long(&jit, "test2")), (271475, 8), "{flags:?}");
    }
}
