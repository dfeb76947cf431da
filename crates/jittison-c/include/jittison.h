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

/* A string that somebody else owns. The library's own strings have a NUL behind them, which `length` does not count. */
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
    /* There are 2^24 handles of one kind. */
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
    /* Called, on any thread, with each error that no caller receives. The callee owns the error. May be NULL. It is valid until
     * the session is destroyed and all its removals are complete. */
    void (*report_error)(jittison_error *error, void *context);
    void *report_error_context;
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

/* Links every object of the dylib that has initialisers, and every such object of the dylibs that it links against, and runs
 * the initialisers that wait, dependencies first. Calls are counted. Writes the number of functions called to `functions`, which
 * may be NULL. Runs linked code. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_dylib_initialize(jittison_session session, jittison_dylib dylib,
                                                                      size_t *functions);

/* Undoes one jittison_dylib_initialize, as one dlclose undoes one dlopen. The last such call runs exit handlers and finalisers.
 * `functions` may be NULL. Runs linked code. The caller promises that no thread is in code that is finalised, or calls it
 * before it is initialised again. */
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

/* Flags of a symbol. */
enum { JITTISON_SYMBOL_EXPORTED = 1, JITTISON_SYMBOL_WEAK = 2, JITTISON_SYMBOL_CALLABLE = 4 };

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

/* Writes the address of a symbol, and links what is needed. Initialisers do not run. The address is a number: nothing keeps the
 * code in memory. A thread-local variable has the address of the calling thread. */
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

/* Waits until the removal is complete, at most `timeout_ms` milliseconds. Writes whether it is complete; with JITTISON_FOREVER,
 * `is_complete` may be NULL. The error is that of resource managers. A thread must not wait for what it pins itself. */
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

/* ---- resource managers ------------------------------------------------------------------------------------------- */

/* Names what a tracker owns for one manager. No key is used twice. */
typedef uint64_t jittison_key;

/* What a resource manager does. All but `dropped` are needed. */
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
} jittison_manager_callbacks;

/* Creates a resource manager and registers it. The newest manager is called first. It stays registered until it is
 * deregistered or the session ends. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_manager_create(jittison_session session,
                                                                    const jittison_manager_callbacks *callbacks,
                                                                    void *context, jittison_manager *out);

/* Calls `record` with the key of a tracker, which can be neither removed nor transferred meanwhile: record there what the tracker
 * shall own. `record` is called in this call, under locks, and must call no function of this header. If the tracker is
 * defunct, it is not called, and the error is JITTISON_ERROR_TRACKER_DEFUNCT; if the tracker is not of the manager's session,
 * JITTISON_ERROR_FOREIGN_SESSION. */
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
     * threads at once: with JITTISON_SYMBOL_WEAK, both may define a name. `dylib` and the names are valid during the call; do not release the handle. Returns NULL, or an error
     * that fails the lookup, which the library then owns. */
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

/* ---- programs ---------------------------------------------------------------------------------------------------- */

/* Runs the objects under a tracker as a program: initialisers, `entry` as `main` with the arguments, exit handlers, finalisers.
 * Writes what `main` returned. If the program calls `exit`, the process ends. Call it before the first object is linked.
 * `argv` has `argc` strings; they are copied. Runs linked code; an exception that it does not catch ends the process. */
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

/* Writes what a tracker owns, with its stubs. Set `out->size` before the call. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_memory_usage_of_tracker(jittison_session session,
                                                                             jittison_tracker tracker,
                                                                             jittison_memory_usage *out);

/* Writes what a dylib owns, with its stubs and with removed trackers that are still pinned. Set `out->size` before the call. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_memory_usage_of_dylib(jittison_session session,
                                                                           jittison_dylib dylib,
                                                                           jittison_memory_usage *out);

/* Writes a map of code memory as text. The caller frees it. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_memory_map_text(jittison_session session, jittison_text **out);

/* Writes a map of code memory as a JSON object: `windows` with their `pools`, and `tenants`, the objects, with their owners and
 * segments. Addresses and sizes are numbers of bytes. The caller frees the text. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_memory_map_json(jittison_session session, jittison_text **out);

/* Writes a map of code memory as an SVG picture. The caller frees the text. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_memory_map_svg(jittison_session session, jittison_text **out);

/* Returns every free page of code memory to the kernel. Writes the bytes to `bytes`, which may be NULL. */
JITTISON_API JITTISON_CHECK jittison_error *jittison_memory_release_free(jittison_session session, uint64_t *bytes);

#ifdef __cplusplus
}
#endif

#endif
