//! [`draw`]: the program of a seed.
//!
//! A program has few names, so that the same name meets several constructs. For each name a pattern says which objects
//! define it and how. Most patterns are programs that native linkers accept.

use fastrand::Rng;

use crate::extra::{Extra, Inline, List};
use crate::main_object::OBJECTS_MAX;
use crate::program::{
    Action, Binding, Definition, Import, Kind, Object, Place, Program, Reference, Via, Visibility, Writer,
};

/// Names that objects define, and names that the C library has, too.
const NAMES: [(&str, Kind); 12] = [
    ("f0", Kind::Function),
    ("f1", Kind::Function),
    ("f2", Kind::Function),
    ("d0", Kind::Data),
    ("d1", Kind::Data),
    ("d2", Kind::Data),
    ("t0", Kind::ThreadLocal),
    ("t1", Kind::ThreadLocal),
    ("a0", Kind::Absolute),
    ("getpagesize", Kind::Function),
    ("__libc_current_sigrtmin", Kind::Function),
    ("optind", Kind::Data),
];

const SETS: [&str; 2] = ["seta", "setb"];

pub fn draw(seed: u64) -> Program {
    // Consecutive seeds give similar first numbers.
    let mut rng = Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let count = rng.usize(2..=OBJECTS_MAX);
    let is_pie_wanted = rng.bool();
    let has_cpp = rng.u32(0..100) < 12;
    let mut objects: Vec<Object> = (0..count).map(|id| object(&mut rng, id, is_pie_wanted, has_cpp)).collect();
    let name_count = rng.usize(1..=3);
    for &(name, kind) in pick_several(&mut rng, &NAMES, name_count).iter() {
        define_name(&mut rng, &mut objects, name, kind);
        use_name(&mut rng, &mut objects, name, kind, is_pie_wanted);
    }
    add_extras(&mut rng, &mut objects);
    if rng.u32(0..100) < 45 {
        place_in_archives(&mut rng, &mut objects);
    }
    rng.shuffle(&mut objects);
    let main_at = rng.usize(0..=count);
    let mut program = Program { is_pie: is_pie_wanted, has_thread: rng.u32(0..100) < 15, main_at, objects };
    program.keep_promises();
    program
}

/// Whether the C library defines a name of [`NAMES`], too.
pub fn is_in_libc(name: &str) -> bool {
    name.len() > 2 && NAMES.iter().any(|(other, _)| *other == name)
}

fn pick<T: Copy>(rng: &mut Rng, list: &[T]) -> T {
    list[rng.usize(0..list.len())]
}

fn pick_several<T: Copy>(rng: &mut Rng, list: &[T], count: usize) -> Vec<T> {
    let mut list = list.to_vec();
    rng.shuffle(&mut list);
    list.truncate(count);
    list
}

fn object(rng: &mut Rng, id: usize, is_pie: bool, is_cpp: bool) -> Object {
    Object {
        id,
        archive: None,
        writer: writer(rng, is_pie, is_cpp),
        definitions: Vec::new(),
        imports: Vec::new(),
        references: Vec::new(),
        extras: Vec::new(),
    }
}

fn writer(rng: &mut Rng, is_pie: bool, is_cpp: bool) -> Writer {
    let start = if is_cpp { 40 } else { 0 };
    match rng.u32(start..100) {
        0..60 => Writer::Gas,
        60..66 => Writer::LlvmMc,
        kind => {
            let is_gcc = kind < 88;
            let model =
                if is_pie { pick(rng, &["-fPIC", "-fPIE"]) } else { pick(rng, &["-fPIC", "-fPIE", "-fno-pic"]) };
            let mut flags = vec![pick(rng, &["-O0", "-O2"]), model];
            let rare = [
                "-fno-plt",
                "-ffunction-sections",
                "-fdata-sections",
                "-mtls-dialect=gnu2",
                "-g",
                "-fcf-protection",
                "-fstack-protector-all",
                "-fno-asynchronous-unwind-tables",
            ];
            if rng.u32(0..100) < 40 {
                flags.push(pick(rng, &rare));
            }
            match rng.u32(0..100) {
                0..8 => flags.push("-mcmodel=medium"),
                8..16 => flags.push("-mcmodel=large"),
                16..22 if is_gcc => flags.push("-mno-direct-extern-access"),
                16..22 => flags.push("-fno-direct-access-external-data"),
                _ => {}
            }
            let compiler = match (is_cpp, is_gcc) {
                (false, true) => "gcc",
                (false, false) => "clang-19",
                (true, true) => "g++",
                (true, false) => "clang++-19",
            };
            if is_cpp {
                flags.push("-std=c++17");
            }
            Writer::C { compiler, flags }
        }
    }
}

