"""Objects, archives and dylibs: what is added is found, and errors say where they are."""

import subprocess

import pytest

import jittison

ADD = "int add(int a, int b) { return a + b; }"


def test_an_object_is_given_as_bytes_as_a_path_or_as_another_buffer(jit, cc, tmp_path):
    data = cc(ADD)
    path = tmp_path / "add.o"
    path.write_bytes(data)
    for source in (data, bytearray(data), memoryview(data), path, str(path)):
        with jit.main.create_tracker() as tracker:
            tracker.add_object(source)
            assert jit.lookup("add", "int(int, int)")(2, 3) == 5
        assert "add" not in jit.main


def test_an_object_that_is_linked_at_once_is_in_memory_without_a_lookup(jit, tracker, cc):
    tracker.link_object(cc(ADD), "add.o")
    assert tracker.usage.code > 0
    assert tracker.usage.allocations == 1


def test_an_object_is_linked_when_it_is_looked_up(jit, tracker, cc):
    tracker.add_object(cc(ADD), "add.o")
    assert "add" in jit.main and len(jit.main) >= 1
    assert tracker.usage.allocations == 0
    jit.lookup("add", "int(int, int)")
    assert tracker.usage.allocations == 1


def test_objects_find_each_other_and_the_process(jit, tracker, cc):
    tracker.add_object(cc("int square(int n) { return n * n; }"))
    tracker.add_object(cc("#include <string.h>\nint square(int); int f(const char *s) { return square(strlen(s)); }"))
    assert jit.lookup("f", "int(const char *)")(b"four") == 16


@pytest.fixture
def archive(cc, tmp_path):
    members = []
    for name, source in {"one": "int one(void) { return 1; }", "two": "int one(void); int two(void) { return one() + 1; }"}.items():
        (tmp_path / (name + ".o")).write_bytes(cc(source))
        members.append(str(tmp_path / (name + ".o")))
    path = tmp_path / "libnumbers.a"
    subprocess.run(["ar", "rcs", str(path), *members], check=True)
    return path


@pytest.mark.parametrize("given", ["path", "bytes"])
def test_members_of_a_static_library_are_linked_when_they_are_needed(jit, archive, given):
    jit.main.link_static_library(archive if given == "path" else archive.read_bytes())
    with jit.main.create_tracker() as tracker:
        jit.main.set_library_tracker(tracker)
        assert jit.lookup("two", "int(void)")() == 2
        assert tracker.usage.allocations == 2
    assert jit.main.usage.allocations == 0


@pytest.mark.parametrize("given", ["path", "bytes"])
def test_a_whole_archive_goes_under_a_tracker_or_not_at_all(jit, archive, given, cc):
    source = archive if given == "path" else archive.read_bytes()
    with jit.main.create_tracker() as tracker:
        assert tracker.add_archive(source, "libnumbers.a") == 2
        assert jit.lookup("two", "int()")() == 2
    assert "one" not in jit.main
    jit.main.create_tracker().add_object(cc("int two(void) { return 22; }"))
    with jit.main.create_tracker() as tracker:
        with pytest.raises(jittison.DuplicateDefinitionError) as caught:
            tracker.add_archive(source)
        assert "two.o" in caught.value.object
        assert "one" not in jit.main
    with pytest.raises(jittison.LinkError) as caught:
        jit.main.create_tracker().add_archive(b"!<arch>\nbroken", "bad.a")
    assert (caught.value.kind, caught.value.object) == ("Archive", "bad.a")


def test_dylibs_have_names_of_their_own_and_search_their_link_order(jit, cc):
    library = jit.create_dylib("library")
    program = jit.create_dylib("program", [library])
    library.create_tracker().add_object(cc("int value(void) { return 7; }"))
    jit.main.create_tracker().add_object(cc("int value(void) { return 9; }"))
    program.create_tracker().add_object(cc("int value(void); int twice(void) { return 2 * value(); }"))
    assert jit.lookup("twice", "int()", dylib=program)() == 14
    assert jit.lookup("value", "int()")() == 9
    assert [dylib.name for dylib in program.link_order] == ["library", "process"]
    assert [dylib.name for dylib in jit.dylibs()] == ["process", "main", "library", "program"]
    assert library == program.link_order[0] and library != jit.main and len({library, program.link_order[0]}) == 1
    program.remove()
    assert program.is_defunct
    with pytest.raises(jittison.DefunctError):
        program.create_tracker()


def test_a_missing_symbol_is_an_error_with_its_name(jit, tracker, cc):
    tracker.add_object(cc("int missing(void); int f(void) { return missing(); }"), "needy.o")
    with pytest.raises(jittison.SymbolNotFoundError) as caught:
        jit.lookup("nowhere", "int()")
    error = caught.value
    assert (error.kind, error.symbol, error.symbols, error.dylib) == ("SymbolsNotFound", "nowhere", ["nowhere"], "main")
    assert error.message == str(error) and "nowhere" in error.message
    assert isinstance(error, LookupError) and isinstance(error, jittison.Error)
    with pytest.raises(jittison.LinkError) as caught:
        jit.lookup("f", "int()")
    error = caught.value
    assert (error.kind, error.root_kind, error.symbol, error.object) == ("FailedToMaterialize", "SymbolsNotFound", "f", "needy.o")
    assert isinstance(error.__cause__, jittison.SymbolNotFoundError) and error.__cause__.symbol == "missing"


