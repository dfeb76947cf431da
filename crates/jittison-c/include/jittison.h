/* jittison.h - the C API of jittison, a JIT linker in which every piece of running code can be taken back.
 *
 * Relocatable objects go in, callable addresses come out. What an object brought belongs to a tracker. One call removes
 * all of it while other threads keep running.
 *
 * RULES
 *
 * Threads.    Every function may be called by any thread at any time, with any handle. Only guards and calls belong to one
 *             thread.
 *
 * Handles.    A handle is a number in a struct. All zeros is the null handle. A handle that is null, released, forged or
 *             of another kind is the error JITTISON_ERROR_INVALID_HANDLE. Each handle that a function writes is owned by
 *             the caller, who releases it once, with the release function of its kind. Handles outlive their session: after
 *             jittison_session_destroy they must still be released.
 *
 * Errors.     A function that can fail returns NULL, or an error that the caller owns and frees with jittison_error_free.
 *             After an error the session keeps working. Out-parameters are written only if the call succeeds.
 *
 * Strings.    A jittison_str is a pointer and a length; the functions read it before they return and do not keep it. Names
 *             and paths are UTF-8. NULL with the length 0 is the empty string.
 *
 * Out.        An out-parameter must not be NULL, unless its function says that it may be.
 *
 * Structs.    A struct whose first field is `size` may grow at its end. Set `size` to its sizeof. Fields that are zero
 *             have their defaults. Set fields named `reserved` to zero.
 *
 * Callbacks.  A callback gets its context last. It must not throw an exception. It may call any function of this header, if
 *             its description does not say otherwise. A struct of callbacks is copied. Its `dropped`, which may be NULL, is
 *             called once, when the library uses neither the callbacks nor the context any more. If the call that takes the
 *             struct fails with JITTISON_ERROR_INVALID_HANDLE or _INVALID_ARGUMENT, `dropped` is not called; after any other
 *             error, it was called or will be.
 *             A handle or a struct that a callback gets is valid during the callback, and the callback does not release it, if
 *             its description does not say otherwise.
 *
 * Exceptions. No panic of the library reaches the caller: it becomes JITTISON_ERROR_PANIC. Functions that are marked
 *             "runs linked code" run initialisers or a program on the calling thread. An exception of that code passes
 *             through them to the caller, as it passes through dlopen. An exception that leaves a finaliser ends the
 *             process.
 *
 * Promises.   The library cannot know what linked code does. A function that is marked "runs linked code" or "hands out
 *             code" needs these promises of its caller:
 *             - All objects that were added so far to the searched dylibs may run in this process: their initialisers in
 *               the call, their finalisers and exit handlers when they are removed.
 *             - A name is called only as a function of its real signature.
 *             - An address that was given as a number (absolute symbol, target of a stub) stays in memory as long as code
 *               may reach it.
 */
#ifndef JITTISON_H
#define JITTISON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define JITTISON_VERSION_MAJOR 0
#define JITTISON_VERSION_MINOR 1
#define JITTISON_VERSION_PATCH 0

/* A function of the library. */
#define JITTISON_API extern
/* The result must not be ignored. */
#if defined(__GNUC__) || defined(__clang__)
#define JITTISON_CHECK __attribute__((warn_unused_result))
#else
#define JITTISON_CHECK
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- strings and texts ------------------------------------------------------------------------------------------- */

/* A string that somebody else owns. Strings of texts and errors have a NUL behind them, which `length` does not count. Strings
 * that a callback gets have none. */
typedef struct jittison_str {
    const char *data;
    size_t length;
} jittison_str;

/* A view of a string that ends with NUL. NULL gives the empty string. */
static inline jittison_str jittison_str_of(const char *text) {
    jittison_str view;
    view.data = text;
    view.length = text ? strlen(text) : 0;
    return view;
}

/* A text that the caller owns. */
typedef struct jittison_text jittison_text;

/* The characters of a text, until it is freed. NULL gives the empty string. */
JITTISON_API jittison_str jittison_text_view(const jittison_text *text);

/* Frees a text. NULL is allowed. */
JITTISON_API void jittison_text_free(jittison_text *text);

/* ---- errors ------------------------------------------------------------------------------------------------------ */

/* An error, which the caller owns. */
typedef struct jittison_error jittison_error;

/* What went wrong: one of JITTISON_ERROR_... . Later versions may have more codes; no code changes its meaning. */
typedef uint32_t jittison_code;

enum {
    /* The code of NULL: no error. */
    JITTISON_OK = 0,
    /* A handle is null, released, forged or of another kind. Nothing was done. */
    JITTISON_ERROR_INVALID_HANDLE = 1,
    /* An argument is not as this header demands. Nothing was done. */
    JITTISON_ERROR_INVALID_ARGUMENT = 2,
    /* A guard or a call was used by another thread than its own. Nothing was done. */
    JITTISON_ERROR_WRONG_THREAD = 3,
    /* There are 2^24 handles of one kind. Nothing was done. */
    JITTISON_ERROR_TOO_MANY_HANDLES = 4,
    /* A panic in the library, which is a defect of it. */
    JITTISON_ERROR_PANIC = 5,
    /* An error for which this version of the C API has no code. */
    JITTISON_ERROR_UNKNOWN = 99,

    /* An error of the embedder: of a callback. */
    JITTISON_ERROR_OTHER = 100,
    /* Several errors of one removal. */
    JITTISON_ERROR_SEVERAL = 101,
    /* The tracker was removed, or transferred to another one. */
    JITTISON_ERROR_TRACKER_DEFUNCT = 102,
    /* The dylib was removed, or its session has ended. */
    JITTISON_ERROR_DYLIB_DEFUNCT = 103,
    /* The session has ended. */
    JITTISON_ERROR_SESSION_ENDED = 104,
    /* jittison_tracker_try_remove: something uses the tracker. */
    JITTISON_ERROR_IN_USE = 105,
    /* The guard is of another session. */
    JITTISON_ERROR_FOREIGN_GUARD = 106,
    /* The tracker is of another dylib. */
    JITTISON_ERROR_FOREIGN_TRACKER = 107,
    /* A dylib or tracker is of another session. */
    JITTISON_ERROR_FOREIGN_SESSION = 108,
    /* A dylib was deinitialised more often than initialised. */
    JITTISON_ERROR_NOT_INITIALIZED = 109,
    /* An initialiser of the object failed on another thread. */
    JITTISON_ERROR_INITIALIZER_FAILED = 110,
    /* Symbols have no definition in the searched dylibs. */
    JITTISON_ERROR_SYMBOLS_NOT_FOUND = 111,
    /* The dylib has a strong definition of the name already. */
    JITTISON_ERROR_DUPLICATE_DEFINITION = 112,
    /* A common symbol is larger than the definition that takes its place. */
    JITTISON_ERROR_COMMON_TOO_SMALL = 113,
    /* The unit of the symbols failed; the root code says why. */
    JITTISON_ERROR_FAILED_TO_MATERIALIZE = 114,
    /* A symbol was removed while code that refers to it was linked. */
    JITTISON_ERROR_DEPENDENCY_REMOVED = 115,
    /* A materialisation unit released its responsibility, and neither emitted nor failed its symbols. */
    JITTISON_ERROR_RESPONSIBILITY_DROPPED = 116,
    /* A materialisation unit acted on a symbol that is not its own. */
    JITTISON_ERROR_NOT_RESPONSIBLE = 117,
    /* A unit defines other symbols than it promised. */
    JITTISON_ERROR_INTERFACE_MISMATCH = 118,
    /* A generator dropped a lookup that it had suspended. */
    JITTISON_ERROR_LOOKUP_ABANDONED = 119,
    /* Symbols cannot be removed while they are linked. */
    JITTISON_ERROR_SYMBOLS_COULD_NOT_BE_REMOVED = 120,
    /* Aliases stand for each other. */
    JITTISON_ERROR_ALIAS_CYCLE = 121,
    /* The dylib has no such stub. */
    JITTISON_ERROR_NO_SUCH_STUB = 122,
    /* The functions cannot be made patchable. */
    JITTISON_ERROR_NOT_PATCHABLE = 123,
    /* The patch was refused; the root code says why. */
    JITTISON_ERROR_PATCH_REFUSED = 124,
    /* The patched functions were removed. */
    JITTISON_ERROR_PATCHABLE_GONE = 125,
    /* There is no earlier version to return to. */
    JITTISON_ERROR_NOTHING_TO_ROLL_BACK = 126,
    /* Too many versions of the functions are still held. */
    JITTISON_ERROR_TOO_MANY_VERSIONS = 127,
    /* A patch has another size or type of a variable. */
    JITTISON_ERROR_VARIABLE_CHANGED = 128,
    /* A function has another signature than expected. */
    JITTISON_ERROR_WRONG_SIGNATURE = 129,
    /* An archive cannot be read. */
    JITTISON_ERROR_ARCHIVE = 130,
    /* A file cannot be read. */
    JITTISON_ERROR_FILE = 131,
    /* A new version of an object cannot replace the one that runs. */
    JITTISON_ERROR_RELOAD_REFUSED = 132,

    /* An object cannot be linked, for another reason than those below. */
    JITTISON_ERROR_LINK = 200,
    JITTISON_ERROR_LINK_NOT_AN_OBJECT = 201,
    JITTISON_ERROR_LINK_MALFORMED = 202,
    JITTISON_ERROR_LINK_WRONG_ARCHITECTURE = 203,
    JITTISON_ERROR_LINK_UNSUPPORTED = 204,
    JITTISON_ERROR_LINK_OUT_OF_RANGE = 205,
    JITTISON_ERROR_LINK_HIDDEN_UNDEFINED = 206,
    JITTISON_ERROR_LINK_BOUNDS_ACROSS_OBJECTS = 207,
    JITTISON_ERROR_LINK_BROKEN_BY_PLUGIN = 208,
    JITTISON_ERROR_LINK_INVALID_GRAPH = 209,
    JITTISON_ERROR_LINK_VERIFICATION = 210,
    JITTISON_ERROR_LINK_MISALIGNED = 211,

    /* Code memory cannot be had, for another reason than those below. */
    JITTISON_ERROR_MEMORY = 300,
    JITTISON_ERROR_MEMORY_POOL_EXHAUSTED = 301,
    JITTISON_ERROR_MEMORY_BUDGET_EXCEEDED = 302,
    JITTISON_ERROR_MEMORY_REFUSED = 303,
    JITTISON_ERROR_MEMORY_BAD_PLAN = 304,
    JITTISON_ERROR_MEMORY_BAD_WINDOW = 305,
    JITTISON_ERROR_MEMORY_NEVER_RUNS = 306
};

/* The code of an error. JITTISON_OK for NULL. */
JITTISON_API jittison_code jittison_error_code(const jittison_error *error);

/* The code of the first failure, which led to this error. JITTISON_OK for NULL. */
JITTISON_API jittison_code jittison_error_root_code(const jittison_error *error);

/* Whether the same call may succeed later without a change of its arguments. False for NULL. */
JITTISON_API bool jittison_error_is_retriable(const jittison_error *error);

