/* Handlers of fork and quick_exit: the C library links their registration statically into each program. Also a symbol of
   internal visibility. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void say(const char *what)
{
    puts(what);
    fflush(stdout);
}

static void prepare(void) { say("prepare"); }
static void parent(void) { say("parent"); }
static int in_child;
static void child(void) { in_child = 1; }
static void quick(void) { say("quick"); }

__attribute__((visibility("internal"))) int internal(void) { return 7; }

int main(int argc, char **argv)
{
    int status = 0;
    pthread_atfork(prepare, parent, child);
    at_quick_exit(quick);
    if (fork() == 0)
        _exit(in_child);
    wait(&status);
    printf("status of the child: %d\n", WEXITSTATUS(status));
    fflush(stdout);
    if (argc > 1)
        quick_exit(internal());
    return internal();
}
