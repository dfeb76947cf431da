//! The programs of `tests/c`, one for each area of the API, and the objects that they link.

use std::path::PathBuf;

use jittison_test_tools::{asm, c, require};

use crate::building::{Language, Program, succeed};

/// What compiles an object.
type Compile = fn(&str) -> Option<Vec<u8>>;

pub struct Area {
    program: &'static str,
    objects: &'static [(&'static str, Compile, &'static str)],
}

pub const ONE: &str = "long one(void) { return 1; }";
const NEEDS: &str = "long nowhere(void); long needs(void) { return nowhere() + 1; }";

pub const LINKING: Area = Area {
    program: "linking",
    objects: &[
        (
            "first.o",
            c,
            "long one(void) { return 1; } long one_more(void); long host(void);
             long via(void) { return one_more() + host(); }",
        ),
        ("second.o", c, "long one_more(void) { return 2; }"),
    ],
};
pub const REMOVAL: Area = Area { program: "removal", objects: &[("one.o", c, ONE)] };
pub const GUARDS: Area = Area { program: "guards", objects: &[("one.o", c, ONE)] };
pub const REFUSALS: Area = Area { program: "refusals", objects: &[("one.o", c, ONE), ("needs.o", c, NEEDS)] };
pub const PROGRAMS: Area = Area {
    program: "programs",
    objects: &[
        (
            "state.o",
            c,
            "static long state; __attribute__((constructor)) static void set(void) { state = 5; }
             long read_state(void) { return state; }",
        ),
        ("main.o", c, "int main(int argc, char **argv) { return 40 + argc + (argv[argc] != 0); }"),
    ],
};
pub const REDIRECTION: Area = Area {
    program: "redirection",
    objects: &[
        ("one.o", c, ONE),
        ("first.o", c, "int calls; long number(void) { calls++; return 10; }"),
        ("second.o", c, "int calls; long number(void) { calls++; return 19 + calls; }"),
        ("other.o", c, "int other;"),
    ],
};
pub const RELOADING: Area = Area {
    program: "reloading",
    objects: &[
        (
            "first.o",
            c,
            "static long state; long number(void) { return 10 + ++state; } long via(void) { return number(); }",
        ),
        (
            "second.o",
            c,
            "static long state; long number(void) { return 100 + ++state; } long via(void) { return number(); }
             long fresh(void) { return 5; }",
        ),
        (
            "larger.o",
            c,
            "static long state[9]; long number(void) { return 100 + ++state[8]; } long via(void) { return number(); }",
        ),
        ("missing.o", c, "long nowhere(void); static long state; long number(void) { return nowhere() + ++state; }"),
    ],
};
pub const CUSTOM: Area = Area {
    program: "custom",
    objects: &[(
        "via.o",
        c,
        "long supplied(void); long computed(void); long via(void) { return supplied() + computed(); }",
    )],
};
pub const THREADS: Area = Area { program: "threads", objects: &[("one.o", c, ONE)] };
pub const SYMBOLS: Area = Area {
    program: "symbols",
    objects: &[("one.o", c, ONE), ("via.o", c, "long one(void); long via(void) { return one() + 1; }")],
};
pub const GRAPHS: Area = Area { program: "graphs", objects: &[] };
pub const COMPILERS: Area = Area { program: "compilers", objects: &[] };
pub const PLUGINS: Area = Area {
    program: "plugins",
    objects: &[
        (
            "answer.o",
            c,
            "long base(void); static long state; __attribute__((constructor)) static void set(void) { state = 1; }
             long answer(void) { return base() + state; }",
        ),
        ("one.o", c, ONE),
    ],
};
pub const SERVICES: Area = Area { program: "services", objects: &[("one.o", c, ONE), ("needs.o", c, NEEDS)] };
pub const REFUSED_CALLS: Area =
    Area { program: "refused_calls", objects: &[("large.o", asm, LARGE), ("one.o", c, ONE)] };

/// Code, constants, data, unwind tables and a large section of 2 MiB, with an alignment that `mmap` does not guarantee.
const LARGE: &str = "
    .section .large,\"a\"\n.balign 2 << 20\nlarge: .fill 2 << 20, 1, 0x5a\n
    .section .rodata\nconstant: .quad 3\n
    .data\npointer: .quad large\nstate: .quad 4\n
    .text\n.globl test\n
    test: .cfi_startproc\nmovq constant(%rip), %rax\naddq state(%rip), %rax\nmovq pointer(%rip), %rcx\n
    cmpb $0x5a, 99(%rcx)\nje 1f\nud2\n1: ret\n.cfi_endproc\n
    .section .note.GNU-stack\n";

impl Area {
    /// Compiles the program and its objects.
    fn build(&self) -> Option<(Program, Vec<PathBuf>)> {
        let program = Program::compile(self.program, Language::C)?;
        let mut paths = Vec::new();
        for (file, compile, source) in self.objects {
            paths.push(program.directory.write(file, compile(source)?));
        }
        Some((program, paths))
    }

    /// Runs the program with the objects as files. Returns what it prints, unless a compiler is missing.
    pub fn passes(&self) -> Option<String> {
        let (program, paths) = self.build()?;
        Some(program.run(&paths))
    }

    /// As [`passes`](Self::passes), under valgrind: no invalid access, no leak.
    pub fn leaks_nothing(&self) {
        let (Some(mut valgrind), Some((program, paths))) = (require("valgrind"), self.build()) else { return };
        valgrind.args(VALGRIND).arg(program.path()).args(paths);
        succeed(&mut valgrind);
    }
}

/// Linked code changes at addresses that files back, so all code is checked for changes.
pub const VALGRIND: [&str; 6] = [
    "-q",
    "--smc-check=all",
    "--leak-check=full",
    "--errors-for-leak-kinds=definite",
    "--show-leak-kinds=definite",
    "--error-exitcode=9",
];
