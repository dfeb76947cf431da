"""Calls: signatures of C text, ctypes and cffi; buffers without a copy; several threads."""

import array
import ctypes
import gc
import threading

import pytest

import jittison
from jittison.signatures import parse

SUM = """
#include <stddef.h>
double sum(const double *items, size_t count) { double total = 0; while (count--) total += *items++; return total; }
void scale(double *items, size_t count, double factor) { while (count--) *items++ *= factor; }
"""


def test_signatures_are_text_as_c_declares_functions(jit, tracker, cc):
    source = """
    #include <stdbool.h>
    #include <stdint.h>
    bool odd(unsigned long long n) { return n & 1; }
    int8_t narrow(int16_t n) { return (int8_t)n; }
    float half(float x) { return x / 2; }
    const char *greet(void) { return "hello"; }
    void *same(void *p) { return p; }
    unsigned char first(const char *text) { return text[0]; }
    long double more(long double x) { return x + 1; }
    void nothing(void) {}
    uint64_t twelve(int a, int b, int c, int d, int e, int f, double g, int h, int i, int j, int k, int l) {
        return a + b + c + d + e + f + (int)g + h + i + j + k + l; }
    """
    tracker.add_object(cc(source))
    look = jit.lookup
    assert look("odd", "bool(unsigned long long n)")(2**63 + 1) is True
    assert look("narrow", "int8_t narrow(int16_t n);")(255) == -1
    assert look("half", "float (*)(float)")(3.0) == 1.5
    assert look("greet", "const char *(void)")() == b"hello"
    assert look("same", "void *(void *)")(12345) == 12345
    assert look("same", "void *(void *)")(None) is None
    assert look("first", "unsigned char(char const *text)")(b"A") == 65
    assert look("more", "long double(long double)")(1.0) == 2.0
    assert look("nothing", "void()")() is None
    assert look("twelve", "uint64_t(int,int,int,int,int,int,double,int,int,int,int,int)")(1, 2, 3, 4, 5, 6, 7.0, 8, 9, 10, 11, 12) == 78


@pytest.mark.parametrize(
    "text",
    ["", "int", "int(", "int(int", "integer(int)", "int(struct point)", "int(void, int)", "int(int x y)", "int(...)", "int((*)(int))"],
)
def test_text_that_is_no_signature_is_refused(text):
    with pytest.raises(ValueError) as caught:
        parse(text)
    assert repr(text) in str(caught.value)


def test_spellings_of_one_type_are_one_type():
    for text in ("unsigned long int", "long unsigned", "unsigned long", "const unsigned long"):
        assert parse("void({})".format(text))[1][0].ctype is ctypes.c_ulong
    for text in ("long long int", "signed long long", "long long"):
        assert parse("void({})".format(text))[1][0].ctype is ctypes.c_longlong


def test_signatures_are_prototypes_of_ctypes(jit, tracker, cc):
    class Point(ctypes.Structure):
        _fields_ = [("x", ctypes.c_int), ("y", ctypes.c_int)]

    source = """
    struct point { int x, y; };
    struct point swap(struct point p) { return (struct point){p.y, p.x}; }
    void move(struct point *p, int by) { p->x += by; p->y += by; }
    """
    tracker.add_object(cc(source))
    swap = jit.lookup("swap", ctypes.CFUNCTYPE(Point, Point))
    point = swap(Point(1, 2))
    assert (point.x, point.y) == (2, 1)
    move = jit.lookup("move", ctypes.CFUNCTYPE(None, ctypes.POINTER(Point), ctypes.c_int))
    move(ctypes.byref(point), 10)
    move(ctypes.pointer(point), 10)
    assert (point.x, point.y) == (22, 21)
    points = (Point * 2)(Point(1, 2), Point(3, 4))
    move(points, 1)
    assert points[0].x == 2
    with pytest.raises(TypeError):
        move("text", 1)


def test_signatures_are_types_of_cffi(jit, tracker, cc):
    cffi = pytest.importorskip("cffi")
    ffi = cffi.FFI()
    ffi.cdef("typedef struct { int x, y; } point;")
    source = SUM + "typedef struct { int x, y; } point; int cross(point *p) { return p->x * p->y; }"
    tracker.add_object(cc(source))
    total = jit.lookup("sum", ffi.typeof("double(*)(double *, size_t)"))
    items = array.array("d", [1, 2, 3])
    assert total(items, 3) == 6.0
    assert total(ffi.new("double[]", [1.5, 2.5]), 2) == 4.0
    cross = jit.lookup("cross", ffi.typeof("int(*)(point *)"))
    assert cross(ffi.new("point *", {"x": 6, "y": 7})) == 42
    with pytest.raises(TypeError, match='"f" of 4 bytes'):
        total(array.array("f", [1]), 1)


