/* The main job of jittison in C: link an object, call a function of it, remove it while it is held, see its memory freed.
 *
 *   cc -c -O2 -fPIC kernel.c
 *   cc main.c $(pkg-config --cflags --libs jittison) -o main
 *   ./main kernel.o
 */
#include <inttypes.h>
#include <jittison.h>
#include <stdio.h>
#include <stdlib.h>

/* Prints an error and ends. Every call that can fail returns one. */
static void check(jittison_error *error) {
    if (error != NULL) {
        fprintf(stderr, "%s\n", jittison_error_message(error).data);
        jittison_error_free(error);
        exit(1);
    }
}

/* Linked code calls this function of the program. */
static long host_log(long value) {
    printf("the kernel computed %ld\n", value);
    return value;
}

static void removed(jittison_error *error, void *context) {
    *(int *)context = 1;
    check(error);
}

static uint64_t live_bytes(jittison_session session) {
    jittison_memory_statistics statistics = {0};
    statistics.size = sizeof statistics;
    check(jittison_memory_statistics_read(session, &statistics));
    return statistics.live_bytes;
}

int main(int argc, char **argv) {
    jittison_session session;
    jittison_dylib dylib;
    jittison_tracker tracker;
    jittison_function function;
    jittison_removal removal;
    jittison_absolute_symbol log_symbol = {0};
    long (*log_pointer)(long) = host_log;
    long (*area)(long, long);
    void *address;
    bool is_complete;
    int is_removed = 0;

    if (argc != 2) {
        fprintf(stderr, "usage: %s kernel.o\n", argv[0]);
        return 2;
    }
    check(jittison_session_create(NULL, &session));
    check(jittison_dylib_main(session, &dylib));
    check(jittison_tracker_create(dylib, &tracker));

    /* What linked code may call, and the object itself. */
    log_symbol.name = jittison_str_of("host_log");
    memcpy(&log_symbol.address, &log_pointer, sizeof log_pointer);
    log_symbol.flags = JITTISON_SYMBOL_EXPORTED | JITTISON_SYMBOL_CALLABLE;
    check(jittison_tracker_define_absolute(tracker, &log_symbol, 1));
    check(jittison_object_add_file(session, tracker, jittison_str_of(argv[1])));

    /* The lookup links it. The handle keeps it in memory. */
    check(jittison_function_lookup(session, dylib, jittison_str_of("area"), &function));
    check(jittison_function_address(function, &address));
    memcpy(&area, &address, sizeof area);
    printf("area(6, 7) = %ld\n", area(6, 7));

    /* Removal takes the names at once, and the memory when the handle is released. */
    check(jittison_tracker_remove(tracker, &removal));
    check(jittison_removal_on_complete(removal, removed, &is_removed));
    check(jittison_removal_is_complete(removal, &is_complete));
    printf("removed, and %s: area(2, 3) = %ld\n", is_complete ? "freed" : "still held", area(2, 3));
    printf("live bytes: %s\n", live_bytes(session) > 0 ? "some" : "none");
    check(jittison_function_release(function));
    check(jittison_removal_is_complete(removal, &is_complete));
    printf("released: %s, live bytes: %" PRIu64 "\n", is_complete && is_removed ? "freed" : "still held",
           live_bytes(session));

    check(jittison_removal_release(removal));
    check(jittison_tracker_release(tracker));
    check(jittison_dylib_release(dylib));
    check(jittison_session_destroy(session));
    return 0;
}
