//! Writes an object as C. The compiler and its flags choose the relocations.

use std::fmt::Write as _;

use crate::assembly::reference_label;
use crate::cpp_source;
use crate::extra::{Extra, List};
use crate::program::{Action, Binding, Definition, Import, Kind, Object, Place, Reference, Via, Visibility};

pub fn write(object: &Object) -> String {
    let mut file = String::new();
    let mut code = String::new();
    if object.is_cpp() {
        let (inline, calls) = cpp_source::write(object);
        let _ = write!(file, "extern \"C\" {{\n{DECLARATIONS}}}\n{inline}extern \"C\" {{\n");
        code += &calls;
    } else {
        file += DECLARATIONS;
    }
    for import in &object.imports {
        declare(&mut file, import);
    }
    for definition in &object.definitions {
        define(&mut file, definition);
    }
    for (index, reference) in object.references.iter().enumerate() {
        refer(&mut file, &mut code, object, reference, index);
    }
    for (index, extra) in object.extras.iter().enumerate() {
        add_extra(&mut file, &mut code, object.id, extra, index);
    }
    let _ = write!(file, "void run_{}(void) {{\n{code}}}\n", object.id);
    if object.is_cpp() {
        file += "}\n";
    }
    file
}

const DECLARATIONS: &str =
    "extern void say(const char *, unsigned long);\nextern void say_address(const char *, void *);\n";

fn visibility(visibility: Visibility) -> String {
    visibility.directive().map(|word| format!("visibility(\"{word}\")")).unwrap_or_default()
}

fn attributes(list: &[String]) -> String {
    let list: Vec<&str> = list.iter().map(String::as_str).filter(|attribute| !attribute.is_empty()).collect();
    if list.is_empty() { String::new() } else { format!("__attribute__(({})) ", list.join(", ")) }
}

fn declare(file: &mut String, import: &Import) {
    let weak = if import.is_weak { "weak" } else { "" };
    let attributes = attributes(&[weak.to_string(), visibility(import.visibility)]);
    let name = import.name;
    let _ = match import.kind {
        Kind::Function => writeln!(file, "extern {attributes}unsigned {name}(void);"),
        Kind::Data => writeln!(file, "extern {attributes}unsigned {name}[];"),
        Kind::ThreadLocal => writeln!(file, "extern {attributes}__thread unsigned {name}[];"),
        Kind::Absolute => writeln!(file, "extern {attributes}char {name}[];"),
    };
}

fn define(file: &mut String, definition: &Definition) {
    let Definition { name, value, .. } = definition;
    if definition.kind == Kind::Absolute {
        return define_absolute(file, definition);
    }
    let count = definition.size / 4;
    let weak = matches!(definition.binding, Binding::Weak | Binding::WeakAlias);
    let is_local = definition.binding == Binding::Local;
    let is_alias = matches!(definition.binding, Binding::Alias | Binding::WeakAlias);
    let linkage = if is_local { "static " } else { "" };
    let section = match definition.place {
        Place::Custom => format!("section(\"custom_{}\")", if definition.kind == Kind::Function { "t" } else { "d" }),
        Place::Retained => "used, retain".to_string(),
        _ => String::new(),
    };
    let aligned = match definition.kind {
        Kind::Function => String::new(),
        _ => format!("aligned({})", definition.alignment),
    };
    let symbol = [if weak { "weak".to_string() } else { String::new() }, visibility(definition.visibility)];
    let own = if is_local || is_alias {
        attributes(&[section, aligned, "used".into()])
    } else {
        attributes(&[section, aligned, symbol[0].clone(), symbol[1].clone()])
    };
    let (linkage, target) = if is_alias { ("static ", format!("{name}_aliased")) } else { (linkage, name.to_string()) };
    let values: Vec<String> = (0..count).map(|index| format!("{:#x}", value + index)).collect();
    let values = values.join(", ");
    let _ = match definition.kind {
        Kind::Function if definition.is_indirect => writeln!(
            file,
            "static unsigned {name}_implementation(void) {{ return {value:#x}; }}\n\
             static void *{name}_resolver(void) {{ return (void *){name}_implementation; }}\n\
             {linkage}{}unsigned {target}(void);",
            attributes(&[format!("ifunc(\"{name}_resolver\")"), symbol[0].clone(), symbol[1].clone()])
        ),
        Kind::Function => writeln!(file, "{linkage}{own}unsigned {target}(void) {{ return {value:#x}; }}"),
        Kind::ThreadLocal if definition.is_zero() => {
            writeln!(file, "{linkage}{own}__thread unsigned {target}[{count}];")
        }
        Kind::ThreadLocal => writeln!(file, "{linkage}{own}__thread unsigned {target}[{count}] = {{ {values} }};"),
        _ if definition.binding == Binding::Common => writeln!(file, "{own}unsigned {name}[{count}];"),
        _ if definition.place == Place::Zero => writeln!(file, "{linkage}{own}unsigned {target}[{count}] = {{ 0 }};"),
        _ if definition.place == Place::ReadOnly => {
            writeln!(file, "{linkage}{own}const unsigned {target}[{count}] = {{ {values} }};")
        }
        _ => writeln!(file, "{linkage}{own}unsigned {target}[{count}] = {{ {values} }};"),
    };
    if is_alias {
        let attributes = attributes(&[format!("alias(\"{target}\")"), symbol[0].clone(), symbol[1].clone()]);
        let constant = if definition.place == Place::ReadOnly { "const " } else { "" };
        let _ = match definition.kind {
            Kind::Function => writeln!(file, "extern {attributes}unsigned {name}(void);"),
            Kind::ThreadLocal => writeln!(file, "extern {attributes}__thread unsigned {name}[{count}];"),
            _ => writeln!(file, "extern {attributes}{constant}unsigned {name}[{count}];"),
        };
    }
}

