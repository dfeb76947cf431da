/* A plugin host that reloads plugins while a thread uses them.
 *
 * Each plugin is an object with a function `run`. The host compiles it, loads it, and calls it from another thread under guards. A new
 * version takes the place of the old one: names are switched at once, calls that are under way finish in the old code, and its memory is
 * freed when the last of them has returned. A version that cannot be linked changes nothing.
 *
 *   cc -pthread plugins.c $(pkg-config --cflags --libs jittison) -o plugins
 *   ./plugins
 */
#include <jittison.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Prints an error and ends. */
static void check(jittison_error *error) {
    if (error != NULL) {
        fprintf(stderr, "%s\n", jittison_error_message(error).data);
        jittison_error_free(error);
        exit(1);
    }
}

static jittison_session session;
static jittison_dylib dylib;
static atomic_bool is_over;
/* The largest number that the plugin has returned, and whether a call was wrong. */
static atomic_long newest;
static atomic_bool was_wrong;

/* Calls the plugin without a pause. Code that is found under a guard stays in memory until the guard is left. */
static void *use_plugin(void *unused) {
    (void)unused;
    while (!atomic_load(&is_over)) {
        jittison_guard guard;
        void *address = NULL;
        long (*run)(long) = NULL;
        long version, expected = atomic_load(&newest);
        check(jittison_guard_enter(session, &guard));
        check(jittison_guard_lookup(guard, dylib, jittison_str_of("run"), &address));
        memcpy(&run, &address, sizeof run);
        version = run(0);
        /* The second call may reach a newer version already. */
        if (version < expected || run(1) < version + 1) {
            atomic_store(&was_wrong, true);
        }
        if (version > expected) {
            atomic_store(&newest, version);
        }
        check(jittison_guard_leave(guard));
    }
    return NULL;
}

/* Compiles a version of the plugin, as an editor of plugins would. */
static void compile(const char *directory, int version, const char *body, char *object, size_t size) {
    char source[256], command[1024];
    FILE *file;
    snprintf(source, sizeof source, "%s/plugin%d.c", directory, version);
    snprintf(object, size, "%s/plugin%d.o", directory, version);
    file = fopen(source, "w");
    if (file == NULL) {
        perror(source);
        exit(1);
    }
    fprintf(file, "%s\nlong run(long more) { return %d + more + calls(); }\n", body, version);
    fclose(file);
    snprintf(command, sizeof command, "cc -c -O2 -fPIC '%s' -o '%s'", source, object);
    if (system(command) != 0) {
        fprintf(stderr, "the compiler failed\n");
        exit(1);
    }
    unlink(source);
}

/* Reloads the plugin: links the new version first, then switches to it. */
static bool reload(jittison_patchable plugin, const char *object) {
    jittison_patch patch;
    jittison_error *error;
    check(jittison_patch_begin(plugin, &patch));
    check(jittison_patch_add_object_file(patch, jittison_str_of(object)));
    error = jittison_patch_link(patch);
    if (error == NULL) {
        error = jittison_patch_commit(patch, NULL, NULL);
    }
    check(jittison_patch_release(patch));
    if (error != NULL) {
        printf("refused, for `%s`: the old version stays\n", jittison_error_symbol(error).data);
        jittison_error_free(error);
        return false;
    }
    return true;
}

int main(void) {
    const char *good = "static long calls(void) { return 0; }", *bad = "long calls(void);";
    const jittison_str name = {"run", 3};
    char directory[] = "/tmp/jittison-plugins-XXXXXX", object[300];
    jittison_patchable_options options = {sizeof options, 1, 0};
    jittison_patchable plugin;
    jittison_removal removal;
    jittison_memory_statistics statistics = {0};
    pthread_t thread;
    bool is_complete = false;
    int version, loaded = 0;

    if (mkdtemp(directory) == NULL) {
        perror(directory);
        return 1;
    }
    check(jittison_session_create(NULL, &session));
    check(jittison_dylib_create(session, jittison_str_of("plugin"), &dylib));
    check(jittison_patchable_create(session, dylib, &name, 1, &options, &plugin));
    for (version = 1; version <= 5; version++) {
        compile(directory, version, version == 3 ? bad : good, object, sizeof object);
        if (reload(plugin, object)) {
            loaded++;
            printf("version %d is loaded\n", version);
        }
        unlink(object);
        if (version == 1 && pthread_create(&thread, NULL, use_plugin, NULL) != 0) {
            return 1;
        }
    }
    while (atomic_load(&newest) < 5) {
        usleep(1000);
    }
    atomic_store(&is_over, true);
    pthread_join(thread, NULL);
    rmdir(directory);
    printf("%d versions were used, %s\n", loaded, atomic_load(&was_wrong) ? "some wrongly" : "all as expected");

    check(jittison_patchable_remove(plugin, &removal));
    check(jittison_removal_wait(removal, 10000, &is_complete));
    check(jittison_removal_release(removal));
    check(jittison_patchable_release(plugin));
    statistics.size = sizeof statistics;
    check(jittison_memory_statistics_read(session, &statistics));
    printf("removed: %s, live bytes: %llu\n", is_complete ? "freed" : "held", (unsigned long long)statistics.live_bytes);
    check(jittison_dylib_release(dylib));
    check(jittison_session_destroy(session));
    return atomic_load(&was_wrong);
}
