//! [`Program`]: what a generated program consists of, as data. A writer turns each object into assembly or C.
//!
//! A program has a fixed object with `main` (`main_object.rs`) and a few drawn objects. An object defines names, refers to
//! names, and has extras: initialisers, section elements and so on. Each object has a function `run_<id>`, which `main`
//! calls if the object is linked. It prints one line for each reference.

use crate::draw;
use crate::extra::Extra;

#[derive(Clone, PartialEq, Debug)]
pub struct Program {
    /// Link natively as a position-independent executable.
    pub is_pie: bool,
    /// Run the references in a second thread, too.
    pub has_thread: bool,
    /// How many command-line inputs precede the object with `main`.
    pub main_at: usize,
    /// In the order of the command line. An archive stands where its first member stands.
    pub objects: Vec<Object>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Object {
    /// Names the object in output lines. It stays the same when other objects are dropped.
    pub id: usize,
    /// The archive that holds the object; `None` for an object of the command line.
    pub archive: Option<usize>,
    pub writer: Writer,
    pub definitions: Vec<Definition>,
    pub imports: Vec<Import>,
    pub references: Vec<Reference>,
    pub extras: Vec<Extra>,
}

/// What turns an object's text into bytes.
#[derive(Clone, PartialEq, Debug)]
pub enum Writer {
    /// Assembly for GNU as.
    Gas,
    /// Assembly for LLVM's assembler.
    LlvmMc,
    /// C, or C++ if the compiler's name ends with `++` or `++-19`.
    C { compiler: &'static str, flags: Vec<&'static str> },
}

/// What a name stands for in all objects of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Function,
    Data,
    ThreadLocal,
    Absolute,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Binding {
    Global,
    Weak,
    Local,
    Common,
    /// A global symbol in a group that is named after it.
    GroupGlobal,
    GroupWeak,
    /// `STB_GNU_UNIQUE` in a group.
    GroupUnique,
    /// A weak symbol in a section `.gnu.linkonce.*`.
    LinkOnce,
    /// A global symbol at the address of a local one.
    Alias,
    WeakAlias,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Visibility {
    Default,
    Hidden,
    Protected,
    Internal,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// The usual section of the kind.
    Usual,
    /// A section of the symbol's own, such as `.text.f0`.
    Own,
    Zero,
    ReadOnly,
    RelRo,
    Custom,
    Note,
    LargeData,
    LargeZero,
    /// A section that pruning must keep.
    Retained,
    Mergeable,
}

/// A definition of a name. An object has at most one for a name.
#[derive(Clone, PartialEq, Debug)]
pub struct Definition {
    pub name: &'static str,
    pub kind: Kind,
    pub binding: Binding,
    pub visibility: Visibility,
    pub place: Place,
    pub is_indirect: bool,
    /// Has the symbol type `STT_NOTYPE`.
    pub is_untyped: bool,
    /// The value that a call returns or a load reads.
    pub value: u32,
    pub size: u32,
    pub alignment: u32,
}

/// An undefined symbol of an object.
#[derive(Clone, PartialEq, Debug)]
pub struct Import {
    pub name: &'static str,
    pub kind: Kind,
    pub is_weak: bool,
    pub visibility: Visibility,
}

/// A place that uses a name which the object defines or imports.
#[derive(Clone, PartialEq, Debug)]
pub struct Reference {
    pub name: &'static str,
    pub kind: Kind,
    pub via: Via,
    pub action: Action,
}

/// How a reference gets at its name. In C there are only `Direct` and `Pointer`: the compiler chooses the relocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Via {
    Direct,
    /// `R_X86_64_64` in data.
    Pointer,
    /// `R_X86_64_PC32` in code.
    Pc32,
    /// `R_X86_64_PC32` in constants.
    Table,
    /// `R_X86_64_GOTPCRELX` without a prefix.
    GotX,
    /// `R_X86_64_REX_GOTPCRELX`.
    RexGotX,
    /// `R_X86_64_GOTPCREL`.
    Got,
    /// `R_X86_64_PLT32`.
    Plt32,
    Abs64,
    Abs32,
    Abs32S,
    GotOff64,
    PltOff64,
    Got64,
    Size64,
    GeneralDynamic,
    GeneralDynamicNoPlt,
    LocalDynamic,
    InitialExec,
    LocalExec,
    Descriptor,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Call the function and print what it returns.
    Call,
    /// Print the first word.
    Load,
    /// Print the second word: a relocation with an addend.
    LoadSecond,
    /// Add one to the first word.
    Increment,
    /// Print which of the addresses that were printed before it equals.
    Address,
    /// Print the address modulo 64.
    Alignment,
    /// Print a number that does not depend on addresses.
    Number,
}

impl Program {
    /// Whether an object holds absolute references in code, which a position-independent executable cannot have.
    pub fn needs_fixed_addresses(&self) -> bool {
        self.objects.iter().any(Object::needs_fixed_addresses)
    }

