"""Load, call, unload, again and again: memory is flat, in one thread and in a pool of eight.

`.ci/python --full` (JITTISON_FULL=1) makes 100,000 cycles, otherwise there are 16,000.
"""

import gc
import os
from array import array
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from conftest import FULL, compile_object

import jittison

CYCLES = 100_000 if FULL else 16_000
THREADS = 8
SOURCE = """
#include <stddef.h>
extern int host(int);
static int table[64] = {1, 2, 3};
double sum(const double *items, size_t count) { double total = 0; while (count--) total += *items++; return total; }
int work(int n) { return host(n) + table[n & 63] - table[n & 63]; }
"""


def resident_bytes():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def mappings():
    with open("/proc/self/maps") as maps:
        return len(maps.readlines())


def cycle(jit, dylib, data, items, number):
    with dylib.create_tracker() as tracker:
        tracker.define_absolute("host", lambda n: n + 1, "int(int)")
        tracker.add_object(data, "work.o")
        work = jit.lookup("work", "int(int)", dylib=dylib)
        assert work(number) == number + 1
        assert jit.lookup("sum", "double(const double *, size_t)", dylib=dylib)(items, 4) == 10.0
    removal = tracker.removal
    assert not removal.is_complete
    del work
    # Another thread may just be reclaiming what this one waits for.
    assert removal.wait(timeout=60)


def measure(jit):
    gc.collect()
    jit.release_free()
    return resident_bytes(), mappings(), len(gc.get_objects())


def check_flat(jit, before):
    after = measure(jit)
    assert jit.memory_statistics().live_bytes == 0 and jit._kept() == 0 and jit.pending_removals() == []
    grown = [new - old for old, new in zip(before, after)]
    print("after {} cycles: {} resident bytes, {} mappings, {} objects more".format(CYCLES, *grown))
    assert grown[0] < 2 << 20 and grown[1] <= 8 and grown[2] < 200, grown


def test_memory_is_flat_over_cycles_of_load_call_and_unload():
    data, items = compile_object(SOURCE), array("d", [1, 2, 3, 4])
    with jittison.Jit() as jit:
        for number in range(CYCLES // 10):
            cycle(jit, jit.main, data, items, number)
        before = measure(jit)
        for number in range(CYCLES):
            cycle(jit, jit.main, data, items, number)
        check_flat(jit, before)


def test_memory_is_flat_over_cycles_in_a_pool_of_threads():
    data, items = compile_object(SOURCE), array("d", [1, 2, 3, 4])
    with jittison.Jit() as jit, ThreadPoolExecutor(THREADS) as pool:
        dylibs = [jit.create_dylib("thread {}".format(number)) for number in range(THREADS)]

        together = Barrier(THREADS)

        def work(number, count):
            # So that each thread of the pool exists, and takes one part.
            together.wait()
            for round_ in range(count):
                cycle(jit, dylibs[number], data, items, round_)
            return count

        list(pool.map(work, range(THREADS), [CYCLES // 10 // THREADS] * THREADS))
        before = measure(jit)
        done = sum(pool.map(work, range(THREADS), [CYCLES // THREADS] * THREADS))
        assert done == CYCLES
        check_flat(jit, before)


def test_memory_is_flat_over_sessions():
    data = compile_object("int f(int n) { return n + 1; }")

    def session(number):
        with jittison.Jit() as jit:
            jit.main.create_tracker().add_object(data, "f.o")
            assert jit.lookup("f", "int(int)")(number) == number + 1

    rounds = 1000 if FULL else 100
    for number in range(rounds // 4):
        session(number)
    gc.collect()
    before = resident_bytes(), mappings()
    for number in range(rounds):
        session(number)
    gc.collect()
    assert resident_bytes() - before[0] < 2 << 20 and mappings() - before[1] <= 8
