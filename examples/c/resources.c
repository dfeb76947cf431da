/* An embedder with a resource manager of its own: what a piece of code registers with the host goes when the code goes.
 *
 * The host has a table of event handlers. A module registers its handlers when it is loaded. The manager records them under the key of
 * the module's tracker. One removal takes the code, and the manager takes the handlers out of the table: no pointer into freed code is
 * left.
 *
 *   cc -c -O2 -fPIC module.c
 *   cc resources.c $(pkg-config --cflags --libs jittison) -o resources
 *   ./resources module.o
 */
#include <inttypes.h>
#include <jittison.h>
#include <stdio.h>
#include <stdlib.h>

/* Prints an error and ends. */
static void check(jittison_error *error) {
    if (error != NULL) {
        fprintf(stderr, "%s\n", jittison_error_message(error).data);
        jittison_error_free(error);
        exit(1);
    }
}

/* ---- the host: a table of handlers -------------------------------------------------------------------------------- */

typedef long (*handler)(long);

enum { HANDLERS = 16 };

struct host {
    struct {
        /* Who registered the handler. 0: the place is free. */
        jittison_key owner;
        handler call;
    } handlers[HANDLERS];
    /* The module that registers handlers now. */
    jittison_key loading;
    jittison_manager manager;
};

static struct host host;

/* Linked code calls this function when it is initialised. */
static void on_event(handler call) {
    int place;
    for (place = 0; place < HANDLERS; place++) {
        if (host.handlers[place].owner == 0) {
            host.handlers[place].owner = host.loading;
            host.handlers[place].call = call;
            return;
        }
    }
}

static void send_event(long value) {
    int place, count = 0;
    long sum = 0;
    for (place = 0; place < HANDLERS; place++) {
        if (host.handlers[place].owner != 0) {
            sum += host.handlers[place].call(value);
            count++;
        }
    }
    printf("event %ld: %d handlers, sum %ld\n", value, count, sum);
}

/* ---- the resource manager ----------------------------------------------------------------------------------------- */

/* The code of a key is about to be freed. */
static jittison_error *remove_handlers(jittison_key key, void *context) {
    int place, count = 0;
    (void)context;
    for (place = 0; place < HANDLERS; place++) {
        if (host.handlers[place].owner == key) {
            host.handlers[place].owner = 0;
            count++;
        }
    }
    printf("removed %d handlers\n", count);
    return NULL;
}

/* What `source` owns belongs to `destination` now. */
static void transfer_handlers(jittison_key destination, jittison_key source, void *context) {
    int place;
    (void)context;
    for (place = 0; place < HANDLERS; place++) {
        if (host.handlers[place].owner == source) {
            host.handlers[place].owner = destination;
        }
    }
}

static void begin_loading(jittison_key key, void *context) { ((struct host *)context)->loading = key; }

/* ---- modules ------------------------------------------------------------------------------------------------------ */

/* A name for an address of this program, for linked code. */
static jittison_absolute_symbol symbol_of(const char *name, void (*function)(handler)) {
    jittison_absolute_symbol symbol = {{NULL, 0}, 0, JITTISON_SYMBOL_EXPORTED | JITTISON_SYMBOL_CALLABLE, 0};
    symbol.name = jittison_str_of(name);
    memcpy(&symbol.address, &function, sizeof function);
    return symbol;
}

/* Loads a module into a dylib of its own, so that modules may have equal names. */
static jittison_tracker load(jittison_session session, const char *name, const char *path) {
    jittison_dylib dylib;
    jittison_tracker tracker;
    jittison_absolute_symbol symbol = symbol_of("on_event", on_event);
    check(jittison_dylib_create(session, jittison_str_of(name), &dylib));
    check(jittison_tracker_create(dylib, &tracker));
    check(jittison_tracker_define_absolute(tracker, &symbol, 1));
    check(jittison_object_add_file(session, tracker, jittison_str_of(path)));
    /* The key cannot be removed while it is handed out. Recording happens when the initialisers run. */
    check(jittison_manager_record(host.manager, tracker, begin_loading, &host));
    check(jittison_dylib_initialize(session, dylib, NULL));
    check(jittison_dylib_release(dylib));
    return tracker;
}

int main(int argc, char **argv) {
    jittison_manager_callbacks callbacks = {sizeof callbacks, remove_handlers, transfer_handlers, NULL, NULL, NULL};
    jittison_session session;
    jittison_tracker first, second;

    if (argc != 2) {
        fprintf(stderr, "usage: resources module.o\n");
        return 2;
    }
    check(jittison_session_create(NULL, &session));
    check(jittison_manager_create(session, &callbacks, NULL, &host.manager));
    send_event(1);
    first = load(session, "first", argv[1]);
    second = load(session, "second", argv[1]);
    send_event(10);

    check(jittison_tracker_remove(first, NULL));
    check(jittison_tracker_release(first));
    send_event(100);

    check(jittison_tracker_remove(second, NULL));
    check(jittison_tracker_release(second));
    send_event(1000);

    check(jittison_manager_release(host.manager));
    check(jittison_session_destroy(session));
    return 0;
}
