//! [`minimize`]: drops and simplifies parts of a program as long as the answer stays wrong.

use std::path::Path;

use crate::outcome::compare;
use crate::program::{Action, Binding, Kind, Place, Program, Via, Visibility, Writer};
use crate::tools::Tools;

/// How many programs are tried for one.
const TRIES: usize = 400;

/// The smallest program that was found.
pub fn minimize(tools: &Tools, program: &Program, directory: &Path) -> Program {
    let mut smallest = program.clone();
    let mut tries = 0;
    loop {
        let before = smallest.clone();
        let mut index = 0;
        // A reduction that was accepted changes the list, so the next one has the same index.
        while let Some(candidate) = reductions(&smallest).into_iter().nth(index) {
            tries += 1;
            if tries > TRIES {
                return smallest;
            }
            let stays_wrong = compare(tools, &candidate, directory).is_ok_and(|outcome| outcome.is_wrong());
            if stays_wrong {
                smallest = candidate;
            } else {
                index += 1;
            }
        }
        if smallest == before {
            return smallest;
        }
    }
}

/// Programs with one part less or simpler, those with the greatest step first.
fn reductions(program: &Program) -> Vec<Program> {
    let mut list = Vec::new();
    let mut push = |change: &dyn Fn(&mut Program)| {
        let mut candidate = program.clone();
        change(&mut candidate);
        candidate.keep_promises();
        if candidate != *program {
            list.push(candidate);
        }
    };
    for object in 0..program.objects.len() {
        push(&|program| drop(program.objects.remove(object)));
    }
    for name in crate::features::names(program) {
        push(&|program| drop_name(program, &name));
    }
    for object in 0..program.objects.len() {
        push(&|program| program.objects[object].extras.clear());
        push(&|program| program.objects[object].references.clear());
        for index in 0..program.objects[object].extras.len() {
            push(&|program| {
                program.objects[object].extras.remove(index);
            });
        }
        for index in 0..program.objects[object].references.len() {
            push(&|program| {
                program.objects[object].references.remove(index);
            });
        }
        for index in 0..program.objects[object].definitions.len() {
            push(&|program| {
                program.objects[object].definitions.remove(index);
            });
        }
        for index in 0..program.objects[object].imports.len() {
            push(&|program| drop_import(program, object, index));
        }
        push(&|program| program.objects[object].archive = None);
        simplify_writer(program, object, &mut push);
        simplify_parts(program, object, &mut push);
    }
    push(&|program| program.has_thread = false);
    push(&|program| program.main_at = 0);
    push(&|program| program.is_pie = false);
    push(&|program| program.objects.sort_by_key(|object| object.id));
    list
}

fn drop_name(program: &mut Program, name: &str) {
    for object in &mut program.objects {
        object.definitions.retain(|definition| definition.name != name);
        object.imports.retain(|import| import.name != name);
        object.references.retain(|reference| reference.name != name);
    }
}

fn drop_import(program: &mut Program, object: usize, index: usize) {
    let object = &mut program.objects[object];
    let name = object.imports.remove(index).name;
    object.references.retain(|reference| reference.name != name);
}

type Push<'a> = dyn FnMut(&dyn Fn(&mut Program)) + 'a;

fn simplify_writer(program: &Program, object: usize, push: &mut Push) {
    match &program.objects[object].writer {
        Writer::Gas => {}
        Writer::LlvmMc => push(&|program| program.objects[object].writer = Writer::Gas),
        Writer::C { flags, .. } => {
            for index in 2..flags.len() {
                push(&|program| {
                    change_flags(program, object, |flags| {
                        flags.remove(index);
                    })
                });
            }
            push(&|program| change_flags(program, object, |flags| flags[0] = "-O2"));
            push(&|program| change_flags(program, object, |flags| flags[1] = "-fPIC"));
            push(&|program| {
                if let Writer::C { compiler, .. } = &mut program.objects[object].writer {
                    *compiler = if compiler.contains("++") { "g++" } else { "gcc" };
                }
            });
        }
    }
}

fn change_flags(program: &mut Program, object: usize, change: impl Fn(&mut Vec<&'static str>)) {
    if let Writer::C { flags, .. } = &mut program.objects[object].writer {
        change(flags);
    }
}

fn simplify_parts(program: &Program, at: usize, push: &mut Push) {
    let object = &program.objects[at];
    for index in 0..object.definitions.len() {
        push(&|program| program.objects[at].definitions[index].visibility = Visibility::Default);
        push(&|program| program.objects[at].definitions[index].is_indirect = false);
        push(&|program| program.objects[at].definitions[index].is_untyped = false);
        push(&|program| program.objects[at].definitions[index].place = Place::Usual);
        push(&|program| program.objects[at].definitions[index].size = 8);
        if object.definitions[index].binding != Binding::Weak {
            push(&|program| program.objects[at].definitions[index].binding = Binding::Global);
        }
    }
    for index in 0..object.imports.len() {
        push(&|program| program.objects[at].imports[index].visibility = Visibility::Default);
        push(&|program| program.objects[at].imports[index].is_weak = false);
    }
    for index in 0..object.references.len() {
        let is_c = object.is_c();
        let (via, action) = match object.references[index].kind {
            Kind::Function => (Via::RexGotX, Action::Call),
            Kind::Data => (Via::RexGotX, Action::Load),
            Kind::ThreadLocal => (Via::GeneralDynamic, Action::Load),
            Kind::Absolute => (Via::RexGotX, Action::Number),
        };
        push(&|program| program.objects[at].references[index].via = if is_c { Via::Direct } else { via });
        if object.references[index].action != Action::Number {
            push(&|program| program.objects[at].references[index].action = action);
        }
    }
}
