/* Resource managers, generators and materialisation units of the embedder.
 * Argument: an object with `long via(void)` that returns `supplied() + computed()`. */
#include "check.h"
#include <unistd.h>

/* What the manager of this test owns: counts by key. */
static struct {
    jittison_key key;
    int count;
} records[8];
static int removals, transfers, dropped, materialized, discarded, generated;
static bool fails_removal;

static int *count_of(jittison_key key) {
    size_t index;
    for (index = 0; index < 8; index++) {
        if (records[index].key == key || records[index].key == 0) {
            records[index].key = key;
            return &records[index].count;
        }
    }
    exit(1);
}

static void on_dropped(void *context) { ++*(int *)context; }

static void on_record(jittison_key key, void *context) { *count_of(key) += *(int *)context; }

static jittison_error *on_remove(jittison_key key, void *context) {
    CHECK(context == &dropped);
    removals += *count_of(key);
    *count_of(key) = 0;
    return fails_removal ? jittison_error_create(STR("the device is busy")) : NULL;
}

static void on_transfer(jittison_key destination, jittison_key source, void *context) {
    CHECK(context == &dropped && destination != source);
    transfers++;
    *count_of(destination) += *count_of(source);
    *count_of(source) = 0;
}

static void managers(jittison_session session, jittison_dylib dylib) {
    jittison_manager_callbacks callbacks = {0};
    jittison_manager manager;
    jittison_tracker first, second;
    jittison_session foreign;
    jittison_dylib foreign_dylib;
    jittison_error *error;
    int two = 2, three = 3;

    callbacks.size = sizeof callbacks;
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_manager_create(session, &callbacks, &dropped, &manager));
    callbacks.remove = on_remove;
    callbacks.transfer = on_transfer;
    callbacks.dropped = on_dropped;
    OK(jittison_manager_create(session, &callbacks, &dropped, &manager));
    OK(jittison_tracker_create(dylib, &first));
    OK(jittison_tracker_create(dylib, &second));
    OK(jittison_manager_record(manager, first, on_record, &two));
    OK(jittison_manager_record(manager, second, on_record, &three));
    OK(jittison_manager_record(manager, second, on_record, &three));
    CHECK(records[0].count == 2 && records[1].count == 6);
    OK(jittison_tracker_transfer(first, second));
    CHECK(transfers == 1 && records[0].count == 0 && records[1].count == 8);
    FAILS(JITTISON_ERROR_TRACKER_DEFUNCT, jittison_manager_record(manager, first, on_record, &two));
    OK(jittison_tracker_release(first));
    OK(jittison_session_create(NULL, &foreign));
    OK(jittison_dylib_main(foreign, &foreign_dylib));
    OK(jittison_tracker_create(foreign_dylib, &first));
    FAILS(JITTISON_ERROR_FOREIGN_SESSION, jittison_manager_record(manager, first, on_record, &two));
    CHECK(records[1].count == 8 && records[2].key == 0);
    OK(jittison_dylib_release(foreign_dylib));
    OK(jittison_session_destroy(foreign));
    OK(jittison_tracker_remove(second, NULL));
    CHECK(removals == 8);
    OK(jittison_tracker_release(first));
    OK(jittison_tracker_release(second));

    /* The error of a callback reaches the caller of the removal. */
    fails_removal = true;
    OK(jittison_tracker_create(dylib, &first));
    OK(jittison_manager_record(manager, first, on_record, &two));
    error = jittison_tracker_remove(first, NULL);
    CHECK(jittison_error_code(error) == JITTISON_ERROR_OTHER);
    CHECK(strcmp(jittison_error_message(error).data, "the device is busy") == 0);
    jittison_error_free(error);
    OK(jittison_tracker_release(first));

    OK(jittison_manager_deregister(manager));
    CHECK(dropped == 0);
    OK(jittison_manager_release(manager));
    CHECK(dropped == 1);
}

static long supplied(void) { return 30; }
static long computed(void) { return 12; }

static uint64_t address_of(long_function function) {
    uint64_t address = 0;
    memcpy(&address, &function, sizeof function);
    return address;
}