// ---- definitions --------------------------------------------------------------

const STRONG: [Binding; 6] =
    [Binding::Global, Binding::Global, Binding::Global, Binding::GroupGlobal, Binding::Alias, Binding::Common];
const WEAK: [Binding; 6] =
    [Binding::Weak, Binding::Weak, Binding::GroupWeak, Binding::LinkOnce, Binding::WeakAlias, Binding::GroupUnique];
const GROUP: [Binding; 3] = [Binding::GroupGlobal, Binding::GroupWeak, Binding::GroupUnique];

/// The bindings of the definitions of one name.
fn pattern(rng: &mut Rng) -> Vec<Binding> {
    let several = |rng: &mut Rng, list: &[Binding]| {
        let count = rng.usize(1..=3);
        (0..count).map(|_| pick(rng, list)).collect::<Vec<_>>()
    };
    match rng.u32(0..100) {
        0..30 => vec![pick(rng, &STRONG)],
        30..55 => [several(rng, &WEAK), vec![pick(rng, &STRONG)]].concat(),
        55..72 => several(rng, &WEAK),
        72..80 => several(rng, &GROUP),
        80..88 => {
            [vec![Binding::Common; 2], vec![pick(rng, &[Binding::Common, Binding::Global, Binding::Weak])]].concat()
        }
        88..90 => vec![Binding::Global, Binding::Global],
        _ => vec![],
    }
}

fn define_name(rng: &mut Rng, objects: &mut [Object], name: &'static str, kind: Kind) {
    let mut bindings = pattern(rng);
    if rng.u32(0..100) < 20 {
        bindings.push(Binding::Local);
    }
    if matches!(kind, Kind::Function | Kind::Absolute) {
        let replacement = if bindings.len() == 1 { Binding::Global } else { Binding::Weak };
        bindings.iter_mut().filter(|binding| **binding == Binding::Common).for_each(|binding| *binding = replacement);
    }
    rng.shuffle(&mut bindings);
    let is_size_equal = rng.bool();
    let size = pick(rng, &[8, 16, 64]);
    let visibilities = if rng.bool() { 0 } else { 35 };
    let mut ids: Vec<usize> = (0..objects.len()).collect();
    rng.shuffle(&mut ids);
    for (binding, id) in bindings.into_iter().zip(ids) {
        let mut definition = Definition {
            name,
            kind,
            binding,
            visibility: visibility(rng, visibilities),
            place: place(rng, kind),
            is_indirect: kind == Kind::Function && rng.u32(0..100) < 8,
            is_untyped: kind == Kind::Data && rng.u32(0..100) < 4,
            value: 0x1000 * (id as u32 + 1) + 0x10 * rng.u32(1..16),
            size: if is_size_equal { size } else { pick(rng, &[8, 16, 64]) },
            alignment: if rng.bool() { 8 } else { 64 },
        };
        let object = &mut objects[id];
        make_possible(&mut definition, object);
        if let (Binding::Common, Writer::C { flags, .. }) = (definition.binding, &mut object.writer) {
            flags.push("-fcommon");
        }
        object.definitions.push(definition);
    }
}

