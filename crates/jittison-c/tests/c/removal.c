/* Removal: handles keep code, tickets say what pins it, callbacks come once.
 * Argument: an object with `long one(void)` that returns 1. */
#include "check.h"

static int calls;
static void *seen_context;

static void completed(jittison_error *error, void *context) {
    CHECK(error == NULL);
    calls++;
    seen_context = context;
}

int main(int argc, char **argv) {
    jittison_session session;
    jittison_dylib dylib, other;
    jittison_tracker tracker, second;
    jittison_tracker both[2];
    jittison_function one;
    jittison_removal removal, pending;
    jittison_text *text = NULL;
    void *address = NULL;
    uint64_t bytes = 0, offset = 99;
    size_t count = 0;
    bool flag = true;
    int context = 0;

    CHECK(argc == 2);
    OK(jittison_session_create(NULL, &session));
    OK(jittison_dylib_main(session, &dylib));
    OK(jittison_tracker_create(dylib, &tracker));
    OK(jittison_object_add_file(session, tracker, STR(argv[1])));
    OK(jittison_function_lookup(session, dylib, STR("one"), &one));

    OK(jittison_function_address(one, &address));
    OK(jittison_address_locate(session, (uint64_t)(uintptr_t)address, &text, NULL, NULL, &offset));
    CHECK(strcmp(jittison_text_view(text).data, "one") == 0 && offset == 0);
    jittison_text_free(text);
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_address_locate(session, 8, &text, NULL, NULL, NULL));
    /* Nothing is given out: under valgrind, a text would be a leak. */
    text = NULL;
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT,
          jittison_address_locate(session, (uint64_t)(uintptr_t)address, &text, NULL, NULL, (uint64_t *)((char *)&offset + 1)));
    CHECK(text == NULL);

    FAILS(JITTISON_ERROR_IN_USE, jittison_tracker_try_remove(tracker, NULL));
    OK(jittison_tracker_remove(tracker, &removal));
    OK(jittison_removal_is_complete(removal, &flag));
    CHECK(!flag);
    CHECK(call_long(one) == 1);
    OK(jittison_removal_obstacles(removal, &text));
    CHECK(strstr(jittison_text_view(text).data, "handle") != NULL);
    jittison_text_free(text);
    OK(jittison_removal_bytes(removal, &bytes));
    CHECK(bytes > 0);
    OK(jittison_removal_pending(session, &pending, &count));
    OK(jittison_removal_is_complete(pending, &flag));
    CHECK(count == 1 && !flag);
    OK(jittison_removal_release(pending));
    OK(jittison_removal_wait(removal, 1, &flag));
    CHECK(!flag);
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_removal_on_complete(removal, NULL, NULL));
    OK(jittison_removal_on_complete(removal, completed, &context));
    CHECK(calls == 0);

    /* The name is gone at once, and may be defined again. */
    FAILS(JITTISON_ERROR_SYMBOLS_NOT_FOUND, jittison_address_lookup(session, dylib, STR("one"), &bytes));
    OK(jittison_function_release(one));
    CHECK(calls == 1 && seen_context == &context);
    OK(jittison_removal_wait(removal, JITTISON_FOREVER, NULL));
    OK(jittison_removal_wait(removal, 0, &flag));
    CHECK(flag);
    OK(jittison_removal_on_complete(removal, completed, NULL));
    CHECK(calls == 2 && seen_context == NULL);
    OK(jittison_removal_release(removal));
    FAILS(JITTISON_ERROR_INVALID_HANDLE, jittison_removal_is_complete(removal, &flag));
    OK(jittison_tracker_release(tracker));

    /* One ticket for several trackers: it is complete when all are. */
    OK(jittison_dylib_create(session, STR("other"), &other));
    OK(jittison_tracker_create(dylib, &tracker));
    OK(jittison_tracker_create(other, &second));
    OK(jittison_object_add_file(session, tracker, STR(argv[1])));
    OK(jittison_object_add_file(session, second, STR(argv[1])));
    OK(jittison_address_lookup(session, dylib, STR("one"), &bytes));
    OK(jittison_function_lookup(session, other, STR("one"), &one));
    both[0] = tracker;
    both[1] = second;
    OK(jittison_tracker_remove_all(both, 2, &removal));
    OK(jittison_removal_on_complete(removal, completed, NULL));
    OK(jittison_removal_is_complete(removal, &flag));
    CHECK(!flag && calls == 2);
    OK(jittison_function_release(one));
    OK(jittison_removal_is_complete(removal, &flag));
    CHECK(flag && calls == 3);
    OK(jittison_removal_release(removal));
    OK(jittison_tracker_release(tracker));
    OK(jittison_tracker_release(second));

    /* A dylib that is removed. */
    OK(jittison_dylib_remove(session, other, &removal));
    OK(jittison_removal_wait(removal, JITTISON_FOREVER, &flag));
    CHECK(flag);
    OK(jittison_removal_release(removal));
    FAILS(JITTISON_ERROR_DYLIB_DEFUNCT, jittison_tracker_create(other, &second));
    OK(jittison_dylib_release(other));

    /* A function outlives its session. */
    OK(jittison_tracker_default(dylib, &tracker));
    OK(jittison_object_add_file(session, tracker, STR(argv[1])));
    OK(jittison_function_lookup(session, dylib, STR("one"), &one));
    OK(jittison_session_destroy(session));
    CHECK(call_long(one) == 1);
    OK(jittison_function_release(one));
    FAILS(JITTISON_ERROR_DYLIB_DEFUNCT, jittison_tracker_create(dylib, &second));
    OK(jittison_tracker_release(tracker));
    OK(jittison_dylib_release(dylib));
    return 0;
}
