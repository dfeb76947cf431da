/* What a session takes of its embedder: memory mappers, observers, handlers of lazy functions; memory that never runs.
 * Arguments: an object with `long one(void)`, one with `long needs(void)` that refers to `nowhere`. */
#include "code.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- a mapper: one file, mapped once to run and once to be written ------------------------------------------------ */

static struct {
    int mapped, opened, sealed, purged, unmapped, dropped;
    bool uses_system, refuses;
} mapping;

struct window {
    int file;
    uint64_t bytes, offsets[3];
    unsigned char *running, *working;
};

static jittison_error *on_open(uint32_t pool, uint64_t offset, uint64_t bytes, void *context) {
    CHECK(context != NULL && pool < 3 && bytes > 0 && offset % 16 == 0);
    mapping.opened++;
    return NULL;
}

static jittison_error *on_seal(uint32_t pool, uint64_t offset, uint64_t bytes, void *context) {
    CHECK(context != NULL && pool < 3 && bytes > 0 && offset % 16 == 0);
    mapping.sealed++;
    return NULL;
}

static jittison_error *on_purge(uint32_t pool, uint64_t offset, uint64_t bytes, void *context) {
    struct window *window = context;
    off_t start = (off_t)(window->offsets[pool] + offset);
    mapping.purged++;
    if (fallocate(window->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, start, (off_t)bytes) != 0) {
        return jittison_error_create(STR("the file keeps its pages"));
    }
    return NULL;
}

static void on_unmap(void *context) {
    struct window *window = context;
    mapping.unmapped++;
    munmap(window->running, window->bytes);
    munmap(window->working, window->bytes);
    close(window->file);
    free(window);
}

static jittison_error *on_map(const jittison_window_layout *layout, jittison_window *out, void *context) {
    static const int access[3] = {PROT_READ | PROT_EXEC, PROT_READ, PROT_READ | PROT_WRITE};
    struct window *window;
    int pool;
    CHECK(context == &mapping && out->size == sizeof *out && layout->bytes > 0);
    mapping.mapped++;
    if (mapping.refuses) {
        return jittison_error_create(STR("no window today"));
    }
    if (mapping.uses_system) {
        out->uses_system = 1;
        return NULL;
    }
    window = calloc(1, sizeof *window);
    CHECK(window != NULL);
    window->bytes = layout->bytes;
    window->file = memfd_create("window", 0);
    CHECK(window->file >= 0 && ftruncate(window->file, (off_t)layout->bytes) == 0);
    window->running = mmap(NULL, layout->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    window->working = mmap(NULL, layout->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, window->file, 0);
    CHECK(window->running != MAP_FAILED && window->working != MAP_FAILED);
    for (pool = 0; pool < 3; pool++) {
        off_t offset = (off_t)layout->pool_offsets[pool];
        void *place = window->running + offset;
        CHECK(mmap(place, layout->pool_sizes[pool], access[pool], MAP_SHARED | MAP_FIXED, window->file, offset) == place);
        window->offsets[pool] = layout->pool_offsets[pool];
        out->working[pool] = window->working + offset;
    }
    out->base = (uint64_t)(uintptr_t)window->running;
    out->open = on_open;
    out->seal = on_seal;
    out->purge = on_purge;
    out->unmap = on_unmap;
    out->context = window;
    return NULL;
}

static void on_dropped(void *context) {
    CHECK(context == &mapping);
    mapping.dropped++;
}

/* Links, calls and removes `one` in a session with these options. */
static void link_one(const jittison_session_options *options, const char *one) {
    jittison_session session;
    jittison_dylib dylib;
    jittison_tracker tracker;
    jittison_function function;
    jittison_memory_statistics statistics = {0};
    jittison_pool_statistics pool = {0};
    jittison_text *map = NULL;
    uint64_t bytes = 0;

    OK(jittison_session_create(options, &session));
    OK(jittison_dylib_main(session, &dylib));
    OK(jittison_tracker_create(dylib, &tracker));
    OK(jittison_object_add_file(session, tracker, STR(one)));
    OK(jittison_function_lookup(session, dylib, STR("one"), &function));
    CHECK(call_long(function) == 1);
    pool.size = sizeof pool;
    OK(jittison_memory_pool_statistics(session, JITTISON_POOL_CODE, &pool));
    CHECK(pool.requested_bytes > 0 && pool.opened_bytes >= pool.requested_bytes && pool.fragmentation <= 1);
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_memory_pool_statistics(session, 3, &pool));
    OK(jittison_memory_map_text(session, &map));
    if (options->mapper != NULL && !mapping.uses_system) {
        CHECK(strstr(jittison_text_view(map).data, "mapped by the embedder") != NULL);
    }
    jittison_text_free(map);
    OK(jittison_function_release(function));
    OK(jittison_tracker_remove(tracker, NULL));
    OK(jittison_memory_release_free(session, &bytes));
    statistics.size = sizeof statistics;
    OK(jittison_memory_statistics_read(session, &statistics));
    CHECK(statistics.live_bytes == 0);
    OK(jittison_tracker_release(tracker));
    OK(jittison_dylib_release(dylib));
    OK(jittison_session_destroy(session));
}

