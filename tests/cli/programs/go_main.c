/* A program of C with a library of Go, which it calls from two threads. */
#include "libgo_library.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static __thread int depth = 3;

static int twice(int number) { return 2 * number; }

static void *on_thread(void *unused) {
    depth++;
    printf("thread %d: %d %s\n", depth, GoSum(10, twice), GoRecover());
    return unused;
}

static void on_signal(int number) { printf("signal %d\n", number == SIGUSR1); }

int main(int argc, char **argv) {
    printf("arguments %d %d", argc, GoArgumentCount());
    for (int i = 1; i < argc; i++) printf(" [%s]", GoArgument(i));
    printf("\nsetting [%s]\n", GoSetting());
    printf("goroutines %d\n", GoSum(100, twice));
    printf("collected %d\n", GoCollect());
    printf("recovered %s\n", GoRecover());
    printf("function %s\n", GoCaller());
    pthread_t thread;
    pthread_create(&thread, NULL, on_thread, NULL);
    pthread_join(thread, NULL);
    signal(SIGUSR1, on_signal);
    raise(SIGUSR1);
    printf("depth %d\n", depth);
    exit(depth + argc);
}
