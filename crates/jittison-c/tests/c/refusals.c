/* Calls that are refused: an error with its code and place, and nothing else happens.
 * Arguments: an object with `long one(void)`, and one that refers to `nowhere`. */
#include "check.h"

int main(int argc, char **argv) {
    const jittison_session no_session = {0};
    const jittison_dylib no_dylib = {0};
    const jittison_tracker no_tracker = {0};
    jittison_session session, foreign;
    jittison_dylib dylib, foreign_dylib, created;
    jittison_tracker tracker, foreign_tracker, wrong_kind;
    jittison_session_options options;
    jittison_link_entry entry;
    jittison_error *error;
    jittison_str bad, text;
    uint64_t address = 7;
    size_t count;

    CHECK(argc == 3);
    /* NULL is no error. */
    CHECK(jittison_error_code(NULL) == JITTISON_OK && jittison_error_root_code(NULL) == JITTISON_OK);
    CHECK(jittison_error_message(NULL).length == 0 && !jittison_error_is_retriable(NULL));
    jittison_error_free(NULL);
    jittison_text_free(NULL);
    CHECK(jittison_text_view(NULL).length == 0);

    OK(jittison_session_create(NULL, &session));
    OK(jittison_session_create(NULL, &foreign));
    OK(jittison_dylib_main(session, &dylib));
    OK(jittison_dylib_main(foreign, &foreign_dylib));
    OK(jittison_tracker_create(dylib, &tracker));
    OK(jittison_tracker_create(foreign_dylib, &foreign_tracker));

    /* Null handles, handles of another kind, released ones. */
    FAILS(JITTISON_ERROR_INVALID_HANDLE, jittison_dylib_main(no_session, &created));
    FAILS(JITTISON_ERROR_INVALID_HANDLE, jittison_tracker_create(no_dylib, &wrong_kind));
    FAILS(JITTISON_ERROR_INVALID_HANDLE, jittison_tracker_release(no_tracker));
    wrong_kind.bits = dylib.bits;
    FAILS(JITTISON_ERROR_INVALID_HANDLE, jittison_tracker_release(wrong_kind));
    wrong_kind.bits = tracker.bits ^ ((uint64_t)1 << 24);
    FAILS(JITTISON_ERROR_INVALID_HANDLE, jittison_tracker_remove(wrong_kind, NULL));

    /* Out-parameters and strings. */
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_session_create(NULL, NULL));
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_address_lookup(session, dylib, STR("one"), NULL));
    bad.data = NULL;
    bad.length = 3;
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_dylib_create(session, bad, &created));
    bad.data = "\xff\xfe";
    bad.length = 2;
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_dylib_create(session, bad, &created));
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_object_add(session, tracker, STR("null"), NULL, 10));
    FAILS(JITTISON_ERROR_LINK_NOT_AN_OBJECT, jittison_object_add(session, tracker, STR("empty"), NULL, 0));

    /* Options. */
    memset(&options, 0, sizeof options);
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_session_create(&options, &session));
    options.size = sizeof options - 1;
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_session_create(&options, &session));
    options.size = sizeof options;
    options.placement = 77;
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_session_create(&options, &session));

    /* Handles of another session, as Rust refuses them. */
    FAILS(JITTISON_ERROR_FOREIGN_SESSION, jittison_object_add_file(session, foreign_tracker, STR(argv[1])));
    FAILS(JITTISON_ERROR_FOREIGN_SESSION, jittison_address_lookup(session, foreign_dylib, STR("one"), &address));
    FAILS(JITTISON_ERROR_FOREIGN_SESSION, jittison_dylib_initialize(session, foreign_dylib, &count));
    entry.dylib = foreign_dylib;
    entry.visibility = JITTISON_VISIBILITY_ALL;
    entry.reserved = 0;
    FAILS(JITTISON_ERROR_FOREIGN_SESSION, jittison_dylib_add_to_link_order(dylib, &entry, 1));
    entry.visibility = 9;
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_dylib_add_to_link_order(dylib, &entry, 1));
    CHECK(address == 7);

    /* An error names its object and symbol, and its first cause. */
    OK(jittison_object_add_file(session, tracker, STR(argv[2])));
    error = jittison_address_lookup(session, dylib, STR("needs"), &address);
    CHECK(jittison_error_code(error) == JITTISON_ERROR_FAILED_TO_MATERIALIZE);
    CHECK(jittison_error_root_code(error) == JITTISON_ERROR_SYMBOLS_NOT_FOUND);
    CHECK(!jittison_error_is_retriable(error));
    text = jittison_error_message(error);
    CHECK(text.length == strlen(text.data) && strstr(text.data, "nowhere") != NULL);
    CHECK(strcmp(jittison_error_object(error).data, argv[2]) == 0);
    CHECK(strcmp(jittison_error_symbol(error).data, "needs") == 0);
    jittison_error_free(error);
    error = jittison_object_add_file(session, tracker, STR("/no/such/file.o"));
    CHECK(jittison_error_code(error) == JITTISON_ERROR_FILE);
    CHECK(strcmp(jittison_error_object(error).data, "/no/such/file.o") == 0);
    jittison_error_free(error);

    /* After all this the session works. */
    OK(jittison_object_add_file(session, tracker, STR(argv[1])));
    OK(jittison_address_lookup(session, dylib, STR("one"), &address));

    /* Objects that do not fit are refused, and the error says that it is worth another try. */
    options.placement = 0;
    options.memory_budget = 1;
    OK(jittison_tracker_release(foreign_tracker));
    OK(jittison_dylib_release(foreign_dylib));
    OK(jittison_session_destroy(foreign));
    OK(jittison_session_create(&options, &foreign));
    OK(jittison_dylib_main(foreign, &foreign_dylib));
    OK(jittison_tracker_create(foreign_dylib, &foreign_tracker));
    OK(jittison_object_add_file(foreign, foreign_tracker, STR(argv[1])));
    error = jittison_address_lookup(foreign, foreign_dylib, STR("one"), &address);
    CHECK(jittison_error_root_code(error) == JITTISON_ERROR_MEMORY_BUDGET_EXCEEDED);
    CHECK(jittison_error_is_retriable(error));
    jittison_error_free(error);

    OK(jittison_tracker_release(foreign_tracker));
    OK(jittison_dylib_release(foreign_dylib));
    OK(jittison_session_destroy(foreign));
    OK(jittison_tracker_release(tracker));
    OK(jittison_dylib_release(dylib));
    OK(jittison_session_destroy(session));
    return 0;
}
