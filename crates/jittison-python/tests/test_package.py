"""The package itself: what it exports, its documentation, its type stubs, its first example."""

import ast
import importlib.metadata
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import jittison

HERE = Path(__file__).resolve().parent
CLASSES = [value for value in vars(jittison).values() if inspect.isclass(value)]


def documented():
    """Every public name: the class, the member."""
    for class_ in CLASSES:
        for name in vars(class_):
            if not name.startswith("_"):
                yield class_, name


def test_everything_public_has_a_help_text():
    assert len(jittison.__doc__) > 500
    missing = [class_.__name__ for class_ in CLASSES if not inspect.getdoc(class_)]
    missing += ["{}.{}".format(class_.__name__, name) for class_, name in documented() if not help_of(class_, name)]
    assert missing == []


def help_of(class_, name):
    if issubclass(class_, jittison.Error):
        return "a field"
    return inspect.getdoc(inspect.getattr_static(class_, name))


def test_help_shows_methods_with_their_parameters():
    import pydoc

    for method, parameters in [
        (jittison.Jit.lookup, ["self", "name", "signature", "dylib"]),
        (jittison.Jit.create_dylib, ["self", "name", "link_order"]),
        (jittison.Tracker.add_object, ["self", "source", "name"]),
        (jittison.Tracker.remove, ["self"]),
    ]:
        assert list(inspect.signature(method).parameters) == parameters
    assert "promises of the program" in pydoc.plain(pydoc.render_doc(jittison.Jit))
    assert "NumPy" in pydoc.plain(pydoc.render_doc(jittison.Function))
    if sys.version_info >= (3, 10):
        assert str(inspect.signature(jittison.Jit)).startswith("(*, memory_budget=None")


def test_type_stubs_have_every_public_name():
    stub = ast.parse((Path(jittison.__file__).parent / "_jittison.pyi").read_text())
    declared = {}
    for node in stub.body:
        if isinstance(node, ast.ClassDef):
            declared[node.name] = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
    for class_, name in documented():
        if not issubclass(class_, Exception) and class_ is not jittison.const:
            assert name in declared[class_.__name__], (class_, name)
    assert (Path(jittison.__file__).parent / "py.typed").exists()


def test_the_names_of_the_package_are_those_that_it_lists():
    public = {name for name in vars(jittison) if not name.startswith("_")} - {"annotations", "atexit", "os", "add_methods"}
    assert public | {"__version__"} == set(jittison.__all__)


def test_the_installed_package_is_the_wheel():
    if "site-packages" not in jittison.__file__:
        pytest.skip("the package is not installed")
    assert importlib.metadata.version("jittison") == jittison.__version__
    files = {str(file) for file in importlib.metadata.files("jittison")}
    assert {"jittison/py.typed", "jittison/_jittison.pyi", "jittison/_jittison.abi3.so"} <= files
    # One wheel for all Pythons.
    tag = [line for line in importlib.metadata.distribution("jittison").read_text("WHEEL").splitlines() if line.startswith("Tag")]
    assert all("cp39-abi3" in line for line in tag)


def test_the_first_example_of_the_readme_runs(tmp_path):
    text = (HERE.parent / "README.md").read_text()
    blocks = re.findall(r"```(\w+)\n(.*?)```", text, re.S)
    shell = next(block for language, block in blocks if language == "sh" and "cc -c" in block)
    program = next(block for language, block in blocks if language == "python")
    (tmp_path / "add.c").write_text(next(block for language, block in blocks if language == "c"))
    subprocess.run(["sh", "-c", shell], cwd=tmp_path, check=True)
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    printed = re.findall(r"# (.+)", "\n".join(line for line in program.splitlines() if "print(" in line))
    assert done.stdout.splitlines() == printed


def test_the_module_needs_nothing_but_the_stable_abi():
    readelf = subprocess.run(["readelf", "--wide", "--dyn-syms", jittison._jittison.__file__], capture_output=True, text=True)
    imported = {line.split()[-1] for line in readelf.stdout.splitlines() if " UND Py" in line or " UND _Py" in line}
    assert "PyObject_GetBuffer" in imported
    assert not {name for name in imported if name.startswith("_Py") and name not in STABLE_WITH_UNDERSCORE}, imported
    libraries = subprocess.run(["readelf", "--wide", "-d", jittison._jittison.__file__], capture_output=True, text=True)
    assert "libpython" not in libraries.stdout


STABLE_WITH_UNDERSCORE = {"_Py_Dealloc", "_Py_NoneStruct", "_Py_TrueStruct", "_Py_FalseStruct", "_Py_NotImplementedStruct", "_Py_EllipsisObject"}
