/* Plugins: what they see of a link, what they change, how they refuse it, and what they record.
 * Arguments: an object with `long answer(void)` that returns `base() + 1`, and with an initialiser; one with `long one(void)`. */
#include "code.h"

/* What the plugin of this test did. */
static struct {
    int begun, prepared, pruned, placed, bound, fixed, recorded, ended, linked, dropped, removed;
    uint64_t answer;
    jittison_link last;
} seen;

static long base(void) { return 10; }
static long other_base(void) { return 40; }

static bool on_begin(const jittison_link_origin *origin, void **link_context, void *context) {
    jittison_text *name = NULL;
    CHECK(context == &seen && *link_context == &seen && origin->object.length > 0);
    OK(jittison_dylib_name(origin->dylib, &name));
    CHECK(is_text(jittison_text_view(name), "main"));
    jittison_text_free(name);
    seen.begun++;
    return true;
}

/* The position of the block of a symbol. */
static uint32_t block_of(jittison_link link, const char *name) {
    jittison_symbol symbol = {0};
    uint32_t position;
    OK(jittison_link_find(link, STR(name), &position));
    CHECK(position != UINT32_MAX);
    symbol.size = sizeof symbol;
    OK(jittison_link_symbol(link, position, &symbol));
    CHECK(symbol.place == JITTISON_PLACE_BLOCK && symbol.symbol_size > 0 && !symbol.is_local && !symbol.is_weak);
    return symbol.block;
}

static bool has_call(const jittison_edge *edges, size_t count) {
    size_t at;
    for (at = 0; at < count; at++)
        if (edges[at].kind == EDGE_OF_CALL) return true;
    return false;
}

static void describe(jittison_link link) {
    jittison_text *text = NULL;
    jittison_block block = {0};
    jittison_edge edges[4];
    uint32_t blocks = 0, symbols = 0, position = 0;
    size_t size = 0, count = 0;
    const void *bytes = NULL;
    OK(jittison_link_object(link, &text));
    CHECK(jittison_text_view(text).length > 0);
    jittison_text_free(text);
    OK(jittison_link_counts(link, &blocks, &symbols));
    CHECK(blocks > 0 && symbols > 1);
    block.size = sizeof block;
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_link_block(link, blocks, &block));
    position = block_of(link, "answer");
    OK(jittison_link_block(link, position, &block));
    CHECK(block.pool == JITTISON_POOL_CODE && block.byte_count > 0 && block.edge_count > 0 && block.edge_count <= 4);
    CHECK((block.flags & JITTISON_BLOCK_IS_DROPPED) == 0);
    OK(jittison_link_edges(link, position, edges, 4, &count));
    CHECK(count == block.edge_count && has_call(edges, count));
    OK(jittison_link_edges(link, position, NULL, 0, &count));
    CHECK(count == block.edge_count);
    OK(jittison_link_block_section(link, position, &text));
    CHECK(strncmp(jittison_text_view(text).data, ".text", 5) == 0);
    jittison_text_free(text);
    OK(jittison_link_block_bytes(link, position, &bytes, &size));
    CHECK(bytes != NULL && size == block.byte_count);
    OK(jittison_link_symbol_name(link, edges[0].symbol, &text));
    CHECK(is_text(jittison_text_view(text), "base"));
    jittison_text_free(text);
}

