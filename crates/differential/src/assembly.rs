//! Writes an object as assembly for GNU as or LLVM's assembler.

use std::fmt::Write as _;

use crate::extra::Extra;
use crate::program::{Action, Binding, Definition, Kind, Object, Place, Reference, Via, Writer};

pub fn write(object: &Object) -> String {
    let mut writer = Assembly { object, code: String::new(), rest: String::new(), labels: 0 };
    for import in &object.imports {
        if import.is_weak {
            let _ = writeln!(writer.rest, ".weak {}", import.name);
        }
        writer.set_visibility(import.name, import.visibility.directive());
    }
    for definition in &object.definitions {
        writer.define(definition);
    }
    for reference in &object.references {
        writer.refer(reference);
    }
    for extra in &object.extras {
        writer.add_extra(extra);
    }
    let (id, code, rest) = (object.id, writer.code, writer.rest);
    format!(
        "{rest}\n.text\n.globl run_{id}\n.type run_{id},@function\nrun_{id}:\npush %rbx\n{code}pop %rbx\nret\n.size run_{id},.-run_{id}\n\
         .section .note.GNU-stack,\"\",@progbits\n"
    )
}

struct Assembly<'a> {
    object: &'a Object,
    /// The body of `run`.
    code: String,
    /// All other sections.
    rest: String,
    labels: usize,
}

