"""Guards, events, hooks of trackers, removal by force, whole programs."""

import ctypes
import subprocess
import threading

import pytest

import jittison

PROTOTYPE = ctypes.CFUNCTYPE(ctypes.c_int)


def test_a_guard_keeps_what_its_thread_found(jit, tracker, cc):
    tracker.add_object(cc("int f(void) { return 3; }"))
    with jit.guard() as guard:
        assert guard.is_entered
        f = PROTOTYPE(guard.address_of("f"))
        removal = tracker.remove()
        assert not removal.is_complete and f() == 3
        with pytest.raises(jittison.SymbolNotFoundError):
            guard.address_of("f")
    assert removal.is_complete and not guard.is_entered


def test_a_refresh_frees_what_was_removed_in_the_block(jit, cc):
    with jit.guard() as guard:
        tracker = jit.main.create_tracker()
        tracker.add_object(cc("int f(void) { return 3; }"))
        guard.address_of("f")
        removal = tracker.remove()
        assert not removal.is_complete
        guard.refresh()
        assert removal.is_complete


def test_a_guard_belongs_to_its_thread(jit):
    guard = jit.guard()
    with pytest.raises(RuntimeError):
        guard.refresh()
    raised = []

    def elsewhere():
        for use in (guard.refresh, lambda: guard.__exit__(None, None, None)):
            try:
                use()
            except RuntimeError as error:
                raised.append(str(error))

    with guard:
        with pytest.raises(RuntimeError):
            guard.__enter__()
        with jit.guard() as inner:
            assert inner.is_entered
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    assert raised == ["the guard is not entered by this thread"] * 2


def test_a_guard_that_is_dropped_in_its_block_is_left(jit):
    guard = jit.guard()
    guard.__enter__()
    removal = jit.main.create_tracker().remove()
    assert not removal.is_complete
    del guard
    assert removal.is_complete
    # A thread that ends in the block leaves the guard too.
    guards = []

    def enter():
        guards.append(jit.guard())
        guards[0].__enter__()

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert jit.main.create_tracker().remove().wait(timeout=30)


def test_events_tell_of_links_and_removals(cc):
    events = []
    with jittison.Jit(on_event=events.append) as jit:
        tracker = jit.main.create_tracker()
        key = tracker.key
        tracker.add_object(cc("int f(void) { return 3; }"), "f.o")
        jit.lookup("f", "int()")
        tracker.remove()
    of_tracker = [event for event in events if event.key == key]
    assert [event.kind for event in of_tracker] == ["resolved", "linked", "published", "retired", "reclaimed"]
    linked = of_tracker[1]
    assert (linked.dylib, linked.name, of_tracker[2].symbols) == ("main", "f.o", ["f"])
    assert linked.bytes > 0 and of_tracker[4].bytes >= linked.bytes
    assert str(linked).startswith("linked: f.o") and repr(linked) == "<jittison.Event: {}>".format(linked)
    assert all("Python" not in (event.dylib or "") for event in events)
    assert {event.kind for event in events} >= {"memory"}


def test_an_exception_of_an_observer_goes_to_the_unraisable_hook(cc, monkeypatch):
    import sys

    heard = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: heard.append(unraisable.exc_type))
    with jittison.Jit(on_event=lambda event: 1 / 0) as jit:
        jit.main.create_tracker().add_object(cc("int f(void) { return 3; }"))
        assert jit.lookup("f", "int()")() == 3
    assert set(heard) == {ZeroDivisionError}


def test_hooks_of_a_tracker_are_called_when_it_is_freed_newest_first(jit, tracker, cc):
    called = []
    tracker.add_object(cc("int f(void) { return 3; }"))
    f = jit.lookup("f", "int()")
    for number in range(3):
        tracker.on_reclaim(lambda number=number: called.append(number))
    destination = jit.main.create_tracker()
    tracker.transfer_to(destination)
    destination.remove()
    assert called == []
    del f
    assert called == [2, 1, 0]
    with pytest.raises(jittison.DefunctError):
        tracker.on_reclaim(lambda: called.append("no"))
    assert called == [2, 1, 0]


def test_hooks_of_a_tracker_are_called_before_its_finalisers(jit, tracker, cc):
    called = []
    jit.main.create_tracker().define_absolute("say", called.append, "void(int)")
    tracker.add_object(cc("void say(int); __attribute__((destructor)) static void stop(void) { say(1); } int f(void) { return 3; }"))
    tracker.on_reclaim(lambda: called.append("hook"))
    jit.lookup("f", "int()")
    tracker.remove()
    assert called == ["hook", 1]


def test_hooks_are_called_when_the_session_is_closed(cc):
    called = []
    jit = jittison.Jit()
    jit.main.default_tracker().on_reclaim(lambda: called.append(1))
    jit.close()
    assert called == [1]


def test_code_that_is_held_is_freed_by_force(jit, tracker, add):
    removal = tracker.remove_now()
    assert removal.is_complete and tracker.is_defunct and tracker.removal.is_complete
    assert jit.memory_statistics().allocations == 0


MAIN = """
#include <string.h>
int twice(int);
static int started;
__attribute__((constructor)) static void start(void) { started = 1; }
int main(int argc, char **argv) {
    return started * 100 + twice(argc) * 10 + (strcmp(argv[argc - 1], "last") == 0) + (argv[argc] == 0);
}
"""
TWICE = "int twice(int n) { return 2 * n; }"


def test_a_program_of_objects_and_archives_runs_with_its_arguments(jit, cc, tmp_path):
    member = tmp_path / "twice.o"
    member.write_bytes(cc(TWICE))
    archive = tmp_path / "libtwice.a"
    subprocess.run(["ar", "rcs", str(archive), str(member)], check=True)
    for library in (archive, str(archive), archive.read_bytes()):
        assert jit.run_program([cc(MAIN), library], ["program", b"one", "last"]) == 162
    # Nothing is left of it.
    assert [dylib.name for dylib in jit.dylibs() if dylib.name.startswith("program")] == []
    assert jit.memory_statistics().allocations == 0
    with pytest.raises(jittison.Error) as caught:
        jit.run_program([cc(MAIN)])
    assert caught.value.root_kind == "SymbolsNotFound" and "twice" in caught.value.message
    with pytest.raises(ValueError):
        jit.run_program([cc(MAIN), archive], ["a\0b"])
    with pytest.raises(OSError):
        jit.run_program([str(tmp_path / "nowhere.o")])


def test_a_tracker_is_run_as_a_program(jit, tracker, cc):
    tracker.add_object(cc(TWICE))
    tracker.add_object(cc("int twice(int); int start(int argc, char **argv) { return twice(argc); }"))
    assert tracker.run_program(["a", "b", "c"], entry="start") == 6
    with pytest.raises(jittison.SymbolNotFoundError):
        tracker.run_program()