/* Adds `long added(void)`, which returns 77, and a counter that nothing refers to. */
static jittison_error *on_prepare(jittison_link link, void *context) {
    unsigned char code[CODE_SIZE];
    jittison_new_block block = {0};
    jittison_new_symbol symbol = {0};
    uint32_t at = 0, position = 0, spare = 0, part = 0;
    uint64_t middle = 4;
    CHECK(context == &seen);
    seen.prepared++;
    describe(link);
    code_of_number(code, 77);
    block.size = sizeof block;
    block.section = STR(".text.added");
    block.content = code;
    block.content_size = sizeof code;
    block.flags = JITTISON_BLOCK_RETAINED;
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_link_add_block(link, &block, NULL, 0, &at));
    block.flags = 0;
    OK(jittison_link_add_block(link, &block, NULL, 0, &at));
    OK(jittison_link_set_alignment(link, at, 64));
    OK(jittison_link_set_section(link, at, STR(".text.moved"), JITTISON_POOL_CODE));
    symbol.size = sizeof symbol;
    symbol.name = STR("added_first");
    symbol.block = at;
    symbol.symbol_size = sizeof code;
    symbol.flags = JITTISON_SYMBOL_CALLABLE;
    OK(jittison_link_add_symbol(link, &symbol, &position));
    OK(jittison_link_rename(link, position, STR("added")));
    code_of_number(code, 78);
    OK(jittison_link_set_content(link, at, code, sizeof code));

    /* What is added can be removed again, moved, hidden and split. */
    block.section = STR(".data.spare");
    block.pool = JITTISON_POOL_DATA;
    block.content = NULL;
    block.content_size = 8;
    OK(jittison_link_add_block(link, &block, NULL, 0, &spare));
    OK(jittison_link_remove_block(link, spare));
    symbol.name = STR("spare");
    symbol.scope = JITTISON_SCOPE_LOCAL;
    symbol.flags = 0;
    OK(jittison_link_add_symbol(link, &symbol, &position));
    OK(jittison_link_set_scope(link, position, JITTISON_SCOPE_HIDDEN, true));
    OK(jittison_link_redefine(link, position, JITTISON_PLACE_ABSOLUTE, 0, 4096, 0));
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_link_redefine(link, position, JITTISON_PLACE_NOWHERE, 0, 0, 0));
    OK(jittison_link_remove_symbol(link, position));
    block.content = "01234567";
    OK(jittison_link_add_block(link, &block, NULL, 0, &spare));
    OK(jittison_link_split_block(link, spare, &middle, 1, &part));
    CHECK(part != 0 && part != spare);
    OK(jittison_link_set_edges(link, part, NULL, 0));
    OK(jittison_link_add_external(link, STR("unused"), JITTISON_EXTERNAL_WEAK, &position));
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT,
          jittison_link_add_external(link, STR("unused"), JITTISON_EXTERNAL_HIDDEN, &position));
    return NULL;
}

/* `answer` calls `real_base` in place of `base`. */
static jittison_error *on_pruned(jittison_link link, void *context) {
    uint32_t position = 0;
    CHECK(context == &seen);
    seen.pruned++;
    OK(jittison_link_add_external(link, STR("real_base"), JITTISON_EXTERNAL_REQUIRED, &position));
    OK(jittison_link_redirect_edge(link, block_of(link, "answer"), 0, position));
    return NULL;
}

static jittison_error *on_placed(jittison_link link, void *context) {
    jittison_symbol symbol = {0};
    jittison_block block = {0};
    uint32_t position = 0;
    void *bytes = NULL;
    size_t size = 0;
    CHECK(context == &seen);
    seen.placed++;
    symbol.size = sizeof symbol;
    block.size = sizeof block;
    OK(jittison_link_find(link, STR("answer"), &position));
    OK(jittison_link_symbol(link, position, &symbol));
    OK(jittison_link_block(link, symbol.block, &block));
    CHECK(symbol.address == block.address + symbol.offset);
    seen.answer = symbol.address;
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_link_rename(link, position, STR("too late")));
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_link_final_bytes(link, symbol.block, &bytes, &size));
    return NULL;
}

static jittison_error *on_bind(jittison_link link, jittison_found_external *found, size_t count, void *context) {
    size_t index;
    CHECK(context == &seen && link.bits != 0);
    seen.bound++;
    for (index = 0; index < count; index++) {
        if (is_text(found[index].name, "real_base")) {
            CHECK(found[index].address == address_of(base) && found[index].is_required && !found[index].is_thread_local);
            found[index].address = address_of(other_base);
            return NULL;
        }
    }
    return jittison_error_create(STR("`real_base` is not among the externals"));
}

