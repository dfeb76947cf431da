/* Random calls of every function, on handles that are valid, released, forged, null, of another kind or of another session, with null
 * out-parameters. Any code may come back; nothing may crash. A released handle is refused for ever. Arguments: the number of calls,
 * a seed, an object with `long one(void)`. */
#include "code.h"

enum {
    SESSION, DYLIB, TRACKER, FUNCTION, REMOVAL, GUARD, CALL, STUB, PATCHABLE, PATCH, MANAGER, GENERATOR, DUTY, PIN, GRAPH, LINK, PLUGIN,
    ON_DEMAND, REOPTIMIZER, TIERED, SUSPENSION, RELOADER, KINDS, POOL = 24
};

/* Handles that calls gave out: some are valid, some were released. */
static uint64_t pool[KINDS][POOL];
/* Handles that are not valid any more. */
static uint64_t dead[KINDS][POOL];
static uint64_t state;
static unsigned long succeeded, refused, foreign, stale, links;

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

/* An out-parameter: sometimes null. */
static void *out(void *place) { return below(64) == 0 ? NULL : place; }

static void any(jittison_error *error) {
    if (error == NULL) {
        succeeded++;
    } else {
        jittison_code code = jittison_error_root_code(error);
        refused++;
        foreign += code == JITTISON_ERROR_FOREIGN_SESSION || code == JITTISON_ERROR_FOREIGN_TRACKER;
        CHECK(jittison_error_code(error) != JITTISON_OK && jittison_error_code(error) != JITTISON_ERROR_PANIC);
        CHECK(jittison_error_message(error).length > 0);
        jittison_error_free(error);
    }
}

static jittison_error *call_release(int kind, uint64_t bits) {
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
    jittison_pin pin = {bits};
    jittison_graph graph = {bits};
    jittison_link link = {bits};
    jittison_plugin plugin = {bits};
    jittison_on_demand on_demand = {bits};
    jittison_reoptimizer reoptimizer = {bits};
    jittison_tiered tiered = {bits};
    jittison_suspension suspension = {bits};
    jittison_reloader reloader = {bits};
    switch (kind) {
    case SESSION: return jittison_session_destroy(session);
    case DYLIB: return jittison_dylib_release(dylib);
    case TRACKER: return jittison_tracker_release(tracker);
    case FUNCTION: return jittison_function_release(function);
    case REMOVAL: return jittison_removal_release(removal);
    case GUARD: return jittison_guard_leave(guard);
    case CALL: return jittison_call_leave(call);
    case STUB: return jittison_stub_release(stub);
    case PATCHABLE: return jittison_patchable_release(patchable);
    case PATCH: return jittison_patch_release(patch);
    case MANAGER: return jittison_manager_release(manager);
    case GENERATOR: return jittison_generator_release(generator);
    case DUTY: return jittison_responsibility_release(duty);
    case PIN: return jittison_pin_release(pin);
    case GRAPH: return jittison_graph_release(graph);
    case LINK: return jittison_link_counts(link, NULL, NULL);
    case PLUGIN: return jittison_plugin_release(plugin);
    case ON_DEMAND: return jittison_on_demand_release(on_demand);
    case REOPTIMIZER: return jittison_reoptimizer_release(reoptimizer);
    case TIERED: return jittison_tiered_release(tiered);
    case SUSPENSION: return jittison_suspension_release(suspension);
    default: return jittison_reloader_release(reloader);
    }
}

static void bury(int kind, uint64_t bits) { dead[kind][below(POOL)] = bits; }

static void release(int kind, uint64_t bits) {
    jittison_error *error = call_release(kind, bits);
    if (error == NULL && kind != LINK) {
        bury(kind, bits);
    }
    any(error);
}

