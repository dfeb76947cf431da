"""Exceptions of jittison, with fields.

Each is an :class:`Error`. Its text says what failed, what was undone and what to do. The fields say it to a program.
The classes have no ``__init__``: the native module sets the fields.
"""

from __future__ import annotations

from typing import List, Optional

__all__ = [
    "CodeMemoryError",
    "DefunctError",
    "DuplicateDefinitionError",
    "Error",
    "FileError",
    "InUseError",
    "LinkError",
    "PatchError",
    "SymbolNotFoundError",
]


class Error(Exception):
    """An operation of jittison failed. The session keeps working."""

    #: The kind, as the Rust crate names it, such as "SymbolsNotFound" or "OutOfRange".
    kind: str = "Other"
    #: The kind of the first failure, which led to this one.
    root_kind: str = "Other"
    #: The whole text.
    message: str = ""
    #: Whether the same call may succeed later: a limit of code memory was reached.
    is_retriable: bool = False
    #: The object, archive or file.
    object: Optional[str] = None
    #: The section of the object.
    section: Optional[str] = None
    #: The offset in the section, or in the archive.
    offset: Optional[int] = None
    #: The first of `symbols`.
    symbol: Optional[str] = None
    #: The symbols that the error is about.
    symbols: List[str] = []
    #: The dylib.
    dylib: Optional[str] = None
    #: What keeps code from being removed, one text each.
    holders: List[str] = []


class LinkError(Error):
    """An object cannot be linked: it is malformed, needs what is not supported, or a value is out of range."""


class SymbolNotFoundError(Error, LookupError):
    """Symbols have no definition in the dylibs that were searched."""


class DuplicateDefinitionError(Error):
    """A dylib already defines the name. The second definition was not added."""


class InUseError(Error):
    """try_remove() found that something uses the code. Nothing was done; `holders` has the names."""


class DefunctError(Error):
    """A tracker, dylib, session or patchable is used after it was removed."""


class CodeMemoryError(Error, MemoryError):
    """Code memory cannot be allocated: a limit was reached, or the kernel refused."""


class PatchError(Error):
    """A version of patched functions was refused. All callers still call the previous one."""


class FileError(Error, OSError):
    """A file cannot be read."""
