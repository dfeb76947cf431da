"""Methods of the native classes that are written in Python.

They build objects of ctypes or read paths, which runs Python code. The native module runs none while it has frames of Rust on
the stack: the interpreter may end a thread inside Python code, and such frames do not survive that.
"""

from __future__ import annotations

import itertools
import os
from typing import Any, Callable, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

from jittison import _jittison as native
from jittison.signatures import address_of_callback, bind, callback

#: An object: the path of a file, or bytes.
Source = Union[str, "os.PathLike[str]", bytes, bytearray, memoryview]


def _data_of(source: Any, name: Optional[str]) -> Tuple[str, Optional[bytes]]:
    """The name of an object, and its bytes if they are given."""
    if isinstance(source, bytes):
        return name or "object", source
    if isinstance(source, (bytearray, memoryview)):
        return name or "object", bytes(source)
    path = os.fspath(source)
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    if name is None:
        return path, None
    return name, _read(path)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _bytes_of(source: Any, name: Optional[str]) -> Tuple[str, bytes]:
    name, data = _data_of(source, name)
    return name, _read(name) if data is None else data


def _bound(function: native.Function, signature: Any) -> native.Function:
    callable_, parameters, signature = bind(function.address, signature)
    function._bind(callable_, parameters, signature)
    return function


def _target(target: Any, signature: Any) -> Tuple[int, Any]:
    """The address of the target of a stub, and what keeps it."""
    if isinstance(target, native.Function):
        return target.address, target
    if isinstance(target, int):
        return target, None
    if signature is not None and callable(target):
        target = callback(signature)(target)
    return address_of_callback(target), target


def jit_lookup(self: native.Jit, name: str, signature: Any, *, dylib: Optional[native.Dylib] = None) -> native.Function:
    """Looks up a function: links what it needs, runs the initialisers that wait, and returns the function.

    signature: text such as "int(int, double *)", a prototype of ctypes.CFUNCTYPE, or ffi.typeof(...) of cffi.
    dylib: where to search. The main dylib is the default.

    This call and every call of the function are promises of the program:

    - the name is a function with this signature;
    - all objects that were added so far may run: initialisers now, finalisers when they are removed;
    - an address that was given as a number stays in memory while code may reach it;
    - no exception of C++ leaves the function or an initialiser: the process would end.
    """
    return _bound(self._lookup(name, dylib), signature)


def jit_variable(self: native.Jit, name: str, type: Any, *, dylib: Optional[native.Dylib] = None) -> Any:
    """A variable of linked code, as an object of the ctypes type `type`. It shares the memory, and keeps it.

    Arrays have a buffer: ``numpy.ctypeslib.as_array(jit.variable("table", ctypes.c_double * 100))`` copies nothing.
    That the variable has this type is a promise of the program.
    """
    address, pin = self._pin_variable(name, dylib)
    variable = type.from_address(address)
    variable._jittison_pin = pin
    return variable


def jit_add_rebindable(
    self: native.Jit, source: Source, name: Optional[str] = None, *, dylib: Optional[native.Dylib] = None
) -> native.Patchable:
    """Adds an object whose exported functions can be replaced later, as a whole. Code that is linked against them follows."""
    return self._add_rebindable(*_bytes_of(source, name), dylib)


_PROGRAMS = itertools.count(1)


def jit_run_program(
    self: native.Jit, sources: Iterable[Source], arguments: Sequence[Union[str, bytes]] = ("program",), *, entry: str = "main"
) -> int:
    """Runs objects and archives as a program, and removes them. Returns what `main` returned.

    sources: paths or bytes. Of an archive, the members that the program needs are linked.
    arguments: argv; the first one is the name of the program.

    The program has a dylib of its own. Its symbols are those of its sources, then those of the main dylib and of the process.
    See Tracker.run_program.
    """
    dylib = self.create_dylib("program {}".format(next(_PROGRAMS)), [self.main])
    try:
        tracker = dylib.create_tracker()
        dylib.set_library_tracker(tracker)
        for source in sources:
            if _is_archive(source):
                dylib.link_static_library(source)
            else:
                tracker.add_object(source)
        return tracker.run_program(arguments, entry=entry)
    finally:
        dylib.remove()