/* What failed, what was undone and what to do. Valid until the error is freed. Empty for NULL. */
JITTISON_API jittison_str jittison_error_message(const jittison_error *error);

/* The object or file that the error names. Valid until the error is freed. Empty if it names none. */
JITTISON_API jittison_str jittison_error_object(const jittison_error *error);

/* The first symbol that the error names. Valid until the error is freed. Empty if it names none. */
JITTISON_API jittison_str jittison_error_symbol(const jittison_error *error);

/* Makes an error with the code JITTISON_ERROR_OTHER, which a callback may return. Never NULL. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_error_create(jittison_str message);

/* Frees an error. NULL is allowed. */
JITTISON_API void jittison_error_free(jittison_error *error);

/* ---- handles ----------------------------------------------------------------------------------------------------- */

/* A session: dylibs, code memory, and all that is linked. */
typedef struct jittison_session { uint64_t bits; } jittison_session;
/* A dylib: a table of symbols, and the dylibs that it links against. */
typedef struct jittison_dylib { uint64_t bits; } jittison_dylib;
/* A tracker: owns what was added under it. */
typedef struct jittison_tracker { uint64_t bits; } jittison_tracker;
/* A function that stays in memory while the handle is held. */
typedef struct jittison_function { uint64_t bits; } jittison_function;
/* The ticket of a removal. */
typedef struct jittison_removal { uint64_t bits; } jittison_removal;
/* A guard of one thread. */
typedef struct jittison_guard { uint64_t bits; } jittison_guard;
/* An entry of one thread's call into patched functions. */
typedef struct jittison_call { uint64_t bits; } jittison_call;
/* A stub: a function whose target can be changed. It stays in memory while the handle is held. */
typedef struct jittison_stub { uint64_t bits; } jittison_stub;
/* A set of functions that come in versions. */
typedef struct jittison_patchable { uint64_t bits; } jittison_patchable;
/* A new version that is being made. */
typedef struct jittison_patch { uint64_t bits; } jittison_patch;
/* A resource manager of the embedder. */
typedef struct jittison_manager { uint64_t bits; } jittison_manager;
/* A generator of the embedder. */
typedef struct jittison_generator { uint64_t bits; } jittison_generator;
/* The duty to supply the symbols of a unit. */
typedef struct jittison_responsibility { uint64_t bits; } jittison_responsibility;
/* Keeps a symbol's code in memory. */
typedef struct jittison_pin { uint64_t bits; } jittison_pin;
/* A graph of blocks, symbols and edges that is being made. */
typedef struct jittison_graph { uint64_t bits; } jittison_graph;
/* A plugin of the embedder. */
typedef struct jittison_plugin { uint64_t bits; } jittison_plugin;
/* A link, during a callback of a plugin. No function releases it. */
typedef struct jittison_link { uint64_t bits; } jittison_link;
/* Functions that are compiled at their first calls. */
typedef struct jittison_on_demand { uint64_t bits; } jittison_on_demand;
/* A compiler of functions in several tiers. */
typedef struct jittison_reoptimizer { uint64_t bits; } jittison_reoptimizer;
/* Functions that come in tiers. */
typedef struct jittison_tiered { uint64_t bits; } jittison_tiered;
/* A lookup that a generator has suspended. */
typedef struct jittison_suspension { uint64_t bits; } jittison_suspension;
/* A program whose objects are replaced while it runs. */
typedef struct jittison_reloader { uint64_t bits; } jittison_reloader;

/* ---- library ----------------------------------------------------------------------------------------------------- */

/* Writes the version of the library, as "major.minor.patch". The string is never freed. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_library_version(jittison_str *out);

/* ---- sessions ---------------------------------------------------------------------------------------------------- */

/* A setting that may be left to the library. */
enum { JITTISON_DEFAULT = 0, JITTISON_ON = 1, JITTISON_OFF = 2 };

/* Which thread reclaims a removed tracker when its last pin goes: the thread that drops the pin, a thread of the session, or
 * one that calls jittison_session_reclaim. */
enum { JITTISON_RECLAIM_ON_DROP = 0, JITTISON_RECLAIM_BACKGROUND = 1, JITTISON_RECLAIM_EXPLICIT = 2 };

/* What happens when a window of code memory is full: the link fails, or another window is opened. */
enum { JITTISON_FULL_REFUSE = 0, JITTISON_FULL_OPEN_ANOTHER = 1 };

/* Where in the address space code memory is reserved. */
enum {
    JITTISON_PLACEMENT_DEFAULT = 0,
    JITTISON_PLACEMENT_NEAR_LIBRARIES = 1,
    JITTISON_PLACEMENT_NEAR_HOST = 2,
    JITTISON_PLACEMENT_LOW_2_GIB = 3,
    JITTISON_PLACEMENT_ANYWHERE = 4
};

/* How linked code is described to perf. Default: as the environment variable JITTISON_PERF says (`jitdump` or `map`). */
enum {
    JITTISON_PROFILER_DEFAULT = 0,
    JITTISON_PROFILER_NONE = 1,
    JITTISON_PROFILER_JITDUMP = 2,
    JITTISON_PROFILER_PERF_MAP = 3
};

/* What a forked child gets of code memory: a copy, or the pages of the parent. */
enum { JITTISON_FORK_SNAPSHOT = 0, JITTISON_FORK_SHARE = 1 };

/* The kinds of code memory. */
enum { JITTISON_POOL_CODE = 0, JITTISON_POOL_READ_ONLY = 1, JITTISON_POOL_DATA = 2 };

/* A window of code memory that is to be mapped: `bytes` bytes, of which each pool has a part. */
typedef struct jittison_window_layout {
    uint64_t bytes;
    /* By JITTISON_POOL_...: where the pool is in the window, and its size. */
    uint64_t pool_offsets[3];
    uint64_t pool_sizes[3];
    /* JITTISON_PLACEMENT_... */
    uint32_t placement;
    uint32_t reserved;
} jittison_window_layout;

/* A window that a mapper has mapped.
 *
 * The mapper promises, until `unmap` is called: each working view has as many readable and writable bytes as its pool, and
 * nobody else writes them. They are the same bytes as those at `base` plus the offset of the pool. The memory of the data
 * pool is zero until it is written, and after `purge`. No other window has the same memory. Code that is sealed can be
 * executed.
 *
 * No unwinder knows the code of such a window: exceptions do not pass through it. */
typedef struct jittison_window {
    /* Set by the library. */
    size_t size;
    /* The address where the window begins, and where code runs. A multiple of the page size. */
    uint64_t base;
    /* By JITTISON_POOL_...: where the bytes of the pool are written. This may be another mapping than the one at `base`. */
    void *working[3];
    /* By JITTISON_POOL_...: bytes of the unit of allocation, a power of two. 0: 64 for code, 16 for the others. */
    uint64_t granules[3];
    /* 1: the library maps this window itself, and ignores the other fields. */
    uint32_t uses_system;
    uint32_t reserved;
    /* Makes a range of a pool writable through its working view. May be called for a sealed range; it keeps its bytes then,
     * and stays readable. NULL: it always is. Returns NULL or an error, which the library then owns. */
    jittison_error *(*open)(uint32_t pool, uint64_t offset, uint64_t bytes, void *context);
    /* Gives a range its final protection. NULL: it has it from the start. */
    jittison_error *(*seal)(uint32_t pool, uint64_t offset, uint64_t bytes, void *context);
    /* Returns complete pages to the kernel, which read as zero afterwards. Needed. */
    jittison_error *(*purge)(uint32_t pool, uint64_t offset, uint64_t bytes, void *context);
    /* The window is not used any more: unmap it. Called once, after all other calls. May be NULL. */
    void (*unmap)(void *context);
    /* The last argument of these callbacks. */
    void *context;
} jittison_window;

/* What a memory mapper does. `map` is needed. Both may be called on any thread, under locks, and call no other function of
 * this header than jittison_error_create. */
typedef struct jittison_mapper_callbacks {
    /* sizeof(jittison_mapper_callbacks). */
    size_t size;
    /* Maps a window, and fills `window`, all of whose fields but `size` are zero. Returns NULL, or an error, which the
     * library then owns; the library may then ask for a smaller window. */
    jittison_error *(*map)(const jittison_window_layout *layout, jittison_window *window, void *context);
    void (*dropped)(void *context);
} jittison_mapper_callbacks;

/* What happened. */
enum {
    /* An object was linked: `name`, `bytes` of its segments, `counts` of definitions, externals and relocations,
     * `nanoseconds`. */
    JITTISON_EVENT_LINKED = 1,
    /* `symbols` are ready. */
    JITTISON_EVENT_PUBLISHED = 2,
    /* `symbols` of the unit `name` have addresses. */
    JITTISON_EVENT_RESOLVED = 3,
    /* A tracker was removed, and its names are gone: `counts` of the handles, guards and dependants that keep its memory. */
    JITTISON_EVENT_RETIRED = 4,
    /* `bytes` of a removed tracker are freed. `counts[0]`: resource managers that failed. */
    JITTISON_EVENT_RECLAIMED = 5,
    /* What `old_tracker` owned belongs to `tracker`. */
    JITTISON_EVENT_TRANSFERRED = 6,
    /* The stub `name` leads to `address`, and led to `old_address`. */
    JITTISON_EVENT_REDIRECTED = 7,
    /* The unit or object `name` failed with `error`. */
    JITTISON_EVENT_REFUSED = 8,
    /* Code memory: `address` and `bytes` of a window, of a slab of `pool`, or of a large section. */
    JITTISON_EVENT_WINDOW_MAPPED = 20,
    JITTISON_EVENT_WINDOW_UNMAPPED = 21,
    JITTISON_EVENT_SLAB_OPENED = 22,
    JITTISON_EVENT_SLAB_CLOSED = 23,
    JITTISON_EVENT_LARGE_SECTION_MAPPED = 24,
    JITTISON_EVENT_LARGE_SECTION_UNMAPPED = 25,
    /* `bytes` in `counts[0]` slabs of the window at `address` went back to the kernel. */
    JITTISON_EVENT_MEMORY_RETURNED = 26
};

/* An event. Fields without a meaning for its kind are zero. */
typedef struct jittison_event {
    /* Set by the library. */
    size_t size;
    /* JITTISON_EVENT_... Later versions may have more. */
    uint32_t kind;
    /* JITTISON_POOL_... */
    uint32_t pool;
    /* Valid during the callback. Null for events of code memory. */
    jittison_dylib dylib;
    jittison_str name;
    const jittison_str *symbols;
    size_t symbol_count;
    uint64_t address;
    uint64_t old_address;
    uint64_t bytes;
    uint64_t counts[3];
    uint64_t nanoseconds;
    /* Valid during the callback. Not to be freed. */
    const jittison_error *error;
    /* The trackers, by the names that jittison_tracker_name writes. */
    jittison_str tracker;
    jittison_str old_tracker;
} jittison_event;

/* A call of a lazy function that cannot be linked. */
typedef struct jittison_lazy_failure {
    /* The function, and the dylib that it was defined in. */
    jittison_str symbol;
    jittison_str dylib;
    /* The function that it stands for, and the dylib that should supply it. */
    jittison_str aliasee;
    jittison_str source;
    /* Not to be freed. */
    const jittison_error *error;
} jittison_lazy_failure;

