/* Initialisers, programs, and measures of code memory.
 * Arguments: an object with an initialiser that sets `state` to 5 and `long read_state(void)`; an object with a `main` that
 * returns 40 + argc. */
#include "check.h"

int main(int argc, char **argv) {
    jittison_session session;
    jittison_dylib dylib, program;
    jittison_tracker tracker, of_program;
    jittison_function state;
    jittison_memory_statistics statistics, after;
    jittison_memory_usage usage;
    jittison_text *map = NULL;
    const char *arguments[2] = {"program", "one"};
    const char *no_arguments[1] = {NULL};
    size_t functions = 0;
    uint64_t bytes = 0;
    int status = 0;
    struct {
        jittison_memory_usage usage;
        uint64_t newer;
    } larger;

    CHECK(argc == 3);
    OK(jittison_session_create(NULL, &session));
    OK(jittison_dylib_main(session, &dylib));
    OK(jittison_tracker_create(dylib, &tracker));
    statistics.size = sizeof statistics;
    OK(jittison_memory_statistics_read(session, &statistics));

    OK(jittison_object_add_file(session, tracker, STR(argv[1])));
    OK(jittison_dylib_initialize(session, dylib, &functions));
    CHECK(functions == 1);
    OK(jittison_function_lookup(session, dylib, STR("read_state"), &state));
    CHECK(call_long(state) == 5);
    OK(jittison_function_release(state));
    OK(jittison_dylib_deinitialize(session, dylib, NULL));
    FAILS(JITTISON_ERROR_NOT_INITIALIZED, jittison_dylib_deinitialize(session, dylib, NULL));

    usage.size = sizeof usage;
    OK(jittison_memory_usage_of_tracker(session, tracker, &usage));
    CHECK(usage.code_bytes > 0 && usage.size == sizeof usage);
    larger.usage.size = sizeof larger;
    larger.newer = 77;
    OK(jittison_memory_usage_of_dylib(session, dylib, &larger.usage));
    CHECK(larger.usage.code_bytes == usage.code_bytes && larger.newer == 0);
    usage.size = offsetof(jittison_memory_usage, read_only_bytes);
    usage.read_only_bytes = 77;
    OK(jittison_memory_usage_of_tracker(session, tracker, &usage));
    CHECK(usage.read_only_bytes == 77 && usage.code_bytes > 0);
    usage.size = 0;
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_memory_usage_of_tracker(session, tracker, &usage));

    OK(jittison_memory_map_text(session, &map));
    CHECK(strstr(jittison_text_view(map).data, "main") != NULL);
    jittison_text_free(map);
    OK(jittison_memory_map_json(session, &map));
    CHECK(jittison_text_view(map).data[0] == '{' && strstr(jittison_text_view(map).data, "\"dylib\":\"main\"") != NULL);
    printf("%s", jittison_text_view(map).data);
    jittison_text_free(map);
    OK(jittison_memory_map_svg(session, &map));
    CHECK(strstr(jittison_text_view(map).data, "</svg>") != NULL);
    jittison_text_free(map);

    OK(jittison_dylib_create(session, STR("program"), &program));
    OK(jittison_tracker_create(program, &of_program));
    OK(jittison_object_add_file(session, of_program, STR(argv[2])));
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT,
          jittison_program_run(session, of_program, STR("main"), 1, no_arguments, &status));
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT,
          jittison_program_run(session, of_program, STR("main"), -1, no_arguments, &status));
    OK(jittison_program_run(session, of_program, STR("main"), 2, arguments, &status));
    CHECK(status == 42);

    OK(jittison_tracker_remove(of_program, NULL));
    OK(jittison_tracker_remove(tracker, NULL));
    OK(jittison_memory_release_free(session, &bytes));
    after.size = sizeof after;
    OK(jittison_memory_statistics_read(session, &after));
    CHECK(after.live_bytes == statistics.live_bytes && after.allocations == statistics.allocations);

    OK(jittison_tracker_release(of_program));
    OK(jittison_tracker_release(tracker));
    OK(jittison_dylib_release(program));
    OK(jittison_dylib_release(dylib));
    OK(jittison_session_destroy(session));
    return 0;
}
