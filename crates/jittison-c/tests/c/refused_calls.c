/* System calls that the kernel refuses, as the tests of the Rust crate in `tests/refused_calls` have them: each gives an error with its
 * cause or a fallback. Nothing leaks, and the session still works.
 *
 * This program has functions of the C library by which the library gets memory. They refuse the n-th call of a kind.
 * Arguments: an object with code, constants, data, a large section and `long test(void)` that returns 7; one with `long one(void)`. */
#include "code.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Address space without access, accessible memory, and so on; every executable file, not the n-th. */
enum call { NOTHING, RESERVE, MAP, UNMAP, PROTECT, ADVISE, TRUNCATE, MEMFD, OPEN, EXECUTABLE_MEMFD };

/* The kind to refuse on this thread, and how many such calls succeed before. */
static _Thread_local enum call armed;
static _Thread_local long left;
/* Whether a call was refused since the last `refuse`. */
static _Thread_local bool was_refused;

static void refuse(enum call call, long after) {
    armed = call;
    left = after;
    was_refused = false;
}

static bool is_refused(enum call call, int error) {
    if (armed != call || left-- > 0) {
        return false;
    }
    armed = NOTHING;
    was_refused = true;
    errno = error;
    return true;
}

void *mmap(void *address, size_t length, int protection, int flags, int file, off_t offset) {
    if (is_refused(protection == PROT_NONE ? RESERVE : MAP, ENOMEM)) {
        return MAP_FAILED;
    }
    return (void *)syscall(SYS_mmap, address, length, protection, flags, file, offset);
}

void *mmap64(void *address, size_t length, int protection, int flags, int file, off64_t offset) {
    return mmap(address, length, protection, flags, file, offset);
}

int munmap(void *address, size_t length) {
    return is_refused(UNMAP, ENOMEM) ? -1 : (int)syscall(SYS_munmap, address, length);
}

int mprotect(void *address, size_t length, int protection) {
    return is_refused(PROTECT, ENOMEM) ? -1 : (int)syscall(SYS_mprotect, address, length, protection);
}

int madvise(void *address, size_t length, int advice) {
    return is_refused(ADVISE, EAGAIN) ? -1 : (int)syscall(SYS_madvise, address, length, advice);
}

int ftruncate64(int file, off64_t length) {
    return is_refused(TRUNCATE, ENOSPC) ? -1 : (int)syscall(SYS_ftruncate, file, length);
}

int memfd_create(const char *name, unsigned flags) {
    const unsigned noexec_seal = 8;
    if (is_refused(MEMFD, EMFILE)) {
        return -1;
    }
    if (armed == EXECUTABLE_MEMFD && (flags & noexec_seal) == 0) {
        was_refused = true;
        errno = EACCES;
        return -1;
    }
    return (int)syscall(SYS_memfd_create, name, flags);
}

int open64(const char *path, int flags, ...) {
    va_list rest;
    int mode;
    va_start(rest, flags);
    mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, int) : 0;
    va_end(rest);
    return is_refused(OPEN, EACCES) ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

static const char *large, *one;

/* Sessions with code memory that is mapped twice, and once. */
static jittison_session_options options_of(bool is_mapped_once) {
    jittison_session_options options = {0};
    options.size = sizeof options;
    options.window_size = 128 << 20;
    options.returns_memory = JITTISON_OFF;
    options.debugger = is_mapped_once ? JITTISON_ON : JITTISON_OFF;
    options.profiler = JITTISON_PROFILER_NONE;
    options.trap_freed_code = JITTISON_ON;
    return options;
}

static uint64_t live_bytes(jittison_session session) {
    jittison_memory_statistics statistics = {0};
    statistics.size = sizeof statistics;
    OK(jittison_memory_statistics_read(session, &statistics));
    return statistics.live_bytes;
}

/* The session links, runs and removes. */
static void check_works(jittison_session session, jittison_dylib dylib) {
    jittison_tracker tracker;
    jittison_function function;
    bool is_complete = false;
    jittison_removal removal;
    OK(jittison_tracker_create(dylib, &tracker));
    OK(jittison_object_add_file(session, tracker, STR(one)));
    OK(jittison_function_lookup(session, dylib, STR("one"), &function));
    CHECK(call_long(function) == 1);
    OK(jittison_function_release(function));
    OK(jittison_tracker_remove(tracker, &removal));
    OK(jittison_removal_is_complete(removal, &is_complete));
    CHECK(is_complete);
    OK(jittison_removal_release(removal));
    OK(jittison_tracker_release(tracker));
}

