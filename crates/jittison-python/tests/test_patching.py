"""Patches: functions are replaced as a whole while threads call them, and go back."""

import threading

import pytest

import jittison
from conftest import callers


def scale(factor, more=""):
    return "int calls; int scale(int n) { calls++; return n * FACTOR; } MORE".replace("FACTOR", str(factor)).replace("MORE", more)


def commit(patchable, data):
    return patchable.patch().add_object(data, "scale.o").link().commit()


def test_callers_follow_a_commit_and_a_rollback(jit, cc):
    kernels = jit.patchable(["scale"])
    first = commit(kernels, cc(scale(1)))
    assert (first.version, first.retired) == (1, [])
    function = jit.lookup("scale", "int(int)")
    assert function(7) == 7
    assert commit(kernels, cc(scale(100))).version == 2
    assert function(7) == 700
    undone = kernels.rollback()
    assert undone.version == 2 and [removal.is_complete for removal in undone.retired] == [True]
    assert function(7) == 7
    with pytest.raises(jittison.PatchError) as caught:
        kernels.rollback()
    assert caught.value.kind == "NothingToRollBack"
    assert kernels.functions == ["scale"] and kernels.dylib == jit.main


def test_a_version_is_tried_before_its_commit_and_variables_keep_their_values(jit, cc):
    kernels = jit.patchable(["scale"])
    commit(kernels, cc(scale(1)))
    function = jit.lookup("scale", "int(int)")
    function(1)
    with kernels.patch().add_object(cc(scale(10, "int seen(void) { return calls; }"))).link() as prepared:
        assert prepared.version == 2
        assert prepared.lookup("scale", "int(int)")(5) == 50
        assert prepared.lookup("seen", "int()")() == 2
        assert function(5) == 5
        prepared.commit()
    assert function(5) == 50
    with pytest.raises(RuntimeError):
        prepared.commit()


def test_a_version_that_is_not_committed_goes_at_the_end_of_its_block(jit, cc):
    kernels = jit.patchable(["scale"])
    commit(kernels, cc(scale(1)))
    before = jit.memory_statistics().allocations
    with kernels.patch().add_object(cc(scale(2))).link():
        assert jit.memory_statistics().allocations > before
    assert jit.memory_statistics().allocations == before
    assert [version.version for version in kernels.versions()] == [1]


def test_a_refused_version_changes_nothing(jit, cc):
    kernels = jit.patchable(["scale", "other"])
    both = "int scale(int n) { return n; } int other(int n) { return n; }"
    commit(kernels, cc(both))
    function = jit.lookup("scale", "int(int)")
    with pytest.raises(jittison.PatchError) as caught:
        kernels.patch().add_object(cc("int missing(void); int scale(int n) { return missing(); }"), "bad.o").link()
    error = caught.value
    assert (error.kind, error.root_kind, error.symbols) == ("PatchRefused", "SymbolsNotFound", ["other", "scale"])
    with pytest.raises(jittison.PatchError):
        kernels.patch().add_object(cc(scale(3))).require("other").link()
    kernels.patch().add_object(cc(both)).expect_signature("scale", "int(int)").link().commit()
    with pytest.raises(jittison.PatchError) as caught:
        kernels.patch().add_object(cc(both)).expect_signature("scale", "long(long)").link()
    assert caught.value.root_kind == "WrongSignature"
    assert function(7) == 7


def test_a_replaced_version_stays_until_its_callers_have_left_it(jit, cc):
    inside, go = threading.Event(), threading.Event()

    def wait(n):
        inside.set()
        go.wait(30)
        return n

    jit.main.create_tracker().define_absolute("wait_here", wait, "int(int)")
    kernels = jit.patchable(["scale"], history=0)
    commit(kernels, cc("int wait_here(int); int scale(int n) { return wait_here(n) + 1; }"))
    function = jit.lookup("scale", "int(int)")
    results = []
    thread = threading.Thread(target=lambda: results.append(function(5)))
    thread.start()
    assert inside.wait(30)
    [removal] = commit(kernels, cc(scale(10))).retired
    assert function(5) == 50
    assert not removal.is_complete and "thread" in removal.obstacles()[0]
    retired = [version for version in kernels.versions() if version.is_retired]
    assert [version.version for version in retired] == [1] and retired[0].held_by
    go.set()
    thread.join()
    assert results == [6] and removal.wait(timeout=30)
    assert [version.version for version in kernels.versions()] == [2]


def test_threads_call_while_versions_are_committed(jit, cc):
    # A caller that is not scheduled keeps all versions that are replaced meanwhile.
    kernels = jit.patchable(["scale"], history=0, max_versions=1000)
    # Without a variable, which would keep the version that was the first to define it.
    objects = [cc("int scale(int n) { return n * FACTOR; }".replace("FACTOR", str(factor))) for factor in range(10)]
    commit(kernels, objects[0])
    function = jit.lookup("scale", "int(int)")
    wrong, retired = [], []

    def call():
        result = function(7)
        if result % 7 or not 0 <= result < 70:
            wrong.append(result)

    with callers(call):
        for number in range(200):
            retired += commit(kernels, objects[number % 10]).retired
    assert wrong == [] and len(retired) == 200
    assert all(removal.wait(timeout=30) for removal in retired)


def test_an_object_is_replaced_as_a_whole(jit, cc, tmp_path):
    kernels = jit.add_rebindable(cc(scale(1)), "scale.o")
    user = jit.main.create_tracker()
    user.add_object(cc("int scale(int); int use(int n) { return scale(n) + 1; }"))
    use = jit.lookup("use", "int(int)")
    assert use(7) == 8
    path = tmp_path / "scale.o"
    path.write_bytes(cc(scale(100)))
    assert kernels.replace(path).version == 2
    assert use(7) == 701
    del use
    user.remove()
    assert all(removal.is_complete for removal in kernels.remove())
    assert "scale" not in jit.main
    with pytest.raises(jittison.DefunctError) as caught:
        kernels.replace(path)
    assert caught.value.kind == "PatchableGone"


def test_a_name_that_is_defined_already_is_not_patchable(jit, add):
    with pytest.raises(jittison.PatchError) as caught:
        jit.patchable(["add"])
    assert (caught.value.kind, caught.value.symbol) == ("NotPatchable", "add")


def test_a_patch_is_linked_once(jit, cc):
    patch = jit.patchable(["scale"]).patch().add_object(cc(scale(1)))
    patch.link().commit()
    with pytest.raises(RuntimeError):
        patch.link()
    with pytest.raises(RuntimeError):
        patch.add_object(cc(scale(1)))