fn visibility(rng: &mut Rng, percent: u32) -> Visibility {
    if rng.u32(0..100) >= percent {
        return Visibility::Default;
    }
    pick(rng, &[Visibility::Hidden, Visibility::Hidden, Visibility::Protected, Visibility::Internal])
}

fn place(rng: &mut Rng, kind: Kind) -> Place {
    if rng.bool() {
        return Place::Usual;
    }
    let data = [
        Place::Own,
        Place::Zero,
        Place::ReadOnly,
        Place::RelRo,
        Place::Custom,
        Place::Note,
        Place::LargeData,
        Place::LargeZero,
        Place::Retained,
        Place::Mergeable,
    ];
    match kind {
        Kind::Function => pick(rng, &[Place::Own, Place::Custom, Place::Retained]),
        Kind::Data => pick(rng, &data),
        Kind::ThreadLocal => pick(rng, &[Place::Own, Place::Zero]),
        Kind::Absolute => Place::Usual,
    }
}

/// Changes what the writer of the object or the ELF format cannot express.
fn make_possible(definition: &mut Definition, object: &Object) {
    use Binding::*;
    let kind = definition.kind;
    if kind == Kind::Absolute {
        definition.binding = match definition.binding {
            Local => Local,
            binding if WEAK.contains(&binding) => Weak,
            _ => Global,
        };
        definition.value &= 0xfff0;
    }
    if definition.binding == GroupUnique && (kind != Kind::Data || object.is_c()) {
        definition.binding = GroupWeak;
    }
    if object.is_cpp() {
        definition.is_indirect = false;
        definition.binding = match definition.binding {
            Common | Alias => Global,
            WeakAlias => Weak,
            other => other,
        };
        if definition.place == Place::ReadOnly {
            definition.place = Place::Usual;
        }
    }
    if object.is_c() {
        definition.binding = match definition.binding {
            Local if definition.is_indirect => Local,
            _ if definition.is_indirect => Global,
            GroupGlobal | GroupWeak | LinkOnce => Weak,
            Common if kind == Kind::ThreadLocal => Weak,
            other => other,
        };
        definition.is_untyped = false;
        let has_zero = matches!(definition.place, Place::Zero | Place::LargeZero);
        definition.place = match definition.place {
            _ if definition.is_indirect => Place::Usual,
            Place::Zero | Place::LargeZero => Place::Zero,
            place @ (Place::ReadOnly | Place::Custom | Place::Retained) => place,
            _ => Place::Usual,
        };
        if has_zero && kind == Kind::ThreadLocal {
            definition.place = Place::Zero;
        }
    }
    if definition.binding == Common {
        if kind == Kind::ThreadLocal && object.writer == Writer::LlvmMc {
            definition.binding = Global;
        }
        definition.place = Place::Usual;
    }
    if definition.binding == Local {
        definition.visibility = Visibility::Default;
    }
    if matches!(definition.binding, GroupGlobal | GroupWeak | GroupUnique | LinkOnce)
        && matches!(definition.place, Place::Mergeable | Place::Note)
    {
        definition.place = Place::Usual;
    }
}

// ---- references ---------------------------------------------------------------

