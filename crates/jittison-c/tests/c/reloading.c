/* Reloads: an object is replaced while its program runs.
 * Arguments: objects with `long number(void)` that counts its calls in a static variable and returns 10 more, and with `long via(void)`
 * that returns what `number` does; the same with 100 more, and with `long fresh(void)` that returns 5; the same with a larger
 * static variable; with `long number(void)` that calls a function that nothing has. */
#include "check.h"

static long fresh_of(jittison_session session, jittison_dylib dylib) {
    jittison_function fresh;
    long value;
    OK(jittison_function_lookup(session, dylib, STR("fresh"), &fresh));
    value = call_long(fresh);
    OK(jittison_function_release(fresh));
    return value;
}

static int has(const jittison_text *text, const char *part) { return strstr(jittison_text_view(text).data, part) != NULL; }

int main(int argc, char **argv) {
    jittison_session session;
    jittison_dylib dylib;
    jittison_tracker tracker;
    jittison_reloader reloader, stale;
    jittison_function via;
    jittison_reload facts;
    jittison_removal retired;
    jittison_text *text = NULL;
    jittison_error *error;
    unsigned char *bytes[4];
    size_t sizes[4];
    int index;
    bool flag = false;

    CHECK(argc == 5);
    for (index = 0; index < 4; index++) {
        bytes[index] = read_file(argv[index + 1], &sizes[index]);
    }
    OK(jittison_session_create(NULL, &session));
    OK(jittison_dylib_main(session, &dylib));
    OK(jittison_tracker_create(dylib, &tracker));
    OK(jittison_reloader_create(session, tracker, &reloader));
    stale.bits = reloader.bits + ((uint64_t)1 << 24);
    FAILS(JITTISON_ERROR_INVALID_HANDLE, jittison_reloader_link(stale));
    OK(jittison_reloader_add_object(reloader, STR("number.o"), bytes[0], sizes[0]));
    FAILS(JITTISON_ERROR_RELOAD_REFUSED, jittison_reloader_add_object(reloader, STR("number.o"), bytes[0], sizes[0]));
    FAILS(JITTISON_ERROR_RELOAD_REFUSED,
          jittison_reloader_reload(reloader, STR("number.o"), bytes[1], sizes[1], NULL, NULL, NULL));
    OK(jittison_reloader_link(reloader));
    OK(jittison_reloader_objects(reloader, &text));
    CHECK(strcmp(jittison_text_view(text).data, "number.o") == 0);
    jittison_text_free(text);
    OK(jittison_function_lookup(session, dylib, STR("via"), &via));
    CHECK(call_long(via) == 11 && call_long(via) == 12);

    /* The same bytes change nothing. */
    memset(&facts, 0xff, sizeof facts);
    facts.size = sizeof facts;
    OK(jittison_reloader_reload(reloader, STR("number.o"), bytes[0], sizes[0], &facts, NULL, NULL));
    CHECK(facts.size == sizeof facts && facts.version == 0 && !facts.is_changed);

    /* Callers follow, and the static variable keeps its value. */
    OK(jittison_reloader_reload(reloader, STR("number.o"), bytes[1], sizes[1], &facts, &text, &retired));
    CHECK(facts.version == 1 && facts.is_changed && facts.code_bytes > 0 && facts.code_bytes_before > 0);
    CHECK(facts.link_ns > 0 && facts.read_ns > 0 && facts.commit_ns > 0);
    CHECK(has(text, "\"changed\":[\"number\"]") && has(text, "\"added\":[\"fresh\"]"));
    CHECK(has(text, "\"removed\":[]") && has(text, "\"constants_changed\":false"));
    jittison_text_free(text);
    OK(jittison_removal_wait(retired, 10000, &flag));
    CHECK(flag);
    OK(jittison_removal_release(retired));
    CHECK(call_long(via) == 103 && fresh_of(session, dylib) == 5);

    /* What cannot follow is named, and nothing changes. */
    error = jittison_reloader_reload(reloader, STR("number.o"), bytes[2], sizes[2], NULL, NULL, NULL);
    CHECK(jittison_error_code(error) == JITTISON_ERROR_RELOAD_REFUSED);
    CHECK(strcmp(jittison_error_object(error).data, "number.o") == 0);
    CHECK(strncmp(jittison_error_symbol(error).data, "state", 5) == 0);
    jittison_error_free(error);
    error = jittison_reloader_reload(reloader, STR("number.o"), bytes[3], sizes[3], NULL, NULL, NULL);
    CHECK(jittison_error_root_code(error) == JITTISON_ERROR_SYMBOLS_NOT_FOUND);
    CHECK(strstr(jittison_error_message(error).data, "nowhere") != NULL);
    jittison_error_free(error);
    FAILS(JITTISON_ERROR_RELOAD_REFUSED,
          jittison_reloader_reload(reloader, STR("other.o"), bytes[1], sizes[1], NULL, NULL, NULL));
    CHECK(call_long(via) == 104);

    /* Out-parameters are checked before anything is done. */
    facts.size = 1;
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT,
          jittison_reloader_reload(reloader, STR("number.o"), bytes[0], sizes[0], &facts, NULL, NULL));
    CHECK(call_long(via) == 105);

    /* Objects are reloaded together, or none of them. */
    {
        jittison_reload_object objects[2];
        objects[0].name = STR("number.o");
        objects[0].bytes = bytes[0];
        objects[0].size = sizes[0];
        objects[1] = objects[0];
        text = NULL;
        FAILS(JITTISON_ERROR_RELOAD_REFUSED, jittison_reloader_reload_all(reloader, objects, 2, &text, NULL));
        objects[1].name = STR("other.o");
        FAILS(JITTISON_ERROR_RELOAD_REFUSED, jittison_reloader_reload_all(reloader, objects, 2, &text, NULL));
        CHECK(text == NULL && call_long(via) == 106);
        objects[1].bytes = NULL;
        FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_reloader_reload_all(reloader, objects, 2, &text, NULL));
        FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_reloader_reload_all(reloader, NULL, 2, &text, NULL));
        OK(jittison_reloader_reload_all(reloader, NULL, 0, &text, NULL));
        CHECK(strcmp(jittison_text_view(text).data, "[]\n") == 0);
        jittison_text_free(text);
        OK(jittison_reloader_reload_all(reloader, objects, 1, &text, &retired));
        CHECK(has(text, "[{\"object\":\"number.o\",\"version\":") && has(text, "\"removed\":[\"fresh\"]"));
        jittison_text_free(text);
        OK(jittison_removal_release(retired));
        CHECK(call_long(via) == 17);
    }

    OK(jittison_reloader_release(reloader));
    FAILS(JITTISON_ERROR_INVALID_HANDLE,
          jittison_reloader_reload(reloader, STR("number.o"), bytes[0], sizes[0], NULL, NULL, NULL));
    CHECK(call_long(via) == 18);
    OK(jittison_function_release(via));
    OK(jittison_tracker_remove(tracker, &retired));
    OK(jittison_removal_wait(retired, 10000, &flag));
    CHECK(flag);
    OK(jittison_removal_release(retired));
    OK(jittison_tracker_release(tracker));
    OK(jittison_dylib_release(dylib));
    OK(jittison_session_destroy(session));
    for (index = 0; index < 4; index++) {
        free(bytes[index]);
    }
    return 0;
}