/* Settings of a session. All zeros but `size` are the defaults. */
typedef struct jittison_session_options {
    /* sizeof(jittison_session_options). */
    size_t size;
    /* Upper limit of code memory in bytes. 0: none. */
    uint64_t memory_budget;
    /* Bytes of address space to reserve for code memory. 0: the default. */
    uint64_t window_size;
    /* Bytes by which each pool of code memory grows. 0: the default. */
    uint64_t slab_size;
    /* Upper limit of threads that link. 0: the thread that looks up a symbol links what it needs. */
    uint32_t worker_threads;
    /* JITTISON_RECLAIM_... */
    uint32_t reclaim;
    /* JITTISON_FULL_... */
    uint32_t on_full;
    /* JITTISON_PLACEMENT_... */
    uint32_t placement;
    /* Whether gdb and lldb see linked code: JITTISON_DEFAULT (JITTISON_GDB=1 in the environment), _ON or _OFF. */
    uint32_t debugger;
    /* JITTISON_PROFILER_... */
    uint32_t profiler;
    /* Whether freed code is overwritten with trap instructions: JITTISON_DEFAULT, _ON or _OFF. */
    uint32_t trap_freed_code;
    uint32_t reserved;
    /* Shared libraries, by file name, whose symbols linked code may use besides those of the process. They stay open. */
    const jittison_str *libraries;
    size_t library_count;
    /* Symbols to wrap, as `ld --wrap` does. */
    const jittison_str *wrapped;
    size_t wrapped_count;
    /* Called, on any thread, with each error that no caller receives. The callee owns the error. May be NULL. It is valid
     * until the session is destroyed and all its removals are complete. */
    void (*report_error)(jittison_error *error, void *context);
    void *report_error_context;
    /* Whether free code memory returns to the kernel in the background: JITTISON_DEFAULT (on), _ON or _OFF. */
    uint32_t returns_memory;
    /* Whether links share windows of code memory: JITTISON_DEFAULT (on), _ON, or _OFF, which is slow and finds faults. */
    uint32_t pooled;
    /* How many threads can link at once without waiting for a lock. 0: one for each processor, at most eight. */
    uint32_t shards;
    /* JITTISON_FORK_... */
    uint32_t fork;
    /* Not 0: code is linked for this address and those behind it, and never runs. A plugin sees its final bytes. */
    uint64_t offline_address;
    /* Maps code memory. NULL: the library does. A session with a mapper of its own does not move code memory for `debugger`
     * and `profiler`. */
    const jittison_mapper_callbacks *mapper;
    void *mapper_context;
    /* Called with each event, on the thread on which it happens, without a lock. Valid until the session is destroyed and all
     * handles of it are released. NULL: events cost nothing. */
    void (*observe)(const jittison_event *event, void *context);
    void *observe_context;
    /* Called on the thread that calls a lazy function that cannot be linked. Returns the address of a function of the same
     * signature, which is called instead and stays in memory as long as it runs. 0, or NULL in place of the callback: the
     * process ends with a message. Valid as long as `observe`. */
    uint64_t (*lazy_failure)(const jittison_lazy_failure *failure, void *context);
    void *lazy_failure_context;
} jittison_session_options;

/* Creates a session. It has the dylibs `main` and `process`. `options` may be NULL. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_session_create(const jittison_session_options *options,
                                                                    jittison_session *out);

/* Ends a session and releases its handle. All dylibs are removed, newest first. What handles of functions, guards or calls
 * hold is freed when they are released. Calls of other threads that use the session finish, or fail with
 * JITTISON_ERROR_SESSION_ENDED or JITTISON_ERROR_DYLIB_DEFUNCT. The error is that of resource managers; the session has ended
 * in any case, unless the handle is invalid. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_session_destroy(jittison_session session);

/* Reclaims the removed trackers that JITTISON_RECLAIM_EXPLICIT has queued. Writes their number to `count`, which may be
 * NULL. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_session_reclaim(jittison_session session, size_t *count);

/* Waits until the threads of the session that link are idle, and ends them, for example before a fork. The session starts
 * new ones when there is work again. On such a thread this does nothing. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_session_dismiss_workers(jittison_session session);

/* ---- dylibs ------------------------------------------------------------------------------------------------------ */

/* Writes a handle of the dylib `main`. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_dylib_main(jittison_session session, jittison_dylib *out);

/* Writes a handle of the dylib of the process's symbols. Every other dylib has it last in its link order at first. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_dylib_process(jittison_session session, jittison_dylib *out);

/* Creates a dylib. It links against the dylib of the process. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_dylib_create(jittison_session session, jittison_str name,
                                                                  jittison_dylib *out);

/* Writes a handle of the first dylib with this name. JITTISON_ERROR_INVALID_ARGUMENT if there is none. Takes time in
 * proportion to the number of dylibs. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_dylib_find(jittison_session session, jittison_str name,
                                                                jittison_dylib *out);

/* Releases a handle. The dylib stays. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_dylib_release(jittison_dylib dylib);

/* Writes the name of a dylib. The caller frees the text. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_dylib_name(jittison_dylib dylib, jittison_text **out);

/* Writes the number of symbols that the table of a dylib has. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_dylib_symbol_count(jittison_dylib dylib, size_t *out);

/* Which symbols of a dylib a link order shows. */
enum { JITTISON_VISIBILITY_EXPORTED = 0, JITTISON_VISIBILITY_ALL = 1 };

/* A dylib of a link order. */
typedef struct jittison_link_entry {
    jittison_dylib dylib;
    /* JITTISON_VISIBILITY_... */
    uint32_t visibility;
    uint32_t reserved;
} jittison_link_entry;

/* Sets the dylibs that are searched after the dylib itself. The handles stay the caller's. Replaces the dylib of the process,
 * too. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_dylib_set_link_order(jittison_dylib dylib,
                                                                          const jittison_link_entry *entries,
                                                                          size_t count);

/* Appends dylibs to the link order. Those that are in it already keep their places. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_dylib_add_to_link_order(jittison_dylib dylib,
                                                                             const jittison_link_entry *entries,
                                                                             size_t count);

/* Takes a dylib out of the link order. Writes whether it was in it to `was_in_order`, which may be NULL. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_dylib_remove_from_link_order(jittison_dylib dylib,
                                                                                  jittison_dylib other,
                                                                                  bool *was_in_order);

/* Puts the dylib of `entry` into the place of `old` in the link order. Writes whether `old` was in it to `was_in_order`,
 * which may be NULL. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_dylib_replace_in_link_order(jittison_dylib dylib,
                                                                                 jittison_dylib old,
                                                                                 const jittison_link_entry *entry,
                                                                                 bool *was_in_order);

/* Writes the link order: at most `capacity` entries, and the number of all to `count`. The caller releases the handles of the
 * entries. `out` may be NULL if `capacity` is 0. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_dylib_link_order(jittison_dylib dylib, jittison_link_entry *out,
                                                                      size_t capacity, size_t *count);

/* Writes whether a dylib was removed, or its session has ended. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_dylib_is_defunct(jittison_dylib dylib, bool *out);

/* Links every object of the dylib that has initialisers, and every such object of the dylibs that it links against, and
 * runs the initialisers that wait, dependencies first. Calls are counted. Writes the number of functions called to
 * `functions`, which may be NULL. Runs linked code. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_dylib_initialize(jittison_session session, jittison_dylib dylib,
                                                                      size_t *functions);

/* Undoes one jittison_dylib_initialize, as one dlclose undoes one dlopen. The last such call runs exit handlers and
 * finalisers. `functions` may be NULL. Runs linked code. The caller promises that no thread is in code that is finalised,
 * or calls it before it is initialised again. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_dylib_deinitialize(jittison_session session, jittison_dylib dylib,
                                                                        size_t *functions);

/* Removes everything in a dylib, which stays usable. `removal` may be NULL, else the caller releases it. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_dylib_clear(jittison_dylib dylib, jittison_removal *removal);

/* Removes a dylib and everything in it. The handle must still be released. `removal` may be NULL, else the caller releases
 * it. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_dylib_remove(jittison_session session, jittison_dylib dylib,
                                                                  jittison_removal *removal);

/* ---- trackers ---------------------------------------------------------------------------------------------------- */

/* Creates a tracker of a dylib. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_tracker_create(jittison_dylib dylib, jittison_tracker *out);

/* Writes a handle of the dylib's default tracker, which owns what was added under no other, and what trackers owned whose
 * last handle was released. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_tracker_default(jittison_dylib dylib, jittison_tracker *out);

/* Releases a handle. It removes nothing: what the tracker owns passes to the default tracker of the dylib. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_tracker_release(jittison_tracker tracker);

/* Writes whether a tracker was removed or transferred. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_tracker_is_defunct(jittison_tracker tracker, bool *out);

/* Moves what `source` owns to `destination`, a tracker of the same dylib. `source` is defunct after it. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_tracker_transfer(jittison_tracker source,
                                                                      jittison_tracker destination);

/* Removes everything under a tracker. Its names are gone at once; its memory is freed when nothing pins it: a function handle,
 * a guard, a call, or code that refers to it. Never waits for them. The handle must still be released. `removal` may be
 * NULL, else the caller releases it. Finalisers run on the thread that frees the memory. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_tracker_remove(jittison_tracker tracker,
                                                                    jittison_removal *removal);

/* As jittison_tracker_remove, if nothing pins the tracker. Else JITTISON_ERROR_IN_USE, and nothing was done. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_tracker_try_remove(jittison_tracker tracker,
                                                                        jittison_removal *removal);

/* As jittison_tracker_remove, and removes the trackers whose code refers to it as well. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_tracker_remove_cascade(jittison_tracker tracker,
                                                                            jittison_removal *removal);

/* Removes several trackers in one step. The ticket is that of all. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_tracker_remove_all(const jittison_tracker *trackers, size_t count,
                                                                        jittison_removal *removal);

/* Frees everything under a tracker at once, even if something pins it. The caller promises that no thread is inside its code,
 * will call it, or accesses its data. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_tracker_remove_now(jittison_session session,
                                                                        jittison_tracker tracker,
                                                                        jittison_removal *removal);

/* Writes the name of a tracker, as errors and events have it. The caller frees the text. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_tracker_name(jittison_tracker tracker, jittison_text **out);

/* Writes a handle of the dylib of a tracker. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_tracker_dylib(jittison_tracker tracker, jittison_dylib *out);

/* Writes the trackers whose code the code of this one refers to: at most `capacity` handles, which the caller releases, and
 * the number of all to `count`. `out` may be NULL if `capacity` is 0. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_tracker_dependencies(jittison_tracker tracker,
                                                                          jittison_tracker *out, size_t capacity,
                                                                          size_t *count);

/* As jittison_tracker_dependencies, for the trackers whose code refers to that of this one. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_tracker_dependents(jittison_tracker tracker,
                                                                        jittison_tracker *out, size_t capacity,
                                                                        size_t *count);

/* Flags of a symbol. A caller sets the first four only. */
enum {
    JITTISON_SYMBOL_EXPORTED = 1,
    JITTISON_SYMBOL_WEAK = 2,
    JITTISON_SYMBOL_CALLABLE = 4,
    /* Of a unit: the symbol has no address, and a lookup of it only runs the unit. */
    JITTISON_SYMBOL_SIDE_EFFECTS_ONLY = 8,
    JITTISON_SYMBOL_ABSOLUTE = 16,
    JITTISON_SYMBOL_COMMON = 32,
    JITTISON_SYMBOL_THREAD_LOCAL = 64
};

