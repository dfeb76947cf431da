/* Graphs that are made by hand: code, constants, zeroes, edges, externals, initialisers, COMDAT groups, unwind tables, lines. */
#include "code.h"

static long host(void) { return 30; }

static int written, dropped;

static void on_write(void *bytes, size_t count, void *context) {
    CHECK(context == &written && count == 8);
    written++;
    memset(bytes, 0, count);
    ((unsigned char *)bytes)[0] = 5;
}

static void on_dropped(void *context) {
    CHECK(context == &written);
    dropped++;
}

static jittison_edge edge_to(uint32_t symbol, uint32_t offset, uint32_t kind, int64_t addend) {
    jittison_edge edge;
    memset(&edge, 0, sizeof edge);
    edge.offset = offset;
    edge.kind = kind;
    edge.symbol = symbol;
    edge.addend = addend;
    return edge;
}

/* long sum(void) { return constant + host(); }, with the constant in a block of its own. */
static jittison_graph sum_graph(void) {
#ifdef __x86_64__
    /* sub $8,%rsp; call host; add constant(%rip),%rax; add $8,%rsp; ret */
    static const unsigned char code[] = {0x48, 0x83, 0xec, 0x08, 0xe8, 0, 0, 0, 0, 0x48, 0x03, 0x05, 0, 0, 0, 0, 0x48, 0x83, 0xc4, 0x08, 0xc3};
    static const unsigned char unwind[] = {0x44, 0x0e, 0x10, 0x50, 0x0e, 0x08}; /* advance 4, CFA offset 16; advance 16, 8 */
#else
    /* stp x29, x30, [sp, #-16]!; bl host; adrp x1, constant; ldr x1, [x1, constant]; add x0, x0, x1; ldp x29, x30, [sp], #16; ret */
    static const uint32_t code[] = {0xa9bf7bfd, 0x94000000, 0x90000001, 0xf9400021, 0x8b010000, 0xa8c17bfd, 0xd65f03c0};
    static const unsigned char unwind[] = {0x44, 0x0e, 0x10, 0x54, 0x0e, 0x00}; /* advance 4, CFA offset 16; advance 20, 0 */
#endif
    jittison_graph graph;
    jittison_new_block block = {0};
    jittison_new_symbol constant = {0};
    jittison_edge edges[3];
    size_t edge_count = 0;
    jittison_line_row row = {0, 7};
    jittison_edge wrong;
    uint32_t text, data, sum, external, local, position;
    const int dropped_before = dropped;

    OK(jittison_graph_create(STR("sum graph"), &graph));
    text = add_function(graph, "sum", (const unsigned char *)code, sizeof code, &sum);
    block.size = sizeof block;
    block.pool = JITTISON_POOL_READ_ONLY;
    block.content_size = 8;
    block.write = on_write;
    block.dropped = on_dropped;
    block.context = &written;
    block.align = 8;
    OK(jittison_graph_add_block(graph, &block, &data));
    constant.size = sizeof constant;
    constant.name = STR("constant");
    constant.block = data;
    constant.symbol_size = 8;
    constant.scope = JITTISON_SCOPE_LOCAL;
    OK(jittison_graph_add_symbol(graph, &constant, &local));
    OK(jittison_graph_add_external(graph, STR("host"), JITTISON_EXTERNAL_REQUIRED, &external));
    memset(edges, 0, sizeof edges);
#ifdef __x86_64__
    edges[edge_count++] = edge_to(external, 5, EDGE_OF_CALL, -4);
    edges[edge_count++] = edge_to(local, 12, JITTISON_EDGE_DELTA32, -4);
#else
    edges[edge_count++] = edge_to(external, 4, EDGE_OF_CALL, 0);
    edges[edge_count++] = edge_to(local, 8, JITTISON_EDGE_AARCH64 + 275, 0); /* ADR_PREL_PG_HI21 */
    edges[edge_count++] = edge_to(local, 12, JITTISON_EDGE_AARCH64 + 286, 0); /* LDST64_ABS_LO12_NC */
#endif

    /* Wrong positions, kinds and structs change nothing. */
    wrong = edges[0];
    wrong.symbol = 99;
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_graph_set_edges(graph, text, &wrong, 1));
    wrong = edges[0];
    wrong.kind = 30;
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_graph_set_edges(graph, text, &wrong, 1));
    wrong.kind = JITTISON_EDGE_AARCH64 + 1024; /* R_AARCH64_COPY, which only a linker writes */
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_graph_set_edges(graph, text, &wrong, 1));
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_graph_set_edges(graph, 77, edges, edge_count));
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_graph_add_external(graph, STR("x"), 3, &position));
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_graph_add_block(graph, NULL, &position));
    block.pool = 3;
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_graph_add_block(graph, &block, &position));
    block.pool = JITTISON_POOL_DATA;
    block.content = (const unsigned char *)code;
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_graph_add_block(graph, &block, &position));
    constant.block = 12;
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_graph_add_symbol(graph, &constant, &position));
    CHECK(dropped == dropped_before);

    OK(jittison_graph_set_edges(graph, text, edges, edge_count));
    OK(jittison_graph_add_unwind(graph, sum, sizeof code, unwind, sizeof unwind));
    OK(jittison_graph_add_lines(graph, text, STR("sum.source"), &row, 1));
    OK(jittison_graph_set_comdat(graph, text, sum));
    OK(jittison_graph_mark_indirect_entries(graph));
    OK(jittison_graph_add_callee(graph, STR("host")));
    return graph;
}

