/* Machine code for the tests that make graphs. */
#ifndef CODE_H
#define CODE_H

#include "check.h"
#include "number.h"

/* Adds a function of `size` bytes at the start of a block of its own. Returns the position of the block. */
static inline uint32_t add_function(jittison_graph graph, const char *name, const unsigned char *code, size_t size,
                                    uint32_t *symbol) {
    jittison_new_block block = {0};
    jittison_new_symbol definition = {0};
    uint32_t at = 0, unused = 0;
    block.size = sizeof block;
    block.pool = JITTISON_POOL_CODE;
    block.content = code;
    block.content_size = size;
    OK(jittison_graph_add_block(graph, &block, &at));
    definition.size = sizeof definition;
    definition.name = STR(name);
    definition.block = at;
    definition.symbol_size = size;
    definition.flags = JITTISON_SYMBOL_CALLABLE;
    OK(jittison_graph_add_symbol(graph, &definition, symbol ? symbol : &unused));
    return at;
}

/* Adds a function that returns a number. */
static inline uint32_t add_number(jittison_graph graph, const char *name, uint32_t number, uint32_t *symbol) {
    unsigned char code[CODE_SIZE];
    code_of_number(code, number);
    return add_function(graph, name, code, sizeof code, symbol);
}

static inline uint64_t address_of(long_function function) {
    uint64_t address = 0;
    memcpy(&address, &function, sizeof function);
    return address;
}

static inline bool is_text(jittison_str view, const char *text) {
    return view.length == strlen(text) && memcmp(view.data, text, view.length) == 0;
}

#endif