/* A name for an address that the caller knows. */
typedef struct jittison_absolute_symbol {
    jittison_str name;
    uint64_t address;
    /* JITTISON_SYMBOL_..., joined with `|`. */
    uint32_t flags;
    uint32_t reserved;
} jittison_absolute_symbol;

/* Defines names for addresses under a tracker: either all or none. The addresses stay in memory as long as code may reach
 * them. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_tracker_define_absolute(jittison_tracker tracker,
                                                                             const jittison_absolute_symbol *symbols,
                                                                             size_t count);

/* ---- objects and archives ---------------------------------------------------------------------------------------- */

/* Adds an object under a tracker. The bytes are copied. The object is linked when one of its symbols is looked up. `name` is
 * for messages. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_object_add(jittison_session session, jittison_tracker tracker,
                                                                jittison_str name, const void *bytes, size_t size);

/* As jittison_object_add, for a file, which is read in this call. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_object_add_file(jittison_session session,
                                                                     jittison_tracker tracker, jittison_str path);

/* Adds an object and links it at once on this thread, with what it refers to. Initialisers do not run here. The bytes are
 * copied. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_object_link(jittison_session session, jittison_tracker tracker,
                                                                 jittison_str name, const void *bytes, size_t size);

/* Adds every object of an archive under a tracker. Writes their number to `members`, which may be NULL. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_archive_add(jittison_session session, jittison_tracker tracker,
                                                                 jittison_str path, size_t *members);

/* Links a dylib against a static library: its members are added when a lookup misses one of their symbols. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_archive_link(jittison_session session, jittison_dylib dylib,
                                                                  jittison_str path);

/* ---- lookups ----------------------------------------------------------------------------------------------------- */

/* Writes the address of a symbol, and links what is needed. Initialisers do not run. The address is a number: nothing keeps
 * the code in memory. A thread-local variable has the address of the calling thread. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_address_lookup(jittison_session session, jittison_dylib dylib,
                                                                    jittison_str name, uint64_t *out);

/* Writes what linked code is at an address: the function, the object, the dylib, and the offset in the function, or in the
 * object's code if the function is unknown; its name is empty then. Each may be NULL; the caller frees the texts.
 * JITTISON_ERROR_INVALID_ARGUMENT if no linked code is there. Takes time in proportion to what is linked. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_address_locate(jittison_session session, uint64_t address,
                                                                    jittison_text **function, jittison_text **object,
                                                                    jittison_text **dylib, uint64_t *offset);

/* Looks up a function, links what is needed, and runs the initialisers that wait. The handle keeps the code in memory, also
 * after its removal. Runs linked code, hands out code. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_function_lookup(jittison_session session, jittison_dylib dylib,
                                                                     jittison_str name, jittison_function *out);

/* Writes where the function is. The address is valid while a handle is held. Convert it to a pointer of its real type. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_function_address(jittison_function function, void **out);

/* Writes another handle of the same function, which the caller releases on its own. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_function_clone(jittison_function function,
                                                                    jittison_function *out);

/* Releases a handle. If the code was removed and nothing else pins it, it is freed now, and its finalisers run on this
 * thread, unless another thread reclaims (JITTISON_RECLAIM_...). */
JITTISON_API JITTISON_CHECK jittison_error *jittison_function_release(jittison_function function);

/* ---- guards ------------------------------------------------------------------------------------------------------ */

/* Enters a guard: code that this thread finds from here on stays in memory until the guard is left, whoever removes it. Only
 * the thread that entered a guard may use and leave it; else JITTISON_ERROR_WRONG_THREAD. A thread that ends inside a guard
 * delays every later removal of the session for ever. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_guard_enter(jittison_session session, jittison_guard *out);

/* Leaves a guard and releases its handle. What waited for the guard may be reclaimed on this thread. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_guard_leave(jittison_guard guard);

/* Leaves a guard and enters it again. Addresses that were found under it are not valid any more. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_guard_refresh(jittison_guard guard);

/* Looks up a function under a guard. The address is valid until the guard is left or refreshed. Runs linked code, hands out
 * code. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_guard_lookup(jittison_guard guard, jittison_dylib dylib,
                                                                  jittison_str name, void **out);

/* ---- aliases and lazy functions ---------------------------------------------------------------------------------- */

/* A name that stands for another one. */
typedef struct jittison_alias {
    jittison_str name;
    jittison_str aliasee;
    /* JITTISON_SYMBOL_... of `name`. */
    uint32_t flags;
    uint32_t reserved;
} jittison_alias;

/* Defines names under a tracker for symbols of the same dylib. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_alias_define(jittison_tracker tracker,
                                                                  const jittison_alias *aliases, size_t count);

/* Defines names under a tracker for symbols of `source`. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_alias_reexport(jittison_tracker tracker, jittison_dylib source,
                                                                    const jittison_alias *aliases, size_t count);

/* Defines names under a tracker for functions of `source`. Each function is linked at its first call, which runs its
 * initialisers. If it cannot be linked then, the process ends with a message. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_alias_reexport_lazily(jittison_session session,
                                                                           jittison_tracker tracker,
                                                                           jittison_dylib source,
                                                                           const jittison_alias *aliases, size_t count);

/* ---- stubs ------------------------------------------------------------------------------------------------------- */

/* A stub to be made. */
typedef struct jittison_stub_definition {
    jittison_str name;
    uint64_t target;
} jittison_stub_definition;

/* Defines stubs under a tracker: either all or none. They do not keep their targets in memory. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_stub_create(jittison_session session, jittison_tracker tracker,
                                                                 const jittison_stub_definition *stubs, size_t count);

/* Writes a handle of a stub. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_stub_find(jittison_session session, jittison_dylib dylib,
                                                               jittison_str name, jittison_stub *out);

/* Redirects a stub with one atomic store. Calls that are inside the old target continue there. The caller promises that
 * `target` is a function of the signature that callers use, and stays in memory as long as they call it. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_stub_redirect(jittison_stub stub, uint64_t target);

/* Releases a handle. The stub stays until its tracker is removed. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_stub_release(jittison_stub stub);

/* ---- patches ----------------------------------------------------------------------------------------------------- */

/* Settings of patched functions. All zeros but `size` are the defaults. */
typedef struct jittison_patchable_options {
    /* sizeof(jittison_patchable_options). */
    size_t size;
    /* Commits that can be rolled back, one after the other. 0: one. */
    size_t history;
    /* Versions that are removed and still in use, before another is refused. 0: 64. */
    size_t max_versions;
} jittison_patchable_options;

/* Declares functions of a dylib that will come in versions. The first commit defines them. `options` may be NULL. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_patchable_create(jittison_session session, jittison_dylib dylib,
                                                                      const jittison_str *functions, size_t count,
                                                                      const jittison_patchable_options *options,
                                                                      jittison_patchable *out);

/* Adds an object, whose bytes are copied, all of whose functions can be replaced, and links it as the first version. Runs
 * linked code. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_patchable_create_from(jittison_session session,
                                                                           jittison_dylib dylib, jittison_str name,
                                                                           const void *bytes, size_t size,
                                                                           jittison_patchable *out);

/* Writes the versions that are in memory as a JSON list of objects: `version`, `is_retired`, `functions` that it defines,
 * those of them that are `current`, and what it is `held_by`. The caller frees the text. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_patchable_versions(jittison_patchable patchable,
                                                                        jittison_text **out);

/* Releases a handle. The functions stay: they belong to the dylib. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_patchable_release(jittison_patchable patchable);

/* Undoes the last commit: callers go back to the previous version. Writes the version whose commit was undone to `version`,
 * and its removal to `retired`. Both may be NULL. A function that the commit was the first to define stays as it is. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_patchable_rollback(jittison_patchable patchable,
                                                                        uint64_t *version, jittison_removal *retired);

/* Removes the functions and all versions. `removal` may be NULL, else the caller releases it. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_patchable_remove(jittison_patchable patchable,
                                                                      jittison_removal *removal);

/* Begins a new version. Several patches may be open at a time. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_patch_begin(jittison_patchable patchable, jittison_patch *out);

/* Adds an object, whose bytes are copied, to a patch that is not linked. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_patch_add_object(jittison_patch patch, jittison_str name,
                                                                      const void *bytes, size_t size);

/* As jittison_patch_add_object, for a file, which is read in this call. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_patch_add_object_file(jittison_patch patch, jittison_str path);

/* Demands that the version defines `function`, and declares its signature as any text. All versions that declare one must
 * declare the same. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_patch_expect_signature(jittison_patch patch,
                                                                            jittison_str function,
                                                                            jittison_str signature);

/* Demands that the version defines `function`. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_patch_require(jittison_patch patch, jittison_str function);

/* Links the version and runs its initialisers. No caller reaches it yet. If it fails, the patch can only be released. Runs
 * linked code. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_patch_link(jittison_patch patch);

/* Looks up a function of the linked version, before it is committed. The handle keeps this version in memory. Runs linked
 * code, hands out code. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_patch_lookup(jittison_patch patch, jittison_str name,
                                                                  jittison_function *out);

/* Redirects all callers to the linked version. Writes its number to `version`, and the removal of the versions that leave
 * the history to `retired`. Both may be NULL. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_patch_commit(jittison_patch patch, uint64_t *version,
                                                                  jittison_removal *retired);

/* Releases a patch. A version that is not committed is removed. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_patch_release(jittison_patch patch);

/* Enters a call: versions that are replaced from here on stay in memory until the call is left. Hold an entry, or a guard,
 * while you call a function that is patched or that calls patched functions. Only the thread that entered it may leave
 * it. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_call_enter(jittison_session session, jittison_call *out);

/* Leaves a call and releases its handle. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_call_leave(jittison_call call);

/* Declares that no frame of this thread is in a patched function, although it holds an entry. Versions that only this thread
 * held are removed. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_call_pass_quiescent_state(jittison_session session);

/* ---- reloads ----------------------------------------------------------------------------------------------------- */

