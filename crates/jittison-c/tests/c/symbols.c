/* Lookups of several symbols, states, pins, dependencies, link orders, generators that suspend a lookup, responsibilities.
 * Arguments: an object with `long one(void)`; one with `long via(void)` that calls `one`. */
#include "code.h"
#include <pthread.h>

static long two(void) { return 2; }

/* Lookups of several symbols, at once and later. */
static int told;

static void on_found(jittison_error *error, const jittison_found_symbol *found, size_t count, void *context) {
    CHECK(context == &told && error == NULL && count == 2);
    CHECK(found[0].address != 0 && found[0].is_found && !found[1].is_found && found[1].address == 0);
    CHECK((found[0].flags & (JITTISON_SYMBOL_EXPORTED | JITTISON_SYMBOL_CALLABLE)) == 5);
    told++;
}

static void on_missing(jittison_error *error, const jittison_found_symbol *found, size_t count, void *context) {
    (void)found;
    CHECK(context == &told && count == 0 && jittison_error_code(error) == JITTISON_ERROR_SYMBOLS_NOT_FOUND);
    jittison_error_free(error);
    told++;
}

static void lookups(jittison_session session, jittison_dylib dylib, jittison_dylib source) {
    jittison_request requests[2] = {{{NULL, 0}, 1, 0}, {{NULL, 0}, 0, 0}};
    jittison_found_symbol found[2];
    uint32_t state = 9, flags = 0;

    requests[0].name = STR("via");
    requests[1].name = STR("nobody");
    OK(jittison_symbol_state(dylib, STR("via"), &state, &flags));
    CHECK(state == JITTISON_SYMBOL_NEVER_SEARCHED && flags == (JITTISON_SYMBOL_EXPORTED | JITTISON_SYMBOL_CALLABLE));
    OK(jittison_symbol_lookup(dylib, requests, 2, JITTISON_STATE_READY, found));
    CHECK(found[0].is_found && found[0].address != 0 && !found[1].is_found);
    OK(jittison_symbol_state(dylib, STR("via"), &state, NULL));
    CHECK(state == JITTISON_SYMBOL_READY);
    OK(jittison_symbol_state(dylib, STR("nobody"), &state, &flags));
    CHECK(state == JITTISON_SYMBOL_UNKNOWN && flags == 0);
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_symbol_lookup(dylib, requests, 2, 2, found));
    OK(jittison_symbol_lookup_async(session, dylib, requests, 2, JITTISON_STATE_RESOLVED, on_found, &told));
    CHECK(told == 1);
    requests[1].is_required = 1;
    FAILS(JITTISON_ERROR_SYMBOLS_NOT_FOUND, jittison_symbol_lookup(dylib, requests, 2, JITTISON_STATE_READY, found));
    OK(jittison_symbol_lookup_async(session, dylib, requests, 2, JITTISON_STATE_READY, on_missing, &told));
    CHECK(told == 2);
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT,
          jittison_symbol_lookup_async(session, dylib, requests, 2, JITTISON_STATE_READY, NULL, &told));
    OK(jittison_symbol_state(source, STR("spare"), &state, NULL));
    CHECK(state == JITTISON_SYMBOL_READY || state == JITTISON_SYMBOL_NEVER_SEARCHED);
}

