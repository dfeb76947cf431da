/* Tools that look at linked code from outside. The files and the list that they read have its names: gdb stops in `stop_here`,
 * which linked code calls.
 * Arguments: "debugger", "map" or "jitdump"; an object with `long linked(long)` that calls `stop_here`. */
#include "check.h"

static volatile long stops;

__attribute__((noinline)) static long stop_here(long number) {
    stops++;
    return number;
}

int main(int argc, char **argv) {
    jittison_session_options options = {0};
    jittison_session session;
    jittison_dylib dylib;
    jittison_tracker tracker;
    jittison_function function;
    jittison_absolute_symbol symbol = {0};
    long (*call_stop)(long) = stop_here;
    long (*linked)(long);
    void *address = NULL;

    CHECK(argc == 3);
    options.size = sizeof options;
    options.debugger = strcmp(argv[1], "debugger") == 0 ? JITTISON_ON : JITTISON_OFF;
    options.profiler = JITTISON_PROFILER_NONE;
    if (strcmp(argv[1], "map") == 0) {
        options.profiler = JITTISON_PROFILER_PERF_MAP;
    } else if (strcmp(argv[1], "jitdump") == 0) {
        options.profiler = JITTISON_PROFILER_JITDUMP;
    }
    OK(jittison_session_create(&options, &session));
    OK(jittison_dylib_main(session, &dylib));
    OK(jittison_tracker_create(dylib, &tracker));
    symbol.name = STR("stop_here");
    memcpy(&symbol.address, &call_stop, sizeof call_stop);
    OK(jittison_tracker_define_absolute(tracker, &symbol, 1));
    OK(jittison_object_add_file(session, tracker, STR(argv[2])));
    OK(jittison_function_lookup(session, dylib, STR("linked"), &function));
    OK(jittison_function_address(function, &address));
    memcpy(&linked, &address, sizeof linked);
    CHECK(linked(6) == 7 && stops == 1);
    printf("%p\n", address);
    OK(jittison_function_release(function));
    OK(jittison_tracker_release(tracker));
    OK(jittison_dylib_release(dylib));
    OK(jittison_session_destroy(session));
    return 0;
}