/* Makes a reloader for the objects of a program, which will belong to `tracker`. Their functions are reached through stubs. So
 * callers follow a reload at their next call. Variables keep their addresses and values, also `static` ones. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_reloader_create(jittison_session session, jittison_tracker tracker,
                                                                     jittison_reloader *out);

/* Adds an object of the program, whose bytes are copied, before the program is linked. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_reloader_add_object(jittison_reloader reloader, jittison_str name,
                                                                         const void *bytes, size_t size);

/* Links the objects that were added. Their initialisers run with the first lookup, or when the program starts. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_reloader_link(jittison_reloader reloader);

/* Writes the names of the objects, sorted, a line each. The caller frees the text. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_reloader_objects(jittison_reloader reloader, jittison_text **out);

/* What a reload did. */
typedef struct jittison_reload {
    /* sizeof(jittison_reload). */
    size_t size;
    /* The number of the version that runs now. 0 is the object that was added. */
    uint64_t version;
    /* The sizes of the functions of the replaced and of the new version, in bytes. */
    uint64_t code_bytes_before, code_bytes;
    /* Replaced versions that are still in memory, because a call or a handle is in the way. */
    uint64_t retired_in_memory;
    /* How long it took to read and compare the object, to link it, and to redirect its callers, in nanoseconds. */
    uint64_t read_ns, link_ns, commit_ns;
    /* Whether anything changed. If not, nothing was linked. */
    bool is_changed;
    /* Whether the version stays in memory until the reloader is released. */
    bool stays;
} jittison_reload;

/* Replaces an object: links the new version beside the running program, then redirects all callers of its functions. If it
 * fails, nothing was changed; JITTISON_ERROR_RELOAD_REFUSED names what cannot follow. Initialisers of the new version do not
 * run. Members of archives that it is the first to need are linked and initialised: runs linked code.
 * `facts`, `changes` and `retired` may be NULL. `changes` gets a JSON object: the lists `changed`, `added` and `removed` of
 * functions, `new_variables`, `removed_variables` and `moved_variables`, and whether `constants_changed`; the caller frees it.
 * `retired` gets the removal of the versions that no caller reaches any more.
 * The caller promises besides that running code does not rely on what its compiler knew of a replaced function beyond its
 * signature (compile with `-fPIC`, with gcc also `-flive-patching`), and uses no address of code or of a constant of a version
 * that was freed. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_reloader_reload(jittison_reloader reloader, jittison_str name,
                                                                     const void *bytes, size_t size,
                                                                     jittison_reload *facts, jittison_text **changes,
                                                                     jittison_removal *retired);

/* An object to reload, and the name with which it was added. */
typedef struct jittison_reload_object {
    jittison_str name;
    const void *bytes;
    size_t size;
} jittison_reload_object;

/* Replaces several objects as one: either all of them follow, or none. They may need each other's new functions, variables and
 * constants. Otherwise as jittison_reloader_reload. `changes` gets a JSON array with an object for each of `objects`, in their
 * order: what jittison_reloader_reload writes, and `object`, `version`, `code_bytes_before`, `code_bytes` and `stays`. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_reloader_reload_all(jittison_reloader reloader,
                                                                         const jittison_reload_object *objects, size_t count,
                                                                         jittison_text **changes, jittison_removal *retired);

/* Releases a reloader. The newest versions belong to the tracker: they are freed with it. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_reloader_release(jittison_reloader reloader);

/* ---- removals ---------------------------------------------------------------------------------------------------- */

/* Writes one ticket of all removals that are not complete, and their number to `count`, which may be NULL. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_removal_pending(jittison_session session, jittison_removal *out,
                                                                     size_t *count);

/* Releases a ticket. The removal goes on. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_removal_release(jittison_removal removal);

/* Writes whether all memory is freed. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_removal_is_complete(jittison_removal removal, bool *out);

/* No deadline. */
#define JITTISON_FOREVER UINT64_MAX

/* Waits until the removal is complete, at most `timeout_ms` milliseconds. Writes whether it is complete; with
 * JITTISON_FOREVER, `is_complete` may be NULL. The error is that of resource managers. A thread must not wait for what it
 * pins itself. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_removal_wait(jittison_removal removal, uint64_t timeout_ms,
                                                                  bool *is_complete);

/* Calls `callback` once, when the removal is complete: in this call, or later on the thread that frees the memory. `error` is
 * NULL or the error of resource managers, which the callee owns. Callback and context are valid until that call. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_removal_on_complete(
    jittison_removal removal, void (*callback)(jittison_error *error, void *context), void *context);

/* Writes the bytes that the removal frees. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_removal_bytes(jittison_removal removal, uint64_t *out);

/* Writes what delays the removal, one obstacle a line. Empty if it is complete. The caller frees the text. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_removal_obstacles(jittison_removal removal, jittison_text **out);

/* Writes how many milliseconds ago the oldest removal of the ticket began. 0 if all are complete. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_removal_age_ms(jittison_removal removal, uint64_t *out);

/* Writes how many handles, dependent trackers and guards delay the removal. Each may be NULL. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_removal_blockers(jittison_removal removal, size_t *handles,
                                                                      size_t *dependants, size_t *guards);

/* ---- resource managers ------------------------------------------------------------------------------------------- */

/* Names what a tracker owns for one manager. No key is used twice. */
typedef uint64_t jittison_key;

/* What a resource manager does. `remove` and `transfer` are needed. */
typedef struct jittison_manager_callbacks {
    /* sizeof(jittison_manager_callbacks). */
    size_t size;
    /* The tracker was removed and nothing pins it: free what the key owns. Called once, on the thread that reclaims. Must not
     * wait for a removal. Returns NULL, or an error, which the library then owns; it goes to the caller of the removal. */
    jittison_error *(*remove)(jittison_key key, void *context);
    /* What `source` owns belongs to `destination` now; `source` is not used again. Called under locks: move records only, and
     * call no function of this header. */
    void (*transfer)(jittison_key destination, jittison_key source, void *context);
    /* Called once, when the library uses neither the callbacks nor the context any more. May be NULL. */
    void (*dropped)(void *context);
    /* The bytes of code memory that the key owns, for tickets and events. May be NULL: none. */
    uint64_t (*held_bytes)(jittison_key key, void *context);
    /* The tracker was removed: drop what this manager pins for the key, if it can be dropped. Called without a lock,
     * perhaps several times. May be NULL. */
    void (*release_pins)(jittison_key key, void *context);
} jittison_manager_callbacks;

/* Creates a resource manager and registers it. The newest manager is called first. It stays registered until it is
 * deregistered or the session ends. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_manager_create(jittison_session session,
                                                                    const jittison_manager_callbacks *callbacks,
                                                                    void *context, jittison_manager *out);

/* Calls `record` with the key of a tracker, which can be neither removed nor transferred meanwhile: record there what the
 * tracker shall own. `record` is called in this call, under locks, and must call no function of this header. If the tracker
 * is defunct, it is not called, and the error is JITTISON_ERROR_TRACKER_DEFUNCT; if the tracker is not of the manager's
 * session, JITTISON_ERROR_FOREIGN_SESSION. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_manager_record(jittison_manager manager, jittison_tracker tracker,
                                                                    void (*record)(jittison_key key, void *context),
                                                                    void *context);

/* Deregisters a manager. What it has recorded is not freed by the session any more. Removals in progress may still call
 * it. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_manager_deregister(jittison_manager manager);

/* Releases a handle. The manager stays registered. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_manager_release(jittison_manager manager);

/* ---- generators -------------------------------------------------------------------------------------------------- */

/* A name that a lookup misses. */
typedef struct jittison_request {
    jittison_str name;
    /* 1 if the lookup fails without it. Define an optional name only if its definition is already in memory. */
    uint32_t is_required;
    uint32_t reserved;
} jittison_request;

/* What a generator does. */
typedef struct jittison_generator_callbacks {
    /* sizeof(jittison_generator_callbacks). */
    size_t size;
    /* A lookup misses names in `dylib`: define those that the generator knows. Called without a lock, perhaps by several
     * threads at once: with JITTISON_SYMBOL_WEAK, both may define a name. `dylib` and the names are valid during the call;
     * do not release the handle. Returns NULL, or an error that fails the lookup, which the library then owns. */
    jittison_error *(*generate)(jittison_dylib dylib, const jittison_request *requests, size_t count, void *context);
    /* Called once, when the library uses neither the callbacks nor the context any more. May be NULL. */
    void (*dropped)(void *context);
} jittison_generator_callbacks;

/* Creates a generator and adds it to a dylib, behind those that the dylib has. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_generator_create(jittison_dylib dylib,
                                                                      const jittison_generator_callbacks *callbacks,
                                                                      void *context, jittison_generator *out);

/* Takes a generator from a dylib. Lookups in progress may still call it. Writes whether it was there to `was_there`, which
 * may be NULL. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_generator_remove(jittison_generator generator,
                                                                      jittison_dylib dylib, bool *was_there);

/* Creates a generator and adds it to a dylib: it shows names of `source`, those for which `is_shown` returns true, or all
 * if that is NULL. `dropped` may be NULL. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_generator_create_reexports(
    jittison_dylib dylib, jittison_dylib source, bool (*is_shown)(jittison_str name, void *context),
    void (*dropped)(void *context), void *context, jittison_generator *out);

/* In `generate`, on its thread: suspends the lookup. It waits until it is resumed, and other lookups that need the
 * generator wait behind it. JITTISON_ERROR_INVALID_ARGUMENT elsewhere, for a lookup that cannot wait, and the second time. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_generator_suspend(jittison_suspension *out);

/* Resumes a lookup with the definitions that exist now, or fails it with an error, which the library then owns in any case. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_suspension_resume(jittison_suspension suspension,
                                                                       jittison_error *error);

/* Releases a suspended lookup. One that was not resumed fails. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_suspension_release(jittison_suspension suspension);

/* Releases a handle. The generator stays with its dylib. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_generator_release(jittison_generator generator);

/* ---- materialisation units --------------------------------------------------------------------------------------- */

/* A symbol that a unit defines. */
typedef struct jittison_unit_symbol {
    jittison_str name;
    /* JITTISON_SYMBOL_..., joined with `|`. */
    uint32_t flags;
    uint32_t reserved;
} jittison_unit_symbol;

/* The address of a symbol of a unit. */
typedef struct jittison_unit_address {
    jittison_str name;
    uint64_t address;
} jittison_unit_address;

/* A symbol that the code of a unit refers to. */
typedef struct jittison_unit_dependency {
    jittison_dylib dylib;
    jittison_str name;
} jittison_unit_dependency;

/* What a unit does. `materialize` is needed. */
typedef struct jittison_unit_callbacks {
    /* sizeof(jittison_unit_callbacks). */
    size_t size;
    /* One of the symbols is looked up: resolve and emit all of them, or fail them, in this call or later on any thread. The
     * callee owns the responsibility and releases it. Called at most once, without a lock. */
    void (*materialize)(jittison_responsibility responsibility, void *context);
    /* Another definition of `name` has replaced that of this unit. Called just before `materialize`. May be NULL. */
    void (*discard)(jittison_str name, void *context);
    /* Called once, when the library uses neither the callbacks nor the context any more: after `materialize` returned, or
     * when the unit is removed or refused. May be NULL. */
    void (*dropped)(void *context);
} jittison_unit_callbacks;