/* Changes `added` to return 79. */
static jittison_error *on_fixed_up(jittison_link link, void *context) {
    jittison_text *file = NULL;
    unsigned char expected[CODE_SIZE];
    void *data = NULL;
    size_t size = 0;
    CHECK(context == &seen);
    seen.fixed++;
    OK(jittison_link_final_bytes(link, block_of(link, "added"), &data, &size));
    code_of_number(expected, 78);
    CHECK(size == CODE_SIZE && memcmp(data, expected, sizeof expected) == 0);
    code_of_number(data, 79);
    OK(jittison_link_symbol_file(link, &file));
    CHECK(jittison_text_view(file).length > 64 && memcmp(jittison_text_view(file).data, "\x7f" "ELF", 4) == 0);
    jittison_text_free(file);
    seen.last = link;
    return NULL;
}

static void on_record(jittison_key key, const jittison_initializer *initializers, size_t count, void *context) {
    CHECK(context == &seen && key != 0);
    CHECK(count == 1 && initializers[0].address != 0 && initializers[0].kind == JITTISON_INITIALIZER);
    seen.recorded++;
}

static void on_end(bool is_linked, void *context) {
    CHECK(context == &seen);
    seen.ended++;
    seen.linked += is_linked;
}

static void on_dropped(void *context) {
    CHECK(context == &seen);
    seen.dropped++;
}

static jittison_error *on_remove(jittison_key key, void *context) {
    CHECK(context == &seen && key != 0);
    seen.removed++;
    return NULL;
}

static void on_transfer(jittison_key destination, jittison_key source, void *context) {
    (void)context;
    CHECK(destination != source);
}

/* A plugin that refuses, and one that leaves a broken graph. */
static jittison_error *refuse(jittison_link link, void *context) {
    (void)link;
    (void)context;
    return jittison_error_create(STR("this object is not welcome"));
}

static jittison_error *break_it(jittison_link link, void *context) {
    uint32_t position = 0;
    (void)context;
    OK(jittison_link_find(link, STR("one"), &position));
    OK(jittison_link_remove_symbol(link, position));
    return NULL;
}

static bool stay_out(const jittison_link_origin *origin, void **link_context, void *context) {
    (void)origin;
    (void)link_context;
    ++*(int *)context;
    return false;
}

static void refusals(jittison_session session, jittison_dylib dylib, const char *one) {
    jittison_plugin_callbacks callbacks = {0};
    jittison_plugin refusing, breaking, outside;
    jittison_tracker tracker;
    jittison_error *error;
    uint64_t address = 0;
    int asked = 0;
    bool was_there = false;

    OK(jittison_tracker_create(dylib, &tracker));
    callbacks.size = sizeof callbacks;
    callbacks.prepare = refuse;
    callbacks.begin = stay_out;
    OK(jittison_plugin_add(session, &callbacks, &asked, &outside));
    callbacks.begin = NULL;
    callbacks.name = STR("doorman");
    OK(jittison_plugin_add(session, &callbacks, NULL, &refusing));
    OK(jittison_object_add_file(session, tracker, STR(one)));
    error = jittison_address_lookup(session, dylib, STR("one"), &address);
    CHECK(strstr(jittison_error_message(error).data, "not welcome") != NULL);
    CHECK(jittison_error_root_code(error) == JITTISON_ERROR_OTHER && asked == 1);
    jittison_error_free(error);
    OK(jittison_plugin_remove(refusing, &was_there));
    CHECK(was_there);
    OK(jittison_plugin_remove(refusing, &was_there));
    CHECK(!was_there);
    OK(jittison_plugin_release(refusing));
    FAILS(JITTISON_ERROR_INVALID_HANDLE, jittison_plugin_remove(refusing, NULL));

    callbacks.prepare = break_it;
    OK(jittison_plugin_add(session, &callbacks, NULL, &breaking));
    OK(jittison_object_add_file(session, tracker, STR(one)));
    error = jittison_address_lookup(session, dylib, STR("one"), &address);
    CHECK(jittison_error_root_code(error) == JITTISON_ERROR_LINK_BROKEN_BY_PLUGIN);
    CHECK(strstr(jittison_error_message(error).data, "doorman") != NULL);
    jittison_error_free(error);
    OK(jittison_plugin_remove(breaking, NULL));
    OK(jittison_plugin_release(breaking));

    OK(jittison_object_add_file(session, tracker, STR(one)));
    OK(jittison_address_lookup(session, dylib, STR("one"), &address));
    CHECK(asked == 3);
    OK(jittison_plugin_remove(outside, NULL));
    OK(jittison_plugin_release(outside));
    OK(jittison_tracker_remove(tracker, NULL));
    OK(jittison_tracker_release(tracker));
}

