//! [`Extra`]: a construct of an object that is not a definition of a shared name or a reference to one.

#[derive(Clone, PartialEq, Debug)]
pub enum Extra {
    /// A function that runs before or after `main`, in one of the lists.
    Listed { list: List, priority: Option<u16>, value: u32 },
    /// An initialiser in a group whose signature no object defines as a global symbol.
    Grouped { signature: &'static str, value: u32 },
    /// Code in `.init` or `.fini`, which crt1 runs as a part of one function.
    Fragment { is_init: bool, value: u32 },
    /// `run` registers an exit handler.
    AtExit { value: u32 },
    /// An element of a section with a C identifier as its name.
    Element { set: &'static str, value: u32, is_retained: bool },
    /// `run` walks from `__start_<set>` to `__stop_<set>`.
    Walk { set: &'static str, is_weak: bool, is_hidden: bool },
    /// `run` calls `realpath` of an old or of the default version.
    Versioned { is_old: bool },
    /// In C++ only.
    Inline(Inline),
    /// `run` calls `getopt`, which reads the variable `optind` that a program may define itself.
    Getopt,
    /// A name that a native linker defines for a whole program. `run` prints whether its address is null.
    LinkerName { name: &'static str },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum List {
    Preinit,
    Init,
    Ctors,
    Fini,
    Dtors,
}

/// An entity of C++ that each object which uses it also defines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inline {
    Function,
    /// A variable of an inline function, with a guard.
    StaticLocal,
    /// A variable with an initialiser that runs.
    Variable,
    ThreadLocal,
    TemplateMember,
    /// A class with a table of virtual functions and type information.
    Virtual,
    Exception,
    /// An object with a destructor; each object file has its own.
    Static,
    /// An object with a destructor that all object files share.
    SharedObject,
}

impl List {
    pub fn section(self) -> &'static str {
        match self {
            List::Preinit => ".preinit_array",
            List::Init => ".init_array",
            List::Ctors => ".ctors",
            List::Fini => ".fini_array",
            List::Dtors => ".dtors",
        }
    }

    /// The section type, as assemblers spell it.
    pub fn section_type(self) -> &'static str {
        match self {
            List::Preinit => "@preinit_array",
            List::Init => "@init_array",
            List::Fini => "@fini_array",
            List::Ctors | List::Dtors => "@progbits",
        }
    }

    /// The suffix of a section with a priority. Lists of constructors of old compilers count downwards.
    pub fn suffix(self, priority: u16) -> String {
        match self {
            List::Ctors | List::Dtors => format!(".{:05}", 65535 - priority),
            _ => format!(".{priority:05}"),
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            List::Preinit => "preinit_array",
            List::Init => "init_array",
            List::Ctors => "ctors",
            List::Fini => "fini_array",
            List::Dtors => "dtors",
        }
    }
}
