/* Every way for a C program to end. The first argument selects one. */
#define _GNU_SOURCE
#include "lifecycle.h"
#include <assert.h>
#include <err.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

const char *mode = "return";

__attribute__((constructor)) static void main_up(int argc, char **argv, char **envp) {
    printf("main up: argc %d, argv[0] %s, environment %s\n", argc, argv[0], envp && *envp ? "set" : "empty");
    if (argc > 1)
        mode = argv[1];
    if (is("exit-in-constructor"))
        exit(9);
}

__attribute__((destructor)) static void main_down(void) { say("main down"); }

static void last(void) { say("handler registered by a handler"); }

static void first(void) {
    say("handler registered first");
    if (is("handler-registers"))
        atexit(last);
}

static void second(void) {
    say("handler registered second");
    if (is("handler-exits"))
        exit(21);
}

static void with_status(int status, void *word) { printf("handler with status %d %s\n", status, (const char *)word); }
static void *leave(void *unused) { exit(17); }
static void *rest(void *unused) { return say("thread"), NULL; }
static void *outlive(void *stop) {
    for (volatile int *flag = stop; !*flag;)
        ;
    return NULL;
}

int main(int argc, char **argv) {
    volatile int never = 0;
    pthread_t thread;
    say("main");
    atexit(first);
    atexit(second);
    if (is("on_exit") || is("on_exit-exit"))
        on_exit(with_status, "a word"), atexit(last);
    if (is("on_exit-exit"))
        on_exit(with_status, "another"), deep(2);
    if (is("exit"))
        deep(5);
    if (is("_exit"))
        fflush(stdout), _exit(4);
    if (is("quick_exit"))
        fflush(stdout), quick_exit(5);
    if (is("abort"))
        fflush(stdout), abort();
    if (is("assert"))
        fflush(stdout), assert(argc == 0);
    if (is("err"))
        errno = ENOENT, err(6, "a library's exit");
    if (is("crash"))
        fflush(stdout), raise(SIGSEGV);
    if (is("pipe"))
        fflush(stdout), raise(SIGPIPE);
    if (is("exit-in-thread")) {
        pthread_create(&thread, NULL, leave, NULL);
        pthread_join(thread, NULL);
    }
    if (is("thread")) {
        pthread_create(&thread, NULL, rest, NULL);
        pthread_join(thread, NULL);
    }
    if (is("thread-outlives"))
        pthread_create(&thread, NULL, outlive, (void *)&never);
    if (is("pthread_exit"))
        pthread_exit(NULL);
    if (is("fork")) {
        fflush(stdout);
        const pid_t child = fork();
        if (child == 0)
            return say("child"), 11;
        int status;
        waitpid(child, &status, 0);
        printf("child's status %d\n", WEXITSTATUS(status));
    }
    if (is("fork-exit")) {
        fflush(stdout);
        const pid_t child = fork();
        if (child == 0)
            exit(12);
        int status;
        waitpid(child, &status, 0);
        printf("child's status %d\n", WEXITSTATUS(status));
    }
    if (is("large-status"))
        return 0x1234;
    if (is("negative-status"))
        return -2;
    return 3;
}
