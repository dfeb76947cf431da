"""Signatures of functions: what :meth:`Jit.lookup` takes, and the callables of ctypes or cffi that it makes of them.

A signature is one of these:

- text, as C declares a function: ``"double(const double *, size_t)"``
- a prototype of ctypes: ``ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)``
- a type of a function pointer of cffi: ``ffi.typeof("int(*)(int)")``

A parameter that is a pointer takes objects with a buffer, such as arrays of NumPy, without a copy. Their items must be of
the declared type. ``void *`` takes any items, and so does a pointer to single bytes if the items have one byte. A buffer that
is read-only needs a parameter that is ``const``; pointers of ctypes are ``const`` when they are wrapped in :func:`const`.
"""

from __future__ import annotations

import ctypes
import functools
import re
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from jittison import _jittison as native

__all__ = ["callback", "const", "parse"]


class _Parameter(NamedTuple):
    """What the native module takes for a parameter that is a pointer: see `argument.rs`."""

    declared: str
    items: str
    item_size: int
    is_const: bool
    native: Any
    convert: Any
    from_address: Any


#: The base class of all objects of ctypes.
_CData: type = ctypes.c_int.__mro__[-2]

_TYPES: Dict[str, Any] = {
    "void": None,
    "_Bool": ctypes.c_bool,
    "bool": ctypes.c_bool,
    "char": ctypes.c_char,
    "signed char": ctypes.c_byte,
    "unsigned char": ctypes.c_ubyte,
    "short": ctypes.c_short,
    "unsigned short": ctypes.c_ushort,
    "int": ctypes.c_int,
    "unsigned": ctypes.c_uint,
    "unsigned int": ctypes.c_uint,
    "long": ctypes.c_long,
    "unsigned long": ctypes.c_ulong,
    "long long": ctypes.c_longlong,
    "unsigned long long": ctypes.c_ulonglong,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "long double": ctypes.c_longdouble,
    "size_t": ctypes.c_size_t,
    "ssize_t": ctypes.c_ssize_t,
    "ptrdiff_t": ctypes.c_ssize_t,
    "intptr_t": ctypes.c_ssize_t,
    "uintptr_t": ctypes.c_size_t,
    "int8_t": ctypes.c_int8,
    "int16_t": ctypes.c_int16,
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "uint8_t": ctypes.c_uint8,
    "uint16_t": ctypes.c_uint16,
    "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64,
}

_FUNCTION = re.compile(r"^\s*(?P<result>[^()]*?)\s*\(\s*(?:\*\s*\w*\s*\)\s*\()?(?P<parameters>[^()]*)\)\s*;?\s*$")
_WORD = re.compile(r"\w+|\*|\.\.\.|\[\s*\d*\s*\]|\S")


class const:
    """A parameter through which a function only reads: it takes buffers that are read-only, such as bytes.

    For prototypes of ctypes: ``const(ctypes.POINTER(ctypes.c_double))``. Text has its own ``const``.
    """

    def __init__(self, pointer: Any) -> None:
        self.pointer = pointer

    def from_param(self, value: Any) -> Any:
        """What ctypes asks for an argument."""
        return self.pointer.from_param(value)

    def __repr__(self) -> str:
        return "const({!r})".format(self.pointer)


class _CType:
    """A type of C: the type of ctypes, and whether it points to something that is only read."""

    def __init__(self, declared: str, ctype: Any, is_const: bool, is_pointer: bool) -> None:
        self.declared = declared
        self.ctype = ctype
        self.is_const = is_const
        self.is_pointer = is_pointer


def parse(text: str) -> Tuple[Any, List[_CType]]:
    """Reads a signature of C. Returns the result and the parameters."""
    match = _FUNCTION.match(text)
    if match is None:
        raise ValueError("{!r} is no signature; write it as C does: \"int(int, double *)\"".format(text))
    parameters = match.group("parameters").strip()
    # The name of the function, if there is one, is read as that of a parameter is.
    result = _parse_type(match.group("result"), text, is_result=True)
    if parameters in ("", "void"):
        return result.ctype, []
    return result.ctype, [_parse_type(parameter, text) for parameter in parameters.split(",")]