static void links(jittison_session session, jittison_dylib dylib, bool is_mapped_once) {
    static const enum call calls[] = {MAP, PROTECT, ADVISE};
    size_t index;
    for (index = 0; index < 3; index++) {
        int refusals = 0;
        bool is_over = false;
        while (!is_over) {
            jittison_tracker tracker;
            jittison_function test;
            jittison_error *error;
            OK(jittison_tracker_create(dylib, &tracker));
            OK(jittison_object_add_file(session, tracker, STR(large)));
            refuse(calls[index], refusals);
            error = jittison_function_lookup(session, dylib, STR("test"), &test);
            armed = NOTHING;
            is_over = !was_refused;
            if (error == NULL) {
                CHECK(is_over && call_long(test) == 7);
                OK(jittison_function_release(test));
            } else {
                CHECK(was_refused && jittison_error_root_code(error) == JITTISON_ERROR_MEMORY_REFUSED);
                CHECK(jittison_error_code(error) == JITTISON_ERROR_FAILED_TO_MATERIALIZE);
                CHECK(strcmp(jittison_error_symbol(error).data, "test") == 0);
                CHECK(strstr(jittison_error_message(error).data, "was refused: Cannot allocate memory") != NULL);
                CHECK(strstr(jittison_error_message(error).data, "the operation was undone") != NULL);
                jittison_error_free(error);
                refusals++;
            }
            OK(jittison_tracker_remove(tracker, NULL));
            OK(jittison_tracker_release(tracker));
            CHECK(live_bytes(session) == 0);
            check_works(session, dylib);
        }
        /* The large section is one mapping and one change of protection; memory that is mapped once changes more. */
        CHECK(calls[index] != MAP || refusals == 1);
        CHECK(calls[index] != PROTECT || (is_mapped_once ? refusals > 1 : refusals == 1));
    }
}

static void removals(jittison_session session, jittison_dylib dylib) {
    static const enum call calls[] = {UNMAP, PROTECT, ADVISE};
    size_t index;
    for (index = 0; index < 3; index++) {
        int refusals = 0, after;
        for (after = 0; after < 6; after++) {
            jittison_tracker tracker;
            jittison_removal removal;
            jittison_function test;
            bool is_complete = false;
            OK(jittison_tracker_create(dylib, &tracker));
            OK(jittison_object_add_file(session, tracker, STR(large)));
            OK(jittison_function_lookup(session, dylib, STR("test"), &test));
            CHECK(call_long(test) == 7);
            OK(jittison_function_release(test));
            refuse(calls[index], after);
            OK(jittison_tracker_remove(tracker, &removal));
            armed = NOTHING;
            OK(jittison_removal_is_complete(removal, &is_complete));
            CHECK(is_complete && live_bytes(session) == 0);
            OK(jittison_removal_release(removal));
            OK(jittison_tracker_release(tracker));
            check_works(session, dylib);
            refusals += was_refused;
        }
        CHECK(refusals > 0 || calls[index] != UNMAP);
    }
}

static int open_files(void) {
    DIR *directory = opendir("/proc/self/fd");
    int count = 0;
    CHECK(directory != NULL);
    while (readdir(directory) != NULL) {
        count++;
    }
    closedir(directory);
    return count;
}

/* Mappings of windows. */
static int windows(void) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    int count = 0;
    CHECK(maps != NULL);
    while (fgets(line, sizeof line, maps) != NULL) {
        count += strstr(line, "jittison-") != NULL && strstr(line, ".so") == NULL && strstr(line, "/tmp/") == NULL;
        count += strstr(line, "memfd:") != NULL;
    }
    fclose(maps);
    return count;
}

