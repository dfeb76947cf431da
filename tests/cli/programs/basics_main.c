/* Data of all kinds across objects, callbacks, arguments and environment. */
#include "basics.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_value(const void *a, const void *b) {
    const int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

static double halve(double x) { return x / 2; }

int main(int argc, char **argv, char **envp) {
    printf("errno at first: %d\n", errno);
    printf("argc %d, argv[argc] %s\n", argc, argv[argc] ? "set" : "null");
    for (int i = 0; i < argc; i++)
        printf("argv[%d] = %s\n", i, argv[i]);
    int sample = 0;
    for (char **variable = envp; *variable; variable++)
        sample += !strncmp(*variable, "JITTISON_TEST=", 14) ? printf("%s\n", *variable) : 0;
    const char *same = getenv("JITTISON_TEST");
    printf("environment %d %s\n", sample, same ? same : "none");
    if (argc > 1)
        strcpy(argv[1], ""); /* a program may change its arguments */

    for (size_t i = 0; i < sizeof zeroes / sizeof *zeroes; i++)
        zero_sum += zeroes[i] != 0;
    printf("zeroes %d, tentative %d, table %s %s\n", zero_sum, tentative, words[0], words[2]);
    qsort(numbers, number_count, sizeof *numbers, by_value);
    for (int i = 0; i < number_count; i++)
        printf("%d%c", numbers[i], i + 1 == number_count ? '\n' : ' ');
    printf("%.3f %.3f %.6f\n", apply(halve, 3.0), apply(sqrt, 2.0), chosen(1)(1.0));
    printf("%s\n", describe(-1, 2.5, 'x', "variadic"));
    fprintf(stderr, "to standard error, %d\n", tentative);
    zeroes[4095] = 7;
    count_up();
    count_up();
    return counter * 10 + zeroes[4095];
}