/* Defines symbols under a tracker whose addresses a callback supplies when they are looked up. `name` is for messages. If
 * the call fails, `dropped` was called, unless an argument or a handle is invalid. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_unit_define(jittison_tracker tracker, jittison_str name,
                                                                 const jittison_unit_symbol *symbols, size_t count,
                                                                 const jittison_unit_callbacks *callbacks,
                                                                 void *context);

/* Defines symbols under a tracker that the caller supplies at once: resolves and emits, or fails. Lookups wait for it
 * meanwhile. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_unit_begin(jittison_tracker tracker, jittison_str name,
                                                                const jittison_unit_symbol *symbols, size_t count,
                                                                jittison_responsibility *out);

/* Writes all symbols of a responsibility, one a line. The caller frees the text. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_responsibility_symbols(jittison_responsibility responsibility,
                                                                            jittison_text **out);

/* Writes a handle of the tracker that owns the symbols now. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_responsibility_tracker(jittison_responsibility responsibility,
                                                                            jittison_tracker *out);

/* Adds symbols to a responsibility. Writes for each whether it was added to `was_added`, which is NULL or has `count`
 * places: a weak one that is defined already is not. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_responsibility_add_symbols(
    jittison_responsibility responsibility, const jittison_unit_symbol *symbols, size_t count, bool *was_added);

/* Moves symbols to a new responsibility, which the caller releases. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_responsibility_delegate(jittison_responsibility responsibility,
                                                                             const jittison_str *names, size_t count,
                                                                             jittison_responsibility *out);

/* Gives symbols of a responsibility back to a unit, which is run when one of them is looked up, as after
 * jittison_unit_define. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_responsibility_replace(jittison_responsibility responsibility,
                                                                            jittison_str name,
                                                                            const jittison_unit_symbol *symbols,
                                                                            size_t count,
                                                                            const jittison_unit_callbacks *callbacks,
                                                                            void *context);

/* Writes the symbols that lookups wait for, one a line. The caller frees the text. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_responsibility_requested(jittison_responsibility responsibility,
                                                                              jittison_text **out);

/* Sets the address of every symbol. After an error, fail or release the responsibility. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_responsibility_resolve(jittison_responsibility responsibility,
                                                                            const jittison_unit_address *addresses,
                                                                            size_t count);

/* The code is in place. The tracker pins what the code refers to: `dependencies` are looked up and linked. The symbols become
 * ready when their dependencies are. They may be symbols of the unit itself, and units may depend on each other. After an
 * error, fail or release the responsibility. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_responsibility_emit(jittison_responsibility responsibility,
                                                                         const jittison_unit_dependency *dependencies,
                                                                         size_t count);

/* Fails the symbols with an error, which the library then owns in any case. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_responsibility_fail(jittison_responsibility responsibility,
                                                                         jittison_error *error);

/* Releases a responsibility. Symbols that were neither emitted nor failed fail. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_responsibility_release(jittison_responsibility responsibility);

/* ---- symbols and pins -------------------------------------------------------------------------------------------- */

/* How far the symbols of a lookup are: their code is linked with all that it refers to, or their addresses are known. */
enum { JITTISON_STATE_READY = 0, JITTISON_STATE_RESOLVED = 1 };

/* What a lookup found for one request. */
typedef struct jittison_found_symbol {
    /* Nothing keeps the code in memory. */
    uint64_t address;
    /* JITTISON_SYMBOL_... */
    uint32_t flags;
    /* 0 for an optional symbol that was not found; the other fields are 0 then. */
    uint32_t is_found;
} jittison_found_symbol;

/* Looks up several symbols in a dylib and its link order, and links what is needed. Initialisers do not run. Writes what
 * was found to `out`, which has `count` places. Fails, and writes nothing, if a required one is missing. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_symbol_lookup(jittison_dylib dylib,
                                                                   const jittison_request *requests, size_t count,
                                                                   uint32_t state, jittison_found_symbol *out);

/* As jittison_symbol_lookup, but does not wait: `callback` is called once, in this call or later on any thread. It owns
 * `error`, which is NULL if the lookup succeeded. `found` has `count` symbols, in the order of the requests. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_symbol_lookup_async(
    jittison_session session, jittison_dylib dylib, const jittison_request *requests, size_t count, uint32_t state,
    void (*callback)(jittison_error *error, const jittison_found_symbol *found, size_t count, void *context),
    void *context);

/* What jittison_symbol_state writes: how far a symbol is. */
enum {
    JITTISON_SYMBOL_UNKNOWN = 0,
    JITTISON_SYMBOL_NEVER_SEARCHED = 1,
    JITTISON_SYMBOL_MATERIALIZING = 2,
    JITTISON_SYMBOL_RESOLVED = 3,
    JITTISON_SYMBOL_EMITTED = 4,
    JITTISON_SYMBOL_READY = 5
};

/* Writes how far a symbol of the dylib's own table is, and its flags to `flags`, which may be NULL. Links nothing. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_symbol_state(jittison_dylib dylib, jittison_str name,
                                                                  uint32_t *state, uint32_t *flags);

/* Removes symbols that were never looked up from a dylib: either all or none. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_symbol_remove(jittison_dylib dylib, const jittison_str *names,
                                                                   size_t count);

/* Pins the code of a symbol of the dylib's own table, whatever its type: it stays in memory until the pin is released,
 * whoever removes it. Writes the address to `address`, which may be NULL. JITTISON_ERROR_INVALID_ARGUMENT if the symbol is
 * not ready, or is absolute. Links and runs nothing. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_pin_create(jittison_dylib dylib, jittison_str name,
                                                                uint64_t *address, jittison_pin *out);

/* Records that the pinned code refers to a symbol from now on, and keeps it. For references that no link made. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_pin_add_dependency(jittison_pin pin, jittison_dylib dylib,
                                                                        jittison_str name);

/* Releases a pin. As for jittison_function_release, code may be freed now. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_pin_release(jittison_pin pin);

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

/* How the value of an edge is computed and stored. S: address of the symbol. A: addend. P: address of the field. L: address
 * of the symbol's stub, or S where it reaches. G: address of the symbol's GOT slot. GOT: address of the GOT. Z: size of the
 * symbol. A value that does not fit its field is an error. */
enum {
    /* S + A */
    JITTISON_EDGE_POINTER64 = 0,
    JITTISON_EDGE_POINTER32 = 1,
    JITTISON_EDGE_POINTER32_SIGNED = 2,
    JITTISON_EDGE_POINTER16 = 3,
    JITTISON_EDGE_POINTER8 = 4,
    /* S + A - P */
    JITTISON_EDGE_DELTA64 = 5,
    JITTISON_EDGE_DELTA32 = 6,
    JITTISON_EDGE_DELTA16 = 7,
    JITTISON_EDGE_DELTA8 = 8,
    /* L + A - P: a call or a jump */
    JITTISON_EDGE_BRANCH32 = 9,
    /* G + A - P. The instructions of the relaxable kinds may be rewritten to reach S directly (x86-64 psABI, B.2). */
    JITTISON_EDGE_GOT_LOAD32 = 10,
    JITTISON_EDGE_GOT_LOAD32_RELAXABLE = 11,
    JITTISON_EDGE_GOT_LOAD32_REX_RELAXABLE = 12,
    JITTISON_EDGE_GOT_LOAD32_APX = 13,
    JITTISON_EDGE_GOT_LOAD64 = 14,
    /* G + A - GOT */
    JITTISON_EDGE_GOT_SLOT64 = 15,
    JITTISON_EDGE_GOT_SLOT32 = 16,
    /* S + A - GOT */
    JITTISON_EDGE_GOT_OFFSET64 = 17,
    /* GOT + A - P */
    JITTISON_EDGE_GOT_BASE32 = 18,
    JITTISON_EDGE_GOT_BASE64 = 19,
    /* Z + A */
    JITTISON_EDGE_SIZE32 = 20,
    JITTISON_EDGE_SIZE64 = 21,
    /* Thread-local variables (x86-64 psABI, 4.4.1): TLSGD, TLSLD, DTPOFF32, DTPOFF64, GOTTPOFF, TPOFF32, TPOFF64,
     * GOTPC32_TLSDESC */
    JITTISON_EDGE_THREAD_LOCAL_PAIR32 = 22,
    JITTISON_EDGE_THREAD_LOCAL_BLOCK32 = 23,
    JITTISON_EDGE_THREAD_LOCAL_OFFSET32 = 24,
    JITTISON_EDGE_THREAD_LOCAL_OFFSET64 = 25,
    JITTISON_EDGE_STATIC_LOAD32 = 26,
    JITTISON_EDGE_STATIC_OFFSET32 = 27,
    JITTISON_EDGE_STATIC_OFFSET64 = 28,
    JITTISON_EDGE_THREAD_LOCAL_DESCRIPTOR32 = 29,
    /* AArch64: the first kind, plus the number of a relocation of ELF for the Arm 64-bit Architecture. So
     * JITTISON_EDGE_AARCH64 + 283 is R_AARCH64_CALL26. A link has the kinds above for R_AARCH64_ABS64, PREL64, GOTREL64, PLT32
     * and GOTPCREL32. */
    JITTISON_EDGE_AARCH64 = 0x10000
};

/* A field of a block that refers to a symbol. */
typedef struct jittison_edge {
    /* Where the field is in its block, in bytes. */
    uint32_t offset;
    /* JITTISON_EDGE_... It decides the width of the field. A link may have kinds that this version does not know:
     * UINT32_MAX. */
    uint32_t kind;
    /* The position of the symbol. */
    uint32_t symbol;
    uint32_t reserved;
    int64_t addend;
} jittison_edge;

/* Each thread has a copy of the block. The block stays even if no visible symbol leads to it. */
enum { JITTISON_BLOCK_THREAD_LOCAL = 1, JITTISON_BLOCK_RETAINED = 2 };

/* A block to be added: a function, a constant, a variable. */
typedef struct jittison_new_block {
    /* sizeof(jittison_new_block). */
    size_t size;
    /* The name of its section. Empty: the usual one of its pool. */
    jittison_str section;
    /* JITTISON_POOL_... */
    uint32_t pool;
    /* JITTISON_BLOCK_..., joined with `|`. */
    uint32_t flags;
    /* In bytes, a power of two. 0: 16. */
    uint64_t align;
    /* The bytes, which are copied. NULL: zeroes, or what `write` writes. */
    const void *content;
    /* The size of the block in bytes. */
    uint64_t content_size;
    /* Writes the bytes into the memory of the link, so that nothing is copied. May be called more than once, on any thread,
     * and writes the same bytes each time. May be NULL. `dropped` and `context` are those of `write`. */
    void (*write)(void *bytes, size_t count, void *context);
    void (*dropped)(void *context);
    void *context;
} jittison_new_block;

/* Where a symbol is: in a block, at an address of its own, in another object, or nowhere, because its block was dropped. */
enum {
    JITTISON_PLACE_BLOCK = 0,
    JITTISON_PLACE_ABSOLUTE = 1,
    JITTISON_PLACE_EXTERNAL = 2,
    JITTISON_PLACE_NOWHERE = 3
};

/* Who can refer to a symbol by its name: every dylib that links against this one, the dylib, or the graph alone. */
enum { JITTISON_SCOPE_EXPORTED = 0, JITTISON_SCOPE_HIDDEN = 1, JITTISON_SCOPE_LOCAL = 2 };

