// measure SECONDS FIGURES COMMAND...: runs the command and writes "status wall_us user_us peak_rss_kb" into the file
// FIGURES. The status is 128 + N after signal N. SIGALRM (142) ends the command after SECONDS.
// This is a separate program because the kernel counts peak memory from the process that forks, which has to be small.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long long now_us(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000LL + time.tv_nsec / 1000;
}

int main(int count, char **arguments) {
    if (count < 4) return fprintf(stderr, "measure SECONDS FIGURES COMMAND...\n"), 2;
    const long long began = now_us();
    const pid_t child = fork();
    if (child == 0) {
        alarm((unsigned)atoi(arguments[1])); // stays set across exec
        execvp(arguments[3], arguments + 3);
        perror(arguments[3]);
        _exit(127);
    }
    int status;
    struct rusage usage;
    if (child < 0 || wait4(child, &status, 0, &usage) != child) return perror("measure"), 2;
    const long long wall_us = now_us() - began;
    const long long user_us = usage.ru_utime.tv_sec * 1000000LL + usage.ru_utime.tv_usec;
    status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    FILE *figures = fopen(arguments[2], "w");
    if (!figures) return perror(arguments[2]), 2;
    fprintf(figures, "%d %lld %lld %ld\n", status, wall_us, user_us, usage.ru_maxrss);
    return fclose(figures) ? 2 : status;
}