/* A variable of zeroes that an initialiser sets to 9, and a function that reads it. */
static void initialisers(jittison_session session, jittison_dylib dylib) {
#ifdef __x86_64__
    /* movl $9, variable(%rip); ret */
    static const unsigned char set[] = {0xc7, 0x05, 0, 0, 0, 0, 9, 0, 0, 0, 0xc3};
    /* mov variable(%rip), %rax; ret */
    static const unsigned char get[] = {0x48, 0x8b, 0x05, 0, 0, 0, 0, 0xc3};
#else
    /* mov x0, #9; adrp x1, variable; str x0, [x1, variable]; ret */
    static const uint32_t set[] = {0xd2800120, 0x90000001, 0xf9000020, 0xd65f03c0};
    /* adrp x1, variable; ldr x0, [x1, variable]; ret */
    static const uint32_t get[] = {0x90000001, 0xf9400020, 0xd65f03c0};
#endif
    jittison_graph graph;
    jittison_tracker tracker;
    jittison_function function;
    jittison_new_block block = {0};
    jittison_new_symbol variable = {0};
    jittison_edge edges[2];
    uint32_t at, set_text, get_text, setter, symbol;

    OK(jittison_graph_create(STR("initialised"), &graph));
    block.size = sizeof block;
    block.pool = JITTISON_POOL_DATA;
    block.content_size = 8;
    OK(jittison_graph_add_block(graph, &block, &at));
    variable.size = sizeof variable;
    variable.name = STR("variable");
    variable.block = at;
    variable.symbol_size = 8;
    OK(jittison_graph_add_symbol(graph, &variable, &symbol));
    set_text = add_function(graph, "set_it", (const unsigned char *)set, sizeof set, &setter);
    get_text = add_function(graph, "get_it", (const unsigned char *)get, sizeof get, NULL);
#ifdef __x86_64__
    edges[0] = edge_to(symbol, 2, JITTISON_EDGE_DELTA32, -8);
    OK(jittison_graph_set_edges(graph, set_text, edges, 1));
    edges[0] = edge_to(symbol, 3, JITTISON_EDGE_DELTA32, -4);
    OK(jittison_graph_set_edges(graph, get_text, edges, 1));
#else
    edges[0] = edge_to(symbol, 4, JITTISON_EDGE_AARCH64 + 275, 0);
    edges[1] = edge_to(symbol, 8, JITTISON_EDGE_AARCH64 + 286, 0);
    OK(jittison_graph_set_edges(graph, set_text, edges, 2));
    edges[0] = edge_to(symbol, 0, JITTISON_EDGE_AARCH64 + 275, 0);
    edges[1] = edge_to(symbol, 4, JITTISON_EDGE_AARCH64 + 286, 0);
    OK(jittison_graph_set_edges(graph, get_text, edges, 2));
#endif
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_graph_add_initializers(graph, 2, 0, &setter, 1));
    OK(jittison_graph_add_initializers(graph, JITTISON_INITIALIZER, JITTISON_DEFAULT_PRIORITY, &setter, 1));

    OK(jittison_tracker_create(dylib, &tracker));
    OK(jittison_graph_link(session, tracker, graph));
    OK(jittison_graph_release(graph));
    OK(jittison_function_lookup(session, dylib, STR("get_it"), &function));
    CHECK(call_long(function) == 9);
    OK(jittison_function_release(function));
    OK(jittison_tracker_remove(tracker, NULL));
    OK(jittison_tracker_release(tracker));
}