def _parse_type(declared: str, text: str, is_result: bool = False) -> _CType:
    words = _WORD.findall(declared)
    base: List[str] = []
    pointers: List[bool] = []
    is_const = False
    name = None
    for word in words:
        if word == "*":
            pointers.append(False)
        elif word.startswith("["):
            pointers.append(False)
        elif word in ("const", "volatile", "restrict", "struct", "register"):
            if word == "struct":
                raise ValueError("{!r}: pass structs with a prototype of ctypes or cffi".format(text))
            is_const = is_const or (word == "const" and not pointers)
        elif _is_part_of_type(word, base) and not pointers:
            base.append(word)
        elif name is None and re.match(r"[A-Za-z_]\w*$", word):
            name = word
        else:
            raise ValueError("{!r}: {!r} is not expected in {!r}".format(text, word, declared.strip()))
    spelled = _spell(base)
    if spelled not in _TYPES:
        raise ValueError("{!r} has no type that is known: {!r}; use a prototype of ctypes or cffi".format(text, declared.strip()))
    ctype = _TYPES[spelled]
    if not pointers:
        if ctype is None and not is_result:
            raise ValueError("{!r}: a parameter cannot be void".format(text))
        return _CType(declared.strip(), ctype, False, False)
    depth = len(pointers)
    if ctype is None:
        ctype, depth = ctypes.c_void_p, depth - 1
    elif ctype is ctypes.c_char and (is_const or is_result):
        # `const char *` takes bytes, and a result of `char *` is bytes.
        ctype, depth = ctypes.c_char_p, depth - 1
    for _ in range(depth):
        ctype = ctypes.POINTER(ctype)
    return _CType(declared.strip(), ctype, is_const and len(pointers) == 1, True)


_QUALIFIERS = {"signed", "unsigned", "short", "long", "int", "char", "double"}


def _is_part_of_type(word: str, base: List[str]) -> bool:
    if not base:
        return word in _QUALIFIERS or word in _TYPES
    return word in _QUALIFIERS and all(other in _QUALIFIERS for other in base)


def _spell(words: List[str]) -> str:
    """One spelling for `long unsigned int` and `unsigned long`."""
    if not words or any(word not in _QUALIFIERS for word in words):
        return " ".join(words)
    rest = [word for word in words if word not in ("signed", "unsigned", "int")]
    if "unsigned" in words:
        return " ".join(["unsigned"] + rest)
    if rest == ["char"] and "signed" in words:
        return "signed char"
    return " ".join(rest) or "int"


def bind(address: int, signature: Any) -> Tuple[Any, List[Optional[_Parameter]], Any]:
    """The callable for an address, what its parameters take, and the signature."""
    if isinstance(signature, str):
        prototype, takes = _prototype(signature)
        return prototype(address), takes, signature
    if isinstance(signature, type) and issubclass(signature, ctypes._CFuncPtr):  # type: ignore[attr-defined]
        return _bind_prototype(address, signature)
    if _is_cffi_function(signature):
        return _bind_cffi(address, signature)
    raise TypeError(
        "a signature is text such as \"int(int)\", a prototype of ctypes.CFUNCTYPE, or ffi.typeof(\"int(*)(int)\"), "
        "but not {!r}".format(signature)
    )


def _make_prototype(text: str) -> Tuple[Any, List[Optional[_Parameter]]]:
    """The prototype of a signature that is text, and what its parameters take."""
    result, parameters = parse(text)
    prototype = ctypes.CFUNCTYPE(result, *[_passed(parameter.ctype) for parameter in parameters])
    return prototype, [_parameter(p.declared, p.ctype, p.is_const) if p.is_pointer else None for p in parameters]


_prototype = functools.lru_cache(maxsize=256)(_make_prototype)


def _bind_prototype(address: int, prototype: Any) -> Tuple[Any, List[Optional[_Parameter]], Any]:
    declared = prototype._argtypes_
    callable_ = prototype(address)
    plain = [argtype.pointer if isinstance(argtype, const) else argtype for argtype in declared]
    takes: List[Optional[_Parameter]] = []
    for argtype, ctype in zip(declared, plain):
        is_pointer = _is_pointer(ctype)
        takes.append(_parameter(_name(ctype), ctype, isinstance(argtype, const)) if is_pointer else None)
    callable_.argtypes = [_passed(ctype) for ctype in plain]
    return callable_, takes, prototype


def _is_pointer(ctype: Any) -> bool:
    if not isinstance(ctype, type):
        return False
    return issubclass(ctype, (ctypes.c_void_p, ctypes.c_char_p)) or (
        issubclass(ctype, ctypes._Pointer) and _target(ctype) is not None  # type: ignore[attr-defined]
    )


def _target(ctype: Any) -> Any:
    """What a pointer type points to, if arrays of it have a buffer format."""
    target = getattr(ctype, "_type_", None)
    if not isinstance(target, type) or issubclass(target, (ctypes.c_void_p, ctypes.c_char_p)):
        return None
    is_data = issubclass(target, (ctypes._SimpleCData, ctypes.Structure, ctypes.Union))
    return target if is_data else None


def _passed(ctype: Any) -> Any:
    """The type that ctypes converts a parameter to: an address may come from a buffer."""
    return ctypes.c_void_p if _is_pointer(ctype) and not issubclass(ctype, ctypes.c_char_p) else ctype