impl Assembly<'_> {
    fn label(&mut self) -> usize {
        self.labels += 1;
        self.labels
    }

    fn set_visibility(&mut self, name: &str, directive: Option<&str>) {
        if let Some(directive) = directive {
            let _ = writeln!(self.rest, ".{directive} {name}");
        }
    }

    /// Code that prints `%rax` with a label.
    fn say(&mut self, function: &str, text: &str) -> String {
        let label = self.label();
        let _ = writeln!(self.rest, ".section .rodata.text,\"a\",@progbits\n.Ltext{label}: .asciz \"{text}\"");
        format!("lea .Ltext{label}(%rip),%rdi\nmov %rax,%rsi\ncall {function}@PLT\n")
    }

    // ---- definitions ----------------------------------------------------------

    fn define(&mut self, definition: &Definition) {
        let name = definition.name;
        if definition.kind == Kind::Absolute {
            self.bind(definition, "@notype");
            let _ = writeln!(self.rest, ".set {name}, {:#x}", definition.value);
            return;
        }
        if definition.binding == Binding::Common {
            let directive = if definition.kind == Kind::ThreadLocal { ".tls_common" } else { ".comm" };
            self.set_visibility(name, definition.visibility.directive());
            let _ = writeln!(self.rest, "{directive} {name},{},{}", definition.size, definition.alignment);
            return;
        }
        let symbol_type = match definition.kind {
            _ if definition.is_untyped => "@notype",
            Kind::Function if definition.is_indirect => "@gnu_indirect_function",
            Kind::Function => "@function",
            Kind::ThreadLocal => "@tls_object",
            _ => "@object",
        };
        let is_alias = matches!(definition.binding, Binding::Alias | Binding::WeakAlias);
        let label = if is_alias { format!("{name}_aliased") } else { name.to_string() };
        let _ = writeln!(self.rest, "{}\n.balign {}", section(definition), definition.alignment);
        self.bind(definition, symbol_type);
        self.write_body(definition, &label);
        let _ = writeln!(self.rest, ".size {label},.-{label}");
        if is_alias {
            let _ = writeln!(self.rest, ".type {label},{symbol_type}\n.set {name},{label}");
        }
    }

    fn bind(&mut self, definition: &Definition, symbol_type: &str) {
        let name = definition.name;
        let symbol_type = if definition.binding == Binding::GroupUnique { "@gnu_unique_object" } else { symbol_type };
        let _ = writeln!(self.rest, ".type {name},{symbol_type}");
        let binding = match definition.binding {
            Binding::Local | Binding::Common | Binding::GroupUnique => None,
            Binding::Global | Binding::GroupGlobal | Binding::Alias => Some(".globl"),
            Binding::Weak | Binding::GroupWeak | Binding::LinkOnce | Binding::WeakAlias => Some(".weak"),
        };
        if let Some(binding) = binding {
            let _ = writeln!(self.rest, "{binding} {name}");
        }
        if definition.binding != Binding::Local {
            self.set_visibility(name, definition.visibility.directive());
        }
    }

    fn write_body(&mut self, definition: &Definition, label: &str) {
        let (value, words) = (definition.value, definition.size / 4);
        if definition.kind == Kind::Function {
            let implementation = self.label();
            let body = if definition.is_indirect {
                format!(
                    "lea .Limplementation{implementation}(%rip),%rax\nret\n\
                     .Limplementation{implementation}: mov ${value:#x},%eax\nret"
                )
            } else {
                format!("mov ${value:#x},%eax\nret")
            };
            let _ = writeln!(self.rest, "{label}:\n{body}");
        } else if definition.is_zero() {
            let _ = writeln!(self.rest, "{label}: .zero {}", definition.size);
        } else {
            let words: Vec<String> = (0..words).map(|index| format!("{:#x}", value + index)).collect();
            let _ = writeln!(self.rest, "{label}: .long {}", words.join(","));
        }
    }

    // ---- references -----------------------------------------------------------

    fn refer(&mut self, reference: &Reference) {
        let text = reference_label(self.object, reference);
        let may_lack = self.object.may_lack(reference.name) && reference.kind != Kind::ThreadLocal;
        let name = reference.name;
        match reference.action {
            Action::Number => {
                let code = self.address(reference) + &self.say("say", &text);
                self.code += &code;
            }
            Action::Address => {
                let code = self.address(reference) + &self.say("say_address", &text);
                self.code += &code;
            }
            Action::Alignment => {
                let code = self.address(reference) + "and $63,%eax\n" + &self.say("say", &text);
                self.code += &code;
            }
            Action::Call | Action::Load | Action::LoadSecond | Action::Increment => {
                let direct = direct(reference);
                let (null, end) = (self.label(), self.label());
                let mut code = String::new();
                let is_direct = direct.is_some();
                if !is_direct {
                    code += &self.address(reference);
                } else if may_lack {
                    let _ = writeln!(code, "mov {name}@GOTPCREL(%rip),%rax");
                }
                if may_lack {
                    let _ = writeln!(code, "test %rax,%rax\njz .Lnull{null}");
                }
                code += &direct.unwrap_or_else(|| through_register(reference.action).to_string());
                code += &self.say("say", &text);
                if may_lack {
                    let absent = self.say("say_address", &text);
                    let _ = write!(code, "jmp .Lend{end}\n.Lnull{null}:\n{absent}.Lend{end}:\n");
                }
                self.code += &code;
            }
        }
    }

    /// Code that leaves the address, or a number, in `%rax`.
    fn address(&mut self, reference: &Reference) -> String {
        let name = reference.name;
        let label = self.label();
        match reference.via {
            Via::Direct | Via::Pc32 | Via::Plt32 | Via::GotX => format!("lea {name}(%rip),%rax\n"),
            Via::RexGotX => format!("mov {name}@GOTPCREL(%rip),%rax\n"),
            Via::Got => format!("movq {name}@GOTPCREL(%rip),%xmm0\nmovq %xmm0,%rax\n"),
            Via::Abs64 => format!("movabs ${name},%rax\n"),
            Via::Abs32 => format!("mov ${name},%eax\n"),
            Via::Abs32S => format!("mov ${name},%rax\n"),
            Via::Size64 => format!("movabs ${name}@SIZE,%rax\n"),
            Via::GotOff64 => {
                format!("movabs ${name}@GOTOFF,%rax\nlea _GLOBAL_OFFSET_TABLE_(%rip),%rcx\nadd %rcx,%rax\n")
            }
            Via::PltOff64 => {
                format!("movabs ${name}@PLTOFF,%rax\nlea _GLOBAL_OFFSET_TABLE_(%rip),%rcx\nadd %rcx,%rax\n")
            }
            Via::Got64 => {
                format!("movabs ${name}@GOT,%rax\nlea _GLOBAL_OFFSET_TABLE_(%rip),%rcx\nmov (%rcx,%rax),%rax\n")
            }
            Via::Pointer => {
                let section = ".section .data.rel,\"aw\",@progbits\n.balign 8";
                let _ = writeln!(self.rest, "{section}\n.Lpointer{label}: .quad {name}");
                format!("mov .Lpointer{label}(%rip),%rax\n")
            }
            Via::Table => {
                let section = ".section .rodata.table,\"a\",@progbits\n.balign 4";
                let _ = writeln!(self.rest, "{section}\n.Ltable{label}: .long {name}-.");
                format!("lea .Ltable{label}(%rip),%rcx\nmovslq (%rcx),%rax\nadd %rcx,%rax\n")
            }
            Via::GeneralDynamic => {
                format!(".byte 0x66\nlea {name}@tlsgd(%rip),%rdi\n.word 0x6666\nrex64\ncall __tls_get_addr@PLT\n")
            }
            Via::GeneralDynamicNoPlt => format!(
                ".byte 0x66\nlea {name}@tlsgd(%rip),%rdi\n.byte 0x66\nrex64\ncall *__tls_get_addr@GOTPCREL(%rip)\n"
            ),
            Via::LocalDynamic => {
                format!("lea {name}@tlsld(%rip),%rdi\ncall __tls_get_addr@PLT\nlea {name}@dtpoff(%rax),%rax\n")
            }
            Via::InitialExec => format!("mov {name}@gottpoff(%rip),%rax\nadd %fs:0,%rax\n"),
            Via::LocalExec => format!("mov %fs:0,%rax\nlea {name}@tpoff(%rax),%rax\n"),
            Via::Descriptor => {
                format!("lea {name}@tlsdesc(%rip),%rax\ncall *{name}@tlscall(%rax)\nadd %fs:0,%rax\n")
            }
        }
    }

    // ---- extras ---------------------------------------------------------------

    fn add_extra(&mut self, extra: &Extra) {
        let id = self.object.id;
        match extra {
            Extra::Listed { list, priority, value } => {
                let label = self.label();
                let body = format!("mov ${value:#x},%eax\n")
                    + &self.say("say", &format!("{id} lists {} {priority:?}", list.word()));
                self.write_function(&format!(".Llisted{label}"), &body);
                let suffix = priority.map(|priority| list.suffix(priority)).unwrap_or_default();
                let _ = writeln!(
                    self.rest,
                    ".section {}{suffix},\"aw\",{}\n.balign 8\n.quad .Llisted{label}",
                    list.section(),
                    list.section_type()
                );
            }
            Extra::Grouped { signature, value } => {
                let label = self.label();
                let body = format!("mov ${value:#x},%eax\n") + &self.say("say", &format!("{id} lists grouped"));
                self.write_function(&format!(".Lgrouped{label}"), &body);
                let _ = writeln!(
                    self.rest,
                    ".section .init_array,\"awG\",@init_array,{signature},comdat\n.balign 8\n.quad .Lgrouped{label}"
                );
            }
            Extra::Fragment { is_init, value } => {
                let (section, list) = if *is_init { (".init", "init") } else { (".fini", "fini") };
                let body = format!("mov ${value:#x},%eax\n") + &self.say("say", &format!("{id} lists {list}"));
                let _ = write!(self.rest, ".section {section},\"ax\",@progbits\n{body}");
            }
            Extra::AtExit { value } => {
                let label = self.label();
                let body = format!("mov ${value:#x},%eax\n") + &self.say("say", &format!("{id} lists atexit"));
                self.write_function(&format!(".Lexit{label}"), &body);
                let _ = writeln!(
                    self.code,
                    "lea .Lexit{label}(%rip),%rdi\nxor %esi,%esi\nmov __dso_handle@GOTPCREL(%rip),%rdx\n\
                     call __cxa_atexit@PLT"
                );
            }
            Extra::Element { set, value, is_retained } => {
                // LLVM's assembler refuses both kinds in one file.
                let is_retained = *is_retained && self.object.writer == Writer::Gas;
                let flags = if is_retained { "awR" } else { "aw" };
                let _ = writeln!(self.rest, ".section {set},\"{flags}\",@progbits\n.balign 4\n.long {value:#x}");
            }
            Extra::Walk { set, is_weak, is_hidden } => self.walk(set, *is_weak, *is_hidden),
            Extra::Versioned { is_old } => {
                let version = if *is_old { "GLIBC_2.2.5" } else { "GLIBC_2.3" };
                let name = if *is_old { "realpath_old" } else { "realpath_new" };
                let label = self.label();
                let _ = writeln!(
                    self.rest,
                    ".symver {name},realpath@{version}\n.section .rodata.text\n.Lpath{label}: .asciz \"/\""
                );
                let print = self.say("say", &format!("{id} version {version}"));
                let _ = write!(
                    self.code,
                    "lea .Lpath{label}(%rip),%rdi\nxor %esi,%esi\ncall {name}@PLT\ntest %rax,%rax\nsetne %al\n\
                     movzbl %al,%eax\n{print}"
                );
            }
            // Only in C++.
            Extra::Inline(_) => {}
            Extra::Getopt => {
                let label = self.label();
                let _ = writeln!(
                    self.rest,
                    ".section .rodata.text\n.Loption{label}: .asciz \"-a\"\n.Loptions{label}: .asciz \"a\"\n\
                     .section .data.rel,\"aw\",@progbits\n.balign 8\n\
                     .Larguments{label}: .quad .Loption{label},.Loption{label},0"
                );
                let print = self.say("say", &format!("{id} optind getopt"));
                let _ = write!(
                    self.code,
                    "mov $2,%edi\nlea .Larguments{label}(%rip),%rsi\nlea .Loptions{label}(%rip),%rdx\n\
                     call getopt@PLT\nmov %eax,%eax\n{print}"
                );
            }
            Extra::LinkerName { name } => {
                let print = self.say("say", &format!("{id} {name} is not null"));
                let _ = write!(
                    self.code,
                    "mov {name}@GOTPCREL(%rip),%rax\ntest %rax,%rax\nsetne %al\nmovzbl %al,%eax\n{print}"
                );
            }
        }
    }

    fn walk(&mut self, set: &str, is_weak: bool, is_hidden: bool) {
        for bound in [format!("__start_{set}"), format!("__stop_{set}")] {
            if is_weak {
                let _ = writeln!(self.rest, ".weak {bound}");
            }
            self.set_visibility(&bound, is_hidden.then_some("hidden"));
        }
        let label = self.label();
        let element = self.say("say", &format!("{} {set} element", self.object.id));
        let stop = self.label();
        let _ = write!(
            self.code,
            "push %r12\npush %r13\nmov __start_{set}@GOTPCREL(%rip),%r12\nmov __stop_{set}@GOTPCREL(%rip),%r13\n\
             .Lnext{label}: cmp %r13,%r12\njae .Lstop{stop}\nmov (%r12),%eax\nadd $4,%r12\n{element}jmp .Lnext{label}\n\
             .Lstop{stop}: pop %r13\npop %r12\n"
        );
    }

    fn write_function(&mut self, label: &str, body: &str) {
        let _ = write!(self.rest, ".text\n{label}:\npush %rbx\n{body}pop %rbx\nret\n");
    }
}