int main(int argc, char **argv) {
    jittison_plugin_callbacks callbacks = {0};
    jittison_manager_callbacks of_manager = {0};
    jittison_absolute_symbol symbols[2];
    jittison_session session;
    jittison_dylib dylib;
    jittison_tracker tracker;
    jittison_plugin plugin;
    jittison_manager manager;
    jittison_function answer, added;
    jittison_text *text = NULL;
    void *address = NULL;

    CHECK(argc == 3);
    OK(jittison_session_create(NULL, &session));
    OK(jittison_dylib_main(session, &dylib));
    OK(jittison_tracker_create(dylib, &tracker));
    memset(symbols, 0, sizeof symbols);
    symbols[0].name = STR("base");
    symbols[1].name = STR("real_base");
    symbols[0].address = symbols[1].address = address_of(base);
    symbols[0].flags = symbols[1].flags = JITTISON_SYMBOL_EXPORTED | JITTISON_SYMBOL_CALLABLE;
    OK(jittison_tracker_define_absolute(tracker, symbols, 2));

    of_manager.size = sizeof of_manager;
    of_manager.remove = on_remove;
    of_manager.transfer = on_transfer;
    OK(jittison_manager_create(session, &of_manager, &seen, &manager));
    callbacks.size = sizeof callbacks;
    callbacks.name = STR("test plugin");
    callbacks.manager = manager;
    callbacks.begin = on_begin;
    callbacks.prepare = on_prepare;
    callbacks.pruned = on_pruned;
    callbacks.placed = on_placed;
    callbacks.bind = on_bind;
    callbacks.fixed_up = on_fixed_up;
    callbacks.record = on_record;
    callbacks.end = on_end;
    callbacks.dropped = on_dropped;
    {
        jittison_session foreign;
        OK(jittison_session_create(NULL, &foreign));
        FAILS(JITTISON_ERROR_FOREIGN_SESSION, jittison_plugin_add(foreign, &callbacks, &seen, &plugin));
        OK(jittison_session_destroy(foreign));
        CHECK(seen.dropped == 1);
        seen.dropped = 0;
    }
    OK(jittison_plugin_add(session, &callbacks, &seen, &plugin));

    OK(jittison_object_add_file(session, tracker, STR(argv[1])));
    OK(jittison_function_lookup(session, dylib, STR("answer"), &answer));
    OK(jittison_function_address(answer, &address));
    CHECK((uint64_t)(uintptr_t)address == seen.answer);
    CHECK(call_long(answer) == 41);
    OK(jittison_function_lookup(session, dylib, STR("added"), &added));
    CHECK(call_long(added) == 79);
    CHECK(seen.begun == 1 && seen.prepared == 1 && seen.pruned == 1 && seen.placed == 1 && seen.bound == 1);
    CHECK(seen.fixed == 1 && seen.recorded == 1 && seen.ended == 1 && seen.linked == 1);
    /* The handle of a link is not valid after the callback. */
    FAILS(JITTISON_ERROR_INVALID_HANDLE, jittison_link_object(seen.last, &text));

    OK(jittison_function_release(added));
    OK(jittison_function_release(answer));
    OK(jittison_tracker_remove(tracker, NULL));
    CHECK(seen.removed == 1);
    OK(jittison_tracker_release(tracker));
    OK(jittison_plugin_remove(plugin, NULL));
    CHECK(seen.dropped == 0);
    OK(jittison_plugin_release(plugin));
    CHECK(seen.dropped == 1);
    refusals(session, dylib, argv[2]);
    OK(jittison_manager_release(manager));
    OK(jittison_dylib_release(dylib));
    OK(jittison_session_destroy(session));
    return 0;
}
