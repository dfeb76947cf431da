"""Stubs and callbacks: linked code calls functions of Python, and stubs lead elsewhere while threads call them."""

import ctypes
import gc
import threading
import weakref

import pytest

import jittison
from conftest import callers

CALLER = "int ask(int); int f(int n) { return ask(n) + 1; }"


def test_linked_code_calls_functions_of_python(jit, tracker, cc):
    tracker.define_absolute("ask", lambda n: n * 10, "int(int)")
    tracker.add_object(cc(CALLER))
    assert jit.lookup("f", "int(int)")(4) == 41
    assert jit.lookup("ask", "int(int)")(4) == 40


def test_callbacks_are_those_of_ctypes_or_cffi_or_addresses(jit, cc):
    def check(target):
        with jit.main.create_tracker() as tracker:
            tracker.define_absolute("ask", target)
            tracker.add_object(cc(CALLER))
            assert jit.lookup("f", "int(int)")(4) == 41

    callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(lambda n: n * 10)
    check(callback)
    check(ctypes.cast(callback, ctypes.c_void_p).value)
    try:
        import cffi
    except ImportError:
        return
    check(cffi.FFI().callback("int(int)", lambda n: n * 10))


def test_what_is_no_target_is_refused(tracker):
    for target in (None, "text", lambda n: n, 1.5):
        with pytest.raises(TypeError):
            tracker.define_absolute("ask", target)
    with pytest.raises(ValueError):
        tracker.define_absolute("ask", ctypes.CFUNCTYPE(None)(0))


def test_functions_of_libraries_are_targets(jit, tracker, cc):
    tracker.define_absolute("ask", ctypes.CDLL(None).abs)
    tracker.add_object(cc(CALLER))
    assert jit.lookup("f", "int(int)")(-4) == 5


def counted_callback(log, value=10):
    """A Python function, and a weak reference to it."""

    def ask(n):
        log.append(n)
        return n * value

    return ask, weakref.ref(ask)


def test_a_callback_is_kept_as_long_as_code_refers_to_it(jit, cc):
    log = []
    ask, reference = counted_callback(log)
    host, user = jit.main.create_tracker(), jit.main.create_tracker()
    host.define_absolute("ask", ask, "int(int)")
    del ask
    user.add_object(cc(CALLER))
    f = jit.lookup("f", "int(int)")
    removal = host.remove()
    gc.collect()
    assert "ask" not in jit.main and reference() is not None
    assert f(4) == 41
    user.remove()
    assert reference() is not None and f(5) == 51
    del f
    gc.collect()
    assert reference() is None and removal.is_complete and log == [4, 5]
    assert jit._kept() == 0


def test_a_callback_is_kept_while_finalisers_run_that_call_it(jit, cc):
    seen = []
    for same_tracker in (True, False):
        ask, reference = counted_callback(seen)
        host = jit.main.create_tracker()
        host.define_absolute("ask", ask, "int(int)")
        del ask
        user = host if same_tracker else jit.main.create_tracker()
        user.add_object(cc("int ask(int); __attribute__((destructor)) static void stop(void) { ask(7); } int f(void) { return 1; }"))
        assert jit.lookup("f", "int()")() == 1
        host.remove()
        user.remove() if user is not host else None
        gc.collect()
        assert seen == [7] and reference() is None
        seen.clear()


def test_a_callback_that_no_code_refers_to_goes_with_its_tracker(jit):
    ask, reference = counted_callback([])
    with jit.main.create_tracker() as tracker:
        tracker.define_absolute("ask", ask, "int(int)")
        del ask
        gc.collect()
        assert reference() is not None
    gc.collect()
    assert reference() is None and jit._kept() == 0


def test_a_callback_moves_with_a_transfer(jit, cc):
    ask, reference = counted_callback([])
    source, destination = jit.main.create_tracker(), jit.main.create_tracker()
    source.define_absolute("ask", ask, "int(int)")
    del ask
    source.transfer_to(destination)
    with jit.main.create_tracker() as user:
        user.add_object(cc(CALLER))
        assert jit.lookup("f", "int(int)")(4) == 41
    gc.collect()
    assert reference() is not None
    destination.remove()
    gc.collect()
    assert reference() is None