/// The label of a reference's output line. Its second word is the name.
pub fn reference_label(object: &Object, reference: &Reference) -> String {
    format!("{} {} {:?} {:?}", object.id, reference.name, reference.via, reference.action)
}

/// One instruction that does it all, if there is one.
fn direct(reference: &Reference) -> Option<String> {
    let name = reference.name;
    Some(match (reference.via, reference.action) {
        (Via::Plt32 | Via::Direct, Action::Call) => format!("call {name}@PLT\n"),
        (Via::PltOff64, Action::Call) => {
            format!("movabs ${name}@PLTOFF,%rax\nlea _GLOBAL_OFFSET_TABLE_(%rip),%rcx\nadd %rcx,%rax\ncall *%rax\n")
        }
        (Via::Pc32, Action::Call) => format!(".byte 0xe8\n.long {name}-.-4\n"),
        (Via::GotX, Action::Call) => format!("call *{name}@GOTPCREL(%rip)\n"),
        (Via::Pc32, Action::Load) => format!("mov {name}(%rip),%eax\n"),
        (Via::Pc32, Action::LoadSecond) => format!("mov {name}+4(%rip),%eax\n"),
        (Via::Pc32, Action::Increment) => format!("addl $1,{name}(%rip)\nmov {name}(%rip),%eax\n"),
        (Via::Abs32S, Action::Load) => format!("mov {name},%eax\n"),
        (Via::Abs32S, Action::LoadSecond) => format!("mov {name}+4,%eax\n"),
        (Via::Abs32S, Action::Increment) => format!("addl $1,{name}\nmov {name},%eax\n"),
        (Via::LocalExec, Action::Load) => format!("mov %fs:{name}@tpoff,%eax\n"),
        (Via::LocalExec, Action::LoadSecond) => format!("mov %fs:{name}@tpoff+4,%eax\n"),
        (Via::LocalExec, Action::Increment) => format!("addl $1,%fs:{name}@tpoff\nmov %fs:{name}@tpoff,%eax\n"),
        _ => return None,
    })
}

