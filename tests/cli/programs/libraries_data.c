// Uses variables of the C library: reads, writes, expressions and addresses.
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

extern char **environ;
static FILE **const listed[] = {&stdout, &stderr};

static int which(FILE **file) { return file == &stdout ? 1 : file == &stderr ? 2 : 3; }

int library_variables(int argc, char **argv) {
    int option;
    opterr = 0;
    while ((option = getopt(argc, argv, "ab:")) != -1) printf("%d %d %s\n", option, optind, optarg ? optarg : "none");
    optind += 1;
    if (optind > 5) optind = 5;
    for (char **entry = environ; *entry; entry++)
        if (!strncmp(*entry, "JITTISON_TEST=", 14)) puts(*entry);
    fputs("to stdout\n", stdout);
    fputs("to stderr\n", argc > 1 ? stderr : *listed[1]);
    tzset();
    double number = optind;
    float part = timezone;
    printf("%d %d %d %d\n", which(&stdout), which(listed[1]), which(&stdin), which((FILE **)listed));
    printf("%ld %d %s %s %f %f %c\n", timezone, daylight, tzname[0], tzname[argc & 1], number, part, optopt ? optopt : '-');
    fflush(stdout);
    environ[0] = 0;
    return optind * 2 + (optopt != 0) + (environ[0] == NULL);
}
