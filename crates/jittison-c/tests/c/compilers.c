/* Compilers: functions that are compiled at their first calls, and functions that come in tiers; graphs as patches. */
#include "code.h"
#include <sched.h>

static int compiled, dropped;
static bool fails;

/* A function returns the number of its tier, times ten for the second one. */
static jittison_error *on_compile(const jittison_compile_request *request, jittison_graph graph, void *context) {
    char symbol[64];
    jittison_text *name = NULL;
    CHECK(context == &dropped && request->function.length > 0 && request->symbol.length < sizeof symbol);
    OK(jittison_dylib_name(request->dylib, &name));
    CHECK(is_text(jittison_text_view(name), "main"));
    jittison_text_free(name);
    if (fails) {
        return jittison_error_create(STR("the compiler is out of order"));
    }
    memcpy(symbol, request->symbol.data, request->symbol.length);
    symbol[request->symbol.length] = 0;
    add_number(graph, symbol, request->tier == 1 ? 1 : 20, NULL);
    OK(jittison_graph_add_callee(graph, STR("later")));
    __atomic_add_fetch(&compiled, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

/* Takes the graph for itself, which is a mistake. */
static jittison_error *on_bad_compile(const jittison_compile_request *request, jittison_graph graph, void *context) {
    (void)request;
    (void)context;
    OK(jittison_graph_release(graph));
    return NULL;
}

/* Perhaps on a thread of the session, which has compiled ahead. */
static void on_dropped(void *context) {
    CHECK(context == &dropped);
    __atomic_add_fetch(&dropped, 1, __ATOMIC_SEQ_CST);
}

static void on_demand(jittison_session session, jittison_dylib dylib) {
    jittison_compiler_callbacks callbacks = {0};
    jittison_on_demand layer;
    jittison_tracker tracker;
    jittison_function first;
    jittison_str names[2];

    names[0] = STR("first");
    names[1] = STR("later");
    callbacks.size = sizeof callbacks;
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_on_demand_create(session, &callbacks, &dropped, &layer));
    callbacks.compile = on_compile;
    callbacks.dropped = on_dropped;
    OK(jittison_on_demand_create(session, &callbacks, &dropped, &layer));
    OK(jittison_tracker_create(dylib, &tracker));
    OK(jittison_on_demand_add(layer, tracker, names, 2));
    FAILS(JITTISON_ERROR_DUPLICATE_DEFINITION, jittison_on_demand_add(layer, tracker, names, 1));
    OK(jittison_function_lookup(session, dylib, STR("first"), &first));
    CHECK(compiled == 0);
    CHECK(call_long(first) == 1);
    /* `later` is named as a callee, so it is compiled ahead, and once. */
    OK(jittison_on_demand_speculate(layer, dylib, STR("later")));
    while (__atomic_load_n(&compiled, __ATOMIC_SEQ_CST) < 2) {
        sched_yield();
    }
    OK(jittison_function_release(first));
    OK(jittison_function_lookup(session, dylib, STR("later"), &first));
    CHECK(call_long(first) == 1 && compiled == 2);
    OK(jittison_function_release(first));
    OK(jittison_tracker_remove(tracker, NULL));
    OK(jittison_tracker_release(tracker));
    OK(jittison_on_demand_release(layer));
    FAILS(JITTISON_ERROR_INVALID_HANDLE, jittison_on_demand_add(layer, tracker, names, 2));
}

static void tiers(jittison_session session, jittison_dylib dylib) {
    jittison_compiler_callbacks callbacks = {0};
    jittison_reoptimizer layer, bad;
    jittison_tiered tiered;
    jittison_function function;
    jittison_call call;
    jittison_removal removal;
    jittison_str name = STR("hot"), cold = STR("cold");
    jittison_error *error;
    uint64_t calls = 1000000;
    uint32_t tier = 0;
    bool flag = true, is_complete = false;

    callbacks.size = sizeof callbacks;
    callbacks.compile = on_bad_compile;
    OK(jittison_reoptimizer_create(session, &callbacks, NULL, &calls, 1, &bad));
    error = jittison_reoptimizer_add(bad, dylib, &name, 1, &tiered);
    CHECK(error != NULL && strstr(jittison_error_message(error).data, "was released") != NULL);
    jittison_error_free(error);
    OK(jittison_reoptimizer_release(bad));

    callbacks.compile = on_compile;
    callbacks.dropped = on_dropped;
    OK(jittison_reoptimizer_create(session, &callbacks, &dropped, &calls, 1, &layer));
    OK(jittison_reoptimizer_add(layer, dylib, &name, 1, &tiered));
    OK(jittison_function_lookup(session, dylib, name, &function));
    OK(jittison_call_enter(session, &call));
    CHECK(call_long(function) == 1);
    OK(jittison_call_leave(call));
    OK(jittison_tiered_tier(tiered, name, &tier));
    CHECK(tier == 1);
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_tiered_tier(tiered, cold, &tier));
    OK(jittison_tiered_reoptimize(tiered, cold, &flag));
    CHECK(!flag);
    OK(jittison_tiered_reoptimize(tiered, name, &flag));
    CHECK(flag);
    while (tier != 2) {
        sched_yield();
        OK(jittison_tiered_tier(tiered, name, &tier));
    }
    OK(jittison_call_enter(session, &call));
    CHECK(call_long(function) == 20);
    OK(jittison_call_leave(call));
    OK(jittison_function_release(function));
    OK(jittison_tiered_remove(tiered, &removal));
    OK(jittison_removal_wait(removal, 10000, &is_complete));
    CHECK(is_complete);
    OK(jittison_removal_release(removal));
    OK(jittison_tiered_release(tiered));
    OK(jittison_reoptimizer_release(layer));

    /* The error of the compiler is that of the call. */
    fails = true;
    OK(jittison_reoptimizer_create(session, &callbacks, &dropped, &calls, 1, &layer));
    error = jittison_reoptimizer_add(layer, dylib, &name, 1, &tiered);
    CHECK(error != NULL && strstr(jittison_error_message(error).data, "out of order") != NULL);
    jittison_error_free(error);
    OK(jittison_reoptimizer_release(layer));
}