static jittison_error *on_generate(jittison_dylib dylib, const jittison_request *requests, size_t count, void *context) {
    jittison_absolute_symbol symbol = {0};
    jittison_tracker tracker;
    jittison_error *error;
    size_t index;

    CHECK(context == &dropped);
    generated++;
    for (index = 0; index < count; index++) {
        jittison_str name = requests[index].name;
        if (name.length == 8 && memcmp(name.data, "supplied", 8) == 0 && requests[index].is_required) {
            symbol.name = name;
            symbol.address = address_of(supplied);
            symbol.flags = JITTISON_SYMBOL_EXPORTED | JITTISON_SYMBOL_CALLABLE;
            error = jittison_tracker_default(dylib, &tracker);
            if (error == NULL) {
                error = jittison_tracker_define_absolute(tracker, &symbol, 1);
                OK(jittison_tracker_release(tracker));
            }
            if (error != NULL) {
                return error;
            }
        }
        if (name.length == 7 && memcmp(name.data, "refused", 7) == 0) {
            return jittison_error_create(STR("the generator refuses"));
        }
    }
    return NULL;
}

static void on_materialize(jittison_responsibility responsibility, void *context) {
    jittison_unit_address address;
    jittison_text *requested = NULL;

    CHECK(context == &dropped);
    materialized++;
    OK(jittison_responsibility_requested(responsibility, &requested));
    CHECK(strcmp(jittison_text_view(requested).data, "computed") == 0);
    jittison_text_free(requested);
    address.name = STR("other");
    address.address = address_of(computed);
    FAILS(JITTISON_ERROR_INTERFACE_MISMATCH, jittison_responsibility_resolve(responsibility, &address, 1));
    address.name = STR("computed");
    OK(jittison_responsibility_resolve(responsibility, &address, 1));
    OK(jittison_responsibility_emit(responsibility, NULL, 0));
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_responsibility_emit(responsibility, NULL, 0));
    OK(jittison_responsibility_release(responsibility));
}

static void on_failing(jittison_responsibility responsibility, void *context) {
    (void)context;
    OK(jittison_responsibility_fail(responsibility, jittison_error_create(STR("no compiler today"))));
    OK(jittison_responsibility_release(responsibility));
}

static void on_discard(jittison_str name, void *context) {
    CHECK(context == &dropped && name.length == 8);
    discarded++;
}

static void units(jittison_session session, jittison_dylib dylib, const char *object) {
    jittison_generator_callbacks generator_callbacks = {0};
    jittison_unit_callbacks callbacks = {0};
    jittison_unit_symbol symbol = {0}, two[2];
    jittison_absolute_symbol strong = {0};
    jittison_generator generator;
    jittison_tracker tracker;
    jittison_function via;
    jittison_error *error;
    uint64_t address;
    bool flag = false;

    dropped = 0;
    generator_callbacks.size = sizeof generator_callbacks;
    generator_callbacks.generate = on_generate;
    generator_callbacks.dropped = on_dropped;
    OK(jittison_generator_create(dylib, &generator_callbacks, &dropped, &generator));
    OK(jittison_tracker_create(dylib, &tracker));
    callbacks.size = sizeof callbacks;
    callbacks.materialize = on_materialize;
    callbacks.discard = on_discard;
    callbacks.dropped = on_dropped;
    symbol.name = STR("computed");
    symbol.flags = JITTISON_SYMBOL_EXPORTED | JITTISON_SYMBOL_CALLABLE;
    OK(jittison_unit_define(tracker, STR("unit"), &symbol, 1, &callbacks, &dropped));
    FAILS(JITTISON_ERROR_DUPLICATE_DEFINITION,
          jittison_unit_define(tracker, STR("again"), &symbol, 1, &callbacks, &dropped));
    CHECK(dropped == 1 && materialized == 0);

    OK(jittison_object_add_file(session, tracker, STR(object)));
    OK(jittison_function_lookup(session, dylib, STR("via"), &via));
    CHECK(call_long(via) == 42 && materialized == 1 && generated >= 1 && dropped == 2);
    OK(jittison_function_release(via));

    error = jittison_address_lookup(session, dylib, STR("refused"), &address);
    CHECK(jittison_error_root_code(error) == JITTISON_ERROR_OTHER);
    CHECK(strstr(jittison_error_message(error).data, "the generator refuses") != NULL);
    jittison_error_free(error);

    /* A unit that fails, and one whose weak symbol is replaced. */
    callbacks.materialize = on_failing;
    symbol.name = STR("unlucky");
    OK(jittison_unit_define(tracker, STR("unlucky unit"), &symbol, 1, &callbacks, &dropped));
    error = jittison_address_lookup(session, dylib, STR("unlucky"), &address);
    CHECK(jittison_error_code(error) == JITTISON_ERROR_FAILED_TO_MATERIALIZE);
    CHECK(strstr(jittison_error_message(error).data, "no compiler today") != NULL);
    jittison_error_free(error);
    symbol.name = STR("weak_one");
    symbol.flags |= JITTISON_SYMBOL_WEAK;
    two[0] = symbol;
    two[1] = symbol;
    two[1].name = STR("weak_two");
    OK(jittison_unit_define(tracker, STR("weak unit"), two, 2, &callbacks, &dropped));
    strong.name = symbol.name;
    strong.address = address_of(supplied);
    strong.flags = JITTISON_SYMBOL_EXPORTED;
    OK(jittison_tracker_define_absolute(tracker, &strong, 1));
    CHECK(discarded == 0);
    FAILS(JITTISON_ERROR_FAILED_TO_MATERIALIZE, jittison_address_lookup(session, dylib, STR("weak_two"), &address));
    CHECK(discarded == 1);

    OK(jittison_generator_remove(generator, dylib, &flag));
    CHECK(flag);
    OK(jittison_generator_remove(generator, dylib, &flag));
    CHECK(!flag);
    OK(jittison_generator_release(generator));
    OK(jittison_tracker_remove(tracker, NULL));
    OK(jittison_tracker_release(tracker));
    CHECK(dropped == 5);
}

