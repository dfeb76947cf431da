"""The interpreter: its end, garbage cycles, forks. Each program runs in a process of its own."""

import subprocess
import sys
import textwrap

import pytest

from conftest import FULL, compile_object

ROUNDS = 20 if FULL else 4


@pytest.fixture
def run(tmp_path):
    """Runs a program. `OBJECT(name)` in it is the path of an object."""

    def run_program(program, sources=None, status=0, output=None):
        for name, source in (sources or {}).items():
            (tmp_path / (name + ".o")).write_bytes(compile_object(source))
        text = "import jittison, ctypes, gc, threading, time, sys, os\nDIRECTORY = {!r}\n".format(str(tmp_path) + "/")
        text += "def OBJECT(name): return DIRECTORY + name + '.o'\n" + textwrap.dedent(program)
        (tmp_path / "program.py").write_text(text)
        command = [sys.executable, "-X", "faulthandler", str(tmp_path / "program.py")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == status, done.stdout + done.stderr
        if output is not None:
            assert done.stdout.splitlines() == output, done.stderr
        return done

    return run_program


FINISHED = {
    "f": """
    void say(int);
    __attribute__((constructor)) static void start(void) { say(1); }
    __attribute__((destructor)) static void stop(void) { say(2); }
    int f(int n) { return n + 1; }
    """
}


def test_finalisers_call_into_python_when_the_interpreter_exits(run):
    program = """
    jit = jittison.Jit()
    tracker = jit.main.create_tracker()
    tracker.define_absolute("say", lambda n: print("said", n, flush=True), "void(int)")
    tracker.add_object(OBJECT("f"))
    f = jit.lookup("f", "int(int)")
    print(f(1))
    del f
    """
    run(program, FINISHED, output=["said 1", "2", "said 2"])


def test_globals_that_hold_everything_are_no_problem_at_exit(run):
    program = """
    jit = jittison.Jit(worker_threads=2)
    tracker = jit.main.create_tracker()
    tracker.define_absolute("say", lambda n: None, "void(int)")
    tracker.add_object(OBJECT("f"))
    f = jit.lookup("f", "int(int)")
    stub = tracker.create_stub("g", f)
    g = jit.lookup("g", "int(int)")
    kernels = jit.patchable(["h"])
    patch = kernels.patch()
    removal = tracker.remove()
    memory = jit.memory_map()
    forever = [sys.modules["jittison"], f, g, jit]
    forever.append(forever)
    class Last:
        def __del__(self):
            # After the exit handlers: held functions still work, and callbacks are gone.
            print(f(1), g(2), flush=True)
    last = Last()
    """
    for policy in ("", 'gc.disable()', 'import builtins; builtins.kept = forever'):
        run(program + policy + "\n", FINISHED)


def test_a_held_function_works_in_exit_handlers_and_in_finalizers(run):
    program = """
    import atexit
    jit = jittison.Jit()
    tracker = jit.main.create_tracker()
    tracker.add_object(OBJECT("f"))
    f = jit.lookup("f", "int(int)")
    atexit.register(lambda: print("exit", f(1), flush=True))
    class Last:
        def __init__(self, f): self.f = f
        def __del__(self): print("last", self.f(2), flush=True)
    last = Last(f)
    """
    run(program, {"f": "int f(int n) { return n + 1; }"}, output=["exit 2", "last 3"])


# A thread that waits for the GIL gets it during finalization, because a finalizer sleeps.
SLEEPER = """
class Sleeper:
    def __del__(self, sleep=time.sleep): sleep(0.05)
sys.modules['sleeper'] = type(sys)('sleeper')
sys.modules['sleeper'].it = Sleeper()
"""
DAEMONS = SLEEPER + """
jit = jittison.Jit()
data = open(OBJECT("f"), "rb").read()
host = jit.main.create_tracker()
host.define_absolute("say", lambda n: None, "void(int)")
host.define_absolute("ask", lambda n: n, "int(int)")
started = threading.Barrier(5)
base = jit.create_dylib("base", [jit.main])
base.create_tracker().add_object(OBJECT("g"))
shared = jit.lookup("g", "int(int)", dylib=base)
held = jit.create_dylib("held", [jit.main])
tracker = held.create_tracker()
tracker.add_object(OBJECT("g"))
g = jit.lookup("g", "int(int)", dylib=held)
removal = tracker.remove()
def work(number):
    dylib = jit.create_dylib("d%d" % number, [jit.main])
    started.wait()
    while True:
        try:
            BODY
        except jittison.DefunctError:
            pass
for number in range(4):
    threading.Thread(target=work, args=(number,), daemon=True).start()
started.wait()
time.sleep(0.03)
"""
DAEMON_BODIES = {
    "links": 'with dylib.create_tracker() as t: t.add_object(data, "f.o"); f = jit.lookup("f", "int(int)", dylib=dylib); f(1); del f',
    "calls": "shared(3)",
    "waits": "removal.wait(timeout=0.0001)",
    "maps": "jit.memory_map(); jit.main.usage; repr(jit)",
    "callbacks": "shared(-1)",
}


@pytest.mark.parametrize("body", DAEMON_BODIES)
def test_daemon_threads_that_are_at_work_do_not_harm_the_exit(run, body):
    sources = dict(FINISHED, g="int ask(int); int g(int n) { return n < 0 ? ask(n) : n; }")
    for _ in range(ROUNDS):
        run(DAEMONS.replace("BODY", DAEMON_BODIES[body]), sources)


def test_a_daemon_thread_that_is_inside_linked_code_does_not_harm_the_exit(run):
    program = """
    jit = jittison.Jit()
    jit.main.create_tracker().add_object(OBJECT("f"))
    f = jit.lookup("f", "int(int)")
    slow = [threading.Thread(target=f, args=(milliseconds,), daemon=True) for milliseconds in (1, 20, 60, 100, 5000)]
    for thread in slow: thread.start()
    time.sleep(0.05)
    """
    program = SLEEPER + textwrap.dedent(program)
    source = "#include <unistd.h>\nint f(int n) { usleep(n * 1000); return n; }"
    for _ in range(ROUNDS):
        run(program, {"f": source})


def test_a_callback_of_an_initialiser_returns_before_the_interpreter_ends(run):
    program = """
    jit = jittison.Jit()
    inside = threading.Event()
    def say(n):
        inside.set()
        time.sleep(0.03)
    tracker = jit.main.create_tracker()
    tracker.define_absolute("say", say, "void(int)")
    tracker.add_object(OBJECT("f"))
    threading.Thread(target=jit.lookup, args=("f", "int(int)"), daemon=True).start()
    assert inside.wait(30)
    """
    # The lookup fails, because its session has ended. That ends the thread without a word.
    assert run(SLEEPER + textwrap.dedent(program), FINISHED).stderr == ""


def test_a_call_that_fails_in_another_thread_while_the_interpreter_exits_raises_system_exit(run):
    program = """
    import atexit
    jit = jittison.Jit()
    def look():
        time.sleep(0.2)
        try:
            jit.lookup("f", "int(int)")
        except BaseException as error:
            print(type(error).__name__, flush=True)
    late = threading.Thread(target=look, daemon=True)
    # Runs after the exit handler of jittison, which was registered later.
    def last():
        late.join()
        try:
            jit.lookup("f", "int(int)")
        except jittison.Error as error:
            print("here:", type(error).__name__, flush=True)
    atexit.unregister(jittison._jittison._end_all_sessions)
    atexit.register(last)
    atexit.register(jittison._jittison._end_all_sessions)
    late.start()
    """
    done = run(program)
    assert done.stdout.splitlines()[0] == "SystemExit"
    assert done.stdout.splitlines()[1].startswith("here:") and done.stderr == ""


def test_cycles_with_functions_and_sessions_are_collected(run):
    program = """
    import weakref
    def make():
        jit = jittison.Jit()
        tracker = jit.main.create_tracker()
        tracker.add_object(OBJECT("f"))
        f = jit.lookup("f", "int(int)")
        class Node: pass
        node = Node()
        node.me, node.held = node, [jit, tracker, f, tracker.dylib]
        node.removal = tracker.remove()
        return weakref.ref(node), weakref.ref(f), weakref.ref(jit)
    for _ in range(20):
        references = make()
        gc.collect()
        assert [reference() for reference in references] == [None] * 3
    print("flat")
    """
    run(program, {"f": "int f(int n) { return n + 1; }"}, output=["flat"])


def test_a_cycle_through_a_callback_ends_with_its_tracker(run):
    program = """
    import weakref
    jit = jittison.Jit()
    def make():
        tracker = jit.main.create_tracker()
        def say(n): return jit, tracker, functions
        tracker.define_absolute("say", say, "void(int)")
        tracker.add_object(OBJECT("f"))
        functions = [jit.lookup("f", "int(int)")]
        return tracker, functions, weakref.ref(say)
    for _ in range(20):
        tracker, functions, say = make()
        gc.collect()
        assert say() is not None and functions[0](1) == 2
        tracker.remove()
        functions.clear()
        del tracker
        gc.collect()
        assert say() is None and jit._kept() == 0
    print("flat")
    """
    run(program, FINISHED, output=["flat"])


def test_the_drop_of_a_function_in_the_collector_runs_finalisers(run):
    program = """
    gc.disable()
    jit = jittison.Jit()
    seen = []
    host = jit.main.create_tracker()
    host.define_absolute("say", seen.append, "void(int)")
    tracker = jit.main.create_tracker()
    tracker.add_object(OBJECT("f"))
    cycle = [jit.lookup("f", "int(int)")]
    cycle.append(cycle)
    removal = tracker.remove()
    del cycle
    assert seen == [1] and not removal.is_complete
    gc.collect()
    assert seen == [1, 2] and removal.is_complete
    """
    run(program, FINISHED)


def test_a_forked_child_goes_on_and_exits(run):
    program = """
    jit = jittison.Jit()
    tracker = jit.main.create_tracker()
    tracker.define_absolute("say", lambda n: None, "void(int)")
    tracker.add_object(OBJECT("f"))
    f = jit.lookup("f", "int(int)")
    child = os.fork()
    assert f(1) == 2
    other = jit.create_dylib("other", [jit.main])
    other.create_tracker().add_object(OBJECT("f"))
    assert jit.lookup("f", "int(int)", dylib=other)(2) == 3
    if child:
        assert os.waitpid(child, 0)[1] == 0
        print("both")
    """
    run(program, FINISHED, output=["both"])


def test_ctrl_c_interrupts_a_wait(run):
    program = """
    import signal
    jit = jittison.Jit()
    tracker = jit.main.create_tracker()
    tracker.add_object(OBJECT("f"))
    f = jit.lookup("f", "int(int)")
    removal = tracker.remove()
    threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    try:
        removal.wait()
    except KeyboardInterrupt:
        print("interrupted")
    """
    run(program, {"f": "int f(int n) { return n + 1; }"}, output=["interrupted"])


def test_an_error_that_no_caller_receives_is_reported(run):
    program = """
    errors = []
    for on_error in (errors.append, None):
        sys.unraisablehook = lambda hooked: errors.append(hooked.exc_value)
        jit = jittison.Jit(worker_threads=1, on_error=on_error)
        kernels = jit.patchable(["f"])
        tracker = jit.main.create_tracker()
        tracker.add_object(OBJECT("f"))
        try: jit.lookup("f", "int(int)")
        except jittison.Error: pass
        jit.close()
    """
    run(program, {"f": "int missing(void); int f(int n) { return missing(); }"})
