"""Removal: names go at once, memory goes when nothing uses it, and the ticket tells."""

import gc
import threading

import pytest

import jittison


def test_a_function_keeps_its_code_after_the_removal(jit, tracker, add):
    removal = tracker.remove()
    assert "add" not in jit.main
    assert not removal.is_complete and removal.obstacles() == ["an owned handle"] and removal.blockers() == (1, 0)
    assert removal.bytes > 0 and removal.age >= 0
    assert add(2, 3) == 5
    assert not removal.wait(timeout=0.01)


def test_the_memory_is_free_when_the_last_function_is_dropped(jit, tracker, cc):
    tracker.add_object(cc("int add(int a, int b) { return a + b; }"))
    first, second = (jit.lookup("add", "int(int, int)") for _ in range(2))
    removal = tracker.remove()
    del first
    assert not removal.is_complete
    del second
    assert removal.is_complete and removal.wait() and removal.obstacles() == []
    assert jit.memory_statistics().allocations == 0


def test_a_tracker_is_removed_at_the_end_of_its_block(jit, cc):
    with pytest.raises(ZeroDivisionError):
        with jit.main.create_tracker() as tracker:
            tracker.add_object(cc("int f(void) { return 1; }"))
            1 / 0
    assert tracker.is_defunct and tracker.removal.is_complete
    assert "f" not in jit.main
    with jit.main.create_tracker() as tracker:
        tracker.remove()
    with jit.main.create_tracker() as source:
        destination = jit.main.create_tracker()
        source.add_object(cc("int f(void) { return 1; }"))
        source.transfer_to(destination)
    assert "f" in jit.main and not destination.is_defunct


def test_a_removal_is_refused_while_a_function_is_held(jit, tracker, add):
    with pytest.raises(jittison.InUseError) as caught:
        tracker.try_remove()
    assert caught.value.holders == ["an owned handle"] and caught.value.dylib == "main"
    assert "add" in jit.main
    del add
    # The fixture holds the function too.


def test_code_that_refers_to_code_keeps_it(jit, cc):
    base, user = jit.main.create_tracker(), jit.main.create_tracker()
    base.add_object(cc("int base(void) { return 20; }"))
    user.add_object(cc("int base(void); int use(void) { return base() + 1; }"))
    use = jit.lookup("use", "int()")
    assert base.dependents() == [user] and user.dependencies() == [base]
    removal = base.remove()
    assert use() == 21 and not removal.is_complete
    del use
    user.remove()
    assert removal.is_complete


def test_a_cascade_removes_dependants_too(jit, cc):
    base, user = jit.main.create_tracker(), jit.main.create_tracker()
    base.add_object(cc("int base(void) { return 20; }"))
    user.add_object(cc("int base(void); int use(void) { return base() + 1; }"))
    jit.lookup("use", "int()")
    removal = base.remove_cascade()
    assert removal.is_complete and user.is_defunct and "use" not in jit.main


def test_a_tracker_that_is_dropped_gives_what_it_owns_to_the_default_tracker(jit, cc):
    tracker = jit.main.create_tracker()
    tracker.add_object(cc("int f(void) { return 3; }"))
    del tracker
    assert jit.lookup("f", "int()")() == 3
    jit.main.default_tracker().remove()
    assert "f" not in jit.main


def test_a_callback_hears_of_the_end_of_a_removal(tracker, jit, cc):
    tracker.add_object(cc("int f(void) { return 3; }"))
    function = jit.lookup("f", "int()")
    removal = tracker.remove()
    heard = []
    removal.on_complete(heard.append)
    assert heard == []
    del function
    assert heard == [None]
    removal.on_complete(heard.append)
    assert heard == [None, None]


def test_a_wait_ends_when_another_thread_drops_the_function(tracker, jit, cc):
    tracker.add_object(cc("int f(void) { return 3; }"))
    held = [jit.lookup("f", "int()")]
    removal = tracker.remove()
    timer = threading.Timer(0.05, held.clear)
    timer.start()
    assert removal.wait(timeout=30)
    timer.join()


def test_pending_removals_are_listed(jit, tracker, add):
    assert jit.pending_removals() == []
    removal = tracker.remove()
    assert [pending.key for pending in jit.pending_removals()] == [removal.key]


def test_removed_code_is_freed_on_demand_under_the_policy_explicit(cc):
    with jittison.Jit(reclaim="explicit") as jit:
        tracker = jit.main.create_tracker()
        tracker.add_object(cc("int f(void) { return 3; }"))
        function = jit.lookup("f", "int()")
        removal = tracker.remove()
        del function
        assert not removal.is_complete
        assert jit.reclaim() == 1 and removal.is_complete


def test_a_session_that_is_closed_refuses_and_leaves_held_functions_alone(cc):
    jit = jittison.Jit()
    jit.main.create_tracker().add_object(cc("int f(void) { return 3; }"))
    function = jit.lookup("f", "int()")
    jit.close()
    jit.close()
    assert function() == 3
    with pytest.raises(jittison.DefunctError):
        jit.main.create_tracker()
    del jit
    gc.collect()
    assert function() == 3


def test_a_function_outlives_every_other_object_of_its_session(cc):
    jit = jittison.Jit()
    jit.main.create_tracker().add_object(cc("int f(int n) { return n + 1; }"))
    function = jit.lookup("f", "int(int)")
    del jit
    gc.collect()
    assert function(1) == 2