def test_a_stub_leads_to_the_last_target(jit, cc):
    one, two = jit.main.create_tracker(), jit.main.create_tracker()
    one.add_object(cc("int one(int n) { return n + 1; }"))
    two.add_object(cc("int two(int n) { return n + 2; }"))
    tracker = jit.main.create_tracker()
    stub = tracker.create_stub("ask", jit.lookup("one", "int(int)"))
    tracker.add_object(cc(CALLER))
    f = jit.lookup("f", "int(int)")
    assert f(10) == 12
    stub.redirect(jit.lookup("two", "int(int)"))
    assert f(10) == 13
    stub.redirect(lambda n: n + 100, "int(int)")
    assert f(10) == 111
    assert stub.name == "ask" and "ask" in repr(stub)


def test_a_stub_keeps_its_target_and_lets_go_of_the_old_one(jit, cc):
    one, two = jit.main.create_tracker(), jit.main.create_tracker()
    one.add_object(cc("int one(int n) { return n + 1; }"))
    two.add_object(cc("int two(int n) { return n + 2; }"))
    stub = jit.main.create_tracker().create_stub("ask", jit.lookup("one", "int(int)"))
    ask = jit.lookup("ask", "int(int)")
    first, second = one.remove(), two
    assert not first.is_complete and ask(1) == 2
    stub.redirect(jit.lookup("two", "int(int)"))
    assert first.is_complete and ask(1) == 3
    removal = second.remove()
    assert not removal.is_complete and ask(1) == 3
    jit.main.clear()
    assert not removal.is_complete and ask(1) == 3
    del ask, stub
    assert removal.is_complete and jit._kept() == 0


def test_a_target_that_a_thread_is_in_stays_until_the_thread_has_left_it(jit, cc):
    inside, go = threading.Event(), threading.Event()

    def wait(n):
        inside.set()
        go.wait(30)
        return n

    host = jit.main.create_tracker()
    host.define_absolute("wait_here", wait, "int(int)")
    old = jit.main.create_tracker()
    old.add_object(cc("int wait_here(int); int old(int n) { return wait_here(n) + 1; }"))
    stub = host.create_stub("ask", jit.lookup("old", "int(int)"))
    ask = jit.lookup("ask", "int(int)")
    results = []
    thread = threading.Thread(target=lambda: results.append(ask(5)))
    thread.start()
    assert inside.wait(30)
    removal = old.remove()
    stub.redirect(lambda n: 0, "int(int)")
    assert ask(5) == 0
    assert not removal.is_complete, "the thread is inside"
    go.set()
    thread.join()
    assert results == [6]
    assert removal.wait(timeout=30)


def test_threads_call_a_stub_while_it_is_redirected(jit, cc):
    tracker = jit.main.create_tracker()
    stub = tracker.create_stub("ask", lambda n: 0, "int(int)")
    ask = jit.lookup("ask", "int(int)")
    wrong = []

    def call():
        result = ask(3)
        if result not in range(10):
            wrong.append(result)

    with callers(call):
        for number in range(100):
            version = jit.main.create_tracker()
            version.add_object(cc("int version(int n) { return NUMBER; }".replace("NUMBER", str(number % 10))))
            stub.redirect(jit.lookup("version", "int(int)"))
            version.remove()
    assert wrong == []
    # All but the last are gone.
    assert jit.memory_statistics().allocations <= 4


def test_a_name_that_is_taken_makes_no_stub(jit, tracker, add):
    with pytest.raises(jittison.DuplicateDefinitionError):
        tracker.create_stub("add", add)
    assert jit._kept() == 0
    tracker.remove()
    with pytest.raises(jittison.DefunctError):
        tracker.create_stub("other", add)
    assert jit._kept() == 0


def test_a_callback_that_refers_to_its_session_goes_when_the_session_is_closed(cc):
    jit = jittison.Jit()
    ask, reference = counted_callback([])
    ask.session = jit
    jit.main.create_tracker().define_absolute("ask", ask, "int(int)")
    del ask
    jit.close()
    del jit
    gc.collect()
    assert reference() is None