/* A pin keeps code; a dependency of a pin keeps more. */
static void pins(jittison_dylib dylib, jittison_tracker tracker, jittison_dylib source, jittison_tracker of_source) {
    jittison_tracker found[2];
    jittison_dylib where;
    jittison_text *name = NULL;
    jittison_removal removal;
    jittison_pin pin;
    uint64_t address = 0, age = 0;
    size_t count = 0, handles = 9, dependants = 9, guards = 9;
    bool is_complete = true;
    long_function via;

    OK(jittison_tracker_dependencies(tracker, found, 2, &count));
    CHECK(count == 1);
    OK(jittison_tracker_dylib(found[0], &where));
    OK(jittison_dylib_name(where, &name));
    CHECK(is_text(jittison_text_view(name), "source"));
    jittison_text_free(name);
    OK(jittison_dylib_release(where));
    OK(jittison_tracker_release(found[0]));
    OK(jittison_tracker_dependents(of_source, NULL, 0, &count));
    CHECK(count == 1);
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_tracker_dependents(of_source, NULL, 1, &count));

    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_pin_create(dylib, STR("nobody"), NULL, &pin));
    OK(jittison_pin_create(dylib, STR("via"), &address, &pin));
    OK(jittison_pin_add_dependency(pin, source, STR("one")));
    OK(jittison_tracker_remove(tracker, &removal));
    OK(jittison_removal_is_complete(removal, &is_complete));
    CHECK(!is_complete);
    OK(jittison_removal_blockers(removal, &handles, &dependants, &guards));
    CHECK(handles == 1 && dependants == 0 && guards == 0);
    OK(jittison_removal_age_ms(removal, &age));
    CHECK(age < 60000);
    memcpy(&via, &address, sizeof via);
    CHECK(via() == 2);
    OK(jittison_pin_release(pin));
    FAILS(JITTISON_ERROR_INVALID_HANDLE, jittison_pin_release(pin));
    OK(jittison_removal_is_complete(removal, &is_complete));
    CHECK(is_complete);
    OK(jittison_removal_release(removal));
}

static void link_orders(jittison_session session, jittison_dylib dylib, jittison_dylib source) {
    jittison_link_entry entries[3], entry = {{0}, 0, 0};
    jittison_dylib other;
    jittison_str name;
    size_t count = 0, index;
    bool flag = false;
    uint32_t state = 0;

    OK(jittison_dylib_create(session, STR("other"), &other));
    OK(jittison_dylib_link_order(dylib, entries, 3, &count));
    CHECK(count == 2);
    for (index = 0; index < count; index++) {
        OK(jittison_dylib_release(entries[index].dylib));
    }
    entry.dylib = other;
    entry.visibility = JITTISON_VISIBILITY_ALL;
    OK(jittison_dylib_replace_in_link_order(dylib, source, &entry, &flag));
    CHECK(flag);
    OK(jittison_dylib_replace_in_link_order(dylib, source, &entry, &flag));
    CHECK(!flag);
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_dylib_replace_in_link_order(dylib, source, NULL, &flag));
    entry.dylib = source;
    OK(jittison_dylib_replace_in_link_order(dylib, other, &entry, NULL));
    OK(jittison_dylib_is_defunct(other, &flag));
    CHECK(!flag);
    OK(jittison_dylib_remove(session, other, NULL));
    OK(jittison_dylib_is_defunct(other, &flag));
    CHECK(flag);
    OK(jittison_dylib_release(other));
    name = STR("spare");
    OK(jittison_symbol_remove(source, &name, 1));
    OK(jittison_symbol_state(source, name, &state, NULL));
    CHECK(state == JITTISON_SYMBOL_UNKNOWN);
    FAILS(JITTISON_ERROR_SYMBOLS_NOT_FOUND, jittison_symbol_remove(source, &name, 1));
}

/* A generator that suspends a lookup. Another thread resumes it. */
static jittison_suspension suspended;
static jittison_dylib waiting_dylib;
static jittison_tracker defining;

static jittison_error *on_generate(jittison_dylib dylib, const jittison_request *requests, size_t count, void *context) {
    jittison_suspension second;
    size_t index;
    (void)dylib;
    (void)context;
    for (index = 0; index < count; index++) {
        if (requests[index].name.length >= 4 && memcmp(requests[index].name.data, "late", 4) == 0) {
            OK(jittison_generator_suspend(&suspended));
            FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_generator_suspend(&second));
        }
    }
    return NULL;
}

static void *look_up_late(void *context) {
    uint64_t address = 0;
    (void)context;
    OK(jittison_address_lookup(*(jittison_session *)context, waiting_dylib, STR("late"), &address));
    CHECK(address == address_of(two));
    return NULL;
}