def test_what_is_no_signature_is_refused(jit, add):
    for signature in (None, 5, int, ctypes.c_int, object()):
        with pytest.raises(TypeError):
            jit.lookup("add", signature)


def test_arrays_are_passed_without_a_copy(jit, tracker, cc):
    tracker.add_object(cc(SUM))
    total = jit.lookup("sum", "double(const double *, size_t)")
    scale = jit.lookup("scale", "void(double *, size_t, double)")
    items = array.array("d", [1, 2, 3])
    assert total(items, 3) == 6.0
    scale(items, 3, 2.0)
    assert list(items) == [2, 4, 6]
    assert total(memoryview(items)[1:], 2) == 10.0
    address_of = jit.lookup("sum", "double(const double *, size_t)").address
    assert address_of == total.address


def test_arrays_of_numpy_are_passed_without_a_copy(jit, tracker, cc):
    numpy = pytest.importorskip("numpy")
    tracker.add_object(cc(SUM + "void *where(void *p) { return p; }"))
    total = jit.lookup("sum", "double(const double *, size_t)")
    scale = jit.lookup("scale", "void(double *, size_t, double)")
    where = jit.lookup("where", "void *(void *)")
    items = numpy.arange(1000, dtype=numpy.float64)
    assert where(items) == items.ctypes.data
    assert total(items, items.size) == items.sum()
    scale(items, items.size, 0.5)
    assert items[999] == 499.5
    matrix = numpy.ones((10, 10))
    assert total(matrix, matrix.size) == 100.0
    with pytest.raises(ValueError, match="contiguous"):
        total(matrix[:, 0], 10)
    with pytest.raises(ValueError, match="contiguous"):
        total(numpy.asfortranarray(numpy.ones((3, 4))), 12)
    with pytest.raises(TypeError, match='"f" of 4 bytes'):
        total(numpy.ones(3, dtype=numpy.float32), 3)
    with pytest.raises(TypeError, match='">d"'):
        total(numpy.ones(3, dtype=">f8"), 3)
    items.flags.writeable = False
    assert total(items, 2) == 0.5
    with pytest.raises(TypeError, match="read-only"):
        scale(items, 2, 1.0)


def test_a_buffer_of_another_type_is_refused(jit, tracker, cc):
    tracker.add_object(cc(SUM + "int top(const int *p) { return *p; } unsigned utop(unsigned *p) { return *p; }"))
    total = jit.lookup("sum", "double(const double *, size_t)")
    for items in (array.array("f", [1]), array.array("q", [1]), b"12345678"):
        with pytest.raises(TypeError, match="argument 1 of `sum`"):
            total(items, 1)
    top = jit.lookup("top", "int(const int *)")
    assert top(array.array("i", [-4])) == -4
    with pytest.raises(TypeError):
        top(array.array("I", [4]))
    assert jit.lookup("utop", "unsigned(unsigned *)")(array.array("I", [4])) == 4


def test_a_buffer_that_is_read_only_needs_a_const_parameter(jit, tracker, cc):
    tracker.add_object(cc("unsigned char first(unsigned char *p) { return *p; }"))
    writes = jit.lookup("first", "unsigned char(unsigned char *)")
    reads = jit.lookup("first", "unsigned char(const unsigned char *)")
    assert writes(bytearray(b"A")) == 65 and reads(b"A") == 65
    with pytest.raises(TypeError, match="read-only"):
        writes(b"A")
    pointer = ctypes.POINTER(ctypes.c_ubyte)
    with pytest.raises(TypeError, match="read-only"):
        jit.lookup("first", ctypes.CFUNCTYPE(ctypes.c_ubyte, pointer))(b"A")
    assert jit.lookup("first", ctypes.CFUNCTYPE(ctypes.c_ubyte, jittison.const(pointer)))(b"A") == 65


def test_a_buffer_is_locked_during_the_call_and_free_after_it(jit, tracker, cc):
    tracker.add_object(cc("void call(char *p, void (*f)(void)) { f(); }"))
    items = bytearray(8)
    seen = []

    pointer = ctypes.CFUNCTYPE(None)

    @jittison.callback(pointer)
    def grow():
        try:
            items.extend(b"more")
        except BufferError:
            seen.append("locked")

    call = jit.lookup("call", ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_char), pointer))
    call(items, grow)
    assert seen == ["locked"]
    items.extend(b"more")
    # Also after an error of another argument.
    with pytest.raises(ctypes.ArgumentError):
        call(items, "no function")
    items.extend(b"more")


def test_wrong_arguments_are_errors_of_python(add):
    for arguments in ((), (1,), (1, "two")):
        with pytest.raises((TypeError, ctypes.ArgumentError)):
            add(*arguments)
    with pytest.raises(TypeError):
        add(1, b=2)