fn through_register(action: Action) -> &'static str {
    match action {
        Action::Call => "call *%rax\n",
        Action::Load => "mov (%rax),%eax\n",
        Action::LoadSecond => "mov 4(%rax),%eax\n",
        Action::Increment => "addl $1,(%rax)\nmov (%rax),%eax\n",
        Action::Address | Action::Alignment | Action::Number => "",
    }
}

/// The directive that selects the section of a definition.
fn section(definition: &Definition) -> String {
    let name = definition.name;
    let (base, once, flags) = match definition.kind {
        Kind::Function => (".text", "t", "ax"),
        Kind::ThreadLocal if definition.is_zero() => (".tbss", "tb", "awT"),
        Kind::ThreadLocal => (".tdata", "td", "awT"),
        _ => (".data", "d", "aw"),
    };
    let bits = if definition.is_zero() { "@nobits" } else { "@progbits" };
    if definition.binding == Binding::LinkOnce {
        return format!(".section .gnu.linkonce.{once}.{name},\"{flags}\",{bits}");
    }
    let is_data = definition.kind == Kind::Data;
    let (section, flags, bits) = match definition.place {
        Place::Zero if is_data => (".bss".to_string(), "aw", "@nobits"),
        Place::ReadOnly if is_data => (".rodata".to_string(), "a", "@progbits"),
        Place::RelRo if is_data => (".data.rel.ro".to_string(), "aw", "@progbits"),
        Place::Note if is_data => (".note.jittison".to_string(), "a", "@note"),
        Place::LargeData if is_data => (".ldata".to_string(), "awl", "@progbits"),
        Place::LargeZero if is_data => (".lbss".to_string(), "awl", "@nobits"),
        Place::Mergeable if is_data => (".rodata.cst8".to_string(), "aM", "@progbits"),
        Place::Custom => (format!("custom_{once}"), flags, bits),
        Place::Own | Place::Retained => (format!("{base}.{name}"), flags, bits),
        _ => (base.to_string(), flags, bits),
    };
    let retained = if definition.place == Place::Retained { "R" } else { "" };
    match definition.binding {
        Binding::GroupGlobal | Binding::GroupWeak | Binding::GroupUnique => {
            format!(".section {section}.{name},\"{flags}{retained}G\",{bits},{name},comdat")
        }
        _ if definition.place == Place::Mergeable && is_data => {
            format!(".section {section},\"{flags}\",{bits},8")
        }
        _ => format!(".section {section},\"{flags}{retained}\",{bits}"),
    }
}