static void generators(jittison_session session, jittison_dylib dylib) {
    jittison_generator_callbacks callbacks = {0};
    jittison_generator generator, reexports;
    jittison_absolute_symbol symbol = {0};
    jittison_request request = {{NULL, 0}, 1, 0};
    jittison_dylib shown;
    pthread_t thread;
    uint64_t address = 0;

    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_generator_suspend(&suspended));
    callbacks.size = sizeof callbacks;
    callbacks.generate = on_generate;
    OK(jittison_generator_create(dylib, &callbacks, NULL, &generator));
    waiting_dylib = dylib;
    OK(jittison_tracker_default(dylib, &defining));

    /* In one thread: an error, and a handle that is only released, fail the lookup. */
    request.name = STR("late_one");
    told = 1;
    OK(jittison_symbol_lookup_async(session, dylib, &request, 1, JITTISON_STATE_READY, on_missing, &told));
    CHECK(told == 1);
    OK(jittison_suspension_resume(suspended, NULL));
    CHECK(told == 2);
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_suspension_resume(suspended, jittison_error_create(STR("twice"))));
    OK(jittison_suspension_release(suspended));

    /* In two. */
    suspended.bits = 0;
    CHECK(pthread_create(&thread, NULL, look_up_late, &session) == 0);
    while (__atomic_load_n(&suspended.bits, __ATOMIC_SEQ_CST) == 0) {
    }
    symbol.name = STR("late");
    symbol.address = address_of(two);
    symbol.flags = JITTISON_SYMBOL_EXPORTED;
    OK(jittison_tracker_define_absolute(defining, &symbol, 1));
    OK(jittison_suspension_resume(suspended, NULL));
    CHECK(pthread_join(thread, NULL) == 0);
    OK(jittison_suspension_release(suspended));
    OK(jittison_tracker_release(defining));

    OK(jittison_dylib_create(session, STR("shown"), &shown));
    OK(jittison_generator_create_reexports(shown, dylib, NULL, NULL, NULL, &reexports));
    OK(jittison_address_lookup(session, shown, STR("late"), &address));
    CHECK(address == address_of(two));
    OK(jittison_generator_release(reexports));
    OK(jittison_generator_remove(generator, dylib, NULL));
    OK(jittison_generator_release(generator));
    OK(jittison_dylib_release(shown));
}

/* Responsibilities: begun by the caller, parted, given back, supplied by a graph. */
static int materialized;

static void on_materialize(jittison_responsibility responsibility, void *context) {
    jittison_session session = *(jittison_session *)context;
    jittison_graph graph;
    materialized++;
    OK(jittison_graph_create(STR("supplied"), &graph));
    add_number(graph, "third", 33, NULL);
    OK(jittison_graph_emit(session, responsibility, graph));
    OK(jittison_graph_release(graph));
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_responsibility_emit(responsibility, NULL, 0));
    OK(jittison_responsibility_release(responsibility));
}