/* A handle that was valid once is refused, also when its slot has another value. */
static void step_of_stale(void) {
    int kind = (int)below(KINDS);
    uint64_t bits = dead[kind][below(POOL)];
    jittison_error *error = call_release(kind, bits);
    CHECK(jittison_error_code(error) == JITTISON_ERROR_INVALID_HANDLE);
    stale += bits != 0;
    any(error);
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

/* Lookups that this thread waits for are not suspended: it would wait for ever. */
static bool may_suspend;
static uint64_t suspended;

static jittison_error *on_generate(jittison_dylib dylib, const jittison_request *requests, size_t count, void *context) {
    jittison_suspension suspension = {0};
    (void)context;
    CHECK(dylib.bits != 0 && requests != NULL && count > 0);
    if (may_suspend && suspended == 0) {
        any(jittison_generator_suspend(&suspension));
        suspended = suspension.bits;
    }
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
    bury(DUTY, duty.bits);
    pool[DUTY][below(POOL)] = duty.bits;
}

static void found(jittison_error *error, const jittison_found_symbol *symbols, size_t count, void *context) {
    (void)symbols;
    (void)context;
    CHECK((error == NULL) == (count > 0));
    jittison_error_free(error);
}

static jittison_edge edge(void) {
    jittison_edge edge = {(uint32_t)below(8), (uint32_t)below(32), (uint32_t)below(8), 0, (int64_t)below(9) - 4};
    return edge;
}

static jittison_new_block new_block(void) {
    static const unsigned char bytes[64];
    jittison_new_block block = {0};
    block.size = below(16) ? sizeof block : below(sizeof block);
    block.section = below(8) ? STR("") : name();
    block.pool = (uint32_t)below(4);
    block.flags = below(4) ? 0 : (uint32_t)below(5);
    block.align = below(8) ? 0 : below(40);
    block.content = below(4) ? bytes : NULL;
    block.content_size = below(sizeof bytes);
    return block;
}

static jittison_new_symbol new_symbol(void) {
    jittison_new_symbol symbol = {0};
    symbol.size = below(16) ? sizeof symbol : below(sizeof symbol);
    symbol.name = name();
    symbol.place = below(8) ? 0 : (uint32_t)below(5);
    symbol.block = (uint32_t)below(4);
    symbol.offset = below(70);
    symbol.symbol_size = below(70);
    symbol.scope = (uint32_t)below(4);
    symbol.flags = below(8) ? JITTISON_SYMBOL_CALLABLE : (uint32_t)below(8);
    return symbol;
}

/* Random changes of a link. Whatever comes out of them is never run. */
static jittison_error *on_link(jittison_link link, void *context) {
    jittison_new_block block = new_block();
    jittison_new_symbol symbol = new_symbol();
    jittison_edge edges[2] = {edge(), edge()};
    jittison_block block_info = {0};
    jittison_symbol symbol_info = {0};
    jittison_link stage = {below(8) ? link.bits : pick(LINK)};
    jittison_text *text = NULL;
    uint32_t position = 0, parts[3];
    uint64_t at[2] = {below(8), below(16)};
    size_t size = 0, rounds = below(3);
    const void *bytes = NULL;
    void *final = NULL;
    (void)context;
    block_info.size = below(8) ? sizeof block_info : below(sizeof block_info);
    symbol_info.size = below(8) ? sizeof symbol_info : below(sizeof symbol_info);
    while (rounds-- > 0) {
        uint32_t at_block = (uint32_t)below(12), at_symbol = (uint32_t)below(12);
        switch (below(24)) {
        case 0: any(jittison_link_object(stage, out(&text))); break;
        case 1: any(jittison_link_counts(stage, &position, NULL)); break;
        case 2: any(jittison_link_block(stage, at_block, out(&block_info))); break;
        case 3: any(jittison_link_block_section(stage, at_block, out(&text))); break;
        case 4: any(jittison_link_block_bytes(stage, at_block, out(&bytes), out(&size))); break;
        case 5: any(jittison_link_final_bytes(stage, at_block, out(&final), out(&size))); break;
        case 6: any(jittison_link_edges(stage, at_block, edges, below(3), out(&size))); break;
        case 7: any(jittison_link_symbol(stage, at_symbol, out(&symbol_info))); break;
        case 8: any(jittison_link_symbol_name(stage, at_symbol, out(&text))); break;
        case 9: any(jittison_link_find(stage, name(), out(&position))); break;
        case 10: any(jittison_link_symbol_file(stage, out(&text))); break;
        case 11: any(jittison_link_add_block(stage, out(&block), edges, below(3), out(&position))); break;
        case 12: any(jittison_link_add_symbol(stage, out(&symbol), out(&position))); break;
        case 13: any(jittison_link_add_external(stage, name(), (uint32_t)below(4), out(&position))); break;
        case 14: any(jittison_link_remove_block(stage, at_block)); break;
        case 15: any(jittison_link_set_section(stage, at_block, name(), (uint32_t)below(4))); break;
        case 16: any(jittison_link_set_alignment(stage, at_block, below(2) ? 64 : below(100))); break;
        case 17: any(jittison_link_set_content(stage, at_block, "0123456", below(8))); break;
        case 18: any(jittison_link_set_edges(stage, at_block, edges, below(3))); break;
        case 19: any(jittison_link_redirect_edge(stage, at_block, below(3), at_symbol)); break;
        case 20: any(jittison_link_split_block(stage, at_block, at, below(3), out(parts))); break;
        case 21: any(jittison_link_rename(stage, at_symbol, name())); break;
        case 22:
            any(jittison_link_set_scope(stage, at_symbol, (uint32_t)below(4), below(2)));
            any(jittison_link_redefine(stage, at_symbol, (uint32_t)below(5), at_block, below(9), below(9)));
            break;
        default: any(jittison_link_remove_symbol(stage, at_symbol)); break;
        }
        jittison_text_free(text);
        text = NULL;
    }
    return below(16) == 0 ? jittison_error_create(STR("no")) : NULL;
}

static jittison_error *on_bind(jittison_link link, jittison_found_external *externals, size_t count, void *context) {
    if (count > 0 && below(4) == 0) {
        externals[below(count)].address = 4096;
    }
    return on_link(link, context);
}

static jittison_error *on_last(jittison_link link, void *context) {
    jittison_error *error = on_link(link, context);
    links++;
    pool[LINK][below(POOL)] = link.bits;
    bury(LINK, link.bits);
    return error;
}

static bool on_begin(const jittison_link_origin *origin, void **link_context, void *context) {
    (void)link_context;
    (void)context;
    CHECK(origin->object.data != NULL && origin->dylib.bits != 0);
    return below(4) != 0;
}

/* May run on a thread of the session, so it uses nothing of this file. */
static jittison_error *on_compile(const jittison_compile_request *request, jittison_graph graph, void *context) {
    char symbol[64] = {0};
    (void)context;
    CHECK(request->symbol.length < sizeof symbol);
    memcpy(symbol, request->symbol.data, request->symbol.length);
    add_number(graph, symbol, request->tier, NULL);
    return NULL;
}

static void step_of_graphs(void) {
    jittison_session session = {pick(SESSION)};
    jittison_tracker tracker = {pick(TRACKER)};
    jittison_responsibility duty = {pick(DUTY)};
    jittison_patch patch = {pick(PATCH)};
    jittison_graph graph = {pick(GRAPH)}, new_graph = {0};
    jittison_new_block block = new_block();
    jittison_new_symbol symbol = new_symbol();
    jittison_edge edges[2] = {edge(), edge()};
    jittison_line_row row = {0, 1};
    uint32_t position = 0, function = (uint32_t)below(4);

    switch (below(18)) {
    case 0: any(jittison_graph_create(name(), out(&new_graph))); break;
    case 1: release(GRAPH, graph.bits); break;
    case 2:
    case 3: any(jittison_graph_add_block(graph, out(&block), out(&position))); break;
    case 4:
    case 5: any(jittison_graph_add_symbol(graph, out(&symbol), out(&position))); break;
    case 6: any(jittison_graph_add_external(graph, name(), (uint32_t)below(4), out(&position))); break;
    case 7: any(jittison_graph_set_edges(graph, (uint32_t)below(4), edges, below(3))); break;
    case 8: any(jittison_graph_set_comdat(graph, (uint32_t)below(4), (uint32_t)below(4))); break;
    case 9: any(jittison_graph_add_unwind(graph, function, 64, "\x00", below(2))); break;
    case 10: any(jittison_graph_add_eh_frame(graph, "\0\0\0\0", below(5), edges, below(2))); break;
    case 11: any(jittison_graph_add_lines(graph, (uint32_t)below(4), name(), &row, below(2))); break;
    case 12: any(jittison_graph_mark_indirect_entries(graph)); break;
    case 13: any(jittison_graph_add_callee(graph, name())); break;
    case 14: any(jittison_graph_add(session, tracker, graph)); break;
    case 15: any(jittison_graph_link(session, tracker, graph)); break;
    case 16: any(jittison_graph_emit(session, duty, graph)); break;
    default: any(jittison_patch_add_graph(patch, graph)); break;
    }
    keep(GRAPH, new_graph.bits);
}

static void step_of_compilers(void) {
    jittison_session session = {pick(SESSION)};
    jittison_dylib dylib = {pick(DYLIB)};
    jittison_tracker tracker = {pick(TRACKER)};
    jittison_on_demand on_demand = {pick(ON_DEMAND)}, new_on_demand = {0};
    jittison_reoptimizer reoptimizer = {pick(REOPTIMIZER)}, new_reoptimizer = {0};
    jittison_tiered tiered = {pick(TIERED)}, new_tiered = {0};
    jittison_removal new_removal = {0};
    jittison_compiler_callbacks callbacks = {sizeof callbacks, below(8) ? on_compile : NULL, NULL};
    jittison_str names[2] = {name(), name()};
    uint64_t calls = below(100);
    uint32_t tier = 0;
    bool flag = false;

    switch (below(9)) {
    case 0: any(jittison_on_demand_create(session, out(&callbacks), NULL, out(&new_on_demand))); break;
    case 1: any(jittison_on_demand_add(on_demand, tracker, names, below(3))); break;
    case 2: any(jittison_on_demand_speculate(on_demand, dylib, name())); break;
    case 3: any(jittison_reoptimizer_create(session, out(&callbacks), NULL, &calls, below(2), out(&new_reoptimizer))); break;
    case 4: any(jittison_reoptimizer_add(reoptimizer, dylib, names, below(3), out(&new_tiered))); break;
    case 5: any(jittison_tiered_tier(tiered, name(), out(&tier))); break;
    case 6: any(jittison_tiered_reoptimize(tiered, name(), out(&flag))); break;
    case 7: any(jittison_tiered_remove(tiered, out(&new_removal))); break;
    default:
        release(ON_DEMAND, on_demand.bits);
        release(REOPTIMIZER, reoptimizer.bits);
        release(TIERED, tiered.bits);
        break;
    }
    keep(ON_DEMAND, new_on_demand.bits);
    keep(REOPTIMIZER, new_reoptimizer.bits);
    keep(TIERED, new_tiered.bits);
    keep(REMOVAL, new_removal.bits);
}

static void step_of_symbols(void) {
    jittison_session session = {pick(SESSION)};
    jittison_dylib dylib = {pick(DYLIB)}, other = {pick(DYLIB)}, new_dylib = {0};
    jittison_tracker tracker = {pick(TRACKER)}, trackers[2] = {{0}, {0}};
    jittison_pin pin = {pick(PIN)}, new_pin = {0};
    jittison_suspension suspension = {pick(SUSPENSION)};
    jittison_removal removal = {pick(REMOVAL)};
    jittison_patchable patchable = {pick(PATCHABLE)}, new_patchable = {0};
    jittison_patch patch = {pick(PATCH)};
    jittison_request requests[2] = {{name(), (uint32_t)below(2), 0}, {name(), 0, 0}};
    jittison_found_symbol symbols[2];
    jittison_link_entry entries[2] = {{other, (uint32_t)below(3), 0}, {{0}, 0, 0}};
    jittison_pool_statistics statistics = {0};
    jittison_str names[2] = {name(), name()};
    jittison_text *text = NULL;
    uint64_t number = 0;
    uint32_t word = 0, flags = 0;
    size_t count = 0, index;
    bool flag = false;

    statistics.size = sizeof statistics;
    switch (below(22)) {
    case 0: any(jittison_symbol_lookup(dylib, requests, below(3), (uint32_t)below(3), out(symbols))); break;
    case 1:
        may_suspend = below(2);
        any(jittison_symbol_lookup_async(session, dylib, requests, 1 + below(2), (uint32_t)below(3), below(8) ? found : NULL, NULL));
        may_suspend = false;
        if (suspended != 0) {
            suspension.bits = suspended;
            suspended = 0;
            if (below(2)) {
                any(jittison_suspension_resume(suspension, below(2) ? jittison_error_create(STR("no")) : NULL));
            }
            pool[SUSPENSION][below(POOL)] = suspension.bits;
            release(SUSPENSION, suspension.bits);
        }
        break;
    case 2: any(jittison_symbol_state(dylib, name(), out(&word), out(&flags))); break;
    case 3: any(jittison_symbol_remove(dylib, names, below(3))); break;
    case 4: any(jittison_pin_create(dylib, name(), out(&number), out(&new_pin))); break;
    case 5: any(jittison_pin_add_dependency(pin, dylib, name())); break;
    case 6: release(PIN, pin.bits); break;
    case 7: any(jittison_tracker_name(tracker, out(&text))); break;
    case 8: any(jittison_tracker_dylib(tracker, out(&new_dylib))); break;
    case 9: any(jittison_tracker_dependencies(tracker, trackers, below(3), out(&count))); break;
    case 10: any(jittison_tracker_dependents(tracker, trackers, below(3), out(&count))); break;
    case 11: any(jittison_dylib_replace_in_link_order(dylib, other, out(entries), out(&flag))); break;
    case 12:
        entries[0].dylib.bits = 0;
        any(jittison_dylib_link_order(dylib, out(entries), below(3), out(&count)));
        for (index = 0; index < 2; index++) {
            keep(DYLIB, entries[index].dylib.bits);
        }
        break;
    case 13: any(jittison_dylib_is_defunct(dylib, out(&flag))); break;
    case 14: any(jittison_session_dismiss_workers(session)); break;
    case 15: any(jittison_removal_age_ms(removal, out(&number))); break;
    case 16: any(jittison_removal_blockers(removal, out(&count), NULL, NULL)); break;
    case 17: any(jittison_memory_pool_statistics(session, (uint32_t)below(4), out(&statistics))); break;
    case 18: any(jittison_patchable_versions(patchable, out(&text))); break;
    case 19: any(jittison_patch_expect_signature(patch, name(), name())); break;
    case 20: any(jittison_patchable_create_from(session, dylib, name(), "\x7f" "ELF", below(5), out(&new_patchable))); break;
    default: any(jittison_suspension_resume(suspension, NULL)); break;
    }
    jittison_text_free(text);
    keep(PIN, new_pin.bits);
    keep(DYLIB, new_dylib.bits);
    keep(TRACKER, trackers[0].bits);
    keep(TRACKER, trackers[1].bits);
    keep(PATCHABLE, new_patchable.bits);
}

static void step_of_reloads(const unsigned char *object, size_t size) {
    jittison_session session = {pick(SESSION)};
    jittison_tracker tracker = {pick(TRACKER)};
    jittison_reloader reloader = {pick(RELOADER)}, new_reloader = {0};
    jittison_removal new_removal = {0};
    jittison_reload facts = {0};
    jittison_reload_object objects[2];
    jittison_text *text = NULL;
    /* Sometimes the object is cut off. */
    const size_t read = below(4) == 0 ? below(size) : size;

    facts.size = below(16) == 0 ? below(sizeof facts) : sizeof facts;
    objects[0].name = name();
    objects[1].name = name();
    objects[0].bytes = objects[1].bytes = object;
    objects[0].size = size;
    objects[1].size = read;
    switch (below(7)) {
    case 0: any(jittison_reloader_create(session, tracker, out(&new_reloader))); break;
    case 1: any(jittison_reloader_add_object(reloader, name(), object, read)); break;
    case 2: any(jittison_reloader_link(reloader)); break;
    case 3: any(jittison_reloader_objects(reloader, out(&text))); break;
    case 4: release(RELOADER, reloader.bits); break;
    case 5: any(jittison_reloader_reload_all(reloader, objects, below(3), out(&text), out(&new_removal))); break;
    default: any(jittison_reloader_reload(reloader, name(), object, read, &facts, out(&text), out(&new_removal))); break;
    }
    jittison_text_free(text);
    keep(RELOADER, new_reloader.bits);
    keep(REMOVAL, new_removal.bits);
}

static void step_of_plugins(void) {
    jittison_session session = {pick(SESSION)};
    jittison_dylib dylib = {pick(DYLIB)}, other = {pick(DYLIB)};
    jittison_tracker tracker = {pick(TRACKER)}, new_tracker = {0};
    jittison_plugin plugin = {pick(PLUGIN)}, new_plugin = {0};
    jittison_generator new_generator = {0};
    jittison_responsibility duty = {pick(DUTY)}, new_duty = {0};
    jittison_manager manager = {below(2) ? 0 : pick(MANAGER)};
    jittison_plugin_callbacks callbacks = {0};
    jittison_unit_callbacks of_unit = {sizeof of_unit, on_materialize, NULL, NULL};
    jittison_unit_symbol symbol = {name(), JITTISON_SYMBOL_EXPORTED, 0};
    jittison_str one_name = name();
    jittison_text *text = NULL;
    bool flag = false;

    callbacks.size = below(16) ? sizeof callbacks : below(sizeof callbacks);
    callbacks.name = name();
    callbacks.manager = manager;
    callbacks.begin = on_begin;
    callbacks.prepare = callbacks.pruned = callbacks.placed = on_link;
    callbacks.bind = on_bind;
    callbacks.fixed_up = on_last;
    switch (below(11)) {
    case 0: any(jittison_plugin_add(session, out(&callbacks), NULL, out(&new_plugin))); break;
    case 1:
    case 2: any(jittison_plugin_remove(plugin, out(&flag))); break;
    case 3: release(PLUGIN, plugin.bits); break;
    case 4: any(jittison_generator_create_reexports(dylib, other, NULL, NULL, NULL, out(&new_generator))); break;
    case 5: any(jittison_unit_begin(tracker, name(), &symbol, below(2), out(&new_duty))); break;
    case 6: any(jittison_responsibility_symbols(duty, out(&text))); break;
    case 7: any(jittison_responsibility_tracker(duty, out(&new_tracker))); break;
    case 8: any(jittison_responsibility_add_symbols(duty, &symbol, 1, out(&flag))); break;
    case 9: any(jittison_responsibility_delegate(duty, &one_name, below(2), out(&new_duty))); break;
    default: any(jittison_responsibility_replace(duty, name(), &symbol, below(2), out(&of_unit), NULL)); break;
    }
    jittison_text_free(text);
    keep(PLUGIN, new_plugin.bits);
    keep(GENERATOR, new_generator.bits);
    keep(TRACKER, new_tracker.bits);
    /* Lookups wait for what is begun: it is not kept, so that this thread does not wait for itself. */
    if (new_duty.bits != 0) {
        release(DUTY, new_duty.bits);
        pool[DUTY][below(POOL)] = new_duty.bits;
    }
}

/* A session whose plugin changes every link at random. */
static jittison_session lab;
static jittison_dylib lab_dylib;

static void open_lab(void) {
    jittison_plugin_callbacks callbacks = {0};
    jittison_plugin plugin;
    callbacks.size = sizeof callbacks;
    callbacks.prepare = callbacks.pruned = callbacks.placed = on_link;
    callbacks.bind = on_bind;
    callbacks.fixed_up = on_last;
    OK(jittison_session_create(NULL, &lab));
    OK(jittison_dylib_main(lab, &lab_dylib));
    OK(jittison_plugin_add(lab, &callbacks, NULL, &plugin));
    OK(jittison_plugin_release(plugin));
}

static void step_of_lab(const unsigned char *object, size_t size) {
    jittison_tracker tracker;
    OK(jittison_tracker_create(lab_dylib, &tracker));
    any(jittison_object_link(lab, tracker, STR("changed"), object, size));
    OK(jittison_tracker_remove(tracker, NULL));
    OK(jittison_tracker_release(tracker));
}

static void step_of_callbacks(void) {
    jittison_session session = {pick(SESSION)};
    jittison_dylib dylib = {pick(DYLIB)};
    jittison_tracker tracker = {pick(TRACKER)};
    jittison_manager manager = {pick(MANAGER)}, new_manager = {0};
    jittison_generator generator = {pick(GENERATOR)}, new_generator = {0};
    jittison_responsibility duty = {pick(DUTY)};
    jittison_manager_callbacks of_manager = {sizeof of_manager, on_remove, on_transfer, NULL, NULL, NULL};
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
    open_lab();
    while (succeeded + refused < calls) {
        switch (below(13)) {
        case 0: step_of_callbacks(); break;
        case 1: step_of_graphs(); break;
        case 2: step_of_compilers(); break;
        case 3: step_of_symbols(); break;
        case 4: step_of_plugins(); break;
        case 5: step_of_stale(); break;
        case 6: step_of_lab(object, size); break;
        case 7: step_of_reloads(object, size); break;
        default: step(object, size); break;
        }
    }
    for (kind = KINDS - 1; kind >= 0; kind--) {
        for (place = 0; place < POOL; place++) {
            release(kind, pool[kind][place]);
        }
    }
    OK(jittison_dylib_release(lab_dylib));
    OK(jittison_session_destroy(lab));
    free(object);
    /* Both happen often, else the handles are not mixed well. */
    CHECK(succeeded > calls / 20 && refused > calls / 20 && foreign > calls / 1000 && stale > calls / 200 && links > calls / 200);
    printf("%lu calls succeeded, %lu were refused, %lu of them for another session; %lu stale handles were refused, %lu links\n",
           succeeded, refused, foreign, stale, links);
    return 0;
}
