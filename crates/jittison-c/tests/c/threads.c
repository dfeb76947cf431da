/* One set of handles, used by eight threads: of all that release a handle, one succeeds; links, calls and removals of the others
 * go on. Argument: an object with `long one(void)` that returns 1. */
#include "check.h"
#include <pthread.h>

enum { THREADS = 8, ROUNDS = 200, SHARED = 64 };

static jittison_session session;
static jittison_function shared[SHARED];
static pthread_barrier_t barrier;
static unsigned char *object;
static size_t size;
static int released, completed_removals;

static void completed(jittison_error *error, void *context) {
    CHECK(error == NULL && context == NULL);
    __atomic_fetch_add(&completed_removals, 1, __ATOMIC_RELAXED);
}

static void *work(void *argument) {
    jittison_dylib dylib;
    jittison_tracker tracker;
    jittison_function one;
    jittison_removal removal;
    void *address;
    int round;

    OK(jittison_dylib_create(session, STR("thread"), &dylib));
    pthread_barrier_wait(&barrier);
    for (round = 0; round < ROUNDS; round++) {
        /* An address is valid only under a handle of one's own, so only the code of the call is of interest. */
        jittison_error *error = jittison_function_address(shared[round % SHARED], &address);
        CHECK(error == NULL || jittison_error_code(error) == JITTISON_ERROR_INVALID_HANDLE);
        jittison_error_free(error);
        error = jittison_function_release(shared[round % SHARED]);
        CHECK(error == NULL || jittison_error_code(error) == JITTISON_ERROR_INVALID_HANDLE);
        if (error == NULL) {
            __atomic_fetch_add(&released, 1, __ATOMIC_RELAXED);
        }
        jittison_error_free(error);

        OK(jittison_tracker_create(dylib, &tracker));
        OK(jittison_object_add(session, tracker, STR("one.o"), object, size));
        OK(jittison_function_lookup(session, dylib, STR("one"), &one));
        OK(jittison_tracker_remove(tracker, &removal));
        OK(jittison_removal_on_complete(removal, completed, NULL));
        CHECK(call_long(one) == 1);
        OK(jittison_function_release(one));
        OK(jittison_removal_wait(removal, JITTISON_FOREVER, NULL));
        OK(jittison_removal_release(removal));
        OK(jittison_tracker_release(tracker));
    }
    OK(jittison_dylib_release(dylib));
    return argument;
}

int main(int argc, char **argv) {
    jittison_dylib dylib;
    jittison_tracker tracker;
    jittison_removal removal;
    pthread_t threads[THREADS];
    bool flag = false;
    int index;

    CHECK(argc == 2);
    object = read_file(argv[1], &size);
    OK(jittison_session_create(NULL, &session));
    OK(jittison_dylib_main(session, &dylib));
    OK(jittison_tracker_create(dylib, &tracker));
    OK(jittison_object_add(session, tracker, STR("one.o"), object, size));
    for (index = 0; index < SHARED; index++) {
        OK(jittison_function_lookup(session, dylib, STR("one"), &shared[index]));
    }
    OK(jittison_tracker_remove(tracker, &removal));
    CHECK(pthread_barrier_init(&barrier, NULL, THREADS) == 0);
    for (index = 0; index < THREADS; index++) {
        CHECK(pthread_create(&threads[index], NULL, work, NULL) == 0);
    }
    for (index = 0; index < THREADS; index++) {
        CHECK(pthread_join(threads[index], NULL) == 0);
    }
    CHECK(released == SHARED && completed_removals == THREADS * ROUNDS);
    OK(jittison_removal_is_complete(removal, &flag));
    CHECK(flag);
    OK(jittison_removal_release(removal));
    OK(jittison_tracker_release(tracker));
    OK(jittison_dylib_release(dylib));
    OK(jittison_session_destroy(session));
    free(object);
    return 0;
}