def test_a_malformed_object_is_an_error_with_the_object(tracker):
    with pytest.raises(jittison.LinkError) as caught:
        tracker.add_object(b"this is no object", "bad.o")
    assert (caught.value.kind, caught.value.object) == ("NotAnObject", "bad.o")


def test_an_error_of_a_relocation_has_object_section_offset_and_symbol(jit, tracker, tmp_path):
    source = tmp_path / "far.s"
    source.write_text(".globl f\n.section .far,\"aw\",@progbits\n.short 0\nf: .short faraway\n")
    subprocess.run(["cc", "-c", str(source), "-o", str(tmp_path / "far.o")], check=True)
    tracker.add_object(tmp_path / "far.o", "far.o")
    tracker.define_absolute("faraway", 0x7FFF_FFFF_0000_0000)
    with pytest.raises(jittison.LinkError) as caught:
        jit.address_of("f")
    error = caught.value
    assert (error.root_kind, error.object, error.section, error.offset) == ("OutOfRange", "far.o", ".far", 2)
    assert error.__cause__.symbol == "faraway"


def test_a_second_definition_is_refused(jit, tracker, cc):
    tracker.add_object(cc(ADD), "first.o")
    with pytest.raises(jittison.DuplicateDefinitionError) as caught:
        tracker.add_object(cc(ADD), "second.o")
    assert (caught.value.symbol, caught.value.object, caught.value.dylib) == ("add", "second.o", "main")


def test_a_file_that_is_missing_is_an_error_with_its_path(tracker, tmp_path):
    with pytest.raises(jittison.FileError) as caught:
        tracker.add_object(tmp_path / "none.o")
    assert caught.value.object == str(tmp_path / "none.o")
    assert isinstance(caught.value, OSError)


def test_a_budget_of_memory_is_an_error_that_may_be_retried(cc):
    with jittison.Jit(memory_budget=4096) as jit:
        big = jit.main.create_tracker()
        big.add_object(cc("char big[1 << 20] = {1}; char *f(void) { return big; }"))
        with pytest.raises(jittison.LinkError) as caught:
            jit.lookup("f", "void *()")
        assert (caught.value.root_kind, caught.value.is_retriable) == ("BudgetExceeded", True)
        assert isinstance(caught.value.__cause__, (jittison.CodeMemoryError, MemoryError))


def test_settings_that_are_not_known_are_refused():
    for settings in ({"reclaim": "never"}, {"profiler": "gprof"}):
        with pytest.raises(ValueError):
            jittison.Jit(**settings)
    with pytest.raises(TypeError):
        jittison.Jit(nonsense=1)


def test_dylibs_of_another_session_are_refused(jit):
    with jittison.Jit() as other:
        with pytest.raises(jittison.Error) as caught:
            jit.main.set_link_order([other.main])
        assert caught.value.kind == "ForeignSession"
        with pytest.raises(jittison.Error) as caught:
            jit.lookup("f", "int()", dylib=other.main)
        assert caught.value.kind == "ForeignSession"


def test_initialisers_run_at_the_lookup_and_finalisers_at_the_removal(jit, cc):
    source = """
    static int state; extern void note(int);
    __attribute__((constructor)) static void start(void) { state = 1; note(1); }
    __attribute__((destructor)) static void stop(void) { note(2); }
    int get(void) { return state; }
    """
    seen = []
    host = jit.main.create_tracker()
    host.define_absolute("note", seen.append, "void(int)")
    with jit.main.create_tracker() as tracker:
        tracker.add_object(cc(source))
        assert jit.lookup("get", "int()")() == 1
        assert seen == [1]
    assert seen == [1, 2]


def test_initialize_and_deinitialize_count_as_dlopen_and_dlclose(jit, tracker, cc):
    source = """
    int state; __attribute__((constructor)) static void start(void) { state++; }
    __attribute__((destructor)) static void stop(void) { state--; }
    """
    import ctypes

    tracker.add_object(cc(source))
    assert jit.initialize() == 1
    state = jit.variable("state", ctypes.c_int)
    assert state.value == 1
    assert jit.deinitialize() == 1
    assert state.value == 0
    with pytest.raises(jittison.Error) as caught:
        jit.deinitialize()
    assert caught.value.kind == "NotInitialized"


def test_a_shared_library_is_opened_for_its_symbols(cc):
    with jittison.Jit(libraries=["libm.so.6"]) as jit:
        jit.main.create_tracker().add_object(cc("double cbrt(double); double f(double x) { return cbrt(x); }", "c", "-fno-builtin"))
        assert jit.lookup("f", "double(double)")(27.0) == pytest.approx(3.0)


def test_a_symbol_is_wrapped(cc):
    with jittison.Jit(wrap=["value"]) as jit:
        jit.main.create_tracker().add_object(cc("int value(void) { return 1; }"))
        jit.main.create_tracker().add_object(cc("int __real_value(void); int __wrap_value(void) { return 10 + __real_value(); }"))
        jit.main.create_tracker().add_object(cc("int value(void); int f(void) { return value(); }"))
        assert jit.lookup("f", "int()")() == 11
