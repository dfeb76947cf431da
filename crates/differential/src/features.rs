//! Features of a name in a program: which constructs meet there. The table of results counts pairs of them, and the list of
//! known differences names them.
//!
//! An output line has the form `<object> <name> …`, so a line that differs leads to the features that may be the cause.

use std::collections::{BTreeMap, BTreeSet};

use crate::draw;
use crate::extra::{Extra, Inline};
use crate::program::{Binding, Definition, Import, Object, Program, Reference, Visibility, Writer};

/// A property and its value, such as `definition=Weak`.
pub type Feature = String;

/// The names of a program, in the sense of output lines.
pub fn names(program: &Program) -> BTreeSet<String> {
    program.objects.iter().flat_map(names_of_object).collect()
}

fn names_of_object(object: &Object) -> Vec<String> {
    let definitions = object.definitions.iter().map(|definition| definition.name);
    let references = object.references.iter().map(|reference| reference.name);
    let extras = object.extras.iter().map(name_of_extra);
    definitions.chain(references).chain(extras).map(str::to_string).collect()
}

fn name_of_extra(extra: &Extra) -> &'static str {
    match extra {
        Extra::Listed { .. } | Extra::Grouped { .. } | Extra::Fragment { .. } | Extra::AtExit { .. } => "lists",
        Extra::Element { set, .. } | Extra::Walk { set, .. } => set,
        Extra::Versioned { .. } => "version",
        Extra::Inline(Inline::Static | Inline::SharedObject) => "lists",
        Extra::Inline(Inline::Function) => "cpp_function",
        Extra::Inline(Inline::StaticLocal) => "cpp_local",
        Extra::Inline(Inline::Variable) => "cpp_variable",
        Extra::Inline(Inline::ThreadLocal) => "cpp_thread",
        Extra::Inline(Inline::TemplateMember) => "cpp_template",
        Extra::Inline(Inline::Virtual) => "cpp_base",
        Extra::Inline(Inline::Exception) => "cpp_throw",
        Extra::Getopt => "optind",
        Extra::LinkerName { name } => name,
    }
}

/// The features that concern a name. With `None`: all features of the program.
pub fn features(program: &Program, name: Option<&str>) -> BTreeSet<Feature> {
    let mut features = BTreeSet::new();
    features.insert(format!("program={}", if program.is_pie { "pie" } else { "no-pie" }));
    if program.has_thread {
        features.insert("program=thread".to_string());
    }
    let is_meant = |other: &str| name.is_none_or(|name| name == other);
    for object in &program.objects {
        let before = features.len();
        for definition in object.definitions.iter().filter(|definition| is_meant(definition.name)) {
            of_definition(&mut features, definition);
        }
        for import in object.imports.iter().filter(|import| is_meant(import.name)) {
            of_import(&mut features, import);
        }
        for reference in object.references.iter().filter(|reference| is_meant(reference.name)) {
            of_reference(&mut features, object, reference);
        }
        for extra in object.extras.iter().filter(|extra| is_meant(name_of_extra(extra))) {
            of_extra(&mut features, extra);
        }
        if features.len() > before {
            of_object(&mut features, object);
        }
    }
    of_several(&mut features, program, name);
    features
}

fn of_definition(features: &mut BTreeSet<Feature>, definition: &Definition) {
    if draw::is_in_libc(definition.name) {
        features.insert("name=library".to_string());
    }
    features.insert(format!("kind={:?}", definition.kind));
    features.insert(format!("definition={:?}", definition.binding));
    if definition.binding != Binding::Local {
        features.insert(format!("visibility={:?}", definition.visibility));
    }
    features.insert(format!("place={:?}", definition.place));
    if definition.is_indirect {
        features.insert("type=indirect".to_string());
    }
    if definition.is_untyped {
        features.insert("type=untyped".to_string());
    }
}

fn of_import(features: &mut BTreeSet<Feature>, import: &Import) {
    features.insert(format!("import={}", if import.is_weak { "weak" } else { "strong" }));
    features.insert(format!("kind={:?}", import.kind));
    if import.visibility != Visibility::Default {
        features.insert(format!("import={:?}", import.visibility));
    }
}