    /// Changes what would make the output depend on the layout, or the program unfit for its kind of executable.
    pub fn keep_promises(&mut self) {
        self.is_pie &= !self.needs_fixed_addresses();
        let all: Vec<Definition> = self.objects.iter().flat_map(|object| object.definitions.clone()).collect();
        for object in &mut self.objects {
            let own = object.definitions.clone();
            object
                .references
                .retain(|reference| reference.action != Action::Alignment || is_aligned(reference.name, &own, &all));
        }
    }

    pub fn has_cpp(&self) -> bool {
        self.objects.iter().any(Object::is_cpp)
    }
}

/// Whether 64 divides the address of a name, whichever of `all` definitions wins. `own` are those of the object that refers
/// to it. Common symbols get the greatest alignment.
fn is_aligned(name: &str, own: &[Definition], all: &[Definition]) -> bool {
    let is_local = |definition: &&Definition| definition.name == name && definition.binding == Binding::Local;
    if let Some(local) = own.iter().find(is_local) {
        return local.alignment == 64;
    }
    let mut global = all.iter().filter(|definition| definition.name == name && definition.binding != Binding::Local);
    let are_common = global.clone().all(|definition| definition.binding == Binding::Common);
    let is_aligned = |definition: &Definition| definition.alignment == 64;
    !draw::is_in_libc(name)
        && global.clone().next().is_some()
        && if are_common { global.any(is_aligned) } else { global.all(is_aligned) }
}

impl Object {
    pub fn needs_fixed_addresses(&self) -> bool {
        let has_flag = matches!(&self.writer, Writer::C { flags, .. } if flags.contains(&"-fno-pic"));
        has_flag
            || self.references.iter().any(|reference| matches!(reference.via, Via::Abs32 | Via::Abs32S | Via::Abs64))
    }

    pub fn defines(&self, name: &str) -> Option<&Definition> {
        self.definitions.iter().find(|definition| definition.name == name)
    }

    pub fn imports(&self, name: &str) -> Option<&Import> {
        self.imports.iter().find(|import| import.name == name)
    }

    /// Whether the name may be absent, so that code must test its address first.
    pub fn may_lack(&self, name: &str) -> bool {
        self.imports(name).is_some_and(|import| import.is_weak)
    }

    /// Whether its text is C or C++.
    pub fn is_c(&self) -> bool {
        matches!(self.writer, Writer::C { .. })
    }

    pub fn is_cpp(&self) -> bool {
        matches!(self.writer, Writer::C { compiler, .. } if compiler.contains("++"))
    }
}

impl Visibility {
    /// The directive of an assembler.
    pub fn directive(self) -> Option<&'static str> {
        match self {
            Visibility::Default => None,
            Visibility::Hidden => Some("hidden"),
            Visibility::Protected => Some("protected"),
            Visibility::Internal => Some("internal"),
        }
    }
}

impl Definition {
    /// Whether its bytes are zero, because of its section or because it is a common symbol.
    pub fn is_zero(&self) -> bool {
        self.binding == Binding::Common || matches!(self.place, Place::Zero | Place::LargeZero)
    }
}
