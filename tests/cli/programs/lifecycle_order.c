/* Initialisers and finalisers with priorities, in another object than main. */
#include "lifecycle.h"

#define PAIR(name, ...)                                                                                                \
    __attribute__((constructor __VA_ARGS__)) static void name##_up(void) { say(#name " up"); }                         \
    __attribute__((destructor __VA_ARGS__)) static void name##_down(void) { say(#name " down"); }

PAIR(plain_one)
PAIR(late, (30000))
PAIR(early, (101))
PAIR(plain_two)

static void from_constructor(void) { say("handler registered by a constructor"); }
__attribute__((constructor(500))) static void registers(void) { atexit(from_constructor); }

static void from_finaliser(void) { say("handler registered by a finaliser"); }
__attribute__((destructor)) static void registers_late(void) {
    if (is("finaliser-registers"))
        atexit(from_finaliser);
    if (is("finaliser-exits"))
        exit(23);
}
