// Throws through frames with cleanups.
#include "exceptions.h"
#include <cstdio>

void fail(int depth, int code) {
    Noisy frame("frame");
    if (depth == 0) throw Problem("depth reached", code);
    fail(depth - 1, code + 1);
    std::puts("not reached");
}

void fail_with_number(int number) { throw number; }

int guarded(int code) {
    try {
        if (code) fail(0, code);
        return 1;
    } catch (const std::logic_error &) {
        return 2;
    } catch (const std::exception &) {
        return 3;
    }
}
