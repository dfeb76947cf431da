"""A JIT linker in which every piece of running code can be taken back: exactly, safely, at once.

Relocatable objects and archives go in: ELF files for x86-64 or AArch64 Linux from gcc, clang, rustc or LLVM. Functions come out::

    import jittison

    jit = jittison.Jit()
    with jit.main.create_tracker() as tracker:
        tracker.add_object("add.o")                # int add(int a, int b) { return a + b; }
        add = jit.lookup("add", "int(int, int)")
        add(2, 3)                                  # 5
    # The name is gone. `add` keeps its code until it is dropped; then the memory is free.

Safety
------
A function object keeps its code in memory, whoever removes it meanwhile. What the package cannot know is what linked code
does. So these are promises of the program: signatures and types of variables; that objects may run; that an address that is
given as a number stays in memory; that no exception of C++ leaves a function. A wrong signature crashes, as with ctypes.

Where to start
--------------
===========================================  ==================================================================
link objects, call functions                 Tracker.add_object, Jit.lookup
static libraries                             Dylib.link_static_library, Tracker.add_archive
remove code                                  Tracker.remove, `with`, Removal
variables without a copy                     Jit.variable
arrays without a copy                        parameters that are pointers: jittison.signatures
functions of Python for linked code          Tracker.define_absolute, Dylib.add_generator
objects that are compiled when needed        Tracker.define_lazily, Tracker.reexport
run a whole program                          Jit.run_program
hear of links and removals                   Jit(on_event=...), Tracker.on_reclaim
replace functions while threads call them    Jit.patchable, Patch, Stub.redirect
see code memory                              Jit.memory_map, Tracker.usage, Jit.memory_statistics
===========================================  ==================================================================
"""

from __future__ import annotations

import atexit
import os

from jittison import _jittison, errors, signatures
from jittison._jittison import (
    CodeLocation,
    Commit,
    Dylib,
    Event,
    Function,
    Generator,
    Guard,
    Jit,
    MemoryMap,
    MemoryStatistics,
    MemoryUsage,
    Patch,
    Patchable,
    PatchVersion,
    PoolStatistics,
    PreparedPatch,
    Reload,
    Reloader,
    Removal,
    Stub,
    Tenant,
    Tracker,
    __version__,
)
from jittison._methods import add_methods
from jittison.errors import (
    CodeMemoryError,
    DefunctError,
    DuplicateDefinitionError,
    Error,
    FileError,
    InUseError,
    LinkError,
    PatchError,
    SymbolNotFoundError,
)
from jittison.signatures import callback, const

__all__ = [
    "CodeLocation",
    "CodeMemoryError",
    "Commit",
    "DefunctError",
    "DuplicateDefinitionError",
    "Dylib",
    "Error",
    "Event",
    "FileError",
    "Function",
    "Generator",
    "Guard",
    "InUseError",
    "Jit",
    "LinkError",
    "MemoryMap",
    "MemoryStatistics",
    "MemoryUsage",
    "Patch",
    "PatchError",
    "PatchVersion",
    "Patchable",
    "PoolStatistics",
    "PreparedPatch",
    "Reload",
    "Reloader",
    "Removal",
    "Stub",
    "SymbolNotFoundError",
    "Tenant",
    "Tracker",
    "__version__",
    "callback",
    "const",
    "errors",
    "signatures",
]

add_methods()
_jittison._set_exceptions({name: getattr(errors, name) for name in errors.__all__})
# Sessions end before the interpreter is finalized: finalisers of linked code may call into Python.
atexit.register(_jittison._end_all_sessions)
os.register_at_fork(after_in_child=_jittison._after_fork)
