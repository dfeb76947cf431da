"""Loads an object, calls a function on arrays, unloads it. What tvm-ffi's orcjit does, without LLVM.

    python load_call_unload.py
"""

import subprocess
import tempfile
from array import array
from pathlib import Path

import jittison

SOURCE = """
#include <stddef.h>
void add(const float *a, const float *b, float *sum, size_t count) {
    for (size_t i = 0; i < count; i++) sum[i] = a[i] + b[i];
}
"""

with tempfile.TemporaryDirectory() as directory:
    object_file = Path(directory) / "add.o"
    subprocess.run(["cc", "-x", "c", "-c", "-O2", "-fPIC", "-", "-o", object_file], input=SOURCE.encode(), check=True)

    jit = jittison.Jit()
    with jit.main.create_tracker() as tracker:
        tracker.add_object(object_file)
        add = jit.lookup("add", "void(const float *, const float *, float *, size_t)")
        # Any objects with a buffer: NumPy's arrays as well. Nothing is copied.
        a, b, total = array("f", [1, 2, 3]), array("f", [10, 20, 30]), array("f", bytes(12))
        add(a, b, total, 3)
        print("sum:", list(total), "in", tracker.usage)

print("unloaded:", "add" not in jit.main, "- still in use:", not tracker.removal.is_complete)
del add
print("memory is free:", tracker.removal.is_complete, "-", jit)
assert list(total) == [11, 22, 33] and tracker.removal.is_complete
