//! Unwind tables in every form that a toolchain or a person may write: encodings, augmentations, versions, terminators and
//! hand-written rules. Tables that an unwinder would misread are refused with an error that names the problem.

use crate::host::{is_llvm, passes_through};
use crate::support::*;

/// The function `outer`, which changes a register that it must preserve, and its unwind table byte by byte.
#[derive(Clone)]
struct Form {
    version: u8,
    augmentation: &'static str,
    /// The augmentation data of the CIE, as lines of assembler.
    cie_data: String,
    /// The address of the function, as a line of assembler.
    start: &'static str,
    /// The size of the function, as a line of assembler.
    range: &'static str,
    /// The augmentation data of the FDE, as lines of assembler.
    fde_data: String,
}

impl Form {
    /// The form that compilers write.
    fn usual() -> Form {
        Form::encoded(0x1b, ".long outer - .", ".long .Lend - outer")
    }

    fn encoded(encoding: u8, start: &'static str, range: &'static str) -> Form {
        let cie_data = format!(".byte {encoding}");
        Form { version: 1, augmentation: "zR", cie_data, start, range, fde_data: String::new() }
    }

    fn with(augmentation: &'static str, cie_data: &str, fde_data: &str) -> Form {
        Form { augmentation, cie_data: cie_data.to_string(), fde_data: fde_data.to_string(), ..Form::usual() }
    }

    fn source(&self) -> String {
        let Form { version, augmentation, cie_data, start, range, fde_data } = self;
        let sizes = if *version == 4 { ".byte 8, 0" } else { "" };
        let data = |name: &str, lines: &str| match augmentation.starts_with('z') {
            true => format!(".uleb128 .L{name}_end - .L{name}_data\n.L{name}_data:\n{lines}\n.L{name}_end:"),
            false => String::new(),
        };
        let (cie_data, fde_data) = (data("cie", cie_data), data("fde", fde_data));
        format!(
            "{OUTER}
            .section .eh_frame,\"a\",@progbits
            .Lcie: .long .Lafter_cie - .Lcie_id
            .Lcie_id: .long 0
            .byte {version}
            .string \"{augmentation}\"
            {sizes}
            .byte 1, 0x78, 16
            {cie_data}
            .byte 0x0c, 7, 8, 0x90, 1                     # CFA = rsp + 8, return address below
            .balign 4
            .Lafter_cie:
            .long .Lafter_fde - .Lfde_id
            .Lfde_id: .long .Lfde_id - .Lcie
            {start}
            {range}
            {fde_data}
            .byte 0x41, 0x0e, 16, 0x83, 2                 # after the push: CFA = rsp + 16, rbx below that
            .balign 4
            .Lafter_fde:
            .section .note.GNU-stack"
        )
    }

    fn object(&self) -> Option<Vec<u8>> {
        asm(&self.source())
    }
}

const OUTER: &str = "
    .text
    .globl outer
    .type outer, @function
    outer: push %rbx
    mov $0x5a5a, %ebx
    call thrower@PLT
    pop %rbx
    ret
    .Lend: .size outer, . - outer
    .section .data.rel.ro,\"aw\",@progbits
    .balign 8
    .Lpersonality: .quad __gcc_personality_v0";

fn assert_passes_through_forms(forms: &[(&str, Form)]) {
    for (what, form) in forms {
        let Some(object) = form.object() else { return };
        passes_through(&object, what);
    }
}

#[test]
fn every_encoding_of_a_function_address_is_read() {
    let [quad, long] = [".quad .Lend - outer", ".long .Lend - outer"];
    assert_passes_through_forms(&[
        ("absptr", Form::encoded(0x00, ".quad outer", quad)),
        ("udata4", Form::encoded(0x03, ".long outer", long)),
        ("udata8", Form::encoded(0x04, ".quad outer", quad)),
        ("sdata4", Form::encoded(0x0b, ".long outer", long)),
        ("sdata8", Form::encoded(0x0c, ".quad outer", quad)),
        ("pcrel absptr", Form::encoded(0x10, ".quad outer - .", quad)),
        ("pcrel udata8", Form::encoded(0x14, ".quad outer - .", quad)),
        ("pcrel sdata4", Form::usual()),
        ("pcrel sdata8", Form::encoded(0x1c, ".quad outer - .", quad)),
    ]);
}

