/* Guards: what a thread finds under one stays; only its thread uses it.
 * Argument: an object with `long one(void)` that returns 1. */
#include "check.h"
#include <pthread.h>

static jittison_guard guard;
static jittison_dylib dylib;

static void *elsewhere(void *unused) {
    void *address = NULL;
    FAILS(JITTISON_ERROR_WRONG_THREAD, jittison_guard_leave(guard));
    FAILS(JITTISON_ERROR_WRONG_THREAD, jittison_guard_refresh(guard));
    FAILS(JITTISON_ERROR_WRONG_THREAD, jittison_guard_lookup(guard, dylib, STR("one"), &address));
    return unused;
}

/* A manager that tries the guard whose refresh calls it. */
static jittison_error *use_guard(jittison_key key, void *context) {
    void *address = NULL;
    (void)key;
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_guard_lookup(guard, dylib, STR("one"), &address));
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_guard_refresh(guard));
    FAILS(JITTISON_ERROR_INVALID_ARGUMENT, jittison_guard_leave(guard));
    ++*(int *)context;
    return NULL;
}

static void transfer(jittison_key destination, jittison_key source, void *context) {
    (void)destination, (void)source, (void)context;
}

static void record(jittison_key key, void *context) {
    (void)key, (void)context;
}

static void what_a_refresh_runs_cannot_use_its_guard(jittison_session session) {
    jittison_manager_callbacks callbacks = {0};
    jittison_manager manager;
    jittison_tracker tracker;
    int calls = 0;
    callbacks.size = sizeof callbacks;
    callbacks.remove = use_guard;
    callbacks.transfer = transfer;
    OK(jittison_manager_create(session, &callbacks, &calls, &manager));
    OK(jittison_tracker_create(dylib, &tracker));
    OK(jittison_manager_record(manager, tracker, record, NULL));
    OK(jittison_guard_enter(session, &guard));
    OK(jittison_tracker_remove(tracker, NULL));
    CHECK(calls == 0);
    OK(jittison_guard_refresh(guard));
    CHECK(calls == 1);
    OK(jittison_guard_leave(guard));
    OK(jittison_manager_deregister(manager));
    OK(jittison_manager_release(manager));
    OK(jittison_tracker_release(tracker));
}

/* A guard and a call that the destructor of a thread-specific value leaves, in its last round: after the destructors of the
 * library's own thread-local values. The destructor also enters and leaves another guard. */
static pthread_key_t late;
static jittison_session late_session;
static jittison_guard late_guard;
static jittison_call late_call;
static int late_round;

static void leave_late(void *value) {
    jittison_guard other;
    if (++late_round < 3) {
        CHECK(pthread_setspecific(late, value) == 0);
        return;
    }
    OK(jittison_guard_enter(late_session, &other));
    OK(jittison_guard_refresh(late_guard));
    OK(jittison_guard_leave(other));
    OK(jittison_guard_leave(late_guard));
    OK(jittison_call_leave(late_call));
}

static void *enter_early(void *value) {
    CHECK(pthread_setspecific(late, value) == 0);
    OK(jittison_guard_enter(late_session, &late_guard));
    OK(jittison_call_enter(late_session, &late_call));
    return NULL;
}

static void guards_are_left_while_a_thread_ends(jittison_session session) {
    pthread_t thread;
    late_session = session;
    CHECK(pthread_key_create(&late, leave_late) == 0);
    CHECK(pthread_create(&thread, NULL, enter_early, &late) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(late_round == 3);
}

int main(int argc, char **argv) {
    jittison_session session, foreign;
    jittison_dylib foreign_dylib;
    jittison_tracker tracker;
    jittison_removal removal;
    pthread_t thread;
    void *address = NULL;
    long_function one;
    bool flag = true;

    CHECK(argc == 2);
    OK(jittison_session_create(NULL, &session));
    OK(jittison_dylib_main(session, &dylib));
    OK(jittison_tracker_create(dylib, &tracker));
    OK(jittison_object_add_file(session, tracker, STR(argv[1])));

    OK(jittison_guard_enter(session, &guard));
    OK(jittison_guard_lookup(guard, dylib, STR("one"), &address));
    memcpy(&one, &address, sizeof one);
    OK(jittison_tracker_remove(tracker, &removal));
    CHECK(one() == 1);
    OK(jittison_removal_is_complete(removal, &flag));
    CHECK(!flag);
    CHECK(pthread_create(&thread, NULL, elsewhere, NULL) == 0 && pthread_join(thread, NULL) == 0);
    FAILS(JITTISON_ERROR_SYMBOLS_NOT_FOUND, jittison_guard_lookup(guard, dylib, STR("one"), &address));
    OK(jittison_guard_refresh(guard));
    OK(jittison_removal_is_complete(removal, &flag));
    CHECK(flag);

    OK(jittison_guard_leave(guard));
    what_a_refresh_runs_cannot_use_its_guard(session);
    guards_are_left_while_a_thread_ends(session);
    OK(jittison_guard_enter(session, &guard));

    OK(jittison_session_create(NULL, &foreign));
    OK(jittison_dylib_main(foreign, &foreign_dylib));
    FAILS(JITTISON_ERROR_FOREIGN_SESSION, jittison_guard_lookup(guard, foreign_dylib, STR("one"), &address));
    OK(jittison_guard_leave(guard));
    FAILS(JITTISON_ERROR_INVALID_HANDLE, jittison_guard_leave(guard));

    /* A guard outlives the handle of its session. */
    OK(jittison_guard_enter(foreign, &guard));
    OK(jittison_session_destroy(foreign));
    OK(jittison_guard_leave(guard));
    OK(jittison_dylib_release(foreign_dylib));
    OK(jittison_removal_release(removal));
    OK(jittison_tracker_release(tracker));
    OK(jittison_dylib_release(dylib));
    OK(jittison_session_destroy(session));
    return 0;
}
