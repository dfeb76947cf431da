/* Sessions, dylibs, objects, lookups, absolute symbols, transfer.
 * Arguments: an object with `long one(void)` that returns 1 and `long via(void)` that calls `one_more()` and `host()`, and an
 * object with `long one_more(void)` that returns 2. */
#include "check.h"

static long host(void) { return 40; }

int main(int argc, char **argv) {
    jittison_session session;
    jittison_dylib main_dylib, library, again;
    jittison_tracker tracker, other, of_library;
    jittison_function one, via, copy;
    jittison_absolute_symbol symbol;
    jittison_link_entry entry;
    jittison_text *name = NULL;
    jittison_str version;
    size_t size, count = 99;
    uint64_t address = 0;
    void *pointer = NULL;
    bool flag = true;
    unsigned char *bytes;
    long (*host_pointer)(void) = host;

    CHECK(argc == 3);
    OK(jittison_library_version(&version));
    CHECK(version.length == strlen(version.data) && version.length >= 5);
    OK(jittison_session_create(NULL, &session));
    OK(jittison_dylib_main(session, &main_dylib));
    OK(jittison_dylib_create(session, STR("library"), &library));
    OK(jittison_dylib_find(session, STR("library"), &again));
    OK(jittison_dylib_name(again, &name));
    CHECK(strcmp(jittison_text_view(name).data, "library") == 0 && jittison_text_view(name).length == 7);
    jittison_text_free(name);
    OK(jittison_dylib_release(again));
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_dylib_find(session, STR("no such"), &again));

    /* The bytes are copied. */
    OK(jittison_tracker_create(main_dylib, &tracker));
    bytes = read_file(argv[1], &size);
    OK(jittison_object_add(session, tracker, STR("first.o"), bytes, size));
    memset(bytes, 0xff, size);
    free(bytes);
    OK(jittison_dylib_symbol_count(main_dylib, &count));
    CHECK(count == 2);

    /* A library that is in the link order, and an absolute symbol. */
    FAILS(JITTISON_ERROR_SYMBOLS_NOT_FOUND, jittison_function_lookup(session, main_dylib, STR("missing"), &via));
    OK(jittison_tracker_create(library, &of_library));
    OK(jittison_object_add_file(session, of_library, STR(argv[2])));
    entry.dylib = library;
    entry.visibility = JITTISON_VISIBILITY_EXPORTED;
    entry.reserved = 0;
    OK(jittison_dylib_add_to_link_order(main_dylib, &entry, 1));
    symbol.name = STR("host");
    symbol.address = 0;
    memcpy(&symbol.address, &host_pointer, sizeof host_pointer);
    symbol.flags = JITTISON_SYMBOL_EXPORTED | JITTISON_SYMBOL_CALLABLE;
    symbol.reserved = 0;
    OK(jittison_tracker_create(main_dylib, &other));
    OK(jittison_tracker_define_absolute(other, &symbol, 1));
    FAILS(JITTISON_ERROR_DUPLICATE_DEFINITION, jittison_tracker_define_absolute(other, &symbol, 1));
    symbol.flags = 0x80;
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_tracker_define_absolute(other, &symbol, 1));
    OK(jittison_dylib_release(main_dylib));
    OK(jittison_dylib_main(session, &main_dylib));
    OK(jittison_dylib_remove_from_link_order(main_dylib, library, &flag));
    CHECK(flag);
    OK(jittison_dylib_remove_from_link_order(main_dylib, library, &flag));
    CHECK(!flag);
    OK(jittison_dylib_set_link_order(main_dylib, &entry, 1));

    /* Linked here, with what it refers to. */
    OK(jittison_function_lookup(session, main_dylib, STR("via"), &via));
    CHECK(call_long(via) == 42);
    OK(jittison_function_release(via));
    OK(jittison_function_lookup(session, main_dylib, STR("one"), &one));
    CHECK(call_long(one) == 1);
    OK(jittison_address_lookup(session, main_dylib, STR("one"), &address));
    OK(jittison_function_address(one, &pointer));
    CHECK(address == (uint64_t)(uintptr_t)pointer);
    OK(jittison_function_clone(one, &copy));
    OK(jittison_function_release(one));
    FAILS(JITTISON_ERROR_INVALID_HANDLE, jittison_function_address(one, &pointer));
    CHECK(call_long(copy) == 1);

    OK(jittison_tracker_is_defunct(tracker, &flag));
    CHECK(!flag);
    OK(jittison_tracker_transfer(other, tracker));
    OK(jittison_tracker_is_defunct(other, &flag));
    CHECK(flag);
    FAILS(JITTISON_ERROR_TRACKER_DEFUNCT, jittison_tracker_transfer(other, tracker));
    FAILS(JITTISON_ERROR_FOREIGN_TRACKER, jittison_tracker_transfer(tracker, of_library));

    OK(jittison_function_release(copy));
    OK(jittison_tracker_release(other));
    OK(jittison_tracker_release(of_library));
    OK(jittison_tracker_release(tracker));
    OK(jittison_dylib_release(library));
    OK(jittison_dylib_release(main_dylib));
    OK(jittison_session_destroy(session));
    FAILS(JITTISON_ERROR_INVALID_HANDLE, jittison_session_destroy(session));
    return 0;
}