static void responsibilities(jittison_session session, jittison_dylib dylib) {
    jittison_unit_symbol symbols[3];
    jittison_unit_symbol more = {{NULL, 0}, JITTISON_SYMBOL_EXPORTED, 0};
    jittison_unit_callbacks callbacks = {0};
    jittison_unit_address address;
    jittison_responsibility first, second;
    jittison_tracker tracker, same;
    jittison_function function;
    jittison_text *names = NULL;
    jittison_str name;
    uint64_t found = 0;
    uint32_t state = 0;
    bool was_added = false;

    memset(symbols, 0, sizeof symbols);
    symbols[0].name = STR("first");
    symbols[1].name = STR("second");
    symbols[2].name = STR("third");
    symbols[0].flags = symbols[1].flags = symbols[2].flags = JITTISON_SYMBOL_EXPORTED | JITTISON_SYMBOL_CALLABLE;
    OK(jittison_tracker_create(dylib, &tracker));
    OK(jittison_unit_begin(tracker, STR("begun"), symbols, 3, &first));
    OK(jittison_symbol_state(dylib, STR("first"), &state, NULL));
    CHECK(state == JITTISON_SYMBOL_MATERIALIZING);
    more.name = STR("fourth");
    OK(jittison_responsibility_add_symbols(first, &more, 1, &was_added));
    CHECK(was_added);
    OK(jittison_responsibility_symbols(first, &names));
    CHECK(is_text(jittison_text_view(names), "first\nsecond\nthird\nfourth"));
    jittison_text_free(names);
    OK(jittison_responsibility_tracker(first, &same));
    OK(jittison_tracker_release(same));
    name = STR("nobody");
    FAILS(JITTISON_ERROR_NOT_RESPONSIBLE, jittison_responsibility_delegate(first, &name, 1, &second));
    name = STR("second");
    OK(jittison_responsibility_delegate(first, &name, 1, &second));
    callbacks.size = sizeof callbacks;
    callbacks.materialize = on_materialize;
    OK(jittison_responsibility_replace(first, STR("lazy again"), symbols + 2, 1, &callbacks, &session));
    OK(jittison_symbol_state(dylib, STR("third"), &state, NULL));
    CHECK(state == JITTISON_SYMBOL_NEVER_SEARCHED);
    name = STR("fourth");
    {
        jittison_responsibility fourth;
        OK(jittison_responsibility_delegate(first, &name, 1, &fourth));
        OK(jittison_responsibility_release(fourth));
    }
    address.name = STR("first");
    address.address = address_of(two);
    OK(jittison_responsibility_resolve(first, &address, 1));
    OK(jittison_responsibility_emit(first, NULL, 0));
    OK(jittison_responsibility_release(first));
    address.name = STR("second");
    OK(jittison_responsibility_resolve(second, &address, 1));
    OK(jittison_responsibility_emit(second, NULL, 0));
    OK(jittison_responsibility_release(second));
    OK(jittison_address_lookup(session, dylib, STR("second"), &found));
    CHECK(found == address_of(two) && materialized == 0);
    OK(jittison_function_lookup(session, dylib, STR("third"), &function));
    CHECK(call_long(function) == 33 && materialized == 1);
    OK(jittison_function_release(function));
    FAILS(JITTISON_ERROR_SYMBOLS_NOT_FOUND, jittison_address_lookup(session, dylib, STR("fourth"), &found));
    OK(jittison_tracker_remove(tracker, NULL));
    OK(jittison_tracker_release(tracker));
}

int main(int argc, char **argv) {
    jittison_session session;
    jittison_dylib dylib, source;
    jittison_tracker tracker, of_source, spare;
    jittison_absolute_symbol symbol = {0};
    jittison_link_entry entry = {{0}, JITTISON_VISIBILITY_EXPORTED, 0};

    CHECK(argc == 3);
    OK(jittison_session_create(NULL, &session));
    OK(jittison_dylib_main(session, &dylib));
    OK(jittison_dylib_create(session, STR("source"), &source));
    entry.dylib = source;
    OK(jittison_dylib_add_to_link_order(dylib, &entry, 1));
    OK(jittison_tracker_create(dylib, &tracker));
    OK(jittison_tracker_create(source, &of_source));
    OK(jittison_tracker_create(source, &spare));
    OK(jittison_object_add_file(session, of_source, STR(argv[1])));
    OK(jittison_object_add_file(session, tracker, STR(argv[2])));
    symbol.name = STR("spare");
    symbol.address = address_of(two);
    symbol.flags = JITTISON_SYMBOL_EXPORTED;
    OK(jittison_tracker_define_absolute(spare, &symbol, 1));

    lookups(session, dylib, source);
    pins(dylib, tracker, source, of_source);
    link_orders(session, dylib, source);
    generators(session, source);
    responsibilities(session, dylib);
    OK(jittison_session_dismiss_workers(session));

    OK(jittison_tracker_release(spare));
    OK(jittison_tracker_release(tracker));
    OK(jittison_tracker_release(of_source));
    OK(jittison_dylib_release(source));
    OK(jittison_dylib_release(dylib));
    OK(jittison_session_destroy(session));
    return 0;
}