def _is_archive(source: Any) -> bool:
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source[:8]) in _ARCHIVES
    with open(source, "rb") as file:
        return file.read(8) in _ARCHIVES


#: How archives begin, plain and thin.
_ARCHIVES = (b"!<arch>\n", b"!<thin>\n")


def dylib_add_generator(
    self: native.Dylib, function: Callable[[str], Any], signature: Any = None
) -> native.Generator:
    """Adds a generator: a function that supplies definitions of names that a lookup does not find in this dylib.

    function: called with a name. It returns None for a name that it does not know; or an address, which the program keeps valid;
        or a Function; or a callback of ctypes or cffi; or a Python function, if there is a `signature`.

    The function runs on the thread of the lookup, perhaps on several threads at once. What it returns is kept as long as code may
    call the name; see Tracker.define_absolute. An exception fails the lookup, whose error has its text.
    """

    def find(name: str) -> Optional[Tuple[int, Any]]:
        target = function(name)
        return None if target is None else _target(target, signature)

    return self._add_generator(find)


def dylib_link_static_library(self: native.Dylib, source: Source, name: Optional[str] = None) -> None:
    """Makes the members of an archive available: a path, or bytes. A member is linked when it defines a symbol that is required."""
    self._link_static_library(*_data_of(source, name))


def tracker_add_object(self: native.Tracker, source: Source, name: Optional[str] = None) -> None:
    """Adds an object: a path, or bytes. It is linked when one of its symbols is looked up."""
    self._add_object(*_data_of(source, name), False)


def tracker_link_object(self: native.Tracker, source: Source, name: Optional[str] = None) -> None:
    """Adds an object and links it at once, with what it refers to. Initialisers run at a lookup."""
    self._add_object(*_data_of(source, name), True)


def tracker_add_archive(self: native.Tracker, source: Source, name: Optional[str] = None) -> int:
    """Adds every member of an archive: a path, or bytes. Returns their number. See also Dylib.link_static_library."""
    return self._add_archive(*_data_of(source, name))


def tracker_define_lazily(
    self: native.Tracker, names: Iterable[str], compile: Callable[[], Source], name: str = "lazy object"
) -> None:
    """Defines functions whose object is compiled when one of them is looked up.

    names: the functions, which the object must define.
    compile: called once, without arguments, on the thread that needs a function. It returns the object: a path, or bytes.
    name: the name of the object in errors and maps.

    An exception of `compile` fails the lookup, whose error has its text.
    """
    self._define_lazily(list(names), lambda: _bytes_of(compile(), None)[1], name)


def tracker_reexport(
    self: native.Tracker,
    source: native.Dylib,
    names: Union[Iterable[str], Mapping[str, str]],
    *,
    lazy: bool = False,
) -> None:
    """Defines names that stand for functions of another dylib.

    names: the names; or a mapping from each new name to the name in `source`.
    lazy: each function is linked at its first call, which runs the initialisers that wait. An exception of C++ that leaves one of
        them ends the process then. Otherwise it is linked when the name is looked up.
    """
    pairs: List[Tuple[str, str]]
    pairs = list(names.items()) if isinstance(names, Mapping) else [(name, name) for name in names]
    self._reexport(source, pairs, lazy)


def tracker_run_program(
    self: native.Tracker, arguments: Sequence[Union[str, bytes]] = ("program",), *, entry: str = "main"
) -> int:
    """Runs the objects under the tracker as a program: initialisers, main, exit handlers, finalisers. Returns what main returned.

    arguments: argv; the first one is the name of the program.
    entry: the function to call as `int main(int, char **, char **)`.

    Nothing is removed. These are promises of the program, beside those of Jit.lookup: one program runs at a time; an exception
    that it does not catch, and a call of `exit`, end the process, without Python's exit handlers. Run one that may do so in a
    child process, after os.fork() or by multiprocessing.
    """
    return self._run_program(entry, [os.fsencode(argument) for argument in arguments])