/* A definition to be added. */
typedef struct jittison_new_symbol {
    /* sizeof(jittison_new_symbol). */
    size_t size;
    /* May be empty for a local symbol. */
    jittison_str name;
    /* JITTISON_PLACE_BLOCK or _ABSOLUTE. */
    uint32_t place;
    /* The position of its block. */
    uint32_t block;
    /* Where it is in the block, in bytes, or its address. */
    uint64_t offset;
    /* Its size in bytes, for debuggers and profilers. */
    uint64_t symbol_size;
    /* JITTISON_SCOPE_... */
    uint32_t scope;
    /* JITTISON_SYMBOL_WEAK, JITTISON_SYMBOL_CALLABLE. */
    uint32_t flags;
} jittison_new_symbol;

/* How a symbol that others define is looked up: it must exist, it may be missing and is null then, or only the dylib of the
 * graph may define it. */
enum { JITTISON_EXTERNAL_REQUIRED = 0, JITTISON_EXTERNAL_WEAK = 1, JITTISON_EXTERNAL_HIDDEN = 2 };

/* Functions that run when the dylib is initialised, or when they are finalised. */
enum { JITTISON_INITIALIZER = 0, JITTISON_FINALIZER = 1 };

/* The priority of initialisers for which a compiler has no number. Lower ones run earlier. */
#define JITTISON_DEFAULT_PRIORITY 65535

/* The source line of the code from an offset in a block on. */
typedef struct jittison_line_row {
    /* In bytes. */
    uint32_t offset;
    /* From 1. 0: code without a line. */
    uint32_t line;
} jittison_line_row;

/* Begins a graph, which is linked as an object is. `name` is for messages. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_graph_create(jittison_str name, jittison_graph *out);

/* Releases a graph. One that was not handed over is dropped. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_graph_release(jittison_graph graph);

/* Adds a block. Writes its position. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_graph_add_block(jittison_graph graph,
                                                                     const jittison_new_block *block, uint32_t *out);

/* Adds a definition. Writes its position. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_graph_add_symbol(jittison_graph graph,
                                                                      const jittison_new_symbol *symbol, uint32_t *out);

/* Adds a symbol that others define: JITTISON_EXTERNAL_... Writes its position. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_graph_add_external(jittison_graph graph, jittison_str name,
                                                                        uint32_t kind, uint32_t *out);

/* Sets the edges of a block that has none yet. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_graph_set_edges(jittison_graph graph, uint32_t block,
                                                                     const jittison_edge *edges, size_t count);

/* Puts a block into the COMDAT group of `signature`, a visible symbol of this graph. Another group of this signature that
 * the dylib has already takes its place. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_graph_set_comdat(jittison_graph graph, uint32_t block,
                                                                      uint32_t signature);

/* Adds functions, by the positions of their symbols, that are initialisers or finalisers. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_graph_add_initializers(jittison_graph graph, uint32_t kind,
                                                                            uint32_t priority,
                                                                            const uint32_t *functions, size_t count);

/* Describes how a function of `bytes` bytes is unwound: by the call frame instructions of its FDE (DWARF 5, 6.4.2), for a
 * CIE with a code alignment factor of 1 and a data alignment factor of -8. Without instructions, it never changes the stack
 * pointer. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_graph_add_unwind(jittison_graph graph, uint32_t function,
                                                                      uint32_t bytes, const void *instructions,
                                                                      size_t count);

/* Adds the unwind table of functions as the bytes of an .eh_frame section, with the edges of its pointers. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_graph_add_eh_frame(jittison_graph graph, const void *bytes,
                                                                        size_t size, const jittison_edge *edges,
                                                                        size_t count);

/* Says which source lines the code of a block comes from, for profilers. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_graph_add_lines(jittison_graph graph, uint32_t block,
                                                                     jittison_str file, const jittison_line_row *rows,
                                                                     size_t count);

/* Says that the code marks all entries of indirect branches (`endbr64`), so that the link marks what it adds, too. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_graph_mark_indirect_entries(jittison_graph graph);

/* Names a function that the code is likely to call soon: jittison_on_demand compiles it ahead if it is its own. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_graph_add_callee(jittison_graph graph, jittison_str name);

/* Checks a graph, and adds it under a tracker, as jittison_object_add adds an object. The handle must still be released. If
 * an argument or a handle is invalid, the graph stays as it is; else it was handed over, also if the call fails. That holds
 * for all four functions that take a graph. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_graph_add(jittison_session session, jittison_tracker tracker,
                                                               jittison_graph graph);

/* Checks a graph, and links it at once on this thread, as jittison_object_link links an object. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_graph_link(jittison_session session, jittison_tracker tracker,
                                                                jittison_graph graph);

/* Checks a graph, and links it to supply the symbols of a responsibility, which must still be released. Failures of the
 * link fail its symbols. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_graph_emit(jittison_session session,
                                                                jittison_responsibility responsibility,
                                                                jittison_graph graph);

/* Checks a graph, and adds it to a patch that is not linked. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_patch_add_graph(jittison_patch patch, jittison_graph graph);

/* ---- compilers --------------------------------------------------------------------------------------------------- */

/* A function that is to be compiled. */
typedef struct jittison_compile_request {
    /* The dylib of the function. */
    jittison_dylib dylib;
    /* The name by which other code calls it. */
    jittison_str function;
    /* The symbol that the graph defines it as, exported and with JITTISON_SYMBOL_CALLABLE. Calls of `function` may stay
     * calls of that name. */
    jittison_str symbol;
    /* From 1. */
    uint32_t tier;
    uint32_t reserved;
} jittison_compile_request;

/* What a compiler does. `compile` is needed. */
typedef struct jittison_compiler_callbacks {
    /* sizeof(jittison_compiler_callbacks). */
    size_t size;
    /* Adds the function to `graph`, which is empty and stays the library's. Called without a lock, on the thread that calls
     * the function or on one of the session, perhaps by several threads at once. Returns NULL or an error, which the
     * library then owns. */
    jittison_error *(*compile)(const jittison_compile_request *request, jittison_graph graph, void *context);
    void (*dropped)(void *context);
} jittison_compiler_callbacks;

/* Makes a layer that compiles functions at their first calls. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_on_demand_create(jittison_session session,
                                                                      const jittison_compiler_callbacks *callbacks,
                                                                      void *context, jittison_on_demand *out);

/* Releases a layer. Its functions stay. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_on_demand_release(jittison_on_demand layer);

/* Defines functions under a tracker, each of which is compiled at its first call: either all or none. If a compilation
 * fails then, `lazy_failure` of the session decides. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_on_demand_add(jittison_on_demand layer, jittison_tracker tracker,
                                                                   const jittison_str *functions, size_t count);

/* Compiles a function of the layer ahead of its first call, on a thread of the session. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_on_demand_speculate(jittison_on_demand layer,
                                                                         jittison_dylib dylib, jittison_str function);

/* Makes a layer that compiles functions in tiers. `calls` has a number for each tier but the last: the calls of that tier,
 * at least one, after which the next is compiled in the background. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_reoptimizer_create(jittison_session session,
                                                                        const jittison_compiler_callbacks *callbacks,
                                                                        void *context, const uint64_t *calls,
                                                                        size_t count, jittison_reoptimizer *out);

/* Releases a layer. Its functions stay. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_reoptimizer_release(jittison_reoptimizer layer);

/* Compiles the first tier of functions, and defines them in a dylib: either all or none. All tiers have the signature with
 * which callers call the function. Callers hold an entry (jittison_call_enter), a guard or a handle. Runs linked code. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_reoptimizer_add(jittison_reoptimizer layer, jittison_dylib dylib,
                                                                     const jittison_str *functions, size_t count,
                                                                     jittison_tiered *out);

/* Releases a handle. The functions stay. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_tiered_release(jittison_tiered tiered);

/* Writes the tier that new callers of a function reach, from 1. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_tiered_tier(jittison_tiered tiered, jittison_str function,
                                                                 uint32_t *out);

/* Begins the next tier of a function now. Writes false to `has_begun`, which may be NULL, if it has no further tier or is
 * being compiled. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_tiered_reoptimize(jittison_tiered tiered, jittison_str function,
                                                                       bool *has_begun);

/* Removes the functions with all tiers. `removal` may be NULL, else the caller releases it. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_tiered_remove(jittison_tiered tiered, jittison_removal *removal);

/* ---- plugins ----------------------------------------------------------------------------------------------------- */

/* An object that is being linked. */
typedef struct jittison_link_origin {
    jittison_str object;
    jittison_dylib dylib;
    /* The number of the object among all that were added to its dylib. */
    uint64_t sequence;
} jittison_link_origin;

/* A symbol that an object needs, and what was found for it. A plugin may change `address`, `block_align` and `is_callable`. */
typedef struct jittison_found_external {
    jittison_str name;
    /* Null for a weak symbol that nothing defines. */
    uint64_t address;
    /* The alignment of the block of a thread-local variable that takes the place of a common symbol. 0 for others. */
    uint64_t block_align;
    /* 1 if it is known to be a function. */
    uint32_t is_callable;
    uint32_t is_required;
    /* 1: `address` is no address but a module and an offset. */
    uint32_t is_thread_local;
    uint32_t reserved;
} jittison_found_external;

/* An initialiser or finaliser of a linked object. */
typedef struct jittison_initializer {
    uint64_t address;
    /* JITTISON_INITIALIZER or JITTISON_FINALIZER. */
    uint32_t kind;
    uint32_t priority;
} jittison_initializer;

/* What a plugin does in each link of a session, in this order. Each callback may be NULL. They are called without a lock,
 * on the thread that links, for different links perhaps at once. An error fails the link; the library then owns it. A graph
 * that a plugin has changed must still define what its object has promised; what is broken fails the link with
 * JITTISON_ERROR_LINK_BROKEN_BY_PLUGIN. What changed code does is the caller's promise. */
typedef struct jittison_plugin_callbacks {
    /* sizeof(jittison_plugin_callbacks). */
    size_t size;
    /* For messages. */
    jittison_str name;
    /* The manager of the session whose key `record` gets. Null: none. */
    jittison_manager manager;
    /* A link begins. Returns whether the plugin takes part. `*link_context`, which is `context` at first, is what the other
     * callbacks get. NULL: it takes part in every link. */
    bool (*begin)(const jittison_link_origin *origin, void **link_context, void *context);
    /* The graph is made. All of it may change. */
    jittison_error *(*prepare)(jittison_link link, void *link_context);
    /* Blocks that nothing leads to are dropped. The others may change. */
    jittison_error *(*pruned)(jittison_link link, void *link_context);
    /* The addresses of definitions are known, and not published yet. Bytes and targets of edges may change. */
    jittison_error *(*placed)(jittison_link link, void *link_context);
    /* The externals are found, and may be changed. */
    jittison_error *(*bind)(jittison_link link, jittison_found_external *found, size_t count, void *link_context);
    /* The bytes are final, and may be changed. */
    jittison_error *(*fixed_up)(jittison_link link, void *link_context);
    /* The memory is sealed. Records under `key`, a key of `manager`, what the tracker shall own. Called under locks: it
     * must call no function of this header. */
    void (*record)(jittison_key key, const jittison_initializer *initializers, size_t count, void *link_context);
    /* The link is over. Called once for each `begin` that returned true, also if the link fails. */
    void (*end)(bool is_linked, void *link_context);
    void (*dropped)(void *context);
} jittison_plugin_callbacks;