static void mappers(const char *one) {
    jittison_mapper_callbacks callbacks = {0};
    jittison_session_options options = {0};
    jittison_session session;
    jittison_error *error;

    callbacks.size = sizeof callbacks;
    options.size = sizeof options;
    options.window_size = 64 << 20;
    options.returns_memory = JITTISON_OFF;
    options.trap_freed_code = JITTISON_OFF;
    options.mapper = &callbacks;
    options.mapper_context = &mapping;
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_session_create(&options, &session));
    callbacks.map = on_map;
    callbacks.dropped = on_dropped;
    link_one(&options, one);
    CHECK(mapping.mapped == 1 && mapping.opened >= 1 && mapping.sealed >= 1 && mapping.purged >= 1);
    CHECK(mapping.unmapped == 1 && mapping.dropped == 1);

    mapping.uses_system = true;
    link_one(&options, one);
    CHECK(mapping.mapped == 2 && mapping.unmapped == 1 && mapping.dropped == 2);

    mapping.refuses = true;
    error = jittison_session_create(&options, &session);
    CHECK(jittison_error_code(error) == JITTISON_ERROR_MEMORY_REFUSED && mapping.dropped == 3);
    CHECK(strstr(jittison_error_message(error).data, "no window today") != NULL);
    jittison_error_free(error);

    /* Other settings of code memory. */
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.shards = 2;
    options.fork = JITTISON_FORK_SHARE;
    options.pooled = JITTISON_OFF;
    link_one(&options, one);
    options.fork = 2;
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_session_create(&options, &session));
}

/* ---- observers ---------------------------------------------------------------------------------------------------- */

static int events[32];
static char published_under[128];

static void on_event(const jittison_event *event, void *context) {
    CHECK(context == events && event->size == sizeof *event && event->kind > 0 && event->kind < 32);
    __atomic_add_fetch(&events[event->kind], 1, __ATOMIC_SEQ_CST);
    if (event->kind == JITTISON_EVENT_LINKED) {
        CHECK(event->name.length > 0 && event->counts[0] == 1 && event->bytes > 0);
    }
    if (event->kind == JITTISON_EVENT_PUBLISHED && event->symbol_count == 1 && is_text(event->symbols[0], "one")) {
        jittison_text *name = NULL;
        OK(jittison_dylib_name(event->dylib, &name));
        CHECK(is_text(jittison_text_view(name), "main"));
        jittison_text_free(name);
        CHECK(event->tracker.length < sizeof published_under);
        memcpy(published_under, event->tracker.data, event->tracker.length);
    }
    if (event->kind == JITTISON_EVENT_REFUSED) {
        CHECK(jittison_error_code(event->error) == JITTISON_ERROR_SYMBOLS_NOT_FOUND);
    }
    if (event->kind == JITTISON_EVENT_TRANSFERRED && events[event->kind] == 1) {
        CHECK(is_text(event->old_tracker, published_under) && event->tracker.length > 0);
    }
    if (event->kind == JITTISON_EVENT_RETIRED && events[event->kind] == 1) {
        CHECK(event->counts[0] == 1 && event->counts[1] == 0 && event->counts[2] == 0);
    }
    if (event->kind == JITTISON_EVENT_WINDOW_MAPPED) {
        CHECK(event->address != 0 && event->bytes != 0 && event->dylib.bits == 0);
    }
}

static void observers(const char *one, const char *needs) {
    jittison_session_options options = {0};
    jittison_session session;
    jittison_dylib dylib;
    jittison_tracker tracker, other;
    jittison_function function;
    jittison_stub stub;
    jittison_stub_definition definition;
    jittison_text *name = NULL;
    uint64_t address = 0;

    options.size = sizeof options;
    options.observe = on_event;
    options.observe_context = events;
    OK(jittison_session_create(&options, &session));
    OK(jittison_dylib_main(session, &dylib));
    OK(jittison_tracker_create(dylib, &tracker));
    OK(jittison_tracker_create(dylib, &other));
    OK(jittison_object_add_file(session, tracker, STR(one)));
    OK(jittison_function_lookup(session, dylib, STR("one"), &function));
    OK(jittison_tracker_name(tracker, &name));
    CHECK(is_text(jittison_text_view(name), published_under));
    jittison_text_free(name);
    OK(jittison_tracker_transfer(tracker, other));
    OK(jittison_object_add_file(session, other, STR(needs)));
    FAILS(JITTISON_ERROR_FAILED_TO_MATERIALIZE, jittison_address_lookup(session, dylib, STR("needs"), &address));
    OK(jittison_tracker_remove(other, NULL));
    CHECK(events[JITTISON_EVENT_RETIRED] == 1 && events[JITTISON_EVENT_RECLAIMED] == 0);
    OK(jittison_function_release(function));
    OK(jittison_tracker_release(tracker));
    OK(jittison_tracker_release(other));
    OK(jittison_tracker_create(dylib, &tracker));
    definition.name = STR("stub");
    definition.target = 4096;
    OK(jittison_stub_create(session, tracker, &definition, 1));
    OK(jittison_stub_find(session, dylib, STR("stub"), &stub));
    OK(jittison_stub_redirect(stub, 8192));
    OK(jittison_stub_release(stub));
    OK(jittison_tracker_release(tracker));
    OK(jittison_dylib_release(dylib));
    OK(jittison_session_destroy(session));
    CHECK(events[JITTISON_EVENT_LINKED] == 1 && events[JITTISON_EVENT_PUBLISHED] >= 1 && events[JITTISON_EVENT_RESOLVED] >= 1);
    CHECK(events[JITTISON_EVENT_TRANSFERRED] >= 1 && events[JITTISON_EVENT_REFUSED] == 1);
    CHECK(events[JITTISON_EVENT_RECLAIMED] >= 1 && events[JITTISON_EVENT_REDIRECTED] == 1);
    CHECK(events[JITTISON_EVENT_WINDOW_MAPPED] == 1 && events[JITTISON_EVENT_SLAB_OPENED] >= 1);
}