/// C has no absolute symbols, so the definition is an assembler's.
fn define_absolute(file: &mut String, definition: &Definition) {
    let name = definition.name;
    let binding = match definition.binding {
        Binding::Local => String::new(),
        Binding::Weak => format!(".weak {name}\\n"),
        _ => format!(".globl {name}\\n"),
    };
    let visibility = definition.visibility.directive().map(|word| format!(".{word} {name}\\n")).unwrap_or_default();
    let _ = writeln!(
        file,
        "extern char {name}[];\n__asm__(\"{binding}{visibility}.set {name}, {:#x}\\n\");",
        definition.value
    );
}

fn refer(file: &mut String, code: &mut String, object: &Object, reference: &Reference, index: usize) {
    let name = reference.name;
    let text = reference_label(object, reference);
    let is_pointer = reference.via == Via::Pointer;
    let target = if is_pointer {
        let _ = match reference.kind {
            Kind::Function => writeln!(file, "static unsigned (*volatile pointer_{index})(void) = {name};"),
            Kind::Absolute => writeln!(file, "static char *volatile pointer_{index} = {name};"),
            _ => writeln!(file, "static unsigned *volatile pointer_{index} = (unsigned *){name};"),
        };
        format!("pointer_{index}")
    } else {
        name.to_string()
    };
    // The compiler must read memory, and not fold a constant.
    let word = |position: usize| format!("((volatile unsigned *){target})[{position}]");
    let print = match reference.action {
        Action::Call => format!("say(\"{text}\", {target}());"),
        Action::Load => format!("say(\"{text}\", {});", word(0)),
        Action::LoadSecond => format!("say(\"{text}\", {});", word(1)),
        Action::Increment => format!("say(\"{text}\", ++{});", word(0)),
        Action::Address => format!("say_address(\"{text}\", (void *){target});"),
        Action::Alignment => format!("say(\"{text}\", (unsigned long){target} & 63);"),
        Action::Number => format!("say(\"{text}\", (unsigned long){target});"),
    };
    let is_guarded = object.may_lack(name)
        && reference.kind != Kind::ThreadLocal
        && !matches!(reference.action, Action::Address | Action::Alignment | Action::Number);
    let _ = if is_guarded {
        writeln!(code, "if ({target}) {print} else say_address(\"{text}\", 0);")
    } else {
        writeln!(code, "{print}")
    };
}

fn add_extra(file: &mut String, code: &mut String, id: usize, extra: &Extra, index: usize) {
    let _ = match extra {
        Extra::Listed { list, priority, value } => {
            let text = format!("{id} lists {} {priority:?}", list.word());
            let argument = priority.map(|priority| format!("({priority})")).unwrap_or_default();
            let attribute = match list {
                List::Fini | List::Dtors => format!("destructor{argument}"),
                _ => format!("constructor{argument}"),
            };
            writeln!(
                file,
                "static __attribute__(({attribute})) void listed_{index}(void) {{ say(\"{text}\", {value:#x}); }}"
            )
        }
        Extra::AtExit { value } => {
            let _ = writeln!(
                file,
                "extern int atexit(void (*)(void));\n\
                 static void exit_{index}(void) {{ say(\"{id} lists atexit\", {value:#x}); }}"
            );
            writeln!(code, "atexit(exit_{index});")
        }
        Extra::Element { set, value, is_retained } => {
            let retained = if *is_retained { ", retain" } else { "" };
            writeln!(
                file,
                "static __attribute__((section(\"{set}\"), used{retained})) unsigned element_{index} = {value:#x};"
            )
        }
        Extra::Walk { set, is_weak, is_hidden } => {
            let weak = if *is_weak { "weak" } else { "" };
            let hidden = if *is_hidden { visibility(Visibility::Hidden) } else { String::new() };
            let attributes = attributes(&[weak.to_string(), hidden]);
            let _ = writeln!(file, "extern {attributes}unsigned __start_{set}[], __stop_{set}[];");
            writeln!(
                code,
                "for (unsigned *volatile next = __start_{set}; next < (unsigned *)__stop_{set}; next++) \
                 say(\"{id} {set} element\", *next);"
            )
        }
        Extra::Getopt => {
            let _ = writeln!(file, "extern int getopt(int, char *const *, const char *);");
            writeln!(
                code,
                "{{ static char option[] = \"-a\"; char *arguments[] = {{ option, option, 0 }}; \
                 say(\"{id} optind getopt\", (unsigned)getopt(2, arguments, \"a\")); }}"
            )
        }
        Extra::LinkerName { name } => {
            let _ = writeln!(file, "extern char {name}[];");
            writeln!(code, "{{ char *volatile address = {name}; say(\"{id} {name} is not null\", address != 0); }}")
        }
        // Only in assembly, or written by `cpp_source`.
        Extra::Inline(_) | Extra::Grouped { .. } | Extra::Fragment { .. } | Extra::Versioned { .. } => Ok(()),
    };
}
