"""Definitions that Python supplies when they are needed: generators, lazy objects, re-exports."""

import ctypes
import gc
import threading

import pytest

import jittison

def test_a_generator_supplies_a_callback_when_code_needs_the_name(jit, tracker, cc):
    asked = []

    def find(name):
        asked.append(name)
        return (lambda n: n * 2) if name == "ask" else None

    generator = jit.main.add_generator(find, "int(int)")
    tracker.add_object(cc("int ask(int); int call(int n) { return ask(n) + 1; }"))
    assert asked == [] and "ask" not in jit.main
    call = jit.lookup("call", "int(int)")
    assert call(20) == 41 and asked == ["ask"]
    gc.collect()
    assert call(1) == 3
    with pytest.raises(jittison.SymbolNotFoundError):
        jit.lookup("nowhere", "int()")
    assert asked == ["ask", "nowhere"]
    assert generator.remove() and not generator.remove()
    with pytest.raises(jittison.SymbolNotFoundError):
        jit.lookup("nowhere", "int()")
    assert asked == ["ask", "nowhere"] and "ask" in jit.main


def test_a_generator_returns_addresses_functions_and_callbacks(jit, cc):
    source = jit.create_dylib("source")
    source.create_tracker().add_object(cc("int triple(int n) { return 3 * n; }"))
    number = ctypes.c_int(7)
    supplied = {
        "number": ctypes.addressof(number),
        "triple": jit.lookup("triple", "int(int)", dylib=source),
        "half": jittison.callback("int(int)")(lambda n: n // 2),
    }
    jit.main.add_generator(supplied.get)
    source.clear()
    assert jit.variable("number", ctypes.c_int).value == 7
    assert jit.lookup("triple", "int(int)")(5) == 15 and jit.lookup("half", "int(int)")(9) == 4
    del supplied["triple"], supplied["half"]
    gc.collect()
    assert jit.lookup("triple", "int(int)")(5) == 15 and jit.lookup("half", "int(int)")(9) == 4


def test_an_exception_of_a_generator_fails_the_lookup_with_its_text(jit):
    def find(name):
        raise KeyError("no such kernel: " + name)

    jit.main.add_generator(find)
    with pytest.raises(jittison.Error, match="KeyError: 'no such kernel: f'"):
        jit.lookup("f", "int()")
    jit.main.add_generator(lambda name: "text")
    with pytest.raises(jittison.Error):
        jit.lookup("f", "int()")


def test_a_generator_may_add_objects_itself(jit, cc):
    bytes_of = {"f": cc("int f(void) { return 3; }")}

    def find(name):
        if name in bytes_of:
            jit.main.default_tracker().add_object(bytes_of[name])

    jit.main.add_generator(find)
    assert jit.lookup("f", "int()")() == 3


def test_threads_ask_a_generator_at_once(cc):
    with jittison.Jit(worker_threads=2) as jit:
        jit.main.add_generator(lambda name: (lambda: int(name[1:])) if name[0] == "n" else None, "int()")
        found, errors = {}, []

        def work():
            try:
                for number in range(50):
                    found[number] = jit.lookup("n{}".format(number), "int()")()
            except BaseException as raised:
                errors.append(raised)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == [] and found == {number: number for number in range(50)}


def test_an_object_is_compiled_at_the_first_lookup_and_once(jit, tracker, cc):
    compiled = []

    def compile():
        compiled.append(1)
        return cc("int g(void) { return 4; } int f(void) { return g() + 1; }")

    tracker.define_lazily(["f", "g"], compile, "kernels.o")
    assert "f" in jit.main and compiled == []
    assert jit.lookup("f", "int()")() == 5 and jit.lookup("g", "int()")() == 4
    assert compiled == [1]
    address = jit.lookup("f", "int()").address
    assert jit.locate(address).object == "kernels.o"
    assert tracker.remove().is_complete and "f" not in jit.main


def test_an_object_that_no_one_needs_is_not_compiled(jit, tracker):
    tracker.define_lazily(["f"], lambda: pytest.fail("it is compiled"))
    tracker.remove()
    assert "f" not in jit.main


def test_an_exception_of_a_compiler_fails_the_lookup_and_the_next_one_too(jit, tracker, cc):
    def compile():
        raise ValueError("the source is wrong")

    tracker.define_lazily(["f"], compile)
    with pytest.raises(jittison.LinkError, match="ValueError: the source is wrong"):
        jit.lookup("f", "int()")
    with pytest.raises(jittison.Error):
        jit.lookup("f", "int()")
    # A compiler whose object lacks the function.
    tracker.define_lazily(["g"], lambda: cc("int h(void) { return 1; }"))
    with pytest.raises(jittison.Error):
        jit.lookup("g", "int()")
    # The name is free again.
    tracker.define_lazily(["f"], lambda: cc("int f(void) { return 5; }"))
    assert jit.lookup("f", "int()")() == 5


def test_names_are_reexported_at_once_and_lazily(jit, tracker, cc):
    source = jit.create_dylib("source")
    compiled = []

    def compile():
        compiled.append(1)
        return cc("int late(int n) { return n + 1; }")

    source.create_tracker().define_lazily(["late"], compile)
    source.create_tracker().add_object(cc("int early(int n) { return n + 2; }"))
    tracker.reexport(source, ["early"])
    tracker.reexport(source, {"later": "late"}, lazy=True)
    assert jit.lookup("early", "int(int)")(1) == 3
    later = jit.lookup("later", "int(int)")
    assert compiled == []
    assert later(1) == 2 and later(2) == 3 and compiled == [1]
    with pytest.raises(jittison.DuplicateDefinitionError):
        tracker.reexport(source, ["early"])