int main(void) {
    jittison_session session;
    jittison_dylib dylib;
    jittison_tracker tracker, none = {0};
    jittison_function function;
    jittison_graph graph, again;
    jittison_absolute_symbol symbol = {0};
    jittison_memory_statistics statistics = {0};
    jittison_error *error;
    jittison_edge edge = {0};
    uint32_t text, position;

    OK(jittison_session_create(NULL, &session));
    OK(jittison_dylib_main(session, &dylib));
    OK(jittison_tracker_create(dylib, &tracker));
    symbol.name = STR("host");
    symbol.address = address_of(host);
    symbol.flags = JITTISON_SYMBOL_EXPORTED | JITTISON_SYMBOL_CALLABLE;
    OK(jittison_tracker_define_absolute(tracker, &symbol, 1));

    /* An invalid handle leaves the graph as it is. Then it is handed over, once. */
    graph = sum_graph();
    FAILS(JITTISON_ERROR_INVALID_HANDLE, jittison_graph_add(session, none, graph));
    OK(jittison_graph_add(session, tracker, graph));
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_graph_add(session, tracker, graph));
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_graph_add_external(graph, STR("late"), 0, &position));
    OK(jittison_graph_release(graph));
    FAILS(JITTISON_ERROR_INVALID_HANDLE, jittison_graph_release(graph));
    OK(jittison_function_lookup(session, dylib, STR("sum"), &function));
    CHECK(call_long(function) == 35 && written >= 1);
    OK(jittison_function_release(function));

    /* The second group of one signature gives way. */
    again = sum_graph();
    OK(jittison_graph_link(session, tracker, again));
    OK(jittison_graph_release(again));

    /* The check of a graph names the block. */
    OK(jittison_graph_create(STR("wrong"), &graph));
    text = add_number(graph, "wrong", 1, &edge.symbol);
    edge.offset = CODE_SIZE - 2; /* The field has four bytes. */
    edge.kind = JITTISON_EDGE_BRANCH32;
    OK(jittison_graph_set_edges(graph, text, &edge, 1));
    error = jittison_graph_link(session, tracker, graph);
    CHECK(jittison_error_code(error) == JITTISON_ERROR_LINK_INVALID_GRAPH);
    CHECK(strcmp(jittison_error_object(error).data, "wrong") == 0);
    jittison_error_free(error);
    OK(jittison_graph_release(graph));

    /* Each architecture has its own kinds. */
    OK(jittison_graph_create(STR("foreign"), &graph));
    text = add_number(graph, "foreign", 1, &edge.symbol);
    edge.offset = 0;
    edge.kind = EDGE_OF_ANOTHER_MACHINE;
    OK(jittison_graph_set_edges(graph, text, &edge, 1));
    error = jittison_graph_link(session, tracker, graph);
    CHECK(jittison_error_code(error) == JITTISON_ERROR_LINK_INVALID_GRAPH);
    jittison_error_free(error);
    OK(jittison_graph_release(graph));

    initialisers(session, dylib);

    /* A graph that is only released gives its context back; those that were linked do when nothing needs them. */
    graph = sum_graph();
    OK(jittison_graph_release(graph));
    OK(jittison_tracker_remove(tracker, NULL));
    CHECK(dropped == 3);
    statistics.size = sizeof statistics;
    OK(jittison_memory_statistics_read(session, &statistics));
    CHECK(statistics.live_bytes == 0);
    OK(jittison_tracker_release(tracker));
    OK(jittison_dylib_release(dylib));
    OK(jittison_session_destroy(session));
    return 0;
}