/* Adds a plugin to a session, behind those that it has. JITTISON_ERROR_FOREIGN_SESSION if the manager is of another session. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_plugin_add(jittison_session session,
                                                                const jittison_plugin_callbacks *callbacks,
                                                                void *context, jittison_plugin *out);

/* Takes a plugin from its session. Links in progress still call it. Writes whether it was there to `was_there`, which may
 * be NULL. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_plugin_remove(jittison_plugin plugin, bool *was_there);

/* Releases a handle. The plugin stays with its session. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_plugin_release(jittison_plugin plugin);

/* A block was dropped. It is zeroes. The linker made it. It is outside of the windows of code memory. */
enum {
    JITTISON_BLOCK_IS_DROPPED = 1,
    JITTISON_BLOCK_IS_ZERO_FILL = 2,
    JITTISON_BLOCK_IS_SYNTHETIC = 4,
    JITTISON_BLOCK_IS_LARGE = 8
};

/* A block of a link. */
typedef struct jittison_block {
    /* sizeof(jittison_block). */
    size_t size;
    uint64_t byte_count;
    uint64_t align;
    /* 0 before `placed`, and for a dropped block. Without a meaning for a thread-local one. */
    uint64_t address;
    size_t edge_count;
    /* JITTISON_POOL_... */
    uint32_t pool;
    /* JITTISON_BLOCK_IS_..., joined with `|`. */
    uint32_t flags;
} jittison_block;

/* A symbol of a link. */
typedef struct jittison_symbol {
    /* sizeof(jittison_symbol). */
    size_t size;
    /* JITTISON_PLACE_... */
    uint32_t place;
    /* The position of its block. */
    uint32_t block;
    /* Where it is in the block, in bytes, or its value. */
    uint64_t offset;
    uint64_t symbol_size;
    /* 0 if it is not known yet: that of a definition from `placed` on, that of an external in `fixed_up`. */
    uint64_t address;
    /* In `fixed_up`: the addresses of its slot in the GOT and of its stub. 0 without one. */
    uint64_t got_slot;
    uint64_t stub;
    uint32_t is_local;
    uint32_t is_weak;
} jittison_symbol;

/* Functions of links. A handle of a link is valid during a callback, on its thread. Blocks and symbols are named by their
 * positions, from 0. Symbol 0 has no name and no place. Functions that change a link say in which callbacks they may be
 * called; elsewhere they are JITTISON_ERROR_INVALID_ARGUMENT, and nothing was done. */

/* Writes the name of the object. The caller frees the text. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_link_object(jittison_link link, jittison_text **out);

/* Writes the numbers of blocks and symbols. Both may be NULL. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_link_counts(jittison_link link, uint32_t *blocks,
                                                                 uint32_t *symbols);

/* Describes a block. Set `out->size` before the call. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_link_block(jittison_link link, uint32_t block,
                                                                jittison_block *out);

/* Writes the name of the section of a block. The caller frees the text. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_link_block_section(jittison_link link, uint32_t block,
                                                                        jittison_text **out);

/* Writes where the bytes of a block are before edges are applied, and how many. They are valid until the link changes or
 * the callback returns. None for zeroes, and for bytes that are written later. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_link_block_bytes(jittison_link link, uint32_t block,
                                                                      const void **bytes, size_t *size);

/* Writes where the final bytes of a block are, and how many. They may be changed, and are valid until `fixed_up` returns.
 * None for a block that is dropped or thread-local. In `fixed_up` only. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_link_final_bytes(jittison_link link, uint32_t block,
                                                                      void **bytes, size_t *size);

/* Writes the edges of a block: at most `capacity`, and the number of all to `count`. `edges` may be NULL if `capacity` is
 * 0. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_link_edges(jittison_link link, uint32_t block,
                                                                jittison_edge *edges, size_t capacity, size_t *count);

/* Describes a symbol. Set `out->size` before the call. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_link_symbol(jittison_link link, uint32_t symbol,
                                                                 jittison_symbol *out);

/* Writes the name of a symbol. The caller frees the text. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_link_symbol_name(jittison_link link, uint32_t symbol,
                                                                      jittison_text **out);

/* Writes the position of a symbol by its name, or UINT32_MAX. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_link_find(jittison_link link, jittison_str name, uint32_t *out);

/* Writes the symbols and debug information of the link as the bytes of an ELF file, for debuggers. The caller frees the
 * text. In `fixed_up` only. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_link_symbol_file(jittison_link link, jittison_text **out);

/* Adds a block with `content`, or zeroes without edges. It has no flags and no `write`. Writes its position. In `prepare` and
 * `pruned`. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_link_add_block(jittison_link link,
                                                                    const jittison_new_block *block,
                                                                    const jittison_edge *edges, size_t count,
                                                                    uint32_t *out);

/* Adds a definition. Writes its position. In `prepare`, where other objects find it, and in `pruned`. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_link_add_symbol(jittison_link link,
                                                                     const jittison_new_symbol *symbol, uint32_t *out);

/* Adds a symbol that others define: JITTISON_EXTERNAL_REQUIRED or _WEAK. Writes its position. In `prepare` and `pruned`. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_link_add_external(jittison_link link, jittison_str name,
                                                                       uint32_t kind, uint32_t *out);

/* Removes a block. In `prepare` and `pruned`. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_link_remove_block(jittison_link link, uint32_t block);

/* Moves a block to a section and a pool. In `prepare` and `pruned`. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_link_set_section(jittison_link link, uint32_t block,
                                                                      jittison_str section, uint32_t pool);

/* Aligns a block more strictly. In `prepare` and `pruned`. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_link_set_alignment(jittison_link link, uint32_t block,
                                                                        uint64_t align);

/* Gives a block other bytes, which are copied. Its edges stay. In `prepare`, `pruned`, and with the same number of bytes in
 * `placed`. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_link_set_content(jittison_link link, uint32_t block,
                                                                      const void *bytes, size_t size);

/* Replaces the edges of a block. In `prepare` and `pruned`. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_link_set_edges(jittison_link link, uint32_t block,
                                                                    const jittison_edge *edges, size_t count);

/* Makes an edge, by its position among the edges of its block, refer to another symbol. In `prepare`, `pruned` and
 * `placed`. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_link_redirect_edge(jittison_link link, uint32_t block,
                                                                        size_t position, uint32_t symbol);

/* Splits a block at `count` ascending offsets. The block becomes its first part. Writes the positions of the others to
 * `parts`, which is NULL or has `count` places. In `prepare` and `pruned`. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_link_split_block(jittison_link link, uint32_t block,
                                                                      const uint64_t *at, size_t count,
                                                                      uint32_t *parts);

/* Gives a symbol another name. In `prepare` and `pruned`. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_link_rename(jittison_link link, uint32_t symbol,
                                                                 jittison_str name);

/* Sets who can refer to a symbol, and whether another definition may take its place. In `prepare` and `pruned`. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_link_set_scope(jittison_link link, uint32_t symbol,
                                                                    uint32_t scope, bool is_weak);

/* Moves a symbol to a place: JITTISON_PLACE_BLOCK, _ABSOLUTE or _EXTERNAL. In `prepare` and `pruned`. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_link_redefine(jittison_link link, uint32_t symbol, uint32_t place,
                                                                   uint32_t block, uint64_t offset,
                                                                   uint64_t symbol_size);

/* Removes a symbol. In `prepare` and `pruned`. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_link_remove_symbol(jittison_link link, uint32_t symbol);

/* ---- programs ---------------------------------------------------------------------------------------------------- */

/* Runs the objects under a tracker as a program: initialisers, `entry` as `main` with the arguments, exit handlers,
 * finalisers. Writes what `main` returned. If the program calls `exit`, the process ends. Call it before the first object
 * is linked. `argv` has `argc` strings; they are copied. Runs linked code; an exception that it does not catch ends the
 * process. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_program_run(jittison_session session, jittison_tracker tracker,
                                                                 jittison_str entry, int argc, const char *const *argv,
                                                                 int *status);

/* ---- code memory ------------------------------------------------------------------------------------------------- */

/* Totals of code memory of a session. All are bytes, but the last three. */
typedef struct jittison_memory_statistics {
    /* sizeof(jittison_memory_statistics). */
    size_t size;
    uint64_t reserved_bytes;
    uint64_t opened_bytes;
    uint64_t resident_bytes;
    uint64_t returned_bytes;
    uint64_t live_bytes;
    uint64_t free_bytes;
    uint64_t frame_table_bytes;
    uint64_t metadata_bytes;
    uint64_t allocations;
    uint64_t free_ranges;
    uint64_t windows;
} jittison_memory_statistics;

/* Code memory that a tracker or a dylib owns. */
typedef struct jittison_memory_usage {
    /* sizeof(jittison_memory_usage). */
    size_t size;
    uint64_t allocations;
    uint64_t code_bytes;
    uint64_t read_only_bytes;
    uint64_t data_bytes;
    uint64_t reserved_bytes;
    uint64_t metadata_bytes;
} jittison_memory_usage;

/* Writes the totals of a session. Set `out->size` before the call. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_memory_statistics_read(jittison_session session,
                                                                            jittison_memory_statistics *out);

/* Totals of one pool of code memory. All are bytes, but the last. */
typedef struct jittison_pool_statistics {
    /* sizeof(jittison_pool_statistics). */
    size_t size;
    uint64_t reserved_bytes;
    uint64_t opened_bytes;
    uint64_t resident_bytes;
    uint64_t requested_bytes;
    uint64_t free_bytes;
    uint64_t largest_free;
    /* The part of resident bytes that hold nothing live, from 0 to 1. */
    double fragmentation;
} jittison_pool_statistics;

/* Writes the totals of a pool, JITTISON_POOL_..., of a session. Set `out->size` before the call. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_memory_pool_statistics(jittison_session session, uint32_t pool,
                                                                            jittison_pool_statistics *out);

/* Writes what a tracker owns, with its stubs. Set `out->size` before the call. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_memory_usage_of_tracker(jittison_session session,
                                                                             jittison_tracker tracker,
                                                                             jittison_memory_usage *out);

/* Writes what a dylib owns, with its stubs and with removed trackers that are still pinned. Set `out->size` before the
 * call. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_memory_usage_of_dylib(jittison_session session,
                                                                           jittison_dylib dylib,
                                                                           jittison_memory_usage *out);

/* Writes a map of code memory as text. The caller frees it. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_memory_map_text(jittison_session session, jittison_text **out);

/* Writes a map of code memory as a JSON object: `windows` with their `pools`, and `tenants`, the objects, with their owners
 * and segments. Addresses and sizes are numbers of bytes. The caller frees the text. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_memory_map_json(jittison_session session, jittison_text **out);

/* Writes a map of code memory as an SVG picture. The caller frees the text. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_memory_map_svg(jittison_session session, jittison_text **out);

/* Returns every free page of code memory to the kernel. Writes the bytes to `bytes`, which may be NULL. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_memory_release_free(jittison_session session, uint64_t *bytes);

#ifdef __cplusplus
}
#endif

#endif