/* Makes sessions, and refuses the n-th call of a kind during the first link for every n. Returns the number of such calls. */
static int refuse_each(enum call call, bool is_mapped_once) {
    const jittison_session_options options = options_of(is_mapped_once);
    int after;
    for (after = 0; after < 1000; after++) {
        const int files = open_files(), mappings = windows();
        jittison_session session;
        jittison_dylib dylib;
        jittison_tracker tracker;
        jittison_function function;
        jittison_error *error;
        bool refused;
        OK(jittison_session_create(&options, &session));
        OK(jittison_dylib_main(session, &dylib));
        OK(jittison_tracker_create(dylib, &tracker));
        OK(jittison_object_add_file(session, tracker, STR(one)));
        refuse(call, after);
        error = jittison_function_lookup(session, dylib, STR("one"), &function);
        armed = NOTHING;
        refused = was_refused;
        if (error == NULL) {
            CHECK(call_long(function) == 1);
            OK(jittison_function_release(function));
        } else {
            CHECK(refused && jittison_error_root_code(error) == JITTISON_ERROR_MEMORY_REFUSED);
            CHECK(strstr(jittison_error_message(error).data, "the operation was undone") != NULL);
            jittison_error_free(error);
        }
        OK(jittison_tracker_remove(tracker, NULL));
        OK(jittison_tracker_release(tracker));
        CHECK(live_bytes(session) == 0);
        /* The next link maps code memory, if this one did not. */
        check_works(session, dylib);
        OK(jittison_dylib_release(dylib));
        OK(jittison_session_destroy(session));
        CHECK(open_files() == files && windows() == mappings);
        if (!refused) {
            return after;
        }
    }
    CHECK(!"the call is made for ever");
    return 0;
}

static void creations(bool is_mapped_once) {
    const int reserved = refuse_each(RESERVE, is_mapped_once), mapped = refuse_each(MAP, is_mapped_once);
    const int protected = refuse_each(PROTECT, is_mapped_once), truncated = refuse_each(TRUNCATE, is_mapped_once);
    const int files = refuse_each(MEMFD, is_mapped_once), advised = refuse_each(ADVISE, is_mapped_once);
    CHECK(reserved > 0 && mapped >= 3);
    CHECK(is_mapped_once ? protected > 0 : truncated > 0 && files > 0 && advised > 0);
    refuse_each(OPEN, is_mapped_once);
    refuse_each(UNMAP, is_mapped_once);
}

static void executable_files(void) {
    const jittison_session_options options = options_of(false);
    jittison_session session;
    jittison_dylib dylib;
    jittison_text *map = NULL;
    OK(jittison_session_create(&options, &session));
    OK(jittison_dylib_main(session, &dylib));
    refuse(EXECUTABLE_MEMFD, 0);
    check_works(session, dylib);
    armed = NOTHING;
    OK(jittison_memory_map_text(session, &map));
    CHECK(strstr(jittison_text_view(map).data, "mapped twice") != NULL);
    jittison_text_free(map);
    OK(jittison_dylib_release(dylib));
    OK(jittison_session_destroy(session));
}

/* Pages that the kernel does not take are returned by the next call. */
static void pages(void) {
    jittison_session_options options = options_of(false);
    int after;
    options.trap_freed_code = JITTISON_OFF;
    for (after = 0; after < 8; after++) {
        jittison_session session;
        jittison_dylib dylib;
        jittison_memory_statistics statistics = {0};
        uint64_t resident, first = 0, second = 0, third = 1;
        OK(jittison_session_create(&options, &session));
        OK(jittison_dylib_main(session, &dylib));
        check_works(session, dylib);
        statistics.size = sizeof statistics;
        OK(jittison_memory_statistics_read(session, &statistics));
        resident = statistics.resident_bytes;
        refuse(ADVISE, after);
        OK(jittison_memory_release_free(session, &first));
        armed = NOTHING;
        OK(jittison_memory_release_free(session, &second));
        OK(jittison_memory_release_free(session, &third));
        CHECK(resident > 0 && first + second == resident && third == 0);
        CHECK(after > 0 || was_refused);
        OK(jittison_memory_statistics_read(session, &statistics));
        CHECK(statistics.resident_bytes == 0 && statistics.allocations == 0);
        OK(jittison_dylib_release(dylib));
        OK(jittison_session_destroy(session));
    }
}

int main(int argc, char **argv) {
    int is_mapped_once;
    CHECK(argc == 3);
    large = argv[1];
    one = argv[2];
    for (is_mapped_once = 0; is_mapped_once < 2; is_mapped_once++) {
        const jittison_session_options options = options_of(is_mapped_once);
        jittison_session session;
        jittison_dylib dylib;
        OK(jittison_session_create(&options, &session));
        OK(jittison_dylib_main(session, &dylib));
        check_works(session, dylib);
        links(session, dylib, is_mapped_once);
        removals(session, dylib);
        OK(jittison_dylib_release(dylib));
        OK(jittison_session_destroy(session));
        creations(is_mapped_once);
    }
    executable_files();
    pages();
    return 0;
}