def test_a_function_is_an_argument_of_another(jit, tracker, cc):
    source = """
    #include <stdlib.h>
    int descending(const void *a, const void *b) { return *(const int *)b - *(const int *)a; }
    """
    tracker.add_object(cc(source))
    pointer = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    descending = jit.lookup("descending", pointer)
    items = (ctypes.c_int * 4)(3, 1, 4, 1)
    ctypes.CDLL(None).qsort(items, ctypes.c_size_t(4), ctypes.c_size_t(4), descending)
    assert list(items) == [4, 3, 1, 1]


def test_variables_are_shared_without_a_copy_and_keep_their_code(jit, tracker, cc):
    tracker.add_object(cc("int count = 5; double table[4] = {1, 2, 3, 4}; int next(void) { return ++count; }"))
    step = jit.lookup("next", "int()")
    count = jit.variable("count", ctypes.c_int)
    table = jit.variable("table", ctypes.c_double * 4)
    assert step() == 6 == count.value
    count.value = 40
    assert step() == 41
    view = memoryview(table)
    assert list(table) == [1, 2, 3, 4] and view.nbytes == 32
    removal = tracker.remove()
    del step, count, table
    gc.collect()
    assert not removal.is_complete and view.tobytes() != b""
    view.release()
    del view
    gc.collect()
    assert removal.is_complete


def test_a_thread_local_variable_has_an_address_for_each_thread(jit, tracker, cc):
    tracker.add_object(cc("__thread int mine = 3; int *where(void) { return &mine; }"))
    where = jit.lookup("where", "void *()")
    assert jit.address_of("mine") == where()
    other = []
    thread = threading.Thread(target=lambda: other.append((jit.address_of("mine"), where())))
    thread.start()
    thread.join()
    assert other[0][0] == other[0][1] != where()
    with pytest.raises(jittison.Error, match="thread-local"):
        jit.variable("mine", ctypes.c_int)


def test_several_threads_call_one_function_at_once(jit, tracker, cc):
    # Each waits until all are inside.
    source = """
    #include <stdatomic.h>
    static atomic_int inside;
    int meet(int count) { inside++; for (long i = 0; i < 20000000000; i++) if (inside >= count) return 1; return 0; }
    """
    tracker.add_object(cc(source))
    meet = jit.lookup("meet", "int(int)")
    met = []
    threads = [threading.Thread(target=lambda: met.append(meet(4))) for _ in range(4)]
    for thread in threads:
        thread.start()
    removal = tracker.remove()
    for thread in threads:
        thread.join()
    assert met == [1, 1, 1, 1]
    del meet
    threads.clear()
    assert removal.wait(timeout=30)


def test_the_gil_is_released_while_an_initialiser_runs_in_a_lookup(jit, tracker, cc):
    # The initialiser waits for a thread of Python, which needs the GIL.
    source = """
    #include <time.h>
    volatile int flag; static int saw;
    __attribute__((constructor)) static void start(void) {
        struct timespec moment = {0, 1000000};
        for (int i = 0; i < 30000 && !flag; i++) nanosleep(&moment, 0);
        saw = flag;
    }
    int get(void) { return saw; }
    """
    tracker.add_object(cc(source))
    flag = jit.variable("flag", ctypes.c_int)
    started = threading.Event()

    def release():
        started.set()
        flag.value = 1

    timer = threading.Timer(0.05, release)
    timer.start()
    assert jit.lookup("get", "int()")() == 1
    assert started.is_set()


def test_a_thread_links_while_another_thread_of_python_runs(jit, cc):
    # The first object calls back during its initialiser; a second thread links meanwhile.
    inside, linked = threading.Event(), threading.Event()
    outcome = []

    def wait():
        inside.set()
        outcome.append(linked.wait(30))

    host = jit.main.create_tracker()
    host.define_absolute("wait_here", wait, "void()")
    slow = jit.create_dylib("slow", [jit.main])
    slow.create_tracker().add_object(cc("void wait_here(void); __attribute__((constructor)) static void s(void) { wait_here(); } int f(void) { return 1; }"))
    thread = threading.Thread(target=lambda: jit.lookup("f", "int()", dylib=slow))
    thread.start()
    assert inside.wait(30)
    quick = jit.create_dylib("quick")
    quick.create_tracker().link_object(cc("int g(void) { return 2; }"))
    assert jit.address_of("g", dylib=quick) != 0
    linked.set()
    thread.join()
    assert outcome == [True]


def test_an_exception_of_a_callback_is_reported_and_the_call_returns(jit, tracker, cc):
    import sys

    reported = []
    old, sys.unraisablehook = sys.unraisablehook, reported.append
    try:
        tracker.define_absolute("ask", lambda: 1 / 0, "int()")
        tracker.add_object(cc("int ask(void); int f(void) { return ask() + 5; }"))
        assert jit.lookup("f", "int()")() == 5
    finally:
        sys.unraisablehook = old
    assert len(reported) == 1 and reported[0].exc_type is ZeroDivisionError
