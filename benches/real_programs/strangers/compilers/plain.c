#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { int key; double value; const char *name; } Row;
static Row rows[200];
static const char *names[] = {"one", "two", "three"};
static long calls;
int shared_counter, initialised = 5;

static int by_value(const void *left, const void *right) {
    double a = ((const Row *)left)->value, b = ((const Row *)right)->value;
    calls++;
    return (a > b) - (a < b);
}

int main(int argc, char **argv) {
    for (int i = 0; i < 200; i++) rows[i] = (Row){i, sin(i * 1.7) * 100, names[i % 3]};
    qsort(rows, 200, sizeof *rows, by_value);
    for (int i = 0; i < 200; i += 40) printf("%d %.6f %s\n", rows[i].key, rows[i].value, rows[i].name);
    switch (argc + initialised) {
    case 6: puts("six"); break;
    case 7: puts("seven"); break;
    default: puts("other");
    }
    fprintf(stdout, "%d %d %zu\n", calls > 200, shared_counter, strlen(argv[0]) > 0 ? (size_t)1 : 0);
    return 3;
}