#[test]
fn every_augmentation_is_read() {
    let plain = Form { augmentation: "", start: ".quad outer", range: ".quad .Lend - outer", ..Form::usual() };
    let indirect = ".byte 0x9b\n.long .Lpersonality - .";
    let none = ".long 0";
    assert_passes_through_forms(&[
        ("no augmentation", plain),
        ("zR", Form::usual()),
        ("zRS", Form::with("zRS", ".byte 0x1b", "")),
        ("zPR", Form::with("zPR", &format!("{indirect}\n.byte 0x1b"), "")),
        ("zRP", Form::with("zRP", &format!(".byte 0x1b\n{indirect}"), "")),
        ("zLR", Form::with("zLR", ".byte 0x1b\n.byte 0x1b", none)),
        ("zPLR", Form::with("zPLR", &format!("{indirect}\n.byte 0x1b\n.byte 0x1b"), none)),
        ("zPLRS", Form::with("zPLRS", &format!("{indirect}\n.byte 0x1b\n.byte 0x1b"), none)),
        ("absolute personality", Form::with("zPR", ".byte 0\n.quad __gcc_personality_v0\n.byte 0x1b", "")),
        ("udata4 personality", Form::with("zPR", ".byte 0x83\n.long .Lpersonality\n.byte 0x1b", "")),
        ("8-byte LSDA", Form::with("zPLR", &format!("{indirect}\n.byte 0x1c\n.byte 0x1b"), ".quad 0")),
        ("absolute LSDA", Form::with("zPLR", &format!("{indirect}\n.byte 0\n.byte 0x1b"), ".quad 0")),
        ("unknown data of a function", Form::with("zR", ".byte 0x1b", ".byte 7, 7, 7")),
    ]);
}

#[test]
fn cies_of_versions_1_3_and_4_are_read() {
    // LLVM's unwinder does not support version 4.
    let versions = if is_llvm() { &[1, 3][..] } else { &[1, 3, 4] };
    for version in versions.iter().copied() {
        assert_passes_through_forms(&[("version", Form { version, ..Form::usual() })]);
        let absolute = Form::encoded(0x00, ".quad outer", ".quad .Lend - outer");
        assert_passes_through_forms(&[("version, absolute", Form { version, ..absolute })]);
    }
}

#[test]
fn tables_that_an_unwinder_would_misread_are_refused_with_a_reason() {
    let says = |source: String, words: &[&str]| {
        let Some(object) = asm(&source.replace("thrower@PLT", "outer")) else { return };
        assert_says(&refused(&object, "outer"), &[&["bad.o", ".eh_frame"], words].concat());
    };
    // gcc 2: an additional word follows the augmentation.
    let eh = Form { augmentation: "eh", start: ".quad outer", range: ".quad 9", ..Form::usual() };
    says(eh.source(), &["augmentation"]);
    says(Form::with("zQ", ".byte 0x1b", "").source(), &["augmentation"]);
    says(Form { version: 2, ..Form::usual() }.source(), &["version"]);
    let four_bytes = Form { version: 4, ..Form::usual() }.source().replace(".byte 8, 0", ".byte 4, 0");
    says(four_bytes, &["the CIE at 0x0 has addresses of 4 bytes"]);
    // Relative to bases that do not exist on x86-64, and through a pointer.
    says(Form::encoded(0x2b, ".long 0", ".long 9").source(), &[]);
    says(Form::encoded(0x3b, ".long 0", ".long 9").source(), &[]);
    says(Form::encoded(0x9b, ".long .Lpersonality - .", ".long 9").source(), &["through a pointer"]);
    let long = Form::usual().source().replace(".long .Lafter_fde - .Lfde_id", ".long -1\n.quad .Lafter_fde - .Lfde_id");
    says(long.replace(".Lfde_id - .Lcie", "0x70 - 0x70 + 36"), &["64-bit format"]);
}

/// Another function with its own table.
fn other_function(name: &str) -> String {
    format!(".text\n.globl {name}\n{name}: .cfi_startproc\nret\n.cfi_endproc\n.section .note.GNU-stack")
}

/// Merges objects into one with `ld -r`.
fn merged(objects: &[Vec<u8>]) -> Option<Vec<u8>> {
    let dir = PrivateDir::new();
    let paths: Vec<_> = (0..objects.len()).map(|index| dir.path(&format!("{index}.o"))).collect();
    for (path, object) in paths.iter().zip(objects) {
        std::fs::write(path, object).unwrap();
    }
    let texts: Vec<_> = paths.iter().map(|path| path.to_str().unwrap()).collect();
    build("ld", b"", &[&["-r", "-o", OUTPUT], &texts[..]].concat())
}

/// Four different forms. Code that reads only the tables of compilers does not read all of them.
fn mixed() -> [Form; 4] {
    [
        Form::usual(),
        Form::encoded(0x00, ".quad outer", ".quad .Lend - outer"),
        Form::with("zRS", ".byte 0x1b", ""),
        Form { version: if is_llvm() { 3 } else { 4 }, ..Form::usual() },
    ]
}