/* A unit whose symbol depends on itself and on that of another unit, which depends on it. */
struct ring {
    jittison_dylib dylib;
    const char *name;
    const char *other;
};

static void on_ring(jittison_responsibility responsibility, void *context) {
    const struct ring *ring = context;
    jittison_unit_dependency dependencies[2];
    jittison_unit_address address;

    address.name = STR(ring->name);
    address.address = address_of(computed);
    OK(jittison_responsibility_resolve(responsibility, &address, 1));
    dependencies[0].dylib = dependencies[1].dylib = ring->dylib;
    dependencies[0].name = STR("nowhere");
    FAILS(JITTISON_ERROR_SYMBOLS_NOT_FOUND, jittison_responsibility_emit(responsibility, dependencies, 1));
    dependencies[0].name = STR(ring->name);
    dependencies[1].name = STR(ring->other);
    OK(jittison_responsibility_emit(responsibility, dependencies, 2));
    OK(jittison_responsibility_release(responsibility));
}

static void units_that_depend_on_each_other(jittison_session session, jittison_dylib dylib) {
    struct ring rings[2] = {{dylib, "ping", "pong"}, {dylib, "pong", "ping"}};
    jittison_unit_callbacks callbacks = {0};
    jittison_unit_symbol symbol = {0};
    jittison_tracker trackers[2];
    jittison_removal removal;
    uint64_t address = 0;
    bool flag = false;
    int index;

    callbacks.size = sizeof callbacks;
    callbacks.materialize = on_ring;
    symbol.flags = JITTISON_SYMBOL_EXPORTED | JITTISON_SYMBOL_CALLABLE;
    for (index = 0; index < 2; index++) {
        OK(jittison_tracker_create(dylib, &trackers[index]));
        symbol.name = STR(rings[index].name);
        OK(jittison_unit_define(trackers[index], STR("ring"), &symbol, 1, &callbacks, &rings[index]));
    }
    /* A defect shows as a wait without end. */
    alarm(60);
    OK(jittison_address_lookup(session, dylib, STR("ping"), &address));
    alarm(0);
    CHECK(address == address_of(computed));
    OK(jittison_tracker_remove_all(trackers, 2, &removal));
    OK(jittison_removal_is_complete(removal, &flag));
    CHECK(flag);
    OK(jittison_removal_release(removal));
    OK(jittison_tracker_release(trackers[0]));
    OK(jittison_tracker_release(trackers[1]));
}

int main(int argc, char **argv) {
    jittison_session session;
    jittison_dylib dylib;

    CHECK(argc == 2);
    OK(jittison_session_create(NULL, &session));
    OK(jittison_dylib_main(session, &dylib));
    managers(session, dylib);
    units(session, dylib, argv[1]);
    units_that_depend_on_each_other(session, dylib);
    OK(jittison_dylib_release(dylib));
    OK(jittison_session_destroy(session));
    return 0;
}