/* A patch whose versions are graphs, with a signature. */
static void patches(jittison_session session, jittison_dylib dylib) {
    jittison_patchable patchable;
    jittison_patch patch;
    jittison_graph graph;
    jittison_function function;
    jittison_text *versions = NULL;
    jittison_str name = STR("patched");
    uint64_t version = 0;

    OK(jittison_patchable_create(session, dylib, &name, 1, NULL, &patchable));
    OK(jittison_patch_begin(patchable, &patch));
    OK(jittison_graph_create(STR("version 1"), &graph));
    add_number(graph, "patched", 100, NULL);
    OK(jittison_patch_add_graph(patch, graph));
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_patch_add_graph(patch, graph));
    OK(jittison_graph_release(graph));
    OK(jittison_patch_expect_signature(patch, name, STR("long(void)")));
    OK(jittison_patch_link(patch));
    OK(jittison_patch_commit(patch, &version, NULL));
    OK(jittison_patch_release(patch));
    CHECK(version == 1);
    OK(jittison_function_lookup(session, dylib, name, &function));
    CHECK(call_long(function) == 100);
    OK(jittison_function_release(function));
    OK(jittison_patchable_versions(patchable, &versions));
    CHECK(strncmp(jittison_text_view(versions).data, "[{\"version\":1,\"is_retired\":false,", 32) == 0);
    jittison_text_free(versions);

    OK(jittison_patch_begin(patchable, &patch));
    OK(jittison_graph_create(STR("version 2"), &graph));
    add_number(graph, "patched", 200, NULL);
    OK(jittison_patch_add_graph(patch, graph));
    OK(jittison_graph_release(graph));
    OK(jittison_patch_expect_signature(patch, name, STR("void(int)")));
    {
        jittison_error *error = jittison_patch_link(patch);
        CHECK(jittison_error_root_code(error) == JITTISON_ERROR_WRONG_SIGNATURE);
        jittison_error_free(error);
    }
    OK(jittison_patch_release(patch));
    OK(jittison_patchable_remove(patchable, NULL));
    OK(jittison_patchable_release(patchable));
}

int main(void) {
    jittison_session session;
    jittison_dylib dylib;

    OK(jittison_session_create(NULL, &session));
    OK(jittison_dylib_main(session, &dylib));
    on_demand(session, dylib);
    tiers(session, dylib);
    patches(session, dylib);
    OK(jittison_dylib_release(dylib));
    OK(jittison_session_destroy(session));
    while (__atomic_load_n(&dropped, __ATOMIC_SEQ_CST) < 3) {
        sched_yield();
    }
    return 0;
}