def tracker_define_absolute(self: native.Tracker, name: str, target: Any, signature: Any = None) -> None:
    """Defines a name: as an address, or as a callback.

    target: an address, which the program keeps valid; or a callback of ctypes or cffi; or a Python function with a
        `signature`; or a Function. A callback and a function are kept as long as code may call the name.
    """
    if isinstance(target, int):
        self._define_absolute(name, target, callable=False)
    else:
        self.create_stub(name, target, signature)


def tracker_create_stub(self: native.Tracker, name: str, target: Any, signature: Any = None) -> native.Stub:
    """Defines a function that jumps to a target, which can be changed later. Targets are those of define_absolute()."""
    return self._create_stub(name, *_target(target, signature))


def stub_redirect(self: native.Stub, target: Any, signature: Any = None) -> None:
    """Redirects callers to another target with one store. Calls that are inside the old target continue there.

    Targets are those of Tracker.define_absolute(). The old one is kept until these calls have returned. That the new one has
    the signature that callers use is a promise of the program.
    """
    self._redirect(*_target(target, signature))


def patchable_replace(self: native.Patchable, source: Source, name: Optional[str] = None) -> native.Commit:
    """Replaces all functions by those of one object, in one step."""
    return self._replace(*_bytes_of(source, name))


def patch_add_object(self: native.Patch, source: Source, name: Optional[str] = None) -> native.Patch:
    """Adds an object: a path, or bytes."""
    self._add_object(*_data_of(source, name))
    return self


def patch_expect_signature(self: native.Patch, function: str, signature: str) -> native.Patch:
    """Requires a function, and declares its signature as any text. All versions must declare the same text."""
    self._expect_signature(function, signature)
    return self


def reloader_add_object(self: native.Reloader, source: Source, name: Optional[str] = None) -> None:
    """Adds an object, a path or bytes, before the program is linked."""
    self._add_object(*_bytes_of(source, name))


def reloader_reload(self: native.Reloader, source: Source, name: Optional[str] = None) -> native.Reload:
    """Replaces an object while its program runs. The name is that with which it was added.

    Initialisers of the new version do not run. Raises PatchError with the name of what cannot follow; then nothing changed.
    """
    return self._reload(*_bytes_of(source, name))


def reloader_reload_all(self: native.Reloader, objects: Mapping[str, Source]) -> List[native.Reload]:
    """Replaces several objects as one: either all of them follow, or none. The keys are the names with which they were added.

    They may need each other's new functions, variables and constants. Raises PatchError with the name of what cannot follow; then
    nothing changed.
    """
    return self._reload_all([(name, _bytes_of(source, name)[1]) for name, source in objects.items()])


def prepared_lookup(self: native.PreparedPatch, name: str, signature: Any) -> native.Function:
    """A function of this version, not through its stub: to try the version before the commit. See Jit.lookup."""
    return _bound(self._lookup(name), signature)


def add_methods() -> None:
    """Adds the methods to the native classes."""
    for class_, methods in _METHODS:
        for method in methods:
            prefix, _, name = method.__name__.partition("_")
            method.__name__ = name
            method.__qualname__ = "{}.{}".format(class_.__name__, name)
            setattr(class_, name, method)


_METHODS: Iterable[Tuple[Any, Tuple[Any, ...]]] = (
    (native.Jit, (jit_lookup, jit_variable, jit_add_rebindable, jit_run_program)),
    (native.Dylib, (dylib_add_generator, dylib_link_static_library)),
    (
        native.Tracker,
        (
            tracker_add_object,
            tracker_link_object,
            tracker_add_archive,
            tracker_define_absolute,
            tracker_define_lazily,
            tracker_create_stub,
            tracker_reexport,
            tracker_run_program,
        ),
    ),
    (native.Stub, (stub_redirect,)),
    (native.Patchable, (patchable_replace,)),
    (native.Patch, (patch_add_object, patch_expect_signature)),
    (native.PreparedPatch, (prepared_lookup,)),
    (native.Reloader, (reloader_add_object, reloader_reload, reloader_reload_all)),
)