fn use_name(rng: &mut Rng, objects: &mut [Object], name: &'static str, kind: Kind, is_pie: bool) {
    let definitions = objects.iter().flat_map(|object| &object.definitions);
    let definitions: Vec<&Definition> = definitions.filter(|definition| definition.name == name).collect();
    let is_writable = definitions
        .iter()
        .all(|definition| !matches!(definition.place, Place::ReadOnly | Place::Note | Place::Mergeable | Place::RelRo));
    let is_defined = definitions.iter().any(|definition| definition.binding != Binding::Local);
    let is_in_libc = is_in_libc(name);
    let visibilities = if rng.bool() { 0 } else { 20 };
    let is_often_weak = rng.u32(0..100) < 25 || !(is_defined || is_in_libc);
    for object in objects {
        let own = object.defines(name).cloned();
        if own.is_none() {
            if rng.u32(0..100) < 30 {
                continue;
            }
            let mut is_weak = rng.u32(0..100) < if is_often_weak { 60 } else { 8 };
            is_weak |= !(is_defined || is_in_libc) && rng.u32(0..100) < 95;
            object.imports.push(Import {
                name,
                kind,
                is_weak: is_weak && kind != Kind::ThreadLocal,
                visibility: visibility(rng, visibilities),
            });
        }
        // An assembler folds an absolute symbol of its own file.
        let is_folded = kind == Kind::Absolute && own.is_some();
        if is_folded && object.is_c() {
            continue;
        }
        for _ in 0..rng.usize(1..=3) {
            let via = if is_folded { Via::Pointer } else { via(rng, object, kind, is_pie, own.is_some()) };
            let mut action = action(rng, kind, via, is_writable);
            if action == Action::Address && kind == Kind::Data && rng.bool() {
                action = Action::Alignment;
            }
            if action == Action::LoadSecond && is_in_libc {
                action = Action::Load; // the variable of the C library has one word
            }
            let reference = Reference { name, kind, via, action };
            if !object.references.contains(&reference) {
                object.references.push(reference);
            }
        }
    }
}

fn via(rng: &mut Rng, object: &Object, kind: Kind, is_pie: bool, is_own: bool) -> Via {
    if object.is_c() {
        return if kind != Kind::ThreadLocal && rng.u32(0..100) < 30 { Via::Pointer } else { Via::Direct };
    }
    let common = [Via::Pointer, Via::RexGotX, Via::RexGotX, Via::Got, Via::Table, Via::Got64];
    let fixed = [Via::Abs32, Via::Abs32S, Via::Abs64];
    match kind {
        Kind::Function | Kind::Data if !is_pie && rng.u32(0..100) < 15 => pick(rng, &fixed),
        Kind::Absolute if !is_pie && rng.bool() => pick(rng, &fixed),
        Kind::Function if rng.bool() => pick(rng, &[Via::Plt32, Via::Pc32, Via::GotX, Via::PltOff64]),
        Kind::Data if rng.u32(0..100) < 4 => Via::Size64,
        Kind::Data if rng.u32(0..100) < 40 => Via::Pc32,
        Kind::Absolute => pick(rng, &[Via::Pointer, Via::RexGotX, Via::Got]),
        Kind::ThreadLocal => {
            let models = [
                Via::GeneralDynamic,
                Via::GeneralDynamicNoPlt,
                Via::InitialExec,
                Via::LocalExec,
                Via::Descriptor,
                Via::LocalDynamic,
            ];
            pick(rng, if is_own { &models[..] } else { &models[..5] })
        }
        _ if rng.u32(0..100) < 12 => Via::GotOff64,
        _ => pick(rng, &common),
    }
}

fn action(rng: &mut Rng, kind: Kind, via: Via, is_writable: bool) -> Action {
    match (kind, via) {
        (_, Via::Size64) | (Kind::Absolute, _) => Action::Number,
        (Kind::Function, Via::Plt32 | Via::GotX | Via::PltOff64) => Action::Call,
        (Kind::Function, _) => pick(rng, &[Action::Call, Action::Address]),
        _ if is_writable => pick(rng, &[Action::Load, Action::LoadSecond, Action::Increment, Action::Address]),
        _ => pick(rng, &[Action::Load, Action::LoadSecond, Action::Address]),
    }
}

// ---- extras -------------------------------------------------------------------

fn add_extras(rng: &mut Rng, objects: &mut [Object]) {
    if rng.u32(0..100) < 25 {
        add_lists(rng, objects);
    }
    if rng.u32(0..100) < 10 {
        add_section_sets(rng, objects);
    }
    add_inline(rng, objects);
    let object = rng.usize(0..objects.len());
    let object = &mut objects[object];
    match rng.u32(0..100) {
        0..3 => object.extras.push(Extra::Versioned { is_old: rng.bool() }),
        3..6 => object.extras.push(Extra::Getopt),
        6..7 => object.extras.push(Extra::Fragment { is_init: rng.bool(), value: 0x77 }),
        7..9 => object.extras.push(Extra::LinkerName {
            name: pick(rng, &["_end", "__ehdr_start", "__bss_start", "_etext", "__init_array_start", "edata"]),
        }),
        _ => {}
    }
    for object in objects {
        if object.is_c() {
            object.extras.retain(|extra| !matches!(extra, Extra::Fragment { .. } | Extra::Versioned { .. }));
        }
    }
}

