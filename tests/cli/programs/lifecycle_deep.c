/* Ends the program from a deep stack. Its priorities interleave with those of the other objects. */
#include "lifecycle.h"

static int remaining = -1;

void deep(int levels) {
    remaining = levels;
    if (levels == 0)
        exit(42);
    deep(levels - 1);
    say("not reached");
}

__attribute__((constructor(102))) static void deep_up(void) { say("deep up"); }
__attribute__((destructor(102))) static void deep_down(void) { printf("deep down, %d levels left\n", remaining); }
__attribute__((constructor)) static void deep_plain_up(void) { say("deep plain up"); }
__attribute__((destructor)) static void deep_plain_down(void) { say("deep plain down"); }
