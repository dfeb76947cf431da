"""Compiles C with the system's compiler and swaps it while a thread calls it, as the cells of a notebook do.

    python hot_swap.py

Each cell is a new version of one function. The thread never stops, and its next call runs the new version. A version that does
not compile or link changes nothing. The last cell goes back. Nothing of the replaced versions is left in memory.
"""

import subprocess
import tempfile
import threading
import time

import jittison


def compile_c(source: str) -> bytes:
    """The object of a source, by the system's compiler."""
    with tempfile.NamedTemporaryFile(suffix=".o") as file:
        command = ["cc", "-x", "c", "-c", "-O2", "-fPIC", "-", "-o", file.name]
        done = subprocess.run(command, input=source.encode(), capture_output=True)
        if done.returncode:
            raise SyntaxError(done.stderr.decode())
        return file.read()


CELLS = [
    ("identity", "double step(double x) { return x; }"),
    ("square", "double step(double x) { return x * x; }"),
    ("a mistake", "double step(double x) { return x * }"),
    ("a missing symbol", "double nowhere(double); double step(double x) { return nowhere(x); }"),
    ("cube", "double step(double x) { return x * x * x; }"),
]


class Cells:
    """A function that cells replace."""

    def __init__(self, jit: jittison.Jit) -> None:
        self.patchable = jit.patchable(["step"])

    def run(self, title: str, source: str) -> None:
        """Runs one cell."""
        try:
            patch = self.patchable.patch().add_object(compile_c(source), title).expect_signature("step", "double(double)")
            with patch.link() as version:
                # Try it where no caller reaches it.
                trial = version.lookup("step", "double(double)")(3.0)
                committed = version.commit()
            print("[{}] version {}: step(3) = {}".format(title, committed.version, trial))
        except (SyntaxError, jittison.Error) as error:
            print("[{}] refused: {}".format(title, str(error).strip().splitlines()[-1][:100]))


def main() -> None:
    jit = jittison.Jit()
    cells = Cells(jit)
    cells.run(*CELLS[0])
    step = jit.lookup("step", "double(double)")
    seen, stop = {}, threading.Event()

    def call() -> None:
        while not stop.is_set():
            result = step(3.0)
            seen[result] = seen.get(result, 0) + 1

    caller = threading.Thread(target=call)
    caller.start()
    for title, source in CELLS[1:]:
        time.sleep(0.02)
        cells.run(title, source)
    time.sleep(0.02)
    cells.patchable.rollback()
    print("[rollback] step(3) =", step(3.0))
    time.sleep(0.02)
    stop.set()
    caller.join()

    print("the caller saw:", {result: "{} times".format(count) for result, count in sorted(seen.items())})
    print("versions in memory:", [version.version for version in cells.patchable.versions()])
    assert set(seen) == {3.0, 9.0, 27.0} and step(3.0) == 9.0
    del step
    assert all(removal.is_complete for removal in cells.patchable.remove())
    assert jit.memory_statistics().allocations == 0
    print("after the removal:", jit)


if __name__ == "__main__":
    main()