def _name(ctype: Any) -> str:
    return getattr(ctype, "__name__", repr(ctype))


_KINDS = {code: kind for codes, kind in (("bhilqn", "i"), ("BHILQNPc", "u"), ("fdg", "f"), ("?", "?")) for code in codes}


def _parameter(declared: str, ctype: Any, is_const: bool) -> Optional[_Parameter]:
    if issubclass(ctype, ctypes.c_char_p):
        # ctypes passes bytes. Other buffers need not end with a zero byte.
        return None
    if issubclass(ctype, ctypes.c_void_p):
        return _Parameter(declared, "*", 1, is_const, (_CData, str, int), None, None)
    target = _target(ctype)
    if target is None:
        # No buffer has items of this type. ctypes checks the argument.
        return None
    kind = "s" if not issubclass(target, ctypes._SimpleCData) else _KINDS.get(target._type_, "x")  # type: ignore[attr-defined]
    return _Parameter(declared, kind, ctypes.sizeof(target), is_const, (_CData, int), ctype.from_param, None)


def _is_cffi_function(signature: Any) -> bool:
    return type(signature).__name__ == "CType" and getattr(signature, "kind", None) == "function"


def _bind_cffi(address: int, signature: Any) -> Tuple[Any, List[Optional[_Parameter]], Any]:
    import _cffi_backend  # type: ignore[import-untyped]  # only programs that use cffi have it

    callable_ = _cffi_backend.cast(signature, address)
    takes = [_cffi_parameter(_cffi_backend, ctype) for ctype in signature.args]
    return callable_, takes, signature


def _cffi_parameter(backend: Any, ctype: Any) -> Optional[_Parameter]:
    if ctype.kind != "pointer":
        return None
    item = ctype.item
    if item.kind == "void":
        kind, size = "*", 1
    elif item.kind == "primitive":
        size = backend.sizeof(item)
        name = item.cname
        is_float = name in ("float", "double", "long double")
        is_unsigned = name.startswith(("unsigned", "uint", "size_t")) or name in ("char", "uintptr_t")
        kind = "f" if is_float else "?" if name in ("_Bool", "bool") else "u" if is_unsigned else "i"
    elif item.kind in ("struct", "union"):
        kind, size = "s", backend.sizeof(item)
    else:
        return None
    # cffi does not tell whether a pointer is const, and passes bytes itself.
    return _Parameter(ctype.cname, kind, size, False, (backend._CDataBase, bytes), None, _CffiPointer(backend, ctype))


class _CffiPointer:
    """Makes a pointer of cffi of an address."""

    def __init__(self, backend: Any, ctype: Any) -> None:
        self.cast = backend.cast
        self.ctype = ctype

    def __call__(self, address: int) -> Any:
        return self.cast(self.ctype, address)


def callback(signature: Any) -> Callable[[Callable[..., Any]], Any]:
    """Makes callbacks: ``callback("int(int)")(function)`` is a pointer to a function of C that calls `function`.

    signature: text, or a prototype of ctypes.

    An exception of `function` goes to sys.unraisablehook, and C gets zero. (With a bare prototype of ctypes it gets anything.)
    """
    if isinstance(signature, str):
        result, parameters = parse(signature)
        signature = ctypes.CFUNCTYPE(result, *[parameter.ctype for parameter in parameters])
    elif not (isinstance(signature, type) and issubclass(signature, ctypes._CFuncPtr)):  # type: ignore[attr-defined]
        raise TypeError("a signature is text such as \"int(int)\" or a prototype of ctypes, but not {!r}".format(signature))
    result = signature._restype_
    zero = result().value if isinstance(result, type) and issubclass(result, ctypes._SimpleCData) else None

    def make(function: Callable[..., Any]) -> Any:
        def call(*arguments: Any) -> Any:
            native._enter_callback()
            try:
                return function(*arguments)
            except BaseException as raised:  # there is no caller of Python
                native._report(raised, function)
                return zero
            finally:
                native._leave_callback()

        return signature(call)

    return make


def address_of_callback(target: Any) -> int:
    """The address of a callback of ctypes or cffi."""
    if isinstance(target, ctypes._CFuncPtr):  # type: ignore[attr-defined]
        address = ctypes.cast(target, ctypes.c_void_p).value
        if not address:
            raise ValueError("the function pointer is null")
        return address
    if type(target).__module__ == "_cffi_backend":
        import _cffi_backend  # type: ignore[import-untyped]  # only programs that use cffi have it

        return int(_cffi_backend.cast(_cffi_backend.new_primitive_type("uintptr_t"), target))
    raise TypeError(
        "a target is a Function, a callback of ctypes or cffi, a Python function with a signature, or an address, "
        "but not {!r}".format(target)
    )