fn add_inline(rng: &mut Rng, objects: &mut [Object]) {
    let all = [
        Inline::Function,
        Inline::StaticLocal,
        Inline::Variable,
        Inline::ThreadLocal,
        Inline::TemplateMember,
        Inline::Virtual,
        Inline::Exception,
        Inline::Static,
        Inline::SharedObject,
    ];
    let count = rng.usize(1..=3);
    let chosen = pick_several(rng, &all, count);
    for object in objects.iter_mut().filter(|object| object.is_cpp()) {
        let used = chosen.iter().filter(|_| rng.u32(0..100) < 80);
        object.extras.extend(used.map(|inline| Extra::Inline(*inline)));
    }
}

fn add_lists(rng: &mut Rng, objects: &mut [Object]) {
    // LLVM's linker ignores the lists of old compilers.
    let old = [List::Init, List::Fini, List::Ctors, List::Dtors];
    let new = [List::Init, List::Init, List::Fini, List::Fini, List::Preinit];
    let lists = if rng.u32(0..100) < 15 { &old[..] } else { &new[..] };
    let allowed = pick_several(rng, lists, 3);
    let has_group = rng.u32(0..100) < 25;
    for (id, object) in objects.iter_mut().enumerate() {
        for index in 0..rng.u32(0..=3) {
            let value = 0x100 * (id as u32 + 1) + index;
            if has_group && !object.is_c() && rng.u32(0..100) < 30 {
                let extra = Extra::Grouped { signature: "g0", value };
                if !object.extras.iter().any(|extra| matches!(extra, Extra::Grouped { .. })) {
                    object.extras.push(extra);
                }
                continue;
            }
            if rng.u32(0..100) < 15 {
                object.extras.push(Extra::AtExit { value });
                continue;
            }
            let mut list = pick(rng, &allowed);
            if object.is_c() {
                list = if matches!(list, List::Fini | List::Dtors) { List::Fini } else { List::Init };
            }
            let has_priority = list != List::Preinit && rng.u32(0..100) < 40;
            let priority = has_priority.then(|| pick(rng, &[101, 200, 1000, 65534]));
            object.extras.push(Extra::Listed { list, priority, value });
        }
    }
}

fn add_section_sets(rng: &mut Rng, objects: &mut [Object]) {
    let set = pick(rng, &SETS);
    for (id, object) in objects.iter_mut().enumerate() {
        for index in 0..rng.u32(0..=2) {
            let value = 0x100 * (id as u32 + 1) + index;
            object.extras.push(Extra::Element { set, value, is_retained: rng.u32(0..100) < 20 });
        }
        if rng.u32(0..100) < 40 {
            object.extras.push(Extra::Walk { set, is_weak: rng.bool(), is_hidden: rng.bool() });
        }
    }
}

fn place_in_archives(rng: &mut Rng, objects: &mut [Object]) {
    let archives = rng.usize(1..=2);
    for object in objects {
        if rng.u32(0..100) < 60 {
            object.archive = Some(rng.usize(0..archives));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_program() {
        assert!((0..100).all(|seed| draw(seed) == draw(seed)));
        assert!((0..100).any(|seed| draw(seed) != draw(seed + 1)));
    }

    #[test]
    fn an_object_defines_or_imports_a_name_once() {
        for object in (0..500).flat_map(|seed| draw(seed).objects) {
            let definitions = object.definitions.iter().map(|definition| definition.name);
            let mut names: Vec<_> = definitions.chain(object.imports.iter().map(|import| import.name)).collect();
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count);
        }
    }
}