fn of_reference(features: &mut BTreeSet<Feature>, object: &Object, reference: &Reference) {
    if !object.is_c() {
        features.insert(format!("reference={:?}", reference.via));
    }
    features.insert(format!("action={:?}", reference.action));
}

fn of_extra(features: &mut BTreeSet<Feature>, extra: &Extra) {
    features.insert(match extra {
        Extra::Listed { list, priority, .. } => {
            format!("extra={}{}", list.word(), if priority.is_some() { "-priority" } else { "" })
        }
        Extra::Grouped { .. } => "extra=grouped".to_string(),
        Extra::Fragment { .. } => "extra=fragment".to_string(),
        Extra::AtExit { .. } => "extra=atexit".to_string(),
        Extra::Element { .. } => "extra=element".to_string(),
        Extra::Walk { .. } => "extra=walk".to_string(),
        Extra::Versioned { .. } => "extra=version".to_string(),
        Extra::Inline(inline) => format!("extra=c++{inline:?}"),
        Extra::Getopt => "extra=getopt".to_string(),
        Extra::LinkerName { .. } => "extra=linker-name".to_string(),
    });
}

fn of_object(features: &mut BTreeSet<Feature>, object: &Object) {
    if object.archive.is_some() {
        features.insert("order=archive".to_string());
    }
    match &object.writer {
        Writer::Gas => features.insert("model=gas".to_string()),
        Writer::LlvmMc => features.insert("model=llvm-mc".to_string()),
        Writer::C { compiler, flags } => {
            features.insert(format!("model={compiler}"));
            features.extend(flags[1..].iter().map(|flag| format!("model={flag}")));
            true
        }
    };
}

/// Features of several objects together.
fn of_several(features: &mut BTreeSet<Feature>, program: &Program, name: Option<&str>) {
    let Some(name) = name else { return };
    if draw::is_in_libc(name) {
        features.insert("name=libc".to_string());
    }
    let definitions = program.objects.iter().filter_map(|object| object.defines(name));
    let global: Vec<Binding> =
        definitions.map(|definition| definition.binding).filter(|b| *b != Binding::Local).collect();
    let order = match global.len() {
        0 => "definitions=0",
        1 => "definitions=1",
        _ => "definitions=several",
    };
    features.insert(order.to_string());
    let sizes: BTreeSet<u32> =
        program.objects.iter().filter_map(|object| object.defines(name)).map(|definition| definition.size).collect();
    if sizes.len() > 1 {
        features.insert("definitions=sizes-differ".to_string());
    }
    let first = |is_wanted: &dyn Fn(&Object) -> bool| program.objects.iter().position(is_wanted);
    let definition = first(&|object| object.defines(name).is_some_and(|found| found.binding != Binding::Local));
    let import = first(&|object| object.imports(name).is_some());
    if let (Some(definition), Some(import)) = (definition, import) {
        features.insert(format!("order={}-first", if definition < import { "definition" } else { "import" }));
    }
}

/// The names whose lines differ between two outputs. `None` if the outputs do not lead to names: they are the same, or
/// differ in which objects are linked.
pub fn names_that_differ(native: &str, ours: &str) -> Option<BTreeSet<String>> {
    let (native, ours) = (lines_by_name(native), lines_by_name(ours));
    let all = native.keys().chain(ours.keys());
    let names: BTreeSet<String> =
        all.filter(|name| native.get(*name) != ours.get(*name)).map(|name| name.to_string()).collect();
    (!names.is_empty() && !names.contains("linked")).then_some(names)
}

fn lines_by_name(output: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut lines: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in output.lines() {
        lines.entry(line.split(' ').nth(1).unwrap_or_default()).or_default().push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_differs_leads_to_its_name() {
        let native = "0 f0 Pc32 Call = 0x1\n1 d0 Pc32 Load = 0x2\n";
        let ours = "0 f0 Pc32 Call = 0x1\n1 d0 Pc32 Load = 0x3\n";
        assert_eq!(names_that_differ(native, ours), Some(BTreeSet::from(["d0".to_string()])));
        assert_eq!(names_that_differ(native, native), None);
        assert_eq!(names_that_differ("0 linked = no\n", ""), None);
    }
}