/* ---- lazy functions that cannot be linked ------------------------------------------------------------------------- */

static long instead(void) { return -7; }
static int failures;

static uint64_t on_failure(const jittison_lazy_failure *failure, void *context) {
    CHECK(context == &failures && is_text(failure->symbol, "lazy") && is_text(failure->aliasee, "needs"));
    CHECK(is_text(failure->dylib, "main") && is_text(failure->source, "source"));
    CHECK(jittison_error_root_code(failure->error) == JITTISON_ERROR_SYMBOLS_NOT_FOUND);
    failures++;
    return address_of(instead);
}

static void lazy_functions(const char *needs) {
    jittison_session_options options = {0};
    jittison_session session;
    jittison_dylib dylib, source;
    jittison_tracker tracker, of_source;
    jittison_function function;
    jittison_alias alias = {0};

    options.size = sizeof options;
    options.lazy_failure = on_failure;
    options.lazy_failure_context = &failures;
    OK(jittison_session_create(&options, &session));
    OK(jittison_dylib_main(session, &dylib));
    OK(jittison_dylib_create(session, STR("source"), &source));
    OK(jittison_tracker_create(dylib, &tracker));
    OK(jittison_tracker_create(source, &of_source));
    OK(jittison_object_add_file(session, of_source, STR(needs)));
    alias.name = STR("lazy");
    alias.aliasee = STR("needs");
    alias.flags = JITTISON_SYMBOL_EXPORTED | JITTISON_SYMBOL_CALLABLE;
    OK(jittison_alias_reexport_lazily(session, tracker, source, &alias, 1));
    OK(jittison_function_lookup(session, dylib, STR("lazy"), &function));
    CHECK(call_long(function) == -7 && failures == 1);
    OK(jittison_function_release(function));
    OK(jittison_tracker_release(tracker));
    OK(jittison_tracker_release(of_source));
    OK(jittison_dylib_release(source));
    OK(jittison_dylib_release(dylib));
    OK(jittison_session_destroy(session));
}

/* ---- memory that never runs --------------------------------------------------------------------------------------- */

static uint64_t seen_address;

static jittison_error *on_fixed_up(jittison_link link, void *context) {
    jittison_symbol symbol = {0};
    uint32_t position = 0;
    CHECK(context == &seen_address);
    OK(jittison_link_find(link, STR("one"), &position));
    symbol.size = sizeof symbol;
    OK(jittison_link_symbol(link, position, &symbol));
    seen_address = symbol.address;
    return NULL;
}

static void offline(const char *one) {
    jittison_session_options options = {0};
    jittison_plugin_callbacks callbacks = {0};
    jittison_session session;
    jittison_dylib dylib;
    jittison_tracker tracker;
    jittison_function function;
    jittison_plugin plugin;
    uint64_t address = 0;

    options.size = sizeof options;
    options.offline_address = 0x7000000000;
    OK(jittison_session_create(&options, &session));
    OK(jittison_dylib_main(session, &dylib));
    OK(jittison_tracker_create(dylib, &tracker));
    callbacks.size = sizeof callbacks;
    callbacks.fixed_up = on_fixed_up;
    OK(jittison_plugin_add(session, &callbacks, &seen_address, &plugin));
    OK(jittison_object_add_file(session, tracker, STR(one)));
    OK(jittison_address_lookup(session, dylib, STR("one"), &address));
    CHECK(address == seen_address && address >= 0x7000000000 && address < 0x7000100000);
    FAILS(JITTISON_ERROR_MEMORY_NEVER_RUNS, jittison_function_lookup(session, dylib, STR("one"), &function));
    OK(jittison_plugin_release(plugin));
    OK(jittison_tracker_release(tracker));
    OK(jittison_dylib_release(dylib));
    OK(jittison_session_destroy(session));
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    mappers(argv[1]);
    observers(argv[1], argv[2]);
    lazy_functions(argv[2]);
    offline(argv[1]);
    return 0;
}
