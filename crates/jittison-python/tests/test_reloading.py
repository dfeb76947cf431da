"""Reloads: an object is replaced while its program runs, and variables keep their values."""

import pytest

import jittison
from conftest import callers

FIRST = "static long state; long number(void) { return 10 + ++state; } long via(void) { return number(); }"
SECOND = """static long state; long number(void) { return 100 + ++state; } long via(void) { return number(); }
            long fresh(void) { return 5; }"""
LARGER = "static long state[9]; long number(void) { return 100 + ++state[8]; } long via(void) { return number(); }"
WITHOUT = "static long state; long number(void) { return nowhere() + ++state; }"


def program(jit, data):
    tracker = jit.main.create_tracker()
    reloader = tracker.reloader()
    reloader.add_object(data, "number.o")
    reloader.link()
    return tracker, reloader


def test_callers_follow_and_variables_keep_their_values(jit, cc):
    _tracker, reloader = program(jit, cc(FIRST))
    assert reloader.objects == ["number.o"]
    via = jit.lookup("via", "long()")
    assert (via(), via()) == (11, 12)
    reload = reloader.reload(cc(SECOND), "number.o")
    assert (reload.object, reload.version, reload.changed, reload.added) == ("number.o", 1, ["number"], ["fresh"])
    assert (reload.removed, reload.new_variables, reload.removed_variables) == ([], [], [])
    assert not reload.constants_changed and not reload.stays
    assert reload.code_bytes > 0 and reload.code_bytes_before > 0
    assert reload.read_time > 0 and reload.link_time > 0 and reload.commit_time > 0
    assert all(removal.is_complete for removal in reload.retired)
    assert via() == 103 and jit.lookup("fresh", "long()")() == 5


def test_the_same_object_changes_nothing(jit, cc):
    _tracker, reloader = program(jit, cc(FIRST))
    reload = reloader.reload(cc(FIRST), "number.o")
    assert (reload.version, reload.changed, reload.added, reload.retired) == (0, [], [], [])


def test_what_cannot_follow_is_named_and_nothing_changes(jit, cc):
    _tracker, reloader = program(jit, cc(FIRST))
    via = jit.lookup("via", "long()")
    with pytest.raises(jittison.PatchError) as caught:
        reloader.reload(cc(LARGER), "number.o")
    assert caught.value.kind == "ReloadRefused" and caught.value.object == "number.o"
    assert caught.value.symbol.startswith("state")
    with pytest.raises(jittison.LinkError) as caught:
        reloader.reload(cc("long nowhere(void); " + WITHOUT), "number.o")
    assert caught.value.root_kind == "SymbolsNotFound" and "`nowhere`" in caught.value.message
    with pytest.raises(jittison.PatchError):
        reloader.reload(cc(SECOND), "other.o")
    assert via() == 11


def test_threads_call_while_an_object_is_reloaded_and_memory_is_flat(jit, cc):
    _tracker, reloader = program(jit, cc("long number(void) { return 0; }"))
    number = jit.lookup("number", "long()")
    versions = [cc("long number(void) { return %d; }" % value) for value in range(2)]
    seen = set()
    with callers(lambda: seen.add(number())):
        for round_ in range(50):
            reloader.reload(versions[(round_ + 1) % 2], "number.o")
    assert seen <= {0, 1} and number() == 0
    # The version that runs, and the first one, which stays.
    assert jit.memory_statistics().allocations <= 4


def test_the_program_stays_when_the_reloader_is_gone_and_goes_with_its_tracker(jit, cc):
    tracker, reloader = program(jit, cc(FIRST))
    reloader.reload(cc(SECOND), "number.o")
    via = jit.lookup("via", "long()")
    del reloader
    assert via() == 101
    del via
    assert tracker.remove().wait(10)
    assert jit.memory_statistics().allocations == 0


def test_objects_are_reloaded_together_or_not_at_all(jit, cc, tmp_path):
    tracker = jit.main.create_tracker()
    reloader = tracker.reloader()
    reloader.add_object(cc("long half(long n) { return n / 2; }"), "half.o")
    reloader.add_object(cc("long half(long n); long run(void) { return half(100); }"), "run.o")
    reloader.link()
    run = jit.lookup("run", "long()")
    assert run() == 50
    half = cc("double half(double n) { return n / 2; }")
    broken = cc("double half(double n); long nowhere(void); long run(void) { return half(9) * 10 + nowhere(); }")
    with pytest.raises(jittison.Error, match="nowhere"):
        reloader.reload_all({"half.o": half, "run.o": broken})
    assert run() == 50
    path = tmp_path / "new.o"
    path.write_bytes(cc("double half(double n); long run(void) { return half(9) * 10; }"))
    reloads = reloader.reload_all({"half.o": half, "run.o": path})
    assert [(reload.object, reload.changed) for reload in reloads] == [("half.o", ["half"]), ("run.o", ["run"])]
    assert run() == 45
