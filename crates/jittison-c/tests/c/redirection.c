/* Aliases, lazy functions, stubs and patches.
 * Arguments: objects with `long one(void)` that returns 1; with `long number(void)` that returns 10 and counts in `calls`; with a
 * `number` that counts and returns 19 + calls; with no `number`. */
#include "check.h"

static long hundred(void) { return 100; }

static uint64_t address_of(long_function function) {
    uint64_t address = 0;
    memcpy(&address, &function, sizeof function);
    return address;
}

int main(int argc, char **argv) {
    jittison_session session;
    jittison_dylib dylib, source;
    jittison_tracker tracker, of_source;
    jittison_function function, early;
    jittison_stub stub;
    jittison_stub_definition definition;
    jittison_alias alias;
    jittison_patchable patchable;
    jittison_patchable_options options;
    jittison_patch patch;
    jittison_call call;
    jittison_removal retired;
    jittison_str name = STR("number");
    uint64_t one = 0, again = 0, version = 0;
    size_t size = 0, count = 0;
    unsigned char *bytes;
    bool flag = true;

    CHECK(argc == 5);
    OK(jittison_session_create(NULL, &session));
    OK(jittison_dylib_main(session, &dylib));
    OK(jittison_dylib_create(session, STR("source"), &source));
    OK(jittison_tracker_create(dylib, &tracker));
    OK(jittison_tracker_create(source, &of_source));
    OK(jittison_object_add_file(session, of_source, STR(argv[1])));

    /* A name of another dylib, an alias of it, and a function that is linked at its first call. */
    memset(&alias, 0, sizeof alias);
    alias.name = STR("uno");
    alias.aliasee = STR("one");
    alias.flags = JITTISON_SYMBOL_EXPORTED | JITTISON_SYMBOL_CALLABLE;
    OK(jittison_alias_reexport(tracker, source, &alias, 1));
    FAILS(JITTISON_ERROR_DUPLICATE_DEFINITION, jittison_alias_reexport(tracker, source, &alias, 1));
    alias.name = STR("ein");
    alias.aliasee = STR("uno");
    OK(jittison_alias_define(tracker, &alias, 1));
    OK(jittison_address_lookup(session, dylib, STR("uno"), &one));
    OK(jittison_address_lookup(session, dylib, STR("ein"), &again));
    CHECK(one != 0 && one == again);
    alias.name = STR("lazy_one");
    alias.aliasee = STR("one");
    OK(jittison_alias_reexport_lazily(session, tracker, source, &alias, 1));
    OK(jittison_function_lookup(session, dylib, STR("lazy_one"), &function));
    CHECK(call_long(function) == 1 && call_long(function) == 1);
    OK(jittison_function_release(function));

    /* A stub, and its next target. */
    definition.name = STR("redirectable");
    definition.target = one;
    OK(jittison_stub_create(session, tracker, &definition, 1));
    OK(jittison_function_lookup(session, dylib, STR("redirectable"), &function));
    CHECK(call_long(function) == 1);
    FAILS(JITTISON_ERROR_NO_SUCH_STUB, jittison_stub_find(session, dylib, STR("one"), &stub));
    OK(jittison_stub_find(session, dylib, STR("redirectable"), &stub));
    OK(jittison_stub_redirect(stub, address_of(hundred)));
    CHECK(call_long(function) == 100);
    OK(jittison_stub_release(stub));
    FAILS(JITTISON_ERROR_INVALID_HANDLE, jittison_stub_redirect(stub, one));
    OK(jittison_function_release(function));

    /* Versions of a function. */
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.history = 2;
    OK(jittison_patchable_create(session, dylib, &name, 1, &options, &patchable));
    OK(jittison_patch_begin(patchable, &patch));
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_patch_commit(patch, &version, NULL));
    bytes = read_file(argv[2], &size);
    OK(jittison_patch_add_object(patch, STR("first.o"), bytes, size));
    free(bytes);
    OK(jittison_patch_link(patch));
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_patch_link(patch));
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_patch_add_object_file(patch, STR(argv[2])));
    OK(jittison_patch_commit(patch, &version, NULL));
    CHECK(version == 1);
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_patch_commit(patch, &version, NULL));
    OK(jittison_patch_release(patch));
    OK(jittison_function_lookup(session, dylib, name, &function));
    OK(jittison_call_enter(session, &call));
    CHECK(call_long(function) == 10);
    OK(jittison_call_leave(call));
    FAILS(JITTISON_ERROR_INVALID_HANDLE, jittison_call_leave(call));

    OK(jittison_patch_begin(patchable, &patch));
    OK(jittison_patch_add_object_file(patch, STR(argv[3])));
    OK(jittison_patch_require(patch, name));
    OK(jittison_patch_link(patch));
    OK(jittison_patch_lookup(patch, name, &early));
    CHECK(call_long(early) == 21 && call_long(function) == 10);
    OK(jittison_patch_commit(patch, &version, NULL));
    CHECK(version == 2 && call_long(function) == 23);
    OK(jittison_function_release(early));
    OK(jittison_patch_release(patch));

    /* A version that lacks a function is refused, and callers stay with theirs. */
    OK(jittison_patch_begin(patchable, &patch));
    OK(jittison_patch_add_object_file(patch, STR(argv[4])));
    OK(jittison_patch_require(patch, name));
    FAILS(JITTISON_ERROR_PATCH_REFUSED, jittison_patch_link(patch));
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_patch_link(patch));
    OK(jittison_patch_release(patch));
    CHECK(call_long(function) == 24);

    /* Back to the first version. A call that was entered before keeps the second one. */
    OK(jittison_call_enter(session, &call));
    OK(jittison_patchable_rollback(patchable, &version, &retired));
    CHECK(version == 2 && call_long(function) == 10);
    OK(jittison_removal_is_complete(retired, &flag));
    CHECK(!flag);
    OK(jittison_call_leave(call));
    OK(jittison_removal_is_complete(retired, &flag));
    CHECK(flag);
    OK(jittison_removal_release(retired));
    FAILS(JITTISON_ERROR_NOTHING_TO_ROLL_BACK, jittison_patchable_rollback(patchable, NULL, NULL));
    OK(jittison_call_pass_quiescent_state(session));

    OK(jittison_function_release(function));
    OK(jittison_patchable_remove(patchable, &retired));
    OK(jittison_removal_wait(retired, JITTISON_FOREVER, &flag));
    OK(jittison_removal_release(retired));
    OK(jittison_patch_begin(patchable, &patch));
    OK(jittison_patch_add_object_file(patch, STR(argv[2])));
    FAILS(JITTISON_ERROR_PATCHABLE_GONE, jittison_patch_link(patch));
    OK(jittison_patch_release(patch));
    OK(jittison_patchable_release(patchable));
    OK(jittison_dylib_symbol_count(dylib, &count));
    OK(jittison_tracker_release(of_source));
    OK(jittison_tracker_release(tracker));
    OK(jittison_dylib_release(source));
    OK(jittison_dylib_release(dylib));
    OK(jittison_session_destroy(session));
    return 0;
}