#[test]
fn tables_merged_by_ld_r_with_different_cies_are_read() {
    // `outer` at each position: before, between and after the others.
    for (index, form) in mixed().iter().enumerate() {
        let others = mixed().into_iter().enumerate();
        let mut sources: Vec<_> =
            others.map(|(other, form)| form.source().replace("outer", &format!("other{other}"))).collect();
        sources.insert(index, form.source());
        sources.push(other_function("last"));
        let Some(objects) = sources.iter().map(|source| asm(source)).collect::<Option<Vec<_>>>() else { return };
        let Some(object) = merged(&objects) else { return };
        passes_through(&object, &format!("merged, {index}"));
    }
}

#[test]
fn tables_are_read_past_terminators_in_the_middle() {
    let terminator = "\n.section .eh_frame,\"a\",@progbits\n.long 0\n";
    for (index, form) in mixed().iter().enumerate() {
        let mut forms = mixed().to_vec();
        forms.insert(index, form.clone());
        let source = |(number, form): (usize, &Form)| {
            let name = if number == index { "outer".to_string() } else { format!("other{number}") };
            form.source().replace("outer", &name).replace(".L", &format!(".L{number}_")) + terminator
        };
        let source: String = forms.iter().enumerate().map(source).collect();
        let Some(object) = asm(&(source + ".section .note.GNU-stack")) else { return };
        passes_through(&object, &format!("terminated, {index}"));
    }
}

/// `outer` with rules as directives of the assembler.
fn directives(body: &str) -> String {
    format!(
        ".text\n.globl outer\n.type outer, @function\nouter: .cfi_startproc\n{body}\nret\n.cfi_endproc
         .size outer, . - outer\n.section .note.GNU-stack"
    )
}

#[test]
fn hand_written_rules_are_followed() {
    let bodies = [
        (
            "frame pointer",
            "push %rbp\n.cfi_def_cfa_offset 16\n.cfi_offset rbp, -16\nmov %rsp, %rbp
            .cfi_def_cfa_register rbp\nand $-32, %rsp\ncall thrower@PLT\nleave\n.cfi_def_cfa rsp, 8",
        ),
        (
            "a realigned stack, by an expression",
            "mov %rsp, %rax\nand $-64, %rsp\nsub $64, %rsp\nmov %rax, (%rsp)
            .cfi_escape 0x0f, 5, 0x77, 0, 0x06, 0x23, 8      # CFA = *rsp + 8
            mov %rbx, 8(%rsp)
            .cfi_escape 0x10, 3, 2, 0x77, 8                  # rbx at rsp + 8
            mov $7, %ebx\ncall thrower@PLT\nmov 8(%rsp), %rbx\nmov (%rsp), %rsp\n.cfi_def_cfa rsp, 8",
        ),
        (
            "a value by an expression",
            "push %rbx\n.cfi_adjust_cfa_offset 8\nlea 5(%rbx), %rbx
            .cfi_escape 0x16, 3, 2, 0x73, 0x7b               # rbx is rbx - 5
            call thrower@PLT\npop %rbx\n.cfi_adjust_cfa_offset -8\n.cfi_same_value rbx",
        ),
        (
            "a register saved in another",
            "push %r12\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset r12, 0\nmov %rbx, %r12
            .cfi_register rbx, r12\nmov $9, %ebx\ncall thrower@PLT\nmov %r12, %rbx\n.cfi_restore rbx
            pop %r12\n.cfi_adjust_cfa_offset -8\n.cfi_restore r12",
        ),
        (
            "remembered states",
            "sub $24, %rsp\n.cfi_adjust_cfa_offset 24\n.cfi_remember_state\nadd $24, %rsp
            .cfi_adjust_cfa_offset -24\nsub $24, %rsp\n.cfi_restore_state\ncall thrower@PLT
            add $24, %rsp\n.cfi_adjust_cfa_offset -24",
        ),
        (
            "a signal frame",
            ".cfi_signal_frame\nsub $8, %rsp\n.cfi_adjust_cfa_offset 8\ncall thrower@PLT
            add $8, %rsp\n.cfi_adjust_cfa_offset -8",
        ),
        (
            "pushed arguments",
            "sub $8, %rsp\n.cfi_adjust_cfa_offset 8\n.cfi_escape 0x2e, 0\ncall thrower@PLT
            add $8, %rsp\n.cfi_adjust_cfa_offset -8",
        ),
        (
            "a personality without a table",
            ".cfi_personality 0x9b, outer_personality\nsub $8, %rsp
            .cfi_adjust_cfa_offset 8\ncall thrower@PLT\nadd $8, %rsp\n.cfi_adjust_cfa_offset -8",
        ),
    ];
    let personality = ".section .data.rel.ro,\"aw\"\n.balign 8\nouter_personality: .quad __gcc_personality_v0\n";
    for (what, body) in bodies {
        let Some(object) = asm(&(personality.to_string() + &directives(body))) else { return };
        passes_through(&object, what);
    }
}
