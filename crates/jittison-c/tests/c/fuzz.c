/* Random calls of every function, on handles that are valid, released, forged, null or of another kind. Any code may come back;
 * nothing may crash. Arguments: the number of calls, a seed, an object with `long one(void)`. */
#include "check.h"

enum { SESSION, DYLIB, TRACKER, FUNCTION, REMOVAL, GUARD, CALL, STUB, PATCHABLE, PATCH, MANAGER, GENERATOR, DUTY, KINDS, POOL = 24 };

/* Handles that calls gave out: some are valid, some were released. */
static uint64_t pool[KINDS][POOL];
static uint64_t state;
static unsigned long succeeded, refused;

static uint64_t random_bits(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static size_t below(size_t limit) { return (size_t)(random_bits() % limit); }

/* A handle of a kind: mostly from its pool, else from another pool, with a changed bit, random or null. */
static uint64_t pick(int kind) {
    uint64_t bits = pool[kind][below(POOL)];
    switch (below(16)) {
    case 0: return pool[below(KINDS)][below(POOL)];
    case 1: return bits ^ (uint64_t)1 << below(64);
    case 2: return random_bits();
    case 3: return 0;
    case 4: return ((uint64_t)(kind + 1) << 56) | below(1000) << 24 | below(100);
    default: return bits;
    }
}

static void any(jittison_error *error) {
    if (error == NULL) {
        succeeded++;
    } else {
        refused++;
        CHECK(jittison_error_code(error) != JITTISON_OK && jittison_error_code(error) != JITTISON_ERROR_PANIC);
        CHECK(jittison_error_message(error).length > 0);
        jittison_error_free(error);
    }
}

static void release(int kind, uint64_t bits) {
    jittison_session session = {bits};
    jittison_dylib dylib = {bits};
    jittison_tracker tracker = {bits};
    jittison_function function = {bits};
    jittison_removal removal = {bits};
    jittison_guard guard = {bits};
    jittison_call call = {bits};
    jittison_stub stub = {bits};
    jittison_patchable patchable = {bits};
    jittison_patch patch = {bits};
    jittison_manager manager = {bits};
    jittison_generator generator = {bits};
    jittison_responsibility duty = {bits};
    switch (kind) {
    case SESSION: any(jittison_session_destroy(session)); break;
    case DYLIB: any(jittison_dylib_release(dylib)); break;
    case TRACKER: any(jittison_tracker_release(tracker)); break;
    case FUNCTION: any(jittison_function_release(function)); break;
    case REMOVAL: any(jittison_removal_release(removal)); break;
    case GUARD: any(jittison_guard_leave(guard)); break;
    case CALL: any(jittison_call_leave(call)); break;
    case STUB: any(jittison_stub_release(stub)); break;
    case PATCHABLE: any(jittison_patchable_release(patchable)); break;
    case PATCH: any(jittison_patch_release(patch)); break;
    case MANAGER: any(jittison_manager_release(manager)); break;
    case GENERATOR: any(jittison_generator_release(generator)); break;
    default: any(jittison_responsibility_release(duty)); break;
    }
}

/* Keeps a new handle. Releases the one whose place it takes. */
static void keep(int kind, uint64_t bits) {
    uint64_t *place = &pool[kind][kind == SESSION ? below(2) : below(POOL)];
    if (bits != 0) {
        release(kind, *place);
        *place = bits;
    }
}

static void completed(jittison_error *error, void *context) {
    (void)context;
    jittison_error_free(error);
}

static jittison_str name(void) {
    static const char *names[] = {"one", "two", "main", "", "\xff", "patched"};
    jittison_str text = STR(names[below(6)]);
    if (below(32) == 0) {
        text.data = NULL;
    }
    return text;
}

static jittison_error *on_remove(jittison_key key, void *context) {
    (void)key;
    (void)context;
    return below(4) == 0 ? jittison_error_create(STR("no")) : NULL;
}

static void on_transfer(jittison_key destination, jittison_key source, void *context) {
    (void)context;
    CHECK(destination != source);
}

static void on_record(jittison_key key, void *context) {
    (void)context;
    CHECK(key != 0);
}

static jittison_error *on_generate(jittison_dylib dylib, const jittison_request *requests, size_t count, void *context) {
    (void)context;
    CHECK(dylib.bits != 0 && requests != NULL && count > 0);
    return below(4) == 0 ? jittison_error_create(STR("no")) : NULL;
}

/* Some responsibilities are used rightly, others twice or not at all. Their handles are stale later. */
static void on_materialize(jittison_responsibility duty, void *context) {
    jittison_unit_address address = {STR("two"), 4096};
    (void)context;
    if (below(2)) {
        any(jittison_responsibility_resolve(duty, &address, below(2)));
    }
    if (below(2)) {
        any(jittison_responsibility_emit(duty, NULL, 0));
    }
    if (below(4) == 0) {
        any(jittison_responsibility_fail(duty, below(2) ? jittison_error_create(STR("no")) : NULL));
    }
    any(jittison_responsibility_release(duty));
    pool[DUTY][below(POOL)] = duty.bits;
}

static void step_of_callbacks(void) {
    jittison_session session = {pick(SESSION)};
    jittison_dylib dylib = {pick(DYLIB)};
    jittison_tracker tracker = {pick(TRACKER)};
    jittison_manager manager = {pick(MANAGER)}, new_manager = {0};
    jittison_generator generator = {pick(GENERATOR)}, new_generator = {0};
    jittison_responsibility duty = {pick(DUTY)};
    jittison_manager_callbacks of_manager = {sizeof of_manager, on_remove, on_transfer, NULL};
    jittison_generator_callbacks of_generator = {sizeof of_generator, on_generate, NULL};
    jittison_unit_callbacks of_unit = {sizeof of_unit, on_materialize, NULL, NULL};
    jittison_unit_symbol symbol = {STR("two"), JITTISON_SYMBOL_EXPORTED, 0};
    jittison_unit_address address = {STR("two"), 4096};
    jittison_text *text = NULL;
    bool flag = false;

    switch (below(10)) {
    case 0: any(jittison_manager_create(session, &of_manager, NULL, &new_manager)); break;
    case 1: any(jittison_manager_record(manager, tracker, on_record, NULL)); break;
    case 2: any(jittison_manager_deregister(manager)); break;
    case 3: any(jittison_generator_create(dylib, &of_generator, NULL, &new_generator)); break;
    case 4: any(jittison_generator_remove(generator, dylib, &flag)); break;
    case 5: any(jittison_responsibility_resolve(duty, &address, 1)); break;
    case 6: any(jittison_responsibility_emit(duty, NULL, 0)); break;
    case 7: any(jittison_responsibility_fail(duty, jittison_error_create(STR("no")))); break;
    case 8: any(jittison_responsibility_requested(duty, &text)); break;
    default: any(jittison_unit_define(tracker, STR("unit"), &symbol, 1, &of_unit, NULL)); break;
    }
    jittison_text_free(text);
    keep(MANAGER, new_manager.bits);
    keep(GENERATOR, new_generator.bits);
}

static void step(const unsigned char *object, size_t size) {
    jittison_session session = {pick(SESSION)}, new_session = {0};
    jittison_dylib dylib = {pick(DYLIB)}, other = {pick(DYLIB)}, new_dylib = {0};
    jittison_tracker tracker = {pick(TRACKER)}, destination = {pick(TRACKER)}, new_tracker = {0};
    jittison_function function = {pick(FUNCTION)}, new_function = {0};
    jittison_removal removal = {pick(REMOVAL)}, new_removal = {0};
    jittison_guard guard = {pick(GUARD)}, new_guard = {0};
    jittison_call new_call = {0};
    jittison_stub stub = {pick(STUB)}, new_stub = {0};
    jittison_patchable patchable = {pick(PATCHABLE)}, new_patchable = {0};
    jittison_patch patch = {pick(PATCH)}, new_patch = {0};
    jittison_text *text = NULL;
    jittison_memory_statistics statistics = {0};
    jittison_memory_usage usage = {0};
    jittison_absolute_symbol symbol = {name(), 4096, JITTISON_SYMBOL_EXPORTED, 0};
    jittison_link_entry entry = {other, JITTISON_VISIBILITY_ALL, 0};
    jittison_stub_definition definition = {name(), 4096};
    jittison_alias alias = {name(), name(), JITTISON_SYMBOL_EXPORTED, 0};
    jittison_str patched = STR("patched");
    const char *argument = "program";
    void *address = NULL;
    uint64_t number = 0;
    size_t count = 0;
    bool flag = false;
    int status = 0;
    size_t cut = below(4) == 0 ? below(size) : size;

    statistics.size = below(2) ? sizeof statistics : below(sizeof statistics + 1);
    usage.size = sizeof usage;
    switch (below(52)) {
    case 0:
        if (below(16) == 0) {
            release(SESSION, session.bits);
        }
        break;
    case 1: any(jittison_session_reclaim(session, &count)); break;
    case 2: any(jittison_dylib_main(session, &new_dylib)); break;
    case 3: any(jittison_dylib_process(session, &new_dylib)); break;
    case 4: any(jittison_dylib_create(session, name(), &new_dylib)); break;
    case 5: any(jittison_dylib_find(session, name(), &new_dylib)); break;
    case 6: release(DYLIB, dylib.bits); break;
    case 7: any(jittison_dylib_name(dylib, &text)); break;
    case 8: any(jittison_dylib_symbol_count(dylib, &count)); break;
    case 9: any(jittison_dylib_set_link_order(dylib, &entry, below(2))); break;
    case 10: any(jittison_dylib_add_to_link_order(dylib, &entry, 1)); break;
    case 11: any(jittison_dylib_remove_from_link_order(dylib, other, &flag)); break;
    case 12: any(jittison_dylib_initialize(session, dylib, &count)); break;
    case 13: any(jittison_dylib_deinitialize(session, dylib, &count)); break;
    case 14: any(jittison_dylib_clear(dylib, &new_removal)); break;
    case 15: any(jittison_dylib_remove(session, dylib, &new_removal)); break;
    case 16: any(jittison_tracker_default(dylib, &new_tracker)); break;
    case 17: release(TRACKER, tracker.bits); break;
    case 18: any(jittison_tracker_is_defunct(tracker, &flag)); break;
    case 19: any(jittison_tracker_transfer(tracker, destination)); break;
    case 20: any(jittison_tracker_remove(tracker, &new_removal)); break;
    case 21: any(jittison_tracker_try_remove(tracker, &new_removal)); break;
    case 22: any(jittison_tracker_remove_cascade(tracker, &new_removal)); break;
    case 23: any(jittison_tracker_remove_all(&tracker, 1, &new_removal)); break;
    case 24: any(jittison_tracker_define_absolute(tracker, &symbol, 1)); break;
    case 25: any(jittison_object_add(session, tracker, name(), object, cut)); break;
    case 26: any(jittison_object_link(session, tracker, name(), object, cut)); break;
    case 27: any(jittison_object_add_file(session, tracker, name())); break;
    case 28: any(jittison_archive_add(session, tracker, name(), &count)); break;
    case 29: any(jittison_archive_link(session, dylib, name())); break;
    case 30: any(jittison_address_lookup(session, dylib, name(), &number)); break;
    case 31: any(jittison_function_lookup(session, dylib, name(), &new_function)); break;
    case 32: any(jittison_function_address(function, &address)); break;
    case 33: any(jittison_function_clone(function, &new_function)); break;
    case 34: release(FUNCTION, function.bits); break;
    case 35: any(jittison_guard_enter(session, &new_guard)); break;
    case 36: any(jittison_guard_refresh(guard)); break;
    case 37: any(jittison_guard_lookup(guard, dylib, name(), &address)); break;
    case 38: release(GUARD, guard.bits); break;
    case 39: any(jittison_alias_define(tracker, &alias, 1)); break;
    case 40: any(jittison_alias_reexport(tracker, other, &alias, 1)); break;
    case 41: any(jittison_alias_reexport_lazily(session, tracker, other, &alias, 1)); break;
    case 42: any(jittison_stub_create(session, tracker, &definition, 1)); break;
    case 43: any(jittison_stub_find(session, dylib, name(), &new_stub)); break;
    case 44: any(jittison_stub_redirect(stub, 4096)); break;
    case 45: any(jittison_patchable_create(session, dylib, &patched, 1, NULL, &new_patchable)); break;
    case 46: any(jittison_patchable_rollback(patchable, &number, &new_removal)); break;
    case 47:
        any(jittison_patch_begin(patchable, &new_patch));
        any(jittison_patch_add_object(patch, name(), object, cut));
        any(jittison_patch_require(patch, name()));
        break;
    case 48:
        any(jittison_patch_link(patch));
        any(jittison_patch_lookup(patch, name(), &new_function));
        any(jittison_patch_commit(patch, &number, &new_removal));
        break;
    case 49:
        any(jittison_removal_is_complete(removal, &flag));
        any(jittison_removal_wait(removal, 0, &flag));
        any(jittison_removal_on_complete(removal, completed, NULL));
        any(jittison_removal_bytes(removal, &number));
        any(jittison_removal_obstacles(removal, &text));
        break;
    case 50:
        any(jittison_memory_statistics_read(session, &statistics));
        /* Both take time in proportion to what is linked. */
        if (below(32) == 0) {
            any(jittison_memory_map_json(session, &text));
            any(jittison_address_locate(session, random_bits(), NULL, NULL, NULL, &number));
        }
        any(jittison_removal_pending(session, &new_removal, &count));
        any(jittison_memory_usage_of_tracker(session, tracker, &usage));
        any(jittison_memory_usage_of_dylib(session, dylib, &usage));
        any(jittison_call_enter(session, &new_call));
        any(jittison_call_pass_quiescent_state(session));
        any(jittison_program_run(session, tracker, STR("no such"), 1, &argument, &status));
        break;
    default: any(jittison_tracker_create(dylib, &new_tracker)); break;
    }
    jittison_text_free(text);
    keep(DYLIB, new_dylib.bits);
    keep(TRACKER, new_tracker.bits);
    keep(FUNCTION, new_function.bits);
    keep(REMOVAL, new_removal.bits);
    keep(GUARD, new_guard.bits);
    keep(CALL, new_call.bits);
    keep(STUB, new_stub.bits);
    keep(PATCHABLE, new_patchable.bits);
    keep(PATCH, new_patch.bits);
    if (below(64) == 0) {
        jittison_error *error = jittison_session_create(NULL, &new_session);
        any(error);
        keep(SESSION, new_session.bits);
    }
    pool[SESSION][2 + below(POOL - 2)] = pool[SESSION][below(2)];
}

int main(int argc, char **argv) {
    size_t size = 0;
    unsigned long calls;
    unsigned char *object;
    int kind, place;

    CHECK(argc == 4);
    calls = strtoul(argv[1], NULL, 10);
    state = strtoul(argv[2], NULL, 10) * 2 + 1;
    object = read_file(argv[3], &size);
    while (succeeded + refused < calls) {
        if (below(6) == 0) {
            step_of_callbacks();
        } else {
            step(object, size);
        }
    }
    for (kind = KINDS - 1; kind >= 0; kind--) {
        for (place = 0; place < POOL; place++) {
            release(kind, pool[kind][place]);
        }
    }
    free(object);
    /* Both happen often, else the handles are not mixed well. */
    CHECK(succeeded > calls / 20 && refused > calls / 20);
    printf("%lu calls succeeded, %lu were refused\n", succeeded, refused);
    return 0;
}
