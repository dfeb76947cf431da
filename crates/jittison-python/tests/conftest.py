"""Helpers of the tests: objects are compiled by the system's compiler, once for each source."""

import hashlib
import os
import subprocess
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

import jittison

#: Whether long tests run in full.
FULL = os.environ.get("JITTISON_FULL") == "1"
_CACHE = Path(tempfile.mkdtemp(prefix="jittison-tests-"))


def compile_object(source: str, language: str = "c", *flags: str) -> bytes:
    """The object of a source."""
    key = hashlib.sha256(repr((source, language, flags)).encode()).hexdigest()[:24]
    path = _CACHE / (key + ".o")
    if not path.exists():
        compiler = {"c": "cc", "c++": "c++"}[language]
        command = [compiler, "-x", language, "-c", "-O2", "-fPIC", *flags, "-", "-o", str(path)]
        subprocess.run(command, input=source.encode(), check=True)
    return path.read_bytes()


@contextmanager
def callers(call, count=3):
    """Threads that call until the end of the block."""
    end = threading.Event()

    def loop():
        while not end.is_set():
            call()

    threads = [threading.Thread(target=loop) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        end.set()
        for thread in threads:
            thread.join()


@pytest.fixture
def cc():
    return compile_object


@pytest.fixture
def jit():
    with jittison.Jit() as session:
        yield session


@pytest.fixture
def tracker(jit):
    return jit.main.create_tracker()


ADD = "int add(int a, int b) { return a + b; }"


@pytest.fixture
def add(jit, tracker, cc):
    """A function, which keeps its code."""
    tracker.add_object(cc(ADD), "add.o")
    return jit.lookup("add", "int(int, int)")
